//! `flysch cam identify`: IDENTIFY DEVICE data as camcontrol prints it, and the names of an NVMe
//! device.

use flysch_ahci::{AtaCommand, AtaData};
use flysch_api::command::{AtaProtocol, Taskfile};
use flysch_nvme::AdminCommand;
use flysch_wire::ata::identify::Text;
use flysch_wire::ata::{Opcode, SECTOR};
use flysch_wire::nvme::{Cns, IdentifyController, Status};
use serde_json::json;

use super::describe::text;
use super::session::{Language, Session};
use crate::failure::Failure;

/// IDENTIFY DEVICE data as words (ACS-4 7.12.7).
#[derive(Debug)]
pub(super) struct Words([u16; 256]);

/// Words 82 and 85, and so on: which bit says that a feature is supported, and enabled.
#[derive(Clone, Copy, Debug)]
struct Feature {
    name: &'static str,
    /// Word of support; the word of being enabled is three further.
    word: usize,
    bit: u16,
    /// Word whose low byte is its value.
    value: Option<usize>,
}

const fn feature(name: &'static str, word: usize, bit: u8) -> Feature {
    Feature { name, word, bit: 1 << bit, value: None }
}

/// The features in camcontrol's order, without the queues.
const FEATURES: [Feature; 11] = [
    feature("read ahead", 82, 6),
    feature("write cache", 82, 5),
    feature("flush cache", 83, 12),
    feature("SMART", 82, 0),
    feature("microcode download", 83, 0),
    feature("security", 82, 1),
    feature("power management", 82, 3),
    Feature { value: Some(91), ..feature("advanced power management", 83, 3) },
    feature("power-up in Standby", 83, 5),
    feature("general purpose logging", 84, 5),
    feature("unload", 84, 13),
];

impl Words {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut words = [0; 256];
        for (word, pair) in words.iter_mut().zip(bytes.as_chunks::<2>().0) {
            *word = u16::from_le_bytes(*pair);
        }
        Self(words)
    }

    fn text(&self, words: core::ops::Range<usize>) -> String {
        let bytes: Vec<u8> = self.0[words].iter().flat_map(|word| word.to_be_bytes()).collect();
        Text(&bytes).to_string()
    }

    fn number(&self, words: core::ops::Range<usize>) -> u64 {
        self.0[words].iter().rev().fold(0, |value, &word| value << 16 | u64::from(word))
    }

    fn has(&self, word: usize, bits: u16) -> bool {
        self.0[word] & bits != 0
    }

    /// A word that is not reserved on a non-SATA device.
    fn sata(&self) -> Option<u16> {
        Some(self.0[76]).filter(|word| *word != 0 && *word != 0xFFFF)
    }

    /// The newest ATA standard: the highest bit of MAJOR VERSION NUMBER.
    fn version(&self) -> u32 {
        match self.0[80] {
            0 | 0xFFFF => 0,
            bits => bits.ilog2(),
        }
    }

    fn sata_words(&self) -> &'static str {
        match self.sata() {
            Some(bits) if bits & 8 != 0 => " SATA 3.x",
            Some(bits) if bits & 4 != 0 => " SATA 2.x",
            Some(bits) if bits & 2 != 0 => " SATA 1.x",
            Some(_) => " SATA",
            None => "",
        }
    }

    pub(super) fn model(&self) -> String {
        self.text(27..47)
    }

    pub(super) fn firmware(&self) -> String {
        self.text(23..27)
    }

    pub(super) fn serial(&self) -> String {
        self.text(10..20)
    }

    /// The fastest DMA mode, in camcontrol's terms.
    pub(super) fn dma(&self) -> Option<String> {
        let highest = |bits: u16| (bits & 0xFF).checked_ilog2();
        let ultra = highest(self.0[88]).filter(|_| self.has(53, 4));
        ultra.map(|mode| format!("UDMA{mode}"))
    }

    /// Security: SECURITY STATUS.
    pub(super) fn security(&self) -> u16 {
        self.0[128]
    }

    /// Normal and enhanced erase time, minutes; 0 if not reported.
    pub(super) fn erase_minutes(&self) -> (u32, u32) {
        let minutes = |word: u16| match word {
            // Bit 15 makes the field wider; either counts pairs of minutes.
            wide if wide & 0x8000 != 0 => u32::from(wide & 0x7FFF) * 2,
            short => u32::from(short & 0xFF) * 2,
        };
        (minutes(self.0[89]), minutes(self.0[90]))
    }

    /// MASTER PASSWORD IDENTIFIER.
    pub(super) fn master_password(&self) -> u16 {
        self.0[92]
    }

    fn queue_length(&self) -> u16 {
        (self.0[75] & 0x1F) + 1
    }

    /// The first line: the kind of device.
    fn heading(&self) -> String {
        let (model, firmware) = (self.model(), self.firmware());
        let kind = match self.version() {
            0 => "ATA".to_owned(),
            4..8 => format!("ATA/ATAPI-{}", self.version()),
            // ACS-1 is ATA8.
            version => format!("ACS-{}", version.saturating_sub(7)),
        };
        format!("<{model} {firmware}> {kind} ATA{} device", self.sata_words())
    }

    fn lines(&self) -> Vec<String> {
        let not = |is: bool| if is { " " } else { " not " };
        let mut lines = vec![String::new()];
        let version = self.version();
        lines.push(format!("protocol              ATA/ATAPI-{version}{}", self.sata_words()));
        lines.push(format!("device model          {}", self.model()));
        lines.push(format!("firmware revision     {}", self.firmware()));
        lines.push(format!("serial number         {}", self.serial()));
        if self.has(87, 1 << 8) {
            let wwn: String = self.0[108..112].iter().map(|word| format!("{word:04x}")).collect();
            lines.push(format!("WWN                   {wwn}"));
        }
        lines.push(format!("cylinders             {}", self.0[1]));
        lines.push(format!("heads                 {}", self.0[3]));
        lines.push(format!("sectors/track         {}", self.0[6]));
        let (has_lba, sectors) = (self.has(49, 1 << 9), self.number(60..62));
        lines.push(format!("LBA{}supported         {sectors} sectors", not(has_lba)));
        let (has_48, sectors) = (self.has(83, 1 << 10), self.number(100..104));
        let sectors = if has_48 { format!("{sectors} sectors") } else { String::new() };
        lines.push(format!("LBA48{}supported       {sectors}", not(has_48)));
        let pio = if self.has(64, 2) {
            4
        } else if self.has(64, 1) {
            3
        } else {
            0
        };
        lines.push(format!("PIO supported         PIO{pio}"));
        let words = (self.0[63] & 0xFF).checked_ilog2().map(|mode| format!("WDMA{mode} "));
        let ultra = self.dma().map(|mode| format!("{mode} "));
        let modes = words.unwrap_or_default() + &ultra.unwrap_or_default();
        lines.push(format!("DMA{}supported         {modes}", not(self.has(49, 1 << 8))));
        match self.0[217] {
            1 => lines.push("media RPM             non-rotating".into()),
            rpm @ 0x0401..=0xFFFE => lines.push(format!("media RPM             {rpm}")),
            _ => {}
        }
        lines.push(String::new());
        lines.push("Feature                      Support  Enable    Value           Vendor".into());
        for (at, feature) in FEATURES.into_iter().enumerate() {
            lines.push(self.feature(feature));
            // The queues stand after the flush.
            if at == 2 && self.sata().is_some() {
                let ncq = self.sata().is_some_and(|bits| bits & 1 << 8 != 0);
                let length = if ncq { self.queue_length() } else { 0 };
                let yes = yes(ncq);
                let name = "Native Command Queuing (NCQ)";
                lines.push(format!("{name:<30} {yes}\t\t{length}/{length:#04X}"));
            }
        }
        lines.push(format!("{:<30} {}", "Data Set Management (DSM/TRIM)", yes(self.has(169, 1))));
        lines
    }

    fn feature(&self, feature: Feature) -> String {
        let Feature { name, word, bit, value } = feature;
        let (has, on) = (yes(self.has(word, bit)), yes(self.has(word + 3, bit)));
        let value = value.map(|word| self.0[word] & 0xFF);
        let value = value.map_or(String::new(), |value| format!("\t{value}/{value:#04X}"));
        format!("{name:<30} {has}\t{on}{value}")
    }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// IDENTIFY DEVICE.
pub(super) fn identify_words(session: &mut Session<'_>) -> Result<Words, Failure> {
    let task = Taskfile {
        command: Opcode::Identify.into_bits(),
        protocol: AtaProtocol::Pio,
        ..Taskfile::default()
    };
    let data = AtaData::In(SECTOR as u32);
    let reply = session.try_ata(AtaCommand { unit: 0, task, data, timeout_ms: None })?;
    if reply.status.is_error() {
        let (status, error) = (reply.status.status, reply.status.error);
        let why = format!("IDENTIFY DEVICE: ATA status {status:#04x}, error {error:#04x}");
        return Err(Failure::of(session.pass(), why));
    }
    Ok(Words::parse(&reply.data))
}

pub(super) fn identify(session: &mut Session<'_>) -> Result<(), Failure> {
    let pass = session.pass();
    match session.language() {
        Language::Ata => {}
        Language::Nvme => return identify_nvme(session),
        Language::Scsi | Language::Mmc => return Err(session.speaks_not("ATA or NVMe", None)),
    }
    let words = identify_words(session)?;
    if session.output.json() {
        let features = FEATURES.map(|Feature { name, word, bit, .. }| {
            json!({ "name": name, "supported": words.has(word, bit),
                    "enabled": words.has(word + 3, bit) })
        });
        return session.output.value(&json!({
            "device": pass,
            "model": words.model(),
            "firmware": words.firmware(),
            "serial": words.serial(),
            "sectors": words.number(100..104),
            "features": features,
            "words": words.0.to_vec(),
        }));
    }
    session.output.line(format!("{pass}: {}", words.heading()))?;
    let rate = super::buses::transfer_rate(session);
    session.output.line(format!("{pass}: {rate} transfers"))?;
    for line in words.lines() {
        session.output.line(line)?;
    }
    Ok(())
}

fn identify_nvme(session: &mut Session<'_>) -> Result<(), Failure> {
    let (pass, lun) = (session.pass(), session.unit.path.lun);
    let reply = session.try_nvme(AdminCommand::identify(Cns::Controller, 0))?;
    match Status::of_field(reply.status.status) {
        Status::Success => {}
        status => return Err(Failure::of(pass, format!("Identify: {status}"))),
    }
    let controller = IdentifyController::parse(&reply.data).map_err(Failure::failed)?;
    let Some(control) = session.stack().and_then(|stack| stack.nvme()) else { return Ok(()) };
    let names = [text(&controller.mn), text(&controller.fr), text(&controller.sn)];
    let (version, ..) = control.controller();
    let [model, firmware, serial] = names;
    if session.output.json() {
        return session.output.value(&json!({
            "device": pass,
            "model": model,
            "firmware": firmware,
            "serial": serial,
            "version": version.to_string(),
            "namespace": lun,
        }));
    }
    session.output.line(format!("{pass}: <{model} {firmware}> NVMe {version} device"))?;
    session.output.line(format!("{pass}: Serial Number {serial}"))?;
    session.output.line(format!("{pass}: namespace {lun}"))
}

//! `flysch emmc extcsd`, `cid`, `csd`, `scr`, `status`, `health` and `errors`.

use clap::Subcommand;
use flysch_emmc::{CardKind, Operation, Output as Answer};
use flysch_wire::mmc::ext_csd::{self, partition};
use flysch_wire::mmc::fields::{FIELDS, Field};
use flysch_wire::mmc::{CardStatus, ExtCsd};
use serde_json::{Map, Value, json};

use super::Session;
use crate::failure::Failure;

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum ExtCsdVerb {
    /// Show every field.
    Read,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub(super) enum StatusVerb {
    /// Read it and show it.
    Get,
}

impl Session<'_> {
    pub(super) fn ext_csd_read(&mut self) -> Result<(), Failure> {
        let csd = self.ext_csd()?;
        if self.output.json() {
            let mut all: Map<String, Value> =
                FIELDS.iter().map(|field| (field.name.into(), field.of(&csd).into())).collect();
            let raw: String = csd.0.iter().map(|byte| format!("{byte:02x}")).collect();
            all.insert("raw".into(), raw.into());
            return self.output.value(&all);
        }
        let rule = "=".repeat(45);
        let revision = csd.revision();
        self.output.line(&rule)?;
        self.output.line(format!("  Extended CSD rev 1.{revision} (MMC {})", release(revision)))?;
        self.output.line(&rule)?;
        self.output.line("")?;
        for field in &FIELDS {
            let value = field.of(&csd);
            let digits = 2 * usize::from(field.bytes);
            self.output.line(format!("[{}: 0x{value:0digits$x}]", field.name))?;
            for line in meaning(field, &csd) {
                self.output.line(format!(" {line}"))?;
            }
        }
        Ok(())
    }

    pub(super) fn cid_read(&mut self) -> Result<(), Failure> {
        let cid = &self.control.device().cid;
        let is_sd = self.control.device().kind == CardKind::Sd;
        let product: String = text(&cid.product);
        let revision = cid.revision;
        let (major, minor) = (revision >> 4, revision & 0xF);
        let (manufacturer, oem, serial, date) = (cid.manufacturer, cid.oem, cid.serial, cid.date);
        let value = json!({
            "type": if is_sd { "SD" } else { "MMC" },
            "mid": manufacturer, "oid": oem, "pnm": product, "prv": revision,
            "psn": serial, "mdt": date,
        });
        if self.output.json() {
            return self.output.value(&value);
        }
        self.output.line(format!("======{}/CID======", if is_sd { "SD" } else { "MMC" }))?;
        for line in [
            format!("MID: 0x{manufacturer:02x}"),
            format!("OID: 0x{oem:04x}"),
            format!("PNM: {product}"),
            format!("PRV: 0x{revision:02x} ({major}.{minor})"),
            format!("PSN: 0x{serial:08x}"),
            format!("MDT: 0x{date:03x}"),
        ] {
            self.output.line(format!("\t{line}"))?;
        }
        Ok(())
    }

    pub(super) fn csd_read(&mut self) -> Result<(), Failure> {
        let device = self.control.device();
        let (csd, sectors) = (device.csd, device.sectors);
        let name = if device.kind == CardKind::Sd { "SD" } else { "MMC" };
        let rows = [
            ("CSD_STRUCTURE", u32::from(csd.structure)),
            ("SPEC_VERS", csd.version.into()),
            ("TAAC", csd.taac.into()),
            ("NSAC", csd.nsac.into()),
            ("TRAN_SPEED", csd.speed.into()),
            ("CCC", csd.classes.into()),
            ("READ_BL_LEN", csd.read_block_shift.into()),
            ("C_SIZE", csd.size),
            ("C_SIZE_MULT", csd.size_shift.into()),
            ("ERASE_GRP_SIZE", csd.erase_size.into()),
            ("ERASE_GRP_MULT", csd.erase_count.into()),
            ("WP_GRP_SIZE", csd.write_protect_size.into()),
            ("R2W_FACTOR", csd.write_shift.into()),
            ("WRITE_PROTECT", csd.write_protected.into()),
        ];
        if self.output.json() {
            let mut all: Map<String, Value> =
                rows.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            all.insert("sectors".into(), sectors.into());
            return self.output.value(&all);
        }
        self.output.line(format!("======{name}/CSD======"))?;
        for (name, value) in rows {
            self.output.line(format!("\t{name}: 0x{value:02x}"))?;
        }
        self.output.line(format!("\tCAPACITY: {} bytes, {sectors} sectors", sectors * 512))
    }

    pub(super) fn scr_read(&mut self) -> Result<(), Failure> {
        let device = self.control.device();
        if device.kind != CardKind::Sd {
            return Err(Failure::failed("an eMMC device has no SCR: it is a register of SD cards"));
        }
        let scr = device.scr;
        if self.output.json() {
            return self.output.value(&json!({
                "version": scr.version,
                "erased_ones": scr.erased_ones,
                "four_lines": scr.four_lines,
                "block_count": scr.block_count,
            }));
        }
        self.output.line("======SD/SCR======")?;
        for line in [
            format!("SD_SPEC: {}", scr.version),
            format!("DATA_STAT_AFTER_ERASE: {}", u8::from(scr.erased_ones)),
            format!("SD_BUS_WIDTHS: {}", if scr.four_lines { "1 and 4 lines" } else { "1 line" }),
            format!("CMD23: {}", if scr.block_count { "yes" } else { "no" }),
        ] {
            self.output.line(format!("\t{line}"))?;
        }
        Ok(())
    }

    pub(super) fn status_get(&mut self) -> Result<(), Failure> {
        let Answer::Status(status) = self.operate(Operation::Status)? else {
            return Err(Failure::failed("the driver did not answer with the status"));
        };
        let state = state(status);
        let errors = status.errors().into_bits();
        let value = json!({
            "status": status.into_bits(),
            "state": state,
            "ready_for_data": status.ready_for_data(),
            "errors": errors,
        });
        let ready = if status.ready_for_data() { "ready for data" } else { "not ready for data" };
        let bits = status.into_bits();
        self.done(&value, &format!("SEND_STATUS response: 0x{bits:08x}\nstate: {state}, {ready}"))
    }

    pub(super) fn health(&mut self) -> Result<(), Failure> {
        let csd = self.ext_csd()?;
        if csd.revision() < ext_csd::revision::V5_0 {
            return Err(Failure::failed(
                "the card does not report its health: it is older than eMMC 5.0",
            ));
        }
        let byte = |at: usize| csd.0[at];
        let (a, b) = (byte(ext_csd::LIFE_TIME_A), byte(ext_csd::LIFE_TIME_B));
        let (end, urgent) = (byte(ext_csd::PRE_EOL_INFO), csd.byte(ext_csd::BKOPS_STATUS));
        if self.output.json() {
            return self.output.value(&json!({
                "life_time_a": a, "life_time_b": b, "pre_eol_info": end, "bkops_status": urgent,
            }));
        }
        for (name, value, words) in [
            ("DEVICE_LIFE_TIME_EST_TYP_A", a, life(a)),
            ("DEVICE_LIFE_TIME_EST_TYP_B", b, life(b)),
            ("PRE_EOL_INFO", end, end_of_life(end).into()),
            ("BKOPS_STATUS", urgent, background(urgent).into()),
        ] {
            self.output.line(format!("{name}: 0x{value:02x} ({words})"))?;
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) -> Result<(), Failure> {
        self.operate(Operation::Reset)?;
        self.done(&json!({ "reset": "card" }), "the card was reset and is up again")
    }

    /// The driver's counters.
    pub(super) fn errors(&mut self) -> Result<(), Failure> {
        let log = self.control.errors();
        let counts = log.counts().map(|(kind, count)| (kind.name(), count));
        if self.output.json() {
            let counts: Map<_, _> = counts.map(|(name, n)| (name.to_owned(), json!(n))).collect();
            let record = |r: &flysch_emmc::ErrorRecord| {
                let (at, kind) = (r.at.nanos(), r.kind.name());
                json!({ "at_ns": at, "kind": kind, "value": r.value })
            };
            let history: Vec<_> = log.history().map(record).collect();
            return self.output.value(&json!({ "counts": counts, "history": history }));
        }
        let counts: Vec<_> =
            counts.map(|(name, count)| vec![name.to_owned(), count.to_string()]).collect();
        let row = |r: &flysch_emmc::ErrorRecord| {
            vec![r.at.to_string(), r.kind.name().to_owned(), format!("{:#010x}", r.value)]
        };
        let history: Vec<_> = log.history().map(row).collect();
        self.output.table(&["error", "count"], &counts)?;
        if history.is_empty() {
            return self.output.line("\nno errors since bring-up");
        }
        self.output.line("")?;
        self.output.table(&["at", "error", "value"], &history)
    }
}

/// ASCII, as far as it is printable.
fn text(bytes: &[u8]) -> String {
    let shown = bytes.iter().filter(|byte| byte.is_ascii_graphic() || **byte == b' ');
    shown.map(|&byte| byte as char).collect::<String>().trim_end().to_owned()
}

/// The release of the specification with this revision of EXT_CSD.
fn release(revision: u8) -> &'static str {
    match revision {
        8 => "5.1",
        7 => "5.0",
        6 => "4.5",
        5 => "4.41",
        3 => "4.3",
        2 => "4.2",
        1 => "4.1",
        0 => "4.0",
        _ => "unknown",
    }
}

fn state(status: CardStatus) -> String {
    format!("{:?}", status.state())
}

fn life(value: u8) -> String {
    match value {
        0 => "not told".into(),
        1..=10 => format!("{} to {} % of the life time used", (value - 1) * 10, value * 10),
        11 => "beyond the estimated life time".into(),
        _ => "reserved".into(),
    }
}

const fn end_of_life(value: u8) -> &'static str {
    match value {
        0 => "not told",
        1 => "normal",
        2 => "warning: 80 % of the spare blocks used",
        3 => "urgent: 90 % of the spare blocks used",
        _ => "reserved",
    }
}

const fn background(value: u8) -> &'static str {
    match value {
        0 => "nothing to do",
        1 => "not critical",
        2 => "performance is impacted",
        3 => "critical",
        _ => "reserved",
    }
}

/// The meaning of a field's value, one line each.
fn meaning(field: &Field, csd: &ExtCsd) -> Vec<String> {
    let value = field.of(csd);
    let low = value as u8;
    let bits = |names: &[(u8, &str)]| {
        let set = names.iter().filter(|(bit, _)| low >> bit & 1 != 0);
        set.map(|(_, name)| (*name).to_owned()).collect::<Vec<_>>()
    };
    let kib = |sectors: u64| vec![format!("{} KiB", sectors / 2)];
    match field.name {
        "HPI_FEATURES" if low & 1 != 0 => {
            vec![format!("by CMD{}", if low & 2 != 0 { 12 } else { 13 })]
        }
        "CMDQ_DEPTH" if csd.queue_depth() != 0 => vec![format!("{} tasks", csd.queue_depth())],
        "DEVICE_LIFE_TIME_EST_TYP_A" | "DEVICE_LIFE_TIME_EST_TYP_B" => vec![life(low)],
        "PRE_EOL_INFO" => vec![end_of_life(low).into()],
        "BKOPS_STATUS" => vec![background(low).into()],
        "FIRMWARE_VERSION" => vec![text(&value.to_le_bytes())],
        "CACHE_SIZE" => vec![format!("{value} KiB")],
        "SEC_FEATURE_SUPPORT" => {
            bits(&[(0, "secure purge"), (2, "bad blocks"), (4, "trim"), (6, "sanitize")])
        }
        "BOOT_INFO" => bits(&[(0, "alternative boot"), (1, "both edges"), (2, "high speed")]),
        "BOOT_SIZE_MULT" => kib(csd.boot_sectors()),
        "RPMB_SIZE_MULT" => kib(csd.rpmb_sectors()),
        "HC_ERASE_GRP_SIZE" => kib(csd.erase_group_sectors().into()),
        "HC_WP_GRP_SIZE" => kib(csd.write_protect_group_sectors().into()),
        "SEC_COUNT" => vec![format!("{} bytes", value * 512)],
        "DEVICE_TYPE" => bits(&[
            (0, "high speed, 26 MHz"),
            (1, "high speed, 52 MHz"),
            (2, "DDR52, 1.8 V or 3 V"),
            (3, "DDR52, 1.2 V"),
            (4, "HS200, 1.8 V"),
            (5, "HS200, 1.2 V"),
            (6, "HS400, 1.8 V"),
            (7, "HS400, 1.2 V"),
        ]),
        "PARTITION_CONFIG" => {
            let boots = match low >> 3 & 7 {
                0 => "boots from nothing",
                1 => "boots from boot partition 1",
                2 => "boots from boot partition 2",
                7 => "boots from the user area",
                _ => "boots from something reserved",
            };
            let access = format!("partition {} is selected", low & partition::MASK);
            vec![boots.to_owned(), access]
        }
        "PARTITIONING_SUPPORT" => {
            bits(&[(0, "partitions"), (1, "enhanced areas"), (2, "extended attributes")])
        }
        "GP_SIZE_MULT_1" => kib(csd.gp_sectors(0)),
        "GP_SIZE_MULT_2" => kib(csd.gp_sectors(1)),
        "GP_SIZE_MULT_3" => kib(csd.gp_sectors(2)),
        "GP_SIZE_MULT_4" => kib(csd.gp_sectors(3)),
        "BKOPS_EN" => bits(&[(0, "by hand"), (1, "by the card itself")]),
        "RST_N_FUNCTION" => {
            vec![["off", "on for ever", "off for ever", "reserved"][usize::from(low & 3)].into()]
        }
        _ => Vec::new(),
    }
}

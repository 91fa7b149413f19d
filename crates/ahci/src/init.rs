//! One port and the device at it: bring-up as a list of steps (AHCI 10.1.2, 10.4.2).

use crate::error::{Cause, Error};
use crate::fanout::Multiplier;
use crate::hba_resets::HbaResets;
use crate::history::ErrorKind;
use crate::lane::{Lane, UNITS};
use crate::options::{LinkPower, Options, Timeouts};
use crate::quirks::{Quirk, Quirks};
use crate::steps::{Own, Run, Steps};
use crate::taskfile::Ways;
use alloc::vec::Vec;
use flysch_api::machine::{Instant, Machine};
use flysch_script::{Primitives, settled};
use flysch_wire::ata::command::{feature, sata_feature as sata};
use flysch_wire::ata::identify::{sata_feature, sata_more, set82, set84};
use flysch_wire::ata::log::{self, DevSleepTiming};
use flysch_wire::ata::multiplier::CONTROL_PORT;
use flysch_wire::ata::registers::{
    Cap, Cap2, DevSleep, IS, PX_CLB, PX_CLBU, PX_CMD, PX_DEVSLP, PX_FB, PX_FBS, PX_FBU, PX_IE,
    PX_IS, PX_SCTL, PX_SERR, PX_SIG, PX_SSTS, PX_TFD, PortCmd, Sctl, Ssts, Tfd, det, icc,
    interrupt, signature, status,
};
use flysch_wire::ata::{D2h, H2d, Identify, Kind, Opcode, SECTOR};

/// One step of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub what: &'static str,
}

/// The steps of a port, in order.
pub static STEPS: [Step; 7] = [
    Step { name: "stop", what: "PxCMD.ST and FRE off, command list and received FISes placed" },
    Step { name: "link", what: "power, spin-up, COMRESET, wait for the link" },
    Step { name: "ready", what: "wait until the device is ready, look at its signature" },
    Step { name: "multiplier", what: "its registers, the links of its device ports" },
    Step { name: "identify", what: "the command list runs; IDENTIFY DEVICE or PACKET DEVICE" },
    Step { name: "features", what: "transfer mode, write cache, queued error log, trims" },
    Step { name: "link power", what: "partial, slumber, device sleep" },
];

/// The device at a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// What it says about itself.
    pub identify: Identify,
    /// Negotiated speed: 1, 2, 3 for 1.5, 3, 6 Gb/s.
    pub speed: u8,
    /// Known deviations of the device and its HBA.
    pub quirks: Quirks,
    /// Whether commands are queued in it.
    pub queued: bool,
    /// Whether trims are queued, too.
    pub queued_trim: bool,
    /// How deep its link may sleep on its own.
    pub link_power: LinkPower,
}

/// What is known about the HBA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HbaFacts {
    pub(crate) cap: Cap,
    pub(crate) cap2: Cap2,
    pub(crate) quirks: Quirks,
}

/// A port: its commands, its control path, its device.
#[derive(Debug)]
pub(crate) struct Core<M: Machine> {
    pub(crate) steps: Steps<M>,
    pub(crate) lane: Lane<M>,
    pub(crate) options: Options,
    pub(crate) hba: HbaFacts,
    /// The devices by their port of a multiplier; without one, only the first entry is used.
    pub(crate) devices: Vec<Option<Device>>,
    /// The devices present when everything last worked, whatever was tried since.
    pub(crate) known: Vec<Option<Identify>>,
    /// The multiplier at the port.
    pub(crate) multiplier: Option<Multiplier>,
    /// Counts the devices that have come.
    pub(crate) generation: u32,
    /// Interrupts the port may raise; those that count as a change of the link.
    pub(crate) changes: u32,
    /// Resets of the HBA this port asked for since it last worked.
    pub(crate) hba_resets: HbaResets,
}

const MS: u64 = 1_000_000;
/// How long COMRESET must be held (SATA 14.1.3; Linux), nanoseconds.
const COMRESET_NS: u64 = MS;
/// COUNT of SET FEATURES, transfer mode: Ultra DMA.
const UDMA: u16 = 0x40;

/// A bring-up under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct BringUp {
    step: usize,
    identify: Option<Identify>,
    signature: u32,
    /// Devices still to be brought up, a bit each, and the one under way.
    units: u32,
    unit: u8,
    /// Another COMRESET of the same recovery came before this one.
    is_again: bool,
    /// A device that did not come up may have left something in the list.
    is_littered: bool,
    /// How often the device under way has failed to come up.
    failures: u8,
}

/// How often the bring-up of one device behind a multiplier is tried before it is left out: a reset
/// of the device may be lost or leave it busy, which the next one ends. As many as in libata
/// (ATA_EH_DEV_TRIES).
const DEVICE_TRIES: u8 = 3;

/// Indices of steps in [`STEPS`].
const IDENTIFY: usize = 4;
const FEATURES: usize = 5;
const LAST: usize = 6;

impl BringUp {
    /// A bring-up that is tried again if `is_again`.
    pub(crate) fn again(is_again: bool) -> Self {
        Self { is_again, ..Self::default() }
    }

    /// Bring-up of the devices that came behind a multiplier that is already up.
    pub(crate) fn behind(units: u32) -> Self {
        let mut this = Self { step: IDENTIFY, units, is_again: true, ..Self::default() };
        this.take_next();
        this
    }

    /// Moves on to the next device or, after the last one, to the final step for all of them.
    fn take_next(&mut self) {
        self.failures = 0;
        self.step = if self.units == 0 { LAST } else { IDENTIFY };
        self.unit = (self.units.trailing_zeros() % 32) as u8;
        self.units &= self.units.wrapping_sub(1);
    }

    pub(crate) fn step(&self) -> Option<&'static Step> {
        STEPS.get(self.step)
    }

    /// Runs it; returns whether there is a device.
    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<bool> {
        while let Some(step) = self.step() {
            if self.is_littered {
                core.stop_list()??;
                core.start_list()??;
                core.steps.script.turn_page();
                self.is_littered = false;
            }
            let result = match self.step {
                0 => core.place(),
                1 => match core.link_up() {
                    Ok(true) => Ok(()),
                    Ok(false) => {
                        core.steps.script.turn_page();
                        return Ok(false);
                    }
                    Err(stop) => Err(stop),
                },
                2 => core.get_ready(self.is_again).map(|signature| self.signature = signature),
                3 => core.look_behind(self.signature).map(|units| self.units = units),
                IDENTIFY => core
                    .identify(self.unit, self.signature, self.is_again || self.failures > 0)
                    .map(|identify| self.identify = Some(identify)),
                FEATURES => core.set_features(self.unit, self.identify.as_ref()),
                _ => core.finish(),
            };
            let result = settled(result)?.map_err(|error| match error {
                Error::Failed(cause) => Error::Step { step: step.name, cause },
                other => other,
            });
            match result {
                Ok(()) => {}
                // A device behind a multiplier that does not come up must not block the others.
                Err(error) if core.fails_alone(self.step, error) => {
                    core.steps.script.abandon();
                    self.is_littered = true;
                    self.failures += 1;
                    if self.failures < DEVICE_TRIES {
                        self.step = IDENTIFY;
                    } else {
                        core.give_up_behind(self.unit, error);
                        self.take_next();
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            core.steps.script.turn_page();
            match self.step {
                3 | FEATURES => self.take_next(),
                _ => self.step += 1,
            }
        }
        Ok(true)
    }
}

impl<M: Machine> Core<M> {
    /// The PxCMD register.
    pub(crate) fn command_register(&self) -> PortCmd {
        PortCmd::from_bits(self.steps.machine.read32(self.steps.base + PX_CMD))
    }

    pub(crate) fn change_command(&mut self, change: impl FnOnce(PortCmd) -> PortCmd) {
        let cmd = change(self.command_register().with_clo(false).with_icc(0));
        self.steps.machine.write32(self.steps.base + PX_CMD, cmd.into_bits());
    }

    /// Clears PxCMD.ST and waits for CR: the HBA then has dropped all commands of its list.
    pub(crate) fn stop_list(&mut self) -> Run<Result<(), Cause>> {
        if self.steps.first() {
            self.change_command(|cmd| cmd.with_st(false));
        }
        let running = PortCmd::new().with_cr(true).into_bits();
        let timeout = self.options.timeouts.stop_ms;
        let stopped = self.steps.until(("PxCMD", PX_CMD), running, 0, timeout)?;
        Ok(stopped.map(|_| ()))
    }

    /// Clears what the port has reported so far, and starts the list. The device must be ready: if
    /// it is not, the HBA may be able to override that (CLO).
    pub(crate) fn start_list(&mut self) -> Run<Result<(), Cause>> {
        self.steps.write(PX_SERR, u32::MAX);
        self.steps.write(PX_IS, u32::MAX);
        let tfd = Tfd::from_bits(self.steps.read(PX_TFD));
        if tfd.status() & (status::BSY | status::DRQ) != 0 {
            if !self.hba.cap.sclo() {
                return Ok(Err(Cause::Register { name: "PxTFD", value: tfd.into_bits() }));
            }
            if self.steps.first() {
                self.change_command(|cmd| cmd.with_clo(true));
            }
            let over = PortCmd::new().with_clo(true).into_bits();
            let timeout = self.options.timeouts.stop_ms;
            if let Err(cause) = self.steps.until(("PxCMD", PX_CMD), over, 0, timeout)? {
                return Ok(Err(cause));
            }
        }
        if self.steps.first() {
            self.change_command(|cmd| cmd.with_st(true));
        }
        Ok(Ok(()))
    }

    fn place(&mut self) -> Run<()> {
        self.stop_list()??;
        if self.steps.first() {
            self.change_command(|cmd| cmd.with_fre(false));
        }
        let receiving = PortCmd::new().with_fr(true).into_bits();
        let timeout = self.options.timeouts.stop_ms;
        self.steps.until(("PxCMD", PX_CMD), receiving, 0, timeout)??;
        let (list, received) =
            (self.steps.memory.list.address(), self.steps.memory.received.address());
        for (register, value) in [(PX_CLB, list as u32), (PX_FB, received as u32)] {
            self.steps.write(register, value);
        }
        if self.hba.cap.s64a() && !self.hba.quirks.has(Quirk::Only32Bit) {
            self.steps.write(PX_CLBU, (list >> 32) as u32);
            self.steps.write(PX_FBU, (received >> 32) as u32);
        }
        if self.steps.first() {
            if self.hba.cap.spm() {
                self.change_command(|cmd| cmd.with_pma(false));
            }
            if self.hba.cap.fbss() {
                self.steps.machine.write32(self.steps.base + PX_FBS, 0);
            }
            (self.steps.switches, self.steps.slot, self.steps.unit) = (false, 0, 0);
            self.lane.set_up();
        }
        Ok(())
    }

    /// Power, spin-up, COMRESET; returns whether there is a device.
    fn link_up(&mut self) -> Run<bool> {
        if self.steps.first() {
            self.change_command(|cmd| {
                cmd.with_pod(true)
                    .with_sud(true)
                    .with_alpe(false)
                    .with_asp(false)
                    .with_icc(icc::ACTIVE)
            });
        }
        let speed = match self.device_quirks().has(Quirk::Slow) {
            true => 1,
            false => self.options.speed,
        };
        // No state below active while the link is coming up.
        let sctl = Sctl::new().with_spd(speed).with_ipm(3);
        self.steps.write(PX_SCTL, sctl.with_det(1).into_bits());
        self.steps.sleep(COMRESET_NS)?;
        self.steps.write(PX_SERR, u32::MAX);
        self.steps.write(PX_SCTL, sctl.into_bits());
        if self.steps.first() {
            self.change_command(|cmd| cmd.with_fre(true));
        }
        let timeouts = self.options.timeouts;
        // Present, with or without communication.
        let some = u32::from(det::PRESENT);
        match self.steps.until(("PxSSTS", PX_SSTS), some, some, timeouts.detect_ms)? {
            Ok(_) => {}
            Err(Cause::Register { .. }) => return Ok(false),
            Err(cause) => return Err(cause.into()),
        }
        let ready = u32::from(det::READY);
        self.steps.until(("PxSSTS", PX_SSTS), 0xF, ready, timeouts.link_ms)??;
        // DIAG.X would hold back the first FIS of the device.
        self.steps.write(PX_SERR, u32::MAX);
        Ok(true)
    }

    /// How long a device may take to become ready, ms.
    fn ready_ms(&self, is_again: bool) -> u32 {
        let Timeouts { ready_ms, ready_again_ms, .. } = self.options.timeouts;
        if is_again { ready_again_ms } else { ready_ms }
    }

    /// Waits until the device is ready; returns its signature.
    fn get_ready(&mut self, is_again: bool) -> Run<u32> {
        let busy = u32::from(status::BSY | status::DRQ);
        let timeout = self.ready_ms(is_again);
        if self.hba.cap.spm() {
            self.call_multiplier(timeout)?;
        }
        self.steps.until(("PxTFD", PX_TFD), busy, 0, timeout)??;
        let signature = self.steps.read(PX_SIG);
        match signature {
            signature::ATA | signature::ATAPI => Ok(signature),
            signature::MULTIPLIER if self.hba.cap.spm() => Ok(signature),
            other => Err(Cause::Signature(other).into()),
        }
    }

    /// Sends a soft reset to a multiplier. If there is one, it answers for itself from then on; any
    /// other device takes the reset as its own.
    fn call_multiplier(&mut self, timeout_ms: u32) -> Run<()> {
        let busy = u32::from(status::BSY | status::DRQ);
        // A multiplier whose first device port is empty is silent until it is called.
        let patience = match self.hba.cap.sclo() {
            true => self.options.timeouts.multiplier_ms.min(timeout_ms),
            false => timeout_ms,
        };
        match self.steps.until(("PxTFD", PX_TFD), busy, 0, patience)? {
            Err(Cause::Register { .. }) | Ok(_) => {}
            Err(cause) => return Err(cause.into()),
        }
        self.start_list()??;
        self.steps.soft_reset(CONTROL_PORT)??;
        Ok(())
    }

    /// Finds out from the signature which devices to bring up, a bit each.
    fn look_behind(&mut self, signature: u32) -> Run<u32> {
        let (multiplier, units) = match signature {
            signature::MULTIPLIER => {
                let multiplier = self.meet_multiplier()?;
                let present = self.reset_links((1 << multiplier.ports) - 1)?;
                (Some(multiplier), present)
            }
            _ => (None, 1),
        };
        for unit in (0..UNITS).filter(|unit| units >> unit & 1 == 0) {
            self.forget(unit as u8);
        }
        self.multiplier = multiplier;
        Ok(units)
    }

    /// Forgets the device at this port of a multiplier.
    pub(crate) fn forget(&mut self, unit: u8) {
        self.devices[usize::from(unit)] = None;
        self.lane.set_ways(unit, None);
    }

    /// Whether the failure of a step concerns only one device behind a multiplier, while the others
    /// can be reached.
    fn fails_alone(&self, step: usize, error: Error) -> bool {
        let is_wide = matches!(
            error,
            Error::Step { cause: Cause::Removed | Cause::Register { name: "PxCMD", .. }, .. }
        );
        let is_of_device = matches!(step, IDENTIFY | FEATURES) && self.multiplier.is_some();
        is_of_device && !is_wide && self.is_present()
    }

    /// Gives up the device at this port of the multiplier, which did not come up.
    fn give_up_behind(&mut self, unit: u8, error: Error) {
        self.note(ErrorKind::GivenUp, unit.into());
        self.forget(unit);
        if let Some(multiplier) = &mut self.multiplier {
            multiplier.failures[usize::from(unit)] = Some(error);
        }
    }

    fn identify(&mut self, unit: u8, signature: u32, is_again: bool) -> Run<Identify> {
        let is_behind = self.multiplier.is_some();
        // Behind a multiplier it is running already.
        if !is_behind {
            self.start_list()??;
        }
        self.steps.unit = unit;
        let signature = match is_behind {
            true => self.reset_behind(unit, self.ready_ms(is_again))?,
            false => signature,
        };
        if !matches!(signature, signature::ATA | signature::ATAPI) {
            return Err(Cause::Signature(signature).into());
        }
        let packet = signature == signature::ATAPI;
        if self.steps.first() && !is_behind {
            self.change_command(|cmd| cmd.with_atapi(packet));
        }
        let opcode = if packet { Opcode::IdentifyPacket } else { Opcode::Identify };
        let timeout = self.options.timeouts.command_ms;
        self.must(Own::reading(opcode, SECTOR as u32, timeout))?;
        let bytes: [u8; SECTOR] = self.steps.own_data();
        let identify = Identify::parse(&bytes).map_err(Cause::Identify)?;
        if packet != (identify.kind == Kind::Packet) {
            return Err(Cause::Answer("kind of device").into());
        }
        Ok(identify)
    }

    /// The device at this port of the multiplier.
    pub(crate) fn device(&self, unit: u8) -> Option<&Device> {
        self.devices.get(usize::from(unit))?.as_ref()
    }

    /// Quirks of the device being addressed, as last seen.
    pub(crate) fn device_quirks(&self) -> Quirks {
        self.device(self.steps.unit).map_or(self.hba.quirks, |device| device.quirks)
    }

    fn set_features(&mut self, unit: u8, identify: Option<&Identify>) -> Run<()> {
        let Some(identify) = identify else { return Err(Cause::Answer("identify data").into()) };
        self.steps.unit = unit;
        let quirks = self.hba.quirks.and(Quirks::of_device(identify)).and(self.options.quirks);
        let speed = Ssts::from_bits(self.steps.read(PX_SSTS)).spd();
        let modes = identify.udma & 0x7F;
        if modes != 0 {
            let mode = UDMA | (15 - modes.leading_zeros() as u16);
            // Serial devices accept any mode; one that refuses continues without.
            self.try_feature(feature::TRANSFER_MODE, mode)?;
        }
        let has_cache = identify.supports82(set82::WRITE_CACHE);
        if let (true, Some(on)) = (has_cache, self.options.write_cache) {
            let way = if on { feature::WRITE_CACHE } else { feature::NO_WRITE_CACHE };
            self.must(self.own_feature(way, 0))?;
        }
        let mut identify = identify.clone();
        if let (true, Some(on)) = (has_cache, self.options.write_cache) {
            let bit = if on { set82::WRITE_CACHE } else { 0 };
            identify.enabled[0] = identify.enabled[0] & !set82::WRITE_CACHE | bit;
        }
        let queued = self.options.queued
            && self.hba.cap.sncq()
            && identify.has_ncq()
            && !quirks.has(Quirk::NoNcq);
        let queued_trim = queued
            && identify.has_trim()
            && identify.sata_more & sata_more::SEND_RECEIVE != 0
            && !quirks.has(Quirk::NoQueuedTrim)
            && self.reads_log(&identify, log::address::NCQ_SEND_RECEIVE, 0)?
            && log::sends_trim(&self.steps.own_data::<SECTOR>());
        if !self.steps.first() {
            return Ok(());
        }
        let is_disk = identify.kind == Kind::Disk;
        let dma = identify.capabilities & flysch_wire::ata::identify::capability::DMA != 0;
        let ways = Ways {
            ncq: queued,
            lba48: identify.has_lba48(),
            dma: dma || queued,
            fua: identify.supports84(set84::FUA) && !quirks.has(Quirk::NoFua),
            queued_trim,
            packets: !is_disk,
        };
        self.lane.set_ways(unit, Some(ways));
        let is_same = self.device(unit).is_some_and(|d| d.identify.is_same_device(&identify));
        if !is_same {
            self.generation = self.generation.wrapping_add(1);
        }
        let link_power = LinkPower::Active;
        let device = Device { identify, speed, quirks, queued, queued_trim, link_power };
        self.devices[usize::from(unit)] = Some(device);
        Ok(())
    }

    /// The final step, when every device is up.
    fn finish(&mut self) -> Run<()> {
        self.steps.unit = 0;
        self.set_link_power()?;
        if self.steps.first() {
            // A queued command's tag is its slot, so a device limits the slots to its queue depth.
            let queued = self.devices.iter().flatten().filter(|device| device.queued);
            let tags = queued.map(|device| usize::from(device.identify.queue_depth));
            let depth = self.lane.limits.slots as usize;
            self.lane.set_depth(tags.fold(depth, usize::min));
        }
        self.switch_on()
    }

    fn own_feature(&self, what: u16, count: u16) -> Own {
        let own = Own::new(Opcode::SetFeatures, self.options.timeouts.command_ms);
        Own { fis: H2d { features: what, count, ..own.fis }, ..own }
    }

    #[track_caller]
    fn try_feature(&mut self, what: u16, count: u16) -> Run<bool> {
        Ok(self.may(self.own_feature(what, count))?.is_some())
    }

    /// Reads a page of a log into the driver's own data; returns whether that worked.
    fn reads_log(&mut self, identify: &Identify, address: u8, page: u16) -> Run<bool> {
        if !identify.supports84(set84::LOGS) {
            return Ok(false);
        }
        Ok(self.may(self.own_log(address, page))?.is_some())
    }

    pub(crate) fn own_log(&self, address: u8, page: u16) -> Own {
        let own = Own::reading(Opcode::ReadLogExt, SECTOR as u32, self.options.timeouts.log_ms);
        Own { fis: H2d { lba: log::lba(address, page), count: 1, ..own.fis }, ..own }
    }

    /// Runs a command of the driver's own that must succeed.
    pub(crate) fn must(&mut self, own: Own) -> Run<D2h> {
        let fis = self.steps.command(own)??;
        if fis.status & (status::ERR | status::DF) != 0 {
            let opcode = Opcode::from_bits(own.fis.command);
            return Err(Cause::Status { opcode, status: fis.status, error: fis.error }.into());
        }
        Ok(fis)
    }

    /// Runs a command of the driver's own that may fail; then the list is restarted, and the result
    /// is `None`.
    pub(crate) fn may(&mut self, own: Own) -> Run<Option<D2h>> {
        let fis = self.steps.command(own)??;
        if fis.status & (status::ERR | status::DF) == 0 {
            return Ok(Some(fis));
        }
        self.stop_list()??;
        self.start_list()??;
        if self.device_quirks().has(Quirk::ErrorSticks) {
            self.clear_error()?;
        }
        Ok(None)
    }

    /// Runs a command that always succeeds, so that STATUS drops an error.
    pub(crate) fn clear_error(&mut self) -> Run<()> {
        let own = Own::new(Opcode::CheckPowerMode, self.options.timeouts.command_ms);
        self.steps.command(own)??;
        Ok(())
    }

    /// How deep the link of this device may sleep.
    fn deepest(&self, device: &Device) -> LinkPower {
        let wanted = self.options.link_power;
        let HbaFacts { cap, cap2, .. } = self.hba;
        if wanted == LinkPower::Active || !cap.salp() || device.quirks.has(Quirk::NoLinkPower) {
            return LinkPower::Active;
        }
        let sleeps = device.identify.sata_features & sata_feature::DEVSLEEP != 0;
        match wanted {
            LinkPower::DevSleep if cap2.sds() && cap2.sadm() && sleeps && cap.ssc() => {
                LinkPower::DevSleep
            }
            LinkPower::DevSleep | LinkPower::Slumber if cap.ssc() => LinkPower::Slumber,
            _ if cap.psc() => LinkPower::Partial,
            _ => LinkPower::Active,
        }
    }

    /// Lets the link sleep as far as all parties can, and enables the port's interrupts.
    fn set_link_power(&mut self) -> Run<()> {
        self.changes = interrupt::CHANGES;
        let device = match (&self.multiplier, self.device(0)) {
            (None, Some(device)) => device.clone(),
            // The link of a multiplier does not sleep, and neither do those behind it.
            _ => Device::default(),
        };
        let power = match self.multiplier {
            None => self.deepest(&device),
            Some(_) => LinkPower::Active,
        };
        if power != LinkPower::Active {
            // A link that sleeps comes and goes on its own.
            self.changes &= !interrupt::PRCS;
            if device.identify.sata_features & sata_feature::DIPM != 0 {
                self.try_feature(feature::SATA, sata::DIPM)?;
            }
        }
        if power == LinkPower::DevSleep {
            let page = log::identify_page::SERIAL_ATA;
            let known = self.reads_log(&device.identify, log::address::IDENTIFY, page)?;
            self.try_feature(feature::SATA, sata::DEVSLEEP)?;
            if self.steps.first() {
                let timing = match known {
                    true => DevSleepTiming::parse(&self.steps.own_data::<SECTOR>()),
                    false => DevSleepTiming::default(),
                };
                let at = self.steps.base + PX_DEVSLP;
                let dsp = DevSleep::from_bits(self.steps.machine.read32(at)).dsp();
                let sleep = DevSleep::new()
                    .with_dsp(dsp)
                    .with_dito(625)
                    .with_dm(15)
                    .with_deto(timing.exit_ms)
                    .with_mdat(timing.assert_ms);
                self.steps.machine.write32(at, sleep.into_bits());
                self.steps.machine.write32(at, sleep.with_adse(true).into_bits());
            }
        }
        if !self.steps.first() {
            return Ok(());
        }
        self.devices.iter_mut().flatten().for_each(|device| device.link_power = power);
        // Forbidden states, in SControl's order.
        let forbidden = match power {
            LinkPower::Active => 7,
            LinkPower::Partial => 6,
            LinkPower::Slumber => 4,
            LinkPower::DevSleep => 0,
        };
        let sctl = Sctl::from_bits(self.steps.machine.read32(self.steps.base + PX_SCTL));
        let sctl = sctl.with_det(0).with_ipm(forbidden);
        self.steps.machine.write32(self.steps.base + PX_SCTL, sctl.into_bits());
        let deep = matches!(power, LinkPower::Slumber | LinkPower::DevSleep);
        let on = power != LinkPower::Active;
        self.change_command(|cmd| cmd.with_alpe(on).with_asp(deep));
        Ok(())
    }

    /// Enables the interrupts the options ask for. A port without a device reports one that comes.
    pub(crate) fn enable_interrupts(&mut self) {
        let is_empty = self.multiplier.is_none() && self.device(0).is_none();
        let all = match is_empty {
            false => interrupt::GOOD | interrupt::ERRORS | self.changes,
            true => interrupt::CHANGES,
        };
        let bits = if self.options.interrupts { all } else { 0 };
        self.steps.machine.write32(self.steps.base + PX_IS, interrupt::GOOD);
        self.steps.machine.write32(IS, 1 << self.lane.port);
        self.steps.machine.write32(self.steps.base + PX_IE, bits);
    }

    /// Disables the port's interrupts while its control path works, which polls on its own.
    pub(crate) fn silence(&mut self) {
        self.steps.machine.write32(self.steps.base + PX_IE, 0);
        self.steps.machine.write32(IS, 1 << self.lane.port);
    }

    /// Records what went wrong.
    pub(crate) fn note(&mut self, kind: ErrorKind, value: u32) {
        let now: Instant = self.steps.script.now();
        self.steps.errors.note(now, kind, value);
    }
}

//! One port and the device at it: bring-up as a list of steps (AHCI 10.1.2, 10.4.2).

use crate::attached::{AtaFacts, Attached};
use crate::channel::{Channel, Own, Run};
use crate::error::{AhciError, Cause};
use crate::hba_resets::HbaResets;
use crate::history::ErrorKind;
use crate::lane::{Lane, UNITS};
use crate::link::{Link, get_ready, link_up, ready_ms};
use crate::multiplier;
use crate::options::LinkPower;
use crate::quirks::{Quirk, Quirks};
use crate::taskfile::Ways;
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay, settled};
use flysch_wire::ata::command::feature;
use flysch_wire::ata::identify::{sata_more, set82, set84};
use flysch_wire::ata::log;
use flysch_wire::ata::registers::{
    PX_CLB, PX_CLBU, PX_CMD, PX_FB, PX_FBS, PX_FBU, PX_SSTS, PortCmd, Ssts, signature,
};
use flysch_wire::ata::{Identify, Kind, Opcode, SECTOR};

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

/// A port: its commands, its control path, and what is attached to it.
#[derive(Debug)]
pub(crate) struct Core<M: Machine> {
    pub(crate) channel: Channel<M>,
    pub(crate) lane: Lane<M>,
    pub(crate) attached: Attached,
    pub(crate) link: Link,
    /// Resets of the HBA this port asked for since it last worked.
    pub(crate) hba_resets: HbaResets,
}

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
/// of the device may be lost or leave it busy, which the next one cures. As many as in libata
/// (ATA_EH_DEV_TRIES).
const DEVICE_TRIES: u8 = 3;

/// Indices of steps in [`STEPS`].
const IDENTIFY: usize = 4;
const FEATURES: usize = 5;
const LAST: usize = 6;

impl BringUp {
    /// A bring-up; `is_again` if another COMRESET of the same recovery came before it.
    pub(crate) fn again(is_again: bool) -> Self {
        Self { is_again, ..Self::default() }
    }

    /// Bring-up of devices that appeared behind a multiplier that is already up.
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
                core.channel.stop_list()??;
                core.channel.start_list()??;
                core.channel.script.turn_page();
                self.is_littered = false;
            }
            let result = match self.step {
                0 => core.place(),
                1 => match core.link_up() {
                    Ok(true) => Ok(()),
                    Ok(false) => {
                        core.channel.script.turn_page();
                        return Ok(false);
                    }
                    Err(stop) => Err(stop),
                },
                2 => get_ready(&mut core.channel, self.is_again)
                    .map(|signature| self.signature = signature),
                3 => core.look_behind(self.signature).map(|units| self.units = units),
                IDENTIFY => core
                    .identify(self.unit, self.signature, self.is_again || self.failures > 0)
                    .map(|identify| self.identify = Some(identify)),
                FEATURES => core.set_features(self.unit, self.identify.as_ref()),
                _ => core.finish(),
            };
            let result = settled(result)?.map_err(|error| match error {
                AhciError::Failed(cause) => AhciError::Step { step: step.name, cause },
                other => other,
            });
            match result {
                Ok(()) => {}
                // A device behind a multiplier that does not come up must not block the others.
                Err(error) if core.fails_alone(self.step, error) => {
                    core.channel.script.abandon();
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
            core.channel.script.turn_page();
            match self.step {
                3 | FEATURES => self.take_next(),
                _ => self.step += 1,
            }
        }
        Ok(true)
    }
}

impl<M: Machine> Core<M> {
    /// Stops the port, and tells it where its list and received FISes are.
    fn place(&mut self) -> Run<()> {
        let channel = &mut self.channel;
        channel.stop_list()??;
        channel.change_command(|cmd| cmd.with_fre(false));
        let receiving = PortCmd::new().with_fr(true).into_bits();
        let timeout = channel.options.timeouts.stop_ms;
        channel.until(("PxCMD", PX_CMD), receiving, 0, timeout)??;
        let (list, received) = (channel.memory.list.address(), channel.memory.received.address());
        for (register, value) in [(PX_CLB, list as u32), (PX_FB, received as u32)] {
            channel.write(register, value);
        }
        if channel.hba.cap.s64a() && !channel.hba.quirks.has(Quirk::Only32Bit) {
            channel.write(PX_CLBU, (list >> 32) as u32);
            channel.write(PX_FBU, (received >> 32) as u32);
        }
        if channel.hba.cap.spm() {
            channel.change_command(|cmd| cmd.with_pma(false));
        }
        if channel.hba.cap.fbss() {
            channel.write(PX_FBS, 0);
        }
        channel.effect(|channel| {
            (channel.switches, channel.slot, channel.unit) = (false, 0, 0);
            self.lane.set_up();
        });
        Ok(())
    }

    fn link_up(&mut self) -> Run<bool> {
        let quirks = self.attached.quirks(&self.channel);
        link_up(&mut self.channel, quirks)
    }

    /// Finds out from the signature which devices to bring up, a bit each.
    fn look_behind(&mut self, signature: u32) -> Run<u32> {
        let (multiplier, units) = match signature {
            signature::MULTIPLIER => {
                let multiplier = multiplier::meet(&mut self.channel)?;
                let present =
                    multiplier::reset_links(&mut self.channel, (1 << multiplier.ports) - 1)?;
                (Some(multiplier), present)
            }
            _ => (None, 1),
        };
        for unit in (0..UNITS).filter(|unit| units >> unit & 1 == 0) {
            self.attached.forget(&mut self.lane, unit as u8);
        }
        self.attached.multiplier = multiplier;
        Ok(units)
    }

    /// Whether the failure of a step concerns only one device behind a multiplier, while the others
    /// can be reached.
    fn fails_alone(&self, step: usize, error: AhciError) -> bool {
        let is_wide = matches!(
            error,
            AhciError::Step { cause: Cause::Removed | Cause::Register { name: "PxCMD", .. }, .. }
        );
        let is_of_device =
            matches!(step, IDENTIFY | FEATURES) && self.attached.multiplier.is_some();
        is_of_device && !is_wide && self.channel.is_present()
    }

    /// Gives up the device at this port of the multiplier, which did not come up.
    fn give_up_behind(&mut self, unit: u8, error: AhciError) {
        self.channel.log(ErrorKind::GivenUp, unit.into());
        self.attached.forget(&mut self.lane, unit);
        if let Some(multiplier) = &mut self.attached.multiplier {
            multiplier.failures[usize::from(unit)] = Some(error);
        }
    }

    fn identify(&mut self, unit: u8, signature: u32, is_again: bool) -> Run<Identify> {
        let is_behind = self.attached.multiplier.is_some();
        // Behind a multiplier it is running already.
        if !is_behind {
            self.channel.start_list()??;
        }
        self.channel.unit = unit;
        let signature = match is_behind {
            true => {
                let timeout = ready_ms(&self.channel.options, is_again);
                multiplier::reset_behind(&mut self.channel, unit, timeout)?
            }
            false => signature,
        };
        if !matches!(signature, signature::ATA | signature::ATAPI) {
            return Err(Cause::Signature(signature).into());
        }
        let packet = signature == signature::ATAPI;
        if !is_behind {
            self.channel.change_command(|cmd| cmd.with_atapi(packet));
        }
        let opcode = if packet { Opcode::IdentifyPacket } else { Opcode::Identify };
        let timeout = self.channel.options.timeouts.command_ms;
        self.channel.must(Own::reading(opcode, SECTOR as u32, timeout))?;
        let bytes: [u8; SECTOR] = self.channel.own_data();
        let identify = Identify::parse(&bytes).map_err(Cause::Identify)?;
        if packet != (identify.kind == Kind::Packet) {
            return Err(Cause::Answer("kind of device").into());
        }
        Ok(identify)
    }

    fn set_features(&mut self, unit: u8, identify: Option<&Identify>) -> Run<()> {
        let Some(identify) = identify else {
            return Err(Cause::Answer("identify data").into());
        };
        let Self { channel, attached, lane, .. } = self;
        channel.unit = unit;
        let quirks =
            channel.hba.quirks.and(Quirks::of_device(identify)).and(channel.options.quirks);
        let speed = Ssts::from_bits(channel.read(PX_SSTS)).spd();
        let modes = identify.udma & 0x7F;
        if modes != 0 {
            let mode = UDMA | (15 - modes.leading_zeros() as u16);
            // Serial devices accept any mode; one that refuses continues without.
            attached.try_feature(channel, feature::TRANSFER_MODE, mode)?;
        }
        let has_cache = identify.supports82(set82::WRITE_CACHE);
        if let (true, Some(on)) = (has_cache, channel.options.write_cache) {
            let way = if on { feature::WRITE_CACHE } else { feature::NO_WRITE_CACHE };
            channel.must(channel.own_feature(way, 0))?;
        }
        let mut identify = identify.clone();
        if let (true, Some(on)) = (has_cache, channel.options.write_cache) {
            let bit = if on { set82::WRITE_CACHE } else { 0 };
            identify.enabled[0] = identify.enabled[0] & !set82::WRITE_CACHE | bit;
        }
        let queued = channel.options.queued
            && channel.hba.cap.sncq()
            && identify.has_ncq()
            && !quirks.has(Quirk::NoNcq);
        let queued_trim = queued
            && identify.has_trim()
            && identify.sata_more & sata_more::SEND_RECEIVE != 0
            && !quirks.has(Quirk::NoQueuedTrim)
            && attached.reads_log(channel, &identify, log::address::NCQ_SEND_RECEIVE, 0)?
            && log::sends_trim(&channel.own_data::<SECTOR>());
        let dma = identify.capabilities & flysch_wire::ata::identify::capability::DMA != 0;
        let ways = Ways {
            ncq: queued,
            lba48: identify.has_lba48(),
            dma: dma || queued,
            fua: identify.supports84(set84::FUA) && !quirks.has(Quirk::NoFua),
            queued_trim,
            packets: identify.kind != Kind::Disk,
        };
        let link_power = LinkPower::Active;
        let device = AtaFacts { identify, speed, quirks, queued, queued_trim, link_power };
        channel.effect(|_| {
            lane.set_ways(unit, Some(ways));
            attached.put(unit, device);
        });
        Ok(())
    }

    /// The final step, when every device is up.
    fn finish(&mut self) -> Run<()> {
        let Self { channel, attached, lane, link, .. } = self;
        channel.unit = 0;
        link.set_power(channel, attached)?;
        channel.effect(|_| {
            // A queued command's tag is its slot, so a device limits the slots to its queue depth.
            let queued = attached.devices.iter().flatten().filter(|device| device.queued);
            let tags = queued.map(|device| usize::from(device.identify.queue_depth));
            let depth = lane.limits.slots as usize;
            lane.set_depth(tags.fold(depth, usize::min));
        });
        multiplier::switch_on(channel, lane, &mut attached.multiplier)
    }
}

//! Bring-up, from the bottom: a list of steps, each with its time-out and its tries.

use crate::channel::{Channel, Run, Stop};
use crate::control::Core;
use crate::device_quirks::{DeviceName, DeviceQuirks};
use crate::exchange::Message;
use crate::facts::Device;
use crate::history::{ErrorKind, ErrorRecord};
use crate::interrupts::{ENABLED, ERRORS};
use crate::lane::Lane;
use crate::options::Timeouts;
use crate::platform::{Event, Phase};
use crate::power_mode::DevicePower;
use crate::quirks::Quirk;
use crate::time::{MS, US};
use crate::uic::UicCommand;
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::ufs::descriptor::{DeviceDescriptor, GeometryDescriptor, UnitDescriptor};
use flysch_wire::ufs::query::{AttributeId, DescriptorId, FlagId, QueryOpcode};
use flysch_wire::ufs::registers::{
    AHIT, HCE, HCS, Hce, Hcs, IE, IS, UECDL, UECDME, UECN, UECPA, UECT,
};
use flysch_wire::ufs::uic::{UicAttribute, UicOpcode};
use flysch_wire::ufs::upiu::QueryFields;

/// What happens when a step has used up its tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Bring-up fails.
    Fail,
    /// Bring-up goes on without.
    GoOn,
}

/// One step of bring-up.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it does.
    pub name: &'static str,
    /// The time-out of what it waits for, ms; a function of the caller's [`Timeouts`].
    pub timeout_ms: fn(&Timeouts) -> u32,
    /// How often it is tried.
    pub tries: u8,
    /// Where a new try begins: the name of this step or of an earlier one.
    pub again_from: &'static str,
    /// What happens when all tries failed.
    pub on_failure: OnFailure,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Disable,
    DeviceReset,
    Enable,
    LinkStartup,
    Queues,
    Nop,
    DeviceInit,
    Device,
    Geometry,
    Active,
    ReferenceClock,
    Tuning,
    Link,
    Units,
    Rtt,
    WriteBooster,
    Events,
    AutoHibern8,
    Run,
}

/// The steps, in order.
pub const STEPS: &[Step] = &[
    must("controller disable", |t| t.enable_ms, 1, "controller disable", Stage::Disable),
    may("device reset", |t| t.enable_ms, Stage::DeviceReset),
    must("controller enable", |t| t.enable_ms, 3, "controller disable", Stage::Enable),
    must("link start-up", |t| t.uic_ms, 3, "controller disable", Stage::LinkStartup),
    must("queues", |t| t.enable_ms, 1, "queues", Stage::Queues),
    must("NOP OUT", |t| t.nop_ms, 10, "NOP OUT", Stage::Nop),
    must(
        "device initialisation",
        |t| t.device_init_ms,
        3,
        "device initialisation",
        Stage::DeviceInit,
    ),
    must("device descriptor", |t| t.query_ms, 1, "device descriptor", Stage::Device),
    must("geometry descriptor", |t| t.query_ms, 1, "geometry descriptor", Stage::Geometry),
    must("device active", |t| t.start_stop_ms, 3, "device active", Stage::Active),
    may("reference clock", |t| t.query_ms, Stage::ReferenceClock),
    may("device quirks", |t| t.uic_ms, Stage::Tuning),
    may("link gear and lanes", |t| t.uic_ms, Stage::Link),
    must("unit descriptors", |t| t.query_ms, 1, "unit descriptors", Stage::Units),
    may("ready-to-transfer requests", |t| t.query_ms, Stage::Rtt),
    may("WriteBooster", |t| t.query_ms, Stage::WriteBooster),
    may("exception events", |t| t.query_ms, Stage::Events),
    may("auto-hibern8", |t| t.enable_ms, Stage::AutoHibern8),
    must("run", |t| t.enable_ms, 1, "run", Stage::Run),
];

const fn must(
    name: &'static str,
    timeout_ms: fn(&Timeouts) -> u32,
    tries: u8,
    again_from: &'static str,
    stage: Stage,
) -> Step {
    Step { name, timeout_ms, tries, again_from, on_failure: OnFailure::Fail, stage }
}

const fn may(name: &'static str, timeout_ms: fn(&Timeouts) -> u32, stage: Stage) -> Step {
    Step { name, timeout_ms, tries: 1, again_from: name, on_failure: OnFailure::GoOn, stage }
}

/// Bring-up under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BringUp {
    at: usize,
    /// Tries used up by each step.
    tried: [u8; STEPS.len()],
}

impl BringUp {
    /// The step under way.
    pub(crate) fn step(&self) -> Option<&'static Step> {
        STEPS.get(self.at)
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        while let Some(step) = STEPS.get(self.at) {
            let timeout_ms = (step.timeout_ms)(&core.channel.options.timeouts);
            match core.perform_told(step, timeout_ms) {
                Ok(()) => self.at += 1,
                Err(Stop::Pending) => return Err(Stop::Pending),
                Err(Stop::Failed(error)) => self.failed(step, error, core)?,
            }
            core.channel.turn_page();
        }
        Ok(())
    }

    fn failed<M: Machine>(&mut self, step: &Step, error: Error, core: &mut Core<M>) -> Run<()> {
        self.tried[self.at] += 1;
        if self.tried[self.at] < step.tries {
            self.at = STEPS.iter().position(|s| s.name == step.again_from).unwrap_or(self.at);
            return Ok(());
        }
        if step.on_failure == OnFailure::GoOn {
            core.channel.errors.keep(ErrorRecord {
                at: core.channel.now,
                kind: ErrorKind::Skipped,
                value: self.at as u32,
                step: Some(step.name),
                error: Some(error),
            });
            self.at += 1;
            return Ok(());
        }
        Err(Stop::Failed(match error {
            Error::Failed(cause) => Error::Step { step: step.name, cause },
            other => other,
        }))
    }
}

/// Tells the lanes how much the device queues: bQueueDepth of all its units together, 0 where
/// each has its own, and bLUQueueDepth of a unit, 0 where it shares the device's.
fn publish_bounds<M: Machine>(channel: &Channel<M>, device: &Device) {
    let of_unit = |unit: &Option<UnitDescriptor>| unit.as_ref().map_or(0, |u| u.b_lu_queue_depth);
    let units = core::array::from_fn(|lun| of_unit(&device.units[lun]));
    channel.shared.bounds.publish(device.descriptor.b_queue_depth.into(), units);
}

impl<M: Machine> Core<M> {
    fn perform_told(&mut self, step: &Step, timeout_ms: u32) -> Run<()> {
        self.board.tell(&mut self.channel, Event::Step(step.name), Phase::Before)?;
        self.perform(step.stage, timeout_ms)?;
        self.board.tell(&mut self.channel, Event::Step(step.name), Phase::After)
    }

    fn perform(&mut self, stage: Stage, timeout_ms: u32) -> Run<()> {
        match stage {
            Stage::Disable => {
                self.board.clocks(&mut self.channel, true);
                self.disable(timeout_ms)
            }
            Stage::DeviceReset => self.board.reset_device(&mut self.channel),
            Stage::Enable => self.enable(timeout_ms),
            Stage::LinkStartup => self.start_link(timeout_ms),
            Stage::Queues => self.start_queues(timeout_ms),
            Stage::Nop => self.nop(timeout_ms),
            Stage::DeviceInit => self.initialise_device(timeout_ms),
            Stage::Device => self.learn_device(),
            Stage::Geometry => self.learn_geometry(),
            Stage::Active => self.wake_device(),
            Stage::ReferenceClock => self.set_reference_clock(),
            Stage::Tuning => self.tune_link(),
            Stage::Link => self.set_link(self.channel.options.link),
            Stage::Units => self.learn_units(),
            Stage::Rtt => self.set_rtt(),
            Stage::WriteBooster => self.initial_write_booster(),
            Stage::Events => self.initial_events(),
            Stage::AutoHibern8 => self.initial_auto_hibern8(),
            Stage::Run => {
                self.channel.effect(|channel| {
                    publish_bounds(channel, &self.device);
                    if self.queues.shape.mcq {
                        let queued = self.device.descriptor.b_queue_depth;
                        self.queues.bound_active_commands(channel, queued);
                    }
                });
                let told = if self.queues.signals.messages { ERRORS } else { ENABLED };
                self.channel
                    .write(IE, if self.channel.options.interrupts { told.into_bits() } else { 0 });
                Ok(())
            }
        }
    }

    /// Switches the controller off: it forgets everything and touches no memory any more.
    pub(crate) fn disable(&mut self, timeout_ms: u32) -> Run<()> {
        self.channel.effect(|_| self.running = false);
        self.channel.write(IE, 0);
        self.channel.write(HCE, Hce::new().into_bits());
        self.channel.until(
            ("HCE", HCE),
            Hce::new().with_hce(true).into_bits(),
            0,
            timeout_ms,
        )??;
        Ok(())
    }

    fn enable(&mut self, timeout_ms: u32) -> Run<()> {
        let enabled = Hce::new().with_hce(true).into_bits();
        let crypto = Hce::new().with_cge(self.crypto.is_some()).into_bits();
        self.channel.write(HCE, enabled | crypto);
        // Controllers have been seen to show one, then zero, then one: what is read too early
        // says nothing, and what is written then is lost.
        self.channel.sleep(u64::from(self.channel.options.timeouts.enable_settle_us) * US)?;
        self.channel.until(("HCE", HCE), enabled, enabled, timeout_ms)??;
        let ready = Hcs::new().with_ucrdy(true).into_bits();
        self.channel.until(("HCS", HCS), ready, ready, timeout_ms)??;
        self.channel.effect(|channel| {
            if let Some(engine) = &self.crypto {
                engine.restore_keys(&channel.machine, &channel.shared);
            }
        });
        Ok(())
    }

    fn start_link(&mut self, timeout_ms: u32) -> Run<()> {
        if self.channel.quirks.has(Quirk::LccOff) {
            // Tolerated where the attribute is missing; the link then starts as it can.
            let _ = self.channel.dme_set(UicAttribute::PaLocalTxLccEnable, 0)?;
        }
        self.board.tell(&mut self.channel, Event::LinkStartup, Phase::Before)?;
        self.channel.uic(UicCommand::control(UicOpcode::DmeLinkstartup))??;
        let present = Hcs::new().with_dp(true).into_bits();
        if self.channel.until(("HCS", HCS), present, present, timeout_ms)?.is_err() {
            return Err(Cause::NoDevice.into());
        }
        // Starting up raises errors of its own; they say nothing about the link that is up now.
        for register in [UECPA, UECDL, UECN, UECT, UECDME] {
            self.channel.read(register);
        }
        let stale = self.channel.read(IS);
        self.channel.write(IS, stale);
        self.channel.once(|channel| {
            self.link = Default::default();
            channel.shared.orders.take_causes().into()
        });
        self.board.tell(&mut self.channel, Event::LinkStartup, Phase::After)
    }

    fn start_queues(&mut self, timeout_ms: u32) -> Run<()> {
        let queued = self.device.descriptor.b_queue_depth;
        self.queues.start(&mut self.channel, &self.board, queued, timeout_ms)?;
        self.channel.lane(Lane::restart)?;
        self.channel.effect(|_| self.running = true);
        Ok(())
    }

    /// Asks the device whether it is there.
    pub(crate) fn nop(&mut self, timeout_ms: u32) -> Run<()> {
        let timeout_ms =
            if self.channel.quirks.has(Quirk::SlowNop) { timeout_ms.max(200) } else { timeout_ms };
        self.exchange(Message::Nop, timeout_ms)??;
        Ok(())
    }

    fn initialise_device(&mut self, timeout_ms: u32) -> Run<()> {
        let flag = |opcode| QueryFields::flag(opcode, FlagId::DeviceInit.into_bits(), 0, 0);
        let started = self.channel.once(|channel| channel.now.nanos());
        self.query(flag(QueryOpcode::SetFlag))??;
        let mut nap = 500 * US;
        loop {
            if !self.query(flag(QueryOpcode::ReadFlag))??.fields.flag_value() {
                return Ok(());
            }
            let now = self.channel.once(|channel| channel.now.nanos());
            if now.saturating_sub(started) > u64::from(timeout_ms) * MS {
                return Err(Cause::DeviceInit.into());
            }
            self.channel.sleep(nap)?;
            nap = (nap * 2).min(20 * MS);
        }
    }

    fn learn_device(&mut self) -> Run<()> {
        let reply = self.read_descriptor_raw(DescriptorId::Device, 0)??;
        let descriptor = DeviceDescriptor::parse(reply.bytes())
            .map_err(|why| Error::Descriptor("device", Some(why)))?;
        let mut name = DeviceName::default();
        if DeviceQuirks::depend_on_name(descriptor.w_manufacturer_id) {
            let string =
                self.read_descriptor_raw(DescriptorId::String, descriptor.i_product_name)?;
            // Without its name a device has the quirks of its maker.
            name = string.map(|reply| DeviceName::of(reply.bytes())).unwrap_or_default();
        }
        self.device.descriptor = descriptor;
        let found = DeviceQuirks::find(descriptor.w_manufacturer_id, name.as_str());
        let of_caller = self.channel.options.device_quirks;
        let of_board =
            self.board.introduce(&mut self.channel, &descriptor, found.corrected(of_caller));
        self.device.quirks = found.corrected(of_board).corrected(of_caller);
        Ok(())
    }

    fn learn_geometry(&mut self) -> Run<()> {
        let reply = self.read_descriptor_raw(DescriptorId::Geometry, 0)??;
        let descriptor = GeometryDescriptor::parse(reply.bytes())
            .map_err(|why| Error::Descriptor("geometry", Some(why)))?;
        self.device.geometry = descriptor;
        Ok(())
    }

    /// A device that starts in UFS-Sleep, or that a suspend has put there and no reset has woken,
    /// takes no medium access before it is told to wake.
    fn wake_device(&mut self) -> Run<()> {
        let starts_asleep = self.device.descriptor.b_init_power_mode == 0;
        if starts_asleep || self.channel.once(|_| self.asleep.into()) != 0 {
            self.start_stop(DevicePower::Active)??;
            self.channel.effect(|_| self.asleep = false);
        }
        Ok(())
    }

    /// The device must know the clock the board gives it before the link gets fast.
    fn set_reference_clock(&mut self) -> Run<()> {
        let of_board = || self.board.reference_clock().map(|clock| clock as u8);
        let Some(wanted) = self.channel.options.reference_clock.or_else(of_board) else {
            return Ok(());
        };
        let id = AttributeId::RefClkFreq.into_bits();
        let ask = QueryFields::read_attribute(id, 0, 0);
        if self.query(ask)??.fields.value32() == u32::from(wanted) {
            return Ok(());
        }
        self.query(QueryFields::write_attribute(id, 0, 0, wanted.into()))??;
        let kept = self.query(ask)??.fields.value32();
        if kept != u32::from(wanted) {
            return Err(Cause::ReferenceClock(kept as u8).into());
        }
        Ok(())
    }

    fn learn_units(&mut self) -> Run<()> {
        let units = if self.device.geometry.b_max_number_lu == 1 { 32 } else { 8 };
        for lun in 0..units {
            let unit = match self.read_descriptor_raw(DescriptorId::Unit, lun)? {
                Ok(reply) => UnitDescriptor::parse(reply.bytes()).ok(),
                Err(Cause::Query(_)) => None,
                Err(cause) => return Err(cause.into()),
            };
            self.device.units[usize::from(lun)] = unit.filter(|unit| unit.b_lu_enable != 0);
        }
        Ok(())
    }

    /// As many READY TO TRANSFER requests as both ends can have.
    fn set_rtt(&mut self) -> Run<()> {
        let id = AttributeId::MaxNumOfRtt.into_bits();
        let wanted =
            self.device.descriptor.b_device_rtt_cap.min(self.channel.cap.nortt().saturating_add(1));
        let present = self.query(QueryFields::read_attribute(id, 0, 0))??.fields.value32();
        // Raised only: the attribute is persistent, and a higher value was someone's choice.
        if present < u32::from(wanted) {
            self.query(QueryFields::write_attribute(id, 0, 0, wanted.into()))??;
        }
        Ok(())
    }

    fn initial_auto_hibern8(&mut self) -> Run<()> {
        if let Some(idle_us) = self.channel.options.auto_hibern8_us {
            self.set_auto_hibern8(idle_us)?;
        } else if self.channel.cap.autoh8() {
            self.channel.write(AHIT, 0);
        }
        Ok(())
    }
}

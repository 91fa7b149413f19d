//! Bring-up, from the bottom: a list of steps, each with its time-out and its tries.

use crate::control::{Core, Run, Stop};
use crate::device_quirks::{DeviceName, DeviceQuirks};
use crate::exchange::Message;
use crate::history::{ErrorKind, ErrorRecord};
use crate::interrupts::{ENABLED, ERRORS};
use crate::lane::Lane;
use crate::layout::Layout;
use crate::options::Timeouts;
use crate::platform::{Event, Phase, QueueRegisters};
use crate::power_mode::DevicePower;
use crate::quirks::Quirk;
use crate::shared::{Signals, Starts};
use crate::time::{MS, US};
use crate::uic::UicCommand;
use crate::{Cause, Error};
use flysch_api::machine::{DmaRegion, Machine};
use flysch_script::Player;
use flysch_wire::ufs::descriptor::{DeviceDescriptor, GeometryDescriptor, UnitDescriptor};
use flysch_wire::ufs::query::{AttributeId, DescriptorId, FlagId, QueryOpcode};
use flysch_wire::ufs::registers::{
    AHIT, CONFIG, Config, CqAttr, CqCfg, CqInterrupts, ESILBA, ESIUBA, HCE, HCS, Hce, Hcs, IE, IS,
    InterruptAggregation, MCQCONFIG, McqConfig, RunStop, SqAttr, UECDL, UECDME, UECN, UECPA, UECT,
    UTMRLBA, UTMRLBAU, UTMRLRSR, UTRIACR, UTRLBA, UTRLBAU, UTRLDBR, UTRLRSR, mcq, ring_size_field,
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
            let timeout_ms = (step.timeout_ms)(&core.options.timeouts);
            match core.perform_told(step, timeout_ms) {
                Ok(()) => self.at += 1,
                Err(Stop::Pending) => return Err(Stop::Pending),
                Err(Stop::Failed(error)) => self.failed(step, error, core)?,
            }
            core.turn_page();
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
            core.errors.keep(ErrorRecord {
                at: core.now,
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

impl<M: Machine> Core<M> {
    fn perform_told(&mut self, step: &Step, timeout_ms: u32) -> Run<()> {
        self.tell(Event::Step(step.name), Phase::Before)?;
        self.perform(step.stage, timeout_ms)?;
        self.tell(Event::Step(step.name), Phase::After)
    }

    fn perform(&mut self, stage: Stage, timeout_ms: u32) -> Run<()> {
        match stage {
            Stage::Disable => {
                self.clocks(true);
                self.disable(timeout_ms)
            }
            Stage::DeviceReset => self.reset_device(),
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
            Stage::Link => self.set_link(self.options.link),
            Stage::Units => self.learn_units(),
            Stage::Rtt => self.set_rtt(),
            Stage::WriteBooster => self.initial_write_booster(),
            Stage::Events => self.initial_events(),
            Stage::AutoHibern8 => self.initial_auto_hibern8(),
            Stage::Run => {
                self.effect(Self::publish_bounds);
                let told = if self.signals.messages { ERRORS } else { ENABLED };
                self.write(IE, if self.options.interrupts { told.into_bits() } else { 0 });
                Ok(())
            }
        }
    }

    /// Tells the lanes how much the device queues: bQueueDepth of all its units together, 0 where
    /// each has its own, and bLUQueueDepth of a unit, 0 where it shares the device's.
    fn publish_bounds(&mut self) {
        let device = u32::from(self.device.descriptor.b_queue_depth);
        let of_unit =
            |unit: &Option<UnitDescriptor>| unit.as_ref().map_or(0, |u| u.b_lu_queue_depth);
        let units = core::array::from_fn(|lun| of_unit(&self.device.units[lun]));
        self.shared.bounds.publish(device, units);
        if self.shape.mcq {
            self.bound_active_commands();
        }
    }

    /// MCQCONFIG.MAC: what of all lanes together the controller hands to the device at once, and
    /// the rest waits in the rings. No more than it can, and no more than the device queues, which
    /// at the first bring-up is not known from the beginning.
    fn bound_active_commands(&mut self) {
        let tags = (self.shape.lanes * self.shape.depth) as u32;
        let queued = match self.device.descriptor.b_queue_depth {
            0 => u32::MAX,
            depth => depth.into(),
        };
        let active = tags.min(self.cap.active_commands_max()).min(queued);
        let config = McqConfig::new().with_active_commands(active);
        self.machine.write32(MCQCONFIG, config.into_bits());
    }

    /// Switches the controller off: it forgets everything and touches no memory any more.
    pub(crate) fn disable(&mut self, timeout_ms: u32) -> Run<()> {
        self.effect(|core| core.running = false);
        self.write(IE, 0);
        self.write(HCE, Hce::new().into_bits());
        self.until(("HCE", HCE), Hce::new().with_hce(true).into_bits(), 0, timeout_ms)??;
        Ok(())
    }

    fn enable(&mut self, timeout_ms: u32) -> Run<()> {
        let enabled = Hce::new().with_hce(true).into_bits();
        let crypto = Hce::new().with_cge(self.crypto.is_some()).into_bits();
        self.write(HCE, enabled | crypto);
        // Controllers have been seen to show one, then zero, then one: what is read too early
        // says nothing, and what is written then is lost.
        self.sleep(u64::from(self.options.timeouts.enable_settle_us) * US)?;
        self.until(("HCE", HCE), enabled, enabled, timeout_ms)??;
        let ready = Hcs::new().with_ucrdy(true).into_bits();
        self.until(("HCS", HCS), ready, ready, timeout_ms)??;
        self.effect(Self::restore_keys);
        Ok(())
    }

    fn start_link(&mut self, timeout_ms: u32) -> Run<()> {
        if self.quirks.has(Quirk::LccOff) {
            // Tolerated where the attribute is missing; the link then starts as it can.
            let _ = self.dme_set(UicAttribute::PaLocalTxLccEnable, 0)?;
        }
        self.tell(Event::LinkStartup, Phase::Before)?;
        self.uic(UicCommand::control(UicOpcode::DmeLinkstartup))??;
        let present = Hcs::new().with_dp(true).into_bits();
        if self.until(("HCS", HCS), present, present, timeout_ms)?.is_err() {
            return Err(Cause::NoDevice.into());
        }
        // Starting up raises errors of its own; they say nothing about the link that is up now.
        for register in [UECPA, UECDL, UECN, UECT, UECDME] {
            self.read(register);
        }
        let stale = self.read(IS);
        self.write(IS, stale);
        self.once(|core| {
            core.link = Default::default();
            core.shared.orders.take_causes().into()
        });
        self.tell(Event::LinkStartup, Phase::After)
    }

    fn start_queues(&mut self, timeout_ms: u32) -> Run<()> {
        self.once(|core| core.program_lists());
        let lists = Hcs::new().with_utrlrdy(true).with_utmrlrdy(true).into_bits();
        self.until(("HCS", HCS), lists, lists, timeout_ms)??;
        let run = RunStop::new().with_run(true).into_bits();
        self.write(UTMRLRSR, run);
        self.write(UTRLRSR, run);
        if self.shape.mcq {
            for queue in 0..self.shape.lanes {
                if self.once(|core| core.program_queue(queue as u8).into()) == 0 {
                    return Err(Cause::Queue(queue as u8).into());
                }
            }
        } else {
            self.effect(Self::aggregate_list);
            self.once(|core| core.find_stuck_slots());
        }
        self.lane(Lane::restart)?;
        self.effect(|core| core.running = true);
        Ok(())
    }

    /// Tells the controller where its lists are.
    fn program_lists(&mut self) -> u64 {
        let write_address = |low: u32, high: u32, region: &DmaRegion| {
            self.machine.write32(low, region.address() as u32);
            self.machine.write32(high, (region.address() >> 32) as u32);
        };
        write_address(UTRLBA, UTRLBAU, &self.layout.transfer_list);
        write_address(UTMRLBA, UTMRLBAU, &self.layout.task_list);
        self.signals = Signals::default();
        if !self.cap.mcqs() {
            return 0;
        }
        if self.shape.mcq {
            self.choose_queues();
            // A queue left enabled by someone else must not run with our memory.
            for queue in 0..self.mcq_cap.queues() {
                let bank = self.mcq_cap.queue_offset(queue as u8);
                self.machine.write32(bank + mcq::SQATTR, 0);
                self.machine.write32(bank + mcq::CQATTR, 0);
            }
            self.bound_active_commands();
        } else {
            self.machine.write32(CONFIG, 0);
        }
        0
    }

    /// Selects MCQ, with a message for each queue if controller and machine can: no capability bit
    /// says so, but a controller that cannot does not keep the bit.
    fn choose_queues(&mut self) {
        let machine = &self.machine;
        let enough = usize::from(machine.vectors()) >= self.shape.lanes;
        let wanted = self.options.event_interrupts && enough;
        let place = machine.messages().filter(|_| wanted);
        if let Some(place) = place {
            machine.write32(ESILBA, place as u32);
            machine.write32(ESIUBA, (place >> 32) as u32);
        }
        let config = Config::new().with_qt(true).with_esie(place.is_some());
        machine.write32(CONFIG, config.into_bits());
        self.signals.messages = place.is_some() && Config::from_bits(machine.read32(CONFIG)).esie();
    }

    /// Switches the aggregation of a register on, if it is wanted. Whether the controller does it.
    fn aggregate(&self, register: u32) -> bool {
        let Some(aggregation) = self.options.aggregation else { return false };
        self.machine.write32(register, aggregation.control().into_bits());
        InterruptAggregation::from_bits(self.machine.read32(register)).iaen()
    }

    fn aggregate_list(&mut self) {
        self.signals.aggregated = self.aggregate(UTRIACR);
    }

    /// Each completion queue is an aggregation group of its own.
    fn aggregate_queue(&self, queue: u8, completion_interrupt: u32) -> bool {
        let aggregated = self.aggregate(completion_interrupt + mcq::MCQIACR);
        let group = CqCfg::new().with_iag(queue).with_iagvld(true);
        let cfg = if aggregated { group } else { CqCfg::new() };
        self.machine.write32(self.mcq_cap.queue_offset(queue) + mcq::CQCFG, cfg.into_bits());
        aggregated
    }

    /// Sets up one queue pair and finds out where its rings stand.
    fn program_queue(&mut self, queue: u8) -> bool {
        let machine = &self.machine;
        let bank = self.mcq_cap.queue_offset(queue);
        let submission = self.layout.submission_ring(queue.into());
        let completion = self.layout.completion_ring(queue.into());
        let size = |entries: usize| ring_size_field(entries as u32).unwrap_or(0);
        let depth = self.layout.depth();
        let cq_attr =
            CqAttr::new().with_size(size(Layout::completion_entries(depth))).with_cqen(true);
        let sq_attr = SqAttr::new()
            .with_size(size(Layout::submission_entries(depth)))
            .with_cqid(queue)
            .with_sqen(true);
        for (register, value) in [
            (mcq::SQLBA, submission.address() as u32),
            (mcq::SQUBA, (submission.address() >> 32) as u32),
            (mcq::CQLBA, completion.address() as u32),
            (mcq::CQUBA, (completion.address() >> 32) as u32),
            // The completion queue first: an enabled submission queue may be fetched at once.
            (mcq::CQATTR, cq_attr.into_bits()),
            (mcq::SQATTR, sq_attr.into_bits()),
        ] {
            machine.write32(bank + register, value);
        }
        let enabled = CqAttr::from_bits(machine.read32(bank + mcq::CQATTR)).cqen()
            && SqAttr::from_bits(machine.read32(bank + mcq::SQATTR)).sqen();
        let registers = self.queue_registers(queue);
        if !enabled || registers.submission == 0 || registers.completion == 0 {
            return false;
        }
        // Where the line tells, IE decides for all queues.
        let told = self.options.interrupts || !self.signals.messages;
        let cause = CqInterrupts::new().with_teps(told).into_bits();
        machine.write32(registers.completion_interrupt + mcq::CQIE, cause);
        let aggregated = self.aggregate_queue(queue, registers.completion_interrupt);
        let signals = Signals { aggregated, ..self.signals };
        // Pointers may have survived the reset: both rings start, empty, where they stand.
        let head = machine.read32(registers.submission + mcq::SQHP);
        let tail = machine.read32(registers.completion + mcq::CQTP);
        let inside =
            |at: u32, ring: &DmaRegion| (at as usize) < ring.len() && at.is_multiple_of(32);
        if !inside(head, &submission) || !inside(tail, &completion) {
            return false;
        }
        if machine.read32(registers.submission + mcq::SQTP) != head {
            machine.write32(registers.submission + mcq::SQTP, head);
        }
        machine.write32(registers.completion + mcq::CQHP, tail);
        let starts = Starts { submission: head, completion: tail, registers, signals };
        self.shared.set_starts(queue.into(), starts);
        true
    }

    /// Where a queue's run-time registers are: where a quirk says, where the queue says, or else
    /// where the platform says.
    fn queue_registers(&self, queue: u8) -> QueueRegisters {
        if self.quirks.has(Quirk::RuntimeRegistersAt2800) {
            let base = 0x2800 + u32::from(queue) * 0x30;
            return QueueRegisters {
                submission: base,
                completion: base + 0x1C,
                completion_interrupt: base + 0x24,
            };
        }
        let bank = self.mcq_cap.queue_offset(queue);
        let said = QueueRegisters {
            submission: self.machine.read32(bank + mcq::SQDAO),
            completion: self.machine.read32(bank + mcq::CQDAO),
            completion_interrupt: self.machine.read32(bank + mcq::CQISAO),
        };
        if said.submission != 0 && said.completion != 0 {
            return said;
        }
        let platform = self.platform.as_ref();
        platform.and_then(|platform| platform.queue_registers(queue)).unwrap_or(said)
    }

    /// A doorbell bit that survived the reset is a slot that can never be used again.
    fn find_stuck_slots(&mut self) -> u64 {
        let stuck = self.machine.read32(UTRLDBR);
        if stuck != 0 {
            self.errors.note(self.now, ErrorKind::StuckSlots, stuck);
        }
        for lane in 0..self.shared.lanes.len() {
            let signals = self.signals;
            let starts = Starts { submission: stuck, signals, ..Starts::default() };
            self.shared.set_starts(lane, starts);
        }
        stuck.into()
    }

    /// Asks the device whether it is there.
    pub(crate) fn nop(&mut self, timeout_ms: u32) -> Run<()> {
        let timeout_ms =
            if self.quirks.has(Quirk::SlowNop) { timeout_ms.max(200) } else { timeout_ms };
        self.exchange(Message::Nop, timeout_ms)??;
        Ok(())
    }

    fn initialise_device(&mut self, timeout_ms: u32) -> Run<()> {
        let flag = |opcode| QueryFields::flag(opcode, FlagId::DeviceInit.into_bits(), 0, 0);
        let started = self.once(|core| core.now.nanos());
        self.query(flag(QueryOpcode::SetFlag))??;
        let mut nap = 500 * US;
        loop {
            if !self.query(flag(QueryOpcode::ReadFlag))??.fields.flag_value() {
                return Ok(());
            }
            let now = self.once(|core| core.now.nanos());
            if now.saturating_sub(started) > u64::from(timeout_ms) * MS {
                return Err(Cause::DeviceInit.into());
            }
            self.sleep(nap)?;
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
        let of_caller = self.options.device_quirks;
        let of_board = self.introduce_device(found.corrected(of_caller));
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
        if starts_asleep || self.once(|core| core.asleep.into()) != 0 {
            self.start_stop(DevicePower::Active)??;
            self.effect(|core| core.asleep = false);
        }
        Ok(())
    }

    /// The device must know the clock the board gives it before the link gets fast.
    fn set_reference_clock(&mut self) -> Run<()> {
        let Some(wanted) = self.wanted_reference_clock() else { return Ok(()) };
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
            self.device.descriptor.b_device_rtt_cap.min(self.cap.nortt().saturating_add(1));
        let present = self.query(QueryFields::read_attribute(id, 0, 0))??.fields.value32();
        // Raised only: the attribute is persistent, and a higher value was someone's choice.
        if present < u32::from(wanted) {
            self.query(QueryFields::write_attribute(id, 0, 0, wanted.into()))??;
        }
        Ok(())
    }

    fn initial_auto_hibern8(&mut self) -> Run<()> {
        if let Some(idle_us) = self.options.auto_hibern8_us {
            self.set_auto_hibern8(idle_us)?;
        } else if self.cap.autoh8() {
            self.write(AHIT, 0);
        }
        Ok(())
    }
}

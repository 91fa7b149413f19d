//! Bring-up, from the bottom: a list of steps, each with its time-out and its tries.

use crate::channel::{Run, Stop};
use crate::control::Core;
use crate::history::{ErrorKind, ErrorRecord};
use crate::interrupts::{ENABLED, ERRORS};
use crate::lane::Lane;
use crate::options::Timeouts;
use crate::platform::{Event, Phase};
use crate::power_mode::DevicePower;
use crate::quirks::Quirk;
use crate::time::US;
use crate::uic::UicCommand;
use crate::writebooster::WriteBooster;
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::ufs::registers::{
    AHIT, HCE, HCS, Hce, Hcs, IE, IS, UECDL, UECDME, UECN, UECPA, UECT,
};
use flysch_wire::ufs::uic::{UicAttribute, UicOpcode};

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
            let timeout_ms = (step.timeout_ms)(&core.peer.channel.options.timeouts);
            match core.perform_told(step, timeout_ms) {
                Ok(()) => self.at += 1,
                Err(Stop::Pending) => return Err(Stop::Pending),
                Err(Stop::Failed(error)) => self.failed(step, error, core)?,
            }
            core.peer.channel.turn_page();
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
            core.peer.channel.errors.keep(ErrorRecord {
                at: core.peer.channel.now,
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
        self.board.tell(&mut self.peer.channel, Event::Step(step.name), Phase::Before)?;
        self.perform(step.stage, timeout_ms)?;
        self.board.tell(&mut self.peer.channel, Event::Step(step.name), Phase::After)
    }

    fn perform(&mut self, stage: Stage, timeout_ms: u32) -> Run<()> {
        match stage {
            Stage::Disable => {
                self.board.clocks(&mut self.peer.channel, true);
                self.disable(timeout_ms)
            }
            Stage::DeviceReset => self.board.reset_device(&mut self.peer.channel),
            Stage::Enable => self.enable(timeout_ms),
            Stage::LinkStartup => self.start_link(timeout_ms),
            Stage::Queues => self.start_queues(timeout_ms),
            Stage::Nop => self.peer.nop(timeout_ms),
            Stage::DeviceInit => self.peer.initialise(timeout_ms),
            Stage::Device => self.peer.learn_device(&mut self.board),
            Stage::Geometry => self.peer.learn_geometry(),
            Stage::Active => self.wake_device(),
            Stage::ReferenceClock => self.peer.set_reference_clock(&self.board),
            Stage::Tuning => self.tune_link(),
            Stage::Link => self.set_link(self.peer.channel.options.link),
            Stage::Units => self.peer.learn_units(),
            Stage::Rtt => self.peer.set_rtt(),
            Stage::WriteBooster => WriteBooster::of(&self.peer.device).initialise(&mut self.peer),
            Stage::Events => self.peer.initial_events(),
            Stage::AutoHibern8 => self.initial_auto_hibern8(),
            Stage::Run => {
                self.peer.publish_bounds();
                let told = if self.peer.queues.signals.messages { ERRORS } else { ENABLED };
                self.peer.channel.write(
                    IE,
                    if self.peer.channel.options.interrupts { told.into_bits() } else { 0 },
                );
                Ok(())
            }
        }
    }

    /// Switches the controller off: it forgets everything and touches no memory any more.
    pub(crate) fn disable(&mut self, timeout_ms: u32) -> Run<()> {
        self.peer.channel.effect(|_| self.running = false);
        self.peer.channel.write(IE, 0);
        self.peer.channel.write(HCE, Hce::new().into_bits());
        self.peer.channel.until(
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
        self.peer.channel.write(HCE, enabled | crypto);
        // Controllers have been seen to show one, then zero, then one: what is read too early
        // says nothing, and what is written then is lost.
        self.peer
            .channel
            .sleep(u64::from(self.peer.channel.options.timeouts.enable_settle_us) * US)?;
        self.peer.channel.until(("HCE", HCE), enabled, enabled, timeout_ms)??;
        let ready = Hcs::new().with_ucrdy(true).into_bits();
        self.peer.channel.until(("HCS", HCS), ready, ready, timeout_ms)??;
        self.peer.channel.effect(|channel| {
            if let Some(engine) = &self.crypto {
                engine.restore_keys(&channel.machine, &channel.shared);
            }
        });
        Ok(())
    }

    fn start_link(&mut self, timeout_ms: u32) -> Run<()> {
        if self.peer.channel.quirks.has(Quirk::LccOff) {
            // Tolerated where the attribute is missing; the link then starts as it can.
            let _ = self.peer.channel.dme_set(UicAttribute::PaLocalTxLccEnable, 0)?;
        }
        self.board.tell(&mut self.peer.channel, Event::LinkStartup, Phase::Before)?;
        self.peer.channel.uic(UicCommand::control(UicOpcode::DmeLinkstartup))??;
        let present = Hcs::new().with_dp(true).into_bits();
        if self.peer.channel.until(("HCS", HCS), present, present, timeout_ms)?.is_err() {
            return Err(Cause::NoDevice.into());
        }
        // Starting up raises errors of its own; they say nothing about the link that is up now.
        for register in [UECPA, UECDL, UECN, UECT, UECDME] {
            self.peer.channel.read(register);
        }
        let stale = self.peer.channel.read(IS);
        self.peer.channel.write(IS, stale);
        self.peer.channel.once(|channel| {
            self.link = Default::default();
            channel.shared.orders.take_causes().into()
        });
        self.board.tell(&mut self.peer.channel, Event::LinkStartup, Phase::After)
    }

    fn start_queues(&mut self, timeout_ms: u32) -> Run<()> {
        let queued = self.peer.device.descriptor.b_queue_depth;
        self.peer.queues.start(&mut self.peer.channel, &self.board, queued, timeout_ms)?;
        self.peer.channel.lane(Lane::restart)?;
        self.peer.channel.effect(|_| self.running = true);
        Ok(())
    }

    /// A device that starts in UFS-Sleep, or that a suspend has put there and no reset has woken,
    /// takes no medium access before it is told to wake.
    fn wake_device(&mut self) -> Run<()> {
        let starts_asleep = self.peer.device.descriptor.b_init_power_mode == 0;
        if starts_asleep || self.peer.channel.once(|_| self.asleep.into()) != 0 {
            self.start_stop(DevicePower::Active)??;
            self.peer.channel.effect(|_| self.asleep = false);
        }
        Ok(())
    }

    fn initial_auto_hibern8(&mut self) -> Run<()> {
        if let Some(idle_us) = self.peer.channel.options.auto_hibern8_us {
            self.set_auto_hibern8(idle_us)?;
        } else if self.peer.channel.cap.autoh8() {
            self.peer.channel.write(AHIT, 0);
        }
        Ok(())
    }
}

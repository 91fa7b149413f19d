//! Bring-up from the bottom up: a list of steps, each with its time-out and its tries.

use crate::UfsError;
use crate::channel::Run;
use crate::control::Core;
use crate::history::{ErrorKind, ErrorRecord};
use crate::interrupts::{ENABLED, ERRORS};
use crate::options::Timeouts;
use crate::platform::{Event, Phase};
use crate::writebooster::WriteBooster;
use flysch_api::machine::Machine;
use flysch_script::{Primitives, settled};
use flysch_wire::ufs::registers::IE;

/// What happens when a step has used up its tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Bring-up fails.
    Fail,
    /// Bring-up continues without it.
    GoOn,
}

/// One step of bring-up.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it does.
    pub name: &'static str,
    /// The time-out of what it waits for, ms; a function of the caller's [`Timeouts`].
    pub timeout_ms: fn(&Timeouts) -> u32,
    /// Maximum number of tries.
    pub tries: u8,
    /// Where a new try begins: the name of this step or of an earlier one.
    pub again_from: &'static str,
    /// What happens when all tries have failed.
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

impl Step {
    /// Runs the step once.
    fn run<M: Machine>(&self, core: &mut Core<M>) -> Run<()> {
        let event = Event::Step(self.name);
        core.power.board.tell(&mut core.peer.channel, event, Phase::Before)?;
        let timeout_ms = (self.timeout_ms)(&core.peer.channel.options.timeouts);
        self.stage.run(core, timeout_ms)?;
        core.power.board.tell(&mut core.peer.channel, event, Phase::After)
    }
}

impl Stage {
    fn run<M: Machine>(self, core: &mut Core<M>, timeout_ms: u32) -> Run<()> {
        let Core { peer, power, .. } = core;
        match self {
            Self::Disable => {
                power.board.clocks(&mut peer.channel, true);
                core.disable(timeout_ms)
            }
            Self::DeviceReset => power.board.reset_device(&mut peer.channel),
            Self::Enable => core.enable(timeout_ms),
            Self::LinkStartup => power.start_link(&mut peer.channel, timeout_ms),
            Self::Queues => core.start_queues(timeout_ms),
            Self::Nop => peer.nop(timeout_ms),
            Self::DeviceInit => peer.initialise(timeout_ms),
            Self::Device => peer.learn_device(&mut power.board),
            Self::Geometry => peer.learn_geometry(),
            Self::Active => power.wake_device(peer),
            Self::ReferenceClock => peer.set_reference_clock(&power.board),
            Self::Tuning => peer.device.quirks.tune(&mut peer.channel),
            Self::Link => {
                let limits = peer.channel.options.link;
                power.set_link(peer, limits)
            }
            Self::Units => peer.learn_units(),
            Self::Rtt => peer.set_rtt(),
            Self::WriteBooster => WriteBooster::of(&peer.device).initialise(peer),
            Self::Events => peer.initial_events(),
            Self::AutoHibern8 => peer.channel.initial_auto_hibern8(),
            Self::Run => {
                peer.publish_bounds();
                let told = if peer.queues.signals.messages { ERRORS } else { ENABLED };
                let enabled = if peer.channel.options.interrupts { told.into_bits() } else { 0 };
                peer.channel.write(IE, enabled);
                Ok(())
            }
        }
    }
}

/// A bring-up in progress.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BringUp {
    at: usize,
    /// Tries used up, by step.
    tried: [u8; STEPS.len()],
}

impl BringUp {
    /// The current step.
    pub(crate) fn step(&self) -> Option<&'static Step> {
        STEPS.get(self.at)
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        while let Some(step) = STEPS.get(self.at) {
            match settled(step.run(core))? {
                Ok(()) => self.at += 1,
                Err(error) => self.failed(step, error, core)?,
            }
            core.peer.channel.script.turn_page();
        }
        Ok(())
    }

    fn failed<M: Machine>(&mut self, step: &Step, error: UfsError, core: &mut Core<M>) -> Run<()> {
        self.tried[self.at] += 1;
        if self.tried[self.at] < step.tries {
            self.at = STEPS.iter().position(|s| s.name == step.again_from).unwrap_or(self.at);
            return Ok(());
        }
        if step.on_failure == OnFailure::GoOn {
            let channel = &mut core.peer.channel;
            channel.errors.keep(ErrorRecord {
                at: channel.script.now(),
                kind: ErrorKind::Skipped,
                value: self.at as u32,
                step: Some(step.name),
                error: Some(error),
            });
            self.at += 1;
            return Ok(());
        }
        Err(match error {
            UfsError::Failed(cause) => UfsError::Step { step: step.name, cause }.into(),
            other => other.into(),
        })
    }
}

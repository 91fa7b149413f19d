//! Bring-up as a list of steps (3.5.1), in the same order as in Linux.

use crate::NvmeError;
use crate::channel::Run;
use crate::control::Core;
use crate::places::create_queues;
use flysch_api::machine::Machine;
use flysch_script::Stop;

/// One step of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// Its work.
    pub what: &'static str,
}

/// The steps in order.
pub static STEPS: [Step; 8] = [
    Step { name: "disable", what: "CC.EN off, wait until CSTS.RDY follows" },
    Step { name: "enable", what: "admin queues, CC, wait until CSTS.RDY follows" },
    Step { name: "identify", what: "identify controller" },
    Step { name: "queues", what: "number of queues, a queue pair for each lane" },
    Step { name: "namespaces", what: "the active namespaces and their formats" },
    Step { name: "host memory", what: "memory for a controller that has too little of its own" },
    Step { name: "power", what: "power states the controller may go to by itself" },
    Step { name: "events", what: "write cache, asynchronous events" },
];

/// A bring-up in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct BringUp {
    step: usize,
}

impl BringUp {
    pub(crate) fn step(&self) -> Option<&'static Step> {
        STEPS.get(self.step)
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        while let Some(step) = self.step() {
            let result = match self.step {
                0 => core.disable()?.map_err(Into::into),
                1 => core.enable(),
                2 => core.device.learn_controller(&mut core.channel),
                3 => create_queues(&mut core.channel, &core.device),
                4 => core.device.find_namespaces(&mut core.channel),
                5 => core.device.lend_memory(&mut core.channel),
                6 => core.device.save_power(&mut core.channel),
                _ => core.device.set_up_events(&mut core.channel),
            };
            match result {
                Ok(()) => {}
                Err(Stop::Failed(NvmeError::Failed(cause))) => {
                    return Err(Stop::Failed(NvmeError::Step { step: step.name, cause }));
                }
                Err(stop) => return Err(stop),
            }
            core.channel.script.turn_page();
            self.step += 1;
        }
        Ok(())
    }
}

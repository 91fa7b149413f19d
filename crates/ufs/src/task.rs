//! Task management: abort, abort set, clear set, logical unit reset, query task, query task set.
//!
//! Requests go through a list of their own with its own doorbell, the same in SDQ and MCQ. The
//! host sends one at a time, in slot 0.

use crate::Cause;
use crate::control::{Action, Answer, Core, MS, Run, number};
use flysch_api::machine::{Instant, Machine};
use flysch_wire::ufs::registers::{IS, Interrupts, UTMRLCLR, UTMRLDBR};
use flysch_wire::ufs::upiu::{self, ServiceResponse, TaskFunction, TaskRequest, TaskResponse};
use flysch_wire::ufs::utmrd::{self, TaskOcs, Utmrd, UtmrdHeader};

const SLOT: u32 = 1;
/// Names the request itself; commands use the tags from zero up.
const REQUEST_TAG: u8 = 0xFF;

/// A task management request under way.
#[derive(Debug)]
pub(crate) struct TaskAction {
    request: TaskRequest,
    rung: bool,
    deadline: Instant,
}

impl TaskAction {
    pub(crate) fn advance<M: Machine>(&mut self, core: &mut Core<M>) -> Option<Answer> {
        if !self.rung {
            self.ring(core);
            self.rung = true;
        }
        if core.machine.read32(UTMRLDBR) & SLOT == 0 {
            let done = Interrupts::new().with_utmrcs(true);
            core.machine.write32(IS, done.into_bits());
            return Some(match self.read_answer(core) {
                Ok(response) => Answer::Value(response.into_bits().into()),
                Err(cause) => Answer::Failed(cause),
            });
        }
        if core.now >= self.deadline {
            return Some(Answer::Failed(Cause::TaskTimeout(self.request.function())));
        }
        core.look_again(self.deadline);
        None
    }

    fn ring<M: Machine>(&self, core: &Core<M>) {
        let mut request = [0; upiu::LENGTH];
        self.request.emit(&mut request);
        let entry = Utmrd {
            header: UtmrdHeader::new().with_i(true),
            ocs: TaskOcs::Invalid,
            request,
            response: [0xFF; upiu::LENGTH],
        };
        let mut bytes = [0; utmrd::LENGTH];
        entry.emit(&mut bytes);
        let list = &core.layout.task_list;
        list.write(0, &bytes);
        core.machine.sync_for_device(list.span(0, utmrd::LENGTH));
        core.machine.write32(UTMRLDBR, SLOT);
    }

    fn read_answer<M: Machine>(&self, core: &Core<M>) -> Result<ServiceResponse, Cause> {
        let mut bytes = [0; utmrd::LENGTH];
        let list = &core.layout.task_list;
        core.machine.sync_for_cpu(list.span(0, utmrd::LENGTH));
        list.read(0, &mut bytes);
        let entry = Utmrd::parse(&bytes);
        if entry.ocs != TaskOcs::Success {
            return Err(Cause::TaskOverall(entry.ocs));
        }
        match TaskResponse::parse(&entry.response) {
            Ok(response) => Ok(response.service_response),
            Err(_) => Err(Cause::Response(entry.response[0])),
        }
    }
}

impl<M: Machine> Core<M> {
    /// Sends a task management request; gives the device's service response. One that is not
    /// answered is cleared.
    pub(crate) fn task(
        &mut self,
        function: TaskFunction,
        lun: u8,
        tag: u8,
    ) -> Run<Result<ServiceResponse, Cause>> {
        let timeout = u64::from(self.options.timeouts.task_ms) * MS;
        let answer = self.ask(|core| {
            Action::Task(TaskAction {
                request: TaskRequest::new(REQUEST_TAG, function, lun, tag),
                rung: false,
                deadline: core.now.after_nanos(timeout),
            })
        })?;
        match number(answer) {
            Ok(response) => Ok(Ok(ServiceResponse::from_bits(response as u8))),
            Err(cause @ Cause::TaskTimeout(_)) => {
                self.write(UTMRLCLR, !SLOT);
                let clear_ms = self.options.timeouts.clear_ms;
                // A slot that cannot be cleared is left to the host reset that follows.
                let _ = self.until(("UTMRLDBR", UTMRLDBR), SLOT, 0, clear_ms)?;
                Ok(Err(cause))
            }
            Err(cause) => Ok(Err(cause)),
        }
    }

    /// Sends a function that ends commands; an error unless the device says it did.
    pub(crate) fn task_done(
        &mut self,
        function: TaskFunction,
        lun: u8,
        tag: u8,
    ) -> Run<Result<(), Cause>> {
        Ok(match self.task(function, lun, tag)? {
            Ok(ServiceResponse::FunctionComplete | ServiceResponse::FunctionSucceeded) => Ok(()),
            Ok(response) => Err(Cause::Task(response)),
            Err(cause) => Err(cause),
        })
    }
}

//! Task management: abort, abort set, clear set, logical unit reset, query task, query task set.
//!
//! Requests go through a list of their own with its own doorbell, the same in SDQ and MCQ. The
//! host sends one at a time, in slot 0.

use crate::Cause;
use flysch_api::machine::{DmaRegion, Instant, Registers};
use flysch_wire::ufs::registers::{IS, Interrupts, UTMRLDBR};
use flysch_wire::ufs::upiu::{self, ServiceResponse, TaskFunction, TaskRequest, TaskResponse};
use flysch_wire::ufs::utmrd::{self, TaskOcs, Utmrd, UtmrdHeader};

/// The slot in use, as a bit of the doorbell.
pub(crate) const SLOT: u32 = 1;
/// The tag of the request itself; commands use the tags from zero up.
const REQUEST_TAG: u8 = 0xFF;

/// A task management request in progress.
#[derive(Debug)]
pub(crate) struct TaskAction {
    request: TaskRequest,
    rung: bool,
    deadline: Instant,
}

impl TaskAction {
    pub(crate) fn new(function: TaskFunction, lun: u8, tag: u8, deadline: Instant) -> Self {
        let request = TaskRequest::new(REQUEST_TAG, function, lun, tag);
        Self { request, rung: false, deadline }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Makes as much progress as possible now, with the list in `list`; returns the device's
    /// service response.
    pub(crate) fn advance(
        &mut self,
        registers: &impl Registers,
        list: &DmaRegion,
        now: Instant,
    ) -> Option<Result<ServiceResponse, Cause>> {
        if !self.rung {
            self.ring(registers, list);
            self.rung = true;
        }
        if registers.read32(UTMRLDBR) & SLOT == 0 {
            let done = Interrupts::new().with_utmrcs(true);
            registers.write32(IS, done.into_bits());
            return Some(read_answer(registers, list));
        }
        (now >= self.deadline).then(|| Err(Cause::TaskTimeout(self.request.function())))
    }

    fn ring(&self, registers: &impl Registers, list: &DmaRegion) {
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
        list.write(0, &bytes);
        registers.sync_for_device(list.span(0, utmrd::LENGTH));
        registers.write32(UTMRLDBR, SLOT);
    }
}

fn read_answer(registers: &impl Registers, list: &DmaRegion) -> Result<ServiceResponse, Cause> {
    let mut bytes = [0; utmrd::LENGTH];
    registers.sync_for_cpu(list.span(0, utmrd::LENGTH));
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

//! The admin queue: one command of the control path at a time, and one event request that waits
//! until the controller has something to report.

use crate::layout::Layout;
use crate::queue::{Completion, Done, Submission};
use flysch_api::machine::{Instant, Registers};
use flysch_wire::nvme::registers::{cq_head, sq_tail};
use flysch_wire::nvme::{AdminOpcode, FeatureId, Sqe};

/// Command id of the event request.
const EVENT: u16 = u16::MAX;

/// The admin queue pair.
#[derive(Debug)]
pub(crate) struct Admin {
    submission: Submission,
    completion: Completion,
    next_id: u16,
    /// The answer to the last command, until it is taken.
    answer: Option<Done>,
    /// An event request is outstanding in the controller.
    pub(crate) awaits_event: bool,
    /// The event reported by the controller, until it is handled.
    pub(crate) event: Option<u32>,
}

impl Admin {
    pub(crate) fn new(layout: &Layout, stride: u8) -> Self {
        let (submission, completion) =
            (layout.admin_submission.clone(), layout.admin_completion.clone());
        Self {
            submission: Submission::new(submission, sq_tail(0, stride)),
            completion: Completion::new(completion, cq_head(0, stride)),
            next_id: 0,
            answer: None,
            awaits_event: false,
            event: None,
        }
    }

    /// Starts over with empty queues.
    pub(crate) fn restart(&mut self, registers: &impl Registers) {
        self.submission.restart();
        self.completion.restart(registers);
        self.answer = None;
        self.awaits_event = false;
        self.event = None;
    }

    /// Issues a command; returns its id.
    pub(crate) fn issue(&mut self, entry: Sqe, registers: &impl Registers) -> u16 {
        let cid = self.next_id;
        self.next_id = (cid + 1) % EVENT;
        self.answer = None;
        self.post(Sqe { cid, ..entry }, registers);
        cid
    }

    /// Issues a request for the next event.
    pub(crate) fn await_event(&mut self, registers: &impl Registers) {
        let opcode = AdminOpcode::AsyncEvent.into_bits();
        self.post(Sqe { opcode, cid: EVENT, ..Sqe::default() }, registers);
        self.awaits_event = true;
    }

    fn post(&mut self, entry: Sqe, registers: &impl Registers) {
        self.submission.post(entry.to_words(), registers);
        self.submission.ring(registers);
    }

    /// Whether completions are waiting.
    pub(crate) fn is_waiting(&self, registers: &impl Registers) -> bool {
        self.completion.is_waiting(registers)
    }

    /// Takes in completions.
    pub(crate) fn harvest(&mut self, registers: &impl Registers) {
        while let Some(done) = self.completion.take(registers) {
            if done.cid() != EVENT {
                self.answer = Some(done);
                continue;
            }
            self.awaits_event = false;
            // A request that failed is not asked again: the controller has no events to tell.
            if done.status() == 0 {
                self.event = Some(done.result);
            }
        }
        self.completion.ring(registers);
    }

    pub(crate) fn answer_to(&mut self, cid: u16) -> Option<Done> {
        self.answer.take_if(|done| done.cid() == cid)
    }
}

/// An admin command under way.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) entry: Sqe,
    pub(crate) timeout_ms: u32,
    /// Its id and deadline, once it was issued.
    pub(crate) issued: Option<(u16, Instant)>,
}

/// A set features command whose value is one dword.
pub(crate) fn set_feature(id: FeatureId, value: u32) -> Sqe {
    let opcode = AdminOpcode::SetFeatures.into_bits();
    Sqe { opcode, cdw10: [id.into_bits().into(), value, 0, 0, 0, 0], ..Sqe::default() }
}

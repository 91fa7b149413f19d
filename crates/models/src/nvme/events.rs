//! Asynchronous events: what the controller tells by itself, once it is asked.
//!
//! An event of a type is told once; the next of that type only when its log page was read.

use alloc::collections::VecDeque;

use flysch_wire::nvme::feature::{AsyncEventResult, AsyncEvents, event};
use flysch_wire::nvme::{LogId, Status};

use super::Nvme;
use super::flow::refusal;
use super::task::{State, TaskRef, Work};
use crate::faults::Kind;

/// Asynchronous event requests at once (AERL and one).
pub(super) const REQUESTS_MAX: usize = 4;
/// Types of events there can be.
const TYPES: usize = 8;
/// Events of a storm.
const STORM: u32 = 64;
/// Notices that can be told.
const NAMESPACES: u32 = AsyncEvents::new().with_namespaces(true).into_bits();
const FIRMWARE: u32 = AsyncEvents::new().with_firmware(true).into_bits();
/// OAES: the optional events the controller has.
pub(super) const SUPPORTED: u32 = NAMESPACES | FIRMWARE;

/// What waits to be told, and who asked.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Requests that wait.
    requests: VecDeque<TaskRef>,
    /// Events that wait, each kind and cause once.
    waiting: VecDeque<AsyncEventResult>,
    /// By type: the log page that has to be read before the next is told.
    unread: [Option<u8>; TYPES],
    /// Events that a fault still wants to tell.
    storm: u32,
}

impl Told {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A request is about to end otherwise.
    pub(super) fn forget(&mut self, index: u16) {
        self.requests.retain(|name| name.index != index);
    }
}

impl Nvme {
    /// An asynchronous event request arrives.
    pub(super) fn accept_event_request(&mut self) -> Work {
        match self.told.requests.len() {
            REQUESTS_MAX.. => Work::Status(refusal(Status::AsyncEventLimit)),
            _ => Work::Control,
        }
    }

    /// A request for events has come this far: it waits, or is answered at once.
    pub(super) fn await_event(&mut self, index: u16) {
        if self.told.requests.len() >= REQUESTS_MAX {
            return self.finish(index, refusal(Status::AsyncEventLimit), 0);
        }
        self.tasks.get_mut(index).state = State::Waiting;
        let name = self.tasks.name(index);
        self.told.requests.push_back(name);
        self.tell_next();
    }

    /// Something happened that the host may want to know.
    pub(super) fn tell(&mut self, kind: u8, info: u8, log: LogId) {
        let wanted = self.device.features.async_events();
        let is_wanted = match (kind, info) {
            (event::NOTICE, event::NAMESPACES_CHANGED) => wanted & NAMESPACES != 0,
            (event::NOTICE, event::FIRMWARE) => wanted & FIRMWARE != 0,
            (event::SMART, _) => wanted & 0xFF != 0,
            _ => true,
        };
        let result =
            AsyncEventResult::new().with_kind(kind).with_info(info).with_log_page(log.into_bits());
        if is_wanted && !self.told.waiting.contains(&result) {
            self.told.waiting.push_back(result);
            self.tell_next();
        }
    }

    /// A write to a doorbell that made no sense.
    pub(super) fn error_event(&mut self, info: u8) {
        let status = Status::InvalidField.into_bits();
        self.device.errors.note((u16::MAX, u16::MAX), status, (0, 0));
        self.tell(event::ERROR, info, LogId::Errors);
    }

    /// Answers requests as long as there are events that may be told.
    fn tell_next(&mut self) {
        while !self.told.requests.is_empty() {
            let told = &mut self.told;
            let unread = &told.unread;
            let may = |event: &AsyncEventResult| unread[usize::from(event.kind())].is_none();
            let Some(at) = told.waiting.iter().position(may) else { return };
            let Some(event) = told.waiting.remove(at) else { return };
            let Some(request) = told.requests.pop_front() else { return };
            told.unread[usize::from(event.kind())] = Some(event.log_page());
            self.finish(request.index, 0, event.into_bits());
        }
    }

    /// A log page was read: events of its type are told again.
    pub(super) fn log_was_read(&mut self, log: u8) {
        for unread in &mut self.told.unread {
            if *unread == Some(log) {
                *unread = None;
            }
        }
        if self.told.storm > 0 {
            self.told.storm -= 1;
            self.storm_on();
        }
        self.tell_next();
    }

    /// A fault: events come as fast as the host takes them.
    pub(super) fn begin_storm(&mut self) {
        self.told.storm = STORM;
        self.storm_on();
    }

    fn storm_on(&mut self) {
        let kind = self.faults.choose(Kind::EventStorm, 3);
        let (kind, log) = match kind {
            0 => (event::ERROR, LogId::Errors),
            1 => (event::SMART, LogId::Smart),
            _ => (event::NOTICE, LogId::ChangedNamespaces),
        };
        self.tell(kind, 0, log);
    }

    /// Namespaces have come, gone or changed.
    pub(super) fn namespace_changed(&mut self, id: u32) {
        self.device.note_change(id);
        self.tell(event::NOTICE, event::NAMESPACES_CHANGED, LogId::ChangedNamespaces);
    }
}

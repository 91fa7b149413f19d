//! Asynchronous events: what the controller reports by itself, once it is asked.
//!
//! An event of a type is reported once; the next of that type only after its log page was read.

use alloc::collections::VecDeque;

use flysch_wire::nvme::feature::{AsyncEventResult, AsyncEvents, event};
use flysch_wire::nvme::{LogId, Status};

use super::Nvme;
use super::flow::refusal;
use super::task::{State, TaskRef};
use crate::faults::{Injector, Kind};

/// Maximum number of outstanding asynchronous event requests (AERL plus one).
pub(super) const REQUESTS_MAX: usize = 4;
/// Number of event types.
const TYPES: usize = 8;
/// Number of events in a storm.
const STORM: u32 = 64;
/// The supported notices.
const NAMESPACES: u32 = AsyncEvents::new().with_namespaces(true).into_bits();
const FIRMWARE: u32 = AsyncEvents::new().with_firmware(true).into_bits();
/// OAES: the optional events that the controller supports.
pub(super) const SUPPORTED: u32 = NAMESPACES | FIRMWARE;

/// Events to report, and the requests for them.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// Outstanding requests.
    requests: VecDeque<TaskRef>,
    /// Pending events, one for each type and cause.
    waiting: VecDeque<AsyncEventResult>,
    /// By type: the log page that must be read before the next event is reported.
    unread: [Option<u8>; TYPES],
    /// Number of events that a fault still has to cause.
    storm: u32,
}

impl Told {
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether there can be no further outstanding request.
    pub(super) fn is_full(&self) -> bool {
        self.requests.len() >= REQUESTS_MAX
    }

    /// Adds an outstanding request.
    pub(super) fn wait(&mut self, request: TaskRef) {
        self.requests.push_back(request);
    }

    /// Forgets a request that is about to end otherwise.
    pub(super) fn forget(&mut self, index: u16) {
        self.requests.retain(|name| name.index != index);
    }

    /// Adds an event of type `kind`, whose details are in a log page. Returns whether it is new and
    /// among those that the host has `wanted` by its feature.
    pub(super) fn add(&mut self, wanted: u32, (kind, info): (u8, u8), log: LogId) -> bool {
        let is_wanted = match (kind, info) {
            (event::NOTICE, event::NAMESPACES_CHANGED) => wanted & NAMESPACES != 0,
            (event::NOTICE, event::FIRMWARE) => wanted & FIRMWARE != 0,
            (event::SMART, _) => wanted & 0xFF != 0,
            _ => true,
        };
        let result =
            AsyncEventResult::new().with_kind(kind).with_info(info).with_log_page(log.into_bits());
        let is_new = is_wanted && !self.waiting.contains(&result);
        if is_new {
            self.waiting.push_back(result);
        }
        is_new
    }

    /// Takes the next event that may be reported, and the request that it answers, if both exist.
    pub(super) fn next(&mut self) -> Option<(TaskRef, AsyncEventResult)> {
        let request = *self.requests.front()?;
        let unread = &self.unread;
        let may = |event: &AsyncEventResult| unread[usize::from(event.kind())].is_none();
        let at = self.waiting.iter().position(may)?;
        let event = self.waiting.remove(at)?;
        self.unread[usize::from(event.kind())] = Some(event.log_page());
        self.requests.pop_front();
        Some((request, event))
    }

    /// A log page was read: events of its type are reported again.
    pub(super) fn log_was_read(&mut self, log: LogId, wanted: u32, faults: &mut Injector) {
        for unread in &mut self.unread {
            if *unread == Some(log.into_bits()) {
                *unread = None;
            }
        }
        if self.storm > 0 {
            self.storm -= 1;
            self.storm_on(wanted, faults);
        }
    }

    /// A fault: events come as fast as the host takes them. Returns whether the first was added.
    pub(super) fn begin_storm(&mut self, wanted: u32, faults: &mut Injector) -> bool {
        self.storm = STORM;
        self.storm_on(wanted, faults)
    }

    fn storm_on(&mut self, wanted: u32, faults: &mut Injector) -> bool {
        let (kind, log) = match faults.choose(Kind::EventStorm, 3) {
            0 => (event::ERROR, LogId::Errors),
            1 => (event::SMART, LogId::Smart),
            _ => (event::NOTICE, LogId::ChangedNamespaces),
        };
        self.add(wanted, (kind, 0), log)
    }
}

impl Nvme {
    /// A request for events has reached the device: it waits, or is answered at once.
    pub(super) fn await_event(&mut self, index: u16) {
        if self.told.is_full() {
            return self.finish(index, refusal(Status::AsyncEventLimit), 0);
        }
        self.tasks.get_mut(index).state = State::Waiting;
        self.told.wait(self.tasks.name(index));
        self.answer_requests();
    }

    /// Reports an event, if the host wants it.
    pub(super) fn tell(&mut self, kind: u8, info: u8, log: LogId) {
        if self.told.add(self.device.features.async_events(), (kind, info), log) {
            self.answer_requests();
        }
    }

    /// Answers requests while there are events that may be reported.
    pub(super) fn answer_requests(&mut self) {
        while let Some((request, event)) = self.told.next() {
            self.finish(request.index, 0, event.into_bits());
        }
    }

    /// Reports an invalid doorbell write.
    pub(super) fn error_event(&mut self, info: u8) {
        let status = Status::InvalidField.into_bits();
        self.device.errors.note((u16::MAX, u16::MAX), status, (0, 0));
        self.tell(event::ERROR, info, LogId::Errors);
    }

    /// A namespace was added, removed or changed.
    pub(super) fn namespace_changed(&mut self, id: u32) {
        self.device.spaces.note_change(id);
        self.tell(event::NOTICE, event::NAMESPACES_CHANGED, LogId::ChangedNamespaces);
    }

    /// Reports a temperature beyond its thresholds, once until it is back between them.
    pub(super) fn look_at_health(&mut self) {
        /// Temperature threshold.
        const THRESHOLD: u8 = 1;
        if self.device.look_at_temperature() {
            self.tell(event::SMART, THRESHOLD, LogId::Smart);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::Plan;

    #[test]
    fn an_event_is_told_once_until_its_log_is_read() {
        let (mut told, mut faults) = (Told::default(), Injector::new(Plan::none(), 1));
        (0..3).for_each(|index| told.wait(TaskRef { index, generation: 0 }));
        let changed = (event::NOTICE, event::NAMESPACES_CHANGED);
        assert!(!told.add(0, changed, LogId::ChangedNamespaces), "not wanted");
        assert!(told.add(NAMESPACES, changed, LogId::ChangedNamespaces));
        assert!(!told.add(NAMESPACES, changed, LogId::ChangedNamespaces), "waits already");
        assert!(told.add(NAMESPACES, (event::ERROR, event::INVALID_DOORBELL), LogId::Errors));
        let told_of: [Option<u16>; 3] =
            core::array::from_fn(|_| told.next().map(|(request, _)| request.index));
        assert_eq!(told_of, [Some(0), Some(1), None]);
        assert!(told.add(0, (event::ERROR, event::INVALID_DOORBELL_VALUE), LogId::Errors));
        told.log_was_read(LogId::Smart, 0, &mut faults);
        assert!(told.next().is_none(), "its log was not read");
        told.log_was_read(LogId::Errors, 0, &mut faults);
        assert_eq!(told.next().map(|(request, _)| request.index), Some(2));
    }
}

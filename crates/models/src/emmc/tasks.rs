//! The tasks of a queueing engine: where each of them is, and whose turn it is on the data lines.

use alloc::collections::VecDeque;

use flysch_wire::mmc::cqhci::{DIRECT, TASKS, Task as Descriptor};

use crate::media::Ready;

/// Where a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// Nowhere.
    #[default]
    Free,
    /// The doorbell rang; a direct command is before it.
    Held,
    /// On its way to the device, or worked on there.
    Queued,
    /// Ready for the data lines; the data of a write has room.
    Ready,
    /// On the data lines.
    Moving,
    /// Its data has crossed the bus; it ends now, late, or when it is on the medium.
    Ending,
    /// Never answered (a fault).
    Swallowed,
}

/// A task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Task {
    state: State,
    generation: u32,
    /// Its descriptor as the host wrote it.
    pub(super) word: u64,
    /// The partition it is of, and when its data is there.
    pub(super) part: u8,
    pub(super) ready: Ready,
    /// Bytes of the device's write buffer that it has for data that has not come.
    room: u64,
    /// A fault has made it late already.
    pub(super) is_late: bool,
}

impl Task {
    pub(super) fn descriptor(&self) -> Descriptor {
        Descriptor::from_bits(self.word)
    }

    /// Bytes it moves.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.descriptor().blocks()) * 512
    }
}

/// Names a task; stale once it has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TaskRef {
    pub(super) number: u8,
    generation: u32,
}

/// The tasks.
#[derive(Debug)]
pub(super) struct Tasks {
    tasks: [Task; TASKS as usize],
    /// Tasks that are ready, in that order.
    ready: VecDeque<u8>,
    /// The task that has the data lines.
    moving: Option<u8>,
    /// The direct command waits, or is under way.
    is_direct: bool,
    is_direct_begun: bool,
}

impl Tasks {
    pub(super) fn new() -> Self {
        Self {
            tasks: [Task::default(); TASKS as usize],
            ready: VecDeque::with_capacity(TASKS.into()),
            moving: None,
            is_direct: false,
            is_direct_begun: false,
        }
    }

    #[inline]
    pub(super) fn is_current(&self, name: TaskRef) -> bool {
        self.get(name.number).generation == name.generation
    }

    #[inline]
    pub(super) fn name(&self, number: u8) -> TaskRef {
        TaskRef { number, generation: self.get(number).generation }
    }

    #[inline]
    pub(super) fn get(&self, number: u8) -> &Task {
        &self.tasks[usize::from(number % TASKS)]
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u8) -> &mut Task {
        &mut self.tasks[usize::from(number % TASKS)]
    }

    /// A task with this descriptor is held.
    #[inline]
    pub(super) fn hold(&mut self, number: u8, word: u64) {
        let task = self.get_mut(number);
        (task.word, task.state, task.is_late) = (word, State::Held, false);
    }

    pub(super) fn is_held(&self, number: u8) -> bool {
        self.get(number).state == State::Held
    }

    /// A task goes to the device.
    #[inline]
    pub(super) fn begin(&mut self, number: u8) -> TaskRef {
        self.get_mut(number).state = State::Queued;
        self.name(number)
    }

    /// A task is ready for the data lines; a write has room for its data.
    #[inline]
    pub(super) fn is_ready(&mut self, number: u8) {
        let task = self.get_mut(number);
        task.state = State::Ready;
        task.room = if task.descriptor().read() { 0 } else { task.bytes() };
        self.ready.push_back(number);
    }

    /// The room of a task is used, or free again: its bytes.
    #[inline]
    pub(super) fn take_room(&mut self, number: u8) -> u64 {
        core::mem::take(&mut self.get_mut(number).room)
    }

    /// The tasks that are ready, a bit each.
    pub(super) fn ready_bits(&self) -> u32 {
        self.ready.iter().fold(0, |bits, task| bits | 1 << task)
    }

    /// The task that has the data lines from now on, if they are free and one is ready.
    #[inline]
    pub(super) fn next(&mut self) -> Option<u8> {
        if self.moving.is_some() {
            return None;
        }
        let number = self.ready.pop_front()?;
        self.get_mut(number).state = State::Moving;
        self.moving = Some(number);
        self.moving
    }

    /// The data of a task has crossed the bus.
    #[inline]
    pub(super) fn moved(&mut self, number: u8) -> Task {
        self.moving = None;
        *self.get(number)
    }

    /// A task is about to end.
    #[inline]
    pub(super) fn end(&mut self, number: u8) {
        self.get_mut(number).state = State::Ending;
    }

    /// A task is not answered any more; what was to happen to it happens.
    pub(super) fn fail(&mut self, number: u8) {
        self.get_mut(number).state = State::Swallowed;
    }

    /// A task is never answered, and nothing more happens to it.
    pub(super) fn swallow(&mut self, number: u8) {
        self.fail(number);
        let task = self.get_mut(number);
        task.generation = task.generation.wrapping_add(1);
    }

    /// No task there is is ever answered.
    pub(super) fn swallow_all(&mut self) {
        for number in 0..TASKS {
            if self.get(number).state != State::Free {
                self.swallow(number);
            }
        }
        self.ready.clear();
        self.moving = None;
    }

    /// A task is nowhere any more.
    pub(super) fn forget(&mut self, number: u8) {
        let task = self.get_mut(number);
        task.state = State::Free;
        task.generation = task.generation.wrapping_add(1);
        self.ready.retain(|&other| other != number);
        if self.moving == Some(number) {
            self.moving = None;
        }
        if number == DIRECT {
            (self.is_direct, self.is_direct_begun) = (false, false);
        }
    }

    /// Whether a task or the direct command is on the lines: what a halt waits for.
    pub(super) fn are_moving(&self) -> bool {
        self.moving.is_some() || self.is_direct_begun
    }

    /// The direct command waits for what is before it, or no longer bars what is behind.
    pub(super) fn bar(&mut self, is_direct: bool) {
        self.is_direct = is_direct;
    }

    /// Whether the direct command bars what comes after it.
    pub(super) fn are_barred(&self) -> bool {
        self.is_direct
    }

    /// Whether the direct command is under way.
    pub(super) fn is_direct_begun(&self) -> bool {
        self.is_direct_begun
    }

    /// Begins the direct command if nothing is before it.
    pub(super) fn begin_direct(&mut self) -> Option<TaskRef> {
        let is_before = |task: &Task| !matches!(task.state, State::Free | State::Held);
        if self.is_direct_begun || self.tasks[..usize::from(DIRECT)].iter().any(is_before) {
            return None;
        }
        self.is_direct_begun = true;
        Some(self.begin(DIRECT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_go_to_one_task_after_the_other_and_a_direct_command_waits_for_all() {
        let mut tasks = Tasks::new();
        for number in [3, 1] {
            tasks.hold(number, 0);
            tasks.begin(number);
            tasks.is_ready(number);
        }
        tasks.hold(DIRECT, 0);
        tasks.bar(true);
        assert_eq!((tasks.ready_bits(), tasks.begin_direct()), (0b1010, None));
        assert_eq!((tasks.next(), tasks.next()), (Some(3), None));
        let name = tasks.name(3);
        tasks.moved(3);
        tasks.forget(3);
        assert!(!tasks.is_current(name) && tasks.begin_direct().is_none());
        assert_eq!(tasks.next(), Some(1));
        tasks.swallow_all();
        assert_eq!(
            (tasks.ready_bits(), tasks.begin_direct()),
            (0, None),
            "it is there, unanswered"
        );
        tasks.forget(1);
        assert!(tasks.begin_direct().is_some() && tasks.are_moving());
        assert_eq!(tasks.begin_direct(), None);
    }

    #[test]
    fn a_write_that_is_ready_has_room_and_gives_it_once() {
        let write = Descriptor::new().with_blocks(8).into_bits();
        let mut tasks = Tasks::new();
        // Without direct commands the last task is one like the others.
        for number in [0, DIRECT] {
            for word in [write, write | Descriptor::new().with_read(true).into_bits()] {
                tasks.hold(number, word);
                tasks.begin(number);
                assert_eq!(tasks.take_room(number), 0);
                tasks.is_ready(number);
                assert_eq!(tasks.next(), Some(number));
                assert_eq!(tasks.take_room(number), if word == write { 4096 } else { 0 });
                assert_eq!(tasks.take_room(number), 0);
                tasks.moved(number);
                tasks.end(number);
                tasks.forget(number);
            }
        }
    }
}

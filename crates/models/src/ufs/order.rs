//! Task attributes: which command of a unit may start before which (SAM-6 8.9).
//!
//! A SIMPLE command waits for every older ORDERED one, an ORDERED one for everything older, a HEAD
//! OF QUEUE one for nothing. Units do not wait for each other. Almost all commands are SIMPLE and
//! meet no others: they pay for checking two flags.

use alloc::collections::VecDeque;

use flysch_wire::ufs::upiu::TaskAttribute;

use super::task::{Task, TaskRef, Tasks};

/// The commands that wait for older ones.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// In order of arrival.
    held_back: VecDeque<TaskRef>,
    /// Whether an ORDERED command is in the device.
    any_ordered: bool,
}

impl Order {
    /// Holds back the command in task `index` if older ones must end first; returns whether it did.
    #[inline]
    pub(super) fn hold_back(
        &mut self,
        index: u16,
        attribute: TaskAttribute,
        tasks: &mut Tasks,
    ) -> bool {
        let ordered = attribute == TaskAttribute::Ordered;
        tasks.get_mut(index).ordered = ordered;
        tasks.get_mut(index).held_back = false;
        if (!ordered && !self.any_ordered) || attribute == TaskAttribute::HeadOfQueue {
            return false;
        }
        self.any_ordered = true;
        let lun = tasks.get(index).lun;
        let waits = tasks.iter().any(|(other, task)| {
            let older = other != index && task.in_device() && task.is_command;
            older && task.lun == lun && (ordered || task.ordered)
        });
        if waits {
            tasks.get_mut(index).held_back = true;
            self.held_back.push_back(tasks.name(index));
        }
        waits
    }

    /// Whether any command may be waiting.
    #[inline]
    pub(super) fn is_waited_for(&self) -> bool {
        self.any_ordered
    }

    /// The first held-back command that no older one blocks.
    pub(super) fn next(&mut self, tasks: &mut Tasks) -> Option<TaskRef> {
        self.held_back.retain(|name| tasks.is_current(*name));
        let at = (0..self.held_back.len()).find(|&at| self.may_start(at, tasks))?;
        let name = self.held_back.remove(at)?;
        tasks.get_mut(name.index).held_back = false;
        Some(name)
    }

    /// All that may start have started.
    pub(super) fn settle(&mut self, tasks: &Tasks) {
        self.any_ordered = tasks.iter().any(|(_, task)| task.ordered && task.in_device());
    }

    /// Whether no older command blocks the held-back one at `at`.
    fn may_start(&self, at: usize, tasks: &Tasks) -> bool {
        let name = self.held_back[at];
        let me = tasks.get(name.index);
        let in_the_way = |task: &Task| task.lun == me.lun && (me.ordered || task.ordered);
        let mut held = self.held_back.iter().take(at);
        let mut running = tasks.iter().filter(|(index, task)| {
            *index != name.index && task.in_device() && task.is_command && !task.held_back
        });
        !running.any(|(_, task)| in_the_way(task))
            && !held.any(|name| in_the_way(tasks.get(name.index)))
    }

    /// The device holds no commands any more.
    pub(super) fn forget(&mut self) {
        self.held_back.clear();
        self.any_ordered = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::task::State;
    use super::*;

    /// A command of unit 0 in a new task.
    fn arrive(tasks: &mut Tasks) -> u16 {
        let index = tasks.take_any().unwrap();
        let task = tasks.get_mut(index);
        (task.state, task.is_command) = (State::Device, true);
        index
    }

    #[test]
    fn an_ordered_command_waits_for_all_and_all_wait_for_it() {
        let (mut order, mut tasks) = (Order::default(), Tasks::new(4));
        let first = arrive(&mut tasks);
        assert!(!order.hold_back(first, TaskAttribute::Simple, &mut tasks));
        let ordered = arrive(&mut tasks);
        assert!(order.hold_back(ordered, TaskAttribute::Ordered, &mut tasks));
        let last = arrive(&mut tasks);
        assert!(order.hold_back(last, TaskAttribute::Simple, &mut tasks));
        let head = arrive(&mut tasks);
        assert!(!order.hold_back(head, TaskAttribute::HeadOfQueue, &mut tasks));
        assert_eq!(order.next(&mut tasks), None);
        tasks.release(first, true);
        assert_eq!(order.next(&mut tasks), None, "the one that came ahead of it has not ended");
        tasks.release(head, true);
        assert_eq!(order.next(&mut tasks).map(|name| name.index), Some(ordered));
        assert_eq!(order.next(&mut tasks), None);
        tasks.release(ordered, true);
        assert_eq!(order.next(&mut tasks).map(|name| name.index), Some(last));
        order.settle(&tasks);
        assert!(!order.is_waited_for());
    }
}

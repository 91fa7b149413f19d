//! Task attributes: which command of a unit may start before which (SAM-6 8.9).
//!
//! A SIMPLE command waits for every older ORDERED one, an ORDERED one for everything older, a HEAD
//! OF QUEUE one for nothing. Units do not wait for each other. Almost all commands are SIMPLE and
//! meet no other: they pay for two flags being looked at.

use flysch_wire::ufs::upiu::{CommandUpiu, TaskAttribute};

use super::Ufs;
use super::task::TaskRef;

impl Ufs {
    /// Keeps the command in task `index` back if older ones must end first. Whether it did.
    #[inline]
    pub(super) fn hold_back(&mut self, index: u16, attribute: TaskAttribute) -> bool {
        let ordered = attribute == TaskAttribute::Ordered;
        self.tasks.get_mut(index).ordered = ordered;
        self.tasks.get_mut(index).held_back = false;
        if (!ordered && !self.device.any_ordered) || attribute == TaskAttribute::HeadOfQueue {
            return false;
        }
        self.device.any_ordered = true;
        let lun = self.tasks.get(index).lun;
        let waits = self.tasks.iter().any(|(other, task)| {
            let older = other != index && task.in_device() && task.is_command;
            older && task.lun == lun && (ordered || task.ordered)
        });
        if waits {
            self.tasks.get_mut(index).held_back = true;
            let name = self.tasks.name(index);
            self.device.held_back.push_back(name);
        }
        waits
    }

    /// A command has ended: starts those that waited for it.
    #[inline]
    pub(super) fn start_held_back(&mut self) {
        if self.device.any_ordered {
            self.start_what_may();
        }
    }

    fn start_what_may(&mut self) {
        let mut at = 0;
        while let Some(&name) = self.device.held_back.get(at) {
            if !self.tasks.is_current(name) {
                self.device.held_back.remove(at);
            } else if self.may_start(name, at) {
                self.device.held_back.remove(at);
                self.start_held(name);
                at = 0;
            } else {
                at += 1;
            }
        }
        self.device.any_ordered =
            self.tasks.iter().any(|(_, task)| task.ordered && task.in_device());
    }

    /// Whether nothing older than the command at `at` of those held back is in its way.
    fn may_start(&self, name: TaskRef, at: usize) -> bool {
        let me = self.tasks.get(name.index);
        let in_the_way =
            |task: &super::task::Task| task.lun == me.lun && (me.ordered || task.ordered);
        let held = self.device.held_back.iter().take(at);
        let mut held = held.filter(|name| self.tasks.is_current(**name));
        let mut running = self.tasks.iter().filter(|(index, task)| {
            *index != name.index && task.in_device() && task.is_command && !task.held_back
        });
        !running.any(|(_, task)| in_the_way(task))
            && !held.any(|name| in_the_way(self.tasks.get(name.index)))
    }

    fn start_held(&mut self, name: TaskRef) {
        self.tasks.get_mut(name.index).held_back = false;
        let Ok(unit) = CommandUpiu::parse(&self.tasks.get(name.index).request) else { return };
        let accepted = self.media.accept(self.now.nanos(), false);
        self.start_command(name.index, &unit, accepted);
    }
}

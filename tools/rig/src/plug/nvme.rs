//! NVMe: each namespace is a disk.

use flysch_nvme::{Host, Operation};

use super::{Part, Plug, reopen, shapes};
use crate::error::Error;
use crate::lane::scanned;
use crate::nvme::{Nvme, NvmeControl, NvmeMachine, disk_shape};

impl Plug for Nvme<NvmeMachine> {
    fn drivers(&self) -> (&'static str, &'static str) {
        ("nvme", "nda")
    }

    fn address(&self, disk: usize) -> (u32, u64) {
        (0, self.namespaces[disk].into())
    }

    fn has_loose_disks(&self) -> bool {
        true
    }

    fn pull(&mut self, part: Part) {
        let namespaces = &self.namespaces;
        self.machine.with_model(|model| match part {
            Part::Disk(disk) => model.set_attached(namespaces[disk], false),
            Part::Controller => model.unplug(),
        });
    }

    fn put_back(&mut self, part: Part) -> Result<(), Error> {
        match part {
            Part::Disk(disk) => {
                let namespace = self.namespaces[disk];
                self.machine.with_model(|model| model.set_attached(namespace, true));
                Ok(())
            }
            Part::Controller => {
                self.machine.with_model(|model| model.plug());
                reopen!(self, Host)
            }
        }
    }

    fn scan(&mut self, disk: usize) -> bool {
        let is_up = self.operate(Operation::Rescan).is_ok();
        let shape = || disk_shape(self.host().device(), self.namespaces[disk]).ok();
        let found = is_up.then(shape).flatten();
        let each = self.lanes.len() / self.namespaces.len();
        scanned(&mut self.lanes[disk * each..(disk + 1) * each], found)
    }
}

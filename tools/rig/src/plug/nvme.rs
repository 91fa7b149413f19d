//! NVMe: each namespace is a disk.

use flysch_api::machine::Instant;
use flysch_cam::Attention;
use flysch_nvme::{Host, Operation};

use super::{Part, Place, Plug, attention, reopen, shapes};
use crate::error::TargetError;
use crate::lane::scanned;
use crate::nvme::{Nvme, NvmeControl, NvmeMachine, disk_shape};

impl Plug for Nvme<NvmeMachine> {
    fn place(&self, disk: usize) -> Place {
        Place { controller: "nvme", periph: "nda", target: 0, lun: self.namespaces[disk].into() }
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

    fn put_back(&mut self, part: Part) -> Result<(), TargetError> {
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

    /// An event of the controller makes its driver look at the namespaces again: one may be missing
    /// then, or differ.
    fn told(&mut self, disk: usize) -> Attention {
        let now = disk_shape(self.host().device(), self.namespaces[disk]).ok();
        let each = self.lanes.len() / self.namespaces.len();
        let lanes = &mut self.lanes[disk * each..(disk + 1) * each];
        let is_other = now.is_some_and(|now| now != *lanes[0].disk.shape());
        let told = attention(lanes);
        let (luns, capacity) = (told.luns || now.is_none(), told.capacity || is_other);
        Attention { luns, capacity, ..told }
    }

    fn came(&mut self, disk: usize, now: Instant) -> bool {
        // The first lane may be that of another disk, whose outcomes are not ours to take.
        let _its_own = self.host_mut().poll(now);
        disk_shape(self.host().device(), self.namespaces[disk]).is_ok()
    }
}

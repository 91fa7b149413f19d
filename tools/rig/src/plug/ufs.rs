//! UFS: the logical units are parts of one device and lose power together.

use flysch_cam::Attention;
use flysch_ufs::Host;

use super::{Part, Place, Plug, attention, reopen, shapes};
use crate::error::TargetError;
use crate::lane::scanned;
use crate::ufs::{ModelMachine, Ufs, disk_shape};

impl Plug for Ufs<ModelMachine> {
    fn place(&self, disk: usize) -> Place {
        Place { controller: "ufshci", periph: "da", target: 0, lun: self.luns[disk].into() }
    }

    fn has_loose_disks(&self) -> bool {
        false
    }

    fn pull(&mut self, _: Part) {
        // The host knows of a store that fails.
        self.machine.with_model(|model| drop(model.cut_power()));
    }

    fn put_back(&mut self, _: Part) -> Result<(), TargetError> {
        self.machine.with_model(|model| model.restore_power());
        reopen!(self, Host)
    }

    fn scan(&mut self, disk: usize) -> bool {
        // Not the requests' memory: what their callers have there stays.
        let scratch = self.base.plan.scratch(&self.base.region, 0);
        let found = flysch_cam::scan(self.lanes[0].disk.port_mut(), &self.machine, &scratch);
        let is_up = found.is_ok();
        self.peripherals = found.unwrap_or_default();
        let found = disk_shape(&self.peripherals, self.luns[disk]).ok().filter(|_| is_up);
        let each = self.lanes.len() / self.luns.len();
        scanned(&mut self.lanes[disk * each..(disk + 1) * each], found)
    }

    fn told(&mut self, disk: usize) -> Attention {
        let each = self.lanes.len() / self.luns.len();
        attention(&mut self.lanes[disk * each..(disk + 1) * each])
    }
}

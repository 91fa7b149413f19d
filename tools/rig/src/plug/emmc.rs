//! eMMC and SD: the card is the only device of its controller.

use flysch_cam::Attention;
use flysch_emmc::{Host, Operation};

use super::{Part, Place, Plug, attention, reopen, shapes};
use crate::emmc::{Emmc, EmmcControl, EmmcMachine, disk_shape};
use crate::error::TargetError;
use crate::lane::scanned;

impl Plug for Emmc<EmmcMachine> {
    fn place(&self, _: usize) -> Place {
        Place { controller: "sdhci_slot", periph: "sdda", target: 0, lun: 0 }
    }

    fn has_loose_disks(&self) -> bool {
        false
    }

    fn pull(&mut self, _: Part) {
        self.machine.with_model(|model| model.unplug());
    }

    fn put_back(&mut self, _: Part) -> Result<(), TargetError> {
        self.machine.with_model(|model| model.plug());
        reopen!(self, Host)
    }

    fn scan(&mut self, _: usize) -> bool {
        let is_up = self.operate(Operation::Status).is_ok();
        let shape = || disk_shape(self.host().device(), self.block_min).ok();
        let found = is_up.then(shape).flatten();
        scanned(&mut self.lanes, found)
    }

    fn told(&mut self, _: usize) -> Attention {
        attention(&mut self.lanes)
    }
}

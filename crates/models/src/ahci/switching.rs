//! Which device behind a multiplier a FIS is from: FIS-based switching (AHCI 9.3).
//!
//! Without it the HBA has one task file for whoever it speaks to, and one device at a time has
//! commands. With it there is a task file for each of the sixteen ports, commands of all devices
//! are on their way at once, and an error of one device stands alone until the host clears it
//! (PxFBS.DEC), while the others go on. A second one that comes before makes it an error of the
//! whole port.

use flysch_wire::ata::registers::{Fbs, Tfd, signature, status};

use super::Ahci;
use super::list::{Seat, State};
use super::port::Port;

/// What the HBA knows of a device.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) tfd: Tfd,
    pub(super) sig: u32,
    /// The slot of its command that is not queued.
    pub(super) alone: Option<u8>,
    /// It told an error that is not cleared yet.
    pub(super) failed: bool,
}

impl File {
    pub(super) const NEW: Self = Self {
        tfd: Tfd::new().with_status(0x7F),
        sig: signature::NONE,
        alone: None,
        failed: false,
    };

    pub(super) fn is_busy(&self) -> bool {
        self.tfd.status() & (status::BSY | status::DRQ) != 0
    }
}

impl Port {
    /// The task file of the device at a port of a multiplier; the only one without switching.
    pub(super) fn file(&mut self, pmp: u8) -> &mut File {
        let at = if self.fbs.en() { pmp & 0xF } else { 0 };
        &mut self.files[usize::from(at)]
    }

    /// The task file that PxTFD and PxSIG show.
    pub(super) fn shown(&self) -> &File {
        &self.files[usize::from(if self.fbs.en() { self.fbs.dev() } else { 0 })]
    }

    /// Slots whose commands the device at `seat` has.
    #[inline]
    pub(super) fn taken_by(&self, seat: Seat) -> u32 {
        if !self.is_shared {
            return self.taken;
        }
        let is_its = |slot: &usize| self.tasks[*slot].seat == seat;
        let slots = (0..self.tasks.len()).filter(|slot| self.taken >> slot & 1 != 0);
        slots.filter(is_its).fold(0, |mask, slot| mask | 1 << slot)
    }

    /// Everything these slots have is gone.
    pub(super) fn drop_slots(&mut self, mask: u32) {
        for (slot, task) in self.tasks.iter_mut().enumerate() {
            if mask >> slot & 1 != 0 {
                task.state = State::Free;
                task.generation = task.generation.wrapping_add(1);
            }
        }
        self.taken &= !mask;
        for file in &mut self.files {
            file.alone = file.alone.filter(|slot| mask >> slot & 1 == 0);
        }
    }
}

impl Port {
    /// PxFBS is written; whether the list can go on because the error of a device is over.
    pub(super) fn switch(&mut self, new: Fbs) -> bool {
        let en = if self.cmd.st() { self.fbs.en() } else { new.en() };
        if en && !self.fbs.en() {
            // From now on each has one of its own; until it speaks it is as the one there was.
            self.files = [File { alone: None, ..self.files[0] }; 16];
        }
        self.fbs = self.fbs.with_en(en).with_dev(new.dev());
        let clears = new.dec() && en && self.fbs.sde();
        if clears {
            self.clear_device_error();
        }
        clears
    }

    /// The error of one device is over, and all its commands are forgotten.
    fn clear_device_error(&mut self) {
        let failed = self.fbs.dwe();
        let slots = (0..self.targets.len()).filter(|slot| self.targets[*slot] == failed);
        let mask = slots.fold(0, |mask, slot| mask | 1 << slot);
        (self.ci, self.sact) = (self.ci & !mask, self.sact & !mask);
        self.drop_slots(mask & self.taken);
        self.fbs.set_sde(false);
        let file = self.file(failed);
        file.failed = false;
        let idle = file.tfd.status() & !(status::BSY | status::DRQ);
        file.tfd = file.tfd.with_status(idle);
    }
}

impl Ahci {
    /// The device at `seat` has nothing any more.
    pub(super) fn drop_tasks_of(&mut self, seat: Seat) {
        let Some(home) = self.devices.home(seat) else { return };
        let at = &mut self.hba.ports[home.port];
        let mask = at.taken_by(seat);
        at.drop_slots(mask);
        if let Some(device) = self.devices.get_mut(seat) {
            device.backend.clear();
        }
    }
}

//! SATA: each port is a disk.

use flysch_ahci::{AhciError, Host, Operation, Progress, State};
use flysch_api::block::BlockDevice as _;
use flysch_api::command::Port as _;
use flysch_api::machine::{Clock, Instant};
use flysch_cam::Attention;

use super::{Part, Place, Plug, attention, reopen, shapes};
use crate::ahci::{Ahci, AhciMachine, disk_shape};
use crate::error::TargetError;
use crate::lane::scanned;

/// How long a port may take to determine whether there is a device, nanoseconds: as long as CAM
/// allows for a reset and an IDENTIFY together.
const SCAN_NANOS: u64 = 45_000_000_000;

impl Ahci<AhciMachine> {
    /// Has a port look for a device: COMRESET, and the following queries. All ports are driven,
    /// because the first one does the work of the HBA.
    fn reset_port(&mut self, at: usize) -> Result<(), AhciError> {
        let machine = self.machine.clone();
        let end = machine.now().after_nanos(SCAN_NANOS);
        let mut is_begun = false;
        while machine.now() < end {
            let now = machine.now();
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                let port = lane.disk.port_mut();
                match port.drive(now) {
                    _ if number != at => {}
                    Progress::Done(result) if is_begun => return result.map(drop),
                    Progress::Busy => {}
                    _ if is_begun => {}
                    _ => {
                        port.begin(Operation::Reset)?;
                        is_begun = true;
                    }
                }
            }
            let until = self.lanes.iter().filter_map(|lane| lane.disk.port().poll_at()).min();
            machine.wait(Some(until.map_or(end, |until| until.min(end))));
        }
        Err(AhciError::Gone)
    }
}

impl Plug for Ahci<AhciMachine> {
    fn place(&self, disk: usize) -> Place {
        Place { controller: "ahci", periph: "ada", target: disk as u32, lun: 0 }
    }

    fn has_loose_disks(&self) -> bool {
        true
    }

    fn pull(&mut self, part: Part) {
        match part {
            Part::Disk(disk) => self.machine.with_model(|model| model.pull_off(disk as u8)),
            Part::Controller => {
                self.machine.with_model(|model| model.unplug());
                // As a slot tells of it: without, an HBA is missed when commands are overdue. One
                // that is being reset finds out by itself.
                let _is_busy = self.lanes[0].disk.port_mut().reset_hba();
            }
        }
    }

    fn put_back(&mut self, part: Part) -> Result<(), TargetError> {
        match part {
            Part::Disk(disk) => {
                self.machine.with_model(|model| model.plug_in(disk as u8));
                Ok(())
            }
            Part::Controller => {
                self.machine.with_model(|model| model.plug());
                reopen!(self, Host)
            }
        }
    }

    fn scan(&mut self, disk: usize) -> bool {
        let is_there = self.reset_port(disk).is_ok();
        // With nothing to do the port parks: the first one waits for no other then.
        let _nothing = self.lanes[disk].poll(self.machine.now());
        let device = self.lanes[disk].disk.port().device().filter(|_| is_there);
        let found = device.and_then(|device| disk_shape(device).ok());
        if found.is_none() {
            // Who comes is seen by `came`: nobody else polls the port, which would interrupt on.
            self.lanes[disk].disk.port_mut().silence();
        }
        scanned(&mut self.lanes[disk..=disk], found)
    }

    fn told(&mut self, disk: usize) -> Attention {
        let is_empty = self.lanes[disk].disk.port().state() == State::Empty;
        let told = attention(&mut self.lanes[disk..=disk]);
        Attention { luns: told.luns || is_empty, ..told }
    }

    fn came(&mut self, disk: usize, now: Instant) -> bool {
        let lane = &mut self.lanes[disk];
        // It is lost, so that nothing of it is in hand; polled, the port sees its link come.
        let _nothing = lane.poll(now);
        let is_coming = lane.disk.port_mut().drive(now) == Progress::Busy;
        if !is_coming {
            // With nothing to do it parks: the first port waits for no other then.
            let _nothing = lane.poll(now);
        }
        is_coming || lane.disk.port().state() == State::Up
    }
}

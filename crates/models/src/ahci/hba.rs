//! The host's side of an HBA: its registers, the lists of its ports, what it writes into the
//! host's memory.

use alloc::vec;
use alloc::vec::Vec;

use flysch_api::machine::{GuestMemory, Instant};
use flysch_wire::ata::D2h;
use flysch_wire::ata::fis::{PioSetup, SetDeviceBits};
use flysch_wire::ata::list::{
    self, RECEIVED_LENGTH, RECEIVED_PSFIS, RECEIVED_RFIS, RECEIVED_SDBFIS,
};
use flysch_wire::ata::multiplier::CONTROL_PORT;
use flysch_wire::ata::registers::{PORTS_MAX, Tfd, interrupt, serror, status};

use super::controller::Registers;
use super::flow::Good;
use super::inject::Ending;
use super::list::{Ports, State};
use super::port::{Port, READY};

/// The host's side of an HBA.
#[derive(Debug)]
pub(super) struct Hba {
    pub(super) memory: GuestMemory,
    pub(super) registers: Registers,
    pub(super) ports: Ports,
    /// When the device finished, by port and slot, nanoseconds.
    done: Vec<u64>,
    /// Completions without an interrupt because none is enabled.
    pub(super) silent: u64,
}

impl Hba {
    pub(super) fn new(memory: GuestMemory, registers: Registers, ports: Ports) -> Self {
        Self { memory, registers, ports, done: vec![0; PORTS_MAX * PORTS_MAX], silent: 0 }
    }

    /// When the device finished the command last ended in a slot.
    pub(super) fn done_at(&self, port: u16, slot: u16) -> Option<Instant> {
        let at = usize::from(port) * PORTS_MAX + usize::from(slot);
        let nanos = *self.done.get(at).filter(|_| usize::from(slot) < PORTS_MAX)?;
        (nanos != 0).then_some(Instant::from_nanos(nanos))
    }

    /// A device finishes the command in a slot at `now`.
    pub(super) fn note_done(&mut self, port: u8, slot: u8, now: u64) {
        self.done[usize::from(port) * PORTS_MAX + usize::from(slot)] = now;
    }

    /// Sets bits of PxIS, and the line if they are enabled.
    pub(super) fn raise(&mut self, port: u8, bits: u32) {
        let at = &mut self.ports[port];
        at.is |= bits;
        if at.is_pending() {
            self.registers.is |= 1 << port;
        } else if bits & interrupt::GOOD != 0 {
            self.silent += 1;
        }
    }

    /// Sets bits of PxSERR, which show in PxIS.
    pub(super) fn raise_error(&mut self, port: u8, bits: u32) {
        self.ports[port].serr |= bits;
        self.raise(port, 0);
    }

    /// A signature has come from a port of a multiplier, or from the device.
    pub(super) fn hold(&mut self, port: u8, pmp: u8, fis: D2h) {
        self.ports[port].held = Some((pmp, fis));
        self.deliver_held(port);
    }

    /// A signature goes to memory once FISes are received and PxSERR.DIAG.X is clear.
    pub(super) fn deliver_held(&mut self, port: u8) {
        let at = &mut self.ports[port];
        if !at.cmd.fre() || at.serr & serror::EXCHANGED != 0 {
            return;
        }
        let Some((pmp, fis)) = at.held.take() else { return };
        let tfd = Tfd::new().with_status(fis.status).with_error(fis.error);
        let sig = fis.signature();
        if core::mem::take(&mut at.is_fresh) {
            // A COMRESET is of the one link there is: whichever device software looks at, it sees
            // that the link is ready and what answered.
            at.files.iter_mut().for_each(|file| (file.tfd, file.sig) = (tfd, sig));
        } else {
            let file = at.file(pmp);
            (file.tfd, file.sig) = (tfd, sig);
        }
        self.post(port, pmp, RECEIVED_RFIS, &fis.to_bytes());
        self.raise(port, interrupt::DHRS);
    }

    /// Writes a FIS from a port of a multiplier into the area for received ones, whose part it has
    /// with FIS-based switching; the HBA fails if it is not there.
    pub(super) fn post<const N: usize>(&mut self, port: u8, pmp: u8, at: usize, fis: &[u8; N]) {
        let Port { fb, fbs, .. } = self.ports[port];
        let part = if fbs.en() { usize::from(pmp) * RECEIVED_LENGTH } else { 0 };
        let mut fis = *fis;
        fis[1] |= pmp;
        if self.memory.write(fb + (part + at) as u64, &fis).is_err() {
            self.halt(port, interrupt::HBFS);
        }
    }

    /// Something went wrong that stops the list.
    pub(super) fn halt(&mut self, port: u8, bits: u32) {
        self.ports[port].is_halted = true;
        self.raise(port, bits);
    }

    /// A command ends well at `now`, and is told of so.
    pub(super) fn end_well(
        &mut self,
        (port, slot): (u8, u8),
        good: Good,
        (ending, now): (Ending, u64),
    ) {
        let task = *self.ports[port].task(slot);
        if ending == Ending::Never {
            self.ports[port].task_mut(slot).state = State::Swallowed;
            return;
        }
        self.note_done(port, slot, now);
        let mut bits = interrupt::SDBS;
        if task.is_queued {
            self.end_queued(port, slot);
        } else {
            let list = self.ports[port].clb;
            let at = list + u64::from(slot) * list::HEADER as u64 + list::PRDBC as u64;
            if self.memory.store32(at, good.moved.to_le()).is_err() {
                return self.halt(port, interrupt::HBFS);
            }
            let fis = D2h {
                interrupt: true,
                status: READY,
                error: 0,
                lba: good.lba,
                device: task.fis.device,
                count: good.count,
            };
            self.end_alone(port, slot, fis, good.pio);
            bits = if good.pio.is_some() { interrupt::PSS } else { interrupt::DHRS };
        }
        if ending != Ending::Silent {
            self.raise(port, bits);
        }
    }

    /// A queued command ends well.
    pub(super) fn end_queued(&mut self, port: u8, slot: u8) {
        let at = &mut self.ports[port];
        let pmp = at.tasks[usize::from(slot)].pmp;
        at.sact &= !(1 << slot);
        at.file(pmp).tfd = Tfd::new().with_status(READY);
        at.free(slot);
        let fis = SetDeviceBits {
            interrupt: true,
            status: READY,
            ended: 1 << slot,
            ..SetDeviceBits::default()
        };
        self.post(port, pmp, RECEIVED_SDBFIS, &fis.to_bytes());
    }

    /// A command that is not queued ends: with its registers, and after data by PIO with those of
    /// its setup.
    pub(super) fn end_alone(&mut self, port: u8, slot: u8, fis: D2h, pio: Option<u16>) {
        let at = &mut self.ports[port];
        let pmp = at.tasks[usize::from(slot)].pmp;
        at.file(pmp).tfd = Tfd::new().with_status(fis.status).with_error(fis.error);
        if fis.status & status::ERR == 0 {
            at.ci &= !(1 << slot);
        }
        at.free(slot);
        match pio {
            Some(bytes) => {
                let setup = PioSetup {
                    to_host: true,
                    interrupt: true,
                    status: READY | status::DRQ,
                    error: 0,
                    end_status: fis.status,
                    bytes,
                };
                self.post(port, pmp, RECEIVED_PSFIS, &setup.to_bytes());
            }
            None => self.post(port, pmp, RECEIVED_RFIS, &fis.to_bytes()),
        }
    }

    /// Something went wrong with one device: it stands alone if the HBA can keep it apart, else
    /// the list stands still.
    pub(super) fn halt_device(&mut self, port: u8, pmp: u8, bits: u32) {
        let at = &mut self.ports[port];
        if !at.fbs.en() || at.fbs.sde() || at.is_halted {
            at.fbs.set_sde(false);
            return self.halt(port, bits);
        }
        at.fbs = at.fbs.with_sde(true).with_dwe(pmp);
        at.file(pmp).failed = true;
        self.raise(port, bits);
    }

    /// The multiplier at a port has something to tell.
    pub(super) fn notify(&mut self, port: u8) {
        let at = &mut self.ports[port];
        at.sntf |= 1 << CONTROL_PORT;
        if !at.cmd.fre() {
            return;
        }
        let fis = SetDeviceBits {
            interrupt: true,
            notification: true,
            status: READY,
            ..SetDeviceBits::default()
        };
        self.post(port, CONTROL_PORT, RECEIVED_SDBFIS, &fis.to_bytes());
        self.raise(port, interrupt::SDBS);
    }
}

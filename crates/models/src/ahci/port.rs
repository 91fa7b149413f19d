//! One port: its registers, its link, what the HBA does with its list.

use flysch_wire::ata::D2h;
use flysch_wire::ata::fis::{PioSetup, SetDeviceBits};
use flysch_wire::ata::list::{RECEIVED_LENGTH, RECEIVED_PSFIS, RECEIVED_RFIS, RECEIVED_SDBFIS};
use flysch_wire::ata::multiplier::CONTROL_PORT;
use flysch_wire::ata::registers::{
    self as reg, DevSleep, Fbs, PortCmd, Sctl, Ssts, Tfd, det, icc, interrupt, serror, status,
};

use super::list::{MULTIPLIER, NOBODY, Seat, State, Task, Unfit, Work};
use super::profile::level;
use super::switching::File;
use super::{Ahci, Event};
use crate::faults::Kind;

/// From the end of COMRESET to a link that works: OOB and the negotiation of a speed, nanoseconds
/// (assumed; SATA 8.4.2 allows 10 ms).
pub(super) const LINK_NS: u64 = 2_000_000;
/// STATUS of a device that is ready.
pub(super) const READY: u8 = status::DRDY | status::DSC;

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) clb: u64,
    pub(super) fb: u64,
    pub(super) is: u32,
    pub(super) ie: u32,
    pub(super) cmd: PortCmd,
    /// What is known of the device, or by ports of a multiplier of each (FIS-based switching).
    pub(super) files: [File; 16],
    /// Speed of the link, 0 while there is none.
    pub(super) speed: u8,
    /// Power state of the link, as the host asked for it.
    pub(super) ipm: u8,
    pub(super) sctl: Sctl,
    pub(super) serr: u32,
    pub(super) sact: u32,
    pub(super) ci: u32,
    pub(super) sleep: DevSleep,
    pub(super) sntf: u16,
    pub(super) fbs: Fbs,
    /// A multiplier is at it.
    pub(super) is_shared: bool,
    /// Slots that devices have.
    pub(super) taken: u32,
    /// PxFBS.DEV when each slot was issued.
    pub(super) targets: [u8; reg::PORTS_MAX],
    /// The list stands still until it is restarted.
    pub(super) is_halted: bool,
    /// The list does not stop any more (a fault).
    pub(super) is_stuck: bool,
    /// No device has spoken since the link came up: the task files are still one.
    pub(super) is_fresh: bool,
    /// A signature that waits until PxSERR.DIAG.X is cleared or FISes are received, and the port of
    /// a multiplier it is from.
    pub(super) held: Option<(u8, D2h)>,
    pub(super) tasks: [Task; reg::PORTS_MAX],
    /// Counts resets of the link; an event of an earlier life is stale.
    pub(super) epoch: u32,
    /// Ports of a multiplier for which SRST is asserted, a bit each.
    pub(super) soft_resets: u16,
}

impl Port {
    pub(super) fn new(is_shared: bool) -> Self {
        Self {
            clb: 0,
            fb: 0,
            is: 0,
            ie: 0,
            cmd: PortCmd::new(),
            files: [File::NEW; 16],
            speed: 0,
            ipm: 0,
            sctl: Sctl::new(),
            serr: 0,
            sact: 0,
            ci: 0,
            sleep: DevSleep::new(),
            sntf: 0,
            fbs: Fbs::new(),
            is_shared,
            taken: 0,
            targets: [0; reg::PORTS_MAX],
            is_halted: false,
            is_stuck: false,
            is_fresh: false,
            held: None,
            tasks: [Task::default(); reg::PORTS_MAX],
            epoch: 0,
            soft_resets: 0,
        }
    }

    /// PxIS: what was raised, and what PxSERR shows.
    pub(super) fn interrupts(&self) -> u32 {
        let shown = |bit, as_bit| if self.serr & bit != 0 { as_bit } else { 0 };
        self.is
            | shown(serror::EXCHANGED, interrupt::PCS)
            | shown(serror::PHYRDY, interrupt::PRCS)
            | shown(serror::UNKNOWN_FIS, interrupt::UFS)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.interrupts() & self.ie != 0
    }

    /// Everything the device has for this port is gone.
    pub(super) fn drop_tasks(&mut self) {
        self.drop_slots(u32::MAX);
        self.fbs.set_sde(false);
        self.files.iter_mut().for_each(|file| file.failed = false);
    }

    /// As after a reset of the HBA; what counts lives goes on.
    pub(super) fn reset(&mut self) {
        self.drop_tasks();
        let (tasks, epoch) = (self.tasks, self.epoch.wrapping_add(1));
        *self = Self { tasks, epoch, ..Self::new(self.is_shared) };
    }
}

impl Ahci {
    fn port_mut(&mut self, port: u8) -> &mut Port {
        &mut self.ports[usize::from(port)]
    }

    /// Sets bits of PxIS, and the line if they are enabled.
    pub(super) fn raise(&mut self, port: u8, bits: u32) {
        let at = self.port_mut(port);
        at.is |= bits;
        if at.is_pending() {
            self.registers.is |= 1 << port;
        } else if bits & interrupt::GOOD != 0 {
            self.silent += 1;
        }
    }

    /// Sets bits of PxSERR, which show in PxIS.
    fn raise_error(&mut self, port: u8, bits: u32) {
        self.port_mut(port).serr |= bits;
        self.raise(port, 0);
    }

    pub(super) fn read_port(&mut self, port: u8, register: u32) -> u32 {
        let at = &self.ports[usize::from(port)];
        match register {
            reg::PX_CLB => at.clb as u32,
            reg::PX_CLBU => (at.clb >> 32) as u32,
            reg::PX_FB => at.fb as u32,
            reg::PX_FBU => (at.fb >> 32) as u32,
            reg::PX_IS => at.interrupts(),
            reg::PX_IE => at.ie,
            reg::PX_CMD => {
                let ccs = at.shown().alone.unwrap_or(at.ci.trailing_zeros() as u8 & 31);
                let switches = self.registers.cap.fbss();
                at.cmd.with_ccs(ccs).with_hpcp(true).with_fbscp(switches).into_bits()
            }
            reg::PX_TFD => at.shown().tfd.into_bits(),
            reg::PX_SIG => at.shown().sig,
            reg::PX_SNTF => at.sntf.into(),
            reg::PX_FBS if self.registers.cap.fbss() => {
                // What the queue of one device makes of its media is all it gains by more.
                at.fbs.with_ado(2).into_bits()
            }
            reg::PX_SSTS => self.link_state(port).into_bits(),
            reg::PX_SCTL => at.sctl.into_bits(),
            reg::PX_SERR => at.serr,
            reg::PX_SACT => at.sact,
            reg::PX_CI => at.ci,
            reg::PX_DEVSLP => {
                let sleeps = self.device(port.into()).is_some_and(|device| device.can_sleep());
                at.sleep.with_dsp(sleeps).into_bits()
            }
            _ => 0,
        }
    }

    /// PxSSTS.
    fn link_state(&self, port: u8) -> Ssts {
        let at = &self.ports[usize::from(port)];
        if at.sctl.det() == det::OFF {
            return Ssts::new().with_det(det::OFF);
        }
        if at.speed == 0 {
            return Ssts::new();
        }
        let asleep =
            self.device(port.into()).is_some_and(|d| d.media.is_auto_hibernated(self.now.nanos()));
        let ipm = match (asleep, at.cmd.asp()) {
            (true, true) => icc::SLUMBER,
            (true, false) => icc::PARTIAL,
            (false, _) => at.ipm,
        };
        Ssts::new().with_det(det::READY).with_spd(at.speed).with_ipm(ipm)
    }

    pub(super) fn write_port(&mut self, port: u8, register: u32, value: u32) {
        let (wide, slots) = (self.registers.cap.s64a(), self.registers.slots());
        let at = self.port_mut(port);
        let upper = |base: u64| base & 0xFFFF_FFFF | u64::from(if wide { value } else { 0 }) << 32;
        let lower = |base: u64, mask: u32| base & !0xFFFF_FFFF | u64::from(value & mask);
        match register {
            reg::PX_CLB => at.clb = lower(at.clb, !0x3FF),
            reg::PX_CLBU => at.clb = upper(at.clb),
            reg::PX_FB => at.fb = lower(at.fb, !0xFF),
            reg::PX_FBU => at.fb = upper(at.fb),
            reg::PX_IS => at.is &= !value,
            reg::PX_IE => {
                at.ie = value;
                self.raise(port, 0);
            }
            reg::PX_CMD => self.command_port(port, PortCmd::from_bits(value)),
            reg::PX_SCTL => self.control_link(port, Sctl::from_bits(value)),
            reg::PX_SERR => {
                at.serr &= !value;
                self.deliver_held(port);
            }
            reg::PX_SACT if at.cmd.st() => at.sact |= value & slots,
            reg::PX_CI if at.cmd.st() => {
                let new = value & slots & !at.ci;
                at.ci |= new;
                if at.fbs.en() {
                    let dev = at.fbs.dev();
                    let is_new = |(slot, _): &(usize, &mut u8)| new >> slot & 1 != 0;
                    at.targets.iter_mut().enumerate().filter(is_new).for_each(|(_, to)| *to = dev);
                }
                self.pump(port);
            }
            reg::PX_SNTF => at.sntf &= !(value as u16),
            reg::PX_FBS => self.switch(port, Fbs::from_bits(value)),
            reg::PX_DEVSLP => {
                at.sleep = DevSleep::from_bits(value);
                self.set_link_power(port);
            }
            _ => {}
        }
    }

    /// PxCMD is written.
    fn command_port(&mut self, port: u8, new: PortCmd) {
        let (staggered, overrides) = (self.registers.cap.sss(), self.registers.cap.sclo());
        let multiplies = self.registers.cap.spm();
        let stuck = self.faults.is_active()
            && self.ports[usize::from(port)].cmd.st()
            && !new.st()
            && self.faults.fires(Kind::ListStuck, self.now, port.into());
        let at = self.port_mut(port);
        let old = at.cmd;
        at.is_stuck |= stuck;
        // What is read only, or goes by itself.
        let spun_up = new.sud() || !staggered;
        let starts = new.st() && !old.st();
        let mut cmd = old
            .with_st(new.st())
            .with_sud(spun_up)
            .with_pod(true)
            .with_fre(new.fre())
            .with_fr(new.fre())
            .with_pma(if old.st() { old.pma() } else { multiplies && new.pma() })
            .with_atapi(new.atapi())
            .with_alpe(new.alpe())
            .with_asp(new.asp());
        if starts {
            cmd = cmd.with_cr(new.fre());
        }
        at.cmd = cmd;
        if new.clo() && overrides {
            for file in &mut at.files {
                let status = file.tfd.status() & !(status::BSY | status::DRQ);
                file.tfd = file.tfd.with_status(status);
            }
        }
        match new.icc() {
            icc::ACTIVE if at.speed != 0 => at.ipm = icc::ACTIVE,
            // 3 forbids partial and slumber, one bit each.
            icc::PARTIAL if at.speed != 0 && at.sctl.ipm() & 1 == 0 => at.ipm = icc::PARTIAL,
            icc::SLUMBER if at.speed != 0 && at.sctl.ipm() & 2 == 0 => at.ipm = icc::SLUMBER,
            _ => {}
        }
        if old.st() && !new.st() {
            self.stop_list(port);
        }
        self.set_link_power(port);
        if spun_up && !old.sud() {
            self.begin_link(port);
        }
        self.deliver_held(port);
        if starts {
            self.pump(port);
        }
    }

    /// PxCMD.ST falls: the list is empty, and what the device had is forgotten. A device with a
    /// command that is not queued stays busy with it.
    fn stop_list(&mut self, port: u8) {
        let at = self.port_mut(port);
        (at.ci, at.sact, at.is_halted) = (0, 0, false);
        at.drop_tasks();
        if !at.is_stuck {
            at.cmd.set_cr(false);
        }
        for seat in self.seats(port).into_iter().flatten() {
            if let Some(device) = self.device_mut(seat) {
                device.forget_waits();
            }
            self.admit_writes(seat);
        }
    }

    /// How deep the link sleeps by itself, as the port is set up.
    pub(super) fn set_link_power(&mut self, port: u8) {
        let at = &self.ports[usize::from(port)];
        let forbidden = at.sctl.ipm();
        let (on, deep, aggressive) = (at.cmd.alpe(), at.cmd.asp(), at.sleep.adse());
        let Some(device) = self.device_mut(port.into()) else { return };
        let wake = device.wake_ns;
        let allowed = |bit: u8| forbidden & bit == 0;
        let sleep = match (on, deep) {
            (true, true) if aggressive && device.sleeps && allowed(4) => level::DEVSLEEP,
            (true, true) if allowed(2) => level::SLUMBER,
            (true, false) if allowed(1) => level::PARTIAL,
            _ => return device.media.set_auto_hibern8((0, 0), level::ACTIVE),
        };
        let exit = wake[sleep - level::PARTIAL];
        device.media.set_auto_hibern8((super::device::IDLE_NS, exit), sleep);
    }

    /// PxSCTL is written.
    fn control_link(&mut self, port: u8, new: Sctl) {
        let old = core::mem::replace(&mut self.port_mut(port).sctl, new);
        self.set_link_power(port);
        match (old.det(), new.det()) {
            (1, 1) => {}
            (_, 1) | (_, det::OFF) => self.link_down(port),
            (1, 0) | (det::OFF, 0) => self.begin_link(port),
            _ => {}
        }
    }

    /// The link is gone, and with it everything that was on its way.
    pub(super) fn link_down(&mut self, port: u8) {
        let at = self.port_mut(port);
        at.epoch = at.epoch.wrapping_add(1);
        (at.speed, at.ipm, at.held, at.soft_resets) = (0, 0, None, 0);
        at.drop_tasks();
        at.files = [File { tfd: Tfd::new().with_status(status::BSY | 0x7F), ..File::NEW }; 16];
        let now = self.now.nanos();
        self.multiplier_down(port);
        for seat in self.seats(port).into_iter().flatten() {
            if let Some(device) = self.device_mut(seat) {
                device.link_is_reset(now);
            }
            self.admit_writes(seat);
        }
    }

    /// The link begins to come up, if somebody is at the other end.
    pub(super) fn begin_link(&mut self, port: u8) {
        let at = &self.ports[usize::from(port)];
        let (epoch, asked) = (at.epoch, at.cmd.sud() && at.sctl.det() == 0);
        let answers = match self.multiplier(port) {
            Some(multiplier) => multiplier.is_there(),
            None => self.device(port.into()).is_some_and(|device| device.is_there()),
        };
        let deaf = asked
            && answers
            && self.faults.is_active()
            && self.faults.fires(Kind::Deaf, self.now, port.into());
        if asked && answers && !deaf && !self.registers.is_unplugged {
            self.after(LINK_NS, Event::Link { port, epoch });
        }
    }

    /// The link is up: the device gets ready.
    pub(super) fn link_up(&mut self, port: u8) {
        let limit = match self.ports[usize::from(port)].sctl.spd() {
            0 => 3,
            limit => limit,
        };
        let most = self.registers.cap.iss().min(limit);
        let multiplied = self.multiplier_up(port, most);
        let (speed, ready_ns) = match (multiplied, self.device_mut(port.into())) {
            (Some(speed), _) => (speed, None),
            (None, Some(device)) => (device.link_up(most), Some(device.ready_ns)),
            (None, None) => return,
        };
        let at = self.port_mut(port);
        (at.speed, at.ipm) = (speed, icc::ACTIVE);
        at.files.iter_mut().for_each(|file| file.tfd = Tfd::new().with_status(status::BSY));
        at.is_fresh = true;
        let epoch = at.epoch;
        self.raise_error(port, serror::EXCHANGED | serror::PHYRDY);
        // Behind a multiplier the first device sends the signature.
        let Some(ready_ns) = ready_ns else { return };
        self.set_link_power(port);
        let stays_busy =
            self.faults.is_active() && self.faults.fires(Kind::BusyStuck, self.now, port.into());
        if !stays_busy {
            self.after(ready_ns, Event::Signature { port, epoch });
        }
    }

    /// The device is ready after a reset: it sends its signature.
    pub(super) fn device_ready(&mut self, port: u8) {
        if self.multiplier(port).is_some() {
            return self.fan_ready(port, CONTROL_PORT);
        }
        let Some(device) = self.device(port.into()) else { return };
        self.hold(port, 0, device.signature_fis());
    }

    /// A signature has come from a port of a multiplier, or from the device.
    pub(super) fn hold(&mut self, port: u8, pmp: u8, fis: D2h) {
        self.port_mut(port).held = Some((pmp, fis));
        self.deliver_held(port);
    }

    /// A signature goes to memory once FISes are received and PxSERR.DIAG.X is clear.
    fn deliver_held(&mut self, port: u8) {
        let at = self.port_mut(port);
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
        let Port { fb, fbs, .. } = self.ports[usize::from(port)];
        let part = if fbs.en() { usize::from(pmp) * RECEIVED_LENGTH } else { 0 };
        let mut fis = *fis;
        fis[1] |= pmp;
        if self.memory.write(fb + (part + at) as u64, &fis).is_err() {
            self.halt(port, interrupt::HBFS);
        }
    }

    /// Something went wrong that stops the list.
    pub(super) fn halt(&mut self, port: u8, bits: u32) {
        self.port_mut(port).is_halted = true;
        self.raise(port, bits);
    }

    /// Takes commands from the list as far as the device can have them.
    pub(super) fn pump(&mut self, port: u8) {
        while let Some(slot) = self.next_slot(port) {
            self.issue(port, slot);
        }
    }

    /// The next slot whose device can have its command.
    #[inline]
    fn next_slot(&mut self, port: u8) -> Option<u8> {
        let at = self.port_mut(port);
        let runs = at.cmd.cr() && at.cmd.st() && !at.is_halted && at.speed != 0;
        let mut next = if runs { at.ci & !at.taken } else { 0 };
        while next != 0 {
            let slot = next.trailing_zeros() as u8;
            let file = at.file(at.targets[usize::from(slot)]);
            if !file.is_busy() && file.alone.is_none() && !file.failed {
                return Some(slot);
            }
            next &= next - 1;
            if !at.fbs.en() {
                return None;
            }
        }
        None
    }

    /// The device a command goes to by its port of a multiplier.
    fn seat_for(&self, port: u8, pmp: u8) -> Seat {
        match self.multiplier(port) {
            None => port.into(),
            Some(_) if pmp == CONTROL_PORT => MULTIPLIER,
            Some(multiplier) => multiplier.reached(pmp).unwrap_or(NOBODY),
        }
    }

    /// Sends the command in a slot to the device.
    fn issue(&mut self, port: u8, slot: u8) {
        let bit = 1 << slot;
        let task = match self.fetch(port, slot) {
            Ok(task) => task,
            Err(Unfit) => return self.halt(port, interrupt::HBFS),
        };
        let at = &self.ports[usize::from(port)];
        let pmp = if at.is_shared { task.fis.pmp } else { 0 };
        let meant = if at.fbs.en() { at.targets[usize::from(slot)] } else { pmp };
        if at.is_shared && (task.flags.pmp(), meant) != (pmp, pmp) {
            // Data would go to another device than the command.
            return self.halt(port, interrupt::IFS);
        }
        if !task.fis.is_command {
            return self.control(port, slot, pmp, task.fis.control);
        }
        let seat = self.seat_for(port, pmp);
        let is_queued = super::command::is_queued(task.fis.command);
        let at = self.port_mut(port);
        if at.is_shared && !at.fbs.en() && at.taken & !at.taken_by(seat) != 0 {
            // Without switching there is one device at a time: the HBA mixes up who answers.
            return self.halt(port, interrupt::IPMS | interrupt::IFS);
        }
        let place = &mut at.tasks[usize::from(slot)];
        let generation = place.generation.wrapping_add(1);
        *place = Task { generation, is_queued, seat, pmp, ..task };
        at.taken |= bit;
        if is_queued {
            // The device has taken it: a FIS without an interrupt clears the bit.
            at.ci &= !bit;
        } else {
            let file = at.file(pmp);
            file.alone = Some(slot);
            file.tfd = file.tfd.with_status(file.tfd.status() & !status::ERR | status::BSY);
        }
        self.receive(port, slot);
    }

    /// A control FIS: soft reset.
    fn control(&mut self, port: u8, slot: u8, pmp: u8, control: u8) {
        let at = self.port_mut(port);
        at.ci &= !(1 << slot);
        let asserted = control & flysch_wire::ata::fis::SRST != 0;
        let was = at.soft_resets >> pmp & 1 != 0;
        at.soft_resets = at.soft_resets & !(1 << pmp) | u16::from(asserted) << pmp;
        if asserted {
            return self.soft_reset(port, pmp);
        }
        if !was {
            return;
        }
        let file = at.file(pmp);
        file.tfd = file.tfd.with_status(status::BSY);
        if at.is_shared {
            return self.released_behind(port, pmp);
        }
        let epoch = at.epoch;
        let ready_ns = self.device(port.into()).map_or(0, |device| device.ready_ns);
        self.after(ready_ns, Event::Signature { port, epoch });
    }

    /// SRST is asserted: what the device had is gone.
    fn soft_reset(&mut self, port: u8, pmp: u8) {
        let at = self.port_mut(port);
        let file = at.file(pmp);
        file.alone = None;
        file.tfd = file.tfd.with_status(file.tfd.status() & !(status::BSY | status::DRQ));
        if at.is_shared {
            return self.reset_behind(port, pmp);
        }
        at.epoch = at.epoch.wrapping_add(1);
        at.drop_tasks();
        let now = self.now.nanos();
        if let Some(device) = self.device_mut(port.into()) {
            device.link_is_reset(now);
        }
    }

    /// A queued command ends well.
    pub(super) fn end_queued(&mut self, port: u8, slot: u8) {
        let at = self.port_mut(port);
        let pmp = at.tasks[usize::from(slot)].pmp;
        at.sact &= !(1 << slot);
        at.file(pmp).tfd = Tfd::new().with_status(READY);
        self.free(port, slot);
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
        let at = self.port_mut(port);
        let pmp = at.tasks[usize::from(slot)].pmp;
        at.file(pmp).tfd = Tfd::new().with_status(fis.status).with_error(fis.error);
        if fis.status & status::ERR == 0 {
            at.ci &= !(1 << slot);
        }
        self.free(port, slot);
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

    /// The device tells an error: the list stands still, or that device alone. Of queued commands
    /// every one stays active.
    pub(super) fn end_badly(&mut self, port: u8, slot: u8, fis: D2h, is_queued: bool) {
        let Task { seat, pmp, .. } = *self.task(port, slot);
        if !is_queued {
            self.end_alone(port, slot, D2h { interrupt: true, ..fis }, None);
            return self.halt_device(port, pmp, interrupt::TFES | interrupt::DHRS);
        }
        let at = self.port_mut(port);
        at.file(pmp).tfd = Tfd::new().with_status(fis.status).with_error(fis.error);
        let D2h { status, error, .. } = fis;
        let sdb = SetDeviceBits { interrupt: true, status, error, ..SetDeviceBits::default() };
        // The others are given up with it; the host learns that from the log.
        self.drop_tasks_of(seat);
        self.post(port, pmp, RECEIVED_SDBFIS, &sdb.to_bytes());
        self.halt_device(port, pmp, interrupt::TFES | interrupt::SDBS);
        self.admit_writes(seat);
    }

    /// The slot is empty again.
    fn free(&mut self, port: u8, slot: u8) {
        let at = self.port_mut(port);
        at.taken &= !(1 << slot);
        let pmp = at.tasks[usize::from(slot)].pmp;
        let file = at.file(pmp);
        if file.alone == Some(slot) {
            file.alone = None;
        }
        let task = &mut at.tasks[usize::from(slot)];
        task.state = State::Free;
        task.work = Work::Control;
        task.generation = task.generation.wrapping_add(1);
    }
}

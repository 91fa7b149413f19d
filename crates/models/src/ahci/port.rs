//! One port: its registers, its link, what the HBA does with its list.

use flysch_wire::ata::D2h;
use flysch_wire::ata::fis::SetDeviceBits;
use flysch_wire::ata::list::RECEIVED_SDBFIS;
use flysch_wire::ata::multiplier::CONTROL_PORT;
use flysch_wire::ata::registers::{
    self as reg, Cap, DevSleep, Fbs, PortCmd, Sctl, Ssts, Tfd, det, icc, interrupt, serror, status,
};

use super::Ahci;
use super::clock::Event;
use super::device::Device;
use super::list::{Task, Unfit};
use super::profile::level;
use super::switching::File;
use crate::faults::Kind;

/// From the end of COMRESET to a link that works: OOB and the negotiation of a speed, nanoseconds
/// (assumed; SATA 8.4.2 allows 10 ms).
pub(super) const LINK_NS: u64 = 2_000_000;
/// STATUS of a device that is ready.
pub(super) const READY: u8 = status::DRDY | status::DSC;

/// A port.
#[derive(Debug)]
pub(super) struct Port {
    pub(super) number: u8,
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
    /// Port `number`, with a multiplier at it if it `is_shared`.
    pub(super) fn new(number: u8, is_shared: bool) -> Self {
        Self {
            number,
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

    /// The value of a register at `now`, in an HBA of these capabilities and with this device.
    pub(super) fn read(&self, register: u32, cap: Cap, device: Option<&Device>, now: u64) -> u32 {
        match register {
            reg::PX_CLB => self.clb as u32,
            reg::PX_CLBU => (self.clb >> 32) as u32,
            reg::PX_FB => self.fb as u32,
            reg::PX_FBU => (self.fb >> 32) as u32,
            reg::PX_IS => self.interrupts(),
            reg::PX_IE => self.ie,
            reg::PX_CMD => {
                let ccs = self.shown().alone.unwrap_or(self.ci.trailing_zeros() as u8 & 31);
                let switches = cap.fbss();
                self.cmd.with_ccs(ccs).with_hpcp(true).with_fbscp(switches).into_bits()
            }
            reg::PX_TFD => self.shown().tfd.into_bits(),
            reg::PX_SIG => self.shown().sig,
            reg::PX_SNTF => self.sntf.into(),
            // What the queue of one device makes of its media is all it gains by more.
            reg::PX_FBS if cap.fbss() => self.fbs.with_ado(2).into_bits(),
            reg::PX_SSTS => self.link_state(device, now).into_bits(),
            reg::PX_SCTL => self.sctl.into_bits(),
            reg::PX_SERR => self.serr,
            reg::PX_SACT => self.sact,
            reg::PX_CI => self.ci,
            reg::PX_DEVSLP => {
                let sleeps = device.is_some_and(Device::can_sleep);
                self.sleep.with_dsp(sleeps).into_bits()
            }
            _ => 0,
        }
    }

    /// PxSSTS.
    fn link_state(&self, device: Option<&Device>, now: u64) -> Ssts {
        if self.sctl.det() == det::OFF {
            return Ssts::new().with_det(det::OFF);
        }
        if self.speed == 0 {
            return Ssts::new();
        }
        let asleep = device.is_some_and(|device| device.backend.media.is_auto_hibernated(now));
        let ipm = match (asleep, self.cmd.asp()) {
            (true, true) => icc::SLUMBER,
            (true, false) => icc::PARTIAL,
            (false, _) => self.ipm,
        };
        Ssts::new().with_det(det::READY).with_spd(self.speed).with_ipm(ipm)
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
        *self = Self { tasks, epoch, ..Self::new(self.number, self.is_shared) };
    }
}

impl Ahci {
    pub(super) fn write_port(&mut self, port: u8, register: u32, value: u32) {
        let (cap, slots) = (self.hba.registers.cap, self.hba.registers.slots());
        let (wide, switches) = (cap.s64a(), cap.fbss());
        let at = &mut self.hba.ports[port];
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
                self.hba.raise(port, 0);
            }
            reg::PX_CMD => self.command_port(port, PortCmd::from_bits(value)),
            reg::PX_SCTL => self.control_link(port, Sctl::from_bits(value)),
            reg::PX_SERR => {
                at.serr &= !value;
                self.hba.deliver_held(port);
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
            reg::PX_FBS => {
                let goes_on = switches && at.switch(Fbs::from_bits(value));
                if goes_on {
                    self.pump(port);
                }
            }
            reg::PX_DEVSLP => {
                at.sleep = DevSleep::from_bits(value);
                self.set_link_power(port);
            }
            _ => {}
        }
    }

    /// PxCMD is written.
    fn command_port(&mut self, port: u8, new: PortCmd) {
        let (staggered, overrides) = (self.hba.registers.cap.sss(), self.hba.registers.cap.sclo());
        let multiplies = self.hba.registers.cap.spm();
        let stuck = self.faults.is_active()
            && self.hba.ports[port].cmd.st()
            && !new.st()
            && self.faults.fires(Kind::ListStuck, self.clock.now(), port.into());
        let at = &mut self.hba.ports[port];
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
        self.hba.deliver_held(port);
        if starts {
            self.pump(port);
        }
    }

    /// PxCMD.ST falls: the list is empty, and what the device had is forgotten. A device with a
    /// command that is not queued stays busy with it.
    fn stop_list(&mut self, port: u8) {
        let at = &mut self.hba.ports[port];
        (at.ci, at.sact, at.is_halted) = (0, 0, false);
        at.drop_tasks();
        if !at.is_stuck {
            at.cmd.set_cr(false);
        }
        self.devices.forget_waits(port);
    }

    /// How deep the link sleeps by itself, as the port is set up.
    pub(super) fn set_link_power(&mut self, port: u8) {
        let at = &self.hba.ports[port];
        let forbidden = at.sctl.ipm();
        let (on, deep, aggressive) = (at.cmd.alpe(), at.cmd.asp(), at.sleep.adse());
        let Some(device) = self.devices.get_mut(port.into()) else { return };
        let wake = device.wake_ns;
        let allowed = |bit: u8| forbidden & bit == 0;
        let sleep = match (on, deep) {
            (true, true) if aggressive && device.sleeps && allowed(4) => level::DEVSLEEP,
            (true, true) if allowed(2) => level::SLUMBER,
            (true, false) if allowed(1) => level::PARTIAL,
            _ => return device.backend.media.set_auto_hibern8((0, 0), level::ACTIVE),
        };
        let exit = wake[sleep - level::PARTIAL];
        device.backend.media.set_auto_hibern8((super::device::IDLE_NS, exit), sleep);
    }

    /// PxSCTL is written.
    fn control_link(&mut self, port: u8, new: Sctl) {
        let old = core::mem::replace(&mut self.hba.ports[port].sctl, new);
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
        let at = &mut self.hba.ports[port];
        at.epoch = at.epoch.wrapping_add(1);
        (at.speed, at.ipm, at.held, at.soft_resets) = (0, 0, None, 0);
        at.drop_tasks();
        at.files = [File { tfd: Tfd::new().with_status(status::BSY | 0x7F), ..File::NEW }; 16];
        self.devices.link_down(port, self.clock.nanos());
    }

    /// The link begins to come up, if somebody is at the other end.
    pub(super) fn begin_link(&mut self, port: u8) {
        let at = &self.hba.ports[port];
        let (epoch, asked) = (at.epoch, at.cmd.sud() && at.sctl.det() == 0);
        let answers = match self.devices.multiplier(port) {
            Some(multiplier) => multiplier.is_there(),
            None => self.devices.get(port.into()).is_some_and(|device| device.is_there()),
        };
        let deaf = asked
            && answers
            && self.faults.is_active()
            && self.faults.fires(Kind::Deaf, self.clock.now(), port.into());
        if asked && answers && !deaf && !self.hba.registers.is_unplugged {
            self.clock.after(LINK_NS, Event::Link { port, epoch });
        }
    }

    /// The link is up: the device gets ready.
    pub(super) fn link_up(&mut self, port: u8) {
        let limit = match self.hba.ports[port].sctl.spd() {
            0 => 3,
            limit => limit,
        };
        let most = self.hba.registers.cap.iss().min(limit);
        let multiplied = self.multiplier_up(port, most);
        let (speed, ready_ns) = match (multiplied, self.devices.get_mut(port.into())) {
            (Some(speed), _) => (speed, None),
            (None, Some(device)) => (device.link_up(most), Some(device.ready_ns)),
            (None, None) => return,
        };
        let at = &mut self.hba.ports[port];
        (at.speed, at.ipm) = (speed, icc::ACTIVE);
        at.files.iter_mut().for_each(|file| file.tfd = Tfd::new().with_status(status::BSY));
        at.is_fresh = true;
        let epoch = at.epoch;
        self.hba.raise_error(port, serror::EXCHANGED | serror::PHYRDY);
        // Behind a multiplier the first device sends the signature.
        let Some(ready_ns) = ready_ns else { return };
        self.set_link_power(port);
        let stays_busy = self.faults.is_active()
            && self.faults.fires(Kind::BusyStuck, self.clock.now(), port.into());
        if !stays_busy {
            self.clock.after(ready_ns, Event::Signature { port, epoch });
        }
    }

    /// The device is ready after a reset: it sends its signature.
    pub(super) fn device_ready(&mut self, port: u8) {
        if self.devices.multiplier(port).is_some() {
            return self.fan_ready(port, CONTROL_PORT);
        }
        let Some(device) = self.devices.get(port.into()) else { return };
        self.hba.hold(port, 0, device.signature_fis());
    }

    /// Takes commands from the list as far as the device can have them.
    pub(super) fn pump(&mut self, port: u8) {
        while let Some(slot) = self.hba.ports[port].next_slot() {
            self.issue(port, slot);
        }
    }

    /// Sends the command in a slot to the device.
    fn issue(&mut self, port: u8, slot: u8) {
        let task = match self.hba.ports[port].fetch(&self.hba.memory, slot) {
            Ok(task) => task,
            Err(Unfit) => return self.hba.halt(port, interrupt::HBFS),
        };
        let at = &self.hba.ports[port];
        let pmp = if at.is_shared { task.fis.pmp } else { 0 };
        let meant = if at.fbs.en() { at.targets[usize::from(slot)] } else { pmp };
        if at.is_shared && (task.flags.pmp(), meant) != (pmp, pmp) {
            // Data would go to another device than the command.
            return self.hba.halt(port, interrupt::IFS);
        }
        if !task.fis.is_command {
            return self.control(port, slot, pmp, task.fis.control);
        }
        let seat = self.devices.reached(port, pmp);
        let is_queued = super::command::is_queued(task.fis.command);
        let at = &mut self.hba.ports[port];
        if at.is_shared && !at.fbs.en() && at.taken & !at.taken_by(seat) != 0 {
            // Without switching there is one device at a time: the HBA mixes up who answers.
            return self.hba.halt(port, interrupt::IPMS | interrupt::IFS);
        }
        at.take(slot, Task { is_queued, seat, pmp, ..task });
        self.receive(port, slot);
    }

    /// A control FIS: soft reset.
    fn control(&mut self, port: u8, slot: u8, pmp: u8, control: u8) {
        let at = &mut self.hba.ports[port];
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
        let ready_ns = self.devices.get(port.into()).map_or(0, |device| device.ready_ns);
        self.clock.after(ready_ns, Event::Signature { port, epoch });
    }

    /// SRST is asserted: what the device had is gone.
    fn soft_reset(&mut self, port: u8, pmp: u8) {
        let at = &mut self.hba.ports[port];
        let file = at.file(pmp);
        file.alone = None;
        file.tfd = file.tfd.with_status(file.tfd.status() & !(status::BSY | status::DRQ));
        if at.is_shared {
            return self.reset_behind(port, pmp);
        }
        at.epoch = at.epoch.wrapping_add(1);
        at.drop_tasks();
        let now = self.clock.nanos();
        if let Some(device) = self.devices.get_mut(port.into()) {
            device.link_is_reset(now);
        }
    }

    /// The device tells an error: the list stands still, or that device alone. Of queued commands
    /// every one stays active.
    pub(super) fn end_badly(&mut self, port: u8, slot: u8, fis: D2h, is_queued: bool) {
        let Task { seat, pmp, .. } = *self.hba.ports[port].task(slot);
        if !is_queued {
            self.hba.end_alone(port, slot, D2h { interrupt: true, ..fis }, None);
            return self.hba.halt_device(port, pmp, interrupt::TFES | interrupt::DHRS);
        }
        let at = &mut self.hba.ports[port];
        at.file(pmp).tfd = Tfd::new().with_status(fis.status).with_error(fis.error);
        let D2h { status, error, .. } = fis;
        let sdb = SetDeviceBits { interrupt: true, status, error, ..SetDeviceBits::default() };
        // The others are given up with it; the host learns that from the log.
        self.drop_tasks_of(seat);
        self.hba.post(port, pmp, RECEIVED_SDBFIS, &sdb.to_bytes());
        self.hba.halt_device(port, pmp, interrupt::TFES | interrupt::SDBS);
    }
}

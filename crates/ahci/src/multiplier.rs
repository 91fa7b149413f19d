//! A port multiplier at a port (SATA 16; AHCI 9): its registers, the links of its device ports, and
//! how the HBA keeps the devices behind it apart.

use crate::error::Cause;
use crate::fanout::Multiplier;
use crate::init::Core;
use crate::lane::{Switching, UNITS};
use crate::steps::{Own, Run};
use flysch_api::machine::Machine;
use flysch_script::Primitives;
use flysch_wire::ata::multiplier::{Access, CONTROL_PORT, feature, gscr, pscr, value_of};
use flysch_wire::ata::registers::{
    Fbs, PX_FBS, PX_IS, PX_SIG, PX_SNTF, PX_TFD, Sctl, Ssts, det, interrupt, serror, status,
};

/// What a survey of the device ports found, a bit for each port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Something has changed there.
    pub(crate) changed: u32,
    /// A device communicates.
    pub(crate) present: u32,
}

/// How long COMRESET of a device port must be held, nanoseconds.
const COMRESET_NS: u64 = 1_000_000;
/// How often links that are coming up are checked, nanoseconds.
const LINK_NS: u64 = 10_000_000;
/// Bits of PSCR SError that are reported: a device that came, a link that changed.
const TOLD: u32 = serror::EXCHANGED | serror::PHYRDY;

impl<M: Machine> Core<M> {
    /// Reads or writes a register of the multiplier.
    fn access(&mut self, access: Access) -> Run<u32> {
        let timeout_ms = self.options.timeouts.command_ms;
        let own = Own { fis: access.to_fis(), timeout_ms, ..Own::default() };
        Ok(value_of(&self.must(own)?))
    }

    /// Identifies the multiplier, has it report changes at its device ports, and tells the port of
    /// it (PxCMD.PMA).
    pub(crate) fn meet_multiplier(&mut self) -> Run<Multiplier> {
        self.stop_list()??;
        if self.steps.first() {
            self.change_command(|cmd| cmd.with_pma(true));
        }
        self.start_list()??;
        let general = |register| Access::read(CONTROL_PORT, register);
        let product = self.access(general(gscr::PRODUCT))?;
        let revision = self.access(general(gscr::REVISION))?;
        let ports = (self.access(general(gscr::PORTS))? & 0xF) as u8;
        let features = self.access(general(gscr::FEATURES))?;
        if ports == 0 {
            return Err(Cause::Answer("number of ports of the multiplier").into());
        }
        self.access(Access::write(CONTROL_PORT, gscr::ERROR_ENABLE, TOLD))?;
        let notifies = features & feature::NOTIFICATION != 0 && self.hba.cap.ssntf();
        if notifies {
            let on = feature::NOTIFICATION;
            self.access(Access::write(CONTROL_PORT, gscr::FEATURES_ENABLE, on))?;
        }
        Ok(Multiplier { product, revision, ports, notifies, ..Multiplier::default() })
    }

    /// COMRESET of these device ports, all at once; returns where a device communicates.
    pub(crate) fn reset_links(&mut self, of: u32) -> Run<u32> {
        let fans = || (0..UNITS as u8).filter(move |fan| of >> fan & 1 != 0);
        // No state below active.
        let sctl = Sctl::new().with_spd(self.options.speed).with_ipm(3);
        for det in [1, 0] {
            for fan in fans() {
                let value = sctl.with_det(det).into_bits();
                self.access(Access::write(fan, pscr::CONTROL, value))?;
            }
            self.steps.sleep(COMRESET_NS)?;
        }
        self.steps.sleep(u64::from(self.options.timeouts.detect_ms) * COMRESET_NS)?;
        // What the links reported while coming up is examined now.
        self.steps.write(PX_SNTF, u32::MAX);
        let mut present = 0;
        for fan in fans() {
            if self.link_comes_up(fan)? {
                present |= 1 << fan;
            }
            // DIAG.X would hold back the first FIS of the device.
            self.access(Access::write(fan, pscr::ERROR, u32::MAX))?;
        }
        Ok(present)
    }

    /// Waits for the link of a device port, if a device is there.
    fn link_comes_up(&mut self, fan: u8) -> Run<bool> {
        let looks = u64::from(self.options.timeouts.link_ms) * COMRESET_NS / LINK_NS;
        for _ in 0..=looks {
            match self.link_of(fan)? {
                det::READY => return Ok(true),
                det::PRESENT => self.steps.sleep(LINK_NS)?,
                _ => return Ok(false),
            }
        }
        Ok(false)
    }

    fn link_of(&mut self, fan: u8) -> Run<u8> {
        Ok(Ssts::from_bits(self.access(Access::read(fan, pscr::STATUS))?).det())
    }

    /// Soft reset of the device at a device port; waits until it is ready, and returns its
    /// signature.
    pub(crate) fn reset_behind(&mut self, unit: u8, timeout_ms: u32) -> Run<u32> {
        self.steps.unit = unit;
        self.steps.soft_reset(unit)??;
        let busy = u32::from(status::BSY | status::DRQ);
        self.steps.until(("PxTFD", PX_TFD), busy, 0, timeout_ms)??;
        Ok(self.steps.read(PX_SIG))
    }

    /// What changed at the device ports since the last survey, and which of the ports in `asks` or
    /// with changes have a device.
    pub(crate) fn survey(&mut self, asks: u32) -> Run<Survey> {
        self.steps.unit = 0;
        self.steps.write(PX_SNTF, u32::MAX);
        let told = self.access(Access::read(CONTROL_PORT, gscr::ERROR))?;
        let ports = self.multiplier.as_ref().map_or(0, |multiplier| multiplier.ports);
        let mut survey = Survey { changed: told & ((1 << ports) - 1), present: 0 };
        survey.changed |= asks;
        for fan in (0..ports).filter(|fan| survey.changed >> fan & 1 != 0) {
            if self.link_of(fan)? == det::READY {
                survey.present |= 1 << fan;
            }
            self.access(Access::write(fan, pscr::ERROR, TOLD))?;
        }
        Ok(survey)
    }

    /// Whether the multiplier has asked for attention.
    pub(crate) fn is_notified(&self) -> bool {
        let hears = self.multiplier.as_ref().is_some_and(|multiplier| multiplier.notifies);
        hears && self.steps.machine.read32(self.steps.base + PX_SNTF) >> CONTROL_PORT & 1 != 0
    }

    /// Puts the idle list into a state in which the HBA addresses one device at a time, as the
    /// control path needs.
    pub(crate) fn switch_off(&mut self) -> Run<()> {
        if !self.steps.switches {
            return Ok(());
        }
        self.stop_list()??;
        if self.steps.first() {
            self.steps.machine.write32(self.steps.base + PX_FBS, 0);
            (self.steps.switches, self.steps.slot) = (false, 0);
        }
        self.start_list()??;
        Ok(())
    }

    /// Puts the idle list into the state the lane wants: several devices at once, if the HBA can do
    /// that.
    pub(crate) fn switch_on(&mut self) -> Run<()> {
        let is_multiplied = self.multiplier.is_some();
        let wanted = is_multiplied && self.switches_by_fis();
        if wanted {
            self.stop_list()??;
            if self.steps.first() {
                let on = Fbs::new().with_en(true).into_bits();
                self.steps.machine.write32(self.steps.base + PX_FBS, on);
            }
        }
        let is_on = wanted && Fbs::from_bits(self.steps.read(PX_FBS)).en();
        if self.steps.first() {
            (self.steps.switches, self.steps.slot) =
                if is_on { (true, self.last_slot()) } else { (false, 0) };
            let switching = match (is_multiplied, is_on) {
                (false, _) => Switching::Direct,
                (true, false) => Switching::Command,
                (true, true) => Switching::Fis,
            };
            self.lane.set_switching(switching);
            if let Some(multiplier) = &mut self.multiplier {
                multiplier.fis_switching = is_on;
            }
        }
        if wanted {
            self.start_list()??;
        }
        Ok(())
    }

    /// Whether devices are kept apart by their FISes.
    fn switches_by_fis(&self) -> bool {
        let can = self.hba.cap.fbss() && self.command_register().fbscp();
        can && self.options.fis_switching && self.last_slot() > 0
    }

    /// The slot that the lane leaves to the control path where both work at the same time.
    fn last_slot(&self) -> usize {
        self.hba.cap.ncs().into()
    }

    /// Clears the error of one device, with its commands; the other devices continue (AHCI 9.3.6).
    pub(crate) fn clear_device_error(&mut self, unit: u8) -> Run<Result<(), Cause>> {
        // First what announced it, so that an error of another device is announced again.
        self.steps.write(PX_IS, interrupt::TFES);
        let fbs = Fbs::new().with_en(true).with_dev(unit);
        self.steps.write(PX_FBS, fbs.with_dec(true).into_bits());
        let clearing = Fbs::new().with_dec(true).into_bits();
        let timeout = self.options.timeouts.stop_ms;
        Ok(self.steps.until(("PxFBS", PX_FBS), clearing, 0, timeout)?.map(drop))
    }
}

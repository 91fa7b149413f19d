//! A port multiplier at a port (SATA 16; AHCI 9): its registers, the links of its device ports, and
//! how the HBA keeps the devices behind it apart.

use crate::channel::{Channel, Own, Run};
use crate::error::Cause;
use crate::fanout::Multiplier;
use crate::lane::{Lane, Switching, UNITS};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay};
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

/// Reads or writes a register of the multiplier.
fn access<M: Machine>(channel: &mut Channel<M>, access: Access) -> Run<u32> {
    let timeout_ms = channel.options.timeouts.command_ms;
    let own = Own { fis: access.to_fis(), timeout_ms, ..Own::default() };
    Ok(value_of(&channel.must(own)?))
}

/// Identifies the multiplier, has it report changes at its device ports, and tells the port about
/// it (PxCMD.PMA).
pub(crate) fn meet<M: Machine>(channel: &mut Channel<M>) -> Run<Multiplier> {
    channel.stop_list()??;
    channel.change_command(|cmd| cmd.with_pma(true));
    channel.start_list()??;
    let general = |register| Access::read(CONTROL_PORT, register);
    let product = access(channel, general(gscr::PRODUCT))?;
    let revision = access(channel, general(gscr::REVISION))?;
    let ports = (access(channel, general(gscr::PORTS))? & 0xF) as u8;
    let features = access(channel, general(gscr::FEATURES))?;
    if ports == 0 {
        return Err(Cause::Answer("number of ports of the multiplier").into());
    }
    access(channel, Access::write(CONTROL_PORT, gscr::ERROR_ENABLE, TOLD))?;
    let notifies = features & feature::NOTIFICATION != 0 && channel.hba.cap.ssntf();
    if notifies {
        let on = feature::NOTIFICATION;
        access(channel, Access::write(CONTROL_PORT, gscr::FEATURES_ENABLE, on))?;
    }
    Ok(Multiplier { product, revision, ports, notifies, ..Multiplier::default() })
}

/// COMRESET of these device ports, all at once; returns those where a device communicates.
pub(crate) fn reset_links<M: Machine>(channel: &mut Channel<M>, of: u32) -> Run<u32> {
    let fans = || (0..UNITS as u8).filter(move |fan| of >> fan & 1 != 0);
    // No power state below active.
    let sctl = Sctl::new().with_spd(channel.options.speed).with_ipm(3);
    for det in [1, 0] {
        for fan in fans() {
            let value = sctl.with_det(det).into_bits();
            access(channel, Access::write(fan, pscr::CONTROL, value))?;
        }
        channel.sleep(COMRESET_NS)?;
    }
    channel.sleep(u64::from(channel.options.timeouts.detect_ms) * COMRESET_NS)?;
    // Cleared, because what the links reported while coming up is examined now.
    channel.write(PX_SNTF, u32::MAX);
    let mut present = 0;
    for fan in fans() {
        if link_comes_up(channel, fan)? {
            present |= 1 << fan;
        }
        // DIAG.X would hold back the first FIS of the device.
        access(channel, Access::write(fan, pscr::ERROR, u32::MAX))?;
    }
    Ok(present)
}

/// Waits for the link of a device port, if a device is there.
fn link_comes_up<M: Machine>(channel: &mut Channel<M>, fan: u8) -> Run<bool> {
    let looks = u64::from(channel.options.timeouts.link_ms) * COMRESET_NS / LINK_NS;
    for _ in 0..=looks {
        match link_of(channel, fan)? {
            det::READY => return Ok(true),
            det::PRESENT => channel.sleep(LINK_NS)?,
            _ => return Ok(false),
        }
    }
    Ok(false)
}

fn link_of<M: Machine>(channel: &mut Channel<M>, fan: u8) -> Run<u8> {
    Ok(Ssts::from_bits(access(channel, Access::read(fan, pscr::STATUS))?).det())
}

/// Soft reset of the device at a device port; waits until it is ready, and returns its
/// signature.
pub(crate) fn reset_behind<M: Machine>(
    channel: &mut Channel<M>,
    unit: u8,
    timeout_ms: u32,
) -> Run<u32> {
    channel.unit = unit;
    channel.soft_reset(unit)??;
    let busy = u32::from(status::BSY | status::DRQ);
    channel.until(("PxTFD", PX_TFD), busy, 0, timeout_ms)??;
    Ok(channel.read(PX_SIG))
}

/// What changed at the `ports` device ports since the last survey, and which of those in `asks` or
/// with changes have a device.
pub(crate) fn survey<M: Machine>(channel: &mut Channel<M>, ports: u8, asks: u32) -> Run<Survey> {
    channel.unit = 0;
    channel.write(PX_SNTF, u32::MAX);
    let told = access(channel, Access::read(CONTROL_PORT, gscr::ERROR))?;
    let mut survey = Survey { changed: told & ((1 << ports) - 1), present: 0 };
    survey.changed |= asks;
    for fan in (0..ports).filter(|fan| survey.changed >> fan & 1 != 0) {
        if link_of(channel, fan)? == det::READY {
            survey.present |= 1 << fan;
        }
        access(channel, Access::write(fan, pscr::ERROR, TOLD))?;
    }
    Ok(survey)
}

/// Whether the multiplier has asked for attention.
pub(crate) fn is_notified<M: Machine>(channel: &Channel<M>) -> bool {
    channel.machine.read32(channel.base + PX_SNTF) >> CONTROL_PORT & 1 != 0
}

/// Puts the idle list into a state in which the HBA addresses one device at a time, as the control
/// path needs.
pub(crate) fn switch_off<M: Machine>(channel: &mut Channel<M>) -> Run<()> {
    if !channel.switches {
        return Ok(());
    }
    channel.stop_list()??;
    if channel.first() {
        channel.machine.write32(channel.base + PX_FBS, 0);
        (channel.switches, channel.slot) = (false, 0);
    }
    channel.start_list()??;
    Ok(())
}

/// Puts the idle list into the state the lane wants: several devices at once, if the HBA can do
/// that.
pub(crate) fn switch_on<M: Machine>(
    channel: &mut Channel<M>,
    lane: &mut Lane<M>,
    multiplier: &mut Option<Multiplier>,
) -> Run<()> {
    let is_multiplied = multiplier.is_some();
    let wanted = is_multiplied && switches_by_fis(channel);
    if wanted {
        channel.stop_list()??;
        channel.write(PX_FBS, Fbs::new().with_en(true).into_bits());
    }
    let is_on = wanted && Fbs::from_bits(channel.read(PX_FBS)).en();
    channel.effect(|channel| {
        (channel.switches, channel.slot) =
            if is_on { (true, last_slot(channel)) } else { (false, 0) };
        lane.set_switching(match (is_multiplied, is_on) {
            (false, _) => Switching::Direct,
            (true, false) => Switching::Command,
            (true, true) => Switching::Fis,
        });
        if let Some(multiplier) = multiplier {
            multiplier.fis_switching = is_on;
        }
    });
    if wanted {
        channel.start_list()??;
    }
    Ok(())
}

/// Whether devices are kept apart by their FISes.
fn switches_by_fis<M: Machine>(channel: &Channel<M>) -> bool {
    let can = channel.hba.cap.fbss() && channel.command_register().fbscp();
    can && channel.options.fis_switching && last_slot(channel) > 0
}

/// The slot that the lane leaves to the control path where both work at the same time.
fn last_slot<M: Machine>(channel: &Channel<M>) -> usize {
    channel.hba.cap.ncs().into()
}

/// Clears the error of one device, with its commands; the other devices continue (AHCI 9.3.6).
pub(crate) fn clear_device_error<M: Machine>(
    channel: &mut Channel<M>,
    unit: u8,
) -> Run<Result<(), Cause>> {
    // Clears the interrupt first, so that an error of another device raises it again.
    channel.write(PX_IS, interrupt::TFES);
    let fbs = Fbs::new().with_en(true).with_dev(unit);
    channel.write(PX_FBS, fbs.with_dec(true).into_bits());
    let clearing = Fbs::new().with_dec(true).into_bits();
    let timeout = channel.options.timeouts.stop_ms;
    Ok(channel.until(("PxFBS", PX_FBS), clearing, 0, timeout)?.map(drop))
}

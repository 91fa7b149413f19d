//! The link of a port: power and COMRESET, the wait for the device, its power states, and what the
//! port reports.

use crate::attached::{AtaFacts, Attached};
use crate::channel::{Channel, HbaFacts, Run};
use crate::error::Cause;
use crate::options::{AhciOptions, LinkPower, Timeouts};
use crate::quirks::{Quirk, Quirks};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay};
use flysch_wire::ata::SECTOR;
use flysch_wire::ata::command::{feature, sata_feature as sata};
use flysch_wire::ata::identify::sata_feature;
use flysch_wire::ata::log::{self, DevSleepTiming};
use flysch_wire::ata::multiplier::CONTROL_PORT;
use flysch_wire::ata::registers::{
    DevSleep, IS, PX_DEVSLP, PX_IE, PX_IS, PX_SCTL, PX_SERR, PX_SIG, PX_SSTS, PX_TFD, Sctl, det,
    icc, interrupt, signature, status,
};

/// How long COMRESET must be held (SATA 14.1.3; Linux), nanoseconds.
const COMRESET_NS: u64 = 1_000_000;

/// What the port reports about its link.
#[derive(Debug)]
pub(crate) struct Link {
    /// Interrupts of the port that count as a change of the link.
    pub(crate) changes: u32,
    /// The number of the port.
    port: u8,
}

impl Link {
    /// The link of this port.
    pub(crate) fn new(port: u8) -> Self {
        Self { changes: interrupt::CHANGES, port }
    }

    /// Lets the link sleep as deeply as all parties support.
    pub(crate) fn set_power<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        attached: &mut Attached,
    ) -> Run<()> {
        self.changes = interrupt::CHANGES;
        let device = match (&attached.multiplier, attached.device(0)) {
            (None, Some(device)) => device.clone(),
            // The link of a multiplier does not sleep, and neither do those behind it.
            _ => AtaFacts::default(),
        };
        let power = match attached.multiplier {
            None => deepest(channel, &device),
            Some(_) => LinkPower::Active,
        };
        if power != LinkPower::Active {
            // A link that sleeps comes and goes on its own.
            self.changes &= !interrupt::PRCS;
            if device.identify.sata_features & sata_feature::DIPM != 0 {
                attached.try_feature(channel, feature::SATA, sata::DIPM)?;
            }
        }
        if power == LinkPower::DevSleep {
            let page = log::identify_page::SERIAL_ATA;
            let known =
                attached.reads_log(channel, &device.identify, log::address::IDENTIFY, page)?;
            attached.try_feature(channel, feature::SATA, sata::DEVSLEEP)?;
            let serial = known.then(|| channel.own_data::<SECTOR>());
            let timing =
                serial.map_or_else(DevSleepTiming::default, |page| DevSleepTiming::parse(&page));
            let dsp = DevSleep::from_bits(channel.read(PX_DEVSLP)).dsp();
            let sleep = DevSleep::new()
                .with_dsp(dsp)
                .with_dito(625)
                .with_dm(15)
                .with_deto(timing.exit_ms)
                .with_mdat(timing.assert_ms);
            channel.write(PX_DEVSLP, sleep.into_bits());
            channel.write(PX_DEVSLP, sleep.with_adse(true).into_bits());
        }
        let all = &mut attached.devices;
        channel.effect(|_| all.iter_mut().flatten().for_each(|device| device.link_power = power));
        // Forbidden states, a bit each, as in SControl.IPM.
        let forbidden = match power {
            LinkPower::Active => 7,
            LinkPower::Partial => 6,
            LinkPower::Slumber => 4,
            LinkPower::DevSleep => 0,
        };
        let sctl = Sctl::from_bits(channel.read(PX_SCTL)).with_det(0).with_ipm(forbidden);
        channel.write(PX_SCTL, sctl.into_bits());
        let deep = matches!(power, LinkPower::Slumber | LinkPower::DevSleep);
        let on = power != LinkPower::Active;
        channel.change_command(|cmd| cmd.with_alpe(on).with_asp(deep));
        Ok(())
    }

    /// Enables the interrupts the options ask for. A port without a device reports one that
    /// appears.
    pub(crate) fn enable_interrupts<M: Machine>(&self, channel: &Channel<M>, attached: &Attached) {
        let is_empty = attached.multiplier.is_none() && attached.device(0).is_none();
        let all = match is_empty {
            false => interrupt::GOOD | interrupt::ERRORS | self.changes,
            true => interrupt::CHANGES,
        };
        let bits = if channel.options.interrupts { all } else { 0 };
        channel.machine.write32(channel.base + PX_IS, interrupt::GOOD);
        channel.machine.write32(IS, 1 << self.port);
        channel.machine.write32(channel.base + PX_IE, bits);
    }

    /// Disables the port's interrupts while its control path works, which polls.
    pub(crate) fn silence<M: Machine>(&self, channel: &Channel<M>) {
        channel.machine.write32(channel.base + PX_IE, 0);
        channel.machine.write32(IS, 1 << self.port);
    }
}

/// The deepest power state that the link of this device may enter.
fn deepest<M: Machine>(channel: &Channel<M>, device: &AtaFacts) -> LinkPower {
    let wanted = channel.options.link_power;
    let HbaFacts { cap, cap2, .. } = channel.hba;
    if wanted == LinkPower::Active || !cap.salp() || device.quirks.has(Quirk::NoLinkPower) {
        return LinkPower::Active;
    }
    let sleeps = device.identify.sata_features & sata_feature::DEVSLEEP != 0;
    match wanted {
        LinkPower::DevSleep if cap2.sds() && cap2.sadm() && sleeps && cap.ssc() => {
            LinkPower::DevSleep
        }
        LinkPower::DevSleep | LinkPower::Slumber if cap.ssc() => LinkPower::Slumber,
        _ if cap.psc() => LinkPower::Partial,
        _ => LinkPower::Active,
    }
}

/// Power, spin-up, COMRESET; returns whether there is a device.
pub(crate) fn link_up<M: Machine>(channel: &mut Channel<M>, quirks: Quirks) -> Run<bool> {
    channel.change_command(|cmd| {
        cmd.with_pod(true).with_sud(true).with_alpe(false).with_asp(false).with_icc(icc::ACTIVE)
    });
    let speed = if quirks.has(Quirk::Slow) { 1 } else { channel.options.speed };
    // No power state below active while the link is coming up.
    let sctl = Sctl::new().with_spd(speed).with_ipm(3);
    channel.write(PX_SCTL, sctl.with_det(1).into_bits());
    channel.sleep(COMRESET_NS)?;
    channel.write(PX_SERR, u32::MAX);
    channel.write(PX_SCTL, sctl.into_bits());
    channel.change_command(|cmd| cmd.with_fre(true));
    let timeouts = channel.options.timeouts;
    // Present, with or without communication.
    let some = u32::from(det::PRESENT);
    match channel.until(("PxSSTS", PX_SSTS), some, some, timeouts.detect_ms)? {
        Ok(_) => {}
        Err(Cause::Register { .. }) => return Ok(false),
        Err(cause) => return Err(cause.into()),
    }
    let ready = u32::from(det::READY);
    channel.until(("PxSSTS", PX_SSTS), 0xF, ready, timeouts.link_ms)??;
    // DIAG.X would hold back the first FIS of the device.
    channel.write(PX_SERR, u32::MAX);
    Ok(true)
}

/// How long a device may take to become ready, ms.
pub(crate) fn ready_ms(options: &AhciOptions, is_again: bool) -> u32 {
    let Timeouts { ready_ms, ready_again_ms, .. } = options.timeouts;
    if is_again { ready_again_ms } else { ready_ms }
}

/// Waits until the device is ready; returns its signature.
pub(crate) fn get_ready<M: Machine>(channel: &mut Channel<M>, is_again: bool) -> Run<u32> {
    let busy = u32::from(status::BSY | status::DRQ);
    let timeout = ready_ms(&channel.options, is_again);
    if channel.hba.cap.spm() {
        call_multiplier(channel, timeout)?;
    }
    channel.until(("PxTFD", PX_TFD), busy, 0, timeout)??;
    let signature = channel.read(PX_SIG);
    match signature {
        signature::ATA | signature::ATAPI => Ok(signature),
        signature::MULTIPLIER if channel.hba.cap.spm() => Ok(signature),
        other => Err(Cause::Signature(other).into()),
    }
}

/// Sends a soft reset to a multiplier. If there is one, it answers for itself from then on; any
/// other device takes the reset as its own.
fn call_multiplier<M: Machine>(channel: &mut Channel<M>, timeout_ms: u32) -> Run<()> {
    let busy = u32::from(status::BSY | status::DRQ);
    // A multiplier whose first device port is empty is silent until it is called.
    let patience = match channel.hba.cap.sclo() {
        true => channel.options.timeouts.multiplier_ms.min(timeout_ms),
        false => timeout_ms,
    };
    match channel.until(("PxTFD", PX_TFD), busy, 0, patience)? {
        Err(Cause::Register { .. }) | Ok(_) => {}
        Err(cause) => return Err(cause.into()),
    }
    channel.start_list()??;
    channel.soft_reset(CONTROL_PORT)??;
    Ok(())
}

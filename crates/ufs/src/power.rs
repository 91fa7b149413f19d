//! Power: the link's gear, lanes and rate, its hibernation by itself, the device's own power modes,
//! and the end.

use crate::channel::{Run, Stop};
use crate::control::Core;
use crate::device_quirks::DeviceQuirk;
use crate::exchange::{HostCommand, Moves};
use crate::history::{ErrorKind, ErrorRecord};
use crate::host_watch;
use crate::link::Link;
use crate::options::LinkLimits;
use crate::platform::{DmeSetting, Event, Phase};
use crate::power_mode::DevicePower;
use crate::quirks::Quirk;
use crate::time::{MS, US};
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::ufs::registers::{AHIT, Ahit};
use flysch_wire::ufs::uic::{
    HsAdaptType, HsSeries, LinkMode, PaPowerMode, UicAttribute, UicResult,
};
use flysch_wire::ufs::upiu::Wlun;

/// What PA_GRANULARITY means, µs (UniPro: 1 to 6).
fn granule_us(granularity: u32) -> Option<u32> {
    [1, 4, 8, 16, 32, 100].get((granularity as usize).checked_sub(1)?).copied()
}

/// What to try, best first: for every gear the other rate series and one lane before the next
/// lower gear. Boards have been seen to lose the link in series B, and with the second lane.
fn speeds(gear: u8, lanes: u8, series: HsSeries) -> impl Iterator<Item = Link> {
    let series = [series, HsSeries::A];
    let kinds = if series[0] == HsSeries::A { 1 } else { 2 };
    let lanes = (1..=lanes).rev();
    let pairs = lanes.flat_map(move |n| series.into_iter().take(kinds).map(move |s| (n, s)));
    (1..=gear).rev().flat_map(move |gear| {
        pairs.clone().map(move |(lanes, series)| Link {
            high_speed: true,
            gear,
            lanes,
            series,
            hibernating: false,
        })
    })
}

/// SBC SYNCHRONIZE CACHE(10).
const SYNCHRONIZE_CACHE: u8 = 0x35;
/// SBC START STOP UNIT.
const START_STOP_UNIT: u8 = 0x1B;

/// Time-outs of the data link layer the two ends agree on when the gear changes: flow control
/// protection, replay, acknowledgement request; for traffic classes 0 and 1 (Linux, UniPro
/// defaults for HS).
const DATA_LINK_TIMEOUTS: [u32; 3] = [8191, 65535, 32767];

/// TX_HS_EQUALIZER_SETTING for 3.5 dB, and PA_TXHSG1SYNCLENGTH, where quirks ask for them (Linux,
/// for Qualcomm's hosts).
const DEEMPHASIS_3_5_DB: u32 = 4;
const PEER_SYNC_LENGTH: u32 = 0x4A;

/// What a quirk of the device has done to the link.
type Tuning<M> = fn(&mut Core<M>) -> Run<()>;

use UicAttribute as A;

impl<M: Machine> Core<M> {
    /// Brings the link to the highest speed both ends and `limits` allow. Where a gear does not
    /// come up, the next lower one is tried.
    pub(crate) fn set_link(&mut self, limits: LinkLimits) -> Run<()> {
        if self.peer.channel.quirks.has(Quirk::NoPowerModeChange) || limits.gear == 0 {
            return Ok(());
        }
        let Some((gear, lanes)) = self.common_ground(limits)? else { return Ok(()) };
        let mut last = Cause::NoDevice;
        for wanted in speeds(gear, lanes, limits.series) {
            match self.change_link_told(wanted)? {
                Ok(()) => {
                    self.peer.channel.effect(|_| self.link = wanted);
                    return Ok(());
                }
                Err(cause) => {
                    self.note_speed(wanted, cause);
                    last = cause;
                }
            }
        }
        Err(last.into())
    }

    pub(crate) fn note_speed(&mut self, wanted: Link, cause: Cause) {
        let series = u32::from(wanted.series.into_bits());
        let value = u32::from(wanted.gear) | u32::from(wanted.lanes) << 8 | series << 16;
        self.peer.channel.effect(|channel| {
            channel.errors.keep(ErrorRecord {
                at: channel.now,
                kind: ErrorKind::LinkSpeed,
                value,
                step: None,
                error: Some(cause.into()),
            });
        });
    }

    /// Highest common gear and number of lanes; `None` if there is no high speed.
    fn common_ground(&mut self, limits: LinkLimits) -> Run<Option<(u8, u8)>> {
        let mut numbers = [0; 4];
        let sources = [
            (A::PaMaxrxhsgear, false),
            (A::PaMaxrxhsgear, true),
            (A::PaConnectedrxdatalanes, false),
            (A::PaConnectedtxdatalanes, false),
        ];
        for (number, (attribute, peer)) in numbers.iter_mut().zip(sources) {
            let read = if peer {
                self.peer.channel.dme_peer_get(attribute)?
            } else {
                self.peer.channel.dme_get(attribute)?
            };
            match read {
                Ok(value) => *number = value,
                Err(_) if self.peer.channel.quirks.has(Quirk::DmeErrorsNotFatal) => {
                    return Ok(None);
                }
                Err(cause) => return Err(cause.into()),
            }
        }
        let [local_gear, peer_gear, rx_lanes, tx_lanes] = numbers;
        let gear = local_gear.min(peer_gear).min(limits.gear.into()) as u8;
        let lanes = rx_lanes.min(tx_lanes).min(limits.lanes.into()) as u8;
        Ok((gear > 0 && lanes > 0).then_some((gear, lanes)))
    }

    /// Changes the speed; the platform is told and its clocks follow.
    pub(crate) fn change_link_told(&mut self, wanted: Link) -> Run<Result<(), Cause>> {
        let is_fast = wanted.high_speed && wanted.gear > 1;
        if is_fast {
            self.board.scale(&mut self.peer.channel, true);
        }
        self.board.tell(&mut self.peer.channel, Event::PowerMode(wanted), Phase::Before)?;
        if let Err(cause) = self.change_link(wanted)? {
            return Ok(Err(cause));
        }
        self.board.tell(&mut self.peer.channel, Event::PowerMode(wanted), Phase::After)?;
        if !is_fast {
            self.board.scale(&mut self.peer.channel, false);
        }
        Ok(Ok(()))
    }

    fn change_link(&mut self, wanted: Link) -> Run<Result<(), Cause>> {
        if self.peer.channel.quirks.has(Quirk::LanesBeforeGear) && wanted.lanes > 1 {
            let lanes_only = Link { gear: 1, high_speed: false, ..wanted };
            if let Err(cause) = self.apply(lanes_only)? {
                return Ok(Err(cause));
            }
        }
        if let Err(cause) = self.apply(wanted)? {
            return Ok(Err(cause));
        }
        if self.peer.channel.quirks.has(Quirk::SettleAfterGear) {
            self.peer.channel.sleep(1_000 * US)?;
            let _ = self.peer.channel.dme_peer_get(A::PaGranularity)?;
        }
        if self.peer.channel.quirks.has(Quirk::PeerTactivate) {
            self.lengthen_peer_activation()?;
        }
        Ok(Ok(()))
    }

    /// The attributes of one power mode change, in the order every driver uses, then the change.
    fn apply(&mut self, link: Link) -> Run<Result<(), Cause>> {
        if self.peer.device.quirks.has(DeviceQuirk::DeemphasisByGear) {
            self.set_deemphasis(link)?;
        }
        let fast = u32::from(link.high_speed);
        let adapt = if link.high_speed && link.gear >= 4 {
            HsAdaptType::Initial
        } else {
            HsAdaptType::None
        };
        let [protection, replay, request] = DATA_LINK_TIMEOUTS;
        let mode = if link.high_speed { LinkMode::Fast } else { LinkMode::Slow };
        let settings = [
            (A::PaRxgear, link.gear.into()),
            (A::PaActiverxdatalanes, link.lanes.into()),
            (A::PaRxtermination, fast),
            (A::PaTxgear, link.gear.into()),
            (A::PaActivetxdatalanes, link.lanes.into()),
            (A::PaTxtermination, fast),
            (A::PaHsseries, link.series.into_bits().into()),
            (A::PaTxhsadapttype, adapt.into_bits().into()),
            (A::PaPwrmodeuserdata0, protection),
            (A::PaPwrmodeuserdata1, replay),
            (A::PaPwrmodeuserdata2, request),
            (A::PaPwrmodeuserdata3, protection),
            (A::PaPwrmodeuserdata4, replay),
            (A::PaPwrmodeuserdata5, request),
            (A::DmeLocalfc0protectiontimeoutval, protection),
            (A::DmeLocaltc0replaytimeoutval, replay),
            (A::DmeLocalafc0reqtimeoutval, request),
        ];
        for (attribute, value) in settings {
            // An attribute this PHY does not have is no reason not to try: the change itself
            // tells.
            let _ = self.peer.channel.dme_set(attribute, value)?;
        }
        let mode = PaPowerMode::new().with_tx(mode).with_rx(mode);
        Ok(self.peer.channel.dme_set(A::PaPwrmode, mode.into_bits())?.map(|_| ()))
    }

    /// What each transmitter of the host has to send lower, for the gear to come.
    fn set_deemphasis(&mut self, link: Link) -> Run<()> {
        let equaliser = if link.high_speed && link.gear == 5 { DEEMPHASIS_3_5_DB } else { 0 };
        for lane in 0..link.lanes {
            let setting = DmeSetting {
                attribute: A::TxHsEqualizerSetting,
                selector: lane.into(),
                peer: false,
                value: equaliser,
            };
            // As with all of them: the change itself tells whether it was right.
            let _ = self.peer.channel.set_attribute(setting)?;
        }
        Ok(())
    }

    /// Attributes that particular devices need before the link gets fast (Linux sets them at the
    /// same point). One that is refused leaves things as they are, and the others are set.
    pub(crate) fn tune_link(&mut self) -> Run<()> {
        let tunings: [(DeviceQuirk, Tuning<M>); 4] = [
            // In units of PA_GRANULARITY, which starts as 100 µs.
            (DeviceQuirk::HostTactivate1Ms, |core| {
                core.peer.channel.dme_set(A::PaTactivate, 10)??;
                Ok(())
            }),
            (DeviceQuirk::PeerTactivateAboveHost, Self::raise_peer_activation),
            (DeviceQuirk::LongerHibern8, |core| {
                let agreed = core.peer.channel.dme_get(A::PaHibern8time)??;
                core.peer.channel.dme_set(A::PaHibern8time, agreed + 1)??;
                Ok(())
            }),
            (DeviceQuirk::LongerPeerSync, |core| {
                core.peer.channel.dme_peer_set(A::PaTxhsg1synclength, PEER_SYNC_LENGTH)??;
                Ok(())
            }),
        ];
        let mut refused = Ok(());
        for (quirk, tune) in tunings {
            if !self.peer.device.quirks.has(quirk) {
                continue;
            }
            match tune(self) {
                Err(Stop::Pending) => return Err(Stop::Pending),
                Err(failed) => refused = Err(failed),
                Ok(()) => {}
            }
        }
        refused
    }

    /// The device's PA_TACTIVATE above the host's, in time: each end has its own unit.
    fn raise_peer_activation(&mut self) -> Run<()> {
        let local = (
            self.peer.channel.dme_get(A::PaGranularity)??,
            self.peer.channel.dme_get(A::PaTactivate)??,
        );
        let peer = (
            self.peer.channel.dme_peer_get(A::PaGranularity)??,
            self.peer.channel.dme_peer_get(A::PaTactivate)??,
        );
        let (Some(local_us), Some(peer_us)) = (granule_us(local.0), granule_us(peer.0)) else {
            return Err(Cause::Dme(A::PaGranularity, UicResult::InvalidMibAttributeValue).into());
        };
        if local.1 * local_us >= peer.1 * peer_us {
            self.peer.channel.dme_peer_set(A::PaTactivate, local.1 * local_us / peer_us + 1)??;
        }
        Ok(())
    }

    /// The device's receiver needs longer to wake than it says.
    fn lengthen_peer_activation(&mut self) -> Run<()> {
        let local = self.peer.channel.dme_get(A::PaGranularity)?;
        let peer = self.peer.channel.dme_peer_get(A::PaGranularity)?;
        if let (Ok(local), Ok(peer)) = (local, peer)
            && local == peer
            && let Ok(activation) = self.peer.channel.dme_get(A::PaTactivate)?
        {
            let _ = self.peer.channel.dme_peer_set(A::PaTactivate, activation + 2)?;
        }
        Ok(())
    }

    /// Lets the link hibernate by itself after `idle_us`; 0 is never.
    pub(crate) fn set_auto_hibern8(&mut self, idle_us: u32) -> Run<()> {
        if !self.peer.channel.cap.autoh8() || self.peer.channel.quirks.has(Quirk::AutoHibern8Broken)
        {
            return match idle_us {
                0 => Ok(()),
                _ => Err(Stop::Failed(Error::Unsupported("auto-hibern8"))),
            };
        }
        self.peer.channel.write(AHIT, Ahit::from_idle_us(idle_us).into_bits());
        Ok(())
    }

    /// Switches everything off in good order: caches are written, the device is powered down, the
    /// controller forgets its memory. Lanes are gone until the next bring-up.
    pub(crate) fn shut_down(&mut self) -> Run<()> {
        self.peer.channel.quiesce()?;
        if let Err(cause) =
            self.board.tell_or_refusal(&mut self.peer.channel, Event::Shutdown, Phase::Before)?
        {
            self.peer.channel.order(0);
            return Err(cause.into());
        }
        for lun in 0..self.peer.device.units.len() {
            if self.peer.device.units[lun].is_some()
                && let Err(cause) = self.flush(lun as u8)?
            {
                self.note_left_out("flush", cause);
            }
        }
        if let Err(cause) = self.start_stop(DevicePower::PowerDown)? {
            self.note_left_out("power down", cause);
        }
        match self.disable(self.peer.channel.options.timeouts.enable_ms) {
            Err(Stop::Failed(Error::Failed(cause))) => self.note_left_out("disable", cause),
            other => other?,
        }
        self.peer.channel.order(Order::PAUSE | Order::STOP | Order::GONE);
        self.peer.channel.lanes_obey()?;
        self.peer.channel.effect(|channel| {
            if let Some(engine) = &mut self.crypto {
                engine.forget_keys(&channel.machine, &channel.shared);
            }
        });
        if let Err(cause) =
            self.board.tell_or_refusal(&mut self.peer.channel, Event::Shutdown, Phase::After)?
        {
            self.note_left_out("platform", cause);
        }
        self.board.clocks(&mut self.peer.channel, false);
        Ok(())
    }

    /// Something of a shutdown failed, which goes on all the same.
    fn note_left_out(&mut self, step: &'static str, cause: Cause) {
        self.peer.channel.effect(|channel| {
            channel.errors.keep(ErrorRecord {
                at: channel.now,
                kind: ErrorKind::Skipped,
                value: 0,
                step: Some(step),
                error: Some(cause.into()),
            });
        });
    }

    /// A command without data that may take as long as a change of power.
    fn plain_command(&self, lun: u8, cdb: [u8; 16]) -> HostCommand {
        let timeout_ms = self.peer.channel.options.timeouts.start_stop_ms;
        HostCommand { lun, cdb, moves: Moves::Nothing, segment: false, timeout_ms }
    }

    /// SYNCHRONIZE CACHE of a whole logical unit.
    fn flush(&mut self, lun: u8) -> Run<Result<(), Cause>> {
        let mut cdb = [0; 16];
        cdb[0] = SYNCHRONIZE_CACHE;
        Ok(self.peer.scsi(self.plain_command(lun, cdb))?.map(|_| ()))
    }

    /// Stops the controller's DMA at once, whatever is under way, for a host that goes away.
    pub(crate) fn switch_off(&mut self) {
        let limit = u64::from(self.peer.channel.options.timeouts.enable_ms) * MS;
        host_watch::switch_off(&self.peer.channel.machine, limit);
        if let Some(engine) = &mut self.crypto {
            engine.forget_keys(&self.peer.channel.machine, &self.peer.channel.shared);
        }
        self.board.switch_off();
    }

    /// START STOP UNIT to the UFS DEVICE well-known unit; the platform is told, and its refusal
    /// counts as the device's.
    pub(crate) fn start_stop(&mut self, power: DevicePower) -> Run<Result<(), Cause>> {
        let event = Event::DevicePower(power);
        if let Err(cause) =
            self.board.tell_or_refusal(&mut self.peer.channel, event, Phase::Before)?
        {
            return Ok(Err(cause));
        }
        let mut cdb = [0; 16];
        cdb[0] = START_STOP_UNIT;
        cdb[4] = power.condition() << 4;
        if let Err(cause) = self.peer.scsi(self.plain_command(Wlun::UfsDevice.into_bits(), cdb))? {
            return Ok(Err(cause));
        }
        let lower = power != DevicePower::Active;
        if lower && self.peer.device.quirks.has(DeviceQuirk::SettleBeforeLowPower) {
            self.peer.channel.sleep(2 * MS)?;
        }
        Ok(self.board.tell_or_refusal(&mut self.peer.channel, event, Phase::After)?)
    }
}

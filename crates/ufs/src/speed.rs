//! The speed of the link: what both ends support, what particular devices need, and a change of
//! gear, lanes and rate series.

use crate::Cause;
use crate::channel::{Channel, Run};
use crate::device_quirks::{DeviceQuirk, DeviceQuirks};
use crate::link::Link;
use crate::options::LinkLimits;
use crate::platform::DmeSetting;
use crate::quirks::Quirk;
use crate::time::US;
use flysch_api::machine::Machine;
use flysch_script::{Primitives, settled};
use flysch_wire::ufs::uic::UicAttribute as A;
use flysch_wire::ufs::uic::{HsAdaptType, HsSeries, LinkMode, PaPowerMode, UicResult};

/// What PA_GRANULARITY means, µs (UniPro: 1 to 6).
fn granule_us(granularity: u32) -> Option<u32> {
    [1, 4, 8, 16, 32, 100].get((granularity as usize).checked_sub(1)?).copied()
}

/// What to try, best first: for every gear the other rate series and one lane before the next
/// lower gear. Boards have been seen to lose the link in series B, and with the second lane.
pub(crate) fn speeds(gear: u8, lanes: u8, series: HsSeries) -> impl Iterator<Item = Link> {
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

/// Time-outs of the data link layer that the two ends agree on when the gear changes: flow control
/// protection, replay, acknowledgement request; for traffic classes 0 and 1 (Linux, UniPro
/// defaults for HS).
const DATA_LINK_TIMEOUTS: [u32; 3] = [8191, 65535, 32767];

/// TX_HS_EQUALIZER_SETTING for 3.5 dB, and PA_TXHSG1SYNCLENGTH, where quirks require them (Linux,
/// for Qualcomm's hosts).
const DEEMPHASIS_3_5_DB: u32 = 4;
const PEER_SYNC_LENGTH: u32 = 0x4A;

impl LinkLimits {
    /// Highest gear and number of lanes within the limits that both ends have; `None` if there is
    /// no high speed.
    pub(crate) fn common<M: Machine>(self, channel: &mut Channel<M>) -> Run<Option<(u8, u8)>> {
        let mut numbers = [0; 4];
        let sources = [
            (A::PaMaxrxhsgear, false),
            (A::PaMaxrxhsgear, true),
            (A::PaConnectedrxdatalanes, false),
            (A::PaConnectedtxdatalanes, false),
        ];
        for (number, (attribute, peer)) in numbers.iter_mut().zip(sources) {
            let read = match peer {
                true => channel.dme_peer_get(attribute)?,
                false => channel.dme_get(attribute)?,
            };
            match read {
                Ok(value) => *number = value,
                Err(_) if channel.quirks.has(Quirk::DmeErrorsNotFatal) => return Ok(None),
                Err(cause) => return Err(cause.into()),
            }
        }
        let [local_gear, peer_gear, rx_lanes, tx_lanes] = numbers;
        let gear = local_gear.min(peer_gear).min(self.gear.into()) as u8;
        let lanes = rx_lanes.min(tx_lanes).min(self.lanes.into()) as u8;
        Ok((gear > 0 && lanes > 0).then_some((gear, lanes)))
    }
}

impl Link {
    /// Brings the link to this speed, with a device of these quirks.
    pub(crate) fn change<M: Machine>(
        self,
        channel: &mut Channel<M>,
        quirks: DeviceQuirks,
    ) -> Run<Result<(), Cause>> {
        if channel.quirks.has(Quirk::LanesBeforeGear) && self.lanes > 1 {
            let lanes_only = Self { gear: 1, high_speed: false, ..self };
            if let Err(cause) = lanes_only.apply(channel, quirks)? {
                return Ok(Err(cause));
            }
        }
        if let Err(cause) = self.apply(channel, quirks)? {
            return Ok(Err(cause));
        }
        if channel.quirks.has(Quirk::SettleAfterGear) {
            channel.sleep(1_000 * US)?;
            let _ = channel.dme_peer_get(A::PaGranularity)?;
        }
        if channel.quirks.has(Quirk::PeerTactivate) {
            lengthen_peer_activation(channel)?;
        }
        Ok(Ok(()))
    }

    /// The attributes of one power mode change, in the order every driver uses, then the change.
    fn apply<M: Machine>(
        self,
        channel: &mut Channel<M>,
        quirks: DeviceQuirks,
    ) -> Run<Result<(), Cause>> {
        if quirks.has(DeviceQuirk::DeemphasisByGear) {
            self.set_deemphasis(channel)?;
        }
        let fast = u32::from(self.high_speed);
        let adapt = if self.high_speed && self.gear >= 4 {
            HsAdaptType::Initial
        } else {
            HsAdaptType::None
        };
        let [protection, replay, request] = DATA_LINK_TIMEOUTS;
        let mode = if self.high_speed { LinkMode::Fast } else { LinkMode::Slow };
        let settings = [
            (A::PaRxgear, self.gear.into()),
            (A::PaActiverxdatalanes, self.lanes.into()),
            (A::PaRxtermination, fast),
            (A::PaTxgear, self.gear.into()),
            (A::PaActivetxdatalanes, self.lanes.into()),
            (A::PaTxtermination, fast),
            (A::PaHsseries, self.series.into_bits().into()),
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
            // An attribute that this PHY does not have is no reason not to try: the change itself
            // shows whether it worked.
            let _ = channel.dme_set(attribute, value)?;
        }
        let mode = PaPowerMode::new().with_tx(mode).with_rx(mode);
        Ok(channel.dme_set(A::PaPwrmode, mode.into_bits())?.map(|_| ()))
    }

    /// How much each transmitter of the host has to reduce its level, for the gear to come.
    fn set_deemphasis<M: Machine>(self, channel: &mut Channel<M>) -> Run<()> {
        let equaliser = if self.high_speed && self.gear == 5 { DEEMPHASIS_3_5_DB } else { 0 };
        for lane in 0..self.lanes {
            let setting = DmeSetting {
                attribute: A::TxHsEqualizerSetting,
                selector: lane.into(),
                peer: false,
                value: equaliser,
            };
            // As for all of them: the change itself shows whether it was right.
            let _ = channel.set_attribute(setting)?;
        }
        Ok(())
    }
}

/// What a quirk of the device has done to the link.
type Tuning<M> = fn(&mut Channel<M>) -> Run<()>;

impl DeviceQuirks {
    /// Sets the attributes that particular devices need before the link gets fast (Linux sets them
    /// at the same point). One that is refused stays as it is, and the others are set.
    pub(crate) fn tune<M: Machine>(self, channel: &mut Channel<M>) -> Run<()> {
        let tunings: [(DeviceQuirk, Tuning<M>); 4] = [
            // In units of PA_GRANULARITY, which starts as 100 µs.
            (DeviceQuirk::HostTactivate1Ms, |channel| {
                channel.dme_set(A::PaTactivate, 10)??;
                Ok(())
            }),
            (DeviceQuirk::PeerTactivateAboveHost, raise_peer_activation),
            (DeviceQuirk::LongerHibern8, |channel| {
                let agreed = channel.dme_get(A::PaHibern8time)??;
                channel.dme_set(A::PaHibern8time, agreed.saturating_add(1))??;
                Ok(())
            }),
            (DeviceQuirk::LongerPeerSync, |channel| {
                channel.dme_peer_set(A::PaTxhsg1synclength, PEER_SYNC_LENGTH)??;
                Ok(())
            }),
        ];
        let mut refused = Ok(());
        for (quirk, tune) in tunings {
            if !self.has(quirk) {
                continue;
            }
            if let failed @ Err(_) = settled(tune(channel))? {
                refused = failed;
            }
        }
        refused.map_err(Into::into)
    }
}

/// Raises the device's PA_TACTIVATE above the host's, in time: each end has its own unit.
fn raise_peer_activation<M: Machine>(channel: &mut Channel<M>) -> Run<()> {
    let local = (channel.dme_get(A::PaGranularity)??, channel.dme_get(A::PaTactivate)??);
    let peer = (channel.dme_peer_get(A::PaGranularity)??, channel.dme_peer_get(A::PaTactivate)??);
    let (Some(local_us), Some(peer_us)) = (granule_us(local.0), granule_us(peer.0)) else {
        return Err(Cause::Dme(A::PaGranularity, UicResult::InvalidMibAttributeValue).into());
    };
    let host_us = u64::from(local.1) * u64::from(local_us);
    if let Some(raised) = activation_above(host_us, peer.1, peer_us) {
        channel.dme_peer_set(A::PaTactivate, raised)??;
    }
    Ok(())
}

/// The PA_TACTIVATE of a device with this granularity, µs, that is longer than the host's;
/// `None` if `device` is already.
fn activation_above(host_us: u64, device: u32, granule_us: u32) -> Option<u32> {
    let granule_us = u64::from(granule_us);
    let is_longer = u64::from(device) * granule_us > host_us;
    (!is_longer).then(|| u32::try_from(host_us / granule_us + 1).unwrap_or(u32::MAX))
}

/// The device's receiver needs longer to wake than it says.
fn lengthen_peer_activation<M: Machine>(channel: &mut Channel<M>) -> Run<()> {
    let local = channel.dme_get(A::PaGranularity)?;
    let peer = channel.dme_peer_get(A::PaGranularity)?;
    if let (Ok(local), Ok(peer)) = (local, peer)
        && local == peer
        && let Ok(activation) = channel.dme_get(A::PaTactivate)?
    {
        let _ = channel.dme_peer_set(A::PaTactivate, activation.saturating_add(2))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_activation_is_raised_above_the_hosts_whatever_it_says() {
        assert_eq!(activation_above(100, 1, 100), Some(2), "as long is not longer");
        assert_eq!(activation_above(1_000, 300, 4), None);
        assert_eq!(activation_above(1_000, 250, 4), Some(251));
        // Registers of a broken end: all ones.
        assert_eq!(activation_above(100, u32::MAX, 100), None);
        assert_eq!(activation_above(u64::from(u32::MAX) * 100, 1, 1), Some(u32::MAX));
    }
}

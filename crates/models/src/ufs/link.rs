//! The link: UniPro and M-PHY attributes of both ends, power mode, hibernate.

use flysch_wire::ufs::registers::PowerModeStatus;
use flysch_wire::ufs::uic::{
    HsSeries, LinkMode, PaPowerMode, UicAttribute, UicResult, hs_lane_bytes_s,
    pwm_line_rate_max_kbit_s,
};

/// Number of lanes of our M-PHY in each direction.
const LANES: u8 = 2;
/// Highest PWM gear.
const PWM_GEAR_MAX: u8 = 4;
/// GenSelectorIndex of the first receive lane.
const FIRST_RX_LANE: u16 = 4;

/// The kind of an attribute: how it is indexed and who may write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    ReadOnly,
    ReadWrite,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    /// GenSelectorIndex must be 0.
    One,
    /// A transmit lane.
    TxLane,
    /// A receive lane.
    RxLane,
    /// CPort 0, the only one UFS uses.
    CPort,
}

/// One row of the attribute table.
struct Row {
    id: UicAttribute,
    index: Index,
    access: Access,
    default: u32,
    min: u32,
    max: u32,
}

const fn row(id: UicAttribute, access: Access, default: u32, min: u32, max: u32) -> Row {
    Row { id, index: Index::One, access, default, min, max }
}

const fn lane(id: UicAttribute, index: Index, access: Access, default: u32, max: u32) -> Row {
    Row { id, index, access, default, min: 0, max }
}

const RO: Access = Access::ReadOnly;
const RW: Access = Access::ReadWrite;
const TIMER: u32 = 0xFFFF;

/// The attributes of both ends. Defaults and ranges: UniPro 1.8, tables of PA, DL, N and T
/// attributes, and M-PHY 4.1 section 8; capabilities are those of our PHY.
static ROWS: [Row; 67] = {
    use UicAttribute::*;
    [
        lane(TxHibern8Control, Index::TxLane, RW, 0, 1),
        lane(TxLccEnable, Index::TxLane, RW, 1, 1),
        lane(TxHsEqualizerSetting, Index::TxLane, RW, 0, 7),
        lane(RxMinActivatetimeCapability, Index::RxLane, RO, 1, 9),
        lane(RxHibern8timeCapability, Index::RxLane, RO, 1, 128),
        row(PaAvailtxdatalanes, RO, LANES as u32, 1, 4),
        row(PaAvailrxdatalanes, RO, LANES as u32, 1, 4),
        row(PaTxlinkstartuphs, RW, 0, 0, 1),
        row(PaTxhsg1synclength, RW, 0x48, 0, 0xFF),
        row(PaTxhsg2synclength, RW, 0x48, 0, 0xFF),
        row(PaTxhsg3synclength, RW, 0x48, 0, 0xFF),
        row(PaTxhsg4synclength, RW, 0x48, 0, 0xFF),
        row(PaTxhsg5synclength, RW, 0x48, 0, 0xFF),
        row(PaLocalTxLccEnable, RW, 1, 0, 1),
        row(PaActivetxdatalanes, RW, 1, 1, 4),
        row(PaActiverxdatalanes, RW, 1, 1, 4),
        row(PaConnectedtxdatalanes, RO, 0, 0, 4),
        row(PaConnectedrxdatalanes, RO, 0, 0, 4),
        row(PaTxpwrstatus, RO, 0, 0, 7),
        row(PaRxpwrstatus, RO, 0, 0, 7),
        row(PaTxgear, RW, 1, 1, 7),
        row(PaRxgear, RW, 1, 1, 7),
        row(PaTxtermination, RW, 0, 0, 1),
        row(PaRxtermination, RW, 0, 0, 1),
        row(PaHsseries, RW, 1, 1, 2),
        row(PaPwrmode, RW, 0x55, 0x11, 0x77),
        row(PaMaxrxpwmgear, RW, PWM_GEAR_MAX as u32, 1, 7),
        row(PaMaxrxhsgear, RW, 0, 0, 6),
        row(PaRemoteverinfo, RO, 0, 0, 0xFFFF),
        row(PaLocalverinfo, RO, 5, 0, 0xFFFF),
        row(PaSaveconfigtime, RW, 250, 0, 250),
        row(PaHibern8time, RW, 128, 1, 128),
        row(PaTactivate, RW, 10, 1, 100_000),
        row(PaGranularity, RW, 6, 1, 6),
        row(PaPwrmodeuserdata0, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata1, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata2, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata3, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata4, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata5, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata6, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata7, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata8, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata9, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata10, RW, 0, 0, TIMER),
        row(PaPwrmodeuserdata11, RW, 0, 0, TIMER),
        row(PaPeerrxhsg4adaptinitial, RW, 0, 0, 0xFF),
        row(PaPeerrxhsg5adaptinitial, RW, 0, 0, 0xFF),
        row(PaTxhsadapttype, RW, 3, 0, 3),
        row(DlFc0protectiontimeoutval, RW, 0x1FFF, 0, 0x1FFF),
        row(DlTc0replaytimeoutval, RW, TIMER, 0, TIMER),
        row(DlAfc0reqtimeoutval, RW, 0x7FFF, 0, 0x7FFF),
        row(DlFc1protectiontimeoutval, RW, 0x1FFF, 0, 0x1FFF),
        row(DlTc1replaytimeoutval, RW, TIMER, 0, TIMER),
        row(DlAfc1reqtimeoutval, RW, 0x7FFF, 0, 0x7FFF),
        row(NDeviceid, RW, 0, 0, 127),
        row(NDeviceidValid, RW, 1, 0, 1),
        lane(TPeerdeviceid, Index::CPort, RW, 1, 127),
        lane(TPeercportid, Index::CPort, RW, 0, 2047),
        lane(TConnectionstate, Index::CPort, RW, 1, 2),
        lane(TTrafficclass, Index::CPort, RW, 0, 1),
        lane(TProtocolid, Index::CPort, RW, 0, 0xFFFF),
        lane(TCportflags, Index::CPort, RW, 6, 7),
        lane(TCportmode, Index::CPort, RW, 1, 3),
        row(DmeLocalfc0protectiontimeoutval, RW, 0x1FFF, 0, TIMER),
        row(DmeLocaltc0replaytimeoutval, RW, TIMER, 0, TIMER),
        row(DmeLocalafc0reqtimeoutval, RW, 0x7FFF, 0, TIMER),
    ]
};

fn row_of(id: UicAttribute) -> Option<usize> {
    ROWS.iter().position(|row| row.id == id)
}

/// The attributes of one end: for each table row, one value per lane.
#[derive(Clone, Debug)]
struct End {
    values: [[u32; LANES as usize]; ROWS.len()],
}

impl End {
    fn new(gear_max: u8) -> Self {
        let mut end =
            Self { values: core::array::from_fn(|row| [ROWS[row].default; LANES as usize]) };
        end.force(UicAttribute::PaMaxrxhsgear, u32::from(gear_max));
        end
    }

    fn value(&self, id: UicAttribute) -> u32 {
        row_of(id).map_or(0, |row| self.values[row][0])
    }

    fn force(&mut self, id: UicAttribute, value: u32) {
        if let Some(row) = row_of(id) {
            self.values[row] = [value; LANES as usize];
        }
    }

    fn cell(id: UicAttribute, selector: u16) -> Result<(usize, usize), UicResult> {
        let row = row_of(id).ok_or(UicResult::InvalidMibAttribute)?;
        let lane = match ROWS[row].index {
            Index::One | Index::CPort => (selector == 0).then_some(0),
            Index::TxLane => Some(selector),
            Index::RxLane => selector.checked_sub(FIRST_RX_LANE),
        };
        match lane {
            Some(lane) if lane < u16::from(LANES) => Ok((row, usize::from(lane))),
            _ => Err(UicResult::BadIndex),
        }
    }

    fn get(&self, id: UicAttribute, selector: u16) -> Result<u32, UicResult> {
        let (row, lane) = Self::cell(id, selector)?;
        Ok(self.values[row][lane])
    }

    fn set(&mut self, id: UicAttribute, selector: u16, value: u32) -> Result<(), UicResult> {
        let (row, lane) = Self::cell(id, selector)?;
        if ROWS[row].access == Access::ReadOnly {
            return Err(UicResult::ReadOnlyMibAttribute);
        }
        if !(ROWS[row].min..=ROWS[row].max).contains(&value) {
            return Err(UicResult::InvalidMibAttributeValue);
        }
        self.values[row][lane] = value;
        Ok(())
    }
}

/// State of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Not started, or lost.
    Down,
    /// Active.
    Up,
    /// Hibernated by DME_HIBERNATE_ENTER.
    Hibernated,
}

/// Both ends and the rate between them.
#[derive(Debug)]
pub(super) struct Link {
    gear_max: u8,
    lanes: u8,
    local: End,
    peer: End,
    pub(super) state: LinkState,
    /// Bytes per millisecond of one direction, all lanes together, before overhead.
    pub(super) rate: u64,
}

impl Link {
    pub(super) fn new(gear_max: u8, lanes: u8) -> Self {
        let mut link = Self {
            gear_max,
            lanes: lanes.clamp(1, LANES),
            local: End::new(gear_max),
            peer: End::new(gear_max),
            state: LinkState::Down,
            rate: 0,
        };
        link.reset();
        link
    }

    /// Both ends as after power-on.
    pub(super) fn reset(&mut self) {
        self.local = End::new(self.gear_max);
        self.peer = End::new(self.gear_max);
        self.state = LinkState::Down;
        self.rate = pwm_rate(1);
    }

    /// DME_LINKSTARTUP: the link comes up in PWM gear 1 on one lane, SLOWAUTO.
    pub(super) fn start_up(&mut self) {
        self.state = LinkState::Up;
        let lanes = u32::from(self.lanes);
        for end in [&mut self.local, &mut self.peer] {
            end.force(UicAttribute::PaConnectedtxdatalanes, lanes);
            end.force(UicAttribute::PaConnectedrxdatalanes, lanes);
            end.force(UicAttribute::PaRemoteverinfo, 5);
        }
        self.fall_back();
    }

    /// PWM gear 1 on one lane, SLOWAUTO: what start-up and LINERESET leave.
    pub(super) fn fall_back(&mut self) {
        self.rate = pwm_rate(1);
        for end in [&mut self.local, &mut self.peer] {
            end.force(UicAttribute::PaActivetxdatalanes, 1);
            end.force(UicAttribute::PaActiverxdatalanes, 1);
            end.force(UicAttribute::PaTxgear, 1);
            end.force(UicAttribute::PaRxgear, 1);
            end.force(UicAttribute::PaPwrmode, 0x55);
        }
    }

    pub(super) fn lose(&mut self) {
        self.state = LinkState::Down;
    }

    /// DME_GET or DME_PEER_GET.
    pub(super) fn get(
        &self,
        peer: bool,
        id: UicAttribute,
        selector: u16,
    ) -> Result<u32, UicResult> {
        if peer && self.state != LinkState::Up {
            return Err(UicResult::PeerCommunicationFailure);
        }
        if peer { self.peer.get(id, selector) } else { self.local.get(id, selector) }
    }

    /// DME_SET or DME_PEER_SET. A local PA_PWRMODE is more than stored: see
    /// [`change_power_mode`](Self::change_power_mode).
    pub(super) fn set(
        &mut self,
        peer: bool,
        id: UicAttribute,
        selector: u16,
        value: u32,
    ) -> Result<(), UicResult> {
        if peer && self.state != LinkState::Up {
            return Err(UicResult::PeerCommunicationFailure);
        }
        if peer {
            return self.peer.set(id, selector, value);
        }
        if id == UicAttribute::PaPwrmode {
            return check_power_mode(value);
        }
        self.local.set(id, selector, value)
    }

    /// Carries out the change requested by a DME_SET of PA_PWRMODE.
    pub(super) fn change_power_mode(&mut self, value: u32) -> PowerModeStatus {
        if self.state != LinkState::Up {
            return PowerModeStatus::FatalError;
        }
        let mode = PaPowerMode::from_bits(value);
        let tx = self.direction(
            mode.tx(),
            UicAttribute::PaTxgear,
            UicAttribute::PaActivetxdatalanes,
            UicAttribute::PaTxtermination,
        );
        let rx = self.direction(
            mode.rx(),
            UicAttribute::PaRxgear,
            UicAttribute::PaActiverxdatalanes,
            UicAttribute::PaRxtermination,
        );
        let (Some(tx), Some(rx)) = (tx, rx) else { return PowerModeStatus::ErrorCap };
        self.rate = tx.min(rx);
        self.local.force(UicAttribute::PaPwrmode, value);
        self.mirror();
        PowerModeStatus::Local
    }

    /// Rate of one direction in the requested mode, `None` if the link does not support it.
    fn direction(
        &self,
        mode: LinkMode,
        gear: UicAttribute,
        lanes: UicAttribute,
        termination: UicAttribute,
    ) -> Option<u64> {
        let gear = self.local.value(gear) as u8;
        let lanes = self.local.value(lanes);
        if lanes > u32::from(self.lanes) {
            return None;
        }
        match mode {
            LinkMode::Unchanged => Some(self.rate),
            mode if mode.is_high_speed() => {
                let limit = self.local.value(UicAttribute::PaMaxrxhsgear);
                if u32::from(gear) > limit.min(u32::from(self.gear_max))
                    || self.local.value(termination) == 0
                {
                    return None;
                }
                let series = HsSeries::from_bits(self.local.value(UicAttribute::PaHsseries) as u8);
                Some(hs_lane_bytes_s(gear, series)? / 1000 * u64::from(lanes))
            }
            _ if gear > PWM_GEAR_MAX => None,
            _ => Some(pwm_rate(gear) * u64::from(lanes)),
        }
    }

    /// Copies the result of the change to the other end.
    fn mirror(&mut self) {
        use UicAttribute::*;
        for (from, to) in [
            (PaTxgear, PaRxgear),
            (PaRxgear, PaTxgear),
            (PaActivetxdatalanes, PaActiverxdatalanes),
            (PaActiverxdatalanes, PaActivetxdatalanes),
            (PaTxtermination, PaRxtermination),
            (PaRxtermination, PaTxtermination),
            (PaHsseries, PaHsseries),
        ] {
            self.peer.force(to, self.local.value(from));
        }
        let mode = PaPowerMode::from_bits(self.local.value(PaPwrmode));
        let swapped = PaPowerMode::new().with_tx(mode.rx()).with_rx(mode.tx());
        self.peer.force(PaPwrmode, swapped.into_bits());
    }
}

fn check_power_mode(value: u32) -> Result<(), UicResult> {
    let mode = PaPowerMode::from_bits(value);
    let unknown = |mode| matches!(mode, LinkMode::Unknown(_));
    if value > 0xFF || unknown(mode.tx()) || unknown(mode.rx()) {
        return Err(UicResult::InvalidMibAttributeValue);
    }
    Ok(())
}

/// Bytes per millisecond of one lane in a PWM gear, after 8b10b.
fn pwm_rate(gear: u8) -> u64 {
    u64::from(pwm_line_rate_max_kbit_s(gear).unwrap_or(9_000)) / 10
}

#[cfg(test)]
mod tests;

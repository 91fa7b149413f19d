//! UIC commands, by which the host controls the UniPro stack (JESD223 5.6), and what they access:
//! the attributes of UniPro and M-PHY, power modes, gears.

use crate::code::code;
use bitfield_struct::bitfield;

code! {
    /// UICCMD.CMDOP.
    pub enum UicOpcode: u8 {
        /// Read a local attribute.
        DmeGet = 0x01 => "DME_GET",
        /// Write a local attribute.
        DmeSet = 0x02 => "DME_SET",
        /// Read an attribute of the peer, the device.
        DmePeerGet = 0x03 => "DME_PEER_GET",
        /// Write an attribute of the peer, the device.
        DmePeerSet = 0x04 => "DME_PEER_SET",
        /// Power the UniPro stack on.
        DmePoweron = 0x10 => "DME_POWERON",
        /// Power the UniPro stack off.
        DmePoweroff = 0x11 => "DME_POWEROFF",
        /// Enable the UniPro stack.
        DmeEnable = 0x12 => "DME_ENABLE",
        /// Reset the UniPro stack; argument 1 is the level.
        DmeReset = 0x14 => "DME_RESET",
        /// Reset the device's endpoint.
        DmeEndpointreset = 0x15 => "DME_ENDPOINTRESET",
        /// Bring the link up.
        DmeLinkstartup = 0x16 => "DME_LINKSTARTUP",
        /// Put the link into hibernate; IS.UHES signals completion.
        DmeHibernateEnter = 0x17 => "DME_HIBERNATE_ENTER",
        /// Take the link out of hibernate; IS.UHXS signals completion.
        DmeHibernateExit = 0x18 => "DME_HIBERNATE_EXIT",
        /// Enter test mode.
        DmeTestMode = 0x1A => "DME_TEST_MODE",
    }
}

code! {
    /// UCMDARG2.ConfigResultCode of the four attribute commands. The control commands use only 0
    /// and 1, where 1 is any failure.
    pub enum UicResult: u8 {
        /// Done.
        Success = 0x00 => "SUCCESS",
        /// No such attribute; for a control command: failure.
        InvalidMibAttribute = 0x01 => "INVALID_MIB_ATTRIBUTE",
        /// The attribute does not accept the value.
        InvalidMibAttributeValue = 0x02 => "INVALID_MIB_ATTRIBUTE_VALUE",
        /// The attribute cannot be written.
        ReadOnlyMibAttribute = 0x03 => "READ_ONLY_MIB_ATTRIBUTE",
        /// The attribute cannot be read.
        WriteOnlyMibAttribute = 0x04 => "WRITE_ONLY_MIB_ATTRIBUTE",
        /// No such selector index.
        BadIndex = 0x05 => "BAD_INDEX",
        /// The attribute is locked.
        LockedMibAttribute = 0x06 => "LOCKED_MIB_ATTRIBUTE",
        /// No such test feature.
        BadTestFeatureIndex = 0x07 => "BAD_TEST_FEATURE_INDEX",
        /// The peer does not answer.
        PeerCommunicationFailure = 0x08 => "PEER_COMMUNICATION_FAILURE",
        /// Another command is under way.
        Busy = 0x09 => "BUSY",
        /// The DME failed.
        DmeFailure = 0x0A => "DME_FAILURE",
    }
}

/// UCMDARG1 of the attribute commands.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UicArgument1 {
    /// GenSelectorIndex: 0, an M-TX lane (n), an M-RX lane (4 + n) or a CPort.
    pub gen_selector_index: u16,
    /// MIBattribute.
    #[bits(16)]
    pub mib_attribute: UicAttribute,
}

/// UCMDARG2 of the attribute commands.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UicArgument2 {
    /// ConfigResultCode, after the command.
    #[bits(8)]
    pub result: UicResult,
    __: u8,
    /// AttrSetType: 0 normal, 1 static (preserved over a reset).
    pub attr_set_type: u8,
    __: u8,
}

/// GenSelectorIndex of an M-TX lane.
pub const fn selector_tx_lane(lane: u8) -> u16 {
    lane as u16
}

/// GenSelectorIndex of an M-RX lane.
pub const fn selector_rx_lane(lane: u8) -> u16 {
    4 + lane as u16
}

code! {
    /// Attributes of M-PHY, UniPro and the DesignWare PHY used by UFS hosts. Names as in the MIPI
    /// specifications.
    pub enum UicAttribute: u16 {
        /// Hibernation of the transmitter.
        TxHibern8Control = 0x002B => "TX_HIBERN8_CONTROL",
        /// Line control commands on the transmitter.
        TxLccEnable = 0x002C => "TX_LCC_ENABLE",
        /// Equaliser of the transmitter.
        TxHsEqualizerSetting = 0x0037 => "TX_HS_EQUALIZER_SETTING",
        /// Shortest activation time that the receiver accepts, 100 µs.
        RxMinActivatetimeCapability = 0x008F => "RX_MIN_ACTIVATETIME_CAPABILITY",
        /// Shortest hibernation that the receiver accepts, 100 µs.
        RxHibern8timeCapability = 0x0092 => "RX_HIBERN8TIME_CAPABILITY",
        /// Transmit lanes the PHY has.
        PaAvailtxdatalanes = 0x1520 => "PA_AVAILTXDATALANES",
        /// Receive lanes the PHY has.
        PaAvailrxdatalanes = 0x1540 => "PA_AVAILRXDATALANES",
        /// Link start-up in high speed.
        PaTxlinkstartuphs = 0x1544 => "PA_TXLINKSTARTUPHS",
        /// Synchronisation length HS-G1.
        PaTxhsg1synclength = 0x1552 => "PA_TXHSG1SYNCLENGTH",
        /// Synchronisation length HS-G2.
        PaTxhsg2synclength = 0x1554 => "PA_TXHSG2SYNCLENGTH",
        /// Synchronisation length HS-G3.
        PaTxhsg3synclength = 0x1556 => "PA_TXHSG3SYNCLENGTH",
        /// Line control commands on the local transmitter.
        PaLocalTxLccEnable = 0x155E => "PA_LOCAL_TX_LCC_ENABLE",
        /// Transmit lanes in use.
        PaActivetxdatalanes = 0x1560 => "PA_ACTIVETXDATALANES",
        /// Transmit lanes connected.
        PaConnectedtxdatalanes = 0x1561 => "PA_CONNECTEDTXDATALANES",
        /// Power state of the transmitters.
        PaTxpwrstatus = 0x1567 => "PA_TXPWRSTATUS",
        /// Transmit gear.
        PaTxgear = 0x1568 => "PA_TXGEAR",
        /// Transmit termination.
        PaTxtermination = 0x1569 => "PA_TXTERMINATION",
        /// High speed rate series, [`HsSeries`].
        PaHsseries = 0x156A => "PA_HSSERIES",
        /// Power mode, [`PaPowerMode`]; writing it starts the change, whose completion IS.UPMS
        /// signals.
        PaPwrmode = 0x1571 => "PA_PWRMODE",
        /// Receive lanes in use.
        PaActiverxdatalanes = 0x1580 => "PA_ACTIVERXDATALANES",
        /// Receive lanes connected.
        PaConnectedrxdatalanes = 0x1581 => "PA_CONNECTEDRXDATALANES",
        /// Power state of the receivers.
        PaRxpwrstatus = 0x1582 => "PA_RXPWRSTATUS",
        /// Receive gear.
        PaRxgear = 0x1583 => "PA_RXGEAR",
        /// Receive termination.
        PaRxtermination = 0x1584 => "PA_RXTERMINATION",
        /// Highest PWM gear of the receiver.
        PaMaxrxpwmgear = 0x1586 => "PA_MAXRXPWMGEAR",
        /// Highest HS gear of the receiver.
        PaMaxrxhsgear = 0x1587 => "PA_MAXRXHSGEAR",
        /// UniPro version of the peer; low 4 bits, [`unipro_version`].
        PaRemoteverinfo = 0x15A0 => "PA_REMOTEVERINFO",
        /// Time to save the configuration.
        PaSaveconfigtime = 0x15A4 => "PA_SAVECONFIGTIME",
        /// Hibernation time, 100 µs.
        PaHibern8time = 0x15A7 => "PA_HIBERN8TIME",
        /// Activation time, 10 µs.
        PaTactivate = 0x15A8 => "PA_TACTIVATE",
        /// UniPro version of the local end; low 4 bits, [`unipro_version`].
        PaLocalverinfo = 0x15A9 => "PA_LOCALVERINFO",
        /// Unit of PA_TACTIVATE and PA_HIBERN8TIME, see [`granularity_us`].
        PaGranularity = 0x15AA => "PA_GRANULARITY",
        /// DL_FC0ProtectionTimeOutVal for the peer.
        PaPwrmodeuserdata0 = 0x15B0 => "PA_PWRMODEUSERDATA0",
        /// DL_TC0ReplayTimeOutVal for the peer.
        PaPwrmodeuserdata1 = 0x15B1 => "PA_PWRMODEUSERDATA1",
        /// DL_AFC0ReqTimeOutVal for the peer.
        PaPwrmodeuserdata2 = 0x15B2 => "PA_PWRMODEUSERDATA2",
        /// DL_FC1ProtectionTimeOutVal for the peer.
        PaPwrmodeuserdata3 = 0x15B3 => "PA_PWRMODEUSERDATA3",
        /// DL_TC1ReplayTimeOutVal for the peer.
        PaPwrmodeuserdata4 = 0x15B4 => "PA_PWRMODEUSERDATA4",
        /// DL_AFC1ReqTimeOutVal for the peer.
        PaPwrmodeuserdata5 = 0x15B5 => "PA_PWRMODEUSERDATA5",
        /// User data 6.
        PaPwrmodeuserdata6 = 0x15B6 => "PA_PWRMODEUSERDATA6",
        /// User data 7.
        PaPwrmodeuserdata7 = 0x15B7 => "PA_PWRMODEUSERDATA7",
        /// User data 8.
        PaPwrmodeuserdata8 = 0x15B8 => "PA_PWRMODEUSERDATA8",
        /// User data 9.
        PaPwrmodeuserdata9 = 0x15B9 => "PA_PWRMODEUSERDATA9",
        /// User data 10.
        PaPwrmodeuserdata10 = 0x15BA => "PA_PWRMODEUSERDATA10",
        /// User data 11.
        PaPwrmodeuserdata11 = 0x15BB => "PA_PWRMODEUSERDATA11",
        /// Synchronisation length HS-G4.
        PaTxhsg4synclength = 0x15D0 => "PA_TXHSG4SYNCLENGTH",
        /// Adaptation length that the peer's receiver requires at HS-G4.
        PaPeerrxhsg4adaptinitial = 0x15D3 => "PA_PEERRXHSG4ADAPTINITIAL",
        /// Adaptation at the next change to a high gear, [`HsAdaptType`].
        PaTxhsadapttype = 0x15D4 => "PA_TXHSADAPTTYPE",
        /// Synchronisation length HS-G5.
        PaTxhsg5synclength = 0x15D6 => "PA_TXHSG5SYNCLENGTH",
        /// Adaptation length that the peer's receiver requires at HS-G5.
        PaPeerrxhsg5adaptinitial = 0x15D9 => "PA_PEERRXHSG5ADAPTINITIAL",
        /// Adaptation length that the peer's receiver requires at HS-G6.
        PaPeerrxhsg6adaptinitial = 0x15DF => "PA_PEERRXHSG6ADAPTINITIAL",
        /// Transmit equalisation HS-G1.
        PaTxeqg1setting = 0x15E1 => "PA_TXEQG1SETTING",
        /// Transmit equalisation HS-G2.
        PaTxeqg2setting = 0x15E2 => "PA_TXEQG2SETTING",
        /// Transmit equalisation HS-G3.
        PaTxeqg3setting = 0x15E3 => "PA_TXEQG3SETTING",
        /// Transmit equalisation HS-G4.
        PaTxeqg4setting = 0x15E4 => "PA_TXEQG4SETTING",
        /// Transmit equalisation HS-G5.
        PaTxeqg5setting = 0x15E5 => "PA_TXEQG5SETTING",
        /// Transmit equalisation HS-G6.
        PaTxeqg6setting = 0x15E6 => "PA_TXEQG6SETTING",
        /// Equalisation training setting.
        PaTxeqtrsetting = 0x15E7 => "PA_TXEQTRSETTING",
        /// Equalisation training setting of the peer.
        PaPeertxeqtrsetting = 0x15E8 => "PA_PEERTXEQTRSETTING",
        /// Precoding.
        PaPrecodeen = 0x15E9 => "PA_PRECODEEN",
        /// Gear of the equalisation training.
        PaEqtrgear = 0x15EA => "PA_EQTRGEAR",
        /// Adaptation length of the equalisation training.
        PaTxadaptlengthEqtr = 0x15EB => "PA_TXADAPTLENGTH_EQTR",
        /// Traffic class 0 flow control protection time-out.
        DlFc0protectiontimeoutval = 0x2041 => "DL_FC0PROTECTIONTIMEOUTVAL",
        /// Traffic class 0 replay time-out.
        DlTc0replaytimeoutval = 0x2042 => "DL_TC0REPLAYTIMEOUTVAL",
        /// Traffic class 0 acknowledgement request time-out.
        DlAfc0reqtimeoutval = 0x2043 => "DL_AFC0REQTIMEOUTVAL",
        /// Traffic class 1 flow control protection time-out.
        DlFc1protectiontimeoutval = 0x2061 => "DL_FC1PROTECTIONTIMEOUTVAL",
        /// Traffic class 1 replay time-out.
        DlTc1replaytimeoutval = 0x2062 => "DL_TC1REPLAYTIMEOUTVAL",
        /// Traffic class 1 acknowledgement request time-out.
        DlAfc1reqtimeoutval = 0x2063 => "DL_AFC1REQTIMEOUTVAL",
        /// Device id of this end.
        NDeviceid = 0x3000 => "N_DEVICEID",
        /// Whether N_DEVICEID is valid.
        NDeviceidValid = 0x3001 => "N_DEVICEID_VALID",
        /// Device id of the CPort's peer.
        TPeerdeviceid = 0x4021 => "T_PEERDEVICEID",
        /// CPort id of the CPort's peer.
        TPeercportid = 0x4022 => "T_PEERCPORTID",
        /// Connection state of the CPort.
        TConnectionstate = 0x4020 => "T_CONNECTIONSTATE",
        /// Traffic class of the CPort.
        TTrafficclass = 0x4023 => "T_TRAFFICCLASS",
        /// Protocol of the CPort.
        TProtocolid = 0x4024 => "T_PROTOCOLID",
        /// Flags of the CPort.
        TCportflags = 0x4025 => "T_CPORTFLAGS",
        /// Transmit token value.
        TTxtokenvalue = 0x4026 => "T_TXTOKENVALUE",
        /// Receive token value.
        TRxtokenvalue = 0x4027 => "T_RXTOKENVALUE",
        /// Local buffer space of the CPort.
        TLocalbufferspace = 0x4028 => "T_LOCALBUFFERSPACE",
        /// Buffer space of the CPort's peer.
        TPeerbufferspace = 0x4029 => "T_PEERBUFFERSPACE",
        /// Credits sent at once.
        TCreditstosend = 0x402A => "T_CREDITSTOSEND",
        /// Mode of the CPort.
        TCportmode = 0x402B => "T_CPORTMODE",
        /// DME: local traffic class 0 flow control protection time-out.
        DmeLocalfc0protectiontimeoutval = 0xD041 => "DME_LocalFC0ProtectionTimeOutVal",
        /// DME: local traffic class 0 replay time-out.
        DmeLocaltc0replaytimeoutval = 0xD042 => "DME_LocalTC0ReplayTimeOutVal",
        /// DME: local traffic class 0 acknowledgement request time-out.
        DmeLocalafc0reqtimeoutval = 0xD043 => "DME_LocalAFC0ReqTimeOutVal",
        /// DesignWare: power state.
        VsPowerstate = 0xD083 => "VS_POWERSTATE",
        /// DesignWare: M-PHY configuration update.
        VsMphycfgupdt = 0xD085 => "VS_MPHYCFGUPDT",
        /// DesignWare: debug.
        VsDebugomc = 0xD09E => "VS_DEBUGOMC",
        /// DesignWare: M-PHY disable.
        VsMphydisable = 0xD0C1 => "VS_MPHYDISABLE",
    }
}

code! {
    /// Mode of one direction in PA_PWRMODE.
    pub enum LinkMode: u8 {
        /// High speed.
        Fast = 1 => "FAST_MODE",
        /// Low speed.
        Slow = 2 => "SLOW_MODE",
        /// High speed with automatic sleep.
        FastAuto = 4 => "FASTAUTO_MODE",
        /// Low speed with automatic sleep.
        SlowAuto = 5 => "SLOWAUTO_MODE",
        /// Leave this direction as it is.
        Unchanged = 7 => "UNCHANGED",
    }
}

impl LinkMode {
    /// Whether the mode is one of the two high speed modes.
    pub const fn is_high_speed(self) -> bool {
        matches!(self, Self::Fast | Self::FastAuto)
    }
}

/// Value of PA_PWRMODE.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct PaPowerMode {
    /// Mode from this end to the peer.
    #[bits(4)]
    pub tx: LinkMode,
    /// Mode from the peer to this end.
    #[bits(4)]
    pub rx: LinkMode,
    #[bits(24)]
    __: u32,
}

code! {
    /// Value of PA_HSSERIES: the two families of high speed rates.
    pub enum HsSeries: u8 {
        /// Rate series A: 1248 Mbit/s at gear 1.
        A = 1 => "A",
        /// Rate series B: 1459.2 Mbit/s at gear 1.
        B = 2 => "B",
    }
}

code! {
    /// Value of PA_TXHSADAPTTYPE.
    pub enum HsAdaptType: u8 {
        /// Refresh an earlier adaptation.
        Refresh = 0 => "REFRESH",
        /// Initial adaptation: for HS-G4 and above.
        Initial = 1 => "INITIAL",
        /// Do not adapt.
        None = 3 => "NO_ADAPT",
    }
}

/// Line rate of one lane in a high speed gear, kbit/s; `None` for a gear outside 1..=5. Series B is
/// that of a reference clock of 19.2 or 38.4 MHz; with 26 MHz it has 1456 Mbit/s at gear 1.
pub const fn hs_line_rate_kbit_s(gear: u8, series: HsSeries) -> Option<u32> {
    let base = match series {
        HsSeries::A => 1_248_000,
        HsSeries::B => 1_459_200,
        HsSeries::Unknown(_) => return None,
    };
    match gear {
        1..=5 => Some(base << (gear - 1)),
        _ => None,
    }
}

/// Bytes per second that one lane carries in a high speed gear after 8b10b coding; `None` as for
/// [`hs_line_rate_kbit_s`]. Frame headers and acknowledgements are included.
pub const fn hs_lane_bytes_s(gear: u8, series: HsSeries) -> Option<u64> {
    match hs_line_rate_kbit_s(gear, series) {
        Some(rate) => Some(rate as u64 * 1000 / 10),
        None => None,
    }
}

/// Highest line rate of one lane in a PWM gear 1..=7, kbit/s: 9 Mbit/s doubling per gear.
pub const fn pwm_line_rate_max_kbit_s(gear: u8) -> Option<u32> {
    match gear {
        1..=7 => Some(9_000 << (gear - 1)),
        _ => None,
    }
}

/// The unit for a value of PA_GRANULARITY, µs; `None` outside 1..=6.
pub const fn granularity_us(value: u32) -> Option<u32> {
    match value {
        1 => Some(1),
        2 => Some(4),
        3 => Some(8),
        4 => Some(16),
        5 => Some(32),
        6 => Some(100),
        _ => None,
    }
}

/// The UniPro version for a value of PA_LOCALVERINFO or PA_REMOTEVERINFO; `None` if it has no name.
pub const fn unipro_version(value: u32) -> Option<&'static str> {
    match value & 0xF {
        1 => Some("1.40"),
        2 => Some("1.41"),
        3 => Some("1.6"),
        4 => Some("1.61"),
        5 => Some("1.8"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

//! UIC error registers. Reading one clears it.

use bitfield_struct::bitfield;

/// UECPA: errors of the PHY adapter layer. Reading clears it.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UecPa {
    /// A PHY error on lane 0.
    pub lane_0: bool,
    /// A PHY error on lane 1.
    pub lane_1: bool,
    /// A PHY error on lane 2.
    pub lane_2: bool,
    /// A PHY error on lane 3.
    pub lane_3: bool,
    /// Generic PHY adapter errors, LINERESET among them.
    pub generic: bool,
    #[bits(26)]
    __: u32,
    /// ERR: the other bits are valid.
    pub err: bool,
}

/// UECDL: errors of the data link layer. Reading clears it.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UecDl {
    /// NAC_RECEIVED.
    pub nac_received: bool,
    /// TCx_REPLAY_TIMER_EXPIRED.
    pub tcx_replay_timer_expired: bool,
    /// AFCx_REQUEST_TIMER_EXPIRED.
    pub afcx_request_timer_expired: bool,
    /// FCx_PROTECTION_TIMER_EXPIRED.
    pub fcx_protection_timer_expired: bool,
    /// CRC_ERROR.
    pub crc_error: bool,
    /// RX_BUFFER_OVERFLOW.
    pub rx_buffer_overflow: bool,
    /// MAX_FRAME_LENGTH_EXCEEDED.
    pub max_frame_length_exceeded: bool,
    /// WRONG_SEQUENCE_NUMBER.
    pub wrong_sequence_number: bool,
    /// AFC_FRAME_SYNTAX_ERROR.
    pub afc_frame_syntax_error: bool,
    /// NAC_FRAME_SYNTAX_ERROR.
    pub nac_frame_syntax_error: bool,
    /// EOF_SYNTAX_ERROR.
    pub eof_syntax_error: bool,
    /// FRAME_SYNTAX_ERROR.
    pub frame_syntax_error: bool,
    /// BAD_CTRL_SYMBOL_TYPE.
    pub bad_ctrl_symbol_type: bool,
    /// PA_INIT error: the link is lost.
    pub pa_init_error: bool,
    /// PA_ERROR_IND_RECEIVED.
    pub pa_error_ind_received: bool,
    /// PA_INIT.
    pub pa_init: bool,
    #[bits(15)]
    __: u32,
    /// ERR: the other bits are valid.
    pub err: bool,
}

/// UECN: errors of the network layer. Reading clears it.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UecN {
    /// UNSUPPORTED_HEADER_TYPE.
    pub unsupported_header_type: bool,
    /// BAD_DEVICEID_ENC.
    pub bad_deviceid_enc: bool,
    /// LHDR_TRAP_PACKET_DROPPING.
    pub lhdr_trap_packet_dropping: bool,
    #[bits(28)]
    __: u32,
    /// ERR: the other bits are valid.
    pub err: bool,
}

/// UECT: errors of the transport layer. Reading clears it.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UecT {
    /// UNSUPPORTED_HEADER_TYPE.
    pub unsupported_header_type: bool,
    /// UNKNOWN_CPORTID.
    pub unknown_cportid: bool,
    /// NO_CONNECTION_RX.
    pub no_connection_rx: bool,
    /// CONTROLLED_SEGMENT_DROPPING.
    pub controlled_segment_dropping: bool,
    /// BAD_TC.
    pub bad_tc: bool,
    /// E2E_CREDIT_OVERFLOW.
    pub e2e_credit_overflow: bool,
    /// SAFETY_VALVE_DROPPING.
    pub safety_valve_dropping: bool,
    #[bits(24)]
    __: u32,
    /// ERR: the other bits are valid.
    pub err: bool,
}

/// UECDME: errors of the DME. Reading clears it.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UecDme {
    /// Generic DME error.
    pub generic: bool,
    /// QoS notification bits: transmitter, receiver, peer. They are notifications, not errors.
    #[bits(3)]
    pub qos: u8,
    #[bits(27)]
    __: u32,
    /// ERR: the other bits are valid.
    pub err: bool,
}

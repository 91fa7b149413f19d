//! UFSHCI registers: offsets from the start of the register space, and the bits in them.
//!
//! Section numbers are those of JESD223D (UFSHCI 3.0) for the core registers and of JESD223E
//! (UFSHCI 4.0) for multi-circular queues. Bits without a name survive `from_bits`/`into_bits`.

use crate::code::code;
use bitfield_struct::bitfield;

// Host capabilities.

/// Controller capabilities, [`Cap`].
pub const CAP: u32 = 0x00;
/// Multi-circular queue capabilities, [`McqCap`].
pub const MCQCAP: u32 = 0x04;
/// UFSHCI version, [`Ver`].
pub const VER: u32 = 0x08;
/// Extended controller capabilities (UFSHCI 4.1).
pub const EXT_CAP: u32 = 0x0C;
/// Host controller product id.
pub const HCPID: u32 = 0x10;
/// Host controller manufacturer id.
pub const HCMID: u32 = 0x14;
/// Auto-hibern8 idle timer, [`Ahit`].
pub const AHIT: u32 = 0x18;

// Operation and run-time.

/// Interrupt status, write one to clear, [`Interrupts`].
pub const IS: u32 = 0x20;
/// Interrupt enable, [`Interrupts`].
pub const IE: u32 = 0x24;
/// Host controller status extended.
pub const HCSEXT: u32 = 0x2C;
/// Host controller status, [`Hcs`].
pub const HCS: u32 = 0x30;
/// Host controller enable, [`Hce`].
pub const HCE: u32 = 0x34;
/// UIC error code, PHY adapter layer, cleared by reading, [`UecPa`].
pub const UECPA: u32 = 0x38;
/// UIC error code, data link layer, cleared by reading, [`UecDl`].
pub const UECDL: u32 = 0x3C;
/// UIC error code, network layer, cleared by reading, [`UecN`].
pub const UECN: u32 = 0x40;
/// UIC error code, transport layer, cleared by reading, [`UecT`].
pub const UECT: u32 = 0x44;
/// UIC error code, DME, cleared by reading, [`UecDme`].
pub const UECDME: u32 = 0x48;
/// UTP transfer request interrupt aggregation, [`InterruptAggregation`].
pub const UTRIACR: u32 = 0x4C;

// UTP transfer requests, single doorbell.

/// Transfer request list base, low half; the list is aligned to [`LIST_ALIGNMENT`].
pub const UTRLBA: u32 = 0x50;
/// Transfer request list base, high half.
pub const UTRLBAU: u32 = 0x54;
/// Transfer request doorbell: write one to set, the controller clears.
pub const UTRLDBR: u32 = 0x58;
/// Transfer request list clear: a bit written **zero** clears that slot, one leaves it.
pub const UTRLCLR: u32 = 0x5C;
/// Transfer request list run-stop, [`RunStop`].
pub const UTRLRSR: u32 = 0x60;
/// Transfer request completion notification, write one to clear.
pub const UTRLCNR: u32 = 0x64;

// UTP task management.

/// Task management request list base, low half; the list is aligned to [`LIST_ALIGNMENT`].
pub const UTMRLBA: u32 = 0x70;
/// Task management request list base, high half.
pub const UTMRLBAU: u32 = 0x74;
/// Task management request doorbell: write one to set, the controller clears.
pub const UTMRLDBR: u32 = 0x78;
/// Task management request list clear: a bit written **zero** clears that slot.
pub const UTMRLCLR: u32 = 0x7C;
/// Task management request list run-stop, [`RunStop`].
pub const UTMRLRSR: u32 = 0x80;

// UIC command.

/// UIC command: writing an opcode starts it, see [`super::uic::UicOpcode`].
pub const UICCMD: u32 = 0x90;
/// UIC command argument 1, see [`super::uic::UicArgument1`].
pub const UCMDARG1: u32 = 0x94;
/// UIC command argument 2, see [`super::uic::UicArgument2`].
pub const UCMDARG2: u32 = 0x98;
/// UIC command argument 3: the attribute value, in or out.
pub const UCMDARG3: u32 = 0x9C;

/// Length of the core register block up to UCMDARG3, bytes: what a dump takes.
pub const CORE_LENGTH: u32 = 0xA0;

// Inline encryption.

/// Crypto capability, [`CryptoCap`].
pub const CCAP: u32 = 0x100;
/// First crypto capability entry, [`CryptoCapEntry`]; entry n is at `CRYPTOCAP + 4 * n`.
pub const CRYPTOCAP: u32 = 0x104;
/// Unit of [`CryptoCap::cfgptr`], bytes.
pub const CRYPTO_CONFIG_UNIT: u32 = 0x100;
/// Length of one crypto configuration entry, bytes.
pub const CRYPTO_CONFIG_LENGTH: u32 = 0x80;

// Multi-circular queues, global.

/// Global configuration, [`Config`].
pub const CONFIG: u32 = 0x300;
/// Multi-circular queue configuration, [`McqConfig`].
pub const MCQCONFIG: u32 = 0x380;
/// Event-specific interrupt message address, low half.
pub const ESILBA: u32 = 0x384;
/// Event-specific interrupt message address, high half.
pub const ESIUBA: u32 = 0x388;

/// Alignment of the two request lists of single doorbell mode, bytes.
pub const LIST_ALIGNMENT: u64 = 1024;
/// Most slots a transfer request list can have: one doorbell register.
pub const TRANSFER_SLOTS_MAX: u32 = 32;
/// Most slots a task management request list can have.
pub const TASK_SLOTS_MAX: u32 = 8;

/// Multi-circular queue configuration bank: one entry of [`STRIDE`](mcq::STRIDE) bytes per
/// queue, starting at [`McqCap::bank_offset`].
pub mod mcq {
    /// Distance from one queue's entry to the next, bytes.
    pub const STRIDE: u32 = 0x40;
    /// Unit of [`McqCap::qcfgptr`](super::McqCap::qcfgptr), bytes.
    pub const BANK_UNIT: u32 = 0x200;
    /// Submission queue attribute, [`SqAttr`](super::SqAttr).
    pub const SQATTR: u32 = 0x00;
    /// Submission queue base, low half.
    pub const SQLBA: u32 = 0x04;
    /// Submission queue base, high half.
    pub const SQUBA: u32 = 0x08;
    /// Where this queue's SQHP block is, bytes from the start of the register space.
    pub const SQDAO: u32 = 0x0C;
    /// Where this queue's SQIS block is, bytes from the start of the register space.
    pub const SQISAO: u32 = 0x10;
    /// Submission queue configuration.
    pub const SQCFG: u32 = 0x14;
    /// Completion queue attribute, [`CqAttr`](super::CqAttr).
    pub const CQATTR: u32 = 0x20;
    /// Completion queue base, low half.
    pub const CQLBA: u32 = 0x24;
    /// Completion queue base, high half.
    pub const CQUBA: u32 = 0x28;
    /// Where this queue's CQHP block is, bytes from the start of the register space.
    pub const CQDAO: u32 = 0x2C;
    /// Where this queue's CQIS block is, bytes from the start of the register space.
    pub const CQISAO: u32 = 0x30;
    /// Completion queue configuration.
    pub const CQCFG: u32 = 0x34;

    // Submission queue operation and run-time block, relative to SQDAO.

    /// Submission queue head, byte offset into the ring; the controller moves it.
    pub const SQHP: u32 = 0x00;
    /// Submission queue tail, byte offset into the ring; the host moves it: the doorbell.
    pub const SQTP: u32 = 0x04;
    /// Submission queue run-time command, [`SqRtc`](super::SqRtc).
    pub const SQRTC: u32 = 0x08;
    /// Submission queue clean-up target, [`SqCti`](super::SqCti).
    pub const SQCTI: u32 = 0x0C;
    /// Submission queue run-time status, [`SqRts`](super::SqRts).
    pub const SQRTS: u32 = 0x10;

    // Submission queue interrupt block, relative to SQISAO.

    /// Submission queue interrupt status, write one to clear.
    pub const SQIS: u32 = 0x00;
    /// Submission queue interrupt enable.
    pub const SQIE: u32 = 0x04;

    // Completion queue operation and run-time block, relative to CQDAO.

    /// Completion queue head, byte offset into the ring; the host moves it.
    pub const CQHP: u32 = 0x00;
    /// Completion queue tail, byte offset into the ring; the controller moves it.
    pub const CQTP: u32 = 0x04;

    // Completion queue interrupt block, relative to CQISAO.

    /// Completion queue interrupt status, write one to clear, [`CqInterrupts`](super::CqInterrupts).
    pub const CQIS: u32 = 0x00;
    /// Completion queue interrupt enable, [`CqInterrupts`](super::CqInterrupts).
    pub const CQIE: u32 = 0x04;
    /// Completion queue interrupt aggregation,
    /// [`InterruptAggregation`](super::InterruptAggregation).
    pub const MCQIACR: u32 = 0x08;
}

/// CAP, controller capabilities (JESD223 5.2.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// NUTRS: transfer request slots minus one, single doorbell mode. Prefer
    /// [`transfer_slots`](Self::transfer_slots).
    #[bits(5)]
    pub nutrs: u8,
    #[bits(3)]
    __: u8,
    /// NORTT: outstanding READY TO TRANSFER requests the controller supports, minus one.
    pub nortt: u8,
    /// NUTMRS: task management slots minus one.
    #[bits(3)]
    pub nutmrs: u8,
    #[bits(3)]
    __: u8,
    /// EHSLUTRDS: EHS length in the UTRD is supported.
    pub ehslutrds: bool,
    /// AUTOH8: auto-hibern8 is supported.
    pub autoh8: bool,
    /// 64AS: 64-bit addresses are supported.
    pub addressing_64bit: bool,
    /// OODDS: out-of-order data delivery is supported.
    pub oodds: bool,
    /// UICDMETMS: the DME_TEST_MODE command is supported.
    pub uicdmetms: bool,
    __: bool,
    /// CS: inline encryption is supported.
    pub cs: bool,
    /// LSDBS: **set** where the legacy single doorbell is **not** supported (UFSHCI 4.0).
    pub lsdbs: bool,
    /// MCQS: multi-circular queues are supported (UFSHCI 4.0).
    pub mcqs: bool,
    __: bool,
}

impl Cap {
    /// Transfer request slots in single doorbell mode, 1..=32.
    #[inline]
    pub const fn transfer_slots(self) -> u32 {
        self.nutrs() as u32 + 1
    }

    /// Task management request slots, 1..=8.
    #[inline]
    pub const fn task_slots(self) -> u32 {
        self.nutmrs() as u32 + 1
    }

    /// Most active commands in multi-circular queue mode, 1..=256: in that mode NUTRS is read as
    /// eight bits wide.
    #[inline]
    pub const fn active_commands_max(self) -> u32 {
        (self.into_bits() & 0xFF) + 1
    }
}

/// MCQCAP, multi-circular queue capabilities.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct McqCap {
    /// MAXQ: queues of each kind minus one. Prefer [`queues`](Self::queues).
    pub maxq: u8,
    /// SP: strict priority between submission queues.
    pub sp: bool,
    /// RRP: round robin between submission queues.
    pub rrp: bool,
    /// EIS: EXT_IID is supported.
    pub eis: bool,
    #[bits(5)]
    __: u8,
    /// QCFGPTR: where the queue configuration bank starts, in units of 0x200 bytes.
    pub qcfgptr: u8,
    /// MIAG: interrupt aggregation groups.
    pub miag: u8,
}

impl McqCap {
    /// Submission (and completion) queues the controller has, 1..=256.
    #[inline]
    pub const fn queues(self) -> u32 {
        self.maxq() as u32 + 1
    }

    /// Where queue 0's configuration entry is, bytes from the start of the register space.
    #[inline]
    pub const fn bank_offset(self) -> u32 {
        self.qcfgptr() as u32 * mcq::BANK_UNIT
    }

    /// Where a queue's configuration entry is, bytes from the start of the register space.
    #[inline]
    pub const fn queue_offset(self, queue: u8) -> u32 {
        self.bank_offset() + queue as u32 * mcq::STRIDE
    }
}

/// VER, UFSHCI version. 1.x used another layout; [`number`](Self::number) knows both.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Ver {
    /// VS: version suffix.
    #[bits(4)]
    pub suffix: u8,
    /// MNR: minor version number.
    #[bits(4)]
    pub minor: u8,
    /// MJR: major version number.
    pub major: u8,
    /// Zero from 2.0 on; the major number in 1.0 and 1.1.
    pub legacy_major: u16,
}

impl Ver {
    /// UFSHCI 2.1.
    pub const V2_1: Self = Self::from_bits(0x210);
    /// UFSHCI 3.0.
    pub const V3_0: Self = Self::from_bits(0x300);
    /// UFSHCI 4.0.
    pub const V4_0: Self = Self::from_bits(0x400);
    /// UFSHCI 4.1.
    pub const V4_1: Self = Self::from_bits(0x410);

    /// Major and minor number, comparable across the two layouts.
    pub const fn number(self) -> (u8, u8) {
        if self.legacy_major() != 0 {
            (self.legacy_major() as u8, self.major())
        } else {
            (self.major(), self.minor())
        }
    }
}

impl core::fmt::Display for Ver {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (major, minor) = self.number();
        write!(f, "{major}.{minor}")
    }
}

/// AHIT, auto-hibern8 idle timer. All zero switches it off.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Ahit {
    /// AH8ITV: timer value, in units of `10^scale` µs; zero switches auto-hibern8 off.
    #[bits(10)]
    pub ah8itv: u16,
    /// TS: timer scale, 0..=5; 6 and 7 are reserved.
    #[bits(3)]
    pub ts: u8,
    #[bits(19)]
    __: u32,
}

impl Ahit {
    /// Longest idle time that can be said: 1023 x 100 ms, µs.
    pub const IDLE_MAX_US: u32 = 1023 * 100_000;

    /// The finest timer that says this idle time, rounded down to its unit and limited to
    /// [`IDLE_MAX_US`](Self::IDLE_MAX_US). Zero is off.
    pub const fn from_idle_us(idle_us: u32) -> Self {
        let mut value = if idle_us > Self::IDLE_MAX_US { Self::IDLE_MAX_US } else { idle_us };
        let mut scale = 0;
        while value > 1023 {
            value /= 10;
            scale += 1;
        }
        Self::new().with_ah8itv(value as u16).with_ts(scale)
    }

    /// The idle time after which the link hibernates, µs; zero if off. A reserved scale counts
    /// as the coarsest.
    pub const fn idle_us(self) -> u32 {
        let scale = if self.ts() > 5 { 5 } else { self.ts() };
        self.ah8itv() as u32 * 10u32.pow(scale as u32)
    }
}

/// IS and IE: interrupt causes (JESD223 5.3.1, 5.3.2). IS is write one to clear.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Interrupts {
    /// UTRCS: a transfer request with the interrupt bit finished (single doorbell).
    pub utrcs: bool,
    /// UDEPRI: endpoint reset indication from the device.
    pub udepri: bool,
    /// UE: UIC error, the cause is in UECPA..UECDME.
    pub ue: bool,
    /// UTMS: a DME_TEST_MODE command finished.
    pub utms: bool,
    /// UPMS: a power mode change finished, the result is in HCS.UPMCRS.
    pub upms: bool,
    /// UHXS: hibernate exit finished, the result is in HCS.UPMCRS.
    pub uhxs: bool,
    /// UHES: hibernate enter finished, the result is in HCS.UPMCRS.
    pub uhes: bool,
    /// ULLS: link lost.
    pub ulls: bool,
    /// ULSS: the device started up the link.
    pub ulss: bool,
    /// UTMRCS: a task management request with the interrupt bit finished.
    pub utmrcs: bool,
    /// UCCS: a UIC command finished.
    pub uccs: bool,
    /// DFES: device fatal error.
    pub dfes: bool,
    /// UTPES: UTP error.
    pub utpes: bool,
    #[bits(3)]
    __: u8,
    /// HCFES: host controller fatal error.
    pub hcfes: bool,
    /// SBFES: system bus fatal error.
    pub sbfes: bool,
    /// CEFES: crypto engine fatal error.
    pub cefes: bool,
    __: bool,
    /// CQES: a completion queue has a new entry (multi-circular queues).
    pub cqes: bool,
    /// IAGES: an interrupt aggregation group fired (multi-circular queues).
    pub iages: bool,
    #[bits(10)]
    __: u16,
}

impl Interrupts {
    /// Causes after which only a host reset helps.
    pub const FATAL: Self = Self::new()
        .with_ulls(true)
        .with_dfes(true)
        .with_utpes(true)
        .with_hcfes(true)
        .with_sbfes(true)
        .with_cefes(true);

    /// Whether one of the causes in `other` is set here.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.into_bits() & other.into_bits() != 0
    }

    /// The causes of both.
    #[inline]
    pub const fn union(self, other: Self) -> Self {
        Self::from_bits(self.into_bits() | other.into_bits())
    }

    /// The names of the causes that are set, lowest bit first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(u8, &str); 18] = [
            (0, "UTRCS"),
            (1, "UDEPRI"),
            (2, "UE"),
            (3, "UTMS"),
            (4, "UPMS"),
            (5, "UHXS"),
            (6, "UHES"),
            (7, "ULLS"),
            (8, "ULSS"),
            (9, "UTMRCS"),
            (10, "UCCS"),
            (11, "DFES"),
            (12, "UTPES"),
            (16, "HCFES"),
            (17, "SBFES"),
            (18, "CEFES"),
            (20, "CQES"),
            (21, "IAGES"),
        ];
        NAMES.into_iter().filter(move |(bit, _)| self.into_bits() >> bit & 1 != 0).map(|(_, n)| n)
    }
}

code! {
    /// HCS.UPMCRS: how a power mode change or a hibernate request ended (JESD223 5.3.3).
    pub enum PowerModeStatus: u8 {
        /// The request was accepted.
        Ok = 0 => "PWR_OK",
        /// The local end has the new mode.
        Local = 1 => "PWR_LOCAL",
        /// The remote end asked for the change.
        Remote = 2 => "PWR_REMOTE",
        /// Another change is under way.
        Busy = 3 => "PWR_BUSY",
        /// The mode is beyond what the link can do.
        ErrorCap = 4 => "PWR_ERROR_CAP",
        /// The link may be gone.
        FatalError = 5 => "PWR_FATAL_ERROR",
    }
}

/// HCS, host controller status (JESD223 5.3.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Hcs {
    /// DP: a device is present, the link is up.
    pub dp: bool,
    /// UTRLRDY: ready for transfer requests.
    pub utrlrdy: bool,
    /// UTMRLRDY: ready for task management requests.
    pub utmrlrdy: bool,
    /// UCRDY: ready for a UIC command.
    pub ucrdy: bool,
    /// HEI: host error indicator.
    pub hei: bool,
    /// DEI: device error indicator.
    pub dei: bool,
    #[bits(2)]
    __: u8,
    /// UPMCRS: how the last power mode change ended.
    #[bits(3)]
    pub upmcrs: PowerModeStatus,
    #[bits(1)]
    __: u8,
    /// UTPEC: UTP error code, valid with IS.UTPES.
    #[bits(4)]
    pub utpec: u8,
    /// TTAGUTPE: task tag of the request that met the UTP error.
    pub ttagutpe: u8,
    /// TLUNUTPE: logical unit of the request that met the UTP error.
    pub tlunutpe: u8,
}

/// HCE, host controller enable (JESD223 5.3.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Hce {
    /// HCE: enabled; reads as set once initialisation is done. Clearing it resets the controller.
    pub hce: bool,
    /// CGE: inline encryption enabled.
    pub cge: bool,
    #[bits(30)]
    __: u32,
}

/// UTRLRSR and UTMRLRSR: run-stop of a list.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct RunStop {
    /// The controller may process the list.
    pub run: bool,
    #[bits(31)]
    __: u32,
}

/// UTRIACR and MCQIACR: interrupt aggregation.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptAggregation {
    /// IATOVAL: time-out in units of 40 µs.
    pub iatoval: u8,
    /// IACTH: completions after which the interrupt comes.
    #[bits(5)]
    pub iacth: u8,
    #[bits(3)]
    __: u8,
    /// CTR: write one to reset counter and timer.
    pub ctr: bool,
    #[bits(3)]
    __: u8,
    /// IASB: completions are being counted (read only).
    pub iasb: bool,
    #[bits(3)]
    __: u8,
    /// IAPWEN: this write changes IATOVAL and IACTH.
    pub iapwen: bool,
    #[bits(6)]
    __: u8,
    /// IAEN: aggregation is on.
    pub iaen: bool,
}

impl InterruptAggregation {
    /// Unit of [`iatoval`](Self::iatoval), µs.
    pub const TIMEOUT_UNIT_US: u32 = 40;
}

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
    /// Generic PHY adapter error, among them LINERESET.
    pub generic: bool,
    #[bits(26)]
    __: u32,
    /// ERR: the rest of the register is valid.
    pub err: bool,
}

/// UECDL: errors of the data link layer (UniPro 1.8 table 89 order). Reading clears it.
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
    /// ERR: the rest of the register is valid.
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
    /// ERR: the rest of the register is valid.
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
    /// ERR: the rest of the register is valid.
    pub err: bool,
}

/// UECDME: errors of the DME. Reading clears it.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct UecDme {
    /// Generic DME error.
    pub generic: bool,
    /// QoS notification bits: transmitter, receiver, peer. They announce, they are no error.
    #[bits(3)]
    pub qos: u8,
    #[bits(27)]
    __: u32,
    /// ERR: the rest of the register is valid.
    pub err: bool,
}

/// CONFIG, global configuration (UFSHCI 4.0).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Config {
    /// QT: queue type, set for multi-circular queues.
    pub qt: bool,
    /// ESIE: event-specific interrupts are on.
    pub esie: bool,
    #[bits(30)]
    __: u32,
}

/// MCQCONFIG, multi-circular queue configuration (UFSHCI 4.0).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct McqConfig {
    /// AS: arbitration scheme.
    #[bits(2)]
    pub arbitration: u8,
    #[bits(6)]
    __: u8,
    /// MAC: most active commands minus one.
    #[bits(9)]
    pub mac: u16,
    #[bits(15)]
    __: u16,
}

impl McqConfig {
    /// Configuration for this many active commands, at least one and at most 256.
    pub const fn with_active_commands(self, commands: u32) -> Self {
        let clamped = if commands == 0 {
            1
        } else if commands > 256 {
            256
        } else {
            commands
        };
        self.with_mac((clamped - 1) as u16)
    }

    /// Most active commands.
    pub const fn active_commands(self) -> u32 {
        self.mac() as u32 + 1
    }
}

/// SQATTR, submission queue attribute.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SqAttr {
    /// SIZE: ring length in dwords minus one, see [`ring_size_field`].
    pub size: u16,
    /// CQID: the completion queue that answers.
    pub cqid: u8,
    #[bits(4)]
    __: u8,
    /// SQPL: priority.
    #[bits(3)]
    pub sqpl: u8,
    /// SQEN: enabled.
    pub sqen: bool,
}

/// CQATTR, completion queue attribute.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqAttr {
    /// SIZE: ring length in dwords minus one, see [`ring_size_field`].
    pub size: u16,
    #[bits(15)]
    __: u16,
    /// CQEN: enabled.
    pub cqen: bool,
}

/// SIZE of SQATTR and CQATTR for a ring of `entries` entries of 32 bytes: dwords minus one.
/// `None` for an empty ring or one the field cannot say (more than 8192 entries).
pub const fn ring_size_field(entries: u32) -> Option<u16> {
    match entries {
        1..=8192 => Some((entries * 8 - 1) as u16),
        _ => None,
    }
}

/// The number of whole 32-byte entries a SIZE field stands for.
pub const fn ring_entries(size_field: u16) -> u32 {
    (size_field as u32 + 1) / 8
}

/// SQRTC, submission queue run-time command.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SqRtc {
    /// STOP: stop fetching; clear to start again.
    pub stop: bool,
    /// ICU: initiate clean-up of the command that SQCTI names.
    pub icu: bool,
    #[bits(30)]
    __: u32,
}

/// SQCTI, submission queue clean-up target: the nexus of one command.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SqCti {
    /// Task tag.
    pub task_tag: u8,
    /// Logical unit.
    pub lun: u8,
    /// IID: initiator.
    #[bits(4)]
    pub iid: u8,
    /// EXT_IID: initiator, high part.
    #[bits(4)]
    pub ext_iid: u8,
    __: u8,
}

code! {
    /// SQRTS.RTC: how a clean-up ended.
    pub enum CleanUpResult: u8 {
        /// The command is gone.
        Success = 0 => "Success",
        /// The controller did not find the command.
        TaskNotFound = 1 => "Task not found",
        /// The queue was not stopped.
        NotStopped = 2 => "SQ not stopped",
        /// The queue is not enabled.
        NotEnabled = 3 => "SQ not enabled",
    }
}

/// SQRTS, submission queue run-time status.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SqRts {
    /// STS: the queue is stopped.
    pub sts: bool,
    /// CUS: the clean-up is done.
    pub cus: bool,
    #[bits(2)]
    __: u8,
    /// RTC: how the clean-up ended.
    #[bits(4)]
    pub rtc: CleanUpResult,
    #[bits(24)]
    __: u32,
}

/// CQIS and CQIE: completion queue interrupt causes.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CqInterrupts {
    /// TEPS / TEPE: the tail moved.
    pub teps: bool,
    #[bits(31)]
    __: u32,
}

/// CCAP, crypto capability.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CryptoCap {
    /// CC: number of capability entries.
    pub cc: u8,
    /// CFGC: number of configuration entries minus one.
    pub cfgc: u8,
    __: u8,
    /// CFGPTR: where the configuration entries start, in units of 0x100 bytes.
    pub cfgptr: u8,
}

code! {
    /// CRYPTOCAP.ALGID.
    pub enum CryptoAlgorithm: u8 {
        /// AES-XTS.
        AesXts = 0 => "AES-XTS",
        /// BitLocker AES-CBC.
        BitlockerAesCbc = 1 => "Bitlocker-AES-CBC",
        /// AES-ECB.
        AesEcb = 2 => "AES-ECB",
        /// ESSIV AES-CBC.
        EssivAesCbc = 3 => "ESSIV-AES-CBC",
    }
}

code! {
    /// CRYPTOCAP.KS.
    pub enum CryptoKeySize: u8 {
        /// 128 bits.
        Bits128 = 1 => "128",
        /// 192 bits.
        Bits192 = 2 => "192",
        /// 256 bits.
        Bits256 = 3 => "256",
        /// 512 bits.
        Bits512 = 4 => "512",
    }
}

/// CRYPTOCAP: one algorithm the controller can do.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CryptoCapEntry {
    /// ALGID: the algorithm.
    #[bits(8)]
    pub algid: CryptoAlgorithm,
    /// SDUSB: data unit sizes, bit n stands for `512 << n` bytes.
    pub sdusb: u8,
    /// KS: the key size.
    #[bits(8)]
    pub ks: CryptoKeySize,
    __: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qemu_capabilities_read_as_measured() {
        let cap = Cap::from_bits(0x4107_021F);
        assert_eq!((cap.transfer_slots(), cap.task_slots(), cap.nortt()), (32, 8, 2));
        assert!(cap.addressing_64bit() && cap.mcqs() && !cap.lsdbs() && !cap.autoh8());
        let mcq = McqCap::from_bits(0x0002_0203);
        assert_eq!((mcq.queues(), mcq.bank_offset(), mcq.queue_offset(3)), (4, 0x400, 0x4C0));
        assert!(mcq.rrp() && !mcq.sp());
        assert_eq!(McqConfig::from_bits(0x1F00).active_commands(), 32);
        assert_eq!(Ver::from_bits(0x410).number(), (4, 1));
        assert_eq!(Ver::from_bits(0x0001_0100).number(), (1, 1));
        assert!(Ver::from_bits(0x0001_0100).number() < Ver::V2_1.number());
    }

    #[test]
    fn auto_hibern8_says_what_was_asked() {
        for us in [0, 1, 1023, 150_000, 1_000_000, Ahit::IDLE_MAX_US] {
            assert_eq!(Ahit::from_idle_us(us).idle_us(), us);
        }
        assert_eq!(Ahit::from_idle_us(150_000).into_bits(), 3 << 10 | 150);
        assert_eq!(Ahit::from_idle_us(u32::MAX).idle_us(), Ahit::IDLE_MAX_US);
        assert_eq!(Ahit::from_bits(u32::MAX).idle_us(), Ahit::IDLE_MAX_US);
    }

    #[test]
    fn bits_stand_where_the_specification_puts_them() {
        assert_eq!(Interrupts::FATAL.into_bits(), 0x0007_1880);
        assert_eq!(Interrupts::new().with_cqes(true).into_bits(), 1 << 20);
        assert_eq!(Interrupts::new().with_uccs(true).into_bits(), 1 << 10);
        assert!(Interrupts::from_bits(0x410).names().eq(["UPMS", "UCCS"]));
        assert_eq!(Hcs::from_bits(0x10F).upmcrs(), PowerModeStatus::Local);
        assert_eq!(UecDl::new().with_pa_init_error(true).into_bits(), 0x2000);
        assert_eq!(InterruptAggregation::new().with_iaen(true).into_bits(), 1 << 31);
        assert_eq!(SqRts::from_bits(0x12).rtc(), CleanUpResult::TaskNotFound);
        assert_eq!(SqAttr::new().with_sqen(true).with_cqid(2).into_bits(), 0x8002_0000);
        assert_eq!(ring_size_field(33), Some(263));
        assert_eq!(ring_entries(263), 33);
        assert_eq!((ring_size_field(0), ring_size_field(8193)), (None, None));
    }
}

//! UFSHCI registers: offsets from the start of the register space, and the bits in them.
//!
//! Section numbers are those of JESD223D (UFSHCI 3.0) for the core registers and of JESD223E
//! (UFSHCI 4.0) for multi-circular queues. Bits without a name are preserved by `from_bits` and
//! `into_bits`.

mod crypto;
mod errors;
pub mod mcq;

pub use crypto::{
    CRYPTO_CONFIG_OFFSET, CRYPTO_KEY_LENGTH, CRYPTO_VENDOR_OFFSET, CryptoAlgorithm, CryptoCap,
    CryptoCapEntry, CryptoConfig, CryptoKeySize,
};
pub use errors::{UecDl, UecDme, UecN, UecPa, UecT};
pub use mcq::{
    CleanUpResult, Config, CqAttr, CqCfg, CqInterrupts, McqCap, McqConfig, SqAttr, SqCti, SqRtc,
    SqRts, ring_entries, ring_size_field,
};

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
/// Transfer request doorbell: write one to set; the controller clears it.
pub const UTRLDBR: u32 = 0x58;
/// Transfer request list clear: writing a bit as **zero** clears that slot, one leaves it.
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
/// Task management request doorbell: write one to set; the controller clears it.
pub const UTMRLDBR: u32 = 0x78;
/// Task management request list clear: writing a bit as **zero** clears that slot.
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

/// Length of the core register block up to UCMDARG3, bytes: the part that is dumped.
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
/// Maximum number of slots in a transfer request list: one doorbell register.
pub const TRANSFER_SLOTS_MAX: u32 = 32;
/// Maximum number of slots in a task management request list.
pub const TASK_SLOTS_MAX: u32 = 8;

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
    /// LSDBS: **set** if the legacy single doorbell is **not** supported (UFSHCI 4.0).
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

    /// Maximum active commands in multi-circular queue mode, 1..=256: in that mode NUTRS has eight
    /// bits.
    #[inline]
    pub const fn active_commands_max(self) -> u32 {
        (self.into_bits() & 0xFF) + 1
    }
}

/// VER, UFSHCI version. 1.x used another layout; [`number`](Self::number) handles both.
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
    /// Longest idle time that can be expressed: 1023 x 100 ms, µs.
    pub const IDLE_MAX_US: u32 = 1023 * 100_000;

    /// The finest timer that can express this idle time, rounded down to its unit and limited to
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

    /// The idle time after which the link hibernates, µs; zero if off. A reserved scale is treated
    /// as the coarsest one.
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
    #[inline]
    pub utrcs: bool,
    /// UDEPRI: endpoint reset indication from the device.
    #[inline]
    pub udepri: bool,
    /// UE: UIC error; UECPA to UECDME hold the cause.
    #[inline]
    pub ue: bool,
    /// UTMS: a DME_TEST_MODE command finished.
    #[inline]
    pub utms: bool,
    /// UPMS: a power mode change finished; HCS.UPMCRS holds the result.
    #[inline]
    pub upms: bool,
    /// UHXS: hibernate exit finished; HCS.UPMCRS holds the result.
    #[inline]
    pub uhxs: bool,
    /// UHES: hibernate enter finished; HCS.UPMCRS holds the result.
    #[inline]
    pub uhes: bool,
    /// ULLS: link lost.
    #[inline]
    pub ulls: bool,
    /// ULSS: the device started the link.
    #[inline]
    pub ulss: bool,
    /// UTMRCS: a task management request with the interrupt bit finished.
    #[inline]
    pub utmrcs: bool,
    /// UCCS: a UIC command finished.
    #[inline]
    pub uccs: bool,
    /// DFES: device fatal error.
    #[inline]
    pub dfes: bool,
    /// UTPES: UTP error.
    #[inline]
    pub utpes: bool,
    #[bits(3)]
    __: u8,
    /// HCFES: host controller fatal error.
    #[inline]
    pub hcfes: bool,
    /// SBFES: system bus fatal error.
    #[inline]
    pub sbfes: bool,
    /// CEFES: crypto engine fatal error.
    #[inline]
    pub cefes: bool,
    __: bool,
    /// CQES: a completion queue has a new entry (multi-circular queues).
    #[inline]
    pub cqes: bool,
    /// IAGES: an interrupt aggregation group raised its interrupt (multi-circular queues).
    #[inline]
    pub iages: bool,
    #[bits(10)]
    __: u16,
}

impl Interrupts {
    /// Causes that require a reset of the host controller.
    pub const FATAL: Self = Self::new()
        .with_ulls(true)
        .with_dfes(true)
        .with_utpes(true)
        .with_hcfes(true)
        .with_sbfes(true)
        .with_cefes(true);

    /// Whether any of the causes in `other` is set.
    #[inline]
    pub const fn intersects(self, other: Self) -> bool {
        self.into_bits() & other.into_bits() != 0
    }

    /// The causes in either.
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
        /// The local end changed the mode.
        Local = 1 => "PWR_LOCAL",
        /// The remote end requested the change.
        Remote = 2 => "PWR_REMOTE",
        /// Another change is under way.
        Busy = 3 => "PWR_BUSY",
        /// The mode exceeds the capabilities of the link.
        ErrorCap = 4 => "PWR_ERROR_CAP",
        /// The link may be lost.
        FatalError = 5 => "PWR_FATAL_ERROR",
    }
}

/// HCS, host controller status (JESD223 5.3.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Hcs {
    /// DP: a device is present, the link is up.
    #[inline]
    pub dp: bool,
    /// UTRLRDY: ready for transfer requests.
    #[inline]
    pub utrlrdy: bool,
    /// UTMRLRDY: ready for task management requests.
    #[inline]
    pub utmrlrdy: bool,
    /// UCRDY: ready for a UIC command.
    #[inline]
    pub ucrdy: bool,
    /// HEI: host error indicator.
    #[inline]
    pub hei: bool,
    /// DEI: device error indicator.
    #[inline]
    pub dei: bool,
    #[bits(2)]
    __: u8,
    /// UPMCRS: how the last power mode change ended.
    #[bits(3)]
    #[inline]
    pub upmcrs: PowerModeStatus,
    #[bits(1)]
    __: u8,
    /// UTPEC: UTP error code, valid with IS.UTPES.
    #[bits(4)]
    #[inline]
    pub utpec: u8,
    /// TTAGUTPE: task tag of the request with the UTP error.
    #[inline]
    pub ttagutpe: u8,
    /// TLUNUTPE: logical unit of the request with the UTP error.
    #[inline]
    pub tlunutpe: u8,
}

/// HCE, host controller enable (JESD223 5.3.4).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Hce {
    /// HCE: enable; reads as set once initialisation is complete. Clearing it resets the
    /// controller.
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
    /// IACTH: completions that trigger the interrupt.
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
    /// IAPWEN: this write updates IATOVAL and IACTH.
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

#[cfg(test)]
mod tests;

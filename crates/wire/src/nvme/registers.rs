//! Controller registers (3.1.3): offsets in BAR0 and the bits in them.

use bitfield_struct::bitfield;

/// Controller capabilities, [`Cap`], 64 bits.
pub const CAP: u32 = 0x00;
/// Version, [`Version`].
pub const VS: u32 = 0x08;
/// Interrupt mask set, a bit for each vector; not used with MSI-X.
pub const INTMS: u32 = 0x0C;
/// Interrupt mask clear.
pub const INTMC: u32 = 0x10;
/// Controller configuration, [`Cc`].
pub const CC: u32 = 0x14;
/// Controller status, [`Csts`].
pub const CSTS: u32 = 0x1C;
/// NVM subsystem reset: writing [`SUBSYSTEM_RESET`] resets the whole subsystem.
pub const NSSR: u32 = 0x20;
/// Admin queue attributes, [`Aqa`].
pub const AQA: u32 = 0x24;
/// Admin submission queue base, 64 bits, aligned to a memory page.
pub const ASQ: u32 = 0x28;
/// Admin completion queue base, 64 bits, aligned to a memory page.
pub const ACQ: u32 = 0x30;
/// Controller memory buffer location, [`CmbLoc`].
pub const CMBLOC: u32 = 0x38;
/// Controller memory buffer size, [`CmbSize`]; 0 if there is none.
pub const CMBSZ: u32 = 0x3C;
/// Controller memory buffer memory space control, [`CmbControl`], 64 bits.
pub const CMBMSC: u32 = 0x50;
/// Controller memory buffer status: bit 0 is [`CMB_ADDRESS_INVALID`].
pub const CMBSTS: u32 = 0x58;
/// Controller ready time-outs, [`Crto`].
pub const CRTO: u32 = 0x68;
/// Offset of the doorbells.
pub const DOORBELLS: u32 = 0x1000;

/// CBAI in [`CMBSTS`]: the buffer cannot be placed at the address in [`CMBMSC`].
pub const CMB_ADDRESS_INVALID: u32 = 1 << 0;
/// The value to write to [`NSSR`]: "NVMe".
pub const SUBSYSTEM_RESET: u32 = 0x4E56_4D65;
/// Unit of the time-outs in [`Cap`] and [`Crto`], milliseconds.
pub const TIMEOUT_UNIT_MS: u32 = 500;
/// log2 of the bytes of a submission queue entry.
pub const SQ_ENTRY_SHIFT: u8 = 6;
/// log2 of the bytes of a completion queue entry.
pub const CQ_ENTRY_SHIFT: u8 = 4;

/// Offset of the tail doorbell of submission queue `queue`; `stride` is [`Cap::dstrd`].
#[inline]
pub const fn sq_tail(queue: u16, stride: u8) -> u32 {
    DOORBELLS + (2 * queue as u32) * (4 << stride)
}

/// Offset of the head doorbell of completion queue `queue`; `stride` is [`Cap::dstrd`].
#[inline]
pub const fn cq_head(queue: u16, stride: u8) -> u32 {
    DOORBELLS + (2 * queue as u32 + 1) * (4 << stride)
}

/// CAP (3.1.3.1).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// MQES: maximum entries of an I/O queue, minus one.
    pub mqes: u16,
    /// CQR: queues must be contiguous in memory.
    pub cqr: bool,
    /// AMS: arbitration mechanisms besides round robin.
    #[bits(2)]
    pub ams: u8,
    #[bits(5)]
    __: u8,
    /// TO: longest time for CSTS.RDY to follow CC.EN, in units of 500 ms.
    pub to: u8,
    /// DSTRD: doorbells are 4 << DSTRD bytes apart.
    #[bits(4)]
    pub dstrd: u8,
    /// NSSRS: NVM subsystem reset is supported.
    pub nssrs: bool,
    /// CSS bit 0: the NVM command set.
    pub css_nvm: bool,
    #[bits(5)]
    __: u8,
    /// CSS bit 6: the I/O command sets that identify lists.
    pub css_io: bool,
    /// CSS bit 7: admin commands only.
    pub css_admin: bool,
    /// BPS: boot partitions.
    pub bps: bool,
    /// CPS: controller power scope.
    #[bits(2)]
    pub cps: u8,
    /// MPSMIN: smallest memory page, 2^(12 + MPSMIN).
    #[bits(4)]
    pub mpsmin: u8,
    /// MPSMAX: largest memory page, 2^(12 + MPSMAX).
    #[bits(4)]
    pub mpsmax: u8,
    /// PMRS: persistent memory region.
    pub pmrs: bool,
    /// CMBS: controller memory buffer.
    pub cmbs: bool,
    /// NSSS: NVM subsystem shutdown.
    pub nsss: bool,
    /// CRWMS: the mode "ready with media" is supported.
    pub crwms: bool,
    /// CRIMS: the mode "ready independent of media" is supported.
    pub crims: bool,
    #[bits(3)]
    __: u8,
}

/// VS (3.1.3.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Version {
    /// TER.
    pub tertiary: u8,
    /// MNR.
    pub minor: u8,
    /// MJR.
    pub major: u16,
}

impl Version {
    /// Version `major.minor.0`.
    pub const fn of(major: u16, minor: u8) -> Self {
        Self::new().with_major(major).with_minor(minor)
    }

    /// Whether it is `major.minor` or later.
    pub const fn is_at_least(self, major: u16, minor: u8) -> bool {
        self.into_bits() >= Self::of(major, minor).into_bits()
    }
}

impl core::fmt::Display for Version {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.major(), self.minor())?;
        match self.tertiary() {
            0 => Ok(()),
            tertiary => write!(f, ".{tertiary}"),
        }
    }
}

/// CC (3.1.3.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cc {
    /// EN: enable.
    pub en: bool,
    #[bits(3)]
    __: u8,
    /// CSS: I/O command sets, see [`css`].
    #[bits(3)]
    pub css: u8,
    /// MPS: memory page size, 2^(12 + MPS).
    #[bits(4)]
    pub mps: u8,
    /// AMS: arbitration mechanism, 0 round robin.
    #[bits(3)]
    pub ams: u8,
    /// SHN: shutdown notification, see [`shutdown`].
    #[bits(2)]
    pub shn: u8,
    /// IOSQES: log2 of the bytes of a submission queue entry.
    #[bits(4)]
    pub iosqes: u8,
    /// IOCQES: log2 of the bytes of a completion queue entry.
    #[bits(4)]
    pub iocqes: u8,
    /// CRIME: ready independent of media.
    pub crime: bool,
    #[bits(7)]
    __: u8,
}

/// Values of [`Cc::css`].
pub mod css {
    /// The NVM command set.
    pub const NVM: u8 = 0;
    /// All supported I/O command sets.
    pub const ALL: u8 = 6;
    /// Admin commands only.
    pub const ADMIN: u8 = 7;
}

/// Values of [`Cc::shn`].
pub mod shutdown {
    /// Normal.
    pub const NORMAL: u8 = 1;
    /// Abrupt: power is lost at once.
    pub const ABRUPT: u8 = 2;
    /// [`Csts::shst`](super::Csts::shst): under way.
    ///
    /// [`Csts::shst`]: super::Csts::shst
    pub const BUSY: u8 = 1;
    /// [`Csts::shst`](super::Csts::shst): complete.
    ///
    /// [`Csts::shst`]: super::Csts::shst
    pub const COMPLETE: u8 = 2;
}

/// CSTS (3.1.3.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Csts {
    /// RDY: ready.
    pub rdy: bool,
    /// CFS: fatal error; only a reset helps.
    pub cfs: bool,
    /// SHST: shutdown status, see [`shutdown`].
    #[bits(2)]
    pub shst: u8,
    /// NSSRO: a subsystem reset occurred; write one to clear.
    pub nssro: bool,
    /// PP: processing paused (firmware activation).
    pub pp: bool,
    /// ST: shutdown of the subsystem.
    pub st: bool,
    #[bits(25)]
    __: u32,
}

/// AQA (3.1.3.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Aqa {
    /// ASQS: entries of the admin submission queue minus one.
    #[bits(12)]
    pub asqs: u16,
    #[bits(4)]
    __: u8,
    /// ACQS: entries of the admin completion queue minus one.
    #[bits(12)]
    pub acqs: u16,
    #[bits(4)]
    __: u8,
}

/// CMBLOC (3.1.3.11).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CmbLoc {
    /// BIR: the base address register.
    #[bits(3)]
    pub bir: u8,
    #[bits(9)]
    __: u16,
    /// OFST: offset in it, in units of [`CmbSize::unit_bytes`].
    #[bits(20)]
    pub ofst: u32,
}

/// CMBSZ (3.1.3.12).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CmbSize {
    /// SQS: submission queues may be placed in the buffer.
    pub sqs: bool,
    /// CQS: completion queues may be.
    pub cqs: bool,
    /// LISTS: page and scatter gather lists may be.
    pub lists: bool,
    /// RDS: data that the host reads may be.
    pub rds: bool,
    /// WDS: data that the host writes may be.
    pub wds: bool,
    #[bits(3)]
    __: u8,
    /// SZU: the unit is 4 KiB << 4 * SZU.
    #[bits(4)]
    pub szu: u8,
    /// SZ: number of units.
    #[bits(20)]
    pub sz: u32,
}

impl CmbSize {
    /// Bytes per unit; `None` for a reserved number.
    pub const fn unit_bytes(self) -> Option<u64> {
        match self.szu() {
            szu @ 0..=6 => Some(4096 << (4 * szu)),
            _ => None,
        }
    }
}

/// CMBMSC (3.1.3.14).
#[bitfield(u64)]
#[derive(PartialEq, Eq)]
pub struct CmbControl {
    /// CRE: [`CMBLOC`] and [`CMBSZ`] are valid.
    pub cre: bool,
    /// CMSE: the controller's accesses to addresses from CBA on go to the buffer.
    pub cmse: bool,
    #[bits(10)]
    __: u16,
    /// CBA: that address, in units of 4 KiB.
    #[bits(52)]
    pub cba: u64,
}

/// CRTO (3.1.3.19), in units of 500 ms.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Crto {
    /// CRWMT: time-out for ready with media.
    pub crwmt: u16,
    /// CRIMT: time-out for ready independent of media.
    pub crimt: u16,
}

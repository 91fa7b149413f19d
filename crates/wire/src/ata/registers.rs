//! HBA registers (AHCI 3): offsets in the ABAR window and the bits in them.

use bitfield_struct::bitfield;

/// Host capabilities, [`Cap`].
pub const CAP: u32 = 0x00;
/// Global host control, [`Ghc`].
pub const GHC: u32 = 0x04;
/// Interrupt status, a bit for each port, write one to clear.
pub const IS: u32 = 0x08;
/// Ports implemented, a bit each.
pub const PI: u32 = 0x0C;
/// Version: major in the high half, minor in the low.
pub const VS: u32 = 0x10;
/// Enclosure management location, [`EmLoc`].
pub const EM_LOC: u32 = 0x1C;
/// Enclosure management control, [`EmCtl`].
pub const EM_CTL: u32 = 0x20;
/// Host capabilities extended, [`Cap2`].
pub const CAP2: u32 = 0x24;
/// BIOS/OS handoff, [`Bohc`].
pub const BOHC: u32 = 0x28;

/// Where the registers of port 0 begin.
pub const PORTS: u32 = 0x100;
/// Bytes in the registers of one port.
pub const PORT_LENGTH: u32 = 0x80;
/// Maximum number of ports, and of slots in a command list.
pub const PORTS_MAX: usize = 32;

/// Where the registers of port `port` begin.
#[inline]
pub const fn port_base(port: u8) -> u32 {
    PORTS + port as u32 * PORT_LENGTH
}

/// Command list base, 64 bits, aligned to 1 KiB.
pub const PX_CLB: u32 = 0x00;
/// Its upper half.
pub const PX_CLBU: u32 = 0x04;
/// Received FIS base, 64 bits, aligned to 256 bytes (4 KiB with FIS-based switching).
pub const PX_FB: u32 = 0x08;
/// Its upper half.
pub const PX_FBU: u32 = 0x0C;
/// Interrupt status, [`interrupt`], write one to clear.
pub const PX_IS: u32 = 0x10;
/// Interrupt enable, [`interrupt`].
pub const PX_IE: u32 = 0x14;
/// Command and status, [`PortCmd`].
pub const PX_CMD: u32 = 0x18;
/// Task file data, [`Tfd`].
pub const PX_TFD: u32 = 0x20;
/// Signature, see [`signature`].
pub const PX_SIG: u32 = 0x24;
/// SStatus, [`Ssts`].
pub const PX_SSTS: u32 = 0x28;
/// SControl, [`Sctl`].
pub const PX_SCTL: u32 = 0x2C;
/// SError, see [`serror`], write one to clear.
pub const PX_SERR: u32 = 0x30;
/// SActive: tags of queued commands, write one to set.
pub const PX_SACT: u32 = 0x34;
/// Command issue, write one to set.
pub const PX_CI: u32 = 0x38;
/// SNotification: ports of a multiplier that asked for attention, a bit each, write one to clear.
pub const PX_SNTF: u32 = 0x3C;
/// FIS-based switching control, [`Fbs`].
pub const PX_FBS: u32 = 0x40;
/// Device sleep, [`DevSleep`].
pub const PX_DEVSLP: u32 = 0x44;

/// CAP (AHCI 3.1.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cap {
    /// NP: ports, minus one.
    #[bits(5)]
    pub np: u8,
    /// SXS: external SATA.
    pub sxs: bool,
    /// EMS: enclosure management.
    pub ems: bool,
    /// CCCS: command completion coalescing.
    pub cccs: bool,
    /// NCS: command slots, minus one.
    #[bits(5)]
    pub ncs: u8,
    /// PSC: partial state.
    pub psc: bool,
    /// SSC: slumber state.
    pub ssc: bool,
    /// PMD: PIO of several DRQ blocks.
    pub pmd: bool,
    /// FBSS: FIS-based switching.
    pub fbss: bool,
    /// SPM: port multipliers.
    pub spm: bool,
    /// SAM: AHCI only.
    pub sam: bool,
    __: bool,
    /// ISS: fastest interface speed, 1 to 3.
    #[bits(4)]
    pub iss: u8,
    /// SCLO: command list override.
    pub sclo: bool,
    /// SAL: activity LED.
    pub sal: bool,
    /// SALP: aggressive link power management.
    pub salp: bool,
    /// SSS: staggered spin-up.
    pub sss: bool,
    /// SMPS: mechanical presence switch.
    pub smps: bool,
    /// SSNTF: SNotification.
    pub ssntf: bool,
    /// SNCQ: native command queuing.
    pub sncq: bool,
    /// S64A: addresses of 64 bits.
    pub s64a: bool,
}

/// GHC (AHCI 3.1.2).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Ghc {
    /// HR: HBA reset.
    pub hr: bool,
    /// IE: interrupt enable.
    pub ie: bool,
    /// MRSM: fewer messages than requested.
    pub mrsm: bool,
    #[bits(28)]
    __: u32,
    /// AE: AHCI enable.
    pub ae: bool,
}

/// CAP2 (AHCI 3.1.10).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Cap2 {
    /// BOH: BIOS/OS handoff.
    pub boh: bool,
    /// NVMP: NVMHCI present.
    pub nvmp: bool,
    /// APST: automatic partial to slumber.
    pub apst: bool,
    /// SDS: device sleep.
    pub sds: bool,
    /// SADM: aggressive device sleep.
    pub sadm: bool,
    /// DESO: device sleep from slumber only.
    pub deso: bool,
    #[bits(26)]
    __: u32,
}

/// BOHC (AHCI 3.1.11).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Bohc {
    /// BOS: the BIOS owns the HBA.
    pub bos: bool,
    /// OOS: the operating system owns it.
    pub oos: bool,
    /// SOOE: SMI on a change of owner.
    pub sooe: bool,
    /// OOC: the owner changed, write one to clear.
    pub ooc: bool,
    /// BB: the BIOS is still cleaning up.
    pub bb: bool,
    #[bits(27)]
    __: u32,
}

/// EM_LOC (AHCI 3.1.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct EmLoc {
    /// SZ: dwords of the message buffer.
    pub sz: u16,
    /// OFST: its offset in the window, dwords.
    pub ofst: u16,
}

/// EM_CTL (AHCI 3.1.9).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct EmCtl {
    /// STS.MR: a message was received.
    pub mr: bool,
    #[bits(7)]
    __: u8,
    /// CTL.TM: transmit the message; cleared when that is done.
    pub tm: bool,
    /// CTL.RST: reset.
    pub rst: bool,
    #[bits(6)]
    __: u8,
    /// SUPP.LED: LED messages.
    pub led: bool,
    /// SUPP.SAFTE: SAF-TE messages.
    pub safte: bool,
    /// SUPP.SES2: SES-2 messages.
    pub ses2: bool,
    /// SUPP.SGPIO: SGPIO register messages.
    pub sgpio: bool,
    #[bits(4)]
    __: u8,
    /// ATTR.SMB: one buffer for both directions.
    pub smb: bool,
    /// ATTR.XMT: messages are only transmitted.
    pub xmt: bool,
    /// ATTR.ALHD: the HBA drives the activity LED itself.
    pub alhd: bool,
    /// ATTR.PM: messages to enclosures behind multipliers.
    pub pm: bool,
    #[bits(4)]
    __: u8,
}

/// First dword of an LED message (AHCI 12.2.1): type 0, four bytes follow.
pub const LED_HEADER: u32 = 4 << 8;

/// Second dword of an LED message (AHCI 12.2.2): the state of a port's LEDs, three bits each.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct LedMessage {
    /// Port of the HBA.
    #[bits(5)]
    pub port: u8,
    #[bits(3)]
    __: u8,
    /// Port of a multiplier.
    pub pmp: u8,
    /// Activity.
    #[bits(3)]
    pub activity: u8,
    /// Locate.
    #[bits(3)]
    pub locate: u8,
    /// Fault.
    #[bits(3)]
    pub fault: u8,
    #[bits(7)]
    __: u8,
}

/// PxCMD (AHCI 3.3.7).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct PortCmd {
    /// ST: the command list runs.
    pub st: bool,
    /// SUD: spin up.
    pub sud: bool,
    /// POD: power on.
    pub pod: bool,
    /// CLO: command list override.
    pub clo: bool,
    /// FRE: FISes are received.
    pub fre: bool,
    #[bits(3)]
    __: u8,
    /// CCS: the current command slot.
    #[bits(5)]
    pub ccs: u8,
    /// MPSS: mechanical presence switch open.
    pub mpss: bool,
    /// FR: FIS receive is running.
    pub fr: bool,
    /// CR: the command list is running.
    pub cr: bool,
    /// CPS: cold presence.
    pub cps: bool,
    /// PMA: a port multiplier is attached.
    pub pma: bool,
    /// HPCP: hot plug capable.
    pub hpcp: bool,
    /// MPSP: has a mechanical presence switch.
    pub mpsp: bool,
    /// CPD: cold presence detection.
    pub cpd: bool,
    /// ESP: external port.
    pub esp: bool,
    /// FBSCP: FIS-based switching.
    pub fbscp: bool,
    /// APSTE: automatic partial to slumber.
    pub apste: bool,
    /// ATAPI: the device is a packet device.
    pub atapi: bool,
    /// DLAE: the LED is also driven for ATAPI.
    pub dlae: bool,
    /// ALPE: aggressive link power management.
    pub alpe: bool,
    /// ASP: the link goes to slumber rather than to partial.
    pub asp: bool,
    /// ICC: the state requested for the link, see [`icc`].
    #[bits(4)]
    pub icc: u8,
}

/// Values of [`PortCmd::icc`], and of [`Ssts::ipm`].
pub mod icc {
    /// Active.
    pub const ACTIVE: u8 = 1;
    /// Partial.
    pub const PARTIAL: u8 = 2;
    /// Slumber.
    pub const SLUMBER: u8 = 6;
    /// Device sleep.
    pub const DEVSLEEP: u8 = 8;
}

/// Bits of [`PX_IS`] and [`PX_IE`] (AHCI 3.3.5).
pub mod interrupt {
    /// DHRS: a D2H register FIS.
    pub const DHRS: u32 = 1 << 0;
    /// PSS: a PIO setup FIS.
    pub const PSS: u32 = 1 << 1;
    /// DSS: a DMA setup FIS.
    pub const DSS: u32 = 1 << 2;
    /// SDBS: a set device bits FIS.
    pub const SDBS: u32 = 1 << 3;
    /// UFS: an unknown FIS; cleared through SError.
    pub const UFS: u32 = 1 << 4;
    /// DPS: a descriptor with its interrupt bit was processed.
    pub const DPS: u32 = 1 << 5;
    /// PCS: the port connect changed; cleared through SError.
    pub const PCS: u32 = 1 << 6;
    /// DMPS: the mechanical presence switch moved.
    pub const DMPS: u32 = 1 << 7;
    /// PRCS: PhyRdy changed; cleared through SError.
    pub const PRCS: u32 = 1 << 22;
    /// IPMS: a FIS from an unexpected port of a multiplier.
    pub const IPMS: u32 = 1 << 23;
    /// OFS: more data than the table describes.
    pub const OFS: u32 = 1 << 24;
    /// INFS: an interface error that is not fatal.
    pub const INFS: u32 = 1 << 26;
    /// IFS: a fatal interface error.
    pub const IFS: u32 = 1 << 27;
    /// HBDS: host bus data error.
    pub const HBDS: u32 = 1 << 28;
    /// HBFS: host bus fatal error.
    pub const HBFS: u32 = 1 << 29;
    /// TFES: the device reported an error.
    pub const TFES: u32 = 1 << 30;
    /// CPDS: cold presence changed.
    pub const CPDS: u32 = 1 << 31;

    /// Interrupts of a command that succeeds.
    pub const GOOD: u32 = DHRS | PSS | DSS | SDBS | DPS;
    /// Interrupts that stop the command list, or may have stopped it.
    pub const ERRORS: u32 = IFS | HBDS | HBFS | TFES | OFS | IPMS | UFS;
    /// Interrupts of a device that was attached or removed.
    pub const CHANGES: u32 = PCS | PRCS | DMPS | CPDS;
}

/// PxTFD (AHCI 3.3.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Tfd {
    /// STATUS, see [`status`].
    pub status: u8,
    /// ERROR, see [`error`].
    pub error: u8,
    __: u16,
}

/// Bits of STATUS (ACS 6.2).
pub mod status {
    /// ERR, or CHK of a packet device.
    pub const ERR: u8 = 1 << 0;
    /// SENSE: sense data is available.
    pub const SENSE: u8 = 1 << 1;
    /// DRQ: data is to be transferred.
    pub const DRQ: u8 = 1 << 3;
    /// DSC, which most devices set when they are ready.
    pub const DSC: u8 = 1 << 4;
    /// DF: device fault.
    pub const DF: u8 = 1 << 5;
    /// DRDY: ready.
    pub const DRDY: u8 = 1 << 6;
    /// BSY: busy.
    pub const BSY: u8 = 1 << 7;
}

/// Bits of ERROR (ACS 6.3).
pub mod error {
    /// ICRC: the data was corrupted on the link.
    pub const ICRC: u8 = 1 << 7;
    /// UNC, WP: the data cannot be read.
    pub const UNC: u8 = 1 << 6;
    /// IDNF: no such address.
    pub const IDNF: u8 = 1 << 4;
    /// ABRT: the device did not execute the command.
    pub const ABRT: u8 = 1 << 2;
}

/// Values of [`PX_SIG`] (SATA 11.2; AHCI 5.2.2).
pub mod signature {
    /// A disk.
    pub const ATA: u32 = 0x0000_0101;
    /// A packet device.
    pub const ATAPI: u32 = 0xEB14_0101;
    /// A port multiplier.
    pub const MULTIPLIER: u32 = 0x9669_0101;
    /// An enclosure.
    pub const ENCLOSURE: u32 = 0xC33C_0101;
    /// None yet.
    pub const NONE: u32 = u32::MAX;
}

/// SStatus (SATA 14.1.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Ssts {
    /// DET, see [`det`].
    #[bits(4)]
    pub det: u8,
    /// SPD: the negotiated speed, 1 to 3.
    #[bits(4)]
    pub spd: u8,
    /// IPM: power state of the interface, see [`icc`].
    #[bits(4)]
    pub ipm: u8,
    #[bits(20)]
    __: u32,
}

/// Values of [`Ssts::det`].
pub mod det {
    /// No device.
    pub const NONE: u8 = 0;
    /// A device is present, without communication.
    pub const PRESENT: u8 = 1;
    /// Communication is established.
    pub const READY: u8 = 3;
    /// The interface is off.
    pub const OFF: u8 = 4;
}

/// SControl (SATA 14.1.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Sctl {
    /// DET: 1 is COMRESET, 4 turns the interface off.
    #[bits(4)]
    pub det: u8,
    /// SPD: fastest speed allowed, 0 is any.
    #[bits(4)]
    pub spd: u8,
    /// IPM: disabled power states: 1 partial, 2 slumber, 4 device sleep.
    #[bits(4)]
    pub ipm: u8,
    #[bits(20)]
    __: u32,
}

/// Bits of [`PX_SERR`] (SATA 14.1.2).
pub mod serror {
    /// ERR.T: data integrity error that was not recovered.
    pub const TRANSIENT: u32 = 1 << 8;
    /// ERR.P: protocol.
    pub const PROTOCOL: u32 = 1 << 10;
    /// DIAG.N: PhyRdy changed.
    pub const PHYRDY: u32 = 1 << 16;
    /// DIAG.C: a CRC error.
    pub const CRC: u32 = 1 << 21;
    /// DIAG.H: a handshake error.
    pub const HANDSHAKE: u32 = 1 << 22;
    /// DIAG.F: an unknown FIS.
    pub const UNKNOWN_FIS: u32 = 1 << 25;
    /// DIAG.X: a device was attached.
    pub const EXCHANGED: u32 = 1 << 26;
}

/// PxFBS (AHCI 3.3.16).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Fbs {
    /// EN: the HBA tracks the devices behind a multiplier separately. May be changed only while ST
    /// is off.
    pub en: bool,
    /// DEC: clears the error of one device and all of its commands; cleared when that is done.
    pub dec: bool,
    /// SDE: the error concerns a single device.
    pub sde: bool,
    #[bits(5)]
    __: u8,
    /// DEV: the device whose commands are issued next, and whose PxTFD and PxSIG are read.
    #[bits(4)]
    pub dev: u8,
    /// ADO: number of devices for which the HBA is optimised.
    #[bits(4)]
    pub ado: u8,
    /// DWE: the device with the error.
    #[bits(4)]
    pub dwe: u8,
    #[bits(12)]
    __: u16,
}

/// PxDEVSLP (AHCI 3.3.17).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct DevSleep {
    /// ADSE: aggressive device sleep.
    pub adse: bool,
    /// DSP: the device supports device sleep.
    pub dsp: bool,
    /// DETO: time to leave device sleep, ms.
    pub deto: u8,
    /// MDAT: least time the signal stays asserted, ms.
    #[bits(5)]
    pub mdat: u8,
    /// DITO: idle time before device sleep, ms.
    #[bits(10)]
    pub dito: u16,
    /// DM: multiplier of DITO, minus one.
    #[bits(4)]
    pub dm: u8,
    #[bits(3)]
    __: u8,
}

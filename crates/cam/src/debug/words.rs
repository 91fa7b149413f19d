//! Commands and how they ended, in the words of FreeBSD's `scsi_all.c`, `ata_all.c`,
//! `nvme_all.c` and `cam.c`.

use core::fmt;

use flysch_api::command::{
    AtaProtocol, AtaStatus, Cdb, Ended, Failure, MmcCommand, MmcResponse, NotStarted, NvmeCommand,
    NvmeStatus, Scsi, ScsiStatus, Taskfile,
};
use flysch_wire::ata;
use flysch_wire::mmc::command::CommandIndex;
use flysch_wire::nvme::Status as NvmeCode;
use flysch_wire::nvme::command::{AdminOpcode, NvmOpcode};
use flysch_wire::scsi::cdb::Opcode;
use flysch_wire::scsi::{Sense, Status as ScsiCode, ses};

use crate::sense;

/// A function of the transport: its number and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(u32, &'static str);

impl Function {
    /// Examines what is on a bus.
    pub const SCAN_BUS: Self = Self(0x708, "XPT_SCAN_BUS");
    /// Resets a bus.
    pub const RESET_BUS: Self = Self(0x411, "XPT_RESET_BUS");
    /// Resets a unit.
    pub const RESET_DEV: Self = Self(0x912, "XPT_RESET_DEV");
}

/// `0x901 XPT_SCSI_IO`.
impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} {}", self.0, self.1)
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Of SCSI.
    Scsi(Cdb),
    /// Of ATA.
    Ata(Taskfile),
    /// Of NVMe.
    Nvme {
        /// It goes to the controller's admin queue.
        is_admin: bool,
        /// NSID.
        nsid: u32,
        /// The other fields.
        command: NvmeCommand,
    },
    /// Of MMC.
    Mmc {
        /// The command.
        command: MmcCommand,
        /// Number of bytes it moves: to the card, if the command writes.
        length: u32,
    },
}

impl Request {
    /// The function the transport performs for it.
    pub const fn function(&self) -> Function {
        match self {
            Self::Scsi(_) => Function(0x901, "XPT_SCSI_IO"),
            Self::Ata(_) => Function(0x918, "XPT_ATA_IO"),
            Self::Nvme { is_admin: false, .. } => Function(0x91C, "XPT_NVME_IO"),
            Self::Nvme { is_admin: true, .. } => Function(0x91F, "XPT_NVME_ADMIN"),
            Self::Mmc { .. } => Function(0x91D, "XPT_MMC_IO"),
        }
    }
}

/// `TEST UNIT READY. CDB: 00 00 00 00 00 00 `, and so on: the space at the end is in FreeBSD too.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scsi(cdb) => scsi(f, cdb),
            Self::Ata(task) => ata(f, task),
            Self::Nvme { is_admin, nsid, command } => nvme(f, *is_admin, *nsid, command),
            Self::Mmc { command, length } => mmc(f, command, *length),
        }
    }
}

fn scsi(f: &mut fmt::Formatter<'_>, Cdb(bytes): &Cdb) -> fmt::Result {
    let opcode = Opcode::from_bits(bytes[0]);
    match opcode {
        Opcode::Unknown(ses::RECEIVE_DIAGNOSTIC_RESULTS) => {
            f.write_str("RECEIVE DIAGNOSTIC RESULTS")?;
        }
        Opcode::Unknown(_) => f.write_str("Vendor Specific Command")?,
        known => f.write_str(known.name())?,
    }
    f.write_str(". CDB: ")?;
    bytes[..opcode.cdb_length()].iter().try_for_each(|byte| write!(f, "{byte:02x} "))
}

fn ata(f: &mut fmt::Formatter<'_>, task: &Taskfile) -> fmt::Result {
    let [low, mid, high, low2, mid2, high2, ..] = task.lba.to_le_bytes();
    let [features, features2] = task.features.to_le_bytes();
    let [count, count2] = task.count.to_le_bytes();
    let Taskfile { command, device, .. } = *task;
    write!(f, "{}. ACB: {command:02x} {features:02x} {low:02x} {mid:02x} {high:02x} ", name(task))?;
    write!(f, "{device:02x} {low2:02x} {mid2:02x} {high2:02x} {features2:02x} ")?;
    write!(f, "{count:02x} {count2:02x}")
}

/// FreeBSD's name for an ATA command.
fn name(task: &Taskfile) -> &'static str {
    use ata::Opcode;
    use ata::command::{feature, sanitize, smart};
    if task.protocol == AtaProtocol::SoftReset {
        return "SOFT_RESET";
    }
    match (Opcode::from_bits(task.command), task.features & 0xFF) {
        (Opcode::Nop, _) => "NOP",
        (Opcode::DataSetManagement, 1) => "DSM TRIM",
        (Opcode::DataSetManagement, _) => "DSM",
        (Opcode::ReadSectors, _) => "READ",
        (Opcode::ReadSectorsExt, _) => "READ48",
        (Opcode::ReadDmaExt, _) => "READ_DMA48",
        (Opcode::ReadNativeMaxExt, _) => "READ_NATIVE_MAX_ADDRESS48",
        (Opcode::SetMaxExt, _) => "SET_MAX_ADDRESS48",
        (Opcode::ReadLogExt, _) => "READ_LOG_EXT",
        (Opcode::WriteSectors, _) => "WRITE",
        (Opcode::WriteSectorsExt, _) => "WRITE48",
        (Opcode::WriteDmaExt, _) => "WRITE_DMA48",
        (Opcode::WriteDmaFuaExt, _) => "WRITE_DMA_FUA48",
        (Opcode::ReadVerify, _) => "READ_VERIFY",
        (Opcode::ReadVerifyExt, _) => "READ_VERIFY48",
        (Opcode::WriteUncorrectableExt, _) => "WRITE_UNCORRECTABLE48",
        (Opcode::ReadLogDmaExt, _) => "READ_LOG_DMA_EXT",
        (Opcode::ReadFpdma, _) => "READ_FPDMA_QUEUED",
        (Opcode::WriteFpdma, _) => "WRITE_FPDMA_QUEUED",
        (Opcode::NcqNonData, _) => "NCQ_NON_DATA",
        (Opcode::SendFpdma, _) => "SEND_FPDMA_QUEUED",
        (Opcode::ReceiveFpdma, _) => "RECEIVE_FPDMA_QUEUED",
        (Opcode::MaxAddress, _) => "ACCESSIBLE_MAX_ADDRESS_CONFIGURATION",
        (Opcode::Diagnostic, _) => "EXECUTE_DEVICE_DIAGNOSTIC",
        (Opcode::DownloadMicrocode, _) => "DOWNLOAD_MICROCODE",
        (Opcode::Packet, _) => "PACKET",
        (Opcode::IdentifyPacket, _) => "ATAPI_IDENTIFY",
        (Opcode::Smart, smart::READ_DATA) => "SMART READ ATTR VALUES",
        (Opcode::Smart, smart::READ_LOG) => "SMART READ LOG",
        (Opcode::Smart, smart::RETURN_STATUS) => "SMART RETURN STATUS",
        (Opcode::Smart, _) => "SMART",
        (Opcode::Sanitize, sanitize::STATUS) => "SANITIZE_STATUS_EXT",
        (Opcode::Sanitize, sanitize::CRYPTO) => "CRYPTO_SCRAMBLE_EXT",
        (Opcode::Sanitize, sanitize::BLOCK_ERASE) => "BLOCK_ERASE_EXT",
        (Opcode::Sanitize, sanitize::OVERWRITE) => "OVERWRITE_EXT",
        (Opcode::Sanitize, _) => "SANITIZE_DEVICE",
        (Opcode::ReadDma, _) => "READ_DMA",
        (Opcode::WriteDma, _) => "WRITE_DMA",
        (Opcode::StandbyImmediate, _) => "STANDBY_IMMEDIATE",
        (Opcode::IdleImmediate, _) => "IDLE_IMMEDIATE",
        (Opcode::Standby, _) => "STANDBY",
        (Opcode::Idle, _) => "IDLE",
        (Opcode::CheckPowerMode, _) => "CHECK_POWER_MODE",
        (Opcode::Sleep, _) => "SLEEP",
        (Opcode::ReadMultiplier, _) => "READ_PM",
        (Opcode::WriteMultiplier, _) => "WRITE_PM",
        (Opcode::Flush, _) => "FLUSHCACHE",
        (Opcode::FlushExt, _) => "FLUSHCACHE48",
        (Opcode::Identify, _) => "ATA_IDENTIFY",
        (Opcode::SetFeatures, feature::WRITE_CACHE) => "SETFEATURES ENABLE WCACHE",
        (Opcode::SetFeatures, feature::NO_WRITE_CACHE) => "SETFEATURES DISABLE WCACHE",
        (Opcode::SetFeatures, feature::TRANSFER_MODE) => "SETFEATURES SET TRANSFER MODE",
        (Opcode::SetFeatures, _) => "SETFEATURES",
        (Opcode::SecuritySetPassword, _) => "SECURITY_SET_PASSWORD",
        (Opcode::SecurityUnlock, _) => "SECURITY_UNLOCK",
        (Opcode::SecurityErasePrepare, _) => "SECURITY_ERASE_PREPARE",
        (Opcode::SecurityEraseUnit, _) => "SECURITY_ERASE_UNIT",
        (Opcode::SecurityFreezeLock, _) => "SECURITY_FREEZE_LOCK",
        (Opcode::SecurityDisablePassword, _) => "SECURITY_DISABLE_PASSWORD",
        (Opcode::ReadNativeMax, _) => "READ_NATIVE_MAX_ADDRESS",
        (Opcode::Unknown(_), _) => "UNKNOWN",
    }
}

/// The pointers to the data belong to the driver and are zero here, as they are in FreeBSD's queue.
fn nvme(
    f: &mut fmt::Formatter<'_>,
    is_admin: bool,
    nsid: u32,
    command: &NvmeCommand,
) -> fmt::Result {
    let NvmeCommand { opcode, fuse, cdw10: [a, b, c, d, e, g], .. } = *command;
    let (name, queue) = match is_admin {
        true => (AdminOpcode::from_bits(opcode).name(), "ADMIN"),
        false => (NvmOpcode::from_bits(opcode).name(), "NVM"),
    };
    match name {
        "unknown" => write!(f, "{queue}:{opcode:#04x}")?,
        name => name.chars().try_for_each(|letter| {
            let letter = if letter.is_alphanumeric() { letter.to_ascii_uppercase() } else { '_' };
            fmt::Write::write_char(f, letter)
        })?,
    }
    write!(f, ". NCB: opc={opcode:x} fuse={fuse:x} nsid={nsid:x} prp1=0 prp2=0 ")?;
    write!(f, "cdw={a:x} {b:x} {c:x} {d:x} {e:x} {g:x}")
}

/// A command as FreeBSD's SD host controllers report it.
fn mmc(f: &mut fmt::Formatter<'_>, command: &MmcCommand, length: u32) -> fmt::Result {
    /// Bits of `flags`: there is a response, of 136 bits, with a CRC, then busy, with the index.
    const RESPONSE: [u32; 5] = [1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 4];
    /// An addressed command with data.
    const ADTC: u32 = 1 << 5;
    /// Bits of `dflags`: written, read.
    const DATA: [u32; 2] = [1 << 0, 1 << 1];
    let [present, long, crc, busy, index] = RESPONSE;
    let response = match command.response {
        MmcResponse::None => 0,
        MmcResponse::R1 => present | crc | index,
        MmcResponse::R1b => present | crc | index | busy,
        MmcResponse::R2 => present | long | crc,
        MmcResponse::R3 | MmcResponse::R4 => present,
    };
    let opcode = CommandIndex::from_bits(command.index);
    let is_write = matches!(opcode, CommandIndex::WriteBlock | CommandIndex::WriteMultipleBlock);
    let data = match (length, is_write) {
        (0, _) => 0,
        (_, true) => DATA[0],
        (_, false) => DATA[1],
    };
    let flags = response | if length > 0 { ADTC } else { 0 };
    let MmcCommand { index, argument, .. } = *command;
    write!(f, "{}. CMD{index} arg {argument:#x} flags {flags:#x} ", opcode.name())?;
    write!(f, "dlen {length} dflags {data:#x}")
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// Plain success.
    Good,
    /// In SCSI, other than success.
    Scsi(Ended, &'a Failure<Scsi>),
    /// In ATA: the registers, including COUNT, and DEVICE as it was sent.
    Ata(&'a AtaStatus, u16, u8),
    /// In NVMe.
    Nvme(NvmeStatus),
    /// In MMC: the device status.
    Mmc(u32),
    /// Without an answer from the device, in this way.
    Ended(Ended),
    /// The driver could not carry it out, and gives the reason itself.
    Failed,
    /// The port did not accept it.
    NotStarted(NotStarted),
}

/// CAM's status: its number and its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CamStatus {
    pub(super) code: u32,
    pub(super) text: &'static str,
}

impl CamStatus {
    const DONE: Self = Self::new(0x01, "CCB request completed without error");
    /// Sense data came with it.
    const SENSE: u32 = 0x80;

    const fn new(code: u32, text: &'static str) -> Self {
        Self { code, text }
    }

    /// The status for an end that the device did not cause.
    const fn of(ended: Ended) -> Self {
        match ended {
            Ended::Good | Ended::Answered => Self::DONE,
            Ended::NoUnit => Self::new(0x08, "Device Not Present"),
            Ended::TimedOut => Self::new(0x0B, "Command timeout"),
            Ended::Aborted => Self::new(0x02, "CCB request aborted by the host"),
            Ended::Reset => Self::new(0x0E, "SCSI Bus Reset Sent/Received"),
            Ended::Host => Self::new(0x19, "Unrecoverable Host Bus Adapter Error"),
            Ended::Gone => Self::new(0x11, "No HBA Detected"),
        }
    }

    pub(super) fn is_good(self) -> bool {
        self.code == Self::DONE.code
    }
}

impl Answer<'_> {
    pub(super) fn status(&self) -> CamStatus {
        let new = CamStatus::new;
        match self {
            Self::Good => CamStatus::DONE,
            Self::Scsi(Ended::Answered, failure) => {
                match ScsiCode::from_bits(failure.status.status) {
                    ScsiCode::Good | ScsiCode::ConditionMet => CamStatus::DONE,
                    _ if sense::parse(&failure.status.sense).is_some() => {
                        new(0x0C | CamStatus::SENSE, "SCSI Status Error")
                    }
                    _ => new(0x0C, "SCSI Status Error"),
                }
            }
            Self::Scsi(ended, _) | Self::Ended(ended) => CamStatus::of(*ended),
            Self::Ata(status, ..) if status.is_error() => new(0x1C, "ATA Status Error"),
            Self::Nvme(status) if status.status & 0x7FF != 0 => new(0x20, "NVME Status Error"),
            Self::Mmc(status) if is_mmc_error(*status) => CMP_ERR,
            Self::Ata(..) | Self::Nvme(_) | Self::Mmc(_) => CamStatus::DONE,
            Self::Failed => CMP_ERR,
            Self::NotStarted(why) => match why {
                NotStarted::Full => new(0x34, "Resource Unavailable"),
                NotStarted::BadData(_) => new(0x06, "CCB request was invalid"),
                NotStarted::Unsupported => new(0x16, "Unable to provide requested capability"),
                NotStarted::Gone => new(0x11, "No HBA Detected"),
            },
        }
    }

    /// Number of bytes not moved, if known.
    pub(super) fn residual(&self) -> Option<u32> {
        match self {
            Self::Good => Some(0),
            Self::Scsi(_, failure) => Some(failure.residual),
            _ => None,
        }
    }

    /// What the device reported, line by line, if something is wrong.
    pub(super) fn each_line(&self, mut tell: impl FnMut(fmt::Arguments<'_>)) {
        if self.status().is_good() {
            return;
        }
        match self {
            Self::Scsi(Ended::Answered, failure) => {
                let ScsiStatus { status, sense } = &failure.status;
                tell(format_args!("SCSI status: {}", ScsiWords(*status)));
                if let Some(sense) = sense::parse(sense) {
                    tell(format_args!("SCSI sense: {}", SenseWords(&sense)));
                    if let Some(information) = sense.information {
                        tell(format_args!("Info: {information:#x}"));
                    }
                }
            }
            Self::Scsi(Ended::Host, failure) => {
                tell(format_args!("host controller's code: {:#x}", failure.code));
            }
            Self::Ata(status, count, device) => {
                tell(format_args!("ATA status: {}", AtaWords(status)));
                let [low, mid, high, low2, mid2, high2, ..] = status.lba.to_le_bytes();
                let [count, count2] = count.to_le_bytes();
                let AtaStatus { status, error, .. } = status;
                tell(format_args!(
                    "RES: {status:02x} {error:02x} {low:02x} {mid:02x} {high:02x} {device:02x} \
                     {low2:02x} {mid2:02x} {high2:02x} {count:02x} {count2:02x}"
                ));
            }
            Self::Nvme(status) => {
                let code = NvmeCode::of_field(status.status);
                let more = if status.more() { " M" } else { "" };
                let again = if status.do_not_retry() { " DNR" } else { "" };
                tell(format_args!("NVMe status: {code}{more}{again}"));
            }
            Self::Mmc(status) => tell(format_args!("device status: {status:#010x}")),
            _ => {}
        }
    }
}

const CMP_ERR: CamStatus = CamStatus::new(0x04, "CCB request completed with an error");

const fn is_mmc_error(status: u32) -> bool {
    flysch_api::command::MmcStatus { status, long: 0 }.is_error()
}

/// A SCSI status.
struct ScsiWords(u8);

impl fmt::Display for ScsiWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match ScsiCode::from_bits(self.0) {
            ScsiCode::Good => "OK",
            ScsiCode::CheckCondition => "Check Condition",
            ScsiCode::ConditionMet => "Condition Met",
            ScsiCode::Busy => "Busy",
            ScsiCode::ReservationConflict => "Reservation Conflict",
            ScsiCode::TaskSetFull => "Queue Full",
            ScsiCode::AcaActive => "ACA Active",
            ScsiCode::TaskAborted => "Task Aborted",
            ScsiCode::Unknown(status) => return write!(f, "Unknown {status:#x}"),
        })
    }
}

/// Sense data as one line.
struct SenseWords<'a>(&'a Sense);

impl fmt::Display for SenseWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sense { key, additional, deferred, .. } = self.0;
        let (asc, ascq) = (additional.asc(), additional.ascq());
        let deferred = if *deferred { "Deferred error: " } else { "" };
        write!(f, "{deferred}{key} asc:{asc:x},{ascq:x} ({additional})")
    }
}

/// STATUS and ERROR bit by bit.
struct AtaWords<'a>(&'a AtaStatus);

impl fmt::Display for AtaWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const STATUS: [&str; 8] = ["BSY ", "DRDY ", "DF ", "SERV ", "DRQ ", "CORR ", "IDX ", "ERR"];
        const ERROR: [&str; 8] = ["ICRC ", "UNC ", "MC ", "IDNF ", "MCR ", "ABRT ", "NM ", "ILI"];
        let bits = |f: &mut fmt::Formatter<'_>, byte: u8, names: [&str; 8]| {
            let set = names.iter().enumerate().filter(|(at, _)| byte & 0x80 >> at != 0);
            write!(f, "{byte:02x} (")?;
            set.into_iter().try_for_each(|(_, name)| f.write_str(name))?;
            f.write_str(")")
        };
        bits(f, self.0.status, STATUS)?;
        if self.0.status & AtaStatus::ERR != 0 {
            f.write_str(", error: ")?;
            bits(f, self.0.error, ERROR)?;
        }
        Ok(())
    }
}

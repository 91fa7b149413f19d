//! Identify data (5.17.2; NVM command set 4.1.5).

use super::layout::layout;
use crate::code::code;

/// Length of every identify structure, bytes.
pub const LENGTH: usize = 4096;
/// Namespace ids in an active namespace list.
pub const LIST_ENTRIES: usize = 1024;
/// The namespace id that stands for all namespaces.
pub const ALL_NAMESPACES: u32 = u32::MAX;

code! {
    /// CNS: the structure that identify returns.
    pub enum Cns: u8 {
        /// A namespace.
        Namespace = 0x00 => "Identify Namespace",
        /// The controller.
        Controller = 0x01 => "Identify Controller",
        /// Active namespace ids above the one given.
        ActiveList = 0x02 => "Active Namespace ID list",
        /// Namespace identification descriptors.
        Descriptors = 0x03 => "Namespace Identification Descriptor list",
        /// A namespace, specific to an I/O command set.
        CommandSetNamespace = 0x05 => "I/O Command Set specific Identify Namespace",
        /// The controller, specific to an I/O command set.
        CommandSetController = 0x06 => "I/O Command Set specific Identify Controller",
        /// Active namespace ids of an I/O command set above the one given.
        CommandSetActiveList = 0x07 => "I/O Command Set specific Active Namespace ID list",
        /// The part of a namespace that does not depend on the command set.
        Independent = 0x08 => "I/O Command Set Independent Identify Namespace",
        /// Allocated namespace ids above the one given.
        AllocatedList = 0x10 => "Allocated Namespace ID list",
        /// An allocated namespace.
        AllocatedNamespace = 0x11 => "Identify Allocated Namespace",
        /// Controllers a namespace is attached to.
        AttachedControllers = 0x12 => "Controller list attached to the namespace",
        /// Controllers of the subsystem.
        Controllers = 0x13 => "Controller list of the subsystem",
        /// I/O command sets.
        CommandSets = 0x1C => "I/O Command Set data structure",
    }
}

layout! {
    /// Identify controller, CNS 01h.
    pub struct IdentifyController[4096] {
        /// VID: PCI vendor.
        vid: u16 = 0,
        /// SSVID: PCI subsystem vendor.
        ssvid: u16 = 2,
        /// SN: serial number, ASCII padded with spaces.
        sn: [u8; 20] = 4,
        /// MN: model number, ASCII padded with spaces.
        mn: [u8; 40] = 24,
        /// FR: firmware revision, ASCII padded with spaces.
        fr: [u8; 8] = 64,
        /// RAB: recommended arbitration burst.
        rab: u8 = 72,
        /// IEEE: OUI.
        ieee: [u8; 3] = 73,
        /// CMIC: multiple ports, multiple controllers.
        cmic: u8 = 76,
        /// MDTS: longest transfer, 2^n minimum memory pages; 0 is no limit.
        mdts: u8 = 77,
        /// CNTLID: controller id.
        cntlid: u16 = 78,
        /// VER: same as the register VS.
        ver: u32 = 80,
        /// RTD3R: resume latency, us.
        rtd3r: u32 = 84,
        /// RTD3E: entry latency, us.
        rtd3e: u32 = 88,
        /// OAES: optional events.
        oaes: u32 = 92,
        /// CTRATT: attributes.
        ctratt: u32 = 96,
        /// RRLS: read recovery levels.
        rrls: u16 = 100,
        /// CNTRLTYPE: 1 is an I/O controller.
        cntrltype: u8 = 111,
        /// FGUID: identifier of the field replaceable unit.
        fguid: [u8; 16] = 112,
        /// CRDT1: command retry delay, 100 ms.
        crdt1: u16 = 128,
        /// CRDT2.
        crdt2: u16 = 130,
        /// CRDT3.
        crdt3: u16 = 132,
        /// NVMSR: NVM subsystem report.
        nvmsr: u8 = 253,
        /// VWCI: VPD write cycles.
        vwci: u8 = 254,
        /// MEC: management endpoints.
        mec: u8 = 255,
        /// OACS: optional admin commands, see [`oacs`].
        oacs: u16 = 256,
        /// ACL: concurrent aborts, minus one.
        acl: u8 = 258,
        /// AERL: concurrent asynchronous event requests, minus one.
        aerl: u8 = 259,
        /// FRMW: firmware slots.
        frmw: u8 = 260,
        /// LPA: log page attributes.
        lpa: u8 = 261,
        /// ELPE: entries of the error log, minus one.
        elpe: u8 = 262,
        /// NPSS: power states, minus one.
        npss: u8 = 263,
        /// AVSCC: format of vendor specific admin commands.
        avscc: u8 = 264,
        /// APSTA: autonomous power state transitions.
        apsta: u8 = 265,
        /// WCTEMP: warning temperature, kelvin.
        wctemp: u16 = 266,
        /// CCTEMP: critical temperature, kelvin.
        cctemp: u16 = 268,
        /// MTFA: longest firmware activation, 100 ms.
        mtfa: u16 = 270,
        /// HMPRE: preferred host memory, 4 KiB.
        hmpre: u32 = 272,
        /// HMMIN: minimum host memory, 4 KiB.
        hmmin: u32 = 276,
        /// TNVMCAP: total capacity, bytes.
        tnvmcap: u128 = 280,
        /// UNVMCAP: unallocated capacity, bytes.
        unvmcap: u128 = 296,
        /// RPMBS.
        rpmbs: u32 = 312,
        /// EDSTT: extended self-test, minutes.
        edstt: u16 = 316,
        /// DSTO: self-test options.
        dsto: u8 = 318,
        /// FWUG: firmware update granularity, 4 KiB.
        fwug: u8 = 319,
        /// KAS: keep alive granularity, 100 ms; 0 is none.
        kas: u16 = 320,
        /// HCTMA.
        hctma: u16 = 322,
        /// MNTMT: lowest temperature of host controlled thermal management, kelvin.
        mntmt: u16 = 324,
        /// MXTMT: the highest such temperature, kelvin.
        mxtmt: u16 = 326,
        /// SANICAP: sanitize operations, see [`sanicap`].
        sanicap: u32 = 328,
        /// HMMINDS: smallest host memory descriptor, 4 KiB.
        hmminds: u32 = 332,
        /// HMMAXD: maximum host memory descriptors.
        hmmaxd: u16 = 336,
        /// NSETIDMAX: highest NVM set.
        nsetidmax: u16 = 338,
        /// ENDGIDMAX: highest endurance group.
        endgidmax: u16 = 340,
        /// ANATT: longest transition of asymmetric access, seconds.
        anatt: u8 = 342,
        /// ANACAP: asymmetric access.
        anacap: u8 = 343,
        /// ANAGRPMAX: highest asymmetric access group.
        anagrpmax: u32 = 344,
        /// NANAGRPID: number of such groups.
        nanagrpid: u32 = 348,
        /// PELS: size of the persistent event log, 64 KiB.
        pels: u32 = 352,
        /// DOMAINID: domain of this controller.
        domainid: u16 = 356,
        /// MEGCAP: largest endurance group, bytes.
        megcap: u128 = 368,
        /// SQES: 6 in both halves.
        sqes: u8 = 512,
        /// CQES: 4 in both halves.
        cqes: u8 = 513,
        /// MAXCMD: maximum outstanding commands.
        maxcmd: u16 = 514,
        /// NN: highest namespace id.
        nn: u32 = 516,
        /// ONCS: optional NVM commands, see [`oncs`].
        oncs: u16 = 520,
        /// FUSES: fused operations.
        fuses: u16 = 522,
        /// FNA: scope of format and its erase.
        fna: u8 = 524,
        /// VWC: bit 0, a volatile write cache is present.
        vwc: u8 = 525,
        /// AWUN: atomic write, blocks minus one.
        awun: u16 = 526,
        /// AWUPF: atomic write through power failure, blocks minus one.
        awupf: u16 = 528,
        /// ICSVSCC: format of vendor specific I/O commands.
        icsvscc: u8 = 530,
        /// NWPC: write protection of namespaces.
        nwpc: u8 = 531,
        /// ACWU: atomic compare and write.
        acwu: u16 = 532,
        /// OCFS: formats of the copy command.
        ocfs: u16 = 534,
        /// SGLS: SGL support.
        sgls: u32 = 536,
        /// MNAN: maximum number of allowed namespaces.
        mnan: u32 = 540,
        /// MAXDNA: maximum sum of the capacities of attached namespaces, bytes.
        maxdna: u128 = 544,
        /// MAXCNA: maximum attachments of I/O controllers.
        maxcna: u32 = 560,
        /// SUBNQN: name of the subsystem, UTF-8 terminated by a zero.
        subnqn: [u8; 256] = 768,
        /// PSD0 to PSD31: power states, see [`IdentifyController::power_state`].
        psd: [u8; 1024] = 2048,
    }
}

/// Bits of [`IdentifyController::oacs`].
pub mod oacs {
    /// Security send and receive.
    pub const SECURITY: u16 = 1 << 0;
    /// Format NVM.
    pub const FORMAT: u16 = 1 << 1;
    /// Firmware commit and download.
    pub const FIRMWARE: u16 = 1 << 2;
    /// Namespace management and attachment.
    pub const NAMESPACES: u16 = 1 << 3;
    /// Device self-test.
    pub const SELF_TEST: u16 = 1 << 4;
    /// Directives.
    pub const DIRECTIVES: u16 = 1 << 5;
    /// Doorbell buffer config.
    pub const DOORBELL_BUFFER: u16 = 1 << 8;
}

/// Bits of [`IdentifyController::oncs`].
pub mod oncs {
    /// Compare.
    pub const COMPARE: u16 = 1 << 0;
    /// Write uncorrectable.
    pub const WRITE_UNCORRECTABLE: u16 = 1 << 1;
    /// Dataset management.
    pub const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 3;
    /// Features can be saved, and get features has SEL.
    pub const SAVE: u16 = 1 << 4;
    /// Reservations.
    pub const RESERVATIONS: u16 = 1 << 5;
    /// Timestamp.
    pub const TIMESTAMP: u16 = 1 << 6;
    /// Verify.
    pub const VERIFY: u16 = 1 << 7;
    /// Copy.
    pub const COPY: u16 = 1 << 8;
}

/// Bits of [`IdentifyController::sanicap`].
pub mod sanicap {
    /// Crypto erase.
    pub const CRYPTO: u32 = 1 << 0;
    /// Block erase.
    pub const BLOCK: u32 = 1 << 1;
    /// Overwrite.
    pub const OVERWRITE: u32 = 1 << 2;
}

/// The costs of a power state (figure 276 of 2.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerState {
    /// Maximum power, microwatts.
    pub max_microwatts: u32,
    /// The state does no I/O.
    pub non_operational: bool,
    /// Time to enter it, microseconds.
    pub entry_us: u32,
    /// Time to leave it, microseconds.
    pub exit_us: u32,
}

impl IdentifyController {
    /// The raw descriptor of a power state, 32 bytes.
    pub fn power_state_bytes(&self, number: u8) -> &[u8] {
        &self.psd[usize::from(number % 32) * 32..][..32]
    }
}

impl IdentifyController {
    /// Longest transfer, bytes; `None` if there is no limit.
    pub fn transfer_max(&self, page_min: u32) -> Option<u64> {
        (self.mdts != 0).then(|| u64::from(page_min) << self.mdts.min(31))
    }

    /// Whether commands of the NVM command set accept scatter gather lists.
    pub fn has_sgls(&self) -> bool {
        matches!(self.sgls & 3, 1 | 2)
    }

    /// Whether there is a volatile write cache.
    pub fn has_write_cache(&self) -> bool {
        self.vwc & 1 != 0
    }

    /// Number of power states.
    pub fn power_states(&self) -> u8 {
        self.npss.min(31) + 1
    }

    /// A power state; all zero above [`power_states`](Self::power_states).
    pub fn power_state(&self, number: u8) -> PowerState {
        use crate::bytes::{le16, le32};
        let psd = self.power_state_bytes(number);
        let unit = if psd[3] & 1 != 0 { 100 } else { 10_000 };
        PowerState {
            max_microwatts: u32::from(le16(psd, 0)) * unit,
            non_operational: psd[3] & 2 != 0,
            entry_us: le32(psd, 4),
            exit_us: le32(psd, 8),
        }
    }

    /// Sets the descriptor of a power state; `max_microwatts` is stored in units of 100 uW.
    pub fn set_power_state(&mut self, number: u8, state: PowerState) {
        use crate::bytes::put;
        let psd = &mut self.psd[usize::from(number % 32) * 32..][..32];
        put(psd, 0, ((state.max_microwatts / 100) as u16).to_le_bytes());
        psd[3] = 1 | u8::from(state.non_operational) << 1;
        put(psd, 4, state.entry_us.to_le_bytes());
        put(psd, 8, state.exit_us.to_le_bytes());
    }
}

layout! {
    /// Identify namespace of the NVM command set, CNS 00h.
    pub struct IdentifyNamespace[4096] {
        /// NSZE: size, blocks.
        nsze: u64 = 0,
        /// NCAP: capacity, blocks.
        ncap: u64 = 8,
        /// NUSE: blocks in use.
        nuse: u64 = 16,
        /// NSFEAT: features.
        nsfeat: u8 = 24,
        /// NLBAF: LBA formats, minus one.
        nlbaf: u8 = 25,
        /// FLBAS: the format in use, in bits 3:0 and 6:5.
        flbas: u8 = 26,
        /// MC: metadata capabilities.
        mc: u8 = 27,
        /// DPC: protection capabilities.
        dpc: u8 = 28,
        /// DPS: protection in use; type in bits 2:0.
        dps: u8 = 29,
        /// NMIC: the namespace can be shared.
        nmic: u8 = 30,
        /// RESCAP: reservations.
        rescap: u8 = 31,
        /// FPI: format progress.
        fpi: u8 = 32,
        /// DLFEAT: what deallocated blocks read as.
        dlfeat: u8 = 33,
        /// NAWUN: atomic write, blocks minus one.
        nawun: u16 = 34,
        /// NAWUPF: atomic write through power failure.
        nawupf: u16 = 36,
        /// NACWU: atomic compare and write.
        nacwu: u16 = 38,
        /// NABSN: atomic boundary, blocks minus one.
        nabsn: u16 = 40,
        /// NABO: offset of the first boundary.
        nabo: u16 = 42,
        /// NABSPF: atomic boundary through power failure.
        nabspf: u16 = 44,
        /// NOIOB: optimal boundary, blocks.
        noiob: u16 = 46,
        /// NVMCAP: capacity, bytes.
        nvmcap: u128 = 48,
        /// NPWG: preferred write granularity, blocks minus one.
        npwg: u16 = 64,
        /// NPWA: preferred write alignment.
        npwa: u16 = 66,
        /// NPDG: preferred deallocate granularity.
        npdg: u16 = 68,
        /// NPDA: preferred deallocate alignment.
        npda: u16 = 70,
        /// NOWS: optimal write size.
        nows: u16 = 72,
        /// MSSRL: longest source range of copy, blocks.
        mssrl: u16 = 74,
        /// MCL: longest copy, blocks.
        mcl: u32 = 76,
        /// MSRC: source ranges of copy, minus one.
        msrc: u8 = 80,
        /// NULBAF: formats with unique attributes.
        nulbaf: u8 = 81,
        /// ANAGRPID.
        anagrpid: u32 = 92,
        /// NSATTR: bit 0, write protected.
        nsattr: u8 = 99,
        /// NVMSETID.
        nvmsetid: u16 = 100,
        /// ENDGID.
        endgid: u16 = 102,
        /// NGUID.
        nguid: [u8; 16] = 104,
        /// EUI64.
        eui64: [u8; 8] = 120,
        /// LBAF0 to LBAF15: see [`IdentifyNamespace::format`].
        lbaf: [u8; 64] = 128,
    }
}

/// An LBA format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LbaFormat {
    /// MS: metadata bytes per block.
    pub metadata: u16,
    /// LBADS: log2 of the bytes of a block; a value below 9 marks a format that is not available.
    pub shift: u8,
    /// RP: relative performance, 0 best.
    pub performance: u8,
}

impl IdentifyNamespace {
    /// Number of the format in use.
    pub fn format_in_use(&self) -> u8 {
        self.flbas & 0xF | (self.flbas >> 1 & 0x30)
    }

    /// The format with this number; `None` above 15.
    pub fn format(&self, number: u8) -> Option<LbaFormat> {
        let at = usize::from(number) * 4;
        let bytes = self.lbaf.get(at..at + 4)?;
        Some(LbaFormat {
            metadata: u16::from_le_bytes([bytes[0], bytes[1]]),
            shift: bytes[2],
            performance: bytes[3] & 3,
        })
    }

    /// Sets the format with this number, at most 15.
    pub fn set_format(&mut self, number: u8, format: LbaFormat) {
        let [low, high] = format.metadata.to_le_bytes();
        let bytes = [low, high, format.shift, format.performance];
        self.lbaf[usize::from(number % 16) * 4..][..4].copy_from_slice(&bytes);
    }

    /// Bytes per block, if the format in use is valid.
    pub fn block_size(&self) -> Option<u32> {
        let format = self.format(self.format_in_use())?;
        (9..=16).contains(&format.shift).then(|| 1 << format.shift)
    }
}

/// The ids in a list of 32-bit namespace ids, up to the first zero.
pub fn ids(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    let id = |chunk: &[u8]| u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
    bytes.chunks_exact(4).map(id).take_while(|&id| id != 0)
}

/// A descriptor of CNS 03h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceDescriptor<'a> {
    /// NIDT: 1 EUI64, 2 NGUID, 3 UUID, 4 command set.
    pub kind: u8,
    /// The identifier.
    pub id: &'a [u8],
}

/// The descriptors of CNS 03h, up to the first malformed one.
pub fn descriptors(mut bytes: &[u8]) -> impl Iterator<Item = NamespaceDescriptor<'_>> + '_ {
    core::iter::from_fn(move || {
        let [kind, length, _, _, rest @ ..] = bytes else { return None };
        let id = rest.get(..usize::from(*length))?;
        if *kind == 0 || *length == 0 {
            return None;
        }
        bytes = &rest[id.len()..];
        Some(NamespaceDescriptor { kind: *kind, id })
    })
}

//! Identify: the controller, its namespaces and their properties.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::identify::{
    ALL_NAMESPACES, IdentifyController, IdentifyNamespace, LENGTH, LIST_ENTRIES, PowerState, oacs,
    oncs, sanicap,
};
use flysch_wire::nvme::reservation::rescap;
use flysch_wire::nvme::zone::IdentifyZonedNamespace;
use flysch_wire::nvme::{Cns, Sqe, Status};

use super::config::{Config, NAMESPACES_MAX};
use super::copy::{COPY_BLOCKS, SOURCE_BLOCKS, SOURCES_MAX};
use super::device::Device;
use super::events::{REQUESTS_MAX, SUPPORTED};
use super::firmware::SLOTS;
use super::logs::{CRITICAL_TEMPERATURE, ERRORS_MAX, WARN_TEMPERATURE};
use super::namespace::{FORMATS, Namespace, WriteProtect};
use super::profile::Profile;
use super::spaces::Namespaces;
use super::transfer::Request;

/// Vendor id and names of the model. The vendor is that of QEMU's devices, whose device id for NVMe
/// stands for "identifiers that nobody gave", so another one is used.
pub const VENDOR: u16 = 0x1B36;
const MODEL: &[u8] = b"Flysch NVMe model";
const NAME: &str = "nqn.2026-11.org.flysch:nvme:";
/// The supported optional commands to namespaces.
const COMMANDS: u16 = oncs::COMPARE
    | oncs::WRITE_UNCORRECTABLE
    | oncs::DATASET_MANAGEMENT
    | oncs::WRITE_ZEROES
    | oncs::SAVE
    | oncs::TIMESTAMP
    | oncs::VERIFY
    | oncs::RESERVATIONS
    | oncs::COPY;
/// The controller's id in its subsystem.
pub(super) const CONTROLLER: u16 = 1;
/// Maximum number of concurrent aborts (ACL plus one).
const ABORTS: u8 = 4;
/// The unit of a host memory buffer, as log2 of bytes, for the smallest memory page.
const HOST_MEMORY_SHIFT: u32 = 12;
/// Maximum number of host memory descriptors (HMMAXD).
const HOST_MEMORY_DESCRIPTORS: u16 = 64;
/// Maximum time of a firmware activation (100 ms), and of RTD3 resume and entry (microseconds).
const ACTIVATION: u16 = 20;
const RESUME_US: u32 = 100_000;
const ENTRY_US: u32 = 2_000_000;
/// NIDT: EUI64, NGUID, UUID, command set.
const EUI64: u8 = 1;
const NGUID: u8 = 2;
const UUID: u8 = 3;
const COMMAND_SET: u8 = 4;
/// CSI of the zoned command set.
const ZONED: u32 = flysch_wire::nvme::zone::COMMAND_SET as u32;

fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    core::array::from_fn(|at| match text.get(at) {
        Some(byte) if byte.is_ascii_graphic() || *byte == b' ' => *byte,
        _ => b' ',
    })
}

/// The identity of the controller, which never changes.
#[derive(Debug)]
pub(super) struct Identity {
    controller: Box<IdentifyController>,
    /// Whether it supports namespace lists and identification descriptors.
    has_lists: bool,
}

impl Identity {
    pub(super) fn new(config: &Config) -> Self {
        let (profile, version) = (&config.profile, config.version);
        let (hmpre, hmmin) = host_memory_wanted(profile);
        let shadow = if config.shadow_doorbells { oacs::DOORBELL_BUFFER } else { 0 };
        let [crdt1, crdt2, crdt3] = config.retry_delays;
        let mut subnqn = [0; 256];
        let serial = config.serial.as_bytes();
        let name = NAME.bytes().chain(serial.iter().copied().filter(u8::is_ascii_graphic));
        subnqn[..255].iter_mut().zip(name).for_each(|(place, byte)| *place = byte);
        let mut data = Box::new(IdentifyController {
            vid: VENDOR,
            ssvid: VENDOR,
            sn: padded(serial),
            mn: padded(MODEL),
            rab: 6,
            mdts: (config.transfer_max.trailing_zeros() - 12) as u8,
            cntlid: CONTROLLER,
            ver: version.into_bits(),
            rtd3r: RESUME_US,
            rtd3e: ENTRY_US,
            oaes: SUPPORTED,
            cntrltype: 1,
            crdt1,
            crdt2,
            crdt3,
            oacs: oacs::FORMAT | oacs::FIRMWARE | oacs::NAMESPACES | shadow,
            acl: ABORTS - 1,
            aerl: REQUESTS_MAX as u8 - 1,
            // Activation without a reset; the first slot is writable.
            frmw: (SLOTS as u8) << 1 | 1 << 4,
            // Effects log, and log pages from an offset on.
            lpa: 1 << 1 | 1 << 2,
            elpe: (ERRORS_MAX - 1) as u8,
            npss: (profile.power.len() - 1) as u8,
            apsta: u8::from(profile.power.iter().any(|state| state.non_operational)),
            wctemp: WARN_TEMPERATURE,
            cctemp: CRITICAL_TEMPERATURE,
            mtfa: ACTIVATION,
            hmpre,
            hmmin,
            hmmaxd: if hmpre > 0 { HOST_MEMORY_DESCRIPTORS } else { 0 },
            fwug: 1,
            sanicap: sanicap::CRYPTO | sanicap::BLOCK | sanicap::OVERWRITE,
            sqes: 0x66,
            cqes: 0x44,
            nn: NAMESPACES_MAX as u32,
            mnan: if version.is_at_least(1, 4) { NAMESPACES_MAX as u32 } else { 0 },
            oncs: COMMANDS,
            // Copy descriptors of format 0.
            ocfs: 1,
            // A flush of all namespaces flushes each of them.
            vwc: 1 | 3 << 1,
            // Any alignment; bit buckets; lists longer than the data.
            sgls: if config.sgls { 1 | 1 << 16 | 1 << 18 } else { 0 },
            subnqn,
            ..IdentifyController::default()
        });
        describe_power(profile, &mut data);
        Self { controller: data, has_lists: config.lists }
    }

    /// Answers Identify, for firmware of revision `running` and these namespaces.
    fn answer(
        &self,
        command: &Sqe,
        running: [u8; 8],
        spaces: &Namespaces,
    ) -> Result<Vec<u8>, Status> {
        let (id, cdw10, set) = (command.nsid, command.cdw10[0], command.cdw10[1] >> 24);
        Ok(match Cns::from_bits(cdw10 as u8) {
            Cns::Controller => {
                let mut data = IdentifyController::clone(&self.controller);
                data.fr = running;
                data.tnvmcap = spaces.capacity.into();
                data.unvmcap = spaces.unallocated().into();
                data.to_bytes().to_vec()
            }
            Cns::Namespace if id == ALL_NAMESPACES => common_namespace().to_bytes().to_vec(),
            Cns::Namespace => spaces.identify(id, true)?,
            _ if !self.has_lists => return Err(Status::InvalidField),
            Cns::AllocatedNamespace => spaces.identify(id, false)?,
            Cns::ActiveList => spaces.list(id, |space| space.is_attached)?,
            Cns::AllocatedList => spaces.list(id, |_| true)?,
            Cns::Descriptors => spaces.attached(id)?.descriptors(),
            Cns::CommandSets if spaces.has_zones => command_sets(),
            Cns::CommandSetActiveList if set == ZONED => {
                spaces.list(id, |space| space.is_attached && space.zones.is_some())?
            }
            Cns::CommandSetActiveList if set == 0 => {
                spaces.list(id, |space| space.is_attached && space.zones.is_none())?
            }
            Cns::CommandSetNamespace if set == ZONED => spaces.attached(id)?.identify_zoned()?,
            // ZASL: as long as any transfer.
            Cns::CommandSetController if set == ZONED && spaces.has_zones => vec![0; LENGTH],
            Cns::CommandSetNamespace | Cns::CommandSetController if set != 0 => {
                return Err(Status::InvalidField);
            }
            Cns::CommandSetNamespace => {
                spaces.attached(id)?;
                vec![0; LENGTH]
            }
            Cns::CommandSetController => limits(),
            Cns::Independent => spaces.attached(id)?.identify_independent(),
            Cns::AttachedControllers => {
                let index = spaces.index(id).ok_or(Status::InvalidField)?;
                let attached = spaces.get(index).is_some_and(|space| space.is_attached);
                controllers(attached && CONTROLLER >= (cdw10 >> 16) as u16)
            }
            Cns::Controllers => controllers(CONTROLLER >= (cdw10 >> 16) as u16),
            _ => return Err(Status::InvalidField),
        })
    }
}

impl Device {
    /// Identify.
    pub(super) fn identify(&self, request: &Request<'_>) -> Result<(), Status> {
        let running = self.firmware.running();
        request.give(&self.identity.answer(request.command, running, &self.spaces)?)
    }
}

impl Namespaces {
    /// A namespace, which must be attached if `active`, else only allocated.
    fn identify(&self, id: u32, active: bool) -> Result<Vec<u8>, Status> {
        if id == 0 || id as usize > NAMESPACES_MAX {
            return Err(Status::InvalidNamespace);
        }
        let space = self.index(id).and_then(|index| self.get(index));
        let space = space.filter(|space| space.is_attached || !active);
        Ok(space.map_or_else(|| vec![0; LENGTH], |space| space.identify().to_bytes().to_vec()))
    }

    /// A list of the namespaces with ids greater than `above`.
    fn list(&self, above: u32, is_meant: impl Fn(&Namespace) -> bool) -> Result<Vec<u8>, Status> {
        if above >= ALL_NAMESPACES - 1 {
            return Err(Status::InvalidNamespace);
        }
        let meant = self.iter().filter(|space| space.id > above && is_meant(space));
        let mut data = vec![0; LENGTH];
        for (place, space) in data.chunks_exact_mut(4).zip(meant).take(LIST_ENTRIES) {
            place.copy_from_slice(&space.id.to_le_bytes());
        }
        Ok(data)
    }
}

impl Namespace {
    fn identify(&self) -> IdentifyNamespace {
        IdentifyNamespace {
            nsze: self.blocks(),
            ncap: self.blocks(),
            nuse: self.blocks(),
            flbas: self.format,
            nvmcap: self.size.into(),
            nsattr: u8::from(self.protect != WriteProtect::None),
            nguid: self.names.nguid,
            eui64: self.names.eui64,
            ..common_namespace()
        }
    }

    fn descriptors(&self) -> Vec<u8> {
        let (names, set) = (&self.names, self.command_set());
        let mut data = vec![0; LENGTH];
        let mut at = 0;
        let names = [
            (EUI64, &names.eui64[..]),
            (NGUID, &names.nguid),
            (UUID, &names.uuid()),
            (COMMAND_SET, &[set]),
        ];
        for (kind, id) in names {
            data[at] = kind;
            data[at + 1] = id.len() as u8;
            data[at + 4..][..id.len()].copy_from_slice(id);
            at += 4 + id.len();
        }
        data
    }

    /// The zoned command set's data of a namespace (CNS 05h).
    fn identify_zoned(&self) -> Result<Vec<u8>, Status> {
        let zones = self.zones.as_ref().ok_or(Status::InvalidField)?;
        // Zero-based, and all ones where there is no limit.
        let (mar, mor) = (zones.active_max.wrapping_sub(1), zones.open_max.wrapping_sub(1));
        let mut data = IdentifyZonedNamespace { ozcs: 1, mar, mor, ..Default::default() };
        for format in 0..FORMATS.len() as u8 {
            data.set_zone_blocks(format, self.zone_blocks(format));
        }
        Ok(data.to_bytes().to_vec())
    }

    /// The data common to all command sets (CNS 08h): NSFEAT, NMIC and so on at their places, NSTAT
    /// ready.
    fn identify_independent(&self) -> Vec<u8> {
        let mut data = vec![0; LENGTH];
        data[8] = u8::from(self.protect != WriteProtect::None);
        data[14] = 1;
        data
    }
}

/// The permanent names of a namespace, made from the seed, which differs between devices, and the
/// id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names {
    eui64: [u8; 8],
    nguid: [u8; 16],
}

impl Names {
    pub(super) fn new(seed: u64, id: u32) -> Self {
        let [.., a, b, c, d] = (seed as u32).to_be_bytes();
        // A locally administered identifier.
        let eui64 = [0x02, 0xF1, 0x5C, a, b, c, d, id as u8];
        let mut nguid = [0; 16];
        nguid[..8].copy_from_slice(&seed.to_be_bytes());
        nguid[8..].copy_from_slice(&eui64);
        Self { eui64, nguid }
    }

    /// The NGUID as a UUID with vendor-specific contents (RFC 9562 5.8): Linux complains about a
    /// namespace without one.
    fn uuid(&self) -> [u8; 16] {
        let mut name = self.nguid;
        name[6] = 0x80 | name[6] & 0xF;
        name[8] = 0x80 | name[8] & 0x3F;
        name
    }
}

/// The fields that all namespaces have in common.
fn common_namespace() -> IdentifyNamespace {
    let mut data = IdentifyNamespace {
        nlbaf: FORMATS.len() as u8 - 1,
        // Deallocated blocks read as zeros, and Write Zeroes can deallocate.
        dlfeat: 1 | 1 << 3,
        rescap: rescap::PERSIST | rescap::ALL_TYPES,
        mssrl: SOURCE_BLOCKS,
        mcl: COPY_BLOCKS,
        msrc: SOURCES_MAX - 1,
        ..IdentifyNamespace::default()
    };
    (0..).zip(FORMATS).for_each(|(number, format)| data.set_format(number, format));
    data
}

/// Limits of the NVM command set (CNS 06h): none for Verify, Write Zeroes and Write Uncorrectable;
/// all ranges of Dataset Management.
fn limits() -> Vec<u8> {
    let mut data = vec![0; LENGTH];
    data[3] = 255;
    data
}

fn describe_power(profile: &Profile, data: &mut IdentifyController) {
    for (number, state) in (0..).zip(profile.power) {
        let state = PowerState {
            max_microwatts: state.milliwatts * 1000,
            non_operational: state.non_operational,
            entry_us: state.entry_us,
            exit_us: state.exit_us,
        };
        data.set_power_state(number, state);
    }
}

/// HMPRE and HMMIN, in units of 4 KiB.
fn host_memory_wanted(profile: &Profile) -> (u32, u32) {
    let pages = |bytes: u32| bytes >> HOST_MEMORY_SHIFT;
    profile.host_memory.map_or((0, 0), |memory| (pages(memory.preferred), pages(memory.minimum)))
}

/// The supported combinations of command sets (CNS 1Ch): one, with both.
fn command_sets() -> Vec<u8> {
    let mut data = vec![0; LENGTH];
    data[0] = 1 | 1 << ZONED;
    data
}

/// A controller list.
fn controllers(has_ours: bool) -> Vec<u8> {
    let mut data = vec![0; LENGTH];
    data[0] = u8::from(has_ours);
    if has_ours {
        data[2..4].copy_from_slice(&CONTROLLER.to_le_bytes());
    }
    data
}

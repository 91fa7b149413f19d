//! Identify: who the controller is, what namespaces there are and what they are like.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::identify::{
    ALL_NAMESPACES, IdentifyController, IdentifyNamespace, LENGTH, LIST_ENTRIES, PowerState, oacs,
    oncs, sanicap,
};
use flysch_wire::nvme::reservation::rescap;
use flysch_wire::nvme::zone::IdentifyZonedNamespace;
use flysch_wire::nvme::{Cns, Sqe, Status};

use super::Nvme;
use super::config::NAMESPACES_MAX;
use super::copy::{COPY_BLOCKS, SOURCE_BLOCKS, SOURCES_MAX};
use super::events::{REQUESTS_MAX, SUPPORTED};
use super::firmware::SLOTS;
use super::logs::{CRITICAL_TEMPERATURE, ERRORS_MAX, WARN_TEMPERATURE};
use super::namespace::{FORMATS, Namespace, WriteProtect};
use super::transfer::{Parts, scatter};

/// What the model calls itself. The vendor is the one that QEMU's devices have; its device id for
/// NVMe stands for "identifiers that nobody gave", so another one is taken.
pub const VENDOR: u16 = 0x1B36;
const MODEL: &[u8] = b"Flysch NVMe model";
const NAME: &str = "nqn.2026-11.org.flysch:nvme:";
/// The optional commands to namespaces that there are.
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
/// Aborts at once (ACL and one).
const ABORTS: u8 = 4;
/// Largest transfer of host memory descriptors.
const HOST_MEMORY_DESCRIPTORS: u16 = 64;
/// Longest firmware activation and resets, 100 ms and microseconds.
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

impl Nvme {
    /// Identify.
    pub(super) fn identify(&self, command: &Sqe) -> Result<u32, Status> {
        let cdw10 = command.cdw10[0];
        let data = match Cns::from_bits(cdw10 as u8) {
            Cns::Controller => self.identify_controller().to_bytes().to_vec(),
            Cns::Namespace if command.nsid == ALL_NAMESPACES => {
                self.common_namespace().to_bytes().to_vec()
            }
            Cns::Namespace => self.identify_namespace(command.nsid, true)?,
            _ if !self.setup.lists => return Err(Status::InvalidField),
            Cns::AllocatedNamespace => self.identify_namespace(command.nsid, false)?,
            Cns::ActiveList => self.list(command.nsid, |space| space.is_attached)?,
            Cns::AllocatedList => self.list(command.nsid, |_| true)?,
            Cns::Descriptors => self.descriptors(command.nsid)?,
            Cns::CommandSets if self.device.has_zones => command_sets(),
            Cns::CommandSetActiveList if command.cdw10[1] >> 24 == ZONED => {
                self.list(command.nsid, |space| space.is_attached && space.zones.is_some())?
            }
            Cns::CommandSetActiveList if command.cdw10[1] >> 24 == 0 => {
                self.list(command.nsid, |space| space.is_attached && space.zones.is_none())?
            }
            Cns::CommandSetNamespace if command.cdw10[1] >> 24 == ZONED => {
                self.identify_zoned(command.nsid)?
            }
            Cns::CommandSetController
                if command.cdw10[1] >> 24 == ZONED && self.device.has_zones =>
            {
                // ZASL: as long as any transfer.
                vec![0; LENGTH]
            }
            Cns::CommandSetNamespace | Cns::CommandSetController if command.cdw10[1] >> 24 != 0 => {
                return Err(Status::InvalidField);
            }
            Cns::CommandSetNamespace => {
                self.namespace_of(command.nsid)?;
                vec![0; LENGTH]
            }
            Cns::CommandSetController => self.limits(),
            Cns::Independent => self.independent(command.nsid)?,
            Cns::AttachedControllers => {
                let index = self.device.index(command.nsid).ok_or(Status::InvalidField)?;
                let attached = self.device.space(index).is_some_and(|space| space.is_attached);
                controllers(attached && CONTROLLER >= (cdw10 >> 16) as u16)
            }
            Cns::Controllers => controllers(CONTROLLER >= (cdw10 >> 16) as u16),
            _ => return Err(Status::InvalidField),
        };
        let sizes = (self.registers.page, data.len() as u64);
        scatter(Parts::new(&self.memory, command, sizes, true), &data)?;
        Ok(0)
    }

    fn identify_controller(&self) -> IdentifyController {
        let (setup, device) = (&self.setup, &self.device);
        let (hmpre, hmmin) = self.host_memory_wanted();
        let shadow = if setup.shadow_doorbells { oacs::DOORBELL_BUFFER } else { 0 };
        let [crdt1, crdt2, crdt3] = setup.retry_delays;
        let mut subnqn = [0; 256];
        let serial = setup.serial.as_bytes();
        let name = NAME.bytes().chain(serial.iter().copied().filter(u8::is_ascii_graphic));
        subnqn[..255].iter_mut().zip(name).for_each(|(place, byte)| *place = byte);
        let mut data = IdentifyController {
            vid: VENDOR,
            ssvid: VENDOR,
            sn: padded(serial),
            mn: padded(MODEL),
            fr: device.firmware.running(),
            rab: 6,
            mdts: (setup.transfer_max.trailing_zeros() - 12) as u8,
            cntlid: CONTROLLER,
            ver: self.registers.version.into_bits(),
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
            // Activation without a reset; the first slot can be written.
            frmw: (SLOTS as u8) << 1 | 1 << 4,
            // Effects, and log pages from an offset on.
            lpa: 1 << 1 | 1 << 2,
            elpe: (ERRORS_MAX - 1) as u8,
            npss: (self.profile.power.len() - 1) as u8,
            apsta: u8::from(self.profile.power.iter().any(|state| state.non_operational)),
            wctemp: WARN_TEMPERATURE,
            cctemp: CRITICAL_TEMPERATURE,
            mtfa: ACTIVATION,
            hmpre,
            hmmin,
            hmmaxd: if hmpre > 0 { HOST_MEMORY_DESCRIPTORS } else { 0 },
            tnvmcap: device.capacity.into(),
            unvmcap: device.unallocated().into(),
            fwug: 1,
            sanicap: sanicap::CRYPTO | sanicap::BLOCK | sanicap::OVERWRITE,
            sqes: 0x66,
            cqes: 0x44,
            nn: NAMESPACES_MAX as u32,
            mnan: if self.registers.version.is_at_least(1, 4) { NAMESPACES_MAX as u32 } else { 0 },
            oncs: COMMANDS,
            // Copy descriptors of format 0.
            ocfs: 1,
            // A flush of all namespaces is one of each.
            vwc: 1 | 3 << 1,
            // Any alignment; bit buckets, lists longer than the data.
            sgls: if setup.sgls { 1 | 1 << 16 | 1 << 18 } else { 0 },
            subnqn,
            ..IdentifyController::default()
        };
        self.describe_power(&mut data);
        data
    }

    fn describe_power(&self, data: &mut IdentifyController) {
        for (number, state) in (0..).zip(self.profile.power) {
            let state = PowerState {
                max_microwatts: state.milliwatts * 1000,
                non_operational: state.non_operational,
                entry_us: state.entry_us,
                exit_us: state.exit_us,
            };
            data.set_power_state(number, state);
        }
    }

    /// What every namespace has.
    fn common_namespace(&self) -> IdentifyNamespace {
        let mut data = IdentifyNamespace {
            nlbaf: FORMATS.len() as u8 - 1,
            // Deallocated blocks read as zeros, and write zeroes deallocates.
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

    /// An active namespace, or one that is allocated.
    fn identify_namespace(&self, id: u32, active: bool) -> Result<Vec<u8>, Status> {
        if id == 0 || id as usize > NAMESPACES_MAX {
            return Err(Status::InvalidNamespace);
        }
        let index = self.device.index(id);
        let space = index.and_then(|index| self.device.space(index));
        let Some(space) = space.filter(|space| space.is_attached || !active) else {
            return Ok(vec![0; LENGTH]);
        };
        let data = IdentifyNamespace {
            nsze: space.blocks(),
            ncap: space.blocks(),
            nuse: space.blocks(),
            flbas: space.format,
            nvmcap: space.size.into(),
            nsattr: u8::from(space.protect != WriteProtect::None),
            nguid: self.nguid(space),
            eui64: self.eui64(space),
            ..self.common_namespace()
        };
        Ok(data.to_bytes().to_vec())
    }

    /// Namespaces with ids above one.
    fn list(&self, above: u32, is_meant: impl Fn(&Namespace) -> bool) -> Result<Vec<u8>, Status> {
        if above >= ALL_NAMESPACES - 1 {
            return Err(Status::InvalidNamespace);
        }
        let spaces = self.device.spaces.iter().flatten();
        let meant = spaces.filter(|space| space.id > above && is_meant(space));
        let mut data = vec![0; LENGTH];
        for (place, space) in data.chunks_exact_mut(4).zip(meant).take(LIST_ENTRIES) {
            place.copy_from_slice(&space.id.to_le_bytes());
        }
        Ok(data)
    }

    fn descriptors(&self, id: u32) -> Result<Vec<u8>, Status> {
        let index = self.namespace_of(id)?;
        let space = self.device.space(index).ok_or(Status::InvalidNamespace)?;
        let set = space.command_set();
        let (eui64, nguid, uuid) = (self.eui64(space), self.nguid(space), self.uuid(space));
        let mut data = vec![0; LENGTH];
        let mut at = 0;
        let names = [(EUI64, &eui64[..]), (NGUID, &nguid), (UUID, &uuid), (COMMAND_SET, &[set])];
        for (kind, id) in names {
            data[at] = kind;
            data[at + 1] = id.len() as u8;
            data[at + 4..][..id.len()].copy_from_slice(id);
            at += 4 + id.len();
        }
        Ok(data)
    }

    /// A zoned namespace, as its command set has it (CNS 05h).
    fn identify_zoned(&self, id: u32) -> Result<Vec<u8>, Status> {
        let index = self.namespace_of(id)?;
        let space = self.device.space(index).ok_or(Status::InvalidNamespace)?;
        let zones = space.zones.as_ref().ok_or(Status::InvalidField)?;
        // Counted from zero, and all ones where there is no limit.
        let (mar, mor) = (zones.active_max.wrapping_sub(1), zones.open_max.wrapping_sub(1));
        let mut data = IdentifyZonedNamespace { ozcs: 1, mar, mor, ..Default::default() };
        for format in 0..FORMATS.len() as u8 {
            data.set_zone_blocks(format, space.zone_blocks(format));
        }
        Ok(data.to_bytes().to_vec())
    }

    /// What of a namespace holds in every command set (CNS 08h): NSFEAT, NMIC and so on at their
    /// places, NSTAT ready.
    fn independent(&self, id: u32) -> Result<Vec<u8>, Status> {
        let index = self.namespace_of(id)?;
        let space = self.device.space(index).ok_or(Status::InvalidNamespace)?;
        let mut data = vec![0; LENGTH];
        data[8] = u8::from(space.protect != WriteProtect::None);
        data[14] = 1;
        Ok(data)
    }

    /// Limits of the NVM command set (CNS 06h): none of verify, write zeroes and write
    /// uncorrectable; all ranges of dataset management.
    fn limits(&self) -> Vec<u8> {
        let mut data = vec![0; LENGTH];
        data[3] = 255;
        data
    }

    /// A name that stays: from the seed, which is another for each device, and the id.
    fn eui64(&self, space: &Namespace) -> [u8; 8] {
        let [.., a, b, c, d] = (self.setup.seed as u32).to_be_bytes();
        // A locally administered identifier.
        [0x02, 0xF1, 0x5C, a, b, c, d, space.id as u8]
    }

    fn nguid(&self, space: &Namespace) -> [u8; 16] {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.setup.seed.to_be_bytes());
        name[8..].copy_from_slice(&self.eui64(space));
        name
    }

    /// The same as a UUID whose bytes are the device's own affair (RFC 9562 5.8): Linux complains
    /// of a namespace that has none.
    fn uuid(&self, space: &Namespace) -> [u8; 16] {
        let mut name = self.nguid(space);
        name[6] = 0x80 | name[6] & 0xF;
        name[8] = 0x80 | name[8] & 0x3F;
        name
    }
}

/// The combinations of command sets there are (CNS 1Ch): one, with both.
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

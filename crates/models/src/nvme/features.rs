//! Features: what a host sets, what of it stays over a reset.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::feature::{SAVE, Select, SupportedCapabilities};
use flysch_wire::nvme::identify::ALL_NAMESPACES;
use flysch_wire::nvme::{FeatureId, Sqe, Status};

use super::Nvme;
use super::logs::{TEMPERATURE_WARNS, WARN_TEMPERATURE};
use super::namespace::WriteProtect;
use super::transfer::{Parts, gather, scatter};

/// A feature whose value is one dword: its number, its default, whether it can be saved.
const PLAIN: [(FeatureId, u32, bool); 9] = [
    (FeatureId::Arbitration, 0, true),
    (FeatureId::ErrorRecovery, 0, true),
    (FeatureId::WriteCache, 1, true),
    (FeatureId::Coalescing, 0, true),
    (FeatureId::Atomicity, 0, true),
    (FeatureId::AsyncEvents, 0, true),
    (FeatureId::Apst, 0, true),
    (FeatureId::SanitizeConfig, 0, false),
    (FeatureId::Progress, 0, true),
];
const WRITE_CACHE: usize = 2;
const ASYNC_EVENTS: usize = 5;
const APST: usize = 6;

/// Bytes of the autonomous power state transition table.
pub(super) const APST_BYTES: usize = 256;
/// Bytes of the host behaviour structure.
const HOST_BEHAVIOR_BYTES: usize = 512;
/// Bytes of the host memory buffer attributes.
const HOST_MEMORY_BYTES: usize = 4096;
/// What a host memory buffer is counted in, as log2 of bytes, for the smallest memory page.
const HOST_MEMORY_SHIFT: u32 = 12;

/// The values of every feature.
#[derive(Debug)]
pub(super) struct Features {
    /// By [`PLAIN`]: what holds, and what was saved.
    plain: [(u32, Option<u32>); PLAIN.len()],
    pub(super) apst: Box<[u8; APST_BYTES]>,
    /// Over and under temperature thresholds, kelvin.
    pub(super) thresholds: (u16, u16),
    /// Vectors whose interrupts are not to be coalesced, a bit each.
    uncoalesced: u64,
    /// What the host said the time is, and when.
    timestamp: (u64, u64),
    host_behavior: Box<[u8; HOST_BEHAVIOR_BYTES]>,
    pub(super) host_id: [u8; 16],
    /// It has 128 bits.
    host_id_is_wide: bool,
    /// CDW11 to CDW15 of the host memory buffer.
    host_memory: [u32; 5],
    has_host_memory: bool,
}

/// What get features gives: a dword, and data if there is any.
type Got = Result<(u32, Vec<u8>), Status>;

impl Features {
    pub(super) fn new(has_host_memory: bool) -> Self {
        Self {
            plain: PLAIN.map(|(_, default, _)| (default, None)),
            apst: Box::new([0; APST_BYTES]),
            thresholds: (WARN_TEMPERATURE, 0),
            uncoalesced: 0,
            timestamp: (0, 0),
            host_behavior: Box::new([0; HOST_BEHAVIOR_BYTES]),
            host_id: [0; 16],
            host_id_is_wide: false,
            host_memory: [0; 5],
            has_host_memory,
        }
    }

    /// The controller was reset: what was not saved is as by default.
    pub(super) fn reset(&mut self) {
        for ((value, saved), (_, default, _)) in self.plain.iter_mut().zip(PLAIN) {
            *value = saved.unwrap_or(default);
        }
        self.apst.fill(0);
        self.host_behavior.fill(0);
        (self.thresholds, self.uncoalesced) = ((WARN_TEMPERATURE, 0), 0);
        (self.host_memory, self.host_id, self.host_id_is_wide) = ([0; 5], [0; 16], false);
    }

    /// Whether the host identifier has 128 bits.
    pub(super) fn has_wide_host_id(&self) -> bool {
        self.host_id_is_wide
    }

    /// Whether writes may stay in the write buffer.
    #[inline]
    pub(super) fn write_cache(&self) -> bool {
        self.plain[WRITE_CACHE].0 & 1 != 0
    }

    /// Which asynchronous events the host wants.
    pub(super) fn async_events(&self) -> u32 {
        self.plain[ASYNC_EVENTS].0
    }

    /// By what table the device changes its power state by itself, if it does.
    pub(super) fn apst(&self) -> Option<&[u8]> {
        (self.plain[APST].0 & 1 != 0).then_some(&self.apst[..])
    }

    /// Whether the host reads CRD (host behaviour, ACRE).
    pub(super) fn reads_delays(&self) -> bool {
        self.host_behavior[0] == 1
    }

    fn index(id: FeatureId) -> Option<usize> {
        PLAIN.iter().position(|(plain, ..)| *plain == id)
    }

    /// Whether the feature exists, is there for each namespace, can be saved.
    fn supports(&self, id: FeatureId) -> Option<SupportedCapabilities> {
        let none = SupportedCapabilities::new().with_changeable(true);
        Some(match id {
            FeatureId::WriteProtect => none.with_per_namespace(true),
            FeatureId::HostMemory if !self.has_host_memory => return None,
            FeatureId::PowerManagement
            | FeatureId::Temperature
            | FeatureId::Queues
            | FeatureId::VectorConfig
            | FeatureId::Timestamp
            | FeatureId::HostBehavior
            | FeatureId::HostMemory
            | FeatureId::HostId => none,
            id => none.with_saveable(PLAIN[Self::index(id)?].2),
        })
    }

    fn default_of(id: FeatureId) -> u32 {
        match (Self::index(id), id) {
            (Some(index), _) => PLAIN[index].1,
            (None, FeatureId::Temperature) => WARN_TEMPERATURE.into(),
            _ => 0,
        }
    }
}

impl Nvme {
    /// Get features.
    pub(super) fn get_features(&mut self, command: &Sqe) -> Result<u32, Status> {
        let id = FeatureId::from_bits(command.cdw10[0] as u8);
        let select = Select::from_number((command.cdw10[0] >> 8 & 7) as u8);
        let supports = self.device.features.supports(id).ok_or(Status::InvalidField)?;
        let features = &self.device.features;
        let (value, data) = match select.ok_or(Status::InvalidField)? {
            Select::Supported => return Ok(supports.into_bits()),
            Select::Current => self.current_feature(id, command)?,
            Select::Saved => match Features::index(id).and_then(|index| features.plain[index].1) {
                Some(saved) => (saved, Vec::new()),
                None => (Features::default_of(id), Vec::new()),
            },
            Select::Default => (Features::default_of(id), Vec::new()),
        };
        let sizes = (self.registers.page, data.len() as u64);
        scatter(Parts::new(&self.memory, command, sizes, true), &data)?;
        Ok(value)
    }

    fn current_feature(&self, id: FeatureId, command: &Sqe) -> Got {
        let (features, cdw11) = (&self.device.features, command.cdw10[1]);
        let plain = |value: u32| Ok((value, Vec::new()));
        match id {
            FeatureId::PowerManagement => plain(self.device.power.state().into()),
            FeatureId::Temperature => match (cdw11 >> 16 & 0xF, cdw11 >> 20 & 3) {
                (0, 0) => plain(features.thresholds.0.into()),
                (0, 1) => plain(features.thresholds.1.into()),
                _ => Err(Status::InvalidField),
            },
            FeatureId::Queues => plain(self.queues.counts()),
            FeatureId::VectorConfig => {
                let vector = self.vector_of(cdw11)?;
                plain(u32::from(vector) | ((features.uncoalesced >> vector & 1) as u32) << 16)
            }
            FeatureId::Apst => Ok((features.plain[APST].0, features.apst.to_vec())),
            FeatureId::Timestamp => {
                let (told, at) = features.timestamp;
                let milliseconds = told + (self.clock.nanos() - at) / 1_000_000;
                let mut data = milliseconds.to_le_bytes();
                // Origin: a host has set it.
                data[6..].copy_from_slice(&[u8::from(told != 0) << 1, 0]);
                Ok((0, data.to_vec()))
            }
            FeatureId::HostBehavior => Ok((0, features.host_behavior.to_vec())),
            FeatureId::HostId => {
                let len = if cdw11 & 1 != 0 { 16 } else { 8 };
                Ok((cdw11 & 1, features.host_id[..len].to_vec()))
            }
            FeatureId::HostMemory => {
                let mut data = vec![0; HOST_MEMORY_BYTES];
                for (place, value) in data.chunks_exact_mut(4).zip(&features.host_memory[1..]) {
                    place.copy_from_slice(&value.to_le_bytes());
                }
                Ok((features.host_memory[0], data))
            }
            FeatureId::WriteProtect => {
                let number = self.namespace_of(command.nsid)?;
                let space = self.device.space(number).ok_or(Status::InvalidNamespace)?;
                plain(space.protect as u32)
            }
            id => plain(features.plain[Features::index(id).ok_or(Status::InvalidField)?].0),
        }
    }

    /// Set features.
    pub(super) fn set_features(&mut self, command: &Sqe) -> Result<u32, Status> {
        let id = FeatureId::from_bits(command.cdw10[0] as u8);
        let (save, cdw11) = (command.cdw10[0] & SAVE != 0, command.cdw10[1]);
        let supports = self.device.features.supports(id).ok_or(Status::InvalidField)?;
        if save && !supports.saveable() {
            return Err(Status::NotSaveable);
        }
        let is_of_one = !matches!(command.nsid, 0 | ALL_NAMESPACES);
        if is_of_one && !supports.per_namespace() {
            return Err(Status::NotPerNamespace);
        }
        match id {
            FeatureId::PowerManagement => self.set_power_state(cdw11)?,
            FeatureId::Temperature => self.set_threshold(cdw11)?,
            FeatureId::Queues => return self.queues.set_counts(cdw11),
            FeatureId::VectorConfig => {
                let vector = self.vector_of(cdw11)?;
                let features = &mut self.device.features;
                features.uncoalesced &= !(1 << vector);
                features.uncoalesced |= u64::from(cdw11 >> 16 & 1) << vector;
            }
            FeatureId::Timestamp => {
                let mut data = [0; 8];
                self.gather_feature(command, &mut data)?;
                data[6..].fill(0);
                self.device.features.timestamp = (u64::from_le_bytes(data), self.clock.nanos());
            }
            FeatureId::HostBehavior => {
                let mut data = [0; HOST_BEHAVIOR_BYTES];
                self.gather_feature(command, &mut data)?;
                *self.device.features.host_behavior = data;
            }
            FeatureId::HostId => {
                let mut data = [0; 16];
                let len = if cdw11 & 1 != 0 { 16 } else { 8 };
                self.gather_feature(command, &mut data[..len])?;
                self.device.features.host_id = data;
                self.device.features.host_id_is_wide = len == data.len();
            }
            FeatureId::HostMemory => self.set_host_memory(command)?,
            FeatureId::WriteProtect => self.set_write_protection(command)?,
            id => {
                let index = Features::index(id).ok_or(Status::InvalidField)?;
                if id == FeatureId::Apst {
                    let mut data = [0; APST_BYTES];
                    self.gather_feature(command, &mut data)?;
                    *self.device.features.apst = data;
                }
                let value = &mut self.device.features.plain[index];
                value.0 = cdw11;
                if save {
                    value.1 = Some(cdw11);
                }
            }
        }
        if matches!(id, FeatureId::AsyncEvents | FeatureId::Temperature) {
            self.look_at_health();
        }
        Ok(0)
    }

    fn gather_feature(&self, command: &Sqe, data: &mut [u8]) -> Result<(), Status> {
        let sizes = (self.registers.page, data.len() as u64);
        gather(Parts::new(&self.memory, command, sizes, false), data)
    }

    /// The vector that CDW11 of the interrupt vector configuration names.
    fn vector_of(&self, cdw11: u32) -> Result<u16, Status> {
        let vector = cdw11 as u16;
        if vector < self.queues.vectors { Ok(vector) } else { Err(Status::InvalidField) }
    }

    fn set_threshold(&mut self, cdw11: u32) -> Result<(), Status> {
        let thresholds = &mut self.device.features.thresholds;
        match (cdw11 >> 16 & 0xF, cdw11 >> 20 & 3) {
            (0 | 0xF, 0) => thresholds.0 = cdw11 as u16,
            (0 | 0xF, 1) => thresholds.1 = cdw11 as u16,
            _ => return Err(Status::InvalidField),
        }
        self.device.health.warning &= !TEMPERATURE_WARNS;
        Ok(())
    }

    fn set_power_state(&mut self, cdw11: u32) -> Result<(), Status> {
        let state = (cdw11 & 0x1F) as u8;
        if self.device.power.set(state, self.clock.nanos()) {
            self.media.meter_mut().enter(state.into(), self.clock.nanos());
            Ok(())
        } else {
            Err(Status::InvalidField)
        }
    }

    /// The host lends memory, or takes it back: the look-up of a drive without its own is as fast
    /// as its profile says only with it.
    fn set_host_memory(&mut self, command: &Sqe) -> Result<(), Status> {
        let Some(memory) = self.profile.host_memory else { return Err(Status::InvalidField) };
        let [_, cdw11, pages, low, high, count] = command.cdw10;
        let enables = cdw11 & 1 != 0;
        let page_shift = self.registers.page.trailing_zeros();
        let bytes = u64::from(pages) << page_shift;
        let is_on = self.device.features.host_memory[0] & 1 != 0;
        if enables && is_on {
            return Err(Status::Sequence);
        }
        if enables && (bytes < memory.minimum.into() || count == 0 || low & 0xF != 0) {
            return Err(Status::InvalidField);
        }
        let lookup = self.profile.timing.lookup_ns;
        self.media.set_lookup(if enables { lookup } else { lookup + memory.missing_ns });
        self.device.features.host_memory =
            if enables { [cdw11, pages, low, high, count] } else { [0; 5] };
        Ok(())
    }

    fn set_write_protection(&mut self, command: &Sqe) -> Result<(), Status> {
        let wanted = WriteProtect::from_bits(command.cdw10[1] & 7).ok_or(Status::InvalidField)?;
        let number = self.namespace_of(command.nsid)?;
        let space = self.device.space_mut(number).ok_or(Status::InvalidNamespace)?;
        let may = match space.protect {
            WriteProtect::None | WriteProtect::On => true,
            kept => kept == wanted,
        };
        if !may {
            return Err(Status::NotChangeable);
        }
        space.protect = wanted;
        Ok(())
    }

    /// HMPRE and HMMIN, in units of 4 KiB.
    pub(super) fn host_memory_wanted(&self) -> (u32, u32) {
        let pages = |bytes: u32| bytes >> HOST_MEMORY_SHIFT;
        let memory = self.profile.host_memory;
        memory.map_or((0, 0), |memory| (pages(memory.preferred), pages(memory.minimum)))
    }
}

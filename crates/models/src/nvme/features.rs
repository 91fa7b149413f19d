//! Features: the settings of the host, and which of them survive a reset.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::nvme::feature::{QueueCounts, SAVE, Select, SupportedCapabilities};
use flysch_wire::nvme::identify::ALL_NAMESPACES;
use flysch_wire::nvme::{FeatureId, Sqe, Status};

use super::Nvme;
use super::config::Config;
use super::device::Device;
use super::logs::{TEMPERATURE_WARNS, WARN_TEMPERATURE};
use super::namespace::WriteProtect;
use super::profile::HostMemory;
use super::reservation::HostName;
use super::transfer::Request;

/// A feature whose value is one dword: its id, its default, whether it can be saved.
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

/// Length of the autonomous power state transition table, bytes.
pub(super) const APST_BYTES: usize = 256;
/// Length of the host behavior support structure, bytes.
const HOST_BEHAVIOR_BYTES: usize = 512;
/// Length of the host memory buffer attributes, bytes.
const HOST_MEMORY_BYTES: usize = 4096;

/// The values of every feature.
#[derive(Debug)]
pub(super) struct Features {
    /// Indexed as [`PLAIN`]: the current value, and the saved one.
    plain: [(u32, Option<u32>); PLAIN.len()],
    /// The table of autonomous transitions that holds, and the one that was saved.
    pub(super) apst: (Box<[u8; APST_BYTES]>, Box<[u8; APST_BYTES]>),
    /// Over and under temperature thresholds, kelvin.
    pub(super) thresholds: (u16, u16),
    /// Vectors whose interrupts are not coalesced, one bit each.
    uncoalesced: u64,
    /// The time set by the host, and when it was set.
    timestamp: (u64, u64),
    host_behavior: Box<[u8; HOST_BEHAVIOR_BYTES]>,
    pub(super) host: HostName,
    /// CDW11 to CDW15 of the host memory buffer.
    host_memory: [u32; 5],
    /// How much host memory the device wants, if any.
    wanted_memory: Option<HostMemory>,
    /// Number of interrupt vectors, and of I/O queue pairs.
    vectors: u16,
    queues: u16,
}

/// The result of Get Features: a dword, and data if there is any.
type Got = Result<(u32, Vec<u8>), Status>;

/// The result of Set Features.
type Set = Result<(), Status>;

impl Features {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            plain: PLAIN.map(|(_, default, _)| (default, None)),
            apst: (Box::new([0; APST_BYTES]), Box::new([0; APST_BYTES])),
            thresholds: (WARN_TEMPERATURE, 0),
            uncoalesced: 0,
            timestamp: (0, 0),
            host_behavior: Box::new([0; HOST_BEHAVIOR_BYTES]),
            host: HostName::default(),
            host_memory: [0; 5],
            wanted_memory: config.profile.host_memory,
            vectors: config.vectors,
            queues: config.queues,
        }
    }

    /// A controller reset: what was not saved returns to its default.
    pub(super) fn reset(&mut self) {
        for ((value, saved), (_, default, _)) in self.plain.iter_mut().zip(PLAIN) {
            *value = saved.unwrap_or(default);
        }
        *self.apst.0 = *self.apst.1;
        self.host_behavior.fill(0);
        (self.thresholds, self.uncoalesced) = ((WARN_TEMPERATURE, 0), 0);
        (self.host_memory, self.host) = ([0; 5], HostName::default());
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

    /// The table by which the device changes its power state by itself, if it does.
    pub(super) fn apst(&self) -> Option<&[u8]> {
        (self.plain[APST].0 & 1 != 0).then_some(&self.apst.0[..])
    }

    /// Whether the host reads CRD (host behaviour, ACRE).
    pub(super) fn reads_delays(&self) -> bool {
        self.host_behavior[0] == 1
    }

    fn index(id: FeatureId) -> Option<usize> {
        PLAIN.iter().position(|(plain, ..)| *plain == id)
    }

    /// What the feature supports; `None` if it does not exist.
    fn supports(&self, id: FeatureId) -> Option<SupportedCapabilities> {
        let none = SupportedCapabilities::new().with_changeable(true);
        Some(match id {
            FeatureId::WriteProtect => none.with_per_namespace(true),
            FeatureId::HostMemory if self.wanted_memory.is_none() => return None,
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

    /// The feature that Set Features names and whether to save it, if that is permitted.
    fn wanted(&self, command: &Sqe) -> Result<(FeatureId, bool), Status> {
        let id = FeatureId::from_bits(command.cdw10[0] as u8);
        let save = command.cdw10[0] & SAVE != 0;
        let supports = self.supports(id).ok_or(Status::InvalidField)?;
        if save && !supports.saveable() {
            return Err(Status::NotSaveable);
        }
        let is_of_one = !matches!(command.nsid, 0 | ALL_NAMESPACES);
        if is_of_one && !supports.per_namespace() {
            return Err(Status::NotPerNamespace);
        }
        Ok((id, save))
    }

    /// The vector that CDW11 of Interrupt Vector Configuration names.
    fn vector_of(&self, cdw11: u32) -> Result<u16, Status> {
        let vector = cdw11 as u16;
        if vector < self.vectors { Ok(vector) } else { Err(Status::InvalidField) }
    }

    /// The value of a feature that is stored here.
    fn current(&self, id: FeatureId, cdw11: u32, now: u64) -> Got {
        let plain = |value: u32| Ok((value, Vec::new()));
        match id {
            FeatureId::Temperature => match (cdw11 >> 16 & 0xF, cdw11 >> 20 & 3) {
                (0, 0) => plain(self.thresholds.0.into()),
                (0, 1) => plain(self.thresholds.1.into()),
                _ => Err(Status::InvalidField),
            },
            FeatureId::Queues => plain(self.queue_counts()),
            FeatureId::VectorConfig => {
                let vector = self.vector_of(cdw11)?;
                plain(u32::from(vector) | ((self.uncoalesced >> vector & 1) as u32) << 16)
            }
            FeatureId::Apst => Ok((self.plain[APST].0, self.apst.0.to_vec())),
            FeatureId::Timestamp => {
                let (told, at) = self.timestamp;
                let milliseconds = told + (now - at) / 1_000_000;
                let mut data = milliseconds.to_le_bytes();
                // Origin: set by a host.
                data[6..].copy_from_slice(&[u8::from(told != 0) << 1, 0]);
                Ok((0, data.to_vec()))
            }
            FeatureId::HostBehavior => Ok((0, self.host_behavior.to_vec())),
            FeatureId::HostId => {
                let len = if cdw11 & 1 != 0 { 16 } else { 8 };
                Ok((cdw11 & 1, self.host.id[..len].to_vec()))
            }
            FeatureId::HostMemory => {
                let mut data = vec![0; HOST_MEMORY_BYTES];
                for (place, value) in data.chunks_exact_mut(4).zip(&self.host_memory[1..]) {
                    place.copy_from_slice(&value.to_le_bytes());
                }
                Ok((self.host_memory[0], data))
            }
            id => plain(self.plain[Self::index(id).ok_or(Status::InvalidField)?].0),
        }
    }

    /// Sets a feature that is stored here, and saves it if requested.
    fn set(&mut self, request: &Request<'_>, (id, save): (FeatureId, bool), now: u64) -> Set {
        let cdw11 = request.command.cdw10[1];
        match id {
            FeatureId::VectorConfig => {
                let vector = self.vector_of(cdw11)?;
                self.uncoalesced &= !(1 << vector);
                self.uncoalesced |= u64::from(cdw11 >> 16 & 1) << vector;
            }
            FeatureId::Timestamp => {
                let mut data = [0; 8];
                request.take(&mut data)?;
                data[6..].fill(0);
                self.timestamp = (u64::from_le_bytes(data), now);
            }
            FeatureId::HostBehavior => {
                let mut data = [0; HOST_BEHAVIOR_BYTES];
                request.take(&mut data)?;
                *self.host_behavior = data;
            }
            FeatureId::HostId => {
                let mut data = [0; 16];
                let len = if cdw11 & 1 != 0 { 16 } else { 8 };
                request.take(&mut data[..len])?;
                self.host = HostName { id: data, is_wide: len == data.len() };
            }
            id => {
                let index = Self::index(id).ok_or(Status::InvalidField)?;
                if id == FeatureId::Apst {
                    let mut data = [0; APST_BYTES];
                    request.take(&mut data)?;
                    *self.apst.0 = data;
                    if save {
                        *self.apst.1 = data;
                    }
                }
                let value = &mut self.plain[index];
                value.0 = cdw11;
                if save {
                    value.1 = Some(cdw11);
                }
            }
        }
        Ok(())
    }

    fn queue_counts(&self) -> u32 {
        let last = self.queues - 1;
        QueueCounts::new().with_submission(last).with_completion(last).into_bits()
    }

    /// The host requests queues, which it may not once it `has_queues`: returns how many it gets.
    fn set_queue_counts(&self, cdw11: u32, has_queues: bool) -> Result<u32, Status> {
        let wanted = QueueCounts::from_bits(cdw11);
        if wanted.submission() == u16::MAX || wanted.completion() == u16::MAX {
            return Err(Status::InvalidField);
        }
        if has_queues { Err(Status::Sequence) } else { Ok(self.queue_counts()) }
    }

    fn set_threshold(&mut self, cdw11: u32) -> Set {
        match (cdw11 >> 16 & 0xF, cdw11 >> 20 & 3) {
            (0 | 0xF, 0) => self.thresholds.0 = cdw11 as u16,
            (0 | 0xF, 1) => self.thresholds.1 = cdw11 as u16,
            _ => return Err(Status::InvalidField),
        }
        Ok(())
    }

    /// The host lends memory, or takes it back; returns whether it lends.
    fn set_host_memory(&mut self, request: &Request<'_>) -> Result<bool, Status> {
        let Some(memory) = self.wanted_memory else { return Err(Status::InvalidField) };
        let [_, cdw11, pages, low, high, count] = request.command.cdw10;
        let enables = cdw11 & 1 != 0;
        let bytes = u64::from(pages) << request.page.trailing_zeros();
        let is_on = self.host_memory[0] & 1 != 0;
        if enables && is_on {
            return Err(Status::Sequence);
        }
        if enables && (bytes < memory.minimum.into() || count == 0 || low & 0xF != 0) {
            return Err(Status::InvalidField);
        }
        self.host_memory = if enables { [cdw11, pages, low, high, count] } else { [0; 5] };
        Ok(enables)
    }
}

impl Device {
    /// Get Features at `now`.
    pub(super) fn get_features(&self, request: &Request<'_>, now: u64) -> Result<u32, Status> {
        let [cdw10, cdw11, ..] = request.command.cdw10;
        let id = FeatureId::from_bits(cdw10 as u8);
        let select = Select::from_number((cdw10 >> 8 & 7) as u8);
        let features = &self.features;
        let supports = features.supports(id).ok_or(Status::InvalidField)?;
        let plain = |value: u32| (value, Vec::new());
        let (value, data) = match select.ok_or(Status::InvalidField)? {
            Select::Supported => return Ok(supports.into_bits()),
            Select::Current => match id {
                FeatureId::PowerManagement => plain(self.power.state().into()),
                FeatureId::WriteProtect => {
                    plain(self.spaces.attached(request.command.nsid)?.protect as u32)
                }
                id => features.current(id, cdw11, now)?,
            },
            Select::Saved => {
                let saved = Features::index(id).and_then(|index| features.plain[index].1);
                let value = saved.unwrap_or_else(|| Features::default_of(id));
                if id == FeatureId::Apst { (value, features.apst.1.to_vec()) } else { plain(value) }
            }
            Select::Default if id == FeatureId::Apst => (0, [0; APST_BYTES].to_vec()),
            Select::Default => plain(Features::default_of(id)),
        };
        request.give(&data)?;
        Ok(value)
    }
}

impl Nvme {
    /// Set Features.
    pub(super) fn set_features(&mut self, command: &Sqe) -> Result<u32, Status> {
        let (device, now) = (&mut self.device, self.clock.nanos());
        let request = Request::new(command, &self.memory, (self.registers.page, device.longest));
        let (id, save) = device.features.wanted(command)?;
        let cdw11 = command.cdw10[1];
        match id {
            FeatureId::PowerManagement => {
                let meter = self.backend.media.meter_mut();
                device.power.set((cdw11 & 0x1F) as u8, meter, now)?;
            }
            FeatureId::Temperature => {
                device.features.set_threshold(cdw11)?;
                device.health.warning &= !TEMPERATURE_WARNS;
            }
            FeatureId::Queues => {
                return device.features.set_queue_counts(cdw11, self.queues.has_io());
            }
            FeatureId::HostMemory => {
                let is_lent = device.features.set_host_memory(&request)?;
                self.backend.lend_memory(is_lent);
            }
            FeatureId::WriteProtect => {
                let wanted = WriteProtect::from_bits(cdw11 & 7).ok_or(Status::InvalidField)?;
                device.spaces.attached_mut(command.nsid)?.set_protection(wanted)?;
            }
            id => device.features.set(&request, (id, save), now)?,
        }
        if matches!(id, FeatureId::AsyncEvents | FeatureId::Temperature) {
            self.look_at_health();
        }
        Ok(0)
    }
}

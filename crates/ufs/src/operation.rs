//! The operations of a host, one at a time.

use crate::channel::Run;
use crate::configuration::{Configuration, ConfigurationPlan};
use crate::control::Core;
use crate::firmware::FirmwarePart;
use crate::keys::CryptoKey;
use crate::management::Peer;
use crate::options::LinkLimits;
use crate::power_mode::{DevicePower, SuspendLevel};
use crate::query::{Kind, Query};
use crate::rpmb::{RpmbAnswer, RpmbCommand, RpmbUnit};
use crate::upkeep::{RefreshState, Upkeep};
use crate::writebooster::{
    PartialFlush, PartialFlushState, ResizeState, WriteBooster, WriteBoosterStatus,
};
use crate::{Cause, UfsError};
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_script::Stop;
use flysch_wire::ufs::descriptor::BootLunId;
use flysch_wire::ufs::query::{
    DescriptorId, FfuStatus, FlagId, PurgeStatus, RefreshMethod, RefreshUnit, WriteBoosterResize,
};
use flysch_wire::ufs::upiu::{ServiceResponse, TaskFunction};

/// An operation for [`Host::begin`](crate::Host::begin).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Bring the controller and the device up, for the first time or again.
    BringUp,
    /// Reset the host and bring it up again; commands in flight end with `Reset`.
    Reset,
    /// Check whether the device answers.
    Nop,
    /// A query.
    Query(Query),
    /// Change gear, lanes and rate to the highest within these limits.
    Link(LinkLimits),
    /// Put the link into hibernation (`true`) or wake it.
    Hibernate(bool),
    /// Suspend device and link to this level, after the commands in flight have ended. A command or
    /// an operation that needs them wakes them, and so does `Hibernate(false)`.
    Suspend(SuspendLevel),
    /// Let the link hibernate after this idle time, µs; 0 is never.
    AutoHibern8(u32),
    /// The device's own power mode.
    Power(DevicePower),
    /// Write the caches, power the device down, switch the controller off. Refused while commands
    /// are in flight; afterwards ports are gone until the next bring-up.
    Shutdown,
    /// Switch WriteBooster on or off.
    WriteBooster(bool),
    /// Start or stop flushing the WriteBooster buffer.
    WriteBoosterFlush(bool),
    /// Flush the WriteBooster buffer while the link hibernates, or not.
    WriteBoosterFlushInHibernate(bool),
    /// Read the state of WriteBooster.
    WriteBoosterStatus,
    /// Have the device make the WriteBooster buffer smaller or larger (UFS 4.1); the device
    /// determines how much.
    ResizeWriteBooster(WriteBoosterResize),
    /// The same in the direction that the device recommends, if any.
    FollowResizeHint,
    /// Read the state of a resize, waiting as for [`PurgeStatus`](Self::PurgeStatus).
    ResizeState(u32),
    /// Set what a flush leaves in the WriteBooster buffer (UFS 4.1). The setting is persistent.
    SetPartialFlush(PartialFlush),
    /// Read the state of partial flush.
    PartialFlushState,
    /// Release pinned WriteBooster data, so that a flush takes it (`true`), or stop doing so.
    Unpin(bool),
    /// Check whether background operations are needed and allow them if so.
    BackgroundOperations,
    /// Read the configuration descriptors.
    ReadConfiguration,
    /// Write the configuration descriptors: the second of the two steps.
    Configure {
        /// What was planned.
        plan: ConfigurationPlan,
        /// Its [`token`](ConfigurationPlan::token), which confirms that the change is wanted.
        token: u64,
    },
    /// Have the device end all commands of a logical unit: ABORT TASK SET, CLEAR TASK SET or
    /// LOGICAL UNIT RESET. Those in flight end with `Reset`.
    EndCommands {
        /// How.
        how: EndCommands,
        /// Logical unit.
        lun: u8,
    },
    /// Ask whether a command (QUERY TASK) or any command (QUERY TASK SET) is in the device.
    QueryTask {
        /// `None`: any command of the unit.
        tag: Option<u8>,
        /// Logical unit.
        lun: u8,
    },
    /// Read the description of the RPMB unit.
    RpmbUnit,
    /// Exchange one message with replay protected memory.
    Rpmb(RpmbCommand),
    /// Send a part of a firmware image, see [`FirmwarePart::all`].
    WriteFirmware(FirmwarePart),
    /// Read what the device reports about the firmware that it has received.
    FirmwareStatus,
    /// Begin (`true`) or stop a purge of all unmapped data. It begins only while no command is in
    /// flight.
    Purge(bool),
    /// Read the state of a purge, after waiting for its end up to this many ms, 2 s at most. The
    /// device reports an end only once.
    PurgeStatus(u32),
    /// Begin a refresh, which also needs empty queues.
    StartRefresh(RefreshMethod, RefreshUnit),
    /// Stop a refresh.
    StopRefresh,
    /// Read the state of a refresh, waiting as for [`PurgeStatus`](Self::PurgeStatus).
    RefreshState(u32),
    /// Put a key into a slot of the controller's crypto engine, in place of the one that is there.
    /// It waits for the end of all commands in flight, one second at most. A host reset restores
    /// the key; [`Shutdown`](Self::Shutdown) removes all keys.
    ProgramKey {
        /// Slot, from 0.
        slot: u8,
        /// The key.
        key: CryptoKey,
    },
    /// Take the key out of a slot; waits as [`ProgramKey`](Self::ProgramKey).
    EvictKey {
        /// Slot, from 0.
        slot: u8,
    },
    /// Read a part of the error history: buffer 0 is the directory of the others.
    ReadErrorHistory {
        /// BUFFER ID.
        buffer: u8,
        /// Where.
        offset: u32,
        /// Bytes, 1 to [`SERVICE_DATA_MAX`](crate::SERVICE_DATA_MAX). Those the device does not
        /// fill are zero.
        length: u32,
    },
    /// Tell the device the time, nanoseconds since 1970-01-01.
    SetTimestamp(u64),
    /// Select the unit that the well-known unit BOOT stands for.
    SetBootLun(BootLunId),
    /// Read blocks of the well-known unit BOOT, up to
    /// [`SERVICE_DATA_MAX`](crate::SERVICE_DATA_MAX) bytes.
    ReadBoot {
        /// First block.
        lba: u32,
        /// Blocks.
        blocks: u16,
    },
}

impl Operation {
    /// Whether it needs an awake link.
    fn needs_link(&self) -> bool {
        !matches!(self, Self::Hibernate(_) | Self::Suspend(_))
    }
}

/// How [`Operation::EndCommands`] does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCommands {
    /// ABORT TASK SET: the commands of this initiator.
    AbortTaskSet,
    /// CLEAR TASK SET: the commands of all initiators.
    ClearTaskSet,
    /// LOGICAL UNIT RESET.
    LogicalUnitReset,
}

impl EndCommands {
    pub(crate) const fn function(self) -> TaskFunction {
        match self {
            Self::AbortTaskSet => TaskFunction::AbortTaskSet,
            Self::ClearTaskSet => TaskFunction::ClearTaskSet,
            Self::LogicalUnitReset => TaskFunction::LogicalUnitReset,
        }
    }
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Output {
    /// Success without a value.
    None,
    /// An attribute, or a flag as 0 or 1.
    Value(u64),
    /// A descriptor.
    Descriptor(DescriptorBytes),
    /// Read the state of WriteBooster.
    WriteBooster(WriteBoosterStatus),
    /// The state of a resize of its buffer.
    Resize(ResizeState),
    /// The state of its partial flush.
    PartialFlush(PartialFlushState),
    /// The configuration.
    Configuration(Configuration),
    /// The device's service response.
    Task(ServiceResponse),
    /// The RPMB unit.
    RpmbUnit(RpmbUnit),
    /// The answer of one of its regions.
    Rpmb(RpmbAnswer),
    /// What the device reports about its firmware.
    Firmware(FfuStatus),
    /// The state of a purge.
    Purge(PurgeStatus),
    /// The state of a refresh.
    Refresh(RefreshState),
    /// Data that was read.
    Bytes(Vec<u8>),
}

/// A descriptor as the device sent it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DescriptorBytes {
    bytes: [u8; 256],
    len: u16,
}

impl DescriptorBytes {
    /// The bytes the device sent.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl core::fmt::Debug for DescriptorBytes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("DescriptorBytes").field(&self.as_slice()).finish()
    }
}

/// The error on a controller without a crypto engine.
const NO_ENGINE: UfsError = UfsError::Unsupported("inline encryption");

impl<M: Machine> Core<M> {
    pub(crate) fn operate(&mut self, operation: &Operation) -> Run<Output> {
        if operation.needs_link() {
            self.power.resume(&mut self.peer)?;
        }
        let output = self.carry_out(operation)?;
        // A host reset restores what was asked for last.
        let options = &mut self.peer.channel.options;
        match *operation {
            Operation::Link(limits) => options.link = limits,
            Operation::AutoHibern8(idle_us) => options.auto_hibern8_us = Some(idle_us),
            Operation::WriteBooster(on) => options.write_booster = Some(on),
            _ => {}
        }
        Ok(output)
    }

    /// Hands an operation to the object that it concerns.
    fn carry_out(&mut self, operation: &Operation) -> Run<Output> {
        let Self { peer, power, crypto, .. } = self;
        match *operation {
            // These are jobs of their own, see `Host::begin`.
            Operation::BringUp | Operation::Reset | Operation::EndCommands { .. } => Ok(()),
            Operation::Shutdown => self.shut_down(),
            Operation::Link(limits) => power.set_link(peer, limits),
            Operation::Hibernate(true) => power.suspend(peer, SuspendLevel::Hibernate),
            Operation::Hibernate(false) => power.resume(peer),
            Operation::Suspend(level) => power.suspend(peer, level),
            Operation::AutoHibern8(idle_us) => peer.channel.set_auto_hibern8(idle_us),
            Operation::Power(level) => power.start_stop(peer, level)?.map_err(Stop::from),
            Operation::ProgramKey { slot, ref key } => {
                let engine = crypto.as_mut().ok_or(NO_ENGINE)?;
                engine.program_key(&mut peer.channel, slot, key)
            }
            Operation::EvictKey { slot } => {
                let engine = crypto.as_mut().ok_or(NO_ENGINE)?;
                engine.evict_key(&mut peer.channel, slot)
            }
            ref other => return peer.operate(other),
        }
        .map(|()| Output::None)
    }
}

/// Operations that concern the device alone.
impl<M: Machine> Peer<M> {
    fn operate(&mut self, operation: &Operation) -> Run<Output> {
        match *operation {
            Operation::ReadConfiguration => {
                return Configuration::read(self).map(Output::Configuration);
            }
            Operation::Configure { ref plan, token } => plan.write(self, token),
            Operation::Nop => self.nop(self.channel.options.timeouts.nop_ms),
            Operation::Query(ref query) => return self.answer_query(query),
            Operation::QueryTask { tag, lun } => return self.ask_task(tag, lun),
            Operation::BackgroundOperations => self.serve_background_operations(),
            Operation::RpmbUnit => return RpmbUnit::read(self).map(Output::RpmbUnit),
            Operation::Rpmb(ref command) => return command.send(self).map(Output::Rpmb),
            Operation::WriteFirmware(ref part) => part.write(self),
            Operation::FirmwareStatus => return FirmwarePart::status(self).map(Output::Firmware),
            Operation::Purge(true) => Upkeep::Purge.begin(self),
            Operation::Purge(false) => Upkeep::Purge.stop(self),
            Operation::PurgeStatus(wait) => {
                let status = Upkeep::Purge.status(self, wait)?;
                return Ok(Output::Purge(PurgeStatus::from_bits(status)));
            }
            Operation::StartRefresh(method, unit) => self.start_refresh(method, unit),
            Operation::StopRefresh => Upkeep::Refresh.stop(self),
            Operation::RefreshState(wait) => {
                return RefreshState::read(self, wait).map(Output::Refresh);
            }
            Operation::ReadErrorHistory { buffer, offset, length } => {
                return self.read_error_history(buffer, offset, length).map(Output::Bytes);
            }
            Operation::SetTimestamp(nanos) => self.set_timestamp(nanos),
            Operation::SetBootLun(boot) => self.set_boot_lun(boot),
            Operation::ReadBoot { lba, blocks } => {
                return self.read_boot(lba, blocks).map(Output::Bytes);
            }
            ref other => return WriteBooster::of(&self.device).operate(self, other),
        }
        .map(|()| Output::None)
    }

    fn ask_task(&mut self, tag: Option<u8>, lun: u8) -> Run<Output> {
        let answer = match tag {
            Some(tag) => self.channel.task(TaskFunction::QueryTask, lun, tag)?,
            None => self.channel.task(TaskFunction::QueryTaskSet, lun, 0)?,
        };
        answer.map(Output::Task).map_err(|cause: Cause| cause.into())
    }

    fn answer_query(&mut self, query: &Query) -> Run<Output> {
        let reply = self.checked_query(query)?;
        Ok(match query.kind() {
            Kind::Descriptor(id) => {
                // Both bytes that every descriptor but one starts with.
                let good = reply.bytes().first_chunk().is_some_and(|[length, idn]| {
                    let has_no_type = id == DescriptorId::Fbo;
                    *length >= 2 && (has_no_type || DescriptorId::from_bits(*idn) == id)
                });
                if !good {
                    return Err(UfsError::Descriptor(id.name(), None).into());
                }
                Output::Descriptor(DescriptorBytes { bytes: reply.data, len: reply.len as u16 })
            }
            Kind::Attribute => Output::Value(query.value_of(&reply)),
            Kind::Flag => Output::Value(reply.fields.flag_value().into()),
        })
    }
}

impl WriteBooster {
    fn operate<M: Machine>(&self, peer: &mut Peer<M>, operation: &Operation) -> Run<Output> {
        match *operation {
            Operation::WriteBooster(on) => self.set_flag(peer, FlagId::WriteBoosterEn, on),
            Operation::WriteBoosterFlush(on) => {
                self.set_flag(peer, FlagId::WriteBoosterBufferFlushEn, on)
            }
            Operation::WriteBoosterFlushInHibernate(on) => {
                self.set_flag(peer, FlagId::WriteBoosterBufferFlushDuringHibernate, on)
            }
            Operation::WriteBoosterStatus => {
                return self.status(peer).map(Output::WriteBooster);
            }
            Operation::ResizeWriteBooster(direction) => self.resize(peer, direction),
            Operation::FollowResizeHint => self.follow_hint(peer),
            Operation::ResizeState(wait) => {
                return self.resize_state(peer, wait).map(Output::Resize);
            }
            Operation::SetPartialFlush(flush) => self.set_partial_flush(peer, flush),
            Operation::PartialFlushState => {
                return self.partial_flush_state(peer).map(Output::PartialFlush);
            }
            Operation::Unpin(on) => self.unpin(peer, on),
            _ => unreachable!("carried out elsewhere"),
        }
        .map(|()| Output::None)
    }
}

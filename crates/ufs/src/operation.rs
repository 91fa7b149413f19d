//! What a host can be asked to do, one at a time.

use crate::Cause;
use crate::control::{Core, Run, Stop};
use crate::options::LinkLimits;
use crate::power::DevicePower;
use crate::query::Query;
use crate::writebooster::WriteBoosterStatus;
use flysch_api::machine::Machine;
use flysch_wire::ufs::query::FlagId;
use flysch_wire::ufs::upiu::{ServiceResponse, TaskFunction};

/// One thing for [`Host::begin`](crate::Host::begin).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Bring the controller and the device up, from nothing or again.
    BringUp,
    /// Reset the host and bring it up again; commands in flight end with `Reset`.
    Reset,
    /// Ask the device whether it is there.
    Nop,
    /// A query.
    Query(Query),
    /// Change gear, lanes and rate to the highest within these limits.
    Link(LinkLimits),
    /// Put the link into hibernation (`true`) or take it out.
    Hibernate(bool),
    /// Let the link hibernate after this idle time, µs; 0 is never.
    AutoHibern8(u32),
    /// The device's own power mode.
    Power(DevicePower),
    /// Switch WriteBooster on or off.
    WriteBooster(bool),
    /// Start or stop flushing the WriteBooster buffer.
    WriteBoosterFlush(bool),
    /// Flush the WriteBooster buffer while the link hibernates, or not.
    WriteBoosterFlushInHibernate(bool),
    /// How WriteBooster stands.
    WriteBoosterStatus,
    /// Look whether background operations are needed and allow them if so.
    BackgroundOperations,
    /// Ask whether a command (QUERY TASK) or any command (QUERY TASK SET) is in the device.
    QueryTask {
        /// `None`: any command of the unit.
        tag: Option<u8>,
        /// Logical unit.
        lun: u8,
    },
}

/// What an operation gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Output {
    /// Nothing but success.
    None,
    /// An attribute, or a flag as 0 or 1.
    Value(u64),
    /// A descriptor.
    Descriptor(DescriptorBytes),
    /// How WriteBooster stands.
    WriteBooster(WriteBoosterStatus),
    /// The device's service response.
    Task(ServiceResponse),
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

impl<M: Machine> Core<M> {
    pub(crate) fn operate(&mut self, operation: &Operation) -> Run<Output> {
        match *operation {
            // Jobs of their own, see `Host::begin`.
            Operation::BringUp | Operation::Reset => Ok(()),
            Operation::Nop => self.nop(self.options.timeouts.nop_ms),
            Operation::Query(ref query) => return self.answer_query(query),
            Operation::Link(limits) => self.set_link(limits),
            Operation::Hibernate(enter) => self.hibernate(enter),
            Operation::AutoHibern8(idle_us) => self.set_auto_hibern8(idle_us),
            Operation::Power(power) => self.start_stop(power)?.map_err(Stop::from),
            Operation::WriteBooster(on) => self.write_booster_flag(FlagId::WriteBoosterEn, on),
            Operation::WriteBoosterFlush(on) => {
                self.write_booster_flag(FlagId::WriteBoosterBufferFlushEn, on)
            }
            Operation::WriteBoosterFlushInHibernate(on) => {
                self.write_booster_flag(FlagId::WriteBoosterBufferFlushDuringHibernate, on)
            }
            Operation::WriteBoosterStatus => {
                return self.write_booster_status().map(Output::WriteBooster);
            }
            Operation::BackgroundOperations => self.serve_background_operations(),
            Operation::QueryTask { tag, lun } => return self.ask_task(tag, lun),
        }
        .map(|()| Output::None)
    }

    fn ask_task(&mut self, tag: Option<u8>, lun: u8) -> Run<Output> {
        let answer = match tag {
            Some(tag) => self.task(TaskFunction::QueryTask, lun, tag)?,
            None => self.task(TaskFunction::QueryTaskSet, lun, 0)?,
        };
        answer.map(Output::Task).map_err(|cause: Cause| cause.into())
    }

    fn answer_query(&mut self, query: &Query) -> Run<Output> {
        let reply = self.checked_query(query)?;
        Ok(match query.kind() {
            crate::query::Kind::Descriptor => {
                Output::Descriptor(DescriptorBytes { bytes: reply.data, len: reply.len as u16 })
            }
            crate::query::Kind::Attribute => Output::Value(query.value_of(&reply)),
            crate::query::Kind::Flag => Output::Value(reply.fields.flag_value().into()),
        })
    }
}

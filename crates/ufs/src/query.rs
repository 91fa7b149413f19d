//! Queries: descriptors, attributes and flags, each checked before it is sent.
//!
//! Parts have been seen to hang when asked for an identifier that is newer than their
//! specification, so what a device can be asked follows from its wSpecVersion and what is known of
//! it. What cannot be undone (write-once attributes and flags) needs [`Query::irreversible`].

use crate::channel::Run;
use crate::device_quirks::DeviceQuirk;
use crate::exchange::{DESCRIPTOR_MAX, Reply};
use crate::management::Peer;
use crate::time::MS;
use crate::{Cause, UfsError};
use flysch_api::machine::Machine;
use flysch_script::Primitives;
use flysch_wire::ufs::query::{
    Access, AttributeId, DescriptorId, FlagId, QueryOpcode, Scope, Since, WRITE_BOOSTER_SINCE,
    WriteAccess,
};
use flysch_wire::ufs::upiu::QueryFields;

/// Interval between two looks at something that runs, nanoseconds.
const LOOK_NANOS: u64 = 50 * MS;
/// Most looks of one operation: a page of answers stays short.
const LOOKS: u32 = 40;

/// What is asked of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    what: What,
    index: u8,
    selector: u8,
    irreversible: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    ReadDescriptor(DescriptorId),
    ReadAttribute(AttributeId),
    WriteAttribute(AttributeId, u64),
    Flag(QueryOpcode, FlagId),
}

/// What a query gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Descriptor(DescriptorId),
    Attribute,
    Flag,
}

impl Query {
    pub(crate) fn kind(&self) -> Kind {
        match self.what {
            What::ReadDescriptor(id) => Kind::Descriptor(id),
            What::ReadAttribute(_) | What::WriteAttribute(..) => Kind::Attribute,
            What::Flag(..) => Kind::Flag,
        }
    }

    /// Since when there is what it asks for; `None` for a number without a name.
    fn since(&self) -> Option<Since> {
        match self.what {
            What::ReadDescriptor(id) => id.since(),
            What::ReadAttribute(id) | What::WriteAttribute(id, _) => Some(id.info()?.since),
            What::Flag(_, id) => Some(id.info()?.since),
        }
    }

    /// The attribute's value in an answer, as wide as the attribute.
    pub(crate) fn value_of(&self, reply: &Reply) -> u64 {
        let width = match self.what {
            What::ReadAttribute(id) | What::WriteAttribute(id, _) => id.info(),
            _ => None,
        };
        match width {
            Some(info) if info.width == 8 => reply.fields.value64(),
            Some(info) => u64::from(reply.fields.value32()) & info.value_max(),
            None => 0,
        }
    }

    const fn of(what: What) -> Self {
        Self { what, index: 0, selector: 0, irreversible: false }
    }

    /// Reads a descriptor.
    pub const fn read_descriptor(id: DescriptorId) -> Self {
        Self::of(What::ReadDescriptor(id))
    }

    /// Reads an attribute.
    pub const fn read_attribute(id: AttributeId) -> Self {
        Self::of(What::ReadAttribute(id))
    }

    /// Writes an attribute.
    pub const fn write_attribute(id: AttributeId, value: u64) -> Self {
        Self::of(What::WriteAttribute(id, value))
    }

    /// Reads a flag.
    pub const fn read_flag(id: FlagId) -> Self {
        Self::of(What::Flag(QueryOpcode::ReadFlag, id))
    }

    /// Sets a flag.
    pub const fn set_flag(id: FlagId) -> Self {
        Self::of(What::Flag(QueryOpcode::SetFlag, id))
    }

    /// Clears a flag.
    pub const fn clear_flag(id: FlagId) -> Self {
        Self::of(What::Flag(QueryOpcode::ClearFlag, id))
    }

    /// Toggles a flag.
    pub const fn toggle_flag(id: FlagId) -> Self {
        Self::of(What::Flag(QueryOpcode::ToggleFlag, id))
    }

    /// Of the logical unit, string or context with this index.
    #[must_use]
    pub const fn index(mut self, index: u8) -> Self {
        self.index = index;
        self
    }

    /// With this selector.
    #[must_use]
    pub const fn selector(mut self, selector: u8) -> Self {
        self.selector = selector;
        self
    }

    /// The caller knows that this write cannot be undone.
    #[must_use]
    pub const fn irreversible(mut self) -> Self {
        self.irreversible = true;
        self
    }

    /// The fields to send to a device of this wSpecVersion.
    ///
    /// # Errors
    /// Why it must not be sent.
    pub fn check(&self, spec_version: u16) -> Result<QueryFields, UfsError> {
        let (index, selector) = (self.index, self.selector);
        Ok(match self.what {
            What::ReadDescriptor(id) => {
                let since = id.since().ok_or(UfsError::Unknown(id.into_bits()))?;
                in_version(id.name(), since, spec_version)?;
                let length = DESCRIPTOR_MAX as u16;
                QueryFields::read_descriptor(id.into_bits(), index, selector, length)
            }
            What::ReadAttribute(id) => {
                let info = id.info().ok_or(UfsError::Unknown(id.into_bits()))?;
                in_version(id.name(), info.since, spec_version)?;
                self.in_scope(id.name(), info.scope)?;
                if !info.access.read {
                    return Err(UfsError::Access(id.name()));
                }
                QueryFields::read_attribute(id.into_bits(), index, selector)
            }
            What::WriteAttribute(id, value) => {
                let info = id.info().ok_or(UfsError::Unknown(id.into_bits()))?;
                in_version(id.name(), info.since, spec_version)?;
                self.in_scope(id.name(), info.scope)?;
                self.may_write(id.name(), info.access)?;
                if value > info.value_max() {
                    return Err(UfsError::Value(id.name()));
                }
                QueryFields::write_attribute(id.into_bits(), index, selector, value)
            }
            What::Flag(opcode, id) => {
                let info = id.info().ok_or(UfsError::Unknown(id.into_bits()))?;
                in_version(id.name(), info.since, spec_version)?;
                self.in_scope(id.name(), info.scope)?;
                self.flag_access(opcode, id, info.access)?;
                QueryFields::flag(opcode, id.into_bits(), index, selector)
            }
        })
    }

    fn flag_access(&self, opcode: QueryOpcode, id: FlagId, access: Access) -> Result<(), UfsError> {
        match opcode {
            QueryOpcode::ReadFlag if access.read => Ok(()),
            QueryOpcode::ReadFlag => Err(UfsError::Access(id.name())),
            QueryOpcode::SetFlag => self.may_write(id.name(), access),
            _ if access.write == WriteAccess::SetOnly => Err(UfsError::Access(id.name())),
            _ => self.may_write(id.name(), access),
        }
    }

    fn may_write(&self, name: &'static str, access: Access) -> Result<(), UfsError> {
        match access.write {
            WriteAccess::No => Err(UfsError::Access(name)),
            WriteAccess::Once if !self.irreversible => Err(UfsError::Irreversible(name)),
            _ => Ok(()),
        }
    }

    fn in_scope(&self, name: &'static str, scope: Scope) -> Result<(), UfsError> {
        let fits = match scope {
            Scope::Device => self.index == 0 && self.selector == 0,
            Scope::LogicalUnit | Scope::DeviceOrLogicalUnit => self.index < 32,
            Scope::Context => self.index < 32 && (1..=15).contains(&self.selector),
        };
        if fits { Ok(()) } else { Err(UfsError::Index(name)) }
    }
}

fn in_version(name: &'static str, since: Since, device: u16) -> Result<(), UfsError> {
    if since.is_in(device) {
        Ok(())
    } else {
        Err(UfsError::TooNew { name, since: since.version, device })
    }
}

impl<M: Machine> Peer<M> {
    /// Checks a query and sends it.
    pub(crate) fn checked_query(&mut self, query: &Query) -> Run<Reply> {
        let version = self.device.descriptor.w_spec_version;
        let is_early = self.device.quirks.has(DeviceQuirk::EarlyWriteBooster)
            && query.since() == Some(WRITE_BOOSTER_SINCE);
        let version = if is_early { WRITE_BOOSTER_SINCE.version.max(version) } else { version };
        let fields = query.check(version)?;
        Ok(self.query(fields)??)
    }

    /// Reads an attribute of which the device has only one.
    pub(crate) fn read_attribute(&mut self, id: AttributeId) -> Run<u32> {
        Ok(self.checked_query(&Query::read_attribute(id))?.fields.value32())
    }

    /// Reads a status attribute of one byte, for up to `wait_ms` as long as it is `in_progress`.
    pub(crate) fn poll_status(&mut self, query: &Query, in_progress: u8, wait_ms: u32) -> Run<u8> {
        let looks = u32::try_from(u64::from(wait_ms) * MS / LOOK_NANOS).unwrap_or(LOOKS);
        for _ in 0..looks.min(LOOKS) {
            let status = self.checked_query(query)?.fields.value32() as u8;
            if status != in_progress {
                return Ok(status);
            }
            self.channel.sleep(LOOK_NANOS)?;
        }
        Ok(self.checked_query(query)?.fields.value32() as u8)
    }

    /// Reads a descriptor without regard to the version: for the ones every device has.
    pub(crate) fn read_descriptor(
        &mut self,
        id: DescriptorId,
        index: u8,
    ) -> Run<Result<Reply, Cause>> {
        let fields = QueryFields::read_descriptor(id.into_bits(), index, 0, DESCRIPTOR_MAX as u16);
        self.query(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_newer_than_the_device_is_never_sent() {
        let hint = Query::read_attribute(AttributeId::WriteBoosterBufferResizeHint);
        assert!(hint.check(0x410).is_ok());
        assert!(matches!(hint.check(0x300), Err(UfsError::TooNew { device: 0x300, .. })));
        let booster = Query::set_flag(FlagId::WriteBoosterEn);
        assert!(booster.check(0x220).is_ok() && booster.check(0x310).is_ok());
        assert!(matches!(booster.check(0x300), Err(UfsError::TooNew { .. })));
        assert!(Query::read_attribute(AttributeId::from_bits(0x7F)).check(0x410).is_err());
    }

    #[test]
    fn access_follows_the_tables() {
        let status = AttributeId::ExceptionEventStatus;
        assert!(Query::write_attribute(status, 1).check(0x410).is_err());
        let lock = Query::write_attribute(AttributeId::ConfigDescrLock, 1);
        assert!(matches!(lock.check(0x410), Err(UfsError::Irreversible(_))));
        assert!(lock.irreversible().check(0x410).is_ok());
        let wide = Query::write_attribute(AttributeId::ActiveIccLevel, 256);
        assert!(matches!(wide.check(0x410), Err(UfsError::Value(_))));
        assert!(Query::clear_flag(FlagId::DeviceInit).check(0x410).is_err());
        assert!(Query::read_flag(FlagId::PurgeEnable).check(0x410).is_err());
        assert!(Query::read_flag(FlagId::DeviceInit).index(1).check(0x410).is_err());
    }
}

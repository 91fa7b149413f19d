//! Flags and attributes: what is stored, who may write it, what survives which reset.

use flysch_wire::ufs::query::{
    AttributeId, AttributeInfo, FlagId, FlagInfo, QueryResult, Scope, WriteAccess,
};

use super::config::UNITS_MAX;

/// One more than the highest attribute idn with a name.
const ATTRIBUTES: usize = 0x50;
/// One more than the highest flag idn with a name.
const FLAGS: usize = 0x20;
/// Contexts of a unit, 1..=15, that wContextConf configures.
const CONTEXTS: usize = 16;

/// Which parameters a reset returns to their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reset {
    /// Volatile parameters.
    Warm,
    /// Also those that can be written once per power-on.
    PowerOn,
}

/// Values and who has written them.
#[derive(Debug)]
pub(super) struct Parameters {
    specification: u16,
    /// Whether WriteBooster parameters have one value for the whole device.
    shared: bool,
    /// Attributes of the device, by idn.
    attributes: [u64; ATTRIBUTES],
    /// Whether a write-once parameter has been written, by idn.
    attribute_written: [bool; ATTRIBUTES],
    flag_written: [bool; FLAGS],
    /// Flags, by idn; bit n is for unit n, bit 0 for the device.
    flags: [u32; FLAGS],
    contexts: [[u16; CONTEXTS]; UNITS_MAX],
}

/// Non-zero defaults.
fn default_of(id: AttributeId) -> u64 {
    match id {
        AttributeId::MaxDataInSize | AttributeId::MaxDataOutSize => 8,
        AttributeId::RefClkFreq => 1,
        AttributeId::MaxNumOfRtt => 2,
        AttributeId::RefClkGatingWaitTime => 10,
        AttributeId::DeviceTooHighTempBoundary => 80 + 85,
        AttributeId::DeviceTooLowTempBoundary => 80 - 25,
        AttributeId::WriteBoosterBufferLifeTimeEst => 1,
        _ => 0,
    }
}

/// Whether the attribute accepts the value (JESD220 14.3).
fn takes(id: AttributeId, value: u64) -> bool {
    match id {
        AttributeId::BootLunEn => value <= 2,
        AttributeId::ActiveIccLevel => value <= 15,
        AttributeId::OutOfOrderDataEn | AttributeId::ConfigDescrLock | AttributeId::ExtIidEn => {
            value <= 1
        }
        AttributeId::MaxDataInSize | AttributeId::MaxDataOutSize => (1..=8).contains(&value),
        AttributeId::RefClkFreq => value <= 3,
        AttributeId::MaxNumOfRtt => (1..=2).contains(&value),
        AttributeId::ExceptionEventControl => value <= 0x07FF,
        AttributeId::PsaState => value <= 3,
        AttributeId::RefreshMethod => (1..=2).contains(&value),
        AttributeId::RefreshUnit => value <= 1,
        AttributeId::FboControl | AttributeId::DefragOperation => value <= 2,
        AttributeId::WriteBoosterBufferResizeEn => value <= 2,
        AttributeId::WriteBoosterBufferPartialFlushMode => value <= 2,
        _ => true,
    }
}

impl Parameters {
    pub(super) fn new(specification: u16, shared: bool) -> Self {
        let mut attributes = [0; ATTRIBUTES];
        for id in AttributeId::ALL {
            attributes[usize::from(id.into_bits())] = default_of(*id);
        }
        Self {
            specification,
            shared,
            attributes,
            attribute_written: [false; ATTRIBUTES],
            flag_written: [false; FLAGS],
            flags: [0; FLAGS],
            contexts: [[0; CONTEXTS]; UNITS_MAX],
        }
    }

    /// A new configuration has one WriteBooster buffer, or one per unit.
    pub(super) fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }

    pub(super) fn reset(&mut self, reset: Reset) {
        let gone = |access| {
            access == WriteAccess::Volatile
                || access == WriteAccess::OncePerPowerOn && reset == Reset::PowerOn
        };
        for id in AttributeId::ALL {
            if id.info().is_some_and(|info| gone(info.access.write)) {
                let at = usize::from(id.into_bits());
                self.attributes[at] = default_of(*id);
                self.attribute_written[at] = false;
            }
        }
        for id in FlagId::ALL {
            if id.info().is_some_and(|info| gone(info.access.write)) {
                let at = usize::from(id.into_bits());
                self.flags[at] = 0;
                self.flag_written[at] = false;
            }
        }
        self.contexts = [[0; CONTEXTS]; UNITS_MAX];
    }

    /// The stored value of a device attribute.
    pub(super) fn attribute(&self, id: AttributeId) -> u64 {
        self.attributes[usize::from(id.into_bits())]
    }

    /// Sets a value that the device itself decides.
    pub(super) fn force(&mut self, id: AttributeId, value: u64) {
        self.attributes[usize::from(id.into_bits())] = value;
    }

    /// Whether a flag is set, for unit `unit` if it has one value per unit.
    pub(super) fn flag(&self, id: FlagId, unit: u8) -> bool {
        let per_unit = matches!(id.info(), Some(FlagInfo { scope: Scope::LogicalUnit, .. }))
            || !self.shared && matches!(id.info(), Some(info) if info.scope != Scope::Device);
        let bit = if per_unit { unit } else { 0 };
        self.flags[usize::from(id.into_bits())] >> bit & 1 != 0
    }

    /// Sets a flag that the device itself decides.
    pub(super) fn force_flag(&mut self, id: FlagId, index: u8, value: bool) {
        let flags = &mut self.flags[usize::from(id.into_bits())];
        *flags = *flags & !(1 << index) | u32::from(value) << index;
    }

    /// Looks up a flag for a query.
    pub(super) fn find_flag(&self, idn: u8, index: u8) -> Result<&'static FlagInfo, QueryResult> {
        let info = FlagId::from_bits(idn).info().ok_or(QueryResult::InvalidIdn)?;
        if !info.since.is_in(self.specification) {
            return Err(QueryResult::InvalidIdn);
        }
        self.check_index(info.scope, index)?;
        Ok(info)
    }

    /// Looks up an attribute for a query.
    pub(super) fn find_attribute(
        &self,
        idn: u8,
        index: u8,
    ) -> Result<&'static AttributeInfo, QueryResult> {
        let info = AttributeId::from_bits(idn).info().ok_or(QueryResult::InvalidIdn)?;
        if !info.since.is_in(self.specification) {
            return Err(QueryResult::InvalidIdn);
        }
        self.check_index(info.scope, index)?;
        Ok(info)
    }

    fn check_index(&self, scope: Scope, index: u8) -> Result<(), QueryResult> {
        let per_unit = match scope {
            Scope::Device => false,
            Scope::DeviceOrLogicalUnit => !self.shared,
            Scope::LogicalUnit | Scope::Context => true,
        };
        let limit = if per_unit { UNITS_MAX } else { 1 };
        if usize::from(index) < limit { Ok(()) } else { Err(QueryResult::InvalidIndex) }
    }

    /// A flag as a query reads it.
    pub(super) fn read_flag(&self, info: &FlagInfo, index: u8) -> Result<bool, QueryResult> {
        if !info.access.read {
            return Err(QueryResult::ParameterNotReadable);
        }
        Ok(self.flags[usize::from(info.id.into_bits())] >> index & 1 != 0)
    }

    /// A query sets or clears a flag.
    pub(super) fn write_flag(
        &mut self,
        info: &FlagInfo,
        index: u8,
        value: bool,
    ) -> Result<(), QueryResult> {
        let at = usize::from(info.id.into_bits());
        match info.access.write {
            WriteAccess::No => return Err(QueryResult::ParameterNotWriteable),
            WriteAccess::SetOnly if !value => return Err(QueryResult::ParameterNotWriteable),
            WriteAccess::Once | WriteAccess::OncePerPowerOn => {
                if self.flag_written[at] {
                    return Err(QueryResult::ParameterAlreadyWritten);
                }
                self.flag_written[at] = value;
            }
            WriteAccess::Volatile | WriteAccess::Persistent | WriteAccess::SetOnly => {}
        }
        self.force_flag(info.id, index, value);
        Ok(())
    }

    /// A stored attribute as a query reads it.
    pub(super) fn read_attribute(
        &self,
        info: &AttributeInfo,
        index: u8,
        selector: u8,
    ) -> Result<u64, QueryResult> {
        if !info.access.read {
            return Err(QueryResult::ParameterNotReadable);
        }
        match info.scope {
            Scope::Context => Ok(u64::from(self.contexts[usize::from(index)][context(selector)?])),
            _ => Ok(self.attribute(info.id)),
        }
    }

    /// A query writes an attribute.
    pub(super) fn write_attribute(
        &mut self,
        info: &AttributeInfo,
        index: u8,
        selector: u8,
        value: u64,
    ) -> Result<(), QueryResult> {
        let at = usize::from(info.id.into_bits());
        match info.access.write {
            WriteAccess::No => return Err(QueryResult::ParameterNotWriteable),
            WriteAccess::Once | WriteAccess::OncePerPowerOn if self.attribute_written[at] => {
                return Err(QueryResult::ParameterAlreadyWritten);
            }
            _ => {}
        }
        if value > info.value_max() || !takes(info.id, value) {
            return Err(QueryResult::InvalidValue);
        }
        self.attribute_written[at] = true;
        if info.scope == Scope::Context {
            self.contexts[usize::from(index)][context(selector)?] = value as u16;
        } else {
            self.attributes[at] = value;
        }
        Ok(())
    }
}

/// The context named by a selector: 1 to 15.
fn context(selector: u8) -> Result<usize, QueryResult> {
    match selector {
        1..=15 => Ok(usize::from(selector)),
        _ => Err(QueryResult::InvalidSelector),
    }
}

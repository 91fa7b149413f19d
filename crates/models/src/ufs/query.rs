//! Queries: reading and writing descriptors, attributes and flags.

use flysch_wire::ufs::descriptor::LENGTH_MAX;
use flysch_wire::ufs::query::{
    AttributeId, CurrentPowerMode, DescriptorId, FlagId, PurgeStatus, QueryOpcode, QueryResult,
    RefreshStatus, Scope,
};
use flysch_wire::ufs::upiu::{LENGTH, QueryFields, QueryRequest, QueryResponse};
use flysch_wire::ufs::utrd::Ocs;

use super::agenda::Event;
use super::descriptors::Descriptors;
use super::device::Device;
use super::exchange::Exchange;
use super::provision::LAYOUT;
use super::writebooster::is_booster;

/// The largest query response: header segment and descriptor, padded to a dword.
const RESPONSE_MAX: usize = (LENGTH + LENGTH_MAX).next_multiple_of(4);

/// A query being answered.
pub(super) struct Query<'a> {
    device: &'a mut Device,
    x: &'a mut Exchange,
}

impl Query<'_> {
    /// Answers the query in task `index`; returns how it ends.
    pub(super) fn answer(device: &mut Device, index: u16, x: &mut Exchange) -> Ocs {
        let mut query = Query { device, x: &mut *x };
        let (bytes, len) = query.carry_out(index);
        x.answer(index, &bytes[..len])
    }

    /// The response UPIU and its length.
    fn carry_out(&mut self, index: u16) -> ([u8; RESPONSE_MAX], usize) {
        let task = self.x.tasks.get(index);
        let request = QueryRequest::parse(&task.request).expect("dispatched by its code");
        let mut fields = request.fields;
        let mut bytes = [0; RESPONSE_MAX];
        let known = fields.opcode.function() == request.function();
        let result = match fields.opcode {
            _ if !known => Err(QueryResult::InvalidOpcode),
            QueryOpcode::Nop => Ok(()),
            QueryOpcode::ReadDescriptor => self.read_descriptor(&mut fields, &mut bytes),
            QueryOpcode::WriteDescriptor => self.write_descriptor(index, &request),
            QueryOpcode::ReadAttribute => self.read_attribute(&mut fields),
            QueryOpcode::WriteAttribute => self.write_attribute(&fields),
            QueryOpcode::ReadFlag
            | QueryOpcode::SetFlag
            | QueryOpcode::ClearFlag
            | QueryOpcode::ToggleFlag => self.access_flag(&mut fields),
            QueryOpcode::ReadAggregated | QueryOpcode::Unknown(_) => {
                Err(QueryResult::InvalidOpcode)
            }
        };
        let result = result.err().unwrap_or(QueryResult::Success);
        let mut unit = QueryResponse::new(&request, result, fields);
        unit.header.device_information.set_event_alert(self.device.exceptions.alert());
        let head = bytes.first_chunk_mut().expect("longer than a UPIU");
        unit.emit(head);
        let len = LENGTH + usize::from(unit.header.data_segment_length).next_multiple_of(4);
        (bytes, len)
    }

    fn read_descriptor(
        &mut self,
        fields: &mut QueryFields,
        bytes: &mut [u8; RESPONSE_MAX],
    ) -> Result<(), QueryResult> {
        if fields.selector != 0 {
            return Err(QueryResult::InvalidSelector);
        }
        let mut descriptor = [0; LENGTH_MAX];
        let id = DescriptorId::from_bits(fields.idn);
        let has =
            Descriptors { device: &*self.device }.descriptor(id, fields.index, &mut descriptor)?;
        let len = has.min(usize::from(fields.length()));
        bytes[LENGTH..][..len].copy_from_slice(&descriptor[..len]);
        *fields = fields.with_length(len as u16);
        Ok(())
    }

    /// Only the configuration descriptor can be written; it takes effect at the next power cycle.
    fn write_descriptor(&mut self, index: u16, request: &QueryRequest) -> Result<(), QueryResult> {
        let fields = &request.fields;
        match DescriptorId::from_bits(fields.idn) {
            DescriptorId::Configuration => {}
            DescriptorId::Unknown(_) => return Err(QueryResult::InvalidIdn),
            _ => return Err(QueryResult::ParameterNotWriteable),
        }
        if fields.selector != 0 {
            return Err(QueryResult::InvalidSelector);
        }
        let len = LAYOUT.length();
        if usize::from(fields.length()) != len
            || usize::from(request.header.data_segment_length) != len
        {
            return Err(QueryResult::InvalidLength);
        }
        let mut descriptor = [0; LENGTH_MAX];
        let at = self.x.tasks.get(index).ucd.wrapping_add(request.header.data_offset() as u64);
        let read = self.x.memory.read(at, &mut descriptor[..len]);
        read.map_err(|_| QueryResult::GeneralFailure)?;
        self.device.write_configuration(fields.index, &descriptor[..len])
    }

    fn read_attribute(&mut self, fields: &mut QueryFields) -> Result<(), QueryResult> {
        let info = self.device.parameters.find_attribute(fields.idn, fields.index)?;
        if fields.selector != 0 && info.scope != Scope::Context {
            return Err(QueryResult::InvalidSelector);
        }
        let device = &mut *self.device;
        device.check_booster(info.id)?;
        let stored = device.parameters.read_attribute(info, fields.index, fields.selector)?;
        let now = self.x.now();
        fields.operand = match info.id {
            AttributeId::CurrentPowerMode => u64::from(device.readiness.mode().into_bits()),
            AttributeId::BackgroundOpStatus => {
                u64::from(device.backend.background.status(now).into_bits())
            }
            AttributeId::ExceptionEventStatus => {
                u64::from(device.exception_events(now).into_bits())
            }
            AttributeId::DeviceCaseRoughTemperature => device.exceptions.temperature_code(),
            AttributeId::PurgeStatus => {
                device.settle_purge(now, None);
                u64::from(device.upkeep.read_purge_status())
            }
            AttributeId::RefreshStatus => {
                device.upkeep.settle_refresh(now, None);
                u64::from(device.upkeep.read_refresh_status())
            }
            AttributeId::DeviceFfuStatus => u64::from(device.firmware.status().into_bits()),
            AttributeId::ThrottlingStatus => u64::from(device.exceptions.is_throttled()),
            id if is_booster(id).0 => device.backend.write_booster.attribute(id, fields.index),
            _ => stored,
        };
        Ok(())
    }

    fn write_attribute(&mut self, fields: &QueryFields) -> Result<(), QueryResult> {
        let info = self.device.parameters.find_attribute(fields.idn, fields.index)?;
        if fields.selector != 0 && info.scope != Scope::Context {
            return Err(QueryResult::InvalidSelector);
        }
        let value = if info.width == 8 { fields.value64() } else { u64::from(fields.value32()) };
        self.device.check_booster(info.id)?;
        let parameters = &mut self.device.parameters;
        parameters.write_attribute(info, fields.index, fields.selector, value)?;
        if is_booster(info.id).0 {
            self.set_booster(info.id, fields.index, value)?;
        }
        if info.id == AttributeId::Timestamp {
            self.device.journal.set_time(value, self.x.now());
        }
        self.device.update_alert(self.x.now());
        Ok(())
    }

    fn access_flag(&mut self, fields: &mut QueryFields) -> Result<(), QueryResult> {
        if fields.selector != 0 {
            return Err(QueryResult::InvalidSelector);
        }
        let info = self.device.parameters.find_flag(fields.idn, fields.index)?;
        if info.id == FlagId::UnpinEn && !self.device.backend.write_booster.is_extended() {
            return Err(QueryResult::InvalidIdn);
        }
        let now = self.x.now();
        self.device.settle_init(now);
        let parameters = &mut self.device.parameters;
        let value = match fields.opcode {
            QueryOpcode::ReadFlag => parameters.read_flag(info, fields.index)?,
            QueryOpcode::SetFlag => true,
            QueryOpcode::ClearFlag => false,
            _ => !parameters.flag(info.id, fields.index),
        };
        if fields.opcode != QueryOpcode::ReadFlag {
            parameters.write_flag(info, fields.index, value)?;
            self.flag_changed(info.id, fields.index, value);
        }
        fields.operand = u64::from(value);
        Ok(())
    }

    /// The effects of setting or clearing a flag.
    fn flag_changed(&mut self, id: FlagId, index: u8, value: bool) {
        let now = self.x.now();
        match id {
            FlagId::DeviceInit => self.device.readiness.begin_init(now),
            FlagId::BackgroundOpsEn => self.device.backend.background.enable(value, now),
            FlagId::PurgeEnable => self.purge(value),
            FlagId::RefreshEnable => self.refresh(value),
            FlagId::WriteBoosterEn => self.device.backend.write_booster.enable(index, value),
            FlagId::WriteBoosterBufferFlushEn => {
                self.device.backend.write_booster.flush(index, value);
                self.device.program(self.x);
            }
            FlagId::WriteBoosterBufferFlushDuringHibernate => {
                self.device.backend.write_booster.flush_in_hibernate(index, value);
            }
            FlagId::UnpinEn => {
                self.device.backend.write_booster.unpin(index, value);
                self.device.program(self.x);
            }
            _ => {}
        }
        self.device.update_alert(now);
    }

    /// Changes the settings of a WriteBooster buffer; what may now be flushed is flushed.
    fn set_booster(&mut self, id: AttributeId, unit: u8, value: u64) -> Result<(), QueryResult> {
        let booster = &mut self.device.backend.write_booster;
        booster.set(id, unit, value, self.x.now())?;
        if let Some(at) =
            booster.resize_at().filter(|_| id == AttributeId::WriteBoosterBufferResizeEn)
        {
            self.x.agenda.at(at, Event::Resize);
        }
        self.device.program(self.x);
        Ok(())
    }

    fn purge(&mut self, on: bool) {
        let (now, busy) = (self.x.now(), self.x.tasks.has_commands());
        if on {
            self.device.upkeep.begin_purge(now, busy);
        } else {
            self.device.settle_purge(now, Some(PurgeStatus::StoppedPrematurely));
        }
        let runs = self.device.upkeep.is_purging();
        self.device.parameters.force_flag(FlagId::PurgeEnable, 0, runs);
    }

    fn refresh(&mut self, on: bool) {
        let (now, busy) = (self.x.now(), self.x.tasks.has_commands());
        let device = &mut *self.device;
        if !on {
            device.upkeep.settle_refresh(now, Some(RefreshStatus::StoppedPrematurely));
        } else if device.build.services {
            let method = device.parameters.attribute(AttributeId::RefreshMethod);
            let unit = device.parameters.attribute(AttributeId::RefreshUnit);
            device.upkeep.begin_refresh(now, busy, method, unit);
        }
    }
}

impl Device {
    /// Whether the attribute exists, if it is one of WriteBooster's later ones.
    fn check_booster(&self, id: AttributeId) -> Result<(), QueryResult> {
        match is_booster(id).1 && !self.backend.write_booster.is_extended() {
            true => Err(QueryResult::InvalidIdn),
            false => Ok(()),
        }
    }

    /// Takes one part of a new configuration; with the last part it is checked and waits for the
    /// next power cycle.
    fn write_configuration(&mut self, index: u8, bytes: &[u8]) -> Result<(), QueryResult> {
        if self.parameters.attribute(AttributeId::ConfigDescrLock) != 0 {
            return Err(QueryResult::ParameterNotWriteable);
        }
        if usize::from(index) >= super::provision::PARTS {
            return Err(QueryResult::InvalidIndex);
        }
        if self.readiness.mode() != CurrentPowerMode::Active {
            return Err(QueryResult::GeneralFailure);
        }
        if let Some(next) = self.provisions.write(index, bytes)? {
            self.units.check_stores(&next)?;
            self.provisions.accept(next);
        }
        Ok(())
    }
}

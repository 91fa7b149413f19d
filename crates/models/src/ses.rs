//! A SCSI enclosure (SES-3): slots with lights, fans, a thermometer, a power supply. It is a target
//! behind its own port, as a SAS controller would present it.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use flysch_api::command::{
    Command, Declined, Direction, Ended, Failure, Limits, NotStarted, Outcome, Port, Scsi,
    ScsiStatus, SenseBytes,
};
use flysch_api::data::SegmentLimits;
use flysch_api::machine::{DmaRegion, Instant};
use flysch_wire::scsi::inquiry::{DeviceType, InquiryData};
use flysch_wire::scsi::luns::{self, LogicalUnitNumber};
use flysch_wire::scsi::ses::{
    self, ElementType, EnclosureDescriptor, Page, SasSlot, StatusCode, TypeDescriptor,
};
use flysch_wire::scsi::{AdditionalSense, Cdb, SenseKey, Text};

/// Maximum number of slots: with the other elements, their numbers fit into one byte.
pub const SLOTS_MAX: u8 = 200;
/// How long a command takes, nanoseconds: a microcontroller on a slow bus.
const WORK_NANOS: u64 = 200_000;
/// Number of fans.
const FANS: u8 = 2;

/// The configuration of an enclosure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The SAS address of the device in each slot. At most [`SLOTS_MAX`] slots.
    pub slots: Vec<Option<u64>>,
    /// ENCLOSURE LOGICAL IDENTIFIER.
    pub identifier: u64,
}

/// The lights of a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lights {
    locate: bool,
    fault: bool,
}

/// An enclosure.
#[derive(Clone, Debug)]
pub struct Enclosure {
    config: Config,
    lights: Vec<Lights>,
    /// The status that broken elements report.
    broken_fan: Option<StatusCode>,
    generation: u32,
}

/// A refusal: key and codes.
type Refusal = (SenseKey, AdditionalSense);

const BAD_FIELD: Refusal = (SenseKey::IllegalRequest, AdditionalSense::InvalidFieldInCdb);
const BAD_LIST: Refusal = (SenseKey::IllegalRequest, AdditionalSense::InvalidFieldInParameterList);

impl Enclosure {
    /// An enclosure that was just switched on; slots beyond [`SLOTS_MAX`] are left out.
    pub fn new(mut config: Config) -> Self {
        config.slots.truncate(SLOTS_MAX.into());
        let lights = vec![Lights::default(); config.slots.len()];
        Self { config, lights, broken_fan: None, generation: 0 }
    }

    /// Inserts a device into a slot, or removes it.
    pub fn plug(&mut self, slot: usize, device: Option<u64>) {
        if let Some(place) = self.config.slots.get_mut(slot) {
            *place = device;
            self.generation += 1;
        }
    }

    /// Sets the status that the first fan reports from now on; `None` means that it works.
    pub fn break_fan(&mut self, status: Option<StatusCode>) {
        self.broken_fan = status;
    }

    fn types(&self) -> [TypeDescriptor<'static>; 4] {
        let one = |element, possible, text: &'static str| TypeDescriptor {
            element,
            possible,
            subenclosure: 0,
            text: text.as_bytes(),
        };
        [
            one(ElementType::ArrayDeviceSlot, self.config.slots.len() as u8, "Drive Slots"),
            one(ElementType::Cooling, FANS, "Cooling"),
            one(ElementType::Temperature, 1, "Temperature"),
            one(ElementType::PowerSupply, 1, "Power"),
        ]
    }

    /// Carries out a command; returns the data.
    fn carry_out(&mut self, cdb: &[u8; 16], data: &[u8]) -> Result<Vec<u8>, Refusal> {
        let length = usize::from(u16::from_be_bytes([cdb[3], cdb[4]]));
        let mut answer = match cdb[0] {
            ses::RECEIVE_DIAGNOSTIC_RESULTS if cdb[1] & 1 == 0 => return Err(BAD_FIELD),
            ses::RECEIVE_DIAGNOSTIC_RESULTS => self.page(Page::from_bits(cdb[2]))?,
            ses::SEND_DIAGNOSTIC => return self.control(cdb, data),
            _ => return self.carry_out_plain(&Cdb::parse(cdb)),
        };
        answer.truncate(length);
        Ok(answer)
    }

    fn carry_out_plain(&self, cdb: &Cdb) -> Result<Vec<u8>, Refusal> {
        let (mut answer, length) = match *cdb {
            Cdb::TestUnitReady => return Ok(Vec::new()),
            Cdb::Inquiry { page: None, allocation_length } => {
                let (vendor, product) = (Text::new("FLYSCH"), Text::new("Enclosure"));
                let kind = DeviceType::Unknown(0x0D);
                let inquiry = InquiryData::ufs(kind, vendor, product, Text::new("1.0"));
                let mut bytes = [0; flysch_wire::scsi::inquiry::LENGTH];
                inquiry.emit(&mut bytes);
                (bytes.to_vec(), usize::from(allocation_length))
            }
            Cdb::ReportLuns { allocation_length, .. } => {
                let mut bytes = vec![0; 16];
                luns::emit(core::iter::once(LogicalUnitNumber::default()), &mut bytes);
                (bytes, allocation_length as usize)
            }
            Cdb::Inquiry { page: Some(_), .. } => return Err(BAD_FIELD),
            _ => return Err((SenseKey::IllegalRequest, AdditionalSense::InvalidOperationCode)),
        };
        answer.truncate(length);
        Ok(answer)
    }

    fn page(&self, page: Page) -> Result<Vec<u8>, Refusal> {
        let (flags, rest) = match page {
            Page::Supported => {
                let all = [Page::Supported, Page::Configuration, Page::Status];
                let all = all.into_iter().chain([Page::Descriptor, Page::Additional]);
                let codes: Vec<u8> = all.map(Page::into_bits).collect();
                let mut bytes = vec![0, 0, 0, codes.len() as u8];
                bytes.extend(codes);
                return Ok(bytes);
            }
            Page::Configuration => (0, self.configuration()),
            Page::Status => self.status(),
            Page::Descriptor => (0, self.descriptors()),
            Page::Additional => (0, self.additional()),
            Page::Unknown(_) => return Err(BAD_FIELD),
        };
        let mut bytes =
            ses::header(page, flags, self.generation, rest.len()).map_err(|_| BAD_FIELD)?.to_vec();
        bytes.extend(rest);
        Ok(bytes)
    }

    fn configuration(&self) -> Vec<u8> {
        let types = self.types();
        let enclosure = EnclosureDescriptor {
            subenclosure: 0,
            types: types.len() as u8,
            identifier: self.config.identifier,
            vendor: Text::new("FLYSCH"),
            product: Text::new("Enclosure"),
            revision: Text::new("1.0"),
        };
        let mut bytes = enclosure.to_bytes().to_vec();
        bytes.extend(types.iter().flat_map(TypeDescriptor::header));
        bytes.extend(types.iter().flat_map(|one| one.text));
        bytes
    }

    fn status(&self) -> (u8, Vec<u8>) {
        const OK: u8 = StatusCode::Ok.into_bits();
        let mut bytes = vec![0; 4];
        for (device, lights) in self.config.slots.iter().zip(&self.lights) {
            let code = if device.is_some() { StatusCode::Ok } else { StatusCode::NotInstalled };
            let lights = [u8::from(lights.locate) << 1, u8::from(lights.fault) << 5];
            bytes.extend([code.into_bits(), 0, lights[0], lights[1]]);
        }
        bytes.extend([0; 4]);
        for fan in 0..FANS {
            let broken = self.broken_fan.filter(|_| fan == 0);
            // In units of ten revolutions per minute.
            let speed: u16 = if broken.is_some() { 0 } else { 450 };
            let [high, low] = speed.to_be_bytes();
            bytes.extend([broken.map_or(OK, StatusCode::into_bits), high, low, 0x33]);
        }
        // 31 degrees; the offset is 20.
        bytes.extend([0, 0, 0, 0, OK, 0, 51, 0]);
        bytes.extend([0, 0, 0, 0, OK, 0, 0, 0x20]);
        let flags = match self.broken_fan {
            Some(StatusCode::Critical) => 1 << 1,
            Some(StatusCode::Unrecoverable) => 1,
            Some(_) => 1 << 2,
            None => 0,
        };
        (flags, bytes)
    }

    fn descriptors(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |text: &str| {
            bytes.extend([0, 0, 0, text.len() as u8]);
            bytes.extend(text.bytes());
        };
        for one in self.types() {
            put(&String::from_utf8_lossy(one.text));
            for number in 0..one.possible {
                put(&match one.element {
                    ElementType::ArrayDeviceSlot => format!("Slot {number:02}"),
                    ElementType::Cooling => format!("Fan {number}"),
                    ElementType::Temperature => "Inlet".into(),
                    _ => "Supply".into(),
                });
            }
        }
        bytes
    }

    fn additional(&self) -> Vec<u8> {
        let slot = |(number, address): (usize, &Option<u64>)| {
            let number = number as u8;
            SasSlot { element: number, slot: number, address: *address }.to_bytes()
        };
        self.config.slots.iter().enumerate().flat_map(slot).collect()
    }

    /// SEND DIAGNOSTIC: the control page sets lights.
    fn control(&mut self, cdb: &[u8; 16], data: &[u8]) -> Result<Vec<u8>, Refusal> {
        // PF, and no self-test.
        if cdb[1] != 0x10 {
            return Err(BAD_FIELD);
        }
        let view = ses::StatusView::parse(data).map_err(|_| BAD_LIST)?;
        if view.generation != self.generation {
            return Err(BAD_LIST);
        }
        let slots = view.entries().iter().skip(1);
        for (lights, entry) in self.lights.iter_mut().zip(slots) {
            if entry[0] & 0x80 != 0 {
                *lights = Lights { locate: entry[2] & 2 != 0, fault: entry[3] & 0x20 != 0 };
            }
        }
        Ok(Vec::new())
    }
}

/// A port with an enclosure behind it as unit 0; it takes one command after another.
#[derive(Debug)]
pub struct EnclosurePort {
    /// The enclosure.
    pub enclosure: Enclosure,
    memory: DmaRegion,
    limits: Limits,
    /// Commands in progress, how they end and when.
    in_hand: VecDeque<(Command<Scsi>, Failure<Scsi>, Ended, Instant)>,
    busy_until: Instant,
    failure: Failure<Scsi>,
}

impl EnclosurePort {
    /// The data of commands is in `memory`.
    pub fn new(enclosure: Enclosure, memory: DmaRegion) -> Self {
        let transfer_max = memory.len().min(1 << 20) as u32;
        let segments = SegmentLimits::NONE;
        Self {
            enclosure,
            memory,
            limits: Limits { slots: 4, transfer_max, segments, crypto: false },
            in_hand: VecDeque::new(),
            busy_until: Instant::START,
            failure: Failure::default(),
        }
    }

    /// Carries out a command; returns how it ends.
    fn carry_out(&mut self, command: &Command<Scsi>) -> (Failure<Scsi>, Ended) {
        if command.unit != 0 {
            return (Failure::default(), Ended::NoUnit);
        }
        let length = command.data.len() as usize;
        let ranges: Vec<(usize, usize)> = command
            .data
            .ranges(&self.memory)
            .filter_map(|range| {
                let range = range.ok()?;
                let length = range.len as usize;
                Some((self.memory.offset_of(range.address, length).ok()?, length))
            })
            .collect();
        let mut data = vec![0; length];
        let mut at = 0;
        if command.direction == Direction::ToDevice {
            for &(offset, length) in &ranges {
                self.memory.read(offset, &mut data[at..at + length]);
                at += length;
            }
        }
        match self.enclosure.carry_out(&command.payload.0, &data) {
            Ok(answer) => {
                let mut rest = &answer[..answer.len().min(length)];
                let residual = match command.direction {
                    Direction::FromDevice => (length - rest.len()) as u32,
                    _ => 0,
                };
                for (offset, length) in ranges {
                    let (now, later) = rest.split_at(length.min(rest.len()));
                    self.memory.write(offset, now);
                    rest = later;
                }
                let ended = if residual == 0 { Ended::Good } else { Ended::Answered };
                (Failure { residual, ..Failure::default() }, ended)
            }
            Err((key, additional)) => {
                let mut sense = [0; 18];
                (sense[0], sense[2], sense[7]) = (0x70, key.into_bits(), 10);
                (sense[12], sense[13]) = (additional.asc(), additional.ascq());
                let status = ScsiStatus { status: 2, sense: SenseBytes::new(&sense) };
                let residual = length as u32;
                (Failure { status, residual, ..Failure::default() }, Ended::Answered)
            }
        }
    }
}

impl Port for EnclosurePort {
    type Protocol = Scsi;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn start(&mut self, command: Command<Scsi>, now: Instant) -> Result<(), Declined> {
        let is_inside = command.data.ranges(&self.memory).all(|range| {
            range
                .is_ok_and(|range| self.memory.offset_of(range.address, range.len as usize).is_ok())
        });
        let why = if !is_inside || command.data.len() > self.limits.transfer_max {
            Some(NotStarted::Unsupported)
        } else if self.in_hand.len() == self.limits.slots as usize {
            Some(NotStarted::Full)
        } else {
            None
        };
        if let Some(why) = why {
            return Err(Declined { why, token: command.token });
        }
        let (failure, ended) = self.carry_out(&command);
        self.busy_until = self.busy_until.max(now).after_nanos(WORK_NANOS);
        self.in_hand.push_back((command, failure, ended, self.busy_until));
        Ok(())
    }

    fn ring(&mut self, _: Instant) {}

    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        let &(.., done) = self.in_hand.front().filter(|(.., done)| *done <= now)?;
        let (command, failure, ended, _) = self.in_hand.pop_front()?;
        self.failure = failure;
        let issued = Instant::from_nanos(done.nanos().saturating_sub(WORK_NANOS));
        Some(Outcome { issued, device_done: Some(done), token: command.token, ended })
    }

    fn failure(&self) -> Failure<Scsi> {
        self.failure
    }

    fn poll_at(&self) -> Option<Instant> {
        self.in_hand.front().map(|(.., done)| *done)
    }
}

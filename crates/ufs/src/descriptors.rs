//! The command descriptors of a lane's slots: requests are written into them, answers read.
//!
//! Per command this writes 64 bytes (COMMAND UPIU and the first two physical region entries share a
//! cache line) and one word of the response area; coming back it reads the response's first words.

use crate::layout::{ENTRY, slot as descriptor};
use flysch_api::command::{Command, Direction, Ended, Failure, Ordering, Scsi};
use flysch_api::command::{ScsiStatus, SenseBytes};
use flysch_api::data::{BadData, Data, SegmentLimits, Walk};
use flysch_api::machine::{DmaArray, DmaRegion, DmaSlice, Registers};
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::upiu::{
    self, CommandFlags, CommandUpiu, RESPONSE_LENGTH_MAX, ResponseUpiu, SENSE_LENGTH_MAX,
    TaskAttribute,
};
use flysch_wire::ufs::utrd::{CommandType, DataDirection, UcdSpan, Utrd, UtrdHeader, UtrdStatus};

const SCSI_GOOD: u8 = 0;

/// Limits of the data of a command.
pub(crate) const SEGMENTS: SegmentLimits = SegmentLimits {
    count: descriptor::LIST_ENTRIES,
    length: prdt::ENTRY_MAX,
    alignment: prdt::ALIGNMENT,
    boundary: 0,
    inner: 1,
};

/// A segment as the words of a physical region entry.
#[inline(always)]
fn region_words(segment: DmaSlice) -> [u64; 2] {
    PrdtEntry { address: segment.address, length: segment.len }.to_words()
}

/// Where something is in a command descriptor: its offset in bytes and its length in the field's
/// unit.
const fn span(offset: usize, length: u16) -> UcdSpan {
    UcdSpan::new().with_length(length).with_offset((offset / 4) as u16)
}

/// The physical regions of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Regions {
    /// The only one, which is the data itself ([`Descriptors::plain`]).
    Plain(DmaSlice),
    /// This many, which have been written ([`Descriptors::write_regions`]).
    Written(u16),
}

/// Details of a command that did not end simply well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    /// SCSI status.
    status: u8,
    /// Overall command status of the controller.
    ocs: u8,
    residual: u32,
    sense: [u8; SENSE_LENGTH_MAX],
    sense_len: u8,
}

impl Trouble {
    /// Nothing was moved, and only the controller gave a reason: its overall status, or 0.
    pub(crate) fn nothing_moved(expected: u32, ocs: u8) -> Self {
        Self { residual: expected, ocs, ..Self::default() }
    }

    /// The same for the caller.
    pub(crate) fn failure(&self) -> Failure<Scsi> {
        let sense = SenseBytes::new(&self.sense[..self.sense_len.into()]);
        let status = ScsiStatus { status: self.status, sense };
        Failure { status, residual: self.residual, code: self.ocs.into() }
    }
}

/// Headers of queue entries by direction; with `told` each completion raises an interrupt.
fn headers(told: bool) -> [UtrdHeader; 3] {
    let header = UtrdHeader::new().with_i(told).with_ct(CommandType::UfsStorage);
    let mut headers = [header; 3];
    for (direction, dd) in [
        (Direction::None, DataDirection::None),
        (Direction::ToDevice, DataDirection::ToDevice),
        (Direction::FromDevice, DataDirection::FromDevice),
    ] {
        headers[direction as usize] = header.with_dd(dd);
    }
    headers
}

/// A device's answer that is not simply good.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) ended: Ended,
    pub(crate) trouble: Trouble,
    /// The device has an exception event.
    pub(crate) event: bool,
}

/// The descriptors.
#[derive(Debug)]
pub(crate) struct Descriptors {
    blocks: DmaArray<{ descriptor::LENGTH }>,
    /// The same memory as physical region entries.
    regions: DmaArray<{ prdt::LENGTH }>,
    /// Checks data and makes physical region entries of it.
    walk: Walk,
    /// Headers of queue entries, by the direction of the data.
    headers: [UtrdHeader; 3],
}

impl Descriptors {
    pub(crate) fn new(memory: DmaRegion, walk: Walk) -> Self {
        let regions = DmaArray::new(memory.clone());
        let headers = headers(true);
        Self { blocks: DmaArray::new(memory), regions, walk, headers }
    }

    /// Sets whether the end of each command raises an interrupt of its own.
    pub(crate) fn set_told(&mut self, told: bool) {
        self.headers = headers(told);
    }

    /// The only segment of the data, if there is one and it is valid.
    #[inline(always)]
    pub(crate) fn plain(&self, data: &Data) -> Option<DmaSlice> {
        self.walk.one(data)
    }

    /// Writes the COMMAND UPIU for slot, task tag and logical unit, and its physical region unless
    /// that has been written; returns the queue entry.
    #[inline(always)]
    pub(crate) fn write(
        &self,
        registers: &impl Registers,
        (slot, tag, lun): (usize, u8, u8),
        command: &Command<Scsi>,
        regions: Regions,
    ) -> [u64; ENTRY / 8] {
        let block = self.blocks.get(slot);
        let prdt = match regions {
            Regions::Plain(range) => {
                block.put::<{ descriptor::PRDT }, 2>(region_words(range));
                registers.sync_for_device(range);
                span(descriptor::PRDT, 1)
            }
            Regions::Written(count) => span(descriptor::LIST, count),
        };
        let flags = CommandFlags::new()
            .with_attr(match command.ordering {
                Ordering::Simple => TaskAttribute::Simple,
                Ordering::Ordered => TaskAttribute::Ordered,
                Ordering::HeadOfQueue => TaskAttribute::HeadOfQueue,
            })
            .with_r(command.direction == Direction::FromDevice)
            .with_w(command.direction == Direction::ToDevice);
        let unit = CommandUpiu::words(lun, tag, flags, command.data.len(), &command.payload.0);
        block.put::<0, { upiu::LENGTH / 8 }>(unit);
        // Whatever the device does not overwrite must not look like an answer.
        block.put::<{ descriptor::RESPONSE }, 1>([u64::MAX]);
        let (memory, at) = (self.blocks.region(), slot * descriptor::LENGTH);
        registers.sync_for_device(memory.span(at, descriptor::LIST));
        let header = self.headers[command.direction as usize];
        let (header, dun) = match command.crypto {
            None => (header, 0),
            Some(context) => (header.with_ce(true).with_cci(context.slot), context.number),
        };
        let entry = Utrd {
            header,
            dun,
            status: UtrdStatus::PENDING,
            ucd_base: memory.address() + at as u64,
            response: span(descriptor::RESPONSE, (descriptor::RESPONSE_LENGTH / 4) as u16),
            prdt,
        };
        entry.to_words()
    }

    /// Checks any data and writes it as physical regions of a slot's command; returns their number.
    /// The data itself must still be synchronised.
    ///
    /// # Errors
    /// What is wrong with the data; what was written must not be used.
    pub(crate) fn write_regions(
        &self,
        registers: &impl Registers,
        slot: usize,
        data: &Data,
        direction: Direction,
    ) -> Result<u16, BadData> {
        if direction == Direction::None && !data.is_empty() {
            return Err(BadData::Length);
        }
        let at = slot * descriptor::LENGTH + descriptor::LIST;
        let first = at / prdt::LENGTH;
        let count = self.walk.run(data, |n, segment| {
            self.regions.get(first + n as usize).put::<0, 2>(region_words(segment));
        })?;
        let memory = self.blocks.region();
        let bytes = count as usize * prdt::LENGTH;
        registers.sync_for_device(memory.span(at, bytes));
        Ok(count as u16)
    }

    /// Whether the device answers that a command succeeded and there is nothing else to report.
    #[inline(always)]
    pub(crate) fn is_plainly_good(&self, registers: &impl Registers, slot: usize, tag: u8) -> bool {
        let at = slot * descriptor::LENGTH + descriptor::RESPONSE;
        registers.sync_for_cpu(self.blocks.region().span(at, descriptor::RESPONSE_LENGTH));
        let words = self.blocks.get(slot).get::<{ descriptor::RESPONSE }, 2>();
        ResponseUpiu::is_plainly_good(words, tag)
    }

    /// An answer that is not simply good, to a command of `expected` bytes; `None` if there is
    /// none.
    #[cold]
    pub(crate) fn answer(&self, slot: usize, tag: u8, expected: u32) -> Option<Answer> {
        let at = slot * descriptor::LENGTH + descriptor::RESPONSE;
        let mut bytes = [0; upiu::LENGTH];
        self.blocks.region().read(at, &mut bytes);
        let response = ResponseUpiu::parse(&bytes).ok()?;
        if response.header.task_tag != tag {
            return None;
        }
        // Devices have been seen to report what they did not move without the underflow flag; with
        // the overflow flag it is what the device would have moved in excess. More than was
        // requested is nonsense (QEMU).
        let believed = !response.flags().o() && response.residual_transfer_count <= expected;
        let residual = if believed { response.residual_transfer_count } else { 0 };
        let good = response.header.status == SCSI_GOOD && response.header.response == 0;
        let event = response.header.device_information.event_alert();
        if good && residual == 0 {
            return Some(Answer { ended: Ended::Good, trouble: Trouble::default(), event });
        }
        let (ended, trouble) = self.read_failure(at, &response, residual);
        Some(Answer { ended, trouble, event })
    }

    fn read_failure(&self, at: usize, response: &ResponseUpiu, residual: u32) -> (Ended, Trouble) {
        let mut bytes = [0; RESPONSE_LENGTH_MAX];
        self.blocks.region().read(at, &mut bytes);
        let sense = response.sense(&bytes);
        let sense = &sense[..sense.len().min(SENSE_LENGTH_MAX)];
        let status = response.header.status;
        let mut trouble = Trouble { status, residual, ..Trouble::default() };
        trouble.sense[..sense.len()].copy_from_slice(sense);
        trouble.sense_len = sense.len() as u8;
        // Target failure without a SCSI status: the transport did not find the unit.
        let no_unit = response.header.response != 0 && status == SCSI_GOOD;
        (if no_unit { Ended::NoUnit } else { Ended::Answered }, trouble)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_api::command::Token;
    use flysch_api::machine::Instant;

    struct Nothing;
    impl Registers for Nothing {
        fn read32(&self, _: u32) -> u32 {
            0
        }
        fn write32(&self, _: u32, _: u32) {}
    }

    const DATA: u64 = 0x1_0000;

    fn descriptors() -> (Descriptors, DmaRegion) {
        let memory = DmaRegion::zeroed(0x2_0000, 0);
        let limits = SegmentLimits { count: 4, length: 8192, alignment: 4, ..SegmentLimits::NONE };
        let own = memory.carve(0, 4 * descriptor::LENGTH);
        let walk = Walk::new(limits, 1 << 16, &memory, &own);
        (Descriptors::new(own, walk), memory)
    }

    fn command(data: Data, direction: Direction) -> Command<Scsi> {
        let (payload, ordering) = (Default::default(), Ordering::Simple);
        let (deadline, token) = (Instant::NEVER, Token::new(0));
        Command { unit: 0, payload, direction, data, crypto: None, ordering, deadline, token }
    }

    #[test]
    fn one_segment_lies_beside_the_command_and_several_behind_the_answer() {
        let (descriptors, memory) = descriptors();
        let one = |len| Data::One(DmaSlice { address: DATA, len });
        let write = |data| {
            let regions = match descriptors.plain(&data) {
                Some(range) => Regions::Plain(range),
                None => Regions::Written(descriptors.write_regions(
                    &Nothing,
                    1,
                    &data,
                    Direction::FromDevice,
                )?),
            };
            let command = command(data, Direction::FromDevice);
            Ok(descriptors.write(&Nothing, (1, 41, 7), &command, regions))
        };
        let places = [one(4096), one(20_000)].map(|data| {
            let entry = write(data).expect("good data");
            let span = UcdSpan::from_bits((u64::from_le(entry[3]) >> 32) as u32);
            (span.length(), span.offset_bytes())
        });
        assert_eq!(places, [(1, descriptor::PRDT), (3, descriptor::LIST)]);
        let mut unit = [0; upiu::LENGTH];
        memory.read(descriptor::LENGTH, &mut unit);
        let unit = CommandUpiu::parse(&unit).expect("a command");
        assert_eq!((unit.header.lun, unit.header.task_tag), (7, 41));
        assert_eq!(unit.expected_data_transfer_length, 20_000);
        let mut entry = [0; prdt::LENGTH];
        memory.read(descriptor::LENGTH + descriptor::LIST + 32, &mut entry);
        let entry = PrdtEntry::parse(&entry);
        assert_eq!((entry.address, entry.length), (DATA + 16_384, 3616));
        let misplaced = Data::One(DmaSlice { address: 64, len: 4096 });
        assert_eq!(write(misplaced).err(), Some(BadData::Outside), "the driver's own memory");
        let aimless = descriptors.write_regions(&Nothing, 1, &one(4096), Direction::None);
        assert_eq!(aimless, Err(BadData::Length));
    }

    #[test]
    fn an_answer_is_believed_if_it_names_the_slot() {
        let (descriptors, memory) = descriptors();
        let nothing = command(Data::NONE, Direction::None);
        descriptors.write(&Nothing, (2, 42, 0), &nothing, Regions::Written(0));
        assert!(!descriptors.is_plainly_good(&Nothing, 2, 42));
        assert!(descriptors.answer(2, 42, 0).is_none(), "what was not written is no answer");
        let say = |tag, status, residual| {
            let mut bytes = [0; upiu::LENGTH];
            let mut response = ResponseUpiu::new(0, tag, status);
            response.residual_transfer_count = residual;
            response.emit(&mut bytes);
            memory.write(2 * descriptor::LENGTH + descriptor::RESPONSE, &bytes);
        };
        say(42, 0, 0);
        assert!(descriptors.is_plainly_good(&Nothing, 2, 42));
        say(41, 0, 0);
        assert!(!descriptors.is_plainly_good(&Nothing, 2, 42), "another slot's");
        assert!(descriptors.answer(2, 42, 0).is_none());
        for (status, residual, expected, ended, believed) in [
            (0, 512, 4096, Ended::Answered, 512),
            (0, 8192, 4096, Ended::Good, 0),
            (8, 0, 4096, Ended::Answered, 0),
        ] {
            say(42, status, residual);
            let answer = descriptors.answer(2, 42, expected).expect("an answer");
            let failure = answer.trouble.failure();
            assert_eq!((answer.ended, failure.residual), (ended, believed));
            assert_eq!(failure.status.status, status);
        }
    }
}

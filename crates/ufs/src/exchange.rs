//! Device management commands: NOP OUT, queries, and the SCSI commands the host sends itself.
//!
//! They go through lane 0 in any free slot, with a command descriptor of their own that has room
//! for a whole descriptor in both directions. There is one at a time.

use crate::Cause;
use crate::lane::Lane;
use crate::layout::management as layout;
use crate::shared::Shared;
use flysch_api::machine::{DmaRegion, Instant, Machine};
use flysch_wire::scsi::{AdditionalSense, Sense, SenseKey};
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::query::QueryResult;
use flysch_wire::ufs::rpmb::AdvancedRpmb;
use flysch_wire::ufs::upiu::{
    self, CommandFlags, CommandUpiu, Header, NopOut, QUERY_DATA_OFFSET, QueryFields, QueryRequest,
    QueryResponse, ResponseUpiu, TransactionCode,
};
use flysch_wire::ufs::utrd::{
    CommandType, DataDirection, Ocs, UcdSpan, Utrd, UtrdHeader, UtrdStatus,
};

/// Longest descriptor: its length is one byte.
pub(crate) const DESCRIPTOR_MAX: usize = 255;
pub(crate) const SCSI_GOOD: u8 = 0;
/// Maximum data of one of the host's own SCSI commands, bytes.
pub(crate) const DATA_MAX: u32 = layout::DATA_LENGTH as u32;

/// An extra header segment; only RPMB has them.
pub(crate) type Segment = [u8; AdvancedRpmb::LENGTH];

/// Data of one of the host's own SCSI commands, in the management data buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    Nothing,
    /// This many bytes to the buffer.
    In(u32),
    /// This many bytes from the buffer, where they already are.
    Out(u32),
}

impl Moves {
    fn len(self) -> u32 {
        match self {
            Self::Nothing => 0,
            Self::In(len) | Self::Out(len) => len.min(DATA_MAX),
        }
    }

    /// Length of the physical region: a multiple of four.
    fn region(self) -> usize {
        self.len().next_multiple_of(4) as usize
    }
}

/// A SCSI command of the host itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostCommand {
    pub(crate) lun: u8,
    pub(crate) cdb: [u8; 16],
    pub(crate) moves: Moves,
    /// An RPMB segment is in place.
    pub(crate) segment: bool,
    pub(crate) timeout_ms: u32,
}

impl HostCommand {
    /// A command without data.
    pub(crate) fn plain(lun: u8, cdb: [u8; 16], timeout_ms: u32) -> Self {
        Self { lun, cdb, moves: Moves::Nothing, segment: false, timeout_ms }
    }
}

/// A message to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Nop,
    /// A query; the data of a descriptor write is already in place.
    Query(QueryFields),
    Scsi(HostCommand),
}

impl Message {
    fn answer_code(self) -> TransactionCode {
        match self {
            Self::Nop => TransactionCode::NopIn,
            Self::Query(_) => TransactionCode::QueryResponse,
            Self::Scsi(_) => TransactionCode::Response,
        }
    }
}

/// The device's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// The answer's own fields, for a query.
    pub(crate) fields: QueryFields,
    /// SCSI status and sense, for a SCSI command. Its data is in the management data buffer.
    pub(crate) status: u8,
    pub(crate) sense: Option<(SenseKey, AdditionalSense)>,
    /// The extra header segment of the response.
    pub(crate) segment: Option<Segment>,
    /// A descriptor.
    pub(crate) data: [u8; 256],
    pub(crate) len: usize,
}

impl Reply {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data[..self.len.min(self.data.len())]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Slot,
    Answer,
}

/// A device management command in progress.
#[derive(Debug)]
pub(crate) struct Exchange {
    message: Message,
    phase: Phase,
    tag: u8,
    timeout: u64,
    deadline: Instant,
}

/// Where an exchange happens.
#[derive(Debug)]
pub(crate) struct Place<'a, M> {
    pub(crate) machine: &'a M,
    pub(crate) shared: &'a Shared,
    /// The command descriptor of device management.
    pub(crate) memory: &'a DmaRegion,
}

impl Exchange {
    /// `slot_by` is when to stop waiting for a free slot; `timeout` is the device's, nanoseconds.
    pub(crate) fn new(message: Message, slot_by: Instant, timeout: u64) -> Self {
        Self { message, phase: Phase::Slot, tag: 0, timeout, deadline: slot_by }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Makes as much progress as possible now.
    pub(crate) fn advance<M: Machine>(
        &mut self,
        at: &Place<'_, M>,
        lane: &mut Lane<M>,
        now: Instant,
    ) -> Option<Result<Reply, Cause>> {
        if self.phase == Phase::Slot {
            match lane.take_management_slot() {
                Some(tag) => self.issue(tag, at, lane, now),
                None if now >= self.deadline => {
                    lane.forgo_management_slot();
                    return Some(Err(Cause::NoSlot));
                }
                None => return None,
            }
        }
        if let Some(ocs) = lane.management_status() {
            lane.release_management();
            return Some(self.read_answer(Ocs::from_bits(ocs), at));
        }
        (now >= self.deadline).then_some(Err(Cause::Timeout))
    }

    fn issue<M: Machine>(&mut self, tag: u8, at: &Place<'_, M>, lane: &mut Lane<M>, now: Instant) {
        self.tag = tag;
        self.phase = Phase::Answer;
        self.deadline = now.after_nanos(self.timeout);
        let memory = at.memory;
        memory.write(0, &self.request());
        memory.fill(layout::RESPONSE, layout::RESPONSE_LENGTH, 0xFF);
        let moves = match self.message {
            Message::Scsi(command) => command.moves,
            _ => Moves::Nothing,
        };
        let regions = u16::from(moves.len() != 0);
        if regions != 0 {
            let address = memory.address() + layout::DATA as u64;
            let mut bytes = [0; prdt::LENGTH];
            PrdtEntry { address, length: moves.region() as u32 }.emit(&mut bytes);
            memory.write(layout::PRDT, &bytes);
            at.machine.sync_for_device(memory.span(layout::DATA, moves.region()));
        }
        at.machine.sync_for_device(memory.span(0, layout::DATA));
        let dd = match moves {
            Moves::Nothing => DataDirection::None,
            Moves::In(_) => DataDirection::FromDevice,
            Moves::Out(_) => DataDirection::ToDevice,
        };
        let header = UtrdHeader::new().with_i(true).with_dd(dd).with_ct(CommandType::UfsStorage);
        let entry = Utrd {
            header: header.with_ehsl(self.segments()),
            dun: 0,
            status: UtrdStatus::PENDING,
            ucd_base: memory.address(),
            response: UcdSpan::new()
                .with_length((layout::RESPONSE_LENGTH / 4) as u16)
                .with_offset((layout::RESPONSE / 4) as u16),
            prdt: UcdSpan::new().with_length(regions).with_offset((layout::PRDT / 4) as u16),
        };
        lane.issue_management(&entry, now);
    }

    fn request(&self) -> [u8; upiu::LENGTH] {
        let mut bytes = [0; upiu::LENGTH];
        match self.message {
            Message::Nop => NopOut::new(self.tag).emit(&mut bytes),
            Message::Query(fields) => QueryRequest::new(self.tag, fields).emit(&mut bytes),
            Message::Scsi(HostCommand { lun, cdb, moves, .. }) => {
                let flags = CommandFlags::new()
                    .with_r(matches!(moves, Moves::In(_)))
                    .with_w(matches!(moves, Moves::Out(_)));
                let mut unit = CommandUpiu::new(lun, self.tag, flags, cdb);
                unit.header.ehs_length = self.segments();
                unit.expected_data_transfer_length = moves.len();
                unit.emit(&mut bytes);
            }
        }
        bytes
    }

    /// Extra header segments of the request, in units of 32 bytes.
    fn segments(&self) -> u8 {
        match self.message {
            Message::Scsi(HostCommand { segment: true, .. }) => AdvancedRpmb::EHS_LENGTH,
            _ => 0,
        }
    }

    fn read_answer<M: Machine>(&self, ocs: Ocs, at: &Place<'_, M>) -> Result<Reply, Cause> {
        let mut bytes = [0; layout::RESPONSE_LENGTH];
        let memory = at.memory;
        at.machine.sync_for_cpu(memory.span(0, layout::DATA));
        if let Message::Scsi(HostCommand { moves: moves @ Moves::In(_), .. }) = self.message {
            at.machine.sync_for_cpu(memory.span(layout::DATA, moves.region()));
        }
        memory.read(layout::RESPONSE, &mut bytes);
        let Some(unit) = bytes.first_chunk::<{ upiu::LENGTH }>() else {
            return Err(Cause::Overall(ocs));
        };
        let header = Header::parse(unit);
        let ours = header.code() == self.message.answer_code() && header.task_tag == self.tag;
        // A failed query may have an overall status of its own (QEMU): the device's result says
        // more than the controller's.
        if !ours && ocs != Ocs::Success {
            return Err(Cause::Overall(ocs));
        }
        if !ours {
            return Err(Cause::Response(header.code().into_bits()));
        }
        if header.device_information.event_alert() {
            at.shared.report_event();
        }
        match self.message {
            Message::Nop => finish(ocs, Reply::EMPTY),
            Message::Query(asked) => read_query(asked, unit, &bytes, ocs),
            Message::Scsi(_) => finish(ocs, read_scsi(unit, &bytes)?),
        }
    }
}

impl Reply {
    const EMPTY: Self = Self {
        fields: QueryFields::read_attribute(0, 0, 0),
        status: SCSI_GOOD,
        sense: None,
        segment: None,
        data: [0; 256],
        len: 0,
    };
}

fn finish(ocs: Ocs, reply: Reply) -> Result<Reply, Cause> {
    if ocs == Ocs::Success { Ok(reply) } else { Err(Cause::Overall(ocs)) }
}

fn read_query(
    asked: QueryFields,
    unit: &[u8; upiu::LENGTH],
    bytes: &[u8],
    ocs: Ocs,
) -> Result<Reply, Cause> {
    let Ok(response) = QueryResponse::parse(unit) else { return Err(Cause::Overall(ocs)) };
    if response.result() != QueryResult::Success {
        return Err(Cause::Query(response.result()));
    }
    let same = response.fields.opcode == asked.opcode
        && response.fields.idn == asked.idn
        && response.fields.index == asked.index
        && response.fields.selector == asked.selector;
    if !same {
        return Err(Cause::Response(response.header.code().into_bits()));
    }
    let mut reply = Reply { fields: response.fields, ..Reply::EMPTY };
    let segment = bytes.get(QUERY_DATA_OFFSET..).unwrap_or(&[]);
    reply.len = usize::from(response.fields.length()).min(segment.len()).min(DESCRIPTOR_MAX);
    reply.data[..reply.len].copy_from_slice(&segment[..reply.len]);
    finish(ocs, reply)
}

fn read_scsi(unit: &[u8; upiu::LENGTH], bytes: &[u8]) -> Result<Reply, Cause> {
    // No cause: the code tells everything that can be wrong.
    let response = ResponseUpiu::parse(unit).map_err(|_| Cause::Response(unit[0]))?;
    let sense = Sense::parse(response.sense(bytes)).ok();
    let has_segment = response.header.ehs_length == AdvancedRpmb::EHS_LENGTH;
    let segment = bytes.get(upiu::LENGTH..).and_then(|rest| rest.first_chunk());
    Ok(Reply {
        status: response.header.status,
        sense: sense.map(|sense| (sense.key, sense.additional)),
        segment: segment.copied().filter(|_| has_segment),
        ..Reply::EMPTY
    })
}

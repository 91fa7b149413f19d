//! Device management commands: NOP OUT, queries, and the SCSI commands the host sends itself.
//!
//! They travel through lane 0 in whatever slot is free, with a command descriptor of their own
//! that has room for a whole descriptor both ways. There is one at a time.

use crate::Cause;
use crate::control::{Action, Answer, Core, MS, Run, Wait};
use crate::history::ErrorKind;
use crate::layout::management as layout;
use crate::port::Lane;
use alloc::vec;
use alloc::vec::Vec;
use flysch_api::machine::{Instant, Machine};
use flysch_wire::scsi::{AdditionalSense, Sense, SenseKey};
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::query::QueryResult;
use flysch_wire::ufs::registers::{UTRLCLR, UTRLDBR};
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
/// How long to wait for a free slot, nanoseconds: longer than any sensible command takes.
const SLOT_WAIT: u64 = 10_000 * MS;
const SCSI_GOOD: u8 = 0;
const SCSI_CHECK_CONDITION: u8 = 2;
/// Most data of one of the host's own SCSI commands, bytes.
pub(crate) const DATA_MAX: u32 = layout::DATA_LENGTH as u32;

/// An extra header segment; RPMB has the only ones there are.
pub(crate) type Segment = [u8; AdvancedRpmb::LENGTH];

/// Data of one of the host's own SCSI commands, in the management data buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    Nothing,
    /// So many bytes to the buffer.
    In(u32),
    /// So many bytes from the buffer, where they are already.
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

/// What to send.
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

/// What came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// The answer's own fields, for a query.
    pub(crate) fields: QueryFields,
    /// SCSI status and sense, for a SCSI command. Its data is in the management data buffer.
    pub(crate) status: u8,
    pub(crate) sense: Option<(SenseKey, AdditionalSense)>,
    /// The extra header segment that came with the response.
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

/// A device management command under way.
#[derive(Debug)]
pub(crate) struct Exchange {
    message: Message,
    phase: Phase,
    tag: u8,
    timeout: u64,
    deadline: Instant,
}

impl Exchange {
    pub(crate) fn advance<M: Machine>(
        &mut self,
        core: &mut Core<M>,
        lane: &mut Lane<M>,
    ) -> Option<Answer> {
        if self.phase == Phase::Slot {
            match lane.take_management_slot() {
                Some(tag) => self.issue(tag, core, lane),
                None if core.now >= self.deadline => {
                    lane.forgo_management_slot();
                    return Some(Answer::Failed(Cause::NoSlot));
                }
                None => {
                    core.look_again(self.deadline);
                    return None;
                }
            }
        }
        if let Some(ocs) = lane.management_status() {
            lane.release_management();
            return Some(match self.read_answer(Ocs::from_bits(ocs), core) {
                Ok(reply) => Answer::Reply(reply),
                Err(cause) => Answer::Failed(cause),
            });
        }
        if core.now >= self.deadline {
            return Some(Answer::Failed(Cause::Timeout));
        }
        core.look_again(self.deadline);
        None
    }

    fn issue<M: Machine>(&mut self, tag: u8, core: &mut Core<M>, lane: &mut Lane<M>) {
        self.tag = tag;
        self.phase = Phase::Answer;
        self.deadline = core.now.after_nanos(self.timeout);
        let memory = &core.layout.management;
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
            core.machine.sync_for_device(memory.span(layout::DATA, moves.region()));
        }
        core.machine.sync_for_device(memory.span(0, layout::DATA));
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
        lane.issue_management(&entry, core.now);
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

    fn read_answer<M: Machine>(&self, ocs: Ocs, core: &Core<M>) -> Result<Reply, Cause> {
        let mut bytes = [0; layout::RESPONSE_LENGTH];
        let memory = &core.layout.management;
        core.machine.sync_for_cpu(memory.span(0, layout::DATA));
        if let Message::Scsi(HostCommand { moves: moves @ Moves::In(_), .. }) = self.message {
            core.machine.sync_for_cpu(memory.span(layout::DATA, moves.region()));
        }
        memory.read(layout::RESPONSE, &mut bytes);
        let Some(unit) = bytes.first_chunk::<{ upiu::LENGTH }>() else {
            return Err(Cause::Overall(ocs));
        };
        let header = Header::parse(unit);
        let ours = header.code() == self.message.answer_code() && header.task_tag == self.tag;
        // A failed query may come with an overall status of its own (QEMU): the device's word
        // says more than the controller's.
        if !ours && ocs != Ocs::Success {
            return Err(Cause::Overall(ocs));
        }
        if !ours {
            return Err(Cause::Response(header.code().into_bits()));
        }
        if header.device_information.event_alert() {
            core.shared.report_event();
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

impl<M: Machine> Core<M> {
    /// Sends a device management command once and waits for its answer. If there is none in time
    /// the slot is cleared.
    #[track_caller]
    pub(crate) fn exchange(
        &mut self,
        message: Message,
        timeout_ms: u32,
    ) -> Run<Result<Reply, Cause>> {
        let answer = self.ask(|core| {
            Action::Exchange(Exchange {
                message,
                phase: Phase::Slot,
                tag: 0,
                timeout: u64::from(timeout_ms) * MS,
                deadline: core.now.after_nanos(SLOT_WAIT),
            })
        })?;
        match answer {
            Answer::Reply(reply) => Ok(Ok(reply)),
            Answer::Failed(Cause::Timeout) => {
                self.clear_management(message)?;
                Ok(Err(Cause::Timeout))
            }
            Answer::Failed(cause) => Ok(Err(cause)),
            _ => unreachable!("no reply where one was asked for"),
        }
    }

    /// Takes a device management command that was not answered out of the controller.
    fn clear_management(&mut self, message: Message) -> Run<()> {
        let slot = self.management_slot()?;
        let lun = match message {
            Message::Scsi(command) => command.lun,
            _ => 0,
        };
        self.effect(|core| {
            core.errors.note(core.now, ErrorKind::Overdue, u32::from(lun) << 8 | u32::from(slot));
        });
        let cleared = if self.shape.mcq {
            self.clean_up_management(slot, lun)?.is_ok()
        } else {
            self.clear_slots(1 << slot)?.is_ok()
        };
        if !cleared {
            // The slot cannot be trusted again before the controller was reset.
            self.effect(|core| {
                core.ask_for_reset();
            });
        }
        self.lane(Lane::release_management)?;
        Ok(())
    }

    /// The tag of the device management command; it is its slot number, too.
    fn management_slot(&mut self) -> Wait<u8> {
        let answer = self.ask(|_| Action::Tag)?;
        Ok(match answer {
            Answer::Value(tag) => tag as u8,
            _ => 0,
        })
    }

    /// Clears slots of the transfer request list and waits until the controller let go of them.
    pub(crate) fn clear_slots(&mut self, slots: u32) -> Wait<Result<u32, Cause>> {
        self.write(UTRLCLR, !slots);
        self.until(("UTRLDBR", UTRLDBR), slots, 0, self.options.timeouts.clear_ms)
    }

    /// Sends a query, up to `tries` times.
    #[track_caller]
    pub(crate) fn query(&mut self, fields: QueryFields) -> Run<Result<Reply, Cause>> {
        let timeout_ms = self.options.timeouts.query_ms;
        let mut last = Cause::Timeout;
        for _ in 0..QUERY_TRIES {
            match self.exchange(Message::Query(fields), timeout_ms)? {
                // The device understood and said no: it will say no again.
                done @ (Ok(_) | Err(Cause::Query(_))) => return Ok(done),
                Err(cause) => last = cause,
            }
        }
        Ok(Err(last))
    }

    /// Sends a SCSI command; a unit attention is taken note of and the command sent again.
    #[track_caller]
    pub(crate) fn scsi(&mut self, command: HostCommand) -> Run<Result<Reply, Cause>> {
        let mut last = Cause::Timeout;
        for _ in 0..QUERY_TRIES {
            let reply = match self.exchange(Message::Scsi(command), command.timeout_ms)? {
                Ok(reply) if reply.status == SCSI_GOOD => return Ok(Ok(reply)),
                Ok(reply) => reply,
                Err(cause) => return Ok(Err(cause)),
            };
            last = match reply.sense {
                Some((key, additional)) if reply.status == SCSI_CHECK_CONDITION => {
                    Cause::Sense(key, additional)
                }
                _ => Cause::Scsi(reply.status),
            };
            if !matches!(last, Cause::Sense(SenseKey::UnitAttention, _)) {
                return Ok(Err(last));
            }
        }
        Ok(Err(last))
    }

    /// Puts what a command sends into the management data buffer, once.
    #[track_caller]
    pub(crate) fn put_data(&mut self, bytes: &[u8]) {
        self.effect(|core| {
            let len = bytes.len().min(layout::DATA_LENGTH);
            core.layout.management.write(layout::DATA, &bytes[..len]);
        });
    }

    /// Puts the extra header segment of the next command in place, once.
    #[track_caller]
    pub(crate) fn put_segment(&mut self, segment: &Segment) {
        self.effect(|core| core.layout.management.write(layout::SEGMENT, segment));
    }

    /// What the last command brought, before the next one.
    #[track_caller]
    pub(crate) fn take_data(&mut self, len: u32) -> Vec<u8> {
        let answer = self.answer(|core| {
            let mut bytes = vec![0; (len as usize).min(layout::DATA_LENGTH)];
            core.layout.management.read(layout::DATA, &mut bytes);
            Answer::Bytes(bytes)
        });
        match answer {
            Answer::Bytes(bytes) => bytes,
            _ => unreachable!("another answer where bytes were written down"),
        }
    }

    /// Nothing of a secret stays in memory that others may come to see, once.
    #[track_caller]
    pub(crate) fn wipe_data(&mut self) {
        self.effect(|core| {
            let memory = &core.layout.management;
            memory.fill(layout::SEGMENT, AdvancedRpmb::LENGTH, 0);
            memory.fill(layout::DATA, layout::DATA_LENGTH, 0);
        });
    }
}

/// How often a query is sent.
const QUERY_TRIES: usize = 3;

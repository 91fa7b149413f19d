//! Device management commands: NOP OUT, queries, and the SCSI commands the host sends itself.
//!
//! They travel through lane 0 in whatever slot is free, with a command descriptor of their own
//! that has room for a whole descriptor both ways. There is one at a time.

use crate::Cause;
use crate::control::{Action, Answer, Core, MS, Run, Wait};
use crate::history::ErrorKind;
use crate::layout::management as layout;
use crate::port::Lane;
use flysch_api::machine::{Instant, Machine};
use flysch_wire::ufs::prdt::{self, PrdtEntry};
use flysch_wire::ufs::query::QueryResult;
use flysch_wire::ufs::registers::{UTRLCLR, UTRLDBR};
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
const UNIT_ATTENTION: u8 = 6;

/// What to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Nop,
    /// A query; the data of a descriptor write is already in place.
    Query(QueryFields),
    /// A SCSI command of the host itself, with up to 1 KiB of data from the device.
    Scsi {
        lun: u8,
        cdb: [u8; 16],
        data_in: u32,
    },
}

impl Message {
    fn answer_code(self) -> TransactionCode {
        match self {
            Self::Nop => TransactionCode::NopIn,
            Self::Query(_) => TransactionCode::QueryResponse,
            Self::Scsi { .. } => TransactionCode::Response,
        }
    }
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reply {
    /// The answer's own fields, for a query.
    pub(crate) fields: QueryFields,
    /// SCSI status and sense key, for a SCSI command.
    pub(crate) status: u8,
    pub(crate) sense_key: u8,
    /// A descriptor, or the data of a SCSI command.
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
        let data_in = match self.message {
            Message::Scsi { data_in, .. } => data_in.min(layout::DATA_LENGTH as u32),
            _ => 0,
        };
        if data_in != 0 {
            let region =
                PrdtEntry { address: memory.address() + layout::DATA as u64, length: data_in };
            let mut bytes = [0; prdt::LENGTH];
            region.emit(&mut bytes);
            memory.write(layout::PRDT, &bytes);
        }
        core.machine.sync_for_device(memory.span(0, memory.len()));
        let dd = if data_in == 0 { DataDirection::None } else { DataDirection::FromDevice };
        let entry = Utrd {
            header: UtrdHeader::new().with_i(true).with_dd(dd).with_ct(CommandType::UfsStorage),
            dun: 0,
            status: UtrdStatus::PENDING,
            ucd_base: memory.address(),
            response: UcdSpan::new()
                .with_length((layout::RESPONSE_LENGTH / 4) as u16)
                .with_offset((layout::RESPONSE / 4) as u16),
            prdt: UcdSpan::new()
                .with_length(u16::from(data_in != 0))
                .with_offset((layout::PRDT / 4) as u16),
        };
        lane.issue_management(&entry, core.now);
    }

    fn request(&self) -> [u8; upiu::LENGTH] {
        let mut bytes = [0; upiu::LENGTH];
        match self.message {
            Message::Nop => NopOut::new(self.tag).emit(&mut bytes),
            Message::Query(fields) => QueryRequest::new(self.tag, fields).emit(&mut bytes),
            Message::Scsi { lun, cdb, data_in } => {
                let flags = CommandFlags::new().with_r(data_in != 0);
                let mut unit = CommandUpiu::new(lun, self.tag, flags, cdb);
                unit.expected_data_transfer_length = data_in;
                unit.emit(&mut bytes);
            }
        }
        bytes
    }

    fn read_answer<M: Machine>(&self, ocs: Ocs, core: &Core<M>) -> Result<Reply, Cause> {
        let mut bytes = [0; layout::RESPONSE_LENGTH];
        let memory = &core.layout.management;
        core.machine.sync_for_cpu(memory.span(0, memory.len()));
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
            Message::Scsi { data_in, .. } => {
                finish(ocs, read_scsi(unit, &bytes, data_in as usize, core)?)
            }
        }
    }
}

impl Reply {
    const EMPTY: Self = Self {
        fields: QueryFields::read_attribute(0, 0, 0),
        status: SCSI_GOOD,
        sense_key: 0,
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

fn read_scsi<M: Machine>(
    unit: &[u8; upiu::LENGTH],
    bytes: &[u8],
    data_in: usize,
    core: &Core<M>,
) -> Result<Reply, Cause> {
    let response = ResponseUpiu::parse(unit).map_err(|_| Cause::Response(unit[0]))?;
    let sense = response.sense(bytes);
    let mut reply = Reply {
        status: response.header.status,
        sense_key: sense.get(2).map_or(0, |key| key & 0xF),
        ..Reply::EMPTY
    };
    reply.len = data_in.min(reply.data.len());
    core.layout.management.read(layout::DATA, &mut reply.data[..reply.len]);
    Ok(reply)
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
            Answer::Value(_) | Answer::Setting(_) => {
                unreachable!("no reply where one was asked for")
            }
        }
    }

    /// Takes a device management command that was not answered out of the controller.
    fn clear_management(&mut self, message: Message) -> Run<()> {
        let slot = self.management_slot()?;
        let lun = match message {
            Message::Scsi { lun, .. } => lun,
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
    pub(crate) fn scsi(
        &mut self,
        lun: u8,
        cdb: [u8; 16],
        data_in: u32,
        timeout_ms: u32,
    ) -> Run<Result<Reply, Cause>> {
        let mut last = Cause::Timeout;
        for _ in 0..QUERY_TRIES {
            match self.exchange(Message::Scsi { lun, cdb, data_in }, timeout_ms)? {
                Ok(reply) if reply.status == SCSI_GOOD => return Ok(Ok(reply)),
                Ok(reply) => {
                    last = Cause::Scsi(reply.status);
                    let attention =
                        reply.status == SCSI_CHECK_CONDITION && reply.sense_key == UNIT_ATTENTION;
                    if !attention {
                        return Ok(Err(last));
                    }
                }
                Err(cause) => return Ok(Err(cause)),
            }
        }
        Ok(Err(last))
    }
}

/// How often a query is sent.
const QUERY_TRIES: usize = 3;

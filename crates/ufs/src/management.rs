//! Device management commands - NOP OUT, queries, and the SCSI commands the host sends itself -
//! with their tries, and what becomes of one that is not answered.

use crate::Cause;
use crate::channel::{Action, Answer, Run, Wait};
use crate::control::Core;
use crate::exchange::{Exchange, HostCommand, Message, Reply, SCSI_GOOD, Segment};
use crate::history::ErrorKind;
use crate::lane::Lane;
use crate::layout::management as layout;
use crate::time::MS;
use alloc::vec;
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::scsi::SenseKey;
use flysch_wire::ufs::rpmb::AdvancedRpmb;
use flysch_wire::ufs::upiu::QueryFields;

/// How long to wait for a free slot, nanoseconds: longer than any sensible command takes.
const SLOT_WAIT: u64 = 10_000 * MS;
const SCSI_CHECK_CONDITION: u8 = 2;

impl<M: Machine> Core<M> {
    /// Sends a device management command once and waits for its answer. If there is none in time
    /// the slot is cleared.
    #[track_caller]
    pub(crate) fn exchange(
        &mut self,
        message: Message,
        timeout_ms: u32,
    ) -> Run<Result<Reply, Cause>> {
        let answer = self.channel.ask(|channel| {
            let slot_by = channel.now.after_nanos(SLOT_WAIT);
            Action::Exchange(Exchange::new(message, slot_by, u64::from(timeout_ms) * MS))
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
        self.channel.note(ErrorKind::Overdue, u32::from(lun) << 8 | u32::from(slot));
        if self.queues.clear_management(&mut self.channel, slot, lun)?.is_err() {
            // The slot cannot be trusted again before the controller has been reset.
            self.channel.effect(|channel| channel.ask_for_reset());
        }
        self.channel.lane(Lane::release_management)?;
        Ok(())
    }

    /// The tag of the device management command; it is its slot number, too.
    fn management_slot(&mut self) -> Wait<u8> {
        let answer = self.channel.ask(|_| Action::Tag)?;
        Ok(match answer {
            Answer::Value(tag) => tag as u8,
            _ => 0,
        })
    }

    /// Sends a query, up to `tries` times.
    #[track_caller]
    pub(crate) fn query(&mut self, fields: QueryFields) -> Run<Result<Reply, Cause>> {
        let timeout_ms = self.channel.options.timeouts.query_ms;
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
        self.channel.effect(|channel| {
            let len = bytes.len().min(layout::DATA_LENGTH);
            channel.layout.management.write(layout::DATA, &bytes[..len]);
        });
    }

    /// Puts the extra header segment of the next command in place, once.
    #[track_caller]
    pub(crate) fn put_segment(&mut self, segment: &Segment) {
        self.channel.effect(|channel| channel.layout.management.write(layout::SEGMENT, segment));
    }

    /// What the last command brought, before the next one.
    #[track_caller]
    pub(crate) fn take_data(&mut self, len: u32) -> Vec<u8> {
        let answer = self.channel.answer(|channel| {
            let mut bytes = vec![0; (len as usize).min(layout::DATA_LENGTH)];
            channel.layout.management.read(layout::DATA, &mut bytes);
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
        self.channel.effect(|channel| {
            let memory = &channel.layout.management;
            memory.fill(layout::SEGMENT, AdvancedRpmb::LENGTH, 0);
            memory.fill(layout::DATA, layout::DATA_LENGTH, 0);
        });
    }
}

/// How often a query is sent.
const QUERY_TRIES: usize = 3;

//! The device, and the commands the host sends it itself - NOP OUT, queries, SCSI commands - with
//! their tries, and what happens to one that is not answered.

use crate::Cause;
use crate::channel::{Action, Channel, Run, Told};
use crate::exchange::{Exchange, HostCommand, Message, Reply, SCSI_GOOD, Segment};
use crate::facts::UfsFacts;
use crate::history::ErrorKind;
use crate::lane::Lane;
use crate::layout::management as layout;
use crate::queues::Queues;
use crate::quirks::Quirk;
use crate::time::MS;
use alloc::vec;
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_script::{Answer, Replay, Wait, settled};
use flysch_wire::scsi::SenseKey;
use flysch_wire::ufs::rpmb::AdvancedRpmb;
use flysch_wire::ufs::upiu::QueryFields;

/// How long to wait for a free slot, nanoseconds: longer than any sensible command takes.
const SLOT_WAIT: u64 = 10_000 * MS;
/// How often a query or a SCSI command is sent.
const TRIES: usize = 3;
const SCSI_CHECK_CONDITION: u8 = 2;

/// The device at the other end of the link: what is known of it, and the way to it.
#[derive(Debug)]
pub(crate) struct Peer<M: Machine> {
    pub(crate) channel: Channel<M>,
    pub(crate) queues: Queues,
    pub(crate) device: UfsFacts,
}

impl<M: Machine> Peer<M> {
    /// Sends a device management command once and waits for its answer. If none comes in time, the
    /// slot is cleared.
    #[track_caller]
    pub(crate) fn exchange(
        &mut self,
        message: Message,
        timeout_ms: u32,
    ) -> Run<Result<Reply, Cause>> {
        let answer = self.channel.ask(|channel| {
            let slot_by = channel.script.now().after_nanos(SLOT_WAIT);
            Action::Exchange(Exchange::new(message, slot_by, u64::from(timeout_ms) * MS))
        })?;
        match answer.reply() {
            Ok(Told::Reply(reply)) => Ok(Ok(reply)),
            Ok(_) => unreachable!("no reply where one was asked for"),
            Err(Cause::Timeout) => {
                self.clear_management(message)?;
                Ok(Err(Cause::Timeout))
            }
            Err(cause) => Ok(Err(cause)),
        }
    }

    /// Removes a device management command that was not answered from the controller.
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

    /// The tag of the device management command; it is also its slot number.
    fn management_slot(&mut self) -> Wait<u8> {
        let answer = self.channel.ask(|_| Action::Tag)?;
        Ok(match answer {
            Answer::Value(tag) => tag as u8,
            _ => 0,
        })
    }

    /// Asks the device whether it is there.
    pub(crate) fn nop(&mut self, timeout_ms: u32) -> Run<()> {
        let timeout_ms =
            if self.channel.quirks.has(Quirk::SlowNop) { timeout_ms.max(200) } else { timeout_ms };
        self.exchange(Message::Nop, timeout_ms)??;
        Ok(())
    }

    /// Whether the device does not answer.
    pub(crate) fn is_silent(&mut self) -> Run<bool> {
        Ok(settled(self.nop(self.channel.options.timeouts.nop_ms))?.is_err())
    }

    /// Sends a query, up to three times.
    #[track_caller]
    pub(crate) fn query(&mut self, fields: QueryFields) -> Run<Result<Reply, Cause>> {
        let timeout_ms = self.channel.options.timeouts.query_ms;
        let mut last = Cause::Timeout;
        for _ in 0..TRIES {
            match self.exchange(Message::Query(fields), timeout_ms)? {
                // The device understood and said no: it will say no again.
                done @ (Ok(_) | Err(Cause::Query(_))) => return Ok(done),
                Err(cause) => last = cause,
            }
        }
        Ok(Err(last))
    }

    /// Sends a SCSI command, and again after a unit attention.
    #[track_caller]
    pub(crate) fn scsi(&mut self, command: HostCommand) -> Run<Result<Reply, Cause>> {
        let mut last = Cause::Timeout;
        for _ in 0..TRIES {
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

    /// Puts the data that a command sends into the management data buffer, only once.
    #[track_caller]
    pub(crate) fn put_data(&mut self, bytes: &[u8]) {
        self.channel.effect(|channel| {
            let len = bytes.len().min(layout::DATA_LENGTH);
            channel.layout.management.write(layout::DATA, &bytes[..len]);
        });
    }

    /// Puts the extra header segment of the next command in place, only once.
    #[track_caller]
    pub(crate) fn put_segment(&mut self, segment: &Segment) {
        self.channel.effect(|channel| channel.layout.management.write(layout::SEGMENT, segment));
    }

    /// The data that the last command returned; to be taken before the next command.
    #[track_caller]
    pub(crate) fn take_data(&mut self, len: u32) -> Vec<u8> {
        let answer = self.channel.answer(|channel| {
            let mut bytes = vec![0; (len as usize).min(layout::DATA_LENGTH)];
            channel.layout.management.read(layout::DATA, &mut bytes);
            Answer::Reply(Told::Bytes(bytes))
        });
        match answer {
            Answer::Reply(Told::Bytes(bytes)) => bytes,
            _ => unreachable!("another answer where bytes were written down"),
        }
    }

    /// Clears the management data buffer, so that no secret stays in memory that others may see.
    #[track_caller]
    pub(crate) fn wipe_data(&mut self) {
        self.channel.effect(|channel| {
            let memory = &channel.layout.management;
            memory.fill(layout::SEGMENT, AdvancedRpmb::LENGTH, 0);
            memory.fill(layout::DATA, layout::DATA_LENGTH, 0);
        });
    }
}

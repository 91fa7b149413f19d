//! The operations in blocking form, for callers that may wait: tools, tests, bare metal.

use crate::host::{Host, Progress};
use crate::operation::{AdminCommand, AdminData, AdminReply, Operation, Output};
use crate::{Cause, NvmeError};
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::machine::{Clock, Machine, Wake};
use flysch_wire::nvme::feature::{Select, structure_bytes};
use flysch_wire::nvme::{AdminOpcode, FeatureId, LogId, Status, log};

impl<M: Machine> Host<M> {
    /// Runs one operation and waits for it to end.
    ///
    /// # Errors
    /// Why it failed; [`NvmeError::Gone`] if neither host nor clock knows of anything that could
    /// end it.
    pub fn run(&mut self, clock: &impl Clock, operation: Operation) -> Result<Output, NvmeError> {
        while self.poll(clock.now()) == Progress::Busy {
            clock.wait(self.poll_at());
        }
        self.begin(operation)?;
        loop {
            match self.poll(clock.now()) {
                Progress::Done(result) => return result,
                Progress::Busy | Progress::Idle => {
                    let until = self.poll_at();
                    if clock.wait(until) == Wake::Idle && until.is_none() {
                        return Err(NvmeError::Gone);
                    }
                }
            }
        }
    }

    /// Brings the controller up.
    ///
    /// # Errors
    /// The step that failed, and why.
    pub fn bring_up(&mut self, clock: &impl Clock) -> Result<(), NvmeError> {
        self.run(clock, Operation::BringUp).map(|_| ())
    }

    /// Shuts the controller down safely and stops it.
    ///
    /// # Errors
    /// [`Cause::InFlight`] if commands are in flight; then the controller keeps running.
    pub fn shut_down(&mut self, clock: &impl Clock) -> Result<(), NvmeError> {
        self.run(clock, Operation::Shutdown).map(|_| ())
    }

    /// Runs an admin command that must succeed.
    ///
    /// # Errors
    /// [`Cause::Status`] with the controller's status, or why the command was not executed.
    pub fn admin(
        &mut self,
        clock: &impl Clock,
        command: AdminCommand,
    ) -> Result<AdminReply, NvmeError> {
        let opcode = AdminOpcode::from_bits(command.opcode);
        match self.run(clock, Operation::Admin(Box::new(command)))? {
            Output::Admin(reply) => match Status::of_field(reply.status.status) {
                Status::Success => Ok(reply),
                status => Err(Cause::Status(opcode, status).into()),
            },
            Output::None => Err(NvmeError::NotUp),
        }
    }

    /// Reads the first bytes of a log page, at most 4096, a multiple of four.
    ///
    /// # Errors
    /// As for [`admin`](Self::admin).
    pub fn log_page(
        &mut self,
        clock: &impl Clock,
        (id, nsid): (LogId, u32),
        bytes: u32,
    ) -> Result<AdminReply, NvmeError> {
        let [low, high] = log::request(id.into_bits(), bytes, false);
        let cdw10 = [low, high, 0, 0, 0, 0];
        let data = AdminData::In(bytes);
        let command =
            AdminCommand { nsid, cdw10, data, ..AdminCommand::new(AdminOpcode::GetLogPage) };
        self.admin(clock, command)
    }

    /// Reads a feature: its dword, and its data structure if it has one.
    ///
    /// # Errors
    /// As for [`admin`](Self::admin).
    pub fn feature_data(
        &mut self,
        clock: &impl Clock,
        id: FeatureId,
        select: Select,
    ) -> Result<AdminReply, NvmeError> {
        let cdw10 = [u32::from(id.into_bits()) | select.into_bits(), 0, 0, 0, 0, 0];
        // What can be done with a feature is no structure.
        let data = match structure_bytes(id, false) {
            bytes if bytes > 0 && select != Select::Supported => AdminData::In(bytes as u32),
            _ => AdminData::None,
        };
        self.admin(
            clock,
            AdminCommand { cdw10, data, ..AdminCommand::new(AdminOpcode::GetFeatures) },
        )
    }

    /// Reads the dword of a feature.
    ///
    /// # Errors
    /// As for [`admin`](Self::admin).
    pub fn feature(
        &mut self,
        clock: &impl Clock,
        id: FeatureId,
        select: Select,
    ) -> Result<u32, NvmeError> {
        self.feature_data(clock, id, select).map(|reply| reply.status.result)
    }

    /// Sets a feature whose value is a data structure: `value` is its dword, `data` the structure.
    ///
    /// # Errors
    /// As for [`admin`](Self::admin).
    pub fn set_feature_data(
        &mut self,
        clock: &impl Clock,
        (id, value): (FeatureId, u32),
        data: Vec<u8>,
    ) -> Result<(), NvmeError> {
        let cdw10 = [id.into_bits().into(), value, 0, 0, 0, 0];
        let data = AdminData::Out(data);
        let command = AdminCommand { cdw10, data, ..AdminCommand::new(AdminOpcode::SetFeatures) };
        self.admin(clock, command).map(|_| ())
    }

    /// Sets a feature whose value is one dword.
    ///
    /// # Errors
    /// As for [`admin`](Self::admin).
    pub fn set_feature(
        &mut self,
        clock: &impl Clock,
        id: FeatureId,
        value: u32,
    ) -> Result<(), NvmeError> {
        let cdw10 = [id.into_bits().into(), value, 0, 0, 0, 0];
        let command = AdminCommand { cdw10, ..AdminCommand::new(AdminOpcode::SetFeatures) };
        self.admin(clock, command).map(|_| ())
    }
}

//! Admin commands.

use flysch_wire::nvme::feature::event;
use flysch_wire::nvme::{AdminOpcode, LogId, Sqe, Status};

use super::Nvme;
use super::clock::{Clock, Event};
use super::device::Device;
use super::firmware::ACTIVATION_NS;
use super::flow::refusal;
use super::task::Task;
use super::transfer::Request;

/// Every supported admin command.
pub(super) const ADMIN_COMMANDS: [AdminOpcode; 17] = [
    AdminOpcode::DeleteSq,
    AdminOpcode::CreateSq,
    AdminOpcode::GetLogPage,
    AdminOpcode::DeleteCq,
    AdminOpcode::CreateCq,
    AdminOpcode::Identify,
    AdminOpcode::Abort,
    AdminOpcode::SetFeatures,
    AdminOpcode::GetFeatures,
    AdminOpcode::AsyncEvent,
    AdminOpcode::NamespaceManagement,
    AdminOpcode::FirmwareCommit,
    AdminOpcode::FirmwareDownload,
    AdminOpcode::NamespaceAttachment,
    AdminOpcode::DoorbellBufferConfig,
    AdminOpcode::FormatNvm,
    AdminOpcode::Sanitize,
];

/// The consequence of an admin command that the device has carried out.
enum Follows {
    Nothing,
    /// The log page was read: events that refer to it are reported again.
    LogRead(LogId),
    /// The namespace with this id has changed.
    Changed(u32),
    /// New firmware starts.
    Activation,
}

impl Device {
    /// Carries out an admin command that concerns the device alone: returns its result and its
    /// consequence.
    fn administer(
        &mut self,
        request: &Request<'_>,
        clock: &mut Clock,
    ) -> Result<(u32, Follows), Status> {
        let (command, now) = (request.command, clock.nanos());
        let (mut given, mut follows) = (0, Follows::Nothing);
        match AdminOpcode::from_bits(command.opcode) {
            AdminOpcode::Identify => self.identify(request)?,
            AdminOpcode::GetFeatures => given = self.get_features(request, now)?,
            AdminOpcode::GetLogPage => {
                if let Some(log) = self.get_log_page(request, now)? {
                    follows = Follows::LogRead(log);
                }
            }
            AdminOpcode::NamespaceManagement if command.cdw10[0] & 0xF == 0 => {
                given = self.spaces.create(request)?;
            }
            AdminOpcode::NamespaceManagement => return Err(Status::InvalidField),
            AdminOpcode::NamespaceAttachment => {
                self.spaces.attach(request)?;
                follows = Follows::Changed(command.nsid);
            }
            AdminOpcode::FirmwareDownload => self.firmware.download(request)?,
            AdminOpcode::FirmwareCommit => {
                if self.firmware.commit(command)? {
                    follows = Follows::Activation;
                }
            }
            AdminOpcode::Sanitize => self.upkeep.begin_sanitize(clock, &self.spaces, command)?,
            _ => return Err(Status::InvalidOpcode),
        }
        Ok((given, follows))
    }
}

impl Nvme {
    /// Carries out an admin command.
    pub(super) fn administer(&mut self, index: u16) {
        let command = self.tasks.get(index).command;
        let opcode = AdminOpcode::from_bits(command.opcode);
        // Over PCI Express, admin commands use PRPs.
        if command.flags.psdt() != 0 || command.flags.fuse() != 0 {
            return self.finish(index, refusal(Status::InvalidField), 0);
        }
        let changes = matches!(
            opcode,
            AdminOpcode::FormatNvm
                | AdminOpcode::Sanitize
                | AdminOpcode::NamespaceManagement
                | AdminOpcode::FirmwareCommit
        );
        if changes && self.device.upkeep.is_sanitizing() {
            return self.finish(index, refusal(Status::SanitizeInProgress), 0);
        }
        let (page, device) = (self.registers.page, &mut self.device);
        let request = Request::new(&command, &self.memory, (page, device.longest));
        let done = match opcode {
            AdminOpcode::AsyncEvent => return self.await_event(index),
            AdminOpcode::FormatNvm => {
                let of = (self.tasks.name(index), &command);
                let begun = device.upkeep.begin_format(&mut self.clock, &mut device.spaces, of);
                if begun.is_ok() {
                    return;
                }
                begun.map(|()| 0)
            }
            AdminOpcode::DeleteSq => self.delete_submission(&command).map(|()| 0),
            AdminOpcode::CreateSq => self.queues.create_submission(&command, page).map(|()| 0),
            AdminOpcode::DeleteCq => self.queues.delete_completion(&command).map(|()| 0),
            AdminOpcode::CreateCq => self.queues.create_completion(&command, page).map(|()| 0),
            AdminOpcode::DoorbellBufferConfig => {
                self.queues.set_shadow(&command, &self.memory, page).map(|()| 0)
            }
            AdminOpcode::Abort => Ok(self.abort(&command)),
            AdminOpcode::SetFeatures => self.set_features(&command),
            AdminOpcode::NamespaceManagement if command.cdw10[0] & 0xF == 1 => {
                self.delete_namespaces(command.nsid)
            }
            _ => device.administer(&request, &mut self.clock).map(|(given, follows)| {
                self.follow(follows);
                given
            }),
        };
        match done {
            Ok(result) => self.finish(index, 0, result),
            Err(status) => self.finish(index, refusal(status), 0),
        }
    }

    /// Handles the consequence of a command that the device has carried out.
    fn follow(&mut self, follows: Follows) {
        match follows {
            Follows::Nothing => {}
            Follows::LogRead(log) => {
                let wanted = self.device.features.async_events();
                self.told.log_was_read(log, wanted, &mut self.faults);
                self.answer_requests();
            }
            Follows::Changed(id) => self.namespace_changed(id),
            Follows::Activation => {
                // Nothing is fetched until the firmware runs; CSTS.PP reports this.
                self.tell(event::NOTICE, event::FIRMWARE, LogId::Firmware);
                self.registers.csts.set_pp(true);
                let epoch = self.registers.epoch;
                self.clock.after(ACTIVATION_NS, Event::Activated { epoch });
            }
        }
    }

    /// The activated firmware runs.
    pub(super) fn firmware_runs(&mut self) {
        self.device.firmware.start_over();
        self.registers.csts.set_pp(false);
        self.fetch();
    }

    /// Delete I/O submission queue: its commands end with it.
    fn delete_submission(&mut self, command: &Sqe) -> Result<(), Status> {
        let queue = self.queues.submission_to_delete(command)?;
        for index in self.tasks.of_queue(queue) {
            self.forget_waits(index);
            self.finish(index, Status::SqDeleted.into_bits(), 0);
        }
        self.queues.delete_submission(queue);
        Ok(())
    }

    /// Abort: returns 1 if the command no longer exists.
    fn abort(&mut self, command: &Sqe) -> u32 {
        let (queue, cid) = (command.cdw10[0] as u16, (command.cdw10[0] >> 16) as u16);
        let meant = |task: &Task| {
            let is_abort = task.queue == 0 && task.command.opcode == command.opcode;
            task.queue == queue && task.command.cid == cid && !is_abort
        };
        let found = self.tasks.iter().find(|(_, task)| meant(task)).map(|(index, _)| index);
        let Some(index) = found else { return 1 };
        self.forget_waits(index);
        self.finish(index, Status::AbortRequested.into_bits(), 0);
        0
    }

    /// Deletes one namespace, or all of them.
    fn delete_namespaces(&mut self, id: u32) -> Result<u32, Status> {
        for index in self.device.spaces.meant(id)? {
            if let Some(id) = self.device.spaces.delete(index) {
                self.namespace_changed(id);
            }
        }
        Ok(0)
    }
}

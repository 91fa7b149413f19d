//! Admin commands.

use flysch_wire::nvme::command::{CreateCqFlags, CreateSqFlags};
use flysch_wire::nvme::identify::{IdentifyNamespace, LENGTH};
use flysch_wire::nvme::{AdminOpcode, Sqe, Status};

use super::Nvme;
use super::config::{NAMESPACES_MAX, NamespaceConfig};
use super::flow::refusal;
use super::identify::CONTROLLER;
use super::namespace::{FORMATS, Namespace};
use super::queue::{Completion, Shadow, Submission};
use super::transfer::{Parts, gather};
use crate::store::LENGTH_MAX;

/// Every admin command there is.
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

/// Dwords of a controller list.
const CONTROLLERS: usize = LENGTH / 2;

impl Nvme {
    /// Carries out an admin command.
    pub(super) fn administer(&mut self, index: u16) {
        let command = self.tasks.get(index).command;
        let opcode = AdminOpcode::from_bits(command.opcode);
        // Over PCI Express admin commands have PRPs.
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
        if changes && self.device.sanitized.is_under_way() {
            return self.finish(index, refusal(Status::SanitizeInProgress), 0);
        }
        let done = match opcode {
            AdminOpcode::AsyncEvent => return self.await_event(index),
            AdminOpcode::FormatNvm => match self.begin_format(index, &command) {
                Ok(()) => return,
                Err(status) => Err(status),
            },
            AdminOpcode::DeleteSq => self.delete_submission(&command),
            AdminOpcode::CreateSq => self.create_submission(&command),
            AdminOpcode::DeleteCq => self.delete_completion(&command),
            AdminOpcode::CreateCq => self.create_completion(&command),
            AdminOpcode::GetLogPage => self.get_log_page(&command),
            AdminOpcode::Identify => self.identify(&command),
            AdminOpcode::Abort => Ok(self.abort(&command)),
            AdminOpcode::SetFeatures => self.set_features(&command),
            AdminOpcode::GetFeatures => self.get_features(&command),
            AdminOpcode::NamespaceManagement => self.manage_namespace(&command),
            AdminOpcode::NamespaceAttachment => self.attach_namespace(&command),
            AdminOpcode::FirmwareDownload => self.download(&command),
            AdminOpcode::FirmwareCommit => self.commit(&command),
            AdminOpcode::DoorbellBufferConfig => self.configure_doorbells(&command),
            AdminOpcode::Sanitize => self.begin_sanitize(&command),
            _ => Err(Status::InvalidOpcode),
        };
        match done {
            Ok(result) => self.finish(index, 0, result),
            Err(status) => self.finish(index, refusal(status), 0),
        }
    }

    /// The queue that CDW10 names, if it can be one.
    fn queue_number(&self, command: &Sqe) -> Result<u16, Status> {
        let queue = command.cdw10[0] as u16;
        if queue == 0 || queue > self.setup.queues { Err(Status::QueueId) } else { Ok(queue) }
    }

    /// Entries and base of a queue that is to be created.
    fn queue_shape(&self, command: &Sqe, contiguous: bool) -> Result<(u32, u64), Status> {
        let entries = (command.cdw10[0] >> 16) + 1;
        if entries < 2 || entries > self.setup.entries {
            return Err(Status::QueueSize);
        }
        if !contiguous {
            return Err(Status::InvalidField);
        }
        let base = command.data[0];
        if base & (self.registers.page - 1) != 0 {
            return Err(Status::PrpOffset);
        }
        Ok((entries, base))
    }

    fn create_completion(&mut self, command: &Sqe) -> Result<u32, Status> {
        let queue = self.queue_number(command)?;
        let flags = CreateCqFlags::from_bits(command.cdw10[1]);
        if self.queues.completion[usize::from(queue)].is_some() {
            return Err(Status::QueueId);
        }
        let (entries, base) = self.queue_shape(command, flags.pc())?;
        if flags.iv() >= self.setup.vectors {
            return Err(Status::InterruptVector);
        }
        let created = Completion::new(base, entries, flags.iv(), flags.ien());
        self.queues.completion[usize::from(queue)] = Some(created);
        Ok(0)
    }

    fn create_submission(&mut self, command: &Sqe) -> Result<u32, Status> {
        let queue = self.queue_number(command)?;
        let flags = CreateSqFlags::from_bits(command.cdw10[1]);
        let completion = self.queues.completion.get(usize::from(flags.cqid()));
        if flags.cqid() == 0 || completion.is_none_or(Option::is_none) {
            return Err(Status::CqInvalid);
        }
        if self.queues.submission[usize::from(queue)].is_some() {
            return Err(Status::QueueId);
        }
        let (entries, base) = self.queue_shape(command, flags.pc())?;
        let created = Submission::new(base, entries, flags.cqid());
        self.queues.submission[usize::from(queue)] = Some(created);
        Ok(0)
    }

    fn delete_submission(&mut self, command: &Sqe) -> Result<u32, Status> {
        let queue = self.queue_number(command)?;
        if self.queues.submission[usize::from(queue)].is_none() {
            return Err(Status::QueueId);
        }
        self.end_commands_of(queue);
        self.queues.delete_submission(queue);
        Ok(0)
    }

    fn delete_completion(&mut self, command: &Sqe) -> Result<u32, Status> {
        let queue = self.queue_number(command)?;
        if self.queues.completion[usize::from(queue)].is_none() {
            return Err(Status::QueueId);
        }
        let mut users = self.queues.submission.iter().flatten();
        if users.any(|user| user.completion == queue) {
            return Err(Status::QueueDeletion);
        }
        self.queues.delete_completion(queue);
        Ok(0)
    }

    /// Abort: 1 if the command is not there any more.
    fn abort(&mut self, command: &Sqe) -> u32 {
        let (queue, cid) = (command.cdw10[0] as u16, (command.cdw10[0] >> 16) as u16);
        let meant = |task: &super::task::Task| {
            let is_abort = task.queue == 0 && task.command.opcode == command.opcode;
            task.queue == queue && task.command.cid == cid && !is_abort
        };
        let found = self.tasks.iter().find(|(_, task)| meant(task)).map(|(index, _)| index);
        let Some(index) = found else { return 1 };
        self.forget_waits(index);
        self.finish(index, Status::AbortRequested.into_bits(), 0);
        0
    }

    /// Doorbell buffer config: the I/O queues' doorbells lie in memory from now on.
    fn configure_doorbells(&mut self, command: &Sqe) -> Result<u32, Status> {
        if !self.setup.shadow_doorbells {
            return Err(Status::InvalidOpcode);
        }
        let [values, events] = command.data;
        let page = self.registers.page;
        let fits =
            |at: u64| at != 0 && at & (page - 1) == 0 && self.memory.contains(at, page as usize);
        if !fits(values) || !fits(events) {
            return Err(Status::InvalidField);
        }
        self.queues.shadow = Some(Shadow { values, events });
        Ok(0)
    }

    /// Namespace management: create and delete.
    fn manage_namespace(&mut self, command: &Sqe) -> Result<u32, Status> {
        match command.cdw10[0] & 0xF {
            0 => self.create_namespace(command),
            1 => self.delete_namespaces(command.nsid),
            _ => Err(Status::InvalidField),
        }
    }

    fn create_namespace(&mut self, command: &Sqe) -> Result<u32, Status> {
        let mut data = [0; LENGTH];
        let sizes = (self.registers.page, LENGTH as u64);
        gather(Parts::new(&self.memory, command, sizes, false), &mut data)?;
        let Ok(wanted) = IdentifyNamespace::parse(&data) else { return Err(Status::InvalidField) };
        let format = FORMATS.get(usize::from(wanted.format_in_use())).ok_or(Status::Format)?;
        if wanted.dps != 0 || wanted.nmic > 1 {
            return Err(Status::InvalidField);
        }
        if wanted.ncap != wanted.nsze {
            return Err(Status::ThinProvisioning);
        }
        let size = wanted.nsze.checked_shl(format.shift.into()).filter(|_| wanted.nsze < 1 << 48);
        let size = size.filter(|size| (1..=LENGTH_MAX).contains(size));
        let size = size.ok_or(Status::InvalidField)?.next_multiple_of(4096);
        if size > self.device.unallocated() {
            return Err(Status::NamespaceCapacity);
        }
        let free = self.device.spaces.iter().position(Option::is_none);
        let index = free.filter(|index| *index < NAMESPACES_MAX);
        let index = index.ok_or(Status::NamespaceIdUnavailable)?;
        let id = index as u32 + 1;
        let block_size = 1 << format.shift;
        let config = NamespaceConfig { block_size, ..NamespaceConfig::memory(size) };
        let created = Namespace { is_attached: false, ..Namespace::new(id, config) };
        self.device.spaces[index] = Some(created);
        Ok(id)
    }

    fn delete_namespaces(&mut self, id: u32) -> Result<u32, Status> {
        use flysch_wire::nvme::identify::ALL_NAMESPACES;
        let meant: alloc::vec::Vec<u8> = match id {
            ALL_NAMESPACES => (0..NAMESPACES_MAX as u8).collect(),
            id => alloc::vec![self.device.index(id).ok_or(Status::InvalidNamespace)?],
        };
        for index in meant {
            let Some(space) = self.device.spaces[usize::from(index)].take() else { continue };
            self.device.cache.discarded(index, 0, space.size);
            if space.is_attached {
                self.namespace_changed(space.id);
            }
        }
        Ok(0)
    }

    /// Namespace attachment: to this controller, the only one there is.
    fn attach_namespace(&mut self, command: &Sqe) -> Result<u32, Status> {
        let mut data = [0; LENGTH];
        let sizes = (self.registers.page, LENGTH as u64);
        gather(Parts::new(&self.memory, command, sizes, false), &mut data)?;
        let (list, _) = data.as_chunks::<2>();
        let count = usize::from(u16::from_le_bytes(list[0]));
        let ours = (1..CONTROLLERS).contains(&count)
            && list[1..=count].iter().all(|id| u16::from_le_bytes(*id) == CONTROLLER);
        if !ours {
            return Err(Status::ControllerList);
        }
        let id = command.nsid;
        let index = self.device.index(id).ok_or(Status::InvalidNamespace)?;
        let space = self.device.space_mut(index).ok_or(Status::InvalidNamespace)?;
        match (command.cdw10[0] & 0xF, space.is_attached) {
            (0, true) => return Err(Status::AlreadyAttached),
            (1, false) => return Err(Status::NotAttached),
            (0, false) => space.is_attached = true,
            (1, true) => space.is_attached = false,
            _ => return Err(Status::InvalidField),
        }
        self.namespace_changed(id);
        Ok(0)
    }
}

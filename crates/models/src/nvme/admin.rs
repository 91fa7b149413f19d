//! Admin commands.

use flysch_wire::nvme::identify::{IdentifyNamespace, LENGTH};
use flysch_wire::nvme::{AdminOpcode, Sqe, Status};

use super::Nvme;
use super::config::{NAMESPACES_MAX, NamespaceConfig};
use super::flow::refusal;
use super::identify::CONTROLLER;
use super::namespace::{FORMATS, Namespace};
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
        let page = self.registers.page;
        let done = match opcode {
            AdminOpcode::AsyncEvent => return self.await_event(index),
            AdminOpcode::FormatNvm => match self.begin_format(index, &command) {
                Ok(()) => return,
                Err(status) => Err(status),
            },
            AdminOpcode::DeleteSq => self.delete_submission(&command).map(|()| 0),
            AdminOpcode::CreateSq => self.queues.create_submission(&command, page).map(|()| 0),
            AdminOpcode::DeleteCq => self.queues.delete_completion(&command).map(|()| 0),
            AdminOpcode::CreateCq => self.queues.create_completion(&command, page).map(|()| 0),
            AdminOpcode::GetLogPage => self.get_log_page(&command),
            AdminOpcode::Identify => self.identify(&command),
            AdminOpcode::Abort => Ok(self.abort(&command)),
            AdminOpcode::SetFeatures => self.set_features(&command),
            AdminOpcode::GetFeatures => self.get_features(&command),
            AdminOpcode::NamespaceManagement => self.manage_namespace(&command),
            AdminOpcode::NamespaceAttachment => self.attach_namespace(&command),
            AdminOpcode::FirmwareDownload => self.download(&command),
            AdminOpcode::FirmwareCommit => self.commit(&command),
            AdminOpcode::DoorbellBufferConfig => {
                self.queues.set_shadow(&command, &self.memory, page).map(|()| 0)
            }
            AdminOpcode::Sanitize => self.begin_sanitize(&command),
            _ => Err(Status::InvalidOpcode),
        };
        match done {
            Ok(result) => self.finish(index, 0, result),
            Err(status) => self.finish(index, refusal(status), 0),
        }
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

//! Operations of a [`Host`](crate::Host), and their results.

use crate::NvmeError;
use crate::channel::{Channel, Run};
use crate::control::Core;
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::command::NvmeStatus;
use flysch_api::machine::Machine;
use flysch_wire::nvme::{AdminOpcode, Cns, Sqe, identify, zone};

/// An operation of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Brings the controller up; if it is up already, resets it.
    BringUp,
    /// Resets the controller. Commands in flight end with a reset.
    Reset,
    /// Resets the whole NVM subsystem.
    SubsystemReset,
    /// Shuts the controller down safely and stops it.
    Shutdown,
    /// Reads the list of namespaces again.
    Rescan,
    /// An admin command.
    Admin(Box<AdminCommand>),
}

/// An admin command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminCommand {
    /// Its opcode.
    pub opcode: u8,
    /// NSID.
    pub nsid: u32,
    /// CDW10 to CDW15.
    pub cdw10: [u32; 6],
    /// Its data.
    pub data: AdminData,
    /// Time limit, ms; `None` for the one in the options.
    pub timeout_ms: Option<u32>,
}

/// Data of an admin command, at most a page of 4096 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminData {
    /// None.
    None,
    /// This many bytes from the controller.
    In(u32),
    /// These bytes to the controller.
    Out(Vec<u8>),
}

/// Result of an admin command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminReply {
    /// Status field and DW0.
    pub status: NvmeStatus,
    /// Data from the controller.
    pub data: Vec<u8>,
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Nothing.
    None,
    /// The result of an admin command, whether it ended with success or with an error.
    Admin(AdminReply),
}

impl AdminCommand {
    /// A command without data, to the controller.
    pub fn new(opcode: AdminOpcode) -> Self {
        let opcode = opcode.into_bits();
        Self { opcode, nsid: 0, cdw10: [0; 6], data: AdminData::None, timeout_ms: None }
    }

    /// Identify.
    pub fn identify(cns: Cns, nsid: u32) -> Self {
        let cdw10 = [cns.into_bits().into(), 0, 0, 0, 0, 0];
        let data = AdminData::In(identify::LENGTH as u32);
        Self { nsid, cdw10, data, ..Self::new(AdminOpcode::Identify) }
    }

    /// Identify, for what only the zoned command set has (CSI, dword 11): of a namespace with
    /// [`Cns::CommandSetNamespace`], of the controller with [`Cns::CommandSetController`].
    pub fn identify_zoned(cns: Cns, nsid: u32) -> Self {
        let mut command = Self::identify(cns, nsid);
        command.cdw10[1] = u32::from(zone::COMMAND_SET) << 24;
        command
    }

    /// The queue entry, without id and data.
    fn entry(&self) -> Sqe {
        let Self { opcode, nsid, cdw10, .. } = *self;
        Sqe { opcode, nsid, cdw10, ..Sqe::default() }
    }
}

impl AdminCommand {
    /// Has the controller carry it out.
    fn run<M: Machine>(&self, channel: &mut Channel<M>) -> Run<AdminReply> {
        // These would take the driver's own queues or events away.
        let own = [
            AdminOpcode::CreateSq,
            AdminOpcode::CreateCq,
            AdminOpcode::DeleteSq,
            AdminOpcode::DeleteCq,
            AdminOpcode::AsyncEvent,
            AdminOpcode::DoorbellBufferConfig,
        ];
        if own.contains(&AdminOpcode::from_bits(self.opcode)) {
            return Err(NvmeError::Unsupported("an admin command of the driver's own").into());
        }
        let bytes = match &self.data {
            AdminData::None => 0,
            AdminData::In(bytes) => *bytes as usize,
            AdminData::Out(data) => data.len(),
        };
        if bytes > channel.layout.admin_data.len() {
            return Err(NvmeError::Unsupported("more than a page of admin data").into());
        }
        let mut entry = self.entry();
        if bytes > 0 {
            entry.data = [channel.layout.admin_data.address(), 0];
        }
        if let AdminData::Out(data) = &self.data {
            channel.put_admin_data(data);
        }
        let status = channel.command(entry, self.timeout_ms)?;
        let mut data = Vec::new();
        if let AdminData::In(bytes) = self.data {
            data.resize(bytes as usize, 0);
            channel.machine.sync_for_cpu(channel.layout.admin_data.span(0, data.len()));
            channel.layout.admin_data.read(0, &mut data);
        }
        Ok(AdminReply { status, data })
    }
}

impl Operation {
    /// Carries it out.
    pub(crate) fn run<M: Machine>(&self, core: &mut Core<M>) -> Run<Output> {
        match self {
            Self::Admin(command) => command.run(&mut core.channel).map(Output::Admin),
            Self::Rescan => core.device.find_namespaces(&mut core.channel).map(|()| Output::None),
            Self::Shutdown => core.shut_down().map(|()| Output::None),
            // The host turns these into other jobs.
            Self::BringUp | Self::Reset | Self::SubsystemReset => Ok(Output::None),
        }
    }
}

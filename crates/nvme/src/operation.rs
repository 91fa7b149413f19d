//! Operations of a [`Host`](crate::Host), and their results.

use crate::control::{Core, Run, Stop};
use crate::init::disable;
use crate::{Cause, Error};
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::command::NvmeStatus;
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::nvme::registers::{CC, CSTS, Cc, Csts, shutdown};
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

impl<M: Machine> Core<M> {
    pub(crate) fn operate(&mut self, operation: &Operation) -> Run<Output> {
        match operation {
            Operation::Admin(command) => self.pass_through(command),
            Operation::Rescan => self.find_namespaces().map(|()| Output::None),
            Operation::Shutdown => self.shut_down().map(|()| Output::None),
            // The host turns these into other jobs.
            Operation::BringUp | Operation::Reset | Operation::SubsystemReset => Ok(Output::None),
        }
    }

    fn pass_through(&mut self, command: &AdminCommand) -> Run<Output> {
        // These would take the driver's own queues or events away.
        let own = [
            AdminOpcode::CreateSq,
            AdminOpcode::CreateCq,
            AdminOpcode::DeleteSq,
            AdminOpcode::DeleteCq,
            AdminOpcode::AsyncEvent,
            AdminOpcode::DoorbellBufferConfig,
        ];
        if own.contains(&AdminOpcode::from_bits(command.opcode)) {
            return Err(Stop::Failed(Error::Unsupported("an admin command of the driver's own")));
        }
        let bytes = match &command.data {
            AdminData::None => 0,
            AdminData::In(bytes) => *bytes as usize,
            AdminData::Out(data) => data.len(),
        };
        if bytes > self.layout.admin_data.len() {
            return Err(Stop::Failed(Error::Unsupported("more than a page of admin data")));
        }
        let mut entry = command.entry();
        if bytes > 0 {
            entry.data = [self.layout.admin_data.address(), 0];
        }
        if let AdminData::Out(data) = &command.data {
            self.effect(|core| {
                core.layout.admin_data.write(0, data);
                core.machine.sync_for_device(core.layout.admin_data.span(0, data.len()));
            });
        }
        let status = self.command(entry, command.timeout_ms)?;
        let mut data = Vec::new();
        if let AdminData::In(bytes) = command.data {
            data.resize(bytes as usize, 0);
            self.machine.sync_for_cpu(self.layout.admin_data.span(0, data.len()));
            self.layout.admin_data.read(0, &mut data);
        }
        Ok(Output::Admin(AdminReply { status, data }))
    }

    /// Shutdown notification (3.6.1), then the controller is off.
    fn shut_down(&mut self) -> Run<()> {
        if self.lanes_idle()?.is_err() {
            return Err(Cause::InFlight.into());
        }
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
        self.take_memory_back()?;
        let cc = Cc::from_bits(self.read(CC)).with_shn(shutdown::NORMAL);
        self.write(CC, cc.into_bits());
        let rtd3e_ms = self.device.controller.rtd3e / 1000;
        let timeout = rtd3e_ms.clamp(self.options.timeouts.shutdown_ms, 60_000);
        let complete = Csts::new().with_shst(shutdown::COMPLETE).into_bits();
        let mask = Csts::new().with_shst(3).into_bits();
        let done = self.until(("CSTS", CSTS), mask, complete, timeout)?;
        let off = disable(self)?;
        // Whoever starts something now is told at once; bring-up begins with other orders.
        let gone = Order::PAUSE | Order::STOP | Order::GONE;
        self.effect(|core| core.shared.orders.publish(gone));
        self.lanes_obey()?;
        done.and(off)?;
        Ok(())
    }
}

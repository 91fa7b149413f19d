//! Commands that go through a driver's control path, with reports for `flysch cam debug`.

use flysch_ahci::{AhciError as AtaError, AtaCommand, AtaData, AtaReply, Cause as AtaCause};
use flysch_api::command::{Direction, Ended, MmcCommand, MmcResponse, NvmeCommand};
use flysch_cam::debug::{Answer, Request, Tracer};
use flysch_emmc::{Cause as CardCause, EmmcError as CardError};
use flysch_emmc::{Operation as CardOperation, Output as CardOutput};
use flysch_nvme::{AdminCommand, AdminData, AdminReply, Cause as NvmeCause, NvmeError};
use flysch_rig::{AhciControl, EmmcControl, NvmeControl};
use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::command::{CommandIndex, rca};

/// An ATA command to the device at a port of a multiplier, 0 without one; it has one unit.
pub(super) fn ata(
    control: &mut dyn AhciControl,
    (tracer, target): (&Tracer, u8),
    command: AtaCommand,
) -> Result<AtaReply, AtaError> {
    let moved = match &command.data {
        AtaData::None => (Direction::None, 0),
        AtaData::In(length) => (Direction::FromDevice, *length),
        AtaData::Out(bytes) => (Direction::ToDevice, bytes.len() as u32),
    };
    let device = command.task.device;
    let ccb = tracer.start(0, Request::Ata(command.task), moved);
    tracer.issue(0);
    let reply = control.command(command.to(target));
    tracer.end(
        ccb,
        &match &reply {
            Ok(reply) => Answer::Ata(&reply.status, reply.count, device),
            Err(AtaError::Failed(AtaCause::Timeout(_))) => Answer::Ended(Ended::TimedOut),
            Err(AtaError::Recovered) => Answer::Ended(Ended::Reset),
            Err(AtaError::Gone) => Answer::Ended(Ended::Gone),
            Err(_) => Answer::Failed,
        },
    );
    reply
}

/// An NVMe admin command on behalf of a unit.
pub(super) fn nvme(
    control: &mut dyn NvmeControl,
    (tracer, lun): (&Tracer, u64),
    command: AdminCommand,
) -> Result<AdminReply, NvmeError> {
    let moved = match &command.data {
        AdminData::None => (Direction::None, 0),
        AdminData::In(length) => (Direction::FromDevice, *length),
        AdminData::Out(bytes) => (Direction::ToDevice, bytes.len() as u32),
    };
    let AdminCommand { opcode, nsid, cdw10, .. } = command;
    let payload = NvmeCommand { opcode, cdw10, ..NvmeCommand::default() };
    let request = Request::Nvme { is_admin: true, nsid, command: payload };
    let ccb = tracer.start(lun, request, moved);
    tracer.issue(lun);
    let reply = control.admin(command);
    tracer.end(
        ccb,
        &match &reply {
            Ok(reply) => Answer::Nvme(reply.status),
            Err(NvmeError::Failed(NvmeCause::Timeout(_))) => Answer::Ended(Ended::TimedOut),
            Err(NvmeError::Recovered) => Answer::Ended(Ended::Reset),
            Err(NvmeError::Gone) => Answer::Ended(Ended::Gone),
            Err(_) => Answer::Failed,
        },
    );
    reply
}

/// SEND_STATUS (CMD13) to a card, which is unit 0.
pub(super) fn card_status(
    control: &mut dyn EmmcControl,
    tracer: &Tracer,
) -> Result<CardStatus, CardError> {
    let command = MmcCommand {
        index: CommandIndex::SendStatus.into_bits(),
        argument: rca(control.device().rca),
        response: MmcResponse::R1,
        ..MmcCommand::default()
    };
    let ccb = tracer.start(0, Request::Mmc { command, length: 0 }, (Direction::None, 0));
    tracer.issue(0);
    let reply = control.operate(CardOperation::Status).map(|output| match output {
        CardOutput::Status(status) => status,
        _ => CardStatus::new(),
    });
    tracer.end(
        ccb,
        &match &reply {
            Ok(status) => Answer::Mmc(status.into_bits()),
            Err(CardError::Failed(CardCause::Bus(_, error))) if error.is_no_response() => {
                Answer::Ended(Ended::TimedOut)
            }
            Err(CardError::Recovered) => Answer::Ended(Ended::Reset),
            Err(CardError::Gone) => Answer::Ended(Ended::Gone),
            Err(_) => Answer::Failed,
        },
    );
    reply
}

//! Probes a bus again, with each protocol's probe, like CAM's transports.

use flysch_ahci::{AtaCommand, AtaData};
use flysch_api::command::{AtaProtocol, Taskfile};
use flysch_cam::debug::{Probing, Tracer};
use flysch_cam::xpt::Path;
use flysch_nvme::{AdminCommand, Operation};
use flysch_rig::{AhciControl, EmmcControl, NvmeControl};
use flysch_wire::ata::{Kind, Opcode, SECTOR};
use flysch_wire::nvme::{Cns, Status};

use super::machine::{Machine, Opened};
use super::session::Language;
use super::told;
use crate::failure::Failure;

impl Machine {
    /// Probes the devices on a bus.
    pub(super) fn probe(&mut self, bus: u32) -> Result<(), Failure> {
        let Some(Opened { stack, .. }) = self.bus(bus) else { return Ok(()) };
        let periph = match Language::of(stack) {
            Language::Scsi => "probe0",
            Language::Ata => "aprobe0",
            Language::Nvme => "nvme_probe0",
            Language::Mmc => "mmcprobe0",
        };
        let tracer = self.tracer(periph, Path { bus, target: 0, lun: 0 });
        let Some(Opened { stack, .. }) = self.bus(bus) else { return Ok(()) };
        if let Some(control) = stack.control() {
            control.rescan(tracer)?;
        } else if let Some(control) = stack.ahci() {
            ata(control, tracer)?;
        } else if let Some(control) = stack.nvme() {
            nvme(control, tracer)?;
        } else if let Some(control) = stack.emmc() {
            card(control, tracer)?;
        }
        Ok(())
    }
}

/// IDENTIFY DEVICE, or its equivalent of an optical drive.
fn ata(control: &mut dyn AhciControl, tracer: Tracer) -> Result<(), Failure> {
    let mut probing = Probing::new(tracer, "PROBE_");
    let there = |target: &u8| control.devices().at(*target).is_some();
    let targets: Vec<u8> = (0..flysch_wire::ata::multiplier::CONTROL_PORT).filter(there).collect();
    let status = targets.into_iter().try_for_each(|target| ask_ata(control, target, &mut probing));
    end(probing, status)
}

fn ask_ata(control: &mut dyn AhciControl, target: u8, probing: &mut Probing) -> Result<(), String> {
    let device = control.devices().at(target);
    let is_disk = device.is_none_or(|device| device.identify.kind == Kind::Disk);
    let opcode = if is_disk { Opcode::Identify } else { Opcode::IdentifyPacket };
    let protocol = AtaProtocol::Pio;
    let task = Taskfile { command: opcode.into_bits(), protocol, ..Taskfile::default() };
    let data = AtaData::In(SECTOR as u32);
    probing.to(0, "IDENTIFY");
    let command = AtaCommand { unit: target, task, data, timeout_ms: None };
    match told::ata(control, (probing.tracer(), target), command) {
        Ok(reply) if reply.status.is_error() => {
            let (status, error) = (reply.status.status, reply.status.error);
            Err(format!("{opcode}: ATA status {status:#04x}, error {error:#04x}"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The namespaces, and the identification of controller and namespaces.
fn nvme(control: &mut dyn NvmeControl, tracer: Tracer) -> Result<(), Failure> {
    control.operate(Operation::Rescan).map_err(Failure::failed)?;
    let namespaces: Vec<u32> = control.device().namespaces.iter().map(|space| space.id).collect();
    let mut probing = Probing::new(tracer, "NVME_PROBE_");
    for id in namespaces {
        let lun = u64::from(id);
        for (action, cns, nsid) in
            [("IDENTIFY_CD", Cns::Controller, 0), ("IDENTIFY_NS", Cns::Namespace, id)]
        {
            probing.to(lun, action);
            let command = AdminCommand::identify(cns, nsid);
            let status = match told::nvme(control, (probing.tracer(), lun), command) {
                Ok(reply) => match Status::of_field(reply.status.status) {
                    Status::Success => continue,
                    status => status.to_string(),
                },
                Err(error) => error.to_string(),
            };
            return end(probing, Err(format!("Identify: {status}")));
        }
    }
    end(probing, Ok(()))
}

/// Whether the card answers.
fn card(control: &mut dyn EmmcControl, tracer: Tracer) -> Result<(), Failure> {
    let mut probing = Probing::new(tracer, "PROBE_");
    probing.to(0, "IDENTIFY");
    let status = told::card_status(control, probing.tracer());
    end(probing, status.map(drop).map_err(|error| error.to_string()))
}

/// The probe has ended.
fn end(mut probing: Probing, result: Result<(), String>) -> Result<(), Failure> {
    match result {
        Ok(()) => probing.finish(),
        Err(_) => probing.fail(),
    }
    result.map_err(Failure::failed)
}

//! Optical drives at a SATA port: machine, driver, port, packets, disk.

use flysch_ahci::{AtaFacts, ErrorLog, Operation, Output, Port};
use flysch_api::machine::Machine;
use flysch_bench::results::Incident;
use flysch_cam::cd::{self, Packets};
use flysch_cam::{Disk, Shape};
use flysch_files::Made;
use flysch_models::media::energy::Energy;

use crate::ahci::{self, AhciControl, AhciMachine, Begun, Devices};
use crate::error::TargetError;
use crate::incidents::{self, Witness};
use crate::lane::Lane;
use crate::open::{Metered, Needs, Open};
use crate::pci;
use crate::seat::Seat;
use crate::target::{AhciPciTarget, AhciQemuTarget, AhciTarget, ClockKind, FaultsFrom};

/// A drive with a read-only medium.
#[derive(Debug)]
pub struct Cd<M: Machine> {
    machine: M,
    lanes: Vec<Lane<Packets<Port<M>>>>,
    description: String,
    /// The clock.
    clock: ClockKind,
    /// The image, if it was created for this.
    made: Option<Made>,
}

/// Opens the model in this thread, under a virtual or a hybrid clock.
pub(crate) fn open_inline(
    target: &AhciTarget,
    needs: &Needs,
    seat: &mut Seat,
) -> Result<Cd<AhciMachine>, TargetError> {
    let mut cd = Cd::assemble(ahci::begin_inline(target, needs, seat)?)?;
    cd.description = format!("AHCI model, {}", cd.description);
    cd.clock = target.clock;
    if target.faults_from == FaultsFrom::Open {
        cd.machine.arm(target.faults.clone());
    }
    Ok(cd)
}

/// Starts QEMU and opens its device.
pub(crate) fn open_qemu(
    target: &AhciQemuTarget,
    needs: &Needs,
) -> Result<Cd<flysch_qemu::Machine>, TargetError> {
    let mut cd = Cd::assemble(ahci::begin_qemu(target, needs)?)?;
    cd.description = format!("AHCI device of QEMU {}, {}", cd.machine.version(), cd.description);
    Ok(cd)
}

/// Opens a drive on a controller of this machine.
pub(crate) fn open_pci(
    target: &AhciPciTarget,
    needs: &Needs,
) -> Result<Cd<flysch_vfio::Machine>, TargetError> {
    let mut cd = Cd::assemble(ahci::begin_pci(target, needs)?)?;
    cd.lanes.iter_mut().for_each(|lane| lane.tell(cd.machine.spin()));
    cd.description = format!("{}, {}", pci::description(&cd.machine), cd.description);
    Ok(cd)
}

impl<M: Machine> Cd<M> {
    fn assemble(begun: Begun<M>) -> Result<Self, TargetError> {
        let mut port = Packets::new(begun.bring_up()?.swap_remove(0));
        let Begun { machine, region, plan, made, .. } = begun;
        let scratch = plan.scratch(&region, 0);
        let drive = cd::attach(&mut port, &machine, &scratch)?;
        let shape: Shape = drive.shape();
        let name = String::from_utf8_lossy(&drive.name);
        let words: Vec<&str> = name.split_whitespace().collect();
        let description = format!("optical drive {}", words.join(" "));
        let disk = Disk::new(port, shape, scratch, &Default::default())?;
        let lanes = vec![Lane::new(disk, plan.data(&region))];
        Ok(Self { machine, lanes, description, clock: ClockKind::Real, made })
    }

    fn port(&self) -> &Port<M> {
        self.lanes[0].disk.port().ata()
    }
}

impl<M: Witness> Metered for Cd<M> {
    fn energy(&self) -> Option<Energy> {
        self.machine.energy()
    }
}

impl<M: Witness> Open for Cd<M> {
    type Lane = Lane<Packets<Port<M>>>;
    type Clock = M;

    fn parts(&mut self) -> (&mut [Self::Lane], &M) {
        (&mut self.lanes, &self.machine)
    }

    fn first(&self) -> &Self::Lane {
        &self.lanes[0]
    }

    fn about(&self) -> (&str, ClockKind) {
        (&self.description, self.clock)
    }

    fn incidents(&self) -> Vec<Incident> {
        let mut all = self.machine.injected();
        all.extend(incidents::of_disks(self.lanes.iter().map(|lane| lane.disk.statistics())));
        all.extend(ahci::of_ports(core::iter::once(self.port())));
        all
    }

    fn failure(&self) -> Option<String> {
        self.machine.failure()
    }

    fn made(&mut self) -> &mut Option<Made> {
        &mut self.made
    }
}

impl<M: Machine> AhciControl for Cd<M> {
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_ahci::AhciError> {
        let machine = self.machine.clone();
        self.lanes[0].disk.port_mut().ata_mut().run(&machine, operation)
    }

    fn number(&self) -> u8 {
        self.port().number()
    }

    fn rest(&mut self, millis: u32) {
        ahci::rest(&self.machine, millis);
    }

    fn device(&self) -> Option<&AtaFacts> {
        self.port().device()
    }

    fn devices(&self) -> Devices<'_> {
        Devices::of(self.port(), 0)
    }

    fn errors(&self) -> &ErrorLog {
        self.port().errors()
    }
}

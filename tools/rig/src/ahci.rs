//! SATA stacks: machine, driver, port, disk.

use flysch_ahci::{
    AhciOptions, AtaCommand, AtaFacts, AtaReply, ErrorLog, Host, Operation, Output, Port,
};
use flysch_ahci::{Multiplier, Quirk, State};
use flysch_api::machine::{Clock, DmaRegion, Identity, Machine};
use flysch_bench::results::Incident;
use flysch_cam::{Disk, Shape, ada};
use flysch_files::Made;
use flysch_models::ahci::Switching;
use flysch_models::ahci::{Ahci as Model, Attached, Config, DiskConfig, MultiplierConfig};
use flysch_models::machine::Inline;
use flysch_models::media::energy::Energy;
use flysch_models::store::{FileStore, Store};
use flysch_wire::ata::multiplier::PORTS_MAX;

use crate::error::TargetError;
use crate::image::{self, Image};
use crate::incidents::{self, Witness};
use crate::lane::{Base, Lane, MemoryPlan};
use crate::open::{Metered, Needs, Open};
use crate::pci;
use crate::seat::{Seat, Unit};
use crate::target::{
    AhciPciTarget, AhciQemuTarget, AhciTarget, ClockKind, Drive, FaultsFrom, MultiplierTarget,
    PciWait,
};
use crate::ufs::MODEL_SIZE;

/// A SATA host bus adapter with everything above it, up to the disk at one port. A port is one
/// lane.
#[derive(Debug)]
pub struct Ahci<M: Machine> {
    pub(crate) machine: M,
    pub(crate) lanes: Vec<Lane<Port<M>>>,
    pub(crate) base: Base<AhciOptions>,
    /// The multiplier port of the disk.
    unit: u8,
    description: String,
    /// The clock.
    clock: ClockKind,
    /// The image, if it was created for this.
    made: Option<Made>,
}

/// The management side of a SATA port. No commands may be in flight.
pub trait AhciControl {
    /// Executes one operation and waits for it.
    ///
    /// # Errors
    /// The driver's error.
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_ahci::AhciError>;
    /// The device that is the disk.
    fn device(&self) -> Option<&AtaFacts>;
    /// The errors so far.
    fn errors(&self) -> &ErrorLog;

    /// Number of the port.
    fn number(&self) -> u8;

    /// Lets this many milliseconds pass.
    fn rest(&mut self, millis: u32);

    /// The devices present.
    fn devices(&self) -> Devices<'_>;

    /// Executes a command for the device that it names, whatever its outcome.
    ///
    /// # Errors
    /// The driver's error.
    fn command(&mut self, command: AtaCommand) -> Result<AtaReply, flysch_ahci::AhciError> {
        match self.operate(Operation::Command(Box::new(command)))? {
            Output::Command(reply) => Ok(reply),
            Output::None => Err(flysch_ahci::AhciError::NotUp),
        }
    }
}

/// The devices at a SATA port: one, or those behind a port multiplier.
#[derive(Clone, Copy, Debug)]
pub struct Devices<'a> {
    /// The multiplier.
    pub multiplier: Option<&'a Multiplier>,
    /// The multiplier port of the disk; 0 without a multiplier.
    pub unit: u8,
    at: [Option<&'a AtaFacts>; PORTS_MAX],
}

impl<'a> Devices<'a> {
    /// Those at a port.
    pub(crate) fn of<M: Machine>(port: &'a Port<M>, unit: u8) -> Self {
        let at = core::array::from_fn(|unit| port.device_behind(unit as u8));
        Self { multiplier: port.multiplier(), unit, at }
    }

    /// The device at a port of the multiplier; without a multiplier there is only the first.
    pub fn at(&self, unit: u8) -> Option<&'a AtaFacts> {
        self.at.get(usize::from(unit)).copied().flatten()
    }
}

/// The modelled machine in this thread.
pub type AhciMachine = Inline<Model>;

/// A machine with a plan for its driver's memory, before bring-up.
pub(crate) struct Begun<M> {
    pub(crate) machine: M,
    pub(crate) region: DmaRegion,
    pub(crate) plan: MemoryPlan,
    options: AhciOptions,
    pub(crate) made: Option<Made>,
}

/// Creates the model and its machine, under a virtual or a hybrid clock.
pub(crate) fn begin_inline(
    target: &AhciTarget,
    needs: &Needs,
    seat: &mut Seat,
) -> Result<Begun<AhciMachine>, TargetError> {
    let mode = target.clock.mode();
    let image =
        target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
    let mut config = model_config(target, image.as_ref().map(|image| image.bytes))?;
    let options = model_options(target, needs, seat.units.len());
    if !seat.units.is_empty() && target.multiplier.is_some() {
        return Err(TargetError::Multiplied);
    }
    if !seat.units.is_empty() {
        let disk = |unit: &mut Unit| {
            Attached::disk(DiskConfig {
                profile: target.profile,
                store: unit.store(),
                sector_bytes: target.block_size,
                serial: std::mem::take(&mut unit.serial),
                ..DiskConfig::memory(unit.size)
            })
        };
        config.ports = seat.units.iter_mut().map(disk).collect();
    }
    let (region, plan) = seat.memory(plan::<AhciMachine>(&options, needs));
    let model = Model::new(config, region.clone())?;
    let machine = seat.machine(model, region.clone(), Identity::default(), mode);
    Ok(Begun { machine, region, plan, options, made: image.and_then(|image| image.made) })
}

/// Opens the model in this thread.
pub(crate) fn open_inline(
    target: &AhciTarget,
    needs: &Needs,
    seat: &mut Seat,
) -> Result<Ahci<AhciMachine>, TargetError> {
    let unit = target.multiplier.map_or(0, |multiplier| multiplier.device);
    let mut ahci = Ahci::assemble(begin_inline(target, needs, seat)?, unit)?;
    let (profile, link) = (target.profile.name, link(AhciControl::device(&ahci)));
    let behind = match target.multiplier {
        Some(multiplier) => format!(", device {unit} of {} at a multiplier", multiplier.disks),
        None => String::new(),
    };
    ahci.description = format!("AHCI model {profile}, {link}{behind}");
    ahci.clock = target.clock;
    if target.faults_from == FaultsFrom::Open {
        ahci.machine.arm(target.faults.clone());
    }
    Ok(ahci)
}

/// Bytes of memory not used for requests, for this many disks.
pub(crate) fn own_memory(target: &AhciTarget, needs: &Needs, disks: usize) -> usize {
    plan::<AhciMachine>(&model_options(target, needs, disks), needs).own()
}

/// For the disk at the target's port, or for `disks` at the first ones.
fn model_options(target: &AhciTarget, needs: &Needs, disks: usize) -> AhciOptions {
    let options = driver_options(target.port, needs);
    AhciOptions {
        ports: if disks == 0 { options.ports } else { u32::MAX >> (32 - disks.min(32)) },
        queued: target.queued,
        speed: target.speed,
        link_power: target.link_power,
        fis_switching: target.multiplier.is_none_or(|multiplier| multiplier.fis_switching),
        ..options
    }
}

/// The model of `target`, with an image of this many bytes.
pub(crate) fn model_config(target: &AhciTarget, image: Option<u64>) -> Result<Config, TargetError> {
    let size = image.or(target.size).unwrap_or(MODEL_SIZE);
    let store = match target.image.as_deref() {
        Some(path) => Some(Store::File(FileStore::open(path, size)?)),
        None => None,
    };
    let disk = |store, number| {
        let serial = format!("FLYSCHSATA{number:010}");
        Attached::disk(DiskConfig {
            profile: target.profile,
            store,
            sector_bytes: target.block_size,
            serial,
            ..DiskConfig::memory(size)
        })
    };
    let attached = match (target.drive, target.multiplier) {
        (Drive::Disk, None) => disk(store, 1),
        (Drive::Disk, Some(multiplier)) => behind(multiplier, store, disk),
        (Drive::Cd, _) => Attached::Cd(store.unwrap_or_else(|| Store::memory(size)), size),
    };
    let mut ports: Vec<Attached> = (0..target.port).map(|_| Attached::Nothing).collect();
    ports.push(attached);
    let switching = match target.multiplier {
        None => Switching::No,
        Some(MultiplierTarget { fis_switching: true, .. }) => Switching::Fis,
        Some(_) => Switching::Command,
    };
    Ok(Config {
        ports,
        switching,
        volatile_cache: target.faults.cuts_power(),
        faults: target.faults_from.at_power_on(&target.faults),
        seed: target.seed,
        ..Config::default()
    })
}

/// A multiplier with its disks, one of which has this store. Up to the number of ports of a common
/// product it is that product, beyond that it is nobody's.
fn behind(
    target: MultiplierTarget,
    store: Option<Store>,
    disk: impl Fn(Option<Store>, u8) -> Attached,
) -> Attached {
    let mut store = store;
    let ports: Vec<Attached> = (0..target.disks)
        .map(|n| disk(if n == target.device { store.take() } else { None }, n + 1))
        .collect();
    let is_common = ports.len() <= MultiplierConfig::SIL3726_PORTS;
    Attached::multiplier(match is_common {
        true => MultiplierConfig::sil3726(ports),
        false => MultiplierConfig::of_nobody(ports),
    })
}

/// Starts QEMU with its device.
pub(crate) fn begin_qemu(
    target: &AhciQemuTarget,
    needs: &Needs,
) -> Result<Begun<flysch_qemu::Machine>, TargetError> {
    let options = AhciOptions { queued: target.queued, ..driver_options(target.port, needs) };
    let plan = plan::<flysch_qemu::Machine>(&options, needs);
    let (qemu, made) = qemu_options(target, plan.total() as u64)?;
    let machine = flysch_qemu::Machine::start(&qemu)?;
    let region = machine.memory().clone();
    Ok(Begun { machine, region, plan, options, made })
}

/// The QEMU options for its device, and the image that was created for it.
pub(crate) fn qemu_options(
    target: &AhciQemuTarget,
    memory_bytes: u64,
) -> Result<(flysch_qemu::QemuOptions, Option<Made>), TargetError> {
    let (backing, made) = image::for_qemu(target.image.as_deref(), target.size)?;
    let read_only = target.drive == Drive::Cd;
    let options = flysch_qemu::QemuOptions {
        program: target.qemu.clone(),
        controller: flysch_qemu::Controller::Ahci,
        queues: 0,
        memory_bytes,
        units: vec![flysch_qemu::Unit { lun: target.port, backing, read_only }],
        socket: None,
    };
    Ok((options, made))
}

/// Starts QEMU and opens its device.
pub(crate) fn open_qemu(
    target: &AhciQemuTarget,
    needs: &Needs,
) -> Result<Ahci<flysch_qemu::Machine>, TargetError> {
    let mut ahci = Ahci::assemble(begin_qemu(target, needs)?, 0)?;
    let (version, link) = (ahci.machine.version(), link(ahci.port().device()));
    ahci.description = format!("AHCI device of QEMU {version}, {link}");
    Ok(ahci)
}

/// Opens a controller of this machine.
pub(crate) fn begin_pci(
    target: &AhciPciTarget,
    needs: &Needs,
) -> Result<Begun<flysch_vfio::Machine>, TargetError> {
    let options = AhciOptions {
        queued: target.queued,
        speed: target.speed,
        link_power: target.link_power,
        interrupts: target.place.wait != PciWait::Poll,
        ..driver_options(target.port, needs)
    };
    let plan = plan::<flysch_vfio::Machine>(&options, needs);
    let machine = pci::open(&target.place, flysch_vfio::Controller::Ahci, plan.total(), 1)?;
    let region = machine.memory().clone();
    Ok(Begun { machine, region, plan, options, made: None })
}

/// Opens a disk on a controller of this machine.
pub(crate) fn open_pci(
    target: &AhciPciTarget,
    needs: &Needs,
) -> Result<Ahci<flysch_vfio::Machine>, TargetError> {
    let mut ahci = Ahci::assemble(begin_pci(target, needs)?, 0)?;
    let (how, link) = (pci::description(&ahci.machine), link(ahci.port().device()));
    ahci.lanes.iter_mut().for_each(|lane| lane.tell(ahci.machine.spin()));
    ahci.description = format!("{how}, {link}");
    Ok(ahci)
}

fn driver_options(port: u8, needs: &Needs) -> AhciOptions {
    AhciOptions {
        ports: 1 << port,
        depth: needs.queue_depth.clamp(1, AhciOptions::DEPTH_MAX.into()) as u8,
        ..AhciOptions::default()
    }
}

fn plan<M: Machine>(options: &AhciOptions, needs: &Needs) -> MemoryPlan {
    let scratch = Disk::<Port<M>>::scratch_bytes(options.depth.into()).next_multiple_of(4096);
    MemoryPlan::new(
        needs,
        options.ports.count_ones() as usize,
        Host::<M>::memory_len(options),
        scratch,
    )
}

impl<M: Machine> Begun<M> {
    /// Brings the host up, and returns the ports of its options, each of which has a device.
    pub(crate) fn bring_up(&self) -> Result<Vec<Port<M>>, TargetError> {
        let memory = self.plan.driver(&self.region);
        let mut host = Host::new(self.machine.clone(), memory, self.options.clone())?;
        host.bring_up(&self.machine)?;
        let numbers = (0..32).filter(|number| self.options.ports & 1 << number != 0);
        let there = |(number, port): (u8, Port<M>)| match (port.failure_of_port(), port.state()) {
            (Some(error), _) => Err(error.into()),
            (None, State::Up) => Ok(port),
            _ => Err(TargetError::NoDevice { port: number }),
        };
        numbers.zip(host.into_ports()).map(there).collect()
    }
}

impl<M: Machine> Ahci<M> {
    /// Brings up the host and opens the disks at the ports of the options, or at this port of their
    /// multipliers, with one lane each.
    fn assemble(begun: Begun<M>, unit: u8) -> Result<Self, TargetError> {
        let ports = begun.bring_up()?;
        let Begun { machine, region, plan, options, made } = begun;
        let base = Base { region, plan, options };
        let disk = |(lane, port): (usize, Port<M>)| {
            let device = device_of(&port, unit)?;
            let shape = Shape { unit: unit.into(), ..disk_shape(device)? };
            Ok(base.lane(lane, port, shape)?)
        };
        let lanes =
            ports.into_iter().enumerate().map(disk).collect::<Result<Vec<_>, TargetError>>()?;
        let clock = ClockKind::Real;
        Ok(Self { machine, lanes, unit, base, description: String::new(), clock, made })
    }

    fn port(&self) -> &Port<M> {
        self.lanes[0].disk.port()
    }
}

/// The device at a port, or at a port of the multiplier there.
fn device_of<M: Machine>(port: &Port<M>, unit: u8) -> Result<&AtaFacts, TargetError> {
    let failure = port.multiplier().and_then(|m| m.failures.get(usize::from(unit)).copied()?);
    match (port.device_behind(unit), failure, port.multiplier()) {
        (Some(device), ..) => Ok(device),
        (None, Some(error), _) => Err(error.into()),
        (None, None, None) => Err(TargetError::NoDevice { port: port.number() }),
        (None, None, Some(_)) => {
            Err(TargetError::NoDeviceBehind { port: port.number(), device: unit })
        }
    }
}

/// The link and its protocol, for people.
pub(crate) fn link(device: Option<&AtaFacts>) -> String {
    let Some(device) = device else { return "no link".into() };
    let speed = ["no link", "1.5 Gb/s", "3 Gb/s", "6 Gb/s"];
    let speed = speed.get(usize::from(device.speed)).unwrap_or(&"a fast link");
    format!("{speed}, {}", if device.queued { "NCQ" } else { "no NCQ" })
}

/// What a disk needs to know about the device and its quirks.
pub(crate) fn disk_shape(device: &AtaFacts) -> Result<Shape, TargetError> {
    let ways = ada::Ways {
        queued: device.queued,
        force_unit_access: !device.quirks.has(Quirk::NoFua),
        trims: !device.quirks.has(Quirk::NoTrim),
    };
    Ok(ada::shape(&device.identify, ways)?)
}

/// The driver's counters for these ports, and for the HBA.
pub(crate) fn of_ports<'p, M: Machine + 'p>(
    ports: impl Iterator<Item = &'p Port<M>> + Clone,
) -> Vec<Incident> {
    let Some(first) = ports.clone().next() else { return Vec::new() };
    let hba = first.hba_errors();
    let count = |kind| {
        let of_ports: u64 = ports.clone().map(|port| port.errors().count(kind)).sum();
        of_ports + hba.map_or(0, |log| log.count(kind))
    };
    let kinds = first.errors().counts().map(|(kind, _)| (kind, count(kind)));
    kinds.map(|(kind, count)| incidents::incident("driver", kind.name(), count)).collect()
}

impl<M: Witness> Metered for Ahci<M> {
    fn energy(&self) -> Option<Energy> {
        self.machine.energy_behind(self.unit)
    }
}

impl<M: Witness> Open for Ahci<M> {
    type Lane = Lane<Port<M>>;
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
        all.extend(of_ports(self.lanes.iter().map(|lane| lane.disk.port())));
        all
    }

    fn failure(&self) -> Option<String> {
        self.machine.failure()
    }

    fn made(&mut self) -> &mut Option<Made> {
        &mut self.made
    }
}

impl<M: Machine> AhciControl for Ahci<M> {
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_ahci::AhciError> {
        let machine = self.machine.clone();
        self.lanes[0].disk.port_mut().run(&machine, operation)
    }

    fn number(&self) -> u8 {
        self.port().number()
    }

    fn rest(&mut self, millis: u32) {
        rest(&self.machine, millis);
    }

    fn device(&self) -> Option<&AtaFacts> {
        self.port().device_behind(self.unit)
    }

    fn devices(&self) -> Devices<'_> {
        Devices::of(self.port(), self.unit)
    }

    fn errors(&self) -> &ErrorLog {
        self.port().errors()
    }
}

/// Lets this many milliseconds pass.
pub(crate) fn rest(clock: &impl Clock, millis: u32) {
    let until = clock.now().after_nanos(u64::from(millis) * 1_000_000);
    while clock.now() < until {
        clock.wait(Some(until));
    }
}

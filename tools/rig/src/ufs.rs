//! UFS stacks: machine, host controller driver, ports, disks.

use core::cell::Cell;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use flysch_api::command::NotStarted;
use flysch_api::count::counted;
use flysch_api::crypto::CryptoContext;
use flysch_api::machine::{DmaRegion, Identity, Machine};
use flysch_bench::results::Incident;
use flysch_cam::debug::{Traced, Tracer};
use flysch_cam::scan::SCRATCH_BYTES;
use flysch_cam::{Disk, Peripheral, Shape};
use flysch_files::Made;
use flysch_models::machine::Inline;
use flysch_models::media::energy::Energy;
use flysch_models::store::{FileStore, Store};
use flysch_models::ufs::{Config, Threaded, Ufs as Model, UnitConfig};
use flysch_ufs::policy::{Policy, Rules};
use flysch_ufs::{CryptoEngine, CryptoKey};
use flysch_ufs::{ErrorLog, Host, Link, LinkLimits, Operation, Output, UfsFacts, UfsOptions};
use flysch_ufs::{Port, QueueMode, Quirks};
use flysch_wire::ufs::registers::{Cap, Ver};
use zeroize::Zeroizing;

use crate::error::TargetError;
use crate::governed::Governed;
use crate::image::{self, Image};
use crate::incidents::{self, Witness};
use crate::lane::{Base, Lane, MemoryPlan};
use crate::open::{Metered, Needs, Open, Visitor};
use crate::pci;
use crate::scsi::{ScsiCommand, ScsiReply, scsi_command};
use crate::seat::{Seat, Unit};
use crate::target::{
    ClockKind, CryptoTarget, FaultsFrom, PciWait, QemuTarget, UfsPciTarget, UfsTarget,
};

/// Default size of a modelled logical unit.
pub(crate) const MODEL_SIZE: u64 = 4 << 30;

/// The speed of a threaded model in real time.
const REAL_TIME: u32 = 1000;

/// A UFS device with everything above it, up to the disks of one logical unit.
#[derive(Debug)]
pub struct Ufs<M: Machine> {
    pub(crate) machine: M,
    pub(crate) lanes: Vec<Lane<Port<M>>>,
    pub(crate) base: Base<UfsOptions>,
    /// The logical units that are its disks.
    pub(crate) luns: Vec<u8>,
    pub(crate) peripherals: Vec<Peripheral>,
    /// The driver's automatic actions in pauses; `None` for none.
    policy: Option<Policy>,
    description: String,
    /// The clock.
    clock: ClockKind,
    /// The image, if it was created for this.
    made: Option<Made>,
}

/// Access to a SCSI host that bypasses its disks, as required by `flysch cam`. No commands may be
/// in flight.
pub trait PassThrough {
    /// Executes a SCSI command, whatever its outcome.
    ///
    /// # Errors
    /// It was not executed.
    fn scsi(&mut self, command: &ScsiCommand) -> Result<ScsiReply, NotStarted>;
    /// Scans for logical units again, with reports to `tracer`, and returns those found.
    ///
    /// # Errors
    /// No unit answers.
    fn rescan(&mut self, tracer: Tracer) -> Result<&[Peripheral], TargetError>;
}

/// The management side of a UFS host, as required by `flysch ufs`. No commands may be in flight.
pub trait Control: PassThrough {
    /// Executes one operation and waits for it.
    ///
    /// # Errors
    /// The driver's error.
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_ufs::UfsError>;
    /// The logical units found by the scan.
    fn peripherals(&self) -> &[Peripheral];
    /// What bring-up learned about the device.
    fn device(&self) -> &UfsFacts;
    /// The state of the link.
    fn link(&self) -> Link;
    /// The errors so far.
    fn errors(&self) -> &ErrorLog;
    /// Information about the controller.
    fn controller(&self) -> Controller;
    /// Its crypto engine, if it has one.
    fn crypto(&self) -> Option<&CryptoEngine>;
}

/// Information about a host controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller {
    /// UFSHCI version.
    pub version: Ver,
    /// Its capabilities.
    pub capabilities: Cap,
    /// Its known deviations.
    pub quirks: Quirks,
    /// Whether multi-circular queues are in use.
    pub is_mcq: bool,
}

/// The modelled machine in this thread.
pub type ModelMachine = Inline<Model>;

/// Opens the model in this thread, under a virtual or a hybrid clock.
pub(crate) fn open_inline(
    target: &UfsTarget,
    needs: &Needs,
    seat: &mut Seat,
) -> Result<Ufs<ModelMachine>, TargetError> {
    let mode = target.clock.mode();
    open_model(target, needs, seat, |seat, model, memory| {
        Ok(seat.machine(model, memory, Identity::default(), mode))
    })
}

/// Bytes of memory not used for requests, for this many disks.
pub(crate) fn own_memory(target: &UfsTarget, needs: &Needs, disks: usize) -> usize {
    memory_plan::<ModelMachine>(&model_options(target, needs, disks), needs).own()
}

fn model_options(target: &UfsTarget, needs: &Needs, disks: usize) -> UfsOptions {
    UfsOptions {
        write_booster: Some(target.write_booster),
        event_interrupts: target.event_interrupts,
        aggregation: target.aggregation,
        auto_hibern8_us: target.auto_hibern8_us,
        ..driver_options(target.mcq, needs, target.gear, disks)
    }
}

/// Opens the model in its own thread, in real time.
pub(crate) fn open_threaded(
    target: &UfsTarget,
    needs: &Needs,
) -> Result<Ufs<Threaded>, TargetError> {
    open_model(target, needs, &mut Seat::default(), |_, model, memory| {
        Threaded::start(model, memory, Identity::default(), REAL_TIME).map_err(TargetError::Thread)
    })
}

fn open_model<M: Witness>(
    target: &UfsTarget,
    needs: &Needs,
    seat: &mut Seat,
    start: impl FnOnce(&Seat, Model, DmaRegion) -> Result<M, TargetError>,
) -> Result<Ufs<M>, TargetError> {
    let image =
        target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
    let mut config = model_config(target, image.as_ref().map(|image| image.bytes))?;
    let (profile, disks) = (config.profile.name, seat.disks());
    let luns: Vec<u8> = match seat.units.len() {
        0 => vec![target.lu],
        several => (0..several as u8).collect(),
    };
    if !seat.units.is_empty() {
        let unit = |unit: &mut Unit| {
            let block_size = target.block_size;
            Some(UnitConfig { store: unit.store(), block_size, ..UnitConfig::memory(unit.size) })
        };
        config.units = seat.units.iter_mut().map(unit).collect();
    }
    let options = model_options(target, needs, disks);
    let (region, plan) = seat.memory(memory_plan::<M>(&options, needs));
    let machine = start(seat, Model::new(config, region.clone())?, region.clone())?;
    let mut ufs = Ufs::assemble(machine, &region, &plan, options, &luns)?;
    if let Some(crypto) = &target.crypto {
        ufs.encrypt(crypto)?;
    }
    if target.rules != Rules::default() {
        ufs.policy = Some(Policy::new(target.rules, ufs.machine.now()));
    }
    let software = target
        .software
        .map_or_else(String::new, |software| format!(", the time of {}", software.description));
    ufs.description = format!("UFS model {profile}, {}{software}", queues(target.mcq));
    ufs.clock = target.clock;
    ufs.made = image.and_then(|image| image.made);
    if target.faults_from == FaultsFrom::Open {
        ufs.machine.arm(target.faults.clone());
    }
    Ok(ufs)
}

/// The model of `target`, with an image of this many bytes.
pub(crate) fn model_config(target: &UfsTarget, image: Option<u64>) -> Result<Config, TargetError> {
    let size = image.or(target.size).unwrap_or(MODEL_SIZE);
    let unit = |lun| {
        let block_size = target.block_size;
        let mut unit = UnitConfig { block_size, ..UnitConfig::memory(size) };
        unit.boot_id = if target.boot && lun <= 2 { lun } else { 0 };
        if let Some(path) = target.image.as_deref().filter(|_| lun == target.lu) {
            unit.store = Some(Store::File(FileStore::open(path, size)?));
        }
        Ok(Some(unit))
    };
    let units = (0..target.lus).map(unit).collect::<Result<_, TargetError>>()?;
    let default = Config::default();
    Ok(Config {
        profile: target.profile,
        software: target.software,
        units,
        queues: target.mcq.map_or(default.queues, u32::from),
        advanced_rpmb: target.advanced_rpmb,
        rpmb_key: target.rpmb_key.as_deref().map(rpmb_key).transpose()?,
        volatile_cache: target.faults.cuts_power(),
        faults: target.faults_from.at_power_on(&target.faults),
        seed: target.seed,
        ..default
    })
}

/// The key programmed into a model.
fn rpmb_key(path: &Path) -> Result<[u8; 32], TargetError> {
    let failed = |cause: String| TargetError::RpmbKey { path: path.into(), cause };
    let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let length = bytes.len();
    bytes.try_into().map_err(|_| failed(format!("it has {length} bytes, but a key has 32")))
}

/// The key of a disk: from its file, or a new one.
fn crypto_key(target: &CryptoTarget) -> Result<CryptoKey, TargetError> {
    const RANDOM: &str = "/dev/urandom";
    let path = target.key.as_deref().unwrap_or(Path::new(RANDOM));
    let failed = |cause: String| TargetError::CryptoKey { path: path.into(), cause };
    let mut bytes = Zeroizing::new(Vec::with_capacity(target.key_bytes + 1));
    let limit = target.key_bytes as u64 + u64::from(target.key.is_some());
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
    read.map_err(|error| failed(error.to_string()))?;
    if bytes.len() != target.key_bytes {
        let wanted = target.key_bytes;
        return Err(failed(match bytes.len() {
            more if more > wanted => {
                format!("it has more than {wanted} bytes, but a key has {wanted}")
            }
            less => format!("it has {less} bytes, but a key has {wanted}"),
        }));
    }
    CryptoKey::aes_xts(&bytes, target.unit).map_err(|error| failed(error.to_string()))
}

/// Starts QEMU and opens its device.
pub(crate) fn open_qemu(
    target: &QemuTarget,
    needs: &Needs,
) -> Result<Ufs<flysch_qemu::Machine>, TargetError> {
    let options = driver_options(target.mcq, needs, None, 1);
    let plan = memory_plan::<flysch_qemu::Machine>(&options, needs);
    let (qemu, made) = qemu_options(target, plan.total() as u64)?;
    let machine = flysch_qemu::Machine::start(&qemu)?;
    let version = machine.version();
    let region = machine.memory().clone();
    let mut ufs = Ufs::assemble(machine, &region, &plan, options, &[0])?;
    ufs.description = format!("UFS device of QEMU {version}, {}", queues(target.mcq));
    ufs.made = made;
    Ok(ufs)
}

/// The QEMU options for its device, and the image that was created for it.
pub(crate) fn qemu_options(
    target: &QemuTarget,
    memory_bytes: u64,
) -> Result<(flysch_qemu::QemuOptions, Option<Made>), TargetError> {
    let (backing, made) = image::for_qemu(target.image.as_deref(), target.size)?;
    let options = flysch_qemu::QemuOptions {
        program: target.qemu.clone(),
        controller: flysch_qemu::Controller::Ufs,
        queues: target.mcq.unwrap_or(0),
        memory_bytes,
        units: vec![flysch_qemu::Unit { lun: 0, backing, read_only: false }],
        socket: None,
    };
    Ok((options, made))
}

/// Opens a host controller of this machine.
pub(crate) fn open_pci(
    target: &UfsPciTarget,
    needs: &Needs,
) -> Result<Ufs<flysch_vfio::Machine>, TargetError> {
    let options = UfsOptions {
        interrupts: target.place.wait != PciWait::Poll,
        ..driver_options(target.mcq, needs, target.gear, 1)
    };
    let plan = memory_plan::<flysch_vfio::Machine>(&options, needs);
    // All queues share the line.
    let machine = pci::open(&target.place, flysch_vfio::Controller::Ufs, plan.total(), 1)?;
    let (region, how) = (machine.memory().clone(), pci::description(&machine));
    let mut ufs = Ufs::assemble(machine, &region, &plan, options, &[target.lu])?;
    ufs.lanes.iter_mut().for_each(|lane| lane.tell(ufs.machine.spin()));
    ufs.description = format!("{how}, {}", queues(target.mcq));
    Ok(ufs)
}

fn queues(mcq: Option<u8>) -> String {
    match mcq {
        None => "single doorbell".into(),
        Some(queues) => counted(queues, "queue", "queues").to_string(),
    }
}

/// Each of `disks` has its own lanes.
fn driver_options(mcq: Option<u8>, needs: &Needs, gear: Option<u8>, disks: usize) -> UfsOptions {
    let default = LinkLimits::default();
    let each = |queues: u8| usize::from(queues).min(needs.lanes.max(1).into());
    UfsOptions {
        queue: if mcq.is_some() { QueueMode::Mcq } else { QueueMode::Sdq },
        // The single doorbell's slots are not worth dividing for one thread.
        lanes: mcq.map_or(disks, |queues| each(queues) * disks).min(u8::MAX.into()) as u8,
        depth: needs.queue_depth.clamp(1, 255) as u16,
        link: LinkLimits { gear: gear.unwrap_or(default.gear), ..default },
        ..UfsOptions::default()
    }
}

/// Maximum command slots of a lane: the task tag is one byte.
const SLOTS_MAX: u32 = 256;

fn memory_plan<M: Machine>(options: &UfsOptions, needs: &Needs) -> MemoryPlan {
    let scratch = Disk::<Port<M>>::scratch_bytes(SLOTS_MAX).max(SCRATCH_BYTES);
    MemoryPlan::new(needs, options.lanes.into(), Host::<M>::memory_len(options), scratch)
}

impl<M: Machine> Ufs<M> {
    /// Brings up the host over `machine`, whose memory is `region`, and opens the disks on `luns`,
    /// which have equally many lanes, one after the other.
    fn assemble(
        machine: M,
        region: &DmaRegion,
        plan: &MemoryPlan,
        options: UfsOptions,
        luns: &[u8],
    ) -> Result<Self, TargetError> {
        let base = Base { region: region.clone(), plan: *plan, options };
        let mut host = Host::new(machine.clone(), base.driver(), base.options.clone())?;
        host.bring_up(&machine)?;
        let mut ports = host.into_ports();
        let peripherals = flysch_cam::scan(&mut ports[0], &machine, &plan.scratch(region, 0))?;
        let shapes = luns.iter().map(|lun| disk_shape(&peripherals, *lun));
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        let each = ports.len() / luns.len();
        let disk = |(lane, port): (usize, Port<M>)| {
            let shape = shapes[(lane / each).min(luns.len() - 1)];
            Ok(base.lane(lane, port, shape)?)
        };
        let lanes =
            ports.into_iter().enumerate().map(disk).collect::<Result<Vec<_>, TargetError>>()?;
        let description = String::new();
        let (luns, clock, made) = (luns.to_vec(), ClockKind::Real, None);
        let policy = None;
        Ok(Self { machine, lanes, base, luns, peripherals, policy, description, clock, made })
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Gives the controller the key of the disk, and makes all lanes use it.
    fn encrypt(&mut self, target: &CryptoTarget) -> Result<(), TargetError> {
        const SLOT: u8 = 0;
        let key = crypto_key(target)?;
        self.operate(Operation::ProgramKey { slot: SLOT, key })?;
        let context = CryptoContext { number: 0, unit: target.unit, slot: SLOT };
        for lane in &mut self.lanes {
            lane.crypto = Some(context);
        }
        Ok(())
    }

    fn host(&self) -> &Host<M> {
        self.lanes[0].disk.port().host().expect("the first port carries the host")
    }

    fn host_mut(&mut self) -> &mut Host<M> {
        self.lanes[0].disk.port_mut().host_mut().expect("the first port carries the host")
    }
}

impl<M: Witness> Metered for Ufs<M> {
    fn energy(&self) -> Option<Energy> {
        self.machine.energy()
    }
}

impl<M: Witness> Open for Ufs<M> {
    type Lane = Lane<Port<M>>;
    type Clock = M;

    fn parts(&mut self) -> (&mut [Lane<Port<M>>], &M) {
        (&mut self.lanes, &self.machine)
    }

    fn visit<V: Visitor>(&mut self, visitor: V) -> V::Output {
        let Some(policy) = &mut self.policy else {
            return visitor.visit(&mut self.lanes, &self.machine);
        };
        let load = Cell::new(0);
        let mut lanes = Governed::all(&mut self.lanes, policy, &load);
        visitor.visit(&mut lanes, &self.machine)
    }

    fn first(&self) -> &Lane<Port<M>> {
        &self.lanes[0]
    }

    fn about(&self) -> (&str, ClockKind) {
        (&self.description, self.clock)
    }

    fn incidents(&self) -> Vec<Incident> {
        let mut all = self.machine.injected();
        all.extend(incidents::of_disks(self.lanes.iter().map(|lane| lane.disk.statistics())));
        all.extend(incidents::of_driver(self.host().errors()));
        all
    }

    fn failure(&self) -> Option<String> {
        self.machine.failure()
    }

    fn made(&mut self) -> &mut Option<Made> {
        &mut self.made
    }
}

/// The properties of the disk on `lun`.
pub(crate) fn disk_shape(peripherals: &[Peripheral], lun: u8) -> Result<Shape, TargetError> {
    match peripherals.iter().find(|peripheral| peripheral.lun.to_ufs() == Some(lun)) {
        Some(peripheral) => Ok(peripheral.shape()?),
        None => {
            let present: Vec<String> = peripherals.iter().map(|p| p.lun.to_string()).collect();
            Err(TargetError::NoUnit { lun, present: present.join(", ") })
        }
    }
}

impl<M: Machine> PassThrough for Ufs<M> {
    fn scsi(&mut self, command: &ScsiCommand) -> Result<ScsiReply, NotStarted> {
        let machine = self.machine.clone();
        let Lane { disk, memory, .. } = &mut self.lanes[0];
        scsi_command(disk.port_mut(), &machine, memory, command)
    }

    fn rescan(&mut self, tracer: Tracer) -> Result<&[Peripheral], TargetError> {
        let machine = self.machine.clone();
        let Lane { disk, memory, .. } = &mut self.lanes[0];
        let mut port = Traced::probe(disk.port_mut(), tracer);
        let found = flysch_cam::scan(&mut port, &machine, memory);
        port.finish();
        self.peripherals = found?;
        Ok(&self.peripherals)
    }
}

impl<M: Machine> Control for Ufs<M> {
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_ufs::UfsError> {
        let machine = self.machine.clone();
        self.host_mut().run(&machine, operation)
    }

    fn peripherals(&self) -> &[Peripheral] {
        &self.peripherals
    }

    fn device(&self) -> &UfsFacts {
        self.host().device()
    }

    fn link(&self) -> Link {
        self.host().link()
    }

    fn errors(&self) -> &ErrorLog {
        self.host().errors()
    }

    fn crypto(&self) -> Option<&CryptoEngine> {
        self.host().crypto()
    }

    fn controller(&self) -> Controller {
        let host = self.host();
        Controller {
            version: host.version(),
            capabilities: host.capabilities(),
            quirks: host.quirks(),
            is_mcq: host.is_mcq(),
        }
    }
}

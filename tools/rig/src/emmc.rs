//! eMMC and SD stacks: machine, driver, ports, disks.

use flysch_api::count::counted;
use flysch_api::machine::{Identity, Machine};
use flysch_bench::results::Incident;
use flysch_cam::{Disk, Shape, sdda};
use flysch_emmc::{CardFacts, EmmcOptions, ErrorLog, Host, Operation, Output, Port, Queueing};
use flysch_files::Made;
use flysch_models::emmc::profile::{Dialect, Profile};
use flysch_models::emmc::{Config, Emmc as Model};
use flysch_models::machine::Inline;
use flysch_models::media::energy::Energy;
use flysch_models::store::{FileStore, Store};
use flysch_wire::mmc::{NATIVE_SECTOR, SECTOR};

use crate::error::TargetError;
use crate::image::{self, Image};
use crate::incidents::{self, Witness};
use crate::lane::{Base, Lane, MemoryPlan};
use crate::open::{Metered, Needs, Open};
use crate::pci;
use crate::seat::Seat;
use crate::target::{
    CardKind, CardPciTarget, CardQemuTarget, ClockKind, EmmcTarget, FaultsFrom, PciWait,
};
use crate::ufs::MODEL_SIZE;

/// Intel's Elkhart Lake controller, which the model resembles: its ID tells the driver where the
/// engine is.
const IDENTITY: Identity = Identity { vendor: 0x8086, device: 0x4B47 };

/// A controller that nobody knows, for SD cards: its features are those in its capabilities.
pub(crate) const PLAIN: Identity = Identity { vendor: 0x1B36, device: 0x0F5D };

/// An eMMC or SD host with everything above it, up to the disks of one partition.
#[derive(Debug)]
pub struct Emmc<M: Machine> {
    pub(crate) machine: M,
    pub(crate) lanes: Vec<Lane<Port<M>>>,
    pub(crate) base: Base<EmmcOptions>,
    /// Bytes that a block of the disk has at least, whatever smaller ones the card takes.
    pub(crate) block_min: u32,
    description: String,
    clock: ClockKind,
    /// The image, if it was created for this.
    made: Option<Made>,
}

/// The management side of an eMMC host. No commands may be in flight.
pub trait EmmcControl {
    /// Executes one operation and waits for it.
    ///
    /// # Errors
    /// The driver's error.
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_emmc::EmmcError>;
    /// What bring-up learned about the card and the bus.
    fn device(&self) -> &CardFacts;
    /// The errors so far.
    fn errors(&self) -> &ErrorLog;
}

/// The modelled machine in this thread.
pub(crate) type EmmcMachine = Inline<Model>;

/// Opens the model in this thread, under a virtual or a hybrid clock.
pub(crate) fn open_inline(
    target: &EmmcTarget,
    needs: &Needs,
    seat: &mut Seat,
) -> Result<Emmc<EmmcMachine>, TargetError> {
    let mode = target.clock.mode();
    let image =
        target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
    let mut config = model_config(target, image.as_ref().map(|image| image.bytes))?;
    if let Some(unit) = seat.units.first_mut() {
        (config.size, config.store) = (unit.size, unit.store());
    }
    let Profile { name: profile, dialect, .. } = config.profile;
    let (kind, identity) = match dialect {
        Dialect::Emmc => ("eMMC", IDENTITY),
        Dialect::Sd { .. } => ("SD card", PLAIN),
    };
    let options = model_options(target, needs);
    let (region, plan) = seat.memory(plan::<EmmcMachine>(&options, needs));
    let model = Model::new(config, region.clone())?;
    let machine = seat.machine(model, region.clone(), identity, mode);
    let base = Base { region, plan, options };
    let mut emmc = Emmc::assemble(machine, base, target.block_size)?;
    emmc.description = format!("{kind} model {profile}, {}", emmc.bus());
    emmc.clock = target.clock;
    emmc.made = image.and_then(|image| image.made);
    if target.faults_from == FaultsFrom::Open {
        emmc.machine.arm(target.faults.clone());
    }
    Ok(emmc)
}

/// Bytes of memory not used for requests.
pub(crate) fn own_memory(target: &EmmcTarget, needs: &Needs) -> usize {
    plan::<EmmcMachine>(&model_options(target, needs), needs).own()
}

fn model_options(target: &EmmcTarget, needs: &Needs) -> EmmcOptions {
    EmmcOptions {
        lanes: u16::from(target.lanes).min(needs.lanes.max(1)),
        queueing: if target.queue { Queueing::Auto } else { Queueing::Off },
        timing: target.timing,
        ..driver_options(target.dma, target.partition, needs)
    }
}

/// The model of `target`, with an image of this many bytes.
pub(crate) fn model_config(target: &EmmcTarget, image: Option<u64>) -> Result<Config, TargetError> {
    let size = image.or(target.size).unwrap_or(MODEL_SIZE);
    let store = target.image.as_deref().map(|path| FileStore::open(path, size)).transpose()?;
    Ok(Config {
        profile: target.profile,
        store: store.map(Store::File),
        size,
        native_sectors: target.block_size == NATIVE_SECTOR,
        general: target.general.into_iter().collect(),
        volatile_cache: target.faults.cuts_power(),
        faults: target.faults_from.at_power_on(&target.faults),
        seed: target.seed,
        ..Config::default()
    })
}

/// Starts QEMU and opens its card.
pub(crate) fn open_qemu(
    target: &CardQemuTarget,
    needs: &Needs,
) -> Result<Emmc<flysch_qemu::Machine>, TargetError> {
    let options = driver_options(target.dma, target.partition, needs);
    let plan = plan::<flysch_qemu::Machine>(&options, needs);
    let name = match target.kind {
        CardKind::Emmc { .. } => "eMMC device",
        CardKind::Sd => "SD card",
    };
    let (qemu, made) = qemu_options(target, plan.total() as u64)?;
    let machine = flysch_qemu::Machine::start(&qemu)?;
    let version = machine.version();
    let region = machine.memory().clone();
    let base = Base { region, plan, options };
    let mut emmc = Emmc::assemble(machine, base, SECTOR)?;
    emmc.description = format!("{name} of QEMU {version}, {}", emmc.bus());
    emmc.made = made;
    Ok(emmc)
}

/// The QEMU options for its card, and the image that was created for it.
pub(crate) fn qemu_options(
    target: &CardQemuTarget,
    memory_bytes: u64,
) -> Result<(flysch_qemu::QemuOptions, Option<Made>), TargetError> {
    let (controller, extra) = match target.kind {
        CardKind::Emmc { boot, rpmb } => {
            let controller = flysch_qemu::Controller::Emmc { boot_bytes: boot, rpmb_bytes: rpmb };
            (controller, 2 * boot + rpmb)
        }
        CardKind::Sd => (flysch_qemu::Controller::Sd, 0),
    };
    // The size is that of the user area; what QEMU is given holds everything.
    let user = match (&target.image, target.size) {
        (None, size) => Some(size.unwrap_or(image::QEMU_SIZE)),
        (Some(_), size) => size,
    };
    let whole = user.map(|bytes| bytes.saturating_add(extra));
    let (backing, made) = image::for_qemu(target.image.as_deref(), whole)?;
    let options = flysch_qemu::QemuOptions {
        program: target.qemu.clone(),
        controller,
        queues: 0,
        memory_bytes,
        units: vec![flysch_qemu::Unit { lun: 0, backing, read_only: false }],
        socket: None,
    };
    Ok((options, made))
}

/// Opens the card on a controller of this machine.
pub(crate) fn open_pci(
    target: &CardPciTarget,
    needs: &Needs,
) -> Result<Emmc<flysch_vfio::Machine>, TargetError> {
    let options = EmmcOptions {
        queueing: if target.queue { Queueing::Auto } else { Queueing::Off },
        timing: target.timing,
        interrupts: target.place.wait != PciWait::Poll,
        ..driver_options(target.dma, target.partition, needs)
    };
    let plan = plan::<flysch_vfio::Machine>(&options, needs);
    let machine = pci::open(&target.place, flysch_vfio::Controller::Sdhci, plan.total(), 1)?;
    let (region, how) = (machine.memory().clone(), pci::description(&machine));
    let base = Base { region, plan, options };
    let mut emmc = Emmc::assemble(machine, base, SECTOR)?;
    let found = emmc.device().kind;
    if found != target.kind {
        return Err(TargetError::OtherCard { address: target.place.address, found });
    }
    emmc.lanes.iter_mut().for_each(|lane| lane.tell(emmc.machine.spin()));
    emmc.description = format!("{how}, {}", emmc.bus());
    Ok(emmc)
}

fn driver_options(dma: bool, partition: u8, needs: &Needs) -> EmmcOptions {
    EmmcOptions {
        depth: needs.queue_depth.clamp(1, EmmcOptions::DEPTH_MAX.into()) as u16,
        dma,
        partition,
        ..EmmcOptions::default()
    }
}

fn plan<M: Machine>(options: &EmmcOptions, needs: &Needs) -> MemoryPlan {
    let scratch = Disk::<Port<M>>::scratch_bytes(options.depth.into());
    let scratch = scratch.next_multiple_of(4096);
    MemoryPlan::new(needs, options.lanes.into(), Host::<M>::memory_len(options), scratch)
}

impl<M: Machine> Emmc<M> {
    /// Brings up the host over `machine`, and opens the disk on its partition, whose blocks have
    /// `block_min` bytes at least.
    fn assemble(machine: M, base: Base<EmmcOptions>, block_min: u32) -> Result<Self, TargetError> {
        let mut host = Host::new(machine.clone(), base.driver(), base.options.clone())?;
        host.bring_up(&machine)?;
        let shape = disk_shape(host.device(), block_min)?;
        let disk = |(lane, port)| Ok(base.lane(lane, port, shape)?);
        let ports = host.into_ports().into_iter();
        let lanes = ports.enumerate().map(disk).collect::<Result<Vec<_>, TargetError>>()?;
        let clock = ClockKind::Real;
        let description = String::new();
        Ok(Self { machine, lanes, base, block_min, description, clock, made: None })
    }

    /// The bus in words.
    fn bus(&self) -> String {
        let CardFacts { timing, lines, queue_depth, .. } = self.host().device();
        let queue = match queue_depth {
            0 => "one command at a time".into(),
            depth => counted(*depth, "task", "tasks").to_string(),
        };
        format!("{timing} on {}, {queue}", counted(*lines, "line", "lines"))
    }

    pub(crate) fn host(&self) -> &Host<M> {
        self.lanes[0].disk.port().host().expect("the first port carries the host")
    }

    pub(crate) fn host_mut(&mut self) -> &mut Host<M> {
        self.lanes[0].disk.port_mut().host_mut().expect("the first port carries the host")
    }
}

impl<M: Witness> Metered for Emmc<M> {
    fn energy(&self) -> Option<Energy> {
        self.machine.energy()
    }
}

impl<M: Witness> Open for Emmc<M> {
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
        let kinds = self.host().errors().counts();
        all.extend(kinds.map(|(kind, count)| incidents::incident("driver", kind.name(), count)));
        all
    }

    fn failure(&self) -> Option<String> {
        self.machine.failure()
    }

    fn made(&mut self) -> &mut Option<Made> {
        &mut self.made
    }
}

/// The properties of the disk on the selected partition, whose blocks have at least `block_min`
/// bytes: a block of a card may be several of its sectors.
pub(crate) fn disk_shape(device: &CardFacts, block_min: u32) -> Result<Shape, TargetError> {
    let card = sdda::Card {
        sectors: device.partition_sectors(device.partition),
        block_size: device.block_size().max(block_min),
        cache: device.cache,
        reliable_write: device.has_reliable_write(),
        trim: device.has_trim(),
        write_protected: device.csd.write_protected,
    };
    Ok(sdda::shape(device.partition, &card)?)
}

impl<M: Machine> EmmcControl for Emmc<M> {
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_emmc::EmmcError> {
        let machine = self.machine.clone();
        self.host_mut().run(&machine, operation)
    }

    fn device(&self) -> &CardFacts {
        self.host().device()
    }

    fn errors(&self) -> &ErrorLog {
        self.host().errors()
    }
}

//! NVMe stacks: machine, driver, ports, disks.

use flysch_api::command::{Command, Direction, Ended, NotStarted, NvmeCommand, NvmeStatus};
use flysch_api::command::{Ordering, Port as _, Token};
use flysch_api::count::counted;
use flysch_api::data::Data;
use flysch_api::machine::{DmaRegion, Identity, Machine, Wake};
use flysch_bench::results::Incident;
use flysch_cam::{Disk, Shape, nda};
use flysch_files::Made;
use flysch_models::machine::Inline;
use flysch_models::media::energy::Energy;
use flysch_models::nvme::{Config, NamespaceConfig, Nvme as Model, ZoneConfig};
use flysch_models::store::{FileStore, Store};
use flysch_nvme::{
    AdminCommand, AdminData, AdminReply, ErrorLog, Host, NvmeFacts, NvmeOptions, Operation, Output,
};
use flysch_nvme::{Namespace, Port, Quirks};
use flysch_wire::nvme::Cns;
use flysch_wire::nvme::registers::{Cap, Version};
use flysch_wire::nvme::zone::{self, IdentifyZonedNamespace};

use crate::error::TargetError;
use crate::image::{self, Image};
use crate::incidents::{self, Witness};
use crate::lane::{Base, Lane, MemoryPlan};
use crate::open::{Metered, Needs, Open};
use crate::pci;
use crate::seat::{Seat, Unit};
use crate::target::{ClockKind, FaultsFrom, NvmePciTarget, NvmeQemuTarget, NvmeTarget, PciWait};
use crate::ufs::MODEL_SIZE;

/// An NVMe controller with everything above it, up to the disks of one namespace.
#[derive(Debug)]
pub struct Nvme<M: Machine> {
    pub(crate) machine: M,
    pub(crate) lanes: Vec<Lane<Port<M>>>,
    pub(crate) base: Base<NvmeOptions>,
    /// For each disk; commands go to the first.
    pub(crate) namespaces: Vec<u32>,
    description: String,
    /// The clock.
    clock: ClockKind,
    /// The image, if it was created for this.
    made: Option<Made>,
}

/// The management side of an NVMe host, as required by `flysch nvme`. No commands may be in flight.
pub trait NvmeControl {
    /// Executes one operation and waits for it.
    ///
    /// # Errors
    /// The driver's error.
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_nvme::NvmeError>;
    /// The namespace that is the disk.
    fn namespace(&self) -> u32;
    /// What bring-up learned about the controller and its namespaces.
    fn device(&self) -> &NvmeFacts;
    /// The errors so far.
    fn errors(&self) -> &ErrorLog;
    /// Version, capabilities and known deviations of the controller.
    fn controller(&self) -> (Version, Cap, Quirks);

    /// Lets this many milliseconds pass.
    fn rest(&mut self, millis: u32);

    /// Executes a command to a namespace, whatever its outcome; its data has room in the memory of
    /// the stack.
    ///
    /// # Errors
    /// The driver's error; [`Recovered`](flysch_nvme::NvmeError::Recovered) if a recovery ended it.
    fn io(&mut self, command: AdminCommand) -> Result<AdminReply, flysch_nvme::NvmeError>;
}

impl dyn NvmeControl + '_ {
    /// Executes an admin command, whatever its outcome.
    ///
    /// # Errors
    /// The driver's error.
    pub fn admin(&mut self, command: AdminCommand) -> Result<AdminReply, flysch_nvme::NvmeError> {
        match self.operate(Operation::Admin(Box::new(command)))? {
            Output::Admin(reply) => Ok(reply),
            Output::None => Err(flysch_nvme::NvmeError::NotUp),
        }
    }
}

/// How long a command to a namespace may take, ms (Linux: 30 s).
const IO_MS: u32 = 30_000;

/// The modelled machine in this thread.
pub type NvmeMachine = Inline<Model>;

/// Opens the model in this thread, under a virtual or a hybrid clock.
pub(crate) fn open_inline(
    target: &NvmeTarget,
    needs: &Needs,
    seat: &mut Seat,
) -> Result<Nvme<NvmeMachine>, TargetError> {
    let mode = target.clock.mode();
    let image =
        target.image.as_deref().map(|path| Image::prepare(path, target.size)).transpose()?;
    let mut config = model_config(target, image.as_ref().map(|image| image.bytes))?;
    let (profile, disks) = (config.profile.name, seat.disks());
    let options = model_options(target, needs, disks);
    let ids: Vec<u32> = match seat.units.len() {
        0 => vec![target.namespace.into()],
        several => (1..=several as u32).collect(),
    };
    if !seat.units.is_empty() {
        let block_size = target.block_size;
        let namespace = |unit: &mut Unit| {
            let store = unit.store();
            NamespaceConfig { store, block_size, ..NamespaceConfig::memory(unit.size) }
        };
        config.namespaces = seat.units.iter_mut().map(namespace).collect();
        config.queues = config.queues.max(options.lanes);
        config.vectors = if target.vectors { config.queues + 1 } else { 1 };
    }
    let (region, plan) = seat.memory(plan::<NvmeMachine>(&options, needs));
    let model = Model::new(config, region.clone())?;
    let machine = seat.machine(model, region.clone(), Identity::default(), mode);
    let mut nvme = Nvme::assemble(machine, &region, &plan, options, (&ids, needs.zones))?;
    let software = target
        .software
        .map_or_else(String::new, |software| format!(", the time of {}", software.description));
    nvme.description = format!("NVMe model {profile}, {}{software}", queues(target.queues));
    nvme.clock = target.clock;
    nvme.made = image.and_then(|image| image.made);
    if target.faults_from == FaultsFrom::Open {
        nvme.machine.arm(target.faults.clone());
    }
    Ok(nvme)
}

/// Bytes of memory not used for requests, for this many disks.
pub(crate) fn own_memory(target: &NvmeTarget, needs: &Needs, disks: usize) -> usize {
    plan::<NvmeMachine>(&model_options(target, needs, disks), needs).own()
}

/// Each of `disks` has its own lanes.
fn model_options(target: &NvmeTarget, needs: &Needs, disks: usize) -> NvmeOptions {
    let wanted = target.profile.host_memory.map_or(0, |memory| memory.preferred);
    let host_memory = target.host_memory.min(wanted);
    let options = driver_options(target.queues, needs);
    NvmeOptions {
        host_memory,
        shadow_doorbells: target.shadow_doorbells,
        power_saving: target.power_saving,
        lanes: options.lanes * disks as u16,
        ..options
    }
}

/// The model of `target`, with an image of this many bytes.
pub(crate) fn model_config(target: &NvmeTarget, image: Option<u64>) -> Result<Config, TargetError> {
    let size = image.or(target.size).unwrap_or(MODEL_SIZE);
    let namespace = |id| {
        let block_size = target.block_size;
        let mut space = NamespaceConfig { block_size, ..NamespaceConfig::memory(size) };
        space.zones = (target.zone_bytes > 0).then_some(ZoneConfig {
            size: target.zone_bytes,
            open_max: 0,
            active_max: 0,
        });
        if let Some(path) = target.image.as_deref().filter(|_| id == target.namespace) {
            space.store = Some(Store::File(FileStore::open(path, size)?));
        }
        Ok(space)
    };
    let namespaces = (1..=target.namespaces).map(namespace).collect::<Result<_, TargetError>>()?;
    let queues = u16::from(target.queues);
    Ok(Config {
        profile: target.profile,
        software: target.software,
        namespaces,
        queues,
        vectors: if target.vectors { queues + 1 } else { 1 },
        sgls: target.sgls,
        shadow_doorbells: target.shadow_doorbells,
        controller_memory: target.controller_memory,
        volatile_cache: target.faults.cuts_power(),
        faults: target.faults_from.at_power_on(&target.faults),
        seed: target.seed,
        ..Config::default()
    })
}

/// Starts QEMU and opens its device.
pub(crate) fn open_qemu(
    target: &NvmeQemuTarget,
    needs: &Needs,
) -> Result<Nvme<flysch_qemu::Machine>, TargetError> {
    let options = NvmeOptions {
        sgls: target.sgls,
        shadow_doorbells: target.shadow_doorbells,
        ..driver_options(target.queues, needs)
    };
    let plan = plan::<flysch_qemu::Machine>(&options, needs);
    let (qemu, made) = qemu_options(target, plan.total() as u64)?;
    let machine = flysch_qemu::Machine::start(&qemu)?;
    let version = machine.version();
    let region = machine.memory().clone();
    let mut nvme = Nvme::assemble(machine, &region, &plan, options, (&[1], needs.zones))?;
    nvme.description = format!("NVMe device of QEMU {version}, {}", queues(target.queues));
    nvme.made = made;
    Ok(nvme)
}

/// The QEMU options for its device, and the image that was created for it.
pub(crate) fn qemu_options(
    target: &NvmeQemuTarget,
    memory_bytes: u64,
) -> Result<(flysch_qemu::QemuOptions, Option<Made>), TargetError> {
    let (backing, made) = image::for_qemu(target.image.as_deref(), target.size)?;
    let (other, _) = image::for_qemu(None, target.size)?;
    let unit = |lun| {
        let is_disk = lun + 1 == target.namespace;
        let backing = if is_disk { backing.clone() } else { other.clone() };
        flysch_qemu::Unit { lun, backing, read_only: false }
    };
    let options = flysch_qemu::QemuOptions {
        program: target.qemu.clone(),
        controller: flysch_qemu::Controller::Nvme(flysch_qemu::NvmeDevice {
            block_size: target.block_size,
            memory_mib: target.memory_mib,
            zone_bytes: target.zone_bytes,
            controllers: target.controllers,
        }),
        queues: target.queues,
        memory_bytes,
        units: (0..target.namespaces).map(unit).collect(),
        socket: None,
    };
    Ok((options, made))
}

/// Opens a controller of this machine.
pub(crate) fn open_pci(
    target: &NvmePciTarget,
    needs: &Needs,
) -> Result<Nvme<flysch_vfio::Machine>, TargetError> {
    let interrupts = target.place.wait != PciWait::Poll;
    let options = NvmeOptions { interrupts, ..driver_options(target.queues, needs) };
    let plan = plan::<flysch_vfio::Machine>(&options, needs);
    let (controller, vectors) = (flysch_vfio::Controller::Nvme, options.lanes + 1);
    let machine = pci::open(&target.place, controller, plan.total(), vectors)?;
    let (region, how) = (machine.memory().clone(), pci::description(&machine));
    let mut nvme =
        Nvme::assemble(machine, &region, &plan, options, (&[target.namespace], needs.zones))?;
    nvme.lanes.iter_mut().for_each(|lane| lane.tell(nvme.machine.spin()));
    nvme.description = format!("{how}, {}", queues(target.queues));
    Ok(nvme)
}

fn queues(count: u8) -> String {
    counted(count, "queue", "queues").to_string()
}

fn driver_options(queues: u8, needs: &Needs) -> NvmeOptions {
    NvmeOptions {
        lanes: u16::from(queues).min(needs.lanes.max(1)),
        depth: needs.queue_depth.clamp(1, NvmeOptions::DEPTH_MAX.into()) as u16,
        ..NvmeOptions::default()
    }
}

fn plan<M: Machine>(options: &NvmeOptions, needs: &Needs) -> MemoryPlan {
    let scratch = Disk::<Port<M>>::scratch_bytes(options.depth.into());
    let scratch = scratch.next_multiple_of(4096);
    MemoryPlan::new(needs, options.lanes.into(), Host::<M>::memory_len(options), scratch)
}

impl<M: Machine> Nvme<M> {
    /// Brings up the host over `machine`, whose memory is `region`, and opens the disks on
    /// `namespaces`, which have equally many lanes, one after the other; `zones`: who uses them
    /// keeps the rules of zones.
    fn assemble(
        machine: M,
        region: &DmaRegion,
        plan: &MemoryPlan,
        options: NvmeOptions,
        (namespaces, zones): (&[u32], bool),
    ) -> Result<Self, TargetError> {
        let base = Base { region: region.clone(), plan: *plan, options };
        let mut host = Host::new(machine.clone(), base.driver(), base.options.clone())?;
        host.bring_up(&machine)?;
        let shapes = namespaces.iter().map(|id| disk_shape(host.device(), *id));
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        let zone_blocks = if zones { zone_blocks(&mut host, &machine, namespaces[0])? } else { 0 };
        let options = flysch_cam::DiskOptions { zone_blocks, ..flysch_cam::DiskOptions::default() };
        let ports = host.into_ports();
        let each = ports.len() / namespaces.len();
        let disk = |(lane, port): (usize, Port<M>)| {
            let shape = shapes[(lane / each).min(namespaces.len() - 1)];
            let write_protected = shape.write_protected && zone_blocks == 0;
            let shape = Shape { write_protected, ..shape };
            Ok(base.lane_with(lane, (port, shape), &options)?)
        };
        let lanes =
            ports.into_iter().enumerate().map(disk).collect::<Result<Vec<_>, TargetError>>()?;
        let (description, clock) = (String::new(), ClockKind::Real);
        let namespaces = namespaces.to_vec();
        Ok(Self { machine, lanes, base, namespaces, description, clock, made: None })
    }

    /// The machine.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    pub(crate) fn host(&self) -> &Host<M> {
        self.lanes[0].disk.port().host().expect("the first port carries the host")
    }

    pub(crate) fn host_mut(&mut self) -> &mut Host<M> {
        self.lanes[0].disk.port_mut().host_mut().expect("the first port carries the host")
    }
}

impl<M: Witness> Metered for Nvme<M> {
    fn energy(&self) -> Option<Energy> {
        self.machine.energy()
    }
}

impl<M: Witness> Open for Nvme<M> {
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

/// Passes a command to a namespace through a port that is otherwise idle.
fn pass<M: Machine>(
    port: &mut Port<M>,
    clock: &M,
    memory: &DmaRegion,
    command: AdminCommand,
) -> Result<AdminReply, flysch_nvme::NvmeError> {
    use flysch_nvme::NvmeError;
    let (direction, bytes) = match &command.data {
        AdminData::None => (Direction::None, 0),
        AdminData::In(bytes) => (Direction::FromDevice, *bytes as usize),
        AdminData::Out(data) => (Direction::ToDevice, data.len()),
    };
    if bytes > memory.len() {
        return Err(NvmeError::Unsupported("more data than the stack has memory for"));
    }
    if let AdminData::Out(data) = &command.data {
        memory.write(0, data);
    }
    let data = if bytes > 0 { memory.slice(0, bytes as u32).into() } else { Data::NONE };
    let (opcode, cdw10) = (command.opcode, command.cdw10);
    let millis = command.timeout_ms.unwrap_or(IO_MS);
    let command = Command::<flysch_api::command::Nvme> {
        unit: command.nsid.into(),
        payload: NvmeCommand { opcode, cdw10, ..NvmeCommand::default() },
        direction,
        data,
        crypto: None,
        ordering: Ordering::Simple,
        deadline: clock.now().after_nanos(u64::from(millis) * 1_000_000),
        token: Token::new(0),
    };
    port.start(command, clock.now()).map_err(|declined| match declined.why {
        NotStarted::Full => NvmeError::Busy,
        NotStarted::Gone => NvmeError::Gone,
        NotStarted::BadData(_) | NotStarted::Unsupported => {
            NvmeError::Unsupported("more data than one command can move")
        }
    })?;
    port.ring(clock.now());
    let ended = loop {
        if let Some(outcome) = port.poll(clock.now()) {
            break outcome.ended;
        }
        let until = port.poll_at();
        if clock.wait(until) == Wake::Idle && until.is_none() {
            return Err(NvmeError::Gone);
        }
    };
    let status = match ended {
        Ended::Good => NvmeStatus::default(),
        Ended::Answered => port.failure().status,
        Ended::Gone | Ended::NoUnit => return Err(NvmeError::Gone),
        Ended::TimedOut | Ended::Aborted | Ended::Reset | Ended::Host => {
            return Err(NvmeError::Recovered);
        }
    };
    let mut data = Vec::new();
    if direction == Direction::FromDevice {
        data.resize(bytes, 0);
        memory.read(0, &mut data);
    }
    Ok(AdminReply { status, data })
}

/// Blocks of a zone of the namespace; 0 if it has no zones, or is write protected besides.
fn zone_blocks<M: Machine>(host: &mut Host<M>, machine: &M, id: u32) -> Result<u32, TargetError> {
    let spaces = &host.device().namespaces;
    let Some(space) = spaces.iter().find(|space| space.id == id) else { return Ok(0) };
    let shape = nda::shape(id, &host.device().controller, &space.data)?;
    if space.command_set != zone::COMMAND_SET || shape.write_protected {
        return Ok(0);
    }
    let format = space.data.format_in_use();
    let command = AdminCommand::identify_zoned(Cns::CommandSetNamespace, id);
    let output = host.run(machine, Operation::Admin(Box::new(command)))?;
    let Output::Admin(reply) = output else { return Ok(0) };
    let zoned = IdentifyZonedNamespace::parse(&reply.data).unwrap_or_default();
    // Longer zones are told of where they are reported.
    Ok(u32::try_from(zoned.zone_blocks(format)).unwrap_or(0))
}

/// The properties of the disk on the namespace.
pub(crate) fn disk_shape(device: &NvmeFacts, id: u32) -> Result<Shape, TargetError> {
    match device.namespaces.iter().find(|space| space.id == id) {
        Some(Namespace { command_set: set @ (1 | 3..), .. }) => {
            Err(TargetError::CommandSet { namespace: id, set: *set })
        }
        Some(space) => {
            let shape = nda::shape(id, &device.controller, &space.data)?;
            // Zones are written from their begin to their end, which no user of a disk does.
            let is_zoned = space.command_set == zone::COMMAND_SET;
            let write_protected = shape.write_protected || is_zoned;
            Ok(Shape { write_protected, ..shape })
        }
        None => {
            let present: Vec<String> =
                device.namespaces.iter().map(|space| space.id.to_string()).collect();
            Err(TargetError::NoNamespace { namespace: id, present: present.join(", ") })
        }
    }
}

impl<M: Machine> NvmeControl for Nvme<M> {
    fn operate(&mut self, operation: Operation) -> Result<Output, flysch_nvme::NvmeError> {
        let machine = self.machine.clone();
        self.host_mut().run(&machine, operation)
    }

    fn io(&mut self, command: AdminCommand) -> Result<AdminReply, flysch_nvme::NvmeError> {
        let clock = self.machine.clone();
        let lane = &mut self.lanes[0];
        let memory = lane.memory.clone();
        pass(lane.disk.port_mut(), &clock, &memory, command)
    }

    fn rest(&mut self, millis: u32) {
        let until = self.machine.now().after_nanos(u64::from(millis) * 1_000_000);
        while self.machine.now() < until {
            self.machine.wait(Some(until));
        }
    }

    fn namespace(&self) -> u32 {
        self.namespaces[0]
    }

    fn device(&self) -> &NvmeFacts {
        self.host().device()
    }

    fn errors(&self) -> &ErrorLog {
        self.host().errors()
    }

    fn controller(&self) -> (Version, Cap, Quirks) {
        let host = self.host();
        (host.version(), host.capabilities(), host.quirks())
    }
}

//! The stacks of the worlds: a model, its driver, and the shapes of its units.

use std::fmt;
use std::str::FromStr;

use flysch_api::command::{Command, Declined, Failure, Limits, Outcome, Port};
use flysch_api::machine::{DmaRegion, Identity, Instant};
use flysch_cam::share::{self, Member};
use flysch_cam::{Disk, Family, Shape, ada, nda, scan, sdda};
use flysch_models::ahci::{
    Ahci as AhciModel, Attached, Config as AhciConfig, DiskConfig, MultiplierConfig, Switching,
};
use flysch_models::emmc::profile::{HS400, HS400_CMDQ, SD_UHS};
use flysch_models::emmc::{Config as EmmcConfig, Emmc as EmmcModel};
use flysch_models::faults::{Injector, Kind, Plan};
use flysch_models::machine::{Inline, Mode, Model};
use flysch_models::nvme::{Config as NvmeConfig, NamespaceConfig, Nvme as NvmeModel};
use flysch_models::random::Random;
use flysch_models::ufs::{Config as UfsConfig, Ufs as UfsModel, UnitConfig};
use flysch_ufs::{Aggregation, QueueMode};
use flysch_wire::mmc::{NATIVE_SECTOR, SECTOR};

use crate::violation::Violation;

/// The stack of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum On {
    /// UFS, with SCSI disks.
    #[default]
    Ufs,
    /// NVMe.
    Nvme,
    /// SATA.
    Ahci,
    /// SATA behind a port multiplier.
    Pmp,
    /// eMMC.
    Emmc,
    /// An SD card.
    Sd,
}

impl On {
    /// Every stack.
    pub const ALL: [Self; 6] = [Self::Ufs, Self::Nvme, Self::Ahci, Self::Pmp, Self::Emmc, Self::Sd];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ufs => "ufs",
            Self::Nvme => "nvme",
            Self::Ahci => "ahci",
            Self::Pmp => "pmp",
            Self::Emmc => "emmc",
            Self::Sd => "sd",
        }
    }

    /// The kinds of faults it supports.
    pub const fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Ufs => &Kind::UFS,
            Self::Nvme => &Kind::NVME,
            Self::Ahci | Self::Pmp => &Kind::AHCI,
            Self::Emmc => &Kind::EMMC,
            Self::Sd => &Kind::SD,
        }
    }
}

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|on| on.name() == text);
        found.ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("there is no stack `{text}`; there are {known}")
        })
    }
}

/// What a seed chooses for a stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) lanes: u8,
    pub(crate) depth: u16,
    pub(crate) units: u8,
    /// UFS: multi-circular queues. NVMe: scatter gather lists. AHCI, eMMC: commands are queued in
    /// the device.
    variant: bool,
    /// The idle time after which the link hibernates, microseconds.
    auto_hibern8_us: Option<u32>,
    /// UFS: how completions are signalled, and who handles errors. NVMe: where doorbells and queues
    /// are.
    ways: Ways,
}

/// What an operating system chooses for a host.
#[derive(Clone, Copy, Debug, Default)]
struct Ways {
    /// The host has its own lane.
    apart: bool,
    /// There are no interrupts.
    polled: bool,
    /// All queues share the line.
    one_line: bool,
    /// Several completions share an interrupt.
    aggregated: bool,
    /// bQueueDepth: fewer commands than the lanes send.
    device_queue: u8,
    /// NVMe: doorbells are only registers.
    registers: bool,
    /// NVMe: submission queues are in the controller's memory.
    controller_memory: bool,
}

impl Ways {
    fn some(random: &mut Random) -> Self {
        let mut one_in = |n| random.below(n) == 0;
        Self {
            apart: one_in(4),
            polled: one_in(4),
            one_line: one_in(2),
            aggregated: one_in(4),
            device_queue: if one_in(4) { 8 } else { 0 },
            ..Self::default()
        }
    }
}

impl Choice {
    /// How long a world rests occasionally: longer than the link needs to hibernate.
    pub(crate) fn rest_nanos(&self) -> Option<u64> {
        self.auto_hibern8_us.map(|us| u64::from(us) * 3000)
    }
}

/// What a world provides to its stack.
pub(crate) struct Setting<'a> {
    pub(crate) choice: Choice,
    pub(crate) plan: &'a Plan,
    pub(crate) seed: u64,
    /// Size of each unit, bytes.
    pub(crate) unit_bytes: u64,
    /// Block size of the disks in bytes, if one was chosen; otherwise [`Setting::block`].
    pub(crate) chosen_block: Option<u32>,
    /// All memory of the machine; the driver's own part of it; a part to scan for units with.
    pub(crate) memory: &'a DmaRegion,
    pub(crate) driver: DmaRegion,
    pub(crate) scratch: DmaRegion,
}

impl Setting<'_> {
    /// Block size of the disks, bytes.
    fn block(&self) -> u32 {
        self.chosen_block.unwrap_or(BLOCK)
    }
}

/// Default block size, bytes.
pub(crate) const BLOCK: u32 = 4096;

/// A host that is not part of a port and is polled separately.
pub(crate) trait Apart {
    fn poll(&mut self, now: Instant);
    fn poll_at(&self) -> Option<Instant>;
}

/// A running stack: its machine, its host if that is apart, a port for each lane, and its units.
pub(crate) struct Opened<S: Stack> {
    pub(crate) machine: Machine<S>,
    pub(crate) host: Option<Box<dyn Apart>>,
    pub(crate) ports: Vec<S::Port>,
    pub(crate) units: Vec<Shape>,
}

/// The machine of a stack.
pub(crate) type Machine<S> = Inline<<S as Stack>::Model>;

/// A model and its driver.
pub(crate) trait Stack: Sized {
    type Model: Model;
    type Port: Port<Protocol: Family>;
    /// The bits to flip in a unit's number to get the number of another unit.
    const OTHER_UNIT: u64;

    fn injector(model: &Self::Model) -> &Injector;

    fn choose(random: &mut Random) -> Choice;

    /// Bytes of memory that the driver needs, and that the disk of each lane needs.
    fn needs(choice: Choice) -> (usize, usize);

    /// Sizes in bytes of the pieces that lists of segments are made of.
    fn pieces(choice: Choice) -> [u32; 4];

    /// Whether a command that the device answers with an error leaves other commands alone.
    fn fails_alone(_: Choice) -> bool {
        true
    }

    /// How often a fault of this kind can make everything in flight fail.
    fn rounds(_: Kind) -> u64 {
        1
    }

    fn open(setting: &Setting<'_>) -> Result<Opened<Self>, Violation>;
}

/// Pieces of any size: whole blocks, pieces that do not end with a block, or more of them than a
/// command has segments.
const ANY: [u32; 4] = [4096, 3332, 512, 64 * 1024 + 4];
/// Pieces of whole pages.
const PAGES: [u32; 4] = [4096, 8192, 12 * 1024, 64 * 1024];

/// Number of attempts at an operation that a fault may hit; a user would retry, too.
const TRIES: u32 = 5;

fn try_often<T, E: fmt::Display>(mut what: impl FnMut() -> Result<T, E>) -> Result<T, Violation> {
    let mut last = what();
    for _ in 1..TRIES {
        if last.is_ok() {
            break;
        }
        last = what();
    }
    last.map_err(|error| set_up(&error))
}

pub(crate) fn set_up(error: &dyn fmt::Display) -> Violation {
    Violation::SetUp(error.to_string())
}

/// UFS.
pub(crate) struct Ufs;

impl Stack for Ufs {
    type Model = UfsModel;
    type Port = flysch_ufs::Port<Inline<UfsModel>>;
    const OTHER_UNIT: u64 = 1 << 48;

    fn injector(model: &UfsModel) -> &Injector {
        model.faults()
    }

    fn choose(random: &mut Random) -> Choice {
        let (lanes, depth) = (1 + random.below(3) as u8, 1 + random.below(32) as u16);
        let variant = random.below(2) == 1;
        let units = 1 + random.below(3) as u8;
        let auto_hibern8_us = (random.below(3) == 0).then_some(1000);
        let ways = Ways::some(random);
        Choice { lanes, depth, units, variant, auto_hibern8_us, ways }
    }

    fn needs(choice: Choice) -> (usize, usize) {
        let driver = flysch_ufs::Host::<Inline<UfsModel>>::memory_len(&ufs_options(choice));
        (driver, Disk::<Self::Port>::scratch_bytes(256).max(scan::SCRATCH_BYTES))
    }

    fn pieces(_: Choice) -> [u32; 4] {
        ANY
    }

    fn open(setting: &Setting<'_>) -> Result<Opened<Self>, Violation> {
        let units = setting.choice.units;
        let unit =
            || UnitConfig { block_size: setting.block(), ..UnitConfig::memory(setting.unit_bytes) };
        let config = UfsConfig {
            units: (0..units).map(|_| Some(unit())).collect(),
            volatile_cache: true,
            queue_depth: setting.choice.ways.device_queue,
            faults: setting.plan.clone(),
            seed: setting.seed,
            ..UfsConfig::default()
        };
        let memory = setting.memory;
        let model = UfsModel::new(config, memory.clone()).map_err(|e| set_up(&e))?;
        let machine = Inline::new(model, memory.clone(), Default::default(), Mode::Virtual);
        let options = ufs_options(setting.choice);
        let mut host = flysch_ufs::Host::new(machine.clone(), setting.driver.clone(), options)
            .map_err(|e| set_up(&e))?;
        try_often(|| host.bring_up(&machine))?;
        let (mut host, mut ports) = match setting.choice.ways.apart {
            true => {
                host.split().map(|(host, ports)| (Some(host), ports)).map_err(|e| set_up(&e))?
            }
            false => (None, host.into_ports()),
        };
        let shapes = try_often(|| {
            let mut port = Kept { port: &mut ports[0], host: host.as_mut() };
            let found = scan::scan(&mut port, &machine, &setting.scratch)?;
            let of_unit = |lun: u8| {
                let unit = found.iter().find(|unit| unit.lun.to_ufs() == Some(lun));
                unit.ok_or(flysch_cam::CamError::NotADisk { unit: lun.into() })?.shape()
            };
            (0..units).map(of_unit).collect::<Result<Vec<_>, _>>()
        })?;
        let host = host.map(|host| Box::new(host) as Box<dyn Apart>);
        Ok(Opened { machine, host, ports, units: shapes })
    }
}

type UfsHost = flysch_ufs::Host<Inline<UfsModel>>;

impl Apart for UfsHost {
    fn poll(&mut self, now: Instant) {
        // There are no requests, so there are no results.
        let _ = UfsHost::poll(self, now);
    }

    fn poll_at(&self) -> Option<Instant> {
        UfsHost::poll_at(self)
    }
}

/// A port whose host is polled with it.
struct Kept<'a, P> {
    port: &'a mut P,
    host: Option<&'a mut UfsHost>,
}

impl<P: Port> Port for Kept<'_, P> {
    type Protocol = P::Protocol;

    fn limits(&self) -> &Limits {
        self.port.limits()
    }

    fn memory(&self) -> &DmaRegion {
        self.port.memory()
    }

    fn start(&mut self, command: Command<P::Protocol>, now: Instant) -> Result<(), Declined> {
        self.port.start(command, now)
    }

    fn ring(&mut self, now: Instant) {
        self.port.ring(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        if let Some(host) = &mut self.host {
            Apart::poll(*host, now);
        }
        self.port.poll(now)
    }

    fn failure(&self) -> Failure<P::Protocol> {
        self.port.failure()
    }

    fn poll_at(&self) -> Option<Instant> {
        let host = self.host.as_ref().and_then(|host| Apart::poll_at(*host));
        self.port.poll_at().into_iter().chain(host).min()
    }
}

fn ufs_options(choice: Choice) -> flysch_ufs::UfsOptions {
    let Choice { lanes, depth, variant, auto_hibern8_us, ways, .. } = choice;
    let queue = if variant { QueueMode::Mcq } else { QueueMode::Sdq };
    // The single doorbell has one counter.
    let aggregates = ways.aggregated && (variant || (lanes == 1 && !ways.apart));
    flysch_ufs::UfsOptions {
        queue,
        lanes,
        depth,
        auto_hibern8_us,
        apart: ways.apart,
        interrupts: !ways.polled,
        event_interrupts: !ways.one_line,
        aggregation: aggregates.then_some(Aggregation { completions: 4, timeout_us: 200 }),
        ..Default::default()
    }
}

/// Size of controller memory, bytes: more than the queues of three lanes.
const NVME_MEMORY: u32 = 64 << 10;

/// NVMe.
pub(crate) struct Nvme;

impl Stack for Nvme {
    type Model = NvmeModel;
    type Port = flysch_nvme::Port<Inline<NvmeModel>>;
    /// Swaps the first and the second namespace; the third has no counterpart.
    const OTHER_UNIT: u64 = 3;

    fn injector(model: &NvmeModel) -> &Injector {
        model.faults()
    }

    fn choose(random: &mut Random) -> Choice {
        let (lanes, depth) = (1 + random.below(3) as u8, 1 + random.below(64) as u16);
        let (variant, units) = (random.below(2) == 1, 1 + random.below(3) as u8);
        let (registers, controller_memory) = (random.below(2) == 1, random.below(2) == 1);
        let ways = Ways { registers, controller_memory, ..Ways::default() };
        Choice { lanes, depth, units, variant, auto_hibern8_us: None, ways }
    }

    fn needs(choice: Choice) -> (usize, usize) {
        let driver = flysch_nvme::Host::<Inline<NvmeModel>>::memory_len(&nvme_options(choice));
        (driver, Disk::<Self::Port>::scratch_bytes(choice.depth.into()))
    }

    fn pieces(choice: Choice) -> [u32; 4] {
        if choice.variant { ANY } else { PAGES }
    }

    fn open(setting: &Setting<'_>) -> Result<Opened<Self>, Violation> {
        let Choice { lanes, units, ways, .. } = setting.choice;
        let space = || NamespaceConfig {
            block_size: setting.block(),
            ..NamespaceConfig::memory(setting.unit_bytes)
        };
        let config = NvmeConfig {
            namespaces: (0..units).map(|_| space()).collect(),
            queues: lanes.into(),
            vectors: u16::from(lanes) + 1,
            controller_memory: if ways.controller_memory { NVME_MEMORY } else { 0 },
            volatile_cache: true,
            faults: setting.plan.clone(),
            seed: setting.seed,
            ..NvmeConfig::default()
        };
        let memory = setting.memory;
        let model = NvmeModel::new(config, memory.clone()).map_err(|e| set_up(&e))?;
        let machine = Inline::new(model, memory.clone(), Default::default(), Mode::Virtual);
        let options = nvme_options(setting.choice);
        let mut host = flysch_nvme::Host::new(machine.clone(), setting.driver.clone(), options)
            .map_err(|e| set_up(&e))?;
        try_often(|| host.bring_up(&machine))?;
        let device = host.device();
        let shapes = device.namespaces.iter().map(|space| {
            nda::shape(space.id, &device.controller, &space.data).map_err(|e| set_up(&e))
        });
        let shapes = shapes.collect::<Result<Vec<_>, _>>()?;
        if shapes.len() != usize::from(units) {
            return Err(Violation::SetUp(format!("{} namespaces of {units}", shapes.len())));
        }
        Ok(Opened { machine, host: None, ports: host.into_ports(), units: shapes })
    }
}

fn nvme_options(choice: Choice) -> flysch_nvme::NvmeOptions {
    let Choice { lanes, depth, variant, ways, .. } = choice;
    flysch_nvme::NvmeOptions {
        lanes: lanes.into(),
        depth,
        sgls: variant,
        shadow_doorbells: !ways.registers,
        ..Default::default()
    }
}

/// SATA: a disk at each port; a port is a lane.
pub(crate) struct Ahci;

impl Stack for Ahci {
    type Model = AhciModel;
    type Port = flysch_ahci::Port<Inline<AhciModel>>;
    /// A port without a multiplier has one unit.
    const OTHER_UNIT: u64 = 1;

    fn injector(model: &AhciModel) -> &Injector {
        model.faults()
    }

    fn choose(random: &mut Random) -> Choice {
        let (lanes, depth) = (1 + random.below(3) as u8, 1 + random.below(32) as u16);
        let variant = random.below(4) != 0;
        let rests = random.below(3) == 0;
        Choice {
            lanes,
            depth,
            units: lanes,
            variant,
            // The model's links sleep after a millisecond.
            auto_hibern8_us: rests.then_some(1000),
            ways: Ways::default(),
        }
    }

    fn needs(choice: Choice) -> (usize, usize) {
        let driver = flysch_ahci::Host::<Inline<AhciModel>>::memory_len(&ahci_options(choice));
        (driver, Disk::<Self::Port>::scratch_bytes(choice.depth.into()))
    }

    fn pieces(_: Choice) -> [u32; 4] {
        ANY
    }

    /// An error of one command ends those that are in the device with it.
    fn fails_alone(_: Choice) -> bool {
        false
    }

    fn open(setting: &Setting<'_>) -> Result<Opened<Self>, Violation> {
        let config = AhciConfig {
            ports: (0..setting.choice.lanes).map(|_| sata_disk(setting)).collect(),
            volatile_cache: true,
            faults: setting.plan.clone(),
            seed: setting.seed,
            ..AhciConfig::default()
        };
        let memory = setting.memory;
        let model = AhciModel::new(config, memory.clone()).map_err(|e| set_up(&e))?;
        let machine = Inline::new(model, memory.clone(), Default::default(), Mode::Virtual);
        let options = ahci_options(setting.choice);
        let mut host = flysch_ahci::Host::new(machine.clone(), setting.driver.clone(), options)
            .map_err(|e| set_up(&e))?;
        try_often(|| host.bring_up(&machine))?;
        let mut ports = host.into_ports();
        let shape = |port: &mut Self::Port| {
            // A disk that did not answer its first COMRESET answers a later one.
            if port.state() != flysch_ahci::State::Up {
                try_often(|| port.run(&machine, flysch_ahci::Operation::Reset))?;
            }
            let Some(device) = port.device() else {
                return Err(Violation::SetUp(format!("no device at port {}", port.number())));
            };
            let queued = device.queued;
            let ways = ada::Ways { queued, force_unit_access: true, trims: true };
            ada::shape(&device.identify, ways).map_err(|e| set_up(&e))
        };
        let units = ports.iter_mut().map(shape).collect::<Result<Vec<_>, _>>()?;
        Ok(Opened { machine, host: None, ports, units })
    }
}

fn sata_disk(setting: &Setting<'_>) -> Attached {
    Attached::disk(DiskConfig {
        sector_bytes: setting.block(),
        ..DiskConfig::memory(setting.unit_bytes)
    })
}

/// SATA behind a port multiplier with a disk at each of its ports: they share one HBA port, and the
/// HBA tells them apart by their FISes or addresses one at a time.
pub(crate) struct Pmp;

impl Stack for Pmp {
    type Model = AhciModel;
    type Port = Member<flysch_ahci::Port<Inline<AhciModel>>>;
    /// The next port of the multiplier, or the previous one.
    const OTHER_UNIT: u64 = 1;

    fn injector(model: &AhciModel) -> &Injector {
        Ahci::injector(model)
    }

    fn choose(random: &mut Random) -> Choice {
        let lanes = 2 + random.below(4) as u8;
        Choice { lanes, units: lanes, auto_hibern8_us: None, ..Ahci::choose(random) }
    }

    fn needs(choice: Choice) -> (usize, usize) {
        Ahci::needs(choice)
    }

    fn pieces(choice: Choice) -> [u32; 4] {
        Ahci::pieces(choice)
    }

    fn fails_alone(choice: Choice) -> bool {
        Ahci::fails_alone(choice)
    }

    fn open(setting: &Setting<'_>) -> Result<Opened<Self>, Violation> {
        let disks = (0..setting.choice.lanes).map(|_| sata_disk(setting)).collect();
        let by_fis = !setting.seed.is_multiple_of(3);
        let config = AhciConfig {
            ports: vec![Attached::multiplier(MultiplierConfig::sil3726(disks))],
            switching: if by_fis { Switching::Fis } else { Switching::Command },
            volatile_cache: true,
            faults: setting.plan.clone(),
            seed: setting.seed,
            ..AhciConfig::default()
        };
        let memory = setting.memory;
        let model = AhciModel::new(config, memory.clone()).map_err(|e| set_up(&e))?;
        let machine = Inline::new(model, memory.clone(), Default::default(), Mode::Virtual);
        let options = flysch_ahci::AhciOptions { ports: 1, ..ahci_options(setting.choice) };
        let mut host = flysch_ahci::Host::new(machine.clone(), setting.driver.clone(), options)
            .map_err(|e| set_up(&e))?;
        try_often(|| host.bring_up(&machine))?;
        let mut port = host.into_ports().swap_remove(0);
        let count = setting.choice.lanes;
        // A disk that did not answer its first COMRESET answers a later one.
        for _ in 0..TRIES {
            if (0..count).all(|unit| port.device_behind(unit).is_some()) {
                break;
            }
            // What fails now is retried.
            let _ = port.run(&machine, flysch_ahci::Operation::Reset);
        }
        let shape = |unit: u8| {
            let none = || Violation::SetUp(format!("no device {unit} at the multiplier"));
            let device = port.device_behind(unit).ok_or_else(none)?;
            let queued = device.queued;
            let ways = ada::Ways { queued, force_unit_access: true, trims: true };
            let shape = ada::shape(&device.identify, ways).map_err(|e| set_up(&e))?;
            Ok(Shape { unit: unit.into(), ..shape })
        };
        let units = (0..count).map(shape).collect::<Result<Vec<_>, Violation>>()?;
        let lane = share::Lane::new(port);
        let ports = (0..count).map(|_| lane.member()).collect();
        Ok(Opened { machine, host: None, ports, units })
    }
}

fn ahci_options(choice: Choice) -> flysch_ahci::AhciOptions {
    let Choice { lanes, depth, variant, auto_hibern8_us, .. } = choice;
    let link_power = match auto_hibern8_us {
        Some(_) => flysch_ahci::LinkPower::Slumber,
        None => flysch_ahci::LinkPower::Active,
    };
    flysch_ahci::AhciOptions {
        ports: (1 << lanes) - 1,
        depth: depth as u8,
        queued: variant,
        link_power,
        ..Default::default()
    }
}

/// eMMC.
pub(crate) struct Emmc;

/// Intel's Elkhart Lake controller, which the model resembles.
const ELKHART_LAKE: Identity = Identity { vendor: 0x8086, device: 0x4B47 };

impl Stack for Emmc {
    type Model = EmmcModel;
    type Port = flysch_emmc::Port<Inline<EmmcModel>>;
    /// A partition other than the selected one.
    const OTHER_UNIT: u64 = 1;

    fn injector(model: &EmmcModel) -> &Injector {
        model.faults()
    }

    fn choose(random: &mut Random) -> Choice {
        let variant = random.below(3) != 0;
        // More than one lane needs a queue.
        let lanes = if variant { 1 + random.below(3) as u8 } else { 1 };
        let depth = 1 + random.below(31) as u16;
        let ways = Ways { polled: random.below(4) == 0, ..Ways::default() };
        Choice { lanes, depth, units: 1, variant, auto_hibern8_us: None, ways }
    }

    fn needs(choice: Choice) -> (usize, usize) {
        let driver = flysch_emmc::Host::<Inline<EmmcModel>>::memory_len(&emmc_options(choice));
        (driver, Disk::<Self::Port>::scratch_bytes(choice.depth.into()))
    }

    fn pieces(_: Choice) -> [u32; 4] {
        ANY
    }

    /// A response with an error stops the queueing engine: all its tasks are discarded.
    fn fails_alone(choice: Choice) -> bool {
        !choice.variant
    }

    fn open(setting: &Setting<'_>) -> Result<Opened<Self>, Violation> {
        let config = EmmcConfig {
            profile: if setting.choice.variant { HS400_CMDQ } else { HS400 },
            size: setting.unit_bytes,
            native_sectors: setting.chosen_block == Some(NATIVE_SECTOR),
            ..card_config(setting)
        };
        // Enhanced strobe has no sampling point to lose.
        let timing = match setting.seed % 4 {
            0 => flysch_emmc::Timing::Hs400,
            1 => flysch_emmc::Timing::Hs200,
            _ => flysch_emmc::Timing::Hs400Es,
        };
        open_card(setting, config, ELKHART_LAKE, timing)
    }
}

/// An SD card: no queue, no cache, only the host.
pub(crate) struct Sd;

impl Stack for Sd {
    type Model = EmmcModel;
    type Port = flysch_emmc::Port<Inline<EmmcModel>>;
    const OTHER_UNIT: u64 = Emmc::OTHER_UNIT;

    fn injector(model: &EmmcModel) -> &Injector {
        Emmc::injector(model)
    }

    /// A high-capacity card with UHS-I, or a small one with byte addresses.
    fn choose(random: &mut Random) -> Choice {
        Choice { lanes: 1, variant: random.below(4) != 0, ..Emmc::choose(random) }
    }

    fn needs(choice: Choice) -> (usize, usize) {
        Emmc::needs(choice)
    }

    fn pieces(_: Choice) -> [u32; 4] {
        ANY
    }

    /// A high-priority interrupt cannot end what a card is busy with: a command that waits for it
    /// times out, and the next one ends with the reset of the card.
    fn rounds(kind: Kind) -> u64 {
        if kind == Kind::BusyStuck { 2 } else { 1 }
    }

    fn open(setting: &Setting<'_>) -> Result<Opened<Self>, Violation> {
        // The disk is the first part of the card.
        let size = if setting.choice.variant { 4 << 30 } else { setting.unit_bytes };
        let config = EmmcConfig { profile: SD_UHS, size, ..card_config(setting) };
        let timing = match setting.seed % 4 {
            0 => flysch_emmc::Timing::Sdr50,
            1 => flysch_emmc::Timing::Ddr50,
            _ => flysch_emmc::Timing::Sdr104,
        };
        open_card(setting, config, Identity::default(), timing)
    }
}

fn card_config(setting: &Setting<'_>) -> EmmcConfig {
    EmmcConfig {
        volatile_cache: true,
        faults: setting.plan.clone(),
        seed: setting.seed,
        ..EmmcConfig::default()
    }
}

fn open_card<S>(
    setting: &Setting<'_>,
    config: EmmcConfig,
    identity: Identity,
    timing: flysch_emmc::Timing,
) -> Result<Opened<S>, Violation>
where
    S: Stack<Model = EmmcModel, Port = flysch_emmc::Port<Inline<EmmcModel>>>,
{
    let memory = setting.memory;
    let model = EmmcModel::new(config, memory.clone()).map_err(|e| set_up(&e))?;
    let machine = Inline::new(model, memory.clone(), identity, Mode::Virtual);
    let options = flysch_emmc::EmmcOptions { timing, ..emmc_options(setting.choice) };
    let mut host = flysch_emmc::Host::new(machine.clone(), setting.driver.clone(), options)
        .map_err(|e| set_up(&e))?;
    try_often(|| host.bring_up(&machine))?;
    let device = host.device();
    let card = sdda::Card {
        sectors: device.sectors.min(setting.unit_bytes / 512),
        block_size: setting.chosen_block.unwrap_or(SECTOR),
        cache: device.cache,
        reliable_write: device.has_reliable_write(),
        trim: device.has_trim(),
        write_protected: false,
    };
    let shape = sdda::shape(0, &card).map_err(|e| set_up(&e))?;
    Ok(Opened { machine, host: None, ports: host.into_ports(), units: vec![shape] })
}

fn emmc_options(choice: Choice) -> flysch_emmc::EmmcOptions {
    let Choice { lanes, depth, ways, .. } = choice;
    let interrupts = !ways.polled;
    flysch_emmc::EmmcOptions { lanes: lanes.into(), depth, interrupts, ..Default::default() }
}

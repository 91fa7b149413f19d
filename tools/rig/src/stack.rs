//! Stacks of all kinds behind one interface: opened once, dispatched once, generic inside.

use flysch_api::block::{BlockDevice, BlockGeometry};
use flysch_api::machine::{Clock, DmaRegion, Instant, Wake};
use flysch_bench::clock::RealClock;
use flysch_bench::file::{File, FileOptions};
use flysch_bench::null::Null;
use flysch_bench::results::Incident;
use flysch_cam::Tags;
use flysch_files::Made;
use flysch_models::media::energy::Energy;
use flysch_models::ufs::Threaded;

use crate::ahci::{self, Ahci, AhciControl, AhciMachine};
use crate::blocks::{Blocks, OnDevice};
use crate::cd::{self, Cd};
use crate::emmc::{self, Emmc, EmmcControl, EmmcMachine};
use crate::error::TargetError;
use crate::image::make_missing;
use crate::linux::{self, Linux};
use crate::nvme::{self, Nvme, NvmeControl, NvmeMachine};
use crate::open::{Metered, Needs, Open, Tagged, Visitor};
use crate::plug::Plug;
use crate::seat::Seat;
use crate::target::{ClockKind, Drive, FileTarget, NullTarget, Target};
use crate::ufs::{self, Control, ModelMachine, Ufs};

/// An open stack. Dropping it shuts everything down, QEMU included.
#[derive(Debug)]
#[non_exhaustive]
pub enum Stack {
    /// The UFS model in this thread.
    Ufs(Ufs<ModelMachine>),
    /// The UFS model in its own thread.
    UfsThreaded(Ufs<Threaded>),
    /// The NVMe model in this thread.
    Nvme(Nvme<NvmeMachine>),
    /// The AHCI model in this thread.
    Ahci(Ahci<AhciMachine>),
    /// A modelled optical drive in this thread.
    Cd(Cd<AhciMachine>),
    /// The eMMC model in this thread.
    Emmc(Emmc<EmmcMachine>),
    /// QEMU's UFS device.
    UfsQemu(Ufs<flysch_qemu::Machine>),
    /// QEMU's NVMe device.
    NvmeQemu(Nvme<flysch_qemu::Machine>),
    /// A UFS host controller of this machine.
    UfsPci(Ufs<flysch_vfio::Machine>),
    /// An NVMe controller of this machine.
    NvmePci(Nvme<flysch_vfio::Machine>),
    /// A SATA host bus adapter of this machine.
    AhciPci(Ahci<flysch_vfio::Machine>),
    /// An optical drive on a SATA host bus adapter of this machine.
    CdPci(Cd<flysch_vfio::Machine>),
    /// An SD host controller of this machine.
    CardPci(Emmc<flysch_vfio::Machine>),
    /// QEMU's AHCI device.
    AhciQemu(Ahci<flysch_qemu::Machine>),
    /// QEMU's optical drive.
    CdQemu(Cd<flysch_qemu::Machine>),
    /// QEMU's eMMC device or SD card.
    CardQemu(Emmc<flysch_qemu::Machine>),
    /// A block device or file through Linux's block layer.
    Linux(Linux),
    /// A file.
    File(Plain<File>),
    /// The null device.
    Null(Plain<Null>),
}

/// The same expression for every kind of stack.
macro_rules! each {
    ($self:expr, $stack:ident => $what:expr) => {
        match $self {
            Stack::Ufs($stack) => $what,
            Stack::UfsThreaded($stack) => $what,
            Stack::Nvme($stack) => $what,
            Stack::Emmc($stack) => $what,
            Stack::Ahci($stack) => $what,
            Stack::Cd($stack) => $what,
            Stack::CdQemu($stack) => $what,
            Stack::UfsQemu($stack) => $what,
            Stack::NvmeQemu($stack) => $what,
            Stack::CardQemu($stack) => $what,
            Stack::AhciQemu($stack) => $what,
            Stack::UfsPci($stack) => $what,
            Stack::NvmePci($stack) => $what,
            Stack::AhciPci($stack) => $what,
            Stack::CdPci($stack) => $what,
            Stack::CardPci($stack) => $what,
            Stack::Linux($stack) => $what,
            Stack::File($stack) => $what,
            Stack::Null($stack) => $what,
        }
    };
}

/// An operation on a lane, whatever its type.
pub(crate) trait UseLane {
    /// The result.
    type Output;

    /// Does it.
    fn on<D: BlockDevice>(self, lane: &mut D) -> Self::Output;
}

/// Lanes without a controller.
#[derive(Debug)]
pub struct Plain<D> {
    lanes: Vec<D>,
    clock: RealClock,
    description: String,
    made: Option<Made>,
    /// Why a lane could not do its work, if it knows.
    cause: fn(&D) -> Option<&str>,
}

impl<D> Metered for Plain<D> {
    fn energy(&self) -> Option<Energy> {
        None
    }
}

impl<D: BlockDevice + Tagged> Open for Plain<D> {
    type Lane = D;
    type Clock = RealClock;

    fn parts(&mut self) -> (&mut [D], &RealClock) {
        (&mut self.lanes, &self.clock)
    }

    fn first(&self) -> &D {
        &self.lanes[0]
    }

    fn about(&self) -> (&str, ClockKind) {
        (&self.description, ClockKind::Real)
    }

    fn incidents(&self) -> Vec<Incident> {
        Vec::new()
    }

    fn failure(&self) -> Option<String> {
        self.lanes.iter().find_map(self.cause).map(str::to_owned)
    }

    fn made(&mut self) -> &mut Option<Made> {
        &mut self.made
    }
}

impl Stack {
    /// Opens a target.
    ///
    /// # Errors
    /// Why it cannot be opened, in one line for the user.
    pub fn open(target: &Target, needs: &Needs) -> Result<Self, TargetError> {
        match target {
            Target::Ufs(target) if target.clock == ClockKind::Real => {
                ufs::open_threaded(target, needs).map(Self::UfsThreaded)
            }
            Target::Ufs(_) | Target::Nvme(_) | Target::Emmc(_) | Target::Ahci(_) => {
                Self::open_model(target, needs, &mut Seat::default())
            }
            Target::UfsQemu(target) => ufs::open_qemu(target, needs).map(Self::UfsQemu),
            Target::NvmeQemu(target) => nvme::open_qemu(target, needs).map(Self::NvmeQemu),
            Target::CardQemu(target) => emmc::open_qemu(target, needs).map(Self::CardQemu),
            Target::AhciQemu(target) if target.drive == Drive::Cd => {
                cd::open_qemu(target, needs).map(Self::CdQemu)
            }
            Target::AhciQemu(target) => ahci::open_qemu(target, needs).map(Self::AhciQemu),
            Target::UfsPci(target) => ufs::open_pci(target, needs).map(Self::UfsPci),
            Target::NvmePci(target) => nvme::open_pci(target, needs).map(Self::NvmePci),
            Target::AhciPci(target) if target.drive == Drive::Cd => {
                cd::open_pci(target, needs).map(Self::CdPci)
            }
            Target::AhciPci(target) => ahci::open_pci(target, needs).map(Self::AhciPci),
            Target::CardPci(target) => emmc::open_pci(target, needs).map(Self::CardPci),
            Target::Linux(target) => linux::open(target, needs).map(Self::Linux),
            Target::File(target) => open_file(target, needs).map(Self::File),
            Target::Null(target) => Ok(Self::Null(open_null(*target, needs))),
        }
    }

    /// Opens a model that has several disks, or shares something with other stacks.
    pub(crate) fn open_model(
        target: &Target,
        needs: &Needs,
        seat: &mut Seat,
    ) -> Result<Self, TargetError> {
        match target {
            Target::Ufs(target) => ufs::open_inline(target, needs, seat).map(Self::Ufs),
            Target::Nvme(target) => nvme::open_inline(target, needs, seat).map(Self::Nvme),
            Target::Emmc(target) => emmc::open_inline(target, needs, seat).map(Self::Emmc),
            Target::Ahci(target) if target.drive == Drive::Cd => {
                cd::open_inline(target, needs, seat).map(Self::Cd)
            }
            Target::Ahci(target) => ahci::open_inline(target, needs, seat).map(Self::Ahci),
            _ => Self::open(target, needs),
        }
    }

    /// Lets `visitor` work on the disk.
    pub fn visit<V: Visitor>(&mut self, visitor: V) -> V::Output {
        each!(self, stack => stack.visit(visitor))
    }

    /// The disk as bytes, on the first lane.
    pub fn blocks(&mut self) -> Box<dyn Blocks + '_> {
        each!(self, stack => {
            let (lanes, clock) = stack.parts();
            Box::new(OnDevice::new(&mut lanes[0], clock))
        })
    }

    /// Inspects a lane, or uses it once.
    ///
    /// # Panics
    /// If there is none with this number.
    #[inline]
    pub(crate) fn on_lane<U: UseLane>(&mut self, number: usize, what: U) -> U::Output {
        each!(self, stack => what.on(&mut stack.parts().0[number]))
    }

    /// The number of lanes, of all disks together.
    pub fn lanes(&mut self) -> usize {
        each!(self, stack => stack.parts().0.len())
    }

    /// Makes files and `null` use this memory and this clock; other kinds have their own.
    pub(crate) fn join(&mut self, memory: &DmaRegion, clock: &RealClock) {
        match self {
            Self::File(plain) => {
                plain.lanes.iter_mut().for_each(|lane| lane.join(memory, clock));
                plain.clock = clock.clone();
            }
            Self::Null(plain) => {
                plain.lanes.iter_mut().for_each(|lane| lane.set_memory(memory));
                plain.clock = clock.clone();
            }
            _ => {}
        }
    }

    /// Whether it can be used under the models' clock: a model, or something that needs no time.
    pub(crate) fn is_timeless(&self) -> bool {
        matches!(self, Self::Ufs(_) | Self::Nvme(_) | Self::Ahci(_) | Self::Emmc(_) | Self::Null(_))
    }

    /// Its clock.
    pub(crate) fn wait(&mut self, until: Option<Instant>) -> Wake {
        each!(self, stack => stack.parts().1.wait(until))
    }

    /// The current time on its clock.
    pub(crate) fn now(&mut self) -> Instant {
        each!(self, stack => stack.parts().1.now())
    }

    /// The management side, if the stack is on a UFS host.
    pub fn control(&mut self) -> Option<&mut dyn Control> {
        match self {
            Self::Ufs(ufs) => Some(ufs),
            Self::UfsThreaded(ufs) => Some(ufs),
            Self::UfsQemu(ufs) => Some(ufs),
            Self::UfsPci(ufs) => Some(ufs),
            _ => None,
        }
    }

    /// The management side, if the stack is on an NVMe controller.
    pub fn nvme(&mut self) -> Option<&mut dyn NvmeControl> {
        match self {
            Self::Nvme(nvme) => Some(nvme),
            Self::NvmeQemu(nvme) => Some(nvme),
            Self::NvmePci(nvme) => Some(nvme),
            _ => None,
        }
    }

    /// The management side, if the stack is on a SATA port.
    pub fn ahci(&mut self) -> Option<&mut dyn AhciControl> {
        match self {
            Self::Ahci(ahci) => Some(ahci),
            Self::AhciQemu(ahci) => Some(ahci),
            Self::Cd(cd) => Some(cd),
            Self::CdQemu(cd) => Some(cd),
            Self::AhciPci(ahci) => Some(ahci),
            Self::CdPci(cd) => Some(cd),
            _ => None,
        }
    }

    /// The management side, if the stack is on an eMMC host.
    pub fn emmc(&mut self) -> Option<&mut dyn EmmcControl> {
        match self {
            Self::Emmc(emmc) => Some(emmc),
            Self::CardQemu(emmc) => Some(emmc),
            Self::CardPci(emmc) => Some(emmc),
            _ => None,
        }
    }

    /// What pulls its disks and its controller out and puts them back: for models in this thread.
    pub(crate) fn plug(&mut self) -> Option<&mut dyn Plug> {
        match self {
            Self::Ufs(ufs) => Some(ufs),
            Self::Nvme(nvme) => Some(nvme),
            Self::Ahci(ahci) => Some(ahci),
            Self::Emmc(emmc) => Some(emmc),
            _ => None,
        }
    }

    /// The disk's properties.
    pub fn geometry(&self) -> BlockGeometry {
        each!(self, stack => *stack.first().geometry())
    }

    /// Its description for people.
    pub fn description(&self) -> &str {
        each!(self, stack => stack.about()).0
    }

    /// Everything that has gone wrong so far: injected faults, writes affected by losses of power,
    /// and the counters of command layer and driver.
    pub fn incidents(&self) -> Vec<Incident> {
        each!(self, stack => stack.incidents())
    }

    /// The energy that the device has used so far, if it is modelled.
    pub fn energy(&self) -> Option<Energy> {
        each!(self, stack => stack.energy())
    }

    /// Why the machine below ended or could not do its work, in words: QEMU's end, a full disk of
    /// this machine. The device could only report an error of its own.
    pub fn failure(&self) -> Option<String> {
        each!(self, stack => stack.failure())
    }

    /// The state of the queue of the disk's first lane, if it has commands.
    pub fn tags(&self) -> Option<Tags> {
        each!(self, stack => stack.first().tags())
    }

    /// Limits the number of commands in flight on every lane; returns the actual limit.
    pub fn set_tags(&mut self, tags: u32) -> Option<u32> {
        each!(self, stack => {
            let lanes = stack.parts().0.iter_mut();
            lanes.map(|lane| lane.set_tags(tags)).last().flatten()
        })
    }

    /// Keeps a file that was created for it. Without this it is removed with the stack, and when
    /// the command is interrupted, so that no unfinished file is left.
    pub fn keep(&mut self) {
        if let Some(made) = each!(self, stack => stack.made()).take() {
            made.keep();
        }
    }

    /// The name of its clock: `virtual`, `hybrid` or `real`.
    pub fn clock_name(&self) -> &'static str {
        each!(self, stack => stack.about()).1.name()
    }
}

fn open_file(target: &FileTarget, needs: &Needs) -> Result<Plain<File>, TargetError> {
    let clock = RealClock::new();
    let path = &target.path;
    let made = make_missing(path, target.size)?;
    let options =
        FileOptions { block_size: target.block_size, create_size: None, memory_len: needs.memory };
    let lane = |_| File::open(path, options, clock.clone());
    let lanes = (0..needs.lanes.max(1)).map(lane).collect::<Result<Vec<_>, _>>()?;
    let (has, needed) = (lanes[0].geometry().bytes(), target.size.unwrap_or(0));
    if has < needed {
        return Err(TargetError::FileTooSmall { path: path.clone(), has, needed });
    }
    let description = format!("file {}", path.display());
    Ok(Plain { lanes, clock, description, made, cause: File::failure })
}

fn open_null(target: NullTarget, needs: &Needs) -> Plain<Null> {
    let lane = |_| Null::new(target.size, needs.queue_depth, needs.memory);
    let lanes = (0..needs.lanes.max(1)).map(lane).collect();
    let description = "null".into();
    Plain { lanes, clock: RealClock::new(), description, made: None, cause: |_| None }
}

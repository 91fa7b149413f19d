//! A controller that is up, its units, and the disks in use.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ffi::{c_char, c_void};
use core::fmt;

use flysch_api::block::{self, BlockDevice, Refused};
use flysch_api::command::Port;
use flysch_api::data::Data;
use flysch_api::machine::{Clock as _, DmaAllocator, DmaRegion, DmaSlice, Instant, Machine as _};
use flysch_cam::{Disk, Family, Shape};
use flysch_ufs::QueueMode;

use crate::error::{Error, Outcome, Status};
use crate::machine::Wired;
use crate::platform::Told;
use crate::values::{Completion, Operation, Options, Platform, Queue, Request, Unit};

/// Alignment of parts of DMA memory.
const PAGE: u64 = 4096;

/// A controller that is up, with its units and the disks in use. It belongs to one thread at a
/// time.
#[derive(Debug)]
pub struct Controller {
    machine: Wired,
    memory: DmaAllocator,
    units: Vec<(Unit, Shape)>,
    lanes: Lanes,
}

#[derive(Debug)]
enum Lanes {
    Ufs(Disks<flysch_ufs::Port<Wired>>),
    Nvme(Disks<flysch_nvme::Port<Wired>>),
}

/// Evaluates the same expression for the lanes of either kind of controller.
macro_rules! each {
    ($lanes:expr, $disks:ident => $what:expr) => {
        match $lanes {
            Lanes::Ufs($disks) => $what,
            Lanes::Nvme($disks) => $what,
        }
    };
}

/// The lanes of a controller, first those used by disks, in the order in which they were attached.
/// The first lane carries the host.
#[derive(Debug)]
struct Disks<P: Port> {
    used: Vec<Disk<P>>,
    spare: Vec<P>,
    /// Index of the disk to poll next.
    next: usize,
}

/// A port through which its controller can be stopped.
trait Carrier: Port {
    /// Flushes everything and stops the controller.
    fn shut_down(&mut self, machine: &Wired) -> Outcome<()>;
}

impl Carrier for flysch_ufs::Port<Wired> {
    fn shut_down(&mut self, machine: &Wired) -> Outcome<()> {
        let host = self.host_mut().ok_or_else(gone)?;
        host.run(machine, flysch_ufs::Operation::Shutdown).map(drop).map_err(controller)
    }
}

impl Carrier for flysch_nvme::Port<Wired> {
    fn shut_down(&mut self, machine: &Wired) -> Outcome<()> {
        self.host_mut().ok_or_else(gone)?.shut_down(machine).map_err(controller)
    }
}

fn gone() -> Box<Error> {
    Error::new(Status::Gone, block::BlockError::Gone)
}

fn of_another_kind(wanted: &str) -> Box<Error> {
    Error::new(Status::Unsupported, format_args!("the controller is not of the kind {wanted}"))
}

fn controller(cause: impl fmt::Display) -> Box<Error> {
    Error::new(Status::Controller, cause)
}

/// Memory for `what`, or an error that says how much is missing.
fn part(memory: &mut DmaAllocator, len: usize, what: &str) -> Outcome<DmaRegion> {
    let (_, longest) = memory.available();
    memory.take(len, PAGE).ok_or_else(|| {
        let text = format_args!("{what} takes {len} bytes of DMA memory, {longest} are left");
        Error::new(Status::Memory, text)
    })
}

/// The options for the UFS driver.
fn ufs_options(options: &Options) -> Outcome<flysch_ufs::UfsOptions> {
    let queue = match options.queue {
        number if number == Queue::Auto as u8 => QueueMode::Auto,
        number if number == Queue::Sdq as u8 => QueueMode::Sdq,
        number if number == Queue::Mcq as u8 => QueueMode::Mcq,
        other => {
            return Err(Error::new(Status::Argument, format_args!("queue: there is no {other}")));
        }
    };
    let Options { disks: lanes, depth, interrupts, transfer_max, .. } = *options;
    let rest = flysch_ufs::UfsOptions::default();
    Ok(flysch_ufs::UfsOptions { queue, lanes, depth, interrupts, transfer_max, ..rest })
}

/// The options for the NVMe driver.
fn nvme_options(options: &Options) -> flysch_nvme::NvmeOptions {
    let Options { disks, depth, interrupts, transfer_max, .. } = *options;
    let rest = flysch_nvme::NvmeOptions::default();
    flysch_nvme::NvmeOptions { lanes: disks.into(), depth, interrupts, transfer_max, ..rest }
}

/// Bytes of memory for the disks' own lists, whatever their units.
fn lists(options: &Options) -> usize {
    let disk = Disk::<flysch_ufs::Port<Wired>>::scratch_bytes(options.depth.into())
        .max(Disk::<flysch_nvme::Port<Wired>>::scratch_bytes(options.depth.into()));
    usize::from(options.disks) * disk.next_multiple_of(PAGE as usize)
}

/// Bytes of DMA memory that a controller needs with these options, in addition to data.
pub(crate) fn memory_needed(options: &Options) -> Outcome<usize> {
    let ufs = flysch_ufs::Host::<Wired>::memory_len(&ufs_options(options)?);
    let nvme = flysch_nvme::Host::<Wired>::memory_len(&nvme_options(options));
    let driver = ufs.max(nvme).next_multiple_of(PAGE as usize);
    Ok(driver + flysch_cam::scan::SCRATCH_BYTES.next_multiple_of(PAGE as usize) + lists(options))
}

impl Controller {
    /// Brings a UFS controller up and finds its logical units.
    pub(crate) fn ufs(
        machine: Wired,
        options: &Options,
        platform: Option<Platform>,
    ) -> Outcome<Self> {
        let wanted = ufs_options(options)?;
        let mut memory = DmaAllocator::new(machine.memory().clone());
        let len = flysch_ufs::Host::<Wired>::memory_len(&wanted);
        let own = part(&mut memory, len, "the driver")?;
        let host = flysch_ufs::Host::new(machine.clone(), own, wanted).map_err(controller)?;
        let mut host = match platform {
            Some(platform) => host.with_platform(Box::new(Told(platform))),
            None => host,
        };
        host.bring_up(&machine).map_err(controller)?;
        let mut spare = host.into_ports();
        let scratch = part(&mut memory, flysch_cam::scan::SCRATCH_BYTES, "the scan")?;
        let first = spare.first_mut().ok_or_else(gone)?;
        let found = flysch_cam::scan(first, &machine, &scratch).map_err(controller)?;
        let _ = memory.give_back(scratch);
        let unit = |found: &flysch_cam::Peripheral| {
            let shape = found.shape().ok()?;
            let number = found.lun.to_ufs().map_or(shape.unit, u64::from);
            Some((unit_of(number, &shape, format_args!("{found}")), shape))
        };
        let units = found.iter().filter_map(unit).collect();
        let lanes = Lanes::Ufs(Disks { used: Vec::new(), spare, next: 0 });
        Ok(Self { machine, memory, units, lanes })
    }

    /// Brings an NVMe controller up and finds its namespaces.
    pub(crate) fn nvme(machine: Wired, options: &Options) -> Outcome<Self> {
        let wanted = nvme_options(options);
        let mut memory = DmaAllocator::new(machine.memory().clone());
        let len = flysch_nvme::Host::<Wired>::memory_len(&wanted);
        let own = part(&mut memory, len, "the driver")?;
        let mut host = flysch_nvme::Host::new(machine.clone(), own, wanted).map_err(controller)?;
        host.bring_up(&machine).map_err(controller)?;
        let device = host.device();
        let unit = |space: &flysch_nvme::Namespace| {
            let shape = flysch_cam::nda::shape(space.id, &device.controller, &space.data).ok()?;
            let (model, firmware) = (padded(&device.controller.mn), padded(&device.controller.fr));
            let name = format_args!("<{model} {firmware}>");
            Some((unit_of(space.id.into(), &shape, name), shape))
        };
        let units = device.namespaces.iter().filter_map(unit).collect();
        let spare = host.into_ports();
        let lanes = Lanes::Nvme(Disks { used: Vec::new(), spare, next: 0 });
        Ok(Self { machine, memory, units, lanes })
    }

    /// The units that can be disks, in ascending order of their numbers.
    pub(crate) fn units(&self) -> impl ExactSizeIterator<Item = &Unit> {
        self.units.iter().map(|(unit, _)| unit)
    }

    /// Makes a unit a disk with a lane of its own; returns the disk's number for requests.
    pub(crate) fn attach(&mut self, unit: u64) -> Outcome<usize> {
        let shape = self.units.iter().find(|(known, _)| known.number == unit);
        let (_, shape) = shape.ok_or_else(|| {
            Error::new(Status::NotADisk, format_args!("there is no unit {unit} with a disk"))
        })?;
        each!(&mut self.lanes, disks => disks.attach(*shape, &mut self.memory))
    }

    /// A part of DMA memory for data.
    pub(crate) fn take(&mut self, len: usize) -> Option<DmaRegion> {
        self.memory.take(len, PAGE)
    }

    /// Takes back what [`take`](Self::take) returned at this address. Returns whether it had.
    pub(crate) fn give_back(&mut self, place: *mut c_void, len: usize) -> bool {
        let Ok(len) = u32::try_from(len) else { return false };
        let Ok(slice) = self.machine.data(place, len) else { return false };
        let memory = self.machine.memory();
        let Ok(offset) = memory.offset_of(slice.address, len as usize) else { return false };
        self.memory.give_back(memory.carve(offset, len as usize)).is_ok()
    }

    /// Submits a request for a disk.
    pub(crate) fn submit(&mut self, disk: usize, request: &Request) -> Result<(), Status> {
        let now = self.machine.now();
        let request = self.understood(request, now)?;
        each!(&mut self.lanes, disks => match disks.used.get_mut(disk) {
            Some(disk) => match disk.submit(&request, now) {
                Ok(()) => Ok(()),
                Err(Refused::Full) => Err(Status::Full),
                Err(Refused::Invalid(error)) => Err(error.into()),
            },
            None => Err(Status::NotADisk),
        })
    }

    /// Converts a request to the drivers' type.
    fn understood(&self, request: &Request, now: Instant) -> Result<block::Request, Status> {
        let operation = match request.operation {
            code if code == Operation::Read as u8 => block::Operation::Read,
            code if code == Operation::Write as u8 => block::Operation::Write,
            code if code == Operation::Flush as u8 => block::Operation::Flush,
            code if code == Operation::Delete as u8 => block::Operation::Delete,
            _ => return Err(Status::Argument),
        };
        let slice = match operation {
            block::Operation::Read | block::Operation::Write => {
                let len = u32::try_from(request.length).map_err(|_| Status::OutOfRange)?;
                self.machine.data(request.data, len)?
            }
            block::Operation::Flush | block::Operation::Delete => DmaSlice::EMPTY,
        };
        Ok(block::Request {
            operation,
            force_unit_access: request.force_unit_access,
            offset: request.offset,
            length: request.length,
            data: Data::One(slice),
            crypto: None,
            token: request.token,
            accepted: now,
        })
    }

    /// Issues what was submitted.
    pub(crate) fn ring(&mut self) {
        let now = self.machine.now();
        each!(&mut self.lanes, disks => disks.used.iter_mut().for_each(|disk| disk.ring(now)));
    }

    /// The next completion of any disk.
    pub(crate) fn poll(&mut self) -> Option<Completion> {
        let now = self.machine.now();
        each!(&mut self.lanes, disks => disks.poll(now))
    }

    /// When to poll next even if there is no interrupt.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        each!(&self.lanes, disks => disks.poll_at())
    }

    /// Waits as the board does: for the interrupt or the next time to poll.
    pub(crate) fn wait(&self) {
        self.machine.wait(self.poll_at());
    }

    /// The UFS host and its machine.
    pub(crate) fn ufs_host(&mut self) -> Outcome<(&mut flysch_ufs::Host<Wired>, &Wired)> {
        let Lanes::Ufs(disks) = &mut self.lanes else { return Err(of_another_kind("UFS")) };
        let host = disks.carrier().and_then(flysch_ufs::Port::host_mut);
        Ok((host.ok_or_else(gone)?, &self.machine))
    }

    /// The NVMe host and its machine.
    pub(crate) fn nvme_host(&mut self) -> Outcome<(&mut flysch_nvme::Host<Wired>, &Wired)> {
        let Lanes::Nvme(disks) = &mut self.lanes else { return Err(of_another_kind("NVMe")) };
        let host = disks.carrier().and_then(flysch_nvme::Port::host_mut);
        Ok((host.ok_or_else(gone)?, &self.machine))
    }

    /// Flushes everything and stops the controller.
    pub(crate) fn shut_down(&mut self) -> Outcome<()> {
        each!(&mut self.lanes, disks => disks.carrier().ok_or_else(gone)?.shut_down(&self.machine))
    }
}

impl<P: Carrier> Disks<P>
where
    P::Protocol: Family,
{
    fn attach(&mut self, shape: Shape, memory: &mut DmaAllocator) -> Outcome<usize> {
        let limits = self.spare.first().map(Port::limits).ok_or_else(|| {
            let text = "no lane is left for another disk: open with more `disks`";
            Error::new(Status::NoLane, text)
        })?;
        // A unit that a disk rejects must not cost the lane, which may carry the host.
        if !shape.block_size.is_power_of_two() || shape.block_size > limits.transfer_max {
            let text = format_args!("its blocks of {} bytes cannot be used", shape.block_size);
            return Err(Error::new(Status::NotADisk, text));
        }
        let scratch = part(memory, Disk::<P>::scratch_bytes(limits.slots), "the disk")?;
        let options = flysch_cam::DiskOptions::default();
        let disk = Disk::new(self.spare.remove(0), shape, scratch, &options);
        self.used.push(disk.map_err(controller)?);
        Ok(self.used.len() - 1)
    }

    /// The port that carries the host.
    fn carrier(&mut self) -> Option<&mut P> {
        let used = self.used.first_mut().map(Disk::port_mut);
        used.or(self.spare.first_mut())
    }

    /// The next completion, polling the disks in turn.
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        if self.used.is_empty() {
            // Only the host: its recovery, its events.
            self.spare.first_mut()?.poll(now);
            return None;
        }
        for _ in 0..self.used.len() {
            let number = self.next;
            match self.used[number].poll(now) {
                Some(done) => return Some(told(number, &done)),
                None => self.next = (number + 1) % self.used.len(),
            }
        }
        None
    }

    fn poll_at(&self) -> Option<Instant> {
        let used = self.used.iter().filter_map(BlockDevice::poll_at);
        used.chain(self.spare.iter().filter_map(Port::poll_at)).min()
    }
}

/// Converts a completion for C.
fn told(disk: usize, done: &block::Completion) -> Completion {
    Completion {
        token: done.token,
        disk: disk as u32,
        status: done.result.map_or_else(Status::from, |()| Status::Ok),
        accepted: done.passage.accepted.nanos(),
        issued: done.passage.issued.nanos(),
        seen: done.passage.seen.nanos(),
    }
}

/// Converts a unit for C.
fn unit_of(number: u64, shape: &Shape, name: fmt::Arguments<'_>) -> Unit {
    let mut unit = Unit {
        number,
        block_size: shape.block_size,
        blocks: shape.blocks,
        write_protected: shape.write_protected,
        can_delete: shape.delete_blocks_max > 0,
        name: [0; 64],
    };
    let name = alloc::format!("{name}");
    let bytes = name.bytes().take(unit.name.len() - 1);
    unit.name.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as c_char);
    unit
}

/// Text of a device without its trailing spaces; empty if it is not UTF-8.
fn padded(bytes: &[u8]) -> &str {
    core::str::from_utf8(bytes).unwrap_or_default().trim_ascii_end()
}

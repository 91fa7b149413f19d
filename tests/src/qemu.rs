//! The UFS driver and the command layer on QEMU's device: the two releases, a machine, a stack.

use std::path::PathBuf;

use flysch_api::block::{BlockDevice as _, Completion, Operation, Request};
use flysch_api::data::Data;
use flysch_api::machine::{Clock as _, DmaRegion, Machine as _};
use flysch_cam::{Disk, Peripheral};
use flysch_qemu::{Backing, Machine, QemuError, QemuOptions, Unit};
use flysch_ufs::{Host, Port, QueueMode, UfsOptions as DriverOptions};

/// Size of the memory for scanning and for parameter lists.
const SCRATCH: usize = 64 << 10;

/// A release of QEMU that the tests support.
#[derive(Clone, Debug)]
pub struct Release {
    /// Its name in messages.
    pub name: &'static str,
    /// The binary.
    pub program: PathBuf,
    /// Whether its UFS device is that of QEMU 11: UFSHCI 4.1, WriteBooster, link attributes.
    pub is_11: bool,
}

/// The installed releases: `FLYSCH_QEMU_10` and `FLYSCH_QEMU_11` name the binaries. A line is
/// printed for each missing one; with `CI=true` that is a failure.
///
/// # Panics
/// With `CI=true` if one is missing.
pub fn releases() -> Vec<Release> {
    let both = [
        ("QEMU 10", "FLYSCH_QEMU_10", "qemu-system-x86_64", false),
        ("QEMU 11", "FLYSCH_QEMU_11", "qemu11-system-x86_64", true),
    ];
    let mut found = Vec::new();
    for (name, variable, default, is_11) in both {
        let program = std::env::var_os(variable).map_or_else(|| default.into(), PathBuf::from);
        let options = QemuOptions { program: Some(program.clone()), ..QemuOptions::default() };
        match Machine::start(&options) {
            Ok(_) => found.push(Release { name, program, is_11 }),
            Err(e @ (QemuError::NotFound { .. } | QemuError::TooOld { .. })) => {
                let line = format!("skipped: {name} ({variable}): {e}");
                assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{line}");
                eprintln!("{line}");
            }
            Err(e) => panic!("{name}: {e}"),
        }
    }
    found
}

/// The options of a machine of this release.
fn of_release(release: &Release) -> QemuOptions {
    QemuOptions { program: Some(release.program.clone()), ..QemuOptions::default() }
}

/// A logical unit in memory.
pub fn memory_unit(lun: u8, bytes: u64) -> Unit {
    Unit { lun, backing: Backing::Memory { bytes }, read_only: false }
}

/// A machine of this release; `queues` 0 is SDQ.
///
/// # Panics
/// If it does not start.
pub fn machine(release: &Release, queues: u8, units: Vec<Unit>) -> Machine {
    let options = QemuOptions { queues, memory_bytes: 64 << 20, units, ..of_release(release) };
    Machine::start(&options).unwrap_or_else(|e| panic!("{}: {e}", release.name))
}

/// The driver's options for a machine with this many queues.
pub fn driver_options(queues: u8) -> DriverOptions {
    DriverOptions {
        queue: if queues == 0 { QueueMode::Sdq } else { QueueMode::Mcq },
        lanes: queues.max(1),
        ..DriverOptions::default()
    }
}

/// A running host, and the memory left for scratch and data.
///
/// # Panics
/// If the bring-up fails.
pub fn host(machine: &Machine, options: DriverOptions) -> (Host<Machine>, DmaRegion) {
    let needed = Host::<Machine>::memory_len(&options).next_multiple_of(4096);
    let memory = machine.memory();
    let mut host = Host::new(machine.clone(), memory.carve(0, needed), options).expect("host");
    host.bring_up(machine).expect("bring-up");
    (host, memory.carve(needed, memory.len() - needed))
}

/// Ports, units and free memory of a freshly started machine.
#[derive(Debug)]
pub struct Stack {
    /// The machine.
    pub machine: Machine,
    /// One port per lane; the first carries the host.
    pub ports: Vec<Port<Machine>>,
    /// The units found by the scan.
    pub units: Vec<Peripheral>,
    /// Memory for the disks' parameter lists.
    pub scratch: DmaRegion,
    /// Memory for data.
    pub data: DmaRegion,
}

/// Starts, brings up and scans a machine.
///
/// # Panics
/// If any of that fails.
pub fn stack(release: &Release, queues: u8, units: Vec<Unit>) -> Stack {
    stack_on(machine(release, queues, units), queues)
}

/// Brings up and scans a machine with this many queues.
///
/// # Panics
/// If any of that fails.
pub fn stack_on(machine: Machine, queues: u8) -> Stack {
    let (host, memory) = host(&machine, driver_options(queues));
    let scratch = memory.carve(0, SCRATCH);
    let data = memory.carve(SCRATCH, memory.len() - SCRATCH);
    let mut ports = host.into_ports();
    let units = flysch_cam::scan(&mut ports[0], &machine, &scratch).expect("scan");
    Stack { machine, ports, units, scratch, data }
}

impl Stack {
    /// A disk on the first port and the unit with this number.
    ///
    /// # Panics
    /// If there is none.
    pub fn disk(mut self, lun: u8) -> (Disk<Port<Machine>>, Machine, DmaRegion) {
        let unit = self.units.iter().find(|unit| unit.lun.to_ufs() == Some(lun)).expect("the unit");
        let shape = unit.shape().expect("a disk");
        let port = self.ports.remove(0);
        let disk = Disk::new(port, shape, self.scratch, &flysch_cam::DiskOptions::default());
        (disk.expect("a disk"), self.machine, self.data)
    }
}

/// A request for a range of the device and as many bytes of data memory.
pub fn request(
    operation: Operation,
    offset: u64,
    length: u64,
    data: impl Into<Data>,
    machine: &Machine,
) -> Request {
    Request {
        operation,
        force_unit_access: false,
        offset,
        length,
        data: data.into(),
        crypto: None,
        token: offset,
        accepted: machine.now(),
    }
}

/// Submits requests to a disk, as many at once as it accepts, and waits for all of them.
///
/// # Panics
/// If the disk refuses one permanently.
pub fn carry_out(
    disk: &mut Disk<Port<Machine>>,
    machine: &Machine,
    requests: &[Request],
) -> Vec<Completion> {
    let mut next = 0;
    let mut done = Vec::new();
    while done.len() < requests.len() {
        let before = next;
        while let Some(request) = requests.get(next) {
            match disk.submit(request, machine.now()) {
                Ok(()) => next += 1,
                Err(flysch_api::block::Refused::Full) => break,
                Err(refused) => panic!("{request:?}: {refused:?}"),
            }
        }
        if next > before {
            disk.ring(machine.now());
        }
        let seen = done.len();
        while let Some(completion) = disk.poll(machine.now()) {
            done.push(completion);
        }
        if done.len() == seen && done.len() < requests.len() {
            machine.wait(disk.poll_at());
        }
    }
    done
}

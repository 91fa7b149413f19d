//! QEMU's UFS, NVMe, AHCI, eMMC and SD devices as an
//! [`api::machine::Machine`](flysch_api::machine::Machine).
//!
//! QEMU is started by [`Machine::start`] with its `ufs` device and logical units, its `nvme` device
//! and namespaces, its `ich9-ahci` device with disks and CDs, or its `sdhci-pci` controller and a
//! card, without root and without KVM. Its guest memory is a shared file, so DMA memory is plain
//! memory on both sides; registers and PCI configuration are accessed over the qtest socket. The
//! guest processor halts at its reset vector and stays there: only the clock and the device run in
//! the machine.
//!
//! | module | what |
//! |---|---|
//! | `process` | finds and starts QEMU, never leaves it behind |
//! | `qtest` | the text protocol over a socket |
//! | `pci` | finds the controller, gives it an address and bus mastering |
//! | `image` | memory and files behind logical units |
//! | `guest` | the same devices in a machine that boots its own operating system |
//!
//! If QEMU ends during the work, registers read as all ones from then on, which a driver takes for
//! a missing controller; [`Machine::ended`] returns the reason.
#![deny(missing_docs)]

mod error;
mod guest;
mod image;
mod memory;
mod nvme;
mod pci;
mod process;
mod qtest;
mod version;

#[cfg(test)]
mod tests;

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant as Wall;

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, MixedRegisters, Registers, Wake};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

pub use error::{ImageFault, Need, QemuError};
pub use guest::{Boot, Guest, QemuDevice};
pub use nvme::NvmeDevice;
pub use version::Version;

use image::{Created, Store};
use process::{Arguments, Process, Terminal};
use qtest::{Broken, Link};

/// Logical block size of QEMU's UFS logical units, bytes.
pub const BLOCK_SIZE: u64 = 4096;
/// Maximum number of queue pairs of QEMU's UFS device (`mcq-maxq` must stay below 32); as many
/// suffice for its NVMe device.
pub const QUEUES_MAX: u8 = 31;
/// Highest logical unit number; namespace IDs are one higher.
pub const LUN_MAX: u8 = 31;
/// Ports of QEMU's AHCI device.
pub const AHCI_PORTS: u8 = 6;
/// Maximum DMA memory: what a q35 machine maps below 4 GiB in one piece, less the first MiB.
pub const MEMORY_MAX: u64 = 2047 << 20;

/// What to start.
#[derive(Clone, Debug)]
pub struct QemuOptions {
    /// The QEMU binary; `None` takes `FLYSCH_QEMU`, then `qemu-system-x86_64` from the PATH.
    pub program: Option<PathBuf>,
    /// The device.
    pub controller: Controller,
    /// UFS: queue pairs of the multi-circular queue; 0 leaves MCQ off. NVMe: I/O queue pairs; 0 is
    /// one. At most [`QUEUES_MAX`]. AHCI has none.
    pub queues: u8,
    /// DMA memory, bytes; rounded up to whole MiB, at most [`MEMORY_MAX`]. It is sparse.
    pub memory_bytes: u64,
    /// The logical units, or namespaces.
    pub units: Vec<Unit>,
    /// A vfio-user socket (QEMU 11): the device served there is driven instead of QEMU's own
    /// device, and `queues` and `units` are ignored.
    pub socket: Option<PathBuf>,
}

impl Default for QemuOptions {
    /// SDQ, 256 MiB of DMA memory and one logical unit of 1 GiB in memory.
    fn default() -> Self {
        let backing = Backing::Memory { bytes: 1 << 30 };
        Self {
            program: None,
            controller: Controller::Ufs,
            queues: 0,
            memory_bytes: 256 << 20,
            units: vec![Unit { lun: 0, backing, read_only: false }],
            socket: None,
        }
    }
}

/// Which of QEMU's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// `ufs`, with `ufs-lu`.
    Ufs,
    /// `nvme`, with `nvme-ns`: logical unit n is namespace n + 1.
    Nvme(NvmeDevice),
    /// `ich9-ahci`, with `ide-hd` for writable units and `ide-cd` for read-only ones: logical unit
    /// n is at port n.
    Ahci,
    /// `sdhci-pci`, with `emmc` (QEMU 11). The only unit is the whole device: both boot partitions,
    /// the replay protected memory and the user area, in this order; the size of the user area is a
    /// power of two.
    Emmc {
        /// Bytes of each boot partition, a multiple of 128 KiB; 0 for none.
        boot_bytes: u64,
        /// Bytes of the replay protected memory, a multiple of 128 KiB up to 16 MiB; 0 for none.
        rpmb_bytes: u64,
    },
    /// `sdhci-pci`, with `sd-card`, whose size is a power of two.
    Sd,
}

impl Controller {
    /// QEMU's name for the device that carries the data.
    const fn device(self) -> &'static str {
        match self {
            Self::Ufs => "ufs",
            Self::Nvme(_) => "nvme",
            Self::Ahci => "ich9-ahci",
            Self::Emmc { .. } => "emmc",
            Self::Sd => "sd-card",
        }
    }

    /// What a QEMU that has it is needed for.
    const fn need(self) -> Need {
        match self {
            Self::Emmc { .. } => Need::Emmc,
            Self::Ufs | Self::Nvme(_) | Self::Ahci | Self::Sd => Need::Devices,
        }
    }

    /// Bytes of the device outside its user area.
    const fn extra_bytes(self) -> u64 {
        match self {
            Self::Emmc { boot_bytes, rpmb_bytes } => 2 * boot_bytes + rpmb_bytes,
            _ => 0,
        }
    }

    /// Whether it is a card, of which there can be only one.
    const fn is_card(self) -> bool {
        matches!(self, Self::Emmc { .. } | Self::Sd)
    }
}

/// Largest card: the maximum that QEMU's cards address.
pub const CARD_MAX: u64 = 128 << 30;
/// Alignment of the partitions of an eMMC device, bytes.
pub const PARTITION_UNIT: u64 = 128 << 10;
/// Largest replay protected memory of QEMU's eMMC device, bytes.
pub const RPMB_MAX: u64 = 16 << 20;

/// One logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its number, at most [`LUN_MAX`].
    pub lun: u8,
    /// Its backing store.
    pub backing: Backing,
    /// Whether it is write protected.
    pub read_only: bool,
}

/// The backing store of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Sparse memory, which ends with the machine.
    Memory {
        /// Size in bytes, a multiple of [`BLOCK_SIZE`].
        bytes: u64,
    },
    /// A raw image file.
    Image {
        /// The file.
        path: PathBuf,
        /// Size of the unit in bytes: a missing file is created with it, a longer one is visible
        /// only up to it. `None` means the whole file, which must exist.
        bytes: Option<u64>,
    },
}

/// QEMU with a controller. Cloning gives another handle to the same machine; QEMU ends with the
/// last one.
#[derive(Clone, Debug)]
pub struct Machine {
    shared: Arc<Shared>,
    memory: DmaRegion,
}

#[derive(Debug)]
struct Shared {
    link: Mutex<Link>,
    /// A duplicate of the link's socket, for waiting without holding the link.
    ear: UnixStream,
    process: Process,
    program: PathBuf,
    version: Version,
    window: pci::Window,
    started: Wall,
    /// Threads inside [`Clock::wait`]; another thread may receive the interrupt that they wait for.
    waiting: AtomicU32,
    /// Wakes them, one count each.
    wake: OwnedFd,
    /// Whether a waiter has already been told that QEMU is gone.
    told: AtomicBool,
}

impl Machine {
    /// Starts QEMU and makes its controller accessible.
    ///
    /// # Errors
    /// What is missing or wrong, in one line that names the remedy.
    pub fn start(options: &QemuOptions) -> Result<Self, QemuError> {
        check(options)?;
        let need = if options.socket.is_some() { Need::Client } else { options.controller.need() };
        let program = process::find(options.program.as_deref(), need)?;
        let version = process::version(&program, need)?;
        if version < version::OLDEST {
            return Err(QemuError::TooOld { need, program, version });
        }
        let units = if options.socket.is_some() { &[][..] } else { &options.units };
        let stores = units.iter().map(Store::open).collect::<Result<Vec<_>, _>>()?;
        check_card(options.controller, &stores)?;
        let served = options.socket.as_deref().map(socket_name).transpose()?;
        let ram = memory::GuestMemory::new(options.memory_bytes)?;
        let memory = ram.region()?;
        let system = |what| move |cause| QemuError::System { what, cause };
        let (ours, theirs) = UnixStream::pair().map_err(system("making a socket pair"))?;
        let theirs = OwnedFd::from(theirs);
        let firmware = memory::halting_firmware()?;
        let mut list = arguments(&ram, &theirs, &firmware);
        match &served {
            Some(served) => served_device(&mut list, served, SLOT),
            None => own_device(&mut list, options, &stores, SLOT),
        }
        let mut inherited = vec![theirs, firmware, ram.into_descriptor()];
        let mut created = Vec::new();
        for store in stores {
            inherited.push(store.descriptor);
            created.extend(store.created);
        }
        let process = Process::start(need, &program, list.into_vec(), inherited, Terminal::None)?;
        let ear = ours.try_clone().map_err(system("duplicating a socket"))?;
        let mut link = Link::new(ours).map_err(system("setting up the qtest socket"))?;
        let window = pci::attach(&mut link, options.controller)
            .map_err(|fault| start_error(&fault, &process, options, &program, version))?;
        let wake = rustix::event::eventfd(
            0,
            EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE,
        )
        .map_err(|e| QemuError::System { what: "making an eventfd", cause: e.into() })?;
        created.into_iter().for_each(Created::keep);
        let shared = Shared {
            link: Mutex::new(link),
            ear,
            process,
            program,
            version,
            window,
            started: Wall::now(),
            waiting: AtomicU32::new(0),
            wake,
            told: AtomicBool::new(false),
        };
        Ok(Self { shared: Arc::new(shared), memory })
    }

    /// The running binary.
    pub fn program(&self) -> &Path {
        &self.shared.program
    }

    /// Its release.
    pub fn version(&self) -> Version {
        self.shared.version
    }

    /// Its process ID.
    pub fn process_id(&self) -> u32 {
        self.shared.process.id()
    }

    /// Why the machine no longer answers, if it does not: how QEMU ended, and its last line.
    pub fn ended(&self) -> Option<String> {
        let broken = {
            let mut link = self.shared.link();
            let _ = link.drain();
            link.broken()?
        };
        Some(obituary(broken, &self.shared.process))
    }
}

impl Shared {
    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes waiting threads if the caller, holding the link, received what they wait for.
    fn pass_on(&self, link: &Link) {
        let waiting = self.waiting.load(Ordering::Relaxed);
        if waiting > 0 && (link.interrupt() || link.broken().is_some()) {
            let _ = rustix::io::write(&self.wake, &u64::from(waiting).to_ne_bytes());
        }
    }

    /// The address of `width` bytes at `offset` of the window.
    fn address(&self, offset: u32, width: u32) -> Option<u32> {
        let (base, length, offset) = match self.window.second {
            Some((base, length)) if offset >= pci::SECOND => (base, length, offset - pci::SECOND),
            _ => (self.window.base, self.window.length, offset),
        };
        let inside = offset.is_multiple_of(width) && offset < length;
        inside.then(|| base + offset)
    }

    /// A bus read of `width` bytes, by the command for it.
    fn read(&self, command: &str, offset: u32, width: u32) -> u64 {
        let Some(address) = self.address(offset, width) else { return u64::MAX };
        let mut link = self.link();
        let value = link.call(format_args!("{command} {address:#x}"));
        self.pass_on(&link);
        // Reads answer their own width; the protocol prints all as 64 bits.
        value.unwrap_or(u64::MAX)
    }

    /// A bus write of `width` bytes, by the command for it.
    fn write(&self, command: &str, offset: u32, width: u32, value: u64) {
        let Some(address) = self.address(offset, width) else { return };
        let mut link = self.link();
        // A write that cannot be sent vanishes, as on a bus; the next read tells.
        let _ = link.post(format_args!("{command} {address:#x} {value:#x}"));
        self.pass_on(&link);
    }

    fn now(&self) -> Instant {
        Instant::START + self.started.elapsed()
    }

    /// Checks the input once: the reason to stop waiting, if there is one.
    fn look(&self) -> Option<Wake> {
        let mut link = self.link();
        if link.drain().is_err() && !self.told.swap(true, Ordering::Relaxed) {
            return Some(Wake::Interrupt);
        }
        link.interrupt().then_some(Wake::Interrupt)
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        loop {
            if let Some(wake) = self.look() {
                return wake;
            }
            let left = until.map(|until| until - self.now());
            if left.is_some_and(|left| left.is_zero()) {
                return Wake::Deadline;
            }
            if self.link().broken().is_some() {
                // A dead machine never interrupts again; its socket would wake us for ever.
                let Some(left) = left else { return Wake::Idle };
                std::thread::sleep(left);
                return Wake::Deadline;
            }
            self.sleep(left.map(|left| Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }));
        }
    }

    /// Sleeps until there is input from QEMU or another thread, or `left` is over.
    fn sleep(&self, left: Option<Timespec>) {
        let mut fds =
            [PollFd::new(&self.ear, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
        let _ = rustix::event::poll(&mut fds, left.as_ref());
        if !fds[1].revents().is_empty() {
            let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        }
    }
}

impl Registers for Machine {
    fn read32(&self, offset: u32) -> u32 {
        self.shared.read("readl", offset, 4) as u32
    }

    fn write32(&self, offset: u32, value: u32) {
        self.shared.write("writel", offset, 4, value.into());
    }
}

impl MixedRegisters for Machine {
    fn read8(&self, offset: u32) -> u8 {
        self.shared.read("readb", offset, 1) as u8
    }

    fn write8(&self, offset: u32, value: u8) {
        self.shared.write("writeb", offset, 1, value.into());
    }

    fn read16(&self, offset: u32) -> u16 {
        self.shared.read("readw", offset, 2) as u16
    }

    fn write16(&self, offset: u32, value: u16) {
        self.shared.write("writew", offset, 2, value.into());
    }

    fn read64(&self, offset: u32) -> u64 {
        self.shared.read("readq", offset, 8)
    }

    fn write64(&self, offset: u32, value: u64) {
        self.shared.write("writeq", offset, 8, value);
    }
}

impl Clock for Machine {
    fn now(&self) -> Instant {
        self.shared.now()
    }

    /// Sleeps until the controller's interrupt line is up, `until` has come, or QEMU has ended; the
    /// last counts as an interrupt once, so that the driver checks and notices.
    fn wait(&self, until: Option<Instant>) -> Wake {
        self.shared.waiting.fetch_add(1, Ordering::SeqCst);
        let wake = self.shared.wait(until);
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
        wake
    }
}

impl flysch_api::machine::Machine for Machine {
    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn identity(&self) -> Identity {
        self.shared.window.identity
    }

    fn bar(&self, number: u8) -> Option<u32> {
        match number {
            0 => Some(0),
            2 => self.shared.window.second.map(|_| pci::SECOND),
            _ => None,
        }
    }
}

fn check(options: &QemuOptions) -> Result<(), QemuError> {
    let refuse = |text: String| Err(QemuError::Option(text));
    if let Controller::Nvme(device) = options.controller {
        device.check()?;
    }
    if options.controller.is_card() {
        check_partitions(options)?;
    }
    if options.queues > QUEUES_MAX {
        let queues = options.queues;
        return refuse(format!("{queues} queues: QEMU's device has at most {QUEUES_MAX}"));
    }
    if options.memory_bytes == 0 || options.memory_bytes > MEMORY_MAX {
        let bytes = options.memory_bytes;
        return refuse(format!("{bytes} bytes of DMA memory: it must have 1 to {MEMORY_MAX}"));
    }
    let mut seen = 0_u32;
    for unit in &options.units {
        let lun = unit.lun;
        if lun > LUN_MAX {
            return refuse(format!("logical unit {lun}: the highest number is {LUN_MAX}"));
        }
        if options.controller == Controller::Ahci && lun >= AHCI_PORTS {
            let last = AHCI_PORTS - 1;
            return refuse(format!("port {lun}: QEMU's AHCI device has ports 0 to {last}"));
        }
        if seen & (1 << lun) != 0 {
            return refuse(format!("logical unit {lun} is given twice"));
        }
        seen |= 1 << lun;
    }
    Ok(())
}

/// A card is one unit, and its partitions have QEMU's own granularity.
fn check_partitions(options: &QemuOptions) -> Result<(), QemuError> {
    let refuse = |text: String| Err(QemuError::Option(text));
    if options.units.len() != 1 || options.units[0].lun != 0 {
        return refuse("a card has one unit, number 0".into());
    }
    let Controller::Emmc { boot_bytes, rpmb_bytes } = options.controller else { return Ok(()) };
    if !boot_bytes.is_multiple_of(PARTITION_UNIT) || boot_bytes > 255 * PARTITION_UNIT {
        return refuse(format!(
            "a boot partition of {boot_bytes} bytes: it must have a multiple of 128 KiB below 32 \
             MiB"
        ));
    }
    if !rpmb_bytes.is_multiple_of(PARTITION_UNIT) || rpmb_bytes > RPMB_MAX {
        return refuse(format!(
            "replay protected memory of {rpmb_bytes} bytes: it must have a multiple of 128 KiB up \
             to 16 MiB"
        ));
    }
    Ok(())
}

/// QEMU accepts only some card sizes, and would refuse others in its own words.
fn check_card(controller: Controller, stores: &[Store]) -> Result<(), QemuError> {
    let (Some(store), true) = (stores.first(), controller.is_card()) else { return Ok(()) };
    let user = store.bytes.saturating_sub(controller.extra_bytes());
    if user.is_power_of_two() && user <= CARD_MAX {
        return Ok(());
    }
    Err(QemuError::Option(format!(
        "a card of {user} bytes (boot partitions and replay protected memory not counted): QEMU \
         takes powers of two up to {CARD_MAX}"
    )))
}

/// The path of a socket as a JSON string.
fn socket_name(path: &Path) -> Result<String, QemuError> {
    let failed = |cause| QemuError::Socket { path: path.to_path_buf(), cause };
    let path = path.canonicalize().map_err(failed)?;
    let text = path.to_str().filter(|text| !text.contains(char::is_control));
    let text = text.ok_or_else(|| failed(std::io::ErrorKind::InvalidFilename.into()))?;
    Ok(text.replace('\\', r"\\").replace('"', r#"\""#))
}

/// QEMU's command line except for the device. Names come from descriptors, so nothing in it needs
/// escaping.
fn arguments(ram: &memory::GuestMemory, socket: &OwnedFd, firmware: &OwnedFd) -> Arguments {
    let mut list = Arguments::default();
    list.flag("-nodefaults");
    list.flag("-no-user-config");
    list.option("-display", "none");
    list.option("-monitor", "none");
    // No timer and no disk of the machine itself may raise an interrupt: the only lines seen are
    // the UFS controller's.
    list.option(
        "-machine",
        "q35,accel=tcg,memory-backend=ram0,graphics=off,usb=off,sata=off,smbus=off,vmport=off,\
         pit=off,hpet=off",
    );
    let (bytes, name) = (ram.bytes(), ram.name());
    list.option("-m", format!("{}M", bytes >> 20));
    list.option(
        "-object",
        format!("memory-backend-file,id=ram0,size={bytes},mem-path={name},share=on"),
    );
    list.option("-bios", process::inherited_name(firmware));
    list.option("-chardev", format!("socket,id=qtest0,fd={}", socket.as_raw_fd()));
    list.option("-qtest", "chardev:qtest0");
    list.option("-qtest-log", "none");
    list
}

/// The address of a device on its bus; `None` leaves it to QEMU.
type Slot = Option<u32>;

/// Where [`pci`] looks for the device.
const SLOT: Slot = Some(pci::SLOT);

/// The device served at `socket`.
fn served_device(list: &mut Arguments, socket: &str, slot: Slot) {
    let place = slot.map_or_else(String::new, |slot| format!("\"addr\":\"{slot}\","));
    list.option(
        "-device",
        format!(
            r#"{{"driver":"vfio-user-pci","bus":"pcie.0",{place}
                "socket":{{"type":"unix","path":"{socket}"}}}}"#
        ),
    );
}

/// QEMU's own device with its logical units.
fn own_device(list: &mut Arguments, options: &QemuOptions, stores: &[Store], slot: Slot) {
    let second = match options.controller {
        Controller::Nvme(device) if device.controllers == 2 => {
            list.option("-device", "nvme-subsys,id=sub0,nqn=flysch");
            Some(format!("nvme,id=host1,bus=pcie.0,{}", device.controller(options.queues)))
        }
        _ => None,
    };
    list.option("-device", controller_device(options, slot));
    if let Some(second) = second {
        list.option("-device", second);
    }
    for (unit, store) in options.units.iter().zip(stores) {
        let (lun, bytes) = (unit.lun, store.bytes);
        let name = process::inherited_name(&store.descriptor);
        let mode = if unit.read_only { "readonly=on" } else { "discard=unmap" };
        // Errors of the file go to the guest: by default a full file system stops the machine.
        list.option(
            "-drive",
            format!(
                "if=none,id=lu{lun},format=raw,file={name},size={bytes},{mode},werror=report,\
                 rerror=report"
            ),
        );
        list.option("-device", unit_device(options.controller, unit));
    }
}

/// The controller on the command line.
fn controller_device(options: &QemuOptions, slot: Slot) -> String {
    let mut place = "id=host0,bus=pcie.0".to_owned();
    if let Some(slot) = slot {
        place += &format!(",addr={slot}");
    }
    match (options.controller, options.queues) {
        (Controller::Ufs, 0) => format!("ufs,{place}"),
        (Controller::Ufs, queues) => format!("ufs,{place},mcq=true,mcq-maxq={queues}"),
        (Controller::Nvme(device), queues) => {
            format!("nvme,{place},{}", device.controller(queues))
        }
        (Controller::Ahci, _) => format!("ich9-ahci,{place}"),
        (Controller::Emmc { .. } | Controller::Sd, _) => format!("sdhci-pci,{place}"),
    }
}

/// A unit of it.
fn unit_device(controller: Controller, unit: &Unit) -> String {
    let lun = unit.lun;
    match controller {
        Controller::Ahci => {
            let kind = if unit.read_only { "ide-cd" } else { "ide-hd" };
            format!("{kind},bus=host0.{lun},drive=lu{lun}")
        }
        Controller::Ufs => format!("ufs-lu,bus=host0,drive=lu{lun},lun={lun}"),
        Controller::Nvme(device) => device.namespace(lun),
        Controller::Emmc { boot_bytes, rpmb_bytes } => {
            let boot = format!("boot-partition-size={boot_bytes}");
            format!("emmc,drive=lu{lun},{boot},rpmb-partition-size={rpmb_bytes}")
        }
        Controller::Sd => format!("sd-card,drive=lu{lun}"),
    }
}

/// Why a QEMU that was started did not become a machine.
fn start_error(
    fault: &pci::Fault,
    process: &Process,
    options: &QemuOptions,
    program: &Path,
    version: Version,
) -> QemuError {
    let cause = match fault {
        // First wait for the end, then read the last words.
        pci::Fault::Link(broken) => obituary(*broken, process),
        pci::Fault::Device(cause) => cause.clone(),
    };
    known_words(&process.last_words(), options, program, version)
        .unwrap_or_else(|| QemuError::Start { program: program.to_path_buf(), version, cause })
}

/// The message about a QEMU that no longer answers.
fn obituary(broken: Broken, process: &Process) -> String {
    let what = match broken {
        Broken::Ended => match process.ending() {
            Some(status) => format!("QEMU ended ({status})"),
            None => "QEMU closed the connection".into(),
        },
        Broken::Silent => return "QEMU no longer answers; is it stopped?".into(),
        Broken::Garbled => "QEMU's answer is not of the qtest protocol".into(),
    };
    match process.last_words().lines().rev().find(|line| !line.trim().is_empty()) {
        Some(line) => format!("{what}: {}", line.trim()),
        None => what,
    }
}

/// Recognises refusals of QEMU that have their own error here.
fn known_words(
    words: &str,
    options: &QemuOptions,
    program: &Path,
    version: Version,
) -> Option<QemuError> {
    if words.contains("'vfio-user-pci' is not a valid device model name") {
        return Some(QemuError::NoClient { program: program.to_path_buf(), version });
    }
    let device = options.controller.device();
    let unknown = format!("'{device}' is not a valid device model name");
    // A release may have the type without letting anyone make one, or without a property.
    let unusable = "'driver' expects a pluggable device type";
    let older = words.contains(unusable) || words.contains("rpmb-partition-size' not found");
    if words.contains(&unknown) || older && options.controller.is_card() {
        let (need, program) = (options.controller.need(), program.to_path_buf());
        return Some(QemuError::NoDevice { need, device, program, version });
    }
    let line = words.lines().find(|line| line.contains("lock") && line.contains("drive=lu"))?;
    let unit = options.units.iter().find(|u| line.contains(&format!("drive=lu{},", u.lun)))?;
    match &unit.backing {
        Backing::Image { path, .. } => {
            Some(QemuError::Image { path: path.clone(), fault: ImageFault::Busy })
        }
        Backing::Memory { .. } => None,
    }
}

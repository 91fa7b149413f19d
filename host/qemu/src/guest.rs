//! QEMU as a complete machine: it boots an operating system, which finds the devices and drives
//! them with its own drivers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::error::{Need, QemuError};
use crate::image::{Created, Store};
use crate::process::{self, Arguments, Process, Terminal};
use crate::version::Version;
use crate::{QemuOptions, check, check_card, known_words, own_device, served_device, socket_name};

/// A device of the machine.
#[derive(Clone, Debug)]
pub enum QemuDevice {
    /// One of QEMU's own; program, memory and socket in the options are ignored. A machine has at
    /// most one of these.
    Own(QemuOptions),
    /// A device served at a vfio-user socket.
    Served(PathBuf),
}

/// What to start.
#[derive(Clone, Debug)]
pub struct Boot<'a> {
    /// The QEMU binary; `None` takes `FLYSCH_QEMU`, then `qemu-system-x86_64` from the PATH.
    pub program: Option<&'a Path>,
    /// QEMU's arguments except for memory and `devices`: processors, kernel, disks, serial lines.
    pub arguments: Vec<OsString>,
    /// Memory of the machine, MiB.
    pub memory_mib: u32,
    /// Its devices. If there are any, it is a `q35` machine without its own AHCI controller.
    pub devices: &'a [QemuDevice],
    /// Whether QEMU uses the terminal of this process; otherwise its standard input and output are
    /// discarded.
    pub terminal: bool,
}

impl Boot<'_> {
    fn need(&self) -> Need {
        let mut needs = self.devices.iter().map(|device| match device {
            QemuDevice::Own(options) => options.controller.need(),
            QemuDevice::Served(_) => Need::Client,
        });
        needs.find(|need| *need != Need::Devices).unwrap_or(Need::Devices)
    }
}

/// A running machine. Dropping it ends it, and so does the end of this process.
#[derive(Debug)]
pub struct Guest {
    process: Process,
    program: PathBuf,
}

impl Guest {
    /// Starts QEMU.
    ///
    /// # Errors
    /// What is missing or wrong, in one line that names the remedy. If QEMU itself refuses
    /// something, it ends: see [`failure`](Self::failure).
    pub fn start(boot: &Boot<'_>) -> Result<Self, QemuError> {
        let need = boot.need();
        let program = process::find(boot.program, need)?;
        let mut list = Arguments::default();
        list.flag("-nodefaults");
        list.option("-m", format!("{}M", boot.memory_mib));
        if !boot.devices.is_empty() {
            list.option(
                "-object",
                format!("memory-backend-memfd,id=ram0,size={}M,share=on", boot.memory_mib),
            );
            list.option("-machine", "q35,memory-backend=ram0,sata=off");
        }
        list.extend(boot.arguments.iter().cloned());
        let mut inherited = Vec::new();
        let mut created = Vec::new();
        for device in boot.devices {
            match device {
                QemuDevice::Served(path) => served_device(&mut list, &socket_name(path)?, None),
                QemuDevice::Own(options) => {
                    check(options)?;
                    let stores =
                        options.units.iter().map(Store::open).collect::<Result<Vec<_>, _>>()?;
                    check_card(options.controller, &stores)?;
                    own_device(&mut list, options, &stores, None);
                    for store in stores {
                        inherited.push(store.descriptor);
                        created.extend(store.created);
                    }
                }
            }
        }
        let terminal = if boot.terminal { Terminal::Ours } else { Terminal::None };
        let process = Process::start(need, &program, list.into_vec(), inherited, terminal)?;
        created.into_iter().for_each(Created::keep);
        Ok(Self { process, program })
    }

    /// Its process ID.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// How QEMU ended, if it has.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.process.status()
    }

    /// Why QEMU has ended: what it refused, and the remedy if it is known. `None` if it printed
    /// nothing.
    pub fn failure(&self, boot: &Boot<'_>) -> Option<QemuError> {
        let words = self.process.last_words();
        let line = words.lines().rev().find(|line| !line.trim().is_empty())?.trim().to_owned();
        let version = process::version(&self.program, boot.need()).unwrap_or(Version::UNKNOWN);
        let nothing = QemuOptions::default();
        let options = boot.devices.iter().find_map(|device| match device {
            QemuDevice::Own(options) => Some(options),
            QemuDevice::Served(_) => None,
        });
        let known = known_words(&words, options.unwrap_or(&nothing), &self.program, version);
        let program = self.program.clone();
        Some(known.unwrap_or(QemuError::Start { program, version, cause: line }))
    }
}

//! The lab: a Linux guest that does with the real kernel what Flysch does in user space.
//!
//! The guest is a small Debian tree with the distribution's own kernel, run in QEMU with software
//! emulation: no root, no KVM, no kernel modules on this machine. A [`Job`] is a shell script and a
//! folder; the guest sees the folder as `/share`, runs the script there as root with all modules of
//! the kernel available (nandsim, mtdram, ubi, ubifs, jffs2, ...) and switches itself off. The
//! result is whatever the script left in the folder.
//!
//! ```no_run
//! use std::time::Duration;
//! let lab = flysch_lab::Lab::open()?;
//! let share = tempfile::tempdir()?;
//! let script = "modprobe nandsim && cat /proc/mtd > mtd.txt";
//! let done = lab.run(&flysch_lab::Job::new(script, share.path()))?;
//! assert_eq!(done.status, 0, "{}", done.output);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod build;
mod guest;
pub mod manifest;

use std::path::{Path, PathBuf};

pub use flysch_qemu::QemuDevice;
pub use guest::{Done, Job};

/// The folder of the lab unless `FLYSCH_LAB` names another one.
const FOLDER: &str = "/var/cache/flysch/lab";

/// The kernel of a guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kernel {
    /// The kernel of the Debian release: 6.12.
    #[default]
    Release,
    /// The newest one available for the release: 7.x.
    Backports,
}

impl Kernel {
    /// All kernels.
    pub const ALL: [Self; 2] = [Self::Release, Self::Backports];
}

/// Why the lab could not be built or used.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The lab was not built, or was built by an older recipe.
    #[error("there is no lab in {}: run `flysch lab build` as root", .0.display())]
    NotBuilt(PathBuf),
    /// Modules that Debian's kernel lacks were not built for the guest's.
    #[error("there are no modules in {}: run `flysch-lab build` as root", .0.display())]
    NoModules(PathBuf),
    /// A program is missing on this machine.
    #[error("{program} is missing: install the Debian package {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// The package that contains it.
        package: &'static str,
    },
    /// A program failed; with the last line it wrote.
    #[error("{program} failed: {said}")]
    Failed {
        /// The program.
        program: String,
        /// The last line it wrote.
        said: String,
    },
    /// QEMU could not be started, or refused its arguments.
    #[error(transparent)]
    Qemu(#[from] flysch_qemu::QemuError),
    /// The function that watches the guest asked to stop.
    #[error("the guest was stopped")]
    Stopped,
    /// The guest was not done in time.
    #[error("the guest did not finish in {seconds} s; its console ends with: {console}")]
    TimedOut {
        /// How long this waited for it.
        seconds: u64,
        /// The last lines of its console.
        console: String,
    },
    /// The guest stopped without a result: the kernel or the start script failed.
    #[error("the guest gave no result; its console ends with: {0}")]
    NoResult(String),
    /// A file of the lab or the share.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
}

impl LabError {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::File { path: path.to_path_buf(), source }
    }
}

/// A built lab.
#[derive(Clone, Debug)]
pub struct Lab {
    folder: PathBuf,
    kernel: Kernel,
}

impl Lab {
    /// The folder of the lab, whether or not it exists.
    pub fn folder() -> PathBuf {
        std::env::var_os("FLYSCH_LAB").map_or_else(|| PathBuf::from(FOLDER), PathBuf::from)
    }

    /// The folder of the guest with that kernel, whether or not it exists.
    pub fn folder_of(kernel: Kernel) -> PathBuf {
        match kernel {
            Kernel::Release => Self::folder(),
            Kernel::Backports => Self::folder().join("backports"),
        }
    }

    /// The existing lab, with the release's kernel, or with the newer one if `FLYSCH_LAB_KERNEL` is
    /// `backports`.
    ///
    /// # Errors
    /// [`LabError::NotBuilt`] if there is none, or one made by an older recipe.
    pub fn open() -> Result<Self, LabError> {
        let is_newer = std::env::var("FLYSCH_LAB_KERNEL").is_ok_and(|name| name == "backports");
        Self::open_with(if is_newer { Kernel::Backports } else { Kernel::Release })
    }

    /// The existing lab with that kernel.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(kernel: Kernel) -> Result<Self, LabError> {
        let folder = Self::folder_of(kernel);
        let stamp = std::fs::read_to_string(folder.join(build::STAMP)).unwrap_or_default();
        match stamp == build::recipe(kernel) {
            true => Ok(Self { folder, kernel }),
            false => Err(LabError::NotBuilt(folder)),
        }
    }

    /// The file that is the guest's disk; nothing writes to it.
    pub fn disk(&self) -> PathBuf {
        self.folder.join(build::DISK)
    }

    /// Builds the lab, with each kernel, unless it exists; `say` is called for each step.
    ///
    /// Needs root (Debian's bootstrap unpacks device nodes and owners), `mmdebstrap`, `mke2fs` and
    /// a Debian mirror; takes some minutes and 4 GiB, of which 2 GiB are kept.
    ///
    /// # Errors
    /// The error names what is missing or went wrong. A half-built lab is never taken for a
    /// complete one.
    pub fn build(say: &mut dyn FnMut(&str)) -> Result<(), LabError> {
        for kernel in Kernel::ALL {
            let lab = match Self::open_with(kernel) {
                Err(LabError::NotBuilt(_)) => Self::build_guest(kernel, say)?,
                opened => opened?,
            };
            // Those of the newer kernel cannot be built from its sources alone.
            let modules: &[&build::Modules] = match kernel {
                Kernel::Release => {
                    &[&build::FASTMAP, &build::SIGNED, &build::QUERIES, &build::IOMMUFD]
                }
                Kernel::Backports => &[],
            };
            for modules in modules {
                if lab.modules(modules).is_err() {
                    build::build_modules(&lab.folder, modules, say)?;
                }
            }
        }
        Ok(())
    }

    /// Rebuilds the guest with that kernel, without modules that Debian lacks; otherwise like
    /// [`build`](Self::build).
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_guest(kernel: Kernel, say: &mut dyn FnMut(&str)) -> Result<Self, LabError> {
        let folder = Self::folder_of(kernel);
        build::build(&folder, kernel, say)?;
        Ok(Self { folder, kernel })
    }

    /// The version of its kernel, such as `6.12.1+deb13-amd64`.
    pub fn version(&self) -> Option<String> {
        build::version_of(&std::fs::read(self.folder.join(build::KERNEL)).ok()?)
    }

    /// Its kernel.
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// The folder of `ubi.ko` and `ubifs.ko` with fastmap, for the guest's kernel, whose own
    /// modules are built without it: copied into the share, they can be loaded by `insmod` in the
    /// guest.
    ///
    /// # Errors
    /// [`LabError::NoModules`] if there are none, or only for another kernel.
    pub fn fastmap_modules(&self) -> Result<PathBuf, LabError> {
        self.modules(&build::FASTMAP)
    }

    /// The folder of `ubifs.ko` with authentication, for the guest's kernel, whose own module is
    /// built without it, and of `trust.ko`, which makes that kernel trust a certificate.
    ///
    /// # Errors
    /// [`LabError::NoModules`] if there is none, or only for another kernel.
    pub fn signed_modules(&self) -> Result<PathBuf, LabError> {
        self.modules(&build::SIGNED)
    }

    /// The folder of `ufshcd-core.ko` and `ufshcd-pci.ko` with BSG, through which programs send
    /// queries to a UFS device, for the guest's kernel, whose own modules are built without it.
    ///
    /// # Errors
    /// [`LabError::NoModules`] if there are none, or only for another kernel.
    pub fn query_modules(&self) -> Result<PathBuf, LabError> {
        self.modules(&build::QUERIES)
    }

    /// The folder of `iommufd.ko`, and of `vfio.ko`, `vfio_iommu_type1.ko`, `vfio-pci-core.ko` and
    /// `vfio-pci.ko` that make files for single devices, for the guest's kernel, which is built
    /// without them; to be loaded in that order, after `irqbypass`.
    ///
    /// # Errors
    /// [`LabError::NoModules`] if there are none, or only for another kernel.
    pub fn iommufd_modules(&self) -> Result<PathBuf, LabError> {
        self.modules(&build::IOMMUFD)
    }

    fn modules(&self, modules: &build::Modules) -> Result<PathBuf, LabError> {
        let folder = self.folder.join(modules.name);
        let stamp = std::fs::read_to_string(folder.join(build::STAMP)).unwrap_or_default();
        let is_new = stamp == build::modules_recipe(&self.folder, modules);
        if is_new { Ok(folder) } else { Err(LabError::NoModules(folder)) }
    }

    /// Starts the guest, runs the job and waits for its end.
    ///
    /// # Errors
    /// If the guest could not be started, hung, or stopped without a result. A failing script is
    /// not an error: see [`Done::status`].
    pub fn run(&self, job: &Job<'_>) -> Result<Done, LabError> {
        self.run_while(job, &mut || true)
    }

    /// As [`run`](Self::run); `watch` is called some fifty times a second, and ends the guest when
    /// it returns `false`.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`LabError::Stopped`].
    pub fn run_while(
        &self,
        job: &Job<'_>,
        watch: &mut dyn FnMut() -> bool,
    ) -> Result<Done, LabError> {
        guest::run(&self.folder, job, watch)
    }
}

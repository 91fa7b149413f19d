//! Takes a function from Linux's driver, and gives it back.

use std::io;
use std::path::PathBuf;

use super::{Function, Tree, VFIO_DRIVER, busy};
use crate::address::Address;
use crate::error::VfioError;

/// The former and the present driver of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The function.
    pub address: Address,
    /// The driver before.
    pub from: Option<String>,
    /// The driver now.
    pub to: Option<String>,
}

impl Tree {
    /// Binds the function to vfio-pci; with `force` also if its disks are in use, and with it all
    /// of its group. Returns what was done, in order: nothing if everything was bound already.
    ///
    /// # Errors
    /// What prevents it. If a step fails, those before it are undone.
    pub fn bind(&self, address: Address, force: bool) -> Result<Vec<Change>, VfioError> {
        let wanted = self.to_bind(address, force)?;
        let driver = self.pci("drivers").join(VFIO_DRIVER);
        if !driver.exists() {
            return Err(VfioError::NoVfio { path: driver, has_iommufd: false });
        }
        let mut done: Vec<Change> = Vec::new();
        for function in wanted {
            match self.hand_over(&function, Some(VFIO_DRIVER)) {
                Ok(change) => done.push(change),
                Err(error) => {
                    for change in done.iter().rev() {
                        if let Ok(now) = self.function(change.address) {
                            let _ = self.hand_over(&now, None);
                        }
                    }
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// The functions to be bound for this one to be usable, that one first.
    fn to_bind(&self, address: Address, force: bool) -> Result<Vec<Function>, VfioError> {
        let function = self.function(address)?;
        if function.is_bridge() {
            let what = "a bridge stays with Linux".to_owned();
            return Err(VfioError::Device { address, what });
        }
        let group = function.group.ok_or(VfioError::NoIommu { address })?;
        if function.is_unprotected {
            return Err(VfioError::Unprotected { address });
        }
        let others = self.in_the_way(&function);
        if !force && !others.is_empty() {
            let others = others.iter().map(Function::named).collect();
            return Err(VfioError::Shared { address, group, others });
        }
        let others = others.into_iter().filter(|other| !other.is_bridge());
        let mut wanted: Vec<Function> = std::iter::once(function).chain(others).collect();
        wanted.retain(|function| !function.is_ours());
        match wanted.iter().find(|function| !force && !function.uses.is_empty()) {
            None => Ok(wanted),
            Some(Function { address, uses, .. }) => {
                let again = format!("flysch pci bind {address}");
                let remedy = busy::remedy(uses, &again);
                let remedy = format!("{remedy}; `{again} --yes` takes it away from under them");
                let uses = uses.iter().map(ToString::to_string).collect();
                Err(VfioError::InUse { address: *address, uses, remedy })
            }
        }
    }

    /// Gives the function back to Linux, whose own driver takes it, if there is one.
    ///
    /// # Errors
    /// [`VfioError::NotOurs`] if it is not bound to vfio-pci, [`VfioError::Busy`] if a program uses
    /// it.
    pub fn unbind(&self, address: Address) -> Result<Change, VfioError> {
        let function = self.function(address)?;
        if !function.is_ours() {
            return Err(VfioError::NotOurs { address, driver: function.driver });
        }
        // The kernel would wait for the program, for ever.
        if let Some(pid) = self.user_of(&function) {
            return Err(VfioError::Busy { address, pid });
        }
        self.hand_over(&function, None)
    }

    /// Whether a program uses the function or its group, and its process if that is visible. For a
    /// function's own file only the process shows that, because anybody may open it.
    fn user_of(&self, function: &Function) -> Option<Option<u32>> {
        if let Some(pid) = self.holder(function) {
            return Some(Some(pid));
        }
        let path = self.vfio(&function.group?.to_string());
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(&path);
        let is_busy = |error: io::Error| error.kind() == io::ErrorKind::ResourceBusy;
        opened.is_err_and(is_busy).then_some(None)
    }

    /// The process that has the function's group or the function itself open, as far as this
    /// process may see.
    pub(crate) fn holder(&self, function: &Function) -> Option<u32> {
        let group = function.group.map(|group| self.vfio(&group.to_string()));
        let files: Vec<PathBuf> =
            group.into_iter().chain(self.device_file(function.address)).collect();
        let processes = std::fs::read_dir(self.proc()).ok()?.flatten();
        let has = |pid: &u32| {
            let folder = self.proc().join(pid.to_string()).join("fd");
            let mut open = std::fs::read_dir(folder).into_iter().flatten().flatten();
            open.any(|file| std::fs::read_link(file.path()).is_ok_and(|to| files.contains(&to)))
        };
        processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(has)
    }

    /// Unbinds the function from its driver and binds it to `driver`, or to the driver chosen by
    /// Linux.
    fn hand_over(&self, function: &Function, driver: Option<&str>) -> Result<Change, VfioError> {
        let Function { address, driver: from, .. } = function;
        let address = *address;
        let result = self.steps(function, driver);
        let to = self.function(address)?.driver;
        let is_done = match driver {
            Some(driver) => to.as_deref() == Some(driver),
            None => to.as_deref() != Some(VFIO_DRIVER),
        };
        match result {
            Ok(()) if is_done => Ok(Change { address, from: from.clone(), to }),
            result => {
                if driver.is_some() {
                    // Back to whoever had it.
                    let now = self.function(address)?;
                    let _ = self.steps(&now, None);
                }
                let denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
                match result {
                    Err((path, error)) if denied(&error) => Err(VfioError::Permission { path }),
                    Err((path, error)) => {
                        let what = format!("writing {}: {error}", path.display());
                        Err(VfioError::NotBound { address, what })
                    }
                    Ok(()) => {
                        let who = driver.unwrap_or("Linux");
                        let what =
                            format!("{who} did not take it; see the kernel's log for the reason");
                        Err(VfioError::NotBound { address, what })
                    }
                }
            }
        }
    }

    /// The writes of a change (Documentation/ABI/testing/sysfs-bus-pci): `driver_override`,
    /// unbinding from the present driver, and a new probe.
    fn steps(
        &self,
        function: &Function,
        driver: Option<&str>,
    ) -> Result<(), (std::path::PathBuf, io::Error)> {
        let name = function.address.to_string();
        let folder = self.folder(function.address);
        let write = |path: std::path::PathBuf, text: &str| {
            self.write(&path, text).map_err(|error| (path, error))
        };
        write(folder.join("driver_override"), driver.unwrap_or("\n"))?;
        if function.driver.is_some() {
            write(folder.join("driver/unbind"), &name)?;
        }
        write(self.pci("drivers_probe"), &name)
    }
}

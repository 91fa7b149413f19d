//! Building the guest: a Debian tree, a disk image of it, and a start-up archive with the few
//! modules that the kernel needs to find that disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Kernel, LabError};

/// The release that provides the guest's mtd-utils and, unless another one is requested, its
/// kernel.
const RELEASE: &str = "trixie";
/// The kernel comes first: see [`packages`].
const PACKAGES: &str = "linux-image-amd64,kmod,mtd-utils,attr,acl,busybox-static,e2fsprogs,fio";
/// The suite with newer kernels for a tree of that release.
const BACKPORTS: &str = "trixie-backports";
/// All package sources.
const SOURCES: [&str; 4] = [
    "deb http://deb.debian.org/debian trixie main",
    "deb http://deb.debian.org/debian trixie-updates main",
    "deb http://deb.debian.org/debian-security trixie-security main",
    "deb http://deb.debian.org/debian trixie-backports main",
];
/// The modules that the kernel needs before it sees its root disk and the share.
const EARLY_MODULES: [&str; 6] =
    ["virtio_pci", "virtio_blk", "ext4", "overlay", "9p", "9pnet_virtio"];
const DISK_SIZE: &str = "900M";

/// The start script of the archive: loads modules, makes a disposable root over the disk.
const INIT: &str = include_str!("init.sh");
/// The first program of that root: runs the job, stores its status, switches off.
const RUN: &str = include_str!("run.sh");
/// Builds the modules with fastmap; its arguments are the kernel's version and its series.
const MAKE_MODULES: &str = include_str!("modules.sh");

/// Written last; holds the recipe by which the lab was made.
pub(crate) const STAMP: &str = "recipe";
pub(crate) const KERNEL: &str = "vmlinuz";
pub(crate) const ARCHIVE: &str = "initrd";
pub(crate) const DISK: &str = "root.ext4";

/// Everything that determines the contents of the lab; any change causes a rebuild.
pub(crate) fn recipe(kernel: Kernel) -> String {
    let packages = packages(kernel);
    [RELEASE, &packages, &EARLY_MODULES.join(","), DISK_SIZE, INIT, RUN].join("\n")
}

/// The packages of the tree; the newer kernel is the same package from another suite.
fn packages(kernel: Kernel) -> String {
    match kernel {
        Kernel::Release => PACKAGES.into(),
        Kernel::Backports => PACKAGES.replacen(',', &format!("/{BACKPORTS},"), 1),
    }
}

pub(crate) fn build(
    folder: &Path,
    kernel: Kernel,
    say: &mut dyn FnMut(&str),
) -> Result<(), LabError> {
    fs::create_dir_all(folder).map_err(LabError::file(folder))?;
    let scratch = tempfile::tempdir_in(folder).map_err(LabError::file(folder))?;
    let tree = scratch.path().join("tree");
    say("unpacking a Debian tree with its kernel");
    bootstrap(&tree, &packages(kernel))?;
    let version = kernel_version(&tree)?;
    let install = |from: &Path, name: &str| {
        fs::copy(from, folder.join(name)).map(drop).map_err(LabError::file(from))
    };
    install(&tree.join(format!("boot/vmlinuz-{version}")), KERNEL)?;
    say("making the start-up archive");
    let early = scratch.path().join("early");
    early_tree(&tree, &version, &early)?;
    archive(&tree, &early, &folder.join(ARCHIVE))?;
    say("making the disk");
    let start = tree.join("sbin/flysch-run");
    fs::write(&start, RUN).map_err(LabError::file(&start))?;
    for name in [format!("boot/initrd.img-{version}"), format!("boot/vmlinuz-{version}")] {
        let _ = fs::remove_file(tree.join(name));
    }
    disk(&tree, &folder.join(DISK))?;
    let stamp = folder.join(STAMP);
    fs::write(&stamp, recipe(kernel)).map_err(LabError::file(&stamp))
}

fn bootstrap(tree: &Path, packages: &str) -> Result<(), LabError> {
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=minbase", "--aptopt=APT::Install-Recommends \"false\""])
        .arg(format!("--include={packages}"));
    for kind in ["doc", "locale", "man", "info"] {
        make.arg(format!("--dpkgopt=path-exclude=/usr/share/{kind}/*"));
    }
    make.arg(RELEASE).arg(tree).args(SOURCES);
    run(make, "mmdebstrap")
}

fn kernel_version(tree: &Path) -> Result<String, LabError> {
    let modules = tree.join("usr/lib/modules");
    let mut entries = fs::read_dir(&modules).map_err(LabError::file(&modules))?;
    let first = entries.next().transpose().map_err(LabError::file(&modules))?;
    first.map(|entry| entry.file_name().to_string_lossy().into_owned()).ok_or(LabError::Failed {
        program: "mmdebstrap".into(),
        said: "the tree has no kernel".into(),
    })
}

/// The contents of the start-up archive: busybox, the early modules in load order, the start
/// script.
fn early_tree(tree: &Path, version: &str, early: &Path) -> Result<(), LabError> {
    for name in ["bin", "modules", "proc", "sys", "dev", "disk", "memory", "root"] {
        let folder = early.join(name);
        fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
    }
    let busybox = tree.join("usr/bin/busybox");
    fs::copy(&busybox, early.join("bin/busybox")).map_err(LabError::file(&busybox))?;
    let init = early.join("init");
    fs::write(&init, INIT).map_err(LabError::file(&init))?;
    run(
        {
            let mut chmod = Command::new("chmod");
            chmod.arg("755").arg(&init);
            chmod
        },
        "chmod",
    )?;
    let mut seen = Vec::new();
    for module in EARLY_MODULES {
        let mut ask = Command::new("chroot");
        ask.arg(tree).args(["modprobe", "-S", version, "--show-depends", module]);
        for line in output(ask, "modprobe")?.lines() {
            // For a driver built into the kernel the answer is "builtin NAME".
            let Some(file) = line.strip_prefix("insmod ") else { continue };
            let file = file.trim();
            if !seen.iter().any(|other| other == file) {
                seen.push(file.to_owned());
            }
        }
    }
    for (index, file) in seen.iter().enumerate() {
        let from = tree.join(file.trim_start_matches('/'));
        let name = from.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        // Debian compresses modules; busybox's insmod wants them plain.
        let mut unpack = Command::new(if name.ends_with(".xz") { "xz" } else { "cat" });
        if name.ends_with(".xz") {
            unpack.arg("-dc");
        }
        unpack.arg(&from);
        let to = early.join(format!("modules/{index:02}-{}", name.trim_end_matches(".xz")));
        run_into(unpack, "xz", &to)?;
    }
    Ok(())
}

/// Packs the early tree in the "newc" format that the kernel unpacks, with the tree's own busybox.
fn archive(tree: &Path, early: &Path, to: &Path) -> Result<(), LabError> {
    let mut pack = Command::new("sh");
    pack.current_dir(early)
        .args(["-c", "find . | \"$0\" cpio -o -H newc"])
        .arg(tree.join("usr/bin/busybox"));
    run_into(pack, "cpio", to)
}

fn disk(tree: &Path, to: &Path) -> Result<(), LabError> {
    let _ = fs::remove_file(to);
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-t", "ext4", "-O", "^has_journal", "-d"]).arg(tree).arg(to).arg(DISK_SIZE);
    run(make, "mke2fs")
}

/// Modules of the guest's kernel with a feature that Debian's builds lack.
#[derive(Debug)]
pub(crate) struct Modules {
    /// Their name, and the folder they are in.
    pub(crate) name: &'static str,
    names: &'static [&'static str],
    script: &'static str,
    /// A file that the script finds in the root, if it needs one: its name and contents.
    more: Option<(&'static str, &'static str)>,
}

/// UBI with fastmap, and UBIFS, which knows UBI's structures.
pub(crate) const FASTMAP: Modules =
    Modules { name: "fastmap", names: &["ubi", "ubifs"], script: MAKE_MODULES, more: None };
/// UBIFS with authentication, and a module that makes the kernel trust a certificate.
pub(crate) const SIGNED: Modules = Modules {
    name: "authentication",
    names: &["ubifs", "trust"],
    script: include_str!("signed.sh"),
    more: Some(("trust.c", include_str!("trust.c"))),
};
/// The UFS drivers with support for queries by programs.
pub(crate) const QUERIES: Modules = Modules {
    name: "queries",
    names: &["ufshcd-core", "ufshcd-pci"],
    script: include_str!("bsg.sh"),
    more: None,
};

/// iommufd, and VFIO with files for single devices, which depends on it.
pub(crate) const IOMMUFD: Modules = Modules {
    name: "iommufd",
    names: &["iommufd", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci"],
    script: include_str!("iommufd.sh"),
    more: None,
};

/// Builds modules from the kernel's sources in a temporary Debian tree.
pub(crate) fn build_modules(
    folder: &Path,
    modules: &Modules,
    say: &mut dyn FnMut(&str),
) -> Result<(), LabError> {
    let kernel = folder.join(KERNEL);
    let version = version_of(&fs::read(&kernel).map_err(LabError::file(&kernel))?);
    let version = version.ok_or_else(|| LabError::Failed {
        program: "linux".into(),
        said: format!("{} does not report its version", kernel.display()),
    })?;
    say(&format!("building {} with {}", modules.names.join(" and "), modules.name));
    let scratch = tempfile::tempdir_in(folder).map_err(LabError::file(folder))?;
    let tree = scratch.path().join("tree");
    let series: Vec<&str> = version.split('.').take(2).collect();
    let series = series.join(".");
    let packages =
        format!("linux-headers-{version},linux-source-{series},gcc,libc6-dev,make,kmod,xz-utils");
    bootstrap(&tree, &packages)?;
    let script = tree.join("build-modules");
    fs::write(&script, modules.script).map_err(LabError::file(&script))?;
    if let Some((name, text)) = modules.more {
        let more = tree.join(name);
        fs::write(&more, text).map_err(LabError::file(&more))?;
    }
    let mut make = Command::new("chroot");
    make.arg(&tree).args(["/bin/sh", "/build-modules", &version, &series]);
    run(make, "make")?;
    let to = folder.join(modules.name);
    fs::create_dir_all(&to).map_err(LabError::file(&to))?;
    for name in modules.names {
        let from = tree.join(format!("build/{name}/{name}.ko"));
        fs::copy(&from, to.join(format!("{name}.ko"))).map_err(LabError::file(&from))?;
    }
    fs::write(to.join(STAMP), modules_recipe(folder, modules)).map_err(LabError::file(&to))
}

/// Everything that determines the modules: how they are built, and the kernel.
pub(crate) fn modules_recipe(folder: &Path, modules: &Modules) -> String {
    let kernel = fs::read(folder.join(KERNEL)).unwrap_or_default();
    let more = modules.more.map_or("", |more| more.1);
    format!("{}{more}\n{}", modules.script, version_of(&kernel).unwrap_or_default())
}

/// The version in the header of a kernel image (Documentation/arch/x86/boot.rst: `kernel_version`
/// at 0x20E, counted from 0x200), up to the first blank.
pub(crate) fn version_of(kernel: &[u8]) -> Option<String> {
    let at = u16::from_le_bytes(kernel.get(0x20E..0x210)?.try_into().ok()?);
    let text = kernel.get(0x200 + usize::from(at)..)?;
    let len = text.iter().position(|&byte| matches!(byte, b' ' | 0))?;
    String::from_utf8(text[..len].to_vec()).ok().filter(|text| !text.is_empty())
}

fn run(mut command: Command, package: &'static str) -> Result<(), LabError> {
    finish(command.stdout(Stdio::null()), package).map(drop)
}

fn run_into(mut command: Command, package: &'static str, to: &Path) -> Result<(), LabError> {
    let file = fs::File::create(to).map_err(LabError::file(to))?;
    finish(command.stdout(file), package).map(drop)
}

fn output(mut command: Command, package: &'static str) -> Result<String, LabError> {
    let bytes = finish(command.stdout(Stdio::piped()), package)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn finish(command: &mut Command, package: &'static str) -> Result<Vec<u8>, LabError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let started = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = started.map_err(|_| LabError::Missing { program: package, package })?;
    let done = child
        .wait_with_output()
        .map_err(|error| LabError::Failed { program: program.clone(), said: error.to_string() })?;
    if done.status.success() {
        return Ok(done.stdout);
    }
    let said = String::from_utf8_lossy(&done.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
    Err(LabError::Failed { program, said: last.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_the_header() {
        let mut kernel = vec![0; 0x400];
        kernel[0x20E..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        kernel[0x300..0x312].copy_from_slice(b"6.12.1+deb13 (x) #");
        assert_eq!(version_of(&kernel).as_deref(), Some("6.12.1+deb13"));
        assert_eq!(version_of(&kernel[..0x300]), None);
        assert_eq!(version_of(&[0; 0x400]), None);
    }
}

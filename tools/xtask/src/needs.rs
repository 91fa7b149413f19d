//! The programs the tests need, and how they get onto the machine.
//!
//! As root on Debian they are installed; elsewhere one line says what to install. The tests look
//! for them too: if one is still missing they print a line and skip, or fail with `CI=true`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell;
use crate::workspace::Workspace;

/// One tool: a program, or several that come together.
struct Tool {
    /// The name the steps use.
    name: &'static str,
    /// The Debian package.
    package: &'static str,
    /// The programs it provides.
    programs: &'static [&'static str],
}

const TOOLS: [Tool; 25] = [
    Tool { name: "fio", package: "fio", programs: &["fio"] },
    Tool { name: "blktrace", package: "blktrace", programs: &["blkparse", "btt"] },
    Tool { name: "chromium", package: "chromium", programs: &["chromium"] },
    Tool { name: "blkid", package: "util-linux", programs: &["blkid", "mkswap"] },
    Tool { name: "btrfs-progs", package: "btrfs-progs", programs: &["mkfs.btrfs"] },
    Tool { name: "dosfstools", package: "dosfstools", programs: &["mkfs.fat"] },
    Tool { name: "exfatprogs", package: "exfatprogs", programs: &["mkfs.exfat"] },
    Tool { name: "f2fs-tools", package: "f2fs-tools", programs: &["mkfs.f2fs"] },
    Tool { name: "fdisk", package: "fdisk", programs: &["sfdisk"] },
    Tool { name: "gdisk", package: "gdisk", programs: &["sgdisk"] },
    Tool { name: "genisoimage", package: "genisoimage", programs: &["genisoimage"] },
    Tool { name: "nbdkit", package: "nbdkit", programs: &["nbdkit"] },
    Tool { name: "ntfs-3g", package: "ntfs-3g", programs: &["mkfs.ntfs"] },
    Tool { name: "parted", package: "parted", programs: &["parted"] },
    Tool { name: "udftools", package: "udftools", programs: &["mkfs.udf"] },
    Tool { name: "xfsprogs", package: "xfsprogs", programs: &["mkfs.xfs"] },
    Tool { name: "libnbd", package: "libnbd-bin", programs: &["nbdinfo", "nbdcopy"] },
    Tool { name: "mtd-utils", package: "mtd-utils", programs: &["mkfs.ubifs", "mkfs.jffs2"] },
    Tool { name: "python3", package: "python3", programs: &["python3"] },
    Tool { name: "qemu-utils", package: "qemu-utils", programs: &["qemu-io", "qemu-nbd"] },
    Tool { name: "sdparm", package: "sdparm", programs: &["sdparm"] },
    Tool { name: "sg3-utils", package: "sg3-utils", programs: &["sg_decode_sense", "sg_vpd"] },
    Tool { name: "squashfs-tools", package: "squashfs-tools", programs: &["mksquashfs"] },
    Tool { name: "strace", package: "strace", programs: &["strace"] },
    Tool { name: "valgrind", package: "valgrind", programs: &["valgrind", "callgrind_annotate"] },
];

/// The target the `no_std` crates and the bare-metal example are built for.
pub(crate) const BARE_TARGET: &str = "x86_64-unknown-none";
/// A microcontroller, for which the `no_std` crates are checked as well: it has 32-bit addresses
/// and no 64-bit atomics.
pub(crate) const SMALL_TARGET: &str = "thumbv7em-none-eabi";

/// The first version of QEMU with a UFS device.
const QEMU_MIN: (u32, u32) = (8, 2);
/// The minimum version of the second QEMU that the tests use: its UFS device is more complete.
const QEMU_NEW: (u32, u32) = (11, 0);

/// A tree of Debian 13 with the newest QEMU, for machines whose own is older.
const TREE: &str = "/var/cache/flysch/trixie";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What was found or installed.
#[derive(Default)]
pub(crate) struct Needs {
    /// Missing tools by name, and what to do about each.
    pub(crate) missing: BTreeMap<&'static str, String>,
    /// Environment of the tests: the locations of the two QEMUs.
    pub(crate) environment: Vec<(&'static str, String)>,
}

impl Needs {
    /// Looks for everything, installs what it may, and reports.
    pub(crate) fn meet(workspace: &Workspace, may_install: bool) -> Self {
        let apt = Apt::find(may_install);
        let mut needs = Self::default();
        for tool in &TOOLS {
            let found = || tool.programs.iter().all(|program| shell::find(program).is_some());
            if !found()
                && let Err(why) = apt.install(&[tool.package], None)
            {
                let package = tool.package;
                needs.miss(tool.name, format!("apt-get install {package} ({why})"));
            }
        }
        needs.meet_qemu(&apt);
        needs.meet_rust(workspace);
        needs
    }

    /// The first of all tools that is missing, and what to do about it.
    pub(crate) fn lacks_peers(&self) -> Option<String> {
        self.lacks(&TOOLS.each_ref().map(|tool| tool.name))
    }

    /// The first of `names` that is missing, and what to do about it.
    pub(crate) fn lacks(&self, names: &[&str]) -> Option<String> {
        let (name, remedy) = names.iter().find_map(|name| self.missing.get_key_value(*name))?;
        Some(format!("needs {name}: {remedy}"))
    }

    fn miss(&mut self, name: &'static str, remedy: String) {
        println!("   {name} is missing: {remedy}");
        self.missing.insert(name, remedy);
    }

    /// Finds an older and a newer QEMU.
    fn meet_qemu(&mut self, apt: &Apt) {
        let system = "qemu-system-x86_64";
        let own = || std::env::var_os("FLYSCH_QEMU").map(PathBuf::from).or(shell::find(system));
        let good = |qemu: &PathBuf| version(qemu).is_some_and(|v| v >= QEMU_MIN);
        if !own().is_some_and(|qemu| good(&qemu)) {
            let backports = apt.release.as_deref().filter(|r| *r == "bookworm").map(|r| {
                (format!("{r}-backports"), format!("/etc/apt/sources.list.d/flysch-{r}.list"))
            });
            if let Err(why) = apt.install(&["qemu-system-x86"], backports.as_ref()) {
                let (major, minor) = QEMU_MIN;
                self.miss(
                    "qemu",
                    format!("install QEMU >= {major}.{minor} (Debian 12: from backports) ({why})"),
                );
            }
        }
        if let Some(qemu) = own().filter(good) {
            let is_new = version(&qemu).is_some_and(|v| v >= QEMU_NEW);
            let name = if is_new { "FLYSCH_QEMU_11" } else { "FLYSCH_QEMU_10" };
            self.environment.push((name, qemu.display().to_string()));
        }
        let set = self.environment.iter().any(|(name, _)| *name == "FLYSCH_QEMU_11");
        if !set {
            match newer_qemu(apt) {
                Ok(qemu) => {
                    self.environment.push(("FLYSCH_QEMU_11", qemu.display().to_string()));
                }
                Err(why) => {
                    self.miss("qemu-11", format!("set FLYSCH_QEMU_11 to QEMU 11 or later ({why})"))
                }
            }
        }
    }

    /// What must come with Rust itself.
    fn meet_rust(&mut self, workspace: &Workspace) {
        let has = |text: Result<String, String>, line: &str| {
            text.is_ok_and(|text| text.lines().any(|l| l.starts_with(line)))
        };
        let rustup = |arguments: &[&str]| {
            shell::output(Command::new("rustup").current_dir(&workspace.root).args(arguments))
        };
        for target in [BARE_TARGET, SMALL_TARGET] {
            if !has(rustup(&["target", "list", "--installed"]), target)
                && let Err(why) = rustup(&["target", "add", target])
            {
                self.miss(target, format!("rustup target add {target} ({})", first_line(&why)));
            }
        }
        for component in ["rustfmt", "clippy"] {
            if !has(rustup(&["component", "list", "--installed"]), component)
                && let Err(why) = rustup(&["component", "add", component])
            {
                let why = first_line(&why);
                self.miss(component, format!("rustup component add {component} ({why})"));
            }
        }
        if shell::find("cargo-deny").is_none() {
            println!("   building cargo-deny, once");
            let mut install = shell::cargo(&workspace.root);
            install.args(["install", "--quiet", "--locked", "--debug", "cargo-deny"]);
            if let Err(why) = shell::run(&mut install) {
                self.miss("cargo-deny", format!("cargo install --locked cargo-deny ({why})"));
            }
        }
    }
}

/// Debian's package manager, if it may be used.
struct Apt {
    /// The release's code name, on Debian.
    release: Option<String>,
    /// Why nothing can be installed, if that is so.
    refusal: Option<&'static str>,
}

impl Apt {
    fn find(may_install: bool) -> Self {
        let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let field = |key: &str| {
            let line = system.lines().find_map(|line| line.strip_prefix(key))?;
            Some(line.trim_matches('"').to_owned())
        };
        let is_debian = field("ID=").as_deref() == Some("debian");
        let refusal = match (may_install, is_debian, is_root()) {
            (false, ..) => Some("not installed: --no-install"),
            (_, false, _) => Some("not installed: not Debian"),
            (_, _, false) => Some("not installed: not root"),
            _ => None,
        };
        Self { release: field("VERSION_CODENAME=").filter(|_| is_debian), refusal }
    }

    /// Installs packages; `from` is a suite and its sources file, which is added if missing.
    fn install(&self, packages: &[&str], from: Option<&(String, String)>) -> Result<(), String> {
        if let Some(refusal) = self.refusal {
            return Err(refusal.into());
        }
        println!("   installing {}", packages.join(" "));
        if let Some((suite, file)) = from
            && !sources_name(suite)
        {
            let line = format!("{}\n", source(suite)?);
            std::fs::write(file, line).map_err(|e| format!("{file}: {e}"))?;
        }
        self.get(&["update", "-q"])?;
        let mut arguments = vec!["install", "-y", "-q", "--no-install-recommends"];
        if let Some((suite, _)) = from {
            arguments.extend(["-t", suite]);
        }
        arguments.extend(packages);
        self.get(&arguments)
    }

    fn get(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new("apt-get");
        command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive");
        shell::output(&mut command).map(drop).map_err(|why| last_line(&why))
    }
}

/// The lines of apt's sources, without comments.
fn source_lines() -> Vec<String> {
    let folder = std::fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let files = folder.map(|entry| entry.path()).chain([PathBuf::from("/etc/apt/sources.list")]);
    let is_source = |file: &PathBuf| {
        file.extension().is_some_and(|extension| extension == "list" || extension == "sources")
    };
    let texts = files.filter(is_source).filter_map(|file| std::fs::read_to_string(file).ok());
    let lines = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    lines.filter(|line| !line.trim_start().starts_with('#')).collect()
}

/// Whether any of apt's sources names this suite.
fn sources_name(suite: &str) -> bool {
    source_lines().iter().any(|line| line.split_whitespace().any(|word| word == suite))
}

/// The code name of this machine's Debian, if it is one.
pub(crate) fn release() -> Option<String> {
    Apt::find(false).release
}

/// A source for this suite, on the mirror that this machine's apt uses.
pub(crate) fn source(suite: &str) -> Result<String, String> {
    let lines = source_lines();
    let words = lines.iter().flat_map(|line| line.split_whitespace());
    let is_mirror =
        |word: &&str| word.contains("://") && word.trim_end_matches('/').ends_with("/debian");
    let mirror = words.clone().find(is_mirror).ok_or("apt's sources name no Debian mirror")?;
    Ok(format!("deb [signed-by={KEYRING}] {mirror} {suite} main"))
}

/// A newer QEMU: named by the user, on the path, or in our own tree of Debian 13.
///
/// Debian 12 cannot run that package's binary directly, because its C library is too old. The tree
/// has everything needed; a script starts it with the tree's own loader.
fn newer_qemu(apt: &Apt) -> Result<PathBuf, String> {
    let is_new = |qemu: &PathBuf| version(qemu).is_some_and(|v| v >= QEMU_NEW);
    let script = Path::new(TREE).with_file_name("qemu11-system-x86_64");
    let named = std::env::var_os("FLYSCH_QEMU_11").map(PathBuf::from);
    let candidates = [named, shell::find("qemu11-system-x86_64"), Some(script.clone())];
    if let Some(qemu) = candidates.into_iter().flatten().find(is_new) {
        return Ok(qemu);
    }
    apt.install(&["mmdebstrap"], None)?;
    println!("   making {TREE}, a tree of Debian 13 with its newest QEMU");
    let tree = Path::new(TREE);
    let _ = std::fs::remove_dir_all(tree);
    let parent = tree.parent().unwrap_or(tree);
    std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=extract", "--include=qemu-system-x86"])
        .arg("--aptopt=APT::Default-Release \"trixie-backports\"")
        .args(["trixie", TREE, &source("trixie")?, &source("trixie-backports")?]);
    shell::output(&mut make).map_err(|why| last_line(&why))?;
    let start = format!(
        "#!/bin/sh\nT={TREE}\n\
         exec $T/usr/lib64/ld-linux-x86-64.so.2 --library-path $T/usr/lib/x86_64-linux-gnu \
         $T/usr/bin/qemu-system-x86_64 -L $T/usr/share/qemu -L $T/usr/share/seabios \"$@\"\n"
    );
    std::fs::write(&script, start).map_err(|e| format!("{}: {e}", script.display()))?;
    make_executable(&script)?;
    match version(&script) {
        Some(v) if v >= QEMU_NEW => Ok(script),
        Some(v) => Err(format!("Debian's newest is {}.{}", v.0, v.1)),
        None => Err(format!("{} does not start", script.display())),
    }
}

fn make_executable(file: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))
        .map_err(|e| format!("{}: {e}", file.display()))
}

/// The version that a QEMU reports.
fn version(qemu: &Path) -> Option<(u32, u32)> {
    parse_version(&shell::output(Command::new(qemu).arg("--version")).ok()?)
}

fn parse_version(said: &str) -> Option<(u32, u32)> {
    let number = said.split_once("version ")?.1;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    user.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn last_line(text: &str) -> String {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;

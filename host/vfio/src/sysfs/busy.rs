//! Users of a function's disks: mounts, swap, and block devices stacked on them.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::Tree;

/// One use of a disk or a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Use {
    /// The disk, or its partition.
    pub disk: String,
    /// The use.
    pub kind: UseKind,
}

/// The kinds of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UseKind {
    /// A file system of it is mounted there.
    Mounted(PathBuf),
    /// It is used for swap.
    Swap,
    /// Another block device is built on it.
    Held(String),
}

impl UseKind {
    /// One word, and where or by what.
    pub fn words(&self) -> (&'static str, String) {
        match self {
            Self::Mounted(path) => ("mounted", path.display().to_string()),
            Self::Swap => ("swap", "Linux".to_owned()),
            Self::Held(by) => ("held", by.clone()),
        }
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = &self.disk;
        match &self.kind {
            UseKind::Mounted(path) => write!(f, "{disk} is mounted on {}", path.display()),
            UseKind::Swap => write!(f, "{disk} is swap"),
            UseKind::Held(by) => write!(f, "{disk} is part of {by}"),
        }
    }
}

/// The commands that end the uses, followed by `last`.
pub(super) fn remedy(uses: &[Use], last: &str) -> String {
    let command = |one: &Use| match &one.kind {
        UseKind::Mounted(path) => format!("`umount {}`", path.display()),
        UseKind::Swap => format!("`swapoff /dev/{}`", one.disk),
        UseKind::Held(by) => format!("stop {by}"),
    };
    let mut all: Vec<String> = uses.iter().map(command).collect();
    all.dedup();
    all.push(format!("`{last}`"));
    all.join(", then ")
}

/// All uses of block devices, read once.
#[derive(Debug)]
pub(super) struct Users {
    /// Block devices: name, and real path.
    blocks: BTreeMap<String, PathBuf>,
    uses: Vec<Use>,
}

impl Users {
    pub(super) fn read(tree: &Tree) -> Self {
        let class = tree.root.join("sys/class/block");
        let mut blocks = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        let mut uses = Vec::new();
        for entry in fs::read_dir(&class).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            let folder = entry.path();
            let Ok(real) = folder.canonicalize() else { continue };
            if let Ok(number) = fs::read_to_string(folder.join("dev")) {
                numbers.insert(number.trim().to_owned(), name.clone());
            }
            for holder in fs::read_dir(folder.join("holders")).into_iter().flatten().flatten() {
                let by = holder.file_name().to_string_lossy().into_owned();
                uses.push(Use { disk: name.clone(), kind: UseKind::Held(by) });
            }
            blocks.insert(name, real);
        }
        let mounts = fs::read_to_string(tree.proc().join("self/mountinfo")).unwrap_or_default();
        uses.extend(mounts.lines().filter_map(|line| mount(line, &numbers, &blocks)));
        let swaps = fs::read_to_string(tree.proc().join("swaps")).unwrap_or_default();
        let swap = |line: &str| {
            let disk = line.split_whitespace().next()?.strip_prefix("/dev/")?.to_owned();
            blocks.contains_key(&disk).then_some(Use { disk, kind: UseKind::Swap })
        };
        uses.extend(swaps.lines().filter_map(swap));
        uses.sort_by_key(|one| one.disk.clone());
        Self { blocks, uses }
    }

    /// The disks behind the function with this folder, and their uses.
    pub(super) fn of(&self, folder: &Path) -> (Vec<String>, Vec<Use>) {
        let Ok(folder) = folder.canonicalize() else { return Default::default() };
        let mut names = BTreeSet::new();
        for (name, real) in &self.blocks {
            if real.starts_with(&folder) {
                names.insert(name.clone());
                names.extend(self.through_paths(name));
            }
        }
        // A partition lies below its disk.
        let below = |name: &String| {
            let real = &self.blocks[name];
            names.iter().any(|disk| real.starts_with(&self.blocks[disk]))
        };
        let all: BTreeSet<&String> = self.blocks.keys().filter(|name| below(name)).collect();
        let is_part = |name: &&String| self.blocks[*name].join("partition").exists();
        let disks = all.iter().copied().filter(|name| !is_part(name)).cloned().collect();
        let uses = self.uses.iter().filter(|one| all.contains(&one.disk)).cloned().collect();
        (disks, uses)
    }

    /// For one path to a namespace, `nvme0c1n2`, the disk of all paths: `nvme0n2`.
    fn through_paths(&self, name: &str) -> Option<String> {
        let (subsystem, rest) = name.strip_prefix("nvme")?.split_once('c')?;
        let (controller, namespace) = rest.split_once('n')?;
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let all = [subsystem, controller, namespace].into_iter().all(is_number);
        let disk = format!("nvme{subsystem}n{namespace}");
        (all && self.blocks.contains_key(&disk)).then_some(disk)
    }
}

/// The use in a line of `mountinfo` (proc(5)). Some file systems, such as Btrfs, show their own
/// device number, and the device only by name.
fn mount(
    line: &str,
    numbers: &BTreeMap<String, String>,
    blocks: &BTreeMap<String, PathBuf>,
) -> Option<Use> {
    let (front, back) = line.split_once(" - ")?;
    let mut fields = front.split(' ');
    let number = fields.nth(2)?;
    let place = unescape(fields.nth(1)?);
    let named = || {
        let name = back.split(' ').nth(1)?.strip_prefix("/dev/")?;
        blocks.contains_key(name).then(|| name.to_owned())
    };
    let disk = numbers.get(number).cloned().or_else(named)?;
    Some(Use { disk, kind: UseKind::Mounted(place.into()) })
}

/// Blanks, tabs, line ends and backslashes are written as octal numbers there.
fn unescape(text: &str) -> String {
    let marks = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    marks.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

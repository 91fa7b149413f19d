//! `flysch image ls`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use flysch_api::count::counted;
use flysch_api::vfs::{Attributes, FileKind, FileSystem, FsError, Inode};
use flysch_image::{Node, attributes_lost, resolve, walk};
use serde::Serialize;

use super::{Source, shown};
use crate::failure::Failure;
use crate::output::Output;

/// Longest symlink target, bytes.
const TARGET_MAX: usize = 4096;

/// Options of `flysch image ls`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Where to start.
    #[arg(value_name = "PATH", default_value = "/")]
    start: OsString,
    /// Show flags as lsattr does, instead of everything else: i immutable, a append-only, S content
    /// and D names written synchronously, c compressed.
    #[arg(long)]
    flags: bool,
    /// How many directory levels to descend; default: all.
    #[arg(long, value_name = "COUNT")]
    depth: Option<usize>,
}

/// One file in JSON.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<&'a str>,
    path: String,
    inode: u64,
    kind: &'static str,
    #[serde(flatten)]
    attributes: Option<Stat>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    xattrs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize)]
struct Stat {
    mode: String,
    links: u32,
    uid: u32,
    gid: u32,
    size: u64,
    mtime: i64,
    mtime_nsec: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    flags: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

/// Lists files.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let source = &arguments.source;
    let image = source.open()?;
    let volumes = source.volumes(&image)?;
    let several = volumes.len() > 1;
    let (mut trees, mut without) = (vec![], None);
    for (name, volume) in &volumes {
        match source.shown_file_system(volume) {
            Some(fs) => {
                // Before anything is printed: the list is whole, or there is none.
                let start = resolve(&*fs, arguments.start.as_bytes()).map_err(Failure::failed)?;
                trees.push((name, fs, start));
            }
            None if several && volume.failure().is_none() => {}
            None => {
                let why = volume.failure().unwrap_or("holds no file system");
                without.get_or_insert(Failure::of(name, why));
            }
        }
    }
    // Among others a broken volume is reported at the end.
    if let (true, Some(failure)) = (trees.is_empty(), without) {
        return Err(failure);
    }
    let mut lister = Lister { output, several, flags: arguments.flags, records: 0, failures: 0 };
    if lister.output.json() {
        lister.output.bytes(b"[")?;
    }
    for (name, fs, start) in &trees {
        lister.volume(name, (&**fs, *start), arguments)?;
    }
    if lister.output.json() {
        lister.output.line("\n]")?;
    }
    let judged = super::show::judge(source, &image);
    if lister.failures == 0 {
        return judged;
    }
    let (one, many) = ("file or directory is", "files or directories are");
    let damaged = format!("{} damaged", counted(lister.failures, one, many));
    Err(match judged {
        // What lies behind it.
        Err(Failure::Failed(fault)) => Failure::failed(format!("{fault}; {damaged}")),
        _ => Failure::failed(damaged),
    })
}

struct Lister<'o> {
    output: &'o mut Output,
    several: bool,
    /// Only flags are listed.
    flags: bool,
    records: u64,
    failures: u64,
}

impl Lister<'_> {
    fn volume(
        &mut self,
        name: &str,
        (fs, start): (&dyn FileSystem, Inode),
        arguments: &Arguments,
    ) -> Result<(), Failure> {
        let base = shown(arguments.start.as_bytes());
        let base = base.trim_matches('/');
        if self.several && !self.output.json() {
            self.output.line(format_args!("{name}:"))?;
        }
        let depth = arguments.depth.unwrap_or(usize::MAX);
        walk(fs, start, depth, &mut |node| match node {
            Ok(node) => self.node(name, fs, base, &node),
            Err((path, error)) => self.unreadable(name, base, path, error),
        })
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), Failure> {
        let separator = if self.records == 0 { "\n  " } else { ",\n  " };
        self.records += 1;
        self.output.bytes(separator.as_bytes())?;
        let text = serde_json::to_string(record).map_err(Failure::failed)?;
        self.output.bytes(text.as_bytes())
    }

    fn unreadable(
        &mut self,
        volume: &str,
        base: &str,
        path: &[u8],
        error: FsError,
    ) -> Result<(), Failure> {
        self.failures += 1;
        let path = full_path(base, path);
        if self.output.json() {
            return self.record(&Record {
                volume: self.several.then_some(volume),
                path,
                inode: 0,
                kind: "directory",
                attributes: None,
                target: None,
                xattrs: vec![],
                error: Some(error.to_string()),
            });
        }
        self.output.line(format_args!("?????????? {path}: {error}"))
    }

    fn node(
        &mut self,
        volume: &str,
        fs: &dyn FileSystem,
        base: &str,
        node: &Node<'_>,
    ) -> Result<(), Failure> {
        let path = full_path(base, node.path);
        let error = match &node.attributes {
            Ok(it) if it.kind == FileKind::Directory => attributes_lost(fs, node.inode),
            Ok(_) => None,
            Err(error) => Some(*error),
        };
        let attributes = node.attributes.ok().filter(|_| error.is_none());
        let target = attributes
            .filter(|attributes| attributes.kind == FileKind::Symlink)
            .and_then(|_| target(fs, node));
        self.failures += u64::from(error.is_some());
        if self.output.json() {
            let mut xattrs = vec![];
            let _ = fs.list_xattrs(node.inode, &mut |name| xattrs.push(shown(name)));
            return self.record(&Record {
                volume: self.several.then_some(volume),
                path,
                inode: node.inode.0,
                kind: kind_name(attributes.map_or(node.kind, |attributes| attributes.kind)),
                attributes: attributes.map(|attributes| stat(&attributes)),
                target,
                xattrs,
                error: error.map(|error| error.to_string()),
            });
        }
        match (attributes, error) {
            (Some(attributes), _) if self.flags => match has_flags(&attributes) {
                true => self.output.line(format_args!("{} {path}", attributes.flags)),
                false => Ok(()),
            },
            (Some(attributes), _) => {
                let line = long_line(&attributes);
                match target {
                    Some(target) => self.output.line(format_args!("{line} {path} -> {target}")),
                    None => self.output.line(format_args!("{line} {path}")),
                }
            }
            (None, error) => {
                let error = error.map_or_else(String::new, |error| error.to_string());
                self.output.line(format_args!("?????????? {path}: {error}"))
            }
        }
    }
}

fn full_path(base: &str, path: &[u8]) -> String {
    let path = shown(path);
    match (base.is_empty(), path.is_empty()) {
        (true, _) => format!("/{path}"),
        (false, true) => format!("/{base}"),
        (false, false) => format!("/{base}/{path}"),
    }
}

fn target(fs: &dyn FileSystem, node: &Node<'_>) -> Option<String> {
    let mut target = vec![0; TARGET_MAX];
    let len = fs.read(node.inode, 0, &mut target).ok()?;
    Some(shown(&target[..len]))
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::CharacterDevice => "character device",
        FileKind::BlockDevice => "block device",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
    }
}

fn is_device(attributes: &Attributes) -> bool {
    matches!(attributes.kind, FileKind::CharacterDevice | FileKind::BlockDevice)
}

/// Whether it is of a type that has flags.
fn has_flags(attributes: &Attributes) -> bool {
    matches!(attributes.kind, FileKind::Regular | FileKind::Directory)
}

fn stat(attributes: &Attributes) -> Stat {
    let device = attributes.device;
    Stat {
        mode: format!("{:04o}", attributes.permissions),
        links: attributes.links,
        uid: attributes.owner,
        gid: attributes.group,
        size: attributes.size,
        mtime: attributes.modified.seconds,
        mtime_nsec: attributes.modified.nanoseconds,
        flags: has_flags(attributes).then(|| attributes.flags.to_string()),
        device: is_device(attributes).then(|| format!("{}:{}", device.major, device.minor)),
    }
}

/// "drwxr-xr-x", links, owner, group, size, time.
fn long_line(attributes: &Attributes) -> String {
    let size = match is_device(attributes) {
        true => format!("{}, {}", attributes.device.major, attributes.device.minor),
        false => attributes.size.to_string(),
    };
    format!(
        "{} {:>3} {:>5} {:>5} {size:>10} {}",
        mode_text(attributes),
        attributes.links,
        attributes.owner,
        attributes.group,
        date(attributes.modified.seconds),
    )
}

fn mode_text(attributes: &Attributes) -> String {
    let mut text = String::from(match attributes.kind {
        FileKind::Regular => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::CharacterDevice => 'c',
        FileKind::BlockDevice => 'b',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
    });
    let permissions = attributes.permissions;
    for (shift, special, with, without) in [(6, 11, 's', 'S'), (3, 10, 's', 'S'), (0, 9, 't', 'T')]
    {
        let bits = permissions >> shift & 7;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (permissions >> special & 1 != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Date and time in UTC, "2026-11-21 13:20".
fn date(seconds: i64) -> String {
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 1 March of year 0 in cycles of 400 years, so that leap days come last.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests;

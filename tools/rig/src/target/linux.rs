//! Block devices and files of this machine, through Linux's own block layer.

use flysch_target::{Kind, key};
use std::path::PathBuf;

use flysch_linux::disk::Engine;

use super::pairs::{Pairs, on_off};
use super::plain::end_of_path;
use super::{PairError, ParseError};

/// A block device or a file.
pub(super) const LINUX: Kind = Kind {
    name: "linux:PATH",
    help: "a block device or a file of this machine, through Linux's own block layer",
    keys: &[
        key("engine", "io_uring|aio|psync", "the kernel's I/O interface (io_uring)"),
        key("direct", "on|off", "bypass the page cache, O_DIRECT (on)"),
        key("write", "on|off", "open for writing (on for files, off for block devices)"),
        key("polled", "on|off", "poll for completions; the device must have polling queues (off)"),
        key("sqpoll", "on|off", "io_uring: a kernel thread polls for requests (off)"),
        key("fixed", "on|off", "io_uring: memory and file are registered once (on)"),
        key("lanes", "1..31", "rings or contexts, over which jobs are distributed (1)"),
        key("block", "512|4096", "bytes per logical block (the device's; 4096 for files)"),
        key("size", "BYTES", "create the file with this size if it does not exist"),
    ],
};

/// Settings of a block device or file of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinuxTarget {
    /// Its path.
    pub path: PathBuf,
    /// The I/O interface of the kernel.
    pub engine: Engine,
    /// Bypass the page cache.
    pub direct: bool,
    /// Whether it is opened for writing, if given.
    pub write: Option<bool>,
    /// Whether completions are polled.
    pub polled: bool,
    /// Whether a kernel thread polls for requests.
    pub sqpoll: bool,
    /// Whether memory and file are registered.
    pub fixed: bool,
    /// Rings or contexts.
    pub lanes: u8,
    /// Bytes per logical block, if given.
    pub block: Option<u32>,
    /// Size for creating a file.
    pub size: Option<u64>,
}

impl LinuxTarget {
    pub(super) fn parse(rest: &str) -> Result<Self, ParseError> {
        let rest = rest.strip_prefix(':').unwrap_or_default();
        let (path, rest) = rest.split_at(end_of_path(rest));
        if path.is_empty() {
            return Err(PairError::NotAPair { given: "linux:".into() }.into());
        }
        let pairs = Pairs::parse(&LINUX, rest)?;
        let engine = |text: &str| match text {
            "io_uring" => Some(Engine::Uring),
            "aio" | "libaio" => Some(Engine::Aio),
            "psync" => Some(Engine::Sync),
            _ => None,
        };
        let on = |key, default| Ok::<_, ParseError>(pairs.get(key, on_off)?.unwrap_or(default));
        let block = match pairs.get("block", |text| Some(text.to_owned()))? {
            Some(_) => Some(pairs.block_size(4096)?),
            None => None,
        };
        Ok(Self {
            path: path.into(),
            engine: pairs.get("engine", engine)?.unwrap_or_default(),
            direct: on("direct", true)?,
            write: pairs.get("write", on_off)?,
            polled: on("polled", false)?,
            sqpoll: on("sqpoll", false)?,
            fixed: on("fixed", true)?,
            lanes: pairs.within("lanes", 1, 31)?.unwrap_or(1),
            block,
            size: pairs.size()?,
        })
    }
}

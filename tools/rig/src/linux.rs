//! Block devices and files through Linux's own block layer, as a stack.

use flysch_bench::clock::RealClock;
use flysch_bench::results::Incident;
use flysch_files::Made;
use flysch_linux::disk::{self, Access, Disk, DiskError, Engine, Settings, Waiting};
use flysch_models::media::energy::Energy;

use crate::error::TargetError;
use crate::image::make_missing;
use crate::open::{Metered, Needs, Open, Tagged};
use crate::target::{ClockKind, LinuxTarget};

/// Lanes on a block device or a file.
#[derive(Debug)]
pub struct Linux {
    lanes: Vec<Disk<RealClock>>,
    clock: Waiting<RealClock>,
    description: String,
    made: Option<Made>,
}

/// Opens a target. Users that only read get it opened for reading; a block device is written only
/// if the target says so.
pub(crate) fn open(target: &LinuxTarget, needs: &Needs) -> Result<Linux, TargetError> {
    let path = &target.path;
    let is_block = std::fs::metadata(path).is_ok_and(|it| {
        use std::os::unix::fs::FileTypeExt as _;
        it.file_type().is_block_device()
    });
    let access = match (target.write, needs.writes) {
        (Some(false), _) | (_, Some(false)) => Access::Read,
        (None, Some(true)) if is_block => {
            return Err(DiskError::NotAllowed { path: path.clone() }.into());
        }
        (Some(true), _) | (None, Some(true)) => Access::Write,
        (None, None) => Access::WriteIfFile,
    };
    let made = make_missing(path, target.size)?;
    let settings = Settings {
        engine: target.engine,
        direct: target.direct,
        block: target.block,
        access,
        polled: target.polled,
        sqpoll: target.sqpoll,
        fixed: target.fixed,
    };
    let object = disk::open(path, settings)?;
    let facts = *object.facts();
    if let Some(needed) = target.size.filter(|size| facts.bytes < *size) {
        return Err(TargetError::FileTooSmall { path: path.clone(), has: facts.bytes, needed });
    }
    let lanes = usize::from(needs.lanes.max(1));
    let (lanes, clock) = object.lanes(lanes, needs.queue_depth, needs.memory, &RealClock::new())?;
    let engine = match target.engine {
        Engine::Uring => "io_uring",
        Engine::Aio => "aio",
        Engine::Sync => "psync",
    };
    let kind = if facts.is_block { "block device" } else { "file" };
    let mut description = format!("{kind} {} by {engine}", path.display());
    let words = [
        (target.direct, ", direct"),
        (target.polled, ", polled"),
        (target.sqpoll, ", submissions polled"),
        (!facts.writable, ", read-only"),
    ];
    words.iter().filter(|(is, _)| *is).for_each(|(_, word)| description.push_str(word));
    Ok(Linux { lanes, clock, description, made })
}

impl Tagged for Disk<RealClock> {}

impl Metered for Linux {
    fn energy(&self) -> Option<Energy> {
        None
    }
}

impl Open for Linux {
    type Lane = Disk<RealClock>;
    type Clock = Waiting<RealClock>;

    fn parts(&mut self) -> (&mut [Self::Lane], &Self::Clock) {
        (&mut self.lanes, &self.clock)
    }

    fn first(&self) -> &Self::Lane {
        &self.lanes[0]
    }

    fn about(&self) -> (&str, ClockKind) {
        (&self.description, ClockKind::Real)
    }

    /// The kernel's errors, of all lanes together.
    fn incidents(&self) -> Vec<Incident> {
        let mut all: Vec<Incident> = Vec::new();
        for trouble in self.lanes.iter().flat_map(Disk::troubles) {
            let what = trouble.what();
            match all.iter_mut().find(|it| it.what == what) {
                Some(known) => known.count += trouble.count,
                None => {
                    all.push(Incident { source: "linux".into(), what, count: trouble.count });
                }
            }
        }
        all
    }

    fn failure(&self) -> Option<String> {
        self.lanes.iter().find_map(Disk::failure).map(str::to_owned)
    }

    fn made(&mut self) -> &mut Option<Made> {
        &mut self.made
    }
}

//! The kernel's requests in the terms of file systems.

use std::time::{Duration, SystemTime};

use flysch_api::vfs::{Changes, DeviceNumber, FileKind, Timestamp};
use fuser::TimeOrNow;

/// A file to be created.
pub(crate) struct Wanted<'a> {
    pub(crate) kind: FileKind,
    pub(crate) permissions: u32,
    /// Permissions that the process does not give to new files by itself.
    pub(crate) umask: u32,
    pub(crate) device: DeviceNumber,
    pub(crate) target: &'a [u8],
}

/// The current time in the form used by file systems.
pub(crate) fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    let whole = |since: Duration| i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp { seconds: whole(since), nanoseconds: since.subsec_nanos() },
        Err(before) => {
            // Nanoseconds count forward, before 1970 too.
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timestamp { seconds: -whole(before), nanoseconds: 0 },
                part => {
                    Timestamp { seconds: -whole(before) - 1, nanoseconds: 1_000_000_000 - part }
                }
            }
        }
    }
}

/// The attributes that a request names.
pub(crate) fn changes(
    mode: Option<u32>,
    (owner, group): (Option<u32>, Option<u32>),
    size: Option<u64>,
    (accessed, modified): (Option<TimeOrNow>, Option<TimeOrNow>),
    now: Timestamp,
) -> Changes {
    let time = |time| match time {
        TimeOrNow::SpecificTime(time) => timestamp(time),
        TimeOrNow::Now => now,
    };
    Changes {
        permissions: mode.map(|mode| (mode & 0o7777) as u16),
        owner,
        group,
        size,
        accessed: accessed.map(time),
        modified: modified.map(time),
        flags: None,
    }
}

/// Whether times become the current time, if they are changed.
pub(crate) fn is_now(times: [&Option<TimeOrNow>; 2]) -> bool {
    !times.iter().any(|time| matches!(time, Some(TimeOrNow::SpecificTime(_))))
}

//! Read-ahead of a single thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread_local;
use std::vec::Vec;

use flysch_api::flash::{Corrected, Flash};

use super::CachedFlash;

/// Maximum length of a window, bytes.
const ROOM: usize = 80 << 10;
/// Bytes to keep when a window moves on: a file's inode lies behind its content, but is read first.
const KEPT: usize = 16 << 10;
/// A read that begins at most this many bytes behind the window moves the window on.
const NEAR: u64 = 24 << 10;
/// Windows per thread: content is read alternately with the index that locates it.
const COUNT: usize = 2;

/// Bytes of one flash, none of which needed correction.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Id of the flash; 0 for none.
    flash: u64,
    start: u64,
    bytes: Vec<u8>,
}

thread_local! {
    /// The most recently used one is last.
    static WINDOWS: Cell<[Window; COUNT]> = Cell::default();
}

/// An id that no other flash has.
pub(super) fn id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Window {
    /// Reads through this thread's windows, if the range is in a window or shortly behind it.
    pub(super) fn read<F: Flash>(flash: &CachedFlash<F>, offset: u64, buffer: &mut [u8]) -> bool {
        // Taken out, not borrowed: the flash below may have windows of its own.
        let mut windows = WINDOWS.take();
        let at = windows.iter_mut().rposition(|window| {
            window.copy(flash.id, offset, buffer)
                || window.is_next(flash.id, offset)
                    && window.advance(flash)
                    && window.copy(flash.id, offset, buffer)
        });
        if let Some(at) = at {
            windows[at..].rotate_left(1);
        }
        WINDOWS.set(windows);
        at.is_some()
    }

    /// Moves a window there, because reading looks sequential, and reads through it.
    pub(super) fn open<F: Flash>(flash: &CachedFlash<F>, offset: u64, buffer: &mut [u8]) -> bool {
        let mut windows = WINDOWS.take();
        let window = &mut windows[0];
        window.flash = flash.id;
        window.start = (offset - offset % u64::from(flash.unit)).saturating_sub(KEPT as u64);
        window.bytes.clear();
        let is_read = window.advance(flash) && window.copy(flash.id, offset, buffer);
        if is_read {
            windows.rotate_left(1);
        }
        WINDOWS.set(windows);
        is_read
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn copy(&self, flash: u64, offset: u64, buffer: &mut [u8]) -> bool {
        let from = offset.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        let bytes = from.and_then(|from| self.bytes.get(from..)?.get(..buffer.len()));
        match bytes {
            Some(bytes) if self.flash == flash => {
                buffer.copy_from_slice(bytes);
                true
            }
            _ => false,
        }
    }

    fn is_next(&self, flash: u64, offset: u64) -> bool {
        self.flash == flash
            && !self.bytes.is_empty()
            && (self.start..self.end() + NEAR).contains(&offset)
    }

    /// Moves on to the following bytes; returns whether all of them could be read without
    /// correction.
    fn advance<F: Flash>(&mut self, flash: &CachedFlash<F>) -> bool {
        let end = self.end();
        let kept = self.bytes.len().min(KEPT);
        let rest = flash.geometry().size.saturating_sub(end);
        let len = (ROOM - kept).min(usize::try_from(rest).unwrap_or(usize::MAX));
        let old = self.bytes.len();
        self.bytes.copy_within(old - kept.., 0);
        self.bytes.resize(kept + len, 0);
        self.start = end - kept as u64;
        let read = flash.flash.read(end, &mut self.bytes[kept..]);
        let is_good = len > 0 && read == Ok(Corrected::NONE);
        if !is_good {
            self.bytes.clear();
        }
        is_good
    }
}

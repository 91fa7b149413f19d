//! What a thread reads ahead for itself.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread_local;
use std::vec::Vec;

use flysch_api::flash::{Corrected, Flash};

use super::CachedFlash;

/// Bytes a window holds at most.
const ROOM: usize = 80 << 10;
/// Bytes that stay when it moves on: a file's inode lies behind its content, and is read first.
const KEPT: usize = 16 << 10;
/// A read that begins so many bytes behind the window moves it on.
const NEAR: u64 = 24 << 10;
/// Windows of a thread: content is read in turn with what tells where it is.
const COUNT: usize = 2;

/// Bytes of one flash as they are there, without any that were corrected.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Whose bytes; 0: nobody's.
    flash: u64,
    start: u64,
    bytes: Vec<u8>,
}

thread_local! {
    /// The one used last at the end.
    static WINDOWS: Cell<[Window; COUNT]> = Cell::default();
}

/// A number that no other flash has.
pub(super) fn id() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Ordering::Relaxed) + 1
}

impl Window {
    /// Reads by this thread's windows, if what is wanted is in one or close behind it.
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

    /// Takes a window there, since it looks as if somebody reads on and on, and reads by it.
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

    /// Moves on to what comes next; says whether all of that could be read as it is.
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

//! Checks of file contents.

use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::vfs::{FsError, Inode};

use crate::Suite;

/// Bytes read at once when a whole file is read.
const CHUNK: usize = 1 << 20;
/// Longest file that is read completely, bytes; of longer ones only both ends are checked.
const WHOLE_MAX: u64 = 32 << 20;
/// Sizes of the pieces in which a file is read; none divides a page.
const PIECES: [usize; 3] = [1, 1000, 4097];
/// Bytes of a file that are read in small pieces.
const SMALL_PIECES_MAX: usize = 64 << 10;
/// Bytes before and after a piece that must stay unchanged.
const FRAME: usize = 8;

impl Suite<'_> {
    /// The whole content of a file, as far as it can be read.
    fn whole(&mut self, inode: Inode, size: u64) -> Option<Vec<u8>> {
        let mut content = vec![];
        loop {
            let start = content.len();
            content.resize(start + CHUNK, 0xA5);
            match self.fs.read(inode, start as u64, &mut content[start..]) {
                Ok(len) => {
                    content.truncate(start + len);
                    if len == 0 || content.len() as u64 > size {
                        return Some(content);
                    }
                }
                Err(error) => {
                    self.violation("content can be read", error);
                    return None;
                }
            }
        }
    }

    pub(crate) fn regular(&mut self, inode: Inode, size: u64) {
        if size > WHOLE_MAX {
            return self.end(inode, size);
        }
        let Some(content) = self.whole(inode, size) else { return };
        self.report.bytes += content.len() as u64;
        self.expect("content is as long as the size", content.len() as u64, size);
        for piece in PIECES {
            self.pieces(inode, &content, piece);
        }
        self.end(inode, size);
        self.expect("no bytes are no error", self.fs.read(inode, 0, &mut []), Ok(0));
        self.holes(inode, &content);
    }

    /// A file ends where its size says.
    fn end(&mut self, inode: Inode, size: u64) {
        for offset in [size, size.saturating_add(1), u64::MAX / 2, u64::MAX] {
            let found = self.fs.read(inode, offset, &mut [0; 4]);
            self.expect("nothing is behind the end", found, Ok(0));
        }
        if let Some(last) = size.checked_sub(1) {
            let found = self.fs.read(inode, last, &mut [0; 4]);
            self.expect("the last byte is there", found, Ok(1));
        }
    }

    fn pieces(&mut self, inode: Inode, content: &[u8], piece: usize) {
        let step = if piece < CHUNK { piece.max(content.len() / 50) } else { piece };
        let end = if piece == 1 { content.len().min(SMALL_PIECES_MAX) } else { content.len() };
        for start in (0..end).step_by(step) {
            let mut buffer = vec![0x5A; FRAME + piece + FRAME];
            let inner = &mut buffer[FRAME..FRAME + piece];
            let expected = &content[start..content.len().min(start + piece)];
            let mut len = 0;
            // A read may only be short at the end.
            match self.fs.read(inode, start as u64, inner) {
                Ok(read) => len = read,
                Err(error) => self.violation("a piece can be read", error),
            }
            if buffer.get(FRAME..FRAME + len) != Some(expected) {
                let found = format!("{len} bytes at {start} differ");
                self.violation("pieces make the whole", found);
                return;
            }
            let is_kept = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0x5A);
            if !is_kept(&buffer[..FRAME]) || !is_kept(&buffer[FRAME + piece..]) {
                self.violation("a read stays in its buffer", format!("at {start}"));
            }
        }
    }

    /// Ranges of data ascend, and between them there are only zeros.
    fn holes(&mut self, inode: Inode, content: &[u8]) {
        let size = content.len() as u64;
        let mut at = 0;
        loop {
            let next = match self.fs.next_data(inode, at) {
                Ok(next) => next,
                Err(error) => return self.violation("holes can be told", error),
            };
            let hole_end = next.as_ref().map_or(size, |range| range.start.clamp(at, size));
            if content[at as usize..hole_end as usize].iter().any(|&byte| byte != 0) {
                self.violation("a hole is zeros", format!("{at} to {hole_end}"));
            }
            let Some(range) = next else { break };
            if range.end <= at || range.end <= range.start || range.end > size {
                self.violation("ranges of data rise", format!("{range:?} behind {at}"));
                return;
            }
            at = range.end;
            if at == size {
                break;
            }
        }
        for offset in [size, u64::MAX] {
            self.expect("no data behind the end", self.fs.next_data(inode, offset), Ok(None));
        }
    }

    pub(crate) fn symlink(&mut self, inode: Inode, size: u64) {
        let mut target = vec![0xA5; 5000];
        match self.fs.read(inode, 0, &mut target) {
            Ok(len) => {
                self.expect("a target is as long as the size", len as u64, size);
                if len == 0 || target[..len].contains(&0) {
                    self.violation("a target is a path", target[..len].escape_ascii());
                }
            }
            Err(FsError::Encrypted) => {}
            Err(error) => self.violation("a target can be read", error),
        }
    }
}

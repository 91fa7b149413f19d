//! The flash below, with the page that waits to be filled.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, Kind, OobMode};
use flysch_wire::jffs2::{ByteOrder, Header, NodeType, oob_cleanmarker};
use once_cell::race::OnceBox;

/// Attempts to erase a block before it is given up (Linux: `MAX_ERASE_FAILURES`).
const ERASE_TRIES: u32 = 2;
/// Bytes read at once to check whether a block is erased.
const WINDOW: usize = 4096;

/// How a freshly erased block is distinguished from one whose erase was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    /// By a clean marker node of this length at its start.
    Node(u32),
    /// By a clean marker in the free out-of-band bytes of its first page.
    Oob,
    /// Not at all.
    None,
}

impl Marker {
    /// The method that Linux uses on such a flash.
    fn of(geometry: &FlashGeometry) -> Self {
        match geometry.kind {
            Kind::Nand | Kind::MlcNand if geometry.oob_available >= 8 => Self::Oob,
            Kind::Nand | Kind::MlcNand | Kind::UbiVolume | Kind::DataFlash => Self::None,
            // Buffered NOR: a whole buffer.
            _ if geometry.write_size > 1 => Self::Node(geometry.write_size.max(16)),
            _ => Self::Node(Header::LEN as u32),
        }
    }
}

/// A page as it read the last time.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub(crate) bytes: Vec<u8>,
    /// Error correction failed.
    pub(crate) is_lost: bool,
}

/// A flash that takes nodes of any length: bytes that do not fill a page wait in memory.
#[derive(Debug)]
pub(crate) struct Medium<F> {
    flash: F,
    order: ByteOrder,
    marker: Marker,
    /// Where `tail` begins; a multiple of the page size.
    tail_at: u64,
    /// Waiting bytes: less than a page, unless programming failed.
    tail: Vec<u8>,
    /// Pages that do not read the same each time, by their start, until their block is erased.
    frozen: BTreeMap<u64, Frozen>,
    /// The first answer of the flash when it did not give what was asked for.
    refused: OnceBox<FlashError>,
}

impl<F: Flash> Medium<F> {
    pub(crate) fn new(flash: F, order: ByteOrder) -> Self {
        let marker = Marker::of(flash.geometry());
        let (frozen, refused) = (BTreeMap::new(), OnceBox::new());
        Self { flash, order, marker, tail_at: 0, tail: vec![], frozen, refused }
    }

    /// Fails if there was something that the flash did not give, for whatever reason it was read:
    /// what was concluded from that may be wrong.
    pub(crate) fn check_given(&self) -> Result<(), FlashError> {
        self.refused.get().map_or(Ok(()), |error| Err(*error))
    }

    fn note<T>(&self, read: Result<T, FlashError>) -> Result<T, FlashError> {
        if let Err(error @ FlashError::Os(_)) = read {
            // One that came before it stays.
            let _ = self.refused.set(Box::new(error));
        }
        read
    }

    pub(crate) fn flash(&self) -> &F {
        &self.flash
    }

    pub(crate) fn into_flash(self) -> F {
        self.flash
    }

    pub(crate) fn marker(&self) -> Marker {
        self.marker
    }

    /// Programming unit, bytes.
    pub(crate) fn unit(&self) -> u32 {
        self.flash.geometry().write_size
    }

    /// Bytes at the start of each block that nodes cannot use.
    pub(crate) fn marker_len(&self) -> u32 {
        match self.marker {
            Marker::Node(len) => len.next_multiple_of(4),
            Marker::Oob | Marker::None => 0,
        }
    }

    /// The bytes that wait for their page, by position.
    pub(crate) fn waiting(&self) -> (u64, usize) {
        (self.tail_at, self.tail.len())
    }

    /// From now on the page at `at` reads like this.
    pub(crate) fn freeze(&mut self, at: u64, page: Frozen) {
        self.frozen.insert(at, page);
    }

    /// Bytes from `start` to `end` will be written: frozen copies of them are dropped.
    pub(crate) fn thaw(&mut self, start: u64, end: u64) {
        self.frozen.retain(|at, page| {
            if *at < start {
                let kept = usize::try_from(start - *at).unwrap_or(usize::MAX);
                page.bytes.truncate(kept);
            }
            !(start..end).contains(at)
        });
    }

    /// Byte ranges of the frozen pages.
    pub(crate) fn frozen_pages(&self) -> Vec<Range<u64>> {
        self.frozen.iter().map(|(at, page)| *at..*at + page.bytes.len() as u64).collect()
    }

    /// Frozen pages that contain any of the `len` bytes from `offset` on.
    fn frozen(&self, offset: u64, len: usize) -> impl Iterator<Item = (u64, &Frozen)> {
        // Pages do not overlap: at most the nearest one before reaches to here.
        let before = self.frozen.range(..offset).next_back();
        let end = offset.saturating_add(len as u64);
        let pages = before.into_iter().chain(self.frozen.range(offset..end));
        pages
            .map(|(at, page)| (*at, page))
            .filter(move |(at, page)| at + page.bytes.len() as u64 > offset)
    }

    /// Whether any of these bytes are in a frozen page.
    pub(crate) fn is_frozen(&self, offset: u64, len: usize) -> bool {
        self.frozen(offset, len).next().is_some()
    }

    /// Reads what is on the flash.
    fn read_flash(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        if self.frozen.is_empty() || !self.is_frozen(offset, buffer.len()) {
            return self.note(self.flash.read(offset, buffer));
        }
        let mut joined = Joined::default();
        let mut at = 0;
        for (start, page) in self.frozen(offset, buffer.len()) {
            let from = start.saturating_sub(offset) as usize;
            let skip = offset.saturating_sub(start) as usize;
            let len = (page.bytes.len() - skip).min(buffer.len() - from);
            if from > at {
                let read = self.flash.read(offset + at as u64, &mut buffer[at..from]);
                joined.add(self.note(read))?;
            }
            buffer[from..from + len].copy_from_slice(&page.bytes[skip..skip + len]);
            if page.is_lost {
                joined.add(Err(FlashError::Uncorrectable { offset: start + skip as u64 }))?;
            }
            at = from + len;
        }
        if at < buffer.len() {
            joined.add(self.note(self.flash.read(offset + at as u64, &mut buffer[at..])))?;
        }
        joined.finish()
    }

    /// Whether an erased block carries its clean marker out of band.
    pub(crate) fn has_oob_marker(&self, block: u32) -> bool {
        let mut bytes = [0; 8];
        let at = self.flash.geometry().block_start(block);
        let read = self.read_oob(at, OobMode::Auto, &mut bytes);
        read.is_ok() && bytes == oob_cleanmarker(self.order)
    }

    fn is_erased(&self, block: u32) -> Result<bool, FlashError> {
        let geometry = self.flash.geometry();
        let (start, len) = (geometry.block_start(block), u64::from(geometry.block_len(block)));
        let mut window = vec![0; WINDOW];
        let mut at = 0;
        while at < len {
            let part = usize::try_from(len - at).unwrap_or(WINDOW).min(WINDOW);
            match self.flash.read(start + at, &mut window[..part]) {
                Ok(_) => {}
                Err(FlashError::Uncorrectable { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
            if window[..part].iter().any(|&byte| byte != 0xFF) {
                return Ok(false);
            }
            at += part as u64;
        }
        Ok(true)
    }
}

impl<F: FlashMut> Medium<F> {
    /// Writes `bytes` at `offset`, directly after what was written last in that block. Bytes that
    /// do not fill a page stay in memory until others follow or [`flush`](Self::flush) is called.
    ///
    /// # Errors
    /// Those of programming; bytes that were not programmed are still read from memory, until
    /// [`discard`](Self::discard).
    pub(crate) fn append(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        if self.tail.is_empty() {
            self.tail_at = offset;
        }
        assert_eq!(offset, self.tail_at + self.tail.len() as u64, "nodes are written in order");
        let unit = self.unit() as usize;
        if unit == 1 {
            return self.flash.program(offset, bytes);
        }
        self.tail.extend_from_slice(bytes);
        self.program_pages(unit)
    }

    fn program_pages(&mut self, unit: usize) -> Result<(), FlashError> {
        while self.tail.len() >= unit {
            self.flash.program(self.tail_at, &self.tail[..unit])?;
            self.tail.drain(..unit);
            self.tail_at += unit as u64;
        }
        Ok(())
    }

    /// Fills the waiting page and programs it; returns the number of fill bytes. `node` says
    /// whether the fill is a padding node.
    pub(crate) fn flush(&mut self) -> Result<Filler, FlashError> {
        if self.tail.is_empty() {
            return Ok(Filler { len: 0, is_node: false });
        }
        let unit = self.unit() as usize;
        let used = self.tail.len();
        let end = used.next_multiple_of(unit);
        let len = end - used;
        let is_node = len >= Header::LEN;
        self.tail.resize(end, 0);
        if is_node {
            let header = Header { node_type: NodeType::PADDING, total_len: len as u32 };
            header.emit(self.order, &mut self.tail[used..]);
        }
        let programmed = self.program_pages(unit);
        if programmed.is_err() {
            // The filler is not to be saved.
            self.tail.truncate(self.tail.len() - len);
        }
        programmed.map(|()| Filler { len: len as u32, is_node })
    }

    /// Drops the waiting bytes.
    pub(crate) fn discard(&mut self) {
        self.tail.clear();
    }

    /// Erases a block, checks that it is erased and writes its clean marker.
    ///
    /// # Errors
    /// [`FlashError::EraseFailed`] if it is not erased: it should be given up.
    pub(crate) fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.erase_once(block) {
                Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. })
                    if tries < ERASE_TRIES => {}
                Err(FlashError::ProgramFailed { .. }) => {
                    return Err(FlashError::EraseFailed { block });
                }
                other => return other,
            }
        }
    }

    fn erase_once(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash.erase(block)?;
        let geometry = self.flash.geometry();
        let start = geometry.block_start(block);
        let end = start + u64::from(geometry.block_len(block));
        self.frozen.retain(|at, _| !(start..end).contains(at));
        if !self.is_erased(block)? {
            return Err(FlashError::EraseFailed { block });
        }
        let at = self.flash.geometry().block_start(block);
        match self.marker {
            Marker::Node(total_len) => {
                let unit = self.unit() as usize;
                let mut bytes = vec![0xFF; Header::LEN.next_multiple_of(unit)];
                Header { node_type: NodeType::CLEANMARKER, total_len }.emit(self.order, &mut bytes);
                self.flash.program(at, &bytes)
            }
            Marker::Oob => self.flash.program_oob(at, OobMode::Auto, &oob_cleanmarker(self.order)),
            Marker::None => Ok(()),
        }
    }

    /// Marks the node at `offset` as invalid in place, if bits can be cleared one by one. Returns
    /// whether there is a node.
    ///
    /// # Errors
    /// Those of programming.
    pub(crate) fn make_obsolete(&mut self, offset: u64) -> Result<bool, FlashError> {
        let mut bytes = [0; Header::LEN];
        let _corrected = self.read(offset, &mut bytes)?;
        let Ok(header) = Header::parse(&bytes, self.order) else { return Ok(false) };
        Header { node_type: header.node_type.as_obsolete(), ..header }.emit(self.order, &mut bytes);
        // Magic number and type; nothing but the one bit differs.
        self.flash.program(offset, &bytes[..4]).map(|()| true)
    }

    /// Gives up a block. Returns whether this is now recorded on the medium.
    pub(crate) fn mark_bad(&mut self, block: u32) -> bool {
        self.flash.mark_bad(block).is_ok()
    }

    pub(crate) fn sync(&mut self) -> Result<(), FlashError> {
        self.flash.sync()
    }
}

/// What a page was filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Filler {
    pub(crate) len: u32,
    /// A padding node; otherwise zeros.
    pub(crate) is_node: bool,
}

/// Result of a read that was done in pieces.
#[derive(Default)]
struct Joined {
    corrected: Corrected,
    failed: Option<FlashError>,
}

impl Joined {
    /// Adds a piece. Bytes that could not be corrected are returned all the same, so the pieces
    /// after them are read too.
    fn add(&mut self, read: Result<Corrected, FlashError>) -> Result<(), FlashError> {
        match read {
            Ok(corrected) => self.corrected += corrected,
            Err(error @ FlashError::Uncorrectable { .. }) => {
                self.failed.get_or_insert(error);
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn finish(self) -> Result<Corrected, FlashError> {
        self.failed.map_or(Ok(self.corrected), Err)
    }
}

impl<F: Flash> Flash for Medium<F> {
    fn geometry(&self) -> &FlashGeometry {
        self.flash.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let end = offset.saturating_add(buffer.len() as u64);
        let tail_end = self.tail_at + self.tail.len() as u64;
        if end <= self.tail_at || offset >= tail_end {
            return self.read_flash(offset, buffer);
        }
        let mut joined = Joined::default();
        if offset < self.tail_at {
            let before = (self.tail_at - offset) as usize;
            joined.add(self.read_flash(offset, &mut buffer[..before]))?;
        }
        if end > tail_end {
            let behind = (tail_end - offset) as usize;
            joined.add(self.read_flash(tail_end, &mut buffer[behind..]))?;
        }
        let (from, to) = (offset.max(self.tail_at), end.min(tail_end));
        let tail = &self.tail[(from - self.tail_at) as usize..(to - self.tail_at) as usize];
        buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(tail);
        joined.finish()
    }

    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let end = offset.saturating_add(len as u64);
        let tail_end = self.tail_at + self.tail.len() as u64;
        let is_apart = self.tail.is_empty() || end <= self.tail_at || offset >= tail_end;
        if is_apart && !self.is_frozen(offset, len) { self.flash.point(offset, len) } else { None }
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.note(self.flash.read_oob(offset, mode, buffer))
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.flash.is_bad(block)
    }
}

//! A store in memory that uses memory only for what is not uniform.
//!
//! Theory. The unit is divided into chunks and these into pages. A chunk that was never written
//! does not exist. In one that does, a page whose bytes are all equal is a bit and that byte; only
//! a page with real content takes memory, so a benchmark that writes zeros over a whole device
//! costs neither memory nor, when it reads them back, a cache miss per line.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::machine::DmaRegion;

use super::StoreError;

/// Size of a page, bytes.
const PAGE: usize = 4096;
/// Number of pages in a chunk.
const PAGES: usize = 512;
/// Size of a chunk, bytes.
const CHUNK: usize = PAGE * PAGES;
/// Positions in a page that are checked first, to find out cheaply that it is not uniform.
const PROBES: [usize; 4] = [8, 1368, PAGE / 2 + 64, PAGE - 8];

/// Memory, in chunks.
pub struct MemoryStore {
    len: u64,
    chunks: Vec<Option<Box<Chunk>>>,
    /// The content of chunks that do not exist.
    background: [u8; 4],
}

struct Chunk {
    /// The content of the pages that are not uniform.
    data: Option<Box<[u8]>>,
    /// Which pages are uniform, and the byte they are filled with.
    uniform: [u64; PAGES / 64],
    fill: [u8; PAGES],
}

impl Chunk {
    fn new() -> Self {
        Self { data: None, uniform: [u64::MAX; PAGES / 64], fill: [0; PAGES] }
    }

    /// A chunk filled with `pattern`.
    fn of(pattern: [u8; 4]) -> Self {
        let mut chunk = Self::new();
        if pattern == [pattern[0]; 4] {
            chunk.fill = [pattern[0]; PAGES];
        } else {
            chunk.uniform = [0; PAGES / 64];
            chunk.data = Some(pattern.repeat(CHUNK / pattern.len()).into_boxed_slice());
        }
        chunk
    }

    /// The byte that fills a page, if it is uniform.
    #[inline]
    fn fill_of(&self, page: usize) -> Option<u8> {
        (self.uniform[page / 64] >> (page % 64) & 1 != 0).then_some(self.fill[page])
    }

    fn set_uniform(&mut self, page: usize, fill: u8) {
        self.uniform[page / 64] |= 1 << (page % 64);
        self.fill[page] = fill;
    }

    /// The content of a page for a change; `whole` if all of it will be changed.
    fn content(&mut self, page: usize, whole: bool) -> &mut [u8] {
        let data = self.data.get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice());
        let content = &mut data[page * PAGE..][..PAGE];
        let bit = 1 << (page % 64);
        if self.uniform[page / 64] & bit != 0 {
            self.uniform[page / 64] &= !bit;
            if !whole {
                content.fill(self.fill[page]);
            }
        }
        content
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.chunks.iter().flatten().filter(|chunk| chunk.data.is_some()).count();
        f.debug_struct("MemoryStore").field("len", &self.len).field("chunks_used", &used).finish()
    }
}

/// A part of an access within one page.
struct Part {
    chunk: usize,
    page: usize,
    /// Offset in the page, offset in the access, length.
    at: usize,
    done: usize,
    len: usize,
}

impl MemoryStore {
    pub(super) fn new(len: u64) -> Self {
        let chunks = usize::try_from(len.div_ceil(CHUNK as u64)).unwrap_or(usize::MAX);
        let mut table = Vec::new();
        table.resize_with(chunks, || None);
        Self { len, chunks: table, background: [0; 4] }
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(StoreError::OutOfRange),
        }
    }

    #[inline]
    fn parts(offset: u64, len: usize) -> impl Iterator<Item = Part> {
        let mut done = 0;
        core::iter::from_fn(move || {
            let position = offset + done as u64;
            let at = (position % PAGE as u64) as usize;
            let part = Part {
                chunk: (position / CHUNK as u64) as usize,
                page: (position / PAGE as u64) as usize % PAGES,
                at,
                done,
                len: (PAGE - at).min(len - done),
            };
            done += part.len;
            (part.len > 0).then_some(part)
        })
    }

    fn chunk(&mut self, index: usize) -> &mut Chunk {
        let background = self.background;
        self.chunks[index].get_or_insert_with(|| Box::new(Chunk::of(background)))
    }

    /// Makes everything read as `pattern`, repeated, until it is written.
    pub(super) fn fill(&mut self, pattern: [u8; 4]) {
        self.chunks.fill_with(|| None);
        self.background = pattern;
    }

    /// The background of `len` bytes from `offset` on.
    fn background(&self, offset: u64, len: usize) -> impl Iterator<Item = u8> {
        let start = (offset % 4) as usize;
        self.background.into_iter().cycle().skip(start).take(len)
    }

    #[inline]
    pub(super) fn read(
        &self,
        offset: u64,
        memory: &DmaRegion,
        to: usize,
        len: usize,
    ) -> Result<(), StoreError> {
        self.check(offset, len as u64)?;
        for part in Self::parts(offset, len) {
            let to = to + part.done;
            match &self.chunks[part.chunk] {
                None if self.background == [0; 4] => memory.fill(to, part.len, 0),
                None => {
                    let mut page = [0; PAGE];
                    let bytes = self.background(offset + part.done as u64, part.len);
                    page.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
                    memory.write(to, &page[..part.len]);
                }
                Some(chunk) => match (chunk.fill_of(part.page), &chunk.data) {
                    (None, Some(data)) => {
                        memory.write(to, &data[part.page * PAGE + part.at..][..part.len]);
                    }
                    (fill, _) => memory.fill(to, part.len, fill.unwrap_or(0)),
                },
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn write(
        &mut self,
        offset: u64,
        memory: &DmaRegion,
        from: usize,
        len: usize,
    ) -> Result<(), StoreError> {
        self.check(offset, len as u64)?;
        for part in Self::parts(offset, len) {
            let from = from + part.done;
            let chunk = self.chunk(part.chunk);
            let whole = part.len == PAGE;
            match uniform_byte(memory, from).filter(|_| whole) {
                Some(fill) => chunk.set_uniform(part.page, fill),
                None => {
                    let content = chunk.content(part.page, whole);
                    memory.read(from, &mut content[part.at..][..part.len]);
                }
            }
        }
        Ok(())
    }

    pub(super) fn get(&self, offset: u64, to: &mut [u8]) -> Result<(), StoreError> {
        self.check(offset, to.len() as u64)?;
        for part in Self::parts(offset, to.len()) {
            let to = &mut to[part.done..][..part.len];
            let chunk = self.chunks[part.chunk].as_deref();
            match chunk.map(|chunk| (chunk.fill_of(part.page), &chunk.data)) {
                Some((None, Some(data))) => {
                    to.copy_from_slice(&data[part.page * PAGE + part.at..][..part.len]);
                }
                Some((fill, _)) => to.fill(fill.unwrap_or(0)),
                None => {
                    let bytes = self.background(offset + part.done as u64, part.len);
                    to.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
                }
            }
        }
        Ok(())
    }

    pub(super) fn put(&mut self, offset: u64, from: &[u8]) -> Result<(), StoreError> {
        self.check(offset, from.len() as u64)?;
        for part in Self::parts(offset, from.len()) {
            let content = self.chunk(part.chunk).content(part.page, part.len == PAGE);
            content[part.at..][..part.len].copy_from_slice(&from[part.done..][..part.len]);
        }
        Ok(())
    }

    pub(super) fn discard(&mut self, offset: u64, len: u64) -> Result<(), StoreError> {
        self.check(offset, len)?;
        let is_filled = self.background != [0; 4];
        let mut done = 0;
        while done < len {
            let position = offset + done;
            let index = (position / CHUNK as u64) as usize;
            let in_chunk = position % CHUNK as u64;
            let whole_chunk = in_chunk == 0 && len - done >= CHUNK as u64;
            let at = (position % PAGE as u64) as usize;
            let part = (PAGE - at).min(usize::try_from(len - done).unwrap_or(PAGE));
            let page = (in_chunk / PAGE as u64) as usize;
            if is_filled && !whole_chunk {
                self.chunk(index);
            }
            match &mut self.chunks[index] {
                chunk if whole_chunk => *chunk = is_filled.then(|| Box::new(Chunk::new())),
                Some(chunk) if part == PAGE => chunk.set_uniform(page, 0),
                Some(chunk) => chunk.content(page, false)[at..][..part].fill(0),
                None => {}
            }
            done += if whole_chunk { CHUNK as u64 } else { part as u64 };
        }
        Ok(())
    }
}

/// The byte that fills the whole page at `from` in DMA memory, if it is uniform.
#[inline]
fn uniform_byte(memory: &DmaRegion, from: usize) -> Option<u8> {
    if !from.is_multiple_of(8) || from + PAGE > memory.len() {
        return None;
    }
    let first = memory.load64(from);
    let equal = |at: &usize| memory.load64(from + at) == first;
    if first != first.rotate_left(8) || !PROBES.iter().all(equal) {
        return None;
    }
    let mut page = [0; PAGE];
    memory.read(from, &mut page);
    (page[1..] == page[..PAGE - 1]).then_some(page[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn store(len: usize) -> MemoryStore {
        MemoryStore::new(len as u64)
    }

    #[test]
    fn memory_is_zero_until_written_and_after_discard() {
        let mut store = store(3 * CHUNK);
        let memory = DmaRegion::zeroed(8192, 0);
        memory.fill(0, 8192, 0xAB);
        let across = CHUNK as u64 - 4096;
        store.read(across, &memory, 0, 8192).unwrap();
        assert_eq!(memory.load64(0), 0);
        memory.fill(0, 8192, 0x5C);
        memory.store32(100, 1);
        store.write(across, &memory, 0, 8192).unwrap();
        let mut bytes = [0; 8200];
        store.get(across - 4, &mut bytes).unwrap();
        assert_eq!((bytes[3], bytes[4], bytes[8195], bytes[8196]), (0, 0x5C, 0x5C, 0));
        store.discard(across + 4096, 2 * CHUNK as u64).unwrap();
        store.get(across, &mut bytes[..8192]).unwrap();
        assert_eq!((bytes[4095], bytes[4096]), (0x5C, 0));
    }

    #[test]
    fn a_filled_store_reads_as_its_pattern_until_it_is_written_or_discarded() {
        for pattern in [[1, 2, 3, 4], [7; 4]] {
            let mut store = store(3 * CHUNK);
            store.put(100, &[9; 50]).unwrap();
            store.fill(pattern);
            let expected = |at: usize| pattern[at % 4];
            let mut bytes = [0; 64];
            store.get(98, &mut bytes).unwrap();
            assert!(bytes.iter().enumerate().all(|(n, &byte)| byte == expected(98 + n)));
            let memory = DmaRegion::zeroed(8192, 0);
            store.read(CHUNK as u64 - 4096, &memory, 0, 8192).unwrap();
            memory.read(4094, &mut bytes[..4]);
            assert_eq!(bytes[..4], [2, 3, 0, 1].map(expected));
            store.put(103, &[9]).unwrap();
            store.discard(108, 4).unwrap();
            store.discard(CHUNK as u64, CHUNK as u64).unwrap();
            store.get(100, &mut bytes[..16]).unwrap();
            let wanted = |at| match at {
                103 => 9,
                108..112 => 0,
                at => expected(at),
            };
            assert!((0..16).all(|n| bytes[n] == wanted(100 + n)), "{bytes:?}");
            store.get(2 * CHUNK as u64 - 4, &mut bytes[..8]).unwrap();
            assert_eq!((&bytes[..4], &bytes[4..8]), (&[0; 4][..], &pattern[..]));
        }
    }

    #[test]
    fn nothing_is_reached_outside() {
        let mut store = store(8192);
        let memory = DmaRegion::zeroed(8192, 0);
        for (offset, len) in [(8192, 1), (4096, 4097), (u64::MAX, 8)] {
            let outside = |result| matches!(result, Err(StoreError::OutOfRange));
            assert!(outside(store.read(offset, &memory, 0, len)));
            assert!(outside(store.write(offset, &memory, 0, len)));
            assert!(outside(store.discard(offset, len as u64)));
        }
    }

    /// Any mix of accesses gives the same result as on a plain array.
    #[test]
    fn it_behaves_like_an_array() {
        const LEN: usize = 2 * CHUNK + 3 * PAGE;
        let mut random = Random::new(5);
        let mut store = store(LEN);
        let mut array = vec![0_u8; LEN];
        let memory = DmaRegion::zeroed(4 * PAGE, 0);
        let mut buffer = vec![0; 4 * PAGE];
        for round in 0..4000 {
            let aligned = random.below(2) == 0;
            let step = if aligned { PAGE } else { 8 };
            let offset = random.below((LEN / step) as u64 - 1) as usize * step;
            let len = (random.below(4) as usize + 1) * step;
            let len = len.min(LEN - offset);
            for word in buffer.chunks_exact_mut(8) {
                // Pages filled with one byte, nearly filled with it, and with noise.
                let noise =
                    if round % 3 == 0 || random.below(500) == 0 { random.bits() } else { 0 };
                word.copy_from_slice(
                    &(noise | (0x0101_0101_0101_0101 * (round % 2))).to_ne_bytes(),
                );
            }
            memory.write(0, &buffer);
            match random.below(5) {
                0 | 1 => {
                    store.write(offset as u64, &memory, 0, len).unwrap();
                    array[offset..][..len].copy_from_slice(&buffer[..len]);
                }
                2 => {
                    store.put(offset as u64, &buffer[..len]).unwrap();
                    array[offset..][..len].copy_from_slice(&buffer[..len]);
                }
                3 => {
                    let len = len * 150 % (LEN - offset + 1);
                    store.discard(offset as u64, len as u64).unwrap();
                    array[offset..][..len].fill(0);
                }
                _ => {
                    store.read(offset as u64, &memory, 0, len).unwrap();
                    memory.read(0, &mut buffer[..len]);
                    assert!(buffer[..len] == array[offset..][..len], "round {round}");
                    store.get(offset as u64, &mut buffer[..len]).unwrap();
                    assert!(buffer[..len] == array[offset..][..len], "round {round}");
                }
            }
        }
    }
}

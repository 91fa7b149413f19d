//! DMA memory: one contiguous range that the host and a device both read and write.
//!
//! Theory. A device changes this memory behind the compiler's back, so no Rust reference into it
//! may ever exist; all access goes through raw copies and atomic word accesses on a pointer whose
//! range was checked first. The protocol above decides who may touch which bytes when (a buffer
//! belongs to the device between doorbell and completion). A device that breaks that protocol can
//! put garbage into the bytes a core reads, which every core must expect anyway, but it cannot make
//! an access leave the range.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(feature = "alloc")]
use alloc::sync::Arc;
#[cfg(feature = "alloc")]
use core::any::Any;

mod word64;

/// A range of DMA memory by its device address: what a request carries instead of a pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaSlice {
    /// Address as the device sees it (I/O virtual or physical).
    pub address: u64,
    /// Length in bytes.
    pub len: u32,
}

impl DmaSlice {
    /// A slice of no bytes, for requests without data.
    pub const EMPTY: Self = Self { address: 0, len: 0 };
}

/// An address range that is not inside the region in which it was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// First device address of the range.
    pub address: u64,
    /// Length of the range, bytes.
    pub len: usize,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at device address {:#x} are outside DMA memory", self.len, self.address)
    }
}

impl core::error::Error for OutOfRange {}

/// The owner that keeps the memory of a region mapped.
#[derive(Clone)]
enum Owner {
    Static,
    #[cfg(feature = "alloc")]
    Shared {
        _owner: Arc<dyn Any + Send + Sync>,
    },
}

/// A contiguous range of memory shared with a device. Cloning gives another handle to it.
#[derive(Clone)]
pub struct DmaRegion {
    base: NonNull<u8>,
    len: usize,
    address: u64,
    owner: Owner,
}

// SAFETY: the region hands out no references; every access is a bounds-checked raw copy or an
// atomic word access, and the protocols above order them with doorbells and completions. The
// memory stays mapped as long as any handle lives (`owner`).
unsafe impl Send for DmaRegion {}
// SAFETY: as for `Send`.
unsafe impl Sync for DmaRegion {}

impl fmt::Debug for DmaRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaRegion")
            .field("address", &format_args!("{:#x}", self.address))
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl DmaRegion {
    /// A region over memory that lives as long as the program: a static buffer, or physical memory
    /// of a bare-metal machine.
    ///
    /// `address` is the device address of the first byte.
    ///
    /// # Safety
    /// `base` must be valid for reads and writes of `len` bytes until the program ends, aligned to
    /// 8 bytes, and no Rust reference into the range may exist while the region does.
    pub const unsafe fn from_static(base: NonNull<u8>, len: usize, address: u64) -> Self {
        Self { base, len, address, owner: Owner::Static }
    }

    /// A region over memory that `owner` keeps mapped.
    ///
    /// # Safety
    /// `base` must be valid for reads and writes of `len` bytes while `owner` lives, aligned to
    /// 8 bytes, and no Rust reference into the range may exist while the region does.
    #[cfg(feature = "alloc")]
    pub unsafe fn from_owner(
        base: NonNull<u8>,
        len: usize,
        address: u64,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { base, len, address, owner: Owner::Shared { _owner: owner } }
    }

    /// A zeroed region of `len` bytes on the heap, page aligned, for simulated devices.
    ///
    /// # Panics
    /// If `len` is 0 or the allocator cannot give that much.
    #[cfg(feature = "alloc")]
    pub fn zeroed(len: usize, address: u64) -> Self {
        let heap = Heap::new(len);
        let base = heap.base;
        // SAFETY: the allocation is `len` bytes, page aligned, and freed only when its last
        // owner is dropped; nobody else has its pointer.
        unsafe { Self::from_owner(base, len, address, Arc::new(heap)) }
    }

    /// Device address of the first byte.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// A pointer to the first byte, for code that registers the memory with an operating system:
    /// others change the memory, so no reference into it may be made.
    pub const fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the region is empty.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes of this region at `offset`, as a region.
    ///
    /// # Panics
    /// If the part is not inside the region: carving is bring-up work on sizes the caller chose.
    pub fn carve(&self, offset: usize, len: usize) -> Self {
        let base = self.at(offset, len);
        // SAFETY: `at` checked that offset..offset+len is inside the region, so the pointer stays
        // inside the same allocation.
        let base = unsafe { NonNull::new_unchecked(base) };
        Self { base, len, address: self.address + offset as u64, owner: self.owner.clone() }
    }

    /// The `len` bytes at `offset` as a [`DmaSlice`].
    ///
    /// # Panics
    /// If they are not inside the region.
    pub fn slice(&self, offset: usize, len: u32) -> DmaSlice {
        self.at(offset, len as usize);
        DmaSlice { address: self.address + offset as u64, len }
    }

    /// As [`slice`](Self::slice), but unchecked: it only names bytes, for a machine that is to
    /// synchronise them.
    #[inline]
    pub const fn span(&self, offset: usize, len: usize) -> DmaSlice {
        DmaSlice { address: self.address.wrapping_add(offset as u64), len: len as u32 }
    }

    /// Offset in this region of `len` bytes at device address `address`.
    ///
    /// # Errors
    /// [`OutOfRange`] if any of the bytes lies outside.
    #[inline]
    pub fn offset_of(&self, address: u64, len: usize) -> Result<usize, OutOfRange> {
        let offset = address.wrapping_sub(self.address);
        if offset <= self.len as u64 && len as u64 <= self.len as u64 - offset {
            Ok(offset as usize)
        } else {
            Err(OutOfRange { address, len })
        }
    }

    /// Copies bytes at `offset` out of the region.
    ///
    /// # Panics
    /// If the range is not inside the region.
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        // SAFETY: `at` checked the source range; `to` is an exclusive reference to ordinary
        // memory and so cannot overlap the region.
        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) }
    }

    /// Copies `from` into the region at `offset`.
    ///
    /// # Panics
    /// If the range is not inside the region.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        let to = self.at(offset, from.len());
        // SAFETY: `at` checked the target range; `from` is ordinary memory outside the region.
        unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) }
    }

    /// Copies `len` bytes of another region, from `from` on, into this one at `offset`. The two may
    /// be the same memory.
    ///
    /// # Panics
    /// If either range is not inside its region.
    #[inline]
    pub fn copy_from(&self, offset: usize, other: &Self, from: usize, len: usize) {
        let (to, from) = (self.at(offset, len), other.at(from, len));
        // SAFETY: `at` checked both ranges; a copy of this kind may overlap.
        unsafe { core::ptr::copy(from, to, len) }
    }

    /// Sets `len` bytes at `offset` to `byte`.
    ///
    /// # Panics
    /// If the range is not inside the region.
    #[inline]
    pub fn fill(&self, offset: usize, len: usize, byte: u8) {
        let to = self.at(offset, len);
        // SAFETY: `at` checked the range.
        unsafe { core::ptr::write_bytes(to, byte, len) }
    }

    /// Reads native-endian 64-bit words from `offset` on: a plain copy, with any alignment.
    ///
    /// # Panics
    /// If they are not inside the region.
    #[inline]
    pub fn words<const WORDS: usize>(&self, offset: usize) -> [u64; WORDS] {
        let from = self.at(offset, 8 * WORDS);
        // SAFETY: `at` checked the range; any bytes are words.
        unsafe { from.cast::<[u64; WORDS]>().read_unaligned() }
    }

    /// The `count` blocks of `LEN` bytes from `offset` on, for one pass over them: one check covers
    /// them all. `None` if they are not inside the region or not aligned to 8 bytes.
    #[inline]
    pub fn blocks<const LEN: usize>(
        &self,
        offset: usize,
        count: usize,
    ) -> Option<DmaBlocks<'_, LEN>> {
        const { assert!(LEN.is_multiple_of(8) && LEN > 0) };
        let len = count.checked_mul(LEN)?;
        if offset > self.len || len > self.len - offset {
            return None;
        }
        // SAFETY: the offset was just checked to be inside the allocation behind `base`.
        let next = unsafe { self.base.add(offset) };
        let aligned = (next.as_ptr() as usize).is_multiple_of(8);
        aligned.then_some(DmaBlocks { next, left: count, _region: PhantomData })
    }

    /// Reads the native-endian 32-bit word at `offset` (4-byte aligned) in one access; stores the
    /// device made before it are visible afterwards (acquire).
    ///
    /// # Panics
    /// If the word is not inside the region or not aligned.
    #[inline]
    pub fn load32(&self, offset: usize) -> u32 {
        self.word32(offset).load(Ordering::Acquire)
    }

    /// Writes the native-endian 32-bit word at `offset` (4-byte aligned) in one access, after all
    /// earlier stores (release).
    ///
    /// # Panics
    /// If the word is not inside the region or not aligned.
    #[inline]
    pub fn store32(&self, offset: usize, value: u32) {
        self.word32(offset).store(value, Ordering::Release);
    }

    /// Reads the native-endian 64-bit word at `offset` (8-byte aligned) in one access (acquire).
    ///
    /// A processor without 64-bit atomic accesses makes two of 32 bits: first the half at the
    /// higher address, then the other. So a flag that says that the word is valid must be in the
    /// half at the higher address, or be read by itself with [`load32`](Self::load32).
    ///
    /// # Panics
    /// If the word is not inside the region or not aligned.
    #[inline]
    pub fn load64(&self, offset: usize) -> u64 {
        // SAFETY: `word64` checked range and alignment; others only make accesses of this kind.
        unsafe { word64::load(self.word64(offset)) }
    }

    /// Writes the native-endian 64-bit word at `offset` (8-byte aligned) in one access, after all
    /// earlier stores (release).
    ///
    /// A processor without 64-bit atomic accesses makes two of 32 bits: first the half at the lower
    /// address, then the other. So a device must not look at the word before a later store, as to a
    /// doorbell, tells it to; every driver here does it that way.
    ///
    /// # Panics
    /// If the word is not inside the region or not aligned.
    #[inline]
    pub fn store64(&self, offset: usize, value: u64) {
        // SAFETY: as in `load64`.
        unsafe { word64::store(self.word64(offset), value) }
    }

    #[inline]
    fn word32(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4), "unaligned 32-bit access to DMA memory");
        // SAFETY: `at` checked the range and `base` is 8-byte aligned, so the word is aligned;
        // atomics may be shared with other writers.
        unsafe { AtomicU32::from_ptr(self.at(offset, 4).cast()) }
    }

    /// Pointer to the 64-bit word at `offset`, checked to lie inside the region; `base` is 8-byte
    /// aligned, so the word is as well.
    #[inline]
    fn word64(&self, offset: usize) -> *mut u64 {
        assert!(offset.is_multiple_of(8), "unaligned 64-bit access to DMA memory");
        self.at(offset, 8).cast()
    }

    /// Pointer to the `len` bytes at `offset`, checked to lie inside the region.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        if offset > self.len || len > self.len - offset {
            outside(offset, len, self.len);
        }
        // SAFETY: the offset was just checked to be inside the allocation behind `base`.
        unsafe { self.base.as_ptr().add(offset) }
    }
}

/// A region as an array of blocks of `LEN` bytes: a ring, or the memory of each slot. The memory is
/// checked once, on construction; an access costs one bounds check, as in any array.
#[derive(Clone, Debug)]
pub struct DmaArray<const LEN: usize> {
    region: DmaRegion,
    count: usize,
}

impl<const LEN: usize> DmaArray<LEN> {
    /// All whole blocks of `region`.
    ///
    /// # Panics
    /// If the region does not start at a multiple of 8.
    pub fn new(region: DmaRegion) -> Self {
        const { assert!(LEN.is_multiple_of(8) && LEN > 0) };
        assert!((region.base.as_ptr() as usize).is_multiple_of(8), "unaligned array of blocks");
        let count = region.len() / LEN;
        Self { region, count }
    }

    /// Number of blocks.
    #[inline]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are no blocks.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The memory.
    pub const fn region(&self) -> &DmaRegion {
        &self.region
    }

    /// The block with this number.
    ///
    /// # Panics
    /// If there is no such block.
    #[inline]
    pub fn get(&self, index: usize) -> DmaBlock<'_, LEN> {
        if index >= self.count {
            outside(index.saturating_mul(LEN), LEN, self.region.len);
        }
        // SAFETY: `index` is below the number of whole blocks of the region.
        let base = unsafe { self.region.base.add(index * LEN) };
        DmaBlock { base, _region: PhantomData }
    }

    /// The block with this number, if there is one: code that walks a ring finds its end this way.
    #[inline]
    pub fn find(&self, index: usize) -> Option<DmaBlock<'_, LEN>> {
        if index >= self.count {
            return None;
        }
        // SAFETY: `index` is below the number of whole blocks of the region.
        let base = unsafe { self.region.base.add(index * LEN) };
        Some(DmaBlock { base, _region: PhantomData })
    }
}

/// `LEN` bytes of a [`DmaRegion`] that are known to be inside it.
///
/// All offsets are constants, and an offset outside the block does not compile. Words are in native
/// byte order; accesses are plain copies, ordered by the register accesses around them.
#[derive(Clone, Copy, Debug)]
pub struct DmaBlock<'a, const LEN: usize> {
    base: NonNull<u8>,
    _region: PhantomData<&'a DmaRegion>,
}

impl<const LEN: usize> DmaBlock<'_, LEN> {
    /// Writes words from byte `AT` on.
    #[inline(always)]
    pub fn put<const AT: usize, const WORDS: usize>(self, words: [u64; WORDS]) {
        const { assert!(AT.is_multiple_of(8) && AT + 8 * WORDS <= LEN) };
        // SAFETY: the block is `LEN` bytes of a region, aligned to 8 bytes, and lives as long as
        // that; `AT` and the length were checked above.
        unsafe { self.base.add(AT).cast::<[u64; WORDS]>().write(words) }
    }

    /// Reads words from byte `AT` on.
    #[inline(always)]
    pub fn get<const AT: usize, const WORDS: usize>(self) -> [u64; WORDS] {
        const { assert!(AT.is_multiple_of(8) && AT + 8 * WORDS <= LEN) };
        // SAFETY: as in `put`; any bytes are words.
        unsafe { self.base.add(AT).cast::<[u64; WORDS]>().read() }
    }

    /// Reads the word at byte `AT` in one access, ordered before later reads (acquire): for an
    /// entry in which one word says that the entry is valid. Where the processor reads it in two,
    /// the half at the higher address comes first (as in [`DmaRegion::load64`]).
    #[inline(always)]
    pub fn load<const AT: usize>(self) -> u64 {
        const { assert!(AT.is_multiple_of(8) && AT + 8 <= LEN) };
        // SAFETY: as in `put`; words that others write at the same time are only accessed so.
        unsafe { word64::load(self.base.add(AT).cast().as_ptr()) }
    }
}

/// Consecutive blocks of `LEN` bytes ([`DmaRegion::blocks`]).
#[derive(Debug)]
pub struct DmaBlocks<'a, const LEN: usize> {
    next: NonNull<u8>,
    left: usize,
    _region: PhantomData<&'a DmaRegion>,
}

impl<'a, const LEN: usize> Iterator for DmaBlocks<'a, LEN> {
    type Item = DmaBlock<'a, LEN>;

    #[inline(always)]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let base = self.next;
        // SAFETY: `left` blocks from `next` on are inside the region, and one of them was left: the
        // pointer goes to the next or to the end of the last.
        self.next = unsafe { base.add(LEN) };
        Some(DmaBlock { base, _region: PhantomData })
    }
}

/// Out of line and with its arguments in registers: accesses are on every hot path.
#[cold]
#[inline(never)]
fn outside(offset: usize, len: usize, region: usize) -> ! {
    panic!("access outside a DMA region: {len} bytes at offset {offset} of {region}")
}

/// Page-aligned zeroed heap memory.
#[cfg(feature = "alloc")]
struct Heap {
    base: NonNull<u8>,
    layout: core::alloc::Layout,
}

#[cfg(feature = "alloc")]
impl Heap {
    fn new(len: usize) -> Self {
        assert!(len > 0, "a DMA region needs at least one byte");
        let layout = core::alloc::Layout::from_size_align(len, 4096).expect("DMA region too large");
        // SAFETY: the layout has a non-zero size.
        let base = unsafe { alloc::alloc::alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { alloc::alloc::handle_alloc_error(layout) };
        Self { base, layout }
    }
}

#[cfg(feature = "alloc")]
impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `base` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { alloc::alloc::dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: the heap block is plain memory, freed by whichever thread drops it last.
#[cfg(feature = "alloc")]
unsafe impl Send for Heap {}
// SAFETY: as for `Send`; `Heap` itself gives no access to the memory.
#[cfg(feature = "alloc")]
unsafe impl Sync for Heap {}

#[cfg(test)]
mod tests;

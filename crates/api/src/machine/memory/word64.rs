//! Ordered accesses to 64-bit words of memory that a device shares.
//!
//! Theory. Microcontrollers (Cortex-M, riscv32) have no 64-bit atomic access, so there a word is
//! two of 32 bits. Nothing can make the two one, so their order has to carry the meaning. The words
//! of this kind are of two sorts. What a driver stores (an address in a list, a command's header)
//! is read by the device only after the doorbell, when both halves have long been there: any order
//! is right. What a device stores with a flag that says "valid" (an NVMe completion, whose phase is
//! in its last 32 bits) is read flag first: if the flag is new, all that was stored before it is,
//! and if it is old, the rest is not used. Hence loads begin at the higher address and stores end
//! there.

#[cfg(any(test, not(target_has_atomic = "64")))]
use core::sync::atomic::AtomicU32;
#[cfg(target_has_atomic = "64")]
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering;

/// Reads the word (acquire).
///
/// # Safety
/// `word` must be valid for reads and writes and aligned to 8 bytes. Nobody may write it at the
/// same time but with [`store`], or outside this program.
#[inline(always)]
pub(super) unsafe fn load(word: *mut u64) -> u64 {
    #[cfg(target_has_atomic = "64")]
    // SAFETY: the caller's promise.
    return unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire);
    #[cfg(not(target_has_atomic = "64"))]
    // SAFETY: the caller's promise.
    return unsafe { load_halves(word) };
}

/// Writes the word (release).
///
/// # Safety
/// As for [`load`]; nobody may read the word at the same time but with [`load`].
#[inline(always)]
pub(super) unsafe fn store(word: *mut u64, value: u64) {
    #[cfg(target_has_atomic = "64")]
    // SAFETY: the caller's promise.
    unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
    #[cfg(not(target_has_atomic = "64"))]
    // SAFETY: the caller's promise.
    unsafe {
        store_halves(word, value);
    }
}

/// [`load`] by 32-bit accesses.
///
/// # Safety
/// As for [`load`].
#[cfg(any(test, not(target_has_atomic = "64")))]
#[inline(always)]
unsafe fn load_halves(word: *mut u64) -> u64 {
    joined(|half| {
        // SAFETY: `half` is 0 or 1, and both halves of the word are valid and aligned.
        unsafe { AtomicU32::from_ptr(word.cast::<u32>().add(half)) }.load(Ordering::Acquire)
    })
}

/// [`store`] by 32-bit accesses.
///
/// # Safety
/// As for [`store`].
#[cfg(any(test, not(target_has_atomic = "64")))]
#[inline(always)]
unsafe fn store_halves(word: *mut u64, value: u64) {
    divided(value, |half, value| {
        // SAFETY: as in `load_halves`.
        unsafe { AtomicU32::from_ptr(word.cast::<u32>().add(half)) }
            .store(value, Ordering::Release);
    });
}

/// The word of two halves; half 0 is at the lower address, and read last.
#[cfg(any(test, not(target_has_atomic = "64")))]
#[inline(always)]
fn joined(read: impl Fn(usize) -> u32) -> u64 {
    let second = read(1);
    let first = read(0);
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Gives the halves of `value` to `write`; half 0 is at the lower address, and comes first.
#[cfg(any(test, not(target_has_atomic = "64")))]
#[inline(always)]
fn divided(value: u64, mut write: impl FnMut(usize, u32)) {
    let [a, b, c, d, e, f, g, h] = value.to_ne_bytes();
    write(0, u32::from_ne_bytes([a, b, c, d]));
    write(1, u32::from_ne_bytes([e, f, g, h]));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::vec::Vec;

    const VALUE: u64 = 0x1122_3344_5566_7788;

    #[test]
    fn two_halves_are_the_same_word() {
        let mut word = 0;
        // SAFETY: a word of our own, which nobody else uses.
        unsafe {
            store_halves(&raw mut word, VALUE);
            assert_eq!((load(&raw mut word), load_halves(&raw mut word)), (VALUE, VALUE));
            store(&raw mut word, !VALUE);
            assert_eq!(load_halves(&raw mut word), !VALUE);
        }
        assert_eq!(word, !VALUE);
    }

    #[test]
    fn the_half_at_the_higher_address_is_read_first_and_written_last() {
        let mut written = Vec::new();
        divided(VALUE, |half, value| written.push((half, value)));
        assert_eq!(written.iter().map(|&(half, _)| half).collect::<Vec<_>>(), [0, 1]);
        let read = RefCell::new(Vec::new());
        let value = joined(|half| {
            read.borrow_mut().push(half);
            written[half].1
        });
        assert_eq!((value, read.into_inner()), (VALUE, Vec::from([1, 0])));
    }
}

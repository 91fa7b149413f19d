//! Tests against flashes whose every page is known.

use std::sync::atomic::{AtomicU64, Ordering};

use flysch_random::SplitMix64;

use super::*;

const PAGE: u64 = 2048;

/// Pages of known bytes; counts how often each page is read. Page 5 needs correction, page 7 cannot
/// be corrected, page 9 cannot be read at all.
struct Pages {
    geometry: FlashGeometry,
    reads: Vec<AtomicU64>,
}

impl Pages {
    fn new(pages: u64, ecc_strength: u32) -> Self {
        let nand = FlashGeometry::nand(pages * PAGE - 100, 1 << 17, PAGE as u32, PAGE as u32);
        let geometry = FlashGeometry { oob_size: 64, ecc_strength, ..nand };
        Self { geometry, reads: (0..pages).map(|_| AtomicU64::new(0)).collect() }
    }

    fn byte(at: u64) -> u8 {
        (at.wrapping_mul(0x9E37_79B9) >> 13) as u8
    }
}

impl Flash for Pages {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let end = offset + buffer.len() as u64;
        for page in offset / PAGE..end.div_ceil(PAGE) {
            self.reads[page as usize].fetch_add(1, Ordering::Relaxed);
            match page {
                5 => corrected += Corrected { bits: 3, worst_step: 2 },
                7 => failed = Err(FlashError::Uncorrectable { offset: 7 * PAGE + 512 }),
                9 => return Err(FlashError::Os(5)),
                _ => {}
            }
        }
        (offset..).zip(&mut *buffer).for_each(|(at, byte)| *byte = Self::byte(at));
        failed.map(|()| corrected)
    }
}

fn expected(offset: u64, len: usize) -> Vec<u8> {
    (offset..).take(len).map(Pages::byte).collect()
}

#[test]
fn every_read_answers_as_the_flash_itself() {
    for strength in [0, 4] {
        let cached = CachedFlash::new(Pages::new(40, strength));
        let plain = Pages::new(40, strength);
        let size = plain.geometry.size;
        let mut random = SplitMix64::new(7);
        for round in 0..20_000 {
            let offset = random.below(size + 10);
            let len = 1 + random.below(if round % 50 == 0 { 30_000 } else { 5000 }) as usize;
            let (mut ours, mut theirs) = (vec![1; len], vec![1; len]);
            let ours_said = cached.read(offset, &mut ours);
            let theirs_said = plain.read(offset, &mut theirs);
            assert_eq!(ours_said, theirs_said, "{len} bytes at {offset}");
            if matches!(ours_said, Ok(_) | Err(FlashError::Uncorrectable { .. })) {
                assert_eq!(ours, theirs, "{len} bytes at {offset}");
            }
        }
    }
}

#[test]
fn a_page_is_corrected_once() {
    let cached = CachedFlash::new(Pages::new(400, 4));
    let mut buffer = [0; 300];
    for offset in (20 * PAGE..390 * PAGE).step_by(200) {
        assert_eq!(cached.read(offset, &mut buffer), Ok(Corrected::NONE));
        assert_eq!(buffer[..], expected(offset, 300)[..]);
    }
    let most = cached.flash.reads.iter().map(|count| count.load(Ordering::Relaxed)).max();
    assert_eq!(most, Some(1));
}

#[test]
fn who_reads_on_and_on_leaves_the_cache_alone() {
    let cached = CachedFlash::new(Pages::new(2000, 0));
    let mut buffer = [0; 300];
    // Content, an index far away, and an inode behind the content, as an extraction does.
    for (step, offset) in (20 * PAGE..1500 * PAGE).step_by(280).enumerate() {
        let far = 1600 * PAGE + (step as u64 / 8) * 200;
        for at in [offset + 8192, offset, far] {
            assert_eq!(cached.read(at, &mut buffer), Ok(Corrected::NONE));
            assert_eq!(buffer[..], expected(at, 300)[..], "at {at}");
        }
    }
    let reads = cached.flash.reads.iter().map(|count| count.load(Ordering::Relaxed));
    assert!(reads.clone().max() <= Some(3), "{:?}", reads.max());
    let kept: usize = cached.sets.iter().map(|set| set.lock().unwrap().units.len()).sum();
    assert!(kept < 60, "{kept} pages");
}

#[test]
fn no_more_is_kept_than_there_is_room() {
    let cached = CachedFlash::new(Pages::new(20_000, 4));
    let mut buffer = [0; 16];
    for page in (10..20_000).chain(10..20_000) {
        assert_eq!(cached.read(page * PAGE, &mut buffer), Ok(Corrected::NONE));
    }
    let kept: usize = cached.sets.iter().map(|set| set.lock().unwrap().units.len()).sum();
    assert!(kept * PAGE as usize <= ROOM, "{kept} pages");
    assert!(kept * PAGE as usize > ROOM / 2, "{kept} pages");
}

#[test]
fn several_threads_may_read() {
    let cached = CachedFlash::new(Pages::new(12_000, 4));
    std::thread::scope(|scope| {
        for start in 0..4 {
            let cached = &cached;
            scope.spawn(move || {
                let mut buffer = [0; 3000];
                for page in (10 + start..11_990).step_by(3) {
                    assert_eq!(cached.read(page * PAGE + 7, &mut buffer), Ok(Corrected::NONE));
                    assert_eq!(buffer[..], expected(page * PAGE + 7, 3000)[..]);
                }
            });
        }
    });
}

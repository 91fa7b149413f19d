use core::cell::Cell;

use flysch_api::flash::Corrected;
use flysch_wire::jffs2::ByteOrder;

use super::*;

/// A flash that gives prescribed answers in turn.
struct Fickle {
    geometry: FlashGeometry,
    answers: Vec<Result<u32, ()>>,
    reads: Cell<usize>,
}

impl Fickle {
    fn new(ecc_strength: u32, answers: &[Result<u32, ()>]) -> Self {
        let geometry =
            FlashGeometry { ecc_strength, ..FlashGeometry::nand(64 << 10, 16 << 10, 512, 512) };
        Self { geometry, answers: answers.to_vec(), reads: Cell::new(0) }
    }
}

impl Flash for Fickle {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    /// An answer is the number of wrong bits. Without error correction the bytes show it.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let answer = self.answers[self.reads.get() % self.answers.len()];
        self.reads.set(self.reads.get() + 1);
        buffer.fill(0xA5);
        let Ok(bits) = answer else {
            buffer.fill(0x5A);
            return Err(FlashError::Uncorrectable { offset });
        };
        if self.geometry.ecc_strength == 0 {
            buffer[0] = bits as u8;
            return Ok(Corrected::NONE);
        }
        Ok(Corrected { bits, worst_step: bits })
    }
}

fn looked(ecc_strength: u32, answers: &[Result<u32, ()>]) -> (Option<Frozen>, usize) {
    let flash = Fickle::new(ecc_strength, answers);
    let looked = look(&flash, 0, 512, LOOKS_CLEAN);
    let frozen = looked.and_then(|(page, is_firm)| (!is_firm).then_some(page));
    (frozen, flash.reads.get())
}

#[test]
fn pages_that_are_firm_are_told_from_those_that_are_not() {
    let (frozen, reads) = looked(4, &[Ok(0)]);
    assert!(frozen.is_none() && reads == LOOKS_CLEAN);
    assert!(looked(4, &[Ok(1)]).0.is_none(), "age alone");
    assert!(looked(4, &[Ok(0), Ok(1), Ok(0), Ok(0), Ok(0), Ok(2)]).0.is_some());
    let (frozen, _) = looked(4, &[Err(()), Err(()), Ok(4)]);
    assert!(frozen.is_some_and(|page| !page.is_lost && page.bytes == [0xA5; 512]));
    assert!(looked(4, &[Err(())]).0.is_some_and(|page| page.is_lost));
    assert!(looked(0, &[Ok(7)]).0.is_none());
    let mut late = [Ok(7); 12];
    late[11] = Ok(5);
    assert!(looked(0, &late).0.is_some_and(|page| page.bytes[0] == 7));
}

#[test]
fn frozen_pages_read_as_they_were_seen_and_others_from_the_flash() {
    let mut medium = Medium::new(Fickle::new(4, &[Ok(0)]), ByteOrder::Little);
    medium.freeze(512, Frozen { bytes: vec![1; 512], is_lost: false });
    medium.freeze(2048, Frozen { bytes: vec![2; 512], is_lost: true });
    let mut bytes = vec![0; 3000];
    let lost = FlashError::Uncorrectable { offset: 2048 };
    assert_eq!(medium.read(100, &mut bytes), Err(lost));
    for (at, byte) in (100..).zip(&bytes) {
        let right = match at / 512 {
            1 => 1,
            4 => 2,
            _ => 0xA5,
        };
        assert_eq!(*byte, right, "byte {at}");
    }
    assert_eq!(medium.read(600, &mut bytes[..10]), Ok(Corrected::NONE));
    assert_eq!(bytes[..10], [1; 10]);
    assert!(medium.is_frozen(500, 13) && !medium.is_frozen(500, 12));
    assert!(!medium.is_frozen(1024, 1024) && medium.is_frozen(2559, 9));
    medium.thaw(700, 4096);
    assert!(medium.is_frozen(699, 1) && !medium.is_frozen(700, 3000));
    assert_eq!(medium.read(690, &mut bytes[..20]), Ok(Corrected::NONE));
    assert_eq!((&bytes[..10], &bytes[10..20]), (&[1; 10][..], &[0xA5; 10][..]));
}

#[test]
fn only_the_last_block_of_each_mount_may_have_lost_its_power() {
    let medium = Medium::new(Fickle::new(4, &[Ok(0)]), ByteOrder::Little);
    // Blocks by the numbers of their stamps; the last one says from which on others are doubtful.
    let last = |numbers: &[u32], suspect: u32| {
        let found: Vec<BlockFound> = numbers
            .iter()
            .map(|&number| BlockFound {
                stamp: (number > 0).then_some(Stamp { number, suspect }),
                ..BlockFound::default()
            })
            .collect();
        Doubts::of_stamps(&medium, &found).last
    };
    assert_eq!(last(&[0, 0], 0), [0; 0]);
    assert_eq!(last(&[2, 4, 3, 0], 4), [1]);
    // One mount wrote 2, the next one 4 to 6, the last one 8.
    assert_eq!(last(&[2, 4, 5, 6, 8], 2), [0, 3, 4]);
    assert_eq!(last(&[2, 4, 5, 6, 8], 5), [3, 4]);
    // With 6 erased, 5 is taken for the last.
    assert_eq!(last(&[2, 4, 5, 8], 2), [0, 2, 3]);
    assert_eq!(last(&[u32::MAX], u32::MAX), [0]);
}

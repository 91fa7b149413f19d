use alloc::vec;

use super::{LebProperties, Location, Space};
use crate::create::CreateOptions;

const LEB_SIZE: u32 = 15_360;

/// LEBs from 10 on, each with these bytes in use and free.
fn space(lebs: &[(u32, u32)]) -> Space {
    let superblock = CreateOptions::new(512, LEB_SIZE, 64).superblock(64).unwrap();
    let properties = |&(used, free): &(u32, u32)| LebProperties {
        free,
        dirty: LEB_SIZE - used - free,
        index: false,
    };
    let lebs: vec::Vec<_> = lebs.iter().map(properties).collect();
    Space::new(&superblock, &(10..10 + lebs.len() as u32), &lebs)
}

#[test]
fn what_is_looked_for_is_found() {
    let mut space = space(&[(0, LEB_SIZE), (4096, 8192), (2048, 4096), (LEB_SIZE, 0), (0, 0)]);
    assert_eq!(space.partial(3000), Some((12, LEB_SIZE - 4096)), "the least that is enough");
    assert_eq!(space.partial(5000), Some((11, LEB_SIZE - 8192)));
    assert_eq!(space.partial(9000), None);
    assert_eq!(space.victim(64), Some(12), "the least in it");
    assert_eq!(space.victim(LEB_SIZE - 2000), None);
    assert_eq!(space.loose_bytes(64), u64::from(2 * LEB_SIZE - 4096 - 2048));
    assert_eq!(space.idle(), [14], "an erased one is not idle");
    assert_eq!(space.empty_leb(), Some(10), "an erased one first");
    space.take_gc_leb(14);
    assert_eq!((space.gc_leb(), space.leb(14).free), (Some(14), LEB_SIZE));
}

#[test]
fn the_fullest_end_takes_the_emptiest_leb() {
    let fits = space(&[(4096, 8192), (2048, 4096), (LEB_SIZE, 0)]);
    assert_eq!(fits.squeeze(), Some((11, (10, LEB_SIZE - 8192))));
    let full = space(&[(8192, 4096), (5000, 2048), (LEB_SIZE, 0)]);
    assert_eq!(full.squeeze(), None);
}

#[test]
fn index_lebs_leave_with_the_commit() {
    let mut space = space(&[(0, LEB_SIZE), (512, 0)]);
    space.change(11, |leb| leb.index = true);
    space.change(10, |leb| leb.taken = true);
    assert_eq!(space.sums().idx_lebs, 1);
    space.release(Location { lnum: 11, offset: 0, length: 512 });
    space.leave_index_lebs(9);
    assert_eq!(space.empty_leb(), None, "the old index still uses it");
    assert_eq!(space.left().into_iter().collect::<vec::Vec<_>>(), [11]);
    assert_eq!(space.empty_leb(), Some(11));
    assert!(!space.is_astray());
    space.acquire(Location { lnum: 11, offset: 0, length: LEB_SIZE + 8 });
    assert!(space.is_astray(), "more than there is room for");
}

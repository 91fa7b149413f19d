//! Each object by itself.

use std::collections::BTreeMap;
use std::string::ToString;
use std::vec::Vec;

use flysch_api::flash::FlashError;
use flysch_wire::ubi::fastmap::{FastmapVolume, MapHeader};
use flysch_wire::ubi::{Compatibility, LAYOUT_VOLUME};

use super::*;
use crate::device::entries::{Entry, UNMAPPED, Volumes};
use crate::device::open::sort_blocks;
use crate::device::wear::{State, Wear};
use crate::scan::Evidence;
use crate::{Block, Content};

fn volumes() -> Volumes {
    Volumes::new(BTreeMap::from([(LAYOUT_VOLUME, Entry::layout())]))
}

#[test]
fn volumes_know_the_block_of_each_leb() {
    let mut volumes = volumes();
    assert_eq!(volumes.remap(LAYOUT_VOLUME, 1, 7), Ok(None));
    assert_eq!(volumes.remap(LAYOUT_VOLUME, 1, 9), Ok(Some(7)));
    assert_eq!(volumes.get(LAYOUT_VOLUME).unwrap().map, [UNMAPPED, 9]);
    assert_eq!(volumes.remap(3, 0, 7), Err(UbiError::NoVolume(3)));
    assert!(volumes.slot(LAYOUT_VOLUME, 2).is_none());
}

#[test]
fn blocks_of_no_leb_are_given_up() {
    let mut volumes = volumes();
    let mut wear = Wear::new(8);
    wear.settle(2, LAYOUT_VOLUME, 0);
    wear.settle(5, LAYOUT_VOLUME, 2);
    wear.settle(6, 4, 0);
    volumes.map_blocks(&mut wear);
    assert_eq!(volumes.get(LAYOUT_VOLUME).unwrap().map, [2, UNMAPPED]);
    assert_eq!((wear.state(5), wear.state(6)), (State::Waiting, State::Waiting));
    assert_eq!(wear.waiting_count(), 2);
}

#[test]
fn a_fastmap_lists_each_volume_with_its_map() {
    let mut volumes = volumes();
    volumes.remap(LAYOUT_VOLUME, 0, 0x0102_0304).unwrap();
    let mut bytes = Vec::new();
    volumes.append_maps(4096, &mut bytes);
    assert_eq!(bytes.len(), FastmapVolume::SIZE + MapHeader::SIZE + 2 * 4);
    assert_eq!(bytes[bytes.len() - 8..], [1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff]);
}

#[test]
fn a_block_that_can_not_be_erased_is_replaced_as_long_as_there_are_any() {
    let mut device = format(Ram::nand(64));
    let pebs = &mut device.lebs.pebs;
    let before = pebs.account;
    let peb = pebs.wear.take().unwrap();
    pebs.io.flash.endurance[peb as usize] = 0;
    pebs.erase_block(peb, false).unwrap();
    assert_eq!(pebs.wear.state(peb), State::Bad);
    assert_eq!(pebs.account.bad, before.bad + 1);
    assert_eq!(pebs.account.bad_reserved, before.bad_reserved - 1);
    pebs.hand_out(pebs.account.available).unwrap();
    assert_eq!(pebs.hand_out(1), Err(UbiError::NoSpace { wanted: 1, available: 0 }));
    pebs.account.bad_reserved = 0;
    let peb = pebs.wear.take().unwrap();
    pebs.io.flash.endurance[peb as usize] = 0;
    let why = FlashError::ReadOnly(ReadOnly::PoolEmpty { block: peb, bad: before.bad + 1 });
    assert_eq!(pebs.erase_block(peb, false), Err(UbiError::ReadOnly(why)));
    assert_eq!(pebs.begin(), Err(UbiError::ReadOnly(why)));
    assert_eq!(pebs.wear.state(peb), State::Kept);
}

#[test]
fn a_block_whose_marking_was_cut_short_is_missed_when_nothing_replaces_it() {
    let mut device = format(Ram::nand(64));
    let pebs = &mut device.lebs.pebs;
    pebs.account.bad_reserved = 1;
    pebs.hand_out(pebs.account.available).unwrap();
    let mut mark = || {
        let peb = pebs.wear.take().unwrap();
        (peb, pebs.mark_again(peb), pebs.account.bad)
    };
    let (_, marked, bad) = mark();
    assert_eq!(marked, Ok(()));
    let (block, marked, _) = mark();
    let why = ReadOnly::PoolEmpty { block, bad };
    assert_eq!(marked, Err(UbiError::ReadOnly(why.into())));
}

#[test]
fn many_blocks_of_unknown_volumes_are_sorted() {
    // With time that is quadratic in their number this takes minutes.

    const BLOCKS: u32 = 1 << 18;
    let block = Block { erase_counter: Some(1), content: Content::Stale, scrub: false };
    let blocks = std::vec![block; BLOCKS as usize];
    let aliens = (0..BLOCKS).map(|peb| (peb, Compatibility::Preserve)).collect();
    let evidence = Evidence { aliens, ..Evidence::default() };
    let mut wear = Wear::new(BLOCKS);
    sort_blocks(&mut wear, &blocks, &evidence, &DeviceOptions::default());
    assert!(wear.pebs.iter().all(|peb| peb.state == State::Kept));
}

#[test]
fn lebs_take_another_block_with_each_change() {
    let mut device = format(Ram::nand(64));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    let lebs = &mut device.lebs;
    lebs.change_leb(id, 2, &data(1, 512)).unwrap();
    let first = lebs.peb_of(id, 2).unwrap();
    lebs.change_leb(id, 2, &data(2, 512)).unwrap();
    let second = lebs.peb_of(id, 2).unwrap();
    assert_ne!(first, second);
    assert_eq!(lebs.pebs.wear.state(second), State::Used { volume: id, lnum: 2 });
    lebs.unmap_leb(id, 2).unwrap();
    assert_eq!((lebs.peb_of(id, 2), lebs.pebs.wear.state(second)), (None, State::Waiting));
}

#[test]
fn an_error_tells_once_what_the_flash_said() {
    use core::error::Error;
    let said = FlashError::PowerLost;
    let read_only = FlashError::ReadOnly(ReadOnly::NoGoodBlock);
    let attach = crate::AttachError::NoHeaders;
    let causes = [said.to_string(), read_only.to_string(), attach.to_string()];
    let errors = [UbiError::Flash(said), UbiError::ReadOnly(read_only), UbiError::Attach(attach)];
    let count = |mut error: &dyn Error, cause: &str| {
        let mut chain = error.to_string();
        while let Some(source) = error.source() {
            error = source;
            chain += &error.to_string();
        }
        chain.matches(cause).count()
    };
    for (error, cause) in errors.iter().zip(&causes) {
        assert_eq!(count(error, cause), 1, "{error}");
    }
    assert_eq!(count(&read_only, &causes[1]), 1);
    assert!(UbiError::Shape("text").source().is_none());
}

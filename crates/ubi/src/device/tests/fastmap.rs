//! The fastmap: there after a clean detach, void before the first change.

use flysch_api::flash::Flash;

use super::*;
use crate::{FastmapUse, Options, Ubi};

fn options() -> DeviceOptions {
    DeviceOptions { fastmap: true, wear_threshold: 4, ..DeviceOptions::default() }
}

/// A device with some content, and its flash after a clean detach.
fn detached(blocks: u32) -> Ram {
    let new = FormatOptions::new(3);
    let mut device = Device::format(Ram::nand(blocks), &new, &options()).unwrap();
    let id = device.create(&NewVolume::dynamic(b"v", 30)).unwrap();
    for round in 0..3 {
        for lnum in 0..20 {
            change(&mut device, id, lnum, &data(round + lnum as u8, 1024));
        }
    }
    device.volume_mut(id).unwrap().unmap(4).unwrap();
    device.detach().unwrap()
}

fn read_attached(flash: &Ram, fastmap: FastmapUse) -> Ubi<Ram> {
    let image = crate::find_images(flash, Some(4096))[0];
    Ubi::attach(flash.clone(), image, &Options { fastmap }).unwrap()
}

#[test]
fn a_fastmap_says_what_a_scan_says() {
    let flash = detached(100);
    let by_map = read_attached(&flash, FastmapUse::Use);
    let by_scan = read_attached(&flash, FastmapUse::Ignore);
    assert!(by_map.attached_by_fastmap(), "{:?}", by_map.findings());
    assert_eq!(by_map.findings(), []);
    assert_eq!(by_map.volumes(), by_scan.volumes());
    assert_eq!(by_map.blocks(), by_scan.blocks());
    assert_eq!(by_map.sequence_max(), by_scan.sequence_max());
}

#[test]
fn reading_leaves_the_fastmap_and_the_first_change_erases_it() {
    let flash = detached(100);
    let before = flash.operations;
    let mut device = Device::attach(flash, &options()).unwrap();
    assert!(device.attached_by_fastmap());
    assert_eq!(leb(&mut device, 0, 3)[..1024], data(5, 1024));
    device.sync().unwrap();
    assert_eq!(device.flash().operations, before);
    assert!(read_attached(device.flash(), FastmapUse::Use).attached_by_fastmap());
    change(&mut device, 0, 3, &data(9, 1024));
    assert!(!read_attached(device.flash(), FastmapUse::Use).attached_by_fastmap());
    let mut device = Device::attach(device.into_flash(), &options()).unwrap();
    assert!(!device.attached_by_fastmap());
    assert_eq!(leb(&mut device, 0, 3)[..1024], data(9, 1024));
    let mut device = Device::attach(device.detach().unwrap(), &options()).unwrap();
    assert!(device.attached_by_fastmap());
    assert_eq!(leb(&mut device, 0, 3)[..1024], data(9, 1024));
}

#[test]
fn who_does_not_use_fastmaps_erases_them_first() {
    let mut device = Device::attach(detached(100), &DeviceOptions::default()).unwrap();
    change(&mut device, 0, 3, &data(9, 1024));
    assert!(!read_attached(device.flash(), FastmapUse::Use).attached_by_fastmap());
    device.sync().unwrap();
    let ubi = read_attached(device.flash(), FastmapUse::Ignore);
    assert!(ubi.blocks().iter().all(|block| block.content != crate::Content::Fastmap));
}

#[test]
fn the_anchor_gets_a_place_when_the_first_blocks_are_full() {
    let new = FormatOptions::new(3);
    let mut device = Device::format(Ram::nand(200), &new, &options()).unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"v", lebs)).unwrap();
    for lnum in 0..lebs {
        change(&mut device, id, lnum, &data(lnum as u8, 1024));
    }
    for _ in 0..3 {
        device = Device::attach(device.detach().unwrap(), &options()).unwrap();
        assert!(device.attached_by_fastmap());
        for lnum in 0..lebs {
            assert_eq!(leb(&mut device, id, lnum)[..1024], data(lnum as u8, 1024));
        }
        change(&mut device, id, 0, &data(0, 1024));
    }
}

#[test]
fn a_damaged_fastmap_costs_a_scan_and_nothing_else() {
    let flash = detached(100);
    let ubi = read_attached(&flash, FastmapUse::Use);
    for (peb, block) in ubi.blocks().iter().enumerate() {
        if block.content != crate::Content::Fastmap {
            continue;
        }
        for at in [1030, 1400] {
            let mut flash = flash.clone();
            flash.bytes[peb * 4096 + at] ^= 0x10;
            let mut device = Device::attach(flash, &options()).unwrap();
            assert!(!device.attached_by_fastmap(), "block {peb}, byte {at}");
            assert_eq!(leb(&mut device, 0, 3)[..1024], data(5, 1024));
            change(&mut device, 0, 3, &data(1, 1024));
            let device = Device::attach(device.detach().unwrap(), &options()).unwrap();
            assert!(device.attached_by_fastmap());
            assert_eq!(device.flash().geometry().blocks(), 100);
        }
    }
}

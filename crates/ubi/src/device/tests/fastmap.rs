//! The fastmap: valid while the device works, and after a clean detach.

use flysch_api::flash::{Flash, FlashGeometry};

use super::*;
use crate::device::wear::State;
use crate::{AttachOptions, Content, FastmapUse, Ubi, VolumeInfo};

fn options() -> DeviceOptions {
    DeviceOptions { fastmap: true, wear_threshold: 4, ..DeviceOptions::default() }
}

/// A device with some content, and its flash after a clean detach.
fn detached(blocks: u32) -> Ram {
    let new = FormatOptions::new(3);
    let mut device = UbiDevice::format(Ram::nand(blocks), &new, &options()).unwrap();
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
    let size = flash.geometry().erase_size;
    let image = crate::find_images(flash, Some(size))[0];
    Ubi::attach(flash.clone(), image, &AttachOptions { fastmap }).unwrap()
}

/// Attaches by fastmap and by scan and compares the results; `false` if no fastmap was trusted.
pub(super) fn agrees_with_a_scan(flash: &Ram, options: &DeviceOptions, what: &str) -> bool {
    let with = |fastmap: bool| {
        UbiDevice::attach(flash.clone(), &DeviceOptions { fastmap, ..*options })
            .unwrap_or_else(|error| panic!("{what}, fastmap {fastmap}: {error}"))
    };
    let (mut one, mut other) = (with(true), with(false));
    if !one.attached_by_fastmap() {
        return false;
    }
    // Attaching may mend something, the copy written last.
    let is_untouched = [&one, &other].iter().all(|d| d.flash().operations == flash.operations);
    let pairs: Vec<_> = one.volumes().zip(other.volumes()).collect();
    assert_eq!(one.volumes().count(), other.volumes().count(), "{what}");
    for (a, b) in pairs {
        let void = |info: &VolumeInfo| VolumeInfo { map: Vec::new(), ..info.clone() };
        assert_eq!(void(&a), void(&b), "{what}");
        for lnum in 0..a.reserved_pebs {
            let of = |map: &[(u32, u32)]| map.iter().find(|at| at.0 == lnum).map(|at| at.1);
            match (of(&a.map), of(&b.map)) {
                (None, None) => {}
                // Given up, and not erased yet: only the fastmap knows.
                (None, Some(peb)) => {
                    assert_eq!(
                        one.lebs.pebs.wear.state(peb),
                        State::Waiting,
                        "{what}: LEB {lnum}, {peb}"
                    );
                }
                (x, y) => {
                    assert!(!is_untouched || x == y, "{what}: LEB {lnum} in {x:?}, not {y:?}");
                    if !a.update_marker {
                        let (x, y) = (leb(&mut one, a.id, lnum), leb(&mut other, a.id, lnum));
                        assert!(x == y, "{what}: LEB {lnum}");
                    }
                }
            }
        }
    }
    if !is_untouched {
        return true;
    }
    assert_eq!(one.account().bad, other.account().bad, "{what}");
    assert_eq!(one.sequence(), other.sequence(), "{what}");
    let headers = read_attached(flash, FastmapUse::Ignore);
    for (peb, (known, block)) in one.erase_counters().zip(headers.blocks()).enumerate() {
        // A block that was being erased has no counter.
        if let Some(counter) = block.erase_counter {
            assert_eq!(known, Some(counter), "{what}: erase counter of block {peb}");
        }
    }
    true
}

#[test]
fn a_fastmap_says_what_a_scan_says() {
    let flash = detached(100);
    let by_map = read_attached(&flash, FastmapUse::Use);
    let by_scan = read_attached(&flash, FastmapUse::Ignore);
    assert!(by_map.attached_by_fastmap(), "{:?}", by_map.findings());
    assert_eq!(by_map.findings(), []);
    assert_eq!(by_map.volumes(), by_scan.volumes());
    assert_eq!(by_map.sequence_max(), by_scan.sequence_max());
    for (peb, (one, other)) in by_map.blocks().iter().zip(by_scan.blocks()).enumerate() {
        // What waits for its erase is erased, or is what is left of the fastmap before.
        let is_queued = one.content == Content::Stale
            && matches!(other.content, Content::Free | Content::Fastmap);
        let erased = u32::from(is_queued && other.content == Content::Free);
        assert!(one.content == other.content || is_queued, "block {peb}: {one:?}, {other:?}");
        assert_eq!(one.erase_counter.map(|ec| ec + erased), other.erase_counter, "block {peb}");
    }
}

#[test]
fn reading_leaves_the_fastmap_and_changes_keep_it() {
    let flash = detached(100);
    let before = flash.operations;
    let mut device = UbiDevice::attach(flash, &options()).unwrap();
    assert!(device.attached_by_fastmap());
    assert_eq!(leb(&mut device, 0, 3)[..1024], data(5, 1024));
    assert_eq!(device.flash().operations, before);
    assert!(read_attached(device.flash(), FastmapUse::Use).attached_by_fastmap());
    // Written and gone, without a word.
    for tag in 0..40 {
        change(&mut device, 0, 3, &data(tag, 1024));
        let ubi = read_attached(device.flash(), FastmapUse::Use);
        assert!(ubi.attached_by_fastmap(), "{:?}", ubi.findings());
        let mut again = UbiDevice::attach(device.flash().clone(), &options()).unwrap();
        assert!(again.attached_by_fastmap());
        assert_eq!(leb(&mut again, 0, 3)[..1024], data(tag, 1024));
    }
    assert!(device.statistics().fastmaps > 2);
    let mut device = UbiDevice::attach(device.detach().unwrap(), &options()).unwrap();
    assert!(device.attached_by_fastmap());
    assert_eq!(leb(&mut device, 0, 3)[..1024], data(39, 1024));
}

#[test]
fn who_does_not_use_fastmaps_erases_them_first() {
    let mut device = UbiDevice::attach(detached(100), &DeviceOptions::default()).unwrap();
    change(&mut device, 0, 3, &data(9, 1024));
    assert!(!read_attached(device.flash(), FastmapUse::Use).attached_by_fastmap());
    device.sync().unwrap();
    let ubi = read_attached(device.flash(), FastmapUse::Ignore);
    assert!(ubi.blocks().iter().all(|block| block.content != Content::Fastmap));
}

#[test]
fn the_anchor_gets_a_place_when_the_first_blocks_are_full() {
    let new = FormatOptions::new(3);
    let mut device = UbiDevice::format(Ram::nand(200), &new, &options()).unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"v", lebs)).unwrap();
    for lnum in 0..lebs {
        change(&mut device, id, lnum, &data(lnum as u8, 1024));
    }
    for _ in 0..3 {
        device = UbiDevice::attach(device.detach().unwrap(), &options()).unwrap();
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
        if block.content != Content::Fastmap {
            continue;
        }
        for at in [1030, 1400] {
            let mut flash = flash.clone();
            flash.bytes[peb * 4096 + at] ^= 0x10;
            let mut device = UbiDevice::attach(flash, &options()).unwrap();
            assert!(!device.attached_by_fastmap(), "block {peb}, byte {at}");
            assert_eq!(leb(&mut device, 0, 3)[..1024], data(5, 1024));
            change(&mut device, 0, 3, &data(1, 1024));
            let device = UbiDevice::attach(device.detach().unwrap(), &options()).unwrap();
            assert!(device.attached_by_fastmap());
            assert_eq!(device.flash().geometry().blocks(), 100);
        }
    }
}

/// The benefit of a fastmap, on a chip of 1000 blocks of 128 KiB.
#[test]
fn attaching_after_a_cut_reads_the_pools_and_not_the_chip() {
    let options = DeviceOptions { fastmap: true, ..DeviceOptions::default() };
    let flash = Ram::new(FlashGeometry::nand(1000 << 17, 1 << 17, 2048, 2048));
    let mut device = UbiDevice::format(flash, &FormatOptions::new(3), &options).unwrap();
    let id = device.create(&NewVolume::dynamic(b"v", 900)).unwrap();
    (0..800).for_each(|lnum| write(&mut device, id, lnum, 0, &data(1, 2048)));
    let (before, changes) = (device.statistics().fastmaps, 2000);
    for at in 0..changes {
        change(&mut device, id, at * 7 % 800, &data(2, 2048));
    }
    let written = device.statistics().fastmaps - before;
    let mut flash = device.into_flash();
    let pages = |fastmap: bool, flash: &mut Ram| {
        let before = flash.pages_read.get();
        let options = DeviceOptions { fastmap, ..options };
        let device = UbiDevice::attach(&mut *flash, &options).unwrap();
        assert_eq!(device.attached_by_fastmap(), fastmap);
        drop(device);
        flash.pages_read.get() - before
    };
    let (fast, slow) = (pages(true, &mut flash), pages(false, &mut flash));
    std::println!(
        "{fast} pages by fastmap, {slow} by a scan; {written} fastmaps, {changes} changes"
    );
    assert!(fast * 3 < slow, "{fast} and {slow}");
    // One each time the pool of 5 % is empty.
    assert!((changes / 50 - 2..=changes / 50 + 2).contains(&(written as u32)), "{written}");
}

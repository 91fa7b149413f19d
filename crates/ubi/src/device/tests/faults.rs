//! Blocks that wear out, flip bits, break and go bad.

use std::string::ToString;

use flysch_api::flash::FlashError;
use flysch_wire::ubi::{LAYOUT_VOLUME, VolumeFlags};

use super::*;

fn options(wear_threshold: u32) -> DeviceOptions {
    DeviceOptions { wear_threshold, ..DeviceOptions::default() }
}

fn spread(device: &UbiDevice<Ram>) -> u32 {
    let counters: Vec<u32> = device.erase_counters().flatten().collect();
    counters.iter().max().unwrap() - counters.iter().min().unwrap()
}

/// A device with a volume whose LEBs are all written and then never again, and one LEB that is
/// changed again and again.
fn hot_and_cold(flash: Ram, threshold: u32) -> (UbiDevice<Ram>, u32) {
    let new = FormatOptions::new(1);
    let mut device = UbiDevice::format(flash, &new, &options(threshold)).unwrap();
    let cold = device.account().available - 1;
    let cold = device.create(&NewVolume::dynamic(b"cold", cold)).unwrap();
    let hot = device.create(&NewVolume::dynamic(b"hot", 1)).unwrap();
    for lnum in 0..device.info(cold).unwrap().reserved_pebs {
        change(&mut device, cold, lnum, &data(lnum as u8, 512));
    }
    (device, hot)
}

#[test]
fn wear_is_levelled_within_the_threshold() {
    for flash in [Ram::nand(64), Ram::nor(64)] {
        let (mut device, hot) = hot_and_cold(flash, 16);
        let mut widest = 0;
        for round in 0..8000_u32 {
            change(&mut device, hot, 0, &data(round as u8, 512));
            widest = widest.max(spread(&device));
        }
        // Blocks wear on while they wait for their erase.
        assert!((16..=16 + 8).contains(&widest), "{widest}");
        assert!(device.statistics().moves > 100, "{:?}", device.statistics());
        for lnum in 0..device.info(0).unwrap().reserved_pebs {
            assert_eq!(leb(&mut device, 0, lnum)[..512], data(lnum as u8, 512));
        }
    }
}

#[test]
fn without_levelling_the_same_work_wears_a_few_blocks() {
    let (mut device, hot) = hot_and_cold(Ram::nand(64), 65536);
    for round in 0..8000_u32 {
        change(&mut device, hot, 0, &data(round as u8, 512));
    }
    assert!(spread(&device) > 200, "{}", spread(&device));
}

#[test]
fn bit_errors_move_a_leb_away() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    change(&mut device, id, 1, &data(1, 1024));
    let peb = device.lebs.peb_of(id, 1).unwrap();
    device.flash_mut().flipping.insert(peb);
    leb(&mut device, id, 1);
    while device.work(10).unwrap() {}
    assert_ne!(device.lebs.peb_of(id, 1), Some(peb));
    assert_eq!(device.statistics().scrubs, 1);
    assert_eq!(leb(&mut device, id, 1)[..1024], data(1, 1024));
    assert_eq!(device.flash().erases[peb as usize], 2, "and the block is erased");
}

#[test]
fn bit_errors_seen_at_attach_move_a_leb_away() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    change(&mut device, id, 1, &data(1, 1024));
    let peb = device.lebs.peb_of(id, 1).unwrap();
    let mut flash = device.into_flash();
    flash.flipping.insert(peb);
    let mut device = attach(flash);
    while device.work(10).unwrap() {}
    assert_ne!(device.lebs.peb_of(id, 1), Some(peb));
}

#[test]
fn a_failed_write_ends_in_another_block_and_the_old_one_is_tried() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    write(&mut device, id, 0, 0, &data(1, 512));
    let peb = device.lebs.peb_of(id, 0).unwrap();
    device.flash_mut().weak.insert(peb);
    write(&mut device, id, 0, 512, &data(2, 512));
    assert_ne!(device.lebs.peb_of(id, 0), Some(peb));
    let expected = [data(1, 512), data(2, 512)].concat();
    assert_eq!(leb(&mut device, id, 0)[..1024], expected);
    // It fails again under torture and is bad then.
    device.sync().unwrap();
    assert_eq!((device.statistics().tortures, device.account().bad), (1, 1));

    // Another one fails once only: torture finds it good.
    let peb = device.lebs.peb_of(id, 0).unwrap();
    device.flash_mut().weak.insert(peb);
    write(&mut device, id, 0, 1024, &data(3, 512));
    device.flash_mut().weak.clear();
    device.sync().unwrap();
    assert_eq!((device.statistics().tortures, device.account().bad), (2, 1));
    let mut device = attach(device.into_flash());
    assert_eq!(leb(&mut device, id, 0)[..1024], expected);
    assert_eq!(device.findings(), []);
}

#[test]
fn first_writes_and_changes_avoid_blocks_that_fail() {
    let mut device = format(Ram::nand(100));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    for _ in 0..2 {
        let next = device.lebs.pebs.wear.take().unwrap();
        device.lebs.pebs.wear.add_free(next);
        device.flash_mut().weak.insert(next);
        write(&mut device, id, 0, 0, &data(1, 512));
        change(&mut device, id, 1, &data(2, 512));
        device.volume_mut(id).unwrap().unmap(0).unwrap();
        device.sync().unwrap();
    }
    assert_eq!((device.account().bad, device.account().bad_reserved), (2, 0));
    assert_eq!(leb(&mut device, id, 1)[..512], data(2, 512));
}

#[test]
fn the_reserve_is_twenty_of_1024_and_shrinks() {
    let device = format(Ram::nand(1000));
    let account = device.account();
    assert_eq!((account.bad_reserved, account.reserved), (20, 4));
    assert_eq!(account.available, 1000 - 20 - 4);
    assert_eq!(format(Ram::nor(1000)).account().bad_reserved, 0);
    let mut flash = Ram::nand(1000);
    (0..5).for_each(|block| flash.mark_factory_bad(block * 7));
    assert_eq!(format(flash).account().bad_reserved, 15);
}

/// A device with a volume of 4 LEBs, and two blocks that wait for an erase that will fail; one
/// block is reserved for that.
fn with_failing_erases() -> (UbiDevice<Ram>, u32) {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    assert_eq!(device.account().bad_reserved, 1);
    for lnum in 0..2 {
        change(&mut device, id, lnum, &data(1, 512));
    }
    fail_erases(&mut device, id);
    (0..2).for_each(|lnum| change(&mut device, id, lnum, &data(2, 512)));
    (device, id)
}

/// The next erases of the blocks of LEB 0 and 1 fail.
fn fail_erases(device: &mut UbiDevice<Ram>, volume: u32) {
    for lnum in 0..2 {
        let peb = device.lebs.peb_of(volume, lnum).unwrap();
        device.flash_mut().endurance[peb as usize] = 0;
    }
}

/// Whatever went wrong, the volumes fit the flash when it is attached again.
fn assert_volumes_fit(flash: Ram) -> UbiDevice<Ram> {
    let device = attach(flash);
    let account = device.account();
    let volumes: u32 = device.volumes().map(|volume| volume.reserved_pebs).sum();
    assert_eq!(account.reserved, volumes + 4);
    assert_eq!(account.reserved + account.bad_reserved + account.available + account.bad, 40);
    device
}

#[test]
fn blocks_that_go_bad_are_not_promised_to_a_volume() {
    let (device, id) = with_failing_erases();
    let available = device.account().available;
    let space = UbiError::NoSpace { wanted: available, available: available - 1 };
    let is_whole = |device: UbiDevice<Ram>| {
        assert_eq!((device.account().bad, device.read_only()), (2, None));
        assert_eq!(device.account().available, available - 1);
        assert_eq!(assert_volumes_fit(device.into_flash()).account().available, available - 1);
    };
    let mut created = device;
    assert_eq!(created.create(&NewVolume::dynamic(b"w", available)), Err(space.clone()));
    is_whole(created);
    let mut grown = with_failing_erases().0;
    assert_eq!(grown.resize(id, 4 + available), Err(space));
    is_whole(grown);
}

#[test]
fn blocks_that_go_bad_while_the_table_is_written_are_not_promised_to_a_volume() {
    type Step = fn(&mut UbiDevice<Ram>, u32) -> Result<(), UbiError>;
    let create: Step =
        |device, available| device.create(&NewVolume::dynamic(b"w", available)).map(drop);
    let grow: Step = |device, available| device.resize(0, 4 + available);
    for step in [create, grow] {
        let mut device = format(Ram::nand(40));
        device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
        fail_erases(&mut device, LAYOUT_VOLUME);
        let available = device.account().available;
        let error = step(&mut device, available).unwrap_err();
        let FlashError::ReadOnly(ReadOnly::PoolEmpty { bad: 1, .. }) = FlashError::from(error)
        else {
            panic!("another reason")
        };
        // The first copy of the table decides, and it was written.
        assert_eq!(assert_volumes_fit(device.into_flash()).account().available, 0);
    }
}

#[test]
fn a_volume_flagged_so_does_not_grow_by_blocks_that_go_bad() {
    let (mut device, id) = with_failing_erases();
    let mut records = device.lebs.volumes.table_records();
    records.get_mut(&id).unwrap().flags = VolumeFlags::AUTORESIZE;
    // The failures come when it is attached.
    let queue = core::mem::take(&mut device.lebs.pebs.wear.queue);
    device.lebs.write_table(&records).unwrap();
    assert!(queue.len() >= 2 && device.account().bad == 0);
    let flash = device.into_flash();
    let device = attach(flash);
    let info = device.info(id).unwrap();
    assert_eq!((device.account().bad, device.account().available, info.reserved_pebs), (2, 0, 34));
    assert_volumes_fit(device.into_flash());
}

#[test]
fn a_worn_out_device_becomes_read_only_and_keeps_what_it_has() {
    let mut flash = Ram::nand(64);
    for block in 0..64 {
        flash.endurance[block as usize] = 60 + block;
    }
    let (mut device, hot) = hot_and_cold(flash, 8);
    let reserve = device.account().bad_reserved;
    assert_eq!(reserve, 2);
    let mut round = 0_u32;
    let error = loop {
        let result = device.volume_mut(hot).unwrap().change(0, &data(round as u8, 512));
        match result {
            Ok(()) => round += 1,
            Err(error) => break error,
        }
        assert!(round < 100_000);
    };
    assert!(matches!(error, FlashError::ReadOnly(ReadOnly::PoolEmpty { .. })), "{error}");
    assert_eq!(device.read_only(), Some(error));
    assert_eq!((device.account().bad, device.account().bad_reserved), (reserve, 0));
    let why = error.to_string();
    assert!(why.contains("2 are bad already") && why.contains("copy the data"), "{why}");
    assert_eq!(leb(&mut device, hot, 0)[..512], data((round - 1) as u8, 512));
    let before = device.flash().operations;
    assert_eq!(device.volume_mut(hot).unwrap().unmap(0), Err(error));
    assert!(matches!(device.remove(hot), Err(UbiError::ReadOnly(_))));
    assert_eq!(device.flash().operations, before, "read-only means it");
    let mut device = attach(device.into_flash());
    assert_eq!(leb(&mut device, hot, 0)[..512], data((round - 1) as u8, 512));
    for lnum in 0..device.info(0).unwrap().reserved_pebs {
        assert_eq!(leb(&mut device, 0, lnum)[..512], data(lnum as u8, 512));
    }
}

#[test]
fn what_can_not_be_read_stays_and_the_rest_goes_on() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    change(&mut device, id, 0, &data(1, 1024));
    change(&mut device, id, 1, &data(2, 1024));
    let peb = device.lebs.peb_of(id, 0).unwrap();
    device.flash_mut().flipping.insert(peb);
    leb(&mut device, id, 0);
    device.flash_mut().unreadable.insert(peb);
    assert!(!device.work(10).unwrap(), "one try, not for ever");
    assert_eq!(device.lebs.peb_of(id, 0), Some(peb));
    let read = device.volume_mut(id).unwrap().read(0, 0, &mut [0; 4]);
    assert!(matches!(read, Err(FlashError::Uncorrectable { .. })));
    change(&mut device, id, 0, &data(3, 1024));
    device.sync().unwrap();
    assert_eq!(leb(&mut device, id, 0)[..1024], data(3, 1024));
}

#[test]
fn too_many_unreadable_blocks_stop_the_device() {
    let mut device = format(Ram::nand(100));
    let id = device.create(&NewVolume::dynamic(b"v", 40)).unwrap();
    (0..20).for_each(|lnum| change(&mut device, id, lnum, &data(1, 512)));
    for lnum in 0..20 {
        let peb = device.lebs.peb_of(id, lnum).unwrap();
        device.flash_mut().flipping.insert(peb);
        leb(&mut device, id, lnum);
        device.flash_mut().unreadable.insert(peb);
    }
    let error = (0..40).find_map(|_| device.work(1).err()).unwrap();
    assert_eq!(error, UbiError::ReadOnly(ReadOnly::Unreadable { blocks: 17 }.into()));
}

#[test]
fn erase_counters_survive_and_unknown_ones_get_the_mean() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    for round in 0..400_u32 {
        change(&mut device, id, 0, &data(round as u8, 512));
    }
    device.sync().unwrap();
    let counters: Vec<_> = device.erase_counters().flatten().collect();
    let mean = counters.iter().sum::<u32>() / 40;
    assert!(mean > 5);
    let mut flash = device.into_flash();
    let lost = 30;
    let range = lost * 4096..lost * 4096 + 4096;
    flash.bytes[range].fill(0xff);
    let mut device = attach(flash);
    device.sync().unwrap();
    let again: Vec<_> = device.erase_counters().flatten().collect();
    assert!(again[lost].abs_diff(mean + 1) <= 1, "{} and {mean}", again[lost]);
    let others = |all: &[u32]| all.iter().enumerate().filter(|(at, _)| *at != lost).count();
    assert_eq!(others(&again), others(&counters));
}

#[test]
fn a_move_that_failed_leaves_no_copy_that_could_count() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    write(&mut device, id, 0, 0, &data(1, 512));
    device.sync().unwrap();
    let source = device.lebs.peb_of(id, 0).unwrap();
    let target = device.lebs.pebs.wear.take_worn(8192).unwrap();
    device.lebs.pebs.wear.add_free(target);
    device.flash_mut().flipping.extend([source, target]);
    leb(&mut device, id, 0);
    device.work(1).unwrap();
    assert_eq!(device.lebs.peb_of(id, 0), Some(source), "the target reads badly");
    write(&mut device, id, 0, 512, &data(2, 512));
    let mut device = attach(device.into_flash());
    let expected = [data(1, 512), data(2, 512)].concat();
    assert_eq!(leb(&mut device, id, 0)[..1024], expected);
}

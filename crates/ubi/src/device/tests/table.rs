//! Volumes: created, resized, renamed, updated, removed; and what is refused.

use std::string::ToString;
use std::vec;

use flysch_random::SplitMix64;
use flysch_wire::ubi::{EcHeader, LAYOUT_VOLUME, VidHeader, VolumeFlags, VolumeKind, VolumeRecord};

use super::*;

fn names(device: &UbiDevice<Ram>) -> Vec<(u32, Vec<u8>)> {
    device.volumes().map(|volume| (volume.id, volume.name)).collect()
}

#[test]
fn volumes_get_what_is_available_and_no_more() {
    let mut device = format(Ram::nand(40));
    let available = device.account().available;
    let error = device.create(&NewVolume::dynamic(b"a", available + 1)).unwrap_err();
    assert_eq!(error, UbiError::NoSpace { wanted: available + 1, available });
    let a = device.create(&NewVolume::dynamic(b"a", available - 2)).unwrap();
    let b = device.create(&NewVolume { id: Some(9), ..NewVolume::dynamic(b"b", 2) }).unwrap();
    assert_eq!((a, b, device.account().available), (0, 9, 0));
    let twice = device.create(&NewVolume::dynamic(b"b", 1)).unwrap_err();
    assert_eq!(twice.to_string(), "volume \"b\" already exists");
    let taken = NewVolume { id: Some(9), ..NewVolume::dynamic(b"c", 1) };
    assert_eq!(device.create(&taken), Err(UbiError::IdTaken(9)));
    assert!(matches!(device.create(&NewVolume::dynamic(b"", 1)), Err(UbiError::Invalid(_))));
    assert!(matches!(device.create(&NewVolume::dynamic(b"d", 0)), Err(UbiError::Invalid(_))));
    assert!(matches!(device.resize(b, 3), Err(UbiError::NoSpace { .. })));
    device.resize(a, 5).unwrap();
    device.resize(b, 3).unwrap();
    device.remove(a).unwrap();
    assert_eq!(device.remove(a), Err(UbiError::NoVolume(a)));
    assert_eq!(device.account().available, available - 3);
    let device = attach(device.into_flash());
    assert_eq!(names(&device), [(9, b"b".to_vec())]);
    assert_eq!(device.account().available, available - 3);
}

#[test]
fn shrunk_grown_and_recreated_volumes_are_empty_where_they_are_new() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 6)).unwrap();
    (0..6).for_each(|lnum| change(&mut device, id, lnum, &data(lnum as u8, 512)));
    device.resize(id, 3).unwrap();
    device.resize(id, 6).unwrap();
    let mut device = attach(device.into_flash());
    assert_eq!(leb(&mut device, id, 2)[..512], data(2, 512));
    assert!(leb(&mut device, id, 4).iter().all(|&byte| byte == 0xff));
    device.remove(id).unwrap();
    device.create(&NewVolume::dynamic(b"w", 6)).unwrap();
    let mut device = attach(device.into_flash());
    (0..6).for_each(|lnum| assert!(leb(&mut device, id, lnum).iter().all(|&b| b == 0xff)));
}

#[test]
fn nothing_is_written_behind_the_end_of_a_volume_that_shrank() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 6)).unwrap();
    let mut volume = device.volume_mut(id).unwrap();
    volume.device_mut().resize(id, 3).unwrap();
    let operations = volume.device().flash().operations;
    let beyond = Err(flysch_api::flash::FlashError::OutOfRange);
    assert_eq!(volume.write(4, 0, &data(1, 512)), beyond);
    assert_eq!(volume.change(4, &data(1, 512)), beyond);
    assert_eq!((volume.map(4), volume.unmap(4)), (beyond, beyond));
    assert_eq!(volume.read(4, 0, &mut [0]).map(drop), beyond);
    let lebs = &mut volume.device_mut().lebs;
    let error = Err(UbiError::Flash(flysch_api::flash::FlashError::OutOfRange));
    assert_eq!(lebs.write_leb(id, 4, 0, &data(1, 512)), error);
    assert_eq!(lebs.change_leb(id, 4, &data(1, 512)), error);
    assert_eq!(volume.device().flash().operations, operations);
    volume.device_mut().remove(id).unwrap();
    assert_eq!(volume.write(0, 0, &data(1, 512)), beyond);
}

#[test]
fn erase_counters_stay_in_their_range() {
    let flash = Ram::nand(40);
    let options = DeviceOptions::default();
    let of = |counter| FormatOptions { erase_counter: Some(counter), ..FormatOptions::new(1) };
    let error = UbiDevice::format(flash.clone(), &of(0x8000_0000), &options).unwrap_err();
    assert!(matches!(error, UbiError::Invalid(_)), "{error}");
    let device = UbiDevice::format(flash, &of(0x7fff_ffff), &options).unwrap();
    let again = UbiDevice::format(device.into_flash(), &FormatOptions::new(2), &options).unwrap();
    assert!(again.erase_counters().all(|counter| counter == Some(0x7fff_ffff)));
}

#[test]
fn several_volumes_are_renamed_at_once() {
    let mut device = format(Ram::nand(60));
    for name in [b"a", b"b", b"c"] {
        device.create(&NewVolume::dynamic(name, 2)).unwrap();
    }
    device.rename(&[(0, b"b"), (1, b"a")]).unwrap();
    let now = [(0, b"b".to_vec()), (1, b"a".to_vec()), (2, b"c".to_vec())];
    assert_eq!(names(&device), now);
    assert!(matches!(device.rename(&[(0, b"x"), (1, b"x")]), Err(UbiError::NameTaken(_))));
    assert!(matches!(device.rename(&[(0, b"x"), (0, b"y")]), Err(UbiError::Invalid(_))));
    assert_eq!(names(&attach(device.flash().clone())), now, "nothing was done");
    // What is not renamed makes room.
    device.rename(&[(2, b"a")]).unwrap();
    let now = [(0, b"b".to_vec()), (2, b"a".to_vec())];
    assert_eq!(names(&device), now);
    assert_eq!(names(&attach(device.into_flash())), now);
}

#[test]
fn static_volumes_are_updated_and_checked() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::fixed(b"kernel", 4)).unwrap();
    let content = data(0x3c, 2 * device.leb_size() as usize + 777);
    let mut update = device.update(id, content.len() as u64).unwrap();
    for part in content.chunks(1000) {
        update.write(part).unwrap();
    }
    assert!(matches!(update.write(&[0]), Err(UbiError::Invalid(_))));
    update.finish().unwrap();
    let flash = device.into_flash();
    let image = crate::find_images(&flash, Some(4096))[0];
    let ubi = crate::Ubi::attach(flash.clone(), image, &crate::AttachOptions::default()).unwrap();
    let volume = ubi.volume(id).unwrap();
    assert_eq!(volume.info().used_bytes, Some(content.len() as u64));
    assert_eq!(volume.verify(), []);
    let mut all = vec![0; content.len()];
    let _ = flysch_api::flash::Flash::read(&volume, 0, &mut all).unwrap();
    assert_eq!(all, content);

    // Moving a block of it keeps size and checksum.
    let mut device = attach(flash);
    let peb = device.lebs.peb_of(id, 2).unwrap();
    device.flash_mut().flipping.insert(peb);
    leb(&mut device, id, 2);
    while device.work(10).unwrap() {}
    assert_ne!(device.lebs.peb_of(id, 2), Some(peb));
    let flash = device.into_flash();
    let ubi = crate::Ubi::attach(flash, image, &crate::AttachOptions::default()).unwrap();
    assert_eq!(ubi.volume(id).unwrap().verify(), []);
    assert_eq!(ubi.volume(id).unwrap().info().used_bytes, Some(content.len() as u64));
}

#[test]
fn a_leb_that_reads_badly_does_not_hide_those_behind_it() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 3)).unwrap();
    let size = device.leb_size() as usize;
    (0..3).for_each(|lnum| write(&mut device, id, lnum, 0, &data(lnum as u8, size)));
    let peb = device.lebs.peb_of(id, 1).unwrap();
    let mut flash = device.into_flash();
    let image = crate::find_images(&flash, Some(4096))[0];
    flash.unreadable.insert(peb);
    let ubi = crate::Ubi::attach(flash, image, &crate::AttachOptions::default()).unwrap();
    let volume = ubi.volume(id).unwrap();
    let mut found = vec![0; 3 * size - 10];
    let error = flysch_api::flash::Flash::read(&volume, 10, &mut found).unwrap_err();
    let offset = size as u64;
    assert_eq!(error, flysch_api::flash::FlashError::Uncorrectable { offset });
    let expected = [data(0, size), data(1, size), data(2, size)].concat();
    assert!(found == expected[10..]);
}

#[test]
fn an_update_that_was_not_finished_makes_the_volume_void() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    change(&mut device, id, 3, &data(1, 512));
    assert!(matches!(device.update(id, 1 << 30), Err(UbiError::NoSpace { .. })));
    let mut update = device.update(id, 5000).unwrap();
    update.write(&data(2, 4000)).unwrap();
    assert!(matches!(update.finish(), Err(UbiError::Invalid(_))));
    let mut device = attach(device.into_flash());
    assert!(matches!(device.volume_mut(id), Err(UbiError::UpdateUnfinished(_))));
    let mut update = device.update(id, 3600).unwrap();
    update.write(&data(2, 3600)).unwrap();
    update.finish().unwrap();
    let mut device = attach(device.into_flash());
    let whole = [leb(&mut device, id, 0), leb(&mut device, id, 1)].concat();
    assert_eq!(whole[..3600], data(2, 3600));
    assert!(leb(&mut device, id, 3).iter().all(|&byte| byte == 0xff));
    // Nothing is an update, too.
    device.update(id, 0).unwrap().finish().unwrap();
    assert!(leb(&mut device, id, 0).iter().all(|&byte| byte == 0xff));
}

#[test]
fn alignment_leaves_the_end_of_each_leb_unused() {
    let mut device = format(Ram::nand(40));
    let new = NewVolume { alignment: 1024, ..NewVolume::dynamic(b"v", 4) };
    let id = device.create(&new).unwrap();
    let info = device.info(id).unwrap();
    assert_eq!((device.leb_size(), info.leb_size), (3072, 3072));
    let new = NewVolume { alignment: 2048, name: b"w", ..new };
    let id = device.create(&new).unwrap();
    assert_eq!(device.info(id).unwrap().leb_size, 2048);
    change(&mut device, id, 1, &data(5, 2048));
    let mut device = attach(device.into_flash());
    assert_eq!(leb(&mut device, id, 1), data(5, 2048));
    let odd = NewVolume { alignment: 100, name: b"x", ..new };
    assert!(matches!(device.create(&odd), Err(UbiError::Invalid(_))));
}

/// Changes the records of a device's table behind its back.
fn edit(device: &mut UbiDevice<Ram>, change: impl Fn(&mut VolumeRecord)) {
    let mut records = device.lebs.volumes.table_records();
    records.values_mut().for_each(change);
    device.lebs.write_table(&records).unwrap();
}

#[test]
fn a_volume_flagged_so_grows_once() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    let available = device.account().available;
    edit(&mut device, |record| record.flags = VolumeFlags::AUTORESIZE);
    let mut device = attach(device.into_flash());
    let info = device.info(id).unwrap();
    assert_eq!((info.reserved_pebs, info.flags), (4 + available, VolumeFlags::default()));
    change(&mut device, id, 3 + available, &data(1, 512));
    let mut device = attach(device.into_flash());
    assert_eq!(device.account().available, 0);
    assert_eq!(leb(&mut device, id, 3 + available)[..512], data(1, 512));
}

#[test]
fn the_lost_copy_of_the_table_is_written_again() {
    for lost in 0..2 {
        let mut device = format(Ram::nand(40));
        device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
        let peb = device.lebs.peb_of(LAYOUT_VOLUME, lost).unwrap() as usize;
        let mut flash = device.into_flash();
        flash.bytes[peb * 4096..][..4096].fill(0xff);
        let device = attach(flash);
        assert_eq!(device.findings().len(), 1);
        let device = attach(device.into_flash());
        assert_eq!((device.findings(), names(&device).len()), (&[][..], 1));
    }
}

#[test]
fn what_linux_refuses_is_refused() {
    let blank = UbiDevice::attach(Ram::nand(40), &DeviceOptions::default()).unwrap_err();
    assert!(blank.to_string().contains("no erase block has a readable UBI header"));

    let mut device = format(Ram::nand(40));
    device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    let tables = [0, 1].map(|lnum| device.lebs.peb_of(LAYOUT_VOLUME, lnum).unwrap() as usize);
    change(&mut device, 0, 0, &data(1, 512));
    let good = device.into_flash();
    let attach = |flash: Ram| UbiDevice::attach(flash, &DeviceOptions::default());

    let mut flash = good.clone();
    tables.iter().for_each(|peb| flash.bytes[peb * 4096..][..4096].fill(0xff));
    let error = attach(flash).unwrap_err().to_string();
    assert!(error.contains("both copies of the volume table are lost"), "{error}");

    let mut flash = good.clone();
    let mut header = EcHeader::parse(&flash.bytes[39 * 4096..]).unwrap();
    header.image_sequence = 77;
    flash.bytes[39 * 4096..][..64].copy_from_slice(&header.emit());
    let error = attach(flash).unwrap_err().to_string();
    assert!(error.contains("1 erase block belongs to another image"), "{error}");

    // Damaged headers over data: some are kept, many are too many.
    let mut flash = good.clone();
    for peb in 20..23 {
        flash.bytes[peb * 4096 + 512..][..1000].fill(0x11);
    }
    let device = attach(flash.clone()).unwrap();
    assert_eq!(device.account().kept, 3);
    for peb in 23..28 {
        flash.bytes[peb * 4096 + 512..][..1000].fill(0x11);
    }
    let error = attach(flash.clone()).unwrap_err().to_string();
    assert!(error.contains("8 erase blocks have damaged headers over data"), "{error}");
    let erase = DeviceOptions { erase_corrupt: true, ..DeviceOptions::default() };
    let mut device = UbiDevice::attach(flash, &erase).unwrap();
    device.sync().unwrap();
    assert_eq!((device.account().kept, leb(&mut device, 0, 0)[..512].to_vec()), (0, data(1, 512)));

    let mut device = UbiDevice::attach(good, &DeviceOptions::default()).unwrap();
    edit(&mut device, |record| record.reserved_pebs = u32::MAX);
    let error = attach(device.into_flash()).unwrap_err();
    assert!(matches!(error, UbiError::NoSpace { .. }), "{error}");
}

/// Changes the identifier header of a block behind the device's back.
fn edit_header(flash: &mut Ram, peb: u32, change: impl Fn(&mut VidHeader)) {
    let at = peb as usize * 4096 + 512;
    let mut vid = VidHeader::parse(&flash.bytes[at..]).unwrap();
    change(&mut vid);
    flash.bytes[at..][..64].copy_from_slice(&vid.emit());
}

#[test]
fn a_table_that_is_not_certain_is_not_written() {
    let mut device = format(Ram::nand(40));
    for name in [b"a", b"b"] {
        device.create(&NewVolume::dynamic(name, 4)).unwrap();
    }
    let tables = [0, 1].map(|lnum| device.lebs.peb_of(LAYOUT_VOLUME, lnum).unwrap() as usize);
    let good = device.into_flash();
    let damaged = |bad: &[(usize, usize)], twin: Option<usize>| {
        let mut flash = good.clone();
        if let Some(lnum) = twin {
            let record = VolumeRecord::new(b"a", 4).unwrap().emit();
            flash.bytes[tables[lnum] * 4096 + 1024 + 172..][..172].copy_from_slice(&record);
        }
        for &(lnum, id) in bad {
            flash.bytes[tables[lnum] * 4096 + 1024 + id * 172 + 20] ^= 1;
        }
        UbiDevice::attach(flash, &DeviceOptions::default())
    };
    let expected = [(0, b"a".to_vec()), (1, b"b".to_vec())];
    // One copy is whole, or each record is whole in one and nothing contradicts it.
    for (bad, twin) in [(&[(0, 0)][..], None), (&[(0, 0), (1, 1)], None), (&[], Some(0))] {
        let device = damaged(bad, twin).unwrap();
        assert_eq!(names(&device), expected);
        let device = attach(device.into_flash());
        assert_eq!((device.findings(), &names(&device)[..]), (&[][..], &expected[..]));
    }
    for (bad, twin, reason) in [
        (&[(0, 0), (1, 0)][..], None, "are lost in both copies"),
        (&[(0, 0), (1, 0)], Some(1), "are lost in both copies"),
        (&[(0, 0), (1, 2)], Some(1), "contradict each other"),
        (&[(1, 0)], Some(0), "have the same name"),
        (&[(0, 1), (1, 2)], Some(1), "have the same name"),
    ] {
        let error = damaged(bad, twin).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn blocks_that_contradict_the_table_are_not_written_over() {
    for fastmap in [false, true] {
        let options = DeviceOptions { fastmap, ..DeviceOptions::default() };
        let mut device =
            UbiDevice::format(Ram::nand(100), &FormatOptions::new(1), &options).unwrap();
        let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
        write(&mut device, id, 0, 0, &data(1, 512));
        let peb = device.lebs.peb_of(id, 0).unwrap();
        device.close().unwrap();
        let good = device.into_flash();
        let edits: [fn(&mut VidHeader); 2] = [
            |vid| (vid.kind, vid.used_ebs, vid.data_size) = (VolumeKind::Static, 1, 4),
            |vid| vid.data_pad = 512,
        ];
        for change in edits {
            let mut flash = good.clone();
            edit_header(&mut flash, peb, change);
            let scanned = UbiDevice::attach(flash.clone(), &DeviceOptions::default());
            let error = scanned.unwrap_err().to_string();
            assert!(error.contains(&std::format!("block {peb} contradicts the volume table")));
            if fastmap {
                // Trusted until the LEB is used.
                let mut device = UbiDevice::attach(flash, &options).unwrap();
                assert!(device.attached_by_fastmap());
                let mut volume = device.volume_mut(id).unwrap();
                assert!(volume.read(0, 0, &mut [0; 4]).is_err());
                assert!(volume.write(1, 0, &data(1, 512)).is_err());
                assert_eq!(device.read_only(), Some(ReadOnly::Fastmap { block: peb }.into()));
            }
        }
    }
}

#[test]
fn sequence_numbers_never_start_again_at_0() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    change(&mut device, id, 0, &data(1, 512));
    let peb = device.lebs.peb_of(id, 0).unwrap();
    let good = device.into_flash();
    for sequence in [u64::MAX, u64::MAX - 1, 0xffff_ffff_ff00_0000] {
        let mut flash = good.clone();
        edit_header(&mut flash, peb, |vid| vid.sequence = sequence);
        let error = UbiDevice::attach(flash, &DeviceOptions::default()).unwrap_err().to_string();
        assert!(error.contains(&std::format!("sequence number {sequence:#x}")), "{error}");
    }
    let mut flash = good;
    edit_header(&mut flash, peb, |vid| vid.sequence = 0xffff_ffff_feff_fff0);
    let mut device = attach(flash);
    let error = (2..30).find_map(|tag| {
        let changed = device.volume_mut(id).unwrap().change(0, &data(tag, 512));
        changed.err().map(|error| (tag, error))
    });
    let (tag, error) = error.unwrap();
    let sequence = 0xffff_ffff_feff_ffff;
    assert_eq!(error, ReadOnly::SequenceEnd { sequence }.into());
    assert_eq!(device.read_only(), Some(error));
    // It can still be read.
    let flash = device.into_flash();
    let image = crate::find_images(&flash, Some(4096))[0];
    let ubi = crate::Ubi::attach(flash, image, &crate::AttachOptions::default()).unwrap();
    let mut found = [0; 512];
    let _ = Volume::read(&ubi.volume(id).unwrap(), 0, 0, &mut found).unwrap();
    assert_eq!(found[..], data(tag - 1, 512));
}

#[test]
fn shapes_that_can_not_be_written_are_refused() {
    let format = |geometry| {
        let new = FormatOptions::new(1);
        UbiDevice::format(Ram::new(geometry), &new, &DeviceOptions::default()).map(drop)
    };
    let nand = flysch_api::flash::FlashGeometry::nand(40 * 4096, 4096, 512, 512);
    assert_eq!(format(nand), Ok(()));
    let mlc = flysch_api::flash::FlashGeometry { kind: flysch_api::flash::Kind::MlcNand, ..nand };
    assert!(format(mlc).unwrap_err().to_string().contains("SLC mode"));
    let few = flysch_api::flash::FlashGeometry { size: 3 * 4096, ..nand };
    assert!(matches!(format(few), Err(UbiError::Shape(_))));
    // Both headers in one page that has no parts.
    let device = super::format(Ram::sub_paged(40));
    let mut flash = Ram::new(flysch_api::flash::FlashGeometry::nand(40 * 8192, 8192, 1024, 1024));
    flash.bytes = device.into_flash().bytes;
    let error = UbiDevice::attach(flash, &DeviceOptions::default()).unwrap_err();
    assert!(error.to_string().contains("can only be read"), "{error}");
}

#[test]
fn a_flash_of_bytes_is_written_in_the_units_it_is_told() {
    // An image file of a NAND chip: nobody knows its pages.
    let device = format(Ram::nand(40));
    let mut file = Ram::nor(40);
    file.bytes = device.into_flash().bytes;
    let options = DeviceOptions { write_size: Some(512), ..DeviceOptions::default() };
    let mut device = UbiDevice::attach(file, &options).unwrap();
    assert_eq!(device.write_size(), 512);
    let id = device.create(&NewVolume { ..NewVolume::dynamic(b"v", 4) }).unwrap();
    assert_eq!(device.info(id).unwrap().kind, VolumeKind::Dynamic);
    change(&mut device, id, 0, &data(1, 512));
    let mut nand = Ram::nand(40);
    nand.bytes = device.into_flash().bytes;
    assert_eq!(leb(&mut attach(nand), id, 0)[..512], data(1, 512));
}

/// Whatever the bytes are, the device either refuses or works.
#[test]
fn flipped_bits_anywhere_never_panic() {
    let mut device = format(Ram::nor(40));
    device.create(&NewVolume::dynamic(b"v", 8)).unwrap();
    device.create(&NewVolume::fixed(b"s", 4)).unwrap();
    (0..8).for_each(|lnum| change(&mut device, 0, lnum, &data(lnum as u8, 900)));
    let mut update = device.update(1, 9000).unwrap();
    update.write(&data(5, 9000)).unwrap();
    update.finish().unwrap();
    let good = device.into_flash();
    let mut random = SplitMix64::new(1);
    let mut attached = 0;
    for round in 0..600 {
        let mut flash = good.clone();
        flash.is_damaged = true;
        for _ in 0..=round % 12 {
            let (peb, at) = (random.below(40), random.below(700));
            flash.bytes[(peb * 4096 + at) as usize] ^= 1 << random.below(8);
        }
        let options = DeviceOptions { erase_corrupt: round % 2 == 0, ..DeviceOptions::default() };
        let Ok(mut device) = UbiDevice::attach(flash, &options) else { continue };
        attached += 1;
        let ids: Vec<u32> = device.volumes().map(|volume| volume.id).collect();
        for id in ids {
            if let Ok(mut volume) = device.volume_mut(id) {
                let _ = (volume.read(0, 0, &mut [0; 64]).map(drop), volume.unmap(1));
                let _ = (volume.change(2, &data(1, 64)), volume.write(3, 3000, &data(1, 64)));
            }
            let _ = device.update(id, 5000).and_then(|mut update| update.write(&data(1, 5000)));
        }
        let _ = (device.create(&NewVolume::dynamic(b"n", 3)), device.rename(&[(0, b"r")]));
        let _ = (device.resize(0, 2), device.remove(1), device.work(50), device.close());
    }
    assert!(attached > 100, "{attached}");
}

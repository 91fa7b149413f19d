use std::vec;

use flysch_api::flash::FlashError;
use flysch_api::volume::LebState;
use flysch_wire::ubi::VolumeKind;

use super::*;

fn flashes() -> Vec<Ram> {
    vec![Ram::nand(40), Ram::sub_paged(40), Ram::nor(40)]
}

#[test]
fn what_was_written_is_there_after_the_next_attach() {
    for flash in flashes() {
        let mut device = format(flash);
        let id = device.create(&NewVolume::dynamic(b"root", 8)).unwrap();
        let unit = device.write_size().max(64) as usize;
        write(&mut device, id, 3, 0, &data(1, unit));
        write(&mut device, id, 3, unit as u32, &data(2, unit));
        change(&mut device, id, 4, &data(3, unit));
        change(&mut device, id, 4, &data(4, 2 * unit));
        device.volume_mut(id).unwrap().map(5).unwrap();
        write(&mut device, id, 6, 0, &data(5, unit));
        device.volume_mut(id).unwrap().unmap(6).unwrap();
        device.volume_mut(id).unwrap().sync().unwrap();
        let mut device = attach(device.into_flash());
        assert_eq!(device.findings(), []);
        assert_eq!(device.find(b"root"), Some(id));
        let third = leb(&mut device, id, 3);
        assert_eq!(third[..2 * unit], [data(1, unit), data(2, unit)].concat());
        assert!(third[2 * unit..].iter().all(|&byte| byte == 0xff));
        assert_eq!(leb(&mut device, id, 4)[..2 * unit], data(4, 2 * unit));
        let volume = device.volume_mut(id).unwrap();
        assert!(matches!(volume.state(5), LebState::Mapped(_)));
        assert_eq!(volume.state(6), LebState::Unmapped);
        assert_eq!(volume.state(7), LebState::Unmapped);
    }
}

#[test]
fn wrong_ranges_are_refused_with_nothing_done() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"v", 2)).unwrap();
    let fixed = device.create(&NewVolume::fixed(b"s", 2)).unwrap();
    let before = device.flash().operations;
    let mut volume = device.volume_mut(id).unwrap();
    assert_eq!(volume.write(2, 0, &[0; 512]), Err(FlashError::OutOfRange));
    assert_eq!(volume.write(0, 0, &[0; 511]), Err(FlashError::Misaligned));
    assert_eq!(volume.write(0, 1, &[0; 512]), Err(FlashError::Misaligned));
    assert_eq!(volume.change(0, &[0; 4096]), Err(FlashError::OutOfRange));
    assert_eq!(volume.unmap(2), Err(FlashError::OutOfRange));
    let mut volume = device.volume_mut(fixed).unwrap();
    assert_eq!(volume.write(0, 0, &[0; 512]), Err(FlashError::WriteProtected));
    assert_eq!(device.flash().operations, before);
}

#[test]
fn a_full_device_can_be_rewritten_for_ever() {
    for flash in [Ram::nand(40), Ram::nor(12)] {
        let mut device = format(flash);
        let lebs = device.account().available;
        let id = device.create(&NewVolume::dynamic(b"full", lebs)).unwrap();
        for round in 0..5 {
            for lnum in 0..lebs {
                change(&mut device, id, lnum, &data(round + lnum as u8, 1024));
            }
        }
        let mut device = attach(device.into_flash());
        for lnum in 0..lebs {
            assert_eq!(leb(&mut device, id, lnum)[..1024], data(4 + lnum as u8, 1024));
        }
    }
}

#[test]
fn a_volume_keeps_its_device_for_a_file_system() {
    let mut device = format(Ram::nand(40));
    let id = device.create(&NewVolume::dynamic(b"root", 8)).unwrap();
    let mut owned = device.into_volume(id).unwrap();
    owned.write(0, 0, &data(9, 512)).unwrap();
    let mut device = owned.into_device();
    assert_eq!(leb(&mut device, id, 0)[..512], data(9, 512));
    assert_eq!(device.info(id).unwrap().kind, VolumeKind::Dynamic);
}

#[test]
fn factory_bad_blocks_are_left_alone() {
    let mut flash = Ram::nand(40);
    for block in [0, 7, 39] {
        flash.mark_factory_bad(block);
    }
    let device = format(flash);
    assert_eq!(device.account().bad, 3);
    assert_eq!(device.erase_counters().filter(Option::is_none).count(), 3);
    assert_eq!(device.flash().bad_blocks(), 3);
    assert_eq!(attach(device.into_flash()).account().bad, 3);
}

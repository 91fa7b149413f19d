//! Pages that were interrupted late, and read differently each time.

use std::cell::Cell;
use std::vec;

use flysch_api::finding::Severity;
use flysch_api::flash::FlashMut;
use flysch_api::volume::LebState;
use flysch_wire::ubi::{VidHeader, crc32};

use super::ram::Shaky;
use super::*;
use crate::{AttachOptions, Ubi, UbiImage};

const LEBS: u32 = 6;

/// A device whose LEB 0 holds `data(1, 1024)`, durably.
fn device() -> UbiDevice<Ram> {
    let mut device = format(Ram::nand(24));
    device.create(&NewVolume::dynamic(b"a", LEBS)).unwrap();
    write(&mut device, 0, 0, 0, &data(1, 1024));
    device.sync().unwrap();
    device
}

/// The position of page `page` of a LEB's data.
fn place(device: &mut UbiDevice<Ram>, lnum: u32, page: u64) -> u64 {
    let (offset, size) = (u64::from(device.offsets().data), u64::from(device.image().peb_size));
    match device.volume_mut(0).unwrap().state(lnum) {
        LebState::Mapped(Some(peb)) => u64::from(peb) * size + offset + page * 512,
        state => panic!("LEB {lnum} is {state:?}"),
    }
}

/// Power was lost in the last page of a change of LEB 0 to `data(2, 1536)`.
fn changed(is_good: fn(u32) -> bool) -> Ram {
    let mut device = device();
    change(&mut device, 0, 0, &data(2, 1536));
    let page = place(&mut device, 0, 2);
    let mut flash = device.into_flash();
    flash.shaky = Some(Shaky { start: page, looks: Cell::new(0), is_good });
    flash
}

fn assert_begins(device: &mut UbiDevice<Ram>, lnum: u32, bytes: &[u8], what: &str) {
    assert!(leb(device, 0, lnum).starts_with(bytes), "{what}: LEB {lnum}");
}

#[test]
fn a_copy_that_was_believed_stays_though_it_is_not_readable_again() {
    let mut device = attach(changed(|look| look == 0));
    assert_begins(&mut device, 0, &data(2, 1536), "attached");
    let mut device = attach(device.into_flash());
    assert_begins(&mut device, 0, &data(2, 1536), "attached again");
    device.sync().unwrap();
    let mut device = attach(device.into_flash());
    assert_begins(&mut device, 0, &data(2, 1536), "attached without the older copy");
}

#[test]
fn who_only_reads_reads_a_copy_once() {
    let flash = changed(|look| look == 0);
    let image = UbiImage { start: 0, peb_size: 4096, pebs: 24, image_sequence: 0x1234 };
    let ubi = Ubi::attach(&flash, image, &AttachOptions::default()).unwrap();
    let volume = ubi.volume(0).unwrap();
    for _ in 0..2 {
        let mut bytes = vec![0; 2048];
        let _ = volume.read(0, 0, &mut bytes).unwrap();
        assert_eq!(bytes[..1536], data(2, 1536));
        assert!(bytes[1536..].iter().all(|&byte| byte == 0xff));
    }
}

#[test]
fn a_copy_that_was_not_believed_never_is() {
    let mut device = attach(changed(|look| look > 0));
    assert_begins(&mut device, 0, &data(1, 1024), "attached");
    write(&mut device, 0, 0, 1024, &data(3, 512));
    let mut device = attach(device.into_flash());
    assert_begins(&mut device, 0, &[data(1, 1024), data(3, 512)].concat(), "attached again");
}

#[test]
fn what_was_written_behind_a_copy_is_not_lost() {
    let mut device = device();
    change(&mut device, 0, 0, &data(2, 512));
    write(&mut device, 0, 0, 512, &data(3, 512));
    let mut device = attach(device.into_flash());
    assert_begins(&mut device, 0, &[data(2, 512), data(3, 512)].concat(), "attached");
}

#[test]
fn an_empty_block_gets_a_firm_header_before_data() {
    let mut device = device();
    device.volume_mut(0).unwrap().map(3).unwrap();
    let header = place(&mut device, 3, 0) - 512;
    let mut flash = device.into_flash();
    flash.shaky = Some(Shaky { start: header, looks: Cell::new(0), is_good: |look| look == 0 });
    let mut device = attach(flash);
    write(&mut device, 0, 3, 0, &data(4, 512));
    let mut device = attach(device.into_flash());
    assert_begins(&mut device, 3, &data(4, 512), "attached again");
}

#[test]
fn a_header_that_was_not_readable_never_is() {
    let mut device = device();
    device.volume_mut(0).unwrap().unmap(0).unwrap();
    device.volume_mut(0).unwrap().map(0).unwrap();
    let header = place(&mut device, 0, 0) - 512;
    let mut flash = device.into_flash();
    flash.shaky = Some(Shaky { start: header, looks: Cell::new(0), is_good: |look| look > 0 });
    let mut device = attach(flash);
    assert_begins(&mut device, 0, &data(1, 1024), "come back");
    let mut device = attach(device.into_flash());
    assert_begins(&mut device, 0, &data(1, 1024), "attached again");
}

#[test]
fn a_header_of_an_update_without_its_content_is_nothing() {
    let blank = vec![0xff; 300];
    for (data_crc, mapped) in [(crc32(&blank), 1), (7, 0)] {
        for flash in [Ram::nand(40), Ram::nor(40)] {
            let mut device = format(flash);
            let id = device.create(&NewVolume::fixed(b"kernel", 2)).unwrap();
            let plain = device.lebs.volumes.header(id, 0).unwrap();
            let sequence = device.lebs.pebs.next_sequence().unwrap();
            let vid = VidHeader { data_size: 300, used_ebs: 1, data_crc, sequence, ..plain };
            let peb = device.lebs.allocate().unwrap();
            device.lebs.pebs.io.write_vid(peb, &vid).unwrap();
            let device = attach(device.into_flash());
            assert_eq!(device.info(id).unwrap().map.len(), mapped, "{data_crc}");
        }
    }
}

/// On NOR, a device whose LEB 0 holds `data(1, 1024)`, and the block that holds it.
fn on_nor() -> (Ram, u32) {
    let mut device = format(Ram::nor(24));
    device.create(&NewVolume::dynamic(b"a", LEBS)).unwrap();
    write(&mut device, 0, 0, 0, &data(1, 1024));
    let LebState::Mapped(Some(peb)) = device.volume_mut(0).unwrap().state(0) else { panic!() };
    (device.into_flash(), peb)
}

#[test]
fn a_block_whose_erase_was_announced_is_left_before_its_other_header_goes() {
    for cleared in [[0; 4], [0x51, 0x42, 0x41, 0x23]] {
        let (mut flash, peb) = on_nor();
        flash.program(u64::from(peb) * 4096, &cleared).unwrap();
        let mut device = attach(flash);
        assert_begins(&mut device, 0, &data(1, 1024), "come back");
        let offset = u64::from(device.offsets().vid_header);
        let mut flash = device.into_flash();
        // The power had gone while the second header was spoilt: it does not read well any more.
        flash.program(u64::from(peb) * 4096 + offset, &[0; 4]).unwrap();
        assert_begins(&mut attach(flash), 0, &data(1, 1024), "attached again");
    }
}

#[test]
fn an_announced_erase_is_no_damage() {
    for (first, second) in [([0; 4], [0x51, 0x42, 0x49, 0x21]), ([0x50, 0, 0, 0], [0; 4])] {
        let (mut flash, peb) = on_nor();
        let image = UbiImage { start: 0, peb_size: 4096, pebs: 24, image_sequence: 0x1234 };
        let read = |flash: &Ram| {
            let ubi = Ubi::attach(flash, image, &AttachOptions::default()).unwrap();
            ubi.findings().iter().map(|it| it.severity).collect::<std::vec::Vec<_>>()
        };
        let offset = u64::from(attach(flash.clone()).offsets().vid_header);
        flash.program(u64::from(peb) * 4096, &first).unwrap();
        flash.program(u64::from(peb) * 4096 + offset, &second).unwrap();
        assert_eq!(read(&flash), [Severity::Note; 2]);
        // With more of the first header wrong nothing was announced.
        flash.bytes[peb as usize * 4096 + 10] ^= 4;
        assert!(read(&flash).contains(&Severity::Lost));
    }
}

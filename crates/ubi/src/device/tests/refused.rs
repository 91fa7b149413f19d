//! Reads that the system refuses for a while say nothing about what is there.

use std::string::ToString;
use std::vec;

use flysch_api::finding::Severity;
use flysch_api::flash::{Flash, FlashError};
use flysch_api::volume::LebState;

use super::ram::EIO;
use super::*;
use crate::{AttachOptions, Ubi, UbiImage};

const REFUSED: FlashError = FlashError::Os(EIO);

/// A device whose LEB 0 was changed to `data(2, 1536)`; the older content is there as well.
fn changed() -> (UbiDevice<Ram>, u32) {
    let mut device = format(Ram::nand(24));
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    write(&mut device, id, 0, 0, &data(1, 1024));
    device.sync().unwrap();
    change(&mut device, id, 0, &data(2, 1536));
    let peb = device.lebs.peb_of(id, 0).unwrap();
    (device, peb)
}

/// The error that attaching ends with, and the flash.
fn refusal(mut flash: Ram, options: &DeviceOptions) -> (UbiError, Ram) {
    let error = UbiDevice::attach(&mut flash, options).err().unwrap();
    flash.refused = None;
    (error, flash)
}

#[test]
fn a_copy_that_cannot_be_read_now_is_not_taken_for_unfinished() {
    let (device, peb) = changed();
    let mut flash = device.into_flash();
    let start = u64::from(peb) * 4096;
    // Its content, and its headers.
    for part in [start + 1024..start + 4096, start..start + 1024] {
        flash.refused = Some(part);
        let (error, given) = refusal(flash, &DeviceOptions::default());
        assert!(matches!(error, UbiError::Refused(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&REFUSED.to_string()), "{text}");
        assert!(text.contains(&std::format!("erase block {peb} ")), "{text}");
        flash = given;
    }
    flash.refused = Some(start + 1024..start + 4096);
    let image = UbiImage { start: 0, peb_size: 4096, pebs: 24, image_sequence: 0 };
    let ubi = Ubi::attach(&flash, image, &AttachOptions::default()).unwrap();
    assert!(ubi.findings().iter().any(|it| it.severity == Severity::Lost));
    let read = flysch_api::volume::Volume::read(&ubi.volume(0).unwrap(), 0, 0, &mut [0; 512]);
    assert_eq!(read, Err(REFUSED), "older content does not show");

    flash.refused = None;
    let mut device = attach(flash);
    assert_eq!(leb(&mut device, 0, 0)[..1536], data(2, 1536));
}

#[test]
fn nothing_that_can_be_read_is_no_flash_without_headers() {
    let (device, _) = changed();
    let mut flash = device.into_flash();
    flash.refused = Some(0..flash.geometry().size);
    let (error, flash) = refusal(flash, &DeviceOptions::default());
    assert_eq!(error, UbiError::Attach(crate::AttachError::Flash(REFUSED)));
    attach(flash);
}

#[test]
fn a_block_is_not_marked_bad_because_its_test_cannot_be_read() {
    let (mut device, peb) = changed();
    device.flash_mut().weak.insert(peb);
    write(&mut device, 0, 0, 1536, &data(3, 512));
    assert_eq!(device.statistics().recovered_writes, 1);
    device.flash_mut().weak.clear();
    let start = u64::from(peb) * 4096;
    device.flash_mut().refused = Some(start..start + 4096);
    assert_eq!(device.sync(), Err(UbiError::ReadOnly(REFUSED)));
    let mut flash = device.into_flash();
    assert_eq!(flash.bad_blocks(), 0);
    flash.refused = None;
    let mut device = attach(flash);
    assert_eq!(leb(&mut device, 0, 0)[..2048], [data(2, 1536), data(3, 512)].concat());
}

#[test]
fn a_mapped_block_that_cannot_be_examined_now_is_neither_empty_nor_damaged() {
    let options = DeviceOptions { fastmap: true, ..DeviceOptions::default() };
    let mut device = UbiDevice::format(Ram::nand(100), &FormatOptions::new(7), &options).unwrap();
    let id = device.create(&NewVolume::dynamic(b"v", 4)).unwrap();
    change(&mut device, id, 0, &data(1, 1536));
    let peb = device.lebs.peb_of(id, 0).unwrap();
    let mut device = UbiDevice::attach(device.detach().unwrap(), &options).unwrap();
    assert!(device.attached_by_fastmap());
    let start = u64::from(peb) * 4096;
    device.flash_mut().refused = Some(start..start + 4096);
    let mut volume = device.volume_mut(id).unwrap();
    assert_eq!(volume.read(0, 0, &mut vec![0; 1536]), Err(REFUSED));
    assert_eq!(volume.state(0), LebState::Mapped(Some(peb)));
    assert_eq!(volume.write(0, 1536, &data(2, 512)), Err(REFUSED));
    assert_eq!(volume.map(0), Err(REFUSED));
    device.flash_mut().refused = None;
    write(&mut device, id, 0, 1536, &data(2, 512));
    assert_eq!(leb(&mut device, id, 0)[..2048], [data(1, 1536), data(2, 512)].concat());
}

//! A device that may be overwritten: erased, programmed, read back, a block marked bad.
//!
//! `FLYSCH_MTD` names the device; without it nothing is done. The lab runs this in its guest.

use std::path::PathBuf;

use flysch_api::flash::{Flash, FlashError, FlashMut, OobMode};
use flysch_linux::{Access, MtdDevice, OpenError};
use flysch_random::XorShift64;

fn path() -> Option<PathBuf> {
    let path = std::env::var_os("FLYSCH_MTD").map(PathBuf::from);
    if path.is_none() {
        println!("skipped: FLYSCH_MTD names no device");
    }
    path
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = XorShift64::from_state(seed | 1);
    (0..len).map(|_| random.bits() as u8).collect()
}

/// Erases `block`, programs all of it page by page, reads it back in several ways.
fn write_block(device: &mut MtdDevice, block: u32) {
    let geometry = *device.geometry();
    let start = geometry.block_start(block);
    let size = geometry.erase_size as usize;
    device.erase(block).unwrap();
    let mut back = vec![0; size];
    let _ = device.read(start, &mut back).unwrap();
    assert!(back.iter().all(|&byte| byte == 0xFF), "block {block} is erased");
    let data = pattern(size, u64::from(block));
    let step = geometry.write_size.max(256) as usize;
    for (at, page) in (start..).step_by(step).zip(data.chunks(step)) {
        device.program(at, page).unwrap();
    }
    let _ = device.read(start, &mut back).unwrap();
    assert_eq!(back, data);
    // At odd places, beyond ends of pages.
    let mut odd = vec![0; 5000];
    let _ = device.read(start + 77, &mut odd).unwrap();
    assert_eq!(odd, data[77..5077]);
}

fn write_oob(device: &mut MtdDevice, block: u32) {
    let geometry = *device.geometry();
    device.erase(block).unwrap();
    let start = geometry.block_start(block);
    let data = b"\x85\x19\x03\x20\x08\x00\x00\x00";
    device.program_oob(start, OobMode::Auto, data).unwrap();
    let mut back = [0; 8];
    let _ = device.read_oob(start, OobMode::Auto, &mut back).unwrap();
    assert_eq!(&back, data);
    let mut all = vec![0; geometry.oob_size as usize];
    let _ = device.read_oob(start, OobMode::Place, &mut all).unwrap();
    assert!(all.windows(8).any(|window| window == data), "{all:02x?}");
    let too_long = vec![0; geometry.oob_size as usize + 1];
    assert_eq!(device.program_oob(start, OobMode::Place, &too_long), Err(FlashError::OutOfRange));
    assert_eq!(device.program_oob(start + 1, OobMode::Auto, data), Err(FlashError::Misaligned));
}

#[test]
fn a_device_is_written_and_read_back() {
    let Some(path) = path() else { return };
    let mut device = MtdDevice::open(&path, Access::Write).unwrap();
    let geometry = *device.geometry();
    println!("{:?}", device.facts());
    let good: Vec<u32> =
        (0..geometry.blocks()).filter(|&block| !device.is_bad(block).unwrap()).collect();
    for &block in &good[..3] {
        write_block(&mut device, block);
    }
    assert_eq!(device.erase(geometry.blocks()), Err(FlashError::OutOfRange));
    assert_eq!(device.program(geometry.size, &[0; 4096]), Err(FlashError::OutOfRange));
    let mut none = [];
    assert!(device.read(geometry.size, &mut none).is_ok());
    if geometry.kind.is_nand() {
        assert_eq!(device.program(1, &[0; 2048]), Err(FlashError::Misaligned));
        write_oob(&mut device, good[3]);
        device.mark_bad(good[4]).unwrap();
        assert_eq!(device.is_bad(good[4]), Ok(true));
        assert_eq!(device.erase(good[4]), Err(FlashError::BadBlock { block: good[4] }));
        assert!(device.counters().unwrap().bad_blocks > 0);
    } else {
        assert_eq!(device.mark_bad(0), Err(FlashError::Unsupported));
        let mut oob = [0];
        assert_eq!(device.read_oob(0, OobMode::Place, &mut oob), Err(FlashError::Unsupported));
    }
    let mut reader = MtdDevice::open(&path, Access::Read).unwrap();
    assert_eq!(reader.erase(good[0]), Err(FlashError::WriteProtected));
    assert_eq!(reader.program(0, &[]), Err(FlashError::WriteProtected));
}

#[test]
fn what_is_no_device_is_refused() {
    let open = |path: &str| MtdDevice::open(path.as_ref(), Access::Read);
    assert!(matches!(open("/dev/null"), Err(OpenError::NotMtd)));
    assert!(matches!(open("/nowhere"), Err(OpenError::Os(_))));
}

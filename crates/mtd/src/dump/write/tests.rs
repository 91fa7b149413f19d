use std::vec;
use std::vec::Vec;

use flysch_api::flash::{Corrected, Kind, Pages};

use super::*;
use crate::dump::tests::{BLOCK, dump, formats, noise};
use crate::{Dump, Storage, StorageMut};

fn erased(which: usize, blocks: usize) -> Dump<Vec<u8>> {
    let format = &formats()[which];
    let stride = format.page_size as usize + format.oob.size;
    let pages = blocks * BLOCK as usize / format.page_size as usize;
    Dump::new(vec![0xFF; pages * stride], format.clone(), BLOCK).unwrap()
}

#[test]
fn what_is_programmed_is_what_a_driver_would_have_programmed() {
    for which in 0..7 {
        let data = noise(7, 2 * BLOCK as usize);
        let mut flash = erased(which, 2);
        // Page by page and several pages at once.
        let page = flash.geometry().write_size as usize;
        flash.program(0, &data[..page]).unwrap();
        flash.program(page as u64, &data[page..]).unwrap();
        assert_eq!(*flash.pages().storage(), dump(flash.format(), &data), "format {which}");
        let mut back = vec![0; data.len()];
        assert_eq!(flash.read(0, &mut back), Ok(Corrected::NONE));
        assert_eq!(back, data);
        flash.erase(0).unwrap();
        assert!(flash.read(0, &mut back).is_ok());
        assert!(back[..BLOCK as usize].iter().all(|&byte| byte == 0xFF));
        assert_eq!(back[BLOCK as usize..], data[BLOCK as usize..]);
    }
}

#[test]
fn sub_pages_are_programmed_alone_and_make_the_same_page() {
    for (which, sub_page) in [(2, 512), (3, 512), (4, 512), (5, 1024), (1, 512), (6, 2048)] {
        let mut flash = erased(which, 2);
        assert_eq!(flash.geometry().sub_page_size, sub_page, "format {which}");
        let data = noise(3, BLOCK as usize);
        for (index, part) in data.chunks(sub_page as usize).enumerate() {
            flash.program(index as u64 * u64::from(sub_page), part).unwrap();
        }
        let whole = dump(flash.format(), &data);
        assert_eq!(flash.pages().storage()[..whole.len()], whole, "format {which}");
        assert_eq!(flash.program(1, &[0]), Err(FlashError::Misaligned));
    }
}

#[test]
fn out_of_band_bytes_are_programmed_beside_data_and_codes() {
    let mut flash = erased(2, 2);
    let clean_marker = [0x85, 0x19, 0x03, 0x20, 8, 0, 0, 0];
    flash.program_oob(0, OobMode::Auto, &clean_marker).unwrap();
    flash.program(0, &[0x5A; 2048]).unwrap();
    let mut oob = [0; 64];
    assert!(flash.read_oob(0, OobMode::Place, &mut oob).is_ok());
    assert_eq!((oob[0], &oob[2..10]), (0xFF, &clean_marker[..]), "free bytes begin at 2");
    let mut page = [0; 2048];
    assert_eq!(flash.read(0, &mut page), Ok(Corrected::NONE));
    assert_eq!(page, [0x5A; 2048]);
    assert_eq!(flash.program_oob(0, OobMode::Auto, &[0; 39]), Err(FlashError::OutOfRange));
    assert_eq!(flash.program_oob(512, OobMode::Auto, &[0]), Err(FlashError::Misaligned));
    flash.program_oob(2048, OobMode::Place, &[0]).unwrap();
    assert_eq!(flash.is_bad(0), Ok(true), "the marker of the second page");
}

#[test]
fn a_bad_block_is_marked_and_refused() {
    let mut flash = erased(4, 6);
    flash.program(u64::from(BLOCK), &[1; 2048]).unwrap();
    flash.mark_bad(1).unwrap();
    flash.mark_bad(1).unwrap();
    assert_eq!((flash.is_bad(0), flash.is_bad(1)), (Ok(false), Ok(true)));
    assert_eq!(flash.erase(1), Err(FlashError::BadBlock { block: 1 }));
    assert_eq!(flash.mark_bad(6), Err(FlashError::OutOfRange));
    let again = Dump::new(flash.pages().storage().clone(), flash.format().clone(), BLOCK).unwrap();
    assert_eq!(again.is_bad(1), Ok(true));
}

#[test]
fn a_kept_table_grows_with_the_bad_blocks() {
    for which in [2, 4, 5] {
        let mut flash = erased(which, 40);
        flash.mark_bad(3).unwrap();
        flash.keep_table().unwrap();
        flash.mark_bad(17).unwrap();
        let reopened = |flash: &Dump<Vec<u8>>| {
            let bytes = flash.pages().storage().clone();
            Dump::new(bytes, flash.format().clone(), BLOCK).unwrap()
        };
        let again = reopened(&flash);
        let table = again.bad_block_table().unwrap();
        assert_eq!((table.version, table.state(3)), (2, BlockState::Factory));
        assert_eq!(table.state(17), BlockState::Worn);
        let bad: Vec<u32> = (0..40).filter(|&block| again.is_bad(block).unwrap()).collect();
        assert_eq!(bad, [3, 17, 36, 37, 38, 39]);
        // Without the table, and without its mirror, the other one serves.
        for lost in [38, 39] {
            let mut damaged = flash.clone();
            damaged.pages_mut().erase_pages(lost).unwrap();
            assert_eq!(reopened(&damaged).is_bad(17), Ok(true), "without block {lost}");
            damaged.mark_bad(5).unwrap();
            assert_eq!(reopened(&damaged).bad_block_table().unwrap().version, 3);
        }
    }
}

/// A chip whose operations start to fail at the `left`-th.
#[derive(Clone, Debug)]
struct Failing {
    bytes: Vec<u8>,
    left: u32,
}

impl Storage for Failing {
    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
        self.bytes.read_at(offset, buffer)
    }
}

impl StorageMut for Failing {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FlashError> {
        if self.left == 0 {
            // Half of it is done.
            self.bytes.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(FlashError::PowerLost);
        }
        self.left -= 1;
        self.bytes.write_at(offset, bytes)
    }
}

#[test]
fn a_power_cut_while_a_table_is_written_leaves_the_other() {
    let mut flash = erased(4, 40);
    flash.mark_bad(3).unwrap();
    flash.keep_table().unwrap();
    let mut cuts = 0;
    loop {
        let bytes = flash.pages().storage().clone();
        let chip = Failing { bytes, left: cuts };
        let mut cut = Dump::new(chip, flash.format().clone(), BLOCK).unwrap();
        let done = cut.mark_bad(17);
        let bytes = cut.into_pages().storage().bytes.clone();
        let again = Dump::new(bytes, flash.format().clone(), BLOCK).unwrap();
        assert!(again.bad_block_table().is_some(), "cut {cuts}");
        assert_eq!(again.is_bad(3), Ok(true), "cut {cuts}");
        assert_eq!(again.is_bad(4), Ok(false), "cut {cuts}");
        if done.is_ok() {
            assert_eq!(again.is_bad(17), Ok(true));
            break;
        }
        assert_eq!(done, Err(FlashError::PowerLost));
        cuts += 1;
    }
    assert_eq!(cuts, 6, "erase, marker, and an erase and a page for each copy");
}

#[test]
fn over_a_chip_the_markers_are_read_once() {
    let mut flash = erased(4, 8);
    flash.mark_bad(2).unwrap();
    let (format, pages) = (flash.format().clone(), flash.into_pages());
    let mut nand = Nand::over(&pages, format, Kind::MlcNand, BLOCK).unwrap();
    assert_eq!(nand.geometry().sub_page_size, 2048, "no sub-pages on MLC");
    assert_eq!(nand.is_bad(2), Ok(true));
    assert!(!nand.bad_block_table().unwrap().is_kept());
    assert_eq!(nand.pages_mut().pages(), 32);
}

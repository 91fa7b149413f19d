//! How often blocks are read to learn their layout.

use core::cell::Cell;

use super::*;

/// Counts the reads that begin at the start of a block.
#[derive(Debug)]
struct Counting {
    memory: Memory,
    starts: Cell<u32>,
}

impl Flash for Counting {
    fn geometry(&self) -> &FlashGeometry {
        self.memory.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, flash::FlashError> {
        let is_start = offset.is_multiple_of(PEB_SIZE.into());
        self.starts.set(self.starts.get() + u32::from(is_start));
        self.memory.read(offset, buffer)
    }
}

const PEBS: u32 = 60;

/// All blocks are free except one with a LEB; the first `strangers` have other headers.
fn memory(strangers: u32) -> Memory {
    let mut memory = Memory::erased(PEBS);
    (0..PEBS).for_each(|peb| memory.free(peb));
    memory.leb(PEBS - 1, dynamic(0, 3, 5), b"content");
    for peb in 0..strangers {
        let header = EcHeader {
            erase_counter: 1,
            vid_header_offset: 512,
            data_offset: 1024,
            image_sequence: 9,
        };
        memory.put((peb * PEB_SIZE) as usize, &header.emit());
    }
    memory
}

fn attach(strangers: u32) -> (Ubi<Counting>, u32) {
    let memory = memory(strangers);
    let image = UbiImage { start: 0, peb_size: PEB_SIZE, pebs: PEBS, image_sequence: 0 };
    let flash = Counting { memory, starts: Cell::new(0) };
    let ubi = Ubi::attach(flash, image, &AttachOptions::default()).unwrap();
    let starts = ubi.flash().starts.get();
    (ubi, starts)
}

#[test]
fn each_block_is_read_once_when_the_first_ones_are_right() {
    let (ubi, starts) = attach(0);
    assert_eq!(ubi.offsets(), Offsets { vid_header: 64, data: 128 });
    assert_eq!(starts, 16 + PEBS, "some to learn where headers are, each block once");
}

#[test]
fn the_first_blocks_are_overruled_by_all_others() {
    let (ubi, _) = attach(20);
    assert_eq!(ubi.offsets(), Offsets { vid_header: 64, data: 128 });
    assert_eq!(ubi.image().image_sequence, 7);
    let contents: Vec<Content> = ubi.blocks().iter().map(|block| block.content).collect();
    assert!(contents[..20].iter().all(|content| *content == Content::Foreign));
    assert!(contents[20..59].iter().all(|content| *content == Content::Free));
    assert_eq!(contents[59], Content::Used { volume: 0, lnum: 3 });
}

//! Whole UBIFS images: opened, checked, walked, read.
//!
//! The input is pieces of an erased image: offset (4 bytes), length (2 bytes), bytes. The checksums
//! of nodes are corrected afterwards, so that their fields are reached.
#![no_main]

use std::ops::ControlFlow;

use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::{FileSystem, Inode};
use flysch_mtd::FlashImage;
use flysch_ubifs::{FlatImage, IndexUse, OpenOptions, Ubifs};
use flysch_wire::ubifs::crc32;
use libfuzzer_sys::fuzz_target;

const LEB_SIZE: usize = 15360;
const LEBS: usize = 20;

fuzz_target!(|input: &[u8]| {
    let mut image = assemble(input);
    fix_checksums(&mut image);
    let flash = FlashImage::new(image, FlashGeometry::nor(0, LEB_SIZE as u32));
    for index in [IndexUse::Verify, IndexUse::Trust, IndexUse::Rebuild] {
        let volume = FlatImage::new(&flash, LEB_SIZE as u32, LEBS as u32);
        let Ok(fs) = Ubifs::open(volume, &OpenOptions { index, keys: None }) else { continue };
        let _ = (fs.check(), fs.statistics(), fs.unreachable());
        let mut budget = 500;
        walk(&fs, Inode(1), &mut budget);
    }
});

fn assemble(mut input: &[u8]) -> Vec<u8> {
    let mut image = vec![0xff; LEB_SIZE * LEBS];
    while let Some((head, rest)) = input.split_first_chunk::<6>() {
        let at = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize % image.len();
        let length = usize::from(u16::from_le_bytes([head[4], head[5]])).min(rest.len());
        let room = length.min(image.len() - at);
        image[at..at + room].copy_from_slice(&rest[..room]);
        input = &rest[length..];
    }
    image
}

fn fix_checksums(image: &mut [u8]) {
    for at in (0..image.len() - 24).step_by(8) {
        if image[at..].starts_with(&0x0610_1831_u32.to_le_bytes()) {
            let length = [image[at + 16], image[at + 17], image[at + 18], image[at + 19]];
            let end = at.saturating_add(u32::from_le_bytes(length) as usize);
            if end >= at + 24 && end <= image.len() {
                let crc = crc32(&image[at + 8..end]);
                image[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
            }
        }
    }
}

fn walk(fs: &dyn FileSystem, inode: Inode, budget: &mut u32) {
    if *budget == 0 {
        return;
    }
    *budget -= 1;
    let mut children = Vec::new();
    let _ = fs.list(inode, 0, &mut |entry| {
        assert!(!entry.name.is_empty() && entry.name.len() <= 255);
        assert!(!entry.name.contains(&b'/') && !entry.name.contains(&0));
        children.push((entry.name.to_vec(), entry.inode));
        ControlFlow::Continue(())
    });
    let mut buffer = vec![0; 20_000];
    for offset in [0, 4000, 1 << 40] {
        let _ = fs.read(inode, offset, &mut buffer);
        if let Ok(Some(range)) = fs.next_data(inode, offset) {
            assert!(range.start >= offset && range.start < range.end);
        }
    }
    let mut names = Vec::new();
    let _ = fs.list_xattrs(inode, &mut |name| names.push(name.to_vec()));
    for name in names {
        let _ = fs.read_xattr(inode, &name, &mut buffer);
    }
    for (name, child) in children {
        let _ = fs.lookup(inode, &name);
        walk(fs, child, budget);
    }
}

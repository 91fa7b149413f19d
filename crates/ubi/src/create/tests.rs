use std::string::ToString;
use std::vec;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry};
use flysch_api::volume;

use super::*;
use crate::{AttachOptions, Ubi, find_images};

/// An image in memory.
#[derive(Clone)]
struct Memory {
    bytes: Vec<u8>,
    geometry: FlashGeometry,
}

impl Flash for Memory {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let from = self.bytes.get(address as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(FlashError::OutOfRange)?);
        Ok(Corrected::NONE)
    }
}

const NAND: ImageOptions = ImageOptions {
    peb_size: 128 << 10,
    min_io_size: 2048,
    sub_page_size: None,
    vid_header_offset: None,
    erase_counter: 3,
    image_sequence: 12_345,
};

fn volume(id: u32, name: &str, size: u64) -> VolumePlan {
    VolumePlan {
        id,
        name: name.into(),
        kind: VolumeKind::Dynamic,
        size,
        image_size: size,
        alignment: 1,
        flags: VolumeFlags::default(),
    }
}

/// All blocks; each volume's image is filled with its id and the number of the LEB.
fn image(maker: &Maker) -> Vec<u8> {
    let mut block = vec![];
    let mut image = vec![];
    for lnum in 0..2 {
        maker.layout_block(lnum, &mut block);
        image.extend_from_slice(&block);
    }
    for (index, planned) in maker.volumes.iter().enumerate() {
        let mut left = planned.volume.image_size;
        for lnum in 0.. {
            let length = left.min(maker.usable(index).into()) as usize;
            if length == 0 {
                break;
            }
            maker.block(index, lnum, &vec![lnum as u8; length], &mut block);
            image.extend_from_slice(&block);
            left -= length as u64;
        }
    }
    image
}

#[test]
fn offsets_are_those_of_ubinize() {
    let lay = |peb_size, min_io_size, sub_page_size| {
        let options = ImageOptions { peb_size, min_io_size, sub_page_size, ..NAND };
        let offsets = options.offsets().unwrap();
        (offsets.vid_header, offsets.data, options.leb_size().unwrap())
    };
    assert_eq!(lay(128 << 10, 2048, Some(512)), (512, 2048, 129_024));
    assert_eq!(lay(128 << 10, 2048, None), (2048, 4096, 126_976));
    assert_eq!(lay(64 << 10, 1, None), (64, 128, 65_408));
    let given = ImageOptions { vid_header_offset: Some(1024), ..NAND };
    assert_eq!(given.offsets(), Ok(Offsets { vid_header: 1024, data: 2048 }));
    for bad in [
        ImageOptions { min_io_size: 1000, ..NAND },
        ImageOptions { sub_page_size: Some(4096), ..NAND },
        ImageOptions { peb_size: 131_073, ..NAND },
        ImageOptions { vid_header_offset: Some(32), ..NAND },
        ImageOptions { vid_header_offset: Some(131_008), ..NAND },
        ImageOptions { erase_counter: 1 << 31, ..NAND },
    ] {
        assert!(Maker::new(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn what_is_made_attaches() {
    let mut maker = Maker::new(NAND).unwrap();
    let kind = VolumeKind::Static;
    maker.add(volume(5, "data", 300_000)).unwrap();
    maker.add(VolumePlan { kind, ..volume(0, "kernel", 200_000) }).unwrap();
    maker.add(VolumePlan { size: 1 << 20, image_size: 0, ..volume(1, "empty", 0) }).unwrap();
    maker.add(VolumePlan { alignment: 100_000, ..volume(2, "aligned", 250_000) }).unwrap();
    let bytes = image(&maker);
    assert_eq!(bytes.len() as u64, maker.blocks() * u64::from(NAND.peb_size));
    let geometry = FlashGeometry::nor(bytes.len() as u64, NAND.peb_size);
    let flash = Memory { bytes, geometry };
    let found = find_images(&flash, None);
    let ubi = Ubi::attach(flash, found[0], &AttachOptions::default()).unwrap();
    assert!(ubi.findings().is_empty(), "{:?}", ubi.findings());
    let volumes = ubi.volumes();
    let names: Vec<_> = volumes.iter().map(|it| (it.id, it.name.clone(), it.kind)).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    for (id, size) in [(5, 300_000_u64), (0, 200_000), (2, 250_000)] {
        let volume = ubi.volume(id).unwrap();
        let geometry = volume::Volume::geometry(&volume);
        let lebs = size.div_ceil(geometry.leb_size.into()) as u32;
        assert_eq!(geometry.lebs, lebs, "volume {id}");
        let mut last = [0];
        let _ = volume::Volume::read(&volume, lebs - 1, 0, &mut last).unwrap();
        assert_eq!(last, [lebs as u8 - 1]);
    }
}

#[test]
fn wrong_volumes_are_refused() {
    let mut maker = Maker::new(NAND).unwrap();
    let autoresize = VolumeFlags::AUTORESIZE;
    maker.add(VolumePlan { flags: autoresize, ..volume(0, "first", 1000) }).unwrap();
    let usual = volume(1, "second", 1000);
    let bad = [
        VolumePlan { id: 0, ..usual.clone() },
        VolumePlan { id: 128, ..usual.clone() },
        VolumePlan { name: "first".into(), ..usual.clone() },
        VolumePlan { name: "x".repeat(128), ..usual.clone() },
        VolumePlan { image_size: 1001, ..usual.clone() },
        VolumePlan { size: 0, image_size: 0, ..usual.clone() },
        VolumePlan { size: u64::MAX, ..usual.clone() },
        VolumePlan { alignment: 0, ..usual.clone() },
        VolumePlan { alignment: 200_000, ..usual.clone() },
        VolumePlan { flags: autoresize, ..usual.clone() },
        VolumePlan { flags: VolumeFlags::SKIP_CRC_CHECK, ..usual.clone() },
        VolumePlan { kind: VolumeKind::Static, image_size: 0, ..usual.clone() },
    ];
    for volume in bad {
        assert!(maker.add(volume.clone()).is_err(), "{volume:?}");
    }
    assert_eq!(maker.volumes.len(), 1);
}

#[test]
fn chips_have_their_reserve() {
    assert_eq!(lebs_on_chip(1024), 1000);
    assert_eq!(lebs_on_chip(1000), 1000 - 4 - 20);
    assert_eq!(lebs_on_chip(3), 0);
    let mut maker = Maker::new(NAND).unwrap();
    maker.add(VolumePlan { size: 126_976 * 1000, ..volume(0, "root", 1) }).unwrap();
    assert_eq!(maker.check_chip(1024), Ok(()));
    let sentence = maker.check_chip(1023).unwrap_err().to_string();
    assert!(sentence.contains("1000") && sentence.contains("999"), "{sentence}");
}

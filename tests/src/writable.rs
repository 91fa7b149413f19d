//! Fresh, writable file systems on flash in memory.

use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::Timestamp;
use flysch_jffs2::{Jffs2Mut, WriteOptions};
use flysch_mtd::FlashImage;
use flysch_ubi::{DeviceOptions, DeviceVolume, FormatOptions, NewVolume, UbiDevice};
use flysch_ubifs::UbifsMut;
use flysch_ubifs::create::{CreateOptions, NewInode, format};

/// NAND with pages of 2 KiB and blocks of 128 KiB.
pub type Ram = FlashImage<Vec<u8>>;
/// A volume of a device that exists only for it.
pub type RamVolume = DeviceVolume<UbiDevice<Ram>, Ram>;

/// The time at which file systems are made here.
pub const START: Timestamp = Timestamp { seconds: 1_600_000_000, nanoseconds: 0 };

/// Erased NAND of this many blocks; programming fails where it is not erased.
pub fn nand(blocks: u32) -> Ram {
    let geometry = FlashGeometry::nand(0, 128 << 10, 2048, 512);
    FlashImage::new(vec![0xFF; blocks as usize * (128 << 10)], geometry).strict()
}

/// An empty UBIFS on a UBI device of this many blocks.
pub fn ubifs(blocks: u32) -> UbifsMut<RamVolume> {
    let options = DeviceOptions::default();
    let mut device = UbiDevice::format(nand(blocks), &FormatOptions::new(7), &options).unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"exercise", lebs)).unwrap();
    let mut volume = device.into_volume(id).unwrap();
    let leb_size = volume.device().leb_size();
    let root = NewInode::directory(START);
    format(&mut volume, &CreateOptions::new(2048, leb_size, lebs), &root).unwrap();
    UbifsMut::open(volume).unwrap()
}

/// An empty JFFS2 on NOR of this many blocks.
pub fn jffs2(blocks: u32) -> Jffs2Mut<Ram> {
    let geometry = FlashGeometry::nor(0, 64 << 10);
    let flash = FlashImage::new(vec![0xFF; blocks as usize * (64 << 10)], geometry).strict();
    Jffs2Mut::mount(flash, &WriteOptions::default()).unwrap()
}

/// Closes a file system and opens it again, on the reattached device.
pub fn reopen(fs: UbifsMut<RamVolume>) -> UbifsMut<RamVolume> {
    let volume = fs.close().unwrap();
    let id = flysch_ubi::DeviceVolume::id(&volume);
    let flash = volume.into_device().detach().unwrap();
    let device = UbiDevice::attach(flash, &DeviceOptions::default()).unwrap();
    UbifsMut::open(device.into_volume(id).unwrap()).unwrap()
}

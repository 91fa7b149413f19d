//! UBIFS on a NAND chip: format, mount, write, unmount, mount again, read.
//!
//! ```console
//! $ cargo run -p flysch-examples --example ubifs_on_nand
//! ```
//!
//! The chip is a model. Your chip is a type that implements
//! [`FlashMut`](flysch_api::flash::FlashMut); everything above stays as it is here.

use std::error::Error;

use flysch_api::vfs::{
    DeviceNumber, FileKind, FileSystem, FileSystemExt, FileSystemMut, FileSystemMutExt, NewFile,
    Timestamp,
};
use flysch_models::nand::{Config, NandChip, Profile};
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, UbiDevice};
use flysch_ubifs::UbifsMut;
use flysch_ubifs::create::{CreateOptions, NewInode, format};

/// The file system has no clock: the caller of each change passes the time.
const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

const FILE: NewFile<'static> = NewFile {
    kind: FileKind::Regular,
    permissions: 0o644,
    owner: 0,
    group: 0,
    device: DeviceNumber { major: 0, minor: 0 },
    target: b"",
};

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    // A chip that corrects its own pages, as most behind a controller do, with two factory bad
    // blocks.
    let profile = Profile::named("K9F1G08U0B").expect("a chip that is known").with_blocks(128);
    let config = Config { corrects: true, factory_bad: 2, ..Config::default() };
    let chip = NandChip::new(profile, config);

    // ubiformat, ubimkvol, mkfs.ubifs.
    let options = DeviceOptions::default();
    let mut device = UbiDevice::format(chip, &FormatOptions::new(0x1234_5678), &options)?;
    let (write_size, leb_size) = (device.write_size(), device.leb_size());
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"data", lebs))?;
    let mut volume = device.into_volume(id)?;
    let shape = CreateOptions::new(write_size, leb_size, lebs);
    format(&mut volume, &shape, &NewInode::directory(NOW))?;

    // A file, and the call that makes it durable: before `sync` a power cut may lose it.
    let mut fs = UbifsMut::open(volume)?;
    let root = fs.statistics().root;
    let log = fs.create(root, b"boot.log", &FILE, NOW)?;
    fs.write_all(log, 0, b"it was the third time\n", NOW)?;
    fs.sync(Some(log))?;

    // Unmount completely, and mount again from what is on the chip.
    let chip = fs.close()?.into_device().detach()?;
    let device = UbiDevice::attach(chip, &options)?;
    let id = device.find(b"data").ok_or("the volume is gone")?;
    let fs = UbifsMut::open(device.into_volume(id)?)?;
    let log = fs.resolve(b"/boot.log")?;
    assert_eq!(fs.read_all(log, 4096)?, b"it was the third time\n");

    let chip = fs.volume().device().flash();
    println!("{:?}, and {:.1} ms of the chip's time", chip.counts(), chip.busy_ns() as f64 / 1e6);
    Ok(())
}

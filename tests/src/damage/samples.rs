//! Good images of many shapes, with their contents.

use flysch_api::flash::{FlashGeometry, FlashMut};
use flysch_api::vfs::FileSystemMut as _;
use flysch_mtd::{Bch, Dump, Ecc, FlashImage, OobLayout, PageFormat};
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, UbiDevice};
use flysch_ubifs::UbifsMut;
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_vfs::{Exercise, Limits};
use flysch_wire::ubifs::{Compression, KeyHash};

use crate::mutate::Sample;
use crate::ubifs::{Tree, image_tree};
use crate::writable::START;

/// An image, and the contents of its volumes.
#[derive(Clone, Debug)]
pub struct Good {
    /// The image.
    pub sample: Sample,
    trees: Vec<Tree>,
}

impl Good {
    /// The contents of volume `number`.
    pub fn tree(&self, number: usize) -> Option<&Tree> {
        self.trees.get(number)
    }
}

/// The shape of an image.
#[derive(Clone, Debug)]
struct Shape {
    name: &'static str,
    /// Page size, bytes; 1 for NOR.
    page: u32,
    peb_size: u32,
    pebs: u32,
    /// Maximum number of LEBs in the superblock: large values require the big model of the LEB
    /// properties tree.
    lebs_max: u32,
    compression: Compression,
    key_hash: KeyHash,
    /// Number of volumes with file systems.
    volumes: usize,
    steps: u32,
    /// Whether power is cut after the last sync instead of unmounting.
    is_cut: bool,
    with_oob: bool,
    /// Number of bytes of other content before the UBI.
    behind: usize,
}

const SMALL: Shape = Shape {
    name: "512, lzo",
    page: 512,
    peb_size: 16 << 10,
    pebs: 120,
    lebs_max: 4000,
    compression: Compression::Lzo,
    key_hash: KeyHash::R5,
    volumes: 1,
    steps: 250,
    is_cut: false,
    with_oob: false,
    behind: 0,
};

fn shapes() -> Vec<Shape> {
    let large = Shape { page: 2048, peb_size: 128 << 10, pebs: 40, lebs_max: 200, ..SMALL };
    let nor = Shape { page: 1, peb_size: 32 << 10, pebs: 70, lebs_max: 100, ..SMALL };
    vec![
        SMALL,
        Shape { name: "512, cut", is_cut: true, compression: Compression::None, ..SMALL },
        Shape { name: "512, two volumes", volumes: 2, pebs: 180, ..SMALL },
        Shape { name: "512, same hashes", key_hash: KeyHash::Test, lebs_max: 90, ..SMALL },
        Shape { name: "2048, zstd", compression: Compression::Zstd, ..large.clone() },
        Shape { name: "2048, cut", is_cut: true, ..large.clone() },
        Shape { name: "2048, out-of-band bytes", with_oob: true, pebs: 32, ..large.clone() },
        Shape { name: "4096, zlib", page: 4096, compression: Compression::Zlib, ..large.clone() },
        Shape { name: "LEB of a MiB", page: 8192, peb_size: 1 << 20, pebs: 24, ..large.clone() },
        Shape { name: "NOR", compression: Compression::Zlib, ..nor.clone() },
        Shape { name: "NOR, cut, two volumes", is_cut: true, volumes: 2, pebs: 110, ..nor },
        Shape { name: "2048, behind a boot loader", behind: 256 << 10, ..large },
    ]
}

/// Images of every shape.
///
/// # Panics
/// If one cannot be made.
pub fn samples() -> Vec<Good> {
    let mut samples: Vec<Good> = (1..).zip(&shapes()).map(|(seed, it)| make(seed, it)).collect();
    let bare = bare(99, &SMALL);
    samples.push(bare);
    samples
}

fn make(seed: u64, shape: &Shape) -> Good {
    let bytes = vec![0xFF; shape.pebs as usize * shape.peb_size as usize];
    let geometry = match shape.page {
        1 => FlashGeometry::nor(0, shape.peb_size),
        page => FlashGeometry::nand(0, shape.peb_size, page, page),
    };
    let (image, trees) = match shape.with_oob {
        false => {
            let (device, trees) = fill(FlashImage::new(bytes, geometry), seed, shape);
            (device.into_flash().into_storage(), trees)
        }
        true => {
            let pages = bytes.len() / shape.page as usize;
            let flash = Dump::new(vec![0xFF; pages * 2112], page_format(), shape.peb_size);
            let (device, trees) = fill(flash.expect("it fits"), seed, shape);
            (device.flash().pages().storage().clone(), trees)
        }
    };
    let mut bytes: Vec<u8> = (0..shape.behind).map(|at| (at * 7 / 5) as u8).collect();
    bytes.extend(image);
    let stored = if shape.with_oob { shape.peb_size / shape.page * 2112 } else { shape.peb_size };
    let sample = Sample { name: shape.name.into(), bytes, block_size: stored as usize };
    Good { sample, trees }
}

/// Pages of 2048 bytes, 64 out-of-band bytes, BCH that corrects 4 bits.
fn page_format() -> PageFormat {
    let ecc = Bch::new(13, 4, 512).expect("it is one");
    let oob = OobLayout::at_end(64, 4 * ecc.code_len()).expect("it fits");
    PageFormat { page_size: 2048, oob, ecc: Ecc::Bch(ecc) }
}

fn device_options() -> DeviceOptions {
    DeviceOptions { bad_per_1024: 0, ..DeviceOptions::default() }
}

fn fill<F: FlashMut + Clone>(flash: F, seed: u64, shape: &Shape) -> (UbiDevice<F>, Vec<Tree>) {
    let options = device_options();
    let mut device = UbiDevice::format(flash, &FormatOptions::new(7), &options).expect("formatted");
    let lebs = device.account().available / shape.volumes as u32;
    let mut trees = Vec::new();
    for number in 0..shape.volumes {
        let name = format!("volume {number}");
        let id = device.create(&NewVolume::dynamic(name.as_bytes(), lebs)).expect("a volume");
        let mut volume = device.into_volume(id).expect("a volume");
        let leb_size = volume.device().leb_size();
        let options = CreateOptions {
            compression: shape.compression,
            key_hash: shape.key_hash,
            ..CreateOptions::new(shape.page.max(8), leb_size, shape.lebs_max.max(lebs))
        };
        format(&mut volume, &options, &NewInode::directory(START)).expect("a file system");
        let mut fs = UbifsMut::open(volume).expect("it opens");
        exercise(&mut fs, seed + number as u64 * 100, shape.steps);
        trees.push(image_tree(&fs, &mut Vec::new()));
        device = match shape.is_cut {
            // Everything that has not reached the flash is lost.
            true => {
                let flash = fs.volume().device().flash().clone();
                UbiDevice::attach(flash, &device_options()).expect("attached")
            }
            false => fs.close().expect("closed").into_device(),
        };
    }
    device.close().expect("closed");
    (device, trees)
}

fn exercise<V: flysch_api::volume::VolumeMut>(fs: &mut UbifsMut<V>, seed: u64, steps: u32) {
    let limits = Limits { file_size: 40 << 10, write_size: 9000, files: 40, ..Limits::default() };
    let mut exercise = Exercise::new(&*fs, seed, limits);
    for _ in 0..steps {
        exercise.step(fs).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    fs.sync(None).expect("synced");
}

/// A bare `.ubifs` file.
fn bare(seed: u64, shape: &Shape) -> Good {
    let leb_size = shape.peb_size - 2 * shape.page;
    let lebs = 80;
    let geometry = FlashGeometry::nand(0, leb_size, shape.page, shape.page);
    let flash = FlashImage::new(vec![0xFF; leb_size as usize * lebs as usize], geometry);
    let mut volume = flysch_ubifs::FlatImage::new(flash, leb_size, 0);
    let options = CreateOptions::new(shape.page, leb_size, lebs);
    format(&mut volume, &options, &NewInode::directory(START)).expect("a file system");
    let mut fs = UbifsMut::open(volume).expect("it opens");
    exercise(&mut fs, seed, shape.steps);
    let trees = vec![image_tree(&fs, &mut Vec::new())];
    let volume = fs.close().expect("closed");
    let bytes = volume.into_flash().into_storage();
    Good { sample: Sample { name: "bare".into(), bytes, block_size: leb_size as usize }, trees }
}

//! Instructions for 4 KiB of a file, written to and read from flash file systems, as a table for
//! docs/bench.md.
//!
//! ```console
//! $ cargo run --profile dist --package flysch-cost --example files
//! ```
#![forbid(unsafe_code)]

use std::process::ExitCode;

use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::{DeviceNumber, FileKind, FileSystem, FileSystemMut, NewFile, Timestamp};
use flysch_cost::measure::{self, Run};
use flysch_jffs2::{Compressors, Jffs2Mut, WriteOptions};
use flysch_mtd::FlashImage;
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, UbiDevice};
use flysch_ubifs::UbifsMut;
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_wire::jffs2::ByteOrder;
use flysch_wire::ubifs::Compression;

const USAGE: &str = "\
usage: files             count all of them with callgrind and print them as a table
       files run NAME BLOCKS  write so many blocks to one, or write and read them";

const BLOCK: usize = 4096;
/// Blocks of one file.
const FILE_BLOCKS: u32 = 64;
/// Room for the longest run and its files.
const FLASH: usize = 48 << 20;
const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
const FILE: NewFile<'static> = NewFile {
    kind: FileKind::Regular,
    permissions: 0o644,
    owner: 0,
    group: 0,
    device: DeviceNumber { major: 0, minor: 0 },
    target: b"",
};

/// Name, description, maximum instructions per block, and the function for this many blocks.
type Case = (&'static str, &'static str, u64, fn(u32));

const CASES: [Case; 4] = [
    ("ubifs-write", "UBIFS on UBI, written, `sync` after every 256 KiB", 47_000, |blocks| {
        let mut fs = ubifs();
        measured_write(&mut fs, blocks);
    }),
    ("ubifs-read", "UBIFS on UBI, read", 23_400, |blocks| {
        let mut fs = ubifs();
        fill(&mut fs, blocks);
        measured_read(&fs, blocks);
    }),
    ("jffs2-write", "JFFS2, written, `sync` after every 256 KiB", 19_450, |blocks| {
        let mut fs = jffs2();
        measured_write(&mut fs, blocks);
    }),
    ("jffs2-read", "JFFS2, read", 4_220, |blocks| {
        let mut fs = jffs2();
        fill(&mut fs, blocks);
        measured_read(&fs, blocks);
    }),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        [] => table(),
        ["run", name, blocks] => run(name, blocks),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("files: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, blocks: &str) -> Result<(), String> {
    let (.., run) =
        CASES.iter().find(|case| case.0 == name).ok_or_else(|| format!("no case `{name}`"))?;
    run(blocks.parse().map_err(|_| format!("`{blocks}` is not a number of blocks"))?);
    Ok(())
}

fn table() -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    println!("| 4 KiB of a file | instructions | limit |\n|---|--:|--:|");
    let mut over = vec![];
    for (name, what, most, _) in CASES {
        let count = measure::count(&Run { program: &program, name, short: 512, long: 2560 })?;
        println!("| {what} | {count} | {most} |");
        if count > most {
            over.push(format!("{name} takes {count}, {most} are allowed"));
        }
    }
    if over.is_empty() { Ok(()) } else { Err(over.join("; ")) }
}

/// A UBIFS that fills a UBI device, on flash in memory. Nothing is compressed: a compressor would
/// dominate the count.
fn ubifs() -> UbifsMut<impl flysch_api::volume::VolumeMut> {
    let flash = FlashImage::new(vec![0xFF; FLASH], FlashGeometry::nand(0, 128 << 10, 2048, 2048));
    let options = DeviceOptions::default();
    let device = UbiDevice::format(flash, &FormatOptions::new(1), &options);
    let mut device = device.expect("memory is formatted");
    let (write_size, leb_size) = (device.write_size(), device.leb_size());
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"files", lebs)).expect("room for a volume");
    let mut volume = device.into_volume(id).expect("the volume just made");
    let compression = Compression::None;
    let shape = CreateOptions { compression, ..CreateOptions::new(write_size, leb_size, lebs) };
    format(&mut volume, &shape, &NewInode::directory(NOW)).expect("memory is formatted");
    UbifsMut::open(volume).expect("what was just made")
}

/// A JFFS2 on flash in memory, uncompressed as well.
fn jffs2() -> Jffs2Mut<FlashImage<Vec<u8>>> {
    let mut flash = FlashImage::new(vec![0xFF; FLASH], FlashGeometry::nor(0, 128 << 10));
    flysch_jffs2::format(&mut flash, ByteOrder::Little).expect("memory is formatted");
    let options = WriteOptions { compressors: Compressors::none(), ..WriteOptions::default() };
    Jffs2Mut::mount(flash, &options).expect("what was just made")
}

#[inline(never)]
fn measured_write(fs: &mut impl FileSystemMut, blocks: u32) {
    fill(fs, blocks);
}

#[inline(never)]
fn measured_read(fs: &impl FileSystem, blocks: u32) {
    let root = fs.statistics().root;
    let mut buffer = [0; BLOCK];
    for file in 0..blocks / FILE_BLOCKS {
        let inode = fs.lookup(root, name(file).as_bytes()).expect("a file that was written");
        for block in 0..FILE_BLOCKS {
            let at = u64::from(block) * BLOCK as u64;
            let length = fs.read(inode, at, &mut buffer).expect("memory is read");
            assert!(length == BLOCK, "a block that is not there");
        }
    }
}

fn name(file: u32) -> String {
    format!("file-{file}")
}

/// Writes files of [`FILE_BLOCKS`] blocks each.
fn fill(fs: &mut impl FileSystemMut, blocks: u32) {
    let root = fs.statistics().root;
    let mut block = [0; BLOCK];
    for file in 0..blocks / FILE_BLOCKS {
        let inode = fs.create(root, name(file).as_bytes(), &FILE, NOW).expect("room for a name");
        for at in 0..FILE_BLOCKS {
            // Different bytes in each block, so that none can be mistaken for another.
            block[..8].copy_from_slice(&(u64::from(file) << 32 | u64::from(at)).to_le_bytes());
            let offset = u64::from(at) * BLOCK as u64;
            fs.write(inode, offset, &block, NOW).expect("room for a block");
        }
        fs.sync(Some(inode)).expect("memory is written");
    }
}

use std::collections::BTreeMap;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use flysch_api::flash::{self, Corrected};
use flysch_api::vfs::{DeviceNumber, FileKind, FileSystem, Inode, Timestamp};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_wire::ubifs::{BLOCK_SIZE, Compression, KeyHash};

use super::*;
use crate::{OpenOptions, Ubifs};

/// LEBs in memory; those never put are absent.
#[derive(Clone, Debug, Default)]
struct Lebs {
    leb_size: u32,
    count: u32,
    lebs: BTreeMap<u32, Vec<u8>>,
    order: Vec<u32>,
}

impl LebSink for Lebs {
    type Error = flash::FlashError;

    fn put(&mut self, lnum: u32, content: &[u8]) -> Result<(), flash::FlashError> {
        self.order.push(lnum);
        assert!(self.lebs.insert(lnum, content.to_vec()).is_none(), "LEB {lnum} came twice");
        Ok(())
    }
}

impl Volume for Lebs {
    fn geometry(&self) -> VolumeGeometry {
        VolumeGeometry { leb_size: self.leb_size, lebs: self.count, write_size: None }
    }
    fn state(&self, lnum: u32) -> LebState {
        match self.lebs.contains_key(&lnum) {
            true => LebState::Mapped(None),
            false => LebState::Unmapped,
        }
    }
    fn read(
        &self,
        lnum: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<Corrected, flash::FlashError> {
        if lnum >= self.count || offset as usize + buffer.len() > self.leb_size as usize {
            return Err(flash::FlashError::OutOfRange);
        }
        buffer.fill(0xff);
        if let Some(from) = self.lebs.get(&lnum).and_then(|leb| leb.get(offset as usize..)) {
            let length = from.len().min(buffer.len());
            buffer[..length].copy_from_slice(&from[..length]);
        }
        Ok(Corrected::NONE)
    }
}

impl VolumeMut for Lebs {
    fn write(&mut self, _: u32, _: u32, _: &[u8]) -> Result<(), flash::FlashError> {
        unreachable!("a new file system changes whole LEBs")
    }
    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), flash::FlashError> {
        self.put(lnum, data)
    }
    fn unmap(&mut self, lnum: u32) -> Result<(), flash::FlashError> {
        self.lebs.remove(&lnum);
        Ok(())
    }
    fn map(&mut self, _: u32) -> Result<(), flash::FlashError> {
        Ok(())
    }
    fn sync(&mut self) -> Result<(), flash::FlashError> {
        Ok(())
    }
}

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };

fn text(length: usize) -> Vec<u8> {
    (0..length).map(|at| b"raw flash, erase block by erase block\n"[at * 7 % 38]).collect()
}

fn file(size: usize) -> NewInode<'static> {
    NewInode {
        kind: FileKind::Regular,
        permissions: 0o640,
        links: 1,
        owner: 7,
        group: 8,
        size: size as u64,
        ..NewInode::directory(NOW)
    }
}

/// A tree with `files` files, names that collide, links, devices and attributes.
fn build(options: &CreateOptions, files: usize, length: usize) -> (Created, Lebs) {
    let sink = Lebs { leb_size: options.leb_size, count: options.leb_count_max, ..Lebs::default() };
    let mut builder = UbifsBuilder::new(options, sink).unwrap();
    let root = builder.creation_sequence();
    let mut size = 0;
    let mut packed = [0; BLOCK_SIZE as usize];
    for at in 0..files {
        let number = builder.next_inode().unwrap();
        let creation = builder.creation_sequence();
        let content = text(length + at);
        for (block, bytes) in (0..).zip(content.chunks(BLOCK_SIZE as usize)) {
            let stored = pack(Packing::new(options.compression), bytes, &mut packed);
            builder.block(number, block, bytes.len() as u32, stored).unwrap();
        }
        let xattrs: [(&[u8], &[u8]); 2] = [(b"user.origin", b"here"), (b"security.x", &[9; 304])];
        let inode = NewInode { xattrs: &xattrs, links: 2, ..file(content.len()) };
        builder.inode(number, creation, &inode).unwrap();
        // With `-k test` the first four bytes are the hash.
        for name in [std::format!("same{at}"), std::format!("another{at}")] {
            builder
                .entry(UbifsBuilder::<Lebs>::ROOT, name.as_bytes(), number, FileKind::Regular)
                .unwrap();
            size += NewInode::entry_size(name.as_bytes());
        }
    }
    let number = builder.next_inode().unwrap();
    let creation = builder.creation_sequence();
    let device = DeviceNumber { major: 259, minor: 70_000 };
    let inode = NewInode { kind: FileKind::BlockDevice, device, size: 0, ..file(0) };
    builder.inode(number, creation, &inode).unwrap();
    builder.entry(UbifsBuilder::<Lebs>::ROOT, b"disk", number, FileKind::BlockDevice).unwrap();
    size += NewInode::entry_size(b"disk");
    let directory = NewInode { size, ..NewInode::directory(NOW) };
    builder.inode(UbifsBuilder::<Lebs>::ROOT, root, &directory).unwrap();
    builder.finish().unwrap()
}

fn verify(lebs: Lebs, files: usize, length: usize) {
    let fs = Ubifs::open(lebs, &OpenOptions::default()).unwrap();
    let findings = fs.check();
    assert!(findings.is_empty(), "{findings:#?}");
    let root = Inode(1);
    for at in 0..files {
        let name = std::format!("same{at}");
        let found = fs.lookup(root, name.as_bytes()).unwrap();
        assert_eq!(found, fs.lookup(root, std::format!("another{at}").as_bytes()).unwrap());
        let attributes = fs.attributes(found).unwrap();
        assert_eq!((attributes.links, attributes.owner, attributes.group), (2, 7, 8));
        assert_eq!((attributes.size, attributes.modified), ((length + at) as u64, NOW));
        let mut content = vec![0; length + at];
        assert_eq!(fs.read(found, 0, &mut content).unwrap(), length + at);
        assert_eq!(content, text(length + at));
        let mut value = [0; 400];
        assert_eq!(fs.read_xattr(found, b"user.origin", &mut value).unwrap(), 4);
        assert_eq!(value[..4], *b"here");
        assert_eq!(fs.read_xattr(found, b"security.x", &mut value).unwrap(), 304);
        assert_eq!(value[..304], [9; 304]);
    }
    let disk = fs.attributes(fs.lookup(root, b"disk").unwrap()).unwrap();
    assert_eq!(disk.device, DeviceNumber { major: 259, minor: 70_000 });
}

#[test]
fn what_is_built_opens_and_checks() {
    let methods = [Compression::None, Compression::Lzo, Compression::Zlib, Compression::Zstd];
    for compression in methods {
        for (unit, leb_size, max) in
            [(8, 65_408, 200), (512, 15_360, 4000), (2048, 126_976, 400), (4096, 253_952, 60)]
        {
            for (files, length) in [(0, 0), (3, 100), (40, 5000), (4, 300_000)] {
                let usual = CreateOptions::new(unit, leb_size, max);
                let options = CreateOptions { compression, ..usual };
                let (created, lebs) = build(&options, files, length);
                assert_eq!(lebs.order.last(), Some(&0), "the superblock comes last");
                assert_eq!(created.lebs_max, max);
                verify(lebs, files, length);
            }
        }
    }
}

#[test]
fn options_reach_the_file_system() {
    let usual = CreateOptions::new(2048, 126_976, 400);
    let each = [
        CreateOptions { key_hash: KeyHash::Test, ..usual },
        CreateOptions { fanout: 3, ..usual },
        CreateOptions { fanout: 64, ..usual },
        CreateOptions { orphan_lebs: 3, log_lebs: Some(9), ..usual },
        CreateOptions { journal_size: Some(5 << 20), ..usual },
        CreateOptions { double_hash: true, space_fixup: true, ..usual },
        CreateOptions { reserved_size: 1 << 20, ..usual },
        CreateOptions { leb_count_max: 100_000, ..usual },
    ];
    for options in each {
        let (_, lebs) = build(&options, 30, 9000);
        verify(lebs, 30, 9000);
    }
}

#[test]
fn the_same_calls_give_the_same_bytes() {
    let options = CreateOptions::new(2048, 126_976, 400);
    let (first, lebs) = build(&options, 20, 5000);
    let (second, again) = build(&options, 20, 5000);
    assert_eq!((first, &lebs.lebs), (second, &again.lebs));
    let (other, _) = build(&options, 20, 5001);
    assert_ne!(first.uuid, other.uuid, "the id follows the content");
    let given = CreateOptions { uuid: Some([7; 16]), ..options };
    assert_eq!(build(&given, 1, 1).0.uuid, [7; 16]);
}

#[test]
fn what_does_not_fit_is_said() {
    let sentence = |options: &CreateOptions| {
        UbifsBuilder::new(options, Lebs::default()).unwrap_err().to_string()
    };
    let usual = CreateOptions::new(2048, 126_976, 400);
    assert!(sentence(&CreateOptions { min_io_size: 1000, ..usual }).contains("power of two"));
    assert!(sentence(&CreateOptions { leb_size: 4096, ..usual }).contains("15360"));
    assert!(sentence(&CreateOptions { leb_size: 126_975, ..usual }).contains("multiple"));
    assert!(sentence(&CreateOptions { leb_count_max: 10, ..usual }).contains("LEBs"));
    assert!(
        sentence(&CreateOptions { leb_count_max: 17, orphan_lebs: 5, ..usual }).contains("needs")
    );
    assert!(sentence(&CreateOptions { fanout: 2, ..usual }).contains("fan-out"));
    assert!(sentence(&CreateOptions { log_lebs: Some(1), ..usual }).contains("log"));
    assert!(sentence(&CreateOptions { journal_size: Some(1), ..usual }).contains("journal"));
    assert!(sentence(&CreateOptions { reserved_size: 1 << 40, ..usual }).contains("reserved"));

    let small =
        CreateOptions { compression: Compression::None, ..CreateOptions::new(8, 15_360, 40) };
    let mut builder = UbifsBuilder::new(&small, Lebs::default()).unwrap();
    for at in 0..200 {
        builder.block(65, at, 4096, (Compression::None, &[at as u8; 4096])).unwrap();
    }
    let error = builder.finish().unwrap_err();
    // 67 LEBs of data at 3 blocks each, one of the index, one for garbage collection, the areas.
    assert!(matches!(error, UbifsCreateError::NoSpace { needed: 78..=90, max: 40 }), "{error}");

    let mut builder = UbifsBuilder::new(&usual, Lebs::default()).unwrap();
    for _ in 0..2 {
        builder.entry(1, b"twice", 65, FileKind::Regular).unwrap();
    }
    let error = builder.finish().unwrap_err();
    assert!(error.to_string().contains("\"twice\" twice"), "{error}");
}

#[test]
fn volumes_are_formatted() {
    for double_hash in [false, true] {
        let mut volume = Lebs { leb_size: 126_976, count: 60, ..Lebs::default() };
        let options = CreateOptions { double_hash, ..CreateOptions::new(2048, 126_976, 60) };
        format(&mut volume, &options, &NewInode::directory(NOW)).unwrap();
        let fs = Ubifs::open(volume, &OpenOptions::default()).unwrap();
        assert!(fs.check().is_empty());
        assert_eq!(fs.attributes(Inode(1)).unwrap().permissions, 0o755);
    }
}

#[test]
fn options_that_do_not_fit_the_volume_change_nothing() {
    let mut volume = Lebs { leb_size: 126_976, count: 60, ..Lebs::default() };
    for (options, words) in [
        (CreateOptions::new(2048, 65_536, 60), "those of the volume have 126976"),
        (CreateOptions::new(2048, 126_976, u32::MAX), "is too high: UBIFS takes 2147483647"),
        (CreateOptions::new(2048, 126_976, 5), "is too low"),
    ] {
        let refused = format(&mut volume, &options, &NewInode::directory(NOW)).unwrap_err();
        assert!(refused.to_string().contains(words), "{refused}");
    }
    assert!(Ubifs::open(volume, &OpenOptions::default()).is_err(), "nothing was written");
}

#[test]
fn needs_are_an_upper_bound() {
    for (files, length) in [(0, 0), (3, 100), (40, 5000), (4, 300_000)] {
        let mut needs = Needs::default();
        for at in 0..files {
            needs.inode(0);
            needs.content((length + at) as u64);
            needs.xattr(11, 4);
            needs.xattr(10, 304);
            needs.entry(6);
            needs.entry(9);
        }
        needs.inode(8);
        needs.entry(4);
        needs.inode(0);
        let usual = CreateOptions::new(2048, 126_976, 400);
        let options = CreateOptions { compression: Compression::None, ..usual };
        let (created, _) = build(&options, files, length);
        let main = u64::from(created.lebs - created.main_first);
        let bound = needs.main_lebs(&options);
        assert!((main..=main + main / 8 + 1).contains(&bound), "{bound} for {main}");
    }
}

use std::string::String;
use std::vec;
use std::vec::Vec;

use flysch_api::finding::Severity;
use flysch_api::flash::FlashGeometry;
use flysch_api::vfs::{FileSystem, Inode as VfsInode};
use flysch_random::SplitMix64;

use super::*;
use crate::tests::Memory;
use crate::{Compressor, Jffs2, Mode, check};

const ERASE_SIZE: u32 = 16 << 10;

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 0 }
}

fn entry<'a>(parent: u32, name: &'a str, kind: FileKind, target: &'a str) -> Entry<'a> {
    let device = DeviceNumber { major: 259, minor: 70_000 };
    let target = target.as_bytes();
    let file = NewFile { kind, permissions: 0o640, owner: 1000, group: 100, device, target };
    let name = name.as_bytes();
    Entry { parent, name, file, accessed: at(1), modified: at(2), changed: at(3) }
}

/// Text, a hole, noise, and an odd end.
fn content() -> Vec<u8> {
    let mut bytes = b"all work and no play makes jack a dull boy\n".repeat(300);
    bytes.resize(bytes.len() + 40_000, 0);
    let mut noise = SplitMix64::new(1);
    bytes.extend((0..50_001).map(|_| noise.bits() as u8));
    bytes
}

/// A tree with one of everything.
fn image(options: Jffs2Options) -> (Vec<u8>, Written) {
    let mut out: Vec<u8> = vec![];
    let sink = |bytes: &[u8]| {
        out.extend_from_slice(bytes);
        Ok::<(), String>(())
    };
    let mut builder = Jffs2Builder::new(options, sink).unwrap();
    builder.root(&entry(0, "", FileKind::Directory, "")).unwrap();
    let directory = entry(ROOT_INO, "dir", FileKind::Directory, "");
    let directory = builder.add(&Entry { modified: at(77), ..directory }, None).unwrap();
    let bytes = content();
    let mut rest = &bytes[..];
    let mut read = |buffer: &mut [u8]| {
        let len = buffer.len().min(rest.len()).min(1000);
        buffer[..len].copy_from_slice(&rest[..len]);
        rest = &rest[len..];
        Ok(len)
    };
    let content = Content { size: bytes.len() as u64, read: &mut read };
    let file = entry(directory, "file", FileKind::Regular, "");
    let ino = builder.add(&file, Some(content)).unwrap();
    builder.xattr(ino, b"user.colour", b"blue").unwrap();
    builder.link(&Entry { parent: ROOT_INO, name: b"link", ..file }, ino).unwrap();
    let empty = Content { size: 0, read: &mut |_| Ok(0) };
    let ino = builder.add(&entry(ROOT_INO, "empty", FileKind::Regular, ""), Some(empty)).unwrap();
    builder.xattr(ino, b"user.colour", b"blue").unwrap();
    for (name, kind) in [
        ("symlink", FileKind::Symlink),
        ("character", FileKind::CharacterDevice),
        ("block", FileKind::BlockDevice),
        ("fifo", FileKind::Fifo),
        ("socket", FileKind::Socket),
    ] {
        builder.add(&entry(directory, name, kind, "../target"), None).unwrap();
    }
    let written = builder.finish().unwrap();
    assert_eq!(written.bytes, out.len() as u64);
    (out, written)
}

fn options() -> Jffs2Options {
    Jffs2Options {
        erase_size: ERASE_SIZE,
        padding: Padding::To(256 << 10),
        ..Jffs2Options::default()
    }
}

fn verify(bytes: Vec<u8>) -> Jffs2<Memory> {
    let flash = Memory { geometry: FlashGeometry::nor(bytes.len() as u64, ERASE_SIZE), bytes };
    let mut findings = vec![];
    check(&flash, None, &mut |finding| findings.push(finding)).unwrap();
    findings.retain(|finding| finding.severity != Severity::Note);
    assert_eq!(findings, [], "the image is in order");
    let fs = Jffs2::mount(flash, None).unwrap();
    let root = VfsInode(u64::from(ROOT_INO));
    let directory = fs.lookup(root, b"dir").unwrap();
    let file = fs.lookup(directory, b"file").unwrap();
    assert_eq!(fs.lookup(root, b"link").unwrap(), file);
    let expected = content();
    let mut found = vec![1; expected.len() + 1];
    assert_eq!(fs.read(file, 0, &mut found).unwrap(), expected.len());
    assert!(found[..expected.len()] == expected, "the content comes back");
    let mut value = [0; 4];
    assert_eq!(fs.read_xattr(file, b"user.colour", &mut value), Ok(4));
    assert_eq!(&value, b"blue");
    let attributes = fs.attributes(file).unwrap();
    assert_eq!((attributes.permissions, attributes.owner, attributes.links), (0o640, 1000, 2));
    let times = (attributes.accessed, attributes.modified, attributes.changed);
    assert_eq!(times, (at(1), at(2), at(3)));
    assert_eq!(fs.attributes(directory).unwrap().modified, at(77));
    assert_eq!(fs.attributes(root).unwrap().owner, 1000);
    let symlink = fs.lookup(directory, b"symlink").unwrap();
    assert_eq!(fs.read(symlink, 0, &mut found), Ok(9));
    assert_eq!(&found[..9], b"../target");
    let device = fs.lookup(directory, b"block").unwrap();
    let device = fs.attributes(device).unwrap().device;
    assert_eq!(device, DeviceNumber { major: 259, minor: 70_000 });
    fs
}

#[test]
fn everything_comes_back_in_every_form() {
    for order in ByteOrder::ALL {
        for summary in [false, true] {
            for cleanmarker_len in [0, 12, 32] {
                for mode in [Mode::None, Mode::Priority, Mode::Size, Mode::FavourLzo] {
                    let enabled = Compressor::ALL.to_vec();
                    let compressors = Compressors { mode, enabled };
                    let options =
                        Jffs2Options { order, summary, cleanmarker_len, compressors, ..options() };
                    let (bytes, _) = image(options);
                    let facts = verify(bytes).facts();
                    assert_eq!(facts.order, order);
                    assert_eq!(facts.summaries > 0, summary);
                    assert_eq!(facts.clean_markers > 0, cleanmarker_len > 0);
                    assert_eq!((facts.xattrs, facts.problems), (1, 0));
                }
            }
        }
    }
}

#[test]
fn the_same_files_give_the_same_bytes() {
    assert!(image(options()).0 == image(options()).0);
}

#[test]
fn zeros_are_holes_unless_mkfs_is_to_be_followed() {
    let none = Compressors::none();
    let short = Jffs2Options { padding: Padding::None, compressors: none, ..options() };
    let (holes, _) = image(short.clone());
    let (zeros, _) = image(Jffs2Options { as_mkfs: true, ..short });
    assert!(zeros.len() > holes.len() + 30_000, "{} {}", zeros.len(), holes.len());
}

#[test]
fn padding_ends_where_it_should() {
    let with = |padding| image(Jffs2Options { padding, ..options() }).0;
    let bare = with(Padding::None);
    let block = with(Padding::Block);
    assert!(!bare.len().is_multiple_of(ERASE_SIZE as usize));
    assert_eq!(block.len(), bare.len().next_multiple_of(ERASE_SIZE as usize));
    assert_eq!(block[..bare.len()], bare);
    assert_eq!(with(Padding::To(250_000)).len(), 256 << 10);
}

#[test]
fn an_image_is_not_padded_beyond_what_jffs2_can_address() {
    let options = Jffs2Options { padding: Padding::To((16 << 30) + 1), ..options() };
    let refused = Jffs2Builder::new(options, |_: &[u8]| Ok::<(), ()>(())).map(drop);
    assert!(matches!(refused, Err(Jffs2CreateError::Options(why)) if why.contains("16 GiB")));
}

#[test]
fn an_image_that_gets_too_large_is_refused() {
    let sink = |_: &[u8]| Ok::<(), String>(());
    let limit = u64::from(ERASE_SIZE);
    let options = Jffs2Options { size_max: Some(limit), ..options() };
    let mut builder = Jffs2Builder::new(options, sink).unwrap();
    let mut noise = content().into_iter().rev();
    let mut read = |buffer: &mut [u8]| {
        buffer.fill_with(|| noise.next().unwrap());
        Ok(buffer.len())
    };
    let content = Content { size: 40_000, read: &mut read };
    let file = entry(ROOT_INO, "file", FileKind::Regular, "");
    assert_eq!(builder.add(&file, Some(content)), Err(Jffs2CreateError::Full { limit }));
}

#[test]
fn what_jffs2_can_not_hold_is_refused() {
    let sink = |_: &[u8]| Ok::<(), String>(());
    let mut builder = Jffs2Builder::new(options(), sink).unwrap();
    let long = "n".repeat(255);
    let fifo = entry(ROOT_INO, "fifo", FileKind::Fifo, "");
    let mut owner = fifo;
    owner.file.owner = 65_536;
    let mut device = entry(ROOT_INO, "device", FileKind::BlockDevice, "");
    device.file.device.minor = 1 << 20;
    for bad in [
        Entry { name: long.as_bytes(), ..fifo },
        Entry { name: b"a/b", ..fifo },
        Entry { name: b"..", ..fifo },
        Entry { parent: 99, ..fifo },
        owner,
        device,
        entry(ROOT_INO, "symlink", FileKind::Symlink, ""),
        entry(ROOT_INO, "symlink", FileKind::Symlink, &long),
    ] {
        assert!(matches!(builder.add(&bad, None), Err(Jffs2CreateError::Entry(_))), "{bad:?}");
    }
    assert!(matches!(
        builder.xattr(ROOT_INO, b"system.other", b""),
        Err(Jffs2CreateError::Entry(_))
    ));
    assert!(matches!(builder.link(&fifo, 99), Err(Jffs2CreateError::Entry(_))));
    let mut read = |_: &mut [u8]| Ok(0);
    let short = Content { size: 10, read: &mut read };
    let file = entry(ROOT_INO, "file", FileKind::Regular, "");
    assert_eq!(
        builder.add(&file, Some(short)),
        Err(Jffs2CreateError::ContentShort { missing: 10 })
    );
    assert!(matches!(builder.finish(), Err(Jffs2CreateError::Entry(_))), "a name without a file");
}

#[test]
fn a_name_is_there_once() {
    let mut builder =
        Jffs2Builder::new(Jffs2Options::default(), |_: &[u8]| Ok::<(), ()>(())).unwrap();
    let fifo = entry(ROOT_INO, "fifo", FileKind::Fifo, "");
    let folder = builder.add(&entry(ROOT_INO, "d", FileKind::Directory, ""), None).unwrap();
    let first = builder.add(&fifo, None).unwrap();
    assert!(matches!(builder.add(&fifo, None), Err(Jffs2CreateError::Entry(_))));
    assert!(matches!(builder.link(&fifo, first), Err(Jffs2CreateError::Entry(_))));
    builder.link(&Entry { parent: folder, ..fifo }, first).unwrap();
    builder.finish().unwrap();
}

#[test]
fn squashing_leaves_root_and_owners_rights() {
    let squash = Jffs2Options { squash_owners: true, squash_permissions: true, ..options() };
    let (bytes, _) = image(squash);
    let flash = Memory { geometry: FlashGeometry::nor(bytes.len() as u64, ERASE_SIZE), bytes };
    let fs = Jffs2::mount(flash, None).unwrap();
    let link = fs.lookup(VfsInode(1), b"link").unwrap();
    let attributes = fs.attributes(link).unwrap();
    assert_eq!((attributes.owner, attributes.group, attributes.permissions), (0, 0, 0o640));
}

#[test]
fn a_pass_over_an_image_adds_summaries() {
    for cleanmarker_len in [0, 12] {
        let plain = Jffs2Options { cleanmarker_len, padding: Padding::Block, ..options() };
        let (bytes, before) = image(plain.clone());
        let flash = Memory { geometry: FlashGeometry::nor(bytes.len() as u64, ERASE_SIZE), bytes };
        let mut out = vec![];
        let after = summarize(&flash, &plain, |bytes: &[u8]| {
            out.extend_from_slice(bytes);
            Ok::<(), String>(())
        });
        assert_eq!(after.unwrap().nodes, before.nodes);
        assert!(verify(out.clone()).facts().summaries > 0);
        // One pass does the same, but fills blocks with pieces that were cut to fit.
        let (at_once, _) = image(Jffs2Options { summary: true, ..plain });
        assert!(at_once.len() <= out.len());
    }
}

/// What Linux writes when it changes an attribute of such a device, and must find in the image.
#[test]
fn device_numbers_have_the_form_of_linux() {
    let stored = |major, minor| {
        let device = DeviceNumber { major, minor };
        let (bytes, len) = super::device_data(ByteOrder::Little, device)?;
        Some(bytes[..len].to_vec())
    };
    assert_eq!(stored(0, 0), Some(vec![0, 0]));
    assert_eq!(stored(255, 254), Some(vec![254, 255]));
    assert_eq!(stored(1, 256), Some(vec![0, 1, 0x10, 0]));
    assert_eq!(stored(259, 3), Some(vec![3, 3, 1, 0]));
    assert_eq!(stored(4096, 0), None);
}

//! The journal is valid as far as it was written.

use std::format;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use core::ops::ControlFlow;
use flysch_api::finding::Severity;
use flysch_api::flash::FlashError;
use flysch_api::vfs::{DeviceNumber, FileKind, FileSystem, FsError, Inode};
use flysch_wire::ubifs::{EntryKind, Group, InodeFlags, InodeNode, MasterFlags, Node};

use super::builder::{
    BASE, COMMITTED_LEB, DATA, Image, LEB_SIZE, LOG, Memory, ORPHANS, block, cut, file, inode, root,
};
use super::guarded::{EIO, Guarded};
use crate::repair::{Level, RepairError, repair};
use crate::{OpenOptions, Ubifs, UbifsMountError, UbifsMut};

/// A directory's names.
fn names(fs: &Ubifs<Memory>, directory: u64) -> Vec<String> {
    let mut names = Vec::new();
    fs.list(Inode(directory), 0, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        ControlFlow::Continue(())
    })
    .unwrap();
    names.sort();
    names
}

fn content(fs: &Ubifs<Memory>, name: &str) -> Result<Vec<u8>, FsError> {
    let inode = fs.lookup(Inode(1), name.as_bytes())?;
    let size = fs.attributes(inode)?.size;
    let mut bytes = vec![0xee; size as usize];
    let length = fs.read(inode, 0, &mut bytes)?;
    assert_eq!(length as u64, size);
    Ok(bytes)
}

/// A committed file "old" of three blocks, inode 64.
fn with_file() -> Image {
    let mut image = Image::new();
    image.commit(&root(&["old"], 0));
    image.commit(&image.entry(1, "old", 64));
    image.commit(&file(64, 9000));
    for at in 0..3 {
        let bytes = [b'a' + at as u8; 4096];
        let length = if at == 2 { 808 } else { 4096 };
        image.commit(&block(64, at, &bytes[..length]));
    }
    image.finish_commit();
    image
}

fn old_content() -> Vec<u8> {
    [vec![b'a'; 4096], vec![b'b'; 4096], vec![b'c'; 808]].concat()
}

/// Asserts that there are no findings but notes, from opening or the check.
fn assert_sound(fs: &Ubifs<Memory>) {
    let damage: Vec<_> =
        fs.check().into_iter().filter(|it| it.severity != Severity::Note).collect();
    assert_eq!(damage, []);
}

#[test]
fn a_committed_file_is_read() {
    let fs = with_file().open();
    assert_eq!(names(&fs, 1), ["old"]);
    assert_eq!(content(&fs, "old"), Ok(old_content()));
    assert_sound(&fs);
    let stat = fs.attributes(Inode(64)).unwrap();
    assert_eq!((stat.owner, stat.group, stat.links, stat.kind), (10, 20, 1, FileKind::Regular));
    assert_eq!((stat.modified.seconds, stat.modified.nanoseconds), (3, 500));
    let mut part = [0; 10];
    assert_eq!(fs.read(Inode(64), 4090, &mut part), Ok(10));
    assert_eq!(&part, b"aaaaaabbbb");
    assert_eq!(fs.read(Inode(64), 8995, &mut part), Ok(5));
    assert_eq!(fs.read(Inode(64), 9000, &mut part), Ok(0));
    assert_eq!(fs.read(Inode(1), 0, &mut part), Err(FsError::IsDirectory));
    assert_eq!(fs.lookup(Inode(64), b"x"), Err(FsError::NotDirectory));
    assert_eq!(fs.lookup(Inode(1), b"x"), Err(FsError::NotFound));
}

#[test]
fn a_file_made_since_the_commit_is_there() {
    let mut image = with_file();
    image.put(DATA, &block(65, 1, b"second block"), Group::None);
    image.group(BASE, &[image.entry(1, "new", 65), file(65, 4108), root(&["old", "new"], 0)]);
    let fs = image.open();
    assert_eq!(names(&fs, 1), ["new", "old"]);
    assert_eq!(content(&fs, "new"), Ok([&[0; 4096][..], b"second block"].concat()));
    assert_eq!(fs.next_data(Inode(65), 0), Ok(Some(4096..4108)), "a hole comes first");
    assert_eq!(fs.next_data(Inode(65), 4108), Ok(None));
    assert_sound(&fs);
}

#[test]
fn a_deleted_file_stays_deleted() {
    let mut image = with_file();
    let unlinked = Node::Inode(inode(64, 0o100_644, 0, 9000));
    image.group(BASE, &[image.entry(1, "old", 0), unlinked, root(&[], 0)]);
    let fs = image.open();
    assert_eq!(names(&fs, 1), Vec::<String>::new());
    assert_eq!(content(&fs, "old"), Err(FsError::NotFound));
    assert_eq!(fs.attributes(Inode(64)), Err(FsError::NotFound));
    assert_sound(&fs);
}

#[test]
fn a_truncated_file_reads_zeros_behind_the_cut() {
    let mut image = with_file();
    image.group(BASE, &[file(64, 5000), cut(64, 9000, 5000), block(64, 1, &[b'B'; 904])]);
    image.group(BASE, &[file(64, 12_288)]);
    let fs = image.open();
    let expected = [vec![b'a'; 4096], vec![b'B'; 904], vec![0; 7288]].concat();
    assert_eq!(content(&fs, "old"), Ok(expected));
    assert_eq!(fs.next_data(Inode(64), 0), Ok(Some(0..8192)));
    assert_sound(&fs);
}

#[test]
fn a_renamed_file_has_one_name() {
    let mut image = with_file();
    image.group(
        BASE,
        &[
            image.entry(1, "moved", 64),
            image.entry(1, "old", 0),
            file(64, 9000),
            root(&["moved"], 0),
        ],
    );
    let fs = image.open();
    assert_eq!(names(&fs, 1), ["moved"]);
    assert_eq!(content(&fs, "moved"), Ok(old_content()));
    assert_sound(&fs);
}

#[test]
fn the_newest_write_counts_over_all_heads_and_buds() {
    let mut image = with_file();
    image.put(DATA, &block(64, 0, &[b'1'; 4096]), Group::None);
    image.bud(13, 2);
    image.put(13, &block(64, 0, &[b'2'; 4096]), Group::None);
    image.bud(14, 0);
    image.put(14, &block(64, 1, &[b'3'; 4096]), Group::None);
    let fs = image.open();
    let expected = [vec![b'2'; 4096], vec![b'3'; 4096], vec![b'c'; 808]].concat();
    assert_eq!(content(&fs, "old"), Ok(expected));
    assert_eq!(fs.buds().len(), 4);
}

#[test]
fn extended_attributes_come_from_index_and_journal() {
    let mut image = Image::new();
    let mut host = inode(64, 0o100_644, 1, 0);
    (host.xattr_count, host.xattr_size, host.xattr_names) = (1, 72 + 168, 8);
    image.commit(&root(&["f"], 0));
    image.commit(&image.entry(1, "f", 64));
    image.commit(&Node::Inode(host));
    image.commit(&image.entry_of(EntryKind::Xattr, 64, "user.old", (65, 0)));
    let value = |number, data| {
        let flags = InodeFlags::XATTR;
        let plain = inode(number, 0o100_777, 1, 5);
        Node::Inode(InodeNode { flags, data, ..plain })
    };
    image.commit(&value(65, b"first"));
    image.finish_commit();
    assert_sound(&image.open());
    let new = image.entry_of(EntryKind::Xattr, 64, "user.new", (66, 0));
    (host.xattr_count, host.xattr_size, host.xattr_names) = (2, 2 * (72 + 168), 16);
    image.group(BASE, &[new, value(66, b"other"), Node::Inode(host)]);
    let fs = image.open();
    let list = |fs: &Ubifs<Memory>| {
        let mut found = Vec::new();
        fs.list_xattrs(Inode(64), &mut |name| found.push(name.to_vec())).unwrap();
        found.sort();
        found
    };
    assert_eq!(list(&fs), [b"user.new", b"user.old"]);
    let mut bytes = [0; 5];
    assert_eq!(fs.read_xattr(Inode(64), b"user.new", &mut bytes), Ok(5));
    assert_eq!(&bytes, b"other");
    let short = fs.read_xattr(Inode(64), b"user.old", &mut bytes[..2]);
    assert_eq!(short, Err(FsError::BufferTooSmall(5)));
    assert_eq!(fs.read_xattr(Inode(64), b"user.none", &mut bytes), Err(FsError::NoAttribute));
    assert_eq!(fs.attributes(Inode(65)), Err(FsError::NotFound), "a value is no file");
    assert_sound(&fs);

    let gone = image.entry_of(EntryKind::Xattr, 64, "user.old", (0, 0));
    let unlinked = inode(65, 0o100_777, 0, 5);
    let unlinked = Node::Inode(InodeNode { flags: InodeFlags::XATTR, data: b"first", ..unlinked });
    (host.xattr_count, host.xattr_size, host.xattr_names) = (1, 72 + 168, 8);
    image.group(BASE, &[gone, unlinked, Node::Inode(host)]);
    let fs = image.open();
    assert_eq!(list(&fs), [b"user.new"]);
    assert_sound(&fs);

    let unlinked = Node::Inode(InodeNode { links: 0, ..host });
    image.group(BASE, &[image.entry(1, "f", 0), unlinked, root(&[], 0)]);
    let fs = image.open();
    assert_eq!(fs.attributes(Inode(64)), Err(FsError::NotFound));
    assert_sound(&fs);
}

#[test]
fn names_with_one_hash_are_told_apart() {
    let mut image = Image::new();
    image.superblock.key_hash = 1;
    let committed = ["same-1", "same-2", "same-3", "same-4", "same-5", "same-6", "other"];
    image.commit(&root(&committed, 0));
    for (number, name) in (64..).zip(committed) {
        image.commit(&image.entry(1, name, number));
        image.commit(&file(number as u32, 0));
    }
    image.finish_commit();
    let fs = image.open();
    assert_eq!(names(&fs, 1).len(), 7);
    for (number, name) in (64..).zip(committed) {
        assert_eq!(fs.lookup(Inode(1), name.as_bytes()), Ok(Inode(number)), "{name}");
    }
    assert_sound(&fs);
    let kept = ["same-1", "same-2", "same-4", "same-5", "same-6", "other", "same-7"];
    let gone = Node::Inode(inode(66, 0o100_644, 0, 0));
    image.group(BASE, &[image.entry(1, "same-3", 0), gone, root(&kept[..6], 0)]);
    image.group(BASE, &[image.entry(1, "same-7", 80), file(80, 0), root(&kept, 0)]);
    let fs = image.open();
    assert_eq!(names(&fs, 1).len(), 7);
    assert_eq!(fs.lookup(Inode(1), b"same-3"), Err(FsError::NotFound));
    assert_eq!(fs.lookup(Inode(1), b"same-7"), Ok(Inode(80)));
    assert_eq!(fs.lookup(Inode(1), b"same-4"), Ok(Inode(67)));
    assert_sound(&fs);
    // A listing can be stopped and resumed after any name.
    let mut all = Vec::new();
    let mut after = 0;
    loop {
        let mut next = None;
        fs.list(Inode(1), after, &mut |entry| {
            next = Some((entry.name.to_vec(), entry.position));
            ControlFlow::Break(())
        })
        .unwrap();
        let Some((name, position)) = next else { break };
        assert!(position > after);
        after = position;
        all.push(name);
    }
    let mut unique = all.clone();
    unique.sort();
    unique.dedup();
    assert_eq!((all.len(), unique.len()), (7, 7));
}

/// Every way to cut the last write short: either nothing of the operation remains, or all of it.
#[test]
fn an_operation_cut_short_never_happened() {
    let mut image = with_file();
    image.set_flags(MasterFlags::DIRTY.0);
    let before = image.end(BASE);
    image.group(BASE, &[image.entry(1, "new", 65), file(65, 0), root(&["old", "new"], 0)]);
    let end = image.end(BASE);
    let whole = image.open();
    assert_eq!(names(&whole, 1), ["new", "old"]);
    for at in before..end {
        for filling in [0xff, 0x00, 0x5a] {
            let mut torn = image.clone();
            torn.volume.lebs[BASE as usize][at..end].fill(filling);
            let fs = torn.open();
            let what = format!("cut at {at} of {before}..{end}, {filling:#x}");
            let root_end = end - 160;
            let found = names(&fs, 1);
            if torn.volume.lebs[BASE as usize] == image.volume.lebs[BASE as usize] {
                assert_eq!(found, ["new", "old"], "{what}");
            } else {
                assert_eq!(found, ["old"], "{what}, last node at {root_end}");
            }
            assert_eq!(content(&fs, "old"), Ok(old_content()), "{what}");
            assert_sound(&fs);
        }
    }
}

#[test]
fn garbage_where_no_write_can_have_been_cut_is_told() {
    let mut image = with_file();
    image.set_flags(MasterFlags::DIRTY.0);
    image.group(BASE, &[image.entry(1, "new", 65), file(65, 0), root(&["old", "new"], 0)]);
    image.volume.lebs[BASE as usize][LEB_SIZE as usize - 64..].fill(0x77);
    let fs = image.open();
    assert_eq!(names(&fs, 1), ["new", "old"], "what is whole is served");
    assert!(fs.findings().iter().any(|it| it.severity == Severity::Lost), "{:?}", fs.findings());
    // Not in the last bud of its head: no write can be torn there.
    let mut image = with_file();
    image.set_flags(MasterFlags::DIRTY.0);
    image.put(DATA, &block(64, 0, &[b'1'; 4096]), Group::None);
    image.put(DATA, &block(64, 1, &[b'2'; 4096]), Group::None);
    image.bud(13, 2);
    image.put(13, &block(64, 2, &[b'3'; 808]), Group::None);
    image.volume.lebs[DATA as usize][4200] ^= 1;
    let fs = image.open();
    assert!(fs.findings().iter().any(|it| it.severity == Severity::Lost), "{:?}", fs.findings());
}

#[test]
fn a_log_that_ends_in_a_torn_reference_is_followed() {
    let mut image = with_file();
    image.set_flags(MasterFlags::DIRTY.0);
    image.put(DATA, &block(64, 0, &[b'1'; 4096]), Group::None);
    let at = image.end(LOG);
    image.bud(13, 2);
    image.put(13, &block(64, 0, &[b'2'; 4096]), Group::None);
    image.volume.lebs[LOG as usize][at + 30..at + 64].fill(0xff);
    let fs = image.open();
    assert_eq!(content(&fs, "old").unwrap()[0], b'1', "without reference the bud is none");
    assert_sound(&fs);
    // Without a commit start node the log is useless; the nodes themselves are collected.
    image.volume.lebs[LOG as usize][0..8].fill(0);
    let fs = image.open();
    assert_eq!(content(&fs, "old").unwrap()[0], b'2');
    assert!(fs.findings().iter().any(|it| it.structure == "log"), "{:?}", fs.findings());
}

#[test]
fn an_old_log_behind_the_new_one_is_not_read() {
    let mut image = Image::new();
    // Left over from before the commit: its sequence numbers are lower.
    let stale = Node::Reference(flysch_wire::ubifs::Reference { lnum: 15, offset: 0, head: 2 });
    image.put(LOG + 1, &stale, Group::None);
    image.put(15, &block(64, 0, &[b'x'; 100]), Group::None);
    image.commit(&root(&["old"], 0));
    image.commit(&image.entry(1, "old", 64));
    image.commit(&file(64, 100));
    image.finish_commit();
    let fs = image.open();
    assert_eq!(fs.buds().len(), 2);
    assert_eq!(content(&fs, "old"), Ok(vec![0; 100]));
}

#[test]
fn after_an_unclean_stop_sizes_follow_the_data() {
    let mut image = with_file();
    image.put(DATA, &block(64, 3, &[b'd'; 1000]), Group::None);
    assert_eq!(image.open().attributes(Inode(64)).unwrap().size, 9000, "cleanly unmounted");
    image.set_flags(MasterFlags::DIRTY.0);
    let fs = image.open();
    assert_eq!(fs.attributes(Inode(64)).unwrap().size, 13_288);
    // Data of a file whose inode never arrived is dropped with it.
    image.put(DATA, &block(99, 0, b"lost"), Group::None);
    let fs = image.open();
    assert_sound(&fs);
    // A later truncation counts.
    image.group(BASE, &[file(64, 10), cut(64, 13_288, 10), block(64, 0, &[b'a'; 10])]);
    let fs = image.open();
    assert_eq!(content(&fs, "old"), Ok(vec![b'a'; 10]));
    assert_sound(&fs);
}

#[test]
fn orphans_are_deleted_and_the_reborn_live() {
    let mut image = with_file();
    image.group(BASE, &[image.entry(1, "old", 0), file(64, 9000), root(&[], 0)]);
    image.orphans(&[64]);
    image.set_flags(MasterFlags::DIRTY.0);
    let links = |image: &Image| image.open().attributes(Inode(64)).map(|stat| stat.links);
    assert_eq!(links(&image), Ok(1), "an orphan that has links lives");
    // A file created without a name: its inode has no links until it gets one.
    let mut image = with_file();
    image.set_flags(MasterFlags::DIRTY.0);
    image.put(BASE, &Node::Inode(inode(65, 0o100_644, 0, 3)), Group::None);
    image.put(DATA, &block(65, 0, b"abc"), Group::None);
    image.group(BASE, &[image.entry(1, "late", 65), file(65, 3), root(&["old", "late"], 0)]);
    let fs = image.open();
    assert_eq!(content(&fs, "late"), Ok(b"abc".to_vec()));
    assert_sound(&fs);
}

/// What the system does not give for once says nothing about a file.
#[test]
fn an_orphan_that_cannot_be_read_now_is_not_deleted() {
    let mut image = with_file();
    image.orphans(&[64]);
    image.set_flags(MasterFlags::DIRTY.0);
    let volume = Guarded::new(&image, u32::MAX, false);
    volume.refused.set(Some(COMMITTED_LEB));
    let fs = Ubifs::open(volume, &OpenOptions::default()).unwrap();
    let read = fs.attributes(Inode(64));
    assert!(matches!(read, Err(FsError::Medium { source: FlashError::Os(EIO), .. })), "{read:?}");
    fs.store.access.volume.refused.set(None);
    assert_eq!(fs.attributes(Inode(64)).map(|it| it.size), Ok(9000));

    let volume = Guarded::new(&image, u32::MAX, false);
    volume.refused.set(Some(ORPHANS));
    let error = UbifsMut::open(volume).err().unwrap();
    let UbifsMountError::Unreadable(FsError::Medium { place, source }) = error else {
        panic!("{error}")
    };
    assert_eq!((place.leb, source), (Some(ORPHANS), FlashError::Os(EIO)));

    let volume = Guarded::new(&image, u32::MAX, false);
    volume.refused.set(Some(COMMITTED_LEB));
    let error = repair(volume, Level::DangerRebuild, 0).err().unwrap();
    assert!(matches!(error, RepairError::Unreadable(FsError::Medium { .. })), "{error}");
}

/// Recovery for writing would look for its inode, to set the size.
#[test]
fn an_orphan_that_was_written_to_leaves_no_size_to_mend() {
    let mut image = Image::new();
    image.commit(&root(&[], 0));
    image.commit(&Node::Inode(inode(64, 0o100_644, 0, 3)));
    image.finish_commit();
    image.set_flags(MasterFlags::DIRTY.0);
    image.put(DATA, &block(64, 3, b"abc"), Group::None);
    assert_eq!(image.open().store.sizes.len(), 1);
    image.orphans(&[64]);
    let fs = image.open();
    assert!(fs.attributes(Inode(64)).is_err());
    assert!(fs.store.sizes.is_empty());
}

#[test]
fn special_files_are_what_they_are() {
    let mut image = Image::new();
    let names = ["null", "huge", "link", "fifo", "sock", "bad"];
    image.commit(&root(&names, 0));
    let new = DeviceNumber { major: 259, minor: 70_000 };
    let huge = DeviceNumber { major: 5000, minor: 0x12_3456 };
    let (new_bytes, huge_bytes) =
        (new.to_new().unwrap().to_le_bytes(), huge.to_huge().to_le_bytes());
    let nodes: [(u32, u8, u64, &[u8]); 6] = [
        (0o020_666, 4, 0, &new_bytes),
        (0o060_600, 3, 0, &huge_bytes),
        (0o120_777, 2, 6, b"target"),
        (0o010_644, 5, 0, b""),
        (0o140_644, 6, 0, b""),
        (0o020_644, 4, 0, b"123"),
    ];
    for ((number, name), (mode, file_type, size, data)) in (64..).zip(names).zip(nodes) {
        let entry = image.entry_of(EntryKind::Directory, 1, name, (number.into(), file_type));
        image.commit(&entry);
        image.commit(&Node::Inode(InodeNode { data, ..inode(number, mode, 1, size) }));
    }
    image.finish_commit();
    let fs = image.open();
    assert_eq!(fs.attributes(Inode(64)).unwrap().device, new);
    assert_eq!(fs.attributes(Inode(65)).unwrap().device, huge);
    let mut target = [0; 10];
    assert_eq!(fs.read(Inode(66), 0, &mut target), Ok(6));
    assert_eq!(&target[..6], b"target");
    assert_eq!(fs.attributes(Inode(67)).unwrap().kind, FileKind::Fifo);
    assert_eq!(fs.attributes(Inode(68)).unwrap().kind, FileKind::Socket);
    assert_eq!(fs.read(Inode(67), 0, &mut target), Err(FsError::NoContent));
    assert!(matches!(fs.attributes(Inode(69)), Err(FsError::Damaged { .. })), "3 bytes, no device");
    let findings = fs.check();
    assert!(findings.iter().any(|it| it.to_string().contains("data_len 3")), "{findings:?}");
}

#[test]
fn encrypted_content_is_refused_and_its_structure_shown() {
    let mut image = Image::new();
    image.commit(&root(&["secret"], 1));
    let flags = InodeFlags::ENCRYPTED;
    let directory = inode(64, 0o040_755, 2, 160 + 64);
    let entry = image.entry_of(EntryKind::Directory, 1, "secret", (64, 1));
    image.commit(&entry);
    // An entry of 64 bytes, and a value of 208 with its NUL.
    let sealed = |node: InodeNode<'static>| {
        let (xattr_count, xattr_size, xattr_names) = (1, 64 + 208, 1);
        Node::Inode(InodeNode { flags, xattr_count, xattr_size, xattr_names, ..node })
    };
    let context = [&[2, 1, 4, 0, 0, 0, 0, 0][..], &[7; 16], &[8; 16]].concat();
    for (host, value) in [(64, 66), (65, 67)] {
        image.commit(&image.entry_of(EntryKind::Xattr, host, "c", (value, 0)));
        let node = inode(value as u32, 0o100_777, 1, 40);
        let flags = InodeFlags::XATTR;
        image.commit(&Node::Inode(InodeNode { flags, data: &context, ..node }));
    }
    image.commit(&sealed(directory));
    image.commit(&image.entry(64, "\u{1}/\u{2}", 65));
    image.commit(&sealed(inode(65, 0o100_644, 1, 16)));
    image.commit(&block(65, 0, &[0x99; 16]));
    image.finish_commit();
    let fs = image.open();
    assert_eq!(names(&fs, 64), ["8rgBAAAAAAABLwI"]);
    assert_eq!(fs.lookup(Inode(64), b"8rgBAAAAAAABLwI"), Ok(Inode(65)));
    assert_eq!(fs.attributes(Inode(65)).unwrap().size, 16);
    assert_eq!(fs.read(Inode(65), 0, &mut [0; 16]), Err(FsError::Encrypted));
    assert_sound(&fs);
}

//! An index in which several branches lead to the same node: on each level they multiply the ways
//! to the next, so that a walk that takes all of them never ends.

use std::format;
use std::string::ToString;
use std::vec;
use std::vec::Vec;

use core::ops::ControlFlow;
use flysch_api::finding::{Finding, Severity};
use flysch_api::vfs::{
    Changes, Damage, FileSystem, FileSystemMut, FsError, Inode, Rename, Timestamp, XattrChange,
};
use flysch_wire::ubifs::{EntryKind, InodeFlags, InodeNode, Key, Node};

use super::builder::{FANOUT, INDEX_LEB, Image, block, file, inode, root};
use super::guarded::Guarded;
use crate::repair::{Level, repair, survey};
use crate::{IndexUse, OpenOptions, Ubifs, UbifsMut};

const FILE: Inode = Inode(64);
const NOW: Timestamp = Timestamp { seconds: 9, nanoseconds: 0 };
/// 4^30 ways lead to the lowest level.
const LEVELS: u16 = 30;

/// A file "same-1" with an extended attribute, under a hash that any name with these first four
/// letters has.
fn sample() -> Image {
    let mut image = Image::new();
    image.superblock.key_hash = 1;
    image.commit(&root(&["same-1"], 0));
    image.commit(&image.entry(1, "same-1", 64));
    let (sizes, names) = ((56 + 7 + 8) / 8 * 8 + (160 + 5 + 8) / 8 * 8, 6);
    let (xattr_count, xattr_size, xattr_names) = (1, sizes, names);
    let counts = InodeNode { xattr_count, xattr_size, xattr_names, ..inode(64, 0o100_644, 1, 9) };
    image.commit(&Node::Inode(counts));
    image.commit(&block(64, 0, b"something"));
    image.commit(&image.entry_of(EntryKind::Xattr, 64, "user.x", (65, 0)));
    let value =
        InodeNode { flags: InodeFlags::XATTR, data: b"value", ..inode(65, 0o100_777, 1, 5) };
    image.commit(&Node::Inode(value));
    image
}

/// The sample; on every level two or more branches lead to the one node that leads to `key`.
fn multiplied(key: fn(&Image) -> Key, dirty_index_lebs: u32) -> Image {
    let mut image = sample();
    image.dirty_index_lebs = dirty_index_lebs;
    let key = key(&image);
    let leaves = image.leaves();
    let at = leaves.iter().position(|leaf| leaf.0 == key).unwrap();
    let mut parts = [&leaves[..at], &leaves[at..=at], &leaves[at + 1..]].map(<[_]>::to_vec);
    for level in 0..LEVELS {
        for part in &mut parts {
            *part = vec![image.index_node(level, part)];
        }
        parts[1] = vec![parts[1][0]; FANOUT];
    }
    let [before, many, after] = parts;
    let top = [before[0], many[0], many[0], after[0]];
    let top = image.index_node(LEVELS, &top);
    image.finish_commit_over(top);
    image
}

fn name_key(image: &Image) -> Key {
    Key::any_entry(EntryKind::Directory, 1, image.hash().hash(b"same-1"))
}

fn xattr_key(image: &Image) -> Key {
    Key::any_entry(EntryKind::Xattr, 64, image.hash().hash(b"user.x"))
}

fn guarded(image: &Image) -> Guarded {
    Guarded::new(image, 20_000, true)
}

fn trusted() -> OpenOptions {
    OpenOptions { index: IndexUse::Trust, keys: None }
}

fn is_multiplied<T: core::fmt::Debug>(result: Result<T, FsError>) {
    match result {
        Err(FsError::Damaged { structure: "index node", place, cause: Damage::Mismatch }) => {
            assert_eq!(place.leb, Some(INDEX_LEB));
            assert!(place.offset.is_some());
        }
        other => panic!("{other:?}"),
    }
}

fn tells(findings: &[Finding]) -> bool {
    let is_it = |found: &Finding| {
        found.structure == "index node"
            && found.problem == "more than one branch leads to the node here"
            && found.place.leb == Some(INDEX_LEB)
            && found.severity > Severity::Note
    };
    findings.iter().any(is_it)
}

#[test]
fn without_that_the_sample_is_sound() {
    let mut image = sample();
    image.finish_commit();
    let fs = Ubifs::open(guarded(&image), &trusted()).unwrap();
    let damage = |found: &Finding| found.severity > Severity::Note;
    assert_eq!(fs.check().into_iter().filter(damage).collect::<Vec<_>>(), []);
}

#[test]
fn reading_a_trusted_index_ends() {
    let image = multiplied(name_key, 0);
    let fs = Ubifs::open(guarded(&image), &trusted()).unwrap();
    let mut names = Vec::new();
    is_multiplied(fs.list(Inode(1), 0, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    }));
    assert_eq!(names, [b"same-1"], "what the first way leads to");
    assert_eq!(fs.lookup(Inode(1), b"same-1"), Ok(FILE));
    is_multiplied(fs.lookup(Inode(1), b"same-2"));
    let mut bytes = [0; 9];
    assert_eq!(fs.read(FILE, 0, &mut bytes), Ok(9), "not concerned");
    assert_eq!(fs.next_data(FILE, 0), Ok(Some(0..9)));
    assert!(tells(&fs.check()));
    assert_eq!(fs.unreachable(), []);

    let fs = Ubifs::open(guarded(&multiplied(xattr_key, 0)), &trusted()).unwrap();
    is_multiplied(fs.list_xattrs(FILE, &mut |_| {}));
    is_multiplied(fs.read_xattr(FILE, b"user.y", &mut []));
    assert!(tells(&fs.check()));
}

#[test]
fn an_index_that_is_read_when_opening_is_replaced() {
    for key in [name_key, xattr_key] {
        let image = multiplied(key, 0);
        let fs = Ubifs::open(guarded(&image), &OpenOptions::default()).unwrap();
        assert!(tells(fs.findings()), "{:?}", fs.findings());
        let mut bytes = [0; 9];
        assert_eq!(fs.read(fs.lookup(Inode(1), b"same-1").unwrap(), 0, &mut bytes), Ok(9));
        assert_eq!(&bytes, b"something");
        assert!(tells(&fs.check()));
        assert_eq!(survey(guarded(&image)).unwrap().level, Some(Level::DangerRebuild));
        let (volume, _) = repair(guarded(&image), Level::DangerRebuild, 9).unwrap();
        assert_eq!(Ubifs::open(volume, &trusted()).unwrap().lookup(Inode(1), b"same-1"), Ok(FILE));
    }
}

#[test]
fn writing_to_a_trusted_index_ends() {
    let open = |image: &Image| UbifsMut::open_with(guarded(image), &trusted()).unwrap();
    let mut fs = open(&multiplied(name_key, 0));
    is_multiplied(fs.rename((Inode(1), b"same-1"), (Inode(1), b"same-2"), Rename::Replace, NOW));
    let mut fs = open(&multiplied(xattr_key, 0));
    is_multiplied(fs.set_xattr(FILE, b"user.y", XattrChange::Set(b"more"), NOW));
    is_multiplied(fs.remove(Inode(1), b"same-1", NOW).and_then(|()| fs.close().map(|_| ())));
}

/// A commit that moves index nodes follows the branches on its own.
#[test]
fn a_commit_that_moves_a_trusted_index_ends() {
    for key in [name_key, xattr_key] {
        let mut fs = UbifsMut::open_with(guarded(&multiplied(key, 5)), &trusted()).unwrap();
        let changes = Changes { permissions: Some(0o600), ..Changes::default() };
        fs.set_attributes(FILE, &changes, NOW).unwrap();
        is_multiplied(fs.close());
    }
}

/// Recovery looks for what the deletion of a file takes with it.
#[test]
fn recovering_over_a_trusted_index_ends() {
    let mut image = multiplied(xattr_key, 0);
    image.set_flags(1);
    image.orphans(&[64]);
    let gone = Node::Inode(inode(64, 0o100_644, 0, 9));
    image.group(super::builder::BASE, &[image.entry(1, "same-1", 0), gone, root(&[], 0)]);
    let fs = Ubifs::open(guarded(&image), &trusted()).unwrap();
    assert_eq!(fs.lookup(Inode(1), b"same-1"), Err(FsError::NotFound));
    let error = UbifsMut::open_with(guarded(&image), &trusted()).unwrap_err();
    assert!(error.to_string().contains("index node"), "{error}");
}

/// Branches of equal keys that no two nodes can have leave no key to the first of them.
#[test]
fn keys_that_are_not_shared_grow_on_every_level() {
    let mut image = sample();
    let leaves = image.leaves();
    let [first, second] = [&leaves[..2], &leaves[2..]].map(|part| image.index_node(0, part));
    let top = image.index_node(1, &[first, second, second]);
    image.finish_commit_over(top);
    let written = UbifsMut::open_with(guarded(&image), &trusted()).map(|mut fs| {
        let changes = Changes { permissions: Some(0o600), ..Changes::default() };
        fs.set_attributes(FILE, &changes, NOW).and_then(|()| fs.close().map(|_| ()))
    });
    is_multiplied(written.unwrap());
    let fs = Ubifs::open(guarded(&image), &OpenOptions::default()).unwrap();
    assert!(fs.findings().iter().any(|it| it.problem.contains("order of keys")));
    assert_eq!(fs.lookup(Inode(1), b"same-1"), Ok(FILE));
}

/// Names with the same hash may fill many nodes, and their branches then have the same key.
#[test]
fn names_that_share_a_hash_may_fill_several_nodes() {
    let mut image = Image::new();
    image.superblock.key_hash = 1;
    let names: Vec<_> = (0..50).map(|number| format!("same-{number:02}")).collect();
    let list: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    image.commit(&root(&list, 0));
    for (number, name) in (64..).zip(&list) {
        image.commit(&image.entry(1, name, number));
        image.commit(&file(number as u32, 0));
    }
    image.finish_commit();
    for options in [trusted(), OpenOptions::default()] {
        let fs = Ubifs::open(guarded(&image), &options).unwrap();
        assert_eq!(fs.findings(), []);
        let mut listed = 0;
        let list = fs.list(Inode(1), 0, &mut |_| {
            listed += 1;
            ControlFlow::Continue(())
        });
        assert_eq!((list, listed), (Ok(()), 50));
        let damage = |found: &Finding| found.severity > Severity::Note;
        assert_eq!(fs.check().into_iter().filter(damage).collect::<Vec<_>>(), []);
        let mut fs = UbifsMut::open_with(guarded(&image), &options).unwrap();
        fs.rename((Inode(1), b"same-07"), (Inode(1), b"same-99"), Rename::Replace, NOW).unwrap();
        let fs = Ubifs::open(fs.close().unwrap(), &options).unwrap();
        assert_eq!(fs.lookup(Inode(1), b"same-99"), Ok(Inode(71)));
        assert_eq!(fs.check().into_iter().filter(damage).collect::<Vec<_>>(), []);
    }
}

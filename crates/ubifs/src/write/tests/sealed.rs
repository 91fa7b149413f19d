//! Encrypted directories: with the key and without.

use std::string::String;
use std::vec;
use std::vec::Vec;

use core::ops::ControlFlow;
use flysch_api::finding::Severity;
use flysch_api::vfs::{Changes, FileKind, FileSystem, FileSystemMut, FsError, Inode, Rename};
use flysch_wire::ubifs::Compression;

use super::memory::Ram;
use super::{ROOT, SMALL, assert_sound_with, at, content, encrypted, new_file, newer};
use crate::{CipherMode, KeyName, Keys, MasterKey, OpenOptions, Policy, Ubifs, UbifsMut};

const MODES: [CipherMode; 3] = [CipherMode::Aes256Xts, CipherMode::Aes128Cbc, CipherMode::Adiantum];
const LONG: [u8; 255] = [b'x'; 255];

/// A tree with a long name, a link, holes and content that compresses.
fn filled(mode: CipherMode) -> (Ram, OpenOptions) {
    let (ram, options) = encrypted(newer(SMALL), &OpenOptions::default(), mode);
    let mut fs = UbifsMut::open_with(ram, &options).unwrap();
    let folder = fs.create(ROOT, b"folder", &new_file(FileKind::Directory), at(2)).unwrap();
    for kind in [FileKind::Symlink, FileKind::CharacterDevice] {
        fs.create(
            folder,
            if kind == FileKind::Symlink { b"link" } else { b"null" },
            &new_file(kind),
            at(2),
        )
        .unwrap();
    }
    let file = fs.create(folder, &LONG, &new_file(FileKind::Regular), at(2)).unwrap();
    fs.write(file, 10_000, b"public as it seems", at(3)).unwrap();
    fs.write(file, 20_480, &[7; 5000], at(3)).unwrap();
    let cut = Changes { size: Some(25_000), ..Changes::default() };
    fs.sync(None).unwrap();
    fs.set_attributes(file, &cut, at(4)).unwrap();
    fs.link(file, ROOT, b"other name", at(4)).unwrap();
    (fs.close().unwrap(), options)
}

fn names<F: FileSystem>(fs: &F, directory: Inode) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    fs.list(directory, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    })
    .unwrap();
    names.sort();
    names
}

#[test]
fn files_come_back_with_their_key() {
    for mode in MODES {
        let (ram, options) = filled(mode);
        assert_sound_with(&ram, &options, "encrypted");
        let fs = Ubifs::open(&ram, &options).unwrap();
        assert_eq!(names(&fs, ROOT), [&b"folder"[..], b"other name"]);
        let folder = fs.lookup(ROOT, b"folder").unwrap();
        assert_eq!(names(&fs, folder), [&b"link"[..], b"null", &LONG]);
        let link = fs.lookup(folder, b"link").unwrap();
        assert_eq!(fs.attributes(link).unwrap().size, 8);
        assert_eq!(content(&fs, link), b"where/to");
        let file = fs.lookup(folder, &LONG).unwrap();
        let bytes = content(&fs, file);
        assert_eq!(&bytes[10_000..10_018], b"public as it seems");
        assert!(bytes.len() == 25_000 && bytes[20_480..].iter().all(|&byte| byte == 7));
        // A part of it, starting in the middle of a block.
        let mut part = [0; 6];
        assert_eq!(fs.read(file, 10_007, &mut part), Ok(6));
        assert_eq!(&part, b"as it ");
        let mut xattrs = 0;
        fs.list_xattrs(file, &mut |_| xattrs += 1).unwrap();
        assert_eq!(xattrs, 0, "the context is the file system's own");
        for secret in [&b"folder"[..], b"public", b"where/to", b"link", &LONG[..20]] {
            let leaks = ram.find(secret);
            assert!(!leaks, "{:?} stands on the flash", String::from_utf8_lossy(secret));
        }
    }
}

#[test]
fn without_the_key_there_is_the_structure() {
    let (ram, options) = filled(CipherMode::Aes256Xts);
    let other = Keys { masters: vec![MasterKey::new(&[1; 32], None).unwrap()], ..Keys::default() };
    let other = OpenOptions { keys: Some(other.into()), ..OpenOptions::default() };
    for options in [&OpenOptions::default(), &other] {
        assert_sound_with(&ram, options, "encrypted, without the key");
        let mut fs = UbifsMut::open_with(ram.clone(), options).unwrap();
        let root = names(&fs, ROOT);
        assert_eq!(root.len(), 2);
        let kind = |fs: &UbifsMut<Ram>, name: &Vec<u8>| {
            fs.attributes(fs.lookup(ROOT, name).unwrap()).unwrap().kind
        };
        let folder = root.iter().find(|name| kind(&fs, name) == FileKind::Directory).unwrap();
        let folder = fs.lookup(ROOT, folder).unwrap();
        let inside = names(&fs, folder);
        let longest = inside.iter().max_by_key(|name| name.len()).unwrap().clone();
        assert_eq!(longest.len(), 252);
        let file = fs.lookup(folder, &longest).unwrap();
        assert_eq!(fs.read(file, 0, &mut [0; 8]), Err(FsError::Encrypted));
        assert_eq!(fs.write(file, 0, b"x", at(5)), Err(FsError::Encrypted));
        let cut = Changes { size: Some(3), ..Changes::default() };
        assert_eq!(fs.set_attributes(file, &cut, at(5)), Err(FsError::Encrypted));
        let new = new_file(FileKind::Regular);
        assert_eq!(fs.create(folder, b"new", &new, at(5)), Err(FsError::Encrypted));
        assert_eq!(fs.lookup(folder, b"link"), Err(FsError::NotFound));
        // Files can be removed without the key.
        fs.remove(folder, &longest, at(6)).unwrap();
        let after = fs.close().unwrap();
        assert_sound_with(&after, options, "removed without the key");
    }
    let fs = Ubifs::open(&ram, &options).unwrap();
    assert!(fs.findings().iter().any(|it| it.problem.contains("whose key was given")));
}

#[test]
fn policies_stay_together() {
    let (ram, options) = (newer(SMALL), OpenOptions::default());
    let master = MasterKey::new(&[0x42; 64], None).unwrap();
    let policy = Policy::new(master.identifier(), CipherMode::Aes256Xts, 32).unwrap();
    let keys = Keys { masters: vec![master], entropy: Some([9; 32]), ..Keys::default() };
    let with_keys = OpenOptions { keys: Some(keys.into()), ..OpenOptions::default() };
    let mut fs = UbifsMut::open_with(ram, &options).unwrap();
    let open = fs.create(ROOT, b"open", &new_file(FileKind::Directory), at(2)).unwrap();
    assert!(matches!(fs.encrypt(open, &policy, at(2)), Err(FsError::Unsupported(_))));
    let mut fs = UbifsMut::open_with(fs.close().unwrap(), &with_keys).unwrap();
    let [one, two] = [b"one", b"two"].map(|name| {
        let folder = fs.create(ROOT, name, &new_file(FileKind::Directory), at(2)).unwrap();
        fs.encrypt(folder, &policy, at(2)).unwrap();
        folder
    });
    let new = new_file(FileKind::Regular);
    let plain = fs.create(open, b"plain", &new, at(3)).unwrap();
    let secret = fs.create(one, b"secret", &new, at(3)).unwrap();
    assert_eq!(fs.encrypt(one, &policy, at(3)), Err(FsError::Exists));
    assert_eq!(fs.encrypt(open, &policy, at(3)), Err(FsError::NotEmpty));
    let renamed = |fs: &mut UbifsMut<Ram>, from: (Inode, &[u8]), to: (Inode, &[u8])| {
        fs.rename(from, to, Rename::Replace, at(4))
    };
    assert_eq!(renamed(&mut fs, (open, b"plain"), (one, b"plain")), Err(FsError::CrossDevice));
    assert_eq!(fs.link(plain, one, b"plain", at(4)), Err(FsError::CrossDevice));
    renamed(&mut fs, (one, b"secret"), (two, b"moved")).unwrap();
    renamed(&mut fs, (two, b"moved"), (open, b"outside")).unwrap();
    fs.write(secret, 0, b"still encrypted", at(5)).unwrap();
    let exchange = fs.rename((open, b"plain"), (open, b"outside"), Rename::Exchange, at(5));
    assert_eq!(exchange, Ok(()));
    let ram = fs.close().unwrap();
    assert!(!ram.find(b"still encrypted"));
    assert_sound_with(&ram, &with_keys, "moved around");
    let stranger = Policy::new(KeyName::Identifier([1; 16]), CipherMode::Aes256Xts, 4).unwrap();
    let mut fs = UbifsMut::open_with(ram, &with_keys).unwrap();
    let folder = fs.create(ROOT, b"three", &new_file(FileKind::Directory), at(2)).unwrap();
    assert_eq!(fs.encrypt(folder, &stranger, at(6)), Err(FsError::Encrypted));
    let old = super::empty(SMALL, Compression::None);
    let mut fs = UbifsMut::open_with(old, &with_keys).unwrap();
    assert!(matches!(fs.encrypt(ROOT, &policy, at(2)), Err(FsError::Unsupported(_))));
}

#[test]
fn a_lost_context_is_told() {
    let (ram, options) = filled(CipherMode::Aes256Xts);
    let mut fs = UbifsMut::open_with(ram, &options).unwrap();
    let file = fs.lookup(ROOT, b"other name").unwrap();
    let number = file.0 as u32;
    fs.files.disk.set_name(flysch_wire::ubifs::EntryKind::Xattr, (number, b"c"), None).unwrap();
    fs.files.disk.changed = true;
    let ram = fs.close().unwrap();
    let fs = Ubifs::open(&ram, &options).unwrap();
    assert!(matches!(fs.read(file, 0, &mut [0; 8]), Err(FsError::Damaged { .. })));
    let told = fs.check();
    let told = told.iter().find(|it| it.severity == Severity::Lost && it.inode == Some(file));
    assert!(told.is_some_and(|it| it.problem.contains("its encryption context")), "{told:?}");
}

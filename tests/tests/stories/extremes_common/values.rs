//! Values at the ends of their ranges, and what is synced before power fails.

use flysch_api::vfs::{
    Changes, DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, Inode, NewFile, Rename,
    Timestamp, XattrChange,
};

use super::{Random, at, content, new_file, regular};

/// Times from before 1970 to beyond 2106.
pub(crate) const TIMES: [Timestamp; 6] = [
    Timestamp { seconds: -1, nanoseconds: 999_999_999 },
    Timestamp { seconds: -2_208_988_800, nanoseconds: 0 },
    Timestamp { seconds: 0, nanoseconds: 0 },
    Timestamp { seconds: 0x7fff_ffff, nanoseconds: 1 },
    Timestamp { seconds: 0x8000_0000, nanoseconds: 5 },
    Timestamp { seconds: 0x1_0000_0000, nanoseconds: 123_456_789 },
];

/// Makes a file for each time.
pub(crate) fn make_times(fs: &mut dyn FileSystemMut) {
    let root = fs.statistics().root;
    for (number, time) in TIMES.into_iter().enumerate() {
        let inode = regular(fs, root, &format!("time{number}")).expect("there is room");
        let changes = Changes { accessed: Some(time), modified: Some(time), ..Changes::default() };
        fs.set_attributes(inode, &changes, time).expect("there is room");
    }
}

/// The current times of those files.
pub(crate) fn times(fs: &dyn FileSystem) -> Vec<Timestamp> {
    let root = fs.statistics().root;
    let one = |number| {
        let inode = fs.lookup(root, format!("time{number}").as_bytes()).expect("it is there");
        let all = fs.attributes(inode).expect("it is there");
        assert_eq!((all.accessed, all.changed), (all.modified, all.modified));
        all.modified
    };
    (0..TIMES.len()).map(one).collect()
}

/// Tries to make a device node.
pub(crate) fn device(
    fs: &mut dyn FileSystemMut,
    name: &str,
    major: u32,
    minor: u32,
) -> Result<Inode, FsError> {
    let root = fs.statistics().root;
    let device = DeviceNumber { major, minor };
    let file = NewFile { device, ..new_file(FileKind::BlockDevice) };
    fs.create(root, name.as_bytes(), &file, at(2))
}

/// Tries to make a symlink with a target of this length.
pub(crate) fn symlink(fs: &mut dyn FileSystemMut, length: usize) -> Result<Inode, FsError> {
    let root = fs.statistics().root;
    let target = vec![b't'; length];
    let file = NewFile { target: &target, ..new_file(FileKind::Symlink) };
    fs.create(root, format!("link{length}").as_bytes(), &file, at(2))
}

/// A name with every byte that a name can have.
pub(crate) fn every_byte(fs: &mut dyn FileSystemMut) {
    let root = fs.statistics().root;
    let bytes = (1..=255_u8).filter(|&byte| byte != b'/');
    for byte in bytes.clone() {
        let made = fs.create(root, &[b'x', byte], &new_file(FileKind::Fifo), at(2));
        made.expect("this is a name");
    }
    let long: Vec<u8> = bytes.collect();
    fs.create(root, &long, &new_file(FileKind::Socket), at(2)).expect("this is a name");
}

pub(crate) fn assert_every_byte(fs: &dyn FileSystem) {
    let root = fs.statistics().root;
    for byte in (1..=255_u8).filter(|&byte| byte != b'/') {
        fs.lookup(root, &[b'x', byte]).expect("it is there");
    }
    let long: Vec<u8> = (1..=255_u8).filter(|&byte| byte != b'/').collect();
    fs.lookup(root, &long).expect("it is there");
}

/// The state before files were synced one by one.
#[derive(Debug)]
pub(crate) struct Synced {
    bytes: Vec<u8>,
    can_exchange: bool,
}

/// Changes of many kinds, with syncs of single files only. Power may fail afterwards.
pub(crate) fn sync_each(fs: &mut dyn FileSystemMut) -> Synced {
    let root = fs.statistics().root;
    let made = |fs: &mut dyn FileSystemMut, parent, name: &[u8]| {
        fs.create(parent, name, &new_file(FileKind::Directory), at(2)).expect("there is room")
    };
    let (one, other) = (made(fs, root, b"one"), made(fs, root, b"other"));
    let (inner, outer) = (made(fs, one, b"inner"), made(fs, other, b"outer"));
    let file = regular(fs, inner, "file").expect("there is room");
    let gone = regular(fs, outer, "gone").expect("there is room");
    let mut random = Random::new(5);
    // Half of each block can be compressed.
    let mut bytes: Vec<u8> = vec![];
    for _ in 0..5 {
        bytes.extend(random.bytes(2048));
        bytes.extend([0x41; 2048]);
    }
    assert_eq!(fs.write(file, 0, &bytes, at(3)), Ok(bytes.len()));
    assert_eq!(fs.write(gone, 0, &bytes, at(3)), Ok(bytes.len()));
    fs.sync(None).expect("there is room");
    // Truncated inside a compressed block, extended, and written over the hole.
    let cut = Changes { size: Some(6500), ..Changes::default() };
    fs.set_attributes(file, &cut, at(4)).expect("it can be shorter");
    let longer = Changes { size: Some(30_000), ..Changes::default() };
    fs.set_attributes(file, &longer, at(5)).expect("there is room");
    assert_eq!(fs.write(file, 12_000, b"over the hole", at(6)), Ok(13));
    assert_eq!(fs.write(file, 30_000, b"behind", at(6)), Ok(6));
    bytes.resize(6500, 0);
    bytes.resize(30_000, 0);
    bytes[12_000..12_013].copy_from_slice(b"over the hole");
    bytes.extend(b"behind");
    fs.set_xattr(file, b"user.a", XattrChange::Set(&[1; 3000]), at(6)).expect("there is room");
    fs.set_xattr(file, b"user.a", XattrChange::Set(&[2; 10]), at(6)).expect("there is room");
    let can_exchange =
        fs.rename((one, b"inner"), (other, b"outer"), Rename::Exchange, at(7)).is_ok();
    if !can_exchange {
        fs.rename((one, b"inner"), (other, b"moved"), Rename::Replace, at(7)).expect("it goes");
    }
    fs.rename((root, b"one"), (root, b"renamed"), Rename::Replace, at(7)).expect("it goes");
    let holder =
        if can_exchange { outer } else { fs.lookup(other, b"outer").expect("it is there") };
    fs.remove(holder, b"gone", at(8)).expect("it is there");
    assert_eq!(fs.write(gone, 100, b"still open", at(8)), Ok(10));
    fs.sync(Some(gone)).expect("a file without a name can be synced");
    fs.sync(Some(file)).expect("there is room");
    Synced { bytes, can_exchange }
}

/// What was synced is present after a sudden stop.
pub(crate) fn assert_synced(fs: &dyn FileSystem, synced: &Synced) {
    let root = fs.statistics().root;
    let other = fs.lookup(root, b"other").expect("it is there");
    let renamed = fs.lookup(root, b"renamed").expect("it is there");
    assert_eq!(fs.lookup(root, b"one"), Err(FsError::NotFound));
    let inner = match synced.can_exchange {
        true => {
            let outer = fs.lookup(renamed, b"inner").expect("it is there");
            assert_eq!(fs.lookup(outer, b"gone"), Err(FsError::NotFound));
            fs.lookup(other, b"outer")
        }
        false => fs.lookup(other, b"moved"),
    };
    let file = fs.lookup(inner.expect("it is there"), b"file").expect("it is there");
    assert!(content(fs, file) == synced.bytes, "what was synced is there");
    let mut value = [0; 4096];
    assert_eq!(fs.read_xattr(file, b"user.a", &mut value), Ok(10));
    assert_eq!(value[..10], [2; 10]);
}

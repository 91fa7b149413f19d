//! Writing against a model in memory, with remounts and power cuts.

mod auth;
mod figures;
mod memory;
mod mkfs;
mod model;
mod sealed;

use std::format;
use std::string::ToString;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use flysch_api::finding::Severity;
use flysch_api::vfs::{
    Changes, FileKind, FileSystem, FileSystemMut, FsError, Inode, NewFile, Timestamp, XattrChange,
};
use flysch_api::volume::{LebState, Volume, VolumeMut};
use flysch_random::SplitMix64;
use flysch_wire::ubifs::{Compression, MASTER_LEB, NodeKind};

use crate::create::{CreateOptions, NewInode, format, format_authenticated};
use crate::{
    AuthKey, CipherMode, HashAlgorithm, Keys, MasterKey, OpenOptions, Policy, Ubifs, UbifsMut,
};
use memory::Ram;

const ROOT: Inode = Inode(1);

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 0 }
}

fn new_file(kind: FileKind) -> NewFile<'static> {
    let device = flysch_api::vfs::DeviceNumber { major: 4, minor: 64 };
    let target: &[u8] = if kind == FileKind::Symlink { b"where/to" } else { b"" };
    NewFile { kind, permissions: 0o644, owner: 1000, group: 100, device, target }
}

/// An empty file system.
fn empty((leb_size, lebs, unit): (u32, u32, u32), compression: Compression) -> Ram {
    let mut ram = Ram::new(leb_size, lebs, unit);
    let options = CreateOptions { compression, ..CreateOptions::new(unit.max(8), leb_size, lebs) };
    format(&mut ram, &options, &NewInode::directory(at(1))).unwrap();
    ram
}

/// An empty authenticated file system, and the options to open it.
fn authenticated((leb_size, lebs, unit): (u32, u32, u32)) -> (Ram, OpenOptions) {
    let mut ram = Ram::new(leb_size, lebs, unit);
    let authentication = Some(HashAlgorithm::Sha256);
    let options =
        CreateOptions { authentication, ..CreateOptions::new(unit.max(8), leb_size, lebs) };
    let key = AuthKey::new(b"a key of any length", authentication);
    let root = NewInode::directory(at(1));
    format_authenticated(&mut ram, (&options, &key), &root).unwrap();
    (ram, with_key(key))
}

/// An empty file system in the format that Linux makes.
fn newer((leb_size, lebs, unit): (u32, u32, u32)) -> Ram {
    let mut ram = Ram::new(leb_size, lebs, unit);
    let usual = CreateOptions::new(unit.max(8), leb_size, lebs);
    let options = CreateOptions { double_hash: true, ..usual };
    format(&mut ram, &options, &NewInode::directory(at(1))).unwrap();
    ram
}

fn with_key(key: AuthKey) -> OpenOptions {
    OpenOptions {
        keys: Some(Arc::new(Keys { auth: Some(key), ..Keys::default() })),
        ..OpenOptions::default()
    }
}

/// The same file system with everything in its root directory encrypted.
fn encrypted(ram: Ram, options: &OpenOptions, mode: CipherMode) -> (Ram, OpenOptions) {
    let master = MasterKey::new(&[0x42; 64], None).unwrap();
    let auth = options.keys.as_ref().and_then(|keys| keys.auth.clone());
    // Version 1 for the oldest mode, with which it was used.
    let name = match mode {
        CipherMode::Aes128Cbc => master.descriptor(),
        _ => master.identifier(),
    };
    let keys = Keys { auth, masters: vec![master], entropy: Some([7; 32]), ..Keys::default() };
    let options = OpenOptions { keys: Some(Arc::new(keys)), ..OpenOptions::default() };
    let mut fs = UbifsMut::open_with(ram, &options).unwrap();
    let policy = Policy::new(name, mode, 16).unwrap();
    fs.encrypt(ROOT, &policy, at(1)).unwrap();
    assert_eq!(fs.encrypt(ROOT, &policy, at(1)), Err(FsError::Exists));
    (fs.close().unwrap(), options)
}

/// Asserts that the check finds nothing but notes.
fn assert_sound(ram: &Ram, what: &str) {
    assert_sound_with(ram, &OpenOptions::default(), what);
}

fn assert_sound_with(ram: &Ram, options: &OpenOptions, what: &str) {
    let fs = Ubifs::open(ram, options).unwrap_or_else(|error| panic!("{what}: {error}"));
    let damage: Vec<_> =
        fs.check().into_iter().filter(|it| it.severity != Severity::Note).collect();
    assert!(damage.is_empty(), "{what}: {damage:#?}");
}

fn content<F: FileSystem>(fs: &F, inode: Inode) -> Vec<u8> {
    let size = fs.attributes(inode).unwrap().size as usize;
    let mut bytes = vec![0xee; size];
    assert_eq!(fs.read(inode, 0, &mut bytes), Ok(size));
    bytes
}

const SMALL: (u32, u32, u32) = (15_872, 64, 512);

/// A commit may fill the index head's LEB, then the last empty ones, and then gaps: the LEBs that
/// it has just written are not among them.
#[test]
fn gaps_are_not_where_the_same_commit_has_written() {
    const FILES: usize = 2000;
    let mut fs = UbifsMut::open(empty((15_360, 200, 8), Compression::None)).unwrap();
    let name = |number: usize| format!("file {number}").into_bytes();
    let file = new_file(FileKind::Regular);
    let files: Vec<Inode> =
        (0..FILES).map(|number| fs.create(ROOT, &name(number), &file, at(2)).unwrap()).collect();
    let mut expected = vec![0o644; FILES];
    let mut random = SplitMix64::new(1);
    for round in 0..60 {
        // What was written together is replaced together: the LEB of the head has most dirt then.
        let many = 200 + random.below(1200) as usize;
        let first = if round % 2 == 0 { 0 } else { random.below(600) as usize };
        for number in first..first + many {
            expected[number] = 0o600 + random.below(0o100) as u16;
            let permissions = Some(expected[number]);
            let changes = Changes { permissions, ..Changes::default() };
            fs.set_attributes(files[number], &changes, at(3)).unwrap();
        }
        fs.files.disk.empty_lebs = Some(random.below(3) as u32);
        let ram = fs.close().unwrap();
        assert_sound(&ram, &format!("round {round}"));
        fs = UbifsMut::open(ram).unwrap();
    }
    for (number, inode) in files.iter().enumerate() {
        assert_eq!(fs.lookup(ROOT, &name(number)), Ok(*inode));
        assert_eq!(fs.attributes(*inode).unwrap().permissions, expected[number]);
    }
}

#[test]
fn what_is_written_is_there_after_a_stop_without_a_commit() {
    let ram = empty(SMALL, Compression::None);
    let mut fs = UbifsMut::open(ram).unwrap();
    let file = fs.create(ROOT, b"file", &new_file(FileKind::Regular), at(2)).unwrap();
    let bytes: Vec<u8> = (0..10_000_u32).map(|n| (n * 7) as u8).collect();
    assert_eq!(fs.write(file, 0, &bytes, at(3)), Ok(10_000));
    assert_eq!(content(&fs, file), bytes);
    fs.sync(Some(file)).unwrap();
    let ram = fs.volume().clone();
    let reader = Ubifs::open(&ram, &OpenOptions::default()).unwrap();
    assert_eq!(content(&reader, reader.lookup(ROOT, b"file").unwrap()), bytes);
    assert_sound(&ram, "without a commit");
    let fs = UbifsMut::open(ram).unwrap();
    assert_eq!(content(&fs, file), bytes);
    let ram = fs.close().unwrap();
    assert_sound(&ram, "after recovery");
}

#[test]
fn syncing_data_leaves_times_behind_and_nothing_else() {
    let mut fs = UbifsMut::open(empty(SMALL, Compression::None)).unwrap();
    let file = fs.create(ROOT, b"file", &new_file(FileKind::Regular), at(2)).unwrap();
    assert_eq!(fs.write(file, 0, &[1; 8192], at(3)), Ok(8192));
    fs.sync(None).unwrap();
    let on_flash = |fs: &UbifsMut<Ram>| {
        let ram = fs.volume().clone();
        let reader = Ubifs::open(&ram, &OpenOptions::default()).unwrap();
        let file = reader.lookup(ROOT, b"file").unwrap();
        (content(&reader, file), reader.attributes(file).unwrap().modified)
    };
    assert_eq!(fs.write(file, 4096, &[2; 4096], at(4)), Ok(4096));
    fs.sync_data(Some(file)).unwrap();
    let (bytes, modified) = on_flash(&fs);
    assert_eq!((&bytes[4096..], modified), (&[2; 4096][..], at(3)));
    assert_eq!(fs.attributes(file).unwrap().modified, at(4));
    // A longer file is a different case.
    assert_eq!(fs.write(file, 8192, &[3; 100], at(5)), Ok(100));
    fs.sync_data(Some(file)).unwrap();
    let (bytes, modified) = on_flash(&fs);
    assert_eq!((&bytes[8192..], modified), (&[3; 100][..], at(5)));
    assert_eq!(fs.write(file, 0, &[4; 4096], at(6)), Ok(4096));
    fs.sync(Some(file)).unwrap();
    assert_eq!(on_flash(&fs).1, at(6));
    assert_sound(fs.volume(), "in the end");
}

/// Linux gives each copy of the master node a sequence number of its own.
#[test]
fn copies_of_the_master_node_with_other_sequence_numbers_stay_where_they_are() {
    let fs = UbifsMut::open(empty(SMALL, Compression::None)).unwrap();
    let mut ram = fs.close().unwrap();
    let (leb_size, lnum) = (SMALL.0 as usize, MASTER_LEB + 1);
    let mut leb = vec![0; leb_size];
    let _ = ram.read(lnum, 0, &mut leb).unwrap();
    let last = (0..leb_size).step_by(512).rfind(|&at| leb[at] != 0xff).unwrap();
    leb[last + 8] ^= 0x40;
    let crc = flysch_wire::ubifs::crc32(&leb[last + 8..last + 512]).to_le_bytes();
    leb[last + 4..last + 8].copy_from_slice(&crc);
    ram.change(lnum, &leb).unwrap();
    let written = last > 0;
    let fs = UbifsMut::open(ram).unwrap();
    let mut start = vec![0; leb_size];
    let _ = fs.volume().read(lnum, 0, &mut start).unwrap();
    assert!(written && start == leb, "nothing was written at the opening");
}

#[test]
fn a_commit_keeps_everything() {
    let ram = empty(SMALL, Compression::Lzo);
    let mut fs = UbifsMut::open(ram).unwrap();
    for round in 0..4 {
        let parent =
            fs.create(ROOT, format!("d{round}").as_bytes(), &new_file(FileKind::Directory), at(2));
        let parent = parent.unwrap();
        for number in 0..40 {
            let name = format!("file {number}");
            let new = new_file(FileKind::Regular);
            let file = fs.create(parent, name.as_bytes(), &new, at(3)).unwrap();
            assert_eq!(fs.write(file, 4000, name.as_bytes(), at(4)), Ok(name.len()));
        }
        fs.sync(None).unwrap();
        assert_sound(fs.volume(), "after a commit");
    }
    let ram = fs.close().unwrap();
    assert_sound(&ram, "closed");
    let mut fs = UbifsMut::open(ram).unwrap();
    let parent = fs.lookup(ROOT, b"d2").unwrap();
    let file = fs.lookup(parent, b"file 7").unwrap();
    assert_eq!(&content(&fs, file)[4000..], b"file 7");
    for number in 0..40 {
        let name = format!("file {number}");
        let file = fs.lookup(parent, name.as_bytes()).unwrap();
        fs.remove(parent, name.as_bytes(), at(5)).unwrap();
        assert_eq!(&content(&fs, file)[4000..], name.as_bytes(), "still in use");
        fs.forget(file).unwrap();
        assert_eq!(fs.attributes(file), Err(FsError::NotFound));
    }
    fs.remove(ROOT, b"d2", at(6)).unwrap();
    let ram = fs.close().unwrap();
    assert_sound(&ram, "after removing");
}

/// A file is unlinked while it is open, and power is lost after a commit. Nothing but its inode
/// node is left in a LEB, which recovery gives up. Then power is lost again, and again.
#[test]
fn recovery_of_a_deleted_file_may_be_interrupted() {
    let mut fs = UbifsMut::open(empty(SMALL, Compression::None)).unwrap();
    let other = fs.create(ROOT, b"other", &new_file(FileKind::Regular), at(2)).unwrap();
    let gone = fs.create(ROOT, b"gone", &new_file(FileKind::Regular), at(2)).unwrap();
    fs.write(gone, 0, &[1; 30_000], at(2)).unwrap();
    let fill = |fs: &mut UbifsMut<Ram>| {
        for number in 0..200 {
            let changes = Changes { permissions: Some(number), ..Changes::default() };
            fs.set_attributes(other, &changes, at(3)).unwrap();
            fs.sync(Some(other)).unwrap();
        }
        // The root directory has a new node as well.
        fs.create(ROOT, b"name", &new_file(FileKind::Regular), at(3)).unwrap();
        fs.remove(ROOT, b"name", at(3)).unwrap();
    };
    fill(&mut fs);
    fs.remove(ROOT, b"gone", at(4)).unwrap();
    fill(&mut fs);
    fs.sync(None).unwrap();
    fs.files.disk.commit().unwrap();
    fs.create(ROOT, b"last", &new_file(FileKind::Regular), at(5)).unwrap();
    fs.sync(None).unwrap();
    let stopped = fs.volume().clone();
    let mut cuts = 0;
    for seed in 0..3 {
        let mut ram = stopped.clone();
        for step in 0.. {
            ram.power_up(seed * 1000 + step);
            ram.cut_in = Some(step);
            // What the interrupted recovery left is where the next one starts.
            match UbifsMut::open(&mut ram) {
                Ok(mut fs) => {
                    fs.volume_mut().cut_in = None;
                    assert_eq!(fs.attributes(gone), Err(FsError::NotFound));
                    fs.close().unwrap();
                    break;
                }
                Err(_) => cuts += 1,
            }
        }
        assert_sound(&ram, &format!("seed {seed}, in the end"));
    }
    assert!(cuts > 20, "{cuts} cuts");
}

/// Whatever numbers an image claims to have reached, no file gets the number of another one, and no
/// node a lower sequence number.
#[test]
fn numbers_that_are_used_up_are_not_begun_again() {
    let mut fs = UbifsMut::open(empty(SMALL, Compression::None)).unwrap();
    fs.sync(None).unwrap();
    let file = fs.create(ROOT, b"file", &new_file(FileKind::Regular), at(2)).unwrap();
    fs.sync(Some(file)).unwrap();
    let stopped = fs.volume().clone();
    let lebs = 0..SMALL.1;
    let mut ram = stopped.clone();
    let highest = |node: &mut [u8]| node[8..16].fill(0xff);
    assert!(auth::rewrite(&mut ram, lebs.clone(), NodeKind::Inode, highest) > 0);
    let Err(error) = UbifsMut::open(ram) else { panic!("it can be written to") };
    assert!(error.to_string().contains("sequence numbers"), "{error}");
    // The number that an entry leads to.
    let mut ram = stopped;
    let highest = |node: &mut [u8]| node[40..48].fill(0xff);
    assert!(auth::rewrite(&mut ram, lebs, NodeKind::Entry, highest) > 0);
    if let Ok(mut fs) = UbifsMut::open(ram) {
        let new = fs.create(ROOT, b"new", &new_file(FileKind::Regular), at(3));
        assert_eq!(new, Err(FsError::NoSpace));
    }
}

/// A log may name every LEB, and nothing may be written in them.
#[test]
fn each_bud_is_looked_at_a_few_times() {
    use flysch_wire::ubifs::{Group, Node, Reference};
    const BUDS: u32 = 200;
    let (leb_size, lebs, unit) = (15_872, 400, 8);
    // Opened for writing once, it has grown to all LEBs.
    let mut fs = UbifsMut::open(empty((leb_size, lebs, unit), Compression::None)).unwrap();
    let file = fs.create(ROOT, b"file", &new_file(FileKind::Regular), at(2)).unwrap();
    fs.sync(Some(file)).unwrap();
    let mut ram = fs.volume().clone();
    let fs = Ubifs::open(&ram, &OpenOptions::default()).unwrap();
    let (log, main) = (fs.store.layout.log.start, fs.store.layout.main.end - BUDS);
    let mut leb = vec![0; leb_size as usize];
    let _ = ram.read(log, 0, &mut leb).unwrap();
    let mut end = leb.iter().rposition(|&byte| byte != 0xff).unwrap() + 1;
    for number in 0..BUDS {
        let node = Node::Reference(Reference { lnum: main + number, offset: 0, head: 2 });
        let place = &mut leb[end..end + node.size()];
        node.emit(1000 + u64::from(number), Group::None, place);
        end += node.size();
    }
    ram.change(log, &leb[..end]).unwrap();
    (main..main + BUDS).for_each(|lnum| ram.change(lnum, &[0xff; 8]).unwrap());
    let before = ram.reads.get();
    let fs = Ubifs::open(&ram, &OpenOptions::default()).unwrap();
    assert!(fs.buds().len() >= BUDS as usize);
    let reads = ram.reads.get() - before;
    assert!(reads < 5 * u64::from(BUDS), "{reads} reads");
}

#[test]
fn a_truncated_file_is_short() {
    let ram = empty(SMALL, Compression::Zstd);
    let mut fs = UbifsMut::open(ram).unwrap();
    let file = fs.create(ROOT, b"f", &new_file(FileKind::Regular), at(2)).unwrap();
    fs.write(file, 0, &[7; 20_000], at(3)).unwrap();
    fs.sync(None).unwrap();
    let cut = Changes { size: Some(5000), ..Changes::default() };
    fs.set_attributes(file, &cut, at(4)).unwrap();
    let longer = Changes { size: Some(9000), ..Changes::default() };
    fs.set_attributes(file, &longer, at(5)).unwrap();
    let mut expected = vec![7; 5000];
    expected.resize(9000, 0);
    assert_eq!(content(&fs, file), expected);
    fs.sync(Some(file)).unwrap();
    assert_sound(fs.volume(), "truncated, not committed");
    let ram = fs.close().unwrap();
    assert_sound(&ram, "truncated");
    let fs = UbifsMut::open(ram).unwrap();
    assert_eq!(content(&fs, file), expected);
}

#[test]
fn a_full_disk_takes_deletions_and_gets_empty() {
    let ram = empty(SMALL, Compression::None);
    let mut fs = UbifsMut::open(ram).unwrap();
    for round in 0..3 {
        let mut files = 0;
        let mut accepted = 0;
        'full: loop {
            let name = format!("{round}-{files}");
            let new = new_file(FileKind::Regular);
            let file = match fs.create(ROOT, name.as_bytes(), &new, at(2)) {
                Ok(file) => file,
                Err(FsError::NoSpace) => break,
                Err(error) => panic!("{error}"),
            };
            files += 1;
            for part in 0..3_u8 {
                match fs.write(file, u64::from(part) * 5000, &[part + 1; 5000], at(3)) {
                    Ok(5000) => accepted += 5000,
                    Ok(short) => {
                        accepted += short;
                        break 'full;
                    }
                    Err(FsError::NoSpace) => break 'full,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        fs.sync(None).unwrap();
        assert_sound(fs.volume(), "full");
        assert!(accepted > 300_000, "{accepted} bytes accepted in round {round}");
        for number in 0..files {
            let name = format!("{round}-{number}");
            let file = fs.lookup(ROOT, name.as_bytes()).unwrap();
            fs.remove(ROOT, name.as_bytes(), at(5)).unwrap();
            fs.forget(file).unwrap();
        }
    }
    let ram = fs.close().unwrap();
    assert_sound(&ram, "emptied");
}

/// An inode has 160 bytes: 20 of them are less than a block.
#[test]
fn a_waiting_inode_takes_its_own_bytes_from_the_free_space() {
    let mut fs = UbifsMut::open(empty(SMALL, Compression::None)).unwrap();
    let files: Vec<_> = (0..20)
        .map(|number: u32| {
            let name = number.to_string();
            fs.create(ROOT, name.as_bytes(), &new_file(FileKind::Regular), at(2)).unwrap()
        })
        .collect();
    fs.sync(None).unwrap();
    let free = fs.statistics().blocks_free;
    let later = Changes { permissions: Some(0o600), ..Changes::default() };
    files.iter().for_each(|file| fs.set_attributes(*file, &later, at(3)).unwrap());
    let waiting = fs.statistics().blocks_free;
    assert!(free > 20 && (free - 1..=free).contains(&waiting), "{free}, then {waiting} blocks");
}

/// A LEB in use at the commit whose content the journal replaced is emptied to be written again.
/// Each of these states may be the last one on the flash.
#[test]
fn a_leb_that_was_emptied_and_not_yet_used_again_is_no_damage() {
    let mut fs = UbifsMut::open(empty(SMALL, Compression::None)).unwrap();
    let file = fs.create(ROOT, b"file", &new_file(FileKind::Regular), at(2)).unwrap();
    fs.write(file, 0, &[1; 100_000], at(3)).unwrap();
    let mut fs = UbifsMut::open(fs.close().unwrap()).unwrap();
    fs.write(file, 0, &[2; 100_000], at(4)).unwrap();
    fs.sync(Some(file)).unwrap();
    let ram = fs.volume().clone();
    let sound = |ram: &Ram| {
        let Ok(fs) = Ubifs::open(ram, &OpenOptions::default()) else { return false };
        fs.check().iter().all(|it| it.severity == Severity::Note)
            && fs.lookup(ROOT, b"file").is_ok_and(|file| content(&fs, file) == [2; 100_000])
    };
    let mut emptied = 0;
    for lnum in 0..SMALL.1 {
        let mut ram = ram.clone();
        if ram.state(lnum) != LebState::Unmapped {
            ram.unmap(lnum).unwrap();
            if sound(&ram) {
                ram.map(lnum).unwrap();
                assert_sound(&ram, &format!("LEB {lnum}"));
                emptied += 1;
            }
        }
    }
    assert_ne!(emptied, 0);
}

#[test]
fn a_file_system_grows_with_its_volume() {
    let mut ram = Ram::new(15_872, 40, 512);
    let options = CreateOptions::new(512, 15_872, 90);
    format(&mut ram, &options, &NewInode::directory(at(1))).unwrap();
    let before = UbifsMut::open(ram.clone()).unwrap();
    let (lebs, blocks) = (before.superblock().leb_count, before.statistics().blocks);
    assert_eq!(lebs, 40);
    ram.grow(200);
    let mut fs = UbifsMut::open(ram).unwrap();
    assert_eq!(fs.superblock().leb_count, 90, "as far as it may");
    assert!(fs.statistics().blocks > blocks * 2);
    let file = fs.create(ROOT, b"f", &new_file(FileKind::Regular), at(2)).unwrap();
    assert_eq!(fs.write(file, 0, &vec![1; 600_000], at(3)), Ok(600_000));
    let ram = fs.close().unwrap();
    assert_sound(&ram, "grown");
    assert_eq!(content(&UbifsMut::open(ram).unwrap(), file), vec![1; 600_000]);
}

#[test]
fn a_cut_while_growing_grows_the_next_time() {
    for cut in 0..6 {
        let mut ram = Ram::new(15_872, 40, 512);
        let options = CreateOptions::new(512, 15_872, 90);
        format(&mut ram, &options, &NewInode::directory(at(1))).unwrap();
        ram.grow(200);
        ram.cut_in = Some(cut);
        let _ = UbifsMut::open(&mut ram);
        ram.power_up(cut);
        assert_sound(&ram, "cut while growing");
        let fs = UbifsMut::open(ram).unwrap();
        assert_eq!(fs.superblock().leb_count, 90);
        assert_sound(&fs.close().unwrap(), "grown after a cut");
    }
}

#[test]
fn free_space_is_fixed_up_once() {
    let mut ram = Ram::new(15_872, 40, 512);
    let options = CreateOptions { space_fixup: true, ..CreateOptions::new(512, 15_872, 40) };
    format(&mut ram, &options, &NewInode::directory(at(1))).unwrap();
    // A simple flasher programs every LEB in full.
    let mut whole = vec![0; 15_872];
    for lnum in 0..40 {
        let _ = ram.read(lnum, 0, &mut whole).unwrap();
        ram.change(lnum, &whole).unwrap();
    }
    let mut fs = UbifsMut::open(ram).unwrap();
    let fixup = flysch_wire::ubifs::SuperblockFlags::SPACE_FIXUP;
    assert!(!fs.superblock().flags.contains(fixup));
    // The volume refuses to program twice.
    fs.create(ROOT, b"f", &new_file(FileKind::Regular), at(2)).unwrap();
    fs.sync(None).unwrap();
    assert_sound(&fs.close().unwrap(), "fixed up");
}

#[test]
fn what_cannot_be_written_is_refused_with_the_reason() {
    use flysch_wire::ubifs::{Group, Node, SUPERBLOCK_NODE_SIZE, SuperblockFlags};
    for flag in [SuperblockFlags::AUTHENTICATION, SuperblockFlags(1 << 20)] {
        let mut ram = empty(SMALL, Compression::None);
        let reader = Ubifs::open(&ram, &OpenOptions::default()).unwrap();
        let mut superblock = *reader.superblock();
        superblock.flags.0 |= flag.0;
        let mut bytes = [0; SUPERBLOCK_NODE_SIZE];
        Node::Superblock(superblock).emit(1, Group::None, &mut bytes);
        ram.change(0, &bytes).unwrap();
        let error = UbifsMut::open(ram).unwrap_err();
        assert!(matches!(error, crate::UbifsMountError::ReadOnly(_)), "{error}");
    }
}

/// A master node whose heads point nowhere, and nodes in use where there is no room for them:
/// nothing is written based on them, and nothing panics.
#[test]
fn what_contradicts_itself_is_refused() {
    use flysch_wire::ubifs::{Group, MASTER_NODE_SIZE, Master, Node};
    let good = empty(SMALL, Compression::None);
    let chosen = Ubifs::open(&good, &OpenOptions::default()).unwrap().master.unwrap();
    let changes: [fn(&mut Master); 2] =
        [|it| it.ihead_lnum = 65_525, |it| it.nhead_lnum = u32::MAX];
    for change in changes {
        let (mut ram, mut master) = (good.clone(), chosen.master);
        change(&mut master);
        let mut bytes = vec![0; MASTER_NODE_SIZE];
        Node::Master(master).emit(chosen.sequence, Group::None, &mut bytes);
        bytes.resize(512, 0);
        [1, 2].into_iter().for_each(|lnum| ram.change(lnum, &bytes).unwrap());
        let error = UbifsMut::open(ram).unwrap_err().to_string();
        assert!(error.contains("impossible value in field"), "{error}");
    }
    let main = Ubifs::open(&good, &OpenOptions::default()).unwrap().store.layout.main.clone();
    let at = |lnum, length| crate::location::Location { lnum, offset: 0, length };
    for at in [at(main.end, 8), at(0, 8), at(main.start, 1 << 20)] {
        let mut fs = UbifsMut::open(good.clone()).unwrap();
        fs.files.disk.space.acquire(at);
        let file = fs.create(ROOT, b"file", &new_file(FileKind::Regular), super::tests::at(2));
        assert!(matches!(file, Err(FsError::Damaged { .. })), "{file:?}");
        assert!(matches!(fs.files.disk.commit(), Err(FsError::Damaged { .. })));
    }
}

/// The attributes of a deleted file go with it, even if the LEB with their names was erased before
/// power was lost: replay cannot look them up.
#[test]
fn attributes_of_deleted_files_do_not_outlive_them() {
    for is_late in [false, true] {
        let mut fs = UbifsMut::open(empty(SMALL, Compression::None)).unwrap();
        let new = new_file(FileKind::Regular);
        let files: Vec<_> = (0..80)
            .map(|number| {
                let name = format!("file {number}");
                let file = fs.create(ROOT, name.as_bytes(), &new, at(2)).unwrap();
                fs.set_xattr(file, b"user.x", XattrChange::Set(&[7; 40]), at(2)).unwrap();
                (name, file)
            })
            .collect();
        let mut fs = UbifsMut::open(fs.close().unwrap()).unwrap();
        for (name, file) in &files {
            fs.remove(ROOT, name.as_bytes(), at(3)).unwrap();
            if is_late {
                fs.sync(None).unwrap();
            }
            fs.forget(*file).unwrap();
        }
        fs.files.disk.sync_heads().unwrap();
        let idle = |(lnum, leb): (u32, &super::space::Leb)| {
            (leb.is_available() && leb.free < SMALL.0).then_some(lnum)
        };
        let idle: Vec<u32> = fs.files.disk.space.lebs().filter_map(idle).collect();
        assert!(is_late || idle.len() > 1, "{idle:?}");
        for lnum in idle {
            fs.files.disk.fs.store.access.unmap_leb(lnum).unwrap();
        }
        assert_sound(fs.volume(), "attributes of deleted files");
        let ram = UbifsMut::open(fs.volume().clone()).unwrap().close().unwrap();
        assert_sound(&ram, "recovered");
    }
}

/// A superblock may contain any value; inodes with an unknown one could not be read.
#[test]
fn a_compressor_that_nobody_knows_is_not_passed_on() {
    let mut fs = UbifsMut::open(empty((16 << 10, 40, 512), Compression::Zstd)).unwrap();
    fs.files.disk.fs.store.superblock.default_compression = 1024;
    let file = fs.create(ROOT, b"file", &new_file(FileKind::Regular), at(2)).unwrap();
    assert_eq!(fs.write(file, 0, &[7; 9000], at(3)), Ok(9000));
    let ram = fs.close().unwrap();
    let fs = Ubifs::open(&ram, &OpenOptions::default()).unwrap();
    assert_eq!(fs.check().iter().map(ToString::to_string).collect::<Vec<_>>(), [""; 0]);
}

//! Damage to good file systems, and its repair.
//!
//! The prepared images of the mtd-utils test suite are not part of the project (GPL-2.0):
//! `FLYSCH_UBIFS_IMAGES` names a directory with their `.gz` files and `expected.tsv`.

use std::format;
use std::path::Path;
use std::process::Command;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use flysch_api::finding::Severity;
use flysch_api::flash::{Corrected, FlashError};
use flysch_api::vfs::{
    FileKind, FileSystem, FileSystemMut, Inode, NewFile, Timestamp, XattrChange,
};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_random::SplitMix64;
use flysch_wire::ubifs::{
    Compression, Group, Header, Node, NodeKind, SUPERBLOCK_NODE_SIZE, Superblock,
};

use super::{Level, RepairError, repair, survey};
use crate::create::{CreateOptions, NewInode, format};
use crate::{OpenOptions, Ubifs, UbifsMut};

/// LEBs in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    pub(super) leb_size: u32,
    pub(super) lebs: Vec<Option<Vec<u8>>>,
}

impl Volume for Memory {
    fn geometry(&self) -> VolumeGeometry {
        VolumeGeometry { leb_size: self.leb_size, lebs: self.lebs.len() as u32, write_size: None }
    }

    fn state(&self, lnum: u32) -> LebState {
        match self.lebs.get(lnum as usize) {
            Some(Some(_)) => LebState::Mapped(None),
            _ => LebState::Unmapped,
        }
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let leb = self.lebs.get(lnum as usize).ok_or(FlashError::OutOfRange)?;
        match leb {
            Some(bytes) => buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]),
            None => buffer.fill(0xff),
        }
        Ok(Corrected::NONE)
    }
}

impl VolumeMut for Memory {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        let size = self.leb_size as usize;
        let leb = self.lebs[lnum as usize].get_or_insert_with(|| vec![0xff; size]);
        let out = &mut leb[offset as usize..][..data.len()];
        assert!(out.iter().all(|&byte| byte == 0xff), "LEB {lnum} offset {offset} twice");
        out.copy_from_slice(data);
        Ok(())
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        let mut leb = data.to_vec();
        leb.resize(self.leb_size as usize, 0xff);
        self.lebs[lnum as usize] = Some(leb);
        Ok(())
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.lebs[lnum as usize] = None;
        Ok(())
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.lebs[lnum as usize] = Some(vec![0xff; self.leb_size as usize]);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

pub(super) const NOW: u64 = 1_700_000_000;
pub(super) const ROOT: Inode = Inode(1);

/// Asserts that the check finds nothing but notes.
pub(super) fn assert_sound(memory: &Memory, what: &str) {
    let fs = Ubifs::open(memory, &OpenOptions::default()).unwrap();
    let damage: Vec<_> =
        fs.check().into_iter().filter(|it| it.severity != Severity::Note).collect();
    assert!(damage.is_empty(), "{what}: {damage:#?}");
}

pub(super) fn content(fs: &impl FileSystem, path: &str) -> Option<Vec<u8>> {
    let inode = path.split('/').try_fold(ROOT, |at, name| fs.lookup(at, name.as_bytes()).ok())?;
    let mut bytes = vec![0; fs.attributes(inode).ok()?.size as usize];
    fs.read(inode, 0, &mut bytes).ok()?;
    Some(bytes)
}

fn new_file(kind: FileKind) -> NewFile<'static> {
    let (permissions, device) = (0o755, Default::default());
    NewFile { kind, permissions, owner: 1, group: 2, device, target: b"" }
}

/// A file system with forty files of several blocks in four directories.
pub(super) fn filled() -> Memory {
    filled_over(64)
}

/// The same over this many LEBs; it may grow to 64.
fn filled_over(lebs: usize) -> Memory {
    let mut memory = Memory { leb_size: 15_872, lebs: vec![None; lebs] };
    let options = CreateOptions::new(512, 15_872, 64);
    let now = Timestamp { seconds: 1, nanoseconds: 0 };
    format(&mut memory, &options, &NewInode::directory(now)).unwrap();
    let mut fs = UbifsMut::open(memory).unwrap();
    for directory in 0..4 {
        let name = format!("d{directory}");
        let at = fs.create(ROOT, name.as_bytes(), &new_file(FileKind::Directory), now).unwrap();
        for file in 0..10 {
            let name = format!("f{file}");
            let inode = fs.create(at, name.as_bytes(), &new_file(FileKind::Regular), now).unwrap();
            fs.write(inode, 0, &bytes(directory, file), now).unwrap();
            fs.set_xattr(inode, b"user.x", XattrChange::Set(b"value"), now).unwrap();
        }
    }
    fs.close().unwrap()
}

pub(super) fn bytes(directory: u32, file: u32) -> Vec<u8> {
    (0..9000_u32).map(|n| (n * 7 + directory * 31 + file) as u8).collect()
}

pub(super) fn assert_whole(memory: &Memory, what: &str) {
    let fs = Ubifs::open(memory, &OpenOptions::default()).unwrap();
    for (directory, file) in (0..40).map(|n| (n / 10, n % 10)) {
        let path = format!("d{directory}/f{file}");
        assert_eq!(content(&fs, &path), Some(bytes(directory, file)), "{what}: {path}");
    }
}

#[test]
fn what_is_clean_is_not_touched() {
    let memory = filled();
    let (after, report) = repair(memory.clone(), Level::DangerRebuild, NOW).unwrap();
    assert_eq!((report.level, after == memory), (None, true));
}

/// The first bytes of each LEB of log, LEB properties, master node and index are destroyed in turn.
#[test]
fn a_lost_log_tree_or_index_costs_no_file() {
    let good = filled();
    let layout = Ubifs::open(&good, &OpenOptions::default()).unwrap().store.layout.clone();
    let mut levels = Vec::new();
    for lnum in 1..layout.main.end {
        let mut memory = good.clone();
        let Some(leb) = &mut memory.lebs[lnum as usize] else { continue };
        let is_index = leb[20] == 9;
        if layout.main.contains(&lnum) && !is_index {
            continue;
        }
        leb[..600].fill(0x5a);
        let level = survey(&memory).unwrap().level;
        levels.push(level);
        let (memory, _) = repair(memory, Level::DangerRebuild, NOW).unwrap();
        assert_sound(&memory, &format!("LEB {lnum}"));
        assert_whole(&memory, &format!("LEB {lnum}, {level:?}"));
        let again = UbifsMut::open(memory).unwrap().close().unwrap();
        assert_whole(&again, "written to again");
    }
    assert!(levels.contains(&Some(Level::Safe)) && levels.contains(&Some(Level::DangerRebuild)));
}

/// An image made to be flashed is shorter than the volume: the new index lies behind its end, so
/// the superblock has to count those LEBs.
#[test]
fn a_file_system_without_a_master_node_grows_for_its_new_index() {
    let mut memory = filled_over(50);
    memory.lebs.resize(64, None);
    for lnum in [1, 2] {
        memory.lebs[lnum] = None;
    }
    assert_eq!(survey(&memory).unwrap().level, Some(Level::DangerRebuild));
    let (memory, _) = repair(memory, Level::DangerRebuild, NOW).unwrap();
    assert_sound(&memory, "repaired");
    assert_whole(&memory, "repaired");
    let again = UbifsMut::open(memory).unwrap().close().unwrap();
    assert_whole(&again, "written to again");
}

/// The key of a branch names an inode that does not exist: the index lacks an inode that names lead
/// to, but the node itself is good.
#[test]
fn an_inode_that_the_index_has_under_another_number_is_found() {
    let mut fs = UbifsMut::open(filled()).unwrap();
    let now = Timestamp { seconds: 2, nanoseconds: 0 };
    let gone = fs.create(ROOT, b"gone", &new_file(FileKind::Regular), now).unwrap();
    let late = fs.create(ROOT, b"late", &new_file(FileKind::Directory), now).unwrap();
    let file = fs.create(late, b"file", &new_file(FileKind::Regular), now).unwrap();
    fs.write(file, 0, b"content", now).unwrap();
    fs.remove(ROOT, b"gone", now).unwrap();
    fs.forget(gone).unwrap();
    let mut memory = fs.close().unwrap();
    let key = |inode: Inode| (inode.0).to_le_bytes();
    let branches: usize =
        memory.lebs.iter_mut().flatten().map(|leb| refile(leb, key(late), key(gone))).sum();
    assert!(branches > 0);
    let report = survey(&memory).unwrap();
    assert_eq!(report.level, Some(Level::DangerRebuild), "{report:?}");
    let (memory, _) = repair(memory, Level::DangerRebuild, NOW).unwrap();
    assert_sound(&memory, "repaired");
    assert_whole(&memory, "repaired");
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    assert_eq!(content(&fs, "late/file").as_deref(), Some(&b"content"[..]));
}

/// Changes a key in all index nodes of a LEB and corrects their checksums; returns how often.
fn refile(leb: &mut [u8], old: [u8; 8], new: [u8; 8]) -> usize {
    const BRANCH: usize = 20;
    let mut changed = 0;
    for at in (0..leb.len()).step_by(8) {
        let Ok(header) = Header::parse(&leb[at..]) else { continue };
        if header.kind != NodeKind::Index {
            continue;
        }
        let node = &mut leb[at..at + header.length as usize];
        for branch in node[28..].chunks_exact_mut(BRANCH).filter(|it| it[12..] == old) {
            branch[12..].copy_from_slice(&new);
            changed += 1;
        }
        let crc = flysch_wire::ubifs::crc32(&node[8..]);
        node[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    changed
}

/// Truncated content does not come back with a new index.
#[test]
fn a_rebuild_leaves_truncated_files_short() {
    let mut fs = UbifsMut::open(filled()).unwrap();
    let now = Timestamp { seconds: 2, nanoseconds: 0 };
    let directory = fs.lookup(ROOT, b"d1").unwrap();
    let inode = fs.lookup(directory, b"f3").unwrap();
    let changes = flysch_api::vfs::Changes { size: Some(100), ..Default::default() };
    fs.set_attributes(inode, &changes, now).unwrap();
    let log_lebs = fs.superblock().log_lebs as usize;
    let mut memory = fs.close().unwrap();
    memory.lebs[3..3 + log_lebs].iter_mut().flatten().for_each(|leb| leb[..64].fill(4));
    let (memory, report) = repair(memory, Level::DangerRebuild, NOW).unwrap();
    assert_eq!(report.level, Some(Level::DangerRebuild));
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    assert_eq!(content(&fs, "d1/f3").unwrap(), bytes(1, 3)[..100]);
    assert_eq!(content(&fs, "d1/f4").unwrap(), bytes(1, 4));
}

#[test]
fn a_lower_level_says_what_it_takes_and_changes_nothing() {
    let mut memory = filled();
    memory.lebs[3..5].iter_mut().flatten().for_each(|leb| leb[..64].fill(4));
    let Err(RepairError::Level(report)) = repair(memory, Level::DangerDefault, NOW) else {
        panic!("a lost log takes more");
    };
    assert_eq!(report.level, Some(Level::DangerRebuild));
    assert!(report.changes.iter().any(|change| change.finding.structure == "log"));
}

/// Overwrites some bytes in some LEBs after the superblock.
pub(super) fn spoil(mut memory: Memory, random: &mut SplitMix64) -> Memory {
    let mut below = |bound: usize| random.below(bound as u64) as usize;
    for _ in 0..1 + below(6) {
        let lnum = 1 + below(memory.lebs.len() - 1);
        let Some(leb) = &mut memory.lebs[lnum] else { continue };
        let at = below(leb.len());
        let end = (at + 1 + below(600)).min(leb.len());
        let value = below(256) as u8;
        leb[at..end].iter_mut().for_each(|byte| *byte ^= value);
    }
    memory
}

/// A superblock that claims 2^30 LEBs: a check visits only those that exist.
#[test]
fn lebs_that_the_volume_does_not_have_cost_nothing() {
    let mut memory = filled();
    let superblock = *Ubifs::open(&memory, &OpenOptions::default()).unwrap().superblock();
    let (leb_count, leb_count_max) = (1 << 30, i32::MAX as u32);
    let claims = Superblock { leb_count, leb_count_max, ..superblock };
    let mut bytes = vec![0; SUPERBLOCK_NODE_SIZE];
    Node::Superblock(claims).emit(1, Group::None, &mut bytes);
    memory.change(0, &bytes).unwrap();
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    let told = fs.check().iter().any(|it| it.problem.contains("LEBs, but the volume has 64"));
    assert!(told, "{:#?}", fs.check());
    let fs =
        Ubifs::open(&memory, &OpenOptions { index: crate::IndexUse::Rebuild, keys: None }).unwrap();
    assert!(content(&fs, "d0/f0").is_some());
    assert!(matches!(survey(&memory), Err(RepairError::Unrepairable(_))));
}

/// Linux refuses to mount it; here its files can be read, and new ones are not compressed.
#[test]
fn a_compressor_that_nobody_knows_is_told_and_taken_out() {
    let mut memory = filled();
    let superblock = *Ubifs::open(&memory, &OpenOptions::default()).unwrap().superblock();
    for code in [4, 1024, u16::MAX] {
        let claims = Superblock { default_compression: code, ..superblock };
        let mut bytes = vec![0; SUPERBLOCK_NODE_SIZE];
        Node::Superblock(claims).emit(1, Group::None, &mut bytes);
        memory.change(0, &bytes).unwrap();
        let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
        let told = fs.check();
        let told: Vec<_> = told.iter().filter(|it| it.severity != Severity::Note).collect();
        let [told] = &told[..] else { panic!("{code}: {told:#?}") };
        assert_eq!((told.structure, told.place.leb), ("superblock", Some(0)), "{code}");
        assert!(told.problem.contains(&format!("default_compr is {code}")), "{told}");
        let mut fs = UbifsMut::open(memory.clone()).unwrap();
        let now = Timestamp { seconds: 2, nanoseconds: 0 };
        fs.create(ROOT, b"new", &new_file(FileKind::Regular), now).unwrap();
        fs.close().unwrap();
        let (mended, report) = repair(memory.clone(), Level::Safe, NOW).unwrap();
        assert_eq!(report.level, Some(Level::Safe));
        assert_sound(&mended, "repaired");
        let fs = Ubifs::open(&mended, &OpenOptions::default()).unwrap();
        assert_eq!(fs.superblock().default_compression, Compression::None.code());
        assert_eq!(content(&fs, "d3/f9"), Some(self::bytes(3, 9)));
    }
}

/// Arbitrary damage in any LEB: the repair ends, and what it leaves is sound.
#[test]
fn damage_anywhere_is_repaired_or_refused() {
    let good = filled();
    let mut random = SplitMix64::new(1);
    let mut repaired = 0;
    for round in 0..150 {
        let memory = spoil(good.clone(), &mut random);
        match repair(memory, Level::DangerRebuild, NOW) {
            Ok((memory, _)) => assert_sound(&memory, &format!("round {round}")),
            Err(error) => panic!("round {round}: {error}"),
        }
        repaired += 1;
    }
    assert_eq!(repaired, 150);
}

/// The only volume of a UBI image with blocks of 16 KiB and headers of 64 bytes.
fn volume_of(image: &[u8]) -> Memory {
    const PEB: usize = 16384;
    let word = |bytes: &[u8]| bytes.iter().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
    let mut memory = Memory { leb_size: 16256, lebs: vec![None; 20] };
    let mut newest = vec![0; memory.lebs.len()];
    for peb in image.chunks(PEB).filter(|peb| peb[64..68] == *b"UBI!") {
        let (volume, lnum) = (word(&peb[72..76]), word(&peb[76..80]) as usize);
        let sequence = word(&peb[104..112]) + 1;
        if volume == 0 && lnum < newest.len() && sequence > newest[lnum] {
            newest[lnum] = sequence;
            memory.lebs[lnum] = Some(peb[128..].to_vec());
        }
    }
    memory
}

/// Differences from the expected outcome, by the columns of expected.tsv.
fn compare(memory: &Memory, columns: &[&str], good: (&[u8], &[u8])) -> Vec<String> {
    let fs = Ubifs::open(memory, &OpenOptions::default()).unwrap();
    let mut wrong = Vec::new();
    let mut hold = |what: &str, column: usize, found: bool| {
        if found != (columns[column] == "1") {
            wrong.push(format!("{what} is {found}"));
        }
    };
    let xattr = |name: &[u8]| {
        let mut value = [0; 8];
        let inode = fs.lookup(ROOT, name).ok()?;
        let length = fs.read_xattr(inode, b"user.corrupt", &mut value).ok()?;
        Some(value[..length] == *b"123")
    };
    for (first, name) in [(2, "corrupt_file"), (5, "hardl_corrupt_file")] {
        let found = content(&fs, name);
        hold(&format!("{name} exists"), first, found.is_some());
        hold(&format!("{name} unchanged"), first + 1, found.as_deref() == Some(good.0));
        hold(&format!("{name} xattr"), first + 2, xattr(name.as_bytes()) == Some(true));
    }
    hold("symlink", 8, fs.lookup(ROOT, b"softl_corrupt_file").is_ok());
    let directory = fs.lookup(ROOT, b"dir");
    hold("dir", 9, directory.is_ok());
    if directory.is_ok() {
        hold("dir/file unchanged", 10, content(&fs, "dir/file").as_deref() == Some(good.1));
    }
    let found = fs.lookup(ROOT, b"lost+found").ok().map(|it| fs.attributes(it).unwrap().kind);
    let is = |name: &str, bytes: &[u8]| content(&fs, name).as_deref() == Some(bytes);
    let lost_found = match columns[11] {
        "no lost+found" => found.is_none(),
        "lost+found is regular" => found == Some(FileKind::Regular),
        "lost+found has one" => is("lost+found/INO_72_0", good.1),
        "lost+found has two" => {
            is("lost+found/INO_65_0", good.0) && is("lost+found/INO_72_0", good.1)
        }
        _ => content(&fs, "lost+found/INO_72_0").is_some() && is("lost+found/INO_72_1", good.1),
    };
    if !lost_found {
        wrong.push(format!("{} and not {found:?}", columns[11]));
    }
    wrong
}

#[test]
fn the_prepared_images_come_to_what_is_stated() {
    let Some(folder) = std::env::var_os("FLYSCH_UBIFS_IMAGES") else {
        std::eprintln!("skipped: FLYSCH_UBIFS_IMAGES names no directory");
        return;
    };
    let folder = Path::new(&folder);
    let image = |name: &str| {
        let path = folder.join(format!("{name}.gz"));
        volume_of(&Command::new("gzip").arg("-dc").arg(path).output().unwrap().stdout)
    };
    let good = image("good");
    let good = Ubifs::open(&good, &OpenOptions::default()).unwrap();
    let (file, other) = (content(&good, "corrupt_file").unwrap(), content(&good, "dir/file"));
    let good = (&file[..], &other.unwrap()[..]);
    let mut failures = Vec::new();
    let expected = std::fs::read_to_string(folder.join("expected.tsv")).unwrap();
    for line in expected.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let name = columns[0];
        let found = match survey(image(name)) {
            Ok(report) => report.level.map_or("safe", Level::name).replace('-', "_"),
            Err(RepairError::Unrepairable(_)) => "none".to_string(),
            Err(error) => format!("{error}"),
        };
        if found != columns[1] {
            failures.push(format!("{name}: level {found}, expected {}", columns[1]));
        }
        if columns[1] == "none" {
            std::println!("{name:<22}{found:<16}refused");
            continue;
        }
        match repair(image(name), Level::DangerRebuild, NOW) {
            Err(error) => failures.push(format!("{name}: {error}")),
            Ok((memory, report)) => {
                let wrong = compare(&memory, &columns, good);
                std::println!("{name:<22}{found:<16}{} changes {wrong:?}", report.changes.len());
                failures.extend(wrong.iter().map(|wrong| format!("{name}: {wrong}")));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

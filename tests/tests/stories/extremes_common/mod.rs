//! File systems at their limits: LEBs in memory that can refuse, filling up, emptying, churning.

pub(crate) mod refusal;
pub(crate) mod scale;
pub(crate) mod values;

use flysch_random::SplitMix64;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use flysch_api::flash::{Corrected, FlashError};
use flysch_api::vfs::{
    DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, Inode, NewFile, Timestamp,
};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};

/// LEBs in memory that enforce the rules of flash.
#[derive(Clone, Debug)]
pub(crate) struct Lebs {
    geometry: VolumeGeometry,
    /// Content, and where the written part ends.
    lebs: Vec<Option<(Vec<u8>, usize)>>,
    /// Number of writes and changes done.
    pub(crate) writes: u64,
    /// Shared with clones.
    pub(crate) faults: Arc<Mutex<Faults>>,
}

/// The faults to inject.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// After this many more writes, programming fails: no good block is left.
    pub(crate) worn_out_in: Option<u64>,
    /// Unreadable LEBs.
    pub(crate) unreadable: Vec<u32>,
}

impl Lebs {
    pub(crate) fn new(leb_size: u32, lebs: u32, unit: u32) -> Self {
        Self {
            geometry: VolumeGeometry { leb_size, lebs, write_size: Some(unit) },
            lebs: vec![None; lebs as usize],
            writes: 0,
            faults: Arc::default(),
        }
    }

    fn is_unreadable(&self, lnum: u32) -> bool {
        self.faults.lock().expect("nobody panicked").unreadable.contains(&lnum)
    }

    fn check(&self, lnum: u32, offset: u32, len: usize) -> Result<(), FlashError> {
        let unit = self.geometry.write_size.unwrap_or(1);
        if lnum >= self.geometry.lebs || offset as usize + len > self.geometry.leb_size as usize {
            return Err(FlashError::OutOfRange);
        }
        let aligned = offset.is_multiple_of(unit) && len.is_multiple_of(unit as usize);
        if aligned { Ok(()) } else { Err(FlashError::Misaligned) }
    }

    fn program(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.writes += 1;
        let offset = u64::from(lnum) * u64::from(self.geometry.leb_size);
        match &mut self.faults.lock().expect("nobody panicked").worn_out_in {
            Some(0) => Err(FlashError::ProgramFailed { offset }),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Volume for Lebs {
    fn geometry(&self) -> VolumeGeometry {
        self.geometry
    }

    fn state(&self, lnum: u32) -> LebState {
        match self.lebs.get(lnum as usize) {
            Some(Some(_)) => LebState::Mapped(None),
            _ => LebState::Unmapped,
        }
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        if lnum >= self.geometry.lebs
            || offset as usize + buffer.len() > self.geometry.leb_size as usize
        {
            return Err(FlashError::OutOfRange);
        }
        if self.is_unreadable(lnum) {
            let offset = u64::from(lnum) * u64::from(self.geometry.leb_size);
            return Err(FlashError::Uncorrectable { offset });
        }
        match &self.lebs[lnum as usize] {
            Some((bytes, _)) => buffer.copy_from_slice(&bytes[offset as usize..][..buffer.len()]),
            None => buffer.fill(0xff),
        }
        Ok(Corrected::NONE)
    }

    fn point(&self, lnum: u32, offset: u32, len: usize) -> Option<&[u8]> {
        if self.is_unreadable(lnum) {
            return None;
        }
        let (bytes, _) = self.lebs.get(lnum as usize)?.as_ref()?;
        bytes.get(offset as usize..offset as usize + len)
    }
}

impl VolumeMut for Lebs {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        self.check(lnum, offset, data.len())?;
        self.program(lnum)?;
        let size = self.geometry.leb_size as usize;
        let (bytes, end) = self.lebs[lnum as usize].get_or_insert_with(|| (vec![0xff; size], 0));
        assert!(*end <= offset as usize, "LEB {lnum} is programmed twice at {offset}");
        bytes[offset as usize..][..data.len()].copy_from_slice(data);
        *end = offset as usize + data.len();
        Ok(())
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        self.check(lnum, 0, data.len())?;
        self.program(lnum)?;
        let mut bytes = data.to_vec();
        bytes.resize(self.geometry.leb_size as usize, 0xff);
        self.lebs[lnum as usize] = Some((bytes, data.len()));
        Ok(())
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.check(lnum, 0, 0)?;
        self.lebs[lnum as usize] = None;
        Ok(())
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.check(lnum, 0, 0)?;
        self.program(lnum)?;
        assert!(self.lebs[lnum as usize].is_none(), "LEB {lnum} is mapped already");
        self.lebs[lnum as usize] = Some((vec![0xff; self.geometry.leb_size as usize], 0));
        Ok(())
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.bits()
    }

    /// A number below `limit`, which must not be 0.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0.modulo(limit)
    }

    /// Incompressible bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend(self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanoseconds: 0 }
}

pub(crate) fn new_file(kind: FileKind) -> NewFile<'static> {
    let device = DeviceNumber { major: 4, minor: 64 };
    let target: &[u8] = if kind == FileKind::Symlink { b"where/to" } else { b"" };
    NewFile { kind, permissions: 0o644, owner: 1000, group: 100, device, target }
}

pub(crate) fn regular(
    fs: &mut dyn FileSystemMut,
    directory: Inode,
    name: &str,
) -> Result<Inode, FsError> {
    fs.create(directory, name.as_bytes(), &new_file(FileKind::Regular), at(2))
}

/// A file and its expected content.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) name: String,
    pub(crate) inode: Inode,
    pub(crate) bytes: Vec<u8>,
}

/// Writes files of `size` incompressible bytes until there is no room; returns those accepted.
pub(crate) fn fill(fs: &mut dyn FileSystemMut, random: &mut Random, size: usize) -> Vec<Held> {
    let root = fs.statistics().root;
    let mut held: Vec<Held> = vec![];
    loop {
        let name = format!("fill{}", held.len());
        let inode = match regular(fs, root, &name) {
            Ok(inode) => inode,
            Err(FsError::NoSpace) => return held,
            Err(error) => panic!("{name}: {error}"),
        };
        held.push(Held { name, inode, bytes: vec![] });
        let file = held.last_mut().expect("one was pushed");
        while file.bytes.len() < size {
            let part = random.bytes((size - file.bytes.len()).min(64 << 10));
            match fs.write(inode, file.bytes.len() as u64, &part, at(3)) {
                Ok(done) => {
                    assert!(done > 0);
                    file.bytes.extend_from_slice(&part[..done]);
                    if done < part.len() {
                        return held;
                    }
                }
                Err(FsError::NoSpace) => return held,
                Err(error) => panic!("{}: {error}", file.name),
            }
        }
    }
}

/// Removes files, which must also work on a full file system.
pub(crate) fn remove(fs: &mut dyn FileSystemMut, files: &[Held]) {
    let root = fs.statistics().root;
    for file in files {
        let removed = fs.remove(root, file.name.as_bytes(), at(4));
        assert_eq!(removed, Ok(()), "{}", file.name);
        fs.forget(file.inode).expect("what has no name can go");
    }
}

pub(crate) fn content(fs: &dyn FileSystem, inode: Inode) -> Vec<u8> {
    let size = fs.attributes(inode).expect("it is there").size as usize;
    let mut bytes = vec![0xee; size];
    let mut done = 0;
    while done < size {
        let part = fs.read(inode, done as u64, &mut bytes[done..]).expect("it can be read");
        assert!(part > 0, "{done} of {size} bytes could be read");
        done += part;
    }
    bytes
}

/// Every file must have its expected content.
pub(crate) fn assert_held(fs: &dyn FileSystem, files: &[Held], what: &str) {
    let root = fs.statistics().root;
    for file in files {
        let inode = fs.lookup(root, file.name.as_bytes());
        assert_eq!(inode, Ok(file.inode), "{what}: {}", file.name);
        let found = content(fs, file.inode);
        assert_eq!(found.len(), file.bytes.len(), "{what}: length of {}", file.name);
        let differs = found.iter().zip(&file.bytes).position(|(found, wanted)| found != wanted);
        assert_eq!(differs, None, "{what}: {}", file.name);
    }
}

/// Free bytes according to `statfs`.
pub(crate) fn free(fs: &dyn FileSystem) -> u64 {
    let statistics = fs.statistics();
    statistics.blocks_free * u64::from(statistics.block_size)
}

pub(crate) fn total(held: &[Held]) -> u64 {
    held.iter().map(|file| file.bytes.len() as u64).sum()
}

/// The results of a churn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Churned {
    pub(crate) written: u64,
    pub(crate) full: u64,
    pub(crate) short: u64,
    pub(crate) truncated: u64,
    pub(crate) longest_us: u128,
}

/// Random writes of 1 to 5000 bytes into files that nearly fill the file system.
pub(crate) fn churn(
    fs: &mut dyn FileSystemMut,
    files: &mut [Held],
    random: &mut Random,
    steps: u64,
) -> Churned {
    let mut churned = Churned::default();
    if files.iter().all(|file| file.bytes.is_empty()) {
        return churned;
    }
    for _ in 0..steps {
        let number = random.below(files.len() as u64) as usize;
        let file = &mut files[number];
        let offset = random.below(file.bytes.len() as u64 + 1) as usize;
        let started = std::time::Instant::now();
        if random.below(200) == 0 && !file.bytes.is_empty() {
            let size = random.below((file.bytes.len() as u64).max(1));
            let changes = flysch_api::vfs::Changes { size: Some(size), ..Default::default() };
            let cut = fs.set_attributes(file.inode, &changes, at(5));
            assert_eq!(cut, Ok(()), "a file that gets shorter makes room");
            file.bytes.truncate(size as usize);
            churned.truncated += 1;
        } else {
            let wanted = 1 + random.below(5000) as usize;
            let data = random.bytes(wanted);
            match fs.write(file.inode, offset as u64, &data, at(6)) {
                Ok(done) => {
                    assert!(done > 0 && done <= data.len());
                    let end = (offset + done).max(file.bytes.len());
                    file.bytes.resize(end, 0);
                    file.bytes[offset..offset + done].copy_from_slice(&data[..done]);
                    churned.written += done as u64;
                    churned.short += u64::from(done < data.len());
                }
                Err(FsError::NoSpace) => churned.full += 1,
                Err(error) => panic!("{error}"),
            }
        }
        if random.below(500) == 0 {
            let inode = (random.below(2) == 0).then_some(file.inode);
            assert_eq!(fs.sync(inode), Ok(()), "what was accepted has room");
        }
        churned.longest_us = churned.longest_us.max(started.elapsed().as_micros());
    }
    assert_eq!(fs.sync(None), Ok(()), "what was accepted has room");
    churned
}

/// The names in a directory.
pub(crate) fn names(fs: &dyn FileSystem, directory: Inode) -> Vec<Vec<u8>> {
    let mut names = vec![];
    fs.list(directory, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        ControlFlow::Continue(())
    })
    .expect("it can be listed");
    names
}

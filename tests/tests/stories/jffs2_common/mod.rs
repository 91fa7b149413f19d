//! A strict flash in memory that fails and loses power on request; and the properties of a file
//! system that must be the same before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};
use flysch_api::vfs::{FileKind, FileSystem, Inode};

/// The shape of a chip: NAND with `oob` free bytes in each page if that is not 0, NAND without any
/// if `page` is not 1, otherwise NOR.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) erase_size: u32,
    pub(crate) blocks: u32,
    pub(crate) page: u32,
    pub(crate) oob: u32,
}

/// What a power cut leaves of a program or erase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Torn {
    /// Nothing of it.
    Nothing,
    /// The first half of it.
    Half,
    /// Some parts of it, anywhere.
    Some,
    /// All of it, but without an answer.
    All,
}

/// A chip. A clone is a second chip with the same contents.
#[derive(Clone, Debug)]
pub(crate) struct Chip {
    geometry: FlashGeometry,
    bytes: Vec<u8>,
    oob: Vec<u8>,
    bad: Vec<bool>,
    /// Torn pages, which error correction cannot correct.
    torn: BTreeSet<u64>,
    /// Number of programs and erases done.
    pub(crate) operations: u64,
    /// Power fails during this one, and leaves this much of it.
    pub(crate) cut: Option<(u64, Torn)>,
    is_off: bool,
    /// Blocks in which programs fail, and blocks in which erases fail.
    pub(crate) failing_programs: Vec<u32>,
    pub(crate) failing_erases: Vec<u32>,
    pub(crate) erases: Vec<u32>,
}

impl Chip {
    pub(crate) fn new(shape: Shape) -> Self {
        let size = u64::from(shape.erase_size) * u64::from(shape.blocks);
        let geometry = if shape.page == 1 {
            FlashGeometry::nor(size, shape.erase_size)
        } else {
            FlashGeometry {
                oob_size: shape.oob,
                oob_available: shape.oob,
                ..FlashGeometry::nand(size, shape.erase_size, shape.page, shape.page)
            }
        };
        let pages = size / u64::from(shape.page) * u64::from(shape.oob);
        Self {
            geometry,
            bytes: vec![0xFF; size as usize],
            oob: vec![0xFF; pages as usize],
            bad: vec![false; shape.blocks as usize],
            torn: BTreeSet::new(),
            operations: 0,
            cut: None,
            is_off: false,
            failing_programs: vec![],
            failing_erases: vec![],
            erases: vec![0; shape.blocks as usize],
        }
    }

    /// A chip with these contents.
    pub(crate) fn holding(shape: Shape, bytes: Vec<u8>) -> Self {
        let chip = Self::new(shape);
        assert_eq!(bytes.len(), chip.bytes.len());
        Self { bytes, ..chip }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn is_off(&self) -> bool {
        self.is_off
    }

    pub(crate) fn set_bad(&mut self, block: u32) {
        self.bad[block as usize] = true;
    }

    /// Power returns.
    pub(crate) fn power_up(mut self) -> Self {
        self.is_off = false;
        self.cut = None;
        self.operations = 0;
        self
    }

    /// Counts an operation; returns how much of it happens if power fails now.
    fn operate(&mut self) -> Result<Option<Torn>, FlashError> {
        if self.is_off {
            return Err(FlashError::PowerLost);
        }
        let now = self.operations;
        self.operations += 1;
        match self.cut {
            Some((at, torn)) if at == now => {
                self.is_off = true;
                Ok(Some(torn))
            }
            _ => Ok(None),
        }
    }
}

/// Which of `len` bytes survive the power cut.
fn survives(torn: Torn, at: usize, len: usize) -> bool {
    match torn {
        Torn::Nothing => false,
        Torn::Half => at < len / 2,
        Torn::Some => (at as u32).wrapping_mul(0x9E37_79B1) >> 31 == 0,
        Torn::All => true,
    }
}

impl Flash for Chip {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        let page = u64::from(self.geometry.write_size);
        let end = offset + buffer.len() as u64;
        match self.torn.range(offset / page * page..end).next() {
            Some(&offset) => Err(FlashError::Uncorrectable { offset }),
            None => Ok(Corrected::NONE),
        }
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        assert_eq!(mode, OobMode::Auto);
        if self.geometry.oob_size == 0 {
            return Err(FlashError::Unsupported);
        }
        let page = offset / u64::from(self.geometry.write_size);
        let at = (page * u64::from(self.geometry.oob_size)) as usize;
        buffer.copy_from_slice(&self.oob[at..][..buffer.len()]);
        Ok(Corrected::NONE)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.geometry.check_block(block)?;
        Ok(self.bad[block as usize])
    }
}

impl FlashMut for Chip {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let page = u64::from(self.geometry.write_size);
        assert!(offset.is_multiple_of(page) && (data.len() as u64).is_multiple_of(page));
        let block = self.geometry.block_of(offset);
        assert!(!self.bad[block as usize], "a bad block is left alone");
        let torn = self.operate()?;
        let start = self.geometry.block_start(block);
        let end = start + u64::from(self.geometry.erase_size);
        let rest = &self.bytes[offset as usize..end as usize];
        // Bytes are programmed once, and pages in order.
        let must_be_erased = if page > 1 { rest } else { &rest[..data.len()] };
        let is_erased = must_be_erased.iter().all(|&byte| byte == 0xFF);
        // A node on NOR is marked obsolete by clearing one bit of its type.
        let changes =
            must_be_erased.iter().zip(data).map(|(cell, byte)| (cell ^ byte).count_ones());
        let is_mark = page == 1 && data.len() == 4 && changes.sum::<u32>() <= 1;
        assert!(is_erased || is_mark, "programmed twice at {offset:#x}");
        let fails = self.failing_programs.contains(&block);
        let torn = if fails { Some(Torn::Some) } else { torn };
        // NOR programs one byte after the other, and the last one may get only some of its bits.
        let is_nor_torn = page == 1 && torn == Some(Torn::Some);
        for (at, byte) in data.iter().enumerate() {
            let cell = &mut self.bytes[offset as usize + at];
            if is_nor_torn {
                let last = data.len() * 3 / 4;
                *cell &= if at < last {
                    *byte
                } else if at == last {
                    byte | 0x5A
                } else {
                    0xFF
                };
            } else if torn.is_none_or(|torn| survives(torn, at, data.len())) {
                *cell &= byte;
            }
        }
        if self.geometry.oob_size > 0 && matches!(torn, Some(Torn::Half | Torn::Some)) {
            let pages = (offset..offset + data.len() as u64).step_by(page as usize);
            self.torn.extend(pages);
        }
        match (self.is_off, fails) {
            (true, _) => Err(FlashError::PowerLost),
            (_, true) => Err(FlashError::ProgramFailed { offset }),
            _ => Ok(()),
        }
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        assert_eq!(mode, OobMode::Auto);
        let torn = self.operate()?;
        let page = offset / u64::from(self.geometry.write_size);
        let at = (page * u64::from(self.geometry.oob_size)) as usize;
        for (number, byte) in data.iter().enumerate() {
            if torn.is_none_or(|torn| survives(torn, number, data.len())) {
                self.oob[at + number] &= byte;
            }
        }
        if self.is_off { Err(FlashError::PowerLost) } else { Ok(()) }
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        assert!(!self.bad[block as usize], "a bad block is left alone");
        let torn = self.operate()?;
        let size = self.geometry.erase_size as usize;
        let start = block as usize * size;
        if self.failing_erases.contains(&block) {
            return Err(FlashError::EraseFailed { block });
        }
        for (at, byte) in self.bytes[start..start + size].iter_mut().enumerate() {
            // All cells are erased at once, but not equally.
            *byte |= match torn {
                Some(Torn::Half) => 0xF0,
                Some(torn) if !survives(torn, at, size) => 0,
                _ => 0xFF,
            };
        }
        let range = start as u64..(start + size) as u64;
        // A torn page stays torn while anything of it is left.
        if torn.is_none_or(|torn| torn == Torn::All) {
            self.torn.retain(|page| !range.contains(page));
        }
        let pages = self.geometry.pages_per_block() as usize;
        let oob = pages * self.geometry.oob_size as usize;
        if torn.is_none_or(|torn| torn != Torn::Nothing) {
            self.oob[block as usize * oob..][..oob].fill(0xFF);
        }
        self.erases[block as usize] += 1;
        if self.is_off { Err(FlashError::PowerLost) } else { Ok(()) }
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        if !self.geometry.kind.is_nand() {
            return Err(FlashError::Unsupported);
        }
        self.bad[block as usize] = true;
        Ok(())
    }
}

/// A file as it was at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    kind: FileKind,
    attributes: (u16, u32, u32),
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All files, by path.
pub(crate) type Snapshot = BTreeMap<Vec<u8>, Seen>;

pub(crate) fn snapshot(fs: &dyn FileSystem) -> Snapshot {
    let mut all = BTreeMap::new();
    let root = fs.statistics().root;
    let mut open = vec![(vec![], root)];
    while let Some((path, inode)) = open.pop() {
        let seen = seen(fs, inode).unwrap_or_else(|error| {
            panic!("{}: {error}", path.escape_ascii());
        });
        if seen.kind == FileKind::Directory {
            fs.list(inode, 0, &mut |entry| {
                open.push(([&path[..], b"/", entry.name].concat(), entry.inode));
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        all.insert(path, seen);
    }
    all
}

fn seen(fs: &dyn FileSystem, inode: Inode) -> Result<Seen, flysch_api::vfs::FsError> {
    let attributes = fs.attributes(inode)?;
    let mut content = vec![];
    if matches!(attributes.kind, FileKind::Regular | FileKind::Symlink) {
        content.resize(attributes.size as usize, 0);
        let mut at = 0;
        while at < content.len() {
            // If something is damaged, a read that starts there fails.
            at += fs.read(inode, at as u64, &mut content[at..])?;
        }
    }
    let (mut names, mut xattrs) = (vec![], BTreeMap::new());
    fs.list_xattrs(inode, &mut |name| names.push(name.to_vec()))?;
    for name in names {
        let mut value = vec![0; 1 << 16];
        let len = fs.read_xattr(inode, &name, &mut value)?;
        xattrs.insert(name, value[..len].to_vec());
    }
    let kind = attributes.kind;
    let attributes = (attributes.permissions, attributes.owner, attributes.group);
    Ok(Seen { kind, attributes, content, xattrs })
}

/// The parts of `found` that are neither as before a change, nor as after it, nor in between.
pub(crate) fn between(before: &Snapshot, after: &Snapshot, found: &Snapshot) -> Vec<String> {
    let mut wrong = vec![];
    let mut paths: Vec<&Vec<u8>> = before.keys().chain(after.keys()).chain(found.keys()).collect();
    paths.sort();
    paths.dedup();
    for path in paths {
        let (old, new, now) = (before.get(path), after.get(path), found.get(path));
        if now == old || now == new {
            continue;
        }
        let text = path.escape_ascii();
        match (old, new, now) {
            (_, _, None) => wrong.push(format!("{text} is gone")),
            (None, None, Some(_)) => wrong.push(format!("{text} was never there")),
            (_, _, Some(now)) if !on_the_way(old, new, now) => {
                wrong.push(format!("{text} is neither old nor new"));
            }
            _ => {}
        }
    }
    wrong
}

fn on_the_way(old: Option<&Seen>, new: Option<&Seen>, now: &Seen) -> bool {
    let ends: Vec<&Seen> = old.into_iter().chain(new).collect();
    let is_one = |what: &dyn Fn(&Seen) -> bool| ends.iter().any(|seen| what(seen));
    let least = ends.iter().map(|seen| seen.content.len()).min().unwrap_or(0);
    let most = ends.iter().map(|seen| seen.content.len()).max().unwrap_or(0);
    let byte = |(at, byte): (usize, &u8)| {
        // A file that is extended may have zeros first.
        is_one(&|seen| seen.content.get(at) == Some(byte)) || (at >= least && *byte == 0)
    };
    is_one(&|seen| seen.kind == now.kind)
        && is_one(&|seen| seen.attributes == now.attributes)
        && (least..=most).contains(&now.content.len())
        && now.content.iter().enumerate().all(byte)
        && now
            .xattrs
            .iter()
            .all(|(name, value)| is_one(&|seen| seen.xattrs.get(name) == Some(value)))
}

//! Nodes that cannot be read any more when their block is collected.

use core::ops::Range;

use flysch_api::vfs::FsError;
use flysch_wire::jffs2::Inode as InodeNode;

use super::*;
use crate::found::Address;
use crate::{Jffs2, Jffs2MountError};

/// A flash with bytes that error correction cannot repair, or that the system does not give.
#[derive(Clone)]
struct Fading {
    flash: Nor,
    lost: Range<usize>,
    /// How many reads of these bytes fail.
    left: Arc<AtomicU64>,
    refuses: bool,
}

impl Fading {
    fn mount(self) -> Jffs2Mut<Self> {
        let options = WriteOptions { compressors: Compressors::none(), ..WriteOptions::default() };
        Jffs2Mut::mount(self, &options).unwrap()
    }
}

impl Flash for Fading {
    fn geometry(&self) -> &FlashGeometry {
        &self.flash.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let _corrected = self.flash.read(offset, buffer)?;
        let start = offset as usize;
        let wrong = self.lost.start.max(start)..self.lost.end.min(start + buffer.len());
        let less = |left: u64| left.checked_sub(1);
        if wrong.is_empty()
            || self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
        {
            return Ok(Corrected::NONE);
        }
        if self.refuses {
            return Err(FlashError::Os(EIO));
        }
        wrong.for_each(|at| buffer[at - start] ^= 0x11);
        Err(FlashError::Uncorrectable { offset })
    }
}

impl FlashMut for Fading {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.flash.program(offset, data)
    }

    fn program_oob(&mut self, at: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.flash.program_oob(at, mode, data)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash.erase(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash.mark_bad(block)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

/// The parts of a node that may be unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    Fixed,
    Data,
}

impl Part {
    fn of(self, node: Address) -> Range<usize> {
        let at = node.offset() as usize;
        match self {
            Self::Header => at..at + 4,
            Self::Fixed => at + 16..at + 20,
            Self::Data => at + InodeNode::LEN + 8..at + InodeNode::LEN + 12,
        }
    }
}

/// Linux's number for what a device cannot read.
const EIO: i32 = 5;

/// A flash with a file that was written over and a file that was removed, all in one block, and the
/// nodes that say so: the newer content, and the removal. Both files are called by these names.
const OVER: &[u8] = b"over";
const GONE: &[u8] = b"gone";

fn written() -> (Jffs2Mut<Fading>, Address, Address) {
    let left = Arc::new(AtomicU64::new(0));
    let mut fs = Fading { flash: Nor::new(8), lost: 0..0, left, refuses: false }.mount();
    let root = fs.statistics().root;
    let over = create(&mut fs, OVER);
    fs.write(over, 0, &[b'o'; 600], NOW).unwrap();
    fs.write(over, 0, &[b'n'; 600], NOW).unwrap();
    let gone = create(&mut fs, GONE);
    fs.remove(root, GONE, NOW).unwrap();
    fs.forget(gone).unwrap();
    // So that the removal is not the newest entry, and the block is full.
    let rest = create(&mut fs, b"rest");
    for _ in 0..12 {
        fs.write(rest, 0, &noise(1000), NOW).unwrap();
    }
    fs.sync(None).unwrap();
    let tables = fs.inodes().tables();
    let newer = tables.inodes[&(over.0 as u32)].living().last().unwrap().address;
    let root = tables.inodes[&1].directory.as_ref().unwrap();
    let removal = root.entry(GONE).unwrap().address;
    let block = |address| fs.inodes().log().blocks.place(address).0;
    assert_eq!((block(newer), block(removal)), (0, 0));
    assert_eq!(fs.inodes().log().blocks.blocks[0].state, State::Closed);
    (fs, newer, removal)
}

/// Collects until the first block is erased, or is not to be; then every other block can be.
fn collect(fs: &mut Jffs2Mut<Fading>) {
    for _ in 0..200 {
        let _any = fs.files.collector.collect().unwrap();
    }
    fs.sync(None).unwrap();
}

/// What is read of the file that was written over.
fn over(fs: &Jffs2Mut<Fading>) -> Result<u8, FsError> {
    let inode = fs.lookup(fs.statistics().root, OVER).unwrap();
    let mut bytes = [0; 600];
    let len = fs.read(inode, 0, &mut bytes)?;
    assert!(len == 600 && bytes.iter().all(|byte| *byte == bytes[0]));
    Ok(bytes[0])
}

/// The same flash, on which these bytes cannot be read this many times.
fn lose(fs: Jffs2Mut<Fading>, lost: Range<usize>, times: u64) -> Jffs2Mut<Fading> {
    // A mount reads the page well.
    let fs = Fading { lost, left: Arc::new(AtomicU64::new(0)), ..fs.into_flash() }.mount();
    fs.flash().left.store(times, Ordering::Relaxed);
    fs
}

#[test]
fn a_node_that_cannot_be_read_is_not_collected() {
    for part in [Part::Header, Part::Fixed, Part::Data] {
        let (fs, newer, _) = written();
        let mut fs = lose(fs, part.of(newer), u64::MAX);
        collect(&mut fs);
        let blocks = &fs.inodes().log().blocks;
        assert_eq!(blocks.blocks[0].unreadable, Some(newer.offset() as u32), "{part:?}");
        assert!(blocks.available() > 3, "{part:?}: other blocks are collected");
        assert!(matches!(over(&fs), Err(FsError::Damaged { .. })), "{part:?}");
        let flash = fs.into_flash();
        if part == Part::Data {
            let fs = flash.clone().mount();
            assert!(matches!(over(&fs), Err(FsError::Damaged { .. })), "{part:?}");
        }
        // It reads well again.
        let fs = Fading { lost: 0..0, ..flash }.mount();
        assert_eq!(over(&fs), Ok(b'n'), "{part:?}");
    }
}

#[test]
fn a_block_is_collected_when_what_cannot_be_read_in_it_does_not_count_any_more() {
    let (fs, newer, _) = written();
    let mut fs = lose(fs, Part::Data.of(newer), u64::MAX);
    collect(&mut fs);
    assert!(fs.inodes().log().blocks.blocks[0].unreadable.is_some());
    let inode = fs.lookup(fs.statistics().root, OVER).unwrap();
    fs.write(inode, 0, &[b'x'; 600], NOW).unwrap();
    collect(&mut fs);
    assert!(fs.flash().flash.is_erased(0));
    assert_eq!(over(&fs.into_flash().mount()), Ok(b'x'));
}

#[test]
fn a_removed_file_does_not_return_because_its_removal_cannot_be_read() {
    let (fs, _, removal) = written();
    let mut fs = lose(fs, Part::Header.of(removal), u64::MAX);
    collect(&mut fs);
    assert!(!fs.flash().flash.is_erased(0));
    let fs = Fading { lost: 0..0, ..fs.into_flash() }.mount();
    assert_eq!(fs.lookup(fs.statistics().root, GONE), Err(FsError::NotFound));
}

#[test]
fn a_node_that_is_read_well_at_last_is_copied() {
    let (fs, newer, _) = written();
    let mut fs = lose(fs, Part::Header.of(newer), 0);
    let address = fs.inodes().log().blocks.address(0, newer.offset() as u32);
    let raws = &fs.inodes().log().blocks.blocks[0].raws;
    let raw = *raws.iter().find(|raw| raw.at == newer.offset() as u32).unwrap();
    fs.flash().left.store(2, Ordering::Relaxed);
    let before = fs.activity().moved;
    fs.files.collector.copy_out(address, &raw).unwrap();
    assert_eq!(fs.activity().moved, before + 1);
    assert_eq!(fs.inodes().log().blocks.blocks[0].unreadable, None);
    assert_eq!(over(&fs), Ok(b'n'));
}

#[test]
fn a_directory_keeps_a_node_that_could_not_be_read_when_it_was_first_asked_for() {
    let (fs, ..) = written();
    let mut fs = fs.into_flash().mount();
    let root = fs.statistics().root;
    for permissions in [0o700, 0o711] {
        let changes = Changes { permissions: Some(permissions), ..Changes::default() };
        fs.set_attributes(root, &changes, NOW).unwrap();
    }
    fs.sync(None).unwrap();
    // What was written last is copied by a mount, once.
    let fs = fs.into_flash().mount();
    let newer = fs.inodes().tables().inodes[&1].living().last().unwrap().address;
    let mut fs = lose(fs, Part::Header.of(newer), u64::MAX);
    let _error = fs.inodes_mut().settle(1);
    let nodes = fs.inodes().tables().inodes[&1].living();
    assert!(nodes.iter().any(|node| node.address == newer));
    let fs = Fading { lost: 0..0, ..fs.into_flash() }.mount();
    assert_eq!(fs.attributes(root).unwrap().permissions, 0o711);
}

#[test]
fn a_mount_that_cannot_copy_all_of_the_block_written_last_leaves_it_and_goes_on() {
    let left = Arc::new(AtomicU64::new(0));
    let mut fs = Fading { flash: Nor::new(8), lost: 0..0, left, refuses: false }.mount();
    let root = fs.statistics().root;
    let inode = create(&mut fs, OVER);
    fs.write(inode, 0, &[b'o'; 600], NOW).unwrap();
    fs.write(inode, 0, &[b'n'; 600], NOW).unwrap();
    let newer = fs.inodes().tables().inodes[&(inode.0 as u32)].living().last().unwrap().address;
    let rest = create(&mut fs, b"rest");
    fs.write(rest, 0, &noise(2000), NOW).unwrap();
    fs.sync(None).unwrap();
    // Steady errors, which no second reading helps with.
    let mut flash = fs.into_flash();
    Part::Data.of(newer).for_each(|at| flash.flash.bytes[at] ^= 0x11);
    for round in 0..4 {
        let mut fs = flash.mount();
        assert_eq!(fs.inodes().log().blocks.blocks[0].unreadable, Some(newer.offset() as u32));
        assert!(fs.inodes().log().stamps.oldest.is_some(), "it may still have been written last");
        assert!(matches!(over(&fs), Err(FsError::Damaged { .. })), "{round}");
        let mut found = vec![0; 2000];
        assert_eq!(fs.read(rest, 0, &mut found), Ok(2000));
        assert!(found == noise(2000));
        create(&mut fs, format!("{round}").as_bytes());
        fs.sync(None).unwrap();
        flash = fs.into_flash();
    }
    let mut fs = flash.mount();
    fs.write(inode, 0, &[b'x'; 600], NOW).unwrap();
    fs.sync(None).unwrap();
    let fs = fs.into_flash().mount();
    assert_eq!(over(&fs), Ok(b'x'));
    assert!(fs.flash().flash.is_erased(0));
    assert!((0..4).all(|round| fs.lookup(root, format!("{round}").as_bytes()).is_ok()));
}

/// What is there all the same may be newer: neither it nor its absence is made up.
#[test]
fn older_data_does_not_show_in_place_of_what_the_system_does_not_give() {
    for part in [Part::Header, Part::Fixed, Part::Data] {
        let (fs, newer, _) = written();
        let fs = Fading { refuses: true, ..fs.into_flash() }.mount();
        let mut fs = lose(fs, part.of(newer), u64::MAX);
        let inode = fs.lookup(fs.statistics().root, OVER).unwrap();
        let read = over(&fs);
        let source = FlashError::Os(EIO);
        assert!(
            matches!(read, Err(FsError::Medium { source: it, .. }) if it == source),
            "{read:?}"
        );
        let written = fs.write(inode, 1, b"x", NOW);
        assert!(matches!(written, Err(FsError::Medium { .. })), "{part:?}: {written:?}");
        fs.flash().left.store(0, Ordering::Relaxed);
        assert_eq!(over(&fs), Ok(b'n'), "{part:?}");

        let flash = fs.into_flash();
        let fs = Jffs2::mount(flash.clone(), None).unwrap();
        fs.flash().left.store(u64::MAX, Ordering::Relaxed);
        let mut bytes = [0; 600];
        let read = fs.read(inode, 0, &mut bytes);
        assert!(matches!(read, Err(FsError::Medium { .. })), "{part:?}: {read:?}");
        fs.flash().left.store(0, Ordering::Relaxed);
        assert_eq!(fs.read(inode, 0, &mut bytes), Ok(600), "{part:?}");
        assert_eq!(bytes, [b'n'; 600]);
        // Without one of its blocks it can be looked at, but not be written on.
        let flash = Fading { lost: 0..BLOCK, ..flash };
        flash.left.store(u64::MAX, Ordering::Relaxed);
        let error = Jffs2Mut::mount(flash.clone(), &WriteOptions::default()).err();
        assert_eq!(error, Some(Jffs2MountError::Flash(source)), "{part:?}");
        assert!(Jffs2::mount(flash, Some(ByteOrder::Little)).is_ok());
    }
}

/// An access list goes with the permissions, and is not forgotten because it cannot be read now.
#[test]
fn permissions_do_not_change_without_the_access_list() {
    const LIST: &[u8] = b"system.posix_acl_access";
    let list = |user: u8| {
        let entry = |tag, allowed| [tag, 0, allowed, 0, 0xFF, 0xFF, 0xFF, 0xFF];
        [&[2, 0, 0, 0][..], &entry(1, user), &entry(4, 4), &entry(0x20, 4)].concat()
    };
    let (mut fs, ..) = written();
    let inode = fs.lookup(fs.statistics().root, OVER).unwrap();
    fs.set_xattr(inode, LIST, XattrChange::Set(&list(7)), NOW).unwrap();
    // A mount moves what lies in the block written last.
    let mut random = SplitMix64::new(1);
    let bytes: Vec<u8> = (0..2 * BLOCK).map(|_| random.bits() as u8).collect();
    assert_eq!(fs.write(inode, 0, &bytes, NOW), Ok(bytes.len()));
    let fs = fs.into_flash().mount();
    let inode = fs.lookup(fs.statistics().root, OVER).unwrap();
    let at = fs.inodes().tables().xattrs.values().next().unwrap().address.offset() as usize;
    let fs = Fading { refuses: true, ..fs.into_flash() }.mount();
    let mut fs = lose(fs, at..at + 4, u64::MAX);
    let changes = Changes { permissions: Some(0o644), ..Changes::default() };
    let changed = fs.set_attributes(inode, &changes, NOW);
    assert!(matches!(changed, Err(FsError::Medium { .. })), "{changed:?}");
    fs.flash().left.store(0, Ordering::Relaxed);
    fs.set_attributes(inode, &changes, NOW).unwrap();
    let mut found = [0; 64];
    let len = fs.read_xattr(inode, LIST, &mut found).unwrap();
    assert_eq!(found[..len], list(6));
}

/// A flash of which one read is refused.
#[derive(Clone)]
struct Refusing {
    flash: Nor,
    reads: Arc<AtomicU64>,
    refused: u64,
    /// Reads before the first change.
    before: Option<u64>,
}

impl Refusing {
    fn change(&mut self) -> &mut Nor {
        self.before.get_or_insert(self.reads.load(Ordering::Relaxed));
        &mut self.flash
    }
}

impl Flash for Refusing {
    fn geometry(&self) -> &FlashGeometry {
        self.flash.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        match self.reads.fetch_add(1, Ordering::Relaxed) == self.refused {
            true => Err(FlashError::Os(EIO)),
            false => self.flash.read(offset, buffer),
        }
    }
}

impl FlashMut for Refusing {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.change().program(offset, data)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.change().erase(block)
    }
}

#[test]
fn a_mount_is_refused_if_it_is_refused_a_read() {
    let flash = written().0.into_flash().flash;
    // The order is known: finding it out is not part of it.
    let options = WriteOptions { order: Some(ByteOrder::Little), ..WriteOptions::default() };
    let flash = Refusing { flash, reads: Arc::default(), refused: u64::MAX, before: None };
    let fs = Jffs2Mut::mount(flash.clone(), &options).unwrap();
    let reads = fs.into_flash().before.unwrap();
    let mut refusals = 0;
    for refused in 0..reads {
        let flash = Refusing { reads: Arc::default(), refused, ..flash.clone() };
        match Jffs2Mut::mount(flash, &options) {
            Err(error) => {
                assert_eq!(error, Jffs2MountError::Flash(FlashError::Os(EIO)), "read {refused}");
                refusals += 1;
            }
            // Everything was known, and what could not be copied stays.
            Ok(fs) => {
                let inode = fs.lookup(fs.statistics().root, OVER).unwrap();
                let mut bytes = [0; 600];
                assert_eq!(fs.read(inode, 0, &mut bytes), Ok(600), "read {refused}");
                assert_eq!(bytes, [b'n'; 600]);
            }
        }
    }
    assert!(refusals > reads / 2, "{refusals} refusals, {reads} reads");
}

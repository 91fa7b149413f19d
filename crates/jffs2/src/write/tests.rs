use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use flysch_api::finding::Severity;
use flysch_api::flash::{
    Corrected, Flash, FlashError, FlashGeometry, FlashMut, Kind as FlashKind, OobMode,
};
use flysch_api::vfs::{
    Changes, Damage, DeviceNumber, FileKind, FileSystem, FileSystemMut, Inode, NewFile, Timestamp,
    XattrChange,
};
use flysch_random::SplitMix64;
use flysch_wire::jffs2::{ByteOrder, Header, NodeType, Xattr, XattrPrefix};

use super::space::State;
use super::{Jffs2Mut, WriteOptions};
use crate::compressor::Compressors;

const NOW: Timestamp = Timestamp { seconds: 1_700_000_000, nanoseconds: 0 };
const BLOCK: usize = 8 << 10;

/// NOR in memory.
#[derive(Clone, Debug)]
pub(super) struct Nor {
    geometry: FlashGeometry,
    bytes: Vec<u8>,
    /// Programs and erases until power is lost.
    left: Option<u32>,
    /// Program operations until one fails without effect.
    until_failure: Option<u32>,
    /// How many more fail then, each this many program operations after the one before.
    failures: (u32, u32),
    /// A cell that does not read the same each time.
    unsteady: Option<Unsteady>,
}

/// A byte that sometimes reads as zero, until it is erased.
#[derive(Clone, Debug)]
struct Unsteady {
    at: usize,
    /// For each of its reads, least significant bit first and then from the start again: whether it
    /// reads as zero.
    zero: u64,
    reads: Arc<AtomicU64>,
}

impl Nor {
    pub(super) fn new(blocks: usize) -> Self {
        let geometry = FlashGeometry::nor((blocks * BLOCK) as u64, BLOCK as u32);
        let bytes = vec![0xFF; blocks * BLOCK];
        let (left, until_failure, failures, unsteady) = (None, None, (0, 0), None);
        Self { geometry, bytes, left, until_failure, failures, unsteady }
    }

    /// The same with pages, as UBI makes of a volume.
    fn paged(blocks: usize) -> Self {
        let nor = Self::new(blocks);
        let (kind, write_size) = (FlashKind::UbiVolume, 512);
        Self { geometry: FlashGeometry { kind, write_size, ..nor.geometry }, ..nor }
    }

    /// A flash on which one program operation fails after this many.
    pub(super) fn failing_after(programs: u32) -> Self {
        Self { until_failure: Some(programs), ..Self::new(8) }
    }

    fn operate(&mut self) -> Result<(), FlashError> {
        match &mut self.left {
            Some(0) => Err(FlashError::PowerLost),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn is_erased(&self, block: usize) -> bool {
        // Behind its clean marker.
        self.bytes[block * BLOCK..][..BLOCK][Header::LEN..].iter().all(|&byte| byte == 0xFF)
    }

    fn mount(self) -> Jffs2Mut<Self> {
        Jffs2Mut::mount(self, &WriteOptions::default()).unwrap()
    }

    /// Leaves this many blocks to write to: the others are taken by nodes of unknown types that
    /// must be kept.
    fn fill_all_but(&mut self, left: usize) {
        let header = Header { node_type: NodeType(0x6042), total_len: BLOCK as u32 };
        let erased = (0..8).filter(|block| self.is_erased(*block)).collect::<Vec<_>>();
        for block in &erased[left..] {
            let bytes = &mut self.bytes[block * BLOCK..][..BLOCK];
            bytes.fill(0);
            header.emit(ByteOrder::Little, bytes);
        }
    }

    /// The worst finding of the checker.
    fn worst(&self) -> Option<Severity> {
        let mut worst = None;
        let mut report = |finding: flysch_api::finding::Finding| {
            worst = worst.max(Some(finding.severity));
        };
        crate::check(self.clone(), None, &mut report).unwrap();
        worst
    }
}

impl Flash for Nor {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        if let Some(Unsteady { at, zero, reads }) = &self.unsteady
            && let Some(byte) = at.checked_sub(offset as usize).and_then(|at| buffer.get_mut(at))
        {
            let number = reads.fetch_add(1, Ordering::Relaxed);
            *byte &= if zero >> (number % 64) & 1 == 1 { 0 } else { 0xFF };
        }
        Ok(Corrected::NONE)
    }
}

impl FlashMut for Nor {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        self.operate()?;
        self.until_failure = match self.until_failure {
            Some(0) => {
                let (more, apart) = self.failures;
                self.until_failure = (more > 0).then_some(apart);
                self.failures.0 = more.saturating_sub(1);
                return Err(FlashError::ProgramFailed { offset });
            }
            left => left.map(|left| left - 1),
        };
        let cells = &mut self.bytes[offset as usize..][..data.len()];
        cells.iter_mut().zip(data).for_each(|(cell, byte)| *cell &= byte);
        Ok(())
    }

    fn program_oob(&mut self, _: u64, _: OobMode, _: &[u8]) -> Result<(), FlashError> {
        Err(FlashError::OutOfRange)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.operate()?;
        self.bytes[block as usize * BLOCK..][..BLOCK].fill(0xFF);
        self.unsteady.take_if(|unsteady| unsteady.at / BLOCK == block as usize);
        Ok(())
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        Err(FlashError::BadBlock { block })
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

fn create<F: FlashMut>(fs: &mut Jffs2Mut<F>, name: &[u8]) -> Inode {
    let file = NewFile {
        kind: FileKind::Regular,
        permissions: 0o664,
        owner: 0,
        group: 0,
        device: DeviceNumber::default(),
        target: &[],
    };
    fs.create(fs.statistics().root, name, &file, NOW).unwrap()
}

#[test]
fn an_access_list_follows_the_permissions() {
    const ACCESS: &[u8] = b"system.posix_acl_access";
    let list = |owner, mask, other| {
        let mut list = vec![2, 0, 0, 0];
        for (tag, allowed, id) in [
            (1, owner, u32::MAX),
            (2, 7, 1000),
            (4, 6, u32::MAX),
            (16, mask, u32::MAX),
            (32, other, u32::MAX),
        ] {
            list.extend([tag, 0, allowed, 0]);
            list.extend(id.to_le_bytes());
        }
        list
    };
    let mut fs = Nor::new(8).mount();
    let inode = create(&mut fs, b"file");
    fs.set_xattr(inode, ACCESS, XattrChange::Set(&list(6, 6, 4)), NOW).unwrap();
    let changes = Changes { permissions: Some(0o751), ..Changes::default() };
    fs.set_attributes(inode, &changes, NOW).unwrap();
    fs.sync(None).unwrap();
    let fs = fs.into_flash().mount();
    let mut buffer = [0; 100];
    let len = fs.read_xattr(inode, ACCESS, &mut buffer).unwrap();
    assert_eq!(buffer[..len], list(7, 5, 1));
    assert_eq!(fs.attributes(inode).unwrap().permissions, 0o751);
}

#[test]
fn a_node_that_was_cut_off_never_comes_back() {
    let mut fs = Nor::new(8).mount();
    let inode = create(&mut fs, b"file");
    fs.write(inode, 0, b"old", NOW).unwrap();
    let end = |flash: &Nor| flash.bytes[..BLOCK].iter().rposition(|&b| b != 0xFF).unwrap() + 1;
    let before = end(fs.flash());
    fs.write(inode, 0, b"new content that does not fit", NOW).unwrap();
    let mut flash = fs.into_flash();
    // All of it was written but the last bytes of the data.
    let after = end(&flash);
    flash.bytes[after - 2..after].fill(0xFF);
    flash.bytes[after - 3] = 0x0F;
    let node = before.next_multiple_of(4);
    let cut = flash.bytes[node..after].to_vec();
    let is_obsolete = |byte: u8| byte & 0x20 == 0;
    for is_stamped in [true, false] {
        if !is_stamped {
            // As if Linux had written the block: nobody knows that it was the last one.
            flash.bytes[Header::LEN.next_multiple_of(4) + Header::LEN] ^= 1;
        }
        let fs = flash.clone().mount();
        let mut buffer = [0; 40];
        assert_eq!(fs.read(inode, 0, &mut buffer), Ok(3));
        assert_eq!(buffer[..3], *b"old");
        let mended = fs.into_flash();
        match is_stamped {
            true => assert!(!mended.bytes.windows(cut.len()).any(|bytes| bytes == cut)),
            false => assert!(is_obsolete(mended.bytes[node + 3])),
        }
        assert!(mended.worst() <= Some(Severity::Note));
    }
    assert!(!is_obsolete(flash.bytes[node + 3]));
}

/// Data that no compressor can make shorter.
fn noise(len: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(0x2545_F491);
    core::iter::repeat_with(|| random.bits() as u8).take(len).collect()
}

#[test]
fn a_last_page_in_which_nothing_counts_is_left_all_the_same() {
    let mut fs = Nor::new(8).mount();
    let inode = create(&mut fs, b"file");
    fs.remove(fs.statistics().root, b"file", NOW).unwrap();
    // Written while it is open: nothing of it counts at the next mount, and nothing follows it.
    let data = noise(2000);
    fs.write(inode, 0, &data, NOW).unwrap();
    fs.sync(None).unwrap();
    let mended = fs.into_flash().mount().into_flash();
    assert!(!mended.bytes.windows(100).any(|bytes| *bytes == data[..100]));
    let before = mended.bytes.clone();
    assert!(before == mended.mount().into_flash().bytes, "there is nothing to leave any more");
}

#[test]
fn a_block_with_nothing_but_what_was_cut_off_is_erased() {
    let mut fs = Nor::new(8).mount();
    let inode = create(&mut fs, b"file");
    let data = noise(1000);
    let mut at = 0;
    let block = loop {
        fs.write(inode, at, &data, NOW).unwrap();
        at += 1000;
        let begun = |block: &usize| {
            let end = fs.flash().bytes[block * BLOCK..][..BLOCK].iter().rposition(|&b| b != 0xFF);
            end.is_some_and(|end| end > 100)
        };
        if let Some(block) = (1..8).find(begun) {
            break block;
        }
    };
    let mut flash = fs.into_flash();
    let bytes = &mut flash.bytes[block * BLOCK..][..BLOCK];
    let end = bytes.iter().rposition(|&b| b != 0xFF).unwrap() + 1;
    bytes[end - 40..end].fill(0xFF);
    let cut = bytes[end - 300..end - 40].to_vec();
    let mended = flash.mount().into_flash();
    assert!(!mended.bytes[block * BLOCK..][..BLOCK].windows(cut.len()).any(|it| it == cut));
}

#[test]
fn copies_count_when_all_was_copied_and_not_before() {
    let mut fs = Nor::new(8).mount();
    let inode = create(&mut fs, b"file");
    let data = noise(7000);
    fs.write(inode, 0, &data, NOW).unwrap();
    let mut flash = fs.into_flash();
    // To the end of the flash, so that the order of blocks is not that in which they were opened.
    let (first, rest) = flash.bytes.split_at_mut(BLOCK);
    first.swap_with_slice(&mut rest[6 * BLOCK..]);
    let cut_after = |operations: u32, flash: &Nor| {
        let flash = Nor { left: Some(operations), ..flash.clone() };
        let fs = flash.mount();
        let counting = |block: &super::space::Block| block.raws.iter().any(|raw| !raw.is_dead);
        let blocks = (0..8).filter(|block| counting(&fs.inodes().log().blocks.blocks[*block]));
        (blocks.collect::<Vec<_>>(), Nor { left: None, ..fs.into_flash() })
    };
    assert_eq!(cut_after(0, &flash).0, [7]);
    let is_begun = |flash: &Nor| (0..7).any(|block| !flash.is_erased(block));
    let (mut partly, mut wholly) = (0, 0);
    for operations in 1.. {
        let (_, cut) = cut_after(operations, &flash);
        if cut.is_erased(7) {
            break;
        }
        // Two mounts later, neither of which wrote anything.
        let (counting, again) = cut_after(0, &cut);
        let (again, _) = cut_after(0, &again);
        assert_eq!(counting, again);
        match counting[..] {
            [7] if wholly == 0 => partly += u32::from(is_begun(&cut)),
            [block] if block != 7 => wholly += 1,
            _ => panic!("after {operations} operations these count: {counting:?}"),
        }
        let fs = cut.mount();
        let mut found = vec![0; data.len()];
        assert_eq!(fs.read(inode, 0, &mut found), Ok(data.len()));
        assert!(found == data);
    }
    assert!(partly > 0 && wholly > 0, "{partly} partly copied, {wholly} wholly");
}

#[test]
fn what_is_written_behind_a_last_page_is_read_again() {
    let mut fs = Nor::new(8).mount();
    let inode = create(&mut fs, b"file");
    let data = noise(1000);
    fs.write(inode, 0, &data, NOW).unwrap();
    let mut flash = fs.into_flash();
    flash.fill_all_but(0);
    let fs = flash.mount();
    assert!(fs.activity().moved > 0, "what its last page held is copied");
    let mut found = vec![0; data.len()];
    assert_eq!(fs.read(inode, 0, &mut found), Ok(data.len()));
    assert!(found == data);
    let fs = fs.into_flash().mount();
    assert_eq!(fs.read(inode, 0, &mut found), Ok(data.len()));
    assert!(found == data);
}

#[test]
fn a_block_that_does_not_always_read_as_erased_is_erased_before_it_is_written_to() {
    let mut fs = Nor::new(8).mount();
    let inode = create(&mut fs, b"file");
    let data = noise(1000);
    fs.write(inode, 0, &data, NOW).unwrap();
    let mut flash = fs.into_flash();
    // What the last page holds goes to the one block that is left, where a stamp was begun.
    flash.fill_all_but(1);
    let block = (0..8).find(|block| flash.is_erased(*block)).unwrap();
    let marker = Header { node_type: NodeType::CLEANMARKER, total_len: Header::LEN as u32 };
    marker.emit(ByteOrder::Little, &mut flash.bytes[block * BLOCK..]);
    let sequences = (1..300_u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    for zero in sequences.chain((0..64).map(|number| 1 << number)) {
        let at = block * BLOCK + Header::LEN;
        let unsteady = Some(Unsteady { at, zero, reads: Arc::default() });
        let fs = Nor { unsteady, ..flash.clone() }.mount();
        assert!(fs.activity().moved > 0, "{zero:#x}: what its last page held is copied");
        let mut found = vec![0; data.len()];
        assert_eq!(fs.read(inode, 0, &mut found), Ok(data.len()), "{zero:#x}");
        assert!(found == data, "{zero:#x}");
    }
}

#[test]
fn the_last_node_is_judged_once_wherever_it_begins() {
    let mut fs = Nor::new(8).mount();
    let place = (0..).find_map(|number| {
        create(&mut fs, format!("{number}").as_bytes());
        let block = fs.inodes().log().blocks.current?;
        let last = fs.inodes().log().blocks.blocks[block as usize].raws.last()?;
        let is_across = last.at / 1024 != (last.at + last.len - 1) / 1024;
        is_across.then_some(block as usize * BLOCK + last.at as usize)
    });
    let flash = fs.into_flash();
    let names = |fs: &Jffs2Mut<Nor>| {
        let is_there = |n: &u32| fs.lookup(fs.statistics().root, format!("{n}").as_bytes()).is_ok();
        (0..100).filter(is_there).count()
    };
    for good in 0..64 {
        // Its type is told so often and never again.
        let (at, zero) = (place.unwrap() + 2, u64::MAX << good);
        let unsteady = Some(Unsteady { at, zero, reads: Arc::default() });
        let fs = Nor { unsteady, ..flash.clone() }.mount();
        let count = names(&fs);
        let mut flash = fs.into_flash();
        if let Some(unsteady) = &mut flash.unsteady {
            unsteady.zero = u64::MAX;
        }
        assert_eq!(names(&flash.mount()), count, "read well {good} times");
    }
}

#[test]
fn when_the_last_block_fails_the_end_of_another_is_written_to() {
    let mut fs = Nor::paged(8).mount();
    let inode = create(&mut fs, b"file");
    let others: [&[u8]; 2] = [b"second", b"third"];
    for name in others {
        create(&mut fs, name);
    }
    let data = noise(1000);
    fs.write(inode, 0, &data, NOW).unwrap();
    fs.sync(None).unwrap();
    // Copies all of it, with padding behind: nothing is at stake at the next mount, which leaves
    // the end of that block alone all the same.
    let mut flash = fs.into_flash().mount().into_flash();
    flash.fill_all_but(1);
    for programs in 0..4 {
        let flash = Nor { until_failure: Some(programs), ..flash.clone() };
        let mut fs = flash.mount();
        assert_eq!(fs.inodes().log().blocks.available(), 1);
        assert!(fs.inodes().log().blocks.current.is_none());
        // The first takes the last block, to copy what counts in the other one to.
        for name in others {
            fs.remove(fs.statistics().root, name, NOW).unwrap();
            fs.sync(None).unwrap();
        }
        assert_eq!(fs.activity().program_failures, 1, "{programs} programs before");
        let flash = fs.into_flash();
        assert!(flash.worst() <= Some(Severity::Note));
        let fs = flash.mount();
        let root = fs.statistics().root;
        assert!(others.iter().all(|name| fs.lookup(root, name).is_err()));
        let mut found = vec![0; data.len()];
        assert_eq!(fs.read(inode, 0, &mut found), Ok(data.len()));
        assert!(found == data);
    }
}

#[test]
fn a_mount_whose_programs_fail_in_every_block_that_is_left_is_begun_again() {
    let mut fs = Nor::paged(8).mount();
    let data = noise(800);
    let names: [&[u8]; 7] = [b"1", b"2", b"3", b"4", b"5", b"6", b"7"];
    for name in names {
        let inode = create(&mut fs, name);
        fs.write(inode, 0, &data, NOW).unwrap();
    }
    fs.sync(None).unwrap();
    let mut flash = fs.into_flash();
    // One to copy to what was written last, and one more.
    flash.fill_all_but(2);
    let mut most = 0;
    for (first, apart) in (0..14).flat_map(|first| (7..12).map(move |apart| (first, apart))) {
        let flash = Nor { until_failure: Some(first), failures: (5, apart), ..flash.clone() };
        let mut fs = flash.mount();
        most = most.max(fs.activity().program_failures);
        let root = fs.statistics().root;
        fs.remove(root, names[0], NOW).unwrap();
        fs.sync(None).unwrap();
        let fs = Nor { until_failure: None, ..fs.into_flash() }.mount();
        assert!(fs.lookup(root, names[0]).is_err());
        for name in &names[1..] {
            let mut found = vec![0; data.len()];
            let inode = fs.lookup(root, name).unwrap();
            assert_eq!(fs.read(inode, 0, &mut found), Ok(data.len()));
            assert!(found == data);
        }
    }
    assert!(most >= 3, "at most {most} programs failed");
}

#[test]
fn the_end_of_a_block_that_is_to_be_left_is_written_to_last() {
    let mut fs = Nor::new(8).mount();
    for (number, is_left) in [(1, true), (2, false)] {
        let block = fs.inodes_mut().log_mut().blocks.block(number);
        (block.state, block.end) = (State::Closed, 1000 * number);
        (block.is_torn, block.is_left) = (true, is_left);
    }
    for expected in [2, 1] {
        assert!(fs.inodes_mut().log_mut().resume_anywhere());
        assert_eq!(fs.inodes().log().blocks.current, Some(expected));
        fs.inodes_mut().log_mut().blocks.close(false);
    }
    assert!(!fs.inodes_mut().log_mut().resume_anywhere());
}

/// Erase blocks of a flash whose reads are counted, bytes.
const LARGE: usize = 64 << 10;
const PAGE: u64 = 512;

/// A flash with pages, and the number of page reads.
struct Counted {
    flash: Nor,
    pages: AtomicU64,
}

impl Counted {
    fn mount() -> Jffs2Mut<Self> {
        let size = LARGE * 8;
        let geometry = FlashGeometry {
            kind: FlashKind::UbiVolume,
            write_size: PAGE as u32,
            ..FlashGeometry::nor(size as u64, LARGE as u32)
        };
        let flash = Nor { geometry, bytes: vec![0xFF; size], ..Nor::new(0) };
        Self { flash, pages: AtomicU64::new(0) }.remount()
    }

    fn remount(self) -> Jffs2Mut<Self> {
        let options = WriteOptions { compressors: Compressors::none(), ..WriteOptions::default() };
        Jffs2Mut::mount(self, &options).unwrap()
    }

    /// Pages read since the last call.
    fn read_pages(&self) -> u64 {
        self.pages.swap(0, Ordering::Relaxed)
    }
}

impl Flash for Counted {
    fn geometry(&self) -> &FlashGeometry {
        &self.flash.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let end = (offset + buffer.len() as u64).div_ceil(PAGE);
        self.pages.fetch_add(end - offset / PAGE, Ordering::Relaxed);
        self.flash.read(offset, buffer)
    }
}

impl FlashMut for Counted {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.flash.program(offset, data)
    }

    fn program_oob(&mut self, at: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.flash.program_oob(at, mode, data)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash.bytes[block as usize * LARGE..][..LARGE].fill(0xFF);
        Ok(())
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.flash.mark_bad(block)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        Ok(())
    }
}

#[test]
fn what_lies_together_is_read_once_and_what_was_just_written_not_at_all() {
    let mut fs = Counted::mount();
    let inode = create(&mut fs, b"file");
    fs.flash().read_pages();
    let data = noise(16 * 400);
    for (number, piece) in data.chunks(16).enumerate() {
        fs.write(inode, number as u64 * 16, piece, NOW).unwrap();
        if number % 10 == 0 {
            fs.sync(Some(inode)).unwrap();
        }
    }
    assert_eq!(fs.flash().read_pages(), 0, "the page that became full was known");
    fs.sync(None).unwrap();
    let flash = fs.into_flash();
    flash.read_pages();
    let reader = crate::Jffs2::mount(&flash, None).unwrap();
    let by_scan = flash.read_pages();
    assert!(by_scan >= flash.flash.geometry.size / PAGE);
    let mut found = vec![0; data.len()];
    assert_eq!(reader.read(inode, 0, &mut found), Ok(data.len()));
    assert!(found == data);
    // 400 nodes of 84 bytes, of which 144 show, and one of 4 KiB, ten nodes in two pages: the fixed
    // parts of all, then twice those that show.
    let pages = flash.read_pages();
    assert!(pages < 250, "{pages} pages");
}

#[test]
fn a_page_that_was_cut_or_written_elsewhere_meanwhile_is_not_taken_for_what_it_was() {
    let mut fs = Counted::mount();
    let (one, other) = (create(&mut fs, b"one"), create(&mut fs, b"other"));
    let size = |size| Changes { size: Some(size), ..Changes::default() };
    let mut expected = [noise(4096), noise(4096)];
    fs.write(one, 0, &expected[0][..100], NOW).unwrap();
    fs.write(one, 100, &[7; 200], NOW).unwrap();
    fs.set_attributes(one, &size(100), NOW).unwrap();
    fs.set_attributes(one, &size(300), NOW).unwrap();
    expected[0][100..300].fill(0);
    fs.write(one, 300, &expected[0][300..], NOW).unwrap();
    fs.write(other, 0, &expected[1][..1000], NOW).unwrap();
    fs.write(other, 10, b"over", NOW).unwrap();
    expected[1][10..14].copy_from_slice(b"over");
    fs.write(other, 1000, &expected[1][1000..], NOW).unwrap();
    fs.sync(None).unwrap();
    let fs = fs.into_flash().remount();
    for (inode, expected) in [one, other].into_iter().zip(&expected) {
        let mut found = vec![0; 4096];
        assert_eq!(fs.read(inode, 0, &mut found), Ok(4096));
        assert!(found == *expected);
    }
}

/// Whether Linux finds the value of an attribute: it takes the highest version, and of several
/// nodes with that version the last one, without a look at their values.
fn linux_finds(flash: &Nor, xid: u32) -> bool {
    let order = ByteOrder::Little;
    let nodes = (0..flash.bytes.len()).step_by(4).filter_map(|at| {
        let bytes = &flash.bytes[at..];
        let is_accurate = Header::parse(bytes, order).ok()?.node_type.is_accurate();
        let xattr = Xattr::parse(bytes, order).ok().filter(|it| is_accurate && it.xid == xid)?;
        Some((xattr.version, at, xattr.name_and_value(bytes).is_ok()))
    });
    nodes.max().is_some_and(|(.., is_whole)| is_whole)
}

#[test]
fn an_attribute_whose_copy_was_torn_is_written_again_for_linux() {
    let order = ByteOrder::Little;
    let value = noise(900);
    let mut fs = Counted::mount();
    let inode = create(&mut fs, b"file");
    fs.set_xattr(inode, b"user.name", XattrChange::Set(&value), NOW).unwrap();
    fs.sync(None).unwrap();
    let xid = *fs.inodes().tables().xattrs.keys().next().unwrap();
    let whole = fs.into_flash();
    // Copies in another block that were not written to their end. Linux makes one with the next
    // version, Flysch one with the same. The last is an attribute that nobody has.
    let page = PAGE as usize;
    let cases =
        [(xid, 2, page), (xid, 2, Xattr::LEN), (xid, 1, page), (xid, 7, page), (9, 5, page)];
    for (torn, version, written) in cases {
        let prefix = XattrPrefix::User;
        let fields = Xattr { xid: torn, version, prefix, name_len: 0, value_len: 0, data_crc: 0 };
        let mut flash = whole.flash.clone();
        let node = &mut flash.bytes[5 * LARGE..][..2 * page];
        fields.emit(b"name", &value, order, node);
        node[written..].fill(0xFF);
        assert_eq!(linux_finds(&flash, xid), torn != xid);
        let reads = |fs: &Jffs2Mut<Counted>, name: &[u8]| {
            let mut buffer = [0; 1000];
            let len = fs.read_xattr(inode, name, &mut buffer).unwrap();
            buffer[..len] == *value
        };
        let mut fs = Counted { flash, pages: AtomicU64::new(0) }.remount();
        assert!(reads(&fs, b"user.name"));
        // A new attribute does not get the number of one that is torn.
        fs.set_xattr(inode, b"user.other", XattrChange::Set(&value), NOW).unwrap();
        fs.sync(None).unwrap();
        let other = *fs.inodes().tables().xattrs.keys().next_back().unwrap();
        let after = fs.into_flash();
        assert!(linux_finds(&after.flash, xid), "{torn} {version}");
        assert!(other > torn && linux_finds(&after.flash, other));
        // Nothing is left to write.
        let mended = after.remount();
        assert!(reads(&mended, b"user.name") && reads(&mended, b"user.other"));
    }
}

#[test]
fn names_that_count_are_not_read_for_a_summary() {
    let mut fs = Counted::mount();
    create(&mut fs, b"the first block is opened");
    fs.flash().read_pages();
    for number in 0..700_u32 {
        create(&mut fs, format!("file {number}").as_bytes());
    }
    let opened = fs.activity().erased - 1;
    assert!(opened > 0);
    // Each block is read once after its erase.
    assert_eq!(fs.flash().read_pages(), opened * (LARGE as u64 / PAGE));
    fs.sync(None).unwrap();
    let Counted { flash, .. } = fs.into_flash();
    let mut findings = 0;
    crate::check(flash, None, &mut |_| findings += 1).unwrap();
    assert_eq!(findings, 0);
}

mod atomic;
mod listed;
mod torn;
mod unreadable;

/// Both mounts give the same answer.
mod one_reader {
    use flysch_api::vfs::{FsError, Rename};
    use flysch_wire::jffs2::{self, Compression, Dirent};

    use super::*;
    use crate::Jffs2;

    const ROOT: Inode = Inode(1);
    const DT_DIR: u8 = 4;
    const DT_REG: u8 = 8;

    struct Log {
        flash: Nor,
        at: usize,
    }

    impl Log {
        fn new() -> Self {
            Self { flash: Nor::new(8), at: 0 }
        }

        fn push(&mut self, node: &[u8]) {
            self.flash.bytes[self.at..][..node.len()].copy_from_slice(node);
            self.at += node.len().next_multiple_of(4);
        }

        fn name(&mut self, pino: u32, version: u32, (ino, kind): (u32, u8), name: &str) {
            let mctime = 1000 + version;
            let dirent = Dirent { pino, version, ino, mctime, nsize: 0, kind, name_crc: 0 };
            let mut node = [0; Dirent::LEN + 255];
            let len = dirent.emit(name.as_bytes(), ByteOrder::Little, &mut node);
            self.push(&node[..len]);
        }

        fn inode(&mut self, ino: u32, mode: u32) {
            let attributes = crate::read::Attributes { mode, ..crate::read::Attributes::MADE_UP };
            let inode = jffs2::Inode { compression: Compression::None, ..attributes.node(ino, 1) };
            let mut node = [0; jffs2::Inode::LEN];
            inode.emit(&[], ByteOrder::Little, &mut node);
            self.push(&node);
        }

        /// The answers of a mount for reading and of a mount for writing to `ask`.
        fn both<R>(&self, ask: impl Fn(&dyn FileSystem) -> R) -> [R; 2] {
            let reads = Jffs2::mount(self.flash.clone(), None).unwrap();
            let writes = self.flash.clone().mount();
            [ask(&reads), ask(&writes)]
        }
    }

    fn list(fs: &dyn FileSystem, directory: Inode) -> Result<Vec<Vec<u8>>, FsError> {
        let mut names = vec![];
        fs.list(directory, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            core::ops::ControlFlow::Continue(())
        })?;
        Ok(names)
    }

    /// Linux takes the mode from the node, whatever type the entry has.
    #[test]
    fn what_is_a_directory_is_told_by_its_mode() {
        let mut log = Log::new();
        log.name(1, 1, (10, DT_REG), "a directory");
        log.inode(10, 0o040_755);
        log.name(10, 1, (12, DT_REG), "inside");
        log.name(1, 2, (11, DT_DIR), "a file");
        log.inode(11, 0o100_644);
        log.name(11, 1, (12, DT_REG), "not inside");
        log.inode(12, 0o100_644);
        let inside = [Ok(Inode(12)), Ok(Inode(12))];
        assert_eq!(log.both(|fs| fs.lookup(Inode(10), b"inside")), inside);
        let names = [Ok(vec![b"inside".to_vec()]), Ok(vec![b"inside".to_vec()])];
        assert_eq!(log.both(|fs| list(fs, Inode(10))), names);
        let refused = [Err(FsError::NotDirectory), Err(FsError::NotDirectory)];
        assert_eq!(log.both(|fs| fs.lookup(Inode(11), b"not inside")), refused);
        assert_eq!(log.both(|fs| list(fs, Inode(11)).map(drop)), refused.map(|it| it.map(drop)));
        let mut fs = log.flash.clone().mount();
        let moved = fs.rename((ROOT, b"a file"), (Inode(11), b"x"), Rename::Replace, NOW);
        assert_eq!(moved, Err(FsError::NotDirectory));
        assert_eq!(fs.remove(ROOT, b"a directory", NOW), Err(FsError::NotEmpty));
        fs.remove(ROOT, b"a file", NOW).unwrap();
    }

    /// Linux makes up a mode for directories with entries but no node, even if all entries are
    /// removals.
    #[test]
    fn a_directory_of_which_removals_alone_are_left_is_there() {
        let mut log = Log::new();
        log.name(1, 1, (10, DT_DIR), "d");
        log.name(10, 7, (0, 0), "gone");
        log.name(20, 1, (0, 0), "of nothing that has a name");
        let is_there = |fs: &dyn FileSystem| {
            let attributes = fs.attributes(Inode(10)).unwrap();
            let names = list(fs, Inode(10)).unwrap();
            (fs.lookup(ROOT, b"d"), attributes.kind, attributes.permissions, names)
        };
        let expected = (Ok(Inode(10)), FileKind::Directory, 0o755, vec![]);
        assert_eq!(log.both(is_there), [expected.clone(), expected]);
        let nothing = [Err(FsError::NotFound), Err(FsError::NotFound)];
        assert_eq!(log.both(|fs| fs.attributes(Inode(20)).map(drop)), nothing);
    }

    /// A power cut between the two entries of a rename, wherever the hashes of the names are.
    #[test]
    fn of_two_names_of_a_directory_the_older_goes() {
        let all = ["a", "b", "c", "old", "new", "name"];
        let pairs = all.into_iter().flat_map(|one| all.map(|other| [one, other]));
        for names in pairs.filter(|[one, other]| one != other) {
            let mut log = Log::new();
            log.inode(10, 0o040_755);
            log.name(1, 1, (10, DT_DIR), names[0]);
            log.name(10, 1, (11, DT_REG), "inside");
            log.inode(11, 0o100_644);
            log.name(1, 2, (10, DT_DIR), names[1]);
            log.name(1, 3, (11, DT_REG), "more");
            let fs = log.flash.clone().mount();
            assert_eq!(fs.lookup(ROOT, names[0].as_bytes()), Err(FsError::NotFound), "{names:?}");
            assert_eq!(fs.lookup(ROOT, names[1].as_bytes()), Ok(Inode(10)));
        }
    }

    /// An inode without a kind is an error wherever it is asked for, with its position; the entries
    /// below it are accessible.
    #[test]
    fn a_damaged_mode_says_where_it_is_and_hides_no_entries() {
        let mut log = Log::new();
        log.name(1, 1, (10, DT_DIR), "d");
        let at = log.at as u32;
        log.inode(10, 0o150_000);
        log.name(10, 1, (11, DT_REG), "inside");
        log.inode(11, 0o100_644);
        log.name(1, 2, (12, DT_DIR), "empty");
        log.inode(12, 0o150_000);
        let place = flysch_api::finding::Place { peb: Some(0), leb: None, offset: Some(at) };
        let (structure, cause) = ("mode of an inode node", Damage::Field("mode"));
        let damaged = FsError::Damaged { structure, place, cause };
        let attributes = log.both(|fs| fs.attributes(Inode(10)).map(drop));
        assert_eq!(attributes, [Err(damaged), Err(damaged)]);
        let found = [Ok(Inode(11)), Ok(Inode(11))];
        assert_eq!(log.both(|fs| fs.lookup(Inode(10), b"inside")), found);
        let nothing = [Err(FsError::NotFound), Err(FsError::NotFound)];
        assert_eq!(log.both(|fs| fs.lookup(Inode(10), b"else")), nothing);
        let is_error = |fs: &dyn FileSystem| list(fs, Inode(12)).is_err();
        assert_eq!(log.both(is_error), [true, true]);
    }
}

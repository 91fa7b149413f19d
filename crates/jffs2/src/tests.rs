use std::ops::ControlFlow;
use std::string::String;
use std::sync::atomic::{AtomicU32, Ordering};
use std::vec;
use std::vec::Vec;

use flysch_api::finding::{Finding, Severity};
use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry};
use flysch_api::vfs::{FileKind, FileSystem, FsError, Inode};
use flysch_wire::jffs2::{
    self, ByteOrder, Compression, Dirent, NodeType, ROOT_INO, Xattr, XattrPrefix, Xref,
};

use crate::{Jffs2, Jffs2MountError, check};

const BLOCK: usize = 8192;
const ROOT: Inode = Inode(ROOT_INO as u64);
const ENTRY_FILE: u8 = 8;
const ENTRY_DIRECTORY: u8 = 4;

/// A flash in memory.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) bytes: Vec<u8>,
    pub(crate) geometry: FlashGeometry,
}

impl Flash for Memory {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        buffer.copy_from_slice(&self.bytes[offset as usize..][..buffer.len()]);
        Ok(Corrected::NONE)
    }
}

/// A log written by hand.
struct Log {
    order: ByteOrder,
    bytes: Vec<u8>,
}

impl Log {
    fn new(order: ByteOrder) -> Self {
        Self { order, bytes: vec![] }
    }

    /// Appends a node and returns its position; starts a new block if it does not fit.
    fn push(&mut self, node: &[u8]) -> usize {
        let left = BLOCK - self.bytes.len() % BLOCK;
        if node.len() > left {
            self.bytes.resize(self.bytes.len() + left, 0xFF);
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(node);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0xFF);
        at
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a node, in their order")]
    fn name(&mut self, pino: u32, version: u32, ino: u32, name: &str, kind: u8) -> usize {
        let dirent =
            Dirent { pino, version, ino, mctime: 100 + version, nsize: 0, kind, name_crc: 0 };
        let mut node = [0; Dirent::LEN + 255];
        let len = dirent.emit(name.as_bytes(), self.order, &mut node);
        self.push(&node[..len])
    }

    fn inode(&mut self, inode: jffs2::Inode, data: &[u8]) -> usize {
        let mut node = vec![0; jffs2::Inode::LEN + data.len()];
        inode.emit(data, self.order, &mut node);
        self.push(&node)
    }

    /// Uncompressed data at `offset` of a file that is then `isize` bytes long.
    #[expect(clippy::too_many_arguments, reason = "the fields of a node, in their order")]
    fn write(&mut self, ino: u32, version: u32, isize: u32, offset: u32, data: &str) -> usize {
        let inode = jffs2::Inode { offset, dsize: data.len() as u32, ..file(ino, version, isize) };
        self.inode(inode, data.as_bytes())
    }

    fn flash(mut self) -> Memory {
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0xFF);
        let geometry = FlashGeometry::nor(self.bytes.len() as u64, BLOCK as u32);
        Memory { bytes: self.bytes, geometry }
    }

    fn mount(self) -> Jffs2<Memory> {
        let order = self.order;
        let mounted = Jffs2::mount(self.flash(), None).unwrap();
        assert_eq!(mounted.facts().order, order);
        mounted
    }
}

fn file(ino: u32, version: u32, isize: u32) -> jffs2::Inode {
    jffs2::Inode {
        ino,
        version,
        mode: 0o100_640,
        uid: 7,
        gid: 8,
        isize,
        atime: 1,
        mtime: 2,
        ctime: 3,
        offset: 0,
        csize: 0,
        dsize: 0,
        compression: Compression::None,
        user_compression: 0,
        flags: 0,
        data_crc: 0,
    }
}

fn names(fs: &impl FileSystem, directory: Inode) -> Vec<String> {
    let mut names = vec![];
    fs.list(directory, 0, &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap());
        ControlFlow::Continue(())
    })
    .unwrap();
    names
}

fn content(fs: &impl FileSystem, name: &str) -> Result<Vec<u8>, FsError> {
    let inode = fs.lookup(ROOT, name.as_bytes())?;
    let mut bytes = vec![0xAA; fs.attributes(inode)?.size as usize + 10];
    let len = fs.read(inode, 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(bytes)
}

fn findings(flash: &Memory) -> Vec<Finding> {
    let mut findings = vec![];
    check(flash, None, &mut |finding| findings.push(finding)).unwrap();
    findings
}

#[test]
fn old_entries_of_a_removed_directory_are_no_loss() {
    let mut log = Log::new(ByteOrder::Little);
    log.name(1, 1, 2, "there", ENTRY_DIRECTORY);
    let directory = |ino| jffs2::Inode { mode: 0o040_755, ..file(ino, 1, 0) };
    log.inode(directory(2), &[]);
    log.inode(directory(3), &[]);
    // The block with the file's nodes and its removal was erased already.
    log.name(3, 1, 4, "old", ENTRY_FILE);
    let notes = |flash: &Memory| {
        let found = findings(flash);
        found.iter().filter(|finding| finding.severity == Severity::Note).count() == found.len()
    };
    assert!(notes(&Log { order: log.order, bytes: log.bytes.clone() }.flash()));
    log.name(2, 1, 5, "lost", ENTRY_FILE);
    assert!(!notes(&log.flash()));
}

#[test]
fn a_log_is_read_by_versions_whatever_its_order_on_the_flash() {
    for order in ByteOrder::ALL {
        let mut log = Log::new(order);
        // Overlapping writes with versions out of order; what no node covers is zeros.
        log.write(10, 3, 14, 2, "YY456789");
        log.write(10, 2, 10, 0, "0123456789");
        log.write(10, 4, 14, 0, "XX");
        log.name(1, 1, 10, "overlap", ENTRY_FILE);
        // A deleted file, the deletion further front.
        log.name(1, 3, 0, "deleted", 0);
        log.name(1, 2, 11, "deleted", ENTRY_FILE);
        log.write(11, 1, 4, 0, "gone");
        // Replaced by another file under its name.
        log.name(1, 6, 13, "replaced", ENTRY_FILE);
        log.name(1, 5, 12, "replaced", ENTRY_FILE);
        log.write(12, 1, 3, 0, "old");
        log.write(13, 1, 3, 0, "new");
        // Two names, truncated by a node without data.
        log.name(1, 7, 14, "link a", ENTRY_FILE);
        log.name(1, 8, 14, "link b", ENTRY_FILE);
        log.write(14, 1, 8, 0, "12345678");
        log.inode(file(14, 2, 5), &[]);
        // A hole in front of data.
        log.name(1, 9, 15, "hole", ENTRY_FILE);
        let hole = jffs2::Inode { dsize: 6, compression: Compression::Zero, ..file(15, 1, 6) };
        log.inode(hole, &[]);
        log.write(15, 2, 9, 6, "end");
        let fs = log.mount();

        assert_eq!(names(&fs, ROOT), ["hole", "link a", "link b", "overlap", "replaced"]);
        assert_eq!(content(&fs, "overlap").unwrap(), b"XXYY456789\0\0\0\0");
        assert_eq!(content(&fs, "deleted"), Err(FsError::NotFound));
        assert_eq!(content(&fs, "replaced").unwrap(), b"new");
        assert_eq!(content(&fs, "link a").unwrap(), b"12345");
        assert_eq!(content(&fs, "link b").unwrap(), b"12345");
        assert_eq!(content(&fs, "hole").unwrap(), b"\0\0\0\0\0\0end");
        let link = fs.attributes(fs.lookup(ROOT, b"link a").unwrap()).unwrap();
        assert_eq!((link.links, link.owner, link.group, link.permissions), (2, 7, 8, 0o640));
        assert_eq!((link.accessed.seconds, link.modified.seconds), (1, 2));
        assert_eq!(fs.next_data(Inode(15), 0), Ok(Some(6..9)));
        assert_eq!(fs.next_data(Inode(15), 9), Ok(None));
        // The root has no node: made up, changed when its newest entry says.
        let root = fs.attributes(ROOT).unwrap();
        assert_eq!((root.kind, root.permissions, root.links), (FileKind::Directory, 0o755, 3));
        assert_eq!(root.modified.seconds, 0);
    }
}

#[test]
fn a_directory_changed_when_its_newest_entry_says() {
    let mut log = Log::new(ByteOrder::Little);
    let mode = 0o040_700;
    log.inode(jffs2::Inode { mode, ..file(1, 3, 0) }, &[]);
    log.name(1, 4, 0, "gone", 0);
    log.name(1, 5, 9, "d", ENTRY_DIRECTORY);
    log.inode(jffs2::Inode { mode, ..file(9, 7, 0) }, &[]);
    log.name(9, 2, 0, "older than the node", 0);
    let fs = log.mount();
    assert_eq!(fs.attributes(ROOT).unwrap().modified.seconds, 105);
    assert_eq!(fs.attributes(ROOT).unwrap().links, 4);
    assert_eq!(fs.attributes(Inode(9)).unwrap().modified.seconds, 2);
}

#[test]
fn entries_of_mkfs_say_nothing_about_their_directory() {
    for first in [0, 1] {
        let mut log = Log::new(ByteOrder::Little);
        log.name(1, first, 9, "d", ENTRY_DIRECTORY);
        log.inode(jffs2::Inode { mode: 0o040_755, ..file(9, 1, 0) }, &[]);
        log.name(9, first + 1, 10, "a", ENTRY_FILE);
        log.write(10, 1, 1, 0, "a");
        log.name(9, first + 2, 11, "b", ENTRY_FILE);
        log.write(11, 1, 1, 0, "b");
        let fs = log.mount();
        let expected = if first == 0 { 2 } else { 100 + 3 };
        assert_eq!(fs.attributes(Inode(9)).unwrap().modified.seconds, expected);
    }
}

#[test]
fn a_tree_without_a_name_is_not_there() {
    let mut log = Log::new(ByteOrder::Little);
    log.name(1, 1, 20, "d", ENTRY_DIRECTORY);
    log.name(1, 2, 0, "d", 0);
    log.inode(jffs2::Inode { mode: 0o040_755, ..file(20, 1, 0) }, &[]);
    log.name(20, 1, 21, "inside", ENTRY_FILE);
    log.write(21, 1, 1, 0, "x");
    log.name(20, 2, 22, "both", ENTRY_FILE);
    log.name(1, 3, 22, "both", ENTRY_FILE);
    log.write(22, 1, 1, 0, "y");
    log.name(1, 4, 99, "names nothing", ENTRY_FILE);
    let flash = log.flash();
    let fs = Jffs2::mount(&flash, None).unwrap();
    assert_eq!(names(&fs, ROOT), ["both"]);
    assert_eq!(fs.attributes(Inode(21)), Err(FsError::NotFound));
    assert_eq!(fs.attributes(Inode(22)).unwrap().links, 1);
    let findings = findings(&flash);
    let lost: Vec<_> = findings.iter().filter(|f| f.severity > Severity::Note).collect();
    assert_eq!(lost.len(), 1, "{findings:?}");
    assert!(lost[0].problem.contains("names nothing"));
}

#[test]
fn damaged_data_is_not_handed_out_and_everything_else_is() {
    let mut log = Log::new(ByteOrder::Big);
    log.name(1, 1, 10, "old below", ENTRY_FILE);
    log.write(10, 1, 8, 0, "OLD DATA");
    let newer = log.write(10, 2, 8, 2, "new");
    log.name(1, 2, 11, "good", ENTRY_FILE);
    log.write(11, 1, 4, 0, "good");
    log.name(1, 3, 12, "lost node", ENTRY_FILE);
    log.write(12, 1, 8, 0, "1234");
    let second = log.write(12, 2, 8, 4, "5678");
    // The last node of a block may have been cut off.
    log.write(11, 2, 4, 0, "good");
    log.bytes[newer + jffs2::Inode::LEN] ^= 0x20;
    for broken in [second + 1, second + 6, second + 9, second + 21] {
        let mut log = Log { order: log.order, bytes: log.bytes.clone() };
        log.bytes[broken] ^= 1;
        let flash = log.flash();
        let fs = Jffs2::mount(&flash, None).unwrap();
        assert_eq!(content(&fs, "good").unwrap(), b"good");
        assert_eq!(content(&fs, "old below").unwrap(), b"OL", "up to the damage");
        let mut rest = [0; 8];
        assert!(matches!(fs.read(Inode(10), 2, &mut rest), Err(FsError::Damaged { .. })));
        assert_eq!(fs.read(Inode(10), 5, &mut rest), Ok(3));
        assert_eq!(&rest[..3], b"ATA");
        assert_eq!(content(&fs, "lost node").unwrap(), b"1234", "byte {broken}");
        assert!(matches!(fs.read(Inode(12), 4, &mut rest), Err(FsError::Damaged { .. })));
        let paths: Vec<_> = findings(&flash)
            .into_iter()
            .filter(|finding| finding.severity == Severity::Lost)
            .filter_map(|finding| finding.path)
            .collect();
        assert!(paths.contains(&b"old below".to_vec()), "{paths:?}");
        assert!(paths.contains(&b"lost node".to_vec()), "{paths:?}");
        assert!(!paths.contains(&b"good".to_vec()));
    }
}

#[test]
fn an_interrupted_write_lets_older_data_show() {
    let data = "data that is new";
    let whole = {
        let mut log = Log::new(ByteOrder::Little);
        log.write(10, 2, 16, 0, data);
        log.bytes
    };
    let cuts = (1..whole.len()).flat_map(|written| [(written, false), (written, true)]);
    for (written, is_garbled) in cuts {
        let mut log = Log::new(ByteOrder::Little);
        log.name(1, 1, 10, "f", ENTRY_FILE);
        log.write(10, 1, 8, 0, "OLD DATA");
        log.bytes.extend(&whole[..written]);
        // The last cells were on their way, and nothing in the page is behind them.
        log.bytes.extend(whole[written..].iter().filter(|_| is_garbled).map(|byte| byte ^ 0x11));
        let flash = log.flash();
        let fs = Jffs2::mount(&flash, None).unwrap();
        assert_eq!(content(&fs, "f").unwrap(), b"OLD DATA", "{written} bytes written");
        let findings = findings(&flash);
        assert!(!findings.is_empty(), "{written} bytes written");
        let worst = findings.iter().map(|finding| finding.severity).max();
        assert_eq!(worst, Some(Severity::Note), "{written}: {findings:?}");
    }
}

#[test]
fn a_node_of_which_only_the_end_of_a_page_was_written_is_no_damage_when_others_follow() {
    let whole = {
        let mut log = Log::new(ByteOrder::Little);
        log.write(10, 2, 16, 0, "data that is new");
        log.bytes
    };
    for (written, moved) in [(4, 0), (8, 0), (8, 4)] {
        let mut log = Log::new(ByteOrder::Little);
        log.name(1, 1, 10, "f", ENTRY_FILE);
        log.write(10, 1, 8, 0, "OLD DATA");
        let room = 512 - log.bytes.len() - written - moved;
        let mut padding = vec![0xFF; room];
        let header = jffs2::Header { node_type: NodeType::PADDING, total_len: room as u32 };
        header.emit(ByteOrder::Little, &mut padding);
        log.push(&padding);
        log.bytes.extend(&whole[..written]);
        log.bytes.resize(512, 0);
        log.name(1, 2, 11, "g", ENTRY_FILE);
        log.write(11, 1, 4, 0, "more");
        let mut flash = log.flash();
        flash.geometry = FlashGeometry::nand(BLOCK as u64, BLOCK as u32, 512, 512);
        let worst = findings(&flash).iter().map(|finding| finding.severity).max();
        match moved {
            0 => assert_eq!(worst, Some(Severity::Note), "{written}"),
            _ => assert!(worst > Some(Severity::Note), "no page ends there"),
        }
        let fs = Jffs2::mount(&flash, None).unwrap();
        assert_eq!(content(&fs, "f").unwrap(), b"OLD DATA");
        assert_eq!(content(&fs, "g").unwrap(), b"more");
    }
}

#[test]
fn an_image_that_ends_inside_a_node_is_told_from_an_interrupted_write() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut log = Log::new(order);
        log.name(1, 1, 10, "f", ENTRY_FILE);
        log.write(10, 1, 8, 0, "OLD DATA");
        log.bytes.resize(BLOCK + 1000, 0xFF);
        let start = log.write(10, 2, 24, 8, "data that is new");
        let len = log.bytes.len() - start;
        for kept in 1..len {
            let bytes = log.bytes[..start + kept].to_vec();
            let geometry = FlashGeometry::nor(bytes.len() as u64, BLOCK as u32);
            let told = findings(&Memory { bytes: bytes.clone(), geometry });
            let told: Vec<_> = told.iter().filter(|it| it.severity > Severity::Note).collect();
            let [told] = &told[..] else { panic!("{kept} bytes: {told:?}") };
            let place = (told.place.peb, told.place.offset);
            assert_eq!(place, (Some(1), Some((start - BLOCK) as u32)), "{kept} bytes");
            let text = match kept >= jffs2::Header::LEN {
                true => "the image ends inside a node of 84 bytes",
                false => "the image ends inside the header of a node",
            };
            assert_eq!(told.problem, text, "{kept} bytes");
            let is_known = kept >= jffs2::Inode::LEN;
            assert_eq!(told.path.as_deref(), is_known.then_some(&b"f"[..]), "{kept} bytes");
            // Erased to the end of the block, as a flash is behind a write that was cut.
            let worst = findings(&Log { order, bytes }.flash()).into_iter().map(|it| it.severity);
            assert_eq!(worst.max(), Some(Severity::Note), "{kept} bytes, erased behind");
        }
        // With the last byte of padding missing the node is whole.
        log.bytes.truncate(start + len);
        assert_eq!(findings(&log.flash()), []);
    }
    // At the end of a block as well.
    let mut log = Log::new(ByteOrder::Little);
    log.name(1, 1, 10, "f", ENTRY_FILE);
    log.bytes.resize(BLOCK - 40, 0xFF);
    let whole = log.bytes.len();
    let mut node = vec![0; jffs2::Inode::LEN + 8];
    file(10, 1, 8).emit(b"OLD DATA", ByteOrder::Little, &mut node);
    log.bytes.extend(&node[..40]);
    let told = findings(&log.flash());
    assert!(told.iter().any(|it| it.severity == Severity::Lost
        && it.place.offset == Some(whole as u32)
        && it.problem == "the image ends inside a node of 76 bytes"));
}

/// A flash with pages of 512 bytes, one of which cannot be corrected.
struct Lossy {
    memory: Memory,
    lost: u64,
}

impl Flash for Lossy {
    fn geometry(&self) -> &FlashGeometry {
        &self.memory.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let _corrected = self.memory.read(offset, buffer)?;
        let is_lost = offset < self.lost + 512 && offset + buffer.len() as u64 > self.lost;
        if is_lost {
            Err(FlashError::Uncorrectable { offset: self.lost })
        } else {
            Ok(Corrected::NONE)
        }
    }
}

#[test]
fn what_is_wrong_in_a_last_page_beyond_repair_was_cut_whatever_else_is_good_in_it() {
    for broken in [2, 9, 30, jffs2::Inode::LEN + 1] {
        for is_last in [true, false] {
            let mut log = Log::new(ByteOrder::Little);
            log.name(1, 1, 10, "f", ENTRY_FILE);
            log.write(10, 1, 8, 0, "OLD DATA");
            log.bytes.resize(1024, 0xFF);
            let new = log.write(10, 2, 8, 0, "NEW DATA");
            let mut padding = [0; 100];
            let header = jffs2::Header { node_type: NodeType::PADDING, total_len: 100 };
            header.emit(ByteOrder::Little, &mut padding);
            log.push(&padding);
            log.bytes[new + broken] ^= 0x10;
            if !is_last {
                log.bytes.resize(1536, 0xFF);
                log.push(&padding);
            }
            let mut memory = log.flash();
            memory.geometry = FlashGeometry::nand(BLOCK as u64, BLOCK as u32, 512, 16);
            let flash = Lossy { memory, lost: 1024 };
            let fs = Jffs2::mount(&flash, None).unwrap();
            let mut worst = None;
            check(&flash, None, &mut |it| worst = worst.max(Some(it.severity))).unwrap();
            match is_last {
                true => assert_eq!(content(&fs, "f").unwrap(), b"OLD DATA", "byte {broken}"),
                false => assert!(worst > Some(Severity::Note), "byte {broken}"),
            }
            assert!(!is_last || worst == Some(Severity::Note), "byte {broken}: {worst:?}");
        }
    }
}

/// A flash with pages of 512 bytes, one of which reads correctly only at times.
struct Unsteady {
    memory: Memory,
    page: u64,
    /// For each of its reads, least significant bit first and then from the start again: whether it
    /// cannot be corrected.
    lost: u64,
    reads: AtomicU32,
}

impl Flash for Unsteady {
    fn geometry(&self) -> &FlashGeometry {
        &self.memory.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let _corrected = self.memory.read(offset, buffer)?;
        let end = offset + buffer.len() as u64;
        if end <= self.page || offset >= self.page + 512 {
            return Ok(Corrected::NONE);
        }
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        if self.lost >> (number % 64) & 1 == 0 {
            return Ok(Corrected::NONE);
        }
        let wrong = self.page.max(offset)..(self.page + 512).min(end);
        for at in wrong.filter(|at| at % 7 == 0) {
            buffer[(at - offset) as usize] ^= 0x10;
        }
        Err(FlashError::Uncorrectable { offset: self.page })
    }
}

#[test]
fn a_page_that_does_not_read_the_same_each_time_gives_no_file_that_never_was() {
    let mut log = Log::new(ByteOrder::Little);
    log.name(1, 1, 10, "f", ENTRY_FILE);
    log.write(10, 1, 100, 0, &"o".repeat(100));
    log.write(10, 2, 4000, 0, &"n".repeat(4000));
    let page = (log.bytes.len() - 1) / 512 * 512;
    let mut memory = log.flash();
    memory.geometry = FlashGeometry::nand(memory.bytes.len() as u64, BLOCK as u32, 512, 16);
    let (mut old, mut new, mut errors) = (0, 0, 0);
    let (fades, comes) = ((0..64).map(|n| u64::MAX << n), (0..64).map(|n| (1 << n) - 1));
    for lost in
        fades.chain(comes).chain((1..500).map(|n: u64| n.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    {
        let (memory, page) = (memory.clone(), page as u64);
        let fs = Jffs2::mount(Unsteady { memory, page, lost, reads: AtomicU32::new(0) }, None);
        let fs = fs.unwrap();
        let mut sizes = vec![];
        for _ in 0..3 {
            let Ok(attributes) = fs.attributes(Inode(10)) else { continue };
            let mut bytes = vec![0xAA; 5000];
            sizes.push(attributes.size as usize);
            match fs.read(Inode(10), 0, &mut bytes) {
                Ok(100) if bytes[..100] == [b'o'; 100] => old += 1,
                Ok(4000) if bytes[..4000] == [b'n'; 4000] => new += 1,
                Ok(len) => panic!("{lost:#x}: {len} bytes, {:?}", &bytes[len - 1]),
                Err(_) => errors += 1,
            }
        }
        sizes.dedup();
        assert!(sizes.len() < 2, "{lost:#x}: {sizes:?}");
    }
    assert!(old > 0 && new > 0 && errors > 0, "{old} {new} {errors}");
}

#[test]
fn obsolete_and_unknown_nodes_are_passed_over() {
    let mut log = Log::new(ByteOrder::Little);
    log.name(1, 1, 10, "f", ENTRY_FILE);
    log.write(10, 1, 4, 0, "good");
    let obsolete = log.write(10, 2, 4, 0, "gone");
    log.bytes[obsolete + 3] &= 0xDF;
    let mut unknown = [0x55; 20];
    jffs2::Header { node_type: NodeType(0x2055), total_len: 20 }.emit(log.order, &mut unknown);
    log.push(&unknown);
    log.bytes.extend([0; 8]); // what Linux fills a page with
    log.write(10, 3, 6, 4, "!!");
    let flash = log.flash();
    assert_eq!(content(&Jffs2::mount(&flash, None).unwrap(), "f").unwrap(), b"good!!");
    assert_eq!(findings(&flash), []);
}

#[test]
fn attributes_come_by_reference_and_may_be_removed() {
    let mut log = Log::new(ByteOrder::Big);
    log.name(1, 1, 10, "f", ENTRY_FILE);
    log.write(10, 1, 1, 0, "x");
    let mut attribute = |xid, version, prefix, name: &str, value: &[u8]| {
        let xattr = Xattr { xid, version, prefix, name_len: 0, value_len: 0, data_crc: 0 };
        let mut node = vec![0; Xattr::node_len(name.len(), value.len())];
        xattr.emit(name.as_bytes(), value, log.order, &mut node);
        log.push(&node)
    };
    attribute(1, 2, XattrPrefix::User, "color", b"blue");
    attribute(1, 1, XattrPrefix::User, "color", b"red");
    attribute(2, 1, XattrPrefix::Security, "removed", b"-");
    attribute(3, 1, XattrPrefix::Trusted, "empty", b"");
    attribute(4, 1, XattrPrefix::AclAccess, "", &[0, 0, 0, 1, 0, 1, 0, 6]);
    let damaged = attribute(5, 1, XattrPrefix::User, "damaged", b"value");
    for (xid, xseqno) in [(1, 2), (2, 2), (2, 5), (3, 2), (4, 4), (4, 3), (5, 2)] {
        let mut node = [0; Xref::LEN];
        Xref { ino: 10, xid, xseqno }.emit(log.order, &mut node);
        log.push(&node);
    }
    log.bytes[damaged + Xattr::LEN + 10] ^= 1;
    let flash = log.flash();
    let fs = Jffs2::mount(&flash, None).unwrap();
    let mut found = vec![];
    let listed = fs.list_xattrs(Inode(10), &mut |name| {
        found.push(String::from_utf8(name.to_vec()).unwrap());
    });
    assert!(matches!(listed, Err(FsError::Damaged { .. })), "one of them is");
    assert_eq!(found, ["system.posix_acl_access", "trusted.empty", "user.color"]);
    let mut value = [0; 16];
    let mut read =
        |name: &[u8]| fs.read_xattr(Inode(10), name, &mut value).map(|len| value[..len].to_vec());
    assert_eq!(read(b"user.color").unwrap(), b"blue");
    assert_eq!(read(b"trusted.empty").unwrap(), b"");
    assert_eq!(read(b"system.posix_acl_access").unwrap()[..4], [2, 0, 0, 0]);
    assert!(matches!(read(b"user.damaged"), Err(FsError::Damaged { .. })));
    let mut short = [0; 2];
    let error = fs.read_xattr(Inode(10), b"user.color", &mut short);
    assert_eq!(error, Err(FsError::BufferTooSmall(4)));
    assert!(findings(&flash).iter().any(|f| f.path == Some(b"f".to_vec())));
}

#[test]
fn special_files_are_what_their_node_says() {
    let mut log = Log::new(ByteOrder::Little);
    let mut special = |ino, name, mode: u32, data: &[u8]| {
        log.name(1, ino, ino, name, (mode >> 12) as u8);
        let dsize = data.len() as u32;
        log.inode(jffs2::Inode { mode, dsize, ..file(ino, 1, dsize) }, data);
    };
    special(10, "symlink", 0o120_777, b"../target");
    special(11, "old device", 0o020_600, &[3, 1]);
    special(12, "new device", 0o060_600, &0x1111_0370u32.to_le_bytes());
    special(13, "pipe", 0o010_600, &[]);
    special(14, "socket", 0o140_600, &[]);
    special(15, "nothing", 0o150_600, &[]);
    let flash = log.flash();
    let fs = Jffs2::mount(&flash, None).unwrap();
    let attributes = |name: &[u8]| fs.attributes(fs.lookup(ROOT, name).unwrap());
    assert_eq!(attributes(b"symlink").unwrap().kind, FileKind::Symlink);
    assert_eq!(content(&fs, "symlink").unwrap(), b"../target");
    let device = attributes(b"old device").unwrap().device;
    assert_eq!((device.major, device.minor), (1, 3));
    let device = attributes(b"new device").unwrap().device;
    assert_eq!((device.major, device.minor), (259, 70_000));
    assert_eq!(attributes(b"pipe").unwrap().kind, FileKind::Fifo);
    assert_eq!(content(&fs, "socket"), Err(FsError::NoContent));
    assert!(matches!(attributes(b"nothing"), Err(FsError::Damaged { .. })));
    assert_eq!(fs.lookup(Inode(10), b"x"), Err(FsError::NotDirectory));
    assert_eq!(fs.read(ROOT, 0, &mut [0]), Err(FsError::IsDirectory));
}

#[test]
fn names_that_would_lead_elsewhere_are_not_shown() {
    let mut log = Log::new(ByteOrder::Little);
    for (version, name) in ["..", ".", "", "a/b", "nul\0", "fine"].into_iter().enumerate() {
        log.name(1, version as u32, 10, name, ENTRY_FILE);
    }
    log.write(10, 1, 1, 0, "x");
    let flash = log.flash();
    assert_eq!(names(&Jffs2::mount(&flash, None).unwrap(), ROOT), ["fine"]);
    assert_eq!(findings(&flash).len(), 5);
}

#[test]
fn a_flash_that_is_erased_is_empty_and_one_with_something_else_is_refused() {
    let geometry = FlashGeometry::nor(3 * BLOCK as u64, BLOCK as u32);
    let erased = Memory { bytes: vec![0xFF; 3 * BLOCK], geometry };
    let fs = Jffs2::mount(&erased, None).unwrap();
    assert_eq!(names(&fs, ROOT), [""; 0]);
    assert_eq!(fs.attributes(ROOT).unwrap().links, 3);
    let zeros = Memory { bytes: vec![0; 3 * BLOCK], geometry };
    assert_eq!(Jffs2::mount(&zeros, None).unwrap_err(), Jffs2MountError::NotJffs2);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn small_log(order: ByteOrder) -> Vec<u8> {
        let mut log = Log::new(order);
        log.name(1, 1, 10, "f", ENTRY_FILE);
        log.write(10, 1, 300, 0, &"text ".repeat(40));
        log.write(10, 2, 300, 200, &"more ".repeat(20));
        log.name(1, 2, 11, "d", ENTRY_DIRECTORY);
        log.inode(jffs2::Inode { mode: 0o040_755, ..file(11, 1, 0) }, &[]);
        log.name(11, 1, 10, "again", ENTRY_FILE);
        log.name(11, 2, 10, "last", ENTRY_FILE);
        log.flash().bytes
    }

    /// `JFFS2_NODE_ACCURATE` in the higher byte of a node's type.
    const ACCURATE: u8 = 0x20;

    /// Positions of the higher bytes of the nodes' types.
    fn node_types(bytes: &[u8], order: ByteOrder) -> Vec<usize> {
        let (magic, higher) = match order {
            ByteOrder::Big => ([0x19, 0x85], 2),
            ByteOrder::Little => ([0x85, 0x19], 3),
        };
        let nodes = (0..bytes.len()).step_by(4).filter(|&at| bytes[at..].starts_with(&magic));
        nodes.map(|at| at + higher).collect()
    }

    /// Reads everything in the file system.
    fn walk(fs: &impl FileSystem, directory: Inode, depth: u32) {
        let mut inodes = vec![];
        let _ = fs.list(directory, 0, &mut |entry| {
            inodes.push(entry.inode);
            ControlFlow::Continue(())
        });
        for inode in inodes {
            let _ = fs.attributes(inode);
            let mut buffer = [0; 1000];
            let _ = fs.read(inode, 0, &mut buffer);
            let _ = fs.next_data(inode, 1);
            let _ = fs.list_xattrs(inode, &mut |_| {});
            if depth < 3 {
                walk(fs, inode, depth + 1);
            }
        }
    }

    proptest! {
        #[test]
        fn changed_bytes_never_panic_and_never_pass_for_data(
            big: bool, changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        ) {
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let mut bytes = small_log(order);
            let types = node_types(&bytes, order);
            // The last node stays: damage of all that was written last may be a cut of power.
            let used = types.last().unwrap() - 3;
            let placed: Vec<_> = changes.iter().map(|&(at, value)| (at % used, value)).collect();
            for &(at, value) in &placed {
                // A type without ACCURATE alone is no damage: so the format says obsolete.
                if !types.contains(&at) || value != bytes[at] & !ACCURATE {
                    bytes[at] = value;
                }
            }
            let geometry = FlashGeometry::nor(bytes.len() as u64, BLOCK as u32);
            let flash = Memory { bytes, geometry };
            if let Ok(fs) = Jffs2::mount(&flash, Some(order)) {
                walk(&fs, ROOT, 0);
                if let Ok(content) = content(&fs, "f") {
                    let mut expected = "text ".repeat(40).into_bytes();
                    expected.extend("more ".repeat(20).into_bytes());
                    prop_assert!(expected.starts_with(&content), "{:?} {:?}", placed, content);
                }
                let _ = check(&flash, Some(order), &mut |_| {});
            }
        }
    }
}

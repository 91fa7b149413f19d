//! Wrong fields under correct checksums, and how a repair handles them.

use std::format;
use std::vec::Vec;

use flysch_api::finding::Severity;
use flysch_api::vfs::FileSystem;
use flysch_wire::ubifs::{
    DirectoryEntry, EntryKind, Group, Header, Key, Node, NodeKind, PADDING_NODE_SIZE, align8, crc32,
};

use super::tests::{Memory, NOW, ROOT, assert_sound, assert_whole, bytes, content, filled};
use super::{Level, Report, repair, survey};
use crate::{OpenOptions, Ubifs};

/// Where a node lies.
type Place = (usize, usize);

/// Good nodes of one kind.
fn nodes(memory: &Memory, kind: NodeKind) -> Vec<(Place, Header)> {
    let mut found = Vec::new();
    for (lnum, leb) in memory.lebs.iter().enumerate() {
        let Some(leb) = leb else { continue };
        let mut at = 0;
        while at + 24 <= leb.len() {
            let step = match Header::check(&leb[at..]) {
                Ok((header, _)) => {
                    found.push(((lnum, at), header));
                    align8(header.length) as usize
                }
                Err(_) => 8,
            };
            at += step;
        }
    }
    found.retain(|(_, header)| header.kind == kind);
    found
}

impl Memory {
    /// The bytes from a node to the end of its LEB.
    fn bytes(&mut self, (lnum, at): Place) -> &mut [u8] {
        &mut self.lebs[lnum].as_mut().unwrap()[at..]
    }

    /// Corrects a node's checksum.
    fn seal(&mut self, place: Place) {
        let node = self.bytes(place);
        let length = u32::from_le_bytes(*node[16..].first_chunk().unwrap()) as usize;
        let crc = crc32(&node[8..length]);
        node[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The newest entry of a name.
fn entry(memory: &Memory, name: &[u8]) -> Place {
    let is_it = |&((lnum, at), header): &(Place, Header)| {
        let bytes = &memory.lebs[lnum].as_ref().unwrap()[at..][..header.length as usize];
        matches!(Node::decode(header, bytes, Default::default()),
            Ok(Node::Entry(DirectoryEntry { name: found, .. })) if found == name)
    };
    let found = nodes(memory, NodeKind::Entry).into_iter().filter(is_it);
    found.max_by_key(|(_, header)| header.sequence).unwrap().0
}

fn mended(memory: Memory, level: Level) -> (Memory, Report) {
    assert_eq!(survey(&memory).unwrap().level, Some(level));
    let (memory, report) = repair(memory, level, NOW).unwrap();
    assert_sound(&memory, "repaired");
    (memory, report)
}

/// Number of files whose content has changed or is gone.
fn changed(memory: &Memory) -> usize {
    let fs = Ubifs::open(memory, &OpenOptions::default()).unwrap();
    let all = (0..40).map(|n| (n / 10, n % 10));
    all.filter(|(d, f)| content(&fs, &format!("d{d}/f{f}")) != Some(bytes(*d, *f))).count()
}

/// A padding node that covers a node in use: a scan of the LEB steps over it, but the index leads
/// to it.
#[test]
fn padding_over_nodes_in_use_costs_none_of_them() {
    let good = filled();
    let mut tried = 0;
    for ((lnum, at), header) in nodes(&good, NodeKind::Data).into_iter().take(12) {
        let behind = at + align8(header.length) as usize;
        let Ok((next, _)) = Header::check(&good.lebs[lnum].as_ref().unwrap()[behind..]) else {
            continue;
        };
        if next.kind != NodeKind::Data {
            continue;
        }
        tried += 1;
        // The node becomes padding that ends after the next one.
        let mut memory = good.clone();
        let covered = align8(header.length) + align8(next.length) - PADDING_NODE_SIZE as u32;
        Node::Padding(covered).emit(header.sequence, Group::None, memory.bytes((lnum, at)));
        let (memory, report) = mended(memory, Level::DangerDefault);
        assert!(report.changes.iter().any(|it| it.finding.problem.contains("inside another node")));
        let blocks = report.changes.iter().filter(|it| it.action == "the block is dropped");
        assert_eq!((blocks.count(), changed(&memory)), (1, 1), "{report:#?}");
    }
    assert!(tried > 3);
}

/// A node with an impossible length hides nothing, and its bytes are not taken for erased.
#[test]
fn a_length_that_no_inode_has_is_no_node() {
    let mut memory = filled();
    let unused = nodes(&memory, NodeKind::Inode).into_iter().map(|it| it.0).next().unwrap();
    let length = memory.leb_size - unused.1 as u32;
    memory.bytes(unused)[16..20].copy_from_slice(&length.to_le_bytes());
    memory.seal(unused);
    let (memory, _) = mended(memory, Level::DangerDefault);
    assert_whole(&memory, "repaired");
}

/// A wrong branch leads to the entry of another name, which is kept.
#[test]
fn what_a_wrong_branch_leads_to_stays() {
    let mut memory = filled();
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    let directory = fs.lookup(ROOT, b"d2").unwrap();
    let hash = |name: &[u8]| {
        let key =
            Key::any_entry(EntryKind::Directory, directory.0 as u32, fs.store.hash().hash(name));
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&key.inode().to_le_bytes());
        bytes[4..].copy_from_slice(&(2 << 29 | key.value()).to_le_bytes());
        bytes
    };
    let (kept, lost) = (hash(b"f4"), hash(b"f6"));
    let to = branch(&memory, kept).1;
    let place = branch(&memory, lost).0;
    let at = place.1;
    memory.lebs[place.0.0].as_mut().unwrap()[at..at + 12].copy_from_slice(&to);
    memory.seal(place.0);
    let (memory, report) = mended(memory, Level::DangerDefault);
    assert!(report.changes.iter().any(|it| it.action == "the name is dropped"), "{report:#?}");
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    assert_eq!(content(&fs, "d2/f4"), Some(bytes(2, 4)));
    assert_eq!(changed(&memory), 1, "d2/f6 has no name any more");
    let inode = fs.lookup(ROOT, b"lost+found").unwrap();
    assert!(fs.attributes(inode).is_ok());
}

/// The newest lowest-level branch with this key: its index node, its offset in the LEB, and its
/// target.
fn branch(memory: &Memory, key: [u8; 8]) -> ((Place, usize), [u8; 12]) {
    let mut newest: Option<(u64, (Place, usize), [u8; 12])> = None;
    for ((lnum, at), header) in nodes(memory, NodeKind::Index) {
        let leb = memory.lebs[lnum].as_ref().unwrap();
        if leb[at + 26..at + 28] != [0, 0] {
            continue;
        }
        for branch in (at + 28..at + header.length as usize).step_by(20) {
            let is_newer = newest.is_none_or(|found| found.0 < header.sequence);
            if leb[branch + 12..branch + 20] == key && is_newer {
                let to = *leb[branch..].first_chunk().unwrap();
                newest = Some((header.sequence, ((lnum, at), branch), to));
            }
        }
    }
    newest.map(|(_, place, to)| (place, to)).unwrap()
}

/// The type in a name is a copy of its inode's; with an unknown type it is not an entry.
#[test]
fn a_name_of_another_type_is_its_inodes() {
    let good = filled();
    for (kind, stays) in [(5, true), (1, true), (6, true), (7, false), (255, false)] {
        let mut memory = good.clone();
        let place = entry(&memory, b"f7");
        memory.bytes(place)[49] = kind;
        memory.seal(place);
        let (memory, report) = mended(memory, Level::DangerDefault);
        let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
        let told = |change: &super::Change| change.finding.problem.contains("type");
        assert!(report.changes.iter().any(told), "{report:#?}");
        assert_eq!(changed(&memory), usize::from(!stays), "type {kind}");
        assert_eq!(fs.lookup(ROOT, b"lost+found").is_ok(), !stays);
    }
}

/// A name with the number of another inode: neither that inode's type nor its link count fits.
#[test]
fn a_name_that_is_one_too_many_for_its_inode_is_dropped() {
    let mut memory = filled();
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    let directory = fs.lookup(ROOT, b"d1").unwrap();
    let place = entry(&memory, b"f7");
    memory.bytes(place)[40..48].copy_from_slice(&directory.0.to_le_bytes());
    memory.seal(place);
    let (memory, _) = mended(memory, Level::DangerDefault);
    assert_eq!(changed(&memory), 1);
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    assert_eq!(fs.lookup(ROOT, b"d1"), Ok(directory));
    assert!(fs.lookup(ROOT, b"lost+found").is_ok());
}

/// The index lists an inode under a key that holds more than its number: a lookup of the inode
/// fails, but a walk over the index meets it.
#[test]
fn an_inode_under_a_key_that_nobody_asks_for_gets_its_own() {
    let mut memory = filled();
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    let directory = fs.lookup(ROOT, b"d2").unwrap();
    let file = fs.lookup(directory, b"f6").unwrap();
    let mut key = [0; 8];
    key[..4].copy_from_slice(&(file.0 as u32).to_le_bytes());
    let (node, at) = branch(&memory, key).0;
    // The rest of the key, after LEB, offset, length and number.
    memory.lebs[node.0].as_mut().unwrap()[at + 16] = 5;
    memory.seal(node);
    let fs = Ubifs::open(&memory, &OpenOptions::default()).unwrap();
    assert!(fs.attributes(file).is_err());
    let told = fs.check().into_iter().filter(|it| it.severity != Severity::Note);
    let told: Vec<_> = told.map(|it| (it.inode, it.path)).collect();
    assert_eq!(told, [(Some(file), Some(b"d2/f6".to_vec()))]);
    let (memory, _) = mended(memory, Level::Safe);
    assert_whole(&memory, "repaired");
}

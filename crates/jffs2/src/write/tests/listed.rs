//! Summaries that say what cannot be.

use flysch_wire::jffs2::{Inode as InodeNode, Summary, SummaryEntry};

use super::*;
use crate::found::Address;

const NAME: &[u8] = b"file";

/// Where the last node of the block below lies, and its summary.
const LAST: usize = 3600;
const SUMMARY: usize = 4096;

/// A flash whose first block ends with a summary that lists two nodes of a file, and these.
fn listed(padding: u32, listed: &[SummaryEntry<'_>]) -> Nor {
    let order = ByteOrder::Little;
    let mut flash = Nor::new(8);
    let attributes =
        crate::read::Attributes { mode: 0o100_644, ..crate::read::Attributes::MADE_UP };
    attributes.node(10, 1).emit(&[], order, &mut flash.bytes[..InodeNode::LEN]);
    attributes.node(10, 9).emit(&[], order, &mut flash.bytes[LAST..][..InodeNode::LEN]);
    let dirent = flysch_wire::jffs2::Dirent {
        pino: 1,
        version: 1,
        ino: 10,
        mctime: 0,
        nsize: 0,
        kind: 8,
        name_crc: 0,
    };
    dirent.emit(NAME, order, &mut flash.bytes[InodeNode::LEN..]);
    let out = &mut flash.bytes[SUMMARY..BLOCK];
    let mut len = 0;
    let own = [NAME_ENTRY, inode_entry(1, 0, 68), inode_entry(9, LAST as u32, 68)];
    for entry in listed.iter().chain(&own) {
        len += entry.emit(order, &mut out[Summary::LEN + len..]);
    }
    let entries = (listed.len() + own.len()) as u32;
    let summary = Summary { entries, cleanmarker_len: 0, padded: padding, sum_crc: 0 };
    summary.emit(len, SUMMARY as u32, order, out);
    flash
}

fn inode_entry(version: u32, offset: u32, total_len: u32) -> SummaryEntry<'static> {
    SummaryEntry::Inode { ino: 10, version, offset, total_len }
}

const NAME_ENTRY: SummaryEntry<'static> = SummaryEntry::Dirent {
    total_len: 44,
    offset: InodeNode::LEN as u32,
    pino: 1,
    version: 1,
    ino: 10,
    kind: 8,
    name: NAME,
};

/// Nodes of the file that the mount knows, and dead bytes of the block.
fn known(flash: Nor) -> (usize, u32) {
    let fs = flash.mount();
    let nodes = fs.inodes().tables().inodes[&10].living().len();
    (nodes, fs.inodes().log().blocks.blocks[0].dead)
}

#[test]
fn a_summary_with_more_padding_than_a_block_holds_is_not_believed() {
    let most = (SUMMARY - 2 * InodeNode::LEN - 44) as u32;
    for padding in [1000, most] {
        assert_eq!(known(listed(padding, &[])), (2, padding));
    }
    // The block is scanned.
    for padding in [most + 1, BLOCK as u32, u32::MAX] {
        let (nodes, dead) = known(listed(padding, &[]));
        assert_eq!(nodes, 2);
        assert!(dead <= BLOCK as u32 && dead != padding, "{padding}: {dead}");
    }
}

#[test]
fn a_summary_whose_nodes_overlap_is_not_believed() {
    assert_eq!(known(listed(0, &[inode_entry(2, 112, 3000)])).0, 3);
    let summary = SUMMARY as u32;
    for (offset, len) in [(68, 3000), (0, 68), (112, 64), (114, 68), (summary - 64, 68)] {
        assert_eq!(known(listed(0, &[inode_entry(2, offset, len)])).0, 2, "{offset} {len}");
    }
}

#[test]
fn what_a_summary_lists_and_is_not_there_is_dropped() {
    let mut fs = listed(0, &[inode_entry(2, 112, 3000)]).mount();
    let blocks = &fs.inodes().log().blocks;
    let raw = *blocks.blocks[0].raws.iter().find(|raw| raw.at == 112).unwrap();
    fs.files.collector.copy_out(Address::new(112), &raw).unwrap();
    assert_eq!(fs.inodes().tables().inodes[&10].living().len(), 2);
    assert_eq!(fs.inodes().log().blocks.blocks[0].unreadable, None);
}

//! UBIFS nodes of every type, and the LEB properties tree of every geometry.
#![no_main]

use flysch_wire::ubifs::lpt::{LptFormat, Lsave, Ltab, Nnode, Pnode, crc16};
use flysch_wire::ubifs::{BranchFormat, Node, crc32};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut node = bytes.to_vec();
    if node.len() >= 24 {
        // A valid header, so that the bodies are reached.
        node[..4].copy_from_slice(&0x0610_1831_u32.to_le_bytes());
        let length = (node.len() as u32).to_le_bytes();
        node[16..20].copy_from_slice(&length);
        let crc = crc32(&node[8..]);
        node[4..8].copy_from_slice(&crc.to_le_bytes());
    }
    for hash_len in [0, 32, 64] {
        let format = BranchFormat { hash_len };
        let Ok((header, parsed)) = Node::parse(&node, format) else { continue };
        let mut again = vec![0; parsed.size()];
        parsed.emit(header.sequence, header.group, &mut again);
        assert_eq!(Node::parse(&again, format), Ok((again_header(&again), parsed)));
        if let Node::Index(index) = parsed {
            assert_eq!(index.branches().count(), index.len());
        }
        if let Node::Superblock(superblock) = parsed
            && let Ok(format) = LptFormat::new(&superblock)
        {
            lpt(bytes, &format);
        }
    }
});

fn again_header(bytes: &[u8]) -> flysch_wire::ubifs::Header {
    flysch_wire::ubifs::Header::parse(bytes).expect("just written")
}

fn lpt(bytes: &[u8], format: &LptFormat) {
    let Some(tail) = bytes.get(1024..) else { return };
    for kind in 0..4_u8 {
        let mut node = tail.to_vec();
        if node.len() < 3 {
            return;
        }
        node[2] = node[2] & 0xf0 | kind;
        let sizes = [format.pnode_size, format.nnode_size, format.ltab_size, format.lsave_size];
        let size = sizes[usize::from(kind)];
        if size < 3 || node.len() < size {
            continue;
        }
        let crc = crc16(&node[2..size]);
        node[..2].copy_from_slice(&crc.to_le_bytes());
        let mut out = vec![0; size];
        if let Ok(pnode) = Pnode::parse(&node, format) {
            pnode.emit(format, &mut out);
            assert_eq!(Pnode::parse(&out, format), Ok(pnode));
        }
        if let Ok(nnode) = Nnode::parse(&node, format) {
            nnode.emit(format, &mut out);
            assert_eq!(Nnode::parse(&out, format), Ok(nnode));
        }
        let _ = Ltab::parse(&node, format).map(|ltab| ltab.entries().count());
        let _ = Lsave::parse(&node, format).map(|lsave| lsave.lebs().count());
    }
}

use std::{vec, vec::Vec};

use proptest::prelude::*;

use super::*;

/// The start of an image that `mkfs.jffs2 -l` of mtd-utils 2.1.5 wrote: clean marker, directory
/// entry "a" of the root, and its inode, an empty file with all times 1 000 000 000.
#[rustfmt::skip]
const MKFS: [u8; 124] = [
    0x85, 0x19, 0x03, 0x20, 0x0c, 0x00, 0x00, 0x00, 0xb1, 0xb0, 0x1e, 0xe4, 0x85, 0x19, 0x01, 0xe0,
    0x29, 0x00, 0x00, 0x00, 0x6d, 0xa6, 0x2f, 0xd7, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x02, 0x00, 0x00, 0x00, 0x00, 0xca, 0x9a, 0x3b, 0x01, 0x08, 0x00, 0x00, 0x73, 0xef, 0x92, 0x3d,
    0xce, 0x51, 0xb5, 0x3a, 0x61, 0xff, 0xff, 0xff, 0x85, 0x19, 0x02, 0xe0, 0x44, 0x00, 0x00, 0x00,
    0x1d, 0xfb, 0xf7, 0x98, 0x02, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0xa4, 0x81, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xca, 0x9a, 0x3b, 0x00, 0xca, 0x9a, 0x3b,
    0x00, 0xca, 0x9a, 0x3b, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x2f, 0x7e, 0x61, 0xbf,
];

#[test]
fn what_mkfs_wrote_is_read_in_its_byte_order_only() {
    let order = ByteOrder::Little;
    let header = Header::parse(&MKFS, order).unwrap();
    assert_eq!(header, Header { node_type: NodeType::CLEANMARKER, total_len: 12 });
    assert_eq!(Header::parse(&MKFS, ByteOrder::Big), Err(Jffs2NodeError::Magic(0x8519)));
    assert_eq!(detect(&MKFS), Some(order));

    let dirent = Dirent::parse(&MKFS[12..], order).unwrap();
    assert_eq!((dirent.pino, dirent.ino, dirent.version), (ROOT_INO, 2, 0));
    assert_eq!((dirent.kind, dirent.mctime), (8, 1_000_000_000));
    assert_eq!(dirent.name(&MKFS[12..]), Ok(&b"a"[..]));

    let inode = Inode::parse(&MKFS[56..], order).unwrap();
    assert_eq!((inode.ino, inode.mode, inode.isize), (2, 0o100_644, 0));
    assert_eq!((inode.mtime, inode.data_len()), (1_000_000_000, 0));
    assert_eq!(inode.data(&MKFS[56..]), Ok(&[][..]));

    // What we write is the same, byte for byte.
    let mut out = [0xFF; MKFS.len()];
    header.emit(order, &mut out);
    dirent.emit(b"a", order, &mut out[12..]);
    inode.emit(&[], order, &mut out[56..]);
    assert_eq!(out, MKFS);
}

#[test]
fn the_clean_marker_of_nand_is_in_the_byte_order_of_the_image() {
    assert_eq!(oob_cleanmarker(ByteOrder::Little), [0x85, 0x19, 3, 0x20, 8, 0, 0, 0]);
    assert_eq!(oob_cleanmarker(ByteOrder::Big), [0x19, 0x85, 0x20, 3, 0, 0, 0, 8]);
}

fn orders() -> impl Strategy<Value = ByteOrder> {
    prop::sample::select(ByteOrder::ALL.to_vec())
}

prop_compose! {
    fn inodes()(
        words in any::<[u32; 9]>(),
        halves in any::<[u16; 3]>(),
        compression in any::<u8>(),
        user_compression in any::<u8>(),
        dsize in 1u32..,
    ) -> Inode {
        let [ino, version, mode, isize, atime, mtime, ctime, offset, data_crc] = words;
        Inode {
            ino, version, mode, uid: halves[0], gid: halves[1], isize, atime, mtime, ctime, offset,
            csize: 0, dsize, compression: compression.into(), user_compression, flags: halves[2],
            data_crc,
        }
    }
}

fn damaged(node: &[u8], bit: usize) -> Vec<u8> {
    let mut copy = node.to_vec();
    let bit = bit % (node.len() * 8);
    copy[bit / 8] ^= 1 << (bit % 8);
    copy
}

proptest! {
    #[test]
    fn inodes_survive_and_a_flipped_bit_does_not(
        inode in inodes(), order in orders(), bit: usize,
        data in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut out = vec![0; Inode::LEN + data.len()];
        prop_assert_eq!(inode.emit(&data, order, &mut out), out.len());
        let read = Inode::parse(&out, order).unwrap();
        let expected = Inode { csize: data.len() as u32, data_crc: crc32(&data), ..inode };
        prop_assert_eq!(read, expected);
        prop_assert_eq!(read.data(&out), Ok(&data[..]));
        prop_assert_eq!(detect(&out), Some(order));

        let bad = damaged(&out, bit);
        let found = Inode::parse(&bad, order).and_then(|inode| inode.data(&bad).map(drop));
        // Clearing the "accurate" bit makes a node obsolete; it is not damage.
        if Header::parse(&bad, order).is_ok_and(|header| !header.node_type.is_accurate()) {
            prop_assert!(found.is_ok());
        } else {
            prop_assert!(found.is_err());
        }
    }

    #[test]
    fn dirents_survive_and_a_flipped_bit_does_not(
        words in any::<[u32; 4]>(), kind: u8, order in orders(), bit: usize,
        name in prop::collection::vec(any::<u8>(), 0..=NAME_LEN_MAX),
    ) {
        let [pino, version, ino, mctime] = words;
        let dirent = Dirent { pino, version, ino, mctime, nsize: 0, kind, name_crc: 0 };
        let mut out = vec![0; Dirent::LEN + name.len()];
        prop_assert_eq!(dirent.emit(&name, order, &mut out), out.len());
        let read = Dirent::parse(&out, order).unwrap();
        let expected = Dirent { nsize: name.len() as u8, name_crc: crc32(&name), ..dirent };
        prop_assert_eq!(read, expected);
        prop_assert_eq!(read.name(&out), Ok(&name[..]));

        let bad = damaged(&out, bit);
        let found = Dirent::parse(&bad, order).and_then(|dirent| dirent.name(&bad).map(drop));
        let obsolete = Header::parse(&bad, order).is_ok_and(|h| !h.node_type.is_accurate());
        prop_assert_eq!(found.is_ok(), obsolete);
    }

    #[test]
    fn xattrs_and_xrefs_survive(
        xid: u32, version: u32, prefix: u8, order in orders(), bit: usize,
        name in prop::collection::vec(any::<u8>(), 0..=255),
        value in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let xattr = Xattr {
            xid, version, prefix: prefix.into(), name_len: 0, value_len: 0, data_crc: 0,
        };
        let mut out = vec![0; Xattr::node_len(name.len(), value.len())];
        prop_assert_eq!(xattr.emit(&name, &value, order, &mut out), out.len());
        let read = Xattr::parse(&out, order).unwrap();
        prop_assert_eq!((read.xid, read.version, u8::from(read.prefix)), (xid, version, prefix));
        prop_assert_eq!(read.name_and_value(&out), Ok((&name[..], &value[..])));
        // Nothing covers the padding.
        let bad = damaged(&out[..Xattr::LEN + name.len() + 1 + value.len()], bit);
        let bad = [&bad[..], &out[bad.len()..]].concat();
        let found = Xattr::parse(&bad, order).and_then(|x| x.name_and_value(&bad).map(drop));
        let obsolete = Header::parse(&bad, order).is_ok_and(|h| !h.node_type.is_accurate());
        prop_assert_eq!(found.is_ok(), obsolete);

        let xref = Xref { ino: xid, xid: version, xseqno: xid ^ version };
        let mut out = [0; Xref::LEN];
        prop_assert_eq!(xref.emit(order, &mut out), out.len());
        prop_assert_eq!(Xref::parse(&out, order), Ok(xref));
    }

    #[test]
    fn summaries_survive_and_a_flipped_bit_does_not(
        words in prop::collection::vec(any::<([u32; 5], u8, u8)>(), 0..40),
        order in orders(), bit: usize, gap in 0usize..64,
    ) {
        let names: Vec<Vec<u8>> = words.iter().map(|w| vec![w.2; usize::from(w.2)]).collect();
        let entries: Vec<SummaryEntry<'_>> = words
            .iter()
            .zip(&names)
            .map(|(&([a, b, c, d, e], kind, _), name)| match kind % 4 {
                0 => SummaryEntry::Inode { ino: a, version: b, offset: c, total_len: d },
                1 => SummaryEntry::Xattr { xid: a, version: b, offset: c, total_len: d },
                2 => SummaryEntry::Xref { offset: a },
                _ => SummaryEntry::Dirent {
                    total_len: a, offset: b, pino: c, version: d, ino: e, kind, name,
                },
            })
            .collect();
        let len: usize = entries.iter().map(SummaryEntry::len).sum();
        let mut out = vec![0; Summary::LEN + len + gap + SummaryTrailer::LEN];
        let mut at = Summary::LEN;
        for entry in &entries {
            at += entry.emit(order, &mut out[at..]);
        }
        let count = entries.len() as u32;
        let summary = Summary { entries: count, cleanmarker_len: 12, padded: 4, sum_crc: 0 };
        summary.emit(len, 0x1234, order, &mut out);
        let trailer = SummaryTrailer::parse(&out[out.len() - SummaryTrailer::LEN..], order);
        prop_assert_eq!(trailer, Some(SummaryTrailer { offset: 0x1234 }));
        let read = Summary::parse(&out, order).unwrap();
        prop_assert_eq!(Summary { sum_crc: 0, ..read }, summary);
        let back: Result<Vec<_>, _> = read.entries(&out, order).collect();
        prop_assert_eq!(back, Ok(entries));
        prop_assert!(Summary::parse(&damaged(&out, bit), order).is_err());
    }

    #[test]
    fn no_bytes_make_a_parser_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400), order in orders(),
        node_type in prop::sample::select(vec![0xE001u16, 0xE002, 0x2006, 0xE008, 0xE009, 0x2003]),
        total_len: u32,
    ) {
        if bytes.len() >= Header::LEN {
            let header = Header { node_type: NodeType(node_type), total_len };
            header.emit(order, &mut bytes);
        }
        for (len, crc_at) in [(32, 32), (60, 64), (28, 28), (24, 24), (24, 28)] {
            if bytes.len() >= crc_at + 4 {
                let crc = crc32(&bytes[..len]);
                bytes[crc_at..crc_at + 4].copy_from_slice(&order.bytes32(crc));
            }
            let _ = Inode::parse(&bytes, order).map(|inode| inode.data(&bytes).map(<[u8]>::len));
            let _ = Dirent::parse(&bytes, order).map(|dirent| dirent.name(&bytes).map(<[u8]>::len));
            let _ = Xattr::parse(&bytes, order).map(|x| x.name_and_value(&bytes).map(drop));
            let _ = Xref::parse(&bytes, order);
            if let Ok(summary) = Summary::parse(&bytes, order) {
                prop_assert!(summary.entries(&bytes, order).count() <= bytes.len());
            }
            let all = Summary { entries: u32::MAX, cleanmarker_len: 0, padded: 0, sum_crc: 0 };
            prop_assert!(all.entries(&bytes, order).count() <= bytes.len() + 1);
        }
        let _ = SummaryTrailer::parse(&bytes, order);
        let _ = order.parse_device(&bytes);
    }
}

#[test]
fn a_hole_with_swapped_sizes_stores_nothing() {
    let swapped = Inode {
        ino: 5,
        version: 1,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        isize: 4096,
        atime: 0,
        mtime: 0,
        ctime: 0,
        offset: 0,
        csize: 4096,
        dsize: 0,
        compression: Compression::Zero,
        user_compression: 0,
        flags: 0,
        data_crc: 0,
    };
    assert_eq!((swapped.stored_len(), swapped.data_len()), (0, 4096));
    let hole = Inode { csize: 0, dsize: 4096, ..swapped };
    assert_eq!((hole.stored_len(), hole.data_len()), (0, 4096));
}

#[test]
fn unknown_types_tell_what_a_reader_must_do() {
    use Compatibility::{Copy, Delete, Incompatible, ReadOnly};
    for (bits, expected) in
        [(0x2099, Delete), (0x6099, Copy), (0xA099, ReadOnly), (0xE099, Incompatible)]
    {
        let node_type = NodeType(bits);
        assert_eq!(node_type.compatibility(), expected);
        assert!(!node_type.is_known());
    }
    assert!(NodeType::INODE.as_obsolete().is_known());
    assert_eq!(NodeType::INODE.as_obsolete().as_accurate(), NodeType::INODE);
}

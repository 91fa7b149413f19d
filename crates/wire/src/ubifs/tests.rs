use proptest::collection::vec;
use proptest::prelude::*;
use std::vec::Vec;

use super::lpt::{self, LebProperties, LptFormat, LptPlace, Lsave, Ltab, Nnode, Pnode};
use super::*;

const PLAIN: BranchFormat = BranchFormat { hash_len: 0 };

fn superblock() -> Superblock {
    Superblock {
        key_hash: 0,
        key_format: 0,
        flags: SuperblockFlags::BIG_LPT,
        min_io_size: 2048,
        leb_size: 129_024,
        leb_count: 100,
        leb_count_max: 1000,
        bud_bytes_max: 8 << 20,
        log_lebs: 5,
        lpt_lebs: 2,
        orphan_lebs: 1,
        journal_heads: 1,
        fanout: 8,
        lsave_count: 256,
        format_version: 5,
        default_compression: 1,
        reserved_owner: 0,
        reserved_group: 0,
        reserved_size: 1 << 20,
        time_granularity: 1_000_000_000,
        uuid: [7; 16],
        ro_compat_version: 0,
        hmac: [0; 64],
        hmac_wkm: [0; 64],
        hash_algorithm: 0xffff,
        master_hash: [0; 64],
    }
}

fn round_trip(node: Node<'_>) {
    let mut bytes = std::vec![0xaa; node.size()];
    assert_eq!(node.emit(77, Group::Last, &mut bytes), bytes.len());
    let (header, parsed) = Node::parse(&bytes, PLAIN).unwrap();
    assert_eq!(parsed, node);
    assert_eq!((header.sequence, header.group), (77, Group::Last));
    bytes[27] ^= 0x10;
    assert!(matches!(Node::parse(&bytes, PLAIN), Err(NodeError::Crc { .. })));
}

#[test]
fn fixed_nodes_round_trip() {
    round_trip(Node::Superblock(superblock()));
    round_trip(Node::Truncation(Truncation { inode: 70, old_size: 1 << 40, new_size: 5 }));
    round_trip(Node::Padding(1234));
    round_trip(Node::Reference(Reference { lnum: 12, offset: 2048, head: 2 }));
    round_trip(Node::CommitStart(CommitStart { commit: 9 }));
    let inodes = [65_u64, 66].map(u64::to_le_bytes);
    round_trip(Node::Orphans(Orphans::new(3, true, inodes.as_flattened())));
    round_trip(Node::Authentication(Authentication { hmac: &[1; 32] }));
    round_trip(Node::Signature(Signature { kind: 1, signature: &[2; 100] }));
    round_trip(Node::Entry(DirectoryEntry {
        kind: EntryKind::Xattr,
        key: Key::xattr_entry(65, KeyHash::R5.hash(b"user.a")),
        inode: 66,
        file_type: 0,
        cookie: 0x1234_5678,
        name: b"user.a",
    }));
    round_trip(Node::Data(Data {
        key: Key::data(65, 3),
        size: 4096,
        compression: Compression::Zstd,
        plain_size: 0,
        data: &[9; 333],
    }));
}

#[test]
fn hashes_of_names() {
    // Computed by hand from the definition: "a" is 97; (97 << 4 + 97 >> 4) * 11 = 17138.
    assert_eq!(KeyHash::R5.hash(b"a"), 17138);
    assert_eq!(KeyHash::Test.hash(b"a"), 97);
    assert_eq!(KeyHash::R5.hash(b""), 3, "reserved values are moved up");
    assert_eq!(KeyHash::Test.hash(&[2]), 5);
    // 0xE9 is -23 as a signed char: (-368 + -2) * 11 = -4070, masked to 29 bits.
    assert_eq!(KeyHash::R5.hash(&[0xe9]), (-4070_i32 as u32) & Key::VALUE_MAX);
}

#[test]
fn keys_sort_as_the_index_does() {
    let sorted = [
        Key::inode_node(5),
        Key::data(5, 0),
        Key::data(5, 1),
        Key::entry(5, 3),
        Key::xattr_entry(5, 3),
        Key::inode_node(6),
    ];
    assert!(sorted.is_sorted());
    assert_eq!(sorted[2].kind(), KeyKind::Data);
    assert_eq!(sorted[4].inode(), 5);
}

#[test]
fn the_superblock_names_its_bad_field() {
    let good = superblock();
    let layout = good.layout().unwrap();
    assert_eq!(
        (layout.log, layout.lpt, layout.orphans, layout.main),
        (3..8, 8..10, 10..11, 11..100)
    );
    let cases = [
        (Superblock { fanout: 2, ..good }, "fanout"),
        (Superblock { fanout: u32::MAX, ..good }, "fanout"),
        (Superblock { format_version: 6, ro_compat_version: 1, ..good }, "fmt_version"),
        (Superblock { leb_size: 129_025, ..good }, "leb_size"),
        (Superblock { leb_size: u32::MAX - 7, ..good }, "leb_size"),
        (Superblock { min_io_size: 4, ..good }, "min_io_size"),
        (Superblock { leb_count: 5, ..good }, "leb_cnt"),
        (Superblock { leb_count_max: 99, ..good }, "leb_cnt"),
        (Superblock { leb_count: 16, leb_count_max: 16, ..good }, "max_leb_cnt"),
        (Superblock { log_lebs: u32::MAX, ..good }, "log_lebs"),
        (Superblock { log_lebs: 2, ..good }, "log_lebs"),
        (Superblock { lpt_lebs: 90, ..good }, "lpt_lebs"),
        (Superblock { orphan_lebs: 0, ..good }, "orph_lebs"),
        (Superblock { bud_bytes_max: 1, ..good }, "max_bud_bytes"),
        (Superblock { key_hash: 9, ..good }, "key_hash"),
    ];
    for (superblock, field) in cases {
        assert_eq!(superblock.layout().unwrap_err().field, field);
    }
    assert!(Superblock { format_version: 6, ..good }.layout().is_ok(), "readable by ro_compat 0");
}

#[test]
fn lpt_widths_follow_from_the_superblock() {
    let format = LptFormat::new(&superblock()).unwrap();
    assert_eq!(format.space_bits, 17 - 3);
    assert_eq!((format.lpt_lnum_bits, format.lpt_offs_bits, format.lpt_spc_bits), (2, 17, 17));
    assert_eq!((format.pcnt_bits, format.lnum_bits), (8, 10));
    assert_eq!(format.height, 4);
    let (level_3, level_2) = (format.nnode_number(1, 4, 0), format.nnode_number(4, 3, 0));
    assert_eq!((level_3, level_2, format.nnode_number(16, 2, 0)), (4, 16, 64));
}

#[test]
fn crc16_is_the_modbus_one() {
    assert_eq!(lpt::crc16(b"123456789"), 0x4b37);
}

proptest! {
    #[test]
    fn inodes_round_trip(inode: u32, size: u64, word: u32, data in vec(any::<u8>(), 0..200)) {
        round_trip(Node::Inode(InodeNode {
            key: Key::inode_node(inode), creation_sequence: size ^ 1, size,
            accessed: (size, 1), changed: (2, word), modified: (word.into(), 3),
            links: word, owner: word ^ 1, group: word ^ 2, mode: word ^ 3, flags: InodeFlags(word),
            xattr_count: 1, xattr_size: 2, xattr_names: 3,
            compression: Compression::from_code(word as u16), data: &data,
        }));
    }

    #[test]
    fn masters_round_trip(words: [u32; 20], sums: [u64; 8], hash: [u8; 32]) {
        let mut root_hash = [0; 64];
        root_hash[..32].copy_from_slice(&hash);
        round_trip(Node::Master(Master {
            highest_inode: sums[0], commit: sums[1], flags: MasterFlags(words[0]),
            log_lnum: words[1], root_lnum: words[2], root_offs: words[3], root_len: words[4],
            gc_lnum: words[5], ihead_lnum: words[6], ihead_offs: words[7], index_size: sums[2],
            total_free: sums[3], total_dirty: sums[4], total_used: sums[5], total_dead: sums[6],
            total_dark: sums[7], lpt_lnum: words[8], lpt_offs: words[9], nhead_lnum: words[10],
            nhead_offs: words[11], ltab_lnum: words[12], ltab_offs: words[13],
            lsave_lnum: words[14], lsave_offs: words[15], lscan_lnum: words[16],
            empty_lebs: words[17], idx_lebs: words[18], leb_cnt: words[19],
            root_hash, lpt_hash: [5; 64], hmac: [6; 64],
        }));
    }

    #[test]
    fn indexes_round_trip(level: u16, hash_len in 0_u8..=64, count in 0_usize..9, seed: u32) {
        let format = BranchFormat { hash_len };
        let hash = std::vec![0x5a; usize::from(hash_len)];
        let mut stored = std::vec![0; count * format.branch_size()];
        for (i, out) in stored.chunks_exact_mut(format.branch_size()).enumerate() {
            let key = Key::data(seed, i as u32);
            let branch = Branch { lnum: seed, offset: i as u32, length: 9, key, hash: &hash };
            branch.write(out);
        }
        let node = Node::Index(Index::new(level, format, &stored));
        let mut bytes = std::vec![0; node.size()];
        node.emit(1, Group::None, &mut bytes);
        let (_, parsed) = Node::parse(&bytes, format).unwrap();
        prop_assert_eq!(parsed, node);
        let Node::Index(index) = parsed else { unreachable!() };
        prop_assert_eq!(index.branches().count(), count);
        for (i, branch) in index.branches().enumerate() {
            prop_assert_eq!((branch.key, branch.hash), (Key::data(seed, i as u32), &hash[..]));
        }
    }

    #[test]
    fn lpt_nodes_round_trip(big: bool, lebs in 17_u32..100_000, shift in 0_u32..8, seed: u32) {
        let leb_size = (15 << 10 << shift) + 8 * (seed % 1000);
        let flags = if big { SuperblockFlags::BIG_LPT } else { SuperblockFlags(0) };
        let superblock = Superblock {
            flags, leb_size, leb_count: lebs, leb_count_max: lebs + seed % 5000, min_io_size: 8,
            log_lebs: 4, bud_bytes_max: u64::from(leb_size) * 4, ..superblock()
        };
        let format = LptFormat::new(&superblock).unwrap();
        let mut bytes = std::vec![0; format.leb_size as usize];
        let free = (seed % leb_size) & !7;
        let dirty = (leb_size - free) & !7;
        let properties = LebProperties { free, dirty, index: seed & 1 == 1 };
        let number = if big { format.pnodes() - 1 } else { 0 };
        let pnode = Pnode { number, lebs: [properties; 4] };
        pnode.emit(&format, &mut bytes);
        prop_assert_eq!(Pnode::parse(&bytes, &format), Ok(pnode));
        prop_assert!(Nnode::parse(&bytes, &format).is_err());

        let place = LptPlace { lnum: format.first + 1, offset: seed % leb_size };
        let nnode = Nnode { number, children: [Some(place), None, None, Some(place)] };
        nnode.emit(&format, &mut bytes);
        prop_assert_eq!(Nnode::parse(&bytes, &format), Ok(nnode));

        let entries = [(leb_size, 0), (5, leb_size - 5)];
        Ltab::emit(entries, &format, &mut bytes);
        let parsed = Ltab::parse(&bytes, &format).unwrap();
        prop_assert_eq!(parsed.entries().collect::<Vec<_>>(), entries);

        let lsave: Vec<u32> = (0..256).map(|i| format.main_first + i % format.main_lebs).collect();
        if big {
            Lsave::emit(lsave.iter().copied(), &format, &mut bytes);
            let parsed = Lsave::parse(&bytes, &format).unwrap();
            prop_assert_eq!(parsed.lebs().collect::<Vec<_>>(), lsave);
        }
    }

    #[test]
    fn any_bytes_are_parsed_without_panic(mut bytes in vec(any::<u8>(), 0..300), kind in 0_u8..15) {
        let format = LptFormat::new(&superblock()).unwrap();
        let _ = (format.identify(&bytes), Pnode::parse(&bytes, &format).is_ok());
        let _ = (Nnode::parse(&bytes, &format).is_ok(), Ltab::parse(&bytes, &format).is_ok());
        if bytes.len() >= HEADER_SIZE {
            // A valid header and CRC, so that the bodies are reached.
            let length = bytes.len() as u32;
            let kind = NodeKind::from_code(kind);
            Header { sequence: 1, length, kind, group: Group::None }.emit(&mut bytes);
            let _ = Node::parse(&bytes, PLAIN).is_ok();
            let _ = Node::parse(&bytes, BranchFormat { hash_len: 32 }).is_ok();
        }
    }
}

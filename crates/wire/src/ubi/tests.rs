use proptest::prelude::*;

use super::fastmap;
use super::*;

fn vid() -> VidHeader {
    VidHeader {
        kind: VolumeKind::Dynamic,
        copy: false,
        compatibility: Compatibility::None,
        volume: 3,
        lnum: 7,
        data_size: 0,
        used_ebs: 0,
        data_pad: 0,
        data_crc: 0,
        sequence: 99,
    }
}

#[test]
fn the_empty_record_has_the_known_checksum() {
    let record = VolumeRecord::emit_empty();
    assert_eq!(record[168..], 0xf116_c36b_u32.to_be_bytes());
    assert_eq!(VolumeRecord::parse(&record), Ok(None));
}

#[test]
fn headers_refuse_what_linux_refuses() {
    let good = vid();
    assert_eq!(VidHeader::parse(&good.emit()), Ok(good));
    let cases = [
        (VidHeader { volume: 128, ..good }, "vol_id"),
        (VidHeader { compatibility: Compatibility::Reject, ..good }, "compat"),
        (VidHeader { used_ebs: 1, ..good }, "used_ebs"),
        (VidHeader { data_size: 1, ..good }, "data_size"),
        (VidHeader { data_crc: 1, ..good }, "data_crc"),
        (VidHeader { copy: true, ..good }, "data_size"),
        (VidHeader { kind: VolumeKind::Static, data_size: 1, ..good }, "used_ebs"),
        (VidHeader { kind: VolumeKind::Static, used_ebs: 8, ..good }, "data_size"),
    ];
    for (header, field) in cases {
        assert_eq!(VidHeader::parse(&header.emit()), Err(HeaderError::Field(field)), "{header:?}");
    }
    assert_eq!(VidHeader { data_pad: 500, ..good }.fits(1000), Err(HeaderError::Field("data_pad")));
    let part = VidHeader { kind: VolumeKind::Static, used_ebs: 9, data_size: 10, ..good };
    assert_eq!(part.fits(1000), Err(HeaderError::Field("data_size")));
    assert_eq!(VidHeader { used_ebs: 8, ..part }.fits(1000), Ok(()));
    assert_eq!(EcHeader::parse(&[0xff; 64]), Err(HeaderError::Erased));
}

#[test]
fn one_flipped_bit_is_seen_anywhere() {
    let bytes = vid().emit();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(VidHeader::parse(&flipped).is_err(), "bit {bit}");
    }
}

proptest! {
    #[test]
    fn ec_headers_round_trip(
        erase_counter in 0..=ERASE_COUNTER_MAX,
        vid_header_offset in 64_u32..65536,
        gap in 64_u32..65536,
        image_sequence: u32,
    ) {
        let data_offset = vid_header_offset + gap;
        let header = EcHeader { erase_counter, vid_header_offset, data_offset, image_sequence };
        prop_assert_eq!(EcHeader::parse(&header.emit()), Ok(header));
    }

    #[test]
    fn records_round_trip(
        name in proptest::collection::vec(1_u8.., 1..=NAME_MAX),
        pebs in 1_u32..,
    ) {
        let mut record = VolumeRecord::new(&name, pebs).unwrap();
        record.flags = VolumeFlags::AUTORESIZE;
        record.kind = VolumeKind::Static;
        prop_assert_eq!(VolumeRecord::parse(&record.emit()), Ok(Some(record)));
        prop_assert_eq!(record.name(), &name[..]);
    }

    #[test]
    fn fastmap_parts_round_trip(words: [u32; 6], sequence: u64, size in 0..=256_u16) {
        let superblock = fastmap::Superblock {
            data_crc: words[0], used_blocks: 1 + words[1] % 32,
            locations: [words[2]; 32], erase_counters: [words[3]; 32], sequence,
        };
        prop_assert_eq!(fastmap::Superblock::parse(&superblock.emit()), Ok(superblock));
        let [free, used, scrub, bad, erase, volumes] = words;
        let header = fastmap::Header { free, used, scrub, bad, erase, volumes };
        prop_assert_eq!(fastmap::Header::parse(&header.emit()), Ok(header));
        let pool = fastmap::Pool { size, size_max: 256, pebs: [words[4]; 256] };
        prop_assert_eq!(fastmap::Pool::parse(&pool.emit()), Ok(pool));
        let volume = fastmap::FastmapVolume {
            volume: words[0], kind: VolumeKind::Static, data_pad: words[1], used_ebs: words[2],
            last_eb_bytes: words[3],
        };
        prop_assert_eq!(fastmap::FastmapVolume::parse(&volume.emit()), Ok(volume));
        let map = fastmap::MapHeader { reserved_pebs: words[5] };
        prop_assert_eq!(fastmap::MapHeader::parse(&map.emit()), Ok(map));
    }

    #[test]
    fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (EcHeader::parse(&bytes), VidHeader::parse(&bytes), VolumeRecord::parse(&bytes));
        let _ = (fastmap::Superblock::parse(&bytes), fastmap::Pool::parse(&bytes));
    }
}

use proptest::prelude::*;

use super::concat::Concat;
use super::disklabel::Disklabel;
use super::gpt::{self, Guid, Header, HeaderFault};
use super::label::Label;
use super::mbr::Record;
use super::mirror::{Balance, Mirror};
use super::multipath::{Mode, Multipath};
use super::stripe::Stripe;
use super::*;

fn name<const N: usize>(text: &str) -> Name<N> {
    Name::new(text).unwrap()
}

#[test]
fn labels_come_back_as_they_were_written() {
    let mut sector = [0xAA; 512];
    let label = Label { label: name("data"), provider_size: Some(1 << 30) };
    label.emit(&mut sector);
    assert_eq!(Label::parse(&sector), Ok(label));
    assert!(sector[label::LEN..].iter().all(|byte| *byte == 0));
    let stripe = Stripe {
        name: name("st"),
        id: 0xDEAD_BEEF,
        number: 1,
        all: 3,
        stripe_size: 65536,
        provider: Some(name("da1")),
        provider_size: 12345 * 512,
    };
    stripe.emit(&mut sector);
    assert_eq!(Stripe::parse(&sector), Ok(stripe));
    let concat = Concat {
        name: name("cc"),
        id: 7,
        number: 2,
        all: 3,
        provider: None,
        provider_size: 99 * 4096,
    };
    concat.emit(&mut sector);
    assert_eq!(Concat::parse(&sector), Ok(concat));
    let multipath = Multipath {
        uuid: name("5b5b69c0-1d3e-11e3-a992-00259062ec50"),
        name: name("disk0"),
        sector_size: 512,
        media_size: 750_156_374_016,
        mode: Mode::ActiveRead,
    };
    multipath.emit(&mut sector);
    assert_eq!(Multipath::parse(&sector), Ok(multipath));
    assert_eq!(class_of_magic(&sector), Some("MULTIPATH"));
}

const MIRROR: &str = "gm0";

fn mirror() -> Mirror {
    Mirror {
        name: name(MIRROR),
        id: 0x0102_0304,
        disk_id: 0x0506_0708,
        all: 2,
        gen_id: 3,
        sync_id: 4,
        priority: 5,
        slice: 4096,
        balance: Balance::Load,
        media_size: 1 << 20,
        sector_size: 512,
        sync_offset: 0x1122,
        flags: 1,
        disk_flags: 0x10,
        provider: Some(name("ada0")),
        provider_size: (1 << 20) + 512,
    }
}

#[test]
fn mirrors_lie_where_freebsd_puts_them() {
    let mut sector = [0; 512];
    mirror().emit(&mut sector);
    assert_eq!(Mirror::parse(&sector), Ok(mirror()));
    assert_eq!(sector[..20], *b"GEOM::MIRROR\0\0\0\0\x04\0\0\0");
    assert_eq!(sector[36..45], [4, 3, 2, 1, 8, 7, 6, 5, 2]);
    assert_eq!(sector[45..59], [3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 16, 0, 0, 2]);
    // Any flipped bit is detected.
    for at in 0..LEN_OF_SUMMED {
        let mut wrong = sector;
        wrong[at] ^= 1;
        assert!(Mirror::parse(&wrong).is_err(), "{at}");
    }
}

const LEN_OF_SUMMED: usize = 119;

#[test]
fn old_mirrors_are_read() {
    use md5::{Digest, Md5};
    let mut sector = [0; 512];
    mirror().emit(&mut sector);
    // Version 2 has no provider size.
    let mut second = sector;
    second[16] = 2;
    second[111..].fill(0);
    let sum: [u8; 16] = Md5::digest(&second[..111]).into();
    second[111..127].copy_from_slice(&sum);
    assert_eq!(Mirror::parse(&second), Ok(Mirror { provider_size: 0, ..mirror() }));
    // Version 1 has no generation either.
    let mut first = second;
    first[16] = 1;
    first.copy_within(49..111, 45);
    first[107..].fill(0);
    let sum: [u8; 16] = Md5::digest(&first[..107]).into();
    first[107..123].copy_from_slice(&sum);
    assert_eq!(Mirror::parse(&first), Ok(Mirror { provider_size: 0, gen_id: 0, ..mirror() }));
}

#[test]
fn guids_are_written_as_everybody_does() {
    let efi: Guid = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B".parse().unwrap();
    assert_eq!(efi.0[..8], [0x28, 0x73, 0x2A, 0xC1, 0x1F, 0xF8, 0xD2, 0x11]);
    assert_eq!(efi.0[8..], [0xBA, 0x4B, 0, 0xA0, 0xC9, 0x3E, 0xC9, 0x3B]);
    assert_eq!(std::format!("{efi}"), "c12a7328-f81f-11d2-ba4b-00a0c93ec93b");
    assert!("c12a7328-f81f-11d2-ba4b-00a0c93ec93".parse::<Guid>().is_err());
}

fn header() -> Header {
    Header {
        own_lba: 1,
        alternate_lba: 2047,
        first_usable: 40,
        last_usable: 2007,
        disk: Guid([9; 16]),
        table_lba: 2,
        entries: 128,
        entry_len: 128,
        table_crc: 0x1234_5678,
    }
}

#[test]
fn headers_are_judged() {
    let mut sector = [0; 512];
    header().emit(&mut sector);
    assert_eq!(Header::parse(&sector, 1, 2047), Ok(header()));
    assert_eq!(Header::parse(&sector, 2, 2047), Err(HeaderFault::Invalid("it belongs elsewhere")));
    assert_eq!(Header::parse(&[0; 512], 1, 2047), Err(HeaderFault::Missing));
    let mut wrong = sector;
    wrong[56] ^= 1;
    assert_eq!(Header::parse(&wrong, 1, 2047), Err(HeaderFault::Corrupt("its checksum")));
    let cases = [
        Header { entries: u32::MAX, ..header() },
        Header { entry_len: 132, ..header() },
        Header { entry_len: 1 << 30, ..header() },
        Header { table_lba: 1000, ..header() },
        Header { table_lba: u64::MAX, ..header() },
        Header { last_usable: 2047, ..header() },
        Header { first_usable: 0, ..header() },
        Header { alternate_lba: 2048, ..header() },
    ];
    for case in cases {
        case.emit(&mut sector);
        let judged = Header::parse(&sector, 1, 2047);
        assert!(matches!(judged, Err(HeaderFault::Invalid(_))), "{case:?}: {judged:?}");
    }
}

#[test]
fn cylinders_are_counted() {
    assert_eq!(mbr::Chs::of(0, 255, 63).0, [0, 1, 0]);
    assert_eq!(mbr::Chs::of(63, 255, 63).0, [1, 1, 0]);
    assert_eq!(mbr::Chs::of(255 * 63 * 1023, 255, 63).0, [0, 0xC1, 0xFF]);
    assert_eq!(mbr::Chs::of(u64::MAX, 255, 63).0, [0xFE, 0xFF, 0xFF]);
}

fn reader(bytes: &[u8]) -> impl FnMut(u64, &mut [u8]) -> bool + '_ {
    |at, to| {
        assert!(to.len() <= volume::READ_MAX);
        let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)?.get(..to.len()));
        from.map(|from| to.copy_from_slice(from)).is_some()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn anything_is_read_without_a_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..2048),
        which in 0..8_usize,
    ) {
        let mut bytes = bytes;
        let magics: [&[u8]; 8] = [
            &label::MAGIC, &stripe::MAGIC, &concat::MAGIC, &multipath::MAGIC, &mirror::MAGIC,
            b"EFI PART", b"\xEB\x00\x90NTFS    \x00\x02\x08", b"XFSB\0\0\x10\0",
        ];
        if let Some(front) = bytes.get_mut(..magics[which].len()) {
            front.copy_from_slice(magics[which]);
        }
        let _ = Label::parse(&bytes);
        let _ = Stripe::parse(&bytes);
        let _ = Concat::parse(&bytes);
        let _ = Multipath::parse(&bytes);
        let _ = Mirror::parse(&bytes);
        let _ = Disklabel::parse(&bytes);
        let _ = Record::parse(&bytes);
        let _ = gpt::Entry::parse(&bytes);
        let _ = Header::parse(&bytes, 1, 1000);
        for file_system in volume::FileSystem::ALL {
            let _ = volume::probe(file_system, &mut reader(&bytes));
        }
    }

    #[test]
    fn tables_come_back(
        serial in any::<u32>(),
        sizes in any::<[u32; 8]>(),
        kinds in any::<[u8; 8]>(),
    ) {
        let mut sector = [0x5A; 512];
        let mut record = Record { serial, ..Record::EMPTY };
        for (at, entry) in record.entries.iter_mut().enumerate() {
            let kind = mbr::Kind::from_bits(kinds[at]);
            *entry = mbr::Entry { kind, start: sizes[at], count: sizes[at + 4], ..*entry };
        }
        record.emit(&mut sector);
        prop_assert_eq!(Record::parse(&sector), Ok(record));
        prop_assert!(sector[..440].iter().all(|byte| *byte == 0x5A), "boot code stays");
        let mut partitions = [disklabel::Partition::UNUSED; disklabel::PARTITIONS_MAX];
        for (at, partition) in partitions[..8].iter_mut().enumerate() {
            let kind = disklabel::Kind::from_bits(kinds[at]);
            *partition = disklabel::Partition { size: sizes[at], kind, ..*partition };
        }
        let label = Disklabel {
            sector_size: 512,
            sectors: 63,
            tracks: 255,
            cylinders: 5,
            total: serial,
            count: 8,
            partitions,
        };
        label.emit(&mut sector);
        prop_assert_eq!(Disklabel::parse(&sector), Ok(label));
    }
}

#[test]
fn records_of_imsm_keep_what_has_no_name() {
    use super::imsm::{Disk, Header, ImsmVolume, Map, serial};
    let bytes: [u8; 216] = core::array::from_fn(|at| (at * 7 + 3) as u8);
    let mut header = bytes;
    header[..24].copy_from_slice(&super::imsm::SIGNATURE);
    header[0x24..0x28].copy_from_slice(&480_u32.to_le_bytes());
    header[0x20..0x24].fill(0);
    let mut back = [0; 216];
    Header::parse(&header).unwrap().emit(&mut back);
    assert_eq!(back, header);
    let mut back = [0; 48];
    Disk::parse(&bytes).unwrap().emit(&mut back);
    assert_eq!(back, bytes[..48]);
    Map::parse(&bytes).unwrap().emit(&mut back);
    assert_eq!(back, bytes[..48]);
    let mut volume: [u8; 112] = core::array::from_fn(|at| bytes[at]);
    (volume[88], volume[89]) = (1, 5);
    let mut back = [0; 112];
    ImsmVolume::parse(&volume).unwrap().emit(&mut back);
    assert_eq!(back, volume);
    // As mdadm stores them.
    assert_eq!(&serial(" WD-WCAU 4862:368"), b"WD-WCAU4862;368\0");
    assert_eq!(&serial("0123456789abcdefXYZ"), b"3456789abcdefXYZ");
    let mut disk = Disk::new(serial("ABC"), 100, 2);
    disk.mark_missing();
    assert_eq!((&disk.serial, disk.status), (b"ABC:0\0\0\0\0\0\0\0\0\0\0\0", 6));
    disk.mark_missing();
    assert_eq!(&disk.serial, b"ABC:0\0\0\0\0\0\0\0\0\0\0\0");
    let mut disk = Disk::new(serial("0123456789abcdef"), 100, 2);
    disk.mark_missing();
    assert_eq!(&disk.serial, b"3456789abcdef:0\0");
}

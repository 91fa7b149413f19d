//! DDF arrays, built here from the layout in the specification. Those of mdadm are tested in the
//! lab.

use super::*;

/// Sectors of the primary and the secondary header.
const PRIMARY: u64 = 8 * 2048;
const SECONDARY: u64 = PRIMARY + 64;
const MEMBERS_MAX: usize = 16;

fn seal(record: &mut [u8]) {
    record[4..8].fill(0xFF);
    let sum = crc32fast::hash(record);
    record[4..8].copy_from_slice(&sum.to_be_bytes());
}

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

fn place(disk: &Platter, first: u64, bytes: &[u8]) {
    for (number, sector) in (first..).zip(bytes.chunks(512)) {
        let sector = sector.try_into().unwrap();
        disk.content.borrow_mut().sectors.insert(number, sector);
    }
}

/// The parameters of an image.
#[derive(Clone, Copy)]
struct Image {
    level: u8,
    qualifier: u8,
    /// Number of members of each part.
    members: usize,
    blocks: u64,
    volume_blocks: u64,
    sequence: u32,
    /// The disk that failed, according to those that are written.
    failed: Option<usize>,
    /// The disks that are written.
    written: &'static [usize],
    state: u8,
}

fn reference(disk: usize) -> [u8; 4] {
    (0xA000_0000 + disk as u32).to_be_bytes()
}

fn write_image(disks: &[Platter], image: Image, change: impl Fn(&str, &mut [u8])) {
    let parts = disks.len() / image.members;
    let last = disks[0].content.borrow().size / 512 - 1;
    let mut header = vec![0xFF; 512];
    put(&mut header, 0, &[0xDE, 0x11, 0xDE, 0x11]);
    put(&mut header, 8, b"FLYSCH test of DDF 00001");
    put(&mut header, 32, b"01.02.00");
    put(&mut header, 40, &image.sequence.to_be_bytes());
    put(&mut header, 48, &[0, 0, 0]);
    put(&mut header, 96, &PRIMARY.to_be_bytes());
    put(&mut header, 104, &SECONDARY.to_be_bytes());
    put(&mut header, 134, &2_u16.to_be_bytes());
    put(&mut header, 136, &(MEMBERS_MAX as u16).to_be_bytes());
    for (at, (offset, len)) in [(200, (2_u32, 2_u32)), (208, (4, 2)), (216, (6, 4)), (224, (10, 1))]
    {
        put(&mut header, at, &offset.to_be_bytes());
        put(&mut header, at + 4, &len.to_be_bytes());
    }
    let mut physical = vec![0xFF; 1024];
    put(&mut physical, 0, &[0x22; 4]);
    for number in 0..disks.len() {
        let at = 64 + number * 64;
        put(&mut physical, at, format!("disk {number:019}").as_bytes());
        put(&mut physical, at + 24, &reference(number));
        let state = if image.failed == Some(number) { 3_u16 } else { 1 };
        put(&mut physical, at + 30, &state.to_be_bytes());
        put(&mut physical, at + 32, &PRIMARY.to_be_bytes());
    }
    let mut virtuals = vec![0xFF; 1024];
    put(&mut virtuals, 0, &[0xDD; 4]);
    put(&mut virtuals, 64, b"volume of the DDF tests.");
    put(&mut virtuals, 64 + 32, &[image.state, 2]);
    put(&mut virtuals, 64 + 48, b"ddf volume\0\0\0\0\0\0");
    for &number in image.written {
        let part = number / image.members;
        let mut configuration = vec![0xFF; 1024];
        put(&mut configuration, 0, &[0xEE; 4]);
        put(&mut configuration, 8, b"volume of the DDF tests.");
        put(&mut configuration, 36, &1_u32.to_be_bytes());
        put(&mut configuration, 64, &(image.members as u16).to_be_bytes());
        let kind = [7, image.level, image.qualifier, parts as u8, part as u8, 0];
        put(&mut configuration, 66, &kind);
        put(&mut configuration, 72, &image.blocks.to_be_bytes());
        put(&mut configuration, 80, &image.volume_blocks.to_be_bytes());
        for member in 0..image.members {
            put(&mut configuration, 512 + member * 4, &reference(part * image.members + member));
            put(&mut configuration, 512 + MEMBERS_MAX * 4 + member * 8, &16_u64.to_be_bytes());
        }
        let mut data = vec![0xFF; 512];
        put(&mut data, 0, &[0x33; 4]);
        put(&mut data, 32, &reference(number));
        let mut other = vec![0xFF; 1024];
        for (what, record, at) in [
            ("physical", &mut physical.clone(), 2),
            ("virtual", &mut virtuals.clone(), 4),
            ("configuration", &mut configuration, 6),
            ("other", &mut other, 8),
            ("data", &mut data, 10),
        ] {
            change(what, record);
            if what != "other" {
                seal(record);
            }
            place(&disks[number], PRIMARY + at, record);
            place(&disks[number], SECONDARY + at, record);
        }
        for (kind, at) in [(0, last), (1, PRIMARY), (2, SECONDARY)] {
            let mut header = header.clone();
            header[112] = kind;
            change("header", &mut header);
            seal(&mut header);
            place(&disks[number], at, &header);
        }
    }
}

const MIRROR: Image = Image {
    level: 1,
    qualifier: 0,
    members: 2,
    blocks: 2048,
    volume_blocks: 2048,
    sequence: 5,
    failed: None,
    written: &[0, 1],
    state: 0,
};

fn fill(disks: &[Platter], copies: &[usize], at: u64, data: &[u8]) {
    copies.iter().for_each(|&disk| place(&disks[disk], 16 + at, data));
}

#[test]
fn mirrors_and_stripes_of_mirrors_are_read() {
    let disks = platters(2, 16 * MIB);
    let data = pattern(3, MIB as usize);
    write_image(&disks, MIRROR, |_, _| {});
    fill(&disks, &[0, 1], 0, &data);
    let mut graph = graph_of(&disks);
    assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
    assert_eq!(told_of(&graph, "raid/r0", "Label"), "ddf volume");
    assert_eq!(told_of(&graph, "raid/r0", "descr"), "DDF RAID1 volume");
    assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
    let provider = graph.provider("raid/r0").unwrap();
    let error = graph.open(provider, Access::ALONE).unwrap_err();
    assert!(error.cause.contains("DDF can only be read"), "{error}");
    // A disk that the other records as failed is not read, although it records itself as good.
    let newer = Image { sequence: 6, failed: Some(1), written: &[0], ..MIRROR };
    let old = pattern(4, MIB as usize);
    fill(&disks, &[1], 0, &old);
    write_image(&disks, newer, |_, _| {});
    let mut graph = graph_of(&disks);
    assert_eq!(told_of(&graph, "raid/r0", "Subdisks"), "d0 (ACTIVE), d1 (FAILED)");
    for _ in 0..3 {
        assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
    }
    // Of disks that may differ, only one is read.
    write_image(&disks, Image { state: 0x10, sequence: 7, ..MIRROR }, |_, _| {});
    assert_eq!(told_of(&graph_of(&disks), "raid/r0", "Subdisks"), "d0 (ACTIVE), d1 (STALE)");

    // Each disk knows only its own mirror; strips of 64 KiB.
    let disks = platters(4, 16 * MIB);
    let image = Image { volume_blocks: 4096, written: &[0, 1, 2, 3], ..MIRROR };
    write_image(&disks, image, |_, _| {});
    let data = pattern(8, 2 * MIB as usize);
    for (number, strip) in data.chunks(64 << 10).enumerate() {
        let pair = number % 2 * 2;
        fill(&disks, &[pair, pair + 1], number as u64 / 2 * 128, strip);
    }
    let mut graph = graph_of(&disks);
    assert_eq!(told_of(&graph, "raid/r0", "RAIDLevel"), "RAID1E-A");
    assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
    let mut graph = graph_of(&[disks[1].clone(), disks[2].clone()]);
    assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED");
    assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
    assert!(graph_of(&disks[..2]).provider("raid/r0").is_err(), "half of it is not there");
}

fn said(graph: &Graph) -> String {
    let found = graph.record.verdicts().find(|v| v.class == "RAID" && v.provider == "d0").unwrap();
    format!("{}: {}", found.taste.outcome().word(), found.taste.reason().text)
}

#[test]
fn a_header_that_is_not_sound_is_done_without() {
    let disks = platters(2, 16 * MIB);
    write_image(&disks, MIRROR, |_, _| {});
    for (lost, wanted) in [(PRIMARY, "claimed"), (SECONDARY, "claimed")] {
        let disks = copies(&disks);
        place(&disks[0], lost, &[0; 512]);
        assert!(said(&graph_of(&disks)).starts_with(wanted));
    }
    let both = copies(&disks);
    place(&both[0], PRIMARY, &[0; 512]);
    place(&both[0], SECONDARY, &[0; 512]);
    assert!(said(&graph_of(&both)).contains("neither header is sound"));
    // A change of any byte is detected, or has no effect.
    for sector in (PRIMARY..PRIMARY + 11).chain([2 * PRIMARY - 1]) {
        for byte in (0..512).step_by(3) {
            let disks = copies(&disks[..1]);
            let mut content = disks[0].sector(sector);
            content[byte] ^= 0x41;
            place(&disks[0], sector, &content);
            let _ = said(&graph_of(&disks));
        }
    }
}

#[test]
fn hostile_metadata_is_refused_by_name() {
    type Change = (&'static str, usize, &'static [u8], &'static str);
    let changes: [Change; 12] = [
        ("header", 32, b"09", "revision"),
        ("header", 200, &[0xFF; 4], "table of disks"),
        ("header", 204, &[0xFF; 4], "has 4294967295 sectors"),
        ("header", 220, &[0; 4], "configurations has 0 sectors"),
        ("header", 96, &[0xFF; 8], "claimed"),
        ("physical", 0, &[0], "table of disks is not sound"),
        ("physical", 64 + 24, &[1], "has no disk a0000000"),
        ("physical", 64 + 32, &[0; 8], "outside of its disks"),
        ("configuration", 64, &[0xFF; 2], "more members than fit"),
        ("configuration", 80, &[0; 8], "impossible size"),
        ("configuration", 512 + 3, &[1], "names a disk twice"),
        ("configuration", 512 + 64, &[0x7F; 8], "too large"),
    ];
    for (what, at, bytes, why) in changes {
        let disks = platters(2, 16 * MIB);
        write_image(&disks, MIRROR, |record, content| {
            if record == what {
                put(content, at, bytes);
            }
        });
        let graph = graph_of(&disks);
        assert!(said(&graph).contains(why), "{what} {at}: {}", said(&graph));
    }
    // What is not supported is shown, but not offered.
    for (level, qualifier) in [(6, 2), (0x11, 1), (5, 1)] {
        let disks = platters(2, 16 * MIB);
        write_image(&disks, Image { level, qualifier, ..MIRROR }, |_, _| {});
        let graph = graph_of(&disks);
        assert!(graph.provider("raid/r0").is_err());
        assert!(graph.record.messages().any(|line| line.contains("is unknown")), "{level}");
    }
}

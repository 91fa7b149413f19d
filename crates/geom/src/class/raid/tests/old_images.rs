//! Disks of Promise, NVIDIA, Silicon Image and JMicron, built here byte by byte from their layouts,
//! independently of the code that reads them.

use super::*;

const SIZE: u64 = 4 * MIB;
const STRIP: usize = 64 << 10;
/// Number of rows of strips in a volume.
const ROWS: usize = 5;

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

fn place(disk: &Platter, first: u64, bytes: &[u8]) {
    for (number, sector) in (first..).zip(bytes.chunks(512)) {
        disk.content.borrow_mut().sectors.insert(number, sector.try_into().unwrap());
    }
}

/// The layouts, by the names used in this file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Layout {
    Stripe,
    Copies,
    /// Stripes of pairs: the slots of each pair are adjacent.
    Pairs,
    /// Parity from the last disk backwards; data from the first disk on.
    Asymmetric,
    /// The same; data from the disk after the parity on.
    Symmetric,
    Row,
}

/// Distributes `data` over `count` disks: the strips of each.
fn lay_out(layout: Layout, count: usize, data: &[u8]) -> Vec<Vec<u8>> {
    let mut disks = vec![Vec::new(); count];
    let strips: Vec<&[u8]> = data.chunks(STRIP).collect();
    match layout {
        Layout::Stripe => {
            for (number, strip) in strips.iter().enumerate() {
                disks[number % count].extend_from_slice(strip);
            }
        }
        Layout::Copies => disks.iter_mut().for_each(|disk| disk.extend_from_slice(data)),
        Layout::Pairs => {
            for (number, strip) in strips.iter().enumerate() {
                let pair = number % (count / 2) * 2;
                disks[pair].extend_from_slice(strip);
                disks[pair + 1].extend_from_slice(strip);
            }
        }
        Layout::Asymmetric | Layout::Symmetric => {
            for (row, strips) in strips.chunks(count - 1).enumerate() {
                let parity = count - 1 - row % count;
                let mut sum = vec![0; STRIP];
                for (number, strip) in strips.iter().enumerate() {
                    let disk = match layout {
                        Layout::Symmetric => (parity + 1 + number) % count,
                        _ if number < parity => number,
                        _ => number + 1,
                    };
                    disks[disk].extend_from_slice(strip);
                    sum.iter_mut().zip(*strip).for_each(|(sum, byte)| *sum ^= byte);
                }
                disks[parity].extend_from_slice(&sum);
            }
        }
        Layout::Row => {
            for (disk, part) in disks.iter_mut().zip(data.chunks(data.len() / count)) {
                disk.extend_from_slice(part);
            }
        }
    }
    disks
}

fn data_strips(layout: Layout, count: usize) -> usize {
    match layout {
        Layout::Stripe | Layout::Row => count,
        Layout::Copies => 1,
        Layout::Pairs => count / 2,
        Layout::Asymmetric | Layout::Symmetric => count - 1,
    }
}

/// Damage done to a record before its checksum is computed.
type Change<'a> = &'a dyn Fn(usize, &mut [u8]);

/// The function that writes the records of a volume.
type Record = fn(&Platter, What, Change<'_>);

/// A record: the number of its disk, the number of disks, the number of the level, the sectors of
/// the volume.
#[derive(Clone, Copy)]
struct What {
    number: usize,
    count: usize,
    kind: u8,
    sectors: u32,
}

fn promise(disk: &Platter, what: What, change: Change<'_>) {
    let What { number, count, kind, sectors } = what;
    let mut record = vec![0; 2048];
    put(&mut record, 0, b"Promise Technology, Inc.");
    put(&mut record, 0x200, &0x80_u32.to_le_bytes());
    let own = |number: usize| {
        let mut bytes = vec![0x87, number as u8, number as u8, 0];
        bytes.extend_from_slice(&(0x1122_3344_5566_7700 + number as u64).to_le_bytes());
        bytes
    };
    put(&mut record, 0x204, &own(number));
    put(&mut record, 0x210, &64_u32.to_le_bytes());
    put(&mut record, 0x214, &4096_u32.to_le_bytes());
    put(&mut record, 0x21C, &7_u16.to_le_bytes());
    // A level of two stripes is encoded as 1 with a width of 2.
    let (kind, width) = if kind == 0x31 { (1, count as u8 / 2) } else { (kind, 1) };
    put(&mut record, 0x21E, &[0x8F, kind, count as u8, 7, width, 0]);
    put(&mut record, 0x224, &sectors.to_le_bytes());
    put(&mut record, 0x22C, &0xABCD_u64.to_le_bytes());
    for number in 0..count {
        put(&mut record, 0x234 + number * 12, &own(number));
    }
    put(&mut record, 0x294, b"old volume                      ");
    // As older versions fill unused fields.
    put(&mut record, 0x372, &0x8B8C_8D8E_u32.to_le_bytes());
    put(&mut record, 0x376, &0x8788_898A_u32.to_le_bytes());
    put(&mut record, 0x37A, &0x8384_8586_u32.to_le_bytes());
    change(number, &mut record);
    let sum = record
        .chunks(4)
        .take(511)
        .fold(0_u32, |sum, word| sum.wrapping_add(u32::from_le_bytes(word.try_into().unwrap())));
    put(&mut record, 0x7FC, &sum.to_le_bytes());
    place(disk, SIZE / 512 - 63, &record);
}

fn nvidia(disk: &Platter, what: What, change: Change<'_>) {
    let What { number, count, kind, sectors } = what;
    let mut record = vec![0; 512];
    put(&mut record, 0, b"NVIDIA  ");
    put(&mut record, 8, &30_u32.to_le_bytes());
    put(&mut record, 16, &[100, 0, number as u8, 0]);
    put(&mut record, 20, &sectors.to_le_bytes());
    put(&mut record, 24, &512_u32.to_le_bytes());
    put(&mut record, 28, b"old volume      ");
    put(&mut record, 52, &0x0064_0044_u32.to_le_bytes());
    put(&mut record, 56, &[0x5A; 16]);
    let width = match kind {
        0x81 => 1,
        0x8A => count / 2,
        0x85 | 0x95 => count - 1,
        _ => count,
    };
    put(&mut record, 72, &[0, width as u8, count as u8, width as u8]);
    let kind = if kind == 0x8A { 0x8180 } else { u16::from(kind) };
    put(&mut record, 76, &kind.to_le_bytes());
    put(&mut record, 80, &128_u32.to_le_bytes());
    change(number, &mut record);
    let sum = record
        .chunks(4)
        .take(30)
        .fold(0_u32, |sum, word| sum.wrapping_add(u32::from_le_bytes(word.try_into().unwrap())));
    put(&mut record, 12, &sum.wrapping_neg().to_le_bytes());
    place(disk, SIZE / 512 - 2, &record);
}

fn seal_words(record: &mut [u8], words: usize, at: usize) {
    let sum = record
        .chunks(2)
        .take(words)
        .fold(0_u16, |sum, word| sum.wrapping_add(u16::from_le_bytes(word.try_into().unwrap())));
    put(record, at, &sum.wrapping_neg().to_le_bytes());
}

fn sii(disk: &Platter, what: What, change: Change<'_>) {
    let What { number, count, kind, sectors } = what;
    let mut record = vec![0; 512];
    put(&mut record, 54 * 2, &u64::from(sectors).to_le_bytes());
    put(&mut record, 130 * 2, &[0x12, 0x31, 0x95, 0x10, 0, 0, 2, 0]);
    put(&mut record, 134 * 2, &[1, 2, 3, 4, 5, 6]);
    put(&mut record, 137 * 2, &128_u16.to_le_bytes());
    put(&mut record, 139 * 2, &[number as u8, kind]);
    let (wide, deep) = match kind {
        1 => (1, count),
        2 => (count / 2, 2),
        _ => (count, 1),
    };
    let idents = (number % 2, number / 2);
    put(&mut record, 140 * 2, &[wide as u8, idents.0 as u8, deep as u8, idents.1 as u8]);
    put(&mut record, 146 * 2, &9_u32.to_le_bytes());
    put(&mut record, 148 * 2, &[1, 2, 7, number as u8]);
    put(&mut record, 151 * 2, b"old volume      ");
    change(number, &mut record);
    seal_words(&mut record, 159, 159 * 2);
    place(disk, SIZE / 512 - 1, &record);
}

fn jmicron(disk: &Platter, what: What, change: Change<'_>) {
    let What { number, count, kind, sectors } = what;
    let id = |number: usize| (0x00AB_0010 + ((number as u32) << 4)).to_le_bytes();
    let strips = data_strips(
        match kind {
            1 => Layout::Copies,
            2 => Layout::Pairs,
            5 => Layout::Asymmetric,
            _ => Layout::Stripe,
        },
        count,
    );
    let own = sectors / strips as u32;
    let mut record = vec![0; 512];
    put(&mut record, 0, b"JM\x01\0");
    put(&mut record, 16, &id(number));
    put(&mut record, 20, &4_u32.to_le_bytes());
    put(&mut record, 24, &(own >> 16).to_le_bytes());
    put(&mut record, 28, &(own as u16).to_le_bytes());
    put(&mut record, 32, b"old volume      ");
    put(&mut record, 48, &[kind, 6, 1, 0]);
    for number in 0..count {
        put(&mut record, 64 + number * 4, &id(number));
    }
    change(number, &mut record);
    seal_words(&mut record, 64, 4);
    place(disk, SIZE / 512 - 1, &record);
}

/// A format: its writer, the first sector of its parts, and the numbers of its levels.
type Case = (&'static str, Record, u64, &'static [(Layout, usize, u8)]);

const CASES: [Case; 4] = [
    (
        "Promise",
        promise,
        64,
        &[
            (Layout::Stripe, 3, 0),
            (Layout::Copies, 2, 1),
            (Layout::Pairs, 4, 0x31),
            (Layout::Asymmetric, 4, 4),
            (Layout::Row, 1, 0x10),
        ],
    ),
    (
        "NVIDIA",
        nvidia,
        0,
        &[
            (Layout::Stripe, 2, 0x80),
            (Layout::Copies, 2, 0x81),
            (Layout::Pairs, 4, 0x8A),
            (Layout::Asymmetric, 3, 0x85),
            (Layout::Symmetric, 3, 0x95),
        ],
    ),
    (
        "SiI",
        sii,
        0,
        &[
            (Layout::Stripe, 3, 0),
            (Layout::Copies, 3, 1),
            (Layout::Pairs, 4, 2),
            (Layout::Row, 1, 0xFF),
        ],
    ),
    (
        "JMicron",
        jmicron,
        64,
        &[
            (Layout::Stripe, 2, 0),
            (Layout::Copies, 2, 1),
            (Layout::Pairs, 4, 2),
            (Layout::Row, 3, 3),
            (Layout::Asymmetric, 3, 5),
        ],
    ),
];

/// Disks with a volume, and its contents.
fn image(
    (name, record, start, _): Case,
    (layout, count, kind): (Layout, usize, u8),
    change: Change<'_>,
) -> (Vec<Platter>, Vec<u8>) {
    let disks = platters(count, SIZE);
    let data = pattern(count as u32 + 77, ROWS * STRIP * data_strips(layout, count));
    let mut order: Vec<usize> = (0..count).collect();
    if layout == Layout::Pairs && matches!(name, "Promise" | "NVIDIA") {
        // In its table one stripe follows the other.
        order = (0..count).map(|slot| slot % 2 * (count / 2) + slot / 2).collect();
    }
    for (slot, bytes) in lay_out(layout, count, &data).iter().enumerate() {
        place(&disks[order[slot]], start, bytes);
    }
    for (number, disk) in disks.iter().enumerate() {
        let sectors = (data.len() / 512) as u32;
        record(disk, What { number, count, kind, sectors }, change);
    }
    (disks, data)
}

/// A graph over the disks that are present.
fn graph_without(disks: &[Platter], away: Option<usize>) -> Graph {
    let mut graph = Graph::new(&all(), 11);
    for (number, disk) in disks.iter().enumerate().filter(|(number, _)| Some(*number) != away) {
        MD.insert(&mut graph, &format!("d{number}"), Box::new(disk.clone())).unwrap();
    }
    graph.settle();
    graph
}

const AS_IT_IS: Change<'_> = &|_, _| {};

#[test]
fn volumes_are_read_also_without_a_disk_that_can_be_done_without() {
    for case in CASES {
        for &level in case.3 {
            let (disks, data) = image(case, level, AS_IT_IS);
            let what = format!("{} {level:?}", case.0);
            let (layout, count, _) = level;
            let before: Vec<_> =
                disks.iter().map(|it| it.content.borrow().sectors.clone()).collect();
            let mut graph = graph_of(&disks);
            assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL", "{what}");
            assert_eq!(told_of(&graph, "raid/r0", "Label"), "old volume");
            let volume = graph.provider("raid/r0").unwrap();
            assert_eq!(graph[volume].media_size, data.len() as u64, "{what}");
            assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data, "{what}");
            assert!(graph.open(volume, Access::ALONE).unwrap_err().cause.contains("only be read"));
            let is_spread = matches!(layout, Layout::Stripe | Layout::Row);
            for away in 0..count {
                let mut graph = graph_without(&disks, Some(away));
                if is_spread {
                    assert!(graph.provider("raid/r0").is_err(), "{what} without {away}");
                    continue;
                }
                assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED", "{what}");
                assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data, "{what}");
            }
            // A disk that comes later gets its place, as long as nobody reads.
            let mut graph = graph_without(&disks, Some(0));
            MD.insert(&mut graph, "d0", Box::new(disks[0].clone())).unwrap();
            graph.settle();
            assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL", "{what}");
            assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data, "{what}");
            for (disk, before) in disks.iter().zip(before) {
                assert!(disk.content.borrow().sectors == before, "{what}: nothing is written");
            }
        }
    }
}

#[test]
fn every_verb_says_that_it_is_only_read() {
    for case in CASES {
        let (mut disks, _) = image(case, case.3[0], AS_IT_IS);
        disks.push(platters(1, SIZE).remove(0));
        let mut graph = graph_of(&disks);
        let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
        let blank = graph.provider(&format!("d{}", disks.len() - 1)).unwrap();
        let verbs = [
            add(&mut graph, geom, &options("more", "RAID0")),
            delete(&mut graph, geom, None, true),
            insert(&mut graph, geom, &[blank], true),
            fail(&mut graph, geom, &["d0"]),
            remove(&mut graph, geom, &["d0"]),
            rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).map(drop),
        ];
        for error in verbs {
            let error = error.unwrap_err();
            assert_eq!(error.cause, format!("metadata of {} can only be read", case.0));
        }
        let error = label(&mut graph, case.0, &[blank], (&options("v", "RAID1"), false));
        assert!(error.unwrap_err().cause.contains("not a format that can be written"));
        // Nobody else overwrites it.
        let error =
            stripe::label(&mut graph, "st", &[blank, blank], &stripe::StripeOptions::default());
        assert!(error.is_err());
        stop(&mut graph, geom, false).unwrap();
        let first = graph.provider("d0").unwrap();
        let error = crate::class::label::label(&mut graph, "x", first, false).unwrap_err();
        assert!(error.cause.contains(case.0), "{error}");
    }
}

/// The verdict on the first of two disks of a mirror, after a change to them.
fn said(case: Case, change: Change<'_>) -> String {
    let (disks, _) = image(case, case.3[1], change);
    let graph = graph_of(&disks);
    let state = told_of(&graph, "raid/r0", "Subdisks");
    match verdict(&graph, "d0") {
        refused if refused.starts_with("refused") => refused,
        _ => state,
    }
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() {
    let [promise, nvidia, sii, jmicron] = CASES;
    let cases: [(Case, Change<'_>, &str); 16] = [
        (promise, &|_, it| it[0x220] = 9, "number of disks"),
        (promise, &|_, it| it[0x200] = 0, "integrity"),
        (promise, &|_, it| it[0x204] &= !4, "spare"),
        (promise, &|_, it| it[0x224 + 2] = 0xFF, "larger than its members"),
        (promise, &|_, it| it.copy_within(0x234..0x240, 0x240), "a disk twice"),
        (promise, &|_, it| it[0x220] = 0, "cannot have 0 members"),
        (nvidia, &|_, it| it[8] = 200, "config_size"),
        (nvidia, &|_, it| it[73] = 4, "width 4"),
        (nvidia, &|_, it| it[18] = 2, "spare"),
        (nvidia, &|_, it| it[20..24].fill(0), "impossible size"),
        (nvidia, &|_, it| it[20..24].fill(0xFF), "larger than its members"),
        (sii, &|_, it| it[278] = 3, "disk 3 of 3"),
        (sii, &|_, it| it[279] = 3, "spare"),
        (jmicron, &|_, it| it[16] = 0xF0, "its list has no disk"),
        (jmicron, &|_, it| it[64..96].fill(0), "its list has no disk"),
        (jmicron, &|_, it| it[20..24].fill(0xFF), "outside of its disks"),
    ];
    for (case, change, wanted) in cases {
        let said = said(case, change);
        assert!(said.starts_with("refused") && said.contains(wanted), "{}: {said}", case.0);
    }
    // Checksums: with a strong magic number a wrong one is refused, with a weak one nothing is
    // claimed.
    for (case, at, wanted) in [
        (promise, SIZE / 512 - 63, "refused: metadata of Promise"),
        (nvidia, SIZE / 512 - 2, "refused: metadata of NVIDIA"),
        (sii, SIZE / 512 - 1, "passed"),
        (jmicron, SIZE / 512 - 1, "passed"),
    ] {
        let (disks, _) = image(case, case.3[1], AS_IT_IS);
        disks[0].content.borrow_mut().sectors.get_mut(&at).unwrap()[100] ^= 1;
        let said = verdict(&graph_of(&disks), "d0");
        assert!(said.starts_with(wanted), "{said}");
    }
}

#[test]
fn levels_that_are_not_known_are_not_offered() {
    let [promise, nvidia, sii, jmicron] = CASES;
    let cases: [(Case, Change<'_>, &str); 6] = [
        (promise, &|_, it| it[0x21F] = 2, "RAID3"),
        (promise, &|_, it| it[0x21E] |= 0x40, "is being changed"),
        (nvidia, &|_, it| it[76] = 0x83, "RAID3"),
        (nvidia, &|_, it| it[72] = 4, "upgrade"),
        (sii, &|_, it| it[279..281].copy_from_slice(&[0x10, 3]), "parity"),
        (jmicron, &|_, it| it[48] = 9, "is not supported"),
    ];
    for (case, change, wanted) in cases {
        let (disks, _) = image(case, case.3[1], change);
        let graph = graph_of(&disks);
        assert!(graph.provider("raid/r0").is_err(), "{}", case.0);
        assert!(graph.objects().geoms_of("RAID").next().is_some(), "{}", case.0);
        let why = graph.record.messages().find(|line| line.contains(wanted));
        assert!(why.is_some(), "{}: {:?}", case.0, graph.record.messages().collect::<Vec<_>>());
    }
}

#[test]
fn who_is_stale_is_not_read() {
    let [promise, nvidia, sii, jmicron] = CASES;
    let cases: [(Case, Change<'_>, &str); 9] = [
        // Generations wrap around.
        (promise, &|n, it| it[0x21C..0x21E].fill(if n == 0 { 0 } else { 0xFF }), "d1 (STALE)"),
        (promise, &|_, it| it[0x234 + 12] |= 0x40, "d1 (FAILED)"),
        (promise, &|_, it| it[0x234 + 12] |= 0x20, "d1 (REBUILD 0%)"),
        (promise, &|_, it| it[0x21E] |= 0x20, "d1 (STALE)"),
        (nvidia, &|n, it| (it[72], it[49]) = (3, n as u8), "d1 (REBUILD 0%)"),
        (nvidia, &|_, it| it[72] = 5, "d1 (STALE)"),
        (sii, &|n, it| it[292] = if n == 1 { 8 } else { 9 }, "d1 (STALE)"),
        (sii, &|n, it| it[296] = if n == 1 { 2 } else { 1 }, "d1 (REBUILD 0%)"),
        (jmicron, &|n, it| it[50] |= if n == 1 { 0x20 } else { 0 }, "d1 (STALE)"),
    ];
    for (case, change, wanted) in cases {
        let (disks, data) = image(case, case.3[1], change);
        // The contents of the stale disk are not the volume's.
        for sector in 64..128 {
            disks[1].content.borrow_mut().sectors.insert(sector, [0xEE; 512]);
        }
        let mut graph = graph_of(&disks);
        let parts = told_of(&graph, "raid/r0", "Subdisks");
        assert!(parts.starts_with("d0 (ACTIVE)") && parts.contains(wanted), "{}: {parts}", case.0);
        for _ in 0..3 {
            assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data, "{}", case.0);
        }
    }
    // A disk that does not record what the other one records is as good as blank.
    let newest: Change<'_> = &|n, it| it[50] |= if n == 0 { 4 } else { 0 };
    assert_eq!(said(jmicron, newest), "d0 (ACTIVE), d1 (NEW)");
}

#[test]
fn two_volumes_of_promise_share_disks() {
    let case = CASES[0];
    let (disks, data) = image(case, (Layout::Copies, 2, 1), AS_IT_IS);
    // A second record, 14 sectors after the first: another volume, after the first one.
    for (number, disk) in disks.iter().enumerate() {
        let second = platters(1, SIZE + 14 * 512).remove(0);
        let change: Change<'_> = &|_, it| {
            put(it, 0x22C, &0xBEEF_u64.to_le_bytes());
            put(it, 0x210, &1024_u32.to_le_bytes());
            put(it, 0x294, b"second    ");
        };
        promise(&second, What { number, count: 2, kind: 0, sectors: 2 * 640 }, change);
        let all = second.content.borrow().sectors.clone();
        let first = SIZE / 512 - 63;
        disk.content
            .borrow_mut()
            .sectors
            .extend((0..4).map(|at| (first + 14 + at, all[&(first + at)])));
    }
    let more = pattern(5, 2 * 5 * STRIP);
    for (disk, bytes) in disks.iter().zip(lay_out(Layout::Stripe, 2, &more)) {
        place(disk, 1024, &bytes);
    }
    let mut graph = graph_of(&disks);
    let (one, two) = match &told_of(&graph, "raid/r0", "Label")[..] {
        "second" => ("raid/r1", "raid/r0"),
        _ => ("raid/r0", "raid/r1"),
    };
    assert!(read(&mut graph, one, 0, data.len()).unwrap() == data);
    assert!(read(&mut graph, two, 0, more.len()).unwrap() == more);
    let mut graph = graph_without(&disks, Some(1));
    assert!(read(&mut graph, one, 0, data.len()).unwrap() == data);
    assert!(graph.provider(two).is_err());
}

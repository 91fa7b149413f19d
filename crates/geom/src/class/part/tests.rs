use alloc::rc::Rc;
use alloc::string::ToString;
use core::cell::RefCell;
use std::prelude::rust_2024::*;
use std::{assert, assert_eq, format, vec};

use flysch_api::block::{BlockError as IoError, Change as DiskChange};

use super::*;
use crate::class::disk::{self, MD, Memory};
use crate::io::{Medium, Shape};
use crate::{Kind, all};

const MIB: usize = 1 << 20;

fn graph_of(bytes: usize) -> (Graph, ProviderId) {
    let mut graph = Graph::new(&all(), 1);
    let disk = MD.insert(&mut graph, "md0", Box::new(Memory::new(bytes))).unwrap();
    graph.settle();
    (graph, disk)
}

fn wanted(kind: &str, size: Option<u64>) -> Add {
    let kind = kind.to_string();
    Add { kind, start: None, size, alignment: None, index: None, label: None }
}

#[test]
fn a_gpt_lies_where_freebsd_puts_it() {
    let (mut graph, disk) = graph_of(1 << 30);
    let geom = create(&mut graph, disk, (Scheme::Gpt, None), Flags::default()).unwrap();
    let gpt = table(&graph, geom).unwrap();
    assert_eq!((gpt.first, gpt.last, gpt.entries), (40, 2_097_111, 128));
    assert_eq!(gpt.corrupt, None);
    let boot = wanted("freebsd-boot", Some(1024));
    assert_eq!(add(&mut graph, geom, &boot, Flags::default()).unwrap(), 1);
    let start = Add { start: Some(2048), ..wanted("freebsd-ufs", Some(2_093_056)) };
    assert_eq!(add(&mut graph, geom, &start, Flags::default()).unwrap(), 2);
    let gpt = table(&graph, geom).unwrap();
    assert_eq!((gpt.partitions[0].start, gpt.partitions[0].end), (40, 1063));
    let provider = graph.provider("md0p2").unwrap();
    assert_eq!(graph[provider].media_size, 2_093_056 * 512);
    assert_eq!(graph[geom].rank, 2);
}

#[test]
fn what_is_in_the_way_is_named() {
    let (mut graph, disk) = graph_of(8 * MIB);
    let geom = create(&mut graph, disk, (Scheme::Gpt, None), Flags::default()).unwrap();
    let again = create(&mut graph, disk, (Scheme::Mbr, None), Flags::default()).unwrap_err();
    assert_eq!(again.kind, Kind::Busy);
    assert!(again.cause.contains("PART md0"), "{again}");
    let label = crate::class::label::label(&mut graph, "x", disk, true).unwrap_err();
    assert_eq!(label.kind, Kind::Busy, "{label}");
    let big = add(&mut graph, geom, &wanted("efi", Some(1 << 20)), Flags::default());
    assert_eq!(big.unwrap_err().kind, Kind::NoSpace);
    let odd = add(&mut graph, geom, &wanted("nonsense", None), Flags::default());
    assert_eq!(odd.unwrap_err().kind, Kind::Invalid);
    add(&mut graph, geom, &wanted("efi", None), Flags::default()).unwrap();
    let open = graph.open(graph.provider("md0p1").unwrap(), Access::READ).unwrap();
    let busy = delete(&mut graph, geom, 1, Flags::default()).unwrap_err();
    assert_eq!(busy.kind, Kind::Busy);
    graph.shut(open);
    assert_eq!(destroy(&mut graph, geom, Flags::default()).unwrap_err().kind, Kind::Busy);
    delete(&mut graph, geom, 1, Flags::default()).unwrap();
    destroy(&mut graph, geom, Flags::default()).unwrap();
    assert!(graph.objects().geoms_of("PART").next().is_none());
}

#[test]
fn nested_tables_and_physical_paths() {
    let mut graph = Graph::new(&all(), 1);
    let disk = MD.insert(&mut graph, "md0", Box::new(Memory::new(64 * MIB))).unwrap();
    graph.settle();
    let path = Some("some/physical/path".to_string());
    let options = crate::class::nop::NopOptions { physical_path: path, ..Default::default() };
    let nop = crate::class::nop::create(&mut graph, disk, options).unwrap();
    let mbr = create(&mut graph, nop, (Scheme::Mbr, None), Flags::default()).unwrap();
    add(&mut graph, mbr, &wanted("freebsd", Some(32768)), Flags::default()).unwrap();
    add(&mut graph, mbr, &wanted("ebr", None), Flags::default()).unwrap();
    let slice = graph.provider("md0.nops1").unwrap();
    let bsd = create(&mut graph, slice, (Scheme::Bsd, None), Flags::default()).unwrap();
    add(&mut graph, bsd, &wanted("freebsd-ufs", None), Flags::default()).unwrap();
    let inner = graph.provider("md0.nops1a").unwrap();
    let path = graph.attribute(inner, "GEOM::physpath").unwrap().to_string();
    assert_eq!(path, "some/physical/path/s1/a");
    let extended = graph.provider("md0.nops2").unwrap();
    let ebr = create(&mut graph, extended, (Scheme::Ebr, None), Flags::default()).unwrap();
    for _ in 0..3 {
        add(&mut graph, ebr, &wanted("linux-data", Some(8192)), Flags::default()).unwrap();
    }
    assert_eq!(graph[ebr].providers.len(), 3);
    assert_eq!(graph[ebr].providers.iter().filter(|&&p| graph[p].name.contains('+')).count(), 3);
    let second = table(&graph, ebr).unwrap().partitions[1].index;
    delete(&mut graph, ebr, second, Flags::default()).unwrap();
    assert_eq!(graph[ebr].providers.len(), 2);
}

/// As FreeBSD lays out a label on a slice that begins at sector 63 of a disk with tracks.
#[test]
fn a_64_bit_disklabel_has_everything_a_table_has() {
    let mut graph = Graph::new(&all(), 1);
    let disk = MD.insert(&mut graph, "md0", Box::new(Memory::new(64 * MIB))).unwrap();
    graph.settle();
    let bsd = create(&mut graph, disk, (Scheme::Bsd64, None), Flags::default()).unwrap();
    let place = |graph: &Graph| {
        let table = table(graph, bsd).unwrap();
        (table.first, table.last, table.entries)
    };
    assert_eq!(place(&graph), (2112, 131_063, 16));
    for kind in
        ["freebsd-ufs", "dragonfly-hammer2", "!165", "!0fc63daf-8483-4772-8e79-3d69d8477de4"]
    {
        add(&mut graph, bsd, &wanted(kind, Some(4096)), Flags::default()).unwrap();
    }
    let whole = Add { index: Some(3), ..wanted("freebsd-ufs", Some(8)) };
    assert_eq!(add(&mut graph, bsd, &whole, Flags::default()).unwrap_err().kind, Kind::Invalid);
    for kind in ["linux-data", "dragonfly-legacy", "!0", "other"] {
        let refused = add(&mut graph, bsd, &wanted(kind, Some(8)), Flags::default()).unwrap_err();
        assert_eq!(refused.kind, Kind::Invalid, "{kind}");
    }
    add(&mut graph, bsd, &wanted("dragonfly-swap", None), Flags::default()).unwrap();
    let change = Change { kind: Some("freebsd-zfs".into()), label: None };
    assert_eq!(modify(&mut graph, bsd, (1, &change), Flags::default()).unwrap(), "md0a");
    let name = Change { kind: None, label: Some("root".into()) };
    modify(&mut graph, bsd, (1, &name), Flags::default()).unwrap_err();
    assert_eq!(delete(&mut graph, bsd, 2, Flags::default()).unwrap(), "md0b");
    resize(&mut graph, bsd, (1, Some(8192), None), Flags::default()).unwrap();
    let text = "\
BSD64 16
1                           freebsd-zfs       2112       8192
4                                  !165      10304       4096
5   !0fc63daf-8483-4772-8e79-3d69d8477de4      14400       4096
6                        dragonfly-swap      18496     112568
";
    let saved = backup(&graph, bsd).unwrap();
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&saved.to_string()), squeezed(text));
    let same = Backup { last: None, ..saved.clone() };
    assert_eq!(saved.to_string().parse(), Ok(same));
    // The next session sees the same.
    let old = table(&graph, bsd).unwrap().clone();
    let inner = graph.provider("md0f").unwrap();
    assert_eq!(graph[inner].media_size, 112_568 * 512);
    let seen = probe(&mut graph, disk);
    assert!(matches!(seen, Probe::Found(found, 512, 1224) if *found == old));
    restore(&mut graph, disk, (&saved, false), Flags { commit: true, force: true }).unwrap();
    let geom = graph.geom("PART", "md0").unwrap();
    assert_eq!(backup(&graph, geom).unwrap(), saved);
    // As in FreeBSD, no table can be put into a partition of a label.
    let inner = graph.provider("md0f").unwrap();
    let nested = create(&mut graph, inner, (Scheme::Bsd64, None), Flags::default()).unwrap_err();
    assert!(nested.cause.contains("those hold no tables"), "{nested}");
    destroy(&mut graph, geom, Flags { commit: true, force: true }).unwrap();
    assert!(graph.objects().geoms_of("PART").next().is_none());
    let small = MD.insert(&mut graph, "md1", Box::new(Memory::new(MIB))).unwrap();
    graph.settle();
    let small = create(&mut graph, small, (Scheme::Bsd64, None), Flags::default()).unwrap_err();
    assert_eq!(small.kind, Kind::NoSpace);
}

/// What FreeBSD would not follow is not followed.
#[test]
fn hostile_64_bit_disklabels_are_refused_by_name() {
    use flysch_wire::geom::disklabel64::{Disklabel64, Partition};

    let mut graph = Graph::new(&all(), 1);
    let medium = Memory::new(4 * MIB);
    let disk = MD.insert(&mut graph, "md0", Box::new(medium)).unwrap();
    graph.settle();
    let bsd = create(&mut graph, disk, (Scheme::Bsd64, None), Flags::default()).unwrap();
    add(&mut graph, bsd, &wanted("freebsd-ufs", Some(8)), Flags::default()).unwrap();
    let mut bytes = vec![0; 2048];
    graph.peek(disk, 0, &mut bytes).unwrap();
    let good = Disklabel64::parse(&bytes).unwrap();
    type Spoil = fn(&mut Disklabel64);
    let cases: [(&str, Spoil); 9] = [
        ("other sectors", |label| label.alignment = 256),
        ("other sectors", |label| label.alignment = 0),
        ("for 4194816 bytes", |label| label.total += 512),
        ("space for partitions is impossible", |label| label.first = 512),
        ("space for partitions is impossible", |label| label.stop = u64::MAX << 9),
        ("partition 1 is not a range", |label| label.partitions[0].size = 0),
        ("partition 1 is not a range", |label| label.partitions[0].size = u64::MAX << 9),
        ("is outside of", |label| label.partitions[0].offset = 1 << 20),
        ("overlap", |label| label.partitions[4] = Partition { size: 512, ..label.partitions[0] }),
    ];
    for (why, spoil) in cases {
        let (mut label, mut bytes) = (good, bytes.clone());
        spoil(&mut label);
        label.emit(&mut bytes);
        let open = graph.open(disk, Access::new(1, 1, 0)).unwrap();
        graph.io(open, Io::Write { offset: 0, from: &bytes }).unwrap();
        graph.shut(open);
        graph.settle();
        assert!(graph.objects().geoms_of("PART").next().is_none(), "{why}");
        let last =
            graph.record.verdicts().find(|it| it.class == "PART" && it.provider == "md0").unwrap();
        let text = &last.taste.reason().text;
        assert!(text.contains(why), "{why}: {text}");
    }
}

/// A medium whose power can fail after some number of writes.
#[derive(Clone, Debug)]
struct Cut {
    bytes: Rc<RefCell<Vec<u8>>>,
    left: Rc<RefCell<usize>>,
}

impl Medium for Cut {
    fn shape(&self) -> Shape {
        let media_size = self.bytes.borrow().len() as u64;
        Shape { media_size, sector_size: 512, stripe_size: 0, stripe_offset: 0 }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        to.copy_from_slice(&self.bytes.borrow()[offset as usize..offset as usize + to.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        // Sectors are atomic, writes of several sectors are not.
        for (sector, at) in from.chunks(512).zip((offset as usize..).step_by(512)) {
            let mut left = self.left.borrow_mut();
            *left = left.checked_sub(1).ok_or(IoError::Gone)?;
            self.bytes.borrow_mut()[at..at + 512].copy_from_slice(sector);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// What can be seen of a disk: the scheme and each partition.
fn seen(bytes: &[u8]) -> String {
    let mut graph = Graph::new(&all(), 7);
    let memory = Memory { bytes: bytes.to_vec(), ..Memory::new(0) };
    MD.insert(&mut graph, "md0", Box::new(memory)).unwrap();
    graph.settle();
    let mut out = String::new();
    for (id, geom) in graph.objects().geoms_of("PART") {
        out.push_str(&format!("{}:", geom.name));
        for p in &table(&graph, id).unwrap().partitions {
            out.push_str(&format!(
                " {} {}+{} {} {};",
                p.index,
                p.start,
                p.end,
                p.kind.name(),
                p.label
            ));
        }
    }
    out
}

type Verb = fn(&mut Graph) -> Result<(), GeomError>;

fn geom_of(graph: &Graph, name: &str) -> GeomId {
    graph.geom("PART", name).unwrap()
}

fn md(graph: &Graph) -> ProviderId {
    graph.provider("md0").unwrap()
}

fn verbs() -> Vec<(&'static str, Verb)> {
    vec![
        ("create gpt", |g| create(g, md(g), (Scheme::Gpt, None), Flags::default()).map(drop)),
        ("add", |g| {
            add(g, geom_of(g, "md0"), &wanted("efi", Some(100)), Flags::default()).map(drop)
        }),
        ("add again", |g| {
            let named = Add { label: Some("root".into()), ..wanted("linux-data", Some(400)) };
            add(g, geom_of(g, "md0"), &named, Flags::default()).map(drop)
        }),
        ("modify", |g| {
            let change = Change { kind: None, label: Some("other".into()) };
            modify(g, geom_of(g, "md0"), (2, &change), Flags::default()).map(drop)
        }),
        ("resize", |g| resize(g, geom_of(g, "md0"), (2, None, None), Flags::default()).map(drop)),
        ("delete", |g| delete(g, geom_of(g, "md0"), 1, Flags::default()).map(drop)),
        ("destroy", |g| destroy(g, geom_of(g, "md0"), Flags { force: true, commit: true })),
        ("create mbr", |g| create(g, md(g), (Scheme::Mbr, None), Flags::default()).map(drop)),
        ("add slice", |g| {
            add(g, geom_of(g, "md0"), &wanted("freebsd", Some(800)), Flags::default()).map(drop)
        }),
        ("add extended", |g| {
            add(g, geom_of(g, "md0"), &wanted("ebr", None), Flags::default()).map(drop)
        }),
        ("create ebr", |g| {
            let extended = g.provider("md0s2")?;
            create(g, extended, (Scheme::Ebr, None), Flags::default()).map(drop)
        }),
        ("add logical", |g| {
            add(g, geom_of(g, "md0s2"), &wanted("linux-data", Some(200)), Flags::default())
                .map(drop)
        }),
        ("add second", |g| {
            add(g, geom_of(g, "md0s2"), &wanted("linux-data", Some(200)), Flags::default())
                .map(drop)
        }),
        ("add third", |g| {
            add(g, geom_of(g, "md0s2"), &wanted("linux-data", Some(200)), Flags::default())
                .map(drop)
        }),
        ("delete second", |g| {
            let index = table(g, geom_of(g, "md0s2")).unwrap().partitions[1].index;
            delete(g, geom_of(g, "md0s2"), index, Flags::default()).map(drop)
        }),
        ("delete first", |g| {
            let index = table(g, geom_of(g, "md0s2")).unwrap().partitions[0].index;
            delete(g, geom_of(g, "md0s2"), index, Flags::default()).map(drop)
        }),
        ("create bsd", |g| {
            let slice = g.provider("md0s1")?;
            create(g, slice, (Scheme::Bsd, None), Flags::default()).map(drop)
        }),
        ("add a", |g| {
            add(g, geom_of(g, "md0s1"), &wanted("freebsd-ufs", Some(50)), Flags::default())
                .map(drop)
        }),
    ]
}

/// Runs one verb on a copy of `bytes` whose power fails after `writes` sectors.
fn cut(bytes: &[u8], writes: usize, seed: u64, verb: Verb) -> (Vec<u8>, bool) {
    let medium =
        Cut { bytes: Rc::new(RefCell::new(bytes.to_vec())), left: Rc::new(RefCell::new(writes)) };
    let mut graph = Graph::new(&all(), seed);
    MD.insert(&mut graph, "md0", Box::new(medium.clone())).unwrap();
    graph.settle();
    let done = verb(&mut graph).is_ok();
    drop(graph);
    let bytes = medium.bytes.borrow().clone();
    (bytes, done)
}

/// The same for a label that takes several sectors.
#[test]
fn power_lost_between_any_two_sectors_leaves_the_old_64_bit_disklabel_or_the_new() {
    const ADD: Verb = |g| {
        add(g, geom_of(g, "md0"), &wanted("freebsd-ufs", Some(100)), Flags::default()).map(drop)
    };
    let mut verbs: Vec<(&str, Verb)> = vec![("create", |g| {
        let disk = g.provider("md0")?;
        create(g, disk, (Scheme::Bsd64, None), Flags::default()).map(drop)
    })];
    verbs.extend([("add", ADD); 7]);
    verbs.push(("modify", |g| {
        let change = Change { kind: Some("dragonfly-swap".into()), label: None };
        modify(g, geom_of(g, "md0"), (7, &change), Flags::default()).map(drop)
    }));
    verbs.push(("destroy", |g| destroy(g, geom_of(g, "md0"), Flags { commit: true, force: true })));
    cut_all(vec![0; 2 * MIB], verbs);
}

#[test]
fn power_lost_between_any_two_sectors_leaves_the_old_table_or_the_new() {
    cut_all(vec![0; MIB], verbs());
}

fn cut_all(mut bytes: Vec<u8>, verbs: Vec<(&str, Verb)>) {
    for (name, verb) in verbs {
        let old = seen(&bytes);
        let (new_bytes, done) = cut(&bytes, usize::MAX, 3, verb);
        assert!(done, "{name}");
        let new = seen(&new_bytes);
        assert_ne!(old, new, "{name}");
        for writes in 0.. {
            let (after, done) = cut(&bytes, writes, 3, verb);
            let state = seen(&after);
            assert!(state == old || state == new, "{name} cut after {writes}: {state}");
            if done {
                assert_eq!(state, new);
                assert!(writes > 0);
                break;
            }
        }
        bytes = new_bytes;
    }
}

#[test]
fn a_gpt_with_one_good_copy_is_read_and_recovered() {
    let (mut graph, disk) = graph_of(8 * MIB);
    let geom = create(&mut graph, disk, (Scheme::Gpt, None), Flags::default()).unwrap();
    add(&mut graph, geom, &wanted("efi", Some(100)), Flags::default()).unwrap();
    let consumer = {
        destroy_in_memory(&mut graph, geom);
        graph.open(disk, Access::ALONE).unwrap()
    };
    graph.io(consumer, Io::Write { offset: 512, from: &[0; 512] }).unwrap();
    graph.shut(consumer);
    graph.settle();
    let geom = graph.geom("PART", "md0").unwrap();
    assert!(table(&graph, geom).unwrap().corrupt.as_ref().unwrap().contains("first copy"));
    assert!(recover(&mut graph, geom, Flags::default()).unwrap());
    assert_eq!(table(&graph, geom).unwrap().corrupt, None);
    assert!(!recover(&mut graph, geom, Flags::default()).unwrap());
    assert_eq!(table(&graph, geom).unwrap().partitions.len(), 1);
}

/// Removes the geom as the end of a session does.
fn destroy_in_memory(graph: &mut Graph, geom: GeomId) {
    graph.wither_geom(geom, IoError::Gone);
    graph.settle();
}

#[test]
fn backups_make_the_same_table_again() {
    let (mut graph, disk) = graph_of(8 * MIB);
    let geom = create(&mut graph, disk, (Scheme::Gpt, None), Flags::default()).unwrap();
    let named = Add { label: Some("my root".into()), ..wanted("freebsd-ufs", Some(4000)) };
    add(&mut graph, geom, &named, Flags::default()).unwrap();
    add(&mut graph, geom, &wanted("!0fc63daf-8483-4772-8e79-3d69d8477de5", None), Flags::default())
        .unwrap();
    set_attribute(&mut graph, geom, (1, "bootme", true), Flags::default()).unwrap();
    let saved = backup(&graph, geom).unwrap();
    let text = saved.to_string();
    assert_eq!(text.parse::<Backup>().unwrap(), Backup { last: None, ..saved.clone() }, "{text}");
    let other = MD.insert(&mut graph, "md1", Box::new(Memory::new(8 * MIB))).unwrap();
    graph.settle();
    let made = restore(&mut graph, other, (&saved, true), Flags::default()).unwrap();
    assert_eq!(backup(&graph, made).unwrap(), saved);
    assert!(restore(&mut graph, other, (&saved, true), Flags::default()).is_err());
    let forced = Flags { force: true, commit: true };
    restore(&mut graph, other, (&saved, false), forced).unwrap();
}

#[test]
fn changes_wait_for_commit_and_undo_forgets_them() {
    let (mut graph, disk) = graph_of(8 * MIB);
    let later = Flags { commit: false, force: false };
    let geom = create(&mut graph, disk, (Scheme::Gpt, None), Flags::default()).unwrap();
    add(&mut graph, geom, &wanted("efi", Some(100)), later).unwrap();
    assert!(graph.provider("md0p1").is_ok());
    undo(&mut graph, geom).unwrap();
    assert!(graph.provider("md0p1").is_err());
    add(&mut graph, geom, &wanted("efi", Some(100)), later).unwrap();
    commit(&mut graph, geom).unwrap();
    undo(&mut graph, geom).unwrap();
    assert!(graph.provider("md0p1").is_ok());
}

#[test]
fn hostile_chains_end() {
    use flysch_wire::geom::mbr::{Entry, Kind as Type, Record};
    // An extended partition whose second record leads back to the first.
    let mut memory = Memory::new(8 * MIB);
    let entry = |kind, start, count| Entry { kind, start, count, ..Entry::UNUSED };
    let mut record = Record::EMPTY;
    record.entries[0] = entry(Type::Extended, 63, 8000);
    record.emit(&mut memory.bytes[..512]);
    let link = |memory: &mut Memory, at: usize, next| {
        let mut record = Record::EMPTY;
        record.entries[0] = entry(Type::LinuxData, 1, 10);
        record.entries[1] = entry(Type::Extended, next, 20);
        record.emit(&mut memory.bytes[(63 + at) * 512..][..512]);
    };
    link(&mut memory, 0, 100);
    link(&mut memory, 100, 0);
    let mut graph = Graph::new(&all(), 1);
    MD.insert(&mut graph, "md0", Box::new(memory)).unwrap();
    graph.settle();
    let refused =
        graph.record.verdicts().find(|v| v.class == "PART" && v.provider == "md0s1").unwrap();
    assert!(refused.taste.reason().text.contains("loop"), "{refused:?}");
    // A record that describes itself again, four times, is not followed either.
    let mut memory = Memory::new(8 * MIB);
    let mut record = Record::EMPTY;
    record.entries = [entry(Type::FreeBsd, 1, 16000); 4];
    record.emit(&mut memory.bytes[..512]);
    let mut graph = Graph::new(&all(), 1);
    MD.insert(&mut graph, "md0", Box::new(memory)).unwrap();
    graph.settle();
    let refused = graph.record.verdicts().find(|v| v.class == "PART").unwrap();
    assert!(refused.taste.reason().text.contains("overlap"), "{refused:?}");
}

/// Boot code of a disklabel is around the label, in its sector and in the adjacent ones, and bytes
/// of the code that coincide with the label are left out.
#[test]
fn boot_code_goes_around_a_disklabel() {
    let (mut graph, disk) = graph_of(MIB);
    let geom = create(&mut graph, disk, (Scheme::Bsd, None), Flags::default()).unwrap();
    add(&mut graph, geom, &wanted("freebsd-ufs", Some(64)), Flags::default()).unwrap();
    let before = table(&graph, geom).unwrap().partitions.clone();
    let code: Vec<u8> = (0..8192_u32).map(|n| (n % 251) as u8).collect();
    let long = boot_code(&mut graph, geom, (&[1; 8193], false), Flags::default()).unwrap_err();
    assert!(long.cause.contains("8193 bytes, but there is room for 8192"), "{long}");
    boot_code(&mut graph, geom, (&code, false), Flags::default()).unwrap();
    assert_eq!(table(&graph, geom).unwrap().partitions, before);
    let mut front = vec![0; 8704];
    graph.peek(disk, 0, &mut front).unwrap();
    let label = 148 + 8 * 16;
    assert!(front[..512] == code[..512] && front[512 + label..8192] == code[512 + label..]);
    assert!(front[512..516] == [0x57, 0x45, 0x56, 0x82] && front[8192..] == [0; 512]);
    // The next change of the table leaves the code where it is.
    delete(&mut graph, geom, 1, Flags::default()).unwrap();
    graph.peek(disk, 0, &mut front).unwrap();
    assert!(front[..512] == code[..512] && front[512 + label..8192] == code[512 + label..]);
}

/// What the layer below reports of a disk reaches the table on it.
#[test]
fn a_disk_that_grows_or_has_another_medium_is_looked_at() {
    let mut graph = Graph::new(&all(), 1);
    let (bytes, left) = (Rc::new(RefCell::new(vec![0; 4 * MIB])), Rc::new(RefCell::new(1 << 20)));
    let medium = Cut { bytes: bytes.clone(), left };
    let disk = MD.insert(&mut graph, "md0", Box::new(medium)).unwrap();
    graph.settle();
    let geom = create(&mut graph, disk, (Scheme::Gpt, None), Flags::default()).unwrap();
    add(&mut graph, geom, &wanted("linux-data", Some(2048)), Flags::default()).unwrap();
    let part = |graph: &Graph| graph.provider("md0p1").map(|it| graph[it].media_size).ok();
    assert_eq!(part(&graph), Some(1 << 20));
    // More sectors, the last one not whole.
    let first = bytes.borrow().clone();
    bytes.borrow_mut().resize(6 * MIB, 0);
    disk::changed(&mut graph, disk, DiskChange::Resized { bytes: 6 * MIB as u64 + 100 });
    assert_eq!((graph[disk].media_size, part(&graph)), (6 * MIB as u64, Some(1 << 20)));
    let geom = graph.geom("PART", "md0").unwrap();
    assert!(recover(&mut graph, geom, Flags::default()).unwrap(), "its second copy has moved");
    assert!(table(&graph, geom).unwrap().last * 512 > 5 * MIB as u64);
    // Another medium, blank; then the first one again.
    bytes.borrow_mut().fill(0);
    disk::changed(&mut graph, disk, DiskChange::Medium);
    assert_eq!(part(&graph), None);
    *bytes.borrow_mut() = first;
    disk::changed(&mut graph, disk, DiskChange::Resized { bytes: 4 * MIB as u64 });
    disk::changed(&mut graph, disk, DiskChange::Medium);
    assert_eq!(part(&graph), Some(1 << 20));
    // Fewer sectors than it needs.
    bytes.borrow_mut().truncate(MIB / 2);
    disk::changed(&mut graph, disk, DiskChange::Resized { bytes: MIB as u64 / 2 });
    assert_eq!(graph[disk].media_size, MIB as u64 / 2);
    assert_eq!(part(&graph), None, "a table that names sectors that are not there");
}

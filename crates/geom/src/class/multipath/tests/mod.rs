//! FreeBSD's own test cases (`tests/sys/geom/class/multipath`), and cases for labels.

mod seeds;

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::RefCell;
use std::prelude::rust_2024::*;
use std::{assert, assert_eq, format, vec};

use flysch_api::block::{BlockError as IoError, Cause};

use super::*;
use crate::all;
use crate::class::disk::{self, MD, Memory};
use crate::class::nop;
use crate::io::Medium;

const SIZE: usize = 256 << 10;
const BAD: IoError = IoError::Medium(Cause::None);

/// The disk that is seen over every path.
#[derive(Debug, Default)]
struct Shared {
    bytes: Vec<u8>,
    /// Sectors that may still be written before power fails.
    left: Option<usize>,
}

/// One path to a disk.
#[derive(Clone, Debug)]
struct Over {
    disk: Rc<RefCell<Shared>>,
    serial: &'static str,
    /// The error of every request over it.
    broken: Rc<RefCell<Option<IoError>>>,
    read_only: bool,
}

impl Over {
    fn new(disk: &Rc<RefCell<Shared>>) -> Self {
        Self { disk: Rc::clone(disk), serial: "S1", broken: Rc::default(), read_only: false }
    }

    fn check(&self) -> Result<(), IoError> {
        self.broken.borrow().map_or(Ok(()), Err)
    }
}

impl Medium for Over {
    fn shape(&self) -> Shape {
        let media_size = self.disk.borrow().bytes.len() as u64;
        Shape { media_size, sector_size: 512, stripe_size: 0, stripe_offset: 0 }
    }

    fn open(&mut self, writes: bool) -> Result<(), IoError> {
        if writes && self.read_only { Err(IoError::WriteProtected) } else { Ok(()) }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        self.check()?;
        to.copy_from_slice(&self.disk.borrow().bytes[offset as usize..][..to.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        self.check()?;
        let mut disk = self.disk.borrow_mut();
        for (sector, at) in from.chunks(512).zip((offset as usize..).step_by(512)) {
            if let Some(left) = &mut disk.left {
                *left = left.checked_sub(1).ok_or(IoError::Gone)?;
            }
            disk.bytes[at..at + 512].copy_from_slice(sector);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.check()
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        vec![("ident", self.serial.into())]
    }
}

fn disk_of(bytes: Vec<u8>) -> Rc<RefCell<Shared>> {
    Rc::new(RefCell::new(Shared { bytes, left: None }))
}

/// A graph in which a disk is seen over `count` paths, called `da0` and so on.
fn paths(disk: &Rc<RefCell<Shared>>, count: usize) -> (Graph, Vec<ProviderId>) {
    let mut graph = Graph::new(&all(), 7);
    let insert = |number| {
        let name = format!("da{number}");
        MD.insert(&mut graph, &name, Box::new(Over::new(disk))).unwrap()
    };
    let providers = (0..count).map(insert).collect();
    graph.settle();
    (graph, providers)
}

/// As in FreeBSD's cases: disks that are not known to be one, under NOPs.
fn created(count: usize, mode: Mode) -> (Graph, GeomId) {
    let mut graph = Graph::new(&all(), 5);
    let mut under = Vec::new();
    for number in 0..count {
        let name = format!("md{number}");
        let disk = MD.insert(&mut graph, &name, Box::new(Memory::new(SIZE))).unwrap();
        graph.settle();
        under.push(nop::create(&mut graph, disk, nop::NopOptions::default()).unwrap());
    }
    create(&mut graph, "test", &under, (mode, false)).unwrap();
    let geom = graph.geom("MULTIPATH", "test").unwrap();
    (graph, geom)
}

fn told(graph: &Graph, object: Object, name: &str) -> String {
    let config = MULTIPATH.config(graph, object);
    config.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
}

/// What FreeBSD's `check_multipath_state` checks: the active paths, the overall state, and the
/// states of the paths in order.
fn check_state(graph: &Graph, geom: GeomId, wanted: (&str, &str, &[&str])) {
    assert_eq!(active(graph, geom).unwrap(), wanted.0);
    assert_eq!(told(graph, Object::Geom(geom), "State"), wanted.1);
    let consumers = graph[geom].consumers.iter();
    let states: Vec<_> = consumers.map(|&c| told(graph, Object::Consumer(c), "State")).collect();
    assert_eq!(states, wanted.2);
}

fn broken(graph: &mut Graph, number: usize, percent: u32) {
    let geom = graph.geom("NOP", &format!("md{number}.nop")).unwrap();
    nop::configure(graph, geom, |options| {
        (options.read_failures, options.write_failures) = (percent, percent);
    })
    .unwrap();
}

fn write(graph: &mut Graph, name: &str, byte: u8) -> Result<(), IoError> {
    let provider = graph.provider(name).unwrap();
    let open = graph.open(provider, Access::ALONE).unwrap();
    let done = graph.io(open, Io::Write { offset: 0, from: &[byte; 4096] });
    graph.shut(open);
    graph.settle();
    done
}

#[test]
fn add_and_the_three_modes() {
    let (mut graph, geom) = created(2, Mode::ActivePassive);
    check_state(&graph, geom, ("md0.nop", "OPTIMAL", &["ACTIVE", "PASSIVE"]));
    let third = MD.insert(&mut graph, "md2", Box::new(Memory::new(SIZE))).unwrap();
    graph.settle();
    add(&mut graph, geom, third, false).unwrap();
    check_state(&graph, geom, ("md0.nop", "OPTIMAL", &["ACTIVE", "PASSIVE", "PASSIVE"]));
    let error = add(&mut graph, geom, third, false).unwrap_err();
    assert_eq!(error.kind, Kind::Exists);
    let small = MD.insert(&mut graph, "md3", Box::new(Memory::new(SIZE / 2))).unwrap();
    let error = add(&mut graph, geom, small, true).unwrap_err();
    assert!(error.cause.contains("131072 bytes, but the disk has 262144"), "{error}");

    let (graph, geom) = created(2, Mode::ActiveActive);
    check_state(&graph, geom, ("md0.nop md1.nop", "OPTIMAL", &["ACTIVE", "ACTIVE"]));
    assert_eq!(told(&graph, Object::Geom(geom), "Mode"), "Active/Active");
    assert_eq!(told(&graph, Object::Geom(geom), "Type"), "MANUAL");
    let (graph, geom) = created(2, Mode::ActiveRead);
    check_state(&graph, geom, ("md0.nop", "OPTIMAL", &["ACTIVE", "READ"]));
}

#[test]
fn fail_restore_and_errors() {
    let (mut graph, geom) = created(2, Mode::ActivePassive);
    fail(&mut graph, geom, "md0.nop").unwrap();
    check_state(&graph, geom, ("md1.nop", "DEGRADED", &["FAIL", "ACTIVE"]));
    restore(&mut graph, geom, "md0.nop").unwrap();
    check_state(&graph, geom, ("md1.nop", "OPTIMAL", &["PASSIVE", "ACTIVE"]));
    assert_eq!(fail(&mut graph, geom, "md7").unwrap_err().kind, Kind::NotFound);

    // fail_on_error
    let (mut graph, geom) = created(2, Mode::ActivePassive);
    broken(&mut graph, 0, 100);
    write(&mut graph, "multipath/test", 1).unwrap();
    check_state(&graph, geom, ("md1.nop", "DEGRADED", &["FAIL", "ACTIVE"]));

    // restore_on_error
    let (mut graph, geom) = created(2, Mode::ActivePassive);
    fail(&mut graph, geom, "md0.nop").unwrap();
    broken(&mut graph, 1, 100);
    write(&mut graph, "multipath/test", 1).unwrap();
    check_state(&graph, geom, ("md0.nop", "DEGRADED", &["ACTIVE", "FAIL"]));
}

#[test]
fn prefer_and_rotate() {
    let (mut graph, geom) = created(3, Mode::ActivePassive);
    prefer(&mut graph, geom, "md2.nop").unwrap();
    check_state(&graph, geom, ("md2.nop", "OPTIMAL", &["PASSIVE", "PASSIVE", "ACTIVE"]));
    fail(&mut graph, geom, "md1.nop").unwrap();
    assert!(prefer(&mut graph, geom, "md1.nop").unwrap_err().cause.contains("FAIL"));

    let (mut graph, geom) = created(3, Mode::ActivePassive);
    for (name, states) in [
        ("md2.nop", ["PASSIVE", "PASSIVE", "ACTIVE"]),
        ("md1.nop", ["PASSIVE", "ACTIVE", "PASSIVE"]),
        ("md0.nop", ["ACTIVE", "PASSIVE", "PASSIVE"]),
    ] {
        rotate(&mut graph, geom).unwrap();
        check_state(&graph, geom, (name, "OPTIMAL", &states));
    }
}

#[test]
fn a_persistent_failure_ends_and_restores_few() {
    let (mut graph, geom) = created(2, Mode::ActivePassive);
    (0..2).for_each(|number| broken(&mut graph, number, 100));
    let whole = graph.provider("multipath/test").unwrap();
    let open = graph.open(whole, Access::ALONE).unwrap();
    assert_eq!(graph.io(open, Io::Write { offset: 0, from: &[1; 4096] }), Err(BAD));
    let restored = graph.record.messages().filter(|line| line.contains("restore")).count();
    assert!((1..=2).contains(&restored), "{restored}");
    graph.shut(open);
    // Each path was tried once; one of them works by the time it is tried again.
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "DEGRADED");
    (0..2).for_each(|number| broken(&mut graph, number, 0));
    write(&mut graph, "multipath/test", 2).unwrap();
}

#[test]
fn a_path_departs_and_arrives() {
    let disk = disk_of(vec![0; SIZE]);
    let (mut graph, under) = paths(&disk, 2);
    label(&mut graph, "test", &under, (Mode::ActivePassive, false)).unwrap();
    let geom = graph.geom("MULTIPATH", "test").unwrap();
    check_state(&graph, geom, ("da0", "OPTIMAL", &["ACTIVE", "PASSIVE"]));
    disk::remove(&mut graph, under[0]);
    check_state(&graph, geom, ("da1", "DEGRADED", &["ACTIVE"]));
    write(&mut graph, "multipath/test", 3).unwrap();
    MD.insert(&mut graph, "da0", Box::new(Over::new(&disk))).unwrap();
    graph.settle();
    check_state(&graph, geom, ("da1", "OPTIMAL", &["ACTIVE", "PASSIVE"]));
    for name in ["da0", "da1"] {
        let provider = graph.provider(name).unwrap();
        disk::remove(&mut graph, provider);
    }
    assert!(graph.geom("MULTIPATH", "test").is_err(), "the last path takes the disk along");
    assert!(graph.provider("multipath/test").is_err());
}

#[test]
fn the_physical_path_shows_through() {
    let mut graph = Graph::new(&all(), 5);
    let mut under = Vec::new();
    for name in ["md0", "md1"] {
        let disk = MD.insert(&mut graph, name, Box::new(Memory::new(SIZE))).unwrap();
        graph.settle();
        let physical_path = Some("some/physical/path".into());
        let options = nop::NopOptions { physical_path, ..nop::NopOptions::default() };
        under.push(nop::create(&mut graph, disk, options).unwrap());
    }
    create(&mut graph, "test", &under, (Mode::ActivePassive, false)).unwrap();
    let whole = graph.provider("multipath/test").unwrap();
    let path = graph.attribute(whole, "GEOM::physpath").unwrap();
    assert_eq!(path.text().unwrap(), "some/physical/path");
}

/// A disk of the size in the document, of which only the end is stored.
#[derive(Clone, Debug)]
struct Large(Rc<RefCell<Vec<u8>>>);

const LARGE: u64 = 750_156_374_016;

impl Medium for Large {
    fn shape(&self) -> Shape {
        Shape { media_size: LARGE, sector_size: 512, stripe_size: 0, stripe_offset: 0 }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        to.fill(0);
        if offset == LARGE - 512 {
            to.copy_from_slice(&self.0.borrow());
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        assert_eq!(offset, LARGE - 512, "nothing else is written");
        self.0.borrow_mut().copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

#[test]
fn the_disk_of_the_document_loses_one_sector() {
    let last = Rc::new(RefCell::new(vec![0; 512]));
    let mut graph = Graph::new(&all(), 5);
    let insert = |name| MD.insert(&mut graph, name, Box::new(Large(Rc::clone(&last)))).unwrap();
    let under = ["da0", "da1"].map(insert);
    graph.settle();
    label(&mut graph, "disk0", &under, (Mode::ActivePassive, false)).unwrap();
    let whole = graph.provider("multipath/disk0").unwrap();
    assert_eq!(graph[whole].media_size, 750_156_373_504);
}

#[test]
fn who_is_no_path_is_not_taken_for_one_and_nothing_is_written() {
    let (disk, other) = (disk_of(vec![0; SIZE]), disk_of(vec![0; SIZE]));
    let (mut graph, _) = paths(&disk, 1);
    MD.insert(&mut graph, "x", Box::new(Over::new(&other))).unwrap();
    graph.settle();
    let both = ["da0", "x"].map(|name| graph.provider(name).unwrap());
    let error = label(&mut graph, "test", &both, (Mode::ActivePassive, false)).unwrap_err();
    assert!(error.cause.contains("No metadata found on x. It is not a path of da0"), "{error}");
    assert_eq!(disk.borrow().bytes, vec![0; SIZE], "as it was");
    assert!(graph.geom("MULTIPATH", "test").is_err());

    // A copy of the disk shows the same label; its serial number shows that it is not a path.
    label(&mut graph, "test", &both[..1], (Mode::ActivePassive, false)).unwrap();
    let copy = disk_of(disk.borrow().bytes.clone());
    let over = Over { serial: "S2", ..Over::new(&copy) };
    MD.insert(&mut graph, "copy", Box::new(over)).unwrap();
    graph.settle();
    let geom = graph.geom("MULTIPATH", "test").unwrap();
    check_state(&graph, geom, ("da0", "DEGRADED", &["ACTIVE"]));
    let verdict = graph.record.verdicts().find(|v| v.class == "MULTIPATH" && v.provider == "copy");
    assert!(verdict.unwrap().taste.reason().text.contains("serial number S2"), "{verdict:?}");
    // So does a disk with another mode: it was relabelled elsewhere.
    let elsewhere = disk_of(disk.borrow().bytes.clone());
    elsewhere.borrow_mut().bytes[SIZE - 512 + 88] = 1;
    MD.insert(&mut graph, "old", Box::new(Over::new(&elsewhere))).unwrap();
    // And one without a label: it is added on request only.
    graph.settle();
    check_state(&graph, geom, ("da0", "DEGRADED", &["ACTIVE"]));
    let error = add(&mut graph, geom, both[1], false).unwrap_err();
    assert!(error.kind == Kind::Foreign && error.cause.contains("--force"), "{error}");
}

#[test]
fn metadata_that_does_not_fit_is_refused_by_name() {
    let disk = disk_of(vec![0; SIZE]);
    let (mut graph, under) = paths(&disk, 1);
    label(&mut graph, "test", &under, (Mode::ActivePassive, false)).unwrap();
    let good = disk.borrow().bytes.clone();
    drop(graph);
    let at = SIZE - 512;
    for (change, byte, why) in [
        (16, 0, "uuid"),
        (56, 0, "name"),
        (72, 2, "version"),
        (77, 9, "other sectors"),
        (80, 1, "is for"),
        (88, 9, "unknown mode 9"),
    ] {
        let mut bytes = good.clone();
        bytes[at + change] = byte;
        let (graph, _) = paths(&disk_of(bytes), 1);
        let verdict = graph.record.verdicts().find(|v| v.class == "MULTIPATH").unwrap();
        assert_eq!(verdict.taste.outcome(), crate::Outcome::Refused, "{change}");
        assert!(verdict.taste.reason().text.contains(why), "{verdict:?}");
        assert!(graph.objects().geoms_of("MULTIPATH").next().is_none());
    }
    // The image was truncated: its last sector is another one.
    let (graph, _) = paths(&disk_of(good[..SIZE - 512].to_vec()), 1);
    assert!(graph.objects().geoms_of("MULTIPATH").next().is_none());
}

#[test]
fn changes_go_over_paths_that_can_be_written() {
    let disk = disk_of(vec![0; SIZE]);
    let (mut graph, under) = paths(&disk, 1);
    label(&mut graph, "test", &under, (Mode::ActivePassive, false)).unwrap();
    drop(graph);
    let mut graph = Graph::new(&all(), 7);
    for (name, read_only) in [("da0", true), ("da1", false)] {
        let over = Over { read_only, ..Over::new(&disk) };
        MD.insert(&mut graph, name, Box::new(over)).unwrap();
    }
    graph.settle();
    let geom = graph.geom("MULTIPATH", "test").unwrap();
    check_state(&graph, geom, ("da0", "OPTIMAL", &["ACTIVE", "PASSIVE"]));
    write(&mut graph, "multipath/test", 1).unwrap();
    // Even over a path that has failed before, if no other can.
    fail(&mut graph, geom, "da1").unwrap();
    write(&mut graph, "multipath/test", 2).unwrap();
    assert_eq!(disk.borrow().bytes[..4096], [2; 4096]);
    remove(&mut graph, geom, "da1").unwrap();
    let whole = graph.provider("multipath/test").unwrap();
    let error = graph.open(whole, Access::ALONE).unwrap_err();
    assert_eq!(error.kind, Kind::Io(IoError::WriteProtected));
}

#[test]
fn a_name_that_is_taken_is_made_another() {
    let one = disk_of(vec![0; SIZE]);
    let (mut graph, under) = paths(&one, 1);
    label(&mut graph, "same", &under, (Mode::ActivePassive, false)).unwrap();
    let two = disk_of(vec![0; SIZE]);
    let (mut other, under) = paths(&two, 1);
    other.random();
    label(&mut other, "same", &under, (Mode::ActivePassive, false)).unwrap();
    MD.insert(&mut graph, "db0", Box::new(Over::new(&two))).unwrap();
    MD.insert(&mut graph, "db1", Box::new(Over::new(&two))).unwrap();
    graph.settle();
    let names: Vec<_> =
        graph.objects().geoms_of("MULTIPATH").map(|(_, geom)| geom.name.clone()).collect();
    assert!(names.len() == 2 && names[1].starts_with("same-"), "{names:?}");
    let geom = graph.geom("MULTIPATH", &names[1]).unwrap();
    check_state(&graph, geom, ("db0", "OPTIMAL", &["ACTIVE", "PASSIVE"]));
    // Its label keeps its name.
    configure(&mut graph, geom, Mode::ActiveActive).unwrap();
    let label = wire::Multipath::parse(&two.borrow().bytes[SIZE - 512..]).unwrap();
    assert_eq!((label.name.as_str(), label.mode), ("same", Mode::ActiveActive));
}

#[test]
fn remove_stop_destroy_and_clear() {
    let disk = disk_of(vec![0; SIZE]);
    let (mut graph, under) = paths(&disk, 3);
    label(&mut graph, "test", &under, (Mode::ActivePassive, false)).unwrap();
    let geom = graph.geom("MULTIPATH", "test").unwrap();
    remove(&mut graph, geom, "da0").unwrap();
    assert_eq!(graph[geom].consumers.len(), 2, "it does not come back by itself");
    graph.retaste(under[0]).unwrap();
    graph.settle();
    assert_eq!(graph[geom].consumers.len(), 3, "it does when it is tasted anew");
    assert!(clear(&mut graph, under[0]).unwrap_err().cause.contains("in use by MULTIPATH test"));
    let whole = graph.provider("multipath/test").unwrap();
    let open = graph.open(whole, Access::READ).unwrap();
    assert_eq!(stop(&mut graph, geom, false).unwrap_err().kind, Kind::Busy);
    assert_eq!(destroy(&mut graph, geom, false).unwrap_err().kind, Kind::Busy);
    graph.shut(open);
    stop(&mut graph, geom, false).unwrap();
    assert!(graph.objects().geoms_of("MULTIPATH").next().is_none());
    assert!(disk.borrow().bytes[SIZE - 512..].starts_with(&wire::MAGIC));
    graph.retaste(under[0]).unwrap();
    graph.settle();
    let geom = graph.geom("MULTIPATH", "test").unwrap();
    destroy(&mut graph, geom, false).unwrap();
    assert_eq!(disk.borrow().bytes[SIZE - 512..], [0; 512]);
    label(&mut graph, "test", &under, (Mode::ActivePassive, false)).unwrap();
    let geom = graph.geom("MULTIPATH", "test").unwrap();
    stop(&mut graph, geom, false).unwrap();
    clear(&mut graph, under[2]).unwrap();
    assert_eq!(disk.borrow().bytes[SIZE - 512..], [0; 512]);
}

/// A verb and its name.
type Verb = (&'static str, fn(&mut Graph) -> Result<(), GeomError>);

#[test]
fn power_lost_between_any_two_writes_leaves_the_old_or_the_new() {
    fn geom(graph: &Graph) -> Result<GeomId, GeomError> {
        graph.geom("MULTIPATH", "test")
    }
    fn make(graph: &mut Graph) -> Result<(), GeomError> {
        let under = ["da0", "da1"].map(|name| graph.provider(name).unwrap());
        label(graph, "test", &under, (Mode::ActivePassive, false))
    }
    const VERBS: [Verb; 4] = [
        ("label", make),
        ("configure", |graph| {
            let geom = geom(graph)?;
            configure(graph, geom, Mode::ActiveRead)
        }),
        ("destroy", |graph| {
            let geom = geom(graph)?;
            destroy(graph, geom, false)
        }),
        ("label anew", make),
    ];
    fn seen(bytes: &[u8]) -> String {
        let (graph, _) = paths(&disk_of(bytes.to_vec()), 2);
        geom(&graph).map_or_else(
            |_| "nothing".into(),
            |geom| {
                let count = graph[geom].consumers.len();
                format!("{count} {}", told(&graph, Object::Geom(geom), "Mode"))
            },
        )
    }
    let mut bytes = vec![0; SIZE];
    for (name, verb) in VERBS {
        let run = |left: Option<usize>| {
            let disk = disk_of(bytes.clone());
            let (mut graph, _) = paths(&disk, 2);
            disk.borrow_mut().left = left;
            let done = verb(&mut graph).is_ok();
            let after = disk.borrow().bytes.clone();
            (after, done)
        };
        let (after, done) = run(None);
        assert!(done, "{name}");
        let (old, new) = (seen(&bytes), seen(&after));
        assert!(old != new, "{name}");
        for left in 0.. {
            let (cut, done) = run(Some(left));
            let state = seen(&cut);
            assert!(state == old || state == new, "{name} cut after {left}: {state}");
            if done {
                assert_eq!((state, left), (new, 1));
                break;
            }
        }
        bytes = after;
    }
}

//! Arrays on disks in memory.

mod cuts;
mod ddf_images;
mod ddf_write;
mod old_images;
mod order;
mod seeds;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use std::prelude::rust_2024::*;
use std::{assert, assert_eq, format, vec};

use flysch_api::block::{BlockError as IoError, Cause};
use flysch_random::SplitMix64;
use flysch_wire::geom::imsm;

use super::*;
use crate::all;
use crate::class::disk::{self, MD};
use crate::class::{part, stripe};
use crate::io::{Medium, Shape};

const MIB: u64 = 1 << 20;
const SECTOR: u64 = 512;
const BAD: IoError = IoError::Medium(Cause::None);

/// The contents of a disk, mostly zeros.
#[derive(Clone, Debug, Default)]
struct Content {
    size: u64,
    sectors: BTreeMap<u64, [u8; 512]>,
    /// The contents at the last flush, if it has a cache whose contents are lost with the power.
    durable: Option<BTreeMap<u64, [u8; 512]>>,
    cache: Vec<(u64, [u8; 512])>,
    /// The errors of reads, writes and flushes.
    broken: [Option<IoError>; 3],
    /// Sectors that cannot be read; with `heals`, a write repairs them.
    bad: Vec<u64>,
    heals: bool,
    /// Sectors that cannot be written.
    worn: Vec<u64>,
}

/// A disk. All disks of a test share one power supply, which may fail after some number of sectors.
#[derive(Clone, Debug)]
struct Platter {
    content: Rc<RefCell<Content>>,
    power: Rc<Cell<Option<u64>>>,
    serial: String,
}

impl Platter {
    fn check(&self, what: usize) -> Result<(), IoError> {
        if self.power.get() == Some(0) {
            return Err(IoError::Gone);
        }
        self.content.borrow().broken[what].map_or(Ok(()), Err)
    }

    fn sector(&self, at: u64) -> [u8; 512] {
        self.content.borrow().sectors.get(&at).copied().unwrap_or([0; 512])
    }
}

impl Medium for Platter {
    fn shape(&self) -> Shape {
        let media_size = self.content.borrow().size;
        Shape { media_size, sector_size: 512, stripe_size: 0, stripe_offset: 0 }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        self.check(0)?;
        for (number, sector) in (offset / SECTOR..).zip(to.chunks_mut(512)) {
            if self.content.borrow().bad.contains(&number) {
                return Err(BAD);
            }
            sector.copy_from_slice(&self.sector(number));
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        for (number, sector) in (offset / SECTOR..).zip(from.chunks(512)) {
            self.check(1)?;
            if self.content.borrow().worn.contains(&number) {
                return Err(BAD);
            }
            if let Some(left) = self.power.get() {
                self.power.set(Some(left - 1));
            }
            let mut content = self.content.borrow_mut();
            let sector: [u8; 512] = sector.try_into().unwrap();
            content.sectors.insert(number, sector);
            if content.durable.is_some() {
                content.cache.push((number, sector));
            }
            if content.heals {
                content.bad.retain(|bad| *bad != number);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        self.check(2)?;
        let mut content = self.content.borrow_mut();
        for (number, sector) in core::mem::take(&mut content.cache) {
            content.durable.as_mut().unwrap().insert(number, sector);
        }
        Ok(())
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        vec![("ident", self.serial.clone())]
    }
}

fn platters(count: usize, size: u64) -> Vec<Platter> {
    let power = Rc::default();
    let new = |number| Platter {
        content: Rc::new(RefCell::new(Content { size, ..Content::default() })),
        power: Rc::clone(&power),
        serial: format!("SERIAL-{number}"),
    };
    (0..count).map(new).collect()
}

/// Copies in their current state, with a power supply of their own.
fn copies(disks: &[Platter]) -> Vec<Platter> {
    let power = Rc::new(Cell::new(None));
    let copy = |disk: &Platter| Platter {
        content: Rc::new(RefCell::new(disk.content.borrow().clone())),
        power: Rc::clone(&power),
        serial: disk.serial.clone(),
    };
    disks.iter().map(copy).collect()
}

/// A graph over disks `d0` and so on.
fn graph_of(disks: &[Platter]) -> Graph {
    let mut graph = Graph::new(&all(), 11);
    for (number, disk) in disks.iter().enumerate() {
        MD.insert(&mut graph, &format!("d{number}"), Box::new(disk.clone())).unwrap();
    }
    graph.settle();
    graph
}

fn options<'a>(name: &'a str, level: &'a str) -> RaidOptions<'a> {
    RaidOptions { name, level, size: None, strip: 64 << 10 }
}

fn under(graph: &Graph, count: usize) -> Vec<ProviderId> {
    (0..count).map(|number| graph.provider(&format!("d{number}")).unwrap()).collect()
}

/// An Intel array with one volume over all disks.
fn labelled(disks: &[Platter], level: &str, size: Option<u64>) -> (Graph, GeomId) {
    labelled_as("Intel", disks, level, size)
}

fn labelled_as(format: &str, disks: &[Platter], level: &str, size: Option<u64>) -> (Graph, GeomId) {
    let mut graph = graph_of(disks);
    let under = under(&graph, disks.len());
    let options = RaidOptions { size, ..options("vol", level) };
    label(&mut graph, format, &under, (&options, false)).unwrap();
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    (graph, geom)
}

fn told(graph: &Graph, object: Object, name: &str) -> String {
    let config = RAID.config(graph, object);
    config.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
}

fn told_of(graph: &Graph, name: &str, key: &str) -> String {
    graph.provider(name).map_or("none".into(), |it| told(graph, Object::Provider(it), key))
}

fn write(graph: &mut Graph, name: &str, at: u64, bytes: &[u8]) -> Result<(), IoError> {
    let provider = graph.provider(name).unwrap();
    let open = graph.open(provider, Access::ALONE).unwrap();
    let done = graph.io(open, Io::Write { offset: at, from: bytes });
    graph.shut(open);
    graph.settle();
    done
}

fn read(graph: &mut Graph, name: &str, at: u64, len: usize) -> Result<Vec<u8>, IoError> {
    let provider = graph.provider(name).unwrap();
    let open = graph.open(provider, Access::READ).unwrap();
    let mut bytes = vec![0; len];
    let done = graph.io(open, Io::Read { offset: at, to: &mut bytes });
    graph.shut(open);
    done.map(|()| bytes)
}

/// Bytes that differ everywhere.
fn pattern(seed: u32, len: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(seed.into());
    core::iter::repeat_with(|| random.bits() as u8).take(len).collect()
}

#[test]
fn every_level_holds_what_was_written_where_it_belongs() {
    for (level, count, whole) in
        [("RAID0", 3, 6 * MIB), ("RAID1", 2, 2 * MIB), ("RAID10", 4, 4 * MIB)]
    {
        let disks = platters(count, 6 * MIB);
        let (mut graph, _) = labelled(&disks, level, Some(2 * MIB));
        let provider = graph.provider("raid/r0").unwrap();
        assert_eq!(graph[provider].media_size, whole, "{level}");
        let data = pattern(7, whole as usize);
        write(&mut graph, "raid/r0", 0, &data).unwrap();
        // As another implementation would lay it out: in strips of 64 KiB.
        for (number, strip) in data.chunks(64 << 10).enumerate() {
            let places: Vec<(usize, usize)> = match level {
                "RAID0" => vec![(number % 3, number / 3)],
                "RAID1" => vec![(0, number), (1, number)],
                _ => vec![(number % 2 * 2, number / 2), (number % 2 * 2 + 1, number / 2)],
            };
            for (disk, row) in places {
                let first = disks[disk].sector(row as u64 * 128);
                assert_eq!(first[..], strip[..512], "{level} strip {number}");
            }
        }
        drop(graph);
        let mut graph = graph_of(&copies(&disks));
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
        assert_eq!(told_of(&graph, "raid/r0", "Dirty"), "No");
        for (at, len) in
            [(0, whole as usize), (512, 70_000 / 512 * 512), (whole as usize - 512, 512)]
        {
            assert!(read(&mut graph, "raid/r0", at as u64, len).unwrap() == data[at..at + len]);
        }
    }
}

#[test]
fn the_volumes_of_the_document_lie_where_it_says() {
    let disks = platters(2, 60_022_480_896);
    let (mut graph, geom) = labelled(&disks, "RAID1", Some(32_212_254_720));
    add(&mut graph, geom, &options("Volume1", "RAID0")).unwrap();
    drop(graph);
    let graph = graph_of(&disks);
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    let consumer = graph[geom].consumers[0];
    let places = told(&graph, Object::Consumer(consumer), "Subdisks");
    assert_eq!(places, "r0(vol):0@0, r1(Volume1):0@32214614016");
    let sizes = ["raid/r0", "raid/r1"].map(|name| graph[graph.provider(name).unwrap()].media_size);
    assert_eq!(sizes, [32_212_254_720, 2 * 27_805_089_792]);
    let error = add(&mut graph_of(&disks), geom, &options("more", "RAID0")).unwrap_err();
    assert!(error.cause.contains("2 volumes"), "{error}");
}

#[test]
fn a_disk_that_was_away_is_stale_and_is_rebuilt() {
    for level in ["RAID1", "RAID10"] {
        let count = if level == "RAID1" { 2 } else { 4 };
        let disks = platters(count, 6 * MIB);
        let (mut graph, _) = labelled(&disks, level, Some(2 * MIB));
        write(&mut graph, "raid/r0", 0, &[1; 65536]).unwrap();
        // Examining it without one disk changes nothing.
        let before = disks[0].content.borrow().sectors.clone();
        let mut graph = graph_of(&disks[..count - 1]);
        assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED");
        assert_eq!(read(&mut graph, "raid/r0", 0, 512).unwrap(), [1; 512]);
        assert!(disks[0].content.borrow().sectors == before);
        let last = count - 1;
        MD.insert(&mut graph, &format!("d{last}"), Box::new(disks[last].clone())).unwrap();
        graph.settle();
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL", "it missed nothing");
        // Writing to it does.
        let mut graph = graph_of(&disks[..count - 1]);
        let data = pattern(3, 2 * MIB as usize);
        write(&mut graph, "raid/r0", 0, &data).unwrap();
        let mut graph = graph_of(&disks);
        let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
        let stale = *graph[geom].consumers.last().unwrap();
        assert_eq!(told(&graph, Object::Consumer(stale), "State"), "STALE");
        assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED");
        for _ in 0..3 {
            assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data, "no stale half");
        }
        assert_eq!(rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).unwrap(), 1);
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
        for sector in 0..2 * MIB / 512 {
            assert_eq!(disks[last - 1].sector(sector), disks[last].sector(sector));
        }
        // The next session sees this too, even with that disk alone.
        let mut graph = graph_of(&disks);
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
        let alive = graph_of(&disks[1..]);
        assert_eq!(told_of(&alive, "raid/r0", "State"), "DEGRADED");
        assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
    }
}

#[test]
fn a_rebuild_that_was_cut_goes_on_where_it_was() {
    let disks = platters(3, 40 * MIB);
    let (mut graph, geom) = labelled(&disks[..2], "RAID1", Some(32 * MIB));
    let data = pattern(5, 32 * MIB as usize);
    write(&mut graph, "raid/r0", 0, &data).unwrap();
    let second = under(&graph, 2)[1];
    disk::remove(&mut graph, second);
    MD.insert(&mut graph, "d2", Box::new(disks[2].clone())).unwrap();
    graph.settle();
    let new = graph.provider("d2").unwrap();
    insert(&mut graph, geom, &[new], false).unwrap();
    assert!(told_of(&graph, "raid/r0", "Subdisks").contains("d2 (NEW)"));
    let limit = Rc::clone(&disks[2].content);
    let mut stop = |at: u64, _: u64| {
        if at >= 20 * MIB {
            limit.borrow_mut().broken[1] = Some(BAD);
        }
    };
    assert!(rebuild(&mut graph, geom, 8 * MIB, &mut stop).is_err());
    disks[2].content.borrow_mut().broken = [None; 3];
    let after = [disks[0].clone(), disks[2].clone()];
    let mut graph = graph_of(&after);
    let state = told_of(&graph, "raid/r0", "Subdisks");
    assert_eq!(state, "d0 (ACTIVE), d1 (REBUILD 50%)");
    // The part already rebuilt is written like the others.
    write(&mut graph, "raid/r0", MIB, &data[..4096]).unwrap();
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    let mut first = None;
    let mut note = |at: u64, _: u64| first = first.or(Some(at));
    assert_eq!(rebuild(&mut graph, geom, 8 * MIB, &mut note).unwrap(), 1);
    assert_eq!(first, Some(17 * MIB));
    for sector in 0..32 * MIB / 512 {
        assert_eq!(disks[0].sector(sector), disks[2].sector(sector));
    }
    // The disk that was replaced has no place any more.
    let graph = graph_of(&disks);
    assert_eq!(told_of(&graph, "raid/r0", "Subdisks"), "d0 (ACTIVE), d2 (ACTIVE)");
}

#[test]
fn copies_that_may_differ_are_not_both_read() {
    let disks = platters(2, 6 * MIB);
    let (mut graph, _) = labelled(&disks, "RAID1", Some(2 * MIB));
    let provider = graph.provider("raid/r0").unwrap();
    let open = graph.open(provider, Access::ALONE).unwrap();
    graph.io(open, Io::Write { offset: 0, from: &[9; 512] }).unwrap();
    // Power fails after one half was written and before the other was.
    let disks = copies(&disks);
    disks[1].content.borrow_mut().sectors.insert(0, [1; 512]);
    let mut graph = graph_of(&disks);
    assert_eq!(told_of(&graph, "raid/r0", "State"), "SUBOPTIMAL");
    assert_eq!(told_of(&graph, "raid/r0", "Subdisks"), "d0 (ACTIVE), d1 (STALE)");
    for _ in 0..3 {
        assert_eq!(read(&mut graph, "raid/r0", 0, 512).unwrap(), [9; 512]);
    }
    // Also after a write, which goes to both.
    write(&mut graph, "raid/r0", 512, &[5; 512]).unwrap();
    let mut graph = graph_of(&copies(&disks));
    assert_eq!(told_of(&graph, "raid/r0", "Subdisks"), "d0 (ACTIVE), d1 (STALE)");
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    assert_eq!(rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).unwrap(), 1);
    assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
    assert_eq!(told_of(&graph, "raid/r0", "Dirty"), "No");
}

#[test]
fn what_cannot_be_read_is_mended_and_what_cannot_be_written_drops_out() {
    let disks = platters(2, 8 * MIB);
    let (mut graph, geom) = labelled(&disks, "RAID1", Some(MIB));
    add(&mut graph, geom, &options("fast", "RAID0")).unwrap();
    write(&mut graph, "raid/r0", 0, &[7; 8192]).unwrap();
    write(&mut graph, "raid/r1", 0, &[8; 8192]).unwrap();
    {
        let mut content = disks[1].content.borrow_mut();
        (content.bad, content.heals) = (vec![3], true);
    }
    for _ in 0..2 {
        assert_eq!(read(&mut graph, "raid/r0", 0, 8192).unwrap(), [7; 8192]);
    }
    assert!(disks[1].content.borrow().bad.is_empty());
    assert!(graph.record.messages().any(|line| line.contains("mended")));
    assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
    let consumer = graph[geom].consumers[1];
    assert_eq!(told(&graph, Object::Consumer(consumer), "ReadErrors"), "1");
    // If that cannot be written either, the disk is dropped.
    let worn = copies(&disks);
    {
        let mut content = worn[1].content.borrow_mut();
        (content.bad, content.worn) = (vec![3], vec![3]);
    }
    let mut other = graph_of(&worn);
    for _ in 0..2 {
        assert_eq!(read(&mut other, "raid/r0", 0, 8192).unwrap(), [7; 8192]);
    }
    assert_eq!(told_of(&other, "raid/r0", "Subdisks"), "d0 (ACTIVE), d1 (FAILED)");
    // A failed disk is no longer used, unless there is nothing else.
    disks[1].content.borrow_mut().broken[1] = Some(IoError::TimedOut);
    write(&mut graph, "raid/r0", 0, &[6; 8192]).unwrap();
    assert_eq!(told_of(&graph, "raid/r0", "Subdisks"), "d0 (ACTIVE), d1 (FAILED)");
    assert_eq!(told_of(&graph, "raid/r1", "State"), "SUBOPTIMAL");
    assert_eq!(read(&mut graph, "raid/r1", 0, 8192).unwrap(), [8; 8192]);
    assert_eq!(write(&mut graph, "raid/r1", 65536, &[8; 512]), Err(IoError::TimedOut));
    disks[1].content.borrow_mut().broken = [None; 3];
    let mut graph = graph_of(&disks);
    assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED");
    assert_eq!(read(&mut graph, "raid/r0", 0, 8192).unwrap(), [6; 8192]);
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    assert_eq!(fail(&mut graph, geom, &["d0"]).unwrap_err().kind, Kind::Busy);
    assert_eq!(remove(&mut graph, geom, &["d1"]).unwrap_err().kind, Kind::Busy);
}

/// What could not be recorded when it happened is recorded before the next change, which the
/// missing copy does not have.
#[test]
fn who_is_away_is_told_of_before_the_next_write() {
    for away in [0, 1] {
        let disks = platters(2, 5 * MIB);
        let (mut graph, geom) = labelled(&disks, "RAID1", Some(MIB));
        rebuild(&mut graph, geom, MIB, &mut |_, _| {}).unwrap();
        let provider = graph.provider("raid/r0").unwrap();
        let open = graph.open(provider, Access::ALONE).unwrap();
        graph.io(open, Io::Write { offset: 0, from: &[1; 512] }).unwrap();
        // The other disk cannot be written when this one goes.
        let last = disks[0].content.borrow().size / 512;
        disks[1 - away].content.borrow_mut().worn = (last - 16..last).collect();
        let gone = graph.provider(&format!("d{away}")).unwrap();
        disk::remove(&mut graph, gone);
        graph.settle();
        graph.io(open, Io::Write { offset: 0, from: &[2; 512] }).unwrap_err();
        disks[1 - away].content.borrow_mut().worn.clear();
        graph.io(open, Io::Write { offset: 0, from: &[3; 512] }).unwrap();
        graph.io(open, Io::Flush).unwrap();
        // Power fails; both are present again.
        let mut graph = graph_of(&copies(&disks));
        for _ in 0..4 {
            assert_eq!(read(&mut graph, "raid/r0", 0, 512).unwrap(), [3; 512], "{away}");
        }
    }
}

#[test]
fn a_disk_that_is_still_needed_gives_up_only_what_it_missed() {
    let disks = platters(3, 8 * MIB);
    let (mut graph, geom) = labelled(&disks[..2], "RAID1", Some(MIB));
    let more = RaidOptions { size: Some(MIB), ..options("more", "RAID1") };
    add(&mut graph, geom, &more).unwrap();
    write(&mut graph, "raid/r0", 0, &[1; 4096]).unwrap();
    write(&mut graph, "raid/r1", 0, &[2; 4096]).unwrap();
    remove(&mut graph, geom, &["d1"]).unwrap();
    drop(graph);
    // The first volume is rebuilt, the second is not.
    let disks = [disks[0].clone(), disks[2].clone()];
    let mut graph = graph_of(&disks);
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    let new = graph.provider("d1").unwrap();
    insert(&mut graph, geom, &[new], false).unwrap();
    let start: u64 = told(&graph, Object::Consumer(graph[geom].consumers[1]), "Subdisks")
        .rsplit('@')
        .next()
        .and_then(|at| at.parse().ok())
        .unwrap();
    disks[1].content.borrow_mut().worn = vec![start / 512 + 100];
    assert!(rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).is_err());
    assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
    assert_eq!(told_of(&graph, "raid/r1", "State"), "DEGRADED");
    // The old disk misses a write to the first volume.
    disks[0].content.borrow_mut().worn = vec![4];
    write(&mut graph, "raid/r0", 0, &[3; 4096]).unwrap();
    for mut graph in [graph, graph_of(&copies(&disks))] {
        let parts = ["raid/r0", "raid/r1"].map(|name| told_of(&graph, name, "Subdisks"));
        assert_eq!(parts[0], "d0 (NEW), d1 (ACTIVE)");
        assert!(parts[1].starts_with("d0 (ACTIVE), d1 (REBUILD"), "{parts:?}");
        for _ in 0..3 {
            assert_eq!(read(&mut graph, "raid/r0", 0, 4096).unwrap(), [3; 4096]);
            assert_eq!(read(&mut graph, "raid/r1", 0, 4096).unwrap(), [2; 4096]);
        }
    }
}

/// A level 5 array as others make it: left asymmetric, strips of 4 KiB.
fn level_5(disks: &[Platter], data: &[u8], dirty: bool) {
    let count = disks.len();
    let mut header = imsm::Header::new(0x5555);
    (header.disks, header.volumes, header.version) = (count as u8, 1, *b"1.2.02");
    (header.len, header.generation) = ((216 + 48 * count + 112 + 48 + 4 * count) as u32, 3);
    let mut bytes = vec![0; header.len as usize];
    header.emit(&mut bytes);
    let mut at = imsm::Header::LEN;
    for disk in disks {
        let blocks = disk.content.borrow().size / 512;
        imsm::Disk::new(imsm::serial(&disk.serial), blocks, 2).emit(&mut bytes[at..]);
        at += 48;
    }
    let mut volume =
        imsm::ImsmVolume::new(*b"five\0\0\0\0\0\0\0\0\0\0\0\0", data.len() as u64 / 512, 1);
    volume.dirty = u8::from(dirty);
    volume.emit(&mut bytes[at..]);
    let mut map = imsm::Map::new(5, count as u8, 1);
    (map.start, map.blocks, map.strip) = (16, 4096, 8);
    map.emit(&mut bytes[at + 112..]);
    at += 160;
    for number in 0..count as u32 {
        bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        at += 4;
    }
    let sum = imsm::checksum(&bytes);
    bytes[0x20..0x24].copy_from_slice(&sum.to_le_bytes());
    bytes.resize(1024, 0);
    for (row, stripe) in data.chunks(4096 * (count - 1)).enumerate() {
        let mut strips: Vec<Vec<u8>> = stripe.chunks(4096).map(<[u8]>::to_vec).collect();
        strips.resize(count - 1, vec![0; 4096]);
        let mut parity = vec![0; 4096];
        strips.iter_mut().for_each(|strip| {
            strip.resize(4096, 0);
            parity.iter_mut().zip(&*strip).for_each(|(sum, byte)| *sum ^= byte);
        });
        strips.insert(count - 1 - row % count, parity);
        for (disk, strip) in disks.iter().zip(strips) {
            for (number, sector) in (16 + row as u64 * 8..).zip(strip.chunks(512)) {
                let sector = sector.try_into().unwrap();
                disk.content.borrow_mut().sectors.insert(number, sector);
            }
        }
    }
    for disk in disks {
        let mut content = disk.content.borrow_mut();
        let last = content.size / 512 - 1;
        content.sectors.insert(last - 1, bytes[..512].try_into().unwrap());
        content.sectors.insert(last - 2, bytes[512..].try_into().unwrap());
    }
}

#[test]
fn level_5_is_read_whole_and_without_a_disk() {
    let data = pattern(9, 300_032);
    for count in [3, 4] {
        let disks = platters(count, 6 * MIB);
        level_5(&disks, &data, false);
        let mut graph = graph_of(&disks);
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
        assert_eq!(told_of(&graph, "raid/r0", "RAIDLevel"), "RAID5-LA");
        assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
        let provider = graph.provider("raid/r0").unwrap();
        let error = graph.open(provider, Access::ALONE).unwrap_err();
        assert!(error.cause.contains("only be read"), "{error}");
        for away in 0..count {
            let mut disks = copies(&disks);
            disks.remove(away);
            let mut graph = graph_of(&disks);
            assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED");
            assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data, "{away}");
        }
        // A disk that does not answer is not needed, either.
        disks[1].content.borrow_mut().broken[0] = Some(IoError::TimedOut);
        assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
    }
    // Parity that may be wrong is worthless.
    let disks = platters(3, 6 * MIB);
    level_5(&disks, &data, true);
    assert_eq!(told_of(&graph_of(&disks), "raid/r0", "State"), "SUBOPTIMAL");
    assert!(graph_of(&disks[1..]).provider("raid/r0").is_err());
}

/// Changes the metadata of all disks, and corrects its checksum.
fn forge(disks: &[Platter], change: impl Fn(&mut [u8])) {
    for disk in disks {
        let mut content = disk.content.borrow_mut();
        let anchor = content.size / 512 - 2;
        let mut bytes = [content.sectors[&anchor], [0; 512]].concat();
        bytes[512..].copy_from_slice(content.sectors.get(&(anchor - 1)).unwrap_or(&[0; 512]));
        let len = |bytes: &[u8]| {
            (u32::from_le_bytes(bytes[0x24..0x28].try_into().unwrap()) as usize).clamp(264, 1024)
        };
        change(&mut bytes);
        let sum = imsm::checksum(&bytes[..len(&bytes)]);
        bytes[0x20..0x24].copy_from_slice(&sum.to_le_bytes());
        content.sectors.insert(anchor, bytes[..512].try_into().unwrap());
        content.sectors.insert(anchor - 1, bytes[512..].try_into().unwrap());
    }
}

fn verdict(graph: &Graph, disk: &str) -> String {
    let found = graph.record.verdicts().find(|v| v.class == "RAID" && v.provider == disk).unwrap();
    format!("{}: {}", found.taste.outcome().word(), found.taste.reason().text)
}

#[test]
fn hostile_metadata_is_refused_by_name_and_not_written() {
    let whole = platters(2, 8 * MIB);
    let (mut graph, geom) = labelled(&whole, "RAID1", Some(MIB));
    add(&mut graph, geom, &options("fast", "RAID0")).unwrap();
    drop(graph);
    /// Where the volumes begin, and the length of one record.
    const VOLUME: usize = 216 + 2 * 48;
    const NEXT: usize = 112 + 48 + 8;
    let put = |at: usize, value: u32| {
        move |bytes: &mut [u8]| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes())
    };
    type Change = Box<dyn Fn(&mut [u8])>;
    let changes: [(Change, &str); 14] = [
        (Box::new(put(0x24, 70_000)), "mpb_size"),
        (Box::new(put(0x24, 300)), "too small for what it holds"),
        (Box::new(put(0x34, 0x0100_0000)), "unknown attributes 0x1000000"),
        (Box::new(put(0x48, 8)), "too small for what it holds"),
        (Box::new(|bytes| bytes[0x38] = 0), "names disk"),
        (Box::new(|bytes| bytes[0x39] = 9), "too small for what it holds"),
        (Box::new(put(216, 0x4242_4242)), "it is for disks BBBB"),
        (Box::new(put(216 + 16, 5)), "it is for a disk of 5 sectors"),
        (Box::new(put(VOLUME + 16, 0)), "impossible size"),
        (Box::new(put(VOLUME + 16, 1 << 20)), "larger than its members"),
        (Box::new(put(VOLUME + 112, 1 << 20)), "outside of its disks"),
        (Box::new(put(VOLUME + NEXT + 112, 100)), "volumes vol and fast overlap"),
        (Box::new(put(VOLUME + 160, 2)), "names disk 2 of 2"),
        (Box::new(put(VOLUME + 160, 1)), "names a disk twice"),
    ];
    for (change, why) in changes {
        let disks = copies(&whole);
        forge(&disks, change);
        let before = disks[0].content.borrow().sectors.clone();
        let graph = graph_of(&disks);
        let said = verdict(&graph, "d0");
        assert!(said.starts_with("refused") && said.contains(why), "{why}: {said}");
        assert!(disks[0].content.borrow().sectors == before);
        if why.ends_with("BBBB") {
            // The other disk is trusted.
            assert_eq!(told_of(&graph, "raid/r0", "Subdisks"), "NONE (NONE), d1 (ACTIVE)");
            continue;
        }
        assert!(graph.provider("raid/r0").is_err());
        // Nothing else takes these disks, or overwrites them.
        let mut graph = graph_of(&disks);
        let under = under(&graph, 2);
        let error = stripe::label(&mut graph, "st", &under, &stripe::StripeOptions::default());
        assert!(error.unwrap_err().cause.contains("RAID (Intel)"));
        let error = label(&mut graph, "Intel", &under, (&options("x", "RAID1"), false));
        assert!(error.unwrap_err().cause.contains("--force"));
    }
    // A migration is not continued, but its state is shown.
    let disks = copies(&whole);
    forge(&disks, |bytes| {
        bytes.copy_within(VOLUME + NEXT..VOLUME + 2 * NEXT, VOLUME + NEXT + 56);
        bytes.copy_within(VOLUME + 112..VOLUME + NEXT, VOLUME + NEXT);
        (bytes[VOLUME + 88], bytes[VOLUME + 89]) = (1, 3);
        let len = u32::from_le_bytes(bytes[0x24..0x28].try_into().unwrap()) + 56;
        bytes[0x24..0x28].copy_from_slice(&len.to_le_bytes());
    });
    let graph = graph_of(&disks);
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    assert!(graph.record.messages().any(|line| line.contains("general migration is under way")));
    assert!(graph.provider("raid/r0").is_err());
    assert_eq!(told_of(&graph, "raid/r1", "State"), "OPTIMAL");
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "OPTIMAL");
    // A wrong checksum on all disks; a truncated disk.
    let disks = copies(&whole);
    for disk in &disks {
        disk.content.borrow_mut().sectors.get_mut(&16382).unwrap()[0x2C] ^= 1;
    }
    assert!(verdict(&graph_of(&disks), "d0").contains("checksum is wrong"));
    let disks = copies(&whole);
    disks[0].content.borrow_mut().size -= 512;
    assert!(verdict(&graph_of(&disks), "d0").contains("no metadata"));
}

#[test]
fn disks_of_an_array_belong_to_it_alone() {
    let disks = platters(3, 6 * MIB);
    let (mut graph, geom) = labelled(&disks[..2], "RAID1", Some(2 * MIB));
    let provider = graph.provider("raid/r0").unwrap();
    let flags = part::Flags::default();
    part::create(&mut graph, provider, (part::Scheme::Mbr, None), flags).unwrap();
    drop(graph);
    // The table is in the first sector of both disks, and belongs to the volume.
    for disks in [&disks[..2], &disks[..1]] {
        let graph = graph_of(disks);
        let tables: Vec<_> =
            graph.objects().geoms_of("PART").map(|(_, geom)| geom.name.clone()).collect();
        assert_eq!(tables, ["raid/r0"]);
    }
    let mut graph = graph_of(&disks);
    let both = under(&graph, 2);
    let error = label(&mut graph, "Intel", &both, (&options("x", "RAID1"), true));
    assert_eq!(error.unwrap_err().kind, Kind::Busy);
    let _ = geom;
    // A disk with the serial number of another one gets no place.
    let twin = Platter { serial: "SERIAL-0".into(), ..copies(&disks)[0].clone() };
    MD.insert(&mut graph, "twin", Box::new(twin)).unwrap();
    graph.settle();
    assert_eq!(told_of(&graph, "raid/r0", "Subdisks"), "d0 (ACTIVE), d1 (ACTIVE)");
}

#[test]
fn delete_stop_and_what_cannot_be_made() {
    let disks = platters(4, 8 * MIB);
    let mut graph = graph_of(&disks);
    let all = under(&graph, 4);
    for (level, count, why) in [
        ("RAID1", 3, "cannot have 3 disks"),
        ("RAID10", 3, "cannot have 3 disks"),
        ("RAID0", 1, "cannot have 1 disk"),
        ("RAID5", 3, "is not a level that can be made"),
    ] {
        let done = label(&mut graph, "Intel", &all[..count], (&options("vol", level), false));
        assert!(done.unwrap_err().cause.contains(why), "{level}");
    }
    let large = RaidOptions { size: Some(7 * MIB), ..options("vol", "RAID1") };
    let done = label(&mut graph, "Intel", &all[..2], (&large, false));
    assert_eq!(done.unwrap_err().kind, Kind::NoSpace);
    assert!(disks.iter().all(|disk| disk.content.borrow().sectors.is_empty()));
    drop(graph);
    let (mut graph, geom) = labelled(&disks[..2], "RAID1", Some(MIB));
    add(&mut graph, geom, &options("fast", "RAID0")).unwrap();
    let open = graph.open(graph.provider("raid/r1").unwrap(), Access::READ).unwrap();
    assert_eq!(delete(&mut graph, geom, Some("fast"), false).unwrap_err().kind, Kind::Busy);
    assert_eq!(stop(&mut graph, geom, false).unwrap_err().kind, Kind::Busy);
    graph.shut(open);
    delete(&mut graph, geom, Some("1"), false).unwrap();
    assert!(graph.provider("raid/r1").is_err() && graph.provider("raid/r0").is_ok());
    stop(&mut graph, geom, false).unwrap();
    assert!(graph.objects().geoms_of("RAID").next().is_none());
    let mut graph = graph_of(&disks);
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    delete(&mut graph, geom, None, false).unwrap();
    assert!(graph_of(&disks).objects().geoms_of("RAID").next().is_none());
}

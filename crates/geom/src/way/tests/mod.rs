//! Ways over disks in memory whose lanes answer in any order.

mod halves;
mod paths;
mod rebuild;
mod seeds;
mod usage;

use alloc::rc::Rc;
use core::cell::{Cell, RefCell, RefMut};
use core::ops::Range;
use std::collections::BTreeMap;
use std::prelude::rust_2024::*;
use std::{assert, assert_eq, assert_ne, format, panic, vec};

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Cause, Completion, Operation, Refused, Request,
};
use flysch_api::data::{Data, SegmentLimits};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant};
use flysch_api::trace::Passage;
use flysch_random::XorShift64;
use flysch_wire::geom::mirror::Balance;
use flysch_wire::geom::multipath::Mode;

use super::jobs::OWN;
use super::{Incident, Plan, Way};
use crate::class::disk::MD;
use crate::class::{concat, label, mirror, multipath, nop, part, raid, stripe};
use crate::io::{Medium, Shape};
use crate::{Access, ConsumerId, Graph, Io, ProviderId};

const MIB: u64 = 1 << 20;
const NOW: Instant = Instant::START;
const BAD: BlockError = BlockError::Medium(Cause::None);

/// What both the lanes of a disk and the graph see.
#[derive(Debug, Default)]
struct Content {
    bytes: Vec<u8>,
    /// What was written since the last flush: a power cut loses some of it.
    cache: Vec<(usize, Vec<u8>)>,
    /// The contents before that.
    durable: Vec<u8>,
    /// Requests that fail: an operation, and the byte that it touches.
    bad: Vec<(Operation, u64)>,
    /// A write repairs them.
    heals: bool,
    is_gone: bool,
    serial: String,
    counts: BTreeMap<&'static str, u32>,
}

impl Content {
    fn verdict(
        &mut self,
        operation: Operation,
        offset: u64,
        length: u64,
    ) -> Result<(), BlockError> {
        if self.is_gone {
            return Err(BlockError::Gone);
        }
        let is_hit = |&&(bad, at): &&(Operation, u64)| {
            bad == operation && (at.wrapping_sub(offset) < length || operation == Operation::Flush)
        };
        if self.bad.iter().any(|bad| is_hit(&bad)) {
            return Err(BAD);
        }
        if operation == Operation::Write && self.heals {
            self.bad.retain(|(_, at)| at.wrapping_sub(offset) >= length);
        }
        if operation == Operation::Flush {
            self.cache.clear();
            self.durable.clone_from(&self.bytes);
        }
        Ok(())
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..][..bytes.len()].copy_from_slice(bytes);
        if !self.durable.is_empty() {
            self.cache.push((offset, bytes.to_vec()));
        }
    }

    /// Makes the current contents durable without a flush, as [`put`](Self::put) wrote them.
    fn force(&mut self, offset: usize, length: usize) {
        if self.durable.is_empty() {
            return;
        }
        self.durable[offset..][..length].copy_from_slice(&self.bytes[offset..][..length]);
        for (at, bytes) in &mut self.cache {
            let (start, end) = (offset.max(*at), (offset + length).min(*at + bytes.len()));
            if start < end {
                bytes[start - *at..end - *at].copy_from_slice(&self.bytes[start..end]);
            }
        }
    }

    /// From now on, writes can be lost until they are flushed.
    fn has_cache(&mut self) {
        self.durable.clone_from(&self.bytes);
    }

    /// Power fails and returns: nothing is wrong with the disk any more.
    fn cut(&mut self, random: &mut Random) {
        self.bytes.clone_from(&self.durable);
        for (offset, bytes) in core::mem::take(&mut self.cache) {
            for (at, sector) in bytes.chunks(512).enumerate() {
                if random.below(2) == 0 {
                    self.bytes[offset + at * 512..][..512].copy_from_slice(sector);
                }
            }
        }
        let (bytes, serial) = (core::mem::take(&mut self.bytes), core::mem::take(&mut self.serial));
        *self = Self { bytes, serial, ..Self::default() };
    }
}

/// A disk, and the error of the path to it, if any.
#[derive(Clone, Debug)]
struct Disk(Rc<RefCell<Content>>, Rc<Cell<Option<BlockError>>>);

impl Disk {
    fn new(content: &Rc<RefCell<Content>>) -> Self {
        Self(content.clone(), Rc::default())
    }

    fn verdict(&self, operation: Operation, offset: u64, length: u64) -> Result<(), BlockError> {
        self.1.get().map_or(Ok(()), Err)?;
        self.0.borrow_mut().verdict(operation, offset, length)
    }
}

impl Medium for Disk {
    fn shape(&self) -> Shape {
        let media_size = self.0.borrow().bytes.len() as u64;
        Shape { media_size, sector_size: 512, stripe_size: 0, stripe_offset: 0 }
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        let serial = self.0.borrow().serial.clone();
        if serial.is_empty() { vec![] } else { vec![("ident", serial)] }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlockError> {
        self.verdict(Operation::Read, offset, to.len() as u64)?;
        to.copy_from_slice(&self.0.borrow().bytes[offset as usize..][..to.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlockError> {
        self.verdict(Operation::Write, offset, from.len() as u64)?;
        self.0.borrow_mut().put(offset as usize, from);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BlockError> {
        self.verdict(Operation::Flush, 0, 0)
    }
}

#[derive(Debug)]
struct Random(XorShift64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        (self.0.bits() >> 16) % bound.max(1)
    }
}

/// A lane that performs its requests when it is polled, in any order.
#[derive(Debug)]
struct Queue {
    disk: Disk,
    memory: DmaRegion,
    geometry: BlockGeometry,
    waiting: Vec<Request>,
    issued: Vec<Request>,
    random: Random,
}

impl Queue {
    fn new(disk: &Disk, memory: &DmaRegion, depth: u32, seed: u64) -> Self {
        let geometry = BlockGeometry {
            block_size: 512,
            blocks: disk.0.borrow().bytes.len() as u64 / 512,
            transfer_max: 1 << 20,
            segments: SegmentLimits::NONE,
            queue_depth: depth,
            can_delete: true,
            read_only: false,
            crypto: false,
        };
        let (waiting, issued) = (vec![], vec![]);
        Self {
            disk: disk.clone(),
            memory: memory.clone(),
            geometry,
            waiting,
            issued,
            random: Random(XorShift64::from_state(seed | 1)),
        }
    }

    fn work(&self, request: &Request) -> Result<(), BlockError> {
        let Request { operation, offset, length, .. } = *request;
        self.disk.verdict(operation, offset, length)?;
        let mut content = self.disk.0.borrow_mut();
        let name = match operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Delete => "delete",
            Operation::Flush => "flush",
        };
        *content.counts.entry(name).or_default() += 1;
        let mut at = offset as usize;
        for range in request.data.ranges(&self.memory) {
            let range = range.map_err(BlockError::BadData)?;
            let there = self.memory.offset_of(range.address, range.len as usize).unwrap();
            let len = range.len as usize;
            if operation == Operation::Read {
                self.memory.write(there, &content.bytes[at..][..len]);
            } else {
                let mut bytes = vec![0; len];
                self.memory.read(there, &mut bytes);
                content.put(at, &bytes);
            }
            at += len;
        }
        if operation == Operation::Delete {
            content.put(at, &vec![0; length as usize]);
        }
        if operation == Operation::Write && request.force_unit_access {
            content.force(offset as usize, length as usize);
            *content.counts.entry("forced").or_default() += 1;
        }
        Ok(())
    }
}

impl BlockDevice for Queue {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn submit(&mut self, request: &Request, _: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        if self.waiting.len() + self.issued.len() >= self.geometry.queue_depth as usize {
            return Err(Refused::Full);
        }
        self.waiting.push(*request);
        Ok(())
    }

    fn ring(&mut self, _: Instant) {
        self.issued.append(&mut self.waiting);
    }

    fn poll(&mut self, _: Instant) -> Option<Completion> {
        if self.issued.is_empty() || self.random.below(4) == 0 {
            return None;
        }
        let at = self.random.below(self.issued.len() as u64) as usize;
        let request = self.issued.swap_remove(at);
        let Request { token, accepted, .. } = request;
        let passage = Passage { accepted, issued: NOW, device_done: None, seen: NOW };
        Some(Completion { token, result: self.work(&request), passage })
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

/// A graph over disks, with their lanes.
struct Bench {
    graph: Graph,
    disks: BTreeMap<ProviderId, Disk>,
    memory: DmaRegion,
    depth: u32,
    seed: u64,
}

const BASE: u64 = 0x4000_0000;

impl Bench {
    fn new(count: usize, depth: u32, seed: u64) -> Self {
        Self::over((0..count).map(|_| (MIB, "")), (depth, seed))
    }

    /// Disks with these sizes in bytes and serial numbers.
    fn over(disks: impl Iterator<Item = (u64, &'static str)>, how: (u32, u64)) -> Self {
        let contents = disks.enumerate().map(|(number, (size, serial))| {
            let serial =
                if serial.is_empty() { String::new() } else { format!("{serial}{number}") };
            Content { bytes: vec![0; size as usize], serial, ..Content::default() }
        });
        let contents = contents.map(|content| Rc::new(RefCell::new(content)));
        Self::with(contents.map(|content| Disk::new(&content)), how)
    }

    /// Several paths to one disk.
    fn paths(count: usize, how: (u32, u64)) -> Self {
        let content = Content { bytes: vec![0; MIB as usize], ..Content::default() };
        let content = Rc::new(RefCell::new(content));
        Self::with((0..count).map(|_| Disk::new(&content)), how)
    }

    fn with(disks: impl Iterator<Item = Disk>, (depth, seed): (u32, u64)) -> Self {
        let mut graph = Graph::new(&crate::all(), seed);
        let insert = |(number, disk): (usize, Disk)| {
            let name = format!("d{number}");
            let id = MD.insert(&mut graph, &name, Box::new(disk.clone())).unwrap();
            (id, disk)
        };
        let disks = disks.enumerate().map(insert).collect();
        graph.settle();
        Self { graph, disks, memory: DmaRegion::zeroed(4 << 20, BASE), depth, seed }
    }

    fn under(&self) -> Vec<ProviderId> {
        self.disks.keys().copied().collect()
    }

    fn disk(&self, number: usize) -> RefMut<'_, Content> {
        self.disks.values().nth(number).unwrap().0.borrow_mut()
    }

    fn way(&mut self, name: &str) -> (ConsumerId, Way<Queue>) {
        let provider = self.graph.provider(name).unwrap();
        let open = self.graph.open(provider, Access::READ.and(Access::ALONE)).unwrap();
        let plan = Plan::new(&mut self.graph, open).unwrap();
        let way = Way::new(plan, self.lanes()).unwrap();
        (open, way)
    }

    fn lanes(&self) -> impl FnMut(ProviderId) -> Option<Queue> {
        let (disks, memory) = (self.disks.clone(), self.memory.clone());
        let (depth, seed) = (self.depth, self.seed);
        move |id| {
            let seed = seed.wrapping_mul(77).wrapping_add(u64::from(id.number()) * 31 + 1);
            Some(Queue::new(disks.get(&id)?, &memory, depth, seed))
        }
    }

    /// Does what an owner does when a component has failed.
    fn heed(&mut self, open: ConsumerId, way: &mut Way<Queue>) -> Vec<Completion> {
        let (mut lost, mut done) = (vec![], vec![]);
        while let Some(incident) = way.incident() {
            if let Incident::Lost { consumer, error } = incident {
                lost.push((consumer, error));
            }
        }
        if lost.is_empty() {
            return done;
        }
        way.pause();
        while !way.is_quiet() {
            way.ring(NOW);
            done.extend(way.poll(NOW));
        }
        for (consumer, error) in lost {
            self.graph.failed(consumer, error);
        }
        let plan = Plan::new(&mut self.graph, open).unwrap();
        let lanes = self.lanes();
        way.change(plan, lanes).unwrap();
        done
    }
}

fn request(operation: Operation, offset: u64, length: u64, token: u64) -> Request {
    let len = match operation {
        Operation::Read | Operation::Write => length as u32,
        _ => 0,
    };
    Request {
        operation,
        force_unit_access: false,
        offset,
        length,
        data: Data::One(DmaSlice { address: BASE, len }),
        crypto: None,
        token,
        accepted: NOW,
    }
}

/// Polls until that many completions have come.
fn wait(way: &mut Way<Queue>, count: usize) -> Vec<Completion> {
    let mut all = vec![];
    way.ring(NOW);
    for _ in 0..10_000 {
        all.extend(way.poll(NOW));
        if all.len() == count {
            break;
        }
    }
    assert_eq!(all.len(), count, "requests end");
    all
}

/// Layouts: the name, the number of disks, and the provider on top.
const LAYOUTS: [(&str, usize, &str); 15] = [
    ("part on label", 1, "label/homep1"),
    ("stripe", 3, "stripe/st"),
    ("concat", 3, "concat/co"),
    ("mirror load", 2, "mirror/gm"),
    ("mirror split", 3, "mirror/gm"),
    ("part on stripe of mirrors", 4, "stripe/stp1"),
    ("mirror of stripes", 4, "mirror/gm"),
    ("nop", 1, "d0.nop"),
    ("nop that waits", 1, "d0.nop"),
    ("paths", 3, "multipath/mp"),
    ("paths, one active", 2, "multipath/mp"),
    ("mirror of nops that wait", 2, "mirror/gm"),
    ("RAID0", 2, "raid/r0"),
    ("RAID1", 2, "raid/r0"),
    ("RAID10", 4, "raid/r0"),
];

fn bench_of(layout: &str, count: usize, how: (u32, u64)) -> Bench {
    if layout.starts_with("RAID") {
        return Bench::over((0..count).map(|_| (5 * MIB, "SN")), how);
    }
    if layout.starts_with("paths") {
        return Bench::paths(count, how);
    }
    Bench::new(count, how.0, how.1)
}

fn a_raid(graph: &mut Graph, level: &str, under: &[ProviderId]) {
    let options = raid::RaidOptions { name: "v", level, size: Some(MIB), strip: 4096 };
    raid::label(graph, "Intel", under, (&options, false)).unwrap();
    graph.settle();
}

fn a_nop_that_waits(graph: &mut Graph, under: ProviderId) -> ProviderId {
    let waits = nop::NopOptions { read_delays: 30, write_delays: 30, ..nop::NopOptions::default() };
    nop::create(graph, under, nop::NopOptions { delay_millis: 0, ..waits }).unwrap()
}

fn one_partition(graph: &mut Graph, on: &str) {
    let on = graph.provider(on).unwrap();
    let made = (part::Scheme::Gpt, None);
    let table = part::create(graph, on, made, part::Flags::default()).unwrap();
    let (start, size, alignment, index, label) = (None, None, None, None, None);
    let data = part::Add { kind: "linux-data".into(), start, size, alignment, index, label };
    part::add(graph, table, &data, part::Flags::default()).unwrap();
}

fn a_stripe(graph: &mut Graph, under: &[ProviderId]) {
    let options = stripe::StripeOptions { stripe_size: 4096, ..stripe::StripeOptions::default() };
    stripe::label(graph, "st", under, &options).unwrap();
}

fn a_mirror(graph: &mut Graph, name: &str, under: &[ProviderId], balance: Balance) {
    // The component above also has its metadata at the end.
    let options = mirror::MirrorOptions {
        balance,
        slice: 2048,
        hardcode: true,
        ..mirror::MirrorOptions::default()
    };
    mirror::label(graph, name, under, &options).unwrap();
}

fn build(bench: &mut Bench, layout: &str) {
    let under = bench.under();
    let graph = &mut bench.graph;
    let found = |graph: &Graph, name: &str| graph.provider(name).unwrap();
    match layout {
        "part on label" => {
            label::label(graph, "home", under[0], false).unwrap();
            one_partition(graph, "label/home");
        }
        "stripe" => a_stripe(graph, &under),
        "concat" => {
            concat::label(graph, "co", &under, &concat::ConcatOptions::default()).unwrap();
        }
        "mirror load" => a_mirror(graph, "gm", &under, Balance::Load),
        "mirror split" => a_mirror(graph, "gm", &under, Balance::Split),
        "part on stripe of mirrors" => {
            a_mirror(graph, "m0", &under[..2], Balance::RoundRobin);
            a_mirror(graph, "m1", &under[2..], Balance::Prefer);
            let both = [found(graph, "mirror/m0"), found(graph, "mirror/m1")];
            a_stripe(graph, &both);
            one_partition(graph, "stripe/st");
        }
        "mirror of stripes" => {
            let options =
                stripe::StripeOptions { stripe_size: 8192, ..stripe::StripeOptions::default() };
            stripe::label(graph, "a", &under[..2], &options).unwrap();
            stripe::label(graph, "b", &under[2..], &options).unwrap();
            let both = [found(graph, "stripe/a"), found(graph, "stripe/b")];
            a_mirror(graph, "gm", &both, Balance::RoundRobin);
        }
        "nop" => {
            let options = nop::NopOptions { offset: 4096, ..nop::NopOptions::default() };
            nop::create(graph, under[0], options).unwrap();
        }
        "nop that waits" => _ = a_nop_that_waits(graph, under[0]),
        "mirror of nops that wait" => {
            let both: Vec<_> = under.iter().map(|&it| a_nop_that_waits(graph, it)).collect();
            a_mirror(graph, "gm", &both, Balance::RoundRobin);
        }
        "paths" => {
            multipath::label(graph, "mp", &under, (Mode::ActiveActive, false)).unwrap();
        }
        "paths, one active" => {
            multipath::label(graph, "mp", &under, (Mode::ActivePassive, false)).unwrap();
        }
        raid => a_raid(graph, raid, &under),
    }
}

/// Random requests, several at a time, none of them overlapping: reads return what was written, the
/// graph reads the same afterwards, and everything was counted.
#[test]
fn every_layout_does_what_one_disk_does() {
    for (at, (layout, disks, top)) in LAYOUTS.into_iter().enumerate() {
        for depth in [1, 2, 32] {
            let mut bench = bench_of(layout, disks, (depth, at as u64 * 100 + u64::from(depth)));
            build(&mut bench, layout);
            let (open, way) = bench.way(top);
            same_as_one_disk(&mut bench, (open, way), &format!("{layout}, depth {depth}"));
        }
    }
}

/// A request in flight, and the data it must read.
struct Sent {
    request: Request,
    wanted: Vec<u8>,
}

fn same_as_one_disk(bench: &mut Bench, (open, mut way): (ConsumerId, Way<Queue>), text: &str) {
    let size = way.geometry().bytes();
    let mut model = vec![0; size as usize];
    bench.graph.io(open, Io::Read { offset: 0, to: &mut model }).unwrap();
    let mut random = Random(XorShift64::from_state(size + 7));
    let mut sent: BTreeMap<u64, Sent> = BTreeMap::new();
    let (mut taken, mut given, mut counts) = (0_u64, 0, [0_u64; 4]);
    while given < 600 {
        if taken < 600 && sent.len() < 40 && random.below(3) > 0 {
            // Some tokens look like those of jobs.
            let token = taken | if random.below(4) == 0 { OWN } else { 0 };
            if let Some(one) = random_request(bench, &mut random, (size, token), &sent, &mut model)
            {
                match way.submit(&one.request, NOW) {
                    Ok(()) => {
                        counts[one.request.operation as usize] += 1;
                        if one.request.operation == Operation::Write {
                            let at = one.request.offset as usize;
                            model[at..at + one.wanted.len()].copy_from_slice(&one.wanted);
                        }
                        if one.request.operation == Operation::Delete {
                            let at = one.request.offset as usize;
                            model[at..at + one.request.length as usize].fill(0);
                        }
                        sent.insert(token, one);
                        taken += 1;
                    }
                    Err(Refused::Full) => assert!(!sent.is_empty(), "{text}: room for one"),
                    Err(Refused::Invalid(error)) => panic!("{text}: {error}"),
                }
            }
        }
        way.ring(NOW);
        if let Some(completion) = way.poll(NOW) {
            let one = sent.remove(&completion.token).expect("each comes back once");
            assert_eq!(completion.result, Ok(()), "{text}: {:?}", one.request);
            given += 1;
            if one.request.operation == Operation::Read {
                let mut bytes = vec![];
                for range in one.request.data.ranges(&bench.memory) {
                    let range = range.unwrap();
                    let mut part = vec![0; range.len as usize];
                    let at = bench.memory.offset_of(range.address, part.len()).unwrap();
                    bench.memory.read(at, &mut part);
                    bytes.extend(part);
                }
                assert!(bytes == one.wanted, "{text}: {:?}", one.request);
            }
        }
    }
    assert!(way.is_quiet() && way.incident().is_none() && way.poll(NOW).is_none());
    let mut back = vec![0; model.len()];
    bench.graph.io(open, Io::Read { offset: 0, to: &mut back }).unwrap();
    assert!(back == model, "{text}: the graph sees the same");
    let top = bench.graph[open].provider.unwrap();
    let before = bench.graph[top].statistics;
    let (plan, lanes) = way.into_parts();
    plan.account(&mut bench.graph);
    let after = bench.graph[top].statistics;
    assert_eq!(after.reads - before.reads, counts[0], "{text}");
    assert_eq!(after.writes - before.writes, counts[1], "{text}");
    assert_eq!((after.flushes, after.deletes), (counts[2], counts[3]), "{text}");
    let below: u64 = lanes.iter().map(|(disk, _)| bench.graph[*disk].statistics.writes).sum();
    assert!(below >= counts[1], "{text}: {below} writes of disks");
}

/// A request that does not overlap those in flight; its data is in memory of its own.
fn random_request(
    bench: &Bench,
    random: &mut Random,
    (size, token): (u64, u64),
    sent: &BTreeMap<u64, Sent>,
    model: &mut [u8],
) -> Option<Sent> {
    let operation = match random.below(20) {
        0..10 => Operation::Read,
        10..18 => Operation::Write,
        18 => Operation::Flush,
        _ => Operation::Delete,
    };
    let mut one = request(operation, 0, 0, token);
    let slot =
        (0..64).find(|slot| sent.values().all(|other| other.request.accepted.nanos() != *slot))?;
    one.accepted = Instant::from_nanos(slot);
    if operation == Operation::Flush {
        return Some(Sent { request: one, wanted: vec![] });
    }
    let most = if random.below(3) == 0 { 64 } else { 8 };
    one.length = (512 * (1 + random.below(most))).min(size);
    one.offset = random.below(size / 512 - one.length / 512 + 1) * 512;
    let overlaps = |other: &Sent| {
        let other = &other.request;
        other.offset < one.offset + one.length && one.offset < other.offset + other.length
    };
    if sent.values().any(overlaps) {
        return None;
    }
    let at = one.offset as usize..(one.offset + one.length) as usize;
    let mut wanted = model[at].to_vec();
    let memory = slot as usize * 65536;
    if operation == Operation::Delete {
        return Some(Sent { request: one, wanted: vec![] });
    }
    if operation == Operation::Write {
        wanted.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
        bench.memory.write(memory, &wanted);
    }
    let len = one.length as u32;
    one.data = match random.below(2) {
        0 => Data::One(bench.memory.slice(memory, len)),
        _ => {
            let first = random.below(u64::from(len)) as u32;
            let rest = bench.memory.slice(memory + first as usize, len - first);
            let segments = [bench.memory.slice(memory, first), rest];
            let used = if first == 0 { &segments[1..] } else { &segments[..] };
            Data::list(&bench.memory, memory + 60000, used).unwrap()
        }
    };
    Some(Sent { request: one, wanted })
}

fn mirrored(balance: Balance) -> (Bench, ConsumerId, Way<Queue>) {
    let mut bench = Bench::new(2, 8, 3);
    let under = bench.under();
    a_mirror(&mut bench.graph, "gm", &under, balance);
    let (open, way) = bench.way("mirror/gm");
    (bench, open, way)
}

#[test]
fn what_one_half_cannot_read_the_other_mends() {
    let (bench, _, mut way) = mirrored(Balance::None);
    for number in 0..2 {
        bench.disk(number).bytes[8192..12288].fill(7);
    }
    bench.disk(0).bad.push((Operation::Read, 9000));
    bench.disk(0).heals = true;
    bench.disk(0).bytes[9000] = 0;
    way.submit(&request(Operation::Read, 8192, 4096, 1), NOW).unwrap();
    assert_eq!(wait(&mut way, 1)[0].result, Ok(()));
    let mut bytes = [0; 4096];
    bench.memory.read(0, &mut bytes);
    assert_eq!(bytes, [7; 4096]);
    let mended = way.incident();
    assert!(matches!(mended, Some(Incident::Mended { offset: 8192, length: 4096, .. })));
    assert_eq!((bench.disk(0).bytes[9000], way.incident()), (7, None));
}

/// A change that arrives during a repair waits, and takes effect last.
#[test]
fn a_change_is_not_undone_by_mending() {
    for trial in 0..160 {
        // Even one that was in flight already when the read failed.
        let order = trial % 8;
        let (mut bench, _, _) = mirrored(Balance::None);
        bench.seed = trial;
        let mirror = bench.graph.provider("mirror/gm").unwrap();
        for consumer in bench.graph[mirror].consumers.clone() {
            bench.graph.shut(consumer);
        }
        let (_, mut way) = bench.way("mirror/gm");
        bench.disk(0).bad.push((Operation::Read, 0));
        bench.disk(0).heals = true;
        way.submit(&request(Operation::Read, 0, 4096, 1), NOW).unwrap();
        let mut write = request(Operation::Write, 0, 4096, 2);
        write.data = Data::One(bench.memory.slice(8192, 4096));
        bench.memory.fill(8192, 4096, 9);
        let mut ended = 0;
        let mut is_sent = false;
        for step in 0..300 {
            if step >= order && !is_sent {
                is_sent = way.submit(&write, NOW).is_ok();
            }
            way.ring(NOW);
            ended += way.poll(NOW).iter().len();
        }
        assert_eq!((ended, way.is_quiet()), (2, true));
        for number in 0..2 {
            assert_eq!(bench.disk(number).bytes[..4096], [9; 4096], "{trial}: half {number}");
        }
    }
}

#[test]
fn a_write_that_one_half_missed_is_told_when_the_other_says_so() {
    for error in [BAD, BlockError::Gone] {
        let (mut bench, open, mut way) = mirrored(Balance::RoundRobin);
        bench.disk(1).bad.push((Operation::Write, 4096));
        bench.disk(1).is_gone = error == BlockError::Gone;
        way.submit(&request(Operation::Write, 4096, 4096, 5), NOW).unwrap();
        way.ring(NOW);
        for _ in 0..100 {
            assert_eq!(way.poll(NOW), None, "{error}: not before the graph knows");
        }
        // A later one is missed, too.
        way.submit(&request(Operation::Write, 0, 512, 6), NOW).unwrap();
        way.submit(&request(Operation::Read, 0, 512, 7), NOW).unwrap();
        assert_eq!(wait(&mut way, 1)[0].token, 7, "reads go on");
        let before = bench.disk(0).bytes[MIB as usize - 512..].to_vec();
        assert_eq!(bench.heed(open, &mut way), []);
        assert_ne!(bench.disk(0).bytes[MIB as usize - 512..], before, "the other half says so");
        let mut tokens: Vec<u64> = wait(&mut way, 2).iter().map(|done| done.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [5, 6], "{error}");
        // The failed one is no longer read.
        bench.disk(1).bad.clear();
        let reads = bench.disk(1).counts.get("read").copied();
        for token in 0..10 {
            way.submit(&request(Operation::Read, 4096, 512, token), NOW).unwrap();
            wait(&mut way, 1);
        }
        assert_eq!(bench.disk(1).counts.get("read").copied(), reads);
    }
}

#[test]
fn the_last_half_never_drops_out() {
    let (bench, _, mut way) = mirrored(Balance::Load);
    for number in 0..2 {
        bench.disk(number).bad.extend([(Operation::Write, 0), (Operation::Read, 0)]);
    }
    for operation in [Operation::Write, Operation::Read] {
        way.submit(&request(operation, 0, 512, 1), NOW).unwrap();
        assert_eq!(wait(&mut way, 1)[0].result, Err(BAD));
    }
    assert_eq!(way.incident(), None);
    way.submit(&request(Operation::Write, 512, 512, 1), NOW).unwrap();
    assert_eq!(wait(&mut way, 1)[0].result, Ok(()));
}

/// Two writes in flight, each missed by a different half: one of them was lost.
#[test]
fn halves_that_fail_in_turn_lose_no_write_that_was_told() {
    let (mut bench, open, mut way) = mirrored(Balance::Load);
    bench.disk(0).bad.push((Operation::Write, 0));
    bench.disk(1).bad.push((Operation::Write, 4096));
    way.submit(&request(Operation::Write, 0, 512, 1), NOW).unwrap();
    way.submit(&request(Operation::Write, 4096, 512, 2), NOW).unwrap();
    let told = wait(&mut way, 1);
    assert_eq!(told[0].result, Err(BAD), "the half that did it is out");
    assert_eq!(bench.heed(open, &mut way), []);
    assert_eq!(wait(&mut way, 1)[0].result, Ok(()));
}

#[test]
fn ways_are_refused_with_a_word() {
    let mut bench = Bench::new(1, 4, 9);
    let under = bench.under();
    let magic = crate::own_class::MAGIC;
    bench.disk(0).bytes[MIB as usize - 512..][..magic.len()].copy_from_slice(magic);
    bench.graph.register(&crate::own_class::INVERT);
    bench.graph.settle();
    let down = bench.graph.provider("invert/down").unwrap();
    let open = bench.graph.open(down, Access::READ).unwrap();
    let error = Plan::new(&mut bench.graph, open).unwrap_err();
    assert_eq!(format!("{error}"), "invert/down: class INVERT does one request at a time");
    bench.graph.shut(open);
    let open = bench.graph.open(under[0], Access::READ).unwrap();
    let plan = Plan::new(&mut bench.graph, open).unwrap();
    assert!(Way::<Queue>::new(plan.clone(), |_| None).is_err());
    let lanes = bench.lanes();
    let mut way = Way::new(plan, lanes).unwrap();
    let write = way.submit(&request(Operation::Write, 0, 512, 0), NOW);
    assert_eq!(write, Err(Refused::Invalid(BlockError::WriteProtected)), "opened for reading");
    let beyond = way.submit(&request(Operation::Read, MIB, 512, 0), NOW);
    assert_eq!(beyond, Err(Refused::Invalid(BlockError::OutOfRange)));
}

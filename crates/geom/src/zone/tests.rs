//! Zone commands: who may send them, what they affect, and which answers are accepted.

use alloc::boxed::Box;
use alloc::vec;
use std::cell::RefCell;
use std::rc::Rc;
use std::{assert_eq, matches, panic};

use flysch_api::block::Cause;

use super::*;
use crate::class::disk::{DISK, Memory, set_zones};
use crate::class::{label, nop, part};
use crate::{Access, ConsumerId, Graph, ProviderId, all};

/// Sectors per zone.
const LENGTH: u64 = 16;
/// Zones of the disk: more than one answer holds.
const ZONES: u64 = 5000;

/// Write pointers relative to the start of each zone, and how a false disk changes its reports.
#[derive(Debug, Default)]
struct State {
    written: vec::Vec<u64>,
    lie: Option<fn(&mut ZoneReport)>,
}

/// Zones with only the conditions empty, closed and full.
#[derive(Debug)]
struct Zoned(Rc<RefCell<State>>);

impl Zones for Zoned {
    fn zone(&mut self, command: Zone) -> Result<ZoneAnswer, BlockError> {
        let mut state = self.0.borrow_mut();
        match command {
            Zone::Report { start, filter, most } => {
                let all = state.written.iter().enumerate().skip((start / LENGTH) as usize);
                let all = all.map(|(at, &written)| entry(at as u64 * LENGTH, written));
                let meant = |zone: &ZoneEntry| match filter {
                    ZoneFilter::All => true,
                    ZoneFilter::In(condition) => zone.condition == condition,
                    ZoneFilter::ResetNeeded | ZoneFilter::NonSequential => false,
                };
                let all: vec::Vec<_> = all.filter(meant).collect();
                let (available, last_sector) = (all.len() as u64, ZONES * LENGTH - 1);
                let zones = all.into_iter().take(most as usize).collect();
                let same = ZoneSame::All;
                let mut report = ZoneReport { available, last_sector, same, zones };
                if let Some(lie) = state.lie {
                    lie(&mut report);
                }
                Ok(ZoneAnswer::Report(report))
            }
            Zone::Parameters => Err(BlockError::Unsupported),
            Zone::Manage(action, target) => {
                let to = match action {
                    ZoneAction::Finish => LENGTH,
                    ZoneAction::Reset => 0,
                    ZoneAction::Open | ZoneAction::Close => return Ok(ZoneAnswer::Done),
                };
                match target {
                    ZoneTarget::All => state.written.fill(to),
                    ZoneTarget::At(sector) if sector % LENGTH == 0 => {
                        state.written[(sector / LENGTH) as usize] = to;
                    }
                    ZoneTarget::At(_) => return Err(BlockError::Device(Cause::None)),
                }
                Ok(ZoneAnswer::Done)
            }
        }
    }
}

fn entry(start: u64, written: u64) -> ZoneEntry {
    ZoneEntry {
        start,
        length: LENGTH,
        capacity: LENGTH,
        write_pointer: (written < LENGTH).then_some(start + written),
        kind: ZoneType::SequentialRequired,
        condition: match written {
            0 => ZoneCondition::Empty,
            LENGTH => ZoneCondition::Full,
            _ => ZoneCondition::Closed,
        },
        reset_needed: false,
        non_sequential: false,
    }
}

fn zoned() -> (Graph, ProviderId, Rc<RefCell<State>>) {
    let state = State { written: vec![0; ZONES as usize], lie: None };
    let state = Rc::new(RefCell::new(state));
    let memory = Memory::new((ZONES * LENGTH * 512) as usize);
    let mut graph = Graph::new(&all(), 1);
    let disk = DISK.insert(&mut graph, "nda0", Box::new(memory)).unwrap();
    set_zones(&mut graph, disk, Box::new(Zoned(Rc::clone(&state))));
    graph.settle();
    (graph, disk, state)
}

fn report(start: u64, filter: ZoneFilter, most: u32) -> Zone {
    Zone::Report { start, filter, most }
}

fn reported(graph: &mut Graph, consumer: ConsumerId, command: Zone) -> ZoneReport {
    match graph.zone(consumer, command) {
        Ok(ZoneAnswer::Report(report)) => report,
        other => panic!("{other:?}"),
    }
}

const RESET: Zone = Zone::Manage(ZoneAction::Reset, ZoneTarget::All);
const FULL: ZoneFilter = ZoneFilter::In(ZoneCondition::Full);

#[test]
fn reports_are_bounded_and_go_on_behind_the_last_zone() {
    let (mut graph, disk, _) = zoned();
    let open = graph.open(disk, Access::READ).unwrap();
    let (mut start, mut seen) = (0, 0);
    while start < ZONES * LENGTH {
        let it = reported(&mut graph, open, report(start, ZoneFilter::All, u32::MAX));
        assert_eq!(it.available, ZONES - seen);
        assert_eq!(it.zones.len() as u64, u64::from(ZONES_MAX).min(ZONES - seen));
        seen += it.zones.len() as u64;
        start = it.zones.last().map(|zone| zone.start + zone.length).unwrap();
    }
    assert_eq!(seen, ZONES);
    // From the middle of a zone: that zone is the first.
    let it = reported(&mut graph, open, report(LENGTH + 3, ZoneFilter::All, 1));
    assert_eq!((it.available, it.zones[..].first().unwrap().start), (ZONES - 1, LENGTH));
    let none = reported(&mut graph, open, report(0, ZoneFilter::All, 0));
    assert_eq!((none.available, none.zones.len()), (ZONES, 0));
    assert_eq!(graph[disk].statistics.zone_commands, 4);
}

#[test]
fn zones_are_changed_by_writers_inside_the_disk() {
    let (mut graph, disk, _) = zoned();
    let finish = |sector| Zone::Manage(ZoneAction::Finish, ZoneTarget::At(sector));
    let reader = graph.open(disk, Access::READ).unwrap();
    assert_eq!(graph.zone(reader, finish(0)), Err(BlockError::WriteProtected), "open for reading");
    let writer = graph.open(disk, Access::new(0, 1, 0)).unwrap();
    let all = report(0, ZoneFilter::All, 1);
    assert_eq!(graph.zone(writer, all), Err(BlockError::WriteProtected), "open for writing alone");
    assert_eq!(graph.zone(writer, finish(LENGTH)), Ok(ZoneAnswer::Done));
    assert_eq!(graph.zone(writer, finish(ZONES * LENGTH)), Err(BlockError::OutOfRange));
    assert_eq!(graph.zone(writer, finish(u64::MAX)), Err(BlockError::OutOfRange));
    assert_eq!(graph.zone(writer, finish(1)), Err(BlockError::Device(Cause::None)));
    let behind = report(ZONES * LENGTH, ZoneFilter::All, 1);
    assert_eq!(graph.zone(reader, behind), Err(BlockError::OutOfRange));
    let full = reported(&mut graph, reader, report(0, FULL, 9));
    assert_eq!((full.available, &full.zones[..]), (1, &[entry(LENGTH, LENGTH)][..]));
    assert_eq!(graph.zone(writer, RESET), Ok(ZoneAnswer::Done));
    assert_eq!(reported(&mut graph, reader, report(0, FULL, 9)).available, 0);
    // Commands that succeeded are counted, and those that failed on the disk.
    let told = graph[writer].statistics;
    assert_eq!((told.zone_commands, told.failures), (2, 1));
    crate::class::disk::remove(&mut graph, disk);
    assert_eq!(graph.zone(reader, all), Err(BlockError::Gone));
}

#[test]
fn lies_of_a_disk_do_not_go_round_in_circles() {
    let (mut graph, disk, state) = zoned();
    let open = graph.open(disk, Access::READ).unwrap();
    let lies: [fn(&mut ZoneReport); 6] = [
        |it| it.zones[1].start = 0,
        |it| it.zones[0].length = 0,
        |it| it.zones[2].length = u64::MAX,
        |it| it.zones.reverse(),
        |it| it.zones.push(entry(64 * LENGTH, 0)),
        |it| it.available = 1,
    ];
    for (at, lie) in lies.into_iter().enumerate() {
        state.borrow_mut().lie = Some(lie);
        let told = graph.zone(open, report(0, ZoneFilter::All, 4));
        assert_eq!(told, Err(BlockError::Device(Cause::None)), "lie {at}");
    }
    state.borrow_mut().lie = None;
    assert_eq!(reported(&mut graph, open, report(0, ZoneFilter::All, 4)).zones.len(), 4);
}

#[test]
fn only_the_whole_disk_has_zones() {
    let (mut graph, disk, _) = zoned();
    let ask = |graph: &mut Graph, provider| {
        let open = graph.open(provider, Access::READ).unwrap();
        let told = graph.zone(open, report(0, ZoneFilter::All, 1));
        graph.shut(open);
        told.map(|answer| matches!(answer, ZoneAnswer::Report(_)))
    };
    let whole = nop::create(&mut graph, disk, nop::NopOptions::default()).unwrap();
    assert_eq!(ask(&mut graph, whole), Ok(true));
    // Commands passed on are counted on the way, too.
    assert_eq!(graph[disk].statistics.zone_commands, 1);
    assert_eq!(graph[whole].statistics.zone_commands, 1);
    let name = Some("part".into());
    let options = nop::NopOptions { offset: 512, name, ..nop::NopOptions::default() };
    let behind = nop::create(&mut graph, disk, options).unwrap();
    assert_eq!(ask(&mut graph, behind), Err(BlockError::Unsupported));
    let options = nop::NopOptions {
        sector_size: 4096,
        name: Some("wide".into()),
        ..nop::NopOptions::default()
    };
    let wide = nop::create(&mut graph, disk, options).unwrap();
    assert_eq!(ask(&mut graph, wide), Err(BlockError::Unsupported), "other sectors");
    label::create(&mut graph, "all", whole).unwrap();
    let label = graph.provider("label/all").unwrap();
    assert_eq!(ask(&mut graph, label), Ok(true));
    let mut graph = zoned().0;
    let disk = graph.provider("nda0").unwrap();
    let table = (part::Scheme::Gpt, None);
    let table = part::create(&mut graph, disk, table, part::Flags::default()).unwrap();
    let kind = "linux-data".into();
    let (start, size, alignment, index, label) = (None, None, None, None, None);
    let add = part::Add { kind, start, size, alignment, index, label };
    part::add(&mut graph, table, &add, part::Flags::default()).unwrap();
    let part = graph.provider("nda0p1").unwrap();
    assert_eq!(ask(&mut graph, part), Err(BlockError::Unsupported), "a partition");
    let plain = Box::new(Memory::new(1 << 20));
    let plain = DISK.insert(&mut graph, "da0", plain).unwrap();
    graph.settle();
    assert_eq!(ask(&mut graph, plain), Err(BlockError::Unsupported), "a disk without zones");
}

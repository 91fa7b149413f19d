//! Power that goes after every sector that a verb writes.

use std::prelude::rust_2024::*;
use std::{assert, assert_eq, format, panic};

use super::tests::{
    MIB, Platter, copies, graph_of, labelled, options, pattern, platters, read, told, told_of,
    under, write,
};
use super::*;

/// What is to be seen of an array: its volumes, and how their members take part.
fn seen(disks: &[Platter]) -> String {
    let graph = graph_of(disks);
    let mut seen = String::new();
    for (geom, _) in graph.geoms_of("RAID") {
        for &provider in &graph[geom].providers {
            let told = |key| told(&graph, Object::Provider(provider), key);
            let (name, state, parts) = (told("Label"), told("State"), told("Subdisks"));
            seen += &format!("{name} {state}: {parts}\n");
        }
    }
    seen
}

/// A verb, what it is done on, and how many states there are on its way.
type Verb = (&'static str, fn(&mut Graph) -> Result<(), Error>);

fn geom(graph: &Graph) -> Result<GeomId, Error> {
    let first = graph.geoms_of("RAID").next().map(|(id, _)| id);
    first.ok_or_else(|| Error::not_found("RAID", "geom"))
}

const VERBS: [Verb; 9] = [
    ("label", |graph| {
        let disks = under(graph, 2);
        let size = Some(MIB);
        let options = Options { size, ..options("vol", "RAID1") };
        label(graph, "Intel", &disks, (&options, false)).map(drop)
    }),
    ("add", |graph| {
        let geom = geom(graph)?;
        add(graph, geom, &options("fast", "RAID0"))
    }),
    ("delete one", |graph| {
        let geom = geom(graph)?;
        delete(graph, geom, Some("fast"), false)
    }),
    ("fail", |graph| {
        let geom = geom(graph)?;
        fail(graph, geom, &["d1"])
    }),
    ("insert", |graph| {
        let geom = geom(graph)?;
        let third = graph.provider("d2")?;
        insert(graph, geom, &[third], false)
    }),
    ("rebuild", |graph| {
        let geom = geom(graph)?;
        rebuild(graph, geom, CHECKPOINT, &mut |_, _| {}).map(drop)
    }),
    ("add another", |graph| {
        let geom = geom(graph)?;
        let options = Options { size: Some(MIB), ..options("more", "RAID1") };
        add(graph, geom, &options)
    }),
    ("remove", |graph| {
        let geom = geom(graph)?;
        remove(graph, geom, &["d0"])
    }),
    ("delete all", |graph| {
        let geom = geom(graph)?;
        delete(graph, geom, None, false)
    }),
];

#[test]
fn power_lost_between_any_two_sectors_leaves_the_old_or_the_new() {
    let mut disks = platters(3, 8 * MIB);
    let mut cuts = 0;
    for (name, verb) in VERBS {
        let old = seen(&copies(&disks));
        let whole = copies(&disks);
        let done = verb(&mut graph_of(&whole));
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
        let new = seen(&copies(&whole));
        assert!(old != new, "{name}: {old}");
        // While a member is rebuilt it is neither away nor there.
        let between = old.replace("(NEW)", "(REBUILD 0%)");
        for left in 0.. {
            let cut = copies(&disks);
            let mut graph = graph_of(&cut);
            cut[0].power.set(Some(left));
            let is_done = verb(&mut graph).is_ok();
            drop(graph);
            let after = copies(&cut);
            let state = seen(&after);
            let is_known = state == old || state == new || name == "rebuild" && state == between;
            assert!(is_known, "{name} cut after {left}:\n{state}old:\n{old}new:\n{new}");
            cuts += 1;
            if is_done {
                assert_eq!(state, new, "{name}");
                break;
            }
        }
        disks = whole;
    }
    assert!(cuts > 60, "{cuts}");
}

#[test]
fn contents_are_equal_after_rebuilds_that_were_cut() {
    let disks = platters(4, 8 * MIB);
    let (mut graph, geom) = labelled(&disks[..2], "RAID1", Some(2 * MIB));
    let data = pattern(21, 2 * MIB as usize);
    write(&mut graph, "raid/r0", 0, &data).unwrap();
    remove(&mut graph, geom, &["d1"]).unwrap();
    drop(graph);
    let whole = [disks[0].clone(), disks[2].clone()];
    for left in (0..5000).step_by(97) {
        let cut = copies(&whole);
        let mut graph = graph_of(&cut);
        let geom = graph.geoms_of("RAID").next().unwrap().0;
        cut[0].power.set(Some(left));
        let blank = graph.provider("d1").unwrap();
        let _ = insert(&mut graph, geom, &[blank], false)
            .and_then(|()| rebuild(&mut graph, geom, MIB, &mut |_, _| {}));
        drop(graph);
        let again = copies(&cut);
        let mut graph = graph_of(&again);
        let geom = graph.geoms_of("RAID").next().unwrap().0;
        assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data, "{left}");
        if told_of(&graph, "raid/r0", "Subdisks").contains("NONE") {
            let blank = graph.provider("d1").unwrap();
            insert(&mut graph, geom, &[blank], false).unwrap();
        }
        rebuild(&mut graph, geom, MIB, &mut |_, _| {}).unwrap();
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
        for sector in 0..2 * MIB / 512 {
            assert_eq!(again[0].sector(sector), again[1].sector(sector), "{left}");
        }
    }
}

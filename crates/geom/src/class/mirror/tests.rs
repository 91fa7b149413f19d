use alloc::boxed::Box;
use std::prelude::rust_2024::*;
use std::{assert, assert_eq, format, vec};

use flysch_api::block::BlockError as IoError;

use super::*;
use crate::all;
use crate::class::disk::{MD, Memory};
use crate::class::nop;
use flysch_wire::geom::mirror::Balance;

const SIZE: usize = 256 << 10;

/// Disks `md0` and so on, each under a NOP.
fn nops(count: usize) -> (Graph, Vec<ProviderId>) {
    let mut graph = Graph::new(&all(), 5);
    let mut nops = Vec::new();
    for number in 0..count {
        let memory = Box::new(Memory::new(SIZE + 512 * number));
        let disk = MD.insert(&mut graph, &format!("md{number}"), memory).unwrap();
        graph.settle();
        nops.push(nop::create(&mut graph, disk, nop::NopOptions::default()).unwrap());
    }
    (graph, nops)
}

/// The names are recorded because the disks below the NOPs end with the same sector.
fn mirror(balance: Balance, count: usize) -> (Graph, GeomId) {
    let (mut graph, under) = nops(count);
    let options = MirrorOptions { balance, hardcode: true, ..MirrorOptions::default() };
    label(&mut graph, "gm", &under, &options).unwrap();
    let geom = graph.geom("MIRROR", "gm").unwrap();
    (graph, geom)
}

fn told(graph: &Graph, object: Object, name: &str) -> String {
    let config = MIRROR.config(graph, object);
    config.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value).unwrap_or_default()
}

fn write(graph: &mut Graph, offset: u64, byte: u8, len: usize) -> Result<(), IoError> {
    let provider = graph.provider("mirror/gm").unwrap();
    let open = graph.open(provider, Access::ALONE).unwrap();
    let done = graph.io(open, Io::Write { offset, from: &vec![byte; len] });
    graph.shut(open);
    graph.settle();
    done
}

fn read(graph: &mut Graph, offset: u64, len: usize) -> Result<Vec<u8>, IoError> {
    let provider = graph.provider("mirror/gm").map_err(|_| IoError::Gone)?;
    let open = graph.open(provider, Access::READ).unwrap();
    let mut bytes = vec![0; len];
    let done = graph.io(open, Io::Read { offset, to: &mut bytes });
    graph.shut(open);
    graph.settle();
    done.map(|()| bytes)
}

fn fail(graph: &mut Graph, number: usize, change: impl FnOnce(&mut nop::NopOptions)) {
    let geom = graph.geom("NOP", &format!("md{number}.nop")).unwrap();
    nop::configure(graph, geom, change).unwrap();
}

#[test]
fn every_balance_reads_what_was_written_whole_and_degraded() {
    for balance in Balance::ALL {
        let (mut graph, geom) = mirror(*balance, 3);
        let provider = graph.provider("mirror/gm").unwrap();
        // The smallest component without its last sector.
        assert_eq!(graph[provider].media_size, SIZE as u64 - 512);
        write(&mut graph, 512, 0x5A, 65536).unwrap();
        assert_eq!(read(&mut graph, 0, 66048).unwrap()[512..], [0x5A; 65536][..]);
        remove(&mut graph, geom, "md0.nop").unwrap();
        assert_eq!(read(&mut graph, 512, 65536).unwrap(), [0x5A; 65536]);
        assert_eq!(told(&graph, Object::Geom(geom), "State"), "COMPLETE");
        assert_eq!(told(&graph, Object::Geom(geom), "Components"), "2");
        remove(&mut graph, geom, "md1.nop").unwrap();
        assert_eq!(read(&mut graph, 512, 65536).unwrap(), [0x5A; 65536]);
        assert_eq!(remove(&mut graph, geom, "md2.nop").unwrap_err().kind, Kind::Busy);
    }
}

#[test]
fn a_component_that_fails_stays_out_and_raises_the_generation() {
    for reads in [true, false] {
        let (mut graph, geom) = mirror(Balance::None, 2);
        fail(&mut graph, 0, |options| match reads {
            true => options.read_failures = 100,
            false => options.write_failures = 100,
        });
        match reads {
            true => drop(read(&mut graph, 0, 4096).unwrap()),
            false => write(&mut graph, 0, 1, 4096).unwrap(),
        }
        assert_eq!(told(&graph, Object::Geom(geom), "State"), "DEGRADED", "{reads}");
        assert!(told(&graph, Object::Geom(geom), "GenID").parse::<u32>().unwrap() > 0);
        // Not even when it works again.
        fail(&mut graph, 0, |options| {
            (options.read_failures, options.write_failures) = (0, 0);
        });
        let provider = graph.provider("md0.nop").unwrap();
        graph.retaste(provider).unwrap();
        graph.settle();
        assert_eq!(told(&graph, Object::Geom(geom), "State"), "DEGRADED");
        let refused =
            graph.record.verdicts().find(|v| v.class == "MIRROR" && v.provider == "md0.nop");
        assert!(refused.unwrap().taste.reason().text.contains("failed once"), "{refused:?}");
        // It returns as a new component.
        forget(&mut graph, geom).unwrap();
        clear(&mut graph, provider).unwrap();
        insert(&mut graph, geom, &[provider], (0, true, false)).unwrap();
        assert_eq!(synchronize(&mut graph, geom, &mut |_, _| {}).unwrap(), 1);
        assert_eq!(told(&graph, Object::Geom(geom), "State"), "COMPLETE");
    }
}

#[test]
fn a_component_that_is_gone_comes_back_and_is_rebuilt() {
    let (mut graph, geom) = mirror(Balance::None, 2);
    let sync = |graph: &Graph| told(graph, Object::Geom(geom), "SyncID");
    fail(&mut graph, 0, |options| {
        options.write_failures = 100;
        options.error = IoError::Gone;
    });
    // The write that discovers the fault is done by the other component.
    write(&mut graph, 0, 1, 4096).unwrap();
    assert_eq!(told(&graph, Object::Geom(geom), "GenID"), "0");
    fail(&mut graph, 0, |options| options.write_failures = 0);
    write(&mut graph, 4096, 2, 4096).unwrap();
    assert!(sync(&graph).parse::<u32>().unwrap() > 1, "raised by the first write without it");
    let provider = graph.provider("md0.nop").unwrap();
    if graph[provider].access == Access::NONE {
        graph.retaste(provider).unwrap();
        graph.settle();
    }
    let found = graph[geom].consumers.iter().find(|&&c| graph[c].provider == Some(provider));
    assert_eq!(told(&graph, Object::Consumer(*found.unwrap()), "State"), "SYNCHRONIZING");
    synchronize(&mut graph, geom, &mut |_, _| {}).unwrap();
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "COMPLETE");
    let mut bytes = [0; 8192];
    let disk = graph.provider("md0").unwrap();
    graph.peek(disk, 0, &mut bytes).unwrap();
    assert!(bytes[..4096] == [1; 4096] && bytes[4096..] == [2; 4096]);
}

/// Each half was written while the other was missing: only one of them is trusted.
#[test]
fn halves_that_were_written_apart_are_not_taken_for_equal() {
    let bytes = |graph: &mut Graph, name: &str| {
        let provider = graph.provider(name).unwrap();
        let mut bytes = vec![0; graph[provider].media_size as usize];
        graph.peek(provider, 0, &mut bytes).unwrap();
        bytes
    };
    let with = |seed: u64, halves: &[(&str, &[u8])]| {
        let mut graph = Graph::new(&all(), seed);
        for (name, bytes) in halves {
            let disk = MD.insert(&mut graph, name, Box::new(Memory::new(bytes.len()))).unwrap();
            let open = graph.open(disk, Access::ALONE).unwrap();
            graph.io(open, Io::Write { offset: 0, from: bytes }).unwrap();
            graph.shut(open);
        }
        graph.settle();
        graph
    };
    for seed in 1..20 {
        let mut graph = with(seed, &[("a", &[0; SIZE]), ("b", &[0; SIZE])]);
        let under = ["a", "b"].map(|name| graph.provider(name).unwrap());
        label(&mut graph, "gm", &under, &MirrorOptions::default()).unwrap();
        write(&mut graph, 0, 1, 8192).unwrap();
        let [mut a, mut b] = ["a", "b"].map(|name| bytes(&mut graph, name));
        for (name, half, byte) in [("a", &mut a, 2), ("b", &mut b, 3)] {
            let mut graph = with(seed * 100 + u64::from(byte), &[(name, half)]);
            write(&mut graph, 0, byte, 8192).unwrap();
            *half = bytes(&mut graph, name);
        }
        let mut graph = with(seed, &[("a", &a), ("b", &b)]);
        let geom = graph.geom("MIRROR", "gm").unwrap();
        assert_eq!(told(&graph, Object::Geom(geom), "State"), "DEGRADED");
        let first = read(&mut graph, 0, 4096).unwrap();
        for offset in [0, 4096, 0, 4096] {
            assert_eq!(read(&mut graph, offset, 4096).unwrap(), first);
        }
    }
}

#[test]
fn what_cannot_be_read_once_is_mended_from_the_other_half() {
    let (mut graph, geom) = mirror(Balance::None, 2);
    write(&mut graph, 0, 7, 4096).unwrap();
    // One read fails; the sector can be written, and then read.
    let nop = graph.geom("NOP", "md0.nop").unwrap();
    nop::configure(&mut graph, nop, |options| {
        (options.read_failures, options.fail_only) = (100, Some(1));
    })
    .unwrap();
    assert_eq!(read(&mut graph, 0, 4096).unwrap(), [7; 4096]);
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "COMPLETE");
    assert!(graph.record.messages().any(|line| line.contains("were mended")));
}

#[test]
fn the_last_copy_is_never_given_up() {
    let (mut graph, geom) = mirror(Balance::RoundRobin, 2);
    for number in [0, 1] {
        fail(&mut graph, number, |options| options.read_failures = 100);
    }
    assert!(read(&mut graph, 0, 4096).is_err());
    assert_eq!(told(&graph, Object::Geom(geom), "Components"), "2");
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "COMPLETE");
}

#[test]
fn deactivated_components_wait() {
    let (mut graph, geom) = mirror(Balance::Load, 2);
    deactivate(&mut graph, geom, "md1.nop").unwrap();
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "DEGRADED");
    write(&mut graph, 0, 3, 512).unwrap();
    let provider = graph.provider("md1.nop").unwrap();
    activate(&mut graph, geom, provider).unwrap();
    assert_eq!(synchronize(&mut graph, geom, &mut |_, _| {}).unwrap(), 1);
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "COMPLETE");
    rebuild(&mut graph, geom, "md1.nop").unwrap();
    assert_eq!(synchronize(&mut graph, geom, &mut |_, _| {}).unwrap(), 1);
    destroy(&mut graph, geom, false).unwrap();
    assert!(graph.objects().geoms_of("MIRROR").next().is_none());
    assert!(graph.provider("mirror/gm").is_err());
}

/// Contents of the disks below, as a power cut leaves them.
fn images(graph: &mut Graph, count: usize) -> Vec<Vec<u8>> {
    let of = |number| {
        let provider = graph.provider(&format!("md{number}")).unwrap();
        let mut copy = vec![0; graph[provider].media_size as usize];
        graph.peek(provider, 0, &mut copy).unwrap();
        copy
    };
    (0..count).map(of).collect()
}

#[test]
fn unclean_halves_are_made_equal() {
    let (mut graph, under) = nops(2);
    let options = MirrorOptions { balance: Balance::RoundRobin, ..MirrorOptions::default() };
    label(&mut graph, "gm", &under, &options).unwrap();
    let provider = graph.provider("mirror/gm").unwrap();
    let open = graph.open(provider, Access::ALONE).unwrap();
    graph.io(open, Io::Write { offset: 0, from: &[9; 512] }).unwrap();
    let mut images = images(&mut graph, 2);
    // Power fails after one half was written and before the other was.
    images[0][0] = 1;
    let mut graph = Graph::new(&all(), 6);
    for (number, bytes) in images.into_iter().enumerate() {
        let memory = Memory { bytes, ..Memory::new(0) };
        MD.insert(&mut graph, &format!("md{number}"), Box::new(memory)).unwrap();
    }
    graph.settle();
    let geom = graph.geom("MIRROR", "gm").unwrap();
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "DEGRADED");
    // All reads trust the one with the highest priority.
    assert_eq!(read(&mut graph, 0, 512).unwrap(), [9; 512]);
    assert_eq!(synchronize(&mut graph, geom, &mut |_, _| {}).unwrap(), 1);
    for _ in 0..2 {
        assert_eq!(read(&mut graph, 0, 512).unwrap(), [9; 512]);
    }
}

#[test]
fn a_mirror_gets_another_size_and_what_it_gains_is_equal() {
    let (mut graph, under) = nops(2);
    let small = MirrorOptions { hardcode: true, ..MirrorOptions::default() };
    label(&mut graph, "gm", &under, &small).unwrap();
    let geom = graph.geom("MIRROR", "gm").unwrap();
    let provider = graph.provider("mirror/gm").unwrap();
    let whole = graph[provider].media_size;
    resize(&mut graph, geom, Some(whole / 2)).unwrap();
    let half = whole / 2 / 512 * 512;
    assert_eq!(graph[provider].media_size, half);
    assert!(read(&mut graph, half, 512).is_err());
    // The data after its end differs: it must not once that is inside again.
    for (number, &nop) in under.iter().enumerate() {
        let sector = [number as u8 + 1; 512];
        let consumer = graph[graph[nop].geom].consumers[0];
        graph.io(consumer, Io::Write { offset: half, from: &sector }).unwrap();
    }
    grown(&mut graph, half, whole);
}

fn grown(graph: &mut Graph, half: u64, whole: u64) {
    let geom = graph.geom("MIRROR", "gm").unwrap();
    let too_much = resize(graph, geom, Some(1 << 30)).unwrap_err();
    assert_eq!(too_much.kind, Kind::NoSpace);
    let provider = graph.provider("mirror/gm").unwrap();
    let open = graph.open(provider, Access::READ).unwrap();
    assert_eq!(resize(graph, geom, None).unwrap_err().kind, Kind::Busy);
    graph.shut(open);
    resize(graph, geom, None).unwrap();
    assert_eq!(graph[provider].media_size, whole);
    let first = read(graph, half, 512).unwrap();
    for _ in 0..4 {
        assert_eq!(read(graph, half, 512).unwrap(), first);
    }
}

#[test]
fn a_spare_waits_until_a_component_is_away() {
    let (mut graph, under) = nops(3);
    let options = MirrorOptions { hardcode: true, ..MirrorOptions::default() };
    label(&mut graph, "gm", &under[..2], &options).unwrap();
    let geom = graph.geom("MIRROR", "gm").unwrap();
    write(&mut graph, 0, 7, 4096).unwrap();
    spare(&mut graph, geom, &under[2..], (0, true, false)).unwrap();
    assert_eq!(take_spares(&mut graph, geom).unwrap(), 0, "nobody is away");
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "COMPLETE");
    fail(&mut graph, 0, |options| options.write_failures = 100);
    write(&mut graph, 0, 8, 4096).unwrap();
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "DEGRADED");
    assert_eq!(take_spares(&mut graph, geom).unwrap(), 1);
    assert_eq!(synchronize(&mut graph, geom, &mut |_, _| {}).unwrap(), 1);
    assert_eq!(told(&graph, Object::Geom(geom), "State"), "COMPLETE");
    assert_eq!(take_spares(&mut graph, geom).unwrap(), 0);
    let mut bytes = [0; 4096];
    let disk = graph.provider("md2").unwrap();
    graph.peek(disk, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [8; 4096]);
}

use alloc::boxed::Box;
use std::prelude::rust_2024::*;
use std::{assert, assert_eq};

use super::*;
use crate::all;
use crate::class::disk::{MD, Memory};
use crate::class::nop;

fn told(graph: &Graph, geom: GeomId, name: &str) -> String {
    let config = CACHE.config(graph, Object::Geom(geom));
    config.into_iter().find(|(key, _)| *key == name).unwrap().1
}

fn read(graph: &mut Graph, offset: u64, len: usize) -> Result<Vec<u8>, block::BlockError> {
    let open = graph.open(graph.provider("cache/c").unwrap(), Access::READ).unwrap();
    let mut bytes = vec![0; len];
    let done = graph.io(open, Io::Read { offset, to: &mut bytes });
    graph.shut(open);
    done.map(|()| bytes)
}

#[test]
fn what_was_read_is_not_read_again_until_it_is_written() {
    let mut graph = Graph::new(&all(), 1);
    let size = 1 << 20;
    let memory =
        Memory { bytes: (0..size).map(|at| (at / 4096) as u8).collect(), ..Memory::new(0) };
    let disk = MD.insert(&mut graph, "md0", Box::new(memory)).unwrap();
    graph.settle();
    let options = CacheOptions { block_size: 4096, size: 100 };
    label(&mut graph, "c", disk, (options, false)).unwrap();
    let geom = graph.geom("CACHE", "c").unwrap();
    let whole = graph.provider("cache/c").unwrap();
    assert_eq!(graph[whole].media_size, size as u64 - 512);
    assert_eq!(told(&graph, geom, "TailOffset"), (size - 4096).to_string());
    // Tasting has read some blocks already.
    reset(&mut graph, geom);
    let reads = |graph: &Graph| graph[disk].statistics.reads;
    let before = reads(&graph);
    for _ in 0..3 {
        // Across the boundary of a block, and within one.
        let edge = read(&mut graph, 51 * 4096 - 512, 1024).unwrap();
        assert_eq!(edge[510..514], [50, 50, 51, 51]);
        assert_eq!(read(&mut graph, 51 * 4096, 512).unwrap(), [51; 512]);
    }
    assert_eq!(reads(&graph) - before, 2);
    assert_eq!(
        (told(&graph, geom, "CacheHits"), told(&graph, geom, "CacheMisses")),
        ("7".into(), "2".into())
    );
    let open = graph.open(whole, Access::ALONE).unwrap();
    graph.io(open, Io::Write { offset: 51 * 4096, from: &[9; 512] }).unwrap();
    graph.shut(open);
    assert_eq!(read(&mut graph, 51 * 4096, 512).unwrap(), [9; 512]);
    // More than two blocks, and what follows the last whole one, pass through.
    let misses = told(&graph, geom, "CacheMisses");
    read(&mut graph, 0, 65536).unwrap();
    read(&mut graph, size as u64 - 1024, 512).unwrap();
    assert_eq!(told(&graph, geom, "CacheMisses"), misses);
    // The oldest blocks are evicted when there is no room.
    for block in 0..150 {
        read(&mut graph, block * 4096, 512).unwrap();
    }
    assert_eq!(told(&graph, geom, "UsedEntries"), "100");
    assert_eq!(read(&mut graph, 149 * 4096, 512).unwrap(), [149; 512]);
    reset(&mut graph, geom);
    assert_eq!(told(&graph, geom, "Reads"), "0");
    configure(&mut graph, geom, CacheOptions { block_size: 8192, size: 200 }).unwrap();
    assert_eq!(told(&graph, geom, "UsedEntries"), "0");
    assert_eq!(read(&mut graph, 8192, 512).unwrap(), [2; 512]);
    let wrong = configure(&mut graph, geom, CacheOptions { block_size: 3000, size: 100 });
    assert_eq!(wrong.unwrap_err().kind, Kind::Invalid);
    crate::class::destroy(&mut graph, geom, false).unwrap();
    crate::class::clear(&mut graph, "CACHE", disk).unwrap();
    assert!(graph.provider("cache/c").is_err());
}

#[test]
fn a_bad_sector_beside_what_is_wanted_does_no_harm() {
    let mut graph = Graph::new(&all(), 1);
    let disk = MD.insert(&mut graph, "md0", Box::new(Memory::new(1 << 20))).unwrap();
    graph.settle();
    let under = nop::create(&mut graph, disk, nop::NopOptions::default()).unwrap();
    create(&mut graph, "c", under, CacheOptions::default()).unwrap();
    let nop = graph.geom("NOP", "md0.nop").unwrap();
    // One read fails: the one of the block.
    let fail = |options: &mut nop::NopOptions| {
        (options.read_failures, options.fail_only) = (100, Some(1));
    };
    nop::configure(&mut graph, nop, fail).unwrap();
    // A place that tasting does not read.
    let at = 11 << 16;
    assert_eq!(read(&mut graph, at, 512).unwrap(), [0; 512]);
    nop::configure(&mut graph, nop, |options| options.fail_only = None).unwrap();
    assert!(read(&mut graph, at + (1 << 16), 512).is_err());
}

//! Access rules between two users of a disk.

use alloc::boxed::Box;

use super::*;
use crate::class::disk::{MD, Memory};

fn graph() -> (Graph, ProviderId) {
    let mut graph = Graph::new(&[], 1);
    let disk = MD.insert(&mut graph, "md0", Box::new(Memory::new(1 << 16))).unwrap();
    (graph, disk)
}

#[test]
fn writers_and_those_who_exclude_them_do_not_meet() {
    let counts = [0, 1].iter().flat_map(|read| [(*read, 0, 0), (*read, 1, 0), (*read, 0, 1)]);
    let all: Vec<Access> = counts
        .chain([(0, 1, 1), (1, 1, 1)])
        .map(|(read, write, exclusive)| Access::new(read, write, exclusive))
        .filter(|access| *access != Access::NONE)
        .collect();
    for &first in &all {
        for &second in &all {
            let (mut graph, disk) = graph();
            let open = graph.open(disk, first).unwrap();
            let meet = first.write > 0 && second.exclusive > 0;
            let meet = meet || (first.exclusive > 0 && second.write > 0);
            match graph.open(disk, second) {
                Ok(other) => {
                    assert!(!meet, "{first} and {second}");
                    assert_eq!(graph[disk].access, first.and(second));
                    graph.shut(other);
                }
                Err(error) => {
                    assert!(meet, "{first} and {second}: {error}");
                    assert_eq!(error.kind, Kind::NotPermitted);
                    assert!(error.cause.contains("DEV md0"), "{error}");
                }
            }
            assert_eq!(graph[disk].access, first);
            graph.shut(open);
            assert_eq!(graph[disk].access, Access::NONE);
        }
    }
}

#[test]
fn a_first_writer_spoils_the_others_and_nobody_who_is_spoiled_opens() {
    let (mut graph, disk) = graph();
    let reader = graph.open(disk, Access::READ).unwrap();
    let writer = graph.open(disk, Access::new(0, 1, 0)).unwrap();
    assert!(graph[reader].spoiled && !graph[writer].spoiled);
    let error = graph.access(reader, Access::READ).unwrap_err();
    assert_eq!(error.kind, Kind::NotPermitted);
    graph.close(reader);
    assert_eq!(graph[reader].access, Access::NONE, "closing does not fail");
    // DEV has tasted nothing: it may continue.
    graph.settle();
    assert!(!graph[reader].spoiled);
    graph.access(reader, Access::READ).unwrap();
}

//! DDF arrays made by this crate.

use super::*;

const SIZE: u64 = 72 * MIB;

#[test]
fn every_level_holds_what_was_written_where_it_belongs() {
    for (level, count, whole) in [
        ("RAID0", 3, 6 * MIB),
        ("RAID1", 2, 2 * MIB),
        ("RAID1", 3, 2 * MIB),
        ("RAID10", 4, 4 * MIB),
    ] {
        let disks = platters(count, SIZE);
        let (mut graph, geom) = labelled_as("DDF", &disks, level, Some(2 * MIB));
        let data = pattern(7, whole as usize);
        write(&mut graph, "raid/r0", 0, &data).unwrap();
        assert!(graph[geom].name.starts_with("DDF-"));
        for (number, strip) in data.chunks(64 << 10).enumerate() {
            let places: Vec<(usize, usize)> = match level {
                "RAID0" => vec![(number % 3, number / 3)],
                "RAID1" => (0..count).map(|disk| (disk, number)).collect(),
                _ => vec![(number % 2 * 2, number / 2), (number % 2 * 2 + 1, number / 2)],
            };
            for (disk, row) in places {
                assert_eq!(disks[disk].sector(row as u64 * 128)[..], strip[..512], "{level}");
            }
        }
        let mut graph = graph_of(&copies(&disks));
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
        assert_eq!(told_of(&graph, "raid/r0", "Dirty"), "No");
        assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
        if level == "RAID0" {
            continue;
        }
        // Without a disk, written without it, and with it again.
        let last = count - 1;
        let mut graph = graph_of(&disks[..last]);
        assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED");
        MD.insert(&mut graph, &format!("d{last}"), Box::new(disks[last].clone())).unwrap();
        graph.settle();
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL", "it missed nothing");
        let mut graph = graph_of(&disks[..last]);
        let data = pattern(9, whole as usize);
        write(&mut graph, "raid/r0", 0, &data).unwrap();
        let mut graph = graph_of(&disks);
        let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
        assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED");
        for _ in 0..4 {
            assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data, "no stale half");
        }
        assert_eq!(rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).unwrap(), 1);
        let mut graph = graph_of(&copies(&disks));
        assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
        for _ in 0..4 {
            assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
        }
    }
}

#[test]
fn volumes_lie_behind_each_other_and_go_one_by_one() {
    let disks = platters(2, SIZE);
    let (mut graph, geom) = labelled_as("DDF", &disks, "RAID1", Some(2 * MIB));
    add(&mut graph, geom, &options("fast", "RAID0")).unwrap();
    write(&mut graph, "raid/r0", 0, &[1; 4096]).unwrap();
    write(&mut graph, "raid/r1", 0, &[2; 4096]).unwrap();
    let mut graph = graph_of(&copies(&disks));
    assert_eq!(read(&mut graph, "raid/r0", 0, 512).unwrap(), [1; 512]);
    assert_eq!(read(&mut graph, "raid/r1", 0, 512).unwrap(), [2; 512]);
    let fast = graph.provider("raid/r1").unwrap();
    assert_eq!(graph[fast].media_size, 2 * (SIZE - 32 * MIB - 2 * MIB));
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    let error = add(&mut graph, geom, &options("more", "RAID0")).unwrap_err();
    assert_eq!(error.kind, Kind::NoSpace);
    delete(&mut graph, geom, Some("vol"), false).unwrap();
    assert!(graph.provider("raid/r0").is_err() && graph.provider("raid/r1").is_ok());
    delete(&mut graph, geom, None, false).unwrap();
}

/// A spare of Intel's format belongs to any array, a spare of DDF to its own.
#[test]
fn a_spare_takes_the_place_of_a_disk_that_failed_or_is_away() {
    for format in ["Intel", "DDF"] {
        for is_away in [false, true] {
            let disks = platters(3, SIZE);
            let (mut graph, geom) = labelled_as(format, &disks[..2], "RAID1", Some(2 * MIB));
            let data = pattern(3, 2 * MIB as usize);
            write(&mut graph, "raid/r0", 0, &data).unwrap();
            MD.insert(&mut graph, "d2", Box::new(disks[2].clone())).unwrap();
            graph.settle();
            let spare = graph.provider("d2").unwrap();
            insert(&mut graph, geom, &[spare], false).unwrap();
            assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
            assert_eq!(rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).unwrap(), 0);
            let there =
                if is_away { vec![disks[1].clone(), disks[2].clone()] } else { disks.clone() };
            let mut graph = graph_of(&there);
            let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
            if !is_away {
                fail(&mut graph, geom, &["d0"]).unwrap();
            }
            assert_eq!(told_of(&graph, "raid/r0", "State"), "DEGRADED", "{format}");
            assert_eq!(
                rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).unwrap(),
                1,
                "{format}"
            );
            assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
            let mut graph = graph_of(&copies(&disks[1..]));
            assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL", "{format}");
            assert!(read(&mut graph, "raid/r0", 0, data.len()).unwrap() == data);
            for sector in 0..2 * MIB / 512 {
                assert_eq!(disks[1].sector(sector), disks[2].sector(sector));
            }
            // The other one is never read again.
            let graph = graph_of(&copies(&disks));
            let parts = told_of(&graph, "raid/r0", "Subdisks");
            assert!(parts.contains("d1 (ACTIVE)") && parts.contains("d2 (ACTIVE)"), "{parts}");
        }
    }
}

#[test]
fn what_cannot_be_made_is_refused() {
    let disks = platters(3, SIZE);
    let mut graph = graph_of(&disks);
    let three = under(&graph, 3);
    for (level, wanted) in
        [("RAID10", "cannot have 3 disks"), ("RAID5", "not a level that can be made")]
    {
        let error = label(&mut graph, "DDF", &three, (&options("v", level), false)).unwrap_err();
        assert!(error.cause.contains(wanted), "{error}");
    }
    let small = platters(2, 40 * MIB);
    let mut graph = graph_of(&small);
    let two = under(&graph, 2);
    let error = label(&mut graph, "DDF", &two, (&options("v", "RAID1"), false)).unwrap_err();
    assert_eq!(error.kind, Kind::NoSpace);
    assert!(small[0].content.borrow().sectors.is_empty());
}

#[test]
fn an_array_whose_metadata_could_lie_among_data_is_only_read() {
    let disks = platters(2, SIZE);
    drop(labelled_as("DDF", &disks, "RAID1", Some(2 * MIB)));
    // The header of one disk places the second copy where the volume is; it is not found there.
    let last = SIZE / 512 - 1;
    for at in [last, (SIZE - 16 * MIB) / 512] {
        let mut content = disks[1].content.borrow_mut();
        let sector = content.sectors.get_mut(&at).unwrap();
        sector[104..112].copy_from_slice(&64_u64.to_be_bytes());
        sector[4..8].fill(0xFF);
        let sum = crc32fast::hash(sector);
        sector[4..8].copy_from_slice(&sum.to_be_bytes());
    }
    let before = disks[1].content.borrow().sectors.clone();
    let mut graph = graph_of(&disks);
    assert_eq!(told_of(&graph, "raid/r0", "State"), "OPTIMAL");
    assert_eq!(read(&mut graph, "raid/r0", 0, 512).unwrap(), [0; 512]);
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    let error = fail(&mut graph, geom, &["d0"]).unwrap_err();
    assert!(error.cause.contains("where data could be"), "{error}");
    let provider = graph.provider("raid/r0").unwrap();
    assert!(graph.open(provider, Access::ALONE).is_err());
    assert!(disks[1].content.borrow().sectors == before);
}

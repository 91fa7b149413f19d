//! The order in which writes reach the media: power fails after every sector written, and the
//! disks' write caches lose everything, nothing, all but metadata, or all but data.

use super::*;
use flysch_wire::geom::mirror::Balance;

use crate::class::mirror;

/// Bytes that are checked; after them there is only metadata.
const LENGTH: u64 = 4096;
/// Size of mirrors, so that a rebuild takes a moment.
const SIZE: u64 = 8 << 10;

/// Which of the sectors in a disk's write cache reach its medium: by the kind of loss and whether
/// the sector holds data.
const LOSSES: [fn(bool) -> bool; 4] = [|_| false, |_| true, |is_data| !is_data, |is_data| is_data];

/// What is done with equal copies.
type Deed = fn(&mut Graph, &[Platter], &str) -> Option<()>;

fn open(graph: &mut Graph, top: &str) -> Option<ConsumerId> {
    let provider = graph.provider(top).ok()?;
    graph.open(provider, Access::ALONE).ok()
}

/// Opens, writes and closes it.
fn written(graph: &mut Graph, _: &[Platter], top: &str) -> Option<()> {
    let open = open(graph, top)?;
    let _ = graph.io(open, Io::Write { offset: 512, from: &[9; 512] });
    graph.shut(open);
    graph.settle();
    Some(())
}

/// Rebuilds everything that needs it.
fn rebuilt(graph: &mut Graph, _: &[Platter], top: &str) -> Option<()> {
    let geom = graph[graph.provider(top).ok()?].geom;
    match graph[geom].class.name() {
        "MIRROR" => mirror::synchronize(graph, geom, &mut |_, _| {}).ok().map(drop),
        _ => rebuild(graph, geom, CHECKPOINT, &mut |_, _| {}).ok().map(drop),
    }
}

/// All but the first return while it is written; they are rebuilt, and written.
fn written_when_others_are_back(graph: &mut Graph, disks: &[Platter], top: &str) -> Option<()> {
    for number in 1..disks.len() {
        let disk = graph.provider(&format!("d{number}")).ok()?;
        disk::remove(graph, disk);
    }
    let open = open(graph, top)?;
    let _ = graph.io(open, Io::Write { offset: 0, from: &[8; 512] });
    for (number, disk) in disks.iter().enumerate().skip(1) {
        MD.insert(graph, &format!("d{number}"), Box::new(disk.clone())).ok()?;
    }
    graph.settle();
    rebuilt(graph, disks, top)?;
    let _ = graph.io(open, Io::Write { offset: 0, from: &[9; 512] });
    Some(())
}

/// Disks with write caches, and what is built on them: GEOM mirrors, Intel and DDF arrays.
fn made(kind: &str, count: usize) -> (Vec<Platter>, &'static str) {
    let size = match kind {
        "mirror" => SIZE + 512,
        "DDF" => 65 * MIB,
        _ => 5 * MIB,
    };
    let disks = platters(count, size);
    let top = if kind == "mirror" {
        let mut graph = graph_of(&disks);
        let under = under(&graph, count);
        let options = mirror::MirrorOptions {
            balance: Balance::RoundRobin,
            ..mirror::MirrorOptions::default()
        };
        mirror::label(&mut graph, "gm", &under, &options).unwrap();
        "mirror/gm"
    } else {
        let (mut graph, geom) = labelled_as(kind, &disks, "RAID1", Some(MIB));
        rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).unwrap();
        "raid/r0"
    };
    write(&mut graph_of(&disks), top, 0, &[5; LENGTH as usize]).unwrap();
    (disks, top)
}

/// Copies with empty write caches.
fn cached(disks: &[Platter]) -> Vec<Platter> {
    let disks = copies(disks);
    for disk in &disks {
        let mut content = disk.content.borrow_mut();
        content.durable = Some(content.sectors.clone());
    }
    disks
}

/// The state after power returns, with the loss chosen for each disk.
fn after(disks: &[Platter], mut losses: usize) -> Vec<Platter> {
    let disks = copies(disks);
    for disk in &disks {
        let mut content = disk.content.borrow_mut();
        let is_kept = LOSSES[losses % LOSSES.len()];
        losses /= LOSSES.len();
        let mut sectors = content.durable.take().unwrap();
        for (number, sector) in core::mem::take(&mut content.cache) {
            if is_kept(number < SIZE / SECTOR) {
                sectors.insert(number, sector);
            }
        }
        content.sectors = sectors;
    }
    disks
}

/// Runs a deed with a power cut after every sector, and reads what remains as often as there are
/// copies. Returns every content that was seen.
fn seen(kind: &str, disks: &[Platter], top: &str, deed: Deed) -> Vec<Vec<u8>> {
    let whole = cached(disks);
    whole[0].power.set(Some(u64::MAX));
    deed(&mut graph_of(&whole), &whole, top).unwrap();
    let sectors = u64::MAX - whole[0].power.get().unwrap();
    let mut all = vec![];
    // In the middle of a copy nothing else happens.
    for cut in (0..=sectors).filter(|cut| *cut < 40 || cut + 40 > sectors) {
        let cached = cached(disks);
        cached[0].power.set(Some(cut));
        let _ = deed(&mut graph_of(&cached), &cached, top);
        for losses in 0..LOSSES.len().pow(disks.len() as u32) {
            let mut graph = graph_of(&after(&cached, losses));
            let shown: Vec<_> = (0..2 * disks.len())
                .map(|_| read(&mut graph, top, 0, LENGTH as usize).unwrap())
                .collect();
            let is_one = shown.iter().all(|it| *it == shown[0]);
            assert!(is_one, "{kind}: cut after {cut} of {sectors}, losses {losses}");
            all.push(shown.into_iter().next().unwrap());
        }
    }
    assert!(sectors > 2, "{kind}: {sectors}");
    all
}

#[test]
fn copies_that_are_written_say_so_first_and_are_equal_before_they_say_it() {
    for kind in ["mirror", "Intel", "DDF"] {
        let (disks, top) = made(kind, 2);
        seen(kind, &disks, top, written);
    }
}

#[test]
fn who_is_rebuilt_says_so_when_it_is() {
    for kind in ["mirror", "Intel", "DDF"] {
        let (disks, top) = made(kind, 2);
        let new = [6; LENGTH as usize];
        write(&mut graph_of(&disks[..1]), top, 0, &new).unwrap();
        for shown in seen(kind, &disks, top, rebuilt) {
            assert_eq!(shown, new, "{kind}");
        }
    }
}

/// Two of three return while the first one is written: with the next write they may differ, too.
#[test]
fn who_comes_back_while_it_is_written_is_marked_as_the_others_are() {
    let (disks, top) = made("mirror", 3);
    seen("mirror", &disks, top, written_when_others_are_back);
}

/// A disk newer than the array running without it is neither taken for stale nor overwritten.
#[test]
fn who_is_newer_than_the_array_that_runs_is_refused() {
    let (disks, top) = made("Intel", 2);
    for byte in [6, 7] {
        write(&mut graph_of(&disks[1..]), top, 0, &[byte; LENGTH as usize]).unwrap();
    }
    let mut graph = graph_of(&disks[..1]);
    MD.insert(&mut graph, "d1", Box::new(disks[1].clone())).unwrap();
    graph.settle();
    for _ in 0..3 {
        assert_eq!(read(&mut graph, top, 0, 512).unwrap(), [5; 512]);
    }
    assert!(verdict(&graph, "d1").contains("newer on this disk"), "{}", verdict(&graph, "d1"));
    let geom = graph.objects().geoms_of("RAID").next().unwrap().0;
    assert_eq!(rebuild(&mut graph, geom, CHECKPOINT, &mut |_, _| {}).unwrap(), 0);
    assert_eq!(read(&mut graph_of(&disks), top, 0, 512).unwrap(), [7; 512]);
}

/// An older disk is not taken back, even if the others do not record that it was missing: it may be
/// an earlier copy.
#[test]
fn who_is_older_than_the_array_that_runs_is_stale() {
    let (disks, top) = made("Intel", 2);
    let before = copies(&disks);
    write(&mut graph_of(&disks), top, 0, &[6; LENGTH as usize]).unwrap();
    let mut graph = graph_of(&disks[..1]);
    MD.insert(&mut graph, "d1", Box::new(before[1].clone())).unwrap();
    graph.settle();
    for _ in 0..3 {
        assert_eq!(read(&mut graph, top, 0, 512).unwrap(), [6; 512]);
    }
    assert!(verdict(&graph, "d1").contains("stale disk"), "{}", verdict(&graph, "d1"));
}

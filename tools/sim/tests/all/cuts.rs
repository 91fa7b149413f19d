//! Power cuts in workloads on raw flash: a sample of the campaign, and the proof that mistakes are
//! detected. `flysch-sim cuts --campaign` tries everything.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use flysch_models::flash::Tear;
use flysch_sim::cuts::campaign::{Campaign, Line, Space, key_of};
use flysch_sim::cuts::mistakes::Mistake;
use flysch_sim::cuts::setting::{Part, World};
use flysch_sim::cuts::workloads::WORKLOADS;
use flysch_sim::cuts::{Plan, Report};
use flysch_tests::shard::{Ledger, Shard};

fn world(name: &str) -> World {
    name.parse().unwrap_or_else(|problem| panic!("{problem}"))
}

/// The workload on its usual chip.
fn usual(workload: &str) -> World {
    world(&format!("{workload}/die4/bad0/new/unstable/tool/plain/1"))
}

fn run(world: World, plan: &Plan) -> Report {
    let report = world.workload.run(&world.setting, plan);
    report.unwrap_or_else(|problem| panic!("{world}: {problem}"))
}

fn campaign(plan: Plan) -> Campaign {
    Campaign { shard: Shard::default(), only: vec![], worlds: None, plan, jobs: 1 }
}

#[test]
fn a_cross_section_of_all_worlds_survives_cuts() {
    let space = Space::new();
    let (mut tried, mut tears, mut wrong) = (0, BTreeMap::<String, u64>::new(), vec![]);
    // Every workload on every chip, where no problem is known. UBIFS with a fastmap, attaches that
    // are broken off and cells that fade are tried by the campaign.
    let only = ["cells=settled", "seed=1", "device=plain,fastmap", "user=tool,bare,several"];
    let mut campaign = campaign(Plan { points: Some(2), ..Plan::default() });
    campaign.only = only.iter().map(|one| one.parse().unwrap()).collect();
    let chosen = campaign.chosen(&space);
    let mut left: Vec<(&str, Part)> = WORKLOADS
        .iter()
        .flat_map(|workload| Part::ALL.iter().map(|part| (workload.name, *part)))
        .collect();
    for number in chosen {
        let World { workload, setting } = space.world(number);
        if setting.has_fastmap() != workload.name.contains("fastmap") {
            continue;
        }
        let kind = (workload.name, setting.part);
        let Some(place) = left.iter().position(|one| *one == kind) else { continue };
        left.swap_remove(place);
        let line = campaign.one(&space, number);
        tried += line.total().cuts;
        wrong.extend(line.findings.into_iter().map(|found| (found.problem, found.again)));
        for (tear, tally) in line.tears {
            *tears.entry(tear).or_default() += tally.cuts;
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(tried > 1500, "{tried} cuts tried");
    assert_eq!(tears.len(), 4, "{tears:?}");
    // Workloads made for one chip were run on no other.
    assert!(left.iter().all(|(workload, _)| *workload == "ubi-scrub"), "{left:?}");
    println!("{tried} cuts tried");
}

#[test]
fn cuts_within_the_recovery_are_survived() {
    let mut deep = 0;
    for name in ["ubi-change", "ubi-update", "ubifs", "jffs2"] {
        let tears = vec![Tear::Half];
        let plan = Plan { depth: 2, tears, points: Some(4), deep_stride: 2, ..Plan::default() };
        let report = run(usual(name), &plan);
        assert!(report.failures.is_empty(), "{name}: {:#?}", report.failures);
        deep += report.cuts.get(1).copied().unwrap_or(0);
    }
    assert!(deep > 20, "{deep} cuts at depth 2");
}

/// The cuts after which something is wrong.
fn wrong(world: World, plan: &Plan) -> BTreeMap<String, String> {
    let failures = run(world, plan).failures.into_iter();
    failures.map(|failure| (failure.cuts.to_string(), failure.problem)).collect()
}

/// Every kind is detected by cuts that show nothing wrong without it, and is reproduced by its
/// command.
#[test]
fn planted_mistakes_are_found_and_replayed() {
    let rough = "ubifs-overwrite/hamming/bad0/new/unstable/bare/plain/1";
    let fast = "ubi-fastmap-long/die4/bad0/new/unstable/tool/fastmap/1";
    let calm = |workload: &str| format!("{workload}/die4/bad0/new/unstable/tool/plain/1");
    let (half, late) = (vec![Tear::Half], vec![Tear::Late]);
    let mistakes = [
        (calm("ubi-change"), &half, None, Mistake::Reordered),
        (calm("ubi-wear"), &half, Some(60), Mistake::Reordered),
        (calm("ubi-write"), &half, None, Mistake::SkippedSync),
        (calm("ubi-change"), &half, None, Mistake::SkippedErase),
        (calm("ubifs"), &half, Some(60), Mistake::Reordered),
        (calm("ubifs"), &half, Some(60), Mistake::SkippedSync),
        (calm("jffs2"), &half, None, Mistake::SkippedSync),
        (calm("ubi-write"), &half, None, Mistake::LostTail),
        (calm("jffs2"), &half, None, Mistake::LostTail),
        (fast.to_string(), &late, None, Mistake::OldFastmap),
        (rough.to_string(), &late, Some(60), Mistake::SecondLook),
        (rough.to_string(), &late, Some(60), Mistake::LateMove),
    ];
    for (name, tears, points, mistake) in mistakes {
        let right = Plan { tears: tears.clone(), points, ..Plan::default() };
        let plan = Plan { mistake: Some(mistake), ..right.clone() };
        let without = wrong(world(&name), &right);
        let with = wrong(world(&name), &plan);
        let new = with.iter().find(|(cut, _)| !without.contains_key(*cut));
        let (cut, problem) = new.unwrap_or_else(|| panic!("{name}: {mistake:?} was not found"));
        if cut.is_empty() {
            continue;
        }
        let again = Plan { only: Some(cut.parse().unwrap()), ..plan };
        let replayed = wrong(world(&name), &again);
        assert_eq!(replayed.get(cut), Some(problem), "{name}: {mistake:?} is not replayed");
    }
}

/// Each of these was wrong once; see "Found in earnest" in docs/power-cuts.md.
#[test]
fn what_was_found_stays_mended() {
    let found = [
        // An interrupted erase that a fastmap does not know of: after a crash, after a clean stop,
        // in JFFS2's volume.
        ("ubifs-commit/die8/bad0/new/settled/bare/fastmap/2", "507e"),
        ("ubifs/slc-mode/bad0/new/fading/tool/fastmap/1", "150e"),
        ("jffs2-ubi-random/bch8/bad0/new/disturbed/hasty/fastmap/10", "121e"),
        // The model considered a name exchanged with itself as changed.
        ("ubifs-random/hamming-512/bad0/new/disturbed/bare/fastmap/7", "1242e"),
        // It confused a file with an earlier one of the same number.
        ("jffs2-random/nor/bad0/new/unstable/hasty/plain/1", "260l"),
        // Four blocks failed in succession; writing the marker of a bad block failed.
        ("ubi-volumes/hamming-512/bad0/worn/settled/tool/failing/8", "0a"),
        ("ubifs-full/die1/bad0/worn/unstable/several/failing-fastmap/15", "0e"),
        // The header of a LEB that was being updated, with nothing after it.
        ("ubi-update/bch4/bad0/worn/disturbed/tool/failing-fastmap/7", "197l"),
        // One program of NOR extends over two units of the oracle.
        ("ubi-write/nor/bad0/new/fading/hasty/plain/11", "39l"),
        // One program of NOR extends over two units that UBIFS considered to be written separately.
        ("ubifs-edit/nor/bad0/new/fading/several/fastmap/6", "38l"),
        ("ubifs-edit/nor/bad0/new/fading/several/fastmap/6", "317l"),
        // The anchor of an unfinished fastmap was erased twice, and has been free twice since.
        ("ubi-fastmap-long/slc-mode/bad2/worn/fading/hasty/fastmap/4", "485l"),
        // Leaving one block after the other while programs fail used up all blocks.
        ("jffs2-full/hamming/bad0/worn/disturbed/tool/failing/15", "0l"),
        // Programming failed in the last remaining block, while another had room at its end.
        ("jffs2-full/die4/bad2/worn/disturbed/hasty/failing/9", "194e"),
        ("jffs2-full/die4/bad2/worn/disturbed/hasty/failing/9", "194h"),
        // A block that read as erased at its end was written to, and read differently from when it
        // was checked.
        ("jffs2-edit/nor/bad0/new/unstable/tool/plain/15", "194e"),
        // Programming failed in all remaining blocks while a mount was copying.
        ("jffs2-full/hamming-512/bad0/worn/disturbed/tool/failing/3", "30e"),
        ("jffs2-full/hamming-512/bad0/worn/disturbed/tool/failing/3", "30h"),
        ("jffs2-full/hamming-512/bad0/worn/disturbed/tool/failing/3", "30l"),
        ("jffs2-full/hamming-512/bad0/worn/disturbed/tool/failing/3", "30a"),
        // The data copied by a mount missed fitting into the last block by a few bytes, while
        // others could be collected and one had room at its end.
        ("jffs2-full/hamming/bad0/new/disturbed/hasty/failing/19", "150e"),
        ("jffs2-full/hamming/bad0/new/disturbed/hasty/failing/19", "150h"),
        ("jffs2-full/hamming/bad0/new/disturbed/hasty/failing/19", "150l"),
        ("jffs2-full/hamming/bad0/new/disturbed/hasty/failing/19", "150a"),
        // On NOR the last node began before the part that was checked; it faded and was not copied.
        ("jffs2-ubi-random/nor/bad0/new/fading/bare/fastmap/10", "421l"),
        // A block was erased whose valid nodes were in a copy that faded and had not been copied
        // yet.
        ("jffs2-overwrite/slc-mode/bad0/new/fading/hasty/failing/1", "54l"),
        // An announced erase of an unmapped LEB that nobody asks for.
        ("ubi-write/nor/bad0/new/settled/bare/fastmap/14", "38a"),
        // Padding after the copied data faded, and zeros without a header were taken for an entry.
        ("jffs2-ubi/die4/bad0/worn/fading/bare/plain/15", "32l"),
        // Nearly empty index LEBs were promised to content and not emptied.
        ("ubifs-full/slc-mode/bad2/new/disturbed/bare/failing/18", "575e"),
        // The second copy of the master node, first in its LEB, was interrupted by a clean stop.
        ("ubifs-random/slc-mode/bad0/new/fading/tool/failing-fastmap/7", "401l"),
        // An identifier header interrupted over erased data, in a block that waits for its erase.
        ("ubi-fastmap-long/nor-parallel/bad0/new/fading/bare/plain/9", "0h"),
        // The second header of an erase announced on NOR was interrupted: it was reported as
        // damage, and a LEB that had come back and was read was gone the next time.
        ("ubi-fastmap/nor/bad0/new/fading/bare/plain/16", "38e"),
        // A summary was readable, and the nodes programmed together with it were not.
        ("jffs2-ubi-random/hamming/bad2/new/settled/bare/plain/5", "199l"),
        ("jffs2-ubi-random/hamming/bad2/worn/disturbed/hasty/fastmap/16", "529l"),
        // Torture condemned blocks for single errors that had been corrected.
        ("ubifs-overwrite/hamming-512/bad2/worn/disturbed/bare/plain/6", "938e"),
        // Half an erase of a block that the fastmap from before lists: the check's word alone.
        ("ubifs-full/die4-4k/bad0/worn/settled/hasty/fastmap/15", "249h"),
        ("ubifs-full/die4-4k/bad2/worn/fading/tool/fastmap/14", "304e"),
    ];
    for (name, cut) in found {
        let failures = wrong(world(name), &Plan { only: cut.parse().ok(), ..Plan::default() });
        assert!(failures.is_empty(), "{name}: {failures:?}");
    }
}

/// The page that JFFS2 wrote last is readable at the mount, and never again.
#[test]
fn jffs2_does_not_rely_on_the_page_that_was_written_last() {
    for world in [
        world("jffs2/die4/bad0/new/fading/bare/plain/1"),
        world("jffs2/bch4/bad0/new/fading/tool/plain/2"),
        world("jffs2/nor/bad0/new/fading/bare/plain/3"),
        world("jffs2-ubi/die1/bad0/new/fading/bare/plain/4"),
    ] {
        let plan = Plan { points: Some(12), tears: vec![Tear::Late], ..Plan::default() };
        let failures = wrong(world, &plan);
        assert!(failures.is_empty(), "{world}: {failures:?}");
    }
}

/// Runs some worlds into a file; returns the lines then in it.
fn lines(campaign: &Campaign, path: &std::path::Path) -> Vec<String> {
    let space = Space::new();
    let ledger = Ledger::open(path, key_of).unwrap();
    let told = Mutex::new(0);
    let count = |_: &Line| *told.lock().unwrap() += 1;
    campaign.run(&space, (Some(&ledger), &AtomicBool::new(false)), &count).unwrap();
    let mut lines: Vec<String> =
        std::fs::read_to_string(path).unwrap().lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[test]
fn shards_and_stopped_runs_give_what_one_run_gives() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut all = campaign(Plan { points: Some(1), tears: vec![Tear::Half], ..Plan::default() });
    all.only = vec!["workload=ubi-write,jffs2".parse().unwrap(), "chip=nor*".parse().unwrap()];
    all.only.push("user=tool".parse().unwrap());
    all.only.push("seed=1,2,3".parse().unwrap());
    let whole = lines(&all, &path("whole"));
    assert!(whole.len() > 20, "{} lines", whole.len());
    let mut parts = vec![];
    for index in 0..3 {
        let shard = format!("{index}/3").parse().unwrap();
        parts.extend(lines(&Campaign { shard, ..all.clone() }, &path(&format!("part{index}"))));
    }
    parts.sort();
    assert_eq!(parts, whole);
    // Stopped after a few worlds, twice; two threads do the rest.
    for worlds in [Some(5), Some(9), None] {
        lines(&Campaign { worlds, jobs: 2, ..all.clone() }, &path("stopped"));
    }
    assert_eq!(lines(&all, &path("stopped")), whole);
}

use super::meter::{Layer, Time};
use super::plan::{Content, Data};
use super::results::{Results, text};
use super::*;

/// A fiftieth of everything, on a chip of 16 MiB.
fn small() -> (FlashTarget, Plan) {
    let target = "nand,blocks=128".parse().expect("a target");
    let plan = Plan {
        file: 1 << 20,
        pieces: vec![64 << 10],
        few_large: (2, 1 << 20),
        many_small: (400, 8 << 10),
        overhead: 1 << 18,
        overhead_pieces: [64, 1 << 18],
    };
    (target, plan)
}

fn measured(subjects: &[Subject]) -> (TargetResults, Plan) {
    let (target, plan) = small();
    let results = super::run("nand", &target, subjects, &plan, &mut |_, _| {});
    (results.expect("it is measured"), plan)
}

fn value(results: &TargetResults, subject: &str, test: Test) -> f64 {
    let subject = results.subjects.iter().find(|it| it.name == subject).expect("the subject");
    subject.row(test).and_then(|row| row.value).expect("a figure")
}

#[test]
fn the_raw_chip_is_as_fast_as_its_bus_and_cells() {
    let (results, plan) = measured(&[Subject::Raw]);
    let write = value(&results, "raw", Test::Write { data: Data::Random, piece: plan.pieces[0] });
    let read = value(&results, "raw", Test::Read { again: false });
    assert!((0.69..0.71).contains(&write), "{write} MiB/s");
    assert!((1.09..1.11).contains(&read), "{read} MiB/s");
}

#[test]
fn a_ubifs_mounts_as_fast_with_many_files_as_with_few() {
    let (results, _) = measured(&[Subject::Ubifs]);
    let mount = |content| value(&results, "ubifs", Test::Mount(content));
    let verified = |content| value(&results, "ubifs", Test::MountVerified(content));
    // Nearly the same bytes; an empty one has no journal to replay.
    let (few, many) = (mount(Content::FewLarge), mount(Content::ManySmall));
    assert!(many < few * 1.1, "{few} s with 2 files, {many} s with 400");
    assert!(verified(Content::ManySmall) > verified(Content::Empty));
}

#[test]
fn ubifs_writes_random_data_within_a_tenth_of_the_chip_and_zeros_faster() {
    // Commits and headers of volumes weigh more on a small file.
    let (target, plan) = (FlashTarget::default(), Plan { file: 10 << 20, ..small().1 });
    let results =
        super::run("nand", &target, &[Subject::Raw, Subject::Ubifs], &plan, &mut |_, _| {});
    let results = results.expect("it is measured");
    let piece = plan.pieces[0];
    let write = |subject, data| value(&results, subject, Test::Write { data, piece });
    let raw = write("raw", Data::Random);
    let (random, zeros) = (write("ubifs", Data::Random), write("ubifs", Data::Zeros));
    assert!(random > 0.9 * raw, "{random} MiB/s on a chip of {raw}");
    assert!(zeros > 5.0 * raw, "{zeros} MiB/s on a chip of {raw}");
    let space = |piece| value(&results, "ubifs", Test::Overhead { piece });
    assert!(plan.overhead_pieces.into_iter().all(|piece| (0.0..4.0).contains(&space(piece))));
}

/// Minimum programs for 10 MiB of random data in UBIFS: nodes of 4096 bytes with a header of 48
/// that do not cross LEBs, which begin at `data` in their blocks; for each LEB an identifier header
/// and a reference in the log. Inodes, names, index and commits are additional.
fn least_programs(block: u64, data: u64, page: u64) -> u64 {
    const NODE: u64 = 48 + 4096;
    let programs = |nodes: u64| (data % page + nodes * NODE).div_ceil(page) + 2;
    let (nodes, fit) = ((10 << 20) / 4096, (block - data) / NODE);
    nodes / fit * programs(fit) + programs(nodes % fit)
}

#[test]
fn ubifs_on_small_blocks_and_large_pages_programs_what_the_format_asks_for() {
    for (name, least) in [
        ("nand,profile=K9F5608U0D", least_programs(16 << 10, 512, 512)),
        (
            "nand,profile=H27UCG8T2ETR,mode=slc,ecc=none,blocks=128",
            least_programs(2 << 20, 32 << 10, 16 << 10),
        ),
        ("nor,profile=W25Q128FV", least_programs(64 << 10, 128, 256)),
    ] {
        let plan = Plan { file: 10 << 20, ..small().1 };
        let target = name.parse().expect("a target");
        let results = super::run(name, &target, &[Subject::Ubifs], &plan, &mut |_, _| {});
        let results = results.expect("it is measured");
        let test = Test::Write { data: Data::Random, piece: plan.pieces[0] };
        let done = results.subjects[0].row(test).expect("a row").operations;
        assert!(done.programs * 100 <= least * 108, "{name}: {done:?}, {least} at least");
        // When writing continues in a block, the rest of the block is not read completely.
        assert!(done.reads < 64, "{name}: {done:?}");
    }
}

#[test]
fn a_jffs2_on_marked_blocks_is_mounted_without_reading_them_to_their_end() {
    let (results, plan) = measured(&[Subject::Jffs2]);
    let row = |test| results.subjects[0].row(test).expect("a row").clone();
    let reads = row(Test::Mount(Content::Empty)).operations.reads;
    assert!(reads < 5 * 128, "{reads} reads of 128 blocks");
    let write = row(Test::Write { data: Data::Random, piece: plan.pieces[0] });
    assert_eq!(write.operations.erases, 0, "every block was ready");
}

#[test]
fn every_chip_can_be_measured() {
    for name in ["nand,profile=K9F5608U0D", "nand,profile=H27UCG8T2ETR,blocks=64", "nor"] {
        let target: FlashTarget = name.parse().expect(name);
        let plan = Plan { overhead: 1 << 16, overhead_pieces: [64, 1 << 16], ..small().1 };
        let few =
            Plan { file: 1 << 18, many_small: (20, 8 << 10), few_large: (1, 1 << 18), ..plan };
        let subjects = [Subject::Raw, Subject::Jffs2, Subject::Ubifs];
        let results = super::run(name, &target, &subjects, &few, &mut |_, _| {});
        let results = results.unwrap_or_else(|error| panic!("{error}"));
        let rows = results.subjects.iter().flat_map(|subject| &subject.rows);
        assert!(rows.clone().count() > 30 && rows.clone().all(|row| row.value.is_some()), "{name}");
    }
}

#[test]
fn what_has_no_space_has_no_figure_and_the_page_says_so() {
    let (target, plan) = small();
    let plan = Plan { few_large: (10, 8 << 20), ..plan };
    let results = super::run("nand", &target, &[Subject::Jffs2], &plan, &mut |_, _| {});
    let target = results.expect("too small is no error");
    let row = target.subjects[0].row(Test::Mount(Content::FewLarge)).expect("the row");
    assert_eq!(row.value, None);
    let results = Results { version: "1".into(), timestamp_ms: 0, targets: vec![target] };
    assert!(text(&results, &plan).contains("no space"));
    let page = render(&results, &plan, "flysch <bench>");
    assert!(page.contains("no space") && page.contains("flysch &lt;bench&gt;"));
}

#[test]
fn targets_are_refused_with_a_reason() {
    let refused = |text: &str| text.parse::<FlashTarget>().expect_err("it is wrong").to_string();
    assert!(refused("ufs").contains("`nor[,key=value...]`"));
    assert!(refused("nand,blocks=3").contains("64 to 65536"));
    assert!(refused("nand,profile=K9").contains("K9F1G08U0B"));
    assert!(refused("nand,ecc=bch73").contains("bch2 ... bch72"));
    assert!(refused("nand,ecc=bch40").contains("do not fit into 64 bytes"));
    assert!(refused("nor,ecc=hamming").contains("target `nor` has no key `ecc`"));
    assert!(refused("nor,profile=K9F1G08U0B").contains("S29GL128P"));
    assert!(refused("nand,what=1").contains("has no key"));
    let target: FlashTarget = "nand,profile=mt29f2g08abaea,clock=hybrid".parse().expect("right");
    assert_eq!((target.strength, target.time), (4, Time::Hybrid));
}

#[test]
fn time_goes_to_the_innermost_layer() {
    let meter = Meter::new(Time::Hybrid);
    let now = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    };
    let burn = |ms: u64| {
        let end = now() + ms * 1_000_000;
        while now() < end {}
    };
    // Each reading of the meter lies between two of the same clock.
    let start = now();
    let outer = meter.enter(Layer::FileSystem);
    let entered = now();
    burn(2);
    let entering = now();
    let inner = meter.enter(Layer::Mtd);
    let inside = now();
    burn(30);
    let leaving = now();
    drop(inner);
    let outside = now();
    drop(outer);
    let left = now();
    // What is outside of all layers is nobody's, also when one is entered again.
    burn(20);
    let again = now();
    drop(meter.enter(Layer::FileSystem));
    let end = now();
    let split = meter.reading().split;
    let mtd = leaving - inside..=outside - entering;
    assert!(mtd.contains(&split.mtd_ns), "{split:?}, {mtd:?}");
    let most = (inside - start) + (left - leaving) + (end - again);
    let file_system = entering - entered..=most;
    assert!(file_system.contains(&split.file_system_ns), "{split:?}, {file_system:?}");
    assert_eq!((split.ubi_ns, split.device_ns), (0, 0));
}

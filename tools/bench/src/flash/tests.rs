use super::meter::{Layer, Time};
use super::plan::{Content, Data};
use super::results::{Results, text};
use super::*;

/// A fiftieth of everything, on a chip of 16 MiB.
fn small() -> (NandTarget, Plan) {
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
    let refused = |text: &str| text.parse::<NandTarget>().expect_err("it is wrong");
    assert!(refused("ufs").contains("`nand[,key=value...]`"));
    assert!(refused("nand,blocks=3").contains("64 to 65536"));
    assert!(refused("nand,profile=K9").contains("K9F1G08U0B"));
    assert!(refused("nand,ecc=bch40").contains("no BCH code"));
    assert!(refused("nand,what=1").contains("unknown key"));
    let target: NandTarget = "nand,profile=mt29f2g08abaea,clock=hybrid".parse().expect("right");
    assert_eq!((target.strength, target.time), (4, Time::Hybrid));
}

#[test]
fn time_goes_to_the_innermost_layer() {
    let meter = Meter::new(Time::Hybrid);
    let burn = |ms: u64| {
        let start = std::time::Instant::now();
        let mut sum = 0_u64;
        while start.elapsed().as_millis() < u128::from(ms) {
            sum = std::hint::black_box(sum + 1);
        }
    };
    let outer = meter.enter(Layer::FileSystem);
    burn(2);
    let inner = meter.enter(Layer::Mtd);
    burn(60);
    drop(inner);
    drop(outer);
    burn(20);
    let split = meter.reading().split;
    assert!(split.mtd_ns > split.file_system_ns, "{split:?}");
    assert_eq!((split.ubi_ns, split.device_ns), (0, 0));
    assert!(split.file_system_ns > 0 && split.software_ns() < 82_000_000, "{split:?}");
}

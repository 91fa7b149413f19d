//! A small part of what `cargo xtask mutate` does at length: mutated images of every format end
//! soon, without a panic, inside the directory.

use flysch_tests::damage;
use flysch_tests::mutate::{Run, samples};
use flysch_tests::ubifs::tools_missing;

#[test]
fn mutated_images_end_soon_and_inside() {
    if tools_missing() {
        return;
    }
    let samples = samples();
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(&samples, folder.path());
    for seed in 1..=500 {
        run.one(seed).unwrap();
    }
    let totals = run.totals;
    assert!(totals.opened > 300, "{totals:?}");
    assert!(totals.wrong > 200, "{totals:?}");
    assert!(totals.files > 1000, "{totals:?}");
}

/// Seeds of damage that once went wrong; for the four before the last one the judge could not
/// decide.
const ONCE_WRONG: [u64; 12] = [
    6142, 6276, 1_001_091, 1_001_151, 1_001_318, 1_002_696, 1_003_324, 1_002_147, 1_002_435,
    1_003_160, 1_003_183, 2_001_089,
];

/// A small part of `cargo xtask mutate --repair`: damage is repaired or refused, and what was
/// readable stays unchanged.
#[test]
fn damaged_images_are_repaired_and_lose_nothing_else() {
    let samples = damage::samples();
    let folder = tempfile::tempdir().unwrap();
    let mut run = damage::Run::new(&samples, folder.path());
    for seed in (1..=40).chain(ONCE_WRONG) {
        run.one(seed).unwrap();
    }
    let totals = run.totals;
    assert!(totals.repaired.values().sum::<u64>() > 5, "{totals}");
    assert!(totals.kept > 100, "{totals}");
}

/// A file written outside the image is detected.
#[test]
fn a_planted_escape_is_seen() {
    if tools_missing() {
        return;
    }
    let samples = samples();
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::new(&samples, folder.path());
    run.one(1).unwrap();
    std::fs::write(folder.path().join("canary"), b"changed").unwrap();
    assert!(run.one(2).unwrap_err().contains("canary"));
    std::fs::write(folder.path().join("canary"), b"untouched").unwrap();
    std::fs::write(folder.path().join("beside"), b"").unwrap();
    assert!(run.one(3).unwrap_err().contains("outside"));
}

//! A small part of what `cargo xtask mutate` does at length: mutated images of every format end
//! soon, without a panic, inside the directory.

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

/// Something that is written beside the image is seen.
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

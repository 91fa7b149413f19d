//! A part of what `cargo xtask matrix` does at length: trees through every compressor and back.

use flysch_tests::matrix::{self, Kind, Scale};
use flysch_tests::ubifs::tools_missing;

#[test]
fn trees_come_out_as_they_went_in() {
    if tools_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let (jffs2, ubifs) = (matrix::jffs2_kinds(), matrix::ubifs_kinds());
    for name in "ABCET".chars() {
        let source = matrix::source(folder.path(), name, Scale::SMALL);
        let kinds = match name {
            // Every thirteenth: all sizes, orders, modes and summaries are used with A or E.
            'A' => jffs2.iter().step_by(13).cloned().collect(),
            'E' => jffs2.iter().skip(3).chain(&ubifs).step_by(14).cloned().collect(),
            _ => matrix::large_kinds(),
        };
        for kind in kinds {
            let files = matrix::through(&source, &kind, &work).unwrap();
            assert!(files >= if name == 'E' { 1 } else { 3 }, "{name} {kind:?}: {files} files");
        }
    }
}

/// Proves the comparison: a tree that changed after its image was planned is noticed.
#[test]
fn a_planted_difference_is_seen() {
    if tools_missing() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let source = matrix::source(folder.path(), 'C', Scale::SMALL);
    let file = folder.path().join("C/f1");
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut content = std::fs::read(&file).unwrap();
    content[777_777] ^= 1;
    std::fs::write(&file, content).unwrap();
    std::fs::File::open(&file).unwrap().set_modified(modified).unwrap();
    for kind in [Kind::Jffs2(vec!["-e", "64KiB", "-l"], None), matrix::large_kinds().remove(1)] {
        let lines = matrix::through(&source, &kind, &work).unwrap_err();
        assert!(lines.len() == 1 && lines[0].starts_with("f1: "), "{lines:?}");
    }
}

//! `matrix [small] [TREES]`: passes the benchmark trees through every kind of image of mtd-utils
//! and back out. Exits with status 1 if what comes out differs from what went in.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use flysch_tests::matrix::{self, Scale, Totals};

/// In this order: the quick ones come first.
const TREES: &str = "EACTB";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (scale, trees) = match &words[..] {
        [] => (Scale::FULL, TREES),
        [small] if small == "small" => (Scale::SMALL, TREES),
        [small, trees] if small == "small" => (Scale::SMALL, &trees[..]),
        [trees] => (Scale::FULL, &trees[..]),
        _ => (Scale::FULL, "?"),
    };
    if !trees.chars().all(|tree| TREES.contains(tree)) {
        eprintln!("usage: matrix [small] [TREES]; trees: A, B, C, E, T");
        return ExitCode::from(2);
    }
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let folder = folder.expect("a directory for temporary files");
    let work = folder.path().join("work");
    std::fs::create_dir(&work).expect("a directory");
    let mut totals = Totals::default();
    let mut bad = 0;
    for name in trees.chars() {
        let source = matrix::source(folder.path(), name, scale);
        let kinds = match source.name {
            'A' | 'E' => [matrix::ubifs_kinds(), matrix::jffs2_kinds()].concat(),
            _ => matrix::large_kinds(),
        };
        for kind in kinds {
            match matrix::through(&source, &kind, &work) {
                Ok(files) => totals.add(&source, &kind, files),
                Err(lines) => {
                    bad += 1;
                    println!("tree {}, {kind:?}:", source.name);
                    lines.iter().take(10).for_each(|line| println!("  {line}"));
                }
            }
        }
        print!("{totals}");
        totals = Totals::default();
    }
    println!("{bad} images came out wrong");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

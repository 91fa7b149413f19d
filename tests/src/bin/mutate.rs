//! `mutate [--count N] [--first SEED] [--prepared DIR]`: many mutated images through check and
//! extract. Ends with status 1 at the first that does not go as it must.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flysch_tests::mutate::{Run, prepared, samples};

/// An image that takes longer than this, on whatever machine, is taken for a hang.
const HANG: Duration = Duration::from_secs(120);
const USAGE: &str = "usage: mutate [--count N] [--first SEED] [--prepared DIR]";

struct Arguments {
    count: u64,
    first: u64,
    prepared: Option<PathBuf>,
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments {
        count: 1000,
        first: 1,
        prepared: std::env::var_os("FLYSCH_UBIFS_IMAGES").map(PathBuf::from),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next()?;
        match word.as_str() {
            "--count" => found.count = value.parse().ok()?,
            "--first" => found.first = value.parse().ok()?,
            "--prepared" => found.prepared = Some(value.into()),
            _ => return None,
        }
    }
    Some(found)
}

/// Ends the process with the seed when one image takes too long.
fn watch(seed: &Arc<AtomicU64>) {
    let seed = seed.clone();
    std::thread::spawn(move || {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = seed.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, Instant::now());
            } else if since.elapsed() > HANG {
                println!("seed {now}: no end after {} s", HANG.as_secs());
                std::process::exit(1);
            }
        }
    });
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut samples = samples();
    samples.extend(arguments.prepared.iter().flat_map(|directory| prepared(directory)));
    // In memory where that is possible: files are made by the million.
    let memory = std::path::Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let folder = folder.expect("a directory for temporary files");
    let mut run = Run::new(&samples, folder.path());
    let begun = Instant::now();
    let current = Arc::new(AtomicU64::new(0));
    watch(&current);
    let mut bad = 0;
    for seed in arguments.first..arguments.first.saturating_add(arguments.count) {
        current.store(seed, Ordering::Relaxed);
        if let Err(problem) = run.one(seed) {
            println!("{problem}");
            bad += 1;
            let _ = std::fs::remove_dir_all(folder.path().join("out"));
        }
    }
    let totals = run.totals;
    println!("{} mutated images of {} samples", totals.images, samples.len());
    println!("  {} opened, {} found wrong", totals.opened, totals.wrong);
    println!("  {} files extracted, {} refused and named", totals.files, totals.refused);
    println!("  {:?} for the slowest, {} s for all", totals.longest, begun.elapsed().as_secs());
    println!("  {bad} panics, hangs or escapes");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

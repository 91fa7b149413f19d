//! `mutate [--repair] [--count N] [--first SEED] [--prepared DIR] [--keep DIR] [--shard I/N]
//! [--out FILE]`: passes many mutated images through check, extract, edit and repair, or
//! (`--repair`) through a repair that is judged by the previous contents of the image. Exits with
//! status 1 if one misbehaves; `--keep` saves those. `--shard` takes the seeds that are I modulo N;
//! `--out` records a line of JSON for each seed, and skips the seeds already in the file.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flysch_tests::shard::{Ledger, Shard};
use flysch_tests::{damage, mutate};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// An image that takes more processor time than this, on any machine, is considered a hang.
const HANG: Duration = Duration::from_secs(120);
const USAGE: &str = "usage: mutate [--repair] [--count N] [--first SEED] [--prepared DIR] \
     [--keep DIR] [--shard I/N] [--out FILE]";

struct Arguments {
    repair: bool,
    count: u64,
    first: u64,
    prepared: Option<PathBuf>,
    keep: Option<PathBuf>,
    shard: Shard,
    out: Option<PathBuf>,
}

fn arguments() -> Option<Arguments> {
    let mut found = Arguments {
        repair: false,
        count: 1000,
        first: 1,
        prepared: std::env::var_os("FLYSCH_UBIFS_IMAGES").map(PathBuf::from),
        keep: None,
        shard: Shard::default(),
        out: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--repair" {
            found.repair = true;
            continue;
        }
        let value = words.next()?;
        match word.as_str() {
            "--count" => found.count = value.parse().ok()?,
            "--first" => found.first = value.parse().ok()?,
            "--keep" => found.keep = Some(value.into()),
            "--shard" => found.shard = value.parse().ok()?,
            "--out" => found.out = Some(value.into()),
            "--prepared" => found.prepared = Some(value.into()),
            _ => return None,
        }
    }
    Some(found)
}

/// Ends the process and names the seed if one image takes too long.
fn watch(seed: &Arc<AtomicU64>) {
    let seed = seed.clone();
    std::thread::spawn(move || {
        let (mut last, mut since) = (0, spent());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let now = seed.load(Ordering::Relaxed);
            if now != last {
                (last, since) = (now, spent());
            } else if spent().saturating_sub(since) > HANG {
                println!("seed {now}: no end after {} s", HANG.as_secs());
                std::process::exit(1);
            }
        }
    });
}

/// Processor time of this process.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn main() -> ExitCode {
    let Some(arguments) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(keep) = &arguments.keep
        && let Err(error) = std::fs::create_dir_all(keep)
    {
        eprintln!("mutate: {}: {error}", keep.display());
        return ExitCode::from(2);
    }
    // In memory if possible: millions of files are created.
    let memory = std::path::Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let folder = folder.expect("a directory for temporary files");
    let bad = match arguments.repair {
        true => {
            let samples = damage::samples();
            let mut run = damage::Run::new(&samples, folder.path());
            run.keep.clone_from(&arguments.keep);
            let bad = all(&arguments, |seed| run.one(seed));
            println!("{}", run.totals);
            bad
        }
        false => {
            let mut samples = mutate::samples();
            samples.extend(arguments.prepared.iter().flat_map(|it| mutate::prepared(it)));
            let mut run = mutate::Run::new(&samples, folder.path());
            run.memory = mutate::Peak::new();
            run.keep.clone_from(&arguments.keep);
            let bad = all(&arguments, |seed| {
                let done = run.one(seed);
                let _ = std::fs::remove_dir_all(folder.path().join("out"));
                let _ = std::fs::remove_file(folder.path().join("copy"));
                done
            });
            println!("{} samples: {}", samples.len(), run.totals);
            bad
        }
    };
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Runs every seed; reports those that misbehave, and returns their number.
fn all(arguments: &Arguments, mut one: impl FnMut(u64) -> Result<(), String>) -> u64 {
    let begun = spent();
    let current = Arc::new(AtomicU64::new(0));
    watch(&current);
    let mut bad = 0;
    let repair = arguments.repair;
    let key = |line: &Value| Some(format!("{} {}", line.get("seed")?, line.get("repair")?));
    let ledger = arguments.out.as_deref().map(|path| {
        Ledger::open(path, key).unwrap_or_else(|why| {
            eprintln!("mutate: {why}");
            std::process::exit(2);
        })
    });
    for seed in arguments.first..arguments.first.saturating_add(arguments.count) {
        let is_done = |ledger: &Ledger| ledger.has(&format!("{seed} {repair}"));
        if !arguments.shard.has(seed) || ledger.as_ref().is_some_and(is_done) {
            continue;
        }
        current.store(seed, Ordering::Relaxed);
        let problem = one(seed).err();
        if let Some(problem) = &problem {
            println!("{problem}");
            bad += 1;
        }
        if let Some(ledger) = &ledger {
            let line = json!({ "seed": seed, "repair": repair, "problem": problem });
            ledger.add(&line.to_string()).unwrap_or_else(|why| {
                eprintln!("mutate: {why}");
                std::process::exit(2);
            });
        }
    }
    let seconds = spent().saturating_sub(begun).as_secs();
    println!("{bad} went wrong, {seconds} s of processor time for all");
    bad
}

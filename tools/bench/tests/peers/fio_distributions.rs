//! Where requests go: ours beside fio's, by the numbers of requests in each part of the region.

use std::path::Path;
use std::process::Command;

use flysch_bench::jobfile::JobFile;
use flysch_bench::pattern::Pattern;

const BLOCKS: u64 = 1000;
const REQUESTS: usize = 20_000;
/// Parts that requests are counted in.
const PARTS: usize = 20;

/// Blocks that fio reads with these options; `None` if there is no fio.
fn of_fio(folder: &Path, options: &[String]) -> Option<Vec<u64>> {
    let log = folder.join("log");
    // fio appends to one that is there.
    let _ = std::fs::remove_file(&log);
    let output = Command::new("fio")
        .current_dir(folder)
        .args(["--name=a", "--ioengine=null", "--rw=randread", "--bs=4k", "--norandommap"])
        .args([format!("--size={}", BLOCKS * 4096), format!("--io_size={}", REQUESTS * 4096)])
        .args(options)
        .arg(format!("--write_iolog={}", log.display()))
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "fio: {error}");
            eprintln!("skipped: fio: {error}");
            return None;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(log).unwrap();
    // `file read OFFSET LENGTH`, with a time before it in newer versions.
    let block = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let read = words.iter().position(|&word| word == "read")?;
        Some(words.get(read + 1)?.parse::<u64>().ok()? / 4096)
    };
    Some(text.lines().filter_map(block).collect())
}

/// Blocks that we read with the same options.
fn of_ours(options: &[String]) -> Vec<u64> {
    let options = options.iter().map(|option| option.trim_start_matches("--").to_owned());
    let text = format!(
        "[a]\nrw=randread\nbs=4k\nnorandommap\nsize={}\n{}\n",
        BLOCKS * 4096,
        options.collect::<Vec<_>>().join("\n")
    );
    let file = JobFile::parse(&text, Path::new("a.fio"), &[]).unwrap();
    let workload = file.jobs[0].workers(BLOCKS * 4096, 512).unwrap().remove(0);
    let mut pattern = Pattern::new(&workload, (0, BLOCKS * 4096), BLOCKS * 4096);
    (0..REQUESTS).map(|_| pattern.step().offset / 4096).collect()
}

/// Requests in each part of the region.
fn by_place(blocks: &[u64]) -> Vec<f64> {
    let mut counts = vec![0.0; PARTS];
    blocks.iter().for_each(|&block| counts[(block as usize * PARTS) / BLOCKS as usize] += 1.0);
    counts
}

/// Chi squared of two counts over the same number of requests.
fn apart(a: &[f64], b: &[f64]) -> f64 {
    let all: (f64, f64) = (a.iter().sum(), b.iter().sum());
    let parts = a.iter().zip(b).filter(|(a, b)| **a + **b > 0.0);
    parts
        .map(|(a, b)| {
            let difference = a * (all.1 / all.0).sqrt() - b * (all.0 / all.1).sqrt();
            difference * difference / (a + b)
        })
        .sum()
}

#[test]
fn requests_go_where_fio_sends_them() {
    // With 19 degrees of freedom chi squared is above 60 once in 300,000 times.
    const LIMIT: f64 = 60.0;
    let folder = tempfile::tempdir().unwrap();
    // What fio makes of zipf, pareto and normal is hashed, and hashes of two ranks may be one
    // block: it cannot be compared place by place. `pattern/tests.rs` holds ours against the laws.
    for distribution in
        ["random", "zoned:50/5:30/15:20/80", "zoned:60/10:40/", "zoned_abs:90/400k:10/3m"]
    {
        let options = [format!("--random_distribution={distribution}")];
        let Some(fio) = of_fio(folder.path(), &options) else { return };
        let ours = of_ours(&options);
        assert_eq!(fio.len(), ours.len(), "{distribution}");
        let (fio, ours) = (by_place(&fio), by_place(&ours));
        let apart = apart(&fio, &ours);
        assert!(apart < LIMIT, "{distribution}: {apart:.0}: {fio:?} {ours:?}");
    }
}

#[test]
fn strides_are_fios() {
    let folder = tempfile::tempdir().unwrap();
    let options: Vec<String> =
        ["--rw=read", "--zonemode=strided", "--zonesize=64k", "--zoneskip=128k"]
            .map(str::to_owned)
            .to_vec();
    let Some(fio) = of_fio(folder.path(), &options) else { return };
    let ours = of_ours(&options);
    assert_eq!(fio[..300], ours[..300]);
}

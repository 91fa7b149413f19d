//! How many simulated I/Os a model does in a second of processor time, whole stack included.
//!
//! `cargo run --profile dist -p flysch-study --example speed [TARGET...]`

use flysch_study::measure::measure;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of this process, seconds: what other programs do does not count.
fn spent() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn main() {
    let mut targets: Vec<String> = std::env::args().skip(1).collect();
    if targets.is_empty() {
        targets = ["ufs", "ufs,mcq=4", "nvme", "emmc", "ahci"].map(String::from).into();
    }
    for target in targets {
        let virtual_clock = format!("{target},clock=virtual");
        let run = |count: u32| {
            let job =
                format!("rw=randread bs=4k iodepth=32 size=1g number_ios={count} norandommap");
            let start = spent();
            measure(&virtual_clock, &job).map(|_| spent() - start)
        };
        // Two lengths, so that what happens once is left out; the best of three.
        let one = || Ok((run(600_000)? - run(100_000)?) / 500_000.0);
        let all: Result<Vec<f64>, flysch_study::measure::Error> = (0..3).map(|_| one()).collect();
        match all {
            Ok(all) => {
                let best = all.into_iter().fold(f64::MAX, f64::min);
                println!("{target:<12} {:>6.2} M/s, {:>5.0} ns each", 1e-6 / best, best * 1e9);
            }
            Err(error) => println!("{error}"),
        }
    }
}

//! Requests per second on disks of a guest that are served by a program: ours by ublk and by NBD,
//! QEMU's by NBD, and the kernel's own with the same below them. Not a test: it is run by name, and
//! prints a table.

use std::path::Path;

use flysch_lab::Job;
use serde_json::Value;

use super::run;
use crate::common::{labs, put_command, put_program};

/// Number of rounds, unless `FLYSCH_ROUNDS` sets it.
const ROUNDS: usize = 3;
/// The servers of a disk, and their descriptions.
const SERVERS: [(&str, &str); 4] = [
    ("kernel", "the kernel's own"),
    ("ublk", "ours, ublk"),
    ("nbd", "ours, NBD"),
    ("qemu", "qemu-nbd"),
];

/// Requests per second in each round, in ascending order.
fn rates(folder: &Path, name: &str, rounds: usize) -> Vec<f64> {
    let rate = |round| {
        let path = folder.join(format!("{name}-{round}.json"));
        let text = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let json: Value = serde_json::from_str(&text).expect("fio's JSON");
        let direction = if name.contains("read") { "read" } else { "write" };
        json["jobs"][0][direction]["iops"].as_f64().expect("a rate")
    };
    let mut all: Vec<f64> = (1..=rounds).map(rate).collect();
    all.sort_by(f64::total_cmp);
    all
}

#[test]
#[ignore = "a figure, and some minutes of it"]
fn beside_the_kernels_and_qemus() {
    let rounds = std::env::var("FLYSCH_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    for lab in labs() {
        let share = tempfile::tempdir().unwrap();
        for program in ["nbd-client", "qemu-nbd"] {
            assert!(put_program(program, share.path()).is_some(), "{program} is missing");
        }
        put_command(share.path());
        std::fs::write(share.path().join("rounds"), rounds.to_string()).unwrap();
        let job = Job::new(include_str!("rates.sh"), share.path());
        run(&lab, &job, &["rates"], || ());
        let kernel = lab.kernel();
        println!("| {kernel:?}: below it, job | server | IOPS (least, most) | of the kernel's |");
        println!("|---|---|--:|--:|");
        for below in ["null", "memory"] {
            for (rw, depth) in
                [("randread", 1), ("randwrite", 1), ("randread", 32), ("randwrite", 32)]
            {
                let mut own = f64::NAN;
                for (name, title) in SERVERS {
                    let name = format!("{below}-{name}-{rw}-{depth}");
                    let all = rates(&share.path().join("out"), &name, rounds);
                    let (least, middle, most) = (all[0], all[rounds / 2], all[rounds - 1]);
                    own = if own.is_nan() { middle } else { own };
                    println!(
                        "| {below}, {rw}, depth {depth} | {title} | {middle:.0} ({least:.0}, \
                         {most:.0}) | {:.2} |",
                        middle / own
                    );
                }
            }
        }
    }
}

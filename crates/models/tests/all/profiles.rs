//! The device with both queue designs, through registers and DMA memory only, with the virtual
//! clock. For the profiles against the published figures:
//! `cargo test -p flysch-study --test profiles`.

use crate::host::Host;
use flysch_api::machine::{Clock, Wake};
use flysch_models::random::Random;
use flysch_models::ufs::Config;

const BLOCK: u32 = 4096;
/// Each stream, or all random accesses, stay within 1 GiB.
const SPAN: u64 = 1 << 30;

#[derive(Clone, Copy)]
struct Job {
    write: bool,
    random: bool,
    bytes: u32,
    depth: usize,
    total: u64,
}

/// Runs a job; returns bytes per second.
fn run(host: &mut Host, job: Job) -> f64 {
    let mut random = Random::new(7);
    let mut next = 0_u64;
    let blocks = (job.bytes / BLOCK) as u16;
    let count = job.total / u64::from(job.bytes);
    let mut cdb = || {
        let at = if job.random {
            random.below(SPAN / u64::from(job.bytes)) * u64::from(job.bytes)
        } else {
            next += u64::from(job.bytes);
            (next - u64::from(job.bytes)) % SPAN
        };
        let lba = (at / u64::from(BLOCK)) as u32;
        if job.write { Host::write10(lba, blocks) } else { Host::read10(lba, blocks) }
    };
    for slot in 0..job.depth {
        let upiu = Host::command_upiu(0, slot as u8, &cdb(), job.write, job.bytes);
        host.issue(slot as u8, &upiu, job.bytes);
    }
    let (mut done, warm) = (0, count / 8);
    let mut start = 0;
    while done < count {
        assert_eq!(host.machine.wait(None), Wake::Interrupt);
        let now = host.now().nanos();
        for (slot, ocs) in host.reap() {
            let end = host.end(slot, ocs);
            assert_eq!((end.status, end.residual), (0, 0), "{end:?}");
            done += 1;
            if done == warm {
                start = now;
            }
            let slot = usize::from(slot);
            let upiu = Host::command_upiu(0, slot as u8, &cdb(), job.write, job.bytes);
            host.issue(slot as u8, &upiu, job.bytes);
        }
    }
    let bytes = (done - warm) as f64 * f64::from(job.bytes);
    let seconds = (host.now().nanos() - start) as f64 / 1e9;
    // Lets requests in flight end, so that the next job starts from rest.
    while host.machine.wait(None) != Wake::Idle {
        host.reap();
    }
    bytes / seconds
}

const DEPTHS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Random and sequential reads and writes at all depths.
fn measure(queues: u32) -> [[f64; 6]; 4] {
    let mut host = Host::up(Config::default(), 128 << 10, queues);
    [(false, false), (true, false), (false, true), (true, true)].map(|(write, random)| {
        DEPTHS.map(|depth| {
            let (bytes, total) = if random { (4096, 8 << 20) } else { (128 << 10, 48 << 20) };
            run(&mut host, Job { write, random, bytes, depth, total })
        })
    })
}

#[test]
fn circular_queues_change_no_figure_of_the_device() {
    let (doorbell, queues) = (measure(0), measure(4));
    for (one, other) in doorbell.iter().flatten().zip(queues.iter().flatten()) {
        assert!((one / other - 1.0).abs() < 0.03, "{one} and {other}");
    }
}

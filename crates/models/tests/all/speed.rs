//! The processor time that the model takes for one simulated command.

use crate::host::Host;
use flysch_api::machine::{Clock, Registers};
use flysch_models::random::Random;
use flysch_models::ufs::Config;
use flysch_wire::ufs::registers as reg;
use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread, nanoseconds: other programs do not count.
fn spent() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Random 4 KiB reads at depth 32 with a host that does as little as possible; nanoseconds per
/// read.
fn random_reads(host: &mut Host, count: u32) -> f64 {
    let mut random = Random::new(3);
    for slot in 0..32 {
        let lba = random.below(1 << 18) as u32;
        let upiu = Host::command_upiu(0, slot, &Host::read10(lba, 1), false, 4096);
        let utrd = host.prepare(slot, &upiu, 4096);
        host.ring(0, slot, &utrd);
    }
    let (machine, memory) = (host.machine.clone(), host.memory.clone());
    let (mut busy, mut done) = (u32::MAX, 0);
    let start = spent();
    while done < count {
        machine.wait(None);
        machine.write32(reg::IS, 1);
        let mut ended = busy & !machine.read32(reg::UTRLDBR);
        let again = ended;
        while ended != 0 {
            let slot = ended.trailing_zeros();
            ended &= ended - 1;
            let lba = random.below(1 << 18) as u32;
            memory.store32(host.ucd(slot as u8) + 16 + 4, 0);
            memory.write(host.ucd(slot as u8) + 18, &lba.to_be_bytes());
            done += 1;
        }
        machine.write32(reg::UTRLDBR, again);
        busy = u32::MAX;
    }
    (spent() - start) as f64 / f64::from(count)
}

#[test]
fn a_simulated_read_costs_little() {
    let mut host = Host::up(Config::default(), 4096, 0);
    random_reads(&mut host, 10_000);
    let mut host = Host::up(Config::default(), 4096, 0);
    let count = if cfg!(debug_assertions) { 50_000 } else { 1_000_000 };
    let ns = random_reads(&mut host, count);
    println!("{ns:.0} ns of processor time per 4 KiB read, sparse medium");
    // Loose, since processors differ. The figure of record is in docs/ufs-model.md.
    assert!(ns < 20_000.0);
}

#[test]
#[ignore = "takes a gigabyte of memory"]
fn a_simulated_read_of_written_data() {
    let mut host = Host::up(Config::default(), 1 << 20, 0);
    for lba in (0..1 << 18).step_by(256) {
        let end = host.command_out(
            0,
            &Host::write10(lba, 256),
            &(0..1 << 20_u32).map(|n| ((n * 7 + lba) >> 3) as u8).collect::<Vec<_>>(),
        );
        assert_eq!(end.status, 0);
    }
    let ns = random_reads(&mut host, 1_000_000);
    println!("{ns:.0} ns of processor time per 4 KiB read, written medium");
}

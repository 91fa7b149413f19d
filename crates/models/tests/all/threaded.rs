//! The model in its own thread, in real time.

use std::time::{Duration, Instant};

use flysch_api::machine::{Clock, DmaRegion, Identity, Machine, Registers, Wake};
use flysch_models::ufs::{Config, Threaded, Ufs, UnitConfig};
use flysch_wire::ufs::registers as reg;
use flysch_wire::ufs::uic::UicOpcode;
use flysch_wire::ufs::upiu::NopOut;
use flysch_wire::ufs::utrd::{CommandType, UcdSpan, Utrd, UtrdHeader, UtrdStatus};

fn machine(pace: u32) -> Threaded {
    let config = Config { units: vec![Some(UnitConfig::memory(16 << 20))], ..Config::default() };
    let memory = DmaRegion::zeroed(1 << 20, 0);
    let model = Ufs::new(config, memory.clone()).unwrap();
    Threaded::start(model, memory, Identity::default(), pace).unwrap()
}

/// Limit of all waits: no verdict depends on it, it ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(600);

fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "the model does not get on");
        std::thread::yield_now();
    }
}

/// Brings the link and the list up.
fn bring_up(machine: &Threaded) {
    machine.write32(reg::HCE, 1);
    until(|| machine.read32(reg::HCE) == 1);
    machine.write32(reg::UICCMD, u32::from(UicOpcode::DmeLinkstartup.into_bits()));
    until(|| machine.read32(reg::HCS) & 1 == 1);
    machine.write32(reg::IE, 1);
    machine.write32(reg::UTRLRSR, 1);
    for slot in 0..32_u8 {
        let ucd = 0x1_0000 + usize::from(slot) * 1024;
        let utrd = Utrd {
            header: UtrdHeader::new().with_ct(CommandType::UfsStorage).with_i(true),
            dun: 0,
            status: UtrdStatus::PENDING,
            ucd_base: ucd as u64,
            response: UcdSpan::new().with_length(64).with_offset(64),
            prdt: UcdSpan::new(),
        };
        let mut bytes = [0; 32];
        utrd.emit(&mut bytes);
        machine.memory().write(usize::from(slot) * 32, &bytes);
        let mut upiu = [0; 32];
        NopOut::new(slot).emit(&mut upiu);
        machine.memory().write(ucd, &upiu);
    }
}

#[test]
fn several_threads_drive_one_model_without_losing_a_command() {
    let machine = machine(1000);
    bring_up(&machine);
    // Four lanes with eight slots each, as a driver would share the single doorbell.
    std::thread::scope(|scope| {
        for lane in 0..4_u32 {
            let machine = machine.clone();
            scope.spawn(move || {
                let mine = 0xFF << (8 * lane);
                for _ in 0..300 {
                    machine.write32(reg::UTRLDBR, mine);
                    until(|| machine.read32(reg::UTRLDBR) & mine == 0);
                    for slot in 8 * lane..8 * lane + 8 {
                        let response = 0x1_0000 + slot as usize * 1024 + 256;
                        assert_eq!(machine.memory().load32(response) & 0xFF, 0x20, "NOP IN");
                        machine.memory().store32(response, 0);
                        assert!(machine.device_done(0, slot as u16).is_some());
                    }
                }
            });
        }
    });
}

#[test]
fn an_interrupt_ends_a_wait_and_is_never_lost() {
    let machine = machine(1000);
    bring_up(&machine);
    for _ in 0..300 {
        machine.write32(reg::UTRLDBR, 1);
        loop {
            let woken = machine.wait(Some(machine.now() + PATIENCE));
            assert_eq!(woken, Wake::Interrupt);
            machine.write32(reg::IS, 1);
            if machine.read32(reg::UTRLDBR) & 1 == 0 {
                break;
            }
        }
    }
    assert_eq!(machine.wait(None), Wake::Idle);
    let start = machine.now();
    assert_eq!(machine.wait(Some(start.after_nanos(3_000_000))), Wake::Deadline);
    assert!(machine.now().nanos_since(start) >= 3_000_000);
}

#[test]
fn circular_queues_work_from_two_threads() {
    let machine = machine(1000);
    bring_up(&machine);
    machine.write32(reg::CONFIG, 1);
    let bank = reg::McqCap::from_bits(machine.read32(reg::MCQCAP));
    let size = reg::ring_size_field(16).unwrap();
    let register = |queue: u8, at: u32| bank.queue_offset(queue) + at;
    for queue in 0..2_u8 {
        let ring = 0x8000 + u32::from(queue) * 0x1000;
        machine.write32(register(queue, reg::mcq::SQLBA), ring);
        machine.write32(register(queue, reg::mcq::CQLBA), ring + 0x400);
        let cq = reg::CqAttr::new().with_size(size).with_cqen(true);
        machine.write32(register(queue, reg::mcq::CQATTR), cq.into_bits());
        let sq = reg::SqAttr::new().with_size(size).with_sqen(true).with_cqid(queue);
        machine.write32(register(queue, reg::mcq::SQATTR), sq.into_bits());
    }
    std::thread::scope(|scope| {
        for queue in 0..2_u8 {
            let machine = machine.clone();
            scope.spawn(move || {
                let sq = machine.read32(register(queue, reg::mcq::SQDAO));
                let cq = machine.read32(register(queue, reg::mcq::CQDAO));
                let ring = 0x8000 + usize::from(queue) * 0x1000;
                let mut tail = 0_usize;
                for round in 0..400 {
                    let slot = usize::from(queue) * 16 + round % 16;
                    let mut utrd = [0; 32];
                    machine.memory().read(slot * 32, &mut utrd);
                    machine.memory().write(ring + tail, &utrd);
                    tail = (tail + 32) % (16 * 32);
                    machine.write32(sq + reg::mcq::SQTP, tail as u32);
                    until(|| machine.read32(cq + reg::mcq::CQTP) == tail as u32);
                    let head = (tail + 15 * 32) % (16 * 32);
                    let status = machine.memory().load32(ring + 0x400 + head + 16);
                    let nexus = machine.memory().load32(ring + 0x400 + head + 20);
                    assert_eq!((status, nexus as usize & 0xFF), (0, slot));
                    machine.write32(cq + reg::mcq::CQHP, tail as u32);
                }
            });
        }
    });
}

#[test]
fn an_idle_model_uses_no_processor_and_ends_with_its_last_handle() {
    let machine = machine(1000);
    bring_up(&machine);
    assert_eq!(machine.wait(None), Wake::Idle);
    let thread = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let of = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
            let (name, rest) = stat.rsplit_once(')')?;
            let times: Vec<&str> = rest.split_whitespace().collect();
            let ticks: u64 = times[11].parse::<u64>().ok()? + times[12].parse::<u64>().ok()?;
            name.ends_with("(ufs-model").then_some(ticks)
        };
        tasks.filter_map(|task| of(task.ok()?)).collect::<Vec<_>>()
    };
    let before: u64 = thread().iter().sum();
    std::thread::sleep(Duration::from_millis(300));
    let after: u64 = thread().iter().sum();
    assert!(after - before <= 5, "{} ticks while idle", after - before);
    let clone = machine.clone();
    drop(machine);
    assert_eq!(clone.read32(reg::HCE), 1);
    assert_eq!(clone.with_model(|ufs| ufs.faults().total()), Some(0));
    drop(clone);
}

#[test]
fn scaled_time_passes_faster() {
    const PACE: u64 = 50;
    let machine = machine(PACE as u32 * 1000);
    // Each reading of the model's clock is between two of the system's, however long they take.
    let read = || (Instant::now(), machine.now(), Instant::now());
    let first = read();
    std::thread::sleep(Duration::from_millis(20));
    let last = read();
    let model = last.1.nanos_since(first.1);
    let [least, most] = [last.0 - first.2, last.2 - first.0].map(|real| real.as_nanos() as u64);
    assert!((PACE * least..=PACE * most).contains(&model), "{model} in {least} to {most} ns");
    bring_up(&machine);
}

//! Interrupts: a vector for each queue, several completions for one interrupt.

use flysch_api::command::{Ended, Port as _};
use flysch_api::machine::{Clock, DmaRegion, Identity, Machine, Wake};
use flysch_models::ufs::{Config, Threaded, Ufs};
use flysch_tests::ufs::{Model, buffer, done, machine, ports, read};
use flysch_ufs::{Aggregation, Host, Port, QueueMode, State, Timeouts, UfsError, UfsOptions};

fn mcq(lanes: u8) -> UfsOptions {
    UfsOptions { queue: QueueMode::Mcq, lanes, ..UfsOptions::default() }
}

#[test]
fn each_lane_waits_on_its_own_vector() {
    for interrupts in [true, false] {
        let machine = machine(Config::default());
        let mut ports = ports(&machine, UfsOptions { interrupts, ..mcq(4) });
        done(&mut ports[0], &machine, read(0, buffer(&machine, 0, 4096)));
        for (lane, port) in ports.iter_mut().enumerate() {
            assert_eq!(usize::from(port.vector()), lane);
            let mine = machine.on_vector(port.vector());
            let other = machine.on_vector((port.vector() + 1) % 4);
            for block in 0..3 {
                port.start(read(block, buffer(&machine, 0, 4096)), machine.now()).expect("room");
                port.ring(machine.now());
                assert!(port.poll(machine.now()).is_none());
                assert!(interrupts || port.arm(), "nothing has ended");
                // No other clearing can interfere: nobody polls in between.
                let at = port.poll_at().expect("a command is in flight");
                assert!(at.nanos_since(machine.now()) > 40_000_000);
                let soon = machine.now().after_nanos(2_000_000);
                if interrupts {
                    assert_eq!(other.wait(Some(soon)), Wake::Deadline, "another lane's vector");
                }
                assert_eq!(mine.wait(None), Wake::Interrupt);
                assert_eq!(port.poll(machine.now()).expect("it has ended").ended, Ended::Good);
                assert!(port.poll(machine.now()).is_none());
            }
        }
    }
}

#[test]
fn a_controller_or_a_caller_without_vectors_has_the_line() {
    let without = Config { event_interrupts: false, ..Config::default() };
    let unwanted = UfsOptions { event_interrupts: false, ..mcq(4) };
    for (config, options) in [(without, mcq(4)), (Config::default(), unwanted)] {
        let machine = machine(config);
        let mut ports = ports(&machine, options);
        done(&mut ports[0], &machine, read(0, buffer(&machine, 0, 4096)));
        for port in &mut ports {
            assert_eq!(port.vector(), 0);
            done(port, &machine, read(1, buffer(&machine, 0, 4096)));
        }
    }
}

/// Reads 200 blocks, two at a time, waiting only for the port's own vector.
fn read_blocks(port: &mut Port<Threaded>, machine: &Threaded) {
    let clock = machine.on_vector(port.vector());
    let (mut started, mut ended) = (0, 0);
    while ended < 200 {
        while started - ended < 2 && started < 200 {
            let place = usize::from(port.lane_index()) * 2 + started as usize % 2;
            port.start(read(started, buffer(machine, place, 4096)), clock.now()).expect("room");
            started += 1;
        }
        port.ring(clock.now());
        while let Some(outcome) = port.poll(clock.now()) {
            assert_eq!(outcome.ended, Ended::Good);
            ended += 1;
        }
        if started == 200 || started - ended == 2 {
            let woken = if ended == 200 { break } else { clock.wait(port.poll_at()) };
            assert_eq!(woken, Wake::Interrupt, "an interrupt was lost");
        }
    }
}

/// Time-outs that are all this long.
fn patient(ms: u32) -> Timeouts {
    Timeouts {
        enable_ms: ms,
        uic_ms: ms,
        nop_ms: ms,
        query_ms: ms,
        device_init_ms: ms,
        task_ms: ms,
        clear_ms: ms,
        start_stop_ms: ms,
        service_ms: ms,
        watchdog_ms: ms,
        host_ms: ms,
        ..Timeouts::default()
    }
}

#[test]
fn lanes_in_threads_of_their_own_lose_no_interrupt() {
    let memory = DmaRegion::zeroed(17 << 20, 0x1_0000_0000);
    let model = Ufs::new(Config::default(), memory.clone()).expect("a device");
    let machine = Threaded::start(model, memory, Identity::default(), 1000).expect("a thread");
    // A lane that misses an interrupt polls again only after minutes, which is noticed. This
    // machine's clock is real: a model whose thread gets no processor time for a while is not a
    // silent device, so nothing else times out before that either.
    let timeouts = patient(300_000);
    let driver = machine.memory().carve(0, 1 << 20);
    let options = UfsOptions { timeouts, apart: true, ..mcq(4) };
    let mut host = Host::new(machine.clone(), driver, options).expect("options that fit");
    host.bring_up(&machine).expect("up");
    // Nobody polls the host: it stays until all are done, and is not needed. A host in trouble
    // would be needed, and would hold everything up until it was polled.
    assert_eq!(host.state(), State::Up, "{:?}", host.errors().history().next());
    let (_host, mut ports) = host.split().expect("a lane of its own");
    done(&mut ports[0], &machine, read(0, buffer(&machine, 0, 4096)));
    std::thread::scope(|scope| {
        for mut port in ports {
            let machine = machine.clone();
            scope.spawn(move || read_blocks(&mut port, &machine));
        }
    });
}

/// The effect of aggregation on one workload.
struct Measured {
    per_interrupt: f64,
    mean_us: f64,
    thousands: f64,
}

/// 4000 reads at random positions, `depth` in flight, on a machine whose software takes no time.
fn measure(queue: QueueMode, depth: u32, aggregation: Option<Aggregation>) -> Measured {
    const READS: u32 = 4000;
    let machine = machine(Config::default());
    let mut ports = ports(&machine, UfsOptions { queue, aggregation, ..UfsOptions::default() });
    let port = &mut ports[0];
    done(port, &machine, read(0, buffer(&machine, 0, 4096)));
    let interrupts = |machine: &Model| machine.with_model(|model| model.interrupts());
    let (before, begin) = (interrupts(&machine), machine.now());
    let (mut started, mut ended, mut latency) = (0_u32, 0, 0);
    while ended < READS {
        while started < READS && started - ended < depth {
            let block = started.wrapping_mul(2_654_435_761) % 65_536;
            let data = buffer(&machine, (started % 32) as usize, 4096);
            port.start(read(block, data), machine.now()).expect("room");
            started += 1;
        }
        port.ring(machine.now());
        machine.wait(port.poll_at());
        while let Some(outcome) = port.poll(machine.now()) {
            assert_eq!(outcome.ended, Ended::Good);
            latency += machine.now().nanos_since(outcome.issued);
            ended += 1;
        }
    }
    let count = f64::from(READS);
    Measured {
        per_interrupt: count / (interrupts(&machine) - before) as f64,
        mean_us: latency as f64 / count / 1e3,
        thousands: count * 1e6 / machine.now().nanos_since(begin) as f64,
    }
}

/// The table of docs/bench.md, which must contain every line of it.
#[test]
fn completions_share_interrupts_at_the_price_of_latency() {
    let told = include_str!("../../../docs/bench.md");
    let mut stale = vec![];
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        for depth in [1, 8, 32] {
            let mut plain = None;
            for (completions, timeout_us) in [(0, 0), (4, 80), (8, 200), (16, 400), (31, 400)] {
                let aggregation =
                    (completions > 0).then_some(Aggregation { completions, timeout_us });
                let measured = measure(queue, depth, aggregation);
                let Measured { per_interrupt, mean_us, thousands } = measured;
                let name = match completions {
                    0 => "off".into(),
                    _ => format!("{completions} in {timeout_us} µs"),
                };
                let line = format!(
                    "| {depth} | {name} | {per_interrupt:.1} | {mean_us:.0} | {thousands:.1} |"
                );
                println!("{queue:?}: {line}");
                if !told.contains(&line) {
                    stale.push(line);
                }
                let plain = plain.get_or_insert(mean_us);
                // Never more than requested, nor later than the timer; what comes back together is
                // sent together and waits for the same dies.
                let most = f64::from(completions.max(1));
                let batch = f64::from(depth).min(most);
                assert!(per_interrupt <= f64::from(depth).max(most) + 0.1);
                let longest = *plain * 2.0 + f64::from(timeout_us);
                assert!(mean_us <= longest, "{mean_us} of {longest}");
                if depth > u32::from(completions) {
                    assert!(per_interrupt >= batch * 0.9, "{per_interrupt} of {batch}");
                }
            }
        }
    }
    assert!(stale.is_empty(), "docs/bench.md does not have {stale:#?}");
}

#[test]
fn what_cannot_be_aggregated_is_refused() {
    let machine = machine(Config::default());
    let memory = machine.memory().carve(0, 1 << 20);
    let one = Aggregation { completions: 4, timeout_us: 80 };
    let new = |options| Host::new(machine.clone(), memory.clone(), options).map(|_| ());
    let sdq = UfsOptions { queue: QueueMode::Sdq, aggregation: Some(one), ..UfsOptions::default() };
    assert_eq!(new(sdq.clone()), Ok(()));
    // One counter for all lanes: restarting it would lose the completions of the others.
    assert!(matches!(new(UfsOptions { lanes: 2, ..sdq.clone() }), Err(UfsError::Options(_))));
    for (completions, timeout_us) in [(0, 80), (32, 80), (4, 39), (4, 10_201)] {
        let aggregation = Some(Aggregation { completions, timeout_us });
        assert!(matches!(
            new(UfsOptions { aggregation, ..sdq.clone() }),
            Err(UfsError::Options(_))
        ));
    }
}

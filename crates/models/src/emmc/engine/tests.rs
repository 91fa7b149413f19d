//! The engine without a card.

use super::*;
use crate::faults::{Plan, Trigger};

/// An engine that is on, with one task ready for the data lines.
fn with_task(engine: &mut Engine, backend: &mut Backend) {
    engine.write(CQCFG, Cqcfg::new().with_enable(true).into_bits(), backend);
    engine.tasks.hold(4, Descriptor::new().with_read(true).with_blocks(8).into_bits());
    engine.tasks.begin(4);
    engine.tasks.is_ready(4);
}

#[test]
fn a_halt_waits_for_the_lines_and_ends_with_a_reset() {
    let config = Config::default();
    let (mut engine, mut host) = (Engine::new(&config), Host::new(&config));
    let mut backend = Backend::new(&config.profile, 1);
    let mut clock = Clock::with_capacity(8);
    with_task(&mut engine, &mut backend);
    engine.pump(&mut host, &mut backend, &mut clock);
    let Some(Event::Moved(name)) = clock.take_due(flysch_api::machine::Instant::NEVER) else {
        panic!("nothing moves");
    };
    let halt = Cqctl::new().with_halt(true).into_bits();
    assert!(!engine.write(CQCTL, halt, &mut backend));
    assert_eq!(engine.read(CQCTL), 0, "a task is on the lines");
    engine.reset(&mut backend);
    assert!(!engine.is_current(name));
    with_task(&mut engine, &mut backend);
    engine.pump(&mut host, &mut backend, &mut clock);
    assert!(clock.next().is_some(), "the halt went with what it waited for");
    assert!(engine.write(CQCTL, 0, &mut backend));
    engine.tasks.moved(4);
    assert!(!engine.write(CQCTL, halt, &mut backend));
    assert_eq!(engine.read(CQCTL), halt, "the lines are free");
}

/// A write whose data has room, all of the device's, but has not come.
fn with_write(engine: &mut Engine, number: u8, backend: &mut Backend) {
    let bytes = Config::default().profile.timing.write_buffer_bytes;
    let blocks = (bytes / 512) as u16;
    engine.write(CQCFG, Cqcfg::new().with_enable(true).into_bits(), backend);
    engine.tasks.hold(number, Descriptor::new().with_blocks(blocks).into_bits());
    engine.tasks.begin(number);
    assert!(backend.admit_task(number, bytes), "task {number}: no room");
    engine.tasks.is_ready(number);
}

#[test]
fn room_of_a_write_comes_back_however_it_ends() {
    let config = Config::default();
    let (mut engine, mut host) = (Engine::new(&config), Host::new(&config));
    let mut backend = Backend::new(&config.profile, 1);
    let ecc = CardStatus::new().with_ecc_failed(true);
    for number in [4, DIRECT] {
        for wrong in [Wrong::Response(13, ecc), Wrong::Data(Interrupts::new().with_adma(true))] {
            with_write(&mut engine, number, &mut backend);
            engine.fail(number, wrong, &mut host, &mut backend);
            engine.drop_tasks(&mut backend);
        }
        with_write(&mut engine, number, &mut backend);
        engine.write(CQTCLR, 1 << number, &mut backend);
        with_write(&mut engine, number, &mut backend);
        engine.swallow(number, &mut backend);
        engine.drop_tasks(&mut backend);
        with_write(&mut engine, number, &mut backend);
        engine.swallow_all(&mut backend);
        engine.drop_tasks(&mut backend);
    }
}

#[test]
fn a_write_on_the_medium_that_ends_late_does_not_end_with_the_next_die() {
    let plan = Plan::none().with(Kind::Late, Trigger::Every(1));
    let mut config = Config { faults: plan, ..Config::default() };
    let mut faults = Injector::new(config.faults.clone(), 1);
    let (mut engine, mut device) = (Engine::new(&config), Device::new(&mut config));
    let mut clock = Clock::with_capacity(64);
    with_write(&mut engine, 4, &mut device.backend);
    let name = engine.tasks.name(4);
    engine.end_data(name, &mut device, &mut clock, &mut faults);
    let mut late = None;
    while let Some(event) = clock.take_due(flysch_api::machine::Instant::NEVER) {
        match event {
            Event::Die(die) => {
                device.die_done(&mut clock, die);
                engine.end_settled(&mut device, &mut clock, &mut faults);
                // The next die, of another write.
                engine.end_settled(&mut device, &mut clock, &mut faults);
            }
            Event::Late(task) => late = Some(task),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((late, engine.is_current(name)), (Some(name), true), "it has not ended");
}

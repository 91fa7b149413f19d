//! The engine without a card.

use super::*;

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

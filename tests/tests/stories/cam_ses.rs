//! The `ses` driver and the modelled enclosure, which share only the formats of pages.

use flysch_api::machine::{Clock, DmaRegion, Instant, Wake};
use flysch_cam::CamError;
use flysch_cam::ses::{Enclosure, Reader, SCRATCH_BYTES};
use flysch_models::ses::{Config, Enclosure as Model, EnclosurePort};
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::scsi::ses::{ElementType, StatusCode};
use std::cell::Cell;

/// Time passes when somebody waits.
struct Waiting(Cell<Instant>);

impl Clock for Waiting {
    fn now(&self) -> Instant {
        self.0.get()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        let until = until.expect("nobody waits for ever");
        self.0.set(until.max(self.0.get().after_nanos(1)));
        Wake::Deadline
    }
}

fn port() -> EnclosurePort {
    let slots = vec![Some(0x5000_0000_0000_00A0), None, Some(0x5000_0000_0000_00A2), None];
    let config = Config { slots, identifier: 0x5F1A_5C00_0000_0099 };
    EnclosurePort::new(Model::new(config), DmaRegion::zeroed(64 << 10, 0x1_0000))
}

/// Calls a function with the enclosure behind a port.
fn with<R>(
    port: &mut EnclosurePort,
    what: impl FnOnce(&mut Reader<'_, EnclosurePort, Waiting>) -> R,
) -> R {
    use flysch_api::command::Port as _;
    let clock = Waiting(Cell::new(Instant::from_nanos(1)));
    let scratch = port.memory().carve(4096, SCRATCH_BYTES);
    let lun = LogicalUnitNumber::default();
    what(&mut Reader { port, clock: &clock, scratch: &scratch, lun })
}

fn read(port: &mut EnclosurePort) -> Enclosure {
    with(port, |reader| reader.read()).unwrap()
}

#[test]
fn an_enclosure_tells_its_elements_and_what_is_where() {
    let mut port = port();
    let enclosure = read(&mut port);
    assert_eq!(enclosure.name, "FLYSCH Enclosure 1.0");
    assert_eq!((enclosure.condition().as_str(), enclosure.elements.len()), ("OK", 12));
    let kinds: Vec<ElementType> =
        enclosure.elements.iter().filter(|one| one.number == 0).map(|one| one.kind).collect();
    use ElementType::{ArrayDeviceSlot, Cooling, PowerSupply, Temperature};
    assert_eq!(kinds, [ArrayDeviceSlot, Cooling, Temperature, PowerSupply]);
    let third = &enclosure.elements[3];
    assert_eq!((third.description.as_str(), third.slot), ("Slot 02", Some(2)));
    assert_eq!((third.code(), third.address), (StatusCode::Ok, Some(0x5000_0000_0000_00A2)));
    assert_eq!(
        enclosure.physical_path(third),
        "id1,enc@n5f1a5c0000000099/type@0/slot@3/elmdesc@Slot_02"
    );
    let empty = &enclosure.elements[2];
    assert_eq!((empty.code(), empty.address), (StatusCode::NotInstalled, None));
    let fan = &enclosure.elements[6];
    assert_eq!(fan.measured().as_deref(), Some("Speed: 4500 rpm"));
    let inlet = &enclosure.elements[9];
    assert_eq!(inlet.measured().as_deref(), Some("Temperature: 31 C"));
}

#[test]
fn what_breaks_and_moves_is_seen() {
    let mut port = port();
    port.enclosure.break_fan(Some(StatusCode::Critical));
    port.enclosure.plug(0, None);
    port.enclosure.plug(1, Some(7));
    let enclosure = read(&mut port);
    assert_eq!(enclosure.condition(), "CRITICAL");
    assert_eq!(enclosure.elements[6].code(), StatusCode::Critical);
    assert_eq!(enclosure.generation, 2);
    let addresses: Vec<_> = enclosure.elements[1..=4].iter().map(|one| one.address).collect();
    assert_eq!(addresses, [None, Some(7), Some(0x5000_0000_0000_00A2), None]);
}

#[test]
fn lights_are_switched_one_by_one() {
    let mut port = port();
    let before = read(&mut port);
    with(&mut port, |reader| reader.set_lights(&before, 3, true, false)).unwrap();
    let after = read(&mut port);
    let located: Vec<bool> = after.elements.iter().map(|one| one.is_located()).collect();
    assert_eq!(located.iter().filter(|is| **is).count(), 1);
    assert!(located[3] && !after.elements[3].is_marked_faulty());
    with(&mut port, |reader| reader.set_lights(&after, 4, false, true)).unwrap();
    let last = read(&mut port);
    assert!(last.elements[4].is_marked_faulty() && last.elements[3].is_located());
    // Elements other than slots have no lights, and after a change the page must be read again.
    let wrong = with(&mut port, |reader| reader.set_lights(&last, 6, true, false));
    assert!(matches!(wrong, Err(CamError::BadAnswer { .. })), "{wrong:?}");
    port.enclosure.plug(0, None);
    let stale = with(&mut port, |reader| reader.set_lights(&last, 3, false, false));
    assert!(matches!(stale, Err(CamError::Command { sense: Some((5, 0x26, 0)), .. })), "{stale:?}");
}

#[test]
fn a_unit_that_is_no_enclosure_is_told() {
    let mut port = port();
    let lun = LogicalUnitNumber::from_ufs(1);
    let wrong = with(&mut port, |reader| {
        reader.lun = lun;
        reader.read()
    });
    assert!(matches!(wrong, Err(CamError::Command { .. })), "{wrong:?}");
    let short = port.enclosure.clone();
    let mut tiny = EnclosurePort::new(short, DmaRegion::zeroed(4096, 0x1_0000));
    let clock = Waiting(Cell::new(Instant::from_nanos(1)));
    let scratch = DmaRegion::zeroed(4096, 0x1_0000);
    let lun = LogicalUnitNumber::default();
    let none = Reader { port: &mut tiny, clock: &clock, scratch: &scratch, lun }.read();
    assert_eq!(none, Err(CamError::Scratch { needed: SCRATCH_BYTES, got: 4096 }));
}

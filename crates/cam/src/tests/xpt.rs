use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::Change;

use crate::Attention;
use crate::xpt::{Async, Description, Due, Listing, Path, Table, devlist};

fn described(target: u32, text: &str, driver: &'static str) -> Description {
    let serial = std::format!("S{target}{text}");
    let driver = (!driver.is_empty()).then_some(driver);
    Description { target, text: text.into(), serial, driver, bytes: 1 << 30, ..Default::default() }
}

/// A SAS controller with SATA disks behind it, and a SATA port with a port multiplier.
fn motins_machine() -> Table {
    let mut table = Table::new();
    let (sas, _) = table.add_bus("mps");
    let ssd = |target| described(target, "ATA INTEL SSDSC2CW12 400i", "da");
    table.scanned(Path::of_bus(sas), (0..5).map(ssd).collect());
    let (sata, _) = table.add_bus("ahcich");
    let found = vec![
        described(0, "INTEL SSDSC2CW120A3 400i", "ada"),
        described(1, "Marvell Console 1.01", ""),
        described(15, "Port Multiplier 37261095 1706", "pmp"),
    ];
    table.scanned(Path::of_bus(sata), found);
    table
}

#[test]
fn the_list_is_camcontrols() {
    let table = motins_machine();
    let verbose = Listing { verbose: true, buses_only: false };
    let golden = "\
scbus0 on mps0 bus 0:
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 0 lun 0 (pass0,da0)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 1 lun 0 (pass1,da1)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 2 lun 0 (pass2,da2)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 3 lun 0 (pass3,da3)
<ATA INTEL SSDSC2CW12 400i>        at scbus0 target 4 lun 0 (pass4,da4)
<>                                 at scbus0 target -1 lun ffffffff ()
scbus1 on ahcich0 bus 0:
<INTEL SSDSC2CW120A3 400i>         at scbus1 target 0 lun 0 (ada0,pass5)
<Marvell Console 1.01>             at scbus1 target 1 lun 0 (pass6)
<Port Multiplier 37261095 1706>    at scbus1 target 15 lun 0 (pmp0,pass7)
<>                                 at scbus1 target -1 lun ffffffff ()
scbus-1 on xpt0 bus 0:
<>                                 at scbus-1 target -1 lun ffffffff (xpt0)";
    assert_eq!(devlist(&table, verbose).join("\n"), golden);
    let units: Vec<&str> = golden.lines().filter(|line| !line.starts_with("<>")).collect();
    let plain: Vec<&str> = units.iter().copied().filter(|line| line.starts_with('<')).collect();
    assert_eq!(devlist(&table, Listing::default()), plain);
    let buses: Vec<&str> = units.into_iter().filter(|line| line.starts_with("scbus")).collect();
    let only = Listing { verbose: false, buses_only: true };
    assert_eq!(devlist(&table, only), buses);
}

/// What became of the device of each driver.
fn told(events: &[crate::xpt::Event]) -> Vec<(String, Change)> {
    let device = |event: &crate::xpt::Event| event.change.map(|(p, c)| (p.to_string(), c));
    events.iter().filter_map(device).collect()
}

#[test]
fn a_scan_tells_what_came_what_went_and_what_is_another() {
    let mut table = motins_machine();
    let bus = Path::of_bus(0);
    let ssd = |target| described(target, "ATA INTEL SSDSC2CW12 400i", "da");
    let same = (0..5).map(ssd).collect();
    assert_eq!(table.scanned(bus, same), vec![], "nothing changed");
    // Target 1 is gone, 2 was exchanged, 3 grew, 9 is new.
    let other = Description { serial: "another".into(), ..ssd(2) };
    let larger = Description { bytes: 2 << 30, ..ssd(3) };
    let events = table.scanned(bus, vec![ssd(0), other, larger, ssd(4), ssd(9)]);
    let codes: Vec<Async> = events.iter().map(|event| event.code).collect();
    use Async::{FoundDevice, GetdevChanged, LostDevice};
    assert_eq!(codes, [LostDevice, LostDevice, FoundDevice, GetdevChanged, FoundDevice]);
    assert_eq!(
        told(&events),
        [
            ("da1".into(), Change::Gone),
            ("da2".into(), Change::Gone),
            // The lowest number that is free.
            ("da1".into(), Change::Arrived),
            ("da3".into(), Change::Resized { bytes: 2 << 30 }),
            ("da2".into(), Change::Arrived),
        ]
    );
    // A scan of one target says nothing about the others.
    let path = Path { bus: 0, target: 9, lun: 0 };
    assert_eq!(told(&table.scanned(path.target(), vec![])), [("da2".into(), Change::Gone)]);
    assert_eq!(table.units().filter(|unit| unit.path.bus == 0).count(), 4);
    // What is outside the scope is ignored.
    assert_eq!(table.scanned(path, vec![ssd(0), ssd(7)]), vec![]);
}

#[test]
fn controllers_come_and_go() {
    let mut table = motins_machine();
    let events = table.remove_bus(0);
    assert_eq!(events.len(), 6);
    assert_eq!(events[5].code, Async::PathDeregistered);
    assert_eq!(told(&events)[4], ("da4".into(), Change::Gone));
    assert_eq!(table.remove_bus(0), vec![], "it is gone already");
    let (bus, event) = table.add_bus("ahcich");
    assert_eq!((bus, event.code), (0, Async::PathRegistered));
    assert_eq!(table.buses()[0].to_string(), "scbus0 on ahcich1 bus 0:");
    // The numbers of what has gone are free again.
    table.scanned(Path::of_bus(0), vec![described(0, "DISK", "ada")]);
    assert_eq!(table.named("ada1").map(|unit| unit.path.bus), Some(0));
    assert_eq!(table.named("pass0").map(|unit| unit.path.bus), Some(0));
}

#[test]
fn attentions_say_what_is_due() {
    let mut table = motins_machine();
    let path = Path { bus: 0, target: 3, lun: 0 };
    let none = Attention::default();
    let mut due = |attention| {
        let (events, due) = table.attention(path, attention);
        assert_eq!(events[0].code, Async::UnitAttention);
        (told(&events), due)
    };
    let reset = vec![("da3".into(), Change::Reset)];
    assert_eq!(due(Attention { reset: true, ..none }), (reset, Due::Nothing));
    assert_eq!(due(Attention { capacity: true, ..none }), (vec![], Due::Scan(path)));
    assert_eq!(due(Attention { luns: true, ..none }), (vec![], Due::Scan(path.target())));
    let medium = vec![("da3".into(), Change::Medium)];
    assert_eq!(due(Attention { identity: true, ..none }), (medium, Due::Scan(path)));
    let nowhere = Path { bus: 5, ..path };
    assert_eq!(table.attention(nowhere, none), (vec![], Due::Nothing));
    assert_eq!(told(&table.bus_reset(0)).len(), 5);
    let event = table.set_physical_path(path, Some("enc@1/slot@4".into())).unwrap();
    assert_eq!(told(&[event]), [("da3".into(), Change::Attribute("GEOM::physpath"))]);
    assert_eq!(table.set_physical_path(path, Some("enc@1/slot@4".into())), None);
}

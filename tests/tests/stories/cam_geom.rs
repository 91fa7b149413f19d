//! What the command layer's table of devices reports, and what GEOM does with it: neither knows the
//! other; what passes between them is [`Change`].

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use flysch_api::block::{self, Change};
use flysch_cam::Attention;
use flysch_cam::xpt::{Description, Due, Event, Path, Table};
use flysch_geom::class::disk::{self, DISK, Memory};
use flysch_geom::{Graph, Medium, ProviderId, Shape};

/// A medium that the test can exchange while the graph uses it.
#[derive(Debug)]
struct Exchangeable(Rc<RefCell<Memory>>);

impl Medium for Exchangeable {
    fn shape(&self) -> Shape {
        self.0.borrow().shape()
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), block::BlockError> {
        self.0.borrow_mut().read(offset, to)
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), block::BlockError> {
        self.0.borrow_mut().write(offset, from)
    }

    fn delete(&mut self, offset: u64, length: u64) -> Result<(), block::BlockError> {
        self.0.borrow_mut().delete(offset, length)
    }

    fn flush(&mut self) -> Result<(), block::BlockError> {
        self.0.borrow_mut().flush()
    }

    fn properties(&self) -> Vec<(&'static str, String)> {
        self.0.borrow().properties()
    }
}

/// A master boot record with one partition of 1 MiB at 1 MiB.
fn partitioned() -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    let entry = [0, 0, 2, 0, 0x83, 0xFE, 0xFF, 0xFF, 0, 8, 0, 0, 0, 8, 0, 0];
    bytes[446..462].copy_from_slice(&entry);
    bytes[510..512].copy_from_slice(&[0x55, 0xAA]);
    bytes
}

/// A graph whose disks are those of a table.
struct Connected {
    media: HashMap<String, Rc<RefCell<Memory>>>,
    graph: Graph,
    disks: HashMap<String, ProviderId>,
    table: Table,
}

const SIZE: usize = 8 << 20;

fn described(target: u32, serial: &str, bytes: usize) -> Description {
    Description {
        target,
        text: "FLYSCH DISK 1".into(),
        serial: serial.into(),
        driver: Some("da"),
        bytes: bytes as u64,
        ..Description::default()
    }
}

impl Connected {
    fn new() -> Self {
        let mut table = Table::new();
        table.add_bus("mps");
        let graph = Graph::new(&flysch_geom::all(), 1);
        Self { media: HashMap::new(), graph, disks: HashMap::new(), table }
    }

    fn tell(&mut self, events: Vec<Event>) {
        for (periph, change) in events.into_iter().filter_map(|event| event.change) {
            let name = periph.to_string();
            if change == Change::Arrived {
                let memory = Rc::new(RefCell::new(Memory::new(SIZE)));
                memory.borrow_mut().bytes = partitioned();
                let medium = Box::new(Exchangeable(Rc::clone(&memory)));
                self.media.insert(name.clone(), memory);
                let provider = DISK.insert(&mut self.graph, &name, medium).unwrap();
                self.graph.settle();
                self.disks.insert(name, provider);
            } else if change == Change::Gone {
                let provider = self.disks.remove(&name).unwrap();
                disk::changed(&mut self.graph, provider, change);
            } else {
                disk::changed(&mut self.graph, self.disks[&name], change);
            }
        }
    }

    fn scan(&mut self, found: Vec<Description>) {
        let events = self.table.scanned(Path::of_bus(0), found);
        self.tell(events);
    }

    fn has(&self, name: &str) -> bool {
        self.graph.provider(name).is_ok()
    }
}

#[test]
fn hot_plug_goes_up_to_the_graph() {
    let mut machine = Connected::new();
    machine.scan(vec![described(0, "A", SIZE), described(1, "B", SIZE)]);
    assert!(machine.has("da0") && machine.has("da1"));

    assert!(machine.has("da0s1") && machine.has("da1s1"), "their partitions");

    // The second disk goes away, and everything above it.
    machine.scan(vec![described(0, "A", SIZE)]);
    assert!(machine.has("da0s1"));
    assert!(!machine.has("da1") && !machine.has("da1s1"));

    // Another disk replaces the first: the old one is gone before the new one comes.
    let old = machine.disks["da0"];
    machine.scan(vec![described(0, "C", SIZE)]);
    assert!(machine.has("da0") && machine.disks["da0"] != old);

    // It grows: the provider is the same but larger, in whole sectors.
    let provider = machine.disks["da0"];
    machine.scan(vec![described(0, "C", 2 * SIZE + 100)]);
    assert_eq!(machine.graph[provider].media_size, 2 * SIZE as u64);

    // A unit attention reports that the medium may have changed, and it has: no partitions.
    let path = Path { bus: 0, target: 0, lun: 0 };
    let attention = Attention { identity: true, ..Attention::default() };
    for (content, has) in [(vec![0; SIZE], false), (partitioned(), true)] {
        machine.media["da0"].borrow_mut().bytes = content;
        let (events, due) = machine.table.attention(path, attention);
        machine.tell(events);
        assert_eq!(due, Due::Scan(path));
        assert_eq!(machine.has("da0s1"), has);
    }

    // The controller goes away.
    let events = machine.table.remove_bus(0);
    machine.tell(events);
    assert!(machine.disks.is_empty() && !machine.has("da0") && !machine.has("da0s1"));
}

//! An NVMe controller of this machine, spoken to by hand: registers of all widths, interrupts by
//! vector, memory that is mapped and memory that is not, opening and closing.
//!
//! `FLYSCH_PCI` names the function, which vfio-pci has; without it nothing is done. With
//! `FLYSCH_PCI_ACCESS=iommufd` it is opened by its own file. Nothing is written to its disks. The
//! lab runs this in its guest.

use std::time::Duration;

use flysch_api::machine::{Clock, DmaRegion, Machine as _, MixedRegisters, Registers, Wake};
use flysch_vfio::{Access, Address, Controller, Machine, Signals, Tree, VfioError, VfioOptions};

/// NVM Express Base 2.0, 3.1.3: registers that are used here.
const CAP: u32 = 0x00;
const VS: u32 = 0x08;
const CC: u32 = 0x14;
const CSTS: u32 = 0x1C;
const AQA: u32 = 0x24;
const ASQ: u32 = 0x28;
const ACQ: u32 = 0x30;
const DOORBELLS: u32 = 0x1000;

/// Enabled, entries of 64 and 16 bytes.
const ENABLED: u32 = 4 << 20 | 6 << 16 | 1;
const ENTRIES: u32 = 8;
const IDENTIFY: u32 = 0x06;
const PAGE: usize = 4096;

fn function() -> Option<VfioOptions> {
    let Ok(text) = std::env::var("FLYSCH_PCI") else {
        println!("skipped: FLYSCH_PCI names no function");
        return None;
    };
    let address: Address = text.parse().expect("an address");
    let access = match std::env::var("FLYSCH_PCI_ACCESS").as_deref() {
        Ok("iommufd") => Access::Iommufd,
        _ => Access::Auto,
    };
    let controller = Controller::Nvme;
    let memory_bytes = 16 << 20;
    Some(VfioOptions { address, controller, memory_bytes, vectors: 2, looks: false, access })
}

/// The admin queue: submission at page 0, completion at page 1.
struct Admin {
    machine: Machine,
    at: u32,
}

impl Admin {
    fn start(machine: Machine) -> Self {
        let memory = machine.memory().clone();
        machine.write32(AQA, (ENTRIES - 1) << 16 | (ENTRIES - 1));
        machine.write64(ASQ, memory.address());
        machine.write64(ACQ, memory.address() + PAGE as u64);
        machine.write32(CC, ENABLED);
        while machine.read32(CSTS) & 1 == 0 {
            assert!(machine.now().nanos() < 20_000_000_000, "it does not start");
        }
        Self { machine, at: 0 }
    }

    /// Identify Controller into that address: its status, once the interrupt came.
    fn identify(&mut self, address: u64) -> u16 {
        let memory: &DmaRegion = self.machine.memory();
        let slot = self.at % ENTRIES;
        let entry = slot as usize * 64;
        memory.fill(entry, 64, 0);
        memory.store32(entry, self.at << 16 | IDENTIFY);
        memory.store64(entry + 24, address);
        memory.store32(entry + 40, 1);
        self.machine.write32(DOORBELLS, (slot + 1) % ENTRIES);
        let place = PAGE + slot as usize * 16;
        let phase = 1 - ((self.at / ENTRIES) & 1);
        let until = self.machine.now().after_nanos(10_000_000_000);
        let done = loop {
            let last = memory.load32(place + 12);
            if (last >> 16) & 1 == phase {
                break last;
            }
            assert_eq!(self.machine.wait(Some(until)), Wake::Interrupt, "no interrupt came");
        };
        assert_eq!(done & 0xFFFF, self.at, "the completion of another command");
        self.at += 1;
        self.machine.write32(DOORBELLS + 4, self.at % ENTRIES);
        (done >> 17) as u16
    }
}

#[test]
fn device_reaches_its_memory_and_no_other() {
    let Some(options) = function() else { return };
    let machine = Machine::open(&options).unwrap();
    assert_eq!((machine.signals(), machine.vectors()), (Signals::MsiX, 2));
    assert!(machine.has_mapped_registers());
    let memory = machine.memory().clone();
    assert!(memory.len() >= 16 << 20 && memory.address() >= 1 << 20);

    let halves = u64::from(machine.read32(CAP + 4)) << 32 | u64::from(machine.read32(CAP));
    assert_eq!(machine.read64(CAP), halves);
    assert_eq!(u32::from(machine.read16(VS + 2)), machine.read32(VS) >> 16);
    assert_eq!(u32::from(machine.read8(VS + 1)), (machine.read32(VS) >> 8) & 0xFF);
    assert_eq!((machine.read32(1 << 24), machine.read32(2)), (u32::MAX, u32::MAX), "outside");
    assert_eq!(machine.read32(CC) & 1, 0, "it is stopped when it is opened");

    let mut admin = Admin::start(machine.clone());
    let data = memory.address() + (1 << 20);
    assert_eq!(admin.identify(data), 0);
    let identity = machine.identity();
    assert_eq!(memory.load32(1 << 20) & 0xFFFF, identity.vendor.into(), "PCI vendor id");

    // Nothing is mapped behind the memory, and this process has something at the same place.
    let before: Vec<u64> = (0..memory.len() / 8).map(|word| memory.load64(8 * word)).collect();
    let outside = memory.address() + memory.len() as u64 + (64 << 20);
    let private = vec![0xA5_u8; 2 * PAGE];
    for address in [outside, private.as_ptr().addr() as u64 & !(PAGE as u64 - 1), 0] {
        let status = admin.identify(address);
        println!("Identify into {address:#x}, which is not mapped: status {status:#x}");
    }
    assert!(private.iter().all(|byte| *byte == 0xA5), "memory of this process was written");
    let changed = |word: &usize| memory.load64(8 * word) != before[*word];
    let first = (2 * PAGE / 8..before.len()).find(changed);
    assert_eq!(first, None, "and so was memory that was not asked for");
    assert_eq!(admin.identify(data), 0, "it goes on");

    // The admin queue raises vector 0; nobody raises vector 1.
    let other = machine.on_vector(1);
    let soon = other.now() + Duration::from_millis(50);
    assert_eq!(admin.identify(data), 0);
    assert_eq!(other.wait(Some(soon)), Wake::Deadline);
    assert!(other.now() >= soon);

    assert!(matches!(Machine::open(&options), Err(VfioError::Busy { pid: Some(_), .. })));
    drop((admin, other, machine));
    drop(memory);
}

#[test]
fn function_is_opened_and_closed_again_and_again() {
    let Some(options) = function() else { return };
    // The other test has it meanwhile.
    let open = || loop {
        match Machine::open(&options) {
            Err(VfioError::Busy { .. }) => std::thread::sleep(Duration::from_millis(20)),
            other => break other.unwrap(),
        }
    };
    let files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    drop(open());
    let first = files();
    for round in 0..100 {
        let machine = open();
        assert_eq!(machine.read32(CC) & 1, 0, "round {round}: it was left running");
        let mut admin = Admin::start(machine.clone());
        assert_eq!(admin.identify(machine.memory().address() + (1 << 20)), 0, "round {round}");
    }
    assert_eq!(files(), first, "descriptors are left behind");
    let polled = Machine::open(&VfioOptions { vectors: 0, ..options }).unwrap();
    assert_eq!((polled.signals(), polled.vectors()), (Signals::Polled, 1));
    assert_eq!(polled.wait(None), Wake::Interrupt, "it does not sleep");
    assert_eq!(polled.wait(Some(polled.now())), Wake::Deadline);
    let ready = Tree::system().ready(options.address).unwrap();
    assert!(ready.is_ours());
}

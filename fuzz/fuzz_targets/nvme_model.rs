//! What a host does to the NVMe model: registers, doorbells, queue entries, page and segment lists,
//! memory that changes during a command.
//!
//! The first byte selects the kind of controller. The controller is up with one I/O queue pair
//! before the other bytes are executed as steps. Nothing may panic, and everything that runs must
//! end: a model with a megabyte of memory has a bounded amount of work.
#![no_main]

mod steps;

use flysch_api::machine::{DmaRegion, Instant};
use flysch_models::faults::{Kind, Plan};
use flysch_models::nvme::{CMB_OFFSET, Config, NamespaceConfig, Nvme, ZoneConfig};
use flysch_wire::nvme::registers::{ACQ, AQA, ASQ, CC, DOORBELLS};
use libfuzzer_sys::fuzz_target;
use steps::{rest, take};

const BASE: u64 = 0x10_0000;
const LEN: usize = 1 << 20;
/// Entries of every queue.
const ENTRIES: u32 = 16;
/// Most events between two steps.
const EVENTS_MAX: u32 = 100_000;

struct Host {
    model: Nvme,
    memory: DmaRegion,
    now: Instant,
    tails: [u32; 2],
}

impl Host {
    fn new(mode: u8) -> Self {
        let memory = DmaRegion::zeroed(LEN, BASE);
        let namespace =
            |block_size| NamespaceConfig { block_size, ..NamespaceConfig::memory(1 << 20) };
        // Eight zones, of which three can be open and four active.
        let zones = ZoneConfig { size: 128 << 10, open_max: 3, active_max: 4 };
        let zones = (mode & 16 != 0).then_some(zones);
        let faults = if mode & 8 != 0 {
            Plan::parse("corrupt:n3,status:n5,late:n7,power:n20", &Kind::NVME).unwrap_or_default()
        } else {
            Plan::none()
        };
        let config = Config {
            namespaces: vec![namespace(512), NamespaceConfig { zones, ..namespace(4096) }],
            controller_memory: if mode & 32 != 0 { 16 << 10 } else { 0 },
            queues: 2,
            vectors: if mode & 1 != 0 { 3 } else { 1 },
            sgls: mode & 2 != 0,
            stride: mode >> 6,
            volatile_cache: mode & 4 != 0,
            faults,
            ..Config::default()
        };
        let model = Nvme::new(config, memory.clone()).expect("a device");
        let mut host = Self { model, memory, now: Instant::START, tails: [0; 2] };
        host.enable(mode >> 6);
        host
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.model.write32(offset, value, self.now);
    }

    /// Lets time pass.
    fn rest(&mut self, nanos: u64) {
        rest(&mut self.model, &mut self.now, nanos, EVENTS_MAX);
    }

    fn enable(&mut self, stride: u8) {
        self.write(AQA, (ENTRIES - 1) << 16 | (ENTRIES - 1));
        for (register, at) in [(ASQ, 0_u64), (ACQ, 0x1000)] {
            self.write(register, (BASE + at) as u32);
            self.write(register + 4, 0);
        }
        // All command sets, if there are several.
        let sets = (self.model.read32(4, self.now) >> 11 & 1) * 6;
        self.write(CC, 4 << 20 | 6 << 16 | sets << 4 | 1);
        self.rest(10_000_000);
        // A completion queue at 2000h and a submission queue at 3000h.
        for (opcode, at, last) in [(5, 0x2000_u64, 3), (1, 0x3000, 1 << 16 | 1)] {
            let mut entry = [0_u8; 64];
            entry[0] = opcode;
            entry[24..32].copy_from_slice(&(BASE + at).to_le_bytes());
            entry[40..44].copy_from_slice(&((ENTRIES - 1) << 16 | 1).to_le_bytes());
            entry[44..48].copy_from_slice(&(last as u32).to_le_bytes());
            self.put(0, &entry, stride);
            self.rest(1_000_000);
        }
    }

    /// Writes an entry into a queue and rings the doorbell.
    fn put(&mut self, queue: usize, entry: &[u8; 64], stride: u8) {
        let at = [0, 0x3000][queue] + self.tails[queue] as usize * 64;
        self.memory.write(at, entry);
        self.tails[queue] = (self.tails[queue] + 1) % ENTRIES;
        let step = 4_u32 << stride;
        let tail = self.tails[queue];
        self.write(DOORBELLS + 2 * queue as u32 * step, tail);
        // The host takes all completions: the head follows the tail.
        self.write(DOORBELLS + (2 * queue as u32 + 1) * step, tail);
    }
}

/// A register or, from 4000h on, a word of the controller memory.
fn register(of: u16) -> u32 {
    match u32::from(of) & 0xFFFC {
        offset @ 0..0x4000 => offset,
        offset => CMB_OFFSET + offset - 0x4000,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes;
    let [mode] = take(&mut bytes);
    let mut host = Host::new(mode);
    while !bytes.is_empty() {
        let [step] = take(&mut bytes);
        match step % 8 {
            0 => {
                let offset = register(u16::from_le_bytes(take(&mut bytes)));
                host.write(offset, u32::from_le_bytes(take(&mut bytes)));
            }
            1 => {
                let offset = register(u16::from_le_bytes(take(&mut bytes)));
                let _ = host.model.read32(offset, host.now);
            }
            2 => {
                let at = usize::from(u16::from_le_bytes(take(&mut bytes))) * 8;
                let data: [u8; 16] = take(&mut bytes);
                host.memory.write(at, &data);
            }
            3 => host.rest(u64::from(u16::from_le_bytes(take(&mut bytes))) * 10_000),
            // An entry that is nearly valid: its addresses lie in memory.
            4..=6 => {
                let mut entry = [0; 64];
                let [opcode, flags, nsid, first, second] = take(&mut bytes);
                (entry[0], entry[1], entry[4]) = (opcode, flags & 0xC3, nsid & 3);
                if nsid == 0xFF {
                    entry[4..8].fill(0xFF);
                }
                entry[24..32].copy_from_slice(&(BASE + u64::from(first) * 0x1004).to_le_bytes());
                entry[32..40].copy_from_slice(&(BASE + u64::from(second) * 0x1000).to_le_bytes());
                let words: [u8; 16] = take(&mut bytes);
                entry[40..56].copy_from_slice(&words);
                host.put(usize::from(step % 8 != 4), &entry, mode >> 6);
            }
            _ => {
                let entry: [u8; 64] = take(&mut bytes);
                host.put(usize::from(step & 8 != 0), &entry, mode >> 6);
            }
        }
    }
    host.rest(10_000_000_000);
    // Whatever was done to the model, a reset recovers it.
    host.model.reset(host.now);
    host.tails = [0; 2];
    if host.model.read32(0, host.now) != u32::MAX {
        host.enable(mode >> 6);
    }
});

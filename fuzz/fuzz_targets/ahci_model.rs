//! What a host does to the SATA model: registers, command headers, FISes, packets, descriptors,
//! memory that changes during a command.
//!
//! The first byte selects the kind of HBA. Port 0 has a disk, or a port multiplier with a disk and
//! an optical drive; port 1 has an optical drive. All are up before the other bytes are executed as
//! steps. Nothing may panic, and everything that runs must end.
#![no_main]

mod steps;

use flysch_api::machine::{DmaRegion, Instant};
use flysch_models::ahci::{Ahci, Attached, Config, DiskConfig, MultiplierConfig, Switching};
use flysch_models::faults::{Kind, Plan};
use flysch_models::store::Store;
use flysch_wire::ata::multiplier::{Access, CONTROL_PORT, feature, gscr, pscr};
use flysch_wire::ata::registers::{
    Fbs, PX_CI, PX_CLB, PX_CMD, PX_FB, PX_FBS, PX_IE, PX_IS, PX_SACT, PX_SCTL, PX_SERR, port_base,
};
use flysch_wire::ata::{H2d, fis::SRST};
use libfuzzer_sys::fuzz_target;
use steps::{rest, take};

const BASE: u64 = 0x10_0000;
const LEN: usize = 1 << 20;
/// Bytes of a port's structures: list, tables of 32 slots, received FISes of 16 devices.
const PORT: usize = 0x1_0000;
const TABLES: usize = 0x1000;
const RECEIVED: usize = 0x4000;
const TABLE: usize = 0x100;
/// Most events between two steps.
const EVENTS_MAX: u32 = 100_000;
/// PxCMD: ST, SUD and POD, FRE, PMA.
const ST: u32 = 1;
const POWER: u32 = 6;
const FRE: u32 = 1 << 4;
const PMA: u32 = 1 << 17;
/// The header of a control FIS.
const CONTROL: u32 = 5;
/// Devices behind the multiplier.
const FANS: u8 = 3;
/// The faults injected if the first byte asks for them.
const FAULTS: &str = "detach:n3,power:n9,link:n5,late:n7,stuck-list:n2,busy:n4";

struct Host {
    model: Ahci,
    memory: DmaRegion,
    now: Instant,
    /// Port 0 has a multiplier, and FIS-based switching tracks its devices separately.
    is_multiplied: bool,
    switches: bool,
}

impl Host {
    fn new(mode: u8) -> Self {
        let memory = DmaRegion::zeroed(LEN, BASE);
        let faults = match mode & 8 {
            0 => Plan::none(),
            _ => Plan::parse(FAULTS, &Kind::AHCI).unwrap_or_default(),
        };
        let disk = DiskConfig {
            sector_bytes: if mode & 1 != 0 { 4096 } else { 512 },
            queue_depth: if mode & 2 != 0 { 0 } else { 32 },
            lba48: mode & 16 == 0,
            ..DiskConfig::memory(1 << 20)
        };
        let cd = || Attached::Cd(Store::memory(1 << 16), 1 << 16);
        let (is_multiplied, switches) = (mode & 128 != 0, mode & 32 == 0);
        let first = match is_multiplied {
            false => Attached::disk(disk),
            true => Attached::multiplier(MultiplierConfig::sil3726(vec![
                Attached::disk(disk),
                cd(),
                Attached::Nothing,
            ])),
        };
        let config = Config {
            ports: vec![first, cd()],
            switching: match (is_multiplied, switches) {
                (false, _) => Switching::No,
                (true, false) => Switching::Command,
                (true, true) => Switching::Fis,
            },
            volatile_cache: mode & 4 != 0,
            staggered: mode & 32 != 0,
            bios: mode & 64 != 0,
            faults,
            ..Config::default()
        };
        let model = Ahci::new(config, memory.clone()).expect("an HBA");
        let switches = is_multiplied && switches;
        let mut host = Self { model, memory, now: Instant::START, is_multiplied, switches };
        host.enable();
        host
    }

    fn write(&mut self, offset: u32, value: u32) {
        self.model.write32(offset, value, self.now);
    }

    /// Lets time pass.
    fn rest(&mut self, nanos: u64) {
        rest(&mut self.model, &mut self.now, nanos, EVENTS_MAX);
    }

    fn enable(&mut self) {
        self.write(4, 1 << 31 | 2);
        for port in 0..2_u8 {
            let (registers, at) = (port_base(port), BASE as u32 + u32::from(port) * PORT as u32);
            self.write(registers + PX_CLB, at);
            self.write(registers + PX_FB, at + RECEIVED as u32);
            self.write(registers + PX_CMD, FRE | POWER);
            self.write(registers + PX_SCTL, 0x301);
            self.rest(1_000_000);
            self.write(registers + PX_SCTL, 0x300);
            self.rest(100_000_000);
            self.write(registers + PX_SERR, u32::MAX);
            self.write(registers + PX_IS, u32::MAX);
            self.write(registers + PX_IE, u32::MAX);
            self.write(registers + PX_CMD, FRE | POWER | ST);
        }
        if self.is_multiplied {
            self.wake_multiplier();
        }
    }

    /// Sets up the multiplier and wakes its devices.
    fn wake_multiplier(&mut self) {
        for control in [SRST, 0] {
            let fis = H2d { pmp: CONTROL_PORT, control, ..H2d::default() };
            self.put(0, CONTROL, &bytes(&fis), (0, 0), &[0; 12]);
            self.rest(2_000_000);
        }
        let registers = port_base(0);
        self.write(registers + PX_CMD, FRE | POWER | PMA);
        if self.switches {
            self.write(registers + PX_FBS, Fbs::new().with_en(true).into_bits());
        }
        self.write(registers + PX_CMD, FRE | POWER | PMA | ST);
        let general = |register, value| Access::write(CONTROL_PORT, register, value);
        self.tell(general(gscr::ERROR_ENABLE, u32::MAX));
        self.tell(general(gscr::FEATURES_ENABLE, feature::NOTIFICATION));
        for det in [0x301, 0x300] {
            (0..FANS).for_each(|fan| self.tell(Access::write(fan, pscr::CONTROL, det)));
            self.rest(100_000_000);
        }
        (0..FANS).for_each(|fan| self.tell(Access::write(fan, pscr::ERROR, u32::MAX)));
        self.rest(100_000_000);
        self.write(registers + PX_IS, u32::MAX);
    }

    /// Sends a command to the multiplier itself.
    fn tell(&mut self, access: Access) {
        let fis = access.to_fis();
        self.put(0, CONTROL, &bytes(&fis), (0, 0), &[0; 12]);
        self.rest(1_000_000);
    }

    /// Writes a command into a slot and rings the doorbell.
    fn put(&mut self, place: u8, flags: u32, fis: &[u8; 20], prd: (u16, u32), packet: &[u8; 12]) {
        let (port, slot) = (usize::from(place >> 7), usize::from(place & 31));
        let at = port * PORT;
        let table = at + TABLES + slot * TABLE;
        self.memory.write(table, fis);
        self.memory.write(table + 0x40, packet);
        let data = BASE + u64::from(prd.0) * 16;
        self.memory.write(table + 0x80, &data.to_le_bytes());
        self.memory.write(table + 0x88, &u64::from(prd.1).wrapping_shl(32).to_le_bytes());
        // Usually header, FIS and register are about the same device.
        let pmp = u32::from(fis[1] & 0xF);
        let flags = if self.is_multiplied { flags ^ pmp << 12 } else { flags };
        let header = u64::from(flags);
        self.memory.write(at + slot * 32, &header.to_le_bytes());
        self.memory.write(at + slot * 32 + 8, &(BASE + table as u64).to_le_bytes());
        let registers = port_base(port as u8);
        if self.switches && port == 0 {
            let fbs = Fbs::new().with_en(true).with_dev(pmp as u8);
            self.write(registers + PX_FBS, fbs.into_bits());
        }
        if matches!(fis[2], 0x60..=0x65) {
            self.write(registers + PX_SACT, 1 << slot);
        }
        self.write(registers + PX_CI, 1 << slot);
    }
}

/// A FIS as it lies in memory.
fn bytes(fis: &H2d) -> [u8; 20] {
    let mut bytes = [0; 20];
    for (n, word) in fis.to_words().into_iter().enumerate() {
        let word = word.to_le_bytes();
        let left = (bytes.len() - n * 8).min(8);
        bytes[n * 8..n * 8 + left].copy_from_slice(&word[..left]);
    }
    bytes
}

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes;
    let [mode] = take(&mut bytes);
    let mut host = Host::new(mode);
    while !bytes.is_empty() {
        let [step] = take(&mut bytes);
        match step % 8 {
            0 => {
                let offset = u32::from(u16::from_le_bytes(take(&mut bytes))) & 0x1FC;
                host.write(offset, u32::from_le_bytes(take(&mut bytes)));
            }
            1 => {
                let offset = u32::from(u16::from_le_bytes(take(&mut bytes))) & 0x1FFC;
                let _ = host.model.read32(offset, host.now);
            }
            2 => {
                let at = usize::from(u16::from_le_bytes(take(&mut bytes))) * 8;
                let data: [u8; 16] = take(&mut bytes);
                host.memory.write(at, &data);
            }
            3 => host.rest(u64::from(u16::from_le_bytes(take(&mut bytes))) * 10_000),
            // A command that is nearly valid.
            4..=6 => {
                let [place, command, features, count, lba, pages] = take(&mut bytes);
                let mut fis = [0; 20];
                (fis[0], fis[1], fis[2], fis[3]) = (0x27, 0x80, command, features);
                (fis[4], fis[7], fis[12]) = (lba, 0x40 | step & 0x80, count);
                if host.is_multiplied {
                    fis[1] |= [0, 1, 2, CONTROL_PORT][usize::from(step >> 5 & 3)];
                }
                if step & 8 != 0 {
                    let more: [u8; 8] = take(&mut bytes);
                    fis[4..12].copy_from_slice(&more);
                    fis[12..16].copy_from_slice(&take::<4>(&mut bytes));
                }
                let packet = take(&mut bytes);
                let is_packet = u32::from(command == 0xA0) << 5;
                let flags = 5 | is_packet | u32::from(step & 16 != 0) << 6 | 1 << 16;
                let prd = (0x8000 | u16::from(pages) << 5, u32::from(pages) << 9 | 0x1FF);
                host.put(place, flags, &fis, prd, &packet);
            }
            _ => {
                let [place] = take(&mut bytes);
                let flags = u32::from_le_bytes(take(&mut bytes));
                let fis = take(&mut bytes);
                let prd =
                    (u16::from_le_bytes(take(&mut bytes)), u32::from_le_bytes(take(&mut bytes)));
                let packet = take(&mut bytes);
                host.put(place, flags, &fis, prd, &packet);
            }
        }
    }
    host.rest(10_000_000_000);
    // Whatever was done to the model, a reset recovers it.
    host.model.reset(host.now);
    if host.model.read32(0, host.now) != u32::MAX {
        host.enable();
    }
});

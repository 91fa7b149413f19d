//! The SATA model as seen by a host with nothing but registers; above all, hostile lists.

use flysch_api::machine::{DmaRegion, Instant};
use flysch_models::ahci::{Ahci, Attached, Config, DiskConfig};
use flysch_wire::ata::command::device;
use flysch_wire::ata::fis::H2D_DWORDS;
use flysch_wire::ata::list::{HeaderFlags, PRDT};
use flysch_wire::ata::registers::{
    PX_CI, PX_CLB, PX_CLBU, PX_CMD, PX_FB, PX_FBU, PX_IS, PX_SACT, PX_SCTL, PX_SERR, PX_SIG,
    PX_TFD, PortCmd, error, interrupt, port_base, signature, status,
};
use flysch_wire::ata::{H2d, Header, Identify, Opcode, Prd};

const BASE: u64 = 0x1_0000_0000;
const LIST: u64 = BASE;
const RECEIVED: u64 = BASE + 0x400;
const TABLE: u64 = BASE + 0x1000;
const DATA: u64 = BASE + 0x8000;
const PORT: u32 = port_base(0);

struct Host {
    model: Ahci,
    memory: DmaRegion,
    now: Instant,
}

impl Host {
    /// A disk whose list is running.
    fn up() -> Self {
        let memory = DmaRegion::zeroed(1 << 20, BASE);
        let ports = vec![Attached::disk(DiskConfig::memory(64 << 20))];
        let model = Ahci::new(Config { ports, ..Config::default() }, memory.clone()).unwrap();
        let mut host = Self { model, memory, now: Instant::START };
        host.start();
        host
    }

    fn start(&mut self) {
        for (register, value) in [(PX_CLB, LIST), (PX_FB, RECEIVED)] {
            self.write(register, value as u32);
        }
        for (register, value) in [(PX_CLBU, LIST), (PX_FBU, RECEIVED)] {
            self.write(register, (value >> 32) as u32);
        }
        self.write(PX_CMD, PortCmd::new().with_fre(true).into_bits());
        self.write(PX_SCTL, 1);
        self.write(PX_SCTL, 0);
        self.rest(50_000_000);
        assert_eq!(self.read(PX_SIG), signature::NONE, "PxSERR.DIAG.X holds it back");
        self.write(PX_SERR, u32::MAX);
        assert_eq!(self.read(PX_SIG), signature::ATA);
        self.restart();
    }

    fn restart(&mut self) {
        let cmd = PortCmd::new().with_fre(true);
        self.write(PX_CMD, cmd.into_bits());
        self.write(PX_IS, u32::MAX);
        self.write(PX_CMD, cmd.with_st(true).into_bits());
    }

    fn read(&mut self, register: u32) -> u32 {
        self.model.read32(PORT + register, self.now)
    }

    fn write(&mut self, register: u32, value: u32) {
        self.model.write32(PORT + register, value, self.now);
    }

    fn rest(&mut self, nanos: u64) {
        self.now = self.now.after_nanos(nanos);
        self.model.advance(self.now);
    }

    /// Puts a command into a slot, with one descriptor of this many bytes.
    fn put(&mut self, slot: u64, fis: H2d, (at, bytes): (u64, u32), table: u64) {
        let flags = HeaderFlags::new().with_cfl(H2D_DWORDS).with_prdtl(u16::from(bytes > 0));
        let header = Header { flags, moved: 0, table }.to_words();
        let offset = (LIST - BASE + 32 * slot) as usize;
        self.memory.store64(offset, header[0]);
        self.memory.store64(offset + 8, header[1]);
        let Ok(offset) = self.memory.offset_of(table, 256) else { return };
        for (n, word) in fis.to_words().into_iter().enumerate() {
            self.memory.store64(offset + 8 * n, word);
        }
        let prd = Prd { address: at, bytes: bytes.max(2), interrupt: false }.to_words();
        self.memory.store64(offset + PRDT, prd[0]);
        self.memory.store64(offset + PRDT + 8, prd[1]);
    }

    /// Issues slot 0; returns PxIS afterwards.
    fn issue(&mut self) -> u32 {
        self.write(PX_CI, 1);
        self.rest(10_000_000);
        self.read(PX_IS)
    }
}

fn fis(opcode: Opcode, lba: u64, count: u16) -> H2d {
    let command = opcode.into_bits();
    H2d { is_command: true, command, lba, count, device: device::LBA, ..H2d::default() }
}

#[test]
fn identify_comes_by_pio_and_says_what_was_moved() {
    let mut host = Host::up();
    host.put(0, fis(Opcode::Identify, 0, 0), (DATA, 512), TABLE);
    assert_eq!(host.issue() & (interrupt::PSS | interrupt::TFES), interrupt::PSS);
    assert_eq!((host.read(PX_CI), host.read(PX_TFD)), (0, 0x50));
    assert_eq!(host.memory.load32(4), 512, "PRDBC");
    let mut bytes = [0; 512];
    host.memory.read((DATA - BASE) as usize, &mut bytes);
    let identify = Identify::parse(&bytes).unwrap();
    assert_eq!(identify.sectors(), (64 << 20) / 512);
}

/// Each of these stops the list with its own interrupt, and the next command works after a restart.
#[test]
fn lists_that_are_none_end_in_the_interrupt_there_is_for_it() {
    let read = |lba| fis(Opcode::ReadDmaExt, lba, 8);
    let outside = BASE + (8 << 20);
    let mut host = Host::up();
    let cases = [
        (read(0), (DATA, 4096), outside, interrupt::HBFS),
        (read(0), (outside, 4096), TABLE, interrupt::HBDS),
        (read(0), (DATA, 512), TABLE, interrupt::OFS),
        (H2d { is_command: true, ..read(1 << 40) }, (DATA, 4096), TABLE, interrupt::TFES),
        (fis(Opcode::Unknown(0xFF), 0, 0), (DATA, 0), TABLE, interrupt::TFES),
    ];
    for (fis, data, table, expected) in cases {
        host.put(0, fis, data, table);
        let told = host.issue();
        assert_eq!(told & interrupt::ERRORS, expected, "{fis:?}");
        host.write(PX_CI, 2);
        host.rest(1_000_000);
        assert_ne!(host.read(PX_CI), 0, "the list stands still");
        // An unanswered command keeps the device busy until it is reset.
        host.write(PX_CMD, PortCmd::new().with_fre(true).into_bits());
        host.start();
        host.put(0, read(0), (DATA, 4096), TABLE);
        assert_eq!(host.issue() & interrupt::ERRORS, 0, "{fis:?}");
        assert_eq!(host.read(PX_CI), 0);
    }
    // A header whose FIS is too short, and one whose FIS is invalid.
    host.memory.store64(0, 1);
    assert_eq!(host.issue() & interrupt::ERRORS, interrupt::HBFS);
    host.start();
    host.put(0, read(0), (DATA, 4096), TABLE);
    host.memory.store64((TABLE - BASE) as usize, 0x12);
    assert_eq!(host.issue() & interrupt::ERRORS, interrupt::HBFS);
}

#[test]
fn an_error_among_queued_commands_is_told_by_the_log_and_nothing_else_is_done() {
    let mut host = Host::up();
    let queued = |lba| H2d { features: 8, count: 0, ..fis(Opcode::ReadFpdma, lba, 0) };
    for slot in 0..3 {
        let lba = if slot == 1 { 1 << 40 } else { slot * 8 };
        let tag = H2d { count: (slot as u16) << 3, ..queued(lba) };
        host.put(slot, tag, (DATA + slot * 4096, 4096), TABLE + slot * 256);
    }
    host.write(PX_SACT, 7);
    host.write(PX_CI, 7);
    host.rest(10_000_000);
    let told = host.read(PX_IS);
    assert_ne!(told & interrupt::TFES, 0);
    assert_ne!(host.read(PX_SACT) & 2, 0, "the one that failed is still active");
    assert_eq!(host.read(PX_TFD) >> 8, u32::from(error::IDNF));
    host.restart();
    host.put(0, fis(Opcode::FlushExt, 0, 0), (DATA, 0), TABLE);
    assert_ne!(host.issue() & interrupt::TFES, 0, "the log was not read");
    host.restart();
    host.put(0, fis(Opcode::ReadLogExt, 0x10, 1), (DATA, 512), TABLE);
    assert_eq!(host.issue() & interrupt::TFES, 0);
    let mut page = [0; 512];
    host.memory.read((DATA - BASE) as usize, &mut page);
    let entry = flysch_wire::ata::log::NcqError::parse(&page).unwrap();
    assert_eq!((entry.tag, entry.error, entry.not_queued), (1, error::IDNF, false));
    assert_eq!(entry.status & status::ERR, status::ERR);
    host.put(0, fis(Opcode::FlushExt, 0, 0), (DATA, 0), TABLE);
    assert_eq!(host.issue() & interrupt::TFES, 0, "now it is done");
}

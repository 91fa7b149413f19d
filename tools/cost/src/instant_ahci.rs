//! A SATA host bus adapter that does nothing: every command has ended when its doorbell write
//! returns. What remains of a run on it is the cost of the driver.

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine, Registers, Wake};
use flysch_wire::ata::identify::{capability, sata, set83};
use flysch_wire::ata::list::{HEADER, PRDT};
use flysch_wire::ata::registers::{
    CAP, Cap, GHC, Ghc, PI, PX_CI, PX_CLB, PX_CMD, PX_IS, PX_SACT, PX_SIG, PX_SSTS, PX_TFD,
    PortCmd, Ssts, det, icc, port_base, signature, status,
};
use flysch_wire::ata::{Header, Identify, Opcode, Prd};
use std::cell::Cell;
use std::rc::Rc;

const WORDS: usize = 0x180 / 4;
const PORT: u32 = port_base(0);

/// The HBA: one port with a disk. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct AhciInstantMachine {
    registers: Rc<[Cell<u32>; WORDS]>,
    memory: DmaRegion,
    /// Advances by one nanosecond per read.
    time: Rc<Cell<u64>>,
}

impl AhciInstantMachine {
    /// An HBA with `len` bytes of memory.
    pub fn new(len: usize) -> Self {
        let machine = Self {
            registers: Rc::new([const { Cell::new(0) }; WORDS]),
            memory: DmaRegion::zeroed(len, 0x1_0000_0000),
            time: Rc::new(Cell::new(0)),
        };
        let cap = Cap::new().with_ncs(31).with_sncq(true).with_s64a(true);
        machine.set(CAP, cap.into_bits());
        machine.set(PI, 1);
        machine.set(GHC, Ghc::new().with_ae(true).into_bits());
        let ssts = Ssts::new().with_det(det::READY).with_spd(3).with_ipm(icc::ACTIVE);
        machine.set(PORT + PX_SSTS, ssts.into_bits());
        machine.set(PORT + PX_SIG, signature::ATA);
        machine.set(PORT + PX_TFD, status::DRDY.into());
        machine
    }

    #[inline]
    fn get(&self, offset: u32) -> u32 {
        self.registers[offset as usize / 4 % WORDS].get()
    }

    #[inline]
    fn set(&self, offset: u32, value: u32) {
        self.registers[offset as usize / 4 % WORDS].set(value);
    }

    fn at(&self, address: u64, len: usize) -> usize {
        self.memory.offset_of(address, len).expect("an address in memory")
    }

    /// Executes the commands in these slots; of the unqueued ones, only identify.
    fn carry_out(&self, slots: u32) {
        let queued = self.get(PORT + PX_SACT) & slots;
        self.set(PORT + PX_SACT, self.get(PORT + PX_SACT) & !slots);
        if slots & !queued != 1 {
            return;
        }
        let list =
            u64::from(self.get(PORT + PX_CLB + 4)) << 32 | u64::from(self.get(PORT + PX_CLB));
        let header = Header::from_words(self.memory.words(self.at(list, HEADER)));
        let mut command = [0; 3];
        self.memory.read(self.at(header.table, 3), &mut command);
        if Opcode::from_bits(command[2]) == Opcode::Identify {
            let prd = self.at(header.table + PRDT as u64, 16);
            let prd = Prd::from_words(self.memory.words(prd));
            let identify = Identify {
                capabilities: capability::DMA | capability::LBA,
                queue_depth: 32,
                sata: sata::NCQ,
                supported: [0, set83::VALID | set83::LBA48, 0],
                sectors_48: 1 << 30,
                ..Identify::default()
            };
            self.memory.write(self.at(prd.address, 512), &identify.to_bytes());
        }
    }

    /// The effect of a write; a separate function, so that it is not counted.
    #[inline(never)]
    fn ring_or_write(&self, offset: u32, value: u32) {
        const CI: u32 = PORT + PX_CI;
        const SACT: u32 = PORT + PX_SACT;
        const CMD: u32 = PORT + PX_CMD;
        const IS: u32 = PORT + PX_IS;
        match offset {
            CI => self.carry_out(value),
            SACT => self.set(SACT, self.get(SACT) | value),
            GHC => self.set(GHC, Ghc::from_bits(value).with_hr(false).into_bits()),
            CMD => {
                let cmd = PortCmd::from_bits(value);
                self.set(CMD, cmd.with_cr(cmd.st()).with_fr(cmd.fre()).into_bits());
            }
            IS => self.set(IS, self.get(IS) & !value),
            CAP | PI => {}
            _ if offset == PORT + PX_SSTS || offset == PORT + PX_TFD || offset == PORT + PX_SIG => {
            }
            _ => self.set(offset, value),
        }
    }
}

impl Registers for AhciInstantMachine {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.get(offset)
    }

    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        self.ring_or_write(offset, value);
    }
}

impl Clock for AhciInstantMachine {
    #[inline]
    fn now(&self) -> Instant {
        self.time.set(self.time.get() + 1);
        Instant::from_nanos(self.time.get())
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        if let Some(until) = until {
            self.time.set(self.time.get().max(until.nanos()));
        }
        Wake::Deadline
    }
}

impl Machine for AhciInstantMachine {
    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}

//! An eMMC device behind a controller with a queueing engine that does nothing: every command and
//! every task has ended when the write that starts it returns. What remains of a run on it is the
//! cost of the driver.

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine, Registers, Wake};
use flysch_wire::mmc::command::{CommandIndex, OCR_POWERED_UP, OCR_SECTOR_MODE, OCR_VOLTAGES};
use flysch_wire::mmc::cqhci::{CQCTL, CQIS, CQTCN, CQTDBR, CQVER};
use flysch_wire::mmc::sdhci::{
    ADMA_ADDRESS, CAPABILITIES, CLOCK, COMMAND, Capabilities, Clock as ClockRegister, Command,
    Interrupts, PRESENT, Present, RESPONSE, SLOT_VERSION, STATUS, version,
};
use flysch_wire::mmc::{CardState, CardStatus, Csd, ext_csd};
use std::cell::Cell;
use std::rc::Rc;

/// Offset of the engine in Intel's controllers.
const ENGINE: u32 = 0x200;
const WORDS: usize = 0x260 / 4;
/// Elkhart Lake.
const IDENTITY: Identity = Identity { vendor: 0x8086, device: 0x4B47 };

/// The controller and its device. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct EmmcInstantMachine {
    registers: Rc<[Cell<u32>; WORDS]>,
    memory: DmaRegion,
    /// Advances by one nanosecond per read.
    time: Rc<Cell<u64>>,
}

impl EmmcInstantMachine {
    /// A controller with `len` bytes of memory.
    pub fn new(len: usize) -> Self {
        let machine = Self {
            registers: Rc::new([const { Cell::new(0) }; WORDS]),
            memory: DmaRegion::zeroed(len, 0x1_0000_0000),
            time: Rc::new(Cell::new(0)),
        };
        let capabilities = Capabilities::new()
            .with_base_mhz(200)
            .with_bus_8(true)
            .with_adma2(true)
            .with_v1_8(true)
            .with_wide_v3(true)
            .into_bits();
        machine.set(CAPABILITIES, capabilities as u32);
        machine.set(CAPABILITIES + 4, (capabilities >> 32) as u32);
        machine.set(SLOT_VERSION, u32::from(version::V3) << 16);
        machine.set(PRESENT, Present::new().with_inserted(true).with_data(0xF).into_bits());
        machine.set(ENGINE + CQVER, 0x510);
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

    /// Executes a command of the host's own: its response, and EXT_CSD if requested.
    fn carry_out(&self, command: Command) {
        let ready = CardStatus::new().with_state(CardState::Transfer).with_ready_for_data(true);
        let mut response = [ready.into_bits(), 0, 0, 0];
        match CommandIndex::from_bits(command.index()) {
            CommandIndex::SendOpCond => {
                response[0] = OCR_POWERED_UP | OCR_SECTOR_MODE | OCR_VOLTAGES;
            }
            CommandIndex::SendCsd => {
                let bits = Csd { structure: 3, version: 4, ..Csd::default() }.emit() >> 8;
                response = [0, 32, 64, 96].map(|shift| (bits >> shift) as u32);
            }
            CommandIndex::SendExtCsd => self.send_ext_csd(),
            _ => {}
        }
        for (n, word) in (0..).zip(response) {
            self.set(RESPONSE + 4 * n, word);
        }
        let told = Interrupts::new().with_command(true).with_transfer(command.data());
        self.set(STATUS, told.into_bits());
    }

    fn send_ext_csd(&self) {
        let mut bytes = [0; ext_csd::LENGTH];
        bytes[usize::from(ext_csd::REVISION)] = ext_csd::revision::V5_1;
        bytes[usize::from(ext_csd::SEC_COUNT)..][..4].copy_from_slice(&(1_u32 << 30).to_le_bytes());
        bytes[usize::from(ext_csd::CACHE_SIZE)] = 64;
        bytes[ext_csd::CMDQ_DEPTH] = 31;
        bytes[ext_csd::CMDQ_SUPPORT] = 1;
        let at = |address: u64, len| self.memory.offset_of(address, len).expect("in memory");
        let list = u64::from(self.get(ADMA_ADDRESS + 4)) << 32 | u64::from(self.get(ADMA_ADDRESS));
        let mut address = [0; 8];
        self.memory.read(at(list + 4, 8), &mut address);
        self.memory.write(at(u64::from_le_bytes(address), bytes.len()), &bytes);
    }

    /// The effect of a write; a separate function, so that it is not counted.
    #[inline(never)]
    fn ring_or_write(&self, offset: u32, value: u32) {
        const DOORBELL: u32 = ENGINE + CQTDBR;
        const ENDED: u32 = ENGINE + CQTCN;
        const CONTROL_ENGINE: u32 = ENGINE + CQCTL;
        const TOLD: u32 = ENGINE + CQIS;
        match offset {
            DOORBELL => self.set(ENDED, self.get(ENDED) | value),
            ENDED | TOLD | STATUS => self.set(offset, self.get(offset) & !value),
            // Only the halt bit stays set.
            CONTROL_ENGINE => self.set(offset, value & 1),
            CLOCK => {
                let clock = ClockRegister::from_bits(value & !ClockRegister::RESETS);
                self.set(CLOCK, clock.with_stable(clock.internal()).into_bits());
            }
            COMMAND => self.carry_out(Command::from_bits(value)),
            _ if offset == PRESENT || (RESPONSE..RESPONSE + 16).contains(&offset) => {}
            _ => self.set(offset, value),
        }
    }
}

impl Registers for EmmcInstantMachine {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.get(offset)
    }

    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        self.ring_or_write(offset, value);
    }
}

impl Clock for EmmcInstantMachine {
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

impl Machine for EmmcInstantMachine {
    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn identity(&self) -> Identity {
        IDENTITY
    }
}

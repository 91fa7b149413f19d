//! An NVMe controller that does nothing: every command has ended when its doorbell write returns.
//! What remains of a run on it is the cost of the driver.

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine, Registers, Wake};
use flysch_wire::nvme::registers::{
    ACQ, ASQ, CAP, CC, CSTS, Cap, Cc, Csts, DOORBELLS, VS, Version,
};
use flysch_wire::nvme::{AdminOpcode, Cns, Cqe, IdentifyController, Sqe, command, completion};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const WORDS: usize = 0x1100 / 4;
/// Entries of the admin queues, as the driver creates them.
const ADMIN_ENTRIES: u32 = 32;

/// A queue pair: bases and entries of both rings, and the controller's positions.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    submission: (u64, u32),
    completion: (u64, u32),
    head: u32,
    tail: u32,
    phase: bool,
}

/// The controller. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct NvmeInstantMachine {
    registers: Rc<[Cell<u32>; WORDS]>,
    memory: DmaRegion,
    pairs: Rc<RefCell<[Pair; 4]>>,
    /// Advances by one nanosecond per read.
    time: Rc<Cell<u64>>,
}

impl NvmeInstantMachine {
    /// A controller with `len` bytes of memory.
    pub fn new(len: usize) -> Self {
        let machine = Self {
            registers: Rc::new([const { Cell::new(0) }; WORDS]),
            memory: DmaRegion::zeroed(len, 0x1_0000_0000),
            pairs: Rc::default(),
            time: Rc::new(Cell::new(0)),
        };
        let cap = Cap::new().with_mqes(1023).with_to(1).with_css_nvm(true).into_bits();
        machine.set(CAP, cap as u32);
        machine.set(CAP + 4, (cap >> 32) as u32);
        machine.set(VS, Version::of(1, 4).into_bits());
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

    fn address(&self, low: u32) -> u64 {
        u64::from(self.get(low + 4)) << 32 | u64::from(self.get(low))
    }

    #[inline]
    fn at(&self, address: u64, len: usize) -> usize {
        self.memory.offset_of(address, len).expect("an address in memory")
    }

    /// Executes everything up to `tail`.
    #[inline(never)]
    fn carry_out(&self, queue: usize, tail: u32) {
        let mut pair = self.pairs.borrow()[queue];
        while pair.head != tail {
            let from = pair.submission.0 + u64::from(pair.head) * command::LENGTH as u64;
            let entry = Sqe::from_words(self.memory.words(self.at(from, command::LENGTH)));
            pair.head = (pair.head + 1) % pair.submission.1;
            let result = if queue == 0 { self.admin(&entry) } else { Some(0) };
            let Some(result) = result else { continue };
            let to = pair.completion.0 + u64::from(pair.tail) * completion::LENGTH as u64;
            let to = self.at(to, completion::LENGTH);
            let answer = Cqe { result, cid: entry.cid, phase: pair.phase, ..Cqe::default() };
            let [low, high] = answer.to_words();
            self.memory.store64(to, low);
            self.memory.store64(to + completion::STATUS_OFFSET, high);
            pair.tail += 1;
            if pair.tail == pair.completion.1 {
                (pair.tail, pair.phase) = (0, !pair.phase);
            }
        }
        let mut pairs = self.pairs.borrow_mut();
        // A command may have changed another pair, but never its own.
        pairs[queue] = pair;
    }

    /// DW0 of an admin command; `None` if it is not answered.
    fn admin(&self, entry: &Sqe) -> Option<u32> {
        let queue = usize::from(entry.cdw10[0] as u16) % 4;
        let ring = (entry.data[0], (entry.cdw10[0] >> 16) + 1);
        match AdminOpcode::from_bits(entry.opcode) {
            AdminOpcode::AsyncEvent => return None,
            AdminOpcode::CreateCq => {
                let pair = &mut self.pairs.borrow_mut()[queue];
                *pair = Pair { completion: ring, phase: true, ..Pair::default() };
            }
            AdminOpcode::CreateSq => self.pairs.borrow_mut()[queue].submission = ring,
            AdminOpcode::Identify => {
                let mut data = [0; 4096];
                if entry.cdw10[0] == u32::from(Cns::Controller.into_bits()) {
                    let controller =
                        IdentifyController { sqes: 0x66, cqes: 0x44, ..Default::default() };
                    data = controller.to_bytes();
                }
                self.memory.write(self.at(entry.data[0], 4096), &data);
            }
            _ => {}
        }
        Some(0)
    }

    /// The effect of a write; a separate function, so that it is not counted.
    #[inline(never)]
    fn ring_or_write(&self, offset: u32, value: u32) {
        if offset >= DOORBELLS {
            let doorbell = (offset - DOORBELLS) / 4;
            if doorbell.is_multiple_of(2) {
                self.carry_out(doorbell as usize / 2, value);
            }
            return;
        }
        self.set(offset, value);
        if offset == CC {
            let on = Cc::from_bits(value).en();
            self.set(CSTS, Csts::new().with_rdy(on).into_bits());
            let submission = (self.address(ASQ), ADMIN_ENTRIES);
            let completion = (self.address(ACQ), ADMIN_ENTRIES);
            self.pairs.borrow_mut()[0] =
                Pair { submission, completion, phase: true, ..Pair::default() };
        }
    }
}

impl Registers for NvmeInstantMachine {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.get(offset)
    }

    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        self.ring_or_write(offset, value);
    }
}

impl Clock for NvmeInstantMachine {
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

impl Machine for NvmeInstantMachine {
    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}

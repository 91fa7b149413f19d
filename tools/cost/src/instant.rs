//! A UFS controller that does nothing: every command has ended when its doorbell write returns.
//! What remains of a run on it is the cost of the driver.

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Machine, Registers, Wake};
use flysch_wire::ufs::cqe::{self, Cqe, CqeUcd};
use flysch_wire::ufs::query::{DescriptorId, QueryOpcode, QueryResult};
use flysch_wire::ufs::registers::{
    CAP, Cap, CqAttr, HCE, HCS, Hce, Hcs, IS, Interrupts, MCQCAP, McqCap, SqAttr, UCMDARG2, UICCMD,
    UTRLDBR, VER, Ver, mcq, ring_entries,
};
use flysch_wire::ufs::upiu::{
    self, NopIn, QUERY_DATA_OFFSET, QueryRequest, QueryResponse, ResponseUpiu, TransactionCode,
    TransactionType,
};
use flysch_wire::ufs::utrd::{self, Utrd};
use std::cell::Cell;
use std::rc::Rc;

const BANK: u32 = 0x400;
const RUN_TIME: u32 = 0x1000;
const RUN_TIME_STRIDE: u32 = 0x30;
const CQ_BLOCK: u32 = 0x1C;
const CQ_INTERRUPT_BLOCK: u32 = 0x24;
const QUEUES: u32 = 4;
const WORDS: usize = 0x2000 / 4;

/// The controller. Clones are handles to the same one.
#[derive(Clone, Debug)]
pub struct InstantMachine {
    registers: Rc<[Cell<u32>; WORDS]>,
    memory: DmaRegion,
    /// Advances by one nanosecond per read.
    time: Rc<Cell<u64>>,
    order: Rc<Cell<Order>>,
}

/// The order in which the commands of one doorbell on a submission queue end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order they were issued.
    #[default]
    AsIssued,
    /// In steps of seven: far from the order of issue.
    Shuffled,
}

impl InstantMachine {
    /// A controller with `len` bytes of memory and both queue designs.
    pub fn new(len: usize) -> Self {
        let machine = Self {
            registers: Rc::new([const { Cell::new(0) }; WORDS]),
            memory: DmaRegion::zeroed(len, 0x1_0000_0000),
            time: Rc::new(Cell::new(0)),
            order: Rc::default(),
        };
        let cap = Cap::new().with_nutrs(31).with_nutmrs(7).with_addressing_64bit(true);
        machine.set(CAP, cap.with_mcqs(true).into_bits());
        let mcq_cap = McqCap::new().with_maxq(QUEUES as u8 - 1);
        machine.set(MCQCAP, mcq_cap.with_qcfgptr((BANK / mcq::BANK_UNIT) as u8).into_bits());
        machine.set(VER, Ver::V4_0.into_bits());
        for queue in 0..QUEUES {
            let bank = BANK + queue * mcq::STRIDE;
            let block = RUN_TIME + queue * RUN_TIME_STRIDE;
            machine.set(bank + mcq::SQDAO, block);
            machine.set(bank + mcq::CQDAO, block + CQ_BLOCK);
            machine.set(bank + mcq::CQISAO, block + CQ_INTERRUPT_BLOCK);
        }
        machine
    }

    /// Sets the order in which commands end.
    pub fn set_order(&self, order: Order) {
        self.order.set(order);
    }

    #[inline]
    fn get(&self, offset: u32) -> u32 {
        self.registers[offset as usize / 4 % WORDS].get()
    }

    #[inline]
    fn set(&self, offset: u32, value: u32) {
        self.registers[offset as usize / 4 % WORDS].set(value);
    }

    fn address(&self, low: u32, high: u32) -> u64 {
        u64::from(self.get(high)) << 32 | u64::from(self.get(low))
    }

    #[inline]
    fn at(&self, address: u64, len: usize) -> usize {
        self.memory.offset_of(address, len).expect("an address in memory")
    }

    #[inline(never)]
    fn carry_out_list(&self, mut slots: u32) {
        use flysch_wire::ufs::registers::{UTRLBA, UTRLBAU};
        let list = self.at(self.address(UTRLBA, UTRLBAU), 1024);
        while slots != 0 {
            let at = list + slots.trailing_zeros() as usize * utrd::LENGTH;
            self.execute(at);
            self.memory.store32(at + utrd::STATUS_OFFSET, 0);
            slots &= slots - 1;
        }
    }

    #[inline(never)]
    fn carry_out_queue(&self, queue: u32, tail: u32) {
        let (bank, block) = (BANK + queue * mcq::STRIDE, RUN_TIME + queue * RUN_TIME_STRIDE);
        let entries = ring_entries(SqAttr::from_bits(self.get(bank + mcq::SQATTR)).size());
        let answers = ring_entries(CqAttr::from_bits(self.get(bank + mcq::CQATTR)).size());
        let submission = self.at(self.address(bank + mcq::SQLBA, bank + mcq::SQUBA), 32);
        let completion = self.at(self.address(bank + mcq::CQLBA, bank + mcq::CQUBA), 32);
        let head = self.get(block + mcq::SQHP);
        let mut end = self.get(block + CQ_BLOCK + mcq::CQTP);
        let count = (tail + entries * 32 - head) % (entries * 32) / 32;
        for n in 0..count {
            let n = match self.order.get() {
                // 7 has no common divisor with a power of two.
                Order::Shuffled if count.is_power_of_two() => n * 7 % count,
                _ => n,
            };
            let ucd = self.execute(submission + ((head + n * 32) % (entries * 32)) as usize);
            let entry = Cqe { ucd: CqeUcd::pack(ucd, queue as u8), ..Cqe::default() };
            let mut bytes = [0; cqe::LENGTH];
            entry.emit(&mut bytes);
            self.memory.write(completion + end as usize, &bytes);
            end = (end + 32) % (answers * 32);
        }
        self.set(block + mcq::SQHP, tail);
        self.set(block + CQ_BLOCK + mcq::CQTP, end);
    }

    /// Answers the request of the descriptor at `at`; returns its command descriptor.
    fn execute(&self, at: usize) -> u64 {
        let mut bytes = [0; utrd::LENGTH];
        self.memory.read(at, &mut bytes);
        let utrd = Utrd::parse(&bytes);
        let ucd = self.at(utrd.ucd_base, 256);
        let mut request = [0; upiu::LENGTH];
        self.memory.read(ucd, &mut request);
        let response = ucd + utrd.response.offset_bytes();
        let mut answer = [0; upiu::LENGTH];
        match TransactionType::from_bits(request[0]).code() {
            TransactionCode::Command => {
                ResponseUpiu::new(request[2], request[3], 0).emit(&mut answer);
            }
            TransactionCode::QueryRequest => self.query(&request, response, &mut answer),
            _ => NopIn::new(request[3]).emit(&mut answer),
        }
        self.memory.write(response, &answer);
        utrd.ucd_base
    }

    /// Every attribute and flag is zero; every descriptor except those of the units is long and
    /// empty.
    fn query(&self, request: &[u8; upiu::LENGTH], at: usize, answer: &mut [u8; upiu::LENGTH]) {
        let query = QueryRequest::parse(request).expect("a query");
        let mut fields = query.fields;
        let mut result = QueryResult::Success;
        if fields.opcode == QueryOpcode::ReadDescriptor {
            if fields.idn == DescriptorId::Unit.into_bits() {
                result = QueryResult::InvalidIndex;
            } else {
                let mut descriptor = [0; 0x59];
                (descriptor[0], descriptor[1], descriptor[0x0A]) = (0x59, fields.idn, 1);
                descriptor[0x10..0x12].copy_from_slice(&0x0400_u16.to_be_bytes());
                self.memory.write(at + QUERY_DATA_OFFSET, &descriptor);
                fields = fields.with_length(0x59);
            }
        }
        QueryResponse::new(&query, result, fields).emit(answer);
    }
}

impl Registers for InstantMachine {
    #[inline]
    fn read32(&self, offset: u32) -> u32 {
        self.get(offset)
    }

    #[inline]
    fn write32(&self, offset: u32, value: u32) {
        self.ring_or_write(offset, value);
    }
}

impl InstantMachine {
    /// The effect of a write; a separate function, so that it is not counted.
    #[inline(never)]
    fn ring_or_write(&self, offset: u32, value: u32) {
        let run_time = offset.wrapping_sub(RUN_TIME);
        match offset {
            UTRLDBR => self.carry_out_list(value),
            IS => self.set(IS, self.get(IS) & !value),
            HCE => {
                self.set(HCE, value);
                let up = Hce::from_bits(value).hce();
                self.set(HCS, Hcs::new().with_ucrdy(up).into_bits());
            }
            UICCMD => {
                self.set(UCMDARG2, 0);
                let lists = Hcs::new().with_dp(true).with_utrlrdy(true).with_utmrlrdy(true);
                self.set(HCS, lists.with_ucrdy(true).into_bits());
                self.set(IS, Interrupts::new().with_uccs(true).with_upms(true).into_bits());
            }
            RUN_TIME.. if run_time % RUN_TIME_STRIDE == mcq::SQTP => {
                self.set(offset, value);
                self.carry_out_queue(run_time / RUN_TIME_STRIDE, value);
            }
            _ => self.set(offset, value),
        }
    }
}

impl Clock for InstantMachine {
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

impl Machine for InstantMachine {
    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn identity(&self) -> Identity {
        Identity::default()
    }
}

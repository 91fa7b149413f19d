//! A minimal NVMe host: registers, two queue pairs, no code of our driver.

use flysch_api::machine::{Clock, DmaRegion, Instant, Registers};
use flysch_models::machine::{Inline, Mode};
use flysch_models::nvme::{Config, Nvme};
use flysch_wire::nvme::command::{CreateCqFlags, CreateSqFlags, TransferFlags, queue_and_size};
use flysch_wire::nvme::registers::{self as reg, Aqa, Cc, Csts};
use flysch_wire::nvme::{AdminOpcode, Cns, Cqe, FeatureId, LogId, NvmOpcode, Sqe, log};

/// Device address of the memory.
pub(crate) const BASE: u64 = 0x1_0000_0000;
/// Offset of data in it.
pub(crate) const DATA: usize = 1 << 20;
const MEMORY: usize = 16 << 20;
/// Number of entries of each queue.
pub(crate) const ENTRIES: u16 = 64;
const PAGE: usize = 4096;

/// A queue pair as the host sees it.
#[derive(Clone, Copy)]
struct Pair {
    submission: usize,
    completion: usize,
    tail: u16,
    head: u16,
    phase: bool,
}

pub(crate) struct Host {
    pub(crate) machine: Inline<Nvme>,
    pub(crate) memory: DmaRegion,
    pairs: [Pair; 2],
    cid: u16,
}

impl Host {
    /// A controller with power, not enabled.
    pub(crate) fn new(config: Config) -> Self {
        let memory = DmaRegion::zeroed(MEMORY, BASE);
        let model = Nvme::new(config, memory.clone()).unwrap();
        let machine = Inline::new(model, memory.clone(), Default::default(), Mode::Virtual);
        let pair = |n: usize| Pair {
            submission: 2 * n * PAGE,
            completion: (2 * n + 1) * PAGE,
            tail: 0,
            head: 0,
            phase: true,
        };
        Self { machine, memory, pairs: [pair(0), pair(1)], cid: 0 }
    }

    /// A controller with an I/O queue pair.
    pub(crate) fn up(config: Config) -> Self {
        let mut host = Self::new(config);
        host.enable();
        host.create_pair();
        host
    }

    pub(crate) fn read(&self, register: u32) -> u32 {
        self.machine.read32(register)
    }

    pub(crate) fn write(&self, register: u32, value: u32) {
        self.machine.write32(register, value);
    }

    pub(crate) fn csts(&self) -> Csts {
        Csts::from_bits(self.read(reg::CSTS))
    }

    /// Waits until CSTS.RDY is `ready`, or CSTS.CFS is set.
    pub(crate) fn await_ready(&self, ready: bool) -> bool {
        for _ in 0..100 {
            let csts = self.csts();
            if csts.cfs() && ready {
                return false;
            }
            if csts.rdy() == ready && !csts.cfs() {
                return true;
            }
            self.rest(1_000_000);
        }
        false
    }

    /// Lets time pass, whatever interrupts come meanwhile.
    pub(crate) fn rest(&self, nanos: u64) {
        self.rest_until(self.machine.now().after_nanos(nanos));
    }

    fn rest_until(&self, until: Instant) {
        // An active line would end every wait immediately.
        self.write(reg::INTMS, 1);
        while self.machine.now() < until {
            self.machine.wait(Some(until));
        }
        self.write(reg::INTMC, 1);
    }

    /// Disables the controller if necessary, then enables it.
    pub(crate) fn enable(&mut self) {
        self.write(reg::CC, 0);
        assert!(self.await_ready(false));
        for pair in &mut self.pairs {
            (pair.tail, pair.head, pair.phase) = (0, 0, true);
            self.memory.fill(pair.completion, PAGE, 0);
        }
        let last = ENTRIES - 1;
        self.write(reg::AQA, Aqa::new().with_asqs(last).with_acqs(last).into_bits());
        for (register, at) in [(reg::ASQ, 0), (reg::ACQ, PAGE)] {
            let address = BASE + at as u64;
            self.write(register, address as u32);
            self.write(register + 4, (address >> 32) as u32);
        }
        let cc = Cc::new().with_iosqes(6).with_iocqes(4);
        self.write(reg::CC, cc.into_bits());
        self.write(reg::CC, cc.with_en(true).into_bits());
        assert!(self.await_ready(true));
    }

    /// Creates queue pair 1.
    pub(crate) fn create_pair(&mut self) {
        let size = queue_and_size(1, ENTRIES);
        let cq = CreateCqFlags::new().with_pc(true).with_ien(true).into_bits();
        let sq = CreateSqFlags::new().with_pc(true).with_cqid(1).into_bits();
        let Pair { submission, completion, .. } = self.pairs[1];
        for (opcode, flags, at) in
            [(AdminOpcode::CreateCq, cq, completion), (AdminOpcode::CreateSq, sq, submission)]
        {
            let data = [BASE + at as u64, 0];
            let cdw10 = [size, flags, 0, 0, 0, 0];
            assert_eq!(self.admin(opcode, Sqe { data, cdw10, ..Sqe::default() }).status, 0);
        }
    }

    /// Puts a command into a queue without ringing; returns its id.
    pub(crate) fn put(&mut self, queue: usize, command: Sqe) -> u16 {
        self.cid = self.cid.wrapping_add(1);
        let pair = &mut self.pairs[queue];
        let at = pair.submission + usize::from(pair.tail) * 64;
        for (n, word) in (Sqe { cid: self.cid, ..command }).to_words().into_iter().enumerate() {
            self.memory.store64(at + n * 8, word);
        }
        pair.tail = (pair.tail + 1) % ENTRIES;
        self.cid
    }

    /// Rings the tail doorbell.
    pub(crate) fn ring(&self, queue: usize) {
        self.write(reg::sq_tail(queue as u16, 0), self.pairs[queue].tail.into());
    }

    pub(crate) fn tail(&self, queue: usize) -> u16 {
        self.pairs[queue].tail
    }

    pub(crate) fn head(&self, queue: usize) -> u16 {
        self.pairs[queue].head
    }

    /// Takes an available completion without telling the controller.
    pub(crate) fn peek(&mut self, queue: usize) -> Option<Cqe> {
        let pair = &mut self.pairs[queue];
        let at = pair.completion + usize::from(pair.head) * 16;
        let cqe = Cqe::from_words([self.memory.load64(at), self.memory.load64(at + 8)]);
        if cqe.phase != pair.phase {
            return None;
        }
        pair.head = (pair.head + 1) % ENTRIES;
        pair.phase ^= pair.head == 0;
        Some(cqe)
    }

    /// Tells the controller which completions were taken.
    pub(crate) fn acknowledge(&self, queue: usize) {
        self.write(reg::cq_head(queue as u16, 0), self.pairs[queue].head.into());
    }

    /// Takes an available completion.
    pub(crate) fn take(&mut self, queue: usize) -> Option<Cqe> {
        let cqe = self.peek(queue)?;
        self.acknowledge(queue);
        Some(cqe)
    }

    /// The next completion, within 100 s.
    pub(crate) fn reap(&mut self, queue: usize) -> Option<Cqe> {
        let end = self.machine.now().after_nanos(100_000_000_000);
        loop {
            if let Some(cqe) = self.take(queue) {
                return Some(cqe);
            }
            let next = self.machine.with_model(|model| model.next_event())?;
            if next > end {
                return None;
            }
            self.rest_until(next.max(self.machine.now().after_nanos(1)));
        }
    }

    /// Carries a command out to its end.
    pub(crate) fn command(&mut self, queue: usize, command: Sqe) -> Cqe {
        let cid = self.put(queue, command);
        self.ring(queue);
        let cqe = self.reap(queue).expect("it ends");
        assert_eq!((cqe.cid, cqe.sq), (cid, queue as u16));
        cqe
    }

    pub(crate) fn admin(&mut self, opcode: AdminOpcode, command: Sqe) -> Cqe {
        self.command(0, Sqe { opcode: opcode.into_bits(), ..command })
    }

    /// SCT and SC of an admin command with these dwords, whose data is at [`DATA`].
    pub(crate) fn admin_code(&mut self, opcode: AdminOpcode, nsid: u32, cdw10: [u32; 6]) -> u16 {
        self.admin(opcode, Sqe { nsid, cdw10, data: data_at(DATA), ..Sqe::default() }).status
            & 0x7FF
    }

    /// The data of an identify command.
    pub(crate) fn identify(&mut self, cns: Cns, nsid: u32) -> Result<Vec<u8>, u16> {
        let cdw10 = [u32::from(cns.into_bits()), 0, 0, 0, 0, 0];
        match self.admin_code(AdminOpcode::Identify, nsid, cdw10) {
            0 => Ok(self.bytes(DATA, 4096)),
            code => Err(code),
        }
    }

    /// This many bytes of a log page.
    pub(crate) fn log(&mut self, id: LogId, bytes: u32) -> Vec<u8> {
        let [low, high] = log::request(id.into_bits(), bytes, false);
        let code = self.admin_code(AdminOpcode::GetLogPage, u32::MAX, [low, high, 0, 0, 0, 0]);
        assert_eq!(code, 0);
        self.bytes(DATA, bytes as usize)
    }

    pub(crate) fn set_feature(&mut self, id: FeatureId, cdw11: u32) -> u16 {
        let cdw10 = [id.into_bits().into(), cdw11, 0, 0, 0, 0];
        self.admin_code(AdminOpcode::SetFeatures, 0, cdw10)
    }

    /// A transfer of `blocks` blocks; its data is in pages from `at` on.
    pub(crate) fn transfer(opcode: NvmOpcode, lba: u64, blocks: u16, data: [u64; 2]) -> Sqe {
        let flags = TransferFlags::new().with_nlb(blocks - 1);
        let cdw10 = [lba as u32, (lba >> 32) as u32, flags.into_bits(), 0, 0, 0];
        Sqe { opcode: opcode.into_bits(), nsid: 1, data, cdw10, ..Sqe::default() }
    }

    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(at, &mut bytes);
        bytes
    }
}

/// PRPs of at most two pages, at a page-aligned offset of the memory.
pub(crate) fn data_at(at: usize) -> [u64; 2] {
    [BASE + at as u64, BASE + (at + PAGE) as u64]
}

//! A scripted host: drives a model only through its registers and DMA memory, with the wire
//! definitions both sides share, and no code of the real driver.

use flysch_api::machine::{Clock, DmaRegion, Identity, Instant, Registers, Wake};
use flysch_models::machine::{Inline, Mode};
use flysch_models::ufs::{Config, Ufs};
use flysch_wire::ufs::cqe::{self, Cqe};
use flysch_wire::ufs::prdt;
use flysch_wire::ufs::query::{QueryOpcode, QueryResult};
use flysch_wire::ufs::registers::{self as reg, Cap, CqAttr, Hcs, Interrupts, McqCap, SqAttr};
use flysch_wire::ufs::uic::{UicArgument1, UicAttribute, UicOpcode, UicResult};
use flysch_wire::ufs::upiu::{
    CommandFlags, CommandUpiu, NopOut, QueryFields, QueryRequest, QueryResponse, ResponseUpiu,
    ServiceResponse, TaskFunction, TaskRequest, TaskResponse,
};
use flysch_wire::ufs::utmrd;
use flysch_wire::ufs::utrd::{CommandType, Ocs, UcdSpan, Utrd, UtrdHeader, UtrdStatus};

pub(crate) const BASE: u64 = 0x10_0000;
const UTRL: usize = 0;
const UTMRL: usize = 0x400;
const RINGS: usize = 0x1_0000;
const UCDS: usize = 0x4_0000;
const UCD_LEN: usize = 0x1000;
const RESPONSE: usize = 512;
const PRDT: usize = 1024;
/// Start of the data buffers; each slot has [`Host::data_len`] bytes.
const DATA: usize = 0x20_0000;

pub(crate) type Device = Inline<Ufs>;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) ocs: Ocs,
    pub(crate) response: u8,
    pub(crate) status: u8,
    /// Residual as reported: negative for overflow.
    pub(crate) residual: i64,
    pub(crate) sense: Vec<u8>,
    pub(crate) event_alert: bool,
}

impl End {
    pub(crate) fn key(&self) -> (u8, u8, u8) {
        match self.sense.get(..14) {
            Some(sense) => (sense[2] & 0xF, sense[12], sense[13]),
            None => (0, 0, 0),
        }
    }
}

pub(crate) struct Host {
    pub(crate) machine: Device,
    pub(crate) memory: DmaRegion,
    pub(crate) data_len: usize,
    pub(crate) mcq: u32,
    bank: u32,
    sq_tail: Vec<u32>,
    cq_head: Vec<u32>,
    /// Completions not yet reaped, in multi-circular queue mode: (tag, OCS).
    posted: Vec<(u8, Ocs)>,
    outstanding: u32,
}

/// Number of entries of every ring.
const ENTRIES: u32 = 64;

impl Host {
    /// A machine with a model of `config` and `data_len` bytes of data per slot, not started.
    pub(crate) fn cold(config: Config, data_len: usize) -> Self {
        Self::with_mode(config, data_len, Mode::Virtual)
    }

    pub(crate) fn with_mode(config: Config, data_len: usize, mode: Mode) -> Self {
        let memory = DmaRegion::zeroed(DATA + 33 * data_len, BASE);
        let model = Ufs::new(config, memory.clone()).unwrap();
        let machine = Inline::new(model, memory.clone(), Identity::default(), mode);
        Self {
            machine,
            memory,
            data_len,
            mcq: 0,
            bank: 0,
            sq_tail: Vec::new(),
            cq_head: Vec::new(),
            posted: Vec::new(),
            outstanding: 0,
        }
    }

    /// Brings everything up to the highest gear; with multi-circular queues if `queues` is not 0.
    pub(crate) fn up(config: Config, data_len: usize, queues: u32) -> Self {
        let gear = config.profile.gear_max;
        let lanes = config.profile.lanes;
        let mut host = Self::cold(config, data_len);
        host.start(queues);
        host.speed_up(gear, lanes);
        host.clear_attentions();
        host
    }

    /// Clears the UNIT ATTENTION of every unit, as a host does after a reset.
    pub(crate) fn clear_attentions(&mut self) {
        for lun in (0..32).chain([0x81, 0xD0, 0xB0, 0xC4]) {
            self.command_in(lun, &[3, 0, 0, 0, 18, 0], 18);
        }
    }

    pub(crate) fn read(&self, offset: u32) -> u32 {
        self.machine.read32(offset)
    }

    pub(crate) fn write(&self, offset: u32, value: u32) {
        self.machine.write32(offset, value);
    }

    pub(crate) fn sleep_us(&self, us: u64) {
        let until = self.machine.now().after_nanos(us * 1000);
        while self.machine.now() < until {
            self.machine.wait(Some(until));
            if self.machine.now() < until {
                // An interrupt that stays active: lets time pass regardless.
                let ie = self.read(reg::IE);
                self.write(reg::IE, 0);
                self.machine.wait(Some(until));
                self.write(reg::IE, ie);
            }
        }
    }

    /// From reset to fDeviceInit done.
    pub(crate) fn start(&mut self, queues: u32) {
        self.enable();
        self.link_startup();
        self.lists(queues);
        self.nop();
        self.init_device();
    }

    pub(crate) fn enable(&mut self) {
        self.write(reg::HCE, 0);
        self.write(reg::HCE, 1);
        self.sleep_us(100);
        assert_eq!(self.read(reg::HCE) & 1, 1);
        self.outstanding = 0;
        self.posted.clear();
    }

    pub(crate) fn link_startup(&mut self) {
        assert_eq!(self.uic(UicOpcode::DmeLinkstartup, 0, 0, 0).0, UicResult::Success);
        let hcs = Hcs::from_bits(self.read(reg::HCS));
        assert!(hcs.dp() && hcs.utrlrdy() && hcs.utmrlrdy() && hcs.ucrdy());
    }

    pub(crate) fn lists(&mut self, queues: u32) {
        self.write(reg::IE, 0x1F_FFFF & !Interrupts::new().with_uccs(true).into_bits());
        self.write(reg::UTRLBA, BASE as u32 + UTRL as u32);
        self.write(reg::UTRLBAU, 0);
        self.write(reg::UTMRLBA, BASE as u32 + UTMRL as u32);
        self.write(reg::UTMRLBAU, 0);
        self.write(reg::UTMRLRSR, 1);
        self.mcq = queues;
        if queues == 0 {
            return self.write(reg::UTRLRSR, 1);
        }
        assert!(Cap::from_bits(self.read(reg::CAP)).mcqs());
        self.write(reg::CONFIG, 1);
        let mcqcap = McqCap::from_bits(self.read(reg::MCQCAP));
        assert!(queues <= mcqcap.queues());
        self.bank = mcqcap.bank_offset();
        let size = reg::ring_size_field(ENTRIES).unwrap();
        for queue in 0..queues {
            let at = self.bank + queue * reg::mcq::STRIDE;
            let sq = RINGS + queue as usize * 0x1000;
            self.write(at + reg::mcq::SQLBA, (BASE as usize + sq) as u32);
            self.write(at + reg::mcq::CQLBA, (BASE as usize + sq + 0x800) as u32);
            self.write(at + reg::mcq::CQATTR, CqAttr::new().with_size(size).with_cqen(true).into());
            self.write(self.read(at + reg::mcq::CQISAO) + reg::mcq::CQIE, 1);
            let attributes = SqAttr::new().with_size(size).with_sqen(true).with_cqid(queue as u8);
            self.write(at + reg::mcq::SQATTR, attributes.into());
            assert!(SqAttr::from_bits(self.read(at + reg::mcq::SQATTR)).sqen());
        }
        self.sq_tail = vec![0; queues as usize];
        self.cq_head = vec![0; queues as usize];
    }

    pub(crate) fn init_device(&mut self) {
        let set = QueryFields::flag(QueryOpcode::SetFlag, 1, 0, 0);
        assert_eq!(self.query(set, &[]).0, QueryResult::Success);
        for _ in 0..2000 {
            let get = QueryFields::flag(QueryOpcode::ReadFlag, 1, 0, 0);
            let (result, fields, _) = self.query(get, &[]);
            assert_eq!(result, QueryResult::Success);
            if !fields.flag_value() {
                return;
            }
            self.sleep_us(1000);
        }
        panic!("fDeviceInit stays set");
    }

    pub(crate) fn speed_up(&mut self, gear: u8, lanes: u8) {
        use UicAttribute::*;
        for (id, value) in [
            (PaTxgear, gear),
            (PaRxgear, gear),
            (PaActivetxdatalanes, lanes),
            (PaActiverxdatalanes, lanes),
            (PaTxtermination, 1),
            (PaRxtermination, 1),
            (PaHsseries, 2),
            (PaTxhsadapttype, 1),
            (PaPwrmode, 0x11),
        ] {
            assert_eq!(self.dme_set(id, u32::from(value)), UicResult::Success, "{id}");
        }
        self.sleep_us(2000);
        let hcs = Hcs::from_bits(self.read(reg::HCS));
        assert_eq!(hcs.upmcrs(), reg::PowerModeStatus::Local);
        self.write(reg::IS, Interrupts::new().with_upms(true).into_bits());
    }

    /// Sends a UIC command; returns result and argument 3.
    pub(crate) fn uic(
        &mut self,
        opcode: UicOpcode,
        arg1: u32,
        arg2: u32,
        arg3: u32,
    ) -> (UicResult, u32) {
        let done = Interrupts::new().with_uccs(true).into_bits();
        self.write(reg::IS, done);
        self.write(reg::UCMDARG1, arg1);
        self.write(reg::UCMDARG2, arg2);
        self.write(reg::UCMDARG3, arg3);
        self.write(reg::UICCMD, u32::from(opcode.into_bits()));
        for _ in 0..1000 {
            if self.read(reg::IS) & done != 0 {
                self.write(reg::IS, done);
                let result = UicResult::from_bits(self.read(reg::UCMDARG2) as u8);
                return (result, self.read(reg::UCMDARG3));
            }
            self.sleep_us(10);
        }
        panic!("{opcode} does not end");
    }

    pub(crate) fn dme_set(&mut self, id: UicAttribute, value: u32) -> UicResult {
        let argument = UicArgument1::new().with_mib_attribute(id);
        self.uic(UicOpcode::DmeSet, argument.into_bits(), 0, value).0
    }

    pub(crate) fn dme_get(&mut self, id: UicAttribute) -> (UicResult, u32) {
        let argument = UicArgument1::new().with_mib_attribute(id);
        self.uic(UicOpcode::DmeGet, argument.into_bits(), 0, 0)
    }

    pub(crate) fn ucd(&self, slot: u8) -> usize {
        UCDS + usize::from(slot) * UCD_LEN
    }

    /// Offset of the data of `slot` in DMA memory.
    pub(crate) fn data(&self, slot: u8) -> usize {
        DATA + usize::from(slot) * self.data_len
    }

    /// The descriptor of `slot` for `data` bytes.
    pub(crate) fn utrd(&self, slot: u8, data: u32) -> Utrd {
        Utrd {
            header: UtrdHeader::new().with_ct(CommandType::UfsStorage).with_i(true),
            dun: 0,
            status: UtrdStatus::PENDING,
            ucd_base: BASE + self.ucd(slot) as u64,
            response: UcdSpan::new().with_length(128).with_offset((RESPONSE / 4) as u16),
            prdt: UcdSpan::new()
                .with_length(prdt::entries_for(data) as u16)
                .with_offset((PRDT / 4) as u16),
        }
    }

    pub(crate) fn write_prdt(&self, slot: u8, data: u32) {
        let address = BASE + self.data(slot) as u64;
        // Entries count in dwords; the expected length limits the last one.
        for (n, entry) in prdt::entries(address, data.next_multiple_of(4)).enumerate() {
            let mut bytes = [0; prdt::LENGTH];
            entry.emit(&mut bytes);
            self.memory.write(self.ucd(slot) + PRDT + n * prdt::LENGTH, &bytes);
        }
    }

    /// Puts a request UPIU and its descriptor in place, without ringing.
    pub(crate) fn prepare(&self, slot: u8, upiu: &[u8], data: u32) -> Utrd {
        self.memory.fill(self.ucd(slot) + RESPONSE, 512, 0xEE);
        self.memory.write(self.ucd(slot), upiu);
        self.write_prdt(slot, data);
        self.utrd(slot, data)
    }

    pub(crate) fn ring(&mut self, queue: usize, slot: u8, utrd: &Utrd) {
        let mut bytes = [0; 32];
        utrd.emit(&mut bytes);
        if self.mcq == 0 {
            self.memory.write(UTRL + usize::from(slot) * 32, &bytes);
            return self.write(reg::UTRLDBR, 1 << slot);
        }
        let tail = self.sq_tail[queue];
        self.memory.write(RINGS + queue * 0x1000 + tail as usize, &bytes);
        self.sq_tail[queue] = (tail + 32) % (ENTRIES * 32);
        self.write(self.sq_block(queue) + reg::mcq::SQTP, self.sq_tail[queue]);
    }

    pub(crate) fn sq_block(&self, queue: usize) -> u32 {
        self.read(self.bank + queue as u32 * reg::mcq::STRIDE + reg::mcq::SQDAO)
    }

    fn cq_block(&self, queue: usize) -> u32 {
        self.read(self.bank + queue as u32 * reg::mcq::STRIDE + reg::mcq::CQDAO)
    }

    /// Issues `upiu` in `slot`.
    pub(crate) fn issue(&mut self, slot: u8, upiu: &[u8], data: u32) {
        let utrd = self.prepare(slot, upiu, data);
        let queue = if self.mcq == 0 { 0 } else { usize::from(slot) % self.mcq as usize };
        self.outstanding |= 1 << slot;
        self.ring(queue, slot, &utrd);
    }

    /// Takes finished slots with their OCS.
    pub(crate) fn reap(&mut self) -> Vec<(u8, Ocs)> {
        let is = self.read(reg::IS);
        let mask = Interrupts::new().with_utrcs(true).with_cqes(true).into_bits();
        self.write(reg::IS, is & mask);
        let mut done = Vec::new();
        if self.mcq == 0 {
            let ended = self.outstanding & !self.read(reg::UTRLDBR);
            for slot in (0..32_u8).filter(|slot| ended >> slot & 1 != 0) {
                let mut bytes = [0; 32];
                self.memory.read(UTRL + usize::from(slot) * 32, &mut bytes);
                done.push((slot, Utrd::parse(&bytes).status.ocs()));
            }
            self.outstanding &= !ended;
            return done;
        }
        for queue in 0..self.mcq as usize {
            let block = self.cq_block(queue);
            let tail = self.read(block + reg::mcq::CQTP);
            while self.cq_head[queue] != tail {
                let at = RINGS + queue * 0x1000 + 0x800 + self.cq_head[queue] as usize;
                let mut bytes = [0; cqe::LENGTH];
                self.memory.read(at, &mut bytes);
                let entry = Cqe::parse(&bytes);
                let slot = ((entry.ucd.base() - BASE) as usize - UCDS) / UCD_LEN;
                done.push((slot as u8, entry.status.ocs()));
                self.outstanding &= !(1 << slot);
                self.cq_head[queue] = (self.cq_head[queue] + 32) % (ENTRIES * 32);
            }
            self.write(block + reg::mcq::CQHP, tail);
            let is = self.read(self.bank + queue as u32 * reg::mcq::STRIDE + reg::mcq::CQISAO);
            self.write(is + reg::mcq::CQIS, 1);
        }
        done
    }

    /// Waits up to `ms` for `slot` to end; `None` if it does not.
    pub(crate) fn await_slot(&mut self, slot: u8, ms: u64) -> Option<Ocs> {
        let until = self.machine.now().after_nanos(ms * 1_000_000);
        loop {
            let done = self.reap();
            self.posted.extend(done);
            if let Some(at) = self.posted.iter().position(|(done, _)| *done == slot) {
                return Some(self.posted.remove(at).1);
            }
            if self.machine.now() >= until {
                return None;
            }
            if self.machine.wait(Some(until)) == Wake::Interrupt {
                let others = self.read(reg::IS) & !0x10_0001;
                self.write(reg::IE, self.read(reg::IE) & !others);
            }
        }
    }

    pub(crate) fn response(&self, slot: u8) -> [u8; 512] {
        let mut bytes = [0; 512];
        self.memory.read(self.ucd(slot) + RESPONSE, &mut bytes);
        bytes
    }

    /// The contents of the response in `slot`.
    pub(crate) fn end(&self, slot: u8, ocs: Ocs) -> End {
        let bytes = self.response(slot);
        let head: [u8; 32] = bytes[..32].try_into().unwrap();
        let Ok(unit) = ResponseUpiu::parse(&head) else {
            let (sense, event_alert) = (Vec::new(), false);
            return End { ocs, response: 0xFF, status: 0xFF, residual: 0, sense, event_alert };
        };
        let count = i64::from(unit.residual_transfer_count);
        End {
            ocs,
            response: unit.header.response,
            status: unit.header.status,
            residual: if unit.flags().o() { -count } else { count },
            sense: unit.sense(&bytes).to_vec(),
            event_alert: unit.header.device_information.event_alert(),
        }
    }

    pub(crate) fn command_upiu(lun: u8, tag: u8, cdb: &[u8], write: bool, len: u32) -> [u8; 32] {
        let mut full = [0; 16];
        full[..cdb.len()].copy_from_slice(cdb);
        let flags = CommandFlags::new().with_w(write && len > 0).with_r(!write && len > 0);
        let mut unit = CommandUpiu::new(lun, tag, flags, full);
        unit.expected_data_transfer_length = len;
        let mut bytes = [0; 32];
        unit.emit(&mut bytes);
        bytes
    }

    /// A command that takes up to `len` bytes from the device.
    pub(crate) fn command_in(&mut self, lun: u8, cdb: &[u8], len: u32) -> (End, Vec<u8>) {
        self.memory.fill(self.data(31), len as usize, 0xDD);
        self.issue(31, &Self::command_upiu(lun, 31, cdb, false, len), len);
        let ocs = self.await_slot(31, 10_000).expect("the command ends");
        let end = self.end(31, ocs);
        let mut data = vec![0; len as usize];
        self.memory.read(self.data(31), &mut data);
        if end.residual > 0 {
            data.truncate(len as usize - end.residual as usize);
        }
        (end, data)
    }

    /// A command that sends `data`.
    pub(crate) fn command_out(&mut self, lun: u8, cdb: &[u8], data: &[u8]) -> End {
        self.memory.write(self.data(31), data);
        let len = data.len() as u32;
        self.issue(31, &Self::command_upiu(lun, 31, cdb, true, len), len);
        let ocs = self.await_slot(31, 10_000).expect("the command ends");
        self.end(31, ocs)
    }

    pub(crate) fn nop(&mut self) {
        let mut bytes = [0; 32];
        NopOut::new(31).emit(&mut bytes);
        self.issue(31, &bytes, 0);
        assert_eq!(self.await_slot(31, 50), Some(Ocs::Success));
        assert_eq!(self.response(31)[0], 0x20);
    }

    /// A query; returns result, fields and data segment.
    pub(crate) fn query(
        &mut self,
        fields: QueryFields,
        data: &[u8],
    ) -> (QueryResult, QueryFields, Vec<u8>) {
        let mut bytes = vec![0; 32 + data.len()];
        let mut head = [0; 32];
        QueryRequest::new(31, fields).emit(&mut head);
        bytes[..32].copy_from_slice(&head);
        bytes[32..].copy_from_slice(data);
        self.issue(31, &bytes, 0);
        assert_eq!(self.await_slot(31, 2000), Some(Ocs::Success));
        let bytes = self.response(31);
        let head: [u8; 32] = bytes[..32].try_into().unwrap();
        let unit = QueryResponse::parse(&head).expect("a query response");
        let data = unit.header.data_segment(&bytes).unwrap().to_vec();
        (unit.result(), unit.fields, data)
    }

    /// A task management function; returns its service response.
    pub(crate) fn manage(&mut self, function: TaskFunction, lun: u8, tag: u8) -> ServiceResponse {
        let mut bytes = [0; utmrd::LENGTH];
        let mut request = [0; 32];
        TaskRequest::new(0, function, lun, tag).emit(&mut request);
        utmrd::Utmrd {
            header: utmrd::UtmrdHeader::new().with_i(true),
            ocs: utmrd::TaskOcs::Invalid,
            request,
            response: [0; 32],
        }
        .emit(&mut bytes);
        self.memory.write(UTMRL, &bytes);
        self.write(reg::UTMRLDBR, 1);
        for _ in 0..100 {
            self.sleep_us(10);
            if self.read(reg::UTMRLDBR) & 1 == 0 {
                self.write(reg::IS, Interrupts::new().with_utmrcs(true).into_bits());
                self.memory.read(UTMRL, &mut bytes);
                let unit = utmrd::Utmrd::parse(&bytes);
                assert_eq!(unit.ocs, utmrd::TaskOcs::Success);
                return TaskResponse::parse(&unit.response).unwrap().service_response;
            }
        }
        panic!("the task management function does not end");
    }

    pub(crate) fn now(&self) -> Instant {
        self.machine.now()
    }

    /// READ(10) CDB.
    pub(crate) fn read10(lba: u32, blocks: u16) -> [u8; 10] {
        Self::cdb10(0x28, 0, lba, blocks)
    }

    /// WRITE(10) CDB.
    pub(crate) fn write10(lba: u32, blocks: u16) -> [u8; 10] {
        Self::cdb10(0x2A, 0, lba, blocks)
    }

    pub(crate) fn cdb10(opcode: u8, flags: u8, lba: u32, blocks: u16) -> [u8; 10] {
        let mut cdb = [0; 10];
        cdb[0] = opcode;
        cdb[1] = flags;
        cdb[2..6].copy_from_slice(&lba.to_be_bytes());
        cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
        cdb
    }
}

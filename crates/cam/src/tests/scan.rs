//! Scanning a device whose units answer by table.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::command::{
    Command, Declined, Ended, Failure, Limits, Outcome, Port, Scsi, ScsiStatus, SenseBytes,
};
use flysch_api::data::{Data, SegmentLimits};
use flysch_api::machine::{DmaRegion, Instant};
use flysch_wire::scsi::luns::LogicalUnitNumber;
use flysch_wire::scsi::vpd::{BlockLimits, LogicalBlockProvisioning, VpdPage};

use super::run::Skipping;
use crate::error::CamError;
use crate::scan::{self, scan, scan_luns};

/// What a unit answers to a command, by the first three bytes of the CDB.
enum Answer {
    Data(Vec<u8>),
    Sense(u8, u8, u8),
    End(Ended),
}

pub(super) struct Device {
    memory: DmaRegion,
    /// (unit, operation code, byte 2): answers in turn, the last one for ever.
    answers: BTreeMap<(u8, u8, u8), VecDeque<Answer>>,
    done: VecDeque<(Outcome, Failure<Scsi>)>,
    failure: Failure<Scsi>,
}

impl Device {
    pub(super) fn new() -> Self {
        Self {
            memory: DmaRegion::zeroed(8192, 0x4000),
            answers: BTreeMap::new(),
            done: VecDeque::new(),
            failure: Failure::default(),
        }
    }

    fn answer(&mut self, lun: u8, code: u8, page: u8, answer: Answer) {
        self.answers.entry((lun, code, page)).or_default().push_back(answer);
    }

    fn data(&mut self, lun: u8, code: u8, page: u8, bytes: &[u8]) {
        self.answer(lun, code, page, Answer::Data(bytes.to_vec()));
    }

    pub(super) fn luns(&mut self, at: u8, luns: &[u8]) {
        let mut bytes = vec![0; 1024];
        let list = luns.iter().map(|&lun| LogicalUnitNumber::from_ufs(lun));
        let length = flysch_wire::scsi::luns::emit(list, &mut bytes);
        self.data(at, 0xA0, 0, &bytes[..length]);
    }

    /// A unit with everything a disk has.
    pub(super) fn unit(&mut self, lun: u8) {
        let mut inquiry = [0; 36];
        inquiry[2] = 6;
        inquiry[8..].copy_from_slice(b"ACME    Flash disk      0042");
        self.data(lun, 0x12, 0, &inquiry);
        let mut page = [0; 64];
        let limits = BlockLimits {
            transfer_max: 256,
            unmap_lba_max: 4096,
            unmap_descriptors_max: 1,
            ..BlockLimits::default()
        };
        limits.emit(&mut page);
        self.data(lun, 0x12, 0xB0, &page);
        let mut page = [0; 8];
        LogicalBlockProvisioning { lbpu: true, ..Default::default() }.emit(&mut page);
        self.data(lun, 0x12, 0xB2, &page);
        self.data(lun, 0x12, 0x80, b"\0\x80\0\x08  S-0001");
        let naa = [
            0, 0x83, 0, 20, 2, 1, 0, 4, b'T', b'1', b'0', b' ', 1, 3, 0, 8, 5, 1, 2, 3, 4, 5, 6, 7,
        ];
        self.data(lun, 0x12, 0x83, &naa);
        self.data(lun, 0x00, 0, &[]);
        let mut capacity = [0; 32];
        capacity[..8].copy_from_slice(&0xFFFF_u64.to_be_bytes());
        capacity[8..12].copy_from_slice(&4096_u32.to_be_bytes());
        capacity[14] = 0x80;
        self.data(lun, 0x9E, 0, &capacity);
        let mut mode = [0; 28];
        (mode[1], mode[3], mode[8], mode[9], mode[10]) = (26, 0x90, 8, 18, 4);
        self.data(lun, 0x5A, 8, &mode);
    }
}

impl Port for Device {
    type Protocol = Scsi;

    fn limits(&self) -> &Limits {
        &Limits { slots: 1, transfer_max: 4096, segments: SegmentLimits::NONE, crypto: false }
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn start(&mut self, command: Command<Scsi>, issued: Instant) -> Result<(), Declined> {
        let cdb = command.payload.0;
        let page = if cdb[0] == 0x9E { 0 } else { cdb[2] };
        let unit = LogicalUnitNumber::from_bits(command.unit).to_ufs().unwrap();
        let key = (unit, cdb[0], page);
        let there = self.answers.keys().any(|k| k.0 == unit);
        let queue = self.answers.get_mut(&key);
        let none = match () {
            () if cdb[0] == 0x12 && page == 0 && cdb[1] == 1 => {
                Answer::Data(vec![0, 0, 0, 5, 0, 0x80, 0x83, 0xB0, 0xB2])
            }
            () if there => Answer::Sense(5, 0x20, 0),
            () => Answer::End(Ended::NoUnit),
        };
        let standard = page != 0 || cdb[1] == 0 || cdb[0] != 0x12;
        let answer = match queue {
            Some(queue) if standard && queue.len() > 1 => queue.pop_front().unwrap(),
            Some(queue) if standard => match &queue[0] {
                Answer::Data(bytes) => Answer::Data(bytes.clone()),
                Answer::Sense(k, a, q) => Answer::Sense(*k, *a, *q),
                Answer::End(ended) => Answer::End(*ended),
            },
            _ => none,
        };
        let mut failure = Failure::default();
        let ended = match answer {
            Answer::Data(bytes) => {
                let Data::One(buffer) = command.data else { panic!("a scan has no lists") };
                let length = bytes.len().min(buffer.len as usize);
                if length > 0 {
                    let at = self.memory.offset_of(buffer.address, length).unwrap();
                    self.memory.write(at, &bytes[..length]);
                }
                failure.residual = buffer.len - length as u32;
                if failure.residual == 0 { Ended::Good } else { Ended::Answered }
            }
            Answer::Sense(key, asc, ascq) => {
                let sense = [0x70, 0, key, 0, 0, 0, 0, 10, 0, 0, 0, 0, asc, ascq, 0, 0, 0, 0];
                failure.status = ScsiStatus { status: 2, sense: SenseBytes::new(&sense) };
                Ended::Answered
            }
            Answer::End(ended) => ended,
        };
        let outcome = Outcome { issued, device_done: None, token: command.token, ended };
        self.done.push_back((outcome, failure));
        Ok(())
    }

    fn ring(&mut self, _now: Instant) {}

    fn poll(&mut self, _now: Instant) -> Option<Outcome> {
        let (outcome, failure) = self.done.pop_front()?;
        self.failure = failure;
        Some(outcome)
    }

    fn failure(&self) -> Failure<Scsi> {
        self.failure
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

/// The one-byte numbers of the units.
fn luns(units: &[scan::Peripheral]) -> Vec<u8> {
    units.iter().map(|unit| unit.lun.to_ufs().unwrap()).collect()
}

fn scanned(device: &mut Device) -> Result<Vec<scan::Peripheral>, CamError> {
    let scratch = device.memory.carve(0, scan::SCRATCH_BYTES);
    scan(device, &Skipping::new(), &scratch)
}

#[test]
fn a_disk_tells_everything() {
    let mut device = Device::new();
    device.luns(0, &[0, 5]);
    device.unit(0);
    device.unit(5);
    let units = scanned(&mut device).unwrap();
    assert_eq!(luns(&units), [0, 5]);
    let unit = &units[1];
    assert_eq!(unit.to_string(), "<ACME Flash disk 0042>");
    assert_eq!(unit.serial_number.as_deref(), Some(&b"S-0001"[..]));
    assert_eq!(unit.identifier.as_deref(), Some(&[5, 1, 2, 3, 4, 5, 6, 7][..]), "NAA over T10");
    assert!(unit.ready && unit.pages.contains(&VpdPage::BlockLimits));
    let shape = unit.shape().unwrap();
    assert_eq!((shape.block_size, shape.blocks, shape.unit), (4096, 65536, 5 << 48));
    assert_eq!((shape.transfer_blocks_max, shape.delete_blocks_max), (256, 4096));
    assert!(shape.write_cache && shape.force_unit_access && shape.write_protected);
    let lacking: Vec<_> = unit.faults.iter().map(|fault| fault.name).collect();
    assert_eq!(lacking, ["MODE SENSE(10) control page"]);
}

#[test]
fn unit_attentions_and_becoming_ready_are_lived_through() {
    let mut device = Device::new();
    device.answer(0, 0xA0, 0, Answer::Sense(6, 0x29, 0));
    device.luns(0, &[0]);
    device.answer(0, 0x00, 0, Answer::Sense(6, 0x29, 0));
    device.answer(0, 0x00, 0, Answer::Sense(2, 4, 1));
    device.answer(0, 0x00, 0, Answer::Sense(2, 4, 1));
    device.unit(0);
    assert!(scanned(&mut device).unwrap()[0].ready);
}

#[test]
fn a_unit_that_lacks_answers_is_there_and_the_others_too() {
    let mut device = Device::new();
    device.luns(0, &[0, 1, 2, 3]);
    device.unit(0);
    device.data(1, 0x12, 0, &[0x1E; 36]);
    device.answer(2, 0x12, 0, Answer::Sense(4, 0x44, 0));
    let units = scanned(&mut device).unwrap();
    assert_eq!(luns(&units), [0, 1]);
    assert_eq!(units[1].shape(), Err(CamError::NotADisk { unit: 1 << 48 }));
}

#[test]
fn capacity_comes_from_the_short_form_where_that_is_all() {
    let mut device = Device::new();
    device.luns(0, &[0]);
    device.unit(0);
    device.answers.remove(&(0, 0x9E, 0));
    device.data(0, 0x25, 0, &[0, 0, 0, 99, 0, 0, 2, 0]);
    let shape = scanned(&mut device).unwrap()[0].shape().unwrap();
    assert_eq!((shape.blocks, shape.block_size, shape.delete_blocks_max), (100, 512, 0));
    device.answers.remove(&(0, 0x25, 0));
    device.data(0, 0x25, 0, &[0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 2, 0]);
    assert_eq!(scanned(&mut device).unwrap()[0].capacity, None);
}

#[test]
fn devices_without_unit_0_or_without_report_luns_are_found() {
    let mut device = Device::new();
    device.luns(0x81, &[7]);
    device.unit(7);
    assert_eq!(luns(&scanned(&mut device).unwrap()), [7]);
    device.answers.remove(&(0x81, 0xA0, 0));
    assert_eq!(luns(&scanned(&mut device).unwrap()), [7]);
    let scratch = device.memory.carve(0, 1024);
    device.data(0xD0, 0x12, 0, &[0x1E; 36]);
    let units =
        scan_luns(&mut device, &Skipping::new(), &scratch, &[LogicalUnitNumber::from_ufs(0xD0)])
            .unwrap();
    assert_eq!(luns(&units), [7, 0xD0]);
}

#[test]
fn no_unit_and_no_room_are_told() {
    let mut device = Device::new();
    assert_eq!(scanned(&mut device), Ok(Vec::new()));
    device.answer(0, 0x12, 0, Answer::End(Ended::TimedOut));
    let text = scanned(&mut device).unwrap_err().to_string();
    assert_eq!(text, "INQUIRY to logical unit 0: no answer in time");
    let small = device.memory.carve(0, 512);
    let refused = scan(&mut device, &Skipping::new(), &small);
    assert_eq!(refused, Err(CamError::Scratch { needed: 1024, got: 512 }));
}

#[test]
fn garbage_is_not_believed() {
    for byte in [0x00, 0x55, 0xFF] {
        let mut device = Device::new();
        device.luns(0, &[0]);
        device.data(0, 0x12, 0, &[0; 36]);
        for (code, page) in [(0x12, 0x80), (0x12, 0x83), (0x12, 0xB0), (0x12, 0xB2), (0x9E, 0)] {
            device.data(0, code, page, &[byte; 252]);
        }
        device.data(0, 0x5A, 8, &[byte; 252]);
        device.data(0, 0x00, 0, &[]);
        let units = scanned(&mut device).unwrap();
        // Whatever it claims to be, a disk is made of it or not, but nothing breaks.
        let _ = units[0].shape();
        device.data(0, 0xA0, 0, &[byte; 300]);
        let _ = scanned(&mut device);
    }
}

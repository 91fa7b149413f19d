//! Replay protected memory (JESD220 12.4): regions with a key, a write counter and data that only
//! the holder of the key can write.
//!
//! A write in normal mode is staged: blocks and counter go to the medium together, some time after
//! the frames came, or when the next message comes. If power is lost before that, neither has
//! changed; at no instant has only one of them. A write in advanced mode is answered by the command
//! that carries it, and is then on the medium.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::ufs::descriptor::ConfigurationHeader;
use flysch_wire::ufs::rpmb::{
    ADVANCED_BLOCK_LENGTH, ADVANCED_MODE, AdvancedRpmb, DATA_LENGTH, KEY_LENGTH, MAC_LENGTH,
    REGION_UNIT, RpmbFrame, RpmbMessage, RpmbResult, RpmbStatus,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::lu::Unit;
use super::protection::Protection;

/// An invalid message.
const UNKNOWN: RpmbMessage = RpmbMessage::Unknown(0);

/// Maximum number of regions.
pub(super) const REGIONS: usize = 4;
/// Size of all regions together, in their unit: 4 MiB.
pub(super) const UNITS_TOTAL: u8 = 32;
/// Maximum number of blocks in one message, by mode: bRPMB_ReadWriteSize.
const FRAMES_MAX: usize = 64;
const ADVANCED_BLOCKS_MAX: usize = 16;
/// Time from a write until it is on the medium, nanoseconds.
const PROGRAM_NS: u64 = 1_000_000;

const FRAME: usize = RpmbFrame::LENGTH;

/// An extra header segment.
pub(super) type Segment = [u8; AdvancedRpmb::LENGTH];

/// The rest of the device, as secure write protection needs it.
pub(super) struct Areas<'a> {
    pub(super) units: &'a [Option<Unit>],
    pub(super) protection: &'a mut Protection,
}

/// A region's answer to the next SECURITY PROTOCOL IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// A single frame.
    Frame(Answer),
    /// Data of an authenticated read.
    Data { address: u16, blocks: u16, nonce: [u8; 16] },
    /// The write protection of a unit.
    Protection { lun: u8, nonce: [u8; 16] },
}

/// A write on its way to the medium.
#[derive(Clone, Debug)]
struct Staged {
    until: u64,
    at: usize,
    data: Vec<u8>,
}

/// The contents of an answer frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answer {
    message: RpmbMessage,
    status: RpmbStatus,
    nonce: [u8; 16],
    address: u16,
}

#[derive(Clone, Debug)]
struct Region {
    key: Option<[u8; KEY_LENGTH]>,
    counter: u32,
    data: Vec<u8>,
    staged: Option<Staged>,
    /// How the last key programming or data write ended, for RESULT READ.
    result: Option<Answer>,
    pending: Option<Pending>,
}

/// The RPMB well-known logical unit.
#[derive(Debug)]
pub(super) struct Rpmb {
    regions: [Region; REGIONS],
    advanced: bool,
}

impl Region {
    fn new(units: u8) -> Self {
        let bytes = usize::from(units) * REGION_UNIT as usize;
        Self {
            key: None,
            counter: 0,
            data: vec![0; bytes],
            staged: None,
            result: None,
            pending: None,
        }
    }

    /// A staged write is now on the medium: data and counter.
    fn commit(&mut self) {
        if let Some(Staged { at, data, .. }) = self.staged.take() {
            self.data[at..][..data.len()].copy_from_slice(&data);
            self.counter += 1;
        }
    }

    /// Power is lost: a staged write is on the medium or it is not; everything else is gone.
    fn lose_power(&mut self, now: u64) {
        if self.staged.as_ref().is_some_and(|staged| staged.until <= now) {
            self.commit();
        }
        (self.staged, self.pending, self.result) = (None, None, None);
    }

    fn blocks(&self) -> usize {
        self.data.len() / DATA_LENGTH
    }

    /// The MAC over the authenticated parts of `frames`.
    fn mac(&self, frames: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key?).ok()?;
        for frame in frames.as_chunks::<FRAME>().0 {
            mac.update(RpmbFrame::authenticated(frame));
        }
        Some(mac)
    }

    /// A result that includes whether the counter has expired.
    fn result_of(&self, status: RpmbStatus) -> RpmbResult {
        RpmbResult::new().with_status(status).with_counter_expired(self.counter == u32::MAX)
    }

    /// Programs the key, once.
    fn program_key(&mut self, frame: &RpmbFrame) -> RpmbStatus {
        if self.key.is_some() {
            return RpmbStatus::GeneralFailure;
        }
        self.key = Some(frame.key_mac);
        RpmbStatus::Ok
    }

    /// Checks an authenticated message that changes something: MAC and counter.
    fn authenticate(&self, frames: &[u8], last: &RpmbFrame) -> Result<(), RpmbStatus> {
        let mac = self.mac(frames).ok_or(RpmbStatus::KeyNotProgrammed)?;
        if self.counter == u32::MAX {
            return Err(RpmbStatus::WriteFailure);
        }
        mac.verify_slice(&last.key_mac).map_err(|_| RpmbStatus::AuthenticationFailure)?;
        match last.write_counter == self.counter {
            true => Ok(()),
            false => Err(RpmbStatus::CounterFailure),
        }
    }

    /// Checks an authenticated write and stages it.
    fn write(&mut self, frames: &[u8], last: &RpmbFrame, now: u64) -> Result<(), RpmbStatus> {
        let count = frames.len() / FRAME;
        let address = usize::from(last.address);
        if self.key.is_none() {
            return Err(RpmbStatus::KeyNotProgrammed);
        }
        if usize::from(last.block_count) != count {
            return Err(RpmbStatus::GeneralFailure);
        }
        if address + count > self.blocks() {
            return Err(RpmbStatus::AddressFailure);
        }
        self.authenticate(frames, last)?;
        let frames = frames.as_chunks::<FRAME>().0;
        let data = frames.iter().flat_map(|frame| RpmbFrame::parse(frame).data).collect();
        self.staged = Some(Staged { until: now + PROGRAM_NS, at: address * DATA_LENGTH, data });
        Ok(())
    }

    /// Checks and writes the write protection of a unit.
    fn protect(
        &mut self,
        frames: &[u8],
        last: &RpmbFrame,
        areas: &mut Areas<'_>,
    ) -> Result<(), RpmbStatus> {
        self.authenticate(frames, last)?;
        areas.protection.write(areas.units, &last.data)?;
        self.counter += 1;
        Ok(())
    }

    /// Takes the frames of a SECURITY PROTOCOL OUT.
    fn request(&mut self, frames: &[u8], now: u64, areas: &mut Areas<'_>) {
        self.commit();
        let Some(last) = frames.as_chunks::<FRAME>().0.last().map(RpmbFrame::parse) else { return };
        let answer = |status| Answer {
            message: last.message.response(),
            status,
            nonce: last.nonce,
            address: last.address,
        };
        self.pending = None;
        match last.message {
            RpmbMessage::KeyProgramming => {
                let status = self.program_key(&last);
                self.result = Some(answer(status));
            }
            RpmbMessage::DataWrite => {
                let status = self.write(frames, &last, now);
                self.result = Some(answer(status.err().unwrap_or(RpmbStatus::Ok)));
            }
            RpmbMessage::ResultRead => {
                let none = Answer {
                    message: RpmbMessage::Unknown(0),
                    ..answer(RpmbStatus::GeneralFailure)
                };
                self.pending = Some(Pending::Frame(self.result.unwrap_or(none)));
            }
            RpmbMessage::ReadCounter => {
                let programmed = self.key.is_some();
                let missing = RpmbStatus::KeyNotProgrammed;
                let status = if programmed { RpmbStatus::Ok } else { missing };
                self.pending = Some(Pending::Frame(answer(status)));
            }
            RpmbMessage::DataRead => {
                let (address, blocks) = (last.address, last.block_count);
                let outside = usize::from(address) + usize::from(blocks) > self.blocks();
                self.pending = Some(match self.key {
                    None => Pending::Frame(answer(RpmbStatus::KeyNotProgrammed)),
                    Some(_) if outside => Pending::Frame(answer(RpmbStatus::AddressFailure)),
                    Some(_) => Pending::Data { address, blocks, nonce: last.nonce },
                });
            }
            RpmbMessage::SecureWriteProtectWrite => {
                let status = self.protect(frames, &last, areas);
                self.result = Some(answer(status.err().unwrap_or(RpmbStatus::Ok)));
            }
            RpmbMessage::SecureWriteProtectRead => {
                self.pending = Some(match self.key {
                    None => Pending::Frame(answer(RpmbStatus::KeyNotProgrammed)),
                    Some(_) => Pending::Protection { lun: last.data[0], nonce: last.nonce },
                });
            }
            _ => self.pending = Some(Pending::Frame(answer(RpmbStatus::GeneralFailure))),
        }
    }

    /// Writes the frames for a SECURITY PROTOCOL IN of `frames` frames.
    fn response(&mut self, out: &mut [u8], areas: &Areas<'_>) {
        self.commit();
        out.fill(0);
        let nothing = Answer {
            message: RpmbMessage::Unknown(0),
            status: RpmbStatus::GeneralFailure,
            nonce: [0; 16],
            address: 0,
        };
        match self.pending.unwrap_or(Pending::Frame(nothing)) {
            Pending::Frame(answer) => {
                let Some(first) = out.first_chunk_mut::<FRAME>() else { return };
                let mut frame = RpmbFrame::new(answer.message);
                frame.result = self.result_of(answer.status);
                frame.address = answer.address;
                if answer.message == RpmbMessage::ReadCounterResponse {
                    frame.nonce = answer.nonce;
                }
                frame.write_counter = self.counter;
                frame.emit(first);
                self.sign(out, 1);
            }
            Pending::Data { address, blocks, nonce } => {
                let count = (out.len() / FRAME).min(usize::from(blocks));
                for (n, bytes) in out.as_chunks_mut::<FRAME>().0[..count].iter_mut().enumerate() {
                    let at = (usize::from(address) + n) * DATA_LENGTH;
                    let mut frame = RpmbFrame::new(RpmbMessage::DataReadResponse);
                    frame.data.copy_from_slice(&self.data[at..][..DATA_LENGTH]);
                    frame.nonce = nonce;
                    frame.address = address;
                    frame.block_count = blocks;
                    frame.result = self.result_of(RpmbStatus::Ok);
                    frame.emit(bytes);
                }
                self.sign(out, count);
            }
            Pending::Protection { lun, nonce } => {
                let Some(first) = out.first_chunk_mut::<FRAME>() else { return };
                let mut frame = RpmbFrame::new(RpmbMessage::SecureWriteProtectReadResponse);
                let read = areas.protection.read(areas.units, lun, &mut frame.data);
                frame.nonce = nonce;
                frame.block_count = 1;
                frame.result = self.result_of(read.err().unwrap_or(RpmbStatus::Ok));
                frame.emit(first);
                self.sign(out, 1);
            }
        }
    }

    /// Answers a message in advanced mode, whose data came with it or goes with the answer.
    fn advanced(&mut self, message: &Segment, taken: &[u8], sent: &mut [u8]) -> Segment {
        sent.fill(0);
        let asked = AdvancedRpmb::parse(message).unwrap_or(AdvancedRpmb::new(UNKNOWN));
        let done = match asked.message {
            RpmbMessage::KeyProgramming if self.key.is_some() => Err(RpmbStatus::GeneralFailure),
            RpmbMessage::KeyProgramming => {
                self.key = Some(asked.key_mac);
                Ok(())
            }
            _ if self.key.is_none() => Err(RpmbStatus::KeyNotProgrammed),
            RpmbMessage::ReadCounter => Ok(()),
            RpmbMessage::DataRead => self.advanced_read(&asked, sent),
            RpmbMessage::DataWrite => self.advanced_write(&asked, message, taken),
            _ => Err(RpmbStatus::UnsupportedRequest),
        };
        let has_blocks = matches!(asked.message, RpmbMessage::DataRead | RpmbMessage::DataWrite);
        let mut answer = AdvancedRpmb {
            nonce: asked.nonce,
            write_counter: self.counter,
            address_lun: asked.address_lun,
            block_count: if has_blocks { asked.block_count } else { 0 },
            result: self.result_of(done.err().unwrap_or(RpmbStatus::Ok)),
            ..AdvancedRpmb::new(asked.message.response())
        };
        let mut bytes = [0; AdvancedRpmb::LENGTH];
        answer.emit(&mut bytes);
        let covered: &[u8] = if asked.message == RpmbMessage::DataRead { sent } else { &[] };
        if let Some(mac) = self.advanced_mac(covered, &bytes) {
            answer.key_mac = mac.finalize().into_bytes().into();
            answer.emit(&mut bytes);
        }
        bytes
    }

    fn advanced_mac(&self, data: &[u8], message: &Segment) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key?).ok()?;
        mac.update(data);
        mac.update(&AdvancedRpmb::authenticated(message));
        Some(mac)
    }

    /// The position of the blocks of a message, if it names as many as it moves.
    fn advanced_place(&self, asked: &AdvancedRpmb, len: usize) -> Result<usize, RpmbStatus> {
        let at = usize::from(asked.address_lun) * ADVANCED_BLOCK_LENGTH;
        if len == 0 || usize::from(asked.block_count) * ADVANCED_BLOCK_LENGTH != len {
            return Err(RpmbStatus::GeneralFailure);
        }
        if at + len > self.data.len() { Err(RpmbStatus::AddressFailure) } else { Ok(at) }
    }

    fn advanced_read(&self, asked: &AdvancedRpmb, sent: &mut [u8]) -> Result<(), RpmbStatus> {
        let at = self.advanced_place(asked, sent.len())?;
        sent.copy_from_slice(&self.data[at..][..sent.len()]);
        Ok(())
    }

    fn advanced_write(
        &mut self,
        asked: &AdvancedRpmb,
        message: &Segment,
        data: &[u8],
    ) -> Result<(), RpmbStatus> {
        let at = self.advanced_place(asked, data.len())?;
        if self.counter == u32::MAX {
            return Err(RpmbStatus::WriteFailure);
        }
        let mac = self.advanced_mac(data, message).ok_or(RpmbStatus::KeyNotProgrammed)?;
        mac.verify_slice(&asked.key_mac).map_err(|_| RpmbStatus::AuthenticationFailure)?;
        if asked.write_counter != self.counter {
            return Err(RpmbStatus::CounterFailure);
        }
        self.staged = Some(Staged { until: 0, at, data: data.into() });
        self.commit();
        Ok(())
    }

    /// Puts the MAC over the first `count` frames into the last of them.
    fn sign(&self, out: &mut [u8], count: usize) {
        let Some(mac) = self.mac(&out[..count * FRAME]) else { return };
        let Some(last) = count.checked_sub(1).map(|last| last * FRAME) else { return };
        let tag = mac.finalize().into_bytes();
        out[last + RpmbFrame::MAC_OFFSET..][..MAC_LENGTH].copy_from_slice(&tag);
    }
}

/// The region sizes that a configuration requests.
fn sizes(header: &ConfigurationHeader) -> [u8; REGIONS] {
    let enabled = |n: u8| header.b_rpmb_region_enable >> n & 1;
    let one = header.b_rpmb_region1_size * enabled(1);
    let two = header.b_rpmb_region2_size * enabled(2);
    let three = header.b_rpmb_region3_size * enabled(3);
    let rest = UNITS_TOTAL.saturating_sub(one).saturating_sub(two).saturating_sub(three);
    [rest, one, two, three]
}

impl Rpmb {
    /// The unit of a new device; `key` is already programmed into region 0.
    pub(super) fn new(header: &ConfigurationHeader, key: Option<[u8; KEY_LENGTH]>) -> Self {
        let mut regions = sizes(header).map(Region::new);
        regions[0].key = key;
        Self { regions, advanced: header.b_rpmb_region_enable & ADVANCED_MODE != 0 }
    }

    /// Whether messages are in advanced mode.
    pub(super) fn is_advanced(&self) -> bool {
        self.advanced
    }

    /// Size of a block, bytes.
    pub(super) fn block_length(&self) -> u32 {
        (if self.advanced { ADVANCED_BLOCK_LENGTH } else { DATA_LENGTH }) as u32
    }

    /// Maximum number of blocks in a message.
    pub(super) fn blocks_max(&self) -> u8 {
        (if self.advanced { ADVANCED_BLOCKS_MAX } else { FRAMES_MAX }) as u8
    }

    /// Whether a message may move this many bytes.
    pub(super) fn takes(&self, len: usize) -> bool {
        let unit = if self.advanced { ADVANCED_BLOCK_LENGTH } else { FRAME };
        len.is_multiple_of(unit) && len <= usize::from(self.blocks_max()) * unit
    }

    /// Power is lost.
    pub(super) fn lose_power(&mut self, now: u64) {
        self.regions.iter_mut().for_each(|region| region.lose_power(now));
    }

    /// Region sizes in force, in their unit.
    pub(super) fn region_units(&self) -> [u8; REGIONS] {
        self.regions.each_ref().map(|region| (region.data.len() / REGION_UNIT as usize) as u8)
    }

    /// A new configuration: regions keep their keys; those that change size lose their data.
    pub(super) fn reconfigure(&mut self, header: &ConfigurationHeader) {
        self.advanced = header.b_rpmb_region_enable & ADVANCED_MODE != 0;
        for (region, units) in self.regions.iter_mut().zip(sizes(header)) {
            let bytes = usize::from(units) * REGION_UNIT as usize;
            if region.data.len() != bytes {
                (region.staged, region.pending) = (None, None);
                region.data = vec![0; bytes];
            }
        }
    }

    /// Whether a region exists.
    pub(super) fn has(&self, region: u8) -> bool {
        self.regions.get(usize::from(region)).is_some_and(|region| !region.data.is_empty())
    }

    /// SECURITY PROTOCOL OUT to a region that exists.
    pub(super) fn request(&mut self, region: u8, frames: &[u8], now: u64, mut areas: Areas<'_>) {
        self.regions[usize::from(region)].request(frames, now, &mut areas);
    }

    /// SECURITY PROTOCOL IN from a region that exists.
    pub(super) fn response(&mut self, region: u8, out: &mut [u8], areas: &Areas<'_>) {
        self.regions[usize::from(region)].response(out, areas);
    }

    /// A message of advanced mode to a region that exists.
    pub(super) fn advanced(
        &mut self,
        region: u8,
        message: &Segment,
        taken: &[u8],
        sent: &mut [u8],
    ) -> Segment {
        self.regions[usize::from(region)].advanced(message, taken, sent)
    }
}

//! Replay protected memory (JESD220 12.4), normal mode: regions with a key, a write counter and
//! data that only the holder of the key can write.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::ufs::descriptor::ConfigurationHeader;
use flysch_wire::ufs::rpmb::{
    DATA_LENGTH, KEY_LENGTH, MAC_LENGTH, REGION_UNIT, RpmbFrame, RpmbMessage, RpmbResult,
    RpmbStatus,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Regions there can be.
pub(super) const REGIONS: usize = 4;
/// A block, bytes.
pub(super) const BLOCK: u32 = DATA_LENGTH as u32;
/// Blocks in the size unit of a region.
pub(super) const BLOCKS_PER_UNIT: u64 = (REGION_UNIT / BLOCK) as u64;
/// Size of all regions together, in their unit: 4 MiB.
pub(super) const UNITS_TOTAL: u8 = 32;
/// Most frames in one message: bRPMB_ReadWriteSize.
pub(super) const FRAMES_MAX: usize = 64;

const FRAME: usize = RpmbFrame::LENGTH;

/// What a region answers to the next SECURITY PROTOCOL IN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// A single frame.
    Frame(Answer),
    /// Data of an authenticated read.
    Data { address: u16, blocks: u16, nonce: [u8; 16] },
}

/// What a frame of an answer says.
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
    /// How the last key programming or data write ended, for RESULT READ.
    result: Option<Answer>,
    pending: Option<Pending>,
}

/// The RPMB well-known logical unit.
#[derive(Debug)]
pub(super) struct Rpmb {
    regions: [Region; REGIONS],
}

impl Region {
    fn new(units: u8) -> Self {
        let bytes = usize::from(units) * REGION_UNIT as usize;
        Self { key: None, counter: 0, data: vec![0; bytes], result: None, pending: None }
    }

    fn blocks(&self) -> usize {
        self.data.len() / DATA_LENGTH
    }

    /// MAC over the authenticated parts of `frames`.
    fn mac(&self, frames: &[u8]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key?).ok()?;
        for frame in frames.as_chunks::<FRAME>().0 {
            mac.update(RpmbFrame::authenticated(frame));
        }
        Some(mac)
    }

    /// A result that counts the counter's end in.
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

    /// Checks and carries out an authenticated write.
    fn write(&mut self, frames: &[u8], last: &RpmbFrame) -> RpmbStatus {
        let count = frames.len() / FRAME;
        let address = usize::from(last.address);
        let Some(mac) = self.mac(frames) else { return RpmbStatus::KeyNotProgrammed };
        if self.counter == u32::MAX {
            return RpmbStatus::WriteFailure;
        }
        if usize::from(last.block_count) != count {
            return RpmbStatus::GeneralFailure;
        }
        if address + count > self.blocks() {
            return RpmbStatus::AddressFailure;
        }
        if mac.verify_slice(&last.key_mac).is_err() {
            return RpmbStatus::AuthenticationFailure;
        }
        if last.write_counter != self.counter {
            return RpmbStatus::CounterFailure;
        }
        for (n, frame) in frames.as_chunks::<FRAME>().0.iter().enumerate() {
            let at = (address + n) * DATA_LENGTH;
            self.data[at..][..DATA_LENGTH].copy_from_slice(&RpmbFrame::parse(frame).data);
        }
        self.counter += 1;
        RpmbStatus::Ok
    }

    /// Takes the frames of a SECURITY PROTOCOL OUT.
    fn request(&mut self, frames: &[u8]) {
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
                let status = self.write(frames, &last);
                self.result = Some(answer(status));
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
            RpmbMessage::SecureWriteProtectWrite | RpmbMessage::SecureWriteProtectRead => {
                let status = RpmbStatus::SecureWriteProtectNotApplicable;
                self.result = Some(answer(status));
                self.pending = Some(Pending::Frame(answer(status)));
            }
            _ => self.pending = Some(Pending::Frame(answer(RpmbStatus::GeneralFailure))),
        }
    }

    /// Writes the frames for a SECURITY PROTOCOL IN of `frames` frames.
    fn response(&mut self, out: &mut [u8]) {
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
        }
    }

    /// Puts the MAC over the first `count` frames into the last of them.
    fn sign(&self, out: &mut [u8], count: usize) {
        let Some(mac) = self.mac(&out[..count * FRAME]) else { return };
        let Some(last) = count.checked_sub(1).map(|last| last * FRAME) else { return };
        let tag = mac.finalize().into_bytes();
        out[last + RpmbFrame::MAC_OFFSET..][..MAC_LENGTH].copy_from_slice(&tag);
    }
}

/// Sizes of the regions that a configuration asks for.
fn sizes(header: &ConfigurationHeader) -> [u8; REGIONS] {
    let enabled = |n: u8| header.b_rpmb_region_enable >> n & 1;
    let one = header.b_rpmb_region1_size * enabled(1);
    let two = header.b_rpmb_region2_size * enabled(2);
    let three = header.b_rpmb_region3_size * enabled(3);
    let rest = UNITS_TOTAL.saturating_sub(one).saturating_sub(two).saturating_sub(three);
    [rest, one, two, three]
}

impl Rpmb {
    pub(super) fn new(header: &ConfigurationHeader) -> Self {
        Self { regions: sizes(header).map(Region::new) }
    }

    /// Region sizes in force, in their unit.
    pub(super) fn region_units(&self) -> [u8; REGIONS] {
        self.regions.each_ref().map(|region| (region.data.len() / REGION_UNIT as usize) as u8)
    }

    /// A new configuration: regions keep their key; those that change their size lose their data.
    pub(super) fn reconfigure(&mut self, header: &ConfigurationHeader) {
        for (region, units) in self.regions.iter_mut().zip(sizes(header)) {
            let bytes = usize::from(units) * REGION_UNIT as usize;
            if region.data.len() != bytes {
                region.data = vec![0; bytes];
            }
        }
    }

    /// Whether a region exists.
    pub(super) fn has(&self, region: u8) -> bool {
        self.regions.get(usize::from(region)).is_some_and(|region| !region.data.is_empty())
    }

    /// SECURITY PROTOCOL OUT to a region that exists.
    pub(super) fn request(&mut self, region: u8, frames: &[u8]) {
        self.regions[usize::from(region)].request(frames);
    }

    /// SECURITY PROTOCOL IN from a region that exists.
    pub(super) fn response(&mut self, region: u8, out: &mut [u8]) {
        self.regions[usize::from(region)].response(out);
    }
}

//! Replay protected memory (6.6.22): a key, a write counter and data that only the holder of the
//! key can write. Blocks and counter change together, or neither does.

use alloc::vec;
use alloc::vec::Vec;

use flysch_wire::mmc::rpmb::{
    DATA_LENGTH, KEY_LENGTH, MAC_LENGTH, RpmbFrame, RpmbMessage, RpmbResult, RpmbStatus,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

const FRAME: usize = RpmbFrame::LENGTH;

/// The memory, and the message in hand.
#[derive(Debug)]
pub(super) struct Rpmb {
    key: Option<[u8; KEY_LENGTH]>,
    counter: u32,
    data: Vec<u8>,
    /// The result of the last message that writes.
    result: Option<RpmbFrame>,
    /// What the next read answers: a request that has one.
    asked: Option<RpmbFrame>,
}

/// MAC over the authenticated parts of frames.
fn mac(key: &[u8; KEY_LENGTH], frames: &[[u8; FRAME]]) -> [u8; MAC_LENGTH] {
    let mut hasher = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    frames.iter().for_each(|frame| hasher.update(RpmbFrame::authenticated(frame)));
    hasher.finalize().into_bytes().into()
}

impl Rpmb {
    pub(super) fn new(bytes: u64) -> Self {
        Self { key: None, counter: 0, data: vec![0; bytes as usize], result: None, asked: None }
    }

    /// Power goes: the message in hand is forgotten.
    pub(super) fn power_off(&mut self) {
        (self.result, self.asked) = (None, None);
    }

    /// Frames from the host; `reliable` as CMD23 had it.
    pub(super) fn write(&mut self, bytes: &[u8], reliable: bool) {
        let (frames, _) = bytes.as_chunks::<FRAME>();
        let Some(first) = frames.first() else { return };
        let request = RpmbFrame::parse(first);
        self.asked = None;
        match request.message {
            RpmbMessage::KeyProgramming => {
                let status = match (self.key, frames.len() == 1 && reliable) {
                    (None, true) => {
                        self.key = Some(request.key_mac);
                        RpmbStatus::Ok
                    }
                    (Some(_), _) => RpmbStatus::WriteFailure,
                    _ => RpmbStatus::GeneralFailure,
                };
                self.result = Some(self.answer(&request, status));
            }
            RpmbMessage::DataWrite => {
                let status = self.write_data(frames, reliable);
                self.result = Some(self.answer(&request, status));
            }
            RpmbMessage::ReadCounter | RpmbMessage::DataRead | RpmbMessage::ResultRead => {
                self.asked = Some(request);
            }
            _ => self.result = Some(self.answer(&request, RpmbStatus::GeneralFailure)),
        }
    }

    fn write_data(&mut self, frames: &[[u8; FRAME]], reliable: bool) -> RpmbStatus {
        let Some(key) = self.key else { return RpmbStatus::KeyNotProgrammed };
        let Some(last) = frames.last().map(RpmbFrame::parse) else {
            return RpmbStatus::GeneralFailure;
        };
        let count = usize::from(last.block_count);
        if !reliable || count != frames.len() || !matches!(count, 1 | 2 | 32) {
            return RpmbStatus::GeneralFailure;
        }
        let at = usize::from(last.address) * DATA_LENGTH;
        if at + count * DATA_LENGTH > self.data.len() {
            return RpmbStatus::AddressFailure;
        }
        if mac(&key, frames) != last.key_mac {
            return RpmbStatus::AuthenticationFailure;
        }
        if last.write_counter != self.counter {
            return RpmbStatus::CounterFailure;
        }
        if self.counter == u32::MAX {
            return RpmbStatus::WriteFailure;
        }
        for (n, frame) in frames.iter().enumerate() {
            let block = RpmbFrame::parse(frame).data;
            self.data[at + n * DATA_LENGTH..][..DATA_LENGTH].copy_from_slice(&block);
        }
        self.counter += 1;
        RpmbStatus::Ok
    }

    fn answer(&self, request: &RpmbFrame, status: RpmbStatus) -> RpmbFrame {
        let mut frame = RpmbFrame::new(request.message.response());
        frame.result = RpmbResult::new().with_status(status);
        frame.write_counter = self.counter;
        frame.address = request.address;
        frame
    }

    /// So many frames for the host.
    pub(super) fn read(&mut self, frames: usize) -> Vec<u8> {
        let asked = self.asked.take();
        let mut answer = match asked {
            Some(request) if request.message == RpmbMessage::ResultRead => {
                let none = self.answer(&request, RpmbStatus::GeneralFailure);
                vec![self.result.take().unwrap_or(none)]
            }
            Some(request) => self.answer_read(&request, frames),
            None => {
                let nobody = RpmbFrame::new(RpmbMessage::ResultRead);
                vec![self.answer(&nobody, RpmbStatus::GeneralFailure)]
            }
        };
        while answer.len() < frames {
            answer.push(RpmbFrame::new(RpmbMessage::Unknown(0)));
        }
        let emit = |frame: &RpmbFrame| {
            let mut bytes = [0; FRAME];
            frame.emit(&mut bytes);
            bytes
        };
        let mut bytes: Vec<[u8; FRAME]> = answer.iter().take(frames).map(emit).collect();
        // The answer to a programmed key has no MAC: there was none to prove it with.
        let proves = answer.last().is_some_and(|frame| {
            frame.message != RpmbMessage::KeyProgramming.response()
                && frame.result.status() != RpmbStatus::KeyNotProgrammed
        });
        if let (Some(key), true) = (self.key, proves) {
            let proof = mac(&key, &bytes);
            if let Some(last) = bytes.last_mut() {
                last[RpmbFrame::MAC_OFFSET..][..MAC_LENGTH].copy_from_slice(&proof);
            }
        }
        bytes.concat()
    }

    fn answer_read(&self, request: &RpmbFrame, frames: usize) -> Vec<RpmbFrame> {
        let mut frame = self.answer(request, RpmbStatus::Ok);
        frame.nonce = request.nonce;
        if self.key.is_none() {
            frame.result = RpmbResult::new().with_status(RpmbStatus::KeyNotProgrammed);
            return vec![frame];
        }
        if request.message == RpmbMessage::ReadCounter {
            return vec![frame];
        }
        frame.write_counter = 0;
        frame.block_count = frames as u16;
        let at = usize::from(request.address) * DATA_LENGTH;
        if at + frames * DATA_LENGTH > self.data.len() {
            frame.result = RpmbResult::new().with_status(RpmbStatus::AddressFailure);
            return vec![frame];
        }
        let mut all = vec![frame; frames];
        for (n, frame) in all.iter_mut().enumerate() {
            frame.data.copy_from_slice(&self.data[at + n * DATA_LENGTH..][..DATA_LENGTH]);
        }
        all
    }
}

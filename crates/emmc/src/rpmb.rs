//! Replay protected memory (6.6.22), from the side of the owner of the key.
//!
//! Theory. Nothing in between is trusted. A write carries the write counter and a MAC over both, so
//! nobody can make one without the key, or send an old one again. A read carries a nonce of the
//! caller's choice, which is returned under the MAC. Without a key an answer is passed on and
//! marked as not authenticated. Messages are frames of 512 bytes with 256 bytes of data each.

use crate::card::Card;
use crate::channel::Run;
use crate::{Cause, EmmcError, RpmbError};
use alloc::vec::Vec;
use core::fmt;
use flysch_api::machine::Machine;
use flysch_script::settled;
use flysch_wire::mmc::command::CommandIndex;
use flysch_wire::mmc::ext_csd::{self, partition};
use flysch_wire::mmc::rpmb::{
    DATA_LENGTH, KEY_LENGTH, NONCE_LENGTH, RpmbFrame, RpmbMessage, RpmbStatus,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Maximum number of frames of one message in the scratch memory.
const FRAMES_MAX: usize = crate::layout::SCRATCH / RpmbFrame::LENGTH;
/// WR_REL_PARAM: 32 frames may be written at once.
const EN_RPMB_REL_WR: u8 = 1 << 4;

/// The key of a device. Its bytes are in no message of this crate, and are cleared when it is
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct RpmbKey(Zeroizing<[u8; KEY_LENGTH]>);

impl RpmbKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; KEY_LENGTH]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    fn hasher(&self) -> Hmac<Sha256> {
        Hmac::new_from_slice(&*self.0).expect("HMAC takes keys of any length")
    }
}

impl fmt::Debug for RpmbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RpmbKey(..)")
    }
}

/// What makes an answer unique: random bytes, never the same twice.
pub type Nonce = [u8; NONCE_LENGTH];

/// A request to the replay protected memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpmbRequest {
    /// Programs the key. **This cannot be repeated or undone.**
    ProgramKey {
        /// The key.
        key: RpmbKey,
    },
    /// Reads the write counter.
    ReadCounter {
        /// Authenticates the answer.
        key: Option<RpmbKey>,
        /// Makes the answer unique.
        nonce: Nonce,
    },
    /// Writes whole blocks of 256 bytes, all or none of them: one, two, or 32 if the device accepts
    /// as many.
    Write {
        /// The key.
        key: RpmbKey,
        /// The present write counter.
        counter: u32,
        /// First block.
        address: u16,
        /// The blocks.
        data: Vec<u8>,
    },
    /// Reads blocks of 256 bytes.
    Read {
        /// Authenticates the answer.
        key: Option<RpmbKey>,
        /// Makes the answer unique.
        nonce: Nonce,
        /// First block.
        address: u16,
        /// Number of blocks, 1 to 32.
        blocks: u16,
    },
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RpmbReply {
    /// The write counter.
    pub counter: u32,
    /// What was read.
    pub data: Vec<u8>,
    /// Whether it is authenticated by the key.
    pub proved: bool,
}

impl RpmbRequest {
    fn message(&self) -> RpmbMessage {
        match self {
            Self::ProgramKey { .. } => RpmbMessage::KeyProgramming,
            Self::ReadCounter { .. } => RpmbMessage::ReadCounter,
            Self::Write { .. } => RpmbMessage::DataWrite,
            Self::Read { .. } => RpmbMessage::DataRead,
        }
    }

    fn key(&self) -> Option<&RpmbKey> {
        match self {
            // The answer to this one has no MAC: there is no key yet.
            Self::ProgramKey { .. } => None,
            Self::ReadCounter { key, .. } | Self::Read { key, .. } => key.as_ref(),
            Self::Write { key, .. } => Some(key),
        }
    }

    /// The frames that go to the device.
    fn frames(&self) -> Vec<[u8; RpmbFrame::LENGTH]> {
        let mut frame = RpmbFrame::new(self.message());
        let mut frames = Vec::new();
        match self {
            Self::ProgramKey { key } => {
                frame.key_mac = *key.0;
                frames.push(frame);
            }
            Self::ReadCounter { nonce, .. } => {
                frame.nonce = *nonce;
                frames.push(frame);
            }
            Self::Read { nonce, address, .. } => {
                (frame.nonce, frame.address) = (*nonce, *address);
                frames.push(frame);
            }
            Self::Write { counter, address, data, .. } => {
                let (blocks, _) = data.as_chunks::<DATA_LENGTH>();
                (frame.write_counter, frame.address) = (*counter, *address);
                frame.block_count = blocks.len() as u16;
                for block in blocks {
                    frame.data = *block;
                    frames.push(frame);
                }
            }
        }
        let emit = |frame: &RpmbFrame| {
            let mut bytes = [0; RpmbFrame::LENGTH];
            frame.emit(&mut bytes);
            bytes
        };
        let mut frames: Vec<_> = frames.iter().map(emit).collect();
        if let Self::Write { key, .. } = self
            && let mac = mac(key, &frames)
            && let Some(last) = frames.last_mut()
        {
            last[RpmbFrame::MAC_OFFSET..][..mac.len()].copy_from_slice(&mac);
        }
        frames
    }

    fn check(&self, most: usize) -> Result<(), RpmbError> {
        let fits = match self {
            Self::Write { data, .. } => {
                let blocks = data.len() / DATA_LENGTH;
                let known = matches!(blocks, 1 | 2 | 32) && blocks <= most;
                known && data.len().is_multiple_of(DATA_LENGTH)
            }
            Self::Read { blocks, .. } => (1..=FRAMES_MAX).contains(&usize::from(*blocks)),
            _ => true,
        };
        if fits { Ok(()) } else { Err(RpmbError::Length) }
    }

    /// Evaluates the frames of the answer.
    fn judge(&self, answer: &[[u8; RpmbFrame::LENGTH]]) -> Result<RpmbReply, RpmbError> {
        let frames: Vec<_> = answer.iter().map(RpmbFrame::parse).collect();
        let last = frames.last().ok_or(RpmbError::Message)?;
        if last.message != self.message().response() {
            return Err(RpmbError::Message);
        }
        if last.result.status() != RpmbStatus::Ok {
            return Err(RpmbError::Result(last.result.status()));
        }
        let proved = match self.key() {
            Some(key) if mac(key, answer) != last.key_mac => return Err(RpmbError::Mac),
            Some(_) => true,
            None => false,
        };
        match self {
            Self::ReadCounter { nonce, .. } | Self::Read { nonce, .. } if last.nonce != *nonce => {
                return Err(RpmbError::Nonce);
            }
            Self::Write { counter, .. } if last.write_counter != counter.wrapping_add(1) => {
                return Err(RpmbError::Counter);
            }
            _ => {}
        }
        let data = match self {
            Self::Read { .. } => frames.iter().flat_map(|frame| frame.data).collect(),
            _ => Vec::new(),
        };
        Ok(RpmbReply { counter: last.write_counter, data, proved })
    }
}

/// The MAC over the authenticated part of all frames.
fn mac(key: &RpmbKey, frames: &[[u8; RpmbFrame::LENGTH]]) -> [u8; 32] {
    let mut hasher = key.hasher();
    for frame in frames {
        hasher.update(RpmbFrame::authenticated(frame));
    }
    hasher.finalize().into_bytes().into()
}

impl RpmbRequest {
    /// Sends the message and fetches its answer. The bus is the host's, and the card out of its
    /// queueing mode.
    pub(crate) fn exchange<M: Machine>(&self, card: &mut Card<M>) -> Run<RpmbReply> {
        if card.device.partition_sectors(partition::RPMB) == 0 {
            return Err(Cause::NoPartition(partition::RPMB).into());
        }
        let all = card.device.ext_csd.byte(ext_csd::WR_REL_PARAM) & EN_RPMB_REL_WR != 0;
        self.check(if all { 32 } else { 2 }).map_err(EmmcError::from)?;
        card.select_partition(partition::RPMB)?;
        let answer = settled(self.send_and_receive(card))?;
        let home = card.device.partition;
        card.select_partition(home)?;
        answer?;
        let blocks = match self {
            Self::Read { blocks, .. } => usize::from(*blocks),
            _ => 1,
        };
        let mut frames = alloc::vec![[0; RpmbFrame::LENGTH]; blocks];
        card.channel.layout.scratch.read(0, frames.as_flattened_mut());
        Ok(self.judge(&frames).map_err(EmmcError::from)?)
    }

    /// Sends the request and fetches its answer into the scratch memory.
    fn send_and_receive<M: Machine>(&self, card: &mut Card<M>) -> Run<()> {
        let frames = self.frames();
        let writes = matches!(self.message(), RpmbMessage::KeyProgramming | RpmbMessage::DataWrite);
        send_frames(card, &frames, writes)?;
        if writes {
            let mut ask = [0; RpmbFrame::LENGTH];
            RpmbFrame::new(RpmbMessage::ResultRead).emit(&mut ask);
            send_frames(card, &[ask], false)?;
        }
        let blocks = match self {
            Self::Read { blocks, .. } => *blocks,
            _ => 1,
        };
        card.channel.set_block_count(blocks, false)?;
        let index = CommandIndex::ReadMultipleBlock;
        match card.fetch((index, 0), (RpmbFrame::LENGTH as u16, blocks))? {
            Ok(()) => Ok(()),
            Err(error) => Err(Cause::Bus(index, error).into()),
        }
    }
}

fn send_frames<M: Machine>(
    card: &mut Card<M>,
    frames: &[[u8; RpmbFrame::LENGTH]],
    reliable: bool,
) -> Run<()> {
    let blocks = frames.len() as u16;
    card.channel.set_block_count(blocks, reliable)?;
    card.store((CommandIndex::WriteMultipleBlock, 0), blocks, |scratch| {
        scratch.write(0, frames.as_flattened());
    })
}

//! Replay protected memory (JESD220 12.4), from the side of the owner of the key.
//!
//! Theory. Nothing in between is trusted: not the link, not the memory, not an operating system on
//! the way to the device. A write carries the write counter and a MAC over both, so nobody can make
//! one without the key, or send an old one again. A read carries a nonce of the caller's choice,
//! which is returned under the MAC, so an old answer cannot pass for a new one. Without a key an
//! answer is passed on and marked as not authenticated.
//!
//! One [`RpmbCommand`] is one message: when it has ended, it is known whether it was done. After a
//! failed write the counter tells whether it was done, because a device changes data and counter
//! together.
//!
//! The mode depends on the configuration of the device. In *normal* mode messages are frames of 512
//! bytes with 256 bytes of data; in *advanced* mode (UFS 4.0) they are an extra header segment of
//! the command and of its response, and data comes in blocks of 4 KiB. Callers see a difference
//! only in [`RpmbUnit::block_length`].

use crate::channel::Run;
use crate::exchange::{DATA_MAX, HostCommand, Moves, Reply, Segment};
use crate::management::Peer;
use crate::{Cause, RpmbError, UfsError};
use alloc::vec::Vec;
use core::fmt;
use flysch_api::machine::Machine;
use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::cdb::{SECURITY_PROTOCOL_UFS, Security};
use flysch_wire::ufs::descriptor::RpmbUnitDescriptor;
use flysch_wire::ufs::query::DescriptorId;
use flysch_wire::ufs::rpmb::{
    self, ADVANCED_BLOCK_LENGTH, ADVANCED_MODE, AdvancedRpmb, DATA_LENGTH, KEY_LENGTH, MAC_LENGTH,
    NONCE_LENGTH, REGION_UNIT, RpmbFrame, RpmbMessage, RpmbResult, RpmbStatus,
    SecureWriteProtectEntry, SecureWriteProtectView,
};
use flysch_wire::ufs::upiu::Wlun;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The key of a region. Its bytes are in no message of this crate, and are cleared when it is
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

/// A request to a region.
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
    /// Writes whole blocks, all or none of them.
    Write {
        /// The key.
        key: RpmbKey,
        /// The present write counter.
        counter: u32,
        /// First block.
        address: u16,
        /// 1 to [`RpmbUnit::blocks_max`] blocks.
        data: Vec<u8>,
    },
    /// Reads blocks.
    Read {
        /// Authenticates the answer.
        key: Option<RpmbKey>,
        /// Makes the answer unique.
        nonce: Nonce,
        /// First block.
        address: u16,
        /// Number of blocks, 1 to [`RpmbUnit::blocks_max`].
        blocks: u16,
    },
    /// Writes the secure write protect areas of a logical unit, all of them. Region 0, normal
    /// mode only.
    Protect {
        /// The key.
        key: RpmbKey,
        /// The present write counter.
        counter: u32,
        /// Logical unit.
        lun: u8,
        /// At most four.
        areas: Vec<SecureWriteProtectEntry>,
    },
    /// Reads the secure write protect areas of a logical unit. Region 0, normal mode only.
    ReadProtection {
        /// Authenticates the answer.
        key: Option<RpmbKey>,
        /// Makes the answer unique.
        nonce: Nonce,
        /// Logical unit.
        lun: u8,
    },
}

/// One message to one region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpmbCommand {
    /// The region, 0..=3.
    pub region: u8,
    /// The request.
    pub request: RpmbRequest,
}

/// The answer of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpmbAnswer {
    /// The write counter, if the answer has one: after a write, the one for the next write.
    pub counter: Option<u32>,
    /// No further write is possible: the counter has reached its end.
    pub expired: bool,
    /// Blocks that were read.
    pub data: Vec<u8>,
    /// Secure write protect areas that were read.
    pub areas: Vec<SecureWriteProtectEntry>,
    /// Whether the MAC was that of the key. Without a key nothing is authenticated.
    pub authenticated: bool,
}

/// The RPMB unit as the device describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpmbUnit {
    /// Advanced mode.
    pub advanced: bool,
    /// Bytes of a block.
    pub block_length: u32,
    /// Maximum number of blocks of one message.
    pub blocks_max: u16,
    /// Size of each region in bytes; 0 if it does not exist.
    pub regions: [u64; 4],
}

impl RpmbRequest {
    fn message(&self) -> RpmbMessage {
        match self {
            Self::ProgramKey { .. } => RpmbMessage::KeyProgramming,
            Self::ReadCounter { .. } => RpmbMessage::ReadCounter,
            Self::Write { .. } => RpmbMessage::DataWrite,
            Self::Read { .. } => RpmbMessage::DataRead,
            Self::Protect { .. } => RpmbMessage::SecureWriteProtectWrite,
            Self::ReadProtection { .. } => RpmbMessage::SecureWriteProtectRead,
        }
    }

    /// The key that signs the request.
    fn signer(&self) -> Option<&RpmbKey> {
        match self {
            Self::Write { key, .. } | Self::Protect { key, .. } => Some(key),
            _ => None,
        }
    }

    /// The key that authenticates the answer. Nothing authenticates the answer to key programming:
    /// everybody who sees the message has the key.
    fn prover(&self) -> Option<&RpmbKey> {
        match self {
            Self::ReadCounter { key, .. }
            | Self::Read { key, .. }
            | Self::ReadProtection { key, .. } => key.as_ref(),
            other => other.signer(),
        }
    }

    fn nonce(&self) -> Option<&Nonce> {
        match self {
            Self::ReadCounter { nonce, .. }
            | Self::Read { nonce, .. }
            | Self::ReadProtection { nonce, .. } => Some(nonce),
            _ => None,
        }
    }

    fn counter(&self) -> Option<u32> {
        match self {
            Self::Write { counter, .. } | Self::Protect { counter, .. } => Some(*counter),
            _ => None,
        }
    }

    /// First block and number of blocks in the message.
    fn blocks(&self, block_length: u32) -> (u16, u16) {
        match self {
            Self::Write { address, data, .. } => {
                (*address, (data.len() as u32 / block_length) as u16)
            }
            Self::Read { address, blocks, .. } => (*address, *blocks),
            Self::Protect { .. } | Self::ReadProtection { .. } => (0, 1),
            _ => (0, 0),
        }
    }

    /// Whether its result has to be requested.
    fn has_result(&self) -> bool {
        matches!(self, Self::ProgramKey { .. } | Self::Write { .. } | Self::Protect { .. })
    }

    fn check(&self, region: u8, unit: &RpmbUnit) -> Result<(), RpmbError> {
        if unit.regions.get(usize::from(region)).is_none_or(|&bytes| bytes == 0) {
            return Err(RpmbError::NoRegion(region));
        }
        let fits = |blocks: u64| (1..=u64::from(unit.blocks_max)).contains(&blocks);
        let right = match self {
            Self::Write { data, .. } => {
                let (length, block) = (data.len() as u64, u64::from(unit.block_length));
                length.is_multiple_of(block) && fits(length / block)
            }
            Self::Read { blocks, .. } => fits(u64::from(*blocks)),
            Self::Protect { areas, .. } if areas.len() > SecureWriteProtectView::ENTRIES_MAX => {
                return Err(RpmbError::Areas);
            }
            _ => true,
        };
        if right { Ok(()) } else { Err(RpmbError::Length) }
    }

    /// The request as frames of normal mode, signed.
    fn frames(&self) -> Zeroizing<Vec<u8>> {
        let (address, block_count) = self.blocks(DATA_LENGTH as u32);
        let mut frame = RpmbFrame {
            nonce: self.nonce().copied().unwrap_or_default(),
            write_counter: self.counter().unwrap_or(0),
            address,
            block_count,
            ..RpmbFrame::new(self.message())
        };
        let mut frames = Zeroizing::new(Vec::new());
        let mut push = |frame: &RpmbFrame| {
            let mut bytes = Zeroizing::new([0; RpmbFrame::LENGTH]);
            frame.emit(&mut bytes);
            frames.extend_from_slice(&*bytes);
        };
        match self {
            Self::Write { data, .. } => {
                for block in data.as_chunks().0 {
                    frame.data = *block;
                    push(&frame);
                }
            }
            Self::ProgramKey { key } => push(&RpmbFrame { key_mac: *key.0, ..frame }),
            Self::Protect { lun, areas, .. } => {
                let _checked = SecureWriteProtectView::emit(*lun, areas, &mut frame.data);
                push(&frame);
            }
            Self::ReadProtection { lun, .. } => {
                frame.data[0] = *lun;
                push(&frame);
            }
            Self::ReadCounter { .. } | Self::Read { .. } => push(&frame),
        }
        if let Some(key) = self.signer() {
            let mac = mac_of_frames(key, &frames).finalize().into_bytes();
            let last = frames.len() - RpmbFrame::LENGTH + RpmbFrame::MAC_OFFSET;
            frames[last..][..MAC_LENGTH].copy_from_slice(&mac);
        }
        frames
    }

    /// The request as a segment of advanced mode, signed.
    fn segment(&self) -> Zeroizing<Segment> {
        let (address_lun, block_count) = self.blocks(ADVANCED_BLOCK_LENGTH as u32);
        let mut message = AdvancedRpmb {
            nonce: self.nonce().copied().unwrap_or_default(),
            write_counter: self.counter().unwrap_or(0),
            address_lun,
            block_count,
            ..AdvancedRpmb::new(self.message())
        };
        let mut bytes = Zeroizing::new([0; AdvancedRpmb::LENGTH]);
        message.emit(&mut bytes);
        match self {
            Self::ProgramKey { key } => message.key_mac = *key.0,
            Self::Write { key, data, .. } => {
                message.key_mac = mac_of_segment(key, data, &bytes).finalize().into_bytes().into();
            }
            _ => return bytes,
        }
        message.emit(&mut bytes);
        bytes
    }
}

fn mac_of_frames(key: &RpmbKey, frames: &[u8]) -> Hmac<Sha256> {
    let mut mac = key.hasher();
    for frame in frames.as_chunks().0 {
        mac.update(RpmbFrame::authenticated(frame));
    }
    mac
}

fn mac_of_segment(key: &RpmbKey, data: &[u8], segment: &Segment) -> Hmac<Sha256> {
    let mut mac = key.hasher();
    mac.update(data);
    mac.update(&AdvancedRpmb::authenticated(segment));
    mac
}

/// The content of an answer, in either mode.
struct Said {
    message: RpmbMessage,
    nonce: Nonce,
    counter: u32,
    blocks: (u16, u16),
    result: RpmbResult,
    /// Whether the MAC is that of the key, if there is one.
    proved: Option<bool>,
    data: Vec<u8>,
}

impl Said {
    fn in_frames(request: &RpmbRequest, frames: &[u8]) -> Result<Self, RpmbError> {
        let all = frames.as_chunks::<{ RpmbFrame::LENGTH }>().0;
        let last = all.last().map(RpmbFrame::parse).ok_or(RpmbError::Malformed)?;
        let proved = request
            .prover()
            .map(|key| mac_of_frames(key, frames).verify_slice(&last.key_mac).is_ok());
        Ok(Self {
            message: last.message,
            nonce: last.nonce,
            counter: last.write_counter,
            blocks: (last.address, last.block_count),
            result: last.result,
            proved,
            data: all.iter().flat_map(|frame| RpmbFrame::parse(frame).data).collect(),
        })
    }

    fn in_segment(
        request: &RpmbRequest,
        segment: &Segment,
        data: Vec<u8>,
    ) -> Result<Self, RpmbError> {
        let said = AdvancedRpmb::parse(segment).map_err(RpmbError::Content)?;
        let proved = request
            .prover()
            .map(|key| mac_of_segment(key, &data, segment).verify_slice(&said.key_mac).is_ok());
        Ok(Self {
            message: said.message,
            nonce: said.nonce,
            counter: said.write_counter,
            blocks: (said.address_lun, said.block_count),
            result: said.result,
            proved,
            data,
        })
    }

    /// The answer, if it belongs to `request` and can be trusted.
    fn check(self, request: &RpmbRequest, block_length: u32) -> Result<RpmbAnswer, RpmbError> {
        if self.message != request.message().response() {
            return Err(RpmbError::Message(self.message));
        }
        if self.result.status() != RpmbStatus::Ok {
            return Err(RpmbError::Refused(self.result.status()));
        }
        if self.proved == Some(false) {
            return Err(RpmbError::Mac);
        }
        if request.nonce().is_some_and(|nonce| *nonce != self.nonce) {
            return Err(RpmbError::Nonce);
        }
        let (address, blocks) = request.blocks(block_length);
        match request {
            // The block count is not checked in the answer to a write, which has none.
            RpmbRequest::Write { .. } if self.blocks.0 != address => return Err(RpmbError::Blocks),
            RpmbRequest::Read { .. } if self.blocks != (address, blocks) => {
                return Err(RpmbError::Blocks);
            }
            _ => {}
        }
        if let Some(expected) = request.counter().map(|counter| counter.wrapping_add(1))
            && expected != self.counter
        {
            return Err(RpmbError::Counter { expected, got: self.counter });
        }
        let is_read = matches!(request, RpmbRequest::Read { .. });
        let has_counter =
            request.counter().is_some() || matches!(request, RpmbRequest::ReadCounter { .. });
        let areas = match request {
            RpmbRequest::ReadProtection { lun, .. } => areas_of(*lun, &self.data)?,
            _ => Vec::new(),
        };
        Ok(RpmbAnswer {
            counter: has_counter.then_some(self.counter),
            expired: self.result.counter_expired(),
            data: if is_read { self.data } else { Vec::new() },
            areas,
            authenticated: self.proved == Some(true),
        })
    }
}

fn areas_of(lun: u8, data: &[u8]) -> Result<Vec<SecureWriteProtectEntry>, RpmbError> {
    let block = data.first_chunk().ok_or(RpmbError::Malformed)?;
    let view = SecureWriteProtectView::new(block).map_err(RpmbError::Content)?;
    if view.lun() == lun { Ok(view.entries().collect()) } else { Err(RpmbError::Malformed) }
}

impl RpmbUnit {
    /// Reads the descriptor of the RPMB unit.
    pub(crate) fn read<M: Machine>(peer: &mut Peer<M>) -> Run<Self> {
        const MISSING: UfsError = UfsError::Unsupported("replay protected memory");
        let index = Wlun::Rpmb.into_bits();
        let reply = match peer.read_descriptor(DescriptorId::Unit, index)? {
            Err(Cause::Query(_)) => return Err(MISSING.into()),
            reply => reply?,
        };
        let described = RpmbUnitDescriptor::parse(reply.bytes())
            .map_err(|why| UfsError::Descriptor("RPMB unit", Some(why)))?;
        if described.b_lu_enable == 0 {
            return Err(MISSING.into());
        }
        let advanced = described.b_rpmb_region_enable & ADVANCED_MODE != 0;
        let (block_length, carried) = match advanced {
            true => (ADVANCED_BLOCK_LENGTH as u32, ADVANCED_BLOCK_LENGTH as u32),
            false => (DATA_LENGTH as u32, RpmbFrame::LENGTH as u32),
        };
        if advanced && !peer.channel.cap.ehslutrds() {
            let why = "advanced RPMB (the controller sends no extra header segments)";
            return Err(UfsError::Unsupported(why).into());
        }
        let enabled = |n: u8| described.b_rpmb_region_enable >> n & 1 != 0;
        let unit = |units: u8| u64::from(units) * u64::from(REGION_UNIT);
        // Before UFS 3.0 introduced regions, the only one had no size of its own.
        let whole = described.q_logical_block_count << described.b_logical_block_size.min(20);
        let first = match described.b_rpmb_region0_size {
            0 => whole,
            units => unit(units),
        };
        let others = [
            described.b_rpmb_region1_size,
            described.b_rpmb_region2_size,
            described.b_rpmb_region3_size,
        ];
        let [one, two, three] = others.map(unit);
        let at_once = u32::from(peer.device.geometry.b_rpmb_read_write_size.max(1));
        Ok(Self {
            advanced,
            block_length,
            blocks_max: at_once.min(DATA_MAX / carried) as u16,
            regions: [
                first,
                if enabled(1) { one } else { 0 },
                if enabled(2) { two } else { 0 },
                if enabled(3) { three } else { 0 },
            ],
        })
    }
}

impl RpmbCommand {
    /// Sends the message and verifies its answer.
    pub(crate) fn send<M: Machine>(&self, peer: &mut Peer<M>) -> Run<RpmbAnswer> {
        let unit = RpmbUnit::read(peer)?;
        self.request.check(self.region, &unit)?;
        let said = match unit.advanced {
            true => self.send_advanced(peer)?,
            false => self.send_normal(peer)?,
        };
        Ok(said?.check(&self.request, unit.block_length)?)
    }

    fn send_normal<M: Machine>(&self, peer: &mut Peer<M>) -> Run<Result<Said, RpmbError>> {
        let request = &self.request;
        let frames = request.frames();
        peer.put_data(&frames);
        let sent = self.security(peer, Moves::Out(frames.len() as u32), false)?;
        peer.wipe_data();
        sent?;
        if request.has_result() {
            let mut ask = [0; RpmbFrame::LENGTH];
            RpmbFrame::new(RpmbMessage::ResultRead).emit(&mut ask);
            peer.put_data(&ask);
            self.security(peer, Moves::Out(RpmbFrame::LENGTH as u32), false)??;
        }
        let answers = match request {
            RpmbRequest::Read { blocks, .. } => u32::from(*blocks),
            _ => 1,
        };
        let len = answers * RpmbFrame::LENGTH as u32;
        peer.wipe_data();
        self.security(peer, Moves::In(len), false)??;
        let frames = peer.take_data(len);
        // A refused read returns one frame, and the rest of the requested data is meaningless.
        let first = frames.first_chunk().map(RpmbFrame::parse);
        let refused = first.is_some_and(|frame| frame.result.status() != RpmbStatus::Ok);
        let told = if refused { &frames[..RpmbFrame::LENGTH] } else { &frames };
        Ok(Said::in_frames(request, told))
    }

    fn send_advanced<M: Machine>(&self, peer: &mut Peer<M>) -> Run<Result<Said, RpmbError>> {
        let request = &self.request;
        let moves = match request {
            RpmbRequest::Write { data, .. } => {
                peer.put_data(data);
                Moves::Out(data.len() as u32)
            }
            RpmbRequest::Read { blocks, .. } => {
                Moves::In(u32::from(*blocks) * ADVANCED_BLOCK_LENGTH as u32)
            }
            RpmbRequest::ProgramKey { .. } => Moves::Out(0),
            RpmbRequest::ReadCounter { .. } => Moves::In(0),
            // How the block is transferred in this mode is not public.
            RpmbRequest::Protect { .. } | RpmbRequest::ReadProtection { .. } => {
                return Err(UfsError::Unsupported("write protection in advanced RPMB mode").into());
            }
        };
        peer.put_segment(&request.segment());
        let reply = self.security(peer, moves, true)?;
        let data = match moves {
            Moves::In(len) => peer.take_data(len),
            _ => Vec::new(),
        };
        peer.wipe_data();
        let Some(segment) = reply?.segment else { return Ok(Err(RpmbError::Malformed)) };
        Ok(Said::in_segment(request, &segment, data))
    }

    /// SECURITY PROTOCOL IN or OUT to a region.
    #[track_caller]
    fn security<M: Machine>(
        &self,
        peer: &mut Peer<M>,
        moves: Moves,
        segment: bool,
    ) -> Run<Result<Reply, Cause>> {
        let (Moves::In(length) | Moves::Out(length)) = moves else {
            unreachable!("RPMB messages have a direction")
        };
        let specific = rpmb::protocol_specific(self.region);
        let security =
            Security { protocol: SECURITY_PROTOCOL_UFS, specific, inc_512: false, length };
        let cdb = match moves {
            Moves::In(_) => Cdb::SecurityProtocolIn(security),
            _ => Cdb::SecurityProtocolOut(security),
        };
        peer.scsi(HostCommand {
            lun: Wlun::Rpmb.into_bits(),
            cdb: cdb.to_bytes(),
            moves,
            segment,
            timeout_ms: peer.channel.options.timeouts.service_ms,
        })
    }
}

#[cfg(test)]
mod tests;

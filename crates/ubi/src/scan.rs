//! The results of attaching: the headers of every block are judged, and one copy of each LEB wins.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::{Flash, FlashError};
use flysch_wire::ubi::{
    Compatibility, EcHeader, HeaderError, INTERNAL_VOLUME_START, LAYOUT_VOLUME, VidHeader,
    VolumeKind, VolumeRecord, fastmap,
};

use crate::attach_error::AttachError;
use crate::blocks::{Block, Claim, Claims, Content, Headers, Offsets, Reader, Votes};
use crate::locate::UbiImage;

/// The purpose of reading the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To show everything that is there.
    Read,
    /// To continue writing, as in Linux: the remains of interrupted erases and writes are
    /// distinguished from damage, and are leftovers.
    Write,
}

/// What a device that is open for writing must know about the fastmap it was attached by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Believed {
    /// Its blocks, the anchor first.
    pub(crate) blocks: Vec<u32>,
    /// Blocks for LEBs and blocks for moves, in the order in which they will be taken.
    pub(crate) pools: [Vec<u32>; 2],
    /// Blocks that wait for their erase, or have been erased since, first in, first out.
    pub(crate) queue: Vec<u32>,
    /// Mapped blocks that were not examined: they may have been discarded and erased since.
    pub(crate) unseen: Vec<u32>,
}

/// What a writer must know in addition to what a reader is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Blocks that start a fastmap, complete or not, and their sequence numbers.
    pub(crate) anchors: Vec<(u64, u32)>,
    /// The fastmap that was trusted.
    pub(crate) fastmap: Option<Believed>,
    /// Blocks of unknown internal volumes, and what they require.
    pub(crate) aliens: Vec<(u32, Compatibility)>,
    /// A block of which the flash did not give something, not even with bit errors, and its answer.
    pub(crate) unreadable: Option<(u32, FlashError)>,
    /// Two blocks of one LEB with the same sequence number, other than 0.
    pub(crate) equal: Option<(u32, u32)>,
    /// A block whose header contradicts the record of its volume, or the other blocks of it.
    pub(crate) mismatch: Option<u32>,
    /// The LEB that was written last, if that write may have been interrupted.
    pub(crate) fresh: Option<Fresh>,
    /// Blocks that were found not to be a copy of a LEB, but may look like one the next time.
    pub(crate) rejected: Vec<u32>,
    /// Blocks of LEBs whose erase was announced and that still hold one.
    pub(crate) announced: Vec<Claim>,
    /// Why the volume table is not certain, although something is left of it.
    pub(crate) table_doubt: Option<&'static str>,
    /// The volume table; empty if both copies are lost.
    pub(crate) records: Vec<Option<VolumeRecord>>,
}

/// A LEB whose block was written last of all: power may have been lost just before its last page
/// was completely programmed, so that it reads correctly today and not tomorrow. The content read
/// is kept.
#[derive(Clone, Debug)]
pub(crate) struct Fresh {
    pub(crate) peb: u32,
    pub(crate) vid: VidHeader,
    /// Its whole content.
    pub(crate) data: Vec<u8>,
    /// Blocks with the earlier content of the LEB.
    pub(crate) older: Vec<u32>,
}

/// What attaching collects.
pub(crate) struct Attach<'f, F: ?Sized> {
    pub(crate) purpose: Purpose,
    pub(crate) evidence: Evidence,
    pub(crate) reader: Reader<'f, F>,
    pub(crate) offsets: Offsets,
    pub(crate) blocks: Vec<Block>,
    pub(crate) claims: Claims,
    pub(crate) findings: Vec<Finding>,
    pub(crate) sequence_max: u64,
    /// Highest sequence number of a fastmap's blocks. LEBs written before it are complete.
    pub(crate) sequence_map: u64,
}

impl<'f, F: Flash + ?Sized> Attach<'f, F> {
    pub(crate) fn new(
        reader: Reader<'f, F>,
        (offsets, image_sequence): (Offsets, u32),
        purpose: Purpose,
    ) -> Self {
        let image = UbiImage { image_sequence, ..reader.image };
        let reader = Reader::new(reader.flash, image);
        Self {
            purpose,
            evidence: Evidence::default(),
            reader,
            offsets,
            blocks: Vec::new(),
            claims: Claims::new(),
            findings: Vec::new(),
            sequence_max: 0,
            sequence_map: 0,
        }
    }

    pub(crate) fn note(
        &mut self,
        severity: Severity,
        structure: &'static str,
        problem: String,
        place: Place,
    ) {
        self.findings.push(Finding {
            severity,
            structure,
            problem,
            place,
            inode: None,
            path: None,
        });
    }

    /// Names the block of which the flash did not give something: what was concluded from that may
    /// be wrong, so that a writer will not go on.
    pub(crate) fn tell_refused(&mut self) {
        let Some((peb, error)) = self.reader.refused.take() else { return };
        self.evidence.unreadable.get_or_insert((peb, error));
        let place = Place { peb: Some(peb), ..Place::default() };
        self.note(Severity::Lost, "erase block", format!("it cannot be read: {error}"), place);
    }

    /// Reads the headers of every block; returns what they say about the device.
    pub(crate) fn scan(&mut self) -> Result<Votes, AttachError> {
        let mut votes = Votes::default();
        self.blocks.reserve_exact(self.reader.image.pebs as usize);
        for peb in 0..self.reader.image.pebs {
            let headers = self.reader.headers(peb, self.offsets);
            if let Ok(ec) = &headers.ec {
                votes.add(ec);
            }
            let content = self.judge(peb, &headers)?;
            self.tell_refused();
            let erase_counter = headers.ec.ok().map(|ec| ec.erase_counter as u32);
            self.blocks.push(Block { erase_counter, content, scrub: headers.scrub });
        }
        Ok(votes)
    }

    /// Judges a block by its headers; a block with a LEB joins the claims.
    pub(crate) fn judge(&mut self, peb: u32, headers: &Headers) -> Result<Content, AttachError> {
        let place = Place { peb: Some(peb), ..Place::default() };
        if headers.bad {
            return Ok(Content::Bad);
        }
        if self.purpose == Purpose::Write
            && let Some(content) = self.judge_ruin(peb, headers)
        {
            return Ok(content);
        }
        let mut is_announced = false;
        match headers.ec {
            Ok(ec) if !self.is_ours(&ec) => {
                let expected = self.reader.image.image_sequence;
                let problem = format!("image_seq {} among blocks of {expected}", ec.image_sequence);
                self.note(Severity::Inconsistent, "EC header", problem, place);
                return Ok(Content::Foreign);
            }
            Ok(_) => {}
            Err(HeaderError::Erased) if headers.vid.is_err() => {
                return Ok(self.judge_headless(peb, headers));
            }
            Err(error) => {
                // Over an erased block, or one that was tried because a write to it had failed, it
                // is what a power cut left: the next to attach the device for writing erases it, as
                // Linux does.
                let is_nothing = headers.vid.is_err()
                    && (self.reader.is_trial(peb) || self.reader.is_erased(peb, self.offsets.data));
                is_announced = !is_nothing && self.reader.is_announced(peb);
                if is_announced {
                    let problem = String::from("the block was about to be erased");
                    self.note(Severity::Note, "EC header", problem, place);
                } else {
                    let severity = if is_nothing { Severity::Note } else { Severity::Inconsistent };
                    self.note(severity, "EC header", format!("{error}"), place);
                }
                if is_nothing {
                    return Ok(Content::Erased);
                }
            }
        }
        match headers.vid {
            Ok(vid) => {
                if is_announced {
                    self.evidence.announced.push(Claim { peb, vid });
                }
                self.judge_vid(peb, vid)
            }
            Err(HeaderError::Erased) if self.reader.is_erased(peb, self.offsets.data) => {
                Ok(if headers.ec.is_ok() { Content::Free } else { Content::Erased })
            }
            Err(error) => {
                // Over erased data it is what a power cut left of a header that was being written,
                // or of an erase: the next to attach the device for writing erases it. So does it
                // where the erase was announced, which spoils both headers.
                let is_ruin = is_announced || self.reader.is_erased(peb, self.offsets.data);
                let severity = if is_ruin { Severity::Note } else { Severity::Lost };
                let problem = match headers.ec {
                    // Nobody can tell the two apart; Linux erases such a block.
                    Err(_) if !is_ruin => format!(
                        "{error}; both headers are unreadable over data: damage, or an erase that \
                         lost power"
                    ),
                    _ => format!("{error}"),
                };
                self.note(severity, "VID header", problem, place);
                Ok(Content::Corrupt(error))
            }
        }
    }

    /// Whether a block belongs to this image. Old implementations left the number 0.
    fn is_ours(&self, ec: &EcHeader) -> bool {
        [0, self.reader.image.image_sequence].contains(&ec.image_sequence)
    }

    /// What power cuts leave behind; `None` if the block is not such a case.
    fn judge_ruin(&mut self, peb: u32, headers: &Headers) -> Option<Content> {
        let short = Some(HeaderError::Short);
        if headers.ec.err() == short || headers.vid.err() == short {
            let error = self.reader.refused.get().map_or(FlashError::OutOfRange, |it| it.1);
            self.evidence.unreadable.get_or_insert((peb, error));
            return None;
        }
        match (headers.ec, headers.vid) {
            // An erase that went from the start, or one that was not followed by its header.
            (Err(HeaderError::Erased), _) => Some(Content::Erased),
            // An erase that left noise, or one that NOR announces by spoiling both.
            (Err(_), Err(_)) => Some(Content::Erased),
            // Who takes the block looks whether it is erased.
            (Ok(ec), Err(HeaderError::Erased)) => self.is_ours(&ec).then_some(Content::Free),
            // A header that was being written, or an erase that error correction notices.
            (Ok(_), Err(_)) => {
                let ruin = self.reader.is_ruin(peb, self.offsets.data);
                ruin.then(|| {
                    self.evidence.rejected.push(peb);
                    Content::Stale
                })
            }
            _ => None,
        }
    }

    /// A block that begins erased and whose second header is not readable.
    fn judge_headless(&mut self, peb: u32, headers: &Headers) -> Content {
        if self.reader.is_erased(peb, 0) {
            return Content::Erased;
        }
        let error = headers.vid.err().unwrap_or(HeaderError::Erased);
        let place = Place { peb: Some(peb), ..Place::default() };
        let problem = String::from("erased, yet the block holds something");
        self.note(Severity::Lost, "EC header", problem, place);
        Content::Corrupt(error)
    }

    pub(crate) fn judge_vid(&mut self, peb: u32, vid: VidHeader) -> Result<Content, AttachError> {
        self.sequence_max = self.sequence_max.max(vid.sequence);
        if vid.volume > LAYOUT_VOLUME {
            if [fastmap::SUPERBLOCK_VOLUME, fastmap::DATA_VOLUME].contains(&vid.volume) {
                if vid.volume == fastmap::SUPERBLOCK_VOLUME {
                    self.evidence.anchors.push((vid.sequence, peb));
                }
                self.sequence_map = self.sequence_map.max(vid.sequence);
                return Ok(Content::Fastmap);
            }
            if vid.compatibility == Compatibility::Reject {
                return Err(AttachError::Rejected { volume: vid.volume });
            }
            if vid.compatibility != Compatibility::Delete {
                self.evidence.aliens.push((peb, vid.compatibility));
            }
            return Ok(Content::Stale);
        }
        self.claims.entry((vid.volume, vid.lnum)).or_default().push(Claim { peb, vid });
        Ok(Content::Used { volume: vid.volume, lnum: vid.lnum })
    }

    /// Selects one copy of each LEB; the others become stale.
    pub(crate) fn choose(&mut self) {
        let mut claims = core::mem::take(&mut self.claims);
        let mut newest: Option<Fresh> = None;
        for ((volume, lnum), copies) in &mut claims {
            copies.sort_by_key(|claim| core::cmp::Reverse(claim.vid.sequence));
            self.warn_equal(*volume, *lnum, copies);
            let (mut data, mut first) = (None, 0);
            while first + 1 < copies.len() && copies[first].vid.copy {
                let Claim { peb, vid } = copies[first];
                data = self.reader.data_of_copy(peb, self.offsets, &vid);
                // What is not known to be unfinished counts, even if it cannot be read now.
                if data.is_some() || self.reader.refused.get().is_some() {
                    break;
                }
                self.reject(&copies[first]);
                first += 1;
            }
            self.tell_refused();
            let winner = copies[first];
            let older: Vec<u32> = copies[first + 1..].iter().map(|loser| loser.peb).collect();
            for &loser in &older {
                self.blocks[loser as usize].content = Content::Stale;
            }
            *copies = alloc::vec![winner];
            if newest.as_ref().is_none_or(|newest| winner.vid.sequence > newest.vid.sequence) {
                let Claim { peb, vid } = winner;
                newest = Some(Fresh { peb, vid, data: data.unwrap_or_default(), older });
            }
        }
        self.claims = claims;
        let newest = newest.filter(|newest| !self.is_begun_update(newest));
        self.evidence.fresh = newest.filter(|newest| self.may_be_cut(newest));
    }

    /// Whether the LEB written last belongs to a static volume and its header was written but its
    /// content was not: nobody will miss it, and its header may read differently the next time.
    fn is_begun_update(&mut self, newest: &Fresh) -> bool {
        let Fresh { peb, vid, .. } = newest;
        let is_kind = vid.kind == VolumeKind::Static && !vid.copy && vid.data_size > 0;
        let is_newest = vid.sequence > self.sequence_map;
        if !is_kind || !is_newest || !self.reader.is_erased(*peb, self.offsets.data) {
            return false;
        }
        // Content may be nothing but 0xFF.
        let is_there = self.reader.data_of_copy(*peb, self.offsets, vid).is_some();
        if is_there || self.reader.refused.get().is_some() {
            return false;
        }
        if let Some(claims) = self.claims.remove(&(vid.volume, vid.lnum)) {
            claims.iter().for_each(|claim| self.reject(claim));
        }
        true
    }

    /// Whether the last page of the LEB written last may have been interrupted: not if anything was
    /// written after it.
    fn may_be_cut(&self, newest: &Fresh) -> bool {
        let Fresh { peb, vid, data, .. } = newest;
        let end = self.offsets.data + data.len() as u32;
        // Static volumes have their update marker until all is there.
        let is_kind = vid.kind == VolumeKind::Dynamic || !data.is_empty();
        is_kind && vid.sequence > self.sequence_map && self.reader.is_erased(*peb, end)
    }

    /// An unfinished copy although an older one exists, or one of a volume being updated.
    fn reject(&mut self, claim: &Claim) {
        let place = Place { peb: Some(claim.peb), leb: Some(claim.vid.lnum), offset: None };
        let problem = String::from("an unfinished copy; it is not used");
        self.note(Severity::Note, "LEB copy", problem, place);
        self.blocks[claim.peb as usize].content = Content::Stale;
        self.evidence.rejected.push(claim.peb);
    }

    fn warn_equal(&mut self, volume: u32, lnum: u32, copies: &[Claim]) {
        for pair in copies.windows(2) {
            if pair[0].vid.sequence == pair[1].vid.sequence {
                if pair[0].vid.sequence != 0 {
                    self.evidence.equal.get_or_insert((pair[0].peb, pair[1].peb));
                }
                let problem = format!(
                    "PEB {} and {} of volume {volume} have the same sequence number {}",
                    pair[0].peb, pair[1].peb, pair[0].vid.sequence
                );
                let place = Place { peb: Some(pair[1].peb), leb: Some(lnum), offset: None };
                self.note(Severity::Inconsistent, "VID header", problem, place);
            }
        }
    }

    /// The one block that holds a LEB.
    pub(crate) fn winner(&self, volume: u32, lnum: u32) -> Option<&Claim> {
        self.claims.get(&(volume, lnum))?.first()
    }

    /// Ids of the user volumes that have blocks.
    pub(crate) fn claimed_volumes(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self
            .claims
            .keys()
            .map(|(volume, _)| *volume)
            .filter(|&volume| volume < INTERNAL_VOLUME_START)
            .collect();
        ids.dedup();
        ids
    }
}

//! Attaching: which erase block holds which LEB.
//!
//! Two copies of one LEB lie on the flash when power was lost between writing the new and erasing
//! the old one. Every volume identifier header carries a device-wide sequence number; the higher
//! one is newer. A newer copy made by UBI itself (wear levelling, atomic LEB change) has the copy
//! flag and a checksum over its data: if that does not fit, the copy was not finished and the older
//! one still counts.
//!
//! A page that was cut late may read well now and not the next time, or the other way round. So
//! each block is judged once: what was read of the LEB written last is kept ([`Fresh`]), and blocks
//! that were judged to be no copy are remembered, so that who writes can make both verdicts true on
//! the flash before anything relies on them.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::Flash;
use flysch_wire::ubi::{
    Compatibility, HeaderError, INTERNAL_VOLUME_START, LAYOUT_VOLUME, VidHeader, VolumeKind,
    VolumeRecord, fastmap,
};

use crate::blocks::{Block, Claim, Claims, Content, Headers, Offsets, Reader, Votes};
use crate::table::{self, VolumeInfo};
use crate::volume::UbiVolume;
use crate::{Image, fastmap as map};

/// So many headers tell where headers and data lie, unless the others contradict.
const VOTES_ENOUGH: u32 = 16;

/// Whether to believe a fastmap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastmapUse {
    /// Use it if it is there and whole, else read every header.
    Use,
    /// Read every header.
    #[default]
    Ignore,
}

/// How to attach.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Whether to believe a fastmap.
    pub fastmap: FastmapUse,
}

/// Why nothing could be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttachError {
    /// Not one erase block has a readable erase counter header.
    NoHeaders,
    /// The headers say that data begins behind the end of the block.
    Offsets {
        /// Where they say data begins.
        data: u32,
        /// Bytes of an erase block.
        peb_size: u32,
    },
    /// An internal volume asks not to be attached by who does not know it.
    Rejected {
        /// Its id.
        volume: u32,
    },
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHeaders => f.write_str("no erase block has a readable UBI header"),
            Self::Offsets { data, peb_size } => {
                write!(f, "data offset {data} does not fit erase blocks of {peb_size} bytes")
            }
            Self::Rejected { volume } => write!(f, "internal volume {volume:#x} is not known"),
        }
    }
}

impl core::error::Error for AttachError {}

/// An attached UBI image.
#[derive(Debug)]
pub struct Ubi<F> {
    flash: F,
    image: Image,
    offsets: Offsets,
    blocks: Vec<Block>,
    volumes: Vec<VolumeInfo>,
    findings: Vec<Finding>,
    sequence_max: u64,
    by_fastmap: bool,
    /// What was read of the LEB written last stands for it.
    fresh: Option<Arc<Fresh>>,
}

/// What the blocks are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To show everything that is there.
    Read,
    /// To go on writing, as Linux does: the ruins of interrupted erases and writes are told from
    /// damage, and are leftovers.
    Write,
}

/// What a writer must know beyond what a reader is shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    /// Blocks that start a fastmap, whole or not, and their sequence numbers.
    pub(crate) anchors: Vec<(u64, u32)>,
    /// The fastmap that was believed.
    pub(crate) fastmap: Option<map::Believed>,
    /// Blocks of internal volumes that are not known, and what they ask for.
    pub(crate) aliens: Vec<(u32, Compatibility)>,
    /// A block whose headers could not be read, not even with bit errors.
    pub(crate) unreadable: Option<u32>,
    /// Two blocks of one LEB with one sequence number other than 0.
    pub(crate) equal: Option<(u32, u32)>,
    /// The LEB that was written last, if that may have been cut short.
    pub(crate) fresh: Option<Fresh>,
    /// Blocks that were found to be no copy of a LEB, and may look like one the next time.
    pub(crate) rejected: Vec<u32>,
    /// Blocks of LEBs whose erase was announced, and that still hold one.
    pub(crate) announced: Vec<Claim>,
    /// The volume table; empty if both copies are lost.
    pub(crate) records: Vec<Option<VolumeRecord>>,
}

/// A LEB whose block was written last of all: power may have gone just before its last page was
/// wholly programmed, so that it reads well today and not tomorrow. What was read is kept.
#[derive(Clone, Debug)]
pub(crate) struct Fresh {
    pub(crate) peb: u32,
    pub(crate) vid: VidHeader,
    /// All that it holds.
    pub(crate) data: Vec<u8>,
    /// Blocks with what the LEB held before.
    pub(crate) older: Vec<u32>,
}

/// What attaching collects on its way.
pub(crate) struct Attach<'f, F: ?Sized> {
    pub(crate) purpose: Purpose,
    pub(crate) evidence: Evidence,
    pub(crate) reader: Reader<'f, F>,
    pub(crate) offsets: Offsets,
    pub(crate) blocks: Vec<Block>,
    pub(crate) claims: Claims,
    pub(crate) findings: Vec<Finding>,
    pub(crate) sequence_max: u64,
    /// Highest sequence number of a fastmap's blocks. LEBs written before are wholly there.
    pub(crate) sequence_map: u64,
}

impl<F: Flash> Ubi<F> {
    /// Attaches the image that lies at `image` on `flash`.
    pub fn attach(flash: F, image: Image, options: &Options) -> Result<Self, AttachError> {
        Self::attach_for(flash, image, options, Purpose::Read).map(|(ubi, _)| ubi)
    }

    pub(crate) fn attach_for(
        flash: F,
        image: Image,
        options: &Options,
        purpose: Purpose,
    ) -> Result<(Self, Evidence), AttachError> {
        let (mut whole, mut refusal) = (None, None);
        if options.fastmap == FastmapUse::Use {
            // A fastmap starts in one of the first blocks; no others need be asked for the offsets.
            let reader = Reader { flash: &flash, image };
            if let Ok(guess) = reader.vote(fastmap::START_MAX, VOTES_ENOUGH) {
                let mut attach = Attach::new(reader, guess, purpose);
                match map::attach(&mut attach) {
                    Ok(true) => whole = Some(attach),
                    Ok(false) => {}
                    Err(error) => refusal = Some(error),
                }
            }
        }
        let by_fastmap = whole.is_some();
        let mut attach = match whole {
            Some(attach) => attach,
            None => {
                let mut attach = Self::scanned(&flash, image, purpose)?;
                if let Some(error) = refusal {
                    let problem = format!("{error}; every header is read instead");
                    attach.note(Severity::Note, "fastmap", problem, Place::default());
                }
                attach
            }
        };
        attach.choose();
        let volumes = table::volumes(&mut attach);
        let Attach { reader, offsets, blocks, findings, sequence_max, evidence, .. } = attach;
        let image = reader.image;
        let fresh = match purpose {
            Purpose::Read => evidence.fresh.clone().map(Arc::new),
            Purpose::Write => None,
        };
        let ubi = Self {
            flash,
            image,
            offsets,
            blocks,
            volumes,
            findings,
            sequence_max,
            by_fastmap,
            fresh,
        };
        Ok((ubi, evidence))
    }

    /// Every header read: once, if the first few blocks say what most of all say.
    fn scanned(flash: &F, image: Image, purpose: Purpose) -> Result<Attach<'_, F>, AttachError> {
        let reader = Reader { flash, image };
        if let Ok(guess) = reader.vote(u32::MAX, VOTES_ENOUGH) {
            let mut attach = Attach::new(reader, guess, purpose);
            let votes = attach.scan();
            if votes.is_ok_and(|votes| votes.result(image.peb_size) == Ok(guess)) {
                return Ok(attach);
            }
        }
        let elected = Reader { flash, image }.vote(u32::MAX, u32::MAX)?;
        let mut attach = Attach::new(Reader { flash, image }, elected, purpose);
        attach.scan()?;
        Ok(attach)
    }

    /// The flash, given back.
    pub(crate) fn into_flash(self) -> F {
        self.flash
    }

    /// The flash it lies on.
    pub fn flash(&self) -> &F {
        &self.flash
    }

    /// Where it lies.
    pub fn image(&self) -> Image {
        self.image
    }

    /// Where in each erase block things lie.
    pub fn offsets(&self) -> Offsets {
        self.offsets
    }

    /// Bytes of a logical erase block, before a volume's alignment.
    pub fn leb_size(&self) -> u32 {
        self.image.peb_size - self.offsets.data
    }

    /// Every erase block.
    pub fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    /// The volumes, by id.
    pub fn volumes(&self) -> &[VolumeInfo] {
        &self.volumes
    }

    /// What is wrong.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Highest sequence number on the flash; the next header written gets the one after it.
    pub fn sequence_max(&self) -> u64 {
        self.sequence_max
    }

    /// Whether the fastmap spared reading every header.
    pub fn attached_by_fastmap(&self) -> bool {
        self.by_fastmap
    }

    /// Smallest unit of writing that the offsets leave possible, bytes: what `vid_hdr_offset` and
    /// the data offset are multiples of.
    pub fn write_size_max(&self) -> u32 {
        1 << self.offsets.data.trailing_zeros().min(31)
    }

    /// Volume `id`, over its own handle of the flash.
    pub fn volume(&self, id: u32) -> Option<UbiVolume<F>>
    where
        F: Clone,
    {
        let info = self.volumes.iter().find(|volume| volume.id == id)?;
        let flash = self.flash.clone();
        Some(UbiVolume::new(flash, (self.image, self.offsets), info, self.fresh.clone()))
    }
}

impl<'f, F: Flash + ?Sized> Attach<'f, F> {
    fn new(
        reader: Reader<'f, F>,
        (offsets, image_sequence): (Offsets, u32),
        purpose: Purpose,
    ) -> Self {
        let image = Image { image_sequence, ..reader.image };
        let reader = Reader { image, ..reader };
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

    /// Reads the headers of every block; tells what they say about the device.
    fn scan(&mut self) -> Result<Votes, AttachError> {
        let mut votes = Votes::default();
        self.blocks.reserve_exact(self.reader.image.pebs as usize);
        for peb in 0..self.reader.image.pebs {
            let headers = self.reader.headers(peb, self.offsets);
            if let Ok(ec) = &headers.ec {
                votes.add(ec);
            }
            let content = self.judge(peb, &headers)?;
            let erase_counter = headers.ec.ok().map(|ec| ec.erase_counter as u32);
            self.blocks.push(Block { erase_counter, content, scrub: headers.scrub });
        }
        Ok(votes)
    }

    /// What a block's headers say it is; a block with a LEB joins the claims.
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
            Ok(ec) => {
                let expected = self.reader.image.image_sequence;
                // Old implementations left it 0.
                let unknown = self.purpose == Purpose::Write && ec.image_sequence == 0;
                if ec.image_sequence != expected && !unknown {
                    let problem =
                        format!("image_seq {} among blocks of {expected}", ec.image_sequence);
                    self.note(Severity::Inconsistent, "EC header", problem, place);
                    return Ok(Content::Foreign);
                }
            }
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
                self.note(severity, "VID header", format!("{error}"), place);
                Ok(Content::Corrupt(error))
            }
        }
    }

    /// What power cuts leave behind; `None` if the block is none of it.
    fn judge_ruin(&mut self, peb: u32, headers: &Headers) -> Option<Content> {
        let short = Some(HeaderError::Short);
        if headers.ec.err() == short || headers.vid.err() == short {
            self.evidence.unreadable.get_or_insert(peb);
            return None;
        }
        match (headers.ec, headers.vid) {
            // An erase that went from the start, or one that was not followed by its header.
            (Err(HeaderError::Erased), _) => Some(Content::Erased),
            // An erase that left noise, or one that NOR announces by spoiling both.
            (Err(_), Err(_)) => Some(Content::Erased),
            // Who takes the block looks whether it is erased.
            (Ok(ec), Err(HeaderError::Erased)) => {
                let expected = self.reader.image.image_sequence;
                let ours = ec.image_sequence == expected || ec.image_sequence == 0;
                ours.then_some(Content::Free)
            }
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

    /// Lets one copy of each LEB win; the others become stale.
    fn choose(&mut self) {
        let mut claims = core::mem::take(&mut self.claims);
        let mut newest: Option<Fresh> = None;
        for ((volume, lnum), copies) in &mut claims {
            copies.sort_by_key(|claim| core::cmp::Reverse(claim.vid.sequence));
            self.warn_equal(*volume, *lnum, copies);
            let mut data = None;
            while copies.len() > 1 && copies[0].vid.copy {
                data = self.reader.data_of_copy(copies[0].peb, self.offsets, &copies[0].vid);
                if data.is_some() {
                    break;
                }
                let unfinished = copies.remove(0);
                self.reject(&unfinished);
            }
            let winner = copies.remove(0);
            let older: Vec<u32> = copies.drain(..).map(|loser| loser.peb).collect();
            for &loser in &older {
                self.blocks[loser as usize].content = Content::Stale;
            }
            copies.push(winner);
            if newest.as_ref().is_none_or(|newest| winner.vid.sequence > newest.vid.sequence) {
                let Claim { peb, vid } = winner;
                newest = Some(Fresh { peb, vid, data: data.unwrap_or_default(), older });
            }
        }
        self.claims = claims;
        let newest = newest.filter(|newest| !self.is_begun_update(newest));
        self.evidence.fresh = newest.filter(|newest| self.may_be_cut(newest));
    }

    /// Whether the LEB written last is one of a static volume whose header came to the flash and
    /// whose content did not: nobody will miss it, and its header may read otherwise the next time.
    fn is_begun_update(&mut self, newest: &Fresh) -> bool {
        let Fresh { peb, vid, .. } = newest;
        let is_kind = vid.kind == VolumeKind::Static && !vid.copy && vid.data_size > 0;
        let is_newest = vid.sequence > self.sequence_map;
        if !is_kind || !is_newest || !self.reader.is_erased(*peb, self.offsets.data) {
            return false;
        }
        // Content may be nothing but 0xFF.
        if self.reader.data_of_copy(*peb, self.offsets, vid).is_some() {
            return false;
        }
        if let Some(claims) = self.claims.remove(&(vid.volume, vid.lnum)) {
            claims.iter().for_each(|claim| self.reject(claim));
        }
        true
    }

    /// Whether the last page of the LEB written last may have been cut short: not if anything was
    /// written after it.
    fn may_be_cut(&self, newest: &Fresh) -> bool {
        let Fresh { peb, vid, data, .. } = newest;
        let end = self.offsets.data + data.len() as u32;
        // Static volumes have their update marker until all is there.
        let is_kind = vid.kind == VolumeKind::Dynamic || !data.is_empty();
        is_kind && vid.sequence > self.sequence_map && self.reader.is_erased(*peb, end)
    }

    /// An unfinished copy, though an older one exists, or one of a volume being updated.
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

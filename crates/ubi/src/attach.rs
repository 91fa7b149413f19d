//! Attaching: finding out which erase block holds which LEB.
//!
//! Two copies of a LEB are on the flash if power was lost after the new one was written and before
//! the old one was erased. Every volume identifier header has a device-wide sequence number; the
//! higher one is newer. A newer copy made by UBI itself (wear levelling, atomic LEB change) has the
//! copy flag and a checksum over its data: if the checksum is wrong, the copy was not finished and
//! the older one is still valid.
//!
//! A page that was interrupted late may read correctly now and not the next time, or the other way
//! round. So each block is judged only once: the content read from the LEB written last is kept
//! ([`Fresh`]), and blocks that were judged not to be a copy are remembered. A writer can then make
//! both verdicts true on the flash before anything relies on them.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::Flash;
use flysch_wire::ubi::fastmap;

use crate::attach_error::AttachError;
use crate::blocks::{Block, Offsets, Reader};
use crate::fastmap as map;
use crate::locate::UbiImage;
use crate::scan::{Attach, Evidence, Fresh, Purpose};
use crate::table::{self, VolumeInfo};
use crate::volume::UbiVolume;

/// This many headers decide where headers and data are, unless others contradict them.
const VOTES_ENOUGH: u32 = 16;

/// Whether to trust a fastmap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FastmapUse {
    /// Use it if it exists and is intact, otherwise read every header.
    Use,
    /// Read every header.
    #[default]
    Ignore,
}

/// How to attach.
#[derive(Clone, Copy, Debug, Default)]
pub struct AttachOptions {
    /// Whether to trust a fastmap.
    pub fastmap: FastmapUse,
}

/// An attached UBI image.
#[derive(Debug)]
pub struct Ubi<F> {
    flash: F,
    image: UbiImage,
    offsets: Offsets,
    blocks: Vec<Block>,
    volumes: Vec<VolumeInfo>,
    findings: Vec<Finding>,
    sequence_max: u64,
    by_fastmap: bool,
    /// The content read from the LEB written last, which stands in for it.
    fresh: Option<Arc<Fresh>>,
}

impl<F: Flash> Ubi<F> {
    /// Attaches the image at position `image` of `flash`.
    ///
    /// To keep the flash if this fails, pass `&flash`.
    pub fn attach(flash: F, image: UbiImage, options: &AttachOptions) -> Result<Self, AttachError> {
        Self::attach_for(flash, image, options, Purpose::Read).map(|(ubi, _)| ubi)
    }

    pub(crate) fn attach_for(
        flash: F,
        image: UbiImage,
        options: &AttachOptions,
        purpose: Purpose,
    ) -> Result<(Self, Evidence), AttachError> {
        let (mut whole, mut refusal) = (None, None);
        if options.fastmap == FastmapUse::Use {
            // A fastmap starts in one of the first blocks; no others need be asked for the offsets.
            let reader = Reader::new(&flash, image);
            if let Ok(guess) = reader.vote(fastmap::START_MAX, VOTES_ENOUGH) {
                let mut attach = Attach::new(reader, guess, purpose);
                let found = map::attach(&mut attach);
                match (found, attach.reader.refused.get()) {
                    // An older one may have been taken for the newest. No cause of the other error:
                    // it may come from this.
                    (_, Some((peb, error))) => {
                        refusal = Some(format!("erase block {peb} cannot be read: {error}"));
                    }
                    (Ok(true), None) => whole = Some(attach),
                    (Ok(false), None) => {}
                    (Err(error), None) => refusal = Some(format!("{error}")),
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
        attach.tell_refused();
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

    /// Reads every header; only once, if the first few blocks agree with the majority of all.
    fn scanned(flash: &F, image: UbiImage, purpose: Purpose) -> Result<Attach<'_, F>, AttachError> {
        let reader = Reader::new(flash, image);
        if let Ok(guess) = reader.vote(u32::MAX, VOTES_ENOUGH) {
            let mut attach = Attach::new(reader, guess, purpose);
            let votes = attach.scan();
            if votes.is_ok_and(|votes| votes.result(image.peb_size) == Ok(guess)) {
                return Ok(attach);
            }
        }
        let elected = Reader::new(flash, image).vote(u32::MAX, u32::MAX)?;
        let mut attach = Attach::new(Reader::new(flash, image), elected, purpose);
        attach.scan()?;
        Ok(attach)
    }

    /// Returns the flash.
    pub(crate) fn into_flash(self) -> F {
        self.flash
    }

    /// The flash that holds the image.
    pub fn flash(&self) -> &F {
        &self.flash
    }

    /// Position of the image.
    pub fn image(&self) -> UbiImage {
        self.image
    }

    /// Layout of each erase block.
    pub fn offsets(&self) -> Offsets {
        self.offsets
    }

    /// Size of a logical erase block in bytes, before a volume's alignment.
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

    /// Everything found to be wrong.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// Highest sequence number on the flash; the next header written gets the one after it.
    pub fn sequence_max(&self) -> u64 {
        self.sequence_max
    }

    /// Whether a fastmap made it unnecessary to read every header.
    pub fn attached_by_fastmap(&self) -> bool {
        self.by_fastmap
    }

    /// Largest write size that is compatible with the offsets, bytes: `vid_hdr_offset` and the data
    /// offset are multiples of it.
    pub fn write_size_max(&self) -> u32 {
        1 << self.offsets.data.trailing_zeros().min(31)
    }

    /// Volume `id`, with its own handle of the flash.
    pub fn volume(&self, id: u32) -> Option<UbiVolume<F>>
    where
        F: Clone,
    {
        let info = self.volumes.iter().find(|volume| volume.id == id)?;
        let flash = self.flash.clone();
        Some(UbiVolume::new(flash, (self.image, self.offsets), info, self.fresh.clone()))
    }
}

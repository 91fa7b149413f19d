//! Damage of UBI itself, and its repair.
//!
//! Attaching for writing repairs most of it: the copies of the volume table, damaged headers, LEBs
//! in blocks that lost their erase counter. Whatever it would refuse, or would fail on later, is
//! erased first.

use flysch_api::finding::{Finding, Severity};
use flysch_api::flash::{self, Flash as _, FlashMut};
use flysch_ubi::{Content, UbiDevice, UbiError};
use flysch_ubifs::repair::{Change, Level};
use flysch_wire::ubi::{
    EC_HEADER_SIZE, ERASE_COUNTER_MAX, EcHeader, HeaderError, VID_HEADER_SIZE, VidHeader,
};

use super::{RepairFailure, unfit};
use crate::open::ImageDevice;

/// The finding of attaching for two blocks that claim one LEB.
const TWINS: &str = "have the same sequence number";

/// The repairs to be made.
#[derive(Debug)]
pub(super) struct Plan {
    /// The damage and its repair.
    pub(super) changes: Vec<Change>,
    /// Blocks to be erased first, the required level, and the header that they get then.
    erase: Vec<(u32, Level, Option<EcHeader>)>,
}

/// Examines the findings of attaching for reading.
///
/// # Errors
/// [`RepairFailure::Unfit`] if the volume table is lost.
pub(super) fn survey(device: &ImageDevice) -> Result<Plan, RepairFailure> {
    let mut plan = Plan { changes: Vec::new(), erase: Vec::new() };
    for finding in device.findings().iter().filter(|it| it.severity > Severity::Note) {
        if finding.structure == "volume table" && finding.severity == Severity::Lost {
            return Err(unfit(
                "both copies of UBI's volume table are lost, and nothing else has the volumes' \
                 names and sizes: `image extract` saves what is there, `image create ubi` makes a \
                 new image",
            ));
        }
        plan.add(device, finding);
    }
    Ok(plan)
}

impl Plan {
    fn add(&mut self, device: &ImageDevice, finding: &Finding) {
        let peb = finding.place.peb;
        let block = peb.and_then(|peb| device.blocks().get(peb as usize).copied());
        let (level, action, erase) = match (finding.structure, block.map(|it| it.content)) {
            ("volume table", _) => (Level::Safe, "both copies are rewritten", false),
            ("VID header", Some(_)) if finding.problem.contains(TWINS) => {
                peb.into_iter().for_each(|peb| self.erase_twins(device, peb));
                (Level::DangerDefault, "the one that is not read is erased", false)
            }
            ("EC header" | "VID header", Some(Content::Used { .. })) => {
                (Level::Safe, "its content is moved to another block", false)
            }
            ("EC header" | "VID header", Some(Content::Foreign)) => {
                (Level::DangerDefault, "the block is erased", true)
            }
            // An erase counter and no LEB: nothing can be in it that counts.
            ("VID header", Some(Content::Corrupt(HeaderError::Erased)))
                if block.is_some_and(|it| it.erase_counter.is_some()) =>
            {
                (Level::Safe, "the block is free: it is erased", true)
            }
            ("EC header" | "VID header", Some(Content::Corrupt(_)))
                if finding.severity == Severity::Inconsistent =>
            {
                (Level::Safe, "there is no data in the block: it is erased", true)
            }
            ("EC header" | "VID header", Some(_)) => (
                Level::DangerDefault,
                "it is not known whose data this is: the block is erased",
                true,
            ),
            // Lost blocks of static volumes: nothing brings them back.
            _ => return,
        };
        self.changes.push(Change { level, finding: finding.clone(), action: action.into() });
        peb.filter(|_| erase).into_iter().for_each(|peb| self.erase(device, peb, level));
    }

    fn erase(&mut self, device: &ImageDevice, peb: u32, level: Level) {
        let image = device.image();
        let counter = device.blocks().get(peb as usize).and_then(|block| block.erase_counter);
        let header = counter.map(|counter| EcHeader {
            erase_counter: (u64::from(counter) + 1).min(ERASE_COUNTER_MAX),
            vid_header_offset: device.offsets().vid_header,
            data_offset: device.offsets().data,
            image_sequence: image.image_sequence,
        });
        let before = u32::try_from(image.start / u64::from(image.peb_size)).unwrap_or(u32::MAX);
        self.erase.push((before.saturating_add(peb), level, header));
    }

    /// Among the blocks that claim the LEB of `peb` with its sequence number, those that lost.
    fn erase_twins(&mut self, device: &ImageDevice, peb: u32) {
        let Some(known) = vid_header(device, peb) else { return };
        for (other, block) in (0..).zip(device.blocks()) {
            let is_twin = |vid: VidHeader| {
                (vid.volume, vid.lnum, vid.sequence) == (known.volume, known.lnum, known.sequence)
            };
            if block.content == Content::Stale && vid_header(device, other).is_some_and(is_twin) {
                self.erase(device, other, Level::DangerDefault);
            }
        }
    }

    /// Erases what must be erased before UBI is attached for writing.
    pub(super) fn prepare(
        &self,
        flash: &mut dyn FlashMut,
        level: Level,
    ) -> Result<(), flash::FlashError> {
        for (peb, _, header) in self.erase.iter().filter(|(_, needed, _)| *needed <= level) {
            flash.erase(*peb)?;
            if let Some(header) = header {
                let unit = flash.geometry().sub_page_size as usize;
                let mut bytes = header.emit().to_vec();
                bytes.resize(EC_HEADER_SIZE.next_multiple_of(unit.max(1)), 0);
                flash.program(flash.geometry().block_start(*peb), &bytes)?;
            }
        }
        Ok(())
    }
}

fn vid_header(device: &ImageDevice, peb: u32) -> Option<VidHeader> {
    let image = device.image();
    let block = image.start + u64::from(peb) * u64::from(image.peb_size);
    let mut bytes = [0; VID_HEADER_SIZE];
    let at = block + u64::from(device.offsets().vid_header);
    let read = device.flash().read(at, &mut bytes);
    read.ok().and_then(|_| VidHeader::parse(&bytes).ok())
}

/// Completes what attaching left to be done: erases and moves.
pub(super) fn settle<F: FlashMut>(device: &mut UbiDevice<F>) -> Result<(), UbiError> {
    // Twice for each block is more than there can be.
    let limit = device.account().blocks.saturating_mul(2);
    device.work(limit).map(drop)
}

//! Attaching for writing: judges the scan as Linux does, and repairs.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use flysch_api::count::counted;
use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::{self, Flash, FlashMut, Kind};
use flysch_wire::ubi::{
    Compatibility, EC_HEADER_SIZE, INTERNAL_VOLUME_START, LAYOUT_VOLUME, VID_HEADER_SIZE,
    VolumeFlags, records_max,
};

use super::entries::{Entry, UNMAPPED, Volumes};
use super::fastmap::Fastmaps;
use super::io::{Io, Shape};
use super::lebs::Lebs;
use super::pebs::{Pebs, SEQUENCE_WATERMARK};
use super::volumes::table_bytes;
use super::wear::{State, Wear};
use super::{Account, DeviceOptions, ReadOnly, Statistics, UbiDevice, UbiError};
use crate::scan::{Evidence, Purpose};
use crate::{AttachOptions, Block, Content, FastmapUse, Offsets, Ubi, UbiImage};

/// Blocks that UBI reserves for itself: the volume table twice, an atomic change, a move.
pub(super) const INTERNAL_BLOCKS: u32 = 2 + 1 + 1;
/// If the blocks that are not understood exceed 5 % plus this number, the flash does not belong to
/// UBI, or headers were lost in bulk.
const CORRUPT_MIN: u32 = 8;

impl<F: FlashMut> UbiDevice<F> {
    /// Attaches the UBI device that covers `flash`, and repairs what power cuts left behind: the
    /// volume table's second copy, unfinished copies, blocks without a volume. A volume with the
    /// autoresize flag grows to all the free space.
    ///
    /// To keep the flash if this fails, pass `&mut flash`.
    ///
    /// # Errors
    /// [`UbiError::Attach`] if it is not UBI ([`format`](Self::format) makes it so),
    /// [`UbiError::Refused`] if it must not be written, [`UbiError::Shape`], [`UbiError::NoSpace`]
    /// if volumes have more blocks than exist, [`UbiError::ReadOnly`] if the repair failed.
    pub fn attach(flash: F, options: &DeviceOptions) -> Result<Self, UbiError> {
        let image = whole(flash.geometry(), options)?;
        let use_map = if options.fastmap { FastmapUse::Use } else { FastmapUse::Ignore };
        let how = AttachOptions { fastmap: use_map };
        let (ubi, evidence) = Ubi::attach_for(flash, image, &how, Purpose::Write)?;
        refuse(&ubi, &evidence, options)?;
        let shape = shape(ubi.flash().geometry(), options, ubi.image(), ubi.offsets())?;
        let mut wear = Wear::new(image.pebs);
        let mut fastmap = evidence.fastmap.clone().unwrap_or_default();
        // In their order, before others are queued.
        let queue = core::mem::take(&mut fastmap.queue);
        queue.iter().for_each(|&peb| wear.give_up(peb, false));
        let leftover = sort_blocks(&mut wear, ubi.blocks(), &evidence, options);
        queue.iter().chain(&fastmap.unseen).for_each(|&peb| wear.unseen.set(peb));
        let mut volumes = Volumes::new(entries(&ubi, &evidence, shape.leb_size())?);
        volumes.map_blocks(&mut wear);
        let attached_by_fastmap = ubi.attached_by_fastmap();
        let findings = ubi.findings().to_vec();
        let pebs = Pebs {
            wear,
            options: *options,
            account: Account::default(),
            sequence: ubi.sequence_max(),
            maps: Fastmaps::found(&evidence, leftover),
            read_only: None,
            statistics: Statistics::default(),
            io: Io { flash: ubi.into_flash(), shape },
        };
        let mut device = Self { lebs: Lebs { pebs, volumes }, findings, attached_by_fastmap };
        device.take_stock()?;
        let pebs = &mut device.lebs.pebs;
        let alien = evidence.aliens.iter().find(|alien| alien.1 == Compatibility::ReadOnly);
        if let Some(&(block, _)) = alien {
            pebs.read_only = Some(ReadOnly::Alien { block }.into());
            return Ok(device);
        }
        pebs.adopt_fastmap(&fastmap);
        device.lebs.look_at_updates();
        device.lebs.pebs.distrust();
        device.lebs.execute(&evidence)?;
        device.mend_table()?;
        if options.autoresize {
            device.autoresize()?;
        }
        Ok(device)
    }

    /// Allots the blocks.
    fn take_stock(&mut self) -> Result<(), UbiError> {
        let records = self.lebs.volumes.table_records();
        let reserved = records.values().map(|record| record.reserved_pebs).sum();
        let pebs = &mut self.lebs.pebs;
        let wanted = pebs.options.fastmap;
        pebs.take_stock(reserved)?;
        if wanted && !pebs.options.fastmap {
            self.findings.push(Finding {
                severity: Severity::Note,
                structure: "fastmap",
                problem: "no blocks are left for it; none will be written".into(),
                place: Place::default(),
                inode: None,
                path: None,
            });
        }
        Ok(())
    }
}

/// The image that covers a flash.
pub(super) fn whole(
    geometry: &flash::FlashGeometry,
    options: &DeviceOptions,
) -> Result<UbiImage, UbiError> {
    let write_size = options.write_size.unwrap_or(geometry.write_size);
    if geometry.kind == Kind::MlcNand {
        return Err(UbiError::Shape(
            "MLC NAND loses pages written earlier when power is cut; use it in SLC mode \
             (flysch_mtd::LowerPages, or slc-mode of the partition in Linux)",
        ));
    }
    if !write_size.is_power_of_two()
        || !geometry.sub_page_size.is_power_of_two()
        || geometry.sub_page_size > write_size
        || !geometry.erase_size.is_multiple_of(write_size)
        || write_size < geometry.write_size
    {
        return Err(UbiError::Shape(
            "UBI needs a write size that is a power of two, divides the erase block and is not \
             below the flash's own",
        ));
    }
    if !(2..=65536).contains(&options.wear_threshold) || options.bad_per_1024 > 768 {
        return Err(UbiError::Shape(
            "the wear-levelling threshold must be 2 to 65536, the bad-block limit 0 to 768 of 1024",
        ));
    }
    let pebs = u32::try_from(geometry.size / u64::from(geometry.erase_size)).unwrap_or(u32::MAX);
    if pebs < INTERNAL_BLOCKS {
        return Err(UbiError::Shape("UBI needs at least 4 erase blocks"));
    }
    Ok(UbiImage { start: 0, peb_size: geometry.erase_size, pebs, image_sequence: 0 })
}

/// Whether headers and data can be programmed at their offsets.
pub(super) fn shape(
    geometry: &flash::FlashGeometry,
    options: &DeviceOptions,
    image: UbiImage,
    offsets: Offsets,
) -> Result<Shape, UbiError> {
    let write_size = options.write_size.unwrap_or(geometry.write_size);
    let header_unit = match options.write_size {
        Some(size) if size > geometry.write_size => {
            let natural = 1 << offsets.vid_header.trailing_zeros();
            size.min(natural).max(geometry.sub_page_size)
        }
        _ => geometry.sub_page_size,
    };
    let vid_start = offsets.vid_header - offsets.vid_header % header_unit;
    let vid_end = (offsets.vid_header + VID_HEADER_SIZE as u32).next_multiple_of(header_unit);
    if vid_start < (EC_HEADER_SIZE as u32).next_multiple_of(header_unit) {
        return Err(UbiError::Shape(
            "both headers lie in one unit of the flash, which can be programmed only once: this \
             device can only be read",
        ));
    }
    if !offsets.data.is_multiple_of(write_size) || vid_end > offsets.data {
        return Err(UbiError::Shape(
            "the data does not begin at a unit of the flash: the image was made for another flash",
        ));
    }
    let shape = Shape { image, offsets, write_size, header_unit };
    if records_max(shape.leb_size()) == 0 {
        return Err(UbiError::Shape("erase blocks are too small for the volume table"));
    }
    Ok(shape)
}

/// Number of blocks of a chip that are expected to go bad, rounded up.
pub(super) fn bad_limit(blocks: u32, per_1024: u32) -> u32 {
    (u64::from(blocks) * u64::from(per_1024)).div_ceil(1024) as u32
}

/// What Linux does not attach is not written here either.
fn refuse<F: Flash>(
    ubi: &Ubi<F>,
    evidence: &Evidence,
    options: &DeviceOptions,
) -> Result<(), UbiError> {
    if let Some((peb, error)) = evidence.unreadable {
        let why = format!("erase block {peb} cannot be read: {error}");
        return Err(UbiError::Refused(why));
    }
    if let Some((one, other)) = evidence.equal {
        return Err(UbiError::Refused(format!(
            "erase blocks {one} and {other} hold the same LEB with the same sequence number; \
             extract what is readable and format the flash"
        )));
    }
    if ubi.sequence_max() >= SEQUENCE_WATERMARK {
        return Err(UbiError::Refused(format!(
            "a block has sequence number {:#x}, which leaves none for newer ones; extract what is \
             readable and format the flash",
            ubi.sequence_max()
        )));
    }
    if let Some(peb) = evidence.mismatch {
        return Err(UbiError::Refused(format!(
            "the header of erase block {peb} contradicts the volume table; extract what is \
             readable and format the flash"
        )));
    }
    if let Some(doubt) = evidence.table_doubt {
        return Err(UbiError::Refused(format!(
            "{doubt}; extract what is readable and format the flash"
        )));
    }
    let count = |wanted: fn(&Content) -> bool| {
        ubi.blocks().iter().filter(|block| wanted(&block.content)).count() as u32
    };
    let foreign = count(|content| *content == Content::Foreign);
    if foreign > 0 {
        return Err(UbiError::Refused(format!(
            "{} to another image: the flash was not erased before it was written; format it and \
             write it again",
            counted(foreign, "erase block belongs", "erase blocks belong")
        )));
    }
    let corrupt = count(|content| matches!(content, Content::Corrupt(_)));
    let limit = (ubi.blocks().len() as u32 / 20).max(CORRUPT_MIN);
    if corrupt >= limit && !options.erase_corrupt {
        return Err(UbiError::Refused(format!(
            "{corrupt} erase blocks have damaged headers over data: extract what is readable, or \
             have them erased"
        )));
    }
    let used = count(|content| matches!(content, Content::Used { .. } | Content::Corrupt(_)));
    if evidence.records.is_empty() && used > 0 {
        return Err(UbiError::Refused(
            "both copies of the volume table are lost: extract what is readable and format the \
             flash"
                .into(),
        ));
    }
    Ok(())
}

/// Puts each block where it belongs; returns the blocks of the fastmap.
pub(super) fn sort_blocks(
    wear: &mut Wear,
    blocks: &[Block],
    evidence: &Evidence,
    options: &DeviceOptions,
) -> Vec<u32> {
    let known = blocks.iter().filter_map(|block| block.erase_counter);
    let (sum, count) =
        known.fold((0_u64, 0_u64), |(sum, count), ec| (sum + u64::from(ec), count + 1));
    let mean = sum.checked_div(count).unwrap_or(0) as u32;
    let aliens: BTreeSet<u32> = evidence.aliens.iter().map(|alien| alien.0).collect();
    let mut fastmap = Vec::new();
    for (peb, block) in (0..).zip(blocks) {
        wear.pebs[peb as usize].erase_counter = block.erase_counter.unwrap_or(mean);
        if wear.state(peb) == State::Waiting {
            continue;
        }
        match block.content {
            Content::Bad => wear.set_aside(peb, State::Bad),
            Content::Free if block.erase_counter.is_some() && !block.scrub => wear.add_free(peb),
            Content::Used { volume, lnum } => {
                wear.settle(peb, volume, lnum);
                if block.scrub || block.erase_counter.is_none() {
                    wear.add_scrub(peb);
                }
            }
            Content::Stale if aliens.contains(&peb) => wear.set_aside(peb, State::Kept),
            Content::Corrupt(_) if !options.erase_corrupt => wear.set_aside(peb, State::Kept),
            Content::Fastmap => {
                wear.set_aside(peb, State::Fastmap);
                fastmap.push(peb);
            }
            Content::Free
            | Content::Erased
            | Content::Stale
            | Content::Corrupt(_)
            | Content::Foreign => wear.give_up(peb, false),
        }
    }
    fastmap
}

/// The volumes of the table, with empty maps.
fn entries<F: Flash>(
    ubi: &Ubi<F>,
    evidence: &Evidence,
    leb_size: u32,
) -> Result<alloc::collections::BTreeMap<u32, Entry>, UbiError> {
    let blocks = ubi.blocks().len() as u64;
    let records = (0..).zip(&evidence.records);
    let records: Vec<_> = records.filter_map(|(id, record)| Some((id, (*record)?))).collect();
    let reserved: u64 = records.iter().map(|(_, record)| u64::from(record.reserved_pebs)).sum();
    if reserved > blocks {
        let clamp = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        return Err(UbiError::NoSpace { wanted: clamp(reserved), available: clamp(blocks) });
    }
    let mut volumes = alloc::collections::BTreeMap::new();
    for (id, record) in records {
        debug_assert!(id < INTERNAL_VOLUME_START);
        if record.alignment > leb_size || record.data_pad != leb_size % record.alignment {
            return Err(UbiError::Refused(format!(
                "volume {id} has alignment {} and padding {}, which do not fit LEBs of {leb_size} \
                 bytes",
                record.alignment, record.data_pad
            )));
        }
        let info = ubi.volumes().iter().find(|volume| volume.id == id);
        let entry = Entry {
            record: Some(record),
            kind: record.kind,
            data_pad: record.data_pad,
            compatibility: Compatibility::None,
            used_bytes: info.and_then(|info| info.used_bytes).unwrap_or(0),
            map: alloc::vec![UNMAPPED; record.reserved_pebs as usize],
        };
        volumes.insert(id, entry);
    }
    volumes.insert(LAYOUT_VOLUME, Entry::layout());
    Ok(volumes)
}

impl<F: FlashMut> UbiDevice<F> {
    /// Writes the copies of the table that are lost or differ from the valid one.
    fn mend_table(&mut self) -> Result<(), UbiError> {
        let records = self.lebs.volumes.table_records();
        let table = table_bytes(&records, self.leb_size(), self.write_size());
        let mut found = alloc::vec![0; table.len()];
        for lnum in 0..2 {
            let read = self.lebs.read_leb(LAYOUT_VOLUME, lnum, 0, &mut found);
            let mapped = self.lebs.peb_of(LAYOUT_VOLUME, lnum).is_some();
            let size = records_max(self.leb_size()) as usize * flysch_wire::ubi::RECORD_SIZE;
            if !mapped || read.is_err() || found[..size] != table[..size] {
                self.lebs.change_leb(LAYOUT_VOLUME, lnum, &table)?;
            }
        }
        Ok(())
    }

    /// Gives all available blocks to the volume that asks for it.
    fn autoresize(&mut self) -> Result<(), UbiError> {
        let mut records = self.lebs.volumes.table_records();
        let flagged = |flags: VolumeFlags| flags.contains(VolumeFlags::AUTORESIZE);
        let Some((&id, record)) = records.iter_mut().find(|(_, r)| flagged(r.flags)) else {
            return Ok(());
        };
        record.flags = VolumeFlags(record.flags.0 & !VolumeFlags::AUTORESIZE.0);
        // Blocks from before an earlier shrinking must be gone. A block that goes bad now is
        // replaced by an available one, so these are counted afterwards.
        self.lebs.pebs.begin()?;
        self.lebs.pebs.drain()?;
        let available = self.lebs.pebs.account.available;
        record.reserved_pebs += available;
        let lebs = record.reserved_pebs;
        self.lebs.write_reserving(available, &records)?;
        self.lebs.volumes.set_records(&records);
        if let Some(entry) = self.lebs.volumes.get_mut(id) {
            entry.map.resize(lebs as usize, UNMAPPED);
        }
        Ok(())
    }
}

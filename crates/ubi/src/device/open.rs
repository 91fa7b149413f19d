//! Attaching for writing: the scan judged as Linux judges it, and mended.

use alloc::format;
use alloc::vec::Vec;

use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::{self, Flash, FlashMut, Kind};
use flysch_wire::ubi::fastmap::START_MAX;
use flysch_wire::ubi::{
    Compatibility, EC_HEADER_SIZE, INTERNAL_VOLUME_START, LAYOUT_VOLUME, VID_HEADER_SIZE,
    VolumeFlags, records_max,
};

use super::fastmap::Fastmaps;
use super::{Account, Device, DeviceOptions, Entry, Error, Io, ReadOnly, Shape, State, Wear};
use crate::attach::{Evidence, Purpose};
use crate::{Block, Content, FastmapUse, Image, Offsets, Options, Ubi};

/// Blocks that UBI keeps for itself: the volume table twice, an atomic change, a move.
pub(super) const INTERNAL_BLOCKS: u32 = 2 + 1 + 1;
/// More blocks that hold something not understood than 5 % and this mean that the flash is not
/// UBI's, or that the headers are lost in bulk.
const CORRUPT_MIN: u32 = 8;

impl<F: FlashMut> Device<F> {
    /// Attaches the UBI device that covers `flash`, and mends what power cuts left behind: the
    /// volume table's second copy, unfinished copies, blocks of no volume. A volume flagged so
    /// grows to all the free space.
    ///
    /// To have the flash back when this fails, pass `&mut flash`.
    ///
    /// # Errors
    /// [`Error::Attach`] if it is not UBI ([`format`](Self::format) makes it), [`Error::Refused`]
    /// if it may not be written, [`Error::Shape`], [`Error::NoSpace`] when volumes have more blocks
    /// than there are, [`Error::ReadOnly`] if mending failed.
    pub fn attach(flash: F, options: &DeviceOptions) -> Result<Self, Error> {
        let image = whole(flash.geometry(), options)?;
        let use_map = if options.fastmap { FastmapUse::Use } else { FastmapUse::Ignore };
        let how = Options { fastmap: use_map };
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
        let mut device = Self {
            wear,
            options: *options,
            volumes: entries(&ubi, &evidence, shape.leb_size())?,
            account: Account::default(),
            findings: ubi.findings().to_vec(),
            sequence: ubi.sequence_max(),
            maps: Fastmaps::found(&evidence, leftover),
            attached_by_fastmap: ubi.attached_by_fastmap(),
            read_only: None,
            statistics: super::Statistics::default(),
            io: Io { flash: ubi.into_flash(), shape },
        };
        device.map_blocks();
        device.take_stock()?;
        let alien = evidence.aliens.iter().find(|alien| alien.1 == Compatibility::ReadOnly);
        if let Some(&(block, _)) = alien {
            device.read_only = Some(ReadOnly::Alien { block });
            return Ok(device);
        }
        device.adopt_fastmap(&fastmap);
        device.look_at_updates();
        device.distrust();
        device.execute(&evidence)?;
        device.mend_table()?;
        if options.autoresize {
            device.autoresize()?;
        }
        Ok(device)
    }

    /// LEBs of a volume that was being updated were given up, whatever a fastmap says; nobody will
    /// ask for them before the next update.
    fn look_at_updates(&mut self) {
        let updated = self
            .volumes
            .iter()
            .filter(|(_, entry)| entry.record.is_some_and(|record| record.update_marker));
        for (&id, entry) in updated {
            for lnum in 0..entry.map.len() as u32 {
                let _held = self.lookup(id, lnum);
            }
        }
    }

    /// Blocks that would have been taken next may have been programmed when the power went,
    /// although they look erased: they are erased before they are taken.
    fn distrust(&mut self) {
        if self.wear.pools.is_some() {
            let fastmap = self.fastmap_blocks() as usize;
            let next = self.wear.pools.as_mut().map_or_else(Vec::new, |p| p.take_next(fastmap));
            next.into_iter().for_each(|peb| self.wear.give_up(peb, false));
        } else {
            let range = self.options.wear_threshold.saturating_mul(2);
            let anchors = if self.options.fastmap { START_MAX } else { 0 };
            for peb in self.wear.next_free(range, anchors).into_iter().flatten() {
                if self.wear.state(peb) == State::Free {
                    self.wear.give_up(peb, false);
                }
            }
        }
    }

    /// Enters the used blocks into their volumes' maps.
    fn map_blocks(&mut self) {
        for peb in 0..self.io.shape.image.pebs {
            let State::Used { volume, lnum } = self.wear.state(peb) else { continue };
            let entry = self.volumes.get_mut(&volume);
            match entry.and_then(|entry| entry.map.get_mut(lnum as usize)) {
                Some(slot) => *slot = peb,
                None => self.wear.give_up(peb, false),
            }
        }
    }

    /// Shares out the blocks.
    fn take_stock(&mut self) -> Result<(), Error> {
        let count =
            |wear: &Wear, state| wear.pebs.iter().filter(|peb| peb.state == state).count() as u32;
        let (bad, kept) = (count(&self.wear, State::Bad), count(&self.wear, State::Kept));
        let blocks = self.io.shape.image.pebs;
        let records = self.table_records();
        let volumes: u32 = records.values().map(|record| record.reserved_pebs).sum();
        let good = blocks - bad - kept;
        let reserved = volumes + INTERNAL_BLOCKS;
        let Some(mut available) = good.checked_sub(reserved) else {
            return Err(Error::NoSpace { wanted: reserved, available: good });
        };
        let mut reserved = reserved;
        if self.options.fastmap {
            // The one on the flash and the next one.
            let blocks = 2 * self.fastmap_blocks();
            match available.checked_sub(blocks) {
                Some(left) if self.fastmap_blocks() as usize <= super::fastmap::BLOCKS => {
                    available = left;
                    reserved += blocks;
                }
                _ => self.give_up_fastmap(),
            }
        }
        let level = match self.io.bad_allowed() {
            true => bad_limit(blocks, self.options.bad_per_1024).saturating_sub(bad),
            false => 0,
        };
        let bad_reserved = level.min(available);
        available -= bad_reserved;
        self.account = Account { blocks, bad, kept, reserved, bad_reserved, available };
        Ok(())
    }

    /// Blocks that the bad-block reserve lacks.
    pub(super) fn bad_reserve_missing(&self) -> u32 {
        if !self.io.bad_allowed() {
            return 0;
        }
        let limit = bad_limit(self.account.blocks, self.options.bad_per_1024);
        limit.saturating_sub(self.account.bad).saturating_sub(self.account.bad_reserved)
    }

    fn give_up_fastmap(&mut self) {
        self.options.fastmap = false;
        self.findings.push(Finding {
            severity: Severity::Note,
            structure: "fastmap",
            problem: "no blocks are left for it; none will be written".into(),
            place: Place::default(),
            inode: None,
            path: None,
        });
    }
}

/// The image that covers a flash.
pub(super) fn whole(geometry: &flash::Geometry, options: &DeviceOptions) -> Result<Image, Error> {
    let write_size = options.write_size.unwrap_or(geometry.write_size);
    if geometry.kind == Kind::MlcNand {
        return Err(Error::Shape(
            "MLC NAND loses pages written before when power is cut; use it in SLC mode \
             (flysch_mtd::LowerPages, or slc-mode of the partition in Linux)",
        ));
    }
    if !write_size.is_power_of_two()
        || !geometry.sub_page_size.is_power_of_two()
        || geometry.sub_page_size > write_size
        || !geometry.erase_size.is_multiple_of(write_size)
        || write_size < geometry.write_size
    {
        return Err(Error::Shape(
            "UBI needs a write size that is a power of two, divides the erase block and is not \
             below the flash's own",
        ));
    }
    if !(2..=65536).contains(&options.wear_threshold) || options.bad_per_1024 > 768 {
        return Err(Error::Shape(
            "the wear-levelling threshold is 2 to 65536, the bad-block limit 0 to 768 of 1024",
        ));
    }
    let pebs = u32::try_from(geometry.size / u64::from(geometry.erase_size)).unwrap_or(u32::MAX);
    if pebs < INTERNAL_BLOCKS {
        return Err(Error::Shape("UBI needs at least 4 erase blocks"));
    }
    Ok(Image { start: 0, peb_size: geometry.erase_size, pebs, image_sequence: 0 })
}

/// Whether headers and data can be programmed where they lie.
pub(super) fn shape(
    geometry: &flash::Geometry,
    options: &DeviceOptions,
    image: Image,
    offsets: Offsets,
) -> Result<Shape, Error> {
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
        return Err(Error::Shape(
            "both headers lie in one unit of the flash, which is programmed once: this device can \
             only be read",
        ));
    }
    if !offsets.data.is_multiple_of(write_size) || vid_end > offsets.data {
        return Err(Error::Shape(
            "the data does not begin at a unit of the flash: the image was made for another one",
        ));
    }
    let shape = Shape { image, offsets, write_size, header_unit };
    if records_max(shape.leb_size()) == 0 {
        return Err(Error::Shape("erase blocks are too small for the volume table"));
    }
    Ok(shape)
}

/// Blocks of a chip that are expected to go bad, rounded up.
fn bad_limit(blocks: u32, per_1024: u32) -> u32 {
    (u64::from(blocks) * u64::from(per_1024)).div_ceil(1024) as u32
}

/// What Linux does not attach is not written either.
fn refuse<F: Flash>(
    ubi: &Ubi<F>,
    evidence: &Evidence,
    options: &DeviceOptions,
) -> Result<(), Error> {
    if let Some(peb) = evidence.unreadable {
        return Err(Error::Refused(format!("the headers of erase block {peb} can not be read")));
    }
    if let Some((one, other)) = evidence.equal {
        return Err(Error::Refused(format!(
            "erase blocks {one} and {other} hold the same LEB with the same sequence number; \
             extract what is readable and format the flash"
        )));
    }
    let count = |wanted: fn(&Content) -> bool| {
        ubi.blocks().iter().filter(|block| wanted(&block.content)).count() as u32
    };
    let foreign = count(|content| *content == Content::Foreign);
    if foreign > 0 {
        return Err(Error::Refused(format!(
            "{foreign} erase blocks belong to another image: the flash was not erased before it \
             was written; format it and write it again"
        )));
    }
    let corrupt = count(|content| matches!(content, Content::Corrupt(_)));
    let limit = (ubi.blocks().len() as u32 / 20).max(CORRUPT_MIN);
    if corrupt >= limit && !options.erase_corrupt {
        return Err(Error::Refused(format!(
            "{corrupt} erase blocks have damaged headers over data: extract what is readable, or \
             have them erased"
        )));
    }
    let used = count(|content| matches!(content, Content::Used { .. } | Content::Corrupt(_)));
    if evidence.records.is_empty() && used > 0 {
        return Err(Error::Refused(
            "both copies of the volume table are lost: extract what is readable and format the \
             flash"
                .into(),
        ));
    }
    Ok(())
}

/// Puts each block where it belongs; returns the fastmap's.
fn sort_blocks(
    wear: &mut Wear,
    blocks: &[Block],
    evidence: &Evidence,
    options: &DeviceOptions,
) -> Vec<u32> {
    let known = blocks.iter().filter_map(|block| block.erase_counter);
    let (sum, count) =
        known.fold((0_u64, 0_u64), |(sum, count), ec| (sum + u64::from(ec), count + 1));
    let mean = sum.checked_div(count).unwrap_or(0) as u32;
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
            Content::Stale if evidence.aliens.iter().any(|alien| alien.0 == peb) => {
                wear.set_aside(peb, State::Kept);
            }
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

/// The volumes of the table, their maps empty.
fn entries<F: Flash>(
    ubi: &Ubi<F>,
    evidence: &Evidence,
    leb_size: u32,
) -> Result<alloc::collections::BTreeMap<u32, Entry>, Error> {
    let blocks = ubi.blocks().len() as u64;
    let records = (0..).zip(&evidence.records);
    let records: Vec<_> = records.filter_map(|(id, record)| Some((id, (*record)?))).collect();
    let reserved: u64 = records.iter().map(|(_, record)| u64::from(record.reserved_pebs)).sum();
    if reserved > blocks {
        let clamp = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        return Err(Error::NoSpace { wanted: clamp(reserved), available: clamp(blocks) });
    }
    let mut volumes = alloc::collections::BTreeMap::new();
    for (id, record) in records {
        debug_assert!(id < INTERNAL_VOLUME_START);
        if record.alignment > leb_size || record.data_pad != leb_size % record.alignment {
            return Err(Error::Refused(format!(
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
            map: alloc::vec![super::UNMAPPED; record.reserved_pebs as usize],
        };
        volumes.insert(id, entry);
    }
    volumes.insert(LAYOUT_VOLUME, Entry::layout());
    Ok(volumes)
}

impl<F: FlashMut> Device<F> {
    /// Writes the copies of the table that are lost or differ from what counts.
    fn mend_table(&mut self) -> Result<(), Error> {
        let table = self.table_bytes(&self.table_records());
        let mut found = alloc::vec![0; table.len()];
        for lnum in 0..2 {
            let read = self.read_leb(LAYOUT_VOLUME, lnum, 0, &mut found);
            let mapped = self.peb_of(LAYOUT_VOLUME, lnum).is_some();
            let size = records_max(self.leb_size()) as usize * flysch_wire::ubi::RECORD_SIZE;
            if !mapped || read.is_err() || found[..size] != table[..size] {
                self.change_leb(LAYOUT_VOLUME, lnum, &table)?;
            }
        }
        Ok(())
    }

    /// Gives the volume that asks for it all that is available.
    fn autoresize(&mut self) -> Result<(), Error> {
        let mut records = self.table_records();
        let flagged = |flags: VolumeFlags| flags.contains(VolumeFlags::AUTORESIZE);
        let Some((&id, record)) = records.iter_mut().find(|(_, r)| flagged(r.flags)) else {
            return Ok(());
        };
        record.flags = VolumeFlags(record.flags.0 & !VolumeFlags::AUTORESIZE.0);
        record.reserved_pebs += self.account.available;
        let lebs = record.reserved_pebs;
        self.write_table(&records)?;
        self.set_records(&records);
        if let Some(entry) = self.volumes.get_mut(&id) {
            entry.map.resize(lebs as usize, super::UNMAPPED);
        }
        self.account.reserved += self.account.available;
        self.account.available = 0;
        Ok(())
    }
}

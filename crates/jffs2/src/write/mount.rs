//! Mounting: builds tables and blocks from the results of a scan.

use alloc::vec::Vec;

use flysch_api::flash::{FlashGeometry, FlashMut, Kind as FlashKind};

use super::build::{Build, Built, Suspects};
use super::collector::Collector;
use super::content::Files;
use super::copies::Ranks;
use super::inodes::Inodes;
use super::log::Log;
use super::medium::Medium;
use super::nodes::Nodes;
use super::tables::Name;
use super::{Jffs2Mut, WriteOptions};
use crate::found::{Address, Wrong};
use crate::scan::{Summaries, scan};
use crate::{Jffs2MountError, detect_order};

/// Minimum number of erase blocks (Linux refuses fewer).
const BLOCKS_MIN: u32 = 5;
/// Number of attempts to mount if programming fails in all remaining blocks.
const TRIES: u32 = 3;

fn check_geometry(geometry: &FlashGeometry) -> Result<(), Jffs2MountError> {
    let unit = geometry.write_size;
    let refuse = |why| Err(Jffs2MountError::NotWritable(why));
    if geometry.size > Address::LIMIT {
        return Err(Jffs2MountError::TooLarge);
    }
    if geometry.erase_size == 0 {
        return Err(Jffs2MountError::NoBlocks);
    }
    if geometry.kind == FlashKind::MlcNand {
        return refuse(
            "MLC NAND loses pages written earlier when power is cut; use it in SLC mode \
             (flysch_mtd::LowerPages, or slc-mode of the partition in Linux)",
        );
    }
    if geometry.blocks() < BLOCKS_MIN {
        return refuse("it has fewer than 5 erase blocks");
    }
    if !geometry.size.is_multiple_of(u64::from(geometry.erase_size)) {
        return refuse("it ends within an erase block; make it as long as the flash");
    }
    if geometry.erase_size < 4096 || geometry.erase_size > 256 << 20 {
        return refuse("its erase blocks are smaller than 4 KiB or larger than 256 MiB");
    }
    let is_even = unit == 1 || (unit.is_multiple_of(4) && geometry.erase_size.is_multiple_of(unit));
    if !is_even || u64::from(unit) * 2 > u64::from(geometry.erase_size) {
        return refuse("its pages do not divide its erase blocks");
    }
    Ok(())
}

impl<F: FlashMut> Jffs2Mut<F> {
    /// Mounts `flash` for writing. Erased flash becomes an empty file system.
    ///
    /// The content of the page that was written last is copied, with all valid nodes of its block,
    /// and the block is erased: power may have been lost while it was programmed, and no read can
    /// tell. If a directory was being renamed when power was cut, one of its two names is removed.
    ///
    /// To keep the flash if this fails, pass `&mut flash`.
    ///
    /// # Errors
    /// If there is no JFFS2, or the flash cannot be read or must not be written.
    pub fn mount(flash: F, options: &WriteOptions) -> Result<Self, Jffs2MountError> {
        check_geometry(flash.geometry())?;
        let mut fs = Self::attempt(flash, options)?;
        for _ in 1..TRIES {
            let Log { is_dead, activity: before, .. } = *fs.inodes().log();
            if !is_dead || before.program_failures == 0 {
                break;
            }
            // What it copied counts no more than what a mount copied that was cut short: the
            // blocks in which programming failed are free again.
            fs = Self::attempt(fs.into_flash(), options)?;
            let activity = &mut fs.inodes_mut().log_mut().activity;
            activity.given_up += before.given_up;
            activity.program_failures += before.program_failures;
        }
        Ok(fs)
    }

    /// Mounts once, until everything is done or nothing can be written any more.
    fn attempt(flash: F, options: &WriteOptions) -> Result<Self, Jffs2MountError> {
        let order = match options.order {
            Some(order) => order,
            None => detect_order(&flash)?,
        };
        let mut medium = Medium::new(flash, order);
        let mut found = scan(&medium, order, Summaries::Use, &[])?;
        let doubts = super::shaky::find(&mut medium, &found.blocks);
        let is_worn = |number: &u32| {
            found.blocks[*number as usize].has_summary && !doubts.last.contains(number)
        };
        let worn = doubts.shaky.iter().copied().filter(is_worn).collect();
        if !doubts.shaky.is_empty() {
            // What their last look showed counts, and nothing else.
            found = scan(&medium, order, Summaries::Use, &medium.frozen_pages())?;
        }
        // Older data would show without what is there, and would be written on.
        medium.check_given()?;
        if found.is_read_only {
            let why = "it has nodes of unknown types that forbid it";
            return Err(Jffs2MountError::NotWritable(why));
        }
        if found.problems.iter().any(|problem| problem.wrong == Wrong::CrossesBlock) {
            return Err(Jffs2MountError::NotWritable("its erase blocks have another size"));
        }
        let ranks = Ranks::new(&medium, &doubts, &found);
        let torn = doubts.shaky.iter().chain(&doubts.last).copied().collect();
        let scanned = Build::new(&medium, order, found, &ranks, Suspects { torn, worn });
        let Built { tables, blocks, may_miss_nodes, doubles, cut_off, torn_xattrs, wrong } =
            scanned.trim().name().own().place();
        // Nothing was written yet. From now on what cannot be read stays where it is.
        medium.check_given()?;
        let mut log = Log::new(medium, order, blocks, options.summary);
        // One number is left out (see `crate::stamp`).
        log.stamps.next = doubts.highest.saturating_add(2);
        log.stamps.oldest = doubts.oldest;
        let mut left = doubts.shaky;
        left.extend(log.at_stake(&doubts.last, &wrong));
        left.sort_unstable();
        left.dedup();
        let left = log.make_obsolete(&cut_off, left);
        left.iter().for_each(|number| log.blocks.block(*number).is_left = true);
        let inodes = Inodes::new(Nodes { log, tables }, may_miss_nodes);
        let mut collector = Collector::new(inodes, options.compressors.clone());
        collector.resume();
        collector.leave(&left, &ranks);
        collector.renew_xattrs(&torn_xattrs);
        let mut fs = Self { files: Files::new(collector) };
        fs.drop_doubles(doubles);
        Ok(fs)
    }

    /// Directories with two names, because power was cut between writing the new one and removing
    /// the old one, lose the older.
    fn drop_doubles(&mut self, doubles: Vec<(u32, Name)>) {
        for (pino, name) in doubles {
            // Without room both stay: the next mount tries again.
            let _ = self.write_removal_of_double(pino, name);
        }
    }
}

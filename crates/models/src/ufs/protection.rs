//! Secure write protection (JESD220 12.4.3): areas of logical units that only the holder of the key
//! of RPMB region 0 can open for writing.

use alloc::vec::Vec;

use flysch_wire::ufs::rpmb::{
    DATA_LENGTH, RpmbStatus, SecureWriteProtectEntry, SecureWriteProtectView, WriteProtectType,
};

use super::config::UNITS_MAX;
use super::lu::Unit;

/// bNumSecureWPArea: number of areas of all units together.
pub(super) const AREAS_MAX: usize = 32;

/// The areas of every unit.
#[derive(Debug, Default)]
pub(super) struct Protection {
    areas: [Vec<SecureWriteProtectEntry>; UNITS_MAX],
    /// Whether any area is closed, for the fast path.
    any: bool,
}

impl Protection {
    /// Whether any of `blocks` blocks from `lba` on is closed.
    #[inline]
    pub(super) fn covers(&self, lun: u8, lba: u64, blocks: u64) -> bool {
        self.any && self.covers_any(lun, lba, blocks)
    }

    fn covers_any(&self, lun: u8, lba: u64, blocks: u64) -> bool {
        let closed = |area: &SecureWriteProtectEntry| {
            // A length of 0 means the whole unit.
            let end = match area.blocks {
                0 => u64::MAX,
                blocks => area.lba.saturating_add(blocks.into()),
            };
            area.protected && blocks > 0 && lba < end && area.lba < lba.saturating_add(blocks)
        };
        self.areas.get(usize::from(lun)).is_some_and(|areas| areas.iter().any(closed))
    }

    fn unit(units: &[Option<Unit>], lun: u8) -> Result<&Unit, RpmbStatus> {
        let unit = units.get(usize::from(lun)).and_then(Option::as_ref);
        let unit = unit.ok_or(RpmbStatus::InvalidSecureWriteProtectParameter)?;
        match unit.is_write_protected_otherwise() {
            true => Err(RpmbStatus::SecureWriteProtectNotApplicable),
            false => Ok(unit),
        }
    }

    /// Sets the areas of one unit from a configuration block.
    pub(super) fn write(
        &mut self,
        units: &[Option<Unit>],
        block: &[u8; DATA_LENGTH],
    ) -> Result<(), RpmbStatus> {
        const WRONG: RpmbStatus = RpmbStatus::InvalidSecureWriteProtectParameter;
        let view = SecureWriteProtectView::new(block).map_err(|_| WRONG)?;
        let unit = Self::unit(units, view.lun())?;
        let new: Vec<_> = view.entries().collect();
        let right = |area: &SecureWriteProtectEntry| {
            unit.has(area.lba, area.blocks)
                && !matches!(area.protect_type, WriteProtectType::Unknown(_))
        };
        let others = self.areas.iter().map(Vec::len).sum::<usize>()
            - self.areas[usize::from(view.lun())].len();
        if !new.iter().all(right) || others + new.len() > AREAS_MAX {
            return Err(WRONG);
        }
        self.areas[usize::from(view.lun())] = new;
        self.look();
        Ok(())
    }

    /// The configuration block of one unit.
    pub(super) fn read(
        &self,
        units: &[Option<Unit>],
        lun: u8,
        block: &mut [u8; DATA_LENGTH],
    ) -> Result<(), RpmbStatus> {
        Self::unit(units, lun)?;
        let written = SecureWriteProtectView::emit(lun, &self.areas[usize::from(lun)], block);
        debug_assert!(written, "four areas were checked when they came");
        Ok(())
    }

    /// Power comes back: some areas open, some close.
    pub(super) fn power_on(&mut self) {
        for area in self.areas.iter_mut().flatten() {
            match area.protect_type {
                WriteProtectType::Power => area.protected = false,
                WriteProtectType::NonVolatileAfterPower => area.protected = true,
                WriteProtectType::NonVolatile | WriteProtectType::Unknown(_) => {}
            }
        }
        self.look();
    }

    fn look(&mut self) {
        self.any = self.areas.iter().flatten().any(|area| area.protected);
    }
}

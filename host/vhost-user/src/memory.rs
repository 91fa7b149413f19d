//! The guest's memory, by its own addresses and by the client's.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use flysch_api::machine::{DmaRegion, GuestMemory};

use crate::guard::Mapping;
use crate::wire::{Malformed, Region};

/// Maximum number of regions at a time, as in libvhost-user.
pub(crate) const REGIONS_MAX: usize = 509;
/// Alignment of regions, for the guest and in their files: 64-bit words, because libblkio's are not
/// page aligned.
const ALIGN: u64 = 8;
/// A file system whose files may be served by any user's process (`FUSE_SUPER_MAGIC` of Linux):
/// accessing them would block for as long as that process likes.
const FUSE: i64 = 0x6573_5546;

/// The current mappings.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    regions: Vec<(Region, Arc<Mapping>)>,
    /// Shared with the requests in flight, which see the mappings of their start.
    guest: Rc<GuestMemory>,
}

impl Memory {
    /// The meaning of the guest's addresses.
    pub(crate) fn guest(&self) -> &Rc<GuestMemory> {
        &self.guest
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.regions.clear();
        self.guest = Rc::default();
    }

    /// Maps a region.
    pub(crate) fn add(&mut self, region: Region, file: &OwnedFd) -> Result<(), Malformed> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(Malformed("more regions of memory than are allowed"));
        }
        let mapping = Arc::new(map(&region, file)?);
        let owner = Arc::clone(&mapping);
        // SAFETY: `map` mapped `offset + size` bytes from here on; the owner keeps them, the start
        // is aligned to 8 bytes, and no reference into them is ever made.
        let part = unsafe {
            let base = mapping.base().add(region.offset as usize);
            DmaRegion::from_owner(base, region.size as usize, region.guest, owner)
        };
        let guest = Rc::make_mut(&mut self.guest);
        // No cause: overlapping is all that the map refuses.
        guest.map(part, true).map_err(|_| Malformed("regions of memory that overlap"))?;
        self.regions.push((region, mapping));
        Ok(())
    }

    /// Unmaps the region with the same addresses as `like`, whatever its file.
    pub(crate) fn remove(&mut self, like: &Region) -> Result<(), Malformed> {
        let same = |(region, _): &(Region, Arc<Mapping>)| {
            (region.guest, region.size, region.user) == (like.guest, like.size, like.user)
        };
        let place = self.regions.iter().position(same);
        let place = place.ok_or(Malformed("a region of memory to forget that does not exist"))?;
        let (region, _) = self.regions.swap_remove(place);
        Rc::make_mut(&mut self.guest).unmap(region.guest, region.size);
        Ok(())
    }

    /// The guest's address for the client's address `user`.
    pub(crate) fn guest_address(&self, user: u64) -> Option<u64> {
        self.regions.iter().find_map(|(region, _)| {
            let offset = user.checked_sub(region.user)?;
            (offset < region.size).then(|| region.guest + offset)
        })
    }

    /// Whether a file has shrunk.
    pub(crate) fn is_torn(&self) -> bool {
        self.regions.iter().any(|(_, mapping)| mapping.is_torn())
    }
}

/// Maps the file of a region, up to the region's end.
fn map(region: &Region, file: &OwnedFd) -> Result<Mapping, Malformed> {
    let starts = [region.guest, region.offset];
    if region.size == 0 || starts.iter().any(|start| !start.is_multiple_of(ALIGN)) {
        return Err(Malformed("a region of memory that is empty or not aligned"));
    }
    let ends = region.guest.checked_add(region.size).and(region.user.checked_add(region.size));
    let end = region.offset.checked_add(region.size).filter(|_| ends.is_some());
    let end = end.ok_or(Malformed("a region of memory beyond the last address"))?;
    map_file(file, end)
}

/// Maps the first `end` bytes of a client's file.
pub(crate) fn map_file(file: &OwnedFd, end: u64) -> Result<Mapping, Malformed> {
    let failed = |_| Malformed("memory that cannot be mapped");
    if rustix::fs::fstatfs(file).map_err(failed)?.f_type == FUSE {
        return Err(Malformed("memory on a file system that a user's process serves"));
    }
    let bytes = rustix::fs::fstat(file).map_err(failed)?.st_size;
    if u64::try_from(bytes).is_ok_and(|bytes| end > bytes) {
        return Err(Malformed("memory beyond the end of its file"));
    }
    let len = usize::try_from(end).map_err(|_| Malformed("more memory than is available"))?;
    Mapping::new(file.as_fd(), len).map_err(failed)
}

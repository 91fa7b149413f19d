//! The kernel's answers in structures followed by capabilities. The chain is treated as untrusted:
//! offsets must be inside the answer, without circles, and nothing may extend beyond the end.

/// A capability of a region: the parts of it that may be mapped.
const SPARSE_MMAP: u16 = 1;
/// Capabilities of an IOMMU: usable addresses; remaining mappings.
const IOVA_RANGES: u16 = 1;
const DMA_AVAILABLE: u16 = 3;

const REGION_MMAP: u32 = 1 << 2;
const REGION_CAPS: u32 = 1 << 3;
const IOMMU_PAGE_SIZES: u32 = 1;
const IOMMU_CAPS: u32 = 1 << 1;

/// Maximum number of ranges or areas that are read.
const ENTRIES_MAX: usize = 512;

/// A region of a device: its bytes in the device's file, and its mappable parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) size: u64,
    /// Its offset in the device's file.
    pub(crate) offset: u64,
    /// Parts that may be mapped: offset in the region and length.
    pub(crate) areas: Vec<(u64, u64)>,
}

impl Region {
    /// Reads `struct vfio_region_info`; `None` if it is invalid.
    pub(crate) fn parse(answer: &[u8]) -> Option<Self> {
        let flags = word32(answer, 4)?;
        let (size, offset) = (word64(answer, 16)?, word64(answer, 24)?);
        offset.checked_add(size)?;
        let mut region = Self { size, offset, ..Self::default() };
        let mut is_sparse = false;
        if flags & REGION_CAPS != 0 {
            for (id, at) in chain(answer, word32(answer, 12)?)? {
                if id == SPARSE_MMAP {
                    is_sparse = true;
                    let is_inside = |area: &(u64, u64)| {
                        area.0.checked_add(area.1).is_some_and(|end| end <= size)
                    };
                    region.areas = pairs(answer, at)?.into_iter().filter(is_inside).collect();
                }
            }
        }
        if flags & REGION_MMAP == 0 {
            region.areas.clear();
        } else if !is_sparse && size > 0 {
            region.areas = vec![(0, size)];
        }
        Some(region)
    }
}

/// The capabilities of an IOMMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Iommu {
    /// Bit n: pages of 2^n bytes.
    pub(crate) page_sizes: u64,
    /// Addresses usable by devices, first and last; empty if the kernel does not report them.
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Remaining mappings, if the kernel reports them.
    pub(crate) maps_left: Option<u32>,
}

impl Iommu {
    /// Reads `struct vfio_iommu_type1_info`; `None` if it is invalid.
    pub(crate) fn parse(answer: &[u8]) -> Option<Self> {
        let flags = word32(answer, 4)?;
        let mut iommu = Self::default();
        if flags & IOMMU_PAGE_SIZES != 0 {
            iommu.page_sizes = word64(answer, 8)?;
        }
        if flags & IOMMU_CAPS != 0 {
            for (id, at) in chain(answer, word32(answer, 16)?)? {
                match id {
                    IOVA_RANGES => iommu.ranges = pairs(answer, at)?,
                    DMA_AVAILABLE => iommu.maps_left = word32(answer, at + 8),
                    _ => {}
                }
            }
        }
        Some(iommu)
    }
}

/// Capabilities (`struct vfio_info_cap_header`): ID and offset. `None` if the chain leaves the
/// answer or is circular.
fn chain(answer: &[u8], first: u32) -> Option<Vec<(u16, usize)>> {
    let mut all = Vec::new();
    let mut next = first as usize;
    while next != 0 {
        let id = word32(answer, next)? as u16;
        let is_new = all.iter().all(|&(_, at)| at != next);
        if !is_new {
            return None;
        }
        all.push((id, next));
        next = word32(answer, next + 4)? as usize;
    }
    Some(all)
}

/// The pairs of 64-bit words after a capability's count.
fn pairs(answer: &[u8], at: usize) -> Option<Vec<(u64, u64)>> {
    let count = word32(answer, at + 8)? as usize;
    if count > ENTRIES_MAX {
        return None;
    }
    let pair = |n| Some((word64(answer, at + 16 + 16 * n)?, word64(answer, at + 24 + 16 * n)?));
    (0..count).map(pair).collect()
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;

//! Opens Linux's own MTD devices: the kernel knows their geometry and corrects their bits, so only
//! the contents have to be detected.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use flysch_api::flash::{self, Flash, FlashGeometry};
use flysch_linux::{Access, MtdDevice};
use flysch_mtd::Partition;
use flysch_mtd::detect::{self, Basis, Content, Hints, Region};
use flysch_wire::jffs2::ByteOrder;

use crate::open::{Image, ImageOpenOptions, OpenError, Part, SharedFlash};

impl Image {
    /// Opens the MTD character device at `path` for reading. Sizes in `options` are not needed.
    pub(crate) fn open_device(path: &Path, options: &ImageOpenOptions) -> Result<Self, OpenError> {
        let device = Arc::new(MtdDevice::open(path, Access::Read)?);
        let whole = *device.geometry();
        let first = u32::try_from(options.offset / u64::from(whole.erase_size));
        let first = first.ok().filter(|_| options.offset < whole.size.max(1));
        let first = first.ok_or(OpenError::Offset(whole.size))?;
        let flash = Arc::new(Partition::new(device.clone(), first, whole.blocks() - first)?);
        let (erase_size, page_size) = (Some(whole.erase_size), Some(whole.write_size));
        let hints = Hints { erase_size, page_size, ..Hints::default() };
        let mut parts = vec![];
        let mut regions = detect::regions(&*flash, &hints)?;
        // The kernel makes one of a whole device, whatever is in its last blocks; those of JFFS2 it
        // writes in any order.
        match &mut regions[..] {
            [Region { content: Content::Jffs2(_), range, .. }] => {
                *range = 0..flash.geometry().size;
            }
            [.., Region { content: Content::Ubi { .. }, range, .. }] => {
                range.end = flash.geometry().size;
            }
            _ => {}
        }
        for region in regions {
            parts.push(part(flash.clone(), region)?);
        }
        if parts.is_empty() {
            if !is_erased(&*flash)? {
                return Err(OpenError::Unknown);
            }
            // An erased flash is an empty JFFS2.
            let content = Content::Jffs2(if cfg!(target_endian = "big") {
                ByteOrder::Big
            } else {
                ByteOrder::Little
            });
            let geometry = *flash.geometry();
            let region = known(content, 0..geometry.size, geometry);
            parts.push(part(flash.clone(), region)?);
        }
        let size = whole.size;
        let path = path.to_path_buf();
        Ok(Self {
            path,
            size,
            offset: options.offset,
            page_format: None,
            parts,
            device: Some(device),
            has_oob_apart: false,
            keys: options.keys.clone(),
            lock: None,
        })
    }
}

/// One content, on the blocks that contain it.
fn part(flash: Arc<Partition<Arc<MtdDevice>>>, region: Region) -> Result<Part, flash::FlashError> {
    let whole: FlashGeometry = *flash.geometry();
    let first = whole.block_of(region.range.start);
    let blocks = whole.block_of(region.range.end.saturating_sub(1)) + 1 - first;
    let flash: SharedFlash = Arc::new(Partition::new(flash, first, blocks)?);
    let start = whole.block_start(first);
    let range = start..start + flash.geometry().size;
    let region = known(region.content, range, *flash.geometry());
    Ok(Part::open(
        region,
        flash,
        &ImageOpenOptions { erase_size: Some(whole.erase_size), ..ImageOpenOptions::default() },
    ))
}

/// A content whose location the kernel knows.
fn known(content: Content, range: Range<u64>, geometry: FlashGeometry) -> Region {
    Region { content, range, geometry, basis: Basis::Named, conflict: None }
}

fn is_erased<F: Flash>(flash: &F) -> Result<bool, flash::FlashError> {
    let geometry = flash.geometry();
    let mut block = vec![0; geometry.erase_size as usize];
    for number in 0..geometry.blocks() {
        if flash.is_bad(number)? {
            continue;
        }
        let bytes = &mut block[..geometry.block_len(number) as usize];
        match flash.read(geometry.block_start(number), bytes) {
            Ok(_) | Err(flash::FlashError::Uncorrectable { .. }) => {}
            Err(error) => return Err(error),
        }
        if bytes.iter().any(|&byte| byte != 0xFF) {
            return Ok(false);
        }
    }
    Ok(true)
}

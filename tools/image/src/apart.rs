//! Out-of-band bytes in a separate file: all pages in one file, their out-of-band bytes in another.

use std::path::Path;
use std::sync::Arc;

use flysch_api::flash::FlashError;
use flysch_mtd::detect::{self, Hints};
use flysch_mtd::{FileStorage, PageFormat, Storage};

use crate::lock::Lock;
use crate::open::{Image, ImageOpenOptions, OpenError, SharedStorage};
use crate::spool;
use crate::storage::Window;

/// Page sizes to try if none is given: two sizes may be consistent with one file of out-of-band
/// bytes. Common ones come first; the right one is recognised by its codes.
const PAGE_SIZES: [u32; 6] = [2048, 4096, 512, 8192, 1024, 256];
/// Maximum out-of-band bytes per page.
const OOB_PER_PAGE_MAX: u64 = 4096;

/// Two storages as a dump with out-of-band bytes behind each page.
#[derive(Clone, Debug)]
struct Interleaved {
    main: Arc<FileStorage>,
    oob: Arc<FileStorage>,
    page_size: u64,
    oob_size: u64,
}

impl Interleaved {
    /// With pages of `page_size`; `None` if the files do not fit that.
    fn new(main: Arc<FileStorage>, oob: Arc<FileStorage>, page_size: u32) -> Option<Self> {
        let page_size = u64::from(page_size);
        let pages = main.size().checked_div(page_size)?;
        let oob_size = oob.size().checked_div(pages)?;
        let is_whole = main.size() == pages * page_size && oob.size() == pages * oob_size;
        let fits = is_whole && (1..=OOB_PER_PAGE_MAX.min(page_size)).contains(&oob_size);
        fits.then_some(Self { main, oob, page_size, oob_size })
    }

    fn stride(&self) -> u64 {
        self.page_size + self.oob_size
    }
}

impl Storage for Interleaved {
    fn size(&self) -> u64 {
        self.main.size() / self.page_size * self.stride()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FlashError> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size()) {
            return Err(FlashError::OutOfRange);
        }
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (page, inside) = (at / self.stride(), at % self.stride());
            let (file, from, left) = match inside.checked_sub(self.page_size) {
                None => (&self.main, page * self.page_size + inside, self.page_size - inside),
                Some(inside) => (&self.oob, page * self.oob_size + inside, self.oob_size - inside),
            };
            let len = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (now, later) = rest.split_at_mut(len);
            file.read_at(from, now)?;
            at += len as u64;
            rest = later;
        }
        Ok(())
    }
}

impl Image {
    /// Opens the image at `path` whose out-of-band bytes are in the file `oob`, page after page.
    ///
    /// # Errors
    /// Like [`open`](Self::open); [`OpenError::Apart`] if the files do not belong together.
    pub fn open_with_oob(
        path: &Path,
        oob: &Path,
        options: &ImageOpenOptions,
    ) -> Result<Self, OpenError> {
        let (main, oob) = (Arc::new(spool::open(path)?), Arc::new(spool::open(oob)?));
        let (size, lock) = (main.size(), Lock::shared(main.file())?);
        let sizes = options.page_size.map_or(PAGE_SIZES.to_vec(), |size| vec![size]);
        let mut chosen: Option<(Interleaved, PageFormat)> = None;
        for page_size in sizes {
            let Some(view) = Interleaved::new(main.clone(), oob.clone(), page_size) else {
                continue;
            };
            // Both sizes are known here; what is left is the codes.
            let oob_size = u32::try_from(view.oob_size).ok();
            let hints = Hints { page_size: Some(page_size), oob_size, ..options.hints() };
            if options.oob_size.is_some_and(|named| oob_size != Some(named)) {
                continue;
            }
            let Some(format) = detect::page_format(&view, &hints)? else { continue };
            let has_codes = format.ecc.step() != 0;
            if has_codes || chosen.is_none() {
                chosen = Some((view, format));
            }
            if has_codes {
                break;
            }
        }
        let (view, format) = chosen.ok_or(OpenError::Apart { main: size, oob: oob.size() })?;
        if options.offset >= size {
            return Err(OpenError::Offset(size));
        }
        let start = options.offset / view.page_size * view.stride();
        let len = view.size() - start;
        let storage: SharedStorage = Arc::new(Window { storage: view, start, len });
        let image = Self::of_storage(path, size, storage, Some(format), options)?;
        Ok(Self { has_oob_apart: true, lock: Some(lock), ..image })
    }
}

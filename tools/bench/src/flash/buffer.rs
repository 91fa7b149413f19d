//! Caches above a flash and a mounted file system.

use std::cell::RefCell;
use std::collections::BTreeMap;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};
use flysch_api::vfs::{self, FileSystem, Inode};

/// Bytes of a page of files.
const FILE_PAGE: usize = 4096;

/// File contents in memory: like the kernel's page cache for a mount.
#[derive(Debug, Default)]
pub(super) struct PageCache {
    pages: BTreeMap<(Inode, u64), Box<[u8]>>,
}

impl PageCache {
    /// Reads whole pages; all of them from the file system at once, unless all are cached.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn read(
        &mut self,
        fs: &dyn FileSystem,
        inode: Inode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<(), vfs::FsError> {
        let first = offset / FILE_PAGE as u64;
        let is_here = buffer
            .chunks_mut(FILE_PAGE)
            .zip(first..)
            .map(|(part, page)| self.pages.get(&(inode, page)).map(|kept| (part, kept)))
            .all(|found| found.map(|(part, kept)| part.copy_from_slice(kept)).is_some());
        if is_here {
            return Ok(());
        }
        fs.read(inode, offset, buffer)?;
        for (part, page) in buffer.chunks(FILE_PAGE).zip(first..) {
            self.pages.insert((inode, page), part.into());
        }
        Ok(())
    }
}

/// A flash that remembers the whole page read last, like Linux's `nand_base` (`pagecache`):
/// successive partial reads are usually adjacent. Parts of other pages are read directly.
#[derive(Debug)]
pub struct PageBuffer<F> {
    flash: F,
    page: RefCell<Page>,
}

#[derive(Debug)]
struct Page {
    number: Option<u64>,
    corrected: Corrected,
    bytes: Vec<u8>,
}

impl<F: Flash> PageBuffer<F> {
    /// A page of memory over `flash`.
    pub fn new(flash: F) -> Self {
        let bytes = vec![0; flash.geometry().write_size as usize];
        let page = Page { number: None, corrected: Corrected::NONE, bytes };
        Self { flash, page: RefCell::new(page) }
    }

    /// The flash.
    pub fn flash(&self) -> &F {
        &self.flash
    }

    /// The flash.
    pub fn into_flash(self) -> F {
        self.flash
    }

    fn forget(&mut self) {
        self.page.get_mut().number = None;
    }

    /// Reads a part of one page.
    fn part(&self, number: u64, inside: usize, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let mut page = self.page.borrow_mut();
        let Page { number: kept, corrected, bytes } = &mut *page;
        if *kept != Some(number) && buffer.len() < bytes.len() {
            return self.flash.read(number * bytes.len() as u64 + inside as u64, buffer);
        }
        if *kept != Some(number) {
            *kept = None;
            let read = self.flash.read(number * bytes.len() as u64, bytes);
            match read {
                Ok(read) => (*kept, *corrected) = (Some(number), read),
                Err(error) => {
                    buffer.copy_from_slice(&bytes[inside..inside + buffer.len()]);
                    return Err(error);
                }
            }
        }
        buffer.copy_from_slice(&bytes[inside..inside + buffer.len()]);
        Ok(*corrected)
    }
}

impl<F: Flash> Flash for PageBuffer<F> {
    fn geometry(&self) -> &FlashGeometry {
        self.flash.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry().check(offset, buffer.len())?;
        let size = u64::from(self.geometry().write_size);
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let inside = (at % size) as usize;
            let len = rest.len().min(size as usize - inside);
            let (now, later) = rest.split_at_mut(len);
            match self.part(at / size, inside, now) {
                Ok(more) => corrected += more,
                Err(error @ FlashError::Uncorrectable { .. }) => failed = failed.and(Err(error)),
                Err(error) => return Err(error),
            }
            at += len as u64;
            rest = later;
        }
        failed.map(|()| corrected)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.flash.read_oob(offset, mode, buffer)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.flash.is_bad(block)
    }
}

impl<F: FlashMut> FlashMut for PageBuffer<F> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.forget();
        self.flash.program(offset, data)
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.forget();
        self.flash.program_oob(offset, mode, data)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.forget();
        self.flash.erase(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.forget();
        self.flash.mark_bad(block)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.flash.sync()
    }
}

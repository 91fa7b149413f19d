//! A `.ubifs` file: consecutive LEBs, without UBI.

use flysch_api::flash::{self, Corrected, Flash, FlashMut};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_wire::ubifs::{BranchFormat, LEB_SIZE_MAX, LEB_SIZE_MIN, Node, SUPERBLOCK_NODE_SIZE};

/// Most erased LEBs that an image may lack at its end: 32 GiB of flash with 128 KiB blocks. An
/// image that claims to lack more is damaged, and those LEBs are not visited.
const LEBS_MORE_MAX: u32 = 1 << 18;

/// A file system image without UBI around it, as `mkfs.ubifs` writes it.
///
/// The image may end early: LEBs beyond its end were never written and read as erased.
///
/// It can be changed if the erase blocks of the flash below have LEB size and there is one for each
/// LEB. A plain file has no spare block to write a changed LEB to, so [`VolumeMut::change`] is not
/// atomic if the process is killed during it: work on a copy, and rename it when done.
#[derive(Clone, Debug)]
pub struct FlatImage<F> {
    flash: F,
    leb_size: u32,
    lebs: u32,
}

impl<F: Flash> FlatImage<F> {
    /// Recognises an image by the superblock at its start.
    ///
    /// To keep the flash if there is none, pass `&flash`, or `&mut flash` to change it.
    pub fn open(flash: F) -> Option<Self> {
        let mut bytes = [0; SUPERBLOCK_NODE_SIZE];
        match flash.read(0, &mut bytes) {
            // Bytes that error correction could not repair are left to the node's CRC.
            Ok(_) | Err(flash::FlashError::Uncorrectable { .. }) => {}
            Err(_) => return None,
        }
        let Ok((_, Node::Superblock(superblock))) = Node::parse(&bytes, BranchFormat::default())
        else {
            return None;
        };
        let sane = (LEB_SIZE_MIN..=LEB_SIZE_MAX).contains(&superblock.leb_size);
        let stored = flash.geometry().size.div_ceil(u64::from(superblock.leb_size.max(1)));
        let most = u32::try_from(stored).unwrap_or(u32::MAX).saturating_add(LEBS_MORE_MAX);
        let lebs = superblock.leb_count.min(most);
        sane.then(|| Self::new(flash, superblock.leb_size, lebs))
    }

    /// An image whose LEBs have `leb_size` bytes, which must not be zero.
    pub fn new(flash: F, leb_size: u32, lebs: u32) -> Self {
        let stored = flash.geometry().size.div_ceil(u64::from(leb_size));
        Self { lebs: lebs.max(u32::try_from(stored).unwrap_or(u32::MAX)), flash, leb_size }
    }

    /// Where LEB `lnum` is stored from `offset` on, and how many bytes the flash has from there.
    fn stored(&self, lnum: u32, offset: u32) -> (u64, u64) {
        let at = u64::from(lnum) * u64::from(self.leb_size) + u64::from(offset);
        (at, self.flash.geometry().size.saturating_sub(at))
    }

    fn is_inside(&self, lnum: u32, offset: u32, len: usize) -> bool {
        lnum < self.lebs && u64::from(offset) + len as u64 <= u64::from(self.leb_size)
    }
}

impl<F: Flash> Volume for FlatImage<F> {
    fn geometry(&self) -> VolumeGeometry {
        VolumeGeometry { leb_size: self.leb_size, lebs: self.lebs, write_size: None }
    }

    fn state(&self, lnum: u32) -> LebState {
        if self.stored(lnum, 0).1 > 0 { LebState::Mapped(None) } else { LebState::Unmapped }
    }

    fn read(
        &self,
        lnum: u32,
        offset: u32,
        buffer: &mut [u8],
    ) -> Result<Corrected, flash::FlashError> {
        if !self.is_inside(lnum, offset, buffer.len()) {
            return Err(flash::FlashError::OutOfRange);
        }
        let (at, stored) = self.stored(lnum, offset);
        let there = stored.min(buffer.len() as u64) as usize;
        let (there, missing) = buffer.split_at_mut(there);
        missing.fill(0xff);
        if there.is_empty() { Ok(Corrected::NONE) } else { self.flash.read(at, there) }
    }

    fn point(&self, lnum: u32, offset: u32, len: usize) -> Option<&[u8]> {
        if !self.is_inside(lnum, offset, len) {
            return None;
        }
        self.flash.point(self.stored(lnum, offset).0, len)
    }
}

impl<F: FlashMut> FlatImage<F> {
    /// The erase block that holds LEB `lnum`.
    fn block(&self, lnum: u32) -> Result<u32, flash::FlashError> {
        let geometry = self.flash.geometry();
        if geometry.erase_size != self.leb_size {
            return Err(flash::FlashError::Unsupported);
        }
        geometry.check_block(lnum).map(|()| lnum)
    }

    /// The flash that holds the image.
    pub fn into_flash(self) -> F {
        self.flash
    }
}

impl<F: FlashMut> VolumeMut for FlatImage<F> {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), flash::FlashError> {
        self.block(lnum)?;
        if !self.is_inside(lnum, offset, data.len()) {
            return Err(flash::FlashError::OutOfRange);
        }
        let (at, _) = self.stored(lnum, offset);
        self.flash.program(at, data)
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), flash::FlashError> {
        if !self.is_inside(lnum, 0, data.len()) {
            return Err(flash::FlashError::OutOfRange);
        }
        let block = self.block(lnum)?;
        self.flash.erase(block)?;
        self.write(lnum, 0, data)
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), flash::FlashError> {
        let block = self.block(lnum)?;
        self.flash.erase(block)
    }

    fn map(&mut self, lnum: u32) -> Result<(), flash::FlashError> {
        self.unmap(lnum)
    }

    fn sync(&mut self) -> Result<(), flash::FlashError> {
        self.flash.sync()
    }
}

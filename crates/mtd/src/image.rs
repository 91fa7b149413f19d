//! A flash whose bytes lie one after the other, without out-of-band bytes: most image files.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut};

use crate::{Storage, StorageMut};

/// Maximum number of bytes read, changed and written at once.
const CHUNK: usize = 1 << 16;

/// Flash over a storage that holds only the main bytes.
#[derive(Clone, Debug)]
pub struct FlashImage<S> {
    storage: S,
    geometry: FlashGeometry,
    is_strict: bool,
}

/// An image that is not as large as the chip it is to be the image of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSizeError {
    /// Size of the image, bytes.
    pub image: u64,
    /// Size of the chip, bytes.
    pub chip: u64,
}

impl fmt::Display for ImageSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the image has {} bytes, and its chip {}", self.image, self.chip)
    }
}

impl core::error::Error for ImageSizeError {}

impl<S: Storage> FlashImage<S> {
    /// A flash as large as `storage`, with the blocks and pages of `geometry`.
    ///
    /// The size in `geometry` is not looked at and may be 0: this is for files of which only the
    /// blocks are known. If the chip is known, [`of_chip`](Self::of_chip) notices a file that was
    /// cut off.
    pub fn new(storage: S, geometry: FlashGeometry) -> Self {
        let geometry = FlashGeometry { size: storage.size(), ..geometry };
        Self { storage, geometry, is_strict: false }
    }

    /// The flash of a chip with this `geometry`, of which `storage` has every byte.
    ///
    /// # Errors
    /// [`ImageSizeError`] if it has fewer or more.
    pub fn of_chip(storage: S, geometry: FlashGeometry) -> Result<Self, ImageSizeError> {
        if storage.size() != geometry.size {
            return Err(ImageSizeError { image: storage.size(), chip: geometry.size });
        }
        Ok(Self::new(storage, geometry))
    }

    /// Programming bytes that are not erased will fail with [`FlashError::ProgramFailed`].
    /// Otherwise it silently clears bits, as a chip does. The check finds mistakes of the layer
    /// above.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// The storage below.
    pub fn storage(&self) -> &S {
        &self.storage
    }

    /// Returns the storage below.
    pub fn into_storage(self) -> S {
        self.storage
    }
}

impl<S: Storage> Flash for FlashImage<S> {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.storage.read_at(offset, buffer).map(|()| Corrected::NONE)
    }

    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.storage.slice(offset, len)
    }
}

impl<S: StorageMut> FlashMut for FlashImage<S> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let unit = u64::from(self.geometry.sub_page_size);
        if !offset.is_multiple_of(unit) || !(data.len() as u64).is_multiple_of(unit) {
            return Err(FlashError::Misaligned);
        }
        let mut cells = vec![0; data.len().min(CHUNK)];
        for (index, data) in data.chunks(CHUNK).enumerate() {
            let at = offset + (index * CHUNK) as u64;
            let cells = &mut cells[..data.len()];
            self.storage.read_at(at, cells)?;
            if self.is_strict && cells.iter().any(|&cell| cell != 0xFF) {
                return Err(FlashError::ProgramFailed { offset: at });
            }
            cells.iter_mut().zip(data).for_each(|(cell, byte)| *cell &= byte);
            self.storage.write_at(at, cells)?;
        }
        Ok(())
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        let erased: Vec<u8> = vec![0xFF; self.geometry.block_len(block) as usize];
        self.storage.write_at(self.geometry.block_start(block), &erased)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.storage.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programming_clears_bits_and_erasing_sets_them() {
        let mut image = FlashImage::new(vec![0xFF; 200], FlashGeometry::nand(0, 128, 32, 16));
        image.program(16, &[0xF0; 16]).unwrap();
        image.program(16, &[0x3C; 16]).unwrap();
        assert_eq!(image.storage()[15..33], [&[0xFF][..], &[0x30; 16], &[0xFF]].concat());
        assert_eq!(image.program(8, &[0; 16]), Err(FlashError::Misaligned));
        assert_eq!(image.program(0, &[0; 8]), Err(FlashError::Misaligned));
        assert_eq!(image.program(192, &[0; 16]), Err(FlashError::OutOfRange));
        image.program(128, &[0; 64]).unwrap();
        image.erase(0).unwrap();
        assert_eq!(image.storage()[..129], [&[0xFF; 128][..], &[0]].concat());
        image.erase(1).unwrap();
        assert_eq!(image.erase(2), Err(FlashError::OutOfRange));
        assert_eq!(image.into_storage(), vec![0xFF; 200], "the short last block as well");
    }

    #[test]
    fn an_image_of_a_chip_has_all_of_it() {
        let chip = FlashGeometry::nor(256, 64);
        for len in [0, 64, 255, 257, 512] {
            let error = FlashImage::of_chip(vec![0xFF; len], chip).unwrap_err();
            assert_eq!(error, ImageSizeError { image: len as u64, chip: 256 });
        }
        assert_eq!(*FlashImage::of_chip(vec![0xFF; 256], chip).unwrap().geometry(), chip);
        assert_eq!(FlashImage::new(vec![0xFF; 128], chip).geometry().size, 128);
    }

    #[test]
    fn a_strict_image_refuses_what_is_not_erased() {
        let mut image = FlashImage::new(vec![0xFF; 64], FlashGeometry::nor(0, 64)).strict();
        image.program(3, &[0xFE]).unwrap();
        assert_eq!(image.program(3, &[0xFE]), Err(FlashError::ProgramFailed { offset: 3 }));
        image.program(4, &[1]).unwrap();
    }
}

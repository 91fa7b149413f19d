//! A flash that loses power.

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut};
use flysch_mtd::FlashImage;

/// A flash whose power fails during one operation, which is then half done.
pub(crate) struct Cutting<'f> {
    pub(crate) flash: &'f mut FlashImage<Vec<u8>>,
    /// Number of operations left.
    pub(crate) left: u64,
    /// Programming unit, bytes: of the cut operation the first half is done, rounded up to a unit.
    pub(crate) unit: usize,
}

impl Cutting<'_> {
    fn goes(&mut self) -> Result<bool, FlashError> {
        match self.left {
            0 => Err(FlashError::PowerLost),
            _ => {
                self.left -= 1;
                Ok(self.left == 0)
            }
        }
    }
}

impl Flash for Cutting<'_> {
    fn geometry(&self) -> &FlashGeometry {
        self.flash.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.flash.read(offset, buffer)
    }
}

impl FlashMut for Cutting<'_> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        if !self.goes()? {
            return self.flash.program(offset, data);
        }
        let half = (data.len() / 2).next_multiple_of(self.unit).min(data.len());
        self.flash.program(offset, &data[..half])?;
        Err(FlashError::PowerLost)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        if self.goes()? {
            return Err(FlashError::PowerLost);
        }
        self.flash.erase(block)
    }
}

//! Part of a flash as a flash, and several flashes as one.

use alloc::vec::Vec;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};

/// A run of erase blocks of another flash.
#[derive(Clone, Debug)]
pub struct Partition<F> {
    flash: F,
    first_block: u32,
    geometry: FlashGeometry,
}

impl<F: Flash> Partition<F> {
    /// The `blocks` erase blocks of `flash` from `first_block` on.
    ///
    /// # Errors
    /// [`FlashError::OutOfRange`] if some of them do not exist.
    pub fn new(flash: F, first_block: u32, blocks: u32) -> Result<Self, FlashError> {
        let whole = *flash.geometry();
        let end = first_block.checked_add(blocks).ok_or(FlashError::OutOfRange)?;
        if end > whole.blocks() {
            return Err(FlashError::OutOfRange);
        }
        let start = whole.block_start(first_block);
        let size = whole.block_start(end).min(whole.size) - start.min(whole.size);
        Ok(Self { flash, first_block, geometry: FlashGeometry { size, ..whole } })
    }

    fn start(&self) -> u64 {
        self.geometry.block_start(self.first_block)
    }

    /// Translates positions of the whole flash into positions of this part.
    fn translate(&self, error: FlashError) -> FlashError {
        let start = self.start();
        match error {
            FlashError::Uncorrectable { offset } => {
                FlashError::Uncorrectable { offset: offset - start }
            }
            FlashError::ProgramFailed { offset } => {
                FlashError::ProgramFailed { offset: offset - start }
            }
            FlashError::BadBlock { block } => {
                FlashError::BadBlock { block: block - self.first_block }
            }
            FlashError::EraseFailed { block } => {
                FlashError::EraseFailed { block: block - self.first_block }
            }
            other => other,
        }
    }
}

impl<F: Flash> Flash for Partition<F> {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        self.flash.read(self.start() + offset, buffer).map_err(|error| self.translate(error))
    }

    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.geometry.check(offset, len).ok()?;
        self.flash.point(self.start() + offset, len)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, 1)?;
        let start = self.start();
        self.flash.read_oob(start + offset, mode, buffer).map_err(|error| self.translate(error))
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.geometry.check_block(block)?;
        self.flash.is_bad(self.first_block + block)
    }
}

impl<F: FlashMut> FlashMut for Partition<F> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let start = self.start();
        self.flash.program(start + offset, data).map_err(|error| self.translate(error))
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, 1)?;
        let start = self.start();
        self.flash.program_oob(start + offset, mode, data).map_err(|error| self.translate(error))
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        self.flash.erase(self.first_block + block).map_err(|error| self.translate(error))
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        self.flash.mark_bad(self.first_block + block).map_err(|error| self.translate(error))
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.flash.sync()
    }
}

/// Flashes of equal geometry, one after the other (`mtdconcat`).
#[derive(Clone, Debug)]
pub struct Concat<F> {
    /// Each with the position of its first byte in the whole, ascending.
    parts: Vec<(u64, F)>,
    geometry: FlashGeometry,
}

impl<F: Flash> Concat<F> {
    /// Joins `flashes` into one. All but the last must consist of whole erase blocks.
    ///
    /// # Errors
    /// [`FlashError::Unsupported`] if there are none or their geometries differ,
    /// [`FlashError::Misaligned`] if one other than the last ends within an erase block.
    pub fn new(flashes: Vec<F>) -> Result<Self, FlashError> {
        let first = *flashes.first().ok_or(FlashError::Unsupported)?.geometry();
        let mut size = 0u64;
        let mut parts = Vec::with_capacity(flashes.len());
        for flash in flashes {
            let geometry = *flash.geometry();
            if (FlashGeometry { size: first.size, ..geometry }) != first {
                return Err(FlashError::Unsupported);
            }
            if !size.is_multiple_of(u64::from(first.erase_size)) {
                return Err(FlashError::Misaligned);
            }
            parts.push((size, flash));
            size = size.checked_add(geometry.size).ok_or(FlashError::OutOfRange)?;
        }
        Ok(Self { parts, geometry: FlashGeometry { size, ..first } })
    }

    fn index(&self, offset: u64) -> usize {
        self.parts.partition_point(|(start, _)| *start <= offset) - 1
    }

    /// The part that contains byte `offset`, and the position of that byte in the part.
    fn part(&self, offset: u64) -> (&F, u64) {
        let (start, flash) = &self.parts[self.index(offset)];
        (flash, offset - start)
    }

    /// As [`part`](Self::part), mutable.
    fn part_mut(&mut self, offset: u64) -> (&mut F, u64) {
        let index = self.index(offset);
        let (start, flash) = &mut self.parts[index];
        (flash, offset - *start)
    }

    /// Translates positions of the part that starts at `start` into positions of the whole.
    fn translate(&self, start: u64, error: FlashError) -> FlashError {
        let first = self.geometry.block_of(start);
        match error {
            FlashError::Uncorrectable { offset } => {
                FlashError::Uncorrectable { offset: start + offset }
            }
            FlashError::ProgramFailed { offset } => {
                FlashError::ProgramFailed { offset: start + offset }
            }
            FlashError::BadBlock { block } => FlashError::BadBlock { block: first + block },
            FlashError::EraseFailed { block } => FlashError::EraseFailed { block: first + block },
            other => other,
        }
    }

    /// Does `work` on the part that contains `block`, with the number of the block in that part.
    fn on_block(
        &mut self,
        block: u32,
        work: impl FnOnce(&mut F, u32) -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        let offset = self.geometry.block_start(block);
        let (flash, inside) = self.part_mut(offset);
        let number = flash.geometry().block_of(inside);
        work(flash, number).map_err(|error| self.translate(offset - inside, error))
    }
}

impl<F: Flash> Flash for Concat<F> {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        let mut corrected = Corrected::NONE;
        let mut failed = Ok(());
        let mut at = offset;
        let mut rest = buffer;
        while !rest.is_empty() {
            let (flash, inside) = self.part(at);
            let left = usize::try_from(flash.geometry().size - inside).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(left.min(rest.len()));
            match flash.read(inside, now) {
                Ok(more) => corrected += more,
                Err(FlashError::Uncorrectable { offset }) => {
                    failed =
                        failed.and(Err(FlashError::Uncorrectable { offset: at - inside + offset }));
                }
                Err(other) => return Err(other),
            }
            at += now.len() as u64;
            rest = later;
        }
        failed.map(|()| corrected)
    }

    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.geometry.check(offset, len).ok()?;
        let (flash, inside) = self.part(offset);
        flash.point(inside, len)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, 1)?;
        let (flash, inside) = self.part(offset);
        flash.read_oob(inside, mode, buffer)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.geometry.check_block(block)?;
        let (flash, inside) = self.part(self.geometry.block_start(block));
        flash.is_bad(flash.geometry().block_of(inside))
    }
}

impl<F: FlashMut> FlashMut for Concat<F> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (flash, inside) = self.part_mut(at);
            let left = usize::try_from(flash.geometry().size - inside).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(left.min(rest.len()));
            flash.program(inside, now).map_err(|error| self.translate(at - inside, error))?;
            at += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, 1)?;
        let (flash, inside) = self.part_mut(offset);
        flash
            .program_oob(inside, mode, data)
            .map_err(|error| self.translate(offset - inside, error))
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.on_block(block, F::erase)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.on_block(block, F::mark_bad)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.parts.iter_mut().try_for_each(|(_, flash)| flash.sync())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::FlashImage;

    fn image(fill: u8, size: usize) -> FlashImage<Vec<u8>> {
        FlashImage::new(vec![fill; size], FlashGeometry::nor(0, 64))
    }

    #[test]
    fn a_partition_ends_where_it_ends() {
        let mut bytes = vec![0; 256];
        bytes[64..128].fill(7);
        let flash = FlashImage::new(bytes, FlashGeometry::nor(0, 64));
        let part = Partition::new(&flash, 1, 1).unwrap();
        let mut buffer = [0; 64];
        assert!(part.read(0, &mut buffer).is_ok());
        assert_eq!(buffer, [7; 64]);
        assert_eq!(part.point(0, 64), Some(&[7; 64][..]));
        assert_eq!(part.read(1, &mut buffer), Err(FlashError::OutOfRange));
        assert_eq!(part.point(1, 64), None);
        assert_eq!(part.is_bad(1), Err(FlashError::OutOfRange));
        assert!(Partition::new(&flash, 3, 2).is_err());
        assert!(Partition::new(&flash, u32::MAX, 2).is_err());
    }

    #[test]
    fn a_partition_of_a_cut_off_flash_is_cut_off() {
        let flash = image(1, 100);
        assert_eq!(Partition::new(&flash, 1, 1).unwrap().geometry().size, 36);
    }

    #[test]
    fn a_read_goes_across_the_seam() {
        let concat = Concat::new(vec![image(1, 64), image(2, 128), image(3, 10)]).unwrap();
        assert_eq!((concat.geometry().size, concat.geometry().blocks()), (202, 4));
        let mut buffer = [0; 140];
        assert!(concat.read(60, &mut buffer).is_ok());
        assert_eq!((buffer[3], buffer[4], buffer[131], buffer[132]), (1, 2, 2, 3));
        assert_eq!(concat.point(60, 8), None, "not in one piece");
        assert_eq!(concat.point(64, 128), Some(&[2; 128][..]));
        assert_eq!(concat.is_bad(3), Ok(false));
        assert_eq!(concat.is_bad(4), Err(FlashError::OutOfRange));
    }

    #[test]
    fn a_part_is_written_where_it_lies() {
        let mut flash = image(0xFF, 256);
        let mut part = Partition::new(&mut flash, 1, 2).unwrap();
        part.program(60, &[1; 8]).unwrap();
        assert_eq!(part.program(124, &[1; 8]), Err(FlashError::OutOfRange));
        part.erase(0).unwrap();
        assert_eq!(part.erase(2), Err(FlashError::OutOfRange));
        assert_eq!(part.mark_bad(0), Err(FlashError::Unsupported));
        part.sync().unwrap();
        assert_eq!(flash.storage()[124..133], [255, 255, 255, 255, 1, 1, 1, 1, 255]);

        let strict = image(0, 128).strict();
        let mut part = Partition::new(strict, 1, 1).unwrap();
        assert_eq!(part.program(3, &[0]), Err(FlashError::ProgramFailed { offset: 3 }));
    }

    #[test]
    fn a_write_goes_across_the_seam() {
        let parts = vec![image(0xFF, 64), image(0xFF, 128).strict()];
        let mut concat = Concat::new(parts).unwrap();
        concat.program(60, &[1; 8]).unwrap();
        let mut buffer = [0; 10];
        assert!(concat.read(59, &mut buffer).is_ok());
        assert_eq!(buffer, [255, 1, 1, 1, 1, 1, 1, 1, 1, 255]);
        assert_eq!(concat.program(66, &[0; 4]), Err(FlashError::ProgramFailed { offset: 66 }));
        concat.erase(0).unwrap();
        assert!(concat.read(59, &mut buffer).is_ok());
        assert_eq!(buffer, [255, 255, 255, 255, 255, 1, 1, 1, 1, 255]);
        concat.erase(1).unwrap();
        assert_eq!(concat.erase(3), Err(FlashError::OutOfRange));
        concat.program(66, &[0; 4]).unwrap();
        concat.sync().unwrap();
    }

    #[test]
    fn flashes_that_do_not_fit_together_are_refused() {
        assert!(Concat::<FlashImage<Vec<u8>>>::new(vec![]).is_err());
        let other = FlashImage::new(vec![0; 64], FlashGeometry::nor(0, 32));
        assert_eq!(Concat::new(vec![image(1, 64), other]).unwrap_err(), FlashError::Unsupported);
        let cut = Concat::new(vec![image(1, 63), image(1, 64)]);
        assert_eq!(cut.unwrap_err(), FlashError::Misaligned);
    }
}

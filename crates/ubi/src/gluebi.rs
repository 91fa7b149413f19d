//! A volume as flash, for file systems that know erase blocks but not LEBs (Linux: gluebi).

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, Kind};
use flysch_api::volume::{Volume, VolumeMut};

/// A volume presented as flash: its erase blocks are the LEBs, and its write size is that of the
/// volume. There are no out-of-band bytes and no bad blocks: UBI deals with those.
///
/// ```
/// use flysch_api::flash::{Flash, FlashMut};
/// use flysch_ubi::{Gluebi, UbiDevice, UbiError};
///
/// /// The volume `name`, as `Jffs2Mut::mount` of the crate `flysch-jffs2` takes it.
/// fn volume_as_flash<F: FlashMut>(
///     device: UbiDevice<F>,
///     name: &[u8],
/// ) -> Result<impl FlashMut, UbiError> {
///     let id = device.find(name).ok_or(UbiError::Invalid("there is no such volume"))?;
///     let below = *device.flash().geometry();
///     Ok(Gluebi::new(device.into_volume(id)?, &below))
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Gluebi<V> {
    volume: V,
    geometry: FlashGeometry,
}

impl<V: Volume> Gluebi<V> {
    /// `volume` over a flash with geometry `below`, from which it takes the error correction.
    pub fn new(volume: V, below: &FlashGeometry) -> Self {
        let own = volume.geometry();
        let unit = own.write_size.unwrap_or(below.write_size);
        let geometry = FlashGeometry {
            kind: Kind::UbiVolume,
            size: u64::from(own.leb_size) * u64::from(own.lebs),
            erase_size: own.leb_size,
            write_size: unit,
            sub_page_size: unit,
            oob_size: 0,
            oob_available: 0,
            ..*below
        };
        Self { volume, geometry }
    }

    /// The volume below.
    pub fn volume(&self) -> &V {
        &self.volume
    }

    /// Returns the volume.
    pub fn into_volume(self) -> V {
        self.volume
    }

    /// The LEB that contains `offset`, and the offset in it.
    fn place(&self, offset: u64) -> (u32, u32) {
        let lnum = self.geometry.block_of(offset);
        (lnum, (offset - self.geometry.block_start(lnum)) as u32)
    }
}

impl<V: Volume> Flash for Gluebi<V> {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.geometry.check(offset, buffer.len())?;
        let (mut corrected, mut failed) = (Corrected::NONE, None);
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (lnum, inside) = self.place(at);
            let length = rest.len().min((self.geometry.erase_size - inside) as usize);
            let (part, behind) = rest.split_at_mut(length);
            match self.volume.read(lnum, inside, part) {
                Ok(found) => corrected += found,
                // The bytes are there all the same, and so are those behind them.
                Err(FlashError::Uncorrectable { .. }) => {
                    failed.get_or_insert(FlashError::Uncorrectable { offset: at });
                }
                Err(error) => return Err(error),
            }
            (at, rest) = (at + length as u64, behind);
        }
        failed.map_or(Ok(corrected), Err)
    }

    fn point(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.geometry.check(offset, len).ok()?;
        let (lnum, inside) = self.place(offset);
        let fits = len <= (self.geometry.erase_size - inside) as usize;
        if fits { self.volume.point(lnum, inside, len) } else { None }
    }
}

impl<V: VolumeMut> FlashMut for Gluebi<V> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.geometry.check(offset, data.len())?;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (lnum, inside) = self.place(at);
            let length = rest.len().min((self.geometry.erase_size - inside) as usize);
            let (part, behind) = rest.split_at(length);
            self.volume.write(lnum, inside, part)?;
            (at, rest) = (at + length as u64, behind);
        }
        Ok(())
    }

    /// Discards the LEB. Its content is gone when this returns: a power cut does not bring it back.
    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.geometry.check_block(block)?;
        self.volume.unmap(block)?;
        self.volume.sync()
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.volume.sync()
    }
}

//! Makes a flash an empty UBI device.

use alloc::vec::Vec;

use flysch_api::flash::{FlashError, FlashMut};
use flysch_wire::ubi::{EC_HEADER_SIZE, ERASE_COUNTER_MAX, EcHeader, VID_HEADER_SIZE};

use super::io::Io;
use super::{DeviceOptions, UbiDevice, UbiError, open};
use crate::Offsets;

/// The largest erase counter.
const COUNTER_MAX: u32 = ERASE_COUNTER_MAX as u32;

/// How a flash is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatOptions {
    /// Number that distinguishes this image's blocks from those of another; random, not 0.
    pub image_sequence: u32,
    /// Offset of the identifier header, bytes; `None` for the next unit that can be programmed
    /// separately.
    pub vid_header_offset: Option<u32>,
    /// Value for every erase counter, at most 0x7FFFFFFF; `None` keeps and increments those found,
    /// and uses their mean for the others.
    pub erase_counter: Option<u32>,
}

impl FormatOptions {
    /// Offsets derived from the flash's geometry, erase counters kept.
    pub fn new(image_sequence: u32) -> Self {
        Self { image_sequence, vid_header_offset: None, erase_counter: None }
    }
}

impl<F: FlashMut> UbiDevice<F> {
    /// Erases all of `flash` and makes it an empty UBI device (`ubiformat`). Blocks that cannot be
    /// erased are marked bad.
    ///
    /// To keep the flash if this fails, pass `&mut flash`.
    ///
    /// # Errors
    /// [`UbiError::Shape`], [`UbiError::Invalid`] with nothing done; [`UbiError::ReadOnly`] or
    /// [`UbiError::Flash`] partway.
    pub fn format(
        mut flash: F,
        format: &FormatOptions,
        options: &DeviceOptions,
    ) -> Result<Self, UbiError> {
        if format.erase_counter.is_some_and(|counter| counter > COUNTER_MAX) {
            return Err(UbiError::Invalid("the erase counter must not be above 0x7FFFFFFF"));
        }
        let mut image = open::whole(flash.geometry(), options)?;
        image.image_sequence = format.image_sequence;
        let offsets = offsets(&flash, format, options)?;
        let shape = open::shape(flash.geometry(), options, image, offsets)?;
        let mut io = Io { flash: &mut flash, shape };
        let counters: Vec<Option<u32>> = (0..image.pebs).map(|peb| io.erase_counter(peb)).collect();
        let known: Vec<u64> = counters.iter().flatten().map(|&ec| u64::from(ec)).collect();
        let mean = known.iter().sum::<u64>().checked_div(known.len() as u64).unwrap_or(0) as u32;
        for (peb, found) in (0..).zip(counters) {
            if io.flash.is_bad(peb)? {
                continue;
            }
            // A larger one would make the header invalid.
            let counted = found.unwrap_or(mean).saturating_add(1).min(COUNTER_MAX);
            let erase_counter = format.erase_counter.unwrap_or(counted);
            match io.erase_only(peb).and_then(|()| io.write_ec(peb, erase_counter)) {
                Ok(()) => {}
                Err(FlashError::EraseFailed { .. } | FlashError::ProgramFailed { .. })
                    if io.bad_allowed() =>
                {
                    io.flash.mark_bad(peb)?;
                }
                Err(error) => return Err(UbiError::ReadOnly(error)),
            }
        }
        let mut device = Self::attach(flash, options)?;
        // All of them were erased just now, each to its end.
        device.lebs.pebs.wear.pebs.iter_mut().for_each(|peb| peb.checked = true);
        Ok(device)
    }
}

impl<F: FlashMut> Io<F> {
    /// The erase counter of a block that already belonged to UBI.
    fn erase_counter(&self, peb: u32) -> Option<u32> {
        let mut bytes = [0; EC_HEADER_SIZE];
        let _ = self.read(peb, 0, &mut bytes).ok()?;
        EcHeader::parse(&bytes).ok().map(|header| header.erase_counter as u32)
    }
}

/// The offsets of headers and data, each in a separate unit.
fn offsets<F: FlashMut>(
    flash: &F,
    format: &FormatOptions,
    options: &DeviceOptions,
) -> Result<Offsets, UbiError> {
    let geometry = flash.geometry();
    let write_size = options.write_size.unwrap_or(geometry.write_size);
    // A write size that the flash does not know says nothing about parts of it.
    let unit = match write_size == geometry.write_size {
        true => geometry.sub_page_size,
        false => write_size,
    };
    let natural = (EC_HEADER_SIZE as u32).next_multiple_of(unit);
    let vid_header = format.vid_header_offset.unwrap_or(natural);
    let end = vid_header.checked_add(VID_HEADER_SIZE as u32);
    let data = end.and_then(|end| end.checked_next_multiple_of(write_size));
    match data {
        Some(data) if data < geometry.erase_size && vid_header.is_multiple_of(8) => {
            Ok(Offsets { vid_header, data })
        }
        _ => Err(UbiError::Shape(
            "the identifier header lies behind the end of the erase block, or not at a multiple \
             of 8",
        )),
    }
}

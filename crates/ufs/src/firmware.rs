//! Field firmware update (JESD220 13.4.13): WRITE BUFFER with offsets, in force after a reset.
//!
//! An image goes to the device in parts, each an operation of its own, so a caller can tell how
//! far it is and lanes go on in between. What the device thinks of it is in bDeviceFFUStatus; the
//! new firmware runs after [`Operation::Reset`](crate::Operation::Reset), which also reads
//! everything anew that bring-up reads.

use crate::Error;
use crate::channel::Run;
use crate::control::Core;
use crate::exchange::{DATA_MAX, HostCommand, Moves};
use crate::query::Query;
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::cdb::{Buffer, BufferMode};
use flysch_wire::ufs::descriptor::{ExtendedFeatures, UfsFeatures};
use flysch_wire::ufs::query::{AttributeId, FfuStatus, FlagId};

/// A part of a firmware image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwarePart {
    /// Where it is in the image, a multiple of 4 KiB.
    pub offset: u32,
    /// 1 to [`LENGTH_MAX`](Self::LENGTH_MAX) bytes.
    pub data: Vec<u8>,
}

/// What parts begin at a multiple of.
const ALIGNMENT: u32 = 4096;
/// End of what a WRITE BUFFER can reach: offset and length have 24 bits each.
const IMAGE_MAX: usize = 1 << 24;
/// bFFUTimeout where the device says none, seconds.
const TIMEOUT_SECONDS: u32 = 10;

impl FirmwarePart {
    /// Longest part, bytes.
    pub const LENGTH_MAX: usize = DATA_MAX as usize;

    /// The parts of an image, in the order in which devices want them.
    ///
    /// # Errors
    /// [`Error::State`] if the image is empty or longer than a WRITE BUFFER can reach.
    pub fn all(image: &[u8]) -> Result<impl Iterator<Item = Self>, Error> {
        if image.is_empty() || image.len() > IMAGE_MAX {
            return Err(Error::State("a firmware image has 1 byte to 16 MiB"));
        }
        let part = |(n, data): (usize, &[u8])| Self {
            offset: (n * Self::LENGTH_MAX) as u32,
            data: data.into(),
        };
        Ok(image.chunks(Self::LENGTH_MAX).enumerate().map(part))
    }
}

impl<M: Machine> Core<M> {
    fn can_update_firmware(&self) -> bool {
        let device = &self.device.descriptor;
        UfsFeatures::from_bits(device.b_ufs_features_support).ffu()
            || ExtendedFeatures::from_bits(device.d_extended_ufs_features_support).ffu()
    }

    /// Sends one part of an image; before the first it is asked whether the device takes any.
    pub(crate) fn write_firmware(&mut self, part: &FirmwarePart) -> Run<()> {
        if !self.can_update_firmware() {
            return Err(Error::Unsupported("field firmware update").into());
        }
        let length = part.data.len() as u32;
        if !part.offset.is_multiple_of(ALIGNMENT)
            || !(1..=DATA_MAX).contains(&length)
            || part.offset as usize + part.data.len() > IMAGE_MAX
        {
            return Err(Error::State("a part of firmware is out of place or too long").into());
        }
        if part.offset == 0 {
            let disabled = Query::read_flag(FlagId::PermanentlyDisableFwUpdate);
            if self.checked_query(&disabled)?.fields.flag_value() {
                let why = "firmware updates are disabled for ever (fPermanentlyDisableFwUpdate)";
                return Err(Error::State(why).into());
            }
        }
        let seconds = match self.device.descriptor.b_ffu_timeout {
            0 => TIMEOUT_SECONDS,
            seconds => seconds.into(),
        };
        self.put_data(&part.data);
        let buffer = Buffer {
            mode: BufferMode::DownloadDeferred,
            mode_specific: 0,
            id: 0,
            offset: part.offset,
            length,
        };
        self.scsi(HostCommand {
            lun: self.first_unit(),
            cdb: Cdb::WriteBuffer(buffer).to_bytes(),
            moves: Moves::Out(length),
            segment: false,
            timeout_ms: seconds * 1000,
        })??;
        Ok(())
    }

    /// The logical unit that takes commands for the device.
    pub(crate) fn first_unit(&self) -> u8 {
        self.device.units.iter().position(Option::is_some).unwrap_or(0) as u8
    }

    /// What the device thinks of the firmware it got.
    pub(crate) fn firmware_status(&mut self) -> Run<FfuStatus> {
        if !self.can_update_firmware() {
            return Err(Error::Unsupported("field firmware update").into());
        }
        let status = self.checked_query(&Query::read_attribute(AttributeId::DeviceFfuStatus))?;
        Ok(FfuStatus::from_bits(status.fields.value32() as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_cut_into_parts_that_join_to_it() {
        let image: Vec<u8> = (0..FirmwarePart::LENGTH_MAX * 2 + 5).map(|n| n as u8).collect();
        let parts: Vec<_> = FirmwarePart::all(&image).expect("an image").collect();
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2].data.len(), 5);
        let mut joined = Vec::new();
        for part in &parts {
            assert_eq!(part.offset as usize, joined.len());
            joined.extend_from_slice(&part.data);
        }
        assert_eq!(joined, image);
        assert!(FirmwarePart::all(&[]).is_err());
        assert!(FirmwarePart::all(&alloc::vec![0; IMAGE_MAX + 1]).is_err());
    }
}

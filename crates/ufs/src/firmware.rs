//! Field firmware update (JESD220 13.4.13): WRITE BUFFER with offsets, in force after a reset.
//!
//! An image goes to the device in parts, each an operation of its own, so a caller can show the
//! progress and lanes continue in between. The device reports the result in bDeviceFFUStatus; the
//! new firmware runs after [`Operation::Reset`](crate::Operation::Reset), which also reads again
//! everything that bring-up reads.

use crate::UfsError;
use crate::channel::Run;
use crate::exchange::{DATA_MAX, HostCommand, Moves};
use crate::facts::UfsFacts;
use crate::management::Peer;
use crate::query::Query;
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_wire::scsi::Cdb;
use flysch_wire::scsi::cdb::{Buffer, BufferMode};
use flysch_wire::ufs::query::{AttributeId, FfuStatus, FlagId};

/// A part of a firmware image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirmwarePart {
    /// Its offset in the image, a multiple of 4 KiB.
    pub offset: u32,
    /// 1 to [`LENGTH_MAX`](Self::LENGTH_MAX) bytes.
    pub data: Vec<u8>,
}

/// Alignment of the parts in the image.
const ALIGNMENT: u32 = 4096;
/// End of what a WRITE BUFFER can reach: offset and length have 24 bits each.
const IMAGE_MAX: usize = 1 << 24;
/// bFFUTimeout if the device specifies none, seconds.
const TIMEOUT_SECONDS: u32 = 10;

impl FirmwarePart {
    /// Longest part, bytes.
    pub const LENGTH_MAX: usize = DATA_MAX as usize;

    /// The parts of an image, in the order in which devices require them.
    ///
    /// # Errors
    /// [`UfsError::State`] if the image is empty or longer than a WRITE BUFFER can reach.
    pub fn all(image: &[u8]) -> Result<impl Iterator<Item = Self>, UfsError> {
        if image.is_empty() || image.len() > IMAGE_MAX {
            return Err(UfsError::State("a firmware image has 1 byte to 16 MiB"));
        }
        let part = |(n, data): (usize, &[u8])| Self {
            offset: (n * Self::LENGTH_MAX) as u32,
            data: data.into(),
        };
        Ok(image.chunks(Self::LENGTH_MAX).enumerate().map(part))
    }

    fn is_in_place(&self) -> bool {
        self.offset.is_multiple_of(ALIGNMENT)
            && (1..=Self::LENGTH_MAX).contains(&self.data.len())
            && self.offset as usize + self.data.len() <= IMAGE_MAX
    }

    /// Sends this part; before the first part the device is asked whether it takes any.
    pub(crate) fn write<M: Machine>(&self, peer: &mut Peer<M>) -> Run<()> {
        check(&peer.device)?;
        if !self.is_in_place() {
            return Err(UfsError::State("a part of firmware is out of place or too long").into());
        }
        if self.offset == 0 {
            let disabled = Query::read_flag(FlagId::PermanentlyDisableFwUpdate);
            if peer.checked_query(&disabled)?.fields.flag_value() {
                let why = "firmware updates are disabled for ever (fPermanentlyDisableFwUpdate)";
                return Err(UfsError::State(why).into());
            }
        }
        let seconds = match peer.device.descriptor.b_ffu_timeout {
            0 => TIMEOUT_SECONDS,
            seconds => seconds.into(),
        };
        peer.put_data(&self.data);
        let length = self.data.len() as u32;
        let buffer = Buffer {
            mode: BufferMode::DownloadDeferred,
            mode_specific: 0,
            id: 0,
            offset: self.offset,
            length,
        };
        peer.scsi(HostCommand {
            lun: peer.device.first_unit(),
            cdb: Cdb::WriteBuffer(buffer).to_bytes(),
            moves: Moves::Out(length),
            segment: false,
            timeout_ms: seconds * 1000,
        })??;
        Ok(())
    }

    /// What the device reports about the parts that it has received.
    pub(crate) fn status<M: Machine>(peer: &mut Peer<M>) -> Run<FfuStatus> {
        check(&peer.device)?;
        let status = peer.read_attribute(AttributeId::DeviceFfuStatus)?;
        Ok(FfuStatus::from_bits(status as u8))
    }
}

fn check(device: &UfsFacts) -> Result<(), UfsError> {
    let has_it = device.features().ffu() || device.extended_features().ffu();
    if has_it { Ok(()) } else { Err(UfsError::Unsupported("field firmware update")) }
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

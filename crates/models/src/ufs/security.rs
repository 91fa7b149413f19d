//! SECURITY PROTOCOL IN and OUT: access to replay protected memory, in frames or in segments.

use flysch_wire::scsi::cdb::{SECURITY_PROTOCOL_UFS, Security};
use flysch_wire::ufs::rpmb::AdvancedRpmb;
use flysch_wire::ufs::upiu::{EHS_LENGTH_OFFSET, LENGTH};
use flysch_wire::ufs::utrd::Ocs;

use super::control::{Control, Reply, Stop};
use super::device::Device;
use super::lu::LogicalUnits;
use super::rpmb::{Areas, Rpmb, Segment};
use super::sense::Sense;

/// The RPMB unit, and the rest of the device as write protection needs it.
fn rpmb_and_areas(device: &mut Device) -> (&mut Rpmb, Areas<'_>) {
    let LogicalUnits { list, protection, .. } = &mut device.units;
    (&mut device.rpmb, Areas { units: list, protection })
}

impl Control<'_> {
    /// The RPMB region a SECURITY PROTOCOL command is for, and how many bytes it moves.
    fn security(&self, command: &Security) -> Result<(u8, usize), Stop> {
        let [region, kind] = command.specific.to_be_bytes();
        if command.protocol != SECURITY_PROTOCOL_UFS {
            return Err(Sense::field(1).into());
        }
        if kind != 1 || !self.device.rpmb.has(region) {
            return Err(Sense::field(2).into());
        }
        let len = command.length as usize;
        if command.inc_512 || !self.device.rpmb.takes(len) {
            return Err(Sense::field(6).into());
        }
        Ok((region, len))
    }

    /// The segment of a command in advanced mode; `None` in normal mode.
    fn segment(&self) -> Result<Option<Segment>, Stop> {
        let task = self.task();
        let has = match task.request[EHS_LENGTH_OFFSET] {
            0 => false,
            AdvancedRpmb::EHS_LENGTH => true,
            _ => return Err(Ocs::InvalidCommandTableAttributes.into()),
        };
        if has != self.device.rpmb.is_advanced() {
            return Err(Sense::field(0).into());
        }
        if !has {
            return Ok(None);
        }
        let mut segment = [0; AdvancedRpmb::LENGTH];
        let read = self.x.memory.read(task.ucd.wrapping_add(LENGTH as u64), &mut segment);
        read.map_err(|_| Ocs::InvalidCommandTableAttributes)?;
        Ok(Some(segment))
    }

    /// SECURITY PROTOCOL IN.
    pub(super) fn security_in(
        &mut self,
        command: &Security,
        data: &mut [u8],
    ) -> Result<Reply, Stop> {
        let (region, len) = self.security(command)?;
        let segment = self.segment()?;
        let (rpmb, areas) = rpmb_and_areas(self.device);
        Ok(match segment {
            None => {
                rpmb.response(region, &mut data[..len], &areas);
                Reply::Send(len)
            }
            Some(asked) => {
                let answer = rpmb.advanced(region, &asked, &[], &mut data[..len]);
                Reply::Segment(len, true, answer)
            }
        })
    }

    /// SECURITY PROTOCOL OUT.
    pub(super) fn security_out(
        &mut self,
        command: &Security,
        data: &mut [u8],
    ) -> Result<Reply, Stop> {
        let (region, len) = self.security(command)?;
        let segment = self.segment()?;
        self.take(len, data)?;
        let now = self.x.now();
        let (rpmb, areas) = rpmb_and_areas(self.device);
        Ok(match segment {
            None => {
                rpmb.request(region, &data[..len], now, areas);
                Reply::Took(len)
            }
            Some(asked) => {
                let answer = rpmb.advanced(region, &asked, &data[..len], &mut []);
                Reply::Segment(len, false, answer)
            }
        })
    }
}

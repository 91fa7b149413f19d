//! Answers to SCSI commands.

use flysch_wire::scsi::Status;
use flysch_wire::ufs::rpmb::AdvancedRpmb;
use flysch_wire::ufs::upiu::{self, RESPONSE_LENGTH_MAX, ResponseFlags, ResponseUpiu};
use flysch_wire::ufs::utrd::Ocs;

use super::exchange::Exchange;
use super::rpmb::Segment;
use super::sense::Sense;

/// The answer to the command in a task. Each method that gives it returns how the task ends.
pub(super) struct Answer<'a> {
    pub(super) x: &'a Exchange,
    pub(super) index: u16,
    /// EVENT_ALERT.
    pub(super) alert: bool,
}

impl Answer<'_> {
    /// The response UPIU of a command for which the device was to send, or took, `moved` bytes.
    #[inline]
    fn unit(&self, status: Status, moved: u32) -> ResponseUpiu {
        let task = self.x.tasks.get(self.index);
        let mut unit = ResponseUpiu::new(task.lun, task.tag, status.into_bits());
        unit.header.iid = task.iid & 0xF;
        unit.header.function = task.iid & 0xF0;
        unit.header.device_information.set_event_alert(self.alert);
        if moved != task.expected {
            let under = moved < task.expected;
            unit.residual_transfer_count = moved.abs_diff(task.expected);
            if !task.bare_residual {
                unit.header.flags = ResponseFlags::new().with_u(under).with_o(!under).into_bits();
            }
        }
        unit
    }

    /// GOOD: the device was to send, or took, `moved` bytes.
    #[inline]
    pub(super) fn good(&self, moved: u32) -> Ocs {
        self.status(Status::Good, moved)
    }

    /// A status without sense data.
    #[inline]
    pub(super) fn status(&self, status: Status, moved: u32) -> Ocs {
        let mut bytes = [0; upiu::LENGTH];
        self.unit(status, moved).emit(&mut bytes);
        self.x.answer(self.index, &bytes)
    }

    /// CHECK CONDITION.
    pub(super) fn fail(&self, sense: Sense) -> Ocs {
        let unit = self.unit(Status::CheckCondition, 0);
        let mut bytes = [0; RESPONSE_LENGTH_MAX];
        let len = unit.emit_with_sense(&sense.to_fixed(), &mut bytes);
        self.x.answer(self.index, &bytes[..len])
    }

    /// GOOD, with an extra header segment.
    pub(super) fn segment(&self, segment: &Segment, moved: u32) -> Ocs {
        let mut unit = self.unit(Status::Good, moved);
        unit.header.ehs_length = AdvancedRpmb::EHS_LENGTH;
        let mut bytes = [0; upiu::LENGTH + AdvancedRpmb::LENGTH];
        let (head, rest) = bytes.split_at_mut(upiu::LENGTH);
        unit.emit(head.first_chunk_mut().expect("as long as a unit"));
        rest.copy_from_slice(segment);
        self.x.answer(self.index, &bytes)
    }
}

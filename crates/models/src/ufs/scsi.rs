//! SCSI commands.
use super::Ufs;
use super::device::GOOD;
use super::sense::Sense;
use super::task::Work;

impl Ufs {
    pub(super) fn decide(&mut self, index: u16) -> Work {
        let task = self.tasks.get(index);
        let cdb = task.cdb();
        let word = |at: usize| u32::from_be_bytes([cdb[at], cdb[at + 1], cdb[at + 2], cdb[at + 3]]);
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        let (lba, blocks) = match cdb[0] {
            0x28 | 0x2A => (u64::from(word(2)), u32::from(cdb[7]) << 8 | u32::from(cdb[8])),
            0x88 | 0x8A => (long(2), word(10)),
            0x35 => return Work::Flush { unit: task.lun },
            0x00 => return Work::Control,
            _ => return Work::Fail(Sense::new(5, 0x20, 0)),
        };
        let Some(unit) = self.device.unit(task.lun) else {
            return Work::Fail(Sense::new(5, 0x25, 0));
        };
        if lba.checked_add(u64::from(blocks)).is_none_or(|end| end > unit.blocks) {
            return Work::Fail(Sense::new(5, 0x21, 0));
        }
        let (offset, len) = (lba << unit.block_shift, blocks << unit.block_shift);
        match cdb[0] {
            0x28 | 0x88 => Work::Read { unit: task.lun, offset, len },
            _ => Work::Write { unit: task.lun, offset, len, force_unit_access: cdb[1] & 8 != 0 },
        }
    }

    pub(super) fn control(&mut self, index: u16) {
        self.respond(index, GOOD, None, 0);
    }
}

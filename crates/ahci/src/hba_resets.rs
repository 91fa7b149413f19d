//! How often a port may have the whole HBA reset.

/// HBA resets for a list that does not stop before its port counts as gone: each bring-up stops it
/// again, behind a multiplier several times.
const LIST_RESETS: u8 = 5;
/// And for a device that does not come back.
const DEVICE_RESETS: u8 = 1;

/// Resets of the HBA that a port asked for since it last worked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HbaResets {
    list: u8,
    device: u8,
}

impl HbaResets {
    /// Whether there is another one, for a list that does not stop or for a device.
    pub(crate) fn take(&mut self, is_for_list: bool) -> bool {
        let (taken, most) = match is_for_list {
            true => (&mut self.list, LIST_RESETS),
            false => (&mut self.device, DEVICE_RESETS),
        };
        let is_left = *taken < most;
        *taken += u8::from(is_left);
        is_left
    }
}

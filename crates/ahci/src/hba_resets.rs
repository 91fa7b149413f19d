//! How often a port may have the whole HBA reset.

/// HBA resets to allow for a list that does not stop; then its port counts as gone. Each bring-up
/// stops the list again, several times behind a multiplier.
const LIST_RESETS: u8 = 5;
/// The same for a device that does not come back.
const DEVICE_RESETS: u8 = 1;

/// HBA resets that a port has asked for since it last worked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HbaResets {
    list: u8,
    device: u8,
}

impl HbaResets {
    /// Takes one of the resets left, for a list that does not stop or for a device; `false` if none
    /// is left.
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

//! Errors as C gets them: a number to switch on and a line to print.

use alloc::boxed::Box;
use core::ffi::c_char;
use core::fmt::{self, Write};

use flysch_api::block;

/// How a call or a request ended. All values except FLYSCH_STATUS_OK are negative.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// No room now: poll, then submit the request again.
    Full = -1,
    /// An argument is invalid; the error's text says which.
    Argument = -2,
    /// DMA memory or heap memory is too small.
    Memory = -3,
    /// The controller did not come up; the error's text names the step and the cause.
    Controller = -4,
    /// There is no such unit, or it cannot be a disk.
    NotADisk = -5,
    /// All disks that the options allow are in use.
    NoLane = -6,
    /// The range is not on the device.
    OutOfRange = -7,
    /// Offset or length is not a multiple of the block size.
    Misaligned = -8,
    /// The data is not at an address, or not of a form, that the controller accepts.
    BadData = -9,
    /// The device does not support this.
    Unsupported = -10,
    /// The unit is write protected.
    WriteProtected = -11,
    /// The medium could not be read or written.
    Medium = -12,
    /// The device failed for another reason.
    Device = -13,
    /// No answer in time: aborted, and all retries are used up.
    TimedOut = -14,
    /// Lost in a reset, and all retries are used up.
    Reset = -15,
    /// The host controller reported a fault.
    Host = -16,
    /// The device is gone: recovery failed, or it was shut down.
    Gone = -17,
}

impl From<block::BlockError> for Status {
    fn from(error: block::BlockError) -> Self {
        match error {
            block::BlockError::OutOfRange => Self::OutOfRange,
            block::BlockError::Misaligned => Self::Misaligned,
            block::BlockError::BadData(_) => Self::BadData,
            block::BlockError::Unsupported => Self::Unsupported,
            block::BlockError::WriteProtected => Self::WriteProtected,
            block::BlockError::Medium(_) => Self::Medium,
            block::BlockError::TimedOut => Self::TimedOut,
            block::BlockError::Reset => Self::Reset,
            block::BlockError::Host(_) => Self::Host,
            block::BlockError::Gone => Self::Gone,
            // `Device`, and any status that a later version adds.
            _ => Self::Device,
        }
    }
}

/// Bytes of an error's text, including the zero at its end.
pub const TEXT_BYTES: usize = 160;

/// Why a call failed. Nothing in it has to be freed.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Error {
    /// The number to switch on.
    pub status: Status,
    /// The text to print: one line, ended by a zero, truncated if it would be longer.
    pub text: [c_char; TEXT_BYTES],
}

/// Result of setting up. Requests fail with a [`Status`] only.
pub(crate) type Outcome<T> = Result<T, Box<Error>>;

impl Error {
    /// A status with its text.
    pub(crate) fn new(status: Status, words: impl fmt::Display) -> Box<Self> {
        let mut error = Box::new(Self { status, text: [0; TEXT_BYTES] });
        let mut pen = Pen { text: &mut error.text, used: 0 };
        // Writing fails only when the text is full; it is then truncated.
        let _ = write!(pen, "{words}");
        error
    }
}

/// Writes into a text, whole characters only, leaving room for the zero.
struct Pen<'a> {
    text: &'a mut [c_char; TEXT_BYTES],
    used: usize,
}

impl Write for Pen<'_> {
    fn write_str(&mut self, words: &str) -> fmt::Result {
        for character in words.chars() {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).as_bytes();
            let end = self.used + bytes.len();
            let room = self.text[..TEXT_BYTES - 1].get_mut(self.used..end).ok_or(fmt::Error)?;
            room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from as c_char);
            self.used = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: &Error) -> Vec<u8> {
        error.text.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect()
    }

    extern crate std;
    use std::vec::Vec;

    #[test]
    fn a_text_ends_with_a_zero_whatever_its_length() {
        assert_eq!(text(&Error::new(Status::Gone, "the device is gone")), b"the device is gone");
        let long = Error::new(Status::Gone, format_args!("{:200}", "x"));
        assert_eq!(text(&long).len(), TEXT_BYTES - 1);
        // No partial character at the end.
        let wide = Error::new(Status::Gone, format_args!("{:µ<158}", "x"));
        let shown = text(&wide);
        assert_eq!(shown.len(), TEXT_BYTES - 1);
        assert!(std::str::from_utf8(&shown).is_ok());
    }
}

//! The cause of a worker's end, as an `errno`.

use flysch_api::block::{BlockError, Cause};

use super::Failure;

/// EILSEQ: data differs from what was written.
pub const BAD_DATA: i32 = 84;
/// EIO.
const FAILED: i32 = 5;
/// ENOSPC.
const NO_SPACE: i32 = 28;
/// EROFS, EOPNOTSUPP, EINVAL, ETIMEDOUT.
const READ_ONLY: i32 = 30;
const UNSUPPORTED: i32 = 95;
const INVALID: i32 = 22;
const TIMED_OUT: i32 = 110;
/// The device's backing store is full. SCSI: DATA PROTECT, space allocation failed (SPC-6).
const ALLOCATION_FAILED: (u8, u8, u8) = (7, 0x27, 7);
/// NVMe: Capacity Exceeded, a generic status; its type and code.
const CAPACITY_EXCEEDED: (u8, u8) = (0, 0x81);

impl Failure {
    /// The `errno` that Linux would return for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Request { error, .. } => errno_of(error),
            // As fio has it.
            Self::TooSlow { .. } => FAILED,
            Self::TooLong { .. } => TIMED_OUT,
            Self::Verify { .. } => BAD_DATA,
        }
    }
}

fn errno_of(error: &BlockError) -> i32 {
    match error {
        BlockError::Device(Cause::Scsi { key, asc, ascq, .. })
            if (*key, *asc, *ascq) == ALLOCATION_FAILED =>
        {
            NO_SPACE
        }
        BlockError::Device(Cause::Nvme(status))
            if (status.code_type(), status.code()) == CAPACITY_EXCEEDED =>
        {
            NO_SPACE
        }
        BlockError::WriteProtected => READ_ONLY,
        BlockError::Unsupported => UNSUPPORTED,
        BlockError::OutOfRange | BlockError::Misaligned | BlockError::BadData(_) => INVALID,
        BlockError::TimedOut => TIMED_OUT,
        _ => FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_api::block::Operation;
    use flysch_api::command::NvmeStatus;

    #[test]
    fn a_failure_has_the_number_that_fio_gives_it() {
        let of = |error| {
            let operation = Operation::Write;
            Failure::Request { operation, offset: 0, length: 4096, error }.errno()
        };
        assert_eq!(of(BlockError::Device(Cause::sense(7, 0x27, 7))), 28);
        assert_eq!(of(BlockError::Device(Cause::sense(4, 0x44, 0))), 5);
        assert_eq!(of(BlockError::Medium(Cause::None)), 5);
        assert_eq!(of(BlockError::WriteProtected), 30);
        let nvme = |status| BlockError::Device(Cause::Nvme(NvmeStatus { status, result: 0 }));
        assert_eq!([0x0081, 0x4081, 0x0181, 0x0006].map(|status| of(nvme(status))), [28, 28, 5, 5]);
    }
}

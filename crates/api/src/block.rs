//! Block devices: requests to them and their completions.

use core::fmt;

use crate::crypto::CryptoContext;
use crate::data::{BadData, Data, SegmentLimits};
use crate::machine::{DmaRegion, Instant};
use crate::trace::Passage;

mod cause;
mod change;

pub use crate::operation::Operation;
pub use cause::Cause;
pub use change::Change;

/// One request to a block device. It belongs to the caller; the device copies what it needs. The
/// data, and the list that may name it, also stay with the caller, who must not touch either until
/// the completion is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub operation: Operation,
    /// Writes only: on the medium, not only in a cache, when the request completes.
    pub force_unit_access: bool,
    /// First byte on the device; a multiple of the block size. 0 for [`Operation::Flush`].
    pub offset: u64,
    /// Bytes; a multiple of the block size. 0 for [`Operation::Flush`].
    pub length: u64,
    /// Where the data goes or comes from: `length` bytes for reads and writes, else empty.
    pub data: Data,
    /// The key of the host controller that encrypts the data of a read or write in transit; `None`
    /// leaves the data as it is. Other operations do not use it.
    pub crypto: Option<CryptoContext>,
    /// The caller's name for this request; comes back in the [`Completion`].
    pub token: u64,
    /// When the caller wanted the request: the start of its latency. The caller stamps it once,
    /// even if it has to submit the request again after [`Refused::Full`]; devices hand it back.
    pub accepted: Instant,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's token.
    pub token: u64,
    /// Success, or why the request failed.
    pub result: Result<(), BlockError>,
    /// When things happened. Whoever takes the completion adds the delivery
    /// ([`Passage::delivered`]).
    pub passage: Passage,
}

/// Why a request failed or was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockError {
    /// The range is not on the device.
    OutOfRange,
    /// Offset or length is not a multiple of the block size, or the data has another length.
    Misaligned,
    /// The data is not where it must be, or violates the limits of the device.
    BadData(BadData),
    /// The device does not support this operation.
    Unsupported,
    /// The device or this logical unit is write protected.
    WriteProtected,
    /// The medium could not be read or written.
    Medium(Cause),
    /// The device failed in some other way and described it.
    Device(Cause),
    /// The device did not answer in time; the command was aborted and the retries are used up.
    TimedOut,
    /// The command was lost in a reset and the retries are used up.
    Reset,
    /// The host controller reported a fault, with its own code; its driver has a name for it.
    Host(u32),
    /// The device is gone: recovery failed, or it was shut down.
    Gone,
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange => f.write_str("the range is not on the device"),
            Self::Misaligned => f.write_str("offset or length is not a multiple of the block size"),
            Self::Unsupported => f.write_str("the device does not support this operation"),
            Self::WriteProtected => f.write_str("the device is write protected"),
            Self::BadData(bad) => bad.fmt(f),
            Self::Medium(cause) => write!(f, "medium error ({cause})"),
            Self::Device(cause) => write!(f, "device error ({cause})"),
            Self::TimedOut => f.write_str("no answer from the device in time"),
            Self::Reset => f.write_str("lost in a device reset"),
            Self::Host(code) => write!(f, "host controller error (status {code:#x})"),
            Self::Gone => f.write_str("the device is gone"),
        }
    }
}

impl core::error::Error for BlockError {}

/// Why [`BlockDevice::submit`] did not accept a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No room now; the request still belongs to the caller. Poll, then try again.
    Full,
    /// This request can never succeed.
    Invalid(BlockError),
}

/// Geometry and limits of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockGeometry {
    /// Bytes per logical block, a power of two.
    pub block_size: u32,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Longest read or write done as one command, bytes. Longer requests are split, as are lists
    /// with more segments than a command takes.
    pub transfer_max: u32,
    /// The limits of a request's data: alignment of each range, and of those inside a list.
    pub segments: SegmentLimits,
    /// Requests the device accepts before it returns [`Refused::Full`].
    pub queue_depth: u32,
    /// Whether [`Operation::Delete`] works.
    pub can_delete: bool,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether a request may name a key ([`Request::crypto`]).
    pub crypto: bool,
}

impl BlockGeometry {
    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_size))
    }

    /// Checks that `request` is valid for this device.
    ///
    /// # Errors
    /// Why it is not.
    #[inline]
    pub fn check(&self, request: &Request) -> Result<(), BlockError> {
        let mask = u64::from(self.block_size) - 1;
        let has_data = matches!(request.operation, Operation::Read | Operation::Write);
        let writes = matches!(request.operation, Operation::Write | Operation::Delete);
        if request.operation == Operation::Flush {
            return Ok(());
        }
        if request.operation == Operation::Delete && !self.can_delete {
            return Err(BlockError::Unsupported);
        }
        if writes && self.read_only {
            return Err(BlockError::WriteProtected);
        }
        if (request.offset | request.length) & mask != 0 || request.length == 0 {
            return Err(BlockError::Misaligned);
        }
        if has_data && u64::from(request.data.len()) != request.length {
            return Err(BlockError::Misaligned);
        }
        let size = self.bytes();
        if let Some(context) = &request.crypto
            && has_data
        {
            self.check_key(context, request.length)?;
        }
        if request.offset > size || request.length > size - request.offset {
            return Err(BlockError::OutOfRange);
        }
        Ok(())
    }

    /// Checks that data of this length can be encrypted in transit: whole data units, each in one
    /// command.
    #[cold]
    fn check_key(&self, context: &CryptoContext, length: u64) -> Result<(), BlockError> {
        if !self.crypto || context.unit.bytes() > self.transfer_max {
            return Err(BlockError::Unsupported);
        }
        if context.is_whole(length) { Ok(()) } else { Err(BlockError::BadData(BadData::DataUnit)) }
    }
}

/// A block device as one lane sees it: requests in, completions out.
pub trait BlockDevice {
    /// The device's geometry and limits.
    fn geometry(&self) -> &BlockGeometry;

    /// The memory in which request buffers must lie.
    fn memory(&self) -> &DmaRegion;

    /// Accepts a request. It may stay unissued until [`ring`](Self::ring).
    ///
    /// # Errors
    /// [`Refused::Full`] when there is no room now, [`Refused::Invalid`] when the request can never
    /// be accepted.
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused>;

    /// As [`submit`](Self::submit), but the request is ordered: after everything submitted before
    /// it, and before everything submitted after it.
    ///
    /// # Errors
    /// As `submit`; [`BlockError::Unsupported`] from a device that does not keep order.
    fn submit_ordered(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        let _ = (request, now);
        Err(Refused::Invalid(BlockError::Unsupported))
    }

    /// Issues everything submitted since the last call: one doorbell for the batch.
    fn ring(&mut self, now: Instant);

    /// The next completion, if there is one. Call until it returns `None`.
    fn poll(&mut self, now: Instant) -> Option<Completion>;

    /// When the device wants to be polled even if no interrupt comes (deadlines, recovery).
    fn poll_at(&self) -> Option<Instant>;
}

impl<D: BlockDevice + ?Sized> BlockDevice for &mut D {
    fn geometry(&self) -> &BlockGeometry {
        (**self).geometry()
    }

    fn memory(&self) -> &DmaRegion {
        (**self).memory()
    }

    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        (**self).submit(request, now)
    }

    fn submit_ordered(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        (**self).submit_ordered(request, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        (**self).ring(now);
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        (**self).poll(now)
    }

    fn poll_at(&self) -> Option<Instant> {
        (**self).poll_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::DmaSlice;

    const GEOMETRY: BlockGeometry = BlockGeometry {
        block_size: 4096,
        blocks: 16,
        transfer_max: 65536,
        segments: SegmentLimits::NONE,
        queue_depth: 1,
        can_delete: true,
        read_only: false,
        crypto: false,
    };

    fn request(operation: Operation, offset: u64, length: u64) -> Request {
        let len = match operation {
            Operation::Read | Operation::Write => length as u32,
            Operation::Flush | Operation::Delete => 0,
        };
        Request {
            operation,
            force_unit_access: false,
            offset,
            length,
            data: Data::One(DmaSlice { address: 0, len }),
            crypto: None,
            token: 0,
            accepted: Instant::START,
        }
    }

    #[test]
    fn geometry_takes_the_whole_device_and_nothing_beyond() {
        assert_eq!(GEOMETRY.check(&request(Operation::Read, 0, 65536)), Ok(()));
        assert_eq!(GEOMETRY.check(&request(Operation::Write, 61440, 4096)), Ok(()));
        for (offset, length) in [(65536, 4096), (61440, 8192), (!4095, 4096)] {
            assert_eq!(
                GEOMETRY.check(&request(Operation::Read, offset, length)),
                Err(BlockError::OutOfRange)
            );
        }
    }

    #[test]
    fn geometry_refuses_misaligned_and_empty_ranges() {
        for (offset, length) in [(1, 4096), (0, 4095), (0, 0), (512, 512)] {
            assert_eq!(
                GEOMETRY.check(&request(Operation::Write, offset, length)),
                Err(BlockError::Misaligned)
            );
        }
        let mut short = request(Operation::Read, 0, 8192);
        short.data = Data::One(DmaSlice { address: 0, len: 4096 });
        assert_eq!(GEOMETRY.check(&short), Err(BlockError::Misaligned));
    }

    #[test]
    fn geometry_knows_what_the_device_cannot_do() {
        let read_only = BlockGeometry { read_only: true, can_delete: false, ..GEOMETRY };
        assert_eq!(
            read_only.check(&request(Operation::Write, 0, 4096)),
            Err(BlockError::WriteProtected)
        );
        assert_eq!(
            read_only.check(&request(Operation::Delete, 0, 4096)),
            Err(BlockError::Unsupported)
        );
        assert_eq!(read_only.check(&request(Operation::Flush, 0, 0)), Ok(()));
    }

    #[test]
    fn data_is_encrypted_in_whole_data_units_where_there_are_keys() {
        let with_key = |operation, length, unit| Request {
            crypto: crate::crypto::DataUnit::of(unit).map(|unit| CryptoContext {
                number: 0,
                unit,
                slot: 0,
            }),
            ..request(operation, 0, length)
        };
        let keys = BlockGeometry { crypto: true, ..GEOMETRY };
        assert_eq!(keys.check(&with_key(Operation::Read, 8192, 8192)), Ok(()));
        assert_eq!(
            keys.check(&with_key(Operation::Write, 4096, 8192)),
            Err(BlockError::BadData(BadData::DataUnit))
        );
        let plain = with_key(Operation::Read, 8192, 512);
        assert_eq!(GEOMETRY.check(&plain), Err(BlockError::Unsupported), "it would be plain text");
        let short = BlockGeometry { transfer_max: 4096, ..keys };
        assert_eq!(
            short.check(&with_key(Operation::Read, 8192, 8192)),
            Err(BlockError::Unsupported),
            "no command could carry a data unit"
        );
    }
}

//! The stamps that a request collects on its way down and up, and the record made from them.
//!
//! The time of one I/O is divided into four areas, as in the Micron study of the UFS and NVMe
//! software stacks: (1) the file system, (2) submission, from the block layer down to the doorbell,
//! (3) the device, (4) completion, from the device's interrupt back to the caller. A request that
//! does not come from a file system has no area 1.

use crate::machine::Instant;
use crate::operation::Operation;

/// What a device knows of the passage of one request: everything but its delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// When the caller wanted it: its own stamp, handed back.
    pub accepted: Instant,
    /// When the doorbell rang: from here on the device owns the request.
    pub issued: Instant,
    /// When the device finished, if known (simulated devices).
    pub device_done: Option<Instant>,
    /// When the driver saw the completion.
    pub seen: Instant,
}

impl Passage {
    /// The complete passage, with the delivery stamped by whoever took the completion.
    #[inline]
    pub const fn delivered(self, delivered: Instant) -> Stamps {
        let Self { accepted, issued, device_done, seen } = self;
        Stamps { accepted, issued, device_done, seen, delivered }
    }
}

/// The instants of one block request, in the order in which they happen. Each is stamped once:
/// `accepted` and `delivered` by the caller, the others by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// When the caller wanted it: the start of its latency.
    pub accepted: Instant,
    /// When the doorbell rang: from here on the device owns the request.
    pub issued: Instant,
    /// When the device finished, if known (simulated devices).
    pub device_done: Option<Instant>,
    /// When the driver saw the completion.
    pub seen: Instant,
    /// When the caller got the completion.
    pub delivered: Instant,
}

impl Stamps {
    /// Area 2, nanoseconds: from acceptance to the doorbell.
    pub fn submission_nanos(&self) -> u64 {
        self.issued.nanos_since(self.accepted)
    }

    /// Area 3, nanoseconds: from the doorbell until the device finished or, if that is not known,
    /// until the driver saw the completion.
    pub fn device_nanos(&self) -> u64 {
        self.finished().nanos_since(self.issued)
    }

    /// Area 4, nanoseconds: from when the device finished until delivery.
    pub fn completion_nanos(&self) -> u64 {
        self.delivered.nanos_since(self.finished())
    }

    /// All areas together, nanoseconds.
    pub fn total_nanos(&self) -> u64 {
        self.delivered.nanos_since(self.accepted)
    }

    fn finished(&self) -> Instant {
        // A device that claims to have finished outside its own interval is not believed.
        self.device_done
            .map_or(self.seen, |done| done.clamp(self.issued, self.seen.max(self.issued)))
    }
}

/// One finished request: what it asked for, when each step happened, how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When things happened.
    pub stamps: Stamps,
    /// Byte offset on the device.
    pub offset: u64,
    /// Length in bytes.
    pub length: u32,
    /// The request's slot in its lane, the same from submission to completion: the track on which
    /// it is drawn.
    pub slot: u16,
    /// The lane it went through.
    pub lane: u8,
    /// What was asked.
    pub operation: Operation,
    /// Whether it failed.
    pub failed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn areas_add_up_to_the_total() {
        let mut stamps = Stamps {
            accepted: at(10),
            issued: at(25),
            device_done: Some(at(125)),
            seen: at(130),
            delivered: at(150),
        };
        assert_eq!(
            (stamps.submission_nanos(), stamps.device_nanos(), stamps.completion_nanos()),
            (15, 100, 25)
        );
        for done in [None, Some(at(0)), Some(at(125)), Some(at(9_999))] {
            stamps.device_done = done;
            let sum = stamps.submission_nanos() + stamps.device_nanos() + stamps.completion_nanos();
            assert_eq!(sum, stamps.total_nanos());
        }
    }
}

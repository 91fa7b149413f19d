//! What the owner of a disk can do besides submitting requests: tags, freezing, changes of size.

use flysch_api::command::Port;

use super::rescue::Rescue;
use super::single::Single;
use super::{Disk, Shape, delete_max};
use crate::error::CamError;
use crate::family::{Attention, Family};

/// State of a disk's queue: what `camcontrol tags -v` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// Commands that could be started now (dev_openings).
    pub openings: u32,
    /// Commands in flight (dev_active).
    pub active: u32,
    /// Requests accepted and not completed (allocated).
    pub allocated: u32,
    /// Requests and commands that wait for their turn (queued).
    pub queued: u32,
    /// Number of freezes (held).
    pub held: u32,
    /// Minimum number of commands in flight after TASK SET FULL (mintags).
    pub min: u32,
    /// Maximum number of commands in flight (maxtags).
    pub max: u32,
}

impl<P: Port> Disk<P>
where
    P::Protocol: Family,
{
    /// The state of the queue.
    pub fn tags(&self) -> Tags {
        Tags {
            openings: self.openings.saturating_sub(self.queue.started),
            active: self.queue.started,
            allocated: self.queue.wishes_in_hand(),
            queued: self.queue.waits(),
            held: self.frozen,
            min: self.options.tags_min,
            max: self.tags_max,
        }
    }

    /// Limits the commands in flight to this many, at least one and at most the slots of the port;
    /// returns the resulting limit. Commands already in flight stay there.
    pub fn set_tags(&mut self, tags: u32) -> u32 {
        let tags = tags.clamp(self.options.tags_min.clamp(1, self.slots), self.slots);
        (self.tags_max, self.openings, self.good_since) = (tags, tags, 0);
        tags
    }

    /// Starts nothing until [`release`](Self::release) has been called as many times as this.
    /// Requests are still accepted, and commands in flight still end.
    pub fn freeze(&mut self) {
        self.frozen += 1;
        self.queue.hold();
    }

    /// Undoes one [`freeze`](Self::freeze); the next poll starts what waits.
    pub fn release(&mut self) {
        if self.frozen > 0 {
            self.frozen -= 1;
            self.queue.release();
        }
    }

    /// The events that the unit has reported since the last call.
    pub fn take_attention(&mut self) -> Attention {
        core::mem::take(&mut self.attention)
    }

    /// Whether the unit or its port is permanently gone.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// Call this if a scan found that the unit is permanently gone: waiting requests end with an
    /// error, commands in flight when the port ends them.
    pub fn lose(&mut self) {
        self.set_gone();
    }

    /// Call this if a scan found that the unit is back, and the port is working. No request may be
    /// pending. Earlier events and earlier deferred failures are forgotten.
    ///
    /// # Errors
    /// As [`reshape`](Self::reshape); the unit is gone then.
    pub fn find_again(&mut self, shape: Shape) -> Result<(), CamError> {
        self.gone = false;
        self.reshape(shape).inspect_err(|_| self.set_gone())?;
        (self.rescue, self.attention) = (Rescue::default(), Attention::default());
        (self.deferred, self.ask_again) = (None, None);
        Ok(())
    }

    /// Call this if a scan found that the unit has a different shape: another size, or a cache that
    /// was switched. Pending requests keep to the old shape, and the unit refuses what it no longer
    /// has.
    ///
    /// # Errors
    /// [`CamError::BlockSize`] for blocks of another size and [`CamError::NotADisk`] for another
    /// unit, because those are different disks; otherwise as [`new`](Self::new). The disk is
    /// unchanged.
    pub fn reshape(&mut self, shape: Shape) -> Result<(), CamError> {
        let Shape { unit, block_size, .. } = shape;
        if unit != self.shape.unit {
            return Err(CamError::NotADisk { unit });
        }
        if block_size != self.shape.block_size {
            return Err(CamError::BlockSize { unit, block_size });
        }
        let limits = self.port.limits();
        let geometry = Self::plan(limits, &shape, self.scratch.len(), &self.options)?;
        self.transfer_max = geometry.transfer_max >> self.range_shift;
        self.delete_max = delete_max(&shape, self.range_shift);
        (self.shape, self.geometry) = (shape, geometry);
        self.single = Single::new(&geometry);
        if self.gone {
            self.single.close();
        }
        Ok(())
    }
}

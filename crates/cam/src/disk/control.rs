//! What the owner of a disk does to it beside giving it requests: tags, freezing, another size.

use flysch_api::command::Port;

use super::rescue::Rescue;
use super::single::Single;
use super::{Disk, Shape, delete_max};
use crate::error::Error;
use crate::family::{Attention, Family};

/// How a disk's queue stands: what `camcontrol tags -v` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tags {
    /// Commands that could be started now (dev_openings).
    pub openings: u32,
    /// Commands in flight (dev_active).
    pub active: u32,
    /// Requests in hand (allocated).
    pub allocated: u32,
    /// Requests and commands that wait for their turn (queued).
    pub queued: u32,
    /// How often the disk is frozen (held).
    pub held: u32,
    /// What TASK SET FULL leaves at least (mintags).
    pub min: u32,
    /// What there may be at most (maxtags).
    pub max: u32,
}

impl<P: Port> Disk<P>
where
    P::Protocol: Family,
{
    /// How the queue stands.
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

    /// Has at most so many commands in flight from now on, at least one and never more than the
    /// port has slots; answers how many that is. What is in flight stays there.
    pub fn set_tags(&mut self, tags: u32) -> u32 {
        let tags = tags.clamp(self.options.tags_min.clamp(1, self.slots), self.slots);
        (self.tags_max, self.openings, self.good_since) = (tags, tags, 0);
        tags
    }

    /// Starts nothing until [`release`](Self::release) was called as often as this. Requests are
    /// taken, and what is in flight ends.
    pub fn freeze(&mut self) {
        self.frozen += 1;
        self.queue.hold();
    }

    /// Takes one [`freeze`](Self::freeze) back; the next poll starts what waits.
    pub fn release(&mut self) {
        if self.frozen > 0 {
            self.frozen -= 1;
            self.queue.release();
        }
    }

    /// What the unit told since this was called last.
    pub fn take_attention(&mut self) -> Attention {
        core::mem::take(&mut self.attention)
    }

    /// Whether the unit or its port is gone for good.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// The unit is gone for good, as a scan found out: what waits ends with an error, what is in
    /// flight when the port ends it.
    pub fn lose(&mut self) {
        self.set_gone();
    }

    /// The unit is there again after it was gone, as a scan found out, and the port is in order.
    /// Nothing may be in hand. What it told before, and what failed late before, is forgotten.
    ///
    /// # Errors
    /// As [`reshape`](Self::reshape); it is gone then.
    pub fn find_again(&mut self, shape: Shape) -> Result<(), Error> {
        self.gone = false;
        self.reshape(shape).inspect_err(|_| self.set_gone())?;
        (self.rescue, self.attention) = (Rescue::default(), Attention::default());
        (self.deferred, self.ask_again) = (None, None);
        Ok(())
    }

    /// The unit has another shape, as a scan found out: another size, a cache that was switched.
    /// Requests in hand keep to the old one, and the unit refuses what it no longer has.
    ///
    /// # Errors
    /// [`Error::BlockSize`] for blocks of another size and [`Error::NotADisk`] for another unit:
    /// those are other disks; else as [`new`](Self::new). The disk is as it was.
    pub fn reshape(&mut self, shape: Shape) -> Result<(), Error> {
        let Shape { unit, block_size, .. } = shape;
        if unit != self.shape.unit {
            return Err(Error::NotADisk { unit });
        }
        if block_size != self.shape.block_size {
            return Err(Error::BlockSize { unit, block_size });
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

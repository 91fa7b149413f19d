//! The queue depths of device and units, and each lane's share of them.

use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Maximum number of logical units.
pub(crate) const UNITS: usize = 32;

/// The queue depths of device and units, for all lanes together; each lane has its share. Nothing
/// is counted across lanes, because that would cost every command a shared cache line.
#[derive(Debug)]
pub(crate) struct Bounds {
    /// The number of lanes that share, and the first of them.
    lanes: usize,
    first: usize,
    /// 0 means no bound.
    device: AtomicU32,
    units: [AtomicU8; UNITS],
}

impl Bounds {
    pub(crate) fn new(lanes: usize, first: usize) -> Self {
        let units = [const { AtomicU8::new(0) }; UNITS];
        Self { lanes: lanes - first, first, device: AtomicU32::new(0), units }
    }

    /// Host: publishes what bring-up has learnt; 0 means no bound. It takes effect with the next
    /// order.
    pub(crate) fn publish(&self, device: u32, units: [u8; UNITS]) {
        self.device.store(device, Ordering::Relaxed);
        for (place, depth) in self.units.iter().zip(units) {
            place.store(depth, Ordering::Relaxed);
        }
    }

    /// A lane's share of the device's queue depth.
    pub(crate) fn of_device(&self, lane: usize) -> Option<usize> {
        self.share(self.device.load(Ordering::Relaxed) as usize, lane)
    }

    /// A lane's share of a unit's queue depth.
    pub(crate) fn of_unit(&self, lun: usize, lane: usize) -> Option<usize> {
        self.share(self.units.get(lun)?.load(Ordering::Relaxed).into(), lane)
    }

    /// At least one, because otherwise the lane could never start anything.
    fn share(&self, total: usize, lane: usize) -> Option<usize> {
        let lane = lane.saturating_sub(self.first);
        let share = total / self.lanes + usize::from(lane < total % self.lanes);
        (total != 0).then_some(share.max(1))
    }
}

/// One lane's share, and what it has in flight for each unit.
#[derive(Debug)]
pub(crate) struct Share {
    lane: usize,
    /// Commands that the lane may have in flight.
    budget: usize,
    /// Whether some unit has a smaller queue depth than the lane has slots.
    bounds_units: bool,
    in_unit: [u8; UNITS],
}

impl Share {
    /// Nothing is known yet, so the number of slots is the bound.
    pub(crate) fn new(lane: usize, slots: usize) -> Self {
        Self { lane, budget: slots, bounds_units: false, in_unit: [0; UNITS] }
    }

    /// Takes over what bring-up has found out, for a lane of `slots` slots.
    pub(crate) fn learn(&mut self, bounds: &Bounds, slots: usize) {
        self.budget = bounds.of_device(self.lane).map_or(slots, |n| n.min(slots));
        let is_less = |lun| bounds.of_unit(lun, self.lane).is_some_and(|n| n < slots);
        self.bounds_units = (0..UNITS).any(is_less);
    }

    pub(crate) fn budget(&self) -> usize {
        self.budget
    }

    /// Whether commands are counted for each unit.
    pub(crate) fn bounds_units(&self) -> bool {
        self.bounds_units
    }

    /// Counts a command for its unit; `false` if the lane's share of the unit is used up.
    pub(crate) fn enter(&mut self, lun: u8, bounds: &Bounds) -> bool {
        let bound = bounds.of_unit(lun.into(), self.lane);
        let Some(count) = self.in_unit.get_mut(usize::from(lun)) else { return true };
        if bound.is_some_and(|bound| usize::from(*count) >= bound) {
            return false;
        }
        *count += 1;
        true
    }

    /// Removes it from the count.
    #[cold]
    pub(crate) fn leave(&mut self, lun: u8) {
        if let Some(count) = self.in_unit.get_mut(usize::from(lun)) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_share_what_the_device_queues() {
        let bounds = Bounds::new(4, 1);
        assert_eq!(bounds.of_device(0), None);
        let mut units = [0; UNITS];
        units[4] = 2;
        bounds.publish(32, units);
        let shares = [1, 2, 3].map(|lane| bounds.of_device(lane));
        assert_eq!(shares, [Some(11), Some(11), Some(10)]);
        assert_eq!([1, 2, 3].map(|lane| bounds.of_unit(4, lane)), [Some(1); 3]);
        assert_eq!((bounds.of_unit(5, 0), bounds.of_unit(0xD0, 0)), (None, None));
    }

    #[test]
    fn a_unit_takes_its_share_and_no_more() {
        let bounds = Bounds::new(2, 0);
        let mut units = [0; UNITS];
        units[1] = 3;
        bounds.publish(8, units);
        let mut share = Share::new(0, 16);
        share.learn(&bounds, 16);
        assert_eq!((share.budget(), share.bounds_units()), (4, true));
        assert_eq!([1, 1, 1].map(|lun| share.enter(lun, &bounds)), [true, true, false]);
        assert!(share.enter(0, &bounds), "a unit without a queue of its own");
        share.leave(1);
        assert!(share.enter(1, &bounds));
        // Well-known units are not counted.
        assert!((0..100).all(|_| share.enter(0xD0, &bounds)));
        share.leave(0xD0);
    }
}

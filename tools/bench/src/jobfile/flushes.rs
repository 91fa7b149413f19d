//! When a job flushes: four options of fio, each with its own number, which meet in two.

/// The options as given; 0 and `false` are none.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flushes {
    /// `fsync`: after this many writes.
    pub(super) every: u32,
    /// `fdatasync`: after this many writes; a disk knows one kind of flush.
    pub(super) every_data: u32,
    /// `end_fsync`.
    pub(super) at_end: bool,
    /// `fsync_on_close`.
    pub(super) on_close: bool,
}

impl Flushes {
    /// Writes between two flushes, 0 if there are none, and whether there is one behind the last
    /// write.
    pub(super) fn both(self) -> (u32, bool) {
        let every = match (self.every, self.every_data) {
            (0, only) | (only, 0) => only,
            (one, other) => one.min(other),
        };
        (every, self.at_end || self.on_close)
    }

    /// What is wrong with them together.
    pub(super) fn contradiction(self) -> Option<&'static str> {
        let (less, more) = (self.every.min(self.every_data), self.every.max(self.every_data));
        let is_one = less == 0 || more.is_multiple_of(less);
        (!is_one).then_some("fsync and fdatasync must be multiples of each other, or one of them 0")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_undoes_the_others() {
        let of = |every, every_data| Flushes { every, every_data, ..Flushes::default() };
        assert_eq!(of(8, 0).both(), (8, false));
        assert_eq!(of(0, 4).both(), (4, false));
        assert_eq!(of(8, 4).both(), (4, false));
        assert!(of(8, 4).contradiction().is_none() && of(0, 3).contradiction().is_none());
        assert!(of(3, 4).contradiction().is_some());
        assert!(Flushes { on_close: true, ..Flushes::default() }.both().1);
        assert!(Flushes { at_end: true, ..Flushes::default() }.both().1);
    }
}

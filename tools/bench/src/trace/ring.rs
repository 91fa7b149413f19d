//! The records of one lane: a ring of fixed size that keeps the newest.

use flysch_api::trace::Record;

/// Keeps the last records pushed. Allocated once.
#[derive(Debug)]
pub struct Ring {
    records: Vec<Record>,
    capacity: usize,
    pushed: u64,
}

impl Ring {
    /// A ring that keeps `capacity` records, at least one.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1);
        Self { records: Vec::with_capacity(capacity), capacity, pushed: 0 }
    }

    /// Adds a record, replacing the oldest if the ring is full.
    #[inline]
    pub fn push(&mut self, record: Record) {
        if self.records.len() < self.capacity {
            self.records.push(record);
        } else {
            let place = self.pushed % self.capacity as u64;
            self.records[place as usize] = record;
        }
        self.pushed += 1;
    }

    /// Records pushed that are no longer kept.
    pub fn lost(&self) -> u64 {
        self.pushed - self.records.len() as u64
    }

    /// Number of records kept.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The records kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        let oldest =
            if self.lost() > 0 { (self.pushed % self.capacity as u64) as usize } else { 0 };
        self.records[oldest..].iter().chain(&self.records[..oldest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_api::block::Operation;
    use flysch_api::trace::Stamps;

    fn record(offset: u64) -> Record {
        let stamps = Stamps::default();
        let operation = Operation::Read;
        Record { stamps, offset, length: 512, slot: 0, lane: 0, operation, failed: false }
    }

    #[test]
    fn keeps_the_newest_in_order_without_growing() {
        let mut ring = Ring::new(4);
        let room = ring.records.capacity();
        for offset in 0..10 {
            ring.push(record(offset));
            let kept: Vec<u64> = ring.iter().map(|r| r.offset).collect();
            let first = (offset + 1).saturating_sub(4);
            assert_eq!(kept, (first..=offset).collect::<Vec<_>>());
            assert_eq!(ring.lost(), first);
        }
        assert_eq!(ring.records.capacity(), room);
    }
}

//! A disk and a clock for the tests of protocols; not for real data.

use flysch_random::SplitMix64;
use std::cell::Cell;

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Completion, Operation, Refused, Request,
};
use flysch_api::data::Data;
use flysch_api::machine::{Clock, DmaRegion, Instant, Wake};
use flysch_api::trace::Passage;

/// The content after a trim.
pub const TRIMMED: u8 = 0xDE;

/// Time that advances with each query.
#[derive(Debug, Default)]
pub struct Ticks(Cell<u64>);

impl Clock for Ticks {
    fn now(&self) -> Instant {
        self.0.set(self.0.get() + 1);
        Instant::from_nanos(self.0.get())
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        match until {
            Some(_) => Wake::Deadline,
            None => Wake::Idle,
        }
    }
}

/// A disk in memory that executes requests some time after accepting them, in random order.
#[derive(Debug)]
pub struct Disk {
    /// Its content.
    pub content: Vec<u8>,
    /// A read of this byte fails.
    pub bad: Option<u64>,
    geometry: BlockGeometry,
    memory: DmaRegion,
    waiting: Vec<Request>,
    random: SplitMix64,
}

impl Disk {
    /// A disk with these properties, filled with `fill`, with `memory` bytes for data.
    pub fn new(geometry: BlockGeometry, memory: usize, fill: u8) -> Self {
        let memory = DmaRegion::zeroed(memory, 0x1000);
        let content = vec![fill; geometry.bytes() as usize];
        Self {
            content,
            bad: None,
            geometry,
            memory,
            waiting: Vec::new(),
            random: SplitMix64::new(7),
        }
    }

    /// The location of data in its memory: jobs have one range each.
    fn place(&self, data: &Data, length: usize) -> usize {
        let Data::One(slice) = data else { panic!("a list of ranges") };
        self.memory.offset_of(slice.address, length).expect("in its memory")
    }

    fn carry_out(&mut self, request: &Request) -> Result<(), BlockError> {
        let range = request.offset..request.offset + request.length;
        let bytes = range.start as usize..range.end as usize;
        match request.operation {
            Operation::Flush => {}
            Operation::Delete => self.content[bytes].fill(TRIMMED),
            Operation::Read if self.bad.is_some_and(|bad| range.contains(&bad)) => {
                return Err(BlockError::TimedOut);
            }
            Operation::Read => {
                let place = self.place(&request.data, bytes.len());
                self.memory.write(place, &self.content[bytes]);
            }
            Operation::Write => {
                let place = self.place(&request.data, bytes.len());
                self.memory.read(place, &mut self.content[bytes]);
            }
        }
        Ok(())
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    fn submit(&mut self, request: &Request, _now: Instant) -> Result<(), Refused> {
        self.geometry.check(request).map_err(Refused::Invalid)?;
        if self.waiting.len() == self.geometry.queue_depth as usize {
            return Err(Refused::Full);
        }
        self.waiting.push(*request);
        Ok(())
    }

    fn ring(&mut self, _now: Instant) {}

    fn poll(&mut self, _now: Instant) -> Option<Completion> {
        if self.waiting.is_empty() || self.random.modulo(3) == 0 {
            return None;
        }
        let at = self.random.modulo(self.waiting.len() as u64) as usize;
        let request = self.waiting.swap_remove(at);
        let result = self.carry_out(&request);
        Some(Completion { token: request.token, result, passage: Passage::default() })
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

//! A lane of a disk, in the form used by a way through a graph; and the same disk for changing
//! metadata.

use std::cell::RefCell;
use std::rc::Rc;

use flysch_api::block::{BlockDevice, BlockGeometry, Completion, Refused, Request};
use flysch_api::machine::{Clock, DmaRegion, Instant, Wake};

use crate::blocks::{Blocks, BlocksError, OnDevice};
use crate::stack::{Stack, UseLane};

/// Bytes of memory, behind the requests' part, for reading and writing metadata.
pub const CONTROL: usize = crate::blocks::MEMORY;

/// A lane of a disk. Several such lanes share its stack, one at a time.
#[derive(Clone, Debug)]
pub struct DiskLane {
    stack: Rc<RefCell<Stack>>,
    number: usize,
    geometry: BlockGeometry,
    memory: DmaRegion,
}

struct Submit<'a>(&'a Request, Instant);

impl UseLane for Submit<'_> {
    type Output = Result<(), Refused>;

    #[inline]
    fn on<D: BlockDevice>(self, lane: &mut D) -> Self::Output {
        lane.submit(self.0, self.1)
    }
}

struct Ring(Instant);

impl UseLane for Ring {
    type Output = ();

    #[inline]
    fn on<D: BlockDevice>(self, lane: &mut D) {
        lane.ring(self.0);
    }
}

struct Poll(Instant);

impl UseLane for Poll {
    type Output = Option<Completion>;

    #[inline]
    fn on<D: BlockDevice>(self, lane: &mut D) -> Self::Output {
        lane.poll(self.0)
    }
}

struct PollAt;

impl UseLane for PollAt {
    type Output = Option<Instant>;

    fn on<D: BlockDevice>(self, lane: &mut D) -> Self::Output {
        lane.poll_at()
    }
}

/// Properties and memory.
struct Shape;

impl UseLane for Shape {
    type Output = (BlockGeometry, DmaRegion);

    fn on<D: BlockDevice>(self, lane: &mut D) -> Self::Output {
        (*lane.geometry(), lane.memory().clone())
    }
}

impl DiskLane {
    /// Lane `number` of a stack that was opened with [`CONTROL`] bytes more than requests need,
    /// which this lane does not use.
    pub(super) fn new(stack: &Rc<RefCell<Stack>>, number: usize) -> Self {
        let (geometry, memory) = stack.borrow_mut().on_lane(number, Shape);
        let requests = memory.len().saturating_sub(CONTROL);
        Self { stack: Rc::clone(stack), number, geometry, memory: memory.carve(0, requests) }
    }

    #[inline]
    fn on<U: UseLane>(&self, what: U) -> U::Output {
        self.stack.borrow_mut().on_lane(self.number, what)
    }

    /// Bytes of a lane's disk.
    pub(super) fn bytes_of(stack: &mut Stack, number: usize) -> u64 {
        stack.on_lane(number, Shape).0.bytes()
    }

    /// The disk for changing metadata while no requests are in flight.
    #[must_use]
    pub fn control(&self) -> Control {
        let (_, memory) = self.on(Shape);
        let memory = memory.carve(self.memory.len(), memory.len() - self.memory.len());
        Control { lane: Self { memory, ..self.clone() } }
    }

    /// Whether it can be used under the models' clock.
    #[must_use]
    pub fn is_timeless(&self) -> bool {
        self.stack.borrow().is_timeless()
    }

    /// Its description for people.
    #[must_use]
    pub fn description(&self) -> String {
        self.stack.borrow().description().to_string()
    }
}

impl BlockDevice for DiskLane {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        self.on(Submit(request, now))
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.on(Ring(now));
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        self.on(Poll(now))
    }

    fn poll_at(&self) -> Option<Instant> {
        self.on(PollAt)
    }
}

/// A disk as bytes, through memory not used for requests.
#[derive(Clone, Debug)]
pub struct Control {
    lane: DiskLane,
}

/// The clock of a stack that is used by others between the calls.
#[derive(Clone, Debug)]
pub struct StackClock(pub(super) Rc<RefCell<Stack>>);

impl Clock for StackClock {
    fn now(&self) -> Instant {
        self.0.borrow_mut().now()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        self.0.borrow_mut().wait(until)
    }
}

impl Control {
    fn with<R>(
        &mut self,
        act: impl FnOnce(&mut dyn Blocks) -> Result<R, BlocksError>,
    ) -> Result<R, BlocksError> {
        let clock = StackClock(Rc::clone(&self.lane.stack));
        act(&mut OnDevice::new(&mut self.lane, &clock))
    }
}

impl Blocks for Control {
    fn geometry(&self) -> BlockGeometry {
        // A scan may have found another size.
        self.lane.on(Shape).0
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), BlocksError> {
        self.with(|blocks| blocks.read(offset, to))
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), BlocksError> {
        self.with(|blocks| blocks.write(offset, from))
    }

    fn flush(&mut self) -> Result<(), BlocksError> {
        self.with(|blocks| blocks.flush())
    }
}

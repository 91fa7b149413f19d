//! Common parts of the stacks on a host controller: a disk on a port, and the plan of the memory.

use flysch_api::block::{
    self, BlockDevice as _, BlockError, BlockGeometry, Completion, Operation, Refused, Request,
};
use flysch_api::command::Port;
use flysch_api::crypto::CryptoContext;
use flysch_api::data::BadData;
use flysch_api::machine::{DmaRegion, Instant};
use flysch_bench::file::File;
use flysch_bench::null::Null;
use flysch_cam::{Disk, Family, Shape, Tags};
use flysch_vfio::Spin;

use crate::open::{Needs, Tagged};

/// A disk on one port that shows its user only the user's memory.
#[derive(Debug)]
pub struct Lane<P: Port> {
    pub(crate) disk: Disk<P>,
    pub(crate) memory: DmaRegion,
    /// The key of all its data, and the number of the disk's first data unit.
    pub(crate) crypto: Option<CryptoContext>,
    /// Notified of each doorbell if the waiting thread polls for a while before sleeping.
    spin: Option<Spin>,
}

impl<P: Port> Lane<P>
where
    P::Protocol: Family,
{
    /// The lane of `disk`, whose users see `memory`.
    pub(crate) fn new(disk: Disk<P>, memory: DmaRegion) -> Self {
        Self { disk, memory, crypto: None, spin: None }
    }

    /// From now on doorbells are reported to `spin`.
    pub(crate) fn tell(&mut self, spin: Option<Spin>) {
        self.spin = spin;
    }

    /// The disk.
    pub fn disk(&self) -> &Disk<P> {
        &self.disk
    }

    /// The request with the key of the whole disk. A request that starts within a data unit cannot
    /// be encrypted.
    fn submit_encrypted(
        &mut self,
        request: &Request,
        disk: CryptoContext,
        now: Instant,
    ) -> Result<(), Refused> {
        let has_data = matches!(request.operation, Operation::Read | Operation::Write);
        if has_data && !disk.is_whole(request.offset) {
            return Err(Refused::Invalid(BlockError::BadData(BadData::DataUnit)));
        }
        let crypto = has_data.then(|| disk.after(request.offset));
        self.disk.submit(&Request { crypto, ..*request }, now)
    }
}

impl<P: Port> Tagged for Lane<P>
where
    P::Protocol: Family,
{
    fn tags(&self) -> Option<Tags> {
        Some(self.disk.tags())
    }

    fn set_tags(&mut self, tags: u32) -> Option<u32> {
        Some(self.disk.set_tags(tags))
    }
}

impl Tagged for File {}
impl Tagged for Null {}

impl<P: Port> block::BlockDevice for Lane<P>
where
    P::Protocol: Family,
{
    fn geometry(&self) -> &BlockGeometry {
        self.disk.geometry()
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    #[inline]
    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        match self.crypto {
            None => self.disk.submit(request, now),
            Some(disk) => self.submit_encrypted(request, disk, now),
        }
    }

    fn submit_ordered(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        match self.crypto {
            None => self.disk.submit_ordered(request, now),
            Some(_) => Err(Refused::Invalid(BlockError::Unsupported)),
        }
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.disk.ring(now);
        if let Some(spin) = &self.spin {
            spin.rang(now);
        }
    }

    #[inline]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        self.disk.poll(now)
    }

    fn poll_at(&self) -> Option<Instant> {
        self.disk.poll_at()
    }
}

/// The parameters of a driver and its disks, so that they can be created again: a controller that
/// was pulled out and put back needs a new driver.
#[derive(Clone, Debug)]
pub(crate) struct Base<O> {
    pub(crate) region: DmaRegion,
    pub(crate) plan: MemoryPlan,
    pub(crate) options: O,
}

impl<O> Base<O> {
    /// The driver's own memory.
    pub(crate) fn driver(&self) -> DmaRegion {
        self.plan.driver(&self.region)
    }

    /// A disk with these properties on a port, as lane `number`.
    pub(crate) fn lane<P: Port>(
        &self,
        number: usize,
        port: P,
        shape: Shape,
    ) -> Result<Lane<P>, flysch_cam::CamError>
    where
        P::Protocol: Family,
    {
        self.lane_with(number, (port, shape), &Default::default())
    }

    /// The same with options of the disk.
    pub(crate) fn lane_with<P: Port>(
        &self,
        number: usize,
        (port, shape): (P, Shape),
        options: &flysch_cam::DiskOptions,
    ) -> Result<Lane<P>, flysch_cam::CamError>
    where
        P::Protocol: Family,
    {
        let scratch = self.plan.scratch(&self.region, number);
        let disk = Disk::new(port, shape, scratch, options)?;
        Ok(Lane::new(disk, self.plan.data(&self.region)))
    }

    /// Disks with their former properties, on the ports of a new driver; all of them are gone until
    /// a scan finds them again.
    pub(crate) fn lanes_again<P: Port>(
        &self,
        ports: Vec<P>,
        shapes: &[Shape],
    ) -> Result<Vec<Lane<P>>, flysch_cam::CamError>
    where
        P::Protocol: Family,
    {
        let again = |(number, (port, shape)): (usize, (P, &Shape))| {
            let mut lane = self.lane(number, port, *shape)?;
            lane.disk.lose();
            Ok(lane)
        };
        ports.into_iter().zip(shapes).enumerate().map(again).collect()
    }
}

/// Lanes of one disk: the result of a scan, or that it found nothing.
pub(crate) fn scanned<P: Port>(lanes: &mut [Lane<P>], found: Option<Shape>) -> bool
where
    P::Protocol: Family,
{
    let mut is_there = found.is_some();
    for lane in lanes {
        match found {
            Some(shape) if shape == *lane.disk.shape() && !lane.disk.is_gone() => {}
            Some(shape) if !lane.disk.is_gone() => is_there &= lane.disk.reshape(shape).is_ok(),
            Some(shape) => is_there &= lane.disk.find_again(shape).is_ok(),
            None => lane.disk.lose(),
        }
    }
    is_there
}

/// The division of the machine's memory: data first, at the region's start, then the driver, then
/// the disks' scratch memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryPlan {
    data: usize,
    driver: usize,
    scratch: usize,
    lanes: usize,
    /// Where the driver's part begins.
    own: usize,
}

/// Parts start at page boundaries.
const PAGE: usize = 4096;

/// Device address of the memory of modelled machines: not 0, so that a forgotten address is
/// noticed.
pub(crate) const MEMORY_ADDRESS: u64 = 0x1_0000_0000;

/// Bytes of the part for requests.
pub(crate) fn data_bytes(needs: &Needs) -> usize {
    (needs.memory * usize::from(needs.lanes.max(1))).next_multiple_of(PAGE)
}

impl MemoryPlan {
    /// For this many lanes, a driver that needs `driver` bytes and disks that need `scratch` each.
    pub(crate) fn new(needs: &Needs, lanes: usize, driver: usize, scratch: usize) -> Self {
        let data = data_bytes(needs);
        let driver = (driver + PAGE).next_multiple_of(PAGE);
        Self { data, driver, scratch, lanes, own: data }
    }

    /// The other parts start there: memory of several stacks that share the data part.
    pub(crate) fn from(self, own: usize) -> Self {
        Self { own, ..self }
    }

    pub(crate) fn total(&self) -> usize {
        self.data + self.own()
    }

    /// Bytes not used for requests.
    pub(crate) fn own(&self) -> usize {
        (self.driver + self.scratch * self.lanes).next_multiple_of(PAGE)
    }

    /// The memory of requests.
    pub(crate) fn data(&self, region: &DmaRegion) -> DmaRegion {
        region.carve(0, self.data)
    }

    /// The driver's own memory.
    pub(crate) fn driver(&self, region: &DmaRegion) -> DmaRegion {
        region.carve(self.own, self.driver)
    }

    /// The memory of a disk's parameter lists.
    pub(crate) fn scratch(&self, region: &DmaRegion, lane: usize) -> DmaRegion {
        region.carve(self.own + self.driver + lane * self.scratch, self.scratch)
    }
}

//! Hot plug of models: disks that are taken off their controller and put back, and controllers.
//!
//! Pulling something out is sudden: requests in flight end as the driver notices, one by one.
//! Everything else - putting back, scanning - is done while nothing is in flight on any disk of the
//! controller.

mod ahci;
mod emmc;
mod nvme;
mod ufs;

use flysch_api::command::Port;
use flysch_api::machine::Instant;
use flysch_cam::{Attention, Family, Shape};

use crate::error::TargetError;
use crate::lane::Lane;

/// What is pulled out or put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A disk, by its position at the controller.
    Disk(usize),
    /// The controller, with all of its disks.
    Controller,
}

/// The address of a disk, in CAM's terms.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The controller's driver.
    pub(crate) controller: &'static str,
    /// The driver of its disks.
    pub(crate) periph: &'static str,
    pub(crate) target: u32,
    /// The logical unit.
    pub(crate) lun: u64,
}

/// A modelled controller that can be pulled out itself, as can its disks.
pub(crate) trait Plug {
    /// The address of a disk, for the table of devices.
    fn place(&self, disk: usize) -> Place;

    /// Whether a disk can be pulled without its controller.
    fn has_loose_disks(&self) -> bool;

    /// Pulls it out, whatever is in flight.
    fn pull(&mut self, part: Part);

    /// Puts it back; after a controller, its disks have to be scanned.
    ///
    /// # Errors
    /// Why the controller does not come up.
    fn put_back(&mut self, part: Part) -> Result<(), TargetError>;

    /// Scans for a disk; from then on requests to it are executed, or end at once.
    fn scan(&mut self, disk: usize) -> bool;

    /// Events that a disk, or its driver, has reported since the last call: unit attentions, and
    /// its removal. This does not access the device.
    fn told(&mut self, disk: usize) -> Attention;

    /// Whether a lost disk seems to be there again, because its driver saw it appear. This neither
    /// accesses the device nor consumes events of other disks, whatever is in flight there.
    fn came(&mut self, _disk: usize, _now: Instant) -> bool {
        false
    }
}

/// Has a new driver bring up the controller of a stack, which was put back; its disks have to be
/// scanned again.
macro_rules! reopen {
    ($stack:expr, $host:ident) => {{
        let shapes = shapes(&$stack.lanes);
        let (memory, options) = ($stack.base.driver(), $stack.base.options.clone());
        let mut host = $host::new($stack.machine.clone(), memory, options)?;
        // The old one lets go before the new one begins.
        $stack.lanes.clear();
        let up = host.bring_up(&$stack.machine);
        $stack.lanes = $stack.base.lanes_again(host.into_ports(), &shapes)?;
        up?;
        Ok(())
    }};
}
use reopen;

/// Unit attentions of the unit behind these lanes.
fn attention<P: Port>(lanes: &mut [Lane<P>]) -> Attention
where
    P::Protocol: Family,
{
    let mut all = lanes.iter_mut().map(|lane| lane.disk.take_attention());
    // What another lane was told waits for the next time.
    all.find(|told| *told != Attention::default()).unwrap_or_default()
}

/// The properties of the disks on these lanes.
fn shapes<P: Port>(lanes: &[Lane<P>]) -> Vec<Shape>
where
    P::Protocol: Family,
{
    lanes.iter().map(|lane| *lane.disk().shape()).collect()
}

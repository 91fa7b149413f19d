//! Hot plug of models: disks that are taken off their controller and put back, and controllers.
//!
//! Pulling something out is sudden: what is in flight ends as the driver finds it out, request by
//! request. Everything else - putting back, looking what is there - is done while nothing is under
//! way on any disk of the controller.

mod ahci;
mod emmc;
mod nvme;
mod ufs;

use flysch_api::command::Port;
use flysch_api::machine::Instant;
use flysch_cam::{Attention, Family, Shape};

use crate::error::Error;
use crate::lane::Lane;

/// What is pulled out or put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A disk, by its place at the controller.
    Disk(usize),
    /// The controller, with all of its disks.
    Controller,
}

/// Where a disk is, as CAM calls it.
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

/// A modelled controller whose disks come and go, and so does it.
pub(crate) trait Plug {
    /// Where a disk is, for the table of devices.
    fn place(&self, disk: usize) -> Place;

    /// Whether a disk can be pulled without its controller.
    fn has_loose_disks(&self) -> bool;

    /// Pulls it out, whatever is under way.
    fn pull(&mut self, part: Part);

    /// Puts it back; after a controller its disks are to be looked for.
    ///
    /// # Errors
    /// What keeps the controller from coming up.
    fn put_back(&mut self, part: Part) -> Result<(), Error>;

    /// Looks whether a disk is there; from then on requests to it are done, or end at once.
    fn scan(&mut self, disk: usize) -> bool;

    /// What a disk, or the driver about it, told by itself since this was asked last: unit
    /// attentions, and that it went. Nothing is asked of the device.
    fn told(&mut self, disk: usize) -> Attention;

    /// Whether a disk that was lost seems to be there again: its driver saw it come. Nothing is
    /// asked of the device, and nothing of other disks is taken, whatever is under way there.
    fn came(&mut self, _disk: usize, _now: Instant) -> bool {
        false
    }
}

/// Has a new driver bring up the controller of a stack, which was put back; its disks are to be
/// found again.
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

/// What the unit behind these lanes told by unit attentions.
fn attention<P: Port>(lanes: &mut [Lane<P>]) -> Attention
where
    P::Protocol: Family,
{
    let mut all = lanes.iter_mut().map(|lane| lane.disk.take_attention());
    // What another lane was told waits for the next time.
    all.find(|told| *told != Attention::default()).unwrap_or_default()
}

/// The shapes of the disks on these lanes.
fn shapes<P: Port>(lanes: &[Lane<P>]) -> Vec<Shape>
where
    P::Protocol: Family,
{
    lanes.iter().map(|lane| *lane.disk().shape()).collect()
}

//! What is attached to a port: a device, or a multiplier and the devices behind it.

use crate::channel::{Channel, Own, Run};
use crate::fanout::Multiplier;
use crate::lane::{Lane, UNITS};
use crate::options::LinkPower;
use crate::quirks::{Quirk, Quirks};
use alloc::vec::Vec;
use flysch_api::machine::Machine;
use flysch_wire::ata::identify::set84;
use flysch_wire::ata::registers::status;
use flysch_wire::ata::{D2h, Identify};

/// The device at a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtaFacts {
    /// What it says about itself.
    pub identify: Identify,
    /// Negotiated speed: 1, 2, 3 for 1.5, 3, 6 Gb/s.
    pub speed: u8,
    /// Known deviations of the device and its HBA.
    pub quirks: Quirks,
    /// Whether commands are queued in it (NCQ).
    pub queued: bool,
    /// Whether trims are queued, too.
    pub queued_trim: bool,
    /// The deepest power state that its link may enter on its own.
    pub link_power: LinkPower,
}

/// What is attached.
#[derive(Debug)]
pub(crate) struct Attached {
    /// The devices by multiplier port; without a multiplier, only the first entry is used.
    pub(crate) devices: Vec<Option<AtaFacts>>,
    /// The devices present when everything last worked, whatever was tried since.
    pub(crate) known: Vec<Option<Identify>>,
    /// The multiplier at the port.
    pub(crate) multiplier: Option<Multiplier>,
    /// Number of devices that have appeared so far.
    pub(crate) generation: u32,
}

impl Attached {
    /// Nothing.
    pub(crate) fn new() -> Self {
        Self {
            devices: (0..UNITS).map(|_| None).collect(),
            known: (0..UNITS).map(|_| None).collect(),
            multiplier: None,
            generation: 0,
        }
    }

    /// The device at this port of the multiplier.
    pub(crate) fn device(&self, unit: u8) -> Option<&AtaFacts> {
        self.devices.get(usize::from(unit))?.as_ref()
    }

    /// Quirks of the device that the channel addresses, as last seen.
    pub(crate) fn quirks<M: Machine>(&self, channel: &Channel<M>) -> Quirks {
        self.device(channel.unit).map_or(channel.hba.quirks, |device| device.quirks)
    }

    /// Records a device; one that differs from the last starts a new generation.
    pub(crate) fn put(&mut self, unit: u8, device: AtaFacts) {
        let before = self.device(unit);
        if !before.is_some_and(|before| before.identify.is_same_device(&device.identify)) {
            self.generation = self.generation.wrapping_add(1);
        }
        self.devices[usize::from(unit)] = Some(device);
    }

    /// Forgets the device at this port of a multiplier.
    pub(crate) fn forget<M: Machine>(&mut self, lane: &mut Lane<M>, unit: u8) {
        self.devices[usize::from(unit)] = None;
        lane.set_ways(unit, None);
    }

    /// Forgets everything.
    pub(crate) fn clear<M: Machine>(&mut self, lane: &mut Lane<M>) {
        (0..UNITS as u8).for_each(|unit| self.forget(lane, unit));
        self.known.fill(None);
        self.multiplier = None;
    }

    /// Records that everything works with the present devices.
    pub(crate) fn know(&mut self) {
        let known = |device: &Option<AtaFacts>| device.as_ref().map(|d| d.identify.clone());
        self.known = self.devices.iter().map(known).collect();
    }

    /// Whether a device that was behind the multiplier before is missing.
    pub(crate) fn misses(&self, before: &[Option<Identify>]) -> bool {
        let is_away = |(unit, before): (u8, &Option<Identify>)| {
            before.is_some() && self.device(unit).is_none()
        };
        self.multiplier.is_some() && (0..).zip(before).any(is_away)
    }
}

/// The driver's own commands that the addressed device may refuse.
impl Attached {
    /// Runs one of the driver's own commands; if it fails, restarts the list and returns `None`.
    pub(crate) fn may<M: Machine>(&self, channel: &mut Channel<M>, own: Own) -> Run<Option<D2h>> {
        let fis = channel.command(own)??;
        if fis.status & (status::ERR | status::DF) == 0 {
            return Ok(Some(fis));
        }
        channel.stop_list()??;
        channel.start_list()??;
        if self.quirks(channel).has(Quirk::ErrorSticks) {
            channel.clear_error()?;
        }
        Ok(None)
    }

    /// Sets a feature; returns whether the device has it.
    #[track_caller]
    pub(crate) fn try_feature<M: Machine>(
        &self,
        channel: &mut Channel<M>,
        what: u16,
        count: u16,
    ) -> Run<bool> {
        let own = channel.own_feature(what, count);
        Ok(self.may(channel, own)?.is_some())
    }

    /// Reads a page of a log into the driver's own data; returns whether that worked.
    pub(crate) fn reads_log<M: Machine>(
        &self,
        channel: &mut Channel<M>,
        identify: &Identify,
        address: u8,
        page: u16,
    ) -> Run<bool> {
        if !identify.supports84(set84::LOGS) {
            return Ok(false);
        }
        let own = channel.own_log(address, page);
        Ok(self.may(channel, own)?.is_some())
    }
}

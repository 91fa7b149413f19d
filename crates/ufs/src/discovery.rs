//! What bring-up asks the device, and what it sets there.

use crate::board::Board;
use crate::channel::Run;
use crate::device_quirks::{DeviceName, DeviceQuirks};
use crate::management::Peer;
use crate::time::{MS, US};
use crate::{Cause, UfsError};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay};
use flysch_wire::ufs::descriptor::{DeviceDescriptor, GeometryDescriptor, UnitDescriptor};
use flysch_wire::ufs::query::{AttributeId, DescriptorId, FlagId, QueryOpcode};
use flysch_wire::ufs::upiu::QueryFields;

impl<M: Machine> Peer<M> {
    /// Starts the device's own initialisation and waits for its end.
    pub(crate) fn initialise(&mut self, timeout_ms: u32) -> Run<()> {
        let flag = |opcode| QueryFields::flag(opcode, FlagId::DeviceInit.into_bits(), 0, 0);
        let started = self.channel.once(|channel| channel.script.now().nanos());
        self.query(flag(QueryOpcode::SetFlag))??;
        let mut nap = 500 * US;
        loop {
            if !self.query(flag(QueryOpcode::ReadFlag))??.fields.flag_value() {
                return Ok(());
            }
            let now = self.channel.once(|channel| channel.script.now().nanos());
            if now.saturating_sub(started) > u64::from(timeout_ms) * MS {
                return Err(Cause::DeviceInit.into());
            }
            self.channel.sleep(nap)?;
            nap = (nap * 2).min(20 * MS);
        }
    }

    /// Reads the device descriptor and finds out which deviations the device is known for.
    pub(crate) fn learn_device(&mut self, board: &mut Board) -> Run<()> {
        let reply = self.read_descriptor(DescriptorId::Device, 0)??;
        let descriptor = DeviceDescriptor::parse(reply.bytes())
            .map_err(|why| UfsError::Descriptor("device", Some(why)))?;
        let mut name = DeviceName::default();
        if DeviceQuirks::depend_on_name(descriptor.w_manufacturer_id) {
            let string = self.read_descriptor(DescriptorId::String, descriptor.i_product_name)?;
            // Without its name a device has the quirks of its maker.
            name = string.map(|reply| DeviceName::of(reply.bytes())).unwrap_or_default();
        }
        self.device.descriptor = descriptor;
        let found = DeviceQuirks::find(descriptor.w_manufacturer_id, name.as_str());
        let of_caller = self.channel.options.device_quirks;
        let known = found.corrected(of_caller);
        let of_board = board.introduce(&mut self.channel, &descriptor, known);
        self.device.quirks = found.corrected(of_board).corrected(of_caller);
        Ok(())
    }

    /// Reads the geometry descriptor.
    pub(crate) fn learn_geometry(&mut self) -> Run<()> {
        let reply = self.read_descriptor(DescriptorId::Geometry, 0)??;
        let descriptor = GeometryDescriptor::parse(reply.bytes())
            .map_err(|why| UfsError::Descriptor("geometry", Some(why)))?;
        self.device.geometry = descriptor;
        Ok(())
    }

    /// Reads the descriptors of the logical units.
    pub(crate) fn learn_units(&mut self) -> Run<()> {
        let units = if self.device.geometry.b_max_number_lu == 1 { 32 } else { 8 };
        for lun in 0..units {
            let unit = match self.read_descriptor(DescriptorId::Unit, lun)? {
                Ok(reply) => UnitDescriptor::parse(reply.bytes()).ok(),
                Err(Cause::Query(_)) => None,
                Err(cause) => return Err(cause.into()),
            };
            self.device.units[usize::from(lun)] = unit.filter(|unit| unit.b_lu_enable != 0);
        }
        Ok(())
    }

    /// Tells the device the clock it gets from the board, which it must know before the link gets
    /// fast.
    pub(crate) fn set_reference_clock(&mut self, board: &Board) -> Run<()> {
        let of_board = || board.reference_clock().map(|clock| clock as u8);
        let wanted = self.channel.options.reference_clock.or_else(of_board);
        let Some(wanted) = wanted.map(u32::from) else { return Ok(()) };
        let id = AttributeId::RefClkFreq.into_bits();
        let ask = QueryFields::read_attribute(id, 0, 0);
        if self.query(ask)??.fields.value32() == wanted {
            return Ok(());
        }
        self.query(QueryFields::write_attribute(id, 0, 0, wanted.into()))??;
        let kept = self.query(ask)??.fields.value32();
        if kept != wanted {
            return Err(Cause::ReferenceClock(kept as u8).into());
        }
        Ok(())
    }

    /// Allows as many READY TO TRANSFER requests as both ends can have.
    pub(crate) fn set_rtt(&mut self) -> Run<()> {
        let id = AttributeId::MaxNumOfRtt.into_bits();
        let of_host = self.channel.cap.nortt().saturating_add(1);
        let wanted = self.device.descriptor.b_device_rtt_cap.min(of_host);
        let present = self.query(QueryFields::read_attribute(id, 0, 0))??.fields.value32();
        // Raised only: the attribute is persistent, and a higher value was someone's choice.
        if present < u32::from(wanted) {
            self.query(QueryFields::write_attribute(id, 0, 0, wanted.into()))??;
        }
        Ok(())
    }

    /// Tells the lanes how much the device queues: bQueueDepth of all its units together, 0 where
    /// each has its own, and bLUQueueDepth of a unit, 0 where it shares the device's.
    pub(crate) fn publish_bounds(&mut self) {
        let Self { channel, queues, device } = self;
        let of_unit =
            |unit: &Option<UnitDescriptor>| unit.as_ref().map_or(0, |u| u.b_lu_queue_depth);
        let queued = device.descriptor.b_queue_depth;
        channel.effect(|channel| {
            let units = core::array::from_fn(|lun| of_unit(&device.units[lun]));
            channel.shared.bounds.publish(queued.into(), units);
            if queues.shape.mcq {
                queues.bound_active_commands(channel, queued);
            }
        });
    }
}

//! Operations of a port other than commands to its disk, and their results.

use crate::channel::{Channel, Own, Run};
use crate::error::{AhciError, Cause};
use crate::init::Core;
use crate::lane::UNITS;
use crate::layout::OWN_DATA;
use crate::options::LinkPower;
use crate::quirks::Quirk;
use crate::taskfile::fis;
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::command::{AtaProtocol, AtaStatus, Taskfile};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay};
use flysch_wire::ata::command::device;
use flysch_wire::ata::multiplier::CONTROL_PORT;
use flysch_wire::ata::registers::{
    EM_CTL, EM_LOC, EmCtl, EmLoc, LED_HEADER, LedMessage, PORTS, status,
};
use flysch_wire::ata::{Kind, Opcode};

/// How often a message is checked for having been sent, and the pause between two checks in
/// nanoseconds (Linux: five times, a millisecond).
const MESSAGE_LOOKS: u32 = 50;
const MESSAGE_REST_NS: u64 = 1_000_000;

/// An operation of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// COMRESET. Commands in flight end with a reset.
    Reset,
    /// Flushes the device's write cache and parks it (STANDBY IMMEDIATE); the port is then closed
    /// until a reset.
    Shutdown,
    /// An unqueued command, run once the device has no other.
    Command(Box<AtaCommand>),
    /// The deepest power state that the link may enter on its own; the link is re-established.
    LinkPower(LinkPower),
    /// The LEDs of any port (enclosure management, LED messages). The HBA has one buffer for these
    /// messages, so the first port sends all of them.
    Leds(LedMessage),
}

/// A command that is not queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtaCommand {
    /// The device behind a port multiplier, by its port; [`CONTROL_PORT`] is the multiplier itself.
    /// 0 without a multiplier.
    ///
    /// [`CONTROL_PORT`]: flysch_wire::ata::multiplier::CONTROL_PORT
    pub unit: u8,
    /// Its registers, including the packet of a packet command.
    pub task: Taskfile,
    /// Its data.
    pub data: AtaData,
    /// How long it may take, ms; `None`: as the options say.
    pub timeout_ms: Option<u32>,
}

/// Data of a command: at most 4096 bytes, an even number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AtaData {
    /// No data.
    #[default]
    None,
    /// This many bytes from the device.
    In(u32),
    /// These bytes to the device.
    Out(Vec<u8>),
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AtaReply {
    /// STATUS, ERROR and LBA.
    pub status: AtaStatus,
    /// COUNT.
    pub count: u16,
    /// Data from the device; zeros where it sent less than requested.
    pub data: Vec<u8>,
}

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// No result.
    None,
    /// How a command ended: well or with an error, but it did end.
    Command(AtaReply),
}

impl AtaCommand {
    /// A command without data; DEVICE marks addresses as LBAs.
    pub fn new(opcode: Opcode) -> Self {
        let command = opcode.into_bits();
        let task = Taskfile { command, device: device::LBA, ..Taskfile::default() };
        Self { unit: 0, task, data: AtaData::None, timeout_ms: None }
    }

    /// A packet that reads `bytes` bytes; 0 for none.
    pub fn packet(packet: [u8; 16], bytes: u32) -> Self {
        let protocol = AtaProtocol::Packet(packet);
        let task =
            Taskfile { command: Opcode::Packet.into_bits(), protocol, ..Taskfile::default() };
        let data = if bytes == 0 { AtaData::None } else { AtaData::In(bytes) };
        Self { unit: 0, task, data, timeout_ms: None }
    }

    /// The same command for the device at this port of a multiplier.
    #[must_use]
    pub fn to(self, unit: u8) -> Self {
        Self { unit, ..self }
    }
}

impl<M: Machine> Core<M> {
    pub(crate) fn operate(&mut self, operation: &Operation) -> Run<Output> {
        match operation {
            Operation::Command(command) => self.pass_through(command).map(Output::Command),
            Operation::Shutdown => self.shut_down().map(|()| Output::None),
            Operation::Leds(message) => {
                show_leds(&mut self.channel, *message).map(|()| Output::None)
            }
            // The port turns these into recoveries.
            Operation::Reset | Operation::LinkPower(_) => Ok(Output::None),
        }
    }

    /// Turns a command into one of the driver's own; data for the device goes to `own_data`.
    fn own_of(&mut self, command: &AtaCommand) -> Run<Own> {
        let refuse = |what| Err(AhciError::Unsupported(what).into());
        let is_packet = self.lane.ways(command.unit).packets;
        let mut packet = None;
        match command.task.protocol {
            AtaProtocol::NonData | AtaProtocol::Pio | AtaProtocol::Dma => {}
            AtaProtocol::Packet(bytes) if is_packet => packet = Some(bytes),
            AtaProtocol::Packet(_) => return refuse("a packet to a disk"),
            AtaProtocol::Ncq => return refuse("a queued command as an operation"),
            AtaProtocol::SoftReset => return refuse("a soft reset: use a reset"),
        }
        let (write, bytes) = match &command.data {
            AtaData::None => (false, 0),
            AtaData::In(bytes) => (false, *bytes as usize),
            AtaData::Out(data) => (true, data.len()),
        };
        if bytes > OWN_DATA || bytes % 2 != 0 {
            return refuse("more than 4096 bytes of data, or an odd number");
        }
        let mut fis = fis(&command.task, command.unit);
        if packet.is_some() {
            // Data by DMA.
            fis.features = fis.features & !1 | u16::from(bytes > 0);
        }
        if self.channel.first()
            && let AtaData::Out(data) = &command.data
        {
            self.channel.memory.own_data.write(0, data);
        }
        // Data that the device does not send reads as zeros.
        if self.channel.first() && !write {
            self.channel.memory.own_data.fill(0, OWN_DATA, 0);
        }
        let timeout_ms = command.timeout_ms.unwrap_or(self.channel.options.timeouts.command_ms);
        let data = (bytes > 0).then_some((write, bytes as u32));
        Ok(Own { fis, data, packet, timeout_ms })
    }

    fn pass_through(&mut self, command: &AtaCommand) -> Run<AtaReply> {
        let is_there = match command.unit {
            CONTROL_PORT => self.attached.multiplier.is_some(),
            unit => self.attached.device(unit).is_some(),
        };
        if !is_there {
            return Err(AhciError::NoDevice.into());
        }
        self.channel.unit = command.unit;
        let own = self.own_of(command)?;
        let end = self.channel.command(own)??;
        let status =
            AtaStatus { status: end.status, error: end.error, lba: end.lba, sense: [0; 3] };
        let mut reply = AtaReply { status, count: end.count, data: Vec::new() };
        if end.status & (status::ERR | status::DF) != 0 {
            self.channel.stop_list()??;
            self.channel.start_list()??;
            if self.attached.quirks(&self.channel).has(Quirk::ErrorSticks) {
                self.channel.clear_error()?;
            }
        } else if let AtaData::In(bytes) = command.data {
            reply.data.resize(bytes as usize, 0);
            let page: [u8; OWN_DATA] = self.channel.own_data();
            reply.data.copy_from_slice(&page[..bytes as usize]);
        }
        Ok(reply)
    }

    /// Flushes and parks every device behind the port.
    fn shut_down(&mut self) -> Run<()> {
        let timeout = self.channel.options.timeouts.flush_ms;
        for unit in 0..UNITS as u8 {
            let Some(device) = self.attached.device(unit) else { continue };
            let (is_disk, flushes) =
                (device.identify.kind == Kind::Disk, device.identify.has_write_cache());
            let flush = if device.identify.has_lba48() { Opcode::FlushExt } else { Opcode::Flush };
            self.channel.unit = unit;
            if is_disk && flushes {
                self.channel.must(Own::new(flush, timeout))?;
            }
            if is_disk {
                self.channel.must(Own::new(Opcode::StandbyImmediate, timeout))?;
            }
        }
        Ok(self.channel.stop_list()??)
    }
}

/// Sends an LED message (AHCI 12.2).
fn show_leds<M: Machine>(channel: &mut Channel<M>, message: LedMessage) -> Run<()> {
    let refuse = |what| Err(AhciError::Unsupported(what).into());
    if !channel.hba.cap.ems() {
        return refuse("enclosure management");
    }
    let control = EmCtl::from_bits(channel.once(|s| s.machine.read32(EM_CTL).into()) as u32);
    let place = EmLoc::from_bits(channel.once(|s| s.machine.read32(EM_LOC).into()) as u32);
    if !control.led() || place.sz() < 2 || u32::from(place.ofst()) < PORTS / 4 {
        return refuse("LED messages");
    }
    // An earlier message may still be on its way.
    message_is_sent(channel)?;
    channel.effect(|channel| {
        let at = u32::from(place.ofst()) * 4;
        let (machine, tell) = (&channel.machine, EmCtl::new().with_tm(true));
        machine.write32(at, LED_HEADER);
        machine.write32(at + 4, message.into_bits());
        machine.write32(EM_CTL, tell.into_bits());
    });
    message_is_sent(channel)
}

/// Waits until EM_CTL.TM is clear.
fn message_is_sent<M: Machine>(channel: &mut Channel<M>) -> Run<()> {
    let mut value = 0;
    for _ in 0..MESSAGE_LOOKS {
        value = channel.once(|s| s.machine.read32(EM_CTL).into()) as u32;
        if !EmCtl::from_bits(value).tm() {
            return Ok(());
        }
        channel.sleep(MESSAGE_REST_NS)?;
    }
    Err(Cause::Register { name: "EM_CTL", value }.into())
}

//! Commands as FISes: which form a command takes for a device, and the fall-back if the device does
//! not accept it as given.
//!
//! The layer above issues its reads and writes as queued commands with 48-bit addresses. A device
//! that does not queue, or should not, gets the same transfer as DMA or PIO, with 28-bit addresses
//! if it has no others: the choice is made here, not in every layer above.

use flysch_api::command::{AtaProtocol, Direction, Taskfile};
use flysch_wire::ata::command::{TAG_SHIFT, device, send};
use flysch_wire::ata::{H2d, Opcode, dsm};

/// The forms of commands that a device accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ways {
    /// Queued commands.
    pub(crate) ncq: bool,
    /// 48-bit addresses.
    pub(crate) lba48: bool,
    /// DMA instead of PIO.
    pub(crate) dma: bool,
    /// WRITE DMA FUA EXT.
    pub(crate) fua: bool,
    /// Queued trims.
    pub(crate) queued_trim: bool,
    /// Packets.
    pub(crate) packets: bool,
}

/// A command in the form sent to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) fis: H2d,
    /// Whether it is queued; the tag is filled in later.
    pub(crate) is_queued: bool,
    /// The packet that goes with it.
    pub(crate) packet: Option<[u8; 16]>,
}

/// Sectors that a 28-bit address reaches.
const LBA28: u64 = 1 << 28;
/// FEATURES of PACKET: data by DMA.
const PACKET_DMA: u16 = 1;
/// Bytes per DRQ block of a packet command without DMA, in LBA 23:8.
const PACKET_BYTES: u64 = 0xFFFE << 8;

/// COUNT of a queued command, with its tag.
#[inline]
pub(crate) const fn with_tag(count: u16, tag: usize) -> u16 {
    count & !(0x1F << TAG_SHIFT) | (tag as u16) << TAG_SHIFT
}

/// A FIS with these registers, for a port of a multiplier, or for the device (0).
#[inline]
pub(crate) fn fis(task: &Taskfile, pmp: u8) -> H2d {
    H2d {
        is_command: true,
        pmp,
        command: task.command,
        features: task.features,
        lba: task.lba,
        device: task.device,
        count: task.count,
        icc: task.icc,
        control: 0,
        auxiliary: task.auxiliary,
    }
}

/// The form in which this command is sent to a device that accepts `ways`; `None` if there is none.
/// The port of a multiplier is filled in with the slot.
pub(crate) fn translate(task: &Taskfile, direction: Direction, ways: Ways) -> Option<Sent> {
    let fis = |task| fis(task, 0);
    let plain = |fis| Some(Sent { fis, is_queued: false, packet: None });
    let opcode = Opcode::from_bits(task.command);
    match task.protocol {
        // A packet device has no sectors.
        AtaProtocol::Ncq if ways.packets => None,
        AtaProtocol::Ncq if ways.ncq => {
            Some(Sent { fis: fis(task), is_queued: true, packet: None })
        }
        AtaProtocol::Ncq => plain(unqueued(&fis(task), ways)?),
        AtaProtocol::Dma if opcode == Opcode::DataSetManagement && ways.queued_trim => {
            Some(Sent { fis: queued_trim(task), is_queued: true, packet: None })
        }
        AtaProtocol::NonData if opcode == Opcode::FlushExt && !ways.lba48 => {
            plain(H2d { command: Opcode::Flush.into_bits(), ..fis(task) })
        }
        AtaProtocol::NonData | AtaProtocol::Pio | AtaProtocol::Dma => plain(fis(task)),
        AtaProtocol::Packet(packet) if ways.packets => {
            let by_dma = ways.dma && direction != Direction::None;
            let features = task.features & !PACKET_DMA | u16::from(by_dma);
            let lba = if by_dma { 0 } else { PACKET_BYTES };
            let command = Opcode::Packet.into_bits();
            let fis = H2d { command, features, lba, ..fis(task) };
            Some(Sent { fis, is_queued: false, packet: Some(packet) })
        }
        // Only the driver itself sends soft resets.
        AtaProtocol::Packet(_) | AtaProtocol::SoftReset => None,
    }
}

/// The unqueued form of a queued read or write; `None` for other commands, and for addresses the
/// device cannot reach without 48 bits.
pub(crate) fn unqueued(queued: &H2d, ways: Ways) -> Option<H2d> {
    let write = match Opcode::from_bits(queued.command) {
        Opcode::ReadFpdma => false,
        Opcode::WriteFpdma => true,
        _ => return None,
    };
    let force = write && queued.device & device::FUA != 0;
    let opcode = match (write, ways.lba48, ways.dma) {
        (true, true, true) if force && ways.fua => Opcode::WriteDmaFuaExt,
        // A forced write is not weakened silently: the caller knows what the device supports.
        (true, ..) if force => return None,
        (false, true, true) => Opcode::ReadDmaExt,
        (true, true, true) => Opcode::WriteDmaExt,
        (false, true, false) => Opcode::ReadSectorsExt,
        (true, true, false) => Opcode::WriteSectorsExt,
        (false, false, true) => Opcode::ReadDma,
        (true, false, true) => Opcode::WriteDma,
        (false, false, false) => Opcode::ReadSectors,
        (true, false, false) => Opcode::WriteSectors,
    };
    let mut fis = H2d {
        command: opcode.into_bits(),
        features: 0,
        count: queued.features,
        device: device::LBA,
        icc: 0,
        auxiliary: 0,
        ..*queued
    };
    if !ways.lba48 {
        let sectors = if queued.features == 0 { 1 << 16 } else { u64::from(queued.features) };
        if sectors > 256 || queued.lba + sectors > LBA28 {
            return None;
        }
        fis.count &= 0xFF;
        fis.device |= (queued.lba >> 24) as u8 & 0xF;
        fis.lba &= 0xFF_FFFF;
    }
    Some(fis)
}

/// DATA SET MANAGEMENT as SEND FPDMA QUEUED.
fn queued_trim(task: &Taskfile) -> H2d {
    H2d {
        command: Opcode::SendFpdma.into_bits(),
        features: task.count,
        count: send::DATA_SET_MANAGEMENT,
        lba: 0,
        device: device::LBA,
        auxiliary: if task.features & dsm::TRIM != 0 { send::TRIM } else { 0 },
        ..fis(task, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Ways =
        Ways { ncq: true, lba48: true, dma: true, fua: true, queued_trim: true, packets: false };

    fn write(force: bool) -> Taskfile {
        Taskfile {
            command: Opcode::WriteFpdma.into_bits(),
            device: if force { device::LBA | device::FUA } else { device::LBA },
            features: 8,
            lba: 0x0123_4567,
            protocol: AtaProtocol::Ncq,
            ..Taskfile::default()
        }
    }

    fn sent(task: &Taskfile, ways: Ways) -> Option<(Opcode, H2d)> {
        let sent = translate(task, Direction::ToDevice, ways)?;
        Some((Opcode::from_bits(sent.fis.command), sent.fis))
    }

    #[test]
    fn a_queued_write_falls_back_as_far_as_it_must() {
        let task = write(false);
        let queued = translate(&task, Direction::ToDevice, ALL).expect("taken");
        assert!(queued.is_queued && queued.fis.features == 8);
        assert_eq!(with_tag(queued.fis.count, 17), 17 << 3);
        let dma = Ways { ncq: false, ..ALL };
        let (opcode, fis) = sent(&task, dma).expect("taken");
        assert_eq!((opcode, fis.count, fis.features), (Opcode::WriteDmaExt, 8, 0));
        let pio = Ways { dma: false, ..dma };
        assert_eq!(sent(&task, pio).expect("taken").0, Opcode::WriteSectorsExt);
        let old = Ways { lba48: false, ..dma };
        let (opcode, fis) = sent(&task, old).expect("taken");
        assert_eq!((opcode, fis.device, fis.lba), (Opcode::WriteDma, 0x41, 0x23_4567));
        let far = Taskfile { lba: 0x0FFF_FFF9, ..task };
        assert_eq!(sent(&far, old), None, "it would wrap to another place");
        assert_eq!(sent(&Taskfile { features: 0, ..task }, old), None, "65536 sectors");
    }

    #[test]
    fn a_forced_write_is_forced_or_not_taken() {
        let dma = Ways { ncq: false, ..ALL };
        assert_eq!(sent(&write(true), dma).expect("taken").0, Opcode::WriteDmaFuaExt);
        assert_eq!(sent(&write(true), Ways { fua: false, ..dma }), None);
        assert_eq!(sent(&write(true), Ways { dma: false, ..dma }), None);
    }

    #[test]
    fn flushes_and_trims_take_the_form_the_device_has() {
        let flush = Taskfile { command: Opcode::FlushExt.into_bits(), ..Taskfile::default() };
        assert_eq!(sent(&flush, ALL).expect("taken").0, Opcode::FlushExt);
        let old = Ways { lba48: false, ncq: false, ..ALL };
        assert_eq!(sent(&flush, old).expect("taken").0, Opcode::Flush);
        let trim = Taskfile {
            command: Opcode::DataSetManagement.into_bits(),
            features: dsm::TRIM,
            count: 1,
            protocol: AtaProtocol::Dma,
            ..Taskfile::default()
        };
        let (opcode, fis) = sent(&trim, ALL).expect("taken");
        assert_eq!((opcode, fis.features, fis.auxiliary), (Opcode::SendFpdma, 1, 1));
        let plain = Ways { queued_trim: false, ..ALL };
        assert_eq!(sent(&trim, plain).expect("taken").0, Opcode::DataSetManagement);
    }

    #[test]
    fn what_a_device_has_no_form_for_is_not_taken() {
        let packet = Taskfile { protocol: AtaProtocol::Packet([0; 16]), ..Taskfile::default() };
        assert_eq!(sent(&packet, ALL), None);
        let ways = Ways { packets: true, ..ALL };
        let (opcode, fis) = sent(&packet, ways).expect("taken");
        assert_eq!((opcode, fis.features & 1), (Opcode::Packet, 1));
        let reset = Taskfile { protocol: AtaProtocol::SoftReset, ..Taskfile::default() };
        assert_eq!(sent(&reset, ways), None);
        let send = Taskfile {
            command: Opcode::SendFpdma.into_bits(),
            protocol: AtaProtocol::Ncq,
            ..Taskfile::default()
        };
        assert_eq!(sent(&send, Ways { ncq: false, ..ALL }), None);
    }
}

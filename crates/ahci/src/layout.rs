//! The layout of everything the HBA accesses in the driver's DMA memory.

use crate::error::AhciError;
use crate::options::AhciOptions;
use flysch_api::data::{SEGMENTS_MAX, SegmentLimits};
use flysch_api::machine::DmaRegion;
use flysch_wire::ata::list::{
    LIST_LENGTH, PRD, PRD_BYTES_MAX, PRDT, RECEIVED_LENGTH_FBS, TABLE_ALIGNMENT,
};
use flysch_wire::ata::registers::PORTS_MAX;

const PAGE: usize = 4096;
/// Descriptors per command table, as many as in Linux: with its header, a slot takes 2816 bytes.
pub(crate) const SEGMENTS: usize = 168;
/// Bytes of a command table.
pub(crate) const TABLE: usize = PRDT + SEGMENTS * PRD;
/// Most bytes of data that one of the driver's own commands can move.
pub(crate) const OWN_DATA: usize = PAGE;
/// The table of the driver's own commands: one descriptor.
const OWN_TABLE: usize = (PRDT + PRD).next_multiple_of(TABLE_ALIGNMENT);
const TABLES: usize = (PORTS_MAX * TABLE).next_multiple_of(PAGE);
/// Bytes of one port: list and own table in the first page, own data in the second, received FISes
/// in the third, then the slots' tables.
const PORT: usize = PAGE + OWN_DATA + RECEIVED_LENGTH_FBS + TABLES;

const _: () = assert!(TABLE.is_multiple_of(TABLE_ALIGNMENT) && SEGMENTS <= SEGMENTS_MAX);
const _: () = assert!(LIST_LENGTH + OWN_TABLE <= PAGE && RECEIVED_LENGTH_FBS == PAGE);

/// Constraints on the data of commands.
pub(crate) const LIMITS: SegmentLimits = SegmentLimits {
    count: SEGMENTS as u16,
    length: PRD_BYTES_MAX,
    alignment: 2,
    boundary: 0,
    inner: 1,
};

/// The memory of one port.
#[derive(Clone, Debug)]
pub(crate) struct PortMemory {
    /// The command list.
    pub(crate) list: DmaRegion,
    /// Received FISes, consecutively for the devices behind a multiplier.
    pub(crate) received: DmaRegion,
    /// Command table of the driver's own commands, and their data.
    pub(crate) own_table: DmaRegion,
    pub(crate) own_data: DmaRegion,
    /// Command tables of the slots.
    pub(crate) tables: DmaRegion,
    /// All of the driver's memory, which must not hold command data.
    pub(crate) whole: DmaRegion,
}

/// Bytes of memory the driver needs for these options, wherever it starts.
pub(crate) fn memory_len(options: &AhciOptions) -> usize {
    options.ports.count_ones() as usize * PORT + PAGE
}

/// The memory of the `index`-th port in use.
pub(crate) fn port(
    memory: &DmaRegion,
    options: &AhciOptions,
    index: usize,
) -> Result<PortMemory, AhciError> {
    let (needed, given) = (memory_len(options), memory.len());
    if given < needed {
        return Err(AhciError::MemoryTooSmall { needed, given });
    }
    let page = PAGE as u64;
    let start = (memory.address().next_multiple_of(page) - memory.address()) as usize;
    let port = memory.carve(start + index * PORT, PORT);
    Ok(PortMemory {
        list: port.carve(0, LIST_LENGTH),
        received: port.carve(PAGE + OWN_DATA, RECEIVED_LENGTH_FBS),
        own_table: port.carve(LIST_LENGTH, OWN_TABLE),
        own_data: port.carve(PAGE, OWN_DATA),
        tables: port.carve(PAGE + OWN_DATA + RECEIVED_LENGTH_FBS, PORTS_MAX * TABLE),
        whole: memory.clone(),
    })
}

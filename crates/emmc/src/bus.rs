//! One command on the bus at a time, by the SD host controller's own registers.
//!
//! Theory. A command is begun by one write and has ended when the status register says so: *command
//! complete* with its response, then, if it has data, *transfer complete*. The end of the busy
//! state is not awaited here: a card is busy for as long as it likes, and shows that by the level
//! of DAT0. A failed command leaves the controller's command or data line in an undefined state;
//! whoever began it resets the lines before the next command.

use crate::error::BusError;
use crate::table::Format;
use flysch_api::machine::{DmaRegion, Registers};
use flysch_wire::mmc::CardStatus;
use flysch_wire::mmc::command::CommandIndex;
use flysch_wire::mmc::sdhci::{
    self as reg, Block, Command, Interrupts, Present, auto, response as kind,
};

/// The response of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Response {
    /// None.
    None,
    /// R1, R5, R6, R7: 48 bits with CRC and index. The busy state of R1b is not awaited.
    Short,
    /// R2: 136 bits with CRC.
    Long,
    /// R3, R4: 48 bits without either.
    Plain,
}

/// How the data of a command is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// ADMA2 with the list of the command.
    Dma,
    /// The host reads and writes the buffer port.
    Port,
    /// A tuning block that the controller keeps for itself.
    Tuning,
}

/// Data of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moves {
    pub(crate) read: bool,
    /// Bytes of a block.
    pub(crate) block: u16,
    pub(crate) blocks: u16,
    pub(crate) way: Way,
    /// Where the list of descriptors is in its region.
    pub(crate) list: usize,
    /// The automatic command, and the argument of CMD23.
    pub(crate) auto: u8,
    pub(crate) count: u32,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) index: CommandIndex,
    pub(crate) argument: u32,
    pub(crate) response: Response,
    pub(crate) data: Option<Moves>,
}

impl Request {
    /// A command without data.
    pub(crate) const fn new(index: CommandIndex, argument: u32, response: Response) -> Self {
        Self { index, argument, response, data: None }
    }
}

/// How a command ended: its response as it is in the registers, or what went wrong.
pub(crate) type Reply = Result<[u32; 4], BusError>;

/// The position of the buffer port in a list.
#[derive(Clone, Copy, Debug, Default)]
struct Cursor {
    entry: usize,
    skip: u32,
    /// Blocks still to be moved.
    blocks: u16,
}

/// The command and data lines.
#[derive(Debug)]
pub(crate) struct Bus {
    pub(crate) format: Format,
    /// Status bits of the current command so far.
    seen: Interrupts,
    under_way: Option<Request>,
    response: [u32; 4],
    cursor: Cursor,
}

/// Maximum number of descriptors of one list: a list that was never written would never end.
const ENTRIES_MAX: usize = 1024;

impl Bus {
    pub(crate) fn new(format: Format) -> Self {
        Self {
            format,
            seen: Interrupts::new(),
            under_way: None,
            response: [0; 4],
            cursor: Cursor::default(),
        }
    }

    /// Forgets the current command.
    pub(crate) fn forget(&mut self) {
        self.under_way = None;
    }

    /// Whether the lines are free for this command.
    pub(crate) fn is_free(&self, registers: &impl Registers, request: &Request) -> bool {
        let present = Present::from_bits(registers.read32(reg::PRESENT));
        // A command that ends a transfer may be sent during the transfer.
        let data_free = request.data.is_none() || !present.data_inhibit();
        !present.command_inhibit() && data_free
    }

    /// Sends a command; the lines are [free](Self::is_free). `lists` is where its list is.
    pub(crate) fn begin(
        &mut self,
        registers: &impl Registers,
        request: Request,
        lists: &DmaRegion,
    ) {
        self.seen = Interrupts::new();
        self.under_way = Some(request);
        self.response = [0; 4];
        let stop = request.index == CommandIndex::StopTransmission;
        let mut command = Command::new().with_index(request.index.into_bits()).with_kind(if stop {
            reg::ABORT
        } else {
            0
        });
        command = match request.response {
            Response::None => command.with_response(kind::NONE),
            Response::Long => command.with_response(kind::LONG).with_check_crc(true),
            Response::Plain => command.with_response(kind::SHORT),
            Response::Short => {
                command.with_response(kind::SHORT).with_check_crc(true).with_check_index(true)
            }
        };
        if let Some(data) = &request.data {
            let block = Block::new().with_size(data.block).with_count(data.blocks);
            registers.write32(reg::BLOCK, block.with_boundary(7).into_bits());
            if data.auto == auto::CMD23 {
                registers.write32(reg::ARGUMENT2, data.count);
            }
            if data.way == Way::Dma {
                let address = lists.address() + data.list as u64;
                registers.write32(reg::ADMA_ADDRESS, address as u32);
                if self.format != Format::NARROW {
                    registers.write32(reg::ADMA_ADDRESS + 4, (address >> 32) as u32);
                }
            }
            self.cursor = Cursor { entry: 0, skip: 0, blocks: data.blocks };
            command = command
                .with_data(true)
                .with_dma(data.way == Way::Dma)
                .with_read(data.read)
                .with_count(data.blocks > 1)
                .with_multi(data.blocks > 1)
                .with_auto(data.auto);
        }
        registers.write32(reg::ARGUMENT, request.argument);
        registers.write32(reg::COMMAND, command.into_bits());
    }

    /// The errors in the last response.
    pub(crate) fn told(&self) -> u32 {
        CardStatus::from_bits(self.response[0]).errors().into_bits()
    }

    /// Clears what the controller reports although no command is in progress: the end of a command
    /// that was given up. Nobody else would, and the line would stay up.
    pub(crate) fn quieten(&self, registers: &impl Registers) {
        if self.under_way.is_none() {
            let status = registers.read32(reg::STATUS);
            if status != 0 && status != u32::MAX {
                registers.write32(reg::STATUS, status);
            }
        }
    }

    /// Checks the current command; returns its end, if it has ended. `memory` is where the ranges
    /// of its list are, for the buffer port.
    pub(crate) fn look(
        &mut self,
        registers: &impl Registers,
        (lists, memory): (&DmaRegion, &DmaRegion),
    ) -> Option<Reply> {
        let request = self.under_way?;
        let bits = registers.read32(reg::STATUS);
        if bits == u32::MAX {
            self.under_way = None;
            return Some(Err(BusError::SILENT));
        }
        let status = Interrupts::from_bits(bits);
        let errors = bits & Interrupts::ERRORS;
        if errors != 0 {
            registers.write32(reg::STATUS, bits);
            self.under_way = None;
            return Some(Err(BusError(errors)));
        }
        const MINE: u32 = Interrupts::new()
            .with_command(true)
            .with_transfer(true)
            .with_read_ready(true)
            .with_write_ready(true)
            .with_dma(true)
            .into_bits();
        if bits & MINE != 0 {
            registers.write32(reg::STATUS, bits & MINE);
        }
        if status.command() && !self.seen.command() {
            self.response = match request.response {
                Response::None => [0; 4],
                Response::Long => [0, 4, 8, 12].map(|at| registers.read32(reg::RESPONSE + at)),
                _ => [registers.read32(reg::RESPONSE), 0, 0, 0],
            };
            // No data follows such a response.
            let told = CardStatus::from_bits(self.response[0]).errors().into_bits();
            if request.data.is_some() && request.response == Response::Short && told != 0 {
                self.under_way = None;
                return Some(Err(BusError::STATUS));
            }
        }
        self.seen = Interrupts::from_bits(self.seen.into_bits() | bits & MINE);
        let ended = match &request.data {
            None => self.seen.command(),
            // Regardless of what else the controller reports.
            Some(data) if data.way == Way::Tuning => self.seen.read_ready(),
            Some(data) => {
                if data.way == Way::Port {
                    self.move_blocks(registers, data, (lists, memory));
                }
                self.seen.command() && self.seen.transfer()
            }
        };
        if !ended {
            return None;
        }
        self.under_way = None;
        Some(Ok(self.response))
    }

    /// Moves what the buffer port has or accepts.
    fn move_blocks(
        &mut self,
        registers: &impl Registers,
        data: &Moves,
        places: (&DmaRegion, &DmaRegion),
    ) {
        while self.cursor.blocks > 0 {
            let present = Present::from_bits(registers.read32(reg::PRESENT));
            let ready = if data.read { present.read_ready() } else { present.write_ready() };
            if !ready {
                return;
            }
            for _ in 0..data.block / 4 {
                let at = self.next_word(data.list, places);
                match (data.read, at) {
                    (true, at) => {
                        let word = registers.read32(reg::BUFFER);
                        if let Some(at) = at {
                            places.1.write(at, &word.to_le_bytes());
                        }
                    }
                    (false, at) => {
                        let mut word = [0; 4];
                        if let Some(at) = at {
                            places.1.read(at, &mut word);
                        }
                        registers.write32(reg::BUFFER, u32::from_le_bytes(word));
                    }
                }
            }
            self.cursor.blocks -= 1;
        }
    }

    /// Where the next word of the data is in memory. Segments are whole words.
    fn next_word(
        &mut self,
        list: usize,
        (lists, memory): (&DmaRegion, &DmaRegion),
    ) -> Option<usize> {
        let Cursor { entry, skip, .. } = self.cursor;
        if entry >= ENTRIES_MAX {
            return None;
        }
        let range = self.format.get(lists, list, entry);
        self.cursor.skip += 4;
        if self.cursor.skip >= range.len {
            (self.cursor.entry, self.cursor.skip) = (entry + 1, 0);
        }
        memory.offset_of(range.address.wrapping_add(skip.into()), 4).ok()
    }
}

/// R2 as the specification numbers its bits: the controller drops the CRC.
pub(crate) fn long(response: [u32; 4]) -> u128 {
    let words = response.map(u128::from);
    (words[3] << 96 | words[2] << 64 | words[1] << 32 | words[0]) << 8
}

//! The card, and the commands of the control path to it, with what has to follow them.

use crate::bus::{Moves, Request, Response, Way, long};
use crate::channel::{Channel, MS, Run};
use crate::device::CardFacts;
use crate::error::BusError;
use crate::history::ErrorKind;
use crate::{Cause, EmmcError};
use flysch_api::machine::{DmaRegion, Instant, Machine};
use flysch_script::{Primitives, Replay, Stop, Wait, settled};
use flysch_wire::mmc::command::{BlockCount, CommandIndex, SwitchArgument, rca};
use flysch_wire::mmc::sdhci::{self as reg, Clock, auto};
use flysch_wire::mmc::{CardState, CardStatus, ExtCsd, ext_csd};

/// Software reset of the controller, ms (Linux: 100).
pub(crate) const RESET_MS: u32 = 100;
/// Interval between two looks at a card whose status says that it is not ready.
const STATUS_REST: u64 = MS / 4;

/// Single commands.
impl<M: Machine> Channel<M> {
    /// How data is moved: by DMA, or through the buffer port.
    pub(crate) fn way(&self) -> Way {
        if self.options.dma && self.capabilities.adma2() { Way::Dma } else { Way::Port }
    }

    /// Resets the controller's command and data lines, after any error.
    pub(crate) fn reset_lines(&mut self) -> Run<()> {
        self.effect(|channel| {
            channel.bus.forget();
            channel.errors.note(channel.script.now(), ErrorKind::LineReset, 0);
        });
        let resets = Clock::new().with_reset_command(true).with_reset_data(true).into_bits();
        self.modify(reg::CLOCK, |clock| clock | resets);
        self.until(("CLOCK", reg::CLOCK), Clock::RESETS, 0, RESET_MS)??;
        self.write(reg::STATUS, u32::MAX);
        Ok(())
    }

    /// Sends a command whose failure is an answer as well.
    pub(crate) fn try_command(
        &mut self,
        index: CommandIndex,
        argument: u32,
        response: Response,
    ) -> Run<Result<[u32; 4], BusError>> {
        let timeout = self.options.timeouts.command_ms;
        self.try_request(Request::new(index, argument, response), timeout)
    }

    /// As [`try_command`](Self::try_command), for commands with data.
    pub(crate) fn try_request(
        &mut self,
        request: Request,
        timeout_ms: u32,
    ) -> Run<Result<[u32; 4], BusError>> {
        let reply = self.send(request, timeout_ms)?;
        if reply.is_err() {
            if self.read(reg::PRESENT) == u32::MAX {
                return Err(Cause::Removed.into());
            }
            self.reset_lines()?;
        }
        Ok(reply)
    }

    /// Sends a command that must be answered.
    pub(crate) fn command(
        &mut self,
        index: CommandIndex,
        argument: u32,
        response: Response,
    ) -> Run<[u32; 4]> {
        let reply = self.try_command(index, argument, response)?;
        reply.map_err(|error| Cause::Bus(index, error).into())
    }

    /// Sends a command with R1 that must be answered without errors.
    pub(crate) fn must(&mut self, index: CommandIndex, argument: u32) -> Run<CardStatus> {
        let [response, ..] = self.command(index, argument, Response::Short)?;
        let status = CardStatus::from_bits(response);
        if status.errors().into_bits() != 0 {
            return Err(Cause::Status(index, status.errors()).into());
        }
        Ok(status)
    }

    /// R2 of a command.
    pub(crate) fn long(&mut self, index: CommandIndex, argument: u32) -> Run<u128> {
        Ok(long(self.command(index, argument, Response::Long)?))
    }

    /// Describes the data of a transfer of the control path: the first bytes of the scratch memory.
    fn scratch_moves(&mut self, read: bool, (block, blocks): (u16, u16)) -> Moves {
        let bytes = usize::from(block) * usize::from(blocks);
        self.effect(|channel| {
            let (table, format) = (&channel.layout.table, channel.bus.format);
            let data = &channel.layout.scratch;
            format.put(table, 0, 0, data.slice(0, bytes as u32));
            format.end(table, 0, 0);
            channel.machine.sync_for_device(table.span(0, format.stride));
            channel.machine.sync_for_device(data.span(0, bytes));
        });
        let way = self.way();
        Moves { read, block, blocks, way, list: 0, auto: auto::NONE, count: 0 }
    }

    /// Sends CMD23 as a command of its own.
    pub(crate) fn set_block_count(&mut self, blocks: u16, reliable: bool) -> Run<()> {
        let argument = BlockCount::new().with_blocks(blocks).with_reliable(reliable);
        self.must(CommandIndex::SetBlockCount, argument.into_bits()).map(|_| ())
    }
}

/// The card: what is known of it, and the way to it.
#[derive(Debug)]
pub(crate) struct Card<M: Machine> {
    pub(crate) channel: Channel<M>,
    pub(crate) device: CardFacts,
}

impl<M: Machine> Card<M> {
    /// The card's address as commands have it in their argument.
    pub(crate) fn address(&self) -> u32 {
        rca(self.device.rca)
    }

    /// CMD13.
    pub(crate) fn status(&mut self) -> Run<Result<CardStatus, BusError>> {
        let address = self.address();
        let reply = self.channel.try_command(CommandIndex::SendStatus, address, Response::Short)?;
        Ok(reply.map(|response| CardStatus::from_bits(response[0])))
    }

    /// Sends a command and waits while the card is busy with it, until `deadline` or for
    /// `timeout_ms`; returns the status after it.
    pub(crate) fn busy_command(
        &mut self,
        (index, argument): (CommandIndex, u32),
        (deadline, timeout_ms): (Option<Instant>, u32),
    ) -> Run<CardStatus> {
        self.channel.must(index, argument)?;
        self.wait_ready(index, (deadline, timeout_ms))
    }

    /// Waits until the card is no longer busy with `index`; returns its status then.
    pub(crate) fn wait_ready(
        &mut self,
        index: CommandIndex,
        (deadline, timeout_ms): (Option<Instant>, u32),
    ) -> Run<CardStatus> {
        let until = self.channel.once(|channel| {
            let after = channel.script.now().after_nanos(u64::from(timeout_ms) * MS);
            deadline.unwrap_or(after).nanos()
        });
        let until = Instant::from_nanos(until);
        if !self.channel.until_not_busy(Some(until), timeout_ms)? {
            return Err(Cause::Busy(index).into());
        }
        loop {
            let status = match self.status()? {
                Ok(status) => status,
                Err(error) => return Err(Cause::Bus(CommandIndex::SendStatus, error).into()),
            };
            if status.errors().into_bits() != 0 {
                return Err(Cause::Status(index, status.errors()).into());
            }
            if status.is_ready() || status.state() == CardState::StandBy {
                return Ok(status);
            }
            let late = self.channel.once(|channel| (channel.script.now() >= until).into()) != 0;
            if late {
                return Err(Cause::Busy(index).into());
            }
            self.channel.sleep(STATUS_REST)?;
        }
    }

    /// CMD6: writes a byte of EXT_CSD.
    pub(crate) fn switch(&mut self, index: u8, value: u8) -> Run<()> {
        let timeout = self.switch_ms();
        self.switch_for(index, value, (None, timeout))
    }

    /// As [`switch`](Self::switch), with a time limit of its own.
    pub(crate) fn switch_for(
        &mut self,
        index: u8,
        value: u8,
        times: (Option<Instant>, u32),
    ) -> Run<()> {
        let argument = SwitchArgument::write(index, value).into_bits();
        let command = CommandIndex::Switch;
        let [response, ..] = self.channel.command(command, argument, Response::Short)?;
        let status = CardStatus::from_bits(response).errors().with_switch_error(false);
        if status.into_bits() != 0 {
            return Err(Cause::Status(command, status).into());
        }
        match self.wait_ready(command, times) {
            Err(Stop::Failed(EmmcError::Failed(Cause::Status(_, status))))
                if status.switch_error() =>
            {
                Err(Cause::Switch(index).into())
            }
            other => other.map(|_| ()),
        }
    }

    /// The time limit of a CMD6 that has none of its own, ms.
    pub(crate) fn switch_ms(&self) -> u32 {
        self.device.ext_csd.switch_ms().max(self.channel.options.timeouts.switch_ms)
    }

    /// Sends a command that reads `blocks` into the scratch memory.
    pub(crate) fn fetch(
        &mut self,
        (index, argument): (CommandIndex, u32),
        (block, blocks): (u16, u16),
    ) -> Run<Result<(), BusError>> {
        let data = Some(self.channel.scratch_moves(true, (block, blocks)));
        let request = Request { index, argument, response: Response::Short, data };
        let timeout = self.channel.options.timeouts.command_ms;
        let reply = self.channel.try_request(request, timeout)?;
        self.channel.effect(|channel| {
            let bytes = usize::from(block) * usize::from(blocks);
            channel.machine.sync_for_cpu(channel.layout.scratch.span(0, bytes));
        });
        Ok(reply.map(|_| ()))
    }

    /// Sends a command that writes `blocks` of 512 bytes from the scratch memory, which `fill`
    /// fills.
    pub(crate) fn store(
        &mut self,
        (index, argument): (CommandIndex, u32),
        blocks: u16,
        fill: impl FnOnce(&DmaRegion),
    ) -> Run<()> {
        self.channel.effect(|channel| fill(&channel.layout.scratch));
        let data = Some(self.channel.scratch_moves(false, (512, blocks)));
        let request = Request { index, argument, response: Response::Short, data };
        let timeout = self.channel.options.timeouts.command_ms;
        match self.channel.try_request(request, timeout)? {
            Ok(_) => self.wait_ready(index, (None, timeout)).map(|_| ()),
            Err(BusError::STATUS) => {
                let status = self.channel.once(|channel| channel.bus.told().into()) as u32;
                Err(Cause::Status(index, CardStatus::from_bits(status)).into())
            }
            Err(error) => Err(Cause::Bus(index, error).into()),
        }
    }

    /// Reads EXT_CSD into the scratch memory.
    pub(crate) fn fetch_ext_csd(&mut self) -> Run<Result<(), BusError>> {
        self.fetch((CommandIndex::SendExtCsd, 0), (ext_csd::LENGTH as u16, 1))
    }

    /// Reads EXT_CSD as it is in the card now.
    pub(crate) fn read_ext_csd(&mut self) -> Run<()> {
        match self.fetch_ext_csd()? {
            Ok(()) => {
                self.channel.effect(|channel| {
                    let mut csd = ExtCsd::default();
                    channel.layout.scratch.read(0, &mut csd.0);
                    self.device.ext_csd = csd;
                });
                Ok(())
            }
            Err(error) => Err(Cause::Bus(CommandIndex::SendExtCsd, error).into()),
        }
    }

    /// Whether the card reports the same as before with this timing, in the fields that cannot
    /// change.
    pub(crate) fn verify_bus(&mut self) -> Wait<Result<bool, EmmcError>> {
        let fetched = settled(self.fetch_ext_csd())?;
        let fetched = match fetched {
            Ok(fetched) => fetched,
            Err(error) => return Ok(Err(error)),
        };
        if fetched.is_err() {
            return Ok(Ok(false));
        }
        let same = self.channel.once(|channel| {
            let mut csd = ExtCsd::default();
            channel.layout.scratch.read(0, &mut csd.0);
            let known = &self.device.ext_csd;
            const FIXED: [core::ops::Range<usize>; 3] = [160..161, 192..246, 249..253];
            FIXED.iter().all(|part| csd.0[part.clone()] == known.0[part.clone()]).into()
        });
        Ok(Ok(same != 0))
    }
}

//! The queueing engine: on and off, and off the bus for commands that need it.

use crate::card::Card;
use crate::channel::{Channel, Drained, Run};
use crate::history::ErrorKind;
use crate::options::Queueing;
use crate::quirks::{CardQuirk, HostQuirk};
use crate::shared::Terms;
use crate::table::Format;
use crate::{Cause, EmmcError};
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_script::{Primitives, Replay};
use flysch_wire::mmc::cqhci::{
    CQCFG, CQCTL, CQIC, CQIS, CQISGE, CQISTE, CQRMEM, CQSSC2, CQTCLR, CQTDLBA, CQTDLBAU, Cqcfg,
    Cqctl, Cqis, DIRECT, RMEM_DEFAULT,
};
use flysch_wire::mmc::ext_csd;
use flysch_wire::mmc::sdhci::{self as reg, Block, Interrupts};

/// Fewer tasks than this are not worth it (Linux: 2).
const DEPTH_MIN: u8 = 2;
/// Time for the engine to forget its tasks, ms (Linux: 20).
const CLEAR_MS: u32 = 20;

/// What the engine reports.
const TOLD: u32 =
    Cqis::new().with_halted(true).with_complete(true).with_response_error(true).into_bits();

/// What the controller reports while the engine has the bus.
const QUEUEING: u32 = Interrupts::new().with_queueing(true).into_bits() | Interrupts::ERRORS;

impl<M: Machine> Channel<M> {
    /// Enables the interrupts of commands that the host sends itself.
    pub(crate) fn plain_interrupts(&mut self) {
        let all = Interrupts::new()
            .with_command(true)
            .with_transfer(true)
            .with_dma(true)
            .with_write_ready(true)
            .with_read_ready(true)
            .into_bits()
            | Interrupts::ERRORS;
        self.write(reg::STATUS, u32::MAX);
        self.write(reg::STATUS_ENABLE, all);
        self.write(reg::SIGNAL_ENABLE, if self.options.interrupts { all } else { 0 });
    }

    /// The interrupts to be signalled while the engine has the bus.
    fn engine_signals(&self) -> u32 {
        if self.options.interrupts { QUEUEING } else { 0 }
    }

    fn has_direct(&self) -> bool {
        !self.quirks.has(HostQuirk::NoDirect)
    }

    fn engine_register(&self, register: u32) -> u32 {
        self.engine.base.unwrap_or(0) + register
    }

    #[track_caller]
    fn write_engine(&mut self, register: u32, value: u32) {
        let at = self.engine_register(register);
        self.write(at, value);
    }
}

impl<M: Machine> Card<M> {
    /// Takes the card out of its queueing mode, where commands for other partitions are illegal,
    /// and back. The bus is the host's.
    pub(crate) fn set_queueing(&mut self, on: bool) -> Run<()> {
        if self.device.queue_depth == 0 {
            return Ok(());
        }
        self.switch(ext_csd::CMDQ_MODE_EN, on.into())
    }
}

/// The queueing engine, and who has the bus: the engine or the host.
#[derive(Debug, Default)]
pub(crate) struct TaskEngine {
    /// The engine runs and has the bus.
    pub(crate) runs: bool,
}

impl TaskEngine {
    /// Tasks the engine can be given: none if card or controller does not support it, or the
    /// caller does not want it.
    fn depth<M: Machine>(card: &Card<M>) -> u8 {
        let Channel { options, engine, capabilities, .. } = &card.channel;
        let depth = card.device.ext_csd.queue_depth();
        let off = options.queueing == Queueing::Off
            || engine.base.is_none()
            || card.device.quirks.has(CardQuirk::NoQueueing)
            // The engine has DMA only.
            || !capabilities.adma2()
            || !options.dma;
        if off || depth <= DEPTH_MIN { 0 } else { depth.min(DIRECT) }
    }

    /// Switches queueing on in card and controller, if both have it, and sets the lanes' terms.
    pub(crate) fn begin<M: Machine>(&mut self, card: &mut Card<M>) -> Run<()> {
        let lanes = card.channel.options.lanes as u8;
        let depth = Self::depth(card);
        let tasks = depth / lanes.max(1);
        let wanted = card.channel.options.queueing == Queueing::Required || lanes > 1;
        if wanted && tasks == 0 {
            return Err(Cause::NoQueueing.into());
        }
        card.channel.effect(|_| card.device.queue_depth = depth);
        if depth != 0 {
            card.switch(ext_csd::CMDQ_MODE_EN, 1)?;
            self.start(card);
        }
        let most = card.channel.options.depth.min(DIRECT.into()) as u8;
        let terms = Terms {
            queueing: depth != 0,
            tasks: tasks.min(most),
            direct: card.channel.has_direct(),
            sectors: card.device.sector_addressed,
            partition: card.device.partition,
        };
        card.channel.effect(|channel| channel.shared.set_terms(terms));
        Ok(())
    }

    /// Sets the engine up and switches it on.
    fn start<M: Machine>(&mut self, card: &mut Card<M>) {
        let channel = &mut card.channel;
        let config = Cqcfg::new()
            .with_descriptors_128(channel.bus.format != Format::NARROW)
            .with_direct(channel.has_direct());
        channel.write_engine(CQCFG, config.into_bits());
        let tasks = channel.layout.tasks.address();
        channel.write_engine(CQTDLBA, tasks as u32);
        channel.write_engine(CQTDLBAU, (tasks >> 32) as u32);
        channel.write_engine(CQSSC2, card.device.rca.into());
        channel.write_engine(CQRMEM, RMEM_DEFAULT);
        channel.write_engine(CQIC, 0);
        channel.write_engine(CQIS, u32::MAX);
        channel.write_engine(CQCFG, config.with_enable(true).into_bits());
        self.hand_over(channel);
    }

    /// Hands the bus to the engine.
    fn hand_over<M: Machine>(&mut self, channel: &mut Channel<M>) {
        channel.write(reg::BLOCK, Block::new().with_size(512).with_boundary(7).into_bits());
        // Before the engine runs: nothing that it reports from then on must be lost.
        channel.write(reg::STATUS, u32::MAX);
        channel.write(reg::STATUS_ENABLE, QUEUEING);
        channel.write_engine(CQISTE, TOLD);
        let told = TOLD & !Cqis::new().with_halted(true).into_bits();
        channel.write_engine(CQISGE, if channel.options.interrupts { told } else { 0 });
        channel.write_engine(CQCTL, 0);
        channel.write(reg::SIGNAL_ENABLE, channel.engine_signals());
        channel.effect(|_| self.runs = true);
    }

    /// Pauses the lanes, and takes the bus from the engine once it has completed its tasks, at
    /// `deadline` at the latest.
    ///
    /// If that fails the lanes run again: with [`Cause::InFlight`] because the engine still had
    /// tasks, with [`EmmcError::Recovered`] because one of them failed or is overdue. The evidence
    /// is left for the recovery that follows.
    pub(crate) fn take_bus<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        deadline: Option<Instant>,
    ) -> Run<()> {
        channel.order(Order::PAUSE);
        channel.lanes_obey()?;
        if channel.once(|_| self.runs.into()) == 0 {
            return Ok(());
        }
        // The host polls from here on: an interrupt that nobody answers would keep the line up.
        channel.write(reg::SIGNAL_ENABLE, 0);
        let error = match channel.until_drained(deadline)? {
            Ok(Drained::Yes) => return self.release(channel)?.map_err(Into::into),
            Ok(Drained::Late) => Cause::InFlight.into(),
            Ok(Drained::Disturbed) => EmmcError::Recovered,
            Err(cause) => cause.into(),
        };
        channel.write(reg::SIGNAL_ENABLE, channel.engine_signals());
        channel.order(0);
        Err(error.into())
    }

    /// Halts the engine; then the bus is the host's.
    pub(crate) fn release<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
    ) -> Run<Result<(), Cause>> {
        let halted = self.halt(channel)?;
        channel.effect(|_| self.runs = false);
        channel.plain_interrupts();
        Ok(halted)
    }

    /// Halts the engine, and leaves what its tasks have raised as it is.
    pub(crate) fn halt<M: Machine>(&self, channel: &mut Channel<M>) -> Run<Result<(), Cause>> {
        let halt = Cqctl::new().with_halt(true).into_bits();
        channel.write(reg::SIGNAL_ENABLE, 0);
        channel.write_engine(CQCTL, halt);
        let (control, timeout) = (channel.engine_register(CQCTL), channel.options.timeouts.halt_ms);
        let halted = channel.until(("CQCTL", control), halt, halt, timeout)?;
        Ok(halted.map(|_| ()))
    }

    /// Makes the engine forget its tasks and switches it off.
    pub(crate) fn stop<M: Machine>(&mut self, channel: &mut Channel<M>) -> Run<()> {
        let clear = Cqctl::new().with_halt(true).with_clear_all(true).into_bits();
        channel.write_engine(CQCTL, clear);
        let control = channel.engine_register(CQCTL);
        let mask = Cqctl::new().with_clear_all(true).into_bits();
        // An engine that does not is switched off all the same.
        let _ = channel.until(("CQCTL", control), mask, 0, CLEAR_MS)?;
        channel.write_engine(CQCFG, 0);
        channel.effect(|_| self.runs = false);
        Ok(())
    }

    /// Switches the engine on again after [`stop`](Self::stop).
    pub(crate) fn restart<M: Machine>(&mut self, card: &mut Card<M>) {
        card.channel.note(ErrorKind::QueueReset, 0);
        self.start(card);
    }

    /// Gives the bus back to the engine, and lets the lanes run.
    pub(crate) fn give_bus<M: Machine>(&mut self, card: &mut Card<M>) {
        if card.device.queue_depth != 0 {
            self.hand_over(&mut card.channel);
        }
        card.channel.order(0);
    }

    /// Removes one task from the halted engine.
    pub(crate) fn clear_task<M: Machine>(
        &self,
        channel: &mut Channel<M>,
        task: u32,
    ) -> Run<Result<(), Cause>> {
        let register = channel.engine_register(CQTCLR);
        channel.write(register, 1 << task);
        let cleared = channel.until(("CQTCLR", register), 1 << task, 0, CLEAR_MS)?;
        Ok(cleared.map(|_| ()))
    }
}

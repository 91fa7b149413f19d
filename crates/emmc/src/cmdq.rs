//! The queueing engine: on and off, and out of the way for commands that need the bus.

use crate::control::{Core, Drained, Run};
use crate::history::ErrorKind;
use crate::quirks::{CardQuirk, HostQuirk};
use crate::shared::Terms;
use crate::{Cause, Error, options::Queueing};
use flysch_api::machine::{Instant, Machine};
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::mmc::cqhci::{
    CQCFG, CQCTL, CQIC, CQIS, CQISGE, CQISTE, CQRMEM, CQSSC2, CQTDLBA, CQTDLBAU, Cqcfg, Cqctl,
    Cqis, DIRECT, RMEM_DEFAULT,
};
use flysch_wire::mmc::ext_csd;
use flysch_wire::mmc::sdhci::{self as reg, Block, Interrupts};

/// Fewest tasks that are worth it (Linux: 2).
const DEPTH_MIN: u8 = 2;
/// The engine to forget its tasks, ms (Linux: 20).
const CLEAR_MS: u32 = 20;

/// What the engine tells.
const TOLD: u32 =
    Cqis::new().with_halted(true).with_complete(true).with_response_error(true).into_bits();

/// What the controller tells while the engine has the bus.
const QUEUEING: u32 = Interrupts::new().with_queueing(true).into_bits() | Interrupts::ERRORS;

impl<M: Machine> Core<M> {
    /// Tasks the engine can be given: none without card, controller or wish.
    pub(crate) fn queue_depth(&self) -> u8 {
        let depth = self.device.ext_csd.queue_depth();
        let off = self.options.queueing == Queueing::Off
            || self.engine.base.is_none()
            || self.device.quirks.has(CardQuirk::NoQueueing)
            // The engine has DMA only.
            || !self.capabilities.adma2()
            || !self.options.dma;
        if off || depth <= DEPTH_MIN { 0 } else { depth.min(DIRECT) }
    }

    fn has_direct(&self) -> bool {
        !self.quirks.has(HostQuirk::NoDirect)
    }

    /// Switches queueing on in card and controller, if both have it, and settles the lanes' terms.
    pub(crate) fn begin_queueing(&mut self) -> Run<()> {
        let lanes = self.options.lanes as u8;
        let depth = self.queue_depth();
        let tasks = depth / lanes.max(1);
        let wanted = self.options.queueing == Queueing::Required || lanes > 1;
        if wanted && tasks == 0 {
            return Err(Cause::NoQueueing.into());
        }
        self.effect(|core| core.device.queue_depth = depth);
        if depth != 0 {
            self.switch(ext_csd::CMDQ_MODE_EN, 1)?;
            self.start_engine()?;
        }
        let most = self.options.depth.min(DIRECT.into()) as u8;
        let terms = Terms {
            queueing: depth != 0,
            tasks: tasks.min(most),
            direct: self.has_direct(),
            sectors: self.device.sector_addressed,
            partition: self.device.partition,
        };
        self.effect(|core| core.shared.set_terms(terms));
        Ok(())
    }

    fn engine_register(&self, register: u32) -> u32 {
        self.engine.base.unwrap_or(0) + register
    }

    #[track_caller]
    fn write_engine(&mut self, register: u32, value: u32) {
        let at = self.engine_register(register);
        self.write(at, value);
    }

    /// Sets the engine up and switches it on.
    fn start_engine(&mut self) -> Run<()> {
        let direct = self.has_direct();
        let config = Cqcfg::new()
            .with_descriptors_128(self.bus.format != crate::table::Format::NARROW)
            .with_direct(direct);
        self.write_engine(CQCFG, config.into_bits());
        let tasks = self.layout.tasks.address();
        self.write_engine(CQTDLBA, tasks as u32);
        self.write_engine(CQTDLBAU, (tasks >> 32) as u32);
        self.write_engine(CQSSC2, self.device.rca.into());
        self.write_engine(CQRMEM, RMEM_DEFAULT);
        self.write_engine(CQIC, 0);
        self.write_engine(CQIS, u32::MAX);
        self.write_engine(CQCFG, config.with_enable(true).into_bits());
        self.engine_on();
        Ok(())
    }

    /// Hands the bus to the engine.
    fn engine_on(&mut self) {
        self.write(reg::BLOCK, Block::new().with_size(512).with_boundary(7).into_bits());
        // Before the engine goes on: what it has to tell from then on is not to be lost.
        self.write(reg::STATUS, u32::MAX);
        self.write(reg::STATUS_ENABLE, QUEUEING);
        self.write_engine(CQISTE, TOLD);
        let told = TOLD & !Cqis::new().with_halted(true).into_bits();
        self.write_engine(CQISGE, if self.options.interrupts { told } else { 0 });
        self.write_engine(CQCTL, 0);
        self.write(reg::SIGNAL_ENABLE, self.signals());
        self.effect(|core| core.queueing = true);
    }

    /// Interrupts of commands that the host sends itself.
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

    /// Pauses the lanes, and takes the bus from the engine once what it has is done, at `deadline`
    /// at the latest.
    ///
    /// If that fails the lanes run again: with [`Cause::InFlight`] because the engine still had
    /// tasks, with [`Error::Recovered`] because one of them failed or is overdue. What tells of it
    /// is left as it is for the recovery that comes next.
    pub(crate) fn take_bus(&mut self, deadline: Option<Instant>) -> Run<()> {
        self.effect(|core| core.shared.orders.publish(Order::PAUSE));
        self.lanes_obey()?;
        if self.once(|core| core.queueing.into()) == 0 {
            return Ok(());
        }
        // The host polls from here on: what nobody answers would keep the line up.
        self.write(reg::SIGNAL_ENABLE, 0);
        let error = match self.until_drained(deadline)? {
            Ok(Drained::Yes) => return self.halt_engine()?.map_err(Into::into),
            Ok(Drained::Late) => Cause::InFlight.into(),
            Ok(Drained::Disturbed) => Error::Recovered,
            Err(cause) => cause.into(),
        };
        self.write(reg::SIGNAL_ENABLE, self.signals());
        self.effect(|core| core.shared.orders.publish(0));
        Err(error.into())
    }

    /// Interrupts of the controller while the engine has the bus.
    fn signals(&self) -> u32 {
        if self.options.interrupts { QUEUEING } else { 0 }
    }

    /// Halts the engine; the bus is the host's then.
    pub(crate) fn halt_engine(&mut self) -> Run<Result<(), Cause>> {
        let halted = self.halt()?;
        self.effect(|core| core.queueing = false);
        self.plain_interrupts();
        Ok(halted)
    }

    /// Halts the engine, and leaves what its tasks have raised as it is.
    pub(crate) fn halt(&mut self) -> Run<Result<(), Cause>> {
        let halt = Cqctl::new().with_halt(true).into_bits();
        self.write(reg::SIGNAL_ENABLE, 0);
        self.write_engine(CQCTL, halt);
        let (control, timeout) = (self.engine_register(CQCTL), self.options.timeouts.halt_ms);
        let halted = self.until(("CQCTL", control), halt, halt, timeout)?;
        Ok(halted.map(|_| ()))
    }

    /// Makes the engine forget its tasks and switches it off.
    pub(crate) fn stop_engine(&mut self) -> Run<()> {
        let clear = Cqctl::new().with_halt(true).with_clear_all(true).into_bits();
        self.write_engine(CQCTL, clear);
        let control = self.engine_register(CQCTL);
        let mask = Cqctl::new().with_clear_all(true).into_bits();
        // One that does not is switched off all the same.
        let _ = self.until(("CQCTL", control), mask, 0, CLEAR_MS)?;
        self.write_engine(CQCFG, 0);
        self.effect(|core| core.queueing = false);
        Ok(())
    }

    /// Switches the engine on again after [`stop_engine`](Self::stop_engine).
    pub(crate) fn restart_engine(&mut self) -> Run<()> {
        self.effect(|core| core.errors.note(core.now, ErrorKind::QueueReset, 0));
        self.start_engine()
    }

    /// Gives the bus back to the engine, and lets the lanes run.
    pub(crate) fn give_bus(&mut self) {
        if self.device.queue_depth != 0 {
            self.engine_on();
        }
        self.effect(|core| core.shared.orders.publish(0));
    }

    /// Takes the card out of its queueing mode, where commands for other partitions are illegal,
    /// and back. The bus is the host's.
    pub(crate) fn card_queueing(&mut self, on: bool) -> Run<()> {
        if self.device.queue_depth == 0 {
            return Ok(());
        }
        self.switch(ext_csd::CMDQ_MODE_EN, on.into())
    }

    /// One task out of the halted engine.
    pub(crate) fn clear_task(&mut self, task: u32) -> Run<Result<(), Cause>> {
        let register = self.engine_register(flysch_wire::mmc::cqhci::CQTCLR);
        self.write(register, 1 << task);
        let cleared = self.until(("CQTCLR", register), 1 << task, 0, CLEAR_MS)?;
        Ok(cleared.map(|_| ()))
    }
}

//! The host and its ports as callers see them.

use crate::attached::AtaFacts;
use crate::error::AhciError;
use crate::fanout::Multiplier;
use crate::history::ErrorLog;
use crate::host::Hba;
use crate::init::Step;
use crate::layout;
use crate::operation::{AtaCommand, AtaReply, Operation, Output};
use crate::options::AhciOptions;
use crate::unit::{Progress, State, Unit};
use alloc::boxed::Box;
use alloc::vec::Vec;
use flysch_api::command::{self, Ata, Command, Declined, Failure, Limits, Outcome};
use flysch_api::machine::{Clock, DmaRegion, Instant, Machine, Wake};
use flysch_wire::ata::registers::Cap;

/// The host: bring-up and reset of the HBA. It is polled by the first port.
#[derive(Debug)]
pub struct Host<M: Machine> {
    hba: Hba<M>,
    units: Vec<Box<Unit<M>>>,
}

/// One port of an HBA: commands in, outcomes out, and the other operations of its device.
///
/// The first port does the [`Host`]'s work, so polling it also resets the HBA when a port needs
/// that. Every port with commands in flight must be polled at [`poll_at`](command::Port::poll_at)
/// at the latest.
#[derive(Debug)]
pub struct Port<M: Machine> {
    unit: Box<Unit<M>>,
    hba: Option<Box<Hba<M>>>,
}

impl<M: Machine> Host<M> {
    /// Bytes of DMA memory a driver with these options needs.
    pub fn memory_len(options: &AhciOptions) -> usize {
        layout::memory_len(options)
    }

    /// A host on `machine`. Reads the capability registers but changes nothing.
    ///
    /// `memory` is the driver's own part of the machine's DMA memory, at least
    /// [`memory_len`](Self::memory_len) bytes; command data may lie anywhere else in the machine's
    /// memory.
    ///
    /// # Errors
    /// Options that contradict each other or the HBA, memory too small, or no HBA.
    #[expect(clippy::needless_pass_by_value, reason = "the same shape as the other drivers")]
    pub fn new(machine: M, memory: DmaRegion, options: AhciOptions) -> Result<Self, AhciError> {
        let (hba, units) = Hba::new(&machine, &memory, &options)?;
        Ok(Self { hba, units })
    }

    /// Begins bring-up or, once up, a reset of the HBA. [`poll`](Self::poll) until it is done.
    ///
    /// # Errors
    /// [`AhciError::Busy`].
    pub fn begin(&mut self) -> Result<(), AhciError> {
        self.hba.begin()
    }

    /// Does what can be done now for all ports.
    pub fn poll(&mut self, now: Instant) -> Progress {
        for unit in &mut self.units {
            unit.drive(now);
        }
        let settled = self.units.iter().all(|unit| unit.is_settled());
        self.hba.drive(now, settled);
        match self.hba.take_result() {
            Some(result) => Progress::Done(result.map(|()| Output::None)),
            None if self.hba.is_busy() => Progress::Busy,
            None => Progress::Idle,
        }
    }

    /// When the host wants to be polled.
    pub fn poll_at(&self) -> Option<Instant> {
        let units = self.units.iter().filter_map(|unit| unit.poll_at());
        let at = units.fold(self.hba.poll_at(), Instant::min);
        (at != Instant::NEVER).then_some(at)
    }

    /// Brings up the HBA, and every port in use that has a device.
    ///
    /// # Errors
    /// What keeps the HBA from coming up. [`failure`](Self::failure) says why a port did not.
    pub fn bring_up(&mut self, clock: &impl Clock) -> Result<(), AhciError> {
        self.begin()?;
        loop {
            match self.poll(clock.now()) {
                Progress::Done(result) => return result.map(|_| ()),
                Progress::Busy | Progress::Idle => {
                    let until = self.poll_at();
                    if clock.wait(until) == Wake::Idle && until.is_none() {
                        return Err(AhciError::Gone);
                    }
                }
            }
        }
    }

    /// Numbers of the ports in use.
    pub fn ports(&self) -> &[u8] {
        &self.hba.ports
    }

    /// The state of a port.
    pub fn state(&self, port: u8) -> Option<State> {
        self.unit(port).map(Unit::state)
    }

    /// The bring-up step under way at a port.
    pub fn step(&self, port: u8) -> Option<&'static Step> {
        self.unit(port).and_then(Unit::step)
    }

    /// The device at a port; behind a multiplier, the first one.
    pub fn device(&self, port: u8) -> Option<&AtaFacts> {
        self.unit(port).and_then(|unit| unit.device(0))
    }

    /// The multiplier at a port.
    pub fn multiplier(&self, port: u8) -> Option<&Multiplier> {
        self.unit(port).and_then(|unit| unit.core.attached.multiplier.as_ref())
    }

    /// Why a port did not come up.
    pub fn failure(&self, port: u8) -> Option<AhciError> {
        self.unit(port).and_then(|unit| unit.failure)
    }

    fn unit(&self, port: u8) -> Option<&Unit<M>> {
        let at = self.hba.ports.iter().position(|number| *number == port)?;
        self.units.get(at).map(Box::as_ref)
    }

    /// HBA capabilities.
    pub fn capabilities(&self) -> Cap {
        self.hba.capabilities()
    }

    /// VS: major in the high half, minor in the low.
    pub fn version(&self) -> u32 {
        self.hba.version
    }

    /// The machine the host runs on.
    pub fn machine(&self) -> &M {
        self.hba.machine()
    }

    /// The ports in use; the first does the host's work.
    pub fn into_ports(self) -> Vec<Port<M>> {
        let Self { hba, units } = self;
        let mut hba = Some(Box::new(hba));
        units.into_iter().map(|unit| Port { unit, hba: hba.take() }).collect()
    }
}

impl<M: Machine> Port<M> {
    /// The number of the port.
    pub fn number(&self) -> u8 {
        self.unit.core.lane.port
    }

    /// Whether it can be used.
    pub fn state(&self) -> State {
        self.unit.state()
    }

    /// The device at it; behind a multiplier, the first one.
    pub fn device(&self) -> Option<&AtaFacts> {
        self.unit.device(0)
    }

    /// The device behind its multiplier that this unit addresses.
    pub fn device_behind(&self, unit: u8) -> Option<&AtaFacts> {
        self.unit.device(unit)
    }

    /// The multiplier at it.
    pub fn multiplier(&self) -> Option<&Multiplier> {
        self.unit.core.attached.multiplier.as_ref()
    }

    /// Number of devices that have appeared so far: a new number means another device.
    pub fn generation(&self) -> u32 {
        self.unit.core.attached.generation
    }

    /// Why it is out of order, if it is.
    pub fn failure_of_port(&self) -> Option<AhciError> {
        self.unit.failure
    }

    /// What has gone wrong at this port so far.
    pub fn errors(&self) -> &ErrorLog {
        self.unit.errors()
    }

    /// What has gone wrong with the HBA, if this port does the host's work.
    pub fn hba_errors(&self) -> Option<&ErrorLog> {
        self.hba.as_ref().map(|hba| hba.errors())
    }

    /// HBA capabilities.
    pub fn capabilities(&self) -> Cap {
        self.unit.core.channel.hba.cap
    }

    /// Whether the HBA is out of order, if this port does the host's work.
    pub fn is_hba_gone(&self) -> bool {
        self.hba.as_ref().is_some_and(|hba| hba.is_gone())
    }

    /// Whether the HBA is up, if this port does the host's work.
    pub fn is_hba_up(&self) -> bool {
        self.hba.as_ref().is_some_and(|hba| hba.is_up())
    }

    /// Resets the HBA, if this port does the host's work: commands of all ports end with a reset.
    ///
    /// # Errors
    /// [`AhciError::Unsupported`] for another port, [`AhciError::Busy`].
    pub fn reset_hba(&mut self) -> Result<(), AhciError> {
        match &mut self.hba {
            Some(hba) => hba.begin(),
            None => {
                Err(AhciError::Unsupported("a reset of the HBA from a port that is not the first"))
            }
        }
    }

    /// Stops the port's interrupts until it is next used: for a port without a device that is
    /// polled only now and then. A new device would otherwise interrupt until that poll.
    pub fn silence(&mut self) {
        self.unit.silence();
    }

    /// Ends a command of this port before its deadline; its outcome will be
    /// [`Aborted`](command::Ended::Aborted) unless it completes first. `false` if no such command
    /// is in flight. A command that the device already has can only be ended by resetting the
    /// device.
    pub fn abort(&mut self, token: u32) -> bool {
        self.unit.core.lane.abort(token)
    }

    /// Begins an operation; [`drive`](Self::drive) until it is done.
    ///
    /// # Errors
    /// [`AhciError::Busy`], [`AhciError::NotUp`], [`AhciError::NoDevice`], [`AhciError::Gone`].
    pub fn begin(&mut self, operation: Operation) -> Result<(), AhciError> {
        self.unit.begin(operation)
    }

    /// Advances the operation under way. Outcomes of commands come only from
    /// [`poll`](command::Port::poll).
    pub fn drive(&mut self, now: Instant) -> Progress {
        self.work(now);
        self.unit.drive(now);
        self.unit.take_progress()
    }

    /// Performs one operation and waits for its end.
    ///
    /// # Errors
    /// Why it failed; [`AhciError::Busy`] also while outcomes of commands wait to be fetched.
    pub fn run(&mut self, clock: &impl Clock, operation: Operation) -> Result<Output, AhciError> {
        while self.drive(clock.now()) == Progress::Busy {
            clock.wait(command::Port::poll_at(self));
        }
        if self.unit.core.lane.in_flight != 0 {
            return Err(AhciError::Busy);
        }
        self.begin(operation)?;
        loop {
            match self.drive(clock.now()) {
                Progress::Done(result) => return result,
                Progress::Busy | Progress::Idle => {
                    let until = command::Port::poll_at(self);
                    if clock.wait(until) == Wake::Idle && until.is_none() {
                        return Err(AhciError::Gone);
                    }
                }
            }
        }
    }

    /// Runs a command to its end, successful or not.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn command(
        &mut self,
        clock: &impl Clock,
        command: AtaCommand,
    ) -> Result<AtaReply, AhciError> {
        match self.run(clock, Operation::Command(Box::new(command)))? {
            Output::Command(reply) => Ok(reply),
            Output::None => Err(AhciError::NotUp),
        }
    }

    /// Does the host's work, if this port has it and it is due.
    #[inline]
    fn work(&mut self, now: Instant) {
        if let Some(hba) = &mut self.hba
            && hba.is_due(now)
        {
            hba.drive(now, true);
            self.unit.wake(now);
        }
    }
}

impl<M: Machine> command::Port for Port<M> {
    type Protocol = Ata;

    fn limits(&self) -> &Limits {
        &self.unit.core.lane.limits
    }

    fn memory(&self) -> &DmaRegion {
        &self.unit.core.lane.data
    }

    #[inline(always)]
    fn start(&mut self, command: Command<Ata>, now: Instant) -> Result<(), Declined> {
        self.unit.start(command, now)
    }

    #[inline]
    fn ring(&mut self, now: Instant) {
        self.work(now);
        self.unit.ring(now);
    }

    #[inline(always)]
    fn poll(&mut self, now: Instant) -> Option<Outcome> {
        if let outcome @ Some(_) = self.unit.poll(now) {
            return outcome;
        }
        self.work(now);
        self.unit.take_ended()
    }

    fn failure(&self) -> Failure<Ata> {
        self.unit.core.lane.failure()
    }

    fn poll_at(&self) -> Option<Instant> {
        let host = self.hba.as_ref().map_or(Instant::NEVER, |hba| hba.poll_at());
        let at = self.unit.poll_at().map_or(host, |at| at.min(host));
        (at != Instant::NEVER).then_some(at)
    }
}

//! The control path of an HBA.

use crate::channel::{Channel, HbaFacts, Run};
use crate::error::{AhciError, Cause};
use crate::history::{ErrorKind, ErrorLog};
use crate::layout;
use crate::options::AhciOptions;
use crate::quirks::{Quirk, Quirks};
use crate::shared::{Shared, cause};
use crate::unit::Unit;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use flysch_api::machine::{DmaRegion, Instant, Machine};
use flysch_orders::Order;
use flysch_script::{Player, Primitives, Replay, Stop};
use flysch_wire::ata::registers::{
    BOHC, Bohc, CAP, CAP2, Cap, Cap2, GHC, Ghc, IS, PI, PORTS_MAX, VS,
};

/// The first step of bring-up, followed by those of the ports ([`STEPS`](crate::STEPS)).
const HBA_STEP: &str = "HBA";
/// How long the BIOS has to hand over the HBA (AHCI 10.6.3): it reports within 25 ms that it is
/// busy, and then has two seconds.
const BIOS_BUSY_MS: u32 = 25;
const BIOS_MS: u32 = 2_000;
/// Attempts to switch on AHCI mode, as in Linux.
const AE_TRIES: u32 = 5;
const MS: u64 = 1_000_000;
/// How often the host checks whether a port on another thread has called it, nanoseconds.
const ATTENTION_NANOS: u64 = 100_000_000;

/// The ports in use, in order.
pub(crate) type Units<M> = Vec<Box<Unit<M>>>;

#[derive(Debug)]
enum Job {
    /// Hand-off, reset, AHCI mode; the ports follow on their own.
    Reset {
        /// Whether the ports must be stopped first.
        running: bool,
    },
    /// Waits until the ports have found out what is attached to them.
    Ports,
}

/// The HBA: bring-up and reset. It is polled by the first port.
#[derive(Debug)]
pub(crate) struct Hba<M: Machine> {
    channel: Channel<M>,
    pub(crate) version: u32,
    /// Numbers of the ports in use, in order.
    pub(crate) ports: Vec<u8>,
    job: Option<Job>,
    job_at: Instant,
    is_gone: bool,
    is_up: bool,
    result: Option<Result<(), AhciError>>,
}

impl<M: Machine> Hba<M> {
    /// An HBA on `machine`, and its ports. Reads registers but changes nothing.
    pub(crate) fn new(
        machine: &M,
        memory: &DmaRegion,
        options: &AhciOptions,
    ) -> Result<(Self, Units<M>), AhciError> {
        check(options)?;
        let (cap, ports) = (machine.read32(CAP), machine.read32(PI));
        if (cap, ports) == (u32::MAX, u32::MAX) {
            return Err(AhciError::NoController);
        }
        let quirks = Quirks::of_hba(machine.identity()).and(options.quirks);
        let facts = HbaFacts {
            cap: Cap::from_bits(cap),
            cap2: Cap2::from_bits(machine.read32(CAP2)),
            quirks,
        };
        // An HBA that reports no ports at all has as many as CAP.NP says (Linux does the same).
        let implemented = match ports {
            0 => u32::MAX >> (31 - u32::from(facts.cap.np())),
            ports => ports,
        };
        let used = implemented & options.ports;
        if used == 0 {
            return Err(AhciError::NoPorts(implemented));
        }
        let end = memory.address() + memory.len() as u64;
        if end > 1 << 32 && (!facts.cap.s64a() || quirks.has(Quirk::Only32Bit)) {
            return Err(AhciError::Unsupported(
                "memory above 4 GiB with an HBA of 32-bit addresses",
            ));
        }
        let ports: Vec<u8> = (0..PORTS_MAX as u8).filter(|port| used >> port & 1 != 0).collect();
        let shared = Arc::new(Shared::new(ports.len()));
        shared.orders.publish(Order::PAUSE | Order::STOP);
        let unit = |(index, &port): (usize, &u8)| {
            let memory = layout::port(memory, options, index)?;
            let of = (index, port);
            Ok(Box::new(Unit::new(machine, &shared, of, memory, (options, facts))))
        };
        let units = ports.iter().enumerate().map(unit).collect::<Result<Vec<_>, AhciError>>()?;
        let own = layout::port(memory, options, 0)?;
        let this = Self {
            channel: Channel::new(machine, &shared, 0, own, (options, facts)),
            version: machine.read32(VS),
            ports,
            job: None,
            job_at: Instant::NEVER,
            is_gone: false,
            is_up: false,
            result: None,
        };
        Ok((this, units))
    }

    pub(crate) fn machine(&self) -> &M {
        &self.channel.machine
    }

    pub(crate) fn capabilities(&self) -> Cap {
        self.channel.hba.cap
    }

    pub(crate) fn errors(&self) -> &ErrorLog {
        &self.channel.errors
    }

    pub(crate) fn is_up(&self) -> bool {
        self.is_up
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    pub(crate) fn take_result(&mut self) -> Option<Result<(), AhciError>> {
        self.result.take()
    }

    /// Begins a reset of the HBA; the first one is its bring-up.
    pub(crate) fn begin(&mut self) -> Result<(), AhciError> {
        if self.job.is_some() {
            return Err(AhciError::Busy);
        }
        self.is_gone = false;
        self.channel.shared.orders.take_causes();
        self.set_job(Job::Reset { running: self.is_up });
        self.result = None;
        Ok(())
    }

    fn set_job(&mut self, job: Job) {
        self.channel.script.abandon();
        self.job = Some(job);
        self.job_at = Instant::START;
    }

    /// Whether there is something to do.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.job_at || (self.channel.shared.orders.is_called() && self.listens())
    }

    fn listens(&self) -> bool {
        self.is_up && !matches!(self.job, Some(Job::Reset { .. }))
    }

    pub(crate) fn poll_at(&self) -> Instant {
        if self.channel.shared.orders.is_called() && self.listens() {
            Instant::START
        } else {
            self.job_at
        }
    }

    /// Does what can be done now; `settled` says whether the ports it can see are settled.
    #[cold]
    pub(crate) fn drive(&mut self, now: Instant, settled: bool) {
        self.look_for_trouble();
        while let Some(job) = &self.job {
            if matches!(job, Job::Ports) {
                if !settled {
                    self.job_at = Instant::NEVER;
                    return;
                }
                self.job = None;
                self.result = Some(Ok(()));
                break;
            }
            if let Some(at) = self.channel.advance(now, |channel, action| channel.attempt(action)) {
                self.job_at = at;
                return;
            }
            let Job::Reset { running } = *job else { return };
            match self.reset(running) {
                Err(Stop::Pending) => {
                    self.job_at = Instant::START;
                    return;
                }
                Err(Stop::Failed(error)) => self.failed(error),
                Ok(()) => {
                    self.channel.script.turn_page();
                    self.is_up = true;
                    self.channel.shared.orders.take_causes();
                    self.channel.shared.orders.publish(0);
                    self.set_job(Job::Ports);
                    return;
                }
            }
        }
        self.job_at = if self.is_up { now.after_nanos(ATTENTION_NANOS) } else { Instant::NEVER };
    }

    fn look_for_trouble(&mut self) {
        if !self.listens() {
            return;
        }
        self.channel.shared.orders.take_call();
        let causes = self.channel.shared.orders.take_causes();
        if causes & cause::REMOVED != 0 {
            self.channel.log(ErrorKind::Removed, 0);
            self.failed(AhciError::Gone);
        } else if causes & cause::HBA_RESET != 0 {
            self.set_job(Job::Reset { running: true });
        }
    }

    fn failed(&mut self, error: AhciError) {
        self.channel.script.abandon();
        self.job = None;
        self.is_up = false;
        self.is_gone = true;
        self.channel.shared.orders.publish(Order::GONE);
        self.channel.log(ErrorKind::Gone, 0);
        self.result = Some(Err(match error {
            AhciError::Failed(cause) => AhciError::Step { step: HBA_STEP, cause },
            error => error,
        }));
    }

    /// Hand-off from the BIOS, reset, AHCI mode (AHCI 10.6.3, 10.4.3).
    fn reset(&mut self, running: bool) -> Run<()> {
        if running {
            self.channel.order(Order::PAUSE);
            self.channel.ports_obey()?;
        }
        self.hand_off()?;
        self.enable_ahci()?;
        if !self.channel.hba.quirks.has(Quirk::NoHbaReset) {
            self.channel.write(GHC, Ghc::new().with_ae(true).with_hr(true).into_bits());
            let reset = Ghc::new().with_hr(true).into_bits();
            self.channel.until(
                ("GHC", GHC),
                reset,
                0,
                self.channel.options.timeouts.hba_reset_ms,
            )??;
            self.enable_ahci()?;
        }
        self.channel.note(ErrorKind::HbaReset, running.into());
        // No more data is transferred: the ports can return what they had.
        self.channel.order(Order::PAUSE | Order::STOP);
        if running {
            self.channel.ports_obey()?;
            let ports = self.ports.len();
            self.channel.effect(|channel| {
                (0..ports).for_each(|index| channel.shared.orders.renew(index));
            });
        }
        self.channel.write(IS, u32::MAX);
        let ghc = Ghc::new().with_ae(true).with_ie(self.channel.options.interrupts);
        self.channel.write(GHC, ghc.into_bits());
        Ok(())
    }

    fn hand_off(&mut self) -> Run<()> {
        if !self.channel.hba.cap2.boh() {
            return Ok(());
        }
        self.channel.write(BOHC, Bohc::new().with_oos(true).into_bits());
        self.channel.sleep(u64::from(BIOS_BUSY_MS) * MS)?;
        let busy = Bohc::from_bits(self.channel.read(BOHC));
        if busy.bos() || busy.bb() {
            let owned = Bohc::new().with_bos(true).with_bb(true).into_bits();
            // A BIOS that does not hand over in time is overruled, as the specification says.
            let _overruled = self.channel.until(("BOHC", BOHC), owned, 0, BIOS_MS)?;
        }
        Ok(())
    }

    /// Sets GHC.AE, which some HBAs forget.
    fn enable_ahci(&mut self) -> Run<()> {
        for _ in 0..AE_TRIES {
            let ghc = self.channel.read(GHC);
            if ghc == u32::MAX {
                return Err(Cause::Removed.into());
            }
            if Ghc::from_bits(ghc).ae() {
                return Ok(());
            }
            self.channel.write(GHC, Ghc::new().with_ae(true).into_bits());
            self.channel.sleep(10 * MS)?;
        }
        let value = self.channel.read(GHC);
        Err(Cause::Register { name: "GHC", value }.into())
    }
}

fn check(options: &AhciOptions) -> Result<(), AhciError> {
    if !(1..=AhciOptions::DEPTH_MAX).contains(&options.depth) {
        return Err(AhciError::Options("depth must be 1 to 32"));
    }
    if options.ports == 0 {
        return Err(AhciError::Options("at least one port is needed"));
    }
    if !(4096..=AhciOptions::TRANSFER_MAX).contains(&options.transfer_max)
        || !options.transfer_max.is_multiple_of(4096)
    {
        return Err(AhciError::Options("transfer_max must be a multiple of 4 KiB up to 32 MiB"));
    }
    if options.speed > 3 {
        return Err(AhciError::Options("speed must be 0 to 3"));
    }
    Ok(())
}

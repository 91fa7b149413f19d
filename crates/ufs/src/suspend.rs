//! Suspend: the link hibernates, and the device may sleep, until a command or an operation wants
//! them.
//!
//! While they are suspended the lanes take no commands: the first that is declined wakes them. On
//! the way down the device sleeps before the link does, on the way up the link wakes first, and
//! the lanes go on when both are awake. What fails on the way down is undone; what fails on the
//! way up leads to a reset, and the lanes wait for it.

use crate::Cause;
use crate::channel::{Run, Stop};
use crate::control::Core;
use crate::platform::{Event, Phase};
use crate::power_mode::{DevicePower, SuspendLevel};
use crate::shared::order;
use crate::uic::UicCommand;
use crate::writebooster::WriteBooster;
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::Player;
use flysch_wire::ufs::uic::UicOpcode;

impl<M: Machine> Core<M> {
    /// Suspends as deep as `level`; what is suspended deeper stays so.
    pub(crate) fn suspend(&mut self, level: SuspendLevel) -> Run<()> {
        let wants_sleep = level == SuspendLevel::Sleep;
        if self.peer.channel.once(|_| self.link.hibernating.into()) != 0 {
            if !wants_sleep || self.peer.channel.once(|_| self.asleep.into()) != 0 {
                return Ok(());
            }
            self.resume()?;
        }
        self.peer.channel.quiesce()?;
        if wants_sleep
            && !self.has_work_left()?
            && let Err(cause) = self.put_to_sleep()?
        {
            return self.stay_up(cause);
        }
        if let Err(cause) = self.board.tell_or_refusal(
            &mut self.peer.channel,
            Event::HibernateEnter,
            Phase::Before,
        )? {
            return self.stay_up(cause);
        }
        let done = self.peer.channel.uic(UicCommand::control(UicOpcode::DmeHibernateEnter))?;
        self.peer.channel.effect(|channel| match done {
            Ok(_) => {
                self.link.hibernating = true;
                channel.shared.orders.publish(Order::PAUSE | order::ASLEEP);
            }
            // The state of the link is unknown now: only a new start-up settles it.
            Err(_) => channel.ask_for_reset(),
        });
        done?;
        self.board.tell(&mut self.peer.channel, Event::HibernateEnter, Phase::After)?;
        self.board.clocks(&mut self.peer.channel, false);
        Ok(())
    }

    /// Wakes link and device if they are suspended, and lets the lanes go on.
    pub(crate) fn resume(&mut self) -> Run<()> {
        if self.peer.channel.once(|_| self.link.hibernating.into()) == 0 {
            return Ok(());
        }
        match self.wake() {
            Err(Stop::Failed(error)) => {
                self.peer.channel.effect(|channel| channel.ask_for_reset());
                Err(error.into())
            }
            done => done,
        }
    }

    fn wake(&mut self) -> Run<()> {
        self.board.clocks(&mut self.peer.channel, true);
        self.board.tell(&mut self.peer.channel, Event::HibernateExit, Phase::Before)?;
        self.peer.channel.uic(UicCommand::control(UicOpcode::DmeHibernateExit))??;
        self.peer.channel.effect(|_| self.link.hibernating = false);
        self.board.tell(&mut self.peer.channel, Event::HibernateExit, Phase::After)?;
        self.wake_sleeper()??;
        self.peer.channel.order(0);
        Ok(())
    }

    /// Whether the device has something to do that it could not do asleep.
    fn has_work_left(&mut self) -> Run<bool> {
        if self.peer.channel.once(|_| self.peer.device.background_operations.into()) != 0 {
            return Ok(true);
        }
        WriteBooster::of(&self.peer.device).is_flushing(&mut self.peer)
    }

    fn put_to_sleep(&mut self) -> Run<Result<(), Cause>> {
        // From now on it may be asleep, whatever becomes of this.
        self.peer.channel.effect(|_| self.asleep = true);
        self.start_stop(DevicePower::Sleep)
    }

    /// Wakes the device if it may be asleep.
    fn wake_sleeper(&mut self) -> Run<Result<(), Cause>> {
        if self.peer.channel.once(|_| self.asleep.into()) == 0 {
            return Ok(Ok(()));
        }
        let woken = self.start_stop(DevicePower::Active)?;
        if woken.is_ok() {
            self.peer.channel.effect(|_| self.asleep = false);
        }
        Ok(woken)
    }

    /// Gives a suspend up before the link was asked to hibernate.
    fn stay_up(&mut self, cause: Cause) -> Run<()> {
        let woken = self.wake_sleeper()?;
        self.peer.channel.effect(|channel| match woken {
            Ok(()) => channel.shared.orders.publish(0),
            Err(_) => channel.ask_for_reset(),
        });
        Err(cause.into())
    }
}

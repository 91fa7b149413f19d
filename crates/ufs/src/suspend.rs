//! Suspend: the link hibernates, and the device may sleep, until a command or an operation needs
//! them.
//!
//! While they are suspended the lanes accept no commands: the first that is declined wakes them. On
//! the way down the device goes to sleep before the link does, on the way up the link wakes first,
//! and the lanes continue when both are awake. A suspend that fails is undone; a wake-up that fails
//! leads to a reset, and the lanes wait for it.

use crate::Cause;
use crate::channel::Run;
use crate::management::Peer;
use crate::platform::{Event, Phase};
use crate::power::Power;
use crate::power_mode::{DevicePower, SuspendLevel};
use crate::shared::order;
use crate::uic::UicCommand;
use crate::writebooster::WriteBooster;
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::{Replay, Stop};
use flysch_wire::ufs::uic::UicOpcode;

impl Power {
    /// Suspends as deep as `level`; what is suspended deeper stays so.
    pub(crate) fn suspend<M: Machine>(
        &mut self,
        peer: &mut Peer<M>,
        level: SuspendLevel,
    ) -> Run<()> {
        let wants_sleep = level == SuspendLevel::Sleep;
        if peer.channel.once(|_| self.link.hibernating.into()) != 0 {
            if !wants_sleep || peer.channel.once(|_| self.asleep.into()) != 0 {
                return Ok(());
            }
            self.resume(peer)?;
        }
        peer.channel.quiesce()?;
        if wants_sleep
            && !has_work_left(peer)?
            && let Err(cause) = self.put_to_sleep(peer)?
        {
            return self.stay_up(peer, cause);
        }
        let event = Event::HibernateEnter;
        if let Err(cause) = self.board.tell_or_refusal(&mut peer.channel, event, Phase::Before)? {
            return self.stay_up(peer, cause);
        }
        let done = peer.channel.uic(UicCommand::control(UicOpcode::DmeHibernateEnter))?;
        peer.channel.effect(|channel| match done {
            Ok(_) => {
                self.link.hibernating = true;
                channel.shared.orders.publish(Order::PAUSE | order::ASLEEP);
            }
            // The state of the link is unknown now: only a new start-up settles it.
            Err(_) => channel.ask_for_reset(),
        });
        done?;
        self.board.tell(&mut peer.channel, event, Phase::After)?;
        self.board.clocks(&mut peer.channel, false);
        Ok(())
    }

    /// Wakes link and device if they are suspended, and lets the lanes continue.
    pub(crate) fn resume<M: Machine>(&mut self, peer: &mut Peer<M>) -> Run<()> {
        if peer.channel.once(|_| self.link.hibernating.into()) == 0 {
            return Ok(());
        }
        match self.wake(peer) {
            Err(Stop::Failed(error)) => {
                peer.channel.effect(|channel| channel.ask_for_reset());
                Err(error.into())
            }
            done => done,
        }
    }

    fn wake<M: Machine>(&mut self, peer: &mut Peer<M>) -> Run<()> {
        let channel = &mut peer.channel;
        self.board.clocks(channel, true);
        self.board.tell(channel, Event::HibernateExit, Phase::Before)?;
        channel.uic(UicCommand::control(UicOpcode::DmeHibernateExit))??;
        channel.effect(|_| self.link.hibernating = false);
        self.board.tell(channel, Event::HibernateExit, Phase::After)?;
        self.wake_sleeper(peer)??;
        peer.channel.order(0);
        Ok(())
    }

    fn put_to_sleep<M: Machine>(&mut self, peer: &mut Peer<M>) -> Run<Result<(), Cause>> {
        // From now on it may be asleep, whatever the command's result is.
        peer.channel.effect(|_| self.asleep = true);
        self.start_stop(peer, DevicePower::Sleep)
    }

    /// Wakes the device if it may be asleep.
    fn wake_sleeper<M: Machine>(&mut self, peer: &mut Peer<M>) -> Run<Result<(), Cause>> {
        if peer.channel.once(|_| self.asleep.into()) == 0 {
            return Ok(Ok(()));
        }
        let woken = self.start_stop(peer, DevicePower::Active)?;
        if woken.is_ok() {
            peer.channel.effect(|_| self.asleep = false);
        }
        Ok(woken)
    }

    /// Abandons a suspend before the link was told to hibernate.
    fn stay_up<M: Machine>(&mut self, peer: &mut Peer<M>, cause: Cause) -> Run<()> {
        let woken = self.wake_sleeper(peer)?;
        peer.channel.effect(|channel| match woken {
            Ok(()) => channel.shared.orders.publish(0),
            Err(_) => channel.ask_for_reset(),
        });
        Err(cause.into())
    }
}

/// Whether the device has something to do that it could not do asleep.
fn has_work_left<M: Machine>(peer: &mut Peer<M>) -> Run<bool> {
    if peer.channel.once(|_| peer.device.background_operations.into()) != 0 {
        return Ok(true);
    }
    WriteBooster::of(&peer.device).is_flushing(peer)
}

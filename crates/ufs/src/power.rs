//! Power: the link from start-up to full speed, the device's own power modes, and the clocks that
//! go with both.

use crate::board::Board;
use crate::channel::{Channel, Run};
use crate::device_quirks::DeviceQuirk;
use crate::exchange::HostCommand;
use crate::history::ErrorKind;
use crate::link::Link;
use crate::management::Peer;
use crate::options::LinkLimits;
use crate::platform::{Event, Phase};
use crate::power_mode::DevicePower;
use crate::quirks::Quirk;
use crate::speed::speeds;
use crate::time::MS;
use crate::uic::UicCommand;
use crate::{Cause, UfsError};
use flysch_api::machine::Machine;
use flysch_script::{Primitives, Replay};
use flysch_wire::ufs::registers::{AHIT, Ahit, HCS, Hcs, IS, UECDL, UECDME, UECN, UECPA, UECT};
use flysch_wire::ufs::uic::{PaPowerMode, UicAttribute, UicOpcode};
use flysch_wire::ufs::upiu::Wlun;

/// SBC START STOP UNIT.
const START_STOP_UNIT: u8 = 0x1B;

/// What of board, link and device is awake, and how fast.
#[derive(Debug, Default)]
pub(crate) struct Power {
    pub(crate) board: Board,
    pub(crate) link: Link,
    /// A suspend has put the device to sleep: whoever wakes the link wakes it too.
    pub(crate) asleep: bool,
}

/// The link.
impl Power {
    /// Starts the link up and waits until a device is there.
    pub(crate) fn start_link<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        timeout_ms: u32,
    ) -> Run<()> {
        if channel.quirks.has(Quirk::LccOff) {
            // Tolerated where the attribute is missing; the link then starts as it can.
            let _ = channel.dme_set(UicAttribute::PaLocalTxLccEnable, 0)?;
        }
        self.board.tell(channel, Event::LinkStartup, Phase::Before)?;
        channel.uic(UicCommand::control(UicOpcode::DmeLinkstartup))??;
        let present = Hcs::new().with_dp(true).into_bits();
        if channel.until(("HCS", HCS), present, present, timeout_ms)?.is_err() {
            return Err(Cause::NoDevice.into());
        }
        // Start-up raises errors of its own; they say nothing about the link that is up now.
        for register in [UECPA, UECDL, UECN, UECT, UECDME] {
            channel.read(register);
        }
        let stale = channel.read(IS);
        channel.write(IS, stale);
        channel.once(|channel| {
            self.link = Link::default();
            channel.shared.orders.take_causes().into()
        });
        self.board.tell(channel, Event::LinkStartup, Phase::After)
    }

    /// Brings the link to the highest speed that both ends and `limits` allow. Where a gear does
    /// not come up, the next lower one is tried.
    pub(crate) fn set_link<M: Machine>(
        &mut self,
        peer: &mut Peer<M>,
        limits: LinkLimits,
    ) -> Run<()> {
        if peer.channel.quirks.has(Quirk::NoPowerModeChange) || limits.gear == 0 {
            return Ok(());
        }
        let Some((gear, lanes)) = limits.common(&mut peer.channel)? else { return Ok(()) };
        let mut last = Cause::NoDevice;
        for wanted in speeds(gear, lanes, limits.series) {
            match self.change_link(peer, wanted)? {
                Ok(()) => {
                    peer.channel.effect(|_| self.link = wanted);
                    return Ok(());
                }
                Err(cause) => last = cause,
            }
        }
        Err(last.into())
    }

    /// Changes the speed; the platform is told and its clocks follow. A failure is logged.
    fn change_link<M: Machine>(
        &mut self,
        peer: &mut Peer<M>,
        wanted: Link,
    ) -> Run<Result<(), Cause>> {
        let (channel, board) = (&mut peer.channel, &mut self.board);
        let is_fast = wanted.high_speed && wanted.gear > 1;
        if is_fast {
            board.scale(channel, true);
        }
        board.tell(channel, Event::PowerMode(wanted), Phase::Before)?;
        if let Err(cause) = wanted.change(channel, peer.device.quirks)? {
            let series = u32::from(wanted.series.into_bits());
            let value = u32::from(wanted.gear) | u32::from(wanted.lanes) << 8 | series << 16;
            channel.keep(ErrorKind::LinkSpeed, value, None, cause);
            return Ok(Err(cause));
        }
        board.tell(channel, Event::PowerMode(wanted), Phase::After)?;
        if !is_fast {
            board.scale(channel, false);
        }
        Ok(Ok(()))
    }

    /// Whether the link fell back to low speed, as a reset of the line leaves it.
    pub(crate) fn has_slowed<M: Machine>(&self, channel: &mut Channel<M>) -> Run<bool> {
        if !self.link.high_speed {
            return Ok(false);
        }
        let Ok(mode) = channel.dme_get(UicAttribute::PaPwrmode)? else { return Ok(false) };
        let is = PaPowerMode::from_bits(mode);
        let slow = !is.tx().is_high_speed() || !is.rx().is_high_speed();
        if slow {
            channel.note(ErrorKind::LineReset, mode);
        }
        Ok(slow)
    }

    /// Brings the link back to the speed it had.
    pub(crate) fn restore_speed<M: Machine>(
        &mut self,
        peer: &mut Peer<M>,
    ) -> Run<Result<(), Cause>> {
        self.change_link(peer, self.link)
    }
}

/// Hibernation without the host.
impl<M: Machine> Channel<M> {
    /// At bring-up: lets the link hibernate by itself if the caller wants that.
    pub(crate) fn initial_auto_hibern8(&mut self) -> Run<()> {
        if let Some(idle_us) = self.options.auto_hibern8_us {
            self.set_auto_hibern8(idle_us)?;
        } else if self.cap.autoh8() {
            self.write(AHIT, 0);
        }
        Ok(())
    }

    /// Lets the link hibernate by itself after `idle_us`; 0 is never.
    pub(crate) fn set_auto_hibern8(&mut self, idle_us: u32) -> Run<()> {
        if !self.cap.autoh8() || self.quirks.has(Quirk::AutoHibern8Broken) {
            return match idle_us {
                0 => Ok(()),
                _ => Err(UfsError::Unsupported("auto-hibern8").into()),
            };
        }
        self.write(AHIT, Ahit::from_idle_us(idle_us).into_bits());
        Ok(())
    }
}

/// The device.
impl Power {
    /// Sends START STOP UNIT to the UFS DEVICE well-known unit; the platform is told, and its
    /// refusal counts as the device's.
    pub(crate) fn start_stop<M: Machine>(
        &mut self,
        peer: &mut Peer<M>,
        power: DevicePower,
    ) -> Run<Result<(), Cause>> {
        let event = Event::DevicePower(power);
        if let Err(cause) = self.board.tell_or_refusal(&mut peer.channel, event, Phase::Before)? {
            return Ok(Err(cause));
        }
        let mut cdb = [0; 16];
        cdb[0] = START_STOP_UNIT;
        cdb[4] = power.condition() << 4;
        let timeout_ms = peer.channel.options.timeouts.start_stop_ms;
        let command = HostCommand::plain(Wlun::UfsDevice.into_bits(), cdb, timeout_ms);
        if let Err(cause) = peer.scsi(command)? {
            return Ok(Err(cause));
        }
        let lower = power != DevicePower::Active;
        if lower && peer.device.quirks.has(DeviceQuirk::SettleBeforeLowPower) {
            peer.channel.sleep(2 * MS)?;
        }
        Ok(self.board.tell_or_refusal(&mut peer.channel, event, Phase::After)?)
    }

    /// At bring-up: a device that starts in UFS-Sleep, or that a suspend has put there and no reset
    /// has woken, accepts no medium access before it is told to wake.
    pub(crate) fn wake_device<M: Machine>(&mut self, peer: &mut Peer<M>) -> Run<()> {
        let starts_asleep = peer.device.descriptor.b_init_power_mode == 0;
        if starts_asleep || peer.channel.once(|_| self.asleep.into()) != 0 {
            self.start_stop(peer, DevicePower::Active)??;
            peer.channel.effect(|_| self.asleep = false);
        }
        Ok(())
    }
}

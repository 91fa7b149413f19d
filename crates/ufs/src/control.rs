//! The control plane of a controller: everything there is one of, and switching it on and off.

use crate::UfsError;
use crate::channel::{Channel, Run};
use crate::exchange::HostCommand;
use crate::facts::{Facts, UfsFacts};
use crate::history::ErrorKind;
use crate::host_watch;
use crate::keys::CryptoEngine;
use crate::lane::Lane;
use crate::layout::Layout;
use crate::management::Peer;
use crate::platform::{Event, Phase};
use crate::power::Power;
use crate::power_mode::DevicePower;
use crate::queues::Queues;
use crate::shared::Shared;
use crate::time::{MS, US};
use alloc::sync::Arc;
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::{Primitives, Replay, Stop, settled};
use flysch_wire::ufs::registers::{HCE, HCS, Hce, Hcs, IE};

/// SBC SYNCHRONIZE CACHE(10).
const SYNCHRONIZE_CACHE: u8 = 0x35;

/// The objects whose procedures run over the one channel, which the first of them owns.
#[derive(Debug)]
pub(crate) struct Core<M: Machine> {
    pub(crate) peer: Peer<M>,
    pub(crate) power: Power,
    pub(crate) crypto: Option<CryptoEngine>,
    /// The controller and its queues are on.
    pub(crate) running: bool,
}

impl<M: Machine> Core<M> {
    pub(crate) fn new(machine: M, layout: Layout, shared: Arc<Shared>, facts: Facts) -> Self {
        Self {
            crypto: CryptoEngine::read(&machine, facts.cap),
            peer: Peer {
                queues: Queues::new(facts.shape, facts.mcq_cap),
                channel: Channel::new(machine, layout, shared, facts),
                device: UfsFacts::default(),
            },
            power: Power::default(),
            running: false,
        }
    }

    /// The facts it was made from.
    pub(crate) fn facts(&self) -> Facts {
        let Channel { version, cap, quirks, .. } = self.peer.channel;
        let Queues { mcq_cap, shape, .. } = self.peer.queues;
        Facts { options: self.peer.channel.options.clone(), version, cap, mcq_cap, quirks, shape }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.peer.channel.shared
    }

    /// Whether the host put the link into hibernation.
    pub(crate) fn is_hibernating(&self) -> bool {
        self.power.link.hibernating
    }

    /// Switches the controller off: it forgets everything and no longer accesses memory.
    pub(crate) fn disable(&mut self, timeout_ms: u32) -> Run<()> {
        let channel = &mut self.peer.channel;
        channel.effect(|_| self.running = false);
        channel.write(IE, 0);
        channel.write(HCE, Hce::new().into_bits());
        let enabled = Hce::new().with_hce(true).into_bits();
        channel.until(("HCE", HCE), enabled, 0, timeout_ms)??;
        Ok(())
    }

    /// Switches the controller on, with the keys it had.
    pub(crate) fn enable(&mut self, timeout_ms: u32) -> Run<()> {
        let channel = &mut self.peer.channel;
        let enabled = Hce::new().with_hce(true).into_bits();
        let crypto = Hce::new().with_cge(self.crypto.is_some()).into_bits();
        channel.write(HCE, enabled | crypto);
        // Controllers have been seen to show one, then zero, then one: what is read too early
        // says nothing, and what is written then is lost.
        channel.sleep(u64::from(channel.options.timeouts.enable_settle_us) * US)?;
        channel.until(("HCE", HCE), enabled, enabled, timeout_ms)??;
        let ready = Hcs::new().with_ucrdy(true).into_bits();
        channel.until(("HCS", HCS), ready, ready, timeout_ms)??;
        channel.effect(|channel| {
            if let Some(engine) = &self.crypto {
                engine.restore_keys(&channel.machine, &channel.shared);
            }
        });
        Ok(())
    }

    /// Starts the queues, and the host's own lane on them.
    pub(crate) fn start_queues(&mut self, timeout_ms: u32) -> Run<()> {
        let Peer { channel, queues, device } = &mut self.peer;
        let queued = device.descriptor.b_queue_depth;
        queues.start(channel, &self.power.board, queued, timeout_ms)?;
        channel.lane(Lane::restart)?;
        channel.effect(|_| self.running = true);
        Ok(())
    }

    /// Switches the controller off and has every lane give back its commands.
    pub(crate) fn stop(&mut self) -> Run<()> {
        self.peer.channel.order(Order::PAUSE);
        self.peer.channel.lanes_obey()?;
        self.peer.channel.note(ErrorKind::HostReset, 0);
        // Bring-up tries again to switch off a controller that could not be.
        let _ = settled(self.disable(self.peer.channel.options.timeouts.enable_ms))?;
        self.peer.channel.order(Order::PAUSE | Order::STOP);
        self.peer.channel.lanes_obey()?;
        Ok(())
    }

    /// Switches everything off in good order: caches are written, the device is powered down, the
    /// controller forgets its memory. Lanes are gone until the next bring-up.
    pub(crate) fn shut_down(&mut self) -> Run<()> {
        self.peer.channel.quiesce()?;
        let Self { peer, power, .. } = self;
        let told =
            power.board.tell_or_refusal(&mut peer.channel, Event::Shutdown, Phase::Before)?;
        if let Err(cause) = told {
            peer.channel.order(0);
            return Err(cause.into());
        }
        for lun in 0..peer.device.units.len() {
            if peer.device.units[lun].is_none() {
                continue;
            }
            let mut cdb = [0; 16];
            cdb[0] = SYNCHRONIZE_CACHE;
            let timeout_ms = peer.channel.options.timeouts.start_stop_ms;
            if let Err(cause) = peer.scsi(HostCommand::plain(lun as u8, cdb, timeout_ms))? {
                peer.channel.keep(ErrorKind::Skipped, 0, Some("flush"), cause);
            }
        }
        if let Err(cause) = power.start_stop(peer, DevicePower::PowerDown)? {
            peer.channel.keep(ErrorKind::Skipped, 0, Some("power down"), cause);
        }
        match self.disable(self.peer.channel.options.timeouts.enable_ms) {
            Err(Stop::Failed(UfsError::Failed(cause))) => {
                self.peer.channel.keep(ErrorKind::Skipped, 0, Some("disable"), cause);
            }
            other => other?,
        }
        let Self { peer: Peer { channel, .. }, power, crypto, .. } = self;
        channel.order(Order::PAUSE | Order::STOP | Order::GONE);
        channel.lanes_obey()?;
        channel.effect(|channel| {
            if let Some(engine) = crypto {
                engine.forget_keys(&channel.machine, &channel.shared);
            }
        });
        if let Err(cause) = power.board.tell_or_refusal(channel, Event::Shutdown, Phase::After)? {
            channel.keep(ErrorKind::Skipped, 0, Some("platform"), cause);
        }
        power.board.clocks(channel, false);
        Ok(())
    }

    /// Stops the controller's DMA at once, whatever is in progress, for a host that goes away.
    pub(crate) fn switch_off(&mut self) {
        let channel = &self.peer.channel;
        let limit = u64::from(channel.options.timeouts.enable_ms) * MS;
        host_watch::switch_off(&channel.machine, limit);
        if let Some(engine) = &mut self.crypto {
            engine.forget_keys(&channel.machine, &channel.shared);
        }
        self.power.board.switch_off();
    }
}

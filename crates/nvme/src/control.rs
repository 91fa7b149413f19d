//! The control plane of a controller: everything there is one of, and switching it on and off.

use crate::Cause;
use crate::channel::{Channel, Run};
use crate::facts::{Facts, NvmeFacts};
use crate::layout::{ADMIN_ENTRIES, Layout};
use crate::quirks::Quirk;
use crate::shared::Shared;
use crate::time::MS;
use alloc::sync::Arc;
use flysch_api::machine::Machine;
use flysch_orders::Order;
use flysch_script::{Primitives, Replay};
use flysch_wire::nvme::registers::{ACQ, AQA, ASQ, Aqa, CC, CSTS, Cc, Csts};
use flysch_wire::nvme::registers::{CQ_ENTRY_SHIFT, SQ_ENTRY_SHIFT, css, shutdown};

/// How long some controllers require CSTS to be left alone, nanoseconds.
const DELAY_BEFORE_READY: u64 = 2300 * MS;

/// The objects whose procedures run over the one channel.
#[derive(Debug)]
pub(crate) struct Core<M: Machine> {
    pub(crate) channel: Channel<M>,
    pub(crate) device: NvmeFacts,
    /// The controller is enabled.
    pub(crate) enabled: bool,
}

impl<M: Machine> Core<M> {
    pub(crate) fn new(machine: M, layout: Layout, shared: Arc<Shared>, facts: Facts) -> Self {
        Self {
            channel: Channel::new(machine, layout, shared, facts),
            device: NvmeFacts::default(),
            enabled: false,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.channel.shared
    }

    /// Sets up the admin queue, sets CC.EN, and waits for CSTS.RDY to follow.
    pub(crate) fn enable(&mut self) -> Run<()> {
        let channel = &mut self.channel;
        channel.effect(|channel| channel.admin.restart(&channel.machine));
        let last = ADMIN_ENTRIES as u16 - 1;
        channel.write(AQA, Aqa::new().with_asqs(last).with_acqs(last).into_bits());
        channel.write_wide(ASQ, channel.layout.admin_submission.address());
        channel.write_wide(ACQ, channel.layout.admin_completion.address());
        let sets = if channel.cap.css_io() { css::ALL } else { css::NVM };
        let cc = Cc::new().with_css(sets).with_iosqes(SQ_ENTRY_SHIFT).with_iocqes(CQ_ENTRY_SHIFT);
        // What CAP says may depend on what CC selects, so CC is written before it counts.
        channel.write(CC, cc.into_bits());
        channel.write(CC, cc.with_en(true).into_bits());
        channel.effect(|_| self.enabled = true);
        let ready = Csts::new().with_rdy(true).into_bits();
        let fatal = Csts::new().with_cfs(true).into_bits();
        let csts = channel.until(("CSTS", CSTS), ready, ready, channel.ready_ms())??;
        if csts & fatal != 0 {
            return Err(Cause::Fatal.into());
        }
        Ok(())
    }

    /// Clears CC.EN, and waits for CSTS.RDY to follow.
    pub(crate) fn disable(&mut self) -> Run<Result<(), Cause>> {
        let channel = &mut self.channel;
        let status = channel.read(CSTS);
        if status == u32::MAX {
            return Ok(Err(Cause::Removed));
        }
        let cc = Cc::from_bits(channel.read(CC));
        if cc.en() {
            channel.write(CC, cc.with_en(false).with_shn(0).into_bits());
            if channel.quirks.has(Quirk::DelayBeforeReady) {
                channel.sleep(DELAY_BEFORE_READY)?;
            }
        }
        let ready = Csts::new().with_rdy(true).into_bits();
        let off = channel.until(("CSTS", CSTS), ready, 0, channel.ready_ms())?;
        channel.effect(|_| self.enabled = off.is_err());
        Ok(off.map(drop))
    }

    /// Shutdown notification (3.6.1), then the controller is off.
    pub(crate) fn shut_down(&mut self) -> Run<()> {
        let Self { channel, device, .. } = self;
        if channel.lanes_idle()?.is_err() {
            return Err(Cause::InFlight.into());
        }
        channel.order(Order::PAUSE);
        channel.lanes_obey()?;
        device.take_memory_back(channel)?;
        let cc = Cc::from_bits(channel.read(CC)).with_shn(shutdown::NORMAL);
        channel.write(CC, cc.into_bits());
        let rtd3e_ms = device.controller.rtd3e / 1000;
        let timeout = rtd3e_ms.clamp(channel.options.timeouts.shutdown_ms, 60_000);
        let complete = Csts::new().with_shst(shutdown::COMPLETE).into_bits();
        let mask = Csts::new().with_shst(3).into_bits();
        let done = channel.until(("CSTS", CSTS), mask, complete, timeout)?;
        let off = self.disable()?;
        // Whoever starts something now is told at once; bring-up begins with other orders.
        self.channel.order(Order::PAUSE | Order::STOP | Order::GONE);
        self.channel.lanes_obey()?;
        done.and(off)?;
        Ok(())
    }

    /// Stops the controller's DMA at once, whatever is in progress, for a host that goes away.
    pub(crate) fn switch_off(&self) {
        if self.enabled {
            let cc = Cc::from_bits(self.channel.machine.read32(CC));
            self.channel.machine.write32(CC, cc.with_en(false).into_bits());
            self.shared().orders.publish(Order::PAUSE | Order::STOP | Order::GONE);
        }
    }
}

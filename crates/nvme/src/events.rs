//! What the controller reports by itself, and what it is allowed to.

use crate::admin::set_feature;
use crate::channel::{Channel, Run};
use crate::facts::NvmeFacts;
use crate::history::ErrorKind;
use flysch_api::machine::Machine;
use flysch_script::Replay;
use flysch_wire::nvme::feature::{AsyncEventResult, AsyncEvents, event};
use flysch_wire::nvme::identify::{ALL_NAMESPACES, IdentifyController};
use flysch_wire::nvme::{AdminOpcode, FeatureId, Sqe, log};

/// Bytes of the host behaviour feature.
const HOST_BEHAVIOR: usize = 512;

impl NvmeFacts {
    /// Sets the write cache as the options say, and has the controller report events.
    pub(crate) fn set_up_events<M: Machine>(&self, channel: &mut Channel<M>) -> Run<()> {
        if let Some(on) = channel.options.write_cache
            && self.controller.has_write_cache()
        {
            channel.must(set_feature(FeatureId::WriteCache, on.into()))?;
        }
        self.accept_retry_delays(channel)?;
        // What the controller has of what is dealt with here: health, namespaces.
        let known = AsyncEvents::new().with_smart(0xFF).with_namespaces(true).into_bits();
        let wanted = known & (self.controller.oaes | 0xFF);
        // A controller that refuses has none: nothing is lost.
        channel.command(set_feature(FeatureId::AsyncEvents, wanted), None)?;
        channel.effect(|channel| channel.admin.await_event(&channel.machine));
        Ok(())
    }

    /// Lets a controller that can report how long to wait before a retry do so (host behaviour,
    /// ACRE).
    fn accept_retry_delays<M: Machine>(&self, channel: &mut Channel<M>) -> Run<()> {
        let IdentifyController { crdt1, crdt2, crdt3, .. } = self.controller;
        if crdt1 | crdt2 | crdt3 == 0 {
            return Ok(());
        }
        channel.effect(|channel| {
            let page = &channel.layout.admin_data;
            page.fill(0, HOST_BEHAVIOR, 0);
            page.write(0, &[1]);
            channel.machine.sync_for_device(page.span(0, HOST_BEHAVIOR));
        });
        let data = [channel.layout.admin_data.address(), 0];
        channel.command(Sqe { data, ..set_feature(FeatureId::HostBehavior, 0) }, None)?;
        Ok(())
    }

    /// Handles an event that the controller reported: records it, reads the log page with the
    /// details (which allows the controller to report the next event of that kind), reads the
    /// namespaces again if they changed, and requests the next event.
    pub(crate) fn handle_event<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        told: u32,
    ) -> Run<()> {
        let result = AsyncEventResult::from_bits(told);
        let kind = match result.kind() {
            event::ERROR => ErrorKind::ErrorEvent,
            event::SMART => ErrorKind::HealthEvent,
            _ => ErrorKind::Notice,
        };
        channel.note(kind, told);
        let [low, high] = log::request(result.log_page(), 512, false);
        let entry = Sqe {
            opcode: AdminOpcode::GetLogPage.into_bits(),
            nsid: ALL_NAMESPACES,
            data: [channel.layout.admin_data.address(), 0],
            cdw10: [low, high, 0, 0, 0, 0],
            ..Sqe::default()
        };
        channel.command(entry, None)?;
        if result.kind() == event::NOTICE && result.info() == event::NAMESPACES_CHANGED {
            self.find_namespaces(channel)?;
        }
        channel.effect(|channel| channel.admin.await_event(&channel.machine));
        Ok(())
    }
}

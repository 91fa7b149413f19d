//! Discovery: what the controller is, and which namespaces are active.

use crate::Cause;
use crate::channel::{Channel, Run};
use crate::facts::{NAMESPACES_MAX, Namespace, NvmeFacts};
use crate::quirks::Quirk;
use flysch_api::machine::Machine;
use flysch_script::Replay;
use flysch_wire::nvme::identify::{ALL_NAMESPACES, IdentifyController, IdentifyNamespace, ids};
use flysch_wire::nvme::identify::{LIST_ENTRIES, descriptors};
use flysch_wire::nvme::registers::{CQ_ENTRY_SHIFT, SQ_ENTRY_SHIFT};
use flysch_wire::nvme::{AdminOpcode, Cns, Sqe};

/// NIDT of a command set.
const COMMAND_SET: u8 = 4;

impl NvmeFacts {
    /// Identifies the controller, and tells the lanes how large their transfers may be and when to
    /// retry.
    pub(crate) fn learn_controller<M: Machine>(&mut self, channel: &mut Channel<M>) -> Run<()> {
        channel.fetch(identify(Cns::Controller, 0))?;
        channel.effect(|channel| {
            let data = channel.admin_page();
            self.controller = IdentifyController::parse(&data).unwrap_or_default();
            let page = 1 << (12 + channel.cap.mpsmin());
            let device = self.controller.transfer_max(page).unwrap_or(u64::MAX);
            let most = u64::from(channel.options.transfer_max).min(device);
            let sgls = channel.options.sgls && self.controller.has_sgls();
            channel.shared.set_data(most as u32, sgls);
            let IdentifyController { crdt1, crdt2, crdt3, .. } = self.controller;
            channel.shared.set_retry_delays([crdt1, crdt2, crdt3]);
        });
        let controller = &self.controller;
        let entry = |sizes: u8, ours: u8| sizes & 0xF <= ours && ours <= sizes >> 4;
        if !entry(controller.sqes, SQ_ENTRY_SHIFT) || !entry(controller.cqes, CQ_ENTRY_SHIFT) {
            return Err(Cause::Answer("size of queue entries").into());
        }
        Ok(())
    }

    /// Reads which namespaces are active, and their properties.
    pub(crate) fn find_namespaces<M: Machine>(&mut self, channel: &mut Channel<M>) -> Run<()> {
        channel.effect(|_| {
            self.namespaces.clear();
            self.generation += 1;
        });
        if channel.quirks.has(Quirk::NoNamespaceList) || !channel.version.is_at_least(1, 1) {
            let last = self.controller.nn.min(NAMESPACES_MAX as u32);
            for id in 1..=last {
                self.find_namespace(channel, id)?;
            }
            return Ok(());
        }
        let mut above = 0;
        loop {
            channel.fetch(identify(Cns::ActiveList, above))?;
            let (count, last) = self.note_ids(channel, above);
            if count < LIST_ENTRIES || self.namespaces.len() >= NAMESPACES_MAX {
                break;
            }
            above = last;
        }
        for n in 0..self.namespaces.len() {
            let id = self.namespaces[n].id;
            if channel.version.is_at_least(1, 3) {
                self.find_command_set(channel, n, id)?;
            }
            channel.fetch(identify(Cns::Namespace, id))?;
            channel.effect(|channel| {
                let data = channel.admin_page();
                self.namespaces[n].data = IdentifyNamespace::parse(&data).unwrap_or_default();
            });
        }
        channel.effect(|_| self.namespaces.retain(|space| space.data.nsze != 0));
        Ok(())
    }

    /// Adds the ids of a list, which must ascend; returns how many there were and the last.
    #[track_caller]
    fn note_ids<M: Machine>(&mut self, channel: &mut Channel<M>, above: u32) -> (usize, u32) {
        let answer = channel.once(|channel| {
            let data = channel.admin_page();
            let (mut last, mut count) = (above, 0_u64);
            for id in ids(&data) {
                // A list that does not rise would never end.
                let full = self.namespaces.len() >= NAMESPACES_MAX;
                if id <= last || id == ALL_NAMESPACES || full {
                    break;
                }
                let data = IdentifyNamespace::default();
                self.namespaces.push(Namespace { id, command_set: 0, data });
                (last, count) = (id, count + 1);
            }
            count << 32 | u64::from(last)
        });
        ((answer >> 32) as usize, answer as u32)
    }

    /// Looks for a namespace of a controller without lists: it exists if it has a size.
    fn find_namespace<M: Machine>(&mut self, channel: &mut Channel<M>, id: u32) -> Run<()> {
        let entry = identify(Cns::Namespace, id);
        let data = [channel.layout.admin_data.address(), 0];
        let status = channel.command(Sqe { data, ..entry }, None)?;
        channel.effect(|channel| {
            let data = IdentifyNamespace::parse(&channel.admin_page()).unwrap_or_default();
            if status.status == 0 && data.nsze != 0 {
                self.namespaces.push(Namespace { id, command_set: 0, data });
            }
        });
        Ok(())
    }

    /// The command set of a namespace. A controller that does not report it uses the NVM command
    /// set.
    fn find_command_set<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        n: usize,
        id: u32,
    ) -> Run<()> {
        let entry = identify(Cns::Descriptors, id);
        let data = [channel.layout.admin_data.address(), 0];
        let status = channel.command(Sqe { data, ..entry }, None)?;
        channel.effect(|channel| {
            let data = channel.admin_page();
            let set = descriptors(&data).find(|d| d.kind == COMMAND_SET).map_or(0, |d| d.id[0]);
            if status.status == 0 {
                self.namespaces[n].command_set = set;
            }
        });
        Ok(())
    }
}

/// An identify command.
fn identify(cns: Cns, nsid: u32) -> Sqe {
    let opcode = AdminOpcode::Identify.into_bits();
    Sqe { opcode, nsid, cdw10: [cns.into_bits().into(), 0, 0, 0, 0, 0], ..Sqe::default() }
}

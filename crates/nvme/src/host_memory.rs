//! The host memory buffer (8.9 of 2.0): memory lent to a controller that has too little of its own.

use crate::channel::{Channel, Run};
use crate::facts::NvmeFacts;
use flysch_api::machine::Machine;
use flysch_script::Replay;
use flysch_wire::nvme::{AdminOpcode, FeatureId, IdentifyController, Sqe};

/// The unit of HMPRE, HMMIN and sizes of host memory, bytes.
const HOST_MEMORY_UNIT: usize = 4096;
/// Bytes of an entry of the list of host memory: address, pages.
const HOST_MEMORY_ENTRY: usize = 16;

impl NvmeFacts {
    /// Lends the controller as much memory as it requests and as is available, in one piece (8.9 of
    /// 2.0). If the controller refuses, or requires more than is available, bring-up continues
    /// without.
    pub(crate) fn lend_memory<M: Machine>(&mut self, channel: &mut Channel<M>) -> Run<()> {
        let IdentifyController { hmpre, hmmin, hmminds, .. } = self.controller;
        let unit = HOST_MEMORY_UNIT as u64;
        let has = channel.layout.host_memory.len() as u64 / unit;
        let pages = u64::from(hmpre).min(has);
        let enough = pages > 0 && pages >= hmmin.into() && pages >= hmminds.into();
        channel.effect(|_| self.host_memory = 0);
        if !enough {
            return Ok(());
        }
        channel.effect(|channel| {
            let list = &channel.layout.host_memory_list;
            list.fill(0, HOST_MEMORY_ENTRY, 0);
            list.write(0, &channel.layout.host_memory.address().to_le_bytes());
            list.write(8, &(pages as u32).to_le_bytes());
            channel.machine.sync_for_device(list.span(0, HOST_MEMORY_ENTRY));
        });
        let list = channel.layout.host_memory_list.address();
        let value = [1, pages as u32, list as u32, (list >> 32) as u32, 1];
        let status = channel.command(set_host_memory(value), None)?;
        channel.effect(|_| {
            if status.status == 0 {
                self.host_memory = (pages * unit) as u32;
            }
        });
        Ok(())
    }

    /// Takes the memory back. Whatever the controller answers, it loses the memory at the reset.
    pub(crate) fn take_memory_back<M: Machine>(&self, channel: &mut Channel<M>) -> Run<()> {
        if self.host_memory > 0 {
            channel.command(set_host_memory([0; 5]), None)?;
        }
        Ok(())
    }
}

/// Sets the host memory buffer: on or off, its number of pages, and position and length of its
/// list.
fn set_host_memory([enable, pages, low, high, entries]: [u32; 5]) -> Sqe {
    let opcode = AdminOpcode::SetFeatures.into_bits();
    let id = FeatureId::HostMemory.into_bits().into();
    Sqe { opcode, cdw10: [id, enable, pages, low, high, entries], ..Sqe::default() }
}

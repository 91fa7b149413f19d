//! Placement of queues and doorbells: in the controller's own memory (controller memory buffer,
//! 8.5) and in the host's (doorbell buffer config, 5.8), if the controller supports it.

use crate::control::{Core, Run};
use crate::layout::{Layout, PAGE};
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::nvme::identify::oacs;
use flysch_wire::nvme::registers::{CMB_ADDRESS_INVALID, CMBLOC, CMBMSC, CMBSTS, CMBSZ};
use flysch_wire::nvme::registers::{CmbControl, CmbLoc, CmbSize, DOORBELLS, cq_head};
use flysch_wire::nvme::{AdminOpcode, Sqe};

/// The controller's memory is given an address from here on: above everything that is mapped below
/// 4 GiB, including interrupt messages.
const ADDRESS_MIN: u64 = 1 << 32;

impl<M: Machine> Core<M> {
    /// Makes room for the submission queues of all lanes in the controller's memory, if it has some
    /// for them that can be reached; returns the device address of the first.
    ///
    /// Only controllers that let the host choose the address of their memory (CAP.CMBS, 1.4) are
    /// used: the address then cannot belong to other memory.
    pub(crate) fn find_controller_memory(&mut self) -> Option<u64> {
        let found = self.once(|core| core.place_controller_memory().unwrap_or(0));
        (found != 0).then_some(found)
    }

    fn place_controller_memory(&mut self) -> Option<u64> {
        self.shared.set_controller_memory(None);
        if !self.options.controller_memory || !self.cap.cmbs() {
            return None;
        }
        let own = self.machine.memory();
        let end = own.address().checked_add(own.len() as u64)?;
        let base = end.max(ADDRESS_MIN).checked_next_multiple_of(1 << 30)?;
        let control = CmbControl::new().with_cre(true);
        self.machine.write32(CMBMSC, control.into_bits() as u32);
        let size = CmbSize::from_bits(self.machine.read32(CMBSZ));
        let place = CmbLoc::from_bits(self.machine.read32(CMBLOC));
        let unit = size.unit_bytes()?;
        let lanes = usize::from(self.options.lanes);
        let needed = (lanes * Layout::queue_bytes(Layout::entries(self.layout.depth()))) as u64;
        if !size.sqs() || u64::from(size.sz()) * unit < needed {
            return None;
        }
        let bar = self.machine.bar(place.bir())?;
        let offset = u64::from(place.ofst()).checked_mul(unit)?;
        let first = u32::try_from(u64::from(bar) + offset).ok()?;
        // Behind it nothing may wrap around the window.
        u32::try_from(u64::from(first) + needed).ok()?;
        if first == 0 {
            return None;
        }
        let control = control.with_cmse(true).with_cba(base / PAGE as u64).into_bits();
        // The low half has the bits that put it into force.
        self.machine.write32(CMBMSC + 4, (control >> 32) as u32);
        self.machine.write32(CMBMSC, control as u32);
        if self.machine.read32(CMBSTS) & CMB_ADDRESS_INVALID != 0 {
            return None;
        }
        self.shared.set_controller_memory(Some(first));
        Some(base)
    }

    /// Makes the controller read doorbells from memory, if it supports that. If it refuses,
    /// registers are used.
    pub(crate) fn share_doorbells(&mut self) -> Run<()> {
        self.effect(|core| core.shared.set_shadows(false));
        let last = cq_head(self.options.lanes, self.cap.dstrd()) - DOORBELLS;
        let fits = last as usize + size_of::<u32>() <= PAGE;
        let has = self.device.controller.oacs & oacs::DOORBELL_BUFFER != 0;
        if !self.options.shadow_doorbells || !has || !fits {
            return Ok(());
        }
        self.effect(|core| {
            let doorbells = &core.layout.doorbells;
            doorbells.fill(0, doorbells.len(), 0);
            core.machine.sync_for_device(doorbells.span(0, doorbells.len()));
        });
        let address = self.layout.doorbells.address();
        let opcode = AdminOpcode::DoorbellBufferConfig.into_bits();
        let data = [address, address + PAGE as u64];
        let status = self.command(Sqe { opcode, data, ..Sqe::default() }, None)?;
        self.effect(|core| core.shared.set_shadows(status.status == 0));
        Ok(())
    }
}

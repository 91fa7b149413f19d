//! Queues and doorbells, and where they lie: in the controller's own memory (controller memory
//! buffer, 8.5) and in the host's (doorbell buffer config, 5.8), if the controller supports it.

use crate::Cause;
use crate::admin::set_feature;
use crate::channel::{Channel, Run};
use crate::facts::NvmeFacts;
use crate::layout::{Layout, PAGE};
use flysch_api::machine::Machine;
use flysch_script::Replay;
use flysch_wire::nvme::command::{CreateCqFlags, CreateSqFlags, queue_and_size};
use flysch_wire::nvme::feature::QueueCounts;
use flysch_wire::nvme::identify::oacs;
use flysch_wire::nvme::registers::{CMB_ADDRESS_INVALID, CMBLOC, CMBMSC, CMBSTS, CMBSZ};
use flysch_wire::nvme::registers::{CmbControl, CmbLoc, CmbSize, DOORBELLS, cq_head};
use flysch_wire::nvme::{AdminOpcode, FeatureId, Sqe};

/// The controller's memory is given an address from here on: above everything that is mapped below
/// 4 GiB, including interrupt messages.
const ADDRESS_MIN: u64 = 1 << 32;

/// A queue pair for each lane, and doorbells in memory if the controller can read them there.
pub(crate) fn create_queues<M: Machine>(channel: &mut Channel<M>, device: &NvmeFacts) -> Run<()> {
    let lanes = channel.options.lanes;
    let wanted = QueueCounts::new().with_submission(lanes - 1).with_completion(lanes - 1);
    let granted = channel.must(set_feature(FeatureId::Queues, wanted.into_bits()))?;
    let granted = QueueCounts::from_bits(granted);
    let pairs = u32::from(granted.submission().min(granted.completion())) + 1;
    if pairs < lanes.into() {
        return Err(Cause::Queues(pairs).into());
    }
    let memory = find_controller_memory(channel);
    for lane in 0..lanes {
        create_pair(channel, lane, memory)?;
    }
    share_doorbells(channel, device)
}

/// Creates the queue pair of a lane, completion queue first because the submission queue refers
/// to it.
fn create_pair<M: Machine>(channel: &mut Channel<M>, lane: u16, memory: Option<u64>) -> Run<()> {
    let entries = Layout::entries(channel.layout.depth()) as u16;
    let queue = lane + 1;
    let vector = match channel.machine.vectors() {
        0 | 1 => 0,
        vectors => queue % vectors,
    };
    let cq = CreateCqFlags::new()
        .with_pc(true)
        .with_ien(channel.options.interrupts)
        .with_iv(vector)
        .into_bits();
    let sq = CreateSqFlags::new().with_pc(true).with_cqid(queue).into_bits();
    let size = queue_and_size(queue, entries);
    let completion = channel.layout.completion(lane.into()).address();
    let submission = match memory {
        None => channel.layout.submission(lane.into()).address(),
        Some(first) => first + (usize::from(lane) * Layout::queue_bytes(entries.into())) as u64,
    };
    let pair = [(AdminOpcode::CreateCq, cq, completion), (AdminOpcode::CreateSq, sq, submission)];
    for (opcode, flags, address) in pair {
        channel.must(Sqe {
            opcode: opcode.into_bits(),
            data: [address, 0],
            cdw10: [size, flags, 0, 0, 0, 0],
            ..Sqe::default()
        })?;
    }
    channel.effect(|channel| channel.shared.orders.renew(lane.into()));
    Ok(())
}

/// Makes room for the submission queues of all lanes in the controller's memory, if it has some
/// for them that can be reached; returns the device address of the first.
///
/// Only controllers that let the host choose the address of their memory (CAP.CMBS, 1.4) are
/// used: the address then cannot belong to other memory.
fn find_controller_memory<M: Machine>(channel: &mut Channel<M>) -> Option<u64> {
    let found = channel.once(|channel| place_controller_memory(channel).unwrap_or(0));
    (found != 0).then_some(found)
}

fn place_controller_memory<M: Machine>(channel: &Channel<M>) -> Option<u64> {
    channel.shared.set_controller_memory(None);
    if !channel.options.controller_memory || !channel.cap.cmbs() {
        return None;
    }
    let own = channel.machine.memory();
    let end = own.address().checked_add(own.len() as u64)?;
    let base = end.max(ADDRESS_MIN).checked_next_multiple_of(1 << 30)?;
    let control = CmbControl::new().with_cre(true);
    channel.machine.write32(CMBMSC, control.into_bits() as u32);
    let size = CmbSize::from_bits(channel.machine.read32(CMBSZ));
    let place = CmbLoc::from_bits(channel.machine.read32(CMBLOC));
    let unit = size.unit_bytes()?;
    let lanes = usize::from(channel.options.lanes);
    let needed = (lanes * Layout::queue_bytes(Layout::entries(channel.layout.depth()))) as u64;
    if !size.sqs() || u64::from(size.sz()) * unit < needed {
        return None;
    }
    let bar = channel.machine.bar(place.bir())?;
    let offset = u64::from(place.ofst()).checked_mul(unit)?;
    let first = u32::try_from(u64::from(bar) + offset).ok()?;
    // Behind it nothing may wrap around the window.
    u32::try_from(u64::from(first) + needed).ok()?;
    if first == 0 {
        return None;
    }
    let control = control.with_cmse(true).with_cba(base / PAGE as u64).into_bits();
    // The low half has the bits that put it into force.
    channel.machine.write32(CMBMSC + 4, (control >> 32) as u32);
    channel.machine.write32(CMBMSC, control as u32);
    if channel.machine.read32(CMBSTS) & CMB_ADDRESS_INVALID != 0 {
        return None;
    }
    channel.shared.set_controller_memory(Some(first));
    Some(base)
}

/// Makes the controller read doorbells from memory, if it supports that. If it refuses,
/// registers are used.
fn share_doorbells<M: Machine>(channel: &mut Channel<M>, device: &NvmeFacts) -> Run<()> {
    channel.effect(|channel| channel.shared.set_shadows(false));
    let last = cq_head(channel.options.lanes, channel.cap.dstrd()) - DOORBELLS;
    let fits = last as usize + size_of::<u32>() <= PAGE;
    let has = device.controller.oacs & oacs::DOORBELL_BUFFER != 0;
    if !channel.options.shadow_doorbells || !has || !fits {
        return Ok(());
    }
    channel.effect(|channel| {
        let doorbells = &channel.layout.doorbells;
        doorbells.fill(0, doorbells.len(), 0);
        channel.machine.sync_for_device(doorbells.span(0, doorbells.len()));
    });
    let address = channel.layout.doorbells.address();
    let opcode = AdminOpcode::DoorbellBufferConfig.into_bits();
    let data = [address, address + PAGE as u64];
    let status = channel.command(Sqe { opcode, data, ..Sqe::default() }, None)?;
    channel.effect(|channel| channel.shared.set_shadows(status.status == 0));
    Ok(())
}

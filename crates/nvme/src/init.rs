//! Bring-up as a list of steps (3.5.1), in the same order as in Linux.

use crate::control::{Core, Run, Stop};
use crate::facts::{NAMESPACES_MAX, Namespace};
use crate::layout::{ADMIN_ENTRIES, Layout};
use crate::quirks::Quirk;
use crate::time::MS;
use crate::{Cause, Error};
use flysch_api::machine::Machine;
use flysch_script::Player;
use flysch_wire::nvme::command::{CreateCqFlags, CreateSqFlags, queue_and_size};
use flysch_wire::nvme::feature::{AsyncEvents, QueueCounts};
use flysch_wire::nvme::identify::{ALL_NAMESPACES, IdentifyController, IdentifyNamespace, ids};
use flysch_wire::nvme::identify::{LIST_ENTRIES, descriptors};
use flysch_wire::nvme::registers::{ACQ, AQA, ASQ, Aqa, CC, CRTO, CSTS, Cc, Crto, Csts};
use flysch_wire::nvme::registers::{CQ_ENTRY_SHIFT, SQ_ENTRY_SHIFT, TIMEOUT_UNIT_MS, css};
use flysch_wire::nvme::{AdminOpcode, Cns, FeatureId, Sqe};

/// How long some controllers require CSTS to be left alone, nanoseconds.
const DELAY_BEFORE_READY: u64 = 2300 * MS;
/// Bytes of the host behaviour feature.
const HOST_BEHAVIOR: usize = 512;
/// The unit of HMPRE, HMMIN and sizes of host memory, bytes.
const HOST_MEMORY_UNIT: usize = 4096;
/// Bytes of an entry of the list of host memory: address, pages.
const HOST_MEMORY_ENTRY: usize = 16;
/// NIDT of a command set.
const COMMAND_SET: u8 = 4;

/// One step of bring-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// Its work.
    pub what: &'static str,
}

/// The steps in order.
pub static STEPS: [Step; 8] = [
    Step { name: "disable", what: "CC.EN off, wait until CSTS.RDY follows" },
    Step { name: "enable", what: "admin queues, CC, wait until CSTS.RDY follows" },
    Step { name: "identify", what: "identify controller" },
    Step { name: "queues", what: "number of queues, a queue pair for each lane" },
    Step { name: "namespaces", what: "the active namespaces and their formats" },
    Step { name: "host memory", what: "memory for a controller that has too little of its own" },
    Step { name: "power", what: "power states the controller may go to by itself" },
    Step { name: "events", what: "write cache, asynchronous events" },
];

/// A bring-up in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct BringUp {
    step: usize,
}

impl BringUp {
    pub(crate) fn step(&self) -> Option<&'static Step> {
        STEPS.get(self.step)
    }

    pub(crate) fn run<M: Machine>(&mut self, core: &mut Core<M>) -> Run<()> {
        while let Some(step) = self.step() {
            let result = match self.step {
                0 => disable(core)?.map_err(Into::into).map_err(Stop::Failed),
                1 => core.enable(),
                2 => core.identify(),
                3 => core.create_queues(),
                4 => core.find_namespaces(),
                5 => core.lend_memory(),
                6 => core.save_power(),
                _ => core.set_up_events(),
            };
            match result {
                Ok(()) => {}
                Err(Stop::Failed(Error::Failed(cause))) => {
                    return Err(Stop::Failed(Error::Step { step: step.name, cause }));
                }
                Err(stop) => return Err(stop),
            }
            core.turn_page();
            self.step += 1;
        }
        Ok(())
    }
}

impl<M: Machine> Core<M> {
    /// How long CSTS.RDY may take to follow CC.EN, milliseconds.
    pub(crate) fn ready_ms(&self) -> u32 {
        let crto = match self.cap.crwms() {
            true => Crto::from_bits(self.machine.read32(CRTO)).crwmt(),
            false => 0,
        };
        // One unit more: the first may have been cut short.
        (u32::from(crto.max(self.cap.to().into())) + 1) * TIMEOUT_UNIT_MS
    }

    fn enable(&mut self) -> Run<()> {
        self.effect(|core| core.admin.restart(&core.machine));
        let last = ADMIN_ENTRIES as u16 - 1;
        self.write(AQA, Aqa::new().with_asqs(last).with_acqs(last).into_bits());
        self.write_wide(ASQ, self.layout.admin_submission.address());
        self.write_wide(ACQ, self.layout.admin_completion.address());
        let sets = if self.cap.css_io() { css::ALL } else { css::NVM };
        let cc = Cc::new().with_css(sets).with_iosqes(SQ_ENTRY_SHIFT).with_iocqes(CQ_ENTRY_SHIFT);
        // What CAP says may depend on what CC selects, so CC is written before it counts.
        self.write(CC, cc.into_bits());
        self.write(CC, cc.with_en(true).into_bits());
        self.effect(|core| core.enabled = true);
        let ready = Csts::new().with_rdy(true).into_bits();
        let fatal = Csts::new().with_cfs(true).into_bits();
        let timeout = self.ready_ms();
        let csts = self.until(("CSTS", CSTS), ready, ready, timeout)??;
        if csts & fatal != 0 {
            return Err(Cause::Fatal.into());
        }
        Ok(())
    }

    fn identify(&mut self) -> Run<()> {
        self.fetch(identify(Cns::Controller, 0))?;
        self.effect(|core| {
            let data = core.admin_page();
            core.device.controller = IdentifyController::parse(&data).unwrap_or_default();
            let page = 1 << (12 + core.cap.mpsmin());
            let device = core.device.controller.transfer_max(page).unwrap_or(u64::MAX);
            let most = u64::from(core.options.transfer_max).min(device);
            let sgls = core.options.sgls && core.device.controller.has_sgls();
            core.shared.set_data(most as u32, sgls);
            let IdentifyController { crdt1, crdt2, crdt3, .. } = core.device.controller;
            core.shared.set_retry_delays([crdt1, crdt2, crdt3]);
        });
        let controller = &self.device.controller;
        let entry = |sizes: u8, ours: u8| sizes & 0xF <= ours && ours <= sizes >> 4;
        if !entry(controller.sqes, SQ_ENTRY_SHIFT) || !entry(controller.cqes, CQ_ENTRY_SHIFT) {
            return Err(Cause::Answer("size of queue entries").into());
        }
        Ok(())
    }

    /// The data that an identify command or a log page returned.
    pub(crate) fn admin_page(&self) -> [u8; 4096] {
        let mut data = [0; 4096];
        self.machine.sync_for_cpu(self.layout.admin_data.span(0, data.len()));
        self.layout.admin_data.read(0, &mut data);
        data
    }

    fn create_queues(&mut self) -> Run<()> {
        let lanes = self.options.lanes;
        let wanted = QueueCounts::new().with_submission(lanes - 1).with_completion(lanes - 1);
        let granted = self.must(set_feature(FeatureId::Queues, wanted.into_bits()))?;
        let granted = QueueCounts::from_bits(granted);
        let pairs = u32::from(granted.submission().min(granted.completion())) + 1;
        if pairs < lanes.into() {
            return Err(Cause::Queues(pairs).into());
        }
        let memory = self.find_controller_memory();
        for lane in 0..lanes {
            self.create_pair(lane, memory)?;
        }
        self.share_doorbells()
    }

    /// Creates the queue pair of a lane, completion queue first because the submission queue refers
    /// to it.
    fn create_pair(&mut self, lane: u16, memory: Option<u64>) -> Run<()> {
        let entries = Layout::entries(self.layout.depth()) as u16;
        let queue = lane + 1;
        let vector = match self.machine.vectors() {
            0 | 1 => 0,
            vectors => queue % vectors,
        };
        let cq = CreateCqFlags::new()
            .with_pc(true)
            .with_ien(self.options.interrupts)
            .with_iv(vector)
            .into_bits();
        let sq = CreateSqFlags::new().with_pc(true).with_cqid(queue).into_bits();
        let size = queue_and_size(queue, entries);
        let completion = self.layout.completion(lane.into()).address();
        let submission = match memory {
            None => self.layout.submission(lane.into()).address(),
            Some(first) => first + (usize::from(lane) * Layout::queue_bytes(entries.into())) as u64,
        };
        let pair =
            [(AdminOpcode::CreateCq, cq, completion), (AdminOpcode::CreateSq, sq, submission)];
        for (opcode, flags, address) in pair {
            self.must(Sqe {
                opcode: opcode.into_bits(),
                data: [address, 0],
                cdw10: [size, flags, 0, 0, 0, 0],
                ..Sqe::default()
            })?;
        }
        self.effect(|core| core.shared.orders.renew(lane.into()));
        Ok(())
    }

    /// Reads which namespaces are active, and their properties.
    pub(crate) fn find_namespaces(&mut self) -> Run<()> {
        self.effect(|core| {
            core.device.namespaces.clear();
            core.device.generation += 1;
        });
        if self.quirks.has(Quirk::NoNamespaceList) || !self.version.is_at_least(1, 1) {
            let last = self.device.controller.nn.min(NAMESPACES_MAX as u32);
            for id in 1..=last {
                self.find_namespace(id)?;
            }
            return Ok(());
        }
        let mut above = 0;
        loop {
            self.fetch(identify(Cns::ActiveList, above))?;
            let (count, last) = self.note_ids(above);
            if count < LIST_ENTRIES || self.device.namespaces.len() >= NAMESPACES_MAX {
                break;
            }
            above = last;
        }
        for n in 0..self.device.namespaces.len() {
            let id = self.device.namespaces[n].id;
            if self.version.is_at_least(1, 3) {
                self.find_command_set(n, id)?;
            }
            self.fetch(identify(Cns::Namespace, id))?;
            self.effect(|core| {
                let data = core.admin_page();
                core.device.namespaces[n].data =
                    IdentifyNamespace::parse(&data).unwrap_or_default();
            });
        }
        self.effect(|core| core.device.namespaces.retain(|space| space.data.nsze != 0));
        Ok(())
    }

    /// Adds the ids of a list, which must ascend; returns how many there were and the last.
    #[track_caller]
    fn note_ids(&mut self, above: u32) -> (usize, u32) {
        let answer = self.once(|core| {
            let data = core.admin_page();
            let (mut last, mut count) = (above, 0_u64);
            for id in ids(&data) {
                // A list that does not rise would never end.
                let full = core.device.namespaces.len() >= NAMESPACES_MAX;
                if id <= last || id == ALL_NAMESPACES || full {
                    break;
                }
                let data = IdentifyNamespace::default();
                core.device.namespaces.push(Namespace { id, command_set: 0, data });
                (last, count) = (id, count + 1);
            }
            count << 32 | u64::from(last)
        });
        ((answer >> 32) as usize, answer as u32)
    }

    /// Looks for a namespace of a controller without lists: it exists if it has a size.
    fn find_namespace(&mut self, id: u32) -> Run<()> {
        let entry = identify(Cns::Namespace, id);
        let data = [self.layout.admin_data.address(), 0];
        let status = self.command(Sqe { data, ..entry }, None)?;
        self.effect(|core| {
            let data = IdentifyNamespace::parse(&core.admin_page()).unwrap_or_default();
            if status.status == 0 && data.nsze != 0 {
                core.device.namespaces.push(Namespace { id, command_set: 0, data });
            }
        });
        Ok(())
    }

    /// The command set of a namespace. A controller that does not report it uses the NVM command
    /// set.
    fn find_command_set(&mut self, n: usize, id: u32) -> Run<()> {
        let entry = identify(Cns::Descriptors, id);
        let data = [self.layout.admin_data.address(), 0];
        let status = self.command(Sqe { data, ..entry }, None)?;
        self.effect(|core| {
            let data = core.admin_page();
            let set = descriptors(&data).find(|d| d.kind == COMMAND_SET).map_or(0, |d| d.id[0]);
            if status.status == 0 {
                core.device.namespaces[n].command_set = set;
            }
        });
        Ok(())
    }

    /// Lends the controller as much memory as it requests and as is available, in one piece (8.9 of
    /// 2.0). If the controller refuses, or requires more than is available, bring-up continues
    /// without.
    fn lend_memory(&mut self) -> Run<()> {
        let IdentifyController { hmpre, hmmin, hmminds, .. } = self.device.controller;
        let unit = HOST_MEMORY_UNIT as u64;
        let has = self.layout.host_memory.len() as u64 / unit;
        let pages = u64::from(hmpre).min(has);
        let enough = pages > 0 && pages >= hmmin.into() && pages >= hmminds.into();
        self.effect(|core| core.device.host_memory = 0);
        if !enough {
            return Ok(());
        }
        self.effect(|core| {
            let list = &core.layout.host_memory_list;
            list.fill(0, HOST_MEMORY_ENTRY, 0);
            list.write(0, &core.layout.host_memory.address().to_le_bytes());
            list.write(8, &(pages as u32).to_le_bytes());
            core.machine.sync_for_device(list.span(0, HOST_MEMORY_ENTRY));
        });
        let list = self.layout.host_memory_list.address();
        let value = [1, pages as u32, list as u32, (list >> 32) as u32, 1];
        let status = self.command(set_host_memory(value), None)?;
        self.effect(|core| {
            if status.status == 0 {
                core.device.host_memory = (pages * unit) as u32;
            }
        });
        Ok(())
    }

    /// Takes the memory back. Whatever the controller answers, it loses the memory at the reset.
    pub(crate) fn take_memory_back(&mut self) -> Run<()> {
        if self.device.host_memory > 0 {
            self.command(set_host_memory([0; 5]), None)?;
        }
        Ok(())
    }

    fn set_up_events(&mut self) -> Run<()> {
        if let Some(on) = self.options.write_cache
            && self.device.controller.has_write_cache()
        {
            self.must(set_feature(FeatureId::WriteCache, on.into()))?;
        }
        self.accept_retry_delays()?;
        // What the controller has of what is dealt with here: health, namespaces.
        let known = AsyncEvents::new().with_smart(0xFF).with_namespaces(true).into_bits();
        let wanted = known & (self.device.controller.oaes | 0xFF);
        // A controller that refuses has none: nothing is lost.
        self.command(set_feature(FeatureId::AsyncEvents, wanted), None)?;
        self.effect(|core| core.admin.await_event(&core.machine));
        Ok(())
    }

    /// Lets a controller that can report how long to wait before a retry do so (host behaviour,
    /// ACRE).
    fn accept_retry_delays(&mut self) -> Run<()> {
        let IdentifyController { crdt1, crdt2, crdt3, .. } = self.device.controller;
        if crdt1 | crdt2 | crdt3 == 0 {
            return Ok(());
        }
        self.effect(|core| {
            let page = &core.layout.admin_data;
            page.fill(0, HOST_BEHAVIOR, 0);
            page.write(0, &[1]);
            core.machine.sync_for_device(page.span(0, HOST_BEHAVIOR));
        });
        let data = [self.layout.admin_data.address(), 0];
        self.command(Sqe { data, ..set_feature(FeatureId::HostBehavior, 0) }, None)?;
        Ok(())
    }

    /// The wait before CSTS may be read again.
    pub(crate) fn settle_after_disable(&mut self) -> Run<()> {
        if self.quirks.has(Quirk::DelayBeforeReady) {
            self.sleep(DELAY_BEFORE_READY)?;
        }
        Ok(())
    }
}

/// An identify command.
fn identify(cns: Cns, nsid: u32) -> Sqe {
    let opcode = AdminOpcode::Identify.into_bits();
    Sqe { opcode, nsid, cdw10: [cns.into_bits().into(), 0, 0, 0, 0, 0], ..Sqe::default() }
}

/// A set features command whose value is one dword.
fn set_feature(id: FeatureId, value: u32) -> Sqe {
    let opcode = AdminOpcode::SetFeatures.into_bits();
    Sqe { opcode, cdw10: [id.into_bits().into(), value, 0, 0, 0, 0], ..Sqe::default() }
}

/// Sets the host memory buffer: on or off, its number of pages, and position and length of its
/// list.
fn set_host_memory([enable, pages, low, high, entries]: [u32; 5]) -> Sqe {
    let opcode = AdminOpcode::SetFeatures.into_bits();
    let id = FeatureId::HostMemory.into_bits().into();
    Sqe { opcode, cdw10: [id, enable, pages, low, high, entries], ..Sqe::default() }
}

/// Clears CC.EN, and waits for CSTS.RDY to follow.
pub(crate) fn disable<M: Machine>(core: &mut Core<M>) -> Run<Result<(), Cause>> {
    let status = core.read(CSTS);
    if status == u32::MAX {
        return Ok(Err(Cause::Removed));
    }
    let cc = Cc::from_bits(core.read(CC));
    if cc.en() {
        core.write(CC, cc.with_en(false).with_shn(0).into_bits());
        core.settle_after_disable()?;
    }
    let ready = Csts::new().with_rdy(true).into_bits();
    let timeout = core.ready_ms();
    let off = core.until(("CSTS", CSTS), ready, 0, timeout)?;
    core.effect(|core| core.enabled = off.is_err());
    Ok(off.map(|_| ()))
}

//! The commands of one port: start, ring, poll. Everything off this path is in `manage`.
//!
//! A port has one command list with one set of doorbells, and an error in one command stops all of
//! them, so a port is one lane, owned by one thread. Queued commands are in the device together;
//! one that is not queued is alone there, and what comes after it waits in line.

mod manage;
mod start;
mod turns;

pub(crate) use manage::Found;
pub(crate) use turns::{Switching, UNITS};

use crate::layout::{LIMITS, PortMemory, TABLE};
use crate::options::AhciOptions;
use crate::slots::{SLOTS, Slot, bits};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use flysch_api::command::{Ata, AtaStatus, Ended, Failure, Limits, Outcome};
use flysch_api::data::{Data, Walk};
use flysch_api::machine::{DmaArray, DmaRegion, Instant, Machine};
use flysch_wire::ata::list::HEADER;
use flysch_wire::ata::registers::{IS, PX_CI, PX_IS, PX_SACT, interrupt, port_base};
use turns::{Target, Turns};

pub(crate) const MS: u64 = 1_000_000;

/// Details of a command that did not simply succeed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) status: AtaStatus,
    pub(crate) residual: u32,
    /// PxIS, if the HBA ended it.
    pub(crate) code: u32,
}

/// The commands of one port.
#[derive(Debug)]
pub(crate) struct Lane<M: Machine> {
    pub(crate) machine: M,
    /// Number of the port, and offset of its registers.
    pub(crate) port: u8,
    pub(crate) base: u32,
    list: DmaArray<HEADER>,
    tables: DmaArray<TABLE>,
    table_address: u64,
    slots: Box<[Slot]>,
    /// Free slots, a bit each.
    free: u32,
    /// Queued commands that are written but not issued; those the device has.
    posted: u32,
    queued: u32,
    /// Commands alone in their devices, at most one per device.
    alone: u32,
    /// Commands waiting in line to be issued.
    waits: u32,
    /// The devices by multiplier port; without a multiplier, only the first entry is used.
    targets: Box<[Target]>,
    turns: Turns,
    /// Commands found to have ended but not taken yet.
    batch: u32,
    /// Outcomes owed: of slots, and those in `ended`.
    pub(crate) in_flight: usize,
    /// Most outcomes owed; 0 while nothing may be started.
    capacity: usize,
    depth: usize,
    /// Whether the command list is running and under the lane's control.
    running: bool,
    ended: VecDeque<(Outcome, Trouble)>,
    trouble: Trouble,
    pub(crate) watch_at: Instant,
    watchdog_nanos: u64,
    interrupts: bool,
    pub(crate) data: DmaRegion,
    pub(crate) limits: Limits,
    walk: Walk,
}

impl<M: Machine> Lane<M> {
    pub(crate) fn new(
        machine: &M,
        port: u8,
        memory: &PortMemory,
        options: &AhciOptions,
        depth: u8,
    ) -> Self {
        let transfer_max = options.transfer_max;
        let data = machine.memory().clone();
        Self {
            machine: machine.clone(),
            port,
            base: port_base(port),
            list: DmaArray::new(memory.list.clone()),
            tables: DmaArray::new(memory.tables.clone()),
            table_address: memory.tables.address(),
            slots: (0..SLOTS).map(|_| Slot::FREE).collect(),
            free: (u64::from(u32::MAX) >> (32 - u32::from(depth))) as u32,
            posted: 0,
            queued: 0,
            alone: 0,
            waits: 0,
            targets: (0..UNITS).map(|_| Target::ABSENT).collect(),
            turns: Turns::default(),
            batch: 0,
            in_flight: 0,
            capacity: 0,
            depth: depth.into(),
            running: false,
            ended: VecDeque::with_capacity(SLOTS),
            trouble: Trouble::default(),
            watch_at: Instant::NEVER,
            watchdog_nanos: u64::from(options.timeouts.watchdog_ms) * MS,
            interrupts: options.interrupts,
            limits: Limits { slots: depth.into(), transfer_max, segments: LIMITS, crypto: false },
            walk: Walk::new(LIMITS, transfer_max, &data, &memory.whole),
            data,
        }
    }

    /// Issues everything that was started, as far as is possible now.
    #[inline]
    pub(crate) fn ring(&mut self, now: Instant) {
        if !self.running {
            return;
        }
        if self.waits != 0 {
            self.pump(now);
        }
        if self.posted != 0 {
            self.ring_posted(now);
        }
    }

    /// Rings one doorbell for the batch. Out of line, because its loop needs the CPU's registers.
    #[inline(never)]
    fn ring_posted(&mut self, now: Instant) {
        if self.queued | self.alone == 0 {
            self.watch_at = now.after_nanos(self.watchdog_nanos);
        }
        for slot in bits(self.posted) {
            let slot = &mut self.slots[slot];
            slot.issued = now;
            self.watch_at = self.watch_at.min(slot.deadline);
        }
        if self.turns.switching == Switching::Fis {
            self.ring_by_device();
        } else {
            // AHCI 5.3.2.3: the tag must be active before the command is issued.
            self.machine.write32(self.base + PX_SACT, self.posted);
            self.machine.write32(self.base + PX_CI, self.posted);
        }
        self.queued |= self.posted;
        self.posted = 0;
    }

    /// The next command that has ended by itself.
    #[inline(always)]
    pub(crate) fn take_done(&mut self, now: Instant) -> Option<Outcome> {
        if self.batch == 0 && !self.look() {
            return None;
        }
        let slot = self.batch.trailing_zeros() as usize % SLOTS;
        self.batch &= self.batch - 1;
        self.settle(slot, now)
    }

    /// Finds the commands that have ended. Acknowledges their interrupt first, so that a later one
    /// interrupts again.
    #[inline]
    fn look(&mut self) -> bool {
        if self.queued | self.alone == 0 || !self.running {
            return false;
        }
        if self.interrupts {
            self.machine.write32(self.base + PX_IS, interrupt::GOOD);
            self.machine.write32(IS, 1 << self.port);
        }
        self.batch = match self.alone {
            0 => self.queued & !self.machine.read32(self.base + PX_SACT),
            alone => {
                let others = match self.queued {
                    0 => 0,
                    queued => queued & !self.machine.read32(self.base + PX_SACT),
                };
                others | alone & !self.machine.read32(self.base + PX_CI)
            }
        };
        self.queued &= !self.batch;
        self.batch != 0
    }

    /// The outcome of a command that ended without an error from the device or the HBA.
    #[inline]
    fn settle(&mut self, slot: usize, now: Instant) -> Option<Outcome> {
        let place = &mut self.slots[slot];
        let token = place.owed.take()?;
        let issued = place.issued;
        let device_done = self.machine.device_done(self.port.into(), slot as u16);
        if !M::COHERENT {
            self.sync_incoming(slot);
        }
        // Another command, to be alone, may have been issued since this one was found.
        let is_alone = self.alone >> slot & 1 != 0;
        let ended = if is_alone { self.settle_alone(slot) } else { Ended::Good };
        self.free |= 1 << slot;
        self.in_flight -= 1;
        if self.waits != 0 {
            self.pump(now);
        }
        Some(Outcome { issued, device_done, token, ended })
    }

    /// Ends a command that was alone; reports its residual if it moved less data than expected.
    fn settle_alone(&mut self, slot: usize) -> Ended {
        self.alone &= !(1 << slot);
        self.refresh();
        let expected = self.slots[slot].expected;
        let residual = expected.saturating_sub(self.moved(slot));
        if expected == 0 || residual == 0 {
            return Ended::Good;
        }
        self.trouble = Trouble { residual, ..Trouble::default() };
        Ended::Answered
    }

    /// PRDBC of a slot.
    fn moved(&self, slot: usize) -> u32 {
        let at = slot * HEADER;
        self.machine.sync_for_cpu(self.list.region().span(at, HEADER));
        (u64::from_le(self.list.region().load64(at)) >> 32) as u32
    }

    /// Makes the data that the device wrote for a slot visible to the host.
    fn sync_incoming(&mut self, slot: usize) {
        let data = core::mem::replace(&mut self.slots[slot].incoming, Data::NONE);
        for range in data.ranges(&self.data).flatten() {
            self.machine.sync_for_cpu(range);
        }
    }

    pub(crate) fn failure(&self) -> Failure<Ata> {
        let Trouble { status, residual, code } = self.trouble;
        Failure { status, residual, code }
    }

    pub(crate) fn poll_at(&self) -> Option<Instant> {
        (self.in_flight != 0).then_some(self.watch_at)
    }
}

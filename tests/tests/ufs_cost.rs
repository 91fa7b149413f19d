//! The cost of the UFS driver besides instructions (`tools/cost`): it never allocates for a
//! command; its heap, memory, registers and polling are as stated in docs/ufs-driver.md.

use flysch_api::command::{Command, Declined, Ended, NotStarted, Port as _, Scsi};
use flysch_api::data::{BadData, Data};
use flysch_api::machine::{
    Clock, DmaRegion, DmaSlice, Identity, Instant, Machine, Registers, Wake,
};
use flysch_cost::instant::InstantMachine;
use flysch_models::machine::{Inline, Mode, Polled};
use flysch_models::ufs::{Config, Ufs};
use flysch_tests::ufs::{buffer, done, list, read, segments, whole, write};
use flysch_ufs::{Host, Port, QueueMode, UfsOptions};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::rc::Rc;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes on the heap now, and the maximum so far.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn changed(bytes: isize) {
    LIVE.with(|live| {
        live.set(live.get() + bytes);
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed on unchanged to the system allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        changed(layout.size() as isize);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        changed(-(layout.size() as isize));
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn port(queue: QueueMode, interrupts: bool) -> (InstantMachine, Port<InstantMachine>) {
    let machine = InstantMachine::new(32 << 20);
    let memory = machine.memory().carve(0, 1 << 20);
    let options = UfsOptions { queue, interrupts, ..UfsOptions::default() };
    let mut host = Host::new(machine.clone(), memory, options).expect("options");
    host.bring_up(&machine).expect("bring-up");
    let port = host.into_ports().remove(0);
    (machine, port)
}

/// Carries out `count` such commands at this depth.
#[inline(never)]
fn driver_alone(
    machine: &InstantMachine,
    port: &mut Port<InstantMachine>,
    command: impl Fn() -> Command<Scsi>,
    (depth, count): (u32, u32),
) {
    let mut ended = 0;
    while ended < count {
        let now = machine.now();
        for _ in 0..depth {
            port.start(command(), now).expect("room");
        }
        port.ring(now);
        while let Some(outcome) = port.poll(now) {
            assert_eq!(outcome.ended, Ended::Good);
            ended += 1;
        }
    }
}

/// The SATA driver, with and without queueing, with one range and with a list.
#[test]
fn the_sata_driver_allocates_nothing_for_a_command() {
    use flysch_api::command::{Ata, Direction, Ordering, Token};
    use flysch_cam::Family as _;
    let machine = flysch_cost::instant_ahci::AhciInstantMachine::new(8 << 20);
    let options = flysch_ahci::AhciOptions { ports: 1, ..Default::default() };
    let memory = machine.memory().carve(0, 1 << 20);
    let mut host = flysch_ahci::Host::new(machine.clone(), memory, options).expect("options");
    host.bring_up(&machine).expect("bring-up");
    let mut port = host.into_ports().remove(0);
    let data = machine.memory().carve(1 << 20, 1 << 20);
    let list = Data::list(&data, 0, &[data.slice(4096, 2048), data.slice(8192, 2048)]);
    let list = list.expect("room");
    let mut rounds = || {
        for round in 0..200_u32 {
            let (payload, data) = match round % 3 {
                0 => (Ata::transfer(false, 0, 8, false), Data::One(data.slice(4096, 4096))),
                1 => (Ata::transfer(true, 0, 8, true), list),
                _ => (Ata::flush(), Data::NONE),
            };
            let direction = if data.is_empty() { Direction::None } else { Direction::FromDevice };
            let depth = if data.is_empty() { 1 } else { 32 };
            for token in 0..depth {
                let command = Command {
                    unit: 0,
                    payload,
                    direction,
                    data,
                    crypto: None,
                    ordering: Ordering::Simple,
                    deadline: Instant::NEVER,
                    token: Token::new(token),
                };
                port.start(command, machine.now()).expect("room");
            }
            port.ring(machine.now());
            let mut ended = 0;
            while ended < depth {
                if let Some(outcome) = port.poll(machine.now()) {
                    assert_eq!(outcome.ended, Ended::Good);
                    ended += 1;
                }
            }
        }
    };
    assert_eq!(allocations(&mut rounds), 0);
}

/// The eMMC driver with a queueing engine: one range, a list, a flush, a trim.
#[test]
fn the_emmc_driver_allocates_nothing_for_a_command() {
    use flysch_api::command::{Direction, Mmc, MmcCommand, MmcResponse, Ordering, Token};
    use flysch_cam::Family as _;
    use flysch_wire::mmc::command::{CommandIndex, erase};
    let machine = flysch_cost::instant_emmc::EmmcInstantMachine::new(8 << 20);
    let timing = flysch_emmc::Timing::Legacy;
    let options = flysch_emmc::EmmcOptions { timing, ..Default::default() };
    let memory = machine.memory().carve(0, 2 << 20);
    let mut host = flysch_emmc::Host::new(machine.clone(), memory, options).expect("options");
    host.bring_up(&machine).expect("bring-up");
    let mut port = host.into_ports().remove(0);
    let data = machine.memory().carve(2 << 20, 1 << 20);
    let list = Data::list(&data, 0, &[data.slice(4096, 2048), data.slice(8192, 2048)]);
    let list = list.expect("room");
    let trim = MmcCommand {
        index: CommandIndex::Erase.into_bits(),
        argument: erase::TRIM,
        response: MmcResponse::R1b,
        ..MmcCommand::default()
    };
    let mut round = |round: u32| {
        let (payload, data, depth) = match round % 4 {
            0 => (Mmc::transfer(false, 0, 8, false), Data::One(data.slice(4096, 4096)), 31),
            1 => (Mmc::transfer(true, 0, 8, true), list, 31),
            2 => (Mmc::flush(), Data::NONE, 1),
            _ => (trim, Data::One(data.slice(0x4000, 8)), 1),
        };
        let direction = match round % 4 {
            0 => Direction::FromDevice,
            2 => Direction::None,
            _ => Direction::ToDevice,
        };
        for token in 0..depth {
            let command = Command {
                unit: 0,
                payload,
                direction,
                data,
                crypto: None,
                ordering: Ordering::Simple,
                deadline: Instant::NEVER,
                token: Token::new(token),
            };
            port.start(command, machine.now()).expect("room");
        }
        port.ring(machine.now());
        let mut ended = 0;
        while ended < depth {
            match port.poll(machine.now()) {
                Some(outcome) => {
                    assert_eq!(outcome.ended, Ended::Good);
                    ended += 1;
                }
                None => {
                    machine.wait(port.poll_at());
                }
            }
        }
    };
    // What the control path keeps from its first errand on.
    (0..4).for_each(&mut round);
    assert_eq!(allocations(|| (0..200).for_each(&mut round)), 0);
}

/// Number of allocations by this thread during `meanwhile`.
fn allocations(meanwhile: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    meanwhile();
    ALLOCATIONS.with(Cell::get) - before
}

/// A block of data in its possible shapes: one range, and lists of eight, one of which takes the
/// common path and the other the one that examines each entry.
fn shapes(machine: &InstantMachine) -> [(&'static str, Data); 3] {
    let base = buffer(machine, 1, 0).address;
    let ascending: Vec<_> =
        (0..8).map(|n| DmaSlice { address: base + n * 1024, len: 512 }).collect();
    [
        ("one range", Data::One(buffer(machine, 0, 4096))),
        ("a list in order", list(machine, 1, &ascending)),
        ("a list out of order", segments(machine, 2, 4096, 8)),
    ]
}

/// Makes a command from a block and its data.
type Make = fn(u32, DmaSlice) -> Command<Scsi>;

#[test]
fn no_command_allocates() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1, "they are counted");
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        for interrupts in [false, true] {
            let (machine, mut port) = port(queue, interrupts);
            for (shape, data) in shapes(&machine) {
                for (what, command) in [("read", read as Make), ("write", write)] {
                    for depth in [1, 7, 32] {
                        let made = || Command { data, ..command(1, whole(4096)) };
                        let rounds = (depth, 10_000);
                        let counted =
                            allocations(|| driver_alone(&machine, &mut port, made, rounds));
                        let case = format!("{queue:?}, {what} of {shape}, depth {depth}");
                        assert_eq!(counted, 0, "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn no_command_that_is_refused_allocates() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        let (machine, mut port) = port(queue, false);
        let base = buffer(&machine, 1, 0).address;
        let range = |address| DmaSlice { address, len: 512 };
        let good = range(base);
        let lists = [
            (list(&machine, 1, &[good, range(base + 1026)]), BadData::Misaligned),
            (list(&machine, 2, &[good, range(0)]), BadData::Outside),
            (list(&machine, 3, &[good, good]), BadData::Overlap),
            (Data::List { entries: 0, count: 2, skip: 0, len: 1024 }, BadData::List),
        ];
        for (data, cause) in lists {
            let counted = allocations(|| {
                for _ in 0..1000 {
                    let command = Command { data, ..read(1, whole(4096)) };
                    let refused = port.start(command, machine.now());
                    let Err(Declined { why, .. }) = refused else { panic!("{cause} is taken") };
                    assert_eq!(why, NotStarted::BadData(cause));
                }
            });
            assert_eq!(counted, 0, "{queue:?}, {cause}");
        }
        // None of them holds a slot.
        let made = || read(1, buffer(&machine, 0, 4096));
        driver_alone(&machine, &mut port, made, (32, 64));
    }
}

/// A machine that counts accesses to its registers, and records the highest.
#[derive(Clone)]
struct Watched<M> {
    inner: M,
    seen: Rc<Cell<Seen>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    reads: u32,
    writes: u32,
    /// The first byte after all registers that were used.
    end: u32,
}

impl<M> Watched<M> {
    fn new(inner: M) -> Self {
        Self { inner, seen: Rc::default() }
    }

    fn note(&self, offset: u32, reads: u32, writes: u32) {
        let seen = self.seen.get();
        let end = seen.end.max(offset + 4);
        self.seen.set(Seen { reads: seen.reads + reads, writes: seen.writes + writes, end });
    }
}

impl<M: Registers> Registers for Watched<M> {
    fn read32(&self, offset: u32) -> u32 {
        self.note(offset, 1, 0);
        self.inner.read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        self.note(offset, 0, 1);
        self.inner.write32(offset, value);
    }
}

impl<M: Clock> Clock for Watched<M> {
    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        self.inner.wait(until)
    }
}

impl<M: Machine> Machine for Watched<M> {
    fn memory(&self) -> &DmaRegion {
        self.inner.memory()
    }

    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn vectors(&self) -> u16 {
        self.inner.vectors()
    }

    fn messages(&self) -> Option<u64> {
        self.inner.messages()
    }

    fn on_vector(&self, vector: u16) -> Self {
        Self { inner: self.inner.on_vector(vector), seen: Rc::clone(&self.seen) }
    }
}

/// The driver's heap once it is up, bytes. Until then it never exceeds that by more than 1 KiB.
fn heap(queue: QueueMode, lanes: u8, depth: u16) -> isize {
    let machine = InstantMachine::new(32 << 20);
    let memory = machine.memory().carve(0, 4 << 20);
    let options = UfsOptions { queue, lanes, depth, ..UfsOptions::default() };
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let mut host = Host::new(machine.clone(), memory, options).expect("options");
    host.bring_up(&machine).expect("bring-up");
    let ports = host.into_ports();
    let up = LIVE.with(Cell::get) - before;
    assert!(PEAK.with(Cell::get) - before < up + 1024);
    drop(ports);
    assert_eq!(LIVE.with(Cell::get), before, "all of it is given back");
    up
}

/// docs/ufs-driver.md, "What it needs": if a figure changes, it must be changed there, too.
#[test]
fn heap_and_memory_are_what_the_documentation_says() {
    let shapes = [(1, 1), (1, 32), (4, 8), (4, 32)];
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        for (lanes, depth) in shapes {
            if queue == QueueMode::Sdq && u16::from(lanes) * depth > 32 {
                continue;
            }
            let (wide, deep) = (isize::from(lanes), isize::try_from(depth).expect("small"));
            let says = 28_904 + wide * (1_528 + deep * 129);
            assert_eq!(heap(queue, lanes, depth), says, "{queue:?}, {lanes} lanes of {depth}");
        }
    }
    let memory = |lanes, depth| {
        Host::<InstantMachine>::memory_len(&UfsOptions { lanes, depth, ..UfsOptions::default() })
    };
    // A shorter lane has rings of 32 as well.
    assert_eq!([memory(1, 1), memory(1, 32), memory(4, 32)], [48_128, 118_784, 355_328]);
}

/// As above. The configuration banks of this controller's queues are at 0x400, their run-time
/// registers at 0x1000, 0x30 bytes apart.
#[test]
fn the_registers_used_are_what_the_documentation_says() {
    for (queue, lanes, end) in
        [(QueueMode::Sdq, 4, 0x304), (QueueMode::Mcq, 1, 0x102C), (QueueMode::Mcq, 4, 0x10BC)]
    {
        let machine = Watched::new(InstantMachine::new(32 << 20));
        let memory = machine.memory().carve(0, 1 << 20);
        let options = UfsOptions { queue, lanes, depth: 8, ..UfsOptions::default() };
        let mut host = Host::new(machine.clone(), memory, options).expect("options");
        host.bring_up(&machine).expect("bring-up");
        let mut port = host.into_ports().remove(0);
        let data = buffer(&machine, 0, 4096);
        done(&mut port, &machine, read(1, data));
        assert_eq!(machine.seen.get().end, end, "{queue:?}, {lanes} lanes");
    }
}

#[test]
fn polling_without_arming_costs_what_the_documentation_says() {
    const READS: u64 = 100;
    // Queues, interrupts, whether interrupts are armed; register reads and writes of a poll that
    // finds nothing, of arming, of the poll that finds an end.
    for (queue, interrupts, arms, counts) in [
        (QueueMode::Sdq, false, false, [(1, 0), (0, 0), (1, 0)]),
        (QueueMode::Sdq, false, true, [(1, 0), (2, 1), (2, 2)]),
        (QueueMode::Sdq, true, false, [(2, 0), (0, 0), (2, 1)]),
        (QueueMode::Mcq, false, false, [(0, 0), (0, 0), (1, 1)]),
        (QueueMode::Mcq, false, true, [(0, 0), (0, 3), (1, 4)]),
        (QueueMode::Mcq, true, false, [(1, 1), (0, 0), (1, 2)]),
    ] {
        let memory = DmaRegion::zeroed(2 << 20, 0x1_0000_0000);
        let ufs = Ufs::new(Config::default(), memory.clone()).expect("a configuration");
        let inline = Inline::new(ufs, memory, Identity::default(), Mode::Virtual);
        let watched = Watched::new(inline.clone());
        let options = UfsOptions { queue, interrupts, ..UfsOptions::default() };
        let driver = inline.memory().carve(0, 1 << 20);
        let mut host = Host::new(watched.clone(), driver, options).expect("options");
        host.bring_up(&watched).expect("bring-up");
        let mut port = host.into_ports().remove(0);
        let data = buffer(&inline, 0, 4096);
        done(&mut port, &watched, read(1, data));
        let (before, start) = (inline.polled(), inline.now());
        for n in 0..READS {
            port.start(read(1, data), watched.now()).expect("room");
            port.ring(watched.now());
            let count = |act: &mut dyn FnMut()| {
                watched.seen.set(Seen::default());
                act();
                let seen = watched.seen.get();
                (seen.reads, seen.writes)
            };
            let empty = count(&mut || assert!(port.poll(watched.now()).is_none()));
            let arm = count(&mut || assert!(!arms || port.arm(), "nothing can have ended"));
            watched.wait(port.poll_at());
            let found = count(&mut || {
                let outcome = port.poll(watched.now()).expect("its end woke the host");
                assert_eq!(outcome.ended, Ended::Good);
            });
            // The first poll still finds the status of what came before it.
            if n > 0 {
                assert_eq!([empty, arm, found], counts, "{queue:?}, {interrupts}, {arms}");
            }
        }
        let after = inline.polled();
        let spent = Polled { waits: after.waits - before.waits, nanos: after.nanos - before.nanos };
        // All the time between doorbell and end, or none of it.
        let all = Polled { waits: READS, nanos: inline.now().nanos_since(start) };
        assert_eq!(spent, if interrupts || arms { Polled::default() } else { all });
    }
}

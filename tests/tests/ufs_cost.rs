//! The UFS driver never allocates for a command. (How many instructions it takes: `tools/cost`.)

use flysch_api::command::{Ended, Port as _};
use flysch_api::machine::{Clock, Machine as _};
use flysch_cost::instant::InstantMachine;
use flysch_tests::ufs::{buffer, read};
use flysch_ufs::{Host, Options, Port, QueueMode};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn port(queue: QueueMode, interrupts: bool) -> (InstantMachine, Port<InstantMachine>) {
    let machine = InstantMachine::new(32 << 20);
    let memory = machine.memory().carve(0, 1 << 20);
    let options = Options { queue, interrupts, ..Options::default() };
    let mut host = Host::new(machine.clone(), memory, options).expect("options");
    host.bring_up(&machine).expect("bring-up");
    let port = host.into_ports().remove(0);
    (machine, port)
}

/// Reads 4 KiB `count` times at this depth.
#[inline(never)]
fn driver_alone(machine: &InstantMachine, port: &mut Port<InstantMachine>, depth: u32, count: u32) {
    let data = buffer(machine, 0, 4096);
    let mut ended = 0;
    while ended < count {
        let now = machine.now();
        for _ in 0..depth {
            port.start(read(1, data), now).expect("room");
        }
        port.ring(now);
        while let Some(outcome) = port.poll(now) {
            assert_eq!(outcome.ended, Ended::Good);
            ended += 1;
        }
    }
}

#[test]
fn no_command_allocates() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        for interrupts in [false, true] {
            let (machine, mut port) = port(queue, interrupts);
            for depth in [1, 7, 32] {
                let before = ALLOCATIONS.with(Cell::get);
                driver_alone(&machine, &mut port, depth, 10_000);
                assert_eq!(ALLOCATIONS.with(Cell::get), before, "{queue:?} depth {depth}");
            }
        }
    }
}

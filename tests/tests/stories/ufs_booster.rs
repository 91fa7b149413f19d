//! WriteBooster's later features on the UFS model: resizing the buffer, and what a flush leaves in
//! it.

use flysch_api::command::{Command, Ended, Scsi};
use flysch_api::machine::Clock;
use flysch_models::ufs::{Config, UnitConfig};
use flysch_tests::ufs::{Model, buffer, done, fill, finish, holds, host, machine, read, write};
use flysch_ufs::{
    Cause, Host, Operation, Output, PartialFlush, PartialFlushState, Port, Query, ResizeState,
    UfsError, UfsOptions,
};
use flysch_wire::ufs::query::{
    AttributeId, FlagId, PINNED_GROUP, QueryResult, WriteBoosterPartialFlush, WriteBoosterResize,
    WriteBoosterResizeStatus as Status,
};

const MIB: u64 = 1 << 20;
/// Number of bytes of one command, and of its blocks.
const PIECE: u32 = 256 << 10;
const BLOCKS: u32 = 64;
const RESIZE_HINT: u16 = 1 << 8;
const PINNED_FULL: u16 = 1 << 10;

/// 16 allocation units of 4 MiB: a resize is two, the minimum is four.
fn config() -> Config {
    Config { write_booster: 64 * MIB, ..Config::default() }
}

struct Stack {
    machine: Model,
    port: Port<Model>,
    next: u32,
}

impl Stack {
    fn new(config: Config, events: u16) -> Self {
        let machine = machine(config);
        let options = UfsOptions {
            write_booster: Some(true),
            exception_events: events,
            ..UfsOptions::default()
        };
        let mut port = host(&machine, options).into_ports().remove(0);
        // The unit attention after start-up.
        done(&mut port, &machine, read(0, buffer(&machine, 0, 4096)));
        Self { machine, port, next: 0 }
    }

    fn host(&mut self) -> &mut Host<Model> {
        self.port.host_mut().expect("the first port")
    }

    fn run(&mut self, operation: Operation) -> Result<Output, UfsError> {
        let machine = self.machine.clone();
        self.host().run(&machine, operation)
    }

    /// Writes the next `bytes` bytes; returns the first block.
    fn write(&mut self, bytes: u64, group: u8) -> u32 {
        let first = self.next;
        let data = buffer(&self.machine, 0, PIECE);
        for _ in 0..bytes / u64::from(PIECE) {
            let mut command: Command<Scsi> = write(self.next, data);
            command.payload.0[6] = group;
            let outcome = finish(&mut self.port, &self.machine, command);
            assert_eq!(outcome.ended, Ended::Good);
            self.next += BLOCKS;
        }
        first
    }

    fn rest(&mut self, nanos: u64) {
        self.machine.wait(Some(self.machine.now().after_nanos(nanos)));
    }

    fn size(&mut self) -> u32 {
        let machine = self.machine.clone();
        self.host().write_booster(&machine).expect("status").size_units
    }

    fn available(&mut self) -> u8 {
        let machine = self.machine.clone();
        self.host().write_booster(&machine).expect("status").available_percent
    }

    fn resize(&mut self, direction: WriteBoosterResize) -> ResizeState {
        let machine = self.machine.clone();
        self.host().resize_write_booster(&machine, direction).expect("an end")
    }

    fn partial(&mut self) -> PartialFlushState {
        match self.run(Operation::PartialFlushState) {
            Ok(Output::PartialFlush(state)) => state,
            other => panic!("{other:?}"),
        }
    }

    fn flush(&mut self) {
        self.run(Operation::WriteBoosterFlush(true)).expect("begun");
        self.rest(1_000_000_000);
        self.run(Operation::WriteBoosterFlush(false)).expect("ended");
    }
}

#[test]
fn the_write_booster_buffer_shrinks_and_grows() {
    let mut stack = Stack::new(config(), 0);
    assert_eq!(stack.size(), 16);
    let state = stack.resize(WriteBoosterResize::Decrease);
    assert_eq!((state.status, state.size_units), (Status::Completed, 14));
    // The end is reported once.
    let Ok(Output::Resize(state)) = stack.run(Operation::ResizeState(0)) else { panic!("a state") };
    assert_eq!((state.status, state.hint), (Status::Idle, WriteBoosterResize::Keep));
    for size in [12, 10, 8, 6, 4] {
        assert_eq!(stack.resize(WriteBoosterResize::Decrease).size_units, size);
    }
    let state = stack.resize(WriteBoosterResize::Decrease);
    assert_eq!((state.status, state.size_units), (Status::GeneralFailure, 4), "no smaller");
    // It accepts only what it has room for, and reports that it is too small.
    stack.write(20 * MIB, 0);
    assert_eq!(stack.available(), 0);
    let Ok(Output::Resize(state)) = stack.run(Operation::ResizeState(0)) else { panic!("a state") };
    assert_eq!(state.hint, WriteBoosterResize::Increase);
    stack.run(Operation::FollowResizeHint).expect("begun");
    let Ok(Output::Resize(state)) = stack.run(Operation::ResizeState(0)) else { panic!("a state") };
    assert_eq!((state.status, state.size_units), (Status::InProgress, 4));
    let Ok(Output::Resize(state)) = stack.run(Operation::ResizeState(1000)) else { panic!() };
    assert_eq!((state.status, state.size_units), (Status::Completed, 6));
    assert_eq!(state.hint, WriteBoosterResize::Keep, "the request took it away");
    for size in [8, 10, 12, 14, 16] {
        assert_eq!(stack.resize(WriteBoosterResize::Increase).size_units, size);
    }
    let state = stack.resize(WriteBoosterResize::Increase);
    assert_eq!((state.status, state.size_units), (Status::GeneralFailure, 16), "as configured");
    // Its contents stay in it.
    stack.write(48 * MIB, 0);
    let state = stack.resize(WriteBoosterResize::Decrease);
    assert_eq!((state.status, state.size_units), (Status::GeneralFailure, 16));
}

#[test]
fn a_resize_waits_for_commands_and_ends_with_a_reset() {
    let mut stack = Stack::new(config(), 0);
    let machine = stack.machine.clone();
    let begin = Operation::ResizeWriteBooster(WriteBoosterResize::Decrease);
    stack.run(begin.clone()).expect("begun");
    // A second request while it runs changes nothing.
    stack.run(Operation::ResizeWriteBooster(WriteBoosterResize::Increase)).expect("taken");
    stack.rest(30_000_000);
    assert_eq!(stack.size(), 14);
    stack.run(begin).expect("begun");
    stack.run(Operation::Reset).expect("up again");
    stack.rest(100_000_000);
    let Ok(Output::Resize(state)) = stack.run(Operation::ResizeState(0)) else { panic!("a state") };
    assert_eq!((state.status, state.size_units), (Status::Idle, 14));
    let (out, back) = (buffer(&machine, 1, PIECE), buffer(&machine, 2, PIECE));
    fill(&machine, out, 5);
    done(&mut stack.port, &machine, write(7, out));
    stack.resize(WriteBoosterResize::Increase);
    done(&mut stack.port, &machine, read(7, back));
    assert!(holds(&machine, back, 5));
}

#[test]
fn a_device_that_wants_room_says_so() {
    let mut stack = Stack::new(config(), RESIZE_HINT);
    stack.machine.with_model(|model| model.want_space(true));
    stack.write(2 * MIB, 0);
    stack.run(Operation::Nop).expect("an answer");
    assert_eq!(stack.host().take_events(), RESIZE_HINT, "the caller hears of it");
    stack.run(Operation::FollowResizeHint).expect("begun");
    stack.rest(100_000_000);
    assert_eq!(stack.size(), 14);
    stack.machine.with_model(|model| model.want_space(false));
    stack.run(Operation::FollowResizeHint).expect("nothing to do");
    stack.rest(100_000_000);
    assert_eq!(stack.size(), 14);
}

#[test]
fn what_cannot_be_resized_is_refused_before_the_device_sees_it() {
    let cannot = Config { extended_write_booster: false, ..config() };
    for config in [cannot, Config { write_booster: 0, ..config() }] {
        let mut stack = Stack::new(config, 0);
        let operations = [
            Operation::ResizeWriteBooster(WriteBoosterResize::Decrease),
            Operation::FollowResizeHint,
            Operation::ResizeState(0),
            Operation::SetPartialFlush(PartialFlush::None),
            Operation::SetPartialFlush(PartialFlush::Fifo { units: 1 }),
            Operation::SetPartialFlush(PartialFlush::Pinned { units: 1, others_min: 0 }),
            Operation::PartialFlushState,
            Operation::Unpin(true),
        ];
        for operation in operations {
            let refused = stack.run(operation.clone());
            assert!(matches!(refused, Err(UfsError::Unsupported(_))), "{operation:?}: {refused:?}");
        }
        // If requested anyway, the device has no such attribute and no such flag.
        let unknown = Err(UfsError::Failed(Cause::Query(QueryResult::InvalidIdn)));
        let write = Query::write_attribute(AttributeId::WriteBoosterBufferResizeEn, 1);
        assert_eq!(stack.run(Operation::Query(write)), unknown);
        assert_eq!(stack.run(Operation::Query(Query::set_flag(FlagId::UnpinEn))), unknown);
    }
}

#[test]
fn a_partial_flush_leaves_what_came_last() {
    let mut stack = Stack::new(config(), 0);
    stack.run(Operation::SetPartialFlush(PartialFlush::Fifo { units: 4 })).expect("set");
    let state = stack.partial();
    let fifo = WriteBoosterPartialFlush::Fifo;
    assert_eq!((state.mode, state.fifo_max, state.fifo), (fifo, 4, 4));
    stack.write(48 * MIB, 0);
    stack.flush();
    assert_eq!(stack.available(), 70, "16 of 64 MiB stayed");
    // More than exists is refused and changes nothing.
    let too_much = Operation::SetPartialFlush(PartialFlush::Fifo { units: 17 });
    let refused = Err(UfsError::Failed(Cause::Query(QueryResult::InvalidValue)));
    assert_eq!(stack.run(too_much), refused);
    assert_eq!(stack.partial(), state);
    // The amount kept is always less than the buffer.
    stack.run(Operation::SetPartialFlush(PartialFlush::Fifo { units: 16 })).expect("set");
    assert_eq!((stack.partial().fifo_max, stack.partial().fifo), (16, 15));
    stack.run(Operation::SetPartialFlush(PartialFlush::None)).expect("set");
    stack.flush();
    assert_eq!(stack.available(), 100);
}

#[test]
fn a_partial_flush_leaves_what_is_pinned() {
    let mut stack = Stack::new(config(), PINNED_FULL);
    let machine = stack.machine.clone();
    let pinned = PartialFlush::Pinned { units: 4, others_min: 4 };
    stack.run(Operation::SetPartialFlush(pinned)).expect("set");
    assert_eq!((stack.size(), stack.partial().pinned), (12, 4), "the parts are told apart");
    stack.write(24 * MIB, 0);
    stack.write(8 * MIB, PINNED_GROUP);
    let state = stack.partial();
    assert_eq!((state.pinned_available_percent, state.others_min), (50, 4));
    stack.flush();
    assert_eq!((stack.available(), stack.partial().pinned_available_percent), (100, 50));
    assert_eq!(stack.host().take_events(), 0);
    // Pinned data that finds no room goes elsewhere, and the device reports that.
    stack.write(16 * MIB, PINNED_GROUP);
    assert_eq!(stack.partial().pinned_available_percent, 0);
    assert_eq!(stack.available(), 80, "8 of 48 MiB");
    assert_eq!(stack.host().take_events(), PINNED_FULL);
    // The settings survive a reset; a smaller buffer gives up pinned room only if it must.
    stack.run(Operation::Reset).expect("up again");
    done(&mut stack.port, &machine, read(0, buffer(&machine, 0, 4096)));
    assert_eq!(stack.partial().pinned, 4);
    stack.flush();
    for parts in [(10, 4), (8, 4), (6, 4), (4, 4), (4, 2)] {
        stack.resize(WriteBoosterResize::Decrease);
        assert_eq!((stack.size(), stack.partial().pinned), parts);
    }
    // Released data is flushed.
    stack.run(Operation::Unpin(true)).expect("released");
    assert!(stack.partial().unpinned);
    stack.flush();
    assert_eq!((stack.available(), stack.partial().pinned_available_percent), (100, 100));
    assert_eq!(stack.partial().pinned_written, 1, "16 MiB in units of 10 MB");
}

#[test]
fn a_buffer_of_a_units_own_is_resized_by_its_unit() {
    let own = UnitConfig { write_booster: 64 * MIB, ..UnitConfig::memory(256 * MIB) };
    let units = vec![Some(UnitConfig::memory(64 * MIB)), Some(own)];
    let mut stack = Stack::new(Config { units, write_booster: 0, ..Config::default() }, 0);
    assert_eq!(stack.resize(WriteBoosterResize::Decrease).size_units, 14);
    stack.run(Operation::SetPartialFlush(PartialFlush::Fifo { units: 3 })).expect("set");
    assert_eq!(stack.partial().fifo, 3);
    let machine = stack.machine.clone();
    let size = Query::read_attribute(AttributeId::CurrentWriteBoosterBufferSize);
    assert_eq!(stack.host().query(&machine, size.index(1)), Ok(Output::Value(14)));
    let size = Query::read_attribute(AttributeId::CurrentWriteBoosterBufferSize);
    assert_eq!(stack.host().query(&machine, size.index(0)), Ok(Output::Value(0)));
}

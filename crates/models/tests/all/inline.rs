//! The inline machine around a model with registers of all widths that raises vectors.

use flysch_api::machine::{
    Clock, DmaRegion, Identity, Instant, Machine, MixedRegisters, Registers, Wake,
};
use flysch_models::machine::{Inline, MESSAGES, Messages, MixedModel, Mode, Model};

/// Writing a number here raises that vector a microsecond later.
const RAISE: u32 = 0x10;

/// Registers that keep what was written, and the accesses they saw.
struct Widths {
    bytes: [u8; 64],
    accesses: Vec<(u32, u8)>,
    coming: Vec<(Instant, u64)>,
    messages: u64,
    line: bool,
}

impl Widths {
    fn read(&mut self, offset: u32, width: u8) -> u64 {
        self.accesses.push((offset, width));
        let mut value = [0; 8];
        let width = usize::from(width);
        value[..width].copy_from_slice(&self.bytes[offset as usize..][..width]);
        u64::from_le_bytes(value)
    }

    fn write(&mut self, offset: u32, width: u8, value: u64, now: Instant) {
        self.accesses.push((offset, width));
        let width = usize::from(width);
        self.bytes[offset as usize..][..width].copy_from_slice(&value.to_le_bytes()[..width]);
        if offset == RAISE {
            self.coming.push((now.after_nanos(1000), value));
        }
    }
}

impl Model for Widths {
    fn read32(&mut self, offset: u32, _: Instant) -> u32 {
        self.read(offset, 4) as u32
    }
    fn write32(&mut self, offset: u32, value: u32, now: Instant) {
        self.write(offset, 4, value.into(), now);
    }
    fn advance(&mut self, now: Instant) {
        let messages = &mut self.messages;
        self.coming.retain(|(at, vector)| {
            *messages |= u64::from(*at <= now) << vector;
            *at > now
        });
    }
    fn next_event(&self) -> Option<Instant> {
        self.coming.iter().map(|(at, _)| *at).min()
    }
    fn interrupt(&self) -> bool {
        self.line
    }
    fn silent_completions(&self) -> u64 {
        0
    }
    fn device_done(&self, _: u16, _: u16) -> Option<Instant> {
        None
    }
}

impl Messages for Widths {
    fn vectors(&self) -> u16 {
        3
    }
    fn take_messages(&mut self) -> u64 {
        core::mem::take(&mut self.messages)
    }
}

impl MixedModel for Widths {
    fn read_mixed(&mut self, offset: u32, width: u8, _: Instant) -> u64 {
        self.read(offset, width)
    }
    fn write_mixed(&mut self, offset: u32, width: u8, value: u64, now: Instant) {
        self.write(offset, width, value, now);
    }
}

fn machine() -> Inline<Widths> {
    let memory = DmaRegion::zeroed(4096, 0x1000);
    let model = Widths {
        bytes: [0; 64],
        accesses: Vec::new(),
        coming: Vec::new(),
        messages: 0,
        line: false,
    };
    Inline::new(model, memory, Identity::default(), Mode::Virtual)
}

#[test]
fn registers_of_every_width_are_one_access_each() {
    let machine = machine();
    machine.write64(0x20, 0x0807_0605_0403_0201);
    machine.write8(0x27, 0xFF);
    machine.write16(0x20, 0xBBAA);
    assert_eq!(machine.read64(0x20), 0xFF07_0605_0403_BBAA);
    assert_eq!(machine.read32(0x24), 0xFF07_0605);
    assert_eq!((machine.read16(0x26), machine.read8(0x21)), (0xFF07, 0xBB));
    let seen = machine.with_model(|model| std::mem::take(&mut model.accesses));
    let wanted = [(0x20, 8), (0x27, 1), (0x20, 2), (0x20, 8), (0x24, 4), (0x26, 2), (0x21, 1)];
    assert_eq!(seen, wanted);
}

#[test]
fn a_wait_for_a_vector_ends_with_that_vector_alone() {
    let machine = machine();
    assert_eq!((machine.vectors(), machine.messages()), (3, Some(MESSAGES)));
    let of = |vector| machine.on_vector(vector);
    let soon = || Some(machine.now().after_nanos(5000));
    machine.write32(RAISE, 2);
    assert_eq!(of(1).wait(soon()), Wake::Deadline);
    assert_eq!(of(2).wait(None), Wake::Interrupt, "it was raised while nobody waited for it");
    assert_eq!(of(2).wait(None), Wake::Idle, "once");
    machine.write32(RAISE, 1);
    assert_eq!(machine.wait(None), Wake::Interrupt, "a handle for all");
    assert_eq!(of(1).wait(soon()), Wake::Deadline);
    // The line is vector 0, and stays active until it is served.
    machine.with_model(|model| model.line = true);
    assert_eq!([of(0).wait(None), of(0).wait(None)], [Wake::Interrupt; 2]);
    assert_eq!(of(2).wait(soon()), Wake::Deadline);
}

//! Devices behind x86 I/O ports: the serial line, the debug exit, PCI configuration space, and the
//! timer that calibrates the processor's clock.

use core::arch::asm;
use core::fmt;

/// First serial port (16550).
const COM1: u16 = 0x3F8;
const LINE_STATUS: u16 = COM1 + 5;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// QEMU's `isa-debug-exit`: writing `v` ends QEMU with status `v << 1 | 1`.
const DEBUG_EXIT: u16 = 0xF4;
const CONFIG_ADDRESS: u16 = 0xCF8;
const CONFIG_DATA: u16 = 0xCFC;
/// Counter 2 of the 8254, its control word, and the port with its gate and output.
const COUNTER_2: u16 = 0x42;
const COUNTER_CONTROL: u16 = 0x43;
const GATE: u16 = 0x61;
const COUNTER_HZ: u64 = 1_193_182;

fn out8(port: u16, value: u8) {
    // SAFETY: the ports written here are the ones named above; none of them touches memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack)) }
}

fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as for `out8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) }
    value
}

fn out32(port: u16, value: u32) {
    // SAFETY: as for `out8`; a write to PCI configuration space may let a device access memory, but
    // only the region given to its driver.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack)) }
}

fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: as for `out8`.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack)) }
    value
}

/// The serial line.
pub struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while in8(LINE_STATUS) & TRANSMITTER_EMPTY == 0 {}
            out8(COM1, byte);
        }
        Ok(())
    }
}

/// Ends QEMU: its exit status is 33 for success, 35 for failure.
pub fn exit(success: bool) -> ! {
    out32(DEBUG_EXIT, if success { 0x10 } else { 0x11 });
    loop {
        // SAFETY: stops the processor; interrupts are off, so nothing wakes it.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) }
    }
}

/// One function on the PCI bus.
#[derive(Clone, Copy, Debug)]
pub struct Function(u32);

impl Function {
    /// All functions present on bus 0.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..32 * 8).map(|number| Self(1 << 31 | number << 8)).filter(|f| f.read(0) != u32::MAX)
    }

    /// Reads the configuration register at `offset`, a multiple of 4.
    pub fn read(self, offset: u32) -> u32 {
        out32(CONFIG_ADDRESS, self.0 | offset);
        in32(CONFIG_DATA)
    }

    /// Writes the configuration register at `offset`, a multiple of 4.
    pub fn write(self, offset: u32, value: u32) {
        out32(CONFIG_ADDRESS, self.0 | offset);
        out32(CONFIG_DATA, value);
    }
}

/// The processor's time stamp counter.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Ticks of the time stamp counter per millisecond, measured over 20 ms.
pub fn ticks_per_millisecond() -> u64 {
    const MILLISECONDS: u64 = 20;
    let count = (COUNTER_HZ * MILLISECONDS / 1000) as u16;
    let [low, high] = count.to_le_bytes();
    // Gate on, speaker off; counter 2, both bytes, mode 0: its output rises at zero.
    out8(GATE, in8(GATE) & !2 | 1);
    out8(COUNTER_CONTROL, 0b1011_0000);
    out8(COUNTER_2, low);
    out8(COUNTER_2, high);
    let start = ticks();
    while in8(GATE) & 1 << 5 == 0 {}
    ((ticks() - start) / MILLISECONDS).max(1)
}

//! Attributes time: every layer of a flash stack reports when it is entered and left.
//!
//! The stack is called and returns in a single thread, so one layer works at each moment: software
//! time belongs to the innermost layer entered. The chip's time is the model's; the time that this
//! computer takes to simulate the cells belongs to nobody. Outside all layers nothing is counted.

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::rc::Rc;

use flysch_api::flash::{
    Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode, Pages, PagesMut,
};
use flysch_api::volume::{self, LebState, Volume, VolumeMut};
use flysch_models::nand::NandChip;
use serde::Serialize;

/// Whose time counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    /// Only the device's: software takes none. The figures are the same in every run.
    #[default]
    Virtual,
    /// The device's, and the processor time that the software takes here.
    Hybrid,
}

impl Time {
    /// The clock the user calls `name`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "virtual" => Some(Self::Virtual),
            "hybrid" => Some(Self::Hybrid),
            _ => None,
        }
    }

    /// What the user calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Hybrid => "hybrid",
        }
    }
}

/// A layer of the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// UBIFS, JFFS2.
    FileSystem,
    /// Logical erase blocks.
    Ubi,
    /// Pages, error correction.
    Mtd,
}

/// Nanoseconds in each layer.
///
/// In terms of the areas of a block device: the file system is area 1; UBI and MTD are area 2,
/// software between the file system and the device; the chip is area 3. Calls return where they
/// were made, so area 4 - from the end of the device's work to the file system - is part of the
/// layer in which it occurs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Split {
    /// Area 1: the file system.
    pub file_system_ns: u64,
    /// Area 2, upper part: UBI.
    pub ubi_ns: u64,
    /// Area 2, lower part: MTD with error correction in software.
    pub mtd_ns: u64,
    /// Area 3: bus and cells of the chip.
    pub device_ns: u64,
}

impl Split {
    /// The total.
    pub const fn total_ns(&self) -> u64 {
        self.software_ns() + self.device_ns
    }

    /// Everything except the chip.
    pub const fn software_ns(&self) -> u64 {
        self.file_system_ns + self.ubi_ns + self.mtd_ns
    }
}

/// The chip's operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Operations {
    /// Pages read, whole or in part.
    pub reads: u64,
    /// Programs.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
}

/// Time and operations so far; the difference of two is what happened in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Time.
    pub split: Split,
    /// Operations.
    pub operations: Operations,
}

impl Reading {
    fn combined(self, other: Self, how: fn(u64, u64) -> u64) -> Self {
        let (a, b) = (self.split, other.split);
        let (c, d) = (self.operations, other.operations);
        Self {
            split: Split {
                file_system_ns: how(a.file_system_ns, b.file_system_ns),
                ubi_ns: how(a.ubi_ns, b.ubi_ns),
                mtd_ns: how(a.mtd_ns, b.mtd_ns),
                device_ns: how(a.device_ns, b.device_ns),
            },
            operations: Operations {
                reads: how(c.reads, d.reads),
                programs: how(c.programs, d.programs),
                erases: how(c.erases, d.erases),
            },
        }
    }
}

impl Add for Reading {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combined(other, |a, b| a + b)
    }
}

impl Sub for Reading {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        self.combined(before, |a, b| a - b)
    }
}

/// Counts the time of all layers of a stack.
#[derive(Debug, Default)]
pub struct Meter {
    time: Time,
    reading: Cell<Reading>,
    layer: Cell<Option<Layer>>,
    since: Cell<u64>,
}

impl Meter {
    /// A meter, to be shared by all layers.
    pub fn new(time: Time) -> Rc<Self> {
        Rc::new(Self { time, ..Self::default() })
    }

    /// Whose time counts.
    pub fn time(&self) -> Time {
        self.time
    }

    /// Time and operations so far.
    pub fn reading(&self) -> Reading {
        self.reading.get()
    }

    /// Processor time of this thread: nothing here waits, and other programs do not count.
    fn now(&self) -> u64 {
        match self.time {
            Time::Virtual => 0,
            Time::Hybrid => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
                now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
            }
        }
    }

    /// The chip took this long for an operation.
    pub(super) fn count(&self, took: u64, operation: impl FnOnce(&mut Operations)) {
        self.change(|reading| {
            reading.split.device_ns += took;
            operation(&mut reading.operations);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Reading)) {
        let mut reading = self.reading.get();
        change(&mut reading);
        self.reading.set(reading);
    }

    /// The elapsed time belongs to the layer that is left.
    fn turn(&self, to: Option<Layer>) -> Option<Layer> {
        let now = self.now();
        let passed = now.saturating_sub(self.since.replace(now));
        let from = self.layer.replace(to);
        self.change(|reading| match from {
            Some(Layer::FileSystem) => reading.split.file_system_ns += passed,
            Some(Layer::Ubi) => reading.split.ubi_ns += passed,
            Some(Layer::Mtd) => reading.split.mtd_ns += passed,
            None => {}
        });
        from
    }

    /// From now on `layer` works, until the returned value is dropped.
    pub fn enter(&self, layer: Layer) -> Entered<'_> {
        let back_to = self.turn(Some(layer));
        Entered { meter: self, back_to }
    }

    /// Lets the chip work.
    pub(super) fn at_the_chip<T>(&self, chip: impl FnOnce() -> T) -> T {
        let caller = self.turn(None);
        let result = chip();
        self.turn(caller);
        result
    }
}

/// A layer works as long as this exists.
#[derive(Debug)]
pub struct Entered<'m> {
    meter: &'m Meter,
    back_to: Option<Layer>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.meter.turn(self.back_to);
    }
}

/// A chip whose time and operations are counted.
#[derive(Debug)]
pub struct MeteredChip {
    chip: NandChip,
    meter: Rc<Meter>,
}

impl MeteredChip {
    /// Counts what `chip` does.
    pub fn new(chip: NandChip, meter: &Rc<Meter>) -> Self {
        Self { chip, meter: Rc::clone(meter) }
    }

    /// The chip.
    pub fn chip(&self) -> &NandChip {
        &self.chip
    }

    fn count(&self, before: u64, operation: impl FnOnce(&mut Operations)) {
        self.meter.count(self.chip.busy_ns() - before, operation);
    }
}

impl Pages for MeteredChip {
    fn pages(&self) -> u64 {
        self.chip.pages()
    }

    fn read_page(&self, page: u64, column: usize, buffer: &mut [u8]) -> Result<(), FlashError> {
        let before = self.chip.busy_ns();
        let result = self.meter.at_the_chip(|| self.chip.read_page(page, column, buffer));
        self.count(before, |operations| operations.reads += 1);
        result
    }

    fn read_page_parts(&self, page: u64, parts: [(usize, &mut [u8]); 2]) -> Result<(), FlashError> {
        let before = self.chip.busy_ns();
        let result = self.meter.at_the_chip(|| self.chip.read_page_parts(page, parts));
        self.count(before, |operations| operations.reads += 1);
        result
    }
}

impl PagesMut for MeteredChip {
    fn program_page(&mut self, page: u64, column: usize, bytes: &[u8]) -> Result<(), FlashError> {
        let before = self.chip.busy_ns();
        let Self { chip, meter } = self;
        let result = meter.at_the_chip(|| chip.program_page(page, column, bytes));
        self.count(before, |operations| operations.programs += 1);
        result
    }

    fn erase_pages(&mut self, block: u32) -> Result<(), FlashError> {
        let before = self.chip.busy_ns();
        let Self { chip, meter } = self;
        let result = meter.at_the_chip(|| chip.erase_pages(block));
        self.count(before, |operations| operations.erases += 1);
        result
    }
}

/// A flash or a volume whose calls form a separate layer.
#[derive(Debug)]
pub struct Metered<T> {
    inner: T,
    layer: Layer,
    meter: Rc<Meter>,
}

impl<T> Metered<T> {
    /// Counts the time in `inner` as that of `layer`.
    pub fn new(inner: T, layer: Layer, meter: &Rc<Meter>) -> Self {
        Self { inner, layer, meter: Rc::clone(meter) }
    }

    /// The metered object.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// The metered object.
    pub fn into_inner(self) -> T {
        self.inner
    }
}

impl<F: Flash> Flash for Metered<F> {
    fn geometry(&self) -> &FlashGeometry {
        self.inner.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.read(offset, buffer)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.read_oob(offset, mode, buffer)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.is_bad(block)
    }
}

impl<F: FlashMut> FlashMut for Metered<F> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.program(offset, data)
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.program_oob(offset, mode, data)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.erase(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.mark_bad(block)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.sync()
    }
}

impl<V: Volume> Volume for Metered<V> {
    fn geometry(&self) -> volume::VolumeGeometry {
        self.inner.geometry()
    }

    fn state(&self, lnum: u32) -> LebState {
        self.inner.state(lnum)
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.read(lnum, offset, buffer)
    }
}

impl<V: VolumeMut> VolumeMut for Metered<V> {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.write(lnum, offset, data)
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.change(lnum, data)
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.unmap(lnum)
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.map(lnum)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        let _entered = self.meter.enter(self.layer);
        self.inner.sync()
    }
}

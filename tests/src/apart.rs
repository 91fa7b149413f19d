//! A machine without coherent memory: its device has its own copy and sees only what was
//! synchronised for it, and the host sees only what was synchronised back. Anything that a driver
//! forgets to synchronise is garbage on the other side.

use flysch_api::machine::{
    Clock, DmaRegion, DmaSlice, Identity, Instant, Machine, Registers, Wake,
};
use flysch_models::machine::{Inline, Model};

/// The contents of memory that was never synchronised.
const GARBAGE: u8 = 0xA5;

/// A machine around `inner`, whose memory is the device's copy.
#[derive(Clone, Debug)]
pub struct Apart<M> {
    inner: M,
    host: DmaRegion,
    /// Unit of synchronisation, bytes: a cache line.
    line: u64,
}

impl<M: Machine> Apart<M> {
    /// Memory is synchronised in lines of `line` bytes, a power of two.
    pub fn new(inner: M, line: u32) -> Self {
        let device = inner.memory();
        device.fill(0, device.len(), GARBAGE);
        let host = DmaRegion::zeroed(device.len(), device.address());
        host.fill(0, host.len(), GARBAGE);
        Self { inner, host, line: line.into() }
    }

    fn copy(&self, range: DmaSlice, from: &DmaRegion, to: &DmaRegion) {
        let first = (range.address - self.host.address()) / self.line * self.line;
        let end = range.address - self.host.address() + u64::from(range.len);
        let mut bytes = vec![0; self.line as usize];
        for at in (first..end).step_by(bytes.len()) {
            from.read(at as usize, &mut bytes);
            to.write(at as usize, &bytes);
        }
    }
}

impl<M: Machine> Apart<M> {
    /// The device's copy of the memory.
    pub fn device_memory(&self) -> &DmaRegion {
        self.inner.memory()
    }
}

impl<M: Model> Apart<Inline<M>> {
    /// As [`Inline::with_model`].
    pub fn with_model<R>(&self, look: impl FnOnce(&mut M) -> R) -> R {
        self.inner.with_model(look)
    }
}

impl<M: Machine> Registers for Apart<M> {
    const COHERENT: bool = false;

    fn read32(&self, offset: u32) -> u32 {
        self.inner.read32(offset)
    }

    fn write32(&self, offset: u32, value: u32) {
        self.inner.write32(offset, value);
    }

    fn sync_for_device(&self, range: DmaSlice) {
        self.copy(range, &self.host, self.inner.memory());
    }

    fn sync_for_cpu(&self, range: DmaSlice) {
        self.copy(range, self.inner.memory(), &self.host);
    }

    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        self.inner.device_done(queue, slot)
    }
}

impl<M: Machine> Clock for Apart<M> {
    fn now(&self) -> Instant {
        self.inner.now()
    }

    fn wait(&self, until: Option<Instant>) -> Wake {
        self.inner.wait(until)
    }
}

impl<M: Machine> Machine for Apart<M> {
    fn memory(&self) -> &DmaRegion {
        &self.host
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
        Self { inner: self.inner.on_vector(vector), ..self.clone() }
    }
}

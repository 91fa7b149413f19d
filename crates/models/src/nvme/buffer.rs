//! The controller memory buffer (8.5): memory of the controller that the host accesses behind the
//! registers, and that the controller finds at addresses chosen by the host.

use flysch_api::machine::{DmaRegion, GuestMemory};
use flysch_wire::nvme::registers::{CMB_ADDRESS_INVALID, CmbControl, CmbLoc, CmbSize};

/// Its offset in the register window.
pub const CMB_OFFSET: u32 = 1 << 20;
/// Maximum size, bytes.
pub const CMB_MAX: u32 = 16 << 20;
/// The unit of sizes and offsets (SZU 0), bytes.
const UNIT: u32 = 4096;

/// The buffer; it does not exist if its size is 0.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: u32,
    /// Its contents, wherever it is addressed.
    region: Option<DmaRegion>,
    control: CmbControl,
    status: u32,
}

impl Buffer {
    pub(super) fn new(bytes: u32) -> Self {
        let region = (bytes > 0).then(|| DmaRegion::zeroed(bytes as usize, 0));
        Self { bytes, region, control: CmbControl::new(), status: 0 }
    }

    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// CMBLOC, once the host has enabled it.
    pub(super) fn location(&self) -> u32 {
        match self.control.cre() {
            true => CmbLoc::new().with_ofst(CMB_OFFSET / UNIT).into_bits(),
            false => 0,
        }
    }

    /// CMBSZ, once the host has enabled it.
    pub(super) fn size(&self) -> u32 {
        if !self.control.cre() {
            return 0;
        }
        CmbSize::new()
            .with_sqs(true)
            .with_cqs(true)
            .with_lists(true)
            .with_rds(true)
            .with_wds(true)
            .with_sz(self.bytes / UNIT)
            .into_bits()
    }

    /// CMBMSC.
    pub(super) fn control(&self) -> u64 {
        self.control.into_bits()
    }

    /// CMBSTS.
    pub(super) fn status(&self) -> u32 {
        self.status
    }

    /// The upper half of CMBMSC is written: takes effect with the lower one.
    pub(super) fn set_high(&mut self, value: u32) {
        if self.region.is_none() {
            return;
        }
        let low = self.control.into_bits() & 0xFFFF_FFFF;
        self.control = CmbControl::from_bits(low | u64::from(value) << 32);
    }

    /// The lower half is written: maps the buffer into `memory`, or unmaps it.
    pub(super) fn set_low(&mut self, value: u32, memory: &mut GuestMemory) {
        let Some(held) = &self.region else { return };
        if self.control.cmse() && self.status == 0 {
            memory.unmap(held.address(), held.len() as u64);
        }
        let high = self.control.into_bits() & !0xFFFF_FFFF;
        (self.control, self.status) = (CmbControl::from_bits(high | u64::from(value)), 0);
        if !self.control.cmse() {
            return;
        }
        let address = self.control.cba() * u64::from(UNIT);
        let placed = DmaRegion::zeroed(held.len(), address);
        let mut bytes = [0; UNIT as usize];
        for at in (0..held.len()).step_by(bytes.len()) {
            held.read(at, &mut bytes);
            placed.write(at, &bytes);
        }
        match memory.map(placed.clone(), true) {
            Ok(()) => self.region = Some(placed),
            Err(_) => self.status = CMB_ADDRESS_INVALID,
        }
    }

    /// As after power-on: empty, and not enabled by the host.
    pub(super) fn power_on(&mut self, memory: &mut GuestMemory) {
        self.set_low(0, memory);
        self.set_high(0);
        if let Some(held) = &self.region {
            held.fill(0, held.len(), 0);
        }
    }

    /// Reads the word at `offset` in the buffer.
    pub(super) fn read(&self, offset: u32) -> u32 {
        self.word(offset).map_or(u32::MAX, |(held, at)| u32::from_le(held.load32(at)))
    }

    pub(super) fn write(&self, offset: u32, value: u32) {
        if let Some((held, at)) = self.word(offset) {
            held.store32(at, value.to_le());
        }
    }

    fn word(&self, offset: u32) -> Option<(&DmaRegion, usize)> {
        let held = self.region.as_ref()?;
        let fits = offset.is_multiple_of(4) && offset < self.bytes;
        fits.then_some((held, offset as usize))
    }
}

//! The supported controllers: their class, the location of their registers, the addresses that they
//! can use, and how they are stopped.

use std::time::{Duration, Instant};

use crate::device::Device;

/// A kind of controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// UFSHCI.
    Ufs,
    /// NVMe.
    Nvme,
    /// AHCI.
    Ahci,
    /// SDHCI, for eMMC devices and SD cards; its first slot.
    Sdhci,
}

/// How long a controller may take to stop (AHCI 10.4.3 allows a second).
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// AHCI 3.1.2: GHC, with its bits HR and AE.
const GHC: u32 = 0x04;
const GHC_HR: u32 = 1;
const GHC_AE: u32 = 1 << 31;

/// SD Host Controller 2.2.1: the register of clock and resets, with "software reset for all".
const SD_CLOCK: u32 = 0x2C;
const SD_RESET_ALL: u32 = 1 << 24;

/// How a controller is stopped: this is written to that register, and then those bits of another
/// register become zero.
#[derive(Clone, Copy, Debug)]
struct Stop {
    /// It runs as long as this is not zero: the register and its bits. `None`: unknown.
    runs: Option<(u32, u32)>,
    register: u32,
    /// Bits cleared in the register, and bits set.
    clear: u32,
    set: u32,
    /// Where completion is visible.
    done: (u32, u32),
}

impl Controller {
    /// Whether a function of that class (PCI Code and ID Assignment 1.2, 24 bits) is one. SDHCI's
    /// interface is 0 without DMA and 1 with it; 2 is vendor specific.
    pub(crate) fn is(self, class: u32) -> bool {
        match self {
            Self::Ufs => class == 0x01_0901,
            Self::Nvme => class == 0x01_0802,
            Self::Ahci => class == 0x01_0601,
            Self::Sdhci => matches!(class, 0x08_0500 | 0x08_0501),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ufs => "UFS host controller",
            Self::Nvme => "NVMe controller",
            Self::Ahci => "AHCI controller",
            Self::Sdhci => "SD host controller",
        }
    }

    /// The BAR of its registers. For an SD host controller it is given by the byte at 40h of its
    /// configuration space (SD Host Controller, appendix C.3: slot information).
    pub(crate) fn bar(self, slot_information: u8) -> u32 {
        match self {
            Self::Ufs | Self::Nvme => 0,
            Self::Ahci => 5,
            Self::Sdhci => (slot_information & 7).into(),
        }
    }

    /// The highest address that it can use: 32 bits for a UFS controller without CAP.64AS (bit 24),
    /// an AHCI controller without CAP.S64A (bit 31), and SDHCI, because not all have wide
    /// descriptors.
    pub(crate) fn highest(self, device: &Device) -> u64 {
        let wide = match self {
            Self::Ufs => 1 << 24,
            Self::Ahci => 1 << 31,
            Self::Nvme => return u64::MAX,
            Self::Sdhci => return u32::MAX.into(),
        };
        if device.read32(0) & wide == 0 { u32::MAX.into() } else { u64::MAX }
    }

    /// UFSHCI's HCE, NVMe's CC.EN and CSTS.RDY; the resets of AHCI and SDHCI, which end all
    /// their transfers.
    fn stop_by(self) -> Stop {
        match self {
            Self::Ufs => Stop::switch(0x34, 0x34),
            Self::Nvme => Stop::switch(0x14, 0x1C),
            Self::Ahci => {
                let set = GHC_AE | GHC_HR;
                Stop { runs: None, register: GHC, clear: 0, set, done: (GHC, GHC_HR) }
            }
            Self::Sdhci => {
                let done = (SD_CLOCK, SD_RESET_ALL);
                Stop { runs: None, register: SD_CLOCK, clear: !0, set: SD_RESET_ALL, done }
            }
        }
    }

    /// Disables the controller and waits until it has stopped; one that does not stop is reset, if
    /// possible.
    pub(crate) fn stop(self, device: &Device) {
        let stop = self.stop_by();
        let value = device.read32(stop.register);
        let is_off = stop.runs.is_some_and(|(register, bits)| device.read32(register) & bits == 0);
        // All ones: nothing answers.
        if is_off || value == u32::MAX {
            return;
        }
        device.write32(stop.register, value & !stop.clear | stop.set);
        let started = Instant::now();
        while device.read32(stop.done.0) & stop.done.1 != 0 {
            if started.elapsed() >= STOP_LIMIT {
                device.reset();
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Stop {
    /// A switch in bit 0 of a register, whose state is bit 0 of another.
    fn switch(register: u32, state: u32) -> Self {
        Self { runs: Some((register, 1)), register, clear: 1, set: 0, done: (state, 1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_told_by_their_class() {
        use Controller::{Ahci, Nvme, Sdhci, Ufs};
        for (class, wanted) in [
            (0x01_0901, Some(Ufs)),
            (0x01_0802, Some(Nvme)),
            (0x01_0601, Some(Ahci)),
            (0x08_0500, Some(Sdhci)),
            (0x08_0501, Some(Sdhci)),
            // A vendor's own interface; RAID; a controller without an interface of its own.
            (0x08_0502, None),
            (0x01_0400, None),
            (0x01_0600, None),
        ] {
            let found: Vec<_> =
                [Ufs, Nvme, Ahci, Sdhci].into_iter().filter(|one| one.is(class)).collect();
            assert_eq!(found, Vec::from_iter(wanted), "{class:06x}");
        }
    }

    #[test]
    fn registers_are_where_the_specification_has_them() {
        assert_eq!((Controller::Nvme.bar(3), Controller::Ahci.bar(0)), (0, 5));
        // Two slots, the first at BAR 2.
        assert_eq!(Controller::Sdhci.bar(0x12), 2);
    }
}

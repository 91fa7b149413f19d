//! What is known of controller and device, and how the queues are divided among the lanes.

use crate::device_quirks::DeviceQuirks;
use crate::error::UfsError;
use crate::options::{QueueMode, UfsOptions};
use crate::quirks::Quirks;
use flysch_api::machine::Machine;
use flysch_wire::ufs::descriptor::{
    DeviceDescriptor, ExtendedFeatures, GeometryDescriptor, UfsFeatures, UnitDescriptor,
};
use flysch_wire::ufs::registers::{CAP, Cap, MCQCAP, McqCap, VER, Ver};

/// What bring-up learnt about the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UfsFacts {
    /// Its device descriptor.
    pub descriptor: DeviceDescriptor,
    /// Its geometry descriptor.
    pub geometry: GeometryDescriptor,
    /// The unit descriptors of the enabled logical units, by number.
    pub units: [Option<UnitDescriptor>; 32],
    /// Its known deviations.
    pub quirks: DeviceQuirks,
    /// Exception events seen and not yet fetched, bits of wExceptionEventStatus.
    pub events: u16,
    /// Case temperature when the device last reported that it is too high or too low, °C.
    pub temperature: Option<i16>,
    /// Whether the driver has allowed background operations because the device needed them.
    pub background_operations: bool,
}

impl UfsFacts {
    /// bUFSFeaturesSupport.
    pub(crate) fn features(&self) -> UfsFeatures {
        UfsFeatures::from_bits(self.descriptor.b_ufs_features_support)
    }

    /// dExtendedUFSFeaturesSupport.
    pub(crate) fn extended_features(&self) -> ExtendedFeatures {
        ExtendedFeatures::from_bits(self.descriptor.d_extended_ufs_features_support)
    }

    /// The logical unit that takes commands for the device.
    pub(crate) fn first_unit(&self) -> u8 {
        self.units.iter().position(Option::is_some).unwrap_or(0) as u8
    }
}

/// How wide the queues are, determined when the registers were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) mcq: bool,
    /// Lanes, the host's own included.
    pub(crate) lanes: u16,
    /// Slots of each lane except the host's own.
    pub(crate) depth: u16,
    /// Lane 0 is the host's own and has one slot.
    pub(crate) apart: bool,
}

impl Shape {
    /// Slots of a lane.
    pub(crate) fn depth_of(&self, lane: usize) -> usize {
        if self.apart && lane == 0 { 1 } else { self.depth.into() }
    }

    /// Task tag of a lane's first slot; in SDQ also its index in the list.
    pub(crate) fn first_tag(&self, lane: usize) -> usize {
        match (self.apart, lane) {
            (false, _) => lane * usize::from(self.depth),
            (true, 0) => 0,
            (true, _) => 1 + (lane - 1) * usize::from(self.depth),
        }
    }
}

/// What is known before anything was written.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) options: UfsOptions,
    pub(crate) version: Ver,
    pub(crate) cap: Cap,
    pub(crate) mcq_cap: McqCap,
    pub(crate) quirks: Quirks,
    pub(crate) shape: Shape,
}

/// Reads what the controller is and determines how its queues will be used.
pub(crate) fn read_facts<M: Machine>(machine: &M, options: UfsOptions) -> Result<Facts, UfsError> {
    if options.lanes == 0 || options.depth == 0 || options.depth > 255 {
        return Err(UfsError::Options("lanes must be at least 1 and depth 1 to 255"));
    }
    if options.transfer_max == 0 || options.transfer_max > UfsOptions::TRANSFER_MAX {
        return Err(UfsError::Options("transfer_max must be 1 byte to 2 MiB"));
    }
    if options.aggregation.is_some_and(|aggregation| !aggregation.is_valid()) {
        return Err(UfsError::Options("aggregation is of 1 to 31 completions in 40 to 10200 us"));
    }
    let cap = machine.read32(CAP);
    if cap == u32::MAX {
        return Err(UfsError::NoController);
    }
    let cap = Cap::from_bits(cap);
    let version = Ver::from_bits(machine.read32(VER));
    let mcq_cap = McqCap::from_bits(if cap.mcqs() { machine.read32(MCQCAP) } else { 0 });
    let shape = settle_shape(cap, mcq_cap, &options)?;
    let quirks = Quirks::find(machine.identity(), version).corrected(options.quirks);
    Ok(Facts { options, version, cap, mcq_cap, quirks, shape })
}

pub(crate) fn settle_shape(
    cap: Cap,
    mcq_cap: McqCap,
    options: &UfsOptions,
) -> Result<Shape, UfsError> {
    let own = u32::from(options.apart);
    let lanes = u32::from(options.lanes) + own;
    let queues = if cap.mcqs() { mcq_cap.queues() } else { 0 };
    // LSDBS alone is not trusted: controllers without MCQ have been seen to set it.
    let no_doorbell = cap.lsdbs() && cap.mcqs();
    let mcq = match options.queue {
        QueueMode::Mcq => true,
        QueueMode::Sdq if no_doorbell => {
            return Err(UfsError::Unsupported("the single doorbell"));
        }
        QueueMode::Sdq => false,
        QueueMode::Auto => queues >= lanes || no_doorbell,
    };
    if mcq && queues == 0 {
        return Err(UfsError::Unsupported("MCQ"));
    }
    if options.aggregation.is_some() && !mcq && options.lanes > 1 {
        return Err(UfsError::Options(
            "the single doorbell aggregates interrupts for one lane only",
        ));
    }
    let present = if mcq { queues } else { cap.transfer_slots() };
    if lanes > present {
        return Err(UfsError::Queues { wanted: lanes, present });
    }
    let ports = u32::from(options.lanes);
    // In MCQ the tags of all lanes share one byte, and what exceeds the maximum of active commands
    // would only wait in the ring.
    let slots = match mcq {
        true => ((256 - own) / ports).min(cap.active_commands_max()),
        false => (cap.transfer_slots() - own) / ports,
    };
    let depth = u32::from(options.depth).min(slots) as u16;
    Ok(Shape { mcq, lanes: lanes as u16, depth, apart: options.apart })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What exceeds the maximum of active commands (MAC) would only wait in the ring.
    #[test]
    fn no_lane_is_deeper_than_the_active_commands_of_the_controller() {
        let depth = |active: u8, lanes, wanted| {
            let cap = Cap::new().with_mcqs(true).into_bits() | u32::from(active - 1);
            let options =
                UfsOptions { queue: QueueMode::Mcq, lanes, depth: wanted, ..UfsOptions::default() };
            let queues = McqCap::new().with_maxq(7);
            settle_shape(Cap::from_bits(cap), queues, &options).expect("a shape").depth
        };
        assert_eq!([1, 8, 64].map(|active| depth(active, 1, 32)), [1, 8, 32]);
        assert_eq!(depth(8, 4, 32), 8, "each lane by itself");
        assert_eq!(depth(255, 4, 255), 64, "the tags of all lanes share a byte");
    }
}

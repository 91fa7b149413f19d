//! Job files on stacks.

use flysch_api::block::BlockDevice;
use flysch_api::machine::Clock;
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{self, Demand, PlayError, PlayOptions, Played};

use crate::open::{Needs, Visitor};
use crate::stack::Stack;
use crate::target::Target;

impl Needs {
    /// Lanes, slots and buffers for `demand` on `target`. Only controllers with several queues have
    /// more than one lane.
    pub fn of(target: &Target, demand: &Demand) -> Self {
        Self { zones: demand.zones, ..Self::with_queues(queues(target), demand) }
    }

    /// The same for something with this many queues.
    pub fn with_queues(queues: u8, demand: &Demand) -> Self {
        let lanes = u32::from(queues).min(demand.workers).max(1);
        // Workers are dealt out in turn, so the fullest lane has at most this share, rounded up to
        // whole workers.
        let share = u64::from(demand.workers.div_ceil(lanes));
        let memory = demand.memory.saturating_mul(share).div_ceil(u64::from(demand.workers.max(1)));
        Self {
            lanes: lanes as u16,
            queue_depth: demand.depth.max(1),
            memory: usize::try_from(memory).unwrap_or(usize::MAX).max(4096),
            writes: Some(demand.writes),
            zones: false,
        }
    }
}

/// Queues of a target, each a lane.
fn queues(target: &Target) -> u8 {
    match target {
        Target::Ufs(ufs) => ufs.mcq.unwrap_or(1),
        Target::UfsQemu(qemu) => qemu.mcq.unwrap_or(1),
        Target::Nvme(nvme) => nvme.queues,
        Target::NvmeQemu(qemu) => qemu.queues,
        Target::UfsPci(pci) => pci.mcq.unwrap_or(1),
        Target::NvmePci(pci) => pci.queues,
        Target::Emmc(emmc) => emmc.lanes,
        Target::Linux(linux) => linux.lanes,
        _ => 1,
    }
}

/// A job file on its way into a stack.
struct Play<'a> {
    file: &'a JobFile,
    options: PlayOptions<'a>,
}

impl Visitor for Play<'_> {
    type Output = Result<Played, PlayError>;

    fn visit<D: BlockDevice, C: Clock>(self, lanes: &mut [D], clock: &C) -> Self::Output {
        play::play(lanes, clock, self.file, self.options)
    }
}

impl Stack {
    /// Plays the jobs of `file` on a stack that was opened with what they need ([`Needs::of`]).
    ///
    /// # Errors
    /// Like [`play::play`].
    pub fn play<'a>(
        &mut self,
        file: &'a JobFile,
        options: PlayOptions<'a>,
    ) -> Result<Played, PlayError> {
        self.visit(Play { file, options })
    }
}

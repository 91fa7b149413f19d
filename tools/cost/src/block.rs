//! The cost that the block layer adds to a request: a way over disks that have completed everything
//! when their doorbell rings.

use flysch_api::block::{
    BlockDevice, BlockError, BlockGeometry, Completion, Operation, Refused, Request,
};
use flysch_api::data::{Data, SegmentLimits};
use flysch_api::machine::{DmaRegion, DmaSlice, Instant};
use flysch_api::trace::Passage;
use flysch_geom::class::disk::{MD, Memory};
use flysch_geom::class::{label, mirror, part, stripe};
use flysch_geom::{Access, Graph, Plan, ProviderId, Way, all};

const BLOCK: u32 = 4096;
/// Size of a disk, bytes.
const SIZE: usize = 4 << 20;

/// What is on top of the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Top {
    /// Nothing: a way to the disk itself.
    Disk,
    /// A partition.
    Part,
    /// This many labels on top of one another.
    Labels(u32),
    /// A stripe of two, each stripe longer than a request.
    Stripe,
    /// A mirror of two, read.
    MirrorRead,
    /// A mirror of two, written.
    MirrorWrite,
    /// A stripe over two mirrors of two, read: a way that splits twice.
    StripeOfMirrorsRead,
    /// The same, written.
    StripeOfMirrorsWrite,
}

impl Top {
    /// Number of disks below it.
    const fn disks(self) -> usize {
        match self {
            Self::Disk | Self::Part | Self::Labels(_) => 1,
            Self::Stripe | Self::MirrorRead | Self::MirrorWrite => 2,
            Self::StripeOfMirrorsRead | Self::StripeOfMirrorsWrite => 4,
        }
    }

    /// The operation that is measured.
    const fn operation(self) -> Operation {
        match self {
            Self::MirrorWrite | Self::StripeOfMirrorsWrite => Operation::Write,
            _ => Operation::Read,
        }
    }
}

/// A disk that has completed everything when its doorbell rings. It is inlined into a way just as
/// it is when measured alone, so that the difference is the cost of the way.
///
/// Its limits are computed once, like those of the command layer's disk. If a size were multiplied
/// for each request, the compiler would hoist that out of the loop for the disk alone but not under
/// a way, which would then seem to cost it.
#[derive(Debug)]
pub struct NullDisk {
    geometry: BlockGeometry,
    /// Its bytes, and the bits that must be clear in offset and length.
    size: u64,
    mask: u64,
    memory: DmaRegion,
    tokens: Vec<u64>,
    is_rung: bool,
}

impl NullDisk {
    /// A disk that takes its data from `memory`.
    #[must_use]
    pub fn new(memory: &DmaRegion) -> Self {
        let geometry = BlockGeometry {
            block_size: 512,
            blocks: (SIZE / 512) as u64,
            transfer_max: 1 << 20,
            segments: SegmentLimits::NONE,
            queue_depth: 64,
            can_delete: false,
            read_only: false,
            crypto: false,
        };
        let tokens = Vec::with_capacity(64);
        let (size, mask) = (geometry.bytes(), u64::from(geometry.block_size) - 1);
        Self { geometry, size, mask, memory: memory.clone(), tokens, is_rung: false }
    }
}

impl BlockDevice for NullDisk {
    fn geometry(&self) -> &BlockGeometry {
        &self.geometry
    }

    fn memory(&self) -> &DmaRegion {
        &self.memory
    }

    #[inline(always)]
    fn submit(&mut self, request: &Request, _: Instant) -> Result<(), Refused> {
        let Request { operation, offset, length, .. } = *request;
        // Only plain reads and writes are measured.
        let is_plain = matches!(operation, Operation::Read | Operation::Write)
            && request.crypto.is_none()
            && u64::from(request.data.len()) == length
            && length.wrapping_sub(1) < self.size
            && (offset | length) & self.mask == 0
            && offset <= self.size - length;
        if !is_plain {
            return Err(Refused::Invalid(BlockError::OutOfRange));
        }
        if self.tokens.len() == 64 {
            return Err(Refused::Full);
        }
        self.is_rung = false;
        self.tokens.push(request.token);
        Ok(())
    }

    #[inline(always)]
    fn ring(&mut self, _: Instant) {
        self.is_rung = true;
    }

    #[inline(always)]
    fn poll(&mut self, now: Instant) -> Option<Completion> {
        if !self.is_rung {
            return None;
        }
        let token = self.tokens.pop()?;
        let passage = Passage { accepted: now, issued: now, device_done: None, seen: now };
        Some(Completion { token, result: Ok(()), passage })
    }

    fn poll_at(&self) -> Option<Instant> {
        None
    }
}

fn disks(graph: &mut Graph, count: usize) -> Vec<ProviderId> {
    let insert = |number| {
        let memory = Box::new(Memory::new(SIZE));
        MD.insert(graph, &format!("md{number}"), memory).expect("a disk")
    };
    (0..count).map(insert).collect()
}

/// Builds the graph; returns the name of the provider on top.
fn build(graph: &mut Graph, top: Top) -> String {
    let under = disks(graph, top.disks());
    graph.settle();
    match top {
        Top::Disk => "md0".into(),
        Top::Part => {
            let flags = part::Flags::default();
            let table = part::create(graph, under[0], (part::Scheme::Gpt, None), flags);
            let (start, size, alignment, index, label) = (None, None, None, None, None);
            let data =
                part::Add { kind: "linux-data".into(), start, size, alignment, index, label };
            part::add(graph, table.expect("a table"), &data, flags).expect("a partition");
            "md0p1".into()
        }
        Top::Labels(count) => {
            let mut on = under[0];
            for number in 0..count {
                let name = format!("l{number}");
                label::create(graph, &name, on).expect("a label");
                on = graph.provider(&format!("label/{name}")).expect("it is there");
            }
            format!("label/l{}", count - 1)
        }
        Top::Stripe => {
            stripe::label(graph, "st", &under, &stripe::StripeOptions::default())
                .expect("a stripe");
            "stripe/st".into()
        }
        Top::MirrorRead | Top::MirrorWrite => {
            mirror::label(graph, "gm", &under, &mirror::MirrorOptions::default())
                .expect("a mirror");
            "mirror/gm".into()
        }
        Top::StripeOfMirrorsRead | Top::StripeOfMirrorsWrite => {
            let halves = |graph: &mut Graph, (name, under): (&str, &[ProviderId])| {
                mirror::label(graph, name, under, &mirror::MirrorOptions::default())
                    .expect("a mirror");
                graph.provider(&format!("mirror/{name}")).expect("it is there")
            };
            let mirrors = [("m0", &under[..2]), ("m1", &under[2..])].map(|it| halves(graph, it));
            stripe::label(graph, "st", &mirrors, &stripe::StripeOptions::default())
                .expect("a stripe");
            "stripe/st".into()
        }
    }
}

/// Issues `count` requests of 4 KiB, `depth` at a time.
///
/// # Panics
/// If one fails: nothing should go wrong on these disks.
pub fn run(top: Top, depth: u32, count: u32) {
    let memory = DmaRegion::zeroed(1 << 20, 0x1000_0000);
    let mut graph = Graph::new(&all(), 1);
    let name = build(&mut graph, top);
    let provider = graph.provider(&name).expect("it is there");
    let open = graph.open(provider, Access::ALONE).expect("nobody has it");
    let plan = Plan::new(&mut graph, open).expect("all classes say where requests go");
    let mut way = Way::new(plan, |_| Some(NullDisk::new(&memory))).expect("lanes");
    let address = memory.slice(0, BLOCK).address;
    measured_device(&mut way, top.operation(), address, (depth, count));
}

/// The same on the disk alone.
///
/// # Panics
/// As [`run`].
pub fn run_alone(depth: u32, count: u32) {
    let memory = DmaRegion::zeroed(1 << 20, 0x1000_0000);
    let address = memory.slice(0, BLOCK).address;
    let mut disk = NullDisk::new(&memory);
    measured_device(&mut disk, Operation::Read, address, (depth, count));
}

// Operation and address are separate arguments: in a tuple with the rest they would be in memory,
// and the compiler would not always see that a loop has one operation and one length.
#[inline(never)]
fn measured_device<D: BlockDevice>(
    device: &mut D,
    operation: Operation,
    address: u64,
    (depth, count): (u32, u32),
) {
    let now = Instant::START;
    let data = Data::One(DmaSlice { address, len: BLOCK });
    let mut ended = 0;
    while ended < count {
        for token in 0..depth {
            let request = Request {
                operation,
                force_unit_access: false,
                offset: u64::from(ended + token) % 512 * u64::from(BLOCK),
                length: BLOCK.into(),
                data,
                crypto: None,
                token: token.into(),
                accepted: now,
            };
            assert!(device.submit(&request, now).is_ok(), "there is room");
        }
        device.ring(now);
        while let Some(completion) = device.poll(now) {
            assert!(completion.result.is_ok(), "nothing can go wrong");
            ended += 1;
        }
    }
}

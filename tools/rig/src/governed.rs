//! Lanes that report their load to a policy, so that link and device rest in the pauses of a
//! workload, which then pays for waking them.
//!
//! All of this wraps the lanes, and only if a target asks for a policy: other targets use the lanes
//! directly.

use core::cell::Cell;

use flysch_api::block::{self, BlockGeometry, Completion, Refused, Request};
use flysch_api::machine::{DmaRegion, Instant, Machine};
use flysch_ufs::Port;
use flysch_ufs::policy::Policy;

use crate::lane::Lane;

/// A lane under a policy. The first lane of a stack, which has the host, drives the policy for all.
#[derive(Debug)]
pub(crate) struct Governed<'a, M: Machine> {
    lane: &'a mut Lane<Port<M>>,
    /// Requests of all lanes, in flight or refused for lack of room: the latter wait for the host
    /// to wake.
    load: &'a Cell<u32>,
    waits: bool,
    policy: Option<&'a mut Policy>,
}

impl<'a, M: Machine> Governed<'a, M> {
    /// All lanes of a stack, whose load is counted in `load`, from 0.
    pub(crate) fn all(
        lanes: &'a mut [Lane<Port<M>>],
        policy: &'a mut Policy,
        load: &'a Cell<u32>,
    ) -> Vec<Self> {
        let mut policy = Some(policy);
        let govern = |lane| Self { lane, load, waits: false, policy: policy.take() };
        lanes.iter_mut().map(govern).collect()
    }

    fn count(&self, more: u32, fewer: u32) {
        self.load.set(self.load.get() + more - fewer);
    }
}

impl<M: Machine> block::BlockDevice for Governed<'_, M> {
    fn geometry(&self) -> &BlockGeometry {
        self.lane.geometry()
    }

    fn memory(&self) -> &DmaRegion {
        self.lane.memory()
    }

    fn submit(&mut self, request: &Request, now: Instant) -> Result<(), Refused> {
        let answer = self.lane.submit(request, now);
        let waits = matches!(answer, Err(Refused::Full));
        self.count(u32::from(answer.is_ok()) + u32::from(waits), u32::from(self.waits));
        self.waits = waits;
        answer
    }

    fn ring(&mut self, now: Instant) {
        self.lane.ring(now);
    }

    fn poll(&mut self, now: Instant) -> Option<Completion> {
        if let Some(policy) = &mut self.policy {
            policy.load(self.load.get(), now);
            if let Some(host) = self.lane.disk.port_mut().host_mut() {
                policy.poll(host, now);
            }
        }
        let completion = self.lane.poll(now)?;
        self.count(0, 1);
        Some(completion)
    }

    fn poll_at(&self) -> Option<Instant> {
        let policy = self.policy.as_ref().and_then(|policy| policy.poll_at());
        [self.lane.poll_at(), policy].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use crate::open::{Needs, Visitor};
    use crate::stack::Stack;
    use flysch_api::block::{BlockDevice, Operation, Refused, Request};
    use flysch_api::machine::Clock;

    const MS: u64 = 1_000_000;

    /// One read after each pause of 10 ms, on each lane in turn; returns how long each took,
    /// nanoseconds.
    struct Pauses;

    impl Visitor for Pauses {
        type Output = Vec<u64>;

        fn visit<D: BlockDevice, C: Clock>(self, lanes: &mut [D], clock: &C) -> Vec<u64> {
            let one = |n: usize| {
                let pause = clock.now().after_nanos(10 * MS);
                while clock.now() < pause {
                    assert!(lanes.iter_mut().all(|lane| lane.poll(clock.now()).is_none()));
                    let at = lanes.iter().filter_map(BlockDevice::poll_at).min();
                    clock.wait(Some(at.map_or(pause, |at| at.min(pause))));
                }
                let (start, lane) = (clock.now(), n % lanes.len());
                let mut is_taken = false;
                loop {
                    if !is_taken {
                        let data = lanes[lane].memory().slice(0, 4096).into();
                        let request = Request {
                            operation: Operation::Read,
                            force_unit_access: false,
                            offset: 0,
                            length: 4096,
                            data,
                            crypto: None,
                            token: 0,
                            accepted: clock.now(),
                        };
                        match lanes[lane].submit(&request, clock.now()) {
                            Ok(()) => is_taken = true,
                            Err(Refused::Full) => {}
                            Err(refused) => panic!("{refused:?}"),
                        }
                        lanes[lane].ring(clock.now());
                    }
                    let ended = lanes.iter_mut().filter_map(|lane| lane.poll(clock.now())).next();
                    if let Some(completion) = ended {
                        assert_eq!(completion.result, Ok(()));
                        return clock.now().nanos_since(start);
                    }
                    clock.wait(lanes.iter().filter_map(BlockDevice::poll_at).min());
                }
            };
            (0..6).map(one).collect()
        }
    }

    /// The slowest and the fastest of the reads after pauses, except for the first, for which the
    /// stack has just been opened.
    fn latencies(keys: &str) -> (u64, u64) {
        let target = format!("ufs,clock=virtual{keys}").parse().expect("a target");
        let mut stack = Stack::open(&target, &Needs { lanes: 2, ..Needs::default() });
        let stack = stack.as_mut().expect("a stack");
        let took = stack.visit(Pauses);
        let took = || took[1..].iter().copied();
        (took().min().expect("reads"), took().max().expect("reads"))
    }

    #[test]
    fn a_workload_with_pauses_pays_for_waking() {
        for lanes in ["", ",mcq=2"] {
            let of = |keys: &str| latencies(&format!("{lanes}{keys}"));
            let awake = of("");
            assert_eq!(of(",suspend=20000"), awake, "no pause is that long");
            let hibernated = of(",suspend=1000");
            assert!(hibernated.0 > awake.1 + MS / 5, "{hibernated:?} {awake:?}");
            // START STOP UNIT on top, which takes the model 3 ms.
            let slept = of(",suspend=1000,suspend-level=sleep");
            assert!(slept.0 > hibernated.1 + 3 * MS, "{slept:?} {hibernated:?}");
            // Two changes of speed: the slow one before, the fast one while the first read waits.
            let slowed = of(",scaling=1000");
            assert!(slowed.0 > awake.0, "{slowed:?} {awake:?}");
        }
    }
}

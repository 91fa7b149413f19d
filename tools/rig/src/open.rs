//! What the user of a stack requires of it, and what every kind of stack has.

use flysch_api::block::BlockDevice;
use flysch_api::machine::Clock;
use flysch_bench::results::Incident;
use flysch_cam::Tags;
use flysch_files::Made;
use flysch_models::media::energy::Energy;

use crate::target::ClockKind;

/// What the user of a stack requires of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Lanes: one for each thread or worker with its own queue.
    pub lanes: u16,
    /// Requests in flight per lane.
    pub queue_depth: u32,
    /// Bytes of buffer memory per lane.
    pub memory: usize,
    /// Whether anything will be written or trimmed, if that is known: a stack that is only read
    /// need not be opened for writing.
    pub writes: Option<bool>,
    /// Whether it keeps the rules of zones where the disk has them: without that such a disk is
    /// read only.
    pub zones: bool,
}

impl Default for Needs {
    /// One lane for copying.
    fn default() -> Self {
        Self {
            lanes: 1,
            queue_depth: 32,
            memory: crate::blocks::MEMORY,
            writes: None,
            zones: false,
        }
    }
}

/// Work on the disk of a stack, whatever the stack consists of.
pub trait Visitor {
    /// The result.
    type Output;

    /// Does the work. There is at least one lane; all lanes are of one disk.
    fn visit<D: BlockDevice, C: Clock>(self, lanes: &mut [D], clock: &C) -> Self::Output;
}

/// A stack whose device may have a meter at its supply.
pub(crate) trait Metered {
    /// The energy that the device has used so far, if it is modelled.
    fn energy(&self) -> Option<Energy>;
}

/// A lane whose queue can be inspected and shortened; a lane without commands has none.
pub(crate) trait Tagged {
    /// The state of the queue.
    fn tags(&self) -> Option<Tags> {
        None
    }

    /// Limits the number of commands in flight; returns the actual limit.
    fn set_tags(&mut self, tags: u32) -> Option<u32> {
        let _ = tags;
        None
    }
}

/// The common interface of every kind of stack.
pub(crate) trait Open {
    type Lane: BlockDevice + Tagged;
    type Clock: Clock;

    fn parts(&mut self) -> (&mut [Self::Lane], &Self::Clock);
    fn first(&self) -> &Self::Lane;
    /// Its description for people, and its clock.
    fn about(&self) -> (&str, ClockKind);
    /// Everything that has gone wrong so far.
    fn incidents(&self) -> Vec<Incident>;
    /// Why the machine below ended or could not do its work.
    fn failure(&self) -> Option<String>;
    /// The file that was created for it.
    fn made(&mut self) -> &mut Option<Made>;

    fn visit<V: Visitor>(&mut self, visitor: V) -> V::Output {
        let (lanes, clock) = self.parts();
        visitor.visit(lanes, clock)
    }
}

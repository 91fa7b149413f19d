//! What whoever opens a stack asks of it, and what every kind of stack has.

use flysch_api::block::Device;
use flysch_api::machine::Clock;
use flysch_bench::results::Incident;
use flysch_cam::Tags;
use flysch_files::Made;
use flysch_models::media::energy::Energy;

use crate::target::ClockKind;

/// What the user of a stack needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Lanes: one for each thread or worker that has a queue of its own.
    pub lanes: u16,
    /// Requests in flight per lane.
    pub queue_depth: u32,
    /// Bytes of buffer memory per lane.
    pub memory: usize,
    /// Whether anything will be written or given back, if that is known: what is only read need
    /// not be opened for writing.
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

/// Something that works on the disk of a stack, whatever the stack is made of.
pub trait Visitor {
    /// What comes of it.
    type Output;

    /// Does the work. There is at least one lane; all lanes are of one disk.
    fn visit<D: Device, C: Clock>(self, lanes: &mut [D], clock: &C) -> Self::Output;
}

/// A stack whose device may have a meter at its supply.
pub(crate) trait Metered {
    /// What the device took so far, if it is modelled.
    fn energy(&self) -> Option<Energy>;
}

/// A lane whose queue can be looked at, and made shorter; a lane without commands has none.
pub(crate) trait Tagged {
    /// How the queue stands.
    fn tags(&self) -> Option<Tags> {
        None
    }

    /// Has at most so many commands in flight; answers how many that is.
    fn set_tags(&mut self, tags: u32) -> Option<u32> {
        let _ = tags;
        None
    }
}

/// What every kind of stack has.
pub(crate) trait Open {
    type Lane: Device + Tagged;
    type Clock: Clock;

    fn parts(&mut self) -> (&mut [Self::Lane], &Self::Clock);
    fn first(&self) -> &Self::Lane;
    /// What it turned out to be, for people, and whose time counts.
    fn about(&self) -> (&str, ClockKind);
    /// Everything that went wrong so far.
    fn incidents(&self) -> Vec<Incident>;
    /// Why the machine beneath ended or could not do its work.
    fn failure(&self) -> Option<String>;
    /// The file that was made for it.
    fn made(&mut self) -> &mut Option<Made>;

    fn visit<V: Visitor>(&mut self, visitor: V) -> V::Output {
        let (lanes, clock) = self.parts();
        visitor.visit(lanes, clock)
    }
}

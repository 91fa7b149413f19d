//! What a command works on: a target, or a provider of a rig.

use std::path::PathBuf;
use std::str::FromStr;

use flysch_api::block::{BlockDevice, BlockGeometry};
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{self, PlayError, PlayOptions, Played};
use flysch_bench::published::Origin;
use flysch_bench::results::{self, Layer};
use flysch_bench::zones::Zones;
use flysch_models::media::energy::Energy;
use flysch_rig::blocks::{Blocks, OnDevice};
use flysch_rig::rig::RigFile;
use flysch_rig::{ClockKind, Needs, ParseError, Stack, Target, Visitor};

use super::counters::Watched;
use super::provided::Provided;
use super::{rig, zns};
use crate::failure::Failure;

/// A target, or a provider of a rig.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum On {
    /// A target.
    Target(Box<Target>),
    /// `RIG:PROVIDER`: a file and a name.
    Provider(PathBuf, String),
}

impl FromStr for On {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.parse::<Target>() {
            Ok(target) => Ok(Self::Target(Box::new(target))),
            Err(error) => match RigFile::split(text) {
                Some((path, provider)) => Ok(Self::Provider(path.into(), provider.into())),
                None => Err(error),
            },
        }
    }
}

impl On {
    /// The target, if it is one.
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Self::Target(target) => Some(target),
            Self::Provider(..) => None,
        }
    }

    /// The files that hold its data, and that of its rig.
    ///
    /// # Errors
    /// If the rig cannot be read.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        match self {
            Self::Target(target) => Ok(target.file().map(PathBuf::from).into_iter().collect()),
            Self::Provider(path, _) => {
                let rig = rig::read(path)?;
                Ok(rig.images().map(PathBuf::from).chain([path.clone()]).collect())
            }
        }
    }

    /// Where figures of the device have been published.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.target().and_then(Target::origin)
    }

    /// Whether it is a modelled UFS device alone.
    pub(crate) fn is_bare(&self) -> bool {
        self.target().is_some_and(Target::is_bare)
    }
}

/// An open disk: a target's, or a provider of a rig.
pub(crate) enum Disk {
    /// A target's.
    Target(Box<Stack>),
    /// A provider.
    Provider(Box<Provided>),
}

impl Disk {
    /// Opens it; a rig may get another clock than the file's.
    pub(crate) fn open(on: &On, needs: &Needs, clock: Option<ClockKind>) -> Result<Self, Failure> {
        match on {
            On::Target(target) => Ok(Self::Target(Box::new(Stack::open(target, needs)?))),
            On::Provider(path, provider) => {
                let mut file = rig::read(path)?;
                match clock {
                    Some(ClockKind::Real) => {
                        let why = "models of rigs have no thread of their own: \
                                   --clock virtual or hybrid";
                        return Err(Failure::usage(why));
                    }
                    Some(clock) => file.set_clock(clock),
                    None => {}
                }
                Provided::open(&file, provider, needs).map(|it| Self::Provider(Box::new(it)))
            }
        }
    }

    /// Lets `visitor` work on it.
    pub(crate) fn visit<V: Visitor>(&mut self, visitor: V) -> V::Output {
        match self {
            Self::Target(stack) => stack.visit(visitor),
            Self::Provider(provided) => {
                provided.begin();
                visitor.visit(&mut provided.lanes, &provided.clock)
            }
        }
    }

    /// Plays the jobs of a file on it.
    pub(crate) fn play<'a>(
        &mut self,
        file: &'a JobFile,
        options: PlayOptions<'a>,
    ) -> Result<Played, PlayError> {
        match self {
            Self::Target(stack) => stack.play(file, options),
            Self::Provider(it) => {
                it.begin();
                play::play(&mut it.lanes, &it.clock, file, options)
            }
        }
    }

    /// The zones of the disk of a target; none if it has none. Providers of rigs have none: the
    /// graph writes no zoned disk.
    pub(crate) fn zones(&mut self) -> Result<Option<Zones>, Failure> {
        match self {
            Self::Target(stack) => zns::zones_of(stack),
            Self::Provider(_) => Ok(None),
        }
    }

    /// The energy that modelled devices have used so far; unknown for a rig.
    pub(crate) fn energy(&self) -> Option<Energy> {
        match self {
            Self::Target(stack) => stack.energy(),
            Self::Provider(_) => None,
        }
    }

    /// From now on clients can query what goes through its providers; a target alone has none.
    pub(crate) fn watch(&mut self, watched: &Watched) {
        if let Self::Provider(provided) = self {
            provided.watch(watched);
        }
    }

    /// The first lane as bytes.
    pub(crate) fn blocks(&mut self) -> Box<dyn Blocks + '_> {
        match self {
            Self::Target(stack) => stack.blocks(),
            Self::Provider(it) => {
                it.begin();
                Box::new(OnDevice::new(&mut it.lanes[0], &it.clock))
            }
        }
    }

    /// Its properties.
    pub(crate) fn geometry(&self) -> BlockGeometry {
        match self {
            Self::Target(stack) => stack.geometry(),
            Self::Provider(provided) => *provided.lanes[0].geometry(),
        }
    }

    /// Its description for people.
    pub(crate) fn description(&self) -> &str {
        match self {
            Self::Target(stack) => stack.description(),
            Self::Provider(provided) => &provided.description,
        }
    }

    /// The name of its clock.
    pub(crate) fn clock_name(&self) -> &'static str {
        match self {
            Self::Target(stack) => stack.clock_name(),
            Self::Provider(it) => it.clock_name(),
        }
    }

    /// Everything that has gone wrong so far.
    pub(crate) fn incidents(&self) -> Vec<results::Incident> {
        match self {
            Self::Target(stack) => stack.incidents(),
            Self::Provider(provided) => provided.incidents(),
        }
    }

    /// What the classes of the block layer have done so far, topmost first.
    pub(crate) fn layers(&mut self) -> Vec<Layer> {
        match self {
            Self::Target(_) => Vec::new(),
            Self::Provider(provided) => provided.layers(),
        }
    }

    /// Why the machine below could not do its work.
    pub(crate) fn failure(&self) -> Option<String> {
        match self {
            Self::Target(stack) => stack.failure(),
            Self::Provider(provided) => provided.failure(),
        }
    }

    /// Keeps files that were created for it.
    pub(crate) fn keep(&mut self) {
        match self {
            Self::Target(stack) => stack.keep(),
            Self::Provider(provided) => provided.keep(),
        }
    }
}

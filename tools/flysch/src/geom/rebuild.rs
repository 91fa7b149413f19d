//! Rebuilds of mirrors and arrays: at once by a command; on a mount, and under a workload if a rate
//! is given, one piece at a time between other requests.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use flysch_geom::class::{mirror, raid};
use flysch_geom::{GeomError, GeomId, Graph};
use serde_json::json;

use super::session::Session;
use super::text;
use crate::failure::Failure;
use crate::output::Output;
use crate::progress::Progress;

/// Bytes copied at once.
const PIECE: u64 = 1 << 20;

/// The speed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Rate {
    /// Rebuild at most this many bytes per second, such as `20m`.
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    rate: Option<NonZeroU64>,
}

fn rate(text: &str) -> Result<NonZeroU64, String> {
    let bytes = text::bytes(text).and_then(NonZeroU64::new);
    bytes.ok_or_else(|| format!("`{text}` is not a size such as 20m"))
}

/// What is rebuilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mirror,
    Raid,
}

impl Kind {
    const fn class(self) -> &'static str {
        match self {
            Self::Mirror => "MIRROR",
            Self::Raid => "RAID",
        }
    }

    fn piece(self, graph: &mut Graph, geom: GeomId) -> Result<Option<(u64, u64)>, GeomError> {
        match self {
            Self::Mirror => mirror::synchronize_piece(graph, geom, PIECE),
            Self::Raid => raid::rebuild_piece(graph, geom, raid::CHECKPOINT),
        }
    }

    /// The message after a number of rebuilt members.
    fn said(self, name: &str, count: usize) -> String {
        let one = if self == Self::Mirror { "component" } else { "subdisk" };
        match (self, count) {
            (Self::Raid, 0) => format!("{name}: nothing to rebuild"),
            (_, 1) => format!("{name}: 1 {one} rebuilt"),
            _ => format!("{name}: {count} {one}s rebuilt"),
        }
    }
}

/// A rebuild in progress.
#[derive(Debug)]
pub(super) struct Rebuild {
    kind: Kind,
    name: String,
    rate: Option<NonZeroU64>,
    is_json: bool,
    /// Its start, in nanoseconds of the clock of its driver.
    begun: u64,
    /// Bytes copied since then.
    copied: u64,
    /// How far the copied part extends.
    at: u64,
    /// Members that are complete.
    count: usize,
}

impl Rebuild {
    fn new(kind: Kind, name: &str, rate: Rate, (begun, is_json): (u64, bool)) -> Self {
        let (name, rate) = (name.to_string(), rate.rate);
        Self { kind, name, rate, is_json, begun, copied: 0, at: 0, count: 0 }
    }

    /// When the next piece is due, nanoseconds of the same clock.
    pub(super) fn due(&self) -> u64 {
        let Some(rate) = self.rate else { return self.begun };
        let nanos = u128::from(self.copied) * 1_000_000_000 / u128::from(rate.get());
        self.begun.saturating_add(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Copies a piece; returns whether there may be more.
    pub(super) fn step(&mut self, graph: &mut Graph) -> Result<bool, GeomError> {
        // It may be gone since the last piece.
        let geom = graph.geom(self.kind.class(), &self.name)?;
        let Some((at, size)) = self.kind.piece(graph, geom)? else { return Ok(false) };
        self.copied += at.checked_sub(self.at).unwrap_or(at).min(PIECE);
        self.at = at;
        if at == size {
            self.count += 1;
            self.at = 0;
        }
        Ok(true)
    }

    /// The message at its end.
    pub(super) fn said(&self) -> String {
        self.kind.said(&self.name, self.count)
    }

    /// Prints it, in the requested form.
    pub(super) fn tell(&self, output: &mut Output) -> Result<(), Failure> {
        match output.json() {
            true => output.value(&json!({ "rebuilt": self.count })),
            false => output.line(self.said()),
        }
    }

    /// What [`tell`](Self::tell) would print.
    pub(super) fn output(&self) -> Result<String, Failure> {
        let (mut output, kept) = Output::kept(self.is_json);
        self.tell(&mut output)?;
        output.finish()?;
        Ok(String::from_utf8_lossy(&kept.take()).into_owned())
    }
}

/// Who runs rebuilds beside other requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Beside {
    /// Nobody: they are executed at once.
    #[default]
    Never,
    /// A workload: those that have a rate.
    WithRate,
    /// A mount.
    Always,
}

/// Rebuilds whatever needs it.
pub(super) fn run(
    session: &mut Session,
    kind: Kind,
    (name, rate): (&str, Rate),
    output: &mut Output,
) -> Result<(), Failure> {
    let geom = session.graph.geom(kind.class(), name).map_err(|error| session.failure(error))?;
    let goes_beside = match session.beside {
        Beside::Never => false,
        Beside::WithRate => rate.rate.is_some(),
        Beside::Always => true,
    };
    if goes_beside {
        let how = (session.now, output.json());
        session.rebuilds.push(Rebuild::new(kind, name, rate, how));
        return Ok(());
    }
    let size = match kind {
        Kind::Mirror => session.graph[geom].providers.first().copied(),
        Kind::Raid => None,
    };
    let size = size.map(|provider| session.graph[provider].media_size);
    let mut progress = Progress::bytes("rebuilding", size);
    let mut rebuild = Rebuild::new(kind, name, rate, (0, output.json()));
    let begun = Instant::now();
    loop {
        match rebuild.step(&mut session.graph) {
            Ok(true) => progress.set(rebuild.at),
            Ok(false) => break,
            Err(error) => {
                drop(progress);
                return Err(session.failure(error));
            }
        }
        std::thread::sleep(Duration::from_nanos(rebuild.due()).saturating_sub(begun.elapsed()));
    }
    drop(progress);
    rebuild.tell(output)
}

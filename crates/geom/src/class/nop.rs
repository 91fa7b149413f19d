//! NOP: passes everything on, and fails on purpose. The fault injector of every test.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block::{self, Cause};

use super::{Class, Config, Object, Requests, Value, pass, pass_route, stack};
use crate::error::GeomError;
use crate::graph::Graph;
use crate::io::{Io, Shape};
use crate::object::{GeomId, ProviderId};
use crate::route::{Faults, Route};
use crate::zone::{Zone, ZoneAnswer};

/// The type of the class.
#[derive(Debug)]
pub struct Nop;

/// The class, to be registered with a graph.
pub static NOP: Nop = Nop;

/// What a NOP does to the requests that pass through it.
#[derive(Clone, Debug)]
pub struct NopOptions {
    /// Bytes skipped at the start.
    pub offset: u64,
    /// Size of the provider in bytes; 0 for everything that is left.
    pub size: u64,
    /// Sector size in bytes; 0 for that of the provider below.
    pub sector_size: u32,
    /// Stripe size in bytes, if not that of the provider below.
    pub stripe_size: u64,
    /// Its start in bytes, relative to the start of a stripe.
    pub stripe_offset: u64,
    /// Percentage of reads that fail.
    pub read_failures: u32,
    /// Percentage of writes that fail.
    pub write_failures: u32,
    /// Number of requests that pass before any fails.
    pub count_until_fail: u64,
    /// How many fail in total; `None` for no limit.
    pub fail_only: Option<u64>,
    /// The error of failed requests.
    pub error: block::BlockError,
    /// Delay in milliseconds of the queued requests selected for it.
    pub delay_millis: u64,
    /// Percentage of reads that are delayed.
    pub read_delays: u32,
    /// Percentage of writes that are delayed.
    pub write_delays: u32,
    /// The value that [`Class::attribute`] returns for `GEOM::physpath`.
    pub physical_path: Option<String>,
    /// Its name before `.nop`, if not that of the provider below.
    pub name: Option<String>,
}

impl Default for NopOptions {
    fn default() -> Self {
        Self {
            offset: 0,
            size: 0,
            sector_size: 0,
            stripe_size: 0,
            stripe_offset: 0,
            read_failures: 0,
            write_failures: 0,
            count_until_fail: 0,
            fail_only: None,
            error: block::BlockError::Medium(Cause::None),
            delay_millis: 1,
            read_delays: 0,
            write_delays: 0,
            physical_path: None,
            name: None,
        }
    }
}

#[derive(Debug)]
struct State {
    options: NopOptions,
    passed: u64,
    deletes: u64,
    flushes: u64,
    reads: (u64, u64),
    writes: (u64, u64),
}

/// Puts a NOP on a provider: `da0` becomes `da0.nop`.
///
/// # Errors
/// If an option is invalid.
pub fn create(
    graph: &mut Graph,
    under: ProviderId,
    options: NopOptions,
) -> Result<ProviderId, GeomError> {
    let there = &graph[under];
    let sector = u64::from(there.sector_size);
    let wrong = |what: String| Err(GeomError::invalid(&there.name, what));
    if !options.offset.is_multiple_of(sector) || options.offset >= there.media_size {
        let (offset, size) = (options.offset, there.media_size);
        let what = format!("offset {offset}: it must be a multiple of {sector} below {size}");
        return wrong(what);
    }
    let left = there.media_size - options.offset;
    if !options.size.is_multiple_of(sector) || options.size > left {
        return wrong(format!(
            "size {}: it must be a multiple of {sector} up to {left}",
            options.size
        ));
    }
    let sector_size = match options.sector_size {
        0 => there.sector_size,
        size => size,
    };
    if !u64::from(sector_size).is_multiple_of(sector) || !sector_size.is_power_of_two() {
        let what =
            format!("sectors of {sector_size} bytes: they must have {sector} times a power of two");
        return wrong(what);
    }
    let stripe_size = if options.stripe_size > 0 { options.stripe_size } else { there.stripe_size };
    if !stripe_size.is_multiple_of(u64::from(sector_size))
        || (stripe_size > 0 && options.stripe_offset >= stripe_size)
    {
        let what = format!(
            "stripes of {stripe_size} bytes: they must have a multiple of {sector_size}, above \
             their offset"
        );
        return wrong(what);
    }
    let size = if options.size > 0 { options.size } else { left };
    let shape = Shape {
        media_size: size / u64::from(sector_size) * u64::from(sector_size),
        sector_size,
        stripe_size,
        stripe_offset: options.stripe_offset,
    };
    let name = options.name.as_ref().unwrap_or(&there.name);
    if name.is_empty() || name.chars().any(char::is_control) {
        return wrong("a name must have at least one character, and no control characters".into());
    }
    let name = format!("{name}.nop");
    let (geom, provider) = stack(graph, &NOP, (name.clone(), name), under, shape)?;
    let (reads, writes) = ((0, 0), (0, 0));
    graph.set_state(geom, State { options, passed: 0, deletes: 0, flushes: 0, reads, writes });
    graph.settle();
    Ok(provider)
}

/// Changes what a NOP does; its sizes stay.
///
/// # Errors
/// If there is none with this name.
pub fn configure(
    graph: &mut Graph,
    geom: GeomId,
    change: impl FnOnce(&mut NopOptions),
) -> Result<(), GeomError> {
    let name = graph[geom].name.clone();
    let state = graph.state_mut::<State>(geom);
    let state = state.ok_or_else(|| GeomError::not_found(name, "geom of class NOP"))?;
    change(&mut state.options);
    state.passed = 0;
    Ok(())
}

/// Sets the counters of a NOP to 0.
pub fn reset(graph: &mut Graph, geom: GeomId) {
    if let Some(state) = graph.state_mut::<State>(geom) {
        (state.reads, state.writes) = ((0, 0), (0, 0));
        (state.deletes, state.flushes) = (0, 0);
    }
}

/// FreeBSD's number for an error injected by a NOP.
fn errno(error: block::BlockError) -> u32 {
    const EIO: u32 = 5;
    const ENXIO: u32 = 6;
    match error {
        block::BlockError::Gone => ENXIO,
        _ => EIO,
    }
}

impl State {
    /// Whether this request fails; `die` is a random number.
    fn fails(&mut self, io: &Io<'_>, die: u64) -> bool {
        let percent = match io {
            Io::Read { .. } => self.options.read_failures,
            Io::Write { .. } => self.options.write_failures,
            Io::Delete { .. } | Io::Flush => 0,
        };
        if percent == 0 {
            return false;
        }
        self.passed += 1;
        let fails = self.passed > self.options.count_until_fail && die % 100 < u64::from(percent);
        match &mut self.options.fail_only {
            Some(0) => false,
            Some(left) if fails => {
                *left -= 1;
                true
            }
            _ => fails,
        }
    }
}

impl Class for Nop {
    fn name(&self) -> &'static str {
        "NOP"
    }

    fn attribute(&self, graph: &Graph, provider: ProviderId, name: &str) -> Option<Value> {
        let geom = graph[provider].geom;
        let state = graph.state::<State>(geom)?;
        match &state.options.physical_path {
            Some(path) if name == "GEOM::physpath" => Some(Value::Text(path.clone())),
            _ => graph.attribute(graph.objects().under(geom)?, name),
        }
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        let Object::Geom(geom) = object else { return Vec::new() };
        let Some(state) = graph.state::<State>(geom) else { return Vec::new() };
        let options = &state.options;
        vec![
            ("Offset", options.offset.to_string()),
            ("ReadFailProb", options.read_failures.to_string()),
            ("WriteFailProb", options.write_failures.to_string()),
            ("ReadDelayedProb", options.read_delays.to_string()),
            ("WriteDelayedProb", options.write_delays.to_string()),
            ("Delay", options.delay_millis.to_string()),
            ("CountUntilFail", options.count_until_fail.to_string()),
            ("Error", errno(options.error).to_string()),
            ("Reads", state.reads.0.to_string()),
            ("Writes", state.writes.0.to_string()),
            ("Deletes", state.deletes.to_string()),
            ("Flushes", state.flushes.to_string()),
            ("ReadBytes", state.reads.1.to_string()),
            ("WroteBytes", state.writes.1.to_string()),
        ]
    }
}

impl Requests for Nop {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        let geom = graph[provider].geom;
        let die = graph.random();
        let state = graph.state_mut::<State>(geom).ok_or(block::BlockError::Gone)?;
        match &io {
            Io::Read { to, .. } => {
                state.reads = (state.reads.0 + 1, state.reads.1 + to.len() as u64);
            }
            Io::Write { from, .. } => {
                state.writes = (state.writes.0 + 1, state.writes.1 + from.len() as u64);
            }
            Io::Delete { .. } => state.deletes += 1,
            Io::Flush => state.flushes += 1,
        }
        if state.fails(&io, die) {
            return Err(state.options.error);
        }
        let base = state.options.offset;
        pass(graph, provider, io, base)
    }

    fn zone(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        command: Zone,
    ) -> Result<ZoneAnswer, block::BlockError> {
        super::pass_zone(graph, provider, command)
    }

    fn route(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        _: bool,
    ) -> Result<Option<Route>, GeomError> {
        let (geom, seed) = (graph[provider].geom, graph.random());
        let Some(state) = graph.state::<State>(geom) else { return Ok(None) };
        let options = &state.options;
        let faults = Faults {
            fail: [options.read_failures, options.write_failures],
            delay: [options.read_delays, options.write_delays],
            delay_nanos: options.delay_millis.saturating_mul(1_000_000),
            pass_first: options.count_until_fail.saturating_sub(state.passed),
            fail_only: options.fail_only,
            error: options.error,
            seed,
        };
        let base = options.offset;
        if faults.fail == [0; 2] && faults.delay == [0; 2] {
            return Ok(pass_route(graph, provider, base));
        }
        let consumer = graph[geom].consumers.first().copied();
        Ok(consumer.map(|consumer| Route::Faults { consumer, base, faults }))
    }
}

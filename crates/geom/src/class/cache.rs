//! CACHE: keeps blocks that were read, for small repeated reads (`gcache`).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::cache as wire;

use super::{
    Class, Config, Object, Requests, guard, pass, pass_access_alone, slice_of, stack, write_last,
};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{ConsumerId, GeomId, ProviderId};
use crate::record::Taste;

#[cfg(test)]
mod tests;

/// The type of the class.
#[derive(Debug)]
pub struct Cache;

/// The class, to be registered with a graph.
pub static CACHE: Cache = Cache;

/// Maximum block size, bytes.
const BLOCK_MAX: u32 = 1 << 20;
/// Allowed numbers of blocks.
const SIZES: core::ops::RangeInclusive<u32> = 100..=65536;
/// Maximum number of bytes kept.
const BYTES_MAX: u64 = 256 << 20;

/// The parameters of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheOptions {
    /// Block size in bytes, a power of two.
    pub block_size: u32,
    /// Maximum number of blocks kept.
    pub size: u32,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { block_size: 65536, size: 100 }
    }
}

/// Counters since it was created or reset.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    reads: u64,
    read_bytes: u64,
    cache_reads: u64,
    cache_read_bytes: u64,
    hits: u64,
    misses: u64,
    full: u64,
    writes: u64,
    written_bytes: u64,
}

/// A block, and when it was last used.
#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    used: u64,
}

#[derive(Debug)]
struct State {
    options: CacheOptions,
    /// End of the last whole block: what follows is not cached.
    tail: u64,
    blocks: BTreeMap<u64, Block>,
    /// Block numbers by the time of their last use.
    by_use: BTreeMap<u64, u64>,
    now: u64,
    invalid: u64,
    counts: Counts,
}

impl State {
    fn new(options: CacheOptions, media_size: u64) -> Self {
        let block = u64::from(options.block_size);
        let (blocks, by_use) = (BTreeMap::new(), BTreeMap::new());
        let (tail, counts) = (media_size / block * block, Counts::default());
        Self { options, tail, blocks, by_use, now: 0, invalid: 0, counts }
    }

    /// Copies a block from `skip` on, if it is cached.
    fn take(&mut self, number: u64, skip: usize, to: &mut [u8]) -> bool {
        let Some(block) = self.blocks.get_mut(&number) else { return false };
        self.now += 1;
        self.by_use.remove(&block.used);
        block.used = self.now;
        self.by_use.insert(self.now, number);
        to.copy_from_slice(&block.bytes[skip..skip + to.len()]);
        true
    }

    fn keep(&mut self, number: u64, bytes: Vec<u8>) {
        while self.blocks.len() >= self.options.size as usize {
            self.counts.full += 1;
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.blocks.remove(&oldest);
        }
        self.now += 1;
        self.by_use.insert(self.now, number);
        self.blocks.insert(number, Block { bytes, used: self.now });
    }

    /// Forgets the blocks that overlap these bytes.
    fn forget(&mut self, offset: u64, length: u64) {
        let block = u64::from(self.options.block_size);
        let end = offset.saturating_add(length).div_ceil(block);
        let gone: Vec<u64> = self.blocks.range(offset / block..end).map(|(it, _)| *it).collect();
        for number in gone {
            self.invalid += 1;
            if let Some(block) = self.blocks.remove(&number) {
                self.by_use.remove(&block.used);
            }
        }
    }
}

/// Whether a cache can have these parameters on sectors of this size.
fn check(name: &str, options: &CacheOptions, sector: u32) -> Result<(), GeomError> {
    let CacheOptions { block_size, size } = *options;
    let is_block = block_size.is_power_of_two() && (sector..=BLOCK_MAX).contains(&block_size);
    if !is_block {
        let cause = format!("a block must have {sector} to {BLOCK_MAX} bytes, a power of two");
        return Err(GeomError::invalid(name, cause));
    }
    let (least, most) = (*SIZES.start(), *SIZES.end());
    if !SIZES.contains(&size) || u64::from(size) * u64::from(block_size) > BYTES_MAX {
        let cause =
            format!("must have {least} to {most} blocks, of at most {BYTES_MAX} bytes in all");
        return Err(GeomError::invalid(name, cause));
    }
    Ok(())
}

fn put(
    graph: &mut Graph,
    name: &str,
    under: ProviderId,
    (options, length): (CacheOptions, u64),
) -> Result<(), GeomError> {
    let shape = slice_of(graph, under, 0, length);
    let names = (String::from(name), format!("cache/{name}"));
    let (geom, _) = stack(graph, &CACHE, names, under, shape)?;
    graph.set_state(geom, State::new(options, length));
    Ok(())
}

/// Puts a cache on a provider for the life of the graph (`gcache create`).
///
/// # Errors
/// The error names the obstacle.
pub fn create(
    graph: &mut Graph,
    name: &str,
    under: ProviderId,
    options: CacheOptions,
) -> Result<(), GeomError> {
    let wire_name = Name::<16>::new(name);
    wire_name.ok_or_else(|| GeomError::invalid(name, "a name must have 1 to 15 bytes"))?;
    check(name, &options, graph[under].sector_size)?;
    guard::in_use(graph, under)?;
    is_free(graph, name)?;
    let length = graph[under].media_size;
    put(graph, name, under, (options, length))?;
    graph.settle();
    Ok(())
}

fn is_free(graph: &Graph, name: &str) -> Result<(), GeomError> {
    match graph.geom("CACHE", name) {
        Ok(_) => Err(GeomError::new(Kind::Exists, name, "a cache of this name already exists")),
        Err(_) => Ok(()),
    }
}

/// Puts a cache on a provider permanently, recorded in its last sector (`gcache label`).
///
/// # Errors
/// The error names the obstacle.
pub fn label(
    graph: &mut Graph,
    name: &str,
    under: ProviderId,
    (options, force): (CacheOptions, bool),
) -> Result<(), GeomError> {
    let wrong = || GeomError::invalid(name, "a name must have 1 to 15 bytes");
    let wire_name = Name::new(name).ok_or_else(wrong)?;
    check(name, &options, graph[under].sector_size)?;
    guard::last_sector_unless(graph, "CACHE", under, force)?;
    is_free(graph, name)?;
    let CacheOptions { block_size, size } = options;
    let provider_size = graph[under].media_size;
    let metadata = wire::Cache { name: wire_name, block_size, size, provider_size };
    write_last(graph, under, |sector| metadata.emit(sector))?;
    graph.settle();
    Ok(())
}

/// Changes the parameters of a cache and empties it. Its metadata stays (`gcache configure`).
///
/// # Errors
/// If a parameter is invalid.
pub fn configure(graph: &mut Graph, geom: GeomId, options: CacheOptions) -> Result<(), GeomError> {
    let name = graph[geom].name.clone();
    let missing = || GeomError::not_found(&name, "geom of class CACHE");
    let provider = graph[geom].providers.first().copied().ok_or_else(missing)?;
    let (sector, size) = (graph[provider].sector_size, graph[provider].media_size);
    check(&name, &options, sector)?;
    let state = graph.state_mut::<State>(geom).ok_or_else(missing)?;
    let counts = state.counts;
    *state = State { counts, ..State::new(options, size) };
    Ok(())
}

/// The parameters of a cache.
#[must_use]
pub fn options(graph: &Graph, geom: GeomId) -> Option<CacheOptions> {
    graph.state::<State>(geom).map(|state| state.options)
}

/// Sets the counters to 0 (`gcache reset`).
pub fn reset(graph: &mut Graph, geom: GeomId) {
    if let Some(state) = graph.state_mut::<State>(geom) {
        state.counts = Counts::default();
    }
}

impl Class for Cache {
    fn name(&self) -> &'static str {
        "CACHE"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let there = &graph[provider];
        let (at, size, sector) = (there.last_sector(), there.media_size, there.sector_size);
        let label = match graph.peek_last(provider) {
            Ok(bytes) if !bytes.starts_with(&wire::MAGIC) => {
                return Taste::passed("no label of CACHE in the last sector");
            }
            Ok(bytes) => wire::Cache::parse(&bytes),
            Err(error) => return Taste::passed(error.to_string()),
        };
        let refused = |text: String| Taste::refused(text, at, wire::LEN as u64);
        let label = match label {
            Ok(label) => label,
            Err(error) => return refused(format!("its label of CACHE is not sound: {error}")),
        };
        let name = label.name.to_string();
        if label.provider_size != size {
            let other = label.provider_size;
            return refused(format!(
                "metadata of CACHE {name} is for {other} bytes, this has {size}"
            ));
        }
        let options = CacheOptions { block_size: label.block_size, size: label.size };
        let length = size - u64::from(sector);
        let made = check(&name, &options, sector)
            .and_then(|()| is_free(graph, &name))
            .and_then(|()| put(graph, &name, provider, (options, length)));
        match made {
            Ok(()) => Taste::claimed(format!("cache {name}"), at, wire::LEN as u64),
            Err(error) => refused(error.to_string()),
        }
    }

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        pass_access_alone(graph, provider, change)
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        let Object::Geom(geom) = object else { return Vec::new() };
        let Some(state) = graph.state::<State>(geom) else { return Vec::new() };
        let (counts, entries) = (&state.counts, state.blocks.len());
        let shown = [
            ("WroteBytes", counts.written_bytes),
            ("Writes", counts.writes),
            ("CacheFull", counts.full),
            ("CacheMisses", counts.misses),
            ("CacheHits", counts.hits),
            ("CacheReadBytes", counts.cache_read_bytes),
            ("CacheReads", counts.cache_reads),
            ("ReadBytes", counts.read_bytes),
            ("Reads", counts.reads),
            ("InvalidEntries", state.invalid),
            ("UsedEntries", entries as u64),
            ("Entries", entries as u64),
            ("TailOffset", state.tail),
            ("BlockSize", u64::from(state.options.block_size)),
            ("Size", u64::from(state.options.size)),
        ];
        shown.into_iter().rev().map(|(name, value)| (name, value.to_string())).collect()
    }
}

impl Requests for Cache {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        let geom = graph[provider].geom;
        let (offset, length) = (io.offset(), io.len());
        let changes = io.changes();
        let state = graph.state_mut::<State>(geom).ok_or(block::BlockError::Gone)?;
        match io {
            Io::Read { offset, to } => read(graph, provider, offset, to),
            other if changes => {
                state.counts.writes += 1;
                state.counts.written_bytes += length;
                let done = pass(graph, provider, other, 0);
                // Even a failed request may have been performed in part.
                if let Some(state) = graph.state_mut::<State>(geom) {
                    state.forget(offset, length);
                }
                done
            }
            other => pass(graph, provider, other, 0),
        }
    }
}

/// Reads within one or two blocks are served from cached blocks; others pass through.
fn read(
    graph: &mut Graph,
    provider: ProviderId,
    offset: u64,
    to: &mut [u8],
) -> Result<(), block::BlockError> {
    let geom = graph[provider].geom;
    let state = graph.state_mut::<State>(geom).ok_or(block::BlockError::Gone)?;
    let (length, size) = (to.len() as u64, u64::from(state.options.block_size));
    state.counts.reads += 1;
    state.counts.read_bytes += length;
    let end = offset + length;
    if length == 0 || end > state.tail || (end - 1) / size - offset / size > 1 {
        return pass(graph, provider, Io::Read { offset, to }, 0);
    }
    state.counts.cache_reads += 1;
    state.counts.cache_read_bytes += length;
    let consumer = graph[geom].consumers.first().copied().ok_or(block::BlockError::Gone)?;
    let mut done = 0;
    while done < to.len() {
        let at = offset + done as u64;
        let (number, skip) = (at / size, (at % size) as usize);
        let now = (size as usize - skip).min(to.len() - done);
        let piece = &mut to[done..done + now];
        if let Err(error) = read_block(graph, (geom, consumer), (number, skip), piece) {
            // No cause: only the reason why the block could not be read matters here.
            graph.io(consumer, Io::Read { offset: at, to: piece }).map_err(|_| error)?;
        }
        done += now;
    }
    Ok(())
}

fn read_block(
    graph: &mut Graph,
    (geom, consumer): (GeomId, ConsumerId),
    (number, skip): (u64, usize),
    to: &mut [u8],
) -> Result<(), block::BlockError> {
    let state = graph.state_mut::<State>(geom).ok_or(block::BlockError::Gone)?;
    if state.take(number, skip, to) {
        state.counts.hits += 1;
        return Ok(());
    }
    state.counts.misses += 1;
    let size = state.options.block_size as usize;
    let mut bytes = vec![0; size];
    graph.io(consumer, Io::Read { offset: number * size as u64, to: &mut bytes })?;
    to.copy_from_slice(&bytes[skip..skip + to.len()]);
    graph.state_mut::<State>(geom).ok_or(block::BlockError::Gone)?.keep(number, bytes);
    Ok(())
}

//! PART: partition tables. GPT, MBR, the chain of an extended partition, BSD disklabels with 32-bit
//! and 64-bit offsets.
//!
//! A table is parsed into values, changed there, and written by a list of [`Step`]s, ordered so
//! that after any of them either the old or the new table can be read.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_api::count::counted;
use flysch_wire::geom::gpt::{Guid, attributes};
use flysch_wire::geom::mbr;

use super::{
    Class, Config, News, Object, Requests, Value, guard, pass, pass_route, slice_of, wither_with,
};
use crate::access::Access;
use crate::error::GeomError;
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{GeomId, ProviderId};
use crate::record::Taste;
use crate::route::Route;

mod backup;
mod bsd;
mod bsd64;
mod ebr;
mod geometry;
mod gpt;
mod kinds;
mod mbr_scheme;
#[cfg(test)]
mod tests;
mod verbs;

pub use backup::{Backup, backup, restore};
pub use kinds::Type;
pub use verbs::{
    Add, Change, Flags, add, boot_code, commit, create, delete, destroy, modify, partition_code,
    recover, resize, set_attribute, set_table_attribute, undo,
};

/// The type of the class.
#[derive(Debug)]
pub struct Part;

/// The class, to be registered with a graph.
pub static PART: Part = Part;

/// A kind of partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// GUID partition table.
    Gpt,
    /// Master boot record.
    Mbr,
    /// Chain of boot records in an extended partition.
    Ebr,
    /// BSD disklabel.
    Bsd,
    /// DragonFly BSD's disklabel, with 64-bit offsets.
    Bsd64,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Gpt, Self::Mbr, Self::Ebr, Self::Bsd, Self::Bsd64];

    /// Its name, as `gpart show` prints it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
            Self::Ebr => "EBR",
            Self::Bsd => "BSD",
            Self::Bsd64 => "BSD64",
        }
    }

    /// Whether the third partition, `c`, is the whole disk.
    const fn has_raw(self) -> bool {
        matches!(self, Self::Bsd | Self::Bsd64)
    }

    /// The scheme with this name, in upper or lower case.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scheme| scheme.name().eq_ignore_ascii_case(name))
    }
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, from 1.
    pub index: u32,
    /// First sector that belongs to it.
    pub start: u64,
    /// Last sector.
    pub end: u64,
    /// First sector of its contents: in an extended boot record, the one after the record.
    pub data: u64,
    /// Its type.
    pub kind: Type,
    /// Its name, where the scheme has names.
    pub label: String,
    /// Attributes of a GPT entry; the status byte of others.
    pub attributes: u64,
    /// Its GUID in a GPT.
    pub unique: Guid,
}

impl Partition {
    /// Number of sectors that belong to it.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.end - self.start + 1
    }

    /// Names of the attributes that are set.
    #[must_use]
    pub fn attribute_names(&self) -> Vec<&'static str> {
        let all = match self.kind {
            Type::Guid(_) => &GPT_ATTRIBUTES[..],
            Type::Mbr(_) => &MBR_ATTRIBUTES[..],
            Type::Bsd(_) | Type::Bsd64(..) => &[],
        };
        let set = all.iter().filter(|(_, bit)| self.attributes & bit != 0);
        set.map(|(name, _)| *name).collect()
    }
}

/// Attributes by their `gpart` names.
const GPT_ATTRIBUTES: [(&str, u64); 4] = [
    ("bootme", attributes::BOOT_ME),
    ("bootonce", attributes::BOOT_ONCE),
    ("bootfailed", attributes::BOOT_FAILED),
    ("legacyboot", attributes::LEGACY_BOOT),
];
const MBR_ATTRIBUTES: [(&str, u64); 1] = [("active", mbr::ACTIVE as u64)];

/// A table in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The kind of table.
    pub scheme: Scheme,
    /// Partitions in order of their numbers.
    pub partitions: Vec<Partition>,
    /// First sector for partitions.
    pub first: u64,
    /// Last sector for partitions.
    pub last: u64,
    /// Maximum number of partitions.
    pub entries: u32,
    /// Heads, for addresses by cylinder.
    pub heads: u32,
    /// Sectors per track.
    pub sectors: u32,
    /// What is damaged, if it can still be read.
    pub corrupt: Option<String>,
    /// Changed and not yet written.
    pub modified: bool,
    /// The pending change is its removal.
    pub is_destroyed: bool,
    /// What only the scheme knows.
    detail: Detail,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail {
    Gpt(Box<gpt::Detail>),
    Mbr(Vec<u8>),
    Ebr(Vec<u64>),
    Bsd { sector: Vec<u8>, base: u64, boot: Vec<u8> },
    Bsd64(Vec<u8>),
}

/// One step of writing a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write these sectors at this byte offset.
    Write(u64, Vec<u8>),
    /// Everything before reaches the medium before anything after.
    Flush,
}

/// The result of looking for a table.
enum Probe {
    /// There is one, in these bytes.
    Found(Box<Table>, u64, u64),
    /// There is none.
    None(String),
    /// There is one that cannot be used.
    Bad(String, u64, u64),
}

impl Table {
    /// Checks that partitions are in range and do not overlap.
    fn check(&self) -> Result<(), String> {
        let mut sorted: Vec<&Partition> = self.partitions.iter().collect();
        sorted.sort_by_key(|partition| partition.start);
        for partition in &sorted {
            let Partition { index, start, end, data, .. } = partition;
            if end < start || data < start || data > end {
                return Err(format!("partition {index} ends before it starts"));
            }
            if *start < self.first || *end > self.last {
                let (first, last) = (self.first, self.last);
                return Err(format!(
                    "partition {index}, sectors {start} to {end}, is outside of {first} to {last}"
                ));
            }
        }
        for pair in sorted.windows(2) {
            if pair[0].end >= pair[1].start {
                let (one, other) = (pair[0].index, pair[1].index);
                return Err(format!("partitions {one} and {other} overlap"));
            }
        }
        Ok(())
    }

    /// The partition with this number.
    #[must_use]
    pub fn partition(&self, index: u32) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.index == index)
    }

    /// The name of a partition, without the disk's.
    #[must_use]
    pub fn suffix(&self, partition: &Partition) -> String {
        let index = partition.index;
        match self.scheme {
            Scheme::Gpt if partition.kind.is_slice() => format!("s{index}"),
            Scheme::Gpt => format!("p{index}"),
            Scheme::Mbr => format!("s{index}"),
            Scheme::Ebr => format!("+{index:08}"),
            Scheme::Bsd | Scheme::Bsd64 => {
                let letter = u8::try_from(index.saturating_sub(1)).unwrap_or(25);
                String::from(char::from(b'a' + letter.min(25)))
            }
        }
    }

    /// The steps that bring the medium to this state.
    #[must_use]
    pub fn steps(&self, sector: u32) -> Vec<Step> {
        match &self.detail {
            Detail::Gpt(detail) => gpt::steps(self, detail, sector),
            Detail::Mbr(old) => mbr_scheme::steps(self, old),
            Detail::Ebr(old) => ebr::steps(self, old, sector),
            Detail::Bsd { sector, base, boot } => bsd::steps(self, sector, (*base, boot)),
            Detail::Bsd64(old) => bsd64::steps(self, old, sector),
        }
    }
}

/// Looks for a table of every kind; the strongest evidence wins.
fn probe(graph: &mut Graph, provider: ProviderId) -> Probe {
    let mut bad = None;
    let mut none = Vec::new();
    let mut weak = None;
    for (result, is_weak) in [
        gpt::probe(graph, provider),
        (bsd64::probe(graph, provider), false),
        (bsd::probe(graph, provider), false),
        (ebr::probe(graph, provider), false),
        (mbr_scheme::probe(graph, provider), false),
    ] {
        match result {
            Probe::Found(..) if is_weak => weak = Some(result),
            Probe::Found(..) => return result,
            Probe::None(why) => none.push(why),
            Probe::Bad(why, at, len) => bad = bad.or(Some(Probe::Bad(why, at, len))),
        }
    }
    weak.or(bad).unwrap_or_else(|| Probe::None(none.join("; ")))
}

/// The table of a geom.
#[must_use]
pub fn table(graph: &Graph, geom: GeomId) -> Option<&Table> {
    graph.state(geom)
}

/// The provider of a partition.
#[must_use]
pub fn provider_of(graph: &Graph, geom: GeomId, index: u32) -> Option<ProviderId> {
    let table = table(graph, geom)?;
    let name = format!("{}{}", graph[geom].name, table.suffix(table.partition(index)?));
    let mut providers = graph[geom].providers.iter().copied();
    providers.find(|&p| graph[p].name == name && graph[p].error.is_none())
}

/// The partition of a provider.
fn partition_of(graph: &Graph, provider: ProviderId) -> Option<(&Table, &Partition)> {
    let geom = graph[provider].geom;
    let table = table(graph, geom)?;
    let suffix = graph[provider].name.strip_prefix(&graph[geom].name[..])?;
    let found = table.partitions.iter().find(|p| table.suffix(p) == suffix)?;
    Some((table, found))
}

/// Makes the providers match the table.
fn offer(graph: &mut Graph, geom: GeomId) -> Result<(), GeomError> {
    let Some(under) = graph.objects().under(geom) else { return Ok(()) };
    let sector = u64::from(graph[under].sector_size);
    let base = graph[geom].name.clone();
    let Some(table) = table(graph, geom).filter(|table| !table.is_destroyed) else {
        return Ok(());
    };
    let wanted: Vec<(String, u64, u64)> = table
        .partitions
        .iter()
        .map(|p| (format!("{base}{}", table.suffix(p)), p.data * sector, p.end + 1 - p.data))
        .map(|(name, offset, count)| (name, offset, count * sector))
        .collect();
    for provider in graph[geom].providers.clone() {
        if !wanted.iter().any(|(name, ..)| *name == graph[provider].name) {
            graph.wither_provider(provider, block::BlockError::Gone);
        }
    }
    for (name, offset, length) in wanted {
        let shape = slice_of(graph, under, offset, length);
        let providers = graph[geom].providers.iter().copied();
        let mut live = providers.filter(|&p| graph[p].error.is_none());
        match live.find(|&provider| graph[provider].name == name) {
            None => drop(graph.new_provider(geom, name, shape)?),
            Some(provider) => {
                graph.objects[provider].stripe_offset = shape.stripe_offset;
                if graph[provider].media_size != length {
                    graph.resize_provider(provider, length);
                }
            }
        }
    }
    Ok(())
}

/// Where the data of a partition begins, in bytes of the provider below.
fn base_of(graph: &Graph, provider: ProviderId) -> Option<u64> {
    let (_, partition) = partition_of(graph, provider)?;
    Some(partition.data * u64::from(graph[provider].sector_size))
}

/// Why a partition of a disklabel is not examined: the first one often starts where the disk does,
/// and so contains the label again.
const LEAF: &str = "it is a partition of a disklabel: those hold no tables";

/// Whether a provider is a partition of a disklabel.
fn is_leaf(graph: &Graph, provider: ProviderId) -> bool {
    let above = table(graph, graph[provider].geom);
    above.is_some_and(|table| matches!(table.scheme, Scheme::Bsd | Scheme::Bsd64))
}

impl Class for Part {
    fn name(&self) -> &'static str {
        "PART"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        if graph[provider].access.write > 0 {
            return Taste::passed("it is open for writing");
        }
        if let Some(class) = guard::component_of(graph, provider) {
            let text = format!("it is a component of class {class}: tables are looked for there");
            return Taste::passed(text);
        }
        if is_leaf(graph, provider) {
            return Taste::passed(LEAF);
        }
        let (table, at, len) = match probe(graph, provider) {
            Probe::Found(table, at, len) => (table, at, len),
            Probe::None(why) => return Taste::passed(why),
            Probe::Bad(why, at, len) => return Taste::refused(why, at, len),
        };
        if let Err(why) = table.check() {
            let text = format!("its {} table is not followed: {why}", table.scheme.name());
            return Taste::refused(text, at, len);
        }
        let (scheme, count) = (table.scheme.name(), table.partitions.len());
        let mut text = format!("{scheme} table with {}", counted(count, "partition", "partitions"));
        if let Some(damage) = &table.corrupt {
            text.push_str(&format!(", damaged: {damage}"));
        }
        let geom = graph.new_geom(&PART, graph[provider].name.clone());
        let consumer = graph.new_consumer(geom);
        let attached = graph.attach(consumer, provider);
        graph.set_state(geom, *table);
        match attached.and_then(|()| offer(graph, geom)) {
            Ok(()) => Taste::claimed(text, at, len),
            Err(error) => {
                graph.wither_geom(geom, block::BlockError::Gone);
                Taste::refused(error.to_string(), at, len)
            }
        }
    }

    fn access(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        change: Access,
    ) -> Result<(), GeomError> {
        // A writer of a partition excludes others from the disk: nobody may move what is below.
        let exclusive = change.exclusive + change.write;
        super::pass_access(graph, provider, Access { exclusive, ..change })
    }

    fn told(&self, graph: &mut Graph, news: News) -> bool {
        let consumer = match news {
            News::Orphaned(consumer) | News::Spoiled(consumer) => {
                wither_with(graph, consumer);
                return true;
            }
            News::Failed(..) | News::Settled => return false,
            News::Resized(consumer) => consumer,
        };
        // A smaller disk may have lost partitions; on a larger one only the second header is not
        // found.
        let Some(under) = graph[consumer].provider else { return false };
        let (geom, sectors) = (graph[consumer].geom, graph[under].sectors());
        let Some(table) = graph.state_mut::<Table>(geom) else { return false };
        if table.last >= sectors || table.modified {
            return false;
        }
        if table.scheme == Scheme::Gpt {
            table.corrupt = Some("the second header is not in the last sector".into());
        }
        true
    }

    fn attribute(&self, graph: &Graph, provider: ProviderId, name: &str) -> Option<Value> {
        let (table, partition) = partition_of(graph, provider)?;
        let under = graph.objects().under(graph[provider].geom)?;
        let text = |text: String| Some(Value::Text(text));
        match name {
            "PART::scheme" => text(table.scheme.name().into()),
            "PART::type" => text(partition.kind.name()),
            "PART::label" => text(partition.label.clone()),
            "PART::rawuuid" => text(partition.unique.to_string()),
            "PART::depth" => {
                let below = graph.attribute(under, name).and_then(|value| value.number());
                Some(Value::Number(below.map_or(0, |depth| depth + 1)))
            }
            "PART::offset" => Some(Value::Number(partition.start)),
            "GEOM::physpath" => {
                let path = graph.attribute(under, name)?.text()?;
                text(format!("{path}/{}", table.suffix(partition)))
            }
            _ => graph.attribute(under, name),
        }
    }

    fn config(&self, graph: &Graph, object: Object) -> Config {
        match object {
            Object::Geom(geom) => table(graph, geom).map(geom_config).unwrap_or_default(),
            Object::Provider(provider) => {
                let sector = u64::from(graph[provider].sector_size);
                let found = partition_of(graph, provider);
                found.map(|(_, part)| provider_config(part, sector)).unwrap_or_default()
            }
            Object::Consumer(_) => Vec::new(),
        }
    }
}

impl Requests for Part {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        let base = base_of(graph, provider).ok_or(block::BlockError::Gone)?;
        pass(graph, provider, io, base)
    }

    fn route(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        _: bool,
    ) -> Result<Option<Route>, GeomError> {
        let base = base_of(graph, provider);
        Ok(base.and_then(|base| pass_route(graph, provider, base)))
    }
}

fn geom_config(table: &Table) -> Config {
    let state = if table.corrupt.is_some() { "CORRUPT" } else { "OK" };
    let mut config = vec![
        ("scheme", table.scheme.name().into()),
        ("entries", table.entries.to_string()),
        ("first", table.first.to_string()),
        ("last", table.last.to_string()),
        ("fwsectors", table.sectors.to_string()),
        ("fwheads", table.heads.to_string()),
        ("state", state.into()),
        ("modified", if table.modified { "true" } else { "false" }.into()),
    ];
    if let Detail::Bsd64(bytes) = &table.detail {
        config.extend(bsd64::config(table, bytes));
    }
    config
}

fn provider_config(part: &Partition, sector: u64) -> Config {
    let mut config: Config = vec![
        ("start", part.start.to_string()),
        ("end", part.end.to_string()),
        ("index", part.index.to_string()),
        ("type", part.kind.name()),
        ("offset", (part.data * sector).to_string()),
        ("length", ((part.end + 1 - part.data) * sector).to_string()),
        ("label", if part.label.is_empty() { "(null)".into() } else { part.label.clone() }),
    ];
    config.extend(part.attribute_names().into_iter().map(|name| ("attrib", name.to_string())));
    config.push(("rawtype", part.kind.raw()));
    let (index, start, count) = (part.index, part.start, part.length());
    if matches!(part.kind, Type::Guid(_)) {
        config.push(("rawuuid", part.unique.to_string()));
        let path = format!("HD({index},GPT,{},{start:#x},{count:#x})", part.unique);
        config.push(("efimedia", path));
    }
    if let Type::Bsd64(_, type_id) = part.kind {
        let is_known = type_id != Guid::ZERO;
        config.extend(is_known.then(|| ("type_uuid", type_id.to_string())));
        config.push(("stor_uuid", part.unique.to_string()));
    }
    config
}

//! A table as text: `gpart backup` and `gpart restore`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use flysch_api::block;

use super::verbs::table_of;
use super::{Add, Flags, Partition, Scheme, add, commit, create, destroy, set_attribute};
use crate::class::label::mangle;
use crate::error::GeomError;
use crate::graph::Graph;
use crate::object::{GeomId, ProviderId};

/// A table as text, as `gpart backup` writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The kind of table.
    pub scheme: Scheme,
    /// Number of entries; `None` for the number of a new table.
    pub entries: Option<u32>,
    /// The last usable sector, which determines the width of the columns, if it is known.
    pub last: Option<u64>,
    /// Number, type, first sector, number of sectors, name and attributes of each partition.
    pub partitions: Vec<(u32, String, u64, u64, String, Vec<String>)>,
}

/// A table as `gpart backup` prints it.
///
/// # Errors
/// If there is none.
pub fn backup(graph: &Graph, geom: GeomId) -> Result<Backup, GeomError> {
    let table = table_of(graph, geom)?;
    let line = |p: &Partition| {
        let attributes = p.attribute_names().into_iter().map(String::from).collect();
        (p.index, p.kind.name(), p.start, p.length(), p.label.clone(), attributes)
    };
    let mut partitions: Vec<_> = table.partitions.iter().map(line).collect();
    partitions.sort_by_key(|partition| partition.2);
    let last = Some(table.last);
    Ok(Backup { scheme: table.scheme, entries: Some(table.entries), last, partitions })
}

impl fmt::Display for Backup {
    /// Prints it exactly as `gpart backup` does.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = self.entries.map_or_else(String::new, |entries| entries.to_string());
        writeln!(f, "{} {entries}", self.scheme.name())?;
        let widest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or(0);
        let all = || self.partitions.iter();
        let kinds = widest(&mut all().map(|(_, kind, ..)| kind.len()));
        let ends = all().map(|(_, _, start, length, ..)| start.saturating_add(*length));
        let sectors = widest(&mut ends.chain(self.last).map(|sector| sector.to_string().len()));
        let wide = entries.len();
        for (index, kind, start, length, label, attributes) in &self.partitions {
            write!(f, "{index:<wide$} {kind:>kinds$} {start:>sectors$} {length:>sectors$} ")?;
            let attributes = match attributes.is_empty() {
                true => String::new(),
                false => format!(" [{}] ", attributes.join(",")),
            };
            writeln!(f, "{} {attributes}", mangle(label))?;
        }
        Ok(())
    }
}

impl core::str::FromStr for Backup {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lines = (1..).zip(text.lines());
        let is_said = |(_, line): &(i32, &str)| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with('#')
        };
        let mut lines = lines.filter(is_said);
        let wrong = |at: i32, what: &str| format!("line {at}: {what}");
        let (at, head) = lines.next().ok_or("it is empty")?;
        let mut words = head.split_whitespace();
        let scheme = words.next().and_then(Scheme::of);
        let scheme = scheme.ok_or_else(|| wrong(at, "does not start with a known scheme"))?;
        let entries = match words.next().map(str::parse) {
            None => None,
            Some(Ok(entries)) => Some(entries),
            Some(Err(_)) => return Err(wrong(at, "does not give the number of entries")),
        };
        let mut partitions = Vec::new();
        for (at, line) in lines {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [index, kind, start, length, rest @ ..] = &words[..] else {
                return Err(wrong(
                    at,
                    "is not of the form: number, type, start, size, name, [attributes]",
                ));
            };
            let number = |word: &str| {
                word.parse::<u64>().map_err(|_| wrong(at, &format!("`{word}` is not a number")))
            };
            let (mut label, mut attributes) = (String::new(), Vec::new());
            for word in rest {
                match word.strip_prefix('[').and_then(|word| word.strip_suffix(']')) {
                    Some(list) => attributes = list.split(',').map(String::from).collect(),
                    None => label = unmangle(word),
                }
            }
            let index = u32::try_from(number(index)?)
                .map_err(|_| wrong(at, "the number of the partition is too large"))?;
            let kind = (*kind).to_string();
            partitions.push((index, kind, number(start)?, number(length)?, label, attributes));
        }
        Ok(Self { scheme, entries, last: None, partitions })
    }
}

/// The opposite of [`mangle`].
fn unmangle(word: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), word.as_bytes());
    while let Some((&byte, behind)) = rest.split_first() {
        let digits = behind.get(..2).filter(|_| byte == b'%');
        let digits = digits.and_then(|digits| core::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(value) => {
                bytes.push(value);
                rest = &behind[2..];
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes a table from a backup, in one commit. An existing one is replaced only by force.
///
/// # Errors
/// The error names the obstacle.
pub fn restore(
    graph: &mut Graph,
    provider: ProviderId,
    (backup, with_labels): (&Backup, bool),
    flags: Flags,
) -> Result<GeomId, GeomError> {
    let name = graph[provider].name.clone();
    if let Ok(old) = graph.geom("PART", &name) {
        destroy(graph, old, flags)?;
    }
    let later = Flags { commit: false, force: flags.force };
    let entries = backup.entries.filter(|_| backup.scheme != Scheme::Mbr);
    let geom = create(graph, provider, (backup.scheme, entries), later)?;
    let mut filled = Ok(());
    for (index, kind, start, size, label, attributes) in &backup.partitions {
        let wanted = Add {
            kind: kind.clone(),
            start: Some(*start),
            size: Some(*size),
            alignment: Some(1),
            index: Some(*index),
            label: with_labels.then(|| label.clone()),
        };
        filled = add(graph, geom, &wanted, later).and_then(|index| {
            attributes.iter().try_for_each(|attribute| {
                set_attribute(graph, geom, (index, attribute, true), later).map(drop)
            })
        });
        if filled.is_err() {
            break;
        }
    }
    let done = filled.and_then(|()| if flags.commit { commit(graph, geom) } else { Ok(()) });
    match done {
        Ok(()) => Ok(geom),
        Err(error) => {
            graph.wither_geom(geom, block::BlockError::Gone);
            graph.settle();
            Err(error)
        }
    }
}

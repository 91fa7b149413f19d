//! LABEL: names for providers, written by `glabel` or found in existing contents.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

use flysch_api::block;
use flysch_wire::geom::Name;
use flysch_wire::geom::label as wire;
use flysch_wire::geom::volume::{self, FileSystem};

use super::{
    Class, Config, Object, Requests, guard, pass, pass_access_alone, pass_route, slice_of, stack,
    write_last,
};
use crate::access::Access;
use crate::error::{GeomError, Kind};
use crate::graph::Graph;
use crate::io::Io;
use crate::object::{GeomId, ProviderId};
use crate::record::{Reason, Taste};
use crate::route::Route;
use crate::zone::{Zone, ZoneAnswer};

/// The type of the class.
#[derive(Debug)]
pub struct Label;

/// The class, to be registered with a graph.
pub static LABEL: Label = Label;

/// A label that was found, and where.
struct Found {
    /// Folder and name.
    name: String,
    /// What it is, in words.
    what: String,
    /// Offset and length of the bytes it was found in.
    bytes: Option<(u64, u64)>,
    /// Size of the provider with this name, bytes.
    size: u64,
}

/// Turns a text into a valid name: characters that are invisible, end a word or would form a folder
/// become `%` and two digits.
#[must_use]
pub fn mangle(text: &str) -> String {
    let mut out = String::new();
    let is_dots = matches!(text, "." | "..");
    for character in text.chars() {
        match character {
            '\0'..=' ' | '"' | '%' | '/' | '\x7F'..='\u{9F}' => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    out.push_str(&format!("%{byte:02x}"));
                }
            }
            '.' if is_dots => out.push_str("%2e"),
            other => out.push(other),
        }
    }
    out
}

/// Names a provider permanently, in its last sector (`glabel label`).
///
/// # Errors
/// The error names the obstacle.
pub fn label(
    graph: &mut Graph,
    name: &str,
    under: ProviderId,
    force: bool,
) -> Result<(), GeomError> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let name = name.strip_prefix("label/").unwrap_or(name);
    let wrong = || {
        let object = if name.is_empty() { "an empty name" } else { name };
        GeomError::invalid(
            object,
            "a label must have 1 to 15 bytes, none of them a control character",
        )
    };
    let label = Name::new(name).ok_or_else(wrong)?;
    guard::last_sector_unless(graph, "LABEL", under, force)?;
    is_free(graph, &format!("label/{}", mangle(name)))?;
    let provider_size = Some(graph[under].media_size);
    let metadata = wire::Label { label, provider_size };
    write_last(graph, under, |sector| metadata.emit(sector))?;
    graph.settle();
    Ok(())
}

/// Names a provider for the life of the graph (`glabel create`).
///
/// # Errors
/// The error names the obstacle.
pub fn create(graph: &mut Graph, name: &str, under: ProviderId) -> Result<(), GeomError> {
    let name = format!("label/{}", mangle(name));
    is_free(graph, &name)?;
    let size = graph[under].media_size;
    put(graph, under, Found { name, what: String::new(), bytes: None, size })?;
    graph.settle();
    Ok(())
}

fn is_free(graph: &Graph, name: &str) -> Result<(), GeomError> {
    match graph.provider(name) {
        Ok(_) => Err(GeomError::new(Kind::Exists, name, "a provider of this name already exists")),
        Err(_) => Ok(()),
    }
}

/// The geom that offers the label `name`, given with or without its folder.
///
/// # Errors
/// If there is none.
pub fn find(graph: &Graph, name: &str) -> Result<GeomId, GeomError> {
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    let with_folder = format!("label/{name}");
    let found = graph.objects().geoms_of("LABEL").find(|(_, geom)| {
        geom.providers.iter().any(|&p| graph[p].name == name || graph[p].name == with_folder)
    });
    found.map(|(id, _)| id).ok_or_else(|| GeomError::not_found(name, "label"))
}

fn put(graph: &mut Graph, under: ProviderId, found: Found) -> Result<(), GeomError> {
    let shape = slice_of(graph, under, 0, found.size);
    let geom = graph[under].name.clone();
    stack(graph, &LABEL, (geom, found.name), under, shape).map(drop)
}

/// The label written by `glabel`.
fn written(graph: &mut Graph, under: ProviderId) -> Result<Option<Found>, Reason> {
    let sector = graph.peek_last(under).map_err(|error| Reason::from(error.to_string()))?;
    let there = &graph[under];
    let bytes = Some((there.last_sector(), wire::LEN as u64));
    if !sector.starts_with(&wire::MAGIC) {
        return Ok(None);
    }
    let label = wire::Label::parse(&sector)
        .map_err(|error| Reason { text: format!("its label is not sound: {error}"), bytes })?;
    let name = format!("label/{}", mangle(label.label.as_str()));
    let size = there.media_size;
    if let Some(other) = label.provider_size.filter(|other| *other != size) {
        let text = format!("{name} is for a provider of {other} bytes, this has {size}");
        return Err(Reason { text, bytes });
    }
    let size = size - u64::from(there.sector_size);
    Ok(Some(Found { name, what: "GEOM::LABEL".into(), bytes, size }))
}

/// Names found in contents that do not come from GEOM.
fn automatic(graph: &mut Graph, under: ProviderId) -> Vec<Found> {
    let size = graph[under].media_size;
    let mut all = Vec::new();
    let mut add = |folder: &str, name: Option<String>, what: &str, bytes| {
        if let Some(name) = name {
            let name = format!("{folder}/{}", mangle(&name));
            all.push(Found { name, what: what.into(), bytes, size });
        }
    };
    if matches!(graph[graph[under].geom].class.name(), "DISK" | "MD") {
        let ident = graph.attribute(under, "GEOM::ident").and_then(super::Value::text);
        add("diskid", ident.map(|ident| format!("DISK-{ident}")), "its serial number", None);
    }
    let is_part = graph[graph[under].geom].class.name() == "PART";
    let scheme = graph.attribute(under, "PART::scheme").and_then(super::Value::text);
    if is_part && scheme.as_deref() == Some("GPT") {
        let text = |name| graph.attribute(under, name).and_then(super::Value::text);
        add("gpt", text("PART::label"), "the name in its entry of the GPT", None);
        add("gptid", text("PART::rawuuid"), "the GUID in its entry of the GPT", None);
    }
    for kind in FileSystem::ALL {
        let mut read = |at: u64, to: &mut [u8]| graph.peek(under, at, to).is_ok();
        let Some(found) = volume::probe(kind, &mut read) else { continue };
        let (what, bytes) = (format!("{} volume", kind.name()), Some((found.at, found.len)));
        let name = found.name.as_str();
        add(kind.folder(), (!name.is_empty()).then(|| name.to_string()), &what, bytes);
        let id = found.id.map(|(high, low)| format!("{high:08x}{low:08x}"));
        add("ufsid", id, &what, bytes);
    }
    all
}

impl Class for Label {
    fn name(&self) -> &'static str {
        "LABEL"
    }

    fn taste(&self, graph: &mut Graph, provider: ProviderId) -> Taste {
        let there = &graph[provider];
        if there.access.write > 0 {
            return Taste::passed("it is open for writing");
        }
        if graph[there.geom].class.name() == "LABEL" {
            return Taste::passed("it is a label itself");
        }
        if let Some(class) = guard::component_of(graph, provider) {
            let text = format!("it is a component of class {class}: names are looked for there");
            return Taste::passed(text);
        }
        let (mut found, mut refused) = (Vec::new(), None);
        match written(graph, provider) {
            Ok(label) => found.extend(label),
            Err(reason) => refused = Some(reason),
        }
        found.extend(automatic(graph, provider));
        let (mut texts, mut bytes) = (Vec::new(), None);
        for label in found {
            let (name, what, at) = (label.name.clone(), label.what.clone(), label.bytes);
            match put(graph, provider, label) {
                Ok(()) => {
                    texts.push(format!("{name} ({what})"));
                    bytes = bytes.or(at);
                }
                Err(error) => refused = Some(Reason { text: error.to_string(), bytes: at }),
            }
        }
        match (texts.is_empty(), refused) {
            (false, _) => Taste::Claimed(Reason { text: texts.join(", "), bytes }),
            (true, Some(reason)) => Taste::Refused(reason),
            (true, None) => Taste::passed("no label, no volume with a name"),
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
        let Object::Provider(provider) = object else { return Vec::new() };
        let there = &graph[provider];
        vec![
            ("index", "0".into()),
            ("length", there.media_size.to_string()),
            ("seclength", there.sectors().to_string()),
            ("offset", "0".into()),
            ("secoffset", "0".into()),
        ]
    }
}

impl Requests for Label {
    fn start(
        &self,
        graph: &mut Graph,
        provider: ProviderId,
        io: Io<'_>,
    ) -> Result<(), block::BlockError> {
        pass(graph, provider, io, 0)
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
        Ok(pass_route(graph, provider, 0))
    }
}

//! `diskinfo`: sizes of providers and the identification of their disks, as diskinfo(8).

use flysch_geom::ProviderId;
use serde_json::{Value, json};

use super::session::Session;
use super::text::human;
use crate::failure::Failure;
use crate::output::Output;

/// Options of `geom diskinfo`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Print only the physical path.
    #[arg(short = 'p', conflicts_with = "ident")]
    path: bool,
    /// Print only the serial number.
    #[arg(short = 's')]
    ident: bool,
    /// The providers.
    #[arg(required = true)]
    providers: Vec<String>,
}

/// Shows providers; with `-v` one line per property.
pub(super) fn run(
    session: &Session,
    arguments: &Arguments,
    output: &mut Output,
) -> Result<(), Failure> {
    let named = arguments.providers.iter().map(|name| Ok((name, session.provider(name)?)));
    let named: Vec<(&String, ProviderId)> = named.collect::<Result<_, Failure>>()?;
    if output.json() {
        let all: Vec<Value> = named.iter().map(|(_, it)| value(session, *it)).collect();
        return output.value(&all);
    }
    for (name, provider) in named {
        let text = |attribute: &str| session.graph.attribute(provider, attribute);
        let only = match (arguments.path, arguments.ident) {
            (true, _) => Some(("GEOM::physpath", "physical path")),
            (_, true) => Some(("GEOM::ident", "serial number")),
            _ => None,
        };
        match only {
            Some((attribute, what)) => {
                let found = text(attribute).and_then(|it| it.text());
                let none = || Failure::failed(format!("{name}: has no {what}"));
                output.line(found.ok_or_else(none)?)?;
            }
            None if session.verbose => long(session, (name, provider), output)?,
            None => short(session, (name, provider), output)?,
        }
    }
    Ok(())
}

/// Heads and sectors per track reported by a disk.
fn geometry(session: &Session, provider: ProviderId) -> Option<(u64, u64)> {
    let number = |name: &str| session.graph.attribute(provider, name)?.number();
    let (heads, sectors) = (number("GEOM::fwheads")?, number("GEOM::fwsectors")?);
    (heads > 0 && sectors > 0).then_some((heads, sectors))
}

/// One line: name, sector, bytes, sectors, stripe and its offset, and the geometry if there is one.
fn short(
    session: &Session,
    (name, provider): (&str, ProviderId),
    output: &mut Output,
) -> Result<(), Failure> {
    let it = &session.graph[provider];
    let mut line = format!(
        "{name}\t{}\t{}\t{}\t{}\t{}",
        it.sector_size,
        it.media_size,
        it.sectors(),
        it.stripe_size,
        it.stripe_offset
    );
    if let Some((heads, sectors)) = geometry(session, provider) {
        line += &format!("\t{}\t{heads}\t{sectors}", it.sectors() / heads / sectors);
    }
    output.line(line)
}

/// A disk's identification, with labels.
const TEXTS: [(&str, &str); 6] = [
    ("GEOM::descr", "Disk descr."),
    ("GEOM::ident", "Disk ident."),
    ("GEOM::lunid", "Logical unit identifier"),
    ("GEOM::lunname", "Logical unit name"),
    ("GEOM::rotationrate", "Rotation rate in RPM"),
    ("GEOM::physpath", "Physical path"),
];

fn long(
    session: &Session,
    (name, provider): (&str, ProviderId),
    output: &mut Output,
) -> Result<(), Failure> {
    let it = &session.graph[provider];
    output.line(name)?;
    let mut rows = vec![
        (it.sector_size.to_string(), "sectorsize".to_string()),
        (it.media_size.to_string(), format!("mediasize in bytes ({})", human(it.media_size))),
        (it.sectors().to_string(), "mediasize in sectors".into()),
        (it.stripe_size.to_string(), "stripesize".into()),
        (it.stripe_offset.to_string(), "stripeoffset".into()),
    ];
    if let Some((heads, sectors)) = geometry(session, provider) {
        let cylinders = it.sectors() / heads / sectors;
        for (number, what) in [(cylinders, "Cylinders"), (heads, "Heads"), (sectors, "Sectors")] {
            rows.push((number.to_string(), format!("{what} according to firmware.")));
        }
    }
    for (attribute, what) in TEXTS {
        let told = session.graph.attribute(provider, attribute).map(|value| value.to_string());
        rows.extend(told.filter(|it| !it.is_empty()).map(|text| (text, what.to_string())));
    }
    for (value, what) in rows {
        output.line(format!("\t{value:<12}\t# {what}"))?;
    }
    output.line("")
}

fn value(session: &Session, provider: ProviderId) -> Value {
    let it = &session.graph[provider];
    let mut value = json!({
        "name": it.name,
        "sectorsize": it.sector_size,
        "mediasize": it.media_size,
        "sectors": it.sectors(),
        "stripesize": it.stripe_size,
        "stripeoffset": it.stripe_offset,
    });
    if let Some((heads, sectors)) = geometry(session, provider) {
        value["fwheads"] = heads.into();
        value["fwsectors"] = sectors.into();
    }
    for (attribute, _) in TEXTS {
        if let Some(text) = session.graph.attribute(provider, attribute) {
            value[attribute.trim_start_matches("GEOM::")] = text.to_string().into();
        }
    }
    value
}

//! `dump`: the metadata in the last sector of providers, as FreeBSD's tools print it.

use flysch_wire::geom::{cache, concat, label, mirror, stripe};
use serde_json::{Map, Value, json};

use super::session::Session;
use crate::failure::Failure;
use crate::output::Output;

/// What can be done with classes that have their own metadata.
#[derive(Clone, Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Print the metadata of providers, even if nobody uses them.
    Dump {
        /// The providers.
        #[arg(required = true)]
        providers: Vec<String>,
    },
}

/// Names and values, in FreeBSD's order.
type Fields = Vec<(&'static str, String)>;

/// Prints what the class of this name wrote to the providers.
pub(super) fn run(
    session: &mut Session,
    class: &str,
    verb: &Verb,
    output: &mut Output,
) -> Result<(), Failure> {
    let Verb::Dump { providers } = verb;
    let mut all = Vec::new();
    for name in providers {
        let provider = session.provider(name)?;
        let sector = session.graph.peek_last(provider).map_err(|error| session.failure(error))?;
        let fields = fields(class, &sector).map_err(|error| {
            let is_other = flysch_wire::geom::class_of_magic(&sector) != Some(class);
            let why = match is_other {
                true => format!("there is no metadata of {class} in its last sector"),
                false => format!("its metadata of {class} is not sound: {error}"),
            };
            Failure::failed(format!("{name}: {why}"))
        })?;
        all.push((name, fields));
    }
    if output.json() {
        let object = |(name, fields): &(&String, Fields)| {
            let fields = fields.iter().map(|(key, value)| {
                let number = value.parse::<u64>().map(|number| json!(number));
                (key.trim().to_string(), number.unwrap_or_else(|_| json!(value)))
            });
            json!({ "provider": name, "metadata": fields.collect::<Map<String, Value>>() })
        };
        return output.value(&all.iter().map(object).collect::<Vec<_>>());
    }
    for (name, fields) in all {
        output.line(format!("Metadata on {name}:"))?;
        for (key, value) in fields {
            output.line(format!("{key}: {value}"))?;
        }
        output.line("")?;
    }
    Ok(())
}

fn fields(class: &str, sector: &[u8]) -> Result<Fields, flysch_wire::WireError> {
    let magic = flysch_wire::geom::text(&sector[..16]).unwrap_or_default().to_string();
    let version = u32::from_le_bytes([sector[16], sector[17], sector[18], sector[19]]);
    let version = version.to_string();
    Ok(match class {
        "MIRROR" => of_mirror(&mirror::Mirror::parse(sector)?, (magic, version), sector),
        "STRIPE" => of_stripe(&stripe::Stripe::parse(sector)?, (magic, version)),
        "CONCAT" => of_concat(&concat::Concat::parse(sector)?, (magic, version)),
        "CACHE" => {
            let it = cache::Cache::parse(sector)?;
            vec![
                ("         Magic string", magic),
                ("     Metadata version", version),
                ("          Device name", it.name.to_string()),
                ("           Block size", it.block_size.to_string()),
                ("           Cache size", it.size.to_string()),
                ("        Provider size", it.provider_size.to_string()),
            ]
        }
        _ => {
            let it = label::Label::parse(sector)?;
            vec![
                ("    Magic string", magic),
                ("Metadata version", version),
                ("           Label", it.label.to_string()),
            ]
        }
    })
}

fn of_stripe(it: &stripe::Stripe, (magic, version): (String, String)) -> Fields {
    vec![
        ("         Magic string", magic),
        ("     Metadata version", version),
        ("          Device name", it.name.to_string()),
        ("            Device ID", it.id.to_string()),
        ("          Disk number", it.number.to_string()),
        ("Total number of disks", it.all.to_string()),
        ("          Stripe size", it.stripe_size.to_string()),
        ("   Hardcoded provider", it.provider.map_or_else(String::new, |it| it.to_string())),
    ]
}

fn of_concat(it: &concat::Concat, (magic, version): (String, String)) -> Fields {
    vec![
        ("         Magic string", magic),
        ("     Metadata version", version),
        ("          Device name", it.name.to_string()),
        ("            Device ID", it.id.to_string()),
        ("          Disk number", it.number.to_string()),
        ("Total number of disks", it.all.to_string()),
        ("   Hardcoded provider", it.provider.map_or_else(String::new, |it| it.to_string())),
    ]
}

/// The names of the flags that are set, each preceded by a blank.
fn flags(bits: u64, names: &[(&str, u64)]) -> String {
    let set: Vec<&str> =
        names.iter().filter(|(_, bit)| bits & bit != 0).map(|(name, _)| *name).collect();
    if bits == 0 { "NONE".into() } else { set.join(" ") }
}

fn of_mirror(it: &mirror::Mirror, (magic, version): (String, String), sector: &[u8]) -> Fields {
    let whole =
        [("NOFAILSYNC", mirror::flags::NO_FAIL_SYNC), ("NOAUTOSYNC", mirror::flags::NO_AUTO_SYNC)];
    let disk = [
        ("DIRTY", mirror::disk_flags::DIRTY),
        ("SYNCHRONIZING", mirror::disk_flags::SYNCHRONIZING),
        ("FORCE_SYNC", mirror::disk_flags::FORCE_SYNC),
        ("INACTIVE", mirror::disk_flags::INACTIVE),
    ];
    // The sum lies behind all fields that a version has.
    let sum = match &version[..] {
        "0" | "1" => 107,
        "2" => 111,
        _ => 119,
    };
    let sum = sector[sum..sum + 16].iter().map(|byte| format!("{byte:02x}"));
    vec![
        ("     magic", magic),
        ("   version", version),
        ("      name", it.name.to_string()),
        ("       mid", it.id.to_string()),
        ("       did", it.disk_id.to_string()),
        ("       all", it.all.to_string()),
        ("     genid", it.gen_id.to_string()),
        ("    syncid", it.sync_id.to_string()),
        ("  priority", it.priority.to_string()),
        ("     slice", it.slice.to_string()),
        ("   balance", it.balance.name().into()),
        (" mediasize", it.media_size.to_string()),
        ("sectorsize", it.sector_size.to_string()),
        ("syncoffset", it.sync_offset.to_string()),
        ("    mflags", flags(it.flags, &whole)),
        ("    dflags", flags(it.disk_flags, &disk)),
        ("hcprovider", it.provider.map_or_else(String::new, |it| it.to_string())),
        ("  provsize", it.provider_size.to_string()),
        ("  MD5 hash", sum.collect()),
    ]
}

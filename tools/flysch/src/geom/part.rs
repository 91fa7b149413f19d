//! `geom part`: partition tables, as gpart(8).

mod show;

use std::path::PathBuf;

use flysch_geom::GeomId;
use flysch_geom::class::part::{self, Add, Backup, Change, Flags, Scheme};

use super::session::Session;
use super::{list, text};
use crate::failure::Failure;
use crate::output::Output;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Add a partition.
    Add(AddArguments),
    /// Print a table in the format that `restore` reads.
    Backup {
        /// The disk.
        geom: String,
    },
    /// Put boot code in front of a table or into a partition.
    Bootcode(Bootcode),
    /// Write pending changes made with `-f x`.
    Commit {
        /// The disk.
        geom: String,
    },
    /// Create a table.
    Create {
        /// GPT, MBR, EBR or BSD.
        #[arg(short = 's', value_parser = scheme)]
        scheme: Scheme,
        /// Number of entries.
        #[arg(short = 'n')]
        entries: Option<u32>,
        #[command(flatten)]
        flags: When,
        /// The disk, or partition.
        provider: String,
    },
    /// Remove a partition.
    Delete {
        /// Its number.
        #[arg(short = 'i')]
        index: u32,
        #[command(flatten)]
        flags: When,
        /// The disk.
        geom: String,
    },
    /// Remove a table.
    Destroy {
        /// Also if it has partitions.
        #[arg(short = 'F')]
        force: bool,
        #[command(flatten)]
        flags: When,
        /// The disk.
        geom: String,
    },
    /// Change type or name of a partition.
    Modify {
        /// Its number.
        #[arg(short = 'i')]
        index: u32,
        /// A new name.
        #[arg(short = 'l')]
        label: Option<String>,
        /// A new type.
        #[arg(short = 't')]
        kind: Option<String>,
        #[command(flatten)]
        flags: When,
        /// The disk.
        geom: String,
    },
    /// Repair a GPT whose copies differ, are damaged, or are in the wrong place.
    Recover {
        #[command(flatten)]
        flags: When,
        /// The disk.
        geom: String,
    },
    /// Resize a partition.
    Resize {
        /// Its number.
        #[arg(short = 'i')]
        index: u32,
        /// Sectors, or a size; default: all the free space behind it.
        #[arg(short = 's')]
        size: Option<String>,
        /// Alignment of its end: sectors, or a size.
        #[arg(short = 'a')]
        alignment: Option<String>,
        #[command(flatten)]
        flags: When,
        /// The disk.
        geom: String,
    },
    /// Create tables from a backup on standard input.
    Restore {
        /// Also if there is a table already.
        #[arg(short = 'F')]
        force: bool,
        /// Restore names too.
        #[arg(short = 'l')]
        labels: bool,
        #[command(flatten)]
        flags: When,
        /// The disks.
        #[arg(required = true)]
        providers: Vec<String>,
    },
    /// Set an attribute: for a GPT partition bootme, bootonce, bootfailed, legacyboot; for a whole
    /// GPT active, lenovofix; for an MBR partition active.
    Set(Attribute),
    /// Clear an attribute.
    Unset(Attribute),
    /// Show tables.
    Show(show::Arguments),
    /// Discard pending changes made with `-f x`.
    Undo {
        /// The disk.
        geom: String,
    },
    #[command(flatten)]
    Common(list::Verb),
}

/// When a change is written.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct When {
    /// `C`: write at once; anything else: wait for `commit` (useful in a script).
    #[arg(short = 'f', value_name = "FLAGS", default_value = "C")]
    flags: String,
}

/// Options of `geom part add`.
#[derive(Debug, clap::Args)]
pub(super) struct AddArguments {
    /// Its type, such as `freebsd-ufs`, `linux-data`, `efi`; `!` followed by the type as the table
    /// stores it.
    #[arg(short = 't')]
    kind: String,
    /// Alignment of start and size: sectors, or a size.
    #[arg(short = 'a')]
    alignment: Option<String>,
    /// First sector, or a size.
    #[arg(short = 'b')]
    start: Option<String>,
    /// Sectors, or a size.
    #[arg(short = 's')]
    size: Option<String>,
    /// Its number.
    #[arg(short = 'i')]
    index: Option<u32>,
    /// Its name.
    #[arg(short = 'l')]
    label: Option<String>,
    #[command(flatten)]
    flags: When,
    /// The disk.
    geom: String,
}

/// Options of `geom part bootcode`.
#[derive(Debug, clap::Args)]
pub(super) struct Bootcode {
    /// A file with the code in front of the table.
    #[arg(short = 'b', value_name = "FILE")]
    boot: Option<PathBuf>,
    /// A file with the contents of a partition.
    #[arg(short = 'p', value_name = "FILE", requires = "index")]
    partition: Option<PathBuf>,
    /// The number of that partition.
    #[arg(short = 'i')]
    index: Option<u32>,
    /// The file has its own serial number for the MBR, or code in its place.
    #[arg(short = 'N')]
    with_serial: bool,
    #[command(flatten)]
    flags: When,
    /// The disk.
    geom: String,
}

/// Options of `geom part set` and `unset`.
#[derive(Debug, clap::Args)]
pub(super) struct Attribute {
    /// The attribute.
    #[arg(short = 'a')]
    attribute: String,
    /// The partition's number; without it, the attribute belongs to the whole table.
    #[arg(short = 'i')]
    index: Option<u32>,
    #[command(flatten)]
    flags: When,
    /// The disk.
    geom: String,
}

fn scheme(text: &str) -> Result<Scheme, String> {
    Scheme::of(text).ok_or_else(|| format!("`{text}` is not one of GPT, MBR, EBR, BSD, BSD64"))
}

impl When {
    fn flags(&self, session: &Session) -> Flags {
        Flags { commit: self.flags.contains('C'), force: session.force }
    }
}

/// The table on a disk.
fn find(session: &Session, name: &str) -> Result<GeomId, Failure> {
    // No cause: what is missing is looked for anew, and why.
    session.graph.geom("PART", name).map_err(|_| {
        if let Err(missing) = session.graph.provider(name) {
            return session.failure(missing);
        }
        let verdicts = session.graph.record.verdicts();
        let wanted = name.strip_prefix("/dev/").unwrap_or(name);
        let verdict = verdicts.filter(|v| v.class == "PART" && v.provider == wanted).last();
        let why = verdict.map_or_else(String::new, |v| format!(" ({})", v.taste.reason().text));
        let remedy = "make one with `part create`";
        Failure::failed(format!("{wanted}: there is no partition table{why}; {remedy}"))
    })
}

fn read(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::of(path.display(), error))
}

/// A number of sectors of the disk under a table.
fn sectors(
    session: &Session,
    geom: GeomId,
    given: Option<&String>,
) -> Result<Option<u64>, Failure> {
    let under = session.graph.objects().under(geom);
    let sector = under.map_or(512, |under| session.graph[under].sector_size);
    given.map(|given| text::sectors(given, sector).map_err(Failure::usage)).transpose()
}

/// Executes the verb.
pub(super) fn run(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let said = match verb {
        Verb::Common(verb) => return list::run(session, "PART", verb, output),
        Verb::Show(arguments) => return show::run(session, arguments, output),
        Verb::Backup { geom } => {
            let geom = find(session, geom)?;
            let backup = part::backup(&session.graph, geom).map_err(|e| session.failure(e))?;
            return output.bytes(backup.to_string().as_bytes());
        }
        Verb::Create { scheme, entries, flags, provider } => {
            let flags = flags.flags(session);
            let under = session.graph.provider(provider).map_err(|e| session.failure(e))?;
            let made = part::create(&mut session.graph, under, (*scheme, *entries), flags);
            made.map(|geom| format!("{} created", session.graph[geom].name))
        }
        Verb::Restore { force, labels, flags, providers } => {
            let flags = Flags { force: *force || session.force, ..flags.flags(session) };
            return restore(session, providers, (*labels, flags));
        }
        _ => return change(session, verb, output),
    };
    say(session, said, output)
}

fn say(
    session: &Session,
    said: Result<String, flysch_geom::GeomError>,
    output: &mut Output,
) -> Result<(), Failure> {
    let said = said.map_err(|error| session.failure(error))?;
    match (output.json(), said.is_empty()) {
        (true, _) => output.value(&serde_json::json!({ "done": said })),
        (false, true) => Ok(()),
        (false, false) => output.line(said),
    }
}

fn restore(
    session: &mut Session,
    providers: &[String],
    (labels, flags): (bool, Flags),
) -> Result<(), Failure> {
    let text = std::io::read_to_string(std::io::stdin());
    let text = text.map_err(|error| Failure::of("standard input", error))?;
    let backup: Backup = text.parse().map_err(|why: String| Failure::of("standard input", why))?;
    for name in providers {
        let graph = &mut session.graph;
        let done = graph
            .provider(name)
            .and_then(|provider| part::restore(graph, provider, (&backup, labels), flags));
        done.map_err(|error| session.failure(error))?;
    }
    Ok(())
}

/// The verbs that change an existing table.
fn change(session: &mut Session, verb: &Verb, output: &mut Output) -> Result<(), Failure> {
    let name = match verb {
        Verb::Add(AddArguments { geom, .. })
        | Verb::Bootcode(Bootcode { geom, .. })
        | Verb::Set(Attribute { geom, .. })
        | Verb::Unset(Attribute { geom, .. })
        | Verb::Commit { geom }
        | Verb::Undo { geom }
        | Verb::Delete { geom, .. }
        | Verb::Destroy { geom, .. }
        | Verb::Modify { geom, .. }
        | Verb::Recover { geom, .. }
        | Verb::Resize { geom, .. } => geom,
        _ => unreachable!("the other verbs were done"),
    };
    let geom = find(session, name)?;
    let disk = session.graph[geom].name.clone();
    let said = match verb {
        Verb::Add(arguments) => add(session, geom, arguments)?,
        Verb::Bootcode(arguments) => return bootcode(session, geom, arguments, output),
        Verb::Set(set) => attribute(session, geom, (set, true)),
        Verb::Unset(set) => attribute(session, geom, (set, false)),
        Verb::Commit { .. } => part::commit(&mut session.graph, geom).map(|()| String::new()),
        Verb::Undo { .. } => part::undo(&mut session.graph, geom).map(|()| String::new()),
        Verb::Delete { index, flags, .. } => {
            let flags = flags.flags(session);
            let deleted = part::delete(&mut session.graph, geom, *index, flags);
            deleted.map(|name| format!("{name} deleted"))
        }
        Verb::Destroy { force, flags, .. } => {
            let flags = Flags { force: *force || session.force, ..flags.flags(session) };
            let destroyed = part::destroy(&mut session.graph, geom, flags);
            destroyed.map(|()| format!("{disk} destroyed"))
        }
        Verb::Modify { index, label, kind, flags, .. } => {
            let flags = flags.flags(session);
            let change = Change { kind: kind.clone(), label: label.clone() };
            let modified = part::modify(&mut session.graph, geom, (*index, &change), flags);
            modified.map(|name| format!("{name} modified"))
        }
        Verb::Recover { flags, .. } => {
            let flags = flags.flags(session);
            let recovered = part::recover(&mut session.graph, geom, flags);
            recovered.map(|was_needed| match was_needed {
                true => format!("{disk} recovered"),
                false => format!("{disk} recovering is not needed"),
            })
        }
        Verb::Resize { index, size, alignment, flags, .. } => {
            let flags = flags.flags(session);
            let size = sectors(session, geom, size.as_ref())?;
            let alignment = sectors(session, geom, alignment.as_ref())?;
            let resized = part::resize(&mut session.graph, geom, (*index, size, alignment), flags);
            resized.map(|name| format!("{name} resized"))
        }
        _ => unreachable!("the other verbs were done"),
    };
    say(session, said, output)
}

fn add(
    session: &mut Session,
    geom: GeomId,
    arguments: &AddArguments,
) -> Result<Result<String, flysch_geom::GeomError>, Failure> {
    let wanted = Add {
        kind: arguments.kind.clone(),
        start: sectors(session, geom, arguments.start.as_ref())?,
        size: sectors(session, geom, arguments.size.as_ref())?,
        alignment: sectors(session, geom, arguments.alignment.as_ref())?,
        index: arguments.index,
        label: arguments.label.clone(),
    };
    let flags = arguments.flags.flags(session);
    let added = part::add(&mut session.graph, geom, &wanted, flags);
    Ok(added.map(|index| {
        let provider = part::provider_of(&session.graph, geom, index);
        match provider.map(|provider| &session.graph[provider]) {
            Some(it) if it.stripe_size > 0 && it.stripe_offset != 0 => {
                let (name, grid) = (&it.name, it.stripe_size);
                format!("{name} added, but partition is not aligned on {grid} bytes")
            }
            Some(it) => format!("{} added", it.name),
            None => format!("{index} added"),
        }
    }))
}

fn attribute(
    session: &mut Session,
    geom: GeomId,
    (set, value): (&Attribute, bool),
) -> Result<String, flysch_geom::GeomError> {
    let flags = set.flags.flags(session);
    let (graph, attribute) = (&mut session.graph, &set.attribute[..]);
    let name = match set.index {
        Some(index) => part::set_attribute(graph, geom, (index, attribute, value), flags)?,
        None => part::set_table_attribute(graph, geom, (attribute, value), flags)?,
    };
    let word = if value { "set" } else { "unset" };
    Ok(format!("{} {word} on {name}", set.attribute))
}

fn bootcode(
    session: &mut Session,
    geom: GeomId,
    arguments: &Bootcode,
    output: &mut Output,
) -> Result<(), Failure> {
    if arguments.boot.is_none() && arguments.partition.is_none() {
        return Err(Failure::usage("bootcode: needs -b FILE, or -p FILE and -i"));
    }
    let flags = arguments.flags.flags(session);
    let disk = session.graph[geom].name.clone();
    if let Some(path) = &arguments.boot {
        let code = read(path)?;
        let written =
            part::boot_code(&mut session.graph, geom, (&code, arguments.with_serial), flags);
        say(session, written.map(|()| format!("bootcode written to {disk}")), output)?;
    }
    if let (Some(path), Some(index)) = (&arguments.partition, arguments.index) {
        let code = read(path)?;
        let written = part::partition_code(&mut session.graph, geom, (index, &code));
        say(session, written.map(|name| format!("partcode written to {name}")), output)?;
    }
    Ok(())
}

//! Random partition tables, written by one side and read by the other: ours, and sgdisk, sfdisk,
//! parted, fdisk, blkid.

mod makers;

use flysch_random::SplitMix64;
use std::fs::File;
use std::path::Path;
use std::process::Command;

use flysch_geom::class::part::{self, Add, Flags, Scheme};
use flysch_geom::{GeomId, Graph};

use crate::geom::{graph, tool};
use makers::{Maker, Wanted};

/// The tools that judge.
pub const TOOLS: [&str; 5] = ["sgdisk", "sfdisk", "parted", "fdisk", "blkid"];

/// The random numbers of one seed.
struct Dice(SplitMix64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0.modulo(sides)
    }

    fn of<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.roll(from.len() as u64) as usize]
    }
}

/// A partition as everybody sees it: first sector of its content, sectors, type, name, GUID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    start: u64,
    size: u64,
    kind: String,
    name: String,
    uuid: String,
}

const GUIDS: [&str; 6] = [
    "0fc63daf-8483-4772-8e79-3d69d8477de4",
    "c12a7328-f81f-11d2-ba4b-00a0c93ec93b",
    "516e7cb6-6ecf-11d6-8ff8-00022d09712b",
    "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f",
    "a19d880f-05fc-4d3b-a006-743f0f84911e",
    "deadbeef-0123-4567-89ab-0123456789ab",
];
const KINDS: [&str; 6] = ["83", "82", "c", "7", "a5", "fd"];
const NAMES: [&str; 5] = ["", "root", "EFI System", "a-rather-long-name-with-36-characters", "x=1"];

/// One random table; those of odd seeds are written by the others.
///
/// # Errors
/// The first difference.
pub fn try_one(seed: u64, folder: &Path) -> Result<(), String> {
    let mut dice = Dice(SplitMix64::new(seed.wrapping_mul(0x5851_F42D_4C95_7F2D)));
    let path = folder.join(format!("{seed}.img"));
    let sectors = 24_576 + dice.roll(100_000);
    let file = File::create(&path).map_err(|error| error.to_string())?;
    file.set_len(sectors * 512).map_err(|error| error.to_string())?;
    let scheme = if dice.roll(5) < 3 { Scheme::Gpt } else { Scheme::Mbr };
    let done = match seed % 2 {
        0 => ours(&mut dice, scheme, &path, sectors),
        _ => theirs(&mut dice, scheme, &path, sectors),
    };
    let _ = std::fs::remove_file(&path);
    done.map_err(|why| format!("seed {seed}, {}: {why}", scheme.name()))
}

/// What we see: the partitions of the table, and those inside an extended one.
fn seen_by_us(path: &Path) -> Result<Vec<Seen>, String> {
    let (graph, _) = graph(&[path], 1);
    let geom = graph.geom("PART", "d0").map_err(|error| {
        let verdict = graph.record.verdicts().find(|v| v.class == "PART" && v.provider == "d0");
        format!("{error}: {verdict:?}")
    })?;
    let mut all = Vec::new();
    collect(&graph, geom, 0, &mut all);
    all.sort();
    Ok(all)
}

fn collect(graph: &Graph, geom: GeomId, base: u64, all: &mut Vec<Seen>) {
    let Some(table) = part::table(graph, geom) else { return };
    for part in &table.partitions {
        let raw = part.kind.raw();
        let kind = match table.scheme {
            Scheme::Gpt => raw,
            _ => format!("{:x}", raw.parse::<u8>().unwrap_or(0)),
        };
        all.push(Seen {
            start: base + part.data,
            size: part.end + 1 - part.data,
            kind,
            name: part.label.clone(),
            uuid: if table.scheme == Scheme::Gpt { part.unique.to_string() } else { String::new() },
        });
        if part.kind.is_extended()
            && let Some(provider) = part::provider_of(graph, geom, part.index)
            && let Ok(inner) = graph.geom("PART", &graph[provider].name)
        {
            collect(graph, inner, base + part.data, all);
        }
    }
}

/// What sfdisk sees.
fn seen_by_sfdisk(path: &Path) -> Result<Vec<Seen>, String> {
    let json = tool("sfdisk", &["-J"], path)?;
    let json: serde_json::Value =
        serde_json::from_str(&json).map_err(|error| format!("sfdisk -J: {error}"))?;
    let none = Vec::new();
    let list = json["partitiontable"]["partitions"].as_array().unwrap_or(&none);
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let mut all: Vec<Seen> = list
        .iter()
        .map(|part| Seen {
            start: part["start"].as_u64().unwrap_or(0),
            size: part["size"].as_u64().unwrap_or(0),
            kind: text(&part["type"]).to_lowercase(),
            name: text(&part["name"]),
            uuid: text(&part["uuid"]).to_lowercase(),
        })
        .collect();
    all.sort();
    Ok(all)
}

/// Start and size of every partition, as parted sees them.
fn seen_by_parted(path: &Path) -> Result<Vec<(u64, u64)>, String> {
    let printed = {
        let shown = path.to_string_lossy().into_owned();
        let output = Command::new("parted")
            .args(["-ms", &shown, "unit", "s", "print"])
            .output()
            .map_err(|error| format!("parted: {error}"))?;
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let number = |text: &str| text.trim_end_matches('s').parse::<u64>().ok();
    let lines = printed.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        fields.first()?.parse::<u32>().ok()?;
        let (start, end) = (number(fields.get(1)?)?, number(fields.get(2)?)?);
        Some((start, end + 1 - start))
    });
    let mut all: Vec<(u64, u64)> = lines.collect();
    all.sort_unstable();
    Ok(all)
}

fn compare(what: &str, ours: &[Seen], theirs: &[Seen]) -> Result<(), String> {
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{what} differs\n ours   {ours:?}\n theirs {theirs:?}"))
}

/// All of them examine an image.
fn judge(scheme: Scheme, path: &Path) -> Result<(), String> {
    let ours = seen_by_us(path)?;
    compare("sfdisk", &ours, &seen_by_sfdisk(path)?)?;
    let places: Vec<(u64, u64)> = ours.iter().map(|seen| (seen.start, seen.size)).collect();
    let parted = seen_by_parted(path)?;
    if places != parted {
        return Err(format!("parted differs\n ours   {places:?}\n theirs {parted:?}"));
    }
    if scheme == Scheme::Gpt {
        let said = tool("sgdisk", &["-v"], path)?;
        if !said.contains("No problems found") {
            return Err(format!("sgdisk -v: {said}"));
        }
    }
    let said = tool("blkid", &["-p", "-o", "export"], path)?;
    let wanted = if scheme == Scheme::Gpt { "PTTYPE=gpt" } else { "PTTYPE=dos" };
    if said.contains(wanted) { Ok(()) } else { Err(format!("blkid: {said}")) }
}

/// We write: partitions are added where there is room, and some are deleted again.
fn ours(dice: &mut Dice, scheme: Scheme, path: &Path, sectors: u64) -> Result<(), String> {
    let (mut graph, disks) = graph(&[path], dice.roll(u64::MAX));
    let fail = |error: flysch_geom::GeomError| error.to_string();
    let geom =
        part::create(&mut graph, disks[0], (scheme, None), Flags::default()).map_err(fail)?;
    let most = if scheme == Scheme::Gpt { 1 + dice.roll(12) } else { 1 + dice.roll(4) };
    let mut extended = None;
    for _ in 0..most {
        let wants_extended = scheme == Scheme::Mbr && extended.is_none() && dice.roll(2) == 0;
        let kind = match scheme {
            Scheme::Gpt => format!("!{}", dice.of(&GUIDS)),
            _ if wants_extended => "ebr".into(),
            _ => format!("!0x{}", dice.of(&KINDS)),
        };
        let label = (scheme == Scheme::Gpt).then(|| dice.of(&NAMES).to_owned());
        let aligned = dice.roll(2) == 0;
        let add = Add {
            kind,
            start: None,
            size: Some(2048 + dice.roll(sectors / 3)),
            alignment: aligned.then_some(2048),
            index: None,
            label,
        };
        if let Ok(index) = part::add(&mut graph, geom, &add, Flags::default())
            && wants_extended
        {
            extended = Some(index);
        }
    }
    if let Some(index) = extended {
        let missing = || "the extended partition is not offered".to_owned();
        let inner = part::provider_of(&graph, geom, index).ok_or_else(missing)?;
        let kind = (Scheme::Ebr, None);
        let inner = part::create(&mut graph, inner, kind, Flags::default()).map_err(fail)?;
        for _ in 0..dice.roll(5) {
            let kind = format!("!0x{}", dice.of(&KINDS));
            let size = Some(512 + dice.roll(sectors / 8));
            let add = Add { kind, start: None, size, alignment: None, index: None, label: None };
            let _ = part::add(&mut graph, inner, &add, Flags::default());
        }
    } else if dice.roll(3) == 0 {
        let indices: Vec<u32> = part::table(&graph, geom)
            .map(|table| table.partitions.iter().map(|part| part.index).collect())
            .unwrap_or_default();
        if indices.len() > 1 {
            part::delete(&mut graph, geom, indices[0], Flags::default()).map_err(fail)?;
        }
    }
    drop(graph);
    judge(scheme, path)
}

/// One of the others writes.
fn theirs(dice: &mut Dice, scheme: Scheme, path: &Path, sectors: u64) -> Result<(), String> {
    let mut wanted = Vec::new();
    let mut next = 2048;
    let most = if scheme == Scheme::Gpt { 1 + dice.roll(12) } else { 1 + dice.roll(6) };
    let last = sectors - 2048;
    let mut inside = None;
    for number in 0..most {
        let extends = scheme == Scheme::Mbr && inside.is_none() && number == most.min(4) - 1;
        let grid = if inside.is_some() || dice.roll(2) == 0 { 2048 } else { 8 };
        let start: u64 = (next + dice.roll(3) * 2048).next_multiple_of(grid);
        let limit = inside.unwrap_or(last);
        if start + 4096 > limit {
            break;
        }
        let size = if extends { last - start } else { 1024 + dice.roll((limit - start) / 2) };
        let kind = match scheme {
            Scheme::Gpt => dice.of(&GUIDS),
            _ if extends => "f",
            _ => dice.of(&KINDS),
        };
        let (name, is_inside) = (dice.of(&NAMES), inside.is_some());
        wanted.push(Wanted { start, size, kind, name, extends, is_inside });
        if extends {
            inside = Some(start + size);
            next = start + 2048;
        } else {
            next = start + size + if inside.is_some() { 2048 } else { 0 };
        }
    }
    let makers = [Maker::Sfdisk, Maker::Sgdisk, Maker::Parted, Maker::Fdisk];
    let maker = makers[dice.roll(4) as usize];
    let said = makers::make(maker, scheme, &wanted, path)?;
    judge(scheme, path).map_err(|why| format!("{why}\n{said}"))
}

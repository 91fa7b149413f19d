//! The programs with which others write tables: sfdisk, sgdisk, parted, fdisk, each with its own
//! syntax.

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use flysch_geom::class::part::Scheme;

/// A partition to be created.
pub(super) struct Wanted {
    pub(super) start: u64,
    pub(super) size: u64,
    /// A GUID, or a number in hexadecimal.
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    /// It contains the following ones.
    pub(super) extends: bool,
    /// It is inside the one that does.
    pub(super) is_inside: bool,
}

impl Wanted {
    fn last(&self) -> u64 {
        self.start + self.size - 1
    }
}

/// The program that writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Maker {
    Sfdisk,
    Sgdisk,
    Parted,
    Fdisk,
}

/// Writes a table, and returns the input of the program that wrote it.
pub(super) fn make(
    maker: Maker,
    scheme: Scheme,
    wanted: &[Wanted],
    path: &Path,
) -> Result<String, String> {
    let is_gpt = scheme == Scheme::Gpt;
    match maker {
        Maker::Sgdisk if is_gpt => run("sgdisk", &sgdisk(wanted), path, ""),
        Maker::Fdisk => {
            let options = ["--noauto-pt", "-W", "always"].map(String::from);
            run("fdisk", &options, path, &fdisk(is_gpt, wanted))
        }
        Maker::Parted => {
            let (options, behind) = parted(is_gpt, wanted);
            let mut command = Command::new("parted");
            command.args(options).arg(path).args(&behind);
            started("parted", &mut command, "").map(|()| behind.join(" "))
        }
        Maker::Sfdisk | Maker::Sgdisk => {
            let options = ["-q", "--no-reread", "--no-tell-kernel"].map(String::from);
            run("sfdisk", &options, path, &sfdisk(is_gpt, wanted))
        }
    }
}

fn run(program: &str, options: &[String], path: &Path, script: &str) -> Result<String, String> {
    started(program, Command::new(program).args(options).arg(path), script)?;
    Ok(format!("{program} {}\n{script}", options.join(" ")))
}

fn started(program: &str, command: &mut Command, script: &str) -> Result<(), String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
    let mut stdin = child.stdin.take().ok_or("takes no input")?;
    stdin.write_all(script.as_bytes()).map_err(|error| error.to_string())?;
    drop(stdin);
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(()),
        false => {
            let (printed, complaint) = (said(&output.stdout), said(&output.stderr));
            Err(format!("{program} did not write: {complaint}{printed}\n{command:?}\n{script}"))
        }
    }
}

fn sfdisk(is_gpt: bool, wanted: &[Wanted]) -> String {
    let mut script = String::from(if is_gpt { "label: gpt\n" } else { "label: dos\n" });
    for it in wanted {
        let (start, size, kind) = (it.start, it.size, it.kind);
        let name = match it.name {
            name if is_gpt && !name.is_empty() => format!(", name=\"{name}\""),
            _ => String::new(),
        };
        writeln!(script, "start={start}, size={size}, type={kind}{name}").expect("text");
    }
    script
}

fn sgdisk(wanted: &[Wanted]) -> Vec<String> {
    // Creating an empty table restores the usual alignment.
    let mut words = vec!["-o".into(), "-a".into(), "1".into()];
    for (number, it) in (1..).zip(wanted) {
        let (start, last) = (it.start, it.last());
        words.extend(["-n".into(), format!("{number}:{start}:{last}")]);
        words.extend(["-t".into(), format!("{number}:{}", it.kind)]);
        if !it.name.is_empty() {
            words.extend(["-c".into(), format!("{number}:{}", it.name)]);
        }
    }
    words
}

/// The arguments before the image, and those after it. parted chooses the types.
fn parted(is_gpt: bool, wanted: &[Wanted]) -> ([&'static str; 3], Vec<String>) {
    let mut words = vec!["mklabel".into(), if is_gpt { "gpt" } else { "msdos" }.into()];
    for it in wanted {
        let first = match (is_gpt, it.extends, it.is_inside) {
            (true, ..) => format!("\"{}\"", it.name),
            (_, true, _) => "extended".into(),
            (_, _, true) => "logical".into(),
            _ => "primary".into(),
        };
        let place = [format!("{}s", it.start), format!("{}s", it.last())];
        words.extend(["mkpart".into(), first].into_iter().chain(place));
    }
    (["-s", "-a", "none"], words)
}

/// The answers to fdisk's questions: it asks fewer if there is no choice.
fn fdisk(is_gpt: bool, wanted: &[Wanted]) -> String {
    let mut script = String::from(if is_gpt { "g\n" } else { "o\n" });
    for (before, it) in wanted.iter().enumerate() {
        let outside = wanted[..before].iter().filter(|it| !it.is_inside).count();
        let inside = before - outside;
        script.push_str("n\n");
        match (is_gpt, it.is_inside) {
            (false, true) if outside == 4 => {}
            (false, true) => script.push_str("l\n"),
            (false, false) => script.push_str(if it.extends { "e\n" } else { "p\n" }),
            (true, _) => {}
        }
        if is_gpt || !it.is_inside && outside < 3 {
            writeln!(script, "{}", outside + 1).expect("text");
        }
        writeln!(script, "{}\n{}", it.start, it.last()).expect("text");
        if it.extends {
            continue;
        }
        script.push_str("t\n");
        if before > 0 {
            let number = if it.is_inside { 5 + inside } else { outside + 1 };
            writeln!(script, "{number}").expect("text");
        }
        writeln!(script, "{}", it.kind).expect("text");
    }
    script + "w\n"
}

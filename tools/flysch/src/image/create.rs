//! `flysch image create`: UBIFS, JFFS2 and UBI images. Options are spelled as in mkfs.ubifs,
//! mkfs.jffs2 and ubinize.

mod jffs2;
mod ubi;
mod ubifs;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use flysch_api::vfs::Timestamp;
use flysch_image::create::{CreateError, Making, Tree, TreeOptions};
use flysch_rig::size;

use crate::failure::Failure;
use crate::file::{Named, read_text, spare_inputs};
use crate::output::Output;
use crate::progress::Progress;

/// Interval at which the progress bar is updated.
const TICK: Duration = Duration::from_millis(100);
/// The variable that limits times in an image (reproducible-builds.org).
const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// Options of `flysch image create`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(subcommand)]
    format: Format,
}

/// What to create.
#[derive(Debug, clap::Subcommand)]
enum Format {
    /// Create a UBIFS image, with the options of mkfs.ubifs.
    Ubifs(Box<ubifs::Arguments>),
    /// Create a JFFS2 image, with the options of mkfs.jffs2 and sumtool.
    Jffs2(Box<jffs2::Arguments>),
    /// Create a UBI image from volumes in an ini file, with the options of ubinize.
    Ubi(ubi::Arguments),
}

/// Where the files come from.
#[derive(Clone, Debug, clap::Args)]
struct Source {
    /// The directory whose files go into the image.
    #[arg(short, long, short_alias = 'd', value_name = "DIR")]
    root: Option<PathBuf>,
    /// A tar archive whose files go into the image; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    tar: Option<PathBuf>,
    /// A device table: adds devices, directories and pipes, changes owners and permissions.
    #[arg(short = 'D', long, value_name = "FILE")]
    devtable: Option<PathBuf>,
    /// All files belong to root.
    #[arg(short = 'U', long)]
    squash_uids: bool,
    /// Keep access and change times of the source, as mkfs does; by default the time of the last
    /// change of content is used, so that the same files give the same image.
    #[arg(long)]
    all_times: bool,
}

/// The flash an image is for.
#[derive(Debug, clap::Args)]
struct Chip {
    /// Erase blocks of the chip or partition: content that does not fit is refused.
    #[arg(long, value_name = "COUNT", conflicts_with = "chip_size")]
    pebs: Option<u32>,
    /// Bytes of the chip or partition: content that does not fit is refused.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    chip_size: Option<u64>,
}

impl Chip {
    /// Whether its size is given.
    fn is_named(&self) -> bool {
        self.pebs.is_some() || self.chip_size.is_some()
    }

    /// The option that gives it.
    fn option(&self) -> &'static str {
        if self.pebs.is_some() { "--pebs" } else { "--chip-size" }
    }

    /// Erase blocks of `peb_size` bytes.
    fn pebs(&self, peb_size: u32) -> Result<Option<u32>, Failure> {
        let by_size = self.chip_size.map(|size| size / u64::from(peb_size.max(1)));
        match self.pebs.map(u64::from).or(by_size).map(u32::try_from) {
            None => Ok(None),
            Some(Ok(pebs)) if pebs > 0 => Ok(Some(pebs)),
            Some(_) => Err(Failure::usage("the chip has no erase blocks, or too many")),
        }
    }
}

/// Creates an image.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.format {
        Format::Ubifs(arguments) => ubifs::run(arguments, output),
        Format::Jffs2(arguments) => jffs2::run(arguments, output),
        Format::Ubi(arguments) => ubi::run(arguments, output),
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Options(why) => Self::usage(why),
            other => Self::failed(other),
        }
    }
}

impl Source {
    /// Reads the tree. `what` is the other information required by the format's options.
    fn tree(&self, what: TreeOptions, target: Option<&Path>) -> Result<Tree, Failure> {
        if let Some(target) = target {
            spare_inputs(target, [&self.tar, &self.devtable].into_iter().flatten())?;
        }
        let mut options = TreeOptions {
            all_times: self.all_times,
            squash_owners: self.squash_uids || what.squash_owners,
            ..what
        };
        options.latest = what.latest.or(source_date_epoch()?);
        let unknown = Timestamp { seconds: options.latest.unwrap_or(0), nanoseconds: 0 };
        let mut tree = match (&self.root, &self.tar) {
            (Some(root), _) => {
                if let Some(target) = target {
                    check_apart(target, root)?;
                }
                Tree::from_directory(root, &options)?
            }
            (None, Some(tar)) => archive(tar, &options)?,
            (None, None) => Tree::empty(unknown),
        };
        if let Some(path) = &self.devtable {
            let name = path.display().to_string();
            let text = read_text(path)?;
            let time = tree.modified();
            tree.apply_device_table(&name, &text, time)?;
        }
        Ok(tree)
    }
}

fn archive(path: &Path, options: &TreeOptions) -> Result<Tree, Failure> {
    let (name, file) = if path == Path::new("-") {
        let input = rustix::io::dup(io::stdin()).map_err(|error| Failure::of("-", error))?;
        ("standard input".to_string(), File::from(input))
    } else {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| Failure::of(&name, error))?;
        (name, file)
    };
    Ok(Tree::from_archive(&name, file, options)?)
}

/// The environment's limit on times.
fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(value) = std::env::var_os(EPOCH_VARIABLE) else { return Ok(None) };
    let seconds = value.to_str().and_then(|text| text.trim().parse().ok());
    seconds.map(Some).ok_or_else(|| {
        Failure::usage(format!("{EPOCH_VARIABLE} is not a number of seconds since 1970"))
    })
}

/// An image inside its own source would contain itself.
fn check_apart(target: &Path, root: &Path) -> Result<(), Failure> {
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, root.canonicalize()) {
        (Ok(folder), Ok(root)) if folder.starts_with(&root) => Err(Failure::usage(format!(
            "{}: the image would lie in the directory that it is made from; name another place",
            target.display()
        ))),
        _ => Ok(()),
    }
}

/// A number of bytes: `131072`, `0x20000`, `128KiB`, `128k`.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let hex = text.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).ok());
    hex.unwrap_or_else(|| size::parse(text))
        .ok_or_else(|| format!("`{text}` is not a size such as 2048, 0x800, 128KiB or 1M"))
}

/// Like [`parse_bytes`], for the part of a word.
fn parse_word(text: &str) -> Result<u32, String> {
    u32::try_from(parse_bytes(text)?).map_err(|_| format!("`{text}` is too large"))
}

/// Opens the output for an image; without a path it is standard output.
fn target(path: Option<&Path>, output: &mut Output) -> Result<Named, Failure> {
    let target = Named::open_anywhere(path.unwrap_or(Path::new("-")), output)?;
    if target.sink.is_standard_output() && io::stdout().is_terminal() {
        return Err(Failure::usage("an image cannot be written to a terminal: name a file (-o)"));
    }
    Ok(target)
}

/// Writes to it from the start.
fn writer(target: &Named) -> BufWriter<&File> {
    // Whole blocks go past it: a copy of them costs more than the call.
    BufWriter::with_capacity(1 << 16, target.sink.file())
}

/// Runs `work` while a progress bar shows how much of `total` bytes is done.
fn watch<R: Send>(total: u64, making: &Making, work: impl FnOnce() -> R + Send) -> R {
    let mut bar = Progress::bytes("making", Some(total));
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        let worker = scope.spawn(move || {
            let result = work();
            drop(done);
            result
        });
        while is_done.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            bar.set(making.bytes());
        }
        worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The result: JSON, or a line and notes.
fn report(
    json: serde_json::Value,
    (line, notes): (&str, &[String]),
    output: &mut Output,
) -> Result<(), Failure> {
    for note in notes {
        eprintln!("flysch: {note}");
    }
    if output.json() { output.value(&json) } else { output.line(line) }
}

//! `flysch image edit`.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Parser;
use flysch_api::vfs::{Changes, DeviceNumber, FileKind, Timestamp, XattrChange};
use flysch_image::{EditError, Editor, Exclusive, Put, PutOptions, Room};
use serde_json::json;

use super::{Source, parse_offset};
use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch image edit`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = false,
    after_help = "\
The edit is made on a copy that takes the image's place when everything has worked: an image is
the old one or the new one, never half of each. A device (/dev/mtdN) is edited where it is.

With --script several edits are made at once, one on each line, words quoted as the shell does:
    put ./rootfs/etc /etc
    rm -r /var/log
    chmod 600 /etc/shadow"
)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Leave the image as it is and write the edited one here.
    #[arg(short, long, value_name = "FILE", conflicts_with = "in_place")]
    output: Option<PathBuf>,
    /// Edit the file itself, without a copy: for large images; the file systems' own journals
    /// protect it.
    #[arg(long)]
    in_place: bool,
    /// Bytes of the flash the image is for, where it is smaller: there is that much room.
    #[arg(long, value_name = "BYTES", value_parser = parse_offset)]
    flash_size: Option<u64>,
    /// Take edits from this file, `-` for standard input.
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Edit>,
}

/// A line of a script.
#[derive(Debug, clap::Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_help_subcommand = true)]
struct Line {
    #[command(subcommand)]
    edit: Edit,
}

/// One edit. Paths in the image begin at its root.
#[derive(Debug, clap::Subcommand)]
enum Edit {
    /// Put a file or a whole tree from here into the image, as `cp -a` would.
    Put {
        /// The file or directory here; `-` is standard input.
        #[arg(value_name = "FILE")]
        source: PathBuf,
        /// The path in the image; into it, if it is a directory.
        #[arg(value_name = "PATH")]
        path: String,
        /// Owner and group, numbers; else those of the file here.
        #[arg(long, value_name = "UID:GID", value_parser = parse_owner)]
        owner: Option<(u32, u32)>,
        /// Permissions of files, octal; else those of the file here.
        #[arg(long, value_name = "MODE", value_parser = parse_mode)]
        mode: Option<u16>,
    },
    /// Remove a file or an empty directory.
    Rm {
        /// Directories with everything in them.
        #[arg(short, long)]
        recursive: bool,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
    },
    /// Make a directory.
    Mkdir {
        /// Those above it, too; one that is there is no error.
        #[arg(short, long)]
        parents: bool,
        /// Permissions, octal.
        #[arg(short, long, value_name = "MODE", value_parser = parse_mode, default_value = "755")]
        mode: u16,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
    },
    /// Move or rename a file; what has the new name is replaced.
    Mv {
        /// The path it has.
        #[arg(value_name = "FROM")]
        from: String,
        /// The path it gets; into it, if it is a directory.
        #[arg(value_name = "TO")]
        to: String,
    },
    /// Give a file one more name, or make a symlink.
    Ln {
        /// A symlink: what it leads to is taken as it is.
        #[arg(short, long)]
        symbolic: bool,
        /// The file, or what the symlink leads to.
        #[arg(value_name = "TARGET")]
        target: String,
        /// The new name.
        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Make a device node (b or c with MAJOR MINOR), a FIFO (p) or a socket (s).
    Mknod {
        /// Permissions, octal.
        #[arg(short, long, value_name = "MODE", value_parser = parse_mode, default_value = "644")]
        mode: u16,
        /// The path in the image.
        #[arg(value_name = "PATH")]
        path: String,
        /// What: b, c, p or s.
        #[arg(value_name = "KIND", value_parser = parse_kind)]
        kind: FileKind,
        /// Device number.
        #[arg(value_name = "MAJOR", requires = "minor")]
        major: Option<u32>,
        /// Device number.
        #[arg(value_name = "MINOR")]
        minor: Option<u32>,
    },
    /// Change permissions.
    Chmod {
        /// Everything below, too.
        #[arg(short, long)]
        recursive: bool,
        /// Permissions, octal.
        #[arg(value_name = "MODE", value_parser = parse_mode)]
        mode: u16,
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
    },
    /// Change owner and group.
    Chown {
        /// Everything below, too.
        #[arg(short, long)]
        recursive: bool,
        /// Owner and group, numbers.
        #[arg(value_name = "UID:GID", value_parser = parse_owner)]
        owner: (u32, u32),
        /// Paths in the image.
        #[arg(value_name = "PATH", required = true)]
        paths: Vec<String>,
    },
    /// Cut a file, or make it longer by a hole.
    Truncate {
        /// Its length then.
        #[arg(short, long, value_name = "BYTES", value_parser = parse_offset)]
        size: u64,
        /// The path in the image.
        #[arg(value_name = "PATH")]
        path: String,
    },
    /// Set an extended attribute, or remove it.
    Setfattr {
        /// Its full name, such as user.comment.
        #[arg(short, long, value_name = "NAME")]
        name: String,
        /// Its value; 0x and hexadecimal digits for bytes.
        #[arg(short, long, value_name = "VALUE", value_parser = parse_value)]
        value: Option<Value>,
        /// Remove it.
        #[arg(short = 'x', long, conflicts_with = "value", required_unless_present = "value")]
        remove: bool,
        /// The path in the image.
        #[arg(value_name = "PATH")]
        path: String,
    },
}

/// Value of an extended attribute.
#[derive(Clone, Debug)]
struct Value(Vec<u8>);

fn parse_mode(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o7777);
    mode.ok_or_else(|| format!("`{text}` is no octal mode such as 644 or 4755"))
}

fn parse_owner(text: &str) -> Result<(u32, u32), String> {
    let numbers = text
        .split_once(':')
        .and_then(|(owner, group)| Some((owner.parse().ok()?, group.parse().ok()?)));
    numbers.ok_or_else(|| format!("`{text}` is no pair of numbers such as 0:0"))
}

fn parse_kind(text: &str) -> Result<FileKind, String> {
    match text {
        "b" => Ok(FileKind::BlockDevice),
        "c" => Ok(FileKind::CharacterDevice),
        "p" => Ok(FileKind::Fifo),
        "s" => Ok(FileKind::Socket),
        _ => Err(format!("`{text}` is none of b, c, p and s")),
    }
}

fn parse_value(text: &str) -> Result<Value, String> {
    let Some(digits) = text.strip_prefix("0x") else { return Ok(Value(text.into())) };
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    bytes.map(Value).ok_or_else(|| format!("`{text}` is no even number of hexadecimal digits"))
}

/// Edits.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    let edits = match (&arguments.command, &arguments.script) {
        (Some(_), Some(_)) => return Err(Failure::usage("--script: an edit is named already")),
        (Some(_), None) => vec![],
        (None, Some(script)) => read_script(script)?,
        (None, None) => return Err(Failure::usage("nothing to do: name an edit, or --script")),
    };
    let edits: Vec<(usize, &Edit)> = match &arguments.command {
        Some(edit) => vec![(0, edit)],
        None => edits.iter().map(|(line, edit)| (*line, edit)).collect(),
    };
    let room = Room {
        flash_size: arguments.flash_size,
        bytes: Some(edits.iter().map(|(_, edit)| edit.bytes()).sum()),
    };
    let path = &arguments.source.path;
    // Nobody may change the image while a copy of it is, which then takes its place.
    let _lock = match arguments.in_place || !path.is_file() {
        true => None,
        false => Some(Exclusive::of(path).map_err(|error| Failure::of(path.display(), error))?),
    };
    let target = Target::of(arguments)?;
    let fs = arguments.source.open_writable(target.path(), &room)?;
    let mut put = Put::default();
    {
        let shared = fs.file_system();
        let mut locked = shared.write().expect("nobody else has it");
        let mut editor = Editor::new(&mut *locked, now()?);
        for (line, edit) in &edits {
            edit.apply(&mut editor, &mut put).map_err(|error| match line {
                0 => Failure::of(arguments.source.path.display(), error),
                line => Failure::failed(format!("line {line}: {error}")),
            })?;
        }
        let fail = |error: EditError| Failure::of(arguments.source.path.display(), error);
        editor.finish().map_err(fail)?;
    }
    fs.close().map_err(|error| Failure::of(arguments.source.path.display(), error))?;
    target.keep()?;
    report(edits.len(), &put, output)
}

fn report(edits: usize, put: &Put, output: &mut Output) -> Result<(), Failure> {
    if output.json() {
        return output.value(&json!({
            "edits": edits,
            "files_put": put.files,
            "bytes_put": put.bytes,
            "attributes_left_out": put.without_xattr,
        }));
    }
    if put.without_xattr > 0 {
        let count = put.without_xattr;
        eprintln!(
            "flysch: {count} extended attributes were left out: the format can not hold them"
        );
    }
    Ok(())
}

/// The time edits are dated: SOURCE_DATE_EPOCH, so that a build can be repeated, or now.
fn now() -> Result<Timestamp, Failure> {
    if let Some(set) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let seconds = set.to_str().and_then(|text| text.parse().ok());
        let wrong = || Failure::usage("SOURCE_DATE_EPOCH: not a number of seconds");
        return Ok(Timestamp { seconds: seconds.ok_or_else(wrong)?, nanoseconds: 0 });
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Ok(Timestamp { seconds, nanoseconds: since.subsec_nanos() })
}

fn read_script(path: &Path) -> Result<Vec<(usize, Edit)>, Failure> {
    let mut text = String::new();
    let read = match path.as_os_str().as_bytes() {
        b"-" => std::io::stdin().read_to_string(&mut text),
        _ => std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map_err(|error| Failure::of(path.display(), error))?;
    let mut edits = vec![];
    for (index, line) in text.lines().enumerate() {
        let at = index + 1;
        let wrong = |what: String| Failure::usage(format!("{}: line {at}: {what}", path.display()));
        let words = shlex::split(line).ok_or_else(|| wrong("a quote is not closed".into()))?;
        if words.is_empty() {
            continue;
        }
        let line = Line::try_parse_from(words).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            wrong(first.trim_start_matches("error: ").to_owned())
        })?;
        edits.push((at, line.edit));
    }
    if edits.is_empty() {
        return Err(Failure::usage(format!("{}: there is no edit in it", path.display())));
    }
    Ok(edits)
}

impl Edit {
    /// Bytes it brings into the image, about.
    fn bytes(&self) -> u64 {
        match self {
            Self::Put { source, .. } if source.as_os_str() != "-" => {
                flysch_image::tree_bytes(source)
            }
            // Standard input tells nothing; names and attributes need little.
            Self::Put { .. } => 4 << 20,
            _ => 16 << 10,
        }
    }

    fn apply(&self, editor: &mut Editor<'_>, put: &mut Put) -> Result<(), EditError> {
        match self {
            Self::Put { source, path, owner, mode } => {
                let options = PutOptions { owner: *owner, permissions: *mode };
                let one = match source.as_os_str().as_bytes() {
                    b"-" => editor.put_content(&mut std::io::stdin(), path.as_bytes(), options)?,
                    _ => editor.put(source, path.as_bytes(), options)?,
                };
                put.files += one.files;
                put.bytes += one.bytes;
                put.without_xattr += one.without_xattr;
                Ok(())
            }
            Self::Rm { recursive, paths } => each(paths, |path| editor.remove(path, *recursive)),
            Self::Mkdir { parents, mode, paths } => {
                each(paths, |path| editor.make_directory(path, *mode, *parents))
            }
            Self::Mv { from, to } => editor.rename(from.as_bytes(), to.as_bytes()),
            Self::Ln { symbolic: true, target, path } => {
                editor.symlink(target.as_bytes(), path.as_bytes())
            }
            Self::Ln { target, path, .. } => editor.link(target.as_bytes(), path.as_bytes()),
            Self::Mknod { mode, path, kind, major, minor } => {
                let device = DeviceNumber {
                    major: major.unwrap_or_default(),
                    minor: minor.unwrap_or_default(),
                };
                editor.make(path.as_bytes(), *kind, *mode, device)
            }
            Self::Chmod { recursive, mode, paths } => {
                let changes = Changes { permissions: Some(*mode), ..Changes::default() };
                each(paths, |path| editor.change(path, &changes, *recursive))
            }
            Self::Chown { recursive, owner: (owner, group), paths } => {
                let (owner, group) = (Some(*owner), Some(*group));
                let changes = Changes { owner, group, ..Changes::default() };
                each(paths, |path| editor.change(path, &changes, *recursive))
            }
            Self::Truncate { size, path } => {
                let changes = Changes { size: Some(*size), ..Changes::default() };
                editor.change(path.as_bytes(), &changes, false)
            }
            Self::Setfattr { name, value, path, .. } => {
                let change = value
                    .as_ref()
                    .map_or(XattrChange::Remove, |Value(value)| XattrChange::Set(value));
                editor.set_xattr(path.as_bytes(), name.as_bytes(), change)
            }
        }
    }
}

fn each(
    paths: &[String],
    mut edit: impl FnMut(&[u8]) -> Result<(), EditError>,
) -> Result<(), EditError> {
    paths.iter().try_for_each(|path| edit(path.as_bytes()))
}

/// The file that is edited.
enum Target {
    /// The image itself.
    Itself(PathBuf),
    /// A copy, and where it goes in the end.
    Copy(tempfile::TempPath, PathBuf),
}

impl Target {
    fn of(arguments: &Arguments) -> Result<Self, Failure> {
        let image = &arguments.source.path;
        let fail = |error| Failure::of(image.display(), error);
        let metadata = std::fs::metadata(image).map_err(fail)?;
        if !metadata.is_file() || arguments.in_place {
            if let (false, Some(_)) = (metadata.is_file(), &arguments.output) {
                return Err(Failure::usage("--output: a device is edited where it is"));
            }
            return Ok(Self::Itself(image.clone()));
        }
        // Where a link leads, so that the link stays one.
        let last = match &arguments.output {
            Some(output) => output.clone(),
            None => image.canonicalize().map_err(fail)?,
        };
        let folder = last.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let fail = |error| Failure::of(folder.display(), error);
        let copy = tempfile::NamedTempFile::new_in(folder).map_err(fail)?.into_temp_path();
        std::fs::copy(image, &copy).map_err(|error| Failure::of(image.display(), error))?;
        Ok(Self::Copy(copy, last))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Itself(path) => path,
            Self::Copy(copy, _) => copy,
        }
    }

    /// Everything worked.
    fn keep(self) -> Result<(), Failure> {
        match self {
            Self::Itself(_) => Ok(()),
            Self::Copy(copy, last) => {
                let fail = |error: std::io::Error| Failure::of(last.display(), error);
                std::fs::File::open(&copy).and_then(|file| file.sync_all()).map_err(fail)?;
                copy.persist(&last).map_err(|error| fail(error.error))
            }
        }
    }
}

//! `flysch image`: opens, lists, extracts, checks and mounts flash images.

mod check;
mod create;
mod edit;
mod extract;
mod list;
mod mount;
mod repair;
mod show;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use flysch_image::{
    EccScheme, HashAlgorithm, Image, ImageOpenOptions, ImageVolume, KeyFile, Room,
    SharedFileSystem, Writable,
};
use flysch_rig::size;

use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch image`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// What to do with an image.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Show what an image is: geometry, volumes, parameters of its file systems.
    Info(Source),
    /// List files in the format of `ls -lR`.
    Ls(list::Arguments),
    /// Print a file.
    Cat(Cat),
    /// Extract files with owners, permissions, times, links, devices and attributes.
    Extract(extract::Arguments),
    /// Verify every checksum and rule; exit with status 1 if anything is wrong.
    Check(Source),
    /// Make a UBIFS, JFFS2 or UBI image.
    Create(create::Arguments),
    /// Change files inside an image without unpacking it.
    Edit(edit::Arguments),
    /// Repair a damaged file system in an image, as fsck does.
    Repair(repair::Arguments),
    /// Mount an image, read-only unless --rw is given; Ctrl-C unmounts it.
    Mount(mount::Arguments),
}

/// The path that means standard input.
const STANDARD_INPUT: &str = "-";

/// An image, and what the user knows about it.
#[derive(Clone, Debug, clap::Args)]
struct Source {
    /// The image: UBI, UBIFS, JFFS2, with or without out-of-band bytes; - is standard input.
    #[arg(value_name = "IMAGE")]
    path: PathBuf,
    /// Only this volume, by name or ID.
    #[arg(long, value_name = "VOLUME")]
    volume: Option<String>,
    /// Bytes of an erase block, if detection is wrong.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    erase_size: Option<u32>,
    /// Bytes of a page, if detection is wrong.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    page_size: Option<u32>,
    /// Do not look for out-of-band bytes between the pages.
    #[arg(long, conflicts_with_all = ["oob_size", "ecc"])]
    no_oob: bool,
    /// Out-of-band bytes of a page, if detection is wrong.
    #[arg(long, value_name = "BYTES", value_parser = parse_size)]
    oob_size: Option<u32>,
    /// Error correction, if detection is wrong: none, hamming-256, hamming-512 (bytes per corrected
    /// bit), smartmedia-256, smartmedia-512, bch-BITS-BYTES such as bch-4-512.
    #[arg(long, value_name = "SCHEME", value_parser = parse_ecc)]
    ecc: Option<EccScheme>,
    /// A file with the out-of-band bytes, page after page, if they are stored separately.
    #[arg(long, value_name = "FILE", conflicts_with = "no_oob")]
    oob: Option<PathBuf>,
    /// A file with the key of an authenticated UBIFS, as raw bytes: everything is verified with it,
    /// and changes are signed.
    #[arg(long, value_name = "FILE")]
    auth_key: Option<PathBuf>,
    /// The hash that an authenticated UBIFS must use: sha224, sha256, sha384, sha512.
    #[arg(long, value_name = "NAME", requires = "auth_key", value_parser = parse_hash)]
    auth_hash: Option<HashAlgorithm>,
    /// A file with certificates, PEM or DER, to verify the signature of a UBIFS to which no device
    /// has written yet; can be given several times.
    #[arg(long, value_name = "FILE")]
    auth_cert: Vec<PathBuf>,
    /// A file with a master key of encrypted directories, as raw bytes; can be given several times.
    /// DESCRIPTOR:FILE, with 16 hexadecimal digits, identifies a key of version 1 policies.
    #[arg(long, value_name = "FILE")]
    key: Vec<KeyFile>,
    /// Also show files without a path, in a directory lost+found.
    #[arg(long)]
    lost_found: bool,
    /// Bytes to skip at the start of the image.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = parse_offset)]
    offset: u64,
}

/// Options of `flysch image cat`.
#[derive(Debug, clap::Args)]
struct Cat {
    #[command(flatten)]
    source: Source,
    /// The file's path in the image.
    #[arg(value_name = "PATH")]
    file: OsString,
}

fn parse_offset(text: &str) -> Result<u64, String> {
    size::parse(text).ok_or_else(|| format!("`{text}` is not a size such as 4096, 512K or 1G"))
}

fn parse_hash(text: &str) -> Result<HashAlgorithm, String> {
    let known = HashAlgorithm::from_name(text);
    known.ok_or_else(|| format!("`{text}` is not one of sha224, sha256, sha384, sha512"))
}

fn parse_ecc(text: &str) -> Result<EccScheme, String> {
    text.parse::<EccScheme>().map_err(|error| error.to_string())
}

fn parse_size(text: &str) -> Result<u32, String> {
    let size = parse_offset(text)?;
    u32::try_from(size)
        .ok()
        .filter(|&size| size > 0)
        .ok_or_else(|| format!("`{text}` is too large or zero"))
}

/// Executes the command.
pub(crate) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    match &arguments.command {
        Command::Info(source) => show::info(source, output),
        Command::Ls(arguments) => list::run(arguments, output),
        Command::Cat(arguments) => show::cat(&arguments.source, &arguments.file, output),
        Command::Extract(arguments) => extract::run(arguments, output),
        Command::Check(source) => check::run(source, output),
        Command::Create(arguments) => create::run(arguments, output),
        Command::Edit(arguments) => edit::run(arguments, output),
        Command::Repair(arguments) => repair::run(arguments, output),
        Command::Mount(arguments) => mount::run(arguments, output),
    }
}

impl Source {
    /// The path of an image that is to be modified.
    fn changeable(&self) -> Result<&PathBuf, Failure> {
        if self.path == Path::new(STANDARD_INPUT) {
            return Err(Failure::usage(
                "-: standard input can be read, not changed; save the image in a file (a file of \
                 that name is ./-)",
            ));
        }
        Ok(&self.path)
    }

    fn open(&self) -> Result<Image, Failure> {
        self.open_at(&self.path)
    }

    /// Opens the image at `path`: this one, or an unnamed copy of it.
    fn open_at(&self, path: &Path) -> Result<Image, Failure> {
        let auth = self.auth_key.as_deref().map(|path| (path, self.auth_hash));
        let trust = flysch_image::read_certificates(&self.auth_cert).map_err(Failure::failed)?;
        let keys = flysch_image::read_keys(auth, &self.key, trust).map_err(Failure::failed)?;
        let options = ImageOpenOptions {
            erase_size: self.erase_size,
            page_size: self.page_size,
            oob_size: self.oob_size,
            ecc: self.ecc,
            no_oob: self.no_oob,
            offset: self.offset,
            keys,
        };
        let path = if path == Path::new(STANDARD_INPUT) { Path::new("/dev/stdin") } else { path };
        match &self.oob {
            Some(oob) => Image::open_with_oob(path, oob, &options),
            None => Image::open(path, &options),
        }
        .map_err(|error| Failure::of(self.path.display(), error))
    }

    /// The single file system that is meant, in the image at `path`, for modification.
    fn open_writable(&self, path: &Path, room: &Room) -> Result<Writable, Failure> {
        let image = self.open_at(path)?;
        let volumes = self.volumes(&image)?;
        let with_files: Vec<_> =
            volumes.iter().filter(|(_, volume)| volume.file_system().is_some()).collect();
        match &with_files[..] {
            [(_, volume)] => image
                .open_writable(volume, room)
                .map_err(|error| Failure::of(self.path.display(), error)),
            // Says what is wrong.
            _ => Err(self.file_system(&image).map_or_else(|failure| failure, |_| unreachable!())),
        }
    }

    /// Whether the user wants this volume of the image.
    fn wants(&self, image: &Image, volume: &ImageVolume) -> bool {
        let wanted = self.volume.as_ref();
        wanted.is_none_or(|wanted| flysch_image::is_named(image, volume, wanted))
    }

    /// The file system of a volume, as it is to be shown.
    fn shown_file_system(&self, volume: &ImageVolume) -> Option<SharedFileSystem> {
        if self.lost_found { volume.file_system_with_lost() } else { volume.file_system() }
    }

    /// The selected volumes, with the name by which each is shown; at least one.
    fn volumes<'i>(&self, image: &'i Image) -> Result<Vec<(String, &'i ImageVolume)>, Failure> {
        let names = flysch_image::names(image);
        let volumes: Vec<_> = names
            .into_iter()
            .zip(image.volumes())
            .filter(|(_, volume)| self.wants(image, volume))
            .collect();
        if !volumes.is_empty() {
            return Ok(volumes);
        }
        let failure = image.parts.iter().find_map(|part| part.failure.clone());
        let there = flysch_image::names(image);
        Err(match (&self.volume, failure) {
            (Some(wanted), _) if !there.is_empty() => Failure::failed(format!(
                "{}: there is no volume `{wanted}`; there are: {}",
                self.path.display(),
                there.join(", ")
            )),
            (_, Some(failure)) => Failure::of(self.path.display(), failure),
            _ => Failure::of(
                self.path.display(),
                "there is no volume in it; if it has out-of-band bytes between its pages, name \
                 the sizes of both (--page-size, --oob-size)",
            ),
        })
    }

    /// The single file system that is meant.
    fn file_system(&self, image: &Image) -> Result<SharedFileSystem, Failure> {
        let volumes = self.volumes(image)?;
        let with_files: Vec<_> = volumes
            .iter()
            .filter_map(|(name, volume)| Some((name, self.shown_file_system(volume)?)))
            .collect();
        match &with_files[..] {
            [(_, fs)] => Ok(fs.clone()),
            [] => {
                let why = volumes.iter().find_map(|(_, volume)| volume.failure());
                let why = why.unwrap_or("no volume holds a file system");
                Err(Failure::of(self.path.display(), why))
            }
            several => {
                let names: Vec<&str> = several.iter().map(|(name, _)| &name[..]).collect();
                Err(Failure::usage(format!(
                    "{}: name one volume with --volume: {}",
                    self.path.display(),
                    names.join(", ")
                )))
            }
        }
    }
}

/// A name or path for display: control characters and invalid UTF-8 are escaped.
fn shown(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() {
                true => text.extend(character.escape_default()),
                false => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

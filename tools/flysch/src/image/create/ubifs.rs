//! `flysch image create ubifs`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flysch_api::count::counted;
use flysch_image::create::{
    CreateError, Making, TreeOptions, UbifsOptions, UbifsWritten, create_ubifs,
};
use flysch_image::{KeyFile, read_keys, read_signer};
use flysch_ubi::create::lebs_on_chip;
use flysch_ubifs::create::{CreateOptions, LZO_THOROUGH, Packing};
use flysch_ubifs::{CipherMode, HashAlgorithm, Keys, Policy, Signer};
use flysch_wire::ubifs::{Compression, KeyHash, LEBS_MIN};
use serde_json::json;

use super::{Chip, Source, parse_bytes, parse_word, report, target, watch};
use crate::failure::Failure;
use crate::output::Output;

/// Options of `flysch image create ubifs`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// Bytes of the minimum I/O unit: the page on NAND, 1 or 8 on NOR.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_word)]
    min_io_size: u32,
    /// Bytes of a logical erase block.
    #[arg(short = 'e', long, value_name = "SIZE", value_parser = parse_word)]
    leb_size: u32,
    /// Logical erase blocks to which the file system may grow; default: what the chip has (--pebs,
    /// --chip-size), otherwise twice what is needed.
    #[arg(short = 'c', long, value_name = "COUNT")]
    max_leb_cnt: Option<u32>,
    /// The image; `-` is standard output.
    #[arg(short, long, value_name = "FILE", required_unless_present = "target")]
    output: Option<PathBuf>,
    /// The image, like -o.
    #[arg(value_name = "TARGET", conflicts_with = "output")]
    target: Option<PathBuf>,
    /// Bytes of the journal.
    #[arg(short = 'j', long, value_name = "SIZE", value_parser = parse_bytes)]
    jrn_size: Option<u64>,
    /// Bytes reserved for the super-user.
    #[arg(short = 'R', long, value_name = "SIZE", default_value = "0", value_parser = parse_bytes)]
    reserved: u64,
    /// Compression: lzo, favor_lzo, zlib, zstd, none.
    #[arg(short = 'x', long, value_name = "TYPE", default_value = "lzo")]
    compr: Compressor,
    /// With favor_lzo: by how many percent zlib must be shorter to be used.
    #[arg(short = 'X', long, value_name = "PERCENT", default_value = "20",
          value_parser = clap::value_parser!(u32).range(1..100))]
    favor_percent: u32,
    /// Level of compression: zlib 1 to 9, zstd 1 to 22; LZO 1 as in Linux, 9 with a search for
    /// matches.
    #[arg(long, value_name = "LEVEL", value_parser = clap::value_parser!(i32).range(1..=22))]
    level: Option<i32>,
    /// Branches of an index node.
    #[arg(short, long, value_name = "COUNT", default_value_t = 8)]
    fanout: u32,
    /// Free space is erased again at the first mount.
    #[arg(short = 'F', long)]
    space_fixup: bool,
    /// Hash of names: r5, test.
    #[arg(short, long, value_name = "TYPE", default_value = "r5")]
    keyhash: Hash,
    /// Logical erase blocks for orphans.
    #[arg(short = 'p', long, value_name = "COUNT", default_value_t = 1)]
    orph_lebs: u32,
    /// Logical erase blocks of the log.
    #[arg(short, long, value_name = "COUNT")]
    log_lebs: Option<u32>,
    /// The file system's UUID; default: derived from its content.
    #[arg(long, value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Truncate times to whole seconds, as mkfs.ubifs stores them.
    #[arg(long)]
    whole_seconds: bool,
    #[command(flatten)]
    chip: Chip,
    /// Bytes of a physical erase block, for --chip-size; default: the next power of two.
    #[arg(long, value_name = "SIZE", value_parser = parse_word)]
    peb_size: Option<u32>,
    /// Threads for compression; default: one per processor.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    threads: usize,
    /// Print more.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    sealing: Sealing,
    #[command(flatten)]
    refused: Refused,
}

/// How the file system is signed and encrypted.
#[derive(Debug, clap::Args)]
struct Sealing {
    /// Sign it with the private key in this file, PEM or DER, for those who have --auth-cert;
    /// without that option, with the raw bytes in the file, as a device does that has this key.
    #[arg(long, value_name = "FILE", requires = "hash_algo")]
    auth_key: Option<PathBuf>,
    /// The certificate of the private key, PEM or DER.
    #[arg(long, value_name = "FILE", requires = "auth_key")]
    auth_cert: Option<PathBuf>,
    /// Hash nodes with sha224, sha256, sha384 or sha512.
    #[arg(long, value_name = "NAME", requires = "auth_key", value_parser = parse_hash)]
    hash_algo: Option<HashAlgorithm>,
    /// Encrypt everything with the master key in a file of raw bytes.
    #[arg(short = 'K', long, value_name = "FILE")]
    key: Option<KeyFile>,
    /// The descriptor of the key in a version 1 policy, 16 hexadecimal digits; by default it is
    /// derived from the key, as the tools do.
    #[arg(short = 'b', long, value_name = "HEX", requires = "key", value_parser = parse_descriptor)]
    key_descriptor: Option<[u8; 8]>,
    /// Pad names to 4, 8, 16 or 32 bytes.
    #[arg(short = 'P', long, value_name = "BYTES", requires = "key", default_value_t = 4)]
    padding: usize,
    /// Cipher for content; the cipher for names follows from it.
    #[arg(
        short = 'C',
        long,
        value_name = "NAME",
        requires = "key",
        default_value = "AES-256-XTS",
        ignore_case = true
    )]
    cipher: Cipher,
    /// Version of the encryption policy: 1, as in mkfs.ubifs, or 2.
    #[arg(long, value_name = "VERSION", requires = "key", default_value_t = 1,
          value_parser = clap::value_parser!(u8).range(1..=2))]
    policy_version: u8,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Cipher {
    #[value(name = "AES-256-XTS")]
    Aes256Xts,
    #[value(name = "AES-128-CBC")]
    Aes128Cbc,
    #[value(name = "Adiantum")]
    Adiantum,
}

fn parse_hash(name: &str) -> Result<HashAlgorithm, String> {
    HashAlgorithm::from_name(name).ok_or_else(|| format!("`{name}` is not a known hash"))
}

fn parse_descriptor(text: &str) -> Result<[u8; 8], String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let number = u64::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 16);
    number.map(u64::to_be_bytes).ok_or_else(|| format!("`{text}` is not 16 hexadecimal digits"))
}

impl Sealing {
    /// The signer of the superblock, if a certificate is given.
    fn signer(&self) -> Result<Option<Arc<dyn Signer>>, Failure> {
        let (Some(key), Some(certificate), Some(algorithm)) =
            (&self.auth_key, &self.auth_cert, self.hash_algo)
        else {
            return Ok(None);
        };
        read_signer(key, certificate, algorithm).map(Some).map_err(Failure::failed)
    }

    /// The keys, and how everything is encrypted.
    fn read(&self) -> Result<(Option<Arc<Keys>>, Option<Policy>), Failure> {
        let raw = self.auth_key.as_deref().filter(|_| self.auth_cert.is_none());
        let auth = raw.map(|path| (path, self.hash_algo));
        let master = self.key.iter().map(|key| KeyFile {
            path: key.path.clone(),
            descriptor: self.key_descriptor.or(key.descriptor),
        });
        let masters: Vec<KeyFile> = master.collect();
        let keys = read_keys(auth, &masters, None).map_err(Failure::failed)?;
        if let Some(path) = raw
            && std::fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"-----BEGIN"))
        {
            return Err(Failure::usage(format!(
                "--auth-key {}: this is a private key, and its certificate is missing \
                 (--auth-cert); without one the key is raw bytes that the device has too",
                path.display()
            )));
        }
        let master = keys.as_ref().and_then(|keys| keys.masters.first());
        let policy = master.map(|master| {
            let name = match self.policy_version {
                1 => master.descriptor(),
                _ => master.identifier(),
            };
            let mode = match self.cipher {
                Cipher::Aes256Xts => CipherMode::Aes256Xts,
                Cipher::Aes128Cbc => CipherMode::Aes128Cbc,
                Cipher::Adiantum => CipherMode::Adiantum,
            };
            Policy::new(name, mode, self.padding).ok_or_else(|| {
                Failure::usage(format!("--padding {}: it must be 4, 8, 16 or 32", self.padding))
            })
        });
        Ok((keys, policy.transpose()?))
    }
}

/// Options of mkfs.ubifs that are not supported here, or have no effect.
#[derive(Debug, clap::Args)]
struct Refused {
    #[arg(short = 's', long, hide = true)]
    selinux: Option<String>,
    #[arg(short = 'a', long, hide = true)]
    set_inum_attr: bool,
    #[arg(short = 'y', long, hide = true)]
    yes: bool,
    #[arg(short = 'g', long, hide = true)]
    debug: Option<u32>,
}

impl Refused {
    fn check(&self) -> Result<(), Failure> {
        let asked = [
            (self.selinux.is_some(), "--selinux", "labels from a table of contexts"),
            (self.set_inum_attr, "--set-inum-attr", "attributes in the source directory"),
        ];
        match asked.into_iter().find(|(asked, ..)| *asked) {
            None => Ok(()),
            Some((_, option, what)) => Err(Failure::usage(format!(
                "{option}: {what} are not supported; mkfs.ubifs of mtd-utils has them"
            ))),
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Compressor {
    Lzo,
    #[value(name = "favor_lzo")]
    FavorLzo,
    Zlib,
    Zstd,
    None,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Hash {
    R5,
    Test,
}

/// 32 hexadecimal digits, optionally with hyphens.
fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    let bad = || format!("`{text}` is not 32 hexadecimal digits");
    number.map(u128::to_be_bytes).ok_or_else(bad)
}

fn show_uuid(uuid: &[u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(*uuid));
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// Creates a UBIFS image.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    arguments.refused.check()?;
    let path = arguments.output.as_deref().or(arguments.target.as_deref());
    let options = arguments.options()?;
    let wanted = TreeOptions { whole_seconds: arguments.whole_seconds, ..TreeOptions::default() };
    let tree = arguments.source.tree(wanted, path)?;
    let target = target(path, output)?;
    let making = Making::default();
    let written =
        watch(tree.bytes(), &making, || create_ubifs(&tree, &options, target.sink.file(), &making))
            .map_err(|error| arguments.blame(error))?;
    target.finish()?;
    let mut notes = [tree.notes(), &written.notes].concat();
    notes.extend(little_room(&written));
    let (created, leb_size) = (&written.created, options.format.leb_size);
    let line = match arguments.verbose {
        false => format!(
            "{}, {}; {} of {leb_size} bytes, at most {}",
            counted(tree.len(), "file", "files"),
            counted(tree.bytes(), "byte", "bytes"),
            counted(created.lebs, "LEB", "LEBs"),
            created.lebs_max
        ),
        true => details(arguments, &written, path),
    };
    let json = json!({
        "format": "ubifs",
        "files": tree.len(),
        "content_bytes": tree.bytes(),
        "image_bytes": u64::from(created.lebs) * u64::from(leb_size),
        "leb_size": leb_size,
        "lebs": created.lebs,
        "lebs_max": created.lebs_max,
        "index_bytes": created.index_size,
        "uuid": show_uuid(&created.uuid),
        "notes": notes,
    });
    report(json, (&line, &notes), output)
}

/// The output of `-v`.
fn details(arguments: &Arguments, written: &UbifsWritten, path: Option<&Path>) -> String {
    let (created, format) = (&written.created, &written.format);
    let superblock = format.superblock(created.lebs).expect("it was made so");
    let rows = [
        ("output", path.map_or("-".to_string(), |path| path.display().to_string())),
        ("min_io_size", superblock.min_io_size.to_string()),
        ("leb_size", superblock.leb_size.to_string()),
        ("max_leb_cnt", created.lebs_max.to_string()),
        ("leb_cnt", created.lebs.to_string()),
        ("log_lebs", superblock.log_lebs.to_string()),
        ("lpt_lebs", superblock.lpt_lebs.to_string()),
        ("orph_lebs", superblock.orphan_lebs.to_string()),
        ("main_lebs", (created.lebs - created.main_first).to_string()),
        ("index lebs", created.index_lebs.to_string()),
        ("jrn_size", superblock.bud_bytes_max.to_string()),
        ("reserved", superblock.reserved_size.to_string()),
        ("compr", format!("{:?}", arguments.compr).to_lowercase()),
        ("keyhash", format!("{:?}", arguments.keyhash).to_lowercase()),
        ("fanout", superblock.fanout.to_string()),
        ("space_fixup", u32::from(arguments.space_fixup).to_string()),
        ("UUID", show_uuid(&created.uuid)),
    ];
    let rows: Vec<String> =
        rows.iter().map(|(name, value)| format!("{:<13} {value}", format!("{name}:"))).collect();
    rows.join("\n")
}

/// Linux cannot mount a file system for writing if it has no space to write to.
fn little_room(written: &UbifsWritten) -> Option<String> {
    let created = &written.created;
    let superblock = written.format.superblock(created.lebs).ok()?;
    let journal = superblock.bud_bytes_max.div_ceil(superblock.leb_size.into());
    let left = created.lebs_max - created.lebs;
    (u64::from(left) < journal).then(|| {
        format!(
            "only {left} LEBs are left to write to, fewer than the journal has ({journal}): give \
             more (-c, --pebs) or a smaller journal (-j)"
        )
    })
}

impl Arguments {
    fn options(&self) -> Result<UbifsOptions, Failure> {
        let leb_count_max = match self.max_leb_cnt {
            Some(0) => return Err(Failure::usage("-c 0: no file system fits")),
            Some(count) => count,
            None => self.lebs_of_chip()?.unwrap_or(0),
        };
        let compression = match self.compr {
            Compressor::Lzo | Compressor::FavorLzo => Compression::Lzo,
            Compressor::Zlib => Compression::Zlib,
            Compressor::Zstd => Compression::Zstd,
            Compressor::None => Compression::None,
        };
        let packing = match (self.compr, self.level) {
            (Compressor::FavorLzo, _) => {
                Packing::FavorLzo { percent: self.favor_percent, level: self.level }
            }
            (_, Some(level)) => Packing::One(compression, level),
            (Compressor::Lzo, None) => Packing::One(compression, LZO_THOROUGH),
            (_, None) => Packing::new(compression),
        };
        let format = CreateOptions {
            journal_size: self.jrn_size,
            log_lebs: self.log_lebs,
            orphan_lebs: self.orph_lebs,
            reserved_size: self.reserved,
            fanout: self.fanout,
            key_hash: match self.keyhash {
                Hash::R5 => KeyHash::R5,
                Hash::Test => KeyHash::Test,
            },
            compression,
            space_fixup: self.space_fixup,
            authentication: self.sealing.hash_algo,
            uuid: self.uuid,
            ..CreateOptions::new(self.min_io_size, self.leb_size, leb_count_max)
        };
        let (keys, policy) = self.sealing.read()?;
        let signer = self.sealing.signer()?;
        Ok(UbifsOptions { format, packing, threads: self.threads, keys, signer, policy })
    }

    /// What the chip leaves for one volume.
    fn lebs_of_chip(&self) -> Result<Option<u32>, Failure> {
        let guess = self.leb_size.checked_next_power_of_two().unwrap_or(u32::MAX);
        let pebs = self.chip.pebs(self.peb_size.unwrap_or(guess))?;
        match pebs.map(|pebs| (pebs, lebs_on_chip(pebs))) {
            None => Ok(None),
            Some((pebs, lebs)) if lebs < LEBS_MIN => Err(Failure::failed(format!(
                "{}: a chip of {pebs} erase blocks leaves {lebs} for a volume, but the smallest \
                 UBIFS needs {LEBS_MIN}: take {} erase blocks or more",
                self.chip.option(),
                (pebs..).find(|&pebs| lebs_on_chip(pebs) >= LEBS_MIN).unwrap_or(u32::MAX),
            ))),
            Some((_, lebs)) => Ok(Some(lebs)),
        }
    }

    /// Names the option that left too little room.
    fn blame(&self, error: CreateError) -> Failure {
        match (error, self.max_leb_cnt, self.chip.is_named()) {
            (CreateError::Room(why), None, true) => {
                let option = self.chip.option();
                Failure::of(option, format!("the chip is too small: {why}"))
            }
            (error, ..) => error.into(),
        }
    }
}

//! `flysch image create jffs2`.

use std::path::{Path, PathBuf};

use flysch_api::count::counted;
use flysch_image::create::{Making, TreeOptions, XattrChoice, create_jffs2};
use flysch_jffs2::create::{Jffs2Options, Padding};
use flysch_jffs2::{Compressor, Compressors, Mode};
use flysch_wire::jffs2::ByteOrder;
use serde_json::json;

use super::{Chip, Source, parse_bytes, parse_word, report, target, watch, writer};
use crate::failure::Failure;
use crate::output::Output;

/// Erase block sizes below this are in KiB, as in mkfs.jffs2.
const KIB_BELOW: u32 = 0x1000;

/// Options of `flysch image create jffs2`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: Source,
    /// The image; without it, and for `-`, standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Bytes of an erase block.
    #[arg(short, long, value_name = "SIZE", default_value = "64KiB", value_parser = parse_word)]
    eraseblock: u32,
    /// Bytes of a page of the target's memory: the maximum data of one node.
    #[arg(short = 's', long, value_name = "SIZE", default_value = "4KiB",
          value_parser = parse_word)]
    pagesize: u32,
    /// Bytes of the clean marker in each erase block.
    #[arg(short, long, value_name = "SIZE", default_value = "12", value_parser = parse_word)]
    cleanmarker: u32,
    /// No clean markers: for NAND, where Linux keeps them out of band.
    #[arg(short, long)]
    no_cleanmarkers: bool,
    /// Fill the image with 0xFF to the end of the erase block, or to SIZE.
    #[arg(short, long, value_name = "SIZE", num_args = 0..=1, require_equals = true,
          default_missing_value = "0", value_parser = parse_bytes)]
    pad: Option<u64>,
    /// For little-endian processors (default).
    #[arg(short, long, conflicts_with = "big_endian")]
    little_endian: bool,
    /// For big-endian processors.
    #[arg(short, long)]
    big_endian: bool,
    /// How a compressor is chosen: none, priority, size, favourlzo.
    #[arg(short = 'm', long, value_name = "MODE", default_value = "priority")]
    compression_mode: String,
    /// Do not use a compressor: lzo, zlib, rtime.
    #[arg(short = 'x', long, value_name = "NAME")]
    disable_compressor: Vec<String>,
    /// Use a compressor: lzo, zlib, rtime (default: zlib and rtime).
    #[arg(short = 'X', long, value_name = "NAME")]
    enable_compressor: Vec<String>,
    /// Change a compressor's priority: lzo has 80, zlib 60, rtime 50.
    #[arg(short = 'y', long, value_name = "PRIORITY:NAME")]
    compressor_priority: Vec<String>,
    /// End erase blocks with a summary, as sumtool does: mounting becomes faster.
    #[arg(long)]
    summary: bool,
    /// All files belong to root, and others have no write permission.
    #[arg(short = 'q', long)]
    squash: bool,
    /// Remove write permission of others, and set-user-id bits.
    #[arg(short = 'P', long)]
    squash_perms: bool,
    /// Set all times to 1970.
    #[arg(short, long)]
    faketime: bool,
    /// Copy extended attributes.
    #[arg(long)]
    with_xattr: bool,
    /// Copy SELinux labels.
    #[arg(long)]
    with_selinux: bool,
    /// Copy access control lists.
    #[arg(long)]
    with_posix_acl: bool,
    /// Byte for byte as mkfs.jffs2: no attributes for the root, zeros as data, short device
    /// numbers.
    #[arg(long)]
    as_mkfs: bool,
    #[command(flatten)]
    chip: Chip,
    /// Print more.
    #[arg(short, long)]
    verbose: bool,
    #[arg(short, long, hide = true)]
    incremental: Option<PathBuf>,
    #[arg(short, long, hide = true)]
    test_compression: bool,
}

/// Creates a JFFS2 image.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.incremental.is_some() {
        return Err(Failure::usage(
            "--incremental: images cannot be appended to; `flysch image edit` changes one",
        ));
    }
    let options = arguments.options()?;
    let xattrs = XattrChoice {
        all: arguments.with_xattr,
        selinux: arguments.with_selinux,
        posix_acl: arguments.with_posix_acl,
    };
    let wanted = TreeOptions {
        latest: arguments.faketime.then_some(0),
        without_xattrs: !xattrs.any(),
        ..TreeOptions::default()
    };
    let path = arguments.output.as_deref();
    let here = Source { root: Some(PathBuf::from(".")), ..arguments.source.clone() };
    let source = match arguments.source.root.is_none() && arguments.source.tar.is_none() {
        true => &here,
        false => &arguments.source,
    };
    let tree = source.tree(wanted, path.filter(|path| *path != Path::new("-")))?;
    let target = target(path, output)?;
    let making = Making::default();
    let written = watch(tree.bytes(), &making, || {
        let mut out = writer(&target);
        let written = create_jffs2(&tree, (options.clone(), xattrs), &mut out, &making)?;
        std::io::Write::flush(&mut out).map_err(flysch_image::create::CreateError::Output)?;
        Ok::<_, flysch_image::create::CreateError>(written)
    })?;
    target.finish()?;
    let notes = [tree.notes(), &written.notes].concat();
    let image = written.written;
    let mut line = format!(
        "{}, {}; image of {} bytes in {}",
        counted(tree.len(), "file", "files"),
        counted(tree.bytes(), "byte", "bytes"),
        image.bytes,
        counted(image.blocks, "erase block", "erase blocks")
    );
    if arguments.verbose {
        line.push_str(&format!(", {}", counted(image.nodes, "node", "nodes")));
    }
    let json = json!({
        "format": "jffs2",
        "files": tree.len(),
        "content_bytes": tree.bytes(),
        "image_bytes": image.bytes,
        "erase_blocks": image.blocks,
        "nodes": image.nodes,
        "notes": notes,
    });
    report(json, (&line, &notes), output)
}

impl Arguments {
    fn options(&self) -> Result<Jffs2Options, Failure> {
        let erase_size = match self.eraseblock {
            small if small < KIB_BELOW => small << 10,
            size => size,
        };
        let by_count = self.chip.pebs.map(|pebs| u64::from(pebs) * u64::from(erase_size));
        Ok(Jffs2Options {
            order: if self.big_endian { ByteOrder::Big } else { ByteOrder::Little },
            erase_size,
            page_size: self.pagesize,
            cleanmarker_len: if self.no_cleanmarkers { 0 } else { self.cleanmarker },
            padding: match self.pad {
                None => Padding::None,
                Some(0) => Padding::Block,
                Some(size) => Padding::To(size),
            },
            size_max: self.chip.chip_size.or(by_count),
            summary: self.summary,
            compressors: self.compressors()?,
            squash_owners: self.squash || self.source.squash_uids,
            squash_permissions: self.squash || self.squash_perms,
            as_mkfs: self.as_mkfs,
        })
    }

    fn compressors(&self) -> Result<Compressors, Failure> {
        let mode = Mode::from_name(&self.compression_mode).ok_or_else(|| {
            Failure::usage(format!(
                "`{}` is not a compression mode: none, priority, size, favourlzo",
                self.compression_mode
            ))
        })?;
        if mode == Mode::None {
            return Ok(Compressors::none());
        }
        let named = |name: &str| {
            Compressor::from_name(name).ok_or_else(|| {
                Failure::usage(format!("`{name}` is not a compressor: lzo, zlib, rtime"))
            })
        };
        let mut priorities =
            vec![(80, Compressor::Lzo), (60, Compressor::Zlib), (50, Compressor::Rtime)];
        for change in &self.compressor_priority {
            let parts = change
                .split_once(':')
                .and_then(|(priority, name)| Some((priority.parse::<i32>().ok()?, name)));
            let (priority, name) = parts.ok_or_else(|| {
                Failure::usage(format!("`{change}` is not PRIORITY:NAME, such as 90:rtime"))
            })?;
            let compressor = named(name)?;
            priorities.iter_mut().filter(|it| it.1 == compressor).for_each(|it| it.0 = priority);
        }
        priorities.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
        let mut enabled = Compressors::default().enabled;
        for name in &self.enable_compressor {
            enabled.push(named(name)?);
        }
        for name in &self.disable_compressor {
            let compressor = named(name)?;
            enabled.retain(|other| *other != compressor);
        }
        let by_priority = priorities.into_iter().map(|(_, compressor)| compressor);
        let enabled = by_priority.filter(|compressor| enabled.contains(compressor)).collect();
        Ok(Compressors { mode, enabled })
    }
}

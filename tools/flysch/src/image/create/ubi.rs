//! `flysch image create ubi`.

use std::path::PathBuf;

use flysch_api::count::counted;
use flysch_image::create::{CreateError, Making, UbiPlan};
use flysch_ubi::create::ImageOptions;
use serde_json::json;

use super::{Chip, parse_bytes, parse_word, report, target, watch, writer};
use crate::failure::Failure;
use crate::file::{read_text, spare_inputs};
use crate::output::Output;

/// Options of `flysch image create ubi`.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The ini file with the volumes, in ubinize's format.
    #[arg(value_name = "INI")]
    ini: PathBuf,
    /// The image; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Bytes of a physical erase block.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_word)]
    peb_size: u32,
    /// Bytes of the minimum I/O unit: the page on NAND, 1 on NOR.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_word)]
    min_io_size: u32,
    /// Bytes of a sub-page, the unit of writing headers.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_word)]
    sub_page_size: Option<u32>,
    /// Offset of the volume identifier header; default: the next unit behind the first header.
    #[arg(short = 'O', long, value_name = "OFFSET", value_parser = parse_word)]
    vid_hdr_offset: Option<u32>,
    /// Erase counter of each block.
    #[arg(short, long, value_name = "COUNT", default_value_t = 0)]
    erase_counter: u64,
    /// UBI version; 1 is the only one.
    #[arg(short = 'x', long, value_name = "VERSION", default_value_t = 1)]
    ubi_ver: u8,
    /// Image sequence number; default: derived from the content.
    #[arg(short = 'Q', long, value_name = "NUMBER", value_parser = parse_bytes)]
    image_seq: Option<u64>,
    #[command(flatten)]
    chip: Chip,
    /// Print more.
    #[arg(short, long)]
    verbose: bool,
}

/// Creates a UBI image.
pub(super) fn run(arguments: &Arguments, output: &mut Output) -> Result<(), Failure> {
    if arguments.ubi_ver != 1 {
        return Err(Failure::usage(format!("-x {}: the only UBI version is 1", arguments.ubi_ver)));
    }
    let image_sequence = arguments.image_seq.map(u32::try_from).transpose();
    // No cause: the words say what is wanted.
    let image_sequence = image_sequence
        .map_err(|_| Failure::usage("-Q: an image sequence number can have at most 32 bits"))?;
    let options = ImageOptions {
        peb_size: arguments.peb_size,
        min_io_size: arguments.min_io_size,
        sub_page_size: arguments.sub_page_size,
        vid_header_offset: arguments.vid_hdr_offset.filter(|offset| *offset != 0),
        erase_counter: arguments.erase_counter,
        image_sequence: 0,
    };
    let name = arguments.ini.display().to_string();
    let text = read_text(&arguments.ini)?;
    let plan = UbiPlan::new((&name, &text), options, image_sequence)?;
    let pebs = arguments.chip.pebs(arguments.peb_size)?;
    if let Some(pebs) = pebs {
        plan.check_chip(pebs)?;
    }
    spare_inputs(&arguments.output, plan.images().chain([arguments.ini.as_path()]))?;
    let target = target(Some(&arguments.output), output)?;
    let making = Making::default();
    let written = watch(plan.bytes(), &making, || {
        let mut out = writer(&target);
        let written = plan.write(&mut out, &making)?;
        std::io::Write::flush(&mut out).map_err(CreateError::Output)?;
        Ok::<_, CreateError>(written)
    })?;
    target.finish()?;
    let mut line = format!(
        "{}, {}; they need {} on the chip",
        counted(written.volumes, "volume", "volumes"),
        counted(written.blocks, "erase block", "erase blocks"),
        written.reserved
    );
    if arguments.verbose {
        line.push_str(&format!(
            "; LEBs of {} bytes, image sequence number {}",
            written.leb_size, written.image_sequence
        ));
    }
    let json = json!({
        "format": "ubi",
        "volumes": written.volumes,
        "erase_blocks": written.blocks,
        "reserved_erase_blocks": written.reserved,
        "leb_size": written.leb_size,
        "image_bytes": written.blocks * u64::from(arguments.peb_size),
        "image_sequence": written.image_sequence,
        "notes": plan.notes(),
    });
    report(json, (&line, plan.notes()), output)
}

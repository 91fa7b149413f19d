//! What lab tests run inside the guest: generators of file system work, manifests of what the
//! kernel shows, deliberately torn snapshots. It is this machine's binary, run with the guest's
//! libc.
#![forbid(unsafe_code)]

mod job;
mod noise;
mod rich;
mod tear;
mod work;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::ExitCode;

use flysch_lab::manifest::{self, Detail};

const USAGE: &str = "\
usage: flysch-lab-guest manifest DIR            what is below DIR, a line for each file
       flysch-lab-guest rich DIR SEED           files of every kind
       flysch-lab-guest work DIR SEED STOP [N]  random work until there is a file STOP, or N times
       flysch-lab-guest job NAME before|run DIR one of the jobs by which work is compared
       flysch-lab-guest counters FLASH BLOCK    UBI's erase counters, a line for each block
       flysch-lab-guest tear IN OUT PAGE OOB BLOCK SEED ubi|jffs2
                                                tears the page written last of a flash image";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["manifest", root] => show(Path::new(root)),
        ["rich", root, seed] => rich::make(Path::new(root), number(seed)),
        ["work", root, seed, stop] => {
            work::run(Path::new(root), number(seed), Path::new(stop), u64::MAX)
        }
        ["work", root, seed, stop, count] => {
            work::run(Path::new(root), number(seed), Path::new(stop), number(count))
        }
        ["job", name, phase, root] => job::run(name, phase, Path::new(root)),
        ["counters", flash, block] => counters(Path::new(flash), number(block)),
        ["tear", from, to, page, oob, block, seed, format] => {
            let [page, oob, block] = [page, oob, block].map(|text| number(text) as usize);
            let shape = tear::Shape { page, oob, block, is_ubi: format == "ubi" };
            tear::tear(Path::new(from), Path::new(to), shape, number(seed))
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("flysch-lab-guest {}: {error}", words.join(" "));
            ExitCode::from(1)
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

fn show(root: &Path) -> io::Result<()> {
    let manifest = manifest::of_directory(root, Detail::Whole)?;
    io::stdout().write_all(manifest::to_text(&manifest).as_bytes())
}

/// The counter in the EC header at the start of each block of `block` bytes, if its checksum is
/// correct; read without Flysch, because it is used to judge Flysch.
fn counters(flash: &Path, block: u64) -> io::Result<()> {
    /// `UBI#`, version 1.
    const START: [u8; 5] = *b"UBI#\x01";
    let mut flash = File::open(flash)?;
    let size = flash.seek(SeekFrom::End(0))?;
    let mut header = [0; 64];
    let mut text = String::new();
    for number in 0..size / block {
        flash.seek(SeekFrom::Start(number * block))?;
        flash.read_exact(&mut header)?;
        let sum = header[..60].iter().fold(u32::MAX, |sum, &byte| {
            (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ ((sum & 1) * 0xEDB8_8320))
        });
        if header.starts_with(&START) && header[60..] == sum.to_be_bytes() {
            let counter =
                header[8..16].iter().fold(0_u64, |sum, &byte| (sum << 8) | u64::from(byte));
            let _ = writeln!(text, "{number} {counter}");
        }
    }
    io::stdout().write_all(text.as_bytes())
}

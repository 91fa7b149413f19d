//! Volumes as UBI, according to ubinize's ini file.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flysch_ubi::create::{ImageOptions, Maker, VolumePlan};
use flysch_wire::ubi::{VolumeFlags, VolumeKind};
use flysch_wire::ubifs::{BranchFormat, Node, SUPERBLOCK_NODE_SIZE};

use super::{CreateError, Making};

/// A volume and the source of its content.
#[derive(Clone, Debug)]
struct Section {
    volume: VolumePlan,
    image: Option<PathBuf>,
}

/// An image to be created.
#[derive(Clone, Debug)]
pub struct UbiPlan {
    maker: Maker,
    options: ImageOptions,
    sections: Vec<Section>,
    notes: Vec<String>,
}

/// Known keys.
const KEYS: [&str; 8] =
    ["mode", "image", "vol_id", "vol_size", "vol_type", "vol_name", "vol_flags", "vol_alignment"];

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UbiWritten {
    /// Erase blocks of the image.
    pub blocks: u64,
    /// Erase blocks that its volumes require on the chip.
    pub reserved: u64,
    /// Bytes of a logical erase block.
    pub leb_size: u32,
    /// Volumes.
    pub volumes: usize,
    /// Its image sequence number.
    pub image_sequence: u32,
}

impl UbiPlan {
    /// The files that its volumes are made from.
    pub fn images(&self) -> impl Iterator<Item = &Path> {
        self.sections.iter().filter_map(|section| section.image.as_deref())
    }

    /// Reads the ini file `text`; relative paths in it refer to the working directory, as in
    /// ubinize. Without `image_sequence` the number is derived from the content.
    ///
    /// # Errors
    /// [`CreateError`], with the section's name.
    pub fn new(
        (name, text): (&str, &str),
        options: ImageOptions,
        image_sequence: Option<u32>,
    ) -> Result<Self, CreateError> {
        let maker = Maker::new(options).map_err(CreateError::options)?;
        let mut plan = Self { maker, options, sections: Vec::new(), notes: Vec::new() };
        for (title, keys) in parse_ini(text).map_err(|why| CreateError::refused(name, why))? {
            let place = format!("{name}: [{title}]");
            if let Some(section) = section(&place, &keys)? {
                plan.sections.push(section);
                let unknown = keys.iter().filter(|(key, _)| !KEYS.contains(&&key[..]));
                plan.notes.extend(unknown.map(|(key, _)| {
                    format!("{place}: the key `{key}` is not known and has no effect")
                }));
            }
        }
        if plan.sections.is_empty() {
            return Err(CreateError::refused(name, "there is no section with mode=ubi"));
        }
        let sequence = match image_sequence {
            Some(sequence) => sequence,
            None => plan.content_sequence(text)?,
        };
        plan.options.image_sequence = sequence;
        plan.maker = Maker::new(plan.options).map_err(CreateError::options)?;
        for (index, section) in plan.sections.iter().enumerate() {
            let volume = section.volume.clone();
            let title = format!("{name}: volume `{}`", volume.name);
            let refuse = |why: &dyn fmt::Display| CreateError::refused(&title, why);
            plan.maker.add(volume).map_err(|why| refuse(&why))?;
            plan.check_ubifs(index).map_err(|error| match error {
                CreateError::Options(why) => refuse(&why),
                other => other,
            })?;
        }
        Ok(plan)
    }

    /// Whether Linux would mount the volume, if its image is a UBIFS.
    fn check_ubifs(&self, index: usize) -> Result<(), CreateError> {
        let Section { volume, image: Some(path) } = &self.sections[index] else { return Ok(()) };
        let fail = |error| CreateError::source(path.display(), error);
        let mut start = Vec::new();
        let file = File::open(path).map_err(fail)?;
        file.take(SUPERBLOCK_NODE_SIZE as u64).read_to_end(&mut start).map_err(fail)?;
        let Ok((_, Node::Superblock(found))) = Node::parse(&start, BranchFormat::default()) else {
            return Ok(());
        };
        let (leb_size, lebs) = (self.maker.usable(index), self.maker.lebs(index));
        // UBIFS takes flash that is written by smaller units for this.
        let unit = self.options.min_io_size.max(8);
        let grows = volume.flags.contains(VolumeFlags::AUTORESIZE);
        let path = path.display();
        let why = if found.leb_size != leb_size {
            format!(
                "{path} is a UBIFS for LEBs of {} bytes, but these have {leb_size}: make it with \
                 -e {leb_size}, or give the right -p, -m, -s and -O",
                found.leb_size
            )
        } else if found.min_io_size != unit {
            format!(
                "{path} is a UBIFS for I/O units of {} bytes, but these have {unit}: make it with \
                 -m {}",
                found.min_io_size, self.options.min_io_size
            )
        } else if found.leb_count > lebs && !grows {
            format!(
                "{path} is a UBIFS of {} LEBs, but the volume has {lebs}: give a vol_size of {} \
                 or more",
                found.leb_count,
                u64::from(found.leb_count) * u64::from(leb_size)
            )
        } else {
            return Ok(());
        };
        Err(CreateError::options(why))
    }

    /// Whether the volumes fit on a chip of `pebs` erase blocks.
    ///
    /// # Errors
    /// [`CreateError::Room`] with the numbers.
    pub fn check_chip(&self, pebs: u32) -> Result<(), CreateError> {
        self.maker.check_chip(pebs).map_err(|why| CreateError::Room(why.into()))
    }

    /// Parts of the ini file that have no effect.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Bytes of all volumes' images.
    pub fn bytes(&self) -> u64 {
        self.sections.iter().map(|section| section.volume.image_size).sum()
    }

    /// Writes the image.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn write(&self, out: &mut dyn Write, making: &Making) -> Result<UbiWritten, CreateError> {
        let mut block = Vec::new();
        for lnum in 0..2 {
            self.maker.layout_block(lnum, &mut block);
            out.write_all(&block).map_err(CreateError::Output)?;
        }
        for (index, section) in self.sections.iter().enumerate() {
            let Some(path) = &section.image else { continue };
            let fail = |error| CreateError::source(path.display(), error);
            let mut image = File::open(path).map_err(fail)?;
            let mut left = section.volume.image_size;
            for lnum in 0.. {
                let length = left.min(self.maker.usable(index).into());
                if length == 0 {
                    break;
                }
                let read = |data: &mut [u8]| image.read_exact(data).map_err(fail);
                self.maker.fill_block((index, lnum), length as usize, &mut block, read)?;
                out.write_all(&block).map_err(CreateError::Output)?;
                left -= length;
                making.add(length);
            }
        }
        Ok(UbiWritten {
            blocks: self.maker.blocks(),
            reserved: self.maker.reserved(),
            leb_size: self.maker.leb_size(),
            volumes: self.sections.len(),
            image_sequence: self.options.image_sequence,
        })
    }

    /// A number derived from the content of the image, so that blocks of two images can be
    /// distinguished and the same input gives the same bytes.
    fn content_sequence(&self, text: &str) -> Result<u32, CreateError> {
        let mut hash = crc32fast::Hasher::new();
        hash.update(text.as_bytes());
        let mut chunk = vec![0; 1 << 16];
        for path in self.sections.iter().filter_map(|section| section.image.as_deref()) {
            let fail = |error| CreateError::source(path.display(), error);
            let mut image = File::open(path).map_err(fail)?;
            loop {
                match image.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(length) => hash.update(&chunk[..length]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(fail(error)),
                }
            }
        }
        // 0 stands for images that have none.
        Ok(hash.finalize().max(1))
    }
}

/// Sections of an ini file, each with its title and its keys and values; keys are lower case.
type Sections = Vec<(String, Vec<(String, String)>)>;

/// Reads an ini file as ubinize does: sections in brackets, `key=value`, comments from `#` or `;`
/// on, values optionally in quotes.
///
/// # Errors
/// A sentence with the number of the line.
pub fn parse_ini(text: &str) -> Result<Sections, String> {
    let mut sections = Sections::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let (title, _) = rest
                .split_once(']')
                .ok_or_else(|| format!("line {number}: a section without `]`"))?;
            let title = title.trim().to_ascii_lowercase();
            if sections.iter().any(|(other, _)| *other == title) {
                return Err(format!("line {number}: the section [{title}] occurs twice"));
            }
            sections.push((title, Vec::new()));
            continue;
        }
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| format!("line {number}: neither a section nor key=value"))?;
        let (_, keys) = sections
            .last_mut()
            .ok_or_else(|| format!("line {number}: a key before the first section"))?;
        let key = key.trim().to_ascii_lowercase();
        let value = unquote(value.trim());
        keys.retain(|(other, _)| *other != key);
        keys.push((key, value.to_string()));
    }
    Ok(sections)
}

/// The text inside the quotes, or before a comment.
fn unquote(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some((inside, _)) = value.strip_prefix(quote).and_then(|it| it.split_once(quote)) {
            return inside;
        }
    }
    value.split(['#', ';']).next().unwrap_or_default().trim_end()
}

/// A number of bytes in ubinize's notation: decimal or `0x`, optionally with KiB, MiB or GiB.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_hexdigit() && c != 'x').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim() {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    integer(number)?.checked_mul(1 << shift)
}

fn integer(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The contents of a section; `None` if it is not about UBI.
fn section(place: &str, keys: &[(String, String)]) -> Result<Option<Section>, CreateError> {
    let refuse = |why: String| CreateError::refused(place, why);
    let value = |key: &str| keys.iter().find(|(it, _)| it == key).map(|(_, value)| &value[..]);
    match value("mode") {
        Some("ubi") => {}
        Some(_) => return Ok(None),
        None => return Err(refuse("the key `mode` is missing (mode=ubi)".to_string())),
    }
    let kind = match value("vol_type") {
        Some("dynamic") | None => VolumeKind::Dynamic,
        Some("static") => VolumeKind::Static,
        Some(other) => {
            return Err(refuse(format!("vol_type={other}: it must be dynamic or static")));
        }
    };
    let number = |key: &str| match value(key) {
        None => Ok(None),
        Some(text) => integer(text)
            .and_then(|number| u32::try_from(number).ok())
            .map(Some)
            .ok_or_else(|| refuse(format!("{key}={text} is not a number"))),
    };
    let id = number("vol_id")?.ok_or_else(|| refuse("the key `vol_id` is missing".to_string()))?;
    let name = value("vol_name")
        .ok_or_else(|| refuse("the key `vol_name` is missing".to_string()))?
        .to_string();
    let flags = match value("vol_flags") {
        None => VolumeFlags::default(),
        Some("autoresize") => VolumeFlags::AUTORESIZE,
        Some("skip-check") => VolumeFlags::SKIP_CRC_CHECK,
        Some(other) => {
            return Err(refuse(format!("vol_flags={other}: it must be autoresize or skip-check")));
        }
    };
    let image = value("image").map(PathBuf::from);
    let image_size = image.as_deref().map_or(Ok(0), image_bytes)?;
    let size = match value("vol_size") {
        Some(text) => {
            bytes(text).ok_or_else(|| refuse(format!("vol_size={text} is not a size")))?
        }
        None if image.is_some() => image_size,
        None => return Err(refuse("it has neither `image` nor `vol_size`".to_string())),
    };
    let alignment = number("vol_alignment")?.unwrap_or(1);
    let volume = VolumePlan { id, name, kind, size, image_size, alignment, flags };
    Ok(Some(Section { volume, image }))
}

fn image_bytes(path: &Path) -> Result<u64, CreateError> {
    let fail = |error| CreateError::source(path.display(), error);
    let metadata = std::fs::metadata(path).map_err(fail)?;
    if !metadata.is_file() {
        return Err(fail(io::Error::other("an image must be a regular file")));
    }
    match metadata.len() {
        0 => Err(fail(io::Error::other("the file is empty"))),
        bytes => Ok(bytes),
    }
}

//! The properties of a device: from its folder in `/sys/class/mtd`, otherwise from the device
//! itself.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use flysch_api::flash::{FlashGeometry, Kind};

use crate::ioctl::{self, Info, Layout};

/// Major device number of MTD character devices (`MTD_CHAR_MAJOR`).
const MAJOR: u32 = 90;
const CLASS: &str = "/sys/class/mtd";

/// `MTD_WRITEABLE`, `MTD_NO_ERASE`, `MTD_SLC_ON_MLC_EMULATION` of the device's flags.
const WRITEABLE: u32 = 0x400;
const NO_ERASE: u32 = 0x1000;
const SLC_ON_MLC: u32 = 0x4000;

/// Whether `path` is an MTD character device, such as `/dev/mtd0`.
pub fn is_mtd(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| {
        metadata.file_type().is_char_device() && rustix::fs::major(metadata.rdev()) == MAJOR
    })
}

/// The kernel's counts since the device was registered, of all its users together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EccCounters {
    /// Corrected bits.
    pub corrected: u32,
    /// Uncorrectable steps.
    pub failed: u32,
    /// Blocks marked bad.
    pub bad_blocks: u32,
    /// Blocks reserved for bad-block tables.
    pub table_blocks: u32,
}

/// A device's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Number of the device: N of `/dev/mtdN`.
    pub number: u32,
    /// Name of the chip or partition; empty without sysfs.
    pub name: String,
    /// Its geometry.
    pub geometry: FlashGeometry,
    /// Whether it can be written at all.
    pub writeable: bool,
    /// Whether blocks must be erased before they are written.
    pub needs_erase: bool,
    /// Regions with erase blocks of another size, as in old NOR chips; 0 if all are equal.
    pub erase_regions: u32,
}

impl Facts {
    /// Reads `/sys/class/mtd/mtdN`, and asks the device for the rest.
    pub(crate) fn read(file: &File) -> io::Result<Self> {
        let number = rustix::fs::minor(file.metadata()?.rdev()) / 2;
        let (_, info) = ioctl::ask(file, Info::default())?;
        let size = rustix::fs::seek(file, rustix::fs::SeekFrom::End(0))
            .unwrap_or_else(|_| u64::from(info.size));
        Ok(Self::collect(number, &info, size, &Sysfs::of(number), || {
            ioctl::ask(file, Layout::default()).map_or(0, |(_, layout)| layout.available)
        }))
    }

    fn collect(
        number: u32,
        info: &Info,
        size: u64,
        sysfs: &Sysfs,
        oob_available: impl FnOnce() -> u32,
    ) -> Self {
        let flags = sysfs.flags().unwrap_or(info.flags);
        let write_size = info.write_size.max(1);
        let sub_page_size = sysfs.number("subpagesize").unwrap_or(write_size);
        let strength = sysfs.number("ecc_strength").unwrap_or(0);
        let threshold = sysfs.number("bitflip_threshold");
        let kind = match kind(info.kind) {
            Kind::MlcNand if flags & SLC_ON_MLC != 0 => Kind::Nand,
            kind => kind,
        };
        let oob_size = if kind.is_nand() { info.oob_size } else { 0 };
        let geometry = FlashGeometry {
            kind,
            size,
            erase_size: info.erase_size.max(1),
            write_size,
            sub_page_size: sub_page_size.clamp(1, write_size),
            oob_size,
            oob_available: match oob_size {
                0 => 0,
                _ => sysfs.number("oobavail").unwrap_or_else(oob_available).min(oob_size),
            },
            ecc_strength: strength,
            bitflip_threshold: threshold.unwrap_or_else(|| (3 * strength).div_ceil(4)),
        };
        Self {
            number,
            name: sysfs.text("name").unwrap_or_default(),
            geometry,
            writeable: flags & WRITEABLE != 0,
            needs_erase: flags & NO_ERASE == 0,
            erase_regions: sysfs.number("numeraseregions").unwrap_or(0),
        }
    }
}

/// `MTD_*` types of `mtd-abi.h`; unnamed types are programmed like NOR.
fn kind(number: u8) -> Kind {
    match number {
        1 => Kind::Ram,
        4 => Kind::Nand,
        6 => Kind::DataFlash,
        7 => Kind::UbiVolume,
        8 => Kind::MlcNand,
        _ => Kind::Nor,
    }
}

/// One device's folder in sysfs.
struct Sysfs(std::path::PathBuf);

impl Sysfs {
    fn of(number: u32) -> Self {
        Self(Path::new(CLASS).join(format!("mtd{number}")))
    }

    fn text(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.join(name)).ok()?;
        Some(text.trim_end_matches('\n').to_string())
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.trim().parse().ok()
    }

    fn flags(&self) -> Option<u32> {
        let text = self.text("flags")?;
        u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> Info {
        Info {
            kind: 4,
            flags: 0x400,
            size: 0,
            erase_size: 131_072,
            write_size: 2048,
            oob_size: 64,
            padding: 0,
        }
    }

    #[test]
    fn sysfs_tells_more_than_the_device() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("name", "NAND simulator partition 0\n"),
            ("flags", "0x400\n"),
            ("subpagesize", "512\n"),
            ("oobavail", "38\n"),
            ("ecc_strength", "4\n"),
            ("bitflip_threshold", "3\n"),
            ("numeraseregions", "0\n"),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let sysfs = Sysfs(folder.path().to_path_buf());
        let facts = Facts::collect(3, &info(), 8 << 30, &sysfs, || unreachable!());
        assert_eq!(facts.name, "NAND simulator partition 0");
        let geometry = facts.geometry;
        assert_eq!((geometry.size, geometry.sub_page_size), (8 << 30, 512));
        assert_eq!((geometry.oob_available, geometry.ecc_strength), (38, 4));
        assert!(facts.writeable && facts.needs_erase);
    }

    #[test]
    fn without_sysfs_the_device_tells_what_is_needed() {
        let facts = Facts::collect(0, &info(), 1 << 27, &Sysfs("/nowhere".into()), || 30);
        assert_eq!(facts.geometry.kind, Kind::Nand);
        assert_eq!((facts.geometry.sub_page_size, facts.geometry.oob_available), (2048, 30));
        assert_eq!(facts.name, "");
    }

    #[test]
    fn other_files_are_no_mtd() {
        assert!(!is_mtd(Path::new("/dev/null")));
        assert!(!is_mtd(Path::new("/dev")));
        assert!(!is_mtd(Path::new("/nowhere")));
    }
}

//! UBIFS and JFFS2 on chips.

use std::fmt;
use std::ops::{Deref, DerefMut};

use flysch_api::finding::{Finding, Severity};
use flysch_api::flash::Flash as _;
use flysch_api::vfs::{FileSystemMut, Timestamp};
use flysch_api::volume::Volume;
use flysch_jffs2::{Jffs2Mut, WriteOptions};
use flysch_ubi::{Device, DeviceOptions, DeviceVolume, FormatOptions, NewVolume, Ubi};
use flysch_ubifs::create::{CreateOptions, NewInode};
use flysch_ubifs::{Ubifs, UbifsMut};
use flysch_wire::ubifs::Compression;

use super::files::{Mounted, Stack};
use super::probe::{Chip, Probe};

type UbiVolume<C> = DeviceVolume<Device<Probe<C>>, Probe<C>>;

/// UBIFS on the one volume of a UBI device.
pub struct UbifsStack<C> {
    /// Makes the chip.
    pub chip: fn() -> C,
    /// LEBs of the volume.
    pub lebs: u32,
    /// How content is compressed.
    pub compression: Compression,
    /// Bytes of the journal.
    pub journal: Option<u64>,
    /// How the device works.
    pub options: DeviceOptions,
}

impl<C> fmt::Debug for UbifsStack<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UbifsStack").finish_non_exhaustive()
    }
}

/// JFFS2 on the whole chip.
pub struct Jffs2Stack<C> {
    /// Makes the chip.
    pub chip: fn() -> C,
    /// How it is mounted.
    pub options: WriteOptions,
}

impl<C> fmt::Debug for Jffs2Stack<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jffs2Stack").finish_non_exhaustive()
    }
}

/// A file system and how it is closed.
struct Open<F> {
    fs: F,
    close: fn(F) -> Result<(), String>,
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

impl<C: Chip> Stack for UbifsStack<C> {
    type Chip = C;
    const RENAME_DOUBLES: bool = false;
    const LEFT_BEHIND: Severity = Severity::Note;
    const SPLITS_BLOCKS: bool = false;

    fn chip(&self) -> C {
        (self.chip)()
    }

    fn make(&self, flash: Probe<C>) -> Result<(), String> {
        let format = FormatOptions::new(0x4321);
        let mut device = Device::format(flash, &format, &self.options).map_err(text)?;
        let id = device.create(&NewVolume::dynamic(b"root", self.lebs)).map_err(text)?;
        let volume = device.volume_mut(id).map_err(text)?;
        let Some(unit) = volume.geometry().write_size else { return Err("no write size".into()) };
        let options = CreateOptions {
            journal_size: self.journal,
            compression: self.compression,
            ..CreateOptions::new(unit, volume.geometry().leb_size, self.lebs)
        };
        let now = Timestamp { seconds: 1_600_000_000, nanoseconds: 0 };
        let root = NewInode::directory(now);
        flysch_ubifs::create::format(volume, &options, &root).map_err(text)?;
        device.detach().map(drop).map_err(text)
    }

    fn mount(&self, flash: Probe<C>) -> Result<Box<dyn Mounted>, String> {
        let mut device =
            Device::attach(flash, &self.options).map_err(|e| format!("attaching: {e}"))?;
        // What Linux does in the background.
        while device.work(8).map_err(|e| format!("work of UBI: {e}"))? {}
        let id = device.find(b"root").ok_or("the volume is gone")?;
        let volume: UbiVolume<C> = device.into_volume(id).map_err(text)?;
        let fs = UbifsMut::open(volume).map_err(|e| format!("mounting: {e}"))?;
        let close = |fs: UbifsMut<UbiVolume<C>>| {
            let volume = fs.close().map_err(|e| format!("unmounting: {e}"))?;
            volume.into_device().detach().map(drop).map_err(|e| format!("detaching: {e}"))
        };
        Ok(Box::new(Open { fs, close }))
    }

    fn check(&self, flash: &Probe<C>) -> Result<Vec<Finding>, String> {
        let images = flysch_ubi::find_images(flash, Some(flash.geometry().erase_size));
        let image = *images.first().ok_or("no UBI is found any more")?;
        let options = flysch_ubi::Options::default();
        let ubi = Ubi::attach(flash.clone(), image, &options).map_err(text)?;
        let mut findings = ubi.findings().to_vec();
        for info in ubi.volumes() {
            let volume = ubi.volume(info.id).ok_or("a volume is gone")?;
            let fs = Ubifs::open(volume, &flysch_ubifs::Options::default()).map_err(text)?;
            findings.extend(fs.check());
        }
        Ok(findings)
    }
}

impl<C: Chip> Stack for Jffs2Stack<C> {
    type Chip = C;
    const RENAME_DOUBLES: bool = true;
    // What was cut stays between the nodes until its block is collected.
    const LEFT_BEHIND: Severity = Severity::Inconsistent;
    const SPLITS_BLOCKS: bool = true;

    fn chip(&self) -> C {
        (self.chip)()
    }

    fn make(&self, flash: Probe<C>) -> Result<(), String> {
        self.mount(flash)?.close()
    }

    fn mount(&self, flash: Probe<C>) -> Result<Box<dyn Mounted>, String> {
        let fs = Jffs2Mut::mount(flash, &self.options).map_err(|e| format!("mounting: {e}"))?;
        let close = |mut fs: Jffs2Mut<Probe<C>>| fs.sync(None).map_err(text);
        Ok(Box::new(Open { fs, close }))
    }

    fn check(&self, flash: &Probe<C>) -> Result<Vec<Finding>, String> {
        let mut findings = vec![];
        let mut report = |finding| findings.push(finding);
        flysch_jffs2::check(flash.clone(), self.options.order, &mut report).map_err(text)?;
        Ok(findings)
    }
}

impl<F: FileSystemMut + 'static> Mounted for Open<F> {
    fn close(self: Box<Self>) -> Result<(), String> {
        (self.close)(self.fs)
    }
}

impl<F: FileSystemMut + 'static> Deref for Open<F> {
    type Target = dyn FileSystemMut;

    fn deref(&self) -> &Self::Target {
        &self.fs
    }
}

impl<F: FileSystemMut + 'static> DerefMut for Open<F> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.fs
    }
}

//! UBIFS and JFFS2 on chips.

use std::fmt;
use std::ops::{Deref, DerefMut};

use flysch_api::finding::{Finding, Severity};
use flysch_api::flash::Flash as _;
use flysch_api::vfs::{FileSystemMut, Timestamp};
use flysch_api::volume::{Volume, VolumeMut};
use flysch_jffs2::{Jffs2Mut, WriteOptions};
use flysch_models::random::Random;
use flysch_ubi::{DeviceOptions, DeviceVolume, FormatOptions, Gluebi, NewVolume, Ubi, UbiDevice};
use flysch_ubifs::create::{CreateOptions, NewInode};
use flysch_ubifs::{Ubifs, UbifsMut};
use flysch_wire::ubifs::Compression;

use super::chip::Chip;
use super::files::{Mounted, Stack};
use super::probe::Probe;
use super::setting::User;
use super::ubi::background;

/// Size of the static volume next to a file system, bytes.
const BOOT_LEN: usize = 20_000;

type UbiVolume = DeviceVolume<UbiDevice<Probe>, Probe>;

/// UBIFS on the only volume of a UBI device.
pub struct UbifsStack {
    /// The chip.
    pub chip: Chip,
    /// Number of LEBs of the volume.
    pub lebs: u32,
    /// How content is compressed.
    pub compression: Compression,
    /// Size of the journal, bytes.
    pub journal: Option<u64>,
    /// The options of the device.
    pub options: DeviceOptions,
    /// The user.
    pub user: User,
}

impl fmt::Debug for UbifsStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UbifsStack").finish_non_exhaustive()
    }
}

/// JFFS2 on the whole chip.
pub struct Jffs2Stack {
    /// The chip.
    pub chip: Chip,
    /// The mount options.
    pub options: WriteOptions,
}

impl fmt::Debug for Jffs2Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jffs2Stack").finish_non_exhaustive()
    }
}

/// JFFS2 on the only volume of a UBI device, as on Linux's gluebi.
pub struct Jffs2UbiStack {
    /// The chip.
    pub chip: Chip,
    /// Number of LEBs of the volume.
    pub lebs: u32,
    /// The mount options.
    pub options: WriteOptions,
    /// The options of the device.
    pub device: DeviceOptions,
    /// The user.
    pub user: User,
}

impl fmt::Debug for Jffs2UbiStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jffs2UbiStack").finish_non_exhaustive()
    }
}

/// An open file system, and how it is closed.
struct Open<F> {
    fs: F,
    close: fn(F) -> Result<(), String>,
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

/// Content of a neighbouring volume: its version, and bytes derived from it.
fn letter(version: u32, len: usize) -> Vec<u8> {
    let mut random = Random::new(u64::from(version));
    let noise = std::iter::repeat_with(|| random.bits() as u8);
    version.to_le_bytes().into_iter().chain(noise).take(len).collect()
}

/// Volumes next to the file system: a static one, and one that changes now and then.
fn make_neighbours(device: &mut UbiDevice<Probe>) -> Result<(), String> {
    let boot = device.create(&NewVolume::fixed(b"boot", 2)).map_err(text)?;
    let mut update = device.update(boot, BOOT_LEN as u64).map_err(text)?;
    update.write(&letter(0, BOOT_LEN)).map_err(text)?;
    update.finish().map_err(text)?;
    let environment = device.create(&NewVolume::dynamic(b"environment", 1)).map_err(text)?;
    let len = device.write_size().max(256) as usize;
    let mut volume = device.volume_mut(environment).map_err(text)?;
    volume.change(0, &letter(1, len)).map_err(text)
}

/// Reads the volumes next to the file system, and changes one.
fn visit_neighbours(device: &mut UbiDevice<Probe>) -> Result<(), String> {
    let find = |device: &UbiDevice<Probe>, name: &str| {
        device.find(name.as_bytes()).ok_or(format!("volume {name} is gone"))
    };
    let (boot, environment) = (find(device, "boot")?, find(device, "environment")?);
    let leb_size = device.leb_size() as usize;
    let volume = device.volume_mut(boot).map_err(text)?;
    let mut found = vec![0; BOOT_LEN];
    for (lnum, part) in (0..).zip(found.chunks_mut(leb_size)) {
        let _corrected = volume.read(lnum, 0, part).map_err(|e| format!("volume boot: {e}"))?;
    }
    if found != letter(0, BOOT_LEN) {
        return Err("volume boot is not what was written".into());
    }
    let len = device.write_size().max(256) as usize;
    let mut volume = device.volume_mut(environment).map_err(text)?;
    let mut found = vec![0; len];
    let read = volume.read(0, 0, &mut found);
    let _corrected = read.map_err(|e| format!("volume environment: {e}"))?;
    let version = found.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if found != letter(version, len) {
        return Err("volume environment is neither as before a change nor as after it".into());
    }
    let changed = volume.change(0, &letter(version + 1, len));
    changed.map_err(|e| format!("volume environment: {e}"))
}

impl Stack for UbifsStack {
    const RENAME_DOUBLES: bool = false;
    const LEFT_BEHIND: Severity = Severity::Note;
    const SPLITS_BLOCKS: bool = false;

    fn chip(&self) -> Chip {
        self.chip.clone()
    }

    fn make(&self, flash: Probe) -> Result<(), String> {
        let format = FormatOptions::new(0x4321);
        let mut device = UbiDevice::format(flash, &format, &self.options).map_err(text)?;
        if self.user == User::Several {
            make_neighbours(&mut device)?;
        }
        let lebs = self.lebs.min(device.account().available);
        let id = device.create(&NewVolume::dynamic(b"root", lebs)).map_err(text)?;
        let volume = device.volume_mut(id).map_err(text)?;
        let Some(unit) = volume.geometry().write_size else { return Err("no write size".into()) };
        let options = CreateOptions {
            journal_size: self.journal,
            compression: self.compression,
            ..CreateOptions::new(unit, volume.geometry().leb_size, lebs)
        };
        let now = Timestamp { seconds: 1_600_000_000, nanoseconds: 0 };
        let root = NewInode::directory(now);
        flysch_ubifs::create::format(volume, &options, &root).map_err(text)?;
        device.detach().map(drop).map_err(text)
    }

    fn mount(&self, flash: Probe) -> Result<Box<dyn Mounted>, String> {
        let mut device =
            UbiDevice::attach(flash, &self.options).map_err(|e| format!("attaching: {e}"))?;
        // What Linux does in the background.
        if self.user != User::Bare {
            background(&mut device)?;
        }
        if self.user == User::Several {
            visit_neighbours(&mut device)?;
        }
        let id = device.find(b"root").ok_or("the volume is gone")?;
        let volume: UbiVolume = device.into_volume(id).map_err(text)?;
        let fs = UbifsMut::open(volume).map_err(|e| format!("mounting: {e}"))?;
        let close = |fs: UbifsMut<UbiVolume>| {
            let volume = fs.close().map_err(|e| format!("unmounting: {e}"))?;
            volume.into_device().detach().map(drop).map_err(|e| format!("detaching: {e}"))
        };
        Ok(Box::new(Open { fs, close }))
    }

    fn check(&self, flash: &Probe) -> Result<Vec<Finding>, String> {
        let images = flysch_ubi::find_images(flash, Some(flash.geometry().erase_size));
        let image = *images.first().ok_or("no UBI is found any more")?;
        let options = flysch_ubi::AttachOptions::default();
        let ubi = Ubi::attach(flash.clone(), image, &options).map_err(text)?;
        let mut findings = ubi.findings().to_vec();
        for info in ubi.volumes().iter().filter(|info| info.name == b"root") {
            let volume = ubi.volume(info.id).ok_or("a volume is gone")?;
            let fs = Ubifs::open(volume, &flysch_ubifs::OpenOptions::default()).map_err(text)?;
            findings.extend(fs.check());
        }
        Ok(findings)
    }
}

impl Stack for Jffs2Stack {
    const RENAME_DOUBLES: bool = true;
    // Interrupted writes stay between the nodes until their block is collected.
    const LEFT_BEHIND: Severity = Severity::Inconsistent;
    const SPLITS_BLOCKS: bool = true;

    fn chip(&self) -> Chip {
        self.chip.clone()
    }

    fn make(&self, flash: Probe) -> Result<(), String> {
        self.mount(flash)?.close()
    }

    fn mount(&self, flash: Probe) -> Result<Box<dyn Mounted>, String> {
        let fs = Jffs2Mut::mount(flash, &self.options).map_err(|e| format!("mounting: {e}"))?;
        let close = |mut fs: Jffs2Mut<Probe>| fs.sync(None).map_err(text);
        Ok(Box::new(Open { fs, close }))
    }

    fn check(&self, flash: &Probe) -> Result<Vec<Finding>, String> {
        let mut findings = vec![];
        let mut report = |finding| findings.push(finding);
        flysch_jffs2::check(flash.clone(), self.options.order, &mut report).map_err(text)?;
        Ok(findings)
    }
}

impl Stack for Jffs2UbiStack {
    const RENAME_DOUBLES: bool = true;
    const LEFT_BEHIND: Severity = Severity::Inconsistent;
    const SPLITS_BLOCKS: bool = true;

    fn chip(&self) -> Chip {
        self.chip.clone()
    }

    fn make(&self, flash: Probe) -> Result<(), String> {
        let format = FormatOptions::new(0x4321);
        let mut device = UbiDevice::format(flash, &format, &self.device).map_err(text)?;
        let lebs = self.lebs.min(device.account().available);
        device.create(&NewVolume::dynamic(b"root", lebs)).map_err(text)?;
        self.mount(device.detach().map_err(text)?)?.close()
    }

    fn mount(&self, flash: Probe) -> Result<Box<dyn Mounted>, String> {
        let mut device =
            UbiDevice::attach(flash, &self.device).map_err(|e| format!("attaching: {e}"))?;
        if self.user != User::Bare {
            background(&mut device)?;
        }
        let id = device.find(b"root").ok_or("the volume is gone")?;
        let below = *device.flash().geometry();
        let flash = Gluebi::new(device.into_volume(id).map_err(text)?, &below);
        let fs = Jffs2Mut::mount(flash, &self.options).map_err(|e| format!("mounting: {e}"))?;
        let close = |mut fs: Jffs2Mut<Gluebi<UbiVolume>>| {
            fs.sync(None).map_err(|e| format!("unmounting: {e}"))?;
            let device = fs.into_flash().into_volume().into_device();
            device.detach().map(drop).map_err(|e| format!("detaching: {e}"))
        };
        Ok(Box::new(Open { fs, close }))
    }

    fn check(&self, flash: &Probe) -> Result<Vec<Finding>, String> {
        let images = flysch_ubi::find_images(flash, Some(flash.geometry().erase_size));
        let image = *images.first().ok_or("no UBI is found any more")?;
        let options = flysch_ubi::AttachOptions::default();
        let ubi = Ubi::attach(flash.clone(), image, &options).map_err(text)?;
        let mut findings = ubi.findings().to_vec();
        let info = ubi.volumes().iter().find(|info| info.name == b"root");
        let volume = info.and_then(|info| ubi.volume(info.id)).ok_or("the volume is gone")?;
        let mut report = |finding| findings.push(finding);
        flysch_jffs2::check(volume, self.options.order, &mut report).map_err(text)?;
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

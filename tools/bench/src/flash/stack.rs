//! File systems on a chip, with every layer metered.

use std::cell::OnceCell;
use std::rc::Rc;

use flysch_api::flash::{Flash, FlashError};
use flysch_api::vfs::{
    self, DeviceNumber, FileKind, FileSystem, FileSystemMut, NewFile, Timestamp,
};
use flysch_jffs2::{ByteOrder, Jffs2Mut, WriteOptions};
use flysch_ubi::{DeviceOptions, DeviceVolume, FormatOptions, NewVolume, UbiDevice};
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_ubifs::{IndexUse, OpenOptions, UbifsMut};
use serde::Serialize;

use super::chip::Chip;
use super::meter::{Layer, Meter, Metered, Reading};
use super::target::{FlashTarget, Mtd};

/// The time stamp of everything written.
pub const NOW: Timestamp = Timestamp { seconds: 1_200_000_000, nanoseconds: 0 };

/// The attributes of new files.
pub(super) const FILE: NewFile<'static> = NewFile {
    kind: FileKind::Regular,
    permissions: 0o644,
    owner: 0,
    group: 0,
    device: DeviceNumber { major: 0, minor: 0 },
    target: b"",
};

/// The subjects measured on a chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// Flash through its error correction, without a file system.
    Raw,
    /// JFFS2 with summaries.
    Jffs2,
    /// JFFS2 without summaries.
    Jffs2NoSummary,
    /// UBIFS on UBI.
    Ubifs,
    /// UBIFS on UBI with a fastmap.
    UbifsFastmap,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Raw, Self::Jffs2, Self::Jffs2NoSummary, Self::Ubifs, Self::UbifsFastmap];

    /// Its name for the user.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Jffs2 => "jffs2",
            Self::Jffs2NoSummary => "jffs2-no-summary",
            Self::Ubifs => "ubifs",
            Self::UbifsFastmap => "ubifs-fastmap",
        }
    }

    /// The subject with the user's `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.name() == name)
    }
}

/// Why a figure is missing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FigureError {
    /// The chip is too small for it.
    #[error("no space left")]
    NoSpace,
    /// An unexpected error.
    #[error("{0}: {1}")]
    Failed(&'static str, String),
    /// Data read differs from data written.
    #[error("what was read is not what was written")]
    Differs,
}

impl From<vfs::FsError> for FigureError {
    fn from(error: vfs::FsError) -> Self {
        match error {
            vfs::FsError::NoSpace => Self::NoSpace,
            other => Self::Failed("file system", other.to_string()),
        }
    }
}

impl From<FlashError> for FigureError {
    fn from(error: FlashError) -> Self {
        match error {
            FlashError::OutOfRange => Self::NoSpace,
            other => Self::Failed("flash", other.to_string()),
        }
    }
}

/// A step that failed.
fn at<E: ToString>(step: &'static str) -> impl FnOnce(E) -> FigureError {
    move |error| FigureError::Failed(step, error.to_string())
}

type Volume = Metered<DeviceVolume<UbiDevice<Mtd>, Mtd>>;

/// A mounted file system.
#[derive(Debug)]
pub enum Mounted {
    /// JFFS2.
    Jffs2(Box<Jffs2Mut<Mtd>>),
    /// UBIFS.
    Ubifs(Box<UbifsMut<Volume>>),
}

/// Puts file systems on chips of one kind.
#[derive(Debug)]
pub struct Stacks<'t> {
    /// The chip.
    pub target: &'t FlashTarget,
    /// The meter of all layers.
    pub meter: Rc<Meter>,
    /// A chip with JFFS2's clean markers.
    marked: OnceCell<Chip>,
}

impl<'t> Stacks<'t> {
    /// Stacks on that chip.
    pub fn new(target: &'t FlashTarget, meter: Rc<Meter>) -> Self {
        Self { target, meter, marked: OnceCell::new() }
    }

    /// `chip` with its error correction.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn mtd(&self, chip: Chip) -> Result<Mtd, FigureError> {
        self.target.mtd(chip, &self.meter).map_err(at("flash"))
    }

    /// A new chip prepared as by `flash_erase -j`.
    fn marked(&self) -> Result<Chip, FigureError> {
        if let Some(chip) = self.marked.get() {
            return Ok(chip.clone());
        }
        let mut mtd = self.mtd(self.target.chip())?;
        flysch_jffs2::format(&mut mtd, ByteOrder::Little).map_err(at("flash_erase -j"))?;
        Ok(self.marked.get_or_init(|| mtd.inner().chip()).clone())
    }

    fn ubi_options(subject: Subject) -> DeviceOptions {
        DeviceOptions { fastmap: subject == Subject::UbifsFastmap, ..DeviceOptions::default() }
    }

    /// A new, empty file system on a new chip.
    ///
    /// # Errors
    /// [`FigureError::NoSpace`] if the chip is too small; others are bugs.
    pub fn fresh(&self, subject: Subject) -> Result<Mounted, FigureError> {
        if matches!(subject, Subject::Raw | Subject::Jffs2 | Subject::Jffs2NoSummary) {
            return mount_jffs2(self.mtd(self.marked()?)?, subject);
        }
        let mtd = self.mtd(self.target.chip())?;
        // mkfs.ubifs takes 8 bytes where the flash programs single ones.
        let write_size = mtd.geometry().write_size.max(8);
        let mut device =
            UbiDevice::format(mtd, &FormatOptions::new(7), &Self::ubi_options(subject))
                .map_err(at("ubiformat"))?;
        let lebs = device.account().available;
        let new = NewVolume::dynamic(b"bench", lebs);
        let id = device.create(&new).map_err(at("ubimkvol"))?;
        let mut volume = device.into_volume(id).map_err(at("UBI volume"))?;
        let leb_size = volume.device().leb_size();
        let options = CreateOptions::new(write_size, leb_size, lebs);
        format(&mut volume, &options, &NewInode::directory(NOW)).map_err(at("mkfs.ubifs"))?;
        // What was left behind is erased before anything is measured, as in the background.
        volume.device_mut().sync().map_err(at("UBI"))?;
        let volume = Metered::new(volume, Layer::Ubi, &self.meter);
        let fs = UbifsMut::open(volume).map_err(at("mount of UBIFS"))?;
        Ok(Mounted::Ubifs(Box::new(fs)))
    }

    /// Mounts the file system on `chip`; the first reading is that of attaching UBI, the second
    /// that of the mount after it.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn mount(
        &self,
        subject: Subject,
        chip: Chip,
        index: IndexUse,
    ) -> Result<(Mounted, Reading, Reading), FigureError> {
        let mtd = self.mtd(chip)?;
        let start = self.meter.reading();
        if matches!(subject, Subject::Raw | Subject::Jffs2 | Subject::Jffs2NoSummary) {
            let entered = self.meter.enter(Layer::FileSystem);
            let mounted = mount_jffs2(mtd, subject)?;
            drop(entered);
            return Ok((mounted, Reading::default(), self.meter.reading() - start));
        }
        let entered = self.meter.enter(Layer::Ubi);
        let device =
            UbiDevice::attach(mtd, &Self::ubi_options(subject)).map_err(at("UBI attach"))?;
        let id = device.find(b"bench").ok_or(FigureError::Differs)?;
        let volume = device.into_volume(id).map_err(at("UBI volume"))?;
        drop(entered);
        let attached = self.meter.reading();
        let volume = Metered::new(volume, Layer::Ubi, &self.meter);
        let entered = self.meter.enter(Layer::FileSystem);
        let fs = UbifsMut::open_with(volume, &OpenOptions { index, keys: None })
            .map_err(at("mount of UBIFS"))?;
        drop(entered);
        let mounted = self.meter.reading() - attached;
        Ok((Mounted::Ubifs(Box::new(fs)), attached - start, mounted))
    }
}

fn mount_jffs2(mtd: Mtd, subject: Subject) -> Result<Mounted, FigureError> {
    let options = WriteOptions { summary: subject == Subject::Jffs2, ..WriteOptions::default() };
    let fs = Jffs2Mut::mount(mtd, &options).map_err(at("mount of JFFS2"))?;
    Ok(Mounted::Jffs2(Box::new(fs)))
}

impl Mounted {
    /// For reading.
    pub fn fs(&self) -> &dyn FileSystem {
        match self {
            Self::Jffs2(fs) => &**fs,
            Self::Ubifs(fs) => &**fs,
        }
    }

    /// For writing.
    pub fn fs_mut(&mut self) -> &mut dyn FileSystemMut {
        match self {
            Self::Jffs2(fs) => &mut **fs,
            Self::Ubifs(fs) => &mut **fs,
        }
    }

    /// Bytes occupied by the stored data: UBIFS's nodes and its index as of the last commit,
    /// JFFS2's valid nodes with everything that cannot be collected.
    pub fn used(&self) -> u64 {
        match self {
            Self::Jffs2(fs) => {
                let all = fs.statistics();
                (all.blocks - all.blocks_free) * u64::from(all.block_size)
            }
            Self::Ubifs(fs) => fs.used_bytes(),
        }
    }

    /// Unmounts it and returns the chip.
    ///
    /// # Errors
    /// If its last data cannot be written.
    pub fn close(self) -> Result<Chip, FigureError> {
        let mtd = match self {
            Self::Jffs2(mut fs) => {
                fs.sync(None)?;
                fs.into_flash()
            }
            Self::Ubifs(fs) => {
                let volume = fs.close()?.into_inner();
                volume.into_device().detach().map_err(at("UBI detach"))?
            }
        };
        Ok(mtd.inner().chip())
    }
}

//! Opens an image, whatever it is.

mod naming;

pub use naming::{in_fields, is_named, names};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flysch_api::flash::{self, Flash};
use flysch_api::vfs::FileSystem;
use flysch_jffs2::Jffs2;
use flysch_linux::MtdDevice;
use flysch_mtd::detect::{self, Basis, Conflict, Content, Hints, Region};
use flysch_mtd::{CachedFlash, Dump, FlashImage as PlainImage, PageFormat, Scheme, Storage};
use flysch_ubi::{Ubi, UbiVolume};
use flysch_ubifs::{AuthError, FlatImage, Keys, SignatureError, Ubifs};
use flysch_wire::jffs2::ByteOrder;
use flysch_wire::ubi::VolumeKind;

use crate::lock::Lock;
use crate::lost::WithLost;
use crate::spool;
use crate::storage::Window;

/// A flash that any thread may read.
pub type SharedFlash = Arc<dyn Flash + Send + Sync>;
/// Logical erase blocks that any thread may read: of UBI, or contiguous.
pub type SharedVolume = Arc<dyn flysch_api::volume::Volume + Send + Sync>;
/// A file system that any thread may read.
pub type SharedFileSystem = Arc<dyn FileSystem + Send + Sync>;
pub(crate) type SharedStorage = Arc<dyn Storage + Send + Sync>;

/// What the user knows better than detection.
#[derive(Clone, Debug, Default)]
pub struct ImageOpenOptions {
    /// Bytes of an erase block.
    pub erase_size: Option<u32>,
    /// Bytes of a page, without out-of-band bytes.
    pub page_size: Option<u32>,
    /// Out-of-band bytes of a page.
    pub oob_size: Option<u32>,
    /// Error correction of the pages, by codes among their out-of-band bytes.
    pub ecc: Option<Scheme>,
    /// Whether the image must be taken as it is, without out-of-band bytes in it.
    pub no_oob: bool,
    /// Bytes to skip at the front.
    pub offset: u64,
    /// Keys of UBIFS ([`read_keys`](crate::read_keys)).
    pub keys: Option<Arc<Keys>>,
}

impl ImageOpenOptions {
    pub(crate) fn hints(&self) -> Hints {
        let Self { erase_size, page_size, oob_size, ecc, .. } = *self;
        Hints { erase_size, page_size, oob_size, ecc }
    }
}

/// Why an image could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file.
    #[error("cannot be read: {0}")]
    File(#[from] io::Error),
    /// The flash in it.
    #[error("cannot be read: {0}")]
    Flash(#[from] flash::FlashError),
    /// It is a device to which Linux denies access.
    #[error("{0}")]
    Device(#[from] flysch_linux::OpenError),
    /// It contains nothing known.
    #[error(
        "no UBI, UBIFS or JFFS2 was found in it; if it is one, name its sizes \
         (--erase-size, --page-size) or where it begins (--offset)"
    )]
    Unknown,
    /// It is empty.
    #[error("is empty")]
    Empty,
    /// It has no programmed byte.
    #[error(
        "holds nothing but erased bytes (0xFF); to open it as an empty JFFS2, name the size of \
         its erase blocks (--erase-size)"
    )]
    Erased,
    /// The user's settings are wrong.
    #[error("cannot have {0}; leave the option out, or name the right size")]
    Conflict(Conflict),
    /// The user's settings match no page format.
    #[error(
        "no pages with such out-of-band bytes and error correction were found in it; name what is \
         known of them (--page-size, --oob-size, --ecc), or leave these options out"
    )]
    NoPages,
    /// The file of out-of-band bytes does not belong to this image.
    #[error(
        "has {main} bytes, and the out-of-band bytes are {oob}: no page size fits that; name it \
         (--page-size) if it is an unusual one"
    )]
    Apart {
        /// Bytes of the image.
        main: u64,
        /// Bytes of the other file.
        oob: u64,
    },
    /// The part to skip is longer than the image.
    #[error("the image has only {0} bytes, so there is nothing after --offset")]
    Offset(u64),
}

/// An opened image.
#[derive(Debug)]
pub struct Image {
    /// Its file.
    pub path: PathBuf,
    /// Bytes of the file.
    pub size: u64,
    /// Bytes skipped at its front.
    pub offset: u64,
    /// The format of its pages, if it contains out-of-band bytes.
    pub page_format: Option<PageFormat>,
    /// Stretches with one content each, from the start.
    pub parts: Vec<Part>,
    /// The device, if it is not a file.
    pub device: Option<Arc<MtdDevice>>,
    /// Its out-of-band bytes are in a separate file.
    pub has_oob_apart: bool,
    /// Keys of UBIFS in it.
    pub(crate) keys: Option<Arc<Keys>>,
    /// Prevents others from modifying the file.
    pub(crate) lock: Option<Lock>,
}

/// A stretch of an image with one content.
pub struct Part {
    /// The result of detection.
    pub region: Region,
    /// Its flash.
    pub flash: SharedFlash,
    /// UBI devices in it, if it is UBI.
    pub devices: Vec<ImageDevice>,
    /// Its volumes: those of its UBI devices, or the single one that it is.
    pub volumes: Vec<ImageVolume>,
    /// Why it could not be opened.
    pub failure: Option<String>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("region", &self.region).finish_non_exhaustive()
    }
}

/// A UBI device.
pub type ImageDevice = Ubi<SharedFlash>;

/// The contents of a volume.
pub enum Contents {
    /// UBIFS, in a UBI volume or without UBI.
    Ubifs(Arc<Ubifs<SharedVolume>>),
    /// JFFS2 on flash.
    Jffs2(Arc<Jffs2<SharedFlash>>),
    /// Something other than a file system.
    Raw(SharedFlash),
    /// A file system that cannot be opened, and why.
    Broken(SharedFlash, String),
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ubifs(_) => "Ubifs",
            Self::Jffs2(_) => "Jffs2",
            Self::Raw(_) => "Raw",
            Self::Broken(..) => "Broken",
        })
    }
}

/// One volume: a UBI volume, a bare UBIFS, a JFFS2.
pub struct ImageVolume {
    /// Its name: that of the UBI volume, otherwise of its format.
    pub name: String,
    /// ID of the UBI volume.
    pub id: Option<u32>,
    /// The UBI volume.
    pub ubi: Option<UbiVolume<SharedFlash>>,
    /// Its contents.
    pub contents: Contents,
}

impl std::fmt::Debug for ImageVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Contents {
    /// Whether it is a UBIFS with a lost superblock, reconstructed from its nodes.
    pub fn is_without_superblock(&self) -> bool {
        match self {
            Self::Ubifs(fs) => fs.is_without_superblock(),
            Self::Jffs2(_) | Self::Raw(_) | Self::Broken(..) => false,
        }
    }
}

impl ImageVolume {
    /// What was verified with a key in its file system; `None` without one.
    pub fn verified(&self) -> Option<flysch_ubifs::Verified> {
        match &self.contents {
            Contents::Ubifs(fs) => fs.verified().copied(),
            _ => None,
        }
    }

    /// The file system, if there is one and it could be opened.
    pub fn file_system(&self) -> Option<SharedFileSystem> {
        match &self.contents {
            Contents::Ubifs(fs) => Some(fs.clone()),
            Contents::Jffs2(fs) => Some(fs.clone()),
            Contents::Raw(_) | Contents::Broken(..) => None,
        }
    }

    /// The same with files without a path, in a directory `lost+found` of its root. Linux does not
    /// show them: they lost their names, or (JFFS2) were deleted and not yet collected.
    pub fn file_system_with_lost(&self) -> Option<SharedFileSystem> {
        Some(match &self.contents {
            Contents::Ubifs(fs) => Arc::new(WithLost::new(fs.clone(), fs.unreachable())),
            Contents::Jffs2(fs) => {
                let order = Some(fs.facts().order);
                let fs = Jffs2::mount_keeping_nameless(fs.flash().clone(), order).ok()?;
                let lost = fs.unreachable();
                Arc::new(WithLost::new(Arc::new(fs), lost))
            }
            Contents::Raw(_) | Contents::Broken(..) => return None,
        })
    }

    /// Why its file system could not be opened.
    pub fn failure(&self) -> Option<&str> {
        match &self.contents {
            Contents::Broken(_, why) => Some(why),
            _ => None,
        }
    }

    /// Short name of its contents.
    pub fn format(&self) -> &'static str {
        match &self.contents {
            Contents::Ubifs(_) => "ubifs",
            Contents::Jffs2(_) => "jffs2",
            Contents::Raw(_) => "raw",
            Contents::Broken(..) => "broken",
        }
    }
}

impl Image {
    /// Opens the image at `path`: detects out-of-band bytes, contents, volumes and file systems. A
    /// pipe is read to its end, into a file without a name.
    ///
    /// # Errors
    /// The file cannot be read or contains nothing known. Damage is not such an error.
    pub fn open(path: &Path, options: &ImageOpenOptions) -> Result<Self, OpenError> {
        if flysch_linux::is_mtd(path) {
            return Self::open_device(path, options);
        }
        let file = spool::open(path)?;
        let lock = Lock::shared(file.file())?;
        let mut image = Self::in_storage(path, Arc::new(file), options)?;
        image.lock = Some(lock);
        Ok(image)
    }

    /// Opens the image in `storage`, such as bytes in memory; `name` is its name in messages. Such
    /// an image can be read, checked and extracted, but not modified.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn in_storage(
        name: &Path,
        storage: Arc<dyn Storage + Send + Sync>,
        options: &ImageOpenOptions,
    ) -> Result<Self, OpenError> {
        let size = storage.size();
        if size == 0 {
            return Err(OpenError::Empty);
        }
        let len = size.checked_sub(options.offset).ok_or(OpenError::Offset(size))?;
        let storage: SharedStorage = match options.offset {
            0 => storage,
            start => Arc::new(Window { storage, start, len }),
        };
        let hints = options.hints();
        let page_format = match options.no_oob {
            true => None,
            false => detect::page_format(&storage, &hints)?,
        };
        if page_format.is_none() && hints.name_oob() {
            return Err(OpenError::NoPages);
        }
        Self::of_storage(name, size, storage, page_format, options)
    }

    /// Opens the image in `storage`, with pages in `page_format`.
    pub(crate) fn of_storage(
        path: &Path,
        size: u64,
        storage: SharedStorage,
        page_format: Option<PageFormat>,
        options: &ImageOpenOptions,
    ) -> Result<Self, OpenError> {
        let hints = options.hints();
        let regions = match &page_format {
            None => detect::plain_regions(&storage, &hints)?,
            Some(format) => {
                // The block size is not known yet; any multiple of the page will do.
                let erase_size = format.page_size * 64;
                let dump = Dump::new(&storage, format.clone(), erase_size)?;
                detect::regions(&dump, &hints)?
            }
        };
        if let Some(conflict) = regions.iter().find_map(|region| region.conflict) {
            return Err(OpenError::Conflict(conflict));
        }
        if regions.is_empty() && !is_erased(&storage)? {
            return Err(OpenError::Unknown);
        }
        let mut parts = vec![];
        for region in regions {
            let flash = region_flash(&storage, page_format.as_ref(), &region)?;
            parts.push(Part::open(region, flash, options));
        }
        if parts.is_empty() {
            parts.push(erased_part(&storage, options).ok_or(OpenError::Erased)?);
        }
        Ok(Self {
            path: path.to_path_buf(),
            size,
            offset: options.offset,
            page_format,
            parts,
            device: None,
            has_oob_apart: false,
            keys: options.keys.clone(),
            lock: None,
        })
    }

    /// All volumes.
    pub fn volumes(&self) -> impl Iterator<Item = &ImageVolume> {
        self.parts.iter().flat_map(|part| &part.volumes)
    }
}

/// An erased flash is an empty JFFS2.
fn is_erased(storage: &SharedStorage) -> Result<bool, flash::FlashError> {
    let mut window = vec![0; 1 << 16];
    let mut at = 0;
    while at < storage.size() {
        let len = window.len().min((storage.size() - at).try_into().unwrap_or(usize::MAX));
        storage.read_at(at, &mut window[..len])?;
        if window[..len].iter().any(|&byte| byte != 0xFF) {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

/// Erased flash whose erase block size the user gave, as the empty JFFS2 that Linux mounts from it.
fn erased_part(storage: &SharedStorage, options: &ImageOpenOptions) -> Option<Part> {
    let geometry = flash::FlashGeometry::nor(storage.size(), options.erase_size?);
    let (content, range) = (Content::Jffs2(ByteOrder::Little), 0..storage.size());
    let region = Region { content, range, geometry, basis: Basis::Named, conflict: None };
    let flash: SharedFlash = Arc::new(PlainImage::new(storage.clone(), geometry));
    let part = Part::open(region, flash, options);
    part.failure.is_none().then_some(part)
}

/// The flash of one region: its own erase blocks start where it starts.
fn region_flash(
    storage: &SharedStorage,
    format: Option<&PageFormat>,
    region: &Region,
) -> Result<SharedFlash, flash::FlashError> {
    let (start, len) = (region.range.start, region.range.end - region.range.start);
    let Some(format) = format else {
        let window = Window { storage: storage.clone(), start, len };
        return Ok(Arc::new(CachedFlash::new(PlainImage::new(window, region.geometry))));
    };
    let page = u64::from(format.page_size);
    let stride = page + format.oob.size as u64;
    let window = Window {
        storage: storage.clone(),
        start: start / page * stride,
        len: len.div_ceil(page) * stride,
    };
    let available = storage.size().saturating_sub(window.start);
    let window = Window { len: window.len.min(available), ..window };
    let dump = Dump::new(window, format.clone(), region.geometry.erase_size)?;
    Ok(Arc::new(CachedFlash::new(dump)))
}

impl Part {
    pub(crate) fn open(region: Region, flash: SharedFlash, options: &ImageOpenOptions) -> Self {
        let mut part = Self { region, flash, devices: vec![], volumes: vec![], failure: None };
        match part.region.content {
            Content::Ubi { .. } => part.open_ubi(options),
            Content::Ubifs { .. } => part.open_ubifs(options),
            Content::Jffs2(order) => part.open_jffs2(order),
        }
        part
    }

    fn open_ubi(&mut self, options: &ImageOpenOptions) {
        if self.region.basis == Basis::Assumed {
            let why = "there is only one UBI header, which does not say how large erase blocks \
                       are; name their size (--erase-size)";
            self.failure = Some(why.into());
            return;
        }
        let erase_size = options.erase_size.or(Some(self.region.geometry.erase_size));
        for image in flysch_ubi::find_images(&self.flash, erase_size) {
            match Ubi::attach(self.flash.clone(), image, &flysch_ubi::AttachOptions::default()) {
                Ok(device) => self.devices.push(device),
                Err(error) => self.failure = Some(error.to_string()),
            }
        }
        for device in &self.devices {
            for info in device.volumes() {
                let volume = device.volume(info.id);
                self.volumes.extend(volume.map(|volume| ubi_volume(volume, options)));
            }
        }
    }

    fn open_ubifs(&mut self, options: &ImageOpenOptions) {
        let contents = match FlatImage::open(self.flash.clone()) {
            None => Contents::Broken(self.flash.clone(), "the superblock is damaged".into()),
            Some(volume) => match open_ubifs(Arc::new(volume), options) {
                Ok(fs) => Contents::Ubifs(Arc::new(fs)),
                Err(error) => Contents::Broken(self.flash.clone(), why_not(error)),
            },
        };
        self.volumes.push(ImageVolume { name: "ubifs".into(), id: None, ubi: None, contents });
    }

    fn open_jffs2(&mut self, order: ByteOrder) {
        match Jffs2::mount(self.flash.clone(), Some(order)) {
            Ok(fs) => {
                let contents = Contents::Jffs2(Arc::new(fs));
                self.volumes.push(ImageVolume {
                    name: "jffs2".into(),
                    id: None,
                    ubi: None,
                    contents,
                });
            }
            Err(error) => self.failure = Some(error.to_string()),
        }
    }
}

fn open_ubifs(
    volume: SharedVolume,
    options: &ImageOpenOptions,
) -> Result<Ubifs<SharedVolume>, flysch_ubifs::UbifsOpenError> {
    let keys = options.keys.clone();
    Ubifs::open(volume, &flysch_ubifs::OpenOptions { keys, ..Default::default() })
}

/// Why a UBIFS could not be opened, and the remedy.
fn why_not(error: flysch_ubifs::UbifsOpenError) -> String {
    let text = error.to_string();
    match error {
        flysch_ubifs::UbifsOpenError::Authentication(AuthError::Key) => format!(
            "{text}; name the right one (--auth-key), or leave the option out to read without \
             verifying"
        ),
        flysch_ubifs::UbifsOpenError::Authentication(AuthError::NoKey) => {
            format!("{text}; name it (--auth-key)")
        }
        flysch_ubifs::UbifsOpenError::Authentication(AuthError::Signature(
            SignatureError::NoCertificate,
        )) => format!("{text}; name it (--auth-cert), or leave --auth-key out as well"),
        flysch_ubifs::UbifsOpenError::Authentication(_) => {
            format!("{text}; without --auth-key and --auth-cert it is read and not verified")
        }
        _ => text,
    }
}

fn ubi_volume(ubi: UbiVolume<SharedFlash>, options: &ImageOpenOptions) -> ImageVolume {
    let info = ubi.info();
    let name = match info.name.is_empty() {
        true => format!("volume-{}", info.id),
        false => String::from_utf8_lossy(&info.name).into_owned(),
    };
    let id = Some(info.id);
    let contents = ubi_contents(&ubi, options);
    ImageVolume { name, id, ubi: Some(ubi), contents }
}

/// The contents of a volume, judged by everything readable in it. A page that error correction gave
/// up does not decide: the checksums of its contents do.
fn ubi_contents(ubi: &UbiVolume<SharedFlash>, options: &ImageOpenOptions) -> Contents {
    let raw = || -> SharedFlash { Arc::new(ubi.clone()) };
    let info = ubi.info();
    if info.kind == VolumeKind::Static || info.map.is_empty() {
        return Contents::Raw(raw());
    }
    let jffs2 = |order| match Jffs2::mount(raw(), Some(order)) {
        Ok(fs) => Contents::Jffs2(Arc::new(fs)),
        Err(error) => Contents::Broken(raw(), error.to_string()),
    };
    let first = match starts_with_jffs2(ubi, 0) {
        Ok(order) => order,
        Err(error) => return Contents::Broken(raw(), format!("cannot be read: {error}")),
    };
    if let Some(order) = first {
        return jffs2(order);
    }
    match open_ubifs(Arc::new(ubi.clone()), options) {
        Ok(fs) => Contents::Ubifs(Arc::new(fs)),
        Err(flysch_ubifs::UbifsOpenError::NotUbifs) => {
            // The first block of a JFFS2 may be damaged, or not written yet.
            let lebs = info.map.iter().map(|&(lnum, _)| lnum);
            let order = lebs.filter_map(|lnum| starts_with_jffs2(ubi, lnum).ok().flatten()).next();
            order.map_or_else(|| Contents::Raw(raw()), jffs2)
        }
        Err(error) => Contents::Broken(raw(), why_not(error)),
    }
}

/// Whether a LEB starts with a JFFS2 node, and its byte order.
fn starts_with_jffs2(
    ubi: &UbiVolume<SharedFlash>,
    lnum: u32,
) -> Result<Option<ByteOrder>, flash::FlashError> {
    let mut bytes = [0; 12];
    match flysch_api::volume::Volume::read(ubi, lnum, 0, &mut bytes) {
        Ok(_) | Err(flash::FlashError::Uncorrectable { .. }) => {}
        Err(error) => return Err(error),
    }
    Ok(flysch_wire::jffs2::detect(&bytes))
}

//! Images and their volumes.

use std::ffi::c_char;
use std::sync::Arc;

use flysch_image::{
    Contents, EccScheme, Image as Opened, ImageOpenOptions, KeyFile, in_fields, names, read_keys,
};

use crate::border::{bytes, guarded, named, null, path, told};
use crate::error::{ImageError, ImageStatus, Outcome};
use crate::source::{Called, Memory};
use crate::values::{Bytes, Format, ImageOptions, Reader, Volume};

/// The name of an image in memory or behind a function, in messages.
const NAMELESS: &str = "<image>";

/// An open image.
#[derive(Debug)]
pub struct Image {
    pub(crate) opened: Arc<Opened>,
    /// What could not be opened: parts, then volumes.
    failures: Vec<String>,
    /// For each volume why its file system could not be opened.
    broken: Vec<Option<String>>,
}

impl Image {
    fn new(opened: Opened) -> Self {
        let broken: Vec<Option<String>> =
            opened.volumes().map(|volume| volume.failure().map(in_fields)).collect();
        let parts = opened.parts.iter().filter_map(|part| part.failure.as_deref().map(in_fields));
        let volumes = names(&opened).into_iter().zip(&broken);
        let volumes =
            volumes.filter_map(|(name, why)| Some(format!("volume {name}: {}", why.as_ref()?)));
        let failures = parts.chain(volumes).collect();
        Self { opened: Arc::new(opened), failures, broken }
    }

    /// Why the file system of a volume could not be opened.
    pub(crate) fn failure_of(&self, volume: usize) -> Option<&str> {
        self.broken.get(volume)?.as_deref()
    }
}

/// The library's version, as `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn flysch_images_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Converts the options to the types of the crates.
///
/// # Safety
/// `options` is NULL or as the header says.
unsafe fn understood(options: *const ImageOptions) -> Outcome<ImageOpenOptions> {
    // SAFETY: the caller's promise.
    let Some(given) = (unsafe { options.as_ref() }) else { return Ok(ImageOpenOptions::default()) };
    let text = |given: Bytes, what: &str| -> Outcome<Option<&[u8]>> {
        // SAFETY: as above.
        let text = unsafe { bytes(given, what) }?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    };
    let wrong = |what: &str, why: &dyn std::fmt::Display| {
        ImageError::new(ImageStatus::Argument, format_args!("{what}: {why}"))
    };
    let words = |text: Option<&[u8]>, what: &str| -> Outcome<Option<String>> {
        let words = text.map(|text| String::from_utf8(text.to_vec())).transpose();
        words.map_err(|error| wrong(what, &error))
    };
    let ecc = words(text(given.ecc, "ecc")?, "ecc")?.map(|name| name.parse::<EccScheme>());
    let master = words(text(given.master_key, "master_key")?, "master_key")?;
    let masters = master.map(|name| name.parse::<KeyFile>());
    let masters: Vec<KeyFile> = masters.into_iter().flatten().collect();
    let auth = text(given.auth_key, "auth_key")?.map(|name| (path(name), None));
    let keys = read_keys(auth, &masters, None);
    let size = |value: u32| (value != 0).then_some(value);
    Ok(ImageOpenOptions {
        erase_size: size(given.erase_size),
        page_size: size(given.page_size),
        oob_size: size(given.oob_size),
        ecc: ecc.transpose().map_err(|error| wrong("ecc", &error))?,
        no_oob: given.no_oob,
        offset: given.offset,
        keys: keys.map_err(|error| ImageError::new(ImageStatus::System, error))?,
    })
}

fn handle(opened: Opened) -> *mut Image {
    Box::into_raw(Box::new(Image::new(opened)))
}

/// Opens the image in a file; NULL if it cannot be opened. `options` may be NULL. Damage does not
/// prevent opening. Close the image with flysch_image_close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_image_open(
    file: Bytes,
    options: *const ImageOptions,
    error: *mut ImageError,
) -> *mut Image {
    let work = || {
        // SAFETY: the pointers are NULL or as the header says.
        let (file, options) = unsafe { (bytes(file, "the path")?, understood(options)?) };
        let opened = Opened::open(path(file), &options);
        opened.map(handle).map_err(|why| ImageError::of_open(path(file).display(), &why))
    };
    // SAFETY: NULL or room for an error.
    unsafe { guarded(error, std::ptr::null_mut(), work) }
}

/// Opens an image in memory, which must stay unchanged until the image and its files are closed; it
/// is not copied. Otherwise like flysch_image_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_image_open_memory(
    image: Bytes,
    options: *const ImageOptions,
    error: *mut ImageError,
) -> *mut Image {
    let work = || {
        // SAFETY: the pointers are NULL or as the header says.
        let (image, options) = unsafe { (bytes(image, "the image")?, understood(options)?) };
        // SAFETY: as the header says, they stay unchanged.
        let storage = Arc::new(unsafe { Memory::new(image) });
        let opened = Opened::in_storage(NAMELESS.as_ref(), storage, &options);
        opened.map(handle).map_err(|why| ImageError::of_open(NAMELESS, &why))
    };
    // SAFETY: NULL or room for an error.
    unsafe { guarded(error, std::ptr::null_mut(), work) }
}

/// Opens an image behind a function of the caller, which is called until the image and its files
/// are closed. Otherwise like flysch_image_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_image_open_reader(
    reader: *const Reader,
    options: *const ImageOptions,
    error: *mut ImageError,
) -> *mut Image {
    let work = || {
        // SAFETY: the pointers are NULL or as the header says, and the function is as it says.
        let (called, options) =
            unsafe { (Called::new(named(reader, "the reader")?)?, understood(options)?) };
        let opened = Opened::in_storage(NAMELESS.as_ref(), Arc::new(called), &options);
        opened.map(handle).map_err(|why| ImageError::of_open(NAMELESS, &why))
    };
    // SAFETY: NULL or room for an error.
    unsafe { guarded(error, std::ptr::null_mut(), work) }
}

/// Closes an image, which may be NULL. Its files may still be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_image_close(image: *mut Image) {
    if !image.is_null() {
        // SAFETY: an open returned it, and it is no longer used, as the header says.
        drop(unsafe { Box::from_raw(image) });
    }
}

/// Number of volumes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_image_volumes(image: *const Image) -> usize {
    // SAFETY: NULL or an image of ours, as the header says.
    unsafe { image.as_ref() }.map_or(0, |image| image.opened.volumes().count())
}

/// A part or volume of the image that could not be opened, counted from 0, and why, as text; `data`
/// is NULL after the last one. An image without volumes has its reason here. Valid until the image
/// is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_image_failure(image: *const Image, number: usize) -> Bytes {
    // SAFETY: NULL or an image of ours, as the header says.
    let failure = unsafe { image.as_ref() }.and_then(|image| image.failures.get(number));
    failure.map_or(Bytes::NONE, |why| Bytes::of(why.as_bytes()))
}

/// Writes the description of a volume, counted from 0, to `volume`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn flysch_image_volume(
    image: *const Image,
    number: usize,
    volume: *mut Volume,
    error: *mut ImageError,
) -> ImageStatus {
    let work = || {
        // SAFETY: NULL or an image of ours, as the header says.
        let image = unsafe { named(image, "the image") }?;
        let found = numbered(image, number)?;
        let described = Volume {
            name: Bytes::of(found.name.as_bytes()),
            id: found.id.map_or(-1, i64::from),
            format: match found.contents {
                Contents::Ubifs(_) => Format::Ubifs,
                Contents::Jffs2(_) => Format::Jffs2,
                Contents::Raw(_) => Format::Raw,
                Contents::Broken(..) => Format::Broken,
            },
            failure: image.failure_of(number).map_or(Bytes::NONE, |why| Bytes::of(why.as_bytes())),
        };
        if volume.is_null() {
            return Err(null("the volume"));
        }
        // SAFETY: there is room for one.
        unsafe { volume.write(described) }
        Ok(())
    };
    // SAFETY: NULL or room for an error.
    unsafe { told(error, work) }
}

/// The volume with this number.
pub(crate) fn numbered(image: &Image, number: usize) -> Outcome<&flysch_image::ImageVolume> {
    image.opened.volumes().nth(number).ok_or_else(|| {
        let count = image.opened.volumes().count();
        let text = format_args!("there is no volume {number}: there are {count}, from 0 on");
        ImageError::new(ImageStatus::Argument, text)
    })
}

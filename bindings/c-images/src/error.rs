//! Errors as C gets them: a number to switch on, a line to print, and its cause.

use std::error::Error as Cause;
use std::ffi::c_char;
use std::fmt;

use flysch_api::vfs;
use flysch_image::{OpenError, PathError, in_fields};

/// How a call ended. All values except FLYSCH_IMAGE_STATUS_OK are negative.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageStatus {
    /// Success.
    Ok = 0,
    /// An argument is invalid; the error's text says which.
    Argument = -1,
    /// A file of this machine, or the caller's function, failed.
    System = -2,
    /// The image holds nothing known, or not what the caller said.
    Unknown = -3,
    /// The volume is not a file system, or one that cannot be opened.
    NoFileSystem = -4,
    /// No such file or directory.
    NotFound = -5,
    /// A name was looked up in something that is not a directory.
    NotDirectory = -6,
    /// It is a directory.
    IsDirectory = -7,
    /// The operation does not fit the kind of file: a device has no content, a file has no target.
    Kind = -8,
    /// Too many symbolic links lead to one another.
    Loop = -9,
    /// The value is longer than the buffer; the error's text gives its length.
    Small = -10,
    /// The stored data is damaged.
    Damaged = -11,
    /// It is encrypted, and the key is missing.
    Encrypted = -12,
    /// The image uses a feature that cannot be read.
    Unsupported = -13,
    /// The caller's function asked to stop.
    Stopped = -14,
    /// The library detected an error of its own. The handle must be closed; others are not
    /// affected.
    Internal = -15,
    /// The file has no such extended attribute.
    NoAttribute = -16,
}

/// The text for a status; never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn flysch_image_status_text(status: i32) -> *const c_char {
    let text = match status {
        0 => c"done",
        -1 => c"an argument is invalid: the error's text names it",
        -2 => c"the operating system refused",
        -3 => c"nothing known is in the image",
        -4 => c"no file system that can be opened",
        -5 => c"no such file or directory",
        -6 => c"not a directory",
        -7 => c"is a directory",
        -8 => c"not for this kind of file",
        -9 => c"too many symbolic links",
        -10 => c"the buffer is too small",
        -11 => c"damaged",
        -12 => c"encrypted, and the key is not available",
        -13 => c"not supported",
        -14 => c"stopped by the caller",
        -15 => c"a mistake of the library",
        -16 => c"no such extended attribute",
        _ => c"unknown status",
    };
    text.as_ptr()
}

/// Bytes of an error's text and of its cause, including the zero at the end.
pub const TEXT_BYTES: usize = 256;
/// What stands for the beginning of a path.
const DOTS: &str = "...";
/// Bytes of a path that are shown however long the reason is.
const OBJECT_BYTES_MIN: usize = 64;

/// Why a call failed. Nothing in it has to be freed.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct ImageError {
    /// The number to switch on.
    pub status: ImageStatus,
    /// The text to print: one line, ended by a zero. Of a path that is too long for it there is
    /// only the end, after `...`.
    pub text: [c_char; TEXT_BYTES],
    /// The cause, if it is known and not in the text; else empty.
    pub cause: [c_char; TEXT_BYTES],
}

pub(crate) type Outcome<T> = Result<T, Box<ImageError>>;

impl ImageError {
    /// A status with its text.
    pub(crate) fn new(status: ImageStatus, words: impl fmt::Display) -> Box<Self> {
        let text = cut(&words.to_string());
        Box::new(Self { status, text, cause: [0; TEXT_BYTES] })
    }

    /// A status with the text that it happened to `object`, of which as much is shown as fits.
    pub(crate) fn about(
        status: ImageStatus,
        object: impl fmt::Display,
        why: impl fmt::Display,
    ) -> Box<Self> {
        let (object, why) = (object.to_string(), why.to_string());
        let room = (TEXT_BYTES - 1).saturating_sub(": ".len() + why.len()).max(OBJECT_BYTES_MIN);
        if object.len() <= room {
            return Self::new(status, format_args!("{object}: {why}"));
        }
        let mut starts = object.char_indices().map(|(at, _)| at);
        let start = starts.find(|at| DOTS.len() + object.len() - at <= room);
        let end = &object[start.unwrap_or(object.len())..];
        Self::new(status, format_args!("{DOTS}{end}: {why}"))
    }

    /// The same, with its causes as far as the text does not have them anyway.
    fn behind(mut self: Box<Self>, text: &str, cause: Option<&(dyn Cause + 'static)>) -> Box<Self> {
        let all = std::iter::successors(cause, |&cause| cause.source());
        let all = all.map(ToString::to_string).filter(|cause| !text.contains(&**cause));
        self.cause = cut(&all.collect::<Vec<_>>().join(": "));
        self
    }

    /// Why `object` could not be opened.
    pub(crate) fn of_open(object: impl fmt::Display, error: &OpenError) -> Box<Self> {
        let status = match error {
            OpenError::File(_) | OpenError::Flash(_) | OpenError::Device(_) => ImageStatus::System,
            _ => ImageStatus::Unknown,
        };
        let why = in_fields(&error.to_string());
        Self::about(status, object, &why).behind(&why, error.source())
    }

    /// An error of the file system for the file at `path`.
    pub(crate) fn of_file(path: &[u8], error: vfs::FsError) -> Box<Self> {
        let why = error.to_string();
        Self::about(status_of(error), path.escape_ascii(), &why).behind(&why, error.source())
    }

    /// Why a path cannot be resolved.
    pub(crate) fn of_path(error: &PathError) -> Box<Self> {
        match error {
            PathError::At { path, error } => {
                let (place, why) = (format_args!("/{path}"), error.to_string());
                Self::about(status_of(*error), place, &why).behind(&why, error.source())
            }
            PathError::Loop { path } => {
                let (place, why) =
                    (format_args!("/{path}"), "too many symlinks lead to each other");
                Self::about(ImageStatus::Loop, place, why)
            }
        }
    }

    /// An error of the operating system for a file of this machine.
    pub(crate) fn of_system(object: impl fmt::Display, error: &std::io::Error) -> Box<Self> {
        let why = error.to_string();
        Self::about(ImageStatus::System, object, &why).behind(&why, error.source())
    }
}

fn status_of(error: vfs::FsError) -> ImageStatus {
    match error {
        vfs::FsError::NotFound => ImageStatus::NotFound,
        vfs::FsError::NoAttribute => ImageStatus::NoAttribute,
        vfs::FsError::NotDirectory => ImageStatus::NotDirectory,
        vfs::FsError::IsDirectory => ImageStatus::IsDirectory,
        vfs::FsError::NoContent => ImageStatus::Kind,
        vfs::FsError::BufferTooSmall(_) => ImageStatus::Small,
        vfs::FsError::Damaged { .. } => ImageStatus::Damaged,
        vfs::FsError::Encrypted => ImageStatus::Encrypted,
        vfs::FsError::Unsupported(_) => ImageStatus::Unsupported,
        vfs::FsError::Medium { .. } => ImageStatus::System,
        _ => ImageStatus::Argument,
    }
}

/// As much of the text as fits, whole characters only, and a zero.
fn cut(words: &str) -> [c_char; TEXT_BYTES] {
    let mut text = [0; TEXT_BYTES];
    let ends = words.char_indices().map(|(at, character)| at + character.len_utf8());
    let fits = ends.take_while(|end| *end < TEXT_BYTES).last().unwrap_or(0);
    let bytes = words[..fits].bytes().map(|byte| if byte == 0 { b'?' } else { byte });
    text.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as c_char);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &[c_char]) -> Vec<u8> {
        text.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect()
    }

    #[test]
    fn a_text_is_cut_between_characters_and_ends_with_a_zero() {
        let long = ImageError::new(ImageStatus::Damaged, "ä".repeat(200));
        assert_eq!(text(&long.text), "ä".repeat(127).as_bytes());
        assert_eq!(text(&long.cause), b"");
    }

    #[test]
    fn a_cause_stands_beside_the_text() {
        let cause = std::io::Error::other("the cable is out");
        let error = ImageError::of_system("dump", &std::io::Error::other(cause));
        assert_eq!(error.status, ImageStatus::System);
        assert_eq!(text(&error.text), b"dump: the cable is out");
        assert_eq!(text(&error.cause), b"");
        let error =
            ImageError::of_open("dump", &OpenError::File(std::io::Error::from_raw_os_error(5)));
        let says = b"dump: cannot be read: Input/output error";
        assert!(text(&error.text).starts_with(says), "{error:?}");
        assert_eq!(text(&error.cause), b"", "the text has it");
        let hidden = Hidden(std::io::Error::other("the cable is out"));
        let error = ImageError::about(ImageStatus::System, "dump", "stopped");
        let error = error.behind("stopped", Some(&hidden));
        assert_eq!(text(&error.cause), b"something else: the cable is out");
    }

    #[derive(Debug)]
    struct Hidden(std::io::Error);

    impl fmt::Display for Hidden {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("something else")
        }
    }

    impl Cause for Hidden {
        fn source(&self) -> Option<&(dyn Cause + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn of_a_long_path_its_end_is_shown_and_the_reason() {
        let path = format!("/{}/end", "ä".repeat(300));
        let error = ImageError::of_file(path.as_bytes(), vfs::FsError::NotFound);
        let shown = String::from_utf8(text(&error.text)).unwrap();
        assert!(shown.starts_with("..."), "{shown}");
        assert!(shown.ends_with("/end: no such file or directory"), "{shown}");
        let error = ImageError::of_system(&path, &std::io::Error::other("x".repeat(300)));
        let shown = String::from_utf8(text(&error.text)).unwrap();
        assert!(shown.starts_with("...") && shown.contains("ä/end: xxx"), "{shown}");
        assert_eq!(shown.len(), TEXT_BYTES - 1);
    }

    #[test]
    fn options_have_the_names_of_c() {
        let error = ImageError::of_open("dump", &OpenError::Unknown);
        let shown = String::from_utf8(text(&error.text)).unwrap();
        assert!(shown.contains("(erase_size, page_size)"), "{shown}");
    }
}

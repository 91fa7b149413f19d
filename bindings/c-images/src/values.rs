//! Plain structures passed between C and the library.

use std::ffi::{c_char, c_int, c_void};

use flysch_api::vfs::{Attributes, Timestamp};

/// Bytes with a length: a path, a name, an image. They need no terminating zero.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The first byte. May be NULL if there are none.
    pub data: *const u8,
    /// Number of bytes.
    pub len: usize,
}

impl Bytes {
    /// Valid as long as `bytes`.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }

    pub(crate) const NONE: Self = Self { data: std::ptr::null(), len: 0 };
}

/// A buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// Its first byte. May be NULL if it is empty.
    pub data: *mut u8,
    /// Number of bytes that fit.
    pub len: usize,
}

/// What the caller knows better than detection; zero wherever it does not.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImageOptions {
    /// Bytes of an erase block, or 0.
    pub erase_size: u32,
    /// Bytes of a page without its out-of-band bytes, or 0.
    pub page_size: u32,
    /// Out-of-band bytes of a page, or 0.
    pub oob_size: u32,
    /// The image has no out-of-band bytes.
    pub no_oob: bool,
    /// Bytes to skip at the start.
    pub offset: u64,
    /// Error correction in the out-of-band bytes, such as `bch-8-512`, or empty: the names are
    /// those of `flysch image --ecc`.
    pub ecc: Bytes,
    /// File with the key of an authenticated UBIFS, or empty.
    pub auth_key: Bytes,
    /// File with the master key of encrypted directories (`FILE` or `DESCRIPTOR:FILE`), or empty.
    pub master_key: Bytes,
}

/// An image behind a function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Passed to the function.
    pub context: *mut c_void,
    /// Bytes of the image.
    pub size: u64,
    /// Writes `len` bytes, from byte `offset` of the image on, to `buffer`; all of them are within
    /// `size`. Returns 0 or an error number (`errno`). Never called by two threads at once.
    pub read: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            offset: u64,
            buffer: *mut u8,
            len: usize,
        ) -> c_int,
    >,
}

/// Contents of a volume.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// UBIFS.
    Ubifs = 0,
    /// JFFS2.
    Jffs2 = 1,
    /// Not a file system.
    Raw = 2,
    /// A file system that cannot be opened.
    Broken = 3,
}

/// A volume of an image: a UBI volume, or the only one of a bare UBIFS or JFFS2.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Name of the UBI volume, else of its format. Valid until the image is closed.
    pub name: Bytes,
    /// Id of the UBI volume, or negative.
    pub id: i64,
    /// Its contents.
    pub format: Format,
    /// Why a broken volume cannot be opened. Valid until the image is closed.
    pub failure: Bytes,
}

/// Attributes of a file, as in stat.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space used in units of 512 bytes.
    pub blocks: u64,
    /// Type and permission bits, as in st_mode.
    pub mode: u32,
    /// Number of names.
    pub links: u32,
    /// User id.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// Major number of a device node.
    pub major: u32,
    /// Minor number of a device node.
    pub minor: u32,
    /// Last access: seconds since 1970, and nanoseconds.
    pub accessed: i64,
    /// See accessed.
    pub accessed_ns: u32,
    /// Nanoseconds of the last change of content.
    pub modified_ns: u32,
    /// Last change of content.
    pub modified: i64,
    /// Last change of anything.
    pub changed: i64,
    /// See changed.
    pub changed_ns: u32,
}

impl From<&Attributes> for Stat {
    fn from(attributes: &Attributes) -> Self {
        let split = |time: Timestamp| (time.seconds, time.nanoseconds);
        let (accessed, accessed_ns) = split(attributes.accessed);
        let (modified, modified_ns) = split(attributes.modified);
        let (changed, changed_ns) = split(attributes.changed);
        Self {
            inode: attributes.inode.0,
            size: attributes.size,
            blocks: attributes.blocks,
            mode: attributes.kind.mode_bits() | u32::from(attributes.permissions),
            links: attributes.links,
            owner: attributes.owner,
            group: attributes.group,
            major: attributes.device.major,
            minor: attributes.device.minor,
            accessed,
            accessed_ns,
            modified_ns,
            modified,
            changed,
            changed_ns,
        }
    }
}

/// A file in a directory or on a walk. Everything in it is valid until the function returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name; on a walk, its path relative to the start, without a leading '/', empty for the
    /// start itself.
    pub name: Bytes,
    /// Inode number; 0 for a directory that could not be read to its end, or entered at all.
    pub inode: u64,
    /// Kind: the type bits of st_mode.
    pub kind: u32,
    /// Its attributes, on a walk. NULL in a listing and if they cannot be read.
    pub stat: *const Stat,
    /// NULL, or a description of the problem: its attributes, or some of its names, cannot be read.
    /// The walk continues.
    pub problem: *const c_char,
}

/// Receives files one by one. Returning false ends the listing or walk with
/// FLYSCH_IMAGE_STATUS_STOPPED.
pub type Visit = Option<unsafe extern "C" fn(context: *mut c_void, entry: *const Entry) -> bool>;

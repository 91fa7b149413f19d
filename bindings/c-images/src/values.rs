//! What C and the library hand each other: plain structures.

use std::ffi::{c_char, c_int, c_void};

use flysch_api::vfs::{Attributes, Timestamp};

/// Bytes with a length: a path, a name, an image. No zero stands at their end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Bytes {
    /// The first. May be NULL if there are none.
    pub data: *const u8,
    /// How many.
    pub len: usize,
}

impl Bytes {
    /// As long as `bytes` lives.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }

    pub(crate) const NONE: Self = Self { data: std::ptr::null(), len: 0 };
}

/// Room for bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// The first. May be NULL if there is no room.
    pub data: *mut u8,
    /// How many fit.
    pub len: usize,
}

/// What the caller knows better than detection. All zeroes: nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ImageOptions {
    /// Bytes of an erase block, or 0.
    pub erase_size: u32,
    /// Bytes of a page without its out-of-band bytes, or 0.
    pub page_size: u32,
    /// Out-of-band bytes of a page, or 0.
    pub oob_size: u32,
    /// The image is taken as it is: there are no out-of-band bytes in it.
    pub no_oob: bool,
    /// Bytes to skip at the front.
    pub offset: u64,
    /// Error correction in the out-of-band bytes, such as `bch-8-512`, or no bytes: the names are
    /// those of `flysch image --ecc`.
    pub ecc: Bytes,
    /// A file with the key of an authenticated UBIFS, or no bytes.
    pub auth_key: Bytes,
    /// A file with the master key of encrypted directories (`FILE` or `FILE:DESCRIPTOR`), or no
    /// bytes.
    pub master_key: Bytes,
}

/// An image behind a function.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Handed to the function.
    pub context: *mut c_void,
    /// Bytes of the image.
    pub size: u64,
    /// Writes `len` bytes, from byte `offset` of the image on, to `buffer`; all of them are within
    /// `size`. Answers 0, or the number of an error (`errno`). Never called by two threads at once.
    pub read: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            offset: u64,
            buffer: *mut u8,
            len: usize,
        ) -> c_int,
    >,
}

/// What a volume holds.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// UBIFS.
    Ubifs = 0,
    /// JFFS2.
    Jffs2 = 1,
    /// Something that is no file system.
    Raw = 2,
    /// A file system that cannot be opened.
    Broken = 3,
}

/// A volume of an image: of UBI, or the one that a bare UBIFS or JFFS2 is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Name of the UBI volume, else of its format. There until the image is closed.
    pub name: Bytes,
    /// Id of the UBI volume, or below zero.
    pub id: i64,
    /// What it holds.
    pub format: Format,
    /// Why it cannot be opened, of a broken one. There until the image is closed.
    pub failure: Bytes,
}

/// What stat tells of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub size: u64,
    /// Space used in units of 512 bytes.
    pub blocks: u64,
    /// Kind and permission bits, as st_mode has them.
    pub mode: u32,
    /// Names it has.
    pub links: u32,
    /// User id.
    pub owner: u32,
    /// Group id.
    pub group: u32,
    /// Of a device node.
    pub major: u32,
    /// Of a device node.
    pub minor: u32,
    /// Last read: seconds since 1970, and nanoseconds.
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

/// A file met in a directory or on a walk. All of it is gone when the function returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name, or on a walk its path from the start on, without a '/' in front; none for the
    /// start itself.
    pub name: Bytes,
    /// Inode number; 0 of a directory that could not be read to its end.
    pub inode: u64,
    /// Kind: the type bits of st_mode.
    pub kind: u32,
    /// What stat tells of it, on a walk. NULL in a listing and if it cannot be read.
    pub stat: *const Stat,
    /// NULL, or what is wrong with it: its stat cannot be read, or not all of its names. The walk
    /// goes on.
    pub problem: *const c_char,
}

/// Takes files one by one. False ends the listing or walk, with FLYSCH_IMAGE_STATUS_STOPPED.
pub type Visit = Option<unsafe extern "C" fn(context: *mut c_void, entry: *const Entry) -> bool>;

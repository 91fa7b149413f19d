//! What `chattr` sets, and what it forbids.

use core::fmt;

use super::{Attributes, Changes, Error};

/// Flags of a file as `chattr` sets them; the values are those of Linux (`FS_*_FL`, `linux/fs.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileFlags(pub u32);

/// A letter of `chattr`, and what it means.
const LETTERS: [(char, FileFlags); 5] = [
    ('S', FileFlags::SYNC),
    ('D', FileFlags::DIRSYNC),
    ('i', FileFlags::IMMUTABLE),
    ('a', FileFlags::APPEND),
    ('c', FileFlags::COMPRESS),
];

impl FileFlags {
    /// New content is compressed.
    pub const COMPRESS: Self = Self(0x4);
    /// Changes of content are on the medium when the call returns.
    pub const SYNC: Self = Self(0x8);
    /// Nothing of it can be changed, and it keeps its names.
    pub const IMMUTABLE: Self = Self(0x10);
    /// Content can be added and nothing else be changed; names of a directory neither.
    pub const APPEND: Self = Self(0x20);
    /// Changes of names are on the medium when the call returns.
    pub const DIRSYNC: Self = Self(0x1_0000);

    /// Whether every flag of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether some flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// These and those of `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These without those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The flag with this letter of `chattr`.
    pub fn of_letter(letter: char) -> Option<Self> {
        LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, flag)| *flag)
    }

    fn forbids(self, other: Self) -> Result<(), Error> {
        if self.intersects(other) { Err(Error::Protected(self)) } else { Ok(()) }
    }
}

/// As `lsattr` shows them: a letter for each that is set, `-` for each that is not.
impl fmt::Display for FileFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        LETTERS.iter().try_for_each(|&(letter, flag)| {
            f.write_char(if self.contains(flag) { letter } else { '-' })
        })
    }
}

/// Either forbids what is not adding.
const FIXED: FileFlags = FileFlags::IMMUTABLE.with(FileFlags::APPEND);

/// What flags forbid, as Linux has it (`fs/attr.c`, `fs/namei.c`, `fs/xattr.c`): for root, too. A
/// file system does not look at them; whoever stands before it does.
///
/// Each fails with [`Error::Protected`].
impl Attributes {
    /// Whether it may be opened for writing.
    ///
    /// # Errors
    /// If it is immutable, or append-only and `appends` is not set (`O_APPEND`).
    pub fn may_open_to_write(&self, appends: bool) -> Result<(), Error> {
        self.flags.forbids(if appends { FileFlags::IMMUTABLE } else { FIXED })
    }

    /// Whether what is open may be written at `offset`. Linux looks when a file is opened; then the
    /// flag may not have been there.
    ///
    /// # Errors
    /// If it is append-only and there is content behind `offset`.
    pub fn may_write_at(&self, offset: u64) -> Result<(), Error> {
        if offset >= self.size { Ok(()) } else { self.flags.forbids(FileFlags::APPEND) }
    }

    /// Whether attributes may be changed. `is_now` says that times become the current time, as the
    /// caller of `utimensat` without times wants it; `is_open` that it was open for writing.
    ///
    /// # Errors
    /// If it is immutable; if it is append-only, but for the current time; never for flags alone.
    pub fn may_change(&self, changes: &Changes, is_now: bool, is_open: bool) -> Result<(), Error> {
        let Changes { permissions, owner, group, size, accessed, modified, flags: _ } = changes;
        let has_times = accessed.is_some() || modified.is_some();
        let is_fixed = permissions.is_some() || owner.is_some() || group.is_some();
        if is_fixed || has_times && !is_now {
            self.flags.forbids(FIXED)?;
        }
        if has_times {
            self.flags.forbids(FileFlags::IMMUTABLE)?;
        }
        match size {
            None => Ok(()),
            Some(_) if is_open => self.flags.forbids(FileFlags::APPEND),
            Some(_) => self.flags.forbids(FIXED),
        }
    }

    /// Whether a directory may get a name.
    ///
    /// # Errors
    /// If it is immutable.
    pub fn may_gain_name(&self) -> Result<(), Error> {
        self.flags.forbids(FileFlags::IMMUTABLE)
    }

    /// Whether a directory may lose the name of `file`, or have it name another file.
    ///
    /// # Errors
    /// If either is immutable or append-only.
    pub fn may_lose_name(&self, file: &Self) -> Result<(), Error> {
        self.flags.forbids(FIXED)?;
        file.flags.forbids(FIXED)
    }

    /// Whether it may get one more name.
    ///
    /// # Errors
    /// If it is immutable or append-only.
    pub fn may_be_linked(&self) -> Result<(), Error> {
        self.flags.forbids(FIXED)
    }

    /// Whether its extended attributes may be changed.
    ///
    /// # Errors
    /// If it is immutable or append-only.
    pub fn may_change_xattrs(&self) -> Result<(), Error> {
        self.flags.forbids(FIXED)
    }
}

//! The flags that `chattr` sets, and what they forbid.

use core::fmt;

use super::{Attributes, Changes, FsError};

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
    /// Nothing about the file can be changed, and it keeps its names.
    pub const IMMUTABLE: Self = Self(0x10);
    /// Content can be added but not otherwise changed; the same holds for the names in a directory.
    pub const APPEND: Self = Self(0x20);
    /// Changes of names are on the medium when the call returns.
    pub const DIRSYNC: Self = Self(0x1_0000);

    /// Whether all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The union with `other`.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The flag with this letter of `chattr`.
    pub fn of_letter(letter: char) -> Option<Self> {
        LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, flag)| *flag)
    }

    fn forbids(self, other: Self) -> Result<(), FsError> {
        if self.intersects(other) { Err(FsError::Protected(self)) } else { Ok(()) }
    }
}

/// As `lsattr` shows them: a letter for each flag that is set, `-` for each that is not.
impl fmt::Display for FileFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        LETTERS.iter().try_for_each(|&(letter, flag)| {
            f.write_char(if self.contains(flag) { letter } else { '-' })
        })
    }
}

/// Either flag forbids everything but appending.
const FIXED: FileFlags = FileFlags::IMMUTABLE.with(FileFlags::APPEND);

/// What flags forbid, as in Linux (`fs/attr.c`, `fs/namei.c`, `fs/xattr.c`), even for root. A file
/// system does not check them; its front end does.
///
/// Each fails with [`FsError::Protected`].
impl Attributes {
    /// Checks that the file may be opened for writing.
    ///
    /// # Errors
    /// If it is immutable, or append-only and `appends` is not set (`O_APPEND`).
    pub fn may_open_to_write(&self, appends: bool) -> Result<(), FsError> {
        self.flags.forbids(if appends { FileFlags::IMMUTABLE } else { FIXED })
    }

    /// Checks that an open file may be written at `offset`. Linux checks on open; the flag may have
    /// been set since.
    ///
    /// # Errors
    /// If it is append-only and there is content after `offset`.
    pub fn may_write_at(&self, offset: u64) -> Result<(), FsError> {
        if offset >= self.size { Ok(()) } else { self.flags.forbids(FileFlags::APPEND) }
    }

    /// Checks that attributes may be changed. `is_now` means that times become the current time, as
    /// when `utimensat` is called without times; `is_open` means that the file was open for
    /// writing.
    ///
    /// # Errors
    /// If it is immutable; if it is append-only, unless times become the current time; never for
    /// flags alone.
    pub fn may_change(
        &self,
        changes: &Changes,
        is_now: bool,
        is_open: bool,
    ) -> Result<(), FsError> {
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

    /// Checks that a name may be added to a directory.
    ///
    /// # Errors
    /// If it is immutable.
    pub fn may_gain_name(&self) -> Result<(), FsError> {
        self.flags.forbids(FileFlags::IMMUTABLE)
    }

    /// Checks that a directory may lose the name of `file`, or that the name may be moved to
    /// another file.
    ///
    /// # Errors
    /// If either is immutable or append-only.
    pub fn may_lose_name(&self, file: &Self) -> Result<(), FsError> {
        self.flags.forbids(FIXED)?;
        file.flags.forbids(FIXED)
    }

    /// Checks that the file may get another name.
    ///
    /// # Errors
    /// If it is immutable or append-only.
    pub fn may_be_linked(&self) -> Result<(), FsError> {
        self.flags.forbids(FIXED)
    }

    /// Checks that its extended attributes may be changed.
    ///
    /// # Errors
    /// If it is immutable or append-only.
    pub fn may_change_xattrs(&self) -> Result<(), FsError> {
        self.flags.forbids(FIXED)
    }
}

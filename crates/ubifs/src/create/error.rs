//! Why a file system cannot be made as asked for.

use alloc::boxed::Box;
use core::error::Error;
use core::fmt;

use flysch_api::vfs;
use flysch_wire::ubifs::LayoutError;

use super::inode::XattrRefusal;
use crate::crypt::KeyName;

/// Options that contradict each other or the format, and the bounds they must keep.
#[derive(Debug)]
#[non_exhaustive]
pub enum OptionsError {
    /// The minimum I/O unit, in bytes, is not a power of two.
    MinIo(u32),
    /// The LEB size, in bytes, is not allowed.
    LebSize(u32),
    /// The LEB size is not a multiple of the minimum I/O unit; both in bytes.
    LebMultiple(u32, u32),
    /// The LEBs of the volume have another size: that of the options and the volume's, bytes.
    OtherLebs(u32, u32),
    /// The minimum I/O unit is no multiple of the volume's: that of the options and the volume's,
    /// bytes.
    OtherMinIo(u32, u32),
    /// The maximum LEB count is not allowed: the count, and the minimum. The maximum is 2^31 - 1.
    LebsMax(u32, u32),
    /// The fan-out is not allowed: the fan-out, and the largest allowed.
    Fanout(u32, u32),
    /// The number of orphan LEBs is not allowed: that number, and the maximum LEB count.
    OrphanLebs(u32, u32),
    /// Too many bytes are reserved for the super-user.
    Reserved(u64),
    /// The size of the journal is not allowed: its bytes, the minimum and the maximum.
    Journal(u64, u64, u64),
    /// The number of log LEBs is not allowed: that number, and the minimum for this journal.
    Log(u32, u32),
    /// An empty file system needs more LEBs than the maximum LEB count.
    Empty {
        /// LEBs that an empty file system takes.
        needed: u32,
        /// The maximum LEB count.
        max: u32,
    },
    /// The maximum LEB count is not usable.
    Grown {
        /// The maximum LEB count.
        max: u32,
        /// Why not.
        source: LayoutError,
    },
    /// The areas do not fit.
    Layout(LayoutError),
    /// Authentication was asked for without a key.
    NoAuthKey,
    /// Encryption was asked for without random bytes.
    NoEntropy,
    /// Encryption was asked for with an unusable key.
    Encryption {
        /// Which key.
        key: KeyName,
        /// Why not.
        source: vfs::FsError,
    },
    /// The signer could not make a signature.
    Signer(Box<dyn Error + Send + Sync>),
    /// LEBs of this size, in bytes, have no room for the signature.
    SignatureRoom(u32),
    /// An inode has more extended attributes than UBIFS can hold.
    TooManyXattrs {
        /// Which inode.
        inode: u32,
    },
    /// A symbolic link has a target that UBIFS cannot hold.
    TargetTooLong {
        /// Which inode.
        inode: u32,
    },
    /// An inode has an extended attribute that UBIFS cannot hold.
    Xattr {
        /// Which inode.
        inode: u32,
        /// Why not.
        source: XattrRefusal,
    },
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAuthKey => f.write_str("authentication needs a key"),
            Self::NoEntropy => f.write_str("encryption needs random bytes"),
            Self::Encryption { key, source } => {
                write!(f, "encryption with the key {key}: {source}")
            }
            Self::Signer(source) => source.fmt(f),
            Self::SignatureRoom(leb_size) => {
                write!(f, "LEBs of {leb_size} bytes have no room for the signature")
            }
            Self::TooManyXattrs { inode } => {
                write!(f, "inode {inode}: it has more extended attributes than UBIFS can hold")
            }
            Self::TargetTooLong { inode } => {
                write!(f, "inode {inode}: its target is longer than 4096 bytes")
            }
            Self::Xattr { inode, source } => write!(f, "inode {inode}: {source}"),
            Self::Layout(source) => source.fmt(f),
            size => size.of_sizes(f),
        }
    }
}

impl OptionsError {
    /// Whether the maximum LEB count ([`CreateOptions::leb_count_max`](super::CreateOptions)) is to
    /// blame, so that a larger one helps.
    pub fn wants_more_lebs(&self) -> bool {
        match self {
            Self::LebsMax(max, least) => max < least,
            _ => matches!(self, Self::Empty { .. } | Self::Grown { .. }),
        }
    }

    fn of_sizes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MinIo(unit) => {
                write!(f, "a minimum I/O unit of {unit} bytes is not a power of two")
            }
            Self::LebSize(leb_size) => {
                write!(f, "a LEB of {leb_size} bytes: UBIFS needs 15360 to 2097152")
            }
            Self::LebMultiple(leb_size, unit) => write!(
                f,
                "a LEB of {leb_size} bytes is not a multiple of the minimum I/O unit, {unit}"
            ),
            Self::OtherLebs(leb_size, volume) => {
                write!(f, "LEBs of {leb_size} bytes: those of the volume have {volume}")
            }
            Self::OtherMinIo(unit, volume) => write!(
                f,
                "a minimum I/O unit of {unit} bytes: the volume is written in units of {volume}"
            ),
            Self::LebsMax(max, least) if max >= least => {
                write!(f, "a maximum of {max} LEBs is too high: UBIFS takes {} at most", i32::MAX)
            }
            Self::LebsMax(max, least) => {
                write!(f, "a maximum of {max} LEBs is too low: UBIFS needs at least {least}")
            }
            Self::Fanout(fanout, max) => write!(f, "a fan-out of {fanout}: it must be 3 to {max}"),
            Self::OrphanLebs(lebs, all) => {
                write!(
                    f,
                    "{lebs} orphan LEBs of {all} in all: there must be at least 1 and at most \
                     half of all"
                )
            }
            Self::Reserved(bytes) => {
                write!(f, "{bytes} bytes reserved for the super-user are half of the flash or more")
            }
            Self::Journal(bytes, least, most) => write!(
                f,
                "a journal of {bytes} bytes: it must have {least} to {most} (3 LEBs to the main \
                 area)"
            ),
            Self::Log(lebs, least) => {
                write!(f, "{lebs} LEBs of log: this journal needs {least} to half of all LEBs")
            }
            Self::Empty { needed, max } => {
                write!(f, "a maximum of {max} LEBs is too low: an empty file system needs {needed}")
            }
            Self::Grown { max, source } => {
                write!(f, "a maximum of {max} LEBs does not work: {source}")
            }
            _ => Ok(()),
        }
    }
}

impl Error for OptionsError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Grown { source, .. } | Self::Layout(source) => Some(source),
            Self::Encryption { source, .. } => Some(source),
            Self::Signer(source) => Some(&**source),
            Self::Xattr { source, .. } => Some(source),
            _ => None,
        }
    }
}

//! Error numbers.

use flysch_api::flash::FlashError;
use flysch_api::vfs::FsError;
use fuser::Errno;

/// What the kernel is told of an error.
pub(crate) fn errno(error: FsError) -> Errno {
    match error {
        FsError::NotFound => Errno::ENOENT,
        FsError::NoAttribute => Errno::ENODATA,
        FsError::NotDirectory => Errno::ENOTDIR,
        FsError::IsDirectory => Errno::EISDIR,
        FsError::NoContent => Errno::EINVAL,
        FsError::BufferTooSmall(_) => Errno::ERANGE,
        FsError::Encrypted => Errno::from_i32(libc::ENOKEY),
        FsError::Unsupported(_) => Errno::EOPNOTSUPP,
        FsError::Exists => Errno::EEXIST,
        FsError::NotEmpty => Errno::ENOTEMPTY,
        FsError::NoSpace => Errno::ENOSPC,
        FsError::ReadOnly | FsError::Medium { source: FlashError::ReadOnly(_), .. } => Errno::EROFS,
        FsError::NameTooLong => Errno::ENAMETOOLONG,
        FsError::CrossDevice => Errno::EXDEV,
        FsError::TooManyLinks => Errno::EMLINK,
        FsError::FileTooLarge => Errno::EFBIG,
        FsError::Invalid(_) => Errno::EINVAL,
        FsError::Protected(_) => Errno::EPERM,
        // The file that holds the image cannot grow: that can be helped, and says how.
        FsError::Medium {
            source: FlashError::Os(number @ (libc::ENOSPC | libc::EDQUOT)), ..
        } => Errno::from_i32(number),
        _ => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use flysch_api::finding::Place;
    use flysch_api::flash::ReadOnly;

    use super::*;

    #[test]
    fn a_failed_medium_gives_the_number_that_says_most() {
        let number = |source| i32::from(errno(FsError::Medium { place: Place::default(), source }));
        assert_eq!(number(FlashError::PowerLost), libc::EIO);
        assert_eq!(number(FlashError::Os(libc::EPIPE)), libc::EIO);
        assert_eq!(number(FlashError::Os(libc::ENOSPC)), libc::ENOSPC);
        assert_eq!(number(FlashError::ReadOnly(ReadOnly::NoGoodBlock)), libc::EROFS);
    }
}

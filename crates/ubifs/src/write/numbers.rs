//! Gives out inode numbers and the cookies of entries.

use flysch_api::vfs::FsError;

use crate::master::INODE_WATERMARK;

/// The numbers given out last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbers {
    pub(super) highest_inode: u64,
    /// State from which the next cookie is derived.
    pub(super) random: u64,
}

impl Numbers {
    /// A number that no file has had yet.
    pub(super) fn inode(&mut self) -> Result<u32, FsError> {
        let number = self.highest_inode.saturating_add(1);
        if number >= INODE_WATERMARK {
            return Err(FsError::NoSpace);
        }
        self.highest_inode = number;
        Ok(number as u32)
    }

    pub(super) fn cookie(&mut self) -> u32 {
        // xorshift64*: cookies only need to differ.
        let mut word = self.random | 1;
        word ^= word >> 12;
        word ^= word << 25;
        word ^= word >> 27;
        self.random = word;
        (word.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{FsError, INODE_WATERMARK, Numbers};

    #[test]
    fn numbers_end_below_the_watermark() {
        let mut numbers = Numbers { highest_inode: INODE_WATERMARK - 2, random: 7 };
        assert_eq!(numbers.inode(), Ok((INODE_WATERMARK - 1) as u32));
        assert_eq!(numbers.inode(), Err(FsError::NoSpace));
        assert_eq!(numbers.inode(), Err(FsError::NoSpace), "none is skipped");
        // An entry in the journal may name any number.
        let mut numbers = Numbers { highest_inode: u64::MAX, random: 7 };
        assert_eq!(numbers.inode(), Err(FsError::NoSpace));
        assert_ne!(numbers.cookie(), numbers.cookie());
    }
}

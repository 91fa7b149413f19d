//! A chip kept in a file.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::vec::Vec;

use flysch_api::flash::FlashError;

use super::block::{Block, Shape};
use super::{Config, NandChip, Profile};

/// Why a chip could not be stored in a file.
#[derive(Debug)]
pub struct FileError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    System(&'static str, io::Error),
    Size { has: u64, needs: u64 },
    InUse,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.problem {
            Problem::System(action, cause) => write!(f, "cannot {action}: {cause}"),
            Problem::Size { has, needs } => write!(
                f,
                "has {has} bytes, the chip needs {needs}; take another profile or another file, \
                 or say whether out-of-band bytes are in it"
            ),
            Problem::InUse => f.write_str("in use by another process; end it or take another file"),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::System(_, cause) => Some(cause),
            _ => None,
        }
    }
}

/// The file behind a chip.
#[derive(Debug)]
pub(super) struct Backing {
    file: File,
    /// Size of a page in the file.
    page_len: usize,
}

impl Backing {
    /// Writes page `page` of block `place` through to the file.
    pub(super) fn keep(
        &self,
        block: &Block,
        shape: Shape,
        (place, page): (usize, u32),
    ) -> Result<(), FlashError> {
        let erased = [0xFF; 4096];
        let number = place as u64 * u64::from(shape.pages) + u64::from(page);
        let at = number * self.page_len as u64;
        let written = match block.page(page) {
            Some(cells) => self.file.write_all_at(&cells[..self.page_len], at),
            None => (0..self.page_len).step_by(erased.len()).try_for_each(|done| {
                let len = erased.len().min(self.page_len - done);
                self.file.write_all_at(&erased[..len], at + done as u64)
            }),
        };
        written.map_err(|cause| FlashError::Os(cause.raw_os_error().unwrap_or(0)))
    }

    pub(super) fn sync(&self) -> Result<(), FlashError> {
        self.file.sync_data().map_err(|cause| FlashError::Os(cause.raw_os_error().unwrap_or(0)))
    }
}

impl NandChip {
    /// A chip whose cells are stored in the file at `path`: pages one after the other, with or
    /// without their out-of-band bytes. A missing file is created for a new chip. The wear of
    /// blocks is not stored in it; without out-of-band bytes, neither are bad blocks.
    ///
    /// # Errors
    /// If the file cannot be used, has another size, or is in use.
    pub fn in_file(
        path: &Path,
        with_oob: bool,
        profile: Profile,
        config: Config,
    ) -> Result<Self, FileError> {
        let wrong = |problem| FileError { path: path.to_path_buf(), problem };
        let failed = |action| move |cause| Problem::System(action, cause);
        let mut chip = Self::new(profile, config);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed("open for reading and writing")).map_err(wrong)?;
        file.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => wrong(Problem::InUse),
            std::fs::TryLockError::Error(cause) => wrong(Problem::System("lock", cause)),
        })?;
        let stride = chip.shape().stride;
        let page_len = if with_oob { stride } else { chip.profile.page_size as usize };
        let pages = u64::from(chip.profile.blocks) * u64::from(chip.profile.pages_per_block);
        let needs = pages * page_len as u64;
        let metadata = file.metadata().map_err(failed("read the length of")).map_err(wrong)?;
        match metadata.len() {
            0 => {
                let image = chip.image(with_oob);
                file.write_all_at(&image, 0).map_err(failed("write")).map_err(wrong)?;
            }
            has if has == needs => {
                let mut image: Vec<u8> = std::vec![0; has as usize];
                file.read_exact_at(&mut image, 0).map_err(failed("read")).map_err(wrong)?;
                chip = Self::new(chip.profile, Config { factory_bad: 0, ..config });
                // It has the length of the chip, so it fits.
                let _ = chip.load(&image, with_oob);
            }
            has => return Err(wrong(Problem::Size { has, needs })),
        }
        chip.file = Some(Backing { file, page_len });
        Ok(chip)
    }
}

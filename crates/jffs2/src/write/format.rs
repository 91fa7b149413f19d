//! Prepares erased flash for JFFS2, as `flash_erase -j` does.

use flysch_api::flash::{FlashError, FlashMut};
use flysch_wire::jffs2::ByteOrder;

use super::medium::Medium;

/// Result of preparing a flash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Formatted {
    /// Blocks erased and marked clean.
    pub erased: u32,
    /// Blocks that were already marked bad.
    pub bad: u32,
    /// Blocks that could not be erased and were given up.
    pub given_up: u32,
}

/// Erases every good block of `flash` and writes its clean marker, if JFFS2 uses markers on such a
/// flash: the earlier content is gone, and a mount need not erase a block before it is written.
///
/// # Errors
/// Those of the flash; a block that cannot be erased is marked bad, which is not an error unless
/// marking fails as well.
pub fn format<F: FlashMut>(flash: &mut F, order: ByteOrder) -> Result<Formatted, FlashError> {
    let blocks = flash.geometry().blocks();
    let mut medium = Medium::new(flash, order);
    let mut done = Formatted::default();
    for block in 0..blocks {
        if medium.flash().is_bad(block)? {
            done.bad += 1;
            continue;
        }
        match medium.erase(block) {
            Ok(()) => done.erased += 1,
            Err(error @ FlashError::EraseFailed { .. }) => {
                if !medium.mark_bad(block) {
                    return Err(error);
                }
                done.given_up += 1;
            }
            Err(error) => return Err(error),
        }
    }
    medium.sync()?;
    Ok(done)
}

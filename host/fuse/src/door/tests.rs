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

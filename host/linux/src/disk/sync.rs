//! Plain calls: each transfers its data before it returns.

use std::fs::File;
use std::os::fd::AsRawFd;

use super::lane::{Call, What};
use super::open::errno;

/// Executes it; returns the bytes transferred, or the negative error. `polled` makes the kernel
/// poll the device meanwhile.
pub(super) fn perform(file: &File, call: &Call, polled: bool) -> i32 {
    let fd = file.as_raw_fd();
    let offset = call.offset as libc::off_t;
    let flags = call.flags | if polled { libc::RWF_HIPRI } else { 0 };
    let one =
        |base: *mut u8, len: u32| libc::iovec { iov_base: base.cast(), iov_len: len as usize };
    loop {
        // SAFETY: ranges are in DMA memory that the lane keeps, which nobody has references into;
        // lists live as long as the lane's slot.
        let result = unsafe {
            match call.what {
                What::Read(base, _, len) if flags == 0 => {
                    libc::pread(fd, base.cast(), len as usize, offset)
                }
                What::Write(base, _, len) if flags == 0 => {
                    libc::pwrite(fd, base.cast(), len as usize, offset)
                }
                What::Read(base, _, len) => libc::preadv2(fd, &one(base, len), 1, offset, flags),
                What::Write(base, _, len) => libc::pwritev2(fd, &one(base, len), 1, offset, flags),
                What::ReadList(list, count) => libc::preadv2(fd, list, count as i32, offset, flags),
                What::WriteList(list, count) => {
                    libc::pwritev2(fd, list, count as i32, offset, flags)
                }
                What::Flush => libc::fdatasync(fd) as isize,
                What::Punch(len) => libc::fallocate(fd, PUNCH, offset, len as libc::off_t) as isize,
            }
        };
        match result {
            moved if moved >= 0 => return moved as i32,
            _ if errno() == libc::EINTR => {}
            _ => return -errno(),
        }
    }
}

/// Punches a hole into a file, whose length stays.
pub(super) const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

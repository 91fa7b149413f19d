//! Signals that end a mount.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::SIGNAL;

/// The pipe that the handler writes into; -1 if there is none.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// Runs in a signal handler: may only do what is async-signal-safe, and must preserve `errno`.
extern "C" fn handler(_signal: libc::c_int) {
    let byte = [SIGNAL];
    // SAFETY: `__errno_location` gives a valid pointer to this thread's `errno`; `write` is
    // async-signal-safe, its buffer lives to the end of the call, and a descriptor that is not open
    // only makes it fail.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        libc::write(PIPE.load(Ordering::Relaxed), byte.as_ptr().cast(), 1);
        *errno = before;
    }
}

/// From now on SIGINT, SIGTERM and SIGHUP write into `pipe`, which stays open for good.
pub(crate) fn write_on_signals(pipe: io::PipeWriter) -> io::Result<()> {
    let descriptor = pipe.as_raw_fd();
    if PIPE.compare_exchange(-1, descriptor, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return Err(io::Error::other("another mount of this process already ends on signals"));
    }
    let _ = pipe.into_raw_fd();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: `action` is valid for the type: all zeros are an empty mask and no flags, and the
        // handler has the signature that goes with no SA_SIGINFO. The handler itself does only what
        // is allowed in one.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &action, std::ptr::null_mut())
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

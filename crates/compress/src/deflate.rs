//! Deflate: zlib-rs where there is an operating system, miniz_oxide elsewhere.

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{self as tinfl, DecompressorOxide, inflate_flags};

use crate::Error;

#[cfg(feature = "std")]
pub(crate) fn inflate(input: &[u8], output: &mut [u8]) -> Result<usize, Error> {
    use zlib_rs::{Inflate, InflateFlush, Status};

    /// Reads every window a deflate stream can have; UBIFS writes 11 bits, JFFS2 15.
    const WINDOW_BITS: u8 = 15;
    std::thread_local! {
        static CONTEXT: core::cell::RefCell<Inflate> =
            core::cell::RefCell::new(Inflate::new(false, WINDOW_BITS));
    }
    CONTEXT.with_borrow_mut(|context| {
        context.reset(false);
        match context.decompress(input, output, InflateFlush::Finish) {
            Ok(Status::StreamEnd) => Ok(context.total_out() as usize),
            Ok(_) if context.total_out() == output.len() as u64 => Err(Error::TooLong),
            Ok(_) | Err(_) => Err(Error::Corrupt),
        }
    })
}

#[cfg(not(feature = "std"))]
pub(crate) use inflate_portably as inflate;

#[cfg_attr(feature = "std", allow(dead_code, reason = "the tests compare both"))]
pub(crate) fn inflate_portably(input: &[u8], output: &mut [u8]) -> Result<usize, Error> {
    let mut context = alloc::boxed::Box::<DecompressorOxide>::default();
    let flags = inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
    match tinfl::decompress(&mut context, input, output, 0, flags) {
        (TINFLStatus::Done, _, length) => Ok(length),
        (TINFLStatus::HasMoreOutput, ..) => Err(Error::TooLong),
        _ => Err(Error::Corrupt),
    }
}

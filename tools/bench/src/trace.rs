//! What happened to each request, kept in memory and written out after the run.
//!
//! A [`ring::Ring`] per lane keeps the newest records; when off, it costs one branch per request.
//! [`blktrace`] and [`perfetto`] turn rings into the files of those tools. [`crate::import`] reads
//! what Linux's own tools recorded of its stack.

pub mod blktrace;
pub mod perfetto;
pub mod ring;

//! Bytes and values.
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

//! The bench tool beside fio and blktrace, one file a subject, in one program.

mod against_fio;
mod fio_buffers;
mod fio_counts;
mod fio_distributions;
mod fio_iolog;
mod fio_verify;
mod linux_against_fio;
mod trace;

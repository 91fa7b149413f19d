//! What happened to each request, kept in memory and written out after the run.

pub mod ring;

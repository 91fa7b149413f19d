//! The disk against a port that plays a scripted part.

mod disk;
mod fake;
mod faults;
mod run;
mod scan;

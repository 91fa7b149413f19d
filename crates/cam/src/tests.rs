//! The disk against a port that plays a scripted part.

mod ada;
mod control;
mod debug;
mod disk;
mod fake;
mod faults;
mod iosched;
mod nda;
mod queue;
mod run;
mod scan;
mod sdda;
mod share;
mod xpt;

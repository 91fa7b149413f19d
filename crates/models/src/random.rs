//! The only source of chance in the models.

pub use flysch_random::Xoshiro256 as Random;

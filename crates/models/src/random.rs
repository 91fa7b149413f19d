//! The only source of randomness in the models.

pub use flysch_random::Xoshiro256 as Random;

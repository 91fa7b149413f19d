//! How targets are written: `KIND[,key=value...]`.
//!
//! A [`Kind`] is a table of [`Key`]s; parsing, error messages and help are all made from it. Who
//! opens targets of a kind reads its [`Pairs`] into a value of its own:
//!
//! ```
//! use flysch_target::{Kind, Pairs, key};
//!
//! const RAM: Kind = Kind {
//!     name: "ram",
//!     help: "a disk in memory",
//!     keys: &[key("blocks", "NUMBER", "how many (8)")],
//! };
//! let pairs = Pairs::parse(&RAM, ",blocks=16")?;
//! assert_eq!(pairs.get("blocks", |text| text.parse().ok())?, Some(16));
//! let error = Pairs::parse(&RAM, ",block=16").unwrap_err().to_string();
//! assert!(error.starts_with("target `ram` has no key `block`, did you mean `blocks`?"));
//! # Ok::<(), flysch_target::PairError>(())
//! ```
//!
//! [`chip`] has what targets that are raw-flash chips have in common.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod chip;
mod error;
mod kind;
mod pairs;

pub use error::{PairError, did_you_mean};
pub use kind::{Key, Kind, help, key};
pub use pairs::Pairs;

//! Sequential procedures that wait, without a thread, a separate stack or `async`.
//!
//! Theory. A procedure is an ordinary function (loops, `?`, early returns) that asks questions. A
//! question without an answer starts a *wait* and unwinds. Once the answer has arrived it is
//! recorded, and the function is **run again from the top**: questions that were answered before
//! return their old answers at once, in order, and execution continues at the first new one. This
//! works only if the function asks the same questions in the same order for the same answers. So
//! every answer records the place in the source that asked for it. A replay that asks from another
//! place, or ends before it has asked for all of them, is caught immediately: that is a bug of
//! ours.
//!
//! The [`Script`] does not know what is asked or waited for. A [`Player`] knows registers and time,
//! and each driver adds the actions of its own. Procedures divide themselves into steps and call
//! [`turn_page`](Script::turn_page) between them, so that a replay stays short.

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod answer;
mod player;
mod script;
mod stop;

pub use answer::Answer;
pub use player::{AnswerOf, Awaited, Player, Primitives, Replay, ScriptOf, Until};
pub use script::Script;
pub use stop::{Pending, Run, Stop, Wait, settled};

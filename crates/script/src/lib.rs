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
//! This module does not know what is asked or waited for. Procedures divide themselves into steps
//! and call [`turn_page`](Script::turn_page) between them, so that a replay stays short.

#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

use alloc::vec::Vec;
use core::panic::Location;

/// There is no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending;

type Place = &'static Location<'static>;

/// A page of answers `A`, and the wait `W` for the next one.
#[derive(Debug)]
pub struct Script<A, W> {
    answers: Vec<(A, Place)>,
    cursor: usize,
    wait: Option<(W, Place)>,
    /// The initial and the next interval between two looks, nanoseconds.
    first: u32,
    patience: u32,
}

/// Number of answers of an ordinary step.
const PAGE: usize = 64;
/// The longest interval between two looks, nanoseconds.
const LONGEST: u32 = 1_000_000;

impl<A: Clone, W> Script<A, W> {
    /// A page without answers; `first` is the initial interval between two looks, nanoseconds.
    pub fn new(first: u32) -> Self {
        Self { answers: Vec::with_capacity(PAGE), cursor: 0, wait: None, first, patience: first }
    }

    /// Called before the procedure is run again.
    pub fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// Starts a new step: the answers so far will not be asked for again.
    ///
    /// # Panics
    /// If the step that ends now did not ask for everything it had asked for before.
    pub fn turn_page(&mut self) {
        if let Some((_, asked)) = self.answers.get(self.cursor) {
            panic!("a step ended without asking what it had asked before at {asked}");
        }
        self.abandon_page();
    }

    /// Abandons a step, including its wait.
    pub fn abandon(&mut self) {
        self.abandon_page();
        self.wait = None;
    }

    fn abandon_page(&mut self) {
        self.answers.clear();
        self.cursor = 0;
    }

    /// The recorded answer to the question asked here; `None` for a new question.
    ///
    /// # Panics
    /// If the answer belongs to a question from another place.
    #[track_caller]
    pub fn recall(&mut self) -> Option<A> {
        let here = Location::caller();
        let (answer, asked) = self.answers.get(self.cursor)?;
        assert!(*asked == here, "a replay asks at {here} what was asked at {asked}");
        self.cursor += 1;
        Some(answer.clone())
    }

    /// Answers a new question at once.
    ///
    /// # Panics
    /// If there are answers that have not been asked for.
    #[track_caller]
    pub fn write_down(&mut self, answer: A) {
        assert!(self.cursor == self.answers.len(), "there are answers not asked for");
        self.answers.push((answer, Location::caller()));
        self.cursor += 1;
    }

    /// Waits for the answer to a new question.
    ///
    /// # Panics
    /// If the procedure is already waiting.
    #[track_caller]
    pub fn wait_for(&mut self, wait: W) -> Pending {
        assert!(self.wait.is_none(), "a procedure asked while it was waiting");
        self.wait = Some((wait, Location::caller()));
        self.patience = self.first;
        Pending
    }

    /// How long to wait before the next look, nanoseconds: twice as long each time, up to 1 ms.
    pub fn patience(&mut self) -> u64 {
        let now = self.patience;
        self.patience = now.saturating_mul(2).min(LONGEST);
        now.into()
    }

    /// Takes out the current wait, so that the code that serves it may use everything else.
    pub fn take_wait(&mut self) -> Option<Waiting<W>> {
        self.wait.take().map(|(what, place)| Waiting { what, place })
    }

    /// Returns what [`take_wait`](Self::take_wait) took, with its answer if there is one now;
    /// `false` if there is none.
    pub fn settle(&mut self, waiting: Waiting<W>, answer: Option<A>) -> bool {
        let came = answer.is_some();
        match answer {
            Some(answer) => self.answers.push((answer, waiting.place)),
            None => self.wait = Some((waiting.what, waiting.place)),
        }
        came
    }
}

/// Runs procedures: the channel through which they act, with their [`Script`].
///
/// Every driver builds its own primitives from these: a register written once, a command sent and
/// waited for. What procedures find out and decide does not belong in here. It is the state of
/// objects of their own, whose methods are lent the channel: `effect` and its like hand the channel
/// back, so a closure changes the object's fields at the right moment, and once.
pub trait Player {
    /// A recorded answer; one kind is a number.
    type Answer: Clone + From<u64> + TryInto<u64>;
    /// What can be waited for.
    type Wait;

    /// The script being run.
    fn script(&mut self) -> &mut Script<Self::Answer, Self::Wait>;

    /// The core of every primitive that waits: returns the old answer, or starts a new wait.
    ///
    /// # Errors
    /// [`Pending`] if the question is a new one.
    #[track_caller]
    fn ask(&mut self, wait: impl FnOnce(&mut Self) -> Self::Wait) -> Result<Self::Answer, Pending> {
        if let Some(answer) = self.script().recall() {
            return Ok(answer);
        }
        let wait = wait(self);
        Err(self.script().wait_for(wait))
    }

    /// Does something with an effect only once, however often the step is run; returns its first
    /// result.
    #[track_caller]
    fn answer(&mut self, effect: impl FnOnce(&mut Self) -> Self::Answer) -> Self::Answer {
        if let Some(answer) = self.script().recall() {
            return answer;
        }
        let answer = effect(self);
        self.script().write_down(answer.clone());
        answer
    }

    /// As [`answer`](Self::answer), for an answer that is a number.
    #[track_caller]
    fn once(&mut self, effect: impl FnOnce(&mut Self) -> u64) -> u64 {
        let answer = self.answer(|player| effect(player).into());
        match answer.try_into() {
            Ok(number) => number,
            Err(_) => unreachable!("another answer where a number was written down"),
        }
    }

    /// As [`answer`](Self::answer), for an answer without content.
    #[track_caller]
    fn effect(&mut self, effect: impl FnOnce(&mut Self)) {
        self.once(|player| {
            effect(player);
            0
        });
    }
}

/// The result of an action: a number, a reply `R` of the device, or failure with a cause `C`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<R, C> {
    /// A number.
    Value(u64),
    /// A reply of the device.
    Reply(R),
    /// The reason why there is neither.
    Failed(C),
}

impl<R, C> Answer<R, C> {
    /// The reply.
    ///
    /// # Errors
    /// The cause.
    ///
    /// # Panics
    /// If it is a number, which was not asked for.
    pub fn reply(self) -> Result<R, C> {
        match self {
            Self::Reply(reply) => Ok(reply),
            Self::Failed(cause) => Err(cause),
            Self::Value(_) => unreachable!("a number where a reply was asked for"),
        }
    }
}

impl<R, C> From<u64> for Answer<R, C> {
    fn from(value: u64) -> Self {
        Self::Value(value)
    }
}

/// An answer as a number, or the cause; a reply was not asked for.
impl<R, C> TryFrom<Answer<R, C>> for u64 {
    type Error = C;

    fn try_from(answer: Answer<R, C>) -> Result<Self, C> {
        match answer {
            Answer::Value(value) => Ok(value),
            Answer::Failed(cause) => Err(cause),
            Answer::Reply(_) => unreachable!("no number where one was asked for"),
        }
    }
}

/// A wait taken out of its script.
#[derive(Debug)]
pub struct Waiting<W> {
    /// What is waited for.
    pub what: W,
    place: Place,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for a number; the wait is how often it has to be looked for.
    #[track_caller]
    fn number(script: &mut Script<u32, u32>, looks: u32) -> Result<u32, Pending> {
        match script.recall() {
            Some(number) => Ok(number),
            None => Err(script.wait_for(looks)),
        }
    }

    #[track_caller]
    fn at_once(script: &mut Script<u32, u32>, effects: &mut u32) -> u32 {
        if let Some(done) = script.recall() {
            return done;
        }
        *effects += 1;
        script.write_down(*effects);
        *effects
    }

    /// Runs a procedure to its end; the n-th wait is answered with n.
    fn play<T>(mut run: impl FnMut(&mut Script<u32, u32>) -> Result<T, Pending>) -> T {
        let mut script = Script::new(2);
        let mut given = 0;
        loop {
            while let Some(mut waiting) = script.take_wait() {
                waiting.what -= 1;
                let answer = (waiting.what == 0).then_some(given + 1);
                given += u32::from(answer.is_some());
                script.settle(waiting, answer);
            }
            script.rewind();
            if let Ok(result) = run(&mut script) {
                script.turn_page();
                return result;
            }
        }
    }

    #[test]
    fn answers_come_back_in_order_and_effects_happen_once() {
        let mut effects = 0;
        let mut runs = 0;
        let sum = play(|script| {
            runs += 1;
            let first = number(script, 3)?;
            let effect = at_once(script, &mut effects);
            let mut sum = first * 100 + effect * 10;
            for _ in 0..2 {
                sum += number(script, 1)?;
            }
            Ok(sum)
        });
        assert_eq!((sum, effects, runs), (115, 1, 4));
    }

    #[test]
    #[should_panic(expected = "a replay asks at")]
    fn a_procedure_that_changes_its_mind_is_caught() {
        let mut runs = 0;
        play(|script| {
            runs += 1;
            // The cheat: what is asked depends on something that is no answer.
            let first = if runs == 1 { number(script, 1)? } else { number(script, 2)? };
            Ok(first + number(script, 1)?)
        });
    }

    #[test]
    #[should_panic(expected = "without asking what it had asked before")]
    fn a_procedure_that_ends_early_is_caught() {
        let mut runs = 0;
        play(|script| {
            runs += 1;
            if runs == 1 { number(script, 1) } else { Ok(0) }
        });
    }

    #[test]
    fn an_answer_is_a_number_a_reply_or_a_cause() {
        type Told = Answer<&'static str, u8>;
        assert_eq!(u64::try_from(Told::from(7)), Ok(7));
        assert_eq!(u64::try_from(Told::Failed(3)), Err(3));
        assert_eq!(Told::Reply("well").reply(), Ok("well"));
        assert_eq!(Told::Failed(3).reply(), Err(3));
    }

    #[test]
    fn an_abandoned_step_leaves_nothing() {
        let mut script: Script<u32, u32> = Script::new(2);
        script.write_down(1);
        script.wait_for(2);
        script.abandon();
        assert!(script.take_wait().is_none());
        assert_eq!(script.recall(), None);
    }
}

//! The script: a page of answers and the wait for the next one.

use crate::stop::Pending;
use alloc::vec::Vec;
use core::panic::Location;
use flysch_api::machine::Instant;

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
    /// The present instant, and the instant of the next look.
    now: Instant,
    at: Instant,
}

/// Number of answers of an ordinary step.
const PAGE: usize = 64;
/// The longest interval between two looks, nanoseconds.
const LONGEST: u32 = 1_000_000;

impl<A: Clone, W> Script<A, W> {
    /// A page without answers; `first` is the initial interval between two looks, nanoseconds.
    pub fn new(first: u32) -> Self {
        Self {
            answers: Vec::with_capacity(PAGE),
            cursor: 0,
            wait: None,
            first,
            patience: first,
            now: Instant::START,
            at: Instant::NEVER,
        }
    }

    /// The present instant: that of the last look.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Called before the procedure is run again.
    pub(crate) fn rewind(&mut self) {
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
    pub(crate) fn recall(&mut self) -> Option<A> {
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
    pub(crate) fn write_down(&mut self, answer: A) {
        assert!(self.cursor == self.answers.len(), "there are answers not asked for");
        self.answers.push((answer, Location::caller()));
        self.cursor += 1;
    }

    /// Waits for the answer to a new question.
    ///
    /// # Panics
    /// If the procedure is already waiting.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, wait: W) -> Pending {
        assert!(self.wait.is_none(), "a procedure asked while it was waiting");
        self.wait = Some((wait, Location::caller()));
        self.patience = self.first;
        Pending
    }

    /// Requests another look soon, at `deadline` at the latest: after an interval that doubles each
    /// time, up to 1 ms.
    pub fn look_again(&mut self, deadline: Instant) {
        let interval = self.patience;
        self.patience = interval.saturating_mul(2).min(LONGEST);
        self.look_at(self.now.after_nanos(interval.into()).min(deadline));
    }

    /// Requests another look at this instant.
    pub fn look_at(&mut self, at: Instant) {
        self.at = at;
    }

    /// Takes out the current wait, if there is one, for a look at it now; what looks may use
    /// everything else.
    pub(crate) fn take_wait(&mut self, now: Instant) -> Option<Waiting<W>> {
        self.now = now;
        self.at = Instant::NEVER;
        self.wait.take().map(|(what, place)| Waiting { what, place })
    }

    /// Returns what [`take_wait`](Self::take_wait) took, with its answer if there is one now. If
    /// there is none, says when to look again.
    pub(crate) fn settle(&mut self, waiting: Waiting<W>, answer: Option<A>) -> Option<Instant> {
        match answer {
            Some(answer) => {
                self.answers.push((answer, waiting.place));
                None
            }
            None => {
                self.wait = Some((waiting.what, waiting.place));
                Some(self.at)
            }
        }
    }
}

/// A wait taken out of its script.
#[derive(Debug)]
pub(crate) struct Waiting<W> {
    /// What is waited for.
    pub(crate) what: W,
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
            while let Some(mut waiting) = script.take_wait(Instant::START) {
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
    fn an_abandoned_step_leaves_nothing() {
        let mut script: Script<u32, u32> = Script::new(2);
        script.write_down(1);
        script.wait_for(2);
        script.abandon();
        assert!(script.take_wait(Instant::START).is_none());
        assert_eq!(script.recall(), None);
    }
}

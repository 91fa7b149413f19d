//! The player: what procedures act through.

use crate::answer::Answer;
use crate::script::Script;
use crate::stop::Wait;
use flysch_api::machine::{Instant, Registers};

/// The answers of a player.
pub type AnswerOf<P> = Answer<<P as Player>::Reply, <P as Player>::Cause>;

/// The script of a player.
pub type ScriptOf<P> = Script<AnswerOf<P>, Awaited<<P as Player>::Action>>;

/// What a procedure waits for: a register, an instant, or an action `A` that only its driver knows.
#[derive(Debug)]
pub enum Awaited<A> {
    /// A register with a certain value.
    Register(Until),
    /// An instant.
    Instant(Instant),
    /// The end of an action.
    Action(A),
}

/// A register that is waited for until `register & mask == value`.
#[derive(Clone, Copy, Debug)]
pub struct Until {
    name: &'static str,
    register: u32,
    mask: u32,
    value: u32,
    deadline: Instant,
}

const NANOS_PER_MS: u64 = 1_000_000;

/// Runs procedures: the channel through which they act on registers, with their [`Script`].
///
/// Every driver builds its own primitives from those of [`Replay`] and [`Primitives`]: a command
/// sent and waited for. What procedures find out and decide does not belong in here. It is the
/// state of objects of their own, whose methods are lent the channel: `effect` and its like hand
/// the channel back, so a closure changes the object's fields at the right moment, and once.
pub trait Player: Sized {
    /// What the device may reply to an action.
    type Reply: Clone;
    /// Why an action may fail.
    type Cause: Clone;
    /// What can be waited for besides registers and time.
    type Action;

    /// The script being run.
    fn script(&mut self) -> &mut ScriptOf<Self>;

    /// The window of the registers.
    fn registers(&self) -> &impl Registers;

    /// Where in the window the registers of the procedures begin.
    fn base(&self) -> u32 {
        0
    }

    /// Why the register `name`, which is waited for, will never have the value: it now reads
    /// `value`. `None` if it may still get there.
    fn hopeless(&self, name: &'static str, value: u32) -> Option<Self::Cause>;

    /// Why the register `name` did not get there in time; it now reads `value`.
    fn overdue(name: &'static str, value: u32) -> Self::Cause;

    /// Looks whether what the procedure waits for has come, and if so prepares to run it (again);
    /// otherwise returns when to look again. `attempt` looks for the end of an action.
    fn advance(
        &mut self,
        now: Instant,
        attempt: impl FnOnce(&mut Self, &mut Self::Action) -> Option<AnswerOf<Self>>,
    ) -> Option<Instant> {
        if let Some(mut waiting) = self.script().take_wait(now) {
            let answer = match &mut waiting.what {
                Awaited::Register(until) => look_at_register(self, *until),
                Awaited::Instant(until) => {
                    self.script().look_at(*until);
                    (now >= *until).then_some(Answer::Value(0))
                }
                Awaited::Action(action) => attempt(self, action),
            };
            if let again @ Some(_) = self.script().settle(waiting, answer) {
                return again;
            }
        }
        self.script().rewind();
        None
    }

    /// No answer yet, and another look soon; from `deadline` on, the answer is that the action has
    /// failed.
    fn fail_at(&mut self, deadline: Instant, why: Self::Cause) -> Option<AnswerOf<Self>> {
        if self.script().now() >= deadline {
            return Some(Answer::Failed(why));
        }
        self.script().look_again(deadline);
        None
    }
}

/// Looks at a register that is waited for.
fn look_at_register<P: Player>(player: &mut P, until: Until) -> Option<AnswerOf<P>> {
    let Until { name, register, mask, value, deadline } = until;
    let read = player.registers().read32(register);
    if let Some(cause) = player.hopeless(name, read) {
        return Some(Answer::Failed(cause));
    }
    if read & mask == value {
        return Some(Answer::Value(read.into()));
    }
    player.fail_at(deadline, P::overdue(name, read))
}

/// As [`Replay::ask`], for whatever can be waited for.
#[track_caller]
fn wait<P: Player>(
    player: &mut P,
    wait: impl FnOnce(&mut P) -> Awaited<P::Action>,
) -> Wait<AnswerOf<P>> {
    if let Some(answer) = player.script().recall() {
        return Ok(answer);
    }
    let wait = wait(player);
    Err(player.script().wait_for(wait))
}

/// Everything whose answer is written down, so that a replay does not repeat it.
pub trait Replay: Player {
    /// The core of every primitive that waits for an action: returns the old answer, or starts a
    /// new wait.
    ///
    /// # Errors
    /// [`Pending`](crate::Pending) if the question is a new one.
    #[track_caller]
    fn ask(&mut self, action: impl FnOnce(&mut Self) -> Self::Action) -> Wait<AnswerOf<Self>> {
        wait(self, |player| Awaited::Action(action(player)))
    }

    /// Does something with an effect only once, however often the step is run; returns its first
    /// result.
    #[track_caller]
    fn answer(&mut self, effect: impl FnOnce(&mut Self) -> AnswerOf<Self>) -> AnswerOf<Self> {
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
        match self.answer(|player| Answer::Value(effect(player))) {
            Answer::Value(number) => number,
            _ => unreachable!("another answer where a number was written down"),
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

impl<P: Player> Replay for P {}

/// Registers and time.
pub trait Primitives: Replay {
    /// Waits until `register & mask == value`; returns the register, or why it did not get there.
    ///
    /// # Errors
    /// [`Pending`](crate::Pending) if the question is a new one.
    #[track_caller]
    fn until(
        &mut self,
        register: (&'static str, u32),
        mask: u32,
        value: u32,
        timeout_ms: u32,
    ) -> Wait<Result<u32, Self::Cause>> {
        let deadline = self.script().now().after_nanos(u64::from(timeout_ms) * NANOS_PER_MS);
        self.until_deadline(register, mask, value, deadline)
    }

    /// As [`until`](Self::until), with a deadline.
    ///
    /// # Errors
    /// [`Pending`](crate::Pending) if the question is a new one.
    #[track_caller]
    fn until_deadline(
        &mut self,
        (name, register): (&'static str, u32),
        mask: u32,
        value: u32,
        deadline: Instant,
    ) -> Wait<Result<u32, Self::Cause>> {
        let register = self.base() + register;
        let until = Until { name, register, mask, value, deadline };
        let answer = wait(self, |_| Awaited::Register(until))?;
        Ok(u64::try_from(answer).map(|value| value as u32))
    }

    /// Waits this long.
    ///
    /// # Errors
    /// [`Pending`](crate::Pending) if the question is a new one.
    #[track_caller]
    fn sleep(&mut self, nanos: u64) -> Wait<()> {
        wait(self, |player| Awaited::Instant(player.script().now().after_nanos(nanos)))?;
        Ok(())
    }

    /// Writes a register, only once.
    #[track_caller]
    fn write(&mut self, register: u32, value: u32) {
        let register = self.base() + register;
        self.effect(|player| player.registers().write32(register, value));
    }

    /// Reads a register, only once.
    #[track_caller]
    fn read(&mut self, register: u32) -> u32 {
        let register = self.base() + register;
        self.once(|player| player.registers().read32(register).into()) as u32
    }
}

impl<P: Player> Primitives for P {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::{Run, Stop};
    use core::cell::{Cell, RefCell};
    use core::fmt;

    /// A window whose register 0 counts its reads, and which logs what is written.
    #[derive(Default)]
    struct Counter {
        reads: Cell<u32>,
        written: RefCell<alloc::vec::Vec<(u32, u32)>>,
        is_gone: Cell<bool>,
    }

    impl Registers for Counter {
        fn read32(&self, _: u32) -> u32 {
            self.reads.set(self.reads.get() + 1);
            if self.is_gone.get() { u32::MAX } else { self.reads.get() }
        }

        fn write32(&self, offset: u32, value: u32) {
            self.written.borrow_mut().push((offset, value));
        }
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Cause {
        Gone,
        Overdue(&'static str, u32),
        Late,
    }

    impl fmt::Display for Cause {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Debug::fmt(self, f)
        }
    }

    impl core::error::Error for Cause {}

    struct Channel {
        counter: Counter,
        script: ScriptOf<Self>,
    }

    impl Player for Channel {
        type Reply = &'static str;
        type Cause = Cause;
        type Action = u32;

        fn script(&mut self) -> &mut ScriptOf<Self> {
            &mut self.script
        }

        fn registers(&self) -> &impl Registers {
            &self.counter
        }

        fn base(&self) -> u32 {
            0x100
        }

        fn hopeless(&self, _: &'static str, value: u32) -> Option<Cause> {
            (value == u32::MAX).then_some(Cause::Gone)
        }

        fn overdue(name: &'static str, value: u32) -> Cause {
            Cause::Overdue(name, value)
        }
    }

    const MS: u64 = NANOS_PER_MS;

    fn channel() -> Channel {
        Channel { counter: Counter::default(), script: Script::new(1000) }
    }

    /// Runs a procedure to its end; time jumps to where the channel wants to look. The end of an
    /// action comes when it has been looked for as often as it says.
    fn play<T>(
        channel: &mut Channel,
        mut run: impl FnMut(&mut Channel) -> Run<T, Cause>,
    ) -> (Result<T, Cause>, Instant) {
        let mut now = Instant::START;
        loop {
            let attempt = |channel: &mut Channel, looks: &mut u32| {
                *looks -= 1;
                match *looks {
                    0 => Some(Answer::Reply("well")),
                    _ => channel.fail_at(Instant::from_nanos(MS), Cause::Late),
                }
            };
            if let Some(at) = channel.advance(now, attempt) {
                assert!(at > now, "time goes on");
                now = at;
                continue;
            }
            match run(channel) {
                Ok(value) => return (Ok(value), now),
                Err(Stop::Failed(cause)) => return (Err(cause), now),
                Err(Stop::Pending) => {}
            }
        }
    }

    #[test]
    fn registers_are_written_once_and_waited_for_at_growing_intervals() {
        let mut channel = channel();
        let (end, now) = play(&mut channel, |channel| {
            channel.write(8, 1);
            let first = channel.read(0);
            channel.sleep(500)?;
            let reached = channel.until(("COUNT", 0), 0x7, 4, 1)??;
            channel.write(12, 2);
            Ok((first, reached))
        });
        // The first look comes without delay, the next ones after 1 and 2 µs.
        assert_eq!((end, now), (Ok((1, 4)), Instant::from_nanos(3_500)));
        assert_eq!(*channel.counter.written.borrow(), [(0x108, 1), (0x10C, 2)]);
    }

    #[test]
    fn a_register_that_does_not_follow_is_looked_at_until_the_deadline() {
        let mut channel = channel();
        let (end, now) = play(&mut channel, |channel| Ok(channel.until(("R", 0), 0, 1, 1)??));
        let reads = channel.counter.reads.get();
        assert_eq!((end, now), (Err(Cause::Overdue("R", reads)), Instant::from_nanos(MS)));
        channel.script.abandon();
        channel.counter.is_gone.set(true);
        let (end, now) = play(&mut channel, |channel| Ok(channel.until(("R", 0), 0, 1, 1)??));
        assert_eq!((end, now), (Err(Cause::Gone), Instant::START));
    }

    #[test]
    fn an_action_is_looked_for_until_it_ends_or_its_deadline_comes() {
        let mut channel = channel();
        let act = |looks| {
            move |channel: &mut Channel| -> Run<&'static str, Cause> {
                Ok(channel.ask(|_| looks)?.reply()?)
            }
        };
        let (end, now) = play(&mut channel, act(3));
        assert_eq!((end, now), (Ok("well"), Instant::from_nanos(3_000)));
        channel.script.turn_page();
        let (end, now) = play(&mut channel, act(1000));
        assert_eq!((end, now), (Err(Cause::Late), Instant::from_nanos(MS)));
    }
}

//! Runs a single command to its end: for scanning and for commands a user passes through.

use flysch_api::command::{Command, Declined, NotStarted, Outcome, Port};
use flysch_api::machine::{Clock, Instant};

/// Delay of the first look at the port after a command was issued, nanoseconds; each further pause
/// is twice as long. A port that is polled raises no interrupt to wait for.
const FIRST_LOOK_NANOS: u64 = 20_000;
/// Longest pause between two looks, nanoseconds.
const LAST_LOOK_NANOS: u64 = 1_000_000;

/// Time allowed for recovery beyond the deadline, nanoseconds. A port owes every command an end; if
/// it breaks this rule, it must not block the caller forever.
const GRACE_NANOS: u64 = 60_000_000_000;

/// Sends `command` to a port that carries no other commands, and waits until it has ended.
///
/// The command's deadline bounds the time; recovery by the port may add to it. Afterwards
/// [`Port::failure`] describes this command.
///
/// # Errors
/// [`NotStarted`] if the port did not accept the command before its deadline, or never ended it.
pub fn run<P: Port, C: Clock>(
    port: &mut P,
    clock: &C,
    mut command: Command<P::Protocol>,
) -> Result<Outcome, NotStarted> {
    let mut pause = FIRST_LOOK_NANOS;
    let (number, deadline) = (command.token.number(), command.deadline);
    let Command { unit, payload, direction, data, crypto, ordering, .. } = command;
    loop {
        let now = clock.now();
        match port.start(command, now) {
            Ok(()) => break,
            Err(Declined { why: NotStarted::Full, token }) if now < deadline => {
                command =
                    Command { unit, payload, direction, data, crypto, ordering, deadline, token };
                // Recovery goes on only while the port is polled; what ends now is not ours.
                while port.poll(now).is_some() {}
                look_again(port, clock, &mut pause);
            }
            Err(declined) => return Err(declined.why),
        }
    }
    port.ring(clock.now());
    pause = FIRST_LOOK_NANOS;
    loop {
        while let Some(outcome) = port.poll(clock.now()) {
            if outcome.token.number() == number {
                return Ok(outcome);
            }
        }
        if clock.now() > deadline.after_nanos(GRACE_NANOS) {
            return Err(NotStarted::Gone);
        }
        look_again(port, clock, &mut pause);
    }
}

/// Sleeps until the port may have something: on its interrupt, at the time it requested, or until
/// the next look.
fn look_again<P: Port, C: Clock>(port: &P, clock: &C, pause: &mut u64) {
    let now = clock.now();
    let next = now.after_nanos(*pause);
    *pause = (*pause * 2).min(LAST_LOOK_NANOS);
    // A port that wants to be polled at once was just polled: time must pass before the next look.
    let wished = port.poll_at().unwrap_or(Instant::NEVER).max(now.after_nanos(1_000));
    clock.wait(Some(next.min(wished)));
}

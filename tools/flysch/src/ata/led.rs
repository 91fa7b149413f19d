//! `flysch ata led`.

use clap::ValueEnum;
use flysch_ahci::Operation;
use flysch_wire::ata::registers::LedMessage;
use serde_json::json;

use super::Session;
use crate::failure::Failure;

/// What the LEDs show (ledctl's terms).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Nothing.
    Off,
    /// Locate.
    Locate,
    /// Failure.
    Failure,
}

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Arguments {
    /// What to show.
    pattern: Pattern,
}

pub(super) fn led(session: &mut Session<'_>, arguments: Arguments) -> Result<(), Failure> {
    let port = session.control.number();
    let message = LedMessage::new().with_port(port).with_pmp(session.control.devices().unit);
    let (message, name) = match arguments.pattern {
        Pattern::Off => (message, "nothing"),
        Pattern::Locate => (message.with_locate(1), "locate"),
        Pattern::Failure => (message.with_fault(1), "failure"),
    };
    session.control.operate(Operation::Leds(message))?;
    let told = json!({ "port": port, "leds": name });
    session.done(&told, &format!("the LEDs of port {port} show {name}"))
}

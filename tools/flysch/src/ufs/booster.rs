//! `flysch ufs wb`.

use clap::{Subcommand, ValueEnum};
use flysch_api::count::counted;
use flysch_rig::Control;
use flysch_ufs::{
    Operation, Output as Answer, PartialFlush, PartialFlushState, ResizeState, UfsError,
};
use flysch_wire::ufs::query::{WriteBoosterResize, WriteBoosterResizeStatus};
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

/// One unit in which the buffer is counted, and several.
const UNIT: (&str, &str) = ("allocation unit", "allocation units");

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// What to do; without it, only show the state.
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Action {
    /// Show the state.
    Status,
    /// Let new writes go to the buffer.
    On,
    /// Let no new writes go to it.
    Off,
    /// Write the buffer's content to its final place.
    Flush,
    /// Stop flushing.
    StopFlush,
    /// Have the device resize the buffer, by an amount that it chooses (UFS 4.1).
    Resize {
        /// The direction; `hint` follows the device's recommendation.
        to: Size,
    },
    /// What a flush leaves in the buffer (UFS 4.1); the device keeps the setting.
    PartialFlush {
        #[command(subcommand)]
        keep: Keep,
    },
    /// Whether pinned data is released, so that a flush also takes it (UFS 4.1).
    Unpin {
        /// Released or not.
        way: Way,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Size {
    Smaller,
    Larger,
    Hint,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Keep {
    /// Nothing.
    None,
    /// The data written last.
    Fifo {
        /// At most this many allocation units.
        units: u32,
    },
    /// Data written with GROUP NUMBER 18h.
    Pinned {
        /// The part of the buffer reserved for it, in allocation units.
        units: u32,
        /// The part kept for everything else as long as possible, in allocation units.
        #[arg(long, default_value_t = 0)]
        others: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    On,
    Off,
}

/// How long one poll of a resize waits, ms.
const WAIT_MS: u32 = 1000;

fn operation(action: Action) -> Option<Operation> {
    Some(match action {
        Action::Status => return None,
        Action::On => Operation::WriteBooster(true),
        Action::Off => Operation::WriteBooster(false),
        Action::Flush => Operation::WriteBoosterFlush(true),
        Action::StopFlush => Operation::WriteBoosterFlush(false),
        Action::Resize { to } => match to {
            Size::Smaller => Operation::ResizeWriteBooster(WriteBoosterResize::Decrease),
            Size::Larger => Operation::ResizeWriteBooster(WriteBoosterResize::Increase),
            Size::Hint => Operation::FollowResizeHint,
        },
        Action::PartialFlush { keep } => Operation::SetPartialFlush(match keep {
            Keep::None => PartialFlush::None,
            Keep::Fifo { units } => PartialFlush::Fifo { units },
            Keep::Pinned { units, others } => PartialFlush::Pinned { units, others_min: others },
        }),
        Action::Unpin { way } => Operation::Unpin(way == Way::On),
    })
}

pub(super) fn run(
    arguments: &Arguments,
    control: &mut dyn Control,
    output: &mut Output,
) -> Result<(), Failure> {
    if let Some(operation) = arguments.action.and_then(operation) {
        control.operate(operation)?;
    }
    // First what tells an end once.
    let resize = resize(control)?;
    let Answer::WriteBooster(status) = control.operate(Operation::WriteBoosterStatus)? else {
        return Ok(());
    };
    let partial = match control.operate(Operation::PartialFlushState) {
        Ok(Answer::PartialFlush(state)) => Some(state),
        Ok(_) | Err(UfsError::Unsupported(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let flush_status = status.flush_status.name();
    if output.json() {
        return output.value(&json!({
            "enabled": status.enabled,
            "flushing": status.flushing,
            "flush_in_hibernate": status.flush_in_hibernate,
            "flush_status": flush_status,
            "available_percent": status.available_percent,
            "life_used_percent": status.life_used_percent,
            "size_units": status.size_units,
            "resize": resize.map(|state| json!({
                "hint": state.hint.name(),
                "status": state.status.name(),
            })),
            "partial_flush": partial.map(partial_json),
        }));
    }
    let on_off = |on: bool| if on { "on" } else { "off" };
    let life = match status.life_used_percent {
        Some(percent) => format!("{percent} % used"),
        None => "exceeded".into(),
    };
    let mut lines = vec![
        ("WriteBooster", on_off(status.enabled).to_owned()),
        ("flush", format!("{} ({flush_status})", on_off(status.flushing))),
        ("in hibernation", on_off(status.flush_in_hibernate).to_owned()),
        ("buffer", counted(status.size_units, UNIT.0, UNIT.1).to_string()),
        ("available", format!("{} %", status.available_percent)),
        ("life", life),
    ];
    if let Some(state) = resize {
        let (status, hint) = (state.status.name(), state.hint.name());
        lines.push(("resize", format!("{status} (the device recommends: {hint})")));
    }
    if let Some(state) = partial {
        lines.push(("flush leaves", leaves(&state)));
    }
    for (name, value) in lines {
        output.line(format!("{name:<16}{value}"))?;
    }
    Ok(())
}

/// The state of a resize after its end; `None` if there is none.
fn resize(control: &mut dyn Control) -> Result<Option<ResizeState>, Failure> {
    loop {
        match control.operate(Operation::ResizeState(WAIT_MS)) {
            Ok(Answer::Resize(ResizeState {
                status: WriteBoosterResizeStatus::InProgress,
                ..
            })) => {}
            Ok(Answer::Resize(state)) => return Ok(Some(state)),
            Ok(_) | Err(UfsError::Unsupported(_)) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}

fn partial_json(state: PartialFlushState) -> serde_json::Value {
    json!({
        "mode": state.mode.name(),
        "fifo_max_units": state.fifo_max,
        "fifo_units": state.fifo,
        "pinned_max_units": state.pinned_max,
        "pinned_units": state.pinned,
        "pinned_available_percent": state.pinned_available_percent,
        "others_min_units": state.others_min,
        "pinned_written_10mb": state.pinned_written,
        "unpinned": state.unpinned,
    })
}

fn leaves(state: &PartialFlushState) -> String {
    use flysch_wire::ufs::query::WriteBoosterPartialFlush as Mode;
    match state.mode {
        Mode::None => "nothing".into(),
        Mode::Fifo => format!("what came last, {}", counted(state.fifo, UNIT.0, UNIT.1)),
        Mode::Pinned if state.unpinned => "nothing, pinned data is released".into(),
        Mode::Pinned => format!(
            "what is pinned, {}, {} % available",
            counted(state.pinned, UNIT.0, UNIT.1),
            state.pinned_available_percent
        ),
        Mode::Unknown(bits) => format!("unknown mode {bits:#x}"),
    }
}

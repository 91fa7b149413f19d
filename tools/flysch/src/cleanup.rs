//! What has to be cleaned up, wherever the command ends: see `flysch-files`.
//!
//! QEMU ends with this process by itself; see `flysch-qemu`.

use std::sync::{Mutex, PoisonError};

/// Status of a command ended by Ctrl-C, as in shells.
const INTERRUPTED: i32 = 130;

/// What a command does to end itself when it is asked to.
static END: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

/// What remains when the command is interrupted, in words.
static STAYS: Mutex<Option<String>> = Mutex::new(None);

/// From now on an interrupted command prints this: what remains, and how to continue.
pub(crate) fn say_when_interrupted(text: String) {
    *STAYS.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
}

/// From now on the first signal calls `end`, which makes the command end itself; a second one ends
/// it as usual.
pub(crate) fn end_by(end: impl Fn() + Send + 'static) {
    *END.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(end));
}

/// Prepares for Ctrl-C and for a reader that closes the pipe.
pub(crate) fn prepare() {
    // Without the handler the kernel ends the process as it always did: no reason to fail.
    let _ = ctrlc::set_handler(|| {
        if let Some(end) = END.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return end();
        }
        flysch_files::abandon();
        match STAYS.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(stays) => eprintln!("flysch: interrupted; {stays}"),
            None => eprintln!("flysch: interrupted"),
        }
        std::process::exit(INTERRUPTED);
    });
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let message = panic.payload().downcast_ref::<String>();
        if message.is_some_and(|text| text.starts_with("failed printing to stdout")) {
            flysch_files::abandon();
            std::process::exit(0);
        }
        usual(panic);
    }));
}

//! A progress bar for operations that last longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Commands shorter than this draw nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// The progress of a command. Nothing is drawn unless standard error is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    is_drawn: bool,
}

impl Progress {
    /// Counts `total` bytes; `None` if the total is unknown.
    pub(crate) fn bytes(what: &'static str, total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{msg} {spinner} {bytes}, {bytes_per_sec}",
        };
        Self::new(what, total, template)
    }

    /// Counts thousandths of the whole.
    pub(crate) fn share(what: &'static str) -> Self {
        Self::new(what, Some(1000), "{msg} {wide_bar} {percent} %, {eta} left")
    }

    /// Shows how long an operation of unknown length has taken.
    pub(crate) fn time(what: &'static str) -> Self {
        Self::new(what, None, "{msg} {spinner} {elapsed}")
    }

    fn new(what: &'static str, total: Option<u64>, template: &str) -> Self {
        let bar = match total {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::no_length(),
        };
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
        bar.set_message(what);
        Self { bar, begun: Instant::now(), is_drawn: false }
    }

    /// The operation still continues.
    pub(crate) fn tick(&mut self) {
        self.draw();
        self.bar.tick();
    }

    /// This much is done.
    pub(crate) fn set(&mut self, done: u64) {
        self.draw();
        self.bar.set_position(done);
    }

    fn draw(&mut self) {
        if !self.is_drawn && self.begun.elapsed() > PATIENCE {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.is_drawn = true;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

//! A progress bar for what lasts longer than a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Commands shorter than this draw nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// How far a command is. Nothing is drawn unless standard error is a terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    is_drawn: bool,
}

impl Progress {
    /// Counts `total` bytes; `None` if nobody knows how many there will be.
    pub(crate) fn bytes(what: &'static str, total: Option<u64>) -> Self {
        let template = match total {
            Some(_) => "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{msg} {spinner} {bytes}, {bytes_per_sec}",
        };
        Self::new(what, total, template)
    }

    /// Counts thousandths of a whole.
    pub(crate) fn share(what: &'static str) -> Self {
        Self::new(what, Some(1000), "{msg} {wide_bar} {percent} %, {eta} left")
    }

    /// Tells how long something lasts of which nobody knows how far it is.
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

    /// It still lasts.
    pub(crate) fn tick(&mut self) {
        self.draw();
        self.bar.tick();
    }

    /// So much is done.
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

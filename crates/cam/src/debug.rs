//! Debug output of the command layer (`camcontrol debug`): which commands go to a unit, how they
//! end, and which calls carry them, in FreeBSD's words.
//!
//! Theory. A [`Switch`] says what is reported, about which units, and where it goes; a [`Tracer`]
//! is the switch as seen from one place, a peripheral driver on a path. Code that carries out a
//! command calls [`Tracer::start`] before it and [`Tracer::end`] after it. For commands that go
//! over a port, [`Traced`] does so: a port over a port, inserted only where somebody wants the
//! output, so that ports themselves need no branch for it.
//!
//! The flags and the information they report are those of FreeBSD's `cam_debug.h`:
//!
//! | flag | what is reported |
//! |---|---|
//! | [`INFO`](Flags::INFO) | commands that did not end well, with status and sense data; peripheral drivers that come and go |
//! | [`TRACE`](Flags::TRACE) | the calls that hand a command over and back |
//! | [`SUBTRACE`](Flags::SUBTRACE) | what happens inside them: data, residuals, resets |
//! | [`CDB`](Flags::CDB) | every command, and how it ended |
//! | [`XPT`](Flags::XPT) | the queue to the controller |
//! | [`PERIPH`](Flags::PERIPH) | what peripheral drivers hand to the transport and get back |
//! | [`PROBE`](Flags::PROBE) | the steps of a probe, and its commands |

mod port;
mod words;

pub use port::Traced;
pub use words::{Answer, Function, Request};

use alloc::borrow::Cow;
use alloc::rc::Rc;
use alloc::string::String;
use core::cell::Cell;
use core::fmt;

use flysch_api::command::Direction;

use crate::xpt::Path;

/// What is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u32);

impl Flags {
    /// Nothing.
    pub const NONE: Self = Self(0x00);
    /// Commands that failed; peripheral drivers that come and go.
    pub const INFO: Self = Self(0x01);
    /// Calls.
    pub const TRACE: Self = Self(0x02);
    /// What happens inside calls.
    pub const SUBTRACE: Self = Self(0x04);
    /// Commands.
    pub const CDB: Self = Self(0x08);
    /// The transport's queue.
    pub const XPT: Self = Self(0x10);
    /// Peripheral drivers.
    pub const PERIPH: Self = Self(0x20);
    /// Probes.
    pub const PROBE: Self = Self(0x40);

    /// The union with other flags.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether any of these flags is set.
    pub const fn has(self, any: Self) -> bool {
        self.0 & any.0 != 0
    }

    /// FreeBSD's value for these flags.
    pub const fn bits(self) -> u32 {
        self.0
    }
}

/// The units to report about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// All units on all buses.
    All,
    /// Those that the path covers.
    Of(Path),
}

impl Scope {
    /// Whether events at `path` are to be reported.
    pub const fn covers(self, path: Path) -> bool {
        match self {
            Self::All => true,
            Self::Of(scope) => scope.covers(path),
        }
    }
}

/// `bus:target:lun` as camcontrol confirms it: -1 for any bus and target, ffffffff for any unit.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Of(path) = self else { return f.write_str("-1:-1:ffffffff") };
        write!(f, "{}:{}:{}", path.bus, Target(path.target), Lun(path.lun))
    }
}

/// A target as FreeBSD prints it.
struct Target(u32);

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Path::ANY_TARGET => f.write_str("-1"),
            target => write!(f, "{target}"),
        }
    }
}

/// A unit as FreeBSD prints it.
struct Lun(u64);

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Path::ANY_LUN => f.write_str("ffffffff"),
            lun => write!(f, "{lun:x}"),
        }
    }
}

/// Where lines are written.
pub type Console = dyn Fn(&str);

/// What is reported, about which units, and where it goes.
pub struct Switch {
    flags: Flags,
    scope: Scope,
    console: Rc<Console>,
    /// Number of commands so far; it numbers them.
    commands: Cell<u32>,
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { flags, scope, console: _, commands } = self;
        let mut this = f.debug_struct("Switch");
        this.field("flags", flags).field("scope", scope).field("commands", commands);
        this.finish_non_exhaustive()
    }
}

impl Switch {
    /// Reports what happens to the units of `scope` to `console`, a line at a time.
    pub fn new(flags: Flags, scope: Scope, console: Rc<Console>) -> Self {
        Self { flags, scope, console, commands: Cell::new(0) }
    }
}

/// The subject of a line: a peripheral driver and a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The peripheral driver with its number, such as `pass0`.
    pub periph: Cow<'static, str>,
    /// The controller's driver with its number, such as `ufshci0`.
    pub sim: String,
    /// The unit, or the bus if there are wildcards.
    pub path: Path,
}

/// `(pass0:ufshci0:0:0:0): `, as FreeBSD begins lines about a path.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { periph, sim, path } = self;
        write!(f, "({periph}:{sim}:0:{}:{}): ", Target(path.target), Lun(path.lun))
    }
}

/// A switch as seen by a peripheral driver on a path.
#[derive(Clone, Debug)]
pub struct Tracer {
    switch: Option<Rc<Switch>>,
    origin: Origin,
    /// Its commands belong to a probe: the flag for probes reports them too.
    is_probe: bool,
}

/// A command in progress, as it is reported.
#[derive(Debug)]
#[must_use = "its end is to be told, too"]
pub struct Ccb {
    /// What is reported about it.
    flags: Flags,
    /// The command itself was reported.
    is_told: bool,
    number: u32,
    lun: u64,
    request: Request,
}

impl Tracer {
    /// Reports what the switch selects; nothing without a switch.
    pub const fn new(switch: Option<Rc<Switch>>, origin: Origin) -> Self {
        Self { switch, origin, is_probe: false }
    }

    /// The subject of its lines.
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The same for another unit.
    fn at(&self, lun: u64) -> Self {
        let origin = Origin { path: Path { lun, ..self.origin.path }, ..self.origin.clone() };
        Self { origin, ..self.clone() }
    }

    /// What is reported about a unit of the path.
    fn flags(&self, lun: u64) -> Flags {
        let path = Path { lun, ..self.origin.path };
        match &self.switch {
            Some(switch) if switch.scope.covers(path) => switch.flags,
            _ => Flags::NONE,
        }
    }

    /// A line about a unit.
    fn line(&self, lun: u64, text: fmt::Arguments<'_>) {
        let Some(switch) = &self.switch else { return };
        let Origin { periph, sim, path } = &self.origin;
        let (target, lun) = (Target(path.target), Lun(lun));
        (switch.console)(&alloc::format!("({periph}:{sim}:0:{target}:{lun}): {text}"));
    }

    /// A line about no particular unit.
    fn print(&self, text: &str) {
        if let Some(switch) = &self.switch {
            (switch.console)(&alloc::format!("cam_debug: {text}"));
        }
    }

    /// Reports something about the path if the flag is set for it.
    pub fn say(&self, flag: Flags, text: impl fmt::Display) {
        let lun = self.origin.path.lun;
        if self.flags(lun).has(flag) {
            self.line(lun, format_args!("{text}"));
        }
    }

    /// Reports a call of the transport that is not a command: a scan, a reset. `inside` says what
    /// happens in it.
    pub fn call(&self, function: Function, inside: Option<&str>) {
        self.say(Flags::TRACE, format_args!("xpt_action: func {function}"));
        if let Some(inside) = inside {
            self.say(Flags::SUBTRACE, inside);
        }
    }

    /// Reports that such a call returned.
    pub fn called(&self, function: Function, answer: &Answer<'_>) {
        let status = answer.status().code;
        self.say(Flags::TRACE, format_args!("xpt_done: func= {function} status {status:#x}"));
    }

    /// Reports that a command with this much data is handed over to a unit.
    pub fn start(&self, lun: u64, request: Request, data: (Direction, u32)) -> Ccb {
        let flags = self.flags(lun);
        let number = match &self.switch {
            Some(switch) if flags != Flags::NONE => {
                switch.commands.set(switch.commands.get() + 1);
                switch.commands.get()
            }
            _ => 0,
        };
        let probe = if self.is_probe { Flags::PROBE } else { Flags::NONE };
        let is_told = flags.has(Flags::CDB.with(probe));
        let ccb = Ccb { flags, is_told, number, lun, request };
        if flags == Flags::NONE {
            return ccb;
        }
        let function = ccb.request.function();
        if flags.has(Flags::PERIPH) {
            self.line(lun, format_args!("sendccb {number}"));
        }
        if flags.has(Flags::TRACE) {
            self.line(lun, format_args!("xpt_action: func {function}"));
        }
        if flags.has(Flags::XPT) {
            self.print("xpt_schedule_dev");
        }
        if is_told {
            self.line(lun, format_args!("{}", ccb.request));
        }
        if flags.has(Flags::SUBTRACE) {
            let (direction, length) = data;
            let direction = match direction {
                Direction::None => "CAM_DIR_NONE",
                Direction::ToDevice => "CAM_DIR_OUT",
                Direction::FromDevice => "CAM_DIR_IN",
            };
            self.line(lun, format_args!("{direction}, dxfer_len {length}"));
        }
        ccb
    }

    /// Reports that the command goes to the controller.
    pub fn issue(&self, lun: u64) {
        if self.flags(lun).has(Flags::XPT) {
            self.print("xpt_run_devq");
        }
    }

    /// Reports that a command ended.
    pub fn end(&self, ccb: Ccb, answer: &Answer<'_>) {
        let Ccb { flags, is_told, number, lun, request } = ccb;
        if flags == Flags::NONE {
            return;
        }
        let status = answer.status();
        if flags.has(Flags::TRACE) {
            let function = request.function();
            let code = status.code;
            self.line(lun, format_args!("xpt_done: func= {function} status {code:#x}"));
        }
        if flags.has(Flags::SUBTRACE)
            && let Some(residual) = answer.residual()
        {
            self.line(lun, format_args!("resid {residual}"));
        }
        let has_failed = flags.has(Flags::INFO) && !status.is_good();
        if has_failed && !is_told {
            self.line(lun, format_args!("{request}"));
        }
        if has_failed || flags.has(Flags::CDB) {
            self.line(lun, format_args!("CAM status: {}", status.text));
            answer.each_line(|line| self.line(lun, line));
        }
        if flags.has(Flags::XPT) {
            self.print("xpt_release_ccb");
        }
        if flags.has(Flags::PERIPH) {
            self.line(lun, format_args!("returnccb {number}"));
        }
    }
}

/// A probe as it is reported: one unit after the other, from action to action.
#[derive(Debug)]
pub struct Probing {
    tracer: Tracer,
    /// Prefix of the names of its actions.
    prefix: &'static str,
    /// The unit being probed, and the current action.
    now: Option<(u64, &'static str)>,
}

impl Probing {
    /// A probe that has not begun; the names of its actions begin with `prefix`.
    pub fn new(tracer: Tracer, prefix: &'static str) -> Self {
        Self { tracer: Tracer { is_probe: true, ..tracer }, prefix, now: None }
    }

    /// The tracer of its commands, which the flag for probes reports.
    pub fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// The next action for a unit.
    pub fn to(&mut self, lun: u64, action: &'static str) {
        if self.now.is_some_and(|(other, _)| other != lun) {
            self.end(DONE);
        }
        let before = match self.now {
            Some((_, before)) => before,
            None => {
                let tracer = self.tracer.at(lun);
                tracer.say(Flags::INFO, "Periph created");
                tracer.say(Flags::PROBE, "Probe started");
                INVALID
            }
        };
        self.now = Some((lun, action));
        if before != action {
            self.turn(lun, before, action);
        }
    }

    /// The unit did not answer a query that every unit must answer.
    pub fn fail(&mut self) {
        self.end(INVALID);
    }

    /// No more queries follow.
    pub fn finish(&mut self) {
        self.end(DONE);
    }

    fn turn(&self, lun: u64, before: &str, after: &str) {
        let prefix = self.prefix;
        let line = format_args!("Probe {prefix}{before} to {prefix}{after}");
        self.tracer.at(lun).say(Flags::PROBE, line);
    }

    fn end(&mut self, last: &'static str) {
        let Some((lun, before)) = self.now.take() else { return };
        self.turn(lun, before, last);
        let tracer = self.tracer.at(lun);
        tracer.say(Flags::PROBE, "Probe completed");
        tracer.say(Flags::INFO, "Periph invalidated");
        tracer.say(Flags::INFO, "Periph destroyed");
    }
}

/// Before the first action, and after the last action for a number without a unit.
const INVALID: &str = "INVALID";
/// After the last action.
const DONE: &str = "DONE";

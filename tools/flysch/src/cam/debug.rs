//! `flysch cam debug`: shows what the command layer does for another verb, on standard error.

use std::rc::Rc;

use flysch_cam::debug::{Flags, Scope, Switch};
use flysch_cam::xpt::Path;

use super::{Machine, Plain};
use crate::failure::Failure;
use crate::number::parse_number;

/// The usage of the verb, for errors.
const FORM: &str = "`flysch cam debug -c 0:0:0 tur da0`";

#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of camcontrol's own")]
#[command(after_help = "\
camcontrol sets flags in a kernel, where they stay until `debug off`. These last for one verb, which
follows the path: what the command layer does for it is printed on standard error, in FreeBSD's
words; the verb's own output, also as JSON, is unchanged. Opening the targets is not shown, nor are
commands that a driver sends by itself in bring-up, resets and recovery.
Examples:
  flysch cam debug -c 0:0:0 inquiry da0 --on ufs
  flysch cam debug -Ic all tur pass1 --on ufs,lus=2 --on nvme
  flysch cam debug -p 0 rescan 0 --on ufs
  flysch cam debug -TX da0 readcap --json 2> trace.txt")]
pub(super) struct Arguments {
    /// Information: failed commands with status and sense data; peripheral drivers that attach and
    /// detach.
    #[arg(short = 'I')]
    info: bool,
    /// Peripheral drivers: what they submit to the transport and get back.
    #[arg(short = 'P')]
    periph: bool,
    /// Trace: the calls by which commands, scans and resets go to the transport and return.
    #[arg(short = 'T')]
    trace: bool,
    /// Subtrace: details of these calls: data, residuals, resets.
    #[arg(short = 'S')]
    subtrace: bool,
    /// Transport: its queue to the controller.
    #[arg(short = 'X')]
    xpt: bool,
    /// Every command, and its result.
    #[arg(short = 'c')]
    cdb: bool,
    /// Probes: their steps and commands; `rescan` starts probes.
    #[arg(short = 'p')]
    probe: bool,
    /// Whose commands: of all units, of a bus, of a target, of one unit, or of a device such as
    /// `da0`; `off` exists only for compatibility with camcontrol.
    #[arg(value_name = "all|off|BUS[:TARGET[:LUN]]|DEVICE")]
    which: Option<String>,
    #[command(subcommand)]
    verb: Option<Box<Plain>>,
}

/// What to show.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    flags: Flags,
    which: &'a str,
}

impl Arguments {
    fn flags(&self) -> Flags {
        let all = [
            (self.info, Flags::INFO),
            (self.periph, Flags::PERIPH),
            (self.trace, Flags::TRACE),
            (self.subtrace, Flags::SUBTRACE),
            (self.xpt, Flags::XPT),
            (self.cdb, Flags::CDB),
            (self.probe, Flags::PROBE),
        ];
        let on = all.into_iter().filter(|(is_on, _)| *is_on);
        on.fold(Flags::NONE, |flags, (_, flag)| flags.with(flag))
    }

    /// The verb, and what to show of it; nothing if that was all.
    pub(super) fn parse(&self) -> Result<Option<(&Plain, Wanted<'_>)>, Failure> {
        let Some(which) = self.which.as_deref() else {
            return Err(Failure::usage(format!(
                "debug: you must specify \"all\", \"off\", or a bus, bus:target, bus:target:lun \
                 or periph to debug: {FORM}"
            )));
        };
        let flags = self.flags();
        match (which, &self.verb) {
            ("off", None) => {
                eprintln!("Debugging turned off");
                Ok(None)
            }
            ("off", Some(_)) => Err(Failure::usage(
                "debug: nothing is shown of a verb after `off`: leave `debug off` out, or name \
                 `all` or a path",
            )),
            _ if flags == Flags::NONE => Err(Failure::usage(format!(
                "debug: there is nothing to show without one of -I, -P, -T, -S, -X, -c, -p: {FORM}"
            ))),
            (_, None) => Err(Failure::usage(format!(
                "debug: the flags last as long as this command, so put the verb to be debugged \
                 after `{which}`: {FORM}"
            ))),
            (_, Some(verb)) => Ok(Some((verb, Wanted { flags, which }))),
        }
    }
}

impl Wanted<'_> {
    /// What shows it, if the machine has such a path.
    pub(super) fn switch(&self, machine: &Machine) -> Result<Switch, Failure> {
        let scope = self.scope(machine)?;
        eprintln!("Debugging enabled for {scope}");
        Ok(Switch::new(self.flags, scope, Rc::new(|line: &str| eprintln!("{line}"))))
    }

    fn scope(&self, machine: &Machine) -> Result<Scope, Failure> {
        let which = self.which;
        if which == "all" {
            return Ok(Scope::All);
        }
        let Some(path) = path(which) else {
            return machine.find(Some(which)).map(|unit| Scope::Of(unit.path));
        };
        let buses = machine.table.buses();
        let is_there = match path {
            Path { target: Path::ANY_TARGET, .. } => buses.iter().any(|bus| bus.number == path.bus),
            _ => machine.table.units().any(|unit| path.covers(unit.path)),
        };
        if is_there {
            return Ok(Scope::Of(path));
        }
        let list = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(", ");
        let units = list(&mut machine.table.units().map(|unit| unit.path.to_string()));
        let buses = list(&mut buses.iter().map(|bus| bus.number.to_string()));
        let line = format!(
            "debug: there is nothing at `{which}`; there are the buses {buses} and the units \
             {units}"
        );
        Err(Failure::failed(line))
    }
}

/// `bus`, `bus:target` or `bus:target:lun`; a missing part means any.
fn path(text: &str) -> Option<Path> {
    let mut parts = text.split(':').map(|part| parse_number(part).ok());
    let bus = u32::try_from(parts.next()??).ok()?;
    let target = match parts.next() {
        Some(target) => u32::try_from(target?).ok()?,
        None => Path::ANY_TARGET,
    };
    let lun = match parts.next() {
        Some(lun) => lun?,
        None => Path::ANY_LUN,
    };
    parts.next().is_none().then_some(Path { bus, target, lun })
}

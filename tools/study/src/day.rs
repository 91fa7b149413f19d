//! A day of phone use: what sleeping saves.
//!
//! A phase is a burst of requests followed by a pause, repeated a number of times a day. Each is
//! run a few times on a device under the virtual clock, where pauses cost nothing, and weighted by
//! how often it happens; the rest of the day is a pause. The mix is an assumption, written down
//! here; the claims it is compared with (10 % less power at work, 35 % less over a day, 30 to 90
//! minutes of battery) were published without theirs.

use flysch_api::block::BlockDevice;
use flysch_api::machine::Clock;
use flysch_bench::jobfile::JobFile;
use flysch_bench::play::{Demand, PlayOptions};
use flysch_bench::results::Energy;
use flysch_emmc::Operation;
use flysch_rig::{Needs, Stack, Target, Visitor};
use serde::Serialize;

use crate::measure::{MeasureError, options};

/// One kind of activity of a phone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// How many times a day.
    pub times: u32,
    /// From the start of one burst to the next, seconds.
    pub every_s: f64,
    /// The job of a burst.
    pub job: &'static str,
}

/// The day.
pub const PHASES: [Phase; 8] = [
    Phase {
        name: "standby: mail, positions, logs",
        times: 960,
        every_s: 60.0,
        job: "rw=randrw rwmixread=60 bs=4k iodepth=4 size=1g number_ios=96 zero_buffers",
    },
    Phase {
        name: "messages, pages",
        times: 2700,
        every_s: 4.0,
        job: "rw=randrw rwmixread=75 bssplit=4k/70:16k/20:64k/10 iodepth=4 size=1g \
              number_ios=60 zero_buffers",
    },
    Phase {
        name: "programs started",
        times: 80,
        every_s: 20.0,
        job: "rw=randread bssplit=4k/60:32k/25:256k/15 iodepth=8 size=1g number_ios=1500",
    },
    Phase {
        name: "music and films, 1 MiB/s",
        times: 3600,
        every_s: 2.0,
        job: "rw=read bs=512k iodepth=2 size=1g number_ios=4",
    },
    Phase {
        name: "filming, 6 MiB/s",
        times: 600,
        every_s: 1.0,
        job: "rw=write bs=512k iodepth=2 size=1g number_ios=12 zero_buffers",
    },
    Phase {
        name: "photographs of 8 MiB",
        times: 40,
        every_s: 5.0,
        job: "rw=write bs=512k iodepth=4 size=1g number_ios=16 zero_buffers",
    },
    Phase {
        name: "programs updated, 200 MiB",
        times: 6,
        every_s: 60.0,
        job: "rw=write bs=512k iodepth=8 size=1g number_ios=400 zero_buffers",
    },
    Phase {
        name: "games loaded, half a GiB",
        times: 3,
        every_s: 30.0,
        job: "rw=randread bssplit=512k/25:4k/75 iodepth=8 size=1g number_ios=8000",
    },
];

/// Seconds in a day.
const DAY_S: f64 = 86_400.0;
/// Bursts run per phase.
const BURSTS: u32 = 3;

/// Devices, awake and sleeping: protocol, how it sleeps, target that stays awake, target that
/// sleeps.
pub const DEVICES: [(&str, &str, &str, &str); 6] = [
    (
        "UFS, galaxy-book-s",
        "auto-hibern8 after 5 ms",
        "ufs,profile=galaxy-book-s,clock=virtual",
        "ufs,profile=galaxy-book-s,auto-hibern8=5000,clock=virtual",
    ),
    (
        "UFS, ok3576",
        "auto-hibern8 after 5 ms",
        "ufs,profile=ok3576,clock=virtual",
        "ufs,profile=ok3576,auto-hibern8=5000,clock=virtual",
    ),
    (
        "eMMC, ok3576",
        "asleep (CMD5) between bursts",
        "emmc,profile=ok3576,clock=virtual",
        "emmc,profile=ok3576,clock=virtual",
    ),
    (
        "NVMe, pm991a",
        "APST as Linux sets it",
        "nvme,profile=pm991a,clock=virtual",
        "nvme,profile=pm991a,apst=on,clock=virtual",
    ),
    (
        "NVMe, 980pro",
        "APST as Linux sets it",
        "nvme,profile=980pro,clock=virtual",
        "nvme,profile=980pro,apst=on,clock=virtual",
    ),
    (
        "SATA, sata-ssd",
        "DevSleep",
        "ahci,profile=sata-ssd,clock=virtual",
        "ahci,profile=sata-ssd,link-power=devsleep,clock=virtual",
    ),
];

/// The energy of a phase over a day, joules.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The phase.
    pub name: &'static str,
    /// With the device awake.
    pub awake_joules: f64,
    /// With the device sleeping in pauses.
    pub asleep_joules: f64,
}

/// A device's day.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Day {
    /// The device.
    pub device: &'static str,
    /// How it sleeps.
    pub how: &'static str,
    /// By phase; the last is the rest of the day.
    pub parts: Vec<Part>,
    /// Mean power over the day without sleep, milliwatts.
    pub awake_milliwatts: f64,
    /// The same with sleep.
    pub asleep_milliwatts: f64,
    /// The target that sleeps.
    pub target: &'static str,
}

impl Day {
    /// The power saved by sleeping, percent.
    pub fn saved_percent(&self) -> f64 {
        (1.0 - self.asleep_milliwatts / self.awake_milliwatts) * 100.0
    }
}

/// Lets time pass.
struct Rest {
    nanos: u64,
}

impl Visitor for Rest {
    /// Whether the time has passed.
    type Output = bool;

    fn visit<D: BlockDevice, C: Clock>(self, lanes: &mut [D], clock: &C) -> bool {
        let until = clock.now().after_nanos(self.nanos);
        let mut stuck = 0;
        while clock.now() < until && stuck < STUCK {
            let before = clock.now();
            while lanes.iter_mut().any(|lane| lane.poll(clock.now()).is_some()) {}
            let at = lanes.iter().filter_map(BlockDevice::poll_at).min();
            clock.wait(Some(at.filter(|at| *at > before).map_or(until, |at| at.min(until))));
            stuck = if clock.now() == before { stuck + 1 } else { 0 };
        }
        clock.now() >= until
    }
}

/// How often a clock may stand still before the pause is given up as endless.
const STUCK: u32 = 1000;

fn rest(stack: &mut Stack, target: &str, nanos: u64) -> Result<(), MeasureError> {
    match stack.visit(Rest { nanos }) {
        true => Ok(()),
        false => Err(MeasureError::of(target, "its clock stands still during a pause")),
    }
}

/// Energy of one burst of `phase` and its pause on a target, joules.
fn run(target: &str, phase: &Phase, sleeps: bool) -> Result<f64, MeasureError> {
    let parsed: Target = target.parse().map_err(|error| MeasureError::of(target, error))?;
    let file = JobFile::of_options(phase.name, &options(phase.job));
    let file = file.map_err(|error| MeasureError::of(target, error))?;
    let needs = Needs::of(&parsed, &Demand::of(&file));
    let mut stack =
        Stack::open(&parsed, &needs).map_err(|error| MeasureError::of(target, error))?;
    let whole = (phase.every_s * 1e9) as u64;
    let before = stack.energy().unwrap_or_default();
    for _ in 0..BURSTS {
        let start = stack.energy().unwrap_or_default().nanos();
        let played = stack.play(&file, PlayOptions::default());
        played.map_err(|error| MeasureError::of(target, error))?;
        if sleeps {
            // Lets buffered data be programmed, as a host does before it goes to sleep.
            rest(&mut stack, target, 5_000_000)?;
            operate(&mut stack, target, Operation::Sleep)?;
        }
        let spent = stack.energy().unwrap_or_default().nanos() - start;
        rest(&mut stack, target, whole.saturating_sub(spent))?;
        if sleeps {
            operate(&mut stack, target, Operation::Awake)?;
        }
    }
    let energy = Energy::between(&before, &stack.energy().unwrap_or_default());
    Ok(energy.joules / f64::from(BURSTS))
}

fn operate(stack: &mut Stack, target: &str, operation: Operation) -> Result<(), MeasureError> {
    let Some(control) = stack.emmc() else { return Ok(()) };
    control.operate(operation).map(drop).map_err(|error| MeasureError::of(target, error))
}

/// Measures one device's day.
///
/// # Errors
/// What could not be measured.
pub fn of_device(
    (device, how, awake, asleep): (&'static str, &'static str, &'static str, &'static str),
) -> Result<Day, MeasureError> {
    let is_card = asleep.starts_with("emmc");
    let mut parts = Vec::new();
    let pause = Phase {
        name: "the rest of the day",
        times: 1,
        every_s: DAY_S - PHASES.iter().map(|p| f64::from(p.times) * p.every_s).sum::<f64>(),
        job: "rw=randread bs=4k size=1m number_ios=1",
    };
    for phase in PHASES.iter().chain([&pause]) {
        let times = f64::from(phase.times);
        let awake_joules = run(awake, phase, false)? * times;
        let asleep_joules = run(asleep, phase, is_card)? * times;
        parts.push(Part { name: phase.name, awake_joules, asleep_joules });
    }
    let watts = |of: fn(&Part) -> f64| parts.iter().map(of).sum::<f64>() / DAY_S * 1e3;
    let awake_milliwatts = watts(|part| part.awake_joules);
    let asleep_milliwatts = watts(|part| part.asleep_joules);
    Ok(Day { device, how, parts, awake_milliwatts, asleep_milliwatts, target: asleep })
}

/// A tablet's battery: watt-hours, and minutes it lasts; both assumed.
pub const TABLET: (f64, f64) = (30.0, 600.0);

/// Minutes of a tablet's battery that a device with the day `less` saves over one with `more`.
pub fn minutes(more: &Day, less: &Day) -> f64 {
    let (watt_hours, minutes) = TABLET;
    let mean = watt_hours / (minutes / 60.0);
    minutes * (more.asleep_milliwatts - less.asleep_milliwatts) / 1e3 / mean
}

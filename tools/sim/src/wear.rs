//! A chip written until it is worn out: is its wear even, and what happens at the end?
//!
//! A volume fills the device. Most of it is written only once, some of it occasionally, a little
//! all the time; the content of each LEB is known and is compared at every attach and at the end.
//! Power fails occasionally between two writes. Time is the chip's own.

use flysch_api::flash::FlashError;
use flysch_api::flash::FlashMut;
use flysch_api::volume::{Volume, VolumeMut};
use flysch_models::nand::{Config, NandChip, Profile};
use flysch_models::random::Random;
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, Statistics, UbiDevice};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Determines everything.
    pub seed: u64,
    /// Number of blocks of the chip.
    pub blocks: u32,
    /// Number of erases that every block withstands; the best withstand twice as many.
    pub endurance: u32,
    /// Difference of erase counters at which LEBs are moved.
    pub threshold: u32,
    /// Time between changes, nanoseconds, unless the chip needs longer.
    pub interval_ns: u64,
    /// Number of blocks that are bad from the start.
    pub factory_bad: u32,
    /// Number of changes between two power losses.
    pub changes_per_life: u64,
    /// Number of changes after which the run is stopped.
    pub changes_max: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            seed: 1,
            blocks: 1000,
            endurance: 4500,
            threshold: 256,
            interval_ns: 20_000_000,
            factory_bad: 5,
            changes_per_life: 200_000,
            changes_max: u64::MAX,
        }
    }
}

/// The results.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Elapsed time, nanoseconds.
    pub time_ns: u64,
    /// Time in which the chip was busy, nanoseconds.
    pub busy_ns: u64,
    /// Number of LEBs changed.
    pub changes: u64,
    /// The operations of UBI.
    pub statistics: Statistics,
    /// Number of power losses.
    pub power_losses: u64,
    /// Maximum difference of the erase counters of good blocks.
    pub widest: u32,
    /// Minimum and maximum number of erases of the good blocks at the end.
    pub erases: (u32, u32),
    /// Time of the first block that went bad, nanoseconds.
    pub first_bad_ns: Option<u64>,
    /// Number of bad blocks at the end.
    pub bad: u32,
    /// Number of LEBs compared.
    pub compared: u64,
    /// Why the device accepts no more changes at the end.
    pub end: Option<FlashError>,
}

/// The device and its expected contents.
struct World {
    plan: Plan,
    random: Random,
    report: Report,
    /// The seed that each LEB was last filled from.
    seeds: Vec<u64>,
    page: usize,
    data: Vec<u8>,
    waited_ns: u64,
}

/// Writes a chip until it is worn out.
///
/// # Errors
/// What should not have happened, in words.
pub fn run(plan: &Plan) -> Result<Report, String> {
    let chip = NandChip::new(profile(plan), config(plan));
    let device = UbiDevice::format(chip, &FormatOptions::new(plan.seed as u32 | 1), &options(plan));
    let mut device = device.map_err(|error| format!("format: {error}"))?;
    let lebs = device.account().available;
    let new = NewVolume::dynamic(b"all", lebs);
    let id = device.create(&new).map_err(|error| format!("create: {error}"))?;
    let mut world = World {
        plan: plan.clone(),
        random: Random::new(plan.seed),
        report: Report::default(),
        seeds: vec![0; lebs as usize],
        page: device.write_size() as usize,
        data: vec![0; device.leb_size() as usize],
        waited_ns: 0,
    };
    for lnum in 0..lebs {
        world.change(&mut device, id, lnum).map_err(|error| format!("LEB {lnum}: {error}"))?;
    }
    while world.live(&mut device, id)? {
        let before = device.statistics();
        world.total(before);
        let chip = device.into_flash();
        world.report.power_losses += 1;
        device =
            UbiDevice::attach(chip, &options(plan)).map_err(|error| format!("attach: {error}"))?;
        world.compare(&mut device, id)?;
    }
    let before = device.statistics();
    world.total(before);
    world.finish(device, id)
}

fn profile(plan: &Plan) -> Profile {
    // 16 pages instead of 64 save time on this computer; only the erases matter.
    let profile = Profile::named("MT29F2G08ABAEA").expect("it is in the list");
    let profile = profile.with_blocks(plan.blocks).with_pages_per_block(16);
    Profile { endurance: plan.endurance, ..profile }
}

fn config(plan: &Plan) -> Config {
    let Plan { seed, factory_bad, .. } = *plan;
    Config { seed, factory_bad, wears: true, corrects: true, ..Config::default() }
}

fn options(plan: &Plan) -> DeviceOptions {
    DeviceOptions { wear_threshold: plan.threshold, ..DeviceOptions::default() }
}

impl World {
    /// Writes until power fails (`true`) or the device accepts no more changes (`false`).
    fn live(&mut self, device: &mut UbiDevice<NandChip>, id: u32) -> Result<bool, String> {
        for _ in 0..self.plan.changes_per_life {
            if self.report.changes >= self.plan.changes_max {
                return Ok(false);
            }
            let lnum = self.choose();
            let begun = device.flash().busy_ns();
            if let Err(error) = self.change(device, id, lnum) {
                return match device.read_only() {
                    Some(_) => Ok(false),
                    None => Err(format!("LEB {lnum}: {error}, and the device is not read-only")),
                };
            }
            let rest = (begun + self.plan.interval_ns).saturating_sub(device.flash().busy_ns());
            device.flash_mut().wait(rest);
            self.waited_ns += rest;
            self.watch(device);
        }
        Ok(true)
    }

    /// A hundredth of the LEBs gets nine in ten changes, a tenth gets the rest.
    fn choose(&mut self) -> u32 {
        let lebs = self.seeds.len() as u64;
        let hot = (lebs / 100).max(1);
        let among = if self.random.below(10) < 9 { hot } else { (lebs / 10).max(2) };
        self.random.below(among) as u32
    }

    fn fill(data: &mut [u8], seed: u64) {
        let mut random = Random::new(seed);
        for chunk in data.chunks_mut(8) {
            chunk.copy_from_slice(&random.bits().to_le_bytes()[..chunk.len()]);
        }
    }

    fn change<F: FlashMut>(
        &mut self,
        device: &mut UbiDevice<F>,
        id: u32,
        lnum: u32,
    ) -> Result<(), String> {
        let seed = self.random.bits();
        let pages = 1 + (seed >> 60) as usize % (self.data.len() / self.page);
        let data = &mut self.data[..pages * self.page];
        Self::fill(data, seed);
        let mut volume = device.volume_mut(id).map_err(|error| error.to_string())?;
        volume.change(lnum, data).map_err(|error| error.to_string())?;
        self.seeds[lnum as usize] = seed;
        self.report.changes += 1;
        Ok(())
    }

    /// Checks the erase counters occasionally.
    fn watch(&mut self, device: &UbiDevice<NandChip>) {
        if device.account().bad > self.plan.factory_bad && self.report.first_bad_ns.is_none() {
            self.report.first_bad_ns = Some(device.flash().busy_ns() + self.waited_ns);
        }
        if self.report.changes.is_multiple_of(1000) {
            self.spread(device);
        }
    }

    fn spread<F: FlashMut>(&mut self, device: &UbiDevice<F>) {
        let (least, most) = device
            .erase_counters()
            .flatten()
            .fold((u32::MAX, 0), |(least, most), counter| (least.min(counter), most.max(counter)));
        self.report.erases = (least, most);
        self.report.widest = self.report.widest.max(most.saturating_sub(least));
    }

    fn compare<F: FlashMut>(&mut self, device: &mut UbiDevice<F>, id: u32) -> Result<(), String> {
        let mut found = vec![0; self.data.len()];
        let volume = device.volume_mut(id).map_err(|error| error.to_string())?;
        for (lnum, &seed) in (0..).zip(&self.seeds) {
            let pages = 1 + (seed >> 60) as usize % (self.data.len() / self.page);
            let (data, rest) = self.data.split_at_mut(pages * self.page);
            Self::fill(data, seed);
            rest.fill(0xff);
            let read = volume.read(lnum, 0, &mut found);
            let _ = read.map_err(|error| format!("LEB {lnum}: {error}"))?;
            if found != self.data {
                return Err(format!("LEB {lnum} is not what was written"));
            }
            self.report.compared += 1;
        }
        Ok(())
    }

    fn total(&mut self, one: Statistics) {
        let all = &mut self.report.statistics;
        all.erases += one.erases;
        all.tortures += one.tortures;
        all.gone_bad += one.gone_bad;
        all.moves += one.moves;
        all.scrubs += one.scrubs;
        all.recovered_writes += one.recovered_writes;
    }

    /// The end: read-only, everything present, and still present after the next attach.
    fn finish(mut self, mut device: UbiDevice<NandChip>, id: u32) -> Result<Report, String> {
        self.spread(&device);
        self.report.end = device.read_only();
        self.report.bad = device.account().bad;
        self.report.busy_ns = device.flash().busy_ns();
        self.report.time_ns = self.report.busy_ns + self.waited_ns;
        self.compare(&mut device, id)?;
        if self.report.end.is_some() {
            let operations = device.flash().power().operations();
            let refused = device.volume_mut(id).is_ok_and(|mut v| v.unmap(0).is_err());
            let none_done = device.flash().power().operations() == operations;
            if !refused || !none_done || device.work(1).is_ok() {
                return Err("a read-only device was changed".into());
            }
        }
        let chip = device.into_flash();
        if let Some(violation) = chip.violations().first() {
            return Err(format!("the chip was used against its rules: {violation:?}"));
        }
        let plan = self.plan.clone();
        let mut device = UbiDevice::attach(chip, &options(&plan))
            .map_err(|error| format!("attach at the end: {error}"))?;
        self.compare(&mut device, id)?;
        Ok(self.report)
    }
}

//! The workloads that are cut, by name.

use std::cell::Cell;
use std::rc::Rc;

use flysch_api::flash::Flash as _;
use flysch_jffs2::WriteOptions;
use flysch_ubi::DeviceOptions;
use flysch_wire::jffs2::ByteOrder;
use flysch_wire::ubifs::Compression;

use super::chip::Chip;
use super::files::{self, FileScenario};
use super::setting::{Gear, Part, Setting, User};
use super::stacks::{Jffs2Stack, Jffs2UbiStack, UbifsStack};
use super::ubi::{Step, UbiScenario};
use super::{Plan, Report, explore, steps};

/// Number of LEBs of a UBIFS, if the chip has that many.
const UBIFS_LEBS: u32 = 40;
/// Number of blocks of its chip.
const UBIFS_BLOCKS: u32 = 52;
/// Number of blocks of a chip with JFFS2.
const JFFS2_BLOCKS: u32 = 24;

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// A description.
    pub about: &'static str,
    /// Whether cuts within cuts are worth the time.
    pub is_small: bool,
    kind: Kind,
}

/// Steps on files, made from a seed and the capacity of the flash in KiB.
type Files = fn(u64, u64) -> Vec<files::Step>;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Ubi { blocks: u32, before: fn() -> Vec<Step>, steps: fn() -> Vec<Step>, how: Device },
    Ubifs { compression: Compression, before: Files, steps: Files },
    Jffs2 { before: Files, steps: Files },
    Jffs2Ubi { before: Files, steps: Files },
}

/// The device that a workload requires.
#[derive(Clone, Copy, Debug)]
struct Device {
    /// The mode, unless another one is chosen.
    gear: Gear,
    /// Difference of erase counters at which LEBs are moved.
    wear_threshold: u32,
    /// It needs leaking cells; its figures hold for one chip only, a new one.
    ages: bool,
}

const PLAIN: Device = Device { gear: Gear::Plain, wear_threshold: 4096, ages: false };

const fn small(
    name: &'static str,
    about: &'static str,
    before: fn() -> Vec<Step>,
    steps: fn() -> Vec<Step>,
) -> Workload {
    let kind = Kind::Ubi { blocks: 32, before, steps, how: PLAIN };
    Workload { name, about, is_small: true, kind }
}

const fn device(
    (name, about): (&'static str, &'static str),
    is_small: bool,
    (blocks, how): (u32, Device),
    before: fn() -> Vec<Step>,
    steps: fn() -> Vec<Step>,
) -> Workload {
    Workload { name, about, is_small, kind: Kind::Ubi { blocks, before, steps, how } }
}

const fn ubifs(
    name: &'static str,
    about: &'static str,
    is_small: bool,
    (before, steps): (Files, Files),
) -> Workload {
    let kind = Kind::Ubifs { compression: Compression::None, before, steps };
    Workload { name, about, is_small, kind }
}

const fn compressed(mut workload: Workload, with: Compression) -> Workload {
    if let Kind::Ubifs { before, steps, .. } = workload.kind {
        workload.kind = Kind::Ubifs { compression: with, before, steps };
    }
    workload
}

const fn jffs2(
    name: &'static str,
    about: &'static str,
    is_small: bool,
    (before, steps): (Files, Files),
) -> Workload {
    Workload { name, about, is_small, kind: Kind::Jffs2 { before, steps } }
}

const FASTMAP: Device = Device { gear: Gear::Fastmap, ..PLAIN };
const MOVING: Device = Device { wear_threshold: 2, ..PLAIN };

/// All of them.
pub const WORKLOADS: [Workload; 22] = [
    small(
        "ubi-write",
        "LEBs written, given up, mapped and written again",
        steps::volume,
        steps::write_all,
    ),
    small("ubi-change", "LEBs changed atomically", steps::volume, steps::change_all),
    small(
        "ubi-volumes",
        "volumes made, resized, renamed, replaced and removed",
        steps::volume,
        steps::volumes,
    ),
    small(
        "ubi-update",
        "a dynamic and a static volume updated",
        steps::two_volumes,
        steps::update_all,
    ),
    device(
        ("ubi-wear", "wear-levelling moves of cold LEBs"),
        false,
        (32, MOVING),
        steps::cold,
        steps::hot,
    ),
    device(
        ("ubi-scrub", "LEBs of an old chip with bit errors moved before they are lost"),
        true,
        (32, Device { ages: true, ..PLAIN }),
        steps::old,
        steps::scrub,
    ),
    device(
        ("ubi-failures", "programs and erases that fail: recovered writes, torture, bad blocks"),
        false,
        (32, Device { gear: Gear::Failing, ..PLAIN }),
        steps::volume,
        steps::failures,
    ),
    device(
        ("ubi-fastmap", "fastmaps written, believed and made void"),
        true,
        (32, FASTMAP),
        steps::volume,
        steps::fastmap,
    ),
    device(
        (
            "ubi-fastmap-long",
            "pools emptied and filled again and again, cold LEBs moved, volumes changed",
        ),
        false,
        (48, Device { gear: Gear::Fastmap, ..MOVING }),
        steps::cold,
        steps::refills,
    ),
    compressed(
        ubifs(
            "ubifs",
            "files on UBIFS: made, written, moved, removed, with attributes",
            true,
            (steps::nothing, steps::basic),
        ),
        Compression::Lzo,
    ),
    compressed(
        ubifs(
            "ubifs-edit",
            "names exchanged, attributes replaced, files cut and grown across blocks, or open",
            true,
            (steps::nothing, steps::edit),
        ),
        Compression::Zlib,
    ),
    compressed(
        ubifs(
            "ubifs-random",
            "random changes on UBIFS",
            false,
            (steps::nothing, |seed, _| steps::random(seed, 150, true)),
        ),
        Compression::Lzo,
    ),
    ubifs(
        "ubifs-overwrite",
        "files rewritten from the beginning, some synced, then closed",
        false,
        (steps::nothing, steps::overwrite),
    ),
    ubifs(
        "ubifs-commit",
        "many small changes on UBIFS: commits",
        false,
        (steps::nothing, steps::many),
    ),
    ubifs(
        "ubifs-full",
        "a full UBIFS: garbage collection",
        false,
        (|_, kib| steps::fill(kib * 4 / 5), |seed, kib| steps::full(seed, 40, kib * 4 / 5)),
    ),
    jffs2("jffs2", "files on JFFS2", true, (steps::nothing, steps::basic)),
    jffs2(
        "jffs2-edit",
        "attributes replaced, files cut and grown across pages, open files removed",
        true,
        (steps::nothing, steps::edit),
    ),
    jffs2(
        "jffs2-random",
        "random changes on JFFS2",
        false,
        (steps::nothing, |seed, _| steps::random(seed, 300, false)),
    ),
    jffs2(
        "jffs2-overwrite",
        "files rewritten from the beginning, some synced",
        false,
        (steps::nothing, steps::overwrite),
    ),
    jffs2(
        "jffs2-full",
        "a full JFFS2: garbage collection",
        false,
        (|_, kib| steps::fill(kib * 9 / 10), |seed, kib| steps::full(seed, 120, kib * 9 / 10)),
    ),
    Workload {
        name: "jffs2-ubi",
        about: "files on JFFS2 in a UBI volume",
        is_small: true,
        kind: Kind::Jffs2Ubi { before: steps::nothing, steps: steps::basic },
    },
    Workload {
        name: "jffs2-ubi-random",
        about: "random changes on JFFS2 in a UBI volume",
        is_small: false,
        kind: Kind::Jffs2Ubi {
            before: steps::nothing,
            steps: |seed, _| steps::random(seed, 300, false),
        },
    },
];

impl Workload {
    /// The workload with that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }

    /// Whether it can be run in this setting.
    pub fn fits(&self, setting: &Setting) -> bool {
        let possible = setting.is_possible();
        match self.kind {
            Kind::Ubi { how, .. } => {
                possible && setting.user != User::Several && (!how.ages || setting.is_new_die())
            }
            Kind::Ubifs { .. } => possible,
            Kind::Jffs2Ubi { .. } => possible && setting.user != User::Several,
            Kind::Jffs2 { .. } => {
                possible && setting.user != User::Several && !setting.has_fastmap()
            }
        }
    }

    /// The default settings: on three flash chips if possible.
    pub fn usual(&self) -> impl Iterator<Item = Setting> {
        let gear = if let Kind::Ubi { how, .. } = self.kind { how.gear } else { Gear::Plain };
        let parts = [Part::Die4, Part::Bch4, Part::Nor].into_iter();
        parts
            .map(move |part| Setting { part, gear, ..Setting::default() })
            .filter(|setting| self.fits(setting))
    }

    /// Runs it in `setting` with cuts as planned.
    ///
    /// # Errors
    /// If it fails without a cut.
    pub fn run(&self, setting: &Setting, plan: &Plan) -> Result<Report, String> {
        let mut plan = Plan { seed: setting.seed, ..plan.clone() };
        if setting.is_failing() {
            plan.failing = steps::failing(setting.seed);
        }
        let options = DeviceOptions {
            fastmap: setting.has_fastmap(),
            // Chips are small; each failure may cost a block.
            bad_per_1024: if setting.is_failing() { 250 } else { 80 },
            ..DeviceOptions::default()
        };
        let (user, seed, fails) = (setting.user, setting.seed, setting.is_failing());
        match self.kind {
            Kind::Ubi { blocks, before, steps, how } => {
                let options = DeviceOptions { wear_threshold: how.wear_threshold, ..options };
                let scenario = UbiScenario {
                    chip: setting.chip(blocks, how.ages),
                    options,
                    before: before(),
                    steps: steps(),
                    user,
                    seed,
                    attached: Cell::default(),
                    scrubs: Cell::default(),
                };
                explore(&Rc::new(scenario), &plan)
            }
            Kind::Ubifs { compression, before, steps } => {
                let chip = setting.chip(UBIFS_BLOCKS, false);
                let kib = capacity(&chip, UBIFS_LEBS);
                let lebs = UBIFS_LEBS;
                let stack = UbifsStack { chip, lebs, compression, journal: None, options, user };
                let (before, steps) = (before(seed, kib), steps(seed, kib));
                explore(&Rc::new(FileScenario { stack, before, steps, user, seed, fails }), &plan)
            }
            Kind::Jffs2Ubi { before, steps } => {
                let chip = setting.chip(UBIFS_BLOCKS, false);
                let (kib, lebs) = (capacity(&chip, JFFS2_BLOCKS), JFFS2_BLOCKS);
                let order = Some(ByteOrder::Little);
                let (before, steps) = (before(seed, kib), steps(seed, kib));
                let (device, options) = (options, WriteOptions { order, ..Default::default() });
                let stack = Jffs2UbiStack { chip, lebs, options, device, user };
                explore(&Rc::new(FileScenario { stack, before, steps, user, seed, fails }), &plan)
            }
            Kind::Jffs2 { before, steps } => {
                let chip = setting.chip(JFFS2_BLOCKS, false);
                let kib = capacity(&chip, JFFS2_BLOCKS);
                let big = setting.part == Part::Nor;
                let order = if big { ByteOrder::Big } else { ByteOrder::Little };
                let options = WriteOptions { order: Some(order), ..WriteOptions::default() };
                let (before, steps) = (before(seed, kib), steps(seed, kib));
                let stack = Jffs2Stack { chip, options };
                explore(&Rc::new(FileScenario { stack, before, steps, user, seed, fails }), &plan)
            }
        }
    }
}

/// KiB that this many blocks hold, less two pages of each for headers.
fn capacity(chip: &Chip, blocks: u32) -> u64 {
    let geometry = chip.geometry();
    let leb = geometry.erase_size - 2 * geometry.write_size;
    u64::from(blocks * (leb >> 10))
}

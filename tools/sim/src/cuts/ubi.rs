//! UBI under power cuts: volumes and their LEBs, and what is known of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use flysch_api::finding::{Finding, Severity};
use flysch_api::flash::Flash;
use flysch_api::volume::{Volume, VolumeMut};
use flysch_ubi::{Content, DeviceOptions, FormatOptions, NewVolume, Ubi, UbiDevice, VolumeInfo};
use flysch_wire::ubi::VolumeKind;

use super::Scenario;
use super::chip::Chip;
use super::mistakes::Mistake;
use super::probe::Probe;
use super::setting::User;

/// A year, nanoseconds.
const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// One step of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each variant says what its fields are")]
pub enum Step {
    /// Writes `units` write units at unit `at` of a LEB.
    Write { volume: u32, lnum: u32, at: u32, units: u32 },
    /// Replaces a LEB by this many units.
    Change { volume: u32, lnum: u32, units: u32 },
    /// Unmaps a LEB.
    Unmap { volume: u32, lnum: u32 },
    /// Maps a LEB to an empty block.
    Map { volume: u32, lnum: u32 },
    /// Makes everything durable.
    Sync,
    /// Does this many pieces of background work.
    Work(u32),
    /// Creates a volume of this many LEBs.
    Create { name: &'static str, lebs: u32, is_static: bool },
    /// Removes a volume.
    Remove { volume: u32 },
    /// Resizes a volume.
    Resize { volume: u32, lebs: u32 },
    /// Renames volumes, all at once.
    Rename(&'static [(u32, &'static str)]),
    /// Replaces all content of a volume by this many bytes.
    Update { volume: u32, bytes: u32 },
    /// Detaches and attaches again.
    Reattach,
    /// Does nothing for this many years.
    Wait(u32),
    /// Reads every LEB of a volume: finds what is about to fade.
    Read { volume: u32 },
}

/// The content of a LEB, and what it may contain after a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Leb {
    /// Content without trailing 0xFF bytes.
    now: Vec<u8>,
    /// Content that was unmapped and may come back.
    older: Option<Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    name: String,
    kind: VolumeKind,
    lebs: BTreeMap<u32, Leb>,
    size: u32,
    /// Whether an update was started: the content is void.
    is_void: bool,
}

/// What is known of a device.
#[derive(Clone, Debug, Default)]
pub struct Knowledge {
    volumes: BTreeMap<u32, Known>,
    /// The state that the current step leads to.
    next: Option<BTreeMap<u32, Known>>,
    /// The current step.
    step: Option<Step>,
    /// Its number.
    number: usize,
}

/// A workload on UBI volumes.
pub struct UbiScenario {
    /// The chip.
    pub chip: Chip,
    /// The options of the device.
    pub options: DeviceOptions,
    /// Steps before the first cut.
    pub before: Vec<Step>,
    /// Steps in which cuts are made.
    pub steps: Vec<Step>,
    /// The user.
    pub user: User,
    /// Determines everything else.
    pub seed: u64,
    /// With a fastmap: attaches after a cut that used it instead of a scan, and those that did not.
    pub attached: Cell<(u64, u64)>,
    /// Number of LEBs moved because of bit errors, in a run without problems.
    pub scrubs: Cell<u64>,
}

impl std::fmt::Debug for UbiScenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UbiScenario").field("steps", &self.steps).finish_non_exhaustive()
    }
}

pub(super) type Attached = UbiDevice<Probe>;

/// `units` units of content, different for every step.
fn content(seed: usize, units: u32, unit: u32) -> Vec<u8> {
    let mut random = flysch_models::random::Random::new(seed as u64);
    (0..units * unit).map(|_| random.bits() as u8).collect()
}

/// Size of a unit of content in bytes: a write unit, at least 256 bytes.
fn unit_of(device: &Attached) -> u32 {
    device.write_size().max(256)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Known {
    fn leb(&mut self, lnum: u32) -> &mut Leb {
        self.lebs.entry(lnum).or_default()
    }

    /// Replaces all of its content.
    fn update(&mut self, all: &[u8], (unit, leb_size): (usize, usize)) {
        let lebs = all.chunks(leb_size).map(|part| {
            let mut now = part.to_vec();
            if self.kind == VolumeKind::Dynamic {
                now.resize(part.len().next_multiple_of(unit).min(leb_size), 0xFF);
            }
            Leb { now, older: None }
        });
        self.lebs = (0..).zip(lebs).collect();
        self.is_void = false;
    }
}

/// Applies `step` to `volumes`.
fn apply(
    volumes: &BTreeMap<u32, Known>,
    (number, step): (usize, &Step),
    (unit, leb_size): (u32, u32),
    user: User,
) -> BTreeMap<u32, Known> {
    let mut after = volumes.clone();
    match *step {
        Step::Write { volume, lnum, at, units } => {
            let leb = after.get_mut(&volume).expect("made before").leb(lnum);
            leb.now.resize((at * unit) as usize, 0xFF);
            leb.now.extend(content(number, units, unit));
            leb.older = None;
        }
        Step::Change { volume, lnum, units } => {
            let leb = after.get_mut(&volume).expect("made before").leb(lnum);
            *leb = Leb { now: content(number, units, unit), older: None };
        }
        Step::Unmap { volume, lnum } => {
            let leb = after.get_mut(&volume).expect("made before").leb(lnum);
            let old = std::mem::take(&mut leb.now);
            leb.older = leb.older.take().or(Some(old)).filter(|old| !old.is_empty());
        }
        Step::Map { volume, lnum } => {
            after.get_mut(&volume).expect("made before").leb(lnum).older = None;
        }
        // If dropped without detaching, a device may leave what was unmapped.
        Step::Reattach if user == User::Bare => {}
        Step::Sync | Step::Reattach => settle(&mut after),
        Step::Work(_) | Step::Wait(_) | Step::Read { .. } => {}
        Step::Create { name, lebs, is_static } => {
            settle(&mut after);
            let id = (0..).find(|id| !after.contains_key(id)).expect("there are numbers");
            let kind = if is_static { VolumeKind::Static } else { VolumeKind::Dynamic };
            let (name, lebs, size) = (name.to_string(), BTreeMap::new(), lebs);
            after.insert(id, Known { name, kind, lebs, size, is_void: false });
        }
        Step::Remove { volume } => {
            after.remove(&volume);
        }
        Step::Resize { volume, lebs } => {
            let known = after.get_mut(&volume).expect("made before");
            known.size = lebs;
            known.lebs.retain(|lnum, _| *lnum < lebs);
        }
        Step::Rename(names) => {
            for (id, name) in names {
                after.retain(|other, known| {
                    known.name != *name || names.iter().any(|(renamed, _)| renamed == other)
                });
                after.get_mut(id).expect("made before").name = (*name).to_string();
            }
        }
        Step::Update { volume, bytes } => {
            settle(&mut after);
            let known = after.get_mut(&volume).expect("made before");
            known.update(&content(number, 1, bytes), (unit as usize, leb_size as usize));
        }
    }
    after
}

/// Unmapped content is gone.
fn settle(volumes: &mut BTreeMap<u32, Known>) {
    let lebs = volumes.values_mut().flat_map(|known| known.lebs.values_mut());
    lebs.for_each(|leb| leb.older = None);
}

fn perform(
    device: &mut Attached,
    (number, step): (usize, &Step),
    skip_sync: bool,
) -> Result<(), String> {
    let unit = unit_of(device);
    match *step {
        Step::Write { volume, lnum, at, units } => {
            let data = content(number, units, unit);
            device.volume_mut(volume).map_err(text)?.write(lnum, at * unit, &data).map_err(text)
        }
        Step::Change { volume, lnum, units } => {
            let data = content(number, units, unit);
            device.volume_mut(volume).map_err(text)?.change(lnum, &data).map_err(text)
        }
        Step::Unmap { volume, lnum } => {
            device.volume_mut(volume).map_err(text)?.unmap(lnum).map_err(text)
        }
        Step::Map { volume, lnum } => {
            device.volume_mut(volume).map_err(text)?.map(lnum).map_err(text)
        }
        Step::Sync if skip_sync => Ok(()),
        Step::Sync => device.sync().map_err(text),
        Step::Work(budget) => device.work(budget).map(drop).map_err(text),
        Step::Create { name, lebs, is_static } => {
            let name = name.as_bytes();
            let new = if is_static {
                NewVolume::fixed(name, lebs)
            } else {
                NewVolume::dynamic(name, lebs)
            };
            device.create(&new).map(drop).map_err(text)
        }
        Step::Remove { volume } => device.remove(volume).map_err(text),
        Step::Resize { volume, lebs } => device.resize(volume, lebs).map_err(text),
        Step::Rename(names) => {
            let names: Vec<(u32, &[u8])> =
                names.iter().map(|(id, n)| (*id, n.as_bytes())).collect();
            device.rename(&names).map_err(text)
        }
        Step::Update { volume, bytes } => {
            let data = content(number, 1, bytes);
            let mut update = device.update(volume, u64::from(bytes)).map_err(text)?;
            for part in data.chunks(10_000) {
                update.write(part).map_err(text)?;
            }
            update.finish().map_err(text)
        }
        Step::Read { volume } => {
            let found = device.volumes().find(|info| info.id == volume);
            let info = found.ok_or("there is no such volume")?;
            for lnum in 0..info.reserved_pebs {
                if read_leb(device, volume, lnum, info.leb_size).contains(&None) {
                    return Err(format!("LEB {lnum} cannot be read"));
                }
            }
            Ok(())
        }
        Step::Reattach | Step::Wait(_) => Ok(()),
    }
}

impl UbiScenario {
    fn attach(&self, flash: &Probe) -> Result<Attached, String> {
        UbiDevice::attach(flash.clone(), &self.options).map_err(|e| format!("attaching: {e}"))
    }

    /// Attaches copies of what a cut left, by its fastmap and by a scan, and compares them.
    fn agree(&self, flash: &Probe, knowledge: &Knowledge) -> Result<(), String> {
        let (fast, slow) = self.attached.get();
        let copies = [(); 2].map(|()| Probe::new(flash.fork(), None, None));
        let options = DeviceOptions { fastmap: false, ..self.options };
        let mut one = self.attach(&copies[0])?;
        if !one.attached_by_fastmap() {
            self.attached.set((fast, slow + 1));
            return Ok(());
        }
        self.attached.set((fast + 1, slow));
        let other = UbiDevice::attach(copies[1].clone(), &options);
        let mut other = other.map_err(|e| format!("attaching by a scan: {e}"))?;
        compare(&mut one, knowledge).map_err(|e| format!("by fastmap: {e}"))?;
        compare(&mut other, knowledge).map_err(|e| format!("by a scan: {e}"))?;
        // Repairs made by the two attaches go to different blocks.
        let operations = flash.with(Chip::operations);
        let is_untouched = copies.iter().all(|copy| copy.with(Chip::operations) == operations);
        if is_untouched { agree_in_detail(&one, &other, flash) } else { Ok(()) }
    }

    fn work(
        &self,
        flash: &Probe,
        knowledge: &Rc<RefCell<Knowledge>>,
        steps: &[Step],
    ) -> Result<(), String> {
        let skip_sync = flash.mistake() == Some(Mistake::SkippedSync);
        let mut device = self.attach(flash)?;
        for step in steps {
            let number = {
                let mut known = knowledge.borrow_mut();
                let shape = (unit_of(&device), device.leb_size());
                known.number += 1;
                let number = known.number;
                known.next = Some(apply(&known.volumes, (number, step), shape, self.user));
                known.step = Some(step.clone());
                number
            };
            let failed = |problem: String| format!("step {number}, {step:?}: {problem}");
            if *step == Step::Reattach {
                match self.user {
                    User::Bare => drop(device),
                    _ => drop(device.detach().map_err(text).map_err(failed)?),
                }
                device = self.attach(flash)?;
            } else {
                perform(&mut device, (number, step), skip_sync).map_err(failed)?;
            }
            if let Step::Wait(years) = step {
                flash.wait(u64::from(*years) * YEAR_NS);
            }
            let mut known = knowledge.borrow_mut();
            known.volumes = known.next.take().expect("put there above");
            known.step = None;
        }
        self.scrubs.set(device.statistics().scrubs);
        Ok(())
    }
}

impl Scenario for UbiScenario {
    type Knowledge = Knowledge;

    fn begin(&self) -> Result<(Chip, Knowledge), String> {
        let flash = Probe::new(self.chip.clone(), None, None);
        UbiDevice::format(flash.clone(), &FormatOptions::new(0x1234), &self.options)
            .map_err(text)?;
        let knowledge = Rc::new(RefCell::new(Knowledge::default()));
        self.work(&flash, &knowledge, &self.before)?;
        let knowledge = knowledge.borrow().clone();
        Ok((flash.fork(), knowledge))
    }

    fn run(&self, flash: Probe, knowledge: &Rc<RefCell<Knowledge>>) -> Result<(), String> {
        self.work(&flash, knowledge, &self.steps)?;
        let mut device = self.attach(&flash)?;
        compare(&mut device, &knowledge.borrow())?;
        rules(&flash)
    }

    fn remark(&self, _: &Knowledge) -> String {
        match self.attached.get() {
            (0, 0) if self.scrubs.get() == 0 => String::new(),
            (0, 0) => format!("{} LEBs scrubbed", self.scrubs.get()),
            (fast, slow) => format!("{fast} of {} attaches by fastmap", fast + slow),
        }
    }

    fn recover(&self, flash: Probe, knowledge: &Knowledge) -> Result<(), String> {
        if self.options.fastmap {
            self.agree(&flash, knowledge)?;
        }
        if self.user == User::Hasty {
            flash.break_off(self.seed, || drop(self.attach(&flash)));
        }
        let mut device = self.attach(&flash)?;
        compare(&mut device, knowledge)?;
        let first = snapshot(&mut device, knowledge);
        // Blocks with half a header are moved, not erased: that is work.
        if self.user != User::Bare {
            background(&mut device)?;
        }
        device.sync().map_err(|e| format!("the first sync: {e}"))?;
        let found = snapshot(&mut device, knowledge);
        if let Some(place) = differs(&first, &found) {
            return Err(format!("what was read after the cut is not read after a sync: {place}"));
        }
        drop(device);
        check(&flash)?;
        flash.disarm();
        let mut device = self.attach(&flash)?;
        let again = snapshot(&mut device, knowledge);
        if let Some(place) = differs(&found, &again) {
            return Err(format!("what was read after a sync is not read after an attach: {place}"));
        }
        go_on(&mut device)?;
        drop(device);
        check(&flash)?;
        rules(&flash)
    }
}

/// Works until there is no more work, within limits: on old chips the last scrub may never come.
pub(super) fn background(device: &mut Attached) -> Result<(), String> {
    for _ in 0..64 {
        if !device.work(8).map_err(|e| format!("work of UBI: {e}"))? {
            break;
        }
    }
    Ok(())
}

/// Every LEB must be in the same block, with equal erase counts and equally many bad blocks.
fn agree_in_detail(one: &Attached, other: &Attached, flash: &Probe) -> Result<(), String> {
    // A block that was being marked bad when power failed is noticed when it is erased.
    let doubtful = one.account().bad.abs_diff(other.account().bad);
    if one.sequence() != other.sequence() || doubtful > 1 {
        return Err("the fastmap and a scan find different sequence numbers or bad blocks".into());
    }
    for (a, b) in one.volumes().zip(other.volumes()) {
        // While a volume is being updated its content is void, and so is its length.
        let shape = |info: &VolumeInfo| VolumeInfo {
            map: Vec::new(),
            used_bytes: info.used_bytes.filter(|_| !info.update_marker),
            ..info.clone()
        };
        if shape(&a) != shape(&b) {
            return Err(format!("by fastmap {a:?}, by a scan {b:?}"));
        }
        // LEBs that were unmapped but whose blocks are not erased: a scan finds them again.
        if let Some(at) = a.map.iter().find(|at| !b.map.contains(at)) {
            return Err(format!("volume {}: by fastmap LEB {at:?}, by a scan not", a.id));
        }
    }
    let size = flash.geometry().erase_size;
    let images = flysch_ubi::find_images(flash, Some(size));
    let image = *images.first().ok_or("no UBI is found any more")?;
    let ubi =
        Ubi::attach(flash.clone(), image, &flysch_ubi::AttachOptions::default()).map_err(text)?;
    let mut doubtful = 0;
    for (peb, (known, block)) in one.erase_counters().zip(ubi.blocks()).enumerate() {
        // If a header was lost there is no counter.
        let (Some(known), Some(counter)) = (known, block.erase_counter) else { continue };
        // If a header was being written, it may be readable one time and not the next; the block
        // may have been erased more than once since the fastmap was written.
        let is_torn = known < counter
            && block.content == Content::Free
            && flash.with(|chip| chip.is_torn(peb as u32));
        doubtful += u32::from(is_torn);
        if known != counter && !is_torn || doubtful > 1 {
            return Err(format!("block {peb} was erased {counter} times, not {known}"));
        }
    }
    Ok(())
}

/// Checks that no rule of the chip was violated.
pub(super) fn rules(flash: &Probe) -> Result<(), String> {
    flash.with(|chip| match chip.violations() {
        [] => Ok(()),
        found => Err(format!("rules of the chip were broken: {found:?}")),
    })
}

/// Volumes and LEBs.
type Snapshot = BTreeMap<(u32, u32), Vec<Option<Vec<u8>>>>;

/// The content of every LEB as read: unit by unit, `None` for unreadable ones.
fn snapshot(device: &mut Attached, knowledge: &Knowledge) -> Snapshot {
    let mut found = BTreeMap::new();
    let volumes: Vec<_> = device.volumes().filter(|info| !info.update_marker).collect();
    for info in volumes {
        let torn = torn_unit(knowledge, info.id);
        for lnum in 0..info.reserved_pebs {
            let mut units = read_leb(device, info.id, lnum, info.leb_size);
            // The content of a unit is undetermined while the write to it has not completed.
            if let Some((leb, units_open)) = &torn
                && *leb == lnum
            {
                let end = (units_open.end as usize).min(units.len());
                units[units_open.start as usize..end].fill(None);
            }
            found.insert((info.id, lnum), units);
        }
    }
    found
}

/// The first unit in which two snapshots differ.
fn differs(one: &Snapshot, other: &Snapshot) -> Option<String> {
    let changed = one.iter().find(|(place, units)| other.get(place) != Some(units));
    let added = || other.iter().find(|(place, _)| !one.contains_key(place));
    let (place @ (id, lnum), units) = changed.or_else(added)?;
    let of = |units: Option<&Vec<Option<Vec<u8>>>>, at: usize| match units
        .and_then(|units| units.get(at))
    {
        Some(Some(bytes)) if is_blank(bytes) => "erased",
        Some(Some(_)) => "readable",
        Some(None) => "unreadable",
        None => "not there",
    };
    let (before, after) = (one.get(place), other.get(place));
    let pair = |at: &usize| before.and_then(|u| u.get(*at)) != after.and_then(|u| u.get(*at));
    let at = (0..units.len()).find(pair).unwrap_or(units.len());
    let (was, is) = (of(before, at), of(after, at));
    Some(format!("volume {id}, LEB {lnum}, unit {at} was {was} and is {is}"))
}

/// The units that the current step writes in place.
fn torn_unit(knowledge: &Knowledge, id: u32) -> Option<(u32, std::ops::Range<u32>)> {
    match knowledge.step {
        Some(Step::Write { volume, lnum, at, units }) if volume == id => {
            Some((lnum, at..at + units))
        }
        _ => None,
    }
}

fn read_leb(device: &mut Attached, id: u32, lnum: u32, leb_size: u32) -> Vec<Option<Vec<u8>>> {
    let unit = unit_of(device);
    let units = leb_size.div_ceil(unit);
    let Ok(volume) = device.volume_mut(id) else { return vec![None; units as usize] };
    let read = |index: u32| {
        let len = unit.min(leb_size - index * unit);
        let mut bytes = vec![0; len as usize];
        volume.read(lnum, index * unit, &mut bytes).ok().map(|_| bytes)
    };
    (0..units).map(read).collect()
}

fn compare(device: &mut Attached, knowledge: &Knowledge) -> Result<(), String> {
    let before = against(device, &knowledge.volumes, knowledge);
    match (&before, &knowledge.next) {
        (Err(_), Some(next)) => against(device, next, knowledge).map_err(|other| {
            let step = knowledge.step.as_ref();
            let number = knowledge.number;
            format!(
                "in step {number}, {step:?}: neither as before nor as after: {}; {other}",
                before.err().unwrap_or_default()
            )
        }),
        _ => before,
    }
}

fn against(
    device: &mut Attached,
    volumes: &BTreeMap<u32, Known>,
    knowledge: &Knowledge,
) -> Result<(), String> {
    let found: Vec<u32> = device.volumes().map(|info| info.id).collect();
    let expected: Vec<u32> = volumes.keys().copied().collect();
    if found != expected {
        return Err(format!("volumes {found:?} instead of {expected:?}"));
    }
    let none = Leb::default();
    for (id, known) in volumes {
        let info = device.info(*id).ok_or("a volume without a record")?;
        let is = (String::from_utf8_lossy(&info.name).into_owned(), info.kind, info.reserved_pebs);
        let should = (known.name.clone(), known.kind, known.size);
        if is != should {
            return Err(format!("volume {id} is {is:?} instead of {should:?}"));
        }
        let updating = matches!(knowledge.step, Some(Step::Update { volume, .. }) if volume == *id);
        if info.update_marker {
            if updating {
                continue;
            }
            return Err(format!("volume {id} has an update marker"));
        }
        for lnum in 0..known.size {
            let leb = known.lebs.get(&lnum).unwrap_or(&none);
            let writing = match &knowledge.step {
                Some(Step::Write { volume, lnum: at, at: first, units })
                    if (volume, at) == (id, &lnum) =>
                {
                    Some((*first, content(knowledge.number, *units, unit_of(device))))
                }
                _ => None,
            };
            let units = read_leb(device, *id, lnum, info.leb_size);
            let way = Way {
                unit: unit_of(device) as usize,
                program: device.flash().with(Chip::program_size) as usize,
                start: (device.flash().geometry().erase_size - device.leb_size()) as usize,
            };
            fits(&units, leb, writing, &way)
                .map_err(|problem| format!("volume {id}, LEB {lnum}: {problem}"))?;
        }
    }
    Ok(())
}

/// Sizes in bytes: how LEBs are read here and programmed on the chip.
struct Way {
    /// Number of bytes read at a time.
    unit: usize,
    /// Maximum number of bytes programmed at a time, never across a multiple of it in the block.
    program: usize,
    /// Offset of a LEB in its block.
    start: usize,
}

/// Whether a LEB that reads as `units` may be `leb`, with `writing` in progress from some unit on,
/// one program of which is torn.
fn fits(
    units: &[Option<Vec<u8>>],
    leb: &Leb,
    writing: Option<(u32, Vec<u8>)>,
    way: &Way,
) -> Result<(), String> {
    let exact = |content: &[u8]| differing(units, (content, content.len()..content.len()), way);
    let Some(wrong) = exact(&leb.now) else { return Ok(()) };
    if leb.older.as_deref().is_some_and(|older| exact(older).is_none()) {
        return Ok(());
    }
    let Some((first, data)) = writing else {
        return Err(format!("unit {wrong} is not what was written"));
    };
    // What was programmed before is complete, the interrupted program may have left anything, and
    // what follows is untouched.
    let mut content = leb.now.clone();
    content.resize(first as usize * way.unit, 0xFF);
    content.extend_from_slice(&data);
    let mut at = first as usize * way.unit;
    while at < content.len() {
        let end = (way.start + at + 1).next_multiple_of(way.program) - way.start;
        if differing(units, (&content, at..end.min(content.len())), way).is_none() {
            return Ok(());
        }
        at = end;
    }
    Err(format!("a write from unit {first} on left more than one program torn, or other bytes"))
}

/// The first unit that differs from `content` before `torn` begins, or that is not erased after its
/// end.
fn differing(
    units: &[Option<Vec<u8>>],
    (content, torn): (&[u8], std::ops::Range<usize>),
    way: &Way,
) -> Option<usize> {
    units.iter().enumerate().position(|(index, found)| {
        let start = index * way.unit;
        let is_touched = !torn.is_empty() && torn.start < start + way.unit && start < torn.end;
        let Some(found) = found else { return !is_touched };
        let place = |at: usize| at.saturating_sub(start).min(found.len());
        let (done, behind) = (place(torn.start), place(torn.end));
        found[..done] != content[start.min(torn.start)..start.min(torn.start) + done]
            || !is_blank(&found[behind..])
    })
}

/// Whether all bits are set: checked in chunks that a compiler turns into one comparison each.
fn is_blank(bytes: &[u8]) -> bool {
    bytes.chunks(64).all(|piece| piece.iter().fold(0xFF, |all, byte| all & byte) == 0xFF)
}

/// Checks that the reading side finds nothing wrong.
fn check(flash: &Probe) -> Result<(), String> {
    let size = flash.geometry().erase_size;
    let images = flysch_ubi::find_images(flash, Some(size));
    let image = *images.first().ok_or("no UBI is found any more")?;
    let ubi =
        Ubi::attach(flash.clone(), image, &flysch_ubi::AttachOptions::default()).map_err(text)?;
    let mut findings = ubi.findings().to_vec();
    for info in ubi.volumes().iter().filter(|info| !info.update_marker) {
        findings.extend(ubi.volume(info.id).map(|volume| volume.verify()).unwrap_or_default());
    }
    judge(flash, &findings, Severity::Note)
}

/// Checks that a checker found nothing worse than `most`, headers of blocks torn by a cut aside.
///
/// The erase counter may be lost alone: its header read correctly while nothing depended on it, and
/// reads badly once the block is in use. The next attach moves the data. Both headers are lost if
/// an erase was cut: the LEB was unmapped, but a fastmap from before lists its block as used, so it
/// is not erased until the LEB is written. The reader of an image knows neither, and is right to
/// say it.
pub(super) fn judge(flash: &Probe, findings: &[Finding], most: Severity) -> Result<(), String> {
    let is_torn = |peb: u32| flash.with(|chip| chip.is_torn(peb));
    let is_excused = |finding: &Finding| {
        let of_block = || findings.iter().filter(|other| other.place.peb == finding.place.peb);
        let are_headers =
            of_block().all(|other| ["EC header", "VID header"].contains(&other.structure));
        let is_start = of_block().any(|other| other.structure == "EC header");
        are_headers && is_start && finding.place.peb.is_some_and(is_torn)
    };
    let mut bad = findings.iter().filter(|finding| finding.severity > most);
    match bad.find(|finding| !is_excused(finding)) {
        Some(finding) => Err(format!("check: {finding}")),
        None => Ok(()),
    }
}

/// Continues to use the device: every dynamic volume accepts a change and keeps it.
fn go_on(device: &mut Attached) -> Result<(), String> {
    let ids: Vec<u32> = device
        .volumes()
        .filter(|info| !info.update_marker && info.kind == VolumeKind::Dynamic)
        .map(|info| info.id)
        .collect();
    let data = content(9999, 2, unit_of(device));
    for round in 0..3 {
        for &id in &ids {
            let mut volume = device.volume_mut(id).map_err(text)?;
            let lnum = volume.geometry().lebs - 1;
            volume.unmap(lnum).map_err(|e| format!("going on, unmap: {e}"))?;
            volume.write(lnum, 0, &data).map_err(|e| format!("going on, write: {e}"))?;
            volume.change(lnum, &data).map_err(|e| format!("going on, change: {e}"))?;
            let mut back = vec![0; data.len()];
            let read = volume.read(lnum, 0, &mut back);
            let _corrected = read.map_err(|e| format!("going on, read: {e}"))?;
            if back != data {
                return Err(format!("going on, round {round}: volume {id} read something else"));
            }
        }
        device.work(3).map_err(|e| format!("going on, work: {e}"))?;
    }
    device.sync().map_err(text)
}

#[cfg(test)]
mod tests;

//! Reads that the system refuses for a while (EIO of a device, of a file on a failing disk): what
//! is not given is neither damaged nor absent. Each call fails or is right, a writer goes on
//! correctly or is read-only, and once reads work again everything synced is there.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use flysch_api::finding::Severity;
use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};
use flysch_api::vfs::{Changes, FileSystem, FileSystemMut, FsError, Rename};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_jffs2::{Jffs2, Jffs2Mut, WriteOptions, check};
use flysch_ubi::{
    AttachOptions, DeviceOptions, FastmapUse, FormatOptions, NewVolume, Ubi, UbiDevice, find_images,
};
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_ubifs::{OpenOptions, Ubifs, UbifsMut};

use crate::extremes_common::{Lebs, Random, at, regular};
use crate::jffs2_common::{Chip, Shape};

/// Linux's number for what a device cannot read.
const EIO: i32 = 5;
/// Tries so that each read has its turn.
const ALL: u64 = u64::MAX;

/// Which reads fail; shared with everything that reads.
#[derive(Debug, Default)]
struct Plan {
    reads: AtomicU64,
    refused: Mutex<Range<u64>>,
}

impl Plan {
    /// From now on these of the following reads fail.
    fn refuse(&self, which: Range<u64>) {
        self.reads.store(0, Ordering::Relaxed);
        *self.refused.lock().unwrap() = which;
    }

    fn work(&self) {
        self.refuse(0..0);
    }

    fn read(&self) -> Result<(), FlashError> {
        let number = self.reads.fetch_add(1, Ordering::Relaxed);
        let refuses = self.refused.lock().unwrap().contains(&number);
        if refuses { Err(FlashError::Os(EIO)) } else { Ok(()) }
    }
}

/// A flash or volume that does not always give what is asked for.
#[derive(Clone, Debug)]
struct Flaky<T> {
    below: T,
    plan: Arc<Plan>,
}

impl<T: Clone> Flaky<T> {
    fn of(below: &T) -> Self {
        Self { below: below.clone(), plan: Arc::default() }
    }
}

impl<F: Flash> Flash for Flaky<F> {
    fn geometry(&self) -> &FlashGeometry {
        self.below.geometry()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        // Any state is allowed.
        buffer.fill(0xFF);
        self.plan.read()?;
        self.below.read(offset, buffer)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.plan.read()?;
        self.below.read_oob(offset, mode, buffer)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.plan.read()?;
        self.below.is_bad(block)
    }
}

impl<F: FlashMut> FlashMut for Flaky<F> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.below.program(offset, data)
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.below.program_oob(offset, mode, data)
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.below.erase(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.below.mark_bad(block)
    }
}

impl<V: Volume> Volume for Flaky<V> {
    fn geometry(&self) -> VolumeGeometry {
        self.below.geometry()
    }

    fn state(&self, lnum: u32) -> LebState {
        self.below.state(lnum)
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        buffer.fill(0xFF);
        self.plan.read()?;
        self.below.read(lnum, offset, buffer)
    }
}

impl<V: VolumeMut> VolumeMut for Flaky<V> {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        self.below.write(lnum, offset, data)
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        self.below.change(lnum, data)
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.below.unmap(lnum)
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        self.below.map(lnum)
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.below.sync()
    }
}

/// Whether an error, or what caused it, is that of the flash.
fn is_told(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    let text = "answered error 5";
    std::iter::from_fn(|| {
        let this = next?;
        next = this.source();
        Some(this.to_string().contains(text))
    })
    .any(|told| told)
}

/// What files there must be.
#[derive(Clone, Debug, Default)]
struct Model {
    /// The content of each file; `None` for one that was removed.
    now: BTreeMap<String, Option<Vec<u8>>>,
    /// The same at the last sync.
    synced: BTreeMap<String, Option<Vec<u8>>>,
    /// Files that were changed since.
    touched: BTreeSet<String>,
    /// Files of which a change failed: they may be the old or the new ones.
    doubtful: BTreeSet<String>,
}

impl Model {
    /// After a stop: what is known is what was synced.
    fn stopped(mut self) -> Self {
        self.now = self.synced.clone();
        self.doubtful.append(&mut self.touched);
        self.now.retain(|name, _| !self.doubtful.contains(name));
        self
    }

    fn put(&mut self, name: &str, content: Option<Vec<u8>>) {
        self.now.insert(name.into(), content);
        self.touched.insert(name.into());
    }

    /// Some changes; returns whether it can still be written to.
    fn work(&mut self, fs: &mut dyn FileSystemMut, random: &mut Random, steps: u64) -> bool {
        for _ in 0..steps {
            let name = format!("file{}", random.below(14));
            if self.doubtful.contains(&name) {
                continue;
            }
            self.touched.insert(name.clone());
            match self.change(fs, random, &name) {
                Ok(()) => {}
                Err(FsError::ReadOnly) => {
                    self.doubtful.insert(name);
                    return false;
                }
                Err(error) => {
                    assert!(is_told(&error) || error == FsError::NoSpace, "{name}: {error:?}");
                    self.doubtful.insert(name);
                }
            }
            if random.below(9) == 0 && fs.sync(None).is_ok() {
                self.synced = self.now.clone();
                self.touched = self.doubtful.clone();
            }
        }
        true
    }

    fn change(
        &mut self,
        fs: &mut dyn FileSystemMut,
        random: &mut Random,
        name: &str,
    ) -> Result<(), FsError> {
        let root = fs.statistics().root;
        let Some(mut bytes) = self.now.get(name).cloned().flatten() else {
            let inode = regular(fs, root, name)?;
            let len = random.below(6000) as usize;
            let data = random.bytes(len);
            let done = if len == 0 { 0 } else { fs.write(inode, 0, &data, at(2))? };
            self.put(name, Some(data[..done].to_vec()));
            return Ok(());
        };
        let inode = fs.lookup(root, name.as_bytes())?;
        match random.below(8) {
            0 | 1 => {
                fs.remove(root, name.as_bytes(), at(3))?;
                fs.forget(inode)?;
                self.put(name, None);
            }
            2 => {
                bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
                let cut = Changes { size: Some(bytes.len() as u64), ..Changes::default() };
                fs.set_attributes(inode, &cut, at(4))?;
                self.put(name, Some(bytes));
            }
            3 => {
                let other = format!("file{}", random.below(14));
                if other != name && !self.doubtful.contains(&other) {
                    self.touched.insert(other.clone());
                    let (from, to) = ((root, name.as_bytes()), (root, other.as_bytes()));
                    if let Err(error) = fs.rename(from, to, Rename::Replace, at(5)) {
                        self.doubtful.insert(other);
                        return Err(error);
                    }
                    self.put(&other, Some(bytes));
                    self.put(name, None);
                }
            }
            _ => {
                let offset = random.below(bytes.len() as u64 + 1) as usize;
                let len = 1 + random.below(3000) as usize;
                let data = random.bytes(len);
                let done = fs.write(inode, offset as u64, &data, at(6))?;
                bytes.resize(bytes.len().max(offset + done), 0);
                bytes[offset..offset + done].copy_from_slice(&data[..done]);
                self.put(name, Some(bytes));
            }
        }
        Ok(())
    }

    /// What is wrong; errors of the flash are not, unless all reads work.
    fn wrong(&self, fs: &dyn FileSystem, all_work: bool) -> Vec<String> {
        let mut wrong = vec![];
        for (name, expected) in &self.now {
            if self.doubtful.contains(name) {
                continue;
            }
            match (content(fs, name), expected) {
                (Err(FsError::NotFound), None) => {}
                (Ok(found), Some(bytes)) if found == *bytes => {}
                (Err(error), _) if is_told(&error) && !all_work => {}
                (found, expected) => wrong.push(format!(
                    "{name}: {:?} instead of {:?} bytes",
                    found.map(|it| it.len()),
                    expected.as_ref().map(Vec::len),
                )),
            }
        }
        let mut listed = BTreeSet::new();
        let done = fs.list(fs.statistics().root, 0, &mut |entry| {
            listed.insert(String::from_utf8_lossy(entry.name).into_owned());
            ControlFlow::Continue(())
        });
        let certain = |name: &&String| !self.doubtful.contains(*name);
        let wanted = self.now.iter().filter(|it| it.1.is_some()).map(|it| it.0);
        let wanted: BTreeSet<String> = wanted.filter(certain).cloned().collect();
        let found: BTreeSet<_> = listed.iter().filter(certain).cloned().collect();
        match done {
            Ok(()) if found == wanted => {}
            Err(error) if is_told(&error) && !all_work => {}
            done => wrong.push(format!("listed: {done:?}, {found:?} instead of {wanted:?}")),
        }
        wrong
    }
}

fn content(fs: &dyn FileSystem, name: &str) -> Result<Vec<u8>, FsError> {
    let inode = fs.lookup(fs.statistics().root, name.as_bytes())?;
    let mut bytes = vec![0; fs.attributes(inode)?.size as usize];
    let mut done = 0;
    while done < bytes.len() {
        done += fs.read(inode, done as u64, &mut bytes[done..])?;
    }
    Ok(bytes)
}

type Use<'u> = &'u mut dyn FnMut(&mut dyn FileSystemMut);

/// A file system on something of which reads can be refused.
trait World {
    /// What lies below.
    type Below: Clone;

    /// An empty file system.
    fn empty(&self) -> Self::Below;
    /// Mounts and passes it on; what follows is as after a sudden stop.
    fn with(&self, below: &mut Flaky<Self::Below>, use_it: Use<'_>) -> Result<(), Box<dyn Error>>;
    /// Mounts read-only and passes it on, with whether something was said to be lost.
    fn read(&self, below: Flaky<Self::Below>, look: &mut dyn FnMut(&dyn FileSystem, bool));
    /// What the checker finds wrong.
    fn check(&self, below: &Self::Below) -> Vec<String>;
}

/// Mounts, writes and reads while each of the reads fails once, and while many do.
fn campaign<W: World>(world: &W, tries: u64) {
    let (base, model) = written(world);
    let run = |which: Range<u64>, what: &str| session(world, (&base, &model), which, what);
    let reads = run(0..0, "all work");
    for (round, first) in (0..reads).step_by((reads / tries).max(1) as usize).enumerate() {
        let len = [1, 1, 3, 1, 40, 100_000][round % 6];
        run(first..first + len, &format!("read {first} of {reads}, {len} fail"));
    }
    let flaky = Flaky::of(&base);
    let plan = Arc::clone(&flaky.plan);
    world.read(flaky, &mut |fs, _| assert_eq!(model.wrong(fs, true), [""; 0]));
    let reads = plan.reads.load(Ordering::Relaxed);
    for first in (0..reads).step_by((reads / tries).max(1) as usize) {
        let flaky = Flaky::of(&base);
        flaky.plan.refuse(first..first + 1);
        world.read(flaky, &mut |fs, is_told| {
            let wrong = model.wrong(fs, false);
            assert!(wrong.is_empty() || is_told, "read-only, read {first}: {wrong:#?}");
        });
    }
}

/// A file system after many changes and a sudden stop, and what must be in it.
fn written<W: World>(world: &W) -> (W::Below, Model) {
    let mut random = Random::new(3);
    let mut model = Model::default();
    let mut flaky = Flaky::of(&world.empty());
    for _ in 0..2 {
        let use_it = &mut |fs: &mut dyn FileSystemMut| {
            assert!(model.work(fs, &mut random, 250));
            fs.sync(None).unwrap();
        };
        world.with(&mut flaky, use_it).unwrap();
        model.synced = model.now.clone();
        model.touched.clear();
    }
    assert!(model.doubtful.is_empty());
    (flaky.below, model)
}

/// One mount with some more changes, and another one to see what became of it; returns the number
/// of reads.
fn session<W: World>(
    world: &W,
    (base, model): (&W::Below, &Model),
    which: Range<u64>,
    what: &str,
) -> u64 {
    let mut model = model.clone();
    let mut flaky = Flaky::of(base);
    let plan = Arc::clone(&flaky.plan);
    let mut reads = 0;
    plan.refuse(which);
    let mounted = world.with(&mut flaky, &mut |fs| {
        let goes_on = model.work(fs, &mut Random::new(9), 120);
        assert_eq!(model.wrong(fs, false), [""; 0], "{what}, while some fail");
        reads = plan.reads.load(Ordering::Relaxed);
        plan.work();
        assert_eq!(model.wrong(fs, true), [""; 0], "{what}, all work again");
        if goes_on {
            model.work(fs, &mut Random::new(10), 25);
            assert_eq!(model.wrong(fs, true), [""; 0], "{what}, written on");
        }
    });
    if let Err(error) = mounted {
        assert!(is_told(&*error), "{what}: {error}");
    }
    plan.work();
    let model = model.stopped();
    let use_it = &mut |fs: &mut dyn FileSystemMut| {
        assert_eq!(model.wrong(fs, true), [""; 0], "{what}, mounted anew");
    };
    world.with(&mut flaky, use_it).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(world.check(&flaky.below), [""; 0], "{what}");
    reads
}

struct OfJffs2(Shape);

impl World for OfJffs2 {
    type Below = Chip;

    fn empty(&self) -> Chip {
        Chip::new(self.0)
    }

    fn with(&self, below: &mut Flaky<Chip>, use_it: Use<'_>) -> Result<(), Box<dyn Error>> {
        let mut fs = Jffs2Mut::mount(below, &WriteOptions::default())?;
        use_it(&mut fs);
        Ok(())
    }

    fn read(&self, below: Flaky<Chip>, look: &mut dyn FnMut(&dyn FileSystem, bool)) {
        match Jffs2::mount(below, None) {
            Ok(fs) => look(&fs, fs.facts().problems > 0),
            Err(error) => assert!(is_told(&error), "{error}"),
        }
    }

    fn check(&self, below: &Chip) -> Vec<String> {
        let mut found = vec![];
        check(below, None, &mut |finding| {
            // An interrupted erase leaves garbage, which is erased again sooner or later.
            if finding.severity > Severity::Note && !finding.problem.contains("neither erased") {
                found.push(finding.to_string());
            }
        })
        .unwrap();
        found
    }
}

struct OfUbifs;

const LEBS: (u32, u32, u32) = (16 << 10, 32, 512);

fn damage<V: Volume>(volume: V) -> Vec<String> {
    let fs = Ubifs::open(volume, &OpenOptions::default()).unwrap();
    let findings = fs.findings().iter().cloned().chain(fs.check());
    let bad = findings.filter(|it| it.severity > Severity::Note);
    bad.map(|it| it.to_string()).collect()
}

impl World for OfUbifs {
    type Below = Lebs;

    fn empty(&self) -> Lebs {
        let mut lebs = Lebs::new(LEBS.0, LEBS.1, LEBS.2);
        let options = CreateOptions::new(LEBS.2, LEBS.0, LEBS.1);
        format(&mut lebs, &options, &NewInode::directory(at(1))).unwrap();
        lebs
    }

    fn with(&self, below: &mut Flaky<Lebs>, use_it: Use<'_>) -> Result<(), Box<dyn Error>> {
        let mut fs = UbifsMut::open(below)?;
        use_it(&mut fs);
        Ok(())
    }

    fn read(&self, below: Flaky<Lebs>, look: &mut dyn FnMut(&dyn FileSystem, bool)) {
        match Ubifs::open(below, &OpenOptions::default()) {
            Ok(fs) => look(&fs, fs.findings().iter().any(|it| it.severity == Severity::Lost)),
            Err(error) => assert!(is_told(&error), "{error}"),
        }
    }

    fn check(&self, below: &Lebs) -> Vec<String> {
        damage(below)
    }
}

/// UBIFS on a UBI device.
struct OfBoth {
    fastmap: bool,
}

const BLOCKS: Shape = Shape { erase_size: 16 << 10, blocks: 72, page: 512, oob: 0 };

impl OfBoth {
    fn options(&self) -> DeviceOptions {
        // Blocks are moved all the time.
        DeviceOptions { fastmap: self.fastmap, wear_threshold: 2, ..DeviceOptions::default() }
    }
}

impl World for OfBoth {
    type Below = Chip;

    fn empty(&self) -> Chip {
        let chip = Chip::new(BLOCKS);
        let options = self.options();
        let mut device = UbiDevice::format(chip, &FormatOptions::new(7), &options).unwrap();
        let id = device.create(&NewVolume::dynamic(b"v", 40)).unwrap();
        let mut volume = device.into_volume(id).unwrap();
        let leb_size = volume.device().leb_size();
        let options = CreateOptions::new(512, leb_size, 40);
        format(&mut volume, &options, &NewInode::directory(at(1))).unwrap();
        volume.into_device().detach().unwrap()
    }

    fn with(&self, below: &mut Flaky<Chip>, use_it: Use<'_>) -> Result<(), Box<dyn Error>> {
        let device = UbiDevice::attach(below, &self.options())?;
        let mut fs = UbifsMut::open(device.into_volume(0)?)?;
        use_it(&mut fs);
        Ok(())
    }

    fn read(&self, below: Flaky<Chip>, look: &mut dyn FnMut(&dyn FileSystem, bool)) {
        let fastmap = if self.fastmap { FastmapUse::Use } else { FastmapUse::Ignore };
        let Some(&image) = find_images(&below, Some(BLOCKS.erase_size)).first() else { return };
        let ubi = match Ubi::attach(&below, image, &AttachOptions { fastmap }) {
            Ok(ubi) => ubi,
            Err(error) => return assert!(is_told(&error), "{error}"),
        };
        let is_lost = ubi.findings().iter().any(|it| it.severity == Severity::Lost);
        let Some(volume) = ubi.volume(0) else { return assert!(is_lost) };
        match Ubifs::open(volume, &OpenOptions::default()) {
            Ok(fs) => {
                let mut findings = fs.findings().iter();
                look(&fs, is_lost || findings.any(|it| it.severity == Severity::Lost));
            }
            Err(error) => assert!(is_told(&error) || is_lost, "{error}"),
        }
    }

    fn check(&self, below: &Chip) -> Vec<String> {
        assert!((0..BLOCKS.blocks).all(|block| below.is_bad(block) == Ok(false)));
        let image = find_images(below, Some(BLOCKS.erase_size))[0];
        let ubi = Ubi::attach(below, image, &AttachOptions::default()).unwrap();
        let bad = ubi.findings().iter().filter(|it| it.severity > Severity::Note);
        let mut found: Vec<String> = bad.map(ToString::to_string).collect();
        found.extend(damage(ubi.volume(0).unwrap()));
        found
    }
}

/// What each LEB of a volume must hold; `None` for one of which a change failed.
type LebModel = BTreeMap<u32, Option<Vec<u8>>>;

/// A few changes of LEBs, and background work; returns whether there can be more.
fn change_lebs(
    device: &mut UbiDevice<&mut Flaky<Chip>>,
    model: &mut LebModel,
    random: &mut Random,
    steps: u64,
) -> bool {
    for _ in 0..steps {
        let lnum = random.below(12) as u32;
        let len = 512 * (1 + random.below(8) as usize);
        let (data, kind) = (random.bytes(len), random.below(10));
        let mut volume = device.volume_mut(0).unwrap();
        let (done, after) = match kind {
            0 => (volume.unmap(lnum), vec![]),
            1..5 => (volume.change(lnum, &data), data),
            5 | 6 => {
                let mut whole = model.get(&lnum).cloned().flatten().unwrap_or_default();
                let fits = whole.len() + len <= 15 << 10 && model.get(&lnum) != Some(&None);
                let offset = whole.len() as u32;
                match fits {
                    true => {
                        whole.extend(&data);
                        (volume.write(lnum, offset, &data), whole)
                    }
                    false => (volume.change(lnum, &data), data),
                }
            }
            7 => (volume.sync(), model.get(&lnum).cloned().flatten().unwrap_or_default()),
            _ => {
                let work = volume.device_mut().work(2).map(drop).map_err(FlashError::from);
                (work, model.get(&lnum).cloned().flatten().unwrap_or_default())
            }
        };
        match done {
            Ok(()) if kind >= 7 => {}
            Ok(()) => drop(model.insert(lnum, Some(after))),
            Err(error) => {
                assert!(matches!(error, FlashError::Os(EIO)), "{error:?}");
                if kind < 7 {
                    model.insert(lnum, None);
                }
                if device.read_only().is_some() {
                    return false;
                }
            }
        }
    }
    true
}

fn wrong_lebs(volume: &dyn Volume, model: &LebModel, all_work: bool) -> Vec<String> {
    let mut wrong = vec![];
    let known = model.iter().filter_map(|(lnum, bytes)| Some((*lnum, bytes.as_ref()?)));
    for (lnum, bytes) in known {
        let mut found = vec![0; volume.geometry().leb_size as usize];
        let mut whole = bytes.clone();
        whole.resize(found.len(), 0xFF);
        match volume.read(lnum, 0, &mut found) {
            Ok(_) if found == whole => {}
            Err(FlashError::Os(EIO)) if !all_work => {}
            read => wrong.push(format!("LEB {lnum}: {read:?}")),
        }
        if volume.state(lnum) == LebState::Unmapped && !bytes.is_empty() {
            wrong.push(format!("LEB {lnum} is not mapped"));
        }
    }
    wrong
}

/// A device that was written to and stopped suddenly; every LEB is as the last change left it.
fn written_device(options: &DeviceOptions) -> (Chip, LebModel) {
    let mut flaky = Flaky::of(&Chip::new(BLOCKS));
    let mut device = UbiDevice::format(&mut flaky, &FormatOptions::new(7), options).unwrap();
    device.create(&NewVolume::dynamic(b"v", 12)).unwrap();
    let (mut model, mut random) = (LebModel::new(), Random::new(4));
    assert!(change_lebs(&mut device, &mut model, &mut random, 300));
    // What was discarded may come back unless this is done.
    device.sync().unwrap();
    drop(device);
    (flaky.below, model)
}

fn device_campaign(fastmap: bool, tries: u64) {
    // Blocks are moved all the time.
    let options = DeviceOptions { fastmap, wear_threshold: 2, ..DeviceOptions::default() };
    let (base, model) = written_device(&options);
    let run = |which: Range<u64>, what: &str| -> u64 {
        let (mut flaky, mut model) = (Flaky::of(&base), model.clone());
        let plan = Arc::clone(&flaky.plan);
        let mut reads = 0;
        plan.refuse(which);
        match UbiDevice::attach(&mut flaky, &options) {
            Ok(mut device) => {
                let volume = device.volume_mut(0).unwrap();
                assert_eq!(wrong_lebs(&volume, &model, false), [""; 0], "{what}, attached");
                let goes_on = change_lebs(&mut device, &mut model, &mut Random::new(5), 120);
                reads = plan.reads.load(Ordering::Relaxed);
                plan.work();
                let volume = device.volume_mut(0).unwrap();
                assert_eq!(wrong_lebs(&volume, &model, true), [""; 0], "{what}, all work again");
                if goes_on {
                    assert!(change_lebs(&mut device, &mut model, &mut Random::new(6), 60));
                }
                if device.sync().is_err() {
                    // What was discarded may come back.
                    model.retain(|_, bytes| bytes.as_ref().is_some_and(|it| !it.is_empty()));
                }
            }
            Err(error) => assert!(is_told(&error), "{what}: {error}"),
        }
        plan.work();
        assert!((0..BLOCKS.blocks).all(|block| flaky.below.is_bad(block) == Ok(false)), "{what}");
        let image = find_images(&flaky, Some(BLOCKS.erase_size))[0];
        let ubi = Ubi::attach(&flaky, image, &AttachOptions::default()).unwrap();
        let found = wrong_lebs(&ubi.volume(0).unwrap(), &model, true);
        assert_eq!(found, [""; 0], "{what}, read-only");
        drop(ubi);
        let mut device = UbiDevice::attach(&mut flaky, &options)
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = wrong_lebs(&device.volume_mut(0).unwrap(), &model, true);
        assert_eq!(found, [""; 0], "{what}, attached anew");
        reads
    };
    let reads = run(0..0, "all work");
    for (round, first) in (0..reads).step_by((reads / tries).max(1) as usize).enumerate() {
        let len = [1, 1, 3, 1, 40, 100_000][round % 6];
        run(first..first + len, &format!("read {first} of {reads}, {len} fail"));
    }
}

#[test]
fn ubi() {
    device_campaign(false, 120);
}

#[test]
fn ubi_with_a_fastmap() {
    device_campaign(true, 60);
}

const NOR: Shape = Shape { erase_size: 16 << 10, blocks: 16, page: 1, oob: 0 };
const NAND: Shape = Shape { erase_size: 16 << 10, blocks: 14, page: 512, oob: 16 };

#[test]
fn jffs2_on_nor() {
    campaign(&OfJffs2(NOR), 150);
}

#[test]
fn jffs2_on_nand() {
    campaign(&OfJffs2(NAND), 150);
}

#[test]
fn ubifs() {
    campaign(&OfUbifs, 150);
}

#[test]
fn ubifs_on_ubi() {
    campaign(&OfBoth { fastmap: false }, 80);
}

#[test]
fn ubifs_on_ubi_with_a_fastmap() {
    campaign(&OfBoth { fastmap: true }, 80);
}

#[test]
#[ignore = "long"]
fn each_read() {
    campaign(&OfJffs2(NOR), ALL);
    campaign(&OfJffs2(NAND), ALL);
    campaign(&OfUbifs, ALL);
    campaign(&OfBoth { fastmap: false }, ALL);
    campaign(&OfBoth { fastmap: true }, ALL);
    device_campaign(false, ALL);
    device_campaign(true, ALL);
}

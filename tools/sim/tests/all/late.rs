//! UBIFS over UBI over a chip, as a user of the library writes it: directly with the types, and
//! without `close`. Power fails late in each operation, so that a page is readable now and not the
//! next time; what was synced stays, and what was readable once stays readable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::rc::Rc;

use flysch_api::flash::{Flash as _, FlashMut};
use flysch_api::vfs::{
    DeviceNumber, FileKind, FileSystem, FileSystemMut, FsError, NewFile, Timestamp,
};
use flysch_api::volume::Volume as _;
use flysch_models::flash::Tear;
use flysch_models::nand::{Config, NandChip, Profile};
use flysch_sim::cuts::chip::Chip;
use flysch_sim::cuts::probe::{Hook, Probe};
use flysch_ubi::{DeviceOptions, DeviceVolume, FormatOptions, NewVolume, Ubi, UbiDevice};
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_ubifs::{Ubifs, UbifsMut};

const NOW: Timestamp = Timestamp { seconds: 1_800_000_000, nanoseconds: 0 };
const BLOCK: usize = 4096;
const FILE: NewFile<'_> = NewFile {
    kind: FileKind::Regular,
    permissions: 0o644,
    owner: 0,
    group: 0,
    device: DeviceNumber { major: 0, minor: 0 },
    target: b"",
};

type Files = BTreeMap<Vec<u8>, Vec<u8>>;
/// Each block of content that is readable.
type Blocks = BTreeMap<(Vec<u8>, usize), Result<Vec<u8>, FsError>>;

/// What was written, and which part of it was synced.
#[derive(Default)]
struct Wanted {
    synced: RefCell<Files>,
    newest: RefCell<Files>,
}

/// A chip with an empty UBIFS on it.
fn fresh(name: &str, blocks: u32, seed: u64) -> NandChip {
    let profile = Profile::named(name).expect("it is known").with_blocks(blocks);
    let config = Config { corrects: true, factory_bad: 1, seed, ..Config::default() };
    let mut chip = NandChip::new(profile, config);
    let options = DeviceOptions::default();
    let mut device = UbiDevice::format(&mut chip, &FormatOptions::new(0x1234), &options).unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"root", lebs)).unwrap();
    let volume = device.volume_mut(id).unwrap();
    let geometry = volume.geometry();
    let unit = geometry.write_size.unwrap();
    let options = CreateOptions::new(unit, geometry.leb_size, geometry.lebs);
    format(volume, &options, &NewInode::directory(NOW)).unwrap();
    device.detach().unwrap();
    chip
}

fn body(round: u32, number: u32) -> Vec<u8> {
    let byte =
        |at: u32| (at.wrapping_mul(2_654_435_761).wrapping_add(number * 77 + round) >> 13) as u8;
    (0..3000 + round * 7919 % 20_000).map(byte).collect()
}

/// Files are written repeatedly, and synced every second round.
fn write_files(fs: &mut impl FileSystemMut, wanted: &Wanted) -> Result<(), FsError> {
    let root = fs.statistics().root;
    for round in 0..6 {
        for number in 0..4 {
            let name = format!("f{}", (round * 3 + number) % 11).into_bytes();
            let inode = match fs.lookup(root, &name) {
                Err(FsError::NotFound) => fs.create(root, &name, &FILE, NOW)?,
                found => found?,
            };
            let data = body(round, number);
            {
                let mut newest = wanted.newest.borrow_mut();
                let content = newest.entry(name).or_default();
                content.resize(content.len().max(data.len()), 0);
                content[..data.len()].copy_from_slice(&data);
            }
            let mut at = 0;
            while at < data.len() {
                at += fs.write(inode, at as u64, &data[at..], NOW)?;
            }
        }
        if round % 2 == 1 {
            fs.sync(None)?;
            wanted.synced.replace(wanted.newest.borrow().clone());
        }
    }
    Ok(())
}

fn contents(fs: &impl FileSystem) -> Blocks {
    let mut names = Vec::new();
    let listed = fs.list(fs.statistics().root, 0, &mut |entry| {
        names.push((entry.name.to_vec(), entry.inode));
        ControlFlow::Continue(())
    });
    let mut all = Blocks::new();
    if let Err(error) = listed {
        all.insert((b"/".to_vec(), 0), Err(error));
    }
    for (name, inode) in names {
        let size = fs.attributes(inode).map_or(1, |it| it.size as usize);
        for block in 0..size.div_ceil(BLOCK) {
            let mut bytes = vec![0; BLOCK.min(size - block * BLOCK)];
            let read = fs.read(inode, (block * BLOCK) as u64, &mut bytes);
            all.insert((name.clone(), block), read.map(|_| bytes));
        }
    }
    all
}

/// Everything is readable, and what was synced is present or newer.
fn judge(found: &Blocks, wanted: &Wanted) -> Result<(), String> {
    if let Some(((name, block), error)) =
        found.iter().find_map(|(at, read)| Some((at, read.as_ref().err()?)))
    {
        return Err(format!("{} block {block}: {error}", name.escape_ascii()));
    }
    let newest = wanted.newest.borrow();
    for (name, data) in wanted.synced.borrow().iter() {
        for (block, synced) in data.chunks(BLOCK).enumerate() {
            let newer = &newest[name][block * BLOCK..][..synced.len()];
            let is_there = match found.get(&(name.clone(), block)) {
                Some(Ok(is)) => [synced, newer].contains(&&is[..synced.len().min(is.len())]),
                _ => false,
            };
            if !is_there {
                return Err(format!("{} block {block} is lost", name.escape_ascii()));
            }
        }
    }
    Ok(())
}

fn same(first: &Blocks, again: &Blocks, what: &str) -> Result<(), String> {
    if first == again { Ok(()) } else { Err(format!("{what}: reads otherwise than before")) }
}

/// Examines a chip after power returned: read-only, then twice for writing.
fn recover(mut chip: NandChip, wanted: &Wanted) -> Result<(), String> {
    let images = flysch_ubi::find_images(&chip, Some(chip.geometry().erase_size));
    let image = *images.first().ok_or("no UBI")?;
    let options = flysch_ubi::AttachOptions::default();
    let ubi = Ubi::attach(&chip, image, &options).map_err(|e| format!("attach to read: {e}"))?;
    let volume = ubi.volume(0).ok_or("no volume to read")?;
    let options = flysch_ubifs::OpenOptions::default();
    let fs = Ubifs::open(volume, &options).map_err(|e| format!("open to read: {e}"))?;
    let found = contents(&fs);
    judge(&found, wanted).map_err(|problem| format!("read-only: {problem}"))?;
    same(&found, &contents(&fs), "read-only")?;
    let mut before = None;
    for what in ["first mount", "second mount"] {
        let found = mounted(&mut chip, |fs| {
            let found = contents(fs);
            same(&found, &contents(fs), what).map(|()| found)
        });
        let found = found.map_err(|problem| format!("{what}: {problem}"))?;
        judge(&found, wanted).map_err(|problem| format!("{what}: {problem}"))?;
        same(before.get_or_insert_with(|| found.clone()), &found, what)?;
    }
    if chip.violations().is_empty() { Ok(()) } else { Err(format!("{:?}", chip.violations())) }
}

/// Mounts, examines, and leaves as if power failed again.
fn mounted<F: FlashMut, T>(
    flash: F,
    look: impl FnOnce(&mut UbifsMut<DeviceVolume<&mut UbiDevice<F>, F>>) -> Result<T, String>,
) -> Result<T, String> {
    let mut device =
        UbiDevice::attach(flash, &DeviceOptions::default()).map_err(|e| e.to_string())?;
    let volume = device.volume_mut(0).map_err(|e| e.to_string())?;
    look(&mut UbifsMut::open(volume).map_err(|e| e.to_string())?)
}

struct Late {
    wanted: Rc<Wanted>,
    every: u64,
    cuts: Cell<u64>,
    problems: RefCell<Vec<String>>,
}

impl Hook for Late {
    fn wants(&self, operations: Range<u64>) -> bool {
        { operations }.any(|operation| operation.is_multiple_of(self.every))
    }

    fn tears(&self, operation: u64) -> Vec<Tear> {
        if operation.is_multiple_of(self.every) { vec![Tear::Late] } else { Vec::new() }
    }

    fn forked(&self, operation: u64, _tear: Tear, chip: Chip) {
        let Chip::Nand(mut chip) = chip else { unreachable!("it is NAND") };
        chip.power_mut().on();
        self.cuts.set(self.cuts.get() + 1);
        if let Err(problem) = recover(chip, &self.wanted) {
            self.problems.borrow_mut().push(format!("cut {operation}: {problem}"));
        }
    }
}

/// Cuts late in every `every`th operation; returns the number of cuts.
fn cut_late(name: &str, blocks: u32, seed: u64, every: u64) -> u64 {
    let wanted = Rc::new(Wanted::default());
    let late = Rc::new(Late {
        wanted: wanted.clone(),
        every,
        cuts: Cell::new(0),
        problems: RefCell::default(),
    });
    let chip = Chip::Nand(fresh(name, blocks, seed));
    let probe = Probe::new(chip, Some(late.clone() as Rc<_>), None);
    mounted(probe, |fs| write_files(fs, &wanted).map_err(|e| e.to_string())).unwrap();
    let problems = late.problems.borrow();
    assert!(problems.is_empty(), "{name}, seed {seed}: {} wrong: {problems:#?}", problems.len());
    late.cuts.get()
}

#[test]
fn pages_cut_late_are_judged_once() {
    let cuts = cut_late("K9F1G08U0B", 32, 1, 1)
        + cut_late("MT29F2G08ABAEA", 32, 3, 2)
        + cut_late("K9F5608U0D", 96, 2, 4);
    assert!(cuts > 150, "{cuts} cuts");
}

//! Cuts the power at every program and erase of a workload; everything that was promised must be
//! there.

use std::collections::BTreeMap;
use std::string::String;
use std::sync::atomic::{AtomicU64, Ordering};
use std::vec;

use flysch_api::flash::{Flash, FlashError};

use super::fastmap::agrees_with_a_scan;
use super::ram::Cut;
use super::*;

const LEBS: u32 = 6;

/// The LEB contents that are possible after a cut now.
#[derive(Clone, Debug)]
struct Oracle {
    leb_size: usize,
    /// For each LEB, the contents it may have; the last is the one it has without a cut.
    may: Vec<Vec<Vec<u8>>>,
    /// While a write is in progress: LEB, first byte, length.
    writing: Option<(u32, usize, usize)>,
    /// Names that the volumes may have.
    names: Vec<BTreeMap<u32, String>>,
}

impl Oracle {
    fn new(leb_size: usize) -> Self {
        let may = vec![vec![vec![0xff; leb_size]]; LEBS as usize];
        Self { leb_size, may, writing: None, names: vec![BTreeMap::new()] }
    }

    fn now(&self, lnum: u32) -> &Vec<u8> {
        self.may[lnum as usize].last().unwrap()
    }

    fn check(&self, device: &mut UbiDevice<Ram>, what: &str) {
        let names = names(device);
        assert!(self.names.contains(&names), "{what}: volumes {names:?}, not {:?}", self.names);
        if !names.contains_key(&0) {
            return;
        }
        for lnum in 0..LEBS {
            let found = leb(device, 0, lnum);
            assert_eq!(found.len(), self.leb_size);
            let whole = self.may[lnum as usize].contains(&found);
            assert!(whole || self.is_torn_write(lnum, &found), "{what}: LEB {lnum} is wrong");
        }
    }

    fn is_torn_write(&self, lnum: u32, found: &[u8]) -> bool {
        let Some((writing, offset, len)) = self.writing else { return false };
        let old = self.now(lnum);
        writing == lnum
            && found[..offset] == old[..offset]
            && found[offset + len..].iter().all(|&byte| byte == 0xff)
    }
}

fn names(device: &UbiDevice<Ram>) -> BTreeMap<u32, String> {
    device.volumes().map(|v| (v.id, String::from_utf8(v.name).unwrap())).collect()
}

/// One step.
#[derive(Clone, Debug)]
enum Step {
    Write(u32, u8),
    Change(u32, u8, usize),
    Unmap(u32),
    Map(u32),
    Sync,
    Work(u32),
    Create(u32, &'static str),
    Rename(Vec<(u32, &'static str)>),
    Resize(u32, u32),
    Remove(u32),
    Update(u32, usize),
    Flip(u32),
    Weak(u32),
}

/// Does a step; `false` if power was lost.
fn step(device: &mut UbiDevice<Ram>, oracle: &mut Oracle, step: &Step) -> bool {
    let unit = device.write_size().max(64) as usize;
    let before = oracle.names.last().unwrap().clone();
    let mut after = before.clone();
    let result = match step {
        Step::Write(lnum, tag) => return write_next(device, oracle, *lnum, *tag, unit),
        Step::Change(lnum, tag, units) => {
            let bytes = data(*tag, units * unit);
            let mut whole = bytes.clone();
            whole.resize(oracle.leb_size, 0xff);
            oracle.may[*lnum as usize].push(whole.clone());
            let result = device.volume_mut(0).unwrap().change(*lnum, &bytes);
            if result.is_ok() {
                oracle.may[*lnum as usize] = vec![whole];
            }
            result.map_err(UbiError::Flash)
        }
        Step::Unmap(lnum) => {
            oracle.may[*lnum as usize].push(vec![0xff; oracle.leb_size]);
            device.volume_mut(0).unwrap().unmap(*lnum).map_err(UbiError::Flash)
        }
        Step::Map(lnum) => {
            let result = device.volume_mut(0).unwrap().map(*lnum);
            if result.is_ok() {
                let now = oracle.now(*lnum).clone();
                oracle.may[*lnum as usize] = vec![now];
            }
            result.map_err(UbiError::Flash)
        }
        Step::Sync => {
            let result = device.sync();
            if result.is_ok() {
                for may in &mut oracle.may {
                    *may = vec![may.last().unwrap().clone()];
                }
            }
            result
        }
        Step::Work(budget) => device.work(*budget).map(drop),
        Step::Create(id, name) => {
            after.insert(*id, (*name).into());
            oracle.names = vec![before, after.clone()];
            let new = NewVolume { id: Some(*id), ..NewVolume::dynamic(name.as_bytes(), LEBS) };
            device.create(&new).map(drop)
        }
        Step::Rename(names) => {
            let pairs: Vec<_> = names.iter().map(|(id, name)| (*id, name.as_bytes())).collect();
            after.retain(|id, old| {
                names.iter().any(|n| n.0 == *id) || !names.iter().any(|n| n.1 == old)
            });
            after.extend(names.iter().map(|(id, name)| (*id, String::from(*name))));
            oracle.names = vec![before, after.clone()];
            device.rename(&pairs)
        }
        Step::Resize(id, lebs) => device.resize(*id, *lebs),
        Step::Remove(id) => {
            after.remove(id);
            oracle.names = vec![before, after.clone()];
            device.remove(*id)
        }
        Step::Update(id, len) => update(device, *id, *len),
        Step::Flip(lnum) => {
            if let Some(peb) = device.lebs.peb_of(0, *lnum) {
                device.flash_mut().flipping.insert(peb);
                leb(device, 0, *lnum);
            }
            Ok(())
        }
        Step::Weak(lnum) => {
            let nand = device.flash().geometry().kind.is_nand();
            if let Some(peb) = device.lebs.peb_of(0, *lnum).filter(|_| nand) {
                device.flash_mut().weak.insert(peb);
            }
            Ok(())
        }
    };
    match result {
        Ok(()) => {
            oracle.names = vec![after];
            true
        }
        Err(UbiError::Flash(FlashError::PowerLost))
        | Err(UbiError::ReadOnly(FlashError::PowerLost)) => false,
        Err(error) => panic!("{step:?}: {error}"),
    }
}

/// Appends one unit to a LEB, or starts it again when it is full.
fn write_next(
    device: &mut UbiDevice<Ram>,
    oracle: &mut Oracle,
    lnum: u32,
    tag: u8,
    unit: usize,
) -> bool {
    let now = oracle.now(lnum).clone();
    let used = now.iter().rposition(|&byte| byte != 0xff).map_or(0, |last| last + 1);
    let offset = used.next_multiple_of(unit);
    if offset + unit > oracle.leb_size {
        return step(device, oracle, &Step::Change(lnum, tag, 1));
    }
    oracle.writing = Some((lnum, offset, unit));
    let bytes = data(tag, unit);
    match device.volume_mut(0).unwrap().write(lnum, offset as u32, &bytes) {
        Ok(()) => {
            oracle.writing = None;
            let mut whole = now;
            whole[offset..offset + unit].copy_from_slice(&bytes);
            oracle.may[lnum as usize] = vec![whole];
            true
        }
        Err(FlashError::PowerLost) => false,
        Err(error) => panic!("{error}"),
    }
}

fn update(device: &mut UbiDevice<Ram>, id: u32, len: usize) -> Result<(), UbiError> {
    let mut update = device.update(id, len as u64)?;
    update.write(&data(0x77, len))?;
    update.finish()
}

fn workload() -> Vec<Step> {
    let mut steps = vec![Step::Create(0, "root")];
    for round in 0..6_u8 {
        for lnum in 0..4 {
            steps.push(Step::Write(lnum, round * 8 + lnum as u8));
        }
        steps.push(Step::Change(4, round, 2));
        steps.push(Step::Unmap(u32::from(round) % 4));
        match round {
            0 => steps.push(Step::Create(5, "second")),
            1 => steps.extend([Step::Update(5, 5000), Step::Flip(4)]),
            2 => steps.push(Step::Rename(vec![(0, "second"), (5, "root")])),
            3 => steps.extend([Step::Weak(1), Step::Create(6, "third"), Step::Resize(5, 2)]),
            4 => steps.push(Step::Rename(vec![(6, "root")])),
            _ => steps.extend([Step::Resize(6, 3), Step::Remove(6), Step::Create(7, "new")]),
        }
        steps.extend([Step::Map(5), Step::Work(2), Step::Write(1, round), Step::Unmap(5)]);
        if round % 2 == 1 {
            steps.push(Step::Sync);
        }
    }
    steps
}

fn options() -> DeviceOptions {
    // Moves happen all the time.
    DeviceOptions { wear_threshold: 2, bad_per_1024: 100, fastmap: false, ..Default::default() }
}

/// Runs the workload with a cut; `false` if it ended before the cut.
fn run(flash: &Ram, fastmap: bool, at: u64, cut: Cut) -> bool {
    let options = DeviceOptions { fastmap, ..options() };
    let mut flash = flash.clone();
    flash.left = Some((at, cut));
    let what = std::format!("cut at {at}, {cut:?}");
    let mut device = UbiDevice::attach(flash, &options).unwrap();
    let mut oracle = Oracle::new(device.leb_size() as usize);
    let mut done = workload().iter().all(|one| step(&mut device, &mut oracle, one));
    if done && fastmap {
        done = device.close().is_ok();
    }
    let flash = device.into_flash().revived();
    if fastmap && agrees_with_a_scan(&flash, &options, &what) {
        BY_FASTMAP.fetch_add(1, Ordering::Relaxed);
    }
    let mut device =
        UbiDevice::attach(flash, &options).unwrap_or_else(|error| panic!("{what}: {error}"));
    oracle.check(&mut device, &what);
    go_on(device, &oracle, &what);
    !done
}

/// Attaches in which a fastmap was trusted.
static BY_FASTMAP: AtomicU64 = AtomicU64::new(0);

/// After a cut the device is intact again: the attach after the next finds nothing, and every LEB
/// can be written.
fn go_on(mut device: UbiDevice<Ram>, oracle: &Oracle, what: &str) {
    device.flash_mut().weak.clear();
    while device.work(100).unwrap_or_else(|error| panic!("{what}: {error}")) {}
    let mut device = UbiDevice::attach(device.into_flash(), &options()).unwrap();
    let findings = device.findings();
    assert!(findings.iter().all(|f| f.structure == "fastmap"), "{what}: {findings:?}");
    if device.info(0).is_none() {
        return;
    }
    let mut oracle = oracle.clone();
    oracle.check(&mut device, what);
    oracle.writing = None;
    oracle.names = vec![names(&device)];
    for lnum in 0..LEBS {
        assert!(step(&mut device, &mut oracle, &Step::Change(lnum, 0xee, 1)));
    }
    oracle.check(&mut device, what);
}

/// A new device with nothing pending, so that attaching changes nothing.
fn quiet(flash: Ram) -> Ram {
    let mut device = format(flash);
    device.sync().unwrap();
    device.into_flash()
}

fn every_cut(flash: Ram, fastmap: bool) -> u64 {
    let flash = quiet(flash);
    let mut cuts = 0;
    for cut in [Cut::Before, Cut::Torn, Cut::After] {
        let mut at = 0;
        while run(&flash, fastmap, at, cut) {
            at += 1;
        }
        assert!(at > 150, "{at} operations are no workload");
        cuts += at;
    }
    std::println!("{cuts} cuts on {:?}", flash.geometry().kind);
    cuts
}

#[test]
fn nand_survives_a_cut_at_every_operation() {
    every_cut(Ram::nand(40), false);
}

#[test]
fn nand_with_sub_pages_survives_a_cut_at_every_operation() {
    every_cut(Ram::sub_paged(40), false);
}

#[test]
fn nor_survives_a_cut_at_every_operation() {
    every_cut(Ram::nor(40), false);
}

#[test]
fn a_device_with_a_fastmap_survives_a_cut_at_every_operation() {
    let mut cuts = 0;
    // On 40 blocks the pools hold a few, on 100 what Linux gives them.
    for flash in [Ram::nand(40), Ram::nand(100), Ram::sub_paged(60), Ram::nor(60)] {
        cuts += every_cut(flash, true);
    }
    let by_fastmap = BY_FASTMAP.load(Ordering::Relaxed);
    std::println!("{by_fastmap} of {cuts} attaches by fastmap");
    // All but those before the first one was written, or after a block went bad.
    assert!(by_fastmap > cuts * 9 / 10, "{by_fastmap} of {cuts}");
}

/// Power is lost again while the effects of the first cut are repaired.
#[test]
fn a_second_cut_while_the_first_is_mended_loses_nothing() {
    let mut cuts = 0;
    for flash in [Ram::nand(40), Ram::nor(40)] {
        let flash = quiet(flash);
        for first in (0..200).step_by(3) {
            let mut flash = flash.clone();
            flash.left = Some((first, Cut::Torn));
            let mut device = UbiDevice::attach(flash, &options()).unwrap();
            let mut oracle = Oracle::new(device.leb_size() as usize);
            workload().iter().all(|one| step(&mut device, &mut oracle, one));
            let torn = device.into_flash().revived();
            for second in 0.. {
                let mut flash = torn.clone();
                flash.left = Some((second, Cut::Torn));
                let mended = UbiDevice::attach(&mut flash, &options())
                    .and_then(|mut device| device.work(1000));
                let what = std::format!("cuts at {first} and {second}");
                let mut device = UbiDevice::attach(flash.revived(), &options())
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                oracle.check(&mut device, &what);
                if mended.is_ok() {
                    break;
                }
                cuts += 1;
            }
        }
    }
    std::println!("{cuts} second cuts");
    assert!(cuts > 300);
}

/// A volume is removed or shrunk and created or grown again, with a cut in each: its earlier
/// content never appears.
#[test]
fn leftovers_never_enter_a_new_volume() {
    type Change = fn(&mut UbiDevice<&mut Ram>) -> Result<(), UbiError>;
    let cases: [(Change, Change, u32); 2] = [
        (|d| d.remove(0), |d| d.create(&NewVolume::dynamic(b"w", 6)).map(drop), 0),
        (|d| d.resize(0, 2), |d| d.resize(0, 6), 2),
    ];
    let mut full = format(Ram::nand(40));
    full.create(&NewVolume::dynamic(b"v", 6)).unwrap();
    (0..6).for_each(|lnum| change(&mut full, 0, lnum, &data(lnum as u8, 512)));
    full.sync().unwrap();
    let full = full.into_flash();
    let cut = |flash: &Ram, left: u64, step: Change| {
        let mut flash = flash.clone();
        flash.left = Some((left, Cut::Before));
        let done = UbiDevice::attach(&mut flash, &options()).and_then(|mut d| step(&mut d));
        (flash.revived(), done.is_ok())
    };
    for (shrink, grow, first_new) in cases {
        for left in 0.. {
            let (shrunk, is_shrunk) = cut(&full, left, shrink);
            for left in 0.. {
                let (flash, is_done) = cut(&shrunk, left, grow);
                let mut device = UbiDevice::attach(flash, &options()).unwrap();
                let info = device.info(0);
                let is_new = info.is_some_and(|v| v.name == b"w" || v.reserved_pebs == 6);
                let was_shrunk = cut(&shrunk, u64::MAX, |d| {
                    let size = d.info(0).map(|v| v.reserved_pebs);
                    if size == Some(6) { Err(UbiError::NoVolume(0)) } else { Ok(()) }
                });
                if is_new && was_shrunk.1 {
                    for lnum in first_new..6 {
                        let content = leb(&mut device, 0, lnum);
                        assert!(content.iter().all(|&byte| byte == 0xff), "{left}: LEB {lnum}");
                    }
                }
                if is_done || !was_shrunk.1 {
                    break;
                }
            }
            if is_shrunk {
                break;
            }
        }
    }
}

/// An interrupted update leaves the old content, none, or the new one with nothing of the old.
#[test]
fn an_update_is_whole_or_void() {
    let content = |device: &mut UbiDevice<Ram>| -> Vec<u8> {
        (0..6).flat_map(|lnum| leb(device, 0, lnum)).collect()
    };
    let mut device = format(Ram::nand(40));
    device.create(&NewVolume::dynamic(b"v", 6)).unwrap();
    (0..6).for_each(|lnum| change(&mut device, 0, lnum, &data(lnum as u8, 512)));
    device.sync().unwrap();
    let old = content(&mut device);
    let flash = device.into_flash();
    let mut seen = [0; 3];
    for cut in [Cut::Before, Cut::Torn, Cut::After] {
        for left in 0.. {
            let mut flash = flash.clone();
            flash.left = Some((left, cut));
            let done = UbiDevice::attach(&mut flash, &options()).and_then(|mut device| {
                let mut update = device.update(0, 4000)?;
                update.write(&data(0x77, 4000))?;
                update.finish()
            });
            let mut device = attach(flash.revived());
            if device.info(0).unwrap().update_marker {
                seen[1] += 1;
            } else {
                let found = content(&mut device);
                let new = found[..4000] == data(0x77, 4000)
                    && found[4000..].iter().all(|&byte| byte == 0xff);
                assert!(new || found == old, "{cut:?} at {left}");
                seen[if new { 2 } else { 0 }] += 1;
            }
            if done.is_ok() {
                break;
            }
        }
    }
    assert!(seen.iter().all(|&count| count > 2), "{seen:?}");
}

//! A repair killed at any write: run again, it leaves what an uninterrupted one leaves.

use alloc::rc::Rc;
use core::cell::RefCell;
use std::collections::BTreeMap;
use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use core::ops::ControlFlow;

use flysch_api::flash::{Corrected, FlashError};
use flysch_api::vfs::{self, FileKind, FileSystem};
use flysch_api::volume::{LebState, Volume, VolumeGeometry, VolumeMut};
use flysch_random::SplitMix64;

use super::tests::{Memory, NOW, ROOT, assert_sound, filled, spoil};
use super::{Level, repair, survey};
use crate::{OpenOptions, Ubifs};

const UNIT: usize = 512;

/// How much of a write is done when power is lost during it.
#[derive(Clone, Copy, Debug)]
enum Left {
    Nothing,
    /// The first half of a write, then one unit of noise; a LEB change in full.
    Half,
    /// All of it, and content given up since the last sync is back.
    All,
}

/// LEBs, and when power is lost.
#[derive(Debug)]
struct World {
    memory: Memory,
    operations: u64,
    cut: Option<(u64, Left)>,
    is_off: bool,
    /// Unmapped LEBs that are not erased yet.
    given_up: BTreeMap<u32, Vec<u8>>,
}

impl World {
    fn operate(&mut self) -> Result<Option<Left>, FlashError> {
        if self.is_off {
            return Err(FlashError::PowerLost);
        }
        self.operations += 1;
        let left = self.cut.filter(|(at, _)| *at + 1 == self.operations).map(|(_, left)| left);
        self.is_off = left.is_some();
        if let Some(Left::All) = left {
            for (lnum, bytes) in core::mem::take(&mut self.given_up) {
                self.memory.lebs[lnum as usize].get_or_insert(bytes);
            }
        }
        Ok(left)
    }

    fn done(&self) -> Result<(), FlashError> {
        if self.is_off { Err(FlashError::PowerLost) } else { Ok(()) }
    }
}

#[derive(Clone, Debug)]
struct Killed(Rc<RefCell<World>>);

impl Killed {
    fn over(memory: &Memory, cut: Option<(u64, Left)>) -> Self {
        let (memory, given_up) = (memory.clone(), BTreeMap::new());
        let world = World { memory, operations: 0, cut, is_off: false, given_up };
        Self(Rc::new(RefCell::new(world)))
    }
}

impl Volume for Killed {
    fn geometry(&self) -> VolumeGeometry {
        VolumeGeometry { write_size: Some(UNIT as u32), ..self.0.borrow().memory.geometry() }
    }

    fn state(&self, lnum: u32) -> LebState {
        self.0.borrow().memory.state(lnum)
    }

    fn read(&self, lnum: u32, offset: u32, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.0.borrow().memory.read(lnum, offset, buffer)
    }
}

impl VolumeMut for Killed {
    fn write(&mut self, lnum: u32, offset: u32, data: &[u8]) -> Result<(), FlashError> {
        let mut world = self.0.borrow_mut();
        match world.operate()? {
            None | Some(Left::All) => world.memory.write(lnum, offset, data)?,
            Some(Left::Nothing) => {}
            Some(Left::Half) => {
                let half = data.len() / 2 / UNIT * UNIT;
                let mut torn = data[..half + UNIT].to_vec();
                torn[half..].iter_mut().enumerate().for_each(|(at, byte)| *byte |= at as u8);
                world.memory.write(lnum, offset, &torn)?;
            }
        }
        world.done()
    }

    fn change(&mut self, lnum: u32, data: &[u8]) -> Result<(), FlashError> {
        let mut world = self.0.borrow_mut();
        if !matches!(world.operate()?, Some(Left::Nothing)) {
            world.memory.change(lnum, data)?;
            world.given_up.remove(&lnum);
        }
        world.done()
    }

    fn unmap(&mut self, lnum: u32) -> Result<(), FlashError> {
        let mut world = self.0.borrow_mut();
        if !matches!(world.operate()?, Some(Left::Nothing)) {
            let old = world.memory.lebs[lnum as usize].take();
            old.and_then(|bytes| world.given_up.insert(lnum, bytes));
        }
        world.done()
    }

    fn map(&mut self, lnum: u32) -> Result<(), FlashError> {
        let mut world = self.0.borrow_mut();
        if !matches!(world.operate()?, Some(Left::Nothing)) {
            world.memory.map(lnum)?;
            world.given_up.remove(&lnum);
        }
        world.done()
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        let mut world = self.0.borrow_mut();
        world.done()?;
        world.given_up.clear();
        Ok(())
    }
}

/// Every file by its path: kind, permissions, links, content, attributes.
type Tree = BTreeMap<String, (FileKind, u16, u32, Result<Vec<u8>, vfs::FsError>, Vec<Vec<u8>>)>;

fn tree(memory: &Memory) -> Tree {
    let fs = Ubifs::open(memory, &OpenOptions::default()).unwrap();
    let mut all = Tree::new();
    let mut open = vec![(String::new(), ROOT)];
    while let Some((path, inode)) = open.pop() {
        let found = fs.attributes(inode).unwrap();
        let mut content = vec![0; found.size as usize];
        let content = match found.kind {
            FileKind::Regular => fs.read(inode, 0, &mut content).map(|len| {
                content.truncate(len);
                content
            }),
            _ => Ok(vec![]),
        };
        if found.kind == FileKind::Directory {
            fs.list(inode, 0, &mut |entry| {
                open.push((format!("{path}/{}", entry.name.escape_ascii()), entry.inode));
                ControlFlow::Continue(())
            })
            .unwrap();
        }
        let mut xattrs = vec![];
        fs.list_xattrs(inode, &mut |name| xattrs.push(name.to_vec())).unwrap();
        all.insert(path, (found.kind, found.permissions, found.links, content, xattrs));
    }
    all
}

fn differences<'t>(expected: &'t Tree, found: &'t Tree) -> impl Iterator<Item = String> + 't {
    let all = expected.keys().chain(found.keys().filter(|path| !expected.contains_key(*path)));
    let differs = |path: &&String| expected.get(*path) != found.get(*path);
    let there =
        |tree: &Tree, path| tree.get(path).map(|it| (it.0, it.2, it.3.clone().map(|it| it.len())));
    all.filter(differs).map(move |path| {
        format!("{path} is {:?}, not {:?}", there(found, path), there(expected, path))
    })
}

/// Cuts the repair of `damaged` at every write; returns the number of writes.
fn cut_everywhere(damaged: &Memory, what: &str) -> u64 {
    let mut wrong = vec![];
    let Some(level) = survey(damaged).unwrap().level else { return 0 };
    let whole = Killed::over(damaged, None);
    let (whole, _) = repair(whole, level, NOW).unwrap_or_else(|it| panic!("{what}: {it}"));
    let whole = whole.0.take_world();
    let expected = tree(&whole.memory);
    for at in 0..whole.operations {
        let left = [Left::Nothing, Left::Half, Left::All][at as usize % 3];
        let what = format!("{what}, {level}, write {at} of {}, {left:?}", whole.operations);
        let killed = Killed::over(damaged, Some((at, left)));
        assert!(repair(killed.clone(), level, NOW).is_err(), "{what}");
        let half = killed.0.take_world().memory;
        let again = survey(&half).unwrap_or_else(|it| panic!("{what}: {it}"));
        if again.level > Some(level) {
            let first = again.changes.iter().find(|it| it.level > level);
            wrong.push(format!("{what}: takes {first:?}"));
        }
        match repair(half, Level::DangerRebuild, NOW) {
            Ok((done, _)) => {
                assert_sound(&done, &what);
                wrong
                    .extend(differences(&expected, &tree(&done)).map(|it| format!("{what}: {it}")));
            }
            Err(error) => wrong.push(format!("{what}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    whole.operations
}

trait TakeWorld {
    fn take_world(&self) -> World;
}

impl TakeWorld for Rc<RefCell<World>> {
    fn take_world(&self) -> World {
        let (given_up, cut) = (BTreeMap::new(), None);
        let memory = Memory { leb_size: 0, lebs: vec![] };
        let empty = World { memory, operations: 0, cut, is_off: true, given_up };
        self.replace(empty)
    }
}

#[test]
fn a_repair_that_was_killed_anywhere_is_made_again() {
    let good = filled();
    let layout = Ubifs::open(&good, &OpenOptions::default()).unwrap().store.layout.clone();
    let mut writes = 0;
    // One LEB of each kind, with its first bytes destroyed.
    let is_index = |lnum: u32| good.lebs[lnum as usize].as_ref().is_some_and(|leb| leb[20] == 9);
    let is_there = |lnum: &u32| good.lebs[*lnum as usize].is_some();
    let first = |mut lebs: core::ops::Range<u32>| lebs.find(is_there).unwrap();
    let index = layout.main.clone().find(|lnum| is_index(*lnum)).unwrap();
    let data = layout.main.clone().find(|lnum| is_there(lnum) && !is_index(*lnum)).unwrap();
    for lnum in [first(layout.log.clone()), first(layout.lpt.clone()), index, data] {
        let mut memory = good.clone();
        memory.lebs[lnum as usize].as_mut().unwrap()[..600].fill(0x5A);
        writes += cut_everywhere(&memory, &format!("LEB {lnum}"));
    }
    let mut memory = good.clone();
    memory.lebs[1..3].iter_mut().flatten().for_each(|leb| leb.fill(4));
    writes += cut_everywhere(&memory, "master nodes");
    let mut random = SplitMix64::new(1);
    for round in 0..12 {
        let memory = spoil(good.clone(), &mut random);
        writes += cut_everywhere(&memory, &format!("round {round}"));
    }
    assert!(writes > 100, "{writes}");
}

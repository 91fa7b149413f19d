//! Power cuts after every sector that a verb writes, for every class except PART and RAID, which
//! have their own tests.

use alloc::boxed::Box;
use alloc::rc::Rc;
use core::cell::{Cell, RefCell};
use std::prelude::rust_2024::*;
use std::{assert, assert_eq, format, vec};

use flysch_api::block::BlockError as IoError;
use flysch_wire::geom::mirror::Balance;
use flysch_wire::geom::multipath::Mode;

use super::disk::MD;
use super::{Object, cache, concat, label, mirror, multipath, stripe};
use crate::io::{Medium, Shape};
use crate::{GeomError, GeomId, Graph, ProviderId, all};

const SIZE: usize = 64 << 10;

/// A disk. All disks of a test share one power supply, which may fail after some number of sectors.
#[derive(Clone, Debug)]
struct Platter {
    bytes: Rc<RefCell<Vec<u8>>>,
    power: Rc<Cell<Option<u64>>>,
    /// Something was to be written after the power failed.
    missed: Rc<Cell<bool>>,
}

impl Medium for Platter {
    fn shape(&self) -> Shape {
        let media_size = self.bytes.borrow().len() as u64;
        Shape { media_size, sector_size: 512, stripe_size: 0, stripe_offset: 0 }
    }

    fn read(&mut self, offset: u64, to: &mut [u8]) -> Result<(), IoError> {
        to.copy_from_slice(&self.bytes.borrow()[offset as usize..offset as usize + to.len()]);
        Ok(())
    }

    fn write(&mut self, offset: u64, from: &[u8]) -> Result<(), IoError> {
        for (sector, at) in from.chunks(512).zip((offset as usize..).step_by(512)) {
            if let Some(left) = self.power.get() {
                self.missed.set(self.missed.get() || left == 0);
                self.power.set(Some(left.checked_sub(1).ok_or(IoError::Gone)?));
            }
            self.bytes.borrow_mut()[at..at + 512].copy_from_slice(sector);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// The contents of all disks, and which of them are seen over several paths.
#[derive(Clone)]
struct Disks {
    contents: Vec<Vec<u8>>,
    paths: usize,
}

impl Disks {
    /// A graph over copies of the disks that are present, called `d0` and so on.
    fn graph(&self, away: &[usize]) -> (Graph, Vec<Platter>) {
        let (power, missed) = (Rc::default(), Rc::default());
        let platter = |bytes: &Vec<u8>| Platter {
            bytes: Rc::new(RefCell::new(bytes.clone())),
            power: Rc::clone(&power),
            missed: Rc::clone(&missed),
        };
        let platters: Vec<Platter> = self.contents.iter().map(platter).collect();
        let mut graph = Graph::new(&all(), 3);
        for (number, platter) in platters.iter().enumerate() {
            for path in 0..self.paths {
                if !away.contains(&number) {
                    let name = format!("d{}", number * self.paths + path);
                    MD.insert(&mut graph, &name, Box::new(platter.clone())).unwrap();
                }
            }
        }
        graph.settle();
        (graph, platters)
    }

    fn after(&self, platters: &[Platter]) -> Self {
        let contents = platters.iter().map(|it| it.bytes.borrow().clone()).collect();
        Self { contents, paths: self.paths }
    }
}

/// What a user sees of the array: its providers, and what listings show of them.
fn seen(disks: &Disks, away: &[usize]) -> String {
    let (graph, _) = disks.graph(away);
    let mut seen = String::new();
    for (id, geom) in graph.objects().geoms() {
        let class = geom.class;
        if matches!(class.name(), "MD" | "DEV") || geom.providers.is_empty() {
            continue;
        }
        let told = |object| {
            let kept = ["Components", "State", "Balance", "Slice", "Flags", "Mode", "Priority"];
            let config = class.config(&graph, object).into_iter();
            config.filter(|(key, _)| kept.contains(key)).collect::<Vec<_>>()
        };
        for &provider in &geom.providers {
            let there = &graph[provider];
            seen += &format!("{} {} {:?}", there.name, there.media_size, told(Object::Geom(id)));
        }
        for &consumer in &geom.consumers {
            let under = graph[consumer].provider.map(|it| graph[it].name.clone());
            seen += &format!(" {under:?} {:?}", told(Object::Consumer(consumer)));
        }
        seen += "\n";
    }
    seen
}

/// A verb, and the disks that are missing while it runs.
type Verb = (&'static str, &'static [usize], fn(&mut Graph) -> Result<(), GeomError>);

/// Runs one verb after the other, each cut after every sector.
fn cut(disks: Disks, verbs: &[Verb]) {
    let mut disks = disks;
    for &(name, away, verb) in verbs {
        let old = seen(&disks, away);
        let (mut graph, platters) = disks.graph(away);
        verb(&mut graph).unwrap_or_else(|error| std::panic!("{name}: {error}"));
        let whole = disks.after(&platters);
        let new = seen(&whole, away);
        for left in 0.. {
            let (mut graph, platters) = disks.graph(away);
            platters[0].power.set(Some(left));
            let is_done = verb(&mut graph).is_ok() && !platters[0].missed.get();
            let state = seen(&disks.after(&platters), away);
            assert!(
                state == old || state == new,
                "{name} cut after {left}:\n{state}old:\n{old}new:\n{new}"
            );
            if is_done {
                assert_eq!(state, new, "{name}");
                break;
            }
        }
        disks = whole;
    }
}

fn under(graph: &Graph, numbers: &[usize]) -> Vec<ProviderId> {
    numbers.iter().map(|number| graph.provider(&format!("d{number}")).unwrap()).collect()
}

fn blank(count: usize, paths: usize) -> Disks {
    // Sizes differ, so that the last write shows which disk it went to.
    let contents = (0..count).map(|number| vec![0; SIZE + 512 * number]).collect();
    Disks { contents, paths }
}

fn gm(graph: &Graph) -> Result<GeomId, GeomError> {
    graph.geom("MIRROR", "gm")
}

fn rebuild(graph: &mut Graph) -> Result<(), GeomError> {
    let geom = gm(graph)?;
    mirror::synchronize(graph, geom, &mut |_, _| {}).map(drop)
}

const OPTIONS: mirror::MirrorOptions = mirror::MirrorOptions {
    balance: Balance::Load,
    slice: 4096,
    no_auto_sync: false,
    no_fail_sync: false,
    hardcode: false,
    force: false,
};

/// Each component records the provider name by which it is accepted: whichever records exist when
/// power fails, the mirror is whole.
#[test]
fn names_are_written_down_one_after_the_other() {
    let disks = blank(3, 1);
    let (mut graph, platters) = disks.graph(&[]);
    let three = under(&graph, &[0, 1, 2]);
    mirror::label(&mut graph, "gm", &three, &OPTIONS).unwrap();
    let mut disks = disks.after(&platters);
    for hardcode in [true, false] {
        let change = mirror::Configure { hardcode: Some(hardcode), ..Default::default() };
        for left in 0..=3 {
            let (mut graph, platters) = disks.graph(&[]);
            platters[0].power.set(Some(left));
            let geom = gm(&graph).unwrap();
            let _ = mirror::configure(&mut graph, geom, &change);
            let after = seen(&disks.after(&platters), &[]);
            assert!(after.contains("COMPLETE"), "{after}");
            let says = after.matches("HARDCODED").count();
            let done = left as usize;
            assert_eq!(says, if hardcode { done } else { 3 - done }, "{after}");
            if left == 3 {
                disks = disks.after(&platters);
                break;
            }
        }
    }
}

#[test]
fn verbs_of_mirrors_leave_the_old_or_the_new() {
    let label: fn(&mut Graph) -> Result<(), GeomError> = |graph| {
        let three = under(graph, &[0, 1, 2]);
        mirror::label(graph, "gm", &three, &mirror::MirrorOptions::default())
    };
    let verbs: &[Verb] = &[
        ("label", &[], label),
        ("destroy", &[], |graph| mirror::destroy(graph, gm(graph)?, false)),
        ("label anew", &[], label),
        ("configure", &[], |graph| {
            let balance = Some(Balance::Prefer);
            let change = mirror::Configure { balance, slice: Some(8192), ..Default::default() };
            mirror::configure(graph, gm(graph)?, &change)
        }),
        ("prefer", &[], |graph| mirror::prefer(graph, gm(graph)?, "d0", 9)),
        ("remove", &[], |graph| mirror::remove(graph, gm(graph)?, "d1")),
        ("insert", &[], |graph| {
            let third = under(graph, &[3]);
            mirror::insert(graph, gm(graph)?, &third, (1, true, false))
        }),
        ("remove what is being rebuilt", &[], |graph| mirror::remove(graph, gm(graph)?, "d3")),
        ("insert again", &[], |graph| {
            let third = under(graph, &[3]);
            mirror::insert(graph, gm(graph)?, &third, (1, true, false))
        }),
        ("synchronize", &[], rebuild),
        ("resize", &[], |graph| {
            let size = Some(SIZE as u64 / 2);
            mirror::resize(graph, gm(graph)?, size)
        }),
        ("resize back", &[], |graph| mirror::resize(graph, gm(graph)?, None)),
        ("forget", &[0], |graph| mirror::forget(graph, gm(graph)?)),
        ("deactivate", &[0], |graph| mirror::deactivate(graph, gm(graph)?, "d2")),
        ("activate", &[0], |graph| {
            let it = under(graph, &[2])[0];
            mirror::activate(graph, gm(graph)?, it)
        }),
        ("synchronize the activated", &[0], rebuild),
        ("rebuild", &[0], |graph| mirror::rebuild(graph, gm(graph)?, "d3")),
        ("synchronize once more", &[0], rebuild),
        ("destroy in the end", &[0], |graph| mirror::destroy(graph, gm(graph)?, false)),
        ("label with a spare to come", &[0], |graph| {
            let two = under(graph, &[1, 2]);
            mirror::label(graph, "gm", &two, &mirror::MirrorOptions { force: true, ..OPTIONS })
        }),
        ("spare", &[0], |graph| {
            let third = under(graph, &[3]);
            mirror::spare(graph, gm(graph)?, &third, (0, false, true))
        }),
        ("take the spare", &[0, 1], |graph| {
            let geom = gm(graph)?;
            mirror::take_spares(graph, geom).map(drop)
        }),
        ("synchronize the spare", &[0, 1], rebuild),
        ("destroy with the spare", &[0, 1], |graph| mirror::destroy(graph, gm(graph)?, false)),
        ("clear what was forgotten", &[], |graph| {
            let it = under(graph, &[0])[0];
            mirror::destroy(graph, gm(graph)?, false)?;
            assert!(mirror::clear(graph, it).is_err());
            Ok(())
        }),
    ];
    cut(blank(4, 1), verbs);
}

#[test]
fn verbs_of_labels_stripes_and_concatenations_leave_the_old_or_the_new() {
    let verbs: &[Verb] = &[
        ("label", &[], |graph| {
            let it = under(graph, &[0])[0];
            label::label(graph, "name", it, false)
        }),
        ("label clear", &[], |graph| {
            let (it, geom) = (under(graph, &[0])[0], label::find(graph, "name")?);
            super::destroy(graph, geom, false)?;
            super::clear(graph, "LABEL", it)
        }),
        ("stripe label", &[], |graph| {
            let three = under(graph, &[0, 1, 2]);
            stripe::label(graph, "it", &three, &stripe::StripeOptions::default())
        }),
        ("stripe clear", &[], |graph| {
            let geom = graph.geom("STRIPE", "it")?;
            stripe::stop(graph, geom, false)?;
            under(graph, &[0, 1, 2])
                .into_iter()
                .try_for_each(|it| super::clear(graph, "STRIPE", it))
        }),
        ("concat label", &[], |graph| {
            let three = under(graph, &[2, 0, 1]);
            concat::label(graph, "it", &three, &concat::ConcatOptions::default())
        }),
        ("concat append", &[], |graph| {
            let (geom, two) = (graph.geom("CONCAT", "it")?, under(graph, &[3, 4]));
            concat::append(graph, geom, &two, &concat::ConcatOptions::default())
        }),
        ("concat clear", &[], |graph| {
            let geom = graph.geom("CONCAT", "it")?;
            concat::stop(graph, geom, false)?;
            under(graph, &[0, 1, 2, 3, 4])
                .into_iter()
                .try_for_each(|it| super::clear(graph, "CONCAT", it))
        }),
    ];
    cut(blank(5, 1), verbs);
}

#[test]
fn verbs_of_caches_leave_the_old_or_the_new() {
    let verbs: &[Verb] = &[
        ("label", &[], |graph| {
            let it = under(graph, &[0])[0];
            let options = cache::CacheOptions { block_size: 4096, size: 100 };
            cache::label(graph, "it", it, (options, false))
        }),
        ("clear", &[], |graph| {
            let (it, geom) = (under(graph, &[0])[0], graph.geom("CACHE", "it")?);
            super::destroy(graph, geom, false)?;
            super::clear(graph, "CACHE", it)
        }),
    ];
    cut(blank(1, 1), verbs);
}

/// Components whose append was interrupted can be added again, and what is offered meanwhile does
/// not depend on the order in which the components are seen.
#[test]
fn an_append_that_was_cut_is_done_once_more() {
    let disks = blank(4, 1);
    let (mut graph, platters) = disks.graph(&[]);
    let two = under(&graph, &[2, 1]);
    concat::label(&mut graph, "it", &two, &concat::ConcatOptions::default()).unwrap();
    let whole = disks.after(&platters);
    let append = |graph: &mut Graph| {
        let (geom, more) = (graph.geom("CONCAT", "it")?, under(graph, &[0]));
        concat::append(graph, geom, &more, &concat::ConcatOptions::default())
    };
    // The new component and the second one are written, the first one is not.
    let (mut graph, platters) = whole.graph(&[]);
    platters[0].power.set(Some(2));
    assert!(append(&mut graph).is_err());
    let cut = whole.after(&platters);
    let size = |graph: &Graph| graph[graph.provider("concat/it").unwrap()].media_size;
    for late in 0..3 {
        let (mut graph, _) = cut.graph(&[late]);
        assert_eq!(graph.provider("concat/it").is_ok(), late == 0, "without {late}");
        let bytes = cut.contents[late].clone();
        let platter = Platter {
            bytes: Rc::new(RefCell::new(bytes)),
            power: Rc::default(),
            missed: Rc::default(),
        };
        MD.insert(&mut graph, &format!("d{late}"), Box::new(platter)).unwrap();
        graph.settle();
        let two = (SIZE + 512 + SIZE + 1024 - 1024) as u64;
        assert_eq!(size(&graph), two, "{late} comes last");
    }
    let (mut graph, platters) = cut.graph(&[]);
    append(&mut graph).unwrap();
    assert_eq!(size(&graph), (3 * SIZE) as u64);
    let (graph, _) = cut.after(&platters).graph(&[]);
    assert_eq!(size(&graph), (3 * SIZE) as u64);
}

#[test]
fn verbs_of_multipaths_leave_the_old_or_the_new() {
    let verbs: &[Verb] = &[
        ("label", &[], |graph| {
            let two = under(graph, &[0, 1]);
            multipath::label(graph, "mp", &two, (Mode::ActivePassive, false))
        }),
        ("configure", &[], |graph| {
            let geom = graph.geom("MULTIPATH", "mp")?;
            multipath::configure(graph, geom, Mode::ActiveActive)
        }),
        ("destroy", &[], |graph| {
            let geom = graph.geom("MULTIPATH", "mp")?;
            multipath::destroy(graph, geom, false)
        }),
        ("label anew", &[], |graph| {
            let two = under(graph, &[0, 1]);
            multipath::label(graph, "mp", &two, (Mode::ActiveRead, false))
        }),
        ("clear", &[], |graph| {
            let (it, geom) = (under(graph, &[0])[0], graph.geom("MULTIPATH", "mp")?);
            multipath::stop(graph, geom, false)?;
            multipath::clear(graph, it)
        }),
    ];
    cut(blank(1, 2), verbs);
}

//! Lookups that start at the lowest level find what a walk down the tree finds.

use std::format;
use std::string::String;
use std::vec::Vec;

use core::ops::ControlFlow;
use flysch_wire::ubifs::{Branch, Key};

use super::builder::{Image, file, root};
use crate::access::Fault;
use crate::index::{Visit, location};
use crate::location::Location;
use crate::overlay::Overlay;

#[derive(Default)]
struct Found {
    leaves: Vec<(Key, Location)>,
    index_nodes: usize,
}

impl Visit for Found {
    fn node(&mut self, _: Location, _: &flysch_wire::ubifs::Index<'_>) -> ControlFlow<()> {
        self.index_nodes += 1;
        ControlFlow::Continue(())
    }

    fn leaf(&mut self, branch: &Branch<'_>, _: Location) -> ControlFlow<()> {
        self.leaves.push((branch.key, location(branch)));
        ControlFlow::Continue(())
    }

    fn lost(&mut self, fault: Fault, _: Key, _: Key) -> ControlFlow<()> {
        panic!("{fault:?}");
    }
}

#[test]
fn both_ways_lead_to_the_same_leaves() {
    let mut image = Image::new();
    image.superblock.key_hash = 1;
    let names: Vec<String> = (0..20)
        .map(|number| format!("same-{number}"))
        .chain((0..25).map(|number| format!("{number:02}-other")))
        .collect();
    let list: Vec<&str> = names.iter().map(String::as_str).collect();
    image.commit(&root(&list, 0));
    for (number, name) in (64..).zip(&list) {
        image.commit(&image.entry(1, name, number));
        image.commit(&file(number as u32, 0));
    }
    image.finish_commit();
    let fs = image.open();
    let store = &fs.store;
    let index = store.index.as_ref().expect("a good index");
    let place = (&store.access, &store.layout);

    let mut all = Found::default();
    let _ = index.walk(place, &Overlay::default(), (Key::MIN, Key::MAX), &mut all);
    assert_eq!(all.leaves.len(), 91);
    let mut masked = Overlay::default();
    masked.mask(all.leaves[30].0, all.leaves[52].0);
    let mut bounds: Vec<Key> = all.leaves.iter().map(|leaf| leaf.0).collect();
    bounds.extend(all.leaves.iter().map(|leaf| leaf.0.next()));
    bounds.extend([Key::MIN, Key::MAX]);
    let mut nodes = (0, 0);
    for overlay in [Overlay::default(), masked] {
        for &first in &bounds {
            for &last in &bounds {
                let (mut down, mut low) = (Found::default(), Found::default());
                let _ = index.walk(place, &overlay, (first, last), &mut down);
                let _ = index.leaves(place, &overlay, (first, last), &mut low);
                assert_eq!(down.leaves, low.leaves, "{first:?} to {last:?}");
                nodes = (nodes.0 + down.index_nodes, nodes.1 + low.index_nodes);
            }
        }
    }
    assert!(nodes.1 < nodes.0, "{} index nodes instead of {}", nodes.1, nodes.0);
}

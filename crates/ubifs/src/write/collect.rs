//! Garbage collection: nodes in use move together, their LEB becomes empty.
//!
//! Nodes are copied as they are, sequence number included, to the garbage collection head, which
//! always has an empty LEB in reserve; the LEB emptied becomes the next reserve.

use alloc::boxed::Box;
use alloc::vec::Vec;

use flysch_api::vfs::Error;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{DATA_NODE_SIZE, EntryKind, Key, KeyKind, Node, align8};

use super::{GC, Stop, UbifsMut};
use crate::access::{Location, Scratch};
use crate::scan::{Item, Scan};

/// A node in use.
struct Live {
    key: Key,
    at: Location,
    /// Entries only.
    name: Option<(EntryKind, Box<[u8]>)>,
}

impl<V: VolumeMut> UbifsMut<V> {
    /// Collects garbage until there is room for `length` bytes at a head.
    pub(super) fn collect_for(&mut self, head: usize, length: u32) -> Result<(u32, u32), Stop> {
        let least = (DATA_NODE_SIZE as u32 + 8).next_multiple_of(self.fs.store.unit());
        for _ in 0..2 * self.space.len() {
            self.collect_one(least)?;
            if let Some(place) = self.find_space(head, length) {
                return Ok(place);
            }
        }
        Err(Stop::Full)
    }

    /// Empties the LEB with the least in it, if at least `least` bytes of it are not in use.
    pub(super) fn collect_one(&mut self, least: u32) -> Result<(), Stop> {
        let leb_size = self.fs.store.leb_size();
        let victim = self
            .space
            .lebs()
            .filter(|(_, leb)| !leb.taken && !leb.index && !leb.reserved && leb.used > 0)
            .filter(|(_, leb)| leb_size - leb.used >= least)
            .min_by_key(|(_, leb)| leb.used)
            .map(|(lnum, _)| lnum);
        let Some(victim) = victim else { return Err(Stop::Full) };
        self.empty(victim)
    }

    /// Moves everything in use out of a LEB.
    pub(super) fn empty(&mut self, victim: u32) -> Result<(), Stop> {
        let place = self.fs.store.access.place(victim, 0);
        let mut scratch = Scratch::new();
        let leb = self.fs.store.access.leb(victim, &mut scratch);
        let content: Vec<u8> = leb.map_err(|_| Error::Medium(place))?.into();
        let mut live = self.live_nodes(victim, &content)?;
        // Content of a file lies together, in its order; what is small fills the end.
        live.sort_by_key(|node| (node.key.kind() != KeyKind::Data, node.key));
        let auth_size = self.auth_size();
        let mut is_open = false;
        for node in live {
            let length = align8(node.at.length);
            if !self.has_room(GC, length + auth_size) {
                if is_open {
                    self.authenticate_moved()?;
                }
                self.switch_gc_head()?;
            }
            let mut bytes: Vec<u8> = content[node.at.offset as usize..]
                .iter()
                .take(node.at.length as usize)
                .copied()
                .collect();
            bytes.resize(length as usize, 0);
            let to = Location { length: node.at.length, ..self.append(GC, &bytes)? };
            if let Some(auth) = &mut self.fs.store.auth {
                auth.journal(GC, to, &bytes);
                is_open = true;
            }
            self.space.release(node.at);
            self.space.acquire(to);
            let overlay = &mut self.fs.store.overlay;
            match node.name {
                Some((_, name)) => overlay.move_name(node.key, &name, Some(node.at), Some(to)),
                None => overlay.set(node.key, to),
            }
        }
        if is_open {
            self.authenticate_moved()?;
        }
        if self.space.leb(victim).used != 0 {
            return Err(Error::Damaged { structure: "LEB properties", place }.into());
        }
        // Not before the copies are on the flash, and whatever made other nodes there needless.
        self.sync_heads()?;
        self.fs.store.access.unmap_leb(victim)?;
        let leb_size = self.fs.store.leb_size();
        let reserve = self.gc_leb().is_none();
        self.space.change(victim, |leb| {
            leb.free = leb_size;
            leb.reserved = reserve;
        });
        Ok(())
    }

    /// Lets the garbage collection head go on in the reserve.
    fn switch_gc_head(&mut self) -> Result<(), Stop> {
        let Some(reserve) = self.gc_leb() else { return Err(Stop::Commit) };
        self.switch_head(GC, reserve, 0)
    }

    /// The nodes of a LEB that are in use.
    fn live_nodes(&self, lnum: u32, content: &[u8]) -> Result<Vec<Live>, Error> {
        let store = &self.fs.store;
        let mut live = Vec::new();
        for item in Scan::new(content, 0) {
            let Item::Node { offset, header, bytes } = item else { continue };
            let at = Location { lnum, offset, length: header.length };
            let Ok(node) = Node::decode(header, bytes, store.format()) else { continue };
            let (key, name) = match node {
                Node::Inode(node) => (node.key, None),
                Node::Data(node) => (node.key, None),
                Node::Entry(node) => (node.key, Some((node.kind, node.name))),
                _ => continue,
            };
            let current = match name {
                Some((kind, name)) => {
                    store.find_name(kind, key.inode(), name)?.map(|found| found.0)
                }
                None => store.find(key)?,
            };
            if current == Some(at) {
                if let Some(auth) = &store.auth {
                    store.prove(auth, at, (header.kind, bytes))?;
                }
                live.push(Live { key, at, name: name.map(|(kind, name)| (kind, name.into())) });
            }
        }
        Ok(live)
    }
}

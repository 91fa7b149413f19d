//! Garbage collection: moves nodes in use together and empties their LEBs.
//!
//! Nodes are copied unchanged, including their sequence numbers, to the garbage collection head,
//! which always has an empty LEB in reserve; the emptied LEB becomes the next reserve.

use alloc::boxed::Box;
use alloc::vec::Vec;

use flysch_api::vfs::{Damage, FsError};
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{DATA_NODE_SIZE, EntryKind, Key, KeyKind, Node, align8};

use super::heads::{Heads, auth_size};
use super::journal::Journal;
use super::{GC, Stop};
use crate::location::Location;
use crate::scan::{Item, Scan};

/// A node in use.
struct Live {
    key: Key,
    at: Location,
    /// For entries: which kind, and the name.
    name: Option<(EntryKind, Box<[u8]>)>,
}

/// The state that making room for a journal head changes: buds, the flash, the accounting of LEBs,
/// and the places of moved nodes.
#[derive(Debug)]
pub(super) struct Collector<'s, V> {
    pub(super) heads: Heads<'s, V>,
    pub(super) journal: &'s mut Journal,
}

impl<V: VolumeMut> Collector<'_, V> {
    /// Moves a head to a LEB with room for `length` bytes; `kept` empty LEBs are left for the
    /// index.
    pub(super) fn open_bud(&mut self, head: usize, length: u32, kept: u64) -> Result<(), Stop> {
        let place = match self.heads.find_space(head, length, kept)? {
            Some(place) => place,
            None => self.collect_for(head, length, kept)?,
        };
        self.journal.switch_head(&mut self.heads, head, place)
    }

    /// Fewest unused bytes that make it worth collecting a LEB: room for the smallest node of
    /// content.
    pub(super) fn least(&self) -> u32 {
        (DATA_NODE_SIZE as u32 + 8).next_multiple_of(self.heads.store.unit())
    }

    /// Collects garbage until a head has room for `length` bytes.
    fn collect_for(&mut self, head: usize, length: u32, kept: u64) -> Result<(u32, u32), Stop> {
        for _ in 0..2 * self.heads.space.len() {
            self.collect_one(self.least())?;
            if let Some(place) = self.heads.find_space(head, length, kept)? {
                return Ok(place);
            }
        }
        Err(Stop::Full)
    }

    /// Empties the LEB with the fewest bytes in use, if at least `least` bytes of it are unused.
    pub(super) fn collect_one(&mut self, least: u32) -> Result<(), Stop> {
        let victim = self.heads.space.victim(least).ok_or(Stop::Full)?;
        self.empty(victim)
    }

    /// Moves the garbage collection head to `into`, and empties a LEB there.
    pub(super) fn squeeze(&mut self, victim: u32, into: (u32, u32)) -> Result<(), Stop> {
        self.journal.switch_head(&mut self.heads, GC, into)?;
        self.empty(victim)
    }

    /// Moves all nodes in use out of a LEB.
    fn empty(&mut self, victim: u32) -> Result<(), Stop> {
        let content = self.heads.store.access.whole_leb(victim)?;
        let mut live = self.live_nodes(victim, &content)?;
        // A file's content stays together, in order; small nodes fill the end.
        live.sort_by_key(|node| (node.key.kind() != KeyKind::Data, node.key));
        let auth_size = auth_size(self.heads.store);
        let mut is_open = false;
        for node in live {
            let length = align8(node.at.length);
            if !self.heads.has_room(GC, length + auth_size) {
                if is_open {
                    self.heads.authenticate_moved()?;
                }
                self.switch_gc_head()?;
            }
            let mut bytes: Vec<u8> = content[node.at.offset as usize..]
                .iter()
                .take(node.at.length as usize)
                .copied()
                .collect();
            bytes.resize(length as usize, 0);
            let to = Location { length: node.at.length, ..self.heads.append(GC, &bytes)? };
            if let Some(auth) = &mut self.heads.store.auth {
                auth.journal(GC, to, &bytes);
                is_open = true;
            }
            self.heads.space.release(node.at);
            self.heads.space.acquire(to);
            let overlay = &mut self.heads.store.overlay;
            match node.name {
                Some((_, name)) => overlay.move_name(node.key, &name, Some(node.at), Some(to)),
                None => overlay.set(node.key, to),
            }
        }
        if is_open {
            self.heads.authenticate_moved()?;
        }
        if self.heads.space.leb(victim).used != 0 {
            let place = self.heads.store.access.place(victim, 0);
            let cause = Damage::Field("free and dirty bytes");
            return Err(FsError::Damaged { structure: "LEB properties", place, cause }.into());
        }
        // Only once the copies, and whatever made the other nodes obsolete, are on the flash.
        self.heads.sync_heads()?;
        self.heads.store.access.unmap_leb(victim)?;
        let leb_size = self.heads.store.leb_size();
        let reserve = self.heads.space.gc_leb().is_none();
        self.heads.space.change(victim, |leb| {
            leb.free = leb_size;
            leb.reserved = reserve;
        });
        Ok(())
    }

    /// Moves the garbage collection head to the reserve.
    fn switch_gc_head(&mut self) -> Result<(), Stop> {
        let reserve = self.heads.space.gc_leb().ok_or(Stop::Commit)?;
        self.journal.switch_head(&mut self.heads, GC, (reserve, 0))
    }

    /// The nodes of a LEB that are in use.
    fn live_nodes(&self, lnum: u32, content: &[u8]) -> Result<Vec<Live>, FsError> {
        let store = &*self.heads.store;
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

//! The master node, which says which state counts.

use alloc::vec::Vec;

use flysch_api::vfs::FsError;
use flysch_api::volume::VolumeMut;
use flysch_wire::ubifs::{
    Group, MASTER_HMAC, MASTER_LEB, MASTER_NODE_SIZE, Master, MasterFlags, Node,
};

use super::buffered::{Buffered, pad};
use crate::store::Store;

/// The master area: two LEBs with the same nodes, of which the last counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct MasterArea {
    /// The node written last.
    pub(super) node: Master,
    /// Where it lies in both LEBs.
    pub(super) offset: u32,
}

impl MasterArea {
    /// Bytes that a node occupies.
    pub(super) fn size<V: VolumeMut>(store: &Store<Buffered<V>>) -> u32 {
        (MASTER_NODE_SIZE as u32).next_multiple_of(store.unit())
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.node.flags.contains(MasterFlags::DIRTY)
    }

    /// Appends a node to both LEBs, first LEB first.
    pub(super) fn write<V: VolumeMut>(
        &mut self,
        store: &mut Store<Buffered<V>>,
        node: Master,
    ) -> Result<(), FsError> {
        let size = Self::size(store);
        let mut offset = self.offset + size;
        if offset + size > store.leb_size() {
            offset = 0;
        }
        let bytes = emit(store, node);
        for lnum in [MASTER_LEB, MASTER_LEB + 1] {
            if offset == 0 {
                store.access.unmap_leb(lnum)?;
            }
            store.access.write_leb(lnum, offset, &bytes)?;
        }
        *self = Self { node, offset };
        Ok(())
    }

    /// Marks the file system as in use, so that the next opening looks for torn writes.
    pub(super) fn mark_dirty<V: VolumeMut>(
        &mut self,
        store: &mut Store<Buffered<V>>,
    ) -> Result<(), FsError> {
        if self.is_dirty() {
            return Ok(());
        }
        let flags = MasterFlags(self.node.flags.0 | MasterFlags::DIRTY.0);
        self.write(store, Master { flags, ..self.node })
    }

    /// Puts both copies at the start of their LEBs, each atomically, and flags them as recovered.
    pub(super) fn rewrite<V: VolumeMut>(
        &mut self,
        store: &mut Store<Buffered<V>>,
    ) -> Result<(), FsError> {
        let flags = MasterFlags(self.node.flags.0 | MasterFlags::RECOVERY.0);
        let bytes = emit(store, Master { flags, ..self.node });
        store.access.change_leb(MASTER_LEB, &bytes)?;
        store.access.change_leb(MASTER_LEB + 1, &bytes)?;
        self.offset = 0;
        Ok(())
    }
}

/// A master node, padded, and signed if the file system is authenticated.
fn emit<V: VolumeMut>(store: &mut Store<Buffered<V>>, node: Master) -> Vec<u8> {
    let mut bytes = alloc::vec![0; MASTER_NODE_SIZE];
    Node::Master(node).emit(store.access.next_sequence(), Group::None, &mut bytes);
    if let Some(auth) = &store.auth {
        auth.sign(&mut bytes, MASTER_HMAC.start);
    }
    pad(&mut bytes, store.unit() as usize);
    bytes
}

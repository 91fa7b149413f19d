//! Extended attributes of which a torn node stays on the flash.
//!
//! Theory. Garbage collection in Linux copies an attribute with a version that is one higher, here
//! with the same. If power is cut in the middle of the copy, the older node counts here. Linux
//! takes the highest version, and of several nodes that have it the one it meets last, without a
//! look at their values: for Linux the attribute is lost. So it is written once more, with a
//! version above that of the torn node.

use alloc::vec;

use flysch_api::flash::FlashMut;
use flysch_api::vfs::FsError;
use flysch_wire::jffs2::{Header, Xattr};

use super::collector::{Collector, Purpose};
use super::log::{NewNode, Room};
use super::space::Kind;
use super::tables::XattrState;
use crate::found::XattrRef;
use crate::node;

impl<F: FlashMut> Collector<F> {
    /// Writes the attributes once more that Linux would look for in one of these nodes. Without
    /// room the next mount tries again.
    pub(super) fn renew_xattrs(&mut self, torn: &[XattrRef]) {
        let mut is_any = false;
        for node in torn {
            is_any |= self.is_taken_by_linux(node) && self.renew_xattr(node).is_ok();
        }
        if is_any && self.nodes_mut().flush().is_ok() {
            // The next mount tries again if this fails.
            let _ = self.nodes_mut().prove();
        }
    }

    /// Whether Linux would look for a valid attribute in this torn node, unless it is not on the
    /// flash any more: its block was erased meanwhile, or it was marked as obsolete.
    fn is_taken_by_linux(&self, torn: &XattrRef) -> bool {
        let state = self.tables().xattrs.get(&torn.xid);
        let mut bytes = [0; Xattr::LEN];
        let order = self.log().order;
        state.is_some_and(|state| state.version <= torn.version)
            && node::read(&self.log().medium, torn.address.offset(), &mut bytes).is_ok()
            && Header::parse(&bytes, order).is_ok_and(|header| header.node_type.is_accurate())
            && Xattr::parse(&bytes, order)
                .is_ok_and(|xattr| (xattr.xid, xattr.version) == (torn.xid, torn.version))
    }

    fn renew_xattr(&mut self, torn: &XattrRef) -> Result<(), FsError> {
        let XattrState { total_len, .. } = *self.xattr_state(torn.xid)?;
        self.reserve(Room::xattr(total_len as usize), Purpose::Collection)?;
        // Making room may have moved it.
        let old = self.xattr_state(torn.xid)?.address;
        let mut bytes = vec![0; total_len as usize];
        node::read(&self.log().medium, old.offset(), &mut bytes)?;
        let (order, place) = (self.log().order, self.log().place(old));
        let damaged = |error| {
            let cause = node::damage(error);
            FsError::Damaged { structure: "extended attribute", place, cause }
        };
        let xattr = Xattr::parse(&bytes, order).map_err(damaged)?;
        let (name, value) = xattr.name_and_value(&bytes).map_err(damaged)?;
        let worn = FsError::Unsupported("an attribute whose version has reached its end");
        let version = torn.version.checked_add(1).ok_or(worn)?;
        let mut renewed = vec![0; Xattr::node_len(name.len(), value.len())];
        Xattr { version, ..xattr }.emit(name, value, order, &mut renewed);
        let new = NewNode { kind: Kind::Xattr, owner: torn.xid, tag: version };
        let address = self.nodes_mut().append(&mut renewed, new)?;
        let total_len = renewed.len() as u32;
        if let Some(state) = self.tables_mut().xattrs.get_mut(&torn.xid) {
            let old =
                core::mem::replace(state, XattrState { version, address, total_len, ..*state });
            self.nodes_mut().kill(old.address);
        }
        Ok(())
    }

    fn xattr_state(&self, xid: u32) -> Result<&XattrState, FsError> {
        self.tables().xattrs.get(&xid).ok_or(FsError::NoAttribute)
    }
}

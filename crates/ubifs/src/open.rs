//! Opening: superblock, master node, index, journal, orphans.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::ControlFlow;

use flysch_api::finding::{Finding, Place, Severity};
use flysch_api::flash::FlashError;
use flysch_api::volume::{LebState, Volume};
use flysch_wire::ubifs::lpt::LptFormat;
use flysch_wire::ubifs::{
    Branch, FORMAT_VERSION, Index as IndexNode, Key, LEB_SIZE_MAX, LOG_LEB, Layout, MasterFlags,
    Node, NodeKind, SUPERBLOCK_HMAC, SUPERBLOCK_LEB, SUPERBLOCK_NODE_SIZE, Superblock,
    SuperblockFlags,
};

use crate::access::{Access, Cause, Fault, Scratch, finding};
use crate::apply::{Mode, apply};
use crate::auth::{Auth, AuthError, Digest, Proof, Verified, is_unsigned};
use crate::index::{Index, Lowest, Visit};
use crate::keys::Keys;
use crate::location::Location;
use crate::lpt::Lpt;
use crate::master::{self, Chosen};
use crate::overlay::Overlay;
use crate::rebuild::{self, Lost};
use crate::replay::{self, Bud, Journal, Seen};
use crate::scan::{Item, Scan};
use crate::signature;
use crate::store::Store;

/// How to treat the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexUse {
    /// Read all of it once; rebuild damaged parts from the nodes themselves.
    #[default]
    Verify,
    /// Trust it; a damaged part is an error for the files concerned.
    Trust,
    /// Ignore it and rebuild everything from the nodes.
    Rebuild,
}

/// How to open.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// How to treat the index.
    pub index: IndexUse,
    /// Keys, if any. An authenticated file system is verified with its key or its signature, and
    /// whatever has changed since it was signed is refused; without keys nothing is verified and
    /// everything is read.
    pub keys: Option<Arc<Keys>>,
}

impl OpenOptions {
    /// The keys to verify everything with, if it must be verified.
    fn verify(&self) -> Option<&Keys> {
        self.keys.as_deref().filter(|keys| keys.verify())
    }
}

/// Why opening failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UbifsOpenError {
    /// There is neither a superblock nor a single UBIFS node.
    NotUbifs,
    /// As [`NotUbifs`](Self::NotUbifs), but the flash did not give all LEBs: its first answer.
    Flash(FlashError),
    /// The LEBs are smaller or larger than UBIFS allows.
    LebSize(u32),
    /// Authentication was asked for and failed.
    Authentication(AuthError),
}

impl fmt::Display for UbifsOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUbifs => f.write_str("no UBIFS here: no superblock and no file system nodes"),
            Self::Flash(error) => write!(f, "no UBIFS can be read here: {error}"),
            Self::LebSize(size) => write!(f, "LEBs of {size} bytes cannot hold UBIFS"),
            Self::Authentication(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for UbifsOpenError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Authentication(error) => Some(error),
            // `Display` shows it itself, so its source comes next.
            Self::Flash(error) => error.source(),
            _ => None,
        }
    }
}

impl From<AuthError> for UbifsOpenError {
    fn from(error: AuthError) -> Self {
        Self::Authentication(error)
    }
}

/// An opened file system.
///
/// The image is not modified: what recovery would write is kept in memory.
#[derive(Debug)]
pub struct Ubifs<V> {
    pub(crate) store: Store<V>,
    pub(crate) master: Option<Chosen>,
    pub(crate) lpt: Option<LptFormat>,
    pub(crate) buds: Vec<Bud>,
    /// What else was seen in the journal.
    pub(crate) seen: Seen,
    pub(crate) findings: Vec<Finding>,
    pub(crate) lost: Lost,
    verified: Option<Verified>,
    /// The LEB properties are not those that were signed.
    pub(crate) properties_forged: bool,
    pub(crate) keys: Option<Arc<Keys>>,
}

impl<V: Volume> Ubifs<V> {
    /// Opens the file system on `volume`.
    ///
    /// Whatever is damaged is left out and reported by [`findings`](Self::findings); opening fails
    /// only if there is nothing at all.
    ///
    /// To keep the volume if this fails, pass `&volume`.
    ///
    /// # Errors
    /// [`UbifsOpenError`]; with the key of an authenticated file system also if the key is wrong,
    /// or if superblock, master node, log or journal are not what was signed with it. Damage to
    /// other parts is then reported and is an error for the files concerned; nothing is
    /// reconstructed.
    pub fn open(volume: V, options: &OpenOptions) -> Result<Self, UbifsOpenError> {
        let geometry = volume.geometry();
        if !(64..=LEB_SIZE_MAX).contains(&geometry.leb_size) {
            return Err(UbifsOpenError::LebSize(geometry.leb_size));
        }
        let (leb_size, lebs) = (geometry.leb_size, geometry.lebs);
        let mut access = Access::new(volume, leb_size, lebs);
        let mut findings = Vec::new();
        let (superblock, layout) = match read_superblock(&access, &mut findings) {
            Some((superblock, layout)) => (superblock, layout),
            None if options.verify().is_some() => {
                return Err(AuthError::Lost("superblock").into());
            }
            None => salvage(&access)?,
        };
        let (auth, proof) = match options.verify() {
            Some(keys) => {
                let auth = Auth::of(&superblock, keys.auth.as_ref())?;
                let proof = prove_superblock(&access, &superblock, (&auth, keys))?;
                (Some(Box::new(auth)), Some(proof))
            }
            None => (None, None),
        };
        access.verify = auth.as_ref().map(|auth| auth.algorithm());
        let store = Store {
            access,
            superblock,
            layout,
            index: None,
            overlay: Overlay::default(),
            sizes: BTreeMap::new(),
            auth,
        };
        let lpt = LptFormat::new(&superblock).ok();
        let lost = Vec::new();
        let (buds, seen) = (Vec::new(), Seen::default());
        let mut this = Self {
            store,
            master: None,
            lpt,
            buds,
            seen,
            findings,
            lost,
            verified: None,
            properties_forged: false,
            keys: options.keys.clone(),
        };
        this.start(options, proof)?;
        if let Err(error) = this.store.access.check_given() {
            let problem = format!("{error}: what is there may be missing, or older data show");
            let place = Place::default();
            this.findings.push(finding(Severity::Lost, "file system", problem, place));
        }
        Ok(this)
    }

    /// Reads everything after the superblock.
    fn start(&mut self, options: &OpenOptions, proof: Option<Proof>) -> Result<(), UbifsOpenError> {
        self.note_features();
        let mut whole = options.index == IndexUse::Rebuild || self.lpt.is_none();
        if let Some(lpt) = self.lpt {
            whole |= !self.read_master(&lpt, proof)?;
        }
        if whole && self.store.auth.is_some() {
            return Err(AuthError::Lost("index").into());
        }
        let dirty = self.is_unclean();
        let log = match &self.master {
            Some(chosen) if !whole => {
                replay::read_log(&self.store, &chosen.master, &mut self.findings)
            }
            _ => Err(replay::LogLost),
        };
        match log {
            Ok(log) => {
                self.buds.clone_from(&log.buds);
                self.store.access.hold(log.tail.clone());
                self.seen.log = Some(log);
            }
            Err(replay::LogLost) if self.store.auth.is_some() => {
                return Err(AuthError::Lost("log").into());
            }
            Err(replay::LogLost) => {
                whole = true;
                let place = Place::default();
                let note = finding(Severity::Note, "journal", replay::lost_log(), place);
                self.findings.push(note);
            }
        }
        self.lost = self.lost_ranges(whole, options.index);
        self.replay(dirty)?;
        if dirty && !self.has_no_orphans() {
            self.kill_orphans();
        }
        self.prove_properties();
        Ok(())
    }

    /// Chooses the master node and takes the index root from it; `false` if it has none.
    fn read_master(
        &mut self,
        lpt: &LptFormat,
        superblock: Option<Proof>,
    ) -> Result<bool, AuthError> {
        let store = &mut self.store;
        let by = (&store.superblock, store.auth.as_deref());
        let chosen = match master::choose(&store.access, by, &mut self.findings) {
            Ok(chosen) => chosen,
            Err(_) if store.auth.is_none() => return Ok(false),
            Err(error) => return Err(error),
        };
        if let (Some(auth), Some(superblock), Some(master)) =
            (&store.auth, superblock, chosen.proof)
        {
            self.verified = Some(Verified { algorithm: auth.algorithm(), superblock, master });
        }
        let master = chosen.master;
        let bad = master::bad_fields(&master, &store.superblock, &store.layout, lpt);
        for field in &bad {
            let place = store.access.place(chosen.lnum, chosen.offset);
            let problem = format!("impossible value in field {field}");
            self.findings.push(finding(Severity::Inconsistent, "master node", problem, place));
        }
        self.master = Some(chosen);
        if bad.iter().any(|field| ["root_lnum", "root_len", "log_lnum"].contains(field)) {
            return Ok(false);
        }
        let root =
            Location { lnum: master.root_lnum, offset: master.root_offs, length: master.root_len };
        let fanout = store.superblock.fanout as usize;
        let mut index = Index::new(root, store.format(), fanout, master.index_size);
        index.root_hash = match &store.auth {
            Some(auth) => auth.stored(&master.root_hash),
            None => Digest::NONE,
        };
        store.index = Some(index);
        Ok(true)
    }

    /// The key ranges that the index does not reach.
    fn lost_ranges(&mut self, whole: bool, index: IndexUse) -> Lost {
        if whole {
            self.store.index = None;
            return alloc::vec![(Key::MIN, Key::MAX)];
        }
        if index == IndexUse::Trust {
            return Vec::new();
        }
        let (mut lost, lowest) = verify(&self.store, &mut self.findings);
        if self.store.auth.is_some() {
            // Nothing authenticates the other nodes on the flash.
            return Vec::new();
        }
        if let (Some(index), true) = (&mut self.store.index, lost.is_empty()) {
            index.remember(lowest);
        }
        rebuild::whole_files(&mut lost);
        lost
    }

    fn replay(&mut self, dirty: bool) -> Result<(), AuthError> {
        let journal = Journal::new(&self.store.superblock, dirty);
        let access = &self.store.access;
        let hashes = self.seen.log.as_ref().map_or(&[][..], |log| &log.hashes);
        let auth = self.store.auth.as_deref_mut().map(|auth| (auth, hashes));
        let read = replay::read_buds(access, &journal, (&self.buds, auth), &mut self.findings);
        if let Some(place) = read.forged {
            return Err(AuthError::Changed { structure: "journal", place });
        }
        let (mut entries, held) = (read.entries, read.held);
        self.seen.buds = read.seen;
        self.store.access.hold(held);
        let rebuilt = !self.lost.is_empty();
        if rebuilt {
            for &(first, last) in &self.lost {
                self.store.overlay.mask(first, last);
            }
            let found = rebuild::collect(&self.store, &self.lost, &self.buds, &mut self.findings);
            entries.extend(found);
            entries.sort_by_key(|entry| entry.sequence);
        }
        apply(&mut self.store, &entries, Mode { mend_sizes: dirty, rebuilt });
        self.store.resolve_names();
        Ok(())
    }

    /// Deletes the files that had no name left when power was lost.
    fn kill_orphans(&mut self) {
        let store = &mut self.store;
        let mut orphans = Vec::new();
        for lnum in store.layout.orphans.clone() {
            if store.access.volume.state(lnum) == LebState::Unmapped {
                continue;
            }
            let mut scratch = Scratch::new();
            let leb = match store.access.leb(lnum, &mut scratch) {
                Ok(leb) => leb,
                Err(cause) => {
                    let place = store.access.place(lnum, 0);
                    let fault = Fault { structure: "orphan area", place, cause };
                    self.findings.push(fault.finding(Severity::Lost));
                    continue;
                }
            };
            for item in Scan::new(leb, 0) {
                if let Item::Node { header, bytes, .. } = item
                    && let Ok(Node::Orphans(node)) = Node::decode(header, bytes, store.format())
                {
                    orphans.extend(node.inodes().filter_map(|inode| u32::try_from(inode).ok()));
                }
            }
        }
        for inode in orphans {
            let mut scratch = Scratch::new();
            let key = Key::inode_node(inode);
            let unlinked = match store.find(key) {
                Ok(Some(at)) => match store.inode(inode, at, &mut scratch) {
                    Ok(node) => node.links == 0,
                    // The flash does not give it now: that says nothing about it.
                    Err(fault) if fault.is_refusal() => false,
                    // It had no name when the list was written, and has not been written since. A
                    // recovery deleted it, gave up the LEB of its node and was interrupted.
                    Err(_) => store.overlay.get(key).is_none() && store.auth.is_none(),
                },
                _ => false,
            };
            if unlinked {
                store.remove_inode(inode);
            }
        }
    }

    fn note_features(&mut self) {
        let flags = self.store.superblock.flags;
        let mut note = |text: &str| {
            let place = Place::default();
            self.findings.push(finding(Severity::Note, "superblock", String::from(text), place));
        };
        if self.store.auth.is_none() && flags.contains(SuperblockFlags::AUTHENTICATION) {
            note("the image is authenticated; without its key nothing is verified");
        }
        if flags.contains(SuperblockFlags::ENCRYPTION) {
            note(match self.keys.as_ref().is_some_and(|keys| !keys.masters.is_empty()) {
                true => "the image has encrypted files; those whose key was given can be read",
                false => "the image has encrypted files; without their keys they cannot be read",
            });
        }
    }

    /// Verifies the LEB properties against their hash.
    fn prove_properties(&mut self) {
        let (Some(auth), Some(chosen), Some(format)) = (&self.store.auth, &self.master, self.lpt)
        else {
            return;
        };
        let unit = self.store.superblock.min_io_size;
        // The check reports properties that cannot be read.
        let Ok(lpt) = Lpt::read(&self.store.access, (format, unit), &chosen.master) else { return };
        if !lpt.hash(auth.algorithm()).fits(&chosen.master.lpt_hash) {
            let place = self.store.access.place(chosen.master.lpt_lnum, chosen.master.lpt_offs);
            let problem = format!("{}", Cause::Hash);
            self.findings.push(finding(Severity::Inconsistent, "LEB properties", problem, place));
            self.properties_forged = true;
        }
    }

    /// What was verified; `None` without keys to verify with.
    pub fn verified(&self) -> Option<&Verified> {
        self.verified.as_ref()
    }

    /// The faults found while opening.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The superblock as stored or, if it is lost, as far as it could be guessed.
    pub fn superblock(&self) -> &Superblock {
        &self.store.superblock
    }

    /// Whether the superblock was unusable and everything was collected from the nodes.
    pub fn is_without_superblock(&self) -> bool {
        self.store.layout.log.is_empty()
    }

    /// The volume that holds the file system.
    pub fn volume(&self) -> &V {
        &self.store.access.volume
    }

    /// The LEBs of the journal.
    pub fn buds(&self) -> &[Bud] {
        &self.buds
    }

    /// Whether the orphan area holds only leftovers that no longer count.
    pub(crate) fn has_no_orphans(&self) -> bool {
        let flags = self.master.as_ref().map(|it| it.master.flags);
        flags.is_some_and(|flags| flags.contains(MasterFlags::NO_ORPHANS))
    }

    /// Whether the file system was not cleanly unmounted.
    pub fn is_unclean(&self) -> bool {
        self.master.as_ref().is_some_and(|it| it.master.flags.contains(MasterFlags::DIRTY))
    }
}

/// Reads and checks the superblock; `None` if it cannot be used.
fn read_superblock<V: Volume>(
    access: &Access<V>,
    findings: &mut Vec<Finding>,
) -> Option<(Superblock, Layout)> {
    let length = SUPERBLOCK_NODE_SIZE as u32;
    let at = Location { lnum: SUPERBLOCK_LEB, offset: 0, length };
    let place = access.place(SUPERBLOCK_LEB, 0);
    let mut refuse = |problem: String| {
        findings.push(finding(Severity::Inconsistent, "superblock", problem, place));
    };
    let mut scratch = Scratch::new();
    let (header, bytes) = access
        .node(at, NodeKind::Superblock, &mut scratch)
        .map_err(|fault| refuse(format!("{}", fault.cause)))
        .ok()?;
    let Ok(Node::Superblock(superblock)) =
        Node::decode(header, bytes, flysch_wire::ubifs::BranchFormat::default())
    else {
        refuse(String::from("not a superblock node"));
        return None;
    };
    let layout = superblock.layout().map_err(|error| refuse(format!("{error}"))).ok()?;
    if superblock.leb_size != access.leb_size {
        refuse(format!(
            "field leb_size is {}, but the volume's LEBs have {} bytes",
            superblock.leb_size, access.leb_size
        ));
        return None;
    }
    if superblock.leb_count > access.lebs {
        refuse(format!("{} LEBs, but the volume has {}", superblock.leb_count, access.lebs));
    }
    if let Some(write_size) = access.volume.geometry().write_size
        && superblock.min_io_size != write_size.max(8)
    {
        refuse(format!(
            "field min_io_size is {}, but the flash is written in units of {write_size}",
            superblock.min_io_size
        ));
    }
    Some((superblock, layout))
}

/// Substitutes for a lost superblock: everything after the master LEBs may hold nodes.
fn salvage<V: Volume>(access: &Access<V>) -> Result<(Superblock, Layout), UbifsOpenError> {
    let mut scratch = Scratch::new();
    let any = (SUPERBLOCK_LEB..access.lebs).any(|lnum| {
        access
            .leb(lnum, &mut scratch)
            .is_ok_and(|leb| Scan::new(leb, 0).any(|item| matches!(item, Item::Node { .. })))
    });
    if !any {
        return Err(access.refusal().map_or(UbifsOpenError::NotUbifs, UbifsOpenError::Flash));
    }
    let superblock = Superblock {
        key_hash: 0,
        key_format: 0,
        flags: SuperblockFlags::default(),
        min_io_size: 8,
        leb_size: access.leb_size,
        leb_count: access.lebs,
        leb_count_max: access.lebs,
        bud_bytes_max: 0,
        log_lebs: 0,
        lpt_lebs: 0,
        orphan_lebs: 0,
        journal_heads: 1,
        fanout: 8,
        lsave_count: 0,
        format_version: FORMAT_VERSION,
        default_compression: 0,
        reserved_owner: 0,
        reserved_group: 0,
        reserved_size: 0,
        time_granularity: 1_000_000_000,
        uuid: [0; 16],
        ro_compat_version: 0,
        hmac: [0; 64],
        hmac_wkm: [0; 64],
        hash_algorithm: 0xffff,
        master_hash: [0; 64],
    };
    let none = LOG_LEB..LOG_LEB;
    let main = LOG_LEB..access.lebs.max(LOG_LEB);
    let leb_size = access.leb_size;
    Ok((superblock, Layout { leb_size, log: none.clone(), lpt: none.clone(), orphans: none, main }))
}

/// Verifies the superblock against its HMAC or the signature after it.
fn prove_superblock<V: Volume>(
    access: &Access<V>,
    superblock: &Superblock,
    (auth, keys): (&Auth, &Keys),
) -> Result<Proof, AuthError> {
    if is_unsigned(&superblock.hmac) {
        signature::prove(access, keys.trust.as_deref())?;
        return Ok(Proof::Signature);
    }
    let Some(well_known) = auth.well_known() else { return Err(AuthError::NoKey) };
    if !well_known.fits(&superblock.hmac_wkm) {
        return Err(AuthError::Key);
    }
    let length = SUPERBLOCK_NODE_SIZE as u32;
    let at = Location { lnum: SUPERBLOCK_LEB, offset: 0, length };
    let mut scratch = Scratch::new();
    let node = access.node(at, NodeKind::Superblock, &mut scratch);
    let unread = |fault: Fault| AuthError::Unread { structure: "superblock", cause: fault.into() };
    let (_, node) = node.map_err(unread)?;
    let hmac = auth.hmac_of_node(node, SUPERBLOCK_HMAC.start);
    if !hmac.is_some_and(|hmac| hmac.fits(&superblock.hmac)) {
        let place = access.place(SUPERBLOCK_LEB, 0);
        return Err(AuthError::Changed { structure: "superblock", place });
    }
    Ok(Proof::Hmac)
}

/// Reads every index node once; returns the ranges that cannot be reached, and the places of the
/// nodes of the lowest level.
fn verify<V: Volume>(store: &Store<V>, findings: &mut Vec<Finding>) -> (Lost, Lowest) {
    struct Verify<'f> {
        findings: &'f mut Vec<Finding>,
        severity: Severity,
        lost: Lost,
        lowest: Lowest,
    }
    impl Visit for Verify<'_> {
        fn node(&mut self, at: Location, node: &IndexNode<'_>) -> ControlFlow<()> {
            self.lowest.note(at, node);
            ControlFlow::Continue(())
        }

        fn leaf(&mut self, _branch: &Branch<'_>, _from: Location) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }

        fn lost(&mut self, fault: Fault, first: Key, last: Key) -> ControlFlow<()> {
            self.findings.push(fault.finding(self.severity));
            self.lost.push((first, last));
            ControlFlow::Continue(())
        }
    }
    let nowhere = Location { lnum: 0, offset: 0, length: 0 };
    let root = store.index.as_ref().map_or(nowhere, |index| index.root);
    // What is lost can be collected from the nodes unless they must be authenticated.
    let severity = match store.auth {
        Some(_) => Severity::Lost,
        None => Severity::Inconsistent,
    };
    let lowest = Lowest::new(root);
    let mut verify = Verify { findings, severity, lost: Vec::new(), lowest };
    let Some(index) = &store.index else { return (verify.lost, verify.lowest) };
    let overlay = Overlay::default();
    let place = (&store.access, &store.layout);
    let _ = index.walk(place, &overlay, (Key::MIN, Key::MAX), &mut verify);
    (verify.lost, verify.lowest)
}

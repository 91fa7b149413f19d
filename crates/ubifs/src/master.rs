//! Choosing the master node.
//!
//! Two LEBs hold the same master nodes, each appended to the first LEB before the second; a full
//! LEB is unmapped and started again. Power loss therefore leaves few states: both equal, the first
//! one node ahead, or the first one started again.

use alloc::string::String;
use alloc::vec::Vec;

use flysch_api::finding::{Finding, Severity};
use flysch_api::volume::Volume;
use flysch_wire::ubifs::lpt::LptFormat;
use flysch_wire::ubifs::{
    BranchFormat, HEADER_SIZE, Header, INDEX_NODE_SIZE, Layout, MASTER_HMAC, MASTER_LEB,
    MASTER_NODE_SIZE, Master, MasterFlags, NODE_ALIGNMENT, Node, NodeKind, Superblock,
};

use crate::access::{Access, Scratch, finding};
use crate::auth::{Auth, AuthError, Proof, is_unsigned};
use crate::scan::{Item, Scan};

/// Inode numbers from here on are refused (`INUM_WATERMARK`).
pub(crate) const INODE_WATERMARK: u64 = 0xffff_ff00;

/// With sequence numbers from here on a file system is not written to any more
/// (`SQNUM_WATERMARK`): if they began again at 0, old nodes would count as newer.
pub(crate) const SEQUENCE_WATERMARK: u64 = 0xffff_ff00_0000_0000;

/// The last master node of one LEB.
#[derive(Clone, Debug)]
struct Found {
    offset: u32,
    header: Header,
    master: Master,
    /// Everything but the header and the HMAC: each copy has its own sequence number and HMAC.
    content: Vec<u8>,
    node: Vec<u8>,
    /// Something that is not a node follows.
    torn: bool,
}

/// The master node that counts.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) master: Master,
    pub(crate) lnum: u32,
    pub(crate) offset: u32,
    /// The node's sequence number.
    pub(crate) sequence: u64,
    /// How it was proven genuine, if that was required.
    pub(crate) proof: Option<Proof>,
}

/// Chooses the master node.
///
/// # Errors
/// There is no good one, or it is not the one that was signed.
pub(crate) fn choose<V: Volume>(
    access: &Access<V>,
    (superblock, auth): (&Superblock, Option<&Auth>),
    findings: &mut Vec<Finding>,
) -> Result<Chosen, AuthError> {
    let mut torn = Vec::new();
    let (first, _) = find(access, MASTER_LEB, findings, &mut torn);
    let (second, second_end) = find(access, MASTER_LEB + 1, findings, &mut torn);
    let size = (MASTER_NODE_SIZE as u32).next_multiple_of(superblock.min_io_size.max(8));
    let accepted = match (&first, &second) {
        (Some(first), Some(second)) => judge_pair(first, second, size, access.leb_size),
        (Some(first), None) if first.offset == 0 && !first.torn => Some(true),
        (None, Some(second)) if second.offset + 2 * size > access.leb_size => Some(false),
        _ => None,
    };
    // What power loss leaves is not damage. One copy may be missing if the other says that the file
    // system is in use, or if a clean stop was cut short while it wrote the second as the first
    // node of its LEB. That node may read well for a while.
    let both = first.is_some() && second.is_some();
    let in_use = first.iter().chain(&second).any(|it| it.master.flags.contains(MasterFlags::DIRTY));
    let cut_short = second.is_none() && second_end.is_some_and(|end| 0 < end && end <= size);
    let severity = match accepted {
        Some(_) if both || in_use || cut_short => Severity::Note,
        _ => Severity::Inconsistent,
    };
    findings.extend(torn.into_iter().map(|found| Finding { severity, ..found }));
    let take_first = accepted.unwrap_or_else(|| {
        let problem = String::from("the two copies are in a state that no power loss can leave");
        let place = access.place(MASTER_LEB, 0);
        findings.push(finding(Severity::Inconsistent, "master node", problem, place));
        let sequence = |found: &Option<Found>| found.as_ref().map(|found| found.header.sequence);
        sequence(&first) >= sequence(&second)
    });
    let (found, lnum) = if take_first { (first, MASTER_LEB) } else { (second, MASTER_LEB + 1) };
    let found = found.ok_or(AuthError::Lost("master node"))?;
    let proof = match auth {
        Some(auth) if !auth.has_key() && !is_unsigned(&found.master.hmac) => {
            return Err(AuthError::NoKey);
        }
        Some(auth) => Some(prove(auth, superblock, &found).ok_or(AuthError::Changed {
            structure: "master node",
            place: access.place(lnum, found.offset),
        })?),
        None => None,
    };
    let mut master = found.master;
    grow(&mut master, superblock);
    let (offset, sequence) = (found.offset, found.header.sequence);
    Ok(Chosen { master, lnum, offset, sequence, proof })
}

/// How a master node is proven genuine: by its HMAC or, if a signing tool made the image, by the
/// hash in the superblock, which does not cover the header.
fn prove(auth: &Auth, superblock: &Superblock, found: &Found) -> Option<Proof> {
    let hmac = found.master.hmac;
    if is_unsigned(&hmac) {
        let hash = auth.hash(&found.node[HEADER_SIZE..]);
        return hash.fits(&superblock.master_hash).then_some(Proof::Hash);
    }
    let wanted = auth.hmac_of_node(&found.node, MASTER_HMAC.start);
    wanted.is_some_and(|wanted| wanted.fits(&hmac)).then_some(Proof::Hmac)
}

/// Growing a file system updates the superblock first; this updates the sums in the master node.
fn grow(master: &mut Master, superblock: &Superblock) {
    let Some(grown) = superblock.leb_count.checked_sub(master.leb_cnt) else { return };
    let main = superblock.layout().map_or(0..0, |layout| layout.main);
    if grown == 0 || master.leb_cnt <= main.start {
        return;
    }
    let dark = crate::lpt::unusable(superblock.leb_size, superblock.min_io_size).1;
    let add = |sum: &mut u64, bytes: u32| {
        *sum = sum.saturating_add(u64::from(grown) * u64::from(bytes));
    };
    add(&mut master.total_free, superblock.leb_size);
    add(&mut master.total_dark, dark);
    master.empty_lebs = master.empty_lebs.saturating_add(grown);
    master.leb_cnt = superblock.leb_count;
}

/// What both copies of a master node have in common: Linux writes each with its own sequence
/// number.
pub(crate) fn content(node: &[u8]) -> [&[u8]; 2] {
    [&node[HEADER_SIZE..MASTER_HMAC.start], &node[MASTER_HMAC.end..]]
}

/// Whether the first copy counts; `None` if power loss cannot leave this pair.
fn judge_pair(first: &Found, second: &Found, size: u32, leb_size: u32) -> Option<bool> {
    if first.master.flags.contains(MasterFlags::RECOVERY) && first.offset == 0 && !first.torn {
        return Some(true);
    }
    if first.offset == second.offset {
        return (first.content == second.content).then_some(true);
    }
    let ahead = second.offset + size == first.offset;
    let restarted = first.offset == 0 && leb_size - second.offset < 2 * size;
    ((ahead || restarted) && !first.torn).then_some(true)
}

/// The last good master node of a LEB, and where its erased end begins if the LEB can be read.
/// Findings that a write cut short would explain go to `torn`.
fn find<V: Volume>(
    access: &Access<V>,
    lnum: u32,
    findings: &mut Vec<Finding>,
    torn: &mut Vec<Finding>,
) -> (Option<Found>, Option<u32>) {
    let mut scratch = Scratch::new();
    let leb = match access.leb(lnum, &mut scratch) {
        Ok(leb) => leb,
        Err(cause) => {
            let problem = alloc::format!("{cause}");
            findings.push(finding(
                Severity::Inconsistent,
                "master node",
                problem,
                access.place(lnum, 0),
            ));
            return (None, None);
        }
    };
    let mut found: Option<Found> = None;
    let mut scan = Scan::new(leb, 0);
    for item in scan.by_ref() {
        match item {
            Item::Node { offset, header, bytes } if header.kind == NodeKind::Master => {
                if let Ok((_, Node::Master(master))) = Node::parse(bytes, BranchFormat::default()) {
                    let content = content(bytes).concat();
                    let node = bytes.into();
                    found = Some(Found { offset, header, master, content, node, torn: false });
                }
            }
            Item::Node { offset, header, .. } => {
                let problem = alloc::format!("{} among master nodes", header.kind.name());
                let place = access.place(lnum, offset);
                findings.push(finding(Severity::Inconsistent, "master node", problem, place));
            }
            Item::Garbage { range, error } => {
                let place = access.place(lnum, range.0);
                let problem = alloc::format!("{error}");
                torn.push(finding(Severity::Inconsistent, "master node", problem, place));
                if let Some(found) = &mut found {
                    found.torn = true;
                }
            }
        }
    }
    if found.is_none() {
        let problem = String::from("this copy is lost");
        let place = access.place(lnum, 0);
        torn.push(finding(Severity::Inconsistent, "master node", problem, place));
    }
    (found, Some(scan.end()))
}

/// The fields of a master node that cannot be right.
pub(crate) fn bad_fields(
    master: &Master,
    superblock: &Superblock,
    layout: &Layout,
    lpt: &LptFormat,
) -> Vec<&'static str> {
    let leb_size = layout.leb_size;
    let unit = superblock.min_io_size.max(NODE_ALIGNMENT);
    let in_main = |lnum| layout.main.contains(&lnum);
    let in_lpt = |lnum, offset: u32, size: usize| {
        layout.lpt.contains(&lnum) && u64::from(offset) + size as u64 <= u64::from(leb_size)
    };
    let head = |offset: u32| offset <= leb_size && offset.is_multiple_of(unit);
    let main_lebs = layout.main.end - layout.main.start;
    let main_bytes = u64::from(main_lebs) * u64::from(leb_size);
    let root_max = superblock.index_node_max() as u32;
    let root_min = (INDEX_NODE_SIZE + superblock.branch_format().branch_size()) as u32;
    let bytes = |sum: u64| sum <= main_bytes && sum.is_multiple_of(8);
    let sums = [master.total_free, master.total_dirty, master.total_used];
    let total = sums.iter().fold(0_u64, |total, sum| total.saturating_add(*sum));
    let reserved = master.total_dead.saturating_add(master.total_dark);
    let checks = [
        ("highest_inum", master.highest_inode < INODE_WATERMARK),
        ("log_lnum", layout.log.contains(&master.log_lnum)),
        (
            "root_lnum",
            layout.holds(&layout.main, master.root_lnum, master.root_offs, master.root_len),
        ),
        ("root_len", (root_min..=root_max).contains(&master.root_len)),
        ("gc_lnum", in_main(master.gc_lnum) || master.gc_lnum == u32::MAX),
        ("ihead_lnum", in_main(master.ihead_lnum) && head(master.ihead_offs)),
        ("index_size", bytes(master.index_size)),
        ("lpt_lnum", in_lpt(master.lpt_lnum, master.lpt_offs, lpt.nnode_size)),
        ("nhead_lnum", in_lpt(master.nhead_lnum, 0, 0) && head(master.nhead_offs)),
        ("ltab_lnum", in_lpt(master.ltab_lnum, master.ltab_offs, lpt.ltab_size)),
        ("lsave_lnum", !lpt.big || in_lpt(master.lsave_lnum, master.lsave_offs, lpt.lsave_size)),
        ("lscan_lnum", in_main(master.lscan_lnum)),
        ("empty_lebs", master.empty_lebs <= main_lebs),
        ("idx_lebs", master.idx_lebs <= main_lebs),
        ("leb_cnt", (superblock.leb_count..=superblock.leb_count_max).contains(&master.leb_cnt)),
        ("total_free", bytes(master.total_free)),
        ("total_dirty", bytes(master.total_dirty)),
        ("total_used", bytes(master.total_used)),
        ("total_used", total <= main_bytes),
        ("total_dead", bytes(master.total_dead)),
        ("total_dark", bytes(master.total_dark) && reserved <= main_bytes),
    ];
    checks.iter().filter(|(_, good)| !good).map(|(field, _)| *field).collect()
}

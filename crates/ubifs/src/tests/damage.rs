//! Damage costs only what it hits, and is reported.

use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use core::ops::ControlFlow;
use flysch_api::finding::Severity;
use flysch_api::vfs::{FileSystem, FsError, Inode};
use flysch_random::SplitMix64;
use flysch_wire::ubifs::{Group, MASTER_NODE_SIZE, Master, MasterFlags, Node};

use super::builder::{BASE, COMMITTED_LEB, DATA, INDEX_LEB, Image, Memory, block, file, root};
use crate::{IndexUse, OpenOptions, Ubifs, UbifsOpenError};

/// Sixteen files of one block each, inodes 64 to 79, and one file in the journal.
fn sample() -> Image {
    let mut image = Image::new();
    let names: Vec<String> = (0..10).map(|at| std::format!("file-{at}")).collect();
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    image.commit(&root(&all, 0));
    for (number, name) in (64..).zip(&names) {
        image.commit(&image.entry(1, name, number.into()));
        image.commit(&file(number, 1000));
        image.commit(&block(number, 0, &[number as u8; 1000]));
    }
    image.finish_commit();
    all.push("new");
    image.put(DATA, &block(90, 0, &[90; 1000]), Group::None);
    image.group(BASE, &[image.entry(1, "new", 90), file(90, 1000), root(&all, 0)]);
    image
}

/// Number of files that can be read with the right content, and of those that return an error.
fn survey(fs: &Ubifs<Memory>) -> (usize, usize) {
    let mut found = Vec::new();
    let listed = fs.list(Inode(1), 0, &mut |entry| {
        found.push(entry.inode);
        ControlFlow::Continue(())
    });
    let (mut good, mut bad) = (0, usize::from(listed.is_err()));
    for inode in found {
        let mut bytes = vec![0; 1000];
        match fs.read(inode, 0, &mut bytes) {
            Ok(1000) => {
                assert_eq!(bytes, [inode.0 as u8; 1000], "never anything but what was written");
                good += 1;
            }
            Ok(length) => panic!("inode {inode} has {length} bytes"),
            Err(_) => bad += 1,
        }
    }
    (good, bad)
}

#[test]
fn the_sample_is_sound() {
    let fs = sample().open();
    assert_eq!(survey(&fs), (11, 0));
    assert!(fs.check().iter().all(|it| it.severity == Severity::Note), "{:?}", fs.check());
}

#[test]
fn every_erased_leb_but_those_with_the_files_costs_nothing() {
    for lnum in 0..20 {
        let mut image = sample();
        image.volume.lebs[lnum as usize].fill(0xff);
        let fs = image.open();
        let expected = match lnum {
            COMMITTED_LEB => (1, 0),
            BASE => (10, 0),
            // The inode exists, but its content reads as a hole: nothing shows that there was more.
            DATA => continue,
            _ => (11, 0),
        };
        let found = survey(&fs);
        assert_eq!(found.0, expected.0, "LEB {lnum} erased: {:?}", fs.findings());
        let in_use = [0, 1, 2, 3, 5, INDEX_LEB, COMMITTED_LEB, BASE].contains(&lnum);
        let told = fs.check().iter().any(|it| it.severity != Severity::Note);
        assert_eq!(told, in_use, "LEB {lnum} erased: {:?}", fs.check());
    }
}

#[test]
fn a_flipped_bit_is_never_handed_out() {
    let image = sample();
    let good = image.open();
    assert_eq!(survey(&good), (11, 0));
    for lnum in [INDEX_LEB, COMMITTED_LEB, BASE, DATA] {
        for at in (0..image.end(lnum)).step_by(7) {
            let mut broken = image.clone();
            broken.volume.lebs[lnum as usize][at] ^= 1 << (at % 8);
            let fs = Ubifs::open(broken.volume, &OpenOptions::default()).unwrap();
            if lnum == DATA {
                // The lost block in the journal is reported; reading it fails, unless the damage
                // hit the fields that say whose block it is.
                assert!(fs.findings().iter().any(|it| it.severity == Severity::Lost), "{at}");
                let nameless = at < 32;
                assert!(nameless || survey(&fs) == (10, 1), "{at}");
                continue;
            }
            let (files, _) = survey(&fs);
            assert!(files >= 10 || lnum == COMMITTED_LEB && at < 160, "LEB {lnum} byte {at}");
            let told = fs.check().iter().any(|it| it.severity != Severity::Note);
            // Bytes between nodes have no checksum.
            let padding = fs.findings().is_empty() && files == 11;
            assert!(told || padding, "LEB {lnum} byte {at}");
        }
    }
}

#[test]
fn a_trusted_index_is_an_error_where_it_is_damaged() {
    let mut image = sample();
    image.volume.lebs[INDEX_LEB as usize][40] ^= 1;
    let options = OpenOptions { index: IndexUse::Trust, keys: None };
    let fs = Ubifs::open(image.volume.clone(), &options).unwrap();
    let (good, bad) = survey(&fs);
    assert!(good < 11 && bad > 0, "{good} {bad}");
    assert_eq!(survey(&image.open()), (11, 0), "and rebuilt otherwise");
}

#[test]
fn master_states_that_power_loss_leaves_are_accepted() {
    let damage = |image: &Image| -> Vec<String> {
        let findings = image.open().check();
        findings
            .iter()
            .filter(|it| it.severity != Severity::Note)
            .map(ToString::to_string)
            .collect()
    };
    // The first LEB was written, the second not yet.
    let mut image = sample();
    let second = image.volume.lebs[2].clone();
    let flags = MasterFlags::DIRTY.0 | MasterFlags::NO_ORPHANS.0;
    image.set_flags(flags);
    image.volume.lebs[2] = second.clone();
    assert_eq!(damage(&image), Vec::<String>::new());
    assert!(image.open().is_unclean(), "the newer one counts");
    // The second was cut short.
    let mut torn = image.clone();
    torn.volume.lebs[2][600..700].fill(0x11);
    assert!(torn.open().is_unclean());
    // Two nodes apart: reported, and the newest is used.
    image.set_flags(flags);
    image.volume.lebs[2] = second;
    assert!(!damage(&image).is_empty());
    assert_eq!(survey(&image.open()), (11, 0));
    // A clean stop was cut short in its last write, the first one in its LEB: a note. If more was
    // written there, it is damage.
    let size = MASTER_NODE_SIZE.next_multiple_of(8);
    for (written, is_damage) in [(size, false), (size + 8, true)] {
        let mut image = sample();
        image.volume.lebs[2][100..written].fill(0x11);
        assert!(!image.open().is_unclean());
        assert_eq!(!damage(&image).is_empty(), is_damage, "{written} bytes");
        assert_eq!(survey(&image.open()), (11, 0));
    }
    // One copy gone, in either LEB.
    for lnum in [1, 2] {
        let mut image = sample();
        image.volume.lebs[lnum].fill(0xff);
        let fs = image.open();
        assert_eq!(survey(&fs), (11, 0));
        assert!(fs.findings().iter().any(|it| it.structure == "master node"));
    }
}

/// Each copy of an authenticated file system's master node has its own HMAC.
#[test]
fn master_nodes_may_differ_in_their_hmac_and_nothing_else() {
    let is_wrong = |later: [u64; 2]| {
        let mut image = sample();
        let master = image.master();
        for (lnum, later) in (1..).zip(later) {
            let highest_inode = master.highest_inode + later;
            let master = Master { hmac: [lnum as u8; 64], highest_inode, ..master };
            image.put(lnum, &Node::Master(master), Group::None);
        }
        let findings = image.open().check();
        findings.iter().any(|it| it.severity != Severity::Note)
    };
    assert!(!is_wrong([0, 0]));
    assert!(is_wrong([0, 1]));
}

#[test]
fn nothing_at_all_is_said() {
    let empty = Memory { lebs: vec![vec![0xff; super::builder::LEB_SIZE as usize]; 20] };
    assert_eq!(Ubifs::open(empty, &OpenOptions::default()).unwrap_err(), UbifsOpenError::NotUbifs);
    let zeros = Memory { lebs: vec![vec![0; super::builder::LEB_SIZE as usize]; 3] };
    assert_eq!(Ubifs::open(zeros, &OpenOptions::default()).unwrap_err(), UbifsOpenError::NotUbifs);
}

#[test]
fn mutated_images_never_panic() {
    let image = sample();
    let mut random = SplitMix64::new(7);
    let mut next = |limit: usize| random.below(limit as u64) as usize;
    for round in 0..400 {
        let mut broken = image.clone();
        for _ in 0..=round % 6 {
            let lnum = [0, 1, 2, 3, 5, 8, 9, 11, 12][next(9)];
            let at = next(image.end(lnum).max(600));
            broken.volume.lebs[lnum as usize][at] = next(256) as u8;
            fix_checksum(&mut broken, lnum, at);
        }
        for index in [IndexUse::Verify, IndexUse::Trust, IndexUse::Rebuild] {
            let Ok(fs) = Ubifs::open(broken.volume.clone(), &OpenOptions { index, keys: None })
            else {
                continue;
            };
            let _ = (fs.check(), fs.statistics());
            walk(&fs, Inode(1), 0);
        }
    }
}

/// Corrects the checksum of the node around a byte, so that its fields are examined.
fn fix_checksum(image: &mut Image, lnum: u32, at: usize) {
    let leb = &mut image.volume.lebs[lnum as usize];
    let start = (0..=at).rev().find(|start| leb[*start..].starts_with(&[0x31, 0x18, 0x10, 0x06]));
    let Some(start) = start else { return };
    let Some(length) = leb.get(start + 16..start + 20) else { return };
    let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
    if let Some(node) = leb[start..].get_mut(..length)
        && node.len() > 24
    {
        let crc = flysch_wire::ubifs::crc32(&node[8..]);
        node[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

fn walk(fs: &Ubifs<Memory>, inode: Inode, depth: u32) {
    let mut children = Vec::new();
    let listed = fs.list(inode, 0, &mut |entry| {
        children.push(entry.inode);
        ControlFlow::Continue(())
    });
    if listed == Err(FsError::NotDirectory) || depth > 4 {
        let mut bytes = vec![0; 10_000];
        let _ = (fs.read(inode, 0, &mut bytes), fs.next_data(inode, 5));
    }
    let _ = fs.list_xattrs(inode, &mut |_| {});
    if depth <= 4 {
        children.into_iter().take(30).for_each(|child| walk(fs, child, depth + 1));
    }
}

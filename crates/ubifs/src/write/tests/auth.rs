//! Authenticated file systems: what is signed, and what is refused.

use std::vec;
use std::vec::Vec;

use flysch_api::finding::Severity;
use flysch_api::vfs::{FileKind, FileSystem, FileSystemMut, FsError};
use flysch_api::volume::{Volume, VolumeMut};
use flysch_wire::ubifs::{Header, NodeKind};

use super::memory::Ram;
use super::{ROOT, SMALL, assert_sound_with, at, authenticated, content, new_file, with_key};
use crate::scan::{Item, Scan};
use crate::{
    AuthError, AuthKey, HashAlgorithm, OpenOptions, Proof, Ubifs, UbifsMut, UbifsOpenError,
};

/// Two file systems with files in them, one closed and one not.
fn filled() -> (Ram, Ram, OpenOptions) {
    let (ram, options) = authenticated(SMALL);
    let mut fs = UbifsMut::open_with(ram, &options).unwrap();
    for number in 0..60_u8 {
        let new = new_file(FileKind::Regular);
        let file = fs.create(ROOT, &[b'a' + number % 26, b'A' + number], &new, at(2)).unwrap();
        fs.write(file, 0, &vec![number; 3000], at(3)).unwrap();
    }
    fs.sync(None).unwrap();
    let file = fs.create(ROOT, b"last", &new_file(FileKind::Regular), at(4)).unwrap();
    fs.write(file, 0, b"not committed", at(5)).unwrap();
    fs.sync(Some(file)).unwrap();
    let open = fs.volume().clone();
    (fs.close().unwrap(), open, options)
}

/// Changes a byte in all nodes of this kind, and corrects their CRCs; returns their number.
fn forge(ram: &mut Ram, lebs: impl Iterator<Item = u32>, kind: NodeKind, at: usize) -> u32 {
    rewrite(ram, lebs, kind, |node| node[at] ^= 1)
}

/// Changes all nodes of this kind, and corrects their CRCs; returns their number.
pub(super) fn rewrite(
    ram: &mut Ram,
    lebs: impl Iterator<Item = u32>,
    kind: NodeKind,
    change: impl Fn(&mut [u8]),
) -> u32 {
    let mut forged = 0;
    for lnum in lebs {
        let mut leb = vec![0; SMALL.0 as usize];
        let _ = ram.read(lnum, 0, &mut leb).unwrap();
        let places: Vec<(usize, Header)> = Scan::new(&leb, 0)
            .filter_map(|item| match item {
                Item::Node { offset, header, .. } => Some((offset as usize, header)),
                Item::Garbage { .. } => None,
            })
            .filter(|(_, header)| header.kind == kind)
            .collect();
        for (offset, header) in &places {
            let node = &mut leb[*offset..*offset + header.length as usize];
            change(node);
            // Its own header comes back, but for the sequence number.
            let sequence = u64::from_le_bytes(node[8..16].try_into().unwrap());
            Header { sequence, ..*header }.emit(node);
        }
        if !places.is_empty() {
            let end = leb.iter().rposition(|&byte| byte != 0xff).unwrap() + 1;
            ram.change(lnum, &leb[..end.next_multiple_of(SMALL.2 as usize)]).unwrap();
            forged += places.len() as u32;
        }
    }
    forged
}

#[test]
fn what_was_signed_is_verified() {
    let (closed, open, options) = filled();
    for ram in [&closed, &open] {
        assert_sound_with(ram, &options, "as it was signed");
        let fs = Ubifs::open(ram, &options).unwrap();
        let verified = fs.verified().unwrap();
        assert_eq!((verified.superblock, verified.master), (Proof::Hmac, Proof::Hmac));
        assert_eq!(content(&fs, fs.lookup(ROOT, b"last").unwrap()), b"not committed");
        // Without a key it can be read, and the lack of verification is reported.
        let fs = Ubifs::open(ram, &OpenOptions::default()).unwrap();
        assert!(fs.verified().is_none());
        assert!(fs.findings().iter().any(|it| it.problem.contains("without its key")));
        let error = UbifsMut::open(ram.clone()).unwrap_err();
        assert!(matches!(error, crate::UbifsMountError::ReadOnly(_)), "{error}");
    }
}

#[test]
fn wrong_keys_are_told_from_changed_images() {
    let (closed, ..) = filled();
    let refusal = |key: AuthKey| match Ubifs::open(&closed, &with_key(key)) {
        Err(UbifsOpenError::Authentication(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(AuthKey::new(b"another key", None)), AuthError::Key);
    let wrong = Some(HashAlgorithm::Sha512);
    assert_eq!(refusal(AuthKey::new(b"a key of any length", wrong)), AuthError::Algorithm(4));
    let plain = super::empty(SMALL, flysch_wire::ubifs::Compression::None);
    let key = with_key(AuthKey::new(b"a key of any length", None));
    let error = Ubifs::open(&plain, &key).unwrap_err();
    assert_eq!(error, UbifsOpenError::Authentication(AuthError::NotAuthenticated));
}

#[test]
fn what_all_hangs_on_is_refused_when_it_was_changed() {
    let (closed, open, options) = filled();
    let refused = |mut ram: Ram, lebs: core::ops::Range<u32>, kind, at, wanted: &str| {
        assert!(forge(&mut ram, lebs, kind, at) > 0);
        match Ubifs::open(&ram, &options) {
            Err(UbifsOpenError::Authentication(AuthError::Changed { structure, .. })) => {
                assert_eq!(structure, wanted);
            }
            other => panic!("{other:?}"),
        }
        assert!(UbifsMut::open_with(ram, &options).is_err());
    };
    // `rp_size`, `highest_inum` and, in the journal, a bit of content: the CRCs are correct, and
    // nothing else is suspicious.
    refused(closed.clone(), 0..1, NodeKind::Superblock, 96, "superblock");
    refused(closed.clone(), 1..3, NodeKind::Master, 24, "master node");
    let layout = Ubifs::open(&open, &options).unwrap();
    let bud = layout.buds().iter().find(|bud| bud.head == 2).unwrap().lnum;
    refused(open.clone(), bud..bud + 1, NodeKind::Data, 50, "journal");
    refused(open, bud..bud + 1, NodeKind::Authentication, 30, "journal");
}

#[test]
fn a_changed_node_is_an_error_for_its_file_and_told_by_name() {
    let (closed, _, options) = filled();
    for (kind, offset) in [(NodeKind::Data, 60), (NodeKind::Inode, 100), (NodeKind::Index, 30)] {
        let mut ram = closed.clone();
        let main = Ubifs::open(&ram, &options).unwrap().store.layout.main.clone();
        assert!(forge(&mut ram, main, kind, offset) > 0);
        let fs = Ubifs::open(&ram, &options).unwrap();
        let told = fs.check().into_iter().filter(|it| it.severity == Severity::Lost);
        let told: Vec<_> = told.filter(|it| it.problem.contains("authentication failed")).collect();
        assert!(told.iter().any(|it| it.structure == kind.name()), "{told:#?}");
        // Inode numbers are given out in order of creation.
        let mut bytes = [0; 3000];
        let read = fs.read(flysch_api::vfs::Inode(65), 0, &mut bytes);
        assert!(matches!(read, Err(FsError::Damaged { .. })), "{kind:?}: {read:?}");
    }
}

#[test]
fn nodes_that_nothing_authenticates_yet_never_happened() {
    let (_, open, options) = filled();
    let fs = Ubifs::open(&open, &options).unwrap();
    let bud = *fs.buds().iter().find(|bud| bud.head == 2).unwrap();
    let mut leb = vec![0; SMALL.0 as usize];
    let _ = open.read(bud.lnum, 0, &mut leb).unwrap();
    let last = Scan::new(&leb, bud.start).filter_map(|item| match item {
        Item::Node { offset, header, .. } => Some((offset, header.kind)),
        Item::Garbage { .. } => None,
    });
    let (offset, kind) = last.last().unwrap();
    assert_eq!(kind, NodeKind::Authentication);
    let mut ram = open.clone();
    leb.truncate(offset as usize);
    super::super::buffered::pad(&mut leb, SMALL.2 as usize);
    ram.change(bud.lnum, &leb).unwrap();
    let fs = Ubifs::open(&ram, &options).unwrap();
    assert!(fs.findings().iter().any(|it| it.problem.contains("nothing authenticates")));
    let file = fs.lookup(ROOT, b"last").unwrap();
    assert_eq!(fs.read(file, 0, &mut [0; 16]), Ok(13));
    let mut bytes = [1; 13];
    let _ = fs.read(file, 0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 13], "its content was not authenticated");
    let fs = UbifsMut::open_with(ram, &options).unwrap();
    assert_sound_with(&fs.close().unwrap(), &options, "recovered");
}

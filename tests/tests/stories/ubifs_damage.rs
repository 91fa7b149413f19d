//! Damaged images: every intact file is extracted, every damaged one is named, nothing is made up.

use std::collections::BTreeSet;

use flysch_api::finding::Severity;
use flysch_api::vfs::FileKind;
use flysch_tests::ubifs::{
    FORMATS, Format, Random, Tree, flash, host_tree, image_tree, make_tree, mkfs, subtree,
    tools_missing, ubinize,
};
use flysch_ubi::{AttachOptions, Ubi, find_images};
use flysch_ubifs::{OpenOptions, Ubifs};

struct Sample {
    expected: Tree,
    image: Vec<u8>,
    format: Format,
}

/// The result of a damaged image.
struct Outcome {
    /// Paths that are missing, or whose content or attributes cannot be read.
    hurt: BTreeSet<Vec<u8>>,
    /// Contents of files that no longer have a path.
    saved: BTreeSet<Vec<u8>>,
    findings: Vec<String>,
    /// Number of findings of lost data.
    lost: usize,
}

fn sample(compressor: &str) -> Sample {
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let format = FORMATS[1];
    let image = ubinize(&mkfs(tree.path(), &format, compressor, &[]), &format);
    Sample { expected: host_tree(tree.path()), image, format }
}

impl Sample {
    fn peb(&self, peb: usize) -> std::ops::Range<usize> {
        let size = self.format.peb_size as usize;
        peb * size..(peb + 1) * size
    }

    fn pebs(&self) -> usize {
        self.image.len() / self.format.peb_size as usize
    }

    /// Reads `image` and compares it with the tree: everything present must be right.
    fn outcome(&self, image: Vec<u8>, what: &str) -> Outcome {
        let flash = flash(image, &self.format);
        let images = find_images(&flash, Some(self.format.peb_size));
        let ubi = Ubi::attach(&flash, images[0], &AttachOptions::default()).expect(what);
        let fs = Ubifs::open(ubi.volume(0).expect(what), &OpenOptions::default()).expect(what);
        let mut findings = ubi.findings().to_vec();
        findings.extend(fs.check());
        let found = image_tree(&fs, &mut Vec::new());
        let mut hurt = BTreeSet::new();
        for (path, file) in &self.expected {
            match found.get(path) {
                None => drop(hurt.insert(path.clone())),
                Some(other) if other.content.is_err() => drop(hurt.insert(path.clone())),
                // A directory whose inode is lost still shows its files, with made-up attributes.
                Some(other) if other.modified == 0 => drop(hurt.insert(path.clone())),
                Some(other) => {
                    let shown = path.escape_ascii();
                    assert_eq!(file.content, other.content, "{what}: content of {shown}");
                    let attributes = |f: &flysch_tests::ubifs::File| {
                        (f.kind, f.permissions, f.owner, f.modified, f.links.0, f.device)
                    };
                    assert_eq!(attributes(file), attributes(other), "{what}: {shown}");
                }
            }
        }
        let mut saved = BTreeSet::new();
        for (inode, _) in fs.unreachable() {
            let files = subtree(&fs, inode, &mut Vec::new()).into_values();
            saved.extend(files.filter_map(|file| file.content.ok()));
        }
        let extra = found.keys().find(|path| !self.expected.contains_key(*path));
        assert_eq!(extra, None, "{what}");
        let lost = findings.iter().filter(|it| it.severity == Severity::Lost).count();
        let findings = findings.iter().map(ToString::to_string).collect();
        Outcome { hurt, saved, findings, lost }
    }
}

#[test]
fn one_erased_block_costs_what_lay_in_it() {
    if tools_missing() {
        return;
    }
    let sample = sample("none");
    let mut unhurt = 0;
    for peb in 0..sample.pebs() {
        let mut image = sample.image.clone();
        image[sample.peb(peb)].fill(0xff);
        let outcome = sample.outcome(image, &format!("PEB {peb} erased"));
        unhurt += usize::from(outcome.hurt.is_empty());
        // Files that lost only their names can be saved; the others are those in the block, which
        // contains at most 31 whole blocks of content or a few more small files.
        let is_saved = |path: &&Vec<u8>| {
            let file = &sample.expected[*path];
            let content = file.content.as_ref().unwrap();
            file.kind != FileKind::Regular || outcome.saved.contains(content)
        };
        let gone = outcome.hurt.iter().filter(|path| !is_saved(path)).count();
        assert!(gone < 80, "PEB {peb}: {gone} files: {:?}", outcome.findings);
        assert!(outcome.hurt.is_empty() || outcome.lost > 0, "PEB {peb}: {:?}", outcome.findings);
    }
    assert!(unhurt >= 10, "tables, log, index and master cost nothing: {unhurt}");
}

#[test]
fn a_flipped_bit_in_a_header_costs_nothing_or_one_block() {
    if tools_missing() {
        return;
    }
    let sample = sample("lzo");
    let mut random = Random::new(3);
    for peb in 0..sample.pebs() {
        let start = sample.peb(peb).start;
        let mut image = sample.image.clone();
        image[start + random.below(28) as usize] ^= 1 << random.below(8);
        let outcome = sample.outcome(image, &format!("EC header of PEB {peb}"));
        assert_eq!(outcome.hurt.len(), 0, "the data does not need the erase counter");
        assert!(!outcome.findings.is_empty());
        let mut image = sample.image.clone();
        image[start + 512 + random.below(28) as usize] ^= 1 << random.below(8);
        let outcome = sample.outcome(image, &format!("VID header of PEB {peb}"));
        assert!(!outcome.findings.is_empty());
    }
}

#[test]
fn flipped_bits_in_data_are_never_handed_out() {
    if tools_missing() {
        return;
    }
    for compressor in ["none", "lzo", "zlib", "zstd"] {
        let sample = sample(compressor);
        let mut random = Random::new(5);
        for round in 0..40 {
            let mut image = sample.image.clone();
            for _ in 0..=round % 5 {
                let at = random.below(image.len() as u64) as usize;
                image[at] ^= 1 << random.below(8);
            }
            let outcome = sample.outcome(image, &format!("{compressor} {round}"));
            assert!(outcome.hurt.is_empty() || outcome.lost > 0, "{:?}", outcome.findings);
            for path in &outcome.hurt {
                let shown = format!("/{}", path.escape_ascii());
                let directory = shown.rsplit_once('/').unwrap().0.to_owned();
                let named = outcome.findings.iter().any(|line| {
                    line.ends_with(&shown) || line.ends_with(&directory) || line.contains("inode")
                });
                assert!(named, "{shown}: {:?}", outcome.findings);
            }
        }
    }
}

#[test]
fn truncated_shuffled_moved_and_halved_images_are_read() {
    if tools_missing() {
        return;
    }
    let sample = sample("zstd");
    let mut random = Random::new(7);
    for _ in 0..20 {
        let mut order: Vec<usize> = (0..sample.pebs()).collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at as u64 + 1) as usize);
        }
        let image = order.iter().flat_map(|&peb| &sample.image[sample.peb(peb)]).copied().collect();
        let outcome = sample.outcome(image, "shuffled");
        assert_eq!(outcome.hurt.len(), 0);
    }
    for copy in 0..2 {
        let mut image = sample.image.clone();
        image[sample.peb(copy)].fill(0);
        let outcome = sample.outcome(image, "one volume table lost");
        assert_eq!(outcome.hurt.len(), 0);
        assert!(outcome.findings.iter().any(|line| line.contains("volume table")));
    }
    let mut behind_prefix = vec![0x42; 65536];
    behind_prefix.extend_from_slice(&sample.image);
    assert_eq!(sample.outcome(behind_prefix, "prefix").hurt.len(), 0);
    let mut with_tail = sample.image.clone();
    with_tail.extend(vec![0; sample.format.peb_size as usize]);
    assert_eq!(sample.outcome(with_tail, "a block of zeros").hurt.len(), 0);
    let mut before = usize::MAX;
    for eighths in 1..=8 {
        let image = sample.image[..sample.image.len() / 8 * eighths].to_vec();
        let outcome = sample.outcome(image, &format!("{eighths}/8 of the image"));
        assert!(outcome.hurt.len() <= before, "more of the image, more files");
        before = outcome.hurt.len();
    }
    assert_eq!(before, 0);
}

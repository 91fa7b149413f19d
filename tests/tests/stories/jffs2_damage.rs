//! JFFS2 logs as left by crashes, old kernels and failing chips: what is valid is shown, what is
//! damaged is named, nothing is made up.

use crate::image_common::{Noise, extract, has_mtd_utils, run, snapshot, wrong};
use flysch_image::Extraction;
use flysch_wire::jffs2::{ByteOrder, Compression, Dirent, Header, Inode, NodeType};

const FILE: u32 = 0o100_644;

/// Nodes, one after the other.
#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    version: u32,
}

impl Log {
    fn push(&mut self, node: &[u8]) -> std::ops::Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(node);
        let end = self.bytes.len();
        self.bytes.resize(end.next_multiple_of(4), 0xFF);
        start..end
    }

    fn name(&mut self, name: &[u8], ino: u32, order: ByteOrder) {
        self.version += 1;
        let (version, kind) = (self.version, 8);
        let dirent = Dirent { pino: 1, version, ino, mctime: 0, nsize: 0, kind, name_crc: 0 };
        let mut node = [0; Dirent::LEN + 255];
        let len = dirent.emit(name, order, &mut node);
        self.push(&node[..len]);
    }

    fn data(&mut self, ino: u32, data: &[u8], order: ByteOrder) -> std::ops::Range<usize> {
        self.version += 1;
        let inode = Inode {
            ino,
            version: self.version,
            mode: FILE,
            uid: 0,
            gid: 0,
            isize: data.len() as u32,
            atime: 0,
            mtime: 0,
            ctime: 0,
            offset: 0,
            csize: 0,
            dsize: data.len() as u32,
            compression: Compression::None,
            user_compression: 0,
            flags: 0,
            data_crc: 0,
        };
        let mut node = vec![0; Inode::LEN + data.len()];
        inode.emit(data, order, &mut node);
        self.push(&node)
    }

    /// The extracted files by name, with what failed and the findings of a check.
    fn shown(&self) -> (Vec<(String, String)>, Extraction, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let (image, out) = (folder.path().join("image"), folder.path().join("out"));
        let mut bytes = self.bytes.clone();
        bytes.resize(5 << 16, 0xFF);
        std::fs::write(&image, bytes).unwrap();
        let extraction = extract(&image, &out);
        let files = snapshot(&out).into_iter().map(|(path, seen)| {
            (path.display().to_string(), String::from_utf8_lossy(seen.content()).into_owned())
        });
        (files.collect(), extraction, wrong(&image))
    }
}

fn files(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, content)| (name.to_string(), content.to_string())).collect()
}

#[test]
fn of_entries_with_one_name_the_newest_counts() {
    for order in ByteOrder::ALL {
        let mut log = Log::default();
        log.name(b"other", 4, order);
        log.data(4, b"other", order);
        log.name(b"same", 2, order);
        log.data(2, b"first", order);
        log.name(b"same", 3, order);
        log.data(3, b"second", order);
        let (shown, extraction, _) = log.shown();
        assert_eq!(extraction.failures, []);
        assert_eq!(shown, files(&[("other", "other"), ("same", "second")]));
    }
}

/// NOR chips mark outdated nodes by clearing the ACCURATE bit.
#[test]
fn obsolete_nodes_do_not_count() {
    for order in ByteOrder::ALL {
        let mut log = Log::default();
        log.name(b"file", 2, order);
        log.data(2, b"valid", order);
        let gone = log.data(2, b"never", order).start;
        let header = Header::parse(&log.bytes[gone..], order).unwrap();
        let node_type = NodeType(header.node_type.0 & !0x2000);
        let emitted = if order == ByteOrder::Little {
            node_type.0.to_le_bytes()
        } else {
            node_type.0.to_be_bytes()
        };
        log.bytes[gone + 2..gone + 4].copy_from_slice(&emitted);
        let (shown, extraction, wrong) = log.shown();
        assert_eq!(extraction.failures, []);
        assert_eq!(shown, files(&[("file", "valid")]));
        assert_eq!(wrong, [""; 0]);
    }
}

#[test]
fn nodes_of_the_other_byte_order_do_not_count() {
    for (order, other) in [(ByteOrder::Little, ByteOrder::Big), (ByteOrder::Big, ByteOrder::Little)]
    {
        let mut log = Log::default();
        for ino in 2..6 {
            log.name(format!("file {ino}").as_bytes(), ino, order);
            log.data(ino, b"right", order);
        }
        log.name(b"foreign", 9, other);
        log.data(9, b"foreign", other);
        log.data(2, b"wrong", other);
        let (shown, extraction, _) = log.shown();
        assert_eq!(extraction.failures, []);
        let names = ["file 2", "file 3", "file 4", "file 5"];
        assert_eq!(shown, files(&names.map(|name| (name, "right"))));
    }
}

/// Power failed while the last node was written: any number of its last bytes are missing.
#[test]
fn a_torn_node_is_noticed_and_costs_nothing_else() {
    let order = ByteOrder::Little;
    for missing in 1..60 {
        let mut log = Log::default();
        log.name(b"intact", 3, order);
        log.data(3, b"intact", order);
        log.name(b"torn", 2, order);
        log.data(2, b"old content of this file", order);
        let node = log.data(2, b"new content that is longer than the old", order);
        log.bytes[node.end - missing..].fill(0xFF);
        let (shown, extraction, wrong) = log.shown();
        assert!(shown.contains(&("intact".into(), "intact".into())), "{missing}: {shown:?}");
        let torn = shown.iter().find(|(name, _)| name == "torn");
        match torn {
            Some((_, content)) => assert_eq!(content, "old content of this file", "{missing}"),
            None => assert_eq!(extraction.failures[0].path, b"torn", "{missing}"),
        }
        assert!(torn.is_some() || !wrong.is_empty(), "{missing}: lost, and nothing is wrong?");
    }
}

/// A summary only saves time: without it, or with a wrong one, the result is the same.
#[test]
fn bad_summaries_cost_nothing() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut noise = Noise::new(8);
    std::fs::create_dir(at("tree")).unwrap();
    for number in 0..60 {
        let len = noise.next() as usize % 3000;
        std::fs::write(at("tree").join(format!("f{number}")), noise.bytes(len)).unwrap();
    }
    let text = |name: &str| at(name).display().to_string();
    run("mkfs.jffs2", &["-e", "16KiB", "-l", "-r", &text("tree"), "-o", &text("plain")]);
    run("sumtool", &["-e", "16KiB", "-l", "-p", "-i", &text("plain"), "-o", &text("good")]);
    let good = std::fs::read(at("good")).unwrap();
    assert_eq!(extract(&at("good"), &at("before")).failures, []);
    let before = snapshot(&at("before"));
    for (path, seen) in snapshot(&at("tree")) {
        assert_eq!(before[&path].content(), seen.content());
    }
    for round in 0..30 {
        let mut bytes = good.clone();
        for end in (16384..=bytes.len()).step_by(16384) {
            let trailer = [bytes[end - 8], bytes[end - 7], bytes[end - 6], bytes[end - 5]];
            let start = u32::from_le_bytes(trailer) as usize;
            if bytes[end - 4..end] != 0x0285_1885_u32.to_le_bytes() || start >= 16384 - 40 {
                continue;
            }
            // Somewhere in the summary, its entries or its trailer; never in what it describes.
            let len = 16384 - start;
            let place = if round % 3 == 0 { len - 8 } else { noise.next() as usize % len };
            bytes[end - len + place] ^= 1 << (noise.next() % 8);
        }
        std::fs::write(at("bad"), bytes).unwrap();
        let out = at(&format!("out{round}"));
        assert_eq!(extract(&at("bad"), &out).failures, []);
        assert_eq!(snapshot(&out), before, "round {round}");
    }
}

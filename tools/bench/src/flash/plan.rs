//! What is measured.

use serde::Serialize;

/// The data written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// Incompressible bytes.
    Random,
    /// Zeros.
    Zeros,
}

/// The contents of a file system that is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Nothing.
    Empty,
    /// A few large files.
    FewLarge,
    /// Many small files.
    ManySmall,
}

impl Content {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Empty, Self::FewLarge, Self::ManySmall];
}

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "test")]
pub enum Test {
    /// A file is written, piece by piece, and synced.
    Write {
        /// The data.
        data: Data,
        /// Bytes per call.
        piece: u32,
    },
    /// A file of random bytes is read.
    Read {
        /// Again, for the second time since the mount.
        again: bool,
    },
    /// Files are created and synced.
    Fill(Content),
    /// A flash with files is attached and mounted.
    Mount(Content),
    /// The part of that which attaching UBI takes.
    Attach(Content),
    /// Mounting as `Mount`, with every node of UBIFS's index read and verified.
    MountVerified(Content),
    /// Space that a file takes beyond its length, once it is written and committed.
    Overhead {
        /// Bytes per call.
        piece: u32,
    },
    /// Bytes programmed for it beyond its length, including those that are obsolete by then.
    Programmed {
        /// Bytes per call.
        piece: u32,
    },
}

impl Test {
    /// The unit of the value.
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Write { .. } | Self::Read { .. } => "MiB/s",
            Self::Overhead { .. } | Self::Programmed { .. } => "%",
            _ => "s",
        }
    }
}

/// The amounts.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Bytes of the file that is written and read.
    pub file: u32,
    /// Bytes per call.
    pub pieces: Vec<u32>,
    /// Number of files, and bytes of each.
    pub few_large: (u32, u32),
    /// Number of files, and bytes of each.
    pub many_small: (u32, u32),
    /// Bytes written to measure the space that they take.
    pub overhead: u32,
    /// Bytes per call for that.
    pub overhead_pieces: [u32; 2],
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            file: 10 << 20,
            pieces: vec![4 << 10, 64 << 10, 1 << 20],
            few_large: (10, 8 << 20),
            many_small: (10_000, 8 << 10),
            overhead: 1 << 20,
            overhead_pieces: [16, 1 << 20],
        }
    }
}

impl Plan {
    /// The files of a content and the bytes of each.
    pub fn files(&self, content: Content) -> (u32, u32) {
        match content {
            Content::Empty => (0, 0),
            Content::FewLarge => self.few_large,
            Content::ManySmall => self.many_small,
        }
    }

    /// All lines of the table, in order.
    pub fn tests(&self) -> Vec<Test> {
        let mut tests = Vec::new();
        for data in [Data::Random, Data::Zeros] {
            tests.extend(self.pieces.iter().map(|&piece| Test::Write { data, piece }));
        }
        tests.extend([false, true].map(|again| Test::Read { again }));
        tests.extend(Content::ALL.map(Test::Mount));
        tests.extend(Content::ALL.map(Test::Attach));
        tests.extend(Content::ALL.map(Test::MountVerified));
        tests.extend([Content::FewLarge, Content::ManySmall].map(Test::Fill));
        tests.extend(self.overhead_pieces.map(|piece| Test::Overhead { piece }));
        tests.extend(self.overhead_pieces.map(|piece| Test::Programmed { piece }));
        tests
    }

    /// The label of a line of the table.
    pub fn name(&self, test: Test) -> String {
        let content = |content| match (content, self.files(content)) {
            (Content::Empty, _) => "empty".to_string(),
            (_, (count, bytes)) => format!("{} files of {}", thousands(count), size(bytes)),
        };
        match test {
            Test::Write { data, piece } => {
                let data = if data == Data::Random { "random" } else { "zeros" };
                format!("write {} {data} by {}", size(self.file), size(piece))
            }
            Test::Read { again: false } => format!("read {} cold", size(self.file)),
            Test::Read { again: true } => format!("read {} cached", size(self.file)),
            Test::Fill(what) => format!("make {}", content(what)),
            Test::Mount(what) => format!("mount, {}", content(what)),
            Test::Attach(what) => format!("of it UBI attach, {}", content(what)),
            Test::MountVerified(what) => format!("mount, index verified, {}", content(what)),
            Test::Overhead { piece } => {
                format!("space beyond {} by {}", size(self.overhead), size(piece))
            }
            Test::Programmed { piece } => {
                format!("programmed beyond {} by {}", size(self.overhead), size(piece))
            }
        }
    }
}

fn thousands(count: u32) -> String {
    match count {
        ..10_000 => count.to_string(),
        _ => format!("{} {:03}", count / 1000, count % 1000),
    }
}

fn size(bytes: u32) -> String {
    match bytes {
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

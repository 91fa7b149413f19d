//! Formats that are recognised and not read: nothing else takes what lies on their disks, nor is it
//! written over without a word.
//!
//! Places, magic numbers and sums are those of FreeBSD's `md_promise.c`, `md_nvidia.c`, `md_sii.c`
//! and `md_jmicron.c`. A magic number of two bytes is not believed without its sum.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use super::format::{Format, Found, Refused};
use crate::graph::Graph;
use crate::object::ProviderId;

/// A format, and how it is recognised.
#[derive(Debug)]
pub(super) struct Other {
    name: &'static str,
    /// Sectors from its first one to the end of the disk, and its own.
    place: (u64, usize),
    is_it: fn(&[u8]) -> bool,
}

/// Promise's.
pub(super) static PROMISE: Other = Other {
    name: "Promise",
    place: (63, 4),
    is_it: |bytes| {
        bytes.starts_with(b"Promise Technology, Inc.")
            || bytes.starts_with(b"FreeBSD ATA driver RAID ")
    },
};
/// NVIDIA's.
pub(super) static NVIDIA: Other =
    Other { name: "NVIDIA", place: (2, 1), is_it: |bytes| bytes.starts_with(b"NVIDIA  ") };
/// That of Silicon Image: vendor 1095, version 2, and a sum of 160 words.
pub(super) static SII: Other = Other {
    name: "SiI",
    place: (1, 1),
    is_it: |bytes| word(bytes, 131) == 0x1095 && word(bytes, 133) == 2 && sum(bytes, 160) == 0,
};
/// JMicron's: two letters, and a sum of 64 words.
pub(super) static JMICRON: Other = Other {
    name: "JMicron",
    place: (1, 1),
    is_it: |bytes| bytes.starts_with(b"JM") && sum(bytes, 64) == 0,
};

fn word(bytes: &[u8], number: usize) -> u16 {
    u16::from_le_bytes([bytes[number * 2], bytes[number * 2 + 1]])
}

fn sum(bytes: &[u8], words: usize) -> u16 {
    (0..words).map(|number| word(bytes, number)).fold(0, u16::wrapping_add)
}

impl Other {
    fn bytes(&self, graph: &mut Graph, provider: ProviderId) -> Option<(u64, Vec<u8>)> {
        let there = &graph[provider];
        let (sector, sectors) = (u64::from(there.sector_size), there.sectors());
        let at = sectors.checked_sub(self.place.0)? * sector;
        let mut bytes = vec![0; self.place.1 * 512];
        graph.peek(provider, at, &mut bytes).ok().map(|()| (at, bytes))
    }
}

impl Format for Other {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, graph: &mut Graph, provider: ProviderId) -> Result<Option<Found>, Refused> {
        match self.bytes(graph, provider) {
            Some((at, bytes)) if (self.is_it)(&bytes) => {
                let why = "it is recognised, and not read".to_string();
                Err(Refused { why, bytes: (at, bytes.len() as u64) })
            }
            _ => Ok(None),
        }
    }
}

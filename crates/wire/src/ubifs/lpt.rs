//! The LEB properties tree (LPT): free and dirty bytes of every LEB of the main area.
//!
//! A tree of fan-out four, created with the file system: leaves (pnodes) hold the properties of
//! four LEBs each, inner nodes (nnodes) the positions of their four children. Two tables accompany
//! it: `ltab`, the free and dirty bytes of the tree's own LEBs, and, only in the big model,
//! `lsave`, the numbers of LEBs to look at first. All four are packed bit by bit, low bits first,
//! with fields as narrow as the file system's size allows ([`LptFormat`]); each starts with a
//! CRC-16 and four bits of type. In the big model, nodes also hold their number.

use core::fmt;

use super::{LPT_FANOUT, LayoutError, Superblock, SuperblockFlags};

const CRC_BITS: u32 = 16;
const KIND_BITS: u32 = 4;
/// Levels of inner nodes in a tree of 2^31 LEBs.
const HEIGHT_MAX: u32 = 16;

/// The type of a node of this tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LptKind {
    /// A leaf.
    Pnode,
    /// An inner node.
    Nnode,
    /// The table of the tree's own LEBs.
    Ltab,
    /// The table of interesting LEBs.
    Lsave,
    /// Not defined.
    Unknown(u8),
}

impl LptKind {
    fn from_code(code: u8) -> Self {
        match code {
            0 => Self::Pnode,
            1 => Self::Nnode,
            2 => Self::Ltab,
            3 => Self::Lsave,
            other => Self::Unknown(other),
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Pnode => 0,
            Self::Nnode => 1,
            Self::Ltab => 2,
            Self::Lsave => 3,
            Self::Unknown(code) => code,
        }
    }
}

/// Why bytes are not a node of this tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LptError {
    /// Fewer bytes than the node has.
    Short,
    /// The checksum does not match.
    Crc {
        /// As stored.
        stored: u16,
        /// Of the bytes given.
        computed: u16,
    },
    /// A node of another type than expected.
    Kind(LptKind),
    /// The checksum is right, but the named field has an invalid value.
    Field(&'static str),
}

impl fmt::Display for LptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the block ends inside the node"),
            Self::Crc { stored, computed } => {
                write!(f, "bad CRC: {stored:#06x} stored, {computed:#06x} computed")
            }
            Self::Kind(found) => write!(f, "{found:?} in its place"),
            Self::Field(name) => write!(f, "impossible value in field {name}"),
        }
    }
}

impl core::error::Error for LptError {}

/// CRC-16 of the tree's nodes: reflected polynomial 0x8005, started with all ones.
pub fn crc16(data: &[u8]) -> u16 {
    data.iter().fold(0xffff, |crc, &byte| {
        (crc >> 8) ^ CRC16_TABLE[usize::from((crc ^ u16::from(byte)) & 0xff)]
    })
}

static CRC16_TABLE: [u16; 256] = {
    let mut table = [0_u16; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xa001 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Widths of the fields and sizes of the nodes, and the tree's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // widths in bits, by the format's own names
pub struct LptFormat {
    pub big: bool,
    pub space_bits: u32,
    pub lpt_lnum_bits: u32,
    pub lpt_offs_bits: u32,
    pub lpt_spc_bits: u32,
    pub pcnt_bits: u32,
    pub lnum_bits: u32,
    /// Bytes in a leaf.
    pub pnode_size: usize,
    /// Bytes in an inner node.
    pub nnode_size: usize,
    /// Bytes in the table of the tree's LEBs.
    pub ltab_size: usize,
    /// Bytes in the table of interesting LEBs; 0 in the small model.
    pub lsave_size: usize,
    /// Levels of inner nodes: the root's level; leaves have level 0.
    pub height: u32,
    /// First LEB of the tree.
    pub first: u32,
    /// LEBs of the tree.
    pub lebs: u32,
    /// First LEB of the main area.
    pub main_first: u32,
    /// LEBs of the main area.
    pub main_lebs: u32,
    /// LEBs the file system may grow to.
    pub leb_count_max: u32,
    /// Entries of the table of interesting LEBs.
    pub lsave_count: u32,
    /// Bytes per LEB.
    pub leb_size: u32,
}

/// Bits that a number needs: the position of its highest set bit, from 1 (`fls`).
fn fls(value: u32) -> u32 {
    32 - value.leading_zeros()
}

fn bytes(bits: u64) -> usize {
    bits.div_ceil(8) as usize
}

impl LptFormat {
    /// The format that follows from a superblock.
    pub fn new(superblock: &Superblock) -> Result<Self, LayoutError> {
        let layout = superblock.layout()?;
        let big = superblock.flags.contains(SuperblockFlags::BIG_LPT);
        let main_lebs = layout.main.end - layout.main.start;
        let grown = main_lebs + (superblock.leb_count_max - superblock.leb_count);
        let leaves_max = grown.div_ceil(LPT_FANOUT as u32);
        let mut height = 1;
        while height < HEIGHT_MAX && 4_u64.pow(height) < u64::from(leaves_max) {
            height += 1;
        }
        let space_bits = fls(superblock.leb_size) - 3;
        let lpt_lnum_bits = fls(superblock.lpt_lebs);
        let lpt_offs_bits = fls(superblock.leb_size - 1);
        let lpt_spc_bits = fls(superblock.leb_size);
        let pcnt_bits = fls(superblock.leb_count_max.div_ceil(LPT_FANOUT as u32) - 1);
        let lnum_bits = fls(superblock.leb_count_max - 1);
        let start = CRC_BITS + KIND_BITS;
        let numbered = u64::from(start + if big { pcnt_bits } else { 0 });
        let ltab_bits =
            u64::from(start) + u64::from(superblock.lpt_lebs) * u64::from(lpt_spc_bits) * 2;
        let lsave_bits =
            u64::from(start) + u64::from(superblock.lsave_count) * u64::from(lnum_bits);
        let format = Self {
            big,
            space_bits,
            lpt_lnum_bits,
            lpt_offs_bits,
            lpt_spc_bits,
            pcnt_bits,
            lnum_bits,
            pnode_size: bytes(numbered + u64::from(space_bits * 2 + 1) * LPT_FANOUT as u64),
            nnode_size: bytes(numbered + u64::from(lpt_lnum_bits + lpt_offs_bits) * 4),
            ltab_size: bytes(ltab_bits),
            lsave_size: if big { bytes(lsave_bits) } else { 0 },
            height,
            first: layout.lpt.start,
            lebs: superblock.lpt_lebs,
            main_first: layout.main.start,
            main_lebs,
            leb_count_max: superblock.leb_count_max,
            lsave_count: superblock.lsave_count,
            leb_size: superblock.leb_size,
        };
        if format.ltab_size > format.leb_size as usize {
            return Err(LayoutError { field: "lpt_lebs", value: superblock.lpt_lebs.into() });
        }
        if format.lsave_size > format.leb_size as usize {
            return Err(LayoutError { field: "lsave_cnt", value: superblock.lsave_count.into() });
        }
        Ok(format)
    }

    /// Leaves that the main area needs.
    pub fn pnodes(&self) -> u32 {
        self.main_lebs.div_ceil(LPT_FANOUT as u32)
    }

    /// Number of child `at` of inner node `number` on `level` ([`height`](Self::height) down to 2);
    /// the root has number 1.
    pub fn nnode_number(&self, number: u32, level: u32, at: u32) -> u32 {
        let shift = (self.height - level) * 2;
        (number ^ (1 << shift)) | ((LPT_FANOUT as u32 + at) << shift)
    }

    /// Bytes in a node of this kind; 0 for an unknown one.
    pub fn node_size(&self, kind: LptKind) -> usize {
        match kind {
            LptKind::Pnode => self.pnode_size,
            LptKind::Nnode => self.nnode_size,
            LptKind::Ltab => self.ltab_size,
            LptKind::Lsave => self.lsave_size,
            LptKind::Unknown(_) => 0,
        }
    }

    /// The type of the node at the start of `bytes`, verified by its CRC; for scanning the tree's
    /// area.
    pub fn identify(&self, bytes: &[u8]) -> Result<LptKind, LptError> {
        let code = bytes.get(2).ok_or(LptError::Short)? & 0xf;
        let kind = LptKind::from_code(code);
        if self.node_size(kind) == 0 {
            return Err(LptError::Kind(kind));
        }
        self.open(bytes, kind).map(|_| kind)
    }

    /// Checks CRC and kind; the reader is positioned after the kind.
    fn open<'a>(&self, bytes: &'a [u8], kind: LptKind) -> Result<BitReader<'a>, LptError> {
        let node = bytes.get(..self.node_size(kind)).ok_or(LptError::Short)?;
        let mut reader = BitReader { bytes: node, at: 0 };
        let stored = reader.take(CRC_BITS) as u16;
        let computed = crc16(&node[2..]);
        if stored != computed {
            return Err(LptError::Crc { stored, computed });
        }
        match LptKind::from_code(reader.take(KIND_BITS) as u8) {
            found if found == kind => Ok(reader),
            found => Err(LptError::Kind(found)),
        }
    }

    fn create<'a>(&self, out: &'a mut [u8], kind: LptKind) -> BitWriter<'a> {
        let out = &mut out[..self.node_size(kind)];
        out.fill(0);
        let mut writer = BitWriter { bytes: out, at: CRC_BITS as usize };
        writer.put(kind.code().into(), KIND_BITS);
        writer
    }
}

/// Properties of one LEB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LebProperties {
    /// Bytes at its end that were never written.
    pub free: u32,
    /// Bytes of nodes that are no longer needed, and of padding.
    pub dirty: u32,
    /// Whether it holds index nodes.
    pub index: bool,
}

/// A leaf: properties of four LEBs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pnode {
    /// Number of the leaf from the left; 0 in the small model.
    pub number: u32,
    /// The LEBs' properties.
    pub lebs: [LebProperties; LPT_FANOUT],
}

impl Pnode {
    /// Reads a leaf; checks that free and dirty bytes together do not exceed a LEB.
    pub fn parse(bytes: &[u8], format: &LptFormat) -> Result<Self, LptError> {
        let mut pnode = Self { number: 0, lebs: [LebProperties::default(); LPT_FANOUT] };
        pnode.pass(format, &mut format.open(bytes, LptKind::Pnode)?);
        for leb in &pnode.lebs {
            if leb.free > format.leb_size {
                return Err(LptError::Field("free"));
            }
            if leb.dirty > format.leb_size - leb.free {
                return Err(LptError::Field("dirty"));
            }
        }
        Ok(pnode)
    }

    /// Passes its fields in order.
    fn pass(&mut self, format: &LptFormat, bits: &mut impl Bits) {
        if format.big {
            self.number = bits.pass(self.number, format.pcnt_bits);
        }
        for leb in &mut self.lebs {
            leb.free = bits.pass(leb.free >> 3, format.space_bits) << 3;
            leb.dirty = bits.pass(leb.dirty >> 3, format.space_bits) << 3;
            leb.index = bits.pass(leb.index.into(), 1) == 1;
        }
    }

    /// Writes the leaf to the start of `out`.
    pub fn emit(&self, format: &LptFormat, out: &mut [u8]) {
        let (mut pnode, mut writer) = (*self, format.create(out, LptKind::Pnode));
        pnode.pass(format, &mut writer);
        writer.finish();
    }
}

/// The position of a node of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LptPlace {
    /// LEB.
    pub lnum: u32,
    /// Offset in it, bytes.
    pub offset: u32,
}

/// An inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nnode {
    /// Its number, see [`LptFormat::nnode_number`]; 0 in the small model.
    pub number: u32,
    /// The positions of the children; a child that was never written represents empty LEBs.
    pub children: [Option<LptPlace>; LPT_FANOUT],
}

impl Nnode {
    /// Reads an inner node; checks that its children lie in the tree's LEBs.
    pub fn parse(bytes: &[u8], format: &LptFormat) -> Result<Self, LptError> {
        let (mut number, mut places) = (0, [(0, 0); LPT_FANOUT]);
        Self::pass((&mut number, &mut places), format, &mut format.open(bytes, LptKind::Nnode)?);
        let mut children = [None; LPT_FANOUT];
        for (child, (lnum, offset)) in children.iter_mut().zip(places) {
            if lnum > format.lebs {
                return Err(LptError::Field("lnum"));
            }
            if offset >= format.leb_size {
                return Err(LptError::Field("offs"));
            }
            if lnum < format.lebs {
                *child = Some(LptPlace { lnum: format.first + lnum, offset });
            }
        }
        Ok(Self { number, children })
    }

    /// Passes its fields in order: its number, and for each child a LEB, counted from the first of
    /// the tree, and an offset in it.
    fn pass(
        (number, places): (&mut u32, &mut [(u32, u32); LPT_FANOUT]),
        format: &LptFormat,
        bits: &mut impl Bits,
    ) {
        if format.big {
            *number = bits.pass(*number, format.pcnt_bits);
        }
        for (lnum, offset) in places {
            *lnum = bits.pass(*lnum, format.lpt_lnum_bits);
            *offset = bits.pass(*offset, format.lpt_offs_bits);
        }
    }

    /// Writes the inner node to the start of `out`.
    pub fn emit(&self, format: &LptFormat, out: &mut [u8]) {
        let (mut number, mut writer) = (self.number, format.create(out, LptKind::Nnode));
        let mut places = self.children.map(|child| {
            child.map_or((format.lebs, 0), |place| (place.lnum - format.first, place.offset))
        });
        Self::pass((&mut number, &mut places), format, &mut writer);
        writer.finish();
    }
}

/// The table of the tree's own LEBs, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Ltab<'a> {
    reader: BitReader<'a>,
    format: LptFormat,
}

impl<'a> Ltab<'a> {
    /// Reads the table; checks that free and dirty bytes together do not exceed a LEB.
    pub fn parse(bytes: &'a [u8], format: &LptFormat) -> Result<Self, LptError> {
        let table = Self { reader: format.open(bytes, LptKind::Ltab)?, format: *format };
        for (free, dirty) in table.entries() {
            if free > format.leb_size {
                return Err(LptError::Field("free"));
            }
            if dirty > format.leb_size - free {
                return Err(LptError::Field("dirty"));
            }
        }
        Ok(table)
    }

    /// Free and dirty bytes of each LEB of the tree.
    pub fn entries(&self) -> impl Iterator<Item = (u32, u32)> + use<'a> {
        let (mut reader, bits) = (self.reader, self.format.lpt_spc_bits);
        (0..self.format.lebs).map(move |_| (reader.take(bits), reader.take(bits)))
    }

    /// Writes a table to the start of `out`; missing entries become 0.
    pub fn emit(entries: impl IntoIterator<Item = (u32, u32)>, format: &LptFormat, out: &mut [u8]) {
        let mut writer = format.create(out, LptKind::Ltab);
        for (free, dirty) in entries.into_iter().take(format.lebs as usize) {
            writer.put(free, format.lpt_spc_bits);
            writer.put(dirty, format.lpt_spc_bits);
        }
        writer.finish();
    }
}

/// The table of interesting LEBs, read in place.
#[derive(Clone, Copy, Debug)]
pub struct Lsave<'a> {
    reader: BitReader<'a>,
    format: LptFormat,
}

impl<'a> Lsave<'a> {
    /// Reads the table; checks that every LEB lies in the main area or where it may grow to.
    pub fn parse(bytes: &'a [u8], format: &LptFormat) -> Result<Self, LptError> {
        if !format.big {
            return Err(LptError::Kind(LptKind::Lsave));
        }
        let table = Self { reader: format.open(bytes, LptKind::Lsave)?, format: *format };
        let main = format.main_first..format.leb_count_max;
        if table.lebs().any(|lnum| !main.contains(&lnum)) {
            return Err(LptError::Field("lnum"));
        }
        Ok(table)
    }

    /// The LEBs.
    pub fn lebs(&self) -> impl Iterator<Item = u32> + use<'a> {
        let (mut reader, bits) = (self.reader, self.format.lnum_bits);
        (0..self.format.lsave_count).map(move |_| reader.take(bits))
    }

    /// Writes a table to the start of `out`.
    pub fn emit(lebs: impl IntoIterator<Item = u32>, format: &LptFormat, out: &mut [u8]) {
        let mut writer = format.create(out, LptKind::Lsave);
        for lnum in lebs.into_iter().take(format.lsave_count as usize) {
            writer.put(lnum, format.lnum_bits);
        }
        writer.finish();
    }
}

/// Converts fields between a node and its bytes in either direction, so that the order of a node's
/// fields is stated once.
trait Bits {
    /// Writes `value`, or reads a value and ignores it; returns what is in the bytes.
    fn pass(&mut self, value: u32, bits: u32) -> u32;
}

impl Bits for BitReader<'_> {
    fn pass(&mut self, _: u32, bits: u32) -> u32 {
        self.take(bits)
    }
}

impl Bits for BitWriter<'_> {
    fn pass(&mut self, value: u32, bits: u32) -> u32 {
        self.put(value, bits);
        value
    }
}

/// Reads fields from bytes, low bits first.
#[derive(Clone, Copy, Debug)]
struct BitReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl BitReader<'_> {
    /// The next `bits` (at most 32), which the node's size covers.
    fn take(&mut self, bits: u32) -> u32 {
        let (first, shift) = (self.at / 8, self.at % 8);
        let mut word = [0; 8];
        let end = (first + 5).min(self.bytes.len());
        word[..end - first].copy_from_slice(&self.bytes[first..end]);
        self.at += bits as usize;
        ((u64::from_le_bytes(word) >> shift) & ((1 << bits) - 1)) as u32
    }
}

/// Writes fields into bytes, low bits first.
struct BitWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl BitWriter<'_> {
    fn put(&mut self, value: u32, bits: u32) {
        debug_assert!(u64::from(value) >> bits == 0, "{value} does not fit {bits} bits");
        let (first, shift) = (self.at / 8, self.at % 8);
        let word = (u64::from(value) << shift).to_le_bytes();
        for (byte, more) in self.bytes[first..].iter_mut().zip(word) {
            *byte |= more;
        }
        self.at += bits as usize;
    }

    fn finish(self) {
        let crc = crc16(&self.bytes[2..]);
        self.bytes[..2].copy_from_slice(&crc.to_le_bytes());
    }
}

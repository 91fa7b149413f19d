//! Positions of the parameters of commands in a CDB.

use super::LENGTH;
use super::parameters::{
    Buffer, BufferMode, ByteCheck, CacheRange, ModeSelect, ModeSense, PageControl, PowerCondition,
    Security, StartStop, Transfer, TransferFlags, Verify,
};
use crate::bytes::{be16, be32, be64, put};

const IMMED: u8 = 0x02;
pub(super) const GROUP_MASK: u8 = 0x1F;

pub(super) const fn flag(set: bool, bit: u8) -> u8 {
    if set { 1 << bit } else { 0 }
}

pub(super) const fn bit(byte: u8, bit: u8) -> bool {
    byte >> bit & 1 != 0
}

#[inline]
pub(super) fn transfer_10(c: &[u8; LENGTH]) -> Transfer {
    Transfer {
        lba: be32(c, 2).into(),
        blocks: be16(c, 7).into(),
        flags: TransferFlags::from_bits(c[1]),
        group: c[6] & GROUP_MASK,
    }
}

/// A 10-byte CDB as one big-endian number, so that it is built in registers.
#[inline]
pub(super) const fn transfer_10_bytes(opcode: u8, t: &Transfer) -> [u8; LENGTH] {
    let cdb = (opcode as u128) << 120
        | (t.flags.into_bits() as u128) << 112
        | (t.lba as u32 as u128) << 80
        | ((t.group & GROUP_MASK) as u128) << 72
        | (t.blocks as u16 as u128) << 56;
    cdb.to_be_bytes()
}

#[inline]
pub(super) fn transfer_16(c: &[u8; LENGTH]) -> Transfer {
    Transfer {
        lba: be64(c, 2),
        blocks: be32(c, 10),
        flags: TransferFlags::from_bits(c[1]),
        group: c[14] & GROUP_MASK,
    }
}

/// A 16-byte CDB as one big-endian number.
#[inline]
pub(super) const fn transfer_16_bytes(opcode: u8, t: &Transfer) -> [u8; LENGTH] {
    let cdb = (opcode as u128) << 120
        | (t.flags.into_bits() as u128) << 112
        | (t.lba as u128) << 48
        | (t.blocks as u128) << 16
        | ((t.group & GROUP_MASK) as u128) << 8;
    cdb.to_be_bytes()
}

pub(super) fn transfer_6(c: &[u8; LENGTH]) -> Transfer {
    let blocks = if c[4] == 0 { 256 } else { c[4].into() };
    Transfer::new((be32(c, 0) & 0x1F_FFFF).into(), blocks)
}

pub(super) fn emit_transfer_6(t: &Transfer, c: &mut [u8; LENGTH]) {
    let lba = (t.lba as u32 & 0x1F_FFFF).to_be_bytes();
    c[1..4].copy_from_slice(&lba[1..]);
    c[4] = t.blocks as u8;
}

pub(super) fn cache_10(c: &[u8; LENGTH]) -> CacheRange {
    CacheRange {
        lba: be32(c, 2).into(),
        blocks: be16(c, 7).into(),
        immed: c[1] & IMMED != 0,
        group: c[6] & GROUP_MASK,
    }
}

pub(super) fn emit_cache_10(r: &CacheRange, c: &mut [u8; LENGTH]) {
    c[1] = if r.immed { IMMED } else { 0 };
    put(c, 2, (r.lba as u32).to_be_bytes());
    c[6] = r.group & GROUP_MASK;
    put(c, 7, (r.blocks as u16).to_be_bytes());
}

pub(super) fn cache_16(c: &[u8; LENGTH]) -> CacheRange {
    CacheRange {
        lba: be64(c, 2),
        blocks: be32(c, 10),
        immed: c[1] & IMMED != 0,
        group: c[14] & GROUP_MASK,
    }
}

pub(super) fn emit_cache_16(r: &CacheRange, c: &mut [u8; LENGTH]) {
    c[1] = if r.immed { IMMED } else { 0 };
    put(c, 2, r.lba.to_be_bytes());
    put(c, 10, r.blocks.to_be_bytes());
    c[14] = r.group & GROUP_MASK;
}

pub(super) fn verify(c: &[u8; LENGTH]) -> Verify {
    Verify {
        lba: be32(c, 2),
        blocks: be16(c, 7),
        dpo: bit(c[1], 4),
        bytchk: ByteCheck::from_bits(c[1] >> 1 & 3),
        group: c[6] & GROUP_MASK,
    }
}

pub(super) fn emit_verify(v: &Verify, c: &mut [u8; LENGTH]) {
    c[1] = flag(v.dpo, 4) | (v.bytchk.into_bits() & 3) << 1;
    put(c, 2, v.lba.to_be_bytes());
    c[6] = v.group & GROUP_MASK;
    put(c, 7, v.blocks.to_be_bytes());
}

pub(super) fn start_stop(c: &[u8; LENGTH]) -> StartStop {
    StartStop {
        immed: bit(c[1], 0),
        power_condition: PowerCondition::from_bits(c[4] >> 4),
        modifier: c[3] & 0xF,
        no_flush: bit(c[4], 2),
        loej: bit(c[4], 1),
        start: bit(c[4], 0),
    }
}

pub(super) fn emit_start_stop(s: &StartStop, c: &mut [u8; LENGTH]) {
    c[1] = flag(s.immed, 0);
    c[3] = s.modifier & 0xF;
    c[4] = s.power_condition.into_bits() << 4
        | flag(s.no_flush, 2)
        | flag(s.loej, 1)
        | flag(s.start, 0);
}

pub(super) fn mode_select(c: &[u8; LENGTH], parameter_list_length: u16) -> ModeSelect {
    ModeSelect { pf: bit(c[1], 4), sp: bit(c[1], 0), parameter_list_length }
}

pub(super) fn mode_sense(c: &[u8; LENGTH], llbaa: bool, allocation_length: u16) -> ModeSense {
    ModeSense {
        page: c[2] & 0x3F,
        subpage: c[3],
        control: PageControl::from_bits(c[2] >> 6),
        dbd: bit(c[1], 3),
        llbaa,
        allocation_length,
    }
}

pub(super) fn emit_mode_sense(m: &ModeSense, c: &mut [u8; LENGTH]) {
    c[1] = flag(m.dbd, 3);
    c[2] = m.control.into_bits() << 6 | m.page & 0x3F;
    c[3] = m.subpage;
}

pub(super) fn buffer(c: &[u8; LENGTH]) -> Buffer {
    Buffer {
        mode: BufferMode::from_bits(c[1] & 0x1F),
        mode_specific: c[1] >> 5,
        id: c[2],
        offset: be32(c, 2) & 0xFF_FFFF,
        length: be32(c, 5) & 0xFF_FFFF,
    }
}

pub(super) fn emit_buffer(b: &Buffer, c: &mut [u8; LENGTH]) {
    c[1] = b.mode_specific << 5 | b.mode.into_bits() & 0x1F;
    put(c, 2, (b.offset & 0xFF_FFFF).to_be_bytes());
    c[2] = b.id;
    c[6..9].copy_from_slice(&b.length.to_be_bytes()[1..]);
}

pub(super) fn security(c: &[u8; LENGTH]) -> Security {
    Security { protocol: c[1], specific: be16(c, 2), inc_512: bit(c[4], 7), length: be32(c, 6) }
}

pub(super) fn emit_security(s: &Security, c: &mut [u8; LENGTH]) {
    c[1] = s.protocol;
    put(c, 2, s.specific.to_be_bytes());
    c[4] = flag(s.inc_512, 7);
    put(c, 6, s.length.to_be_bytes());
}

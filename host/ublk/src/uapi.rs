//! Numbers and structures of the kernel (`include/uapi/linux/ublk_cmd.h`).

/// `_IOC` of the letter 'u': direction, size of the structure, number.
const fn number(direction: u32, size: usize, number: u32) -> u32 {
    direction << 30 | (size as u32) << 16 | (b'u' as u32) << 8 | number
}

/// A control command that changes something (`_IOWR`).
const fn change(nr: u32) -> u32 {
    number(3, size_of::<Command>(), nr)
}

/// A control command that asks (`_IOR`).
const fn ask(nr: u32) -> u32 {
    number(2, size_of::<Command>(), nr)
}

/// Control commands (`UBLK_U_CMD_*`).
pub(crate) mod command {
    use super::{ask, change};

    pub(crate) const GET_DEV_INFO: u32 = ask(0x02);
    pub(crate) const ADD_DEV: u32 = change(0x04);
    pub(crate) const DEL_DEV: u32 = change(0x05);
    pub(crate) const START_DEV: u32 = change(0x06);
    pub(crate) const STOP_DEV: u32 = change(0x07);
    pub(crate) const SET_PARAMS: u32 = change(0x08);
    pub(crate) const GET_PARAMS: u32 = ask(0x09);
    pub(crate) const START_USER_RECOVERY: u32 = change(0x10);
    pub(crate) const END_USER_RECOVERY: u32 = change(0x11);
    pub(crate) const GET_FEATURES: u32 = ask(0x13);
}

/// `UBLK_U_IO_FETCH_REQ`: the tag waits for its first request.
pub(crate) const FETCH: u32 = number(3, size_of::<IoCommand>(), 0x20);
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`: the tag's request is answered, and it waits for the next.
pub(crate) const COMMIT_AND_FETCH: u32 = number(3, size_of::<IoCommand>(), 0x21);

/// `UBLK_IO_RES_ABORT`: the command ends without a request, as the disk does.
pub(crate) const ABORT: i32 = -19;

/// Features (`UBLK_F_*`): requests wait for a new server; those that the old one had taken are
/// issued again; commands have the numbers above.
pub(crate) const USER_RECOVERY: u64 = 1 << 3;
pub(crate) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
pub(crate) const CMD_IOCTL_ENCODE: u64 = 1 << 6;

/// States (`UBLK_S_DEV_*`): not started, or stopped; served; its server was killed, and requests
/// wait.
pub(crate) const DEAD: u16 = 0;
pub(crate) const LIVE: u16 = 1;
pub(crate) const QUIESCED: u16 = 2;

/// `UBLK_MAX_QUEUE_DEPTH`: the descriptors of a queue start this many descriptors behind those of
/// the previous one.
pub(crate) const QUEUE_DEPTH_MAX: usize = 4096;

/// `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Command {
    pub(crate) device: u32,
    /// All ones if none is meant.
    pub(crate) queue: u16,
    /// Bytes at `address`.
    pub(crate) length: u16,
    pub(crate) address: u64,
    pub(crate) data: u64,
    pub(crate) path_length: u16,
    pub(crate) padding: u16,
    pub(crate) reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Info {
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    pub(crate) state: u16,
    pub(crate) padding0: u16,
    /// Maximum bytes of a request.
    pub(crate) buffer: u32,
    pub(crate) device: u32,
    /// The server's process; -1 for none.
    pub(crate) process: i32,
    pub(crate) padding1: u32,
    pub(crate) flags: u64,
    /// Private data of the server.
    pub(crate) mark: u64,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) reserved: [u64; 2],
}

/// Which parts of [`Parameters`] there are (`UBLK_PARAM_TYPE_*`).
pub(crate) const BASIC: u32 = 1 << 0;
pub(crate) const DISCARD: u32 = 1 << 1;

/// Attributes of a disk (`UBLK_ATTR_*`).
pub(crate) const READ_ONLY: u32 = 1 << 0;
pub(crate) const VOLATILE_CACHE: u32 = 1 << 2;
pub(crate) const FUA: u32 = 1 << 3;

/// `struct ublk_params` as far as `struct ublk_param_discard`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Parameters {
    pub(crate) length: u32,
    pub(crate) types: u32,
    // struct ublk_param_basic
    pub(crate) attributes: u32,
    pub(crate) logical_shift: u8,
    pub(crate) physical_shift: u8,
    pub(crate) io_opt_shift: u8,
    pub(crate) io_min_shift: u8,
    pub(crate) sectors_max: u32,
    pub(crate) chunk_sectors: u32,
    pub(crate) sectors: u64,
    pub(crate) virt_boundary: u64,
    // struct ublk_param_discard
    pub(crate) discard_alignment: u32,
    pub(crate) discard_granularity: u32,
    pub(crate) discard_max: u32,
    pub(crate) zeroes_max: u32,
    pub(crate) discard_segments: u16,
    pub(crate) reserved: u16,
    /// The structure is longer; [`PARAMETERS`] says where ours ends.
    pub(crate) padding: u32,
}

/// Bytes of [`Parameters`] passed to the kernel.
pub(crate) const PARAMETERS: u32 = 60;

/// `struct ublksrv_io_desc`: a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Descriptor {
    /// The operation in the low byte, flags above.
    pub(crate) operation: u32,
    /// Of 512 bytes each.
    pub(crate) sectors: u32,
    pub(crate) first: u64,
    pub(crate) address: u64,
}

/// Operations (`UBLK_IO_OP_*`).
pub(crate) mod operation {
    pub(crate) const READ: u8 = 0;
    pub(crate) const WRITE: u8 = 1;
    pub(crate) const FLUSH: u8 = 2;
    pub(crate) const DISCARD: u8 = 3;
    pub(crate) const WRITE_ZEROES: u8 = 5;
}

/// `UBLK_IO_F_FUA`: durable before it is answered.
pub(crate) const FORCE_UNIT_ACCESS: u32 = 1 << 13;

/// `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoCommand {
    pub(crate) queue: u16,
    pub(crate) tag: u16,
    /// Bytes, or an error number below 0.
    pub(crate) result: i32,
    /// The address for the data of the tag's next request.
    pub(crate) address: u64,
}

impl IoCommand {
    pub(crate) fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.result.to_ne_bytes());
        bytes[8..].copy_from_slice(&self.address.to_ne_bytes());
        bytes
    }
}

impl Command {
    /// The content of a 128-byte submission.
    pub(crate) fn bytes(self) -> [u8; 80] {
        let mut bytes = [0; 80];
        bytes[..4].copy_from_slice(&self.device.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.queue.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.length.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.data.to_ne_bytes());
        bytes[24..26].copy_from_slice(&self.path_length.to_ne_bytes());
        bytes
    }
}

const _: () = {
    assert!(size_of::<Command>() == 32);
    assert!(size_of::<Info>() == 64);
    assert!(size_of::<Parameters>() == 64);
    assert!(size_of::<Descriptor>() == 24);
    assert!(size_of::<IoCommand>() == 16);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_numbers_of_the_header() {
        assert_eq!(command::ADD_DEV, 0xc020_7504);
        assert_eq!(command::GET_DEV_INFO, 0x8020_7502);
        assert_eq!(command::GET_FEATURES, 0x8020_7513);
        assert_eq!((FETCH, COMMIT_AND_FETCH), (0xc010_7520, 0xc010_7521));
    }

    #[test]
    fn structures_have_their_fields_where_the_header_has_them() {
        use std::mem::offset_of;
        let info = [
            (offset_of!(Info, buffer), 8),
            (offset_of!(Info, device), 12),
            (offset_of!(Info, process), 16),
            (offset_of!(Info, flags), 24),
            (offset_of!(Info, mark), 32),
        ];
        let parameters = [
            (offset_of!(Parameters, logical_shift), 12),
            (offset_of!(Parameters, sectors_max), 16),
            (offset_of!(Parameters, sectors), 24),
            (offset_of!(Parameters, discard_alignment), 40),
            (offset_of!(Parameters, discard_segments), 56),
        ];
        for (ours, theirs) in info.into_iter().chain(parameters) {
            assert_eq!(ours, theirs);
        }
        let io = IoCommand { queue: 1, tag: 2, result: -5, address: 6 };
        assert_eq!(io.bytes()[..8], [1, 0, 2, 0, 0xfb, 0xff, 0xff, 0xff]);
    }
}

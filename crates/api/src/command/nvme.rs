use super::Protocol;

/// NVMe: the base specification 2.0 with the NVM command set. The unit is the namespace id, 0 for
/// commands to the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Nvme;

impl Protocol for Nvme {
    type Payload = NvmeCommand;
    type Status = NvmeStatus;
}

/// A submission queue entry without the fields that the driver fills in: command id, PSDT,
/// namespace, data and metadata pointers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NvmeCommand {
    /// OPC.
    pub opcode: u8,
    /// FUSE: 0 is a normal command.
    pub fuse: u8,
    /// CDW2 and CDW3.
    pub cdw2: [u32; 2],
    /// CDW10 to CDW15.
    pub cdw10: [u32; 6],
}

/// How an NVMe controller answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NvmeStatus {
    /// The status field of the completion queue entry without the phase: SC 7:0, SCT 10:8, CRD
    /// 12:11, M 13, DNR 14.
    pub status: u16,
    /// DW0 of the completion queue entry: the result of the command.
    pub result: u32,
}

impl NvmeStatus {
    /// SC, status code.
    pub const fn code(&self) -> u8 {
        self.status as u8
    }

    /// SCT, status code type: 0 generic, 1 command specific, 2 media, 3 path, 7 vendor.
    pub const fn code_type(&self) -> u8 {
        (self.status >> 8 & 7) as u8
    }

    /// CRD: which of the controller's retry delays to wait; 0 for none.
    pub const fn retry_delay(&self) -> u8 {
        (self.status >> 11 & 3) as u8
    }

    /// M: the error information log has more.
    pub const fn more(&self) -> bool {
        self.status & 1 << 13 != 0
    }

    /// DNR: the same command would fail again.
    pub const fn do_not_retry(&self) -> bool {
        self.status & 1 << 14 != 0
    }
}

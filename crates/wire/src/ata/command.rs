//! Commands (ACS 7): their codes, and the fields that some of them take.

use crate::code::code;

code! {
    /// COMMAND.
    pub enum Opcode: u8 {
        /// NOP.
        Nop = 0x00 => "NOP",
        /// DATA SET MANAGEMENT.
        DataSetManagement = 0x06 => "DATA SET MANAGEMENT",
        /// READ SECTORS.
        ReadSectors = 0x20 => "READ SECTORS",
        /// READ SECTORS EXT.
        ReadSectorsExt = 0x24 => "READ SECTORS EXT",
        /// READ DMA EXT.
        ReadDmaExt = 0x25 => "READ DMA EXT",
        /// READ NATIVE MAX ADDRESS EXT.
        ReadNativeMaxExt = 0x27 => "READ NATIVE MAX ADDRESS EXT",
        /// SET MAX ADDRESS EXT.
        SetMaxExt = 0x37 => "SET MAX ADDRESS EXT",
        /// READ LOG EXT.
        ReadLogExt = 0x2F => "READ LOG EXT",
        /// WRITE SECTORS.
        WriteSectors = 0x30 => "WRITE SECTORS",
        /// WRITE SECTORS EXT.
        WriteSectorsExt = 0x34 => "WRITE SECTORS EXT",
        /// WRITE DMA EXT.
        WriteDmaExt = 0x35 => "WRITE DMA EXT",
        /// WRITE DMA FUA EXT.
        WriteDmaFuaExt = 0x3D => "WRITE DMA FUA EXT",
        /// READ VERIFY SECTORS.
        ReadVerify = 0x40 => "READ VERIFY SECTORS",
        /// READ VERIFY SECTORS EXT.
        ReadVerifyExt = 0x42 => "READ VERIFY SECTORS EXT",
        /// WRITE UNCORRECTABLE EXT.
        WriteUncorrectableExt = 0x45 => "WRITE UNCORRECTABLE EXT",
        /// READ LOG DMA EXT.
        ReadLogDmaExt = 0x47 => "READ LOG DMA EXT",
        /// READ FPDMA QUEUED.
        ReadFpdma = 0x60 => "READ FPDMA QUEUED",
        /// WRITE FPDMA QUEUED.
        WriteFpdma = 0x61 => "WRITE FPDMA QUEUED",
        /// NCQ NON-DATA.
        NcqNonData = 0x63 => "NCQ NON-DATA",
        /// SEND FPDMA QUEUED.
        SendFpdma = 0x64 => "SEND FPDMA QUEUED",
        /// RECEIVE FPDMA QUEUED.
        ReceiveFpdma = 0x65 => "RECEIVE FPDMA QUEUED",
        /// ACCESSIBLE MAX ADDRESS CONFIGURATION.
        MaxAddress = 0x78 => "ACCESSIBLE MAX ADDRESS CONFIGURATION",
        /// EXECUTE DEVICE DIAGNOSTIC.
        Diagnostic = 0x90 => "EXECUTE DEVICE DIAGNOSTIC",
        /// DOWNLOAD MICROCODE.
        DownloadMicrocode = 0x92 => "DOWNLOAD MICROCODE",
        /// PACKET.
        Packet = 0xA0 => "PACKET",
        /// IDENTIFY PACKET DEVICE.
        IdentifyPacket = 0xA1 => "IDENTIFY PACKET DEVICE",
        /// SMART.
        Smart = 0xB0 => "SMART",
        /// SANITIZE DEVICE.
        Sanitize = 0xB4 => "SANITIZE DEVICE",
        /// READ DMA.
        ReadDma = 0xC8 => "READ DMA",
        /// WRITE DMA.
        WriteDma = 0xCA => "WRITE DMA",
        /// STANDBY IMMEDIATE.
        StandbyImmediate = 0xE0 => "STANDBY IMMEDIATE",
        /// IDLE IMMEDIATE.
        IdleImmediate = 0xE1 => "IDLE IMMEDIATE",
        /// STANDBY.
        Standby = 0xE2 => "STANDBY",
        /// IDLE.
        Idle = 0xE3 => "IDLE",
        /// CHECK POWER MODE.
        CheckPowerMode = 0xE5 => "CHECK POWER MODE",
        /// READ PORT MULTIPLIER.
        ReadMultiplier = 0xE4 => "READ PORT MULTIPLIER",
        /// SLEEP.
        Sleep = 0xE6 => "SLEEP",
        /// FLUSH CACHE.
        Flush = 0xE7 => "FLUSH CACHE",
        /// WRITE PORT MULTIPLIER.
        WriteMultiplier = 0xE8 => "WRITE PORT MULTIPLIER",
        /// FLUSH CACHE EXT.
        FlushExt = 0xEA => "FLUSH CACHE EXT",
        /// IDENTIFY DEVICE.
        Identify = 0xEC => "IDENTIFY DEVICE",
        /// SET FEATURES.
        SetFeatures = 0xEF => "SET FEATURES",
        /// SECURITY SET PASSWORD.
        SecuritySetPassword = 0xF1 => "SECURITY SET PASSWORD",
        /// SECURITY UNLOCK.
        SecurityUnlock = 0xF2 => "SECURITY UNLOCK",
        /// SECURITY ERASE PREPARE.
        SecurityErasePrepare = 0xF3 => "SECURITY ERASE PREPARE",
        /// SECURITY ERASE UNIT.
        SecurityEraseUnit = 0xF4 => "SECURITY ERASE UNIT",
        /// SECURITY FREEZE LOCK.
        SecurityFreezeLock = 0xF5 => "SECURITY FREEZE LOCK",
        /// SECURITY DISABLE PASSWORD.
        SecurityDisablePassword = 0xF6 => "SECURITY DISABLE PASSWORD",
        /// READ NATIVE MAX ADDRESS.
        ReadNativeMax = 0xF8 => "READ NATIVE MAX ADDRESS",
    }
}

/// DEVICE: LBA addressing and, in queued writes, force unit access.
pub mod device {
    /// Addresses are LBAs.
    pub const LBA: u8 = 1 << 6;
    /// FUA of a queued write.
    pub const FUA: u8 = 1 << 7;
}

/// FEATURES of SET FEATURES (ACS 7.42).
pub mod feature {
    /// Write cache on.
    pub const WRITE_CACHE: u16 = 0x02;
    /// Transfer mode, in COUNT.
    pub const TRANSFER_MODE: u16 = 0x03;
    /// Spin up.
    pub const SPIN_UP: u16 = 0x07;
    /// Enables the SATA feature in COUNT.
    pub const SATA: u16 = 0x10;
    /// Read look-ahead off.
    pub const NO_LOOK_AHEAD: u16 = 0x55;
    /// Write cache off.
    pub const NO_WRITE_CACHE: u16 = 0x82;
    /// Disables the SATA feature in COUNT.
    pub const NO_SATA: u16 = 0x90;
    /// Read look-ahead on.
    pub const LOOK_AHEAD: u16 = 0xAA;
}

/// COUNT of SET FEATURES for SATA features.
pub mod sata_feature {
    /// Device initiated power management.
    pub const DIPM: u16 = 0x03;
    /// Automatic partial to slumber.
    pub const APST: u16 = 0x07;
    /// Device sleep.
    pub const DEVSLEEP: u16 = 0x09;
}

/// FEATURES of SMART (ACS 7.45), and the value its LBA must have.
pub mod smart {
    /// Attributes.
    pub const READ_DATA: u16 = 0xD0;
    /// Thresholds (old devices).
    pub const READ_THRESHOLDS: u16 = 0xD1;
    /// Off-line tests.
    pub const EXECUTE: u16 = 0xD4;
    /// A log.
    pub const READ_LOG: u16 = 0xD5;
    /// Writes a log.
    pub const WRITE_LOG: u16 = 0xD6;
    /// SMART on.
    pub const ENABLE: u16 = 0xD8;
    /// SMART off.
    pub const DISABLE: u16 = 0xD9;
    /// Reports whether a threshold is exceeded.
    pub const RETURN_STATUS: u16 = 0xDA;
    /// The signature, in LBA 23:8.
    pub const LBA: u64 = 0xC2_4F00;
    /// LBA of the answer if a threshold is exceeded.
    pub const EXCEEDED: u64 = 0x2C_F400;

    /// What EXECUTE does, in LBA 7:0 (ACS-3 7.48.5).
    pub mod test {
        /// Off-line data collection.
        pub const OFFLINE: u8 = 0;
        /// Short self-test.
        pub const SHORT: u8 = 1;
        /// Extended self-test.
        pub const EXTENDED: u8 = 2;
        /// Aborts the running self-test.
        pub const ABORT: u8 = 0x7F;
    }
}

/// FEATURES of ACCESSIBLE MAX ADDRESS CONFIGURATION (ACS 7.2).
pub mod max_address {
    /// Native max address.
    pub const GET_NATIVE: u16 = 0;
    /// Sets the accessible max address to LBA.
    pub const SET: u16 = 1;
    /// Forbids changes until the next power-on.
    pub const FREEZE: u16 = 2;
}

/// FEATURES of DOWNLOAD MICROCODE (ACS 7.7).
pub mod microcode {
    /// One part; the last activates the image.
    pub const PARTS: u16 = 0x03;
    /// One part of an image that is saved until it is activated.
    pub const DEFERRED: u16 = 0x0E;
    /// Activates the saved image.
    pub const ACTIVATE: u16 = 0x0F;
    /// COUNT of the answer: more parts are expected.
    pub const MORE: u16 = 1;
    /// COUNT of the answer: the image is active.
    pub const APPLIED: u16 = 2;
    /// COUNT of the answer: the image is saved.
    pub const SAVED: u16 = 3;
    /// Unit of offset and length, bytes.
    pub const BLOCK: usize = 512;
}

/// FEATURES of SANITIZE DEVICE (ACS 7.36), and the signatures in LBA.
pub mod sanitize {
    /// Reports progress.
    pub const STATUS: u16 = 0x00;
    /// Crypto scramble.
    pub const CRYPTO: u16 = 0x11;
    /// Block erase.
    pub const BLOCK_ERASE: u16 = 0x12;
    /// Overwrite.
    pub const OVERWRITE: u16 = 0x14;
    /// Freeze lock.
    pub const FREEZE_LOCK: u16 = 0x20;
    /// LBA of crypto scramble: "Cryp".
    pub const CRYPTO_LBA: u64 = 0x4372_7970;
    /// LBA of block erase: "BkEr".
    pub const BLOCK_ERASE_LBA: u64 = 0x426B_4572;
    /// LBA 47:32 of overwrite: "OW"; the pattern is in LBA 31:0, the passes in COUNT 3:0.
    pub const OVERWRITE_LBA: u64 = 0x4F57 << 32;
    /// COUNT of overwrite: each pass writes the inverse of the previous pattern.
    pub const INVERT: u16 = 1 << 7;
    /// LBA of freeze lock: "FrLk".
    pub const FREEZE_LOCK_LBA: u64 = 0x4672_4C6B;
    /// COUNT of the answer: completed without an error.
    pub const COMPLETED: u16 = 1 << 15;
    /// COUNT of the answer: under way.
    pub const IN_PROGRESS: u16 = 1 << 14;
    /// COUNT of the answer: frozen.
    pub const FROZEN: u16 = 1 << 13;
}

/// AUXILIARY and COUNT of SEND FPDMA QUEUED (ACS 7.39).
pub mod send {
    /// COUNT 12:8: DATA SET MANAGEMENT.
    pub const DATA_SET_MANAGEMENT: u16 = 0 << 8;
    /// AUXILIARY: trim.
    pub const TRIM: u32 = 1;
}

/// COUNT of CHECK POWER MODE's answer.
pub mod power {
    /// Standby.
    pub const STANDBY: u16 = 0x00;
    /// Idle.
    pub const IDLE: u16 = 0x80;
    /// Active or idle.
    pub const ACTIVE: u16 = 0xFF;
}

/// Position of the tag in COUNT of a queued command.
pub const TAG_SHIFT: u32 = 3;
/// Maximum sectors of a 48-bit command; COUNT is then 0.
pub const SECTORS_MAX: u32 = 1 << 16;
/// Maximum sectors of a 28-bit command; COUNT is then 0.
pub const SECTORS_MAX_28: u32 = 1 << 8;

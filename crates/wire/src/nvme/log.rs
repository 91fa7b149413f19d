//! Log pages (5.16.1).

use super::layout::layout;
use crate::code::code;

code! {
    /// Log page identifiers.
    pub enum LogId: u8 {
        /// Supported log pages.
        Supported = 0x00 => "Supported Log Pages",
        /// Error information.
        Errors = 0x01 => "Error Information",
        /// SMART and health.
        Smart = 0x02 => "SMART / Health Information",
        /// Firmware slots.
        Firmware = 0x03 => "Firmware Slot Information",
        /// Changed namespaces.
        ChangedNamespaces = 0x04 => "Changed Namespace List",
        /// Commands and their effects.
        Effects = 0x05 => "Commands Supported and Effects",
        /// Self-test.
        SelfTest = 0x06 => "Device Self-test",
        /// Telemetry initiated by the host.
        TelemetryHost = 0x07 => "Telemetry Host-Initiated",
        /// Telemetry initiated by the controller.
        TelemetryController = 0x08 => "Telemetry Controller-Initiated",
        /// Sanitize status.
        Sanitize = 0x81 => "Sanitize Status",
    }
}

/// Bit of CDW10 of get log page: retain the asynchronous event, which stays masked.
pub const RETAIN_EVENT: u32 = 1 << 15;

/// CDW10 and CDW11 of get log page for this number of bytes, a multiple of four and at least four.
pub const fn request(id: u8, bytes: u32, retain: bool) -> [u32; 2] {
    let dwords = bytes / 4 - 1;
    let retain = if retain { RETAIN_EVENT } else { 0 };
    [id as u32 | retain | (dwords & 0xFFFF) << 16, dwords >> 16]
}

/// Bytes per entry of the error log.
pub const ERROR_ENTRY: usize = 64;
/// Bytes in the list of changed namespaces.
pub const CHANGED_LENGTH: usize = 4096;
/// Bytes in the log of commands and effects.
pub const EFFECTS_LENGTH: usize = 4096;

layout! {
    /// SMART and health information (5.16.1.3).
    pub struct Smart[512] {
        /// Critical warning.
        critical_warning: u8 = 0,
        /// Composite temperature, kelvin.
        temperature: u16 = 1,
        /// Available spare, percent.
        spare: u8 = 3,
        /// Spare below this percentage raises a warning.
        spare_threshold: u8 = 4,
        /// Percentage of life used; may exceed 100.
        used: u8 = 5,
        /// Critical warnings of endurance groups.
        endurance_warning: u8 = 6,
        /// Data units read, each 1000 x 512 bytes.
        units_read: u128 = 32,
        /// Data units written.
        units_written: u128 = 48,
        /// Read commands.
        reads: u128 = 64,
        /// Write commands.
        writes: u128 = 80,
        /// Controller busy time, minutes.
        busy_minutes: u128 = 96,
        /// Power cycles.
        power_cycles: u128 = 112,
        /// Hours powered on.
        power_on_hours: u128 = 128,
        /// Power losses without a shutdown.
        unsafe_shutdowns: u128 = 144,
        /// Media errors.
        media_errors: u128 = 160,
        /// Error log entries over the life of the controller.
        error_entries: u128 = 176,
        /// Minutes above the warning temperature.
        warning_minutes: u32 = 192,
        /// Minutes above the critical temperature.
        critical_minutes: u32 = 196,
        /// Temperature sensors 1 to 8, kelvin, 16 bits each; 0 is none.
        sensors: [u8; 16] = 200,
        /// Light thermal throttling: number of transitions to a lower power state.
        light_throttles: u32 = 216,
        /// The same for heavy throttling.
        heavy_throttles: u32 = 220,
        /// Light thermal throttling: total time, seconds.
        light_seconds: u32 = 224,
        /// The same for heavy throttling.
        heavy_seconds: u32 = 228,
    }
}

layout! {
    /// An entry of the error log (5.16.1.2).
    pub struct ErrorEntry[64] {
        /// Number of the entry, increasing; 0 if it is empty.
        count: u64 = 0,
        /// Submission queue.
        sq: u16 = 8,
        /// Command.
        cid: u16 = 10,
        /// Status field with the phase.
        status: u16 = 12,
        /// Byte and bit of the command that is in error.
        location: u16 = 14,
        /// First affected block.
        lba: u64 = 16,
        /// Namespace.
        nsid: u32 = 24,
        /// A log page with vendor specific information.
        vendor_page: u8 = 28,
        /// TRTYPE: transport.
        transport: u8 = 29,
        /// Command specific information.
        command_specific: u64 = 32,
        /// Transport specific information.
        transport_specific: u16 = 40,
    }
}

layout! {
    /// Firmware slots (5.16.1.4).
    pub struct FirmwareSlots[512] {
        /// AFI: active slot in bits 2:0, the next one in bits 6:4.
        active: u8 = 0,
        /// FRS1 to FRS7: revisions.
        revisions: [u8; 56] = 8,
    }
}

layout! {
    /// Sanitize status (5.16.1.25).
    pub struct SanitizeStatus[512] {
        /// SPROG: progress in 65536ths; 65535 when none is running.
        progress: u16 = 0,
        /// SSTAT: state in bits 2:0, passes of an overwrite in bits 7:3, global data erased in bit
        /// 8.
        status: u16 = 2,
        /// SCDW10: CDW10 of the last sanitize command.
        cdw10: u32 = 4,
        /// Estimated time of an overwrite, seconds; all ones if unknown.
        overwrite: u32 = 8,
        /// Of a block erase.
        block_erase: u32 = 12,
        /// Of a crypto erase.
        crypto_erase: u32 = 16,
        /// Of an overwrite without deallocation.
        overwrite_kept: u32 = 20,
        /// Of a block erase without deallocation.
        block_erase_kept: u32 = 24,
        /// Of a crypto erase without deallocation.
        crypto_erase_kept: u32 = 28,
    }
}

/// States of [`SanitizeStatus::status`], bits 2:0.
pub mod sanitize {
    /// Never sanitized.
    pub const NEVER: u16 = 0;
    /// The last one succeeded.
    pub const DONE: u16 = 1;
    /// One is running.
    pub const RUNS: u16 = 2;
    /// The last one failed.
    pub const FAILED: u16 = 3;
    /// The last one succeeded, and deallocated although the command asked not to.
    pub const DONE_DEALLOCATED: u16 = 4;
}

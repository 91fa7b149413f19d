//! Status and sense data (SAM-6 5.3, SPC-6 4.4): how a command ended and why.

use crate::bytes::{array, be32, be64, put};
use crate::code::code;
use crate::error::WireError;

code! {
    /// Status of a command (SAM-6 5.3.1).
    pub enum Status: u8 {
        /// Done.
        Good = 0x00 => "GOOD",
        /// Sense data gives the reason.
        CheckCondition = 0x02 => "CHECK CONDITION",
        /// Done, the condition is met.
        ConditionMet = 0x04 => "CONDITION MET",
        /// The device is busy; try again.
        Busy = 0x08 => "BUSY",
        /// Reserved by another initiator.
        ReservationConflict = 0x18 => "RESERVATION CONFLICT",
        /// The queue is full.
        TaskSetFull = 0x28 => "TASK SET FULL",
        /// An ACA condition is active.
        AcaActive = 0x30 => "ACA ACTIVE",
        /// Aborted by another initiator.
        TaskAborted = 0x40 => "TASK ABORTED",
    }
}

code! {
    /// Sense key (SPC-6 4.4).
    pub enum SenseKey: u8 {
        /// No error.
        NoSense = 0x0 => "NO SENSE",
        /// Completed after recovery.
        RecoveredError = 0x1 => "RECOVERED ERROR",
        /// The unit cannot be accessed now.
        NotReady = 0x2 => "NOT READY",
        /// The medium has an error.
        MediumError = 0x3 => "MEDIUM ERROR",
        /// The hardware has an error.
        HardwareError = 0x4 => "HARDWARE ERROR",
        /// The request is invalid.
        IllegalRequest = 0x5 => "ILLEGAL REQUEST",
        /// Something happened since the last command.
        UnitAttention = 0x6 => "UNIT ATTENTION",
        /// Protected.
        DataProtect = 0x7 => "DATA PROTECT",
        /// Nothing is written there.
        BlankCheck = 0x8 => "BLANK CHECK",
        /// Vendor specific.
        VendorSpecific = 0x9 => "VENDOR SPECIFIC",
        /// A copy was aborted.
        CopyAborted = 0xA => "COPY ABORTED",
        /// The device aborted the command; try again.
        AbortedCommand = 0xB => "ABORTED COMMAND",
        /// Part of the data did not fit.
        VolumeOverflow = 0xD => "VOLUME OVERFLOW",
        /// The data differ.
        Miscompare = 0xE => "MISCOMPARE",
        /// Completed.
        Completed = 0xF => "COMPLETED",
    }
}

code! {
    /// Additional sense code and qualifier as one number, `asc << 8 | ascq` (SPC-6 annex F).
    pub enum AdditionalSense: u16 {
        /// Nothing to add.
        None = 0x0000 => "NO ADDITIONAL SENSE INFORMATION",
        /// An operation is in progress.
        OperationInProgress = 0x0016 => "OPERATION IN PROGRESS",
        /// Not ready, cause unknown.
        NotReady = 0x0400 => "LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE",
        /// Not ready yet.
        BecomingReady = 0x0401 => "LOGICAL UNIT IS IN PROCESS OF BECOMING READY",
        /// It must be started.
        InitializingCommandRequired = 0x0402
            => "LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED",
        /// Format in progress.
        FormatInProgress = 0x0404 => "LOGICAL UNIT NOT READY, FORMAT IN PROGRESS",
        /// Another operation is in progress.
        NotReadyInProgress = 0x0407 => "LOGICAL UNIT NOT READY, OPERATION IN PROGRESS",
        /// Self-test in progress.
        SelfTestInProgress = 0x0409 => "LOGICAL UNIT NOT READY, SELF-TEST IN PROGRESS",
        /// Communication with the unit failed.
        CommunicationFailure = 0x0800 => "LOGICAL UNIT COMMUNICATION FAILURE",
        /// Temperature is beyond limits.
        WarningTemperature = 0x0B01 => "WARNING - SPECIFIED TEMPERATURE EXCEEDED",
        /// Write failed.
        WriteError = 0x0C00 => "WRITE ERROR",
        /// Write failed, and no spare block was available.
        WriteErrorReallocationFailed = 0x0C02 => "WRITE ERROR - AUTO REALLOCATION FAILED",
        /// The guard of a block is wrong.
        LogicalBlockGuardCheckFailed = 0x1001 => "LOGICAL BLOCK GUARD CHECK FAILED",
        /// Read failed.
        UnrecoveredReadError = 0x1100 => "UNRECOVERED READ ERROR",
        /// Read failed after all retries.
        ReadRetriesExhausted = 0x1101 => "READ RETRIES EXHAUSTED",
        /// Read failed, and the block could not be reallocated.
        ReadErrorReallocateFailed = 0x1104 => "UNRECOVERED READ ERROR - AUTO REALLOCATE FAILED",
        /// Read after retries.
        RecoveredWithRetries = 0x1701 => "RECOVERED DATA WITH RETRIES",
        /// Read with error correction.
        RecoveredWithEcc = 0x1800 => "RECOVERED DATA WITH ERROR CORRECTION APPLIED",
        /// The parameter list is too short.
        ParameterListLengthError = 0x1A00 => "PARAMETER LIST LENGTH ERROR",
        /// The data differ.
        MiscompareDuringVerify = 0x1D00 => "MISCOMPARE DURING VERIFY OPERATION",
        /// No such command.
        InvalidOperationCode = 0x2000 => "INVALID COMMAND OPERATION CODE",
        /// No such block.
        LbaOutOfRange = 0x2100 => "LOGICAL BLOCK ADDRESS OUT OF RANGE",
        /// A zoned write not at the write pointer.
        UnalignedWriteCommand = 0x2104 => "UNALIGNED WRITE COMMAND",
        /// A field of the CDB is wrong.
        InvalidFieldInCdb = 0x2400 => "INVALID FIELD IN CDB",
        /// No such unit.
        LogicalUnitNotSupported = 0x2500 => "LOGICAL UNIT NOT SUPPORTED",
        /// A field of the parameter list is wrong.
        InvalidFieldInParameterList = 0x2600 => "INVALID FIELD IN PARAMETER LIST",
        /// No such parameter.
        ParameterNotSupported = 0x2601 => "PARAMETER NOT SUPPORTED",
        /// A value of the parameter list is wrong.
        ParameterValueInvalid = 0x2602 => "PARAMETER VALUE INVALID",
        /// Write protected.
        WriteProtected = 0x2700 => "WRITE PROTECTED",
        /// Write protected by the device's hardware.
        HardwareWriteProtected = 0x2701 => "HARDWARE WRITE PROTECTED",
        /// Write protected by software.
        SoftwareWriteProtected = 0x2702 => "LOGICAL UNIT SOFTWARE WRITE PROTECTED",
        /// Write protected until power off.
        PersistentWriteProtect = 0x2704 => "PERSISTENT WRITE PROTECT",
        /// Write protected permanently.
        PermanentWriteProtect = 0x2705 => "PERMANENT WRITE PROTECT",
        /// No space left.
        SpaceAllocationFailedWriteProtect = 0x2707 => "SPACE ALLOCATION FAILED WRITE PROTECT",
        /// The medium may have changed.
        MediumMayHaveChanged = 0x2800 => "NOT READY TO READY CHANGE, MEDIUM MAY HAVE CHANGED",
        /// Powered on or reset.
        PowerOnReset = 0x2900 => "POWER ON, RESET, OR BUS DEVICE RESET OCCURRED",
        /// It was powered on.
        PowerOnOccurred = 0x2901 => "POWER ON OCCURRED",
        /// The bus was reset.
        BusResetOccurred = 0x2902 => "SCSI BUS RESET OCCURRED",
        /// The device was reset.
        BusDeviceResetFunction = 0x2903 => "BUS DEVICE RESET FUNCTION OCCURRED",
        /// The device reset itself.
        DeviceInternalReset = 0x2904 => "DEVICE INTERNAL RESET",
        /// Parameters changed.
        ParametersChanged = 0x2A00 => "PARAMETERS CHANGED",
        /// Mode parameters changed.
        ModeParametersChanged = 0x2A01 => "MODE PARAMETERS CHANGED",
        /// The capacity changed.
        CapacityDataHasChanged = 0x2A09 => "CAPACITY DATA HAS CHANGED",
        /// Not allowed in this sequence of commands.
        CommandSequenceError = 0x2C00 => "COMMAND SEQUENCE ERROR",
        /// Aborted by another initiator.
        CommandsClearedByAnotherInitiator = 0x2F00 => "COMMANDS CLEARED BY ANOTHER INITIATOR",
        /// Aborted by a power loss notification.
        CommandsClearedByPowerLoss = 0x2F01 => "COMMANDS CLEARED BY POWER LOSS NOTIFICATION",
        /// The format is corrupt.
        MediumFormatCorrupted = 0x3100 => "MEDIUM FORMAT CORRUPTED",
        /// Formatting failed.
        FormatCommandFailed = 0x3101 => "FORMAT COMMAND FAILED",
        /// No spare blocks.
        NoDefectSpareLocation = 0x3200 => "NO DEFECT SPARE LOCATION AVAILABLE",
        /// A threshold of thin provisioning is reached.
        ThinProvisioningThreshold = 0x3807 => "THIN PROVISIONING SOFT THRESHOLD REACHED",
        /// Not savable.
        SavingParametersNotSupported = 0x3900 => "SAVING PARAMETERS NOT SUPPORTED",
        /// No medium.
        MediumNotPresent = 0x3A00 => "MEDIUM NOT PRESENT",
        /// The unit is not configured yet.
        NotSelfConfigured = 0x3E00 => "LOGICAL UNIT HAS NOT SELF-CONFIGURED YET",
        /// The unit failed.
        LogicalUnitFailure = 0x3E01 => "LOGICAL UNIT FAILURE",
        /// Time-out in the unit.
        TimeoutOnLogicalUnit = 0x3E02 => "TIMEOUT ON LOGICAL UNIT",
        /// New firmware.
        MicrocodeChanged = 0x3F01 => "MICROCODE HAS BEEN CHANGED",
        /// INQUIRY data changed.
        InquiryDataChanged = 0x3F03 => "INQUIRY DATA HAS CHANGED",
        /// Units were added or removed.
        ReportedLunsDataChanged = 0x3F0E => "REPORTED LUNS DATA HAS CHANGED",
        /// The device failed.
        InternalTargetFailure = 0x4400 => "INTERNAL TARGET FAILURE",
        /// A message failed.
        MessageError = 0x4300 => "MESSAGE ERROR",
        /// Parity or CRC.
        ScsiParityError = 0x4700 => "SCSI PARITY ERROR",
        /// The transport's CRC.
        ProtocolServiceCrcError = 0x4705 => "PROTOCOL SERVICE CRC ERROR",
        /// Bad message.
        InvalidMessageError = 0x4900 => "INVALID MESSAGE ERROR",
        /// Command phase error.
        CommandPhaseError = 0x4A00 => "COMMAND PHASE ERROR",
        /// Data phase error.
        DataPhaseError = 0x4B00 => "DATA PHASE ERROR",
        /// Two commands with the same tag.
        OverlappedCommands = 0x4E00 => "OVERLAPPED COMMANDS ATTEMPTED",
        /// Out of resources.
        InsufficientResources = 0x5503 => "INSUFFICIENT RESOURCES",
        /// Out of resources.
        SystemResourceFailure = 0x5500 => "SYSTEM RESOURCE FAILURE",
        /// A failure is predicted.
        FailurePredictionThreshold = 0x5D00 => "FAILURE PREDICTION THRESHOLD EXCEEDED",
        /// Low power.
        LowPowerConditionOn = 0x5E00 => "LOW POWER CONDITION ON",
        /// Access refused.
        AccessDenied = 0x7471 => "LOGICAL UNIT ACCESS NOT AUTHORIZED",
    }
}

impl AdditionalSense {
    /// The code and qualifier.
    pub const fn new(asc: u8, ascq: u8) -> Self {
        Self::from_bits((asc as u16) << 8 | ascq as u16)
    }

    /// ASC.
    pub const fn asc(self) -> u8 {
        (self.into_bits() >> 8) as u8
    }

    /// ASCQ.
    pub const fn ascq(self) -> u8 {
        self.into_bits() as u8
    }
}

/// Sense key specific data of ILLEGAL REQUEST: which byte sent by the host is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPointer {
    /// C/D: the byte is in the CDB rather than in the parameter list.
    pub in_cdb: bool,
    /// BIT POINTER, if BPV.
    pub bit: Option<u8>,
    /// The byte.
    pub byte: u16,
}

impl FieldPointer {
    /// Reads the pointer from sense key specific data.
    pub const fn parse(specific: [u8; 3]) -> Self {
        let bit = if specific[0] & 0x08 != 0 { Some(specific[0] & 7) } else { None };
        let byte = u16::from_be_bytes([specific[1], specific[2]]);
        Self { in_cdb: specific[0] & 0x40 != 0, bit, byte }
    }

    /// The sense key specific data.
    pub const fn to_bytes(self) -> [u8; 3] {
        let bit = match self.bit {
            Some(bit) => 0x08 | bit & 7,
            None => 0,
        };
        let [high, low] = self.byte.to_be_bytes();
        [if self.in_cdb { 0xC0 } else { 0x80 } | bit, high, low]
    }
}

/// Length of fixed format sense data as UFS sends it, bytes.
pub const FIXED_LENGTH: usize = 18;
/// Maximum bytes that [`Sense::emit_descriptor`] writes.
pub const DESCRIPTOR_LENGTH_MAX: usize = 8 + 12 + 12 + 8 + 4 + 4;

/// Sense data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense {
    /// The error belongs to an earlier command.
    pub deferred: bool,
    /// SENSE KEY.
    pub key: SenseKey,
    /// ADDITIONAL SENSE CODE and QUALIFIER.
    pub additional: AdditionalSense,
    /// ILI: incorrect length.
    pub ili: bool,
    /// INFORMATION, if valid; for a medium error the logical block. Fixed format has 32 bits.
    pub information: Option<u64>,
    /// COMMAND-SPECIFIC INFORMATION; in fixed format, zero means none.
    pub command_specific: Option<u64>,
    /// FIELD REPLACEABLE UNIT CODE; zero means none.
    pub field_replaceable_unit: u8,
    /// Sense key specific data, if valid; see [`FieldPointer`].
    pub key_specific: Option<[u8; 3]>,
}

impl Sense {
    /// An error of the current command.
    pub const fn new(key: SenseKey, additional: AdditionalSense) -> Self {
        Self {
            deferred: false,
            key,
            additional,
            ili: false,
            information: None,
            command_specific: None,
            field_replaceable_unit: 0,
            key_specific: None,
        }
    }

    /// The same, with a pointer to the byte that is wrong.
    #[must_use]
    pub const fn with_field(mut self, pointer: FieldPointer) -> Self {
        self.key_specific = Some(pointer.to_bytes());
        self
    }

    /// Whether byte 0 is that of sense data.
    pub fn is_sense(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|byte| (0x70..=0x73).contains(&(byte & 0x7F)))
    }

    /// Parses sense data in either format. Fields that are cut off count as absent.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if even the sense key is missing, [`WireError::BadField`] if the
    /// response code is not one of 0x70 to 0x73.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        WireError::check_len(bytes, 1)?;
        match bytes[0] & 0x7F {
            code @ (0x70 | 0x71) => Self::parse_fixed(bytes, code == 0x71),
            code @ (0x72 | 0x73) => Self::parse_descriptor(bytes, code == 0x73),
            _ => Err(WireError::BadField("RESPONSE CODE")),
        }
    }

    fn parse_fixed(bytes: &[u8], deferred: bool) -> Result<Self, WireError> {
        WireError::check_len(bytes, 3)?;
        let additional = bytes.get(7).copied().unwrap_or(0);
        let end = bytes.len().min(8 + usize::from(additional)).min(FIXED_LENGTH);
        // Fields that are cut off read as zero, which means absent.
        let mut b = [0; FIXED_LENGTH];
        b[..end.max(3)].copy_from_slice(&bytes[..end.max(3)]);
        Ok(Self {
            deferred,
            key: SenseKey::from_bits(b[2] & 0xF),
            additional: AdditionalSense::new(b[12], b[13]),
            ili: b[2] & 0x20 != 0,
            information: if b[0] & 0x80 != 0 { Some(be32(&b, 3).into()) } else { None },
            command_specific: Some(be32(&b, 8).into()).filter(|number| *number != 0),
            field_replaceable_unit: b[14],
            key_specific: if b[15] & 0x80 != 0 { Some(array(&b, 15)) } else { None },
        })
    }

    fn parse_descriptor(bytes: &[u8], deferred: bool) -> Result<Self, WireError> {
        WireError::check_len(bytes, 8)?;
        let key = SenseKey::from_bits(bytes[1] & 0xF);
        let mut sense = Self::new(key, AdditionalSense::new(bytes[2], bytes[3]));
        sense.deferred = deferred;
        let mut rest = &bytes[8..bytes.len().min(8 + usize::from(bytes[7]))];
        while let [kind, length, ..] = *rest {
            let end = (2 + usize::from(length)).min(rest.len());
            sense.take_descriptor(kind, &rest[..end]);
            rest = &rest[end..];
        }
        Ok(sense)
    }

    fn take_descriptor(&mut self, kind: u8, d: &[u8]) {
        match kind {
            0x00 if d.len() >= 12 && d[2] & 0x80 != 0 => self.information = Some(be64(d, 4)),
            0x01 if d.len() >= 12 => self.command_specific = Some(be64(d, 4)),
            0x02 if d.len() >= 8 && d[4] & 0x80 != 0 => self.key_specific = Some(array(d, 4)),
            0x03 if d.len() >= 4 => self.field_replaceable_unit = d[3],
            0x05 if d.len() >= 4 => self.ili = d[3] & 0x20 != 0,
            _ => {}
        }
    }

    /// Writes fixed format, the one UFS uses (JESD220 10.7.2). It cannot hold numbers beyond 32
    /// bits; they are left out.
    pub fn emit_fixed(&self, bytes: &mut [u8; FIXED_LENGTH]) {
        bytes.fill(0);
        bytes[0] = if self.deferred { 0x71 } else { 0x70 };
        bytes[2] = self.key.into_bits() & 0xF | if self.ili { 0x20 } else { 0 };
        if let Some(Ok(information)) = self.information.map(u32::try_from) {
            bytes[0] |= 0x80;
            put(bytes, 3, information.to_be_bytes());
        }
        bytes[7] = (FIXED_LENGTH - 8) as u8;
        if let Some(Ok(specific)) = self.command_specific.map(u32::try_from) {
            put(bytes, 8, specific.to_be_bytes());
        }
        bytes[12] = self.additional.asc();
        bytes[13] = self.additional.ascq();
        bytes[14] = self.field_replaceable_unit;
        if let Some(specific) = self.key_specific {
            put(bytes, 15, specific);
            bytes[15] |= 0x80;
        }
    }

    /// Writes descriptor format and returns its length.
    pub fn emit_descriptor(&self, bytes: &mut [u8; DESCRIPTOR_LENGTH_MAX]) -> usize {
        bytes.fill(0);
        bytes[0] = if self.deferred { 0x73 } else { 0x72 };
        bytes[1] = self.key.into_bits() & 0xF;
        bytes[2] = self.additional.asc();
        bytes[3] = self.additional.ascq();
        let mut at = 8;
        if let Some(information) = self.information {
            put(bytes, at, [0x00, 0x0A, 0x80, 0]);
            put(bytes, at + 4, information.to_be_bytes());
            at += 12;
        }
        if let Some(specific) = self.command_specific {
            put(bytes, at, [0x01, 0x0A, 0, 0]);
            put(bytes, at + 4, specific.to_be_bytes());
            at += 12;
        }
        if let Some([first, second, third]) = self.key_specific {
            put(bytes, at, [0x02, 0x06, 0, 0, first | 0x80, second, third, 0]);
            at += 8;
        }
        if self.field_replaceable_unit != 0 {
            put(bytes, at, [0x03, 0x02, 0, self.field_replaceable_unit]);
            at += 4;
        }
        if self.ili {
            put(bytes, at, [0x05, 0x02, 0, 0x20]);
            at += 4;
        }
        bytes[7] = (at - 8) as u8;
        at
    }
}

/// `ILLEGAL REQUEST, INVALID FIELD IN CDB (5/24/00)`.
impl core::fmt::Display for Sense {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (key, asc, ascq) =
            (self.key.into_bits(), self.additional.asc(), self.additional.ascq());
        if self.deferred {
            f.write_str("deferred ")?;
        }
        write!(f, "{}, ", self.key.name())?;
        match self.additional {
            AdditionalSense::Unknown(_) => f.write_str("no name for the additional sense")?,
            known => f.write_str(known.name())?,
        }
        write!(f, " ({key:X}/{asc:02X}/{ascq:02X})")?;
        if let Some(information) = self.information {
            write!(f, ", information {information}")?;
        }
        Ok(())
    }
}

use crate::code::code;

code! {
    /// Status codes (4.2.3): status code type (SCT) in bits 10:8, status code (SC) in bits 7:0.
    pub enum Status: u16 {
        /// Successful completion.
        Success = 0x000 => "Successful Completion",
        /// Invalid command opcode.
        InvalidOpcode = 0x001 => "Invalid Command Opcode",
        /// Invalid field in command.
        InvalidField = 0x002 => "Invalid Field in Command",
        /// Command id conflict.
        IdConflict = 0x003 => "Command ID Conflict",
        /// Data transfer error.
        DataTransfer = 0x004 => "Data Transfer Error",
        /// Aborted because of a power loss.
        PowerLoss = 0x005 => "Commands Aborted due to Power Loss Notification",
        /// Internal error.
        Internal = 0x006 => "Internal Error",
        /// Abort requested.
        AbortRequested = 0x007 => "Command Abort Requested",
        /// Aborted because its submission queue was deleted.
        SqDeleted = 0x008 => "Command Aborted due to SQ Deletion",
        /// The other command of a fused pair failed.
        FusedFailed = 0x009 => "Command Aborted due to Failed Fused Command",
        /// The other command of a fused pair is missing.
        FusedMissing = 0x00A => "Command Aborted due to Missing Fused Command",
        /// Invalid namespace or format.
        InvalidNamespace = 0x00B => "Invalid Namespace or Format",
        /// Command sequence error.
        Sequence = 0x00C => "Command Sequence Error",
        /// Invalid SGL segment descriptor.
        SglSegment = 0x00D => "Invalid SGL Segment Descriptor",
        /// Invalid number of SGL descriptors.
        SglCount = 0x00E => "Invalid Number of SGL Descriptors",
        /// Data SGL length invalid.
        SglDataLength = 0x00F => "Data SGL Length Invalid",
        /// SGL descriptor type invalid.
        SglType = 0x011 => "SGL Descriptor Type Invalid",
        /// PRP offset invalid.
        PrpOffset = 0x013 => "PRP Offset Invalid",
        /// Host identifier of the wrong width.
        HostIdFormat = 0x018 => "Host Identifier Inconsistent Format",
        /// Sanitize failed.
        SanitizeFailed = 0x01C => "Sanitize Failed",
        /// Sanitize in progress.
        SanitizeInProgress = 0x01D => "Sanitize In Progress",
        /// Namespace is write protected.
        WriteProtected = 0x020 => "Namespace is Write Protected",
        /// Command interrupted: the device asks for a retry.
        Interrupted = 0x021 => "Command Interrupted",
        /// Transient transport error.
        Transient = 0x022 => "Transient Transport Error",
        /// Admin command while the media is not ready.
        MediaNotReady = 0x024 => "Admin Command Media Not Ready",
        /// LBA out of range.
        LbaRange = 0x080 => "LBA Out of Range",
        /// Capacity exceeded.
        CapacityExceeded = 0x081 => "Capacity Exceeded",
        /// Namespace not ready.
        NamespaceNotReady = 0x082 => "Namespace Not Ready",
        /// Reservation conflict.
        ReservationConflict = 0x083 => "Reservation Conflict",
        /// Format in progress.
        FormatInProgress = 0x084 => "Format In Progress",
        /// Completion queue invalid.
        CqInvalid = 0x100 => "Completion Queue Invalid",
        /// Invalid queue identifier.
        QueueId = 0x101 => "Invalid Queue Identifier",
        /// Invalid queue size.
        QueueSize = 0x102 => "Invalid Queue Size",
        /// Abort command limit exceeded.
        AbortLimit = 0x103 => "Abort Command Limit Exceeded",
        /// Asynchronous event request limit exceeded.
        AsyncEventLimit = 0x105 => "Asynchronous Event Request Limit Exceeded",
        /// Invalid firmware slot.
        FirmwareSlot = 0x106 => "Invalid Firmware Slot",
        /// Invalid firmware image.
        FirmwareImage = 0x107 => "Invalid Firmware Image",
        /// Invalid interrupt vector.
        InterruptVector = 0x108 => "Invalid Interrupt Vector",
        /// Invalid log page.
        LogPage = 0x109 => "Invalid Log Page",
        /// Invalid format.
        Format = 0x10A => "Invalid Format",
        /// Firmware activation requires a conventional reset.
        FirmwareReset = 0x10B => "Firmware Activation Requires Conventional Reset",
        /// Invalid queue deletion.
        QueueDeletion = 0x10C => "Invalid Queue Deletion",
        /// Feature not saveable.
        NotSaveable = 0x10D => "Feature Identifier Not Saveable",
        /// Feature not changeable.
        NotChangeable = 0x10E => "Feature Not Changeable",
        /// Feature not namespace specific.
        NotPerNamespace = 0x10F => "Feature Not Namespace Specific",
        /// Firmware activation requires a reset of the NVM subsystem.
        FirmwareSubsystemReset = 0x110 => "Firmware Activation Requires NVM Subsystem Reset",
        /// Firmware activation requires a reset of the controller.
        FirmwareControllerReset = 0x111 => "Firmware Activation Requires Controller Level Reset",
        /// Overlapping range.
        Overlap = 0x114 => "Overlapping Range",
        /// Namespace insufficient capacity.
        NamespaceCapacity = 0x115 => "Namespace Insufficient Capacity",
        /// Namespace identifier unavailable.
        NamespaceIdUnavailable = 0x116 => "Namespace Identifier Unavailable",
        /// Namespace already attached.
        AlreadyAttached = 0x118 => "Namespace Already Attached",
        /// Namespace is private.
        NamespacePrivate = 0x119 => "Namespace Is Private",
        /// Namespace not attached.
        NotAttached = 0x11A => "Namespace Not Attached",
        /// Thin provisioning not supported.
        ThinProvisioning = 0x11B => "Thin Provisioning Not Supported",
        /// Controller list invalid.
        ControllerList = 0x11C => "Controller List Invalid",
        /// Conflicting attributes.
        ConflictingAttributes = 0x180 => "Conflicting Attributes",
        /// Invalid protection information.
        InvalidProtection = 0x181 => "Invalid Protection Information",
        /// Attempted write to read only range.
        ReadOnlyRange = 0x182 => "Attempted Write to Read Only Range",
        /// Command size limit exceeded.
        CommandSize = 0x183 => "Command Size Limit Exceeded",
        /// Zone boundary error.
        ZoneBoundary = 0x1B8 => "Zoned Boundary Error",
        /// Zone is full.
        ZoneFull = 0x1B9 => "Zone Is Full",
        /// Zone is read only.
        ZoneReadOnly = 0x1BA => "Zone Is Read Only",
        /// Zone is offline.
        ZoneOffline = 0x1BB => "Zone Is Offline",
        /// Zone invalid write: not at the write pointer.
        ZoneInvalidWrite = 0x1BC => "Zone Invalid Write",
        /// Too many active zones.
        ZoneTooManyActive = 0x1BD => "Too Many Active Zones",
        /// Too many open zones.
        ZoneTooManyOpen = 0x1BE => "Too Many Open Zones",
        /// Invalid zone state transition.
        ZoneTransition = 0x1BF => "Invalid Zone State Transition",
        /// Write fault.
        WriteFault = 0x280 => "Write Fault",
        /// Unrecovered read error.
        UnrecoveredRead = 0x281 => "Unrecovered Read Error",
        /// End-to-end guard check error.
        GuardCheck = 0x282 => "End-to-end Guard Check Error",
        /// End-to-end application tag check error.
        ApplicationTagCheck = 0x283 => "End-to-end Application Tag Check Error",
        /// End-to-end reference tag check error.
        ReferenceTagCheck = 0x284 => "End-to-end Reference Tag Check Error",
        /// Compare failure.
        CompareFailure = 0x285 => "Compare Failure",
        /// Access denied.
        AccessDenied = 0x286 => "Access Denied",
        /// Deallocated or unwritten logical block.
        Deallocated = 0x287 => "Deallocated or Unwritten Logical Block",
        /// Internal path error.
        PathInternal = 0x300 => "Internal Path Error",
        /// Asymmetric access persistent loss.
        AccessPersistentLoss = 0x301 => "Asymmetric Access Persistent Loss",
        /// Asymmetric access inaccessible.
        AccessInaccessible = 0x302 => "Asymmetric Access Inaccessible",
        /// Asymmetric access transition.
        AccessTransition = 0x303 => "Asymmetric Access Transition",
        /// Controller pathing error.
        ControllerPath = 0x360 => "Controller Pathing Error",
        /// Host pathing error.
        HostPath = 0x370 => "Host Pathing Error",
        /// Command aborted by host.
        AbortedByHost = 0x371 => "Command Aborted By Host",
    }
}

impl Status {
    /// SCT and SC of a status field without the phase.
    #[inline]
    pub const fn of_field(field: u16) -> Self {
        Self::from_bits(field & 0x7FF)
    }
}

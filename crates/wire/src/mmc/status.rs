use crate::code::code;
use bitfield_struct::bitfield;

code! {
    /// State of a card (6.13, CURRENT_STATE).
    pub enum CardState: u8 {
        /// idle.
        Idle = 0 => "idle",
        /// ready.
        Ready = 1 => "ready",
        /// ident.
        Identification = 2 => "ident",
        /// stby.
        StandBy = 3 => "stby",
        /// tran.
        Transfer = 4 => "tran",
        /// data.
        SendingData = 5 => "data",
        /// rcv.
        ReceiveData = 6 => "rcv",
        /// prg.
        Programming = 7 => "prg",
        /// dis.
        Disconnect = 8 => "dis",
        /// btst.
        BusTest = 9 => "btst",
        /// slp.
        Sleep = 10 => "slp",
    }
}

impl CardState {
    const fn into_field(self) -> u8 {
        self.into_bits()
    }
}

/// Device status, the content of R1 (6.13).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct CardStatus {
    #[bits(5)]
    __: u8,
    /// APP_CMD: the card expects an application command (SD).
    pub app_cmd: bool,
    /// EXCEPTION_EVENT: a bit of EXCEPTION_EVENTS_STATUS is set.
    pub exception_event: bool,
    /// SWITCH_ERROR: CMD6 did not make the requested change.
    pub switch_error: bool,
    /// READY_FOR_DATA.
    pub ready_for_data: bool,
    /// CURRENT_STATE.
    #[bits(4, into = CardState::into_field, from = CardState::from_bits)]
    pub state: CardState,
    /// ERASE_RESET: an erase sequence was cleared.
    pub erase_reset: bool,
    __: bool,
    /// WP_ERASE_SKIP: only part was erased.
    pub wp_erase_skip: bool,
    /// CID/CSD_OVERWRITE.
    pub csd_overwrite: bool,
    #[bits(2)]
    __: u8,
    /// ERROR: a general or unknown error.
    pub error: bool,
    /// CC_ERROR: an error of the card's controller.
    pub cc_error: bool,
    /// DEVICE_ECC_FAILED: the data could not be corrected.
    pub ecc_failed: bool,
    /// ILLEGAL_COMMAND: for the previous command.
    pub illegal_command: bool,
    /// COM_CRC_ERROR: for the previous command.
    pub com_crc_error: bool,
    /// LOCK_UNLOCK_FAILED.
    pub lock_unlock_failed: bool,
    /// DEVICE_IS_LOCKED.
    pub locked: bool,
    /// WP_VIOLATION.
    pub wp_violation: bool,
    /// ERASE_PARAM.
    pub erase_param: bool,
    /// ERASE_SEQ_ERROR.
    pub erase_seq_error: bool,
    /// BLOCK_LEN_ERROR.
    pub block_len_error: bool,
    /// ADDRESS_MISALIGN.
    pub address_misalign: bool,
    /// ADDRESS_OUT_OF_RANGE.
    pub out_of_range: bool,
}

impl CardStatus {
    /// The error bits that belong to this command; ILLEGAL_COMMAND and COM_CRC_ERROR belong to the
    /// previous one.
    pub const ERRORS: u32 = 0xFD39_8080;

    /// The status with only its errors.
    pub const fn errors(self) -> Self {
        Self::from_bits(self.into_bits() & Self::ERRORS)
    }

    /// Whether the card accepts data commands: ready, and in the transfer state. A card that is
    /// programming may report that it is ready for the next block.
    pub fn is_ready(self) -> bool {
        self.ready_for_data() && self.state() == CardState::Transfer
    }
}

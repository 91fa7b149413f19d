use super::*;

fn command<P: Protocol>(payload: P::Payload) -> Command<P> {
    Command {
        unit: 1,
        payload,
        direction: Direction::None,
        data: Data::NONE,
        crypto: None,
        ordering: Ordering::Simple,
        deadline: Instant::NEVER,
        token: Token::new(7),
    }
}

#[test]
fn a_passed_command_comes_out_in_its_own_language_only() {
    let flush = NvmeCommand { opcode: 0, ..NvmeCommand::default() };
    let passed = PassThrough::from(command::<Nvme>(flush));
    let passed = Command::<Scsi>::try_from(passed).expect_err("it is no SCSI command");
    let passed = Command::<Ata>::try_from(passed).expect_err("nor ATA");
    let passed = Command::<Mmc>::try_from(passed).expect_err("nor MMC");
    let out = Command::<Nvme>::try_from(passed).expect("it is NVMe");
    assert_eq!((out.payload, out.token.number()), (flush, 7));
}

#[test]
fn sense_data_is_as_long_as_it_came_and_no_longer_than_there_is() {
    assert!(SenseBytes::default().as_slice().is_empty());
    assert_eq!(SenseBytes::new(&[0x70, 0, 3]).as_slice(), [0x70, 0, 3]);
    assert_eq!(SenseBytes::new(&[1; 300]).as_slice(), [1; SENSE_MAX]);
}

#[test]
fn fields_of_an_nvme_status() {
    // DNR, more, retry delay 2, media error "unrecovered read".
    let status = NvmeStatus { status: 1 << 14 | 1 << 13 | 2 << 11 | 0x281, result: 0 };
    assert_eq!((status.code_type(), status.code(), status.retry_delay()), (2, 0x81, 2));
    assert!(status.more() && status.do_not_retry());
    assert!(!NvmeStatus::default().do_not_retry());
}

#[test]
fn errors_of_ata_and_mmc() {
    // DRDY, DSC and ERR with UNC; without ERR the error register means nothing.
    assert!(AtaStatus { status: 0x51, error: 0x40, ..AtaStatus::default() }.is_error());
    assert!(!AtaStatus { status: 0x50, error: 0x40, ..AtaStatus::default() }.is_error());
    // State "transfer", ready for data, locked; with and without ADDRESS_OUT_OF_RANGE.
    assert!(!MmcStatus { status: 0x0200_0900, long: 0 }.is_error());
    assert!(MmcStatus { status: 0x8000_0900, long: 0 }.is_error());
}

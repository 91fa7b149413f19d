use super::command::{BlockCount, SwitchArgument};
use super::cqhci::{Cqterri, Task, Transfer, act};
use super::sdhci::{Capabilities, Clock, Command, Control2, Interrupts};
use super::*;

#[test]
fn registers_of_a_published_card() {
    // A Samsung eMMC as printed by Linux in sysfs (cid, csd).
    let cid = Cid::parse(0x1501_0038_4754_4634_5206_0D3C_4E00_5300_u128);
    assert_eq!((cid.manufacturer, &cid.product), (0x15, b"8GTF4R"));
    let csd = Csd::parse(0xD027_0132_0F59_03FF_F6DB_FFEF_8E40_400D);
    assert_eq!((csd.structure, csd.version, csd.size), (3, 4, 0xFFF));
    assert_eq!((csd.read_block_shift, csd.classes), (9, 0x0F5));
    // TAAC 0x27: 1.5 x 10 ms; NSAC 1.
    assert_eq!((csd.access_ns(), csd.nsac), (15_000_000, 1));
    assert_eq!(Csd::parse(csd.emit()), csd);
    assert_eq!(Cid::parse(cid.emit()), cid);
}

#[test]
fn an_sd_card_of_structure_one_counts_in_half_mebibytes() {
    let csd = Csd::parse_sd(1 << 126 | 9 << 80 | 0x1D89_u128 << 48);
    assert_eq!(csd.sd_sectors(), (0x1D89 + 1) * 1024);
    let small = Csd { size: 0xEFF, size_shift: 7, read_block_shift: 9, ..Csd::default() };
    assert_eq!(Csd::parse_sd(small.emit()).sd_sectors(), (0xEFF + 1) << 9);
    for csd in [csd, small] {
        assert_eq!(Csd::parse_sd(csd.emit_sd()), csd);
    }
    // A SanDisk card as printed by Linux in sysfs.
    let cid = Cid::parse_sd(0x0353_4453_4333_3247_8061_6A35_AD01_3800);
    assert_eq!((cid.manufacturer, &cid.product[..5], cid.revision), (3, &b"SC32G"[..], 0x80));
    assert_eq!(cid.emit_sd() >> 8, 0x0353_4453_4333_3247_8061_6A35_AD01_3800_u128 >> 8);
    assert_eq!(Csd::parse_sd(0x400E_0032_5B59_0000_EDC8_7F80_0A40_4000).sd_sectors(), 62_333_952);
}

#[test]
fn what_an_sd_card_tells_of_its_functions() {
    let keep = [sd::SWITCH_NONE; 6];
    let mut status = sd::SwitchStatus { current: 200, chosen: keep, ..Default::default() };
    (status.functions[0], status.chosen[0]) = (0x801F, sd::SDR104);
    (status.functions[3], status.chosen[3]) = (0x800F, 1);
    let bytes = status.emit();
    // Bits 511:496, 415:400, 463:448, 379:376 and 391:388 of the status.
    assert_eq!(
        (bytes[1], &bytes[12..14], &bytes[6..8]),
        (200, &[0x80, 0x1F][..], &[0x80, 0x0F][..])
    );
    assert_eq!(bytes[14..17], [0xFF, 0x1F, 0xF3]);
    assert_eq!((sd::access_modes(&bytes), sd::access_mode_of(&bytes)), (0x801F, sd::SDR104));
    let status = sd::SdStatus { four_lines: true, allocation_unit: 9, ..Default::default() };
    assert_eq!((status.emit()[0], status.emit()[10]), (0x80, 0x90));
}

#[test]
fn fields_lie_where_the_specifications_number_them() {
    assert_eq!(SwitchArgument::write(185, 3).into_bits(), 0x03B9_0301);
    assert_eq!(BlockCount::new().with_blocks(8).with_reliable(true).into_bits(), 0x8000_0008);
    assert_eq!(CardStatus::from_bits(0x900).state(), CardState::Transfer);
    assert!(CardStatus::from_bits(0x900).is_ready());
    assert!(!CardStatus::from_bits(0xF00).is_ready(), "it programs");
    assert!(CardStatus::from_bits(0x80).switch_error());
    assert!(CardStatus::from_bits(1 << 31).out_of_range());
    assert!(CardStatus::from_bits(1 << 26).wp_violation());
    assert!(CardStatus::from_bits(1 << 21).ecc_failed());
    let read = Command::new().with_index(18).with_data(true).with_response(2).with_read(true);
    assert_eq!(read.into_bits(), 0x1222_0010);
    assert_eq!(Control2::new().with_tune(true).into_bits(), 1 << 22);
    assert_eq!(Control2::new().with_version_4(true).into_bits(), 1 << 28);
    assert_eq!(Clock::new().with_division(0x1FF).division(), 0x1FF);
    assert_eq!(Clock::new().with_division(0x1FF).into_bits(), 0xFF40);
    assert_eq!(Clock::new().with_reset_data(true).into_bits(), 1 << 26);
    assert_eq!(Interrupts::new().with_adma(true).into_bits(), 1 << 25);
    assert_eq!(Interrupts::new().with_queueing(true).into_bits(), 1 << 14);
    // QEMU's sdhci-pci: 52 MHz, ADMA2, SDMA, high speed, 3.3 and 1.8 V, no 8 lines, no 64 bits.
    let caps = Capabilities::from_bits(0x0578_34B4);
    assert_eq!((caps.base_mhz(), caps.adma2(), caps.high_speed()), (0x34, true, true));
    assert!(!caps.bus_8() && !caps.wide_v3() && caps.v3_3() && caps.v1_8());
    assert_eq!(Capabilities::new().with_hs400(true).into_bits(), 1 << 63);
    assert_eq!(Capabilities::new().with_sdr104(true).into_bits(), 1 << 33);
}

#[test]
fn descriptors_of_the_engine() {
    let task = Task::new().with_valid(true).with_end(true).with_act(act::TASK).with_read(true);
    let task = task.with_blocks(8).with_address(0x1234_5678);
    assert_eq!(task.into_bits(), 0x1234_5678_0008_102B);
    assert_eq!(Transfer::of(4096, true).into_bits(), 0x1000_0023);
    assert_eq!(Transfer::of(1 << 16, true).length(), 0, "64 KiB");
    assert_eq!(Transfer::link().into_bits(), 0x31);
    let error = Cqterri::from_bits(1 << 31 | 5 << 24 | 46 << 16);
    assert!(error.data_valid() && !error.command_valid());
    assert_eq!((error.data_task(), error.data_command()), (5, 46));
    assert_eq!(adma::transfer(1 << 16, adma::END), 0x23);
    assert_eq!(adma::length(adma::transfer(1 << 16, 0)), 1 << 16);
}

#[test]
fn sizes_of_partitions() {
    let mut csd = ExtCsd::default();
    csd.0[usize::from(ext_csd::BOOT_SIZE)] = 32;
    csd.0[usize::from(ext_csd::HC_ERASE_GRP_SIZE)] = 1;
    csd.0[usize::from(ext_csd::HC_WP_GRP_SIZE)] = 16;
    csd.0[usize::from(ext_csd::GP_SIZE) + 3] = 2;
    csd.0[usize::from(ext_csd::SEC_COUNT)..][..4].copy_from_slice(&0x0123_4567_u32.to_le_bytes());
    let sizes: [u64; 6] = core::array::from_fn(|n| csd.partition_sectors(n as u8));
    assert_eq!(sizes, [0x0123_4567, 8192, 8192, 0, 0, 32768]);
    assert_eq!(csd.queue_depth(), 0);
    csd.0[ext_csd::CMDQ_SUPPORT] = 1;
    csd.0[ext_csd::CMDQ_DEPTH] = 0x1F;
    assert_eq!(csd.queue_depth(), 32);
}

#[test]
fn an_scr_goes_both_ways() {
    let scr = sd::Scr {
        version: 2,
        third: true,
        four_lines: true,
        block_count: true,
        ..Default::default()
    };
    assert_eq!(sd::Scr::parse(&scr.emit()), scr);
    // A card of 8 GB as printed by Linux.
    let card = sd::Scr::parse(&0x0235_8000_0000_0000_u64.to_be_bytes());
    assert!(card.four_lines && !card.block_count);
    assert_eq!(sd::access_mode(true, sd::HIGH_SPEED), 0x80FF_FFF1);
}

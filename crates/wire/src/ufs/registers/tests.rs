use super::*;

#[test]
fn qemu_capabilities_read_as_measured() {
    let cap = Cap::from_bits(0x4107_021F);
    assert_eq!((cap.transfer_slots(), cap.task_slots(), cap.nortt()), (32, 8, 2));
    assert!(cap.addressing_64bit() && cap.mcqs() && !cap.lsdbs() && !cap.autoh8());
    let mcq = McqCap::from_bits(0x0002_0203);
    assert_eq!((mcq.queues(), mcq.bank_offset(), mcq.queue_offset(3)), (4, 0x400, 0x4C0));
    assert!(mcq.rrp() && !mcq.sp());
    assert_eq!(McqConfig::from_bits(0x1F00).active_commands(), 32);
    assert_eq!(Ver::from_bits(0x410).number(), (4, 1));
    assert_eq!(Ver::from_bits(0x0001_0100).number(), (1, 1));
    assert!(Ver::from_bits(0x0001_0100).number() < Ver::V2_1.number());
}

#[test]
fn auto_hibern8_says_what_was_asked() {
    for us in [0, 1, 1023, 150_000, 1_000_000, Ahit::IDLE_MAX_US] {
        assert_eq!(Ahit::from_idle_us(us).idle_us(), us);
    }
    assert_eq!(Ahit::from_idle_us(150_000).into_bits(), 3 << 10 | 150);
    assert_eq!(Ahit::from_idle_us(u32::MAX).idle_us(), Ahit::IDLE_MAX_US);
    assert_eq!(Ahit::from_bits(u32::MAX).idle_us(), Ahit::IDLE_MAX_US);
}

#[test]
fn bits_stand_where_the_specification_puts_them() {
    assert_eq!(Interrupts::FATAL.into_bits(), 0x0007_1880);
    assert_eq!(Interrupts::new().with_cqes(true).into_bits(), 1 << 20);
    assert_eq!(Interrupts::new().with_uccs(true).into_bits(), 1 << 10);
    assert!(Interrupts::from_bits(0x410).names().eq(["UPMS", "UCCS"]));
    assert_eq!(Hcs::from_bits(0x10F).upmcrs(), PowerModeStatus::Local);
    assert_eq!(UecDl::new().with_pa_init_error(true).into_bits(), 0x2000);
    assert_eq!(InterruptAggregation::new().with_iaen(true).into_bits(), 1 << 31);
    assert_eq!(SqRts::from_bits(0x12).rtc(), CleanUpResult::TaskNotFound);
    assert_eq!(SqAttr::new().with_sqen(true).with_cqid(2).into_bits(), 0x8002_0000);
    assert_eq!(ring_size_field(33), Some(263));
    assert_eq!(ring_entries(263), 33);
    assert_eq!((ring_size_field(0), ring_size_field(8193)), (None, None));
}

//! The host controller: registers, both queue designs, task management, faults, hostile hosts.

use crate::host::Host;
use flysch_api::machine::Clock;
use flysch_models::faults::Kind;
use flysch_models::random::Random;
use flysch_models::ufs::{Config, UnitConfig};
use flysch_wire::scsi::Status;
use flysch_wire::ufs::query::{AttributeId, QueryResult};
use flysch_wire::ufs::registers::{
    self as reg, Ahit, Cap, CleanUpResult, CryptoAlgorithm, CryptoCap, CryptoCapEntry,
    CryptoConfig, CryptoKeySize, Hcs, InterruptAggregation, Interrupts, PowerModeStatus, SqCti,
    SqRtc, SqRts, UecDl,
};
use flysch_wire::ufs::uic::{UicAttribute, UicOpcode, UicResult};
use flysch_wire::ufs::upiu::{QueryFields, ServiceResponse, TaskAttribute, TaskFunction};
use flysch_wire::ufs::utrd::{CommandType, Ocs};

fn small(faults: &str) -> Config {
    Config {
        units: vec![Some(UnitConfig::memory(64 << 20))],
        write_booster: 0,
        faults: faults.parse().unwrap(),
        ..Config::default()
    }
}

fn up(faults: &str, queues: u32) -> Host {
    Host::up(small(faults), 64 << 10, queues)
}

fn read_upiu(tag: u8, lba: u32) -> [u8; 32] {
    Host::command_upiu(0, tag, &Host::read10(lba, 1), false, 4096)
}

#[test]
fn nothing_works_before_enable_and_reset_forgets() {
    let mut host = Host::cold(small(""), 4096);
    assert_eq!(host.read(reg::HCE), 0);
    host.write(reg::IE, 0xFFFF);
    host.write(reg::UTRLBA, 0x1000);
    assert_eq!((host.read(reg::IE), host.read(reg::UTRLBA)), (0, 0));
    host.write(reg::HCE, 1);
    assert_eq!(host.read(reg::HCE), 0, "initialisation takes time");
    host.sleep_us(100);
    assert_eq!(host.read(reg::HCE), 1);
    assert_eq!(Hcs::from_bits(host.read(reg::HCS)), Hcs::new().with_ucrdy(true));
    assert_eq!(host.dme_get(UicAttribute::PaConnectedrxdatalanes), (UicResult::Success, 0));
    host.start(0);
    host.write(reg::UTRLBA, 0x1234_56FF);
    assert_eq!(host.read(reg::UTRLBA), 0x1234_5400, "1 KiB aligned");
    host.write(reg::HCE, 0);
    for register in [reg::UTRLBA, reg::IE, reg::HCS, reg::UTRLRSR, reg::CONFIG] {
        assert_eq!(host.read(register), 0, "{register:#x}");
    }
}

#[test]
fn one_uic_command_at_a_time() {
    let mut host = up("", 0);
    host.write(reg::UCMDARG1, u32::from(UicAttribute::PaTactivate.into_bits()) << 16);
    host.write(reg::UICCMD, 1);
    assert!(!Hcs::from_bits(host.read(reg::HCS)).ucrdy());
    host.write(reg::UICCMD, 0x17);
    host.sleep_us(10);
    assert_eq!(host.read(reg::UICCMD), 1, "the second was ignored");
    assert_eq!(host.read(reg::UCMDARG3), 10);
    assert_eq!(host.uic(UicOpcode::DmeTestMode, 0, 0, 0).0.into_bits(), 1);
    assert_eq!(host.dme_set(UicAttribute::PaTxgear, 9), UicResult::InvalidMibAttributeValue);
}

#[test]
fn power_mode_changes_end_with_upms_and_say_how() {
    let mut host = up("", 0);
    assert_eq!(host.dme_set(UicAttribute::PaRxgear, 5), UicResult::Success);
    assert_eq!(host.dme_set(UicAttribute::PaPwrmode, 0x11), UicResult::Success);
    assert!(!Interrupts::from_bits(host.read(reg::IS)).upms(), "UCCS comes first");
    host.sleep_us(2000);
    assert!(Interrupts::from_bits(host.read(reg::IS)).upms());
    let hcs = Hcs::from_bits(host.read(reg::HCS));
    assert_eq!(hcs.upmcrs(), PowerModeStatus::ErrorCap);
}

#[test]
fn a_hibernated_link_holds_commands_until_it_wakes() {
    let mut host = up("", 0);
    host.uic(UicOpcode::DmeHibernateEnter, 0, 0, 0);
    host.sleep_us(500);
    assert!(Interrupts::from_bits(host.read(reg::IS)).uhes());
    let (result, _) = host.uic(UicOpcode::DmePeerGet, 0x15A8_0000, 0, 0);
    assert_eq!(result, UicResult::PeerCommunicationFailure);
    host.issue(3, &read_upiu(3, 0), 4096);
    assert_eq!(host.await_slot(3, 50), None);
    host.uic(UicOpcode::DmeHibernateExit, 0, 0, 0);
    assert_eq!(host.await_slot(3, 50), Some(Ocs::Success));
}

#[test]
fn auto_hibern8_costs_its_wake_up() {
    let mut host = up("", 0);
    let latency = |host: &mut Host| {
        host.sleep_us(5000);
        let start = host.now();
        host.issue(0, &read_upiu(0, 77), 4096);
        assert_eq!(host.await_slot(0, 50), Some(Ocs::Success));
        host.now().nanos_since(start)
    };
    let awake = latency(&mut host);
    host.write(reg::AHIT, Ahit::from_idle_us(1000).into_bits());
    let asleep = latency(&mut host);
    assert!((150_000..260_000).contains(&(asleep - awake)), "{awake} then {asleep}");
}

#[test]
fn commands_complete_out_of_order() {
    for queues in [0, 2] {
        let mut host = up("", queues);
        let mut random = Random::new(1);
        let mut order = Vec::new();
        for slot in 0..31 {
            host.issue(slot, &read_upiu(slot, random.below(16_000) as u32), 4096);
        }
        while order.len() < 31 {
            host.machine.wait(None);
            order.extend(host.reap().into_iter().map(|(slot, _)| slot));
        }
        assert!(!order.is_sorted(), "{order:?}");
        order.sort_unstable();
        assert!(order.into_iter().eq(0..31));
    }
}

/// The order, by slot, in which commands with these attributes end, all issued at once.
fn order_of(attributes: &[TaskAttribute]) -> Vec<u8> {
    let mut host = up("", 0);
    for (slot, attribute) in (0..).zip(attributes) {
        let mut upiu = read_upiu(slot, u32::from(slot) * 999);
        upiu[1] |= attribute.into_bits();
        host.issue(slot, &upiu, 4096);
    }
    let mut order = Vec::new();
    while order.len() < attributes.len() {
        host.machine.wait(None);
        order.extend(host.reap().into_iter().map(|(slot, _)| slot));
    }
    order
}

#[test]
fn task_attributes_order_commands() {
    use TaskAttribute::{HeadOfQueue, Ordered, Simple};
    let order = order_of(&[Ordered; 12]);
    assert!(order.is_sorted(), "{order:?}");
    let order = order_of(&[
        Simple,
        Simple,
        Simple,
        Ordered,
        Simple,
        Simple,
        Ordered,
        Simple,
        HeadOfQueue,
        Simple,
    ]);
    let place = |slot: u8| order.iter().position(|done| *done == slot).unwrap();
    let first = |slots: &[u8]| slots.iter().map(|slot| place(*slot)).max().unwrap();
    let last = |slots: &[u8]| slots.iter().map(|slot| place(*slot)).min().unwrap();
    assert!(first(&[0, 1, 2]) < place(3) && place(3) < last(&[4, 5]), "{order:?}");
    assert!(first(&[4, 5]) < place(6) && place(6) < last(&[7, 9]), "{order:?}");
    assert!(place(8) < place(3), "head of queue waits for nothing: {order:?}");
}

#[test]
fn an_aborted_ordered_command_lets_the_others_go() {
    let mut host = up("", 0);
    for (slot, attribute) in [(0, 0), (1, 1), (2, 0)] {
        let mut upiu = read_upiu(slot, 5);
        upiu[1] |= attribute;
        host.issue(slot, &upiu, 4096);
    }
    assert_eq!(host.manage(TaskFunction::AbortTask, 0, 1), ServiceResponse::FunctionComplete);
    host.sleep_us(2000);
    assert_eq!(host.read(reg::UTRLDBR), 2);
}

#[test]
fn device_done_is_known_per_slot_and_tag() {
    for queues in [0, 2] {
        let mut host = up("", queues);
        let start = host.now();
        host.issue(4, &read_upiu(4, 0), 4096);
        host.await_slot(4, 50).unwrap();
        let done = flysch_api::machine::Registers::device_done(&host.machine, 0, 4).unwrap();
        assert!(start < done && done <= host.now());
    }
}

#[test]
fn interrupt_aggregation_counts_and_times_out() {
    let mut host = up("", 0);
    let settings = InterruptAggregation::new()
        .with_iaen(true)
        .with_iapwen(true)
        .with_iacth(3)
        .with_iatoval(100);
    host.write(reg::UTRIACR, settings.into_bits());
    let issue = |host: &mut Host, slot: u8| {
        let mut utrd = host.prepare(slot, &read_upiu(slot, 0), 4096);
        utrd.header.set_i(false);
        host.ring(0, slot, &utrd);
    };
    let raised = |host: &Host| Interrupts::from_bits(host.read(reg::IS)).utrcs();
    for slot in 0..2 {
        issue(&mut host, slot);
    }
    host.sleep_us(1000);
    assert_eq!(host.read(reg::UTRLDBR), 0);
    assert!(!raised(&host), "two of three");
    assert!(InterruptAggregation::from_bits(host.read(reg::UTRIACR)).iasb());
    issue(&mut host, 2);
    host.sleep_us(500);
    assert!(raised(&host), "three of three");
    host.write(reg::IS, 1);
    issue(&mut host, 3);
    host.sleep_us(1000);
    assert!(!raised(&host));
    host.sleep_us(5000);
    assert!(raised(&host), "after 100 times 40 us");
}

#[test]
fn bad_descriptors_end_with_the_right_status() {
    let mut host = up("", 0);
    let upiu = read_upiu(0, 0);
    let good = host.prepare(0, &upiu, 4096);
    let wrong: [(flysch_wire::ufs::utrd::Utrd, Ocs); 8] = [
        (with(good, |u| u.ucd_base = 0xDEAD_0000_0000), Ocs::InvalidCommandTableAttributes),
        (with(good, |u| u.ucd_base = !127), Ocs::InvalidCommandTableAttributes),
        (with(good, |u| u.ucd_base += 4), Ocs::InvalidCommandTableAttributes),
        (with(good, |u| u.header.set_ct(CommandType::Scsi)), Ocs::InvalidCommandTableAttributes),
        (with(good, |u| u.header.set_ce(true)), Ocs::InvalidCryptoConfiguration),
        (with(good, |u| u.prdt.set_length(0)), Ocs::MismatchDataBufferSize),
        (with(good, |u| u.response.set_length(7)), Ocs::MismatchResponseUpiuSize),
        (with(good, |u| u.prdt.set_offset(0x9000)), Ocs::InvalidPrdtAttributes),
    ];
    for (utrd, expected) in wrong {
        host.prepare(0, &upiu, 4096);
        // Nothing valid is found at the wrong address either.
        host.memory.fill(host.ucd(0) + 0x9000 * 4, 64, 0xFF);
        host.ring(0, 0, &utrd);
        host.sleep_us(1000);
        let mut bytes = [0; 32];
        host.memory.read(0, &mut bytes);
        let ocs = flysch_wire::ufs::utrd::Utrd::parse(&bytes).status.ocs();
        assert_eq!((ocs, host.read(reg::UTRLDBR)), (expected, 0));
    }
    host.write(reg::UTRLBA, 0xFFFF_0000);
    host.write(reg::UTRLDBR, 1);
    let is = Interrupts::from_bits(host.read(reg::IS));
    assert!(is.sbfes() && Hcs::from_bits(host.read(reg::HCS)).hei());
    // Only a reset helps.
    host.start(0);
    assert_eq!(host.command_in(0, &Host::read10(0, 1), 4096).0.key(), (6, 0x29, 0));
}

fn with<T: Copy>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

#[test]
fn aborted_commands_leave_no_trace() {
    let mut host = up("timeout:n60", 0);
    let write = Host::command_upiu(0, 0, &Host::write10(9, 1), true, 4096);
    let mut swallowed = None;
    for _ in 0..60 {
        host.memory.fill(host.data(0), 4096, 0x11);
        host.issue(0, &write, 4096);
        swallowed = host.await_slot(0, 100);
        if swallowed.is_none() {
            break;
        }
    }
    assert_eq!(swallowed, None, "one of them is swallowed");
    use ServiceResponse::*;
    assert_eq!(host.manage(TaskFunction::QueryTask, 0, 0), FunctionSucceeded);
    assert_eq!(host.manage(TaskFunction::QueryTask, 0, 1), FunctionComplete);
    assert_eq!(host.manage(TaskFunction::QueryTaskSet, 0, 0), FunctionSucceeded);
    assert_eq!(host.manage(TaskFunction::AbortTask, 0, 0), FunctionComplete);
    assert_eq!(host.manage(TaskFunction::QueryTask, 0, 0), FunctionComplete);
    assert_eq!(host.manage(TaskFunction::AbortTask, 9, 0), IncorrectLogicalUnitNumber);
    assert_eq!(host.manage(TaskFunction::Unknown(0x40), 0, 0), FunctionNotSupported);
    assert_eq!(host.read(reg::UTRLDBR), 1, "the controller still holds the slot");
    host.write(reg::UTRLCLR, !1);
    assert_eq!(host.read(reg::UTRLDBR), 0);
    host.memory.fill(host.data(0), 4096, 0x22);
    host.issue(0, &write, 4096);
    assert_eq!(host.await_slot(0, 100), Some(Ocs::Success));
    assert_eq!(host.command_in(0, &Host::read10(9, 1), 4096).1, [0x22; 4096]);
}

#[test]
fn an_abort_before_the_data_came_keeps_the_old_data() {
    let mut host = up("", 0);
    assert_eq!(host.command_out(0, &Host::write10(9, 1), &[0x33; 4096]).status, 0);
    host.memory.fill(host.data(0), 4096, 0x44);
    host.issue(0, &Host::command_upiu(0, 0, &Host::write10(9, 1), true, 4096), 4096);
    // Task management overtakes: the write takes longer than the abort.
    assert_eq!(host.manage(TaskFunction::AbortTaskSet, 0, 0), ServiceResponse::FunctionComplete);
    host.sleep_us(1000);
    assert_eq!(host.read(reg::UTRLDBR), 1);
    host.write(reg::UTRLCLR, 0);
    assert_eq!(host.command_in(0, &Host::read10(9, 1), 4096).1, [0x33; 4096]);
}

/// Room in the write buffer is freed by writes that are taken away, and data that does not fill a
/// program unit does not keep a large write waiting forever.
#[test]
fn the_write_buffer_never_clogs() {
    let mut host = Host::up(small(""), 8 << 20, 0);
    let write = |lba, blocks: u16, slot| {
        let cdb = Host::write10(lba, blocks);
        Host::command_upiu(0, slot, &cdb, true, u32::from(blocks) * 4096)
    };
    for _ in 0..40 {
        for slot in 0..3 {
            host.issue(slot, &write(0, 256, slot), 1 << 20);
        }
        host.sleep_us(200);
        host.manage(TaskFunction::ClearTaskSet, 0, 0);
        host.write(reg::UTRLCLR, 0);
        host.reap();
    }
    host.issue(0, &write(0, 1, 0), 4096);
    assert_eq!(host.await_slot(0, 1000), Some(Ocs::Success));
    // Larger than the buffer: waits until the buffer is empty.
    host.issue(1, &write(8, 2048, 1), 8 << 20);
    assert_eq!(host.await_slot(1, 1000), Some(Ocs::Success));
    assert_eq!(host.end(1, Ocs::Success).status, 0);
}

#[test]
fn a_unit_reset_ends_its_commands_and_is_announced() {
    let mut host = up("", 0);
    for slot in 0..8 {
        host.issue(slot, &read_upiu(slot, 100), 4096);
    }
    let reset = host.manage(TaskFunction::LogicalUnitReset, 0, 0);
    assert_eq!(reset, ServiceResponse::FunctionComplete);
    host.sleep_us(2000);
    assert_eq!(host.read(reg::UTRLDBR), 0xFF);
    host.write(reg::UTRLCLR, !0xFF);
    let (end, _) = host.command_in(0, &Host::read10(0, 1), 4096);
    assert_eq!(end.key(), (6, 0x29, 3));
}

#[test]
fn a_queue_is_stopped_and_cleaned_up() {
    let mut host = up("timeout:n80", 2);
    let mut slot = 0;
    while host.machine.with_model(|ufs| ufs.faults().count(Kind::Timeout)) == 0 {
        slot = (slot + 2) % 16;
        host.issue(slot, &read_upiu(slot, 5), 4096);
        host.await_slot(slot, 20);
    }
    let block = host.sq_block(0);
    let cti = SqCti::new().with_task_tag(slot);
    let clean = |host: &mut Host, stop: bool| {
        host.write(block + reg::mcq::SQRTC, SqRtc::new().with_stop(stop).into_bits());
        host.write(block + reg::mcq::SQCTI, cti.into_bits());
        let command = SqRtc::new().with_stop(stop).with_icu(true);
        host.write(block + reg::mcq::SQRTC, command.into_bits());
        SqRts::from_bits(host.read(block + reg::mcq::SQRTS))
    };
    let status = clean(&mut host, false);
    assert_eq!((status.cus(), status.rtc()), (true, CleanUpResult::NotStopped));
    let status = clean(&mut host, true);
    assert_eq!((status.sts(), status.rtc()), (true, CleanUpResult::Success));
    assert_eq!(host.await_slot(slot, 1), Some(Ocs::Aborted));
    assert_eq!(clean(&mut host, true).rtc(), CleanUpResult::TaskNotFound);
    // A stopped queue fetches nothing; when restarted it continues.
    host.issue(slot, &read_upiu(slot, 5), 4096);
    assert_eq!(host.await_slot(slot, 20), None);
    host.write(block + reg::mcq::SQRTC, 0);
    assert_eq!(host.await_slot(slot, 20), Some(Ocs::Success));
    // Hosts have been seen to request the clean-up with a write that clears STOP: it is refused,
    // and the queue continues with the waiting entries.
    host.write(block + reg::mcq::SQRTC, SqRtc::new().with_stop(true).into_bits());
    host.issue(slot, &read_upiu(slot, 5), 4096);
    host.write(block + reg::mcq::SQRTC, SqRtc::new().with_icu(true).into_bits());
    let status = SqRts::from_bits(host.read(block + reg::mcq::SQRTS));
    assert_eq!((status.sts(), status.rtc()), (false, CleanUpResult::NotStopped));
    assert_eq!(host.await_slot(slot, 20), Some(Ocs::Success));
}

#[test]
fn a_command_more_than_the_device_queues_finds_the_task_set_full() {
    for (device, unit, taken) in [(3, 0, 3), (5, 2, 2), (0, 4, 4)] {
        let mut config = small("");
        config.queue_depth = device;
        config.units[0].as_mut().unwrap().queue_depth = unit;
        let mut host = Host::up(config, 64 << 10, 0);
        for slot in 0..8 {
            host.issue(slot, &read_upiu(slot, 0), 4096);
        }
        let full = (0..8).filter(|&slot| {
            let ocs = host.await_slot(slot, 1000).unwrap();
            host.end(slot, ocs).status == Status::TaskSetFull.into_bits()
        });
        assert_eq!(full.count(), 8 - taken);
    }
}

#[test]
fn a_full_completion_queue_holds_everything_back_and_loses_nothing() {
    let mut config = small("");
    config.legacy_doorbell = false;
    config.active_commands = 256;
    let mut host = Host::up(config, 4096, 1);
    // 63 entries fit; further completions wait, and no more entries are fetched.
    let block = host.sq_block(0);
    let mut issued = 0;
    for _ in 0..600 {
        let tail = host.read(block + reg::mcq::SQTP);
        if (tail + 32) % (64 * 32) == host.read(block + reg::mcq::SQHP) {
            host.sleep_us(1000);
            continue;
        }
        let utrd = host.prepare(7, &read_upiu(7, 1), 4096);
        host.ring(0, 7, &utrd);
        issued += 1;
    }
    assert!((126..400).contains(&issued), "{issued}: ring, queue and backlog are finite");
    let mut completed = 0;
    for _ in 0..20 {
        completed += host.reap().len();
        host.sleep_us(5000);
    }
    assert_eq!(completed, issued);
}

#[test]
fn entries_of_unknown_or_switched_off_queues_are_ignored() {
    let host = up("", 1);
    for offset in (0x400..0x2000).step_by(4) {
        host.read(offset);
    }
    for queue in 1..32 {
        host.write(0x1000 + 48 * queue + reg::mcq::SQTP, 32);
        host.write(0x1000 + 48 * queue + 0x1C + reg::mcq::CQHP, 32);
    }
    let block = host.sq_block(0);
    let before = host.read(block + reg::mcq::SQTP);
    for tail in [33, 64 * 32, u32::MAX] {
        host.write(block + reg::mcq::SQTP, tail);
        assert_eq!(host.read(block + reg::mcq::SQTP), before);
    }
}

#[test]
fn uic_errors_are_reported_and_cleared_by_reading() {
    let mut host = up("uic:e1", 0);
    let mut seen = [false; 5];
    for _ in 0..200 {
        assert_eq!(host.command_in(0, &Host::read10(0, 1), 4096).0.status, 0);
        assert!(Interrupts::from_bits(host.read(reg::IS)).ue());
        for (layer, seen) in seen.iter_mut().enumerate() {
            let register = reg::UECPA + 4 * layer as u32;
            *seen |= host.read(register) >> 31 != 0;
            assert_eq!(host.read(register), 0);
        }
    }
    assert_eq!(seen, [true; 5]);
}

#[test]
fn link_loss_swallows_and_a_new_start_up_helps() {
    let mut host = up("link:n70", 0);
    while host.machine.with_model(|ufs| ufs.faults().count(Kind::LinkLoss)) == 0 {
        host.issue(0, &read_upiu(0, 0), 4096);
        host.await_slot(0, 20);
    }
    let is = Interrupts::from_bits(host.read(reg::IS));
    assert!(is.ulls() && is.ue() && !Hcs::from_bits(host.read(reg::HCS)).dp());
    assert!(UecDl::from_bits(host.read(reg::UECDL)).pa_init_error());
    assert_eq!(host.read(reg::UTRLDBR), 1);
    host.start(0);
    host.clear_attentions();
    assert_eq!(host.command_in(0, &Host::read10(0, 1), 4096).0.status, 0);
}

#[test]
fn every_kind_of_fault_happens_and_is_counted() {
    // Kinds that are not caused by a request, or that leave no device, have tests of their own.
    let elsewhere = [Kind::EnableGlitch, Kind::AutoHibern8, Kind::PowerLate, Kind::PowerGone];
    for kind in Kind::UFS.into_iter().filter(|kind| !elsewhere.contains(kind)) {
        let plan = format!("{kind}:n80");
        let mut host = up(&plan, 0);
        let mut odd = 0;
        for n in 0..120 {
            host.issue(0, &read_upiu(0, n), 4096);
            let ended = host.await_slot(0, 10);
            odd += u32::from(ended.is_none_or(|ocs| host.end(0, ocs).status != 0));
            let hcs = Hcs::from_bits(host.read(reg::HCS));
            if ended.is_none() || hcs.hei() || !hcs.dp() {
                host.start(0);
                host.clear_attentions();
            }
        }
        let count = host.machine.with_model(|ufs| ufs.faults().count(kind));
        let benign =
            matches!(kind, Kind::Uic | Kind::LostInterrupt | Kind::LineReset | Kind::ShortRead);
        assert_eq!((count, odd), (1, u32::from(!benign)), "{kind}");
    }
}

#[test]
fn equal_seeds_inject_equal_faults() {
    let run = |seed| {
        let plan = "late:0.02,transient:0.05,uic:0.01,medium:0.01";
        let mut host = Host::up(Config { seed, ..small(plan) }, 64 << 10, 0);
        for n in 0..500 {
            host.issue(0, &read_upiu(0, n), 4096);
            host.await_slot(0, 1000).unwrap();
        }
        host.machine.with_model(|ufs| ufs.faults().log().copied().collect::<Vec<_>>())
    };
    let log = run(11);
    assert!(log.len() > 20);
    assert_eq!(run(11), log);
    assert_ne!(run(12), log);
}

/// Flushed data is never lost; other data is old, new, or (if it tore) a part of each.
#[test]
fn power_loss_spares_what_was_flushed() {
    let mut lost = [0_u64; 3];
    for seed in 0..30 {
        let mut config = Config { seed, volatile_cache: true, ..small("") };
        config.profile.timing.program_ns = 20_000_000;
        let mut host = Host::up(config, 64 << 10, 0);
        let mut random = Random::new(seed);
        // For each block: what is safe, and what was written since.
        let mut safe = [0_u8; 16];
        let mut newer: Vec<Vec<u8>> = vec![Vec::new(); 16];
        for n in 1..60_u8 {
            let lba = random.below(16) as usize;
            let force = random.below(8) == 0;
            let cdb = Host::cdb10(0x2A, u8::from(force) << 3, lba as u32, 1);
            assert_eq!(host.command_out(0, &cdb, &[n; 4096]).status, 0);
            newer[lba].push(n);
            let flush = random.below(12) == 0;
            if flush {
                assert_eq!(host.command_out(0, &Host::cdb10(0x35, 0, 0, 0), &[]).status, 0);
            }
            for (lba, newer) in newer.iter_mut().enumerate() {
                if flush || force && newer.last() == Some(&n) {
                    safe[lba] = newer.last().copied().unwrap_or(safe[lba]);
                    newer.clear();
                }
            }
        }
        let loss = host.machine.with_model(|ufs| ufs.cut_power().unwrap());
        lost = [lost[0] + loss.survived, lost[1] + loss.vanished, lost[2] + loss.torn];
        host.machine.with_model(|ufs| ufs.restore_power());
        host.start(0);
        host.clear_attentions();
        for lba in 0..16 {
            let (end, data) = host.command_in(0, &Host::read10(lba as u32, 1), 4096);
            assert_eq!(end.status, 0);
            for sector in data.chunks(512) {
                assert!(sector.iter().all(|byte| *byte == sector[0]), "torn inside a sector");
                let known = sector[0] == safe[lba] || newer[lba].contains(&sector[0]);
                assert!(known, "seed {seed} block {lba}: {} of {:?}", sector[0], newer[lba]);
            }
        }
    }
    println!("survived, vanished, torn: {lost:?}");
    assert!(lost.iter().all(|&n| n > 10), "{lost:?}");
}

/// A request that is nearly valid.
fn hostile_upiu(random: &mut Random, tag: u8) -> [u8; 32] {
    const OPCODES: [u8; 28] = [
        0x00, 0x03, 0x04, 0x08, 0x0A, 0x12, 0x15, 0x1A, 0x1B, 0x1D, 0x25, 0x28, 0x2A, 0x2F, 0x34,
        0x35, 0x3B, 0x3C, 0x42, 0x55, 0x5A, 0x88, 0x8A, 0x91, 0x9E, 0xA0, 0xA2, 0xB5,
    ];
    let luns = [0, 0, 0, 1, 0x81, 0xB0, 0xC4, 0xD0];
    let mut cdb = [0; 16];
    cdb[0] = OPCODES[random.below(28) as usize];
    let fields = random.bits().to_le_bytes();
    for (byte, noise) in cdb[1..].iter_mut().zip(fields.into_iter().chain(fields)) {
        *byte = if random.below(3) == 0 { noise } else { 0 };
    }
    let lun = luns[random.below(8) as usize];
    let expected = [0, 4096, random.bits() as u32][random.below(3) as usize];
    let mut upiu = Host::command_upiu(lun, tag, &cdb, random.below(2) == 0, expected);
    upiu[1] |= [0, 0, 0, random.bits() as u8 & 3][random.below(4) as usize];
    if random.below(4) == 0 {
        let noise = random.bits().to_le_bytes();
        upiu[0] = [0x00, 0x04, 0x16, 0x22, 0x3F][random.below(5) as usize];
        upiu[5] = [1, 0x81][random.below(2) as usize];
        upiu[12..20].copy_from_slice(&[
            noise[0] % 10,
            noise[1] % 80,
            noise[2] % 3,
            noise[3] % 3,
            0,
            0,
            0,
            noise[4],
        ]);
    }
    upiu
}

/// Random register writes and random memory must neither panic nor hang.
#[test]
fn a_hostile_host_breaks_nothing() {
    for seed in 0..6 {
        let mut config = small("uic:0.01,late:0.01,stuck:0.001,transient:0.05");
        config.queues = 4;
        let mut host = Host::cold(config, 4096);
        host.start(if seed % 2 == 0 { 0 } else { 4 });
        host.speed_up(4, 2);
        let mut random = Random::new(seed);
        let registers = [reg::UTRLDBR, reg::UTRLCLR, reg::UTMRLDBR, reg::UTMRLCLR, reg::UICCMD];
        for _ in 0..40_000 {
            let offset = match random.below(4) {
                0 => registers[random.below(5) as usize],
                1 => random.below(0x800) as u32 * 4,
                2 => 0x1000 + random.below(48) as u32 * 4,
                _ => 0x400 + random.below(64) as u32 * 4,
            };
            let value = match random.below(3) {
                0 => random.bits() as u32,
                1 => crate::host::BASE as u32 + random.below(1 << 22) as u32,
                _ => 1 << random.below(32),
            };
            if offset == reg::HCE || offset == reg::CONFIG && random.below(50) != 0 {
                continue;
            }
            // Mostly near-valid structures, sometimes noise.
            let slot = random.below(31) as u8;
            let utrd = host.prepare(slot, &hostile_upiu(&mut random, slot), 4096);
            let mut bytes = [0; 32];
            utrd.emit(&mut bytes);
            host.memory.write(usize::from(slot) * 32, &bytes);
            for _ in 0..random.below(3) {
                let near = host.ucd(slot) + random.below(1200) as usize;
                host.memory.write(near & !7, &random.bits().to_le_bytes());
            }
            if host.mcq > 0 && offset % 3 == 0 {
                host.ring(random.below(4) as usize, slot, &utrd);
            }
            host.write(offset, value);
            let until = host.machine.now().after_nanos(random.below(100_000));
            host.machine.wait(Some(until));
            host.read(offset);
            if random.below(500) == 0 {
                host.write(reg::HCE, 0);
                host.write(reg::HCE, 1);
                host.sleep_us(100);
                host.write(reg::UICCMD, 0x16);
                host.sleep_us(3000);
                host.write(reg::UTRLBA, crate::host::BASE as u32);
                host.write(reg::UTRLRSR, 1);
            }
        }
        let faults = host.machine.with_model(|ufs| ufs.faults().total());
        println!("seed {seed}: {faults} faults injected");
        assert!(faults > 50, "seed {seed}: only {faults} faults, so few commands got through");
    }
}

#[test]
fn an_attribute_of_no_width_survives_a_host_reset() {
    let mut host = up("", 0);
    let fields = QueryFields::write_attribute(AttributeId::RefClkFreq.into_bits(), 0, 0, 3);
    assert_eq!(host.query(fields, &[]).0, QueryResult::Success);
    host.start(0);
    let fields = QueryFields::read_attribute(AttributeId::RefClkFreq.into_bits(), 0, 0);
    assert_eq!(host.query(fields, &[]).1.value32(), 3);
}

#[test]
fn the_crypto_engine_keeps_to_its_configuration_entries() {
    let mut host = up("", 0);
    assert!(Cap::from_bits(host.read(reg::CAP)).cs());
    let ccap = CryptoCap::from_bits(host.read(reg::CCAP));
    assert_eq!((ccap.cc(), ccap.cfgc()), (2, 15));
    let entry = CryptoCapEntry::from_bits(host.read(reg::CRYPTOCAP));
    assert_eq!((entry.algid(), entry.ks()), (CryptoAlgorithm::AesXts, CryptoKeySize::Bits256));
    let slot = u32::from(ccap.cfgptr()) * reg::CRYPTO_CONFIG_UNIT + 4 * reg::CRYPTO_CONFIG_LENGTH;
    let dw16 = slot + reg::CRYPTO_CONFIG_OFFSET;
    let on = CryptoConfig::new().with_dusize(8).with_cfge(true);
    let ocs = |host: &mut Host, length| {
        let upiu = Host::command_upiu(0, 0, &Host::read10(0, 1), false, length);
        let good = host.prepare(0, &upiu, 4096);
        let utrd = with(good, |u| (u.header, u.dun) = (u.header.with_ce(true).with_cci(4), 7));
        host.ring(0, 0, &utrd);
        host.sleep_us(1000);
        let mut bytes = [0; 32];
        host.memory.read(0, &mut bytes);
        flysch_wire::ufs::utrd::Utrd::parse(&bytes).status.ocs()
    };
    let invalid = Ocs::InvalidCryptoConfiguration;
    assert_eq!(ocs(&mut host, 4096), invalid, "no key");
    host.write(slot, 0x1234_5678);
    host.write(dw16, on.into_bits());
    assert_eq!(host.read(slot), 0, "keys cannot be read");
    assert_eq!(CryptoConfig::from_bits(host.read(dw16)), on);
    assert_eq!(ocs(&mut host, 4096), invalid, "HCE.CGE is clear");
    host.write(reg::HCE, 3);
    assert_eq!(host.read(reg::HCE), 3);
    assert_eq!(ocs(&mut host, 4096), Ocs::Success);
    assert_eq!(ocs(&mut host, 2048), Ocs::GeneralCryptoError, "half a data unit");
    for bad in [on.with_capidx(2), on.with_dusize(3), on.with_dusize(0)] {
        host.write(dw16, 0);
        host.write(dw16, bad.into_bits());
        assert_eq!(ocs(&mut host, 4096), invalid, "{bad:?}");
    }
    host.write(dw16, 0);
    host.write(dw16, on.into_bits());
    host.write(slot + 8, 1);
    assert_eq!(ocs(&mut host, 4096), Ocs::GeneralCryptoError, "changed while it was enabled");
    host.write(dw16, 0);
    assert_eq!(ocs(&mut host, 4096), invalid);
    host.write(dw16, on.into_bits());
    assert_eq!(ocs(&mut host, 4096), Ocs::Success);
    host.write(reg::HCE, 0);
    assert_eq!((host.read(reg::HCE), host.read(dw16)), (0, 0), "a reset takes the keys");
    // Hosts have been seen to write keys back before they set HCE.
    host.write(dw16, on.into_bits());
    host.write(reg::HCE, 3);
    host.sleep_us(100);
    assert_eq!(CryptoConfig::from_bits(host.read(dw16)), on);
}

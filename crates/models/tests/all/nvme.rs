//! The NVMe model as seen by a host: registers, memory, statuses of the specification.

use crate::nvme_host::{BASE, DATA, ENTRIES, Host, data_at};
use flysch_api::machine::Clock;
use flysch_models::faults::Kind;
use flysch_models::nvme::{Config, NamespaceConfig, firmware_image, profile};
use flysch_models::random::Random;
use flysch_wire::nvme::command::SqeFlags;
use flysch_wire::nvme::feature::{AsyncEventResult, AsyncEvents, SAVE, Select, event};
use flysch_wire::nvme::identify::{IdentifyController, IdentifyNamespace, ids};
use flysch_wire::nvme::log::{ErrorEntry, FirmwareSlots, Smart};
use flysch_wire::nvme::registers::{self as reg, Cc};
use flysch_wire::nvme::sgl::{Descriptor, kind};
use flysch_wire::nvme::{AdminOpcode, Cns, FeatureId, LogId, NvmOpcode, Sqe, Status};

const PAGE: usize = 4096;

fn small() -> Config {
    Config { namespaces: vec![NamespaceConfig::memory(64 << 20)], vectors: 1, ..Config::default() }
}

fn faulty(plan: &str) -> Config {
    Config { faults: plan.parse().unwrap(), ..small() }
}

fn code(status: Status) -> u16 {
    status.into_bits()
}

/// A pattern without repetition.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len.div_ceil(8)).flat_map(|_| random.bits().to_le_bytes()).take(len).collect()
}

#[test]
fn data_of_every_description_comes_back() {
    let mut host = Host::up(small());
    // 600 pages from an unaligned offset: two list pages, the first of which ends with a pointer.
    let (blocks, offset) = (512_u16, 1028);
    let len = usize::from(blocks) * PAGE;
    let content = pattern(len, 1);
    let from = DATA + offset;
    host.memory.write(from, &content);
    let list = 8 << 20;
    let pages = (DATA / PAGE + 1..).map(|page| BASE + (page * PAGE) as u64);
    let mut at = list + PAGE - 16;
    for (n, page) in pages.take(usize::from(blocks)).enumerate() {
        if n == 1 {
            host.memory.store64(at, BASE + (list + 3 * PAGE) as u64);
            at = list + 3 * PAGE;
        }
        host.memory.store64(at, page);
        at += 8;
    }
    let prps = [BASE + from as u64, BASE + (list + PAGE - 16) as u64];
    // 511 entries would fit on the second list page, 512 do not.
    let written = Host::transfer(NvmOpcode::Write, 7, blocks, prps);
    assert_eq!(host.command(1, written).status, 0);
    host.memory.fill(from, len, 0);
    // Read back with a scatter gather list of two segments; the middle is discarded.
    let segments = list + 8 * PAGE;
    let put = |at: usize, address: usize, length: usize, kind: u8| {
        let (address, length) = (BASE + address as u64, length as u32);
        let [low, high] = Descriptor { address, length, kind }.to_words();
        host.memory.store64(at, low);
        host.memory.store64(at + 8, high);
    };
    put(segments, DATA + 3, 1000, kind::DATA);
    put(segments + 16, 0, 50_000, kind::BIT_BUCKET);
    put(segments + 32, segments + PAGE, 16, kind::LAST_SEGMENT);
    put(segments + PAGE, DATA + 51_003, len, kind::DATA);
    let address = BASE + segments as u64;
    let [low, high] = Descriptor { address, length: 48, kind: kind::SEGMENT }.to_words();
    let command =
        Host::transfer(NvmOpcode::Read, 7, blocks, [u64::from_le(low), u64::from_le(high)]);
    let flags = SqeFlags::new().with_psdt(1);
    assert_eq!(host.command(1, Sqe { flags, ..command }).status, 0);
    assert_eq!(host.bytes(DATA + 3, 1000), content[..1000]);
    assert_eq!(host.bytes(DATA + 1003, 50_000), vec![0; 50_000]);
    assert_eq!(host.bytes(DATA + 51_003, len - 51_000), content[51_000..]);
}

#[test]
fn lists_that_make_no_sense_end_with_their_status() {
    let mut host = Host::up(small());
    let read = |host: &mut Host, blocks, data, psdt| {
        let flags = SqeFlags::new().with_psdt(psdt);
        let command = Sqe { flags, ..Host::transfer(NvmOpcode::Read, 0, blocks, data) };
        host.command(1, command).status & 0x7FF
    };
    let page = BASE + DATA as u64;
    let outside = BASE - 4096;
    for (blocks, data, status) in [
        (1, [page + 2, 0], Status::PrpOffset),
        (2, [page, page + 4], Status::PrpOffset),
        (3, [page, page + 4], Status::PrpOffset),
        (1, [outside, 0], Status::DataTransfer),
        (3, [page, outside], Status::DataTransfer),
        (1, [!0xFFF, 0], Status::DataTransfer),
        (1, [!3, page], Status::DataTransfer),
    ] {
        assert_eq!(read(&mut host, blocks, data, 0), code(status), "{data:x?}");
    }
    let sgl =
        |address: u64, length: u32, kind: u8| [address, u64::from(length) | u64::from(kind) << 56];
    // A segment that leads to itself, preceded by data of length zero.
    let list = page + (64 << 10);
    let [low, high] = sgl(list, 32, kind::SEGMENT);
    host.memory.store64(DATA + (64 << 10) + 16, low);
    host.memory.store64(DATA + (64 << 10) + 24, high);
    for (data, status) in [
        (sgl(page, 4095, kind::DATA), Status::SglDataLength),
        (sgl(page, 15, kind::LAST_SEGMENT), Status::SglSegment),
        (sgl(page, 0, kind::SEGMENT), Status::SglSegment),
        (sgl(page, 32, 0x50), Status::SglType),
        (sgl(outside, 16, kind::LAST_SEGMENT), Status::DataTransfer),
        (sgl(list, 32, kind::LAST_SEGMENT), Status::SglSegment),
        (sgl(list, 32, kind::SEGMENT), Status::SglCount),
    ] {
        assert_eq!(read(&mut host, 1, data, 1), code(status), "{data:x?}");
    }
    assert_eq!(read(&mut host, 1, data_at(DATA), 3), code(Status::InvalidField));
    assert_eq!(read(&mut host, 1, data_at(DATA), 0), 0, "it goes on");
}

#[test]
fn commands_that_cannot_be_carried_out_say_why() {
    let mut host = Host::up(small());
    let blocks = (64 << 20) / 4096_u64;
    let mut run = |opcode: NvmOpcode, nsid, lba, count| {
        let command = Host::transfer(opcode, lba, count, data_at(DATA));
        host.command(1, Sqe { nsid, ..command }).status & 0x7FF
    };
    let read = NvmOpcode::Read;
    assert_eq!(run(read, 1, blocks - 1, 1), 0);
    assert_eq!(run(read, 1, blocks - 1, 2), code(Status::LbaRange));
    assert_eq!(run(read, 1, u64::MAX, 1), code(Status::LbaRange));
    assert_eq!(run(read, 0, 0, 1), code(Status::InvalidNamespace));
    assert_eq!(run(read, u32::MAX, 0, 1), code(Status::InvalidNamespace));
    assert_eq!(run(read, 33, 0, 1), code(Status::InvalidNamespace));
    assert_eq!(run(read, 2, 0, 1), code(Status::InvalidField), "inactive");
    assert_eq!(run(read, 1, 0, 513), code(Status::InvalidField), "beyond MDTS");
    assert_eq!(run(NvmOpcode::Unknown(0x55), 1, 0, 1), code(Status::InvalidOpcode));
    assert_eq!(run(NvmOpcode::Flush, u32::MAX, 0, 1), 0);
    let errors = host.log(LogId::Errors, 128);
    let last = ErrorEntry::parse(&errors).unwrap();
    assert_eq!((last.count, last.sq, last.status >> 1 & 0x7FF), (8, 1, 1));
}

#[test]
fn blocks_are_compared_verified_zeroed_and_made_unreadable() {
    let mut host = Host::up(small());
    let content = pattern(2 * PAGE, 3);
    host.memory.write(DATA, &content);
    let mut run = |opcode, lba, count| {
        host.command(1, Host::transfer(opcode, lba, count, data_at(DATA))).status & 0x7FF
    };
    assert_eq!(run(NvmOpcode::Write, 10, 2), 0);
    assert_eq!(run(NvmOpcode::Compare, 10, 2), 0);
    assert_eq!(run(NvmOpcode::Compare, 11, 2), code(Status::CompareFailure));
    assert_eq!(run(NvmOpcode::WriteUncorrectable, 10, 3), 0);
    assert_eq!(run(NvmOpcode::Verify, 9, 2), code(Status::UnrecoveredRead));
    assert_eq!(run(NvmOpcode::Write, 11, 1), 0);
    assert_eq!(run(NvmOpcode::Read, 11, 1), 0);
    assert_eq!(run(NvmOpcode::Read, 10, 1), code(Status::UnrecoveredRead));
    assert_eq!(run(NvmOpcode::Read, 12, 1), code(Status::UnrecoveredRead));
    assert_eq!(run(NvmOpcode::WriteZeroes, 0, 100), 0);
    assert_eq!(run(NvmOpcode::Read, 10, 2), 0);
    assert_eq!(host.bytes(DATA, 2 * PAGE), vec![0; 2 * PAGE]);
}

#[test]
fn a_full_completion_queue_waits_for_the_host() {
    let mut host = Host::up(small());
    let read = Host::transfer(NvmOpcode::Read, 0, 1, data_at(DATA));
    let mut ended = 0;
    for _ in 0..4 {
        for _ in 0..ENTRIES - 1 {
            host.put(1, read);
        }
        host.ring(1);
        host.rest(50_000_000);
        // Only as many as there is room for; the host has acknowledged nothing yet.
        while host.peek(1).is_some() {
            ended += 1;
        }
    }
    assert_eq!(ended, ENTRIES - 1, "one entry stays free");
    host.acknowledge(1);
    while host.reap(1).is_some() {
        ended += 1;
    }
    // Each batch was as long as the queue, and replaced the entries not yet fetched.
    assert!(ended > ENTRIES - 1 && ended <= 4 * (ENTRIES - 1), "{ended}");
    assert_eq!(host.command(1, read).status, 0);
}

#[test]
fn doorbells_that_are_none_are_told_by_an_event() {
    let mut host = Host::up(small());
    for (register, value, info) in [
        (reg::sq_tail(9, 0), 0, event::INVALID_DOORBELL),
        (reg::cq_head(2, 0), 0, event::INVALID_DOORBELL),
        (reg::sq_tail(1, 0), u32::from(ENTRIES), event::INVALID_DOORBELL_VALUE),
        (reg::sq_tail(1, 0), u32::MAX, event::INVALID_DOORBELL_VALUE),
        (reg::cq_head(1, 0), 1, event::INVALID_DOORBELL_VALUE),
    ] {
        let request = Sqe { opcode: AdminOpcode::AsyncEvent.into_bits(), ..Sqe::default() };
        let cid = host.put(0, request);
        host.ring(0);
        host.rest(10_000_000);
        assert_eq!(host.take(0), None, "nothing to tell yet");
        host.write(register, value);
        let cqe = host.take(0).expect("told at once");
        let told = AsyncEventResult::from_bits(cqe.result);
        assert_eq!((cqe.cid, told.kind(), told.info()), (cid, event::ERROR, info), "{register:x}");
        // The next event of its type only comes after the log page was read.
        host.log(LogId::Errors, 64);
    }
    for n in 0..5 {
        host.put(0, Sqe { opcode: AdminOpcode::AsyncEvent.into_bits(), ..Sqe::default() });
        host.ring(0);
        host.rest(10_000_000);
        let ended = host.take(0).map(|cqe| cqe.code());
        assert_eq!(ended, (n == 4).then_some(Status::AsyncEventLimit));
    }
}

#[test]
fn queues_are_created_and_deleted_by_the_rules() {
    let mut host = Host::up(small());
    let mut run = |opcode, queue: u32, entries: u32, cdw11: u32, address: u64| {
        let cdw10 = [queue | entries.wrapping_sub(1) << 16, cdw11, 0, 0, 0, 0];
        let data = [address, 0];
        host.admin(opcode, Sqe { cdw10, data, ..Sqe::default() }).status & 0x7FF
    };
    let (cq, sq, page) = (AdminOpcode::CreateCq, AdminOpcode::CreateSq, BASE + (64 << 10));
    assert_eq!(run(cq, 1, 16, 1, page), code(Status::QueueId), "it is there");
    assert_eq!(run(cq, 0, 16, 1, page), code(Status::QueueId));
    assert_eq!(run(cq, 9, 16, 1, page), code(Status::QueueId));
    assert_eq!(run(cq, 2, 1, 1, page), code(Status::QueueSize));
    assert_eq!(run(cq, 2, 1025, 1, page), code(Status::QueueSize));
    assert_eq!(run(cq, 2, 16, 0, page), code(Status::InvalidField), "not contiguous");
    assert_eq!(run(cq, 2, 16, 1, page + 64), code(Status::PrpOffset));
    assert_eq!(run(cq, 2, 16, 3 | 1 << 16, page), code(Status::InterruptVector));
    assert_eq!(run(sq, 2, 16, 1 | 2 << 16, page), code(Status::CqInvalid));
    assert_eq!(run(cq, 2, 16, 1, page), 0);
    assert_eq!(run(sq, 2, 16, 1 | 2 << 16, page + 4096), 0);
    assert_eq!(run(AdminOpcode::DeleteCq, 2, 1, 0, 0), code(Status::QueueDeletion));
    assert_eq!(run(AdminOpcode::DeleteSq, 2, 1, 0, 0), 0);
    assert_eq!(run(AdminOpcode::DeleteSq, 2, 1, 0, 0), code(Status::QueueId));
    assert_eq!(run(AdminOpcode::DeleteCq, 2, 1, 0, 0), 0);
}

#[test]
fn commands_are_aborted_or_end_with_their_queue() {
    let mut host = Host::up(small());
    let read = Host::transfer(NvmOpcode::Read, 0, 1, data_at(DATA));
    let fine = host.command(1, read).cid;
    host.machine.with_model(|model| model.arm_faults("timeout:n1".parse().unwrap()));
    let lost = host.put(1, read);
    host.ring(1);
    host.rest(1_000_000_000);
    assert_eq!(host.take(1), None, "swallowed");
    let abort = |host: &mut Host, cid: u16| {
        let cdw10 = [1 | u32::from(cid) << 16, 0, 0, 0, 0, 0];
        host.admin(AdminOpcode::Abort, Sqe { cdw10, ..Sqe::default() }).result
    };
    assert_eq!(abort(&mut host, fine), 1, "it has ended");
    assert_eq!(abort(&mut host, lost), 0);
    let ended = host.take(1).expect("aborted");
    assert_eq!((ended.cid, ended.code()), (lost, Status::AbortRequested));
    host.machine.with_model(|model| model.arm_faults("timeout:n1".parse().unwrap()));
    host.put(1, read);
    host.ring(1);
    let cdw10 = [1, 0, 0, 0, 0, 0];
    assert_eq!(host.admin(AdminOpcode::DeleteSq, Sqe { cdw10, ..Sqe::default() }).status, 0);
    assert_eq!(host.take(1).map(|cqe| cqe.code()), Some(Status::SqDeleted));
}

#[test]
fn a_controller_that_cannot_reach_its_queues_fails_until_it_is_reset() {
    let mut host = Host::up(small());
    host.write(reg::CC, 0);
    assert!(host.await_ready(false));
    host.write(reg::ASQ, 0);
    host.write(reg::ASQ + 4, 0);
    host.write(reg::CC, Cc::new().with_en(true).into_bits());
    assert!(host.await_ready(true));
    host.write(reg::sq_tail(0, 0), 1);
    assert!(host.csts().cfs());
    host.enable();
    host.create_pair();
    // Memory pages, command sets, arbitration and queues that are not supported.
    let cc = Cc::new().with_en(true);
    for bad in [cc.with_mps(5), cc.with_css(1), cc.with_ams(1)] {
        host.write(reg::CC, 0);
        host.await_ready(false);
        host.write(reg::CC, bad.into_bits());
        assert!(host.csts().cfs(), "{bad:?}");
    }
    host.enable();
    host.create_pair();
    assert_eq!(host.command(1, Host::transfer(NvmOpcode::Read, 0, 1, data_at(DATA))).status, 0);
}

#[test]
fn features_are_kept_saved_and_forgotten_as_they_should_be() {
    let mut host = Host::up(small());
    let get = |host: &mut Host, id: FeatureId, select: u32| {
        let cdw10 = [u32::from(id.into_bits()) | select << 8, 0, 0, 0, 0, 0];
        let data = data_at(DATA);
        host.admin(AdminOpcode::GetFeatures, Sqe { cdw10, data, ..Sqe::default() }).result
    };
    assert_eq!(get(&mut host, FeatureId::WriteCache, 0), 1);
    assert_eq!(host.set_feature(FeatureId::WriteCache, 0), 0);
    assert_eq!(host.set_feature(FeatureId::Arbitration, 5), 0);
    let saved = FeatureId::Unknown(FeatureId::ErrorRecovery.into_bits());
    let cdw10 = [u32::from(saved.into_bits()) | SAVE, 9, 0, 0, 0, 0];
    assert_eq!(host.admin_code(AdminOpcode::SetFeatures, 0, cdw10), 0);
    let cdw10 = [u32::from(FeatureId::Timestamp.into_bits()) | SAVE, 0, 0, 0, 0, 0];
    assert_eq!(host.admin_code(AdminOpcode::SetFeatures, 0, cdw10), code(Status::NotSaveable));
    assert_eq!(host.set_feature(FeatureId::Unknown(0x7F), 0), code(Status::InvalidField));
    assert_eq!(host.set_feature(FeatureId::PowerManagement, 5), code(Status::InvalidField));
    assert_eq!(host.set_feature(FeatureId::Queues, 0), code(Status::Sequence), "there are queues");
    let cdw10 = [u32::from(FeatureId::WriteCache.into_bits()), 1, 0, 0, 0, 0];
    let of_one = host.admin_code(AdminOpcode::SetFeatures, 1, cdw10);
    assert_eq!(of_one, code(Status::NotPerNamespace));
    host.enable();
    host.create_pair();
    assert_eq!(get(&mut host, FeatureId::WriteCache, 0), 1, "a reset takes it back");
    assert_eq!(get(&mut host, FeatureId::ErrorRecovery, 0), 9, "saved");
    assert_eq!(get(&mut host, FeatureId::ErrorRecovery, 1), 0, "the default");
    // A protected namespace.
    let cdw10 = [u32::from(FeatureId::WriteProtect.into_bits()), 1, 0, 0, 0, 0];
    assert_eq!(host.admin_code(AdminOpcode::SetFeatures, 1, cdw10), 0);
    let write = Host::transfer(NvmOpcode::Write, 0, 1, data_at(DATA));
    assert_eq!(host.command(1, write).code(), Status::WriteProtected);
    let data = IdentifyNamespace::parse(&host.identify(Cns::Namespace, 1).unwrap()).unwrap();
    assert_eq!(data.nsattr & 1, 1);
}

#[test]
fn namespaces_are_created_attached_formatted_and_deleted() {
    let mut host = Host::up(Config { capacity: 256 << 20, ..small() });
    let wanted = AsyncEvents::new().with_namespaces(true).into_bits();
    assert_eq!(host.set_feature(FeatureId::AsyncEvents, wanted), 0);
    let blocks = (128 << 20) / 512;
    let mut data = IdentifyNamespace { nsze: blocks, ncap: blocks, ..Default::default() };
    host.memory.write(DATA, &data.to_bytes());
    let create = |host: &mut Host| {
        let command = Sqe { data: data_at(DATA), ..Sqe::default() };
        host.admin(AdminOpcode::NamespaceManagement, command)
    };
    let made = create(&mut host);
    assert_eq!((made.status, made.result), (0, 2));
    assert_eq!(create(&mut host).code(), Status::NamespaceCapacity);
    data.nsze += 1;
    host.memory.write(DATA, &data.to_bytes());
    assert_eq!(create(&mut host).code(), Status::ThinProvisioning);
    assert_eq!(ids(&host.identify(Cns::ActiveList, 0).unwrap()).collect::<Vec<_>>(), [1]);
    assert_eq!(ids(&host.identify(Cns::AllocatedList, 0).unwrap()).collect::<Vec<_>>(), [1, 2]);
    let event = host.put(0, Sqe { opcode: AdminOpcode::AsyncEvent.into_bits(), ..Sqe::default() });
    host.ring(0);
    host.memory.write(DATA, &[1, 0, 1, 0]);
    let attach = [0; 6];
    let command = Sqe { nsid: 2, cdw10: attach, data: data_at(DATA), ..Sqe::default() };
    let opcode = AdminOpcode::NamespaceAttachment.into_bits();
    host.put(0, Sqe { opcode, ..command });
    host.ring(0);
    let first = host.reap(0).unwrap();
    assert_eq!(first.cid, event);
    assert_eq!(host.reap(0).unwrap().status, 0);
    let changed = host.log(LogId::ChangedNamespaces, 4096);
    assert_eq!(ids(&changed).collect::<Vec<_>>(), [2]);
    let write = Sqe { nsid: 2, ..Host::transfer(NvmOpcode::Write, blocks - 8, 8, data_at(DATA)) };
    assert_eq!(host.command(1, write).status, 0);
    // Another format: different blocks, no data.
    assert_eq!(
        host.admin_code(AdminOpcode::FormatNvm, 2, [2, 0, 0, 0, 0, 0]),
        code(Status::Format)
    );
    assert_eq!(host.admin_code(AdminOpcode::FormatNvm, 2, [1, 0, 0, 0, 0, 0]), 0);
    let is = IdentifyNamespace::parse(&host.identify(Cns::Namespace, 2).unwrap()).unwrap();
    assert_eq!((is.nsze, is.block_size()), (blocks / 8, Some(4096)));
    let delete = [1, 0, 0, 0, 0, 0];
    assert_eq!(host.admin_code(AdminOpcode::NamespaceManagement, 2, delete), 0);
    assert_eq!(host.command(1, write).code(), Status::InvalidField);
}

#[test]
fn a_sanitize_operation_takes_its_time_and_the_data() {
    let mut host = Host::up(small());
    host.memory.fill(DATA, PAGE, 0x5A);
    let write = Host::transfer(NvmOpcode::Write, 5, 1, data_at(DATA));
    assert_eq!(host.command(1, write).status, 0);
    assert_eq!(host.admin_code(AdminOpcode::Sanitize, 0, [2, 0, 0, 0, 0, 0]), 0);
    assert_eq!(host.command(1, write).code(), Status::SanitizeInProgress);
    let log = host.log(LogId::Sanitize, 512);
    assert_eq!(log[2] & 7, 2);
    host.enable();
    host.create_pair();
    assert_eq!(host.command(1, write).code(), Status::SanitizeInProgress, "over a reset");
    host.rest(2_000_000_000);
    let log = host.log(LogId::Sanitize, 512);
    assert_eq!((log[0], log[1], log[2] & 7), (0xFF, 0xFF, 1));
    let read = Host::transfer(NvmOpcode::Read, 5, 1, data_at(DATA));
    assert_eq!(host.command(1, read).status, 0);
    assert_eq!(host.bytes(DATA, PAGE), vec![0; PAGE]);
}

#[test]
fn firmware_is_checked_kept_and_run() {
    let mut host = Host::up(small());
    let mut image = firmware_image(*b"2.7     ", &pattern(5000, 9));
    let send = |host: &mut Host, image: &[u8]| {
        for (n, part) in image.chunks(PAGE).enumerate() {
            host.memory.write(DATA, part);
            let dwords = (part.len() / 4) as u32 - 1;
            let cdw10 = [dwords, (n * PAGE / 4) as u32, 0, 0, 0, 0];
            assert_eq!(host.admin_code(AdminOpcode::FirmwareDownload, 0, cdw10), 0);
        }
    };
    let commit = |host: &mut Host, slot: u32, action: u32| {
        let cdw10 = [slot | action << 3, 0, 0, 0, 0, 0];
        host.admin_code(AdminOpcode::FirmwareCommit, 0, cdw10)
    };
    image[200] ^= 1;
    send(&mut host, &image);
    assert_eq!(commit(&mut host, 2, 1), code(Status::FirmwareImage));
    image[200] ^= 1;
    send(&mut host, &image);
    assert_eq!(commit(&mut host, 7, 1), code(Status::FirmwareSlot));
    assert_eq!(commit(&mut host, 2, 1), 0);
    let slots = FirmwareSlots::parse(&host.log(LogId::Firmware, 512)).unwrap();
    assert_eq!((slots.active, &slots.revisions[8..16]), (0x21, &b"2.7     "[..]));
    let revision = |host: &mut Host| {
        IdentifyController::parse(&host.identify(Cns::Controller, 0).unwrap()).unwrap().fr
    };
    assert_eq!(&revision(&mut host), b"1.0     ");
    host.enable();
    host.create_pair();
    assert_eq!(&revision(&mut host), b"2.7     ");
    // Back to the first one immediately: processing pauses, and continues.
    assert_eq!(commit(&mut host, 1, 3), 0);
    assert!(host.csts().pp());
    assert_eq!(&revision(&mut host), b"1.0     ");
    assert!(!host.csts().pp());
}

#[test]
fn shadow_doorbells_take_the_place_of_registers() {
    let mut host = Host::up(small());
    let (values, events) = (4 << 20, (4 << 20) + PAGE);
    let opcode = AdminOpcode::DoorbellBufferConfig.into_bits();
    let bad = Sqe { opcode, data: [BASE + 8, BASE], ..Sqe::default() };
    assert_eq!(host.command(0, bad).code(), Status::InvalidField);
    let data = [BASE + values as u64, BASE + events as u64];
    assert_eq!(host.command(0, Sqe { opcode, data, ..Sqe::default() }).status, 0);
    let read = Host::transfer(NvmOpcode::Read, 0, 1, data_at(DATA));
    for n in 0..200 {
        // The host writes the value, and the register only if the event index demands it.
        let old = host.tail(1);
        host.put(1, read);
        let new = host.tail(1);
        host.memory.store32(values + 8, new.into());
        let index = host.memory.load32(events + 8) as u16;
        if new.wrapping_sub(index).wrapping_sub(1) < new.wrapping_sub(old) {
            host.ring(1);
        }
        assert_eq!(host.reap(1).map(|cqe| cqe.status), Some(0), "{n}");
        host.memory.store32(values + 12, host.head(1).into());
    }
}

/// A register write arrives later than values read from memory meanwhile, if host and device do not
/// run in one thread.
#[test]
fn doorbells_that_shadows_have_overtaken_bring_nothing_back() {
    let mut host = Host::up(small());
    let (values, events) = (4 << 20, (4 << 20) + PAGE);
    let opcode = AdminOpcode::DoorbellBufferConfig.into_bits();
    let data = [BASE + values as u64, BASE + events as u64];
    assert_eq!(host.command(0, Sqe { opcode, data, ..Sqe::default() }).status, 0);
    let read = Host::transfer(NvmOpcode::Read, 0, 1, data_at(DATA));
    let cids = [(); 3].map(|()| host.put(1, read));
    host.memory.store32(values + 8, 3);
    for late in [1, 2, 3, 1] {
        host.write(reg::sq_tail(1, 0), late);
    }
    for cid in cids {
        assert_eq!(host.reap(1).map(|cqe| cqe.cid), Some(cid));
    }
    host.memory.store32(values + 12, 3);
    for late in [3, 1, 2] {
        host.write(reg::cq_head(1, 0), late);
        host.write(reg::sq_tail(1, 0), late);
    }
    host.rest(1_000_000_000);
    assert_eq!(host.peek(1), None, "no command is carried out twice");
    // The same tail again, from memory: the queue works as before.
    let cid = host.put(1, read);
    host.memory.store32(values + 8, 4);
    host.ring(1);
    assert_eq!(host.reap(1).map(|cqe| (cqe.cid, cqe.status)), Some((cid, 0)));
}

#[test]
fn the_device_sleeps_when_it_may_and_takes_its_time_to_wake() {
    let mut host = Host::up(small());
    let read = Host::transfer(NvmOpcode::Read, 0, 1, data_at(DATA));
    let timed = |host: &mut Host| {
        let start = host.machine.now();
        assert_eq!(host.command(1, read).status, 0);
        host.machine.now().nanos_since(start)
    };
    timed(&mut host);
    let awake = timed(&mut host);
    host.rest(5_000_000_000);
    assert!(timed(&mut host) < awake + 100_000, "it may not sleep");
    // To state 3 after 100 ms, to state 4 after another 2 s.
    let mut table = [0_u8; 256];
    table[..8].copy_from_slice(&(3_u64 << 3 | 100 << 8).to_le_bytes());
    table[24..32].copy_from_slice(&(4_u64 << 3 | 2000 << 8).to_le_bytes());
    host.memory.write(DATA, &table);
    assert_eq!(host.set_feature(FeatureId::Apst, 1), 0);
    let states = profile::PM991A.power;
    for (rest, state) in [(50, None), (500, Some(3)), (5000, Some(4)), (10, None)] {
        host.rest(rest * 1_000_000);
        let exit = state.map_or(0, |state: usize| u64::from(states[state].exit_us) * 1000);
        let took = timed(&mut host);
        assert!((exit..exit + awake + 100_000).contains(&took), "{rest} ms: {took}");
    }
    // 400 ms of the second pause and 2 s of the third in state 3, the rest of the third in state 4.
    let now = host.machine.now();
    let energy = host.machine.with_model(|model| model.energy(now));
    let millis = |name| {
        let state = energy.states.iter().find(|state| state.name == name);
        state.map_or(0, |state| state.amount.div_ceil(1_000_000))
    };
    assert!((2400..=2410).contains(&millis("PS3")), "{energy:?}");
    assert!((2900..=2910).contains(&millis("PS4")), "{energy:?}");
    assert_eq!(energy.nanos(), now.nanos());
    assert_eq!((millis("PS1"), millis("PS2")), (0, 0));
}

#[test]
fn a_saved_table_of_power_states_outlives_a_reset() {
    let mut host = Host::up(small());
    let id = u32::from(FeatureId::Apst.into_bits());
    let get = |host: &mut Host, select: Select| {
        host.memory.fill(DATA, 256, 0xEE);
        let cdw10 = [id | (select as u32) << 8, 0, 0, 0, 0, 0];
        assert_eq!(host.admin_code(AdminOpcode::GetFeatures, 0, cdw10), 0);
        host.bytes(DATA, 256)
    };
    host.memory.fill(DATA, 256, 0x11);
    assert_eq!(host.admin_code(AdminOpcode::SetFeatures, 0, [id | SAVE, 1, 0, 0, 0, 0]), 0);
    host.memory.fill(DATA, 256, 0x22);
    assert_eq!(host.set_feature(FeatureId::Apst, 1), 0);
    assert_eq!(get(&mut host, Select::Current), [0x22; 256]);
    assert_eq!(get(&mut host, Select::Saved), [0x11; 256]);
    assert_eq!(get(&mut host, Select::Default), [0; 256]);
    host.enable();
    assert_eq!(get(&mut host, Select::Current), [0x11; 256], "what was not saved is gone");
}

#[test]
fn a_shutdown_empties_the_cache_and_health_counts_the_others() {
    let mut host = Host::up(Config { volatile_cache: true, ..small() });
    let write = Host::transfer(NvmOpcode::Write, 5, 2, data_at(DATA));
    assert_eq!(host.command(1, write).status, 0);
    let cc = Cc::from_bits(host.read(reg::CC));
    host.write(reg::CC, cc.with_shn(1).into_bits());
    assert_eq!(host.csts().shst(), 1);
    host.rest(1_000_000_000);
    assert_eq!(host.csts().shst(), 2);
    let lost = host.machine.with_model(|model| model.cut_power().unwrap());
    assert_eq!((lost.vanished, lost.survived), (0, 0));
    assert_eq!(host.read(reg::CSTS), u32::MAX, "nothing answers");
    host.machine.with_model(|model| model.restore_power());
    host.enable();
    host.create_pair();
    let smart = |host: &mut Host| Smart::parse(&host.log(LogId::Smart, 512)).unwrap();
    let of = smart(&mut host);
    assert_eq!((of.unsafe_shutdowns, of.power_cycles, of.writes), (0, 2, 1));
    assert_eq!(host.command(1, write).status, 0);
    let lost = host.machine.with_model(|model| model.cut_power().unwrap());
    assert_eq!(lost.vanished + lost.survived, 2);
    host.machine.with_model(|model| model.restore_power());
    host.enable();
    assert_eq!(smart(&mut host).unsafe_shutdowns, 1);
}

#[test]
fn every_kind_of_fault_happens_and_is_counted() {
    for kind in Kind::NVME.into_iter().filter(|kind| *kind != Kind::ReadyStuck) {
        let mut host = Host::up(faulty(&format!("{kind}:n20")));
        let read = Host::transfer(NvmOpcode::Read, 0, 1, data_at(DATA));
        let mut odd = 0;
        for _ in 0..40 {
            let cid = host.put(1, read);
            host.ring(1);
            let ended = host.reap(1);
            odd += u32::from(ended.is_none_or(|cqe| cqe.cid != cid || cqe.status != 0));
            if ended.is_none() || host.csts().cfs() || !host.csts().rdy() {
                host.machine.with_model(|model| model.plug());
                host.enable();
                host.create_pair();
            }
            while host.take(1).is_some() {}
        }
        let count = host.machine.with_model(|model| model.faults().count(kind));
        let benign = matches!(kind, Kind::LostInterrupt | Kind::EventStorm | Kind::Late);
        assert_eq!(count, 1, "{kind}");
        assert_eq!(odd == 0, benign, "{kind}: {odd}");
    }
}

#[test]
fn noise_in_registers_and_entries_ends_in_an_answer() {
    let mut random = Random::new(5);
    for seed in 0..20 {
        let mut host = Host::up(Config { seed, ..small() });
        for _ in 0..300 {
            let mut command = Sqe::from_words(core::array::from_fn(|_| random.bits()));
            // Nearly valid more often than not.
            if random.below(4) > 0 {
                command.opcode &= 0x1F;
                command.nsid &= 3;
                command.flags = SqeFlags::new().with_psdt(random.below(4) as u8);
                let at = random.below(15 << 20) & !3;
                command.data = [BASE + at, BASE + (random.below(15 << 20) & !0xFFF)];
                command.cdw10[0] &= 0x7_00FF;
                command.cdw10[1] &= 0x1_0007;
                command.cdw10[2] &= 0xFF;
            }
            let queue = random.below(2) as usize;
            // The queues must stay.
            if queue == 0 && command.opcode < 6 && command.opcode != 2 {
                continue;
            }
            host.put(queue, command);
            host.ring(queue);
            if random.below(8) == 0 {
                host.write(0x1000 + (random.below(0x1000) as u32 & !3), random.bits() as u32);
            }
            host.rest(1_000_000);
            while host.take(0).is_some() || host.take(1).is_some() {}
        }
        for _ in 0..300 {
            host.write(random.below(0x2000) as u32 & !3, random.bits() as u32);
            host.read(random.below(0x2000) as u32 & !3);
            host.rest(100_000);
        }
        let now = host.machine.now();
        host.machine.with_model(|model| model.reset(now));
        host.enable();
        host.create_pair();
    }
}

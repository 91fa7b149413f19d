//! The NVMe model: memory of the controller, copy, reservations, zones.

use crate::nvme_host::{BASE, DATA, ENTRIES, Host, data_at};
use flysch_models::nvme::{CMB_OFFSET, Config, NamespaceConfig, ZoneConfig};
use flysch_wire::nvme::command::queue_and_size;
use flysch_wire::nvme::command::{CopyFlags, CopySource, CreateCqFlags, CreateSqFlags};
use flysch_wire::nvme::registers::{CMB_ADDRESS_INVALID, CMBLOC, CMBMSC, CMBSTS, CMBSZ};
use flysch_wire::nvme::registers::{CmbControl, CmbLoc, CmbSize, cq_head, sq_tail};
use flysch_wire::nvme::reservation::{IGNORE_KEY, ReservationType, acquire, register, release};
use flysch_wire::nvme::reservation::{Registrant, ReservationStatus};
use flysch_wire::nvme::zone::{IdentifyZonedNamespace, PARTIAL_REPORT, REPORT_HEADER, SELECT_ALL};
use flysch_wire::nvme::zone::{ZoneAction, ZoneDescriptor, ZoneState};
use flysch_wire::nvme::{AdminOpcode, Cns, Cqe, FeatureId, NvmOpcode, Sqe, Status};

const PAGE: usize = 4096;

fn small() -> Config {
    Config { namespaces: vec![NamespaceConfig::memory(4 << 20)], vectors: 1, ..Config::default() }
}

fn filled(seed: u8) -> Vec<u8> {
    (0..PAGE).map(|n| (n % 251) as u8 ^ seed).collect()
}

#[test]
fn a_queue_and_data_lie_in_the_memory_of_the_controller() {
    let mut host = Host::up(Config { controller_memory: 64 << 10, ..small() });
    assert_eq!((host.read(CMBLOC), host.read(CMBSZ)), (0, 0), "nobody has asked");
    let control = CmbControl::new().with_cre(true);
    host.write(CMBMSC, control.into_bits() as u32);
    let (place, size) =
        (CmbLoc::from_bits(host.read(CMBLOC)), CmbSize::from_bits(host.read(CMBSZ)));
    assert_eq!((place.bir(), place.ofst() * 4096), (0, CMB_OFFSET));
    assert_eq!((size.sqs(), u64::from(size.sz()) * size.unit_bytes().unwrap()), (true, 64 << 10));
    let at = |host: &Host, address: u64| {
        let control = control.with_cmse(true).with_cba(address >> 12).into_bits();
        host.write(CMBMSC + 4, (control >> 32) as u32);
        host.write(CMBMSC, control as u32);
    };
    // The host's own memory is not a permitted place for it.
    at(&host, BASE);
    assert_eq!(host.read(CMBSTS), CMB_ADDRESS_INVALID);
    let place = 0x40_0000_0000;
    at(&host, place);
    assert_eq!(host.read(CMBSTS), 0);
    // A second pair, whose entries the host writes like registers.
    let completion = 8 << 20;
    let size = queue_and_size(2, ENTRIES);
    let cq = CreateCqFlags::new().with_pc(true).into_bits();
    let sq = CreateSqFlags::new().with_pc(true).with_cqid(2).into_bits();
    for (opcode, flags, address) in
        [(AdminOpcode::CreateCq, cq, BASE + completion as u64), (AdminOpcode::CreateSq, sq, place)]
    {
        let cdw10 = [size, flags, 0, 0, 0, 0];
        assert_eq!(
            host.admin(opcode, Sqe { data: [address, 0], cdw10, ..Sqe::default() }).status,
            0
        );
    }
    // The written data comes from the buffer, too: its third page.
    let content = filled(7);
    let page = CMB_OFFSET + 2 * PAGE as u32;
    for (at, bytes) in (0..).step_by(4).zip(content.chunks_exact(4)) {
        host.write(page + at, u32::from_le_bytes(bytes.try_into().unwrap()));
    }
    assert_eq!(host.read(page), u32::from_le_bytes(content[..4].try_into().unwrap()));
    let (from, to) = ([place + 2 * PAGE as u64, 0], data_at(DATA));
    for (n, (opcode, data)) in (0..).zip([(NvmOpcode::Write, from), (NvmOpcode::Read, to)]) {
        let entry = Host::transfer(opcode, 3, 1, data);
        for (at, word) in (0..).step_by(8).zip(entry.to_words()) {
            let word = u64::from_le(word);
            host.write(CMB_OFFSET + n * 64 + at, word as u32);
            host.write(CMB_OFFSET + n * 64 + at + 4, (word >> 32) as u32);
        }
        host.write(sq_tail(2, 0), n + 1);
        host.rest(10_000_000);
        let entry = completion + n as usize * 16;
        let cqe = Cqe::from_words([host.memory.load64(entry), host.memory.load64(entry + 8)]);
        assert_eq!((cqe.phase, cqe.status, cqe.sq), (true, 0, 2));
        host.write(cq_head(2, 0), n + 1);
    }
    assert!(host.bytes(DATA, PAGE) == content);
    // A controller without such memory has no such registers.
    let bare = Host::up(small());
    bare.write(CMBMSC, u32::MAX);
    assert_eq!([CMBLOC, CMBSZ, CMBMSC, CMBMSC + 4].map(|at| bare.read(at)), [0; 4]);
}

#[test]
fn blocks_are_copied_within_a_namespace() {
    let mut host = Host::up(small());
    for lba in 0..4 {
        host.memory.write(DATA, &filled(lba as u8));
        let write = Host::transfer(NvmOpcode::Write, lba, 1, data_at(DATA));
        assert_eq!(host.command(1, write).status, 0);
    }
    let copy = |host: &mut Host, target: u64, sources: &[(u64, u16)], flags: CopyFlags| {
        for (n, (slba, nlb)) in sources.iter().enumerate() {
            let source = CopySource { slba: *slba, nlb: *nlb };
            host.memory.write(DATA + n * CopySource::LENGTH, &source.to_bytes());
        }
        let flags = flags.with_nr((sources.len() - 1) as u8).into_bits();
        let cdw10 = [target as u32, (target >> 32) as u32, flags, 0, 0, 0];
        let opcode = NvmOpcode::Copy.into_bits();
        let entry = Sqe { opcode, nsid: 1, data: data_at(DATA), cdw10, ..Sqe::default() };
        Status::of_field(host.command(1, entry).status)
    };
    let plain = CopyFlags::new();
    assert_eq!(copy(&mut host, 100, &[(2, 1), (0, 0)], plain.with_fua(true)), Status::Success);
    for (lba, seed) in [(100, 2), (101, 3), (102, 0)] {
        let read = Host::transfer(NvmOpcode::Read, lba, 1, data_at(DATA));
        assert_eq!(host.command(1, read).status, 0);
        assert!(host.bytes(DATA, PAGE) == filled(seed), "{lba}");
    }
    assert_eq!(copy(&mut host, 3, &[(2, 1)], plain), Status::Overlap);
    assert_eq!(copy(&mut host, 0, &[(1023, 1)], plain), Status::LbaRange);
    assert_eq!(copy(&mut host, 1023, &[(0, 1)], plain), Status::LbaRange);
    assert_eq!(copy(&mut host, 300, &[(0, 256)], plain), Status::CommandSize);
    assert_eq!(copy(&mut host, 600, &[(0, 199), (200, 199)], plain), Status::CommandSize);
    assert_eq!(copy(&mut host, 300, &[(0, 0)], plain.with_desfmt(1)), Status::InvalidField);
    let bad = Host::transfer(NvmOpcode::WriteUncorrectable, 2, 1, [0; 2]);
    assert_eq!(host.command(1, bad).status, 0);
    assert_eq!(copy(&mut host, 100, &[(0, 3)], plain), Status::UnrecoveredRead);
}

/// A controller used by one host after another.
struct Shared(Host);

impl Shared {
    /// Another host takes over the controller: it resets it and identifies itself.
    fn becomes(&mut self, id: u64) {
        self.0.enable();
        self.0.create_pair();
        self.0.memory.write(DATA, &id.to_le_bytes());
        assert_eq!(self.0.set_feature(FeatureId::HostId, 0), 0);
    }

    fn run(&mut self, opcode: NvmOpcode, cdw10: u32, keys: [u64; 2]) -> Status {
        self.0.memory.write(DATA, &keys[0].to_le_bytes());
        self.0.memory.write(DATA + 8, &keys[1].to_le_bytes());
        let entry = Sqe {
            opcode: opcode.into_bits(),
            nsid: 1,
            data: data_at(DATA),
            cdw10: [cdw10, 0, 0, 0, 0, 0],
            ..Sqe::default()
        };
        Status::of_field(self.0.command(1, entry).status)
    }

    fn acquires(&mut self, kind: ReservationType, action: u32, keys: [u64; 2]) -> Status {
        let cdw10 = action | u32::from(kind.into_bits()) << 8;
        self.run(NvmOpcode::ReservationAcquire, cdw10, keys)
    }

    /// Whether reads and writes are permitted.
    fn may(&mut self) -> (bool, bool) {
        let mut one = |opcode| {
            let status = self.0.command(1, Host::transfer(opcode, 0, 1, data_at(DATA))).status;
            match Status::of_field(status) {
                Status::Success => true,
                Status::ReservationConflict => false,
                status => panic!("{status}"),
            }
        };
        (one(NvmOpcode::Read), one(NvmOpcode::Write))
    }

    /// The type, and the key and hold of each registrant.
    fn report(&mut self) -> (u8, Vec<(u64, u64, bool)>) {
        let status = self.run(NvmOpcode::ReservationReport, 1023, [0; 2]);
        assert_eq!(status, Status::Success);
        let bytes = self.0.bytes(DATA, PAGE);
        let of = ReservationStatus::parse(&bytes).unwrap();
        let one = |bytes: &[u8]| {
            let of = Registrant::parse(bytes).unwrap();
            (of.hostid, of.rkey, of.rcsts & 1 != 0)
        };
        let registrants = bytes[ReservationStatus::LENGTH..].chunks_exact(Registrant::LENGTH);
        (of.rtype, registrants.take(of.regctl.into()).map(one).collect())
    }
}

#[test]
fn hosts_that_share_a_namespace_reserve_it() {
    const REGISTER: NvmOpcode = NvmOpcode::ReservationRegister;
    const RELEASE: NvmOpcode = NvmOpcode::ReservationRelease;
    let conflict = Status::ReservationConflict;
    let mut shared = Shared(Host::up(small()));
    shared.becomes(0xA);
    let exclusive = ReservationType::WriteExclusive;
    assert_eq!(shared.acquires(exclusive, acquire::ACQUIRE, [1, 0]), conflict, "not registered");
    assert_eq!(shared.run(REGISTER, register::REGISTER, [0, 1]), Status::Success);
    assert_eq!(shared.run(REGISTER, register::REGISTER, [0, 9]), conflict, "it has another key");
    assert_eq!(shared.acquires(exclusive, acquire::ACQUIRE, [9, 0]), conflict, "a wrong key");
    assert_eq!(shared.acquires(ReservationType::Unknown(7), 0, [1, 0]), Status::InvalidField);
    assert_eq!(shared.acquires(exclusive, acquire::ACQUIRE, [1, 0]), Status::Success);
    assert_eq!(shared.may(), (true, true));
    shared.becomes(0xB);
    assert_eq!(shared.may(), (true, false));
    assert_eq!(shared.run(REGISTER, register::REGISTER, [0, 2]), Status::Success);
    assert_eq!(shared.may(), (true, false), "it is registered, and the other one holds it");
    assert_eq!(shared.report(), (1, vec![(0xA, 1, true), (0xB, 2, false)]));
    assert_eq!(shared.acquires(exclusive, acquire::ACQUIRE, [2, 0]), conflict);
    let registrants = ReservationType::ExclusiveAccessRegistrants;
    assert_eq!(shared.acquires(registrants, acquire::PREEMPT, [2, 5]), conflict, "nobody's key");
    assert_eq!(shared.acquires(registrants, acquire::PREEMPT, [2, 1]), Status::Success);
    assert_eq!(shared.report(), (4, vec![(0xB, 2, true)]));
    shared.becomes(0xA);
    assert_eq!(shared.may(), (false, false), "it was thrown out");
    assert_eq!(shared.run(REGISTER, register::REGISTER, [0, 1]), Status::Success);
    assert_eq!(shared.may(), (true, true));
    assert_eq!(shared.run(RELEASE, release::RELEASE | 4 << 8, [1, 0]), Status::Success);
    assert_eq!(shared.report().0, 4, "who does not hold it releases nothing");
    assert_eq!(shared.run(RELEASE, release::CLEAR, [1, 0]), Status::Success);
    assert_eq!(shared.report(), (0, vec![]));
    // All registrants hold it, and it ends with the last one.
    let all = ReservationType::WriteExclusiveAll;
    assert_eq!(shared.run(REGISTER, register::REGISTER, [0, 1]), Status::Success);
    assert_eq!(shared.acquires(all, acquire::ACQUIRE, [1, 0]), Status::Success);
    shared.becomes(0xB);
    assert_eq!(shared.run(REGISTER, register::REGISTER, [0, 2]), Status::Success);
    assert_eq!(shared.report(), (5, vec![(0xA, 1, true), (0xB, 2, true)]));
    assert_eq!(shared.run(RELEASE, release::RELEASE | 1 << 8, [2, 0]), Status::InvalidField);
    let replace = register::REPLACE | IGNORE_KEY;
    assert_eq!(shared.run(REGISTER, replace, [0, 3]), Status::Success);
    assert_eq!(shared.run(REGISTER, register::UNREGISTER, [2, 0]), conflict);
    assert_eq!(shared.run(REGISTER, register::UNREGISTER | 3 << 30, [3, 0]), Status::Success);
    assert_eq!(shared.report(), (5, vec![(0xA, 1, true)]));
    assert_eq!(shared.may(), (true, false));
    // It was declared persistent.
    let cut = |shared: &Shared| {
        shared.0.machine.with_model(|model| {
            model.cut_power().unwrap();
            model.restore_power();
        });
    };
    cut(&shared);
    shared.becomes(0xA);
    assert_eq!(shared.report(), (5, vec![(0xA, 1, true)]));
    assert_eq!(shared.run(REGISTER, register::REPLACE | 2 << 30, [1, 1]), Status::Success);
    cut(&shared);
    shared.becomes(0xA);
    assert_eq!(shared.report(), (0, vec![]));
    // A host without an identifier is a different one after a reset.
    shared.0.enable();
    shared.0.create_pair();
    assert_eq!(shared.run(REGISTER, register::REGISTER, [0, 1]), Status::Success);
    assert_eq!(shared.acquires(exclusive, acquire::ACQUIRE, [1, 0]), Status::Success);
    shared.0.enable();
    shared.0.create_pair();
    assert_eq!(shared.report(), (0, vec![]));
}

/// Four zones of 64 blocks, of which two can be open and three active.
fn zoned() -> Host {
    let zones = ZoneConfig { size: 64 * PAGE as u64, open_max: 2, active_max: 3 };
    let space =
        NamespaceConfig { zones: Some(zones), ..NamespaceConfig::memory(4 * 64 * PAGE as u64) };
    Host::up(Config { namespaces: vec![space], vectors: 1, ..Config::default() })
}

fn status(host: &mut Host, opcode: NvmOpcode, lba: u64, count: u16) -> Status {
    Status::of_field(host.command(1, Host::transfer(opcode, lba, count, data_at(DATA))).status)
}

fn manage(host: &mut Host, action: ZoneAction, lba: u64, more: u32) -> Status {
    let cdw10 = [lba as u32, 0, 0, u32::from(action.into_bits()) | more, 0, 0];
    let opcode = NvmOpcode::ZoneSend.into_bits();
    Status::of_field(host.command(1, Sqe { opcode, nsid: 1, cdw10, ..Sqe::default() }).status)
}

/// The number of zones from `lba` on, and those that fit into `room`: their states and write
/// pointers.
fn report(host: &mut Host, lba: u64, room: usize, cdw13: u32) -> (u64, Vec<(ZoneState, u64)>) {
    let bytes = REPORT_HEADER + room * ZoneDescriptor::LENGTH;
    let cdw10 = [lba as u32, 0, (bytes / 4 - 1) as u32, cdw13, 0, 0];
    let opcode = NvmOpcode::ZoneReceive.into_bits();
    let entry = Sqe { opcode, nsid: 1, cdw10, data: data_at(DATA), ..Sqe::default() };
    assert_eq!(host.command(1, entry).status, 0);
    let data = host.bytes(DATA, bytes);
    let one = |bytes: &[u8]| ZoneDescriptor::parse(bytes).unwrap();
    let zones = data[REPORT_HEADER..].chunks_exact(ZoneDescriptor::LENGTH).map(one);
    let zones = zones.filter(|zone| zone.zt == ZoneDescriptor::SEQUENTIAL);
    let count = u64::from_le_bytes(data[..8].try_into().unwrap());
    (count, zones.map(|zone| (zone.state(), zone.wp)).collect())
}

#[test]
fn zones_are_written_from_begin_to_end() {
    use NvmOpcode::{Read, Write, WriteZeroes, ZoneAppend};
    use ZoneState::{Closed, Empty, ExplicitlyOpened, Full, ImplicitlyOpened};
    let mut host = zoned();
    host.memory.write(DATA, &filled(1));
    assert_eq!(status(&mut host, Write, 1, 1), Status::ZoneInvalidWrite);
    assert_eq!(status(&mut host, Write, 0, 2), Status::Success);
    assert_eq!(status(&mut host, Write, 0, 1), Status::ZoneInvalidWrite, "it went on");
    assert_eq!(status(&mut host, Write, 2, 63), Status::ZoneBoundary);
    assert_eq!(status(&mut host, WriteZeroes, 2, 1), Status::Success);
    assert_eq!(status(&mut host, ZoneAppend, 1, 1), Status::InvalidField, "no zone begins there");
    host.memory.write(DATA, &filled(5));
    let append = Host::transfer(ZoneAppend, 0, 1, data_at(DATA));
    let cqe = host.command(1, append);
    assert_eq!((cqe.status, cqe.result, cqe.dw1), (0, 3, 0), "where it went to");
    host.memory.fill(DATA, PAGE, 0);
    assert_eq!(status(&mut host, Read, 3, 1), Status::Success);
    assert!(host.bytes(DATA, PAGE) == filled(5));
    assert_eq!(status(&mut host, Read, 63, 2), Status::Success, "reads cross zones");
    let all = report(&mut host, 0, 8, 0);
    let (open, empty) = ((ImplicitlyOpened, 4), |n: u64| (Empty, n * 64));
    assert_eq!(all, (4, vec![open, empty(1), empty(2), empty(3)]));
    // Only two may be open: a third write closes the one a write has opened.
    assert_eq!(manage(&mut host, ZoneAction::Open, 64, 0), Status::Success);
    assert_eq!(status(&mut host, Write, 128, 1), Status::Success);
    let states = |host: &mut Host| {
        report(host, 0, 4, 0).1.into_iter().map(|(state, _)| state).collect::<Vec<_>>()
    };
    assert_eq!(states(&mut host), [Closed, ExplicitlyOpened, ImplicitlyOpened, Empty]);
    assert_eq!(status(&mut host, Write, 192, 1), Status::ZoneTooManyActive);
    assert_eq!(manage(&mut host, ZoneAction::Open, 192, 0), Status::ZoneTooManyActive);
    assert_eq!(manage(&mut host, ZoneAction::Open, 128, 0), Status::Success);
    assert_eq!(status(&mut host, Write, 4, 1), Status::ZoneTooManyOpen);
    assert_eq!(manage(&mut host, ZoneAction::Finish, 128, 0), Status::Success);
    assert_eq!(status(&mut host, Write, 129, 1), Status::ZoneFull);
    assert_eq!(manage(&mut host, ZoneAction::Close, 64, 0), Status::Success);
    assert_eq!(states(&mut host), [Closed, Empty, Full, Empty], "nothing was written to it");
    assert_eq!(manage(&mut host, ZoneAction::Close, 128, 0), Status::ZoneTransition);
    assert_eq!(manage(&mut host, ZoneAction::Offline, 0, 0), Status::ZoneTransition);
    assert_eq!(manage(&mut host, ZoneAction::Unknown(0x10), 0, 0), Status::InvalidField);
    // Only full zones, as requested; the number of those that fit.
    assert_eq!(report(&mut host, 0, 4, 5 << 8), (1, vec![(Full, u64::MAX)]));
    assert_eq!(report(&mut host, 64, 1, 0).0, 3);
    assert_eq!(report(&mut host, 64, 1, PARTIAL_REPORT), (1, vec![empty(1)]));
    // A reset empties a zone.
    assert_eq!(manage(&mut host, ZoneAction::Reset, 0, SELECT_ALL), Status::Success);
    assert_eq!(states(&mut host), [Empty; 4]);
    assert_eq!(status(&mut host, Read, 3, 1), Status::Success);
    assert_eq!(host.bytes(DATA, PAGE), vec![0; PAGE]);
    // Open zones are closed after a reset of the controller.
    assert_eq!(status(&mut host, WriteZeroes, 0, 64), Status::Success);
    assert_eq!(status(&mut host, Write, 64, 2), Status::Success);
    host.enable();
    host.create_pair();
    assert_eq!(states(&mut host), [Full, Closed, Empty, Empty]);
}

#[test]
fn a_zoned_namespace_says_what_it_is() {
    let mut host = zoned();
    let identify = |host: &mut Host, cns: Cns, set: u32| {
        let cdw10 = [u32::from(cns.into_bits()), set << 24, 0, 0, 0, 0];
        match host.admin_code(AdminOpcode::Identify, 1, cdw10) {
            0 => Ok(host.bytes(DATA, 4096)),
            code => Err(code),
        }
    };
    let data = identify(&mut host, Cns::CommandSetNamespace, 2).unwrap();
    let data = IdentifyZonedNamespace::parse(&data).unwrap();
    assert_eq!((data.mar, data.mor), (2, 1), "counted from zero");
    assert_eq!((data.zone_blocks(0), data.zone_blocks(1)), (512, 64));
    assert_eq!(identify(&mut host, Cns::CommandSets, 0).unwrap()[0], 5);
    let descriptors = host.identify(Cns::Descriptors, 1).unwrap();
    let set = flysch_wire::nvme::identify::descriptors(&descriptors).find(|of| of.kind == 4);
    assert_eq!(set.map(|of| of.id[0]), Some(2));
    let mut plain = Host::up(small());
    assert_eq!(
        identify(&mut plain, Cns::CommandSetNamespace, 2),
        Err(Status::InvalidField.into_bits())
    );
    assert_eq!(status(&mut plain, NvmOpcode::ZoneAppend, 0, 1), Status::InvalidOpcode);
}

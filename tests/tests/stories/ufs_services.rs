//! The services of a device besides reading and writing: replay protected memory, firmware update,
//! purge, refresh, error history, time, boot units; and their behaviour on power loss.

use flysch_api::command::{Command, Ended, Port as _, Scsi};
use flysch_api::machine::{Clock as _, Machine as _};
use flysch_models::ufs::config::Provisioning;
use flysch_models::ufs::{Config, UnitConfig, firmware_image};
use flysch_tests::ufs::{
    Model, buffer, done, fill, finish, holds, host, machine, ports, read, wait, write,
};
use flysch_ufs::{
    Cause, ConfigurationPlan, FirmwarePart, Host, Operation, Output, Port, Progress, Query,
    QueueMode, RefreshState, RpmbAnswer, RpmbCommand, RpmbError, RpmbKey, RpmbRequest, RpmbUnit,
    UfsError, UfsOptions,
};
use flysch_wire::scsi::error_history::{DIRECTORY_LENGTH_MAX, DirectoryView};
use flysch_wire::scsi::unmap::UnmapRange;
use flysch_wire::scsi::{AdditionalSense, LogicalUnitNumber, SenseKey};
use flysch_wire::ufs::descriptor::BootLunId;
use flysch_wire::ufs::query::{
    AttributeId, DescriptorId, FfuStatus, FlagId, PurgeStatus, RefreshMethod, RefreshStatus,
    RefreshUnit,
};
use flysch_wire::ufs::rpmb::{RpmbStatus, SecureWriteProtectEntry, WriteProtectType};

const KEY: [u8; 32] = [0x5A; 32];

fn key() -> RpmbKey {
    RpmbKey::new(KEY)
}

fn both(config: impl Fn() -> Config) -> impl Iterator<Item = (Model, Host<Model>)> {
    [QueueMode::Sdq, QueueMode::Mcq].into_iter().map(move |queue| {
        let machine = machine(config());
        let host = host(&machine, UfsOptions { queue, ..UfsOptions::default() });
        (machine, host)
    })
}

fn small() -> Config {
    Config { units: vec![Some(UnitConfig::memory(64 << 20))], ..Config::default() }
}

/// Power is lost and returns, and the host comes up again.
fn power_cycle(machine: &Model, host: &mut Host<Model>) {
    machine.with_model(|model| {
        model.cut_power().expect("no file behind it");
        model.restore_power();
    });
    // Everything in progress ends first, recovery included.
    while host.poll(machine.now()) != Progress::Idle {
        machine.wait(host.poll_at());
    }
    host.run(machine, Operation::Reset).expect("up again");
}

struct Rpmb<'a> {
    machine: &'a Model,
    host: &'a mut Host<Model>,
    region: u8,
    nonce: u8,
}

impl Rpmb<'_> {
    fn ask(&mut self, request: RpmbRequest) -> Result<RpmbAnswer, UfsError> {
        let command = RpmbCommand { region: self.region, request };
        self.host.rpmb(self.machine, command)
    }

    fn unit(&mut self) -> RpmbUnit {
        self.host.rpmb_unit(self.machine).expect("there is one")
    }

    fn program(&mut self, key: RpmbKey) -> Result<RpmbAnswer, UfsError> {
        self.ask(RpmbRequest::ProgramKey { key })
    }

    fn nonce(&mut self) -> [u8; 16] {
        self.nonce += 1;
        [self.nonce; 16]
    }

    fn counter(&mut self) -> Result<u32, UfsError> {
        let nonce = self.nonce();
        let answer = self.ask(RpmbRequest::ReadCounter { key: Some(key()), nonce })?;
        assert!(answer.authenticated);
        Ok(answer.counter.expect("a counter"))
    }

    fn write(&mut self, counter: u32, address: u16, data: &[u8]) -> Result<u32, UfsError> {
        let request = RpmbRequest::Write { key: key(), counter, address, data: data.to_vec() };
        Ok(self.ask(request)?.counter.expect("the next counter"))
    }

    fn read(&mut self, address: u16, blocks: u16) -> Result<Vec<u8>, UfsError> {
        let nonce = self.nonce();
        Ok(self.ask(RpmbRequest::Read { key: Some(key()), nonce, address, blocks })?.data)
    }
}

fn refused(status: RpmbStatus) -> UfsError {
    UfsError::Rpmb(RpmbError::Refused(status))
}

/// What both modes have in common.
fn use_rpmb(rpmb: &mut Rpmb<'_>) {
    let unit = rpmb.unit();
    let block = unit.block_length as usize;
    assert_eq!(rpmb.counter(), Err(refused(RpmbStatus::KeyNotProgrammed)));
    assert_eq!(rpmb.read(0, 1), Err(refused(RpmbStatus::KeyNotProgrammed)));
    assert_eq!(rpmb.write(0, 0, &vec![0; block]), Err(refused(RpmbStatus::KeyNotProgrammed)));
    rpmb.program(key()).expect("programmed");
    assert_eq!(rpmb.program(RpmbKey::new([1; 32])), Err(refused(RpmbStatus::GeneralFailure)));
    assert_eq!(rpmb.counter(), Ok(0));

    let most = usize::from(unit.blocks_max);
    let data: Vec<u8> = (0..most * block).map(|n| (n * 7 / 3) as u8).collect();
    assert_eq!(rpmb.write(0, 3, &data), Ok(1));
    assert_eq!(rpmb.read(3, most as u16), Ok(data.clone()));
    assert_eq!(rpmb.read(4, 1), Ok(data[block..2 * block].to_vec()));
    assert_eq!(rpmb.counter(), Ok(1));

    assert_eq!(rpmb.write(0, 3, &data), Err(refused(RpmbStatus::CounterFailure)), "a replay");
    let last = (unit.regions[usize::from(rpmb.region)] / u64::from(unit.block_length)) as u16;
    let beyond = rpmb.write(1, last, &data[..block]);
    assert_eq!(beyond, Err(refused(RpmbStatus::AddressFailure)));
    assert_eq!(rpmb.read(last, 1), Err(refused(RpmbStatus::AddressFailure)));
    let wrong = RpmbKey::new([1; 32]);
    let forged =
        RpmbRequest::Write { key: wrong.clone(), counter: 1, address: 3, data: vec![0; block] };
    assert_eq!(rpmb.ask(forged), Err(refused(RpmbStatus::AuthenticationFailure)));
    let nonce = rpmb.nonce();
    let mistrusted = rpmb.ask(RpmbRequest::Read { key: Some(wrong), nonce, address: 3, blocks: 1 });
    assert_eq!(mistrusted, Err(UfsError::Rpmb(RpmbError::Mac)));
    let unproved = rpmb.ask(RpmbRequest::Read { key: None, nonce, address: 3, blocks: 1 });
    let unproved = unproved.expect("passed on");
    assert!(!unproved.authenticated && unproved.data == data[..block]);
    assert_eq!(rpmb.read(3, most as u16), Ok(data), "nothing of it was done");
    assert_eq!(rpmb.read(0, unit.blocks_max + 1), Err(UfsError::Rpmb(RpmbError::Length)));
}

#[test]
fn rpmb_is_used_in_frames() {
    for (machine, mut host) in both(small) {
        let mut rpmb = Rpmb { machine: &machine, host: &mut host, region: 0, nonce: 0 };
        assert!(!rpmb.unit().advanced);
        assert_eq!(rpmb.unit().blocks_max, 64);
        use_rpmb(&mut rpmb);
        rpmb.region = 1;
        assert_eq!(rpmb.counter(), Err(UfsError::Rpmb(RpmbError::NoRegion(1))));
    }
}

#[test]
fn advanced_rpmb_travels_in_extra_header_segments() {
    for (machine, mut host) in both(|| Config { advanced_rpmb: true, ..small() }) {
        let mut rpmb = Rpmb { machine: &machine, host: &mut host, region: 0, nonce: 0 };
        assert!(rpmb.unit().advanced);
        assert_eq!(rpmb.unit().block_length, 4096);
        use_rpmb(&mut rpmb);
    }
}

#[test]
fn advanced_rpmb_needs_a_controller_that_sends_segments() {
    use flysch_wire::ufs::registers::Ver;
    let host_version = Ver::from_bits(0x310);
    let machine = machine(Config { advanced_rpmb: true, host_version, ..small() });
    let options = UfsOptions { queue: QueueMode::Sdq, ..UfsOptions::default() };
    let mut host = host(&machine, options);
    let asked = host.run(&machine, Operation::RpmbUnit);
    assert!(matches!(asked, Err(UfsError::Unsupported(_))), "{asked:?}");
}

#[test]
fn regions_have_their_own_key_and_counter() {
    let (machine, mut host) = both(small).next().expect("one");
    let present = host.read_configuration(&machine).expect("the configuration");
    let mut wanted = present.clone();
    wanted.header.b_rpmb_region_enable = 1 << 1 | 1 << 3;
    wanted.header.b_rpmb_region1_size = 2;
    wanted.header.b_rpmb_region3_size = 1;
    let plan = ConfigurationPlan::new(host.device(), &present, &wanted).expect("a plan");
    let token = plan.token();
    host.configure(&machine, plan, token).expect("written");
    power_cycle(&machine, &mut host);
    let mut rpmb = Rpmb { machine: &machine, host: &mut host, region: 0, nonce: 0 };
    assert_eq!(rpmb.unit().regions.map(|bytes| bytes >> 17), [29, 2, 0, 1]);
    rpmb.program(RpmbKey::new([1; 32])).expect("region 0");
    for region in [1, 3] {
        rpmb.region = region;
        assert_eq!(rpmb.counter(), Err(refused(RpmbStatus::KeyNotProgrammed)), "{region}");
        rpmb.program(key()).expect("its own key");
        assert_eq!(rpmb.write(0, 0, &[region; 256]), Ok(1));
    }
    for region in [1, 3] {
        rpmb.region = region;
        assert_eq!(rpmb.read(0, 1), Ok(vec![region; 256]));
    }
    rpmb.region = 0;
    assert_eq!(rpmb.counter(), Err(UfsError::Rpmb(RpmbError::Mac)), "it has another key");
}

#[test]
fn power_leaves_data_and_counter_old_or_new() {
    let config = || Config { rpmb_key: Some(KEY), ..small() };
    let (machine, mut host) = both(config).next().expect("one");
    let mut rpmb = Rpmb { machine: &machine, host: &mut host, region: 0, nonce: 0 };
    let mut seen = [0; 2];
    let (mut counter, mut value) = (0, 0);
    assert_eq!(rpmb.write(0, 0, &[0; 512]), Ok(1));
    counter += 1;
    for round in 1..40_u8 {
        // A write is polled until power is lost, a little later each time.
        let request =
            RpmbRequest::Write { key: key(), counter, address: 0, data: vec![round; 512] };
        let command = RpmbCommand { region: 0, request };
        rpmb.host.begin(Operation::Rpmb(command)).expect("begun");
        let end = machine.now().after_nanos(u64::from(round) * 20_000);
        loop {
            let now = machine.now();
            let done = rpmb.host.poll(now);
            if now >= end || matches!(done, Progress::Done(_)) {
                break;
            }
            machine.wait(Some(rpmb.host.poll_at().unwrap_or(end).min(end)));
        }
        power_cycle(&machine, rpmb.host);
        let now = rpmb.counter().expect("a counter");
        let data = rpmb.read(0, 2).expect("data");
        let is_new = now == counter + 1;
        assert!(is_new || now == counter, "{now} after {counter}");
        value = if is_new { round } else { value };
        assert_eq!(data, [value; 512], "round {round}: the counter says {now}");
        seen[usize::from(is_new)] += 1;
        counter = now;
    }
    assert!(seen[0] > 3 && seen[1] > 3, "{seen:?} old and new");
}

#[test]
fn secure_write_protection_closes_what_the_key_says() {
    let config = || Config { rpmb_key: Some(KEY), ..small() };
    for (machine, mut host) in both(config) {
        let mut rpmb = Rpmb { machine: &machine, host: &mut host, region: 0, nonce: 0 };
        let area = SecureWriteProtectEntry {
            protect_type: WriteProtectType::NonVolatile,
            protected: true,
            lba: 100,
            blocks: 8,
        };
        let power =
            SecureWriteProtectEntry { protect_type: WriteProtectType::Power, lba: 200, ..area };
        let protect = |counter, key, lun, areas: &[SecureWriteProtectEntry]| RpmbRequest::Protect {
            key,
            counter,
            lun,
            areas: areas.to_vec(),
        };
        let forged = rpmb.ask(protect(0, RpmbKey::new([1; 32]), 0, &[area]));
        assert_eq!(forged, Err(refused(RpmbStatus::AuthenticationFailure)));
        let nowhere = rpmb.ask(protect(0, key(), 7, &[area]));
        assert_eq!(nowhere, Err(refused(RpmbStatus::InvalidSecureWriteProtectParameter)));
        let done = rpmb.ask(protect(0, key(), 0, &[area, power])).expect("protected");
        assert_eq!(done.counter, Some(1));
        let ask = RpmbRequest::ReadProtection { key: Some(key()), nonce: [8; 16], lun: 0 };
        assert_eq!(rpmb.ask(ask.clone()).expect("told").areas, [area, power]);

        power_cycle(&machine, rpmb.host);
        let open = SecureWriteProtectEntry { protected: false, ..power };
        assert_eq!(rpmb.ask(ask).expect("told").areas, [area, open]);
        let mut ports = host.into_ports();
        let port = &mut ports[0];
        let data = buffer(&machine, 0, 4096);
        finish(port, &machine, read(0, data));
        for (block, ended) in [
            (99, Ended::Good),
            (100, Ended::Answered),
            (107, Ended::Answered),
            (108, Ended::Good),
            (200, Ended::Good),
        ] {
            let outcome = finish(port, &machine, write(block, data));
            assert_eq!(outcome.ended, ended, "block {block}");
        }
    }
}

fn revision(machine: &Model, host: &mut Host<Model>) -> String {
    let index = host.device().descriptor.i_product_revision_level;
    host.read_string(machine, index).expect("a revision")
}

fn status(machine: &Model, host: &mut Host<Model>) -> FfuStatus {
    match host.run(machine, Operation::FirmwareStatus).expect("a status") {
        Output::Firmware(status) => status,
        other => panic!("{other:?}"),
    }
}

fn download(machine: &Model, host: &mut Host<Model>, image: &[u8]) -> Result<(), UfsError> {
    for part in FirmwarePart::all(image)? {
        host.run(machine, Operation::WriteFirmware(part))?;
    }
    Ok(())
}

#[test]
fn firmware_runs_after_a_reset() {
    let payload: Vec<u8> = (0..100_000).map(|n: u32| (n * 31) as u8).collect();
    let image = firmware_image(*b"0002", &payload);
    for (machine, mut host) in both(small) {
        assert_eq!(revision(&machine, &mut host), "0001");
        assert_eq!(status(&machine, &mut host), FfuStatus::NoInformation);
        download(&machine, &mut host, &image).expect("downloaded");
        assert_eq!(status(&machine, &mut host), FfuStatus::Success);
        assert_eq!(revision(&machine, &mut host), "0001", "not yet");
        host.run(&machine, Operation::Reset).expect("up again");
        assert_eq!(revision(&machine, &mut host), "0002");
        assert_eq!(status(&machine, &mut host), FfuStatus::Success);
    }
}

#[test]
fn firmware_that_is_not_right_never_runs() {
    let image = firmware_image(*b"0002", &vec![7; 100_000]);
    let mut flipped = image.clone();
    flipped[50_000] ^= 1;
    let mut foreign = image.clone();
    foreign[16..24].copy_from_slice(b"ANOTHER ");
    for (what, bytes, before, after) in [
        ("truncated", &image[..90_000], FfuStatus::NoInformation, FfuStatus::Corrupted),
        ("flipped", &flipped[..], FfuStatus::Corrupted, FfuStatus::Corrupted),
        ("foreign", &foreign[..], FfuStatus::VersionMismatch, FfuStatus::VersionMismatch),
        ("no firmware", &[0; 8192][..], FfuStatus::Corrupted, FfuStatus::Corrupted),
    ] {
        let (machine, mut host) = both(small).next().expect("one");
        download(&machine, &mut host, bytes).expect(what);
        assert_eq!(status(&machine, &mut host), before, "{what}");
        host.run(&machine, Operation::Reset).expect("up again");
        assert_eq!(status(&machine, &mut host), after, "{what}");
        assert_eq!(revision(&machine, &mut host), "0001", "{what}");
        let refused = host.update_firmware(&machine, bytes);
        assert_eq!(refused, Err(UfsError::Firmware(after)), "{what}");
        host.update_firmware(&machine, &image).expect("the right one");
        assert_eq!(revision(&machine, &mut host), "0002", "after {what}");
    }
}

#[test]
fn firmware_survives_power_as_the_old_or_the_new() {
    let image = firmware_image(*b"0002", &vec![7; 100_000]);
    let parts: Vec<_> = FirmwarePart::all(&image).expect("parts").collect();
    for cut in 0..=parts.len() {
        let (machine, mut host) = both(small).next().expect("one");
        for part in &parts[..cut] {
            host.run(&machine, Operation::WriteFirmware(part.clone())).expect("a part");
        }
        power_cycle(&machine, &mut host);
        let whole = if cut == parts.len() { "0002" } else { "0001" };
        assert_eq!(revision(&machine, &mut host), whole, "after {cut} parts");
    }
}

#[test]
fn parts_of_firmware_come_in_order_or_not_at_all() {
    let (machine, mut host) = both(small).next().expect("one");
    let part = |offset, len| Operation::WriteFirmware(FirmwarePart { offset, data: vec![0; len] });
    host.run(&machine, part(0, 4096)).expect("the first");
    let gap = host.run(&machine, part(12_288, 4096));
    let sense = Cause::Sense(SenseKey::IllegalRequest, AdditionalSense::CommandSequenceError);
    assert_eq!(gap, Err(UfsError::Failed(sense)));
    for (offset, len) in [(1, 4096), (0, 0), (0, 32_769), ((1 << 24) - 4096, 8192)] {
        let refused = host.run(&machine, part(offset, len));
        assert!(matches!(refused, Err(UfsError::State(_))), "{offset} {len}: {refused:?}");
    }
    let disable = Query::set_flag(FlagId::PermanentlyDisableFwUpdate).irreversible();
    host.query(&machine, disable).expect("disabled");
    let refused = host.run(&machine, part(0, 4096));
    assert!(matches!(refused, Err(UfsError::State(_))), "{refused:?}");
}

#[test]
fn a_device_without_a_service_is_not_asked_for_it() {
    let (machine, mut host) = both(|| Config { services: false, ..small() }).next().expect("one");
    let part = FirmwarePart { offset: 0, data: vec![0; 4096] };
    for operation in [
        Operation::WriteFirmware(part),
        Operation::FirmwareStatus,
        Operation::StartRefresh(RefreshMethod::Forced, RefreshUnit::Full),
        Operation::StopRefresh,
        Operation::RefreshState(0),
    ] {
        let refused = host.run(&machine, operation);
        assert!(matches!(refused, Err(UfsError::Unsupported(_))), "{refused:?}");
    }
    let old = machine_of(0x310);
    let mut host = host_of(&old);
    let refused = host.run(&old, Operation::SetTimestamp(1));
    assert!(matches!(refused, Err(UfsError::TooNew { .. })), "{refused:?}");
}

fn machine_of(specification: u16) -> Model {
    machine(Config { specification, ..small() })
}

fn host_of(machine: &Model) -> Host<Model> {
    host(machine, UfsOptions::default())
}

/// A device with a unit whose unmapped blocks continue to read the old data: 16 MiB were written
/// and unmapped.
fn stale(queue: QueueMode) -> (Model, Vec<Port<Model>>) {
    let unit = UnitConfig { provisioning: Provisioning::Discard, ..UnitConfig::memory(64 << 20) };
    let machine = machine(Config { units: vec![Some(unit)], ..Config::default() });
    let mut ports = ports(&machine, UfsOptions { queue, ..UfsOptions::default() });
    let data = buffer(&machine, 0, 128 << 10);
    fill(&machine, data, 1);
    for n in 0..128 {
        done(&mut ports[0], &machine, write(n * 32, data));
    }
    done(&mut ports[0], &machine, unmap(&machine, 4096));
    (machine, ports)
}

/// UNMAP of the first blocks.
fn unmap(machine: &Model, blocks: u32) -> Command<Scsi> {
    let list = buffer(machine, 2, 24);
    let mut bytes = [0; 24];
    flysch_wire::scsi::unmap::emit(&[UnmapRange { lba: 0, blocks }], &mut bytes).expect("room");
    let memory = machine.memory();
    memory.write(memory.offset_of(list.address, 24).expect("a buffer"), &bytes);
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0x42, 24);
    Command { payload: cdb.into(), ..write(0, list) }
}

/// Number of blocks that still read as written.
fn readable(machine: &Model, port: &mut Port<Model>) -> usize {
    let data = buffer(machine, 1, 128 << 10);
    let old = |n: &u32| {
        fill(machine, data, 9);
        done(port, machine, read(n * 32, data));
        holds(machine, data, 1)
    };
    (0..128).filter(old).count()
}

fn operate(
    machine: &Model,
    port: &mut Port<Model>,
    operation: Operation,
) -> Result<Output, UfsError> {
    port.host_mut().expect("the host").run(machine, operation)
}

fn purge_status(machine: &Model, port: &mut Port<Model>, wait_ms: u32) -> PurgeStatus {
    match operate(machine, port, Operation::PurgeStatus(wait_ms)).expect("a status") {
        Output::Purge(status) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_purge_removes_what_was_unmapped() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq] {
        let (machine, mut ports) = stale(queue);
        let port = &mut ports[0];
        assert_eq!(readable(&machine, port), 128, "unmapped is not removed");
        assert_eq!(purge_status(&machine, port, 0), PurgeStatus::Idle);
        operate(&machine, port, Operation::Purge(true)).expect("begun");
        assert_eq!(purge_status(&machine, port, 0), PurgeStatus::InProgress);
        let outcome = finish(port, &machine, read(0, buffer(&machine, 0, 4096)));
        assert_eq!(outcome.ended, Ended::Answered, "not ready");
        assert_eq!(port.failure().status.sense.as_slice()[12..14], [0x04, 0x07]);
        assert_eq!(purge_status(&machine, port, 2000), PurgeStatus::Completed);
        assert_eq!(purge_status(&machine, port, 0), PurgeStatus::Idle, "an end is told once");
        assert_eq!(readable(&machine, port), 0);
        assert_eq!(machine.with_model(|model| model.stale_bytes()), 0);
    }
}

#[test]
fn a_purge_that_ends_early_leaves_the_rest() {
    for by_power in [false, true] {
        let (machine, mut ports) = stale(QueueMode::Sdq);
        let port = &mut ports[0];
        operate(&machine, port, Operation::Purge(true)).expect("begun");
        assert_eq!(purge_status(&machine, port, 50), PurgeStatus::InProgress);
        let expected = if by_power {
            power_cycle(&machine, port.host_mut().expect("the host"));
            PurgeStatus::Idle
        } else {
            operate(&machine, port, Operation::Purge(false)).expect("stopped");
            PurgeStatus::StoppedPrematurely
        };
        assert_eq!(purge_status(&machine, port, 0), expected, "by power: {by_power}");
        let left = readable(&machine, port);
        assert!((10..128).contains(&left), "{left} of 128 ranges are left");
        let again = port.host_mut().expect("the host").purge(&machine);
        assert_eq!(again, Ok(PurgeStatus::Completed));
        assert_eq!(readable(&machine, port), 0);
    }
}

#[test]
fn a_purge_needs_empty_queues() {
    let (machine, mut ports) = stale(QueueMode::Mcq);
    let port = &mut ports[0];
    // The driver does not even ask the device while outcomes are outstanding.
    for n in 0..8 {
        port.start(read(n, buffer(&machine, 0, 4096)), machine.now()).expect("room");
    }
    port.ring(machine.now());
    let refused = operate(&machine, port, Operation::Purge(true));
    assert_eq!(refused, Err(UfsError::Failed(Cause::InFlight)));
    for _ in 0..8 {
        assert_eq!(wait(port, &machine).ended, Ended::Good);
    }
    operate(&machine, port, Operation::Purge(true)).expect("begun");
    assert_eq!(purge_status(&machine, port, 2000), PurgeStatus::Completed);
    // If asked without the driver's knowledge while it has a command, the device refuses.
    for n in 0..8 {
        port.start(read(n * 32, buffer(&machine, 0, 128 << 10)), machine.now()).expect("room");
    }
    port.ring(machine.now());
    let set = Operation::Query(Query::set_flag(FlagId::PurgeEnable));
    port.host_mut().expect("the host").begin(set).expect("begun");
    for _ in 0..8 {
        assert_eq!(wait(port, &machine).ended, Ended::Good);
    }
    assert_eq!(purge_status(&machine, port, 0), PurgeStatus::QueueNotEmpty);
}

#[test]
fn a_refresh_goes_step_by_step_or_at_once() {
    for (machine, mut host) in both(small) {
        let mut state = |wait| match host.run(&machine, Operation::RefreshState(wait)) {
            Ok(Output::Refresh(state)) => state,
            other => panic!("{other:?}"),
        };
        let first = state(0);
        assert_eq!((first.status, first.progress, first.total_count), (RefreshStatus::Idle, 0, 0));
        let start = |unit| Operation::StartRefresh(RefreshMethod::Forced, unit);
        host.run(&machine, start(RefreshUnit::Minimum)).expect("begun");
        let mut state = |wait| match host.run(&machine, Operation::RefreshState(wait)) {
            Ok(Output::Refresh(state)) => state,
            other => panic!("{other:?}"),
        };
        let step: RefreshState = state(2000);
        assert_eq!((step.status, step.progress), (RefreshStatus::Completed, 1000));
        assert_eq!(step.method, RefreshMethod::Forced);
        host.run(&machine, start(RefreshUnit::Full)).expect("begun");
        host.run(&machine, Operation::RefreshState(500)).expect("under way");
        host.run(&machine, Operation::StopRefresh).expect("stopped");
        let mut state = |wait| match host.run(&machine, Operation::RefreshState(wait)) {
            Ok(Output::Refresh(state)) => state,
            other => panic!("{other:?}"),
        };
        let stopped = state(0);
        assert_eq!(stopped.status, RefreshStatus::StoppedPrematurely);
        assert!((10_000..90_000).contains(&stopped.progress), "{stopped:?}");
        host.run(&machine, start(RefreshUnit::Full)).expect("begun");
        host.run(&machine, Operation::RefreshState(2000)).expect("done");
        let health = host.read_descriptor(&machine, DescriptorId::Health, 0).expect("health");
        assert_eq!(health.as_slice()[0x25..0x2D], [0, 0, 0, 1, 0, 0, 0, 0], "one round");
    }
}

fn history(machine: &Model, host: &mut Host<Model>, buffer: u8, length: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    // In parts of odd length.
    while (bytes.len() as u32) < length {
        let offset = bytes.len() as u32;
        let length = (length - offset).min(250);
        match host.run(machine, Operation::ReadErrorHistory { buffer, offset, length }) {
            Ok(Output::Bytes(part)) => bytes.extend_from_slice(&part),
            other => panic!("{other:?}"),
        }
    }
    bytes
}

#[test]
fn error_history_tells_what_the_device_went_through() {
    const TIME: u64 = 1_700_000_000_000_000_000;
    for (machine, mut host) in both(small) {
        host.run(&machine, Operation::SetTimestamp(TIME)).expect("told");
        power_cycle(&machine, &mut host);
        let length = DIRECTORY_LENGTH_MAX as u32;
        let operation = Operation::ReadErrorHistory { buffer: 0, offset: 0, length };
        let Ok(Output::Bytes(bytes)) = host.run(&machine, operation) else { panic!("directory") };
        let directory = DirectoryView::new(&bytes).expect("a directory");
        assert_eq!(&directory.vendor(), b"FLYSCH  ");
        let buffers: Vec<_> = directory.buffers().collect();
        assert_eq!(buffers.len(), 1);
        let bytes = history(&machine, &mut host, buffers[0].id, buffers[0].length);
        assert_eq!(&bytes[..8], b"FLYSCHEV");
        let events: Vec<_> = bytes[16..].chunks(16).take_while(|event| event[9] != 0).collect();
        let turns: Vec<u8> = events.iter().map(|event| event[9]).collect();
        // Power came on, and after it was lost and returned the link was started again.
        let lost = turns.iter().position(|&turn| turn == 2).expect("power was lost");
        assert_eq!((turns[0], turns[lost + 1]), (1, 1));
        let at = u64::from_be_bytes(events[lost][..8].try_into().expect("eight bytes"));
        assert!((TIME..TIME + 1_000_000_000).contains(&at), "the host's time: {at}");
        let none = Operation::ReadErrorHistory { buffer: 0x20, offset: 0, length: 64 };
        assert!(matches!(host.run(&machine, none), Err(UfsError::Failed(Cause::Sense(..)))));
    }
}

#[test]
fn the_boot_unit_is_chosen_and_read() {
    let config = || {
        let unit = |boot_id| Some(UnitConfig { boot_id, ..UnitConfig::memory(16 << 20) });
        Config { units: vec![unit(0), unit(1), unit(2)], ..Config::default() }
    };
    for (machine, host) in both(config) {
        let mut ports = host.into_ports();
        let port = &mut ports[0];
        for unit in 1..=2_u64 {
            let data = buffer(&machine, unit as usize, 8192);
            fill(&machine, data, unit);
            let unit = LogicalUnitNumber::from_ufs(unit as u8).to_bits();
            done(port, &machine, Command { unit, ..write(10, data) });
        }
        let ask = |blocks| Operation::ReadBoot { lba: 10, blocks };
        assert!(matches!(operate(&machine, port, ask(2)), Err(UfsError::State(_))), "none chosen");
        for (boot, n) in [(BootLunId::BootLuA, 1), (BootLunId::BootLuB, 2)] {
            operate(&machine, port, Operation::SetBootLun(boot)).expect("chosen");
            power_cycle(&machine, port.host_mut().expect("the host"));
            let Ok(Output::Bytes(bytes)) = operate(&machine, port, ask(2)) else {
                panic!("{boot}")
            };
            let place = buffer(&machine, 0, 8192);
            let memory = machine.memory();
            memory.write(memory.offset_of(place.address, 8192).expect("a buffer"), &bytes);
            assert!(holds(&machine, place, n), "{boot}");
        }
        assert!(matches!(operate(&machine, port, ask(9)), Err(UfsError::State(_))), "too long");
        let off = Operation::SetBootLun(BootLunId::NotBootable);
        operate(&machine, port, off).expect("chosen");
    }
    let (machine, mut host) = both(small).next().expect("one");
    let refused = host.run(&machine, Operation::SetBootLun(BootLunId::BootLuA));
    assert!(matches!(refused, Err(UfsError::State(_))), "no boot unit: {refused:?}");
    let attribute = host.read_attribute(&machine, AttributeId::BootLunEn);
    assert_eq!(attribute, Ok(0));
}

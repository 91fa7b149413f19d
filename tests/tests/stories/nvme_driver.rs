//! The NVMe driver on the NVMe model, on a machine whose memory is not coherent: the memory it
//! lends, the deviations it knows, recovery with commands in flight.

use flysch_api::command::{
    Command, Direction, Ended, NotStarted, Nvme as Language, Ordering, Port as _, Token,
};
use flysch_api::machine::{Clock as _, DmaRegion, Identity, Machine as _, Registers as _};
use flysch_cam::Family as _;
use flysch_models::faults::{Kind, Plan, Trigger};
use flysch_models::machine::{Inline, Mode};
use flysch_models::nvme::{Config, NamespaceConfig, Nvme};
use flysch_nvme::{
    AdminCommand, AdminData, Cause, Host, NvmeError, NvmeOptions, Operation, Port, State,
};
use flysch_tests::apart::Apart;
use flysch_wire::nvme::FeatureId;
use flysch_wire::nvme::feature::{ApstEntry, Select};
use flysch_wire::nvme::registers::{CMBMSC, CmbControl};
use flysch_wire::nvme::{AdminOpcode, Status};

type Model = Apart<Inline<Nvme>>;

/// Unit of synchronisation, bytes.
const LINE: u32 = 64;
const MIB: u32 = 1 << 20;
/// Data memory follows the driver's.
const DRIVER: usize = 20 << 20;
const ADDRESS: u64 = 0x1_0000_0000;

fn machine_of(config: Config, identity: Identity) -> Model {
    let memory = DmaRegion::zeroed(DRIVER + (4 << 20), ADDRESS);
    let model = Nvme::new(config, memory.clone()).expect("a device");
    Apart::new(Inline::new(model, memory, identity, Mode::Virtual), LINE)
}

fn machine() -> Model {
    machine_of(Config::default(), Identity::default())
}

fn try_host(machine: &Model, options: NvmeOptions) -> Result<Host<Model>, NvmeError> {
    let memory = machine.memory().carve(0, DRIVER);
    let mut host = Host::new(machine.clone(), memory, options)?;
    host.bring_up(machine)?;
    Ok(host)
}

fn host(machine: &Model, options: NvmeOptions) -> Host<Model> {
    try_host(machine, options).expect("it comes up")
}

fn transfer(machine: &Model, write: bool, block: u64, token: u32) -> Command<Language> {
    Command {
        unit: 1,
        payload: Language::transfer(write, block, 1, false),
        direction: if write { Direction::ToDevice } else { Direction::FromDevice },
        data: machine.memory().slice(DRIVER + token as usize * 4096, 4096).into(),
        crypto: None,
        ordering: Ordering::Simple,
        deadline: machine.now().after_nanos(2_000_000_000),
        token: Token::new(token),
    }
}

/// Carries out commands together; returns how each ended, by token.
fn carry_out(
    machine: &Model,
    port: &mut Port<Model>,
    commands: Vec<Command<Language>>,
) -> Vec<Ended> {
    let count = commands.len();
    // During a recovery there is no room.
    while port.host_mut().expect("the host").state() == State::Recovering {
        assert_eq!(port.poll(machine.now()), None);
        machine.wait(port.poll_at());
    }
    for command in commands {
        port.start(command, machine.now()).expect("room");
    }
    port.ring(machine.now());
    let mut ended = vec![None; count];
    while ended.contains(&None) {
        match port.poll(machine.now()) {
            Some(outcome) => {
                let place = &mut ended[outcome.token.number() as usize];
                assert_eq!(place.replace(outcome.ended), None, "{outcome:?} ended twice");
            }
            None => {
                machine.wait(port.poll_at());
            }
        }
    }
    ended.into_iter().flatten().collect()
}

/// Virtual time of eight random reads, one after the other.
fn time_of_reads(machine: &Model, host: Host<Model>) -> u64 {
    let mut port = host.into_ports().remove(0);
    let begun = machine.now();
    for n in 0..8 {
        let read = transfer(machine, false, n * 7919 % 1_000_000, 0);
        assert_eq!(carry_out(machine, &mut port, vec![read]), [Ended::Good]);
    }
    machine.now().nanos() - begun.nanos()
}

#[test]
fn a_drive_without_memory_is_lent_some() {
    // The PM991a asks for 64 MiB and can work with 8.
    for (offered, lent) in [(0, 0), (4 * MIB, 0), (8 * MIB, 8 * MIB), (16 * MIB + 5, 16 * MIB)] {
        let machine = machine();
        let mut host =
            host(&machine, NvmeOptions { host_memory: offered, ..NvmeOptions::default() });
        assert_eq!(host.device().host_memory, lent);
        let feature = |host: &mut Host<Model>| {
            let cdw10 = [FeatureId::HostMemory.into_bits().into(), 0, 0, 0, 0, 0];
            let data = AdminData::In(4096);
            let command = AdminCommand::new(AdminOpcode::GetFeatures);
            let reply = host.admin(&machine, AdminCommand { cdw10, data, ..command });
            reply.map(|reply| reply.status.result & 1)
        };
        assert_eq!(feature(&mut host), Ok((lent > 0).into()));
        // A reset takes it back, and bring-up lends it again.
        host.run(&machine, Operation::Reset).expect("a reset");
        assert_eq!(host.device().host_memory, lent);
        assert_eq!(feature(&mut host), Ok((lent > 0).into()));
        host.shut_down(&machine).expect("a shutdown");
        host.bring_up(&machine).expect("up again");
        assert_eq!(host.device().host_memory, lent);
    }
    let reads = |host_memory| {
        let machine = machine();
        let host = host(&machine, NvmeOptions { host_memory, ..NvmeOptions::default() });
        time_of_reads(&machine, host)
    };
    // The mapping is in the host's memory, or in the flash, 45 us away.
    let (without, with) = (reads(0), reads(16 * MIB));
    assert!(without > with + 8 * 40_000, "{without} ns without, {with} ns with");
}

/// The answer is not "no room now", which would be retried forever.
#[test]
fn what_comes_after_a_shutdown_is_told_that_the_controller_is_gone() {
    let machine = machine();
    let mut port = host(&machine, NvmeOptions::default()).into_ports().remove(0);
    port.host_mut().expect("it carries the host").shut_down(&machine).expect("a shutdown");
    let declined = port.start(transfer(&machine, false, 0, 0), machine.now()).expect_err("off");
    assert_eq!(declined.why, NotStarted::Gone);
    port.host_mut().expect("it carries the host").bring_up(&machine).expect("up again");
    let read = transfer(&machine, false, 0, 0);
    assert_eq!(carry_out(&machine, &mut port, vec![read]), [Ended::Good]);
}

#[test]
fn a_drive_with_memory_is_lent_none() {
    let profile = *flysch_models::nvme::profile::Profile::by_name("980pro").expect("a profile");
    let machine = machine_of(Config { profile, ..Config::default() }, Identity::default());
    let host = host(&machine, NvmeOptions { host_memory: 16 * MIB, ..NvmeOptions::default() });
    assert_eq!(host.device().host_memory, 0);
}

#[test]
fn controllers_that_hang_when_they_are_looked_at_too_soon_get_their_rest() {
    let reset = |identity| {
        let machine = machine_of(Config::default(), identity);
        let mut host = host(&machine, NvmeOptions::default());
        let begun = machine.now();
        host.run(&machine, Operation::Reset).expect("a reset");
        machine.now().nanos() - begun.nanos()
    };
    let plain = reset(Identity::default());
    let rested = reset(Identity { vendor: 0x1C58, device: 0x0003 });
    assert!(plain < 1_000_000_000, "{plain} ns");
    assert!(rested >= 2_300_000_000, "{rested} ns");
}

#[test]
fn controllers_without_lists_are_asked_for_each_namespace() {
    let config = || {
        let spaces = || (0..3).map(|_| NamespaceConfig::memory(1 << 20)).collect();
        Config { lists: false, namespaces: spaces(), ..Config::default() }
    };
    let known = Identity { vendor: 0x8086, device: 0x5845 };
    let up = host(&machine_of(config(), known), NvmeOptions::default());
    let ids: Vec<u32> = up.device().namespaces.iter().map(|space| space.id).collect();
    assert_eq!(ids, [1, 2, 3]);
    let unknown = try_host(&machine_of(config(), Identity::default()), NvmeOptions::default());
    let cause = Cause::Status(AdminOpcode::Identify, Status::InvalidField);
    assert_eq!(unknown.err(), Some(NvmeError::Step { step: "namespaces", cause }));
}

/// Doorbells in memory or not, submission queues in the controller's memory or not: data comes
/// back, across the end of the rings and across resets.
#[test]
fn queues_and_doorbells_lie_where_the_controller_has_them() {
    for (shadow_doorbells, controller_memory) in
        [(false, 0), (true, 0), (false, 64 << 10), (true, 64 << 10)]
    {
        let machine =
            machine_of(Config { controller_memory, ..Config::default() }, Identity::default());
        let options =
            NvmeOptions { shadow_doorbells, depth: 24, lanes: 2, ..NvmeOptions::default() };
        let host = host(&machine, options);
        let placed = CmbControl::from_bits(machine.read32(CMBMSC).into());
        assert_eq!(placed.cmse(), controller_memory > 0);
        let mut ports = host.into_ports();
        for reset in [false, true] {
            if reset {
                let host = ports[0].host_mut().expect("the host");
                host.begin(Operation::Reset).expect("up");
            }
            for round in 0..5_u32 {
                let block = |n: u32| u64::from(round * 24 + n);
                for write in [true, false] {
                    for n in 0..24 {
                        let at = DRIVER + n as usize * 4096;
                        let word = if write { block(n) + 1 } else { 0 };
                        machine.memory().store64(at, word);
                    }
                    let command = |n| transfer(&machine, write, block(n), n);
                    let ended = carry_out(&machine, &mut ports[0], (0..24).map(command).collect());
                    assert_eq!(ended, [Ended::Good; 24]);
                }
                for n in 0..24 {
                    assert_eq!(machine.memory().load64(DRIVER + n as usize * 4096), block(n) + 1);
                }
            }
        }
    }
}

#[test]
fn structures_of_features_are_read_and_set() {
    let machine = machine();
    let mut host = host(&machine, NvmeOptions { power_saving: true, ..NvmeOptions::default() });
    assert!(host.device().saves_power);
    let read = |host: &mut Host<Model>, id| {
        host.feature_data(&machine, id, Select::Current).expect("it has it").data
    };
    // From the states with I/O to state 3 after 100 ms, from there to 4 after the same time:
    // neither takes more than 15 ms.
    let table = read(&mut host, FeatureId::Apst);
    let entry = |state: usize| {
        let bytes = table[state * 8..][..8].try_into().expect("eight bytes");
        let entry = ApstEntry::from_bits(u64::from_le_bytes(bytes));
        (entry.itps(), entry.itpt())
    };
    assert_eq!([0, 2, 3, 4].map(entry), [(3, 100), (3, 100), (4, 100), (0, 0)]);
    assert_eq!(host.feature(&machine, FeatureId::Apst, Select::Current), Ok(1));
    let name = 0x0102_0304_0506_0708_u64.to_le_bytes().to_vec();
    host.set_feature_data(&machine, (FeatureId::HostId, 0), name.clone()).expect("a name");
    assert_eq!(read(&mut host, FeatureId::HostId), name);
    assert_eq!(host.feature(&machine, FeatureId::HostId, Select::Current), Ok(0));
    assert_eq!(read(&mut host, FeatureId::Timestamp).len(), 8);
    assert_eq!(read(&mut host, FeatureId::HostBehavior)[0], 1, "ACRE");
    let supported = host.feature(&machine, FeatureId::Apst, Select::Supported);
    assert_eq!(supported.map(|bits| bits & 4), Ok(4), "changeable");
    // A reset forgets it, and bring-up sets it again.
    host.run(&machine, Operation::Reset).expect("a reset");
    assert_eq!(read(&mut host, FeatureId::Apst), table);
    let without = self::host(&machine, NvmeOptions::default());
    assert!(!without.device().saves_power);
}

/// Each fault alone, in the middle of 24 concurrent commands: all end exactly once, those reported
/// as good really are, and afterwards data moves both ways.
#[test]
fn every_fault_ends_every_command_once() {
    let recoverable = Kind::NVME.into_iter().filter(|kind| *kind != Kind::Unplugged);
    for kind in recoverable {
        // Every other one with its queues in the controller's memory and doorbells in the host's.
        let (shadow_doorbells, controller_memory) =
            if (kind as u8).is_multiple_of(2) { (true, 64 << 10) } else { (false, 0) };
        let config = Config { controller_memory, ..Config::default() };
        let machine = machine_of(config, Identity::default());
        let options = NvmeOptions {
            host_memory: 8 * MIB,
            depth: 32,
            shadow_doorbells,
            ..NvmeOptions::default()
        };
        let mut port = host(&machine, options).into_ports().remove(0);
        let nth = if kind == Kind::ReadyStuck { 1 } else { 5 };
        let plan = Plan::none().with(kind, Trigger::Nth(nth));
        machine.with_model(|model| model.arm_faults(plan));
        if kind == Kind::ReadyStuck {
            port.host_mut().expect("the host").begin(Operation::Reset).expect("up");
        }
        let mut all = vec![];
        for round in 0..3_u32 {
            let command =
                |n: u32| transfer(&machine, n.is_multiple_of(2), u64::from(round * 24 + n), n);
            all.extend(carry_out(&machine, &mut port, (0..24).map(command).collect()));
        }
        assert_eq!(all.len(), 72);
        let well = all.iter().filter(|ended| **ended == Ended::Good).count();
        assert!(well >= 24, "{}: {well} ended well", kind.name());
        let last = carry_out(&machine, &mut port, vec![transfer(&machine, false, 0, 0)]);
        assert_eq!(last, [Ended::Good], "{}", kind.name());
    }
}

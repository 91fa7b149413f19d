//! Quirks of controllers and of devices, one by one: the effect of each, on a machine that has the
//! deviation or shows what the driver did, with and without the quirk.

use flysch_api::command::{Command, Ended, Port as _};
use flysch_api::machine::{
    Clock, DmaRegion, DmaSlice, Identity, Instant, Machine, Registers, Wake,
};
use flysch_models::faults::{Kind, Plan, Trigger};
use flysch_models::ufs::Config;
use flysch_models::ufs::profile::UFS40;
use flysch_tests::ufs::{Model, buffer, done, finish, machine, read};
use flysch_ufs::{
    Correction, DevicePower, DeviceQuirk, DeviceQuirks, DmeSetting, EndCommands, ErrorKind, Event,
    Host, LinkLimits, Operation, Phase, Platform, QueueMode, Quirk, Quirks, State, UfsError,
    UfsOptions,
};
use flysch_wire::ufs::descriptor::DeviceDescriptor;
use flysch_wire::ufs::registers::{AHIT, UCMDARG1, UCMDARG2, UCMDARG3, UICCMD, UTRLDBR, mcq};
use flysch_wire::ufs::uic::{UicArgument1, UicAttribute, UicOpcode};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

const MS: u64 = 1_000_000;

/// The deviation of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Odd {
    Nothing,
    /// The device reports this manufacturer and this specification.
    Device {
        manufacturer: u16,
        version: u16,
    },
    /// The first answer shows in the doorbell only after 100 ms.
    LateAnswer,
    /// Every attribute of the link is refused.
    Dme,
    /// The run-time registers of the queues are at 0x2800, and no register says so.
    At2800,
    /// Every command ends with INVALID_COMMAND_TABLE_ATTRIBUTES, once the device is up.
    Overall,
}

/// A request to the link, or a doorbell, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    at: Instant,
    /// `None` for a doorbell.
    uic: Option<(UicOpcode, UicAttribute, u32)>,
}

/// The model with a deviation, and a log of requests.
#[derive(Clone, Debug)]
struct Machinery {
    model: Model,
    odd: Odd,
    log: Rc<RefCell<Vec<Asked>>>,
    refused: Rc<Cell<bool>>,
    hidden: Rc<Cell<Option<(u32, Instant)>>>,
    completions: Rc<Cell<u64>>,
    is_up: Rc<Cell<bool>>,
}

impl Machinery {
    fn new(odd: Odd) -> Self {
        Self::of(Config::default(), odd)
    }

    fn of(config: Config, odd: Odd) -> Self {
        Self {
            model: machine(config),
            odd,
            log: Rc::default(),
            refused: Rc::default(),
            hidden: Rc::default(),
            completions: Rc::default(),
            is_up: Rc::default(),
        }
    }

    fn host(&self, options: UfsOptions) -> Host<Self> {
        self.try_host(options, Board::default()).expect("up")
    }

    fn try_host(&self, options: UfsOptions, board: Board) -> Result<Host<Self>, UfsError> {
        let memory = self.memory().carve(0, 1 << 20);
        let host = Host::new(self.clone(), memory, options)?;
        let mut host = host.with_platform(Box::new(board));
        host.bring_up(self)?;
        self.is_up.set(true);
        Ok(host)
    }

    /// Reads an attribute of the link bypassing the driver.
    fn dme_get(&self, attribute: UicAttribute, selector: u16, peer: bool) -> u32 {
        let argument = UicArgument1::new().with_mib_attribute(attribute);
        let argument = argument.with_gen_selector_index(selector);
        self.model.write32(UCMDARG1, argument.into_bits());
        let opcode = if peer { UicOpcode::DmePeerGet } else { UicOpcode::DmeGet };
        self.model.write32(UICCMD, opcode.into_bits().into());
        self.model.wait(Some(self.now().after_nanos(MS)));
        self.model.read32(UCMDARG3)
    }

    /// Whether this request was made to the link.
    fn was_asked(&self, opcode: UicOpcode, attribute: UicAttribute) -> bool {
        self.uic().any(|asked| asked.0 == opcode && asked.1 == attribute)
    }

    fn uic(&self) -> impl Iterator<Item = (UicOpcode, UicAttribute, u32)> {
        self.log.borrow().clone().into_iter().filter_map(|asked| asked.uic)
    }

    fn note(&self, uic: Option<(UicOpcode, UicAttribute, u32)>) {
        self.log.borrow_mut().push(Asked { at: self.now(), uic });
    }

    /// The model's offset of a register; `None` if there is none.
    fn place(&self, offset: u32) -> Option<u32> {
        match offset {
            0x1000..0x2800 if self.odd == Odd::At2800 => None,
            0x2800.. if self.odd == Odd::At2800 => Some(offset - 0x1800),
            _ => Some(offset),
        }
    }

    fn is_completion(&self, range: DmaSlice) -> bool {
        (self.completions.get()..).contains(&range.address)
    }

    /// Replaces what the device and the controller have written by what this machine shows.
    fn falsify(&self, range: DmaSlice) {
        let memory = self.memory();
        let len = range.len as usize;
        let Ok(start) = memory.offset_of(range.address, len) else { return };
        match self.odd {
            Odd::Device { manufacturer, version } => {
                for at in (start..start + len).step_by(32) {
                    let mut head = [0; 14];
                    memory.read(at, &mut head);
                    // QUERY RESPONSE, READ DESCRIPTOR, the device descriptor.
                    if (head[0], head[12], head[13]) == (0x36, 1, 0) {
                        memory.write(at + 32 + 0x10, &version.to_be_bytes());
                        memory.write(at + 32 + 0x18, &manufacturer.to_be_bytes());
                    }
                }
            }
            Odd::Overall if self.is_up.get() && len == 32 && self.is_completion(range) => {
                memory.write(start + 16, &[1]);
            }
            _ => {}
        }
    }
}

impl Registers for Machinery {
    const COHERENT: bool = Model::COHERENT;

    fn sync_for_device(&self, range: DmaSlice) {
        self.model.sync_for_device(range);
    }

    fn sync_for_cpu(&self, range: DmaSlice) {
        self.model.sync_for_cpu(range);
        self.falsify(range);
    }

    fn read32(&self, offset: u32) -> u32 {
        let Some(place) = self.place(offset) else { return 0 };
        let value = self.model.read32(place);
        match (self.odd, offset) {
            (Odd::At2800, 0x400..0x1000)
                if matches!(offset % 64, mcq::SQDAO | mcq::CQDAO | mcq::CQISAO) =>
            {
                0
            }
            (_, UCMDARG2) if self.refused.get() => 1,
            (_, UTRLDBR) => match self.hidden.get() {
                Some((bits, until)) if self.now() < until => value | bits,
                _ => value,
            },
            _ => value,
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        let Some(place) = self.place(offset) else { return };
        match offset {
            UICCMD => {
                let argument = UicArgument1::from_bits(self.model.read32(UCMDARG1));
                let opcode = UicOpcode::from_bits(value as u8);
                let set = self.model.read32(UCMDARG3);
                self.note(Some((opcode, argument.mib_attribute(), set)));
                let is_attribute = matches!(opcode, UicOpcode::DmeGet | UicOpcode::DmeSet);
                self.refused.set(self.odd == Odd::Dme && is_attribute);
            }
            UTRLDBR => {
                if self.odd == Odd::LateAnswer && self.hidden.get().is_none() {
                    self.hidden.set(Some((value, self.now().after_nanos(100 * MS))));
                }
                self.note(None);
            }
            // For the first queue, whose ring is the last part of the driver's memory.
            _ if offset == 0x400 + mcq::CQLBA => {
                self.completions.set(self.memory().address() | u64::from(value));
            }
            _ => {}
        }
        self.model.write32(place, value);
    }

    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        self.model.device_done(queue, slot)
    }
}

impl Clock for Machinery {
    fn now(&self) -> Instant {
        self.model.now()
    }
    fn wait(&self, until: Option<Instant>) -> Wake {
        self.model.wait(until)
    }
}

impl Machine for Machinery {
    fn memory(&self) -> &DmaRegion {
        self.model.memory()
    }
    fn identity(&self) -> Identity {
        self.model.identity()
    }
}

/// A board that sets attributes of its end of the link and knows quirks.
#[derive(Clone, Debug, Default)]
struct Board {
    sets: &'static [(UicAttribute, u32)],
    adds: DeviceQuirks,
    told: Arc<Mutex<DeviceQuirks>>,
}

impl Platform for Board {
    fn setting(&mut self, event: Event, phase: Phase, n: usize) -> Option<DmeSetting> {
        let of_link = (event, phase) == (Event::LinkStartup, Phase::After);
        let (attribute, value) = *self.sets.get(n).filter(|_| of_link)?;
        Some(DmeSetting { attribute, selector: 0, peer: false, value })
    }

    fn device(
        &mut self,
        descriptor: &DeviceDescriptor,
        quirks: DeviceQuirks,
    ) -> Correction<DeviceQuirks> {
        *self.told.lock().expect("nobody panicked") = quirks;
        let add = if descriptor.w_manufacturer_id == 0 { self.adds } else { DeviceQuirks::NONE };
        Correction { add, ..Correction::default() }
    }
}

/// With these quirks of the controller, and the single doorbell.
fn controller(quirks: &[Quirk]) -> UfsOptions {
    let add = Quirks::of(quirks);
    UfsOptions {
        queue: QueueMode::Sdq,
        quirks: Correction { add, ..Correction::default() },
        ..UfsOptions::default()
    }
}

/// With these quirks of the device.
fn device(quirks: &[DeviceQuirk]) -> UfsOptions {
    let add = DeviceQuirks::of(quirks);
    UfsOptions {
        device_quirks: Correction { add, ..Correction::default() },
        ..UfsOptions::default()
    }
}

fn skipped(host: &Host<Machinery>) -> Option<&'static str> {
    host.errors().history().find(|it| it.kind == ErrorKind::Skipped).and_then(|it| it.step)
}

/// Polls until recovery has finished.
fn settle(machine: &Machinery, host: &mut Host<Machinery>) {
    host.poll(machine.now());
    while host.state() == State::Recovering {
        machine.wait(host.poll_at());
        host.poll(machine.now());
    }
}

#[test]
fn without_task_management_a_host_reset_ends_what_is_overdue() {
    for (quirks, resets) in [(&[][..], 0), (&[Quirk::NoTaskManagement][..], 1)] {
        let machine = Machinery::new(Odd::Nothing);
        let mut port = machine.host(controller(quirks)).into_ports().remove(0);
        done(&mut port, &machine, read(0, buffer(&machine, 0, 4096)));
        let plan = Plan::none().with(Kind::Timeout, Trigger::Nth(1));
        machine.model.with_model(|model| model.arm_faults(plan));
        let deadline = machine.now().after_nanos(200 * MS);
        let swallowed = Command { deadline, ..read(0, buffer(&machine, 0, 4096)) };
        assert_eq!(finish(&mut port, &machine, swallowed).ended, Ended::TimedOut);
        let host = port.host_mut().expect("the host");
        settle(&machine, host);
        assert_eq!(host.errors().count(ErrorKind::HostReset), resets);
        assert_eq!(host.errors().count(ErrorKind::Abort), 1 - resets);
        let how = EndCommands::AbortTaskSet;
        host.run(&machine, Operation::EndCommands { how, lun: 0 }).expect("done");
        assert_eq!(host.errors().count(ErrorKind::HostReset), 2 * resets);
    }
}

#[test]
fn a_slot_that_cannot_be_cleared_is_not_waited_for() {
    for (quirks, resets) in [(&[][..], 0), (&[Quirk::StickySlots][..], 1)] {
        let machine = Machinery::new(Odd::Nothing);
        let mut host = machine.host(controller(quirks));
        let plan = Plan::none().with(Kind::Timeout, Trigger::Nth(1));
        machine.model.with_model(|model| model.arm_faults(plan));
        // The first attempt is swallowed.
        let asked = host.run(&machine, Operation::BackgroundOperations);
        settle(&machine, &mut host);
        assert_eq!(host.errors().count(ErrorKind::Overdue), 1);
        assert_eq!(host.errors().count(ErrorKind::HostReset), resets);
        assert_eq!(asked.is_ok(), resets == 0, "{asked:?}");
    }
}

#[test]
fn refused_attributes_are_no_reason_to_complain_where_all_are_refused() {
    for (quirks, step) in
        [(&[][..], Some("link gear and lanes")), (&[Quirk::DmeErrorsNotFatal][..], None)]
    {
        let host = Machinery::new(Odd::Dme).host(controller(quirks));
        assert_eq!((host.link().high_speed, skipped(&host)), (false, step));
    }
}

#[test]
fn a_link_without_power_modes_is_left_as_it_is() {
    for (quirks, changes) in [(&[][..], true), (&[Quirk::NoPowerModeChange][..], false)] {
        let machine = Machinery::new(Odd::Nothing);
        let host = machine.host(controller(quirks));
        assert_eq!(machine.was_asked(UicOpcode::DmeSet, UicAttribute::PaPwrmode), changes);
        assert_eq!((host.link().high_speed, skipped(&host)), (changes, None));
    }
}

#[test]
fn an_overall_status_means_that_there_is_no_unit_where_it_does() {
    for (quirks, ended) in
        [(&[][..], Ended::Host), (&[Quirk::MissingUnitSetsOcs][..], Ended::NoUnit)]
    {
        let machine = Machinery::new(Odd::Overall);
        let options = UfsOptions { queue: QueueMode::Mcq, ..controller(quirks) };
        let mut port = machine.host(options).into_ports().remove(0);
        let outcome = finish(&mut port, &machine, read(0, buffer(&machine, 0, 4096)));
        assert_eq!((outcome.ended, port.failure().code), (ended, 1));
    }
}

#[test]
fn run_time_registers_are_found_where_the_quirk_says() {
    let machine = Machinery::new(Odd::At2800);
    let wants = |quirks| UfsOptions { queue: QueueMode::Mcq, lanes: 2, ..controller(quirks) };
    let without = machine.try_host(wants(&[]), Board::default());
    assert!(matches!(without, Err(UfsError::Step { step: "queues", .. })), "{without:?}");
    let host = machine.host(wants(&[Quirk::RuntimeRegistersAt2800]));
    for port in &mut host.into_ports() {
        done(port, &machine, read(0, buffer(&machine, 0, 4096)));
    }
}

#[test]
fn auto_hibern8_that_is_broken_is_never_switched_on() {
    for (quirks, works) in [(&[][..], true), (&[Quirk::AutoHibern8Broken][..], false)] {
        let machine = Machinery::new(Odd::Nothing);
        let options = UfsOptions { auto_hibern8_us: Some(150_000), ..controller(quirks) };
        let mut host = machine.host(options);
        assert_eq!(machine.read32(AHIT) != 0, works);
        assert_eq!(skipped(&host), (!works).then_some("auto-hibern8"));
        let on = host.run(&machine, Operation::AutoHibern8(1_000));
        assert_eq!(on.is_ok(), works);
        assert_eq!(machine.read32(AHIT) != 0, works);
        host.run(&machine, Operation::AutoHibern8(0)).expect("off is always right");
        assert_eq!(machine.read32(AHIT), 0);
    }
}

#[test]
fn a_first_answer_that_comes_late_is_waited_for() {
    for (quirks, overdue) in [(&[][..], true), (&[Quirk::SlowNop][..], false)] {
        let host = Machinery::new(Odd::LateAnswer).host(controller(quirks));
        assert_eq!(host.errors().count(ErrorKind::Overdue) > 0, overdue);
    }
}

#[test]
fn lanes_are_changed_before_the_gear() {
    for (quirks, expected) in [
        (&[][..], &[(4, 2, 0x11)][..]),
        (&[Quirk::LanesBeforeGear][..], &[(1, 2, 0x22), (4, 2, 0x11)][..]),
    ] {
        let machine = Machinery::new(Odd::Nothing);
        machine.host(controller(quirks));
        let (mut gear, mut lanes, mut changes) = (0, 0, Vec::new());
        for (_, attribute, value) in machine.uic().filter(|it| it.0 == UicOpcode::DmeSet) {
            match attribute {
                UicAttribute::PaTxgear => gear = value,
                UicAttribute::PaActivetxdatalanes => lanes = value,
                UicAttribute::PaPwrmode => changes.push((gear, lanes, value)),
                _ => {}
            }
        }
        assert_eq!(changes, expected);
    }
}

#[test]
fn the_peer_gets_longer_to_wake() {
    for (quirks, more) in [(&[][..], 0), (&[Quirk::PeerTactivate][..], 2)] {
        let machine = Machinery::new(Odd::Nothing);
        let _host = machine.host(controller(quirks));
        let get = |peer| machine.dme_get(UicAttribute::PaTactivate, 0, peer);
        assert_eq!(get(true), get(false) + more);
    }
}

#[test]
fn line_control_commands_are_off_before_the_link_starts() {
    for (quirks, enabled) in [(&[][..], 1), (&[Quirk::LccOff][..], 0)] {
        let machine = Machinery::new(Odd::Nothing);
        let _host = machine.host(controller(quirks));
        assert_eq!(machine.dme_get(UicAttribute::PaLocalTxLccEnable, 0, false), enabled);
        let before_start = machine
            .uic()
            .take_while(|asked| asked.0 != UicOpcode::DmeLinkstartup)
            .any(|asked| asked.1 == UicAttribute::PaLocalTxLccEnable);
        assert_eq!(before_start, enabled == 0);
    }
}

#[test]
fn a_fast_link_is_left_alone_for_a_millisecond() {
    let rest = |quirks: &[Quirk]| {
        let machine = Machinery::new(Odd::Nothing);
        machine.host(controller(quirks));
        let log = machine.log.borrow().clone();
        let is_change =
            |asked: &Asked| asked.uic.is_some_and(|uic| uic.1 == UicAttribute::PaPwrmode);
        let change = log.iter().position(is_change).expect("a change");
        log[change + 1].at.nanos_since(log[change].at)
    };
    let (without, with) = (rest(&[]), rest(&[Quirk::SettleAfterGear]));
    assert!(with >= without + MS, "{without} ns, {with} ns");
}

#[test]
fn supplies_stay_on_while_a_device_still_draws_current() {
    let takes = |quirks: &[DeviceQuirk], power| {
        let machine = Machinery::new(Odd::Nothing);
        let mut host = machine.host(device(quirks));
        let start = machine.now();
        host.set_power(&machine, power).expect("done");
        machine.now().nanos_since(start)
    };
    let quirk = [DeviceQuirk::SettleBeforeLowPower];
    for power in [DevicePower::Sleep, DevicePower::PowerDown, DevicePower::DeepSleep] {
        assert!(takes(&quirk, power) >= takes(&[], power) + 2 * MS, "{power:?}");
    }
    assert!(takes(&quirk, DevicePower::Active) < takes(&[], DevicePower::Active) + 2 * MS);
}

/// PA_TACTIVATE and PA_HIBERN8TIME of the host with a board that sets them to 3 and 5.
fn times(quirks: &[DeviceQuirk]) -> (u32, u32) {
    let sets = &[(UicAttribute::PaTactivate, 3), (UicAttribute::PaHibern8time, 5)];
    let machine = Machinery::new(Odd::Nothing);
    let board = Board { sets, ..Board::default() };
    let _host = machine.try_host(device(quirks), board).expect("up");
    let get = |attribute| machine.dme_get(attribute, 0, false);
    (get(UicAttribute::PaTactivate), get(UicAttribute::PaHibern8time))
}

#[test]
fn a_host_wakes_for_a_millisecond_and_hibernates_longer_where_devices_want_it() {
    assert_eq!(times(&[]), (3, 5));
    assert_eq!(times(&[DeviceQuirk::HostTactivate1Ms]), (10, 5));
    assert_eq!(times(&[DeviceQuirk::LongerHibern8]), (3, 6));
}

#[test]
fn early_write_booster_is_there_only_where_it_is_known_to_be() {
    for (version, quirks, there) in [
        (0x300, &[][..], false),
        (0x300, &[DeviceQuirk::EarlyWriteBooster][..], true),
        (0x220, &[][..], true),
        (0x310, &[][..], true),
    ] {
        let machine = Machinery::new(Odd::Device { manufacturer: 0, version });
        let mut host = machine.host(UfsOptions { write_booster: Some(true), ..device(quirks) });
        assert_eq!(host.device().descriptor.w_spec_version, version);
        assert_eq!(skipped(&host), None);
        match host.write_booster(&machine) {
            Ok(status) => assert!(there && status.enabled, "{version:x} {status:?}"),
            Err(error) => {
                assert_eq!((error, there), (UfsError::Unsupported("WriteBooster"), false))
            }
        }
    }
}

#[test]
fn a_device_that_refuses_the_time_is_not_told_it() {
    for (quirks, told) in [(&[][..], true), (&[DeviceQuirk::NoTimestamp][..], false)] {
        let machine = Machinery::new(Odd::Nothing);
        let done = machine.host(device(quirks)).run(&machine, Operation::SetTimestamp(1 << 60));
        assert_eq!(done.is_ok(), told, "{done:?}");
        assert!(told || done == Err(UfsError::Unsupported("qTimestamp")));
    }
}

#[test]
fn the_peer_sends_a_longer_pattern_ahead() {
    for (quirks, length) in [(&[][..], 0x48), (&[DeviceQuirk::LongerPeerSync][..], 0x4A)] {
        let machine = Machinery::new(Odd::Nothing);
        // The model's hibernation time is the longest possible: that quirk is refused, which is no
        // reason to skip the next.
        let quirks = [&[DeviceQuirk::LongerHibern8], quirks].concat();
        let host = machine.host(device(&quirks));
        assert_eq!(skipped(&host), Some("device quirks"));
        let get = |peer| machine.dme_get(UicAttribute::PaTxhsg1synclength, 0, peer);
        assert_eq!((get(true), get(false)), (length, 0x48));
    }
}

#[test]
fn repeated_bits_are_sent_lower_in_the_fifth_gear_alone() {
    for (quirks, in_5) in [(&[][..], 0), (&[DeviceQuirk::DeemphasisByGear][..], 4)] {
        let machine = Machinery::of(Config { profile: UFS40, ..Config::default() }, Odd::Nothing);
        let mut host = machine.host(device(quirks));
        let get = |lane| machine.dme_get(UicAttribute::TxHsEqualizerSetting, lane, false);
        assert_eq!((host.link().gear, get(0), get(1)), (5, in_5, in_5));
        host.set_link(&machine, LinkLimits { gear: 4, ..LinkLimits::default() }).expect("slower");
        assert_eq!((get(0), get(1)), (0, 0));
    }
}

#[test]
fn quirks_of_a_device_come_from_its_table_the_board_and_the_caller() {
    const SAMSUNG: u16 = 0x1CE;
    const SK_HYNIX: u16 = 0x1AD;
    use DeviceQuirk as Q;
    // The notifications of the board, and the resulting quirks.
    let of = |manufacturer, options, board: Board| {
        let machine = Machinery::new(Odd::Device { manufacturer, version: 0x410 });
        let host = machine.try_host(options, board.clone()).expect("up");
        (*board.told.lock().expect("nobody panicked"), host.device().quirks)
    };
    let (none, nothing) = (UfsOptions::default, DeviceQuirks::NONE);
    assert_eq!(of(0, none(), Board::default()), (nothing, nothing));
    let samsung = DeviceQuirks::find(SAMSUNG, "");
    assert_eq!(of(SAMSUNG, none(), Board::default()), (samsung, samsung));
    // Settings that need registers of the PHY are left to the platform, which is notified.
    assert!(of(SK_HYNIX, none(), Board::default()).0.has(Q::HostSaveConfigTime));
    let added = DeviceQuirks::of(&[Q::DebugSaveConfigTime]);
    let options = device(&[Q::DebugSaveConfigTime]);
    assert_eq!(of(0, options, Board::default()), (added, added));
    let adds = DeviceQuirks::on_qualcomm(SAMSUNG);
    let board = || Board { adds, ..Board::default() };
    assert_eq!(of(0, none(), board()), (nothing, adds));
    let remove = DeviceQuirks::of(&[Q::LongerPeerSync]);
    let device_quirks = Correction { remove, ..Correction::default() };
    let options = UfsOptions { device_quirks, ..UfsOptions::default() };
    assert_eq!(of(0, options, board()), (nothing, DeviceQuirks::of(&[Q::DeemphasisByGear])));
}

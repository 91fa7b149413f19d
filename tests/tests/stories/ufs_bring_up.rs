//! Bring-up of the UFS driver on controllers that report false values, stall or fail: each failure
//! names its step, and whatever can be retried is retried.

use flysch_api::command::{Ended, Port as _};
use flysch_api::machine::{
    Clock, DmaRegion, DmaSlice, Identity, Instant, Machine, Registers, Wake,
};
use flysch_models::ufs::{Config, UnitConfig};
use flysch_tests::ufs::{Model, buffer, done, machine, read, wait};
use flysch_ufs::{
    Aggregation, Cause, Clocks, Correction, DevicePower, DeviceQuirk, DeviceQuirks, DmeSetting,
    ErrorKind, Event, Host, LinkLimits, Operation, Phase, Platform, PlatformError, QueueMode,
    QueueRegisters, ReferenceClock, STEPS, State, SuspendLevel, UfsError, UfsOptions,
};
use flysch_wire::ufs::descriptor::DeviceDescriptor;
use flysch_wire::ufs::query::AttributeId;
use flysch_wire::ufs::registers::{
    CAP, Cap, HCE, HCS, Hce, Hcs, InterruptAggregation, PowerModeStatus, UCMDARG1, UCMDARG2,
    UICCMD, UTRIACR, UTRLCLR, mcq,
};
use flysch_wire::ufs::uic::{HsSeries, UicArgument1, UicAttribute, UicOpcode};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The fault of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// Every register reads as ones.
    Absent,
    /// HCE never comes up.
    Disabled,
    /// Link start-up fails this many times.
    LinkStartup(u32),
    /// Power mode changes above this gear are answered with an error.
    GearAbove(u32),
    /// CAP reports that there is no single doorbell, although there is no MCQ.
    Lsdbs,
    /// CAP reports 32-bit addresses only.
    Narrow,
    /// UTRLCLR does nothing.
    NoClear,
    /// SQDAO, CQDAO and CQISAO read zero.
    NoOffsets,
    /// Link start-up fails until the platform has pulsed RST_n once more than this number.
    Deaf(u32),
    /// A power mode change ends with UPMCRS = 0, which has no meaning.
    SilentPowerMode,
    /// The link does not come up in rate series B.
    OnlySeriesA,
    /// The link does not come up with two lanes.
    OnlyOneLane,
}

/// A board that records its notifications.
#[derive(Clone, Debug, Default)]
struct Board {
    told: Arc<Mutex<Vec<Told>>>,
    pulses: Arc<AtomicU32>,
    refuses: Option<(Event, Phase)>,
    knows_queues: bool,
    clock: Option<ReferenceClock>,
}

/// The notifications and requests of a [`Board`].
#[derive(Clone, Debug, PartialEq)]
enum Told {
    Event(Event, Phase),
    Reset(bool),
    Clocks(Clocks),
    Device(u16),
    /// From the device, not the board: a command of the host itself, its unit and operation code.
    Command(u8, u8),
    /// From the controller, not the board: HCE is cleared.
    Disabled,
}

impl Board {
    fn note(&self, told: Told) {
        self.told.lock().expect("nobody panicked").push(told);
    }

    fn told(&self) -> Vec<Told> {
        self.told.lock().expect("nobody panicked").clone()
    }
}

impl Platform for Board {
    fn notice(&mut self, event: Event, phase: Phase) -> Result<u32, PlatformError> {
        self.note(Told::Event(event, phase));
        if self.refuses == Some((event, phase)) { Err(PlatformError(7)) } else { Ok(20) }
    }

    fn setting(&mut self, event: Event, phase: Phase, n: usize) -> Option<DmeSetting> {
        let of_link = (event, phase) == (Event::LinkStartup, Phase::After);
        let sync = [UicAttribute::PaTxhsg1synclength, UicAttribute::PaTxhsg2synclength];
        let attribute = *sync.get(n).filter(|_| of_link)?;
        Some(DmeSetting { attribute, selector: 0, peer: n == 1, value: 0x4A })
    }

    fn device_reset(&mut self, hold: bool) -> bool {
        self.note(Told::Reset(hold));
        self.pulses.fetch_add(u32::from(!hold), Ordering::Relaxed);
        true
    }

    fn clocks(&mut self, clocks: Clocks) {
        self.note(Told::Clocks(clocks));
    }

    fn reference_clock(&self) -> Option<ReferenceClock> {
        self.clock
    }

    fn queue_registers(&self, queue: u8) -> Option<QueueRegisters> {
        let base = 0x1000 + 48 * u32::from(queue);
        let (completion, completion_interrupt) = (base + 0x1C, base + 0x24);
        let registers = QueueRegisters { submission: base, completion, completion_interrupt };
        self.knows_queues.then_some(registers)
    }

    fn device(
        &mut self,
        descriptor: &DeviceDescriptor,
        _: DeviceQuirks,
    ) -> Correction<DeviceQuirks> {
        self.note(Told::Device(descriptor.w_spec_version));
        Correction::default()
    }
}

/// The model behind registers that can be tampered with.
#[derive(Clone, Debug)]
struct Tampered {
    model: Model,
    fault: Fault,
    count: Rc<Cell<u32>>,
    gear: Rc<Cell<u32>>,
    series: Rc<Cell<u32>>,
    lanes: Rc<Cell<u32>>,
    fails: Rc<Cell<bool>>,
    board: Board,
}

impl Tampered {
    fn new(config: Config, fault: Fault) -> Self {
        Self {
            model: machine(config),
            fault,
            count: Rc::default(),
            gear: Rc::default(),
            series: Rc::default(),
            lanes: Rc::default(),
            board: Board::default(),
            fails: Rc::default(),
        }
    }

    fn host(&self, options: UfsOptions) -> Result<Host<Self>, UfsError> {
        let memory = self.memory().carve(0, 1 << 20);
        let mut host = Host::new(self.clone(), memory, options)?;
        host.bring_up(self)?;
        Ok(host)
    }

    /// A running host, on a board.
    fn host_on_board(&self, options: UfsOptions) -> Result<Host<Self>, UfsError> {
        let memory = self.memory().carve(0, 1 << 20);
        let host = Host::new(self.clone(), memory, options)?;
        let mut host = host.with_platform(Box::new(self.board.clone()));
        host.bring_up(self)?;
        Ok(host)
    }

    /// Reads an attribute of the link bypassing the driver.
    fn dme_get(&self, attribute: UicAttribute, peer: bool) -> u32 {
        let argument = UicArgument1::new().with_mib_attribute(attribute);
        self.model.write32(UCMDARG1, argument.into_bits());
        let opcode = if peer { UicOpcode::DmePeerGet } else { UicOpcode::DmeGet };
        self.model.write32(UICCMD, opcode.into_bits().into());
        self.model.wait(Some(self.now().after_nanos(1_000_000)));
        self.model.read32(UCMDARG1 + 8)
    }

    fn is_too_fast(&self) -> bool {
        match self.fault {
            Fault::GearAbove(limit) => self.gear.get() > limit,
            Fault::OnlySeriesA => self.series.get() == 2,
            Fault::OnlyOneLane => self.lanes.get() == 2,
            _ => false,
        }
    }

    /// Whether the UIC command about to be written should fail.
    fn spoils(&self, opcode: u32) -> bool {
        let argument = UicArgument1::from_bits(self.model.read32(UCMDARG1));
        match self.fault {
            Fault::LinkStartup(times)
                if opcode == u32::from(UicOpcode::DmeLinkstartup.into_bits()) =>
            {
                self.count.set(self.count.get() + 1);
                self.count.get() <= times
            }
            Fault::Deaf(pulses) if opcode == u32::from(UicOpcode::DmeLinkstartup.into_bits()) => {
                self.board.pulses.load(Ordering::Relaxed) <= pulses
            }
            _ => {
                let sets = opcode == u32::from(UicOpcode::DmeSet.into_bits());
                sets && argument.mib_attribute() == UicAttribute::PaPwrmode && self.is_too_fast()
            }
        }
    }
}

impl Registers for Tampered {
    const COHERENT: bool = Model::COHERENT;

    fn sync_for_device(&self, range: DmaSlice) {
        self.model.sync_for_device(range);
        // The driver's own commands are passed with a page.
        let memory = self.memory();
        if let (4096, Ok(at)) = (range.len, memory.offset_of(range.address, 4096)) {
            let mut unit = [0; 32];
            memory.read(at, &mut unit);
            if unit[0] & 0x3F == 1 {
                self.board.note(Told::Command(unit[2], unit[16]));
            }
        }
    }

    fn sync_for_cpu(&self, range: DmaSlice) {
        self.model.sync_for_cpu(range);
    }

    fn read32(&self, offset: u32) -> u32 {
        let value = self.model.read32(offset);
        match (self.fault, offset) {
            (Fault::Absent, _) => u32::MAX,
            (Fault::Disabled, HCE) => Hce::from_bits(value).with_hce(false).into_bits(),
            (Fault::Lsdbs, CAP) => Cap::from_bits(value).with_lsdbs(true).into_bits(),
            (Fault::Narrow, CAP) => Cap::from_bits(value).with_addressing_64bit(false).into_bits(),
            (_, UCMDARG2) if self.fails.get() => 1,
            (Fault::SilentPowerMode, HCS) => {
                Hcs::from_bits(value).with_upmcrs(PowerModeStatus::Ok).into_bits()
            }
            // The queues' configuration banks are 64 bytes each.
            (Fault::NoOffsets, 0x400..0x1000)
                if matches!(offset % 64, mcq::SQDAO | mcq::CQDAO | mcq::CQISAO) =>
            {
                0
            }
            _ => value,
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        match (self.fault, offset) {
            (Fault::NoClear, UTRLCLR) => return,
            (_, HCE) if value == 0 => self.board.note(Told::Disabled),
            (_, UICCMD) => {
                let argument = UicArgument1::from_bits(self.model.read32(UCMDARG1));
                let set = self.model.read32(UCMDARG1 + 8);
                match argument.mib_attribute() {
                    UicAttribute::PaRxgear => self.gear.set(set),
                    UicAttribute::PaHsseries => self.series.set(set),
                    UicAttribute::PaActiverxdatalanes => self.lanes.set(set),
                    _ => {}
                }
                self.fails.set(self.spoils(value));
                if self.fails.get() {
                    // A harmless command takes its place, so that there is an answer.
                    self.model.write32(UCMDARG1, 0x1568_0000);
                    return self.model.write32(UICCMD, UicOpcode::DmeGet.into_bits().into());
                }
            }
            _ => {}
        }
        self.model.write32(offset, value);
    }

    fn device_done(&self, queue: u16, slot: u16) -> Option<Instant> {
        self.model.device_done(queue, slot)
    }
}

impl Clock for Tampered {
    fn now(&self) -> Instant {
        self.model.now()
    }
    fn wait(&self, until: Option<Instant>) -> Wake {
        self.model.wait(until)
    }
}

impl Machine for Tampered {
    fn memory(&self) -> &DmaRegion {
        self.model.memory()
    }
    fn identity(&self) -> Identity {
        self.model.identity()
    }
}

fn bring_up(fault: Fault) -> Result<Host<Tampered>, UfsError> {
    Tampered::new(Config::default(), fault).host(UfsOptions::default())
}

#[test]
fn nothing_wrong_nothing_said() {
    assert!(bring_up(Fault::Nothing).is_ok());
}

#[test]
fn a_window_without_a_controller_is_recognised() {
    assert_eq!(bring_up(Fault::Absent).err(), Some(UfsError::NoController));
}

#[test]
fn a_controller_that_does_not_come_up_names_the_step() {
    let error = bring_up(Fault::Disabled).expect_err("HCE stays clear");
    assert!(matches!(
        error,
        UfsError::Step { step: "controller enable", cause: Cause::Register { name: "HCE", .. } }
    ));
    assert!(error.to_string().contains("controller enable"), "{error}");
}

#[test]
fn link_start_up_is_tried_three_times() {
    assert!(bring_up(Fault::LinkStartup(2)).is_ok());
    let error = bring_up(Fault::LinkStartup(3)).expect_err("three failures");
    assert!(matches!(error, UfsError::Step { step: "link start-up", cause: Cause::Uic(..) }));
}

#[test]
fn a_gear_that_does_not_come_up_is_stepped_down_from() {
    let host = bring_up(Fault::GearAbove(2)).expect("a slower link");
    assert_eq!((host.link().high_speed, host.link().gear), (true, 2));
    let host = bring_up(Fault::GearAbove(0)).expect("low speed will do");
    assert!(!host.link().high_speed);
    // Every gear with both rates and both numbers of lanes, and a message that the step was
    // skipped.
    assert_eq!(host.errors().count(ErrorKind::LinkSpeed), 4 * 4);
    let last = host.errors().history().last().expect("a record");
    assert_eq!((last.kind, last.step), (ErrorKind::Skipped, Some("link gear and lanes")));
    assert!(last.error.is_some_and(|error| error.to_string().contains("PA_PWRMODE")), "{last:?}");
    let limits = LinkLimits { gear: 1, lanes: 1, ..LinkLimits::default() };
    let options = UfsOptions { link: limits, ..UfsOptions::default() };
    let host = Tampered::new(Config::default(), Fault::Nothing).host(options).expect("up");
    assert_eq!((host.link().gear, host.link().lanes), (1, 1));
}

#[test]
fn lsdbs_alone_is_not_believed() {
    let config = Config { queues: 0, ..Config::default() };
    let host = Tampered::new(config, Fault::Lsdbs).host(UfsOptions::default()).expect("up");
    assert!(!host.is_mcq());
    let both = Tampered::new(Config::default(), Fault::Lsdbs);
    let wants = UfsOptions { queue: QueueMode::Sdq, ..UfsOptions::default() };
    assert!(matches!(both.host(wants), Err(UfsError::Unsupported(_))));
}

#[test]
fn memory_out_of_reach_is_refused() {
    assert_eq!(bring_up(Fault::Narrow).err(), Some(UfsError::MemoryTooHigh));
}

#[test]
fn a_host_comes_up_again_and_again() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq, QueueMode::Sdq, QueueMode::Mcq] {
        let machine = Tampered::new(Config::default(), Fault::NoClear);
        for round in 0..4 {
            let options = UfsOptions { queue, interrupts: round % 2 == 0, ..UfsOptions::default() };
            let mut host = machine.host(options).expect("up");
            host.bring_up(&machine).expect("up once more");
            let mut ports = host.into_ports();
            done(&mut ports[0], &machine, read(0, buffer(&machine, 0, 4096)));
            assert_eq!(ports[0].limits().slots, 32);
            assert_ne!(machine.read32(HCS), 0);
        }
    }
}

#[test]
fn rate_a_and_one_lane_are_fallen_back_to_before_a_lower_gear() {
    let fast = bring_up(Fault::Nothing).expect("up").link();
    assert_eq!((fast.series, fast.lanes), (HsSeries::B, 2));
    let host = bring_up(Fault::OnlySeriesA).expect("a slower link");
    assert_eq!((host.link().gear, host.link().lanes), (fast.gear, 2));
    assert_eq!(host.link().series, HsSeries::A);
    assert_eq!(host.errors().count(ErrorKind::LinkSpeed), 1);
    let host = bring_up(Fault::OnlyOneLane).expect("a slower link");
    assert_eq!((host.link().gear, host.link().lanes), (fast.gear, 1));
    assert_eq!(host.link().series, HsSeries::B);
}

#[test]
fn a_power_mode_change_that_nobody_confirms_has_not_happened() {
    let host = bring_up(Fault::SilentPowerMode).expect("low speed will do");
    assert!(!host.link().high_speed);
    let cause = Cause::PowerMode(PowerModeStatus::Ok);
    let said = host.errors().history().any(|r| r.error == Some(UfsError::Failed(cause)));
    assert!(said, "{:?}", host.errors());
}

#[test]
fn the_platform_is_told_of_everything_in_order() {
    let machine = Tampered::new(Config::default(), Fault::Nothing);
    let mut host = machine.host_on_board(UfsOptions::default()).expect("up");
    let told = machine.board.told();
    let before = |name| Told::Event(Event::Step(name), Phase::Before);
    assert_eq!(told[0], before("controller disable"));
    assert_eq!(told[1], Told::Clocks(Clocks::On));
    let steps: Vec<_> = told
        .iter()
        .filter_map(|told| match told {
            Told::Event(Event::Step(name), phase) => Some((*name, *phase)),
            _ => None,
        })
        .collect();
    let expected: Vec<_> =
        STEPS.iter().flat_map(|s| [(s.name, Phase::Before), (s.name, Phase::After)]).collect();
    assert_eq!(steps, expected);
    let at = |wanted: &Told| told.iter().position(|told| told == wanted).expect("told");
    assert!(at(&Told::Reset(true)) < at(&Told::Reset(false)));
    assert!(at(&Told::Reset(false)) < at(&before("controller enable")));
    assert!(at(&Told::Device(0x410)) < at(&Told::Clocks(Clocks::Fast)));
    let fast = Event::PowerMode(host.link());
    assert!(at(&Told::Clocks(Clocks::Fast)) < at(&Told::Event(fast, Phase::Before)));
    assert!(at(&Told::Event(fast, Phase::Before)) < at(&Told::Event(fast, Phase::After)));
    // The settings that it requires are in effect at both ends.
    assert_eq!(machine.dme_get(UicAttribute::PaTxhsg1synclength, false), 0x4A);
    assert_eq!(machine.dme_get(UicAttribute::PaTxhsg2synclength, true), 0x4A);
    host.hibernate(&machine, true).expect("asleep");
    host.hibernate(&machine, false).expect("awake");
    let told = &machine.board.told()[told.len()..];
    let event = |event, phase| Told::Event(event, phase);
    let expected = [
        event(Event::HibernateEnter, Phase::Before),
        event(Event::HibernateEnter, Phase::After),
        Told::Clocks(Clocks::Off),
        Told::Clocks(Clocks::On),
        event(Event::HibernateExit, Phase::Before),
        event(Event::HibernateExit, Phase::After),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_platform_that_refuses_fails_the_step_or_leaves_it_out() {
    let mut machine = Tampered::new(Config::default(), Fault::Nothing);
    machine.board.refuses = Some((Event::Step("link start-up"), Phase::Before));
    let error = machine.host_on_board(UfsOptions::default()).expect_err("refused three times");
    assert_eq!(error, UfsError::Step { step: "link start-up", cause: Cause::Platform(7) });
    machine.board.refuses = Some((Event::Step("link gear and lanes"), Phase::Before));
    let host = machine.host_on_board(UfsOptions::default()).expect("up");
    assert!(!host.link().high_speed);
}

/// What a board is notified of while `act` is done to a host on it, without repetitions: a command
/// that meets a unit attention is sent again.
fn told_during(machine: &Tampered, act: impl FnOnce()) -> Vec<Told> {
    let before = machine.board.told().len();
    act();
    let mut told = machine.board.told().split_off(before);
    told.dedup();
    told
}

/// The well-known unit UFS DEVICE.
const UFS_DEVICE: u8 = 0xD0;

#[test]
fn the_platform_is_told_of_the_power_modes_of_the_device() {
    const START_STOP_UNIT: Told = Told::Command(UFS_DEVICE, 0x1B);
    let mut machine = Tampered::new(Config::default(), Fault::Nothing);
    let mut host = machine.host_on_board(UfsOptions::default()).expect("up");
    let event = |power, phase| Told::Event(Event::DevicePower(power), phase);
    use DevicePower::{Active, DeepSleep, PowerDown, Sleep};
    for power in [Sleep, Active, PowerDown, Active, DeepSleep] {
        let told = told_during(&machine, || host.set_power(&machine, power).expect("done"));
        let expected = [event(power, Phase::Before), START_STOP_UNIT, event(power, Phase::After)];
        assert_eq!(told, expected);
    }
    let told = told_during(&machine, || {
        host.set_power(&machine, Active).expect_err("only a reset leads out");
    });
    assert_eq!(told, [event(Active, Phase::Before), START_STOP_UNIT], "it has not happened");
    // If a board cannot do its part, the device is not told either.
    machine.board.refuses = Some((Event::DevicePower(Sleep), Phase::Before));
    let mut host = machine.host_on_board(UfsOptions::default()).expect("up");
    let told = told_during(&machine, || {
        let refused = host.set_power(&machine, Sleep);
        assert_eq!(refused, Err(UfsError::Failed(Cause::Platform(7))));
    });
    assert_eq!(told, [event(Sleep, Phase::Before)]);
}

#[test]
fn the_end_comes_in_good_order_and_the_platform_is_told() {
    let unit = || Some(UnitConfig::memory(64 << 20));
    let machine =
        Tampered::new(Config { units: vec![unit(), unit()], ..Config::default() }, Fault::Nothing);
    let mut host = machine.host_on_board(UfsOptions::default()).expect("up");
    let told = told_during(&machine, || host.shut_down(&machine).expect("down"));
    let power = Event::DevicePower(DevicePower::PowerDown);
    let expected = [
        Told::Event(Event::Shutdown, Phase::Before),
        Told::Command(0, 0x35),
        Told::Command(1, 0x35),
        Told::Event(power, Phase::Before),
        Told::Command(UFS_DEVICE, 0x1B),
        Told::Event(power, Phase::After),
        Told::Disabled,
        Told::Event(Event::Shutdown, Phase::After),
        Told::Clocks(Clocks::Off),
    ];
    assert_eq!(told, expected);
    assert_eq!(host.state(), State::Down);
    host.bring_up(&machine).expect("up again");
    done(&mut host.into_ports()[0], &machine, read(0, buffer(&machine, 0, 4096)));
}

#[test]
fn a_board_that_refuses_stops_a_shutdown_at_its_beginning_alone() {
    let power = Event::DevicePower(DevicePower::PowerDown);
    for (refused, left_out) in [
        ((Event::Shutdown, Phase::Before), None),
        ((power, Phase::Before), Some("power down")),
        ((power, Phase::After), Some("power down")),
        ((Event::Shutdown, Phase::After), Some("platform")),
    ] {
        let mut machine = Tampered::new(Config::default(), Fault::Nothing);
        machine.board.refuses = Some(refused);
        let mut host = machine.host_on_board(UfsOptions::default()).expect("up");
        let ended = host.shut_down(&machine);
        let last = host.errors().history().last().and_then(|record| record.step);
        assert_eq!((ended.is_ok(), last), (left_out.is_some(), left_out), "{refused:?}");
        assert_eq!(host.state() == State::Down, left_out.is_some());
        if left_out.is_none() {
            done(&mut host.into_ports()[0], &machine, read(0, buffer(&machine, 0, 4096)));
        }
    }
}

#[test]
fn a_board_that_refuses_a_suspend_keeps_nobody_waiting() {
    let sleep = Event::DevicePower(DevicePower::Sleep);
    for event in [Event::HibernateEnter, sleep, Event::HibernateExit] {
        for phase in [Phase::Before, Phase::After] {
            let mut machine = Tampered::new(Config::default(), Fault::Nothing);
            machine.board.refuses = Some((event, phase));
            let mut host = machine.host_on_board(UfsOptions::default()).expect("up");
            let suspended = host.run(&machine, Operation::Suspend(SuspendLevel::Sleep));
            assert_eq!(suspended.is_ok(), event == Event::HibernateExit, "{suspended:?}");
            let mut port = host.into_ports().remove(0);
            let limit = machine.now().after_nanos(10_000_000_000);
            while port.start(read(0, buffer(&machine, 0, 4096)), machine.now()).is_err() {
                assert!(machine.now() < limit, "{event:?} {phase:?}: nothing is taken");
                assert_eq!(port.poll(machine.now()), None);
                machine.wait(port.poll_at());
            }
            port.ring(machine.now());
            // After a reset it is a unit attention.
            let ended = wait(&mut port, &machine).ended;
            assert!(matches!(ended, Ended::Good | Ended::Answered), "{event:?} {phase:?}");
            done(&mut port, &machine, read(0, buffer(&machine, 0, 4096)));
        }
    }
}

#[test]
fn the_reset_line_brings_a_deaf_device_back() {
    let machine = Tampered::new(Config::default(), Fault::Deaf(1));
    let without = machine.host(UfsOptions::default());
    assert!(matches!(without, Err(UfsError::Step { step: "link start-up", .. })), "{without:?}");
    // Each attempt at link start-up begins with a pulse of the line.
    let mut host = machine.host_on_board(UfsOptions::default()).expect("the second pulse helps");
    assert_eq!(machine.board.pulses.load(Ordering::Relaxed), 2);
    host.run(&machine, Operation::Reset).expect("up again");
    assert_eq!(machine.board.pulses.load(Ordering::Relaxed), 3);
}

#[test]
fn the_reference_clock_of_the_board_is_set_in_the_device() {
    for clock in [ReferenceClock::Mhz19_2, ReferenceClock::Mhz38_4, ReferenceClock::Mhz26] {
        let mut machine = Tampered::new(Config::default(), Fault::Nothing);
        machine.board.clock = Some(clock);
        let mut host = machine.host_on_board(UfsOptions::default()).expect("up");
        let kept = host.read_attribute(&machine, AttributeId::RefClkFreq);
        assert_eq!(kept, Ok(clock as u64));
        assert_eq!(host.errors().count(ErrorKind::Skipped), 0);
    }
}

#[test]
fn a_reference_clock_the_device_refuses_is_passed_over_with_a_word() {
    let machine = Tampered::new(Config::default(), Fault::Nothing);
    let mut host =
        machine.host(UfsOptions { reference_clock: Some(9), ..UfsOptions::default() }).expect("up");
    let kept = host.read_attribute(&machine, AttributeId::RefClkFreq);
    assert_eq!(kept, Ok(ReferenceClock::Mhz26 as u64), "what it had");
    let record = host.errors().history().next().expect("a word about it");
    assert_eq!((record.kind, record.step), (ErrorKind::Skipped, Some("reference clock")));
}

#[test]
fn what_particular_devices_need_of_the_link_is_set_before_it_is_fast() {
    let with = |quirks: &[DeviceQuirk]| {
        let machine = Tampered::new(Config::default(), Fault::Nothing);
        let add = DeviceQuirks::of(quirks);
        let device_quirks = Correction { add, ..Correction::default() };
        let host = machine.host(UfsOptions { device_quirks, ..UfsOptions::default() }).expect("up");
        assert!(host.link().high_speed);
        let get = |peer| machine.dme_get(UicAttribute::PaTactivate, peer);
        let skipped = host.errors().history().find(|it| it.kind == ErrorKind::Skipped);
        (get(false), get(true), skipped.and_then(|it| it.step))
    };
    let (host, device, skipped) = with(&[]);
    assert_eq!((host, skipped), (device, None), "neither is above the other");
    assert_eq!(with(&[DeviceQuirk::PeerTactivateAboveHost]), (host, device + 1, None));
    // The model negotiated the longest possible time: more is refused, and bring-up continues.
    assert_eq!(with(&[DeviceQuirk::LongerHibern8]), (host, device, Some("device quirks")));
}

#[test]
fn queue_registers_that_the_controller_hides_are_the_platforms_to_give() {
    let mut machine = Tampered::new(Config::default(), Fault::NoOffsets);
    let wants = |queue| UfsOptions { queue, lanes: 2, ..UfsOptions::default() };
    let error = machine.host(wants(QueueMode::Mcq)).expect_err("nobody knows");
    assert!(matches!(error, UfsError::Step { step: "queues", .. }), "{error:?}");
    machine.board.knows_queues = true;
    let host = machine.host_on_board(wants(QueueMode::Mcq)).expect("the board knows");
    assert!(host.is_mcq());
    for port in &mut host.into_ports() {
        done(port, &machine, read(0, buffer(&machine, 0, 4096)));
    }
}

#[test]
fn the_single_doorbell_takes_over_where_queues_do_not_come_up() {
    let machine = Tampered::new(Config::default(), Fault::NoOffsets);
    let host =
        machine.host(UfsOptions { lanes: 2, depth: 64, ..UfsOptions::default() }).expect("SDQ");
    assert!(!host.is_mcq());
    let record = host.errors().history().next().expect("a word about it");
    assert_eq!((record.kind, record.step), (ErrorKind::FellBack, Some("queues")));
    for port in &mut host.into_ports() {
        assert_eq!(port.limits().slots, 16);
        done(port, &machine, read(0, buffer(&machine, 0, 4096)));
    }
    // Without a doorbell there is nothing to fall back to.
    let config = Config { legacy_doorbell: false, ..Config::default() };
    let error =
        Tampered::new(config, Fault::NoOffsets).host(UfsOptions::default()).expect_err("MCQ");
    assert!(matches!(error, UfsError::Step { step: "queues", .. }), "{error:?}");
}

#[test]
fn the_single_doorbell_that_takes_over_aggregates_for_one_lane_only() {
    let aggregation = Some(Aggregation { completions: 4, timeout_us: 400 });
    for (lanes, aggregates) in [(1, true), (2, false)] {
        let machine = Tampered::new(Config::default(), Fault::NoOffsets);
        let wants = UfsOptions { lanes, aggregation, ..UfsOptions::default() };
        let host = machine.host(wants).expect("SDQ");
        assert!(!host.is_mcq());
        let control = InterruptAggregation::from_bits(machine.read32(UTRIACR));
        assert_eq!(control.iaen(), aggregates, "{lanes} lanes");
    }
}

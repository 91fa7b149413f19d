//! Bring-up of the UFS driver on controllers that lie, stall or fail: each failure names its step,
//! what can be tried again is.

use flysch_api::command::Port as _;
use flysch_api::machine::{
    Clock, DmaRegion, DmaSlice, Identity, Instant, Machine, Registers, Wake,
};
use flysch_models::ufs::Config;
use flysch_tests::ufs::{Model, buffer, done, machine, read};
use flysch_ufs::{Cause, Error, Host, LinkLimits, Options, QueueMode};
use flysch_wire::ufs::registers::{CAP, Cap, HCE, HCS, Hce, UCMDARG1, UCMDARG2, UICCMD, UTRLCLR};
use flysch_wire::ufs::uic::{UicArgument1, UicAttribute, UicOpcode};
use std::cell::Cell;
use std::rc::Rc;

/// What is wrong with the controller.
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
    /// CAP says that the single doorbell is gone although there is no MCQ.
    Lsdbs,
    /// CAP says 32-bit addresses only.
    Narrow,
    /// UTRLCLR does nothing.
    NoClear,
}

/// The model behind registers that can be tampered with.
#[derive(Clone, Debug)]
struct Tampered {
    model: Model,
    fault: Fault,
    count: Rc<Cell<u32>>,
    gear: Rc<Cell<u32>>,
    fails: Rc<Cell<bool>>,
}

impl Tampered {
    fn new(config: Config, fault: Fault) -> Self {
        Self {
            model: machine(config),
            fault,
            count: Rc::default(),
            gear: Rc::default(),
            fails: Rc::default(),
        }
    }

    fn host(&self, options: Options) -> Result<Host<Self>, Error> {
        let memory = self.memory().carve(0, 1 << 20);
        let mut host = Host::new(self.clone(), memory, options)?;
        host.bring_up(self)?;
        Ok(host)
    }

    /// Whether the UIC command about to be written shall fail.
    fn spoils(&self, opcode: u32) -> bool {
        let argument = UicArgument1::from_bits(self.model.read32(UCMDARG1));
        match self.fault {
            Fault::LinkStartup(times)
                if opcode == u32::from(UicOpcode::DmeLinkstartup.into_bits()) =>
            {
                self.count.set(self.count.get() + 1);
                self.count.get() <= times
            }
            Fault::GearAbove(limit) => {
                let sets = opcode == u32::from(UicOpcode::DmeSet.into_bits());
                sets && argument.mib_attribute() == UicAttribute::PaPwrmode
                    && self.gear.get() > limit
            }
            _ => false,
        }
    }
}

impl Registers for Tampered {
    const COHERENT: bool = Model::COHERENT;

    fn sync_for_device(&self, range: DmaSlice) {
        self.model.sync_for_device(range);
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
            _ => value,
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        match (self.fault, offset) {
            (Fault::NoClear, UTRLCLR) => return,
            (_, UICCMD) => {
                let argument = UicArgument1::from_bits(self.model.read32(UCMDARG1));
                if argument.mib_attribute() == UicAttribute::PaRxgear {
                    self.gear.set(self.model.read32(UCMDARG1 + 8));
                }
                self.fails.set(self.spoils(value));
                if self.fails.get() {
                    // Something harmless in its place, so that it is answered.
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

fn bring_up(fault: Fault) -> Result<Host<Tampered>, Error> {
    Tampered::new(Config::default(), fault).host(Options::default())
}

#[test]
fn nothing_wrong_nothing_said() {
    assert!(bring_up(Fault::Nothing).is_ok());
}

#[test]
fn a_window_without_a_controller_is_recognised() {
    assert_eq!(bring_up(Fault::Absent).err(), Some(Error::NoController));
}

#[test]
fn a_controller_that_does_not_come_up_names_the_step() {
    let error = bring_up(Fault::Disabled).expect_err("HCE stays clear");
    assert!(matches!(
        error,
        Error::Step { step: "controller enable", cause: Cause::Register { name: "HCE", .. } }
    ));
    assert!(error.to_string().contains("controller enable"), "{error}");
}

#[test]
fn link_start_up_is_tried_three_times() {
    assert!(bring_up(Fault::LinkStartup(2)).is_ok());
    let error = bring_up(Fault::LinkStartup(3)).expect_err("three failures");
    assert!(matches!(error, Error::Step { step: "link start-up", cause: Cause::Uic(..) }));
}

#[test]
fn a_gear_that_does_not_come_up_is_stepped_down_from() {
    let host = bring_up(Fault::GearAbove(2)).expect("a slower link");
    assert_eq!((host.link().high_speed, host.link().gear), (true, 2));
    let host = bring_up(Fault::GearAbove(0)).expect("low speed will do");
    assert!(!host.link().high_speed);
    let limits = LinkLimits { gear: 1, lanes: 1, ..LinkLimits::default() };
    let options = Options { link: limits, ..Options::default() };
    let host = Tampered::new(Config::default(), Fault::Nothing).host(options).expect("up");
    assert_eq!((host.link().gear, host.link().lanes), (1, 1));
}

#[test]
fn lsdbs_alone_is_not_believed() {
    let config = Config { queues: 0, ..Config::default() };
    let host = Tampered::new(config, Fault::Lsdbs).host(Options::default()).expect("up");
    assert!(!host.is_mcq());
    let both = Tampered::new(Config::default(), Fault::Lsdbs);
    let wants = Options { queue: QueueMode::Sdq, ..Options::default() };
    assert!(matches!(both.host(wants), Err(Error::Unsupported(_))));
}

#[test]
fn memory_out_of_reach_is_refused() {
    assert_eq!(bring_up(Fault::Narrow).err(), Some(Error::MemoryTooHigh));
}

#[test]
fn a_host_comes_up_again_and_again() {
    for queue in [QueueMode::Sdq, QueueMode::Mcq, QueueMode::Sdq, QueueMode::Mcq] {
        let machine = Tampered::new(Config::default(), Fault::NoClear);
        for round in 0..4 {
            let options = Options { queue, interrupts: round % 2 == 0, ..Options::default() };
            let mut host = machine.host(options).expect("up");
            host.bring_up(&machine).expect("up once more");
            let mut ports = host.into_ports();
            done(&mut ports[0], &machine, read(0, buffer(&machine, 0, 4096)));
            assert_eq!(ports[0].limits().slots, 32);
            assert_ne!(machine.read32(HCS), 0);
        }
    }
}

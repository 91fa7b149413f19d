//! A flash that forks the world at every program and erase.

use std::cell::RefCell;
use std::rc::Rc;

use flysch_api::flash::{Corrected, Error, Flash, FlashMut, Geometry, OobMode};
use flysch_models::flash::{Power, Tear, Violation};
use flysch_models::nand::NandChip;
use flysch_models::nor::NorChip;
use flysch_mtd::Nand;

/// A chip model, with or without error correction over it, whose power can be cut.
pub trait Chip: FlashMut + Clone + 'static {
    /// Its supply.
    fn power(&self) -> &Power;
    /// Its supply, to be cut.
    fn power_mut(&mut self) -> &mut Power;
    /// Rules of the chip that were broken.
    fn violations(&self) -> &[Violation];
    /// Another seed from now on for what cuts leave and how unstable cells read.
    fn reseed(&mut self, seed: u64);
    /// Lets time pass in which charge leaks from the cells; nothing on chips that do not age so.
    fn wait(&mut self, ns: u64) {
        let _ = ns;
    }

    /// Programs and erases so far.
    fn operations(&self) -> u64 {
        self.power().operations()
    }
    /// The power comes back.
    fn power_on(&mut self) {
        self.power_mut().on();
    }
}

impl Chip for NandChip {
    fn power(&self) -> &Power {
        self.power()
    }
    fn reseed(&mut self, seed: u64) {
        self.reseed(seed);
    }
    fn wait(&mut self, ns: u64) {
        self.wait(ns);
    }
    fn power_mut(&mut self) -> &mut Power {
        self.power_mut()
    }
    fn violations(&self) -> &[Violation] {
        self.violations()
    }
}

impl Chip for NorChip {
    fn power(&self) -> &Power {
        self.power()
    }
    fn reseed(&mut self, seed: u64) {
        self.reseed(seed);
    }
    fn power_mut(&mut self) -> &mut Power {
        self.power_mut()
    }
    fn violations(&self) -> &[Violation] {
        self.violations()
    }
}

impl Chip for Nand<NandChip> {
    fn power(&self) -> &Power {
        self.pages().power()
    }
    fn reseed(&mut self, seed: u64) {
        self.pages_mut().reseed(seed);
    }
    fn wait(&mut self, ns: u64) {
        self.pages_mut().wait(ns);
    }
    fn power_mut(&mut self) -> &mut Power {
        self.pages_mut().power_mut()
    }
    fn violations(&self) -> &[Violation] {
        self.pages().violations()
    }
}

/// Told of every fork.
pub trait Hook<C> {
    /// The ways in which `operation` is to be cut.
    fn tears(&self, operation: u64) -> Vec<Tear>;
    /// `chip` is the world after the power went during `operation`.
    fn forked(&self, operation: u64, tear: Tear, chip: C);
}

/// A mistake planted between the stack and the chip, to prove that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// Every program is held back until something is done to another block: the wrong order.
    Reordered,
    /// Requests to make things durable are reported done and not passed on. It is the workload that
    /// leaves them out.
    SkippedSync,
    /// One erase in three is reported done and was not.
    SkippedErase,
}

impl std::str::FromStr for Mistake {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "reordered" => Ok(Self::Reordered),
            "skipped-sync" => Ok(Self::SkippedSync),
            "skipped-erase" => Ok(Self::SkippedErase),
            _ => Err("mistakes are reordered, skipped-sync and skipped-erase"),
        }
    }
}

/// A program that was not done yet though it was reported done.
#[derive(Clone, Debug)]
struct Held {
    offset: u64,
    data: Vec<u8>,
}

struct State<C> {
    chip: C,
    held: Option<Held>,
    erases: u64,
}

/// A flash over a chip model. Clones are the same flash: one mounts it, another watches.
pub struct Probe<C: Chip> {
    geometry: Geometry,
    state: Rc<RefCell<State<C>>>,
    hook: Rc<RefCell<Option<Rc<dyn Hook<C>>>>>,
    mistake: Option<Mistake>,
}

impl<C: Chip> Clone for Probe<C> {
    fn clone(&self) -> Self {
        let Self { geometry, state, hook, mistake } = self;
        Self { geometry: *geometry, state: state.clone(), hook: hook.clone(), mistake: *mistake }
    }
}

impl<C: Chip> std::fmt::Debug for Probe<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

impl<C: Chip> Probe<C> {
    /// A flash over `chip` that tells `hook` of forks.
    pub fn new(chip: C, hook: Option<Rc<dyn Hook<C>>>, mistake: Option<Mistake>) -> Self {
        let geometry = *chip.geometry();
        let state = State { chip, held: None, erases: 0 };
        let (state, hook) = (Rc::new(RefCell::new(state)), Rc::new(RefCell::new(hook)));
        Self { geometry, state, hook, mistake }
    }

    /// No more forks.
    pub fn disarm(&self) {
        self.hook.borrow_mut().take();
    }

    /// Lets time pass.
    pub fn wait(&self, ns: u64) {
        self.state.borrow_mut().chip.wait(ns);
    }

    /// The mistake that is planted.
    pub fn mistake(&self) -> Option<Mistake> {
        self.mistake
    }

    /// Looks at the chip.
    pub fn with<T>(&self, look: impl FnOnce(&C) -> T) -> T {
        look(&self.state.borrow().chip)
    }

    /// The world as it is now.
    pub fn fork(&self) -> C {
        self.state.borrow().chip.clone()
    }

    /// Does `operation` on the chip, and on a fork for every cut in it.
    fn operate(&self, operation: impl Fn(&mut C) -> Result<(), Error>) -> Result<(), Error> {
        let hook = self.hook.borrow().clone();
        let Some(hook) = hook else {
            return operation(&mut self.state.borrow_mut().chip);
        };
        let before = self.fork();
        let result = operation(&mut self.state.borrow_mut().chip);
        let end = self.with(|chip| chip.operations());
        for number in before.operations()..end {
            for tear in hook.tears(number) {
                let mut fork = before.clone();
                fork.power_mut().cut_at(number, tear);
                if operation(&mut fork) == Err(Error::PowerLost) {
                    hook.forked(number, tear, fork);
                }
            }
        }
        result
    }

    /// Does the program that was held back.
    fn let_go(&self) -> Result<(), Error> {
        let held = self.state.borrow_mut().held.take();
        match held {
            Some(Held { offset, data }) => self.operate(|chip| chip.program(offset, &data)),
            None => Ok(()),
        }
    }

    fn held_block(&self) -> Option<u32> {
        let state = self.state.borrow();
        state.held.as_ref().map(|held| self.geometry.block_of(held.offset))
    }

    /// Programs now, or later if that mistake is planted.
    fn program_or_hold(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        if self.mistake != Some(Mistake::Reordered) {
            return self.operate(|chip| chip.program(offset, data));
        }
        match self.held_block() {
            Some(block) if block != self.geometry.block_of(offset) => {
                self.operate(|chip| chip.program(offset, data))?;
                self.let_go()
            }
            _ => {
                self.let_go()?;
                self.state.borrow_mut().held = Some(Held { offset, data: data.to_vec() });
                Ok(())
            }
        }
    }
}

impl<C: Chip> Flash for Probe<C> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, Error> {
        let state = self.state.borrow();
        let result = state.chip.read(offset, buffer);
        if let Some(held) = &state.held {
            let start = held.offset.saturating_sub(offset) as usize;
            let skip = offset.saturating_sub(held.offset) as usize;
            let bytes = held.data.iter().skip(skip);
            buffer.iter_mut().skip(start).zip(bytes).for_each(|(cell, byte)| *cell &= byte);
        }
        result
    }

    fn read_oob(&self, offset: u64, mode: OobMode, buffer: &mut [u8]) -> Result<Corrected, Error> {
        self.state.borrow().chip.read_oob(offset, mode, buffer)
    }

    fn is_bad(&self, block: u32) -> Result<bool, Error> {
        self.state.borrow().chip.is_bad(block)
    }
}

impl<C: Chip> FlashMut for Probe<C> {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.program_or_hold(offset, data)
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), Error> {
        self.operate(|chip| chip.program_oob(offset, mode, data))
    }

    fn erase(&mut self, block: u32) -> Result<(), Error> {
        if self.mistake == Some(Mistake::SkippedErase) {
            let mut state = self.state.borrow_mut();
            state.erases += 1;
            if state.erases.is_multiple_of(3) {
                return Ok(());
            }
        }
        if self.held_block() == Some(block) {
            self.let_go()?;
        }
        self.operate(|chip| chip.erase(block))?;
        self.let_go()
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), Error> {
        self.operate(|chip| chip.mark_bad(block))
    }

    fn sync(&mut self) -> Result<(), Error> {
        self.let_go()?;
        self.operate(FlashMut::sync)
    }
}

//! A flash that forks the world at every program and erase.

use std::cell::{Cell, RefCell, RefMut};
use std::ops::Range;
use std::rc::Rc;

use flysch_api::flash::{Corrected, Flash, FlashError, FlashGeometry, FlashMut, OobMode};
use flysch_models::flash::Tear;
use flysch_models::random::Random;

use super::chip::Chip;
use super::mistakes::{Mistake, Planted};

/// Minimum number of bytes programmed in one operation.
const PROGRAM_MIN: usize = 64;
/// Maximum number of operations for anything else: rewriting a bad-block table.
const TABLE_OPERATIONS: u64 = 64;
/// Number of attaches that are broken off before one completes.
const BROKEN_OFF: u32 = 2;
/// A broken-off attach makes fewer calls than a power of two whose exponent is below this.
const CALLS_LOG2: u64 = 11;

/// Receives every fork.
pub trait Hook {
    /// Whether any of `operations` is to be cut.
    fn wants(&self, operations: Range<u64>) -> bool;
    /// The ways in which `operation` is to be cut.
    fn tears(&self, operation: u64) -> Vec<Tear>;
    /// `chip` is the world after power failed during `operation`.
    fn forked(&self, operation: u64, tear: Tear, chip: Chip);
}

/// A chip, and the state of mistakes.
pub(super) struct State {
    pub chip: Chip,
    pub planted: Planted,
}

/// A flash over a chip model. Clones are the same flash: one mounts it, another watches.
pub struct Probe {
    geometry: FlashGeometry,
    state: Rc<RefCell<State>>,
    hook: Rc<RefCell<Option<Rc<dyn Hook>>>>,
    /// Number of calls that are still answered; `None` for all.
    patience: Rc<Cell<Option<u64>>>,
    mistake: Option<Mistake>,
}

impl Clone for Probe {
    fn clone(&self) -> Self {
        let Self { geometry, state, hook, patience, mistake } = self;
        let (state, hook, patience) = (state.clone(), hook.clone(), patience.clone());
        Self { geometry: *geometry, state, hook, patience, mistake: *mistake }
    }
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}

impl Probe {
    /// A flash over `chip` that passes forks to `hook`.
    pub fn new(chip: Chip, hook: Option<Rc<dyn Hook>>, mistake: Option<Mistake>) -> Self {
        let geometry = *chip.geometry();
        let state = State { chip, planted: Planted::default() };
        let (state, hook) = (Rc::new(RefCell::new(state)), Rc::new(RefCell::new(hook)));
        Self { geometry, state, hook, patience: Rc::default(), mistake }
    }

    /// Lets `attach` begin and be broken off after a number of calls that depends on `seed`,
    /// repeatedly.
    pub fn break_off(&self, seed: u64, attach: impl Fn()) {
        let mut random = Random::new(seed ^ self.with(Chip::operations).rotate_left(40));
        for _ in 0..BROKEN_OFF {
            let most = 1 << random.below(CALLS_LOG2);
            self.patience.set(Some(random.below(most)));
            attach();
        }
        self.patience.set(None);
    }

    /// Fails if a call is no longer answered.
    fn is_there(&self) -> Result<(), FlashError> {
        match self.patience.get() {
            Some(0) => return Err(FlashError::PowerLost),
            Some(left) => self.patience.set(Some(left - 1)),
            None => {}
        }
        Ok(())
    }

    /// Stops forking.
    pub fn disarm(&self) {
        self.hook.borrow_mut().take();
    }

    /// Lets time pass.
    pub fn wait(&self, ns: u64) {
        self.state.borrow_mut().chip.wait(ns);
    }

    /// The planted mistake.
    pub fn mistake(&self) -> Option<Mistake> {
        self.mistake
    }

    /// Examines the chip.
    pub fn with<T>(&self, look: impl FnOnce(&Chip) -> T) -> T {
        look(&self.state.borrow().chip)
    }

    /// A copy of the current world.
    pub fn fork(&self) -> Chip {
        self.state.borrow().chip.clone()
    }

    /// Performs `operation`, of at most `most` programs and erases, on the chip, and on a fork for
    /// every cut in it.
    fn operate(
        &self,
        most: u64,
        operation: impl Fn(&mut Chip) -> Result<(), FlashError>,
    ) -> Result<(), FlashError> {
        let first = self.with(Chip::operations);
        let hook = self.hook.borrow().clone().filter(|hook| hook.wants(first..first + most));
        let Some(hook) = hook else {
            return operation(&mut self.state.borrow_mut().chip);
        };
        let before = self.fork();
        let result = operation(&mut self.state.borrow_mut().chip);
        let end = self.with(Chip::operations);
        for number in first..end {
            for tear in hook.tears(number) {
                let mut fork = before.clone();
                fork.power_mut().cut_at(number, tear);
                if operation(&mut fork) == Err(FlashError::PowerLost) {
                    hook.forked(number, tear, fork);
                }
            }
        }
        result
    }

    /// Maximum number of operations in which this many bytes are programmed.
    fn programs(len: usize) -> u64 {
        (len / PROGRAM_MIN) as u64 + 2
    }

    pub(super) fn state(&self) -> RefMut<'_, State> {
        self.state.borrow_mut()
    }

    pub(super) fn program_rightly(&self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.operate(Self::programs(data.len()), |chip| chip.program(offset, data))
    }

    pub(super) fn erase_rightly(&self, block: u32) -> Result<(), FlashError> {
        self.operate(TABLE_OPERATIONS, |chip| chip.erase(block))
    }
}

impl Flash for Probe {
    fn geometry(&self) -> &FlashGeometry {
        &self.geometry
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Corrected, FlashError> {
        self.is_there()?;
        let result = self.state.borrow().chip.read(offset, buffer);
        if self.mistake.is_none() {
            return result;
        }
        self.read_wrongly(offset, buffer, result)
    }

    fn read_oob(
        &self,
        offset: u64,
        mode: OobMode,
        buffer: &mut [u8],
    ) -> Result<Corrected, FlashError> {
        self.is_there()?;
        self.state.borrow().chip.read_oob(offset, mode, buffer)
    }

    fn is_bad(&self, block: u32) -> Result<bool, FlashError> {
        self.is_there()?;
        self.state.borrow().chip.is_bad(block)
    }
}

impl FlashMut for Probe {
    fn program(&mut self, offset: u64, data: &[u8]) -> Result<(), FlashError> {
        self.is_there()?;
        self.program_wrongly(offset, data)
    }

    fn program_oob(&mut self, offset: u64, mode: OobMode, data: &[u8]) -> Result<(), FlashError> {
        self.is_there()?;
        self.operate(TABLE_OPERATIONS, |chip| chip.program_oob(offset, mode, data))
    }

    fn erase(&mut self, block: u32) -> Result<(), FlashError> {
        self.is_there()?;
        self.erase_wrongly(block)
    }

    fn mark_bad(&mut self, block: u32) -> Result<(), FlashError> {
        self.is_there()?;
        self.operate(TABLE_OPERATIONS, |chip| chip.mark_bad(block))
    }

    fn sync(&mut self) -> Result<(), FlashError> {
        self.is_there()?;
        self.sync_wrongly()?;
        self.operate(TABLE_OPERATIONS, FlashMut::sync)
    }
}

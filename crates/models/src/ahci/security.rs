//! The security feature set (ACS 4.18): a password, locked, frozen.

use flysch_wire::ata::identify::security;

/// Tries of a password until power is cycled.
const ATTEMPTS: u8 = 5;

/// Where a disk stands with its password.
#[derive(Debug, Default)]
pub(super) struct Security {
    password: Option<[u8; 32]>,
    is_locked: bool,
    is_frozen: bool,
    pub(super) is_erase_prepared: bool,
    attempts: u8,
}

impl Security {
    pub(super) fn new(password: Option<[u8; 32]>) -> Self {
        Self { is_locked: password.is_some(), password, attempts: ATTEMPTS, ..Self::default() }
    }

    pub(super) fn power_on(&mut self) {
        self.is_locked = self.password.is_some();
        (self.is_frozen, self.attempts) = (false, ATTEMPTS);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.password.is_some()
    }

    /// Whether the medium is out of reach.
    pub(super) fn is_locked(&self) -> bool {
        self.is_locked
    }

    /// Word 128.
    pub(super) fn word(&self) -> u16 {
        let bit = |on: bool, bits: u16| if on { bits } else { 0 };
        security::SUPPORTED
            | bit(self.is_enabled(), security::ENABLED)
            | bit(self.is_locked, security::LOCKED)
            | bit(self.is_frozen, security::FROZEN)
            | bit(self.attempts == 0, security::COUNT_EXPIRED)
    }

    pub(super) fn freeze(&mut self) -> bool {
        let may = !self.is_locked;
        self.is_frozen |= may;
        may
    }

    pub(super) fn set_password(&mut self, password: [u8; 32]) -> bool {
        if self.is_locked || self.is_frozen {
            return false;
        }
        self.password = Some(password);
        true
    }

    /// Whether this is the password; tries are counted.
    fn check(&mut self, password: [u8; 32]) -> bool {
        if self.attempts == 0 || self.is_frozen {
            return false;
        }
        let right = self.password == Some(password);
        if !right {
            self.attempts -= 1;
        }
        right
    }

    pub(super) fn unlock(&mut self, password: [u8; 32]) -> bool {
        let right = self.check(password);
        self.is_locked &= !right;
        right
    }

    pub(super) fn disable(&mut self, password: [u8; 32]) -> bool {
        let right = !self.is_locked && self.check(password);
        if right {
            self.password = None;
        }
        right
    }

    /// Whether everything is to be erased: the password is gone with it.
    pub(super) fn erase(&mut self, password: [u8; 32]) -> bool {
        let right = core::mem::take(&mut self.is_erase_prepared) && self.check(password);
        if right {
            (self.password, self.is_locked) = (None, false);
        }
        right
    }

    pub(super) fn prepare_erase(&mut self) -> bool {
        self.is_erase_prepared = !self.is_frozen;
        self.is_erase_prepared
    }
}

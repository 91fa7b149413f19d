//! The security feature set (ACS 4.18): two passwords, locked, frozen.

use flysch_wire::ata::identify::security;

/// Tries of a password until power is cycled.
const ATTEMPTS: u8 = 5;
/// The master's password as the disk is delivered, filled up with zeros.
const MASTER: &[u8] = b"FLYSCH";
/// Word 0 of the data: the master's password is meant; the level is Maximum (set), the erase
/// enhanced (erase).
const IS_MASTER: u16 = 1;
const IS_ENHANCED: u16 = 1 << 1;
const IS_MAXIMUM: u16 = 1 << 8;
/// Where the password lies.
const PASSWORD: usize = 2;

/// What a security command carries: word 0 and a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    word: u16,
    password: [u8; 32],
}

impl Words {
    pub(super) fn of(sent: &[u8]) -> Self {
        let mut this = Self { word: 0, password: [0; 32] };
        if let Some(bytes) = sent.get(..PASSWORD + 32) {
            this.word = u16::from_le_bytes([bytes[0], bytes[1]]);
            this.password.copy_from_slice(&bytes[PASSWORD..]);
        }
        this
    }

    fn is(&self, bit: u16) -> bool {
        self.word & bit != 0
    }
}

/// Where a disk stands with its passwords.
#[derive(Debug)]
pub(super) struct Security {
    /// The user's password: while there is one, security is enabled.
    password: Option<[u8; 32]>,
    master: [u8; 32],
    is_maximum: bool,
    is_locked: bool,
    is_frozen: bool,
    pub(super) is_erase_prepared: bool,
    attempts: u8,
}

impl Default for Security {
    fn default() -> Self {
        Self::new(None)
    }
}

impl Security {
    pub(super) fn new(password: Option<[u8; 32]>) -> Self {
        let mut master = [0; 32];
        master[..MASTER.len()].copy_from_slice(MASTER);
        Self {
            is_locked: password.is_some(),
            password,
            master,
            is_maximum: false,
            is_frozen: false,
            is_erase_prepared: false,
            attempts: ATTEMPTS,
        }
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
            | bit(self.is_maximum, security::MAXIMUM)
    }

    pub(super) fn freeze(&mut self) -> bool {
        let may = !self.is_locked;
        self.is_frozen |= may;
        may
    }

    /// The user's password enables security, the master's changes nothing but itself.
    pub(super) fn set_password(&mut self, words: &Words) -> bool {
        if self.is_locked || self.is_frozen {
            return false;
        }
        if words.is(IS_MASTER) {
            self.master = words.password;
        } else {
            (self.password, self.is_maximum) = (Some(words.password), words.is(IS_MAXIMUM));
        }
        true
    }

    /// Whether this is the password it says it is; tries are counted.
    fn check(&mut self, words: &Words) -> bool {
        if self.attempts == 0 || self.is_frozen {
            return false;
        }
        let right = match words.is(IS_MASTER) {
            true => words.password == self.master,
            false => Some(words.password) == self.password,
        };
        if !right {
            self.attempts -= 1;
        }
        right
    }

    pub(super) fn unlock(&mut self, words: &Words) -> bool {
        let may = !(words.is(IS_MASTER) && self.is_maximum);
        let right = may && self.check(words);
        self.is_locked &= !right;
        right
    }

    pub(super) fn disable(&mut self, words: &Words) -> bool {
        let may = !(words.is(IS_MASTER) && self.is_maximum);
        let right = may && !self.is_locked && self.check(words);
        if right {
            self.forget();
        }
        right
    }

    /// Whether everything is to be erased: the user's password is gone with it. A disk without one
    /// knows the master's alone.
    pub(super) fn erase(&mut self, words: &Words) -> bool {
        let prepared = core::mem::take(&mut self.is_erase_prepared);
        let right = prepared && !words.is(IS_ENHANCED) && self.check(words);
        if right {
            self.forget();
        }
        right
    }

    fn forget(&mut self) {
        (self.password, self.is_locked, self.is_maximum) = (None, false, false);
    }

    pub(super) fn prepare_erase(&mut self) -> bool {
        self.is_erase_prepared = !self.is_frozen;
        self.is_erase_prepared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(word: u16, text: &[u8]) -> Words {
        let mut password = [0; 32];
        password[..text.len()].copy_from_slice(text);
        Words { word, password }
    }

    #[test]
    fn a_fresh_disk_is_erased_by_its_master() {
        let mut disk = Security::default();
        assert!(!disk.erase(&words(IS_MASTER, MASTER)), "nothing prepared it");
        assert!(disk.prepare_erase());
        assert!(!disk.erase(&words(0, b"user")), "there is no user");
        assert!(disk.prepare_erase());
        assert!(!disk.erase(&words(IS_MASTER | IS_ENHANCED, MASTER)), "there is no enhanced one");
        assert!(disk.prepare_erase());
        assert!(disk.erase(&words(IS_MASTER, MASTER)));
    }

    #[test]
    fn at_the_highest_level_the_master_may_only_erase() {
        let mut disk = Security::default();
        assert!(disk.set_password(&words(IS_MASTER, b"boss")));
        assert!(!disk.is_enabled());
        for level in [0, IS_MAXIMUM] {
            assert!(disk.set_password(&words(level, b"user")));
            disk.power_on();
            assert!(disk.is_locked());
            assert_eq!(disk.unlock(&words(IS_MASTER, b"boss")), level == 0);
            assert_eq!(disk.word() & security::MAXIMUM, level);
            assert!(disk.prepare_erase() && disk.erase(&words(IS_MASTER, b"boss")));
            assert!(!disk.is_enabled() && !disk.is_locked());
        }
    }
}

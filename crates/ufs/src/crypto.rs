//! Inline encryption (JESD223 "Crypto Engine"): keys in slots of the controller, which encrypts
//! and decrypts the data of the commands that name one.
//!
//! A key goes into a slot by [`Operation::ProgramKey`](crate::Operation::ProgramKey) and leaves it
//! by [`Operation::EvictKey`](crate::Operation::EvictKey). A reset may clear the controller's
//! slots, so the driver keeps what it put there and puts it there again. A slot changes only while
//! no command that names it can be in flight; lanes refuse commands that name an empty slot or have
//! data units of another size. The driver clears its own copy of a key when the key is removed.

use crate::UfsError;
use crate::channel::{Channel, Run};
use crate::keys::{CryptoEngine, CryptoKey};
use crate::shared::Shared;
use flysch_api::machine::{Machine, Registers};
use flysch_script::{Replay, Stop};

impl CryptoEngine {
    /// Puts a key into a slot, in place of the one that is there.
    pub(crate) fn program_key<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        slot: u8,
        key: &CryptoKey,
    ) -> Run<()> {
        let slot = self.check_slot(slot)?;
        if self.capability_of(key).is_none() {
            return Err(UfsError::Unsupported("a key of this algorithm, size and data unit").into());
        }
        self.change_slot(channel, slot, Some(key))
    }

    /// Takes the key out of a slot.
    pub(crate) fn evict_key<M: Machine>(&mut self, channel: &mut Channel<M>, slot: u8) -> Run<()> {
        let slot = self.check_slot(slot)?;
        self.change_slot(channel, slot, None)
    }

    fn check_slot(&self, slot: u8) -> Result<usize, UfsError> {
        let slot = usize::from(slot);
        if slot < self.slots.len() { Ok(slot) } else { Err(UfsError::Value("the key slot")) }
    }

    fn change_slot<M: Machine>(
        &mut self,
        channel: &mut Channel<M>,
        slot: usize,
        key: Option<&CryptoKey>,
    ) -> Run<()> {
        let in_use = channel.once(|_| self.slots[slot].is_some().into()) != 0;
        if in_use {
            self.retire_key(channel, slot)?;
        }
        channel.effect(|channel| {
            self.slots[slot] = key.cloned();
            self.write(slot, &channel.machine);
            channel.shared.keys.set(slot, key.map(CryptoKey::unit));
            if in_use {
                channel.shared.orders.publish(0);
            }
        });
        Ok(())
    }

    /// Waits until no command can use a key: lanes that have obeyed start nothing with a key that
    /// they no longer see, and what they had has ended.
    fn retire_key<M: Machine>(&self, channel: &mut Channel<M>, slot: usize) -> Run<()> {
        channel.effect(|channel| channel.shared.keys.set(slot, None));
        let quiet = channel.quiesce();
        if let Err(Stop::Failed(_)) = quiet {
            channel.effect(|channel| {
                let unit = self.slots[slot].as_ref().map(CryptoKey::unit);
                channel.shared.keys.set(slot, unit);
            });
        }
        quiet
    }

    /// After the controller was enabled: every slot as it should be, whatever a reset, or someone
    /// before us, left there.
    pub(crate) fn restore_keys(&self, registers: &impl Registers, shared: &Shared) {
        for (n, key) in self.slots.iter().enumerate() {
            match key {
                Some(_) => self.write(n, registers),
                None => self.switch_off(n, registers),
            }
            shared.keys.set(n, key.as_ref().map(CryptoKey::unit));
        }
    }

    /// Takes every key out of a controller that is switched off.
    pub(crate) fn forget_keys(&mut self, registers: &impl Registers, shared: &Shared) {
        for n in 0..self.slots.len() {
            shared.keys.set(n, None);
            if self.slots[n].take().is_some() {
                self.write(n, registers);
            }
        }
    }
}

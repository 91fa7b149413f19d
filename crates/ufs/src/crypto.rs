//! Inline encryption (JESD223 "Crypto Engine"): keys in slots of the controller, which encrypts
//! and decrypts the data of the commands that name one.
//!
//! A key goes into a slot by [`Operation::ProgramKey`](crate::Operation::ProgramKey) and leaves it
//! by [`Operation::EvictKey`](crate::Operation::EvictKey). A reset may clear the controller's
//! slots, so the driver keeps what it put there and puts it there again. A slot changes only while
//! no command that names it can be in flight; lanes refuse what names an empty one, or data units
//! of another size. The driver's own copies are cleared when they go.

use crate::Error;
use crate::control::{Core, Run, Stop};
use crate::keys::{CryptoEngine, CryptoKey};
use flysch_api::machine::Machine;
use flysch_script::Player;

impl<M: Machine> Core<M> {
    /// Puts a key into a slot, in place of the one that is there.
    pub(crate) fn program_key(&mut self, slot: u8, key: &CryptoKey) -> Run<()> {
        if self.engine(slot)?.capability_of(key).is_none() {
            return Err(Error::Unsupported("a key of this algorithm, size and data unit").into());
        }
        self.change_slot(slot.into(), Some(key))
    }

    /// Takes the key out of a slot.
    pub(crate) fn evict_key(&mut self, slot: u8) -> Run<()> {
        self.engine(slot)?;
        self.change_slot(slot.into(), None)
    }

    fn engine(&self, slot: u8) -> Result<&CryptoEngine, Error> {
        let engine = self.crypto.as_ref().ok_or(Error::Unsupported("inline encryption"))?;
        let exists = usize::from(slot) < engine.slots.len();
        if exists { Ok(engine) } else { Err(Error::Value("the key slot")) }
    }

    fn change_slot(&mut self, slot: usize, key: Option<&CryptoKey>) -> Run<()> {
        let in_use = self.once(|core| core.key_in(slot).is_some().into()) != 0;
        if in_use {
            self.retire_key(slot)?;
        }
        self.effect(|core| {
            if let Some(engine) = &mut core.crypto {
                engine.slots[slot] = key.cloned();
                engine.write(slot, &core.machine);
            }
            core.shared.keys.set(slot, key.map(CryptoKey::unit));
            if in_use {
                core.shared.orders.publish(0);
            }
        });
        Ok(())
    }

    fn key_in(&self, slot: usize) -> Option<&CryptoKey> {
        self.crypto.as_ref()?.slots[slot].as_ref()
    }

    /// Lanes that have obeyed start nothing with a key that they see no more, and what they had
    /// has ended.
    fn retire_key(&mut self, slot: usize) -> Run<()> {
        self.effect(|core| core.shared.keys.set(slot, None));
        let quiet = self.quiesce();
        if let Err(Stop::Failed(_)) = quiet {
            self.effect(|core| {
                core.shared.keys.set(slot, core.key_in(slot).map(CryptoKey::unit));
            });
        }
        quiet
    }

    /// After the controller came up: every slot as it should be, whatever a reset, or someone
    /// before us, left there.
    pub(crate) fn restore_keys(&mut self) {
        let Some(engine) = &self.crypto else { return };
        for (n, key) in engine.slots.iter().enumerate() {
            match key {
                Some(_) => engine.write(n, &self.machine),
                None => engine.switch_off(n, &self.machine),
            }
            self.shared.keys.set(n, key.as_ref().map(CryptoKey::unit));
        }
    }

    /// Takes every key out of a controller that is switched off.
    pub(crate) fn forget_keys(&mut self) {
        let Some(engine) = &mut self.crypto else { return };
        for n in 0..engine.slots.len() {
            self.shared.keys.set(n, None);
            if engine.slots[n].take().is_some() {
                engine.write(n, &self.machine);
            }
        }
    }
}

//! `flysch ufs crypto`: what the controller can encrypt inline, and which slots have keys. Keys are
//! never shown: neither the controller nor the driver returns them.

use flysch_rig::Control;
use flysch_ufs::CryptoKey;
use flysch_wire::ufs::registers::CryptoCapEntry;
use serde_json::json;

use crate::failure::Failure;
use crate::output::Output;

/// The data unit sizes of a capability.
fn units(entry: &CryptoCapEntry) -> Vec<u32> {
    (0..8).filter(|bit| entry.sdusb() >> bit & 1 != 0).map(|bit| 512 << bit).collect()
}

fn in_use(slots: &[Option<CryptoKey>]) -> impl Iterator<Item = (usize, &CryptoKey)> {
    slots.iter().enumerate().filter_map(|(n, key)| key.as_ref().map(|key| (n, key)))
}

pub(super) fn run(control: &mut dyn Control, output: &mut Output) -> Result<(), Failure> {
    let Some(engine) = control.crypto() else {
        let none = flysch_ufs::UfsError::Unsupported("inline encryption");
        return Err(none.into());
    };
    let slots = engine.slots();
    if output.json() {
        let capabilities: Vec<_> = engine
            .capabilities()
            .iter()
            .map(|entry| {
                json!({
                    "algorithm": entry.algid().name(),
                    "key_bits": entry.ks().bytes().map(|bytes| bytes * 8),
                    "data_units": units(entry),
                })
            })
            .collect();
        let keys: Vec<_> = in_use(slots)
            .map(|(slot, key)| {
                json!({
                    "slot": slot,
                    "algorithm": key.algorithm().name(),
                    "key_bits": key.size().bytes().map(|bytes| bytes * 8),
                    "data_unit": key.unit().bytes(),
                })
            })
            .collect();
        return output.value(&json!({
            "slots": slots.len(),
            "capabilities": capabilities,
            "keys": keys,
        }));
    }
    let used = in_use(slots).count();
    output.line(format!("key slots  {}, {used} in use", slots.len()))?;
    for entry in engine.capabilities() {
        let units: Vec<String> = units(entry).iter().map(u32::to_string).collect();
        let (algorithm, bits) = (entry.algid(), entry.ks());
        output
            .line(format!("cipher     {algorithm}, {bits} bits, data units {}", units.join(" ")))?;
    }
    for (slot, key) in in_use(slots) {
        let (algorithm, bits, unit) = (key.algorithm(), key.size(), key.unit().bytes());
        output.line(format!("slot {slot:<6}{algorithm}, {bits} bits, data units {unit}"))?;
    }
    Ok(())
}

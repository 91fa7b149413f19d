//! The energy that a modelled device used during a run.

use flysch_models::media::energy as model;
use serde::{Deserialize, Serialize};

/// The energy used by a device, and the work done with it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Total joules.
    pub joules: f64,
    /// Seconds of the device's clock, including pauses and warm-up.
    pub seconds: f64,
    /// Bytes that crossed its link.
    pub bytes: u64,
    /// Mean power, watts.
    pub watts: f64,
    /// Joules per GiB that crossed the link; `None` if nothing did.
    pub joules_per_gib: Option<f64>,
    /// By state: seconds in it.
    pub states: Vec<EnergyPart>,
    /// By kind of work: how often.
    pub work: Vec<EnergyPart>,
}

/// A state or a kind of work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnergyPart {
    /// Its name.
    pub name: String,
    /// Seconds in the state; how often the work was done.
    pub amount: f64,
    /// Joules.
    pub joules: f64,
}

impl Energy {
    /// The difference between two readings of the same meter.
    pub fn between(before: &model::Energy, after: &model::Energy) -> Self {
        let rise = |before: &[model::Part], after: &[model::Part], unit: f64| -> Vec<EnergyPart> {
            let earlier = |name| before.iter().find(|part| part.name == name).copied();
            let one = |now: &model::Part| {
                let then = earlier(now.name);
                let amount = now.amount - then.map_or(0, |then| then.amount.min(now.amount));
                let picojoules =
                    now.picojoules - then.map_or(0, |then| then.picojoules.min(now.picojoules));
                let (amount, joules) = (amount as f64 * unit, picojoules as f64 * 1e-12);
                EnergyPart { name: now.name.into(), amount, joules }
            };
            after.iter().map(one).filter(|part| part.amount > 0.0).collect()
        };
        let states = rise(&before.states, &after.states, 1e-9);
        let work = rise(&before.work, &after.work, 1.0);
        let joules = states.iter().chain(&work).map(|part| part.joules).sum::<f64>();
        let seconds = states.iter().map(|part| part.amount).sum::<f64>();
        let bytes = work.iter().find(|part| part.name == "bytes");
        let bytes = bytes.map_or(0, |part| part.amount as u64);
        let watts = if seconds > 0.0 { joules / seconds } else { 0.0 };
        let joules_per_gib = (bytes > 0).then(|| joules * f64::from(1 << 30) / bytes as f64);
        Self { joules, seconds, bytes, watts, joules_per_gib, states, work }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Part;

    #[test]
    fn only_what_was_taken_between_counts() {
        let part = |name, amount, picojoules| Part { name, amount, picojoules };
        let before = model::Energy {
            states: vec![part("awake", 1_000_000_000, 500_000_000_000)],
            work: vec![part("bytes", 100, 100)],
        };
        let after = model::Energy {
            states: vec![part("awake", 3_000_000_000, 1_500_000_000_000), part("asleep", 0, 0)],
            work: vec![part("bytes", 100 + (1 << 29), 1_000_000_000_100)],
        };
        let energy = Energy::between(&before, &after);
        assert_eq!((energy.joules, energy.seconds, energy.watts), (2.0, 2.0, 1.0));
        assert_eq!((energy.bytes, energy.joules_per_gib), (1 << 29, Some(4.0)));
        assert_eq!((energy.states.len(), energy.work.len()), (1, 1));
    }
}

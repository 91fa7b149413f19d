//! Autonomous power state transitions (8.15.2): the host tells the controller which of its power
//! states it may enter by itself, and when.

use crate::channel::{Channel, Run};
use crate::facts::NvmeFacts;
use flysch_api::machine::Machine;
use flysch_script::Replay;
use flysch_wire::nvme::feature::{APST_BYTES, ApstEntry};
use flysch_wire::nvme::{AdminOpcode, FeatureId, IdentifyController, Sqe};

/// Pairs of a latency limit and a delay. A state whose entry and exit together take at most this
/// many microseconds is entered after this many milliseconds without work; the values are those of
/// Linux (`primary_timeout_ms` and so on of `nvme_core`). A state that takes longer is not used.
const STAGES: [(u32, u32); 2] = [(15_000, 100), (100_000, 2_000)];

/// The table for the states of `controller`: from each state to the deepest state below it. All
/// zero if there is no state to enter.
pub(crate) fn table(controller: &IdentifyController) -> [u8; APST_BYTES] {
    let mut table = [0; APST_BYTES];
    let mut target = ApstEntry::new();
    for number in (0..controller.power_states()).rev() {
        let entry = target.into_bits().to_le_bytes();
        table[usize::from(number) * entry.len()..][..entry.len()].copy_from_slice(&entry);
        let state = controller.power_state(number);
        let latency = state.entry_us.saturating_add(state.exit_us);
        let stage = STAGES.iter().find(|(most, _)| latency <= *most);
        if let (true, Some((_, after))) = (state.non_operational, stage) {
            target = ApstEntry::new().with_itps(number).with_itpt(*after);
        }
    }
    table
}

impl NvmeFacts {
    /// Lets a controller with such states enter them by itchannel. If it refuses, it stays awake.
    pub(crate) fn save_power<M: Machine>(&mut self, channel: &mut Channel<M>) -> Run<()> {
        channel.effect(|_| self.saves_power = false);
        let controller = &self.controller;
        let table = table(controller);
        let is_empty = table.iter().all(|byte| *byte == 0);
        if !channel.options.power_saving || controller.apsta & 1 == 0 || is_empty {
            return Ok(());
        }
        channel.put_admin_data(&table);
        let opcode = AdminOpcode::SetFeatures.into_bits();
        let cdw10 = [FeatureId::Apst.into_bits().into(), 1, 0, 0, 0, 0];
        let data = [channel.layout.admin_data.address(), 0];
        let status = channel.command(Sqe { opcode, data, cdw10, ..Sqe::default() }, None)?;
        channel.effect(|_| self.saves_power = status.status == 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flysch_wire::nvme::identify::PowerState;

    /// Two operational states and two non-operational ones: a quick and a slow one, and one that
    /// takes too long.
    #[test]
    fn every_state_goes_to_the_next_one_without_work() {
        let mut controller = IdentifyController { npss: 4, ..Default::default() };
        let state = |non_operational, us: u32| PowerState {
            max_microwatts: 1000,
            non_operational,
            entry_us: us / 2,
            exit_us: us / 2,
        };
        let states = [
            state(false, 0),
            state(false, 0),
            state(true, 2_000),
            state(true, 60_000),
            state(true, 200_000),
        ];
        (0..).zip(states).for_each(|(number, state)| controller.set_power_state(number, state));
        let table = table(&controller);
        let entry = |n: usize| {
            let bytes: [u8; 8] = table[n * 8..][..8].try_into().expect("eight");
            let entry = ApstEntry::from_bits(u64::from_le_bytes(bytes));
            (entry.itps(), entry.itpt())
        };
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(entry),
            [(2, 100), (2, 100), (3, 2000), (0, 0), (0, 0), (0, 0)]
        );
        assert_eq!(super::table(&IdentifyController::default()), [0; APST_BYTES]);
    }
}

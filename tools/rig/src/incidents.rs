//! What went wrong on a stack, from all its counters, and why it ended.

use flysch_api::machine::{Clock, Machine};
use flysch_bench::results::Incident;
use flysch_cam::Statistics;
use flysch_models::ahci::Ahci;
use flysch_models::emmc::Emmc;
use flysch_models::faults::{Injector, Kind, Plan};
use flysch_models::machine::Inline;
use flysch_models::media::energy::Energy;
use flysch_models::nvme::Nvme;
use flysch_models::store::FullFile;
use flysch_models::ufs::{Loss, Threaded, Ufs as Model};
use flysch_ufs::ErrorLog;

/// A machine that knows more than its driver sees.
pub(crate) trait Witness: Machine {
    /// Injected faults, and the writes affected by losses of power.
    fn injected(&self) -> Vec<Incident> {
        Vec::new()
    }

    /// Why it ended, or could not do its work: the cause behind the driver's error.
    fn failure(&self) -> Option<String>;

    /// Injects `plan`, counted from now.
    fn arm(&self, plan: Plan) {
        let _ = plan;
    }

    /// The energy that the device has used so far, if it is modelled.
    fn energy(&self) -> Option<Energy> {
        None
    }

    /// The same for the device at a port of a multiplier, if there is one.
    fn energy_behind(&self, fan: u8) -> Option<Energy> {
        let _ = fan;
        self.energy()
    }
}

impl Witness for Inline<Model> {
    fn injected(&self) -> Vec<Incident> {
        self.with_model(|model| of_model(model))
    }

    fn failure(&self) -> Option<String> {
        self.with_model(|model| model.store_failure())
    }

    fn arm(&self, plan: Plan) {
        self.with_model(|model| model.arm_faults(plan));
    }

    fn energy(&self) -> Option<Energy> {
        let now = self.now();
        self.with_model(|model| Some(model.energy(now)))
    }
}

impl Witness for Inline<Nvme> {
    fn injected(&self) -> Vec<Incident> {
        self.with_model(|model| of_nvme(model))
    }

    fn failure(&self) -> Option<String> {
        self.with_model(|model| model.store_failure())
    }

    fn arm(&self, plan: Plan) {
        self.with_model(|model| model.arm_faults(plan));
    }

    fn energy(&self) -> Option<Energy> {
        let now = self.now();
        self.with_model(|model| Some(model.energy(now)))
    }
}

impl Witness for Inline<Ahci> {
    fn injected(&self) -> Vec<Incident> {
        self.with_model(|model| of_ahci(model))
    }

    fn failure(&self) -> Option<String> {
        self.with_model(|model| model.store_failure())
    }

    fn arm(&self, plan: Plan) {
        self.with_model(|model| model.arm_faults(plan));
    }

    fn energy(&self) -> Option<Energy> {
        self.energy_behind(0)
    }

    fn energy_behind(&self, fan: u8) -> Option<Energy> {
        let now = self.now();
        // Targets have one port with something at it.
        self.with_model(|model| (0..32).find_map(|port| model.energy(port, fan, now)))
    }
}

impl Witness for Inline<Emmc> {
    fn injected(&self) -> Vec<Incident> {
        self.with_model(|model| of_emmc(model))
    }

    fn failure(&self) -> Option<String> {
        self.with_model(|model| model.store_failure())
    }

    fn arm(&self, plan: Plan) {
        self.with_model(|model| model.arm_faults(plan));
    }

    fn energy(&self) -> Option<Energy> {
        let now = self.now();
        self.with_model(|model| Some(model.energy(now)))
    }
}

impl Witness for Threaded {
    fn injected(&self) -> Vec<Incident> {
        self.with_model(|model| of_model(model)).unwrap_or_default()
    }

    fn failure(&self) -> Option<String> {
        match self.with_model(|model| model.store_failure()) {
            Some(failure) => failure,
            None => Some("the thread of the model ended, which is a fault of this program".into()),
        }
    }

    fn arm(&self, plan: Plan) {
        self.with_model(|model| model.arm_faults(plan));
    }

    fn energy(&self) -> Option<Energy> {
        let now = self.now();
        self.with_model(move |model| model.energy(now))
    }
}

impl Witness for flysch_qemu::Machine {
    fn failure(&self) -> Option<String> {
        self.ended()
    }
}

impl Witness for flysch_vfio::Machine {
    fn failure(&self) -> Option<String> {
        self.ended()
    }
}

pub(crate) fn incident(source: &str, what: &str, count: u64) -> Incident {
    Incident { source: source.into(), what: what.into(), count }
}

/// The UFS model's counters.
pub(crate) fn of_model(model: &Model) -> Vec<Incident> {
    let mut all = of_faults(model.faults(), &Kind::UFS, model.lost());
    all.extend(model.full_files().map(|full| of_full(&full)));
    all
}

/// The NVMe model's counters.
pub(crate) fn of_nvme(model: &Nvme) -> Vec<Incident> {
    let mut all = of_faults(model.faults(), &Kind::NVME, model.lost());
    all.extend(model.full_files().map(|full| of_full(&full)));
    all
}

/// The eMMC model's counters.
pub(crate) fn of_emmc(model: &Emmc) -> Vec<Incident> {
    let mut all = of_faults(model.faults(), &Kind::EMMC, model.lost());
    all.extend(model.full_files().map(|full| of_full(&full)));
    all
}

/// The AHCI model's counters.
pub(crate) fn of_ahci(model: &Ahci) -> Vec<Incident> {
    let mut all = of_faults(model.faults(), &Kind::AHCI, model.lost());
    all.extend(model.full_files().map(|full| of_full(&full)));
    all
}

/// A file of this machine could not grow: no fault of the device, whatever it reported.
fn of_full(FullFile { path, times }: &FullFile) -> Incident {
    let path = path.display();
    incident(
        "host file",
        &format!("{path} has no room left (make some on its file system)"),
        *times,
    )
}

/// The counters of a model with these kinds of fault.
fn of_faults(faults: &Injector, kinds: &[Kind], lost: Loss) -> Vec<Incident> {
    let count = |kind: &Kind| incident("injected", kind.name(), faults.count(*kind));
    let mut all: Vec<Incident> = kinds.iter().map(count).collect();
    all.push(incident("power", "blocks lost", lost.vanished));
    all.push(incident("power", "blocks torn", lost.torn));
    all
}

/// The command layer's counters, of all lanes together.
pub(crate) fn of_disks<'a>(disks: impl Iterator<Item = &'a Statistics> + Clone) -> Vec<Incident> {
    type Get = fn(&Statistics) -> u64;
    let kinds: [(&str, Get); 14] = [
        ("retries", |s| s.retries),
        ("timeouts", |s| s.timeouts),
        ("lost in resets", |s| s.resets),
        ("host errors", |s| s.host_errors),
        ("medium errors", |s| s.medium_errors),
        ("hardware errors", |s| s.hardware_errors),
        ("aborted commands", |s| s.aborted_commands),
        ("unit attentions", |s| s.unit_attentions),
        ("deferred errors", |s| s.deferred_errors),
        ("recovered", |s| s.recovered),
        ("busy", |s| s.busy),
        ("task set full", |s| s.task_set_full),
        ("short transfers", |s| s.short_transfers),
        ("strays", |s| s.strays),
    ];
    let sum = |(what, get): (&str, Get)| incident("disk", what, disks.clone().map(get).sum());
    kinds.into_iter().map(sum).collect()
}

/// The driver's counters.
pub(crate) fn of_driver(log: &ErrorLog) -> impl Iterator<Item = Incident> + '_ {
    log.counts().map(|(kind, count)| incident("driver", kind.name(), count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_room_is_told_by_its_name_and_not_as_the_device() {
        let told = of_full(&FullFile { path: "/images/unit.img".into(), times: 3 });
        assert_eq!((told.source.as_str(), told.count), ("host file", 3));
        assert!(told.what.contains("/images/unit.img") && told.what.contains("no room"));
    }
}

//! One test for each driver: bring-up, discovery, and the disk.

use flysch_api::machine::{Clock as _, DmaAllocator, Machine as _};
use flysch_cam::{ada, nda, sdda};

use crate::disk;
use crate::machine::Bare;

fn memory(machine: &Bare) -> DmaAllocator {
    DmaAllocator::new(machine.memory().clone())
}

/// Whole microseconds for `what`, and its result.
fn timed<T>(machine: &Bare, what: impl FnOnce() -> T) -> (u128, T) {
    let before = machine.now();
    let done = what();
    ((machine.now() - before).as_micros(), done)
}

/// UFS with both queue designs, if the controller has both.
pub fn ufs(machine: &Bare) {
    use flysch_ufs::QueueMode::{Mcq, Sdq};
    if ufs_with(machine, Sdq) {
        ufs_with(machine, Mcq);
    }
}

/// UFS with one queue design; returns whether the controller has MCQ.
fn ufs_with(machine: &Bare, queue: flysch_ufs::QueueMode) -> bool {
    use flysch_ufs::{Host, QueueMode, UfsOptions};
    let name = if queue == QueueMode::Mcq { "mcq" } else { "sdq" };
    let options = UfsOptions { queue, ..UfsOptions::default() };
    let mut memory = memory(machine);
    let driver = memory.take(Host::<Bare>::memory_len(&options), 4096).expect("memory");
    let mut host = Host::new(machine.clone(), driver, options).expect("host");
    let (taken, up) = timed(machine, || host.bring_up(machine));
    up.expect("bring-up");
    let version = host.version().number();
    say!("{name}: UFSHCI {}.{}, up in {taken} us", version.0, version.1);
    let has_mcq = host.capabilities().mcqs();
    let mut port = host.into_ports().remove(0);
    let scratch = memory.take(64 << 10, 4096).expect("memory");
    let units = flysch_cam::scan(&mut port, machine, &scratch).expect("scan");
    let unit = units.first().expect("a logical unit");
    let shape = unit.shape().expect("a disk");
    say!("{name}: {unit} lun {}: {} blocks of {} bytes", unit.lun, shape.blocks, shape.block_size);
    disk::story(machine, name, (port, shape), &mut memory);
    has_mcq
}

/// NVMe: the first namespace.
pub fn nvme(machine: &Bare) {
    use flysch_nvme::{Host, NvmeOptions};
    let options = NvmeOptions::default();
    let mut memory = memory(machine);
    let driver = memory.take(Host::<Bare>::memory_len(&options), 4096).expect("memory");
    let mut host = Host::new(machine.clone(), driver, options).expect("host");
    let (taken, up) = timed(machine, || host.bring_up(machine));
    up.expect("bring-up");
    say!("nvme: NVMe {}, up in {taken} us", host.version());
    let device = host.device();
    let space = device.namespaces.first().expect("a namespace");
    let shape = nda::shape(space.id, &device.controller, &space.data).expect("a disk");
    say!("nvme: namespace {}: {} blocks of {} bytes", space.id, shape.blocks, shape.block_size);
    disk::story(machine, "nvme", (host.into_ports().remove(0), shape), &mut memory);
}

/// AHCI: the disk at the first port with one.
pub fn ahci(machine: &Bare) {
    use flysch_ahci::{AhciOptions, Host, Quirk};
    let options = AhciOptions::default();
    let mut memory = memory(machine);
    let driver = memory.take(Host::<Bare>::memory_len(&options), 4096).expect("memory");
    let mut host = Host::new(machine.clone(), driver, options).expect("host");
    let (taken, up) = timed(machine, || host.bring_up(machine));
    up.expect("bring-up");
    let version = host.version();
    say!("ahci: AHCI {}.{}, up in {taken} us", version >> 16, version >> 8 & 0xFF);
    let mut ports = host.into_ports();
    let found = ports.iter().position(|port| port.device().is_some());
    let port = ports.swap_remove(found.expect("a disk at a port"));
    let device = port.device().expect("a disk");
    let ways = ada::Ways {
        queued: device.queued,
        force_unit_access: !device.quirks.has(Quirk::NoFua),
        trims: !device.quirks.has(Quirk::NoTrim),
    };
    let shape = ada::shape(&device.identify, ways).expect("a disk");
    let (number, blocks) = (port.number(), shape.blocks);
    say!("ahci: port {number}: {blocks} blocks of {} bytes", shape.block_size);
    disk::story(machine, "ahci", (port, shape), &mut memory);
}

/// The card behind an SD host controller: eMMC or SD.
pub fn card(machine: &Bare) {
    use flysch_emmc::{EmmcOptions, Host};
    let options = EmmcOptions::default();
    let mut memory = memory(machine);
    let driver = memory.take(Host::<Bare>::memory_len(&options), 4096).expect("memory");
    let mut host = Host::new(machine.clone(), driver, options).expect("host");
    let (taken, up) = timed(machine, || host.bring_up(machine));
    up.expect("bring-up");
    let device = host.device();
    say!("card: SDHCI {}, {:?}, up in {taken} us", host.version(), device.kind);
    let card = sdda::Card {
        sectors: device.partition_sectors(device.partition),
        block_size: device.block_size(),
        cache: device.cache,
        reliable_write: device.has_reliable_write(),
        trim: device.has_trim(),
        write_protected: device.csd.write_protected,
    };
    let shape = sdda::shape(device.partition, &card).expect("a disk");
    say!("card: {} blocks of {} bytes", shape.blocks, shape.block_size);
    disk::story(machine, "card", (host.into_ports().remove(0), shape), &mut memory);
}

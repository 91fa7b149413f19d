//! QEMU's UFS, NVMe, SATA, eMMC and SD devices behind an emulated Intel IOMMU: taken from Linux's
//! drivers, driven by ours through VFIO, returned.

use std::path::Path;
use std::time::Duration;

use flysch_lab::{Job, Kernel, Lab};

use crate::common::{build, command, keep, lab, put, put_command};
use crate::served::{Server, qemu_11};

mod figure;

/// What the scripts share.
const FUNCTIONS: &str = include_str!("vfio/functions.sh");
/// A machine with an IOMMU that remaps interrupts.
const IOMMU: [&str; 4] =
    ["-machine", "q35,kernel-irqchip=split", "-device", "intel-iommu,intremap=on"];
/// NVMe and UFS, alone in their groups.
const DRIVES: [&str; 6] = [
    "-device",
    "nvme,drive=nvme,serial=nvme,addr=10",
    "-device",
    "ufs,id=ufs,serial=ufs,mcq=true,mcq-maxq=4,addr=11",
    "-device",
    "ufs-lu,bus=ufs,drive=lu0",
];
/// A SATA disk, an eMMC device (QEMU 11) and an SD card, likewise. A card belongs to the preceding
/// controller.
const CARDS: [&str; 12] = [
    "-device",
    "ich9-ahci,id=ahci,addr=13",
    "-device",
    "ide-hd,bus=ahci.0,drive=sata",
    "-device",
    "sdhci-pci,addr=14",
    "-device",
    "emmc,drive=mmc,boot-partition-size=1048576,rpmb-partition-size=2097152",
    "-device",
    "sdhci-pci,addr=15",
    "-device",
    "sd-card,drive=card",
];
/// Drives of [`CARDS`] and their sizes, MiB: for the eMMC device including boot partitions and
/// replay protected memory; the rest of a card must be a power of two.
const CARD_DRIVES: [(&str, u64); 3] = [("sata", 128), ("mmc", 256 + 4), ("card", 256)];
/// Two functions of one device: nothing isolates them, so they form one group.
const PAIR: [&str; 4] = [
    "-device",
    "nvme,drive=one,serial=one,addr=12.0,multifunction=on",
    "-device",
    "nvme,drive=two,serial=two,addr=12.1",
];

/// A drive for QEMU, backed by a new file in that folder.
fn drive(name: &str, mib: u64, folder: &Path) -> [String; 2] {
    let path = folder.join(name);
    std::fs::File::create(&path).and_then(|file| file.set_len(mib << 20)).unwrap();
    let path = path.display().to_string().replace(',', ",,");
    ["-drive".into(), format!("if=none,id={name},format=raw,file={path}")]
}

/// The output of the guest, which must succeed.
fn run(lab: &Lab, job: &Job<'_>) -> String {
    let timeout = Duration::from_secs(1800);
    let done = lab.run(&Job { timeout, memory_mib: 1536, ..job.clone() });
    let done = done.unwrap_or_else(|error| panic!("{error}"));
    println!("{}", done.output);
    if done.status != 0 {
        keep(job.share);
        panic!("status {}\n{}\n{}", done.status, done.output, done.console);
    }
    done.output
}

/// [`run`] with these devices, and words for the kernel.
fn run_on(
    lab: &Lab,
    script: &str,
    share: &Path,
    arguments: &[String],
    kernel_words: &str,
) -> String {
    run(lab, &Job { arguments, kernel_words, ..Job::new(script, share) })
}

fn words(all: &[&[&str]]) -> Vec<String> {
    all.concat().into_iter().map(str::to_owned).collect()
}

#[test]
fn controllers_are_linuxs_then_ours_then_linuxs() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    let disks = tempfile::tempdir().unwrap();
    put_command(share.path());
    let mut arguments = words(&[&IOMMU]);
    let others = [("nvme", 256), ("lu0", 256), ("one", 64), ("two", 64)];
    for (name, mib) in others.into_iter().chain(CARD_DRIVES) {
        arguments.extend(drive(name, mib, disks.path()));
    }
    arguments.extend(words(&[&DRIVES, &CARDS, &PAIR]));
    let emmc = if lab.kernel() == Kernel::Release { "yes" } else { "no" };
    let script = format!("emmc={emmc}\n{FUNCTIONS}\n{}", include_str!("vfio/drives.sh"));
    let job = Job {
        arguments: &arguments,
        kernel_words: "intel_iommu=on",
        program: Some(qemu_11()),
        ..Job::new(&script, share.path())
    };
    let output = run(&lab, &job);
    for part in ["refusals", "groups", "data", "kill", "rights", "peers", "end"] {
        assert!(output.contains(&format!("ok {part}\n")), "no \"ok {part}\"");
    }
}

/// The IOMMU's driver is the judge: its log shows attempts of the device to write elsewhere.
#[test]
fn device_reaches_its_memory_and_no_other() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    let disks = tempfile::tempdir().unwrap();
    put_command(share.path());
    let test = ["test", "--package", "flysch-vfio", "--test", "device", "--no-run"];
    put(&build(&test, "device"), share.path(), "device");
    let mut arguments = words(&[&IOMMU]);
    for name in ["nvme", "lu0"] {
        arguments.extend(drive(name, 64, disks.path()));
    }
    arguments.extend(words(&[&DRIVES]));
    let script = "
        modprobe vfio-pci && ./flysch pci bind 00:10.0 || exit 3
        FLYSCH_PCI=00:10.0 ./device --nocapture || exit 4
        dmesg | grep 'DMAR:.*DMA Write.*fault addr' || exit 5";
    let output = run_on(&lab, script, share.path(), &arguments, "intel_iommu=on");
    assert!(output.contains("test result: ok. 2 passed"));
    let (_, rest) = output.split_once("Identify into ").expect("it tries");
    let address = rest.split(',').next().unwrap();
    assert!(output.contains(&format!("[00:10.0] fault addr {address} ")), "{address}");
}

/// The same with files for single devices and iommufd, in a kernel that has them (its modules are
/// built for this: the distribution has none).
#[test]
fn functions_are_opened_by_their_own_files() {
    let Some(lab) = lab() else { return };
    let Ok(modules) = lab.iommufd_modules() else {
        assert_ne!(lab.kernel(), Kernel::Release, "`flysch lab build` builds them");
        println!("skipped: these modules are built for the release's kernel");
        return;
    };
    let share = tempfile::tempdir().unwrap();
    let disks = tempfile::tempdir().unwrap();
    put_command(share.path());
    let test = ["test", "--package", "flysch-vfio", "--test", "device", "--no-run"];
    put(&build(&test, "device"), share.path(), "device");
    for module in ["iommufd", "vfio", "vfio_iommu_type1", "vfio-pci-core", "vfio-pci"] {
        let name = format!("{module}.ko");
        std::fs::copy(modules.join(&name), share.path().join(&name)).unwrap();
    }
    let mut arguments = words(&[&IOMMU]);
    for (name, mib) in [("nvme", 64), ("lu0", 64)].into_iter().chain(CARD_DRIVES) {
        arguments.extend(drive(name, mib, disks.path()));
    }
    arguments.extend(words(&[&DRIVES, &CARDS]));
    let script = format!("{FUNCTIONS}\n{}", include_str!("vfio/iommufd.sh"));
    let with = |kernel_words, script: &str| {
        let program = Some(qemu_11());
        let job = Job { program, kernel_words, ..Job::new(script, share.path()) };
        run(&lab, &Job { arguments: &arguments, ..job })
    };
    let output = with("intel_iommu=on", &script);
    for part in ["data", "choice", "bounds", "kill", "rights", "end"] {
        assert!(output.contains(&format!("ok {part}\n")), "no \"ok {part}\"");
    }
    let output = with("intel_iommu=on intremap=off", &format!("only=interrupts\n{script}"));
    assert!(output.contains("ok interrupts\n"), "no interrupt remapping");
}

/// What the machine lacks is named, together with the remedy.
#[test]
fn machine_without_an_iommu_or_without_checked_interrupts_is_refused() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    let disks = tempfile::tempdir().unwrap();
    put_command(share.path());
    let mut arguments = words(&[&IOMMU]);
    for name in ["nvme", "lu0"] {
        arguments.extend(drive(name, 64, disks.path()));
    }
    arguments.extend(words(&[&DRIVES]));
    let bind =
        "modprobe vfio-pci; ./flysch pci bind 00:10.0 2>&1 && exit 3; ./flysch pci list; true";
    let output = run_on(&lab, bind, share.path(), &arguments, "intel_iommu=off");
    assert!(output.contains("0000:00:10.0 is behind no IOMMU"), "no IOMMU");
    assert!(output.contains("intel_iommu=on"), "the remedy");
    assert!(!output.contains("vfio-pci"), "nothing was bound");
    let open = "modprobe vfio-pci; ./flysch pci bind 00:10.0 || exit 3
        ./flysch bench --on nvme@pci:00:10.0 --number_ios=1 2>&1 && exit 4; true";
    let kernel = "intel_iommu=on intremap=off";
    let output = run_on(&lab, open, share.path(), &arguments, kernel);
    assert!(output.contains("does not check interrupts"), "no interrupt remapping");
    assert!(output.contains("allow_unsafe_interrupts"), "the remedy");
}

/// The full circle: our drivers in the guest, VFIO, the emulated IOMMU, QEMU's client of vfio-user,
/// our models outside.
#[test]
fn models_outside_are_driven_by_drivers_inside() {
    let Some(lab) = lab() else { return };
    let share = tempfile::tempdir().unwrap();
    let command = command();
    put(&command, share.path(), "flysch");
    let targets = [
        "nvme,queues=3,size=256M",
        "ufs,mcq=3,size=256M",
        "ahci,size=256M",
        "emmc,size=256M",
        "sd,size=4G",
    ];
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&command, folder.path(), &targets);
    let memory = "memory-backend-memfd,id=memory,size=1536M,share=on";
    // Without this mode QEMU does not tell the server what is mapped.
    let iommu = "intel-iommu,intremap=on,caching-mode=on";
    let machine = "q35,kernel-irqchip=split,memory-backend=memory";
    let mut arguments = words(&[&["-object", memory, "-machine", machine, "-device", iommu]]);
    for at in 0..targets.len() {
        // Each has its own slot, since functions of one device share a group.
        arguments.extend(["-device".into(), server.client(at, &format!("1{at}"))]);
    }
    let script = format!("{FUNCTIONS}\n{}", include_str!("vfio/models.sh"));
    let job = Job {
        arguments: &arguments,
        kernel_words: "intel_iommu=on",
        program: Some(qemu_11()),
        ..Job::new(&script, share.path())
    };
    let output = run(&lab, &job);
    assert!(output.contains("ok data\n") && output.contains("ok kill\n"), "not all was done");
}

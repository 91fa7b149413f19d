//! Linux's own drivers on our modelled controllers, presented to the guest by `flysch serve`: this
//! finds what the two understand differently, which neither's own tests can find.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flysch_lab::{Done, Job, Lab, LabError};

use crate::common::{call, command, keep, labs, put_helper, put_program};

mod blktests;
mod faults;
mod messages;

/// A device as the guest sees it.
struct Device {
    /// The target to serve.
    target: &'static str,
    /// Loads the driver, with short timeouts.
    load: &'static str,
    /// The driver's name on the PCI bus.
    driver: &'static str,
    /// Finds the disk.
    disk: &'static str,
    /// How the driver's lines in the log begin.
    log: &'static str,
    /// Additional words for QEMU.
    qemu: &'static [&'static str],
}

const NVME_LOAD: &str = "modprobe nvme_core io_timeout=3 admin_timeout=5; modprobe nvme";
const UFS_LOAD: &str = "modprobe scsi_mod; modprobe sd_mod; modprobe ufshcd-pci; \
    sleep 2; for t in /sys/block/sd*/device/timeout; do echo 3 > $t; done";
const EMMC_LOAD: &str = "modprobe mmc_block; modprobe sdhci-pci; \
    sleep 2; echo 3000 > /sys/block/mmcblk0/queue/io_timeout";
const AHCI_LOAD: &str = "modprobe scsi_mod; modprobe sd_mod; modprobe ahci; \
    sleep 2; for t in /sys/block/sd*/device/timeout; do echo 3 > $t; done";
const NVME_DISK: &str = "echo /dev/nvme0n1";
const SCSI_DISK: &str = "lsblk -dnpo NAME | grep /dev/sd | head -1";

const NVME: Device = Device {
    target: "nvme,size=256M,queues=4",
    load: NVME_LOAD,
    driver: "nvme",
    disk: NVME_DISK,
    log: "nvme|Buffer I/O",
    qemu: &[],
};

const DEVICES: [Device; 9] = [
    NVME,
    Device { target: "nvme,size=256M,queues=2,vectors=off,sgl=off,block=512", ..NVME },
    UFS,
    Device { target: "ufs,size=256M,mcq=3", ..UFS },
    EMMC,
    EMMC_PLAIN,
    SD,
    AHCI,
    Device { target: "ahci,size=256M,block=4096,port=3", ..AHCI },
];

const EMMC: Device = Device {
    target: "emmc,size=256M",
    load: EMMC_LOAD,
    driver: "sdhci-pci",
    disk: "echo /dev/mmcblk0",
    log: "mmc|sdhci|Buffer I/O",
    qemu: &[],
};

/// Without an engine in the controller, whatever the card supports.
const EMMC_PLAIN: Device = Device { target: "emmc,size=256M,queue=off,timing=hs200", ..EMMC };

/// With UHS-I, behind a controller unknown to Linux.
const SD: Device = Device { target: "sd,size=4G", ..EMMC };

const AHCI: Device = Device {
    target: "ahci,size=256M",
    load: AHCI_LOAD,
    driver: "ahci",
    disk: SCSI_DISK,
    log: "ata|ahci|scsi|sd ",
    qemu: &[],
};

/// Behind a port multiplier with FIS-based or command-based switching, or one unknown to Linux.
const MULTIPLIERS: [Device; 3] = [
    Device { target: "ahci,size=256M,pmp=3", ..AHCI },
    Device { target: "ahci,size=256M,pmp=2,fbs=off", ..AHCI },
    Device { target: "ahci,size=256M,pmp=6", ..AHCI },
];

const UFS: Device = Device {
    target: "ufs,size=256M",
    load: UFS_LOAD,
    driver: "ufshcd",
    disk: SCSI_DISK,
    log: "ufs|scsi|sd ",
    qemu: &[],
};

/// A running server, until it is dropped.
pub(crate) struct Server {
    process: Child,
    /// One socket for each target.
    pub(crate) sockets: Vec<PathBuf>,
    folder: PathBuf,
}

impl Server {
    /// One process that serves each target on a socket in that folder.
    pub(crate) fn start(program: &Path, folder: &Path, targets: &[&str]) -> Self {
        let mut serve = Command::new(program);
        serve.arg("serve").stdout(Stdio::piped());
        let mut sockets = Vec::new();
        for target in targets {
            let socket = folder.join(format!("served{}.sock", sockets.len()));
            serve.args([target, "--socket"]).arg(&socket);
            sockets.push(socket);
        }
        let mut process = serve.spawn().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        for _ in targets {
            let mut ready = String::new();
            said.read_line(&mut ready).unwrap();
            assert!(ready.starts_with("ready"), "{targets:?}: {ready}");
        }
        Self { process, sockets, folder: folder.to_path_buf() }
    }

    /// QEMU's word for its client of function `at`, at `slot`, such as `10.0`.
    pub(crate) fn client(&self, at: usize, slot: &str) -> String {
        let path = self.sockets[at].display();
        let socket = format!(r#"{{"type":"unix","path":"{path}"}}"#);
        // The first of several must declare that there are more.
        let several = slot.ends_with(".0");
        let place = format!(r#""addr":"{slot}","multifunction":{several}"#);
        format!(r#"{{"driver":"vfio-user-pci",{place},"socket":{socket}}}"#)
    }

    /// Runs `script` in a guest that has the first device. Meanwhile a file `want.ORDER` in the
    /// share requests an action - an order of `flysch serve-ctl`, `power-cycle`, or faults to
    /// inject - and becomes `armed.ORDER`, with the answer.
    fn run(&self, program: &Path, lab: &Lab, job: &Job<'_>) -> Result<Done, LabError> {
        let devices = [flysch_lab::QemuDevice::Served(self.sockets[0].clone())];
        let job = Job { devices: &devices, ..job.clone() };
        lab.run_while(&job, &mut || {
            self.obey(program);
            true
        })
    }

    /// Carries out the guest's orders for the first device.
    fn obey(&self, program: &Path) {
        for wanted in self.wanted() {
            let answer = match wanted.as_str() {
                // Power is off for as long as two commands take.
                "power-cycle" => {
                    let lost = self.control(program, "power-cut");
                    self.control(program, "power-on");
                    lost
                }
                plan if plan.contains(':') || plan == "none" => {
                    self.control(program, &format!("inject {plan}"))
                }
                order => self.control(program, order),
            };
            let name = |state: &str| self.folder.join(format!("{state}.{wanted}"));
            std::fs::write(name("want"), answer).unwrap();
            std::fs::rename(name("want"), name("armed")).unwrap();
        }
    }

    /// The answer of `flysch serve-ctl`.
    fn control(&self, program: &Path, order: &str) -> String {
        call(program, &format!("serve-ctl {} {order}", self.sockets[0].display()), &self.folder)
    }

    fn wanted(&self) -> Vec<String> {
        let names = std::fs::read_dir(&self.folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter_map(|name| name.strip_prefix("want.").map(str::to_owned)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// QEMU 11 has the client.
pub(crate) fn qemu_11() -> PathBuf {
    std::env::var_os("FLYSCH_QEMU_11").map_or_else(|| "qemu11-system-x86_64".into(), PathBuf::from)
}

/// Where a script writes if it makes its share unusable.
const CONSOLE: &str = "/dev/ttyS0";

/// Runs a script for each kernel on each of `devices`, and judges its output. With
/// `FLYSCH_LAB_ON=ufs,` only on those whose target begins with that.
fn on_each(devices: &[Device], script: &str, judge: impl Fn(&str, &str)) {
    on_each_with(devices, script, |_| (), judge);
}

/// The same, after `lay` has put what the script needs into the share.
fn on_each_with(devices: &[Device], script: &str, lay: impl Fn(&Path), judge: impl Fn(&str, &str)) {
    let program = command();
    for lab in labs() {
        let only = std::env::var("FLYSCH_LAB_ON").unwrap_or_default();
        for device in devices.iter().filter(|device| device.target.starts_with(&only)) {
            let started = Instant::now();
            let share = tempfile::tempdir().unwrap();
            put_helper(share.path());
            put_program("fsstress", share.path());
            lay(share.path());
            for (name, text) in PROGRAMS {
                std::fs::write(share.path().join(name), text).unwrap();
            }
            // Debian's UFS drivers do not support queries by programs.
            if device.driver == UFS.driver
                && let Ok(modules) = lab.query_modules()
            {
                for name in ["ufshcd-core.ko", "ufshcd-pci.ko"] {
                    std::fs::copy(modules.join(name), share.path().join(name)).unwrap();
                }
            }
            let server = Server::start(&program, share.path(), &[device.target]);
            let Device { load, driver, disk, log, qemu, .. } = device;
            let script = format!(
                "load() {{ {load}; }}; disk() {{ {disk}; }}; driver={driver}; log='{log}'\n\
                 {FUNCTIONS}\n{script}"
            );
            let title = format!("{:?} {}", lab.kernel(), device.target);
            let arguments: Vec<String> = qemu.iter().map(|&word| word.into()).collect();
            let job = Job {
                processors: 2,
                program: Some(qemu_11()),
                timeout: Duration::from_secs(1800),
                arguments: &arguments,
                ..Job::new(&script, share.path())
            };
            let done = server.run(&program, &lab, &job);
            let output = match &done {
                // A guest that cannot use the share reports on its console.
                Err(LabError::NoResult(console)) if script.contains(CONSOLE) => console,
                Err(error) => panic!("{title}: {error}"),
                Ok(done) if done.status != 0 => {
                    keep(share.path());
                    panic!("{title}: {}\n{}\n{}", done.status, done.output, done.console);
                }
                Ok(done) => &done.output,
            };
            println!("{title}: {} s\n{output}", started.elapsed().as_secs());
            judge(&title, output);
            // Whatever the guest did, the server is still running.
            server.control(&program, "status");
        }
    }
}

const FUNCTIONS: &str = include_str!("served/functions.sh");
/// The programs put into each share.
const PROGRAMS: [(&str, &str); 2] =
    [("rpmb.pl", include_str!("served/rpmb.pl")), ("bsg.pl", include_str!("served/bsg.pl"))];

/// Probe, data, a file system, unbinding, reset.
#[test]
fn linux_drives_our_controllers() {
    let script = include_str!("served/drives.sh");
    on_each(&DEVICES, script, |title, output| {
        for wanted in ["fio errors 0", "files same", "bound again 100 times"] {
            assert!(output.contains(wanted), "{title}: {wanted}");
        }
        let timings = [
            (EMMC.target, "mmc HS400 enhanced strobe"),
            (EMMC_PLAIN.target, "mmc HS200"),
            (SD.target, "sd uhs SDR104"),
        ];
        for (_, timing) in timings.into_iter().filter(|(target, _)| title.ends_with(target)) {
            assert!(output.contains(&format!("timing {timing}\n")), "{title}: {timing}");
        }
        let (_, log) = output.split_once("log:\n").expect("a log");
        assert_eq!(log, "", "{title}");
    });
}

/// One process provides two functions of one PCI device: both work concurrently, and if one is
/// unplugged the other stays.
#[test]
fn linux_has_two_functions_of_one_device() {
    let program = command();
    for lab in labs() {
        let share = tempfile::tempdir().unwrap();
        let targets = ["nvme,size=256M,queues=2", "ufs,size=256M,mcq=3"];
        let server = Server::start(&program, share.path(), &targets);
        let script = format!(
            "load() {{ {UFS_LOAD}; {NVME_LOAD}; }}; log='ufs|sd '\n{FUNCTIONS}\n{}",
            include_str!("served/functions_of_one.sh")
        );
        let others = ["-device".into(), server.client(1, "10.1")];
        let first = ["-device".into(), server.client(0, "10.0")];
        let memory = "memory-backend-memfd,id=memory,size=1024M,share=on";
        let machine = ["-object", memory, "-machine", "q35,memory-backend=memory"];
        let arguments = [&machine.map(String::from)[..], &first, &others].concat();
        let job = Job {
            processors: 2,
            memory_mib: 1024,
            program: Some(qemu_11()),
            arguments: &arguments,
            ..Job::new(&script, share.path())
        };
        let done = lab.run_while(&job, &mut || {
            server.obey(&program);
            true
        });
        let done = done.unwrap_or_else(|error| panic!("{:?}: {error}", lab.kernel()));
        println!("{:?}\n{}", lab.kernel(), done.output);
        assert_eq!(done.status, 0, "{}\n{}", done.output, done.console);
    }
}

/// Disks behind a port multiplier: probed without any complaint, each with its own data, one
/// removed and found again, one detached during reads of all.
#[test]
fn linux_drives_disks_behind_our_multipliers() {
    for device in MULTIPLIERS {
        let (_, fans) = device.target.split_once("pmp=").expect("a multiplier");
        let fans = &fans[..1];
        let script = format!("fans={fans}\n{}", include_str!("served/multiplier.sh"));
        on_each(&[device], &script, |title, output| {
            for wanted in [
                &format!("disks {fans}\n") as &str,
                "each its own\n",
                "fio errors 0 \n",
                "files same\n",
                "one deleted, the others work\n",
                "one back\n",
                "bound again 3 times\n",
                "log:\nend of log\n",
                &format!("pulled off: {fans} of {fans} there; injected detach 1\n"),
            ] {
                assert!(output.contains(wanted), "{title}: {wanted}");
            }
        });
    }
}

/// Both kinds of suspend that can be tested without an external wake-up.
#[test]
fn linux_suspends_our_controllers() {
    on_each(&DEVICES, include_str!("served/suspends.sh"), |title, output| {
        for mode in ["s2idle", "deep"] {
            assert!(output.contains(&format!("suspended: {mode}")), "{title}: {output}");
        }
    });
}

/// A gigabyte with CRCs; a file system under work of every kind, including fsstress if this machine
/// has it.
#[test]
fn linux_fills_and_stresses_our_disks() {
    let of_size = |target, device| Device { target, ..device };
    let devices = [
        of_size("nvme,size=1280M,queues=4", NVME),
        of_size("ufs,size=1280M", UFS),
        of_size("ufs,size=1280M,mcq=3", UFS),
        of_size("emmc,size=1280M", EMMC),
        SD,
        of_size("ahci,size=1280M", AHCI),
    ];
    on_each(&devices, include_str!("served/stress.sh"), |title, output| {
        for wanted in ["verified \"io_kbytes\" : 1048576", " files same"] {
            assert!(output.contains(wanted), "{title}: {wanted}");
        }
        let (_, log) = output.split_once("log:\n").expect("a log");
        assert_eq!(log, "", "{title}");
    });
}

/// Its descriptors, link power, power modes and RPMB, with the ids of QEMU's controller, and with
/// those of Intel's Alder Lake-N, the only one on which ufshcd-pci trusts WriteBooster to work.
/// With 6.12 also queries by programs, with drivers built for that.
#[test]
fn linux_manages_our_ufs() {
    let wanted = ["ok descriptors", "ok runtime", "ok rpmb"];
    let judge = |title: &str, output: &str, own: &str| {
        for wanted in wanted.iter().chain([&own]) {
            assert!(output.contains(wanted), "{title}: {wanted}");
        }
        // Each level and back: the link hibernates, the device sleeps, both are off.
        for states in [
            "level 1: ufshcd_wl_runtime_suspend UFS_ACTIVE_PWR_MODE UIC_LINK_HIBERN8_STATE 0",
            "level 3: ufshcd_wl_runtime_suspend UFS_SLEEP_PWR_MODE UIC_LINK_HIBERN8_STATE 0",
            "level 5: ufshcd_wl_runtime_suspend UFS_POWERDOWN_PWR_MODE UIC_LINK_OFF_STATE 0",
            "level 5: ufshcd_wl_runtime_resume UFS_ACTIVE_PWR_MODE UIC_LINK_ACTIVE_STATE 0",
        ] {
            assert!(output.contains(states), "{title}: {states}");
        }
        let (_, log) = output.split_once("log:\n").expect("a log");
        let queries =
            ["", "specification 0410\nqueries work\n"][usize::from(title.contains("Release"))];
        assert_eq!(log, queries, "{title}");
    };
    let script = include_str!("served/ufs.sh");
    let devices = [UFS, Device { target: "ufs,size=256M,mcq=3", ..UFS }];
    on_each(&devices, script, |title, output| judge(title, output, "ok hibern8"));
    const ALDER_LAKE: [&str; 4] = [
        "-global",
        "vfio-user-pci.x-pci-vendor-id=0x8086",
        "-global",
        "vfio-user-pci.x-pci-device-id=0x54ff",
    ];
    let intel = Device { qemu: &ALDER_LAKE, ..UFS };
    let script = format!("booster=yes\n{script}");
    on_each(&[intel], &script, |title, output| judge(title, output, "ok booster"));
}

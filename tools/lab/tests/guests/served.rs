//! Linux's own drivers on our modelled controllers, which `flysch serve` shows to the guest: what
//! the two understand differently, neither's own tests can tell.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use flysch_lab::{Done, Error, Job, Lab};

use flysch_models::faults::Kind as FaultKind;

use crate::common::{call, command, keep, labs};

/// A device as the guest sees it.
struct Device {
    /// What is served.
    target: &'static str,
    /// Loads the driver, with short timeouts.
    load: &'static str,
    /// The driver's name on the PCI bus.
    driver: &'static str,
    /// Finds the disk.
    disk: &'static str,
    /// How the driver begins its lines in the log.
    log: &'static str,
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
};

/// Without an engine in the controller, whatever the card has.
const EMMC_PLAIN: Device = Device { target: "emmc,size=256M,queue=off,timing=hs200", ..EMMC };

/// With UHS-I, behind a controller Linux does not know.
const SD: Device = Device { target: "sd,size=4G", ..EMMC };

const AHCI: Device = Device {
    target: "ahci,size=256M",
    load: AHCI_LOAD,
    driver: "ahci",
    disk: SCSI_DISK,
    log: "ata|ahci|scsi|sd ",
};

const UFS: Device = Device {
    target: "ufs,size=256M",
    load: UFS_LOAD,
    driver: "ufshcd",
    disk: SCSI_DISK,
    log: "ufs|scsi|sd ",
};

/// What is served, until it is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) socket: PathBuf,
    folder: PathBuf,
}

impl Server {
    /// Serves `target` on a socket in that folder.
    pub(crate) fn start(program: &Path, folder: &Path, target: &str) -> Self {
        let socket = folder.join("served.sock");
        let mut process = Command::new(program)
            .args(["serve", target, "--socket"])
            .arg(&socket)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready"), "{target}: {ready}");
        Self { process, socket, folder: folder.to_path_buf() }
    }

    /// Runs `script` in a guest that has the device. Meanwhile a file `want.FAULTS` in the share
    /// has the faults injected, and becomes `armed.FAULTS`.
    fn run(&self, program: &Path, lab: &Lab, script: &str) -> Result<Done, Error> {
        let socket = self.socket.display();
        let devices = [flysch_lab::Device::Served(self.socket.clone())];
        let job = Job {
            devices: &devices,
            processors: 2,
            program: Some(qemu_11()),
            timeout: Duration::from_secs(900),
            ..Job::new(script, &self.folder)
        };
        lab.run_while(&job, &mut || {
            for faults in self.wanted() {
                call(program, &format!("serve-ctl {socket} inject {faults}"), &self.folder);
                let name = |state: &str| self.folder.join(format!("{state}.{faults}"));
                std::fs::rename(name("want"), name("armed")).unwrap();
            }
            true
        })
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

/// Where a script writes whose share does not survive it.
const CONSOLE: &str = "/dev/ttyS0";

/// Runs a script for each kernel on each of `devices`, and judges what it wrote.
fn on_each(devices: &[Device], script: &str, judge: impl Fn(&str, &str)) {
    let program = command();
    for lab in labs() {
        for device in devices {
            let started = Instant::now();
            let share = tempfile::tempdir().unwrap();
            let server = Server::start(&program, share.path(), device.target);
            let Device { load, driver, disk, log, .. } = device;
            let script = format!(
                "load() {{ {load}; }}; disk() {{ {disk}; }}; driver={driver}; log='{log}'\n\
                 {FUNCTIONS}\n{script}"
            );
            let title = format!("{:?} {}", lab.kernel(), device.target);
            let done = server.run(&program, &lab, &script);
            let output = match &done {
                // A guest that cannot tell by the share says it on its console.
                Err(Error::NoResult(console)) if script.contains(CONSOLE) => console,
                Err(error) => panic!("{title}: {error}"),
                Ok(done) if done.status != 0 => {
                    keep(share.path());
                    panic!("{title}: {}\n{}\n{}", done.status, done.output, done.console);
                }
                Ok(done) => &done.output,
            };
            println!("{title}: {} s\n{output}", started.elapsed().as_secs());
            judge(&title, output);
        }
    }
}

const FUNCTIONS: &str = r#"
    # The disk, once it is there.
    find_disk() {
        for try in $(seq 100); do
            d=$(disk); [ -b "$d" ] && return 0
            sleep 0.1
        done
        echo "no disk"; dmesg | tail -20; exit 3
    }
    # pattern N: a megabyte that is another one for each N.
    pattern() { yes "generation $1 of the flushed data" | head -c 1048576; }
    put() {
        pattern $1 > /tmp/put
        dd if=/tmp/put of=$d bs=64k oflag=direct conv=fsync status=none
    }
    is_there() {
        dd if=$d of=/tmp/got bs=64k count=16 iflag=direct status=none && pattern $1 | cmp - /tmp/got
    }
    errors() { sed -n 's/.*"total_err" : \([0-9]*\).*/\1/p'; }
"#;

/// Probe, data, a file system, unbinding, reset.
#[test]
fn linux_drives_our_controllers() {
    let script = r#"
        set -e
        dmesg -C
        load; find_disk
        fio --name=v --filename=$d --rw=randrw --bs=4k --iodepth=16 --ioengine=libaio --direct=1 \
            --size=64m --verify=crc32c --verify_fatal=1 --number_ios=3000 \
            --continue_on_error=all --output-format=json > /tmp/fio || { cat /tmp/fio; exit 4; }
        echo "fio errors $(errors < /tmp/fio)"
        mkfs.ext4 -q -F $d; mkdir -p /tmp/mnt; mount $d /tmp/mnt
        cp /usr/lib/x86_64-linux-gnu/*.so /tmp/mnt/ 2> /dev/null || true
        sums() { (cd /tmp/mnt; find . -type f | sort | xargs sha256sum | sha256sum); }
        before=$(sums)
        umount /tmp/mnt; mount -o discard $d /tmp/mnt
        [ "$before" = "$(sums)" ]; echo "files same"
        rm -rf /tmp/mnt/*.so; fstrim /tmp/mnt; umount /tmp/mnt
        e2fsck -fn $d > /tmp/fsck 2>&1 || { cat /tmp/fsck; exit 5; }
        put 1
        for i in $(seq 20); do
            pci=$(basename /sys/bus/pci/drivers/$driver/0000:*)
            echo $pci > /sys/bus/pci/drivers/$driver/unbind
            echo $pci > /sys/bus/pci/drivers/$driver/bind
            find_disk
        done
        is_there 1; echo "bound again 20 times"
        ios=/sys/kernel/debug/mmc0/ios
        mount -t debugfs none /sys/kernel/debug 2> /dev/null || true
        [ ! -e $ios ] || echo "timing $(sed -n 's/timing spec:.*(\(.*\))/\1/p' $ios)"
        if [ $driver = ahci ]; then
            [ $(cat /sys/block/${d#/dev/}/device/queue_depth) = 32 ]
            for policy in min_power med_power_with_dipm medium_power max_performance; do
                for host in /sys/class/scsi_host/host*/link_power_management_policy; do
                    # 7.3 refuses ports that are capable of hot plug.
                    echo $policy > $host 2> /dev/null || true
                done
                for try in 1 2 3 4; do is_there 1; sleep 0.1; done
            done
            blkdiscard -o 64k -l 128k $d
            head -c 128k /dev/zero > /tmp/zeros
            dd if=$d bs=64k skip=1 count=2 iflag=direct status=none | cmp - /tmp/zeros
            echo "slept and trimmed"
        fi
        if [ -e /sys/class/nvme/nvme0 ]; then
            echo 1 > /sys/class/nvme/nvme0/reset_controller; is_there 1
            echo "reset"
        fi
        echo "log:"
        dmesg | grep -iE "$log" | grep -iE "warn|error|fail|timeout|abort|BUG|trace" || true
    "#;
    on_each(&DEVICES, script, |title, output| {
        for wanted in ["fio errors 0", "files same", "bound again 20 times"] {
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

/// Both kinds of suspend that can be tried without waking from outside. The guest's own disk and
/// share do not come back from one, so everything lies in memory and is told on the console.
#[test]
fn linux_suspends_our_controllers() {
    let script = r#"
        load; find_disk
        put 1; pattern 1 > /tmp/wanted
        cp /bin/busybox /tmp/busybox
        cat > /tmp/job <<"END"
        b=/tmp/busybox
        echo devices > /sys/power/pm_test
        for mode in s2idle deep; do
            $b grep -q $mode /sys/power/mem_sleep || continue
            echo $mode > /sys/power/mem_sleep
            echo mem > /sys/power/state
            $b timeout 60 $b dd if=$1 of=/tmp/got bs=64k count=16 iflag=direct 2> /dev/null
            $b cmp /tmp/wanted /tmp/got && echo "suspended: $mode"
            $b rm -f /tmp/got
        done
        echo o > /proc/sysrq-trigger
        $b sleep 60
END
        exec $BASH /tmp/job $d > /dev/ttyS0 2>&1
    "#;
    on_each(&DEVICES, script, |title, output| {
        for mode in ["s2idle", "deep"] {
            assert!(output.contains(&format!("suspended: {mode}")), "{title}: {output}");
        }
    });
}

/// What a kernel did at a fault: the first lines of its log about it.
const FAULT: &str = r#"
    want() {
        touch /share/want.$1
        while [ ! -e /share/armed.$1 ]; do sleep 0.05; done
    }
    log() {
        dmesg | grep -E "$log" | sed 's/^\[[^]]*\] //' | cut -c1-110 | sort | uniq -c | sort -rn |
            head -5
    }
    generation=1
    # fault NAME WHEN: injects, works, and looks what is left.
    fault() {
        generation=$((generation + 1))
        put $generation
        dmesg -C
        want $1:$2
        fio --name=f --filename=$d --offset=64m --size=64m --rw=randrw --bs=4k --iodepth=8 \
            --ioengine=libaio --direct=1 --number_ios=200 --continue_on_error=all $more \
            --output-format=json > /tmp/fio 2> /dev/null
        want none
        rm /share/armed.none
        for try in $(seq 200); do is_there $generation 2> /dev/null && break; sleep 0.1; done
        if is_there $generation; then kept=kept; else kept=LOST; fi
        echo "== $1: $kept, $(errors < /tmp/fio) errors"
        log
    }
"#;

/// Faults into a real kernel: its error handler runs, the disk works afterwards, and what a flush
/// covered is there. A controller that does not follow CC.EN any more is one Linux gives up.
#[test]
fn linux_recovers_from_faults_of_our_controllers() {
    let beyond_help = [FaultKind::ReadyStuck, FaultKind::Unplugged];
    let others = FaultKind::NVME.into_iter().filter(|kind| !beyond_help.contains(kind));
    let line = |kind: FaultKind| format!("fault {} n20\n", kind.name());
    let faults: Vec<String> = others.map(line).collect();
    let script = format!(
        "{FAULT}\nload; find_disk\n{}\n{}",
        faults.concat(),
        r#"
        dmesg -C; want stuck-ready:n1
        (echo 1 > /sys/class/nvme/nvme0/reset_controller) 2> /dev/null
        for try in $(seq 300); do dmesg | grep -q "Disabling device" && break; sleep 0.1; done
        dmesg | grep -q "Disabling device" && echo "given up"
        log
        "#
    );
    on_each(&[NVME], &script, |title, output| {
        assert!(!output.contains("LOST") && output.contains("given up"), "{title}");
        let told = output.lines().filter(|line| line.starts_with("== ")).count();
        assert_eq!(told, faults.len(), "{title}");
    });
}

/// The same of eMMC with a queue and without. A card that is gone is not among the faults; without
/// a queue `stuck`, `late` and `task` never come.
#[test]
fn linux_recovers_from_faults_of_our_card() {
    recovers_from_faults_of_a_card(&[EMMC, EMMC_PLAIN], &FaultKind::EMMC);
}

#[test]
fn linux_recovers_from_faults_of_our_sd_card() {
    recovers_from_faults_of_a_card(&[SD], &FaultKind::SD);
}

fn recovers_from_faults_of_a_card(devices: &[Device], kinds: &[FaultKind]) {
    let beyond_help = [FaultKind::PowerGone, FaultKind::Unplugged];
    let others = kinds.iter().copied().filter(|kind| !beyond_help.contains(kind));
    let line = |kind: FaultKind| match kind {
        // Commands that flush are few.
        FaultKind::SwitchError | FaultKind::BusyStuck => format!("fault {} n1\n", kind.name()),
        kind => format!("fault {} n20\n", kind.name()),
    };
    let faults: Vec<String> = others.map(line).collect();
    let script = format!("{FAULT}\nmore=--fsync=20\nload; find_disk\n{}", faults.concat());
    on_each(devices, &script, |title, output| {
        assert!(!output.contains("LOST"), "{title}");
        let told = output.lines().filter(|line| line.starts_with("== ")).count();
        assert_eq!(told, faults.len(), "{title}");
    });
}

/// As above; faults that come in the middle of recovery come with one that takes it. An HBA whose
/// list does not stop is reset by nobody: Linux goes on with the link.
#[test]
fn linux_recovers_from_faults_of_our_sata_controller() {
    let alone = [FaultKind::Unplugged, FaultKind::NoLog, FaultKind::ListStuck, FaultKind::Deaf];
    let others = FaultKind::AHCI.into_iter().filter(|kind| !alone.contains(kind));
    let mut faults: Vec<String> =
        others.map(|kind| format!("fault {} n20\n", kind.name())).collect();
    faults.push("fault no-log:n1+medium n20\n".into());
    faults.push("fault deaf:n1+interface n20\n".into());
    faults.push("fault stuck-list:n1+interface n20\n".into());
    let script = format!("{FAULT}\nload; find_disk\n{}", faults.concat());
    on_each(&[AHCI], &script, |title, output| {
        assert!(!output.contains("LOST"), "{title}");
        let told = output.lines().filter(|line| line.starts_with("== ")).count();
        assert_eq!(told, faults.len(), "{title}");
    });
}

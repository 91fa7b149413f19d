//! Tests with the installed QEMU: `FLYSCH_QEMU`, or the one on the PATH. Without one they report
//! that and pass; the test command ensures that there is one.

use std::time::Duration;

use flysch_api::machine::Machine as _;

use super::*;

/// How long anything is waited for: no verdict depends on it, it only ends a test that would hang.
const PATIENCE: Duration = Duration::from_secs(600);

fn start(options: &QemuOptions) -> Option<Machine> {
    match Machine::start(options) {
        Ok(machine) => Some(machine),
        Err(e @ (QemuError::NotFound { .. } | QemuError::TooOld { .. })) => {
            assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{e}");
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn memory_unit(lun: u8, bytes: u64) -> Unit {
    Unit { lun, backing: Backing::Memory { bytes }, read_only: false }
}

/// HCE, then DME_LINKSTARTUP with every interrupt enabled (UFSHCI 4.1, 5.3.5 and 5.6).
fn link_startup(machine: &Machine) {
    machine.write32(0x34, 1);
    machine.write32(0x24, u32::MAX);
    machine.write32(0x90, 0x16);
}

#[test]
fn registers_interrupts_and_memory() {
    let Some(machine) = start(&QemuOptions::default()) else { return };
    assert_eq!(machine.identity(), Identity { vendor: 0x1B36, device: 0x0013 });
    assert!(machine.read32(0x08) >= 0x400, "VER");
    assert_eq!(machine.memory().len(), 256 << 20);
    assert_eq!(machine.memory().address(), 1 << 20);
    let soon = || Some(machine.now() + Duration::from_millis(20));
    assert_eq!(machine.wait(soon()), Wake::Deadline);
    link_startup(&machine);
    assert_eq!(machine.wait(None), Wake::Interrupt);
    assert_eq!(machine.wait(None), Wake::Interrupt, "the line stays up until it is served");
    assert_eq!(machine.read32(0x20), 1 << 10, "IS.UCCS");
    machine.write32(0x20, 1 << 10);
    machine.read32(0x20);
    assert_eq!(machine.wait(soon()), Wake::Deadline);
    for outside in [0x2000, 0x2, u32::MAX - 3] {
        assert_eq!(machine.read32(outside), u32::MAX);
        machine.write32(outside, 0);
    }
    assert_eq!(machine.ended(), None);
}

/// The device's registers are 32 bits wide: QEMU's bus splits wider accesses and extracts narrower
/// ones.
#[test]
fn registers_of_other_widths_are_one_access_each() {
    let Some(machine) = start(&QemuOptions { queues: 2, ..QemuOptions::default() }) else { return };
    let (cap, mcqcap, ver) = (machine.read32(0), machine.read32(4), machine.read32(8));
    assert_eq!(machine.read64(0), u64::from(mcqcap) << 32 | u64::from(cap));
    assert_eq!(machine.read16(8), ver as u16);
    // Within a register QEMU's device knows its first byte alone.
    assert_eq!((machine.read16(0), machine.read8(0)), (cap as u16, cap as u8));
    // HCE alone, then UTRLBA and UTRLBAU together.
    machine.write32(0x34, 1);
    machine.write64(0x50, 0x5_1234_5400);
    assert_eq!((machine.read32(0x50), machine.read32(0x54)), (0x1234_5400, 5));
    assert_eq!((machine.read64(0x4), machine.read16(0x3)), (u64::MAX, u16::MAX), "unaligned");
}

#[test]
fn queues_are_what_was_asked_for() {
    for queues in [1, 5, 8] {
        let Some(machine) = start(&QemuOptions { queues, ..QemuOptions::default() }) else {
            return;
        };
        assert_eq!(machine.read32(0x00) >> 30 & 1, 1, "CAP.MCQS");
        assert_eq!(machine.read32(0x04) & 0xFF, u32::from(queues) - 1, "MCQCAP.MAXQ");
    }
}

#[test]
fn a_waiting_thread_gets_the_interrupt_another_thread_took_in() {
    let Some(machine) = start(&QemuOptions::default()) else { return };
    let waiter = {
        let machine = machine.clone();
        std::thread::spawn(move || machine.wait(Some(machine.now() + PATIENCE)))
    };
    std::thread::sleep(Duration::from_millis(20));
    link_startup(&machine);
    while machine.read32(0x20) == 0 {}
    assert_eq!(waiter.join().unwrap(), Wake::Interrupt);
}

#[test]
fn a_dead_qemu_reads_all_ones_and_says_why() {
    let Some(machine) = start(&QemuOptions::default()) else { return };
    let pid = rustix::process::Pid::from_raw(machine.process_id().cast_signed()).unwrap();
    let waiter = {
        let machine = machine.clone();
        std::thread::spawn(move || machine.wait(None))
    };
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    assert_eq!(waiter.join().unwrap(), Wake::Interrupt);
    assert_eq!(machine.read32(0x08), u32::MAX);
    machine.write32(0x34, 1);
    assert_eq!(machine.wait(None), Wake::Idle);
    let before = machine.now();
    assert_eq!(machine.wait(Some(before + Duration::from_millis(20))), Wake::Deadline);
    assert!(machine.now() - before >= Duration::from_millis(20));
    let why = machine.ended().unwrap();
    assert!(why.contains("QEMU ended (signal: 9"), "{why}");
}

#[test]
fn qemu_outlives_the_thread_that_made_it_and_no_handle() {
    let Some(machine) = std::thread::spawn(|| start(&QemuOptions::default())).join().unwrap()
    else {
        return;
    };
    std::thread::sleep(Duration::from_millis(50));
    assert!(machine.read32(0x08) >= 0x400);
    let (memory, pid) = (machine.memory().clone(), machine.process_id());
    let other = machine.clone();
    drop(machine);
    assert!(other.read32(0x08) >= 0x400);
    drop(other);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    memory.store32(0, 1);
}

#[test]
fn an_image_in_use_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    // Characters with a meaning in QEMU's option syntax are only a file name here.
    let path = folder.path().join("a,b=c:d.img");
    let unit = |lun, bytes| Unit {
        lun,
        backing: Backing::Image { path: path.clone(), bytes },
        read_only: false,
    };
    let first = QemuOptions { units: vec![unit(0, Some(1 << 20))], ..QemuOptions::default() };
    let Some(machine) = start(&first) else { return };
    let units = vec![memory_unit(0, 1 << 20), unit(3, None)];
    let text =
        Machine::start(&QemuOptions { units, ..QemuOptions::default() }).unwrap_err().to_string();
    assert!(text.contains("a,b=c:d.img") && text.contains("in use"), "{text}");
    drop(machine);
    assert_eq!(path.metadata().unwrap().len(), 1 << 20);
    start(&first);
}

#[test]
fn options_outside_the_device_are_refused_before_anything_starts() {
    let refused = |options: QemuOptions| match Machine::start(&options) {
        Err(QemuError::Option(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(refused(QemuOptions { queues: 32, ..QemuOptions::default() }).contains("at most 31"));
    assert!(
        refused(QemuOptions { memory_bytes: 0, ..QemuOptions::default() }).contains("DMA memory")
    );
    let units = vec![memory_unit(32, 4096)];
    assert!(refused(QemuOptions { units, ..QemuOptions::default() }).contains("logical unit 32"));
    let units = vec![memory_unit(1, 4096), memory_unit(1, 8192)];
    assert!(refused(QemuOptions { units, ..QemuOptions::default() }).contains("twice"));
}

#[test]
fn wrong_binaries_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        move |controller| {
            let options =
                QemuOptions { program: Some(path.clone()), controller, ..QemuOptions::default() };
            Machine::start(&options).unwrap_err().to_string()
        }
    };
    let emmc = Controller::Emmc { boot_bytes: 0, rpmb_bytes: 0 };
    let old = script("old", "echo 'QEMU emulator version 7.2.22 (Debian)'");
    assert!(old(emmc).contains("too old; install QEMU 11"), "{}", old(emmc));
    let old = old(Controller::Ufs);
    assert!(old.contains("QEMU 7.2.22") && old.contains("too old"), "{old}");
    let says = |words: &str| {
        format!("test x$1 = x--version && echo 'QEMU emulator version 9.2.0' || {words}")
    };
    let bare = "{ echo \"q: -device ufs: 'ufs' is not a valid device model name\" >&2; exit 1; }";
    let bare = script("bare", &says(bare))(Controller::Ufs);
    assert!(bare.contains("has no usable `ufs` device; install QEMU 8.2"), "{bare}");
    let older = "{ echo \"q: 'driver' expects a pluggable device type\" >&2; exit 1; }";
    let older = script("older", &says(older))(emmc);
    assert!(older.contains("has no usable `emmc` device; install QEMU 11"), "{older}");
    let ends = script("ends", &says("{ echo 'last words' >&2; exit 3; }"))(Controller::Ufs);
    assert!(ends.contains("exit status: 3") && ends.contains("last words"), "{ends}");
}

#[test]
fn several_machines_at_once() {
    let threads: Vec<_> = (0..3)
        .map(|i| {
            std::thread::spawn(move || {
                let options = QemuOptions { queues: i, ..QemuOptions::default() };
                let Some(machine) = start(&options) else { return };
                link_startup(&machine);
                assert_eq!(machine.wait(None), Wake::Interrupt);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Served devices and QEMU's own eMMC device need a newer QEMU than the others: the remedy names
/// it.
#[test]
fn a_missing_program_is_told_with_the_release_that_is_needed() {
    let program = PathBuf::from("/nowhere/qemu");
    let refused = |options: QemuOptions| {
        let machine = Machine::start(&options).unwrap_err().to_string();
        let device = match options.socket.clone() {
            Some(socket) => guest::QemuDevice::Served(socket),
            None => guest::QemuDevice::Own(options),
        };
        let boot = guest::Boot {
            program: Some(&program),
            arguments: Vec::new(),
            memory_mib: 256,
            devices: &[device],
            terminal: false,
        };
        assert_eq!(guest::Guest::start(&boot).unwrap_err().to_string(), machine);
        machine
    };
    let named = QemuOptions { program: Some(program.clone()), ..QemuOptions::default() };
    let own = refused(named.clone());
    assert!(own.contains("install QEMU 8.2 or newer"), "{own}");
    let served = refused(QemuOptions { socket: Some("served.sock".into()), ..named.clone() });
    assert!(served.contains("install QEMU 11 or newer"), "{served}");
    let controller = Controller::Emmc { boot_bytes: 0, rpmb_bytes: 0 };
    let emmc = refused(QemuOptions { controller, ..named });
    assert!(emmc.contains("install QEMU 11 or newer"), "{emmc}");
}

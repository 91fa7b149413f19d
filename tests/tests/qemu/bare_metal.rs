//! The driver and the command layer without an operating system: builds `examples/bare-metal` and
//! boots it in QEMU.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use flysch_tests::qemu::{Release, releases};
use flysch_tests::wait::PATIENCE;

const TARGET: &str = "x86_64-unknown-none";
/// The exit status into which QEMU's debug exit turns the program's 0x10 and 0x11.
const PASSED: i32 = 33;
const FAILED: i32 = 35;

/// Whether the toolchain has the target; without it the test may be skipped.
fn has_target() -> bool {
    let libraries = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output()
        .expect("rustc");
    let folder = String::from_utf8_lossy(&libraries.stdout).trim().to_owned();
    let there = Path::new(&folder).is_dir();
    if !there {
        let line = format!("skipped: bare metal: run `rustup target add {TARGET}`");
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{line}");
        eprintln!("{line}");
    }
    there
}

/// The project's folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Builds for the target in `folder` of the project; returns the folder of the release.
fn build(folder: &str, arguments: &[&str]) -> PathBuf {
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bare-metal");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--release", "--target", TARGET, "--target-dir"])
        .arg(&built)
        .args(arguments)
        .current_dir(root().join(folder))
        // Flags for this machine do not suit that target.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .expect("cargo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    built.join(TARGET).join("release")
}

/// Builds the program; `None` if the toolchain does not have the target.
fn program() -> Option<PathBuf> {
    has_target().then(|| build("examples/bare-metal", &[]).join("flysch-bare-metal"))
}

/// Builds the C program with the static library; `None` if the toolchain does not have the target.
fn program_in_c() -> Option<PathBuf> {
    if !has_target() {
        return None;
    }
    let library = build("", &["--package", "flysch-c-drivers"]).join("libflysch_drivers.a");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("flysch-c");
    let strict = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let bare = ["-ffreestanding", "-fno-stack-protector", "-mno-red-zone", "-mgeneral-regs-only"];
    let place = ["-fno-pic", "-no-pie", "-nostdlib", "-static", "-T"];
    let output = Command::new("cc")
        .args(strict.iter().chain(&bare).chain(&place))
        .args(["examples/bare-metal/layout.ld", "-I", "bindings/c-drivers/include"])
        .args(["examples/c/bare-metal/boot.S", "examples/c/bare-metal/main.c"])
        .args([&library, Path::new("-o"), &program])
        .current_dir(root())
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

/// Boots the program with these devices; standard output is the serial line.
fn boot(release: &Release, program: &Path, devices: &[String]) -> Output {
    let mut child = Command::new(&release.program)
        .args(["-machine", "q35,accel=tcg,sata=off", "-m", "64M", "-nodefaults", "-no-reboot"])
        .args(["-display", "none", "-serial", "stdio"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-kernel"])
        .arg(program)
        .args(devices)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("QEMU");
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("QEMU").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("QEMU");
            let output = child.wait_with_output().expect("QEMU");
            panic!("no end:\n{}", String::from_utf8_lossy(&output.stdout));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("QEMU")
}

#[test]
fn boots_and_reads_back_what_it_wrote() {
    let Some(program) = program() else { return };
    let image = tempfile::NamedTempFile::new().unwrap();
    for release in releases() {
        for queues in [0, 1, 3] {
            image.as_file().set_len(0).unwrap();
            image.as_file().set_len(32 << 20).unwrap();
            let mcq = match queues {
                0 => String::new(),
                _ => format!(",mcq=true,mcq-maxq={queues}"),
            };
            let drive = format!("if=none,id=lu0,format=raw,file={}", image.path().display());
            let devices = [
                "-drive".into(),
                drive,
                "-device".into(),
                format!("ufs,id=ufs0{mcq}"),
                "-device".into(),
                "ufs-lu,bus=ufs0,drive=lu0,lun=0".into(),
            ];
            let output = boot(&release, &program, &devices);
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(PASSED), "{}: {text}", release.name);
            assert_eq!(text.lines().last(), Some("PASS"));
            let version = if release.is_11 { "4.1" } else { "4.0" };
            let modes = if queues == 0 { &["sdq"][..] } else { &["sdq", "mcq"] };
            for mode in modes {
                for line in [
                    format!("{mode}: UFSHCI {version}, up in "),
                    format!("{mode}: <QEMU QEMU HARDDISK 2.5+> lun 0: 8192 blocks of 4096 bytes"),
                    format!("{mode}: 2097152 bytes at 0 written and read back, checksum "),
                    format!("{mode}: 2097152 bytes at 31457280 written and read back, checksum "),
                ] {
                    assert!(text.lines().any(|l| l.starts_with(&line)), "{line:?} in\n{text}");
                }
                let ticks = text
                    .lines()
                    .find_map(|l| {
                        l.strip_prefix(&format!("{mode}: ")).filter(|l| l.contains("ticks"))
                    })
                    .and_then(|l| l.split(' ').next())
                    .and_then(|number| number.parse::<u64>().ok());
                assert!(ticks.is_some_and(|ticks| ticks > 0), "{text}");
            }
            // The image contains what the program says it wrote.
            let sums = checksums(image.path());
            for (sum, line) in sums.into_iter().zip(["bytes at 0 ", "bytes at 31457280 "]) {
                let told = text.lines().filter(|l| l.contains(line));
                assert!(told.clone().count() > 0);
                for line in told {
                    assert!(line.ends_with(&format!("checksum {sum:016x}")), "{sum:016x}: {line}");
                }
            }
        }
    }
}

/// The checksums of the image's start and end, computed as by the program.
fn checksums(image: &Path) -> [u64; 2] {
    checksums_of(image, 2 << 20)
}

/// The same, of `len` bytes each.
fn checksums_of(image: &Path, len: usize) -> [u64; 2] {
    let bytes = std::fs::read(image).unwrap();
    [0..len, bytes.len() - len..bytes.len()].map(|range| {
        bytes[range].chunks_exact(8).fold(0xCBF2_9CE4_8422_2325_u64, |sum, word| {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            (sum ^ word).wrapping_mul(0x0000_0100_0000_01B3)
        })
    })
}

/// The other drivers: each finds its controller, and the image contains what it says it wrote.
#[test]
fn every_driver_boots() {
    let Some(program) = program() else { return };
    let image = tempfile::NamedTempFile::new().unwrap();
    let nvme = &["nvme,id=c0,serial=flysch", "nvme-ns,bus=c0,drive=d0"][..];
    let ahci = &["ich9-ahci,id=c0", "ide-hd,bus=c0.0,drive=d0"][..];
    let sd = &["sdhci-pci,id=c0", "sd-card,drive=d0"][..];
    for release in releases() {
        for (name, devices) in [("nvme", nvme), ("ahci", ahci), ("card", sd)] {
            image.as_file().set_len(0).unwrap();
            image.as_file().set_len(32 << 20).unwrap();
            let drive = format!("if=none,id=d0,format=raw,file={}", image.path().display());
            let mut words = vec!["-drive".into(), drive];
            for device in devices {
                words.extend(["-device".into(), device.to_string()]);
            }
            let output = boot(&release, &program, &words);
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(PASSED), "{} {name}: {text}", release.name);
            assert!(text.contains(": 65536 blocks of 512 bytes"), "{text}");
            for (at, sum) in [0, 30 << 20].into_iter().zip(checksums(image.path())) {
                let line = format!("{name}: 2097152 bytes at {at} written and read back, ");
                let line = format!("{line}checksum {sum:016x}");
                assert!(text.lines().any(|told| told == line), "{line}: {text}");
            }
        }
    }
}

/// A C program with the static library: UFS with both queue designs, and NVMe.
#[test]
fn a_program_in_c_boots() {
    let Some(program) = program_in_c() else { return };
    let image = tempfile::NamedTempFile::new().unwrap();
    let lu = "ufs-lu,bus=c0,drive=d0,lun=0";
    let ufs = &["ufs,id=c0", lu][..];
    let mcq = &["ufs,id=c0,mcq=true,mcq-maxq=2", lu][..];
    let nvme = &["nvme,id=c0,serial=flysch", "nvme-ns,bus=c0,drive=d0"][..];
    let name = "<QEMU QEMU HARDDISK 2.5+>: 8192 blocks of 4096";
    let rows = [
        (ufs, format!("UFS {name}")),
        (mcq, format!("UFS {name}")),
        (nvme, "NVMe <QEMU NVMe Ctrl ".to_owned()),
    ];
    for release in releases() {
        for (devices, name) in &rows {
            image.as_file().set_len(0).unwrap();
            image.as_file().set_len(32 << 20).unwrap();
            let drive = format!("if=none,id=d0,format=raw,file={}", image.path().display());
            let mut words = vec!["-drive".into(), drive];
            devices.iter().for_each(|device| words.extend(["-device".into(), device.to_string()]));
            let output = boot(&release, &program, &words);
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(PASSED), "{} {name}: {text}", release.name);
            assert!(text.starts_with(&format!("c: {name}")), "{text}");
            let asked = if name.starts_with("UFS") {
                "c: device descriptor of "
            } else {
                "c: identify: up to 256 namespaces"
            };
            assert!(text.lines().any(|told| told.starts_with(asked)), "{asked}: {text}");
            for (at, sum) in [0, 31 << 20].into_iter().zip(checksums_of(image.path(), 1 << 20)) {
                let line =
                    format!("c: 1048576 bytes at {at} written and read back, checksum {sum:x}");
                assert!(text.lines().any(|told| told == line), "{line}: {text}");
            }
        }
    }
}

#[test]
fn a_machine_without_a_controller_fails_in_words() {
    for program in [program(), program_in_c()].into_iter().flatten() {
        for release in releases() {
            let output = boot(&release, &program, &[]);
            let text = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(FAILED), "{text}");
            assert!(text.contains("FAIL: ") && text.contains("controller on"), "{text}");
        }
    }
}

//! Common code of the tests that run in the guest.

pub(crate) mod cutting;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use flysch_lab::manifest::Manifest;
use flysch_lab::{Job, Kernel, Lab};

/// Shell function of the guest: UBIFS and UBI, with fastmap if [`put_fastmap`] was called.
pub(crate) const LOAD_UBIFS: &str = r#"
    load_ubifs() {
        if [ -e /share/ubi.ko ]; then
            modprobe mtd
            insmod /share/ubi.ko fm_autoconvert=1 2>/dev/null || exit 8
            insmod /share/ubifs.ko || exit 8
        elif [ -e /share/ubifs.ko ]; then
            modprobe ubi && insmod /share/ubifs.ko || exit 8
        else
            modprobe ubifs
        fi
    }
"#;

/// Shell functions of the guest: transferring a flash image to the chip and back, the checks of
/// UBIFS.
pub(crate) const FUNCTIONS: &str = r#"
    guest=/share/flysch-lab-guest
    load() {
        flash_erase -q /dev/mtd0 0 0
        case $(cat /sys/class/mtd/mtd0/type) in
            nand) nandwrite -q -N /dev/mtd0 "$1" 2>/dev/null ;;
            *) dd if="$1" of=/dev/mtd0 bs=64k status=none ;;
        esac
    }
    save() {
        case $(cat /sys/class/mtd/mtd0/type) in
            nand) nanddump -q --bb=dumpbad -f "$1" /dev/mtd0 ;;
            *) dd if=/dev/mtd0 of="$1" bs=64k status=none ;;
        esac
    }
    # After each commit UBIFS holds its structures against each other, and complains in the log.
    check_ubifs() {
        mount -t debugfs debug /sys/kernel/debug
        load_ubifs
        for check in general index orphans lprops fs; do
            echo 1 > /sys/kernel/debug/ubifs/chk_$check
            [ "$(cat /sys/kernel/debug/ubifs/chk_$check)" = 1 ] || exit 9
        done
    }
"#;

/// Shell functions of the guest: keys, which are the bytes 1 to 64 for encryption, and policies.
pub(crate) const KEYS: &str = r#"
    # logon NAME KEY: a key for the kernel alone, where a mount looks for it (add_key).
    logon() {
        perl -e '
            my ($type, $name, $key) = ("logon", @ARGV);
            exit(syscall(248, $type, $name, $key, length($key), -5) < 0)' "$@"
    }
    # unlock MOUNT: the key by its identifier and as 1111111111111111 (FS_IOC_ADD_ENCRYPTION_KEY).
    unlock() {
        perl -e '
            open(my $fs, "<", $ARGV[0]) or die "$ARGV[0]: $!";
            my $key = pack("LLx32", 64, 0) . pack("C*", 1 .. 64);
            for (pack("LLx32", 2, 0), pack("LLa8x24", 1, 0, "" x 8)) {
                my $add = $_ . $key;
                ioctl($fs, 0xC0506617, $add) or die "add key: $!";
            }' "$@"
    }
    # policy DIR VERSION CONTENTS NAMES (FS_IOC_SET_ENCRYPTION_POLICY); names are padded to 16.
    policy() {
        mkdir -p "$1"
        perl -e '
            my ($path, $version, $contents, $names) = @ARGV;
            my $id = pack("H*", "69b2f6edeee720cce0577937eb8a6751");
            my $policy = $version == 2
                ? pack("CCCCx4a16", 2, $contents, $names, 2, $id)
                : pack("CCCCa8", 0, $contents, $names, 2, "" x 8);
            open(my $folder, "<", $path) or die "$path: $!";
            ioctl($folder, 0x800C6613, $policy) or die "set policy: $!";' "$@" || exit 7
    }
"#;

/// The key of authenticated file systems in the guest, and the keys of [`KEYS`].
pub(crate) const AUTH_KEY: &str = "any bytes make a key";

/// The keys for what the guest signed and encrypted.
pub(crate) fn keys() -> flysch_ubifs::Keys {
    let master: Vec<u8> = (1..=64).collect();
    flysch_ubifs::Keys {
        auth: Some(flysch_ubifs::AuthKey::new(AUTH_KEY.as_bytes(), None)),
        masters: vec![flysch_ubifs::MasterKey::new(&master, Some([0x11; 8])).unwrap()],
        entropy: Some([0x5e; 32]),
        ..Default::default()
    }
}

/// The lab, or `None` after printing the reason; with `CI=true` that is a failure.
pub(crate) fn lab() -> Option<Lab> {
    match Lab::open() {
        Ok(lab) => Some(lab),
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

/// The labs with each kernel, or with the one named by `FLYSCH_LAB_KERNEL` (`release`,
/// `backports`), as [`lab`]; none, or all.
pub(crate) fn labs() -> Vec<Lab> {
    let wanted = std::env::var("FLYSCH_LAB_KERNEL").ok();
    let is_wanted = |kernel: &Kernel| match wanted.as_deref() {
        None => true,
        Some(name) => (name == "backports") == (*kernel == Kernel::Backports),
    };
    let kernels = Kernel::ALL.into_iter().filter(is_wanted);
    let labs: Result<Vec<_>, _> = kernels.map(Lab::open_with).collect();
    labs.unwrap_or_else(|error| {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{error}");
        println!("skipped: {error}");
        Vec::new()
    })
}

/// Runs a script that can use [`FUNCTIONS`] and the guest's helper; returns its output.
pub(crate) fn run(lab: &Lab, script: &str, share: &Path) -> String {
    put_helper(share);
    run_for(lab, &format!("{LOAD_UBIFS}{FUNCTIONS}\n{script}"), share, Duration::from_secs(500))
}

/// Copies the guest's helper into the share as `flysch-lab-guest`.
pub(crate) fn put_helper(share: &Path) {
    put(Path::new(env!("CARGO_BIN_EXE_flysch-lab-guest")), share, "flysch-lab-guest");
}

/// Runs a script, which must succeed within `timeout`; returns its output.
pub(crate) fn run_for(lab: &Lab, script: &str, share: &Path, timeout: Duration) -> String {
    let started = Instant::now();
    // nandsim and mtdram keep their cells in memory.
    let job = Job { timeout, memory_mib: 1536, ..Job::new(script, share) };
    let done = lab.run(&job).unwrap_or_else(|error| panic!("{error}"));
    println!("guest: {} s", started.elapsed().as_secs());
    if done.status != 0 {
        keep(share);
        panic!("{}\n{}", done.output, done.console);
    }
    done.output
}

/// Gives the guest UBI with fastmap, which is kept from the first attach on.
pub(crate) fn put_fastmap(lab: &Lab, share: &Path) {
    let folder = lab.fastmap_modules().unwrap_or_else(|error| panic!("{error}"));
    for name in ["ubi.ko", "ubifs.ko"] {
        fs::copy(folder.join(name), share.join(name)).unwrap();
    }
}

/// Gives the guest UBIFS with authentication.
pub(crate) fn put_signed(lab: &Lab, share: &Path) {
    let folder = lab.signed_modules().unwrap_or_else(|error| panic!("{error}"));
    for name in ["ubifs.ko", "trust.ko"] {
        fs::copy(folder.join(name), share.join(name)).unwrap();
    }
}

/// Copies a program into the share, without debugging information, so that the guest loads it
/// faster.
pub(crate) fn put(program: &Path, share: &Path, name: &str) {
    let to = share.join(name);
    fs::copy(program, &to).unwrap();
    let _ = Command::new("strip").arg(&to).output();
}

/// Puts the command into the share as `flysch`.
pub(crate) fn put_command(share: &Path) {
    put(&command(), share, "flysch");
}

/// Copies a program of this machine and its libraries for the guest, which finds them in
/// `/share/lib`: returns its path, if there is such a program.
pub(crate) fn put_program(name: &str, share: &Path) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&paths).chain(["/sbin".into(), "/usr/sbin".into()]);
    let program = folders.map(|folder| folder.join(name)).find(|path| path.exists())?;
    put(&program, share, name);
    let libraries = share.join("lib");
    std::fs::create_dir_all(&libraries).unwrap();
    let listed = Command::new("ldd").arg(&program).output().unwrap();
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        assert!(!line.contains("not found"), "{name} does not run here: {}", line.trim());
        let path = line.split_once("=> ").and_then(|(_, path)| path.split_whitespace().next());
        // The guest's own C library is the newer one.
        if let Some(path) = path.filter(|path| path.starts_with('/') && !path.contains("/libc.")) {
            put(Path::new(path), &libraries, path.rsplit('/').next().unwrap());
        }
    }
    Some(program)
}

/// The command: built, unless `FLYSCH_COMMAND` names one.
pub(crate) fn command() -> PathBuf {
    let set = std::env::var_os("FLYSCH_COMMAND").map(PathBuf::from);
    set.unwrap_or_else(|| build(&["build", "--package", "flysch-cli"], "flysch"))
}

/// Runs a program in `folder`.
pub(crate) fn call(program: &Path, words: &str, folder: &Path) -> String {
    let done = Command::new(program).args(words.split_whitespace()).current_dir(folder).output();
    let done = done.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{} {words}: {said}", program.display());
    String::from_utf8(done.stdout).unwrap()
}

/// Builds something of the workspace and returns the path of the program.
pub(crate) fn build(arguments: &[&str], name: &str) -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .arg("--message-format=json")
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let wanted = format!("\"name\":\"{name}\"");
    let line =
        text.lines().rfind(|line| line.contains(&wanted) && line.contains("\"executable\":\""));
    let path = line.and_then(|line| line.split_once("\"executable\":\"")?.1.split('"').next());
    PathBuf::from(path.unwrap_or_else(|| panic!("no program {name} in {text}")))
}

/// Copies what a failed test left in its share to the folder `FLYSCH_LAB_KEEP`, if it is set.
pub(crate) fn keep(share: &Path) {
    if let Some(folder) = std::env::var_os("FLYSCH_LAB_KEEP") {
        let _ = Command::new("cp").arg("-r").arg(share).arg(folder).status();
    }
}

/// The lines that differ.
pub(crate) fn difference(ours: &Manifest, linux: &Manifest) -> String {
    let mut text = String::new();
    for path in ours.keys().chain(linux.keys().filter(|path| !ours.contains_key(*path))) {
        let (one, other) = (ours.get(path), linux.get(path));
        if one != other {
            let _ = writeln!(text, "/{path}\n  Flysch {one:?}\n  Linux  {other:?}");
        }
    }
    text
}

/// Lines of the kernel's log that complain about flash or its contents. It is not an error if a
/// JFFS2 block in use has no room left for a summary.
pub(crate) fn complaints(log: &str) -> Vec<&str> {
    const BAD: [&str; 7] = [
        "UBIFS error",
        "UBIFS assert",
        "ubi0 error",
        "jffs2: error",
        "jffs2: warning",
        "Call Trace",
        "BUG",
    ];
    let bad = |line: &&str| {
        BAD.iter().any(|bad| line.contains(bad)) && !line.contains("Not enough space for summary")
    };
    log.lines().filter(bad).collect()
}

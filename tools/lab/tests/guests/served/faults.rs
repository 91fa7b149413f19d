//! Faults in front of a real kernel: the reactions of its error handlers. After each fault the disk
//! works, and what a flush covered is there.

use flysch_models::faults::Kind as FaultKind;

use super::{AHCI, Device, EMMC, EMMC_PLAIN, MULTIPLIERS, NVME, SD, UFS, on_each};

const FAULT: &str = include_str!("faults.sh");

/// Faults in front of a real kernel: its error handler runs, the disk works afterwards, and what a
/// flush covered is there. Linux gives up a controller that no longer follows CC.EN.
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
        said
        "#
    );
    on_each(&[NVME], &script, |title, output| {
        assert!(!output.contains("LOST") && output.contains("given up"), "{title}");
        let told = output.lines().filter(|line| line.starts_with("== ")).count();
        assert_eq!(told, faults.len(), "{title}");
    });
}

/// UFS with its single doorbell and with queues. Linux gives up a device whose power stays away;
/// every other fault happens.
#[test]
fn linux_recovers_from_faults_of_our_ufs() {
    let others = FaultKind::UFS.into_iter().filter(|&kind| kind != FaultKind::PowerGone);
    let line = |kind: FaultKind| match kind {
        // Bring-ups and link wake-ups are rare; the former come with a fault that causes one.
        FaultKind::EnableGlitch => "fault hce-glitch:n1+fatal n20\n".into(),
        FaultKind::AutoHibern8 => "fault hibern8 n1\n".into(),
        kind => format!("fault {} n20\n", kind.name()),
    };
    let faults: Vec<String> = others.clone().map(line).collect();
    let script = format!(
        "{FAULT}\nload; find_disk\n{}\n{}",
        faults.concat(),
        r#"
        dmesg -C; want power-gone:n20
        work
        for try in $(seq 600); do is_there $generation 2> /dev/null || break; sleep 0.1; done
        is_there $generation 2> /dev/null || echo "given up, $(errors < /tmp/fio) errors"
        echo "$(cat /sys/block/${d#/dev/}/device/state), $(cat /sys/class/scsi_host/host0/state)"
        said
        "#
    );
    on_each(&[UFS, Device { target: "ufs,size=256M,mcq=3", ..UFS }], &script, |title, output| {
        assert!(!output.contains("LOST") && output.contains("given up"), "{title}");
        for kind in others.clone().map(FaultKind::name) {
            let told = output.lines().find(|line| line.starts_with(&format!("== {kind}")));
            let told = told.unwrap_or_else(|| panic!("{title}: {kind} is not there"));
            assert!(told.contains(&format!("injected {kind} ")), "{title}: {kind} did not happen");
        }
    });
}

/// What `flysch serve-ctl` does to a device in use: its power is lost and comes back, and what a
/// flush covered is there; it is unplugged, and its readers get an error.
#[test]
fn linux_outlives_power_cuts_and_removal() {
    let devices =
        [NVME, UFS, Device { target: "ufs,size=256M,mcq=3", ..UFS }, EMMC, EMMC_PLAIN, SD, AHCI];
    let script = format!("{FAULT}\n{}", include_str!("cuts.sh"));
    on_each(&devices, &script, |title, output| {
        // Linux 6.12 oopses in ufshcd_mcq_abort (docs/doors.md): the read never ends.
        let removed = if title.contains("mcq=") { "== remove: " } else { "== remove: an error" };
        for wanted in ["== power-cycle: kept", "\nworks\n", removed] {
            assert!(output.contains(wanted), "{title}: {wanted}");
        }
    });
}

/// The same for eMMC with and without a queue. Removal of the card is not among the faults; without
/// a queue `stuck`, `late` and `task` never happen.
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
        // Commands that flush are rare.
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

/// As above; faults that occur in the middle of recovery come with one that triggers it. An HBA
/// whose list does not stop is never reset: Linux continues with the link.
#[test]
fn linux_recovers_from_faults_of_our_sata_controller() {
    recovers_from_faults_of_sata(&[AHCI], &["fault stuck-list:n1+interface n20\n"]);
}

/// The soft reset of a multiplier needs a list that stops: Linux 7.3 gave up six disks.
#[test]
fn linux_recovers_from_faults_behind_our_multipliers() {
    recovers_from_faults_of_sata(&MULTIPLIERS, &[]);
}

fn recovers_from_faults_of_sata(devices: &[Device], more: &[&str]) {
    let alone = [FaultKind::Unplugged, FaultKind::NoLog, FaultKind::ListStuck, FaultKind::Deaf];
    let others = FaultKind::AHCI.into_iter().filter(|kind| !alone.contains(kind));
    let mut faults: Vec<String> =
        others.map(|kind| format!("fault {} n20\n", kind.name())).collect();
    faults.push("fault no-log:n1+medium n20\n".into());
    faults.push("fault deaf:n1+interface n20\n".into());
    faults.extend(more.iter().map(|line| (*line).to_owned()));
    let script = format!("{FAULT}\nload; find_disk\n{}", faults.concat());
    on_each(devices, &script, |title, output| {
        assert!(!output.contains("LOST"), "{title}");
        let told = output.lines().filter(|line| line.starts_with("== ")).count();
        assert_eq!(told, faults.len(), "{title}");
    });
}

//! The environment of the guest's shell, and the terminal of this machine that it talks to.

use std::io::{IsTerminal, stdin};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// A function of the guest's bash that acts on a model: it puts the order into the share and waits
/// for the answer.
pub(super) const CONTROL: &str = r#"
flysch-ctl() {
    rm -f /share/.flysch-answer
    echo "$*" > /share/.flysch-order.new && mv /share/.flysch-order.new /share/.flysch-order
    until [ -e /share/.flysch-answer ]; do sleep 0.02; done
    cat /share/.flysch-answer
    ! grep -q ^error: /share/.flysch-answer
    local done=$?
    rm -f /share/.flysch-answer
    return $done
}
export -f flysch-ctl
"#;

/// Loads the drivers of everything on the PCI bus and of disks behind SCSI and MMC buses, and waits
/// until there are as many disks as devices, or for a limited time.
pub(super) const DRIVERS: &str = r#"
for driver in sd_mod sr_mod mmc_block; do modprobe -q $driver; done
for device in /sys/bus/pci/devices/*; do modprobe -q "$(cat $device/modalias)"; done
for try in $(seq 100); do
    disks=0
    for disk in /sys/block/*; do
        [ -e $disk/device ] || continue
        case $disk in */vda | */mmcblk*boot* | */mmcblk*rpmb*) continue ;; esac
        disks=$((disks + 1))
    done
    [ $disks -ge $devices ] && break
    sleep 0.1
done
"#;

/// The terminal's original settings: QEMU makes it raw, and may have no time to undo that.
pub(super) struct Console {
    before: Option<Termios>,
}

impl Console {
    pub(super) fn open() -> Self {
        let before = stdin().is_terminal().then(|| tcgetattr(stdin()).ok()).flatten();
        Self { before }
    }

    /// A script that runs a shell on the guest's console.
    pub(super) fn shell(&self, devices: &[String]) -> String {
        let size = tcgetwinsize(stdin()).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
        let size = size.map_or_else(String::new, |size| {
            format!("stty rows {} cols {} < /dev/ttyS0", size.ws_row, size.ws_col)
        });
        let devices = match devices {
            [] => "no devices".to_owned(),
            devices => devices.join(" "),
        };
        // Quoted for the shell, whatever a target's file names have in them.
        let devices =
            shlex::try_quote(&devices).map_or_else(|_| "?".into(), |text| text.to_string());
        format!(
            r#"{size}
export TERM=linux PS1='linux:\w# '
{{
    echo "Linux $(uname -r) on" {devices}
    lsblk -o NAME,SIZE,TYPE,TRAN,MODEL | grep -v ^vda
    echo "exit switches off; flysch-ctl help tells what can be done to a model; Ctrl-A X kills"
}} > /dev/ttyS0
cd /share
setsid -w -c bash --norc -i < /dev/ttyS0 > /dev/ttyS0 2>&1
"#
        )
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

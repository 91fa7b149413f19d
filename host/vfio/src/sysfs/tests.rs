//! Tests with a tree of files that looks like a machine.

use std::os::unix::fs::symlink;

use super::*;
use crate::domain::{Access, Domain};

/// A machine in a folder.
struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Self {
        let machine = Self { folder: tempfile::tempdir().unwrap() };
        for path in ["sys/bus/pci/devices", "sys/bus/pci/drivers/vfio-pci", "sys/class/block"] {
            fs::create_dir_all(machine.path(path)).unwrap();
        }
        machine.file("sys/bus/pci/drivers_probe", "");
        machine.file("proc/self/mountinfo", "22 1 0:20 / /sys rw - sysfs sysfs rw\n");
        machine.file("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n");
        machine
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.folder.path().join(to), path).unwrap();
    }

    /// A function of that class, with a driver and in a group.
    fn function(&self, address: &str, class: u32, driver: Option<&str>, group: Option<u32>) {
        let place = format!("sys/devices/pci0000:00/{address}");
        self.file(&format!("{place}/vendor"), "0x1b36\n");
        self.file(&format!("{place}/device"), "0x0010\n");
        self.file(&format!("{place}/class"), &format!("{class:#08x}\n"));
        self.file(&format!("{place}/driver_override"), "(null)\n");
        self.link(&format!("sys/bus/pci/devices/{address}"), &place);
        if let Some(driver) = driver {
            let folder = format!("sys/bus/pci/drivers/{driver}");
            self.file(&format!("{folder}/unbind"), "");
            self.link(&format!("{place}/driver"), &folder);
        }
        if let Some(group) = group {
            let folder = format!("sys/kernel/iommu_groups/{group}");
            self.link(&format!("{folder}/devices/{address}"), &place);
            self.link(&format!("{place}/iommu_group"), &folder);
        }
    }

    /// A block device at a place below `sys/devices`.
    fn block(&self, place: &str, number: &str) {
        let folder = format!("sys/devices/{place}");
        let name = place.rsplit('/').next().unwrap();
        self.file(&format!("{folder}/dev"), &format!("{number}\n"));
        self.link(&format!("sys/class/block/{name}"), &folder);
    }

    fn tree(&self) -> Tree {
        Tree::at(self.folder.path())
    }

    /// NVMe at 10.0 with a partition, UFS at 11.0, each in its own group.
    fn usual() -> Self {
        let machine = Self::new();
        machine.function("0000:00:10.0", 0x01_0802, Some("nvme"), Some(3));
        machine.function("0000:00:11.0", 0x01_0901, Some("vfio-pci"), Some(4));
        machine.function("0000:00:1f.0", 0x06_0100, None, Some(5));
        machine.function("0000:00:1f.2", 0x01_0601, Some("ahci"), Some(5));
        machine.function("0000:00:1f.3", 0x0c_0500, None, Some(5));
        machine.block("pci0000:00/0000:00:10.0/nvme/nvme0/nvme0n1", "259:0");
        machine.block("pci0000:00/0000:00:10.0/nvme/nvme0/nvme0n1/nvme0n1p1", "259:1");
        machine.file(
            "sys/devices/pci0000:00/0000:00:10.0/nvme/nvme0/nvme0n1/nvme0n1p1/partition",
            "1\n",
        );
        machine
    }
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

#[test]
fn functions_are_listed_with_their_groups() {
    let all = Machine::usual().tree().functions().unwrap();
    let names: Vec<_> = all.iter().map(|one| (one.address.to_string(), one.kind())).collect();
    assert_eq!(names[0], ("0000:00:10.0".to_owned(), "NVMe controller"));
    assert_eq!(names[1].1, "UFS host controller");
    assert_eq!((all[0].vendor, all[0].device, all[0].group), (0x1B36, 0x10, Some(3)));
    assert_eq!(all[0].disks, ["nvme0n1"]);
    assert_eq!(all[3].members, [address("00:1f.0"), address("00:1f.3")]);
    let is: Vec<bool> = all.iter().map(Function::is_storage).collect();
    assert_eq!(is, [true, true, false, true, false]);
    let error = Tree::at("/nonexistent").functions().unwrap_err();
    assert!(error.to_string().contains("mounted on /sys"), "{error}");
}

#[test]
fn mounts_swap_and_holders_are_uses() {
    let machine = Machine::usual();
    machine.file(
        "proc/self/mountinfo",
        "30 1 259:1 / /mnt/with\\040blank rw shared:1 - ext4 /dev/nvme0n1p1 rw\n\
         31 1 0:40 /@ /data rw - btrfs /dev/nvme0n1 rw\n\
         32 1 8:1 / /other rw - ext4 /dev/sda1 rw\nnonsense\n",
    );
    machine.file("proc/swaps", "Filename Type\n/dev/nvme0n1p1 partition 1 0 -2\n/swapfile file\n");
    let holders = "sys/devices/pci0000:00/0000:00:10.0/nvme/nvme0/nvme0n1/nvme0n1p1/holders/dm-0";
    machine.file(holders, "");
    let function = machine.tree().function(address("00:10.0")).unwrap();
    let mut uses: Vec<String> = function.uses.iter().map(ToString::to_string).collect();
    uses.sort();
    assert_eq!(
        uses,
        [
            "nvme0n1 is mounted on /data",
            "nvme0n1p1 is mounted on /mnt/with blank",
            "nvme0n1p1 is part of dm-0",
            "nvme0n1p1 is swap",
        ]
    );
    let error = machine.tree().ready(address("00:10.0")).unwrap_err().to_string();
    for part in ["`nvme`", "`umount /data`", "`swapoff /dev/nvme0n1p1`", "stop dm-0", "pci bind"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(machine.tree().function(address("00:11.0")).unwrap().uses.is_empty());
}

/// With several paths to a namespace, the mounted disk is below no function.
#[test]
fn disk_of_several_paths_belongs_to_the_function_of_each() {
    let machine = Machine::usual();
    machine.block("pci0000:00/0000:00:10.0/nvme/nvme1/nvme1c1n1", "259:7");
    machine.block("virtual/nvme-subsystem/nvme-subsys1/nvme1n1", "259:8");
    machine.file("proc/self/mountinfo", "30 1 259:8 / /mnt rw - ext4 /dev/nvme1n1 rw\n");
    let function = machine.tree().function(address("00:10.0")).unwrap();
    assert_eq!(function.uses.len(), 1, "{function:?}");
    assert!(function.disks.contains(&"nvme1n1".to_owned()));
}

#[test]
fn only_what_vfio_has_alone_is_ready() {
    let machine = Machine::usual();
    let tree = machine.tree();
    assert_eq!(tree.ready(address("00:11.0")).unwrap().group, Some(4));
    let error = |text: &str| tree.ready(address(text)).unwrap_err();
    assert!(matches!(error("00:10.0"), VfioError::Bound { .. }));
    assert!(matches!(error("00:1f.3"), VfioError::Unbound { .. }));
    assert!(matches!(error("00:15.0"), VfioError::NoFunction { .. }));
    machine.function("0000:00:12.0", 0x01_0802, Some("vfio-pci"), None);
    assert!(matches!(error("00:12.0"), VfioError::NoIommu { .. }));
    machine.function("0000:00:13.0", 0x01_0802, Some("vfio-pci"), Some(9));
    machine.file("sys/kernel/iommu_groups/9/name", "vfio-noiommu\n");
    assert!(matches!(error("00:13.0"), VfioError::Unprotected { .. }));
    machine.function("0000:00:14.0", 0x01_0802, Some("vfio-pci"), Some(5));
    let shared = error("00:14.0").to_string();
    assert!(shared.contains("0000:00:1f.2 (ahci)") && shared.contains("--yes"), "{shared}");
    assert!(!shared.contains("1f.3"), "nobody drives that one: {shared}");
}

#[test]
fn binding_asks_before_it_takes_away() {
    let machine = Machine::usual();
    let bind = |text: &str, force| machine.tree().bind(address(text), force).unwrap_err();
    assert!(matches!(bind("00:1f.3", false), VfioError::Shared { .. }), "ahci is in its group");
    machine.function("0000:00:1c.0", 0x06_0400, Some("pcieport"), Some(8));
    assert!(matches!(bind("00:1c.0", true), VfioError::Device { .. }), "a bridge");
    machine.file("proc/self/mountinfo", "30 1 259:1 / /mnt rw - ext4 /dev/nvme0n1p1 rw\n");
    let error = bind("00:10.0", false).to_string();
    assert!(error.contains("`umount /mnt`") && error.contains("--yes"), "{error}");
    assert_eq!(machine.tree().bind(address("00:11.0"), false).unwrap(), [], "it has it already");
    fs::remove_dir_all(machine.path("sys/bus/pci/drivers/vfio-pci")).unwrap();
    machine.file("proc/self/mountinfo", "");
    let error = bind("00:10.0", false).to_string();
    assert!(error.contains("modprobe vfio-pci"), "{error}");
}

/// Files do not behave like the kernel: the writes are made, no driver takes the function, and the
/// writes are reverted.
#[test]
fn driver_that_does_not_take_it_is_told() {
    let machine = Machine::usual();
    let error = machine.tree().bind(address("00:10.0"), false).unwrap_err().to_string();
    assert!(error.contains("vfio-pci did not take it"), "{error}");
    let read = |path: &str| fs::read_to_string(machine.path(path)).unwrap();
    assert_eq!(read("sys/bus/pci/drivers/nvme/unbind"), "0000:00:10.0");
    assert_eq!(read("sys/bus/pci/drivers_probe"), "0000:00:10.0");
    let left = read("sys/devices/pci0000:00/0000:00:10.0/driver_override");
    assert!(left.starts_with('\n'), "{left:?}");
    let error = machine.tree().unbind(address("00:10.0")).unwrap_err();
    assert!(matches!(error, VfioError::NotOurs { .. }));
}

/// If there are containers, the group is used; otherwise the function's own file, if there is one.
#[test]
fn way_of_opening_is_chosen_by_what_there_is() {
    let machine = Machine::usual();
    let tree = machine.tree();
    let function = tree.ready(address("00:11.0")).unwrap();
    let open = |access| Domain::open(&tree, &function, access).unwrap_err();
    let path_of = |error| match error {
        VfioError::NoVfio { path, .. } => {
            path.strip_prefix(machine.path("dev")).unwrap().to_owned()
        }
        // A file that is no character device of the kernel's answers no call.
        VfioError::Unsupported { what } => panic!("container: {what}"),
        other => panic!("{other}"),
    };
    assert_eq!(path_of(open(Access::Auto)), Path::new("vfio/vfio"), "there is neither");
    let error = open(Access::Iommufd).to_string();
    assert!(error.contains("CONFIG_VFIO_DEVICE_CDEV") && error.contains("access="), "{error}");

    machine.file("sys/devices/pci0000:00/0000:00:11.0/vfio-dev/vfio7/dev", "244:7\n");
    assert_eq!(tree.device_file(function.address), None, "sysfs has it, and /dev has not");
    machine.file("dev/vfio/devices/vfio7", "");
    assert_eq!(path_of(open(Access::Auto)), Path::new("iommu"));
    assert_eq!(path_of(open(Access::Iommufd)), Path::new("iommu"));
    assert_eq!(path_of(open(Access::Group)), Path::new("vfio/vfio"));
    machine.file("dev/iommu", "");
    assert!(matches!(open(Access::Auto), VfioError::System { .. }), "no file of the kernel's");

    machine.file("dev/vfio/vfio", "");
    assert!(matches!(open(Access::Auto), VfioError::System { .. }), "a container, and no group");
    machine.file("dev/vfio/4", "");
    assert!(
        matches!(open(Access::Auto), VfioError::Unsupported { .. }),
        "a container and the group"
    );
}

/// A process that has the group or the function's own file open is reported, whichever it is.
#[test]
fn holder_of_a_function_is_found_by_either_file() {
    let machine = Machine::usual();
    let tree = machine.tree();
    let function = tree.ready(address("00:11.0")).unwrap();
    machine.file("sys/devices/pci0000:00/0000:00:11.0/vfio-dev/vfio7/dev", "244:7\n");
    machine.file("dev/vfio/devices/vfio7", "");
    machine.link("proc/41/fd/3", "dev/vfio/5");
    machine.link("proc/self/fd/3", "dev/vfio/4");
    assert_eq!(tree.holder(&function), None, "another group's");
    for (pid, file) in [(42, "dev/vfio/4"), (43, "dev/vfio/devices/vfio7")] {
        let open = format!("proc/{pid}/fd/9");
        machine.link(&open, file);
        assert_eq!(tree.holder(&function), Some(pid));
        let error = tree.unbind(function.address).unwrap_err();
        assert!(
            matches!(error, VfioError::Busy { pid: Some(found), .. } if found == pid),
            "{error}"
        );
        fs::remove_file(machine.path(&open)).unwrap();
    }
}

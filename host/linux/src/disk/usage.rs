//! Who else uses a block device, or the device behind a file.

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the kernel's information: `/`, or a folder of a test.
#[derive(Clone, Debug)]
pub(super) struct Tree(pub(super) PathBuf);

impl Tree {
    /// That of this machine.
    pub(super) fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// The folder of a block device.
    pub(super) fn folder(&self, (major, minor): (u32, u32)) -> PathBuf {
        let link = self.0.join(format!("sys/dev/block/{major}:{minor}"));
        link.canonicalize().unwrap_or(link)
    }

    /// A property of the request queue of a disk, or of a partition's disk.
    pub(super) fn queue(&self, number: (u32, u32), name: &str) -> Option<String> {
        let folder = self.folder(number);
        let disk = match folder.join("partition").exists() {
            true => folder.parent()?.to_path_buf(),
            false => folder,
        };
        let text = fs::read_to_string(disk.join("queue").join(name)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Every use that a write to the device would bypass, each with the command that ends it: of
    /// the device itself, its partitions, and the disk of which it is a partition.
    pub(super) fn uses(&self, number: (u32, u32)) -> Vec<String> {
        let folder = self.folder(number);
        let mut all = vec![folder.clone()];
        let children = fs::read_dir(&folder).into_iter().flatten().flatten();
        all.extend(children.map(|it| it.path()).filter(|it| it.join("partition").exists()));
        if folder.join("partition").exists() {
            all.extend(folder.parent().map(Path::to_path_buf));
        }
        let mounts = self.text("proc/self/mountinfo");
        let swaps = self.text("proc/swaps");
        let mut uses = Vec::new();
        for folder in all {
            let Some(name) = folder.file_name().map(|name| name.to_string_lossy().into_owned())
            else {
                continue;
            };
            let number = fs::read_to_string(folder.join("dev")).unwrap_or_default();
            let device = format!("/dev/{name}");
            for place in mounts.lines().filter_map(|line| mounted(line, number.trim(), &device)) {
                uses.push(format!("{device} is mounted at {place} (`umount {place}` ends it)"));
            }
            if swaps.lines().any(|line| line.split_whitespace().next() == Some(&device[..])) {
                uses.push(format!("{device} is swap (`swapoff {device}` ends it)"));
            }
            for holder in fs::read_dir(folder.join("holders")).into_iter().flatten().flatten() {
                let holder = holder.file_name();
                let holder = holder.to_string_lossy();
                uses.push(format!("{device} is part of /dev/{holder} (take that down first)"));
            }
        }
        uses
    }

    /// The loop device on the file, and swap on it.
    pub(super) fn uses_of_file(&self, path: &Path) -> Vec<String> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let mut uses = Vec::new();
        for entry in fs::read_dir(self.0.join("sys/block")).into_iter().flatten().flatten() {
            let file = fs::read_to_string(entry.path().join("loop/backing_file"));
            if file.is_ok_and(|file| Path::new(file.trim_end_matches('\n')) == path) {
                let name = entry.file_name().to_string_lossy().into_owned();
                uses.push(format!("/dev/{name} uses it (`losetup -d /dev/{name}` ends it)"));
            }
        }
        let swaps = self.text("proc/swaps");
        let first = |line: &str| Some(unescape(line.split_whitespace().next()?));
        if swaps.lines().filter_map(first).any(|swap| Path::new(&swap) == path) {
            let path = path.display();
            uses.push(format!("it is swap (`swapoff {path}` ends it)"));
        }
        uses
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap_or_default()
    }
}

/// Where the device is mounted, according to a line of `mountinfo` (proc(5)). Btrfs shows its own
/// device number, and the device by name.
fn mounted(line: &str, number: &str, device: &str) -> Option<String> {
    let (front, back) = line.split_once(" - ")?;
    let mut fields = front.split(' ').skip(2);
    let is_number = fields.next()? == number && !number.is_empty();
    let is_named = back.split(' ').nth(1) == Some(device);
    let place = fields.nth(1)?;
    (is_number || is_named).then(|| unescape(place))
}

/// Blanks, tabs, line ends and backslashes are written as octal numbers there.
fn unescape(text: &str) -> String {
    let marks = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    marks.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with sda (sda1, sda2), sdb, and loop0 on a file.
    fn machine() -> (tempfile::TempDir, Tree) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let numbers = [("sda", "8:0"), ("sda/sda1", "8:1"), ("sda/sda2", "8:2"), ("sdb", "8:16")];
        for (name, number) in numbers {
            write(&format!("sys/devices/{name}/dev"), number);
            let link = folder.path().join("sys/dev/block").join(number);
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            let target = folder.path().join("sys/devices").join(name);
            std::os::unix::fs::symlink(target, link).unwrap();
        }
        write("sys/devices/sda/sda1/partition", "1");
        write("sys/devices/sda/sda2/partition", "2");
        write("sys/devices/sda/queue/io_poll", "1\n");
        write("sys/block/loop0/loop/backing_file", "/x/disk.img\n");
        write("proc/swaps", "Filename Type\n/dev/sda2 partition 1 0 -2\n/swap\\040file file\n");
        write("proc/self/mountinfo", "22 1 0:20 / /sys rw - sysfs sysfs rw\n");
        let tree = Tree(folder.path().to_path_buf());
        (folder, tree)
    }

    #[test]
    fn mounts_swap_and_holders_of_the_disk_and_its_partitions_are_uses() {
        let (folder, tree) = machine();
        assert_eq!(tree.uses((8, 16)), [""; 0]);
        let swap = "/dev/sda2 is swap (`swapoff /dev/sda2` ends it)";
        assert_eq!(tree.uses((8, 0)), [swap]);
        assert_eq!(tree.uses((8, 2)), [swap]);
        assert_eq!(tree.uses((8, 1)), [""; 0], "another partition's use is not this one's");
        let mounts = "30 1 8:1 / /my\\040data rw - ext4 /dev/sda1 rw\n\
                      31 1 0:44 / /b rw - btrfs /dev/sdb rw\nnonsense\n1 2 3 - \n";
        fs::write(folder.path().join("proc/self/mountinfo"), mounts).unwrap();
        let mounted = "/dev/sda1 is mounted at /my data (`umount /my data` ends it)";
        assert_eq!(tree.uses((8, 1)), [mounted]);
        assert!(tree.uses((8, 0)).contains(&mounted.to_owned()));
        assert_eq!(tree.uses((8, 16)), ["/dev/sdb is mounted at /b (`umount /b` ends it)"]);
        fs::create_dir_all(folder.path().join("sys/devices/sda/holders/dm-0")).unwrap();
        let held = "/dev/sda is part of /dev/dm-0 (take that down first)";
        assert!(tree.uses((8, 1)).contains(&held.to_owned()), "the whole disk is held");
        assert_eq!(tree.uses((9, 9)), [""; 0], "what is not there has no uses");
    }

    #[test]
    fn files_under_loop_devices_and_swap_are_used() {
        let (_folder, tree) = machine();
        let used = tree.uses_of_file(Path::new("/x/disk.img"));
        assert_eq!(used, ["/dev/loop0 uses it (`losetup -d /dev/loop0` ends it)"]);
        assert_eq!(tree.uses_of_file(Path::new("/swap file")).len(), 1);
        assert_eq!(tree.uses_of_file(Path::new("/x/other.img")), [""; 0]);
    }

    #[test]
    fn the_queue_of_a_partition_is_its_disks() {
        let (_folder, tree) = machine();
        assert_eq!(tree.queue((8, 1), "io_poll").as_deref(), Some("1"));
        assert_eq!(tree.queue((8, 0), "io_poll").as_deref(), Some("1"));
        assert_eq!(tree.queue((8, 16), "io_poll"), None);
    }
}

//! Images changed in place: edits, mounts that can be changed, and their sudden end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::image_common::{
    Noise, Seen, differences, has_mtd_utils, is_root, make_tree, snapshot, without_access_lists,
    without_xattrs,
};
use flysch_tests::command::{Ran, flysch, run_in};

/// A UBI image of `tree` in `folder`, as users make them: no larger than its content.
fn ubi_image(tree: &Path, folder: &Path) -> PathBuf {
    let run = |command: &mut Command| {
        let output = command.current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
    };
    run(Command::new("mkfs.ubifs")
        .args(["-m", "2048", "-e", "126976", "-c", "300", "-o", "inner", "-r"])
        .arg(tree));
    let ini = "[v]\nmode=ubi\nimage=inner\nvol_id=0\nvol_type=dynamic\nvol_name=rootfs\n\
               vol_flags=autoresize\n";
    fs::write(folder.join("ini"), ini).unwrap();
    run(Command::new("ubinize").args(["-m", "2048", "-p", "128KiB", "-o", "image", "ini"]));
    folder.join("image")
}

fn good(ran: &Ran) {
    assert_eq!((ran.status, &ran.stderr[..]), (0, ""), "{}", ran.stdout);
}

/// What is in the image, as extraction shows it.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Seen> {
    let out = folder.join("out");
    let _ = fs::remove_dir_all(&out);
    good(&run_in("image check image", folder));
    good(&run_in("image extract image -o out", folder));
    snapshot(&out)
}

#[test]
fn edits_leave_everything_else_as_it_was() {
    if !has_mtd_utils() || !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tree = folder.join("tree");
    make_tree(&tree);
    ubi_image(&tree, folder);
    let before = contents(folder);

    // The same changes to the tree and to the image.
    let put = folder.join("put");
    make_tree(&put);
    fs::write(folder.join("new"), "new content").unwrap();
    let script = "put put /\nput new /text/t001\nrm /zeros\nmkdir -p -m 700 /a/b\n\
                  mv /text/t002 /a/b\nln /text/t003 /a/second\nln -s nowhere '/a/with space'\n";
    fs::write(folder.join("script"), script).unwrap();
    let ran = run_in("image edit image --script script", folder);
    // UBIFS has no access lists.
    let left_out = "flysch: 1 extended attributes were left out: the format can not hold them\n";
    assert_eq!((ran.status, &ran.stderr[..]), (0, left_out));
    let after = contents(folder);
    for (path, seen) in &before {
        let touched: [&str; 6] = ["", "text", "text/t001", "text/t002", "text/t003", "zeros"];
        if !touched.iter().any(|name| path.as_os_str() == *name) {
            assert_eq!(after.get(path), Some(seen), "{}", path.display());
        }
    }
    let found = |path: &str| fs::read(folder.join("out").join(path)).unwrap();
    assert_eq!(found("text/t001"), b"new content");
    assert_eq!(found("a/b/t002"), fs::read(tree.join("text/t002")).unwrap());
    assert_eq!(found("a/second"), fs::read(tree.join("text/t003")).unwrap());
    assert!(!folder.join("out/zeros").exists());
    let expected = without_access_lists(snapshot(&put));
    let different = differences(&expected, &snapshot(&folder.join("out/put")));
    assert!(different.is_empty(), "{}", different.join("\n"));

    // What fails changes nothing, and says where.
    let bytes = fs::read(folder.join("image")).unwrap();
    fs::write(folder.join("script"), "rm /text/t004\n\nrm /no/such\n").unwrap();
    let ran = run_in("image edit image --script script", folder);
    assert_eq!(ran.status, 1);
    assert!(ran.stderr.contains("line 3: /no: no such file"), "{}", ran.stderr);
    assert_eq!(fs::read(folder.join("image")).unwrap(), bytes);
    let ran = run_in("image edit image rm", folder);
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    let left: Vec<_> = fs::read_dir(folder).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with('.')), "{left:?}");
}

/// Every command in the spelling of its namesake, through symlinks, all or none.
#[test]
fn edits_are_spelled_as_the_tools_spell_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let made = "image create ubifs -m 512 -e 15872 -c 300 -o image";
    assert_eq!(run_in(made, folder).status, 0);
    fs::write(folder.join("passwd"), "www:x:33:34::/:/bin/sh\n").unwrap();
    fs::write(
        folder.join("script"),
        b"mkdir -p /usr/lib /etc /old # comment\r\nln -s usr/lib /lib\n\
        put passwd /etc/\nput passwd /lib/file\nchmod u=rwx,go=X /lib/file\nchown www: /lib/file\n\
        touch -d 2020-02-03T04:05:06 /lib/file '/\xff name'\nln -sf file /lib/link\n\
        ln -sfn usr /lib\nmv /etc/passwd /old /usr\nrm -rf /nothing\n",
    )
    .unwrap();
    let bytes = fs::read(folder.join("image")).unwrap();
    good(&run_in("image edit image -n --script script", folder));
    assert_eq!(fs::read(folder.join("image")).unwrap(), bytes, "nothing but a trial");
    good(&run_in("image edit image --script script", folder));
    let listed = run_in("image ls image", folder).stdout;
    for line in [
        "-rwx--x--x   1    33    34         23 2020-02-03 04:05 /usr/lib/file",
        "/lib -> usr",
        "/usr/lib/link -> file",
        "/usr/old",
        "/usr/passwd",
        "2020-02-03 04:05 /\\xff name",
    ] {
        assert!(listed.contains(line), "{line} in\n{listed}");
    }
    assert_eq!(run_in("image cat image /lib/lib/link", folder).stdout, "www:x:33:34::/:/bin/sh\n");
    for (edit, status, why) in [
        ("chown nobody /usr", 1, "`nobody` is not in the image's /etc/passwd"),
        ("mknod /x b", 2, "b and c need MAJOR and MINOR"),
        ("mknod /x p 1 2", 2, "p and s have no MAJOR"),
        ("mv /usr/old /usr/passwd /nothing", 1, "several files go into a directory only"),
        ("put passwd /nothing/", 1, "there is no such directory"),
        ("chmod u+q /usr", 2, "is no mode such as"),
        ("touch -d tomorrow /usr", 2, "is no time such as"),
    ] {
        let ran = run_in(&format!("image edit image {edit}"), folder);
        assert_eq!(ran.status, status, "{edit}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{edit}: {}", ran.stderr);
    }
    good(&run_in("image check image", folder));
}

/// A mount of the image, by the command.
struct Mount {
    child: Child,
    at: PathBuf,
}

fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == at.to_str())
}

fn mount(folder: &Path) -> Mount {
    let at = folder.join("mount");
    fs::create_dir_all(&at).unwrap();
    let mut command = flysch();
    command.args(["image", "mount", "--rw", "--flash-size", "24M", "image", "mount"]);
    let child = command.current_dir(folder).stdout(Stdio::null()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_mounted(&at) {
        assert!(Instant::now() < deadline, "it was not mounted");
        std::thread::sleep(Duration::from_millis(5));
    }
    Mount { child, at }
}

impl Drop for Mount {
    /// After a failed test.
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}

impl Mount {
    /// Ends it as a user does.
    fn unmount(mut self) {
        assert!(Command::new("umount").arg(&self.at).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }

    /// Ends the process where it is.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let lazily = Command::new("umount").arg("-l").arg(&self.at).stderr(Stdio::null()).status();
        assert!(lazily.unwrap().success() || !is_mounted(&self.at));
    }
}

#[test]
fn a_mount_killed_at_any_moment_leaves_what_was_synced() {
    if !has_mtd_utils() || !is_root() || !Path::new("/dev/fuse").exists() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tree = folder.join("tree");
    make_tree(&tree);
    ubi_image(&tree, folder);
    let mut noise = Noise::new(3);
    let mut synced: Vec<(String, Vec<u8>)> = vec![];
    for round in 0..6 {
        let mounted = mount(folder);
        for (name, content) in &synced {
            assert_eq!(&fs::read(mounted.at.join(name)).unwrap(), content, "{name}");
        }
        let busy = mounted.at.join(format!("busy{round}"));
        fs::create_dir(&busy).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                // Somebody writes until the mount is gone.
                let mut noise = Noise::new(round + 100);
                for number in 0.. {
                    let path = busy.join(format!("f{}", number % 40));
                    let len = noise.next() as usize % 60_000;
                    let written =
                        File::create(&path).and_then(|mut f| f.write_all(&noise.text(len)));
                    if written.is_err() || (number % 7 == 3 && fs::remove_file(&path).is_err()) {
                        return number;
                    }
                }
                0
            });
            for number in 0..3 {
                let name = format!("synced {round} {number}");
                let len = 1000 + noise.next() as usize % 100_000;
                let content = noise.bytes(len);
                let file = File::create(mounted.at.join(&name)).unwrap();
                file.write_all_at(&content, 0).unwrap();
                file.sync_all().unwrap();
                synced.push((name, content));
                std::thread::sleep(Duration::from_millis(noise.next() % 60));
            }
            mounted.kill();
            assert!(writer.join().unwrap() > 0);
        });
        good(&run_in("image check image", folder));
    }
    let mounted = mount(folder);
    for (name, content) in &synced {
        assert_eq!(&fs::read(mounted.at.join(name)).unwrap(), content, "{name}");
        fs::remove_file(mounted.at.join(name)).unwrap();
    }
    for round in 0..6 {
        fs::remove_dir_all(mounted.at.join(format!("busy{round}"))).unwrap();
    }
    let expected = without_xattrs(snapshot(&tree));
    let different = differences(&expected, &snapshot(&mounted.at));
    // The root got and lost names since.
    let real: Vec<_> = different.iter().filter(|line| !line.starts_with(':')).collect();
    assert!(real.len() <= 1, "{different:?}");
    mounted.unmount();
    good(&run_in("image check image", folder));
}

//! Images changed in place: edits, writable mounts, and their sudden end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::image_common::{
    FLAGGED, Noise, Seen, allowed, differences, has_mtd_utils, is_root, make_tree, snapshot,
    without_access_lists, without_xattrs,
};
use flysch_tests::command::{Ran, flysch, run_in};
use flysch_tests::wait::wait_until;

/// A UBI image of `tree` in `folder`, as users make them: no larger than its contents.
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

/// The contents of the image, as shown by extraction.
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
    let left_out = "flysch: 1 extended attribute was left out: the format cannot hold it\n";
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

    // A failure changes nothing, and its place is reported.
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

/// Every command in the spelling of its namesake, through symlinks, all or nothing.
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
        ("mknod /x p 1 2", 2, "p and s take no MAJOR"),
        ("mv /usr/old /usr/passwd /nothing", 1, "several files can only go into a directory"),
        ("put passwd /nothing/", 1, "there is no such directory"),
        ("chmod u+q /usr", 2, "is not a mode such as"),
        ("touch -d tomorrow /usr", 2, "is not a time such as"),
    ] {
        let ran = run_in(&format!("image edit image {edit}"), folder);
        assert_eq!(ran.status, status, "{edit}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{edit}: {}", ran.stderr);
    }
    good(&run_in("image check image", folder));
}

/// A mount of the image by the command.
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
    let mut mount = Mount { child, at };
    wait_until("it is mounted", || {
        assert!(mount.child.try_wait().unwrap().is_none(), "it ended");
        is_mounted(&mount.at)
    });
    mount
}

impl Drop for Mount {
    /// For failed tests.
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

    /// Ends the process abruptly.
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
        let (sender, begun) = channel();
        std::thread::scope(|scope| {
            let busy = &busy;
            scope.spawn(move || {
                // A thread writes until the mount is gone.
                let mut noise = Noise::new(round + 100);
                for number in 0.. {
                    let path = busy.join(format!("f{}", number % 40));
                    let len = noise.next() as usize % 60_000;
                    let written =
                        File::create(&path).and_then(|mut f| f.write_all(&noise.text(len)));
                    if written.is_err() || (number % 7 == 3 && fs::remove_file(&path).is_err()) {
                        break;
                    }
                    let _ = sender.send(number);
                }
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
            begun.recv().expect("the writer writes");
            mounted.kill();
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
    // Names have been added to the root and removed since.
    let real: Vec<_> = different.iter().filter(|line| !line.starts_with(':')).collect();
    assert!(real.len() <= 1, "{different:?}");
    mounted.unmount();
    good(&run_in("image check image", folder));
}

/// The same changes to a file system of the host and to an image: the effects on set-ID bits,
/// capabilities, and on what is created in set-group-ID directories.
#[test]
fn privileges_go_as_linux_takes_them() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    // A program that may bind to low ports (`vfs_cap_data`, version 2).
    const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let digits: String = CAPABILITY.iter().map(|byte| format!("{byte:02x}")).collect();
    fs::create_dir(folder.join("host")).unwrap();
    fs::write(folder.join("host/probe"), "").unwrap();
    let capable = |path: &Path| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(path, "security.capability", &CAPABILITY, flags).is_ok()
    };
    let has_capabilities = capable(&folder.join("host/probe"));
    fs::remove_file(folder.join("host/probe")).unwrap();
    good(&run_in("image create ubifs -m 512 -e 15872 -c 300 -o image", folder));
    fs::write(folder.join("content"), "new").unwrap();
    rustix::fs::chown(folder.join("content"), rustix::fs::Uid::from_raw(4).into(), None).unwrap();

    // The shell's words, and those of `edit` if they differ; @ is the file.
    let actions = [
        ("chown 5:6 @", ""),
        ("chown 0 @", ""),
        ("chown :7 @", ""),
        ("truncate -s 3 @", ""),
        ("truncate -s 50 @", ""),
        ("cat content > @", "put - @"),
        ("cp -a --remove-destination content @", "put content @"),
        ("chmod u+w @", ""),
    ];
    let (mut shell, mut script) = (vec!["umask 022".to_string()], vec![]);
    let mut both = |line: String, edit: String| {
        shell.push(line.replace(" /", " host/"));
        script.push(edit);
    };
    let mut files = vec![];
    for mode in ["4755", "2755", "6755", "2644", "6644", "755"] {
        for (number, (action, edit)) in actions.iter().enumerate() {
            let path = format!("/{mode}-{number}");
            let make = format!("put content {path}\nchown 0:0 {path}\nchmod {mode} {path}");
            let capability = match has_capabilities {
                true => format!("\nsetfattr -n security.capability -v 0x{digits} {path}"),
                false => String::new(),
            };
            let edit = if edit.is_empty() { action } else { edit };
            both(action.replace('@', &path), edit.replace('@', &path));
            files.push((path, mode, make + &capability));
        }
    }
    for line in [
        "mkdir /sg",
        "chown 3:33 /sg",
        "chmod 2775 /sg",
        "touch /sg/file",
        "mkdir /sg/folder",
        "mkdir -m 700 /sg/private",
        "ln -s nowhere /sg/link",
        "mknod /sg/pipe p",
        "mkdir /sg/folder/below",
        "touch /outside",
        "mv /outside /sg/moved",
    ] {
        both(line.into(), line.into());
    }
    both("cp -a content /sg/put".into(), "put content /sg/put".into());
    both("cat content > /sg/new".into(), "put - /sg/new".into());

    for (path, mode, _) in &files {
        let path = folder.join(format!("host{path}"));
        fs::write(&path, "new").unwrap();
        let mode = u32::from_str_radix(mode, 8).unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(capable(&path), has_capabilities);
    }
    let output =
        Command::new("sh").args(["-e", "-c", &shell.join("\n")]).current_dir(folder).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let make: Vec<&str> = files.iter().map(|(_, _, make)| &make[..]).collect();
    fs::write(folder.join("make"), make.join("\n")).unwrap();
    good(&run_in("image edit image --script make", folder));
    // Standard input can be read once, so commands that read it are run alone.
    let (piped, lines): (Vec<_>, Vec<_>) =
        script.into_iter().partition(|line| line.starts_with("put - "));
    fs::write(folder.join("script"), lines.join("\n")).unwrap();
    good(&run_in("image edit image --script script", folder));
    for line in piped {
        let mut command = flysch();
        command.args(["image", "edit", "image"]).args(line.split(' ')).current_dir(folder);
        let ran = command.stdin(File::open(folder.join("content")).unwrap()).output().unwrap();
        assert!(ran.status.success(), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
    }
    contents(folder);
    let trees = ["host", "out"].map(|tree| {
        let output = Command::new("find")
            .args([tree, "-exec", "touch", "-h", "-d", "@1000", "{}", "+"])
            .current_dir(folder)
            .output();
        assert!(output.unwrap().status.success());
        snapshot(&folder.join(tree))
    });
    let different = differences(&trees[0], &trees[1]);
    assert!(different.is_empty(), "{}", different.join("\n"));
    assert!(trees[0].len() > 50);
}

/// Immutable and append-only files, compared with what Linux allows.
#[test]
fn flags_forbid_what_they_forbid_elsewhere() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("host")).unwrap();
    good(&run_in("image create ubifs -m 512 -e 15872 -c 300 -o empty", folder));
    fs::write(folder.join("old"), "old\n").unwrap();
    for flag in ['i', 'a'] {
        let Some(expected) = allowed(&folder.join("host"), flag) else { return };
        let fill = format!("put old f\nput old y\nmkdir d\nput old d/old\nchattr +{flag} f d\n");
        fs::write(folder.join("fill"), fill).unwrap();
        good(&run_in("image edit empty -o image --script fill", folder));
        let shown = run_in("image ls image --flags", folder).stdout;
        let line = if flag == 'i' { "--i-c /f" } else { "---ac /f" };
        assert!(shown.lines().any(|it| it == line), "{shown}");
        for (action, edit) in FLAGGED.iter().filter(|(_, edit)| !edit.is_empty()) {
            let ran = run_in(&format!("image edit image -n {edit}"), folder);
            assert_eq!(
                ran.status == 0,
                expected.contains(action),
                "+{flag} {edit}: {}",
                ran.stderr
            );
            let why = if flag == 'i' { "immutable" } else { "append-only" };
            assert!(ran.status == 0 || ran.stderr.contains(why), "{edit}: {}", ran.stderr);
        }
        good(&run_in(&format!("image edit image chattr -{flag} f d"), folder));
        good(&run_in("image edit image rm -r f d", folder));
    }
    for (edit, status, why) in [
        ("chattr +q y", 2, "there are: i, a, S, D, c"),
        ("chattr i y", 2, "such as +i"),
        ("chattr +i nothing", 1, "no such file"),
    ] {
        let ran = run_in(&format!("image edit image {edit}"), folder);
        assert_eq!(ran.status, status, "{edit}: {}", ran.stderr);
        assert!(ran.stderr.contains(why), "{edit}: {}", ran.stderr);
    }
    good(&run_in("image check image", folder));
}

/// If the format supports them, as UBIFS does.
#[test]
fn times_keep_their_nanoseconds() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("tree")).unwrap();
    let time = |nanoseconds| std::time::UNIX_EPOCH + Duration::new(1_600_000_000, nanoseconds);
    for (name, nanoseconds) in [("tree/a", 123_456_789), ("b", 987_654_321)] {
        let file = File::create(folder.join(name)).unwrap();
        file.set_modified(time(nanoseconds)).unwrap();
    }
    good(&run_in("image create ubifs -r tree -m 512 -e 15872 -c 300 -o image", folder));
    good(&run_in("image edit image put b /b", folder));
    good(&run_in("image edit image touch -d @1600000000.000000007 /c", folder));
    if is_root() && Path::new("/dev/fuse").exists() {
        let mounted = mount(folder);
        let file = File::create(mounted.at.join("d")).unwrap();
        file.set_modified(time(999_999_999)).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), time(999_999_999));
        drop(file);
        mounted.unmount();
    } else {
        good(&run_in("image edit image touch -d @1600000000.999999999 /d", folder));
    }
    contents(folder);
    for (name, nanoseconds) in
        [("a", 123_456_789), ("b", 987_654_321), ("c", 7), ("d", 999_999_999)]
    {
        let metadata = fs::metadata(folder.join("out").join(name)).unwrap();
        assert_eq!(metadata.modified().unwrap(), time(nanoseconds), "{name}");
    }
    good(&run_in("image create ubifs -r tree -m 512 -e 15872 --whole-seconds -o image", folder));
    contents(folder);
    assert_eq!(fs::metadata(folder.join("out/a")).unwrap().modified().unwrap(), time(0));
}

/// A problem with a temporary copy is reported for the image.
#[test]
fn nobody_hears_of_a_temporary_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("image"), vec![3; 100_000]).unwrap();
    for command in ["image edit image mkdir /d", "image edit image -o other mkdir /d"] {
        let ran = run_in(command, folder);
        assert_eq!(ran.status, 1);
        assert!(ran.stderr.starts_with("flysch: image: no UBI, UBIFS or JFFS2"), "{}", ran.stderr);
    }
}

/// A number in an image must not fill the disk.
#[test]
fn a_file_grows_no_further_than_is_sane_unless_it_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("tree")).unwrap();
    fs::write(folder.join("tree/file"), vec![7; 20_000]).unwrap();
    good(&run_in("image create ubifs -r tree -m 2048 -e 126976 --pebs 64 -o inner", folder));
    let ini = "[v]\nmode=ubi\nimage=inner\nvol_id=0\nvol_type=dynamic\nvol_name=v\nvol_size=2GiB\n";
    fs::write(folder.join("ini"), ini).unwrap();
    good(&run_in("image create ubi -m 2048 -p 128KiB -o image ini", folder));
    let before = fs::read(folder.join("image")).unwrap();
    let refused = run_in("image edit image put ini /ini", folder);
    assert_ne!(refused.status, 0);
    assert!(refused.stderr.contains("--flash-size"), "{}", refused.stderr);
    assert!(fs::read(folder.join("image")).unwrap() == before);
    assert_eq!(fs::read_dir(folder).unwrap().count(), 4, "nothing is left behind");
}

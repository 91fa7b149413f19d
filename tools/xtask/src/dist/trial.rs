//! Trying the packages where nothing else is installed: the program in a folder of its own, the
//! Debian package and the wheel in a fresh Debian.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{copy, empty, ending, licences, make};
use crate::workspace::Workspace;
use crate::{needs, shell};

/// What is packed into the test image, and must come out again.
const TREE: &str = "docs";
/// Manual pages that must be found: the command's own, and those of two subcommands.
const PAGES: [&str; 3] = ["flysch", "flysch-image-extract", "flysch-ufs-rpmb"];
/// What the tree has besides the essential packages, each to check one part of ours.
const DEBIAN: &str = "--include=man-db,bash-completion,python3";

/// Tries everything in `folder`, using `scratch`.
pub(super) fn all(workspace: &Workspace, folder: &Path, scratch: &Path) -> Result<(), String> {
    empty(scratch)?;
    let sources = workspace.root.join(TREE);
    let image = image(folder, &sources, scratch)?;
    program(folder, &image, &sources, scratch)?;
    debian(folder, &image, &sources, scratch)
}

/// A UBI image of `tree` by mtd-utils, which proves more; without them, a UBIFS of our own.
fn image(folder: &Path, tree: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let (volume, image) = (scratch.join("docs.ubifs"), scratch.join("docs.ubi"));
    if shell::find("mkfs.ubifs").is_none() || shell::find("ubinize").is_none() {
        println!("   mtd-utils is missing: the image is one of our own");
        let mut flysch = Command::new(unpacked(folder, scratch)?.join("flysch"));
        flysch.args(["image", "create", "ubifs", "-m", "2048", "-e", "126976", "-c", "200", "-r"]);
        shell::run(flysch.arg(tree).arg("-o").arg(&volume))?;
        return Ok(volume);
    }
    let mut mkfs = Command::new("mkfs.ubifs");
    mkfs.args(["-m", "2048", "-e", "126976", "-c", "200", "-r"]).arg(tree).arg("-o").arg(&volume);
    shell::run(&mut mkfs)?;
    let config = scratch.join("ubinize.cfg");
    let text = "[docs]\nmode=ubi\nimage=docs.ubifs\nvol_id=0\nvol_type=dynamic\n\
        vol_name=docs\nvol_flags=autoresize\n";
    super::write(&config, text.as_bytes())?;
    let mut ubinize = Command::new("ubinize");
    ubinize.current_dir(scratch).args(["-m", "2048", "-p", "128KiB", "-o"]).arg(&image);
    shell::run(ubinize.arg(&config))?;
    Ok(image)
}

/// Unpacks the archive with the static program: the folder in it.
fn unpacked(folder: &Path, scratch: &Path) -> Result<PathBuf, String> {
    let place = scratch.join("unpacked");
    empty(&place)?;
    let archive = ending(folder, &format!("{}.tar.gz", super::STATIC))?;
    shell::run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(&place))?;
    ending(&place, super::STATIC)
}

/// Checks that the licences are in `place`: our own, and those of what is linked.
fn licensed(place: &Path) -> Result<(), String> {
    for name in licences::OWN.iter().chain([&licences::NOTICE]) {
        if super::read(&place.join(name))?.is_empty() {
            return Err(format!("{}: {name} is empty", place.display()));
        }
    }
    Ok(())
}

/// A command in the tree at `root`.
fn within(root: &Path, words: &[&str]) -> Command {
    let mut command = Command::new("chroot");
    command.arg(root).args(words).env_clear();
    command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
    command.env("HOME", "/root");
    command
}

/// Lists and extracts the image with `flysch`, and compares the result with what was packed.
fn extracts(root: &Path, flysch: &str, image: &Path, sources: &Path) -> Result<(), String> {
    let name = "/image";
    copy(image, &root.join("image"))?;
    let listed = shell::output(&mut within(root, &[flysch, "image", "ls", name]))?;
    if !listed.contains("ubifs.md") {
        return Err(format!("`flysch image ls` does not list what is in the image:\n{listed}"));
    }
    shell::run(&mut within(root, &[flysch, "image", "check", name]))?;
    shell::run(&mut within(root, &[flysch, "image", "extract", name, "-o", "/out"]))?;
    let mut diff = Command::new("diff");
    shell::run(diff.arg("-r").arg(sources).arg(root.join("out")))
}

/// The program alone: no C library, no shell, no `/proc`.
fn program(folder: &Path, image: &Path, sources: &Path, scratch: &Path) -> Result<(), String> {
    let root = scratch.join("alone");
    make(&root)?;
    let unpacked = unpacked(folder, scratch)?;
    licensed(&unpacked)?;
    copy(&unpacked.join("flysch"), &root.join("flysch"))?;
    shell::run(&mut within(&root, &["/flysch", "--version"]))?;
    extracts(&root, "/flysch", image, sources)?;
    println!("   the program runs where nothing else is");
    Ok(())
}

/// Installs the Debian package, and unpacks and imports the wheel, in a fresh Debian.
fn debian(folder: &Path, image: &Path, sources: &Path, scratch: &Path) -> Result<(), String> {
    let root = scratch.join("debian");
    let release = needs::release().ok_or("a clean Debian is made on Debian: or --no-trial")?;
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=essential", DEBIAN, &release]).arg(&root);
    shell::run(make.arg(needs::source(&release)?))?;
    copy(&ending(folder, ".deb")?, &root.join("flysch.deb"))?;
    shell::run(&mut within(&root, &["dpkg", "--install", "/flysch.deb"]))?;
    shell::run(&mut within(&root, &["flysch", "--version"]))?;
    extracts(&root, "flysch", image, sources)?;
    licensed(&root.join("usr/share/doc/flysch"))?;
    for page in PAGES {
        shell::run(&mut within(&root, &["man", "-w", page]))?;
    }
    // The function that loads completions has different names in different releases.
    let complete = ". /usr/share/bash-completion/bash_completion; \
        for load in _comp_load _load_completion __load_completion; do \
        type $load >/dev/null 2>&1 && $load flysch && break; done; complete -p flysch";
    shell::run(&mut within(&root, &["bash", "-c", complete]))?;
    let wheel = ending(folder, ".whl")?;
    copy(&wheel, &root.join("wheel"))?;
    shell::run(&mut within(&root, &["python3", "-m", "zipfile", "-e", "/wheel", "/module"]))?;
    let module = root.join("module");
    licensed(&ending(&module, ".dist-info")?.join("licenses"))?;
    let python = "import flysch; v = flysch.open('/image').volumes[0]; \
        assert 'ubifs.md' in [p for _, _, fs in flysch.walk(v) for p in fs]; print('wheel: ok')";
    let mut import = within(&root, &["python3", "-c", python]);
    shell::run(import.env("PYTHONPATH", "/module"))?;
    shell::run(&mut within(&root, &["dpkg", "--purge", "flysch"]))?;
    if root.join("usr/bin/flysch").exists() {
        return Err("the package leaves its program behind".into());
    }
    println!("   the Debian package and the wheel work in a clean {release}");
    Ok(())
}

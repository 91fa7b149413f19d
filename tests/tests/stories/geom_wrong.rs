//! Invalid uses of `flysch geom`: one line that gives the right form, the status, no byte written.

use std::fs;
use std::path::Path;

use flysch_tests::command::run_in;

fn disks(folder: &Path) {
    for (name, bytes) in [("a.img", 4 << 20), ("b.img", 4 << 20), ("empty.img", 0)] {
        fs::File::create(folder.join(name)).unwrap().set_len(bytes).unwrap();
    }
    let made = run_in("geom -f g.img part create -s gpt g", {
        fs::File::create(folder.join("g.img")).unwrap().set_len(4 << 20).unwrap();
        folder
    });
    assert_eq!(made.status, 0, "{}", made.stderr);
    let made = run_in("geom -f g.img part add -t linux-data -b 40 -s 100 g", folder);
    assert_eq!(made.status, 0, "{}", made.stderr);
    fs::write(folder.join("cut.img"), &fs::read(folder.join("g.img")).unwrap()[..100_000]).unwrap();
    fs::write(folder.join("r.toml"), "bogus = 1\n").unwrap();
    fs::write(folder.join("none.toml"), "clock = \"virtual\"\n").unwrap();
}

/// The words, the status, and the only line on standard error.
const ROWS: &[(&str, i32, &str)] = &[
    ("-f a.img part create gpt a", 2, "needs `-s <SCHEME>`; use `flysch geom part create"),
    (
        "-f a.img part create --force a",
        2,
        "not provided: -s <SCHEME>; use `flysch geom part create",
    ),
    ("-f a.img part --rig r.toml show", 2, "option of `flysch geom`: put it before"),
    ("-f a.img part create -s gpt a b", 2, "'b' found; use `flysch geom part create [OPTIONS]"),
    ("-f a.img part add -t", 2, "'-t <KIND>' but none was supplied; `flysch geom part add --help`"),
    ("-f a.img part frobnicate a", 2, "'frobnicate'; `flysch geom part --help` shows what"),
    ("-f a.img mirror label m", 2, "<PROVIDERS>...; use `flysch geom mirror label <NAME>"),
    ("-f a.img mirror lable m a", 2, "a similar subcommand exists: 'label'"),
    ("-f a.img mirror label -b foo m a", 2, "`foo` is not one of load, prefer"),
    ("-f a.img mirror configure -p 3 m", 2, "mirror configure -p <PRIORITY> <NAME> <PROVIDER>`"),
    ("-f a.img mirror dump a", 1, "a: there is no metadata of MIRROR in its last sector"),
    ("-f a.img nop create -r 200 a", 2, "it must be 0 to 100"),
    ("-f a.img nop create -e 7 a", 2, "it must be 5 (EIO) or 6 (ENXIO)"),
    ("-f a.img -f b.img nop create -Z x a b", 2, "-Z: only one provider can have the name"),
    (
        "-f a.img -f b.img raid label -o LE DDF x RAID1 a b",
        2,
        "in the other byte order (LE); use BE",
    ),
    ("-f a.img -f b.img raid label -o BE Intel x RAID1 a b", 2, "Intel has no options"),
    ("-f a.img concat append c a", 1, "there is no such geom of class CONCAT"),
    ("-f a.img label refresh", 2, "use `flysch geom label refresh <PROVIDERS>...`"),
    ("-f a.img diskinfo -p a", 1, "a: has no physical path"),
    ("-f a.img -p nothere", 1, "nothere: there is no such provider"),
    ("-f a.img -t part show", 2, "-p and -t cannot be combined with a class and a verb"),
    ("-f a.img disk list -x", 2, "'-x' found; use `flysch geom disk list"),
    ("-f empty.img part show", 1, "`truncate -s SIZE` gives it a size"),
    ("-f cut.img part show", 0, "cut: not shown: a GPT that cannot be recovered"),
    ("-f cut.img part status", 0, "`geom why cut` tells more"),
    ("-f g.img part add -t linux-data -b 50 -s 100 g", 1, "there is no room at sector 50"),
    ("-f g.img part add -t linux-data -i 1 g", 1, "partition 1 already exists"),
    ("-f g.img part add -t linux-data -a 1g g", 1, "no multiple of the alignment is free"),
    ("-f g.img part add -t linux-data -s 0 g", 1, "the size must not be 0"),
    ("-f g.img part add -t linux-dat g", 2, "linux-dat: is not a type of GPT partitions"),
    ("-f a.img part create -s gtp a", 2, "`gtp` is not one of GPT, MBR"),
    ("-f g.img part delete -i 9 g", 1, "has no partition 9"),
    ("-f a.img label label sixteen-and-more a", 2, "a label must have 1 to 15 bytes"),
    ("-f a.img stripe label s a", 2, "needs two components"),
    ("-f a.img -f b.img stripe label -s 100 s a b", 2, "not a power of two"),
    ("-f a.img -f b.img raid label Intel x RAID5 a b", 2, "is not a level that can be made"),
    ("-f a.img -f a.img part show", 2, "use `-f FILE,name=OTHER`"),
    ("-f a.img,sector=100 part show", 2, "they must have 512 to 65536"),
    ("-f b.img copy g.img nothing", 1, "there is no such provider"),
    ("part show", 0, "there are no disks; name images with -f FILE, targets with --on TARGET"),
    ("disk list", 0, "there are no disks; name images with -f FILE"),
    ("part show da0", 1, "nor any other; name images with -f FILE, targets with --on TARGET"),
    ("--rig absent.toml tree", 1, "absent.toml: No such file"),
    ("-f a.img part show b", 1, "there is no such provider"),
    ("-f a.img part show a", 1, "there is no partition table"),
    ("--rig r.toml tree", 2, "r.toml: line 1: `bogus`"),
    ("--rig none.toml tree", 2, "has no disks"),
];

#[test]
fn wrong_words_are_told_the_right_form_and_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    disks(folder);
    let all = ["a.img", "b.img", "g.img", "cut.img"];
    let bytes = || all.map(|name| fs::read(folder.join(name)).unwrap());
    let (before, count) = (bytes(), fs::read_dir(folder).unwrap().count());
    for (words, status, part) in ROWS {
        let ran = run_in(&format!("geom {words}"), folder);
        assert_eq!(ran.status, *status, "{words}: {}{}", ran.stdout, ran.stderr);
        let is_one = ran.stderr.starts_with("flysch: ") && ran.stderr.lines().count() == 1;
        assert!(is_one && ran.stderr.contains(part), "{words}: {}", ran.stderr);
        assert!(bytes() == before, "{words}: wrote");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), count);
}

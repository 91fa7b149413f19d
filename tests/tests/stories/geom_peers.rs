//! The block layer and what other tools write and read.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use flysch_tests::command::{lacks, run_in};
use flysch_tests::geom::{graph, tool};
use flysch_tests::tables;

#[test]
fn random_tables_are_the_same_to_everybody() {
    if tables::TOOLS.into_iter().any(lacks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for seed in 0..12 {
        tables::try_one(seed, folder.path()).unwrap();
    }
}

/// A way to make a named file system: the program, its arguments, MiB, folder and name.
type Volume = (&'static str, &'static [&'static str], u64, &'static str);

const VOLUMES: [Volume; 10] = [
    ("mkfs.ext4", &["-q", "-F", "-L", "ext root"], 8, "ext2fs/ext%20root"),
    ("mkfs.fat", &["-F", "12", "-n", "FATTY"], 4, "msdosfs/FATTY"),
    ("mkfs.fat", &["-F", "32", "-n", "THIRTYTWO"], 64, "msdosfs/THIRTYTWO"),
    ("mkfs.ntfs", &["-q", "-F", "-L", "Windows"], 8, "ntfs/Windows"),
    ("mkfs.exfat", &["-L", "exfat name"], 8, "exfat/exfat%20name"),
    ("mkfs.xfs", &["-q", "-f", "-L", "xfsname"], 320, "xfs/xfsname"),
    ("mkfs.btrfs", &["-q", "-f", "-L", "butter"], 128, "btrfs/butter"),
    ("mkfs.f2fs", &["-q", "-f", "-l", "flashy"], 64, "f2fs/flashy"),
    ("mkfs.udf", &["--label=UdfName"], 8, "udf/UdfName"),
    ("mkswap", &["-q", "-L", "swappy"], 8, "swap/swappy"),
];

#[test]
fn volumes_are_known_by_the_names_their_makers_gave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("volume");
    for (program, arguments, mebibytes, name) in VOLUMES {
        if lacks(program) {
            continue;
        }
        File::create(&path).unwrap().set_len(mebibytes << 20).unwrap();
        tool(program, arguments, &path).unwrap();
        expect(&path, program, name);
    }
}

fn expect(path: &Path, program: &str, name: &str) {
    let (graph, disks) = graph(&[path], 1);
    let said: Vec<_> = graph.record.verdicts().filter(|v| v.class == "LABEL").collect();
    let provider = graph.provider(name).unwrap_or_else(|_| panic!("{program}: {said:?}"));
    assert_eq!(graph[provider].media_size, graph[disks[0]].media_size, "{program}");
    assert!(graph.objects().geoms_of("PART").next().is_none(), "{program} was taken for a table");
}

#[test]
fn trees_that_were_packed_keep_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let (tree, path) = (folder.path().join("tree"), folder.path().join("volume"));
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("file"), b"content").unwrap();
    let packed = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).current_dir(folder.path()).output();
        assert!(output.unwrap().status.success(), "{program}");
        // Rounded to whole sectors, as on every disk.
        let file = File::options().write(true).open(&path).unwrap();
        let length = file.metadata().unwrap().len();
        file.set_len(length.next_multiple_of(4096)).unwrap();
    };
    if !lacks("genisoimage") {
        packed("genisoimage", &["-quiet", "-V", "DISC", "-o", "volume", "tree"]);
        expect(&path, "genisoimage", "iso9660/DISC");
        std::fs::remove_file(&path).unwrap();
    }
    if !lacks("mkfs.ubifs") {
        let geometry = ["-m", "2048", "-e", "126976", "-c", "100"];
        packed("mkfs.ubifs", &[&geometry[..], &["-r", "tree", "-o", "volume"]].concat());
        let id = tool("blkid", &["-p", "-s", "UUID", "-o", "value"], &path).unwrap();
        expect(&path, "mkfs.ubifs", &format!("ubifs/{}", id.trim()));
        std::fs::remove_file(&path).unwrap();
    }
    if !lacks("mksquashfs") {
        let arguments = ["tree", "volume", "-quiet", "-no-progress", "-processors", "1"];
        packed("mksquashfs", &arguments);
        let folder = folder.path();
        let ran = run_in("geom -f volume part create -s gpt volume", folder);
        assert_eq!(ran.status, 1);
        assert!(
            ran.stderr.contains("Squashfs") && ran.stderr.contains("--force"),
            "{}",
            ran.stderr
        );
    }
}

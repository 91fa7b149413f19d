//! Images made by mkfs.ubifs and ubinize come out as they went in.

use std::fs;

use flysch_tests::ubifs::{
    FORMATS, Format, Tree, differences, flash, host_tree, image_tree, make_tree, mkfs,
    tools_missing, ubinize,
};
use flysch_ubi::{AttachOptions, Ubi, find_images};
use flysch_ubifs::{FlatImage, OpenOptions, Ubifs};

/// What a UBI image shows of its first volume.
fn through_ubi(image: Vec<u8>, format: &Format, options: &OpenOptions) -> (Tree, Vec<String>) {
    let flash = flash(image, format);
    let found = find_images(&flash, None)[0];
    assert_eq!(found.peb_size, format.peb_size, "the block size is worked out");
    let ubi = Ubi::attach(&flash, found, &AttachOptions::default()).expect("it attaches");
    let mut problems: Vec<String> = ubi.findings().iter().map(ToString::to_string).collect();
    let volume = ubi.volume(0).expect("volume 0");
    let fs = Ubifs::open(volume, options).expect("it opens");
    problems.extend(fs.findings().iter().map(ToString::to_string));
    let tree = image_tree(&fs, &mut problems);
    (tree, problems)
}

fn through_file(image: Vec<u8>, format: &Format) -> (Tree, Vec<String>) {
    let volume = FlatImage::open(flash(image, format)).expect("a superblock");
    let fs = Ubifs::open(volume, &OpenOptions::default()).expect("it opens");
    let mut problems = fs.findings().iter().map(ToString::to_string).collect();
    let tree = image_tree(&fs, &mut problems);
    (tree, problems)
}

fn assert_equal(expected: &Tree, (found, problems): (Tree, Vec<String>), what: &str) {
    assert_eq!(problems, Vec::<String>::new(), "{what}");
    let lines = differences(expected, &found);
    assert!(lines.is_empty(), "{what}:\n{}", lines.join("\n"));
}

#[test]
fn every_geometry_comes_back() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let expected = host_tree(tree.path());
    assert!(expected.len() > 240);
    for format in FORMATS {
        let image = mkfs(tree.path(), &format, "lzo", &[]);
        let ubi = ubinize(&image, &format);
        assert_equal(&expected, through_file(image, &format), &format!("{format:?} flat"));
        let found = through_ubi(ubi, &format, &OpenOptions::default());
        assert_equal(&expected, found, &format!("{format:?} in UBI"));
    }
}

#[test]
fn every_compressor_and_hash_comes_back() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let expected = host_tree(tree.path());
    let format = FORMATS[1];
    let cases: [(&str, &[&str]); 7] = [
        ("none", &[]),
        ("zlib", &[]),
        ("zstd", &[]),
        ("favor_lzo", &["-X", "20"]),
        ("lzo", &["-k", "test"]),
        ("lzo", &["-F"]),
        ("lzo", &["-f", "16", "-j", "8MiB"]),
    ];
    for (compressor, more) in cases {
        let image = mkfs(tree.path(), &format, compressor, more);
        assert_equal(&expected, through_file(image, &format), &format!("{compressor} {more:?}"));
    }
}

#[test]
fn nodes_alone_tell_the_same() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let expected = host_tree(tree.path());
    let format = FORMATS[1];
    let ubi = ubinize(&mkfs(tree.path(), &format, "zstd", &[]), &format);
    let options = OpenOptions { index: flysch_ubifs::IndexUse::Rebuild, keys: None };
    let (found, _) = through_ubi(ubi, &format, &options);
    assert_eq!(differences(&expected, &found), Vec::<String>::new());
}

#[test]
fn an_empty_file_system_is_empty() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    let image = mkfs(tree.path(), &FORMATS[1], "lzo", &[]);
    assert_equal(&host_tree(tree.path()), through_file(image, &FORMATS[1]), "empty");
}

#[test]
fn a_planted_difference_is_seen() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    let image = mkfs(tree.path(), &FORMATS[1], "none", &[]);
    let path = tree.path().join("texts/text-17");
    let mut content = fs::read(&path).unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    content[0] ^= 1;
    fs::write(&path, content).unwrap();
    fs::File::open(&path).unwrap().set_modified(modified).unwrap();
    fs::remove_file(tree.path().join("size-127")).unwrap();
    let (found, _) = through_file(image, &FORMATS[1]);
    let lines = differences(&host_tree(tree.path()), &found);
    let names: Vec<_> = lines.iter().map(|line| line.split(':').next().unwrap()).collect();
    // The directory that lost a file may have another time.
    assert_eq!(names.iter().filter(|name| !name.is_empty()).count(), 2, "{lines:?}");
    assert!(names.contains(&"texts/text-17") && names.contains(&"size-127"), "{lines:?}");
}

#[test]
fn many_files_come_back() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    for directory in 0..20 {
        let path = tree.path().join(format!("d{directory}"));
        fs::create_dir(&path).unwrap();
        for file in 0..100 {
            fs::write(path.join(format!("f{file}")), format!("{directory} {file}")).unwrap();
        }
    }
    // A maximum far above the size leads to the big model of the LEB properties tree.
    let format = Format { lebs: 20_000, ..FORMATS[1] };
    let image = mkfs(tree.path(), &format, "lzo", &[]);
    assert_equal(&host_tree(tree.path()), through_file(image, &format), "many files");
}

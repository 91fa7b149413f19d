//! UBIFS fulfils the file system contract.

use flysch_tests::ubifs::{FORMATS, Format, flash, make_tree, mkfs, tools_missing, ubinize};
use flysch_ubi::{AttachOptions, Ubi, find_images};
use flysch_ubifs::{IndexUse, OpenOptions, Ubifs};

fn assert_kept(image: Vec<u8>, format: &Format, index: IndexUse) {
    let flash = flash(image, format);
    let ubi = Ubi::attach(&flash, find_images(&flash, None)[0], &AttachOptions::default()).unwrap();
    let fs = Ubifs::open(ubi.volume(0).unwrap(), &OpenOptions { index, keys: None }).unwrap();
    let report = flysch_vfs::verify(&fs);
    let lines: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert_eq!(lines, Vec::<String>::new(), "{format:?} {index:?}");
    assert!(report.files > 5 && report.bytes > 100);
}

#[test]
fn images_of_mkfs_keep_the_contract() {
    if tools_missing() {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    make_tree(tree.path());
    for (format, compressor, hash) in
        [(&FORMATS[0], "zstd", "r5"), (&FORMATS[1], "lzo", "test"), (&FORMATS[5], "none", "r5")]
    {
        let image = ubinize(&mkfs(tree.path(), format, compressor, &["-k", hash]), format);
        for index in [IndexUse::Verify, IndexUse::Trust] {
            assert_kept(image.clone(), format, index);
        }
    }
}

#[test]
fn one_file_system_serves_many_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Ubifs<flysch_ubi::UbiVolume<flysch_mtd::FlashImage<std::sync::Arc<Vec<u8>>>>>>();
}

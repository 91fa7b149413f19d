//! UBIFS as Linux writes it, unmounted and cut, against what Flysch shows of it.

mod linux;

use flysch_image::{Contents, Image, Options};
use flysch_lab::manifest::{self, Detail, Manifest};

#[test]
fn what_linux_wrote_is_shown_as_linux_shows_it() {
    let script = "
        whole small-lzo ubifs small 1 '' '' compr=lzo 3
        whole large-zlib ubifs large 2 oob '' compr=zlib 3
        whole late-zstd ubifs large 3 '' '-O 2048' compr=zstd 3
        whole nor-none ubifs nor 4 '' '' compr=none 3
        whole huge-lzo ubifs huge 5 '' '' compr=lzo 2";
    let Some(share) = linux::run("ubifs", script) else { return };
    images_are_of_format_5_and_cut(&share);
    linux::planted_differences_are_found(&share);
    linux::judge(&share);
}

/// The images are of the kind they are meant to be.
fn images_are_of_format_5_and_cut(share: &linux::Share) {
    for path in linux::named(share, "cut1.img") {
        let image = Image::open(&path, &Options::default()).unwrap();
        let volume = linux::volume(&image).unwrap();
        let Contents::Ubifs(fs) = &volume.contents else { panic!("{volume:?}") };
        assert_eq!(fs.superblock().format_version, 5);
        assert!(fs.is_unclean(), "{} was not cut", path.display());
    }
}

#[test]
fn cuts_that_the_kernel_emulates_are_recovered_from_as_linux_does() {
    let script = "
        whole small-zstd ubifs small 35 '' '' compr=zstd 1
        emulated emulated large 34 compr=lzo 6";
    let Some(share) = linux::run("ubifs-emulated", script) else { return };
    linux::judge(&share);
}

#[test]
fn encrypted_directories_are_recognised_and_their_contents_refused() {
    let Some(share) = linux::run("ubifs-encrypted", "encrypted secret large 36") else { return };
    let path = linux::named(&share, "clean.img").remove(0);
    let image = Image::open(&path, &Options::default()).unwrap();
    let volume = linux::volume(&image).unwrap();
    let fs = volume.file_system().unwrap();
    let found = manifest::of_file_system(&*fs, Detail::Whole);
    let expected = linux::expected(&path).unwrap();
    assert_eq!(found["plain/file"], expected["plain/file"]);
    let secret = |manifest: &Manifest| {
        let below = manifest.iter().filter(|(path, _)| path.starts_with("secret/"));
        below.map(|(_, line)| line.clone()).collect::<Vec<_>>()
    };
    let lines = secret(&found);
    let refused = lines.iter().filter(|line| line.contains("encrypted, and the key")).count();
    let stored = |line: &&String| line.starts_with("Regular") || line.starts_with("Symlink");
    assert_eq!(refused, lines.iter().filter(stored).count(), "contents that were not refused");
    assert!(refused > 100, "{refused}");
    // Names are not comparable (Linux adds hashes of its own), everything else but contents is.
    let plain = |lines: Vec<String>| {
        // Linux tells the length of the target that it makes up for a symlink.
        let cut = |line: String| match line.split_once(" size ") {
            Some((before, _)) if line.starts_with("Symlink") => before.to_owned(),
            _ => line.split(" content ").next().unwrap_or_default().to_owned(),
        };
        let mut lines: Vec<_> = lines.into_iter().map(cut).collect();
        lines.sort();
        lines
    };
    assert_eq!(plain(lines), plain(secret(&expected)));
    println!("{refused} contents refused");
}

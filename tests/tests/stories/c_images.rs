//! Flash images as used from C: `flysch_images.h`, and a C program that uses it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr;

use flysch_images::{
    Buffer, Bytes, Entry, File, Format, Image, ImageError, ImageOptions, ImageStatus, Reader, Stat,
    TEXT_BYTES, Visit, Volume, flysch_file_close, flysch_file_extract, flysch_file_link,
    flysch_file_list, flysch_file_open, flysch_file_open_link, flysch_file_read, flysch_file_stat,
    flysch_file_walk, flysch_file_xattr, flysch_file_xattrs, flysch_image_close,
    flysch_image_failure, flysch_image_open, flysch_image_open_memory, flysch_image_open_reader,
    flysch_image_status_text, flysch_image_volume, flysch_image_volumes,
};

use crate::c_drivers::{assert_header, assert_pkg_config};
use crate::image_common::{Noise, has_mtd_utils};
use crate::library::ubi_image;

const BLOB: usize = 300_000;

fn of(bytes: &[u8]) -> Bytes {
    Bytes { data: bytes.as_ptr(), len: bytes.len() }
}

fn no_error() -> ImageError {
    ImageError { status: ImageStatus::Ok, text: [0; TEXT_BYTES], cause: [0; TEXT_BYTES] }
}

fn words(text: &[c_char]) -> String {
    // SAFETY: every text of the library ends with a zero.
    unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().expect("UTF-8").to_owned()
}

/// An image of mtd-utils with a file, a link to it, a dangling link, a pipe and a directory.
fn image(folder: &Path) -> (PathBuf, Vec<u8>) {
    let content = Noise::new(7).bytes(BLOB);
    let tree = folder.join("tree");
    std::fs::create_dir_all(tree.join("etc/conf.d")).unwrap();
    std::os::unix::fs::symlink("../etc/blob", tree.join("etc/link")).unwrap();
    std::os::unix::fs::symlink("none", tree.join("etc/loose")).unwrap();
    std::fs::write(tree.join("etc/conf.d/a"), "a=1\n").unwrap();
    (ubi_image(folder, &content), content)
}

/// The library that these tests were built with: `cc` links what cargo has just built.
fn library() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let entries = std::fs::read_dir(program.parent().expect("its folder")).expect("a folder");
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libflysch_images-") && name.ends_with(".a")
    };
    let found = entries.flatten().map(|entry| entry.path()).filter(is_it);
    let newest = found.max_by_key(|path| path.metadata().and_then(|it| it.modified()).ok());
    newest.expect("the static library is built with its crate")
}

/// Compiles a C program with the library and the headers of both bindings.
fn compile(source: &Path, program: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let strict = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];
    let output = Command::new("cc")
        .args(strict)
        .args(["-I", "bindings/c-images/include", "-I", "bindings/c-drivers/include"])
        .args([source, &library()])
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(program)
        .current_dir(root)
        .output()
        .expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn ran(program: &Path, words: &[&str]) -> Output {
    Command::new(program).args(words).output().expect("it runs")
}

#[test]
fn a_program_in_c_reads_an_image_that_others_made() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, content) = image(folder.path());
    let image = image.to_str().unwrap();
    let program = folder.path().join("read_ubi_image");
    compile(Path::new("examples/c/images/read_ubi_image.c"), &program);
    for path in ["/etc/blob", "etc/link", "/etc/conf.d/../../etc/blob"] {
        let output = ran(&program, &[image, "data", path]);
        assert!(output.status.success() && output.stdout == content, "{path}: {output:?}");
    }
    let said = |words: &[&str]| {
        let output = ran(&program, words);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let absent = "/etc/none: no such file or directory\n";
    assert_eq!(said(&[image, "data", "/etc/none"]), (Some(1), absent.into()));
    let long = format!("/etc/{}", "n".repeat(300));
    let (status, text) = said(&[image, "data", &long]);
    assert!(status == Some(1) && text.ends_with("nnn: no such file or directory\n"), "{text}");
    assert_eq!(said(&[image, "boot", "/"]), (Some(1), "there is no volume `boot` in it\n".into()));
    assert_eq!(said(&[]).0, Some(2));
    let listed = String::from_utf8(ran(&program, &[image]).stdout).unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines[0], "volume data");
    let blob = format!("{BLOB} /etc/blob");
    assert!(lines.iter().any(|line| line.starts_with("100") && line.ends_with(&blob)), "{listed}");
    assert!(lines.iter().any(|line| line.starts_with("120777 ") && line.ends_with(" /etc/link")));
    // The volume, the root, etc, blob, conf.d, a, link and loose.
    assert_eq!(lines.len(), 8, "{listed}");
}

#[test]
fn raw_volumes_and_what_cannot_be_opened_are_listed_as_such() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, _) = image(folder.path());
    // The same once more, with the kernel before it.
    let ini = std::fs::read_to_string(folder.path().join("ini")).unwrap();
    let kernel = "[kernel]\nmode=ubi\nimage=ini\nvol_id=1\nvol_type=static\nvol_name=kernel\n\
        vol_size=1MiB\n";
    let both = folder.path().join("both.ini");
    std::fs::write(&both, format!("{kernel}{ini}")).unwrap();
    let shape = ["-m", "2048", "-s", "512", "-p", "128KiB", "-o", "both", "both.ini"];
    let made = Command::new("ubinize").args(shape).current_dir(folder.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let program = folder.path().join("read_ubi_image");
    compile(Path::new("examples/c/images/read_ubi_image.c"), &program);
    let output = ran(&program, &[folder.path().join("both").to_str().unwrap()]);
    let listed = String::from_utf8(output.stdout).unwrap();
    assert!(listed.starts_with("volume kernel (raw: no file system)\nvolume data\n"), "{listed}");
    assert!(output.status.success() && listed.contains(" /etc/blob\n"), "{listed}");
    // One block does not say how large blocks are, and no volume says so.
    let one = folder.path().join("one");
    std::fs::write(&one, &std::fs::read(&image).unwrap()[..128 << 10]).unwrap();
    let output = ran(&program, &[one.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.contains("only one UBI header") && said.contains("(erase_size)"), "{said}");
}

#[test]
fn cpp_has_literals_of_bytes_too() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("bytes.cc");
    let text = "#include \"flysch_images.h\"\n\
        int main() { flysch_image_error error;\n\
        return flysch_image_open(FLYSCH_BYTES(\"/none\"), nullptr, &error) != nullptr; }\n";
    std::fs::write(&source, text).unwrap();
    let strict = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Wold-style-cast", "-Werror"];
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/c-images/include");
    let mut compiler = Command::new("c++");
    compiler.args(strict).arg("-fsyntax-only").arg("-I").arg(include).arg(&source);
    // Not every machine with a C compiler has this one.
    let Ok(output) = compiler.output() else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn one_library_has_both_halves() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("both.c"), folder.path().join("both"));
    let text = "#include <stdio.h>\n#include \"flysch_drivers.h\"\n\
        #include \"flysch_images.h\"\nint main(void)\n{\n    flysch_image_error error;\n\
        _Static_assert(FLYSCH_DRIVERS_VERSION_MAJOR == FLYSCH_IMAGES_VERSION_MAJOR, \"major\");\n\
        _Static_assert(FLYSCH_DRIVERS_VERSION_MINOR == FLYSCH_IMAGES_VERSION_MINOR, \"minor\");\n\
        printf(\"%s %s %s %s %d.%d.%d %d\", flysch_drivers_version(), flysch_images_version(),\n\
        FLYSCH_DRIVERS_VERSION, FLYSCH_IMAGES_VERSION, FLYSCH_IMAGES_VERSION_MAJOR,\n\
        FLYSCH_IMAGES_VERSION_MINOR, FLYSCH_DRIVERS_VERSION_PATCH,\n\
        flysch_image_open(FLYSCH_BYTES(\"/no/such\"), NULL, &error) == NULL);\n    return 0;\n}\n";
    std::fs::write(&source, text).unwrap();
    compile(&source, &program);
    let said = String::from_utf8(ran(&program, &[]).stdout).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(said, format!("{version} {version} {version} {version} {version} 1"));
}

/// What the README installs, in a folder of its own.
fn installed(prefix: &Path) {
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bindings/c-images");
    std::fs::create_dir_all(prefix.join("include")).unwrap();
    std::fs::create_dir_all(prefix.join("lib/pkgconfig")).unwrap();
    let header = bindings.join("include/flysch_images.h");
    std::fs::copy(header, prefix.join("include/flysch_images.h")).unwrap();
    std::fs::hard_link(library(), prefix.join("lib/libflysch_images.a"))
        .or_else(|_| std::fs::copy(library(), prefix.join("lib/libflysch_images.a")).map(drop))
        .unwrap();
    let told = bindings.join("flysch_images.pc");
    std::fs::copy(told, prefix.join("lib/pkgconfig/flysch_images.pc")).unwrap();
}

#[test]
fn pkg_config_finds_an_installed_library() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("prefix");
    installed(&prefix);
    let asked = |words: &[&str]| {
        let mut tool = Command::new("pkg-config");
        tool.args(words).arg("flysch_images").env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        // Not every machine with a C compiler has this one.
        let output = tool.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let version = env!("CARGO_PKG_VERSION");
    let Some(told) = asked(&["--modversion"]) else { return };
    assert_eq!(told.trim(), version);
    let flags = asked(&["--cflags", "--libs"]).unwrap();
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/c/images/read_ubi_image.c");
    let program = folder.path().join("program");
    let mut compiler = Command::new("cc");
    compiler.arg(source).args(flags.split_whitespace()).arg("-o").arg(&program);
    let output = compiler.output().expect("a C compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = ran(&program, &["--version"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, format!("flysch_images {version}\n").as_bytes());
}

/// An image accessed by a function, which fails if `fails` is set.
struct Behind {
    bytes: Vec<u8>,
    fails: bool,
}

unsafe extern "C" fn read(context: *mut c_void, offset: u64, to: *mut u8, len: usize) -> c_int {
    // SAFETY: the context is a `Behind`, and the buffer has that length.
    let (behind, to) =
        unsafe { (&*context.cast::<Behind>(), std::slice::from_raw_parts_mut(to, len)) };
    if behind.fails {
        return 5;
    }
    to.copy_from_slice(&behind.bytes[offset as usize..][..len]);
    0
}

unsafe extern "C" fn collect(context: *mut c_void, entry: *const Entry) -> bool {
    // SAFETY: the context is a list, and the entry exists during the call.
    let (names, entry) = unsafe { (&mut *context.cast::<Vec<Vec<u8>>>(), &*entry) };
    let name: &[u8] = match entry.name.len {
        0 => &[],
        // SAFETY: as above.
        len => unsafe { std::slice::from_raw_parts(entry.name.data, len) },
    };
    names.push(name.to_vec());
    names.len() < 100 && name != b"etc/conf.d"
}

fn open(image: *const Image, path: &[u8]) -> *mut File {
    // SAFETY: an image returned by an open.
    unsafe { flysch_file_open(image, 0, of(path), ptr::null_mut()) }
}

/// Everything in the header, on an open image.
fn use_image(image: *mut Image, content: &[u8], folder: &Path) {
    let mut error = no_error();
    // SAFETY: the functions are called as the header requires.
    unsafe {
        assert_eq!(flysch_image_volumes(image), 1);
        let mut volume = std::mem::zeroed::<Volume>();
        assert_eq!(flysch_image_volume(image, 0, &mut volume, &mut error), ImageStatus::Ok);
        assert_eq!((volume.id, volume.format, volume.name.len), (3, Format::Ubifs, 4));
        assert_eq!(flysch_image_volume(image, 1, &mut volume, &mut error), ImageStatus::Argument);
        assert_eq!(words(&error.text), "there is no volume 1: there are 1, from 0 on");

        let file = open(image, b"/etc/link");
        let mut stat = Stat::default();
        assert_eq!(flysch_file_stat(file, &mut stat, &mut error), ImageStatus::Ok);
        assert_eq!((stat.size, stat.mode & 0o170_000), (BLOB as u64, 0o100_000));
        let mut room = vec![0; 7777];
        let buffer = Buffer { data: room.as_mut_ptr(), len: room.len() };
        assert_eq!(flysch_file_read(file, 100, buffer, &mut error), 7777);
        assert!(room == content[100..7877]);
        assert_eq!(flysch_file_read(file, BLOB as u64 - 5, buffer, &mut error), 5);
        assert_eq!(flysch_file_read(file, u64::MAX, buffer, &mut error), 0);
        let to = folder.join("extracted");
        let path = of(to.as_os_str().as_encoded_bytes());
        assert_eq!(flysch_file_extract(file, path, &mut error), BLOB as i64);
        assert!(std::fs::read(&to).unwrap() == content);
        let nowhere = of(b"/no/such/folder/file");
        assert_eq!(flysch_file_extract(file, nowhere, &mut error), ImageStatus::System as i64);
        assert!(words(&error.text).starts_with("/no/such/folder/file: "), "{error:?}");
        let (name, mut names) = (of(b"user.none"), Vec::<Vec<u8>>::new());
        let context: *mut c_void = (&raw mut names).cast();
        assert_eq!(
            flysch_file_xattr(file, name, buffer, &mut error),
            ImageStatus::NoAttribute as i64
        );
        assert_eq!(flysch_file_xattrs(file, Some(collect), context, &mut error), ImageStatus::Ok);
        assert_eq!(flysch_file_link(file, buffer, &mut error), ImageStatus::Kind as i64);
        let status = flysch_file_list(file, Some(collect), context, &mut error);
        assert_eq!(status, ImageStatus::NotDirectory);
        flysch_file_close(file);

        let link = flysch_file_open_link(image, 0, of(b"/etc/loose"), &mut error);
        assert_eq!(flysch_file_link(link, buffer, &mut error), 4);
        assert_eq!(&room[..4], b"none");
        let little = Buffer { len: 3, ..buffer };
        assert_eq!(flysch_file_link(link, little, &mut error), ImageStatus::Small as i64);
        assert_eq!(flysch_file_read(link, 0, buffer, &mut error), ImageStatus::Kind as i64);
        flysch_file_close(link);
        assert!(flysch_file_open(image, 0, of(b"/etc/loose"), &mut error).is_null());
        assert_eq!(error.status, ImageStatus::NotFound);

        assert!(flysch_file_open(image, 0, of(b""), &mut error).is_null());
        assert_eq!(error.status, ImageStatus::NotFound);
        assert!(flysch_file_open(image, 0, of(b"/etc/blob/"), &mut error).is_null());
        assert_eq!(error.status, ImageStatus::NotDirectory);
        assert!(flysch_image_failure(image, 0).data.is_null());

        let (etc, root) = (open(image, b"etc"), open(image, b"/"));
        assert_eq!(flysch_file_read(etc, 0, buffer, &mut error), ImageStatus::IsDirectory as i64);
        names.clear();
        assert_eq!(flysch_file_list(etc, Some(collect), context, &mut error), ImageStatus::Ok);
        names.sort();
        assert_eq!(names, [&b"blob"[..], b"conf.d", b"link", b"loose"]);
        // Files outlive their image.
        flysch_image_close(image);
        names.clear();
        let status = flysch_file_walk(root, Some(collect), context, &mut error);
        assert_eq!(status, ImageStatus::Stopped);
        assert_eq!(names, [&b""[..], b"etc", b"etc/blob", b"etc/conf.d"]);
        flysch_file_close(etc);
        flysch_file_close(root);
    }
}

#[test]
fn an_image_is_a_file_or_memory_or_behind_a_function() {
    if !has_mtd_utils() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (image, content) = image(folder.path());
    let mut behind = Behind { bytes: std::fs::read(&image).unwrap(), fails: false };
    let path = of(image.as_os_str().as_encoded_bytes());
    let none: *const ImageOptions = ptr::null();
    let mut error = no_error();
    // SAFETY: bytes, function and context live until the end.
    unsafe {
        let opened = flysch_image_open(path, none, &mut error);
        assert!(!opened.is_null(), "{}", words(&error.text));
        use_image(opened, &content, folder.path());
        let opened = flysch_image_open_memory(of(&behind.bytes), none, &mut error);
        assert!(!opened.is_null(), "{}", words(&error.text));
        use_image(opened, &content, folder.path());
        let context = (&raw mut behind).cast();
        let reader = Reader { context, size: behind.bytes.len() as u64, read: Some(read) };
        let opened = flysch_image_open_reader(&reader, none, &mut error);
        assert!(!opened.is_null(), "{}", words(&error.text));
        use_image(opened, &content, folder.path());

        behind.fails = true;
        assert!(flysch_image_open_reader(&reader, none, &mut error).is_null());
        assert_eq!(error.status, ImageStatus::System);
        assert!(words(&error.text).starts_with("<image>: cannot be read"), "{error:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_a_reason() {
    let none: *const ImageOptions = ptr::null();
    let mut error = no_error();
    let gone = of(b"/no/such/image");
    // SAFETY: NULL is the subject of the test; the rest exists.
    unsafe {
        assert!(flysch_image_open(gone, none, &mut error).is_null());
        assert_eq!(error.status, ImageStatus::System);
        assert!(words(&error.text).starts_with("/no/such/image: cannot be read"), "{error:?}");
        assert!(words(&error.text).contains("No such file"), "{error:?}");
        assert_eq!(words(&error.cause), "", "the text has it");
        assert!(flysch_image_open_memory(of(&[0x55; 4096]), none, &mut error).is_null());
        assert_eq!(error.status, ImageStatus::Unknown);
        let null = Bytes { data: ptr::null(), len: 3 };
        assert!(flysch_image_open(null, none, &mut error).is_null());
        assert_eq!(
            (error.status, words(&error.text)),
            (ImageStatus::Argument, "the path is NULL".into())
        );
        assert!(flysch_image_open(null, none, ptr::null_mut()).is_null());
        let mut options = std::mem::zeroed::<ImageOptions>();
        options.ecc = of(b"no such code");
        assert!(flysch_image_open(gone, &options, &mut error).is_null());
        assert_eq!(error.status, ImageStatus::Argument);
        assert!(words(&error.text).starts_with("ecc: "), "{error:?}");
        let reader = Reader { context: ptr::null_mut(), size: 1, read: None };
        assert!(flysch_image_open_reader(&reader, none, &mut error).is_null());
        assert_eq!(words(&error.text), "read of the reader is NULL");
        assert!(flysch_image_open_reader(ptr::null(), none, &mut error).is_null());
        let (image, file): (*mut Image, *mut File) = (ptr::null_mut(), ptr::null_mut());
        assert_eq!(flysch_image_volumes(image), 0);
        assert!(flysch_image_failure(image, 0).data.is_null());
        let volume = flysch_image_volume(image, 0, ptr::null_mut(), &mut error);
        assert_eq!(volume, ImageStatus::Argument);
        assert!(flysch_file_open(image, 0, gone, &mut error).is_null());
        let buffer = Buffer { data: ptr::null_mut(), len: 9 };
        let (wrong, no): (_, Visit) = (ImageStatus::Argument, None);
        assert_eq!(flysch_file_stat(file, ptr::null_mut(), &mut error), wrong);
        assert_eq!(flysch_file_read(file, 0, buffer, &mut error), wrong as i64);
        assert_eq!(flysch_file_link(file, buffer, &mut error), wrong as i64);
        assert_eq!(flysch_file_xattr(file, gone, buffer, &mut error), wrong as i64);
        assert_eq!(flysch_file_xattrs(file, no, ptr::null_mut(), &mut error), wrong);
        assert_eq!(flysch_file_list(file, no, ptr::null_mut(), &mut error), wrong);
        assert_eq!(flysch_file_walk(file, no, ptr::null_mut(), &mut error), wrong);
        assert_eq!(flysch_file_extract(file, gone, &mut error), wrong as i64);
        flysch_file_close(file);
        flysch_image_close(image);
    }
}

#[test]
fn every_status_of_images_has_words_of_its_own() {
    // SAFETY: a C string that lives forever.
    let text = |status| unsafe { CStr::from_ptr(flysch_image_status_text(status)) };
    let all: std::collections::BTreeSet<&CStr> =
        (ImageStatus::NoAttribute as i32..=0).map(text).collect();
    assert_eq!(all.len(), 17);
    assert!(!all.contains(c"unknown status"));
    assert_eq!((text(1), text(-17)), (c"unknown status", c"unknown status"));
}

#[test]
fn the_header_of_images_is_what_the_crate_says() {
    assert_header("c-images", "flysch_images.h");
    assert_pkg_config("c-images", "flysch_images.pc");
}

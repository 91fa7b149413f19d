//! Writing to images made by mkfs.ubifs.

use std::format;
use std::process::Command;
use std::string::{String, ToString};
use std::vec;
use std::vec::Vec;

use flysch_api::vfs::{FileKind, FileSystem, FileSystemMut};
use flysch_api::volume::VolumeMut;

use super::memory::Ram;
use super::{ROOT, assert_sound, at, content, new_file};
use crate::UbifsMut;

/// An image with at most `lebs` LEBs, on a volume of that many; `None` without mkfs.ubifs.
fn image((leb_size, lebs, unit): (u32, u32, u32), compression: &str) -> Option<Ram> {
    let folder = std::env::temp_dir().join(format!("flysch-mkfs-{}", std::process::id()));
    let tree = folder.join("tree");
    std::fs::create_dir_all(tree.join("directory")).unwrap();
    for number in 0..40_usize {
        let bytes: Vec<u8> = (0..number * 700).map(|n| (n / 9) as u8).collect();
        std::fs::write(tree.join(format!("directory/file {number}")), bytes).unwrap();
    }
    let out = folder.join(format!("{leb_size}-{compression}.ubifs"));
    let mut command = Command::new("mkfs.ubifs");
    command.arg("-r").arg(&tree).arg("-o").arg(&out).args(["-x", compression, "-F"]);
    command.args(["-m", &unit.max(1).to_string(), "-e", &leb_size.to_string()]);
    command.args(["-c", &lebs.to_string()]);
    let made = command.output();
    let bytes = match made {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            std::fs::read(&out).unwrap()
        }
        Err(error) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "mkfs.ubifs: {error}");
            std::println!("skipped: mkfs.ubifs: {error}");
            return None;
        }
    };
    std::fs::remove_dir_all(&folder).unwrap();
    let mut ram = Ram::new(leb_size, lebs, unit);
    for (lnum, leb) in (0..).zip(bytes.chunks(leb_size as usize)) {
        if leb.iter().any(|&byte| byte != 0xff) {
            ram.change(lnum, leb).unwrap();
        }
    }
    Some(ram)
}

#[test]
fn images_of_mkfs_are_written_to() {
    let geometries = [(126_976, 100, 2048), (15_872, 300, 512), (65_408, 60, 1)];
    for (geometry, compression) in geometries.into_iter().zip(["lzo", "zlib", "none"]) {
        let Some(ram) = image(geometry, compression) else { return };
        let mut fs = UbifsMut::open(ram).unwrap();
        let directory = fs.lookup(ROOT, b"directory").unwrap();
        for round in 0..3_u8 {
            for number in 0..40 {
                let old = fs.lookup(directory, format!("file {number}").as_bytes()).unwrap();
                fs.write(old, 3000, &[round; 5000], at(5)).unwrap();
                let name = format!("new {round} {number}");
                let new = new_file(FileKind::Regular);
                let file = fs.create(directory, name.as_bytes(), &new, at(6)).unwrap();
                fs.write(file, 0, &vec![number; 9000], at(7)).unwrap();
            }
            let ram = fs.close().unwrap();
            assert_sound(&ram, compression);
            fs = UbifsMut::open(ram).unwrap();
        }
        let old = fs.lookup(directory, b"file 39").unwrap();
        let bytes = content(&fs, old);
        assert_eq!(bytes.len(), 39 * 700);
        assert!(bytes[3000..8000].iter().all(|&byte| byte == 2));
        assert_eq!(bytes[20_000], (20_000_u32 / 9) as u8);
    }
}

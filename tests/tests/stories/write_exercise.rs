//! Random changes against the model, on the whole stack below a file system.

use flysch_api::vfs::FileSystemMut;
use flysch_jffs2::{Jffs2Mut, WriteOptions};
use flysch_tests::writable::{jffs2, reopen, ubifs};
use flysch_vfs::{Exercise, Limits, compare, verify};

#[test]
fn ubifs_does_what_the_model_does() {
    for seed in 0..3 {
        let mut fs = ubifs(120);
        let mut exercise = Exercise::new(&fs, seed, Limits::default());
        for _ in 0..6 {
            for _ in 0..500 {
                exercise.step(&mut fs).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
            }
            assert_eq!(compare(&fs, exercise.model()), [], "seed {seed}");
            fs = reopen(fs);
            exercise.reopened(&fs).unwrap();
            assert_eq!(compare(&fs, exercise.model()), [], "seed {seed}, reopened");
            assert_eq!(verify(&fs).violations, [], "seed {seed}");
        }
        println!("seed {seed}: {:?}", exercise.counts());
    }
}

#[test]
fn jffs2_does_what_the_model_does() {
    // No exchange and no whiteout in the format, and its times are seconds.
    let limits = Limits { exchange: false, nanoseconds: false, ..Limits::default() };
    for seed in 0..3 {
        let mut fs = jffs2(160);
        let mut exercise = Exercise::new(&fs, seed, limits);
        for _ in 0..6 {
            for _ in 0..500 {
                exercise.step(&mut fs).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
            }
            assert_eq!(compare(&fs, exercise.model()), [], "seed {seed}");
            fs.sync(None).unwrap();
            fs = Jffs2Mut::mount(fs.into_flash(), &WriteOptions::default()).unwrap();
            exercise.reopened(&fs).unwrap();
            assert_eq!(compare(&fs, exercise.model()), [], "seed {seed}, reopened");
            assert_eq!(verify(&fs).violations, [], "seed {seed}");
        }
        println!("seed {seed}: {:?}", exercise.counts());
    }
}

/// A chip with two bits per cell, its pages in pairs: refused as it is, and as good as any with the
/// lower page of each pair alone.
#[test]
fn paired_pages_are_written_by_their_lower_halves() {
    use flysch_api::flash::{Flash as _, Kind};
    use flysch_models::nand::{Config, NandChip, Profile};
    use flysch_mtd::{LowerPages, Nand, PageFormat};
    use flysch_ubi::{Device, DeviceOptions, FormatOptions};
    let profile = Profile::named("H27UCG8T2ETR").unwrap().with_blocks(40);
    let profile = profile.with_pages_per_block(32);
    let chip = NandChip::new(profile.clone(), Config { wears: false, ..Config::default() });
    let (oob, ecc) = (profile.oob_size as usize, profile.ecc);
    let format = PageFormat::in_software(profile.page_size, oob, ecc.step, ecc.strength).unwrap();
    let erase_size = profile.geometry().erase_size;
    let paired = Nand::over(chip, format, Kind::MlcNand, erase_size).unwrap();
    let refused = Jffs2Mut::mount(paired.clone(), &WriteOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("LowerPages"), "{refused}");
    let options = DeviceOptions::default();
    let refused = Device::format(paired.clone(), &FormatOptions::new(7), &options).unwrap_err();
    assert!(refused.to_string().contains("LowerPages"), "{refused}");
    let lower = LowerPages::new(paired).unwrap();
    assert_eq!(lower.geometry().size * 2, profile.geometry().size);

    let mut device = Device::format(lower, &FormatOptions::new(7), &options).unwrap();
    let id = device.create(&flysch_ubi::NewVolume::dynamic(b"v", 10)).unwrap();
    let page = vec![0x5A; device.write_size() as usize];
    let mut volume = device.volume_mut(id).unwrap();
    flysch_api::volume::VolumeMut::write(&mut volume, 3, 0, &page).unwrap();
    let lower = device.detach().unwrap();
    let device = Device::attach(lower, &options).unwrap();
    assert_eq!(device.info(id).unwrap().map.len(), 1);

    let mut lower = device.detach().unwrap();
    flysch_jffs2::format(&mut lower, flysch_wire::jffs2::ByteOrder::Little).unwrap();
    let mut fs = Jffs2Mut::mount(lower, &WriteOptions::default()).unwrap();
    let limits = Limits { exchange: false, nanoseconds: false, ..Limits::default() };
    let mut exercise = Exercise::new(&fs, 1, limits);
    for _ in 0..300 {
        exercise.step(&mut fs).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    fs.sync(None).unwrap();
    let fs = Jffs2Mut::mount(fs.into_flash(), &WriteOptions::default()).unwrap();
    assert_eq!(compare(&fs, exercise.model()), []);
}

//! A chip with two bits per cell and paired pages, used through the lower page of each pair.

use std::collections::BTreeMap;

use flysch_api::finding::Severity;
use flysch_api::flash::{Flash as _, Kind};
use flysch_api::vfs::{FileKind, FileSystem, FileSystemMut, FsError, NewFile};
use flysch_api::volume::{Volume as _, VolumeMut as _};
use flysch_jffs2::{Jffs2Mut, WriteOptions};
use flysch_models::flash::Tear;
use flysch_models::nand::{Config, NandChip, Profile};
use flysch_mtd::{LowerPages, Nand, PageFormat};
use flysch_tests::writable::START;
use flysch_ubi::{DeviceOptions, FormatOptions, NewVolume, UbiDevice};
use flysch_ubifs::create::{CreateOptions, NewInode, format};
use flysch_ubifs::{Ubifs, UbifsMut};
use flysch_vfs::{Exercise, Limits, compare, verify};

fn profile(blocks: u32) -> Profile {
    Profile::named("H27UCG8T2ETR").unwrap().with_blocks(blocks).with_pages_per_block(32)
}

/// Refused as it is, but as good as any other chip if only the lower page of each pair is used.
#[test]
fn paired_pages_are_written_by_their_lower_halves() {
    let profile = profile(40);
    let chip = NandChip::new(profile.clone(), Config { wears: false, ..Config::default() });
    let (oob, ecc) = (profile.oob_size as usize, profile.ecc);
    let format = PageFormat::in_software(profile.page_size, oob, ecc.step, ecc.strength).unwrap();
    let erase_size = profile.geometry().erase_size;
    let paired = Nand::over(chip, format, Kind::MlcNand, erase_size).unwrap();
    let refused = Jffs2Mut::mount(paired.clone(), &WriteOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("LowerPages"), "{refused}");
    let options = DeviceOptions::default();
    let refused = UbiDevice::format(paired.clone(), &FormatOptions::new(7), &options).unwrap_err();
    assert!(refused.to_string().contains("LowerPages"), "{refused}");
    let lower = LowerPages::new(paired).unwrap();
    assert_eq!(lower.geometry().size * 2, profile.geometry().size);

    let mut device = UbiDevice::format(lower, &FormatOptions::new(7), &options).unwrap();
    let id = device.create(&NewVolume::dynamic(b"v", 10)).unwrap();
    let page = vec![0x5A; device.write_size() as usize];
    let mut volume = device.volume_mut(id).unwrap();
    volume.write(3, 0, &page).unwrap();
    let lower = device.detach().unwrap();
    let device = UbiDevice::attach(lower, &options).unwrap();
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

/// A chip with its own error correction, with an empty UBIFS in its lower pages.
fn chip_with_ubifs() -> NandChip {
    let config = Config { corrects: true, factory_bad: 1, ..Config::default() };
    let mut chip = NandChip::new(profile(48), config);
    let lower = LowerPages::new(&mut chip).unwrap();
    let mut device = UbiDevice::format(lower, &FormatOptions::new(7), &DeviceOptions::default());
    let device = device.as_mut().unwrap();
    let lebs = device.account().available;
    let id = device.create(&NewVolume::dynamic(b"v", lebs)).unwrap();
    let mut volume = device.volume_mut(id).unwrap();
    let geometry = volume.geometry();
    let (unit, leb_size) = (geometry.write_size.unwrap(), geometry.leb_size);
    assert_eq!((unit, leb_size), (16 << 10, 14 * (16 << 10)));
    let options = CreateOptions::new(unit, leb_size, lebs);
    format(&mut volume, &options, &NewInode::directory(START)).unwrap();
    device.close().unwrap();
    chip
}

type Lower<'c> = LowerPages<&'c mut NandChip>;

fn attach(chip: &mut NandChip) -> Result<UbiDevice<Lower<'_>>, String> {
    let lower = LowerPages::new(chip).unwrap();
    UbiDevice::attach(lower, &DeviceOptions::default()).map_err(|error| error.to_string())
}

#[test]
fn ubifs_on_lower_pages_does_what_the_model_does() {
    let mut chip = chip_with_ubifs();
    let mut exercise = None;
    for _ in 0..3 {
        let mut device = attach(&mut chip).unwrap();
        let mut fs = UbifsMut::open(device.volume_mut(0).unwrap()).unwrap();
        let exercise = exercise.get_or_insert_with(|| Exercise::new(&fs, 5, Limits::default()));
        exercise.reopened(&fs).unwrap();
        for _ in 0..200 {
            exercise.step(&mut fs).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        fs.close().unwrap();
        let fs = Ubifs::open(device.volume_mut(0).unwrap(), &Default::default()).unwrap();
        assert_eq!(compare(&fs, exercise.model()), []);
        assert_eq!(verify(&fs).violations, []);
        let found = fs.check().into_iter().filter(|it| it.severity != Severity::Note);
        assert_eq!(found.map(|it| it.to_string()).collect::<Vec<_>>(), Vec::<String>::new());
        device.close().unwrap();
    }
    assert_eq!(chip.violations(), []);
}

type Files = BTreeMap<String, Vec<u8>>;

/// The content written to a file in a round.
fn content(round: usize, number: usize) -> Vec<u8> {
    let byte = |at: usize| ((at * 2_654_435_761 + number * 77 + round) >> 13) as u8;
    (0..20_000 + round * 7919 % 30_000).map(byte).collect()
}

/// Overwrites files, with a sync every second round; `files` is what they may contain, `synced`
/// what they must contain at least.
fn overwrite(chip: &mut NandChip, (files, synced): (&mut Files, &mut Files)) -> Result<(), String> {
    let mut device = attach(chip)?;
    let volume = device.volume_mut(0).map_err(|error| error.to_string())?;
    let mut fs = UbifsMut::open(volume).map_err(|error| error.to_string())?;
    let root = fs.statistics().root;
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        owner: 0,
        group: 0,
        device: Default::default(),
        target: b"",
    };
    let mut run = || {
        for round in 0..8 {
            for number in 0..3 {
                let name = format!("f{}", (round * 2 + number) % 7);
                let file = match fs.lookup(root, name.as_bytes()) {
                    Err(FsError::NotFound) => fs.create(root, name.as_bytes(), &new, START)?,
                    found => found?,
                };
                let data = content(round, number);
                let held = files.entry(name).or_default();
                held.resize(held.len().max(data.len()), 0);
                held[..data.len()].copy_from_slice(&data);
                assert_eq!(fs.write(file, 0, &data, START)?, data.len());
            }
            if round % 2 == 1 {
                fs.sync(None)?;
                synced.clone_from(files);
            }
        }
        Ok(())
    };
    run().map_err(|error: FsError| error.to_string())?;
    fs.close().map_err(|error| error.to_string())?;
    device.close().map_err(|error| error.to_string())
}

/// The losses in a cut: every block of a file must be as synced, or newer.
fn losses(fs: &impl FileSystem, (files, synced): (&Files, &Files)) -> Vec<String> {
    let root = fs.statistics().root;
    let mut lost = Vec::new();
    for (name, data) in synced {
        let mut found = vec![0; data.len()];
        let read = fs.lookup(root, name.as_bytes()).and_then(|it| fs.read(it, 0, &mut found));
        let blocks = found.chunks(4096).zip(data.chunks(4096)).zip(files[name].chunks(4096));
        let is_good = read == Ok(data.len())
            && blocks.into_iter().all(|((found, old), new)| found == old || new.starts_with(found));
        if !is_good {
            lost.push(format!("{name}: {read:?}"));
        }
    }
    lost
}

#[test]
fn ubifs_on_lower_pages_keeps_what_was_synced() {
    let base = chip_with_ubifs();
    let mut whole = base.clone();
    let first = whole.power().operations();
    overwrite(&mut whole, (&mut Files::new(), &mut Files::new())).unwrap();
    let operations = whole.power().operations() - first;
    assert!(operations > 60, "{operations}");
    let mut with_files = 0;
    for point in 0..24 {
        for tear in Tear::ALL {
            let at = first + (point * operations + operations / 2) / 24;
            let mut chip = base.clone();
            chip.power_mut().cut_at(at, tear);
            let (mut files, mut synced) = (Files::new(), Files::new());
            let ended = overwrite(&mut chip, (&mut files, &mut synced));
            assert!(ended.is_err() && !chip.power().is_on(), "{at}{}", tear.letter());
            chip.power_mut().on();
            let name = format!("cut {at}{}", tear.letter());
            let mut device = attach(&mut chip).unwrap_or_else(|error| panic!("{name}: {error}"));
            for _ in 0..2 {
                let volume = device.volume_mut(0).unwrap();
                let fs = UbifsMut::open(volume).unwrap_or_else(|error| panic!("{name}: {error}"));
                let lost = losses(&fs, (&files, &synced));
                assert_eq!(lost, Vec::<String>::new(), "{name}");
                fs.close().unwrap();
            }
            device.close().unwrap();
            assert_eq!(chip.violations(), [], "{name}");
            with_files += usize::from(!synced.is_empty());
        }
    }
    assert!(with_files > 40, "{with_files}");
}

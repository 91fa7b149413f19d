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
    // The format has no exchange and no whiteout, and its times are in seconds.
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

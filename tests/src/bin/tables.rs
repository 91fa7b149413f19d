//! Random partition tables through sgdisk, sfdisk, parted, fdisk, blkid and us:
//! `cargo xtask tables`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use flysch_tests::tables::try_one;

fn main() -> ExitCode {
    let (mut count, mut first) = (1000, 0);
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let place = match option.as_str() {
            "--count" => &mut count,
            "--first" => &mut first,
            other => {
                eprintln!("tables: unknown option `{other}`; there are --count N, --first SEED");
                return ExitCode::from(2);
            }
        };
        let Some(number) = arguments.next().and_then(|word| word.parse().ok()) else {
            eprintln!("tables: {option} needs a number");
            return ExitCode::from(2);
        };
        *place = number;
    }
    let folder = tempfile::tempdir().expect("there is room for an image");
    let differences: Vec<String> =
        (first..first + count).filter_map(|seed| try_one(seed, folder.path()).err()).collect();
    differences.iter().for_each(|difference| eprintln!("{difference}"));
    println!(
        "{count} tables, {} written by us, {} by others: {} differences",
        (first..first + count).filter(|seed| seed % 2 == 0).count(),
        (first..first + count).filter(|seed| seed % 2 == 1).count(),
        differences.len()
    );
    ExitCode::from(u8::from(!differences.is_empty()))
}

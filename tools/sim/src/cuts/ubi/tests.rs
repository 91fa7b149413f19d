use super::*;

#[test]
fn of_a_write_under_way_one_program_is_torn_and_nothing_else() {
    // On NOR a program begins in the middle of a unit: data follows headers of 128 bytes.
    let way = Way { unit: 256, program: 256, start: 128 };
    let data: Vec<u8> = (0..512).map(|at| (at * 7) as u8).collect();
    let judge = |mut bytes: Vec<u8>, unreadable: Option<usize>| {
        bytes.resize(1024, 0xFF);
        let units = bytes.chunks(256).map(|unit| Some(unit.to_vec()));
        let mut units: Vec<Option<Vec<u8>>> = units.collect();
        unreadable.into_iter().for_each(|unit| units[unit] = None);
        fits(&units, &Leb::default(), Some((0, data.clone())), &way)
    };
    for done in [0, 128, 384, 512] {
        judge(data[..done].to_vec(), None).unwrap();
    }
    let mut torn = data[..384].to_vec();
    torn[128..].fill(0x5A);
    judge(torn.clone(), None).unwrap();
    judge(torn.clone(), Some(0)).unwrap();
    assert!(judge(torn.clone(), Some(2)).is_err(), "nothing was programmed there");
    torn[127] ^= 1;
    assert!(judge(torn.clone(), None).is_err(), "that was programmed before");
    torn[127] ^= 1;
    torn.push(0);
    assert!(judge(torn, None).is_err(), "that is programmed later");
    assert!(judge(vec![0; 1024], None).is_err());
    let settled = Leb { now: data.clone(), older: None };
    let lost = vec![None; 4];
    assert!(fits(&lost, &settled, None, &way).is_err(), "no write was under way");
}

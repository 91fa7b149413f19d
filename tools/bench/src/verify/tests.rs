use super::*;

/// Those with a checksum of the payload.
fn methods() -> impl Iterator<Item = Method> {
    let all = Method::NAMES.into_iter().map(|(_, method)| method);
    all.filter(|method| method.len() > 0)
}

fn version(sequence: u64) -> Version {
    Version { run_seed: 77, sequence, worker: 0 }
}

fn unit(method: Method, offset: u64, sequence: u64) -> Vec<u8> {
    let mut unit = vec![0; 4096];
    stamp(&mut unit, &method.into(), offset, &version(sequence), Instant::START);
    unit
}

#[test]
fn unmix_undoes_mix() {
    for value in [0, 1, 77, u64::MAX, 0x8000_0000_0000_0000, 0x0123_4567_89ab_cdef] {
        assert_eq!(unmix(mix(value)), value);
    }
}

#[test]
fn what_was_stamped_passes() {
    for method in methods() {
        let unit = unit(method, 8192, 5);
        assert_eq!(check(&unit, &method.into(), 8192, Some(&version(5))), Ok(()));
        assert_eq!(check(&unit, &method.into(), 8192, None), Ok(()));
    }
}

#[test]
fn each_kind_of_damage_has_its_name() {
    for method in methods() {
        let good = unit(method, 8192, 5);
        let check = |unit: &[u8]| check(unit, &method.into(), 8192, Some(&version(5)));
        let no_header = Err(Mismatch::NoHeader { found: 0 });
        assert_eq!(check(&[0; 4096]), no_header);
        let elsewhere = unit(method, 12_288, 5);
        assert_eq!(check(&elsewhere), Err(Mismatch::Misplaced { offset: 12_288 }));
        let stale = unit(method, 8192, 3);
        assert_eq!(check(&stale), Err(Mismatch::Stale { found: 3, expected: 5 }));
        let mut torn = good.clone();
        torn[2048..].copy_from_slice(&stale[2048..]);
        // Where the other write has the same bytes by chance is no difference.
        let first = (2048..4096).find(|at| good[*at] != stale[*at]).unwrap();
        let last = (2048..4096).rfind(|at| good[*at] != stale[*at]).unwrap();
        assert_eq!(check(&torn), Err(Mismatch::Torn { first, last }));
        let mut damaged = good.clone();
        damaged[9..12].fill(0x55);
        assert_eq!(check(&damaged), Err(Mismatch::HeaderDamaged));
        let mut foreign = vec![0; 4096];
        let other = Version { run_seed: 1 << 40, sequence: 5, worker: 0 };
        stamp(&mut foreign, &method.into(), 8192, &other, Instant::START);
        assert_eq!(check(&foreign), Err(Mismatch::OtherRun));
    }
}

#[test]
fn a_flipped_bit_is_told_with_its_byte() {
    for method in methods() {
        let good = unit(method, 0, 1);
        for bit in (0..good.len() * 8).step_by(37) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let found = check(&bad, &method.into(), 0, Some(&version(1)));
            let (first, last) = (bit / 8, bit / 8);
            assert_eq!(found, Err(Mismatch::Flipped { first, last, bits: 1 }), "bit {bit}");
        }
        let mut bad = good.clone();
        bad[100] ^= 0x81;
        bad[3000] ^= 4;
        let found = check(&bad, &method.into(), 0, Some(&version(1))).unwrap_err();
        assert_eq!(found, Mismatch::Flipped { first: 100, last: 3000, bits: 3 });
        assert_eq!(found.to_string(), "3 bits are flipped, in bytes 100 to 3000");
    }
}

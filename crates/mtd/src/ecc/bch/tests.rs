use flysch_random::XorShift64;
use std::string::String;

use proptest::prelude::*;

use super::*;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| ((31 * i * i + 17 * i + 7) >> 3) as u8).collect()
}

fn hex(code: &Bch, data: &[u8]) -> String {
    use std::fmt::Write;
    code.compute(data)[..code.code_len()].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The results of Linux's `lib/bch.c` for these steps.
#[test]
fn codes_are_those_of_linux() {
    for (m, t, step, zeros, of_pattern) in [
        (13, 4, 512, "2813cc3996ac7f", "60bd7874a6fbaf"),
        (13, 8, 512, "ef512e09ed939ac29779e524b5", "80ffb947996ca67c38988ffb12"),
        (14, 8, 1024, "f65a41f418504b7e2fd6c0ff8a71", "1aed1d60d5a97fc1c2050dadae8f"),
        (
            13,
            16,
            512,
            "9ad7ef918880fbf7063a5c9f4924d07502e359e0e4bc1e20702e",
            "cbda9bd7338752234ea23067a17674ddea525cea5ad358d585d1",
        ),
        (
            14,
            40,
            1024,
            concat!(
                "3e3609feafa3e036bd1f6f26277de7fb8b36e8738ab3a628bcdebe930a3328a2531799b3c243",
                "dc1c4e44529c6a19d81ba6cb91718dc24481354bade432eff6306637b6ab6ab4"
            ),
            concat!(
                "734f21e8332b54aad3184e9dd634bb8983afe680a14e3e021bd8fcc652c98aab1e9229921e51",
                "942753ca1a3fbf2ecc65d7c3c3477dc695e777c996debdc70e858acfe49c4bbc"
            ),
        ),
    ] {
        let code = Bch::new(m, t, step).unwrap();
        assert_eq!(hex(&code, &vec![0; step]), zeros, "m {m} t {t}");
        assert_eq!(hex(&code, &pattern(step)), of_pattern, "m {m} t {t}");
        let erased = code.compute(&vec![0xFF; step]);
        assert!(erased[..code.code_len()].iter().all(|&byte| byte == 0xFF), "erased is valid");
    }
}

#[test]
fn codes_that_do_not_exist_are_refused() {
    for (m, t, step) in [(4, 1, 1), (16, 1, 512), (13, 0, 512), (14, 74, 1024), (12, 4, 512)] {
        assert!(Bch::new(m, t, step).is_none(), "m {m} t {t} step {step}");
    }
}

#[test]
fn a_wide_remainder_is_the_narrow_one() {
    let narrow = Bch::new(13, 8, 512).unwrap();
    let (generator, code_bits) = generator(&narrow.power, &narrow.log, 13, 8).unwrap();
    for words in 2..6 {
        let remainders = Remainders::Wide(words, Remainders::table(&generator, words).into());
        let wide = Bch { remainders, ..narrow.clone() };
        assert_eq!(wide.compute(&pattern(512)), narrow.compute(&pattern(512)), "{code_bits}");
    }
}

fn flip(data: &mut [u8], code: &mut [u8], bit: usize) {
    let (bytes, bit) =
        if bit < data.len() * 8 { (data, bit) } else { (code, bit - data.len() * 8) };
    bytes[bit / 8] ^= 0x80 >> (bit % 8);
}

fn codes() -> &'static [Bch] {
    static CODES: std::sync::OnceLock<Vec<Bch>> = std::sync::OnceLock::new();
    CODES.get_or_init(|| {
        [
            (13, 4, 512),
            (13, 8, 512),
            (14, 8, 1024),
            (14, 4, 1024),
            (13, 1, 512),
            (8, 2, 16),
            (14, 40, 1024),
        ]
        .into_iter()
        .map(|(m, t, step)| Bch::new(m, t, step).unwrap())
        .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn up_to_t_flipped_bits_are_corrected_wherever_they_are(
        which in 0usize..7, seed: u64, erased: bool,
        bits in prop::collection::vec(any::<usize>(), 0..=40),
    ) {
        let code = &codes()[which];
        let mut random = XorShift64::from_state(seed | 1);
        let data: Vec<u8> = match erased {
            true => vec![0xFF; code.step()],
            false => (0..code.step()).map(|_| random.bits() as u8).collect(),
        };
        let computed = code.compute(&data);
        let mut stored = computed[..code.code_len()].to_vec();
        let mut bad = data.clone();
        let total = code.step() * 8 + code.code_bits as usize;
        let mut places: Vec<usize> = bits.iter().map(|bit| bit % total).collect();
        places.sort_unstable();
        places.dedup();
        places.truncate(code.strength() as usize);
        for &bit in &places {
            flip(&mut bad, &mut stored, bit);
        }
        prop_assert_eq!(code.correct(&mut bad, &stored), Some(places.len() as u32));
        prop_assert_eq!(bad, data);
    }
}

/// Side by side or one after the other gives the same codes and corrects the same bits.
#[test]
fn several_steps_are_as_each_by_itself() {
    for (code, steps) in codes().iter().flat_map(|code| (1..10).map(move |steps| (code, steps))) {
        let mut data = pattern(code.step() * steps);
        let mut stored = vec![0; code.code_len() * steps];
        code.compute_all(&data, &mut stored);
        for (step, stored) in data.chunks(code.step()).zip(stored.chunks(code.code_len())) {
            assert_eq!(code.compute(step)[..code.code_len()], *stored);
        }
        let whole = data.clone();
        // As many wrong bits as the number of the step, and one too many in the last.
        let wrong = |at: usize| match at + 1 == steps {
            true => code.strength() as usize + 1,
            false => at.min(code.strength() as usize),
        };
        for (at, step) in data.chunks_mut(code.step()).enumerate() {
            (0..wrong(at)).for_each(|bit| flip(step, &mut [], bit * 3));
        }
        let each = data.chunks_mut(code.step()).zip(stored.chunks(code.code_len()));
        let alone: Vec<_> =
            each.map(|(step, stored)| code.correct(&mut step.to_vec(), stored)).collect();
        let mut together = vec![None; steps];
        code.correct_all(&mut data, &stored, |at, bits| together[at] = bits);
        assert_eq!(together, alone);
        let good = (steps - 1) * code.step();
        assert_eq!(data[..good], whole[..good]);
    }
}

/// A BCH code promises nothing above t errors, but with t = 8 hardly one pattern in 40 000 passes
/// for a correctable one, and with t = 4 about one in 370.
#[test]
fn one_bit_more_than_t_is_noticed() {
    for (code, misses_max) in [(&codes()[0], 3), (&codes()[1], 0), (&codes()[2], 0)] {
        let data = pattern(code.step());
        let computed = code.compute(&data);
        let total = code.step() * 8 + code.code_bits as usize;
        let mut random = XorShift64::from_state(0x9E37_79B9_7F4A_7C15);
        let mut misses = 0;
        for _ in 0..300 {
            let mut places = std::collections::BTreeSet::new();
            while places.len() <= code.strength() as usize {
                places.insert(random.modulo(total as u64) as usize);
            }
            let (mut bad, mut stored) = (data.clone(), computed[..code.code_len()].to_vec());
            places.iter().for_each(|&bit| flip(&mut bad, &mut stored, bit));
            let before = bad.clone();
            match code.correct(&mut bad, &stored) {
                None => assert_eq!(bad, before, "left as it was read"),
                Some(_) => misses += 1,
            }
        }
        assert!(misses <= misses_max, "{misses} of 300 not noticed");
    }
}

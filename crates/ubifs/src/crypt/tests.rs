//! Published test vectors: NIST, IEEE, RFC 3962, the Adiantum paper, xfstests.

use std::string::ToString;
use std::vec::Vec;

use super::keys::MasterKey;
use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let value = |digit: u8| char::from(digit).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

fn assert_both(cipher: &FileCipher, number: u64, plain: &[u8], stored: &[u8]) {
    let mut bytes = Vec::from(plain);
    cipher.encrypt(number, &mut bytes);
    assert_eq!(bytes, stored);
    cipher.decrypt(number, &mut bytes);
    assert_eq!(bytes, plain);
}

/// IEEE 1619-2007, vector 10: the beginning and the end of 512 bytes.
#[test]
fn xts() {
    let key = hex("2718281828459045235360287471352662497757247093699959574966967627\
         3141592653589793238462643383279502884197169399375105820974944592");
    let cipher = FileCipher::new(CipherMode::Aes256Xts, &key, None);
    let plain: Vec<u8> = (0..512).map(|byte| byte as u8).collect();
    let mut bytes = plain.clone();
    cipher.encrypt(0xff, &mut bytes);
    assert_eq!(
        bytes[..32],
        hex("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b")
    );
    assert_eq!(bytes[496..], hex("c4f36ffda9fcea70b9c6e693e148c151"));
    cipher.decrypt(0xff, &mut bytes);
    assert_eq!(bytes, plain);
}

/// RFC 3962, appendix B: all its lengths. A single block is plain CBC.
#[test]
fn ciphertext_stealing() {
    let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
    let cipher = FileCipher::new(CipherMode::Aes128Cts, b"chicken teriyaki", None);
    let stored = [
        "c6353568f2bf8cb4d8a580362da7ff7f97",
        "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5",
        "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584",
        "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e39312523a78662d5be7fcbcc98\
         ebf5",
        "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd839312523a78662d5be7fcbcc98\
         ebf5a8",
        "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a84807efe836ee89a526730dbc2f\
         7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
    ];
    for stored in stored.map(hex) {
        assert_both(&cipher, 0, &text[..stored.len()], &stored);
    }
    let mut block = *b"I would like the";
    cipher.encrypt(0, &mut block);
    assert_eq!(block[..], hex("97687268d6ecccc0c07b25e25ecfe584"));
}

/// NIST SP 800-38A, F.1.5: the first block of a name, where CBC starts from zeros.
#[test]
fn the_larger_key_of_names() {
    let key = hex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4");
    let cipher = FileCipher::new(CipherMode::Aes256Cts, &key, None);
    let plain = hex("6bc1bee22e409f96e93d7e117393172a");
    assert_both(&cipher, 0, &plain, &hex("f3eed1bdb5d2a03c064b5a7e3db181f8"));
}

/// Linux's own vector of `essiv(cbc(aes),sha256)`.
#[test]
fn hidden_beginnings() {
    let key = hex("06a9214036b8a15b512e03d534120006");
    let cipher = FileCipher::new(CipherMode::Aes128Cbc, &key, None);
    let number = u64::from_le_bytes([0x3d, 0xaf, 0xba, 0x42, 0x9d, 0x9e, 0xb4, 0x30]);
    assert_both(&cipher, number, b"Single block msg", &hex("fa59e75f415665c336ca6b72109f8cd4"));
}

/// Vectors of the paper's authors.
#[test]
fn adiantum() {
    let vectors = [
        [
            "9eebb2493c1cf5f46a99c2c4dfb1f4dd752057ea2c4fcdb2a53d7b491eabfd0f",
            "df63d4abd249f3d8338137607dfa7308d8496d80e82f6254eb0ea9395b457f8a",
            "67c9f23084418e43fbf3b33e79367fe8",
            "6d32861867860f3f967c9d280d53ec9f",
        ],
        [
            "362b5797f85dcd995f1a5a441d920f27cc16d72b856399d3ba96a1dbd26068da",
            "ef5869b12c5e9a4724c1b169e112938f433d6d00db5ed8d9129afed9ff2daac4",
            "5ea8681985981223260accdb0a04b9df4db3487bb0e3c819435a4606942df2",
            "c7c6f1738fc4ff4a39be78be8d28c8894663e70c7d87e84ec9187bbe186050",
        ],
        [
            "a52824341a3cd8f705918fee851f357f803dfc9b94f6fc9e190900a904314f11",
            "a1ba4995ff346db8cd875d5efdea85db8a7b5eb25d57dd62aca98c41429475b7",
            "69b4e88c37e86782f1ec5d04e5149113dff2871b69811d71709e9c3bde497011a0a3db0d544f6669\
             d7db80a7709268ce81042cc6abaee56015e96fefaa8fa7a7638ff2f077f1a8eae1b71f9eab9e4b3f\
             07875b6fcda8afb9fa700b52b8a8a79e075fa60eb39b791379c33e8d1c2c68c8511d3c7b7d79772a\
             5665c5542328b003",
            "9e16abed4ba7425ac6fb4e76ffbe03a00fe3adbae4982b0e2148a0b865482748845454b29a947be6\
             4b29e9cf0591801a3af34196851d9f74515663fa7c288549f72ff9f21846f53380a33cceb25793f5\
             aebda9f57b30c49366e0307716e4a031ba70bc6813f5b09ac1fc7efe55805c4874a6aaa3acdcc2f5\
             8dde34867860758d",
        ],
    ];
    for [key, iv, plain, stored] in vectors.map(|vector| vector.map(hex)) {
        let adiantum = adiantum::Adiantum::new(&key);
        let iv: [u8; 32] = iv.try_into().unwrap();
        let mut bytes = plain.clone();
        adiantum.encrypt(&iv, &mut bytes);
        assert_eq!(bytes, stored);
        adiantum.decrypt(&iv, &mut bytes);
        assert_eq!(bytes, plain);
    }
}

/// xfstests has a key made of the bytes 1 to 64, and its version 2 identifier (`common/encrypt`).
#[test]
fn what_policies_call_a_key() {
    let bytes: Vec<u8> = (1..=64).collect();
    let key = MasterKey::new(&bytes, None).unwrap();
    assert_eq!(key.identifier().to_string(), "69b2f6edeee720cce0577937eb8a6751");
    let named = MasterKey::new(&bytes, Some(*b"\0\x11\x22\x33\x44\x55\x66\x77")).unwrap();
    assert_eq!(named.descriptor().to_string(), "0011223344556677");
    assert_eq!(MasterKey::new(&bytes[..15], None).unwrap_err(), KeyError { length: 15 });
    let shown = std::format!("{key:?}");
    assert!(!shown.contains("010203") && !shown.contains("1, 2, 3"), "{shown}");
}

#[test]
fn contexts_go_both_ways() {
    for key in [KeyName::Descriptor([3; 8]), KeyName::Identifier([4; 16])] {
        let policy = Policy::new(key, CipherMode::Aes256Xts, 16).unwrap();
        let context = Context { policy, nonce: [9; 16] };
        assert_eq!(Context::parse(&context.emit()), Some(context));
        assert_eq!(Context::parse(&context.emit()[1..]), None);
        assert_eq!(policy.padding(), 16);
    }
    let key = KeyName::Identifier([4; 16]);
    assert_eq!(Policy::new(key, CipherMode::Aes256Cts, 16), None);
    assert_eq!(Policy::new(key, CipherMode::Adiantum, 12), None);
}

#[test]
fn names_of_every_length_come_back() {
    let key = MasterKey::new(&[7; 64], None).unwrap();
    for mode in [CipherMode::Aes256Xts, CipherMode::Aes128Cbc, CipherMode::Adiantum] {
        for padding in [4, 8, 16, 32] {
            let policy = Policy::new(key.identifier(), mode, padding).unwrap();
            let context = Context { policy, nonce: [1; 16] };
            let keys = core::slice::from_ref(&key);
            let cipher = context.cipher(keys, Use::Names).unwrap();
            for length in 1..=255 {
                let name: Vec<u8> = (1..=255).cycle().take(length).collect();
                let stored = encrypt_name(&policy, &cipher, &name).unwrap();
                let expected = length.max(16).next_multiple_of(padding).min(255);
                assert_eq!(stored.len(), expected);
                assert_eq!(decrypt_name(&cipher, &stored), Some(name.clone()));
                let target = encrypt_target(&policy, &cipher, &name).unwrap();
                assert_eq!(decrypt_target(&cipher, &target), Some(name));
            }
            assert_eq!(encrypt_name(&policy, &cipher, &[1; 256]), None);
            assert_eq!(decrypt_name(&cipher, &[1; 15]), None);
            assert_eq!(decrypt_target(&cipher, &[1]), None);
        }
    }
}

#[test]
fn another_policy_is_not_ours() {
    let key = MasterKey::new(&[7; 64], None).unwrap();
    let policy = Policy::new(key.identifier(), CipherMode::Aes256Xts, 4).unwrap();
    let context = |flags, contents| {
        let policy = Policy { flags, contents, ..policy };
        Context { policy, nonce: [1; 16] }
    };
    let refused =
        |context: Context| context.cipher(core::slice::from_ref(&key), Use::Names).unwrap_err();
    // Direct keys need room for the nonce; policies with inode numbers are not for UBIFS.
    for flags in [4, 8, 16] {
        assert!(matches!(refused(context(flags, 1)), FsError::Unsupported(_)));
    }
    assert!(matches!(refused(context(0, 7)), FsError::Unsupported(_)));
    let other = MasterKey::new(&[8; 64], None).unwrap();
    assert_eq!(context(0, 1).cipher(&[other], Use::Names).unwrap_err(), FsError::Encrypted);
}

//! PEM: DER in base64 between lines that name its kind (RFC 7468).

use zeroize::Zeroizing;

/// The blocks of a text, with their labels; DER itself is one block without a label. `None` if a
/// block is incomplete.
pub(super) fn blocks(bytes: &[u8]) -> Option<Vec<(String, Zeroizing<Vec<u8>>)>> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Some(vec![plain(bytes)]) };
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, begin)) = rest.split_once("-----BEGIN ") {
        let (label, begin) = begin.split_once("-----")?;
        let (body, behind) = begin.split_once(&format!("-----END {label}-----"))?;
        // Lines such as `Proc-Type:` are of encrypted keys, which are told by the label, too.
        found.push((label.to_owned(), decode(body).unwrap_or_default()));
        rest = behind;
    }
    if found.is_empty() {
        found.push(plain(bytes));
    }
    Some(found)
}

fn plain(bytes: &[u8]) -> (String, Zeroizing<Vec<u8>>) {
    (String::new(), Zeroizing::new(bytes.to_vec()))
}

fn decode(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len() / 4 * 3 + 3));
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}

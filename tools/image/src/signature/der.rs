//! DER, as far as certificates, keys and signatures of superblocks need it: a sequence of values,
//! each with a tag of one byte and a definite length (ITU-T X.690).

/// Tags.
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const NULL: u8 = 0x05;
pub(super) const OBJECT: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// A context-specific constructed value, for the first, second, ... choice.
pub(super) const CONTEXT: u8 = 0xa0;

/// The unread input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Der<'a>(pub(super) &'a [u8]);

impl<'a> Der<'a> {
    /// The next value: its tag, its contents, and all of its bytes.
    fn next(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut content) = rest.split_first()?;
        let length = match first {
            0..=0x7f => usize::from(first),
            // Four bytes of length are more than anything here is long.
            0x81..=0x84 => {
                let (length, behind) = content.split_at_checked(usize::from(first & 0x7f))?;
                content = behind;
                length.iter().fold(0, |length, &byte| length << 8 | usize::from(byte))
            }
            _ => return None,
        };
        let (content, behind) = content.split_at_checked(length)?;
        let whole = &self.0[..self.0.len() - behind.len()];
        self.0 = behind;
        Some((tag, content, whole))
    }

    /// The contents of the next value, which must have this tag.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|it| it.0 == tag).map(|it| it.1)
    }

    /// The same, as a reader.
    pub(super) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(Der)
    }

    /// All bytes of the next value, which must have this tag.
    pub(super) fn whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|it| it.0 == tag).map(|it| it.2)
    }

    /// Skips the next value, if it has this tag.
    pub(super) fn skip(&mut self, tag: u8) {
        if self.0.first() == Some(&tag) {
            let _ = self.next();
        }
    }

    /// A non-negative integer: its bytes, most significant first, without leading zeros.
    pub(super) fn unsigned(&mut self) -> Option<&'a [u8]> {
        let bytes = self.take(INTEGER)?;
        let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
        (*bytes.first()? < 0x80).then(|| &bytes[zeros..])
    }

    /// An algorithm without parameters: its object identifier.
    pub(super) fn algorithm(&mut self) -> Option<&'a [u8]> {
        let mut algorithm = self.enter(SEQUENCE)?;
        let name = algorithm.take(OBJECT)?;
        algorithm.skip(NULL);
        algorithm.end().then_some(name)
    }

    /// Whether everything was read.
    pub(super) fn end(&self) -> bool {
        self.0.is_empty()
    }
}

/// A value: its tag, and its contents in pieces.
pub(super) fn value(tag: u8, pieces: &[&[u8]]) -> Vec<u8> {
    let content = pieces.concat();
    let length = (content.len() as u64).to_be_bytes();
    let zeros = length.iter().take_while(|&&byte| byte == 0).count();
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=0x7f => out.push(short as u8),
        _ => {
            out.push(0x80 | (length.len() - zeros) as u8);
            out.extend_from_slice(&length[zeros..]);
        }
    }
    out.extend(content);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_are_written() {
        for length in [0, 1, 127, 128, 255, 256, 65_535, 65_536] {
            let content = vec![7; length];
            let bytes = value(OCTET_STRING, &[&content, &[]]);
            let mut der = Der(&bytes);
            assert_eq!(der.whole(OCTET_STRING), Some(&bytes[..]));
            assert!(der.end());
            assert_eq!(Der(&bytes).take(OCTET_STRING), Some(&content[..]));
            assert_eq!(Der(&bytes).take(INTEGER), None);
            assert_eq!(Der(&bytes[..bytes.len() - 1]).take(OCTET_STRING), None);
        }
    }

    #[test]
    fn what_is_no_der_is_nothing() {
        let unsigned = |bytes: &'static [u8]| Der(bytes).unsigned();
        assert_eq!(unsigned(&[2, 2, 0, 0x80]), Some(&[0x80][..]));
        assert_eq!(unsigned(&[2, 1, 0]), Some(&[][..]));
        // Negative, empty, an indefinite length, a length that nothing has.
        for bytes in [&[2, 1, 0x80][..], &[2, 0], &[2, 0x80, 1, 0, 0], &[2, 0x88, 1], &[2], &[]] {
            assert_eq!(unsigned(bytes), None, "{bytes:x?}");
        }
    }
}

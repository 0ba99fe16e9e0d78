//! The encoding of LDAP's messages: BER with definite lengths (RFC 4511, section 5.1).

/// Numbers of tags that several modules use.
pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const ENUMERATED: u8 = 0x0a;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// A value with its tag and length.
pub(crate) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let len = content.len();
    match u8::try_from(len) {
        Ok(short @ 0..=0x7f) => out.push(short),
        _ => {
            let bytes = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
            out.push(0x84);
            out.extend_from_slice(&bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

/// A value that consists of others.
pub(crate) fn group(tag: u8, parts: &[Vec<u8>]) -> Vec<u8> {
    value(tag, &parts.concat())
}

/// A number that is not negative, as an integer or enumeration.
pub(crate) fn number(tag: u8, number: u32) -> Vec<u8> {
    let bytes = [&[0][..], &number.to_be_bytes()].concat();
    let zeros = bytes.windows(2).take_while(|pair| matches!(pair, [0, next] if *next < 0x80)).count();
    value(tag, bytes.split_at(zeros).1)
}

/// The beginning of a value.
pub(crate) enum Begun<'a> {
    /// It is all there: its tag, its content, and the bytes behind it.
    Whole(u8, &'a [u8], &'a [u8]),
    /// More bytes are needed.
    Incomplete,
    /// It has this many bytes with its tag and length, which are not all there.
    Needs(usize),
    /// It is no value.
    Bad,
}

/// Reads one value.
pub(crate) fn begin(bytes: &[u8]) -> Begun<'_> {
    let Some((&[tag, first], rest)) = bytes.split_first_chunk::<2>() else { return Begun::Incomplete };
    let (len, header, rest) = match first {
        0..=0x7f => (usize::from(first), 2, rest),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let Some((len, rest)) = rest.split_at_checked(count) else { return Begun::Incomplete };
            (len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), 2 + count, rest)
        }
        _ => return Begun::Bad,
    };
    match rest.split_at_checked(len) {
        Some((content, rest)) => Begun::Whole(tag, content, rest),
        None => Begun::Needs(header + len),
    }
}

/// The rest of a value's content.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    /// The next value.
    pub(crate) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        match begin(self.0) {
            Begun::Whole(tag, content, rest) => {
                self.0 = rest;
                Some((tag, content))
            }
            _ => None,
        }
    }

    /// The next value, which must have this tag.
    pub(crate) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, content)| content)
    }

    /// The next value as a number that is not negative.
    pub(crate) fn number(&mut self, tag: u8) -> Option<u32> {
        let content = self.expect(tag)?;
        let (first, _) = content.split_first()?;
        if content.len() > 5 || *first >= 0x80 {
            return None;
        }
        let number = content.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        u32::try_from(number).ok()
    }

    /// The next value as text.
    pub(crate) fn text(&mut self) -> Option<String> {
        self.expect(OCTET_STRING).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lengths() {
        for (given, bytes) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0, 128]),
            (256, &[1, 0]),
            (u32::MAX, &[0, 255, 255, 255, 255]),
        ] {
            let encoded = number(INTEGER, given);
            assert_eq!(&encoded[2..], bytes);
            assert_eq!(Reader(&encoded).number(INTEGER), Some(given));
        }
        assert_eq!(Reader(&[2, 1, 0x80]).number(INTEGER), None, "negative");
        assert_eq!(Reader(&[2, 0]).number(INTEGER), None);
        let long = value(OCTET_STRING, &[7; 300]);
        assert_eq!(Reader(&long).expect(OCTET_STRING), Some(&[7; 300][..]));
        assert!(matches!(begin(&long[..100]), Begun::Needs(306)));
        assert!(matches!(begin(&[4, 0x80]), Begun::Bad), "no indefinite lengths");
        assert!(matches!(begin(&[4, 0x85, 0, 0]), Begun::Bad));
    }
}

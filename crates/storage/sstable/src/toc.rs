//! `TOC.txt`, the list of an SSTable's components, and `Digest.crc32`, the checksum of the whole data file as text.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use crate::{Component, DecodeError};

/// Names of components, one a line. Names that are not known (other tools add indexes) are left out when read.
pub fn encode_toc(components: &[Component]) -> Vec<u8> {
    let mut out = String::new();
    for component in components {
        out.push_str(component.name());
        out.push('\n');
    }
    let out = out.into_bytes();
    assert_eq!(decode_toc(&out).as_deref(), Ok(components), "a list is read as it was written");
    out
}

/// Decodes the output of [`encode_toc`].
///
/// # Errors
/// A [`DecodeError`] when the bytes are not UTF-8. Unknown names are skipped.
pub fn decode_toc(bytes: &[u8]) -> Result<Vec<Component>, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        DecodeError::new(error.valid_up_to(), "names of components", "bytes that are no text")
    })?;
    Ok(text.lines().filter_map(|line| Component::from_name(line.trim())).collect())
}

/// The content of `Digest.crc32`.
pub fn encode_digest(crc: u32) -> Vec<u8> {
    let out = crc.to_string().into_bytes();
    assert_eq!(decode_digest(&out), Ok(crc), "a checksum is read as it was written");
    out
}

/// Decodes the output of [`encode_digest`].
///
/// # Errors
/// A [`DecodeError`] when the bytes are no decimal number of 32 bits.
pub fn decode_digest(bytes: &[u8]) -> Result<u32, DecodeError> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    text.trim().parse().map_err(|_| {
        DecodeError::new(0, "a checksum in decimal", format!("{:?}", String::from_utf8_lossy(bytes)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn toc() {
        let all = Component::ALL.to_vec();
        assert_eq!(decode_toc(&encode_toc(&all)), Ok(all));
        assert_eq!(
            decode_toc(b"Data.db\r\nSAI+aa+Meta.db\nTOC.txt"),
            Ok(vec![Component::Data, Component::Toc])
        );
        assert!(decode_toc(&[b'a', 0xff]).is_err());
    }

    proptest! {
        #[test]
        fn digest(crc in any::<u32>()) {
            prop_assert_eq!(decode_digest(&encode_digest(crc)), Ok(crc));
        }
    }

    #[test]
    fn digests_that_are_none() {
        for text in ["", "x", "-1", "4294967296"] {
            assert!(decode_digest(text.as_bytes()).is_err(), "{text}");
        }
    }
}

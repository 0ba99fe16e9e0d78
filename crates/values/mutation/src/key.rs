//! A partition key beside its place on the ring.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use bytes::Bytes;

/// A partition key with its token; ordered by token, then by the key's bytes, as SSTables are.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DecoratedKey {
    /// Murmur3 token of the key.
    pub token: i64,
    /// The serialised key: the value itself for one column; for several, each as 16-bit length, bytes, zero byte.
    pub key: Bytes,
}

impl DecoratedKey {
    /// Computes the token of `key`.
    #[inline]
    pub fn new(key: Bytes) -> Self {
        Self { token: stdx::murmur3::token(&key), key }
    }

    /// Puts together the serialised key from its components' values.
    #[expect(clippy::expect_used, reason = "the length of key components is checked before")]
    pub fn compose(components: &[&[u8]]) -> Bytes {
        if let [single] = components {
            return Bytes::copy_from_slice(single);
        }
        let mut out = Vec::with_capacity(components.iter().map(|c| c.len() + 3).sum());
        for component in components {
            let len = u16::try_from(component.len()).expect("key components were checked against 64 KiB");
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(component);
            out.push(0);
        }
        out.into()
    }

    /// Takes a serialised key apart into `count` components; none if it is malformed.
    pub fn components(key: &[u8], count: usize) -> Option<Vec<&[u8]>> {
        if count == 1 {
            return Some(vec![key]);
        }
        let mut reader = stdx::Reader::new(key);
        let mut out = Vec::with_capacity(count);
        for _ in 0..count {
            out.push(reader.bytes_u16().ok()?);
            if reader.u8().ok()? != 0 {
                return None;
            }
        }
        reader.is_empty().then_some(out)
    }
}

impl std::fmt::Debug for DecoratedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:02x}", self.token, self.key)
    }
}

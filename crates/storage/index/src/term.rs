//! Parts of terms.

use mutation::Clustering;

/// Behind each component of a term, so that no term is the beginning of another one.
pub(crate) const TERM_END: u8 = 0x38;

/// The least sequence of bytes that is greater.
pub(crate) fn successor(bytes: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(bytes.len() + 1);
    next.extend_from_slice(bytes);
    next.push(0);
    next
}

/// A component of a clustering key.
pub(crate) fn component(clustering: &Clustering, position: usize) -> Option<Option<&[u8]>> {
    clustering.components().nth(position)
}

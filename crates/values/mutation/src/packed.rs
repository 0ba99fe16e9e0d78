//! Values of a row in memory of their own: the retained part of a write must not keep a whole request frame or log segment alive.

use bytes::{Bytes, BytesMut};

/// Longer values get an allocation of their own, so that a small neighbour does not keep them alive.
const PACKED_LEN_MAX: usize = 256;

/// Copies the values of a row, small ones into one allocation.
pub struct Packed(BytesMut);

impl Packed {
    /// For values of these lengths.
    #[inline]
    pub fn for_lengths(lengths: impl Iterator<Item = usize>) -> Self {
        Self(BytesMut::with_capacity(lengths.filter(|len| *len <= PACKED_LEN_MAX).sum()))
    }

    /// The copy of a value.
    #[inline]
    pub fn copy(&mut self, value: &[u8]) -> Bytes {
        if value.is_empty() {
            return Bytes::new();
        }
        if value.len() > PACKED_LEN_MAX {
            return Bytes::copy_from_slice(value);
        }
        assert!(self.0.capacity() >= value.len(), "there is room for the values whose lengths were given");
        self.0.extend_from_slice(value);
        // The last one takes the allocation over, which costs no count where it is the only one.
        let is_last = self.0.len() == self.0.capacity();
        if is_last { std::mem::take(&mut self.0).freeze() } else { self.0.split().freeze() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_lie_side_by_side_and_long_ones_alone() {
        let long = [9u8; PACKED_LEN_MAX + 1];
        let values: [&[u8]; 4] = [b"one", b"", &long, b"two"];
        let mut packed = Packed::for_lengths(values.iter().map(|value| value.len()));
        let taken: Vec<Bytes> = values.iter().map(|value| packed.copy(value)).collect();
        assert_eq!(taken, values);
        assert_eq!(taken[0].as_ptr_range().end, taken[3].as_ptr_range().start);
    }
}

//! The content of cells: a function of the key and the column, so that any answer can be checked.

use crate::load::keys::{Random, mix};

/// The offsets at which values may begin.
const OFFSETS: usize = 1 << 20;

/// Random bytes, made once; values are slices of them, so that making one and checking one costs next to nothing.
pub(crate) struct Values {
    pool: Vec<u8>,
    size: usize,
}

impl Values {
    /// Values of `size` bytes.
    pub(crate) fn new(size: usize) -> Self {
        let mut random = Random::new(0x0070_7263);
        let mut pool = Vec::with_capacity(OFFSETS + size + 8);
        while pool.len() < OFFSETS + size {
            pool.extend_from_slice(&random.next().to_le_bytes());
        }
        Values { pool, size }
    }

    /// The value of a column of a row.
    pub(crate) fn of(&self, row: u64, column: u64) -> &[u8] {
        let offset = mix(row ^ column.rotate_left(48)) as usize % OFFSETS;
        &self.pool[offset..offset + self.size]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_differ_by_row_and_column_and_are_the_same_again() {
        let values = Values::new(100);
        assert_eq!(values.of(1, 0).len(), 100);
        assert_ne!(values.of(1, 0), values.of(2, 0));
        assert_ne!(values.of(1, 0), values.of(1, 1));
        assert_eq!(values.of(1, 1), Values::new(100).of(1, 1));
    }
}

//! A set of the buckets of a segment, as the master sends it.

/// A set of buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits(pub Vec<u8>);

impl Bits {
    /// None of so many.
    pub fn none(count: u32) -> Self {
        Self(vec![0; count.div_ceil(8) as usize])
    }

    /// All of so many.
    pub fn all(count: u32) -> Self {
        let mut bits = Self::none(count);
        (0..count).for_each(|bucket| bits.set(bucket));
        bits
    }

    /// Adds one.
    pub fn set(&mut self, bucket: u32) {
        self.0[bucket as usize / 8] |= 1 << (bucket % 8);
    }

    /// Whether it is there.
    pub fn has(&self, bucket: u32) -> bool {
        self.0.get(bucket as usize / 8).is_some_and(|byte| byte & (1 << (bucket % 8)) != 0)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}

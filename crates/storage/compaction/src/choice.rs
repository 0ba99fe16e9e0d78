//! A group of SSTables to merge, and why.

/// Why SSTables were chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Several of one size.
    Tier,
    /// A level is too large, or there are too many new ones.
    Level,
    /// A time window is complete.
    Window,
    /// Mostly tombstones that can go.
    Tombstones,
    /// Nothing in them is alive.
    Expired,
}

impl Reason {
    /// The word that the history shows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tier => "tier",
            Self::Level => "level",
            Self::Window => "window",
            Self::Tombstones => "tombstones",
            Self::Expired => "expired",
        }
    }
}

/// A group to merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Ids of the SSTables.
    pub inputs: Vec<usize>,
    /// Why.
    pub reason: Reason,
    /// Level of the result.
    pub level: u32,
    /// The result is split when an SSTable has so many bytes; none for a single one.
    pub output_bytes_max: Option<u64>,
    /// The result is split at the tokens that divide the ring into so many equal parts; 1 for none.
    pub shards: u32,
}

impl Choice {
    /// The choice as far as there is room for its result: `bytes` are those of its inputs on disk, in their order, and the result
    /// may take as many. Where any of the inputs may be left out the largest are; none when that does not help.
    pub fn within(&self, bytes: &[u64], room: u64) -> Option<Self> {
        let mut left: Vec<(u64, usize)> = bytes.iter().copied().zip(self.inputs.iter().copied()).collect();
        let total = |left: &[(u64, usize)]| left.iter().map(|(bytes, _)| *bytes).sum::<u64>();
        // Expired SSTables are removed without writing anything.
        if self.reason == Reason::Expired || total(&left) <= room {
            return Some(self.clone());
        }
        if !matches!(self.reason, Reason::Tier | Reason::Window) {
            return None;
        }
        while left.len() >= 2 {
            let largest = left.iter().enumerate().max_by_key(|(_, one)| **one).map(|(place, _)| place)?;
            left.remove(largest);
            if left.len() >= 2 && total(&left) <= room {
                let inputs = left.into_iter().map(|(_, id)| id).collect();
                return Some(Self { inputs, ..self.clone() });
            }
        }
        None
    }

    pub(crate) fn of(inputs: impl IntoIterator<Item = usize>, reason: Reason) -> Self {
        Self { inputs: inputs.into_iter().collect(), reason, level: 0, output_bytes_max: None, shards: 1 }
    }
}

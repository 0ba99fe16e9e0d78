//! The placement of replicas: ring and replication give token range → ordered replicas.
//!
//! The rules (`strategy`) are those of Cassandra's strategies, held against Cassandra's own classes by `testdata/placement.tsv`.
//! A table's own map of tablets will make the same value in another way.

use smallvec::SmallVec;

use crate::ring::NodeIndex;

/// The replicas of a token range, the first one first.
pub type Replicas = SmallVec<[NodeIndex; 6]>;

/// Part of the ring: from a token (not included) to another (included); where the second is not greater, the range goes
/// around the ring's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenRange {
    /// The token before the first.
    pub after: i64,
    /// The last token.
    pub upto: i64,
}

impl TokenRange {
    /// The part of all tokens that it has, 0–1.
    pub fn share(self) -> f64 {
        const RING: f64 = 18_446_744_073_709_551_616.0;
        match self.upto.wrapping_sub(self.after) as u64 {
            0 => 1.0,
            tokens => tokens as f64 / RING,
        }
    }
}

/// Where the data of a keyspace lives: for every token range its replicas.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Ascending by the last token.
    ranges: Vec<PlacedRange>,
    /// The replicas of all ranges. Ranges may share them.
    replicas: Vec<NodeIndex>,
}

/// A token range and the place of its replicas among those of all ranges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlacedRange {
    pub(crate) upto: i64,
    pub(crate) start: u32,
    pub(crate) count: u32,
}

impl PlacedRange {
    fn of<'a>(&self, replicas: &'a [NodeIndex]) -> &'a [NodeIndex] {
        let start = self.start as usize;
        &replicas[start..start + self.count as usize]
    }
}

impl PartialEq for Placement {
    /// Whether both place every token alike, by the same ranges.
    fn eq(&self, other: &Self) -> bool {
        self.ranges().eq(other.ranges())
    }
}

impl Eq for Placement {}

impl Placement {
    /// A placement by the last token of each range, ascending, and the range's replicas.
    ///
    /// # Panics
    /// When the tokens do not ascend.
    pub fn of_ranges(ranges: Vec<(i64, Replicas)>) -> Self {
        assert!(ranges.is_sorted_by(|(one, _), (next, _)| one < next), "ranges end in the order of the ring");
        let mut placement = Self { ranges: Vec::with_capacity(ranges.len()), replicas: Vec::new() };
        for (upto, replicas) in ranges {
            let start = placement.replicas.len() as u32;
            placement.ranges.push(PlacedRange { upto, start, count: replicas.len() as u32 });
            placement.replicas.extend(replicas);
        }
        placement
    }

    /// By ranges whose tokens ascend.
    pub(crate) fn of_parts(ranges: Vec<PlacedRange>, replicas: Vec<NodeIndex>) -> Self {
        debug_assert!(ranges.is_sorted_by(|one, next| one.upto < next.upto));
        Self { ranges, replicas }
    }

    /// The replicas of a token; none when the ring is empty.
    pub fn replicas(&self, token: i64) -> &[NodeIndex] {
        self.at(self.ranges.partition_point(|range| range.upto < token))
    }

    /// How many ranges there are.
    pub fn range_count(&self) -> usize {
        self.ranges.len()
    }

    /// The last token of the range at a place in the order of the ring; none behind the last range.
    pub fn range_end(&self, place: usize) -> Option<i64> {
        self.ranges.get(place).map(|range| range.upto)
    }

    /// Of all ranges.
    pub(crate) fn replica_count(&self) -> usize {
        self.replicas.len()
    }

    /// The replicas of the range at a position in the order of the ring; behind the last range the first one follows. None when there are no ranges.
    pub fn at(&self, place: usize) -> &[NodeIndex] {
        let range = self.ranges.get(place).or(self.ranges.first());
        range.map_or(&[], |range| range.of(&self.replicas))
    }

    /// Every range with its replicas, in the order of the ring.
    pub fn ranges(&self) -> impl Iterator<Item = (TokenRange, &[NodeIndex])> {
        let count = self.ranges.len();
        self.ranges.iter().enumerate().map(move |(at, range)| {
            let after = self.ranges[(at + count - 1) % count].upto;
            (TokenRange { after, upto: range.upto }, range.of(&self.replicas))
        })
    }

    /// The ranges of which a node keeps a copy.
    pub fn ranges_of(&self, node: NodeIndex) -> impl Iterator<Item = TokenRange> + '_ {
        self.ranges().filter(move |(_, replicas)| replicas.contains(&node)).map(|(range, _)| range)
    }

    /// The ranges of which a node is the first replica.
    pub fn primary_ranges_of(&self, node: NodeIndex) -> impl Iterator<Item = TokenRange> + '_ {
        self.ranges().filter(move |(_, replicas)| replicas.first() == Some(&node)).map(|(range, _)| range)
    }
}

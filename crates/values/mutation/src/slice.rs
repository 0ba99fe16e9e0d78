//! The part of a table that a read asks for: which partitions, which ranges of rows, which columns.

use std::sync::Arc;

use schema::ColumnId;

use crate::{Bound, Clustering, DecoratedKey};

/// A place on the ring between partitions, or at one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RingPosition {
    /// Before every partition with this token.
    BeforeToken(i64),
    /// After every partition with this token.
    AfterToken(i64),
    /// Just before this partition.
    BeforeKey(DecoratedKey),
    /// Just after this partition.
    AfterKey(DecoratedKey),
}

impl RingPosition {
    /// The token at which it lies.
    pub fn token(&self) -> i64 {
        match self {
            Self::BeforeToken(token) | Self::AfterToken(token) => *token,
            Self::BeforeKey(key) | Self::AfterKey(key) => key.token,
        }
    }

    /// Whether it lies before a partition.
    pub fn is_before(&self, key: &DecoratedKey) -> bool {
        self.is_before_parts(key.token, &key.key)
    }

    /// [`Self::is_before`] of a partition whose key is given as its token and its bytes.
    pub fn is_before_parts(&self, token: i64, key: &[u8]) -> bool {
        match self {
            Self::BeforeToken(at) => *at <= token,
            Self::AfterToken(at) => *at < token,
            Self::BeforeKey(at) => (at.token, &at.key[..]) <= (token, key),
            Self::AfterKey(at) => (at.token, &at.key[..]) < (token, key),
        }
    }
}

/// The partitions from one ring position to another; never wraps round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionRange {
    /// Partitions after this.
    pub start: RingPosition,
    /// And before this.
    pub end: RingPosition,
}

impl PartitionRange {
    /// Every partition.
    pub fn all() -> Self {
        Self { start: RingPosition::BeforeToken(i64::MIN), end: RingPosition::AfterToken(i64::MAX) }
    }

    /// One partition.
    pub fn single(key: &DecoratedKey) -> Self {
        Self { start: RingPosition::BeforeKey(key.clone()), end: RingPosition::AfterKey(key.clone()) }
    }

    /// The key, when the range is one partition.
    pub fn as_single(&self) -> Option<&DecoratedKey> {
        match (&self.start, &self.end) {
            (RingPosition::BeforeKey(a), RingPosition::AfterKey(b)) if a == b => Some(a),
            _ => None,
        }
    }

    /// Whether a partition lies in it.
    pub fn contains(&self, key: &DecoratedKey) -> bool {
        self.start.is_before(key) && !self.end.is_before(key)
    }
}

/// A range of rows, from bound to bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRange {
    /// Rows after this.
    pub start: Bound,
    /// And before this.
    pub end: Bound,
}

impl RowRange {
    /// Every row of a partition.
    pub const fn all() -> Self {
        Self { start: Bound::bottom(), end: Bound::top() }
    }

    /// The row with this key alone.
    pub fn row(key: &Clustering) -> Self {
        Self { start: Bound::before_row(key), end: Bound::after_row(key) }
    }

    /// Whether no row can lie in it.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// Whether a row lies in it.
    pub fn contains(&self, key: &Clustering) -> bool {
        self.start.position() < key.position() && key.position() < self.end.position()
    }
}

/// The rows that a read asks for within each partition: ranges in clustering order, apart from each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slices(Ranges);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Ranges {
    /// The one range of all rows, which most reads ask for: costs no memory.
    All,
    /// Others; never the range of all rows alone.
    Some(Vec<RowRange>),
}

/// The ranges that [`Ranges::All`] stands for.
static ALL_ROWS: [RowRange; 1] = [RowRange::all()];

impl Slices {
    /// All rows.
    pub fn all() -> Self {
        Self(Ranges::All)
    }

    /// No row (the static row and the partition's deletion only).
    pub fn none() -> Self {
        Self(Ranges::Some(Vec::new()))
    }

    /// These ranges, put in order and joined where they overlap or touch.
    pub fn new(mut ranges: Vec<RowRange>) -> Self {
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by(|a, b| a.start.cmp(&b.start));
        let mut joined: Vec<RowRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if range.start <= last.end => {
                    if range.end > last.end {
                        last.end = range.end;
                    }
                }
                _ => joined.push(range),
            }
        }
        Self::of(joined)
    }

    /// These ranges, which are in order and apart.
    fn of(ranges: Vec<RowRange>) -> Self {
        Self(if ranges == ALL_ROWS { Ranges::All } else { Ranges::Some(ranges) })
    }

    /// The ranges in clustering order.
    pub fn ranges(&self) -> &[RowRange] {
        match &self.0 {
            Ranges::All => &ALL_ROWS,
            Ranges::Some(ranges) => ranges,
        }
    }

    /// Whether every row is requested.
    pub fn is_all(&self) -> bool {
        self.0 == Ranges::All
    }

    /// Whether a row is requested.
    pub fn contains(&self, key: &Clustering) -> bool {
        if self.is_all() {
            return true;
        }
        let ranges = self.ranges();
        let at = ranges.partition_point(|range| range.end.position() <= key.position());
        ranges.get(at).is_some_and(|range| range.contains(key))
    }

    /// The rest after `last` was read in the given direction.
    #[must_use]
    pub fn after(&self, last: &Clustering, reversed: bool) -> Self {
        let cut = if reversed { Bound::before_row(last) } else { Bound::after_row(last) };
        let clip = |range: &RowRange| {
            if reversed {
                RowRange { start: range.start.clone(), end: range.end.clone().min(cut.clone()) }
            } else {
                RowRange { start: range.start.clone().max(cut.clone()), end: range.end.clone() }
            }
        };
        Self::of(self.ranges().iter().map(clip).filter(|range| !range.is_empty()).collect())
    }
}

/// Which non-key columns a read needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnSelection {
    /// All of them.
    All,
    /// These, in column id order. Rows still tell whether they exist. Shared by the executions of a statement.
    Some(Arc<[ColumnId]>),
}

impl ColumnSelection {
    /// Whether a column is needed.
    pub fn contains(&self, id: ColumnId) -> bool {
        match self {
            Self::All => true,
            Self::Some(ids) => ids.binary_search(&id).is_ok(),
        }
    }
}

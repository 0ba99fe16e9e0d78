//! Writes: the joint effect of one statement, or of a batch's statements for one partition.

use std::fmt;

use crate::{ColumnId, Scalar, Value};

/// A row's clustering key; none for the static row.
pub type Place = Option<Vec<Scalar>>;

/// Rows of a partition by their key's values: equal in the first components, between two bounds in the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Values of the first components.
    pub equal: Vec<Scalar>,
    /// Least value of the next component, and whether it is included.
    pub from: Option<(Scalar, bool)>,
    /// Greatest value of the next component, and whether it is included.
    pub to: Option<(Scalar, bool)>,
}

impl Slice {
    /// Whether it holds the row with this key.
    pub fn holds(&self, key: &[Scalar]) -> bool {
        let at = self.equal.len();
        key[..at] == self.equal[..]
            && self
                .from
                .as_ref()
                .is_none_or(|(from, included)| key[at] > *from || (*included && key[at] == *from))
            && self.to.as_ref().is_none_or(|(to, included)| key[at] < *to || (*included && key[at] == *to))
    }
}

/// One thing that a write does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Removes everything that was written before, regardless of its timestamp (TRUNCATE).
    Truncate,
    /// Deletes the partition.
    Partition,
    /// Deletes rows.
    Rows(Slice),
    /// Marks a row as there, as INSERT does, for so many seconds if any.
    Mark(Vec<Scalar>, Option<u32>),
    /// Sets or deletes a value.
    Cell {
        /// The place.
        place: Place,
        /// Which column.
        column: ColumnId,
        /// The value, none to delete it.
        value: Option<Scalar>,
        /// Seconds to live.
        ttl: Option<u32>,
    },
    /// Deletes the elements of a collection that are older than the write.
    Clear {
        /// The place.
        place: Place,
        /// Which column.
        column: ColumnId,
    },
    /// Deletes a collection, elements of the write's own timestamp included.
    Erase {
        /// The place.
        place: Place,
        /// Which column.
        column: ColumnId,
    },
    /// Sets or deletes an element of a collection.
    Element {
        /// The place.
        place: Place,
        /// Which column.
        column: ColumnId,
        /// The element of a set, or the key of a map.
        path: Scalar,
        /// Its value; a set's elements have empty ones. None to delete it.
        value: Option<Scalar>,
        /// Seconds to live.
        ttl: Option<u32>,
    },
    /// Counts.
    Add {
        /// The place.
        place: Place,
        /// Which column.
        column: ColumnId,
        /// How much.
        delta: i64,
    },
}

impl Effect {
    /// Whether it concerns a row, or the static row.
    pub fn touches(&self, place: &Place) -> bool {
        match self {
            Self::Truncate | Self::Partition => true,
            Self::Rows(slice) => place.as_ref().is_some_and(|key| slice.holds(key)),
            Self::Mark(key, _) => place.as_ref() == Some(key),
            Self::Cell { place: at, .. }
            | Self::Clear { place: at, .. }
            | Self::Erase { place: at, .. }
            | Self::Element { place: at, .. }
            | Self::Add { place: at, .. } => at == place,
        }
    }
}

/// The changes of one partition at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Its number in the history.
    pub id: u64,
    /// Its timestamp in microseconds.
    pub timestamp: i64,
    /// The servers' clocks, in seconds, from when the request was sent until its answer came: the least and the most.
    pub clock: (i64, i64),
    /// The statement, for reports.
    pub text: String,
    /// Its effects.
    pub effects: Vec<Effect>,
}

impl Write {
    /// Whether it concerns a row, or the static row.
    pub fn touches(&self, place: &Place) -> bool {
        self.effects.iter().any(|effect| effect.touches(place))
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} @{} {}", self.id, self.timestamp, self.text)
    }
}

/// A collection's elements as effects of an overwrite.
pub fn elements(value: &Value) -> Vec<(Scalar, Scalar)> {
    match value {
        Value::Scalar(_) => Vec::new(),
        Value::Set(set) => set.iter().map(|element| (element.clone(), Scalar::Blob(Vec::new()))).collect(),
        Value::Map(map) => map.iter().map(|(key, value)| (key.clone(), value.clone())).collect(),
    }
}

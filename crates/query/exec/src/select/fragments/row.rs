//! Fragments as rows, and the places of fragments that rows have.

use bytes::Bytes;
use mutation::row::ColumnData;
use mutation::{Bound, Cell, Clustering, Fragment, LivenessInfo, Row, Side};
use replica::FragmentPlace;
use schema::Table;

use super::{KIND, METADATA, VALUE, json};

/// The write time of a fragment's description.
const TIMESTAMP: i64 = 1;

/// A table with the table of its fragments.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) base: &'a Table,
    pub(super) fragments: &'a Table,
}

/// Where a fragment is: `partition_region`, the values of the clustering columns as far as it has them, and `position_weight`.
struct Position<'f> {
    region: u8,
    prefix: Vec<Option<&'f [u8]>>,
    weight: Option<i8>,
}

impl<'f> Position<'f> {
    fn of(fragment: &'f Fragment) -> Self {
        let edge = |region| Self { region, prefix: Vec::new(), weight: None };
        match fragment {
            Fragment::PartitionStart { .. } => edge(0),
            Fragment::StaticRow(_) => edge(1),
            Fragment::Row(row) => {
                Self { region: 2, prefix: row.clustering.components().collect(), weight: Some(0) }
            }
            Fragment::RangeTombstoneChange { bound, .. } => {
                let weight = if bound.side() == Side::Before { -1 } else { 1 };
                Self { region: 2, prefix: bound.components().collect(), weight: Some(weight) }
            }
            Fragment::PartitionEnd => edge(3),
        }
    }
}

impl Tables<'_> {
    /// The row that shows a fragment of a source.
    pub(super) fn row(self, source: &str, fragment: &Fragment) -> Row {
        let position = Position::of(fragment);
        let (region, weight) = ([position.region], position.weight.map(i8::to_be_bytes));
        let mut key: Vec<Option<&[u8]>> = vec![Some(source.as_bytes()), Some(&region)];
        key.extend(position.prefix);
        key.resize(self.base.clustering().len() + 2, None);
        key.push(weight.as_ref().map(|weight| &weight[..]));
        let mut row = Row::new(Clustering::new(self.fragments, &key));
        row.liveness = LivenessInfo::forever(TIMESTAMP);
        let (kind, metadata, value) = self.described(fragment);
        let columns = [(KIND, Some(kind.to_owned())), (METADATA, metadata), (VALUE, value)];
        for (name, text) in columns {
            let column = self.fragments.column(name).expect("the table of fragments names it");
            if let Some(text) = text {
                let cell = Cell::live(TIMESTAMP, Bytes::from(text));
                row.set(column.id, ColumnData::Simple(cell));
            }
        }
        row
    }

    /// The kind, metadata and value of a fragment.
    fn described(self, fragment: &Fragment) -> (&'static str, Option<String>, Option<String>) {
        let base = self.base;
        match fragment {
            Fragment::PartitionStart { deletion, .. } => {
                ("partition start", Some(json::deletion(*deletion)), None)
            }
            Fragment::StaticRow(row) => {
                ("static row", Some(json::static_row(base, row)), Some(json::values(base, row)))
            }
            Fragment::Row(row) => {
                ("clustering row", Some(json::row(base, row)), Some(json::values(base, row)))
            }
            Fragment::RangeTombstoneChange { deletion, .. } => {
                ("range tombstone change", Some(json::deletion(*deletion)), None)
            }
            Fragment::PartitionEnd => ("partition end", None, None),
        }
    }

    /// The source and the place of the fragment that a row with this key shows; none of a key that no row has.
    pub(super) fn place(self, key: &Clustering) -> Option<(String, FragmentPlace)> {
        let values: Vec<Option<&[u8]>> = key.components().collect();
        let [source, region, prefix @ .., weight] = values.as_slice() else { return None };
        if prefix.len() != self.base.clustering().len() {
            return None;
        }
        let source = std::str::from_utf8((*source)?).ok()?.to_owned();
        // A bound has no value after its last one.
        let len = prefix.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
        let bound = |side| FragmentPlace::Change(Bound::new(self.base, &prefix[..len], side));
        let place = match ((*region)?, *weight) {
            ([0], None) => FragmentPlace::Start,
            ([1], None) => FragmentPlace::Static,
            ([2], Some([0])) => FragmentPlace::Row(Clustering::new(self.base, prefix)),
            ([2], Some([1])) => bound(Side::After),
            ([2], Some([255])) => bound(Side::Before),
            ([3], None) => FragmentPlace::End,
            _ => return None,
        };
        Some((source, place))
    }
}

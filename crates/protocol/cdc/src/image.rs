//! Rows as they were before a write, or are after it: the result of all older writes, each cell with the timestamp that it has in the base, so that
//! the images that replicas make of their own rows merge.

use mutation::row::ColumnData;
use mutation::{Clustering, DeletionTime, LivenessInfo, PartitionUpdate, Row, Timestamp};

/// A row of a partition, or its static row.
pub(crate) enum Place {
    Static,
    Row(Clustering),
}

impl Place {
    fn clustering(&self) -> Clustering {
        match self {
            Self::Static => Clustering::empty(),
            Self::Row(clustering) => clustering.clone(),
        }
    }
}

/// Whether a row has something with this timestamp, beside deletions of old cells of columns.
fn has_change_at(row: &Row, timestamp: Timestamp) -> bool {
    row.liveness.timestamp == timestamp
        || row.deletion.timestamp == timestamp
        || row.columns().iter().any(|(_, data)| match data {
            ColumnData::Simple(cell) => cell.timestamp == timestamp,
            ColumnData::Complex(complex) => {
                complex.cells.iter().any(|element| element.cell.timestamp == timestamp)
            }
        })
}

/// The content of a row that writes below a timestamp have made.
fn row_below(row: &Row, limit: Timestamp) -> Row {
    let mut image = row.clone();
    let deletion = |deletion: DeletionTime| match deletion.timestamp < limit {
        true => deletion,
        false => DeletionTime::LIVE,
    };
    image.deletion = deletion(image.deletion);
    if image.liveness.timestamp >= limit {
        image.liveness = LivenessInfo::NONE;
    }
    // A write at the limit that sets the whole of a column has deleted its old cells just below its own timestamp, and may have done
    // nothing else.
    let is_set = || has_change_at(row, limit) || !has_change_at(row, limit.saturating_sub(1));
    image.retain(|_, data| match data {
        ColumnData::Simple(cell) => cell.timestamp < limit,
        ColumnData::Complex(complex) => {
            complex.deletion = match complex.deletion.timestamp.saturating_add(1) == limit && is_set() {
                true => DeletionTime::LIVE,
                false => deletion(complex.deletion),
            };
            complex.cells.retain(|element| element.cell.timestamp < limit);
            !complex.is_empty()
        }
    });
    image
}

/// The same of the row that a write makes of one that was there.
pub(crate) fn row_of(
    before: Option<&PartitionUpdate>,
    update: &PartitionUpdate,
    place: &Place,
    limit: Timestamp,
) -> Row {
    let parts = before.into_iter().chain([update]).map(|update| {
        let row = match place {
            Place::Static => update.static_row().cloned().unwrap_or_else(|| Row::new(Clustering::empty())),
            Place::Row(clustering) => update.row_at(clustering),
        };
        row_below(&row, limit)
    });
    parts.fold(Row::new(place.clustering()), |mut row, part| {
        row.merge(part, &update.table);
        row
    })
}

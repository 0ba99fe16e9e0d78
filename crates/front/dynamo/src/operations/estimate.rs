//! About how much a table holds, by the statistics of the node that answers.

use exec::backend::Coordinator;
use replica::TableSize;

use super::Dynamo;
use crate::table::ApiTable;

/// About how much a table holds, in all of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Estimate {
    pub(super) items: u64,
    pub(super) bytes: u64,
}

impl Estimate {
    /// That of a whole of which a node holds this part, 0–1, by its statistics; nothing where it holds none.
    fn of_part(size: TableSize, share: f64) -> Self {
        let whole = |part: u64| if share > 0.0 { (part as f64 / share.min(1.0)).round() as u64 } else { 0 };
        Self { items: whole(size.rows), bytes: whole(size.bytes) }
    }
}

impl<C: Coordinator> Dynamo<C> {
    /// About how much a table holds: by this node's part of it, for partitions are spread evenly.
    pub(super) async fn estimate(&self, table: &ApiTable) -> Estimate {
        let coordinator = self.executor.coordinator();
        let size = coordinator.table_size(table.table.id).await;
        let (schema, view) = (coordinator.schema(), coordinator.view());
        let Some(keyspace) = schema.keyspace(&table.table.keyspace) else { return Estimate::default() };
        let placement = view.place_table(keyspace, &table.table);
        let share = placement.now().ranges_of(view.own()).map(|range| range.share()).sum();
        Estimate::of_part(size, share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_table_stands_for_all_of_it() {
        let size = TableSize { rows: 10, bytes: 1000, partition_bytes_max: 5 };
        let of = |share| {
            let Estimate { items, bytes } = Estimate::of_part(size, share);
            (items, bytes)
        };
        assert_eq!(of(1.0), (10, 1000));
        assert_eq!(of(0.25), (40, 4000));
        assert_eq!(of(0.0), (0, 0), "a node without the table knows nothing of it");
    }
}

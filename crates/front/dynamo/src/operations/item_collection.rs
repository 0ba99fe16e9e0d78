//! `ReturnItemCollectionMetrics`: about how large the items with one hash key are, on tables with local secondary indexes.

use exec::backend::Coordinator;
use items::{Item, json};
use serde_json::{Map, Value as Json, json as to_json};

use super::Dynamo;
use crate::table::ApiTable;

const NAME: &str = "ItemCollectionMetrics";
/// A gigabyte as AWS counts it.
const GIGABYTE: u64 = 1 << 30;

/// The bounds of the sizes of all partitions, in whole gigabytes: none is larger than `bytes_max`, and each local index has its items again.
fn bounds(bytes_max: u64, local_indexes: usize) -> [f64; 2] {
    let bytes = bytes_max.saturating_mul(local_indexes as u64 + 1);
    [0.0, bytes.div_ceil(GIGABYTE).max(1) as f64]
}

impl<C: Coordinator> Dynamo<C> {
    /// The metrics of the collection of an item; none on a table without local secondary indexes.
    async fn item_collection(&self, table: &ApiTable, item: &Item) -> Option<Json> {
        let local = table.indexes().iter().filter(|index| !index.is_global).count();
        let hash = table.hash().name;
        let value = item.get(hash).filter(|_| local > 0)?.clone();
        let size = self.executor.coordinator().table_size(table.table.id).await;
        Some(to_json!({
            "ItemCollectionKey": json::item(&Item::from([(hash.to_owned(), value)])),
            "SizeEstimateRangeGB": bounds(size.partition_bytes_max, local),
        }))
    }

    /// Adds the metrics of the item's collection to the answer of its write.
    pub(super) async fn add_item_collection(
        &self,
        answer: &mut Map<String, Json>,
        table: &ApiTable,
        item: &Item,
    ) {
        if let Some(metrics) = self.item_collection(table, item).await {
            answer.insert(NAME.to_owned(), metrics);
        }
    }

    /// Adds the metrics of the collections of many items to the answer of their writes, by table, each collection once.
    pub(super) async fn add_item_collections(
        &self,
        answer: &mut Map<String, Json>,
        items: impl Iterator<Item = (&ApiTable, &Item)>,
    ) {
        let mut tables: Map<String, Json> = Map::new();
        for (table, item) in items {
            let Some(metrics) = self.item_collection(table, item).await else { continue };
            let list = tables.entry(table.name()).or_insert_with(|| Json::Array(Vec::new()));
            if let Some(list) = list.as_array_mut()
                && !list.contains(&metrics)
            {
                list.push(metrics);
            }
        }
        if !tables.is_empty() {
            answer.insert(NAME.to_owned(), Json::Object(tables));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_is_whole_gigabytes_and_counts_indexes() {
        assert_eq!(bounds(0, 1), [0.0, 1.0]);
        assert_eq!(bounds(GIGABYTE / 2, 1), [0.0, 1.0]);
        assert_eq!(bounds(GIGABYTE / 2 + 1, 1), [0.0, 2.0]);
        assert_eq!(bounds(3 * GIGABYTE, 2), [0.0, 9.0]);
        assert!(bounds(u64::MAX, 5)[1] > 1e9);
    }
}

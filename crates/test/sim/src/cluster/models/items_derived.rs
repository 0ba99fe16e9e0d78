//! The data that follow from the items of a table of the DynamoDB API: the items that an index has to show, and the table that the records of its
//! stream give. Pure.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// Items by the value of their key attribute.
pub(crate) type ItemSet = BTreeMap<String, Json>;

/// The value of an item's key attribute.
fn key(item: &Json) -> Result<String, String> {
    let key = item["k"]["S"].as_str();
    key.map(str::to_owned).ok_or_else(|| format!("an item without a key: {item}"))
}

/// Items by their keys.
pub(crate) fn by_key(items: &[Json]) -> Result<ItemSet, String> {
    let mut all = ItemSet::new();
    for item in items {
        if all.insert(key(item)?, item.clone()).is_some() {
            return Err(format!("an item comes twice: {item}"));
        }
    }
    Ok(all)
}

/// The number of an attribute; none where there is none.
fn number(item: &Json, attribute: &str) -> Option<i64> {
    item[attribute]["N"].as_str()?.parse().ok()
}

/// An index of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    /// By the attribute `g`; it has whole items.
    Group,
    /// By `g` and in the order of `v`; it has the keys alone.
    Value,
}

impl Index {
    pub(crate) const ALL: [Self; 2] = [Self::Group, Self::Value];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Group => "by_group",
            Self::Value => "by_value",
        }
    }

    /// Its form of an item in a group; none where the item is not in it.
    fn shows(self, item: &Json, group: i64) -> Option<Json> {
        if number(item, "g") != Some(group) {
            return None;
        }
        match self {
            Self::Group => Some(item.clone()),
            Self::Value => {
                number(item, "v")?;
                Some(serde_json::json!({ "k": item["k"], "g": item["g"], "v": item["v"] }))
            }
        }
    }

    /// The violation in the answer to a query of a group, given the items of the table.
    pub(crate) fn problem(self, table: &ItemSet, group: i64, found: &[Json]) -> Option<String> {
        let shown = match by_key(found) {
            Ok(shown) => shown,
            Err(problem) => return Some(problem),
        };
        let expected: ItemSet =
            table.iter().filter_map(|(key, item)| Some((key.clone(), self.shows(item, group)?))).collect();
        if shown != expected {
            return Some(format!("it shows {shown:?} instead of {expected:?}"));
        }
        let is_sorted = found.is_sorted_by_key(|item| number(item, "v"));
        (self == Self::Value && !is_sorted).then(|| format!("it shows items in a wrong order: {found:?}"))
    }
}

/// The attributes that every write of an item has.
const WRITTEN: [&str; 3] = ["k", "v", "l"];

fn written(item: &Json) -> Json {
    let attributes = item.as_object().into_iter().flatten();
    let attributes = attributes.filter(|(name, _)| WRITTEN.contains(&name.as_str()));
    Json::Object(attributes.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// The part of a table's items that records have to give.
pub(crate) fn all_written(table: &ItemSet) -> ItemSet {
    table.iter().map(|(key, item)| (key.clone(), written(item))).collect()
}

/// The items that the records of a stream give, those of each shard in their order, as far as every write has their attributes. The others, and
/// old images, are those of replicas, of which one may lack an earlier write (docs/design/cdc.md, *Known weaknesses*).
pub(crate) fn replay(shards: &[Vec<Json>]) -> Result<ItemSet, String> {
    let mut items = ItemSet::new();
    for record in shards.iter().flatten() {
        let change = &record["dynamodb"];
        let key = key(&change["Keys"])?;
        let (before, after) = (change.get("OldImage"), change.get("NewImage"));
        let name = match (before, after) {
            (None, Some(_)) => "INSERT",
            (Some(_), Some(_)) => "MODIFY",
            (Some(_), None) => "REMOVE",
            (None, None) => "",
        };
        if record["eventName"] != name {
            return Err(format!("a record of another kind than its images: {record}"));
        }
        match after {
            Some(item) => items.insert(key, written(item)),
            None => items.remove(&key),
        };
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn item(key: &str, group: i64, value: Option<i64>) -> Json {
        let mut item = json!({ "k": { "S": key }, "g": { "N": group.to_string() } });
        if let Some(value) = value {
            item["v"] = json!({ "N": value.to_string() });
        }
        item
    }

    #[test]
    fn indexes_show_their_items_alone() {
        let all =
            [item("n1", 1, Some(7)), item("n2", 1, Some(5)), item("n3", 2, Some(6)), item("l1", 1, None)];
        let table = by_key(&all).expect("all differ");
        let sorted = [all[1].clone(), all[0].clone()];
        assert_eq!(Index::Value.problem(&table, 1, &sorted), None);
        assert!(Index::Value.problem(&table, 1, &all[..2]).is_some_and(|text| text.contains("order")));
        assert!(Index::Value.problem(&table, 1, &all[..1]).is_some());
        assert!(Index::Value.problem(&table, 2, &sorted).is_some());
        assert_eq!(Index::Group.problem(&table, 1, &[all[0].clone(), all[1].clone(), all[3].clone()]), None);
        assert!(Index::Group.problem(&table, 1, &sorted).is_some());
        assert!(Index::Group.problem(&table, 2, &[all[2].clone(), all[2].clone()]).is_some());
    }

    #[test]
    fn records_are_replayed() {
        let record = |name: &str, before: Option<Json>, after: Option<Json>| {
            let mut change = json!({ "Keys": { "k": { "S": "n1" } } });
            if let Some(before) = before {
                change["OldImage"] = before;
            }
            if let Some(after) = after {
                change["NewImage"] = after;
            }
            json!({ "eventName": name, "dynamodb": change })
        };
        let (one, two) = (item("n1", 1, Some(1)), item("n1", 2, Some(2)));
        let insert = record("INSERT", None, Some(one.clone()));
        let modify = record("MODIFY", Some(one.clone()), Some(two.clone()));
        let remove = record("REMOVE", Some(two), None);
        let shards = |records: &[&Json]| vec![Vec::new(), records.iter().map(|one| (*one).clone()).collect()];
        assert_eq!(replay(&shards(&[&insert, &modify, &remove])), Ok(ItemSet::new()));
        let table = by_key(&[one]).map(|table| all_written(&table));
        assert_eq!(replay(&shards(&[&insert])), table);
        assert_ne!(replay(&shards(&[&insert, &modify])), table);
        assert!(table.is_ok_and(|table| table["n1"]["v"]["N"] == "1" && table["n1"].get("g").is_none()));
        assert!(replay(&shards(&[&record("INSERT", None, None)])).is_err());
    }
}

//! The units of capacity that a request consumed: of its table and of each of its indexes.
//!
//! Figures are AWS's, as if indexes stored their entries: a write costs units of an index for each of its entries that it changes.

use std::collections::BTreeMap;

use items::Item;
use serde_json::{Map, Value as Json, json};

use super::size::write_units;
use crate::index_definition::SecondaryIndex;
use crate::request::Capacity;
use crate::table::ApiTable;

/// Units of capacity.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Consumed {
    table: f64,
    local: BTreeMap<String, f64>,
    global: BTreeMap<String, f64>,
}

impl Consumed {
    /// Units of the table alone.
    pub(super) fn of_table(table: f64) -> Self {
        Self { table, ..Self::default() }
    }

    /// Those of a write that makes one item another; none is an item that is not there. The larger of both counts.
    pub(super) fn of_write(table: &ApiTable, before: Option<&Item>, after: Option<&Item>) -> Self {
        let size = |item: Option<&Item>| item.map_or(0, items::item_size);
        let mut out = Self::of_table(write_units(size(before).max(size(after))));
        for index in table.indexes() {
            out.add_to_index(index, index_units(table, index, before, after));
        }
        out
    }

    /// Adds units of an index, if there are any.
    pub(super) fn add_to_index(&mut self, index: &SecondaryIndex, units: f64) {
        let indexes = if index.is_global { &mut self.global } else { &mut self.local };
        if units > 0.0 {
            *indexes.entry(index.name.clone()).or_default() += units;
        }
    }

    /// The units of the table.
    pub(super) fn of_the_table(&self) -> f64 {
        self.table
    }

    /// The units of all indexes.
    pub(super) fn of_indexes(&self) -> f64 {
        self.local.values().chain(self.global.values()).sum()
    }

    /// All units.
    pub(super) fn total(&self) -> f64 {
        self.table + self.of_indexes()
    }

    /// Adds those of another request, so many times.
    pub(super) fn add(&mut self, other: &Self, times: f64) {
        self.table += times * other.table;
        let pairs = [(&mut self.local, &other.local), (&mut self.global, &other.global)];
        for (own, others) in pairs {
            for (name, units) in others {
                *own.entry(name.clone()).or_default() += times * units;
            }
        }
    }

    /// `ConsumedCapacity` of the table as the request names it. `kind` is the member that says it once more for a transaction.
    pub(super) fn json(&self, table: &str, asked: Capacity, kind: Option<&str>) -> Json {
        let units = |units: f64| {
            let members = ["CapacityUnits"].into_iter().chain(kind);
            Json::Object(members.map(|name| (name.to_owned(), units.into())).collect())
        };
        let mut out = json!({ "TableName": table });
        let Some(members) = out.as_object_mut() else { return out };
        if let Json::Object(total) = units(self.total()) {
            members.extend(total);
        }
        if asked == Capacity::Indexes {
            members.insert("Table".to_owned(), units(self.table));
            for (name, indexes) in
                [("LocalSecondaryIndexes", &self.local), ("GlobalSecondaryIndexes", &self.global)]
            {
                if !indexes.is_empty() {
                    let shown = indexes.iter().map(|(name, of)| (name.clone(), units(*of))).collect();
                    members.insert(name.to_owned(), Json::Object(shown));
                }
            }
        }
        out
    }

    /// Adds `ConsumedCapacity` to an answer, where it was asked for.
    pub(super) fn show(&self, answer: &mut Map<String, Json>, table: &str, asked: Capacity) {
        if asked != Capacity::None {
            answer.insert("ConsumedCapacity".to_owned(), self.json(table, asked, None));
        }
    }
}

/// Units of a write on an index: one write of its entry, or two where it moves to other keys; none where nothing changes that it shows.
fn index_units(table: &ApiTable, index: &SecondaryIndex, before: Option<&Item>, after: Option<&Item>) -> f64 {
    let units = |item: &Item| write_units(index.size(table, item));
    match (before.filter(|item| index.has(item)), after.filter(|item| index.has(item))) {
        (None, None) => 0.0,
        (Some(item), None) | (None, Some(item)) => units(item),
        (Some(before), Some(after)) => {
            let same = |name: &str| before.get(name) == after.get(name);
            if !index.keys().all(|key| same(&key.name)) {
                units(before) + units(after)
            } else if before.keys().chain(after.keys()).all(|name| same(name) || !index.shows(table, name)) {
                0.0
            } else {
                units(before).max(units(after))
            }
        }
    }
}

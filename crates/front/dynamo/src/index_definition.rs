//! The definition of a secondary index: its keys and the attributes that it shows, as an extension of the table stores it, and the index
//! of storage that it needs.

use std::collections::BTreeMap;

use items::key_condition::KeyAttribute;
use replica::ENTRY_OPTION;
use schema::{Index, IndexTarget, IndexedPart};
use serde_json::{Value as Json, json};

use crate::names::ATTRIBUTES;

/// The class of an index of storage that belongs to the API; no statement of CQL reads by one.
const CLASS: &str = "dynamodb";

/// A key attribute of an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct IndexKey {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
}

/// The attributes that an index shows beside the keys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Projected {
    All,
    KeysOnly,
    Include(Vec<String>),
}

/// A secondary index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SecondaryIndex {
    pub(crate) name: String,
    pub(crate) is_global: bool,
    pub(crate) hash: IndexKey,
    pub(crate) range: Option<IndexKey>,
    /// The attributes of the hash key behind the first, and those of the range key; of global indexes.
    pub(crate) further_hash: Vec<IndexKey>,
    pub(crate) further_range: Vec<IndexKey>,
    pub(crate) projected: Projected,
    pub(crate) read_units: i64,
    pub(crate) write_units: i64,
}

fn kind(name: &str) -> Option<&'static str> {
    ["S", "N", "B"].into_iter().find(|known| *known == name)
}

impl IndexKey {
    fn read(json: &Json) -> Option<Self> {
        Some(Self { name: json.get("name")?.as_str()?.to_owned(), kind: kind(json.get("kind")?.as_str()?)? })
    }

    fn json(&self) -> Json {
        json!({ "name": self.name, "kind": self.kind })
    }

    /// As conditions on keys name it.
    pub(crate) fn attribute(&self) -> KeyAttribute<'_> {
        (&self.name, self.kind)
    }
}

/// The indexes in the bytes of a table's extension.
pub(crate) fn read(bytes: &[u8]) -> Vec<SecondaryIndex> {
    let json: Json = serde_json::from_slice(bytes).unwrap_or_default();
    json.as_array().into_iter().flatten().filter_map(SecondaryIndex::read).collect()
}

/// The bytes of a table's extension.
pub(crate) fn write(indexes: &[SecondaryIndex]) -> Vec<u8> {
    Json::Array(indexes.iter().map(SecondaryIndex::json).collect()).to_string().into_bytes()
}

/// Makes the indexes of storage of a table those that its secondary indexes need; `range` is the table's own range key.
pub(crate) fn attach(
    attached: &mut BTreeMap<String, Index>,
    indexes: &[SecondaryIndex],
    (hash, range): (&str, Option<&str>),
) {
    attached.retain(|_, index| index.class.as_deref() != Some(CLASS));
    for index in indexes.iter().filter(|index| index.is_global && index.hash.name != hash) {
        let attribute = &index.hash.name;
        let name = index.storage_index();
        let (column, part, options) = if Some(attribute.as_str()) == range {
            (attribute.clone(), IndexedPart::Whole, BTreeMap::new())
        } else {
            let options = BTreeMap::from([(ENTRY_OPTION.to_owned(), attribute.clone())]);
            (ATTRIBUTES.to_owned(), IndexedPart::Entries, options)
        };
        let targets = vec![IndexTarget { column, part }];
        let class = Some(CLASS.to_owned());
        attached.insert(name.clone(), Index { name, targets, class, options, local: false });
    }
}

impl SecondaryIndex {
    fn read(json: &Json) -> Option<Self> {
        let integer = |name: &str| json.get(name).and_then(Json::as_i64).unwrap_or(0);
        let projected = match json.get("projected")? {
            Json::Array(names) => {
                Projected::Include(names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect())
            }
            Json::Bool(true) => Projected::All,
            _ => Projected::KeysOnly,
        };
        let further = |name: &str| {
            let keys = json.get(name).and_then(Json::as_array).into_iter().flatten();
            keys.map(IndexKey::read).collect::<Option<Vec<_>>>()
        };
        Some(Self {
            further_hash: further("further_hash")?,
            further_range: further("further_range")?,
            name: json.get("name")?.as_str()?.to_owned(),
            is_global: json.get("global")?.as_bool()?,
            hash: IndexKey::read(json.get("hash")?)?,
            range: json.get("range").and_then(IndexKey::read),
            projected,
            read_units: integer("read_units"),
            write_units: integer("write_units"),
        })
    }

    fn json(&self) -> Json {
        let further = |keys: &[IndexKey]| keys.iter().map(IndexKey::json).collect::<Vec<_>>();
        json!({
            "further_hash": further(&self.further_hash),
            "further_range": further(&self.further_range),
            "name": self.name,
            "global": self.is_global,
            "hash": self.hash.json(),
            "range": self.range.as_ref().map(IndexKey::json),
            "projected": match &self.projected {
                Projected::All => json!(true),
                Projected::KeysOnly => json!(false),
                Projected::Include(names) => json!(names),
            },
            "read_units": self.read_units,
            "write_units": self.write_units,
        })
    }

    /// The name of the index of storage by which its items are found. Indexes with one hash key share it.
    pub(crate) fn storage_index(&self) -> String {
        format!("dynamodb_{:016x}", xxhash_rust::xxh3::xxh3_64(self.hash.name.as_bytes()))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &IndexKey> {
        self.hashes().chain(self.ranges())
    }

    /// The attributes of the hash key.
    pub(crate) fn hashes(&self) -> impl Iterator<Item = &IndexKey> {
        std::iter::once(&self.hash).chain(&self.further_hash)
    }

    /// The attributes of the range key.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &IndexKey> {
        self.range.iter().chain(&self.further_range)
    }

    /// Whether a key has several attributes.
    pub(crate) fn is_composite(&self) -> bool {
        !(self.further_hash.is_empty() && self.further_range.is_empty())
    }
}

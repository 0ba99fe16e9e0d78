//! The definition of a secondary index: its keys and the attributes that it shows, as an extension of the table stores it.

use items::key_condition::KeyAttribute;
use serde_json::{Value as Json, json};

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
    pub(crate) fn read(json: &Json) -> Option<Self> {
        Some(Self { name: json.get("name")?.as_str()?.to_owned(), kind: kind(json.get("kind")?.as_str()?)? })
    }

    pub(crate) fn json(&self) -> Json {
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

impl Projected {
    pub(crate) fn read(json: &Json) -> Self {
        match json {
            Json::Array(names) => {
                Self::Include(names.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect())
            }
            Json::Bool(true) => Self::All,
            _ => Self::KeysOnly,
        }
    }

    pub(crate) fn json(&self) -> Json {
        match self {
            Self::All => json!(true),
            Self::KeysOnly => json!(false),
            Self::Include(names) => json!(names),
        }
    }

    /// `Projection`, as the API shows it.
    pub(crate) fn description(&self) -> Json {
        match self {
            Self::All => json!({ "ProjectionType": "ALL" }),
            Self::KeysOnly => json!({ "ProjectionType": "KEYS_ONLY" }),
            Self::Include(names) => json!({ "ProjectionType": "INCLUDE", "NonKeyAttributes": names }),
        }
    }

    /// How many attributes it names.
    pub(crate) fn included(&self) -> usize {
        match self {
            Self::All | Self::KeysOnly => 0,
            Self::Include(names) => names.len(),
        }
    }

    /// Whether an attribute that is no key is among them.
    pub(crate) fn has(&self, attribute: &str) -> bool {
        match self {
            Self::All => true,
            Self::KeysOnly => false,
            Self::Include(names) => names.iter().any(|name| name == attribute),
        }
    }
}

impl SecondaryIndex {
    fn read(json: &Json) -> Option<Self> {
        let integer = |name: &str| json.get(name).and_then(Json::as_i64).unwrap_or(0);
        let projected = Projected::read(json.get("projected")?);
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
            "projected": self.projected.json(),
            "read_units": self.read_units,
            "write_units": self.write_units,
        })
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

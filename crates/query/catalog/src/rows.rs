//! Building the rows of a computed table by column name.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use mutation::{
    Cell, Clustering, ColumnData, Complex, ComplexCell, DecoratedKey, DeletionTime, LivenessInfo,
    PartitionUpdate, Row,
};
use rt::preempt::Pace;
use schema::{ColumnKind, Table};
use types::CqlType;

/// The write time of everything computed.
const TIMESTAMP: i64 = 1;
/// A row takes about as long as so many steps of a loop over rows that are there.
const STEPS_OF_A_ROW: usize = 16;

/// A value on its way into a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum {
    /// Null.
    Null,
    /// `text`.
    Text(String),
    /// `int`.
    Int(i32),
    /// `bigint`, `timestamp`.
    Bigint(i64),
    /// `float`.
    Float(f32),
    /// `double`.
    Double(f64),
    /// `boolean`.
    Boolean(bool),
    /// `uuid`, `timeuuid`.
    Uuid([u8; 16]),
    /// `inet`.
    Inet(IpAddr),
    /// `blob`.
    Blob(Vec<u8>),
    /// `list` or `set`; a set's elements in its order.
    List(Vec<Datum>),
    /// `map` in the order of its keys.
    Map(Vec<(Datum, Datum)>),
}

macro_rules! from {
    ($($ty:ty => $variant:ident $(. $convert:ident)?),*) => {$(
        impl From<$ty> for Datum {
            fn from(value: $ty) -> Self {
                Self::$variant(value$(.$convert())?)
            }
        }
    )*};
}
from!(String => Text, &str => Text.to_owned, i32 => Int, i64 => Bigint, f32 => Float, f64 => Double, bool => Boolean,
    [u8; 16] => Uuid, IpAddr => Inet, Vec<u8> => Blob, Vec<Datum> => List);

impl<T: Into<Datum>> From<Option<T>> for Datum {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<&BTreeMap<String, String>> for Datum {
    fn from(map: &BTreeMap<String, String>) -> Self {
        Self::Map(map.iter().map(|(k, v)| (k.as_str().into(), v.as_str().into())).collect())
    }
}

impl Datum {
    /// A set or list of texts, put in order.
    pub fn texts<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> Self {
        let mut texts: Vec<String> = values.into_iter().map(|text| text.as_ref().to_owned()).collect();
        texts.sort();
        Self::List(texts.into_iter().map(Self::Text).collect())
    }

    /// A list of texts in the given order.
    pub fn list<T: AsRef<str>>(values: impl IntoIterator<Item = T>) -> Self {
        Self::List(values.into_iter().map(|text| Self::Text(text.as_ref().to_owned())).collect())
    }

    fn bytes(&self) -> Option<Vec<u8>> {
        Some(match self {
            Self::Null => return None,
            Self::Text(text) => text.clone().into_bytes(),
            Self::Int(n) => n.to_be_bytes().to_vec(),
            Self::Bigint(n) => n.to_be_bytes().to_vec(),
            Self::Float(n) => n.to_be_bytes().to_vec(),
            Self::Double(n) => n.to_be_bytes().to_vec(),
            Self::Boolean(b) => vec![u8::from(*b)],
            Self::Uuid(id) => id.to_vec(),
            Self::Inet(IpAddr::V4(address)) => address.octets().to_vec(),
            Self::Inet(IpAddr::V6(address)) => address.octets().to_vec(),
            Self::Blob(bytes) => bytes.clone(),
            Self::List(items) => frozen(items.len(), items.iter()),
            Self::Map(pairs) => frozen(pairs.len(), pairs.iter().flat_map(|(k, v)| [k, v])),
        })
    }
}

/// A frozen collection: its length, then each element with its length (native protocol v5, section 6).
fn frozen<'a>(len: usize, items: impl Iterator<Item = &'a Datum>) -> Vec<u8> {
    let mut out = (len as u32).to_be_bytes().to_vec();
    for item in items {
        let bytes = item.bytes().unwrap_or_default();
        out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
        out.extend_from_slice(&bytes);
    }
    out
}

/// Gathers rows of one table.
pub struct RowBuilder {
    table: Arc<Table>,
    partitions: BTreeMap<DecoratedKey, PartitionUpdate>,
    /// Rows so far.
    added: usize,
}

impl RowBuilder {
    /// No rows yet.
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, partitions: BTreeMap::new(), added: 0 }
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Adds a row: names with values, the key's columns among them. Columns that are not named are null.
    ///
    /// # Panics
    /// When a column does not exist or a key column is missing: the callers are in this crate, and tested.
    pub fn row<'a>(&mut self, values: impl IntoIterator<Item = (&'a str, Datum)>) {
        let table = self.table.clone();
        let mut by_name: BTreeMap<&str, Datum> = values.into_iter().collect();
        let mut take = |name: &str| by_name.remove(name).and_then(|datum| datum.bytes());
        let keys = table.partition_key().iter().map(|column| take(&column.name).expect("a partition key"));
        let keys: Vec<Vec<u8>> = keys.collect();
        let clustering =
            table.clustering().iter().map(|column| take(&column.name).expect("a clustering key"));
        let clustering: Vec<Vec<u8>> = clustering.collect();
        let key =
            DecoratedKey::new(DecoratedKey::compose(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        let components: Vec<Option<&[u8]>> = clustering.iter().map(|value| Some(value.as_slice())).collect();
        let mut row = Row::new(Clustering::new(&table, &components));
        row.liveness = LivenessInfo::forever(TIMESTAMP);
        for (name, datum) in &by_name {
            let column = table.column(name).unwrap_or_else(|| panic!("{} has no column {name}", table.name));
            assert_eq!(column.kind, ColumnKind::Regular, "computed tables have no static columns");
            let data = if column.is_complex() {
                complex(datum)
            } else {
                datum.bytes().map(|bytes| ColumnData::Simple(Cell::live(TIMESTAMP, bytes.into())))
            };
            if let Some(data) = data {
                debug_assert!(
                    valid(&column.ty, &data),
                    "{}.{name} is a {}",
                    table.name,
                    column.ty.cql_name()
                );
                row.set(column.id, data);
            }
        }
        let update = || PartitionUpdate::new(table.clone(), key.clone());
        self.partitions.entry(key.clone()).or_insert_with(update).add_row(row);
        self.added += 1;
    }

    /// Adds the rows of each of `items`, few of each, and lets other tasks run between them.
    pub(crate) async fn each<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut add: impl FnMut(&mut Self, T),
    ) {
        let mut pace = Pace::new();
        for item in items {
            let before = self.added;
            add(self, item);
            pace.steps(1 + STEPS_OF_A_ROW * (self.added - before)).await;
        }
    }

    /// Takes out the first partition in ring order.
    pub(crate) fn take(&mut self) -> Option<PartitionUpdate> {
        self.partitions.pop_first().map(|(_, partition)| partition)
    }

    /// The partitions in ring order.
    pub fn finish(self) -> Vec<PartitionUpdate> {
        self.partitions.into_values().collect()
    }
}

fn valid(ty: &CqlType, data: &ColumnData) -> bool {
    match data {
        ColumnData::Simple(cell) => ty.validate(&cell.value).is_ok(),
        ColumnData::Complex(_) => true,
    }
}

/// An unfrozen set or map as cells.
fn complex(datum: &Datum) -> Option<ColumnData> {
    let cell = |path: &Datum, value: Option<&Datum>| {
        let value = value.and_then(Datum::bytes).unwrap_or_default();
        ComplexCell {
            path: path.bytes().unwrap_or_default().into(),
            cell: Cell::live(TIMESTAMP, Bytes::from(value)),
        }
    };
    let cells = match datum {
        Datum::List(items) => items.iter().map(|item| cell(item, None)).collect(),
        Datum::Map(pairs) => pairs.iter().map(|(key, value)| cell(key, Some(value))).collect::<Vec<_>>(),
        _ => return None,
    };
    Some(ColumnData::Complex(Complex { deletion: DeletionTime::LIVE, cells }))
        .filter(|_| !matches!(datum, Datum::Null))
}

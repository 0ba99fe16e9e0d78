//! The shape of a table: its key, and its columns under numbers that are never used again.

use std::cmp::Ordering;

use crate::Scalar;

/// A column for ever: one that is dropped and added again under its name gets another number.
pub type ColumnId = u32;

/// Types without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarType {
    /// `int`
    Int,
    /// `bigint`
    Bigint,
    /// `text`
    Text,
    /// `blob`
    Blob,
}

/// Types of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// A value that is overwritten as a whole.
    Scalar(ScalarType),
    /// `set<…>`
    Set(ScalarType),
    /// `map<…, …>`
    Map(ScalarType, ScalarType),
    /// `counter`
    Counter,
}

/// A column outside of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its number.
    pub id: ColumnId,
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: ColumnType,
    /// Whether the partition has one value of it.
    pub is_static: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Types of the partition key's components, which are named `p0`, `p1`….
    pub partition_key: Vec<ScalarType>,
    /// Types of the clustering key's components (`c0`, `c1`…), and whether each runs backwards.
    pub clustering: Vec<(ScalarType, bool)>,
    /// The other columns.
    pub columns: Vec<Column>,
}

impl ScalarType {
    /// As CQL writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Bigint => "bigint",
            Self::Text => "text",
            Self::Blob => "blob",
        }
    }
}

impl ColumnType {
    /// As CQL writes it.
    pub fn name(self) -> String {
        match self {
            Self::Scalar(ty) => ty.name().to_owned(),
            Self::Set(of) => format!("set<{}>", of.name()),
            Self::Map(key, value) => format!("map<{}, {}>", key.name(), value.name()),
            Self::Counter => "counter".to_owned(),
        }
    }

    /// Whether its parts are written one by one.
    pub fn is_collection(self) -> bool {
        matches!(self, Self::Set(_) | Self::Map(..))
    }
}

impl Shape {
    /// The order of rows in a partition.
    pub fn order(&self, a: &[Scalar], b: &[Scalar]) -> Ordering {
        for ((a, b), (_, backwards)) in a.iter().zip(b).zip(&self.clustering) {
            let order = if *backwards { b.cmp(a) } else { a.cmp(b) };
            if order != Ordering::Equal {
                return order;
            }
        }
        a.len().cmp(&b.len())
    }

    /// A column by name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Whether the table counts.
    pub fn is_counter(&self) -> bool {
        self.columns.iter().any(|column| column.ty == ColumnType::Counter)
    }
}

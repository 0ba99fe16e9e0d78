//! Access paths: the ways in which a plan finds the rows that it reads or writes.

use schema::Table;

use super::choice::{Choice, TupleChoice};
use super::index::IndexAccess;
use super::{Restrictions, RowRestriction, TokenRange};

/// The partitions that their keys name, and the rows of each.
#[derive(Clone, Debug, Default)]
pub struct KeyAccess {
    /// A choice a partition key column.
    pub keys: Vec<Choice>,
    /// Restrictions of a prefix of the clustering columns; none for all rows.
    pub rows: Vec<RowRestriction>,
    /// Keys outside of this token range are left out.
    pub token: Option<TokenRange>,
}

/// All partitions of a token range, and the rows of each.
#[derive(Clone, Debug, Default)]
pub struct RangeAccess {
    /// The range; none for the whole ring.
    pub token: Option<TokenRange>,
    /// Restrictions of a prefix of the clustering columns, in every partition.
    pub rows: Vec<RowRestriction>,
}

/// How a plan finds its rows.
#[derive(Clone, Debug)]
pub enum AccessPath {
    /// One row at most: the whole primary key is given by `=`.
    Key(KeyAccess),
    /// Several partitions: a partition key column is given by `IN`.
    Keys(KeyAccess),
    /// One partition: all of its rows, or those that clustering columns name or enclose.
    Slice(KeyAccess),
    /// The partitions of a token range, of which every row is returned.
    Range(RangeAccess),
    /// The partitions of a token range, of which a filter lets some rows through.
    Full(RangeAccess),
    /// The rows that a secondary index finds, of which a filter lets some through.
    Index(IndexAccess),
}

impl AccessPath {
    /// The path of these restrictions.
    pub fn of(restrictions: &Restrictions, table: &Table) -> Self {
        let (token, rows) = (restrictions.token.clone(), restrictions.rows.clone());
        match restrictions.keys.clone() {
            None if let Some(index) = &restrictions.index => Self::Index(index.clone()),
            Some(keys) => Self::of_keys(KeyAccess { keys, rows, token }, table),
            None if rows.is_empty() && restrictions.filters.is_empty() => {
                Self::Range(RangeAccess { token, rows })
            }
            None => Self::Full(RangeAccess { token, rows }),
        }
    }

    /// The path of partitions that are named.
    pub fn of_keys(access: KeyAccess, table: &Table) -> Self {
        if access.keys.iter().any(|choice| !choice.is_one()) {
            Self::Keys(access)
        } else if names_one_row(&access.rows, table) {
            Self::Key(access)
        } else {
            Self::Slice(access)
        }
    }

    /// Its name, in traces and in EXPLAIN.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Key(_) => "key",
            Self::Keys(_) => "keys",
            Self::Slice(_) => "slice",
            Self::Range(_) => "range",
            Self::Full(_) => "full",
            Self::Index(_) => "index",
        }
    }

    /// Whether partitions are named by their keys.
    pub fn names_partitions(&self) -> bool {
        match self {
            Self::Key(_) | Self::Keys(_) | Self::Slice(_) => true,
            Self::Range(_) | Self::Full(_) | Self::Index(_) => false,
        }
    }

    /// The restrictions of clustering columns.
    pub fn rows(&self) -> &[RowRestriction] {
        match self {
            Self::Key(access) | Self::Keys(access) | Self::Slice(access) => &access.rows,
            Self::Range(access) | Self::Full(access) => &access.rows,
            Self::Index(access) => &access.range.rows,
        }
    }
}

/// Whether every clustering column is given by `=`.
fn names_one_row(rows: &[RowRestriction], table: &Table) -> bool {
    let width = rows.iter().try_fold(0, |width, row| match row {
        RowRestriction::Single(choice) if choice.is_one() => Some(width + 1),
        RowRestriction::Multi(n, TupleChoice::One(_)) => Some(width + n),
        RowRestriction::Single(_) | RowRestriction::Multi(..) | RowRestriction::Slice { .. } => None,
    });
    width == Some(table.clustering().len())
}

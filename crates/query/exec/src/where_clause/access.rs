//! Access paths: the ways in which a plan finds the rows that it reads or writes.

use bytes::Bytes;
use replica::Predicate;
use schema::Table;

use super::choice::{Choice, TupleChoice};
use super::filter::{LikePattern, required};
use super::rows::{RowRestriction, TokenRange};
use crate::error::Result;
use crate::expr::{Env, Expr};

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

/// A question to an index.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// A value.
    Equal(Expr),
    /// A key of a map with a value.
    Entry(Expr, Expr),
    /// The values between two ends, and whether an end belongs to them.
    Slice {
        /// The least value.
        from: Option<(Expr, bool)>,
        /// The greatest value.
        to: Option<(Expr, bool)>,
    },
    /// A pattern of LIKE.
    Like(Expr),
}

impl Wanted {
    /// Of several, the ones that find fewer rows come first.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Equal(_) | Self::Entry(..) => 0,
            Self::Like(_) => 1,
            Self::Slice { .. } => 2,
        }
    }
}

/// The rows that an index finds.
#[derive(Clone, Debug)]
pub struct IndexAccess {
    /// Name of the index.
    pub index: String,
    /// The column that it indexes.
    pub column: String,
    /// The values.
    pub wanted: Wanted,
    /// Whether it finds partitions and not rows: of a static or a partition key column.
    pub partitions: bool,
    /// Where.
    pub within: IndexScope,
}

/// The part of a table in which an index is queried.
#[derive(Clone, Debug)]
pub enum IndexScope {
    /// A token range.
    Range(RangeAccess),
    /// The partition that the key names.
    Partition(KeyAccess),
}

impl IndexAccess {
    /// The question to the index.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when a bound value is null or unset, or the pattern is none
    /// that the index answers; as [`Expr::eval`].
    pub fn predicate(&self, env: &Env<'_>) -> Result<Predicate> {
        let end = |end: &Option<(Expr, bool)>| -> Result<Option<(Bytes, bool)>> {
            let Some((expr, included)) = end else { return Ok(None) };
            Ok(Some((required(expr, &self.column, env)?, *included)))
        };
        Ok(match &self.wanted {
            Wanted::Equal(value) => Predicate::Equal(required(value, &self.column, env)?),
            Wanted::Entry(key, value) => Predicate::Entry {
                key: required(key, &self.column, env)?,
                value: required(value, &self.column, env)?,
            },
            Wanted::Slice { from, to } => Predicate::Range { from: end(from)?, to: end(to)? },
            Wanted::Like(pattern) => {
                match LikePattern::parse(&required(pattern, &self.column, env)?, &self.column)? {
                    LikePattern::Whole(value) => Predicate::Equal(value),
                    LikePattern::Prefix(prefix) => {
                        let to = behind_prefix(&prefix).map(|end| (end, false));
                        Predicate::Range { from: Some((prefix, true)), to }
                    }
                }
            }
        })
    }
}

/// The least text behind all texts with a prefix; none when there is no such text.
fn behind_prefix(prefix: &[u8]) -> Option<Bytes> {
    let kept = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut end = prefix[..=kept].to_vec();
    end[kept] += 1;
    Some(end.into())
}

/// The part of a table in which a plan looks, whichever way.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// The partitions that keys name.
    Partitions(&'a KeyAccess),
    /// A token range.
    Range(&'a RangeAccess),
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

    /// Where it looks.
    pub fn scope(&self) -> Scope<'_> {
        match self {
            Self::Key(access) | Self::Keys(access) | Self::Slice(access) => Scope::Partitions(access),
            Self::Range(access) | Self::Full(access) => Scope::Range(access),
            Self::Index(access) => match &access.within {
                IndexScope::Partition(access) => Scope::Partitions(access),
                IndexScope::Range(access) => Scope::Range(access),
            },
        }
    }

    /// Whether partitions are named by their keys.
    pub fn names_partitions(&self) -> bool {
        matches!(self.scope(), Scope::Partitions(_))
    }

    /// The restrictions of clustering columns.
    pub fn rows(&self) -> &[RowRestriction] {
        match self.scope() {
            Scope::Partitions(access) => &access.rows,
            Scope::Range(access) => &access.rows,
        }
    }
}

/// Whether every clustering column is given by `=`.
pub(super) fn names_one_row(rows: &[RowRestriction], table: &Table) -> bool {
    let width = rows.iter().try_fold(0, |width, row| match row {
        RowRestriction::Single(choice) if choice.is_one() => Some(width + 1),
        RowRestriction::Multi(n, TupleChoice::One(_)) => Some(width + n),
        RowRestriction::Single(_) | RowRestriction::Multi(..) | RowRestriction::Slice { .. } => None,
    });
    width == Some(table.clustering().len())
}

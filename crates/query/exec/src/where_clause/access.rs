//! Access paths: the ways in which a plan finds the rows that it reads or writes.

use std::sync::Arc;

use bytes::Bytes;
use replica::Predicate;
use schema::Table;
use text::IndexText;

use super::choice::{Choice, TupleChoice};
use super::filter::{in_values, required};
use super::rows::{RowRestriction, TokenRange};
use super::texts::{AnyOfAll, LikeTexts, TermsWanted};
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
    /// One of several values.
    In(Choice),
    /// A key of a map with a value.
    Entry(Expr, Expr),
    /// The values between two ends, and whether an end belongs to them.
    Slice {
        /// The least value.
        from: Option<(Expr, bool)>,
        /// The greatest value.
        to: Option<(Expr, bool)>,
    },
    /// The terms of a text.
    Terms(Arc<IndexText>, Expr),
    /// A pattern of LIKE.
    Like(LikeTexts, Expr),
}

impl Wanted {
    /// Of several, the ones that find fewer rows come first.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Equal(_) | Self::Entry(..) | Self::Terms(..) => 0,
            Self::In(_) => 1,
            Self::Like(..) => 2,
            Self::Slice { .. } => 3,
        }
    }
}

/// The rows that indexes find: those that all of them do, at least.
#[derive(Clone, Debug)]
pub struct IndexAccess {
    /// The questions, at least one. The first should find the fewest rows.
    pub parts: Vec<IndexPart>,
    /// Whether they find partitions and not rows: of a static or a partition key column.
    pub partitions: bool,
    /// Whether the rows are read and filtered where the indexes are not available: they only narrow down the rows that ALLOW FILTERING filters.
    pub is_optional: bool,
    /// Where.
    pub within: IndexScope,
}

/// A question to one index.
#[derive(Clone, Debug)]
pub struct IndexPart {
    /// Name of the index.
    pub index: String,
    /// The column that it indexes.
    pub column: String,
    /// Whether its texts have only characters of ASCII.
    pub is_ascii: bool,
    /// The values.
    pub wanted: Wanted,
}

/// The part of a table in which an index is queried.
#[derive(Clone, Debug)]
pub enum IndexScope {
    /// A token range.
    Range(RangeAccess),
    /// The partition that the key names.
    Partition(KeyAccess),
}

impl IndexPart {
    /// The predicates that the index is queried for.
    ///
    /// # Errors
    /// [`ExecError::Invalid`](crate::ExecError::Invalid) when a bound value is null or unset, or the pattern is none
    /// that the index answers; as [`Expr::eval`].
    pub fn predicates(&self, env: &Env<'_>) -> Result<AnyOfAll> {
        let value = |expr: &Expr| required(expr, &self.column, env);
        let end = |end: &Option<(Expr, bool)>| -> Result<Option<(Bytes, bool)>> {
            let Some((expr, included)) = end else { return Ok(None) };
            Ok(Some((value(expr)?, *included)))
        };
        let one = |predicate| Ok(vec![vec![predicate]]);
        match &self.wanted {
            Wanted::Equal(expr) => one(Predicate::Equal(value(expr)?)),
            Wanted::In(choice) => {
                let mut values = in_values(choice, &self.column, env, true)?;
                values.sort_unstable();
                values.dedup();
                Ok(values.into_iter().map(|value| vec![Predicate::Equal(value)]).collect())
            }
            Wanted::Entry(key, expr) => one(Predicate::Entry { key: value(key)?, value: value(expr)? }),
            Wanted::Slice { from, to } => one(Predicate::Range { from: end(from)?, to: end(to)? }),
            Wanted::Terms(text, expr) => Ok(TermsWanted::new(text, &value(expr)?).predicates()),
            Wanted::Like(texts, pattern) => {
                Ok(texts.parse(&value(pattern)?, &self.column)?.predicates(self.is_ascii))
            }
        }
    }
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

    /// Whether it has the partitions of a range of tokens alone.
    pub fn names_tokens(&self) -> bool {
        matches!(self.scope(), Scope::Range(access) if access.token.is_some())
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

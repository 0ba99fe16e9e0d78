//! A view's definition, resolved against its base table.

use std::sync::Arc;

use mutation::row::ColumnData;
use mutation::{CellRef, Clustering, DataRef, DecoratedKey, Row, TableLayouts};
use schema::{Column, ColumnId, ColumnKind, Derivation, HIDDEN, Table, ViewCondition};
use smallvec::SmallVec;
use types::CqlType;

/// The most bytes of a key column's value, and of a partition key as a whole.
const KEY_MAX: usize = 65_535;

/// A pair of tables that is no base table and view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{view} is not a view of {base}: {reason}")]
pub struct InvalidView {
    /// Name of the view.
    pub view: String,
    /// Name of the base table.
    pub base: String,
    /// The mismatch.
    pub reason: String,
}

/// Where a column of the view's key has its value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The component of the base's partition key.
    PartitionKey(usize),
    /// The component of the base's clustering key.
    Clustering(usize),
    /// The regular column of the base that is in the view's key.
    Regular,
}

/// The condition on which a view row is there.
#[derive(Clone, Debug)]
pub(crate) enum Presence {
    /// The base row.
    Row {
        /// The hidden column; none when the view shows all columns.
        hidden: Option<ColumnId>,
        /// The columns of the base that the view does not show, in name order, each with its name.
        others: Vec<(ColumnId, String)>,
    },
    /// A live cell of a regular column of the base, which is in the view's key.
    Cell {
        /// The column in the base.
        base: ColumnId,
        /// The hidden column.
        hidden: ColumnId,
    },
}

/// A view's definition, resolved against its base table.
#[derive(Debug)]
pub struct View {
    pub(crate) table: Arc<Table>,
    pub(crate) presence: Presence,
    /// Columns of the view that are copies: those outside of its key that it shows, and the hidden one of [`Presence::Cell`]. Id in the base, id in
    /// the view; in ascending order of the latter.
    pub(crate) copied: Vec<(ColumnId, ColumnId)>,
    /// Of the view's rows.
    pub(crate) layouts: TableLayouts,
    pub(crate) partition_key: Vec<KeyColumn>,
    pub(crate) clustering: Vec<KeyColumn>,
    base_key_len: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct KeyColumn {
    pub(crate) source: Source,
    ty: CqlType,
    conditions: Vec<ViewCondition>,
}

/// The place of a view row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) key: DecoratedKey,
    pub(crate) clustering: Clustering,
}

impl View {
    /// Resolves a view against its base table.
    ///
    /// # Errors
    /// When the view's columns are not columns of the base, its key does not have all key columns of the base and at most one regular column, or
    /// a condition is not on a column of its key.
    pub fn new(base: &Table, table: Arc<Table>) -> Result<Self, InvalidView> {
        let invalid =
            |reason: String| InvalidView { view: table.full_name(), base: base.full_name(), reason };
        let conditions = match &table.derivation {
            Some(Derivation::View { base: id, conditions, .. }) if *id == base.id => conditions,
            _ => return Err(invalid("it is derived from something else".to_owned())),
        };
        let mut regular = None;
        let mut key_column = |column: &Column| {
            let position = |of: &Column| usize::from(of.position);
            let source = match base.column(&column.name) {
                Some(of) if of.kind == ColumnKind::PartitionKey => Source::PartitionKey(position(of)),
                Some(of) if of.kind == ColumnKind::Clustering => Source::Clustering(position(of)),
                Some(of) if of.kind == ColumnKind::Regular && !of.is_complex() => {
                    if regular.replace(of.id).is_some() {
                        return Err(invalid("more than one regular column in the key".to_owned()));
                    }
                    Source::Regular
                }
                _ => return Err(invalid(format!("{} cannot be in its key", column.name))),
            };
            let own = conditions.iter().filter(|condition| condition.column == column.name);
            let conditions = own.cloned().collect();
            Ok(KeyColumn { source, ty: column.ty.clone(), conditions })
        };
        let partition_key: Vec<KeyColumn> =
            table.partition_key().iter().map(&mut key_column).collect::<Result<_, _>>()?;
        let clustering: Vec<KeyColumn> =
            table.clustering().iter().map(&mut key_column).collect::<Result<_, _>>()?;
        let is_key = |name: &str| {
            let mut key = table.partition_key().iter().chain(table.clustering());
            key.any(|column| column.name == name)
        };
        let mut base_key = base.partition_key().iter().chain(base.clustering());
        if let Some(missing) = base_key.find(|column| !is_key(&column.name)) {
            return Err(invalid(format!("its key lacks {}", missing.name)));
        }
        if let Some(other) = conditions.iter().find(|condition| !is_key(&condition.column)) {
            return Err(invalid(format!("a condition on {}, which is not in its key", other.column)));
        }
        if !table.static_columns().is_empty() {
            return Err(invalid("it has static columns".to_owned()));
        }
        let mut shown = Vec::new();
        for column in table.regular_columns().iter().filter(|column| !column.is_hidden()) {
            match base.column(&column.name).filter(|of| of.kind == ColumnKind::Regular) {
                Some(of) => shown.push((of.id, column.id)),
                None => return Err(invalid(format!("{} is no regular column of the base", column.name))),
            }
        }
        let presence = presence(base, &table, regular, &shown).map_err(invalid)?;
        let mut copied = shown;
        if let Presence::Cell { base, hidden } = presence {
            copied.push((base, hidden));
        }
        copied.sort_unstable_by_key(|(_, to)| *to);
        Ok(Self {
            presence,
            copied,
            layouts: TableLayouts::default(),
            partition_key,
            clustering,
            base_key_len: base.partition_key().len(),
            table,
        })
    }

    /// The view's table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The columns that a view with this key has beside those that it shows: the type of the hidden one, if there is one. `regular` is the type of the
    /// regular column of the base in its key.
    pub fn hidden_type(regular: Option<&CqlType>, shows_all: bool) -> Option<CqlType> {
        match regular {
            Some(ty) => Some(ty.clone()),
            None if shows_all => None,
            None => Some(CqlType::map(CqlType::Blob, CqlType::Blob, false)),
        }
    }

    /// The place of a base row in the view; none while it is not in the view. It does not depend on the time: the row of a value that has expired has a
    /// place, and is not there because the value has expired in the view, too.
    pub(crate) fn place(&self, key: &DecoratedKey, row: &Row) -> Option<Place> {
        type Values<T> = SmallVec<[T; 4]>;
        let base_key = DecoratedKey::components(&key.key, self.base_key_len)?;
        let base_clustering: Values<Option<&[u8]>> = row.clustering.components().collect();
        let regular = match &self.presence {
            Presence::Row { .. } => None,
            Presence::Cell { base, .. } => Some(key_cell(row, *base)?),
        };
        let value = |column: &KeyColumn| {
            let value: &[u8] = match column.source {
                Source::PartitionKey(at) => base_key.get(at).copied()?,
                Source::Clustering(at) => base_clustering.get(at).copied().flatten()?,
                Source::Regular => regular?.value,
            };
            let holds = column.conditions.iter().all(|condition| condition.holds(&column.ty, value));
            (holds && value.len() <= KEY_MAX).then_some(value)
        };
        let partition_key: Values<&[u8]> = self.partition_key.iter().map(value).collect::<Option<_>>()?;
        let clustering: Values<Option<&[u8]>> =
            self.clustering.iter().map(|column| value(column).map(Some)).collect::<Option<_>>()?;
        let key = DecoratedKey::compose(&partition_key);
        // No partition has such a key.
        if key.is_empty() || key.len() > KEY_MAX {
            return None;
        }
        let clustering = Clustering::new(&self.table, &clustering);
        Some(Place { key: DecoratedKey::new(key), clustering })
    }

    /// Whether two versions of a base row surely have one [`View::place`]: all of its key but the regular column is in the base row's own key.
    pub(crate) fn are_at_one_place(&self, old: &Row, new: &Row) -> bool {
        let Presence::Cell { base, .. } = self.presence else { return true };
        let value = |row| key_cell(row, base).map(|cell| cell.value);
        value(old) == value(new)
    }

    /// Whether a reader at `now` sees a row of the view.
    pub fn is_present(&self, key: &DecoratedKey, row: &Row, now: mutation::Seconds) -> bool {
        let Presence::Cell { hidden, .. } = &self.presence else { return row.is_live(now) };
        let Some(ColumnData::Simple(cell)) = row.column(*hidden) else { return false };
        cell.is_live(now) && self.regular_value(key, row).is_some_and(|value| value == &*cell.value)
    }

    /// The value in the key of a view row that is the base's regular column.
    fn regular_value<'a>(&self, key: &'a DecoratedKey, row: &'a Row) -> Option<&'a [u8]> {
        let regular = |column: &KeyColumn| column.source == Source::Regular;
        if let Some(at) = self.partition_key.iter().position(regular) {
            return DecoratedKey::components(&key.key, self.partition_key.len())?.get(at).copied();
        }
        row.clustering.components().nth(self.clustering.iter().position(regular)?)?
    }
}

/// The cell of the base's regular column that is in the view's key, unless it is deleted.
fn key_cell(row: &Row, column: ColumnId) -> Option<CellRef<'_>> {
    match row.get(column)? {
        DataRef::Simple(cell) => Some(cell).filter(|cell| !cell.is_tombstone()),
        DataRef::Complex(_) => None,
    }
}

/// The condition on which a row of a view is there: `regular` is the column of the base in its key, `shown` are those outside of it.
fn presence(
    base: &Table,
    view: &Table,
    regular: Option<ColumnId>,
    shown: &[(ColumnId, ColumnId)],
) -> Result<Presence, String> {
    let hidden = view.column(HIDDEN).map(|column| column.id);
    let Some(base_column) = regular else {
        let is_other = |column: &&Column| !shown.iter().any(|(id, _)| *id == column.id);
        let others = base.regular_columns().iter().filter(is_other);
        let others: Vec<_> = others.map(|column| (column.id, column.name.clone())).collect();
        return match (hidden, others.first()) {
            (None, Some((_, name))) => Err(format!("it neither shows nor hides {name}")),
            _ => Ok(Presence::Row { hidden, others }),
        };
    };
    let hidden = hidden.ok_or("it lacks the hidden column")?;
    Ok(Presence::Cell { base: base_column, hidden })
}

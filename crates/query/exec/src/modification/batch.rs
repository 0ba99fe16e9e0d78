//! BATCH: the rules of allowed combinations, size limits, and the merge of statements that meet in a partition.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cql::ast::{BatchKind, Modification};
use mutation::{Cell, Clustering, ColumnData, PartitionUpdate, Row, Timestamp};
use rt::preempt::Pace;
use types::CqlType;

use super::{ModificationPlan, given_timestamp};
use crate::error::{ExecError, Result, invalid};
use crate::expr::calls::UserCall;
use crate::expr::resolve::{Markers, Receiver, Resolver};
use crate::expr::{Env, Expr};
use crate::lookup::Lookup;
use crate::request::{ExecLimits, timeout_of};

/// A prepared BATCH.
#[derive(Debug)]
pub struct BatchPlan {
    /// Logged, unlogged or counter.
    pub kind: BatchKind,
    /// The statements.
    pub statements: Vec<ModificationPlan>,
    timestamp: Option<Expr>,
    /// USING TIMEOUT.
    pub timeout: Option<Expr>,
    /// The user-defined functions that it calls before it runs.
    pub calls: Vec<UserCall>,
}

impl ModificationPlan {
    /// Resolves a statement that may stand in a batch.
    ///
    /// # Errors
    /// As [`ModificationPlan::insert`], [`ModificationPlan::update`] and [`ModificationPlan::delete`].
    pub fn prepare(
        ast: &Modification,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        match ast {
            Modification::Insert(ast) => Self::insert(ast, lookup, keyspace, markers),
            Modification::Update(ast) => Self::update(ast, lookup, keyspace, markers),
            Modification::Delete(ast) => Self::delete(ast, lookup, keyspace, markers),
        }
    }
}

/// Refuses a logged batch that writes virtual tables, which no other node could repeat.
fn check_not_virtual(ast: &cql::ast::Batch, lookup: &Lookup<'_>, keyspace: Option<&str>) -> Result<()> {
    let table = |statement: &Modification| {
        let name = match statement {
            Modification::Insert(ast) => &ast.table,
            Modification::Update(ast) => &ast.table,
            Modification::Delete(ast) => &ast.table,
        };
        // The statement itself reports a table that is missing.
        lookup.table(name, keyspace).ok()
    };
    let mut tables = ast.statements.iter().filter_map(table);
    if ast.kind == BatchKind::Logged && tables.any(|(table, _)| super::is_virtual(&table)) {
        return invalid!("Cannot include a virtual table statement in a logged batch");
    }
    Ok(())
}

impl BatchPlan {
    /// Resolves a BATCH.
    ///
    /// # Errors
    /// As [`ModificationPlan::prepare`] of each statement, and as [`check`]; [`ExecError::Invalid`] when the batch has
    /// a TTL, or a timestamp beside that of a statement.
    pub fn prepare(
        ast: &cql::ast::Batch,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        check_using(ast)?;
        check_not_virtual(ast, lookup, keyspace)?;
        let prepare = |(number, statement)| {
            markers.begin_statement(Some(number));
            ModificationPlan::prepare(statement, lookup, keyspace, markers)
        };
        let statements = ast.statements.iter().enumerate().map(prepare).collect::<Result<Vec<_>>>()?;
        Self::of(ast, statements, lookup, markers)
    }

    /// [`BatchPlan::prepare`], giving way to other tasks between statements.
    ///
    /// # Errors
    /// The same.
    pub async fn prepare_in_steps(
        ast: &cql::ast::Batch,
        lookup: &Lookup<'_>,
        keyspace: Option<&str>,
        markers: &mut Markers,
    ) -> Result<Self> {
        check_using(ast)?;
        check_not_virtual(ast, lookup, keyspace)?;
        let mut statements = Vec::with_capacity(ast.statements.len());
        let mut pace = Pace::new();
        for (number, statement) in ast.statements.iter().enumerate() {
            markers.begin_statement(Some(number));
            statements.push(ModificationPlan::prepare(statement, lookup, keyspace, markers)?);
            pace.step().await;
        }
        Self::of(ast, statements, lookup, markers)
    }

    fn of(
        ast: &cql::ast::Batch,
        statements: Vec<ModificationPlan>,
        lookup: &Lookup<'_>,
        markers: &mut Markers,
    ) -> Result<Self> {
        check(ast.kind, statements.iter())?;
        markers.begin_statement(None);
        let (mut timestamp, mut timeout) = (None, None);
        if let Some(term) = &ast.using.timestamp {
            if statements.iter().any(|statement| !statement.conditions.is_empty()) {
                return invalid!("Cannot provide custom timestamp for conditional BATCH");
            }
            if ast.kind == BatchKind::Counter {
                return invalid!("Cannot provide custom timestamp for counter BATCH");
            }
            if statements.iter().any(ModificationPlan::is_counter) {
                return invalid!("Cannot provide custom timestamp for a BATCH containing counters");
            }
            if statements.iter().any(ModificationPlan::has_timestamp) {
                return invalid!("Timestamp must be set either on BATCH or individual statements");
            }
            if let Some(first) = statements.first() {
                let mut resolver = Resolver::new(lookup.schema, &first.table, markers);
                timestamp = Some(resolver.term(term, &Receiver::owned("[timestamp]", CqlType::Bigint))?);
            }
        }
        if let Some(first) = statements.first() {
            timeout = timeout_of(&ast.using, &mut Resolver::new(lookup.schema, &first.table, markers))?;
        }
        Ok(Self { kind: ast.kind, statements, timestamp, timeout, calls: markers.take_calls() })
    }

    /// Whether its statements are of one table.
    pub fn has_one_table(&self) -> bool {
        let mut tables = self.statements.iter().map(|statement| statement.table.id);
        let first = tables.next();
        tables.all(|table| Some(table) == first)
    }

    /// The markers of the partition key: of each column the last, and none of a batch on several tables, as in Cassandra.
    pub fn key_markers(&self) -> Vec<Option<u32>> {
        let mut statements = self.statements.iter();
        let Some(first) = statements.next().filter(|_| self.has_one_table()) else { return Vec::new() };
        let mut markers = first.key_markers.clone();
        for statement in statements {
            for (marker, later) in markers.iter_mut().zip(&statement.key_markers) {
                *marker = later.or(*marker);
            }
        }
        markers
    }

    /// Whether it has a timestamp of its own.
    pub fn has_timestamp(&self) -> bool {
        self.timestamp.is_some()
    }

    /// The timestamp of the whole, or the default.
    ///
    /// # Errors
    /// [`ExecError::Invalid`] when the bound timestamp is null or no 64-bit integer.
    pub fn timestamp(&self, env: &Env<'_>, default: Timestamp) -> Result<Timestamp> {
        given_timestamp(self.timestamp.as_ref(), env, default)
    }
}

fn check_using(ast: &cql::ast::Batch) -> Result<()> {
    if ast.using.ttl.is_some() {
        return invalid!("Global TTL on the BATCH statement is not supported.");
    }
    Ok(())
}

/// Refuses statements that may not stand together in a batch of this kind.
///
/// # Errors
/// [`ExecError::Invalid`] when counters are mixed with other statements or with a logged batch, conditions span several
/// tables, or a statement has a timeout.
pub fn check<'a>(
    kind: BatchKind,
    statements: impl Iterator<Item = &'a ModificationPlan> + Clone,
) -> Result<()> {
    if statements.clone().any(ModificationPlan::has_timeout) {
        return invalid!("Timeout must be set on the BATCH, not on individual statements");
    }
    let counters = statements.clone().any(ModificationPlan::is_counter);
    let others = statements.clone().any(|statement| !statement.is_counter());
    if kind == BatchKind::Counter && others {
        return invalid!("Cannot include non-counter statement in a counter batch");
    }
    if counters && others {
        return invalid!("Counter and non-counter mutations cannot exist in the same batch");
    }
    if kind == BatchKind::Logged && counters {
        return invalid!("Cannot include a counter statement in a logged batch");
    }
    if is_conditional(statements.clone()) {
        let mut tables = statements.map(|statement| statement.table.id);
        let first = tables.next();
        if tables.any(|table| Some(table) != first) {
            return invalid!("Batch with conditions cannot span multiple tables");
        }
    }
    Ok(())
}

/// Whether one of them has conditions.
pub fn is_conditional<'a>(mut statements: impl Iterator<Item = &'a ModificationPlan>) -> bool {
    statements.any(|statement| !statement.conditions.is_empty())
}

/// Merges the updates of one partition into one, in the order in which partitions were first named. Gives way to other tasks.
pub async fn merge(updates: Vec<PartitionUpdate>) -> Vec<PartitionUpdate> {
    if updates.len() < 2 {
        return updates;
    }
    let mut pace = Pace::new();
    // Statements that were prepared at different times may know different columns: their updates stay apart.
    let mut places: stdx::HashMap<(*const schema::Table, bytes::Bytes), usize> = stdx::HashMap::default();
    let mut merged: Vec<(PartitionUpdate, Vec<Row>)> = Vec::with_capacity(updates.len());
    for mut update in updates {
        match places.entry((Arc::as_ptr(&update.table), update.key.key.clone())) {
            std::collections::hash_map::Entry::Occupied(at) => {
                let (one, rows) = &mut merged[*at.get()];
                // Rows are put in order at the end: one by one, each could move all others.
                rows.extend(update.take_rows());
                one.merge(update);
            }
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(merged.len());
                merged.push((update, Vec::new()));
            }
        }
        pace.step().await;
    }
    let mut out = Vec::with_capacity(merged.len());
    for (mut update, more) in merged {
        if !more.is_empty() {
            let mut rows = update.take_rows();
            rows.extend(more);
            // Versions of a row stay in the order of their statements.
            rows.sort_by(|a, b| a.clustering.cmp(&b.clustering));
            for row in rows {
                update.add_row(row);
                pace.step().await;
            }
        }
        out.push(update);
    }
    out
}

/// Merges the increments of one partition into one update, so that they are counted together or not at all. Their cells
/// hold deltas, which add up.
pub fn merge_increments(updates: Vec<PartitionUpdate>) -> Vec<PartitionUpdate> {
    type Place = (schema::TableId, bytes::Bytes);
    let mut places: stdx::HashMap<Place, usize> = stdx::HashMap::default();
    let mut merged: Vec<(PartitionUpdate, BTreeMap<Clustering, Row>)> = Vec::with_capacity(updates.len());
    for update in updates {
        let at = *places.entry((update.table.id, update.key.key.clone())).or_insert_with(|| {
            merged.push((PartitionUpdate::new(update.table.clone(), update.key.clone()), BTreeMap::new()));
            merged.len() - 1
        });
        let (one, rows) = &mut merged[at];
        if let Some(row) = update.static_row() {
            match one.static_row_mut() {
                Some(mine) => add_deltas(mine, row),
                None => one.set_static_row(Some(row.clone())),
            }
        }
        for row in update.into_rows() {
            match rows.get_mut(row.clustering.position()) {
                Some(mine) => add_deltas(mine, &row),
                None => drop(rows.insert(row.clustering.clone(), row)),
            }
        }
    }
    let whole = |(mut update, rows): (PartitionUpdate, BTreeMap<Clustering, Row>)| {
        rows.into_values().for_each(|row| update.add_row(row));
        update
    };
    merged.into_iter().map(whole).collect()
}

fn add_deltas(row: &mut Row, more: &Row) {
    let delta = |cell: &Cell| cell.value.first_chunk::<8>().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    for (id, data) in more.columns() {
        let sum = match (row.cell(*id), data) {
            (Some(mine), ColumnData::Simple(cell)) => {
                let sum = delta(mine).wrapping_add(delta(cell));
                let value = bytes::Bytes::copy_from_slice(&sum.to_be_bytes());
                ColumnData::Simple(Cell::live(mine.timestamp.max(cell.timestamp), value))
            }
            _ => data.clone(),
        };
        row.set(*id, sum);
    }
}

fn tables<'a>(updates: impl Iterator<Item = &'a PartitionUpdate>) -> String {
    let mut names: Vec<String> = updates.map(|update| update.table.full_name()).collect();
    names.sort();
    names.dedup();
    format!("[{}]", names.join(", "))
}

/// Checks a batch's size; the warnings that it deserves are returned. The updates of one key in one keyspace are one mutation, which alone may
/// have any size.
///
/// # Errors
/// [`ExecError::Invalid`] when the updates exceed `batch_fail_bytes`.
pub fn check_size<'a>(
    kind: BatchKind,
    updates: impl Iterator<Item = &'a PartitionUpdate> + Clone,
    limits: &ExecLimits,
) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    let place = |update: &'a PartitionUpdate| (update.table.keyspace.as_str(), &update.key);
    let mut others = updates.clone().map(place);
    let first = others.next();
    if others.all(|other| Some(other) == first) {
        return Ok(warnings);
    }
    let size: usize = updates.clone().map(data_size).sum();
    if size > limits.batch_fail_bytes {
        return Err(ExecError::Invalid("Batch too large".to_owned()));
    }
    if size > limits.batch_warn_bytes {
        warnings.push(format!(
            "Batch for {} is of size {}, exceeding specified threshold of {} by {}.",
            tables(updates.clone()),
            size,
            limits.batch_warn_bytes,
            size - limits.batch_warn_bytes
        ));
    }
    let keys = match kind {
        BatchKind::Logged => 0,
        _ => updates.clone().map(|update| &update.key).collect::<BTreeSet<_>>().len(),
    };
    if keys > limits.batch_partitions_warn {
        let names = tables(updates);
        let plural = if names.contains(", ") { "s" } else { "" };
        warnings.push(format!(
            "Unlogged batch covering {keys} partitions detected against table{plural} {names}. You should use a logged \
             batch for atomicity, or asynchronous writes for performance."
        ));
    }
    Ok(warnings)
}

/// Bytes of keys and values, about as Cassandra counts a mutation's data.
fn data_size(update: &PartitionUpdate) -> usize {
    use mutation::DataRef;
    let cells = |row: &mutation::Row| {
        let of = |data: DataRef<'_>| match data {
            DataRef::Simple(cell) => 8 + cell.value.len(),
            DataRef::Complex(complex) => {
                complex.cells.iter().map(|element| 8 + element.path.len() + element.cell.value.len()).sum()
            }
        };
        row.clustering.components().flatten().map(<[u8]>::len).sum::<usize>()
            + row.iter().map(|(_, data)| of(data)).sum::<usize>()
    };
    update.key.key.len()
        + update.static_row().map_or(0, cells)
        + update.rows().iter().map(cells).sum::<usize>()
        + update.range_tombstones.len() * 16
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mutation::{Clustering, DecoratedKey};
    use schema::{Table, TableBuilder, TableId};

    use super::*;

    fn increment(table: &Arc<Table>, key: u8, row: i32, column: &str, delta: i64) -> PartitionUpdate {
        let key = DecoratedKey::new(bytes::Bytes::copy_from_slice(&[key]));
        let mut update = PartitionUpdate::new(table.clone(), key);
        let mut counted = Row::new(Clustering::new(table, &[Some(&row.to_be_bytes())]));
        let value = bytes::Bytes::copy_from_slice(&delta.to_be_bytes());
        counted.set(table.column(column).unwrap().id, ColumnData::Simple(Cell::live(1, value)));
        update.add_row(counted);
        update
    }

    #[test]
    fn increments_of_a_partition_become_one_update_and_add_up() {
        let table = TableBuilder::new("ks", "t", TableId([1; 16]))
            .partition_key("p", CqlType::Blob)
            .clustering("c", CqlType::Int, false)
            .regular("a", CqlType::Counter)
            .regular("b", CqlType::Counter);
        let table = Arc::new(table.build().unwrap());
        let one = |key, row, column, delta| increment(&table, key, row, column, delta);
        let merged = merge_increments(vec![
            one(1, 2, "a", 5),
            one(2, 1, "a", 1),
            one(1, 1, "a", 7),
            one(1, 2, "a", -2),
            one(1, 2, "b", 4),
        ]);
        let shown = |update: &PartitionUpdate| -> Vec<Vec<i64>> {
            let delta = |data: &ColumnData| match data {
                ColumnData::Simple(cell) => i64::from_be_bytes(cell.value[..].try_into().unwrap()),
                ColumnData::Complex(_) => panic!("a counter is one cell"),
            };
            update
                .rows()
                .iter()
                .map(|row| row.columns().iter().map(|(_, data)| delta(data)).collect())
                .collect()
        };
        let all: Vec<_> = merged.iter().map(shown).collect();
        assert_eq!(all, [vec![vec![7], vec![3, 4]], vec![vec![1]]]);
    }
}

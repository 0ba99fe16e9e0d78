//! Compares the rows of an answer with the history.

use std::collections::{BTreeMap, BTreeSet};

use model::{Clock, ColumnId, Explained, Partition, Seen, SeenRow, Slice, Verdict};

use crate::statement::{decode, decode_value};
use crate::table::{Key, Table, token};
use crate::world::World;

/// The read that was sent; by default of everything, without columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Question {
    /// Partitions, or all.
    pub(crate) partitions: Option<Vec<Key>>,
    /// Rows, or all; with a restriction a partition that has only static values gives no row.
    pub(crate) slice: Option<Slice>,
    /// Columns; the static ones are always among them.
    pub(crate) columns: Vec<ColumnId>,
    /// Rows come backwards.
    pub(crate) reversed: bool,
    /// Rows at most.
    pub(crate) limit: Option<usize>,
    /// Rows of each partition at most.
    pub(crate) partition_limit: Option<usize>,
    /// Only partitions with tokens above the first and up to the second.
    pub(crate) tokens: Option<(i64, i64)>,
    /// The answer may miss data: only rows that nobody has written are wrong.
    pub(crate) weak: bool,
}

/// A row of an answer; without a key when the partition has only static values.
struct Row {
    key: Option<Key>,
    regular: Seen,
    fixed: Seen,
}

/// Reads the cells of an answer: key components first, then the columns asked for.
fn read_row(table: &Table, question: &Question, cells: &[Option<Vec<u8>>]) -> Result<(Key, Row), String> {
    let shape = &table.shape;
    let (partition_len, clustering_len) = (shape.partition_key.len(), shape.clustering.len());
    if cells.len() != partition_len + clustering_len + question.columns.len() {
        return Err(format!("a row of {} cells", cells.len()));
    }
    let (partition, rest) = cells.split_at(partition_len);
    let (clustering, columns) = rest.split_at(clustering_len);
    let partition: Key = shape
        .partition_key
        .iter()
        .zip(partition)
        .map(|(ty, cell)| decode(*ty, cell.as_deref().ok_or("a partition key is null")?))
        .collect::<Result<_, String>>()?;
    let nulls = clustering.iter().filter(|cell| cell.is_none()).count();
    let key = match nulls {
        0 => {
            let typed = shape.clustering.iter().zip(clustering);
            let values = typed.map(|((ty, _), cell)| decode(*ty, cell.as_deref().unwrap_or_default()));
            Some(values.collect::<Result<Key, String>>()?)
        }
        _ if nulls == clustering_len => None,
        _ => return Err("a part of a clustering key is null".to_owned()),
    };
    let mut row = Row { key, regular: Seen::new(), fixed: Seen::new() };
    for (id, cell) in question.columns.iter().zip(columns) {
        let column = shape.columns.iter().find(|column| column.id == *id).ok_or("an unknown column")?;
        if let Some(bytes) = cell {
            let value = decode_value(column.ty, bytes)?;
            if column.is_static { &mut row.fixed } else { &mut row.regular }.insert(*id, value);
        }
    }
    Ok((partition, row))
}

/// Compares an answer; returns the observation of each partition.
pub(crate) fn check(
    world: &mut World,
    table: usize,
    question: &Question,
    cells: &[Vec<Option<Vec<u8>>>],
    clock: Clock,
) -> Result<Vec<(Key, Vec<Explained>)>, String> {
    let known = &world.tables[table];
    let mut order: Vec<Key> = Vec::new();
    let mut found: BTreeMap<Key, Vec<Row>> = BTreeMap::new();
    for row in cells {
        let (partition, row) = read_row(known, question, row)?;
        if order.last() != Some(&partition) {
            order.push(partition.clone());
        }
        found.entry(partition).or_default().push(row);
    }
    if order.len() != found.len() {
        return Err("a partition comes twice".to_owned());
    }
    let asked: BTreeSet<Key> = match &question.partitions {
        Some(keys) => keys.iter().cloned().collect(),
        None => {
            let tokens: Vec<i64> = order.iter().map(|key| token(known, key)).collect();
            if !tokens.is_sorted() {
                return Err(format!("partitions are not in the order of their tokens: {order:?}"));
            }
            let (above, upto) = question.tokens.unwrap_or((i64::MIN, i64::MAX));
            let inside = |key: &&Key| (above + 1..=upto).contains(&token(known, key));
            known.partitions.keys().filter(inside).cloned().collect()
        }
    };
    if let Some(stranger) = order.iter().find(|key| !asked.contains(*key)) {
        return Err(format!("a partition that nobody asked for or wrote: {stranger:?}"));
    }
    let full = question.limit.is_some_and(|limit| cells.len() >= limit);
    if question.limit.is_some_and(|limit| cells.len() > limit) {
        return Err(format!("{} rows for LIMIT {}", cells.len(), question.limit.unwrap_or(0)));
    }
    let (mut proofs, mut unjudged) = (Vec::new(), 0);
    let never = Partition::default();
    for key in &asked {
        let rows = found.get(key).map_or(&[][..], Vec::as_slice);
        if rows.is_empty() && full {
            continue;
        }
        let judge = Judge {
            table: known,
            question,
            partition: known.partitions.get(key).unwrap_or(&never),
            clock,
            cut: (full && order.last() == Some(key)) || question.partition_limit == Some(rows.len()),
        };
        let context = |text: String| format!("partition {key:?}: {text}");
        if question.partition_limit.is_some_and(|limit| rows.len() > limit) {
            return Err(format!("{} rows of partition {key:?}", rows.len()));
        }
        let (proof, skipped) = judge.rows(rows).map_err(context)?;
        unjudged += skipped;
        proofs.push((key.clone(), proof));
    }
    world.stats.reads += 1;
    world.stats.rows += cells.len() as u64;
    world.stats.unjudged += unjudged;
    Ok(proofs)
}

/// One partition of an answer.
struct Judge<'a> {
    table: &'a Table,
    question: &'a Question,
    partition: &'a Partition,
    clock: Clock,
    /// LIMIT cut it: nothing is known of rows behind the last.
    cut: bool,
}

impl Judge<'_> {
    /// The observations of the rows, and how many places could not be judged.
    fn rows(&self, rows: &[Row]) -> Result<(Vec<Explained>, u64), String> {
        let shape = &self.table.shape;
        let ordered = |a: &Key, b: &Key| {
            let order = shape.order(a, b);
            if self.question.reversed { order.reverse() } else { order }
        };
        let (mut proofs, mut unjudged) = (Vec::new(), 0);
        let mut judge = |place: Option<Key>, seen: SeenRow| -> Result<(), String> {
            if self.question.weak {
                let written = self.partition.was_written(&place, &seen);
                return if written { Ok(()) } else { Err(self.complaint(&place, &seen)) };
            }
            match self.partition.judge(shape, &place, &seen, &self.question.columns, self.clock) {
                Verdict::Right(explained) => proofs.push(explained),
                Verdict::TooManyUnknown => unjudged += 1,
                Verdict::Wrong => return Err(self.complaint(&place, &seen)),
            }
            Ok(())
        };
        if rows.len() > 1 && rows.iter().any(|row| row.key.is_none()) {
            return Err("a row without a clustering key beside others".to_owned());
        }
        let keys: Vec<&Key> = rows.iter().filter_map(|row| row.key.as_ref()).collect();
        let shown: BTreeSet<&Key> = keys.iter().copied().collect();
        if !keys.is_sorted_by(|a, b| ordered(a, b).is_lt()) {
            return Err(format!("rows are not in order, or repeated: {keys:?}"));
        }
        let holds = |key: &Key| self.question.slice.as_ref().is_none_or(|slice| slice.holds(key));
        if let Some(stranger) = keys.iter().find(|key| !holds(key)) {
            return Err(format!("a row outside of the read: {stranger:?}"));
        }
        for row in rows {
            if let Some(key) = &row.key {
                judge(Some(key.clone()), SeenRow::Present(row.regular.clone()))?;
            } else if self.question.slice.is_some() || row.fixed.is_empty() {
                return Err("a row without a clustering key that should not be there".to_owned());
            }
            judge(None, SeenRow::Static(row.fixed.clone()))?;
        }
        if rows.is_empty() && self.question.slice.is_none() {
            judge(None, SeenRow::Static(Seen::new()))?;
        }
        let last = keys.last();
        for key in self.partition.keys() {
            let behind = self.cut && last.is_none_or(|last| ordered(key, last).is_gt());
            if holds(key) && !shown.contains(key) && !behind {
                judge(Some(key.clone()), SeenRow::Absent)?;
            }
        }
        Ok((proofs, unjudged))
    }

    fn complaint(&self, place: &Option<Key>, seen: &SeenRow) -> String {
        let name = |id: &ColumnId| {
            let column = self.table.shape.columns.iter().find(|column| column.id == *id);
            column.map_or_else(|| id.to_string(), |column| column.name.clone())
        };
        let values = |seen: &Seen| {
            let one = |(id, value): (&ColumnId, &model::Value)| format!("{} = {value}", name(id));
            seen.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let seen = match seen {
            SeenRow::Absent => "no row".to_owned(),
            SeenRow::Present(seen) => format!("a row with {{{}}}", values(seen)),
            SeenRow::Static(seen) => format!("static values {{{}}}", values(seen)),
        };
        let row = match place {
            Some(key) => format!("row {key:?}"),
            None => "the static row".to_owned(),
        };
        let asked: Vec<String> = self.question.columns.iter().map(name).collect();
        format!(
            "{row}: the answer shows {seen} (of columns {}), which no choice of the writes with unknown outcome explains.\n  \
             The read was sent at {}.{:06} when the server's clock showed {}, answered when it showed {} (latest {}).\n  \
             The history:\n{}",
            asked.join(", "),
            self.clock.since / 1_000_000_000,
            self.clock.since % 1_000_000_000 / 1_000,
            self.clock.now.0,
            self.clock.now.1,
            self.clock.latest,
            self.partition.history(place)
        )
    }
}

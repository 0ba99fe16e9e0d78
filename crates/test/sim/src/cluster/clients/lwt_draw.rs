//! Conditional statements and batches on the rows of a partition: drawn as text and as a request to the model; and their answers, decoded.

use std::collections::BTreeSet;

use model::conditional::{
    Cell, Change, Condition, ConditionalOutput, ConditionalState, ConditionalView, ROWS,
};
use rt_sim::Rng;
use wire::client::Rows;

use crate::plan::one_in;

/// The regular columns.
const NAMES: [&str; 2] = ["a", "b"];

/// A conditional request, as it is sent and as the model gets it.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) text: String,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) changes: Vec<Change>,
    /// The row of a statement that stands alone.
    row: Option<usize>,
}

/// The input of a request's draw: the table and key, the client's expectation, and the next value that nobody has written.
pub(crate) struct RequestGenerator<'a> {
    pub(crate) table: &'static str,
    pub(crate) key: u64,
    pub(crate) known: ConditionalState,
    pub(crate) next_value: &'a mut i64,
}

fn literal(value: Option<i64>) -> String {
    value.map_or_else(|| "null".to_owned(), |value| value.to_string())
}

fn name(cell: Cell) -> &'static str {
    match cell {
        Cell::Regular(_, column) => NAMES[column],
        Cell::Static | Cell::Exists(_) => "s",
    }
}

impl RequestGenerator<'_> {
    /// A statement or a batch, with a condition at least.
    pub(crate) fn request(&mut self, rng: &mut Rng) -> Request {
        let mut request = Request::default();
        let first = rng.below(ROWS as u64) as usize;
        if one_in(rng, 2) {
            request.text = match one_in(rng, 6) {
                true => self.static_statement(rng, &mut request),
                false => {
                    request.row = Some(first);
                    self.conditional(rng, first, true, &mut request)
                }
            };
            return request;
        }
        let mut parts = vec![self.conditional(rng, first, false, &mut request)];
        for row in (first + 1..ROWS).chain(0..first) {
            match rng.below(6) {
                0..=2 => parts.push(self.conditional(rng, row, false, &mut request)),
                3 => parts.push(self.unconditional(rng, row, &mut request)),
                _ => {}
            }
        }
        if one_in(rng, 3) {
            parts.push(self.static_statement(rng, &mut request));
        }
        request.text = format!("BEGIN BATCH {} APPLY BATCH", parts.join("; "));
        request
    }

    fn value(&mut self) -> i64 {
        *self.next_value += 1;
        *self.next_value
    }

    fn place(&self, row: usize) -> String {
        format!("WHERE k = {} AND c = {row}", self.key)
    }

    /// Sets columns of a row to new values, and one now and then to null.
    fn sets(&mut self, rng: &mut Rng, row: usize, request: &mut Request) -> String {
        let (first, both) = (rng.below(2) as usize, one_in(rng, 2));
        let columns = if both { vec![0, 1] } else { vec![first] };
        let set = columns.into_iter().map(|column| {
            let value = (!one_in(rng, 8)).then(|| self.value());
            request.changes.push(Change::Set(Cell::Regular(row, column), value));
            format!("{} = {}", NAMES[column], literal(value))
        });
        set.collect::<Vec<_>>().join(", ")
    }

    /// Conditions that hold as far as the client knows, on one column or several.
    fn equalities(&self, rng: &mut Rng, row: usize, request: &mut Request) -> String {
        let mut cells = vec![Cell::Regular(row, rng.below(2) as usize)];
        match rng.below(4) {
            0 => cells = vec![Cell::Static],
            1 => cells = vec![Cell::Regular(row, 0), Cell::Regular(row, 1)],
            2 => cells.push(Cell::Static),
            _ => {}
        }
        let text = cells.into_iter().map(|cell| {
            let value = self.known.cell(cell);
            request.conditions.push(Condition::Equals(cell, value));
            format!("{} = {}", name(cell), literal(value))
        });
        text.collect::<Vec<_>>().join(" AND ")
    }

    fn insert(&mut self, rng: &mut Rng, row: usize, request: &mut Request) -> String {
        request.changes.push(Change::Insert(row));
        let (mut columns, mut values) = (String::new(), String::new());
        for (column, name) in NAMES.iter().enumerate() {
            if one_in(rng, 3) {
                continue;
            }
            let value = self.value();
            request.changes.push(Change::Set(Cell::Regular(row, column), Some(value)));
            columns.push_str(&format!(", {name}"));
            values.push_str(&format!(", {value}"));
        }
        format!("INSERT INTO {} (k, c{columns}) VALUES ({}, {row}{values})", self.table, self.key)
    }

    /// A statement on a row with a condition. Standing alone it may also set the static column.
    fn conditional(&mut self, rng: &mut Rng, row: usize, alone: bool, request: &mut Request) -> String {
        let (table, place) = (self.table, self.place(row));
        let exists = self.known.holds(&Condition::Exists(row));
        match rng.below(8) {
            0..=4 if !exists => {
                request.conditions.push(Condition::NotExists(row));
                let insert = self.insert(rng, row, request);
                format!("{insert} IF NOT EXISTS")
            }
            0 => {
                request.conditions.push(Condition::NotExists(row));
                let insert = self.insert(rng, row, request);
                format!("{insert} IF NOT EXISTS")
            }
            1 => {
                let sets = self.sets(rng, row, request);
                request.conditions.push(Condition::Exists(row));
                format!("UPDATE {table} SET {sets} {place} IF EXISTS")
            }
            2 if exists => {
                request.changes.push(Change::Delete(row));
                let conditions = self.equalities(rng, row, request);
                format!("DELETE FROM {table} {place} IF {conditions}")
            }
            3 if exists => {
                let column = rng.below(2) as usize;
                request.changes.push(Change::Set(Cell::Regular(row, column), None));
                let conditions = self.equalities(rng, row, request);
                format!("DELETE {} FROM {table} {place} IF {conditions}", NAMES[column])
            }
            _ => {
                let mut sets = self.sets(rng, row, request);
                if alone && one_in(rng, 4) {
                    let value = self.value();
                    request.changes.push(Change::Set(Cell::Static, Some(value)));
                    sets.push_str(&format!(", s = {value}"));
                }
                let conditions = self.equalities(rng, row, request);
                format!("UPDATE {table} SET {sets} {place} IF {conditions}")
            }
        }
    }

    /// A statement on a row that asks nothing, which goes with the conditions of others.
    fn unconditional(&mut self, rng: &mut Rng, row: usize, request: &mut Request) -> String {
        match rng.below(3) {
            0 => self.insert(rng, row, request),
            1 => {
                request.changes.push(Change::Delete(row));
                format!("DELETE FROM {} {}", self.table, self.place(row))
            }
            _ => {
                let sets = self.sets(rng, row, request);
                format!("UPDATE {} SET {sets} {}", self.table, self.place(row))
            }
        }
    }

    fn static_statement(&mut self, rng: &mut Rng, request: &mut Request) -> String {
        let (table, key, old) = (self.table, self.key, self.known.static_value);
        request.conditions.push(Condition::Equals(Cell::Static, old));
        let value = (old.is_none() || !one_in(rng, 5)).then(|| self.value());
        request.changes.push(Change::Set(Cell::Static, value));
        match value {
            Some(value) => format!("UPDATE {table} SET s = {value} WHERE k = {key} IF s = {}", literal(old)),
            None => format!("DELETE s FROM {table} WHERE k = {key} IF s = {}", literal(old)),
        }
    }
}

fn bigint(cell: Option<&Vec<u8>>) -> Result<Option<i64>, String> {
    let number = |bytes: &Vec<u8>| <[u8; 8]>::try_from(bytes.as_slice()).map(i64::from_be_bytes);
    cell.map(number).transpose().map_err(|_| format!("{cell:?} is no bigint"))
}

fn row_number(cell: Option<&Vec<u8>>) -> Result<Option<usize>, String> {
    let number = |bytes: &Vec<u8>| <[u8; 4]>::try_from(bytes.as_slice()).map(u32::from_be_bytes);
    match cell.map(number) {
        None => Ok(None),
        Some(Ok(row)) if (row as usize) < ROWS => Ok(Some(row as usize)),
        Some(_) => Err(format!("there is no row {cell:?}")),
    }
}

/// The rows of `SELECT c, s, a, b` as a view of a partition.
pub(crate) fn view(rows: &[Vec<Option<Vec<u8>>>]) -> Result<ConditionalView, String> {
    let mut view = ConditionalView::default();
    for (nth, row) in rows.iter().enumerate() {
        let [c, s, a, b] = row.as_slice() else { return Err(format!("a row has {} columns", row.len())) };
        let static_value = bigint(s.as_ref())?;
        if nth > 0 && static_value != view.static_value {
            return Err("the rows of one partition show different values of its static column".to_owned());
        }
        view.static_value = static_value;
        match row_number(c.as_ref())? {
            Some(row) if view.rows[row].is_none() => {
                view.rows[row] = Some([bigint(a.as_ref())?, bigint(b.as_ref())?]);
            }
            None if rows.len() == 1 => {}
            other => return Err(format!("row {other:?} is shown twice, or beside none")),
        }
    }
    Ok(view)
}

impl Request {
    /// The answer, and the rows that a refusal shows.
    pub(crate) fn answer(&self, rows: &Rows) -> Result<(ConditionalOutput, Vec<Cell>), String> {
        let metadata = rows.metadata.as_ref().ok_or("the answer has no metadata")?;
        let names: Vec<&str> = metadata.columns().iter().map(|spec| &*spec.name).collect();
        let rows = rows.to_vec().map_err(|error| error.to_string())?;
        let Some(applied) = rows.first().and_then(|row| row.first()) else {
            return Err("the answer has no row".to_owned());
        };
        match applied.as_deref() {
            Some([1]) if rows.len() == 1 => return Ok((ConditionalOutput::Applied, Vec::new())),
            Some([0]) => {}
            other => return Err(format!("[applied] of {} rows is {other:?}", rows.len())),
        }
        let facts = self.facts(&names, &rows)?;
        let (cells, values) = facts.into_iter().unzip();
        Ok((ConditionalOutput::Refused(values), cells))
    }

    /// The facts in the rows of a refusal.
    fn facts(
        &self,
        names: &[&str],
        rows: &[Vec<Option<Vec<u8>>>],
    ) -> Result<BTreeSet<(Cell, Option<i64>)>, String> {
        let mut facts = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for row in rows {
            let column = |name: &str| names.iter().position(|other| *other == name);
            let cell = |name: &str| column(name).map(|at| row.get(at).and_then(Option::as_ref));
            let number = match cell("c") {
                Some(c) => row_number(c)?,
                None => self.row,
            };
            if cell("c").is_some() {
                seen.extend(number);
            }
            if let Some(value) = cell("s").filter(|_| self.reads_static()) {
                facts.insert((Cell::Static, bigint(value)?));
            }
            for (column, name) in NAMES.iter().enumerate() {
                if let (Some(number), Some(value)) = (number, cell(name)) {
                    facts.insert((Cell::Regular(number, column), bigint(value)?));
                }
            }
        }
        let shows_nothing = names.len() == 1;
        facts.extend(seen.iter().map(|row| (Cell::Exists(*row), Some(1))));
        // Of the rows with conditions, those that do not exist are left out.
        if names.contains(&"c") || shows_nothing {
            facts.extend(self.rows().difference(&seen).map(|row| (Cell::Exists(*row), None)));
        }
        if shows_nothing && self.reads_static() {
            facts.insert((Cell::Static, None));
        }
        Ok(facts)
    }

    /// Whether a refusal shows the static column as it is: otherwise, as in Cassandra, it is not read and shown as null.
    fn reads_static(&self) -> bool {
        self.conditions.iter().any(|one| matches!(one, Condition::Equals(Cell::Static, _)))
            || self.changes.iter().any(|one| matches!(one, Change::Set(Cell::Static, _)))
    }

    /// The rows with conditions of their own.
    fn rows(&self) -> BTreeSet<usize> {
        let row = |condition: &Condition| match condition {
            Condition::Exists(row) | Condition::NotExists(row) => Some(*row),
            Condition::Equals(Cell::Regular(row, _), _) => Some(*row),
            Condition::Equals(..) => None,
        };
        self.conditions.iter().filter_map(row).collect()
    }
}

//! Inserts and reads of single rows by key.

use std::rc::Rc;

use wire::Value;
use wire::client::{RequestWriter, ResultBody};

use super::{Ingredients, Kind, Workload, cell, execute, expect_rows, expect_void};
use crate::load::connection::Prepared;
use crate::load::keys::{Keys, Random};
use crate::load::options::{COLUMNS_MAX, Options};
use crate::load::values::Values;

const INSERT: usize = 0;
const SELECT: usize = 1;

fn columns(options: &Options) -> Vec<String> {
    (0..options.columns).map(|column| format!("c{column}")).collect()
}

/// The table: tables of other widths have other names.
pub(super) fn name(options: &Options) -> String {
    format!("{}.rows{}", options.keyspace, options.columns)
}

pub(super) fn table(options: &Options) -> String {
    let columns = columns(options).join(" blob, ");
    format!("CREATE TABLE IF NOT EXISTS {} (key bigint PRIMARY KEY, {columns} blob)", name(options))
}

pub(super) fn statements(options: &Options) -> Vec<String> {
    let (name, columns) = (name(options), columns(options).join(", "));
    let marks = vec!["?"; options.columns + 1].join(", ");
    vec![
        format!("INSERT INTO {name} (key, {columns}) VALUES ({marks})"),
        format!("SELECT key, {columns} FROM {name} WHERE key = ?"),
    ]
}

pub(super) struct KeyValue {
    options: std::sync::Arc<Options>,
    read_percent: u64,
    keys: Keys,
    random: Random,
    values: Rc<Values>,
    /// Kind and key of the request in each slot.
    slots: Vec<(Kind, u64)>,
}

impl KeyValue {
    pub(super) fn new(from: &Ingredients) -> Self {
        KeyValue {
            options: from.options.clone(),
            read_percent: from.read_percent(),
            keys: from.keys(from.options.keys),
            random: from.random(),
            values: from.values.clone(),
            slots: vec![(Kind::Read, 0); from.slots],
        }
    }
}

impl Workload for KeyValue {
    fn request(&mut self, slot: usize, statements: &[Prepared], out: &mut RequestWriter) -> Kind {
        let kind = match self.read_percent {
            0 => Kind::Write,
            100 => Kind::Read,
            percent if self.random.below(100) < percent => Kind::Read,
            _ => Kind::Write,
        };
        let key = self.keys.next(&mut self.random);
        self.slots[slot] = (kind, key);
        let key_bytes = (key as i64).to_be_bytes();
        let consistency = self.options.consistency;
        match kind {
            Kind::Read => execute(out, &statements[SELECT], consistency, &[Value::Set(&key_bytes)]),
            Kind::Write => {
                let mut bound = [Value::Null; COLUMNS_MAX + 1];
                bound[0] = Value::Set(&key_bytes);
                for (column, value) in (0u64..).zip(&mut bound[1..=self.options.columns]) {
                    *value = Value::Set(self.values.of(key, column));
                }
                execute(out, &statements[INSERT], consistency, &bound[..=self.options.columns]);
            }
        }
        kind
    }

    fn check(&mut self, slot: usize, answer: &ResultBody) -> Result<u64, String> {
        let (kind, key) = self.slots[slot];
        if kind == Kind::Write {
            return expect_void(answer);
        }
        let rows = expect_rows(answer, self.options.columns + 1)?;
        if rows.rows != 1 {
            return Err(format!("key {key} has {} rows, not 1", rows.rows));
        }
        let mut cells = rows.cells();
        if cell(&mut cells)? != (key as i64).to_be_bytes() {
            return Err(format!("the row of another key than {key}"));
        }
        for column in 0..self.options.columns as u64 {
            if cell(&mut cells)? != self.values.of(key, column) {
                return Err(format!("another value than was written, key {key}, column c{column}"));
            }
        }
        Ok(1)
    }
}

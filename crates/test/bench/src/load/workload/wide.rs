//! Slices of long partitions, and inserts into them.

use std::rc::Rc;

use wire::Value;
use wire::client::{RequestWriter, ResultBody};

use super::{Ingredients, Kind, Phase, Workload, bigint, cell, execute, expect_rows, expect_void};
use crate::load::connection::Prepared;
use crate::load::keys::{Keys, Random};
use crate::load::options::Options;
use crate::load::values::Values;

const INSERT: usize = 0;
const SELECT: usize = 1;

pub(super) fn table(keyspace: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.wide (part bigint, row bigint, value blob, PRIMARY KEY (part, row))"
    )
}

pub(super) fn statements(options: &Options) -> Vec<String> {
    let keyspace = &options.keyspace;
    vec![
        format!("INSERT INTO {keyspace}.wide (part, row, value) VALUES (?, ?, ?)"),
        format!("SELECT row, value FROM {keyspace}.wide WHERE part = ? AND row >= ? LIMIT {}", options.rows),
    ]
}

pub(super) struct Wide {
    options: std::sync::Arc<Options>,
    phase: Phase,
    read_percent: u64,
    keys: Keys,
    random: Random,
    values: Rc<Values>,
    /// Kind, partition and first row of the request in each slot.
    slots: Vec<(Kind, u64, u64)>,
}

/// A row of a partition as one number, for its value.
fn row_number(part: u64, row: u64) -> u64 {
    part << 40 ^ row
}

impl Wide {
    pub(super) fn new(from: &Ingredients) -> Self {
        let options = from.options.clone();
        let count = if from.phase == Phase::Preload { options.rows_to_load() } else { options.keys };
        Wide {
            phase: from.phase,
            read_percent: from.read_percent(),
            keys: from.keys(count),
            random: from.random(),
            values: from.values.clone(),
            slots: vec![(Kind::Read, 0, 0); from.slots],
            options,
        }
    }

    fn choose(&mut self) -> (Kind, u64, u64) {
        let key = self.keys.next(&mut self.random);
        let rows = self.options.partition_rows;
        if self.phase == Phase::Preload {
            return (Kind::Write, key / rows, key % rows);
        }
        if self.random.below(100) < self.read_percent {
            (Kind::Read, key, self.random.below(rows - self.options.rows + 1))
        } else {
            (Kind::Write, key, self.random.below(rows))
        }
    }
}

impl Workload for Wide {
    fn request(&mut self, slot: usize, statements: &[Prepared], out: &mut RequestWriter) -> Kind {
        let (kind, part, row) = self.choose();
        self.slots[slot] = (kind, part, row);
        let (part_bytes, row_bytes) = ((part as i64).to_be_bytes(), (row as i64).to_be_bytes());
        let (part_value, row_value) = (Value::Set(&part_bytes), Value::Set(&row_bytes));
        let consistency = self.options.consistency;
        match kind {
            Kind::Read => execute(out, &statements[SELECT], consistency, &[part_value, row_value]),
            Kind::Write => {
                let value = Value::Set(self.values.of(row_number(part, row), 0));
                execute(out, &statements[INSERT], consistency, &[part_value, row_value, value]);
            }
        }
        kind
    }

    fn check(&mut self, slot: usize, answer: &ResultBody) -> Result<u64, String> {
        let (kind, part, first) = self.slots[slot];
        if kind == Kind::Write {
            return expect_void(answer);
        }
        let rows = expect_rows(answer, 2)?;
        if rows.rows as u64 != self.options.rows {
            return Err(format!("a slice of {} rows, not {}", rows.rows, self.options.rows));
        }
        let mut cells = rows.cells();
        for row in first..first + self.options.rows {
            if bigint(cell(&mut cells)?)? != row as i64 {
                return Err(format!("partition {part}: row {row} is missing or out of order"));
            }
            if cell(&mut cells)? != self.values.of(row_number(part, row), 0) {
                return Err(format!("partition {part}, row {row}: another value than was written"));
            }
        }
        Ok(rows.rows as u64)
    }
}

//! Increments, and reads of counters. That none was lost or counted twice is seen from their sum after the run.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::Value;
use wire::client::{RequestWriter, ResultBody};

use super::{Ingredients, Kind, Workload, bigint, cell, execute, expect_rows, expect_void};
use crate::load::connection::Prepared;
use crate::load::keys::{Keys, Random};
use crate::load::options::Options;
use crate::load::shared::Shared;

const INCREMENT: usize = 0;
const SELECT: usize = 1;

pub(super) fn table(keyspace: &str) -> String {
    format!("CREATE TABLE IF NOT EXISTS {keyspace}.counters (key bigint PRIMARY KEY, count counter)")
}

pub(super) fn statements(options: &Options) -> Vec<String> {
    let keyspace = &options.keyspace;
    vec![
        format!("UPDATE {keyspace}.counters SET count = count + 1 WHERE key = ?"),
        format!("SELECT count FROM {keyspace}.counters WHERE key = ?"),
    ]
}

pub(super) struct Counter {
    options: Arc<Options>,
    shared: Arc<Shared>,
    read_percent: u64,
    keys: Keys,
    random: Random,
    slots: Vec<Kind>,
}

impl Counter {
    pub(super) fn new(from: &Ingredients) -> Self {
        Counter {
            options: from.options.clone(),
            shared: from.shared.clone(),
            read_percent: from.read_percent(),
            keys: from.keys(from.options.keys),
            random: from.random(),
            slots: vec![Kind::Read; from.slots],
        }
    }
}

impl Workload for Counter {
    fn request(&mut self, slot: usize, statements: &[Prepared], out: &mut RequestWriter) -> Kind {
        let key = (self.keys.next(&mut self.random) as i64).to_be_bytes();
        let (kind, statement) = match self.random.below(100) < self.read_percent {
            true => (Kind::Read, SELECT),
            false => (Kind::Write, INCREMENT),
        };
        self.slots[slot] = kind;
        execute(out, &statements[statement], self.options.consistency, &[Value::Set(&key)]);
        kind
    }

    fn check(&mut self, slot: usize, answer: &ResultBody) -> Result<u64, String> {
        if self.slots[slot] == Kind::Write {
            self.shared.acknowledged.fetch_add(1, Ordering::Relaxed);
            return expect_void(answer);
        }
        let rows = expect_rows(answer, 1)?;
        // A counter that was never touched has no row.
        if rows.rows == 0 {
            return Ok(0);
        }
        let count = bigint(cell(&mut rows.cells())?)?;
        if rows.rows > 1 || count < 1 {
            return Err(format!("{} rows, the first of count {count}", rows.rows));
        }
        Ok(1)
    }

    fn failed(&mut self, slot: usize) {
        if self.slots[slot] == Kind::Write {
            self.shared.unknown.fetch_add(1, Ordering::Relaxed);
        }
    }
}

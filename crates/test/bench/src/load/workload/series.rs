//! Time series: appends by sensor and time, and reads of a sensor's latest rows.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wire::Value;
use wire::client::{RequestWriter, ResultBody};

use super::{Ingredients, Kind, Phase, Workload, bigint, cell, execute, expect_rows, expect_void};
use crate::load::connection::Prepared;
use crate::load::keys::{Keys, Random};
use crate::load::options::Options;
use crate::load::shared::Shared;
use crate::load::values::Values;

const INSERT: usize = 0;
const SELECT: usize = 1;

/// The time of the first loaded row, in milliseconds since 1970; appends go on from the present.
const LOADED_FROM_MS: u64 = 1_600_000_000_000;

pub(super) fn table(keyspace: &str) -> String {
    format!(
        "CREATE TABLE IF NOT EXISTS {keyspace}.series (sensor bigint, at timestamp, value blob, \
         PRIMARY KEY (sensor, at)) WITH CLUSTERING ORDER BY (at DESC)"
    )
}

pub(super) fn statements(options: &Options) -> Vec<String> {
    let keyspace = &options.keyspace;
    vec![
        format!("INSERT INTO {keyspace}.series (sensor, at, value) VALUES (?, ?, ?)"),
        format!("SELECT at, value FROM {keyspace}.series WHERE sensor = ? LIMIT {}", options.rows),
    ]
}

pub(super) struct Series {
    options: Arc<Options>,
    shared: Arc<Shared>,
    phase: Phase,
    read_percent: u64,
    keys: Keys,
    random: Random,
    values: Rc<Values>,
    /// Kind and sensor of the request in each slot.
    slots: Vec<(Kind, u64)>,
}

fn row_number(sensor: u64, at: i64) -> u64 {
    sensor << 44 ^ at as u64
}

impl Series {
    pub(super) fn new(from: &Ingredients) -> Self {
        let options = from.options.clone();
        let count = if from.phase == Phase::Preload { options.rows_to_load() } else { options.keys };
        Series {
            shared: from.shared.clone(),
            phase: from.phase,
            read_percent: from.read_percent(),
            keys: from.keys(count),
            random: from.random(),
            values: from.values.clone(),
            slots: vec![(Kind::Read, 0); from.slots],
            options,
        }
    }
}

impl Workload for Series {
    fn request(&mut self, slot: usize, statements: &[Prepared], out: &mut RequestWriter) -> Kind {
        let key = self.keys.next(&mut self.random);
        let consistency = self.options.consistency;
        let (sensor, at) = match self.phase {
            Phase::Preload => (key % self.options.keys, LOADED_FROM_MS + key / self.options.keys),
            Phase::Probe | Phase::Run => (key, self.shared.started_ms),
        };
        let sensor_bytes = (sensor as i64).to_be_bytes();
        if self.random.below(100) < self.read_percent {
            self.slots[slot] = (Kind::Read, sensor);
            execute(out, &statements[SELECT], consistency, &[Value::Set(&sensor_bytes)]);
            return Kind::Read;
        }
        let at = match self.phase {
            Phase::Preload => at,
            Phase::Probe | Phase::Run => at + self.shared.appended.fetch_add(1, Ordering::Relaxed),
        } as i64;
        let at_bytes = at.to_be_bytes();
        let value = Value::Set(self.values.of(row_number(sensor, at), 0));
        self.slots[slot] = (Kind::Write, sensor);
        let bound = [Value::Set(&sensor_bytes), Value::Set(&at_bytes), value];
        execute(out, &statements[INSERT], consistency, &bound);
        Kind::Write
    }

    fn check(&mut self, slot: usize, answer: &ResultBody) -> Result<u64, String> {
        let (kind, sensor) = self.slots[slot];
        if kind == Kind::Write {
            return expect_void(answer);
        }
        let rows = expect_rows(answer, 2)?;
        if rows.rows as u64 != self.options.rows {
            return Err(format!("sensor {sensor}: {} latest rows, not {}", rows.rows, self.options.rows));
        }
        let mut cells = rows.cells();
        let mut later = i64::MAX;
        for _ in 0..rows.rows {
            let at = bigint(cell(&mut cells)?)?;
            if at >= later {
                return Err(format!("sensor {sensor}: the time {at} stands after {later}"));
            }
            later = at;
            if cell(&mut cells)? != self.values.of(row_number(sensor, at), 0) {
                return Err(format!("sensor {sensor}, time {at}: another value than was written"));
            }
        }
        Ok(rows.rows as u64)
    }
}

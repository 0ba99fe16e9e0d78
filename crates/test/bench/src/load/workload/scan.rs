//! Scans: the ring in token ranges, each read page by page. An operation is a page.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use wire::Value;
use wire::client::{Parameters, RequestWriter, ResultBody};

use super::{Ingredients, Kind, Workload, bigint, cell, expect_rows, key_value};
use crate::load::connection::Prepared;
use crate::load::options::Options;
use crate::load::shared::{RANGE_UNKNOWN, Shared};
use crate::load::values::Values;

const SELECT: usize = 2;

pub(super) fn statements(options: &Options) -> Vec<String> {
    let mut statements = key_value::statements(options);
    let name = key_value::name(options);
    statements.push(format!("SELECT key, c0 FROM {name} WHERE token(key) > ? AND token(key) <= ?"));
    statements
}

/// The errors when every range has been read: each key lies in one of them.
pub(super) fn after(options: &Options, shared: &Shared) -> Vec<String> {
    let counts: Vec<u64> = shared.ranges.iter().map(|rows| rows.load(Ordering::Relaxed)).collect();
    let rows: u64 = counts.iter().filter(|rows| **rows != RANGE_UNKNOWN).sum();
    let complete = !counts.contains(&RANGE_UNKNOWN);
    match (complete, rows == options.keys, rows > options.keys) {
        (true, false, _) => vec![format!("all ranges together have {rows} rows, not {}", options.keys)],
        (false, _, true) => vec![format!("{rows} rows in a part of the ranges, of {} keys", options.keys)],
        _ => Vec::new(),
    }
}

/// A range that is being read.
#[derive(Clone, Default)]
struct Place {
    range: u64,
    rows: u64,
    paging_state: Option<Bytes>,
}

pub(super) struct Scan {
    options: Arc<Options>,
    shared: Arc<Shared>,
    values: Rc<Values>,
    slots: Vec<Place>,
}

impl Scan {
    pub(super) fn new(from: &Ingredients) -> Self {
        Scan {
            options: from.options.clone(),
            shared: from.shared.clone(),
            values: from.values.clone(),
            slots: vec![Place::default(); from.slots],
        }
    }

    /// The token before which a range begins.
    fn bound(&self, range: u64) -> i64 {
        let span = 1u128 << 64;
        let offset = span * u128::from(range) / u128::from(self.options.ranges);
        i64::try_from(offset as i128 + i128::from(i64::MIN)).unwrap_or(i64::MAX)
    }
}

impl Workload for Scan {
    fn request(&mut self, slot: usize, statements: &[Prepared], out: &mut RequestWriter) -> Kind {
        if self.slots[slot].paging_state.is_none() {
            let next = self.shared.sequence.fetch_add(1, Ordering::Relaxed);
            self.slots[slot] = Place { range: next % self.options.ranges, rows: 0, paging_state: None };
        }
        let place = &self.slots[slot];
        let (after, upto) =
            (self.bound(place.range).to_be_bytes(), self.bound(place.range + 1).to_be_bytes());
        let bound = [Value::Set(&after), Value::Set(&upto)];
        let parameters = Parameters {
            skip_metadata: true,
            page_size: Some(self.options.page_size),
            paging_state: place.paging_state.as_deref(),
            ..Parameters::new(self.options.consistency, &bound)
        };
        out.execute(&statements[SELECT].id, &statements[SELECT].result_metadata_id, &parameters);
        Kind::Read
    }

    fn check(&mut self, slot: usize, answer: &ResultBody) -> Result<u64, String> {
        let rows = expect_rows(answer, 2)?;
        let place = &mut self.slots[slot];
        place.rows += rows.rows as u64;
        place.paging_state = rows.paging_state.as_deref().map(Bytes::copy_from_slice);
        let mut cells = rows.cells();
        for _ in 0..rows.rows {
            let key = bigint(cell(&mut cells)?)? as u64;
            if key >= self.options.keys {
                return Err(format!("key {key} was never written"));
            }
            if cell(&mut cells)? != self.values.of(key, 0) {
                return Err(format!("another value than was written, key {key}"));
            }
        }
        if rows.rows > self.options.page_size as usize {
            return Err(format!("a page of {} rows, of at most {}", rows.rows, self.options.page_size));
        }
        if place.paging_state.is_none() {
            let known = self.shared.ranges[place.range as usize].swap(place.rows, Ordering::Relaxed);
            if known != RANGE_UNKNOWN && known != place.rows {
                return Err(format!("range {} has {} rows, but had {known}", place.range, place.rows));
            }
        }
        Ok(rows.rows as u64)
    }

    fn failed(&mut self, slot: usize) {
        self.slots[slot] = Place::default();
    }
}

//! Statements beside the read and the write by key: the tables and rows that each needs, and the values of its executions.

use crate::load::Values;

/// Cells of a row.
pub(super) const CELLS: u64 = 5;
/// Rows of a partition that is read as a slice.
const SLICE_ROWS: u64 = 500;
/// Values of an indexed column.
const INDEXED_VALUES: u64 = 1000;

/// A statement and its executions for each partition.
pub(super) struct Statement {
    pub(super) text: &'static str,
    /// Executions of different values.
    pub(super) turns: u64,
    pub(super) values: fn(partition: u64, turn: u64, values: &Values) -> Vec<Vec<u8>>,
}

/// A statement that is measured, with the tables and rows that it needs.
pub(super) struct Workload {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// Statements that make its table.
    pub(super) schema: &'static [&'static str],
    /// Fills the table.
    pub(super) fill: Option<Statement>,
    pub(super) measured: Statement,
}

/// All of them. Rows are those of the read and the write, five cells of 34 bytes, unless the statement is about something else.
pub(super) const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "lwt",
        schema: &["CREATE TABLE ks.lwt (key blob PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)"],
        fill: Some(Statement {
            text: "INSERT INTO ks.lwt (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)",
            turns: 1,
            values: values_of_row,
        }),
        measured: Statement {
            text: "UPDATE ks.lwt SET c0 = ?, c1 = ?, c2 = ?, c3 = ?, c4 = ? WHERE key = ? IF EXISTS",
            turns: 1,
            values: |partition, turn, values| {
                let mut all = values_of_row(partition, turn, values);
                all.rotate_left(1);
                all
            },
        },
    },
    Workload {
        name: "view",
        schema: &[
            "CREATE TABLE ks.viewed (key blob PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob)",
            "CREATE MATERIALIZED VIEW ks.by_c0 AS SELECT * FROM ks.viewed WHERE c0 IS NOT NULL AND key IS NOT NULL PRIMARY KEY (c0, key)",
        ],
        fill: None,
        // Half of the executions move a row of the view.
        measured: Statement {
            text: "INSERT INTO ks.viewed (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)",
            turns: 2,
            values: values_of_row,
        },
    },
    Workload {
        name: "cdc",
        schema: &[
            "CREATE TABLE ks.captured (key blob PRIMARY KEY, c0 blob, c1 blob, c2 blob, c3 blob, c4 blob) WITH cdc = {'enabled': true}",
        ],
        fill: None,
        measured: Statement {
            text: "INSERT INTO ks.captured (key, c0, c1, c2, c3, c4) VALUES (?, ?, ?, ?, ?, ?)",
            turns: 1,
            values: values_of_row,
        },
    },
    Workload {
        name: "index",
        schema: &[
            "CREATE TABLE ks.indexed (key blob PRIMARY KEY, g int, c blob)",
            "CREATE INDEX ON ks.indexed (g)",
        ],
        fill: None,
        measured: Statement {
            text: "INSERT INTO ks.indexed (key, g, c) VALUES (?, ?, ?)",
            turns: 2,
            values: |partition, turn, values| {
                vec![
                    key(partition),
                    int((partition + turn) % INDEXED_VALUES),
                    values.of(partition, 0).to_vec(),
                ]
            },
        },
    },
    Workload {
        name: "counter",
        schema: &["CREATE TABLE ks.counted (key blob PRIMARY KEY, c counter)"],
        fill: None,
        measured: Statement {
            text: "UPDATE ks.counted SET c = c + ? WHERE key = ?",
            turns: 1,
            values: |partition, _, _| vec![1_u64.to_be_bytes().to_vec(), key(partition)],
        },
    },
    Workload {
        name: "slice",
        schema: &["CREATE TABLE ks.sliced (key blob, c int, v blob, PRIMARY KEY (key, c))"],
        fill: Some(Statement {
            text: "INSERT INTO ks.sliced (key, c, v) VALUES (?, ?, ?)",
            turns: SLICE_ROWS,
            values: |partition, turn, values| {
                vec![key(partition), int(turn), values.of(partition, turn).to_vec()]
            },
        }),
        measured: Statement {
            text: "SELECT c, v FROM ks.sliced WHERE key = ?",
            turns: 1,
            values: |partition, _, _| vec![key(partition)],
        },
    },
];

/// Requests that are carried out again and again.
pub(super) trait Requests {
    /// How many there are.
    fn count(&self) -> usize;

    /// Carries one out, whose answer has to be no error.
    async fn carry_out(&self, at: usize) -> Result<(), String>;
}

fn key(partition: u64) -> Vec<u8> {
    partition.to_be_bytes().to_vec()
}

fn int(value: u64) -> Vec<u8> {
    i32::try_from(value).expect("a small number").to_be_bytes().to_vec()
}

/// The key of a partition and its five cells; each turn has others.
pub(super) fn values_of_row(partition: u64, turn: u64, values: &Values) -> Vec<Vec<u8>> {
    let cells = (0..CELLS).map(|column| values.of(partition + turn, column).to_vec());
    std::iter::once(key(partition)).chain(cells).collect()
}

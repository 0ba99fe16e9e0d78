//! The digest of a page, when only its equality matters. Columns count by their names: ids mean something within one process
//! only, and two nodes may have given different ones.

use mutation::{Bound, CellRef, Clustering, DataRef, DeletionTime, Row};
use rt::preempt::Pace;
use schema::{ColumnId, Table};
use xxhash_rust::xxh3::Xxh3;

use crate::{PartitionResult, ReadCommand, ReadPage, Resume};

/// The digest of a page that answers `command` (xxHash's XXH3, 128 bits). The number of tombstones stepped over does not count: it
/// is not the same where the data is. Lets other tasks run between the rows and range tombstones of a large page.
pub async fn digest(command: &ReadCommand, page: &ReadPage) -> u128 {
    let mut hasher = Hasher::new(&command.table);
    hasher.number(page.partitions.len() as u64);
    let mut pace = Pace::new();
    for partition in &page.partitions {
        hasher.partition(partition, &mut pace).await;
        pace.step().await;
    }
    hasher.resume(page.more.as_ref());
    hasher.xxh3.digest128()
}

struct Hasher {
    xxh3: Xxh3,
    /// The columns in the order of their names.
    by_name: Vec<(ColumnId, u64)>,
}

impl Hasher {
    fn new(table: &Table) -> Self {
        let mut named: Vec<(&str, ColumnId)> =
            table.columns().iter().map(|column| (&*column.name, column.id)).collect();
        named.sort_unstable();
        let by_name = named.iter().map(|(name, id)| (*id, xxhash_rust::xxh3::xxh3_64(name.as_bytes())));
        Self { xxh3: Xxh3::new(), by_name: by_name.collect() }
    }

    fn number(&mut self, number: u64) {
        self.xxh3.update(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.xxh3.update(bytes);
    }

    async fn partition(&mut self, partition: &PartitionResult, pace: &mut Pace) {
        self.bytes(&partition.key.key);
        self.deletion(partition.deletion);
        match &partition.static_row {
            Some(row) => self.row(row),
            None => self.number(u64::MAX),
        }
        self.number(partition.rows.len() as u64);
        for row in &partition.rows {
            self.row(row);
            pace.step().await;
        }
        self.number(partition.range_tombstones.len() as u64);
        for range in partition.range_tombstones.iter() {
            self.bound(&range.start);
            self.bound(&range.end);
            self.deletion(range.deletion);
            pace.step().await;
        }
    }

    fn deletion(&mut self, deletion: DeletionTime) {
        self.number(deletion.timestamp as u64);
        self.number(u64::from(deletion.local));
    }

    fn clustering(&mut self, clustering: &Clustering) {
        self.bytes(clustering.position());
    }

    fn bound(&mut self, bound: &Bound) {
        self.bytes(bound.position());
    }

    fn row(&mut self, row: &Row) {
        self.clustering(&row.clustering);
        self.number(row.liveness.timestamp as u64);
        self.number(u64::from(row.liveness.ttl) << 32 | u64::from(row.liveness.expires));
        self.deletion(row.deletion);
        self.number(row.column_count() as u64);
        for at in 0..self.by_name.len() {
            let (id, name) = self.by_name[at];
            if let Some(data) = row.get(id) {
                self.number(name);
                self.column(data);
            }
        }
    }

    fn column(&mut self, data: DataRef<'_>) {
        match data {
            DataRef::Simple(cell) => self.cell(cell),
            DataRef::Complex(complex) => {
                self.deletion(complex.deletion);
                self.number(complex.cells.len() as u64);
                for element in &complex.cells {
                    self.bytes(&element.path);
                    self.cell((&element.cell).into());
                }
            }
        }
    }

    fn cell(&mut self, cell: CellRef<'_>) {
        self.number(cell.timestamp as u64);
        self.number(u64::from(cell.ttl) << 32 | u64::from(cell.local_deletion));
        self.number(u64::from(cell.is_tombstone()));
        self.bytes(cell.value);
    }

    fn resume(&mut self, resume: Option<&Resume>) {
        let Some(resume) = resume else { return self.number(0) };
        self.bytes(&resume.key.key);
        self.number(resume.rows_in_partition);
        if let Some(clustering) = &resume.clustering {
            self.clustering(clustering);
        }
    }
}

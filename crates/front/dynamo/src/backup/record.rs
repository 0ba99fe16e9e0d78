//! The record of a backup: one row, written by lightweight transactions alone.

use std::sync::Arc;

use bytes::Bytes;
use coordinator::Consistency;
use exec::backend::Coordinator;
use mutation::row::ColumnData;
use mutation::{
    Cell, Clustering, ColumnSelection, DecoratedKey, DeletionTime, PartitionRange, PartitionUpdate, Row,
    Seconds, Timestamp,
};
use replica::{Keys, Limits, Partitions, ReadCommand, ReadPage};
use schema::{Schema, Table, TableId};
use serde_json::{Value as Json, json as to_json};

use super::parts::Parts;
use crate::error::{ApiError, ErrorKind, Result};
use crate::intent::{hex, unhex};
use crate::store::{BACKUPS_KEYSPACE, Store};

const TABLE: &str = "backups";
/// The part that changes.
const STATE: &str = "state";
/// The description of the table, which most requests do not need.
const DESCRIPTION: &str = "description";
/// Rows of a page.
const PAGE_ROWS: u64 = 100;
/// How long the last backup of a deleted table is kept, microseconds.
const SYSTEM_KEPT_MICROS: i64 = 35 * 24 * 3_600_000_000;

/// The status of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Nodes make their snapshots.
    Creating,
    /// It can be restored.
    Available,
    /// Nodes remove their snapshots: it was deleted, or could not be made.
    Deleting,
}

impl Status {
    const ALL: [(Self, &str); 3] =
        [(Self::Creating, "CREATING"), (Self::Available, "AVAILABLE"), (Self::Deleting, "DELETED")];

    /// As AWS names it.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(status, _)| *status == self).map_or("", |(_, name)| name)
    }
}

/// A backup.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Backup {
    /// The last part of its ARN: the time in milliseconds, and a random number.
    pub(crate) id: String,
    pub(crate) status: Status,
    /// As the client has named it.
    pub(crate) name: String,
    /// Whether it was made because its table was deleted.
    pub(crate) is_system: bool,
    pub(crate) table: String,
    pub(crate) table_id: TableId,
    /// Microseconds since 1970.
    pub(crate) created: i64,
    /// The topology version by which the parts were given.
    pub(crate) topology: u64,
    pub(crate) parts: Parts,
}

impl Backup {
    pub(crate) fn arn(&self) -> String {
        format!("{}/backup/{}", crate::names::arn(&self.table), self.id)
    }

    /// When it is removed by itself, microseconds since 1970.
    pub(crate) fn expires(&self) -> Option<i64> {
        self.is_system.then(|| self.created.saturating_add(SYSTEM_KEPT_MICROS))
    }

    fn encode(&self) -> Vec<u8> {
        let json = to_json!({
            "id": self.id,
            "status": self.status.name(),
            "name": self.name,
            "system": self.is_system,
            "table": self.table,
            "table_id": hex(u128::from_be_bytes(self.table_id.0)),
            "created": self.created,
            "topology": self.topology,
            "parts": self.parts.json(),
        });
        json.to_string().into_bytes()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let json: Json = serde_json::from_slice(bytes).ok()?;
        let text = |name: &str| json.get(name)?.as_str();
        let status = text("status")?;
        Some(Self {
            id: text("id")?.to_owned(),
            status: Status::ALL.iter().find(|(_, name)| *name == status)?.0,
            name: text("name")?.to_owned(),
            // Records of before have no such member.
            is_system: json.get("system").and_then(Json::as_bool).unwrap_or(false),
            table: text("table")?.to_owned(),
            table_id: TableId(unhex(text("table_id")?)?.to_be_bytes()),
            created: json.get("created")?.as_i64()?,
            topology: json.get("topology")?.as_u64()?,
            parts: Parts::read(json.get("parts")?)?,
        })
    }
}

/// The result of a look at a record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// It stays.
    Keep,
    Put(Backup),
    Remove,
}

/// The table of records; none before the first backup.
pub(crate) fn table(schema: &Schema) -> Option<Arc<Table>> {
    schema.table(BACKUPS_KEYSPACE, TABLE).cloned()
}

fn partition(id: &str) -> DecoratedKey {
    DecoratedKey::new(Bytes::copy_from_slice(id.as_bytes()))
}

fn read_command(table: &Arc<Table>, id: &str, now: Seconds) -> ReadCommand {
    ReadCommand::all_of(table.clone(), Partitions::Keys(Keys::from_iter([partition(id)])), now)
}

/// The update that writes these columns.
fn update(
    table: &Arc<Table>,
    id: &str,
    columns: &[(&str, Vec<u8>)],
    (at, now): (Timestamp, Seconds),
) -> PartitionUpdate {
    let mut row = Row::new(Clustering::empty());
    if columns.is_empty() {
        row.deletion = DeletionTime::new(at, now);
    }
    for (name, value) in columns {
        if let Some(column) = table.column(name) {
            row.set(column.id, ColumnData::Simple(Cell::live(at, Bytes::copy_from_slice(value))));
        }
    }
    PartitionUpdate::with_rows(table.clone(), partition(id), vec![row])
}

fn foreign() -> ApiError {
    let text = format!("{BACKUPS_KEYSPACE}.{TABLE} has a row that is no record of a backup");
    ApiError::new(ErrorKind::InternalServer, text)
}

/// The live cells of a column in a page.
fn cells<'a>(
    table: &Table,
    page: &'a ReadPage,
    column: &str,
    now: Seconds,
) -> Result<impl Iterator<Item = &'a Bytes>> {
    let id = table.column(column).ok_or_else(foreign)?.id;
    let rows = page.partitions.iter().flat_map(|partition| &partition.rows);
    Ok(rows.filter_map(move |row| match row.column(id) {
        Some(ColumnData::Simple(cell)) if cell.is_live(now) => Some(&cell.value),
        _ => None,
    }))
}

fn records(table: &Table, page: &ReadPage, now: Seconds) -> Result<Vec<Backup>> {
    cells(table, page, STATE, now)?.map(|bytes| Backup::decode(bytes).ok_or_else(foreign)).collect()
}

impl<C: Coordinator> Store<'_, C> {
    /// The table of records, made when there is none.
    pub(crate) async fn backups_table(&self) -> Result<Arc<Table>> {
        self.own_table(BACKUPS_KEYSPACE, TABLE, &[STATE, DESCRIPTION]).await
    }

    /// Writes the record of a new backup, with the description of its table; one that is there stays.
    pub(crate) async fn add_backup(&self, backup: &Backup, description: &Json) -> Result<()> {
        let (table, now) = (self.backups_table().await?, self.now());
        let columns = [(STATE, backup.encode()), (DESCRIPTION, description.to_string().into_bytes())];
        let mut decide = |page: &ReadPage, ballot: Timestamp| {
            let is_there = !records(&table, page, now)?.is_empty();
            Ok((!is_there).then(|| update(&table, &backup.id, &columns, (ballot, now))))
        };
        self.transact_at(&read_command(&table, &backup.id, now), Consistency::Serial, &mut decide).await
    }

    /// Changes a record with no other decision in between; gives the record as it was found.
    pub(crate) async fn change_backup(
        &self,
        id: &str,
        mut change: impl FnMut(&Backup) -> Result<Change>,
    ) -> Result<Option<Backup>> {
        let Some(table) = table(&self.executor.coordinator().schema()) else { return Ok(None) };
        let (now, mut seen) = (self.now(), None);
        let mut decide = |page: &ReadPage, ballot: Timestamp| {
            seen = records(&table, page, now)?.into_iter().next();
            let Some(found) = &seen else { return Ok(None) };
            let columns = match change(found)? {
                Change::Keep => return Ok(None),
                Change::Put(backup) => vec![(STATE, backup.encode())],
                Change::Remove => Vec::new(),
            };
            Ok(Some(update(&table, id, &columns, (ballot, now))))
        };
        self.transact_at(&read_command(&table, id, now), Consistency::Serial, &mut decide).await?;
        Ok(seen)
    }

    /// A backup, with all that was agreed on before, and the description of its table.
    pub(crate) async fn backup(&self, id: &str) -> Result<Option<(Backup, Json)>> {
        let Some(table) = table(&self.executor.coordinator().schema()) else { return Ok(None) };
        let command = read_command(&table, id, self.now());
        let deadline = self.deadline(self.executor.limits().read_timeout);
        let coordinator = self.executor.coordinator();
        let page = coordinator.read_serial(&command, Consistency::Serial, deadline).await?;
        let Some(backup) = records(&table, &page, command.now)?.into_iter().next() else { return Ok(None) };
        let bytes = cells(&table, &page, DESCRIPTION, command.now)?.next().ok_or_else(foreign)?;
        Ok(Some((backup, serde_json::from_slice(bytes).map_err(|_| foreign())?)))
    }

    /// All backups, in the order of their creation.
    pub(crate) async fn backups(&self) -> Result<Vec<Backup>> {
        let Some(table) = table(&self.executor.coordinator().schema()) else { return Ok(Vec::new()) };
        let state = table.column(STATE).ok_or_else(foreign)?.id;
        let (mut all, mut resume) = (Vec::new(), None);
        loop {
            let range = Partitions::Range(PartitionRange::all());
            let command = ReadCommand {
                limits: Limits { rows: PAGE_ROWS, bytes: 1 << 20, ..Limits::NONE },
                columns: ColumnSelection::Some([state].into_iter().collect()),
                resume,
                ..ReadCommand::all_of(table.clone(), range, self.now())
            };
            let mut page = self.read(&command, Consistency::LocalQuorum).await?;
            all.extend(records(&table, &page, command.now)?);
            resume = page.more.take();
            if resume.is_none() {
                break;
            }
        }
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        for (status, _) in Status::ALL {
            let backup = Backup {
                id: "01764211200000-0badcafe".to_owned(),
                status,
                name: "nightly".to_owned(),
                is_system: status == Status::Available,
                table: "orders".to_owned(),
                table_id: TableId([9; 16]),
                created: 1_764_211_200_000_000,
                topology: 7,
                parts: Parts::default(),
            };
            assert_eq!(Backup::decode(&backup.encode()), Some(backup));
        }
        assert_eq!(Backup::decode(b"{}"), None);
        assert_eq!(Backup::decode(b""), None);
    }
}

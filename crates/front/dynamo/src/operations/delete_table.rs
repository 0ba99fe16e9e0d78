//! DeleteTable. A table with recovery to a point in time goes when a last backup of it is made: it is marked in the schema, where nobody
//! reads or writes its items any more, and each node looks for such tables and takes the next step. So a crash of anybody delays it.

use cluster::SchemaEdit;
use coordinator::ClusterView;
use exec::backend::Coordinator;
use schema::Schema;
use serde_json::{Value as Json, json};

use super::Dynamo;
use super::describe_table::description;
use crate::backup::record::{Backup, Status};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::recovery::restored_from;
use crate::request::Request;
use crate::table::{self, ApiTable, keyspace_name};

/// The end of the name of a deleted table's last backup.
const LAST_BACKUP: &str = "$DeletedTableBackup";

/// Refuses to delete a table.
fn check(schema: &Schema, table: &ApiTable) -> Result<()> {
    if table.details().protected {
        return invalid!(
            "Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first."
        );
    }
    match restored_from(schema, table.table.id) {
        None => Ok(()),
        Some(target) => {
            let text = format!(
                "Attempt to change a resource which is still in use: Table {target} is being restored from {}",
                table.name()
            );
            Err(ApiError::new(ErrorKind::ResourceInUse, text))
        }
    }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn delete_table(&self, request: &Request) -> Result<Json> {
        let name = request.table_name()?;
        let table = table::find_active(&self.schema(), &name)?;
        let estimate = self.estimate(&table).await;
        if self.is_backed_up(&table) {
            self.check_backups_limit().await?;
        }
        let (backup, _) = self.new_backup_id();
        let plan = |schema: &Schema, _: &ClusterView, _: [u8; 16]| {
            let table = table::find_active(schema, &name)?;
            check(schema, &table)?;
            match self.is_backed_up(&table) {
                true => marked(&table, &backup).map(|edit| vec![edit]),
                false => Ok(vec![SchemaEdit::DropKeyspace(keyspace_name(&name))]),
            }
        };
        self.executor.change_schema_by(None, plan).await?;
        Ok(json!({ "TableDescription": description(&table, "DELETING", estimate) }))
    }

    /// Whether a table that is deleted leaves a backup.
    fn is_backed_up(&self, table: &ApiTable) -> bool {
        self.snapshots.is_some() && table.recovery().days().is_some()
    }

    /// Takes the next step of each table that goes when its last backup is made; how many there were. One that fails does not keep the others.
    pub(super) async fn go_on_deleting(&self) -> Result<u64> {
        let (mut count, mut failed) = (0, None);
        for table in table::all(&self.schema()) {
            let Some(id) = table.last_backup() else { continue };
            match self.delete_by(&table, id).await {
                Ok(()) => count += 1,
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(count), Err)
    }

    /// Begins the last backup of a table, or another where it could not be made, or drops the table.
    async fn delete_by(&self, table: &ApiTable, id: &str) -> Result<()> {
        let found = self.store().backup(id).await?.map(|(backup, _)| backup.status);
        let (other, created) = self.new_backup_id();
        match found {
            // Ranges of nodes that move are awaited.
            None if self.executor.coordinator().view().is_changing() => Ok(()),
            None => {
                let backup = self.new_backup(table, (id.to_owned(), created))?;
                let name = format!("{}{LAST_BACKUP}", table.name());
                self.begin_backup(table, &Backup { name, is_system: true, ..backup }).await
            }
            Some(Status::Creating) => Ok(()),
            Some(Status::Deleting) => self.change_deleting(table, id, |found| marked(found, &other)).await,
            Some(Status::Available) => {
                let dropped = |_: &ApiTable| Ok(SchemaEdit::DropKeyspace(keyspace_name(table.name())));
                self.change_deleting(table, id, dropped).await
            }
        }
    }

    /// Changes the schema while a table goes by this backup.
    async fn change_deleting(
        &self,
        table: &ApiTable,
        id: &str,
        edit: impl Fn(&ApiTable) -> Result<SchemaEdit>,
    ) -> Result<()> {
        let plan = |schema: &Schema, _: &ClusterView, _: [u8; 16]| {
            let found = schema.table_by_id(table.table.id).and_then(ApiTable::of);
            let found = found.filter(|found| found.last_backup() == Some(id));
            found.as_ref().map(&edit).transpose().map(|edit| edit.into_iter().collect::<Vec<_>>())
        };
        self.executor.change_schema_by(None, plan).await
    }
}

/// The table, marked to go by this backup.
fn marked(table: &ApiTable, backup: &str) -> Result<SchemaEdit> {
    let mut builder = table.table.to_builder();
    table::mark_deleting(&mut builder, backup);
    let table = builder.build().map_err(|error| ApiError::validation(error.to_string()))?;
    Ok(SchemaEdit::PutTable(table))
}

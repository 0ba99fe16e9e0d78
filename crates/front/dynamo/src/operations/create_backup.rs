//! CreateBackup.

use exec::backend::Coordinator;
use items::json;
use serde_json::{Value as Json, json as to_json};

use super::Dynamo;
use super::backups::details;
use super::describe_table::description;
use crate::backup::record::{Backup, Status};
use crate::backup::{BACKUPS_MAX, new_parts};
use crate::error::{ApiError, ErrorKind, Result};
use crate::request::{Request, constraint};
use crate::table::{self, ApiTable};

/// `BackupName`.
fn backup_name(request: &Request) -> Result<&str> {
    let name = json::read_string(request.required("BackupName")?)?;
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    let broken = match name.len() {
        0..=2 => "Member must have length greater than or equal to 3",
        256.. => "Member must have length less than or equal to 255",
        _ if !name.chars().all(is_valid) => "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+",
        _ => return Ok(name),
    };
    constraint(name, "backupName", broken)
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn create_backup(&self, request: &Request) -> Result<Json> {
        let name = request.table_name()?;
        let backup_name = backup_name(request)?;
        self.check_snapshots()?;
        let table = table::find_named(&self.schema(), &name)
            .map_err(|_| ApiError::new(ErrorKind::TableNotFound, format!("Table not found: {name}")))?;
        if table.is_restoring() {
            let text = format!("Table is being created: {name}");
            return Err(ApiError::new(ErrorKind::TableInUse, text));
        }
        let store = self.store();
        if store.backups().await?.len() >= BACKUPS_MAX {
            let text =
                format!("There are {BACKUPS_MAX} backups, which is the limit of a cluster: delete some");
            return Err(ApiError::new(ErrorKind::LimitExceeded, text));
        }
        let backup = self.new_backup(&table, backup_name)?;
        let mut shown = description(&table, table.status(), self.estimate(&table).await);
        if let (Some(attribute), Some(members)) = (table.details().expires_by, shown.as_object_mut()) {
            let time_to_live = to_json!({ "AttributeName": attribute, "TimeToLiveStatus": "ENABLED" });
            members.insert("TimeToLiveDescription".to_owned(), time_to_live);
        }
        store.add_backup(&backup, &shown).await?;
        Ok(to_json!({ "BackupDetails": details(&backup) }))
    }

    fn new_backup(&self, table: &ApiTable, name: &str) -> Result<Backup> {
        let (schema, view) = (self.schema(), self.executor.coordinator().view());
        let keyspace = schema.keyspace(&table.table.keyspace);
        let keyspace = keyspace.ok_or_else(|| {
            ApiError::new(ErrorKind::TableNotFound, format!("Table not found: {}", table.name()))
        })?;
        if view.is_changing() {
            let text = "Ranges of nodes are moving: try again when the topology change has ended";
            return Err(ApiError::new(ErrorKind::InternalServer, text));
        }
        let clock = self.executor.clock();
        let (created, number) = (clock.wall_micros(), crc32fast::hash(&clock.random()));
        Ok(Backup {
            id: format!("{:014}-{number:08x}", created.div_euclid(1000)),
            status: Status::Creating,
            name: name.to_owned(),
            table: table.name().to_owned(),
            table_id: table.table.id,
            created,
            topology: view.topology_version(),
            parts: new_parts(&keyspace.replication, &view),
        })
    }
}

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
        if let Some(what) = table.occupation() {
            return Err(ApiError::new(ErrorKind::TableInUse, what));
        }
        self.check_backups_limit().await?;
        let (id, created) = self.new_backup_id();
        let backup = Backup { name: backup_name.to_owned(), ..self.new_backup(&table, (id, created))? };
        self.begin_backup(&table, &backup).await?;
        Ok(to_json!({ "BackupDetails": details(&backup) }))
    }

    /// Refuses one more backup than a cluster has.
    pub(super) async fn check_backups_limit(&self) -> Result<()> {
        if self.store().backups().await?.len() >= BACKUPS_MAX {
            let text =
                format!("There are {BACKUPS_MAX} backups, which is the limit of a cluster: delete some");
            return Err(ApiError::new(ErrorKind::LimitExceeded, text));
        }
        Ok(())
    }

    /// The id of a new backup, and its time, microseconds since 1970.
    pub(super) fn new_backup_id(&self) -> (String, i64) {
        let clock = self.executor.clock();
        let (created, number) = (clock.wall_micros(), crc32fast::hash(&clock.random()));
        (format!("{:014}-{number:08x}", created.div_euclid(1000)), created)
    }

    /// Writes the record of a backup, which the nodes go by from now on.
    pub(super) async fn begin_backup(&self, table: &ApiTable, backup: &Backup) -> Result<()> {
        let mut shown = description(table, table.status(), self.estimate(table).await);
        if let (Some(attribute), Some(members)) = (table.details().expires_by, shown.as_object_mut()) {
            let time_to_live = to_json!({ "AttributeName": attribute, "TimeToLiveStatus": "ENABLED" });
            members.insert("TimeToLiveDescription".to_owned(), time_to_live);
        }
        self.store().add_backup(backup, &shown).await
    }

    /// A backup without a name, with parts for the nodes of now.
    pub(super) fn new_backup(&self, table: &ApiTable, (id, created): (String, i64)) -> Result<Backup> {
        let (schema, view) = (self.schema(), self.executor.coordinator().view());
        let keyspace = schema.keyspace(&table.table.keyspace);
        let keyspace = keyspace.ok_or_else(|| {
            ApiError::new(ErrorKind::TableNotFound, format!("Table not found: {}", table.name()))
        })?;
        if view.is_changing() {
            let text = "Ranges of nodes are moving: try again when the topology change has ended";
            return Err(ApiError::new(ErrorKind::InternalServer, text));
        }
        Ok(Backup {
            id,
            status: Status::Creating,
            name: String::new(),
            is_system: false,
            table: table.name().to_owned(),
            table_id: table.table.id,
            created,
            topology: view.topology_version(),
            parts: new_parts(&keyspace.replication, &view),
        })
    }
}

//! DeleteBackup.

use auth::Permission;
use exec::backend::Coordinator;
use serde_json::{Value as Json, json as to_json};

use super::Dynamo;
use super::backups::{description, in_use, missing};
use crate::backup::record::{Backup, Change, Status};
use crate::backup::restores;
use crate::error::Result;
use crate::request::Request;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn delete_backup(&self, request: &Request, role: Option<&str>) -> Result<Json> {
        self.check_snapshots()?;
        let (backup, table) = self.permitted_backup(request, role, Permission::Drop).await?;
        let arn = backup.arn();
        let change = |found: &Backup| match found.status {
            Status::Deleting => Err(missing(&arn)),
            Status::Creating => Err(in_use(&arn)),
            Status::Available if restores(&self.schema(), &found.id) => Err(in_use(&arn)),
            Status::Available => Ok(Change::Put(Backup { status: Status::Deleting, ..found.clone() })),
        };
        let found = self.store().change_backup(&backup.id, change).await?;
        let found = found.ok_or_else(|| missing(&arn))?;
        let deleted = Backup { status: Status::Deleting, ..found };
        Ok(to_json!({ "BackupDescription": description(&deleted, &table) }))
    }
}

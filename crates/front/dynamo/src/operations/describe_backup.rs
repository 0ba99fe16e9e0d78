//! DescribeBackup.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json as to_json};

use super::Dynamo;
use super::backups::description;
use crate::error::Result;
use crate::request::Request;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn describe_backup(&self, request: &Request) -> Result<Json> {
        let (backup, table) = self.named_backup(request).await?;
        Ok(to_json!({ "BackupDescription": description(&backup, &table) }))
    }
}

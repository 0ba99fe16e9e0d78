//! DeleteTable.

use cluster::SchemaEdit;
use coordinator::ClusterView;
use exec::backend::Coordinator;
use schema::Schema;
use serde_json::{Value as Json, json};

use super::Dynamo;
use super::describe_table::description;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::recovery::restored_from;
use crate::request::Request;
use crate::table::{self, keyspace_name};

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn delete_table(&self, request: &Request) -> Result<Json> {
        let name = request.table_name()?;
        let table = table::find_active(&self.schema(), &name)?;
        let estimate = self.estimate(&table).await;
        let plan = |schema: &Schema, _: &ClusterView, _: [u8; 16]| {
            let table = table::find_active(schema, &name)?;
            if table.details().protected {
                return invalid!(
                    "Resource cannot be deleted as it is currently protected against deletion. Disable deletion \
                     protection first."
                );
            }
            if let Some(target) = restored_from(schema, table.table.id) {
                let text = format!(
                    "Attempt to change a resource which is still in use: Table {target} is being restored from {name}"
                );
                return Err(ApiError::new(ErrorKind::ResourceInUse, text));
            }
            Ok(vec![SchemaEdit::DropKeyspace(keyspace_name(&name))])
        };
        self.executor.change_schema_by(None, plan).await?;
        Ok(json!({ "TableDescription": description(&table, "DELETING", estimate) }))
    }
}

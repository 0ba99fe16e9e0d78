//! ListTables.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json};

use super::Dynamo;
use crate::error::Result;
use crate::request::{Request, table_name};
use crate::table;

impl<C: Coordinator> Dynamo<C> {
    pub(super) fn list_tables(&self, request: &Request) -> Result<Json> {
        let start = request.string("ExclusiveStartTableName")?.map(table_name).transpose()?;
        let limit = request.integer("Limit", 1, 100)?.unwrap_or(100) as usize;
        let names = table::names(&self.schema()).into_iter();
        let mut names = names.filter(|name| start.is_none_or(|start| name.as_str() > start));
        let page: Vec<String> = names.by_ref().take(limit).collect();
        let mut answer = json!({ "TableNames": page });
        if let (Some(_), Some(last), Some(members)) = (names.next(), page.last(), answer.as_object_mut()) {
            members.insert("LastEvaluatedTableName".to_owned(), json!(last));
        }
        Ok(answer)
    }
}

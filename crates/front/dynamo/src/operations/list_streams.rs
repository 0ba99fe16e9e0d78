//! ListStreams.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json};

use super::Dynamo;
use super::describe_stream::stream_arn;
use crate::error::Result;
use crate::request::{Request, table_name};
use crate::table;

impl<C: Coordinator> Dynamo<C> {
    pub(super) fn list_streams(&self, request: &Request) -> Result<Json> {
        let only = request.string("TableName")?.map(table_name).transpose()?;
        let limit = request.integer("Limit", 1, 100)?.unwrap_or(100) as usize;
        let start = match request.has("ExclusiveStartStreamArn") {
            true => Some(stream_arn(request, "ExclusiveStartStreamArn")?),
            false => None,
        };
        let (schema, now) = (self.schema(), self.executor.clock().wall_micros());
        let names = table::names(&schema).into_iter();
        let mut found = names
            .filter(|name| only.as_ref().is_none_or(|only| only == name))
            .filter(|name| start.is_none_or(|(table, _)| name.as_str() >= table))
            .filter_map(|name| table::find(&schema, &name).ok())
            .flat_map(|table| {
                let name = table.name().to_owned();
                table.streams().into_iter().map(move |stream| (name.clone(), stream))
            })
            .filter(|(_, stream)| stream.is_readable(now))
            .map(|(name, stream)| (name, stream.label(), stream))
            .filter(|(name, label, _)| start.is_none_or(|start| (name.as_str(), label.as_str()) > start));
        let page: Vec<Json> = found
            .by_ref()
            .take(limit)
            .map(|(name, label, stream)| {
                json!({ "StreamArn": stream.arn(&name), "TableName": name, "StreamLabel": label })
            })
            .collect();
        let last = page.last().and_then(|last| last.get("StreamArn")).cloned();
        let mut answer = json!({ "Streams": page });
        if let (Some(_), Some(last), Some(members)) = (found.next(), last, answer.as_object_mut()) {
            members.insert("LastEvaluatedStreamArn".to_owned(), last);
        }
        Ok(answer)
    }
}

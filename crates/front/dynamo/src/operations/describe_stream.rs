//! DescribeStream.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json};

use super::Dynamo;
use super::describe_table::key_schema;
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::names::arn;
use crate::request::{Request, constraint, place};
use crate::streams::definition::{Stream, missing, parts_of_arn};
use crate::streams::position::Position;
use crate::streams::shard::{shard_id, shard_of_id};
use crate::table::{self, ApiTable};

/// The most shards of an answer.
const SHARDS_MAX: i64 = 100;
const ARN_LEN: std::ops::RangeInclusive<usize> = 37..=1024;
const SHARD_ID_LEN: std::ops::RangeInclusive<usize> = 28..=65;

/// A text of a request whose length has bounds.
fn bounded<'a>(request: &'a Request, name: &str, len: &std::ops::RangeInclusive<usize>) -> Result<&'a str> {
    let text = items::json::read_string(request.required(name)?)?;
    let bound = match text.len() {
        given if given < *len.start() => format!("greater than or equal to {}", len.start()),
        given if given > *len.end() => format!("less than or equal to {}", len.end()),
        _ => return Ok(text),
    };
    constraint(text, &place(name), &format!("Member must have length {bound}"))
}

/// Table and label of the stream whose ARN a member of a request is.
pub(super) fn stream_arn<'a>(request: &'a Request, name: &str) -> Result<(&'a str, &'a str)> {
    let arn = bounded(request, name, &ARN_LEN)?;
    parts_of_arn(arn).ok_or_else(|| ApiError::validation("Invalid StreamArn"))
}

/// The number of the shard of a stream that a member of a request names.
pub(super) fn shard(request: &Request, name: &str, stream: &Stream) -> Result<u32> {
    let id = bounded(request, name, &SHARD_ID_LEN)?;
    shard_of_id(stream.start_millis, stream.shard_bits, id).ok_or_else(|| {
        let text = format!("Requested resource not found: Shard: {id} not found");
        ApiError::new(ErrorKind::ResourceNotFound, text)
    })
}

/// The first shard of a stream whose name comes behind a text; there is none where the text cannot be the name of a shard.
fn shard_behind(id: &str, stream: &Stream) -> u32 {
    let shards = 1 << stream.shard_bits;
    match id.starts_with("shardId-") {
        true => (0..shards).find(|at| *shard_id(stream.start_millis, *at) > *id).unwrap_or(shards),
        false => shards,
    }
}

impl<C: Coordinator> Dynamo<C> {
    /// The stream of a table and a label.
    pub(super) fn stream(&self, table: &str, label: &str) -> Result<(ApiTable, Stream)> {
        let found = table::find(&self.schema(), table)
            .map_err(|_| missing(&format!("{}/stream/{label}", arn(table))))?;
        let stream = found.stream(label, self.executor.clock().wall_micros())?;
        Ok((found, stream))
    }

    pub(super) fn describe_stream(&self, request: &Request) -> Result<Json> {
        let (table, label) = stream_arn(request, "StreamArn")?;
        let limit = request.integer("Limit", 1, SHARDS_MAX)?.unwrap_or(SHARDS_MAX) as usize;
        let (table, stream) = self.stream(table, label)?;
        let first = match request.has("ExclusiveStartShardId") {
            true => shard_behind(bounded(request, "ExclusiveStartShardId", &SHARD_ID_LEN)?, &stream),
            false => 0,
        };
        let all = match request.get("ShardFilter") {
            None => 1 << stream.shard_bits,
            // Shards last as long as their stream, and have no children.
            Some(filter) => {
                check_filter(filter, &stream)?;
                0
            }
        };
        let mut range = json!({
            "StartingSequenceNumber": Position::before(stream.start_micros()).sequence_number(),
        });
        if let (Some(end), Some(members)) = (stream.end_micros, range.as_object_mut()) {
            let last = Position::before(end).sequence_number();
            members.insert("EndingSequenceNumber".to_owned(), last.into());
        }
        let id = |shard: u32| shard_id(stream.start_millis, shard);
        let mut left = first..all;
        let shards: Vec<Json> = left
            .by_ref()
            .take(limit)
            .map(|shard| json!({ "ShardId": id(shard), "SequenceNumberRange": range }))
            .collect();
        let mut description = json!({
            "StreamArn": stream.arn(table.name()),
            "StreamLabel": stream.label(),
            "StreamStatus": stream.status(),
            "StreamViewType": stream.view.name(),
            "CreationRequestDateTime": stream.start_millis as f64 / 1000.0,
            "TableName": table.name(),
            "KeySchema": key_schema(&table),
            "Shards": shards,
        });
        if let (Some(next), Some(members)) = (left.next(), description.as_object_mut()) {
            members.insert("LastEvaluatedShardId".to_owned(), id(next - 1).into());
        }
        Ok(json!({ "StreamDescription": description }))
    }
}

/// Refuses a `ShardFilter` that is none.
fn check_filter(filter: &Json, stream: &Stream) -> Result<()> {
    let filter = Request::part(filter)?;
    match filter.string("Type")? {
        Some("CHILD_SHARDS") => shard(&filter, "ShardId", stream).map(|_| ()),
        Some(other) => {
            constraint(other, "shardFilter.type", "Member must satisfy enum value set: [CHILD_SHARDS]")
        }
        None => invalid!("ShardFilter: Type must be specified"),
    }
}

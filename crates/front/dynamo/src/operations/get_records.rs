//! GetRecords.

use exec::backend::Coordinator;
use serde_json::Map;

use super::Dynamo;
use super::get_shard_iterator::trimmed;
use crate::error::{ApiError, ErrorKind, Result};
use crate::reply::{Reply, Texts};
use crate::request::Request;
use crate::streams::definition::stored_since;
use crate::streams::position::{Position, ShardIterator};
use crate::streams::reader::ShardRead;

/// The most records of an answer, which is the default unless fewer are requested.
const RECORDS_MAX: i64 = 1000;

impl<C: Coordinator> Dynamo<C> {
    pub(super) async fn get_records(&self, request: &Request) -> Result<Reply> {
        let text = items::json::read_string(request.required("ShardIterator")?)?;
        let limit = request.integer("Limit", 1, RECORDS_MAX)?.unwrap_or(RECORDS_MAX) as usize;
        let iterator = ShardIterator::decode(text)?;
        let now = self.executor.clock().wall_micros();
        iterator.check_age(now)?;
        let (table, stream) = self.stream(&iterator.table, &iterator.label)?;
        if iterator.shard >= 1 << stream.shard_bits {
            return Err(ApiError::validation("Invalid ShardIterator"));
        }
        let start = Position::before(stream.start_micros());
        let from = iterator.position.max(start);
        if from > start && from.micros < stored_since(now) {
            return Err(trimmed());
        }
        let schema = self.schema();
        let Some(log) = schema.cdc_log_of(&table.table) else {
            let text = format!("Table {} has no log of its changes", table.name());
            return Err(ApiError::new(ErrorKind::InternalServer, text));
        };
        // Later writes may still be on their way to the log.
        let settled = now.saturating_sub(self.streams.window_micros);
        let until = stream.end_micros.map_or(settled, |end| end.min(settled));
        let read = ShardRead::of_stream((&table, log), (&stream, iterator.shard), until, &self.streams.known);
        let _turn = self.streams.readers.acquire(1).await;
        let records = read.records(&self.store(), &stream, from, limit).await?;
        self.metrics().count(|figures| figures.returned_records += records.shown.len() as u64);
        let (mut shown, mut answer) = (Texts::default(), Map::new());
        records.shown.into_iter().for_each(|record| shown.push_text(record.text));
        // A closed shard ends with its last record.
        if stream.end_micros.is_none_or(|end| records.next.micros < end) {
            let next = ShardIterator { position: records.next, issued_micros: now, ..iterator };
            let next = next.encode(&stream.arn(table.name()));
            answer.insert("NextShardIterator".to_owned(), next.into());
        }
        Ok(Reply::of_list("Records", &shown, answer))
    }
}

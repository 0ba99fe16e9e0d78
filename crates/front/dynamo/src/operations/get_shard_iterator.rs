//! GetShardIterator.

use exec::backend::Coordinator;
use serde_json::{Value as Json, json};

use super::Dynamo;
use super::describe_stream::{shard, stream_arn};
use crate::error::{ApiError, ErrorKind, Result, invalid};
use crate::request::{Request, constraint};
use crate::streams::definition::{RETENTION_MICROS, Stream};
use crate::streams::position::{Position, ShardIterator};

/// How far a sequence number may be ahead of this node's clock: as far as the timestamp of a write.
const LEEWAY_MICROS: i64 = 5_000_000;

/// The error for records that are not there any more.
pub(super) fn trimmed() -> ApiError {
    let text = "The operation attempted to read past the oldest stream record in a shard.";
    ApiError::new(ErrorKind::TrimmedDataAccess, text)
}

/// Where an iterator of a type begins.
fn position(stream: &Stream, kind: &str, number: Option<Position>, now_micros: i64) -> Result<Position> {
    let start = Position::before(stream.start_micros());
    let horizon = Position::before(now_micros.saturating_sub(RETENTION_MICROS)).max(start);
    let number = match (kind, number) {
        ("TRIM_HORIZON", None) => return Ok(horizon),
        ("LATEST", None) => return Ok(Position::before(now_micros).max(start)),
        ("TRIM_HORIZON" | "LATEST", Some(_)) => {
            return invalid!("SequenceNumber should not be passed for this iterator type");
        }
        (_, None) => return invalid!("SequenceNumber cannot be null"),
        (_, Some(number)) => number,
    };
    let last = stream.end_micros.unwrap_or(now_micros.saturating_add(LEEWAY_MICROS));
    if number < start || number.micros > last {
        return invalid!("Invalid SequenceNumber");
    }
    match (number == start, number < horizon) {
        // That of the shard itself.
        (true, _) => Ok(horizon),
        (false, true) => Err(trimmed()),
        (false, false) if kind == "AFTER_SEQUENCE_NUMBER" => Ok(number.next()),
        (false, false) => Ok(number),
    }
}

impl<C: Coordinator> Dynamo<C> {
    pub(super) fn get_shard_iterator(&self, request: &Request) -> Result<Json> {
        let kinds = ["AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER", "TRIM_HORIZON", "LATEST"];
        let (table, label) = stream_arn(request, "StreamArn")?;
        let Some(kind) = request.one_of("ShardIteratorType", &kinds)? else {
            return constraint("null", "shardIteratorType", "Member must not be null");
        };
        if request.has("Timestamp") {
            return invalid!("Timestamp: Torc has no shard iterators that begin at a time");
        }
        let number = request.string("SequenceNumber")?.map(Position::of_sequence_number).transpose()?;
        let (table, stream) = self.stream(table, label)?;
        let shard = shard(request, "ShardId", &stream)?;
        let now = self.executor.clock().wall_micros();
        let iterator = ShardIterator {
            table: table.name().to_owned(),
            label: label.to_owned(),
            shard,
            position: position(&stream, kind, number, now)?,
            issued_micros: now,
        };
        Ok(json!({ "ShardIterator": iterator.encode(&stream.arn(table.name())) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::streams::definition::ViewType;

    #[test]
    fn iterators_begin_where_their_type_says() {
        const NOW: i64 = 10 * RETENTION_MICROS;
        let stream = |start: i64, end_micros| Stream {
            start_millis: start / 1000,
            end_micros,
            view: ViewType::KeysOnly,
            shard_bits: 0,
        };
        let young = stream(NOW - 1_000_000, None);
        let old = stream(RETENTION_MICROS, None);
        let ended = stream(RETENTION_MICROS, Some(NOW - 2_000_000));
        let at = |stream: &Stream, kind: &str, micros: Option<i64>| {
            let number = micros.map(|micros| Position { number: 3, ..Position::before(micros) });
            position(stream, kind, number, NOW)
                .map(|place| (place.micros - NOW, place.number))
                .map_err(|error| error.kind)
        };
        let (trimmed, wrong) = (ErrorKind::TrimmedDataAccess, ErrorKind::Validation);
        assert_eq!(at(&young, "TRIM_HORIZON", None), Ok((-1_000_000, 0)));
        assert_eq!(at(&old, "TRIM_HORIZON", None), Ok((-RETENTION_MICROS, 0)));
        assert_eq!(at(&old, "LATEST", None), Ok((0, 0)));
        assert_eq!(at(&old, "AT_SEQUENCE_NUMBER", Some(NOW - 5)), Ok((-5, 3)));
        assert_eq!(at(&old, "AFTER_SEQUENCE_NUMBER", Some(NOW - 5)), Ok((-5, 4)));
        assert_eq!(at(&old, "AFTER_SEQUENCE_NUMBER", Some(NOW - RETENTION_MICROS - 5)), Err(trimmed));
        assert_eq!(at(&young, "AT_SEQUENCE_NUMBER", Some(NOW - 1_000_001)), Err(wrong));
        assert_eq!(at(&young, "AT_SEQUENCE_NUMBER", Some(NOW + LEEWAY_MICROS + 1)), Err(wrong));
        assert_eq!(at(&ended, "AT_SEQUENCE_NUMBER", Some(NOW)), Err(wrong));
        assert_eq!(at(&old, "AT_SEQUENCE_NUMBER", None), Err(wrong));
        assert_eq!(at(&old, "LATEST", Some(NOW)), Err(wrong));
        let start = Some(Position::before(old.start_micros()));
        let begun = position(&old, "AT_SEQUENCE_NUMBER", start, NOW).map(|place| place.micros - NOW);
        assert_eq!(begun, Ok(-RETENTION_MICROS), "the number that a shard begins with");
    }
}

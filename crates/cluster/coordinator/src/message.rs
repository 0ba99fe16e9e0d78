//! Requests to other nodes' replicas and their answers, as bytes.
//!
//! | verb | body | answer |
//! |---|---|---|
//! | read, read_digest | command | page, or its digest (16 bytes) |
//! | apply, read_repair | microseconds (8), updates | nothing, or microseconds (8): the time of a truncation since, and nothing was done |
//! | hint | as apply | nothing |
//! | increment | updates | updates: the state that the other replicas are to have |
//! | batch_store, batch_remove | see `batch_row` | nothing |
//! | truncate | version, table id, microseconds (8) | microseconds (8): the time that the node remembers, not before that |
//! | truncate | version of asking, table id | { microseconds (8) } for each shard: when it truncated the table last |
//! | truncate | version of checking, table id, schema version (16) | nothing: the node uses that schema and has nothing of a dropped table of this id |
//! | nearest | query | candidates |
//! | ring | see `fence` | nothing |
//! | traced | see `traced` | as without |
//! | forward, outcome | see `forward` | nothing |
//!
//! Updates are: version, vint count, { vint length, update }. The microseconds before them say when the write began (since 1970; on the
//! coordinator, `Context::begin_write`), so that none is applied behind a truncation that removed it elsewhere.
//!
//! All but batch_store, batch_remove, traced, forward and ring have the number of the ring before them (8 bytes; see `fence`).
//! `read_codec` in crate `replica` has the layout of commands and pages, `nearest_codec` that of searches, `codec` in crate `mutation` that of
//! updates.

use std::sync::Arc;

use bytes::Bytes;
use mutation::PartitionUpdate;
use mutation::codec::{self, DecodedUpdates, Layouts, UpdatesError};
use replica::ReadCommand;
use replica::read_codec;
use rpc::Refusal;
use schema::TableId;
use stdx::Reader;

use crate::peer_error::{PeerError, code, malformed, unreadable};
use topology::ClusterView;

/// Of a message of verb truncate that asks when a table was truncated.
pub(crate) const ASKS_TRUNCATION: u8 = 2;
/// Of `truncate`: build the table's views from the beginning.
pub(crate) const REBUILDS_VIEWS: u8 = 3;
/// Of `truncate`: how far the node is with building a view.
pub(crate) const ASKS_VIEW_BUILD: u8 = 4;
/// Of `truncate`: a permit to truncate, which the node takes back after a while.
pub(crate) const ASKS_TRUNCATION_PERMIT: u8 = 5;
/// Of a message of verb truncate that truncates, with a permit. (1 was the same without.)
pub(crate) const TRUNCATES: u8 = 6;
/// Of `truncate`: whether the node has nothing left of a dropped table with an id that a new table is to have.
pub(crate) const CHECKS_GIVEN_ID: u8 = 7;
/// All versions of `truncate`.
pub(crate) const TRUNCATE_VERSIONS: std::ops::RangeInclusive<u8> = ASKS_TRUNCATION..=CHECKS_GIVEN_ID;
const _: () = assert!(
    ASKS_TRUNCATION < REBUILDS_VIEWS
        && REBUILDS_VIEWS < ASKS_VIEW_BUILD
        && ASKS_VIEW_BUILD < ASKS_TRUNCATION_PERMIT
        && ASKS_TRUNCATION_PERMIT < TRUNCATES
        && TRUNCATES < CHECKS_GIVEN_ID,
    "each message of verb truncate has a version of its own"
);
/// Bytes of the topology version before a body.
pub(crate) const STAMP_LEN: usize = 8;
/// Bytes before the updates of a write: the topology version, and when the write began.
pub(crate) const BEGUN_LEN: usize = STAMP_LEN + 8;

const _: () = assert!(STAMP_LEN == size_of::<u64>(), "a topology version stands before a body");
const _: () =
    assert!(BEGUN_LEN == STAMP_LEN + size_of::<i64>(), "and the time of a write before its updates");

/// The topology version by which a request chose its replicas; 0 when it has none.
pub(crate) fn ring_of(body: &Bytes) -> u64 {
    body.split_first_chunk::<STAMP_LEN>().map_or(0, |(number, _)| u64::from_be_bytes(*number))
}

/// A body behind the number of a view's ring.
pub(crate) fn stamped(view: &ClusterView, body: &[u8]) -> Bytes {
    let mut out = stamp(view, body.len());
    out.extend_from_slice(body);
    out.into()
}

/// The number of a view's ring, and room for a body.
pub(crate) fn stamp(view: &ClusterView, room: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(STAMP_LEN + room);
    out.extend_from_slice(&view.topology_version().to_be_bytes());
    out
}

/// A command as a message.
pub(crate) fn encode_command(view: &ClusterView, command: &ReadCommand) -> Bytes {
    let mut body = stamp(view, 128);
    read_codec::encode_command(command, &mut body);
    body.into()
}

/// Updates of a write that began at `begun_micros` as a message.
pub(crate) fn begun_updates(view: &ClusterView, begun_micros: i64, updates: &[PartitionUpdate]) -> Bytes {
    let mut body = stamp(view, 128);
    body.extend_from_slice(&begun_micros.to_be_bytes());
    put_updates(body, updates)
}

/// Updates with which a read that began at `begun_micros` repairs a replica, as a message; `truncated_at` as in [`Truncation::LeavesOutRead`].
pub(crate) fn repair_updates(
    view: &ClusterView,
    (begun_micros, truncated_at): (i64, i64),
    updates: &[PartitionUpdate],
) -> Bytes {
    let mut body = stamp(view, 128);
    body.extend_from_slice(&begun_micros.to_be_bytes());
    body.extend_from_slice(&truncated_at.to_be_bytes());
    put_updates(body, updates)
}

/// [`begun_updates`] of the output of [`encode_updates`], or of the bytes behind [`BEGUN_LEN`] in another message.
pub(crate) fn begun_body(view: &ClusterView, begun_micros: i64, updates: &[u8]) -> Bytes {
    let mut body = stamp(view, 8 + updates.len());
    body.extend_from_slice(&begun_micros.to_be_bytes());
    body.extend_from_slice(updates);
    body.into()
}

/// When the table of a write was truncated, if a replica has left it out for that reason, microseconds since 1970.
pub(crate) fn truncation_of(answer: &Bytes) -> Result<Option<i64>, PeerError> {
    match answer.is_empty() {
        true => Ok(None),
        false => Reader::new(answer).i64().map(Some).map_err(|short| unreadable(&short)),
    }
}

/// When the write of a message began, and its updates as bytes; the number of the ring is gone from it.
pub(crate) fn split_begun(body: &Bytes) -> Result<(i64, Bytes), Refusal> {
    let mut reader = Reader::new(body);
    let begun_micros = reader.i64().map_err(|_| malformed("the message ends too early"))?;
    Ok((begun_micros, body.slice_ref(reader.rest())))
}

/// Updates as they are kept and answered, without the number of a ring.
pub(crate) fn encode_updates(updates: &[PartitionUpdate]) -> Bytes {
    put_updates(Vec::with_capacity(128), updates)
}

pub(crate) fn put_updates(mut body: Vec<u8>, updates: &[PartitionUpdate]) -> Bytes {
    codec::encode_updates(updates, &mut body);
    body.into()
}

/// The updates of a message.
pub(crate) fn decode_updates(
    body: &Bytes,
    table: impl Fn(TableId) -> Option<Arc<schema::Table>>,
) -> Result<Vec<PartitionUpdate>, Refusal> {
    read_updates(body, None, table).map(|decoded| decoded.updates)
}

/// The updates of a message, with their bytes. The cells of their rows stay encoded where they can.
pub(crate) fn decode_received(
    body: &Bytes,
    layouts: &Layouts,
    table: impl Fn(TableId) -> Option<Arc<schema::Table>>,
) -> Result<DecodedUpdates, Refusal> {
    read_updates(body, Some(layouts), table)
}

fn read_updates(
    body: &Bytes,
    layouts: Option<&Layouts>,
    table: impl Fn(TableId) -> Option<Arc<schema::Table>>,
) -> Result<DecodedUpdates, Refusal> {
    codec::decode_updates(body, layouts, table).map_err(|error| match error {
        UpdatesError::UnknownTable(_) | UpdatesError::UnknownColumn(_) => {
            Refusal::new(code::UNKNOWN_TABLE, error.to_string())
        }
        _ => malformed(error),
    })
}

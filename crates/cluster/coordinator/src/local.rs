//! Requests of tables that only this node has: its own tables, and all of them while it is alone. The errors are those of one replica.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::try_join_all;
use mutation::PartitionUpdate;
use replica::{Candidate, NearestQuery, Origin, Read, ReadCommand, ReadPage, ReplicaError, Write};
use rt::Instant;
use schema::Table;

use crate::batch_row;
use crate::batchlog::{BatchError, Batchlog};
use crate::context::Context;
use crate::counter::add_here;
use crate::peer_error::{self, PeerError};
use crate::{Consistency, ReplicaFailure, RequestError, WriteKind, WriteOptions};

/// Reads from this node.
pub(crate) async fn read(
    context: &Context,
    command: &ReadCommand,
    consistency: Consistency,
    deadline: Instant,
) -> Result<ReadPage, RequestError> {
    // Pinned here, so that it is not moved on its way into the timeout.
    let read = pin!(context.replica().read(Read::of(command).traced(context.trace())));
    was_read(context, context.rt().timeout_at(deadline, read).await, consistency)
}

/// Looks for the nearest vectors on this node.
pub(crate) async fn nearest(
    context: &Context,
    (table, query): (&Table, &Arc<NearestQuery>),
    consistency: Consistency,
    deadline: Instant,
) -> Result<Vec<Candidate>, RequestError> {
    let search = pin!(context.replica().nearest(table.id, query));
    was_read(context, context.rt().timeout_at(deadline, search).await, consistency)
}

fn was_read<T>(
    context: &Context,
    outcome: Result<Result<T, ReplicaError>, rt::Elapsed>,
    consistency: Consistency,
) -> Result<T, RequestError> {
    match outcome {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => {
            let failures = failures(context, error)?;
            Err(RequestError::ReadFailure {
                consistency,
                received: 0,
                required: 1,
                data_present: false,
                failures,
            })
        }
        Err(_) => {
            context.tell(|| "Timed out".to_owned());
            Err(RequestError::ReadTimeout { consistency, received: 0, required: 1, data_present: false })
        }
    }
}

/// Writes on this node: those of one shard all or none.
pub(crate) async fn write(
    context: &Context,
    updates: Vec<PartitionUpdate>,
    options: WriteOptions,
) -> Result<(), RequestError> {
    let apply = pin!(context.replica().apply(Write::all(Origin::Client, updates).traced(context.trace())));
    let applied = context.rt().timeout_at(options.deadline, apply).await;
    written(context, applied, options)
}

/// A logged batch over several shards; one shard alone applies its part in one entry of its log.
pub(crate) async fn write_batch(
    context: &Context,
    log: &Batchlog,
    updates: Vec<PartitionUpdate>,
    options: WriteOptions,
) -> Result<(), RequestError> {
    context.tell(|| "Writing to and removing from the batchlog (system.batches) around the batch".to_owned());
    let schema = context.schema();
    let Some(batches) = batch_row::table_of(&schema) else { return write(context, updates, options).await };
    let apply = log.apply(batches, updates, context.trace());
    let applied = context.rt().timeout_at(options.deadline, apply).await;
    let (result, kind) = match applied {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(BatchError::NotLogged(error))) => (Ok(Err(error)), WriteKind::BatchLog),
        Ok(Err(BatchError::NotApplied(error))) => (Ok(Err(error)), options.kind),
        Err(elapsed) => (Err(elapsed), options.kind),
    };
    written(context, result, WriteOptions { kind, ..options })
}

/// Adds to counters on this node.
pub(crate) async fn increment(
    context: &Context,
    updates: Vec<PartitionUpdate>,
    options: WriteOptions,
) -> Result<(), RequestError> {
    let added = try_join_all(updates.into_iter().map(|update| add_here(context, update, context.trace())));
    let added = context.rt().timeout_at(options.deadline, added).await;
    let options = WriteOptions { kind: WriteKind::Counter, ..options };
    written(context, added.map(|added| added.map(|_| ())), options)
}

/// The failure of this node's replica, as an error lists it.
///
/// # Errors
/// The error of a request that is invalid, when the replica is not at fault.
fn failures(context: &Context, error: ReplicaError) -> Result<Vec<ReplicaFailure>, RequestError> {
    let view = context.view();
    match PeerError::from(error) {
        PeerError::Invalid(why) => Err(RequestError::Invalid(why)),
        error => Ok(error.failure(peer_error::address(&view, view.own())).into_iter().collect()),
    }
}

fn written(
    context: &Context,
    result: Result<Result<(), ReplicaError>, rt::Elapsed>,
    WriteOptions { consistency, kind, .. }: WriteOptions,
) -> Result<(), RequestError> {
    match result {
        Ok(Ok(())) => Ok(()),
        Err(_) => Err(RequestError::WriteTimeout { consistency, received: 0, required: 1, kind }),
        Ok(Err(error)) => {
            let failures = failures(context, error)?;
            Err(RequestError::WriteFailure { consistency, received: 0, required: 1, kind, failures })
        }
    }
}

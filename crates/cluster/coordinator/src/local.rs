//! Requests of tables that each node has of its own (`LocalStrategy`). The errors are those of one replica.

use std::pin::pin;

use mutation::PartitionUpdate;
use replica::{Origin, Read, ReadCommand, ReadPage, ReplicaError, Write};
use rt::Instant;

use crate::context::Context;
use crate::peer_error::{self, PeerError};
use crate::{Consistency, ReplicaFailure, RequestError, WriteOptions};

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

//! Requests of tables that each node has of its own (`LocalStrategy`). The errors are those of one replica.

use std::pin::pin;

use mutation::PartitionUpdate;
use replica::{Origin, ReadCommand, ReadPage, Write};
use rt::Instant;
use schema::Table;

use crate::context::Context;
use crate::ongoing::write_error;
use crate::peer_error::PeerError;
use crate::reader::{ReadOptions, Reader};
use crate::{Consistency, RequestError, WriteOptions};

/// Reads from this node.
pub(crate) async fn read(
    context: &Context,
    command: &ReadCommand,
    consistency: Consistency,
    deadline: Instant,
) -> Result<ReadPage, RequestError> {
    let page = context.read_here(command, deadline).await;
    page.or_else(|error| {
        if matches!(error, PeerError::Silent(_)) {
            context.record(|| "Timed out".to_owned());
        }
        let reader =
            Reader::new(context, context.maps().of(&command.table)?, ReadOptions { consistency, deadline });
        let own = reader.erm.view.own();
        Err(reader.not_enough(0, 1, false, &[(own, error)]))
    })
}

/// Reads of this node's own data by another way than [`read`], for diagnosis: the errors are those of one replica.
pub(crate) async fn inspect<T, E: Into<PeerError>>(
    context: &Context,
    table: &Table,
    deadline: Instant,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, RequestError> {
    let answer = pin!(answer);
    let found = context.here(deadline, answer).await;
    found.or_else(|error| {
        let options = ReadOptions { consistency: Consistency::One, deadline };
        let reader = Reader::new(context, context.maps().of(table)?, options);
        let own = reader.erm.view.own();
        Err(reader.not_enough(0, 1, false, &[(own, error)]))
    })
}

/// Writes on this node: those of one shard all or none.
pub(crate) async fn write(
    context: &Context,
    updates: Vec<PartitionUpdate>,
    options: WriteOptions,
) -> Result<(), RequestError> {
    let Some(table) = updates.first().map(|update| update.table.clone()) else { return Ok(()) };
    let apply = pin!(context.replica().apply(Write::all(Origin::Client, updates).traced(context.trace())));
    let applied = context.here(options.deadline, apply).await;
    applied.or_else(|error| {
        let erm = context.maps().of(&table)?;
        Err(write_error(&erm, &[(erm.view.own(), error)], options, (0, 1)))
    })
}

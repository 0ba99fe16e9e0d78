//! One read of the coordinator for a statement: at its consistency, by its deadline, with its trace.

use replica::{ReadCommand, ReadPage};

use crate::backend::Coordinator;
use crate::error::Result;
use crate::request::Request;

/// Bytes that one read from the replicas may hold.
pub(super) const READ_BYTES_MAX: usize = 1 << 20;
/// Rows that one read fetches when not every row is returned.
pub(super) const SCAN_ROWS: u64 = 5_000;

/// One read; that of a traced request is kept apart, so that the others' futures stay small.
pub(super) async fn read<C: Coordinator>(
    coordinator: &C,
    request: &Request<'_>,
    command: &ReadCommand,
    deadline: rt::Instant,
) -> Result<ReadPage> {
    let consistency = request.consistency;
    if consistency.is_serial() {
        return Ok(match request.trace_log() {
            None => Box::pin(coordinator.read_serial(command, consistency, deadline)).await?,
            Some(trace) => {
                Box::pin(coordinator.traced(trace).read_serial(command, consistency, deadline)).await?
            }
        });
    }
    match request.trace_log() {
        None => Ok(coordinator.read(command, consistency, deadline).await?),
        Some(trace) => Ok(Box::pin(coordinator.traced(trace).read(command, consistency, deadline)).await?),
    }
}

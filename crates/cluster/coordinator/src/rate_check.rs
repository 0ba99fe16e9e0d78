//! Holds requests to the `per_partition_rate_limit` of their tables (docs/design/rate-limit.md). The shard that owns a partition
//! counts, whichever node coordinates.

use rt::ShardId;
use schema::{Table, TableId};
use topology::HostId;

use crate::context::Context;
use crate::peer_error::code;
use crate::shard_calls::CountOperation;
use crate::{Decision, Operation, RequestError};

fn limit_of(table: &Table, operation: Operation) -> Option<u32> {
    let limits = table.options.per_partition_rate_limit;
    match operation {
        Operation::Read => limits.max_reads_per_second,
        Operation::Write => limits.max_writes_per_second,
    }
}

/// Holds requests to the limits of their tables' partitions.
#[derive(Clone, Copy)]
pub(crate) struct RateCheck<'a>(pub(crate) &'a Context);

impl RateCheck<'_> {
    /// Counts an operation of a partition that this shard owns; whether it may be done.
    pub(crate) fn count_here(
        &self,
        partition: (TableId, i64, Operation),
        limit: u32,
        decision: Decision,
    ) -> bool {
        let owner = self.0.replica().shard_of(partition.0, partition.1);
        assert_eq!(owner, self.0.shard(), "the shard that owns a partition counts its operations");
        self.0.rate_limiter().count(partition, limit, decision, self.0.rt().now())
    }

    async fn count_on_owner(
        &self,
        (table, token, operation): (&Table, i64, Operation),
        limit: u32,
        decision: Decision,
    ) -> bool {
        let shard = self.0.replica().shard_of(table.id, token);
        if shard == self.0.shard() {
            return self.count_here((table.id, token, operation), limit, decision);
        }
        let count = CountOperation { table: table.id, token, operation, limit, decision };
        self.0.port().ask(ShardId(shard), count).await
    }

    /// Refuses an operation that this node coordinates, when it is a replica of the partition and the partition's limit is reached.
    /// Nothing is done then. Where it is none, the replicas decide.
    pub(crate) async fn check(
        &self,
        table: &Table,
        token: i64,
        operation: Operation,
    ) -> Result<(), RequestError> {
        let Some(limit) = limit_of(table, operation) else { return Ok(()) };
        if !self.0.maps().takes_token(table, token)
            || self.count_on_owner((table, token, operation), limit, Decision::Here).await
        {
            return Ok(());
        }
        Err(RequestError::RateLimit { table: table.full_name(), operation, by_coordinator: true })
    }

    /// Counts an operation that another node coordinates, and refuses it when the limit is reached and that node is no replica of the
    /// partition: such a one has decided already. The refusal's message is the table's name.
    pub(crate) async fn check_for(
        &self,
        host: HostId,
        table: &Table,
        token: i64,
        operation: Operation,
    ) -> Result<(), rpc::Refusal> {
        let Some(limit) = limit_of(table, operation) else { return Ok(()) };
        let decision = match self.0.maps().host_takes_token(host, table, token) {
            true => Decision::Elsewhere,
            false => Decision::Here,
        };
        if self.count_on_owner((table, token, operation), limit, decision).await {
            return Ok(());
        }
        Err(rpc::Refusal::new(code::RATE_LIMITED, table.full_name()))
    }
}

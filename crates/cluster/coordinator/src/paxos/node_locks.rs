//! The lock of a partition for lightweight transactions of the whole node. It lives on the shard that owns the partition; the other
//! shards lease it. So coordinators of one node wait for each other instead of competing with ever higher ballots.

use mutation::DecoratedKey;
use rt::{Group, Instant, ShardId};
use schema::TableId;

use super::locks::PartitionLock;
use super::lwt::Lwt;
use super::messages::LockRequest;
use super::state::Lease;
use crate::context::Context;
use crate::shard_calls::{AcquireLock, ReleaseLock};

/// The node's lock of a partition, released on drop.
pub(super) enum NodeLock {
    Local { _lock: PartitionLock },
    Leased { _lease: LeasedLock },
}

/// A lock that another shard has leased to this one, or a request for it.
pub(super) struct LeasedLock {
    context: Context,
    owner: ShardId,
    request: LockRequest,
}

impl Lwt {
    /// Waits for earlier requests of this node on a partition, until `until`; a lease expires at `end`.
    pub(super) async fn lock_partition(
        &self,
        table: TableId,
        key: &DecoratedKey,
        until: Instant,
        end: Instant,
    ) -> Option<NodeLock> {
        let owner = ShardId(self.context.replica().shard_of(table, key.token));
        if owner == self.context.rt().shard() {
            let lock = self.state.requests.lock(table, key);
            return self
                .context
                .rt()
                .timeout_at(until, lock)
                .await
                .ok()
                .map(|_lock| NodeLock::Local { _lock });
        }
        let request = LockRequest {
            from: self.context.rt().shard(),
            number: self.state.next_lock_request(),
            until: end,
        };
        // Released when this is dropped, also while the request is queued.
        let lease = LeasedLock { context: self.context.clone(), owner, request };
        let acquire = AcquireLock { table, key: key.clone(), request };
        match self.context.rt().timeout_at(until, self.context.port().ask(owner, acquire)).await {
            Ok(true) => Some(NodeLock::Leased { _lease: lease }),
            _ => None,
        }
    }

    /// Leases a lock to another shard; whether it was granted in time.
    pub(crate) async fn lease_lock(&self, table: TableId, key: &DecoratedKey, request: LockRequest) -> bool {
        self.assert_owner(table, key);
        assert_ne!(request.from, self.context.rt().shard(), "a lock is leased to another shard");
        let name = (request.from.0, request.number);
        let leases = &self.state.leases;
        {
            let mut leases = leases.0.borrow_mut();
            let now = self.context.rt().now();
            leases.retain(|_, (until, _)| *until > now);
            if leases.remove(&name).is_some() {
                return false;
            }
            leases.insert(name, (request.until, Lease::Waiting));
        }
        let lock = self.context.rt().timeout_at(request.until, self.state.requests.lock(table, key)).await;
        let mut leases = leases.0.borrow_mut();
        match (lock, leases.get_mut(&name)) {
            (Ok(_lock), Some((_, lease @ Lease::Waiting))) => {
                *lease = Lease::Granted { _lock };
                true
            }
            _ => {
                leases.remove(&name);
                false
            }
        }
    }

    /// Another shard has released its lock or cancelled its request.
    pub(crate) fn release_lock(&self, request: LockRequest) {
        let mut leases = self.state.leases.0.borrow_mut();
        if leases.remove(&(request.from.0, request.number)).is_none() {
            leases.insert((request.from.0, request.number), (request.until, Lease::Released));
        }
    }
}

impl Drop for LeasedLock {
    fn drop(&mut self) {
        let (context, owner, request) = (self.context.clone(), self.owner, self.request);
        let release = async move {
            context.port().ask(owner, ReleaseLock { request }).await;
        };
        self.context.rt().spawn(Group::Statement, release).detach();
    }
}

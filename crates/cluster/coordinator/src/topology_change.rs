//! The part of a shard's coordinator in a topology change: requests by stale topology versions run out, and the lease is confirmed.

use std::time::Duration;

use rt::sync::GateGuard;
use topology::HostId;

use crate::Coordinator;
use crate::admission::Admission;
use crate::lease::Confirm;

impl Coordinator {
    /// Admits requests that use exactly the topology version that this shard has, until the guard goes.
    ///
    /// # Errors
    /// The topology version of this shard, when that is another one.
    pub fn admit_exactly(&self, topology: u64) -> Result<GateGuard, u64> {
        Admission(&self.context()).admit_exactly(topology)
    }

    /// Waits until nothing is under way on this node that was let in before it had its topology version; whether it is so in time.
    pub async fn settle(&self, patience: Duration) -> bool {
        Admission(&self.context()).settle(patience).await
    }

    /// Waits until the live nodes have this node's topology version and no request is under way that they had admitted before, so that none
    /// needs to be refused when the earlier versions end: up to `patience`, for this is only smoother; the fence is the guarantee.
    pub async fn run_out(&self, patience: Duration) {
        Admission(&self.context()).run_out(patience).await;
    }

    /// Has a node from which files are fetched refuse coordinators that have not heard of the topology change: their writes there
    /// would be missed later.
    ///
    /// # Errors
    /// When the node does not do so in time.
    pub async fn fence_host(&self, host: HostId) -> Result<(), String> {
        Admission(&self.context()).fence_host(host).await
    }

    /// Asks `confirm` instead of the group for confirmations of the cluster's log from now on, on shard 0.
    pub fn confirm_with(&self, confirm: Confirm) {
        self.context().lease().confirm_with(confirm);
    }
}

//! The fault phase of a cluster: faults (`faults`), topology changes (`ring`), and an operator's repairs (`repair`), by chance or in the
//! scenarios of a focus (`scenarios`, `changing`, `rollback`). It knows the director, and no checker of a quiescent phase.

mod changing;
mod faults;
pub(crate) mod repair;
mod ring;
mod rollback;
mod scenarios;

use std::time::Duration;

use crate::cluster::director::ClusterDirector;
use crate::cluster::plan::focus::Focus;

impl ClusterDirector {
    /// Injects the faults of this plan while clients work: about until a time.
    pub(crate) async fn inject_faults(&mut self, until: Duration) {
        match self.plan.focus {
            Some(Focus::Batches | Focus::Repairs) => self.end_coordinators(until).await,
            Some(Focus::Rot) => self.rot(until).await,
            Some(Focus::Deaf) => self.deafen().await,
            Some(Focus::Stale) => self.join_past_stale().await,
            Some(Focus::Steady) => self.fault_few(until).await,
            Some(Focus::Growth) => self.grow(until).await,
            Some(Focus::Rings) => self.change_again(until).await,
            Some(Focus::Moves) if self.plan.ring.is_empty() => self.change_again(until).await,
            Some(Focus::Graces) => self.change_once(until).await,
            Some(Focus::Rollback) => self.restore_disks(until).await,
            _ => self.disturb(until).await,
        }
    }

    /// Whether the scenario decides when nodes join.
    pub(crate) fn joins_in_scenarios(&self) -> bool {
        match self.plan.focus {
            Some(Focus::Deaf | Focus::Stale | Focus::Growth | Focus::Rings | Focus::Graces) => true,
            Some(Focus::Moves) => self.plan.ring.is_empty(),
            _ => false,
        }
    }
}

//! Checker: after all nodes were repaired each one alone shows all that was acknowledged, before anything was read at ALL.

use crate::cluster::checks::{equal, monotonic};
use crate::cluster::director::ClusterDirector;
use crate::cluster::nemesis::repair::repair_all;
use crate::cluster::plan::focus::Focus;
use crate::cluster::plan::grace::Grace;
use crate::plan::one_in;

/// Now and then repairs everything, all ranges of each node or the primary ones, and compares.
pub(crate) async fn check(director: &mut ClusterDirector) -> Result<(), String> {
    // Where only a repair brings missed writes, reads show it.
    let wanted = director.plan.focus == Some(Focus::Repairs) && director.plan.grace == Grace::Never;
    if !(one_in(&mut director.rng, 3) || wanted) || !director.plan.hints {
        return Ok(());
    }
    repair_all(director, "k0").await?;
    director.keep_promises();
    equal::check(director).await?;
    monotonic::check(director).await
}

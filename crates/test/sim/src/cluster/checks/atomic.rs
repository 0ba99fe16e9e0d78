//! Checker: a logged batch is there in all of its partitions or in none, once the nodes have come to rest.

use crate::batches::{Batches, Part};
use crate::cluster::director::ClusterDirector;

/// Looks for a batch of which a part is there and another is not.
pub(crate) fn check(director: &mut ClusterDirector) -> Result<(), String> {
    let mut world = director.world.borrow_mut();
    if let Some((there, missing)) = world.batches.torn() {
        let name = |part: &Part| {
            format!("partition {:?} of {} (write {})", part.1, world.tables[part.0].full_name(), part.2)
        };
        return Err(format!(
            "a logged batch is torn: it is in {}, and not in {}",
            name(there),
            name(missing)
        ));
    }
    world.batches = Batches::default();
    Ok(())
}

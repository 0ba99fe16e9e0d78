//! Lanes: requests of peers that have places and bytes of their own. Each class is one, and within [`Class::Request`] those requests whose
//! handlers wait for other nodes are another. In one lane with the rest they would take all places, and the requests by which their waits end
//! would be refused.

use crate::config::Limits;
use crate::{Class, Verb};

/// How many there are.
pub(crate) const LANES: usize = Class::ALL.len() + 1;
const WAITERS: usize = LANES - 1;

/// The lane of a verb.
pub(crate) fn lane_of(verb: Verb) -> usize {
    if verb.waits_for_others() { WAITERS } else { verb.class() as usize }
}

/// Half of the bytes of a lane's requests on a shard.
pub(crate) fn bytes_max(limits: &Limits, lane: usize) -> usize {
    assert!(lane < LANES, "a lane has a number");
    let class = Class::ALL.get(lane).copied().unwrap_or(Class::Request);
    // These share their bytes with the waiters.
    let lanes = if class == Class::Request { 2 } else { 1 };
    limits.requests_bytes_max(class) / lanes
}

//! The lightweight transactions of a shard, as their parts see each other.

use std::rc::Rc;

use super::state::Paxos;
use crate::context::Context;
use crate::reads::Reads;

/// The lightweight transactions of one shard: those that it coordinates, and the votes of its partitions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lwt {
    pub(super) context: Context,
    pub(super) state: Rc<Paxos>,
    pub(super) reads: Rc<Reads>,
}

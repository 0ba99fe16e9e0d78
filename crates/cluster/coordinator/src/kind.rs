//! The source of a table's rows, which decides how a request is carried out.

/// Where a table's rows come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// On this node alone, as each node has its own (`LocalStrategy`).
    Local,
    /// On the replicas that a replication has, of which this node may be the only one.
    Replicated,
    /// Nowhere: they are made when they are asked for.
    Computed,
}

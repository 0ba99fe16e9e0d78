//! Bugs that the simulator plants into a whole node, to see that its checks find them. No configuration leads here.

/// Which bugs are injected, by the part of the node that has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Canaries {
    /// In the storage of a shard.
    pub engine: engine::Canaries,
    /// In the agreement of replicas.
    pub coordinator: coordinator::Canaries,
    /// In repairs.
    pub repair: repair::Canaries,
    /// In hints.
    pub hints: hints::Canaries,
    /// In clients' sessions.
    pub session: session::Canaries,
    /// In the DynamoDB API.
    pub dynamo: dynamo::Canaries,
    /// Now and then a coordinator's timestamp lies three seconds back.
    pub stale_timestamps: bool,
    /// A node whose disk was rolled back serves all the same.
    pub rollback_unnoticed: bool,
}

//! The result of a schema change for its caller.

/// A schema change that was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaChangeError {
    /// The schema is not the one that the change was planned against; plan again.
    #[error("the schema changed meanwhile")]
    Moved,
    /// The change does not fit the schema.
    #[error("{0}")]
    Invalid(String),
    /// It is decided, and not every live node used it in time. They will.
    #[error("the schema change is decided, and only {used} of {live} live nodes use it yet")]
    Behind {
        /// Live nodes that use it.
        used: u32,
        /// Live nodes.
        live: u32,
    },
    /// It could not be made durable, or not carried out on every shard.
    #[error("{0}")]
    Failed(String),
}

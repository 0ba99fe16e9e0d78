//! The snitches whose names the configuration accepts.

/// The snitch that reads `cassandra-rackdc.properties`.
pub(crate) const READS_FILE: &str = "GossipingPropertyFileSnitch";
/// The snitch of a cluster in one place.
pub(crate) const SIMPLE: &str = "SimpleSnitch";

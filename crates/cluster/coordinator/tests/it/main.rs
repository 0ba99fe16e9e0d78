//! Coordinators, replicas and connections of several simulated nodes, without clients and without membership: the view of the
//! cluster is set by the test.

mod batches;
mod cdc;
mod cost;
mod datacenters;
mod derived;
mod fence;
mod handoff;
mod lease;
mod lightweight;
mod moves;
mod promises;
mod rates;
mod replication;
mod table_placement;
mod tombstones;
mod traces;
mod truncations;
mod votes;
mod world;

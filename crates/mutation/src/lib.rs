//! Cassandra's data model in motion and its reconciliation: partitions, rows, cells, tombstones, fragment streams.

//! The schema and the topology of the cluster as one linearisable log; for a single node, its own copy on disk.

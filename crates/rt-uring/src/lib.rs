//! The production backend of rt: tokio for sockets and timers, one private io_uring a shard for files.

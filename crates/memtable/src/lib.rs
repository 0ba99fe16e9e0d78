//! The writes of one table and shard that no SSTable holds yet, in memory and in order.

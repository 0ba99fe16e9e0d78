//! What a shard may ask of the outside: clock, disk, network, randomness, tasks, messages to other shards.

//! What a shard keeps in memory of its SSTables: rows, and blocks of files, under one budget.

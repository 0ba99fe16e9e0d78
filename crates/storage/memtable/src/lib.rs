//! The writes of one table and shard that no SSTable holds yet, in memory and in order.
//!
//! A memtable is written and read at the same time by tasks of one shard: a reader takes rows a batch at a time, finds
//! its place again by key and position, and every row that it hands on is whole. It never drops its content;
//! rows hidden by deletions are dropped by the reader's merge. It knows nothing of files, logs or budgets.

mod cursor;
mod memtable;
mod own;
mod partition;
mod snapshot;
mod source;
mod write_stats;

pub use cursor::{OnlyRow, PartitionCursor, Progress};
pub use memtable::{Memtable, Part};
pub use partition::{Change, Dropped, PARTITION_OVERHEAD, PartOfPartition, Partition};
pub use source::MemtableSource;
pub use write_stats::WriteStats;

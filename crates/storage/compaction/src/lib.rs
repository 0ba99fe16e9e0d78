//! Compaction: which SSTables to merge ([`choose`], pure) apart from merging them ([`worker`]).
//!
//! The choice sees figures only, and is tested with golden tables; the worker sees streams and writers only. Neither
//! knows a table's set of SSTables or how an edit of it becomes durable: that is the engine's.

pub mod choose;
mod leveled;
mod owned_ranges;
mod size_tiered;
mod time_window;
pub mod unified;
pub mod worker;

pub use choose::{Candidate, Choice, Reason, Strategy, TableFigures};
pub use owned_ranges::OwnedRanges;
pub use worker::{Job, Outcome, Progress, Throttle, WorkerError};

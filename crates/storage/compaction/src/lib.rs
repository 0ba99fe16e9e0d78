//! Compaction: which SSTables to merge ([`choose`], pure) apart from merging them ([`worker`]).
//!
//! The choice sees figures only, and is tested with golden tables; the worker sees streams and writers only. Neither
//! knows a table's set of SSTables or how an edit of it becomes durable: that is the engine's.

mod candidate;
mod choice;
pub mod choose;
mod garbage;
mod leveled;
mod owned_ranges;
mod pending;
mod settings;
mod size_tiered;
mod time_window;
pub mod unified;
pub mod worker;

pub use candidate::{Candidate, TableFigures};
pub use choice::{Choice, Reason};
pub use choose::Strategy;
pub use garbage::Hiding;
pub use owned_ranges::OwnedRanges;
pub use pending::Backlog;
pub use worker::{Job, Outcome, Progress, Throttle, WorkerError};

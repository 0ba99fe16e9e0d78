//! Hints: writes that are stored for a replica that cannot be reached, and delivered when it can.
//!
//! One log a shard, in segments that belong to one host each. A hint is opaque bytes with the time at which it was kept
//! and the time for which it may be delivered. Nothing here fails a write: a dropped hint is counted, and repair
//! restores its write. It knows neither tables nor liveness: the caller does. Format and reasons:
//! `docs/design/hints.md`.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod config;
mod control;
mod error;
mod figures;
pub mod format;
mod log;
mod metrics;
mod open;
mod reader;
mod replay;
mod segment;
mod writer;

pub use config::{Canaries, HintsConfig};
pub use error::{HintRefused, HintsError};
pub use figures::{HintFigures, HintsStats};
pub use log::{Hint, Hints};
pub use replay::{Brought, ReplayEnd, ReplayOutcome, StoredHint};

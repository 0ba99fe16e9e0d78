//! Requests against the cluster: which replicas to ask, how many answers suffice, what to tell the client otherwise.
//!
//! With one node every replica is this node; requests take the same path nonetheless.
//! This crate knows nothing of files, memtables or CQL.

mod error;
mod request;

pub use error::RequestError;
pub use request::{WriteKind, WriteOptions};
pub use topology::Consistency;

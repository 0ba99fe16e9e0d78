//! The checkers of a quiescent phase, a promise each. They know the director, the models and the clients, and no phase of a run.

pub(crate) mod atomic;
pub(crate) mod available;
pub(crate) mod bounded;
pub(crate) mod changes;
pub(crate) mod ddl;
pub(crate) mod durable;
pub(crate) mod equal;
pub(crate) mod indexed;
pub(crate) mod kept;
pub(crate) mod left_behind;
pub(crate) mod lwt;
pub(crate) mod monotonic;
pub(crate) mod repaired;
pub(crate) mod replicating;
pub(crate) mod resurrection;
pub(crate) mod schema;
pub(crate) mod serial;
pub(crate) mod stamps;
pub(crate) mod truncating;
pub(crate) mod truncation;
pub(crate) mod views;

//! Statements: from text and values to operations of the coordinator, and from their results to responses.
//!
//! A statement becomes a plan, a plan is run with values and a context, and running it yields rows to a sink
//! (docs/design/query.md). Planning ([`plan`], [`select`], [`modification`], [`ddl`]) is pure: it resolves every name and
//! type once, and reports errors in Cassandra's words. [`Executor`] runs plans on the coordinator. A front end stands
//! at both ends: [`native`] is that of the native protocol, and the only module that knows it. None of them knows
//! connections, files, or how many nodes there are.

mod access;
pub mod audit;
pub mod backend;
mod batch_sizes;
mod conditional;
pub mod ddl;
pub mod describe;
mod error;
mod executor;
pub mod explain;
pub mod expr;
pub mod functions;
pub mod guardrails;
mod keys;
pub mod lookup;
pub mod modification;
pub mod native;
mod needed;
mod part_server;
mod performer;
pub mod plan;
mod principal;
pub mod prune;
mod redact;
pub mod request;
mod roles;
pub mod select;
pub mod setting;
pub mod sink;
mod statement_counts;
mod text_functions;
mod trace;
pub mod truncate;
mod type_name;
mod watch;
pub mod where_clause;

pub use backend::NodeInfo;
pub use batch_sizes::BatchFigures;
pub use error::ExecError;
pub use executor::Executor;
pub use guardrails::{Guardrails, RefusedValues, Thresholds};
pub use principal::Principal;
pub use request::{Caller, ExecLimits};
pub use setting::SettingChange;
pub use statement_counts::StatementCounts;
pub use trace::{SlowTracing, Trace, Traced};
pub use udf::Limits as FunctionLimits;

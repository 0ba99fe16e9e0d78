//! Statements: from text and values to operations of the coordinator, and from their results to responses.
//!
//! Two halves. The pure one turns syntax and schema into plans ([`select`], [`modification`], [`ddl`]), resolves every
//! name and type once, and says what is wrong in Cassandra's words. The other ([`Executor`]) binds values to plans,
//! drives the coordinator, and writes rows straight into the protocol's frames. It knows nothing of connections, of
//! files, or of how many nodes there are.

pub mod backend;
pub mod bind;
pub mod conditional;
pub mod ddl;
pub mod describe;
mod error;
mod executor;
pub mod expr;
pub mod functions;
pub mod lookup;
pub mod modification;
pub mod prepared;
mod prepared_statements;
pub mod request;
pub mod select;
mod trace;
mod watch;

pub use error::ExecError;
pub use executor::{ClientState, Executor, NodeInfo, PreparedListener};
pub use prepared_statements::PreparedStatements;
pub use request::ExecLimits;

//! CQL connections: accepting them, the handshake, authentication, pipelining, events and overload.
//!
//! Shard 0 listens on both ports and gives every connection to the shard that shall own it: on the shard-aware port
//! the one that the client's source port names, on the ordinary port the one with the fewest connections. One
//! acceptor, and not one a shard with SO_REUSEPORT, because it makes the limits of connections exact, spreads
//! connections evenly (the kernel's hash does not), and because SO_REUSEPORT would let a second process share the
//! port unnoticed. From then on a connection is one task of its shard: it reads the available bytes, starts the requests in
//! it, and writes all answers that are ready with one write.
//!
//! This crate knows no statements: a [`StatementProcessor`] executes them and writes the answer.

mod accept;
mod admission;
mod answers;
mod auth;
mod buffers;
mod client;
mod config;
mod connection;
mod handshake;
mod lending;
mod metrics;
mod peers;
mod pending;
mod processor;
mod security;
mod sessions;
mod shard;

pub use answers::{ANSWER_BYTES, AnswerBooking};
pub use auth::{AllowAll, Authenticator, SaslExchange, SaslStep};
pub use client::{Client, ConnectionInfo, ConnectionStage};
pub use config::{Canaries, NodeDescription, SessionConfig};
pub use metrics::SessionMetrics;
pub use processor::{Statement, StatementMessage, StatementProcessor};
pub use security::ClientTls;
pub use sessions::{ListeningAddresses, Sessions, SessionsEndpoint, sessions_mesh};

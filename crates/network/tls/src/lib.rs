//! TLS over the runtime's connections, for the port of other nodes and for those of clients.
//!
//! The protocol itself is rustls's, which does no IO: [`core`] feeds it bytes, [`stream`] ties it to a connection of any
//! backend, so that it runs under simulation too. [`Credentials`] are a node's certificate and truststore; they can be
//! replaced while the node runs. A secured connection moves between shards as any other does.

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

mod certificate;
mod core;
mod credentials;
mod error;
mod handshake;
mod prefixed;
mod stream;
mod trust;
mod verify;

pub use certificate::{AlternativeName, PeerCertificate};
pub use credentials::{ClientAuth, Credentials, Pem, Policy};
pub use error::TlsError;
pub use handshake::{Accepted, accept, connect, connect_to};
pub use trust::Trust;

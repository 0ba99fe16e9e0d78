//! The client of a request, as its session passes it in.

use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The client of a request.
pub struct ClientState<'a> {
    /// The keyspace of unqualified names.
    pub keyspace: Option<Rc<str>>,
    /// Where the client is.
    pub address: SocketAddr,
    /// Called by USE.
    pub set_keyspace: &'a dyn Fn(&str),
    /// Ready when there is room for the answer of a SELECT.
    pub answer_room: &'a dyn Fn(&mut Context<'_>) -> Poll<()>,
}

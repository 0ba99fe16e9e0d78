//! The client of a request, as its session passes it in.

use std::rc::Rc;
use std::task::{Context, Poll};

use crate::request::Caller;

/// The client of a request.
pub struct ClientState<'a> {
    /// The keyspace of unqualified names.
    pub keyspace: Option<Rc<str>>,
    /// Its role, and how its requests are served.
    pub caller: Caller<'a>,
    /// Called by USE.
    pub set_keyspace: &'a dyn Fn(&str),
    /// Ready when there is room for the answer of a SELECT.
    pub answer_room: &'a dyn Fn(&mut Context<'_>) -> Poll<()>,
}

//! The client of a request, as its session passes it in.

use std::rc::Rc;
use std::task::{Context, Poll};

use crate::request::Caller;

/// Bytes of an answer's rows that are not reported.
pub const ROWS_UNREPORTED_MAX: usize = 256 << 10;

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
    /// Called when the rows of an answer take more memory than [`ROWS_UNREPORTED_MAX`], or than at the last call: with the bytes.
    pub answer_grown: &'a dyn Fn(usize),
}

//! The interface of a connection to the layer below, which executes statements.

use std::future::Future;
use std::rc::Rc;

use wire::{Batch, Execute, Prepare, Query, ResponseWriter};

use crate::Client;

/// A statement as a client sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The client wants to know where the time went; the answer has to have a tracing id.
    pub tracing: bool,
    /// The request's custom payload.
    pub custom_payload: wire::CustomPayload,
    /// The statement itself.
    pub message: StatementMessage,
}

/// The requests that are statements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementMessage {
    /// A statement as text.
    Query(Query),
    /// A statement to prepare.
    Prepare(Prepare),
    /// A prepared statement to execute.
    Execute(Execute),
    /// Several statements.
    Batch(Batch),
}

/// Carries out statements.
///
/// Anything callable with these arguments that gives a future is one: `move |client, statement, response|
/// executor.clone().process(client, statement, response)`.
pub trait StatementProcessor: 'static {
    /// The execution of one statement.
    type Processing: Future<Output = ResponseWriter> + 'static;

    /// Carries out a statement that has nothing to wait for, and writes its result or the error that it ends with into `response`. False when
    /// it is to be carried out by [`StatementProcessor::process`]: nothing was done then. Called when there is room for an answer.
    fn process_now(&self, _client: &Client, _execute: &Execute, _response: &mut ResponseWriter) -> bool {
        false
    }

    /// Whether a client's request that finds no room is refused with `Overloaded` (true) or waits, its connection unread (false); none where the
    /// client's own choice counts (`THROW_ON_OVERLOAD` of STARTUP).
    fn sheds_load(&self, _client: &Client) -> Option<bool> {
        None
    }

    /// Carries out a statement and writes its result, or the error that it ends with, into `response`.
    ///
    /// The future is polled at once; one that does not wait costs neither a task nor an allocation.
    fn process(&self, client: Rc<Client>, statement: Statement, response: ResponseWriter)
    -> Self::Processing;
}

impl<P, F> StatementProcessor for P
where
    P: Fn(Rc<Client>, Statement, ResponseWriter) -> F + 'static,
    F: Future<Output = ResponseWriter> + 'static,
{
    type Processing = F;

    fn process(&self, client: Rc<Client>, statement: Statement, response: ResponseWriter) -> F {
        self(client, statement, response)
    }
}

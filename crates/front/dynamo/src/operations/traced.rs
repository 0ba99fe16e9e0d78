//! Traced requests: those that are drawn (`trace_probability`), and all in case they turn out to be slow (`slow_query_tracing`). Their sessions
//! have ScyllaDB's parameters.

use std::net::SocketAddr;

use exec::backend::Coordinator;
use exec::{Principal, Trace, Traced};

use super::Dynamo;
use crate::error::Result;
use crate::permissions::tables_of;
use crate::reply::Reply;
use crate::request::Request;

/// Bytes of a request that its session shows.
const QUERY_BYTES_MAX: usize = 4096;

impl<C: Coordinator> Dynamo<C> {
    /// Begins the trace of a request, where it is to have one.
    pub(super) fn begin_trace(&self, operation: &str, body: &[u8]) -> Option<Trace> {
        self.executor.begin_trace(false, || {
            let shown = body.get(..QUERY_BYTES_MAX).unwrap_or(body);
            let mut query = String::from_utf8_lossy(shown).into_owned();
            if shown.len() < body.len() {
                query.push_str("<truncated>");
            }
            let parameters =
                vec![("alternator_op".to_owned(), operation.to_owned()), ("query".to_owned(), query)];
            Traced { command: "QUERY", request: format!("Alternator {operation}").into(), parameters }
        })
    }

    /// [`Dynamo::run`] whose steps are recorded.
    pub(super) async fn run_traced(
        &self,
        trace: Trace,
        (operation, body): (&str, &[u8]),
        (host, source): (&str, Option<SocketAddr>),
        role: Option<&str>,
    ) -> Result<Reply> {
        let traced = Self { trace: trace.log().cloned(), ..self.clone() };
        let result = traced.run(operation, body, host, role).await;
        if let Err(error) = &result {
            self.executor.note(Some(&trace), || format!("Request failed: {}", error.message));
        }
        for (keyspace, table) in tables_of(operation, Request::parse(body).ok().as_ref()) {
            trace.add_table(&keyspace, &table);
        }
        let address = source.unwrap_or(SocketAddr::from(([0, 0, 0, 0], 0)));
        self.executor.end_trace(trace, &Principal { role, address }).await;
        result
    }
}

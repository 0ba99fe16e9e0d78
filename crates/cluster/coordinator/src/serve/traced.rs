//! A traced request of another node: its events of this node go to `system_traces.events`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use replica::TraceLog;
use replica::trace_rows::{TraceRows, TraceSource};
use rpc::{Incoming, Refusal, Verb};
use rt::{Group, Instant};
use types::uuid;

use super::Server;
use crate::traced::{decode, message_name};
use crate::{Consistency, Coordinator, WriteKind, WriteOptions};

/// How long events are kept, in seconds.
const TTL: u32 = 24 * 60 * 60;

/// How long a write of events may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

impl Server {
    /// Serves a traced request.
    pub(crate) async fn answer_traced(&self, incoming: Incoming) -> Result<Bytes, Refusal> {
        let (session, verb, body) = decode(&incoming.body)?;
        let coordinator = &self.coordinator;
        let trace = TraceLog::of(session);
        let began = (coordinator.context().rt().now(), coordinator.context().rt().wall_micros());
        let view = coordinator.view();
        let from = view.index_of(incoming.from).map_or(incoming.address.ip(), |at| view.node(at).native.ip());
        coordinator.context().note(&trace, format!("{} message received from /{from}", message_name(verb)));
        let answer = match verb {
            Verb::Forward => self.forward(&incoming, &body, Some(&trace)).await,
            _ => self.answer(verb, (incoming.from, body), Some(&trace)).await,
        };
        if let Err(refusal) = &answer {
            coordinator.context().note(&trace, refusal.message.clone());
        }
        coordinator.context().note(&trace, format!("Enqueuing response to /{from}"));
        store_events(coordinator, (session, &trace), began);
        answer
    }
}

/// Stores this node's steps for a request of another. No task waits for it.
fn store_events(
    coordinator: &Coordinator,
    (session, trace): ([u8; 16], &TraceLog),
    (began, began_micros): (Instant, i64),
) {
    let schema = coordinator.schema();
    let Some(table) = schema.table("system_traces", "events") else { return };
    let view = coordinator.view();
    let rt = coordinator.context().rt();
    let own = view.node(view.own());
    let address = SocketAddr::new(own.native.ip(), own.internode.port());
    let source = TraceSource { session, address, began, began_micros };
    // Distinguishes this node's ids from others'.
    let node = rt.random_below(1 << 48) | 1 << 40;
    let mut step = 0;
    let id = |micros| {
        step += 1;
        event_id(micros, step, node)
    };
    let update = TraceRows::new(began_micros, TTL).events(table, &source, &trace.events(), id);
    let consistency = Consistency::Any;
    let options = WriteOptions { consistency, kind: WriteKind::Simple, deadline: rt.now() + STORE_TIMEOUT };
    let writer = coordinator.clone();
    let write = async move {
        if let Err(error) = writer.write(vec![update], options).await {
            tracing::debug!("what a traced request did here could not be stored: {error:?}");
        }
    };
    rt.spawn(Group::Maintenance, write).detach();
}

/// A version 1 UUID of this moment; `step` distinguishes the events of one moment.
fn event_id(micros: i64, step: u16, node: u64) -> [u8; 16] {
    uuid::time_uuid(micros.max(0).saturating_mul(10), uuid::clock_and_node(step, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 ns intervals from 1582 to 1970.
    const UUID_EPOCH: u64 = 0x01b2_1dd2_1381_4000;

    #[test]
    fn ids_of_events_are_of_their_time_and_differ() {
        const NODE: u64 = 0x0102_0304_0506;
        // 2026-11-21T20:00:00Z.
        let id = event_id(1_795_291_200_000_000, 3, NODE);
        let ticks = u64::from_be_bytes([id[6] & 0xf, id[7], id[4], id[5], id[0], id[1], id[2], id[3]]);
        assert_eq!((ticks - UUID_EPOCH) / 10, 1_795_291_200_000_000);
        assert_eq!((id[6] >> 4, id[8] >> 6, id[9]), (1, 2, 3));
        assert_eq!(id[10..], [1, 2, 3, 4, 5, 6]);
        assert_ne!(id, event_id(1_795_291_200_000_000, 4, NODE));
    }
}

//! This node's part in forwarding (`forward`): writes of others that it passes on, and the outcomes of its own writes.

use bytes::Bytes;
use replica::TraceLog;
use rpc::{Incoming, Messenger, Refusal, Target, Verb};
use rt::{Group, Instant};
use schema::TableId;
use topology::HostId;

use super::Server;
use crate::Coordinator;
use crate::context::Context;
use crate::forward::{decode, decode_outcome, encode_outcome};
use crate::message;
use crate::peer_error::malformed;
use crate::traced;

/// This node's part in forwarding: the writes of others that it forwards, and the outcomes of its own writes.
pub(crate) fn serve(coordinator: &Coordinator, messenger: &Messenger) {
    let server = coordinator.clone();
    messenger.serve(Verb::Forward, move |incoming| {
        let server = Server::new(&server);
        async move { server.forward(&incoming, &incoming.body, None).await }
    });
    let receiver = coordinator.clone();
    messenger.serve(Verb::Outcome, move |incoming| {
        let outcome = decode_outcome(&incoming.body);
        if let Some((number, is_acknowledged)) = outcome {
            receiver.context().forwarded().notify(number, is_acknowledged);
        }
        async move {
            match outcome {
                Some(_) => Ok(Bytes::new()),
                None => Err(malformed("an outcome that is none")),
            }
        }
    });
}

impl Server {
    /// Applies a write that came by `incoming` as a forward's body, and passes it on to the others of this datacenter, with the steps of
    /// each where they are recorded.
    pub(crate) async fn forward(
        &self,
        incoming: &Incoming,
        body: &Bytes,
        trace: Option<&TraceLog>,
    ) -> Result<Bytes, Refusal> {
        let (shard, others, apply) = decode(body)?;
        let context = self.coordinator.context();
        // A forwarded write must not keep the connection's whole buffer alive.
        let apply = Bytes::copy_from_slice(&apply);
        let to = Target::Host { host: incoming.from, shard };
        for (host, number) in others {
            let (context, apply, deadline) = (context.clone(), apply.clone(), incoming.deadline);
            let session = trace.and_then(TraceLog::session);
            let tell = async move {
                let is_acknowledged = pass_on(&context, host, (apply, session), deadline).await;
                let messenger = &context.remote().remote.messenger;
                messenger.send(to, Verb::Outcome, encode_outcome(number, is_acknowledged));
            };
            self.coordinator.context().rt().spawn(Group::Statement, tell).detach();
        }
        self.answer(Verb::Apply, (incoming.from, apply), trace).await
    }
}

/// Writes to another replica of this node's datacenter, and records its events where a session is given; whether it acknowledged.
async fn pass_on(
    context: &Context,
    host: HostId,
    (apply, session): (Bytes, Option<[u8; 16]>),
    deadline: Instant,
) -> bool {
    let view = context.view();
    let Some(node) = view.index_of(host) else { return false };
    let Some((table, token)) = place_of(context, &apply) else { return false };
    let shard = view.owner(node, table, token).shard;
    let (verb, body) = match session {
        None => (Verb::Apply, apply),
        Some(session) => (Verb::Traced, traced::encode(session, Verb::Apply, &apply)),
    };
    let messenger = &context.remote().remote.messenger;
    let answer = messenger.call(Target::Host { host, shard }, verb, body, deadline).await;
    // Where it is left out, because the table was truncated since, the context is to ask itself.
    answer.is_ok_and(|answer| answer.is_empty())
}

/// The table and the token of a write, which say to which shard it goes.
fn place_of(context: &Context, apply: &Bytes) -> Option<(TableId, i64)> {
    let schema = context.schema();
    if apply.len() < message::BEGUN_LEN {
        return None;
    }
    let updates =
        message::decode_updates(&apply.slice(message::BEGUN_LEN..), |id| schema.table_by_id(id).cloned())
            .ok()?;
    updates.first().map(|update| (update.table.id, update.key.token))
}

//! Writes to replicas in another datacenter cross the distance once: one node there has the write, passes it on to the others
//! and reports to the coordinator which of them stored it. Their answers cost the distance once, too.
//!
//! | verb | body |
//! |---|---|
//! | forward | version, the coordinator's shard (2), vint count, { host (16), number (8) }, an apply's body |
//! | outcome | version, number (8), 1 when the replica stored it, else 0 |
//!
//! When the one node fails, is silent for half of the write's time (a second at most), or says that another did not take it, the
//! coordinator writes to those itself: an update may come twice.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::future::{Either, join, join_all, select};
use replica::TraceLog;
use rpc::{Incoming, Messenger, Refusal, Target, Verb};
use rt::sync::{Notify, oneshot};
use rt::{Group, Instant, Rt};
use schema::Table;
use smallvec::SmallVec;
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{HashMap, Reader};
use topology::{HostId, NodeIndex, Replicas, Sharder};

use crate::Coordinator;
use crate::remote::{self, Server, malformed};
use crate::traced;
use crate::view::ClusterView;
use crate::write::Ongoing;

const VERSION: u8 = 1;
/// The one node is not waited for any longer, however much time the write has.
const PATIENCE_MAX: Duration = Duration::from_secs(1);
/// Nodes that one is asked to pass a write on to; a datacenter has fewer replicas.
const OTHERS_MAX: u64 = 256;

/// A write's way into another datacenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Whom the coordinator tells.
    pub(crate) first: NodeIndex,
    /// The replicas to which that one forwards.
    pub(crate) others: Replicas,
}

/// How a write reaches its replicas: directly, or forwarded by another replica. Pure. `turn` chooses among equals.
pub(crate) fn routes(
    view: &ClusterView,
    nodes: &[NodeIndex],
    turn: usize,
) -> (Replicas, SmallVec<[Route; 2]>) {
    let own = view.datacenter(view.own());
    let mut direct = Replicas::new();
    let mut groups: SmallVec<[(u16, Replicas); 2]> = SmallVec::new();
    for node in nodes {
        let datacenter = view.datacenter(*node);
        if datacenter == own {
            direct.push(*node);
            continue;
        }
        match groups.iter_mut().find(|(known, _)| *known == datacenter) {
            Some((_, members)) => members.push(*node),
            None => groups.push((datacenter, Replicas::from_slice(&[*node]))),
        }
    }
    let mut forwarded = SmallVec::new();
    for (_, mut members) in groups {
        if members.len() == 1 {
            direct.extend(members);
            continue;
        }
        let first = members.remove(turn % members.len());
        forwarded.push(Route { first, others: members });
    }
    (direct, forwarded)
}

/// This shard's writes that other nodes forward, until their outcomes arrive.
pub(crate) struct Outcomes {
    next: Cell<u64>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<bool>>>,
}

impl Outcomes {
    /// The outcomes of one process lifetime. Its numbers begin at random: an outcome that was sent to the lifetime before, and
    /// arrives after a restart, must not name a write of this one.
    pub(crate) fn new(rt: &Rt) -> Self {
        Self { next: Cell::new(rt.random_u64()), waiting: RefCell::default() }
    }

    /// A number, and what its outcome will come through.
    fn expect(&self) -> (u64, oneshot::Receiver<bool>) {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(number, sender);
        (number, receiver)
    }

    fn forget(&self, number: u64) {
        self.waiting.borrow_mut().remove(&number);
    }

    /// The outcome of a write arrived. One whose write no longer waits is dropped.
    fn tell(&self, number: u64, has_it: bool) {
        if let Some(sender) = self.waiting.borrow_mut().remove(&number) {
            // The receiver may have given up.
            let _ = sender.send(has_it);
        }
    }

    /// Outcomes that are waited for.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }
}

fn encode(shard: u16, others: &[(HostId, u64)], apply: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(16 + 24 * others.len() + apply.len());
    out.push(VERSION);
    out.extend_from_slice(&shard.to_be_bytes());
    write_unsigned(others.len() as u64, &mut out);
    for (host, number) in others {
        out.extend_from_slice(&host.0);
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(apply);
    out.into()
}

/// A write to pass on: who waits for the outcomes, whom to tell, and the write.
type Passed = (u16, Vec<(HostId, u64)>, Bytes);

fn decode(body: &Bytes) -> Result<Passed, Refusal> {
    let mut reader = Reader::new(body);
    let short = |_| malformed("a write to pass on that ends too early");
    if reader.u8().map_err(short)? != VERSION {
        return Err(malformed("a version of writes to pass on that this node does not know"));
    }
    let shard = reader.u16().map_err(short)?;
    let count = read_unsigned(&mut reader).map_err(short)?;
    if count > OTHERS_MAX {
        return Err(malformed("a write to pass on to too many"));
    }
    let mut others = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let host = reader.bytes(16).map_err(short)?.try_into().expect("16 bytes");
        let number = reader.bytes(8).map_err(short)?.get_u64();
        others.push((HostId(host), number));
    }
    Ok((shard, others, body.slice_ref(reader.rest())))
}

fn encode_outcome(number: u64, has_it: bool) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&number.to_be_bytes());
    out.push(u8::from(has_it));
    out.into()
}

fn decode_outcome(body: &[u8]) -> Option<(u64, bool)> {
    match body {
        [VERSION, number @ .., has_it @ 0..=1] => {
            Some((u64::from_be_bytes(number.try_into().ok()?), *has_it == 1))
        }
        _ => None,
    }
}

impl Ongoing {
    /// Writes to replicas of another datacenter by way of one of them.
    pub(crate) async fn forward(self: Rc<Self>, route: Route, token: i64, table: Arc<Table>, body: Bytes) {
        let outcomes = self.coordinator().forwarded();
        let others: Vec<(NodeIndex, Expected<'_>)> =
            route.others.iter().map(|node| (*node, Expected::new(outcomes))).collect();
        let view = self.view();
        let named: Vec<(HostId, u64)> =
            others.iter().map(|(node, expected)| (view.node(*node).host, expected.number)).collect();
        let message = encode(self.coordinator().shard(), &named, &body);
        let broken = Notify::new();
        // Who is silent for half of the time is not waited for with the other half.
        let now = self.coordinator().rt().now();
        let patience = now + ((self.deadline() - now) / 2).min(PATIENCE_MAX);
        let first = async {
            if !self.send_as(route.first, token, &table, (Verb::Forward, message, &body)).await {
                broken.notify_all();
            }
        };
        let each = others.into_iter().map(|(node, expected)| {
            // Before the first is asked: a notice is for those who wait already.
            let broken = broken.notified();
            let (ongoing, table, body) = (&self, &table, &body);
            async move {
                let told = ongoing.coordinator().rt().timeout_at(patience, select(expected, broken)).await;
                match told {
                    Ok(Either::Left((true, _))) => ongoing.acknowledged(node),
                    Ok(_) | Err(_) => ongoing.send(node, token, table, body.clone()).await,
                }
            }
        });
        let each: Vec<_> = each.collect();
        join(first, join_all(each)).await;
    }
}

/// An outcome that is waited for; forgotten when it is not any more.
struct Expected<'a> {
    outcomes: &'a Outcomes,
    number: u64,
    receiver: oneshot::Receiver<bool>,
}

impl<'a> Expected<'a> {
    fn new(outcomes: &'a Outcomes) -> Self {
        let (number, receiver) = outcomes.expect();
        Self { outcomes, number, receiver }
    }
}

impl Future for Expected<'_> {
    type Output = bool;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<bool> {
        Pin::new(&mut self.receiver).poll(cx).map(|outcome| outcome.unwrap_or(false))
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.outcomes.forget(self.number);
    }
}

/// This node's part in forwarding: the writes of others that it forwards, and the outcomes of its own writes.
pub(crate) fn serve(coordinator: &Coordinator, messenger: &Messenger) {
    let server = coordinator.clone();
    messenger.serve(Verb::Forward, move |incoming| {
        let server = Server { coordinator: server.clone() };
        async move { server.forward(&incoming, &incoming.body, None).await }
    });
    let told = coordinator.clone();
    messenger.serve(Verb::Outcome, move |incoming| {
        let outcome = decode_outcome(&incoming.body);
        if let Some((number, has_it)) = outcome {
            told.forwarded().tell(number, has_it);
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
        let coordinator = &self.coordinator;
        // What is passed on must not keep the connection's whole buffer.
        let apply = Bytes::copy_from_slice(&apply);
        let to = Target::Host { host: incoming.from, shard };
        for (host, number) in others {
            let (coordinator, apply, deadline) = (coordinator.clone(), apply.clone(), incoming.deadline);
            let session = trace.map(TraceLog::session);
            let tell = async move {
                let has_it = pass_on(&coordinator, host, (apply, session), deadline).await;
                let messenger = &coordinator.remote().remote.messenger;
                messenger.send(to, Verb::Outcome, encode_outcome(number, has_it));
            };
            self.coordinator.rt().spawn(Group::Statement, tell).detach();
        }
        self.answer(Verb::Apply, apply, trace).await
    }
}

/// Writes to another replica of this node's datacenter, and records its events where a session is given; whether it acknowledged.
async fn pass_on(
    coordinator: &Coordinator,
    host: HostId,
    (apply, session): (Bytes, Option<[u8; 16]>),
    deadline: Instant,
) -> bool {
    let view = coordinator.view();
    let Some(node) = view.index_of(host) else { return false };
    let Some(token) = token_of(coordinator, &apply) else { return false };
    let shard = Sharder::new(view.node(node).shards).shard_of(token);
    let (verb, body) = match session {
        None => (Verb::Apply, apply),
        Some(session) => (Verb::Traced, traced::encode(session, Verb::Apply, &apply)),
    };
    let messenger = &coordinator.remote().remote.messenger;
    let answer = messenger.call(Target::Host { host, shard }, verb, body, deadline).await;
    // Where it is left out, because the table was truncated since, the coordinator is to ask itself.
    answer.is_ok_and(|answer| answer.is_empty())
}

/// The token of a write, which says to which shard it goes.
fn token_of(coordinator: &Coordinator, apply: &Bytes) -> Option<i64> {
    let schema = coordinator.schema();
    if apply.len() < remote::BEGUN_LEN {
        return None;
    }
    let updates =
        remote::decode_updates(&apply.slice(remote::BEGUN_LEN..), |id| schema.table_by_id(id).cloned())
            .ok()?;
    updates.first().map(|update| update.key.token)
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;

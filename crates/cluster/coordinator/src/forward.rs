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

#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used))]

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use rpc::Refusal;
use rt::sync::oneshot;
use smallvec::SmallVec;
use stdx::vint::{read_unsigned, write_unsigned};
use stdx::{HashMap, Reader};
use topology::{ClusterView, HostId, NodeIndex, Replicas};

use crate::peer_error::malformed;

const VERSION: u8 = 1;
/// Nodes to which one node forwards a write; a datacenter has fewer replicas.
const OTHERS_MAX: u64 = 256;

/// A write's way into another datacenter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// The receivers of the coordinator's messages.
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
        assert!(!members.is_empty(), "a node that forwards a write has others to send it to");
        forwarded.push(Route { first, others: members });
    }
    let routed: usize = forwarded.iter().map(|route: &Route| 1 + route.others.len()).sum();
    assert_eq!(direct.len() + routed, nodes.len(), "a write reaches each replica by one way");
    (direct, forwarded)
}

/// This shard's writes that other nodes forward, until their outcomes arrive.
pub(crate) struct Outcomes {
    next: Cell<u64>,
    waiting: RefCell<HashMap<u64, oneshot::Sender<bool>>>,
}

impl Outcomes {
    /// The outcomes of one process lifetime, which a random number names. Numbers begin there: an outcome that was sent to the lifetime
    /// before, and arrives after a restart, must not name a write of this one.
    pub(crate) fn new(lifetime: u64) -> Self {
        Self { next: Cell::new(lifetime), waiting: RefCell::default() }
    }

    /// A number, and the channel of its outcome.
    fn expect(&self) -> (u64, oneshot::Receiver<bool>) {
        let number = self.next.get();
        self.next.set(number.wrapping_add(1));
        let (sender, receiver) = oneshot::channel();
        let known = self.waiting.borrow_mut().insert(number, sender);
        assert!(known.is_none(), "an outcome that is waited for has a number of its own");
        (number, receiver)
    }

    fn forget(&self, number: u64) {
        self.waiting.borrow_mut().remove(&number);
    }

    /// The outcome of a write arrived. One whose write no longer waits is dropped.
    pub(crate) fn notify(&self, number: u64, is_acknowledged: bool) {
        if let Some(sender) = self.waiting.borrow_mut().remove(&number) {
            // The receiver may have given up.
            let _ = sender.send(is_acknowledged);
        }
    }

    /// Outcomes that are waited for.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }
}

pub(crate) fn encode(shard: u16, others: &[(HostId, u64)], apply: &[u8]) -> Bytes {
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

/// A write to pass on: the shard that waits for the outcomes, the nodes to notify, and the write.
pub(crate) type Passed = (u16, Vec<(HostId, u64)>, Bytes);

pub(crate) fn decode(body: &Bytes) -> Result<Passed, Refusal> {
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
        let host = reader.array().map_err(short)?;
        let number = reader.u64().map_err(short)?;
        others.push((HostId(host), number));
    }
    Ok((shard, others, body.slice_ref(reader.rest())))
}

pub(crate) fn encode_outcome(number: u64, is_acknowledged: bool) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&number.to_be_bytes());
    out.push(u8::from(is_acknowledged));
    out.into()
}

pub(crate) fn decode_outcome(body: &[u8]) -> Option<(u64, bool)> {
    match body {
        [VERSION, number @ .., is_acknowledged @ 0..=1] => {
            Some((u64::from_be_bytes(number.try_into().ok()?), *is_acknowledged == 1))
        }
        _ => None,
    }
}

/// An outcome that is waited for; forgotten when it is not any more.
pub(crate) struct Expected<'a> {
    outcomes: &'a Outcomes,
    pub(crate) number: u64,
    receiver: oneshot::Receiver<bool>,
}

impl<'a> Expected<'a> {
    pub(crate) fn new(outcomes: &'a Outcomes) -> Self {
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

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;

//! This node's answers to others about the group.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};

use bytes::Bytes;
use raft::Message;
use rpc::{Incoming, Messenger, Refusal, Target, Verb};
use rt::{Instant, Task};
use topology::HostId;

use super::handle::{Group, await_in_use, propose_here, read_here};
use super::inner::{Inner, Input, Proposed};
use super::pieces;
use super::wire::{self, Forward, JoinAnswer, JoinPeer, JoinRequest, WireError, code};
use crate::state::text::{parse_uuid, uuid};
use crate::state::{
    self, ChangeStep, ClusterState, Command, Member, MemberStatus, Outcome, Refused, STATE_VERSION,
};

/// How long a host is given to show that it lives.
const ALIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(1);
/// The same of one that is to be replaced: convicting it would cost its tokens.
const REPLACED_ALIVE_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(4);

/// Registers the group's verbs.
pub(crate) fn serve(group: &Group, responder: &JoinResponder) {
    let messenger = &group.inner.messenger;
    let inner = Rc::downgrade(&group.inner);
    messenger.serve(Verb::Raft, move |incoming| {
        let taken = take_message(&inner, &incoming);
        async move { taken }
    });
    let inner = Rc::downgrade(&group.inner);
    messenger.serve(Verb::RaftSnapshot, move |incoming| {
        let taken = running(&inner).and_then(|inner| match inner.may_vote() {
            true => pieces::take(&inner, &incoming),
            false => Err(not_leader("it is not known yet whether this node's disk was rolled back")),
        });
        async move { taken }
    });
    let inner = Rc::downgrade(&group.inner);
    messenger.serve(Verb::RaftForward, move |incoming| {
        let inner = inner.clone();
        async move { forwarded(&running(&inner)?, incoming).await }
    });
    let (inner, tasks) = (Rc::downgrade(&group.inner), Rc::downgrade(&group.tasks));
    responder.set(JoinState::Member(inner, tasks));
}

/// This node's answer to a joining node.
pub(crate) enum JoinState {
    /// It reads its disk, or is about to found or enter a cluster.
    Starting,
    /// It has no cluster, and founds one if it may (the flag), or waits to be let in.
    Blank {
        founds: bool,
    },
    Member(Weak<Inner>, Weak<RefCell<Vec<Task<()>>>>),
}

/// The answer, which changes as the node enters its cluster.
#[derive(Clone)]
pub(crate) struct JoinResponder(Rc<RefCell<JoinState>>);

impl JoinResponder {
    /// Answers from now on.
    pub(crate) fn open(messenger: &Messenger) -> Self {
        let responder = Self(Rc::new(RefCell::new(JoinState::Starting)));
        let answering = responder.clone();
        messenger.serve(Verb::Join, move |incoming| {
            let group = answering.group();
            async move { join(&group?, incoming).await }
        });
        responder
    }

    pub(crate) fn set(&self, state: JoinState) {
        let known = self.0.replace(state);
        assert!(!matches!(known, JoinState::Member(..)), "a node that is in a cluster stays in it");
    }

    fn group(&self) -> Result<Group, Refusal> {
        match &*self.0.borrow() {
            JoinState::Starting => Err(Refusal::new(code::JOIN_LATER, "this node is starting")),
            JoinState::Blank { founds: true } => {
                Err(Refusal::new(code::BLANK_FOUNDER, "this node has no cluster, and may found one"))
            }
            JoinState::Blank { founds: false } => Err(Refusal::new(code::BLANK, "this node has no cluster")),
            JoinState::Member(inner, tasks) => {
                let tasks = tasks.upgrade().ok_or_else(|| not_leader("the node is stopping"))?;
                Ok(Group { inner: running(inner)?, tasks })
            }
        }
    }
}

fn running(inner: &Weak<Inner>) -> Result<Rc<Inner>, Refusal> {
    inner.upgrade().ok_or_else(|| not_leader("the node is stopping"))
}

fn not_leader(message: &str) -> Refusal {
    Refusal::new(code::NOT_LEADER, message)
}

fn take_message(inner: &Weak<Inner>, incoming: &Incoming) -> Result<Bytes, Refusal> {
    let inner = running(inner)?;
    let body = inner.verify(incoming)?;
    if !inner.may_vote() {
        // As if the message were lost: it is sent again.
        return Ok(Bytes::new());
    }
    let message = Message::decode(&body).map_err(|error| {
        tracing::warn!("a message of the cluster's log from {}: {error}", incoming.address);
        Refusal::new(code::BAD_REQUEST, error.to_string())
    })?;
    inner.push(Input::Message { from: incoming.from, message });
    Ok(Bytes::new())
}

async fn forwarded(inner: &Rc<Inner>, incoming: Incoming) -> Result<Bytes, Refusal> {
    match Forward::decode(&inner.verify(&incoming)?)? {
        Forward::Propose(bytes) => {
            // An entry that cannot be decoded here must not enter the log: every node would stop at it.
            let proposal = state::check(&bytes).await.map_err(WireError::from)?;
            match propose_here(inner, proposal.id, bytes, incoming.deadline).await {
                Proposed::Applied { index, outcome } => Ok(wire::encode_applied(index, &outcome)),
                Proposed::NotLeader => Err(not_leader("this node does not lead")),
                Proposed::Busy => Err(Refusal::new(code::BUSY, "the leader takes nothing at the moment")),
                Proposed::Lost => Err(Refusal::new(code::LOST, "leadership was lost")),
            }
        }
        Forward::Read => match read_here(inner, incoming.deadline).await {
            Some(index) => Ok(wire::encode_number(index)),
            None => Err(not_leader("this node does not lead")),
        },
        Forward::AwaitSchema(number) => Ok(wire::encode_number(await_in_use(inner, number).await)),
        Forward::Follows => {
            inner.push(Input::Follows(incoming.from));
            Ok(Bytes::new())
        }
        Forward::Removed(host) => Ok(wire::encode_number(u64::from(inner.state().was_removed(host)))),
        Forward::Where(number) => {
            let state = inner.state();
            let mut members = state.members.iter();
            let found = members.find(|(_, member)| member.number == number);
            Ok(wire::encode_json(&found.map(|(host, member)| join_peer(*host, member))))
        }
    }
}

/// Lets a node in.
async fn join(group: &Group, incoming: Incoming) -> Result<Bytes, Refusal> {
    let request: JoinRequest = wire::decode_json(&incoming.body)?;
    let refused = |why: String| Refusal::new(code::JOIN_REFUSED, why);
    let later = |why: &str| Refusal::new(code::JOIN_LATER, why);
    let (inner, state) = (&group.inner, group.inner.state());
    if request.cluster_name != inner.config.cluster_name {
        return Err(refused(format!(
            "this is cluster '{}', not '{}'; correct cluster_name or seeds",
            inner.config.cluster_name, request.cluster_name
        )));
    }
    if request.host != incoming.from {
        return Err(refused(format!("the request is not of host {}", uuid(&incoming.from.0))));
    }
    if state.members.is_empty() {
        return Err(later("this node has not joined the cluster itself yet"));
    }
    if let Some(known) = state.member(request.host) {
        let same = known.info.internode == request.info.internode;
        if !same && lives(inner, request.host, incoming.deadline, ALIVE_TIMEOUT).await {
            return Err(refused(format!(
                "host {} runs at {} already; two nodes have copies of one data directory: clear that of the new one",
                uuid(&request.host.0),
                known.info.internode
            )));
        }
        if same && known.status != MemberStatus::Joining {
            return Err(refused(format!(
                "host {} is a member already, and its raft directory is gone; restore it, or run removenode and clear the \
                 data directory",
                uuid(&request.host.0)
            )));
        }
    }
    let replaces = match &request.replaces {
        Some(named) => Some(replaced(inner, named, incoming.deadline).await.map_err(refused)?),
        None => None,
    };
    let add = Command::AddMember { host: request.host, info: request.info, replaces };
    let mut decided = group.propose(add.clone(), incoming.deadline).await;
    if let Ok(Outcome::Refused(Refused::AddressTaken { address, host: former })) = &decided
        && is_joining(&inner.state(), *former)
    {
        let (address, former) = (*address, *former);
        give_up_join(group, former, address, incoming.deadline).await?;
        decided = group.propose(add, incoming.deadline).await;
    }
    match decided {
        Ok(Outcome::Added { number }) => Ok(wire::encode_json(&answer(inner, number))),
        Ok(Outcome::Refused(why)) => Err(refused(why.to_string())),
        Ok(other) => unreachable!("a member that is added has the outcome {other:?}"),
        Err(error) => Err(later(&error.to_string())),
    }
}

fn is_joining(state: &ClusterState, host: HostId) -> bool {
    state.member(host).is_some_and(|member| member.status == MemberStatus::Joining)
}

/// Takes a host out that began to join at an address where another one asks to be let in: its disk was lost before it owned anything.
///
/// # Errors
/// The operator's message when that host lives, or its join cannot be given up (any more).
async fn give_up_join(
    group: &Group,
    host: HostId,
    address: SocketAddr,
    deadline: Instant,
) -> Result<(), Refusal> {
    let (inner, name) = (&group.inner, uuid(&host.0));
    let refused = |why: String| {
        Refusal::new(code::JOIN_REFUSED, format!("{address} is the address of host {name}, {why}"))
    };
    if lives(inner, host, deadline, ALIVE_TIMEOUT).await {
        return Err(refused("which is joining: use another address".to_owned()));
    }
    let state = inner.state();
    let change = state.change.as_ref().filter(|change| change.joins == Some(host));
    if change.is_some_and(|change| change.step == ChangeStep::Switched) {
        return Err(refused(format!(
            "which is down, and whose join the others complete: when `nodetool status` shows it as DN, start with replace_node_first_boot: {name}"
        )));
    }
    match group.propose(Command::RemoveMember { host }, deadline).await {
        Ok(Outcome::Refused(why)) => Err(refused(format!(
            "which is down and has not finished joining: take it out with `nodetool removenode {name}` ({why})"
        ))),
        Ok(_) => {
            tracing::warn!(
                "host {name}, which began to join at {address}, is gone: its attempt is given up, as another host joins from there"
            );
            Ok(())
        }
        Err(error) => Err(Refusal::new(code::JOIN_LATER, error.to_string())),
    }
}

/// The dead host that a node is to replace.
async fn replaced(inner: &Inner, named: &str, deadline: Instant) -> Result<HostId, String> {
    let state = inner.state();
    let Some(host) = find_member(&state, named) else {
        return Err(format!("Cannot replace {named}: no node of this cluster has that address or host id"));
    };
    if lives(inner, host, deadline, REPLACED_ALIVE_TIMEOUT).await {
        return Err(format!("Cannot replace a live node: {named} (host {}) answers", uuid(&host.0)));
    }
    Ok(host)
}

/// A member by its host id or by one of its addresses. Of two at one address it is the one that owns tokens.
fn find_member(state: &ClusterState, named: &str) -> Option<HostId> {
    if let Some(id) = parse_uuid(named) {
        return state.member(HostId(id)).map(|_| HostId(id));
    }
    let wanted: IpAddr = named.parse().ok()?;
    let here = |member: &Member| {
        (member.info.internode.ip() == wanted || member.info.native.ip() == wanted)
            && member.status != MemberStatus::Joining
    };
    state.members.iter().find(|(_, member)| here(member)).map(|(host, _)| *host)
}

/// Whether a host answers where the state says that it is.
async fn lives(inner: &Inner, host: HostId, deadline: Instant, longest: std::time::Duration) -> bool {
    let until = deadline.min(inner.rt.now() + longest);
    let target = Target::Host { host, shard: 0 };
    let body = inner.sign(&Forward::Removed(host).encode());
    inner.messenger.call(target, Verb::RaftForward, body, until).await.is_ok()
}

fn answer(inner: &Inner, number: u64) -> JoinAnswer {
    let state = inner.state();
    let peers = state.members.iter().map(|(host, member)| join_peer(*host, member));
    JoinAnswer { number, state_version: STATE_VERSION, cluster_id: state.cluster_id, peers: peers.collect() }
}

fn join_peer(host: HostId, member: &Member) -> JoinPeer {
    let (internode, shard_count) = (member.info.internode, member.info.shard_count);
    JoinPeer { host, number: member.number, internode, shard_count }
}

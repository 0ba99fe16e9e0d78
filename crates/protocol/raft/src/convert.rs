//! Between our values and those of the `raft` crate.
//!
//! The `raft` crate wants a change of the group as protobuf bytes in an entry's data and reads them only where it is proposed.
//! Ours stands in the entry's context; it alone is looked at afterwards, and the data of such an entry is neither stored nor
//! sent.

use std::collections::BTreeSet;

use tikv_raft::eraftpb as pb;

use crate::codec;
use crate::data::{Change, Entry, HardState, Membership, Payload, Snapshot};

pub(crate) fn entry_to_pb(entry: &Entry) -> pb::Entry {
    let mut out = pb::Entry { index: entry.index, term: entry.term, ..pb::Entry::default() };
    match &entry.payload {
        Payload::Empty => {}
        Payload::Command(data) => out.data = data.clone(),
        Payload::Membership(changes) => {
            out.set_entry_type(pb::EntryType::EntryConfChangeV2);
            out.context = codec::encode_changes(changes).into();
        }
    }
    out
}

/// The entries of a node that never held other entries than those made by [`entry_to_pb`] or a proposal.
pub(crate) fn entry_from_pb(entry: &pb::Entry) -> Entry {
    let payload = match entry.get_entry_type() {
        pb::EntryType::EntryNormal if entry.data.is_empty() => Payload::Empty,
        pb::EntryType::EntryNormal => Payload::Command(entry.data.clone()),
        pb::EntryType::EntryConfChange | pb::EntryType::EntryConfChangeV2 => {
            Payload::Membership(changes_of(entry))
        }
    };
    Entry { index: entry.index, term: entry.term, payload }
}

/// The changes of membership in an entry.
#[expect(clippy::expect_used, reason = "changes are decoded when they arrive or are read from disk")]
pub(crate) fn changes_of(entry: &pb::Entry) -> Vec<Change> {
    codec::decode_changes(&entry.context).expect("only checked changes are proposed, stored and received")
}

pub(crate) fn changes_to_pb(changes: &[Change]) -> pb::ConfChangeV2 {
    let mut out = pb::ConfChangeV2::default();
    for change in changes {
        let (kind, node) = match *change {
            Change::AddVoter(node) => (pb::ConfChangeType::AddNode, node),
            Change::AddLearner(node) => (pb::ConfChangeType::AddLearnerNode, node),
            Change::Remove(node) => (pb::ConfChangeType::RemoveNode, node),
        };
        let mut single = pb::ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = node;
        out.mut_changes().push(single);
    }
    out
}

pub(crate) fn membership_to_pb(membership: &Membership) -> pb::ConfState {
    let list = |nodes: &BTreeSet<u64>| nodes.iter().copied().collect::<Vec<u64>>();
    let mut out = pb::ConfState::default();
    out.set_voters(list(&membership.voters));
    out.set_learners(list(&membership.learners));
    out.set_voters_outgoing(list(&membership.outgoing));
    out.set_learners_next(list(&membership.learners_next));
    out.auto_leave = membership.auto_leave;
    out
}

pub(crate) fn membership_from_pb(state: &pb::ConfState) -> Membership {
    let set = |nodes: &[u64]| nodes.iter().copied().collect::<BTreeSet<u64>>();
    Membership {
        voters: set(state.get_voters()),
        learners: set(state.get_learners()),
        outgoing: set(state.get_voters_outgoing()),
        learners_next: set(state.get_learners_next()),
        auto_leave: state.auto_leave,
    }
}

pub(crate) fn snapshot_to_pb(snapshot: &Snapshot) -> pb::Snapshot {
    let mut out = pb::Snapshot { data: snapshot.data.clone(), ..pb::Snapshot::default() };
    let metadata = out.mut_metadata();
    metadata.index = snapshot.index;
    metadata.term = snapshot.term;
    metadata.set_conf_state(membership_to_pb(&snapshot.membership));
    out
}

pub(crate) fn snapshot_from_pb(snapshot: &pb::Snapshot) -> Snapshot {
    let metadata = snapshot.get_metadata();
    Snapshot {
        index: metadata.index,
        term: metadata.term,
        membership: membership_from_pb(metadata.get_conf_state()),
        data: snapshot.data.clone(),
    }
}

pub(crate) fn hard_state_to_pb(state: &HardState) -> pb::HardState {
    pb::HardState { term: state.term, vote: state.vote, commit: state.commit, ..pb::HardState::default() }
}

pub(crate) fn hard_state_from_pb(state: &pb::HardState) -> HardState {
    HardState { term: state.term, vote: state.vote, commit: state.commit }
}

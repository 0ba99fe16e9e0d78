//! The relation between the state before any command and the one after it: asserted at every entry that a node
//! applies.
//!
//! Each follows from the code of `apply` alone. A command or a snapshot of a peer is refused before it could break one of them
//! ([`super::codec`] holds a snapshot's numbers against each other): every node applies every entry, so a command that made one of
//! these assertions fail would stop all of them.

use topology::HostId;

use super::command::Outcome;
use super::member::{Member, MemberStatus};
use super::topology_change::{ChangeStep, TopologyChange};
use super::{ClusterState, OUTCOMES_MAX, REMOVED_MAX};

/// Asserts that `after` is a successor of `before`, and that `outcome` is right.
pub(super) fn assert_follows(before: &ClusterState, after: &ClusterState, outcome: &Outcome) {
    assert!(after.schema_number >= before.schema_number, "the schema's number never goes back");
    assert!(after.topology_version >= before.topology_version, "the topology version never goes back");
    assert!(after.last_change >= before.last_change, "numbers of topology changes never go back");
    assert!(after.next_number >= before.next_number, "numbers of members never go back");
    assert!(after.fence >= before.fence, "the fence never goes back");
    assert!(after.fence <= after.topology_version, "the fence is a topology version that was in force");
    assert_eq!(after.cluster_id, before.cluster_id, "no command changes the cluster's id");
    let same_schema = after.schema.version() == before.schema.version();
    assert!(same_schema || after.schema_number > before.schema_number, "another schema has a later number");
    let same_change = after.change == before.change;
    assert!(
        same_change || after.topology_version > before.topology_version,
        "a step of a topology change has a topology version"
    );
    assert!(after.removed.len() <= before.removed.len().max(REMOVED_MAX), "removed hosts are bounded");
    assert!(after.recent.len() <= before.recent.len().max(OUTCOMES_MAX), "outcomes are bounded");
    assert_members_follow(before, after);
    if let Some(change) = &after.change {
        let known = before.change.as_ref().filter(|known| known.number == change.number);
        assert_change_follows(known, change, before, after);
    }
    assert_outcome(before, after, outcome);
}

fn assert_members_follow(before: &ClusterState, after: &ClusterState) {
    for (host, member) in &after.members {
        match before.members.get(host) {
            Some(known) => assert_member_follows(before, after, known, member),
            None => assert_admitted(before, *host, member),
        }
    }
    let gone = before.members.keys().filter(|host| !after.members.contains_key(host));
    for host in gone {
        assert!(after.was_removed(*host), "a host that is no member any more cannot come back");
        let version = after.topology_version;
        assert!(version > before.topology_version, "a removed member raises the topology version");
    }
    let had_owner = before.owners().next().is_some();
    assert!(!had_owner || after.owners().next().is_some(), "somebody owns the data");
}

fn assert_member_follows(before: &ClusterState, after: &ClusterState, known: &Member, member: &Member) {
    assert_eq!(member.number, known.number, "a member keeps its number in the Raft group");
    assert!(known.status.may_become(member.status), "a member takes only permitted steps");
    let moved = (known.status, &known.tokens) != (member.status, &member.tokens);
    assert!(
        !moved || after.topology_version > before.topology_version,
        "another place on the ring has another topology version"
    );
    if known.status == MemberStatus::Joining && member.status == MemberStatus::Normal {
        assert!(!member.tokens.is_empty(), "a member in force owns tokens");
        assert_eq!(member.replaces, None, "the host that a member replaced is gone when it is in force");
    }
    if member.tokens != known.tokens && member.status != MemberStatus::Left {
        assert_eq!(known.status, MemberStatus::Joining, "only a joining node takes tokens");
        let ascending = member.tokens.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(ascending, "tokens are ascending and distinct");
    }
}

/// A host that was no member before.
fn assert_admitted(before: &ClusterState, host: HostId, member: &Member) {
    assert_eq!(member.number, before.next_number, "a new member gets the next number");
    assert_eq!(member.status, MemberStatus::Joining, "a new member joins");
    assert!(member.tokens.is_empty(), "a new member owns nothing");
    assert!(!before.was_removed(host), "a removed host does not come back");
    assert_ne!(member.replaces, Some(host), "a node does not replace itself");
}

/// `known` is the same change before the command, if it was under way then.
fn assert_change_follows(
    known: Option<&TopologyChange>,
    change: &TopologyChange,
    before: &ClusterState,
    after: &ClusterState,
) {
    assert!(change.since <= after.topology_version, "a change is in force since a version that was reached");
    assert!(change.number <= after.last_change, "the number of a change was given out");
    let Some(known) = known else {
        assert!(change.number > before.last_change, "a new change has a new number");
        assert_eq!(change.step, ChangeStep::Announced, "a change is announced first");
        assert!(change.fetched.is_empty(), "nobody has fetched before a change is announced");
        let moves_nodes = change.joins.or(change.leaves).is_some();
        assert_ne!(moves_nodes, !change.alters.is_empty(), "replicas move for one reason at a time");
        let mut hosts = change.joins.iter().chain(&change.leaves);
        assert!(hosts.all(|host| after.members.contains_key(host)), "a change is of members");
        return;
    };
    assert!(change.step >= known.step, "a change does not go back a step");
    assert!(change.since >= known.since, "a step of a change begins after the one before");
    assert!(change.fetched.is_superset(&known.fetched), "a host that has fetched has fetched");
    assert_eq!((change.joins, change.leaves), (known.joins, known.leaves), "a change keeps its hosts");
    assert!(
        change.alters.keys().all(|keyspace| known.alters.contains_key(keyspace)),
        "a keyspace is not added to a change under way"
    );
}

fn assert_outcome(before: &ClusterState, after: &ClusterState, outcome: &Outcome) {
    match outcome {
        Outcome::Done { topology_version } => {
            let reached = before.topology_version..=after.topology_version;
            assert!(reached.contains(topology_version), "the outcome names a version that was reached");
        }
        Outcome::SchemaChanged { number, version } => {
            assert_eq!(*number, after.schema_number, "the outcome names the schema's number");
            assert_eq!(*version, after.schema.version(), "the outcome names the schema's version");
            assert_eq!(*number, before.schema_number + 1, "a schema change has the next number");
        }
        Outcome::Added { number } => {
            assert!(after.host_of(*number).is_some(), "the outcome names the number of a member");
        }
        Outcome::Refused(_) => return,
    }
    assert!(
        after.deferred.is_empty() || after.change.is_some(),
        "deferred moves of replicas are resumed when no other change is under way"
    );
}

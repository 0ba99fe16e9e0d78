//! Which topology changes are refused, and with which words: Cassandra's, where it has some. Pure.

use std::collections::{BTreeMap, BTreeSet};

use cluster::state::{ChangeStep, ClusterState, Member, MemberStatus, TopologyChange};
use schema::Replication;
use topology::HostId;

use crate::ignored::IGNORED_MAX;

/// The nodes of each datacenter that own tokens and stay.
fn sizes(state: &ClusterState) -> BTreeMap<&str, usize> {
    let mut sizes = BTreeMap::new();
    for member in state.members.values().filter(|member| member.status == MemberStatus::Normal) {
        *sizes.entry(&*member.info.location.datacenter).or_insert(0) += 1;
    }
    sizes
}

/// Whether a node may leave. Nodes that are down are named, as any of them may have to stream ranges of this one: the change would wait for it, and
/// all others behind the change.
pub(crate) fn decommission(
    state: &ClusterState,
    own: HostId,
    force: bool,
    alive: impl Fn(HostId) -> bool,
) -> Result<(), String> {
    let Some(member) = state.member(own) else {
        return Err("local node is not a member of the token ring yet".to_owned());
    };
    match member.status {
        // It is under way already: to ask again is to wait for it.
        MemberStatus::Leaving => return Ok(()),
        MemberStatus::Normal => {}
        MemberStatus::Joining => return Err("local node is not a member of the token ring yet".to_owned()),
        other => return Err(format!("this node is {other}; it cannot leave")),
    }
    let sizes = sizes(state);
    if sizes.values().sum::<usize>() < 2 {
        return Err("no other normal nodes in the ring; decommission would be pointless".to_owned());
    }
    if !force {
        keeps_copies(state, own, &sizes)?;
    }
    let down: Vec<String> = down(state, own, alive).map(|host| named(state, host)).collect();
    if down.is_empty() {
        return Ok(());
    }
    Err(format!(
        "nodes of the cluster are down: {}. They may have to stream ranges of this node, and its decommission would wait for them (with force too): start \
         them, or remove or replace them first (nodetool removenode HOST_ID)",
        down.join(", ")
    ))
}

/// The nodes that own tokens, stay, and are down.
fn down(state: &ClusterState, own: HostId, alive: impl Fn(HostId) -> bool) -> impl Iterator<Item = HostId> {
    let is_down = move |host: &HostId, member: &Member| {
        member.status == MemberStatus::Normal && *host != own && !alive(*host)
    };
    state.members.iter().filter(move |(host, member)| is_down(host, member)).map(|(host, _)| *host)
}

/// A node by address and identity.
fn named(state: &ClusterState, host: HostId) -> String {
    let id = schema::TableId(host.0);
    match state.member(host) {
        Some(member) => format!("{} (host {id})", member.info.internode.ip()),
        None => format!("host {id}"),
    }
}

/// Whether the loss of a keyspace's replicas is harmless: traces of requests, which expire after a day.
pub(crate) fn is_expendable(keyspace: &schema::Keyspace) -> bool {
    keyspace.system && keyspace.name == "system_traces"
}

/// The keyspaces of which a node that leaves takes a replica with it, and that is harmless.
pub(crate) fn expended(state: &ClusterState, own: HostId) -> Vec<String> {
    let sizes = sizes(state);
    let lost = |keyspace: &&std::sync::Arc<schema::Keyspace>| {
        is_expendable(keyspace) && too_few(state, own, keyspace, &sizes).is_some()
    };
    state.schema.keyspaces().filter(lost).map(|keyspace| keyspace.name.clone()).collect()
}

/// Whether without a node every keyspace still has enough nodes for its replicas in its datacenter.
fn keeps_copies(state: &ClusterState, own: HostId, sizes: &BTreeMap<&str, usize>) -> Result<(), String> {
    for keyspace in state.schema.keyspaces().filter(|keyspace| !is_expendable(keyspace)) {
        if let Some((factor, nodes)) = too_few(state, own, keyspace, sizes) {
            let name = &keyspace.name;
            return Err(format!(
                "Not enough live nodes to maintain replication factor in keyspace {name} (RF = {factor}, N = {nodes}). \
                 Perform a forceful decommission to ignore."
            ));
        }
    }
    Ok(())
}

/// The replication factor and the nodes of now, where without a node there are too few nodes for a keyspace's replicas in its datacenter.
fn too_few(
    state: &ClusterState,
    own: HostId,
    keyspace: &schema::Keyspace,
    sizes: &BTreeMap<&str, usize>,
) -> Option<(usize, usize)> {
    let datacenter = &*state.member(own)?.info.location.datacenter;
    let (factor, nodes) = match &keyspace.replication {
        Replication::Simple { factor } => (*factor as usize, sizes.values().sum::<usize>()),
        Replication::NetworkTopology { factors } => {
            let factor = factors.get(datacenter).map_or(0, |factor| *factor as usize);
            (factor, sizes.get(datacenter).copied().unwrap_or(0))
        }
        Replication::Local | Replication::Everywhere => return None,
    };
    // Where there are too few already, one less loses a replica all the same.
    (factor > 0 && nodes <= factor).then_some((factor, nodes))
}

/// Whether a node of a datacenter may join without streaming (`auto_bootstrap: false`). The former replicas drop its ranges when
/// the change has completed, so there must be no data: no tables in keyspaces that have replicas in its datacenter. The server's own keyspaces are
/// fetched regardless of the option.
pub(crate) fn join_unfetched(state: &ClusterState, datacenter: &str) -> Result<(), String> {
    let places_here = |replication: &Replication| match replication {
        Replication::Local => false,
        Replication::Simple { .. } | Replication::Everywhere => true,
        Replication::NetworkTopology { factors } => factors.get(datacenter).is_some_and(|factor| *factor > 0),
    };
    let mut keyspaces = state.schema.keyspaces();
    let affected = keyspaces.find(|keyspace| {
        !keyspace.system && !keyspace.tables.is_empty() && places_here(&keyspace.replication)
    });
    match affected {
        None => Ok(()),
        Some(keyspace) => Err(format!(
            "auto_bootstrap is false, and keyspace {} has tables and replicas in datacenter {datacenter}: this node would take ranges of it \
             without their data, which the other nodes would then drop. Start it with auto_bootstrap: true; a new datacenter's nodes \
             join before the keyspace gets replicas there (ALTER KEYSPACE, which fetches)",
            keyspace.name
        )),
    }
}

/// A member by its host id, or by its address for nodes or for clients.
pub(crate) fn find(state: &ClusterState, named: &str) -> Result<HostId, String> {
    let (id, address) = (cluster::parse_id(named), named.parse::<std::net::IpAddr>().ok());
    let is_named = |host: &HostId, member: &Member| {
        let addresses = [member.info.internode.ip(), member.info.native.ip()];
        id.is_some_and(|id| id.0 == host.0) || address.is_some_and(|address| addresses.contains(&address))
    };
    // Of two at one address, the one that owns data.
    let found = state.members.iter().filter(|(host, member)| is_named(host, member));
    let found = found.max_by_key(|(_, member)| member.status != MemberStatus::Joining);
    found
        .map(|(host, _)| *host)
        .ok_or_else(|| format!("there is no node {named} in the cluster; nodetool status shows the host ids"))
}

/// Whether a topology change may go on without these nodes: members that are down, and no more than can be announced.
pub(crate) fn ignore(
    state: &ClusterState,
    ignored: &BTreeSet<HostId>,
    alive: impl Fn(HostId) -> bool,
) -> Result<(), String> {
    if ignored.len() > IGNORED_MAX {
        return Err(format!("{} nodes are to be ignored; at most {IGNORED_MAX} can be", ignored.len()));
    }
    for host in ignored {
        if state.member(*host).is_none() {
            return Err(format!("{} is to be ignored, and is no node of the cluster", named(state, *host)));
        }
        if alive(*host) {
            return Err(format!("{} is to be ignored, and is up", named(state, *host)));
        }
    }
    Ok(())
}

/// The first step of removing a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Its ranges are fetched by the others.
    Fetch,
    /// It owns nothing: it goes at once.
    AtOnce,
}

/// Whether a node may be removed: one that is down, or one that has not joined yet, whose change may be stalled for ever by nodes that
/// are dead. That one learns of it, and stops.
pub(crate) fn remove(
    state: &ClusterState,
    own: HostId,
    host: HostId,
    alive: bool,
) -> Result<Removal, String> {
    let Some(member) = state.member(host) else { return Err("Host ID not found.".to_owned()) };
    if host == own {
        return Err("Cannot remove self".to_owned());
    }
    if alive && !matches!(member.status, MemberStatus::Removing | MemberStatus::Joining) {
        let address = member.info.internode.ip();
        return Err(format!(
            "Node /{address} is alive and owns this ID. Use decommission command to remove it from the ring"
        ));
    }
    if member.status == MemberStatus::Joining {
        abort(state, host)?;
    }
    Ok(match member.status {
        MemberStatus::Joining | MemberStatus::Left => Removal::AtOnce,
        MemberStatus::Normal | MemberStatus::Leaving | MemberStatus::Removing => Removal::Fetch,
    })
}

/// Whether the change of a host may be given up: not once reads go to the new replicas, from which the others would not hear of later
/// writes.
pub(crate) fn abort(state: &ClusterState, host: HostId) -> Result<(), String> {
    let is_of = |change: &&TopologyChange| change.joins == Some(host) || change.leaves == Some(host);
    match state.change.as_ref().filter(is_of) {
        Some(change) if change.step == ChangeStep::Switched => {
            Err("the topology change is nearly complete and cannot be aborted any more: its ranges are read from their new replicas".to_owned())
        }
        _ => Ok(()),
    }
}

/// The host that is being removed, for `removenode force` and `removenode status`.
pub(crate) fn being_removed(state: &ClusterState) -> Option<HostId> {
    let change = state.change.as_ref()?;
    let removing =
        |host: &HostId| state.member(*host).is_some_and(|member| member.status == MemberStatus::Removing);
    change.leaves.filter(|host| change.joins.is_none() && removing(host))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::state::{MemberInfo, STATE_VERSION};
    use schema::{Keyspace, Schema};
    use topology::Location;

    fn host(id: u8) -> HostId {
        HostId([id; 16])
    }

    /// A node in each of these datacenters, with keyspace `ks`.
    fn state(datacenters: &[&str], replication: Replication) -> ClusterState {
        let schema = Schema::default().with_keyspace(Keyspace::new("ks", replication));
        let info = |id: u8, datacenter: &str| MemberInfo {
            internode: ([10, 0, 0, id], 7000).into(),
            native: ([10, 0, 0, id], 9042).into(),
            location: Location::new(datacenter, "rack1"),
            shard_count: 1,
            release_version: "5.0.6".to_owned(),
            state_version: STATE_VERSION,
        };
        let own = Schema::default();
        let first = info(1, datacenters[0]);
        let mut state = ClusterState::found("test", own, schema, host(1), first, vec![1]);
        for (id, datacenter) in (2..).zip(&datacenters[1..]) {
            let (info, tokens) = (info(id, datacenter), vec![i64::from(id)]);
            let (number, status) = (u64::from(id), MemberStatus::Normal);
            state.members.insert(host(id), Member { number, info, status, tokens, replaces: None });
        }
        state
    }

    fn become_(state: &mut ClusterState, id: u8, status: MemberStatus) {
        state.members.get_mut(&host(id)).unwrap().status = status;
    }

    #[test]
    fn a_node_leaves_when_the_others_can_keep_all_copies() {
        let simple = |factor| Replication::Simple { factor };
        let four = state(&["a", "a", "a", "a"], simple(3));
        assert_eq!(decommission(&four, host(4), false, |_| true), Ok(()));
        let three = state(&["a", "a", "a"], simple(3));
        let refused = decommission(&three, host(1), false, |_| true).unwrap_err();
        assert_eq!(
            refused,
            "Not enough live nodes to maintain replication factor in keyspace ks (RF = 3, N = 3). Perform a forceful \
             decommission to ignore."
        );
        assert_eq!(decommission(&three, host(1), true, |_| true), Ok(()));
        let factors = [("a".to_owned(), 2), ("b".to_owned(), 1)].into();
        let two = state(&["a", "a", "a", "b"], Replication::NetworkTopology { factors });
        assert_eq!(decommission(&two, host(1), false, |_| true), Ok(()));
        assert!(decommission(&two, host(4), false, |_| true).unwrap_err().contains("(RF = 1, N = 1)"));
        assert_eq!(
            decommission(&state(&["a", "a"], Replication::Everywhere), host(1), false, |_| true),
            Ok(())
        );
    }

    #[test]
    fn a_node_stays_while_another_one_is_down() {
        let mut four = state(&["a", "a", "a", "a"], Replication::Simple { factor: 3 });
        for force in [false, true] {
            let refused = decommission(&four, host(1), force, |id| id == host(2)).unwrap_err();
            assert!(
                refused.starts_with("nodes of the cluster are down: 10.0.0.3 (host 03030303-"),
                "{refused}"
            );
            assert!(
                refused.contains(", 10.0.0.4 (host 04040404-") && !refused.contains("10.0.0.1"),
                "{refused}"
            );
        }
        // One that has left owns nothing, and one that leaves already does not begin again.
        become_(&mut four, 4, MemberStatus::Left);
        assert_eq!(decommission(&four, host(1), true, |id| id != host(4)), Ok(()));
        become_(&mut four, 1, MemberStatus::Leaving);
        assert_eq!(decommission(&four, host(1), false, |_| false), Ok(()));
    }

    #[test]
    fn traces_keep_no_node_in_the_cluster() {
        let mut two = state(&["a", "a"], Replication::Simple { factor: 1 });
        two.schema = std::sync::Arc::new(Schema::clone(&two.schema).with_keyspace(Keyspace {
            system: true,
            ..Keyspace::new("system_traces", Replication::Simple { factor: 2 })
        }));
        assert_eq!(decommission(&two, host(1), false, |_| true), Ok(()));
        assert_eq!(expended(&two, host(1)), ["system_traces"]);
        let three = state(&["a", "a", "a"], Replication::Simple { factor: 1 });
        assert_eq!(expended(&three, host(1)), Vec::<String>::new());
        // A user's keyspace of that name would be another matter, and any other of the server's is.
        let auth =
            Keyspace { system: true, ..Keyspace::new("system_auth", Replication::Simple { factor: 2 }) };
        two.schema = std::sync::Arc::new(Schema::clone(&two.schema).with_keyspace(auth));
        assert!(
            decommission(&two, host(1), false, |_| true)
                .unwrap_err()
                .contains("keyspace system_auth (RF = 2")
        );
    }

    #[test]
    fn a_node_without_tokens_or_the_last_one_cannot_leave() {
        let mut two = state(&["a", "a"], Replication::Local);
        let pointless = "no other normal nodes in the ring; decommission would be pointless";
        become_(&mut two, 2, MemberStatus::Joining);
        assert_eq!(decommission(&two, host(1), true, |_| true).unwrap_err(), pointless);
        let not_yet = "local node is not a member of the token ring yet";
        assert_eq!(decommission(&two, host(2), true, |_| true).unwrap_err(), not_yet);
        assert_eq!(decommission(&two, host(9), true, |_| true).unwrap_err(), not_yet);
        become_(&mut two, 2, MemberStatus::Leaving);
        assert_eq!(decommission(&two, host(2), false, |_| true), Ok(()), "asked again");
    }

    #[test]
    fn a_node_that_would_take_ranges_unfetched_does_not_join() {
        let with_table = |name: &str, replication: Replication, system: bool| {
            let mut keyspace = Keyspace::new(name, replication);
            let own = cluster::own_schema();
            let mut table =
                schema::Table::clone(own.table("system_traces", "sessions").expect("it is there"));
            table.keyspace = name.to_owned();
            keyspace.tables.insert("sessions".to_owned(), std::sync::Arc::new(table));
            keyspace.system = system;
            let mut state = state(&["a", "a"], Replication::Simple { factor: 1 });
            state.schema = std::sync::Arc::new(Schema::default().with_keyspace(keyspace));
            state
        };
        let in_a =
            || Replication::NetworkTopology { factors: [("a".to_owned(), 2), ("c".to_owned(), 0)].into() };
        let simple = || Replication::Simple { factor: 1 };
        assert_eq!(join_unfetched(&state(&["a", "a"], simple()), "a"), Ok(()), "there are no tables");
        assert_eq!(join_unfetched(&with_table("system_traces", simple(), true), "a"), Ok(()));
        assert_eq!(join_unfetched(&with_table("local", Replication::Local, false), "a"), Ok(()));
        assert_eq!(join_unfetched(&with_table("ks", in_a(), false), "b"), Ok(()), "a new datacenter");
        assert_eq!(join_unfetched(&with_table("ks", in_a(), false), "c"), Ok(()));
        for (replication, datacenter) in [(in_a(), "a"), (simple(), "b"), (Replication::Everywhere, "b")] {
            let refused = join_unfetched(&with_table("ks", replication, false), datacenter).unwrap_err();
            assert!(refused.contains("keyspace ks") && refused.contains("auto_bootstrap: true"), "{refused}");
        }
    }

    #[test]
    fn a_live_node_is_not_removed() {
        let mut three = state(&["a", "a", "a"], Replication::Local);
        assert_eq!(remove(&three, host(1), host(9), false).unwrap_err(), "Host ID not found.");
        assert_eq!(remove(&three, host(1), host(1), false).unwrap_err(), "Cannot remove self");
        let alive = remove(&three, host(1), host(2), true).unwrap_err();
        assert!(alive.starts_with("Node /10.0.0.2 is alive and owns this ID."), "{alive}");
        assert_eq!(remove(&three, host(1), host(2), false), Ok(Removal::Fetch));
        become_(&mut three, 2, MemberStatus::Joining);
        for alive in [false, true] {
            assert_eq!(remove(&three, host(1), host(2), alive), Ok(Removal::AtOnce), "it owns nothing yet");
        }
        assert_eq!(being_removed(&three), None);
    }

    #[test]
    fn only_nodes_that_are_down_are_ignored() {
        let four = state(&["a", "a", "a", "a"], Replication::Local);
        let of = |ids: &[u8]| ids.iter().map(|id| host(*id)).collect::<BTreeSet<HostId>>();
        assert_eq!(ignore(&four, &of(&[3, 4]), |id| id == host(1)), Ok(()));
        let up = ignore(&four, &of(&[3, 4]), |id| id == host(4)).unwrap_err();
        assert!(up.starts_with("10.0.0.4 (host 04040404-") && up.ends_with("is up"), "{up}");
        let unknown = ignore(&four, &of(&[9]), |_| false).unwrap_err();
        assert!(unknown.contains("no node of the cluster"), "{unknown}");
        let many = ignore(&four, &of(&(0..=IGNORED_MAX as u8).collect::<Vec<_>>()), |_| false).unwrap_err();
        assert!(many.contains("at most 24"), "{many}");
        assert_eq!(find(&four, "10.0.0.3"), Ok(host(3)));
        assert_eq!(find(&four, "02020202-0202-0202-0202-020202020202"), Ok(host(2)));
        assert!(find(&four, "10.0.0.9").unwrap_err().contains("no node 10.0.0.9"));
    }

    #[test]
    fn a_change_is_not_aborted_once_reads_have_gone_over() {
        let mut three = state(&["a", "a", "a"], Replication::Local);
        let mut change = TopologyChange {
            number: 1,
            joins: Some(host(2)),
            leaves: None,
            alters: std::collections::BTreeMap::new(),
            step: ChangeStep::Fetching,
            fetched: std::collections::BTreeSet::new(),
            since: 1,
        };
        become_(&mut three, 2, MemberStatus::Joining);
        three.change = Some(change.clone());
        assert_eq!(remove(&three, host(1), host(2), false), Ok(Removal::AtOnce));
        change.step = ChangeStep::Switched;
        three.change = Some(change);
        assert!(remove(&three, host(1), host(2), false).unwrap_err().contains("cannot be aborted"));
        assert!(abort(&three, host(2)).is_err() && abort(&three, host(3)).is_ok());
    }
}

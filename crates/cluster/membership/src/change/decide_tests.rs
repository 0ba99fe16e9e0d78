//! A change from its first step to its last, as each node sees it.

use cluster::state::{Command, CommandId, MemberInfo, Outcome, Proposal, STATE_VERSION};
use topology::Location;

use super::*;

fn host(id: u8) -> HostId {
    HostId([id; 16])
}

fn info(id: u8) -> MemberInfo {
    MemberInfo {
        internode: ([10, 0, 0, id], 7000).into(),
        native: ([10, 0, 0, id], 9042).into(),
        location: Location::new("dc1", "rack1"),
        shard_count: 1,
        release_version: "5.0.6".to_owned(),
        state_version: STATE_VERSION,
    }
}

/// A cluster that commands change.
struct Log {
    state: ClusterState,
    ids: u64,
    ignored: BTreeSet<HostId>,
}

impl Log {
    /// Nodes 1 to `nodes`, all in force.
    fn new(nodes: u8) -> Self {
        let own = cluster::own_schema();
        let state = ClusterState::found("test", own.clone(), own, host(1), info(1), vec![100]);
        let mut log = Self { state, ids: 0, ignored: BTreeSet::new() };
        for id in 2..=nodes {
            log.add(id, None);
            log.tokens(id, &[i64::from(id) * 100]);
            log.status(id, MemberStatus::Normal);
        }
        log
    }

    fn put(&mut self, command: Command) {
        self.ids += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&self.ids.to_be_bytes());
        let (next, outcome) = self.state.apply(Proposal { id: CommandId(id), command });
        assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        self.state = next;
    }

    fn add(&mut self, id: u8, replaces: Option<u8>) {
        self.put(Command::AddMember { host: host(id), info: info(id), replaces: replaces.map(host) });
    }

    fn tokens(&mut self, id: u8, tokens: &[i64]) {
        let base = self.state.topology_version;
        self.put(Command::SetTokens { host: host(id), tokens: tokens.to_vec(), base });
    }

    fn status(&mut self, id: u8, status: MemberStatus) {
        self.put(Command::SetStatus { host: host(id), status });
    }

    fn change(&self) -> u64 {
        self.state.change.as_ref().expect("a change is under way").number
    }

    /// The next steps of nodes when these are pending replicas and those are up.
    fn acts<const N: usize>(&self, nodes: [u8; N], pending_nodes: &[u8], alive: &[u8]) -> [Act; N] {
        let pending_nodes = pending_nodes.iter().map(|id| host(*id)).collect();
        let (ignored, alive) = (&self.ignored, |other: HostId| alive.contains(&other.0[0]));
        let (state, pending_nodes) = (&self.state, &pending_nodes);
        nodes.map(|own| Context { state, own: host(own), pending_nodes, ignored, alive: &alive }.next())
    }

    fn step(&mut self, step: ChangeStep) {
        self.put(Command::TakeStep { change: self.change(), step });
    }

    fn fetched(&mut self, id: u8) {
        self.put(Command::Fetched { change: self.change(), host: host(id) });
    }
}

#[test]
fn a_leaving_node_waits_for_the_pending_replicas() {
    let mut log = Log::new(4);
    let all = [1, 2, 3, 4];
    assert_eq!(log.acts(all, &[], &all), [Act::Rest; 4]);
    log.status(2, MemberStatus::Leaving);
    let n = log.change();
    assert_eq!(log.acts(all, &[3, 4], &all), [Act::Rest, Act::Announce(n), Act::Rest, Act::Rest]);
    log.step(ChangeStep::Fetching);
    assert_eq!(log.acts(all, &[3, 4], &all), [Act::Rest, Act::Rest, Act::Fetch(n), Act::Fetch(n)]);
    log.fetched(3);
    assert_eq!(log.acts(all, &[3, 4], &all), [Act::Rest, Act::Rest, Act::Rest, Act::Fetch(n)]);
    log.fetched(4);
    assert_eq!(log.acts(all, &[3, 4], &all), [Act::Rest, Act::Switch(n), Act::Rest, Act::Rest]);
    log.step(ChangeStep::Switched);
    assert_eq!(log.acts(all, &[], &all), [Act::Rest, Act::Finish(n), Act::Rest, Act::Rest]);
    log.status(2, MemberStatus::Left);
    assert_eq!(log.acts(all, &[], &all), [Act::Rest; 4], "it takes itself out");
    assert_eq!(log.acts([1, 3], &[], &[1, 3, 4]), [Act::Forget(host(2)), Act::Rest], "unless it died");
}

#[test]
fn a_dead_node_is_removed_by_the_first_that_lives() {
    let mut log = Log::new(3);
    log.status(3, MemberStatus::Removing);
    let n = log.change();
    assert_eq!(log.acts([1, 2], &[1, 2], &[1, 2]), [Act::Announce(n), Act::Rest]);
    assert_eq!(log.acts([2], &[1, 2], &[2]), [Act::Announce(n)], "the first died meanwhile");
    log.step(ChangeStep::Fetching);
    log.fetched(2);
    assert_eq!(log.acts([1, 2], &[1, 2], &[1, 2]), [Act::Fetch(n), Act::Rest]);
    log.fetched(1);
    assert_eq!(log.acts([1, 2], &[1, 2], &[1, 2]), [Act::Switch(n), Act::Rest]);
}

#[test]
fn a_join_that_reads_use_already_is_ended_for_a_node_that_dies() {
    let mut log = Log::new(3);
    log.add(4, None);
    log.tokens(4, &[450]);
    let n = log.change();
    log.step(ChangeStep::Fetching);
    log.fetched(4);
    assert_eq!(log.acts([1, 2], &[4], &[1, 2]), [Act::Rest; 2], "it may be given up");
    assert_eq!(log.acts([1, 4], &[4], &[1, 2, 4]), [Act::Rest, Act::Switch(n)]);
    log.step(ChangeStep::Switched);
    assert_eq!(log.acts([1, 4], &[], &[1, 2, 4]), [Act::Rest, Act::Finish(n)]);
    assert_eq!(log.acts([1, 2], &[], &[1, 2]), [Act::Finish(n), Act::Rest]);
    // Also where the joining node believes otherwise.
    assert_eq!(log.acts([4], &[], &[4]), [Act::Finish(n)]);
}

#[test]
fn a_removal_waits_for_an_ignored_node_only_while_that_lives() {
    let mut log = Log::new(4);
    log.status(3, MemberStatus::Removing);
    let n = log.change();
    log.step(ChangeStep::Fetching);
    log.fetched(1);
    log.fetched(2);
    assert_eq!(log.acts([1, 2], &[1, 2, 4], &[1, 2]), [Act::Rest; 2]);
    log.ignored.insert(host(4));
    assert_eq!(log.acts([1, 2], &[1, 2, 4], &[1, 2]), [Act::Switch(n), Act::Rest]);
    assert_eq!(log.acts([1, 4], &[1, 2, 4], &[1, 2, 4]), [Act::Rest, Act::Fetch(n)], "it is back");
}

#[test]
fn a_node_that_dies_while_it_leaves_is_removed_from_where_it_was() {
    let mut log = Log::new(4);
    log.status(2, MemberStatus::Leaving);
    log.step(ChangeStep::Fetching);
    log.fetched(3);
    let n = log.change();
    assert_eq!(log.acts([1, 3, 4], &[3, 4], &[1, 3, 4]), [Act::Rest, Act::Rest, Act::Fetch(n)]);
    log.status(2, MemberStatus::Removing);
    log.fetched(4);
    assert_eq!(log.acts([1, 3, 4], &[3, 4], &[1, 3, 4]), [Act::Switch(n), Act::Rest, Act::Rest]);
}

#[test]
fn a_joining_or_replacing_node_conducts_itself_also_while_it_is_down() {
    for replaces in [None, Some(3)] {
        let mut log = Log::new(3);
        log.add(4, replaces);
        assert_eq!(log.acts([1, 4], &[], &[1, 2, 4]), [Act::Rest; 2]);
        log.tokens(4, if replaces.is_some() { &[300] } else { &[7] });
        let n = log.change();
        assert_eq!(log.acts([1, 4], &[4], &[1, 2, 4]), [Act::Rest, Act::Announce(n)]);
        assert_eq!(log.acts([1, 2], &[4], &[1, 2]), [Act::Rest; 2]);
        log.step(ChangeStep::Fetching);
        assert_eq!(log.acts([1, 4], &[4], &[1, 2, 4]), [Act::Rest, Act::Fetch(n)]);
        log.fetched(4);
        assert_eq!(log.acts([1, 4], &[4], &[1, 2, 4]), [Act::Rest, Act::Switch(n)]);
    }
}

#[test]
fn a_joining_node_lets_a_live_replacement_go_first() {
    let mut log = Log::new(3);
    log.add(4, None);
    log.add(5, Some(3));
    log.add(6, None);
    let ahead = |log: &Log, own: u8, alive: &[u8]| {
        let alive = |other: HostId| alive.contains(&other.0[0]);
        replacement_ahead(&log.state, host(own), alive)
    };
    let alive = [1, 2, 4, 5, 6];
    assert_eq!([4, 6].map(|own| ahead(&log, own, &alive)), [Some(host(5)); 2]);
    assert_eq!(ahead(&log, 5, &alive), None, "itself");
    assert_eq!(ahead(&log, 4, &[1, 2, 4, 6]), None, "it is down");
    log.tokens(5, &[300]);
    assert_eq!(ahead(&log, 4, &alive), None, "it is the next one");
}

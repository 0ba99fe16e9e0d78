//! The cost for a node of a large cluster of a step of a topology change and of a start, which both ask every member:
//! messages and bytes, which are the same on every host, and CPU time: the figures of docs/design/raft.md.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster::group::{Group, GroupConfig, Opened};
use cluster::own_schema;
use cluster::rollback::{Members, RollbackGuard};
use cluster::state::{
    ClusterState, Command, CommandId, MemberInfo, MemberStatus, Outcome, Proposal, STATE_VERSION,
};
use futures_util::future::pending;
use rpc::{Messenger, Near, PeerInfo, Peers, RpcConfig, Verb, VerbStats, handover_mesh};
use rt::{Group as Tasks, LocalBoxFuture, Rt, ShardId, ShardMain};
use rt_sim::{Begun, Config, NodeConfig, NodeId, Simulation};
use topology::{HostId, Location};

use crate::group_world::{DIRECTORY, SECOND, cpu_time};

const NODES: u16 = 1_000;
/// Bytes that a step or a start may send for each member, the frame's head included, and as many come back.
const BYTES_EACH_MAX: u64 = 100;
/// Builds with assertions, those of the tests (`opt-level = 1`), may take three times as long.
const SLOWER: u64 = if cfg!(debug_assertions) { 3 } else { 1 };
/// Time of a core that a step may take of the asking and all answering nodes together, at `opt-level = 3`: one hundredth of a core over the
/// ten seconds that a topology change takes at least.
const CPU_MAX: Duration = Duration::from_millis(100 * SLOWER);
/// The same where the connections are made first.
const CPU_CONNECTING_MAX: Duration = Duration::from_millis(300 * SLOWER);

thread_local! {
    /// The node that asks. A test is one thread.
    static ASKER: RefCell<Option<(Messenger, Option<Group>)>> = const { RefCell::new(None) };
}

/// The messages of a verb that a node has sent, and the answers that it got.
#[derive(Clone, Copy, Debug)]
struct Cost {
    calls: u64,
    sent_bytes: u64,
    answers: u64,
    answers_bytes: u64,
    /// CPU time of the asker and of all that answer.
    cpu: Duration,
}

fn host(node: u16) -> HostId {
    let mut id = [7; 16];
    id[..2].copy_from_slice(&node.to_be_bytes());
    HostId(id)
}

fn ip(node: u16) -> IpAddr {
    let [high, low] = node.to_be_bytes();
    [10, 1, high, low].into()
}

fn address(node: u16) -> SocketAddr {
    SocketAddr::new(ip(node), 7000)
}

fn info(node: u16) -> MemberInfo {
    MemberInfo {
        internode: address(node),
        native: SocketAddr::new(ip(node), 9042),
        location: Location::new("dc1", format!("rack{}", node % 3)),
        shard_count: 1,
        release_version: "5.0.0".to_owned(),
        state_version: STATE_VERSION,
    }
}

async fn messenger(rt: &Rt, node: u16) -> Messenger {
    rt.disk().create_dir_all(DIRECTORY).await.unwrap();
    let config = Arc::new(RpcConfig::new("test", host(node), address(node)));
    let messenger = Messenger::new(rt, config, handover_mesh(1).pop().expect("one shard"));
    messenger.listen().await.expect("the port is free");
    messenger
}

/// A member that answers at once: it uses the schema in question, and remembers nothing.
async fn member(rt: Rt, node: u16) -> Result<(), String> {
    let messenger = messenger(&rt, node).await;
    let guard = RollbackGuard::open(&rt, Path::new(DIRECTORY), host(node), 0, false).await.unwrap();
    guard.serve(&messenger);
    messenger.serve(Verb::RaftForward, |incoming| async move {
        // The number of the schema comes last.
        Ok(Bytes::copy_from_slice(incoming.body.last_chunk::<8>().expect("a number")))
    });
    pending().await
}

/// A node that founds the cluster where `founds`, and that knows the others' addresses alone otherwise.
async fn asker(rt: Rt, founds: bool) -> Result<(), String> {
    let messenger = messenger(&rt, 0).await;
    let group = if founds {
        let config = GroupConfig::new(PathBuf::from(DIRECTORY), "test", host(0), info(0));
        let Ok(Opened::Blank(blank)) = Group::open(&rt, &messenger, config).await else {
            panic!("a new disk");
        };
        let group = blank.start_first_node(vec![0]).await.map_err(|error| error.to_string())?;
        let user = group.clone();
        rt.spawn(Tasks::Statement, async move {
            let mut reader = user.subscribe();
            loop {
                user.schema_in_use(user.applied().state.schema_number);
                if reader.changed().await.is_err() {
                    return;
                }
            }
        })
        .detach();
        Some(group)
    } else {
        let peer = |node| PeerInfo { address: address(node), shard_count: 1, near: Near::of(true, false) };
        messenger.set_peers(Arc::new(Peers::new((0..NODES).map(|node| (host(node), peer(node))))));
        None
    };
    ASKER.with(|asker| asker.replace(Some((messenger, group))));
    pending().await
}

struct World {
    sim: Simulation,
    asker: NodeId,
}

impl World {
    fn new(seed: u64, founds: bool) -> Self {
        ASKER.with(|asker| asker.replace(None));
        let sim = Simulation::new(seed, Config::default());
        let mut ids = Vec::new();
        for node in 0..NODES {
            let config = NodeConfig { ip: Some(ip(node)), ..NodeConfig::default() };
            let id = sim.add_node(config, move |_| {
                let main: ShardMain<Result<(), String>> = match node {
                    0 => Box::new(move |rt| Box::pin(asker(rt, founds))),
                    _ => Box::new(move |rt| Box::pin(member(rt, node))),
                };
                vec![main]
            });
            sim.start(id);
            ids.push(id);
        }
        sim.run_for(5 * SECOND);
        Self { sim, asker: ids[0] }
    }

    /// Runs a task on the asker until its end; returns its cost in messages of a verb.
    fn cost<T: 'static>(
        &self,
        verb: Verb,
        task: impl FnOnce(Rt, Messenger, Option<Group>) -> LocalBoxFuture<T>,
    ) -> (Cost, T) {
        let (messenger, group) = ASKER.with(|asker| asker.borrow().clone()).expect("it runs");
        let rt = self.sim.rt(self.asker, ShardId(0)).expect("it runs");
        let of = |messenger: &Messenger| messenger.stats().verbs[verb.index()].clone();
        let (before, began): (VerbStats, Duration) = (of(&messenger), cpu_time());
        let begun = Begun::new(&rt, Tasks::Statement, task(rt.clone(), messenger.clone(), group));
        let out = begun.join(&self.sim).expect("it ends");
        let (after, cpu) = (of(&messenger), cpu_time() - began);
        assert_eq!(after.timeouts, before.timeouts);
        let cost = Cost {
            calls: after.sent - before.sent,
            sent_bytes: after.sent_bytes - before.sent_bytes,
            answers: after.answers - before.answers,
            answers_bytes: after.answers_bytes - before.answers_bytes,
            cpu,
        };
        (cost, out)
    }
}

/// One question and one answer for each other member, both small: there is no polling. And little time.
fn check(what: &str, cost: Cost, cpu_max: Duration) {
    let Cost { calls, sent_bytes, answers, answers_bytes, cpu } = cost;
    println!(
        "{what} with {NODES} nodes: {calls} calls of {sent_bytes} bytes, {answers} answers of {answers_bytes}, {cpu:?} of all nodes together"
    );
    let others = u64::from(NODES) - 1;
    assert_eq!((calls, answers), (others, others), "{what}");
    assert!(
        sent_bytes.max(answers_bytes) <= others * BYTES_EACH_MAX,
        "{what}: {sent_bytes}, {answers_bytes}"
    );
    assert!(cpu < cpu_max, "{what}: {cpu:?} of a core");
}

#[test]
fn a_step_asks_each_member_once() {
    let world = World::new(1, true);
    let (joined, ()) = world.cost(Verb::RaftForward, |rt, _, group| {
        Box::pin(async move {
            let group = group.expect("it founded one");
            for node in 1..NODES {
                let command = Command::AddMember { host: host(node), info: info(node), replaces: None };
                let added = group.propose(command, rt.now() + 10 * SECOND).await.expect("it leads");
                assert!(matches!(added, Outcome::Added { .. }), "{added:?}");
            }
        })
    });
    assert_eq!(joined.calls, 0, "the leader asks nobody");
    // The first step makes the connections, the others find them.
    for (step, cpu_max) in [("the first step", CPU_CONNECTING_MAX), ("a later step", CPU_MAX)] {
        let (cost, behind) = world.cost(Verb::RaftForward, |rt, _, group| {
            Box::pin(async move {
                let group = group.expect("it founded one");
                let base = group.applied().state.schema.version();
                let agreed = group.change_schema(base, Vec::new(), rt.now() + 10 * SECOND, |_| true).await;
                agreed.expect("nobody else changes it").behind
            })
        });
        assert_eq!(behind, [], "all have answered");
        check(step, cost, cpu_max);
    }
}

#[test]
fn a_start_asks_each_member_once() {
    let world = World::new(2, false);
    let (cost, cleared) = world.cost(Verb::LastHeard, |rt, messenger, _| {
        Box::pin(async move {
            let guard = RollbackGuard::open(&rt, Path::new(DIRECTORY), host(0), 5, false).await.unwrap();
            let all: Vec<HostId> = (0..NODES).map(host).collect();
            let voters = all[..7].to_vec();
            guard.check(&messenger, &Members { all, voters }).await.expect("nobody remembers more");
            guard.is_cleared()
        })
    });
    assert!(cleared, "a majority has answered");
    check("a start", cost, CPU_CONNECTING_MAX);
}

/// The default of `num_tokens` in older clusters.
const MANY_TOKENS: usize = 256;
/// Time of a core, at opt-level 1, that an entry of the log may take of a node of such a cluster; there are a few in a topology change.
const ENTRY_MAX: Duration = Duration::from_millis(150);
/// The same for the whole state, which is encoded at a snapshot and decoded at a start.
const STATE_MAX: Duration = Duration::from_millis(500);
/// Bytes of the state for each token, which is stored as a decimal number, with everything else of the state.
const TOKEN_BYTES_MAX: usize = 24;

/// The shortest of a few runs, to exclude other load of the host.
fn least(mut run: impl FnMut()) -> Duration {
    let one = |_| {
        let began = Instant::now();
        run();
        began.elapsed()
    };
    (0..5).map(one).min().expect("there are runs")
}

/// A cluster of a thousand owners of 256 tokens, and a node that is to join.
fn many_tokens() -> ClusterState {
    let token = |node: u16, nth: usize| {
        // Anything that spreads.
        (u64::from(node) * MANY_TOKENS as u64 + nth as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) as i64
    };
    let tokens = |node: u16| (0..MANY_TOKENS).map(|nth| token(node, nth)).collect::<Vec<i64>>();
    let mut state = ClusterState::found("test", own_schema(), own_schema(), host(0), info(0), tokens(0));
    let add = |state: &mut ClusterState, node: u16| {
        let command = Command::AddMember { host: host(node), info: info(node), replaces: None };
        let id = CommandId((u128::from(node) + 1).to_be_bytes());
        *state = state.apply(Proposal { id, command }).0;
        state.members[&host(node)].number
    };
    add(&mut state, NODES);
    let mut owner = state.members[&host(0)].clone();
    for node in 1..NODES {
        (owner.number, owner.info, owner.tokens) = (add(&mut state, node), info(node), tokens(node));
        state.members.insert(host(node), owner.clone());
    }
    state
}

#[test]
fn a_thousand_nodes_of_256_tokens_are_a_state_of_few_megabytes() {
    let state = many_tokens();
    let bytes = state.encode();
    let encoded = least(|| drop(state.encode()));
    let decoded = least(|| {
        let unknown = ClusterState::unknown("test", own_schema());
        assert_eq!(unknown.decode_after(&bytes).expect("it was encoded").members.len(), state.members.len());
    });
    // As each node does with each entry.
    let id = CommandId([2; 16]);
    let base = state.topology_version;
    let tokens: Vec<i64> = (0..MANY_TOKENS as i64).map(|nth| nth * 1_000 + 7).collect();
    let join = Command::SetTokens { host: host(NODES), tokens, base };
    let joined = least(|| {
        let outcome = state.apply(Proposal { id, command: join.clone() }).1;
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    });
    let leave = Command::SetStatus { host: host(1), status: MemberStatus::Leaving };
    let left = least(|| {
        let outcome = state.apply(Proposal { id, command: leave.clone() }).1;
        assert!(matches!(outcome, Outcome::Done { .. }), "{outcome:?}");
    });
    // As the node does once that joins.
    let ring = state.ring().expect("tokens are apart");
    let mut chosen = Vec::new();
    let chooses = least(|| chosen = topology::allocate(&ring, &info(NODES).location, MANY_TOKENS, 7));
    println!(
        "{NODES} nodes of {MANY_TOKENS} tokens: the state is {} bytes, encoded in {encoded:?}, decoded in {decoded:?}; a node takes its \
         tokens in {joined:?} and begins to leave in {left:?} on each node; tokens are chosen in {chooses:?}",
        bytes.len()
    );
    assert_eq!(chosen.len(), MANY_TOKENS);
    assert!(bytes.len() <= TOKEN_BYTES_MAX * MANY_TOKENS * usize::from(NODES), "{}", bytes.len());
    assert!(joined.max(left) <= ENTRY_MAX, "{joined:?}, {left:?}");
    assert!(encoded.max(decoded) <= STATE_MAX, "{encoded:?}, {decoded:?}");
}

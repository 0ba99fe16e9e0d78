//! A state that is too large for one message between nodes.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use cluster::state::{ClusterState, Command, CommandId, MemberInfo, Outcome, Proposal, STATE_VERSION};
use cluster::{SchemaEdit, own_schema};
use rt_sim::{Config, Simulation};
use schema::{Keyspace, Replication, Role, TableBuilder, TableId};
use topology::Location;
use types::CqlType;

use crate::group_world::*;

const TABLES: usize = 20_000;
/// Tables of a keyspace.
const EACH: usize = 100;
/// CPU time of the longest poll of a change of the schema, and of a snapshot's encoding.
const POLL_MAX: Duration = Duration::from_millis(20);
/// Steps of 1 KiB of JSON, or a table, of the longest poll, when every look at the clock says that it should end.
const STEPS_MAX: u64 = 128;

/// Keyspaces with their tables; each table has a comment, as people write them.
fn edits(keyspaces: std::ops::Range<usize>) -> Vec<SchemaEdit> {
    let mut edits = Vec::new();
    for number in keyspaces {
        let name = format!("ks{number}");
        edits.push(SchemaEdit::PutKeyspace(Keyspace::new(&name, Replication::Simple { factor: 3 })));
        for table in number * EACH..(number + 1) * EACH {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(table as u64 + 1).to_be_bytes());
            let mut builder = TableBuilder::new(&name, format!("t{table}"), TableId(id))
                .partition_key("pk", CqlType::Int)
                .regular("v", CqlType::Text);
            builder.options.comment = "a table of one of many tenants ".repeat(40);
            edits.push(SchemaEdit::PutTable(builder.build().unwrap()));
        }
    }
    edits
}

#[test]
fn a_node_joins_a_cluster_of_20_000_tables() {
    let always = Config { preempt_per_million: 1_000_000, ..Config::default() };
    let mut cluster = Cluster::empty_with(90, always);
    // A snapshot is due at the seventh entry.
    cluster.add(Setup { snapshot_entries: 7, ..Setup::new(0) });
    cluster.until("it is up", || is_in(0));
    for first in (0..TABLES / EACH).step_by(50) {
        let made = cluster.on(0, move |rt, group| async move {
            let base = group.applied().state.schema.version();
            group.change_schema(base, edits(first..first + 50), rt.now() + 60 * SECOND, |_| true).await
        });
        made.unwrap();
    }
    let len = group(0).applied().state.encode().len();
    assert!(len > 32 << 20, "more than a frame holds: {len} bytes");
    cluster.add(Setup::new(1));
    cluster.until("it is in", || is_in(1));
    let state = cluster.barrier(1).state;
    assert_eq!(state.schema.tables().filter(|table| table.keyspace.starts_with("ks")).count(), TABLES);
    assert_eq!(state.schema.version(), group(0).applied().state.schema.version());
    // Both nodes apply a change, and make a snapshot, between other tasks' polls.
    for node in [0, 1] {
        cluster.sim.take_longest_poll(cluster.nodes[node]);
    }
    for n in 0..7 {
        cluster.on(0, move |rt, group| async move {
            let base = group.applied().state.schema.version();
            let edits = vec![SchemaEdit::PutTable(small_table(n))];
            group.change_schema(base, edits, rt.now() + 60 * SECOND, |_| true).await.unwrap();
        });
    }
    cluster.barrier(1);
    for node in [0, 1] {
        let steps = cluster.sim.take_longest_poll(cluster.nodes[node]);
        println!("node {node}: {steps} steps in the longest poll");
        assert!((1..=STEPS_MAX).contains(&steps), "node {node}: {steps} steps in one poll");
    }
}

fn small_table(number: u8) -> schema::Table {
    let table = TableBuilder::new("ks7", format!("small{number}"), TableId([200 + number; 16]));
    table.partition_key("pk", CqlType::Int).build().unwrap()
}

/// The state of a node with all tables.
fn state() -> ClusterState {
    let info = MemberInfo {
        internode: address(0),
        native: address(0),
        location: Location::new("dc1", "rack1"),
        shard_count: 1,
        release_version: "5.0.0".to_owned(),
        state_version: STATE_VERSION,
    };
    let state = ClusterState::found("test", own_schema(), own_schema(), host(0), info, vec![0]);
    let command = Command::SchemaChange { base: state.schema.version(), edits: edits(0..TABLES / EACH) };
    let (next, outcome) = state.apply(Proposal { id: CommandId([1; 16]), command });
    assert!(matches!(outcome, Outcome::SchemaChanged { .. }), "{outcome:?}");
    next
}

/// The longest poll of some work, the number of polls, and the result.
async fn longest_poll<T>(work: impl Future<Output = T>) -> (Duration, usize, T) {
    let mut work = pin!(work);
    let (mut longest, mut polls) = (Duration::ZERO, 0);
    let out = poll_fn(|cx| {
        let began = cpu_time();
        let polled = work.as_mut().poll(cx);
        longest = longest.max(cpu_time() - began);
        polls += 1;
        polled
    });
    let out = out.await;
    (longest, polls, out)
}

/// The version of the schema, and a snapshot, are made of all tables, some of them at a time.
#[test]
fn a_change_of_one_of_20_000_tables_gives_way() {
    let role = Role {
        name: "r".to_owned(),
        can_login: true,
        is_superuser: false,
        salted_hash: None,
        datacenters: None,
        member_of: Default::default(),
        permissions: Default::default(),
        service_level: None,
        identities: Default::default(),
        cidr_groups: Default::default(),
    };
    let changes = [
        ("a table is made", vec![SchemaEdit::PutTable(small_table(1))]),
        (
            "a table is dropped",
            vec![SchemaEdit::DropTable { keyspace: "ks7".to_owned(), name: "t701".to_owned() }],
        ),
        ("a role is made", vec![SchemaEdit::PutRole(role)]),
    ];
    let sim = Simulation::new(1, Config { preempt_per_million: 1_000_000, ..Config::default() });
    let work = async move {
        let state = state();
        for (what, edits) in changes {
            let command = Command::SchemaChange { base: state.schema.version(), edits };
            let proposal = Proposal { id: CommandId([2; 16]), command };
            let began = cpu_time();
            let expected = state.apply(proposal.clone());
            println!("{what}: {:?} in all", cpu_time() - began);
            let mut least = Duration::MAX;
            // The least of a few runs, to exclude other load of the host.
            for _ in 0..3 {
                let (longest, polls, found) = longest_poll(state.apply_in_steps(proposal.clone())).await;
                println!("{what}: {polls} polls, the longest {longest:?}");
                assert!(polls > 100, "{what}: {polls} polls");
                assert!(found == expected, "{what}: steps change nothing");
                least = least.min(longest);
            }
            assert!(least < POLL_MAX, "{what}: {least:?} in one poll");
        }
        let began = cpu_time();
        let (expected, mut least) = (state.encode(), Duration::MAX);
        println!("a snapshot: {:?} in all", cpu_time() - began);
        for _ in 0..3 {
            let (longest, polls, found) = longest_poll(state.encode_in_steps()).await;
            println!("a snapshot of {} bytes: {polls} polls, the longest {longest:?}", found.len());
            assert!(polls > 100, "a snapshot: {polls} polls");
            assert!(found == expected, "steps change nothing");
            least = least.min(longest);
        }
        assert!(least < POLL_MAX, "a snapshot: {least:?} in one poll");
        // By a node that joins, and by one that has been away and has all tables.
        let blank = ClusterState::unknown("test", own_schema());
        for (what, before) in [("blank", &blank), ("away", &state)] {
            let mut least = Duration::MAX;
            for _ in 0..3 {
                let decoded = before.decode_after_in_steps(&expected);
                let (longest, polls, found) = longest_poll(decoded).await;
                println!("a snapshot is decoded, {what}: {polls} polls, the longest {longest:?}");
                assert!(polls > 500, "a decoded snapshot: {polls} polls");
                assert!(found.expect("it was encoded") == state, "{what}: steps change nothing");
                least = least.min(longest);
            }
            assert!(least < POLL_MAX, "a decoded snapshot, {what}: {least:?} in one poll");
        }
    };
    sim.block_on(|_| work).expect("it ends");
}

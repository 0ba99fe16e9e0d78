//! Seeded fuzzers of the cluster's log: commands in random order, applied as values and as bytes, and bytes of a peer that are no
//! commands. Every decoded command can be applied, and every node reaches the same state.

use cluster::SchemaEdit;
use cluster::own_schema;
use cluster::state::{
    ChangeStep, ClusterState, Command, CommandId, MemberInfo, MemberStatus, Outcome, Proposal, STATE_VERSION,
    decode_outcome, encode_outcome,
};
use proptest::strategy::{BoxedStrategy, Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use schema::Replication;
use serde_json::Value;
use testkit::fuzz::{Random, change, hunt};
use topology::{HostId, Location};

use crate::commands::{self, encode_checked};

/// Commands of a round.
const PER_ROUND: usize = 40;
/// Commands between two snapshots.
const PER_SNAPSHOT: usize = 8;
const KEYSPACES: &[&str] = &["ks", "other", "system", "system_distributed", "", "Ks"];
const NUMBERS: &[u64] = &[0, 1, 2, 255, 65_536, i64::MAX as u64, u64::MAX];

/// A value of a strategy that follows from the seed.
fn draw<T: std::fmt::Debug>(random: &mut Random, strategy: &BoxedStrategy<T>) -> T {
    let mut seed = [0; 32];
    seed.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&random.next().to_le_bytes()));
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    strategy.new_tree(&mut runner).expect("few values are filtered out").current()
}

fn host(random: &mut Random) -> HostId {
    HostId([1 + random.below(6) as u8; 16])
}

fn info(random: &mut Random) -> MemberInfo {
    let address = |random: &mut Random, port: u16| ([10, 0, 0, 1 + random.below(8) as u8], port).into();
    MemberInfo {
        internode: address(random, 7000),
        native: address(random, 9042),
        location: Location::new(*random.of(&["dc1", "dc2", "", "\0"]), format!("rack{}", random.below(3))),
        shard_count: *random.of(&[0, 1, 2, u16::MAX]),
        release_version: "5.0.0".to_owned(),
        state_version: *random.of(&[STATE_VERSION, STATE_VERSION, STATE_VERSION, STATE_VERSION + 1, 0]),
    }
}

/// An edit in one of a few keyspaces, so that edits meet each other.
fn edit(random: &mut Random, edits: &BoxedStrategy<SchemaEdit>) -> SchemaEdit {
    let name = (*random.of(KEYSPACES)).to_owned();
    let mut edit = draw(random, edits);
    match &mut edit {
        SchemaEdit::PutKeyspace(keyspace) => {
            keyspace.name = name;
            if random.one_in(2) {
                keyspace.replication = Replication::Simple { factor: 1 + random.below(3) as u32 };
            }
        }
        SchemaEdit::PutTable(table) => {
            let mut builder = table.to_builder();
            builder.keyspace = name;
            *table = builder.build().expect("only the keyspace is another");
        }
        SchemaEdit::PutType(ty) => ty.keyspace = name,
        SchemaEdit::PutFunction(function) => function.keyspace = name,
        SchemaEdit::PutAggregate(aggregate) => aggregate.keyspace = name,
        SchemaEdit::DropTable { keyspace, .. }
        | SchemaEdit::DropType { keyspace, .. }
        | SchemaEdit::DropFunction { keyspace, .. }
        | SchemaEdit::DropAggregate { keyspace, .. } => *keyspace = name,
        SchemaEdit::DropKeyspace(keyspace) if random.one_in(4) => *keyspace = name,
        _ => {}
    }
    edit
}

/// The number that a command has to name, mostly.
fn expected(random: &mut Random, right: u64) -> u64 {
    if random.one_in(8) { *random.of(NUMBERS) } else { right }
}

pub fn command(random: &mut Random, state: &ClusterState, edits: &BoxedStrategy<SchemaEdit>) -> Command {
    let (host, change) = (host(random), expected(random, state.last_change()));
    match random.below(14) {
        0..=3 => {
            let base = if random.one_in(8) { [0; 16] } else { state.schema.version() };
            let edits = (0..random.below(4)).map(|_| edit(random, edits)).collect();
            Command::SchemaChange { base, edits }
        }
        4 | 5 => {
            let replaces = random.one_in(3).then(|| self::host(random));
            Command::AddMember { host, info: info(random), replaces }
        }
        6 => Command::UpdateMember { host, info: info(random) },
        7 | 8 => {
            use MemberStatus::{Joining, Leaving, Left, Normal, Removing};
            Command::SetStatus {
                host,
                status: *random.of(&[Joining, Normal, Normal, Leaving, Removing, Left]),
            }
        }
        9 | 10 => {
            let replaced = state.member(host).and_then(|member| state.member(member.replaces?));
            let tokens = match replaced {
                Some(replaced) if !random.one_in(4) => replaced.tokens.clone(),
                _ => (0..random.below(4))
                    .map(|_| *random.of(&[i64::MIN, -7, 0, 9, 11, 12, i64::MAX]))
                    .collect(),
            };
            Command::SetTokens { host, tokens, base: expected(random, state.topology_version) }
        }
        11 if random.one_in(3) => Command::RemoveMember { host },
        11 | 12 => {
            use ChangeStep::{Announced, Fetching, Switched};
            Command::TakeStep { change, step: *random.of(&[Announced, Fetching, Switched]) }
        }
        _ if random.one_in(2) => Command::Fetched { change, host },
        _ => Command::EndAlteration { change },
    }
}

pub fn founded() -> ClusterState {
    let info = MemberInfo {
        internode: ([10, 0, 0, 1], 7000).into(),
        native: ([10, 0, 0, 1], 9042).into(),
        location: Location::new("dc1", "rack1"),
        shard_count: 2,
        release_version: "5.0.0".to_owned(),
        state_version: STATE_VERSION,
    };
    ClusterState::found("test", own_schema(), own_schema(), HostId([1; 16]), info, vec![-5, 5])
}

pub fn id(random: &mut Random) -> CommandId {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random.next().to_be_bytes());
    CommandId(id)
}

/// The invariants of a state, whichever commands came before.
fn hold_invariants(before: &ClusterState, after: &ClusterState, outcome: &Outcome) {
    assert!(after.topology_version >= before.topology_version);
    assert!(after.schema_number >= before.schema_number);
    assert!(after.last_change() >= before.last_change());
    assert!(after.fence >= before.fence, "the fence went back");
    assert!(after.fence <= after.topology_version, "the fence is in the future");
    if let Outcome::Refused(_) = outcome {
        assert_eq!(after.schema.version(), before.schema.version());
        assert_eq!((&after.members, &after.change), (&before.members, &before.change));
        assert_eq!(after.topology_version, before.topology_version);
    }
    let in_force =
        |status| matches!(status, MemberStatus::Normal | MemberStatus::Leaving | MemberStatus::Removing);
    let ring = after.ring_of(in_force).expect("the tokens in force differ");
    assert!(!ring.tokens().is_empty(), "nobody owns anything");
    assert!(after.ring().is_ok(), "two members have one token");
    let mut numbers: Vec<u64> = after.members.values().map(|member| member.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), after.members.len(), "two members have one number");
    for member in after.members.values() {
        let replaced = member.replaces.is_none_or(|old| after.members.contains_key(&old));
        assert!(replaced || member.tokens.is_empty(), "a host that is gone is replaced");
    }
}

/// The state of a node that begins with this snapshot.
fn restarted(state: &ClusterState) -> ClusterState {
    let bytes = state.encode();
    let read = ClusterState::unknown("test", own_schema()).decode_after(&bytes).expect("a snapshot of ours");
    assert!(read.encode() == bytes, "a snapshot is written otherwise after it was read");
    assert_eq!(read.schema.version(), state.schema.version());
    read
}

/// One node applies commands as they were proposed, another one their bytes, and is restarted now and then.
fn round(random: &mut Random, edits: &BoxedStrategy<SchemaEdit>) -> usize {
    let (mut state, mut changed) = (founded(), 0);
    let mut other = restarted(&state);
    for at in 0..PER_ROUND {
        let proposal = Proposal { id: id(random), command: command(random, &state, edits) };
        // A command that other nodes could not decode is not proposed.
        let Ok(bytes) = encode_checked(&proposal).0 else { continue };
        let read = Proposal::decode(&bytes).expect("it was checked");
        assert_eq!(format!("{read:?}"), format!("{proposal:?}"));
        let (next, outcome) = state.apply(proposal.clone());
        let (of_bytes, other_outcome) = other.apply(read);
        assert_eq!(outcome, other_outcome);
        hold_invariants(&state, &next, &outcome);
        assert_eq!(decode_outcome(&encode_outcome(&outcome)).expect("an outcome of ours"), outcome);
        let (again, same) = next.apply(proposal);
        assert!(same == outcome && again.encode() == next.encode(), "a command is applied twice");
        changed += usize::from(!matches!(outcome, Outcome::Refused(_)));
        (state, other) = (next, of_bytes);
        assert!(state.encode() == other.encode(), "two nodes differ");
        if at % PER_SNAPSHOT == 0 {
            other = restarted(&other);
        }
    }
    changed
}

#[test]
fn nodes_agree_after_any_commands() {
    let edits = commands::edit().boxed();
    let (mut rounds, mut changed) = (0, 0);
    hunt("commands of the log", |random| {
        rounds += 1;
        changed += round(random, &edits);
    });
    assert!(changed > 5 * rounds, "of {rounds} rounds {changed} commands changed something");
}

/// Proposals, outcomes and snapshots as nodes write them.
fn corpus() -> Vec<Vec<u8>> {
    let mut random = Random(7);
    let edits = commands::edit().boxed();
    let (mut state, mut all) = (founded(), Vec::new());
    for at in 0..120 {
        let proposal = Proposal { id: id(&mut random), command: command(&mut random, &state, &edits) };
        let Ok(bytes) = encode_checked(&proposal).0 else { continue };
        let (next, outcome) = state.apply(proposal);
        state = next;
        let short = [bytes, encode_outcome(&outcome)].into_iter().filter(|bytes| bytes.len() < 20_000);
        all.extend(short);
        if at % 20 == 0 {
            all.push(state.encode());
        }
    }
    all
}

/// Replaces, removes or repeats one value somewhere in a document.
fn change_json(random: &mut Random, value: &mut Value, others: &[Value]) {
    match value {
        Value::Array(items) if !items.is_empty() && !random.one_in(4) => {
            let at = random.below(items.len());
            match random.below(8) {
                0 => drop(items.remove(at)),
                1 => items.insert(at, items[at].clone()),
                2 => items.reverse(),
                _ => change_json(random, &mut items[at], others),
            }
        }
        Value::Object(fields) if !fields.is_empty() && !random.one_in(8) => {
            let key = fields.keys().nth(random.below(fields.len())).expect("it is below the length").clone();
            match random.below(12) {
                0 => drop(fields.remove(&key)),
                1 => {
                    let moved = fields.remove(&key).unwrap_or_default();
                    let names = ["PutTable", "DropKeyspace", "SetTokens", "Millis", "", "Refused", "Local"];
                    fields.insert((*random.of(&names)).to_owned(), moved);
                }
                _ => change_json(random, fields.get_mut(&key).expect("it is there"), others),
            }
        }
        _ if random.one_in(4) => *value = random.of(others).clone(),
        _ => *value = extreme(random),
    }
}

fn extreme(random: &mut Random) -> Value {
    let number = *random.of(NUMBERS);
    match random.below(9) {
        0 => Value::Null,
        1 => Value::from(number),
        2 => Value::from(-(number as i64 as i128) as i64),
        3 => Value::from(1e300),
        4 => Value::from(random.one_in(2)),
        5 => Value::from(vec![Value::from(0); random.below(3)]),
        6 => Value::from((*random.of(KEYSPACES)).to_owned()),
        7 => {
            let deep = "org.apache.cassandra.db.marshal.ListType(".repeat(random.below(3) * 2_000);
            Value::from(deep)
        }
        _ => Value::from(*random.of(&[
            "",
            "\0",
            "NaN",
            "-inf",
            "01010101-0101-0101-0101-010101010101",
            "00000000-0000-0000-0000-000000000000",
            "org.apache.cassandra.db.marshal.Int32Type",
            "org.apache.cassandra.db.marshal.VectorType(org.apache.cassandra.db.marshal.FloatType,4294967295)",
            "org.apache.cassandra.db.marshal.CounterColumnType",
            "partition_key",
            "10.0.0.1:7000",
            "Normal",
            "Switched",
        ])),
    }
}

/// Decodes bytes as everything that a peer sends; accepted values can be applied, and encoded again.
fn read(random: &mut Random, bytes: &[u8], state: &ClusterState, edits: &BoxedStrategy<SchemaEdit>) -> usize {
    let mut accepted = 0;
    if let Ok(proposal) = Proposal::decode(bytes) {
        accepted += 1;
        let again = Proposal::decode(&proposal.encode()).expect("what was read is written readably");
        assert_eq!(format!("{again:?}"), format!("{proposal:?}"));
        let (next, outcome) = state.apply(proposal);
        hold_invariants(state, &next, &outcome);
        restarted(&next);
    }
    if let Ok(outcome) = decode_outcome(bytes) {
        accepted += 1;
        assert_eq!(decode_outcome(&encode_outcome(&outcome)).expect("as it was read"), outcome);
        // The message that a client receives.
        drop(outcome_text(&outcome));
    }
    if let Ok(snapshot) = ClusterState::unknown("test", own_schema()).decode_after(bytes) {
        accepted += 1;
        let mut snapshot = restarted(&snapshot);
        for _ in 0..4 {
            let command = command(random, &snapshot, edits);
            snapshot = snapshot.apply(Proposal { id: id(random), command }).0;
        }
        drop(snapshot.ring());
        drop(snapshot.encode());
    }
    accepted
}

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(refused) => refused.to_string(),
        other => format!("{other:?}"),
    }
}

#[test]
fn bytes_of_a_peer_are_read_or_refused() {
    let sound = corpus();
    let edits = commands::edit().boxed();
    let documents: Vec<Value> = sound
        .iter()
        .map(|bytes| serde_json::from_slice(&bytes[1..]).expect("JSON after the version"))
        .collect();
    let mut state = founded();
    for bytes in &sound {
        if let Ok(proposal) = Proposal::decode(bytes) {
            state = state.apply(proposal).0;
        }
    }
    let (mut rounds, mut accepted) = (0, 0);
    hunt("bytes of the log", |random: &mut Random| {
        let bytes = if random.one_in(3) {
            let mut bytes = random.of(&sound).clone();
            change(random, &mut bytes, &sound);
            bytes
        } else {
            let mut document = random.of(&documents).clone();
            for _ in 0..1 + random.below(2) {
                change_json(random, &mut document, &documents);
            }
            let mut bytes = vec![sound[0][0]];
            serde_json::to_writer(&mut bytes, &document).expect("memory takes it");
            bytes
        };
        rounds += 1;
        accepted += read(random, &bytes, &state, &edits);
    });
    assert!(accepted * 20 > rounds, "of {rounds} documents {accepted} were accepted");
}

//! The replicated state: commands, their outcomes, and their bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use cluster::SchemaEdit;
use cluster::own_schema;
use cluster::state::{
    ChangeStep, ClusterState, Command, CommandId, MemberInfo, MemberStatus, OUTCOMES_MAX, Outcome, Proposal,
    Refused, STATE_VERSION,
};
use proptest::prelude::*;
use schema::{Keyspace, Replication, Table, TableBuilder, TableId, UserType};
use topology::{HostId, Location};
use types::CqlType;

fn host(id: u8) -> HostId {
    HostId([id; 16])
}

fn info(id: u8) -> MemberInfo {
    MemberInfo {
        internode: SocketAddr::from(([10, 0, 0, id], 7000)),
        native: SocketAddr::from(([10, 0, 0, id], 9042)),
        location: Location::new("dc1", format!("rack{}", id % 3)),
        shard_count: 2,
        release_version: "5.0.0".to_owned(),
        state_version: STATE_VERSION,
    }
}

fn founded() -> ClusterState {
    ClusterState::found("test", own_schema(), own_schema(), host(1), info(1), vec![-5, 5])
}

/// Applies a command under an id of its own.
fn apply(state: &mut ClusterState, command: Command) -> Outcome {
    let number = state.topology_version * 1_000_000 + state.schema_number * 1_000 + next();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    let (next, outcome) = state.apply(Proposal { id: CommandId(id), command });
    *state = next;
    outcome
}

fn next() -> u64 {
    use std::cell::Cell;
    thread_local!(static NEXT: Cell<u64> = const { Cell::new(0) });
    NEXT.with(|next| next.replace(next.get() + 1))
}

fn refused(outcome: Outcome) -> Refused {
    match outcome {
        Outcome::Refused(refused) => refused,
        other => panic!("{other:?}"),
    }
}

fn keyspace(name: &str) -> SchemaEdit {
    SchemaEdit::PutKeyspace(Keyspace::new(name, Replication::Simple { factor: 1 }))
}

fn table(columns: &[&str]) -> Table {
    let builder = TableBuilder::new("ks", "t", TableId([9; 16])).partition_key("pk", CqlType::Int);
    columns.iter().fold(builder, |builder, name| builder.regular(*name, CqlType::Text)).build().unwrap()
}

fn change(state: &mut ClusterState, edits: Vec<SchemaEdit>) -> Outcome {
    let base = state.schema.version();
    apply(state, Command::SchemaChange { base, edits })
}

#[test]
fn a_schema_change_needs_the_schema_that_it_was_planned_against() {
    let mut state = founded();
    let old = state.schema.version();
    let changed = change(&mut state, vec![keyspace("ks")]);
    assert_eq!(changed, Outcome::SchemaChanged { number: 2, version: state.schema.version() });
    assert_ne!(old, state.schema.version());
    let late = apply(&mut state, Command::SchemaChange { base: old, edits: vec![keyspace("other")] });
    assert_eq!(refused(late), Refused::SchemaMoved);
    let nowhere = change(&mut state, vec![SchemaEdit::DropTable { keyspace: "no".into(), name: "t".into() }]);
    assert_eq!(refused(nowhere), Refused::InvalidEdit("Keyspace 'no' doesn't exist".to_owned()));
    assert_eq!(state.schema_number, 2);
}

#[test]
fn a_command_that_is_proposed_again_is_applied_once() {
    let state = founded();
    let command = Command::SchemaChange { base: state.schema.version(), edits: vec![keyspace("ks")] };
    let proposal = Proposal { id: CommandId([7; 16]), command };
    let (once, first) = state.apply(proposal.clone());
    let (twice, second) = once.apply(proposal.clone());
    assert_eq!((&once, &first), (&twice, &second));
    // Also by a node that began with a snapshot.
    let unknown = ClusterState::unknown("test", own_schema());
    let (again, third) = unknown.decode_after(&once.encode()).unwrap().apply(proposal);
    assert_eq!((again.schema.version(), third), (once.schema.version(), first));
}

#[test]
fn remembered_outcomes_are_bounded() {
    let mut state = founded();
    for _ in 0..OUTCOMES_MAX + 10 {
        apply(&mut state, Command::UpdateMember { host: host(9), info: info(9) });
    }
    let bytes = state.encode().len();
    apply(&mut state, Command::UpdateMember { host: host(9), info: info(9) });
    assert_eq!(state.encode().len(), bytes);
}

/// Found by the fuzzer: the next command on such a state would overflow a number, or give a member the number of another.
#[test]
fn a_snapshot_with_impossible_numbers_is_refused() {
    let sound = founded().encode();
    let unknown = ClusterState::unknown("test", own_schema());
    for (number, value) in [
        ("schema_number", u64::MAX),
        ("topology_version", u64::MAX),
        ("next_number", u64::MAX),
        ("last_change", u64::MAX),
        ("next_number", 1),
        ("fence", 2),
    ] {
        let mut document: serde_json::Value = serde_json::from_slice(&sound[1..]).unwrap();
        document[number] = value.into();
        let bytes = [&sound[..1], &serde_json::to_vec(&document).unwrap()].concat();
        let error = unknown.decode_after(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("no state of a cluster: "), "{number} of {value}: {error}");
    }
    assert!(unknown.decode_after(&sound).is_ok());
}

#[test]
fn a_snapshot_that_goes_back_or_replaces_itself_is_refused() {
    let mut later = founded();
    apply(&mut later, Command::AddMember { host: host(2), info: info(2), replaces: None });
    let error = later.decode_after(&founded().encode()).unwrap_err().to_string();
    assert_eq!(error, "no state of a cluster: topology_version is 1");
    let own = later.encode();
    assert!(later.decode_after(&own).is_ok(), "the same state again");
    let mut document: serde_json::Value = serde_json::from_slice(&own[1..]).unwrap();
    let joining = &mut document["members"][0];
    joining["member"]["replaces"] = joining["host"].clone();
    let bytes = [&own[..1], &serde_json::to_vec(&document).unwrap()].concat();
    let error = later.decode_after(&bytes).unwrap_err().to_string();
    assert!(error.contains("a member that replaces itself"), "{error}");
}

#[test]
fn a_node_joins_takes_tokens_serves_and_leaves() {
    let mut state = founded();
    assert_eq!(
        apply(&mut state, Command::AddMember { host: host(2), info: info(2), replaces: None }),
        Outcome::Added { number: 2 }
    );
    // Asked for again after a lost answer, as another command.
    assert_eq!(
        apply(&mut state, Command::AddMember { host: host(2), info: info(2), replaces: None }),
        Outcome::Added { number: 2 }
    );
    let normal = Command::SetStatus { host: host(2), status: MemberStatus::Normal };
    assert_eq!(refused(apply(&mut state, normal.clone())), Refused::BadTokens);
    let tokens = |tokens: &[i64], base| Command::SetTokens { host: host(2), tokens: tokens.to_vec(), base };
    let base = state.topology_version;
    assert_eq!(refused(apply(&mut state, tokens(&[1, 5], base))), Refused::TokenTaken { token: 5 });
    assert_eq!(refused(apply(&mut state, tokens(&[1, 1], base))), Refused::BadTokens);
    assert_eq!(refused(apply(&mut state, tokens(&[1], base - 1))), Refused::MembersMoved);
    assert!(matches!(apply(&mut state, tokens(&[9, 1], base)), Outcome::Done { .. }));
    assert_eq!(state.member(host(2)).unwrap().tokens, [1, 9]);
    assert_eq!(state.ring_of(|status| status == MemberStatus::Normal).unwrap().nodes().len(), 1);
    assert!(matches!(apply(&mut state, normal), Outcome::Done { .. }));
    assert_eq!(state.ring_of(|status| status == MemberStatus::Normal).unwrap().nodes().len(), 2);
    let base = state.topology_version;
    let fixed = Refused::TokensFixed { status: MemberStatus::Normal };
    assert_eq!(refused(apply(&mut state, tokens(&[2], base))), fixed);
    let step = |status| Command::SetStatus { host: host(2), status };
    let no_step = Refused::NoSuchStep { from: MemberStatus::Normal, to: MemberStatus::Left };
    assert_eq!(refused(apply(&mut state, step(MemberStatus::Left))), no_step);
    for status in [MemberStatus::Leaving, MemberStatus::Left] {
        assert!(matches!(apply(&mut state, step(status)), Outcome::Done { .. }));
    }
    assert!(state.member(host(2)).unwrap().tokens.is_empty());
    assert!(matches!(apply(&mut state, Command::RemoveMember { host: host(2) }), Outcome::Done { .. }));
    let back = apply(&mut state, Command::AddMember { host: host(2), info: info(2), replaces: None });
    assert_eq!(refused(back), Refused::WasRemoved { host: host(2) });
    let number = apply(&mut state, Command::AddMember { host: host(3), info: info(3), replaces: None });
    assert_eq!(number, Outcome::Added { number: 3 }, "numbers are never given twice");
}

#[test]
fn commands_that_would_break_the_cluster_are_refused() {
    let mut state = founded();
    assert_eq!(refused(apply(&mut state, Command::RemoveMember { host: host(1) })), Refused::LastMember);
    let leaving = Command::SetStatus { host: host(1), status: MemberStatus::Leaving };
    assert_eq!(refused(apply(&mut state, leaving)), Refused::LastMember);
    let twice = Command::AddMember {
        host: host(1),
        info: MemberInfo { internode: info(8).internode, ..info(1) },
        replaces: None,
    };
    assert!(matches!(refused(apply(&mut state, twice)), Refused::HostExists { .. }));
    let taken = Command::AddMember { host: host(2), info: info(1), replaces: None };
    let address = info(1).internode;
    assert_eq!(refused(apply(&mut state, taken)), Refused::AddressTaken { address, host: host(1) });
    let old = Command::AddMember {
        host: host(2),
        info: MemberInfo { state_version: 0, ..info(2) },
        replaces: None,
    };
    assert!(matches!(refused(apply(&mut state, old)), Refused::TooOld { .. }));
    assert_eq!(
        refused(apply(&mut state, Command::RemoveMember { host: host(7) })),
        Refused::UnknownHost { host: host(7) }
    );
}

#[test]
fn a_snapshot_is_the_same_state() {
    let mut state = founded();
    change(&mut state, vec![keyspace("ks"), SchemaEdit::PutTable(table(&["a", "b"]))]);
    apply(&mut state, Command::AddMember { host: host(2), info: info(2), replaces: None });
    apply(&mut state, Command::RemoveMember { host: host(2) });
    let unknown = ClusterState::unknown("test", own_schema());
    let read = unknown.decode_after(&state.encode()).unwrap();
    assert_eq!(read, state);
    assert_eq!(read.encode(), state.encode());
    let mut newer = state.encode();
    newer[0] = 2;
    assert!(unknown.decode_after(&newer).is_err());
}

/// Memtables and readers know columns by id: a decoded schema must not give an id another meaning.
#[test]
fn column_ids_of_this_process_keep_their_meaning() {
    let mut state = founded();
    change(&mut state, vec![keyspace("ks"), SchemaEdit::PutTable(table(&["a", "b"]))]);
    let known = state.schema.table("ks", "t").unwrap().clone();
    let mut without = known.to_builder();
    without.drop_column("a", 1);
    let edit = SchemaEdit::PutTable(without.regular("c", CqlType::Int).build().unwrap());
    let command = Command::SchemaChange { base: state.schema.version(), edits: vec![edit] };
    let bytes = Proposal { id: CommandId([3; 16]), command }.encode();
    let (after, _) = state.apply(Proposal::decode(&bytes).unwrap());
    let table = after.schema.table("ks", "t").unwrap();
    assert_eq!(table.column("b").unwrap().id, known.column("b").unwrap().id);
    assert_ne!(table.column("c").unwrap().id, known.column("a").unwrap().id);
    // The same by a snapshot.
    let installed = state.decode_after(&after.encode()).unwrap();
    assert_eq!(installed.schema.table("ks", "t").unwrap(), table);
    assert_eq!(installed.schema.version(), after.schema.version());
    let same = after.decode_after(&after.encode()).unwrap();
    assert!(Arc::ptr_eq(same.schema.table("ks", "t").unwrap(), table), "what did not change is shared");
}

fn edits() -> impl Strategy<Value = Vec<SchemaEdit>> {
    let name = "[a-c]";
    let edit = prop_oneof![
        (name, 1..4u32).prop_map(|(name, factor)| {
            SchemaEdit::PutKeyspace(Keyspace::new(name, Replication::Simple { factor }))
        }),
        name.prop_map(SchemaEdit::DropKeyspace),
        (name, name, any::<[u8; 16]>()).prop_map(|(keyspace, name, id)| {
            let builder = TableBuilder::new(keyspace, name, TableId(id)).partition_key("pk", CqlType::Int);
            SchemaEdit::PutTable(builder.regular("v", CqlType::Text).build().unwrap())
        }),
        (name, name).prop_map(|(keyspace, name)| SchemaEdit::DropTable { keyspace, name }),
        (name, name).prop_map(|(keyspace, name)| {
            SchemaEdit::PutType(UserType { keyspace, name, fields: vec![("f".to_owned(), CqlType::Int)] })
        }),
        (name, name).prop_map(|(keyspace, name)| SchemaEdit::DropType { keyspace, name }),
    ];
    prop::collection::vec(edit, 0..4)
}

fn command() -> impl Strategy<Value = Command> {
    let status = prop::sample::select(vec![
        MemberStatus::Joining,
        MemberStatus::Normal,
        MemberStatus::Leaving,
        MemberStatus::Removing,
        MemberStatus::Left,
    ]);
    let step = prop::sample::select(vec![ChangeStep::Announced, ChangeStep::Fetching, ChangeStep::Switched]);
    prop_oneof![
        (any::<[u8; 16]>(), edits()).prop_map(|(base, edits)| Command::SchemaChange { base, edits }),
        (1..5u8, 1..6u8, prop::option::of(1..5u8)).prop_map(|(id, at, replaces)| Command::AddMember {
            host: host(id),
            info: info(at),
            replaces: replaces.map(host),
        }),
        (1..5u8, 1..6u8).prop_map(|(id, at)| Command::UpdateMember { host: host(id), info: info(at) }),
        (1..5u8, status).prop_map(|(id, status)| Command::SetStatus { host: host(id), status }),
        (1..5u8, prop::collection::vec(-9..9i64, 0..4), 0..12u64)
            .prop_map(|(id, tokens, base)| Command::SetTokens { host: host(id), tokens, base }),
        (1..5u8).prop_map(|id| Command::RemoveMember { host: host(id) }),
        (0..4u64, step).prop_map(|(change, step)| Command::TakeStep { change, step }),
        (0..4u64, 1..5u8).prop_map(|(change, id)| Command::Fetched { change, host: host(id) }),
        (0..4u64).prop_map(|change| Command::EndAlteration { change }),
    ]
}

proptest! {
    #[test]
    fn commands_read_as_written(id: [u8; 16], command in command()) {
        let proposal = Proposal { id: CommandId(id), command };
        let read = Proposal::decode(&proposal.encode()).unwrap();
        prop_assert_eq!(read.encode(), proposal.encode());
        prop_assert_eq!(read, proposal);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let unknown = ClusterState::unknown("test", own_schema());
        let mut framed = vec![1];
        framed.extend_from_slice(&bytes);
        for bytes in [&bytes, &framed] {
            prop_assert!(Proposal::decode(bytes).is_err());
            prop_assert!(unknown.decode_after(bytes).is_err());
        }
    }

    /// Two nodes, of which one was given a snapshot in between, have the same state after the same commands; the ring of all
    /// members is one, and somebody owns the data.
    #[test]
    fn nodes_agree(commands in prop::collection::vec((command(), any::<bool>()), 1..40)) {
        let mut here = founded();
        let mut there = ClusterState::unknown("test", own_schema()).decode_after(&here.encode()).unwrap();
        for (number, (command, fits)) in commands.into_iter().enumerate() {
            let command = match command {
                Command::SchemaChange { edits, .. } if fits => {
                    Command::SchemaChange { base: here.schema.version(), edits }
                }
                Command::SetTokens { host, tokens, .. } if fits => {
                    Command::SetTokens { host, tokens, base: here.topology_version }
                }
                other => other,
            };
            let proposal = Proposal { id: CommandId([number as u8; 16]), command };
            let (next, outcome) = here.apply(proposal.clone());
            let (next_there, outcome_there) = there.apply(proposal);
            prop_assert_eq!(&outcome, &outcome_there);
            (here, there) = (next, next_there);
            if number % 7 == 3 {
                there = there.decode_after(&here.encode()).unwrap();
            }
            prop_assert_eq!(here.encode(), there.encode());
            prop_assert!(here.ring().is_ok());
            let normal = here.ring_of(|status| status != MemberStatus::Joining).unwrap();
            prop_assert!(!normal.nodes().is_empty(), "somebody owns the data");
        }
    }
}

/// A node that owns tokens, let in and made so in three commands.
fn owner(state: &mut ClusterState, id: u8, tokens: &[i64]) {
    for command in [
        Command::AddMember { host: host(id), info: info(id), replaces: None },
        Command::SetTokens { host: host(id), tokens: tokens.to_vec(), base: state.topology_version + 1 },
        Command::SetStatus { host: host(id), status: MemberStatus::Normal },
    ] {
        let outcome = apply(state, command);
        assert!(!matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    }
}

fn status(state: &mut ClusterState, id: u8, status: MemberStatus) -> Outcome {
    apply(state, Command::SetStatus { host: host(id), status })
}

#[test]
fn one_topology_change_at_a_time() {
    let mut state = founded();
    owner(&mut state, 2, &[1]);
    owner(&mut state, 3, &[2]);
    assert_eq!(state.change, None);
    assert!(matches!(status(&mut state, 2, MemberStatus::Leaving), Outcome::Done { .. }));
    let change = state.change.clone().unwrap();
    assert_eq!((change.joins, change.leaves, change.step), (None, Some(host(2)), ChangeStep::Announced));
    let other = Refused::ChangeUnderWay { host: host(2) };
    assert_eq!(refused(status(&mut state, 3, MemberStatus::Leaving)), other);
    apply(&mut state, Command::AddMember { host: host(4), info: info(4), replaces: None });
    let tokens = Command::SetTokens { host: host(4), tokens: vec![3], base: state.topology_version };
    assert_eq!(refused(apply(&mut state, tokens)), other);
    // Data streamed before all nodes knew does not count, nor for another change.
    let fetched = |change| Command::Fetched { change, host: host(3) };
    assert_eq!(refused(apply(&mut state, fetched(change.number))), Refused::ChangeOver);
    let step = |change, step| Command::TakeStep { change, step };
    assert!(matches!(apply(&mut state, step(change.number, ChangeStep::Fetching)), Outcome::Done { .. }));
    assert_eq!(refused(apply(&mut state, fetched(change.number + 1))), Refused::ChangeOver);
    assert!(matches!(apply(&mut state, fetched(change.number)), Outcome::Done { .. }));
    assert_eq!(state.change.as_ref().unwrap().fetched, [host(3)].into());
    let read = ClusterState::unknown("test", own_schema()).decode_after(&state.encode()).unwrap();
    assert_eq!(read, state);
    // It dies during the change, and the same change continues without it.
    assert!(matches!(status(&mut state, 2, MemberStatus::Removing), Outcome::Done { .. }));
    assert_eq!(state.change.as_ref().unwrap().number, change.number);
    assert!(matches!(apply(&mut state, step(change.number, ChangeStep::Switched)), Outcome::Done { .. }));
    assert_eq!(refused(apply(&mut state, step(change.number, ChangeStep::Fetching))), Refused::ChangeOver);
    assert!(matches!(apply(&mut state, Command::RemoveMember { host: host(2) }), Outcome::Done { .. }));
    assert_eq!((state.change.clone(), state.was_removed(host(2))), (None, true));
    // The next one is another.
    assert!(matches!(status(&mut state, 3, MemberStatus::Leaving), Outcome::Done { .. }));
    assert_eq!(state.change.as_ref().unwrap().number, change.number + 1);
    assert!(matches!(status(&mut state, 3, MemberStatus::Normal), Outcome::Done { .. }));
    assert_eq!(state.change, None);
}

#[test]
fn a_node_takes_the_place_of_a_dead_one() {
    let mut state = founded();
    owner(&mut state, 2, &[1, 7]);
    // At the same address, as well.
    let replace = |id, old| Command::AddMember { host: host(id), info: info(2), replaces: Some(host(old)) };
    let nobody = Command::AddMember { host: host(3), info: info(3), replaces: Some(host(9)) };
    assert_eq!(refused(apply(&mut state, nobody)), Refused::UnknownHost { host: host(9) });
    assert_eq!(apply(&mut state, replace(3, 2)), Outcome::Added { number: 3 });
    assert_eq!(apply(&mut state, replace(3, 2)), Outcome::Added { number: 3 }, "asked for again");
    let twice = Command::AddMember { host: host(4), info: info(4), replaces: Some(host(2)) };
    assert!(matches!(refused(apply(&mut state, twice)), Refused::NotReplaceable { .. }));
    let tokens = |tokens: &[i64], base| Command::SetTokens { host: host(3), tokens: tokens.to_vec(), base };
    let base = state.topology_version;
    assert_eq!(refused(apply(&mut state, tokens(&[1, 8], base))), Refused::MembersMoved);
    assert!(matches!(apply(&mut state, tokens(&[1, 7], base)), Outcome::Done { .. }));
    let change = state.change.clone().unwrap();
    assert_eq!((change.joins, change.leaves), (Some(host(3)), Some(host(2))));
    assert_eq!(state.ring().unwrap().tokens().len(), 4);
    let under_way = Refused::ChangeUnderWay { host: host(3) };
    assert_eq!(refused(status(&mut state, 2, MemberStatus::Normal)), under_way);
    assert_eq!(refused(apply(&mut state, Command::RemoveMember { host: host(2) })), under_way);
    let read = ClusterState::unknown("test", own_schema()).decode_after(&state.encode()).unwrap();
    assert_eq!(read, state);
    // Given up: the dead one is a member as before.
    let mut given_up = state.clone();
    apply(&mut given_up, Command::RemoveMember { host: host(3) });
    assert_eq!(given_up.member(host(2)).unwrap().status, MemberStatus::Normal);
    assert_eq!(given_up.change, None);
    // Done: it is gone in the same step.
    assert!(matches!(status(&mut state, 3, MemberStatus::Normal), Outcome::Done { .. }));
    assert!(state.was_removed(host(2)) && state.change.is_none());
    assert_eq!(state.member(host(3)).unwrap().tokens, [1, 7]);
    assert_eq!(state.member(host(3)).unwrap().replaces, None);
}

#[test]
fn rings_are_over_when_every_live_node_has_had_a_later_one() {
    let mut state = founded();
    owner(&mut state, 2, &[1]);
    assert_eq!(state.fence, 0, "no step was announced");
    let before = state.topology_version;
    status(&mut state, 2, MemberStatus::Leaving);
    let (number, announced) = (state.change.as_ref().unwrap().number, state.topology_version);
    assert_eq!((announced, state.fence), (before + 1, 0));
    let step = |step| Command::TakeStep { change: number, step };
    apply(&mut state, step(ChangeStep::Fetching));
    assert_eq!(
        state.fence, announced,
        "a node that does not know the change would not write to pending replicas"
    );
    apply(&mut state, Command::Fetched { change: number, host: host(1) });
    apply(&mut state, step(ChangeStep::Switched));
    let switched = state.topology_version;
    assert_eq!(state.fence, announced, "reads of both rings see writes to both");
    let read = ClusterState::unknown("test", own_schema()).decode_after(&state.encode()).unwrap();
    assert_eq!(read, state);
    // Cancelled, the fence stays: it is never lowered.
    let mut cancelled = state.clone();
    status(&mut cancelled, 2, MemberStatus::Normal);
    status(&mut state, 2, MemberStatus::Left);
    assert_eq!((state.change.is_none(), state.fence), (true, switched));
    assert!(cancelled.change.is_none() && cancelled.fence >= announced);
}

#[test]
fn replication_stays_during_a_topology_change() {
    let mut state = founded();
    owner(&mut state, 2, &[1]);
    let with = |factor| SchemaEdit::PutKeyspace(Keyspace::new("ks", Replication::Simple { factor }));
    assert!(matches!(change(&mut state, vec![with(1)]), Outcome::SchemaChanged { .. }));
    status(&mut state, 2, MemberStatus::Leaving);
    let fixed = Refused::ReplicationFixed { keyspace: "ks".to_owned(), host: host(2) };
    assert_eq!(refused(change(&mut state, vec![with(2)])), fixed);
    assert!(matches!(change(&mut state, vec![with(1)]), Outcome::SchemaChanged { .. }), "nothing is moved");
    assert!(matches!(change(&mut state, vec![keyspace("other")]), Outcome::SchemaChanged { .. }));
    status(&mut state, 2, MemberStatus::Normal);
    assert!(matches!(change(&mut state, vec![with(2)]), Outcome::SchemaChanged { .. }));
}

#[test]
fn a_dead_node_is_removed_or_replaced_before_replicas_move() {
    let mut state = founded();
    owner(&mut state, 2, &[1]);
    owner(&mut state, 3, &[2]);
    let with = |factor| SchemaEdit::PutKeyspace(Keyspace::new("ks", Replication::Simple { factor }));
    change(&mut state, vec![with(1)]);
    change(&mut state, vec![with(2)]);
    let first = state.change.clone().unwrap();
    apply(&mut state, Command::TakeStep { change: first.number, step: ChangeStep::Fetching });
    // It would have to fetch, and is dead for good.
    let mut removed = state.clone();
    assert!(matches!(status(&mut removed, 3, MemberStatus::Removing), Outcome::Done { .. }));
    assert_eq!(removed.change.as_ref().unwrap().leaves, Some(host(3)));
    assert_eq!(removed.deferred, first.alters, "it is read by the replication of before");
    let read = ClusterState::unknown("test", own_schema()).decode_after(&removed.encode()).unwrap();
    assert_eq!(read, removed);
    apply(&mut removed, Command::RemoveMember { host: host(3) });
    let again = removed.change.clone().unwrap();
    assert_eq!((&again.alters, again.step), (&first.alters, ChangeStep::Announced));
    assert!(removed.deferred.is_empty() && again.number > first.number);
    // The same when another takes its place, and gives up.
    let replace = Command::AddMember { host: host(4), info: info(4), replaces: Some(host(3)) };
    apply(&mut state, replace);
    let tokens = Command::SetTokens { host: host(4), tokens: vec![2], base: state.topology_version };
    assert!(matches!(apply(&mut state, tokens), Outcome::Done { .. }));
    assert_eq!(state.change.as_ref().unwrap().joins, Some(host(4)));
    assert_eq!(state.deferred, first.alters);
    apply(&mut state, Command::RemoveMember { host: host(4) });
    assert_eq!(state.change.as_ref().unwrap().alters, first.alters);
}

#[test]
fn a_changed_replication_moves_replicas_as_a_topology_change_does() {
    let mut state = founded();
    owner(&mut state, 2, &[1]);
    let with = |factor| SchemaEdit::PutKeyspace(Keyspace::new("ks", Replication::Simple { factor }));
    change(&mut state, vec![with(1)]);
    assert_eq!(state.change, None, "a new keyspace has nothing to move");
    change(&mut state, vec![SchemaEdit::PutTable(table(&["a"]))]);
    assert!(matches!(change(&mut state, vec![with(2)]), Outcome::SchemaChanged { .. }));
    let begun = state.change.clone().unwrap();
    let before = [("ks".to_owned(), Replication::Simple { factor: 1 })].into();
    assert_eq!(
        (&begun.alters, begun.step, begun.since),
        (&before, ChangeStep::Announced, state.topology_version)
    );
    let read = ClusterState::unknown("test", own_schema()).decode_after(&state.encode()).unwrap();
    assert_eq!(read, state);
    // Nothing else moves meanwhile; a change that moves nothing is accepted.
    let moving = Refused::ReplicasMove { keyspace: "ks".to_owned() };
    assert_eq!(refused(status(&mut state, 2, MemberStatus::Leaving)), moving);
    assert_eq!(refused(change(&mut state, vec![with(3)])), moving);
    assert_eq!(refused(apply(&mut state, Command::RemoveMember { host: host(2) })), moving);
    assert!(matches!(
        change(&mut state, vec![SchemaEdit::PutTable(table(&["a", "b"]))]),
        Outcome::SchemaChanged { .. }
    ));
    let version = state.topology_version;
    assert!(matches!(change(&mut state, Vec::new()), Outcome::SchemaChanged { .. }));
    assert_eq!((state.topology_version, state.change.is_some()), (version, true));
    // Set back, or dropped: there is nothing left to move.
    for edit in [with(1), SchemaEdit::DropKeyspace("ks".to_owned())] {
        let mut void = state.clone();
        assert!(matches!(change(&mut void, vec![edit]), Outcome::SchemaChanged { .. }));
        assert_eq!((void.change.clone(), void.last_change()), (None, begun.number));
        assert!(void.topology_version > version, "requests use another topology version");
    }
    let step = |step| Command::TakeStep { change: begun.number, step };
    let end = Command::EndAlteration { change: begun.number };
    assert_eq!(refused(apply(&mut state, end.clone())), Refused::ChangeOver, "nothing is fetched yet");
    apply(&mut state, step(ChangeStep::Fetching));
    assert_eq!(
        state.fence, begun.since,
        "a node that does not know the change does not write to pending replicas"
    );
    apply(&mut state, Command::Fetched { change: begun.number, host: host(2) });
    apply(&mut state, step(ChangeStep::Switched));
    let switched = state.topology_version;
    assert_eq!(refused(change(&mut state, vec![with(1)])), moving, "reads have gone over");
    assert!(matches!(apply(&mut state, end), Outcome::Done { .. }));
    assert_eq!((state.change.clone(), state.fence), (None, switched));
    // As many replicas on the same nodes: nothing moves.
    assert!(matches!(change(&mut state, vec![with(5)]), Outcome::SchemaChanged { .. }));
    assert_eq!(state.change, None);
}

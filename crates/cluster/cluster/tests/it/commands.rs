//! Commands of the cluster's log: every command, with options at the ends of their ranges and beyond, is decoded as it was
//! meant, by every node and at every restart.

use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use cluster::SchemaEdit;
use cluster::own_schema;
use cluster::state::{
    ChangeStep, ClusterState, Command, CommandId, MemberInfo, MemberStatus, Outcome, Proposal, STATE_VERSION,
    StateCodecError,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use schema::{
    Cdc, CdcGeneration, CdcPreimage, CdcVnode, Cidr, CidrGroup, ColumnMask, Comparison, Constraint,
    Derivation, Description, DroppedColumn, Index, IndexTarget, IndexedPart, Keyspace, MaskArgument,
    RateLimit, Replication, Role, ServiceLevel, Signature, SpeculativeRetry, Table, TableBuilder, TableId,
    TableOptions, TombstoneGc, Trigger, TypeDescription, UserAggregate, UserFunction, UserType,
    ViewCondition, ViewOperator, WorkloadType,
};
use topology::{HostId, Location};
use types::CqlType;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("\0".to_owned()),
        Just("a\0b\"\\\u{7f}\u{80}\u{2028}ünïcødé\u{10ffff}".to_owned()),
        Just("x".repeat(64 << 10)),
        Just("\u{10ffff}".repeat(16 << 10)),
        Just("org.apache.cassandra.db.marshal.UserType(ks,\\,)".to_owned()),
        "\\PC{0,20}",
        any::<String>(),
    ]
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        prop::sample::select(vec![
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MAX,
            f64::MIN,
            f64::MIN_POSITIVE,
            5e-324,
            -0.0,
            0.1 + 0.2,
            9_007_199_254_740_993.0,
            -1.0,
        ]),
        any::<u64>().prop_map(f64::from_bits),
    ]
}

fn whole() -> impl Strategy<Value = u32> {
    prop_oneof![
        prop::sample::select(vec![0, 1, i32::MAX as u32, i32::MAX as u32 + 1, u32::MAX]),
        any::<u32>()
    ]
}

fn retry() -> impl Strategy<Value = SpeculativeRetry> {
    prop_oneof![
        Just(SpeculativeRetry::Never),
        Just(SpeculativeRetry::Always),
        number().prop_map(SpeculativeRetry::Percentile),
        number().prop_map(SpeculativeRetry::Millis),
        (any::<bool>(), number(), number()).prop_map(|(min, percentile, millis)| SpeculativeRetry::Hybrid {
            min,
            percentile,
            millis
        }),
    ]
}

fn map() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    prop::collection::btree_map(text(), text(), 0..3)
}

fn cdc() -> impl Strategy<Value = Cdc> {
    let preimage = prop::sample::select(vec![CdcPreimage::Off, CdcPreimage::Changed, CdcPreimage::Full]);
    (any::<[bool; 3]>(), preimage, whole()).prop_map(|([enabled, postimage, keys_only], preimage, ttl)| Cdc {
        enabled,
        preimage,
        postimage,
        keys_only,
        ttl,
    })
}

fn limits() -> impl Strategy<Value = (Option<u32>, Option<u32>, Option<u32>)> {
    any::<(Option<u32>, Option<u32>, Option<u32>)>()
}

fn options() -> impl Strategy<Value = TableOptions> {
    let gc = prop_oneof![
        Just(TombstoneGc::Timeout),
        Just(TombstoneGc::Disabled),
        Just(TombstoneGc::Immediate),
        whole().prop_map(|propagation_delay_seconds| TombstoneGc::Repair { propagation_delay_seconds }),
    ];
    let texts = (text(), text(), text());
    let numbers = (number(), number(), [whole(), whole(), whole(), whole(), whole()]);
    let maps = (map(), map(), map(), prop::collection::btree_map(text(), any::<Vec<u8>>(), 0..2));
    let rest = (cdc(), any::<Option<bool>>(), any::<bool>(), retry(), retry(), gc, limits());
    (texts, numbers, maps, rest).prop_map(|(texts, numbers, maps, rest)| TableOptions {
        comment: texts.0,
        memtable: texts.1,
        read_repair: texts.2,
        bloom_filter_fp_chance: numbers.0,
        crc_check_chance: numbers.1,
        default_time_to_live: numbers.2[0],
        gc_grace_seconds: numbers.2[1],
        max_index_interval: numbers.2[2],
        min_index_interval: numbers.2[3],
        memtable_flush_period_in_ms: numbers.2[4],
        caching: maps.0,
        compaction: maps.1,
        compression: maps.2,
        extensions: maps.3,
        cdc: rest.0,
        incremental_backups: rest.1,
        allow_auto_snapshot: rest.2,
        synchronous_updates: !rest.2,
        speculative_retry: rest.3,
        additional_write_policy: rest.4,
        tombstone_gc: rest.5,
        paxos_grace_seconds: rest.6.0,
        per_partition_rate_limit: RateLimit {
            max_reads_per_second: rest.6.1,
            max_writes_per_second: rest.6.2,
        },
    })
}

fn cql_type() -> impl Strategy<Value = CqlType> {
    // A keyspace has a name of letters, digits and underscores; a type's class names it as it is.
    let name = ("[a-zA-Z0-9_]{1,48}", text().prop_filter("a type has a name", |name| !name.is_empty()));
    let native = prop::sample::select(vec![CqlType::Int, CqlType::Text, CqlType::Decimal, CqlType::Duration]);
    (native, name, 1..=u32::MAX, 0..6u8).prop_map(|(native, (keyspace, name), dimension, shape)| {
        let element = std::sync::Arc::new(native.clone());
        match shape {
            0 => CqlType::List { element, frozen: false },
            1 => CqlType::Map { key: element.clone(), value: element, frozen: true },
            2 => CqlType::Tuple(vec![native; 3].into()),
            3 => CqlType::Vector { element, dimension },
            4 => {
                let fields = vec![(name.clone(), native)];
                CqlType::Udt { ty: std::sync::Arc::new(UserType { keyspace, name, fields }), frozen: true }
            }
            _ => native,
        }
    })
}

fn index() -> impl Strategy<Value = Index> {
    let target = (text(), prop::sample::select(IndexedPart::ALL.to_vec()));
    let target = target.prop_map(|(column, part)| IndexTarget { column, part });
    (text(), prop::collection::vec(target, 0..3), prop::option::of(text()), map(), any::<bool>())
        .prop_map(|(name, targets, class, options, local)| Index { name, targets, class, options, local })
}

fn derivation() -> impl Strategy<Value = Derivation> {
    let base = any::<[u8; 16]>().prop_map(TableId);
    let operators = vec![
        ViewOperator::Equal,
        ViewOperator::Less,
        ViewOperator::LessOrEqual,
        ViewOperator::Greater,
        ViewOperator::GreaterOrEqual,
        ViewOperator::In,
    ];
    let values = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..4), 0..3);
    let condition = (text(), prop::sample::select(operators), values)
        .prop_map(|(column, operator, values)| ViewCondition { column, operator, values });
    let conditions = prop::collection::vec(condition, 0..3);
    prop_oneof![
        (base.clone(), any::<bool>(), text(), conditions).prop_map(
            |(base, all_columns, where_clause, conditions)| {
                Derivation::View { base, all_columns, where_clause, conditions }
            }
        ),
        (base.clone(), text()).prop_map(|(base, index)| Derivation::Index { base, index }),
        base.prop_map(|base| Derivation::Cdc { base }),
    ]
}

fn function() -> impl Strategy<Value = UserFunction> {
    let arguments = prop::collection::vec((text(), cql_type()), 0..3);
    (text(), text(), arguments, cql_type(), any::<bool>(), text(), text()).prop_map(
        |(keyspace, name, arguments, returns, called_on_null_input, language, body)| UserFunction {
            keyspace,
            name,
            arguments,
            returns,
            called_on_null_input,
            language,
            body,
        },
    )
}

fn aggregate() -> impl Strategy<Value = UserAggregate> {
    let arguments = prop::collection::vec(cql_type(), 0..3);
    let functions = (text(), prop::option::of(text()), prop::option::of(text()), prop::option::of(text()));
    (text(), text(), arguments, functions, cql_type(), cql_type()).prop_map(
        |(keyspace, name, arguments, functions, state_type, returns)| UserAggregate {
            keyspace,
            name,
            arguments,
            state_function: functions.0,
            state_type,
            final_function: functions.1,
            initial_condition: functions.2,
            reduce_function: functions.3,
            returns,
        },
    )
}

fn role() -> impl Strategy<Value = Role> {
    let members = prop::collection::btree_set(text(), 0..3);
    let permissions = prop::collection::btree_map(text(), prop::collection::btree_set(text(), 0..3), 0..3);
    let texts = (text(), prop::option::of(text()), prop::option::of(text()));
    let datacenters = prop::option::of(prop::collection::btree_set(text(), 0..3));
    let identities = prop::collection::btree_set(text(), 0..3);
    let sets = (identities, prop::collection::btree_set(text(), 0..3));
    (texts, any::<bool>(), any::<bool>(), members, permissions, datacenters, sets).prop_map(
        |(
            (name, salted_hash, service_level),
            can_login,
            is_superuser,
            member_of,
            permissions,
            datacenters,
            (identities, cidr_groups),
        )| Role {
            name,
            can_login,
            is_superuser,
            salted_hash,
            datacenters,
            member_of,
            permissions,
            service_level,
            identities,
            cidr_groups,
        },
    )
}

fn cidr_group() -> impl Strategy<Value = CidrGroup> {
    let cidr = (any::<std::net::IpAddr>(), 0..=128u8)
        .prop_filter_map("a range has no more bits than its address", |(address, bits)| {
            Cidr::new(address, bits)
        });
    (text(), prop::collection::btree_set(cidr, 0..4)).prop_map(|(name, cidrs)| CidrGroup { name, cidrs })
}

fn service_level() -> impl Strategy<Value = ServiceLevel> {
    let timeout = prop_oneof![
        Just(std::time::Duration::MAX),
        any::<(u64, u32)>()
            .prop_map(|(seconds, nanos)| { std::time::Duration::new(seconds, nanos % 1_000_000_000) }),
    ];
    let workload = prop::sample::select(WorkloadType::ALL.to_vec());
    (text(), prop::option::of(timeout), whole(), workload)
        .prop_map(|(name, timeout, shares, workload)| ServiceLevel { name, timeout, shares, workload })
}

fn cdc_generation() -> impl Strategy<Value = CdcGeneration> {
    let vnodes = prop::collection::btree_map(any::<i64>(), 1..=u16::MAX, 1..4);
    (any::<i64>(), vnodes).prop_map(|(start_millis, vnodes)| CdcGeneration {
        start_millis,
        vnodes: vnodes.into_iter().map(|(upto, shards)| CdcVnode { upto, shards }).collect(),
    })
}

fn mask() -> impl Strategy<Value = ColumnMask> {
    let argument =
        (cql_type(), prop::option::of(text())).prop_map(|(ty, literal)| MaskArgument { ty, literal });
    (text(), text(), prop::collection::vec(argument, 0..3))
        .prop_map(|(keyspace, name, arguments)| ColumnMask { keyspace, name, arguments })
}

fn constraint() -> impl Strategy<Value = Constraint> {
    let comparison = || prop::sample::select(Comparison::ALL.to_vec());
    prop_oneof![
        Just(Constraint::NotNull),
        Just(Constraint::Json),
        (comparison(), text()).prop_map(|(comparison, bound)| Constraint::Value(comparison, bound)),
        (comparison(), any::<i32>()).prop_map(|(comparison, bound)| Constraint::Length(comparison, bound)),
        (comparison(), any::<i32>())
            .prop_map(|(comparison, bound)| Constraint::OctetLength(comparison, bound)),
        (comparison(), text()).prop_map(|(comparison, pattern)| Constraint::Regexp(comparison, pattern)),
    ]
}

/// Something is said.
fn description() -> impl Strategy<Value = Description> {
    let said = || prop::option::of(text());
    (said(), said()).prop_map(|(comment, security_label)| match (&comment, &security_label) {
        (None, None) => Description { comment: Some(String::new()), security_label },
        _ => Description { comment, security_label },
    })
}

fn type_description() -> impl Strategy<Value = TypeDescription> {
    let fields = prop::collection::btree_map(text(), description(), 0..3);
    (prop::option::of(description()), fields)
        .prop_map(|(whole, fields)| TypeDescription { whole: whole.unwrap_or_default(), fields })
}

fn signature() -> impl Strategy<Value = Signature> {
    (text(), prop::collection::vec(text(), 0..3)).prop_map(|(name, arguments)| Signature { name, arguments })
}

fn table() -> impl Strategy<Value = Table> {
    let names = (text(), text(), text());
    let dropped = prop::collection::vec((text(), any::<i64>()), 0..2);
    let belongings = (
        prop::collection::vec(index(), 0..2),
        prop::collection::vec((text(), text()), 0..2),
        prop::option::of(derivation()),
        prop::option::of(mask()),
        prop::collection::vec(constraint(), 0..3),
        (prop::option::of(description()), prop::option::of(text())),
    );
    (names, any::<[u8; 16]>(), options(), cql_type(), any::<bool>(), dropped, belongings).prop_map(
        |(
            (keyspace, name, column),
            id,
            options,
            ty,
            descending,
            dropped,
            (indexes, triggers, derivation, mask, constraints, (description, security_label)),
        )| {
            let mut builder = TableBuilder::new(keyspace, name, TableId(id))
                .partition_key(format!("p{column}"), CqlType::Int)
                .clustering(format!("c{column}"), CqlType::Text, descending)
                .regular(format!("r{column}"), ty);
            builder.set_mask(&format!("r{column}"), mask.clone());
            builder.set_mask(&format!("p{column}"), mask);
            builder.set_constraints(&format!("c{column}"), constraints);
            builder.set_description(&format!("r{column}"), description.unwrap_or_default());
            builder.ttl_column = security_label.as_ref().map(|_| format!("r{column}"));
            builder.security_label = security_label;
            builder.options = options;
            for (name, dropped_micros) in dropped {
                let column =
                    DroppedColumn { name: name.clone(), ty: CqlType::Int, is_static: false, dropped_micros };
                builder.dropped_columns.insert(name, column);
            }
            builder.indexes = indexes.into_iter().map(|index| (index.name.clone(), index)).collect();
            let trigger = |(name, class): (String, String)| (name.clone(), Trigger { name, class });
            builder.triggers = triggers.into_iter().map(trigger).collect();
            builder.derivation = derivation;
            builder.build().expect("the columns have different names")
        },
    )
}

fn keyspace() -> impl Strategy<Value = Keyspace> {
    let factors = prop::collection::btree_map(text(), whole(), 0..3);
    let replication = prop_oneof![
        Just(Replication::Local),
        Just(Replication::Everywhere),
        whole().prop_map(|factor| Replication::Simple { factor }),
        factors.prop_map(|factors| Replication::NetworkTopology { factors }),
    ];
    let types = prop::collection::btree_map(text(), type_description(), 0..3);
    let said = (prop::option::of(description()), types);
    (text(), replication, any::<bool>(), said).prop_map(|(name, replication, durable_writes, said)| {
        let mut keyspace = Keyspace::new(name, replication);
        keyspace.durable_writes = durable_writes;
        keyspace.description = said.0.unwrap_or_default();
        keyspace.type_descriptions = said.1;
        keyspace
    })
}

pub fn edit() -> impl Strategy<Value = SchemaEdit> {
    prop_oneof![
        keyspace().prop_map(SchemaEdit::PutKeyspace),
        text().prop_map(SchemaEdit::DropKeyspace),
        table().prop_map(SchemaEdit::PutTable),
        (text(), text()).prop_map(|(keyspace, name)| SchemaEdit::DropTable { keyspace, name }),
        (text(), text(), text(), cql_type()).prop_map(|(keyspace, name, field, ty)| {
            SchemaEdit::PutType(UserType { keyspace, name, fields: vec![(field, ty)] })
        }),
        (text(), text()).prop_map(|(keyspace, name)| SchemaEdit::DropType { keyspace, name }),
        function().prop_map(SchemaEdit::PutFunction),
        (text(), signature())
            .prop_map(|(keyspace, signature)| SchemaEdit::DropFunction { keyspace, signature }),
        aggregate().prop_map(SchemaEdit::PutAggregate),
        (text(), signature())
            .prop_map(|(keyspace, signature)| SchemaEdit::DropAggregate { keyspace, signature }),
        role().prop_map(SchemaEdit::PutRole),
        text().prop_map(SchemaEdit::DropRole),
        service_level().prop_map(SchemaEdit::PutServiceLevel),
        cdc_generation().prop_map(SchemaEdit::PutCdcGeneration),
        text().prop_map(SchemaEdit::DropServiceLevel),
        cidr_group().prop_map(SchemaEdit::PutCidrGroup),
        text().prop_map(SchemaEdit::DropCidrGroup),
    ]
}

fn info() -> impl Strategy<Value = MemberInfo> {
    let address = prop_oneof![
        any::<([u8; 4], u16)>().prop_map(SocketAddr::from),
        any::<([u8; 16], u16)>().prop_map(SocketAddr::from),
    ];
    (address.clone(), address, text(), text(), any::<u16>(), text()).prop_map(
        |(internode, native, datacenter, rack, shard_count, release_version)| MemberInfo {
            internode,
            native,
            location: Location::new(datacenter, rack),
            shard_count,
            release_version,
            state_version: STATE_VERSION,
        },
    )
}

fn command() -> impl Strategy<Value = Command> {
    let host = any::<[u8; 16]>().prop_map(HostId);
    let tokens = prop::collection::vec(prop::sample::select(vec![i64::MIN, -1, 0, i64::MAX]), 0..4);
    let extreme = prop::sample::select(vec![0, 1, i64::MAX as u64, u64::MAX]);
    let status = {
        use MemberStatus::{Joining, Leaving, Left, Normal, Removing};
        prop::sample::select(vec![Joining, Normal, Leaving, Removing, Left])
    };
    let step = {
        use ChangeStep::{Announced, Fetching, Switched};
        prop::sample::select(vec![Announced, Fetching, Switched])
    };
    prop_oneof![
        8 => (any::<[u8; 16]>(), prop::collection::vec(edit(), 0..3))
            .prop_map(|(base, edits)| Command::SchemaChange { base, edits }),
        1 => (host.clone(), info(), prop::option::of(host.clone()))
            .prop_map(|(host, info, replaces)| Command::AddMember { host, info, replaces }),
        1 => (host.clone(), info()).prop_map(|(host, info)| Command::UpdateMember { host, info }),
        1 => (host.clone(), tokens, extreme.clone())
            .prop_map(|(host, tokens, base)| Command::SetTokens { host, tokens, base }),
        1 => (host.clone(), status).prop_map(|(host, status)| Command::SetStatus { host, status }),
        1 => (host.clone()).prop_map(|host| Command::RemoveMember { host }),
        1 => (extreme.clone(), step).prop_map(|(change, step)| Command::TakeStep { change, step }),
        1 => (extreme.clone(), host).prop_map(|(change, host)| Command::Fetched { change, host }),
        1 => extreme.prop_map(|change| Command::EndAlteration { change }),
    ]
}

/// The bytes of a proposal, and how often their encoding let other tasks run.
pub fn encode_checked(proposal: &Proposal) -> (Result<Vec<u8>, StateCodecError>, usize) {
    let mut future = pin!(proposal.encode_checked());
    let mut yields = 0;
    loop {
        match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(encoded) => return (encoded, yields),
            Poll::Pending => yields += 1,
        }
    }
}

/// A table of ten thousand columns is encoded, decoded and encoded again in polls of their own.
#[test]
fn a_large_command_gives_way() {
    for (columns, expected) in [(3, 0), (10_000, 3)] {
        let mut table = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("k", CqlType::Int);
        for n in 0..columns {
            table = table.regular(format!("column_{n}"), CqlType::Int);
        }
        let edits = vec![SchemaEdit::PutTable(table.build().unwrap())];
        let command = Command::SchemaChange { base: [0; 16], edits };
        let (encoded, yields) = encode_checked(&Proposal { id: CommandId([9; 16]), command });
        assert_eq!(yields, expected, "{columns} columns, {} bytes", encoded.unwrap().len());
    }
}

/// NaN is not equal to itself; how it is written is.
fn shown<T: std::fmt::Debug>(value: &T) -> String {
    format!("{value:?}")
}

/// Cases that follow from `FUZZ_SEED`, as those of the fuzzers do.
fn config() -> ProptestConfig {
    let seed = testkit::fuzz::seed();
    // Seen where the test fails.
    println!("repeat with FUZZ_SEED={seed}");
    ProptestConfig {
        cases: 192,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(seed),
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// A proposed command is decoded to the same command, and one that would not be is not proposed.
    #[test]
    fn whatever_is_proposed_can_be_read(command in command()) {
        let proposal = Proposal { id: CommandId([9; 16]), command };
        let (encoded, _) = encode_checked(&proposal);
        let Ok(bytes) = encoded else {
            return Err(TestCaseError::fail(format!("cannot be proposed: {encoded:?}")));
        };
        let read = Proposal::decode(&bytes).unwrap();
        prop_assert_eq!(shown(&read), shown(&proposal));
    }

    /// A state that has such a schema comes back from its snapshot as it is.
    #[test]
    fn whatever_is_applied_comes_back_from_a_snapshot(
        (table, keyspace, info) in (table(), keyspace(), info()),
        (mut function, mut aggregate) in (function(), aggregate()),
        (role, level, group) in (role(), service_level(), cidr_group()),
    ) {
        let host = HostId([1; 16]);
        let mut state = ClusterState::found("test", own_schema(), own_schema(), host, info, vec![i64::MIN, i64::MAX]);
        let mut table = table.to_builder();
        table.keyspace = keyspace.name.clone();
        let table = table.build().unwrap();
        prop_assume!(own_schema().keyspace(&keyspace.name).is_none());
        function.keyspace = keyspace.name.clone();
        aggregate.keyspace = keyspace.name.clone();
        let home = keyspace.name.clone();
        let edits = vec![
            SchemaEdit::PutKeyspace(keyspace),
            SchemaEdit::PutTable(table.clone()),
            SchemaEdit::PutFunction(function.clone()),
            SchemaEdit::PutAggregate(aggregate.clone()),
            SchemaEdit::PutRole(role.clone()),
            SchemaEdit::PutServiceLevel(level.clone()),
            SchemaEdit::PutCidrGroup(group.clone()),
        ];
        let command = Command::SchemaChange { base: state.schema.version(), edits };
        let bytes = encode_checked(&Proposal { id: CommandId([9; 16]), command }).0.unwrap();
        let (next, outcome) = state.apply(Proposal::decode(&bytes).unwrap());
        let changed = matches!(outcome, Outcome::SchemaChanged { .. });
        prop_assert!(changed, "{:?}", outcome);
        state = next;
        let read = ClusterState::unknown("test", own_schema()).decode_after(&state.encode());
        prop_assert!(read.is_ok(), "{:?}", read.err());
        let read = read.unwrap();
        prop_assert_eq!(read.encode(), state.encode());
        prop_assert_eq!(read.schema.version(), state.schema.version());
        let known = read.schema.keyspace(&home).unwrap();
        prop_assert_eq!(shown(known.tables.values().next().unwrap()), shown(&table));
        prop_assert_eq!(&**known.functions.values().next().unwrap(), &function);
        prop_assert_eq!(&**known.aggregates.values().next().unwrap(), &aggregate);
        prop_assert_eq!(read.schema.role(&role.name).map(|known| &**known), Some(&role));
        prop_assert_eq!(read.schema.service_level(&level.name).map(|known| &**known), Some(&level));
        prop_assert_eq!(read.schema.cidr_groups().map(|known| &**known).collect::<Vec<_>>(), [&group]);
        // Another CREATE KEYSPACE or ALTER KEYSPACE keeps its content; dropped objects are gone.
        let again = Keyspace::new(home.clone(), Replication::Local);
        let edits = vec![
            SchemaEdit::PutKeyspace(again),
            SchemaEdit::DropRole(role.name.clone()),
            SchemaEdit::DropServiceLevel(level.name.clone()),
            SchemaEdit::DropCidrGroup(group.name.clone()),
        ];
        let command = Command::SchemaChange { base: state.schema.version(), edits };
        let (next, _) = state.apply(Proposal { id: CommandId([8; 16]), command });
        let known = next.schema.keyspace(&home).unwrap();
        prop_assert_eq!((known.functions.len(), known.aggregates.len(), known.tables.len()), (1, 1, 1));
        prop_assert_eq!((next.schema.roles().count(), next.schema.service_levels().count()), (0, 0));
        prop_assert_eq!(next.schema.cidr_groups().count(), 0);
        let edits = vec![
            SchemaEdit::DropFunction { keyspace: home.clone(), signature: function.signature() },
            SchemaEdit::DropAggregate { keyspace: home.clone(), signature: aggregate.signature() },
        ];
        let command = Command::SchemaChange { base: next.schema.version(), edits };
        let (next, _) = next.apply(Proposal { id: CommandId([7; 16]), command });
        let known = next.schema.keyspace(&home).unwrap();
        prop_assert!(known.functions.is_empty() && known.aggregates.is_empty());
    }
}

/// A schema without the newer objects has the bytes, and so the version, that it had before they existed.
#[test]
fn a_schema_without_new_objects_is_written_as_before() {
    let table = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("pk", CqlType::Int);
    let mut keyspace = Keyspace::new("ks", Replication::Local);
    let table = table.build().unwrap();
    keyspace.tables.insert("t".to_owned(), table.clone().into());
    let edits = vec![SchemaEdit::PutKeyspace(keyspace), SchemaEdit::PutTable(table)];
    let command = Command::SchemaChange { base: [0; 16], edits };
    let bytes = Proposal { id: CommandId([9; 16]), command }.encode();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    for word in ["indexes", "triggers", "derivation", "functions", "aggregates", "roles"] {
        assert!(!text.contains(word), "{word} in {text}");
    }
}

/// A command that nodes could not decode is not proposed.
#[test]
fn unreadable_commands_are_not_proposed() {
    let name = "t".to_owned();
    let ty = UserType {
        keyspace: "a,b".to_owned(),
        name: name.clone(),
        fields: vec![(name.clone(), CqlType::Int)],
    };
    let outer = UserType {
        keyspace: "ks".to_owned(),
        name,
        fields: vec![("f".to_owned(), CqlType::Udt { ty: std::sync::Arc::new(ty), frozen: true })],
    };
    let edits = vec![SchemaEdit::PutType(outer)];
    let proposal =
        Proposal { id: CommandId([9; 16]), command: Command::SchemaChange { base: [0; 16], edits } };
    assert!(Proposal::decode(&proposal.encode()).is_err());
    assert!(encode_checked(&proposal).0.is_err());
}

/// The statement that once stopped every node: a NaN in an option.
#[test]
fn a_number_that_json_has_not_is_read_as_it_is() {
    let mut builder = TableBuilder::new("ks", "t", TableId([1; 16])).partition_key("pk", CqlType::Int);
    builder.options.speculative_retry = SpeculativeRetry::Millis(f64::NAN);
    let edits = vec![SchemaEdit::PutTable(builder.build().unwrap())];
    let bytes =
        Proposal { id: CommandId([9; 16]), command: Command::SchemaChange { base: [0; 16], edits } }.encode();
    assert!(Proposal::decode(&bytes).is_ok(), "{}", String::from_utf8_lossy(&bytes));
}

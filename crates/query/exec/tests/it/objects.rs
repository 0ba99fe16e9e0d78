//! Functions, aggregates, indexes, views, triggers, roles and service levels: they come by the schema's own edits, as no
//! statement creates them yet, and the tables and statements that show and drop them are held against Cassandra 5.0.6
//! (`testdata/objects.txt`, which names the differences).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::SchemaEdit;
use exec::backend::Coordinator as _;
use schema::{
    Derivation, Index, IndexTarget, IndexedPart, Role, Schema, ServiceLevel, TableBuilder, TableId, Trigger,
    UserAggregate, UserFunction, WorkloadType,
};
use types::CqlType;

use crate::golden::{Node, block_on, check_on};
use crate::memory::Memory;

/// A type as a statement in keyspace `ks` means it.
fn udt(schema: &Schema, name: &str) -> CqlType {
    CqlType::Udt { ty: schema.keyspace("ks").unwrap().types[name].clone(), frozen: false }
}

fn function(name: &str, arguments: &[(&str, CqlType)], returns: CqlType, body: &str) -> SchemaEdit {
    SchemaEdit::PutFunction(UserFunction {
        keyspace: "ks".to_owned(),
        name: name.to_owned(),
        arguments: arguments.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone())).collect(),
        returns,
        called_on_null_input: name.len() == 2,
        language: "java".to_owned(),
        body: body.to_owned(),
    })
}

fn aggregate(
    name: &str,
    arguments: &[CqlType],
    (state_function, state_type): (&str, CqlType),
    (final_function, returns): (Option<&str>, CqlType),
    initial_condition: Option<&str>,
) -> SchemaEdit {
    SchemaEdit::PutAggregate(UserAggregate {
        keyspace: "ks".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_vec(),
        state_function: state_function.to_owned(),
        state_type,
        reduce_function: None,
        final_function: final_function.map(str::to_owned),
        initial_condition: initial_condition.map(str::to_owned),
        returns,
    })
}

fn index(name: &str, column: &str, part: IndexedPart) -> Index {
    let targets = vec![IndexTarget { column: column.to_owned(), part }];
    Index { name: name.to_owned(), targets, class: None, options: BTreeMap::new(), local: false }
}

fn custom(name: &str, class: &str, options: &[(&str, &str)]) -> Index {
    let options = options.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Index { class: Some(class.to_owned()), options, ..index(name, "V", IndexedPart::Whole) }
}

fn functions(schema: &Schema) -> Vec<SchemaEdit> {
    let (int, text) = (CqlType::Int, CqlType::Text);
    let tuple = CqlType::tuple([int.clone(), text.clone()]);
    let a2 = udt(schema, "a2");
    let lists = CqlType::list(CqlType::list(int.clone(), true), false);
    let of_a2 = CqlType::tuple([a2.freeze(), int.clone()]);
    let state = |ty: &CqlType| [("state", ty.clone()), ("val", CqlType::Int)];
    vec![
        function("f1", &[("a", int.clone()), ("b", text.clone())], text.clone(), "return b + a;"),
        function("f1", &[("a", int.clone())], int.clone(), "return a + 1;"),
        function("f33", &[], int.clone(), "return 3;"),
        function(
            "G22",
            &[("A", a2.clone()), ("l", lists)],
            CqlType::set(text.clone(), false),
            "return null; // it's",
        ),
        function("g33", &[("b", of_a2)], a2.clone(), "return null;"),
        function("sf", &state(&int), int.clone(), "return state + val;"),
        function("ff", &[("state", int.clone())], text.clone(), "return \"\" + state;"),
        function("sft", &state(&tuple), tuple.clone(), "return state;"),
        function("fsf", &state(&a2), a2.clone(), "return state;"),
        aggregate("ag1", std::slice::from_ref(&int), ("sf", int.clone()), (Some("ff"), text), Some("0")),
        aggregate("ag2", std::slice::from_ref(&int), ("sf", int.clone()), (None, int.clone()), None),
        aggregate("ag2", &[], ("sf0", int.clone()), (None, int.clone()), None),
        aggregate(
            "Agt",
            std::slice::from_ref(&int),
            ("sft", tuple.clone()),
            (None, tuple),
            Some("(1, 'ab')"),
        ),
        aggregate("agu", &[int], ("fsf", a2.clone()), (None, a2), None),
    ]
}

fn tables(schema: &Schema) -> Vec<SchemaEdit> {
    let (t, other) = (schema.table("ks", "t").unwrap(), schema.table("ks", "T2").unwrap());
    let mut indexed = t.to_builder();
    for index in [
        index("vi", "v", IndexedPart::Whole),
        index("Vi2", "m", IndexedPart::Values),
        index("mk", "m", IndexedPart::Keys),
        index("me", "m", IndexedPart::Entries),
        index("ci", "c", IndexedPart::Whole),
    ] {
        indexed.indexes.insert(index.name.clone(), index);
    }
    let trigger = Trigger { name: "tr".to_owned(), class: "x.y.Z".to_owned() };
    indexed.triggers.insert(trigger.name.clone(), trigger);
    let mut customs = other.to_builder();
    for index in
        [custom("sai", "sai", &[("case_sensitive", "false")]), custom("sai2", "StorageAttachedIndex", &[])]
    {
        customs.indexes.insert(index.name.clone(), index);
    }
    let mut mv = TableBuilder::new("ks", "mv", TableId([0x51; 16]))
        .partition_key("v", CqlType::Text)
        .clustering("k", CqlType::Int, true)
        .clustering("c", CqlType::Int, false);
    mv.options.comment = "it's".to_owned();
    let where_clause = "k IS NOT NULL AND c IS NOT NULL AND v IS NOT NULL".to_owned();
    mv.derivation =
        Some(Derivation::View { base: t.id, all_columns: false, where_clause, conditions: Vec::new() });
    let mut all = TableBuilder::new("ks", "Mv2", TableId([0x52; 16]))
        .partition_key("V", CqlType::Text)
        .partition_key("K", CqlType::Int);
    let where_clause = "\"K\" IS NOT NULL AND \"V\" IS NOT NULL".to_owned();
    all.derivation =
        Some(Derivation::View { base: other.id, all_columns: true, where_clause, conditions: Vec::new() });
    // The table of an index and a change log: neither is described, and both go with their table.
    let derived = |name: &str, id: u8, derivation| {
        let mut table = TableBuilder::new("ks", name, TableId([id; 16])).partition_key("v", CqlType::Text);
        table.derivation = Some(derivation);
        table
    };
    let stored = derived("vi_index", 0x53, Derivation::Index { base: t.id, index: "vi".to_owned() });
    let log = derived("t_log", 0x54, Derivation::Cdc { base: t.id });
    [indexed, customs, mv, all, stored, log]
        .into_iter()
        .map(|table| SchemaEdit::PutTable(table.build().unwrap()))
        .collect()
}

fn roles() -> Vec<SchemaEdit> {
    let set = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<BTreeSet<_>>();
    let ann = Role {
        can_login: true,
        salted_hash: Some("$2a$10$c.EHgW1H".to_owned()),
        member_of: set(&["readers", "writers"]),
        permissions: BTreeMap::from([
            ("data/ks/t".to_owned(), set(&["SELECT", "MODIFY"])),
            ("data/other".to_owned(), BTreeSet::new()),
        ]),
        service_level: Some("slow".to_owned()),
        ..Role::new("ann")
    };
    let readers = Role { member_of: set(&["everybody"]), ..Role::new("readers") };
    let slow = ServiceLevel {
        timeout: Some(Duration::from_millis(1500)),
        shares: 200,
        workload: WorkloadType::Batch,
        ..ServiceLevel::new("slow")
    };
    vec![
        SchemaEdit::PutRole(ann),
        SchemaEdit::PutRole(readers),
        SchemaEdit::PutServiceLevel(slow),
        SchemaEdit::PutServiceLevel(ServiceLevel::new("usual")),
    ]
}

/// Schema tables, DESCRIBE and DROP, with their dependencies.
#[test]
fn schema_objects() {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    for statement in [
        "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TYPE ks.a2 (x int)",
        "CREATE TYPE ks.b2 (x frozen<a2>)",
        "CREATE TABLE ks.t (k int, c int, v text, w frozen<a2>, s int static, m map<text, int>, PRIMARY KEY (k, c)) \
         WITH id = 11111111-1111-1111-1111-111111111111",
        "CREATE TABLE ks.\"T2\" (\"K\" int PRIMARY KEY, \"V\" text) \
         WITH id = 22222222-2222-2222-2222-222222222222",
        "USE ks",
    ] {
        node.run(statement);
    }
    let schema = memory.schema();
    let edits: Vec<SchemaEdit> =
        functions(&schema).into_iter().chain(tables(&schema)).chain(roles()).collect();
    block_on(memory.change_schema(schema.version(), edits)).expect("the edits fit");
    check_on(&node, "objects.txt");
}

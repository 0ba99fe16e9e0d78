//! Materialized views: their definitions, and reads of them. View rows are derived from writes by the cluster in memory.

use cql::ast::Statement;
use exec::backend::Coordinator as _;
use exec::ddl::{DdlContext, plan};
use exec::lookup::Lookup;

use crate::golden::{Node, block_on, check_with};
use crate::memory::Memory;
use crate::paging::paged_within;

/// Plans a CREATE MATERIALIZED VIEW and carries it out, with an id that is the same in every run.
fn create(memory: &Memory, statement: &Statement, number: u8, materialized_views: bool) -> String {
    let (schema, view) = (memory.schema(), memory.view());
    let context = DdlContext {
        lookup: Lookup { schema: &schema },
        keyspace: Some("ks"),
        view: &view,
        table_id: [number; 16],
        default_keyspace_rf: 1,
        now_micros: 0,
        functions: &udf::Limits::default(),
        materialized_views,
        data_masking: false,
    };
    match plan(statement, &context) {
        Ok(outcome) if outcome.edits.is_empty() => "void".to_owned(),
        Ok(outcome) => {
            block_on(memory.change_schema(schema.version(), outcome.edits)).expect("the edits fit");
            "schema".to_owned()
        }
        Err(error) => format!("! {error}"),
    }
}

/// Definitions, and reads of rows that come, go and move.
#[test]
fn views() {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    let created = std::cell::Cell::new(100);
    check_with(&node, "views.txt", |text| {
        if let Some(table) = text.strip_prefix("LOSE ") {
            memory.lose("ks", table);
            return Some("lost".to_owned());
        }
        let disabled = text.strip_prefix("DISABLED VIEW ");
        let text = disabled.or_else(|| text.strip_prefix("VIEW "))?;
        created.set(created.get() + 1);
        let text = format!("CREATE MATERIALIZED VIEW {text}");
        match cql::parse(&text) {
            Ok(parsed) => Some(create(&memory, &parsed.statement, created.get(), disabled.is_none())),
            Err(error) => Some(format!("! {error}")),
        }
    });
}

/// Partitions of a view whose first rows are out of sight, in pages of any size.
#[test]
fn distinct_partitions_of_a_view_in_pages() {
    let memory = Memory::new();
    let node = Node::of(memory.clone());
    node.run("CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
    node.run("CREATE TABLE ks.t (k int, c int, v int, w int, PRIMARY KEY (k, c))");
    let view = "CREATE MATERIALIZED VIEW ks.by_v AS SELECT * FROM ks.t WHERE v IS NOT NULL AND k IS NOT NULL AND c IS NOT NULL \
                PRIMARY KEY (v, k, c)";
    create(&memory, &cql::parse(view).expect("a statement").statement, 101, true);
    // Rows of partition 2 are hidden behind those of partition 1 and the other way round; partition 3 has none in sight.
    for v in 0..8 {
        for c in 0..5 {
            node.run(&format!("INSERT INTO ks.t (k, c, v, w) VALUES (1, {}, {v}, 1)", v * 10 + c));
        }
    }
    for v in 0..8 {
        for c in (0..5).filter(|c| v == 3 || *c < v % 6) {
            let to = if v == 3 { 4 } else { (v + 1) % 3 };
            node.run(&format!("UPDATE ks.t SET v = {to} WHERE k = 1 AND c = {}", v * 10 + c));
        }
    }
    let mut expected: Vec<_> = node.rows("SELECT v FROM ks.by_v");
    expected.dedup();
    assert!((4..8).contains(&expected.len()), "{} partitions are in sight", expected.len());
    for size in [1, 2, 3, 100] {
        assert_eq!(
            paged_within(&node, "SELECT DISTINCT v FROM ks.by_v", size, 100),
            expected,
            "pages of {size}"
        );
    }
    assert_eq!(node.rows("SELECT DISTINCT v FROM ks.by_v LIMIT 3"), expected[..3]);
    let count = (expected.len() as u64).to_be_bytes().to_vec();
    assert_eq!(node.rows("SELECT DISTINCT v, count(*) FROM ks.by_v")[0][1], Some(count));
}

//! Materialized views: their definitions, and reads of them. View rows are derived from writes by the cluster in memory.

use cql::ast::Statement;
use exec::backend::Coordinator as _;
use exec::ddl::{DdlContext, plan};
use exec::lookup::Lookup;

use crate::golden::{Node, block_on, check_with};
use crate::memory::Memory;

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

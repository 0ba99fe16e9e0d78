//! A state that is too large for one message between nodes.

use cluster::SchemaEdit;
use schema::{Keyspace, Replication, TableBuilder, TableId};
use types::CqlType;

use crate::group_world::*;

const TABLES: usize = 20_000;
/// Tables of a keyspace.
const EACH: usize = 100;

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
    let mut cluster = Cluster::empty(90);
    cluster.add(Setup { snapshot_entries: 1_000, ..Setup::new(0) });
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
}

//! The table of the audit log: `audit.audit_log` of ScyllaDB, a partition a day and node.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use cluster::SchemaEdit;
use coordinator::ClusterView;
use mutation::{Cell, Clustering, ColumnData, DecoratedKey, PartitionUpdate, Row, Timestamp};
use replica::trace_rows::inet;
use schema::{Keyspace, Replication, Schema, Table, TableBuilder, TableId};
use types::CqlType;

use super::{ANONYMOUS, AuditEntry, AuditStyle, StatementCategory};
use crate::error::{ExecError, Result};

const KEYSPACE: &str = "audit";
const TABLE: &str = "audit_log";
/// Copies in each datacenter, where it has as many nodes.
const REPLICAS: usize = 3;
const DAY_MILLIS: i64 = 24 * 3600 * 1000;

/// The table; none before it is made.
pub fn table(schema: &Schema) -> Option<Arc<Table>> {
    schema.table(KEYSPACE, TABLE).cloned()
}

/// The edits that make keyspace and table, as far as they are missing.
///
/// # Errors
/// When the table cannot be built.
pub fn plan(schema: &Schema, view: &ClusterView, id: [u8; 16]) -> Result<Vec<SchemaEdit>> {
    if table(schema).is_some() {
        return Ok(Vec::new());
    }
    let mut edits = Vec::new();
    if schema.keyspace(KEYSPACE).is_none() {
        let factor = |nodes: usize| if nodes >= REPLICAS { REPLICAS as u32 } else { 1 };
        let sizes = view.datacenter_sizes().into_iter();
        let factors = sizes.map(|(name, nodes)| (name.to_owned(), factor(nodes))).collect();
        edits
            .push(SchemaEdit::PutKeyspace(Keyspace::new(KEYSPACE, Replication::NetworkTopology { factors })));
    }
    let mut builder = TableBuilder::new(KEYSPACE, TABLE, TableId(id))
        .partition_key("date", CqlType::Timestamp)
        .partition_key("node", CqlType::Inet)
        .clustering("event_time", CqlType::Timeuuid, false)
        .regular("error", CqlType::Boolean)
        .regular("source", CqlType::Inet);
    for column in ["category", "consistency", "keyspace_name", "operation", "table_name", "username"] {
        builder = builder.regular(column, CqlType::Text);
    }
    builder.options.comment = "audit log".to_owned();
    edits.push(SchemaEdit::PutTable(builder.build().map_err(|error| ExecError::invalid(error.to_string()))?));
    Ok(edits)
}

impl AuditEntry {
    /// The entry as a row of the table of the node with this address; `event_time` is a time UUID of the entry's time.
    pub fn update(
        &self,
        table: &Arc<Table>,
        (node, style): (IpAddr, AuditStyle),
        event_time: [u8; 16],
        at: Timestamp,
    ) -> PartitionUpdate {
        let event = &self.event;
        let date = self.millis.div_euclid(DAY_MILLIS) * DAY_MILLIS;
        let key = DecoratedKey::new(DecoratedKey::compose(&[&date.to_be_bytes(), &inet(node)]));
        let mut row = Row::new(Clustering::new(table, &[Some(&event_time)]));
        let is_scylla = style == AuditStyle::Scylla;
        let is_login = is_scylla && event.statement == Some(StatementCategory::Auth);
        let category = match event.statement {
            Some(category) if is_scylla => category.name(),
            _ => event.category.name(),
        };
        let operation = match is_scylla {
            true if is_login => Cow::Borrowed("LOGIN"),
            true => Cow::Borrowed(self.operation.as_str()),
            false => self.operation_and_failure(),
        };
        // ScyllaDB writes empty texts, not nulls.
        let none = is_scylla.then_some("");
        let text = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
        for (name, value) in [
            ("category", text(category)),
            ("consistency", event.consistency.or(none).and_then(text)),
            ("error", Some(Bytes::from(vec![u8::from(self.is_failure())]))),
            ("keyspace_name", event.keyspace.as_deref().or(none).and_then(text)),
            ("operation", text(&operation)),
            ("source", Some(inet(self.source.ip().to_canonical()))),
            ("table_name", event.scope.as_deref().or(none).and_then(text)),
            ("username", text(self.user.as_deref().unwrap_or(ANONYMOUS))),
        ] {
            if let (Some(column), Some(value)) = (table.column(name), value) {
                row.set(column.id, ColumnData::Simple(Cell::live(at, value)));
            }
        }
        PartitionUpdate::with_rows(table.clone(), key, vec![row])
    }
}

#[cfg(test)]
mod tests {
    use topology::{HostId, Location};

    use super::super::{AuditCategory, AuditEvent};
    use super::*;

    #[test]
    fn an_entry_is_a_row_of_its_day_and_node() {
        let node = coordinator::ViewNode {
            host: HostId([1; 16]),
            native: ([127, 0, 0, 1], 9042).into(),
            internode: ([127, 0, 0, 1], 7000).into(),
            location: Location::new("datacenter1", "rack1"),
            shards: 1,
            tokens: vec![5],
            alive: true,
            phase: coordinator::Phase::Normal,
            ready: true,
            release_version: "5.0.6".to_owned(),
            schema_version: None,
        };
        let view = ClusterView::new(HostId([1; 16]), vec![node]).expect("a cluster");
        let edits = plan(&Schema::default(), &view, [7; 16]).expect("a table");
        let schema = cluster::apply_edits(Schema::default(), edits).expect("they fit");
        assert_eq!(plan(&schema, &view, [8; 16]).map(|edits| edits.len()).unwrap(), 0, "it is made once");
        let table = table(&schema).expect("it was made");
        let event = AuditEvent::new("LOGIN_ERROR", AuditCategory::Auth);
        let source = "[::ffff:10.0.0.9]:4711".parse().unwrap();
        let entry = AuditEntry {
            event,
            user: None,
            source,
            millis: 1_764_000_000_123,
            operation: "x".to_owned(),
            failure: Some("wrong".to_owned()),
        };
        let node = "10.0.0.1".parse().unwrap();
        let update = entry.update(&table, (node, AuditStyle::Cassandra), [9; 16], 5);
        let day = 1_763_942_400_000_i64.to_be_bytes();
        assert_eq!(DecoratedKey::components(&update.key.key, 2), Some(vec![&day[..], &[10, 0, 0, 1][..]]));
        let [row] = update.rows() else { panic!("one row") };
        assert_eq!(row.clustering.components().next(), Some(Some(&[9; 16][..])));
        let cell_of = |row: &Row, name: &str| {
            let column = table.column(name).expect("a column");
            row.cell(column.id).map(|cell| cell.value.to_vec())
        };
        let cell = |name: &str| cell_of(row, name);
        assert_eq!(cell("category").as_deref(), Some(&b"AUTH"[..]));
        assert_eq!(cell("username").as_deref(), Some(&b"anonymous"[..]));
        assert_eq!((cell("error"), cell("source")), (Some(vec![1]), Some(vec![10, 0, 0, 9])));
        assert_eq!((cell("keyspace_name"), cell("consistency")), (None, None));
        assert_eq!(cell("operation").as_deref(), Some(&b"x; wrong"[..]));
        let update = entry.update(&table, (node, AuditStyle::Scylla), [9; 16], 5);
        let [row] = update.rows() else { panic!("one row") };
        assert_eq!(cell_of(row, "operation").as_deref(), Some(&b"LOGIN"[..]));
        assert_eq!((cell_of(row, "keyspace_name"), cell_of(row, "error")), (Some(Vec::new()), Some(vec![1])));
    }
}

//! The prepared statements of a shard: bounded in bytes, and honest about changes of the schema.
//!
//! A statement whose table has other columns now, or is gone, is not known any more: the client prepares it again and
//! learns the new types of its markers. One whose table only has other options is resolved anew without telling anyone.

use rt::metrics;
use rt::metrics::Metric;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use schema::Schema;
use stdx::HashMap;

use super::prepared::Prepared;
use crate::plan::Fit;

/// The memory that a statement takes beside its text, about, in bytes.
const STATEMENT_BYTES: usize = 2048;
/// Bytes of plan, syntax tree and metadata for each byte of text, about.
const BYTES_PER_TEXT_BYTE: usize = 8;

/// The prepared statements of a shard. When they take too much, one that was not executed lately is forgotten.
pub struct PreparedStatements {
    state: RefCell<State>,
    bytes_max: usize,
}

#[derive(Default)]
struct State {
    by_id: HashMap<Bytes, Entry>,
    /// Ids in the order in which the hand that looks for unused ones comes by.
    order: VecDeque<Bytes>,
    bytes: usize,
    evictions: u64,
    /// The schema that `fit` of every entry was judged by.
    schema: Option<Arc<Schema>>,
}

struct Entry {
    prepared: Rc<Prepared>,
    /// Executed since the hand came by.
    used: bool,
    fit: Fit,
}

/// The state of a statement's id.
pub enum Found {
    /// It can be executed.
    Current(Rc<Prepared>),
    /// It must be resolved against the present schema first.
    Outdated(Rc<Prepared>),
    /// Nothing, or nothing that is still so.
    Unknown,
}

/// About how many bytes a statement takes.
pub fn bytes_of(text: &str) -> usize {
    STATEMENT_BYTES + BYTES_PER_TEXT_BYTE * text.len()
}

impl PreparedStatements {
    /// The metrics of a shard's prepared statements.
    pub const METRICS: &[Metric<Self>] = metrics! {
        gauge "scylla_cql_prepared_cache_size" "Prepared statements known." |s| s.all().len() as f64;
        gauge "scylla_cql_prepared_cache_memory_footprint" "Bytes that prepared statements take." |s| s.bytes() as f64;
        counter "scylla_cql_prepared_cache_evictions" "Prepared statements forgotten for want of room." |s| s.evictions() as f64;
    };
}

impl PreparedStatements {
    /// Room for so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { state: RefCell::default(), bytes_max }
    }

    /// Their limit, in bytes.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Their size, in bytes, about.
    pub fn bytes(&self) -> usize {
        self.state.borrow().bytes
    }

    /// How many were forgotten for want of room.
    pub fn evictions(&self) -> u64 {
        self.state.borrow().evictions
    }

    /// A statement by id, as far as it holds under this schema.
    pub fn find(&self, id: &[u8], schema: &Arc<Schema>) -> Found {
        let state = &mut *self.state.borrow_mut();
        state.adapt(schema);
        let Some(entry) = state.by_id.get_mut(id) else { return Found::Unknown };
        entry.used = true;
        match entry.fit {
            Fit::Current => Found::Current(entry.prepared.clone()),
            Fit::Outdated => Found::Outdated(entry.prepared.clone()),
            Fit::Invalid => Found::Unknown,
        }
    }

    /// Keeps a statement that was resolved against `schema`, in place of an older one with its id.
    pub fn put(&self, mut prepared: Prepared, schema: &Arc<Schema>) -> Rc<Prepared> {
        let state = &mut *self.state.borrow_mut();
        state.adapt(schema);
        let id = prepared.metadata.id.clone();
        if let Some(before) = state.by_id.get(&id) {
            let before = &before.prepared;
            prepared.result_changed =
                before.result_changed || before.metadata.result.id() != prepared.metadata.result.id();
        } else {
            // Room is made before, so that the newest is not the one that goes.
            let bytes = bytes_of(&prepared.text);
            state.shrink(self.bytes_max.saturating_sub(bytes));
            state.order.push_back(id.clone());
            state.bytes += bytes;
        }
        let prepared = Rc::new(prepared);
        // A schema change may have come between resolving and here.
        let fit = prepared.plan.fit(schema);
        state.by_id.insert(id, Entry { prepared: prepared.clone(), used: false, fit });
        prepared
    }

    /// All statements that can be executed, oldest first.
    pub fn all(&self) -> Vec<Rc<Prepared>> {
        let state = self.state.borrow();
        let known = state.order.iter().filter_map(|id| state.by_id.get(id));
        known.filter(|entry| entry.fit != Fit::Invalid).map(|entry| entry.prepared.clone()).collect()
    }
}

impl State {
    /// Judges every statement by a schema that is new.
    fn adapt(&mut self, schema: &Arc<Schema>) {
        if self.schema.as_ref().is_some_and(|known| Arc::ptr_eq(known, schema)) {
            return;
        }
        for entry in self.by_id.values_mut().filter(|entry| entry.fit != Fit::Invalid) {
            entry.fit = entry.prepared.plan.fit(schema);
        }
        self.schema = Some(schema.clone());
    }

    /// Forgets statements until the rest fits.
    #[expect(clippy::expect_used, reason = "the order has only known ids")]
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max
            && let Some(id) = self.order.pop_front()
        {
            let entry = self.by_id.get_mut(&id).expect("what is in the order is known");
            // Statements executed since the last time stay for another round, unless none would be evicted.
            if std::mem::take(&mut entry.used) && entry.fit != Fit::Invalid {
                self.order.push_back(id);
                continue;
            }
            self.bytes -= bytes_of(&entry.prepared.text);
            self.by_id.remove(&id);
            self.evictions += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Lookup;

    fn prepare(statements: &PreparedStatements, text: &str, schema: &Arc<Schema>) -> Bytes {
        let prepared = Prepared::new(text, None, &Lookup { schema }).expect("a good statement");
        statements.put(prepared, schema).metadata.id.clone()
    }

    fn known(statements: &PreparedStatements, id: &[u8], schema: &Arc<Schema>) -> &'static str {
        match statements.find(id, schema) {
            Found::Current(_) => "current",
            Found::Outdated(_) => "outdated",
            Found::Unknown => "unknown",
        }
    }

    #[test]
    fn executed_statements_stay_when_there_is_no_room() {
        let schema = Arc::new(Schema::default());
        let statements = PreparedStatements::new(3 * bytes_of("USE a"));
        let first = prepare(&statements, "USE a", &schema);
        let others = ["USE b", "USE c", "USE d", "USE e"].map(|text| {
            assert_eq!(known(&statements, &first, &schema), "current");
            prepare(&statements, text, &schema)
        });
        assert_eq!(known(&statements, &first, &schema), "current");
        assert_eq!(known(&statements, &others[0], &schema), "unknown");
        assert_eq!(known(&statements, &others[3], &schema), "current");
        assert_eq!((statements.all().len(), statements.evictions()), (3, 2));
        assert!(statements.bytes() <= statements.bytes_max());
    }

    #[test]
    fn statements_end_with_the_columns_that_they_were_made_for() {
        let table = |columns: &[&str], comment: &str| {
            let id = schema::TableId([7; 16]);
            let mut builder =
                schema::TableBuilder::new("ks", "t", id).partition_key("k", types::CqlType::Int);
            for column in columns {
                builder = builder.regular(*column, types::CqlType::Int);
            }
            builder.options.comment = comment.to_owned();
            let mut keyspace = schema::Keyspace::new("ks", schema::Replication::Simple { factor: 1 });
            let table = builder.build_known();
            keyspace.tables.insert(table.name.clone(), table);
            Arc::new(Schema::default().with_keyspace(keyspace))
        };
        let (one, commented, two) = (table(&["a"], ""), table(&["a"], "new"), table(&["a", "b"], ""));
        let statements = PreparedStatements::new(1 << 20);
        let text = "SELECT * FROM ks.t WHERE k = ?";
        let id = prepare(&statements, text, &one);
        assert_eq!(known(&statements, &id, &one), "current");
        assert_eq!(known(&statements, &id, &commented), "outdated");
        assert_eq!(prepare(&statements, text, &commented), id);
        assert_eq!(known(&statements, &id, &commented), "current");
        assert_eq!(known(&statements, &id, &two), "unknown");
        assert!(statements.all().is_empty());
        prepare(&statements, text, &two);
        let Found::Current(prepared) = statements.find(&id, &two) else { panic!("it is current") };
        assert!(prepared.result_changed, "clients may know other columns by this id");
        assert_eq!(known(&statements, &id, &Arc::new(Schema::default())), "unknown");
    }
}

//! How many statements of each kind a shard has executed, for metrics under ScyllaDB's names.

use std::cell::Cell;

use rt::metrics;
use rt::metrics::Metric;

use crate::modification::{ModificationKind, ModificationPlan};
use crate::plan::Plan;
use crate::request::Request;
use crate::select::SelectPlan;

/// Statements with and without conditions.
#[derive(Debug, Default)]
struct Modifications {
    plain: Cell<u64>,
    conditional: Cell<u64>,
}

impl Modifications {
    fn count(&self, is_conditional: bool) {
        count(if is_conditional { &self.conditional } else { &self.plain });
    }

    fn each(&self, each: &mut dyn FnMut(metrics::Labels<'_>, f64)) {
        each(&[("conditional", "no")], self.plain.get() as f64);
        each(&[("conditional", "yes")], self.conditional.get() as f64);
    }
}

/// The statements that a shard has executed since its start. Those that were refused before they began are left out.
#[derive(Debug, Default)]
pub struct StatementCounts {
    reads: Cell<u64>,
    unpaged: Cell<u64>,
    reversed: Cell<u64>,
    filtered: Cell<u64>,
    inserts: Modifications,
    updates: Modifications,
    deletes: Modifications,
    batches: Modifications,
    in_batches: Cell<u64>,
}

impl StatementCounts {
    /// The metrics of a shard's statements.
    pub const METRICS: &[Metric<Self>] = metrics! {
        counter "scylla_cql_reads" "SELECT statements." |s| s.reads.get() as f64;
        counter "scylla_cql_unpaged_select_queries" "SELECT statements without a page size." |s| s.unpaged.get() as f64;
        counter "scylla_cql_reverse_queries" "SELECT statements in reverse clustering order." |s| s.reversed.get() as f64;
        counter "scylla_cql_filtered_read_requests" "SELECT statements that read rows and leave some out." |s| s.filtered.get() as f64;
        counter "scylla_cql_inserts" "INSERT statements outside batches." each |s, each| s.inserts.each(each);
        counter "scylla_cql_updates" "UPDATE statements outside batches." each |s, each| s.updates.each(each);
        counter "scylla_cql_deletes" "DELETE statements outside batches." each |s, each| s.deletes.each(each);
        counter "scylla_cql_batches" "Batches." each |s, each| s.batches.each(each);
        counter "scylla_cql_statements_in_batches" "Statements of batches." |s| s.in_batches.get() as f64;
    };

    /// A statement that is executed; batches are counted by [`StatementCounts::batch`].
    pub(crate) fn statement(&self, plan: &Plan, request: &Request<'_>) {
        match plan {
            Plan::Select(plan) => self.select(plan, request),
            Plan::Modification(plan) => self.modification(plan),
            Plan::Batch(_) | Plan::Truncate(_) | Plan::Prune(_) | Plan::Setting(_) | Plan::Other(_) => {}
        }
    }

    fn select(&self, plan: &SelectPlan, request: &Request<'_>) {
        count(&self.reads);
        if request.page_size.is_none() {
            count(&self.unpaged);
        }
        if plan.reversed {
            count(&self.reversed);
        }
        if !plan.filters.is_empty() {
            count(&self.filtered);
        }
    }

    fn modification(&self, plan: &ModificationPlan) {
        let kind = match plan.kind {
            ModificationKind::Insert => &self.inserts,
            ModificationKind::Update => &self.updates,
            ModificationKind::Delete => &self.deletes,
        };
        kind.count(!plan.conditions.is_empty());
    }

    /// A batch of so many statements.
    pub(crate) fn batch(&self, statements: usize, is_conditional: bool) {
        self.batches.count(is_conditional);
        self.in_batches.set(self.in_batches.get() + statements as u64);
    }
}

fn count(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

//! Guardrails over reads.

use std::collections::BTreeSet;

use coordinator::Consistency;
use schema::{ColumnKind, Table};

use super::{Guard, Thresholds, Words};
use crate::error::Result;
use crate::expr::Env;
use crate::request::Request;
use crate::select::SelectPlan;
use crate::select::run::limit_value;
use crate::where_clause::access::{AccessPath, Scope};
use crate::where_clause::bounds;
use crate::where_clause::choice::Choice;
use crate::where_clause::rows::RowRestriction;

impl Guard<'_> {
    /// Looks at a SELECT with its values.
    ///
    /// # Errors
    /// The limit that it breaks, or an invalid value.
    pub fn select(&mut self, plan: &SelectPlan, request: &Request<'_>, env: &Env<'_>) -> Result<()> {
        if plan.computed {
            return Ok(());
        }
        let limits = self.limits;
        let level = BTreeSet::from([request.consistency.name().to_owned()]);
        self.values(
            "read_consistency_levels",
            &limits.read_consistency_levels,
            &level,
            "read consistency levels",
        )?;
        if plan.group_width.is_some() {
            self.enabled("group_by", limits.group_by_enabled, "GROUP BY functionality")?;
        }
        if plan.allows_filtering && !limits.allow_filtering_enabled {
            let text = "Querying with ALLOW FILTERING is not allowed. ALLOW FILTERING can potentially visit all the data in the \
                        table and have unpredictable performance.";
            return self.refuse("allow_filtering", text);
        }
        self.index_query(plan, request)?;
        self.keys(plan, env)?;
        let Some(size) = request.page_size else { return Ok(()) };
        // All rows fit into a page: the statement is not paged.
        if !plan.selection.is_aggregate() && limit_value(plan.limit.as_ref(), env)? <= u64::from(size) {
            return Ok(());
        }
        let table = &plan.table.name;
        let warn = |bound| {
            format!("Query for table {table} with page size {size} exceeds warning threshold of {bound}.")
        };
        let fail = |bound| {
            format!("Aborting query for table {table}, page size {size} exceeds fail threshold of {bound}.")
        };
        self.at_most("page_size", limits.page_size, u64::from(size), &Words { warn: &warn, fail: &fail })
    }

    /// A query that an index answers without a partition, and one that filters by several columns that change.
    fn index_query(&mut self, plan: &SelectPlan, request: &Request<'_>) -> Result<()> {
        let limits = self.limits;
        let (index, uses_index) = match &plan.access {
            AccessPath::Index(access) => (access.parts.as_slice(), !access.is_optional),
            _ => (&[][..], plan.nearest.is_some()),
        };
        let index = index.iter().map(|part| part.column.as_str());
        if uses_index
            && !plan.access.names_partitions()
            && !limits.non_partition_restricted_index_query_enabled
        {
            let text = "Non-partition key restricted query is not allowed. Executing a query on secondary indexes without \
                        partition key restriction might degrade performance";
            return self.refuse("non_partition_restricted_index_query_enabled", text);
        }
        let is_reconciled = !matches!(request.consistency, Consistency::One | Consistency::LocalOne);
        let is_mutable = |name: &&str| {
            plan.table
                .column(name)
                .is_some_and(|column| matches!(column.kind, ColumnKind::Regular | ColumnKind::Static))
        };
        let filtered = plan.filters.iter().map(|filter| filter.name.as_str());
        let columns: BTreeSet<&str> = filtered.chain(index).filter(is_mutable).collect();
        let is_checked = limits.intersect_filtering_query_warned || !limits.intersect_filtering_query_enabled;
        if !is_checked || columns.len() < 2 || !is_reconciled {
            return Ok(());
        }
        const NAME: &str = "intersect_filtering_query";
        let text = |verdict: &str| {
            format!(
                "Filtering query with intersection on mutable columns at consistency level requiring coordinator \
                 reconciliation is not {verdict}. Filtering queries involving an intersection on multiple mutable (i.e. non-key) \
                 columns over unrepaired data at read consistency levels that would require coordinator reconciliation may \
                 violate the guarantees of those consistency levels."
            )
        };
        if !limits.intersect_filtering_query_enabled {
            return self.refuse(NAME, text("allowed"));
        }
        self.warn(NAME, text("recommended"));
        Ok(())
    }

    /// The numbers of partitions and of clustering keys that IN asks for.
    fn keys(&mut self, plan: &SelectPlan, env: &Env<'_>) -> Result<()> {
        let limits = self.limits;
        let off = Thresholds::default();
        if limits.partition_keys_in_select == off && limits.in_select_cartesian_product == off {
            return Ok(());
        }
        if let Scope::Partitions(access) = plan.access.scope() {
            let (table, count) =
                (&plan.table.name, bounds::partition_keys(&plan.table, &access.keys, env)?.len() as u64);
            let warn = |bound| {
                format!(
                    "Query with partition keys in IN clause on table {table}, with number of partition keys {count} exceeds \
                     warning threshold of {bound}."
                )
            };
            let fail = |bound| {
                format!(
                    "Aborting query with partition keys in IN clause on table {table}, number of partition keys {count} \
                     exceeds fail threshold of {bound}."
                )
            };
            let words = Words { warn: &warn, fail: &fail };
            self.at_most("partition_keys_in_select", limits.partition_keys_in_select, count, &words)?;
        }
        let keys = match plan.access.scope() {
            Scope::Partitions(access) => &access.keys[..],
            _ => &[],
        };
        self.products(&plan.table, (keys, plan.access.rows()), env)
    }

    /// The combinations of the values that IN has for the columns of a key.
    pub(super) fn products(
        &mut self,
        table: &Table,
        (keys, rows): (&[Choice], &[RowRestriction]),
        env: &Env<'_>,
    ) -> Result<()> {
        if self.limits.in_select_cartesian_product == Thresholds::default() {
            return Ok(());
        }
        if let Some(count) = bounds::partition_key_product(table, keys, env)? {
            self.product(count, "partition key")?;
        }
        match bounds::clustering_product(table, rows, env)? {
            Some(count) => self.product(count, "clustering key"),
            None => Ok(()),
        }
    }

    fn product(&mut self, count: u64, keys: &str) -> Result<()> {
        let warn = |bound| {
            format!(
                "The cartesian product of the IN restrictions on {keys} produces {count} values, this exceeds warning \
                 threshold of {bound}."
            )
        };
        let fail = |bound| {
            format!(
                "Aborting query because the cartesian product of the IN restrictions on {keys} produces {count} values, this \
                 exceeds fail threshold of {bound}."
            )
        };
        let bounds = self.limits.in_select_cartesian_product;
        self.at_most("in_select_cartesian_product", bounds, count, &Words { warn: &warn, fail: &fail })
    }
}

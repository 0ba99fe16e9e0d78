//! Guardrails over reads.

use std::collections::BTreeSet;

use super::{Guard, Thresholds, Words, violated};
use crate::error::{Result, invalid};
use crate::expr::Env;
use crate::request::Request;
use crate::select::SelectPlan;
use crate::where_clause::access::AccessPath;
use crate::where_clause::bounds;

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
            return invalid!("{}", violated("allow_filtering", text));
        }
        self.keys(plan, env)?;
        let Some(size) = request.page_size else { return Ok(()) };
        let table = &plan.table.name;
        let warn = |bound| {
            format!("Query for table {table} with page size {size} exceeds warning threshold of {bound}.")
        };
        let fail = |bound| {
            format!("Aborting query for table {table}, page size {size} exceeds fail threshold of {bound}.")
        };
        self.at_most("page_size", limits.page_size, u64::from(size), &Words { warn: &warn, fail: &fail })
    }

    /// The numbers of partitions and of clustering keys that IN asks for.
    fn keys(&mut self, plan: &SelectPlan, env: &Env<'_>) -> Result<()> {
        let limits = self.limits;
        let off = Thresholds::default();
        if limits.partition_keys_in_select == off && limits.in_select_cartesian_product == off {
            return Ok(());
        }
        if let AccessPath::Key(access) | AccessPath::Keys(access) | AccessPath::Slice(access) = &plan.access {
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
            self.product(count, "partition key")?;
        }
        let ranges = bounds::slices(&plan.table, plan.access.rows(), env)?.ranges().len() as u64;
        self.product(ranges, "clustering key")
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
